//! Registries as a person sets, lists and removes them, at a coordinator that is a fake.

use model::Chain;
use pki::{Authority, AuthorityKind, UnixTime, certificate_pem};

use super::*;
use crate::context::home;

async fn did(command: Command, context: &Context) -> Result<String, Failure> {
    let mut out = Vec::new();
    run(&command, context, &mut out).await.map(|()| String::from_utf8(out).unwrap())
}

fn sets(host: &str, mirrors: &[&str], ca: Option<&Path>) -> Command {
    let mirrors = mirrors.iter().map(|url| MirrorUrl::read(url).unwrap()).collect();
    Command::Set(Set { host: typed_host(host).unwrap(), mirrors, ca: ca.map(Path::to_owned) })
}

fn authority() -> String {
    let now = UnixTime::since_unix_epoch(std::time::Duration::from_secs(1_800_000_000));
    certificate_pem(Authority::create(AuthorityKind::Kubernetes, now).unwrap().certificate())
}

/// Proves: W5
#[tokio::test]
async fn a_registry_is_set_listed_and_removed() {
    let (root, context, coordinator) = home::with_a_coordinator().await;
    let ca = root.path().join("ca.pem");
    std::fs::write(&ca, format!("the authority\n{}{}", authority(), authority())).unwrap();
    let mirrors = ["https://a.b", "http://c:5000"];
    let said = did(sets("Registry.LAN:5000", &["https://a.b"], Some(&ca)), &context).await.unwrap();
    assert_eq!(said, "images of registry.lan:5000 are pulled from https://a.b first\n");
    did(sets("index.docker.io", &mirrors, None), &context).await.unwrap();
    let kept = coordinator.registries.lock().unwrap().clone();
    assert_eq!(kept.values().map(|registry| registry.authorities().len()).collect::<Vec<_>>(), [0, 2]);
    let listed = did(Command::List, &context).await.unwrap();
    let rows: Vec<Vec<&str>> = listed.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(rows[0], ["REGISTRY", "MIRRORS", "CERTIFICATES", "(SHA-256)"]);
    assert_eq!(rows[1], ["docker.io", "https://a.b", "http://c:5000", "-"]);
    assert!(rows[2][..2] == ["registry.lan:5000", "https://a.b"] && rows[2].len() == 4, "{listed}");
    let host = typed_host("docker.io").unwrap();
    let said = did(Command::Remove(Remove { host }), &context).await.unwrap();
    assert_eq!(said, "images of docker.io are pulled from itself alone\n");
    assert_eq!(coordinator.registries.lock().unwrap().len(), 1);
}

/// Proves: W5
#[tokio::test]
async fn a_file_without_certificates_is_refused_before_any_call() {
    let (root, context, coordinator) = home::with_a_coordinator().await;
    let file = root.path().join("ca.pem");
    let pem = |body: &str| format!("-----BEGIN CERTIFICATE-----\n{body}\n-----END CERTIFICATE-----\n");
    let good = authority();
    for (text, said) in [
        ("", "holds no certificate in PEM"),
        ("-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n", "holds no certificate in PEM"),
        (&good[..good.len() - 10], "read the certificates in"),
        (&(good.clone() + &pem("AAAA")), "certificate 2 in"),
        (&"a".repeat(1 << 21), "it has more than 1 MiB"),
    ] {
        std::fs::write(&file, text).unwrap();
        let refused = did(sets("a.b", &[], Some(&file)), &context).await.unwrap_err();
        assert!(refused.code() == Code::Usage && refused.reason().contains(said), "{said}: {}", refused.reason());
    }
    let absent = root.path().join("absent");
    assert_eq!(did(sets("a.b", &[], Some(&absent)), &context).await.unwrap_err().code(), Code::Failed);
    let twice = did(sets("a.b", &["https://c.d", "https://c.d"], None), &context).await.unwrap_err();
    let reason = Chain(&RegistryError::Registry(BadRegistry::Twice)).to_string();
    assert_eq!((twice.reason(), coordinator.calls().len()), (reason, 0));
}
