//! A member with a closed disk, in memory: whom it asks, and which half it takes.

use std::sync::Arc;

use aws_lc_rs::encoding::AsDer;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair};
use keys::cold_start::{Contribution, Epoch, Sightings};
use keys::data_key::{DataKey, HeaderFields, Holder};
use keys::directory::{self, Coordinator, Notes};
use keys::header::{Copy, HeaderState, Suite};
use keys::identity::{SigningKey, cluster_id, machine_id};
use keys::record::Record;
use keys::recovery::{RecoveryPubKey, SealedToOwner, SecretContext, SecretKind};
use keys::share::Share;
use model::{ColdStart, ConfigDigest, LocalKey, MachineId, MasterSecret, NodeName, Uuid, VolumeKey};
use zeroize::Zeroizing;

use super::*;
use crate::fixture::{blank, ca, secret};

const DISK: DiskUuid = DiskUuid(Uuid([3; 16]));
/// The key of the disk, and its generation.
const KEY: (u8, u32) = (0x44, 7);
/// The seal's generation.
const SEAL: u64 = 2;
const MINIMUM: u64 = 5;

fn key(byte: u8) -> ClusterKey {
    ClusterKey(secret(byte))
}

/// A member's seal, which opened.
fn body() -> Body {
    let identity = SigningKey::from_seed(secret(9));
    let holder = Holder { cluster: cluster_id(&ca().spki), machine: machine_id(&identity.public()) };
    let identity = Identity {
        key: identity.into(),
        holder,
        name: NodeName::derived(holder.machine),
        certificate: vec![1],
        ca_certificate: vec![2],
    };
    Body {
        local_key: LocalKey(secret(4)),
        identity: Arc::new(identity),
        owner_pub_key: [0; 32],
        owner_recovery: RecoveryPubKey::of(&secret(2)),
        level: Level::Encrypted,
        cold_start: ColdStart::Automatic,
        minimum_header: 1,
        minimum_directory: MINIMUM,
        config: ConfigDigest([0; 32]),
        disk: DISK,
        key_generation: KEY.1,
    }
}

/// The disk of that member, with nothing beside its header.
fn disk(body: &Body) -> LockedDisk {
    let (byte, generation) = KEY;
    let wrapping = HeaderFields {
        state: HeaderState::Committed,
        generation: 2,
        disk: DISK,
        suite: Suite::Encrypted,
        key_generation: generation,
        salt: [6; 32],
        owner: None,
    };
    let header = DataKey::fresh(VolumeKey(secret(5))).wrap(&wrapping, &body.local_key, &key(byte), &body.holder());
    let header = Copies([Copy::Valid(header.clone()), Copy::Valid(header)]);
    LockedDisk { generation, header, directory: blank(), record: None, shares: Vec::new() }
}

/// A directory file of the cluster, in which each machine is a coordinator with these endpoints.
fn file(generation: u64, version: u64, coordinators: &[(MachineId, &[&str])]) -> Zeroizing<Vec<u8>> {
    let coordinator = |(machine, endpoints): &(MachineId, &[&str])| Coordinator {
        machine: *machine,
        endpoints: endpoints.iter().map(|&it| it.to_owned()).collect(),
    };
    let coordinators = coordinators.iter().map(coordinator).collect();
    let directory = Directory { cluster: cluster_id(&ca().spki), version, coordinators };
    directory::emit(generation, &ca().sign(&directory), Notes::default()).map(Zeroizing::new).expect("fits")
}

fn asks(body: &Body, disk: &LockedDisk) -> Result<Vec<String>, DirectoryError> {
    LockedMember::new(body, SEAL, disk).coordinators(&ca().spki).map(|asked| keys::endpoint::texts(&asked))
}

/// Proves: K9 N5
#[test]
fn a_member_asks_the_others_of_the_newest_directory() {
    let (body, itself) = (body(), body().holder().machine);
    let (one, other) = (MachineId([1; 16]), MachineId([2; 16]));
    let mut disk = disk(&body);
    let asks = |disk: &LockedDisk| asks(&body, disk).expect("the cluster signed it");
    assert!(asks(&disk).is_empty(), "there is none");
    disk.directory.0[0] = file(1, 5, &[(one, &["192.0.2.1:7836"])]);
    assert_eq!(asks(&disk), ["192.0.2.1:7836"]);
    let all: &[(MachineId, &[&str])] =
        &[(itself, &["192.0.2.9:7836"]), (one, &["192.0.2.1:7836", "No Host"]), (other, &["192.0.2.1:7836", "b:1"])];
    disk.directory.0[1] = file(9, 6, all);
    assert_eq!(asks(&disk), ["192.0.2.1:7836", "b:1"], "each once, and none that nobody can dial");
    disk.directory.0[1] = file(9, 6, &[(itself, &["192.0.2.9:7836"])]);
    assert!(asks(&disk).is_empty(), "a lone coordinator asks nobody");
}

/// Proves: D11
#[test]
fn a_directory_that_is_not_the_clusters_or_too_old_names_nobody() {
    let body = body();
    let mut disk = disk(&body);
    disk.directory.0[0] = file(1, 5, &[(MachineId([1; 16]), &["192.0.2.1:7836"])]);
    let somebodys = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_ASN1_SIGNING).expect("a key");
    let spki = somebodys.public_key().as_der().expect("encodes");
    let refused = LockedMember::new(&body, SEAL, &disk).coordinators(spki.as_ref());
    assert_eq!(refused, Err(DirectoryError::Signature));
    disk.directory.0[1] = file(9, 4, &[(MachineId([1; 16]), &["192.0.2.4:7836"])]);
    assert_eq!(asks(&body, &disk), Ok(vec!["192.0.2.1:7836".to_owned()]), "the slot before counts");
    disk.directory.0[0].fill(0);
    let older = DirectoryError::Older { found: 4, minimum: MINIMUM };
    assert_eq!(asks(&body, &disk), Err(older));
    let collector = LockedMember::new(&body, SEAL, &disk).collector(&ca().spki).map(drop);
    assert_eq!(collector, Err(older), "a voter of it may have been removed since");
}

/// Proves: D11
#[test]
fn by_the_owners_word_an_older_directory_counts_for_this_seal() {
    let body = body();
    let mut disk = disk(&body);
    let coordinators = vec![Coordinator { machine: MachineId([1; 16]), endpoints: vec!["192.0.2.7:7836".into()] }];
    let signed = ca().sign(&Directory { cluster: cluster_id(&ca().spki), version: MINIMUM - 1, coordinators });
    let member = LockedMember::new(&body, SEAL, &disk);
    let write = member.renew(&signed, &ca().spki).expect("the cluster signed it");
    let (slot, bytes) = (write.slot(), write.bytes().to_vec());
    assert!(member.renew(&signed[1..], &ca().spki).is_err(), "what nobody signed is written for nobody");
    disk.directory.0[slot] = bytes.into();
    assert_eq!(asks(&body, &disk), Ok(vec!["192.0.2.7:7836".to_owned()]));
    let next_seal = LockedMember::new(&body, SEAL + 1, &disk).coordinators(&ca().spki);
    assert!(next_seal.is_err(), "the word was for the seal before");
    let least = body.directory_minimum(SEAL).beside(disk.directory.bytes());
    assert_eq!(least, MINIMUM - 1, "and is for this one");
}

/// Proves: K9
#[test]
fn a_key_that_does_not_open_the_disk_is_no_half_of_it() {
    let body = body();
    let disk = disk(&body);
    let member = LockedMember::new(&body, SEAL, &disk);
    assert_eq!((member.generation(), member.level(), member.disk()), (KEY.1, Level::Encrypted, DISK));
    assert_eq!(member.judge(member.half(key(0x99), None)).err(), Some(OpenError::ClusterHalf));
    let right = member.half(key(KEY.0), Some(key(0x99)));
    assert_eq!((right.disk, right.generation, right.next.is_some()), (DISK, KEY.1, true));
    let right = ClusterHalf::from(member.judge(right).expect("it is its own"));
    assert_eq!((right.key.expose(), right.next.is_some()), (&[KEY.0; 32], true), "with what came along");
    let older = ClusterHalf { generation: KEY.1 - 1, ..right };
    assert!(member.judge(older).is_err(), "the key of another generation");
}

#[test]
fn the_owner_is_shown_the_record_that_lies_there() {
    let (body, holder) = (body(), body().holder());
    let context = SecretContext {
        kind: SecretKind::ClusterKey,
        cluster: holder.cluster,
        machine: holder.machine,
        disk: DISK,
        key_generation: KEY.1,
    };
    let record = Record { context, sealed: SealedToOwner { encapsulated: [1; 32], ciphertext: [2; 48] } };
    let without = disk(&body);
    let disk = LockedDisk { record: Some(record), ..disk(&body) };
    let shown = |disk: &LockedDisk| LockedMember::new(&body, SEAL, disk).record().copied();
    assert_eq!([shown(&disk), shown(&without)], [Some(record), None]);
}

/// Proves: K6
#[test]
fn a_member_collects_shares_where_its_own_needs_others() {
    let body = body();
    let (itself, one) = (body.holder().machine, MachineId([1; 16]));
    let epoch = Epoch::new(4, [itself, one].into()).expect("an epoch");
    let master = MasterSecret(secret(0x70));
    let derived = |of: &MachineId| epoch.derive(&master, cluster_id(&ca().spki), of).expect("a holder");
    let mut disk = disk(&body);
    let (cold_start, value) = derived(&itself);
    let half = LockedMember::new(&body, SEAL, &disk).half(key(KEY.0), None);
    let mut slots = blank();
    let share = Share::close(&body.share_key(), epoch.clone(), &value, cold_start.wrap(&half));
    slots.0[0] = share.emit(1).expect("fits").into();
    disk.shares = crate::share::open_shares(&slots, DISK, &body.share_key()).0;
    let collects = |disk: &LockedDisk| LockedMember::new(&body, SEAL, disk).collector(&ca().spki).expect("believed");
    assert!(collects(&disk).is_none(), "no directory names anybody");
    disk.directory.0[0] = file(1, 5, &[(itself, &[]), (one, &[])]);
    let mut collector = collects(&disk).expect("two are needed");
    let said = Contribution { epoch: 4, share: derived(&one).1, seen: Sightings::new() };
    let half = collector.take(one, None, said).expect("a voter").expect("two of two are a quorum");
    assert!(LockedMember::new(&body, SEAL, &disk).judge(half).is_ok());
    disk.shares.clear();
    assert!(collects(&disk).is_none(), "it holds none");
}
