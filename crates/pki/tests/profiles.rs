//! Every profile read back by another parser and compared with a table written by hand; who accepts what, and when.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::time::Duration;

use model::{ClusterId, ClusterRole, MachineId, NodeName, Secret};
use pki::{
    Authority, AuthorityKind, CertificateDer, CertificateProfile, CertificatePurpose, IssueError, LoadError,
    PrivateKey, UnixTime, VerifyError, accept_request, certificate_pem, make_request, verify,
};
use x509_parser::num_bigint::BigUint;
use x509_parser::prelude::{GeneralName, ParsedExtension, X509Certificate};

const VPN: Ipv4Addr = Ipv4Addr::new(10, 118, 0, 1);
const SERVICE: Ipv4Addr = Ipv4Addr::new(10, 96, 0, 1);
/// Id whose first byte is 0: a number begins behind that.
const MACHINE: MachineId = MachineId([0, 0xe7, 0xcd, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16]);
const HOUR: i64 = 3600;
const DAY: i64 = 24 * HOUR;
const NOW: i64 = 1_795_000_000;

fn at(seconds: i64) -> UnixTime {
    UnixTime::since_unix_epoch(Duration::from_secs(seconds.try_into().unwrap()))
}

fn node() -> NodeName {
    NodeName::chosen("node-1").unwrap()
}

fn authorities() -> [Authority; 4] {
    AuthorityKind::ALL.map(|kind| Authority::create(kind, at(NOW)).unwrap())
}

struct Expected {
    profile: CertificateProfile<'static>,
    authority: AuthorityKind,
    server: bool,
    client: bool,
    subject: &'static str,
    names: &'static [&'static str],
    days: i64,
}

fn table(node: &'static NodeName) -> Vec<Expected> {
    use AuthorityKind::{Cairn, Etcd, Front, Kubernetes};
    let row = |profile, authority, (server, client), subject, names, days| Expected {
        profile,
        authority,
        server,
        client,
        subject,
        names,
        days,
    };
    let (server, client, both) = ((true, false), (false, true), (true, true));
    let service = 1;
    vec![
        row(
            CertificateProfile::Machine {
                machine: MachineId([0xab; 16]),
                cluster: ClusterId([0xcd; 16]),
                role: ClusterRole::Coordinator,
            },
            Cairn,
            both,
            "CN=abababababababababababababababab",
            &[
                "dns:abababababababababababababababab.cdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcd.cairn.internal",
                "uri:cairn://cdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcd/coordinator",
            ],
            20 * 365,
        ),
        row(
            CertificateProfile::EtcdServer { machine: MACHINE, node, vpn: VPN },
            Etcd,
            server,
            "CN=server:node-1",
            &["dns:localhost", "ip:127.0.0.1", "ip:10.118.0.1"],
            service,
        ),
        row(
            CertificateProfile::EtcdPeer { machine: MACHINE, node, vpn: VPN },
            Etcd,
            both,
            "CN=peer:node-1",
            &["dns:peer.etcd.cairn.internal", "ip:10.118.0.1"],
            service,
        ),
        row(CertificateProfile::EtcdMachineClient { machine: MACHINE }, Etcd, client, "CN=root", &[], service),
        row(CertificateProfile::EtcdApiserverClient { machine: MACHINE }, Etcd, client, "CN=kubernetes", &[], service),
        row(
            CertificateProfile::Apiserver { vpn: VPN, service: SERVICE },
            Kubernetes,
            server,
            "CN=kube-apiserver",
            &[
                "dns:kubernetes",
                "dns:kubernetes.default",
                "dns:kubernetes.default.svc",
                "dns:kubernetes.default.svc.cluster.local",
                "dns:localhost",
                "ip:127.0.0.1",
                "ip:10.118.0.1",
                "ip:10.96.0.1",
            ],
            service,
        ),
        row(
            CertificateProfile::ApiserverKubeletClient,
            Kubernetes,
            client,
            "O=cairn:apiservers, CN=kube-apiserver-kubelet-client",
            &[],
            service,
        ),
        row(CertificateProfile::ApiserverFront, Front, client, "CN=kube-apiserver", &[], service),
        row(
            CertificateProfile::MetricsServer,
            Kubernetes,
            server,
            "CN=cairn:metrics",
            &["dns:cairn-metrics.kube-system.svc"],
            service,
        ),
        row(
            CertificateProfile::ControllerManager,
            Kubernetes,
            client,
            "CN=system:kube-controller-manager",
            &[],
            service,
        ),
        row(CertificateProfile::Scheduler, Kubernetes, client, "CN=system:kube-scheduler", &[], service),
        row(
            CertificateProfile::KubeletClient { node },
            Kubernetes,
            client,
            "O=system:nodes, CN=system:node:node-1",
            &[],
            service,
        ),
        row(
            CertificateProfile::KubeletServer { node, vpn: VPN },
            Kubernetes,
            server,
            "CN=system:node:node-1",
            &["dns:node-1", "ip:10.118.0.1"],
            service,
        ),
        row(
            CertificateProfile::KubeDns { node },
            Kubernetes,
            client,
            "O=cairn:resolvers, CN=cairn:resolver:node-1",
            &[],
            service,
        ),
        row(
            CertificateProfile::KubeProxy { node },
            Kubernetes,
            client,
            "O=cairn:proxies, CN=cairn:proxy:node-1",
            &[],
            service,
        ),
        row(
            CertificateProfile::KubeCoordinator,
            Kubernetes,
            client,
            "O=cairn:coordinators, CN=cairn:coordinator",
            &[],
            service,
        ),
        row(CertificateProfile::KubeOwner, Kubernetes, client, "O=cairn:owners, CN=cairn:owner", &[], 1),
        row(
            CertificateProfile::LoopbackServer { component: "kube-controllers" },
            Kubernetes,
            server,
            "CN=kube-controllers",
            &["dns:localhost", "ip:127.0.0.1"],
            service,
        ),
    ]
}

fn parse<'a>(certificate: &'a CertificateDer<'_>) -> X509Certificate<'a> {
    let (rest, parsed) = x509_parser::parse_x509_certificate(certificate).unwrap();
    assert!(rest.is_empty());
    parsed
}

#[expect(clippy::wildcard_enum_match_arm, reason = "any other kind of name fails the test")]
fn names_of(certificate: &X509Certificate<'_>) -> Vec<String> {
    let Some(names) = certificate.subject_alternative_name().unwrap() else { return Vec::new() };
    names
        .value
        .general_names
        .iter()
        .map(|name| match name {
            GeneralName::DNSName(name) => format!("dns:{name}"),
            GeneralName::URI(uri) => format!("uri:{uri}"),
            GeneralName::IPAddress(bytes) => {
                format!("ip:{}", Ipv4Addr::from(<[u8; 4]>::try_from(*bytes).expect("an IPv4 address")))
            }
            other => panic!("unexpected name {other:?}"),
        })
        .collect()
}

fn key_ids(certificate: &X509Certificate<'_>) -> (Option<Vec<u8>>, Option<Vec<u8>>) {
    let (mut subject, mut authority) = (None, None);
    for extension in certificate.extensions() {
        if let ParsedExtension::SubjectKeyIdentifier(id) = extension.parsed_extension() {
            subject = Some(id.0.to_vec());
        }
        if let ParsedExtension::AuthorityKeyIdentifier(id) = extension.parsed_extension() {
            authority = id.key_identifier.as_ref().map(|id| id.0.to_vec());
        }
    }
    (subject, authority)
}

/// Proves: W3, S6
#[test]
fn each_profile_says_what_its_row_says_and_nothing_more() {
    let authorities = authorities();
    let node = Box::leak(Box::new(node()));
    let key = PrivateKey::generate().unwrap();
    for expected in table(node) {
        let authority = authorities.iter().find(|authority| authority.kind() == expected.authority).unwrap();
        let certificate = authority.issue(&expected.profile, key.public(), at(NOW)).unwrap();
        let parsed = parse(&certificate);
        let what = expected.profile;
        assert_eq!(parsed.subject().to_string(), expected.subject, "{what:?}");
        assert_eq!(names_of(&parsed), expected.names, "{what:?}");
        let usage = parsed.extended_key_usage().unwrap().expect("always there").value;
        assert_eq!((usage.server_auth, usage.client_auth), (expected.server, expected.client), "{what:?}");
        assert!(!usage.any && !usage.code_signing && usage.other.is_empty(), "{what:?}");
        assert_eq!(parsed.key_usage().unwrap().expect("always there").value.flags, 1, "digitalSignature only");
        let basic = parsed.basic_constraints().unwrap().expect("always there");
        assert!(!basic.value.ca && basic.value.path_len_constraint.is_none(), "{what:?}");
        assert_eq!(parsed.validity().not_before.timestamp(), NOW - HOUR, "{what:?}");
        assert_eq!(parsed.validity().not_after.timestamp(), NOW + expected.days * DAY, "{what:?}");
        let of_authority = key_ids(&parse(authority.certificate())).0;
        let (subject, issuer) = key_ids(&parsed);
        assert!(subject.is_some() && subject != issuer, "{what:?}");
        assert_eq!(issuer, of_authority, "{what:?}");
        assert!(parsed.raw_serial().len() > 8, "random serials are long");
        assert_eq!(parsed.serial == number(MACHINE), expected.authority == AuthorityKind::Etcd, "{what:?}");
    }
}

fn number(machine: MachineId) -> BigUint {
    BigUint::from_bytes_be(&machine.0)
}

/// Proves: S5
#[test]
fn a_revocation_list_names_the_machines_it_revokes() {
    let [_, authority, ..] = authorities();
    let other = MachineId([0xff; 16]);
    for machines in [BTreeSet::new(), [MACHINE].into(), [MACHINE, other].into()] {
        let list = authority.revoke(&machines, at(NOW)).unwrap();
        let (rest, parsed) = x509_parser::parse_x509_crl(&list).unwrap();
        assert!(rest.is_empty());
        assert_eq!(parsed.issuer(), parse(authority.certificate()).subject());
        assert_eq!(parsed.last_update().timestamp(), NOW);
        let revoked: Vec<_> =
            parsed.iter_revoked_certificates().map(|certificate| certificate.serial().clone()).collect();
        assert_eq!(revoked, machines.iter().copied().map(number).collect::<Vec<_>>());
    }
}

/// The machine that signs may have a clock that is a year ahead of those who check.
///
/// Proves: W3
#[test]
fn a_certificate_is_good_from_when_its_authority_is() {
    for authority in authorities() {
        let stored = authority.export_key().unwrap();
        let loaded = Authority::load(authority.kind(), authority.certificate(), stored.expose()).unwrap();
        for expected in table(Box::leak(Box::new(node()))) {
            if expected.authority == loaded.kind() {
                let key = PrivateKey::generate().unwrap();
                let issued = loaded.issue(&expected.profile, key.public(), at(NOW + 365 * DAY)).unwrap();
                let since = parse(&issued).validity().not_before;
                assert_eq!(since, parse(loaded.certificate()).validity().not_before, "{:?}", expected.profile);
            }
        }
    }
}

#[test]
fn the_bootstrap_certificate_lives_for_an_hour() {
    for_an_hour(&CertificateProfile::KubeBootstrap, "O=system:masters, CN=cairn:bootstrap");
}

/// Proves: W9
#[test]
fn a_users_certificate_names_no_group_and_lives_for_an_hour() {
    for_an_hour(&CertificateProfile::KubeUser { name: "alice".parse().unwrap() }, "CN=alice");
}

fn for_an_hour(profile: &CertificateProfile<'_>, subject: &str) {
    let authority = Authority::create(AuthorityKind::Kubernetes, at(NOW)).unwrap();
    let issued = authority.issue_with_key(profile, at(NOW)).unwrap();
    let parsed = parse(&issued.certificate);
    assert_eq!(parsed.subject().to_string(), subject);
    assert_eq!(parsed.validity().not_after.timestamp(), NOW + HOUR);
    assert_eq!(
        parsed.extended_key_usage().unwrap().map(|usage| (usage.value.client_auth, usage.value.server_auth)),
        Some((true, false))
    );
}

#[test]
fn an_authority_may_sign_leaves_only() {
    for authority in authorities() {
        let parsed = parse(authority.certificate());
        let basic = parsed.basic_constraints().unwrap().expect("always there");
        assert!(basic.critical && basic.value.ca);
        assert_eq!(basic.value.path_len_constraint, Some(0));
        let usage = parsed.key_usage().unwrap().expect("always there");
        assert!(usage.critical && usage.value.key_cert_sign() && usage.value.crl_sign());
        assert!(!usage.value.digital_signature());
        assert!(key_ids(&parsed).0.is_some());
    }
}

/// Proves: W7
#[test]
fn a_certificate_of_one_authority_is_refused_by_the_others() {
    let authorities = authorities();
    let profiles = [
        CertificateProfile::Machine {
            machine: MachineId([1; 16]),
            cluster: ClusterId([2; 16]),
            role: ClusterRole::Node,
        },
        CertificateProfile::EtcdApiserverClient { machine: MACHINE },
        CertificateProfile::KubeBootstrap,
    ];
    for (signer, profile) in authorities.iter().zip(profiles) {
        let issued = signer.issue_with_key(&profile, at(NOW)).unwrap();
        for other in &authorities {
            let accepted =
                verify(&issued.certificate, other.certificate(), CertificatePurpose::Client, at(NOW)).is_ok();
            assert_eq!(accepted, other.kind() == signer.kind(), "{} at {}", signer.kind(), other.kind());
            if other.kind() != signer.kind() {
                let refused = other.issue(&profile, issued.key.public(), at(NOW));
                assert!(matches!(refused, Err(IssueError::WrongAuthority { .. })));
            }
        }
    }
    let keys = authorities.each_ref().map(|authority| authority.public().spki());
    assert!(keys[0] != keys[1] && keys[1] != keys[2] && keys[0] != keys[2]);
}

/// Proves: W7
#[test]
fn an_authority_of_the_same_kind_made_anew_is_another() {
    let [old, new] = [1, 2].map(|_| Authority::create(AuthorityKind::Kubernetes, at(NOW)).unwrap());
    let issued = old.issue_with_key(&CertificateProfile::KubeOwner, at(NOW)).unwrap();
    assert!(matches!(
        verify(&issued.certificate, new.certificate(), CertificatePurpose::Client, at(NOW)),
        Err(VerifyError::Path(_))
    ));
}

#[test]
fn time_use_and_name_are_checked() {
    let node = node();
    let authority = Authority::create(AuthorityKind::Etcd, at(NOW)).unwrap();
    let issued = authority
        .issue_with_key(&CertificateProfile::EtcdServer { machine: MACHINE, node: &node, vpn: VPN }, at(NOW))
        .unwrap();
    let check = |purpose, now| verify(&issued.certificate, authority.certificate(), purpose, at(now));
    for name in ["localhost", "127.0.0.1", "10.118.0.1"] {
        assert!(check(CertificatePurpose::Server(name), NOW).is_ok(), "{name}");
    }
    for name in ["node-1", "10.118.0.2", "localhost.localdomain"] {
        assert!(matches!(check(CertificatePurpose::Server(name), NOW), Err(VerifyError::WrongName(_))), "{name}");
    }
    assert!(matches!(check(CertificatePurpose::Server("no name at all"), NOW), Err(VerifyError::Name)));
    assert!(matches!(check(CertificatePurpose::Client, NOW), Err(VerifyError::Path(_))), "a server is no client");
    assert!(check(CertificatePurpose::Server("localhost"), NOW - HOUR).is_ok(), "clocks may differ by an hour");
    assert!(matches!(check(CertificatePurpose::Server("localhost"), NOW - HOUR - 1), Err(VerifyError::Path(_))));
    assert!(matches!(check(CertificatePurpose::Server("localhost"), NOW + 366 * DAY), Err(VerifyError::Path(_))));
}

#[test]
fn a_certificate_without_a_purpose_is_good_for_nothing() {
    let authority = Authority::create(AuthorityKind::Etcd, at(NOW)).unwrap();
    let signer = PrivateKey::from_pkcs8(authority.export_key().unwrap().expose()).unwrap();
    let mut of_authority = rcgen::CertificateParams::default();
    of_authority.distinguished_name = rcgen::DistinguishedName::new();
    let subject =
        parse(authority.certificate()).subject().iter_common_name().next().unwrap().as_str().unwrap().to_owned();
    of_authority.distinguished_name.push(rcgen::DnType::CommonName, subject);
    let issuer = rcgen::Issuer::new(of_authority, &signer);
    let key = PrivateKey::generate().unwrap();
    let mut params = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    let mut signed = |usages: &[rcgen::ExtendedKeyUsagePurpose]| {
        params.extended_key_usages = usages.to_vec();
        CertificateDer::from(params.signed_by(key.public(), &issuer).unwrap())
    };
    let (silent, told) = (signed(&[]), signed(&[rcgen::ExtendedKeyUsagePurpose::ClientAuth]));
    let check = |leaf, purpose| verify(leaf, authority.certificate(), purpose, at(NOW));
    assert!(check(&told, CertificatePurpose::Client).is_ok());
    assert!(matches!(check(&silent, CertificatePurpose::Client), Err(VerifyError::Path(_))));
    assert!(matches!(check(&silent, CertificatePurpose::Server("localhost")), Err(VerifyError::Path(_))));
}

#[test]
fn no_certificate_outlives_its_authority() {
    let authority = Authority::create(AuthorityKind::Kubernetes, at(NOW)).unwrap();
    let end = parse(authority.certificate()).validity().not_after.timestamp();
    let issued = authority.issue_with_key(&CertificateProfile::Scheduler, at(end - DAY)).unwrap();
    assert_eq!(parse(&issued.certificate).validity().not_after.timestamp(), end);
    assert!(matches!(authority.issue_with_key(&CertificateProfile::Scheduler, at(end)), Err(IssueError::Expired(_))));
}

/// Proves: S6
#[test]
fn a_stored_authority_goes_on_where_it_stopped() {
    for authority in authorities() {
        let key = authority.export_key().unwrap();
        let again = Authority::load(authority.kind(), authority.certificate(), key.expose()).unwrap();
        let profile = match authority.kind() {
            AuthorityKind::Cairn => CertificateProfile::Machine {
                machine: MachineId([1; 16]),
                cluster: ClusterId([2; 16]),
                role: ClusterRole::Node,
            },
            AuthorityKind::Etcd => CertificateProfile::EtcdMachineClient { machine: MACHINE },
            AuthorityKind::Kubernetes => CertificateProfile::KubeOwner,
            AuthorityKind::Front => CertificateProfile::ApiserverFront,
        };
        let issued = again.issue_with_key(&profile, at(NOW + DAY)).unwrap();
        assert!(
            verify(&issued.certificate, authority.certificate(), CertificatePurpose::Client, at(NOW + DAY)).is_ok()
        );
    }
}

#[test]
fn a_stored_authority_that_does_not_fit_is_refused() {
    let [cairn, etcd, ..] = authorities();
    let (cairn_key, etcd_key) = (cairn.export_key().unwrap(), etcd.export_key().unwrap());
    let load = |kind, certificate: &[u8], key: &[u8]| Authority::load(kind, certificate, key).map(|_| ());
    let kind = AuthorityKind::Cairn;
    assert!(matches!(load(kind, etcd.certificate(), cairn_key.expose()), Err(LoadError::Mismatch)));
    assert!(matches!(load(kind, etcd.certificate(), etcd_key.expose()), Err(LoadError::WrongKind(_))));
    assert!(matches!(load(kind, b"", cairn_key.expose()), Err(LoadError::Certificate)));
    assert!(matches!(load(kind, cairn.certificate(), b""), Err(LoadError::Key(_))));
    let leaf = etcd.issue_with_key(&CertificateProfile::EtcdMachineClient { machine: MACHINE }, at(NOW)).unwrap();
    let leaf_key = leaf.key.to_pkcs8().unwrap();
    assert!(matches!(load(kind, &leaf.certificate, leaf_key.expose()), Err(LoadError::Certificate)));
}

/// Proves: Q1
#[test]
fn a_request_gives_its_key_and_nothing_else_to_the_certificate() {
    let authority = Authority::create(AuthorityKind::Kubernetes, at(NOW)).unwrap();
    let key = PrivateKey::ed25519(&Secret::take(&mut [5; 32])).unwrap();
    let public = accept_request(&make_request(&key).unwrap()).unwrap();
    let certificate = authority.issue(&CertificateProfile::KubeOwner, &public, at(NOW)).unwrap();
    assert_eq!(parse(&certificate).public_key().raw, key.public().spki());
    assert!(verify(&certificate, authority.certificate(), CertificatePurpose::Client, at(NOW)).is_ok());
    assert!(certificate_pem(&certificate).starts_with("-----BEGIN CERTIFICATE-----\n"));
}
