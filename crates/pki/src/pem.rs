//! PEM (RFC 7468): how the Kubernetes components and etcd want their files. Writes only; nothing here reads PEM.

use data_encoding::BASE64;
use rustls::pki_types::CertificateDer;
use zeroize::Zeroizing;

use crate::key::{KeyDer, PublicKey};

/// A certificate as a PEM file.
#[must_use]
pub fn certificate_pem(certificate: &CertificateDer<'_>) -> String {
    encode("CERTIFICATE", certificate).to_string()
}

/// A PKCS#8 private key as a PEM file; wiped when dropped.
#[must_use]
pub fn private_key_pem(key: &KeyDer) -> Zeroizing<String> {
    encode("PRIVATE KEY", key.expose())
}

/// A public key as a PEM file.
#[must_use]
pub fn public_key_pem(key: &PublicKey) -> String {
    encode("PUBLIC KEY", &key.spki()).to_string()
}

/// Bytes of one line of 64 base64 characters (RFC 7468, section 2).
const LINE_BYTES: usize = 48;

fn encode(label: &str, der: &[u8]) -> Zeroizing<String> {
    // The whole length at once: a string that grows would leave pieces of the key behind.
    let lines = der.len().div_ceil(LINE_BYTES);
    let mut text = Zeroizing::new(String::with_capacity(lines * 65 + 2 * label.len() + 40));
    text.push_str("-----BEGIN ");
    text.push_str(label);
    text.push_str("-----\n");
    for line in der.chunks(LINE_BYTES) {
        BASE64.encode_append(line, &mut text);
        text.push('\n');
    }
    text.push_str("-----END ");
    text.push_str(label);
    text.push_str("-----\n");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_break_after_64_characters() {
        let text = encode("CERTIFICATE", &[0; 50]);
        let expected = format!("-----BEGIN CERTIFICATE-----\n{}\nAAA=\n-----END CERTIFICATE-----\n", "A".repeat(64));
        assert_eq!(*text, expected);
    }

    #[test]
    fn a_key_is_written_whole_under_its_label() {
        let key = crate::PrivateKey::generate().unwrap();
        let der = key.to_pkcs8().unwrap();
        let content = |text: &str, label: &str| {
            let text = text.strip_prefix(&format!("-----BEGIN {label}-----\n")).unwrap();
            let text = text.strip_suffix(&format!("-----END {label}-----\n")).unwrap();
            BASE64.decode(text.replace('\n', "").as_bytes()).unwrap()
        };
        assert_eq!(content(&private_key_pem(&der), "PRIVATE KEY"), der.expose());
        assert_eq!(content(&public_key_pem(key.public()), "PUBLIC KEY"), key.public().spki());
    }

    #[test]
    fn a_key_never_moves_while_it_is_written() {
        for length in 0..300 {
            let text = encode("PRIVATE KEY", &vec![7; length]);
            assert!(text.len() <= length.div_ceil(LINE_BYTES) * 65 + 2 * "PRIVATE KEY".len() + 40, "{length}");
        }
    }
}
