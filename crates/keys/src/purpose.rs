//! Every label that starts an input of HKDF, HMAC, SHA-256 or a signature. A label is used for one thing only.

macro_rules! purposes {
    ($($(#[$doc:meta])* $name:ident = $label:literal,)*) => {
        /// Purpose of a derived key, a digest or a signature.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Purpose { $($(#[$doc])* $name,)* }

        impl Purpose {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// Label of the purpose: `cairn/v1/<purpose>`.
            #[must_use]
            pub const fn label(self) -> &'static str {
                match self { $(Self::$name => concat!("cairn/v1/", $label),)* }
            }

            /// Bytes of the purpose's label.
            #[must_use]
            pub const fn bytes(self) -> &'static [u8] {
                self.label().as_bytes()
            }
        }
    };
}

purposes! {
    /// Digest: the machine's id from its public key.
    Machine = "machine",
    /// Digest: the cluster's id from its CA.
    Cluster = "cluster",
    /// Key: a disk's cluster key from the master secret.
    ClusterKey = "cluster-key",
    /// Key: says whether the local half is right.
    CheckLocal = "check/local",
    /// Key: says whether the cluster half is right.
    CheckCluster = "check/cluster",
    /// Key: wraps the volume key in the data header.
    DataKek = "data-kek",
    /// Key: dm-crypt, XTS-AES-256.
    VolumeXts = "volume/xts",
    /// Key: dm-integrity's internal hash.
    VolumeIntegrity = "volume/integrity",
    /// Key: dm-integrity's journal.
    VolumeJournal = "volume/journal",
    /// Key: encrypts the body of a seal.
    Seal = "seal",
    /// Digest: what PCR 11 is extended with before the first service.
    Cap = "cap",
    /// Signature: the owner's, over an enrolment config.
    Enrol = "enrol",
    /// Signature: the cluster's, over a directory.
    Directory = "directory",
    /// Key: proves the machine to the CLI that made its config.
    FirstContact = "first-contact",
    /// Key: proves a blank machine and whoever activates it to each other, from the code on its screen.
    Activation = "activation",
    /// Digest: its first bits tell a mistyped activation code.
    ActivationChecksum = "checksum/activation",
    /// Key: encrypts Kubernetes' Secrets in etcd, from the master secret.
    KubernetesSecrets = "kubernetes/secrets",
    /// Digest: a ticket's id from its public key.
    Ticket = "ticket",
    /// Digest: its first bytes tell a mistyped ticket from a whole one.
    TicketChecksum = "checksum/ticket",
    /// Digest: its first bytes tell a mistyped text of an owner's keys from a whole one.
    OwnerChecksum = "checksum/owner",
    /// Digest: the same of a text of a user's key.
    UserChecksum = "checksum/user",
    /// Digest: the same of a text that says where a cluster is.
    PlaceChecksum = "checksum/place",
    /// Signature: a ticket's, over the request to redeem it.
    Redeem = "redeem",
    /// Key: the cold-start key of an epoch, and the rest of the polynomial that its shares lie on.
    ColdStart = "cold-start",
    /// Key: wraps a holder's cluster key under the cold-start key.
    ColdStartWrap = "wrap/cold-start",
    /// Key: what closes a machine's shares follows from, by its local key.
    Share = "share",
    /// Key: closes one share.
    ShareWrap = "wrap/share",
    /// Digest: the owner had a machine take this directory, which its seal does not; by the key that its shares follow from.
    OwnersWord = "owners-word",
    /// HPKE info: what only the owner can open.
    Recovery = "recovery",
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn no_two_purposes_share_a_label_and_none_continues_another() {
        let labels: HashSet<_> = Purpose::ALL.iter().map(|purpose| purpose.label()).collect();
        assert_eq!(labels.len(), Purpose::ALL.len());
        assert!(labels.iter().all(|label| label.starts_with("cairn/v1/")));
        assert_eq!(Purpose::CheckLocal.label(), "cairn/v1/check/local");
        // `cluster` and `cluster-key` are the only such pair: one is a digest, the other a key, and both are
        // followed by parts of fixed or prefixed length.
        let continued: Vec<_> = Purpose::ALL
            .iter()
            .filter(|longer| labels.iter().any(|label| *label != longer.label() && longer.label().starts_with(label)))
            .collect();
        assert_eq!(continued, [&Purpose::ClusterKey]);
    }
}
