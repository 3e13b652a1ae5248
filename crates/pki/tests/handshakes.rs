//! The TLS rules, by real handshakes in memory: who gets in, who does not, and that nothing is remembered.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::sync::Arc;
use std::time::Duration;

use keys::identity;
use model::{Caller, ClusterId, ClusterRole, MachineId, MachinePubKey, Secret, UserPubKey};
use pki::client_auth::{
    NamedIdentity, Owners, UnknownMember, UnknownOwner, Who, apiservers, machine_certificate, member, members,
    nameless_certificate, owner_certificate, server_config, user_certificate,
};
use pki::danger::first_contact;
use pki::server_auth::{any_coordinator, one_member, pinned, under_authority, verify_member};
use pki::{
    Authority, AuthorityKind, CertificateDer, CertificateProfile, ClientIdentity, METRICS_NAME, PrivateKey,
    TlsIdentity, UnixTime, VerifyError, cluster_tls_name, machine_tls_name, service_life,
};
use rustls::client::{ResolvesClientCert, Resumption};
use rustls::crypto::aws_lc_rs::sign::any_supported_type;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer, ServerName};
use rustls::server::ServerSessionMemoryCache;
use rustls::sign::CertifiedKey;
use rustls::time_provider::TimeProvider;
use rustls::{
    AlertDescription, CertificateError, ClientConfig, ClientConnection, Error, HandshakeKind, NamedGroup,
    ProtocolVersion, ServerConfig, ServerConnection, SignatureScheme,
};

const NOW: u64 = 1_795_000_000;

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
    boot: PrivateKey,
}

impl Cluster {
    fn create() -> Self {
        let now = Fixed(NOW).current_time().unwrap();
        let authority = Authority::create(AuthorityKind::Cairn, now).unwrap();
        let machine = key(1);
        let leaf = certify(&authority, machine_of(&machine), cluster_of(&authority), &machine);
        Self { authority, machine, leaf, boot: PrivateKey::generate().unwrap() }
    }

    /// The name of the machine, made of its key and its cluster's.
    fn name(&self) -> String {
        machine_tls_name(machine_of(&self.machine), cluster_of(&self.authority))
    }

    fn server(&self, owners: &[&PrivateKey]) -> ServerConfig {
        let chain = vec![self.leaf.clone(), self.authority.certificate().clone()];
        let named = NamedIdentity { name: self.name(), identity: TlsIdentity { chain, key: &self.machine } };
        let nameless = TlsIdentity { chain: vec![nameless_certificate(&self.boot).unwrap()], key: &self.boot };
        let owners = Owners::new(owners.iter().map(|key| key.public().clone()).collect());
        server_config(nameless, Some(named), owners, clock(NOW)).unwrap()
    }

    fn client(&self, owner: Option<&PrivateKey>) -> ClientConfig {
        let identity = owner.map(|key| TlsIdentity { chain: vec![owner_certificate(key).unwrap()], key });
        pinned(self.authority.public().pin(), identity, clock(NOW)).unwrap()
    }
}

fn machine_of(key: &PrivateKey) -> MachineId {
    identity::machine_id(&key.public().as_ed25519().unwrap())
}

fn cluster_of(authority: &Authority) -> ClusterId {
    identity::cluster_id(&authority.public().spki())
}

fn certify(authority: &Authority, machine: MachineId, cluster: ClusterId, key: &PrivateKey) -> CertificateDer<'static> {
    let profile = CertificateProfile::Machine { machine, cluster, role: ClusterRole::Coordinator };
    authority.issue(&profile, key.public(), Fixed(NOW).current_time().unwrap()).unwrap()
}

/// A server that shows the same to everybody, whatever it is called.
fn always(chain: Vec<CertificateDer<'static>>, key: &PrivateKey) -> ServerConfig {
    server_config(TlsIdentity { chain, key }, None, Owners::default(), clock(NOW)).unwrap()
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

fn handshake(client: ClientConfig, server: ServerConfig, name: &str) -> Result<Finished, Error> {
    connect(&Arc::new(client), &Arc::new(server), name)
}

/// The client of a machine with the key `joiner` that holds a ticket for `cluster`.
fn joins(cluster: &Cluster, joiner: &PrivateKey, seconds: u64) -> ClientConfig {
    let identity = TlsIdentity { chain: vec![machine_certificate(joiner).unwrap()], key: joiner };
    let authority = &cluster.authority;
    any_coordinator(cluster_of(authority), authority.public().pin(), identity, clock(seconds)).unwrap()
}

/// A machine that knows the cluster by its ticket is shown a coordinator's certificate, whatever the clocks say.
///
/// Proves: S3 S4
#[test]
fn a_ticket_makes_any_coordinator_of_its_cluster_believed() {
    let (cluster, joiner) = (Cluster::create(), key(7));
    let name = cluster_tls_name(cluster_of(&cluster.authority));
    for now in [1, NOW, NOW + (400 << 20)] {
        let finished = handshake(joins(&cluster, &joiner, now), cluster.server(&[&joiner]), &name).unwrap();
        let shown = finished.server.peer_certificates().unwrap();
        assert_eq!(
            pki::public_key_of(&shown[0]).unwrap(),
            *joiner.public(),
            "the machine key is the one that TLS proved"
        );
    }
}

/// Proves: S3 S4
#[test]
fn no_impostor_stranger_or_node_is_taken_for_a_coordinator() {
    let (cluster, other, joiner) = (Cluster::create(), Cluster::create(), key(7));
    let authority = &cluster.authority;
    let name = cluster_tls_name(cluster_of(authority));
    let refused = |server: ServerConfig, name: &str| match handshake(joins(&cluster, &joiner, NOW), server, name).err()
    {
        Some(Error::InvalidCertificate(why)) => why,
        other => panic!("{other:?}"),
    };
    let shows = |leaf: &CertificateDer<'static>, behind: &Authority, key: &PrivateKey| {
        always(vec![leaf.clone(), behind.certificate().clone()], key)
    };
    // Another cluster's CA, with and without our name.
    let of_other = shows(&other.leaf, &other.authority, &other.machine);
    assert_eq!(refused(of_other, &name), CertificateError::NotValidForName);
    // An impostor whose own CA calls it a machine of our cluster, also with our CA's certificate behind it.
    let lies = certify(&other.authority, machine_of(&cluster.machine), cluster_of(authority), &cluster.machine);
    assert_eq!(refused(shows(&lies, &other.authority, &cluster.machine), &name), CertificateError::NotValidForName);
    assert_eq!(refused(shows(&lies, authority, &cluster.machine), &name), CertificateError::UnknownIssuer);
    // A certificate that our CA gave for another key, or in another cluster's name.
    let other_key = certify(authority, machine_of(&cluster.machine), cluster_of(authority), &key(8));
    assert_eq!(refused(shows(&other_key, authority, &key(8)), &name), CertificateError::NotValidForName);
    let other_name = certify(authority, machine_of(&cluster.machine), cluster_of(&other.authority), &cluster.machine);
    assert_eq!(refused(shows(&other_name, authority, &cluster.machine), &name), CertificateError::NotValidForName);
    // A node.
    let (machine, now) = (machine_of(&cluster.machine), Fixed(NOW).current_time().unwrap());
    let profile = CertificateProfile::Machine { machine, cluster: cluster_of(authority), role: ClusterRole::Node };
    let node = authority.issue(&profile, cluster.machine.public(), now).unwrap();
    assert_eq!(refused(shows(&node, authority, &cluster.machine), &name), CertificateError::InvalidPurpose);
    // No authority behind the leaf, a stranger's leaf, or another name dialled.
    let alone = always(vec![cluster.leaf.clone()], &cluster.machine);
    assert_eq!(refused(alone, &name), CertificateError::UnknownIssuer);
    let nameless = always(vec![nameless_certificate(&cluster.boot).unwrap()], &cluster.boot);
    assert_eq!(refused(nameless, &name), CertificateError::UnknownIssuer);
    assert_eq!(refused(cluster.server(&[&joiner]), &cluster.name()), CertificateError::UnknownIssuer);
}

/// Voters that were all switched off: whoever answers has to be the machine that was dialled, whatever the clocks say.
///
/// Proves: K6
#[test]
fn a_member_dials_one_other_and_gives_nothing_to_a_third() {
    let (cluster, other, caller) = (Cluster::create(), Cluster::create(), key(7));
    let authority = &cluster.authority;
    let dials = |seconds| {
        let identity = TlsIdentity { chain: vec![machine_certificate(&caller).unwrap()], key: &caller };
        one_member(cluster_of(authority), authority.public().pin(), identity, clock(seconds)).unwrap()
    };
    for now in [1, NOW, NOW + (400 << 20)] {
        let finished = handshake(dials(now), cluster.server(&[&caller]), &cluster.name()).unwrap();
        let shown = finished.server.peer_certificates().unwrap();
        assert_eq!(pki::public_key_of(&shown[0]).unwrap(), *caller.public(), "the caller is known by its key");
    }
    let refused = |server: ServerConfig| match handshake(dials(NOW), server, &cluster.name()).err() {
        Some(Error::InvalidCertificate(why)) => why,
        other => panic!("{other:?}"),
    };
    let shows = |leaf: &CertificateDer<'static>, behind: &Authority, key: &PrivateKey| {
        always(vec![leaf.clone(), behind.certificate().clone()], key)
    };
    // A third member of the same cluster, with its own certificate, and with the dialled one's name.
    let third = key(8);
    let its_own = certify(authority, machine_of(&third), cluster_of(authority), &third);
    assert_eq!(refused(shows(&its_own, authority, &third)), CertificateError::NotValidForName);
    let borrowed = certify(authority, machine_of(&cluster.machine), cluster_of(authority), &third);
    assert_eq!(refused(shows(&borrowed, authority, &third)), CertificateError::NotValidForName);
    // The machine of that key in another cluster, and nobody's authority.
    assert_eq!(refused(shows(&other.leaf, &other.authority, &other.machine)), CertificateError::NotValidForName);
    let alone = always(vec![cluster.leaf.clone()], &cluster.machine);
    assert_eq!(refused(alone), CertificateError::UnknownIssuer);
}

/// Proves: S4
#[test]
fn a_certificate_is_for_the_machines_key_under_the_tickets_pin() {
    let (cluster, other, joiner) = (Cluster::create(), Cluster::create(), key(7));
    let authority = &cluster.authority;
    let verify = |leaf: &CertificateDer<'_>, behind: &Authority, key: &PrivateKey| {
        verify_member(leaf, behind.certificate(), cluster_of(authority), authority.public().pin(), key.public())
    };
    let leaf = certify(authority, machine_of(&joiner), cluster_of(authority), &joiner);
    assert!(verify(&leaf, authority, &joiner).is_ok());
    assert!(matches!(verify(&cluster.leaf, authority, &joiner), Err(VerifyError::OtherKey)), "another machine's");
    assert!(matches!(verify(&leaf, &other.authority, &joiner), Err(VerifyError::OtherKey)), "another CA");
    let forged = certify(&other.authority, machine_of(&joiner), cluster_of(authority), &joiner);
    assert!(matches!(verify(&forged, authority, &joiner), Err(VerifyError::Path(_))), "not signed by the pinned CA");
    let elsewhere = certify(authority, machine_of(&joiner), cluster_of(&other.authority), &joiner);
    assert!(
        matches!(verify(&elsewhere, authority, &joiner), Err(VerifyError::WrongName(_))),
        "in another cluster's name"
    );
}

/// Proves: Q1
#[test]
fn an_owner_is_known_by_key_and_no_certificate_is_a_stranger() {
    let (cluster, first, second) = (Cluster::create(), key(2), key(3));
    let owners = Owners::new(vec![first.public().clone(), second.public().clone()]);
    let expected = [
        (None, Who::Stranger),
        (Some(&first), Who::Owner(first.public().clone())),
        (Some(&second), Who::Owner(second.public().clone())),
    ];
    for (owner, who) in expected {
        let finished = handshake(cluster.client(owner), cluster.server(&[&first, &second]), &cluster.name()).unwrap();
        assert_eq!(owners.who(finished.server.peer_certificates()), Ok(who));
        assert_eq!(finished.server.protocol_version(), Some(ProtocolVersion::TLSv1_3));
        let group = finished.server.negotiated_key_exchange_group().unwrap().name();
        assert_eq!(group, NamedGroup::X25519MLKEM768);
    }
}

/// The records say who is a user, not this: whoever draws a key is a stranger who calls itself one. Proves: W9 Q1
#[test]
fn whoever_calls_itself_a_user_is_a_person_and_no_more() {
    let (cluster, owner, person) = (Cluster::create(), key(2), key(4));
    let owners = Owners::new(vec![owner.public().clone()]);
    let shows = |key: &PrivateKey| {
        let identity = TlsIdentity { chain: vec![user_certificate(key).unwrap()], key };
        let client = pinned(cluster.authority.public().pin(), Some(identity), clock(NOW)).unwrap();
        let finished = handshake(client, cluster.server(&[&owner]), &cluster.name()).unwrap();
        owners.who(finished.server.peer_certificates()).unwrap()
    };
    let who = shows(&person);
    assert_eq!(who, Who::Person(UserPubKey(person.public().as_ed25519().unwrap())));
    assert_eq!(who.caller(), Caller::Stranger);
    assert_eq!(
        shows(&owner),
        Who::Owner(owner.public().clone()),
        "an owner's key is an owner's, whatever it is called"
    );
}

/// Proves: Q1
#[test]
fn another_owner_does_not_get_past_the_handshake() {
    let (cluster, right, wrong) = (Cluster::create(), key(2), key(4));
    for owners in [vec![&right], vec![]] {
        let refused = handshake(cluster.client(Some(&wrong)), cluster.server(&owners), &cluster.name()).err();
        let expected = Error::InvalidCertificate(CertificateError::ApplicationVerificationFailure);
        assert_eq!(refused, Some(expected));
    }
    let stranger = owner_certificate(&wrong).unwrap();
    let owners = Owners::new(vec![right.public().clone()]);
    assert_eq!(owners.who(Some(&[stranger])), Err(UnknownOwner));
}

/// Proves: Q1
#[test]
fn an_owners_certificate_without_its_key_is_worth_nothing() {
    let (cluster, right, wrong) = (Cluster::create(), key(2), key(4));
    let mut thief = cluster.client(None);
    let signer = {
        let der = wrong.to_pkcs8().unwrap();
        let der = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(der.expose().to_vec()));
        any_supported_type(&der).unwrap()
    };
    let shown = CertifiedKey::new(vec![owner_certificate(&right).unwrap()], signer);
    thief.client_auth_cert_resolver = Arc::new(Shows(Arc::new(shown)));
    let refused = handshake(thief, cluster.server(&[&right]), &cluster.name()).err();
    assert_eq!(refused, Some(Error::InvalidCertificate(CertificateError::BadSignature)));
}

/// Any certificate but one that calls its holder an owner. Proves: S3 Q1
#[test]
fn another_key_proves_a_machine_that_holds_it_and_no_more() {
    let (cluster, owner, joiner) = (Cluster::create(), key(2), key(5));
    let owners = Owners::new(vec![owner.public().clone()]);
    let showing = |certified: &PrivateKey, signs: &PrivateKey| {
        let mut client = cluster.client(None);
        let der = signs.to_pkcs8().unwrap();
        let der = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(der.expose().to_vec()));
        let chain = vec![nameless_certificate(certified).unwrap()];
        client.client_auth_cert_resolver =
            Arc::new(Shows(Arc::new(CertifiedKey::new(chain, any_supported_type(&der).unwrap()))));
        handshake(client, cluster.server(&[&owner]), &cluster.name())
    };
    let who = |finished: Finished| owners.who(finished.server.peer_certificates());
    let machine = MachinePubKey(joiner.public().as_ed25519().unwrap());
    assert_eq!(who(showing(&joiner, &joiner).unwrap()), Ok(Who::Machine(machine)));
    // It is the key that counts: an owner is one whatever the certificate says.
    assert_eq!(who(showing(&owner, &owner).unwrap()), Ok(Who::Owner(owner.public().clone())));
    let stolen = showing(&joiner, &owner).err();
    assert_eq!(stolen, Some(Error::InvalidCertificate(CertificateError::BadSignature)), "somebody else's certificate");
    // No machine has such a key.
    let other = PrivateKey::generate().unwrap();
    let refused = showing(&other, &other).err();
    assert_eq!(refused, Some(Error::InvalidCertificate(CertificateError::ApplicationVerificationFailure)));
}

/// Neither another cluster's machines, nor whoever holds a key, nor another key's certificate; dates do not count.
/// Proves: Q1
#[test]
fn the_vpn_api_shakes_hands_with_machines_of_its_cluster_only() {
    let (ours, theirs) = (Cluster::create(), Cluster::create());
    let (cluster, authority) = (cluster_of(&ours.authority), ours.authority.certificate());
    let node = key(5);
    let dial = |chain: Vec<CertificateDer<'static>>, time| {
        let identity = TlsIdentity { chain: vec![ours.leaf.clone(), authority.clone()], key: &ours.machine };
        let server = members(identity, authority.clone(), cluster, clock(time)).unwrap();
        let identity = TlsIdentity { chain, key: &node };
        let client = any_coordinator(cluster, ours.authority.public().pin(), identity, clock(time)).unwrap();
        handshake(client, server, &cluster_tls_name(cluster))
    };
    let leaf = certify(&ours.authority, machine_of(&node), cluster, &node);
    for time in [NOW, 0, NOW + 40 * 365 * 24 * 3600] {
        let finished = dial(vec![leaf.clone()], time).unwrap();
        let who = member(finished.server.peer_certificates().unwrap());
        assert_eq!(who, Ok(Who::Member(MachinePubKey(node.public().as_ed25519().unwrap()))));
    }
    let refused = |chain: Vec<CertificateDer<'static>>| {
        assert_eq!(
            dial(chain, NOW).err(),
            Some(Error::InvalidCertificate(CertificateError::ApplicationVerificationFailure))
        );
    };
    refused(vec![certify(&theirs.authority, machine_of(&node), cluster_of(&theirs.authority), &node)]);
    refused(vec![certify(&theirs.authority, machine_of(&node), cluster, &node)]);
    refused(vec![certify(&ours.authority, machine_of(&ours.machine), cluster, &node)]);
    refused(vec![machine_certificate(&node).unwrap()]);
    refused(vec![leaf.clone(), authority.clone()]);
    assert_eq!(member(&[leaf.clone(), leaf]), Err(UnknownMember));

    let identity = TlsIdentity { chain: vec![ours.leaf.clone(), authority.clone()], key: &ours.machine };
    let server = members(identity, authority.clone(), cluster, clock(NOW)).unwrap();
    let refused = handshake(ours.client(None), server, &ours.name()).err();
    assert_eq!(refused, Some(Error::NoCertificatesPresented));
}

/// Neither another name under their authority, nor their name under another, nor a certificate that has ended. Proves: Q3 W7
#[test]
fn metrics_are_told_to_apiservers_alone() {
    let now = || Fixed(NOW).current_time().unwrap();
    let [front, kubernetes] =
        [AuthorityKind::Front, AuthorityKind::Kubernetes].map(|kind| Authority::create(kind, now()).unwrap());
    let dial = |shown: TlsIdentity<'_>, time| {
        let then = Fixed(time).current_time().unwrap();
        let serves = kubernetes.issue_with_key(&CertificateProfile::MetricsServer, then).unwrap();
        let server = apiservers(serves.identity(), front.certificate().clone(), clock(time)).unwrap();
        let shown = ClientIdentity::new(shown).unwrap();
        let client = under_authority(kubernetes.certificate().clone(), Some(&shown), clock(time)).unwrap();
        handshake(client, server, METRICS_NAME).err()
    };
    let apiserver = front.issue_with_key(&CertificateProfile::ApiserverFront, now()).unwrap();
    assert_eq!(dial(apiserver.identity(), NOW), None);
    let refused = Some(Error::InvalidCertificate(CertificateError::ApplicationVerificationFailure));
    assert_eq!(dial(apiserver.identity(), NOW + 2 * service_life().as_secs()), refused);
    let kubelet = kubernetes.issue_with_key(&CertificateProfile::ApiserverKubeletClient, now()).unwrap();
    assert_eq!(dial(kubelet.identity(), NOW), refused, "a certificate of Kubernetes' authority");
    let own = key(7);
    let chain = vec![machine_certificate(&own).unwrap()];
    assert_eq!(dial(TlsIdentity { chain, key: &own }, NOW), refused, "a certificate of its own");
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
    let refused = |server: ServerConfig| {
        let refused = handshake(ours.client(None), server, &ours.name()).err();
        assert_eq!(refused, Some(Error::InvalidCertificate(CertificateError::UnknownIssuer)));
    };
    let authority = || ours.authority.certificate().clone();
    refused(always(vec![theirs.leaf.clone(), theirs.authority.certificate().clone()], &theirs.machine));
    refused(always(vec![ours.leaf.clone()], &ours.machine));
    // The pinned authority's certificate is public: showing it behind a leaf it did not sign must not help.
    refused(always(vec![theirs.leaf.clone(), authority()], &theirs.machine));
    assert!(
        handshake(ours.client(None), always(vec![ours.leaf.clone(), authority()], &ours.machine), &ours.name()).is_ok()
    );
}

/// Proves: S6. The pinned authority certifies the machine's very name for another key, or its key for a cluster that is
/// not this authority's: the name says which keys it has to be.
#[test]
fn a_machine_is_believed_by_the_key_its_name_is_made_of() {
    let cluster = Cluster::create();
    let (machine, own) = (machine_of(&cluster.machine), cluster_of(&cluster.authority));
    let dial = |machine, of_cluster, key: &PrivateKey| {
        let leaf = certify(&cluster.authority, machine, of_cluster, key);
        let server = always(vec![leaf, cluster.authority.certificate().clone()], key);
        handshake(cluster.client(None), server, &machine_tls_name(machine, of_cluster)).err()
    };
    let refused = Some(Error::InvalidCertificate(CertificateError::NotValidForName));
    assert_eq!(dial(machine, own, &cluster.machine), None);
    assert_eq!(dial(machine, own, &key(9)), refused, "another key");
    assert_eq!(dial(machine, own, &PrivateKey::generate().unwrap()), refused, "a key of another kind");
    assert_eq!(dial(machine, ClusterId([0xcd; 16]), &cluster.machine), refused, "another cluster");
}

/// Proves: A8. Not even somebody who guesses at names learns which machine this is.
#[test]
fn an_unknown_name_is_shown_a_certificate_that_says_nothing() {
    let cluster = Cluster::create();
    let name = cluster.name();
    let (machine, rest) = name.split_at(32);
    let shown = |name: &str| -> Vec<CertificateDer<'static>> {
        let finished = handshake(first_contact(clock(NOW)).unwrap(), cluster.server(&[]), name).unwrap();
        finished.client.peer_certificates().unwrap().iter().map(|shown| shown.clone().into_owned()).collect()
    };
    let own = vec![cluster.leaf.clone(), cluster.authority.certificate().clone()];
    assert_eq!(shown(&name), own, "whoever knows it");
    assert_eq!(shown(&name.to_uppercase()), own, "names have no case");
    assert_eq!(shown(&rest[1..]), own, "whoever knows the cluster, by a ticket");
    let (other, elsewhere) = (format!("{}{rest}", "0".repeat(32)), format!("{}.cairn.internal", "0".repeat(32)));
    // An address is no name: then there is no SNI at all.
    for guess in ["192.0.2.1", "cairn.internal", &elsewhere, machine, &other, &format!("a.{name}")] {
        let [nameless] = &shown(guess)[..] else { panic!("a chain for {guess}") };
        let (_, parsed) = x509_parser::parse_x509_certificate(nameless).unwrap();
        assert_eq!((parsed.subject().to_string(), parsed.issuer().to_string()), (String::new(), String::new()));
        assert!(parsed.subject_alternative_name().unwrap().is_none(), "{guess}");
        assert_ne!(parsed.public_key().raw, cluster.machine.public().spki(), "the name is made of that key");
        assert!(!nameless.windows(5).any(|word| word == b"cairn"), "{guess}");
    }
}

/// Proves: W7
#[test]
fn a_service_is_believed_under_its_own_authority_only() {
    let now = Fixed(NOW).current_time().unwrap();
    let [etcd, kubernetes] =
        [AuthorityKind::Etcd, AuthorityKind::Kubernetes].map(|kind| Authority::create(kind, now).unwrap());
    let issued =
        kubernetes.issue_with_key(&CertificateProfile::LoopbackServer { component: "kube-controllers" }, now).unwrap();
    let server = || always(vec![issued.certificate.clone()], &issued.key);
    let client = |authority: &Authority| under_authority(authority.certificate().clone(), None, clock(NOW)).unwrap();
    assert!(handshake(client(&kubernetes), server(), "127.0.0.1").is_ok());
    let refused = handshake(client(&etcd), server(), "127.0.0.1").err();
    assert_eq!(refused, Some(Error::InvalidCertificate(CertificateError::UnknownIssuer)));
    let refused = handshake(client(&kubernetes), server(), "127.0.0.2").err();
    assert_eq!(refused, Some(Error::InvalidCertificate(CertificateError::NotValidForName)));
}

/// Proves: Q9
#[test]
fn a_client_shows_the_identity_that_was_put_in_last() {
    let now = Fixed(NOW).current_time().unwrap();
    let kubernetes = Authority::create(AuthorityKind::Kubernetes, now).unwrap();
    let issued = |profile| kubernetes.issue_with_key(&profile, now).unwrap();
    let (first, next) = (issued(CertificateProfile::Scheduler), issued(CertificateProfile::ControllerManager));
    let client = ClientIdentity::new(first.identity()).unwrap();
    let config = under_authority(kubernetes.certificate().clone(), Some(&client), clock(NOW)).unwrap();
    let shown = || config.client_auth_cert_resolver.resolve(&[], &[]).unwrap().cert.clone();
    assert_eq!(shown(), first.identity().chain);
    assert!(client.replace(TlsIdentity { key: &first.key, ..next.identity() }).is_err(), "another's key");
    assert_eq!(shown(), first.identity().chain);
    client.replace(next.identity()).unwrap();
    assert_eq!(shown(), next.identity().chain);
}

#[test]
fn the_name_dialled_is_the_name_in_the_certificate() {
    let cluster = Cluster::create();
    let server = || always(vec![cluster.leaf.clone(), cluster.authority.certificate().clone()], &cluster.machine);
    let other = machine_tls_name(MachineId([0xac; 16]), cluster_of(&cluster.authority));
    let refused = handshake(cluster.client(None), server(), &other).err();
    assert_eq!(refused, Some(Error::InvalidCertificate(CertificateError::NotValidForName)));
    assert!(handshake(cluster.client(None), server(), &cluster.name()).is_ok());
}

#[test]
fn an_expired_machine_is_refused() {
    let cluster = Cluster::create();
    let late = pinned(cluster.authority.public().pin(), None, clock(NOW + 21 * 365 * 24 * 3600)).unwrap();
    let refused = handshake(late, cluster.server(&[]), &cluster.name()).err();
    assert_eq!(refused, Some(Error::InvalidCertificate(CertificateError::Expired)));
}

/// Proves: S2
#[test]
fn first_contact_takes_any_machine_and_exports_alike() {
    let cluster = Cluster::create();
    let (client, server) = (Arc::new(first_contact(clock(NOW)).unwrap()), Arc::new(cluster.server(&[])));
    let finished = connect(&client, &server, "any.name.at.all").unwrap();
    let label = b"EXPORTER-cairn-first-contact";
    let here = finished.client.export_keying_material([0u8; 32], label, None).unwrap();
    let there = finished.server.export_keying_material([0u8; 32], label, None).unwrap();
    assert_eq!(here, there);
    assert_eq!(finished.client.peer_certificates().map(<[_]>::len), Some(1));
    let refused = connect(&client, &server, "any.name.at.all").err();
    assert_eq!(refused, Some(Error::InvalidCertificate(CertificateError::ApplicationVerificationFailure)));
}

/// Proves: S6. The server looks at an owner's one certificate; what stands behind it would be looked at by nobody.
#[test]
fn an_owner_shows_one_certificate_and_no_chain() {
    let (cluster, owner) = (Cluster::create(), key(2));
    let certificate = owner_certificate(&owner).unwrap();
    for behind in [certificate.clone(), owner_certificate(&key(4)).unwrap(), cluster.authority.certificate().clone()] {
        let chain = vec![certificate.clone(), behind];
        let owners = Owners::new(vec![owner.public().clone()]);
        assert_eq!(owners.who(Some(&chain[..1])), Ok(Who::Owner(owner.public().clone())));
        assert_eq!(owners.who(Some(&chain)), Err(UnknownOwner));
        assert_eq!(owners.who(Some(&[])), Ok(Who::Stranger), "none at all is no certificate");
        let identity = TlsIdentity { chain, key: &owner };
        let client = pinned(cluster.authority.public().pin(), Some(identity), clock(NOW)).unwrap();
        let refused = handshake(client, cluster.server(&[&owner]), &cluster.name()).err();
        let expected = Error::InvalidCertificate(CertificateError::ApplicationVerificationFailure);
        assert_eq!(refused, Some(expected));
    }
    assert!(handshake(cluster.client(Some(&owner)), cluster.server(&[&owner]), &cluster.name()).is_ok());
}

/// The handshakes of two connections in a row.
fn twice(client: ClientConfig, server: ServerConfig, name: &str) -> [Option<HandshakeKind>; 2] {
    let (client, server) = (Arc::new(client), Arc::new(server));
    [(); 2].map(|()| {
        let finished = connect(&client, &server, name).unwrap();
        assert!(!finished.client.is_early_data_accepted());
        finished.server.handshake_kind()
    })
}

/// A client that would resume, and offer early data.
fn eager(mut client: ClientConfig) -> ClientConfig {
    client.resumption = Resumption::in_memory_sessions(16);
    client.enable_early_data = true;
    client
}

/// A server that remembers sessions and hands out tickets for them.
fn generous(mut server: ServerConfig) -> ServerConfig {
    server.session_storage = ServerSessionMemoryCache::new(16);
    server.send_tls13_tickets = 2;
    server
}

/// Proves: S6. A resumed session would skip the verifier.
#[test]
fn neither_side_resumes_a_session() {
    const FULL: [Option<HandshakeKind>; 2] = [Some(HandshakeKind::Full); 2];
    let (cluster, owner) = (Cluster::create(), key(2));
    let (client, server) = (|| cluster.client(Some(&owner)), || cluster.server(&[&owner]));
    let name = cluster.name();
    // Both would, if it were for them: the test sees a resumption.
    assert_eq!(twice(eager(client()), generous(server()), &name)[1], Some(HandshakeKind::Resumed));
    assert_eq!(twice(eager(client()), server(), &name), FULL, "the server gives nothing to resume from");
    assert_eq!(twice(client(), generous(server()), &name), FULL, "the client keeps nothing");
    let stranger = under_authority(cluster.authority.certificate().clone(), None, clock(NOW)).unwrap();
    assert_eq!(twice(stranger, generous(server()), &name), FULL, "nor does one of a service");
}

/// Proves: S6
#[test]
fn a_server_sends_no_ticket() {
    let (cluster, owner) = (Cluster::create(), key(2));
    let (client, server) = (eager(cluster.client(Some(&owner))), cluster.server(&[&owner]));
    assert_eq!(server.max_early_data_size, 0);
    let finished = handshake(client, server, &cluster.name()).unwrap();
    assert_eq!(finished.client.tls13_tickets_received(), 0);
}

#[test]
fn both_sides_know_two_key_exchanges_and_two_kinds_of_signature() {
    let cluster = Cluster::create();
    let (client, server) = (cluster.client(None), cluster.server(&[]));
    for provider in [client.crypto_provider(), server.crypto_provider()] {
        let groups: Vec<_> = provider.kx_groups.iter().map(|group| group.name()).collect();
        assert_eq!(groups, [NamedGroup::X25519MLKEM768, NamedGroup::X25519], "the hybrid one first");
        let known = provider.signature_verification_algorithms.mapping.iter().map(|(scheme, _)| *scheme);
        let schemes = [SignatureScheme::ED25519, SignatureScheme::ECDSA_NISTP256_SHA256];
        assert_eq!(known.collect::<Vec<_>>(), schemes);
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
