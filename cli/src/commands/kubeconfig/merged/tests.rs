//! Edits by a stand-in for kubectl that keeps one context and the one in use. By hand they were made with the real one.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use api::{ClientCertificate, UnixMillis};
use pki::PrivateKey;

use super::*;
use crate::context::home;

/// Writes down each call below `config`; the context is there while `there` is, and `now` holds the one in use.
const STAND_IN: &str = r#"#!/bin/sh
cd "$(dirname "$0")" && shift && echo "$*" >> said
case "$1" in
    current-context) cat now ;;
    use-context) echo "$2" > now ;;
    unset) rm now ;;
    set-context) touch there ;;
    delete-context) rm there ;;
    get-contexts) test -e there ;;
    set-cluster) test ! -e broken || { echo "error: no room" >&2; exit 1; } ;;
esac
"#;

struct Desk {
    root: tempfile::TempDir,
    context: Context,
    record: ClusterRecord,
    kubectl: tempfile::TempDir,
}

impl Desk {
    fn new() -> Self {
        let (root, context, _) = home::begun();
        let kubectl = tempfile::tempdir().unwrap();
        let program = kubectl.path().join("kubectl");
        fs::write(&program, STAND_IN).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        let record = ClusterRecord::of_config(home::name(), model::ConfigDigest([5; 32]));
        Self { root, context, record, kubectl }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.kubectl.path().join(name)
    }

    fn said(&self) -> String {
        fs::read_to_string(self.file("said")).unwrap()
    }

    /// Context that kubectl uses.
    fn used(&self) -> Option<String> {
        fs::read_to_string(self.file("now")).ok()
    }

    async fn merge(&self) -> Result<MergedContext, KubeconfigError> {
        let certificate = ClientCertificate {
            ca_certificate: vec![1],
            client_certificate: vec![2],
            tls_server_name: "kubernetes".to_owned(),
            expires: UnixMillis(0),
        };
        let granted = Granted { key: PrivateKey::generate().unwrap(), certificate };
        let server = "127.0.0.1:16443".parse().unwrap();
        MergedContext::add(self.file("kubectl"), (&self.context, &self.record), &granted, server).await
    }
}

/// Proves: Q6
#[tokio::test]
async fn a_context_is_used_as_long_as_its_tunnel_is_open() {
    let desk = Desk::new();
    fs::write(desk.file("now"), "kind-lab\n").unwrap();
    let merged = desk.merge().await.unwrap();
    assert_eq!(desk.used().as_deref(), Some("cairn-home\n"));
    let said = desk.said();
    let cluster = said.find("set-cluster cairn-home --server=https://127.0.0.1:16443 --tls-server-name=kubernetes ");
    assert!(said.find("delete-cluster cairn-home") < cluster && cluster.is_some(), "what was left goes first: {said}");
    assert!(said.contains("set-credentials cairn-home --client-certificate=") && !said.contains("PRIVATE"), "{said}");
    let left = fs::read_dir(desk.context.store.directory(&desk.record.name)).unwrap();
    assert!(
        left.flatten().all(|entry| !entry.file_name().to_string_lossy().starts_with("kubeconfig-")),
        "no key is left"
    );
    merged.remove().await.unwrap();
    assert_eq!(desk.used().as_deref(), Some("kind-lab\n"));
    assert!(!desk.file("there").exists() && desk.said().ends_with("get-contexts cairn-home\n"));
    assert!(desk.root.path().exists());
}

/// Proves: Q6
#[tokio::test]
async fn a_context_that_is_chosen_meanwhile_stays() {
    let desk = Desk::new();
    let merged = desk.merge().await.unwrap();
    fs::write(desk.file("now"), "kind-lab\n").unwrap();
    merged.remove().await.unwrap();
    assert_eq!(desk.used().as_deref(), Some("kind-lab\n"));
    let merged = desk.merge().await.unwrap();
    fs::remove_file(desk.file("now")).unwrap();
    merged.remove().await.unwrap();
    assert_eq!(desk.used(), None, "and none where none is");
}

/// Proves: Q6
#[tokio::test]
async fn a_user_has_this_program_fetch_certificates_for_kubectl() {
    let mut desk = Desk::new();
    desk.record.calls = crate::store::CallsAs::User;
    desk.merge().await.unwrap();
    let said = desk.said();
    assert!(said.contains("--exec-arg=user --exec-arg=credential") && !said.contains("client-key"), "{said}");
}

/// Proves: Q6
#[tokio::test]
async fn a_kubectl_that_refuses_is_told_in_its_words() {
    let desk = Desk::new();
    fs::write(desk.file("broken"), "").unwrap();
    let refused = desk.merge().await.unwrap_err();
    assert_eq!(refused.to_string(), "`kubectl config set-cluster`: error: no room");
    assert_eq!(desk.used(), None, "kubectl uses what it used");
    let missing = MergeError::from(KubectlError::Missing);
    assert!(missing.next().is_some_and(|next| next.contains("install kubectl")));
}
