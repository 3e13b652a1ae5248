//! Who the machine is: what the seal says of it, what the data partition adds, and the member that both make.

use std::net::Ipv4Addr;
use std::sync::Arc;

use enrol::create::Plan;
use enrol::found::Leftover;
use keys::binding::Binding;
use keys::data_key::{ClusterHalf, Holder, Opened};
use keys::header::State;
use keys::identity::SigningKey;
use keys::seal::{Body, Clear};
use model::{
    ClusterId, ColdStart, ConfigDigest, DiskUuid, FirstContact, Ipv4Prefix, Level, MachineId, NodeName, Protection,
    Role, VpnPrivKey,
};
use pki::{Authority, CertificateDer, PrivateKey};

use super::newborn::{certified, random};
use super::vault::Kept;
use crate::shown::board::Board;
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
    /// From the seal's two parts.
    pub(super) fn of(clear: &Clear, body: &Body) -> Self {
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

/// What is known of a member before its data is open.
#[derive(Debug)]
pub(super) struct Membership {
    pub(super) holder: Holder,
    pub(super) name: NodeName,
    pub(super) identity: SigningKey,
    pub(super) certificate: CertificateDer<'static>,
    pub(super) owner: [u8; 32],
    pub(super) vpn_prefix: Ipv4Prefix,
    pub(super) protection: Protection,
    pub(super) cold_start: ColdStart,
    pub(super) config: ConfigDigest,
    pub(super) disk: DiskUuid,
}

impl Membership {
    /// Puts it on the board.
    pub(super) fn show(&self, board: &Board) {
        board.update(|view| {
            view.name = self.name.to_string();
            view.machine = Some(self.holder.machine);
            view.cluster = Some(self.holder.cluster);
            view.protection = self.protection;
            view.cold_start = Some(self.cold_start);
        });
    }

    /// The member, with what its data partition keeps.
    pub(super) fn complete(self, kept: Kept, data: Mounted) -> Member {
        let Kept { keys, first_contact } = kept;
        Member {
            machine: self.holder.machine,
            cluster: self.holder.cluster,
            name: self.name,
            identity: self.identity,
            certificate: self.certificate,
            owners: vec![self.owner],
            authorities: keys.authorities,
            vpn_key: keys.vpn,
            // The first machine of a cluster has its first address; the others get theirs from the cluster.
            vpn_ip: self.vpn_prefix.nth(1).expect("a VPN prefix has 8 to 24 bits"),
            vpn_prefix: self.vpn_prefix,
            roles: keys.roles,
            first_contact: first_contact.map(|secret| (secret, self.config)),
            data,
        }
    }
}

/// What stands between a thief and the data: nothing, if it is in clear or its key is.
pub(super) fn protection(seal: &Binding, level: Level, cold_start: ColdStart) -> Protection {
    match (seal, level, cold_start) {
        (Binding::Unprotected(_), _, _) | (_, Level::Insecure, _) => Protection::None,
        (Binding::Tpm(_), Level::Encrypted | Level::Authenticated, ColdStart::Automatic) => Protection::Tpm,
        (Binding::Tpm(_), Level::Encrypted | Level::Authenticated, ColdStart::Manual) => Protection::TpmOwner,
    }
}

/// A data partition whose header opened.
#[derive(Debug)]
pub(super) struct Opening {
    pub(super) opened: Opened,
    pub(super) clear: Clear,
    pub(super) body: Body,
    pub(super) half: Option<ClusterHalf>,
    pub(super) leftover: Leftover,
}

/// Why an opened header cannot be acted on.
#[derive(Debug, thiserror::Error)]
pub(super) enum PlanError {
    /// The kernel gives no random bytes.
    #[error("draw random bytes")]
    Random(#[source] std::io::Error),
    /// The header cannot be committed.
    #[error("commit the data header")]
    Commit(#[from] keys::data_key::OpenError),
}

impl Opening {
    /// Whether a cut came before the last step of create, so that this boot still performs some of them.
    pub(super) fn finishes_create(&self) -> bool {
        self.opened.header.state == State::Provisional || self.leftover == Leftover::Remove
    }

    /// What to do, and for whom.
    ///
    /// # Errors
    /// [`PlanError`]; nothing was written.
    pub(super) fn plan(self) -> Result<(Plan, Membership), PlanError> {
        let Self { opened, clear, body, half, leftover } = self;
        let plan = match opened.header.state {
            State::Committed => Plan::open(opened, leftover),
            State::Provisional => {
                let mut salt = [0; 32];
                random(&mut salt).map_err(PlanError::Random)?;
                Plan::commit_then_open(opened, &body, half.as_ref(), salt, leftover)?
            }
        };
        let membership = Membership {
            holder: body.holder(),
            name: clear.node_name,
            identity: body.identity,
            certificate: body.machine_certificate.into(),
            owner: body.owner_pub_key,
            vpn_prefix: clear.vpn_prefix,
            protection: protection(&clear.binding, body.level, body.cold_start),
            cold_start: body.cold_start,
            config: body.config,
            disk: body.disk,
        };
        Ok((plan, membership))
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
