//! Identity of the machine: what the seal says of it, what the data partition adds, and the member that both make.

use std::sync::Arc;

use cluster::desired::Desired;
use enrol::member::{Membership, RecordedFacts};
use keys::identity::Identity;
use keys::recovery::RecoveryPubKey;
use model::{Assignment, ConfigDigest, FirstContact, VpnPrivKey};

use super::renew::Renewing;
use super::shares::Shares;
use super::vault::{Authorities, Kept};
use crate::facts::{Facts, Names};
use crate::storage::Mounted;

/// A machine that is a member of its cluster, with its data open.
#[derive(Debug)]
pub(crate) struct Member {
    /// Names, keys and certificates of the machine.
    pub(crate) identity: Arc<Identity>,
    /// Desired state of the machine, as its data partition kept it.
    pub(crate) desired: Desired,
    /// Keys with which a coordinator signs; a machine that starts as a node has none.
    pub(crate) authorities: Option<Arc<Authorities>>,
    /// WireGuard's, from DATA.
    pub(crate) vpn_key: VpnPrivKey,
    /// Until the owner's first authenticated call: what `Claim` answers with. The API takes it.
    pub(crate) first_contact: Option<(FirstContact, ConfigDigest)>,
    /// Key that its recovery record is sealed to.
    pub(crate) recovery_key: RecoveryPubKey,
    /// Facts of the seal for the cluster's records.
    pub(crate) recorded: RecordedFacts,
    /// Keeps the machine's directory up.
    pub(crate) renewing: Renewing,
    /// Shares of the cold-start key that the machine holds.
    pub(crate) shares: Shares,
    pub(crate) data: Mounted,
}

impl Member {
    /// From what its seal says and what its data partition keeps.
    pub(super) fn new(
        membership: Membership,
        kept: Kept,
        (renewing, shares): (Renewing, Shares),
        data: Mounted,
    ) -> Self {
        let Kept { desired, authorities, vpn, first_contact } = kept;
        Self {
            identity: membership.identity,
            desired,
            authorities: authorities.map(Arc::new),
            vpn_key: vpn,
            first_contact: first_contact.map(|secret| (secret, membership.config)),
            recovery_key: membership.recovery_key,
            recorded: membership.recorded,
            renewing,
            shares,
            data,
        }
    }

    /// Assignment of the machine in the role that it starts in: a node's until it has what makes a coordinator.
    pub(crate) fn assignment(&self) -> Assignment {
        let assignment = self.desired.assignment.clone();
        if self.authorities.is_some() { assignment } else { assignment.as_node() }
    }

    /// Ed25519 public keys of the cluster's owners.
    pub(crate) fn owners(&self) -> Vec<[u8; 32]> {
        owners(&self.desired)
    }
}

/// Ed25519 public keys of the owners whom desired state names.
pub(crate) fn owners(desired: &Desired) -> Vec<[u8; 32]> {
    desired.owners.iter().map(|owner| owner.key.0).collect()
}

/// From now on it is a fact who the machine is.
pub(super) fn tell(member: &Membership, facts: &Facts) {
    facts.update(|now| {
        now.names = Some(Names::of(&member.identity));
        now.protection = member.protection;
        now.cold_start = Some(member.cold_start);
    });
}
