//! The TLS rules, by real handshakes in memory: who gets in, who does not, and that nothing is remembered.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::sync::Arc;
use std::time::Duration;

use model::{ClusterId, MachineId, Role, Secret};
use pki::client_auth::{Caller, NotAnOwner, Owners, owner_certificate, server_config};
use pki::danger::first_contact;
use pki::server_auth::{pinned, under_authority};
use pki::{Authority, AuthorityKind, CertificateDer, Identity, PrivateKey, Profile, UnixTime, machine_tls_name};
use rustls::client::ResolvesClientCert;
use rustls::crypto::aws_lc_rs::sign::any_supported_type;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer, ServerName};
use rustls::sign::CertifiedKey;
use rustls::time_provider::TimeProvider;
use rustls::{
    AlertDescription, CertificateError, ClientConfig, ClientConnection, Error, HandshakeKind, NamedGroup,
    ProtocolVersion, ServerConfig, ServerConnection, SignatureScheme,
};

const NOW: u64 = 1_795_000_000;
const MACHINE: MachineId = MachineId([0xab; 16]);
const CLUSTER: ClusterId = ClusterId([0xcd; 16]);

#[derive(Debug)]
struct Fixed(u64);

impl TimeProvider for Fixed {
    fn current_time(&self) -> Option<UnixTime> {
        Some(UnixTime::since_unix_epoch(Duration::from_secs(self.0)))
    }
}

fn clock(seconds: u64) -> Arc<dyn TimeProvider> {
    Arc::new(Fixed(seconds))
}

fn key(seed: u8) -> PrivateKey {
    PrivateKey::ed25519(&Secret::take(&mut [seed; 32])).unwrap()
}

struct Cluster {
    authority: Authority,
    machine: PrivateKey,
    leaf: CertificateDer<'static>,
}

impl Cluster {
    fn create() -> Self {
        let now = Fixed(NOW).current_time().unwrap();
        let authority = Authority::create(AuthorityKind::Cairn, now).unwrap();
        let machine = key(1);
        let profile = Profile::Machine { machine: MACHINE, cluster: CLUSTER, roles: &[Role::Coordinator] };
        let leaf = authority.issue(&profile, machine.public(), now).unwrap();
        Self { authority, machine, leaf }
    }

    fn server(&self, owners: &[&PrivateKey]) -> ServerConfig {
        let chain = vec![self.leaf.clone(), self.authority.certificate().clone()];
        let owners = Owners::new(owners.iter().map(|key| key.public().clone()).collect());
        server_config(Identity { chain, key: &self.machine }, owners, clock(NOW)).unwrap()
    }

    fn client(&self, owner: Option<&PrivateKey>) -> ClientConfig {
        let identity = owner.map(|key| Identity { chain: vec![owner_certificate(key).unwrap()], key });
        pinned(self.authority.public().pin(), identity, clock(NOW)).unwrap()
    }
}

struct Finished {
    client: ClientConnection,
    server: ServerConnection,
}

/// Passes bytes to and fro until neither side has more to say; the first error ends it.
fn connect(client: &Arc<ClientConfig>, server: &Arc<ServerConfig>, name: &str) -> Result<Finished, Error> {
    let name = ServerName::try_from(name.to_owned()).unwrap();
    let mut client = ClientConnection::new(Arc::clone(client), name)?;
    let mut server = ServerConnection::new(Arc::clone(server))?;
    while client.wants_write() || server.wants_write() {
        let mut wire = Vec::new();
        while client.wants_write() {
            client.write_tls(&mut wire).unwrap();
        }
        feed(&mut wire.as_slice(), |bytes| server.read_tls(bytes));
        server.process_new_packets()?;
        let mut wire = Vec::new();
        while server.wants_write() {
            server.write_tls(&mut wire).unwrap();
        }
        feed(&mut wire.as_slice(), |bytes| client.read_tls(bytes));
        client.process_new_packets()?;
    }
    assert!(!client.is_handshaking() && !server.is_handshaking());
    Ok(Finished { client, server })
}

fn feed(bytes: &mut &[u8], mut read: impl FnMut(&mut &[u8]) -> std::io::Result<usize>) {
    while !bytes.is_empty() {
        read(bytes).unwrap();
    }
}

fn name() -> String {
    machine_tls_name(MACHINE, CLUSTER)
}

fn handshake(client: ClientConfig, server: ServerConfig, name: &str) -> Result<Finished, Error> {
    connect(&Arc::new(client), &Arc::new(server), name)
}

/// Proves: Q1
#[test]
fn an_owner_is_known_by_key_and_a_client_without_certificate_is_anonymous() {
    let (cluster, first, second) = (Cluster::create(), key(2), key(3));
    let owners = Owners::new(vec![first.public().clone(), second.public().clone()]);
    let callers = [
        (None, Caller::Anonymous),
        (Some(&first), Caller::Owner(first.public().clone())),
        (Some(&second), Caller::Owner(second.public().clone())),
    ];
    for (owner, caller) in callers {
        let finished = handshake(cluster.client(owner), cluster.server(&[&first, &second]), &name()).unwrap();
        assert_eq!(owners.caller(finished.server.peer_certificates()), Ok(caller));
        assert_eq!(finished.server.protocol_version(), Some(ProtocolVersion::TLSv1_3));
        let group = finished.server.negotiated_key_exchange_group().unwrap().name();
        assert_eq!(group, NamedGroup::X25519MLKEM768);
    }
}

/// Proves: Q1
#[test]
fn another_owner_does_not_get_past_the_handshake() {
    let (cluster, right, wrong) = (Cluster::create(), key(2), key(4));
    for owners in [vec![&right], vec![]] {
        let refused = handshake(cluster.client(Some(&wrong)), cluster.server(&owners), &name()).err();
        let expected = Error::InvalidCertificate(CertificateError::ApplicationVerificationFailure);
        assert_eq!(refused, Some(expected));
    }
    let stranger = owner_certificate(&wrong).unwrap();
    let owners = Owners::new(vec![right.public().clone()]);
    assert_eq!(owners.caller(Some(&[stranger])), Err(NotAnOwner));
}

/// Proves: Q1
#[test]
fn the_owners_certificate_without_the_owners_key_is_worth_nothing() {
    let (cluster, right, wrong) = (Cluster::create(), key(2), key(4));
    let mut thief = cluster.client(None);
    let signer = {
        let der = wrong.to_pkcs8().unwrap();
        let der = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(der.expose().to_vec()));
        any_supported_type(&der).unwrap()
    };
    let shown = CertifiedKey::new(vec![owner_certificate(&right).unwrap()], signer);
    thief.client_auth_cert_resolver = Arc::new(Shows(Arc::new(shown)));
    let refused = handshake(thief, cluster.server(&[&right]), &name()).err();
    assert_eq!(refused, Some(Error::InvalidCertificate(CertificateError::BadSignature)));
}

/// Shows one certificate whatever the server asks for, and signs with whatever key it was given.
#[derive(Debug)]
struct Shows(Arc<CertifiedKey>);

impl ResolvesClientCert for Shows {
    fn resolve(&self, _hints: &[&[u8]], _schemes: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0))
    }

    fn has_certs(&self) -> bool {
        true
    }
}

/// Proves: S6
#[test]
fn a_client_that_pinned_one_cluster_refuses_another() {
    let (ours, theirs) = (Cluster::create(), Cluster::create());
    let refused = handshake(ours.client(None), theirs.server(&[]), &name()).err();
    assert_eq!(refused, Some(Error::InvalidCertificate(CertificateError::UnknownIssuer)));
    let without_authority = {
        let identity = Identity { chain: vec![ours.leaf.clone()], key: &ours.machine };
        server_config(identity, Owners::default(), clock(NOW)).unwrap()
    };
    let refused = handshake(ours.client(None), without_authority, &name()).err();
    assert_eq!(refused, Some(Error::InvalidCertificate(CertificateError::UnknownIssuer)));
    let impostor = {
        // The pinned authority's certificate is public: showing it behind a leaf it did not sign must not help.
        let chain = vec![theirs.leaf.clone(), ours.authority.certificate().clone()];
        server_config(Identity { chain, key: &theirs.machine }, Owners::default(), clock(NOW)).unwrap()
    };
    let refused = handshake(ours.client(None), impostor, &name()).err();
    assert_eq!(refused, Some(Error::InvalidCertificate(CertificateError::UnknownIssuer)));
}

/// Proves: W7
#[test]
fn a_service_is_believed_under_its_own_authority_only() {
    let now = Fixed(NOW).current_time().unwrap();
    let [etcd, kubernetes] =
        [AuthorityKind::Etcd, AuthorityKind::Kubernetes].map(|kind| Authority::create(kind, now).unwrap());
    let issued = kubernetes.issue_with_key(&Profile::LoopbackServer { component: "kube-scheduler" }, now).unwrap();
    let server = || {
        let identity = Identity { chain: vec![issued.certificate.clone()], key: &issued.key };
        server_config(identity, Owners::default(), clock(NOW)).unwrap()
    };
    let client = |authority: &Authority| under_authority(authority.certificate().clone(), None, clock(NOW)).unwrap();
    assert!(handshake(client(&kubernetes), server(), "127.0.0.1").is_ok());
    let refused = handshake(client(&etcd), server(), "127.0.0.1").err();
    assert_eq!(refused, Some(Error::InvalidCertificate(CertificateError::UnknownIssuer)));
    let refused = handshake(client(&kubernetes), server(), "127.0.0.2").err();
    assert_eq!(refused, Some(Error::InvalidCertificate(CertificateError::NotValidForName)));
}

#[test]
fn the_name_dialled_is_the_name_in_the_certificate() {
    let cluster = Cluster::create();
    let other = machine_tls_name(MachineId([0xac; 16]), CLUSTER);
    let refused = handshake(cluster.client(None), cluster.server(&[]), &other).err();
    assert_eq!(refused, Some(Error::InvalidCertificate(CertificateError::NotValidForName)));
    assert!(handshake(cluster.client(None), cluster.server(&[]), &name()).is_ok());
}

#[test]
fn an_expired_machine_is_refused() {
    let cluster = Cluster::create();
    let late = pinned(cluster.authority.public().pin(), None, clock(NOW + 21 * 365 * 24 * 3600)).unwrap();
    let refused = handshake(late, cluster.server(&[]), &name()).err();
    assert_eq!(refused, Some(Error::InvalidCertificate(CertificateError::Expired)));
}

/// Proves: S2
#[test]
fn first_contact_takes_any_machine_once_with_the_same_exporter_on_both_sides() {
    let cluster = Cluster::create();
    let (client, server) = (Arc::new(first_contact(clock(NOW)).unwrap()), Arc::new(cluster.server(&[])));
    let finished = connect(&client, &server, "any.name.at.all").unwrap();
    let label = b"EXPORTER-cairn-first-contact";
    let here = finished.client.export_keying_material([0u8; 32], label, None).unwrap();
    let there = finished.server.export_keying_material([0u8; 32], label, None).unwrap();
    assert_eq!(here, there);
    assert_eq!(finished.client.peer_certificates().map(<[_]>::len), Some(2));
    let refused = connect(&client, &server, "any.name.at.all").err();
    assert_eq!(refused, Some(Error::InvalidCertificate(CertificateError::ApplicationVerificationFailure)));
}

#[test]
fn nothing_of_a_session_is_kept() {
    let (cluster, owner) = (Cluster::create(), key(2));
    let mut eager = cluster.client(Some(&owner));
    // The client wants to resume; the server gives it nothing to resume from.
    eager.resumption = rustls::client::Resumption::in_memory_sessions(16);
    eager.enable_early_data = true;
    let (client, server) = (Arc::new(eager), Arc::new(cluster.server(&[&owner])));
    for _ in 0..2 {
        let finished = connect(&client, &server, &name()).unwrap();
        assert_eq!(finished.server.handshake_kind(), Some(HandshakeKind::Full));
        assert_eq!(finished.client.tls13_tickets_received(), 0);
        assert!(!finished.client.is_early_data_accepted());
    }
}

#[test]
fn a_client_that_speaks_tls_1_2_only_is_refused() {
    let mut server = ServerConnection::new(Arc::new(Cluster::create().server(&[]))).unwrap();
    let hello = tls_1_2_client_hello();
    feed(&mut hello.as_slice(), |bytes| server.read_tls(bytes));
    assert!(matches!(server.process_new_packets(), Err(Error::PeerIncompatible(_))));
    let mut answer = Vec::new();
    server.write_tls(&mut answer).unwrap();
    assert_eq!(answer[0], 21, "an alert record");
    assert_eq!(AlertDescription::from(answer[6]), AlertDescription::ProtocolVersion);
}

/// A ClientHello without `supported_versions` (RFC 5246, section 7.4.1.2; RFC 8446, section 4.2.1).
fn tls_1_2_client_hello() -> Vec<u8> {
    let sized = |body: &[u8]| [&u16::try_from(body.len()).unwrap().to_be_bytes(), body].concat();
    let extensions = [
        [&[0, 13][..], &sized(&sized(&[4, 3, 8, 4]))].concat(), // signature_algorithms
        [&[0, 10][..], &sized(&sized(&[0, 29, 0, 23]))].concat(), // supported_groups: x25519, secp256r1
    ]
    .concat();
    let body = [
        &[3, 3][..],                       // TLS 1.2
        &[7; 32],                          // random
        &[0],                              // no session
        &sized(&[0xc0, 0x2b, 0xc0, 0x2f]), // ECDHE with AES-128-GCM
        &[1, 0],                           // no compression
        &sized(&extensions),
    ]
    .concat();
    let length = u32::try_from(body.len()).unwrap().to_be_bytes();
    let message = [&[1], &length[1..], &body].concat();
    [&[22, 3, 1][..], &sized(&message)].concat()
}
