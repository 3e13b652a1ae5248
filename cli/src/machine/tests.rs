//! First contact and pinned sessions against [`Fake`] machines: what is accepted, what is refused, what was sent.

use model::{ConfigDigest, FirstContact, Secret};
use pki::VerifyError;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_stream::StreamExt;

use super::contact::{ContactError, Expected, meet};
use super::dial::DialError;
use super::fake::{Answer, Fake, Lie};
use super::session::{Session, SessionError, public_state};
use super::tunnel::Listener;
use super::{Address, CallError};
use crate::clock;
use crate::failure::{Advice, Code};
use crate::store::{Owner, Pins};

const CONFIG: ConfigDigest = ConfigDigest([5; 32]);

fn secret(byte: u8) -> FirstContact {
    FirstContact(Secret::take(&mut [byte; 32]))
}

fn genuine(byte: u8) -> Answer {
    Answer::Proven { secret: secret(byte), config: CONFIG, lie: Lie::None }
}

async fn machine(seed: u8, owner: &Owner, answer: Answer) -> Fake {
    Fake::start(seed, owner.tls_key().unwrap().public().clone(), answer).await
}

async fn contact(address: &Address, byte: u8, config: ConfigDigest) -> Result<Pins, ContactError> {
    meet(address, &Expected { secret: secret(byte), config }, clock::now()).await
}

/// Proves: S12
#[tokio::test]
async fn the_machine_that_read_the_config_is_pinned_and_serves() {
    let owner = Owner::generate().unwrap();
    let fake = machine(1, &owner, genuine(7)).await;
    let pins = contact(&fake.address, 7, CONFIG).await.unwrap();
    assert_eq!(pins.machine, fake.machine);
    let mut session = Session::open(&fake.address, &pins, &owner).await.unwrap();
    assert_eq!(session.status().await.unwrap().name, "fake");
    assert_eq!(fake.calls(), ["Claim", "Status"]);
}

/// Proves: S12
#[tokio::test]
async fn an_impostor_is_sent_nothing_but_the_claim_and_refused() {
    let owner = Owner::generate().unwrap();
    let impostor = machine(1, &owner, genuine(8)).await;
    let refused = contact(&impostor.address, 7, CONFIG).await.unwrap_err();
    assert!(matches!(refused, ContactError::Proof(_)), "{refused}");
    assert_eq!((refused.code(), refused.may_pass()), (Code::Refused, false));
    assert_eq!(impostor.calls(), ["Claim"]);

    let other_config = machine(1, &owner, genuine(7)).await;
    let refused = contact(&other_config.address, 7, ConfigDigest([6; 32])).await.unwrap_err();
    assert!(matches!(refused, ContactError::Proof(_)), "{refused}");
    assert_eq!(other_config.calls(), ["Claim"]);
}

/// Proves: S12
#[tokio::test]
async fn a_relay_to_the_genuine_machine_is_refused() {
    let owner = Owner::generate().unwrap();
    let genuine = machine(1, &owner, genuine(7)).await;
    // With a key of its own, and even with the very key of the machine: the TLS session is another.
    for seed in [2, 1] {
        let relay = machine(seed, &owner, Answer::Relayed(genuine.address.clone())).await;
        let refused = contact(&relay.address, 7, CONFIG).await.unwrap_err();
        assert!(matches!(refused, ContactError::Proof(_)), "{refused}");
        assert_eq!(relay.calls(), ["Claim"]);
    }
    assert_eq!(genuine.calls(), ["Claim", "Claim"]);
}

/// Proves: S12
#[tokio::test]
async fn a_machine_with_the_secret_and_a_false_id_is_refused() {
    let owner = Owner::generate().unwrap();
    let liar = machine(1, &owner, Answer::Proven { secret: secret(7), config: CONFIG, lie: Lie::OtherId }).await;
    let refused = contact(&liar.address, 7, CONFIG).await.unwrap_err();
    assert!(matches!(refused, ContactError::Membership(_)), "{refused}");
    assert_eq!(refused.code(), Code::Refused);
}

/// Proves: S12
#[tokio::test]
async fn a_machine_with_anothers_id_or_certificate_is_refused() {
    let owner = Owner::generate().unwrap();
    let certified =
        machine(1, &owner, Answer::Proven { secret: secret(7), config: CONFIG, lie: Lie::CertifiedOtherId }).await;
    let refused = contact(&certified.address, 7, CONFIG).await.unwrap_err();
    assert!(matches!(refused, ContactError::Membership(VerifyError::OtherKey)), "{refused}");
    assert_eq!((refused.code(), refused.may_pass()), (Code::Refused, false));
    let other_leaf =
        machine(1, &owner, Answer::Proven { secret: secret(7), config: CONFIG, lie: Lie::OtherLeaf }).await;
    let refused = contact(&other_leaf.address, 7, CONFIG).await.unwrap_err();
    assert!(matches!(refused, ContactError::Proof(_)), "{refused}");
}

#[tokio::test]
async fn a_machine_that_is_not_ready_may_be_asked_again() {
    let owner = Owner::generate().unwrap();
    let fake = machine(1, &owner, Answer::NotYet).await;
    let early = contact(&fake.address, 7, CONFIG).await.unwrap_err();
    assert!(matches!(early, ContactError::Call(CallError::NotNow { .. })), "{early}");
    assert!(early.may_pass());
}

/// Proves: S12
#[tokio::test]
async fn once_pinned_no_other_machine_is_spoken_to() {
    let owner = Owner::generate().unwrap();
    let fake = machine(1, &owner, genuine(7)).await;
    let pins = contact(&fake.address, 7, CONFIG).await.unwrap();
    // The same key under another authority, and another machine altogether.
    for seed in [1, 2] {
        let other = machine(seed, &owner, genuine(7)).await;
        let refused = Session::open(&other.address, &pins, &owner).await.unwrap_err();
        assert!(matches!(refused, SessionError::Dial(DialError::Refused { .. })), "{refused}");
        assert_eq!(refused.code(), Code::Refused);
        assert!(!public_state(&other.address, Some(&pins)).await.unwrap_err().may_pass());
        assert!(other.calls().is_empty());
    }
    assert!(public_state(&fake.address, Some(&pins)).await.is_ok());
}

/// Proves: S12
#[tokio::test]
async fn a_second_owner_is_refused_and_told_so() {
    let (owner, other) = (Owner::generate().unwrap(), Owner::generate().unwrap());
    let fake = machine(1, &owner, genuine(7)).await;
    let pins = contact(&fake.address, 7, CONFIG).await.unwrap();
    let refused = Session::open(&fake.address, &pins, &other).await.unwrap_err();
    assert!(matches!(refused, SessionError::Dial(DialError::Refused { .. })), "{refused}");
    assert_eq!(refused.code(), Code::Refused);
    assert_eq!(fake.calls(), ["Claim"]);
}

#[tokio::test]
async fn nobody_and_a_server_without_tls_are_unreachable() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address: Address = listener.local_addr().unwrap().to_string().parse().unwrap();
    let plain = async {
        let (mut connection, _) = listener.accept().await.unwrap();
        connection.write_all(b"220 welcome\r\n").await.unwrap();
    };
    let (refused, ()) = tokio::join!(contact(&address, 7, CONFIG), plain);
    let refused = refused.unwrap_err();
    assert!(matches!(refused, ContactError::Dial(DialError::Broken { .. })), "{refused}");
    drop(listener);
    let nobody = contact(&address, 7, CONFIG).await.unwrap_err();
    assert!(matches!(nobody, ContactError::Dial(DialError::Connect { .. })), "{nobody}");
    assert_eq!((nobody.code(), nobody.may_pass()), (Code::Unreachable, true));
}

#[tokio::test]
async fn calls_give_answers_and_refusals_their_codes() {
    let owner = Owner::generate().unwrap();
    let fake = machine(1, &owner, genuine(7)).await;
    let pins = contact(&fake.address, 7, CONFIG).await.unwrap();
    let mut session = Session::open(&fake.address, &pins, &owner).await.unwrap();

    let entries: Vec<_> = session.logs(api::LogQuery::default()).await.unwrap().collect().await;
    assert!(matches!(entries.as_slice(), [Ok(entry)] if entry.line == "ready"));
    let truths: Vec<_> = session.wait_condition("NodeReady").await.unwrap().collect().await;
    assert!(
        matches!(truths.as_slice(), [Ok(no), Ok(yes)] if no.truth == api::Truth::False && yes.truth == api::Truth::True)
    );
    let missing = session.restart_service("nonsense").await.unwrap_err();
    assert_eq!(missing.code(), Code::NotFound);
    session.reboot().await.unwrap();
    let granted = super::ask_certificate(&mut session).await;
    assert!(granted.is_ok());
}

/// As in an election of etcd's. Other calls are not repeated: what they do twice is done twice.
#[tokio::test]
async fn a_call_whose_outcome_is_unknown_is_made_again() {
    let owner = Owner::generate().unwrap();
    let fake = machine(1, &owner, genuine(7)).await;
    let mut session = Session::open(&fake.address, &fake.pins(), &owner).await.unwrap();
    let offer = cluster::request::Offer {
        key: model::TicketPubKey([1; 32]),
        uses: 1,
        not_after: cluster::record::UnixSeconds(1),
        role: model::ClusterRole::Node,
        kubernetes: [].into(),
        machine: None,
        node_name: None,
    };
    let changes = ["ChangeMachine", "ChangeMachine", "IssueTicket", "RevokeTicket", "Reboot"];
    *fake.unknown.lock().unwrap() = changes.to_vec();
    session.change_machine(fake.machine, api::MachineChange::Drain(api::LeavingData::Kept)).await.unwrap();
    session.issue_ticket(offer).await.unwrap();
    let revoked = session.revoke_ticket(model::TicketId([1; 16])).await.unwrap_err();
    assert_eq!(revoked.code(), Code::NotFound, "the second answer counts");
    let rebooted = session.reboot().await.unwrap_err();
    assert!(matches!(rebooted, CallError::Unknown { .. }), "{rebooted}");
    let twice = ["ChangeMachine", "IssueTicket", "IssueTicket", "RevokeTicket", "RevokeTicket", "Reboot"];
    assert_eq!(fake.calls(), [&["ChangeMachine"; 2][..], &twice].concat());
}

#[tokio::test]
async fn a_machine_that_goes_away_is_unreachable_and_ends_the_tunnel() {
    let owner = Owner::generate().unwrap();
    let fake = machine(1, &owner, genuine(7)).await;
    let pins = contact(&fake.address, 7, CONFIG).await.unwrap();
    let mut session = Session::open(&fake.address, &pins, &owner).await.unwrap();
    session.status().await.unwrap();
    let listener = Listener::bind(0).await.unwrap();
    let (local, tunnel) = (listener.address(), session.tunnel());
    drop(fake);
    let gone = session.status().await.unwrap_err();
    assert!(matches!(gone, CallError::Gone { .. }), "{gone}");
    assert_eq!((gone.code(), gone.may_pass()), (Code::Unreachable, true));
    let (ended, connection) =
        tokio::join!(tunnel.serve(&listener, api::Target::KubernetesApi), TcpStream::connect(local),);
    assert!(connection.is_ok());
    assert_eq!(ended.unwrap_err().code(), Code::Unreachable);
}

/// Proves: S8
#[tokio::test]
async fn a_tunnel_carries_several_connections_and_half_closes() {
    let owner = Owner::generate().unwrap();
    let fake = machine(1, &owner, genuine(7)).await;
    let pins = contact(&fake.address, 7, CONFIG).await.unwrap();
    let session = Session::open(&fake.address, &pins, &owner).await.unwrap();
    let listener = Listener::bind(0).await.unwrap();
    let (local, tunnel) = (listener.address(), session.tunnel());
    let use_it = async {
        for length in [1, 100_000] {
            let sent = vec![7; length];
            let (mut read, mut write) = TcpStream::connect(local).await.unwrap().into_split();
            let write_all = async {
                write.write_all(&sent).await.unwrap();
                write.shutdown().await.unwrap();
            };
            let mut got = Vec::new();
            let (read, ()) = tokio::join!(read.read_to_end(&mut got), write_all);
            assert_eq!((read.unwrap(), got == sent), (length, true));
        }
    };
    tokio::select! {
        ended = tunnel.serve(&listener, api::Target::KubernetesApi) => panic!("{ended:?}"),
        () = use_it => {}
    }
}

/// Proves: S8
#[tokio::test]
async fn a_machine_behind_another_proves_itself_just_the_same() {
    let owner = Owner::generate().unwrap();
    let (first, second) = (machine(1, &owner, genuine(7)).await, machine(2, &owner, genuine(8)).await);
    let of_first = contact(&first.address, 7, CONFIG).await.unwrap();
    let of_second = contact(&second.address, 8, CONFIG).await.unwrap();
    let name = model::NodeName::stored("second").unwrap();
    let session = Session::open(&first.address, &of_first, &owner).await.unwrap();
    let nowhere = session.beyond(&name, &of_second, &owner).await.unwrap_err();
    assert!(matches!(nowhere, SessionError::Through(CallError::NotFound { .. })), "{nowhere}");
    assert_eq!(nowhere.code(), Code::NotFound);

    first.leads(of_second.machine, &second);
    let mut beyond = session.beyond(&name, &of_second, &owner).await.unwrap();
    drop(session);
    assert_eq!(beyond.status().await.unwrap().name, "fake");
    assert_eq!(second.calls(), ["Claim", "Status"]);
    assert_eq!(first.calls(), ["Claim", "Tunnel", "Tunnel"], "it has answered nothing in its place");

    // Whoever carries the bytes elsewhere leads to a machine that is another.
    let session = Session::open(&first.address, &of_first, &owner).await.unwrap();
    let impostor = machine(3, &owner, genuine(8)).await;
    first.leads(of_second.machine, &impostor);
    let refused = session.beyond(&name, &of_second, &owner).await.unwrap_err();
    assert!(matches!(refused, SessionError::Dial(DialError::Refused { .. })), "{refused}");
    assert!(refused.to_string().starts_with("second:7836 is not the machine"), "{refused}");
    assert_eq!(impostor.calls(), [""; 0]);
}
