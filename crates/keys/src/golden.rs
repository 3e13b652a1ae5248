//! Known-answer vectors: the bytes of every format and the output of every derivation, as files in `golden/`.
//!
//! The fixtures serve the tests of other modules too. Trailing zeros are left out of the files. `CAIRN_BLESS=1 cargo test -p keys` rewrites them when a format changes.

use std::convert::Infallible;
use std::fmt::Write as _;
use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::Arc;

use data_encoding::HEXLOWER;
use model::{
    Assignment, BootClass, ClusterId, ClusterKey, ColdStart, ConfigDigest, DiskUuid, FirstContact, KubernetesRole,
    Level, LocalKey, MachineId, MasterSecret, NetworkConfig, NodeName, PcrSelection, Prefixes, SealRoot, Secret, Uuid,
    VPN_PREFIX, VolumeKey, VpnPrivKey,
};
use prost::Message as _;

use crate::activation::{ActivationCaller, BlankMachine, Code, Connection};
use crate::assignment;
use crate::attempt::{self, Attempt};
use crate::binding::{Binding, TpmObject};
use crate::cold_start::Epoch;
use crate::data_key::{ClusterHalf, DataKey, HeaderExpectation, HeaderFields, Holder};
use crate::directory::{self, Coordinator, Directory, DirectoryMinimum, Notes};
use crate::first_contact::{Transcript, prove};
use crate::header::{Copies, Header, HeaderState, Suite};
use crate::identity::{Identity, SigningKey, cluster_id, cluster_key, kubernetes_secrets_key, machine_id};
use crate::purpose::Purpose;
use crate::record::Record;
use crate::recovery::{self, RecoveryPubKey, SealedToOwner, SecretContext, SecretKind};
use crate::seal::{self, Body, Clear};
use crate::share::{Share, ShareKey};
use crate::two_slot::{File, Slot};

pub(crate) const DISK: DiskUuid = DiskUuid(Uuid([0xd0; 16]));
const CLUSTER: ClusterId = ClusterId([0xc0; 16]);

/// `first`, `first + 1`, …: bytes that show when a part is swapped or shifted.
pub(crate) fn bytes<const N: usize>(first: u8) -> [u8; N] {
    std::array::from_fn(|at| first.wrapping_add(u8::try_from(at % 256).expect("below 256")))
}

pub(crate) fn key(first: u8) -> Secret<32> {
    Secret::take(&mut bytes(first))
}

pub(crate) fn local() -> LocalKey {
    LocalKey(key(0x10))
}

pub(crate) fn half(first: u8) -> ClusterHalf {
    ClusterHalf { key: ClusterKey(key(first)), disk: DISK, generation: 1, next: None }
}

pub(crate) fn holder() -> Holder {
    Holder { cluster: CLUSTER, machine: identity_machine() }
}

pub(crate) fn identity_machine() -> MachineId {
    machine_id(&SigningKey::from_seed(key(0x50)).public())
}

pub(crate) fn data_key() -> DataKey {
    DataKey::fresh(VolumeKey(key(0x30)))
}

pub(crate) fn wrapping(state: HeaderState, generation: u64) -> HeaderFields {
    HeaderFields {
        state,
        generation,
        disk: DISK,
        suite: Suite::Authenticated,
        key_generation: 1,
        salt: bytes(0x40),
        owner: Some(SealedToOwner { encapsulated: bytes(0x80), ciphertext: bytes(0xa0) }),
    }
}

pub(crate) fn header(state: HeaderState, generation: u64) -> Header {
    data_key().wrap(&wrapping(state, generation), &local(), &half(0x20).key, &holder())
}

pub(crate) fn expected() -> HeaderExpectation {
    HeaderExpectation { holder: holder(), disk: DISK, level: Level::Authenticated, minimum: 1 }
}

pub(crate) fn copies(first: &Header, second: &Header) -> Copies {
    Copies::read(&first.to_bytes()[..], &second.to_bytes()[..])
}

pub(crate) fn clear() -> Clear {
    Clear {
        binding: Binding::Tpm(TpmObject {
            pcrs: PcrSelection::of(&[0, 2, 4, 7, 11, 12, 13]),
            storage_key_name: std::array::from_fn(|at| if at < 2 { [0x00, 0x0b][at] } else { 0x22 }),
            public: bytes::<8>(0x60).to_vec(),
            private: bytes::<8>(0x70).to_vec(),
        }),
        boot_class: BootClass::Uefi,
        salt: bytes(0x90),
        network: NetworkConfig::Static {
            address: Ipv4Addr::new(192, 0, 2, 10),
            prefix_bits: 24,
            gateway: Some(Ipv4Addr::new(192, 0, 2, 1)),
            dns: vec![Ipv4Addr::new(192, 0, 2, 53)],
        },
        prefixes: Prefixes::of(VPN_PREFIX),
        node_name: NodeName::chosen("node-1").expect("a name"),
        sealed_at: 1_790_000_000,
    }
}

pub(crate) fn body() -> Body {
    Body {
        local_key: local(),
        identity: Arc::new(Identity {
            key: SigningKey::from_seed(key(0x50)).into(),
            holder: holder(),
            name: clear().node_name,
            certificate: b"machine certificate".to_vec(),
            ca_certificate: b"CA certificate".to_vec(),
        }),
        owner_pub_key: bytes(0xb0),
        owner_recovery: RecoveryPubKey::of(&key(0x05)),
        level: Level::Authenticated,
        cold_start: ColdStart::Automatic,
        minimum_header: 1,
        minimum_directory: 1,
        config: ConfigDigest(bytes(0xe0)),
        disk: DISK,
        key_generation: 1,
    }
}

pub(crate) fn root(first: u8) -> SealRoot {
    SealRoot(key(first))
}

pub(crate) fn sealed() -> Vec<u8> {
    seal::emit(1, &clear(), &body(), &root(0x0f), bytes(0xf0)).expect("fits")
}

/// The clear part as it lies in the file.
pub(crate) fn clear_bytes(clear: &Clear) -> Vec<u8> {
    clear.to_wire().encode_to_vec()
}

pub(crate) fn attempt_clear() -> attempt::AttemptClear {
    let Clear { binding, boot_class, salt, .. } = clear();
    attempt::AttemptClear { binding, boot_class, salt }
}

pub(crate) fn attempt() -> Attempt {
    Attempt {
        identity: SigningKey::from_seed(key(0x50)),
        local_key: local(),
        vpn_key: VpnPrivKey(key(0x60)),
        disk: DISK,
        config: ConfigDigest(bytes(0xe0)),
    }
}

pub(crate) fn sealed_attempt() -> Vec<u8> {
    attempt::emit(1, &attempt_clear(), &attempt(), &root(0x0f), bytes(0xf0)).expect("fits")
}

/// Compares with the golden file, or rewrites it when asked to.
fn golden(name: &str, bytes: &[u8]) {
    let end = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    let mut text = String::new();
    bytes[..end].chunks(32).for_each(|line| writeln!(text, "{}", HEXLOWER.encode(line)).expect("grows"));
    golden_text(name, &text);
}

fn golden_text(name: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden").join(name);
    if std::env::var_os("CAIRN_BLESS").is_some() {
        std::fs::write(&path, text).expect("golden files can be written");
    }
    let golden = std::fs::read_to_string(&path).expect("the golden file is committed");
    assert_eq!(text, golden, "{name} changed: a format is changed in FORMATS.md, the code and here in one step");
}

/// Proves: K1
#[test]
fn every_derivation_gives_its_known_answer() {
    let machine = SigningKey::from_seed(key(0x50));
    let master = MasterSecret(key(0x70));
    let key = data_key();
    let transcript = Transcript {
        exporter: bytes(0x01),
        leaf_spki: bytes(0x02),
        ca_spki: bytes(0x03),
        machine: identity_machine(),
        config: ConfigDigest(bytes(0x04)),
    };
    let mut text = String::new();
    Purpose::ALL.iter().for_each(|purpose| writeln!(text, "label: {}", purpose.label()).expect("grows"));
    let mut row = |what: &str, value: &[u8]| writeln!(text, "{what}: {}", HEXLOWER.encode(value)).expect("grows");
    row("identity public key", &machine.public());
    row("machine id", &identity_machine().0);
    row("cluster id", &cluster_id(b"SPKI of a CA").0);
    row("cluster key, generation 1", cluster_key(&master, CLUSTER, DISK, 1).expose());
    row("cluster key, generation 2", cluster_key(&master, CLUSTER, DISK, 2).expose());
    row("kubernetes secrets key", kubernetes_secrets_key(&master, CLUSTER).expose());
    row("volume xts", key.xts().expose());
    row("volume integrity", key.integrity().expose());
    row("volume journal", key.journal().expose());
    row("first contact", &prove(&FirstContact(self::key(0x33)), &transcript));
    let connection = Connection { exporter: bytes(0x01), leaf_spki: bytes(0x02) };
    let code = || {
        Code::draw(|out| {
            out.copy_from_slice(&bytes::<16>(0x34));
            Ok::<(), Infallible>(())
        })
        .expect("drawn")
    };
    let machine = BlankMachine::new(code()).proof(&connection);
    row("activation, the code's text", code().to_text().as_bytes());
    row("activation, the machine's proof", &machine);
    let (code, config) = (code(), b"a signed config");
    let caller = ActivationCaller::new(&code, connection).believes(&machine).expect("they know one code");
    row("activation, the caller's proof", &caller.hands_in(config));
    golden_text("derivations.txt", &text);
}

#[test]
fn every_format_has_its_known_bytes() {
    golden("header.hex", &header(HeaderState::Provisional, 1).to_bytes()[..]);
    golden("header-raw.hex", &Header { lock: None, ..header(HeaderState::Committed, 2) }.to_bytes()[..]);
    golden("seal.hex", &sealed());
    golden("seal-attempt.hex", &sealed_attempt());
    let unprotected = Clear { binding: Binding::Unprotected(key(0x0f)), network: NetworkConfig::Dhcp, ..clear() };
    golden("seal-unprotected.hex", &seal::emit(2, &unprotected, &body(), &root(0x0f), bytes(0xf0)).expect("fits"));
    let (epoch_key, value) = epoch().derive(&MasterSecret(key(0x70)), CLUSTER, &identity_machine()).expect("a holder");
    let wrapped = epoch_key.wrap(&half(0x20));
    let share = Share::close(&ShareKey::of(&local(), &holder()), epoch(), &value, wrapped);
    golden("share.hex", &share.emit(1).expect("fits"));
    let both = epoch_key.wrap(&ClusterHalf { next: Some(ClusterKey(key(0x21))), ..half(0x20) });
    let share = Share::close(&ShareKey::of(&local(), &holder()), epoch(), &value, both);
    golden("share-rotating.hex", &share.emit(2).expect("fits"));
    let assignment = Assignment::first(&Prefixes::of(VPN_PREFIX), KubernetesRole::ALL.iter().copied().collect());
    golden("assignment.hex", &assignment::encode(&assignment));
    let coordinators = vec![Coordinator { machine: identity_machine(), endpoints: vec!["192.0.2.10:7836".into()] }];
    let directory = Directory { cluster: CLUSTER, version: 1, coordinators };
    golden(
        "directory.hex",
        &directory::emit(1, &directory.unsigned().signed(b"signature".to_vec()), Notes::default()).expect("fits"),
    );
    let minimum = DirectoryMinimum { key: ShareKey::of(&local(), &holder()), seal: 3, version: 9 };
    let (signed, notes) =
        (directory.unsigned().signed(b"signature".to_vec()), Notes { vouched: Some(1), lowers: Some(&minimum) });
    golden("directory-by-owner.hex", &directory::emit(2, &signed, notes).expect("fits"));
    let context = SecretContext { kind: SecretKind::MasterSecret, ..volume_context() };
    let sealed = SealedToOwner { encapsulated: bytes(0x80), ciphertext: bytes(0xa0) };
    let record = Record { context, sealed };
    let bytes = record.emit(1).expect("fits");
    golden("record.hex", &bytes);
    assert_eq!(Record::decode(Slot::read(File::Record, &bytes).expect("reads").clear()), Ok(record));
}

/// Epoch of three holders: two shares give the key.
fn epoch() -> Epoch {
    let others = [MachineId([0x01; 16]), MachineId([0xfe; 16])];
    Epoch::new(2, others.into_iter().chain([identity_machine()]).collect()).expect("an epoch")
}

fn volume_context() -> SecretContext {
    SecretContext {
        kind: SecretKind::VolumeKey,
        cluster: CLUSTER,
        machine: identity_machine(),
        disk: DISK,
        key_generation: 1,
    }
}

/// Sealing draws an ephemeral key, so this vector was sealed once and is opened for ever.
#[test]
fn the_owner_opens_what_was_sealed_when_the_format_was_made() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/owner-slot.hex");
    let owner = key(0x05);
    if std::env::var_os("CAIRN_BLESS").is_some() {
        let sealed = recovery::seal(&RecoveryPubKey::of(&owner), &volume_context(), &key(0x30)).expect("seals");
        let text = format!("{}\n{}\n", HEXLOWER.encode(&sealed.encapsulated), HEXLOWER.encode(&sealed.ciphertext));
        std::fs::write(&path, text).expect("golden files can be written");
    }
    let text = std::fs::read_to_string(&path).expect("the golden file is committed");
    let mut lines = text.lines().map(|line| HEXLOWER.decode(line.as_bytes()).expect("hex"));
    let mut line = || lines.next().expect("two lines");
    let sealed = SealedToOwner {
        encapsulated: line().try_into().expect("32 bytes"),
        ciphertext: line().try_into().expect("48 bytes"),
    };
    let opened = recovery::open(&owner, &volume_context(), &sealed).expect("opens");
    assert_eq!(opened.expose(), key(0x30).expose());
}

#[test]
fn secrets_are_not_in_what_is_printed() {
    let shown = format!("{:?} {:?} {:?} {:?}", body(), clear(), data_key(), half(0x20));
    assert!(!shown.contains("16, 17, 18, 19"), "{shown}");
    assert!(shown.contains("Secret(32 bytes)"));
    let unprotected = Clear { binding: Binding::Unprotected(key(0x0f)), ..clear() };
    assert!(!format!("{unprotected:?}").contains("15, 16, 17"));
}
