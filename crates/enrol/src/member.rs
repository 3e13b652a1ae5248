//! Membership of the machine, as far as it is known before its data is open.

use std::sync::Arc;

use keys::binding::Binding;
use keys::directory::DirectoryMinimum;
use keys::identity::Identity;
use keys::recovery::RecoveryPubKey;
use keys::share::ShareKey;
use model::{ColdStart, ConfigDigest, DiskUuid, Level, Prefixes, Protection};

use crate::seal::Seal;

/// Facts of a member by its seal: one that is being written, or the one that opened.
#[derive(Debug)]
pub struct Membership {
    /// The machine's identity.
    pub identity: Arc<Identity>,
    /// The owner's Ed25519 public key.
    pub owner_pub_key: [u8; 32],
    /// Key that the machine's recovery record is sealed to: the same owner's, for ever.
    pub recovery_key: RecoveryPubKey,
    /// Address ranges that the cluster keeps for itself.
    pub prefixes: Prefixes,
    /// Protection that stands between a thief and the data.
    pub protection: Protection,
    /// The cold-start policy: how coordinators get the cluster key then.
    pub cold_start: ColdStart,
    /// SHA-256 of the config that made it: part of the proof of first contact.
    pub config: ConfigDigest,
    /// Which directories its seal takes.
    pub minimum: DirectoryMinimum,
    /// Key that closes and opens the machine's shares of the cold-start key.
    pub share_key: ShareKey,
    /// Facts that the cluster's records say of the machine, too.
    pub recorded: RecordedFacts,
}

/// Facts that the first machine writes into its cluster's records, as far as its seal says them.
#[derive(Debug, Clone)]
pub struct RecordedFacts {
    /// The machine's data partition.
    pub disk: DiskUuid,
    /// How the data partition is protected.
    pub level: Level,
    /// Which of the machine's cluster keys opens the data partition.
    pub key_generation: u32,
    /// Name of its TPM's storage key; none without a TPM.
    pub storage_key_name: Option<[u8; 34]>,
}

impl Membership {
    pub(crate) fn of(seal: Seal) -> Self {
        let minimum = seal.minimum();
        let Seal { clear, body, .. } = seal;
        Self {
            protection: protection(&clear.binding, body.level, body.cold_start),
            owner_pub_key: body.owner_pub_key,
            recovery_key: body.owner_recovery,
            prefixes: clear.prefixes,
            cold_start: body.cold_start,
            share_key: body.share_key(),
            config: body.config,
            minimum,
            recorded: RecordedFacts {
                disk: body.disk,
                level: body.level,
                key_generation: body.key_generation,
                storage_key_name: match clear.binding {
                    Binding::Tpm(object) => Some(object.storage_key_name),
                    Binding::Unprotected(_) => None,
                },
            },
            identity: body.identity,
        }
    }
}

/// Protection that stands between a thief and the data: none, if the data is in clear or its key is.
const fn protection(seal: &Binding, level: Level, cold_start: ColdStart) -> Protection {
    match (seal, level, cold_start) {
        (Binding::Unprotected(_), _, _) | (_, Level::Insecure, _) => Protection::None,
        (Binding::Tpm(_), Level::Encrypted | Level::Authenticated, ColdStart::Automatic) => Protection::Tpm,
        (Binding::Tpm(_), Level::Encrypted | Level::Authenticated, ColdStart::Manual) => Protection::TpmOwner,
    }
}

#[cfg(test)]
mod tests {
    use keys::binding::TpmObject;
    use model::{PcrSelection, Secret};

    use super::*;

    /// Proves: D5
    #[test]
    fn protection_is_never_shown_better_than_it_is() {
        let clear = Binding::Unprotected(Secret::take(&mut [1; 32]));
        let tpm = Binding::Tpm(TpmObject {
            pcrs: PcrSelection::of(&[11]),
            storage_key_name: [0; 34],
            public: vec![1],
            private: vec![1],
        });
        for level in Level::ALL {
            for cold_start in ColdStart::ALL {
                assert_eq!(protection(&clear, *level, *cold_start), Protection::None);
            }
        }
        assert_eq!(protection(&tpm, Level::Insecure, ColdStart::Automatic), Protection::None);
        assert_eq!(protection(&tpm, Level::Encrypted, ColdStart::Automatic), Protection::Tpm);
        assert_eq!(protection(&tpm, Level::Authenticated, ColdStart::Manual), Protection::TpmOwner);
    }
}
