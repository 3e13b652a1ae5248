//! Registries as containerd reads them at each pull: one directory for each, with a `hosts.toml` (containerd's docs/hosts.md, its
//! core/remotes/docker/config). Credentials are no matter of these files: they come with each pull, from the pod's secrets.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use model::{MirrorUrl, RegistryHost};
use pki::CertificateDer;

/// Directory that holds those of all registries.
pub const REGISTRIES: &str = "/run/cairn/registries";

/// File of a registry's directory that says where it is pulled from.
pub const HOSTS: &str = "hosts.toml";

/// File of a registry's directory with its certificates, which the first one names.
pub const AUTHORITIES: &str = "ca.pem";

/// Registry that the machine pulls from.
#[derive(Debug, Clone, Copy)]
pub struct Registry<'a> {
    /// Name by which images' names begin.
    pub host: RegistryHost,
    /// Mirrors, asked in this order before the registry itself.
    pub mirrors: &'a [MirrorUrl],
    /// Certificates of authorities, in DER.
    pub authorities: &'a [Vec<u8>],
}

/// Files of one registry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegistryFiles {
    /// Text of [`HOSTS`].
    pub hosts: String,
    /// Text of [`AUTHORITIES`]; none where the certificates of the public web are enough.
    pub authorities: Option<String>,
}

/// Files of all registries by the names of their directories below [`REGISTRIES`].
#[must_use]
pub fn files<'a>(registries: impl IntoIterator<Item = Registry<'a>>) -> BTreeMap<String, RegistryFiles> {
    registries.into_iter().map(|registry| (directory(registry.host), of_one(registry))).collect()
}

/// Name of a registry's directory, in the spelling that containerd looks for first: a colon stands in no path of its own.
fn directory(host: RegistryHost) -> String {
    match host.as_str().split_once(':') {
        Some((host, port)) => format!("{host}_{port}_"),
        None => host.to_string(),
    }
}

fn of_one(Registry { host, mirrors, authorities }: Registry<'_>) -> RegistryFiles {
    let is_proved = !authorities.is_empty();
    let ca = format!("ca = \"{REGISTRIES}/{}/{AUTHORITIES}\"\n", directory(host));
    let mut hosts = String::new();
    // Of the registry itself, which is asked last.
    if is_proved {
        hosts.push_str(&ca);
    }
    for mirror in mirrors {
        write!(hosts, "\n[host.\"{mirror}\"]\n  capabilities = [\"pull\", \"resolve\"]\n").expect("a string grows");
        // With certificates containerd would speak TLS to a mirror without.
        if is_proved && mirror.is_secure() {
            hosts.push_str("  ");
            hosts.push_str(&ca);
        }
    }
    let pem = |certificate: &Vec<u8>| pki::certificate_pem(&CertificateDer::from(certificate.as_slice()));
    RegistryFiles { hosts, authorities: is_proved.then(|| authorities.iter().map(pem).collect()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files_of(host: &str, mirrors: &[&str], authorities: &[Vec<u8>]) -> (String, RegistryFiles) {
        let host = RegistryHost::read(host).expect("a host");
        let mirrors: Vec<_> = mirrors.iter().map(|url| MirrorUrl::read(url).expect("a URL")).collect();
        let mut files = files([Registry { host, mirrors: &mirrors, authorities }]);
        files.pop_first().expect("one")
    }

    /// Proves: W5
    #[test]
    fn a_registry_is_written_as_containerd_reads_it() {
        let authorities = [vec![1; 3], vec![2; 3]];
        let mirrors = ["https://mirror:5000/hub", "http://10.0.0.7"];
        let (directory, files) = files_of("r.example.org:5000", &mirrors, &authorities);
        assert_eq!(directory, "r.example.org_5000_");
        let hosts = "\
ca = \"/run/cairn/registries/r.example.org_5000_/ca.pem\"

[host.\"https://mirror:5000/hub\"]
  capabilities = [\"pull\", \"resolve\"]
  ca = \"/run/cairn/registries/r.example.org_5000_/ca.pem\"

[host.\"http://10.0.0.7\"]
  capabilities = [\"pull\", \"resolve\"]
";
        assert_eq!(files.hosts, hosts);
        let pem = |text: &str| format!("-----BEGIN CERTIFICATE-----\n{text}\n-----END CERTIFICATE-----\n");
        assert_eq!(files.authorities, Some(pem("AQEB") + &pem("AgIC")));
    }

    /// Proves: W5
    #[test]
    fn without_certificates_those_of_the_public_web_hold() {
        let (directory, files) = files_of("docker.io", &["https://mirror.example.org"], &[]);
        assert_eq!((&*directory, &files.authorities), ("docker.io", &None));
        let hosts = "\n[host.\"https://mirror.example.org\"]\n  capabilities = [\"pull\", \"resolve\"]\n";
        assert_eq!(files.hosts, hosts);
    }
}
