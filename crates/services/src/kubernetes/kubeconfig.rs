//! Kubeconfigs: for services by path, for the owner with everything inside. JSON, which is YAML.

use std::fmt;
use std::net::SocketAddrV4;

use data_encoding::BASE64;
use pki::AuthorityKind;
use serde_json::json;
use zeroize::Zeroizing;

use crate::credential::{Credential, authority_path};

/// The kubeconfig of a service. It names its certificate and key by path: so it is no secret itself, and a
/// certificate that is replaced is read again without a restart.
pub(crate) fn of_service(user: Credential, server: SocketAddrV4) -> String {
    let config = config(
        &json!({
            "server": format!("https://{server}"),
            "certificate-authority": authority_path(AuthorityKind::Kubernetes),
        }),
        &json!({
            "client-certificate": user.certificate_path(),
            "client-key": user.key_path(),
        }),
    );
    format!("{config:#}\n")
}

/// Parts of the owner's kubeconfig.
pub struct OwnerKubeconfig<'a> {
    /// Where the owner's tunnel listens: a loopback address of the owner's computer.
    pub server: SocketAddrV4,
    /// The Kubernetes authority's certificate, PEM.
    pub authority: &'a str,
    /// The owner's certificate, PEM.
    pub certificate: &'a str,
    /// The owner's private key, PEM.
    pub key: &'a str,
}

impl fmt::Debug for OwnerKubeconfig<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OwnerKubeconfig").field("server", &self.server).finish_non_exhaustive()
    }
}

/// The owner's kubeconfig, complete in one file of mode 0600; wiped when dropped.
///
/// The tunnel ends at a port of the owner's computer, so the name to check is set apart from the address.
#[must_use]
pub fn owner_kubeconfig(parts: &OwnerKubeconfig<'_>) -> Zeroizing<String> {
    let encoded = |pem: &str| BASE64.encode(pem.as_bytes());
    // A text of fixed shape instead of a tree of strings: the key is written once, into a buffer that is wiped.
    let key = Zeroizing::new(encoded(parts.key));
    let public = config(
        &json!({
            "server": format!("https://{}", parts.server),
            "tls-server-name": "kubernetes",
            "certificate-authority-data": encoded(parts.authority),
        }),
        &json!({
            "client-certificate-data": encoded(parts.certificate),
            "client-key-data": KEY_PLACE,
        }),
    );
    let public = format!("{public:#}\n");
    let mut text = Zeroizing::new(String::with_capacity(public.len() + key.len()));
    for (index, part) in public.split(KEY_PLACE).enumerate() {
        if index > 0 {
            text.push_str(&key);
        }
        text.push_str(part);
    }
    text
}

/// Stands where the key goes; no base64 contains it.
const KEY_PLACE: &str = "(key)";

fn config(cluster: &serde_json::Value, user: &serde_json::Value) -> serde_json::Value {
    json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{ "name": "cairn", "cluster": cluster }],
        "users": [{ "name": "cairn", "user": user }],
        "contexts": [{ "name": "cairn", "context": { "cluster": "cairn", "user": "cairn" } }],
        "current-context": "cairn",
    })
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    /// Proves: W1
    #[test]
    fn the_owners_kubeconfig_holds_each_part_where_kubectl_looks() {
        let parts = OwnerKubeconfig {
            server: SocketAddrV4::new(Ipv4Addr::LOCALHOST, 16443),
            authority: "ca",
            certificate: "certificate",
            key: "a secret key",
        };
        let text = owner_kubeconfig(&parts);
        let read: serde_json::Value = serde_json::from_str(&text).unwrap();
        let user = &read["users"][0]["user"];
        assert_eq!(user["client-key-data"], BASE64.encode(b"a secret key"));
        assert_eq!(user["client-certificate-data"], BASE64.encode(b"certificate"));
        let cluster = &read["clusters"][0]["cluster"];
        assert_eq!(cluster["certificate-authority-data"], BASE64.encode(b"ca"));
        assert_eq!(cluster["server"], "https://127.0.0.1:16443");
        assert_eq!(cluster["tls-server-name"], "kubernetes");
        assert!(!format!("{parts:?}").contains("secret"));
    }
}
