//! The parts of a world that its laws judge and that it does not make itself: what coordinators decide, what etcd does, what voters write
//! onto their ESPs, what machines make of news. A test puts a fault in the place of one.

use std::collections::BTreeMap;

use cluster::decision::{Decision, Proposal};
use cluster::desired::Desired;
use cluster::epochs::Holding;
use cluster::members::Step;
use cluster::peer::Peer;
use cluster::peers::{Known, News};
use cluster::record::{Machine, UnixSeconds};
use cluster::state::{Change, State};
use cluster::txn::{Outcome, Txn};
use member::RoleFacts;
use model::{ClusterRole, MachineId};

use crate::esp::Esps;
use crate::etcd::{Compacted, Etcd, Refused};

/// Part that takes news for a machine; it returns the peers that are others than before.
pub(super) type Hear = fn(&mut Known, News) -> BTreeMap<MachineId, Option<Peer>>;

/// Functions that a world calls for these.
pub(super) struct Parts {
    pub(super) decide: fn(&Decision, &State, UnixSeconds) -> Proposal,
    pub(super) commit: fn(&mut Etcd, &Txn) -> Result<Outcome, Refused>,
    pub(super) watch: fn(&Etcd, u64, u64) -> Result<Vec<Change>, Compacted>,
    pub(super) change: fn(&mut Etcd, Step) -> Result<(), Refused>,
    pub(super) hold: fn(&mut Esps, MachineId, &Holding),
    pub(super) hear: Hear,
    /// Desired state of a machine, as a coordinator tells it that looked at etcd's members in a revision.
    pub(super) desire: fn(&State, u64, &MachineId) -> Option<Desired>,
    /// Hands keys over by what a coordinator has seen.
    pub(super) hand_over: fn(&mut Etcd, &State, &MachineId) -> Result<(), String>,
    /// Facts of a start; none where a file cannot be read.
    pub(super) find: fn(RoleFacts, bool) -> Option<RoleFacts>,
}

/// Desired state by a copy of the records; a machine that was a coordinator is told Node only by a look at etcd's members that is
/// younger than its record.
fn desire(state: &State, looked: u64, id: &MachineId) -> Option<Desired> {
    if state.members().voters.is_empty() {
        return None;
    }
    let desired = state.desired(id)?;
    let coordinated = state.machine(id).is_some_and(Machine::has_coordinated);
    let is_old = || state.machines_since(looked).any(|(written, _)| written == id);
    let says_node = desired.assignment.role() == ClusterRole::Node;
    if says_node && coordinated && is_old() { None } else { Some(desired) }
}

fn hand_over(etcd: &mut Etcd, state: &State, id: &MachineId) -> Result<(), String> {
    state.hands_over_to(id).map_err(|why| why.to_string())?;
    match etcd.commit(&Txn::unchanged(state)) {
        Ok(Outcome::Committed) => Ok(()),
        Ok(Outcome::Differs { .. }) => Err(String::from("the records were changed")),
        Err(refused) => Err(refused.to_string()),
    }
}

impl Parts {
    /// Parts without a fault.
    pub(super) const SOUND: Self = Self {
        decide: Decision::propose,
        commit: Etcd::commit,
        watch: Etcd::watch,
        change: Etcd::change,
        hold: Esps::write,
        hear: Known::take,
        desire,
        hand_over,
        find: |facts, unread| (!unread).then_some(facts),
    };
}
