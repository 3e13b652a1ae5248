//! Peers: a cluster's machines, as coordinators tell of them to everybody: whole, or what has changed since a version that the
//! asker knows. Machines' records stay in etcd for good, each with the revision that wrote it; so whoever has read them all
//! tells the difference to any version, and no coordinator has to have seen the change.
//!
//! ```text
//!   State ─ news(known) ─► News ─► Known: the peers of one machine, and their version
//! ```
//! A machine keeps what it knows, so that it reaches others at its next boot:
//!
//! ```text
//! message Known { uint32 version = 1; uint64 peers_recoveries = 2; uint64 peers_revision = 3; repeated Peer peers = 4; }
//! ```

use std::collections::BTreeMap;

use keys::endpoint::MOST_ENDPOINTS;
use model::MachineId;
use prost::Message as _;

use crate::peer::{PEER, Peer, PeerWire};
use crate::record::{self, BadRecord};
use crate::redeem::MOST_PEERS;
use crate::state::{State, StateVersion};

/// Most bytes that are kept of peers; more are not read.
pub const MOST_KNOWN_BYTES: usize = 4 << 20;

const VERSION: u32 = 1;

/// A coordinator's answer to a machine that asks for peers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum News {
    /// The asker knows all that there is.
    Nothing,
    /// The asker knows more: this coordinator has not seen it yet, and another one is to be asked.
    Behind,
    /// All machines.
    Whole {
        /// As of when.
        version: StateVersion,
        /// The peers, by id.
        peers: BTreeMap<MachineId, Peer>,
    },
    /// The machines that were written since; none where one belongs no longer.
    Changed {
        /// Version that the asker knows.
        since: StateVersion,
        /// Version that the asker knows with this.
        version: StateVersion,
        /// The changed peers, by id.
        peers: BTreeMap<MachineId, Option<Peer>>,
    },
}

impl News {
    /// Version that whoever takes the news knows then; none where it says nothing of that.
    #[must_use]
    pub const fn version(&self) -> Option<StateVersion> {
        match self {
            Self::Nothing | Self::Behind => None,
            Self::Whole { version, .. } | Self::Changed { version, .. } => Some(*version),
        }
    }
}

impl State {
    /// All machines that belong, as others need them.
    #[must_use]
    pub fn peers(&self) -> BTreeMap<MachineId, Peer> {
        let belonging = self.machines().filter(|(_, machine)| machine.belongs());
        belonging.map(|(id, machine)| (*id, Peer::of(machine))).collect()
    }

    /// News for a machine that knows the peers of a version, or none.
    #[must_use]
    pub fn news(&self, known: Option<StateVersion>) -> News {
        let version = self.state_version();
        match known {
            Some(known) if known == version => News::Nothing,
            Some(known) if known > version => News::Behind,
            // After a recovery revisions count anew.
            Some(known) if known.recoveries == version.recoveries => {
                let written = self.machines_since(known.revision);
                let peers = written.map(|(id, machine)| (*id, machine.belongs().then(|| Peer::of(machine)))).collect();
                News::Changed { since: known, version, peers }
            }
            Some(_) | None => News::Whole { version, peers: self.peers() },
        }
    }
}

/// Peers in the form in which they are kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredPeers {
    /// [`MOST_KNOWN_BYTES`] at most.
    pub bytes: Vec<u8>,
    /// So many endpoints of a peer are among them at most; fewer than [`MOST_ENDPOINTS`] where not all had room.
    pub endpoints: usize,
}

/// So many peers make more bytes than are read, without any endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{0} peers are more than can be kept")]
pub struct TooManyPeers(pub usize);

/// All that one machine knows of the others.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PeerBook {
    version: Option<StateVersion>,
    peers: BTreeMap<MachineId, Peer>,
}

impl PeerBook {
    /// Begins with the peers of the answer that let the machine in, as of `version`. Where these are as many as an answer
    /// names, there may be more; then all that was ever written is news.
    #[must_use]
    pub fn of_answer(version: StateVersion, peers: Vec<Peer>) -> Self {
        let revision = if peers.len() < MOST_PEERS { version.revision } else { 0 };
        let version = StateVersion { revision, ..version };
        Self { version: Some(version), peers: peers.into_iter().map(|peer| (peer.machine, peer)).collect() }
    }

    /// Encodes what is known, to be kept; none before anything was heard. Where the bytes would be more than are read, fewer
    /// endpoints of each peer are kept: nobody is forgotten, and whoever reads them is told all anew.
    ///
    /// # Errors
    /// [`TooManyPeers`] where they are too many even so.
    pub fn encode(&self) -> Result<Option<StoredPeers>, TooManyPeers> {
        let Some(version) = self.version else { return Ok(None) };
        for endpoints in (0..=MOST_ENDPOINTS).rev() {
            // All that was ever written is news then.
            let revision = if endpoints < MOST_ENDPOINTS { 0 } else { version.revision };
            let peer = |peer: &Peer| {
                let mut wire = peer.to_wire();
                wire.endpoints.truncate(endpoints);
                wire
            };
            let wire = KnownWire {
                version: VERSION,
                peers_recoveries: version.recoveries,
                peers_revision: revision,
                peers: self.peers.values().map(peer).collect(),
            };
            if wire.encoded_len() <= MOST_KNOWN_BYTES {
                return Ok(Some(StoredPeers { bytes: wire.encode_to_vec(), endpoints }));
            }
        }
        Err(TooManyPeers(self.peers.len()))
    }

    /// The inverse of [`Self::encode`].
    ///
    /// # Errors
    /// [`BadRecord`] names what makes no sense.
    pub fn decode(bytes: &[u8]) -> Result<Self, BadRecord> {
        let wire: KnownWire = record::decode_within(MOST_KNOWN_BYTES, bytes, &KNOWN)?;
        let read = |peer| Peer::read(peer).map(|peer| (peer.machine, peer));
        let peers: BTreeMap<_, _> = wire.peers.iter().map(read).collect::<Result<_, _>>()?;
        if peers.len() < wire.peers.len() {
            return Err(BadRecord::Contradiction("each peer is another machine"));
        }
        let version = StateVersion { recoveries: wire.peers_recoveries, revision: wire.peers_revision };
        Ok(Self { version: Some(version), peers })
    }

    /// As of when; none before anything was heard.
    #[must_use]
    pub const fn version(&self) -> Option<StateVersion> {
        self.version
    }

    /// The peers that are known, by id.
    #[must_use]
    pub const fn peers(&self) -> &BTreeMap<MachineId, Peer> {
        &self.peers
    }

    /// Takes an answer, and returns what is another than before. Answers of several coordinators may come in any order: one
    /// that is older than what is known, or not about it, changes nothing.
    pub fn take(&mut self, news: News) -> BTreeMap<MachineId, Option<Peer>> {
        let (version, peers) = match news {
            News::Nothing | News::Behind => return BTreeMap::new(),
            News::Whole { version, peers } => {
                let gone = self.peers.keys().filter(|id| !peers.contains_key(id)).map(|id| (*id, None));
                let gone: Vec<_> = gone.collect();
                (version, peers.into_iter().map(|(id, peer)| (id, Some(peer))).chain(gone).collect())
            }
            News::Changed { since, version, peers } => {
                if self.version.is_none_or(|own| own < since) {
                    return BTreeMap::new(); // what lies between is not known
                }
                (version, peers)
            }
        };
        if self.version.is_some_and(|own| own >= version) {
            return BTreeMap::new();
        }
        self.version = Some(version);
        self.change(peers)
    }

    fn change(&mut self, mut peers: BTreeMap<MachineId, Option<Peer>>) -> BTreeMap<MachineId, Option<Peer>> {
        peers.retain(|id, peer| self.peers.get(id) != peer.as_ref());
        for (id, peer) in &peers {
            match peer {
                Some(peer) => drop(self.peers.insert(*id, peer.clone())),
                None => drop(self.peers.remove(id)),
            }
        }
        peers
    }
}

formats::strict_message! {
    struct KnownWire, KNOWN = "Known" {
        1 required u32 version;
        2 required u64 peers_recoveries;
        3 required u64 peers_revision;
        4 repeated message(PeerWire, PEER) peers;
    }
}

#[cfg(test)]
mod tests {
    use keys::endpoint::Endpoint;
    use proptest::prelude::*;

    use super::*;
    use crate::fixture;
    use crate::key::Key;
    use crate::record::{Cluster, MachineRecord, Standing};
    use crate::state::{Change, KeyValue};

    /// A change that is written in one revision.
    #[derive(Debug, Clone, Copy)]
    enum Written {
        /// This machine moves to another place.
        Moves(u8),
        /// This machine leaves.
        Leaves(u8),
        /// The cluster's record.
        Cluster,
    }

    fn written() -> impl Strategy<Value = Written> {
        prop_oneof![
            4 => (1_u8..6).prop_map(Written::Moves),
            1 => (1_u8..6).prop_map(Written::Leaves),
            1 => Just(Written::Cluster),
        ]
    }

    fn machine(n: u8, revision: u64) -> MachineRecord {
        let mut machine = fixture::machine(n);
        let host = revision % 250 + 1;
        let moved = format!("192.0.2.{host}:7838");
        machine.endpoints.observed = vec![Endpoint::read(&moved).expect("an endpoint")];
        machine
    }

    /// The states after each revision.
    fn history(all: &[Written]) -> Vec<State> {
        let mut state = State::default();
        let mut states = vec![];
        for (revision, written) in (1_u64..).zip(all) {
            let put = |key: Key, value| Change::Put(KeyValue { key: key.bytes(), value, mod_revision: revision });
            let change = match *written {
                Written::Cluster => put(Key::Cluster, fixture::cluster().encode()),
                Written::Moves(n) => {
                    let machine = machine(n, revision);
                    put(Key::Machine(machine.id()), machine.encode())
                }
                Written::Leaves(n) => {
                    let mut machine = machine(n, revision);
                    machine.standing = Standing::Removed;
                    machine.times.removed = Some(fixture::NOW);
                    put(Key::Machine(machine.id()), machine.encode())
                }
            };
            state.apply([change]).expect("our own");
            states.push(state.clone());
        }
        states
    }

    proptest! {
        /// Answers converge, whoever is asked and in whatever order they come: two answers of who has seen all are enough.
        ///
        /// Proves: M2 M3
        #[test]
        fn any_interleaving_of_answers_converges(
            all in prop::collection::vec(written(), 1..40),
            asks in prop::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>()), 0..30),
        ) {
            let states = history(&all);
            let mut known = PeerBook::default();
            let mut shown = BTreeMap::new();
            let mut under_way = Vec::new();
            for (whom, when) in asks {
                under_way.push(states[whom.index(states.len())].news(known.version()));
                let news = under_way.swap_remove(when.index(under_way.len()));
                let before = known.version();
                for (id, peer) in known.take(news) {
                    // What is told to be another is another.
                    let old = match peer {
                        Some(peer) => shown.insert(id, peer),
                        None => shown.remove(&id),
                    };
                    prop_assert!(old.as_ref() != shown.get(&id));
                }
                prop_assert!(known.version() >= before);
                prop_assert_eq!(&shown, known.peers());
                if let Some(version) = known.version() {
                    let at = usize::try_from(version.revision).expect("few").max(1) - 1;
                    prop_assert_eq!(known.peers(), &states[at].peers());
                }
            }
            let newest = states.last().expect("one or more");
            known.take(newest.news(known.version()));
            prop_assert_eq!(known.peers(), &newest.peers());
            prop_assert_eq!(newest.news(known.version()), News::Nothing);
        }
    }

    /// Proves: M2
    #[test]
    fn an_asker_ahead_is_told_so_and_a_change_tells_of_no_other() {
        let states = history(&[Written::Moves(1), Written::Moves(2), Written::Moves(3), Written::Leaves(1)]);
        let version = |at: usize| Some(states[at].state_version());
        assert_eq!(states[1].news(version(2)), News::Behind);
        let News::Changed { since, version: now, peers } = states[3].news(version(1)) else { panic!("a difference") };
        assert_eq!((Some(since), Some(now)), (version(1), version(3)));
        let ids: Vec<_> = [1, 3].map(|n| fixture::machine(n).id()).into();
        assert!(peers.len() == 2 && ids.iter().all(|id| peers.contains_key(id)), "{peers:?}");
        assert_eq!(peers[&ids[0]], None);
        assert!(matches!(states[3].news(None), News::Whole { peers, .. } if peers.len() == 2));
        let tells = [None, version(1), version(3), Some(StateVersion { recoveries: 9, revision: 1 })];
        let told = tells.map(|known| states[3].news(known).version());
        assert_eq!(told, [version(3), version(3), None, None], "what whoever takes it knows then");
        assert_eq!(states[3].machines_since(0).count(), 3, "each once");

        // Not about what this machine knows: between the two something may lie.
        let mut known = PeerBook::default();
        let gap = states[3].news(version(1));
        assert!(known.take(gap.clone()).is_empty() && known.version().is_none());
        known.take(states[0].news(None));
        assert!(known.take(gap.clone()).is_empty() && known.version() == version(0));
        known.take(states[1].news(known.version()));
        assert_eq!((known.take(gap).len(), known.peers()), (2, &states[3].peers()));
    }

    /// Proves: M2
    #[test]
    fn after_a_recovery_all_is_told_and_older_changes_are_ignored() {
        let before = history(&[Written::Moves(1), Written::Moves(2), Written::Moves(3)]);
        let mut known = PeerBook::default();
        known.take(before[2].news(None));
        let recovered = Cluster { recoveries: 1, ..fixture::cluster() };
        let mut state = State::default();
        let put = |key: Key, value| Change::Put(KeyValue { key: key.bytes(), value, mod_revision: 2 });
        let one = machine(1, 1);
        state
            .apply([put(Key::Cluster, recovered.encode()), put(Key::Machine(one.id()), one.encode())])
            .expect("our own");
        assert!(matches!(state.news(known.version()), News::Whole { .. }), "though its revision is lower");
        let late = before[2].news(known.version().map(|known| StateVersion { revision: 1, ..known }));
        known.take(state.news(known.version()));
        assert_eq!(known.peers(), &state.peers());
        assert!(known.take(late).is_empty() && known.take(before[2].news(None)).is_empty());
        assert_eq!(before[2].news(known.version()), News::Behind);
    }

    /// Proves: M2
    #[test]
    fn what_is_kept_is_known_again_and_nothing_else_is_read() {
        let mut known = PeerBook::default();
        assert_eq!(known.encode(), Ok(None), "nothing was heard");
        known.take(history(&[Written::Moves(1), Written::Moves(2)])[1].news(None));
        let StoredPeers { bytes, endpoints } = known.encode().expect("few").expect("it was heard");
        assert_eq!(endpoints, MOST_ENDPOINTS);
        assert_eq!(PeerBook::decode(&bytes), Ok(known.clone()));

        let wire = || KnownWire::decode(bytes.as_slice()).expect("our own");
        let refused = |bytes: &[u8]| PeerBook::decode(bytes).map(|_| ()).expect_err("refused");
        let twice = KnownWire { peers: vec![wire().peers[0].clone(), wire().peers[0].clone()], ..wire() };
        assert_eq!(refused(&twice.encode_to_vec()), BadRecord::Contradiction("each peer is another machine"));
        assert_eq!(refused(&KnownWire { version: 2, ..wire() }.encode_to_vec()), BadRecord::Newer(2));
        assert!(matches!(refused(&bytes[..bytes.len() - 1]), BadRecord::Malformed(_)));
        assert!(matches!(refused(&[&bytes[..], &[0x28, 0]].concat()), BadRecord::Malformed(_)));
        assert!(matches!(refused(&vec![0; MOST_KNOWN_BYTES + 1]), BadRecord::TooLarge { .. }));
    }

    /// Proves: M2 A6
    #[test]
    fn what_is_kept_is_never_more_than_is_read() {
        let version = StateVersion { recoveries: 1, revision: 9 };
        // The longest there are: each machine names eight places.
        let place = |n: u16| format!("[2001:db8:1111:2222:3333:4444:5555:{n:x}]:65535");
        let longest = |n: u16| Endpoint::read(&place(0x1000 + n)).expect("an endpoint");
        let endpoints: Vec<_> = (0..8).map(longest).collect();
        let known = |count: u32, endpoints: &[Endpoint]| {
            let peer = |n: u32| {
                let mut id = [0xff; 16];
                id[..4].copy_from_slice(&n.to_be_bytes());
                let endpoints = endpoints.to_vec();
                (MachineId(id), Peer { machine: MachineId(id), endpoints, ..Peer::of(&fixture::machine(1)) })
            };
            PeerBook { version: Some(version), peers: (0..count).map(peer).collect() }
        };
        let all = known(2000, &endpoints);
        let kept = all.encode().expect("they have room").expect("heard");
        assert_eq!((kept.endpoints, PeerBook::decode(&kept.bytes)), (8, Ok(all)));
        for (count, most) in [(10_000, 1..8), (40_000, 0..1)] {
            let kept = known(count, &endpoints).encode().expect("without all endpoints").expect("heard");
            assert!(most.contains(&kept.endpoints), "{} of each of {count}", kept.endpoints);
            let read = PeerBook::decode(&kept.bytes).expect("it is read");
            assert_eq!(
                read,
                PeerBook {
                    version: Some(StateVersion { revision: 0, ..version }),
                    ..known(count, &endpoints[..kept.endpoints])
                }
            );
        }
        assert_eq!(known(70_000, &[]).encode(), Err(TooManyPeers(70_000)));
    }

    /// Proves: M2
    #[test]
    fn whoever_is_let_in_hears_of_those_that_its_answer_left_out() {
        let version = StateVersion { recoveries: 1, revision: 9 };
        let peers = |count: u8| (1..=count).map(|n| Peer::of(&fixture::machine(n))).collect::<Vec<_>>();
        let all = PeerBook::of_answer(version, peers(63));
        assert_eq!((all.version(), all.peers().len()), (Some(version), 63));
        let some = PeerBook::of_answer(version, peers(64));
        assert_eq!((some.version(), some.peers().len()), (Some(StateVersion { revision: 0, ..version }), 64));
    }
}
