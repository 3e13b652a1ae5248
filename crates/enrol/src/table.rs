//! The table of seal and header, row by row, and the words that each row gives to a person.

use keys::cold_start::{Epoch, WrappedKey};
use keys::data_key::{ClusterHalf, Holder, OpenError};
use keys::header::{Copies, Copy, HEADER_BYTES, Header, HeaderError, HeaderState};
use keys::seal::attempt_slot;
use keys::share::{Share, ShareKey};
use keys::two_slot::{File, Slot, Slots, TwoSlotFile};
use model::{
    BootClass, ClusterKey, ClusterRole, DiskUuid, FirstContact, Level, LocalKey, MachineId, MachinePubKey,
    MasterSecret, NetworkConfig, Secret, Uuid, WaitState,
};
use unlock::locked::LockedDisk;
use zeroize::Zeroizing;

use crate::asking::GivenAnswers;
use crate::config::{CONFIG_PATH, ConfigError, EnrolmentConfig, Intent, PolicyError, TpmPresence, WithoutTpm, digest};
use crate::failure::{Failure, Layer};
use crate::files::Leftover;
use crate::fixture::{network, owner, redeeming, secret};
use crate::found::{BootDecision, Findings, Report};
use crate::keeper::SealLock;
use crate::step::Step;
use crate::wait::{Reason, Wait};
use crate::world::{Chip, ChipFails, Cut, Ended, FIRST, Health, Store, World, finished};

const LEVEL: Level = Level::Authenticated;

fn tpm() -> Option<Chip> {
    Some(Chip::default())
}

fn created() -> World {
    finished(LEVEL, tpm()).0
}

/// The reason for which the owner is needed; nothing may have been written.
fn reason(world: &World) -> Reason {
    let mut after = world.clone();
    let ended = after.boot(None);
    // First: had anything been decided but to wait, the whole boot has run by now, and it writes.
    assert_eq!(format!("{after:?}"), format!("{world:?}"), "nothing was written");
    assert!(matches!(ended, Ended::Waiting(_)), "{ended:?}");
    let found = world.found();
    let BootDecision::Wait(Wait::NeedsOwner(reason), _) = found.decision else { panic!("{found:?}") };
    reason
}

fn opens(world: &World) -> bool {
    matches!(world.found().decision, BootDecision::Open(_))
}

fn with_config(mut world: World) -> World {
    world.files.config = World::flashed(LEVEL, tpm()).files.config;
    world
}

fn without_seal(mut world: World) -> World {
    world.slots(File::Seal).iter_mut().for_each(|slot| slot.fill(0));
    world
}

/// Every header copy replaced by what `edit` makes of it.
fn with_headers(mut world: World, edit: impl Fn(Header) -> Vec<u8>) -> World {
    for bytes in &mut world.headers {
        let Copy::Valid(header) = Copy::read(bytes) else { panic!("a header") };
        *bytes = edit(header);
    }
    world
}

/// The control of [`reason`]: a boot that does not wait is seen to write.
#[test]
#[should_panic(expected = "nothing was written")]
fn a_boot_that_writes_is_not_taken_for_one_that_waits() {
    reason(&World::flashed(LEVEL, tpm()));
}

/// Proves: S2
#[test]
fn nothing_found_waits_and_a_config_creates() {
    let mut world = World::flashed(LEVEL, tpm());
    assert!(matches!(world.found().decision, BootDecision::Create(_)));
    world.files.config = None;
    let found = world.found();
    let BootDecision::Wait(wait @ Wait::Blank(TpmPresence::Present), None) = &found.decision else {
        panic!("{found:?}")
    };
    assert_eq!(wait.state(), WaitState::Blank);
}

/// Before a machine is enrolled its config says how it reaches the network, then its seal, whether it opens or not.
///
/// Proves: S2
#[test]
fn the_network_is_the_configs_and_then_the_seals() {
    let networks = |world: &World| world.found().network;
    let mut world = World::flashed(LEVEL, tpm());
    assert_eq!(networks(&world), network());
    world.files.config = None;
    assert_eq!(networks(&world), NetworkConfig::Dhcp);
    let mut member = created();
    assert!(member.files.config.is_none());
    assert_eq!(networks(&member), network());
    member.tpm = None;
    assert_eq!(networks(&member), network(), "the seal says it in clear");
    member.slots(File::Seal)[FIRST.slot][8] = 2;
    assert_eq!(networks(&member), NetworkConfig::Dhcp, "a newer seal says it in other words");
}

/// Proves: S1
#[test]
fn a_refused_config_leaves_the_disk_alone() {
    let mut world = World::flashed(LEVEL, tpm());
    world.files.config = Some(Zeroizing::new(b"garbage".to_vec()));
    assert!(matches!(reason(&world), Reason::Config(ConfigError::Malformed(_))));
    world.files.config = Some(Zeroizing::default());
    assert!(matches!(reason(&world), Reason::Config(ConfigError::Malformed(_))));
    let config = crate::fixture::config(LEVEL, WithoutTpm::Refuse);
    world.files.config = Some(config.sign(&owner()).expect("a good config"));
    world.tpm = None;
    assert_eq!(reason(&world), Reason::Config(ConfigError::Unserved(PolicyError::NoTpm)));
    world.tpm = Some(Chip { zero_pcr: Some(4), ..Chip::default() });
    assert_eq!(reason(&world), Reason::Config(ConfigError::Unserved(PolicyError::ZeroPcr(4))));
}

#[test]
fn the_machines_item_wins_over_the_file() {
    let world = World::flashed(LEVEL, tpm());
    let good = world.files.config.clone();
    let garbage = Some(Zeroizing::new(b"garbage".to_vec()));
    let creates = |fw_cfg: &Option<Zeroizing<Vec<u8>>>, file: &Option<Zeroizing<Vec<u8>>>| {
        let mut world = world.clone();
        (world.files.fw_cfg, world.files.config) = (fw_cfg.clone(), file.clone());
        let found = world.found();
        assert_eq!(found.refused().is_some(), !matches!(found.decision, BootDecision::Create(_)), "{found:?}");
        matches!(found.decision, BootDecision::Create(_))
    };
    assert!(creates(&good, &garbage) && creates(&None, &good));
    assert!(!creates(&garbage, &good) && !creates(&None, &garbage));
}

/// Proves: D14
#[test]
fn a_create_config_on_a_live_disk_formats_nothing() {
    let lost = with_config(without_seal(created()));
    assert_eq!(reason(&lost), Reason::LiveDisk);
    // One committed copy is enough, whatever the other is.
    for other in [vec![0; HEADER_BYTES], vec![0xee; HEADER_BYTES]] {
        for copy in 0..2 {
            let mut world = lost.clone();
            world.headers[copy].clone_from(&other);
            assert!(matches!(reason(&world), Reason::LiveDisk | Reason::ForeignDisk(_)));
        }
    }
}

/// Proves: D14
#[test]
fn what_is_neither_blank_nor_provisional_is_somebodys_data() {
    let mut world = World::flashed(LEVEL, tpm());
    world.headers[1][7] = 1;
    assert_eq!(reason(&world), Reason::ForeignDisk(HeaderError::Magic));
    let mut torn = with_config(without_seal(created()));
    torn.headers.iter_mut().for_each(|copy| copy[100] ^= 1);
    assert_eq!(reason(&torn), Reason::ForeignDisk(HeaderError::Checksum));
    let mut short = World::flashed(LEVEL, tpm());
    short.headers[0].truncate(100);
    assert_eq!(reason(&short), Reason::ForeignDisk(HeaderError::Size));
    let mut newer = with_config(without_seal(created()));
    newer.headers[1][8] = 2;
    newer.headers[0].fill(0);
    assert_eq!(reason(&newer), Reason::Newer { what: "data header", version: 2 });
}

/// Each file of the ESP, one at a time, is there and cannot be read.
/// Proves: D14, O1
#[test]
fn a_file_that_cannot_be_read_is_no_file_less() {
    let spoil = |world: &World, path: &'static str| {
        let mut world = world.clone();
        for (slot, at) in File::ALL.iter().flat_map(|file| [(*file, 0), (*file, 1)]) {
            if slot.paths()[at] == path {
                world.files.slots(slot).0[at].clear();
            }
        }
        world.files.config = world.files.config.filter(|_| path != CONFIG_PATH);
        world.files.unreadable = vec![path];
        world
    };
    let member = created();
    let holding = TwoSlotFile::read(File::Seal, member.files.seal.bytes()).next.slot;
    for path in File::ALL.iter().flat_map(|file| file.paths()) {
        let spoilt = spoil(&member, path);
        if path == File::Seal.paths()[1 - holding] {
            assert_eq!(reason(&spoilt), Reason::Unreadable(path));
            // A blank disk makes no difference: it may be another disk's seal.
            let mut blank = with_config(spoilt);
            blank.headers.iter_mut().for_each(|copy| copy.fill(0));
            assert_eq!(reason(&blank), Reason::Unreadable(path));
        } else if path == File::Share.paths()[0] {
            assert!(matches!(spoilt.found().decision, BootDecision::Wait(Wait::AwaitingKeys(_), _)));
        } else {
            assert!(opens(&spoilt), "{path}");
        }
    }
    assert!(opens(&spoil(&member, CONFIG_PATH)), "a member needs no config");
    let fresh = spoil(&World::flashed(LEVEL, tpm()), CONFIG_PATH);
    assert_eq!(reason(&fresh), Reason::Config(ConfigError::Unreadable));
}

/// Proves: D5
#[test]
fn a_seal_that_does_not_unseal_names_the_cause() {
    let mut gone = created();
    gone.tpm = None;
    assert_eq!(reason(&with_config(gone)), Reason::Locked(SealLock::NoTpm));
    let mut silent = created();
    silent.tpm = Some(Chip { zero_pcr: Some(7), ..Chip::default() });
    assert_eq!(reason(&silent), Reason::Locked(SealLock::ZeroPcr(7)));
    let mut other = created();
    other.tpm = Some(Chip { storage_key: 1, ..Chip::default() });
    assert_eq!(reason(&other), Reason::Locked(SealLock::OtherTpm));
    let mut changed = created();
    changed.tpm = Some(Chip { measured: 1, ..Chip::default() });
    assert_eq!(reason(&changed), Reason::Locked(SealLock::Pcrs));
    let mut elsewhere = created();
    elsewhere.boot_class = BootClass::Uefi;
    let classes = SealLock::BootClass { sealed: BootClass::Direct, now: BootClass::Uefi };
    assert_eq!(reason(&elsewhere), Reason::Locked(classes));
    let (mut unmeasured, _) = finished(LEVEL, None);
    unmeasured.boot_class = BootClass::Uefi;
    assert!(opens(&unmeasured), "without a TPM nothing was measured");
    let mut newer = created();
    newer.slots(File::Seal)[FIRST.slot][8] = 2;
    assert_eq!(reason(&newer), Reason::Newer { what: "seal", version: 2 });
}

/// The newest of two seals that stay shut is told about: it is the machine's last word.
///
/// Proves: D5
#[test]
fn of_two_seals_that_do_not_unseal_the_newest_names_the_cause() {
    // No body: nobody comes to open it.
    let seal = |chip: Chip, generation| {
        let (mut made, _) = finished(LEVEL, Some(chip));
        let slot = Slot::read(File::Seal, &made.slots(File::Seal)[FIRST.slot]).expect("a seal");
        keys::two_slot::emit(File::Seal, generation, slot.clear(), None).map(Zeroizing::new).expect("fits")
    };
    let (other, changed) = (Chip { storage_key: 1, ..Chip::default() }, Chip { measured: 1, ..Chip::default() });
    for (older, newer, cause) in [(&other, &changed, SealLock::Pcrs), (&changed, &other, SealLock::OtherTpm)] {
        let mut world = created();
        *world.slots(File::Seal) = [seal(older.clone(), 1), seal(newer.clone(), 2)];
        assert_eq!(reason(&world), Reason::Locked(cause));
        world.slots(File::Seal).reverse();
        assert_eq!(reason(&world), Reason::Locked(cause), "whichever slot is whose");
    }
}

/// A TPM that fails decides nothing, whatever was read by then.
///
/// Proves: D5
#[test]
fn a_tpm_that_fails_changes_nothing_and_is_told() {
    let fails = |found: &Findings| {
        let BootDecision::Wait(wait @ Wait::Failed(Failure::Tpm(_)), None) = &found.decision else {
            panic!("{found:?}")
        };
        assert_eq!(wait.state(), WaitState::Failed);
        assert!(wait.message().starts_with("the TPM is there and does not work: the TPM fails. Nothing was changed"));
        assert_eq!(found.network, NetworkConfig::Dhcp);
    };
    let mut member = created();
    member.tpm = Some(Chip { health: Health::Fails, ..Chip::default() });
    fails(&member.found());
    let before = format!("{member:?}");
    assert!(matches!(member.boot(None), Ended::Waiting(_)));
    assert_eq!(format!("{member:?}"), before);
    fails(&created().found_with(GivenAnswers::default(), Err(ChipFails)));
}

/// Anybody who can write the ESP can write a seal in clear, of any generation: where a TPM works, it counts for nothing.
///
/// Proves: D5
#[test]
fn a_seal_in_clear_opens_nothing_beside_a_working_tpm() {
    let (mut clear, _) = finished(LEVEL, None);
    assert!(opens(&clear), "without a TPM it is all there is");
    clear.tpm = tpm();
    assert_eq!(reason(&clear), Reason::Locked(SealLock::InClear));
    // Beside the seal that the TPM holds, whichever slot is whose, it neither opens nor shadows.
    for file in [File::Seal, File::Share] {
        for slot in 0..2 {
            let mut world = created();
            let ours = world.slots(file)[FIRST.slot].clone();
            world.slots(file)[slot] = ours;
            world.slots(file)[1 - slot].clone_from(&clear.slots(file)[FIRST.slot]);
            assert!(opens(&world), "{file:?} {slot}: {world:?}");
        }
    }
}

/// A checksum that holds over a clear part that makes no sense is somebody's seal, not none: with a config beside it, "none"
/// would format the disk.
///
/// Proves: D14
#[test]
fn a_malformed_seal_is_not_taken_for_none() {
    let mut world = World::flashed(LEVEL, tpm());
    let malformed =
        keys::two_slot::emit(File::Seal, 1, b"no protobuf of ours", None).map(Zeroizing::new).expect("fits");
    world.slots(File::Seal)[0].clone_from(&malformed);
    assert!(matches!(reason(&world), Reason::Seal(keys::seal::SealError::Malformed(_))));
    let mut member = with_config(created());
    member.slots(File::Seal)[FIRST.slot] = malformed;
    assert!(matches!(reason(&member), Reason::Seal(keys::seal::SealError::Malformed(_))));
}

/// A machine whose join was cut after so many whole effects: the first of them writes the attempt.
fn cut_in_join(after: usize) -> World {
    let mut world = World::invited(LEVEL, tpm());
    assert_eq!(world.boot(Some(Cut { after, sectors: 0 })), Ended::Cut);
    world
}

fn joins(world: &World) -> Option<Resumes> {
    match world.found().decision {
        BootDecision::Join(joining) => Some(Resumes(joining.resumes())),
        BootDecision::Create(_) | BootDecision::Admitted(_) | BootDecision::Open(_) | BootDecision::Wait(..) => None,
    }
}

/// Whether a join goes on as the machine of an earlier boot.
#[derive(Debug, PartialEq)]
struct Resumes(bool);

/// Proves: S4 S11
#[test]
fn an_attempt_resumes_with_its_config_and_goes_with_another() {
    assert_eq!(joins(&World::invited(LEVEL, tpm())), Some(Resumes(false)));
    let attempt = cut_in_join(1);
    assert_eq!(joins(&attempt), Some(Resumes(true)));
    assert_eq!(joins(&cut_in_join(4)), Some(Resumes(true)), "beside a provisional header, too");

    let mut another = attempt.clone();
    let config = EnrolmentConfig { first_contact: FirstContact(secret(8)), ..redeeming(LEVEL, WithoutTpm::Refuse) };
    another.files.config = Some(config.sign(&owner()).expect("a good config"));
    assert_eq!(joins(&another), Some(Resumes(false)), "another config begins another attempt");
    assert_eq!(another.clone().boot(None), Ended::Waiting("the ticket is used up".to_owned()));
    another.store.uses = 2;
    assert!(matches!(another.boot(None), Ended::Running(_)));

    let mut creates = with_config(attempt.clone());
    assert!(matches!(creates.found().decision, BootDecision::Create(_)));
    assert!(matches!(creates.boot(None), Ended::Running(_)));
    for world in [&creates, &another] {
        let seals = &world.files.seal.0;
        assert_eq!(attempt_slot([&seals[0], &seals[1]]), None, "what is left of an attempt is erased");
    }

    let mut alone = attempt;
    alone.files.config = None;
    assert!(matches!(alone.found().decision, BootDecision::Wait(Wait::Blank(_), None)));
}

/// A ticket for a machine by its key is of use only if that outlives the config which made it; nothing else does.
///
/// Proves: S4
#[test]
fn a_ticket_that_names_a_machine_leaves_it_its_key() {
    let attempt = cut_in_join(1);
    let asks = |mut world: World| {
        assert!(matches!(world.boot(None), Ended::Running(_)));
        world.store.admitted.remove(0)
    };
    let by_ticket_for = |machine| {
        let mut config =
            EnrolmentConfig { first_contact: FirstContact(secret(8)), ..redeeming(LEVEL, WithoutTpm::Refuse) };
        let Intent::Redeem(redeem) = &mut config.intent else { panic!("a config that joins") };
        redeem.ticket.machine = machine;
        let mut world = attempt.clone();
        world.files.config = Some(config.sign(&owner()).expect("a good config"));
        world.store = Store::default(); // another ticket has let in nobody yet
        world
    };
    let (key, disk) = asks(attempt.clone());
    assert_ne!(asks(by_ticket_for(None)).0, key, "any machine is another one by another config");
    assert_ne!(asks(by_ticket_for(Some(MachinePubKey([9; 32])))).0, key, "it is for another machine");
    let named = by_ticket_for(Some(key));
    assert_eq!(joins(&named), Some(Resumes(false)), "the attempt is another one");
    let (same, another) = asks(named.clone());
    assert_eq!(same, key);
    assert_ne!(another, disk, "what another cluster may have been told stays behind");
    let mut cut = named;
    assert_eq!(cut.boot(Some(Cut { after: 1, sectors: 0 })), Ended::Cut);
    assert_eq!((joins(&cut), asks(cut).0), (Some(Resumes(true)), key));
}

/// Proves: D14 S4
#[test]
fn an_attempt_beside_a_live_disk_formats_nothing() {
    let attempt = cut_in_join(1);
    let mut live = attempt.clone();
    live.headers = created().headers;
    assert_eq!(reason(&live), Reason::LiveDisk);
    let mut foreign = attempt.clone();
    foreign.headers[1][7] = 1;
    assert_eq!(reason(&foreign), Reason::ForeignDisk(HeaderError::Magic));
    let mut moved = attempt;
    moved.tpm = Some(Chip { storage_key: 1, ..Chip::default() });
    assert_eq!(reason(&moved), Reason::Locked(SealLock::OtherTpm));
    assert_eq!(moved.found().network, network(), "its config still says how it is reached");
}

/// Proves: D2 S4
#[test]
fn a_joined_machine_waits_for_the_clusters_half_at_each_boot() {
    let mut world = World::invited(LEVEL, tpm());
    let Ended::Running(cluster) = world.boot(None) else { panic!("it joins") };
    assert!(awaits_keys(&world.found()));
    assert_eq!(world.boot(None), Ended::Running(cluster), "the cluster gives it");
    world.store.admitted.clear();
    assert!(matches!(world.boot(None), Ended::Waiting(_)), "but not to whom it does not know");
}

/// No answer makes a coordinator of a machine: nothing is formatted.
#[test]
fn an_answer_that_is_not_taken_leaves_the_disk_as_it_was() {
    let mut world = World::invited(LEVEL, tpm());
    world.store.role = ClusterRole::Coordinator;
    let blank = world.headers.clone();
    let Ended::Waiting(why) = world.boot(None) else { panic!("it is not taken") };
    assert!(why.contains("makes a coordinator of the machine"), "{why}");
    assert!(world.headers == blank && world.filesystem.is_none());
}

/// Proves: D2 D4
#[test]
fn a_good_seal_beside_the_wrong_disk_says_so() {
    let mut blank = created();
    blank.headers.iter_mut().for_each(|copy| copy.fill(0));
    assert_eq!(reason(&with_config(blank)), Reason::Header(OpenError::Blank));
    // The ESP of another machine: its seal is good, the disk is not its own.
    let ours = created();
    let mut other = World::flashed(LEVEL, tpm());
    assert_eq!(other.boot(Some(Cut { after: 0, sectors: 0 })), Ended::Cut);
    assert!(matches!(other.boot(None), Ended::Running(_)));
    other.headers.clone_from(&ours.headers);
    assert!(matches!(reason(&other), Reason::Header(OpenError::OtherDisk { .. })));
}

/// Proves: D1 D3
#[test]
fn an_edited_older_or_damaged_header_is_refused_by_name() {
    let raw = with_headers(created(), |header| Header { lock: None, ..header }.to_bytes().to_vec());
    let level = OpenError::Level { sealed: LEVEL, found: Level::Insecure };
    assert_eq!(reason(&raw), Reason::Header(level));
    let turned_back =
        with_headers(created(), |header| Header { state: HeaderState::Provisional, ..header }.to_bytes().to_vec());
    assert_eq!(reason(&turned_back), Reason::Header(OpenError::Changed));
    let torn = with_headers(created(), |header| {
        let mut bytes = header.to_bytes().to_vec();
        bytes[100] ^= 1;
        bytes
    });
    assert_eq!(reason(&torn), Reason::Header(OpenError::Header(HeaderError::Checksum)));
}

/// A share file of `epoch` that holds `value`.
fn share(key: &ShareKey, value: &Secret<32>, epoch: &Epoch, wrapped: WrappedKey) -> Zeroizing<Vec<u8>> {
    Share::close(key, epoch.clone(), value, wrapped).emit(2).map(Zeroizing::new).expect("fits")
}

fn awaits_keys(found: &Findings) -> bool {
    let BootDecision::Wait(wait @ Wait::AwaitingKeys(disk), Some(_)) = &found.decision else { return false };
    wait.state() == WaitState::AwaitingKeys && disk.generation == 1
}

/// Proves: D2
#[test]
fn the_cluster_half_decides_between_wait_open_and_refuse() {
    let mut world = created();
    assert!(opens(&world));
    let ours = world.slots(File::Share)[FIRST.slot].clone();
    let found = world.found();
    let body = &found.seal().expect("it opened").body;
    let (Holder { cluster, machine }, disk) = (body.identity.holder, body.disk);
    let ours_opens = body.share_key();

    world.slots(File::Share)[FIRST.slot].fill(0);
    assert!(awaits_keys(&world.found()));

    // A whole share, but of another cluster key.
    let alone = Epoch::first(machine);
    let (key, value) = alone.derive(&MasterSecret(secret(0x99)), cluster, &machine).expect("a holder");
    let wrapped = key.wrap(&ClusterHalf { key: ClusterKey(secret(0x98)), disk, generation: 1, next: None });
    world.slots(File::Share)[1] = share(&ours_opens, &value, &alone, wrapped);
    assert_eq!(reason(&world), Reason::Header(OpenError::ClusterHalf));

    // One whose key does not open what it carries, one for whom another machine is the holder, and one of three.
    let three = Epoch::new(2, [machine, MachineId([1; 16]), MachineId([2; 16])].into()).expect("an epoch");
    for (value, epoch, report) in [
        (&secret(0x97), &alone, Report::SenselessShare(1)),
        (&value, &Epoch::first(MachineId([1; 16])), Report::SenselessShare(1)),
        (&value, &three, Report::OneShareOf { epoch: 2, needed: 2 }),
    ] {
        world.slots(File::Share)[1] = share(&ours_opens, value, epoch, wrapped);
        let found = world.found();
        assert!(awaits_keys(&found), "{found:?}");
        assert_eq!(found.reports, [report]);
    }

    // A newer share of another machine's is told, and the next one is tried.
    world.slots(File::Share)[0] = ours;
    let elsewhere = ShareKey::of(&LocalKey(secret(0x99)), &Holder { cluster, machine });
    world.slots(File::Share)[1] = share(&elsewhere, &value, &alone, wrapped);
    assert!(opens(&world));
    assert_eq!(world.found().reports, [Report::SenselessShare(1)]);
}

/// Proves: S11
#[test]
fn a_sealed_machine_removes_its_own_config_and_ignores_others() {
    let world = created();
    let found = world.found();
    let seal = &found.seal().expect("it opened").body;
    let ours = World::flashed(LEVEL, tpm()).files.config.expect("a config");
    assert_eq!(digest(&ours), seal.config);
    assert_eq!(Leftover::of(seal, None), Leftover::Absent);
    assert_eq!(Leftover::of(seal, Some(&ours)), Leftover::Remove);
    assert_eq!(Leftover::of(seal, Some(&vec![0; ours.len()])), Leftover::Remove);
    assert_eq!(Leftover::of(seal, Some(b"another")), Leftover::Ignore);

    let mut other = world;
    let another = Some(Zeroizing::new(b"another".to_vec()));
    other.files.config.clone_from(&another);
    assert_eq!(other.found().reports, [Report::ConfigIgnored]);
    assert!(matches!(other.boot(None), Ended::Running(_)));
    assert_eq!(other.files.config, another);
    let mut passed = created();
    passed.files.fw_cfg = Some(ours);
    assert_eq!(passed.found().reports, [Report::ConfigIgnored]);
}

/// Data under another key than the header's: the layer is named, and nothing was written.
#[test]
fn a_layer_that_refuses_the_data_is_named() {
    let (other, _) = finished(Level::Encrypted, None);
    let mut world = World::flashed(Level::Encrypted, None);
    assert_eq!(world.boot(Some(Cut { after: 0, sectors: 0 })), Ended::Cut);
    assert!(matches!(world.boot(None), Ended::Running(_)));
    world.filesystem = other.filesystem;
    let Ended::Waiting(why) = world.boot(None) else { panic!("it runs") };
    assert!(why.starts_with("the data partition opens, but XFS refuses it. Nothing was written."), "{why}");
    assert!(why.ends_with("has the kernel's words (it is under another key)"), "{why}");
}

#[test]
fn every_message_names_only_commands_that_exist() {
    let commands = [
        "cluster create",
        "cluster init",
        "machine activate",
        "machine status",
        "machine logs",
        "machine reboot",
        "machine remove NAME --lost",
        "enrol config",
        "recover",
    ];
    let disk = DiskUuid(Uuid([1; 16]));
    let headers = [
        OpenError::Blank,
        OpenError::Header(HeaderError::Checksum),
        OpenError::OtherDisk { sealed: disk, found: disk },
        OpenError::Level { sealed: LEVEL, found: Level::Insecure },
        OpenError::Older { found: 1, minimum: 2 },
        OpenError::LocalHalf,
        OpenError::ClusterHalf,
        OpenError::BothHalves,
        OpenError::Changed,
    ];
    let locked = [
        SealLock::BootClass { sealed: BootClass::Uefi, now: BootClass::Direct },
        SealLock::NoTpm,
        SealLock::OtherTpm,
        SealLock::Pcrs,
        SealLock::ZeroPcr(7),
        SealLock::InClear,
        SealLock::Body(keys::seal::SealError::BootClass),
    ];
    let reasons = headers.map(Reason::Header).into_iter().chain(locked.map(Reason::Locked)).chain([
        Reason::LiveDisk,
        Reason::ForeignDisk(HeaderError::Magic),
        Reason::Config(ConfigError::Version),
        Reason::Newer { what: "seal", version: 2 },
        Reason::Seal(keys::seal::SealError::BootClass),
        Reason::Unreadable("cairn/seal.0"),
        Reason::Config(ConfigError::Unreadable),
    ]);
    let cause = || Box::new(ChipFails);
    let failures = [
        Failure::Damaged(cause()),
        Failure::Tpm(cause()),
        Failure::Keys(cause()),
        Failure::Ready(cause()),
        Failure::Create(Step::Mount, cause()),
        Failure::Open(Step::Mount, cause()),
        Failure::Refused(Layer::Integrity, cause()),
        Failure::Refused(Layer::Crypt, cause()),
        Failure::Refused(Layer::Filesystem, cause()),
    ];
    let waits = reasons.map(Wait::NeedsOwner).chain([
        Wait::Blank(TpmPresence::Absent),
        Wait::AwaitingKeys(Box::new(LockedDisk {
            generation: 1,
            header: Copies([Copy::Blank, Copy::Blank]),
            directory: Slots([Zeroizing::default(), Zeroizing::default()]),
            record: None,
            shares: vec![],
        })),
    ]);
    for wait in waits.chain(failures.map(Wait::Failed)) {
        let message = wait.message();
        let named = message.split('`').skip(1).step_by(2);
        for command in named {
            let command = command.strip_prefix("cairnctl ").expect("only cairnctl is named");
            assert!(commands.contains(&command), "{command} in: {message}");
        }
        assert!(!message.contains("  "), "{message}");
        if let WaitState::NeedsOwner = wait.state() {
            assert!(message.contains("Nothing was"), "says what was left alone: {message}");
        }
    }
    let halves = Reason::Header(OpenError::LocalHalf).to_string();
    assert_eq!(
        halves,
        "the local key is not the one this disk was locked with. Nothing was changed. Put back the ESP that belongs \
         to this disk"
    );
}

/// The wrong way out is worse than none: it has somebody change a machine that was right.
#[test]
fn each_cause_names_the_way_out_of_it() {
    let locked = [
        (SealLock::BootClass { sealed: BootClass::Uefi, now: BootClass::Direct }, "Start the image it was sealed with"),
        (SealLock::Pcrs, "Start the image it was sealed with"),
        (SealLock::NoTpm, "Turn the TPM on"),
        (SealLock::OtherTpm, "Put the disk back into the machine it was sealed in"),
        (SealLock::ZeroPcr(7), "Update the firmware"),
        (SealLock::InClear, "Put back the ESP that belongs to this disk"),
        (SealLock::Body(keys::seal::SealError::BootClass), "Put back the ESP that belongs to this disk"),
    ];
    let disk = DiskUuid(Uuid([1; 16]));
    let headers = [
        (OpenError::Blank, "Attach the disk that belongs to this ESP"),
        (OpenError::OtherDisk { sealed: disk, found: disk }, "Attach the disk that belongs to this ESP"),
        (OpenError::Header(HeaderError::Checksum), "Check the disk and its cables"),
        (OpenError::Changed, "Check the disk and its cables"),
        (OpenError::Level { sealed: LEVEL, found: Level::Insecure }, "Somebody put an older or another header"),
        (OpenError::Older { found: 1, minimum: 2 }, "Somebody put an older or another header"),
        (OpenError::LocalHalf, "Put back the ESP that belongs to this disk"),
        (OpenError::BothHalves, "Put back the ESP that belongs to this disk"),
        (OpenError::ClusterHalf, "Make sure that the machine talks to its own cluster"),
        (OpenError::ClusterHalfMissing { generation: 1 }, "Make sure that the machine talks to its own cluster"),
    ];
    let reasons = locked.map(|(cause, remedy)| (Reason::Locked(cause), remedy));
    for (reason, remedy) in reasons.into_iter().chain(headers.map(|(cause, remedy)| (Reason::Header(cause), remedy))) {
        let message = reason.to_string();
        assert!(message.contains(&format!(". Nothing was changed. {remedy}")), "{message}");
    }
}
