//! A machine that joined and was started again: whom it asks, and what it takes.

use aws_lc_rs::encoding::AsDer;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair};
use keys::cold_start::{Contribution, Epoch, Seen};
use keys::directory::{self, Coordinator, Notes};
use keys::identity::cluster_id;
use keys::pair::SLOT_BYTES;
use keys::share::Share;
use model::{MachineId, MasterSecret};
use zeroize::Zeroizing;

use super::*;
use crate::asking::{Answer, Asking, Effect, Given, Refused};
use crate::fixture::{ca, secret};
use crate::found::{Decision, Found};
use crate::renewal::{Giver, NotHeard, NotRenewed};
use crate::world::{Ended, Store, World};

/// A member whose key its cluster has.
fn joined() -> World {
    let mut world = World::invited(Level::Encrypted, None);
    assert!(matches!(world.boot(None), Ended::Running(_)));
    world
}

fn keyless(found: &Found) -> Keyless<'_> {
    let Decision::Wait(wait, seal) = &found.decision else { panic!("{found:?}") };
    Keyless::of(wait, seal.as_deref()).expect("it waits for its key")
}

fn texts(coordinators: Result<Vec<Endpoint>, DirectoryError>) -> Vec<String> {
    keys::endpoint::texts(&coordinators.expect("the cluster signed it"))
}

/// A directory file of the cluster, in which each machine is a coordinator with these endpoints.
fn file(generation: u64, version: u64, coordinators: &[(MachineId, &[&str])]) -> Zeroizing<Vec<u8>> {
    let coordinator = |(machine, endpoints): &(MachineId, &[&str])| Coordinator {
        machine: *machine,
        endpoints: endpoints.iter().map(|&it| it.to_owned()).collect(),
    };
    let coordinators = coordinators.iter().map(coordinator).collect();
    let directory = Directory { cluster: cluster_id(&ca().spki), version, coordinators };
    directory::emit(generation, &ca().sign(&directory.unsigned()), Notes::default()).map(Zeroizing::new).expect("fits")
}

/// Proves: K9 N5
#[test]
fn a_member_asks_the_others_of_the_newest_directory_that_its_cluster_signed() {
    let mut world = joined();
    let found = world.found();
    assert_eq!(texts(keyless(&found).coordinators(&ca().spki)), ["192.0.2.1:7836"]);
    let somebodys = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_ASN1_SIGNING).expect("a key");
    let refused = keyless(&found).coordinators(somebodys.public_key().as_der().expect("encodes").as_ref());
    assert_eq!(refused, Err(DirectoryError::Signature));

    let itself = keyless(&found).identity().holder.machine;
    let (one, other) = (MachineId([1; 16]), MachineId([2; 16]));
    let pair = world.pair(File::Directory);
    let old = pair.iter().position(|slot| slot.iter().any(|byte| *byte != 0)).expect("it joined");
    pair[1 - old] = file(
        9,
        6,
        &[(itself, &["192.0.2.9:7836"]), (one, &["192.0.2.1:7836", "No Host"]), (other, &["192.0.2.1:7836", "b:1"])],
    );
    assert_eq!(texts(keyless(&world.found()).coordinators(&ca().spki)), ["192.0.2.1:7836", "b:1"]);
    world.pair(File::Directory)[1 - old] = file(9, 4, &[(one, &["192.0.2.4:7836"])]);
    let older = texts(keyless(&world.found()).coordinators(&ca().spki));
    assert_eq!(older, ["192.0.2.1:7836"], "older than the seal allows: the slot before counts");

    world.pair(File::Directory)[old].fill(0);
    let refused = keyless(&world.found()).coordinators(&ca().spki);
    assert_eq!(refused, Err(DirectoryError::Older { found: 4, minimum: 5 }));
    world.pair(File::Directory)[1 - old] = file(9, 6, &[(itself, &["192.0.2.9:7836"])]);
    assert!(texts(keyless(&world.found()).coordinators(&ca().spki)).is_empty(), "a lone coordinator asks nobody");
    world.pair(File::Directory).iter_mut().for_each(|slot| slot.fill(0));
    assert!(texts(keyless(&world.found()).coordinators(&ca().spki)).is_empty(), "there is none");
}

/// A member that was off through two recoveries, and whose directory names nobody who is there: no version that jumps is taken from
/// anybody, its owner's word has it written, and a cut meanwhile leaves the one before or that one.
///
/// Proves: D11
#[test]
fn a_jump_is_taken_by_the_owners_word_and_a_cut_leaves_old_or_new() {
    const RECOVERY: u64 = 1 << 48;
    let world = joined();
    let found = world.found();
    let Decision::Wait(wait, seal) = &found.decision else { panic!("{found:?}") };
    let of = |version| {
        let coordinators = vec![Coordinator { machine: MachineId([1; 16]), endpoints: vec!["192.0.2.7:7836".into()] }];
        ca().sign(&Directory { cluster: cluster_id(&ca().spki), version, coordinators }.unsigned())
    };
    let given = |signed: Vec<u8>| {
        let (mut asking, _) = Asking::start(wait, seal.as_deref());
        let effect = asking.answered(Answer::Directory { signed, ca_spki: ca().spki.clone() });
        (asking, effect)
    };
    let mut renewal = world.renewal();
    let jumps = renewal.hear(of(2 * RECOVERY + 9), Giver::Itself);
    assert_eq!(jumps, Err(NotHeard::Jump { found: 2 * RECOVERY + 9, held: 5 }));
    let mut lie = of(2 * RECOVERY + 9);
    *lie.last_mut().expect("it is signed") ^= 1;
    let (_, refused) = given(lie);
    let expected = Refused::Directory(NotRenewed::Directory(DirectoryError::Signature));
    assert!(matches!(&refused, Effect::Report(refused) if *refused == expected), "{refused:?}");

    for version in [5, 2 * RECOVERY + 9] {
        let (mut asking, effect) = given(of(version));
        let Effect::Renew(write) = effect else { panic!("{effect:?}") };
        for torn in [0, 1, 40, 200, SLOT_BYTES] {
            let mut cut = world.clone();
            cut.pair(File::Directory)[write.slot()][..torn].copy_from_slice(&write.bytes()[..torn]);
            let whole = torn == SLOT_BYTES;
            let asks = if whole { "192.0.2.7:7836" } else { "192.0.2.1:7836" };
            assert_eq!(texts(keyless(&cut.found()).coordinators(&ca().spki)), [asks], "{torn} of {version:#x}");
            // What the cluster says from then on is no jump any more.
            let mut renewal = cut.renewal();
            let next = renewal.hear(of(version + RECOVERY), Giver::Stranger);
            assert_eq!(next.is_ok(), whole || version == 5, "{next:?}");
        }
        assert!(matches!(asking.answered(Answer::Retry), Effect::Resume(Given { half: None, .. })), "it asks anew");
        let late = asking.answered(Answer::Directory { signed: of(version), ca_spki: ca().spki.clone() });
        assert!(matches!(late, Effect::Report(Refused::NotAsked)), "{late:?}");
    }
}

/// Proves: K9
#[test]
fn a_key_that_does_not_open_the_disk_is_no_half_of_it() {
    let world = joined();
    let found = world.found();
    let keyless = keyless(&found);
    assert_eq!((keyless.generation(), keyless.level()), (1, Level::Encrypted));
    let wrong = keyless.answer(ClusterKey(secret(0x99)), None).map(|_| ());
    assert_eq!(wrong, Err(OpenError::ClusterHalf));
    let right = keyless.answer(Store::half(keyless.disk(), 1), None).expect("it is its own");
    assert!(matches!(right, Answer::ClusterHalf(half) if half.disk == keyless.disk() && half.generation == 1));
}

/// A voter of three that was switched off with the others: its own share is not enough, another's is, and it goes on.
///
/// Proves: K6 D2
#[test]
fn a_voter_goes_on_with_the_share_of_another_one_of_its_directory() {
    let mut world = joined();
    let (itself, disk, closing) = {
        let found = world.found();
        let body = &found.seal().expect("it opened").body;
        (body.holder().machine, body.disk, body.share_key())
    };
    let (one, other) = (MachineId([1; 16]), MachineId([2; 16]));
    let epoch = Epoch::new(4, [itself, one, other].into()).expect("an epoch");
    let master = MasterSecret(secret(0x70));
    let derived = |of: &MachineId| epoch.derive(&master, cluster_id(&ca().spki), of).expect("a holder");
    let (key, value) = derived(&itself);
    let half = ClusterHalf { key: Store::half(disk, 1), disk, generation: 1, next: None };
    let share = Share::close(&closing, epoch.clone(), &value, key.wrap(&half));
    world.pair(File::Share)[0] = share.emit(1).map(Zeroizing::new).expect("fits");
    let all: [(MachineId, &[&str]); 3] =
        [(itself, &["192.0.2.9:7836"]), (one, &["192.0.2.1:7836"]), (other, &["192.0.2.2:7836"])];
    world.pair(File::Directory)[0] = file(9, 9, &all);
    world.store.admitted.clear();

    let found = world.found();
    let mut gathering = keyless(&found).gathering(&ca().spki).expect("it believes it").expect("it needs others");
    assert_eq!(gathering.voter().partners(), [(one, vec![4]), (other, vec![4])]);
    let said = |of| Contribution { epoch: 4, share: derived(of).1, seen: Seen::new() };
    let answer = gathering.take(one, None, said(&one)).expect("a voter").expect("two of three are a quorum");
    let Answer::ClusterHalf(half) = answer else { panic!("{answer:?}") };
    let given = Given { half: Some(half), ..Given::default() };
    assert!(matches!(world.boot_given(given, None), Ended::Running(_)));

    // Without the directory that names them nobody is given anything, and nobody is asked.
    world.pair(File::Directory).iter_mut().for_each(|slot| slot.fill(0));
    assert!(keyless(&world.found()).gathering(&ca().spki).expect("there is none").is_none());
    // Nor by one that is older than the seal allows: who was removed since is a voter of it.
    world.pair(File::Directory)[0] = file(9, 4, &all);
    let older = keyless(&world.found()).gathering(&ca().spki).map(drop);
    assert!(matches!(older, Err(DirectoryError::Older { found: 4, minimum: 5.. })), "{older:?}");
}
