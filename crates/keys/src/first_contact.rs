//! The proof of `Claim`: the machine that answers is the one that read the config the CLI made, and nobody sits
//! between the two. Computed by the machine, verified by the CLI over its own end of the TLS connection.

use aws_lc_rs::hmac;
use model::{ConfigDigest, FirstContact, MachineId};

use crate::derive::hkdf;
use crate::purpose::Purpose;

/// Label of the TLS 1.3 exporter (RFC 8446, section 7.5) whose 32 bytes go into the proof; its context is absent.
pub const EXPORTER_LABEL: &[u8] = b"EXPORTER-cairn-first-contact";

/// Transcript that both ends must see alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Transcript {
    /// 32 bytes exported from the TLS connection: a relay has two connections, so two of them.
    pub exporter: [u8; 32],
    /// SHA-256 of the SubjectPublicKeyInfo of the machine's certificate.
    pub leaf_spki: [u8; 32],
    /// SHA-256 of the SubjectPublicKeyInfo of the cluster's CA.
    pub ca_spki: [u8; 32],
    /// The machine that answers.
    pub machine: MachineId,
    /// SHA-256 of the config as the machine read it.
    pub config: ConfigDigest,
}

/// Another secret, or another view of the connection: a relay or an impostor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the machine's proof does not match: another machine, or someone between")]
pub struct BadProof;

/// Proof of the machine that it has the secret.
#[must_use]
pub fn prove(secret: &FirstContact, transcript: &Transcript) -> [u8; 32] {
    let mut proof = [0; 32];
    proof.copy_from_slice(hmac::sign(&key(secret), &transcript.bytes()).as_ref());
    proof
}

/// Checks the machine's proof, in constant time.
///
/// # Errors
/// [`BadProof`] when it is not the one that [`prove`] gives.
pub fn verify(secret: &FirstContact, transcript: &Transcript, proof: &[u8]) -> Result<(), BadProof> {
    hmac::verify(&key(secret), &transcript.bytes(), proof).map_err(|_| BadProof)
}

fn key(secret: &FirstContact) -> hmac::Key {
    hmac::Key::new(hmac::HMAC_SHA256, hkdf::<32>(&[], secret.expose(), Purpose::FirstContact, &[]).expose())
}

impl Transcript {
    /// All parts have a fixed length, so none carries it.
    fn bytes(&self) -> Vec<u8> {
        [&b"server"[..], &self.exporter, &self.leaf_spki, &self.ca_spki, &self.machine.0, &self.config.0].concat()
    }
}

#[cfg(test)]
mod tests {
    use model::Secret;

    use super::*;

    fn secret(byte: u8) -> FirstContact {
        FirstContact(Secret::take(&mut [byte; 32]))
    }

    /// Proves: S12
    #[test]
    fn a_relay_an_impostor_and_a_wrong_secret_are_refused() {
        let seen = Transcript {
            exporter: [1; 32],
            leaf_spki: [2; 32],
            ca_spki: [3; 32],
            machine: MachineId([4; 16]),
            config: ConfigDigest([5; 32]),
        };
        let proof = prove(&secret(9), &seen);
        assert_eq!(verify(&secret(9), &seen, &proof), Ok(()));
        assert_eq!(verify(&secret(8), &seen, &proof), Err(BadProof), "wrong secret");
        assert_eq!(verify(&secret(9), &seen, &proof[..31]), Err(BadProof), "cut short");
        assert_eq!(verify(&secret(9), &seen, &[]), Err(BadProof), "empty");
        for (what, other) in [
            ("relay", Transcript { exporter: [7; 32], ..seen }),
            ("another leaf", Transcript { leaf_spki: [7; 32], ..seen }),
            ("another CA", Transcript { ca_spki: [7; 32], ..seen }),
            ("another machine", Transcript { machine: MachineId([7; 16]), ..seen }),
            ("another config", Transcript { config: ConfigDigest([7; 32]), ..seen }),
        ] {
            assert_eq!(verify(&secret(9), &other, &proof), Err(BadProof), "{what}");
        }
    }
}
