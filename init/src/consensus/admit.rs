//! What a machine is given that a ticket let in: everything it needs to become a member, made of the records and of what this
//! coordinator signs with. Admits nobody: that was decided and written before.

use cluster::peer::Peer;
use cluster::record::{Cluster, Machine, UnixSeconds};
use cluster::redeem::{Answer, MOST_PEERS};
use cluster::state::{State, StateVersion};
use model::{Assignment, BadAssignment, ClusterRole, KubernetesRole, MachineId};
use pki::{Profile, PublicKey, UnixTime};
use zeroize::Zeroizing;

use super::{Records, Unread};
use crate::enrolment::{self, LoadError};
use crate::runtime::clock;

/// Why an admitted machine cannot be given what it needs. It may ask again.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NotGiven {
    /// The records were not read.
    #[error(transparent)]
    Unread(#[from] Unread),
    /// It is not there any more.
    #[error("find the machine's record")]
    Gone,
    /// No machine can be assigned this.
    #[error("read what the machine is assigned")]
    Assignment(#[from] BadAssignment),
    /// No certificate.
    #[error("issue the machine's certificate")]
    Issue(#[from] pki::IssueError),
    /// No cluster key.
    #[error("derive the disk's cluster key")]
    ClusterKey(#[from] LoadError),
}

/// What the records say.
struct Recorded {
    machine: Machine,
    cluster: Cluster,
    peer_version: StateVersion,
    peers: Vec<Peer>,
}

impl Records {
    /// The bytes of the answer to `machine`, which is admitted.
    ///
    /// # Errors
    /// [`NotGiven`].
    pub(crate) async fn answer(&self, machine: MachineId) -> Result<Zeroizing<Vec<u8>>, NotGiven> {
        let recorded = self.read(|view, _| recorded(view.state(), &machine))?.ok_or(NotGiven::Gone)?;
        let Recorded { machine, cluster, peer_version, peers } = recorded;
        let (now, authority) = (clock::unix(), &self.authorities.cairn);
        // Every machine begins as a node: what makes a coordinator is handed over once it is a member.
        let role = ClusterRole::Node;
        let kubernetes = machine.kubernetes.iter().copied().filter(|role| *role != KubernetesRole::ControlPlane);
        let assignment = Assignment::new(machine.vpn_ip, role, kubernetes.collect(), machine.pods)?;
        let profile = Profile::Machine { machine: machine.id(), cluster: cluster.id, role };
        let key = PublicKey::from_ed25519(machine.key.0);
        let certificate = authority.issue(&profile, &key, UnixTime::since_unix_epoch(now))?;
        let generation = machine.generations.newest();
        let answer = Answer {
            time: UnixSeconds(now.as_secs()),
            certificate: certificate.to_vec(),
            ca_certificate: authority.certificate().to_vec(),
            owners: cluster.owners,
            level: cluster.policy.level,
            cold_start: cluster.policy.cold_start,
            vpn_prefix: cluster.vpn_prefix,
            pods_prefix: cluster.pods_prefix,
            node_name: machine.name,
            assignment,
            key_generation: generation,
            cluster_key: enrolment::cluster_key(cluster.id, machine.disk, generation).await?,
            directory: self.directory()?,
            peer_version,
            peers,
        };
        Ok(answer.encode())
    }
}

/// Whom the machine hears of first: coordinators, then others.
fn recorded(state: &State, id: &MachineId) -> Option<Recorded> {
    let machine = state.machine(id).filter(|machine| machine.belongs())?.clone();
    let cluster = state.cluster()?.clone();
    let others = || state.machines().map(|(_, other)| other).filter(|other| other.belongs() && other.id() != *id);
    let coordinators = others().filter(|other| other.coordinates());
    let nodes = others().filter(|other| !other.coordinates());
    let peers = coordinators.chain(nodes).take(MOST_PEERS).map(Peer::of).collect();
    let peer_version = state.state_version();
    Some(Recorded { machine, cluster, peer_version, peers })
}
