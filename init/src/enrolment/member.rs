//! Who the machine is: what the seal says of it, what the data partition adds, and the member that both make.

use std::sync::Arc;

use enrol::member::{Membership, Recorded};
use keys::identity::Identity;
use model::{Assignment, ColdStart, ConfigDigest, FirstContact, Ipv4Prefix, VpnPrivKey};
use pki::{Authority, PrivateKey};

use super::vault::Kept;
use crate::facts::{Facts, Names};
use crate::storage::Mounted;

/// What a coordinator signs with.
#[derive(Debug)]
pub(crate) struct Authorities {
    /// Machines and people.
    pub(crate) cairn: Authority,
    /// etcd.
    pub(crate) etcd: Authority,
    /// Kubernetes; shared with the API, which signs the owner's kubeconfig.
    pub(crate) kubernetes: Arc<Authority>,
    /// Signs service account tokens; no certificate belongs to it.
    pub(crate) service_accounts: PrivateKey,
}

/// A machine that is a member of its cluster, with its data open.
#[derive(Debug)]
pub(crate) struct Member {
    /// Who it is.
    pub(crate) identity: Arc<Identity>,
    /// Ed25519 public keys of its owners.
    pub(crate) owners: Vec<[u8; 32]>,
    /// What its cluster assigned to it.
    pub(crate) assignment: Assignment,
    /// What a coordinator signs with; a node has none of it.
    pub(crate) authorities: Option<Arc<Authorities>>,
    /// WireGuard's, from DATA.
    pub(crate) vpn_key: VpnPrivKey,
    /// Where VPN addresses come from.
    pub(crate) vpn_prefix: Ipv4Prefix,
    /// Until the owner's first authenticated call: what `Claim` answers with. The API takes it.
    pub(crate) first_contact: Option<(FirstContact, ConfigDigest)>,
    /// What its seal says for the cluster's records.
    pub(crate) recorded: Recorded,
    pub(crate) cold_start: ColdStart,
    pub(crate) data: Mounted,
}

impl Member {
    /// From what its seal says and what its data partition keeps.
    pub(super) fn new(membership: Membership, kept: Kept, data: Mounted) -> Self {
        let Kept { assignment, authorities, vpn, first_contact } = kept;
        Self {
            identity: membership.identity,
            owners: vec![membership.owner_pub_key],
            assignment,
            authorities: authorities.map(Arc::new),
            vpn_key: vpn,
            vpn_prefix: membership.vpn_prefix,
            first_contact: first_contact.map(|secret| (secret, membership.config)),
            recorded: membership.recorded,
            cold_start: membership.cold_start,
            data,
        }
    }
}

/// From now on it is a fact who the machine is.
pub(super) fn tell(member: &Membership, facts: &Facts) {
    facts.update(|now| {
        now.names = Some(Names::of(&member.identity));
        now.protection = member.protection;
        now.cold_start = Some(member.cold_start);
    });
}
