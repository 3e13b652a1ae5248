//! Parts that the public API's methods stand on: facts and board, the trees, first contact, a member's authority.
//! Shared by the boot, which fills it, and by every call, which reads it; decides nothing but
//! whether one more connection to another machine has room.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use api::MachineStatus;
use door::Room;
use keys::directory::Directory;
use model::{MachineId, MachinePubKey, OwnerPubKey, UserName};
use pki::SpkiPin;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, mpsc, watch};
use tonic::Status;

use super::convert::{self, When};
#[cfg(feature = "faults")]
use super::faults::Faults;
use super::first_contact::Claimable;
use super::kubernetes::KubernetesAccess;
use super::records::NoCoordinator;
use crate::enrolment::Ways;
use crate::facts::Facts;
use crate::machine::power::PowerRequest;
use crate::network::mesh::peers::Told;
use crate::records::Records;
use crate::rpc::access::Undecided;
use crate::rpc::underway::Underway;
use crate::runtime::child::Children;
use crate::runtime::clock;
use crate::runtime::lock;
use crate::runtime::services::{Services, Snapshot};
use crate::runtime::tasks::{self, Task};
use crate::shown::board::BoardReader;
use crate::storage::Volumes;

/// The machine is going down: nobody takes requests any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the machine is going down already")]
pub(crate) struct GoingDown;

/// Refusal to erase: the machine has no coordinator's data that waits for an owner's word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "this machine keeps nothing that an owner could erase: it coordinates, or two coordinators have called it a node; \
     nothing was erased"
)]
pub(crate) struct NothingKept;

/// Parts that the methods need; calls share them.
#[derive(Debug)]
pub(crate) struct Context {
    /// Facts by which calls are decided.
    pub(super) facts: Facts,
    pub(crate) entrance: Entrance,
    pub(crate) reach: Reach,
    pub(crate) panel: Panel,
    power: mpsc::Sender<PowerRequest>,
    #[cfg(feature = "faults")]
    pub(crate) faults: Faults,
}

impl Context {
    /// Context of a machine without an identity, which shows a certificate of this key; requests for its power go to
    /// the receiver.
    pub(crate) fn new(
        shown: BoardReader,
        children: &Children,
        ways: Ways,
        nameless: SpkiPin,
    ) -> (Arc<Self>, mpsc::Receiver<PowerRequest>) {
        // One request is enough to end a boot.
        let (power, asked) = mpsc::channel(1);
        let context = Self {
            facts: shown.board().facts().clone(),
            entrance: Entrance { ways, nameless, claim: Mutex::new(Claimable::NotYet), claimed: Notify::new() },
            reach: Reach::default(),
            panel: Panel { shown, children: children.clone(), trees: Mutex::default() },
            power,
            #[cfg(feature = "faults")]
            faults: Faults::default(),
        };
        (Arc::new(context), asked)
    }

    /// All that is known about the machine now.
    ///
    /// # Errors
    /// The boot has not read yet what the machine is.
    pub(super) fn status(&self) -> Result<MachineStatus, Undecided> {
        let when = When { now: clock::unix_millis(), uptime: clock::uptime() };
        self.panel.shown.read(|now, words| convert::status(self.facts.boot(), now, words, when)).ok_or(Undecided)
    }

    /// Asks for the end of this boot. A second request while one is under way changes nothing.
    pub(super) fn power(&self, request: PowerRequest) -> Result<(), GoingDown> {
        match self.power.try_send(request) {
            Ok(()) | Err(mpsc::error::TrySendError::Full(_)) => Ok(()),
            Err(mpsc::error::TrySendError::Closed(_)) => Err(GoingDown),
        }
    }
}

/// Ways to a machine that waits, and of its owner to one whose name is not known yet.
#[derive(Debug)]
pub(crate) struct Entrance {
    pub(crate) ways: Ways,
    /// Pin of the certificate that is shown to callers who do not name the machine.
    pub(super) nameless: SpkiPin,
    claim: Mutex<Claimable>,
    /// Told once, at the owner's first authenticated call: first contact is over.
    pub(crate) claimed: Notify,
}

impl Entrance {
    /// First contact now stands so.
    pub(super) fn stand(&self, claim: Claimable) {
        *lock::even_if_poisoned(&self.claim) = claim;
    }

    /// Asks where first contact stands.
    pub(super) fn claim<T>(&self, question: impl FnOnce(&Claimable) -> T) -> T {
        question(&lock::even_if_poisoned(&self.claim))
    }

    /// The owner called with its key: the first-contact secret has done its work and dies.
    pub(super) fn owner_called(&self) {
        if lock::even_if_poisoned(&self.claim).end() {
            self.claimed.notify_one();
        }
    }
}

/// Targets that a member's callers reach through it: records, peers, Kubernetes.
#[derive(Debug)]
pub(crate) struct Reach {
    kubernetes: Mutex<Option<Arc<KubernetesAccess>>>,
    records: watch::Sender<Option<Records>>,
    peers: OnceLock<Told>,
    volumes: OnceLock<(Volumes, watch::Receiver<Option<Arc<Directory>>>)>,
    pub(super) forwards: Arc<Forwards<OwnerPubKey>>,
    pub(super) users_forwards: Arc<Forwards<UserName>>,
    pub(super) imports: Takings,
    pub(super) snapshots: Snapshots,
    pub(super) restores: Takings,
    /// A page of OpenMetrics that is in memory until it is read.
    pub(super) pages: Arc<Semaphore>,
    /// Each costs a decision, which others wait for.
    pub(super) machines: Underway,
    /// Calls of coordinators about volumes, each of which waits for those before it.
    pub(super) orders: Underway,
    /// Told when the owner has noted that the cluster is to be recovered with this machine.
    pub(crate) recovers: Notify,
    /// Whether too few coordinators call the machine a node, so that it keeps what it has of one.
    doubted: AtomicBool,
    /// Told when the owner has the machine erase that.
    pub(crate) erases: Notify,
}

impl Default for Reach {
    fn default() -> Self {
        Self {
            kubernetes: Mutex::default(),
            records: watch::Sender::new(None),
            peers: OnceLock::new(),
            volumes: OnceLock::new(),
            forwards: Forwards::within(OF_OWNERS),
            users_forwards: Forwards::within(OF_USERS),
            imports: Takings::of("the machine takes another image now; nothing was done; try again when it has that"),
            snapshots: Snapshots::default(),
            restores: Takings::of(
                "this coordinator takes another snapshot now; nothing was done; try again when it has that",
            ),
            pages: Arc::new(Semaphore::new(1)),
            machines: Underway::at_most(1),
            orders: Underway::at_most(4),
            recovers: Notify::new(),
            doubted: AtomicBool::new(false),
            erases: Notify::new(),
        }
    }
}

impl Reach {
    /// The machine coordinates: these are the cluster's records, and its owner reaches Kubernetes so. None: it does so no longer.
    pub(crate) fn coordinate(&self, records: Option<Records>, kubernetes: Option<KubernetesAccess>) {
        *lock::even_if_poisoned(&self.kubernetes) = kubernetes.map(Arc::new);
        self.records.send_replace(records);
    }

    /// Too few coordinators call the machine a node, or nobody does any more.
    pub(crate) fn doubt(&self, doubted: bool) {
        self.doubted.store(doubted, Ordering::Relaxed);
    }

    /// Has the machine erase what it keeps of a coordinator.
    ///
    /// # Errors
    /// [`NothingKept`].
    pub(super) fn erase(&self) -> Result<(), NothingKept> {
        if !self.doubted.load(Ordering::Relaxed) {
            return Err(NothingKept);
        }
        self.erases.notify_one();
        Ok(())
    }

    /// The machine has a mesh: this is what it is told of its peers. A second time changes nothing.
    pub(crate) fn hear(&self, peers: Told) {
        let _hears_once = self.peers.set(peers);
    }

    /// The machine has these volumes on its disk, and this directory tells who may order them. A second time changes nothing.
    pub(crate) fn keep_volumes(&self, volumes: Volumes, directory: watch::Receiver<Option<Arc<Directory>>>) {
        let _kept_once = self.volumes.set((volumes, directory));
    }

    /// Volumes of a member, and the directory that tells who may order them.
    pub(crate) fn volumes(&self) -> Option<&(Volumes, watch::Receiver<Option<Arc<Directory>>>)> {
        self.volumes.get()
    }

    /// Machine with that key, as a coordinator by the directory that this machine holds.
    ///
    /// # Errors
    /// When this machine is no member, or its directory does not call the caller a coordinator.
    pub(super) fn coordinator(&self, key: MachinePubKey) -> Result<MachineId, Status> {
        let machine = keys::identity::machine_id(&key.0);
        let (_, directory) = self.volumes().ok_or_else(no_member)?;
        let directory = directory.borrow();
        if directory.as_ref().is_some_and(|held| held.coordinators.iter().any(|it| it.machine == machine)) {
            return Ok(machine);
        }
        let stranger = format!("by this machine's directory machine {machine} is no coordinator; nothing was done");
        Err(Status::permission_denied(stranger))
    }

    /// Access to Kubernetes, on a coordinator.
    pub(super) fn kubernetes(&self) -> Result<Arc<KubernetesAccess>, NoCoordinator> {
        lock::even_if_poisoned(&self.kubernetes).clone().ok_or(NoCoordinator)
    }

    /// The cluster's records, on a coordinator.
    pub(super) fn records(&self) -> Result<Records, NoCoordinator> {
        self.records.borrow().clone().ok_or(NoCoordinator)
    }

    /// The same, to be followed: it comes and goes with the role.
    pub(super) fn follow_records(&self) -> watch::Receiver<Option<Records>> {
        self.records.subscribe()
    }

    /// Peers that the machine was told, on a member.
    pub(super) fn peers(&self) -> Option<&Told> {
        self.peers.get()
    }
}

/// Owners' connections to other machines: each has two halves and a chunk each way. None keeps the others out.
const OF_OWNERS: Room = Room { all: 32, each: 16 };
/// Users' connections to Kubernetes; their requests' bytes have room for as many.
const OF_USERS: Room = Room { all: 24, each: 8 };

const _: () = assert!(OF_USERS.all * (api::limits::REQUEST_BYTES + 5) < door::USERS_BUDGET);

/// How many connections are carried for whom.
#[derive(Debug)]
pub(super) struct Forwards<W> {
    room: Room,
    carried: Mutex<HashMap<W, usize>>,
}

/// Place of one carried connection; given back when it is dropped.
#[derive(Debug)]
pub(super) enum Place {
    /// An owner's, to another machine.
    Owner { _held: Held<OwnerPubKey> },
    /// A user's, to Kubernetes.
    User { _held: Held<UserName> },
}

/// Connection that is carried for somebody.
#[derive(Debug)]
pub(super) struct Held<W: Copy + Eq + Hash>(Arc<Forwards<W>>, W);

impl<W: Copy + Eq + Hash> Forwards<W> {
    fn within(room: Room) -> Arc<Self> {
        Arc::new(Self { room, carried: Mutex::default() })
    }

    /// Makes room for one more.
    ///
    /// # Errors
    /// When there is none.
    pub(super) fn begin(self: &Arc<Self>, whose: W) -> Result<Held<W>, Status> {
        let mut carried = lock::even_if_poisoned(&self.carried);
        let own = carried.get(&whose).copied().unwrap_or(0);
        if own >= self.room.each || carried.values().sum::<usize>() >= self.room.all {
            let busy =
                "too many connections are carried through this machine; nothing was done; close one and try again";
            return Err(Status::resource_exhausted(busy));
        }
        carried.insert(whose, own + 1);
        Ok(Held(self.clone(), whose))
    }
}

impl<W: Copy + Eq + Hash> Drop for Held<W> {
    fn drop(&mut self) {
        let mut carried = lock::even_if_poisoned(&self.0.carried);
        if let Some(own) = carried.get_mut(&self.1) {
            *own -= 1;
        }
        carried.retain(|_, own| *own > 0);
    }
}

/// Files that the machine takes from callers one at a time: the one that is under way, if any. Its task goes on when the caller leaves,
/// until it has cleaned up.
#[derive(Debug)]
pub(super) struct Takings {
    running: Mutex<Option<Task<()>>>,
    /// Words for who comes meanwhile.
    busy: &'static str,
}

impl Takings {
    const fn of(busy: &'static str) -> Self {
        Self { running: Mutex::new(None), busy }
    }

    /// Begins to take something.
    ///
    /// # Errors
    /// When something else is being taken.
    pub(super) fn begin(&self, work: impl Future<Output = ()> + Send + 'static) -> Result<(), Status> {
        let mut running = lock::even_if_poisoned(&self.running);
        if running.as_ref().is_some_and(Task::runs) {
            return Err(Status::resource_exhausted(self.busy));
        }
        *running = Some(tasks::spawn(work));
        Ok(())
    }
}

/// Snapshots of Kubernetes' objects: one is made at a time, whoever asks.
#[derive(Debug)]
pub(super) struct Snapshots(Arc<Semaphore>);

impl Default for Snapshots {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(1)))
    }
}

impl Snapshots {
    /// Begins one; its place is given back when it is dropped.
    ///
    /// # Errors
    /// When another one is made.
    pub(super) fn begin(&self) -> Result<OwnedSemaphorePermit, Status> {
        Arc::clone(&self.0).try_acquire_owned().map_err(|_taken| {
            Status::resource_exhausted(
                "this coordinator makes another snapshot; nothing was done; ask another one, or try again later",
            )
        })
    }
}

/// Refusal of a call that only a member can answer.
pub(super) fn no_member() -> Status {
    Status::failed_precondition("the machine is no member yet")
}

/// Board and services, for who asks; nothing is decided by them.
#[derive(Debug)]
pub(crate) struct Panel {
    /// Conditions, timeline and last error.
    pub(super) shown: BoardReader,
    #[cfg_attr(
        not(feature = "faults"),
        expect(dead_code, reason = "only fault injection starts and kills children of its own")
    )]
    pub(super) children: Children,
    trees: Mutex<Vec<Services>>,
}

impl Panel {
    /// Shows a further tree.
    pub(super) fn show(&self, tree: &Services) {
        lock::even_if_poisoned(&self.trees).push(tree.clone());
    }

    /// The trees that run, oldest first.
    pub(super) fn trees(&self) -> Vec<Services> {
        lock::even_if_poisoned(&self.trees).clone()
    }

    /// All services of all trees.
    pub(super) fn snapshots(&self) -> Vec<Snapshot> {
        lock::even_if_poisoned(&self.trees).iter().flat_map(Services::snapshots).collect()
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::{Duration, timeout};
    use tonic::Code;

    use super::*;

    const OWNER: OwnerPubKey = OwnerPubKey([1; 32]);
    const OTHER: OwnerPubKey = OwnerPubKey([2; 32]);
    const THIRD: OwnerPubKey = OwnerPubKey([3; 32]);

    /// Proves: K6
    #[tokio::test(start_paused = true)]
    async fn an_owner_erases_only_what_is_kept_in_doubt() {
        let reach = Reach::default();
        let told = async || timeout(Duration::from_secs(60), reach.erases.notified()).await.is_ok();
        assert_eq!((reach.erase(), told().await), (Err(NothingKept), false));
        reach.doubt(true);
        assert_eq!((reach.erase(), told().await), (Ok(()), true));
        reach.doubt(false);
        assert_eq!((reach.erase(), told().await), (Err(NothingKept), false));
    }

    /// Proves: W5
    #[tokio::test]
    async fn one_image_is_taken_at_a_time() {
        let (imports, (ends, ended)) = (Takings::of("another"), tokio::sync::oneshot::channel::<()>());
        imports.begin(async { drop(ended.await) }).expect("nobody is before it");
        let busy = imports.begin(async {}).expect_err("the first is not taken yet");
        assert_eq!(busy.code(), Code::ResourceExhausted);
        ends.send(()).expect("it waits");
        timeout(Duration::from_secs(60), async {
            while imports.begin(async {}).is_err() {
                tokio::task::yield_now().await;
            }
        })
        .await
        .expect("the first has ended");
    }

    /// Proves: Q1
    #[test]
    fn one_snapshot_is_made_at_a_time() {
        let snapshots = Snapshots::default();
        let first = snapshots.begin().expect("nobody is before it");
        let busy = snapshots.begin().expect_err("the first is not made yet");
        assert_eq!(busy.code(), Code::ResourceExhausted);
        drop(first);
        assert!(snapshots.begin().is_ok());
    }

    /// Proves: A6
    #[test]
    fn no_owner_keeps_the_others_out_and_a_place_is_given_back() {
        let forwards = Forwards::within(OF_OWNERS);
        let code = |owner| forwards.begin(owner).err().map(|busy| busy.code());
        let mut own: Vec<_> = (0..OF_OWNERS.each).map(|_| forwards.begin(OWNER).expect("room")).collect();
        assert_eq!(code(OWNER), Some(Code::ResourceExhausted));
        let others: Vec<_> =
            (OF_OWNERS.each..OF_OWNERS.all).map(|_| forwards.begin(OTHER).expect("room for another one")).collect();
        assert_eq!(code(THIRD), Some(Code::ResourceExhausted), "of all");
        drop(own.pop());
        assert_eq!((code(THIRD), code(OWNER)), (None, None));
        drop((own, others));
        assert!(lock::even_if_poisoned(&forwards.carried).is_empty(), "nobody is remembered");
    }
}
