//! Voters that were all switched off open one another: asks the others for their shares of the cold-start key, and has this
//! machine's for those that ask. Who is given what, and when it is enough, is `unlock`'s matter. Must never keep a share longer
//! than it waits.
//!
//! ```text
//!   waits ─► asks each other voter of its directory, in rounds ──┐
//!     └───── is asked by them, at the public API ────────────────┴─► a quorum: the half, which goes on as any other does
//!   open  ── is asked while its etcd has no leader: gives the share that lies on its ESP
//! ```

use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};

use api::FieldError;
use enrol::asking::Answer;
use enrol::join::pace::{Pace, Round};
use keys::cold_start::Contribution;
use keys::endpoint::Endpoint;
use model::{Chain, MachineId, PUBLIC_API_PORT};
use pki::{CertificateDer, PublicKey};
use tokio::sync::{Notify, mpsc, watch};
use tokio::time::sleep;
use unlock::exchange::{ExchangeError, ShareCollector};
use unlock::locked::LockedMember;
use unlock::whereabouts::Whereabouts;

use super::ask::{Asks, Ends, QuestionError, chance, has_a_link};
use super::recover::Told;
use super::shares::{ReadError, Shares};
use crate::facts::Facts;
use crate::runtime::lock;
use crate::runtime::watched::tell_changed;
use crate::shown::board::Board;

/// A share, and where a few machines are.
const MOST_ANSWER_BYTES: usize = api::limits::MACHINE_REQUEST_BYTES;

/// This machine's part in a cold start; clones share it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Exchange(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    part: Mutex<Part>,
    /// Where other voters are, by what was heard in this boot.
    whereabouts: watch::Sender<Whereabouts>,
}

#[derive(Debug, Default)]
enum Part {
    /// The machine has no share, or needs nobody's.
    #[default]
    None,
    /// The machine waits for the others' shares.
    Waits(Arc<Waits>),
    /// The machine's data is open, and it gives shares.
    Open(Shares),
}

/// A voter that waits.
#[derive(Debug)]
pub(super) struct Waits {
    collector: Mutex<ShareCollector>,
    /// Told when the collector may have begun to contribute.
    asked: Notify,
    authority: PublicKey,
    answers: mpsc::Sender<Told>,
    facts: Facts,
    /// Told by the collector: where the others are, and where they are asked for the key.
    whereabouts: watch::Sender<Whereabouts>,
    asks: watch::Sender<Vec<Endpoint>>,
}

/// Why nothing is exchanged.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ContributeError {
    /// The machine holds no share, or needs none.
    #[error("this machine takes no part in a cold start; nothing was exchanged")]
    NoPart,
    /// Not with this machine.
    #[error("{0}; nothing was exchanged")]
    Exchange(#[from] ExchangeError),
    /// The ESP.
    #[error("read this machine's shares")]
    Read(#[from] ReadError),
}

impl Exchange {
    /// A machine without its key waits from now on, if it has a share that needs others; what they come to goes to `answers`.
    pub(super) fn waits(
        &self,
        member: LockedMember<'_>,
        answers: &mpsc::Sender<Told>,
        board: &Board,
    ) -> Option<Arc<Waits>> {
        let certificate = CertificateDer::from(member.identity().ca_certificate.as_slice());
        let authority = pki::public_key_of(&certificate)
            .inspect_err(|error| board.error(&format!("the cluster's CA cannot be read: {}", Chain(error))))
            .ok()?;
        let collector = member
            .collector(&authority.spki())
            .inspect_err(|error| board.error(&format!("no shares are exchanged: {}", Chain(error))))
            .ok()??;
        let waits = Arc::new(Waits {
            asks: watch::Sender::new(collector.asks().into_iter().collect()),
            collector: Mutex::new(collector),
            asked: Notify::new(),
            authority,
            answers: answers.clone(),
            facts: board.facts().clone(),
            whereabouts: self.0.whereabouts.clone(),
        });
        *lock::even_if_poisoned(&self.0.part) = Part::Waits(waits.clone());
        Some(waits)
    }

    /// Leaves the exchange: the machine waits no more, or is no coordinator any more.
    pub(crate) fn over(&self) {
        *lock::even_if_poisoned(&self.0.part) = Part::None;
    }

    /// Where other voters are, by what was heard in this boot.
    pub(crate) fn whereabouts(&self) -> watch::Receiver<Whereabouts> {
        self.0.whereabouts.subscribe()
    }

    /// Gives shares from now on: the data is open, and the machine is a coordinator.
    pub(crate) fn opens(&self, shares: &Shares) {
        *lock::even_if_poisoned(&self.0.part) = Part::Open(shares.clone());
    }

    /// `machine`, which has proved to be that machine, calls from `source` for what no machine that waits can give.
    pub(crate) fn is_called_by(&self, machine: MachineId, source: IpAddr) {
        if let Part::Waits(waits) = &*lock::even_if_poisoned(&self.0.part) {
            waits.collect(|collector| collector.is_called_by(machine, calls_from(source)));
        }
    }

    /// `machine`, which has proved to be that machine, calls from `source`, gives its share, and is given this machine's.
    ///
    /// # Errors
    /// [`ContributeError`]: then neither was.
    pub(crate) async fn contribute(
        &self,
        machine: MachineId,
        source: IpAddr,
        given: Contribution,
    ) -> Result<Contribution, ContributeError> {
        let shares = match &*lock::even_if_poisoned(&self.0.part) {
            Part::None => return Err(ContributeError::NoPart),
            Part::Waits(waits) => return Ok(waits.exchange(machine, source, given)?),
            Part::Open(shares) => shares.clone(),
        };
        let voter = shares.voter().await?;
        let mut answer = Err(ExchangeError::NoCoordinator(machine));
        self.0.whereabouts.send_modify(|known| answer = voter.answer(machine, calls_from(source), given, known));
        Ok(answer?)
    }
}

impl Waits {
    /// Notes that the coordinator there did not give the key: it does not answer, or has no leader.
    pub(super) fn no_leader_at(&self, endpoint: &Endpoint) {
        lock::even_if_poisoned(&self.collector).no_leader_at(endpoint);
        self.asked.notify_one();
    }

    /// The coordinator there, which has a leader, has answered, and told where the coordinators are.
    pub(super) fn leader_answered(&self, endpoint: &Endpoint, told: &[u8]) {
        self.collect(|collector| collector.leader_answered(endpoint, told, &self.authority.spki()));
    }

    /// Where coordinators are asked for the key.
    pub(super) fn asks(&self) -> watch::Receiver<Vec<Endpoint>> {
        self.asks.subscribe()
    }

    /// Changes the collector, and tells what others have to know of it.
    fn collect<T>(&self, change: impl FnOnce(&mut ShareCollector) -> T) -> T {
        let mut collector = lock::even_if_poisoned(&self.collector);
        let changed = change(&mut collector);
        tell_changed(&self.whereabouts, collector.whereabouts().clone());
        tell_changed(&self.asks, collector.asks().into_iter().collect());
        changed
    }

    /// Waits until nobody is known to have a leader.
    async fn may_contribute(&self) {
        while !lock::even_if_poisoned(&self.collector).may_contribute() {
            self.asked.notified().await;
        }
    }

    /// Both give, or neither.
    fn exchange(&self, machine: MachineId, source: IpAddr, given: Contribution) -> Result<Contribution, ExchangeError> {
        let endpoints = self.endpoints();
        let (ours, half) = self.collect(|collector| {
            let ours = collector.contribution(machine, given.epoch, endpoints)?;
            Ok::<_, ExchangeError>((ours, collector.take(machine, calls_from(source), given)?))
        })?;
        self.comes_to(half.map(Answer::Half));
        tracing::info!(%machine, epoch = ours.epoch, "a share of the cold-start key is exchanged with a voter that called");
        Ok(ours)
    }

    /// With a quorum the machine goes on.
    fn comes_to(&self, answer: Option<Answer>) {
        if let Some(answer) = answer {
            let told = Told { answer, outcome: None };
            // Full: somebody else has just answered.
            let _or_answered_already = self.answers.try_send(told);
        }
    }

    fn endpoints(&self) -> Vec<Endpoint> {
        let texts = self.facts.read(|now| super::endpoints(&now.links));
        texts.iter().filter_map(|text| Endpoint::read(text).ok()).collect()
    }

    /// Asks the other voters, in rounds, for as long as it waits.
    pub(super) async fn ask(&self, member: LockedMember<'_>, board: &Board) -> Infallible {
        let identity = member.identity();
        let asks = Asks { cluster: identity.holder.cluster, authority: self.authority.pin(), key: &identity.key };
        let mut pace = Pace::new();
        has_a_link(board).await;
        loop {
            self.may_contribute().await;
            board.step("ask the other coordinators for their shares");
            let mut partners = lock::even_if_poisoned(&self.collector).voter().partners();
            let first = usize::try_from(chance()).unwrap_or(0) % partners.len().max(1);
            partners.rotate_left(first);
            for (machine, epochs) in partners {
                self.ask_one(asks, machine, &epochs, board).await;
            }
            sleep(pace.after(Round::Unanswered, chance())).await;
        }
    }

    /// Asks one of them wherever it may be, for a share of the newest epoch that both hold.
    async fn ask_one(&self, asks: Asks<'_>, machine: MachineId, epochs: &[u32], board: &Board) {
        let endpoints = lock::even_if_poisoned(&self.collector).endpoints(machine);
        for endpoint in endpoints {
            for epoch in epochs {
                let mut standstill = self.facts.standstills().watch_after_a_look().await;
                let given = tokio::select! {
                    given = self.call(asks, machine, *epoch, &endpoint) => given,
                    // The session with it may be a copy's, too: it ends here, and the next round asks again.
                    () = standstill.wait() => return,
                };
                match given {
                    Ok(()) => return,
                    Err(why) => {
                        if let VoterError::Asked(QuestionError::Led(_, _, told)) = &why {
                            self.leader_answered(&endpoint, told);
                            return;
                        }
                        let reason = Chain(&why).to_string();
                        tracing::warn!(%machine, epoch, reason, "no share from another voter");
                        board.error(&format!(
                            "no share from another coordinator: {reason}. Nothing was changed; this machine asks again"
                        ));
                        if why.round() == Round::Unanswered {
                            break;
                        }
                    }
                }
            }
        }
    }

    async fn call(
        &self,
        asks: Asks<'_>,
        machine: MachineId,
        epoch: u32,
        endpoint: &Endpoint,
    ) -> Result<(), VoterError> {
        let session = asks.connect_to(machine, endpoint).await?;
        // Only behind the handshake: whoever answers is that machine.
        let ours = lock::even_if_poisoned(&self.collector).contribution(machine, epoch, self.endpoints())?;
        let request = api::wire::Contribution::from(ours);
        let response = session.call(MOST_ANSWER_BYTES, async |client| client.contribute(request).await).await?;
        let given = Contribution::try_from(response).map_err(|error| VoterError::Answer(endpoint.clone(), error))?;
        let half = self.collect(|collector| collector.take(machine, Some(endpoint.clone()), given))?;
        tracing::info!(%machine, epoch, "a share of the cold-start key is exchanged with a voter that answered");
        self.comes_to(half.map(Answer::Half));
        Ok(())
    }
}

/// Where a machine is that calls from an address: its public API listens there.
fn calls_from(source: IpAddr) -> Option<Endpoint> {
    Endpoint::read(&SocketAddr::from((source, PUBLIC_API_PORT)).to_string()).ok()
}

/// Why one voter gave no share.
#[derive(Debug, thiserror::Error)]
enum VoterError {
    /// The voter does not answer, or says no.
    #[error(transparent)]
    Asked(#[from] QuestionError),
    /// The voter's answer makes no sense.
    #[error("the answer of {0} cannot be read")]
    Answer(Endpoint, #[source] FieldError),
    /// By what this machine knows nothing is exchanged with it.
    #[error(transparent)]
    Exchange(#[from] ExchangeError),
}

impl Ends for VoterError {
    fn round(&self) -> Round {
        match self {
            Self::Asked(why) => why.round(),
            Self::Answer(..) | Self::Exchange(_) => Round::Refused,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::time::Duration;

    use cluster::record::Generations;
    use keys::cold_start::Epoch;
    use keys::data_key::Holder;
    use keys::directory::{Coordinator, Directory};
    use keys::share::ShareKey;
    use keys::two_slot::{SLOT_BYTES, Slots};
    use model::{ClusterId, DiskUuid, LocalKey, MasterSecret, Secret, Uuid};
    use tokio::time::timeout;
    use unlock::exchange::ShareHolder;
    use unlock::share::{hold, open_shares};
    use zeroize::Zeroizing;

    use super::*;
    use crate::machine::kernel::Boot;

    const CLUSTER: ClusterId = ClusterId([1; 16]);
    const EPOCH: u32 = 4;

    fn machine(number: u8) -> MachineId {
        MachineId([number; 16])
    }

    /// Where a machine calls from.
    fn source(number: u8) -> IpAddr {
        Ipv4Addr::new(192, 0, 2, number).into()
    }

    /// Machine `of`, which waits: one of two that hold a share of the epoch, of which it takes both. What its shares come to
    /// goes to the receiver.
    fn waits(of: u8) -> (Exchange, mpsc::Receiver<Told>) {
        waits_for(of, &[])
    }

    /// The same, with a third coordinator at these places, which is asked for the key first.
    fn waits_for(of: u8, third: &[&str]) -> (Exchange, mpsc::Receiver<Told>) {
        let holder = Holder { cluster: CLUSTER, machine: machine(of) };
        let key = ShareKey::of(&LocalKey(Secret::take(&mut [of; 32])), &holder);
        let (master, disk) = (MasterSecret(Secret::take(&mut [7; 32])), DiskUuid(Uuid([of; 16])));
        let epoch = Epoch::new(EPOCH, [machine(1), machine(2)].into()).expect("an epoch");
        let holding = cluster::epochs::ShareOrder { epoch, stands: None, disk, generations: Generations::One(1) };
        let mut slots = Slots([vec![0; SLOT_BYTES], vec![0; SLOT_BYTES]].map(Zeroizing::new));
        let write = hold(&holding, &holder, &master, &key, &slots).expect("a holder").expect("nothing lies there");
        slots.0[write.slot] = Zeroizing::new(write.bytes);
        let third: Vec<_> = third.iter().map(|place| String::from(*place)).collect();
        let places = |number| if number == 3 { third.clone() } else { Vec::new() };
        let coordinator = |number| Coordinator { machine: machine(number), endpoints: places(number) };
        let coordinators = (1..=3).map(coordinator).collect();
        let directory = Directory { cluster: CLUSTER, version: 1, coordinators };
        let collector =
            ShareCollector::begin(ShareHolder::new(machine(of), directory, open_shares(&slots, disk, &key).0));
        let (answers, heard) = mpsc::channel(1);
        let (facts, _power_on) = Facts::new(Boot::fixture());
        let collector = collector.expect("it needs others");
        let asks = watch::Sender::new(collector.asks().into_iter().collect());
        let collector = Mutex::new(collector);
        let authority = PublicKey::from_ed25519([0; 32]);
        let exchange = Exchange::default();
        let whereabouts = exchange.0.whereabouts.clone();
        let waits = Waits { collector, asked: Notify::new(), authority, answers, facts, whereabouts, asks };
        *lock::even_if_poisoned(&exchange.0.part) = Part::Waits(Arc::new(waits));
        (exchange, heard)
    }

    /// Contribution of machine `of` to the other one, of the two.
    fn says(of: u8) -> Contribution {
        let (exchange, _heard) = waits(of);
        let Part::Waits(waits) = &*lock::even_if_poisoned(&exchange.0.part) else { panic!("it waits") };
        let collector = lock::even_if_poisoned(&waits.collector);
        collector.contribution(machine(3 - of), EPOCH, Vec::new()).expect("the other one holds a share")
    }

    fn knows(exchange: &Exchange, number: u8) -> Vec<String> {
        let Part::Waits(waits) = &*lock::even_if_poisoned(&exchange.0.part) else { panic!("it waits") };
        let endpoints = lock::even_if_poisoned(&waits.collector).endpoints(machine(number));
        endpoints.iter().map(|endpoint| endpoint.as_str().to_owned()).collect()
    }

    /// Proves: K6 M6
    #[tokio::test]
    async fn voters_exchange_shares_and_a_quorum_opens_the_disk() {
        let (exchange, mut heard) = waits(1);
        let given = exchange.contribute(machine(2), source(9), says(2)).await.expect("a voter");
        assert_eq!((given.epoch, given.share.expose()), (EPOCH, says(1).share.expose()));
        let told = heard.try_recv().expect("two of two are a quorum");
        assert!(matches!(told.answer, Answer::Half(half) if half.disk == DiskUuid(Uuid([1; 16]))));
        assert_eq!(knows(&exchange, 2), ["192.0.2.9:7836"], "and where it called from");
        // Nobody listens by now, or somebody has just answered: that is no reason to keep a share back.
        drop(heard);
        assert!(exchange.contribute(machine(2), source(9), says(2)).await.is_ok());
    }

    /// Proves: K6 K7
    #[tokio::test]
    async fn no_share_is_given_to_or_taken_from_one_that_is_no_voter() {
        let (exchange, mut heard) = waits(1);
        for (stranger, epoch) in [(3, EPOCH), (9, EPOCH), (1, EPOCH), (2, EPOCH + 1)] {
            let given = Contribution { epoch, ..says(2) };
            let refused = exchange.contribute(machine(stranger), source(stranger), given).await;
            assert!(matches!(refused, Err(ContributeError::Exchange(_))), "{stranger} {epoch}");
            assert_eq!(knows(&exchange, stranger), [""; 0], "{stranger} {epoch}");
        }
        assert!(heard.try_recv().is_err(), "no share of the other's was taken");
    }

    /// The voters that called open each other, perhaps, before this one reaches them. Proves: K6 M6
    #[tokio::test]
    async fn a_voter_that_called_is_asked_for_the_key_where_it_came_from() {
        let (exchange, _heard) = waits_for(1, &["192.0.2.3:7836"]);
        let mut asks = match &*lock::even_if_poisoned(&exchange.0.part) {
            Part::Waits(waits) => waits.asks(),
            Part::None | Part::Open(_) => panic!("it waits"),
        };
        let asked = |asks: &mut watch::Receiver<Vec<Endpoint>>| {
            let told = asks.has_changed().expect("it waits");
            let places: Vec<String> = asks.borrow_and_update().iter().map(|it| it.as_str().to_owned()).collect();
            (told, places.join(" "))
        };
        let said = |told, places: &str| (told, places.to_owned());
        assert_eq!(asked(&mut asks), said(false, "192.0.2.3:7836"));
        exchange.is_called_by(machine(9), source(66));
        assert_eq!(asked(&mut asks), said(false, "192.0.2.3:7836"), "that one is no coordinator");
        for _ in 0..2 {
            exchange.is_called_by(machine(2), source(22));
        }
        assert_eq!(asked(&mut asks), said(true, "192.0.2.22:7836 192.0.2.3:7836"));
        assert_eq!(exchange.whereabouts().borrow().machines().collect::<Vec<_>>(), [machine(2)]);
        exchange.is_called_by(machine(2), source(22));
        assert!(!asked(&mut asks).0, "it is heard of already");
    }

    /// A machine that was removed meanwhile calls at once. Proves: K6 K7
    #[tokio::test(start_paused = true)]
    async fn no_share_is_given_before_the_lack_of_a_leader_is_known() {
        let (exchange, mut heard) = waits_for(1, &["192.0.2.3:7836"]);
        let waits = match &*lock::even_if_poisoned(&exchange.0.part) {
            Part::Waits(waits) => waits.clone(),
            Part::None | Part::Open(_) => panic!("it waits"),
        };
        let calls = async || match exchange.contribute(machine(2), source(2), says(2)).await {
            Ok(_) => true,
            Err(ContributeError::Exchange(ExchangeError::MayHaveLeader)) => false,
            Err(other) => panic!("{other}"),
        };
        assert!(!calls().await && heard.try_recv().is_err(), "neither is taken");
        let third = Endpoint::read("192.0.2.3:7836").expect("an endpoint");
        let goes_on = async || timeout(Duration::from_secs(1), waits.may_contribute()).await.is_ok();
        assert!(!goes_on().await, "nor does it call");
        let (went_on, ()) = tokio::join!(goes_on(), async { waits.no_leader_at(&third) });
        assert!(went_on && calls().await);
        waits.leader_answered(&third, &[0]);
        assert!(!calls().await && !goes_on().await);
    }

    /// Proves: K6
    #[tokio::test]
    async fn a_machine_that_waits_no_more_gives_no_share() {
        let nobody = Exchange::default();
        assert!(matches!(nobody.contribute(machine(2), source(2), says(2)).await, Err(ContributeError::NoPart)));
        let (exchange, mut heard) = waits(1);
        exchange.over();
        assert!(matches!(exchange.contribute(machine(2), source(2), says(2)).await, Err(ContributeError::NoPart)));
        assert!(heard.try_recv().is_err());
    }
}
