//! How the apiserver encrypts Secrets in etcd: a configuration with the key inside, so it is a secret itself. It must
//! never be among the files of a unit, which are readable to all.
//!
//! Format: `EncryptionConfiguration` of apiserver.config.k8s.io/v1 (k8s.io/apiserver, pkg/server/options/encryptionconfig).

use std::fmt::Write;

use data_encoding::BASE64;
use model::Secret;
use zeroize::Zeroizing;

/// Where the configuration is (JSON, secret, mode 0600).
pub const SECRETS_ENCRYPTION: &str = "/run/cairn/pki/encryption.json";

/// The configuration: Secrets are written under `key` by XSalsa20 and Poly1305, whose nonces are long enough to be
/// drawn at random for ever. What an earlier version has written in clear is still read.
#[must_use]
pub fn secrets_encryption(key: &Secret<32>) -> Zeroizing<String> {
    let encoded = Zeroizing::new(BASE64.encode(key.expose()));
    // A text of fixed shape: the key is written once, into a buffer that is wiped and does not grow.
    let mut text = Zeroizing::new(String::with_capacity(ROOM));
    write!(
        text,
        r#"{{
  "apiVersion": "apiserver.config.k8s.io/v1",
  "kind": "EncryptionConfiguration",
  "resources": [
    {{
      "resources": ["secrets"],
      "providers": [
        {{ "secretbox": {{ "keys": [{{ "name": "{KEY_NAME}", "secret": "{}" }}] }} }},
        {{ "identity": {{}} }}
      ]
    }}
  ]
}}
"#,
        *encoded
    )
    .expect("writing to a String does not fail");
    text
}

/// The key's name, which etcd keeps before each Secret: another key will have another name.
const KEY_NAME: &str = "master-1";
/// More than the text needs.
const ROOM: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    /// The first provider writes; the key is the one that was given.
    #[test]
    fn secrets_alone_are_written_under_the_clusters_key() {
        let text = secrets_encryption(&Secret::take(&mut [7; 32]));
        assert_eq!(text.capacity(), ROOM, "a buffer that grew would leave the key behind");
        let read: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(read["kind"], "EncryptionConfiguration");
        let rules = read["resources"].as_array().unwrap();
        assert_eq!(rules.len(), 1);
        assert_eq!(rules[0]["resources"], serde_json::json!(["secrets"]));
        let providers = rules[0]["providers"].as_array().unwrap();
        let key = serde_json::json!([{ "name": "master-1", "secret": BASE64.encode(&[7; 32]) }]);
        assert_eq!(providers[0], serde_json::json!({ "secretbox": { "keys": key } }));
        assert_eq!(providers[1..], [serde_json::json!({ "identity": {} })]);
    }
}
