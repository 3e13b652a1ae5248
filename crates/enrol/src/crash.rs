//! Power cuts during create, join and the rotation of a key: after any effect, in the middle of any write, any number of times.

use std::collections::BTreeSet;

use cluster::record::Generations;
use keys::data_key::{ClusterHalf, OpenError};
use keys::directory::{Coordinator, Directory, DirectoryError, KeptDirectory};
use keys::header::{Copy, Header};
use keys::identity::cluster_id;
use keys::record::{HalfError, HalfRequest, Record};
use keys::seal::attempt_slot;
use keys::two_slot::{File, SLOT_BYTES, Slot, Slots};
use model::{Level, MachineId};
use proptest::prelude::*;
use unlock::renewal::{DirectoryWrite, Giver, HearError, RenewError};

use crate::asking::{Answer, AnswerError, Effect, GivenAnswers, WaitingMachine};
use crate::files::Files;
use crate::fixture::{ca, secret};
use crate::found::{BootDecision, Findings};
use crate::wait::{Reason, Wait};
use crate::world::{Chip, Cut, Ended, Store, World, finished};

/// More effects than any plan has.
const MOST_EFFECTS: usize = 26;
/// The same of a member that opens its disk.
const MOST_EFFECTS_OF_OPENING: usize = 10;
/// Sectors of a header copy, and of a slot: none, the first few, all but one, all.
const TEARS: [usize; 9] = [0, 1, 2, 3, 7, 8, 64, 127, 128];

/// Boots until the machine runs, and watches that committed data never changes its cluster.
fn outlive(mut world: World, cuts: &[Cut]) -> World {
    let mut committed = None;
    for cut in cuts.iter().copied().map(Some).chain([None]) {
        let ended = world.boot(cut);
        assert!(!matches!(ended, Ended::Waiting(_)), "{ended:?} after {cuts:?}");
        if world.committed() {
            let cluster = world.filesystem.as_ref().and_then(|it| it.cluster).expect("committed data holds a CA");
            assert_eq!(*committed.get_or_insert(cluster), cluster, "a second CA after {cuts:?}");
        }
        if let Ended::Running(cluster) = ended {
            assert_eq!(Some(cluster), committed, "the machine runs on committed data");
        }
    }
    assert!(world.files.config.is_none(), "the config is gone after {cuts:?}");
    let seals = &world.files.seal.0;
    assert_eq!(attempt_slot([&seals[0], &seals[1]]), None, "an attempt is left after {cuts:?}");
    assert_eq!(world.boot(None), Ended::Running(committed.expect("it ran")), "and it comes back");
    world
}

/// Proves: D4 D14
#[test]
fn a_cut_at_any_effect_and_sector_ends_in_a_finished_machine() {
    for level in Level::ALL {
        for tpm in [Some(Chip::default()), None] {
            for after in 0..MOST_EFFECTS {
                for sectors in TEARS {
                    outlive(World::flashed(*level, tpm.clone()), &[Cut { after, sectors }]);
                }
            }
        }
    }
}

/// A one-use ticket admits the machine that was cut, however often: the store would refuse any other.
///
/// Proves: D4 S3 S4
#[test]
fn a_cut_in_a_join_resumes_as_the_same_machine() {
    for level in Level::ALL {
        for tpm in [Some(Chip::default()), None] {
            for after in 0..MOST_EFFECTS {
                for sectors in TEARS {
                    let world = outlive(World::invited(*level, tpm.clone()), &[Cut { after, sectors }]);
                    assert_eq!(world.store.admitted.len(), 1);
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    /// Proves: D4 D14
    #[test]
    fn any_row_of_cuts_ends_in_a_finished_machine(
        level in prop::sample::select(Level::ALL),
        tpm in prop::sample::select(vec![Some(Chip::default()), None]),
        cuts in prop::collection::vec((0..MOST_EFFECTS, 0usize..=128), 0..6),
    ) {
        let cuts: Vec<_> = cuts.into_iter().map(|(after, sectors)| Cut { after, sectors }).collect();
        outlive(World::flashed(level, tpm), &cuts);
    }

    /// Proves: D4 S4
    #[test]
    fn any_row_of_cuts_of_a_join_ends_in_one_member(
        level in prop::sample::select(Level::ALL),
        tpm in prop::sample::select(vec![Some(Chip::default()), None]),
        cuts in prop::collection::vec((0..MOST_EFFECTS, 0usize..=128), 0..6),
    ) {
        let cuts: Vec<_> = cuts.into_iter().map(|(after, sectors)| Cut { after, sectors }).collect();
        prop_assert_eq!(outlive(World::invited(level, tpm), &cuts).store.admitted.len(), 1);
    }

    /// Proves: S11
    #[test]
    fn cuts_of_a_finished_machine_change_nothing(
        cuts in prop::collection::vec((0..MOST_EFFECTS, 0usize..=128), 0..4),
    ) {
        let (world, _) = finished(Level::Authenticated, Some(Chip::default()));
        let cuts: Vec<_> = cuts.into_iter().map(|(after, sectors)| Cut { after, sectors }).collect();
        let after = outlive(world.clone(), &cuts);
        let esp = |world: &World| {
            let Files { seal, share, directory, record, .. } = &world.files;
            [seal, share, directory, record].map(Slots::clone)
        };
        prop_assert!(esp(&after) == esp(&world));
        prop_assert!(after.headers == world.headers && after.filesystem == world.filesystem);
    }
}

/// Where the minimum rises, a cut leaves a seal that opens; and in the end it is that of the older of both directories, which
/// is written only once.
///
/// Proves: D7 D11
#[test]
fn a_cut_while_the_seals_minimum_rises_leaves_one_that_opens() {
    for tpm in [Some(Chip::default()), None] {
        let mut member = outlive(World::invited(Level::Encrypted, tpm), &[]);
        assert_eq!(member.minimum(), 5, "the one that it joined with");
        // Nobody, or too few, have vouched for what lies there.
        for (vouched, minimum) in [(None, 5), (Some(5), 5), (Some(0), 5), (Some(6), 6), (Some(u64::MAX), 6)] {
            let mut member = member.clone();
            member.directories([6, 9], vouched);
            assert!(matches!(member.boot(None), Ended::Running(_)));
            assert_eq!(member.minimum(), minimum, "{vouched:?}");
        }
        member.directories([6, 9], Some(9));
        for after in 0..MOST_EFFECTS_OF_OPENING {
            for sectors in [0, 1, 127] {
                let mut world = outlive(member.clone(), &[Cut { after, sectors }]);
                assert_eq!(world.minimum(), 6);
                let seals = world.files.seal.clone();
                assert!(matches!(world.boot(None), Ended::Running(_)));
                assert_eq!(world.files.seal, seals, "nothing rises, nothing is written");
                // Both older ones put back are none, one of them leaves the other.
                world.directories([5, 9], Some(9));
                assert!(matches!(world.boot(None), Ended::Running(_)));
                assert_eq!(world.minimum(), 6, "one slot is none that counts");
            }
        }
    }
}

/// A version that the cluster of [`lied_to`] never came to, and the one that it has.
const LIE: u64 = 5 << 48;
const NOW: u64 = 7;

/// A member whose seal's minimum has risen to a lie, and both of whose slots hold one.
fn lied_to(tpm: Option<Chip>) -> World {
    let mut world = outlive(World::invited(Level::Encrypted, tpm), &[]);
    world.directories([LIE, LIE + 9], Some(LIE + 9));
    assert!(matches!(world.boot(None), Ended::Running(_)));
    assert_eq!((world.minimum(), world.believes()), (LIE, LIE + 9));
    world
}

/// The cluster's directory of this version, signed.
fn signed(version: u64) -> Vec<u8> {
    let machine = MachineId([u8::try_from(version % 256).expect("a byte"); 16]);
    let coordinators = vec![Coordinator { machine, endpoints: vec![format!("192.0.2.{version}:7836")] }];
    ca().sign(&Directory { cluster: cluster_id(&ca().spki), version, coordinators }.unsigned())
}

/// Performs what is to be written of the directory, up to these bytes.
fn write(world: &mut World, write: &DirectoryWrite, bytes: usize) {
    world.slots(File::Directory)[write.slot()][..bytes].copy_from_slice(&write.bytes()[..bytes]);
}

/// Up to where is vouched, as a slot of the directory notes it.
fn noted(slot: &[u8]) -> Option<u64> {
    let slot = Slot::read(File::Directory, slot).expect("a directory");
    KeptDirectory::verify(slot.clear(), &ca().spki, 0).expect("the cluster signed it").vouched
}

/// A coordinator that lied has raised the minimum, and both slots hold its directory. The owner gives that of now, whose version is
/// below, to the machine while it waits or while it runs: a cut leaves one that believes the one or the other, and in the end the
/// seal's minimum is that of now.
///
/// Proves: D7 D11
#[test]
fn a_cut_while_the_owner_lowers_the_minimum_leaves_old_or_new() {
    for tpm in [Some(Chip::default()), None] {
        let (lied_to, of_now) = (lied_to(tpm), signed(NOW));
        let BootDecision::Wait(wait, seal) = found(&lied_to, GivenAnswers::default()).decision else {
            panic!("it waits")
        };
        let (mut asking, _) = WaitingMachine::begin(&wait, seal.as_deref());
        let effect = asking.hears(Answer::Directory { signed: of_now.clone(), ca_spki: ca().spki.clone() });
        let Effect::Renew(given) = effect else { panic!("{effect:?}") };
        let running = lied_to.renewal().by_owner(&of_now).expect("the cluster signed it");
        assert!(running.slot() == given.slot() && running.bytes() == given.bytes(), "one that runs writes the same");
        for torn in [0, 1, 40, 200] {
            let mut cut = lied_to.clone();
            write(&mut cut, &given, torn);
            assert_eq!(cut.believes(), LIE + 9, "{torn}");
        }
        let mut told = lied_to.clone();
        write(&mut told, &given, SLOT_BYTES);
        assert_eq!((told.minimum(), told.believes()), (LIE, NOW), "before the seal says so");
        let BootDecision::Wait(wait, seal) = found(&told, GivenAnswers::default()).decision else { panic!("it waits") };
        let asks = wait.locked_member(seal.as_deref()).expect("it waits for its key").coordinators(&ca().spki);
        assert_eq!(asks.map(|asks| keys::endpoint::texts(&asks)), Ok(vec![format!("192.0.2.{NOW}:7836")]));

        let mut sealed = BTreeSet::new();
        for after in 0..MOST_EFFECTS_OF_OPENING {
            for sectors in [0, 1, 127] {
                let mut world = told.clone();
                let ended = world.boot(Some(Cut { after, sectors }));
                assert!(matches!(ended, Ended::Cut | Ended::Running(_)), "{ended:?}");
                sealed.insert(world.minimum());
                assert_eq!(world.believes(), NOW);
                for _ in 0..2 {
                    assert!(matches!(world.boot(None), Ended::Running(_)));
                    assert_eq!((world.minimum(), world.believes()), (NOW, NOW), "{after} {sectors}");
                }
                let mut renewal = world.renewal();
                [7, 8].into_iter().for_each(|it| renewal.hear(signed(it), Giver::Stranger).expect("ours"));
                let next = renewal.take(testkit::origin()).expect("fits").expect("another coordinator");
                assert_eq!(noted(next.bytes()), Some(NOW), "what the lie had vouched for raises nothing any more");
            }
        }
        assert_eq!(Vec::from_iter(sealed), [NOW, LIE], "cut before and behind");
    }
}

/// Proves: D11
#[test]
fn what_is_not_written_lowers_nothing() {
    let mut member = outlive(World::invited(Level::Encrypted, None), &[]);
    assert_eq!(member.minimum(), 5);
    let write = member.renewal().by_owner(&signed(4)).expect("the cluster signed it");
    assert_eq!(write.version(), 4);
    assert!(matches!(member.boot(None), Ended::Running(_)));
    assert_eq!((member.minimum(), member.believes()), (5, 5));
}

/// A member that runs refuses the cluster's own directory by a lie that it believes, and takes it by its owner's word; then it
/// goes on from there: the lie is a jump, and what the cluster says next is written, lowers the minimum at the next start, and
/// raises it.
///
/// Proves: D11
#[test]
fn a_member_that_runs_goes_on_from_what_its_owner_gave() {
    let now = testkit::origin();
    let of = |n: u64| Giver::Coordinator(MachineId([u8::try_from(n).expect("small"); 16]));
    let mut world = lied_to(None);
    let mut renewal = world.renewal();
    renewal.hear(signed(NOW), Giver::Itself).expect("the cluster signed it");
    renewal.hear(signed(LIE + 10), of(9)).expect("the cluster's key signed it");
    assert!(renewal.due(now).is_some(), "the lie goes on");
    let mut forged = signed(NOW);
    *forged.last_mut().expect("it is signed") ^= 1;
    let refused = renewal.by_owner(&forged).map(drop);
    assert_eq!(refused, Err(RenewError::Directory(DirectoryError::Signature)));
    let given = renewal.by_owner(&signed(NOW)).expect("the cluster signed it");
    write(&mut world, &given, SLOT_BYTES);
    renewal.written(given, now);
    assert_eq!((renewal.due(now), renewal.missing()), (None, vec![]), "the lie waits no more");
    let jump = HearError::Jump { found: LIE + 10, held: NOW };
    assert_eq!(renewal.hear(signed(LIE + 10), of(9)), Err(jump));
    for (version, by) in [(8, of(7)), (9, of(8)), (10, of(9))] {
        renewal.hear(signed(version), by).expect("the cluster signed it");
        let next = renewal.take(now).expect("fits").expect("another coordinator");
        assert_eq!(noted(next.bytes()), Some(version), "given by all coordinators of the one before");
        write(&mut world, &next, SLOT_BYTES);
        renewal.written(next, now);
        assert_eq!((world.minimum(), world.believes()), (LIE, version), "it is off before its seal says so");
    }
    assert!(matches!(world.boot(None), Ended::Running(_)));
    assert_eq!((world.minimum(), world.believes()), (9, 10), "the older of both slots");
}

/// Proves: D4
#[test]
fn an_effect_that_fails_closes_the_data_until_the_next_boot() {
    for (level, made) in Level::ALL.iter().flat_map(|level| [(level, World::flashed as Made), (level, World::invited)])
    {
        let mut failed = 0;
        for effect in 0..MOST_EFFECTS {
            let mut world = made(*level, Some(Chip::default()));
            match world.boot_failing_at(effect) {
                Ended::Waiting(why) => {
                    failed += 1;
                    assert!(why.starts_with("could not ") && why.contains(": the disk fails. "), "{why}");
                }
                Ended::Running(_) => assert!(effect >= failed, "effects are counted without a gap"),
                Ended::Cut => panic!("nobody cut"),
            }
            outlive(world, &[]);
        }
        // Of the plan at level insecure, which has no share, up to the cap.
        assert!(failed >= 15, "{failed} effects failed at {level}");
    }
}

/// Machines whose cluster rotates their keys: one that asks for its half, and one that is alone and has it by its own share.
fn rotating(level: Level, tpm: Option<&Chip>) -> [World; 2] {
    let mut joined = outlive(World::invited(level, tpm.cloned()), &[]);
    joined.store.generations = Generations::Rotating(1);
    let mut alone = finished(level, tpm.cloned()).0;
    alone.holds(Generations::Rotating(1));
    [joined, alone]
}

/// The cluster gives the older key no more.
fn confirmed(mut world: World) -> World {
    match world.store.admitted.len() {
        0 => world.holds(Generations::One(2)),
        _ => world.store.generations = Generations::One(2),
    }
    world
}

/// Boots through the cuts; at whichever boot it runs, both places of the header hold the newer key.
fn outlive_rotation(mut world: World, cuts: &[Cut]) -> World {
    let cluster = world.filesystem.as_ref().and_then(|it| it.cluster).expect("a member");
    for cut in cuts.iter().copied().map(Some).chain([None]) {
        match world.boot(cut) {
            Ended::Running(of) => {
                assert_eq!(of, cluster);
                assert_eq!((world.locked_with(), world.tells), ([Some(2); 2], 2), "{cuts:?}");
                assert_eq!(world.headers[0], world.headers[1], "{cuts:?}");
            }
            ended @ (Ended::Cut | Ended::Waiting(_)) => {
                assert_eq!((ended, cut.is_some()), (Ended::Cut, true), "{cuts:?}")
            }
        }
        assert!(owner_opens(&world), "without its cluster, after {cuts:?}");
    }
    world
}

/// Whether the record on the ESP of a machine that waits gives its owner the key that its header is locked with.
fn owner_opens(world: &World) -> bool {
    let BootDecision::Wait(wait, seal) = found(world, GivenAnswers::default()).decision else { return true };
    let member = wait.locked_member(seal.as_deref()).expect("it waits for its key");
    let asked = HalfRequest { holder: member.identity().holder, disk: member.disk(), generation: member.generation() };
    let half = member.record().map(|record| record.cluster_half(&secret(2), &asked));
    half.is_some_and(|half| half.is_ok_and(|half| member.judge(half).is_ok()))
}

/// At any cut there is one of two keys that opens, and the cluster gives both.
///
/// Proves: D4 D13
#[test]
fn a_cut_while_the_key_rotates_leaves_a_machine_that_opens() {
    for (level, tpm) in [(Level::Encrypted, None), (Level::Authenticated, Some(Chip::default()))] {
        for member in rotating(level, tpm.as_ref()) {
            let mut rewritten = BTreeSet::new();
            for after in 0..MOST_EFFECTS_OF_OPENING {
                for sectors in TEARS {
                    let mut cut = member.clone();
                    if cut.boot(Some(Cut { after, sectors })) == Ended::Cut && sectors == 0 {
                        let copies = cut.headers.iter().zip(&member.headers);
                        rewritten.insert(copies.filter(|(new, old)| new != old).count());
                    }
                    let mut world = confirmed(outlive_rotation(member.clone(), &[Cut { after, sectors }]));
                    assert!(matches!(world.boot(None), Ended::Running(_)), "the newer key is enough");
                    assert!(matches!(world.boot(None), Ended::Running(_)));
                }
            }
            assert_eq!(Vec::from_iter(rewritten), [0, 1, 2], "cut before, between and behind both");
        }
    }
}

/// The second cut comes while something is written for the second time.
///
/// Proves: D4 D13 K5
#[test]
fn two_cuts_leave_the_owner_a_way_to_the_key_of_now() {
    let [joined, _] = rotating(Level::Encrypted, Some(&Chip::default()));
    for first in 0..MOST_EFFECTS_OF_OPENING {
        for second in 0..MOST_EFFECTS_OF_OPENING {
            let cuts = [Cut { after: first, sectors: 0 }, Cut { after: second, sectors: 1 }];
            outlive_rotation(joined.clone(), &cuts);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Proves: D4 D13
    #[test]
    fn any_row_of_cuts_ends_in_a_rotated_machine(
        level in prop::sample::select(vec![Level::Encrypted, Level::Authenticated]),
        which in 0..2_usize,
        cuts in prop::collection::vec((0..MOST_EFFECTS_OF_OPENING, 0usize..=128), 0..6),
    ) {
        let cuts: Vec<_> = cuts.into_iter().map(|(after, sectors)| Cut { after, sectors }).collect();
        let [joined, alone] = rotating(level, Some(&Chip::default()));
        let world = outlive_rotation(if which == 0 { joined } else { alone }, &cuts);
        prop_assert!(matches!(confirmed(world).boot(None), Ended::Running(_)));
    }
}

/// A thief has a copy of a machine's ESP, with the keys that its cluster gave it then.
///
/// Proves: D13 K5
#[test]
fn old_esp_and_old_cluster_key_open_nothing_after_a_rotation() {
    let half = |world: &World, generation| {
        let disk = world.found().seal().expect("it opens").body.disk;
        ClusterHalf { key: Store::half(disk, generation), disk, generation, next: None }
    };
    let opens = |world: &World, given| matches!(found(world, given).decision, BootDecision::Open(_));
    let [before, alone] = rotating(Level::Authenticated, Some(&Chip::default()));
    let after = outlive_rotation(before.clone(), &[]);
    let old = || before.given_half(half(&before, 1)).expect("it opened the disk as it was");
    assert!(opens(&before, old()));
    // The old seal, share, directory and record beside the disk of now; and the ESP of now with the old key.
    let stolen = World { files: before.files.clone(), ..after.clone() };
    for world in [&stolen, &after] {
        let refused = world.given_half(half(world, 1)).err();
        assert_eq!(refused, Some(AnswerError::ClusterHalf(OpenError::ClusterHalfMissing { generation: 2 })));
        let anew = found(world, old()).decision;
        let BootDecision::Wait(Wait::AwaitingKeys(disk), _) = anew else { panic!("{anew:?}") };
        assert_eq!(disk.generation, 2, "what was judged before the disk changed is judged anew");
        let newer = world.given_half(half(world, 2)).expect("the newer key is what is missing");
        assert!(opens(world, newer));
    }
    let lying = ClusterHalf { generation: 2, ..half(&after, 1) };
    assert_eq!(after.given_half(lying).err(), Some(AnswerError::ClusterHalf(OpenError::ClusterHalf)));

    // A lone coordinator's share was the whole key, before it was rotated.
    let (untouched, _) = finished(Level::Authenticated, Some(Chip::default()));
    assert!(opens(&untouched, GivenAnswers::default()));
    let after = confirmed(outlive_rotation(alone.clone(), &[]));
    assert_eq!(after.files.record, alone.files.record, "any key of the cluster follows from the master secret");
    let stolen = World { files: untouched.files, ..after.clone() };
    assert!(opens(&after, GivenAnswers::default()));
    assert!(!opens(&stolen, GivenAnswers::default()), "its old share gives the old key");

    // The owner's record follows, and the seal does at the next boot: then the header as it was is refused as such.
    let mut world = confirmed(outlive_rotation(before.clone(), &[]));
    let record = |world: &World, generation| {
        let found = world.found();
        let body = &found.seal().expect("it opens").body;
        let asked = HalfRequest { holder: body.holder(), disk: body.disk, generation };
        let slots = [0, 1].map(|slot| &world.files.record.0[slot][..]);
        let record = Record::fitting(slots, body.disk, generation).expect("one of them");
        record.cluster_half(&secret(2), &asked).map(|half| *half.key.expose())
    };
    let disk = world.found().seal().expect("it opens").body.disk;
    assert_eq!(record(&world, 2), Ok(*Store::half(disk, 2).expose()));
    assert_eq!(record(&before, 2), Err(HalfError::Generation { of: 1, asked: 2 }), "the stolen one");
    assert!(matches!(world.boot(None), Ended::Running(_)));
    let seals = world.files.seal.clone();
    assert!(matches!(world.boot(None), Ended::Running(_)));
    assert_eq!(world.files.seal, seals, "nothing rises, nothing is written");
    world.headers = before.headers.clone();
    let refused = found(&world, old()).decision;
    let BootDecision::Wait(Wait::NeedsOwner(Reason::Header(OpenError::Older { found: 2, minimum: 3 })), _) = refused
    else {
        panic!("{refused:?}")
    };
}

/// A coordinator's own share is what opens it when all are switched off: a disk that it could not open any more is not rotated.
///
/// Proves: D13 K6
#[test]
fn no_disk_is_rotated_whose_share_lacks_the_next_key() {
    let (mut world, _) = finished(Level::Encrypted, Some(Chip::default()));
    let given = |world: &World| {
        let mut other = world.clone();
        other.holds(Generations::Rotating(1));
        let BootDecision::Open(opening) = other.found().decision else { panic!("it opens") };
        let half = opening.half.expect("of its share");
        assert!(half.next.is_some());
        // It is given by others to the machine without its share.
        other.slots(File::Share).iter_mut().for_each(|slot| slot.fill(0));
        other.given_half(half).expect("it opens")
    };
    let half = given(&world);
    assert!(matches!(world.boot_given(half, None), Ended::Running(_)));
    assert_eq!((world.locked_with(), world.tells), ([Some(1); 2], 1));
    let half = given(&world);
    world.holds(Generations::Rotating(1));
    assert!(matches!(world.boot_given(half, None), Ended::Running(_)));
    assert_eq!(world.locked_with(), [Some(2); 2]);
}

/// Proves: D13 D14
#[test]
fn a_header_that_may_be_newer_is_not_written_over() {
    let [rotating, _] = rotating(Level::Encrypted, Some(&Chip::default()));
    let resting =
        World { store: Store { generations: Generations::One(1), ..rotating.store.clone() }, ..rotating.clone() };
    // Written by a newer Cairn.
    for mut world in [rotating.clone(), resting.clone()] {
        world.headers[1][8] = 2;
        let before = world.headers.clone();
        assert!(matches!(world.boot(None), Ended::Running(_)));
        assert!(world.headers == before && world.tells == 1);
    }
    // Later by its number, and damaged: what is written next is later still.
    let Copy::Valid(later) = Copy::read(&resting.headers[1]) else { panic!("a member's") };
    let later = Header { generation: later.generation + 7, ..later }.to_bytes().to_vec();
    for (mut world, key) in [(resting.clone(), 1), (rotating, 2)] {
        world.headers[1] = later.clone();
        assert!(matches!(world.boot(None), Ended::Running(_)));
        assert_eq!((world.headers[1] == later, world.tells), (key == 1, key));
        assert!(matches!(world.boot(None), Ended::Running(_)));
        assert_eq!(world.tells, key);
    }
    // Damaged, or as it was before: mended.
    for damage in [vec![0; later.len()], vec![7; later.len()]] {
        let mut world = resting.clone();
        world.headers[0] = damage;
        assert!(matches!(world.boot(None), Ended::Running(_)));
        assert_eq!(world.headers, resting.headers);
    }
}

fn found(world: &World, given: GivenAnswers) -> Findings {
    world.found_with(given, Ok(world.tpm.clone().as_mut()))
}

/// Makes a disk to begin with.
type Made = fn(Level, Option<Chip>) -> World;
