//! The enrolment config against what people, tools and attackers make of it: every refusal has its own message.

use formats::strict::FormatError;
use keys::identity::SigningKey;
use keys::network::{NetworkWire, PrefixWire, network_to_wire, prefix_to_wire};
use model::{Chain, ClusterId, Ipv4Prefix, Level, NetworkConfig, POD_PREFIX};
use prost::Message as _;

use crate::config::{
    ConfigError, ConfigWire, CreateWire, EnrolmentConfig, Intent, IntentWire, MOST_CONFIG_BYTES, PolicyError,
    RedeemWire, SignedWire, TpmPresence, WithoutTpm, digest, read, sign_body,
};
use crate::fixture::{config, network, owner, redeeming, secret};

fn good() -> EnrolmentConfig {
    config(Level::Authenticated, WithoutTpm::Refuse)
}

/// A good config, edited and then signed by its owner.
fn edited(edit: impl FnOnce(&mut ConfigWire)) -> Vec<u8> {
    let mut wire = good().to_wire();
    edit(&mut wire);
    wire.sign(&owner()).to_vec()
}

/// A good config that joins, edited and then signed by its owner.
fn joining(edit: impl FnOnce(&mut ConfigWire)) -> Vec<u8> {
    let mut wire = redeeming(Level::Authenticated, WithoutTpm::Refuse).to_wire();
    edit(&mut wire);
    wire.sign(&owner()).to_vec()
}

fn redeem(edit: impl FnOnce(&mut RedeemWire)) -> Vec<u8> {
    joining(|wire| match &mut wire.intent {
        Some(IntentWire::Redeem(redeem)) => edit(redeem),
        Some(IntentWire::Create(_) | IntentWire::Register(_)) | None => panic!("the fixture joins"),
    })
}

/// The same with what `edit` makes of the ticket's bytes.
fn ticket(edit: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    joining(|wire| edit(wire.golden_ticket.as_mut().expect("the fixture has a ticket")))
}

/// A body with bytes appended, signed by its owner.
fn joining_with(bytes: &[u8]) -> Vec<u8> {
    let body = redeeming(Level::Authenticated, WithoutTpm::Refuse).to_wire().encode_to_vec();
    sign_body([&body, bytes].concat(), &owner()).to_vec()
}

/// A message `redeem` of these bytes and nothing else.
fn only_redeem(bytes: &[u8]) -> Vec<u8> {
    let mut body = vec![0x18, 1, 0x3a, u8::try_from(bytes.len()).expect("a few bytes")];
    body.extend_from_slice(bytes);
    sign_body(body, &owner()).to_vec()
}

fn create(edit: impl FnOnce(&mut CreateWire)) -> Vec<u8> {
    edited(|wire| match &mut wire.intent {
        Some(IntentWire::Create(create)) => edit(create),
        Some(IntentWire::Redeem(_) | IntentWire::Register(_)) | None => panic!("the fixture creates"),
    })
}

/// A good body with bytes appended, signed by its owner.
fn appended(bytes: &[u8]) -> Vec<u8> {
    sign_body([&good().to_wire().encode_to_vec(), bytes].concat(), &owner()).to_vec()
}

/// A good config with its envelope edited, not signed again.
fn envelope(edit: impl FnOnce(&mut SignedWire)) -> Vec<u8> {
    let bytes = good().to_wire().sign(&owner());
    let mut signed = SignedWire::decode(bytes.as_slice()).expect("our own");
    edit(&mut signed);
    signed.encode_to_vec()
}

fn static_network(edit: impl FnOnce(&mut [u8; 4], &mut u8, &mut [u8; 4], &mut Vec<[u8; 4]>)) -> Vec<u8> {
    let (mut address, mut bits, mut gateway, mut dns) = ([192, 0, 2, 10], 24, [192, 0, 2, 1], vec![[192, 0, 2, 53]]);
    edit(&mut address, &mut bits, &mut gateway, &mut dns);
    let network = NetworkConfig::Static {
        address: address.into(),
        prefix_bits: bits,
        gateway: Some(gateway.into()),
        dns: dns.into_iter().map(Into::into).collect(),
    };
    edited(|wire| wire.network = network_to_wire(&network))
}

fn vpn(text: &str) -> Vec<u8> {
    let prefix: Ipv4Prefix = text.parse().expect("a prefix");
    create(|create| create.vpn_prefix = prefix_to_wire(prefix))
}

fn raw_prefix(bytes: &[u8]) -> PrefixWire {
    PrefixWire::decode(bytes).expect("a prefix on the wire")
}

/// Proves: S1 S2 S11
#[test]
fn every_malformed_config_is_refused_with_its_own_message() {
    let whole = good().to_wire().sign(&owner()).to_vec();
    let prefix = "the enrolment config";
    let rows: Vec<(&str, Vec<u8>, &str)> = vec![
        // the envelope
        ("an empty file", vec![], " is malformed: Signed is empty"),
        ("a file of zeros", vec![0; 512], " is malformed: Signed has an unknown field 0"),
        ("text", b"node_id: worker\n".to_vec(), " is malformed: Signed has an unknown field 13"),
        ("cut short", whole[..whole.len() - 1].to_vec(), " is malformed: Signed ends in the middle of a field"),
        ("trailing bytes", [&whole[..], &[0x18, 0]].concat(), " is malformed: Signed has an unknown field 3"),
        ("two configs", [&whole[..], &whole].concat(), " is malformed: field body of Signed occurs twice"),
        ("a megabyte", vec![0; 1 << 20], " has 1048576 bytes, at most 65536 are read"),
        ("no signature", whole[..whole.len() - 66].to_vec(), " is malformed: Signed lacks field signature"),
        ("a short signature", envelope(|it| it.signature.truncate(63)), "'s signature has 63 bytes instead of 64"),
        (
            "an edited body",
            envelope(|it| *it.body.last_mut().expect("a body") ^= 3),
            " is not signed by the owner it names, or was changed since",
        ),
        (
            "another's signature",
            good().to_wire().sign(&SigningKey::from_seed(secret(9))).to_vec(),
            " is not signed by the owner it names, or was changed since",
        ),
        ("an empty body", sign_body(vec![], &owner()).to_vec(), " is malformed: EnrolmentConfig is empty"),
        // the body's shape
        ("version 0", edited(|it| it.version = 0), " has the unknown version 0"),
        ("a newer version", edited(|it| it.version = 2), " was written by a newer Cairn (version 2)"),
        (
            "a newer version with newer fields",
            sign_body(vec![0x18, 7, 0x7a, 1, 1], &owner()).to_vec(),
            " was written by a newer Cairn (version 7)",
        ),
        (
            "no version",
            sign_body(vec![0x12, 1, b'a'], &owner()).to_vec(),
            " is malformed: EnrolmentConfig lacks field version",
        ),
        ("an unknown field", appended(&[0x7a, 1, 1]), " is malformed: EnrolmentConfig has an unknown field 15"),
        (
            "a second node_id",
            appended(&[0x12, 1, b'b']),
            " is malformed: field node_id of EnrolmentConfig occurs twice",
        ),
        ("a second version", appended(&[0x18, 1]), " is malformed: field version of EnrolmentConfig occurs twice"),
        ("two intents", appended(&[0x3a, 0]), " is malformed: EnrolmentConfig has more than one intent"),
        ("no intent", edited(|it| it.intent = None), " is malformed: EnrolmentConfig lacks one of its intent fields"),
        (
            "a number for a text",
            sign_body(vec![0x18, 1, 0x10, 1], &owner()).to_vec(),
            " is malformed: field node_id of EnrolmentConfig has the wrong wire type",
        ),
        (
            "a node_id that is not UTF-8",
            sign_body(vec![0x18, 1, 0x12, 1, 0xff], &owner()).to_vec(),
            " is malformed: field node_id of EnrolmentConfig is not UTF-8",
        ),
        ("an overlong number", appended(&[0x98, 0x00, 1]), " is malformed: EnrolmentConfig holds an overlong number"),
        // its fields
        (
            "an empty node_id",
            edited(|it| it.node_id = Some(String::new())),
            "'s node_id cannot be used: a node name is 1 to 63 of a-z, 0-9 and inner hyphens",
        ),
        (
            "a node_id in capitals",
            edited(|it| it.node_id = Some("Worker".into())),
            "'s node_id cannot be used: a node name is 1 to 63 of a-z, 0-9 and inner hyphens",
        ),
        (
            "a derived node_id",
            edited(|it| it.node_id = Some("m-0123456789ab".into())),
            "'s node_id cannot be used: names of the form m- and 12 hex digits are kept for names derived from the \
             machine's id",
        ),
        (
            "a short first contact",
            edited(|it| it.first_contact.truncate(16)),
            "'s first contact secret has 16 bytes instead of 32",
        ),
        ("a zero first contact", edited(|it| it.first_contact.fill(0)), "'s first contact secret is all zeros"),
        (
            "no network",
            edited(|it| it.network = NetworkWire::default()),
            " is malformed: Network lacks one of its way fields",
        ),
        // its network
        (
            "a loopback address",
            static_network(|address, _, _, _| *address = [127, 0, 0, 1]),
            "'s network cannot be used: 127.0.0.1 is not an address a machine can have",
        ),
        (
            "a prefix of no bits",
            static_network(|_, bits, _, _| *bits = 0),
            "'s network cannot be used: a static address has a prefix of 8 to 32 bits, not 0",
        ),
        (
            "a far gateway",
            static_network(|_, _, gateway, _| *gateway = [198, 51, 100, 1]),
            "'s network cannot be used: the gateway 198.51.100.1 is not a neighbour of the static address",
        ),
        (
            "a multicast resolver",
            static_network(|_, _, _, dns| dns.push([224, 0, 0, 1])),
            "'s network cannot be used: 224.0.0.1 is not an address a resolver can have",
        ),
        (
            "four resolvers",
            static_network(|_, _, _, dns| *dns = vec![[192, 0, 2, 53]; 4]),
            "'s network cannot be used: a static network names at most 3 resolvers",
        ),
        (
            "an address among the pods",
            static_network(|address, _, gateway, _| (*address, *gateway) = ([10, 244, 3, 2], [10, 244, 3, 1])),
            "'s network cannot be used: the machine's network does not fit: 10.244.3.2/24 overlaps 10.244.0.0/16, which is \
             kept for pods",
        ),
        (
            "an address beside the VPN in a prefix around it",
            static_network(|address, bits, gateway, _| {
                (*address, *bits, *gateway) = ([10, 119, 0, 2], 15, [10, 119, 0, 1]);
            }),
            "'s network cannot be used: the machine's network does not fit: 10.119.0.2/15 overlaps 10.118.0.0/16, which is \
             kept for the VPN",
        ),
        (
            "a prefix for half of all addresses",
            static_network(|_, bits, _, _| *bits = 1),
            "'s network cannot be used: a static address has a prefix of 8 to 32 bits, not 1",
        ),
        (
            "a resolver among the services",
            static_network(|_, _, _, dns| *dns = vec![[10, 96, 0, 10]]),
            "'s network cannot be used: the machine's network does not fit: the resolver 10.96.0.10 lies in 10.96.0.0/16, \
             which is kept for services",
        ),
        // what is to be created
        ("a short owner key", create(|it| it.owner_pub_key.truncate(31)), "'s owner key has 31 bytes instead of 32"),
        (
            "a long recovery key",
            create(|it| it.owner_recovery_pub_key.push(0)),
            "'s recovery key has 33 bytes instead of 32",
        ),
        (
            "a recovery key of small order",
            create(|it| it.owner_recovery_pub_key = vec![0; 32]),
            "'s recovery key is not a usable X25519 public key",
        ),
        ("no level", create(|it| it.level = 0), " asks for the unknown level 0"),
        ("an unknown level", create(|it| it.level = 9), " asks for the unknown level 9"),
        ("an unknown policy", create(|it| it.cold_start = 3), " asks for the unknown cold start policy 3"),
        ("an unknown role", create(|it| it.kubernetes_roles.push(7)), " names the unknown Kubernetes role 7"),
        ("a role twice", create(|it| it.kubernetes_roles = vec![2, 2]), " names the Kubernetes role worker twice"),
        (
            "a VPN among the pods",
            vpn(&POD_PREFIX.to_string()),
            "'s network cannot be used: 10.244.0.0/16, the prefix of the VPN, overlaps 10.244.0.0/16, which is kept for pods",
        ),
        (
            "a VPN around the services",
            vpn("10.0.0.0/8"),
            "'s network cannot be used: 10.0.0.0/8, the prefix of the VPN, overlaps 10.244.0.0/16, which is kept for pods",
        ),
        (
            "a VPN in half of the pods",
            vpn("10.244.128.0/17"),
            "'s network cannot be used: 10.244.128.0/17, the prefix of the VPN, overlaps 10.244.0.0/16, which is kept for pods",
        ),
        (
            "a VPN without room",
            vpn("10.118.0.0/25"),
            "'s network cannot be used: the prefix of the VPN has 8 to 24 bits, not 25",
        ),
        (
            "a VPN of multicast addresses",
            vpn("224.0.0.0/16"),
            "'s network cannot be used: 224.0.0.0/16, the prefix of the VPN, is not for ordinary unicast addresses",
        ),
        (
            "a VPN with host bits",
            create(|it| it.vpn_prefix = raw_prefix(&[0x0d, 1, 0, 118, 10, 0x10, 16])),
            "'s network cannot be used: the prefix of the VPN is none: the address has bits set beyond the prefix",
        ),
        (
            "services of more than the apiserver takes",
            create(|it| it.services_prefix = Some(prefix_to_wire("11.0.0.0/11".parse().expect("a prefix")))),
            "'s network cannot be used: the prefix of services has 12 to 24 bits, not 11",
        ),
        (
            "pods among the services",
            create(|it| it.pods_prefix = Some(prefix_to_wire("10.96.4.0/22".parse().expect("a prefix")))),
            "'s network cannot be used: 10.96.4.0/22, the prefix of pods, overlaps 10.96.0.0/16, which is kept for services",
        ),
        (
            "a VPN around the machine",
            vpn("192.0.0.0/16"),
            "'s network cannot be used: the machine's network does not fit: 192.0.2.10/24 overlaps 192.0.0.0/16, which is \
             kept for the VPN",
        ),
    ];
    for (what, bytes, message) in &rows {
        let error = read(bytes).map(|_| ()).expect_err(what);
        assert_eq!(Chain(&error).to_string(), format!("{prefix}{message}"), "{what}: each cause is told once");
    }
    let distinct: std::collections::HashSet<_> = rows.iter().map(|(_, bytes, _)| bytes).collect();
    assert_eq!(distinct.len(), rows.len(), "each row is another config");
    assert!(rows.len() >= 30);
}

/// Proves: S3 S8
#[test]
fn every_malformed_config_that_joins_has_its_own_message() {
    let none = " cannot be used: the ticket";
    let malformed = " cannot be used: the ticket is malformed: ";
    let endpoints = |count: u8| -> Vec<u8> {
        (1..=count).flat_map(|n| [&[0x22, 3][..], format!("a:{n}").as_bytes()].concat()).collect()
    };
    let rows: Vec<(&str, Vec<u8>, String)> = vec![
        // what is asked for
        ("an empty redeem", only_redeem(&[]), " is malformed: Redeem lacks field owner_pub_key".into()),
        ("no level", only_redeem(&[10, 1, 7]), " is malformed: Redeem lacks field level".into()),
        ("no word on TPMs", only_redeem(&[10, 1, 7, 16, 2]), " is malformed: Redeem lacks field unprotected".into()),
        ("a fourth field", only_redeem(&[0x20, 1]), " is malformed: Redeem has an unknown field 4".into()),
        ("two levels", only_redeem(&[16, 2, 16, 2]), " is malformed: field level of Redeem occurs twice".into()),
        (
            "neither yes nor no",
            only_redeem(&[24, 2]),
            " is malformed: field unprotected of Redeem is out of range".into(),
        ),
        (
            "a text for a number",
            only_redeem(&[18, 0]),
            " is malformed: field level of Redeem has the wrong wire type".into(),
        ),
        ("cut inside", only_redeem(&[10, 9, 7]), " is malformed: Redeem ends in the middle of a field".into()),
        ("overlong", only_redeem(&[16, 0x82, 0]), " is malformed: Redeem holds an overlong number".into()),
        (
            "redeem twice",
            joining_with(&[0x3a, 0]),
            " is malformed: field redeem of EnrolmentConfig occurs twice".into(),
        ),
        ("and create", joining_with(&[0x32, 0]), " is malformed: EnrolmentConfig has more than one intent".into()),
        (
            "two tickets",
            joining_with(&[10, 0]),
            " is malformed: field golden_ticket of EnrolmentConfig occurs twice".into(),
        ),
        (
            "a short owner key",
            redeem(|it| it.owner_pub_key.truncate(31)),
            "'s owner key has 31 bytes instead of 32".into(),
        ),
        (
            "another owner's key",
            redeem(|it| it.owner_pub_key[0] ^= 1),
            " is not signed by the owner it names, or was changed since".into(),
        ),
        ("level 0", redeem(|it| it.level = 0), " asks for the unknown level 0".into()),
        ("an unknown level", redeem(|it| it.level = 9), " asks for the unknown level 9".into()),
        // the ticket
        ("no ticket", joining(|it| it.golden_ticket = None), " asks to redeem a ticket, and holds none".into()),
        (
            "a ticket to create with",
            edited(|it| it.golden_ticket = Some(vec![1; 32])),
            " holds a ticket, and does not ask to redeem it".into(),
        ),
        ("an empty ticket", ticket(Vec::clear), format!("'s ticket{malformed}Ticket is empty")),
        ("a ticket of zeros", ticket(|it| it.fill(0)), format!("'s ticket{malformed}Ticket has an unknown field 0")),
        (
            "a ticket as text",
            ticket(|it| *it = b"cairn-ticket-aaaa".to_vec()),
            format!("'s ticket{malformed}Ticket ends in the middle of a field"),
        ),
        (
            "a cut ticket",
            ticket(|it| it.truncate(40)),
            format!("'s ticket{malformed}Ticket ends in the middle of a field"),
        ),
        (
            "half a ticket",
            ticket(|it| it.truncate(20)),
            format!("'s ticket{malformed}Ticket lacks field ca_spki_sha256"),
        ),
        (
            "a field more",
            ticket(|it| it.extend([0x40, 1])),
            format!("'s ticket{malformed}Ticket has an unknown field 8"),
        ),
        (
            "two seeds",
            ticket(|it| it.extend([0x2a, 0])),
            format!("'s ticket{malformed}field seed of Ticket occurs twice"),
        ),
        (
            "a large ticket",
            ticket(|it| it.resize(4097, 0)),
            format!("'s ticket{none} has 4097 bytes, at most 4096 are read"),
        ),
        ("a newer ticket", ticket(|it| it[1] = 2), format!("'s ticket{none} was written by a newer Cairn (version 2)")),
        ("version 0", ticket(|it| it[1] = 0), format!("'s ticket{none} has the unknown version 0")),
        (
            "a short cluster id",
            ticket(|it| *it = vec![8, 1, 18, 1, 7, 26, 0, 42, 0, 48, 0]),
            format!("'s ticket{none}'s cluster id has 1 bytes instead of 16"),
        ),
        (
            "a short pin",
            ticket(|it| {
                it.truncate(20);
                it.extend([26, 1, 7, 42, 0, 48, 0]);
            }),
            format!("'s ticket{none}'s CA pin has 1 bytes instead of 32"),
        ),
        (
            "nobody to ask",
            ticket(|it| {
                it.truncate(54);
                it.extend([42, 0, 48, 0]);
            }),
            format!("'s ticket{none} names no coordinator"),
        ),
        (
            "nine to ask",
            ticket(|it| it.extend(endpoints(8))),
            format!("'s ticket{none}'s coordinators cannot be reached: at most 8 endpoints are named, not 9"),
        ),
        (
            "one to ask, twice",
            ticket(|it| it.extend([endpoints(1), endpoints(1)].concat())),
            format!("'s ticket{none}'s coordinators cannot be reached: an endpoint is named twice"),
        ),
        (
            "no endpoint",
            ticket(|it| it.extend([0x22, 1, b'a'])),
            format!("'s ticket{none}'s coordinators cannot be reached: an endpoint is a host and a port: host:port"),
        ),
        // what it has in common with one that creates
        ("a zero first contact", joining(|it| it.first_contact.fill(0)), "'s first contact secret is all zeros".into()),
        (
            "a node_id in capitals",
            joining(|it| it.node_id = Some("Worker".into())),
            "'s node_id cannot be used: a node name is 1 to 63 of a-z, 0-9 and inner hyphens".into(),
        ),
        (
            "no network",
            joining(|it| it.network = NetworkWire::default()),
            " is malformed: Network lacks one of its way fields".into(),
        ),
    ];
    for (what, bytes, message) in &rows {
        let error = read(bytes).map(|_| ()).expect_err(what);
        assert_eq!(Chain(&error).to_string(), format!("the enrolment config{message}"), "{what}");
    }
    let distinct: std::collections::HashSet<_> = rows.iter().map(|(_, bytes, _)| bytes).collect();
    assert_eq!(distinct.len(), rows.len(), "each row is another config");
    assert!(rows.len() >= 30);
}

/// Proves: S1
#[test]
fn what_this_version_cannot_serve_is_called_that() {
    let register = edited(|it| it.intent = Some(IntentWire::Register(vec![])));
    assert_eq!(read(&register).map(|_| ()), Err(ConfigError::Unserved(PolicyError::Register)));
    assert_eq!(
        Chain(&ConfigError::from(PolicyError::Register)).to_string(),
        "this version of Cairn cannot serve the enrolment config: it asks to register, and machines cannot join by \
         approval yet"
    );
}

/// Proves: D5
#[test]
fn automatic_without_a_tpm_needs_the_owners_word() {
    assert_eq!(good().fits(TpmPresence::Present), Ok(()));
    assert_eq!(good().fits(TpmPresence::Absent), Err(PolicyError::NoTpm));
    assert_eq!(good().fits(TpmPresence::ZeroPcr(7)), Err(PolicyError::ZeroPcr(7)));
    let unprotected = config(Level::Insecure, WithoutTpm::Unprotected);
    assert_eq!(unprotected.fits(TpmPresence::Absent), Ok(()));
    assert_eq!(unprotected.fits(TpmPresence::Present), Ok(()));
    // A firmware that lies is no reason to do without: the owner allowed a machine that has no TPM.
    assert_eq!(unprotected.fits(TpmPresence::ZeroPcr(7)), Err(PolicyError::ZeroPcr(7)));
    assert_eq!(unprotected.fits(TpmPresence::ZeroPcr(4)), Err(PolicyError::ZeroPcr(4)));
}

/// Proves: S1 S11
#[test]
fn a_signed_config_reads_as_it_was_written() {
    for level in Level::ALL {
        let written = config(*level, WithoutTpm::Unprotected);
        let bytes = written.sign(&owner()).expect("a machine takes it");
        let read = read(&bytes).expect("reads");
        let (Intent::Create(creates), Intent::Create(expected)) = (&read.config.intent, &written.intent) else {
            panic!("it creates")
        };
        assert_eq!(creates, expected);
        assert_eq!((&read.config.node, &read.config.network), (&written.node, &network()));
        assert_eq!(read.config.first_contact.expose(), written.first_contact.expose());
        assert_eq!(read.digest, digest(&bytes));
    }
    let joins = redeeming(Level::Encrypted, WithoutTpm::Unprotected);
    let again = read(&joins.sign(&owner()).expect("a machine takes it")).expect("reads").config;
    let (Intent::Redeem(again), Intent::Redeem(written)) = (&again.intent, &joins.intent) else { panic!("it joins") };
    assert_eq!(again.ticket.encode(), written.ticket.encode());
    assert_eq!((again.level, again.without_tpm), (Level::Encrypted, WithoutTpm::Unprotected));
    assert_eq!(again.owner_pub_key.0, owner().public());
    let plain = EnrolmentConfig { node: None, network: NetworkConfig::Dhcp, ..good() };
    let bytes = plain.sign(&owner()).expect("a machine takes it");
    let read = read(&bytes).expect("reads").config;
    assert_eq!((read.node, read.network), (None, NetworkConfig::Dhcp));
}

#[test]
fn the_cli_cannot_write_what_a_machine_refuses() {
    let other = SigningKey::from_seed(secret(9));
    assert_eq!(good().sign(&other).map(|_| ()), Err(ConfigError::Signature));
    let mut colliding = good();
    let Intent::Create(create) = &mut colliding.intent else { panic!("it creates") };
    create.prefixes.vpn = POD_PREFIX;
    assert!(matches!(colliding.sign(&owner()), Err(ConfigError::Network(_))));
}

#[test]
fn the_largest_config_is_read_to_its_end() {
    let error = read(&vec![0x0a; MOST_CONFIG_BYTES]).map(|_| ());
    assert_ne!(error, Err(ConfigError::TooLarge(MOST_CONFIG_BYTES)));
    assert!(matches!(error, Err(ConfigError::Malformed(FormatError::Truncated("Signed") | FormatError::Twice { .. }))));
}

/// The bytes of whole configs; Ed25519 signs without random numbers, so the signature is fixed too.
/// `CAIRN_BLESS=1 cargo test -p enrol` rewrites them when the format changes.
#[test]
fn a_config_has_its_known_bytes() {
    golden("config.hex", &config(Level::Authenticated, WithoutTpm::Refuse));
    let mut joins = redeeming(Level::Encrypted, WithoutTpm::Refuse);
    let Intent::Redeem(redeem) = &mut joins.intent else { panic!("it joins") };
    (redeem.ticket.cluster, redeem.ticket.ca_spki) = (ClusterId([0xc1; 16]), [0xca; 32]);
    golden("config-redeem.hex", &joins);
}

fn golden(name: &str, config: &EnrolmentConfig) {
    let bytes = config.sign(&owner()).expect("a machine takes it");
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let lines: Vec<_> = hex.as_bytes().chunks(64).map(|line| String::from_utf8_lossy(line)).collect();
    let text = lines.join("\n") + "\n";
    let path = format!("{}/golden/{name}", env!("CARGO_MANIFEST_DIR"));
    if std::env::var_os("CAIRN_BLESS").is_some() {
        std::fs::write(&path, &text).expect("golden files can be written");
    }
    let golden = std::fs::read_to_string(&path).expect("the golden file is committed");
    assert_eq!(text, golden, "{name}: a format is changed in FORMATS.md, the code and here in one step");
}
