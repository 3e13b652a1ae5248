//! Orders: what coordinators tell a machine to go by beside desired state and peers, in parts that are told one by one, each where the
//! machine has another one. All are told to workers: the registries, the ports that are open on the worker's uplinks, the
//! floating addresses that it is to ask for, and what the policies of Kubernetes' network say of its pods.
//!
//! ```text
//!   State ─ order(machine, KnownParts) ───────────┬─► Order: one part, whole, or that there is none ─► OrderBook ─► KnownParts
//!   compiled policies ─ policy_order(…) ──────────┘
//! ```
//! A machine names the parts that it understands, so a newer coordinator tells it no others. It keeps them until it restarts. An order
//! is as of the last change of the records, and an older one changes nothing: coordinators lag behind one another. Policies are no
//! records: each coordinator compiles them by itself, to the same bytes as every other, and as of the same records the one that is
//! listened to is right.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use model::{MachineId, NodeName};

use crate::floating::decode_floating;
use crate::part::{OrderPart, PartHash, decode_registries};
use crate::published::{OpenPort, decode_published};
use crate::record::{BadRecord, RegistryRecord};
use crate::state::{State, StateVersion};

/// Name of a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum PartName {
    /// Registries of container images, for workers.
    Registries,
    /// Connections that a worker's pods may have: `netpolicy::part` has its contents.
    Policies,
    /// Ports that are open on the machine's uplinks, for workers.
    Published,
    /// Floating addresses that a worker is named for.
    Floating,
}

impl PartName {
    /// All that this version understands.
    pub const ALL: [Self; 4] = [Self::Registries, Self::Policies, Self::Published, Self::Floating];
}

/// Part that a machine understands, and what it has of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct KnownPart {
    /// As of when; none before anything was told of it.
    pub version: Option<StateVersion>,
    /// None where there is no such part.
    pub hash: Option<PartHash>,
}

/// Parts that a machine understands.
pub type KnownParts = BTreeMap<PartName, KnownPart>;

/// Part as a machine is to have it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Order {
    /// Which part.
    pub name: PartName,
    /// As of when.
    pub version: StateVersion,
    /// The whole part; none where there is none.
    pub contents: Option<Vec<u8>>,
}

/// Orders that a machine has heard.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OrderBook(BTreeMap<PartName, Heard>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Heard {
    version: StateVersion,
    part: Option<OrderPart>,
}

impl KnownPart {
    /// Whether the machine is to hear of a part of this hash, as of then. It is not where it has heard of later records.
    fn is_to_hear(&self, hash: Option<PartHash>, version: StateVersion) -> bool {
        self.hash != hash && self.version <= Some(version)
    }
}

impl Order {
    /// Knowledge of whoever takes the order.
    #[must_use]
    pub fn known(&self) -> KnownPart {
        let hash = self.contents.as_deref().map(PartHash::of);
        KnownPart { version: Some(self.version), hash }
    }
}

impl State {
    /// Next order of the records for a machine that has these parts, which is noted there; none where nothing is new to it, or it is
    /// ahead.
    pub fn order(&self, machine: &MachineId, known: &mut KnownParts) -> Option<Order> {
        let version = self.order_version()?;
        let order = known.iter().find_map(|(name, known)| {
            let part = match name {
                PartName::Registries => {
                    self.registries_part().filter(|_| self.worker(machine).is_some()).map(Cow::Borrowed)
                }
                PartName::Published => self.published_part(machine).map(Cow::Owned),
                PartName::Floating => self.floating_part(machine).map(Cow::Owned),
                PartName::Policies => return None, // the records say nothing of them
            };
            known.is_to_hear(part.as_deref().map(OrderPart::hash), version).then(|| Order {
                name: *name,
                version,
                contents: part.map(|part| part.contents().to_vec()),
            })
        })?;
        known.insert(order.name, order.known());
        Some(order)
    }

    /// Order of the policies for a machine that has these parts, where `part` is what this coordinator has compiled for the pods of a
    /// node. A coordinator that has compiled nothing says nothing: that is not the same as that there are none.
    pub fn policy_order<'p>(
        &self,
        machine: &MachineId,
        part: impl FnOnce(&NodeName) -> (PartHash, &'p [u8]),
        known: &mut KnownParts,
    ) -> Option<Order> {
        let (name, version) = (PartName::Policies, self.order_version()?);
        let part = self.worker(machine).map(|worker| part(&worker.name));
        let is_to_hear = known.get(&name)?.is_to_hear(part.map(|(hash, _)| hash), version);
        let contents = |(_, bytes): (PartHash, &[u8])| bytes.to_vec();
        let order = is_to_hear.then(|| Order { name, version, contents: part.map(contents) })?;
        known.insert(name, order.known());
        Some(order)
    }

    /// As of when orders are told: each change of the records counts.
    fn order_version(&self) -> Option<StateVersion> {
        let (_, revision) = self.version()?;
        Some(StateVersion { recoveries: self.state_version().recoveries, revision })
    }
}

impl OrderBook {
    /// Parts that this version understands, as they are known.
    #[must_use]
    pub fn known(&self) -> KnownParts {
        let known = |name| match self.0.get(&name) {
            Some(heard) => KnownPart { version: Some(heard.version), hash: heard.part.as_ref().map(OrderPart::hash) },
            None => KnownPart::default(),
        };
        PartName::ALL.map(|name| (name, known(name))).into()
    }

    /// Takes an order, and says whether the part is another one than before. One of older records than what was heard changes nothing.
    pub fn take(&mut self, Order { name, version, contents }: Order) -> bool {
        let before = self.0.get(&name);
        if before.is_some_and(|before| before.version > version) {
            return false;
        }
        let part = contents.map(OrderPart::of);
        let is_another = before.and_then(|before| before.part.as_ref()) != part.as_ref();
        self.0.insert(name, Heard { version, part });
        is_another
    }

    /// Registries that the machine pulls from as it is ordered; none where nothing is said of any.
    ///
    /// # Errors
    /// [`BadRecord`] names what makes no sense.
    pub fn registries(&self) -> Result<Vec<RegistryRecord>, BadRecord> {
        self.part(PartName::Registries).map_or(Ok(Vec::new()), decode_registries)
    }

    /// Ports that are open on the machine's uplinks as it is ordered.
    ///
    /// # Errors
    /// [`BadRecord`] names what makes no sense.
    pub fn open_ports(&self) -> Result<Vec<OpenPort>, BadRecord> {
        self.part(PartName::Published).map_or(Ok(Vec::new()), decode_published)
    }

    /// Floating addresses that the machine is to ask for.
    ///
    /// # Errors
    /// [`BadRecord`] names what makes no sense.
    pub fn floating(&self) -> Result<BTreeSet<Ipv4Addr>, BadRecord> {
        self.part(PartName::Floating).map_or(Ok(BTreeSet::new()), decode_floating)
    }

    fn part(&self, name: PartName) -> Option<&[u8]> {
        self.0.get(&name).and_then(|heard| heard.part.as_ref()).map(OrderPart::contents)
    }

    /// Bytes of what the policies say of the machine's pods; none where nothing was heard, which is not the same as no policies.
    #[must_use]
    pub fn policies(&self) -> Option<&[u8]> {
        self.0.get(&PartName::Policies)?.part.as_ref().map(OrderPart::contents)
    }
}

#[cfg(test)]
mod tests {
    use std::iter;

    use model::{PortProtocol, PublishId, UplinkPort};
    use proptest::prelude::*;
    use proptest::sample::Index;

    use super::*;
    use crate::fixture;
    use crate::key::Key;
    use crate::record::{ChangeCount, Cluster, PortUsers, PublishRecord, PublishTerms};
    use crate::state::{Change, KeyValue};

    /// A change that is written in one revision, with the version.
    #[derive(Debug, Clone, Copy)]
    enum Written {
        /// This registry gets so many mirrors.
        Set(u8, u8),
        /// Removal of this registry.
        Removed(u8),
        /// A rule opens this port of the machine.
        Published(u16),
        /// Removal of that rule.
        Unpublished(u16),
        /// The machine is a worker, or none.
        Worker(bool),
        /// A coordinator goes on from its own copy: what it had not seen is gone.
        Recovered,
    }

    fn written() -> impl Strategy<Value = Written> {
        prop_oneof![
            4 => (1_u8..4, 1_u8..4).prop_map(|(n, mirrors)| Written::Set(n, mirrors)),
            3 => (1_u8..4).prop_map(Written::Removed),
            2 => (1_u16..4).prop_map(Written::Published),
            2 => (1_u16..4).prop_map(Written::Unpublished),
            1 => any::<bool>().prop_map(Written::Worker),
            1 => Just(Written::Recovered),
        ]
    }

    /// States after each change, from that of a cluster with one worker.
    fn history(all: &[Written]) -> Vec<State> {
        let (mut state, mut cluster) = (State::default(), fixture::cluster());
        let mut states = Vec::new();
        for (count, written) in (1_u64..).zip([&Written::Worker(true)].into_iter().chain(all)) {
            // After a recovery revisions count anew.
            let revision = match written {
                Written::Recovered => 1,
                Written::Set(..)
                | Written::Removed(_)
                | Written::Published(_)
                | Written::Unpublished(_)
                | Written::Worker(_) => state.version().map_or(0, |(_, revision)| revision) + 1,
            };
            let put = |key: Key, value| Change::Put(KeyValue { key: key.bytes(), value, mod_revision: revision });
            let change = match *written {
                Written::Set(n, mirrors) => {
                    let registry = fixture::registry(n, mirrors);
                    put(Key::Registry(registry.host()), registry.encode())
                }
                Written::Removed(n) => {
                    let key = Key::Registry(fixture::registry(n, 1).host()).bytes();
                    Change::Delete { key, mod_revision: revision }
                }
                Written::Published(n) => put(Key::Publish(rule(n).id), rule(n).encode()),
                Written::Unpublished(n) => {
                    Change::Delete { key: Key::Publish(rule(n).id).bytes(), mod_revision: revision }
                }
                Written::Worker(works) => {
                    let mut machine = fixture::machine(1);
                    if !works {
                        (machine.pods, machine.kubernetes) = (None, [].into());
                    }
                    put(Key::Machine(machine.id()), machine.encode())
                }
                Written::Recovered => {
                    cluster = Cluster { recoveries: cluster.recoveries + 1, ..cluster };
                    put(Key::Cluster, cluster.encode())
                }
            };
            state.apply([change, put(Key::Version, ChangeCount(count).encode())]).expect("our own");
            states.push(state.clone());
        }
        states
    }

    /// Rule number `n`, which opens port `n` of the machine.
    fn rule(n: u16) -> PublishRecord {
        let ports = [UplinkPort::new(PortProtocol::Tcp, n).expect("a port")].into();
        let terms = PublishTerms::new(ports, PortUsers::Hosts([id()].into()), [].into()).expect("a rule");
        PublishRecord { id: PublishId(n.into()), terms }
    }

    /// Registries, and numbers of ports, as a machine has heard of them.
    type Ordered = (Vec<RegistryRecord>, Vec<u16>);

    fn heard(book: &OrderBook) -> Ordered {
        let ports = book.open_ports().expect("our own").iter().map(|open| open.port.number()).collect();
        (book.registries().expect("our own"), ports)
    }

    /// Registries and ports that the machine is to go by, without any of the above.
    fn wanted(state: &State) -> Ordered {
        let works = state.machine(&id()).is_some_and(|machine| machine.pods.is_some());
        let ports = state.published().keys().map(|id| u16::try_from(id.0).expect("it is small"));
        if works { (state.registries().values().cloned().collect(), ports.collect()) } else { Ordered::default() }
    }

    fn id() -> MachineId {
        fixture::machine(1).id()
    }

    /// A step of a machine that listens to one coordinator at a time.
    #[derive(Debug, Clone)]
    enum Step {
        /// The machine listens to this coordinator; what was under way of another one is lost.
        Listens(Index),
        /// A coordinator sees more of the records.
        Sees(Index, Index),
        /// The coordinator that is listened to tells what is new.
        Tells,
        /// An order that is under way arrives, in whatever order.
        Arrives(Index),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            1 => any::<Index>().prop_map(Step::Listens),
            3 => (any::<Index>(), any::<Index>()).prop_map(|(whom, what)| Step::Sees(whom, what)),
            4 => Just(Step::Tells),
            4 => any::<Index>().prop_map(Step::Arrives),
        ]
    }

    proptest! {
        /// Orders that are lost, late or told by a coordinator that lags end with what the newest records say.
        ///
        /// Proves: A7 W5
        #[test]
        fn a_machine_ends_with_the_orders_of_the_newest_records(
            all in prop::collection::vec(written(), 1..30),
            steps in prop::collection::vec(step(), 0..80),
        ) {
            let states = history(&all);
            let mut seen = [0_usize; 3];
            let mut book = OrderBook::default();
            let (mut attended, mut known, mut under_way) = (0, book.known(), Vec::new());
            let mut before = [None; 2];
            for step in steps {
                match step {
                    Step::Listens(whom) => {
                        (attended, known) = (whom.index(3), book.known());
                        under_way.clear();
                    }
                    Step::Sees(whom, what) => {
                        let whom = whom.index(3);
                        seen[whom] = seen[whom].max(what.index(states.len()));
                    }
                    Step::Tells => under_way.extend(states[seen[attended]].order(&id(), &mut known)),
                    Step::Arrives(which) => if !under_way.is_empty() {
                        let was = heard(&book);
                        let changes = book.take(under_way.swap_remove(which.index(under_way.len())));
                        prop_assert_eq!(was != heard(&book), changes);
                    }
                }
                let of_records = [PartName::Registries, PartName::Published];
                let versions = of_records.map(|name| book.known()[&name].version);
                prop_assert!(versions.iter().zip(before).all(|(now, before)| *now >= before));
                before = versions;
                let of = |version| states.iter().find(|state| state.order_version() == version).map(wanted);
                let [registries, ports] = versions.map(|version| version.and_then(|it| of(Some(it))));
                prop_assert!(registries.is_none_or(|(of, _)| of == heard(&book).0), "what is gone by was so once");
                prop_assert!(ports.is_none_or(|(_, of)| of == heard(&book).1), "what is gone by was so once");
            }
            // Orders are not lost on a connection, and come in their order there.
            for state in [&states[seen[attended]], &states[states.len() - 1]] {
                under_way.extend(iter::from_fn(|| state.order(&id(), &mut known)));
                under_way.drain(..).for_each(|order| _ = book.take(order));
            }
            prop_assert_eq!(heard(&book), wanted(&states[states.len() - 1]));
            prop_assert_eq!(states[states.len() - 1].order(&id(), &mut book.known()), None, "nothing is new then");
        }
    }

    /// Within one version of the records, since policies are none; never by a coordinator that lags.
    ///
    /// Proves: W2
    #[test]
    fn a_worker_hears_of_each_other_policy() {
        let states = history(&[Written::Set(1, 1), Written::Worker(false), Written::Worker(true)]);
        let (open, closed, mut book) = (b"open".to_vec(), b"closed".to_vec(), OrderBook::default());
        let tell = |state: &State, policies: &Vec<u8>, book: &mut OrderBook| {
            let mut known = book.known();
            let part = |node: &NodeName| {
                assert_eq!(*node, fixture::machine(1).name, "its own part");
                (PartHash::of(policies), &policies[..])
            };
            let order = state.policy_order(&id(), part, &mut known)?;
            let is_another = book.take(order);
            assert_eq!(known, book.known(), "a coordinator knows what the machine has");
            Some(is_another)
        };
        assert_eq!(book.policies(), None, "nothing was heard");
        for policies in [&open, &closed, &open] {
            assert_eq!(tell(&states[1], policies, &mut book), Some(true));
            assert_eq!(book.policies(), Some(&policies[..]));
            assert_eq!(tell(&states[1], policies, &mut book), None, "once");
        }
        assert_eq!(tell(&states[0], &closed, &mut book), None, "by older records");
        let late =
            Order { name: PartName::Policies, version: states[0].order_version().expect("told"), contents: None };
        assert!(!book.take(late) && book.policies().is_some());
        assert_eq!(
            (tell(&states[2], &open, &mut book), book.policies()),
            (Some(true), None),
            "it is no worker any more"
        );
        assert_eq!(tell(&states[2], &closed, &mut book), None);
        assert_eq!(tell(&states[3], &closed, &mut book), Some(true));
        assert_eq!(
            states[3].policy_order(&id(), |_| (PartHash::of(&open), &open), &mut KnownParts::new()),
            None,
            "an older machine"
        );
        assert_eq!(states[3].order(&id(), &mut known_but_registries(&book)), None, "the records say nothing of it");
    }

    fn known_but_registries(book: &OrderBook) -> KnownParts {
        book.known().into_iter().filter(|(name, _)| *name == PartName::Policies).collect()
    }

    /// Proves: W5
    #[test]
    fn a_part_is_told_to_workers_that_understand_it() {
        let states = history(&[Written::Set(1, 1), Written::Worker(false)]);
        let begins = OrderBook::default().known();
        let order = states[1].order(&id(), &mut begins.clone()).expect("it works");
        let told = decode_registries(&order.contents.expect("one registry"));
        assert_eq!(told, Ok(vec![fixture::registry(1, 1)]));
        assert_eq!(states[1].order(&id(), &mut KnownParts::new()), None, "an older machine understands none");
        assert_eq!(states[2].order(&id(), &mut begins.clone()), None, "nobody but workers");
        assert_eq!(states[1].order(&MachineId([9; 16]), &mut begins.clone()), None);
        assert_eq!(states[0].order(&id(), &mut { begins }), None, "nothing is said of any registry");
    }
}
