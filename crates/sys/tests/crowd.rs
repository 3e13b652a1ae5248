//! Costs of a cluster of ten thousand machines for each of them: the memory for what it keeps of the others, the bytes
//! that it is sent when one of them changes, and what it does then. Real records and messages, decided, told and taken
//! by the code that machines run; nothing is modelled. The test lives here because an allocator is unsafe code, and
//! memory is counted by one. A walk over all peers that makes nothing is not seen.

#![expect(unsafe_code, reason = "an allocator cannot be written without")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::time::Instant;

use api::wire;
use cluster::Word;
use cluster::key::Key;
use cluster::members::MOST_COORDINATORS;
use cluster::peer::Peer;
use cluster::peers::PeerBook;
use cluster::record::{ChangeCount, Endpoints, MachineRecord};
use cluster::request::{FirstRecords, Request};
use cluster::state::{Change, KeyValue, StateVersion};
use cluster::{View, decide};
use keys::endpoint::{Endpoint, MOST_ENDPOINTS};
use mesh::kernel::{self, FoundPeer, KernelState, Route};
use mesh::{Effect, Event, Mesh};
use model::{ClusterRole, NodeName, Prefixes, VPN_PREFIX, pod_prefix};
use prost::Message as _;
use sim::cast;

const MANY: u16 = 10_000;
const FEW: u16 = 10;
/// Most bytes that a peer may cost, and a change.
const KIB: usize = 1024;
/// How many more blocks a change may make among many than among few: a node of each sorted map on its way up.
const MORE_BLOCKS: usize = 8;
/// There are pods for so many workers.
const WORKERS: u16 = 256;

/// Where a machine with two uplinks says that it is.
const PLACES: u16 = 2;

struct Counting;

#[global_allocator]
static COUNTING: Counting = Counting;

thread_local! {
    /// Bytes that this thread has, and blocks that it was ever given.
    static BYTES: Cell<usize> = const { Cell::new(0) };
    static BLOCKS: Cell<usize> = const { Cell::new(0) };
}

/// Bytes that a block costs: its size behind the word that glibc keeps before it, in steps of 16 bytes (`request2size`,
/// malloc/malloc.c).
const fn cost(layout: Layout) -> usize {
    let whole = (layout.size() + 8).next_multiple_of(16);
    if whole < 32 { 32 } else { whole }
}

// SAFETY: every call goes on to the system's allocator with the arguments it came with.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // A thread that is ending has nowhere to count, and what one gives to another counts for neither.
        let _ending = BYTES.try_with(|bytes| bytes.set(bytes.get().wrapping_add(cost(layout))));
        let _ending = BLOCKS.try_with(|blocks| blocks.set(blocks.get() + 1));
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        let _ending = BYTES.try_with(|bytes| bytes.set(bytes.get().wrapping_sub(cost(layout))));
        // SAFETY: the caller keeps the contract of `dealloc`, and the block came from the system's allocator.
        unsafe { System.dealloc(block, layout) }
    }
}

/// Result of `make`, and the bytes that it keeps.
fn weighed<T>(make: impl FnOnce() -> T) -> (T, usize) {
    let before = BYTES.get();
    let made = make();
    (made, BYTES.get().wrapping_sub(before))
}

/// Result of `make`, and the number of blocks that making it took.
fn counted<T>(make: impl FnOnce() -> T) -> (T, usize) {
    let before = BLOCKS.get();
    let made = make();
    (made, BLOCKS.get() - before)
}

/// Places where a machine may be reached, in a network for measuring (RFC 2544).
fn places(n: u16, first: u16, count: u16) -> Vec<Endpoint> {
    let [high, low] = n.to_be_bytes();
    let place = |port: u16| Endpoint::read(&format!("198.18.{high}.{low}:{port}")).expect("an endpoint");
    (first..first + count).map(place).collect()
}

/// View of a coordinator on a cluster of so many machines: five coordinators, and as many workers as there are pods
/// for.
struct Cluster {
    seen: View,
}

impl Cluster {
    fn of(machines: u16) -> Self {
        let FirstRecords { cluster, machine: first } = cast::creation(VPN_PREFIX);
        let machine = |n: u16| MachineRecord {
            key: cast::machine_key(n),
            name: NodeName::derived(cast::id(n)),
            role: if usize::from(n) <= MOST_COORDINATORS { ClusterRole::Coordinator } else { ClusterRole::Node },
            kubernetes: if n < WORKERS { cast::worker() } else { [].into() },
            vpn_ip: VPN_PREFIX.nth(n.into()).expect("an address"),
            pods: (n < WORKERS).then(|| pod_prefix(u8::try_from(n).expect("a byte"))),
            vpn_key: cast::vpn_key(n),
            disk: cast::disk(n),
            endpoints: Endpoints { observed: vec![], reported: places(n, 7838, PLACES) },
            ..first.clone()
        };
        let records = (1..=machines).map(machine).map(|machine| (Key::Machine(machine.id()), machine.encode()));
        let written = records.chain([(Key::Version, ChangeCount(1).encode()), (Key::Cluster, cluster.encode())]);
        let pairs = written.map(|(key, value)| KeyValue { key: key.bytes(), value, mod_revision: 1 });
        Self { seen: View::read(pairs, 1).expect("our own") }
    }

    /// A machine announces other places, and the coordinator sees what that wrote.
    fn moves(&mut self, n: u16, endpoints: Vec<Endpoint>) {
        let machine = cast::machine_key(n);
        let request = Request::Announce { machine, release: cast::RELEASE, endpoints, generation: 1 };
        let txn = decide(self.seen.state(), &request, cast::BEGIN).expect("a member may");
        assert!(txn.writes() && txn.deletes.is_empty());
        let mod_revision = self.seen.revision() + 1;
        let put = |(key, value): (Key, Vec<u8>)| Change::Put(KeyValue { key: key.bytes(), value, mod_revision });
        self.seen.take(txn.puts.into_iter().map(put), mod_revision).expect("our own");
    }

    /// Message to a node that knows the peers of this version.
    fn tells(&self, known: Option<StateVersion>) -> Vec<u8> {
        let news = self.seen.state().news(known);
        wire::PeersResponse::from(Word::News(news)).encode_to_vec()
    }

    /// Message that a node is sent besides when a coordinator is elsewhere: the directory, signed.
    fn directory(&self) -> Vec<u8> {
        let largest_signature = vec![0; 72]; // ECDSA over P-256 in DER
        let signed = self.seen.state().directory().expect("there is a cluster").unsigned().signed(largest_signature);
        wire::PeersResponse::from(Word::Directory(signed)).encode_to_vec()
    }
}

/// State that machine 1 keeps of the others, as its PID 1 does.
struct Node {
    known: PeerBook,
    mesh: Mesh,
    now: Instant,
}

impl Node {
    fn new() -> Self {
        let now = testkit::origin();
        let mesh = Mesh::start(cast::vpn_key(1), Prefixes::of(VPN_PREFIX), KernelState::default(), now);
        Self { known: PeerBook::default(), mesh, now }
    }

    /// Takes what a coordinator sent.
    fn hears(&mut self, answer: &[u8]) -> Vec<Effect> {
        let answer = api::decode_word(answer).expect("a machine takes what its coordinator sends");
        let Word::News(news) = answer else { panic!("news") };
        let fresh = self.known.take(news).into_iter().map(|(id, peer)| (id, peer.as_ref().map(in_the_mesh)));
        let (fresh, mut effects) = (fresh.collect(), Vec::new());
        self.mesh.handle(Event::Changed(fresh), self.now, &mut effects);
        effects
    }

    /// Has a node hear of all peers for the first time and configure the kernel, and looks whether the kernel has them.
    fn begin(answer: &[u8]) -> Self {
        let mut node = Self::new();
        let mut found = KernelState::default();
        for effect in node.hears(answer) {
            match effect {
                Effect::Configure(changes) => found.peers.extend(changes.into_iter().map(|change| match change {
                    kernel::PeerChange::Set { key, endpoint, allowed } => {
                        (key, FoundPeer { endpoint, allowed, counters: kernel::Counters::default() })
                    }
                    kernel::PeerChange::Remove(_) | kernel::PeerChange::Move { .. } => panic!("{change:?} of nobody"),
                })),
                Effect::Route(Route::Set(to, limit)) => drop(found.routes.insert(to, limit)),
                Effect::Look => {}
                Effect::Route(_) | Effect::Echo(_) | Effect::Report(_) | Effect::Learnt(..) | Effect::Heard(_) => {
                    panic!("{effect:?} of nobody")
                }
            }
        }
        let mut effects = Vec::new();
        node.mesh.handle(Event::Looked(found), node.now, &mut effects);
        assert_eq!(effects, [], "the kernel has all");
        node
    }
}

/// Peer as the mesh takes it, converted as `init/src/network/mesh/peers.rs` does.
fn in_the_mesh(peer: &Peer) -> mesh::peer::MeshPeer {
    mesh::peer::MeshPeer {
        key: peer.vpn_key,
        vpn_ip: peer.vpn_ip,
        pods: peer.pods,
        endpoints: peer.endpoints.iter().filter_map(|endpoint| endpoint.as_str().parse().ok()).collect(),
    }
}

/// Costs of a machine in a cluster of some size, in bytes.
struct Cost {
    /// Bytes that the node keeps: among them those known of the others, and the same as a file.
    kept: usize,
    known: usize,
    file: usize,
    /// Bytes of the message that tells of all others.
    whole: usize,
    /// The most that it is sent when one of them changes.
    sent: usize,
    /// The most blocks that it makes of that.
    blocks: usize,
}

impl Cost {
    fn among(machines: u16) -> Self {
        let mut cluster = Cluster::of(machines);
        let whole = cluster.tells(None);
        let (mut node, kept) = weighed(|| Node::begin(&whole));
        let (known, of_known) = weighed(|| node.known.clone());
        assert_eq!((known.peers().len(), node.mesh.peers()), (machines.into(), usize::from(machines) - 1));
        let file = known.encode().expect("they have room").expect("all were heard").bytes;
        assert_eq!(PeerBook::decode(&file), Ok(known), "it is kept for the next boot");
        let (mut sent, mut blocks) = (0, 0);
        // Coordinators, those that are spread over a large cluster, and one with all the places that it may name.
        let usual = (2..=FEW).chain((1..=FEW).map(|part| machines / FEW * part)).map(|n| (n, PLACES));
        let moves = usual.chain([(7, u16::try_from(MOST_ENDPOINTS).expect("few"))]);
        for (port, (n, count)) in (9000..).zip(moves) {
            let coordinators = |cluster: &Cluster| cluster.seen.state().directory().map(|it| it.coordinators);
            let before = coordinators(&cluster);
            cluster.moves(n, places(n, port, count));
            let directory = if coordinators(&cluster) == before { Vec::new() } else { cluster.directory() };
            let news = cluster.tells(node.known.version());
            sent = sent.max(news.len() + directory.len());
            let (effects, made) = counted(|| node.hears(&news));
            blocks = blocks.max(made);
            // One change in one message to the kernel, and none for itself.
            let changes: Vec<_> = effects
                .iter()
                .map(|effect| match effect {
                    Effect::Configure(changes) => changes.len(),
                    Effect::Route(_)
                    | Effect::Look
                    | Effect::Echo(_)
                    | Effect::Report(_)
                    | Effect::Learnt(..)
                    | Effect::Heard(_) => {
                        panic!("{effect:?} for machine {n}")
                    }
                })
                .collect();
            assert_eq!(changes, vec![1; usize::from(n != 1)], "machine {n} of {machines}");
            assert_eq!(*node.known.peers(), cluster.seen.state().peers());
        }
        Self { kept, known: of_known, file: file.len(), whole: whole.len(), sent, blocks }
    }
}

#[test]
#[expect(clippy::print_stdout, reason = "the figures are what it is for")]
fn ten_thousand_machines_cost_each_a_kibibyte_apiece() {
    let [few, many] = [FEW, MANY].map(Cost::among);
    let each = |bytes: usize| bytes.div_ceil(MANY.into());
    println!(
        "state per peer at {MANY} peers: {} B ({} B known, the rest the mesh); {} B on disk, {} B to hear of it first",
        each(many.kept),
        each(many.known),
        each(many.file),
        each(many.whole),
    );
    println!("traffic per machine and change at {MANY} peers: {} B ({} B at {FEW})", many.sent, few.sent);
    println!("work of a node per change at {MANY} peers: {} blocks of memory ({} at {FEW})", many.blocks, few.blocks);
    assert!(each(many.kept) <= KIB, "{} B per peer", each(many.kept));
    assert!(many.sent <= KIB, "{} B per machine and change", many.sent);
    assert!(many.blocks <= few.blocks + MORE_BLOCKS, "{} blocks over {}", many.blocks, few.blocks);
}
