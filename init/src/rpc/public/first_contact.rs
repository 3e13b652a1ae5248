//! First contact, the machine's side: what `Claim` answers, and when not. The secret leaves this file only as a proof.
//!
//! ```text
//!   NotYet ──header committed──► Open ──the owner's first authenticated call──► Over
//!      └─────config refused────► Never
//! ```

use std::sync::Arc;

use api::Claim;
use enrol::wait::Reason;
use keys::first_contact::{Transcript, prove};
use keys::identity::Identity;
use model::{ConfigDigest, FirstContact};

/// Where first contact stands.
#[derive(Debug)]
pub(crate) enum Claimable {
    /// The machine has no identity to prove yet.
    NotYet,
    /// The machine's data header is committed, its owner has not called.
    Open(ClaimSecret),
    /// The owner has called with its key.
    Over,
    /// The config is refused: this boot brings no identity.
    Never(Reason),
}

/// Secret and facts of which `Claim` makes its answer.
#[derive(Debug)]
pub(crate) struct ClaimSecret {
    /// Shared with the CLI that made the config.
    pub(crate) secret: FirstContact,
    /// The config as it was read.
    pub(crate) config: ConfigDigest,
    /// Identity of the machine: its certificate is what the owner will see from then on.
    pub(crate) identity: Arc<Identity>,
}

/// Why there is no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum NoClaim {
    /// There is nothing to prove yet.
    #[error("the machine is not enrolled yet; nothing was changed; ask again, or look at its screen")]
    NotYet,
    /// The secret is dead.
    #[error("first contact is over: the owner has called; nothing was changed")]
    Over,
    /// The config was refused: this boot brings no identity.
    #[error("{0}")]
    Never(Reason),
    /// A certificate of our own does not parse.
    #[error("own certificate is unreadable")]
    Certificate,
}

impl From<NoClaim> for tonic::Status {
    fn from(error: NoClaim) -> Self {
        match error {
            NoClaim::NotYet | NoClaim::Over | NoClaim::Never(_) => Self::failed_precondition(error.to_string()),
            NoClaim::Certificate => Self::internal(error.to_string()),
        }
    }
}

impl Claimable {
    /// The proof for the connection that exports `exporter`, which binds it to that connection; the certificate that was
    /// shown on it says nothing, since whoever claims does not know the machine's name.
    pub(super) fn answer(&self, exporter: [u8; 32]) -> Result<Claim, NoClaim> {
        let held = match self {
            Self::Open(held) => held,
            Self::NotYet => return Err(NoClaim::NotYet),
            Self::Over => return Err(NoClaim::Over),
            Self::Never(reason) => return Err(NoClaim::Never(*reason)),
        };
        let Identity { holder, certificate, ca_certificate, .. } = &*held.identity;
        let transcript = Transcript {
            exporter,
            leaf_spki: pin(certificate)?,
            ca_spki: pin(ca_certificate)?,
            machine: holder.machine,
            config: held.config,
        };
        Ok(Claim {
            machine_id: holder.machine,
            leaf_certificate: certificate.clone(),
            ca_certificate: ca_certificate.clone(),
            proof: prove(&held.secret, &transcript),
        })
    }

    /// The owner has called: whether that ended it just now.
    pub(super) fn end(&mut self) -> bool {
        let ends = matches!(self, Self::Open(_));
        if ends {
            *self = Self::Over;
        }
        ends
    }
}

fn pin(certificate: &[u8]) -> Result<[u8; 32], NoClaim> {
    pki::public_key_of(&certificate.to_vec().into()).map(|key| key.pin().0).map_err(|_| NoClaim::Certificate)
}

#[cfg(test)]
mod tests {
    use keys::data_key::Holder;
    use keys::first_contact::verify;
    use keys::identity::SigningKey;
    use model::{ClusterId, MachineId, NodeName, Secret};
    use pki::PrivateKey;
    use pki::client_auth::nameless_certificate;

    use super::*;

    fn secret() -> FirstContact {
        FirstContact(Secret::take(&mut [9; 32]))
    }

    fn certificate() -> Vec<u8> {
        nameless_certificate(&PrivateKey::generate().expect("a key")).expect("a certificate").to_vec()
    }

    fn open(certificate: &[u8], ca_certificate: &[u8]) -> Claimable {
        let holder = Holder { cluster: ClusterId([3; 16]), machine: MachineId([4; 16]) };
        let identity = Identity {
            key: SigningKey::from_seed(Secret::take(&mut [8; 32])).into(),
            name: NodeName::derived(holder.machine),
            holder,
            certificate: certificate.to_vec(),
            ca_certificate: ca_certificate.to_vec(),
        };
        Claimable::Open(ClaimSecret { secret: secret(), config: ConfigDigest([5; 32]), identity: Arc::new(identity) })
    }

    /// Proves: S12
    #[test]
    fn the_proof_is_for_this_connection_and_no_other() {
        let (leaf, ca) = (certificate(), certificate());
        let claim = open(&leaf, &ca).answer([1; 32]).expect("open");
        let seen = Transcript {
            exporter: [1; 32],
            leaf_spki: pin(&claim.leaf_certificate).expect("parses"),
            ca_spki: pin(&claim.ca_certificate).expect("parses"),
            machine: claim.machine_id,
            config: ConfigDigest([5; 32]),
        };
        assert_eq!(verify(&secret(), &seen, &claim.proof), Ok(()));
        assert!(verify(&secret(), &Transcript { exporter: [2; 32], ..seen }, &claim.proof).is_err(), "a relay");
        assert_eq!((claim.leaf_certificate, claim.ca_certificate), (leaf, ca));
    }

    /// Proves: S12
    #[test]
    fn the_claim_is_open_from_the_identity_to_the_owners_call() {
        assert_eq!(Claimable::NotYet.answer([1; 32]), Err(NoClaim::NotYet));
        let mut claim = open(&certificate(), &certificate());
        assert!(claim.answer([1; 32]).is_ok(), "now there is one");
        assert!(claim.end(), "the owner's first call ends it");
        assert_eq!(claim.answer([1; 32]), Err(NoClaim::Over));
        assert!(!claim.end(), "once");
        assert!(!Claimable::NotYet.end(), "there was nothing to end");
        let never = Reason::Config(enrol::config::ConfigError::Signature);
        assert_eq!(Claimable::Never(never).answer([1; 32]), Err(NoClaim::Never(never)), "the reason is told");
    }
}
