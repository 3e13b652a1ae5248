//! Waiting machines in memory: what they ask for, which answers they take, and that they then go on.

use keys::cold_start::{Contribution, Epoch, Sightings};
use keys::directory::{self, Coordinator, Directory, DirectoryError, Notes};
use keys::identity::cluster_id;
use keys::record::{HalfError, HalfRequest};
use keys::share::Share;
use keys::two_slot::{File, SLOT_BYTES};
use model::{ClusterKey, Level, MachineId, MasterSecret};
use unlock::renewal::{Giver, HearError};

use super::*;
use crate::config::{PolicyError, WithoutTpm};
use crate::fixture::{ca, secret};
use crate::found::{BootDecision, Findings};
use crate::world::{Chip, Cut, Ended, Store, World, finished};

/// A machine that found this begins to wait.
fn waiting(found: &Findings) -> (WaitingMachine<'_>, Effect<'_>) {
    let BootDecision::Wait(wait, seal) = &found.decision else { panic!("{found:?}") };
    WaitingMachine::begin(wait, seal.as_deref())
}

/// A member that found that it has no key.
fn locked(found: &Findings) -> LockedMember<'_> {
    let BootDecision::Wait(wait, seal) = &found.decision else { panic!("{found:?}") };
    wait.locked_member(seal.as_deref()).expect("it waits for its key")
}

/// A member whose key its cluster has.
fn joined() -> World {
    let mut world = World::invited(Level::Encrypted, None);
    assert!(matches!(world.boot(None), Ended::Running(_)));
    world
}

fn asks(found: &Findings) -> Result<Vec<String>, DirectoryError> {
    locked(found).coordinators(&ca().spki).map(|asked| keys::endpoint::texts(&asked))
}

/// A member whose share is lost, and the half that the share held.
fn without_its_share() -> (World, ClusterKey, DiskUuid) {
    let (mut world, _) = finished(Level::Authenticated, Some(Chip::default()));
    let disk = world.found().seal().expect("it opened").body.disk;
    let (mut shares, _) = keys::share::read(world.files.share.0.each_ref().map(|slot| &slot[..]), disk);
    let share = shares.remove(0);
    let value = share.open(&world.found().seal().expect("it opened").body.share_key()).expect("it is its own");
    let Share { epoch, wrapped, .. } = share;
    let holder = *epoch.holders().first().expect("itself");
    let half = keys::cold_start::Shares::new(epoch, wrapped).give(holder, value).expect("it holds one");
    world.slots(File::Share).iter_mut().for_each(|slot| slot.fill(0));
    (world, half.expect("it is alone").key, disk)
}

/// Proves: D2 S7
#[test]
fn a_machine_without_its_key_goes_on_with_the_right_half_only() {
    let (mut world, key, disk) = without_its_share();
    let found = world.found();
    let (mut asking, asks) = waiting(&found);
    let Effect::Ask(Question::Half(member)) = asks else { panic!("{asks:?}") };
    assert_eq!((member.disk(), member.generation()), (disk, 1));
    let half = |key, generation| Answer::half(key, disk, generation);
    let wrong = ClusterKey(secret(0x99));
    let refused = asking.hears(half(wrong, 1));
    assert!(matches!(refused, Effect::Report(AnswerError::ClusterHalf(OpenError::ClusterHalf))), "{refused:?}");
    let other = asking.hears(half(ClusterKey(key.0.duplicate()), 2));
    assert!(matches!(other, Effect::Report(AnswerError::ClusterHalf(_))), "{other:?}");

    let resumed = asking.hears(half(key, 1));
    let Effect::Resume(given) = resumed else { panic!("{resumed:?}") };
    assert!(matches!(world.boot_given(given, None), Ended::Running(_)));
    let late = asking.hears(Answer::Retry);
    assert!(matches!(late, Effect::Report(AnswerError::NotAsked)), "it waits no more: {late:?}");
}

/// Under policy `manual`, and where the share of a machine is lost, or is one of another key.
///
/// Proves: K5 K6
#[test]
fn the_owner_opens_by_the_record_what_nothing_else_opens() {
    let created = |mut world: World| {
        assert!(matches!(world.boot(None), Ended::Running(_)));
        world
    };
    let manual = created(World::manual(Level::Encrypted, Some(Chip::default())));
    assert_eq!(*manual.files.share.0[0], *vec![0; SLOT_BYTES], "policy manual has no share");
    let joined = created(World::invited(Level::Encrypted, Some(Chip::default())));
    for mut world in [manual, without_its_share().0, joined] {
        let found = world.found();
        let member = locked(&found);
        let record = *member.record().expect("it lies on the ESP");
        let asked =
            HalfRequest { holder: member.identity().holder, disk: member.disk(), generation: member.generation() };
        let (mut asking, _) = waiting(&found);
        let stranger = record.cluster_half(&secret(0x99), &asked).map(|_| ());
        assert!(matches!(stranger, Err(HalfError::NotOurs(_))), "{stranger:?}");
        let right = || record.cluster_half(&secret(2), &asked).expect("it is the owner's");
        let wrong = ClusterHalf { key: ClusterKey(secret(0x99)), ..right() };
        let refused = asking.hears(Answer::Half(wrong));
        assert!(matches!(refused, Effect::Report(AnswerError::ClusterHalf(OpenError::ClusterHalf))), "{refused:?}");
        let resumed = asking.hears(Answer::Half(right()));
        let Effect::Resume(given) = resumed else { panic!("{resumed:?}") };
        world.store.admitted.clear();
        assert!(matches!(world.boot_given(given, None), Ended::Running(_)), "it goes on by itself");
        assert!(matches!(world.boot(None), Ended::Waiting(_)), "what was given is gone with the power");
    }
}

/// GivenAnswers are gone with the power, and what came of them is not: with the same config a join goes on as the same machine, for
/// which a ticket of one use is enough.
///
/// Proves: D4 D14 N1 S2
#[test]
fn an_activated_machine_creates_or_joins_wherever_it_is_cut() {
    let made = [World::flashed, World::invited];
    for (made, after) in made.into_iter().flat_map(|made| (0..24).map(move |after| (made, after))) {
        let mut world = made(Level::Authenticated, Some(Chip::default()));
        let config = world.files.config.take().expect("a config");
        let activated = |world: &World| {
            let found = world.found();
            let (mut asking, first) = waiting(&found);
            assert!(matches!(first, Effect::Ask(Question::Config(_))), "{first:?}");
            let garbage = asking.hears(Answer::Config(Zeroizing::new(b"garbage".to_vec())));
            assert!(matches!(garbage, Effect::Report(AnswerError::Config(_))), "{garbage:?}");
            let resumed = asking.hears(Answer::Config(config.clone()));
            let Effect::Resume(given) = resumed else { panic!("{resumed:?}") };
            given
        };
        let given = activated(&world);
        let first = world.boot_given(given, Some(Cut { after, sectors: 0 }));
        assert!(matches!(first, Ended::Cut | Ended::Running(_)), "{first:?}");
        let ended = match world.found().decision {
            BootDecision::Wait(Wait::Blank(_), _) => {
                let again = activated(&world);
                assert!(world.store.admitted.len() <= 1, "admitted before the cut, or not");
                world.boot_given(again, None)
            }
            BootDecision::Open(_)
            | BootDecision::Create(_)
            | BootDecision::Join(_)
            | BootDecision::Admitted(_)
            | BootDecision::Wait(..) => world.boot(None),
        };
        assert!(matches!(ended, Ended::Running(_)), "{ended:?} after {after}");
    }
}

/// AnswerError configs are answered with the reason, and the machine waits on as it was.
///
/// Proves: N1 S1 H3
#[test]
fn a_config_that_this_machine_cannot_serve_is_refused_at_once() {
    let config = |without_tpm| {
        let config = crate::fixture::config(Level::Encrypted, without_tpm);
        config.sign(&crate::fixture::owner()).expect("a good config")
    };
    let mut world = World::flashed(Level::Encrypted, None);
    world.files.config = None;
    let found = world.found();
    let (mut asking, _) = waiting(&found);
    let refused = asking.hears(Answer::Config(config(WithoutTpm::Refuse)));
    let Effect::Report(AnswerError::Config(why)) = refused else { panic!("{refused:?}") };
    assert_eq!(why, ConfigError::from(PolicyError::NoTpm));
    // It was no member, and so took whatever lease it was given.
    let links = [([192, 0, 2, 10].into(), 24), ([10, 244, 3, 7].into(), 16)];
    let refused = asking.hears_beside(Answer::Config(config(WithoutTpm::Unprotected)), &links);
    let Effect::Report(why) = refused else { panic!("{refused:?}") };
    let words = model::Chain(&why).to_string();
    assert!(words.ends_with("10.244.3.7/16 overlaps 10.244.0.0/16, which is kept for pods"), "{words}");
    let taken = asking.hears_beside(Answer::Config(config(WithoutTpm::Unprotected)), &links[..1]);
    assert!(matches!(taken, Effect::Resume(_)), "{taken:?}");
    let late = asking.hears(Answer::Config(config(WithoutTpm::Unprotected)));
    assert!(matches!(late, Effect::Report(AnswerError::NotAsked)), "{late:?}");
}

/// Proves: S7
#[test]
fn what_may_be_mended_is_tried_again_and_the_rest_caps_the_tpm() {
    let (member, _) = finished(Level::Encrypted, Some(Chip::default()));
    let mut elsewhere = member.clone();
    elsewhere.tpm = Some(Chip { storage_key: 1, ..Chip::default() });
    let mut lost = member.clone();
    lost.slots(File::Seal).iter_mut().for_each(|slot| slot.fill(0));
    for world in [elsewhere, lost] {
        let found = world.found();
        let (mut asking, first) = waiting(&found);
        assert!(matches!(first, Effect::Ask(Question::Retry)), "{first:?}");
        let config = asking.hears(Answer::Config(Zeroizing::default()));
        assert!(matches!(config, Effect::Report(AnswerError::NotAsked)), "{config:?}");
        assert!(matches!(asking.hears(Answer::Retry), Effect::Resume(_)));
    }

    let mut refused = World::flashed(Level::Encrypted, Some(Chip::default()));
    refused.files.config = Some(Zeroizing::new(b"garbage".to_vec()));
    let mut foreign = World::flashed(Level::Encrypted, Some(Chip::default()));
    foreign.headers[0].fill(7);
    let mut another_disk = member;
    another_disk.headers.iter_mut().for_each(|copy| copy.fill(0));
    for (world, known) in [(refused, false), (foreign, false), (another_disk, true)] {
        let found = world.found();
        let (mut asking, first) = waiting(&found);
        assert!(matches!(&first, Effect::Cap(holder) if holder.is_some() == known), "{first:?}");
        let late = asking.hears(Answer::Retry);
        assert!(matches!(late, Effect::Report(AnswerError::NotAsked)), "only the next boot: {late:?}");
    }
}

/// Proves: S7
#[test]
fn a_step_that_failed_is_tried_again_unless_it_was_the_cap() {
    for failure in [Failure::Create, Failure::Open] {
        for (step, again) in [(Step::Mount, true), (Step::MapVolume, true), (Step::Cap, false)] {
            let wait = Wait::Failed(failure(step, Box::new(std::fmt::Error)));
            let (_, first) = WaitingMachine::begin(&wait, None);
            let retries = matches!(first, Effect::Ask(Question::Retry));
            assert_eq!((retries, matches!(first, Effect::Cap(None))), (again, !again), "{step:?}: {first:?}");
        }
    }
}

/// A member that was off through two recoveries, and whose directory names nobody who is there: no version that jumps is taken from
/// anybody, its owner's word has it written, and a cut meanwhile leaves the one before or that one.
///
/// Proves: D11
#[test]
fn a_jump_by_the_owners_word_leaves_old_or_new_at_a_cut() {
    const RECOVERY: u64 = 1 << 48;
    let world = joined();
    let found = world.found();
    let BootDecision::Wait(wait, seal) = &found.decision else { panic!("{found:?}") };
    let of = |version| {
        let coordinators = vec![Coordinator { machine: MachineId([1; 16]), endpoints: vec!["192.0.2.7:7836".into()] }];
        ca().sign(&Directory { cluster: cluster_id(&ca().spki), version, coordinators }.unsigned())
    };
    let given = |signed: Vec<u8>| {
        let (mut asking, _) = WaitingMachine::begin(wait, seal.as_deref());
        let effect = asking.hears(Answer::Directory { signed, ca_spki: ca().spki.clone() });
        (asking, effect)
    };
    let mut renewal = world.renewal();
    let jumps = renewal.hear(of(2 * RECOVERY + 9), Giver::Itself);
    assert_eq!(jumps, Err(HearError::Jump { found: 2 * RECOVERY + 9, held: 5 }));
    let mut lie = of(2 * RECOVERY + 9);
    *lie.last_mut().expect("it is signed") ^= 1;
    let (_, refused) = given(lie);
    let not_signed = AnswerError::Directory(RenewError::Directory(DirectoryError::Signature));
    assert!(matches!(&refused, Effect::Report(refused) if *refused == not_signed), "{refused:?}");

    for version in [5, 2 * RECOVERY + 9] {
        let (mut asking, effect) = given(of(version));
        let Effect::Renew(write) = effect else { panic!("{effect:?}") };
        for torn in [0, 1, 40, 200, SLOT_BYTES] {
            let mut cut = world.clone();
            cut.slots(File::Directory)[write.slot()][..torn].copy_from_slice(&write.bytes()[..torn]);
            let whole = torn == SLOT_BYTES;
            let expected = if whole { "192.0.2.7:7836" } else { "192.0.2.1:7836" };
            assert_eq!(asks(&cut.found()), Ok(vec![expected.to_owned()]), "{torn} of {version:#x}");
            // What the cluster says from then on is no jump any more.
            let mut renewal = cut.renewal();
            let next = renewal.hear(of(version + RECOVERY), Giver::Stranger);
            assert_eq!(next.is_ok(), whole || version == 5, "{next:?}");
        }
        assert!(matches!(asking.hears(Answer::Retry), Effect::Resume(GivenAnswers { half: None, .. })), "it asks anew");
        let late = asking.hears(Answer::Directory { signed: of(version), ca_spki: ca().spki.clone() });
        assert!(matches!(late, Effect::Report(AnswerError::NotAsked)), "{late:?}");
    }
}

/// A voter of three that was switched off with the others: its own share is not enough, another's is, and it goes on.
///
/// Proves: K6 D2
#[test]
fn a_voter_goes_on_with_the_share_of_another_voter() {
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
    world.slots(File::Share)[0] = share.emit(1).map(Zeroizing::new).expect("fits");
    let all = [(itself, "192.0.2.9:7836"), (one, "192.0.2.1:7836"), (other, "192.0.2.2:7836")];
    let coordinator = |(machine, at): (MachineId, &str)| Coordinator { machine, endpoints: vec![at.to_owned()] };
    let coordinators = all.map(coordinator).to_vec();
    let directory = Directory { cluster: cluster_id(&ca().spki), version: 9, coordinators };
    let signed = ca().sign(&directory.unsigned());
    world.slots(File::Directory)[0] = directory::emit(9, &signed, Notes::default()).expect("fits").into();
    world.store.admitted.clear();

    let found = world.found();
    let mut collector = locked(&found).collector(&ca().spki).expect("it believes it").expect("it needs others");
    assert_eq!(collector.voter().partners(), [(one, vec![4]), (other, vec![4])]);
    let said = |of| Contribution { epoch: 4, share: derived(of).1, seen: Sightings::new() };
    let half = collector.take(one, None, said(&one)).expect("a voter").expect("two of three are a quorum");
    let resumed = waiting(&found).0.hears(Answer::Half(half));
    let Effect::Resume(given) = resumed else { panic!("{resumed:?}") };
    assert!(matches!(world.boot_given(given, None), Ended::Running(_)));
}
