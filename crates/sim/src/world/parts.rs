//! The parts of a world that its laws judge and that it does not make itself: what coordinators decide, what etcd does, what voters write
//! onto their ESPs, what machines make of news. A test puts a fault in the place of one.

use std::collections::BTreeMap;

use cluster::decision::{Decision, Proposal};
use cluster::desired::{Desired, DesiredError};
use cluster::epochs::ShareOrder;
use cluster::members::MemberStep;
use cluster::peer::Peer;
use cluster::peers::{News, PeerBook};
use cluster::record::UnixSeconds;
use cluster::state::{Change, State};
use cluster::txn::{Outcome, Txn};
use member::RoleFacts;
use model::MachineId;

use crate::esp::Esps;
use crate::etcd::{CompactionError, Etcd, EtcdRefusal};

/// Part that takes news for a machine; it returns the peers that are others than before.
pub(super) type Hear = fn(&mut PeerBook, News) -> BTreeMap<MachineId, Option<Peer>>;

/// Functions that a world calls for these.
pub(super) struct Parts {
    pub(super) decide: fn(&Decision, &State, UnixSeconds) -> Proposal,
    pub(super) commit: fn(&mut Etcd, &Txn) -> Result<Outcome, EtcdRefusal>,
    pub(super) watch: fn(&Etcd, u64, u64) -> Result<Vec<Change>, CompactionError>,
    pub(super) change: fn(&mut Etcd, MemberStep) -> Result<(), EtcdRefusal>,
    pub(super) hold: fn(&mut Esps, MachineId, &ShareOrder),
    pub(super) hear: Hear,
    /// Desired state of a machine, as a coordinator tells it.
    pub(super) desire: fn(&State, &MachineId) -> Result<Desired, DesiredError>,
    /// Hands keys over by what a coordinator has seen; its etcd answers only where that has a leader.
    pub(super) hand_over: fn(Option<&mut Etcd>, &State, &MachineId) -> Result<(), String>,
    /// Signs a worker's certificates by a copy of the records, which is a quorum's where the coordinator has a leader.
    pub(super) certify: fn(bool, &State, &MachineId) -> Result<(), String>,
    /// Facts of a start; none where a file cannot be read.
    pub(super) find: fn(RoleFacts, bool) -> Option<RoleFacts>,
}

fn hand_over(etcd: Option<&mut Etcd>, state: &State, id: &MachineId) -> Result<(), String> {
    state.hands_over_to(id).map_err(|why| why.to_string())?;
    let etcd = etcd.ok_or("etcd has no leader")?;
    match etcd.commit(&Txn::unchanged(state)) {
        Ok(Outcome::Committed) => Ok(()),
        Ok(Outcome::Differs { .. }) => Err(String::from("the records were changed")),
        Err(refused) => Err(refused.to_string()),
    }
}

fn certify(is_led: bool, state: &State, id: &MachineId) -> Result<(), String> {
    match state.worker(id) {
        None => Err(String::from("it is no worker")),
        Some(_) if !is_led => Err(String::from("etcd has no leader")),
        Some(_) => Ok(()),
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
        hear: PeerBook::take,
        desire: State::desired,
        hand_over,
        certify,
        find: |facts, unread| (!unread).then_some(facts),
    };
}
