//! Answer to a machine that a ticket let in: everything it needs to become a member, made of the records and signed by this
//! coordinator. Admits nobody: that was decided and written before.

use cluster::desired::Desired;
use cluster::peer::Peer;
use cluster::record::{MachineRecord, UnixSeconds};
use cluster::redeem::{MOST_PEERS, RedeemAnswer};
use cluster::state::State;
use model::{ClusterId, MachineId};
use pki::{CertificateProfile, PublicKey, UnixTime};
use zeroize::Zeroizing;

use super::{Records, Unread};
use crate::enrolment::{self, LoadError};
use crate::runtime::clock;

/// Why an admitted machine cannot be given what it needs. It may ask again.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AdmissionError {
    /// The records were not read.
    #[error(transparent)]
    Unread(#[from] Unread),
    /// The machine does not belong to the cluster any more.
    #[error("find the machine's record")]
    Gone,
    /// The authority does not sign the machine's certificate.
    #[error("issue the machine's certificate")]
    Issue(#[from] pki::IssueError),
    /// The disk's cluster key cannot be derived from the master secret.
    #[error("derive the disk's cluster key")]
    ClusterKey(#[from] LoadError),
}

/// Parts of the records that the answer is made of.
struct Recorded {
    machine: MachineRecord,
    cluster: ClusterId,
    desired: Desired,
    peers: Vec<Peer>,
}

impl Records {
    /// The bytes of the answer to `machine`, which is admitted.
    ///
    /// # Errors
    /// [`AdmissionError`].
    pub(crate) async fn answer(&self, machine: MachineId) -> Result<Zeroizing<Vec<u8>>, AdmissionError> {
        let recorded = self.read(|view, _| recorded(view.state(), &machine))?.ok_or(AdmissionError::Gone)?;
        let Recorded { machine, cluster, desired, peers } = recorded;
        let (now, authority) = (clock::unix(), &self.authorities.cairn);
        let profile = CertificateProfile::Machine { machine: machine.id(), cluster, role: desired.assignment.role() };
        let key = PublicKey::from_ed25519(machine.key.0);
        let certificate = authority.issue(&profile, &key, UnixTime::since_unix_epoch(now))?;
        let generation = machine.generations.newest();
        let answer = RedeemAnswer {
            time: UnixSeconds(now.as_secs()),
            certificate: certificate.to_vec(),
            ca_certificate: authority.certificate().to_vec(),
            desired,
            node_name: machine.name,
            key_generation: generation,
            cluster_key: enrolment::cluster_key(cluster, machine.disk, generation).await?,
            directory: self.directory()?,
            peers,
        };
        Ok(answer.encode())
    }
}

/// Records of a machine that begins as a node, since what makes a coordinator is handed over once it is a member. It
/// hears first of coordinators, then of others.
fn recorded(state: &State, id: &MachineId) -> Option<Recorded> {
    let machine = state.machine(id).filter(|machine| machine.belongs())?.clone();
    let (cluster, desired) = (state.cluster()?.id, state.desired_of_newcomer(id)?);
    let others = || state.machines().map(|(_, other)| other).filter(|other| other.belongs() && other.id() != *id);
    let coordinators = others().filter(|other| other.coordinates());
    let nodes = others().filter(|other| !other.coordinates());
    let peers = coordinators.chain(nodes).take(MOST_PEERS).map(Peer::of).collect();
    Some(Recorded { machine, cluster, desired, peers })
}
