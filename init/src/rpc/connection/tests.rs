//! Connections without a network and in virtual time: each ends when it should, and gives its place back.

use model::{Prefixes, VPN_PREFIX};
use pki::PrivateKey;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::time::Instant as Then;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::super::world::{Machine, client, roster, user_client};
use super::*;
use crate::rpc::Roster;

/// HTTP/2's preface and empty settings (RFC 9113, sections 3.4 and 6.5).
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
/// A ping (section 6.7).
const PING: &[u8] = b"\0\0\x08\x06\0\0\0\0\0\0\0\0\0\0\0\0\0";

/// The head of a request on this stream, whose body is still to come (RFC 9113, section 6.2; RFC 7541, sections 6.1, 6.2.2).
fn head(stream: u8, path: &str) -> Vec<u8> {
    let length = u8::try_from(path.len()).expect("short");
    // POST, https, the path by its name's index; then `content-type` by its own.
    let fields = [&[0x83, 0x87, 0x04, length], path.as_bytes(), &[0x0f, 0x10, 16], b"application/grpc"].concat();
    let length = u8::try_from(fields.len()).expect("short");
    [&[0, 0, length, 1, 4, 0, 0, 0, stream][..], &fields].concat()
}

/// The port of a running machine.
struct World {
    machine: Machine,
    port: Arc<Port>,
    connections: JoinSet<()>,
}

impl World {
    fn new() -> Self {
        let machine = Machine::running();
        let port = Port::new(machine.guarded.clone(), machine.front.subscribe());
        Self { machine, port, connections: JoinSet::new() }
    }

    /// Connects from the address 192.0.2.`from`.
    fn connect(&mut self, from: u8) -> DuplexStream {
        let (ours, theirs) = duplex(64 << 10);
        self.port.enter(&mut self.connections, ours, SocketAddr::from(([192, 0, 2, from], 9)));
        theirs
    }

    /// Somebody finishes the handshake.
    async fn shake_hands(&mut self, from: u8, key: Option<&PrivateKey>) -> std::io::Result<TlsStream<DuplexStream>> {
        self.shake_hands_as(from, client(key)).await
    }

    async fn shake_hands_as(&mut self, from: u8, tls: Arc<ClientConfig>) -> std::io::Result<TlsStream<DuplexStream>> {
        let name = ServerName::try_from("machine.cairn.internal").expect("a name");
        TlsConnector::from(tls).connect(name, self.connect(from)).await
    }

    fn owner(&self) -> PrivateKey {
        let pkcs8 = self.machine.owner.to_pkcs8().expect("encodes");
        PrivateKey::from_pkcs8(pkcs8.expose()).expect("its own")
    }

    fn held(&self) -> usize {
        lock::even_if_poisoned(&self.port.door).inside.len()
    }
}

/// A machine is one source, by its own address in the VPN, and no further ones by those of its pods. Proves: Q1
#[tokio::test(start_paused = true)]
async fn whoever_calls_from_a_pods_address_is_not_let_in() {
    let mut world = World::new();
    for (source, held) in [([10, 244, 3, 7], 0), ([10, 118, 0, 7], 1), ([10, 244, 255, 255], 1), ([192, 0, 2, 1], 2)] {
        let (ours, mut theirs) = duplex(64 << 10);
        world.port.enter(&mut world.connections, ours, SocketAddr::from((source, 9)));
        assert_eq!(world.held(), held, "{source:?}");
        if source[..2] == [10, 244] {
            about(0, borne(&mut theirs).await);
        }
    }
    let mut elsewhere = World::new();
    let pods = "10.32.0.0/16".parse().expect("a prefix");
    elsewhere.machine.facts.update(|now| now.prefixes = Some(Prefixes { pods, ..Prefixes::of(VPN_PREFIX) }));
    for (source, held) in [([10, 32, 3, 7], 0), ([10, 244, 3, 7], 1)] {
        elsewhere.port.enter(&mut elsewhere.connections, duplex(64 << 10).0, SocketAddr::from((source, 9)));
        assert_eq!(elsewhere.held(), held, "{source:?}");
    }
}

/// The machine answers a ping.
async fn answers(session: &mut TlsStream<DuplexStream>) {
    session.write_all(PING).await.expect("sent");
    let mut heard = Vec::new();
    while !heard.windows(9).any(|frame| frame == b"\0\0\x08\x06\x01\0\0\0\0") {
        assert_ne!(session.read_buf(&mut heard).await.expect("a frame"), 0, "the machine has hung up");
    }
}

/// Until the machine hangs up; after how long.
async fn borne(stream: &mut (impl AsyncRead + Unpin)) -> Duration {
    let began = Then::now();
    // Closed with or without a word of TLS; an hour is never.
    let _closed = timeout(Duration::from_secs(3600), stream.read_to_end(&mut Vec::new())).await;
    began.elapsed()
}

fn about(seconds: u64, borne: Duration) {
    let expected = Duration::from_secs(seconds);
    assert!((expected..expected + Duration::from_millis(100)).contains(&borne), "{borne:?}, not {seconds} s");
}

/// Proves: Q1
#[tokio::test(start_paused = true)]
async fn a_silent_caller_is_gone_in_5_s_before_tls_and_behind_it() {
    let mut world = World::new();
    let owner = world.owner();
    about(5, borne(&mut world.connect(1)).await);
    for key in [None, Some(&owner)] {
        let mut session = world.shake_hands(1, key).await.expect("a session");
        about(5, borne(&mut session).await);
    }
    assert_eq!(world.held(), 0);
}

/// Proves: Q1
#[tokio::test(start_paused = true)]
async fn a_stranger_who_asks_nothing_is_gone_and_an_owner_stays() {
    let mut world = World::new();
    let owner = world.owner();
    let mut stranger = world.shake_hands(1, None).await.expect("a session");
    stranger.write_all(PREFACE).await.expect("sent");
    about(5, borne(&mut stranger).await);
    // An owner who answers nothing has vanished: two pings' time.
    let mut vanished = world.shake_hands(2, Some(&owner)).await.expect("a session");
    vanished.write_all(PREFACE).await.expect("sent");
    about(40, borne(&mut vanished).await);
    assert_eq!(world.held(), 0);
}

/// Proves: Q1
#[tokio::test(start_paused = true)]
async fn a_stranger_who_sends_without_end_is_cut_off_at_once() {
    let mut world = World::new();
    let session = world.shake_hands(1, None).await.expect("a session");
    let (mut answers, mut session) = tokio::io::split(session);
    let pings = async {
        session.write_all(PREFACE).await?;
        for _ in 0..20_000 {
            session.write_all(PING).await?;
        }
        std::io::Result::Ok(())
    };
    let (sent, borne) = tokio::join!(pings, borne(&mut answers));
    assert!(sent.is_err());
    about(0, borne);
}

/// Proves: Q1
#[tokio::test(start_paused = true)]
async fn two_half_requests_of_a_stranger_end_with_its_connection() {
    let mut world = World::new();
    let idle = Arc::strong_count(&world.machine.guarded);
    let mut stranger = world.shake_hands(1, None).await.expect("a session");
    stranger.write_all(PREFACE).await.expect("sent");
    for stream in [1, 3, 5] {
        stranger.write_all(&head(stream, "/cairn.v1.Public/GetState")).await.expect("sent");
    }
    let (began, mut heard) = (Then::now(), Vec::new());
    let _closed = timeout(Duration::from_secs(3600), stranger.read_to_end(&mut heard)).await;
    // Five for the requests, five without one.
    about(10, began.elapsed());
    let refused = |stream| heard.windows(13).any(|frame| frame == [0, 0, 4, 3, 0, 0, 0, 0, stream, 0, 0, 0, 7]);
    assert_eq!([1, 3, 5].map(refused), [false, false, true], "{heard:?}");
    assert_eq!((world.held(), Arc::strong_count(&world.machine.guarded)), (0, idle));

    // An owner's may take its time, and ends with its connection, too.
    let owner = world.owner();
    let mut session = world.shake_hands(1, Some(&owner)).await.expect("a session");
    session.write_all(PREFACE).await.expect("sent");
    session.write_all(&head(1, "/cairn.v1.Public/Status")).await.expect("sent");
    answers(&mut session).await;
    assert!(Arc::strong_count(&world.machine.guarded) > idle, "it is under way");
    world.machine.owned_by(&[]);
    about(0, borne(&mut session).await);
    assert_eq!((world.held(), Arc::strong_count(&world.machine.guarded)), (0, idle));
}

/// Proves: A6 Q1
#[tokio::test(start_paused = true)]
async fn strangers_hold_no_place_that_an_owner_needs() {
    let mut world = World::new();
    let owner = world.owner();
    let mut strangers = Vec::new();
    for from in (1..5).cycle().take(64) {
        strangers.extend(world.shake_hands(from, None).await);
    }
    assert!((8..=32).contains(&world.held()), "{}", world.held());
    let mut owners = Vec::new();
    for number in 0..40 {
        // From an address where nobody was, and beside the strangers' silent handshakes.
        let _silent = world.connect(number % 4 + 1);
        let mut session = world.shake_hands(100, Some(&owner)).await.expect("the owner gets in");
        session.write_all(PREFACE).await.expect("sent");
        session.read_exact(&mut [0; 9]).await.expect("the machine speaks HTTP/2 with the owner");
        owners.push(session);
    }
    for mut stranger in strangers {
        assert!(borne(&mut stranger).await <= Duration::from_secs(5));
    }
    assert_eq!(world.held(), owners.len(), "the strangers are gone, the owner's sessions are all there");
}

/// Proves: A6 Q1
#[tokio::test(start_paused = true)]
async fn who_left_holds_no_place_and_who_lost_it_is_ended_at_once() {
    let mut world = World::new();
    let mut first = world.shake_hands(1, None).await.expect("a session");
    first.write_all(PREFACE).await.expect("sent");
    for _ in 0..8 {
        let mut other = world.shake_hands(1, None).await.expect("a session");
        other.read_exact(&mut [0; 9]).await.expect("settings: it is in");
        drop(other);
        while world.held() > 1 {
            tokio::task::yield_now().await;
        }
    }
    answers(&mut first).await;
    // Eight more who stay: of one source's the oldest leaves.
    let mut others = Vec::new();
    for _ in 0..7 {
        others.push(world.shake_hands(1, None).await.expect("a session"));
    }
    answers(&mut first).await;
    assert_eq!(world.held(), 8);
    tokio::time::advance(Duration::from_secs(1)).await;
    others.push(world.shake_hands(1, None).await.expect("a session"));
    about(0, borne(&mut first).await);
    assert_eq!(world.held(), 8);
}

/// Copies of the machine have the same keys.
#[tokio::test(start_paused = true)]
async fn a_standstill_ends_all_connections_before_it_and_none_after() {
    let mut world = World::new();
    let owner = world.owner();
    // One has not begun its handshake, one is behind it, one speaks HTTP/2.
    let mut silent = world.connect(1);
    let mut stranger = world.shake_hands(2, None).await.expect("a session");
    let mut session = world.shake_hands(3, Some(&owner)).await.expect("a session");
    session.write_all(PREFACE).await.expect("sent");
    answers(&mut session).await;
    world.machine.facts.standstills().count();
    about(0, borne(&mut silent).await);
    about(0, borne(&mut stranger).await);
    about(0, borne(&mut session).await);
    assert_eq!(world.held(), 0);
    let mut session = world.shake_hands(3, Some(&owner)).await.expect("a session");
    session.write_all(PREFACE).await.expect("sent");
    answers(&mut session).await;
    assert_eq!(world.held(), 1);
}

/// Proves: S13
#[tokio::test(start_paused = true)]
async fn whoever_comes_first_after_a_standstill_is_not_ended_by_it() {
    let mut world = World::new();
    let owner = world.owner();
    let mut old = world.shake_hands(1, Some(&owner)).await.expect("a session");
    old.write_all(PREFACE).await.expect("sent");
    answers(&mut old).await;
    let standstills = world.machine.facts.standstills().clone();
    let mut looker = standstills.looker();
    let looks = async {
        let asked = timeout(Duration::from_secs(60), looker.is_asked()).await;
        asked.expect("whoever comes asks for a look");
        looker.begins();
        standstills.count();
        looker.has_looked();
    };
    let (session, ()) = tokio::join!(world.shake_hands(3, Some(&owner)), looks);
    about(0, borne(&mut old).await);
    let mut session = session.expect("a session");
    session.write_all(PREFACE).await.expect("sent");
    answers(&mut session).await;
    assert_eq!(world.held(), 1);
}

/// Proves: Q1
#[tokio::test(start_paused = true)]
async fn a_connection_ends_when_its_owner_is_none_any_more() {
    let mut world = World::new();
    let owner = world.owner();
    let mut session = world.shake_hands(1, Some(&owner)).await.expect("a session");
    session.write_all(PREFACE).await.expect("sent");
    session.read_exact(&mut [0; 9]).await.expect("settings");
    world.machine.owned_by(std::slice::from_ref(&owner));
    // Another certificate of the machine, the same owner.
    answers(&mut session).await;
    world.machine.owned_by(&[]);
    about(0, borne(&mut session).await);
    assert_eq!(world.held(), 0);
}

/// A person whom the records do not know is a stranger, with a stranger's time.
///
/// Proves: W9
#[tokio::test(start_paused = true)]
async fn an_open_tunnel_ends_with_its_user_and_with_nobody_elses() {
    let mut world = World::new();
    let [alice, bob] = [7, 8].map(|n| PrivateKey::ed25519(&model::Secret::take(&mut [n; 32])).expect("a key"));
    world.machine.used_by(roster(&[("alice", &alice)]));
    let mut stranger = world.shake_hands_as(2, user_client(&bob)).await.expect("a session");
    stranger.write_all(PREFACE).await.expect("sent");
    about(5, borne(&mut stranger).await);
    let idle = Arc::strong_count(&world.machine.guarded);
    // Removed; another one's key; the key under another name.
    for users in [roster(&[]), roster(&[("alice", &bob)]), roster(&[("bob", &alice)]), Roster::Elsewhere] {
        world.machine.used_by(roster(&[("alice", &alice)]));
        let mut session = world.shake_hands_as(1, user_client(&alice)).await.expect("a session");
        session.write_all(PREFACE).await.expect("sent");
        session.write_all(&head(1, "/cairn.v1.Public/Tunnel")).await.expect("sent");
        answers(&mut session).await;
        world.machine.used_by(roster(&[("alice", &alice), ("bob", &bob)]));
        world.machine.used_by(roster(&[("alice", &alice)]));
        tokio::time::sleep(Duration::from_secs(30)).await;
        answers(&mut session).await;
        assert!(Arc::strong_count(&world.machine.guarded) > idle, "it is under way");
        world.machine.used_by(users);
        about(0, borne(&mut session).await);
        assert_eq!((world.held(), Arc::strong_count(&world.machine.guarded)), (0, idle));
    }
}
