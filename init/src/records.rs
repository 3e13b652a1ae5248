//! The cluster's records on a coordinator: its copy of what is in etcd, and every change of it. What is decided is the crate
//! `cluster`'s; this room carries it out, over this machine's own etcd.
//!
//! ```text
//!   etcd ──pages, watch ──► keep ──► view, directory ───────► API: lists; whoever needs a directory
//!     ▲                                │ propose
//!     └──── transaction ◄── decide ◄───┴──── API: changes; the first machine's own record
//! ```
//! Any coordinator decides: when another was first, it is decided again over what that one changed.

mod admit;
mod certify;
mod defragment;
mod directory;
mod electorate;
mod first;
#[cfg(test)]
pub(crate) mod fixture;
mod floating;
mod keep;
mod kept_snapshot;
pub(crate) mod link;
mod members;
mod news;
mod orders;
mod own;
mod read;
mod recovery;
mod restore;
mod revocation;
mod snapshot;
mod turn;
mod users;

use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::Arc;
use std::time::Duration;

use api::UnixMillis;
use cluster::backends::DefragmentTurn;
use cluster::decision::Next;
use cluster::floating::FloatingGrants;
use cluster::key::Key;
use cluster::record::UnixSeconds;
use cluster::request::Request;
use cluster::state::HandOverError;
use cluster::txn::Grant;
use cluster::{Denial, Knowledge, View};
use door::PutOff;
use etcd::wire::etcdserverpb::RangeRequest;
use keys::recovery::RecoveryPubKey;
use model::{Chain, MachineId};
use netpolicy::CompiledPolicies;
use pki::{Authority, CertificateProfile, CertifiedKey, ClientIdentity, IssueError, UnixTime};
use tokio::sync::{Mutex, watch};
use tokio::time::timeout;
use unlock::renewal::Giver;

use crate::enrolment::{Authorities, Directories, MakeError};
use crate::network::mesh::peers::Told;
use crate::runtime::{clock, lock, tls};

pub(crate) use certify::CertifyError;
pub(crate) use defragment::DefragmentEnd;
use directory::Signed;
pub(crate) use electorate::{keep as keep_electorate, read as electorate};
pub(crate) use first::First;
pub(crate) use keep::Lost;
pub(crate) use kept_snapshot::KeptSnapshotError;
use link::{Link, NoAnswer};
use members::MembersLook;
pub(crate) use members::{BackendsLook, MembersError};
pub(crate) use news::{NewsFor, NoNews};
pub(crate) use orders::Orders;
pub(crate) use own::VoteError;
pub(crate) use read::Unreadable;
pub(crate) use recovery::{
    Error as RecoveryError, RecoveryRefusal, begin as begin_recovery, forget as drop_recovery, noted as noted_recovery,
};
pub(crate) use restore::{RestoreError, RestoreOrder, RestoreSnapshot};
pub(crate) use revocation::{Error as RevocationError, list as revocation_list};
pub(crate) use snapshot::SnapshotStop;
use turn::{Asked, Turn};
pub(crate) use users::Error as UsersError;
pub(crate) use users::{has_begun as etcd_has_begun, known as etcd_users};

/// Longest wait of a request for those before it, and again for the copy to show what etcd has.
const TURN: Duration = Duration::from_secs(10);
/// Without a leader for so long, etcd is not just in an election.
const LEADERLESS: Duration = Duration::from_secs(10);

/// Why there is no link to etcd.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// No certificate for its user.
    #[error("issue a certificate for etcd's user")]
    Issue(#[from] IssueError),
    /// TLS could not be configured.
    #[error("configure a client of etcd")]
    Tls(#[from] pki::TlsError),
}

/// Policies of Kubernetes' network for whoever is told of them.
type Policies = Arc<watch::Sender<Option<Arc<CompiledPolicies>>>>;

/// The records; clones share them.
#[derive(Debug, Clone)]
pub(crate) struct Records {
    link: Link,
    /// Other coordinators' etcd is asked with it, too.
    client: tls::Client,
    /// Identity that this machine's etcd and others' are shown.
    identity: ClientIdentity,
    seen: Arc<watch::Sender<Seen>>,
    /// Policies of Kubernetes' network, as this coordinator has compiled them; none where it does not know all that they are about.
    policies: Policies,
    /// Held by one request at a time: two of one coordinator would only be in each other's way.
    turn: Arc<Mutex<Turn>>,
    look: Arc<Mutex<MembersLook>>,
    defragments: Arc<std::sync::Mutex<DefragmentTurn>>,
    restores: Arc<restore::Restores>,
    /// Since when it is known who holds which floating address.
    floating: Arc<std::sync::Mutex<FloatingGrants>>,
    first: Arc<First>,
    /// Authorities that sign certificates, directories and etcd's revocation list.
    authorities: Arc<Authorities>,
    /// Where this machine hears of directories: of its own, too.
    directories: Directories,
}

/// Records of the machine itself, followed by its own life.
#[derive(Debug)]
pub(crate) struct Own {
    seen: watch::Receiver<Seen>,
    policies: watch::Receiver<Option<Arc<CompiledPolicies>>>,
    machine: MachineId,
}

impl Own {
    /// Next state of the records; `told` hears of the peers that they name, `orders` of what they order.
    pub(crate) async fn next(&mut self, told: &Told, orders: &Orders) -> member::OwnRecords {
        loop {
            tokio::select! {
                _we_hold_the_sender = self.seen.changed() => break,
                Ok(()) = self.policies.changed() => self.take_orders(orders),
            }
        }
        self.take_orders(orders);
        let seen = self.seen.borrow_and_update();
        let Some(view) = seen.view.as_ref().filter(|_| seen.is_kept()) else { return member::OwnRecords::Lost };
        let state = view.state();
        if state.cluster().is_none() {
            return member::OwnRecords::Kept { desired: None, peers: None }; // peers that are kept say that there were records
        }
        told.take(state.news(told.version()));
        let desired = state.desired(&self.machine).ok().map(Box::new);
        member::OwnRecords::Kept { desired, peers: told.version() }
    }

    /// Takes what records that are kept order.
    fn take_orders(&mut self, orders: &Orders) {
        let policies = self.policies.borrow_and_update().clone();
        let seen = self.seen.borrow();
        if let Some(view) = seen.view.as_ref().filter(|_| seen.is_kept()) {
            orders.take_own(view, &self.machine, policies.as_deref());
        }
    }
}

/// Changes of the records, waited for.
#[derive(Debug)]
pub(crate) struct RecordsChanges(watch::Receiver<Seen>);

impl RecordsChanges {
    /// Waits for a change behind the last one that was waited for.
    pub(crate) async fn next(&mut self) {
        let _we_hold_the_sender = self.0.changed().await;
    }
}

/// State of etcd as the watch showed it last, and since when the watch shows nothing more.
#[derive(Debug, Default)]
struct Seen {
    /// None before everything was read once in this boot.
    view: Option<View>,
    /// Directory of the view's coordinators, signed; none before there is a cluster.
    directory: Option<Arc<Signed>>,
    /// None while the watch runs. Until everything is read it counts from the moment when this machine began to follow etcd.
    lost: Option<UnixMillis>,
}

impl Seen {
    /// State before the records are read: nothing is told from now on.
    fn unread() -> Self {
        Self { lost: Some(clock::unix_millis()), ..Self::default() }
    }

    /// For how long the watch has told nothing; none while it tells.
    fn silent_for(&self) -> Option<Duration> {
        self.lost.map(|lost| Duration::from_millis(clock::unix_millis().since(lost)))
    }

    fn is_kept(&self) -> bool {
        self.view.is_some() && self.lost.is_none()
    }

    /// Signs the directory anew where it says something else; that one.
    fn renew(&mut self, authority: &Authority) -> Result<Option<Arc<Signed>>, MakeError> {
        let Some(view) = &self.view else { return Ok(None) };
        let renewed = directory::renewed(self.directory.as_deref(), view.state(), authority)?.map(Arc::new);
        self.directory = renewed.clone().or_else(|| self.directory.take());
        Ok(renewed)
    }
}

/// Why etcd takes no writes, and what helps. It forgets what was deleted within nine minutes.
pub(crate) const FULL: &str = "etcd has raised the alarm NOSPACE, since a backend has reached its quota, and takes no writes; delete \
     what is not needed (cairnctl kubectl delete events -A --all), wait ten minutes, then: cairnctl etcd defragment, which disarms the alarm";

/// Why a request was not granted.
#[derive(Debug, thiserror::Error)]
pub(crate) enum GrantError {
    /// The decision over the records denies the request.
    #[error("{0}; nothing was changed")]
    Denied(Denial),
    /// This machine has no records, or not yet.
    #[error(transparent)]
    Unread(#[from] Unread),
    /// Too many ask for changes.
    #[error("too many changes are asked for at a time; nothing was changed; try again")]
    Busy,
    /// The machine that asks had too much changed lately.
    #[error("this machine had too much changed lately; nothing was changed; ask again in {} s", door::AGAIN.as_secs())]
    PutOff,
    /// Others were first each time.
    #[error("other coordinators were first each time; nothing was changed; try again")]
    OthersFirst,
    /// This coordinator is cut off from most of the others, or they are off.
    #[error(
        "this coordinator has seen no change for {} s, since most of the cluster's coordinators do not answer it; nothing was changed; \
         ask another coordinator, or try again",
        .0.as_secs()
    )]
    Leaderless(Duration),
    /// etcd takes no writes.
    #[error("{FULL}; nothing was changed")]
    Full,
    /// etcd did not say what became of it.
    #[error("etcd gives no answer ({}); ask again: what is asked twice is done once", Chain(.0))]
    Unanswered(NoAnswer),
}

impl From<NoAnswer> for GrantError {
    fn from(error: NoAnswer) -> Self {
        if error.is_full() { Self::Full } else { Self::Unanswered(error) }
    }
}

/// The records were not read in this boot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "the cluster's records are not read here: etcd is not ready yet, or keeps a copy without a vote until one more coordinator \
     comes; nothing was done; ask another coordinator, or try again"
)]
pub(crate) struct Unread;

/// Notes that etcd, which the machine is about to run as a further member, knows its users.
///
/// # Errors
/// [`UsersError`].
pub(crate) async fn joins_etcd() -> Result<(), UsersError> {
    users::joins().await
}

/// Erases what etcd has on this machine, which is to be none of its members.
///
/// # Errors
/// What the file system says; it may be asked for again.
pub(crate) async fn erase_etcd() -> io::Result<()> {
    users::erase().await
}

/// Puts aside what etcd has on this machine, where another is to begin.
///
/// # Errors
/// What the file system says; it may be asked for again.
pub(crate) async fn put_etcd_aside() -> io::Result<()> {
    users::put_aside().await
}

/// Key and certificate of the machine as a client of etcd.
fn issue(authorities: &Authorities, first: &First) -> Result<CertifiedKey, IssueError> {
    let profile = CertificateProfile::EtcdMachineClient { machine: first.machine() };
    authorities.etcd.issue_with_key(&profile, UnixTime::since_unix_epoch(clock::unix()))
}

impl Records {
    /// Over this machine's own etcd, which asks who calls; `first` is what it writes if nobody has.
    ///
    /// # Errors
    /// [`Error`] names the step.
    pub(crate) fn of(authorities: &Arc<Authorities>, first: First, directories: Directories) -> Result<Self, Error> {
        let identity = ClientIdentity::new(issue(authorities, &first)?.identity())?;
        let authority = authorities.etcd.certificate().clone();
        let config = pki::server_auth::under_authority(authority, Some(&identity), Arc::new(tls::Clock))?;
        let client = tls::Client { config, standstills: first.standstills().clone() };
        let etcd = SocketAddrV4::new(Ipv4Addr::LOCALHOST, model::ETCD_CLIENT_PORT);
        Ok(Self {
            link: Link::to(etcd, client.within_the_machine()),
            client,
            identity,
            seen: Arc::new(watch::Sender::new(Seen::unread())),
            policies: Policies::default(),
            turn: Arc::default(),
            look: Arc::default(),
            defragments: Arc::default(),
            restores: Arc::default(),
            floating: Arc::default(),
            first: Arc::new(first),
            authorities: authorities.clone(),
            directories,
        })
    }

    /// Has connections that are made from now on show a new certificate.
    ///
    /// # Errors
    /// [`Error`]; they show the one before.
    pub(crate) fn renew(&self) -> Result<(), Error> {
        Ok(self.identity.replace(issue(&self.authorities, &self.first)?.identity())?)
    }

    /// Makes etcd's users and has it ask who calls, once and for good.
    pub(crate) async fn make_users(self) -> Result<(), users::Error> {
        users::make(&self.link).await
    }

    /// State of the records, as the machine's own life follows it.
    pub(crate) fn own(&self) -> Own {
        let mut seen = self.seen.subscribe();
        seen.mark_changed();
        Own { seen, policies: self.policies.subscribe(), machine: self.first.machine() }
    }

    /// From now on machines are told these policies; none where this coordinator has to say nothing about them.
    pub(crate) fn tell_policies(&self, policies: Option<CompiledPolicies>) {
        self.policies.send_replace(policies.map(Arc::new));
    }

    /// Changes of the records from now on.
    pub(crate) fn changes(&self) -> RecordsChanges {
        RecordsChanges(self.seen.subscribe())
    }

    /// News of the others for a machine that knows so much, and its orders.
    pub(crate) fn news(&self, machine: MachineId, known: Knowledge) -> NewsFor {
        NewsFor::begin((self.seen.subscribe(), self.policies.subscribe()), machine, known)
    }

    /// Whether `machine` is given what makes a coordinator.
    ///
    /// # Errors
    /// [`Unread`] where this coordinator does not know; within it, why it is not.
    pub(crate) fn hands_over_to(&self, machine: MachineId) -> Result<Result<(), HandOverError>, Unread> {
        self.read(|view, _| view.state().hands_over_to(&machine))
    }

    /// Where the coordinators are, as this one signed it.
    ///
    /// # Errors
    /// [`Unread`].
    pub(crate) fn directory(&self) -> Result<Vec<u8>, Unread> {
        self.seen.borrow().directory.as_ref().map(|signed| signed.bytes.clone()).ok_or(Unread)
    }

    /// Shows what was seen, and signs what it says of coordinators if that is something else than before.
    fn shows(&self, change: impl FnOnce(&mut Seen)) -> Result<(), MakeError> {
        let mut renewed = Ok(None);
        self.seen.send_modify(|seen| {
            change(seen);
            renewed = seen.renew(&self.authorities.cairn);
            if let Some(view) = &seen.view {
                lock::even_if_poisoned(&self.floating).see(view.state(), clock::now());
            }
        });
        if let Some(signed) = renewed? {
            self.directories.tell(Giver::Itself, signed.bytes.clone());
        }
        Ok(())
    }

    /// Key of the owner whom this machine's recovery record is for.
    pub(crate) fn recovery_key(&self) -> RecoveryPubKey {
        self.first.recovery_key()
    }

    /// Answers a question about what was seen, and says since when it may be old. `question` must not come back here.
    ///
    /// # Errors
    /// [`Unread`].
    pub(crate) fn read<T>(&self, question: impl FnOnce(&View, Option<UnixMillis>) -> T) -> Result<T, Unread> {
        let seen = self.seen.borrow();
        seen.view.as_ref().map(|view| question(view, seen.lost)).ok_or(Unread)
    }

    /// For how long this machine's etcd has told nothing: it has no leader, or does not run. None while it tells.
    fn silent_for(&self) -> Option<Duration> {
        self.seen.borrow().silent_for()
    }

    /// Whether this machine's etcd has a leader, or had one a moment ago.
    pub(crate) fn etcd_has_leader(&self) -> bool {
        leaderless(self.silent_for()).is_none()
    }

    /// Whether this machine's etcd has a leader now.
    pub(crate) fn is_led(&self) -> bool {
        self.silent_for().is_none()
    }

    /// The refusal, by a coordinator that has a leader, with its directory.
    pub(crate) fn by_leader(&self, refusal: &tonic::Status) -> tonic::Status {
        api::by_leader(refusal, self.directory().ok())
    }

    /// [`Self::decide`] for who asks from outside: nothing is tried without a leader, so that nobody is left in the dark about what became of it.
    ///
    /// # Errors
    /// [`GrantError`].
    pub(crate) async fn grant(&self, request: Request) -> Result<Grant, GrantError> {
        match leaderless(self.silent_for()) {
            Some(silent) => Err(GrantError::Leaderless(silent)),
            None => self.decide(request).await,
        }
    }

    /// Decides a request and has etcd take what comes of it. What was written is seen before it is told.
    ///
    /// # Errors
    /// [`GrantError`].
    async fn decide(&self, request: Request) -> Result<Grant, GrantError> {
        let mut turn = timeout(TURN, self.turn.lock()).await.map_err(|_| GrantError::Busy)?;
        let mut asked = Asked::of(request, self.first.machine());
        loop {
            let now = (UnixSeconds(clock::unix().as_secs()), clock::now());
            let proposal = self.read(|view, _| turn.propose(&mut asked, view.state(), now))?;
            let proposal = proposal.map_err(|PutOff| GrantError::PutOff)?;
            let (outcome, revision) = self.link.commit(proposal.txn()).await?;
            let written = proposal.txn().writes();
            match turn.after(&mut asked, proposal, outcome, now.1) {
                Next::Answer(answer) => {
                    if written && answer.is_ok() {
                        let _later_if_the_watch_is_slow = self.sees(revision).await;
                    }
                    return answer.map_err(GrantError::Denied);
                }
                Next::Again { seen } => {
                    let _proposed_again_all_the_same = self.sees(seen).await;
                }
                Next::GiveUp => return Err(GrantError::OthersFirst),
            }
        }
    }

    /// Waits until the copy has the last change of the records that etcd's quorum has now. What others write into etcd, Kubernetes
    /// above all, makes the copy no older.
    ///
    /// # Errors
    /// [`GrantError`] where there is no quorum, or the copy does not come so far.
    pub(crate) async fn catch_up(&self) -> Result<(), GrantError> {
        let asked = RangeRequest { key: Key::Version.bytes(), keys_only: true, ..RangeRequest::default() };
        let answer = self.link.range(asked).await?;
        let revision = answer.kvs.first().map_or(0, |version| version.mod_revision);
        let caught_up = self.sees(u64::try_from(revision).unwrap_or_default()).await;
        if caught_up { Ok(()) } else { Err(GrantError::Unread(Unread)) }
    }

    /// Waits until the copy is of this revision; whether it came to that.
    async fn sees(&self, revision: u64) -> bool {
        let mut seen = self.seen.subscribe();
        let reached = seen.wait_for(|seen| seen.view.as_ref().is_some_and(|view| view.revision() >= revision));
        timeout(TURN, reached).await.is_ok_and(|reached| reached.is_ok())
    }
}

/// For how long etcd has had no leader, where it is not just in an election; `silent` says for how long it has told nothing.
fn leaderless(silent: Option<Duration>) -> Option<Duration> {
    silent.filter(|silent| *silent >= LEADERLESS)
}

#[cfg(test)]
mod tests {
    use cluster::key::Key;
    use cluster::record::Standing;
    use cluster::state::{Change, KeyValue};

    use super::*;

    /// At each change of its records, as long as these are kept up and say who etcd's members are. Proves: S14
    #[tokio::test(start_paused = true)]
    async fn a_coordinator_tells_itself_who_its_owners_are() {
        let own = fixture::machine(9, Standing::Member);
        let (records, told) = (fixture::records(&fixture::facts(), &[own], None), Told::default());
        let (mut word, orders) = (records.own(), Orders::default());
        let mut owners = async || match timeout(Duration::from_secs(2), word.next(&told, &orders))
            .await
            .expect("within two seconds")
        {
            member::OwnRecords::Kept { desired, .. } => {
                Ok(desired.map(|desired| desired.owners.iter().map(|owner| owner.key.0[0]).collect::<Vec<_>>()))
            }
            member::OwnRecords::Lost => Err("lost"),
        };
        let change = |seen: &mut Seen, owners: &[u8], revision| {
            let value = fixture::owned_by(owners).encode();
            let put = Change::Put(KeyValue { key: Key::Cluster.bytes(), value, mod_revision: revision });
            seen.view.as_mut().expect("it was read").take([put], revision).expect("our own");
        };
        assert_eq!(owners().await, Ok(Some(vec![1])));
        records.seen.send_modify(|seen| change(seen, &[1, 2], 3));
        assert_eq!(owners().await, Ok(Some(vec![1, 2])));
        let moves = |seen: &mut Seen| {
            let put = Change::Put(fixture::put(&fixture::machine(9, Standing::Member), 4));
            seen.view.as_mut().expect("it was read").take([put], 4).expect("our own");
        };
        records.seen.send_modify(moves);
        assert_eq!(owners().await, Ok(None), "by a look before that it might call itself a node");
        let look = fixture::look(4);
        records
            .seen
            .send_if_modified(|seen| seen.view.as_mut().expect("it was read").see(fixture::members(&[9]), look));
        records.seen.send_modify(|seen| change(seen, &[2], 5));
        assert_eq!(owners().await, Ok(Some(vec![2])));
        records.seen.send_modify(|seen| seen.lost = Some(clock::unix_millis()));
        assert_eq!(owners().await, Err("lost"));
    }

    /// Shares open a disk, so they are exchanged only when etcd cannot be asked.
    ///
    /// Proves: K6
    #[test]
    fn shares_are_exchanged_only_once_etcd_is_leaderless() {
        let leads = |silent| leaderless(silent).is_none();
        assert!(leads(None) && leads(Some(Duration::from_secs(9))));
        assert!(!leads(Some(LEADERLESS)));
    }
}
