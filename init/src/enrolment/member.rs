//! Who the machine is: what the seal says of it, what the data partition adds, and the member that both make.

use std::net::Ipv4Addr;
use std::sync::Arc;

use enrol::found::Seal;
use enrol::member::Membership;
use keys::data_key::Holder;
use keys::identity::SigningKey;
use model::{ClusterId, ConfigDigest, FirstContact, Ipv4Prefix, MachineId, NodeName, Role, VpnPrivKey};
use pki::{Authority, CertificateDer, PrivateKey};

use super::create::certified;
use super::vault::Kept;
use crate::facts::{self, Facts};
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
    /// Derived from its key.
    pub(crate) machine: MachineId,
    /// Where it belongs.
    pub(crate) cluster: ClusterId,
    /// Host and node name.
    pub(crate) name: NodeName,
    /// Its key.
    pub(crate) identity: SigningKey,
    /// Its certificate.
    pub(crate) certificate: CertificateDer<'static>,
    /// Ed25519 public keys of its owners.
    pub(crate) owners: Vec<[u8; 32]>,
    /// What it signs with.
    pub(crate) authorities: Authorities,
    /// Its WireGuard key.
    pub(crate) vpn_key: VpnPrivKey,
    /// Its address in the mesh.
    pub(crate) vpn_ip: Ipv4Addr,
    /// Where VPN addresses come from.
    pub(crate) vpn_prefix: Ipv4Prefix,
    /// What it does in Kubernetes; nothing when empty.
    pub(crate) roles: Vec<Role>,
    /// Until the owner's first authenticated call: what `Claim` answers with. The API takes it.
    pub(crate) first_contact: Option<(FirstContact, ConfigDigest)>,
    /// Its data partition.
    pub(crate) data: Mounted,
}

/// What an opened seal says of the machine: enough to prove itself and to know its owner, whatever becomes of its data.
#[derive(Debug)]
pub(crate) struct Known {
    /// Who it is, and where it belongs.
    pub(crate) holder: Holder,
    /// Host and node name.
    pub(crate) name: NodeName,
    /// Its key.
    pub(crate) identity: SigningKey,
    /// Its certificate, then that of the cluster's CA.
    pub(crate) chain: Vec<CertificateDer<'static>>,
    /// Ed25519 public keys of its owners.
    pub(crate) owners: Vec<[u8; 32]>,
}

impl Known {
    /// From a seal that opened.
    pub(crate) fn of(seal: &Seal) -> Self {
        let Seal { clear, body } = seal;
        Self {
            holder: body.holder(),
            name: clear.node_name.clone(),
            identity: SigningKey::from_seed(body.identity.seed().duplicate()),
            chain: vec![body.machine_certificate.clone().into(), body.ca_certificate.clone().into()],
            owners: vec![body.owner_pub_key],
        }
    }
}

impl Member {
    /// From what its seal says and what its data partition keeps.
    pub(super) fn new(membership: Membership, kept: Kept, data: Mounted) -> Self {
        let Kept { keys, first_contact } = kept;
        Self {
            machine: membership.holder.machine,
            cluster: membership.holder.cluster,
            name: membership.name,
            identity: membership.identity,
            certificate: membership.certificate.into(),
            owners: vec![membership.owner_pub_key],
            authorities: keys.authorities,
            vpn_key: keys.vpn,
            // The first machine of a cluster has its first address; the others get theirs from the cluster.
            vpn_ip: membership.vpn_prefix.nth(1).expect("a VPN prefix has 8 to 24 bits"),
            vpn_prefix: membership.vpn_prefix,
            roles: keys.roles,
            first_contact: first_contact.map(|secret| (secret, membership.config)),
            data,
        }
    }

    /// All that it is in its cluster.
    pub(crate) fn cluster_roles(&self) -> Vec<Role> {
        certified(&self.roles)
    }

    /// The same of a member.
    pub(crate) fn known(&self) -> Known {
        Known {
            holder: Holder { machine: self.machine, cluster: self.cluster },
            name: self.name.clone(),
            identity: SigningKey::from_seed(self.identity.seed().duplicate()),
            chain: vec![self.certificate.clone(), self.authorities.cairn.certificate().clone()],
            owners: self.owners.clone(),
        }
    }
}

/// From now on it is a fact who the machine is.
pub(super) fn tell(member: &Membership, facts: &Facts) {
    facts.update(|now| {
        now.identity = Some(facts::Identity {
            name: member.name.clone(),
            machine: member.holder.machine,
            cluster: member.holder.cluster,
        });
        now.protection = member.protection;
        now.cold_start = Some(member.cold_start);
    });
}
