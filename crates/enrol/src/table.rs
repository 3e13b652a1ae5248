//! The table of seal and header, row by row, and the words that each row gives to a person.

use keys::data_key::{ClusterHalf, OpenError};
use keys::header::{Copies, Copy, HEADER_BYTES, Header, HeaderError, State};
use keys::pair::File;
use model::{BootClass, Level, Stay};

use crate::config::{ConfigError, Tpm, Unserved, digest};
use crate::found::{Found, FoundConfig, FoundSeal, Layer, Leftover, Locked, Reason, Verdict, decide};
use crate::world::{Ended, FIRST, World, finished, wrong_half};

const LEVEL: Level = Level::Authenticated;

fn created() -> World {
    finished(LEVEL, Tpm::Present).0
}

/// The reason for which the owner is needed; nothing may have been written.
fn reason(world: &World) -> Reason {
    let mut after = world.clone();
    let ended = after.boot(None);
    // First: had anything been decided but to wait, the whole boot has run by now, and it writes.
    assert_eq!(format!("{after:?}"), format!("{world:?}"), "nothing was written");
    assert!(matches!(ended, Ended::Waiting(_)), "{ended:?}");
    world.decide(|verdict, _, _| {
        let Verdict::NeedsOwner(reason) = verdict else { panic!("{verdict:?}") };
        reason
    })
}

fn with_config(mut world: World) -> World {
    world.config = World::flashed(LEVEL, Tpm::Present).config;
    world
}

fn without_seal(mut world: World) -> World {
    world.pair(File::Seal).iter_mut().for_each(|slot| slot.fill(0));
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
    reason(&World::flashed(LEVEL, Tpm::Present));
}

/// Proves: S2
#[test]
fn nothing_found_waits_and_a_config_creates() {
    let mut world = World::flashed(LEVEL, Tpm::Present);
    world.decide(|verdict, _, _| assert!(matches!(verdict, Verdict::Create(_))));
    world.config = None;
    world.decide(|verdict, _, _| {
        assert!(matches!(verdict, Verdict::Blank));
        assert_eq!(verdict.stay(), Some(Stay::Blank));
    });
}

/// Proves: S1
#[test]
fn a_refused_config_leaves_the_disk_alone() {
    let mut world = World::flashed(LEVEL, Tpm::Present);
    world.config = Some(b"garbage".to_vec());
    assert!(matches!(reason(&world), Reason::Config(ConfigError::Malformed(_))));
    world.config = Some(vec![]);
    assert!(matches!(reason(&world), Reason::Config(ConfigError::Malformed(_))));
    let config = crate::fixture::config(LEVEL, crate::config::WithoutTpm::Refuse);
    world.config = Some(config.sign(&crate::fixture::owner()).expect("a good config").to_vec());
    world.tpm = Tpm::Absent;
    assert_eq!(reason(&world), Reason::Config(ConfigError::Unserved(Unserved::NoTpm)));
    world.tpm = Tpm::ZeroPcr(4);
    assert_eq!(reason(&world), Reason::Config(ConfigError::Unserved(Unserved::ZeroPcr(4))));
}

#[test]
fn the_machines_item_wins_over_the_file() {
    let good = World::flashed(LEVEL, Tpm::Present).config;
    let garbage = Some(&b"garbage"[..]);
    assert!(matches!(FoundConfig::read(good.as_deref(), garbage), FoundConfig::Good(_)));
    assert!(matches!(FoundConfig::read(garbage, good.as_deref()), FoundConfig::Refused(_)));
    assert!(matches!(FoundConfig::read(None, good.as_deref()), FoundConfig::Good(_)));
    assert!(matches!(FoundConfig::read(None, None), FoundConfig::Absent));
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
    let mut world = World::flashed(LEVEL, Tpm::Present);
    world.headers[1][7] = 1;
    assert_eq!(reason(&world), Reason::ForeignDisk(HeaderError::Magic));
    let mut torn = with_config(without_seal(created()));
    torn.headers.iter_mut().for_each(|copy| copy[100] ^= 1);
    assert_eq!(reason(&torn), Reason::ForeignDisk(HeaderError::Checksum));
    let mut short = World::flashed(LEVEL, Tpm::Present);
    short.headers[0].truncate(100);
    assert_eq!(reason(&short), Reason::ForeignDisk(HeaderError::Size));
    let mut newer = with_config(without_seal(created()));
    newer.headers[1][8] = 2;
    newer.headers[0].fill(0);
    assert_eq!(reason(&newer), Reason::Newer { what: "data header", version: 2 });
}

/// Proves: D5
#[test]
fn a_seal_that_does_not_unseal_names_the_cause() {
    let mut gone = created();
    gone.tpm = Tpm::Absent;
    assert_eq!(reason(&with_config(gone)), Reason::Locked(Locked::NoTpm));
    let mut silent = created();
    silent.tpm = Tpm::ZeroPcr(7);
    assert_eq!(reason(&silent), Reason::Locked(Locked::ZeroPcr(7)));
    let mut newer = created();
    newer.pair(File::Seal)[FIRST.slot][8] = 2;
    assert_eq!(reason(&newer), Reason::Newer { what: "seal", version: 2 });
}

/// Anybody who can write the ESP can write a seal in clear, of any generation: where a TPM works, it counts for nothing.
///
/// Proves: D5
#[test]
fn a_seal_in_clear_opens_nothing_beside_a_working_tpm() {
    let (mut clear, _) = finished(LEVEL, Tpm::Absent);
    clear.decide(|verdict, _, _| assert!(matches!(verdict, Verdict::Open(_)), "without a TPM it is all there is"));
    clear.tpm = Tpm::Present;
    assert_eq!(reason(&clear), Reason::Locked(Locked::InClear));
    // Beside the seal that the TPM holds, whichever slot is whose, it neither opens nor shadows.
    for file in [File::Seal, File::Share] {
        for slot in 0..2 {
            let mut world = created();
            let ours = world.pair(file)[FIRST.slot].clone();
            world.pair(file)[slot] = ours;
            world.pair(file)[1 - slot].clone_from(&clear.pair(file)[FIRST.slot]);
            world.decide(|verdict, _, _| assert!(matches!(verdict, Verdict::Open(_)), "{file:?} {slot}: {verdict:?}"));
        }
    }
}

/// A checksum that holds over a clear part that makes no sense is somebody's seal, not none: with a config beside it, "none"
/// would format the disk.
///
/// Proves: D14
#[test]
fn a_malformed_seal_is_not_taken_for_none() {
    let mut world = World::flashed(LEVEL, Tpm::Present);
    let malformed = keys::pair::emit(File::Seal, 1, b"no protobuf of ours", None).expect("fits");
    world.pair(File::Seal)[0].clone_from(&malformed);
    assert!(matches!(reason(&world), Reason::Seal(keys::seal::SealError::Malformed(_))));
    let mut member = with_config(created());
    member.pair(File::Seal)[FIRST.slot] = malformed;
    assert!(matches!(reason(&member), Reason::Seal(keys::seal::SealError::Malformed(_))));
}

/// Proves: D2 D4
#[test]
fn a_good_seal_beside_the_wrong_disk_says_so() {
    let mut blank = created();
    blank.headers.iter_mut().for_each(|copy| copy.fill(0));
    assert_eq!(reason(&with_config(blank)), Reason::Header(OpenError::Blank));
    // The ESP of another machine: its seal is good, the disk is not its own.
    let ours = created();
    let mut other = World::flashed(LEVEL, Tpm::Present);
    assert_eq!(other.boot(Some(crate::world::Cut { after: 0, sectors: 0 })), Ended::Cut);
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
        with_headers(created(), |header| Header { state: State::Provisional, ..header }.to_bytes().to_vec());
    assert_eq!(reason(&turned_back), Reason::Header(OpenError::Changed));
    let torn = with_headers(created(), |header| {
        let mut bytes = header.to_bytes().to_vec();
        bytes[100] ^= 1;
        bytes
    });
    assert_eq!(reason(&torn), Reason::Header(OpenError::Header(HeaderError::Checksum)));
}

/// Proves: D2
#[test]
fn the_cluster_half_decides_between_waiting_opening_and_refusing() {
    let mut world = created();
    world.decide(|verdict, _, _| assert!(matches!(verdict, Verdict::Open(_))));
    world.pair(File::Share).iter_mut().for_each(|slot| slot.fill(0));
    world.decide(|verdict, body, half| {
        assert!(half.is_none());
        assert!(matches!(verdict, Verdict::AwaitingKeys { generation: 1 }));
        assert_eq!(verdict.stay(), Some(Stay::AwaitingKeys));
        let body = body.expect("the seal opened");
        let header = Copies::read(&world.headers[0], &world.headers[1]);
        let given = |half: &ClusterHalf| {
            let (seal, config) = (FoundSeal::Open(body), FoundConfig::Absent);
            decide(Found { seal, header: &header, cluster: Some(half), config, tpm: Tpm::Present })
        };
        let refused = given(&wrong_half(body.disk));
        assert!(matches!(refused, Verdict::NeedsOwner(Reason::Header(OpenError::ClusterHalf))), "{refused:?}");
    });
}

/// Proves: S11
#[test]
fn a_sealed_machine_removes_its_own_config_and_ignores_others() {
    let world = created();
    world.decide(|_, body, _| {
        let seal = body.expect("the seal opened");
        let ours = World::flashed(LEVEL, Tpm::Present).config.expect("a config");
        assert_eq!(digest(&ours), seal.config);
        assert_eq!(Leftover::of(seal, None), Leftover::Absent);
        assert_eq!(Leftover::of(seal, Some(&ours)), Leftover::Remove);
        assert_eq!(Leftover::of(seal, Some(&vec![0; ours.len()])), Leftover::Remove);
        assert_eq!(Leftover::of(seal, Some(b"another")), Leftover::Ignore);
    });
    let mut other = world;
    other.config = Some(b"another".to_vec());
    assert!(matches!(other.boot(None), Ended::Running(_)));
    assert_eq!(other.config.as_deref(), Some(&b"another"[..]));
}

#[test]
fn every_message_names_only_commands_that_exist() {
    let commands = ["cluster create", "machine status", "machine logs", "machine reboot", "enrol config"];
    let disk = model::DiskUuid(model::Uuid([1; 16]));
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
        Locked::BootClass { sealed: BootClass::Uefi, now: BootClass::Direct },
        Locked::NoTpm,
        Locked::OtherTpm,
        Locked::Pcrs,
        Locked::ZeroPcr(7),
        Locked::InClear,
        Locked::Body(keys::seal::SealError::BootClass),
    ];
    let reasons = headers.map(Reason::Header).into_iter().chain(locked.map(Reason::Locked)).chain([
        Reason::LiveDisk,
        Reason::ForeignDisk(HeaderError::Magic),
        Reason::Config(ConfigError::Version),
        Reason::Newer { what: "seal", version: 2 },
        Reason::Seal(keys::seal::SealError::BootClass),
    ]);
    let verdicts = reasons.map(Verdict::NeedsOwner).chain([
        Verdict::Blank,
        Verdict::AwaitingKeys { generation: 1 },
        Verdict::Failed(Layer::Integrity),
        Verdict::Failed(Layer::Crypt),
        Verdict::Failed(Layer::Filesystem),
    ]);
    for verdict in verdicts {
        let message = verdict.message();
        let named = message.split('`').skip(1).step_by(2);
        for command in named {
            let command = command.strip_prefix("cairnctl ").expect("only cairnctl is named");
            assert!(commands.contains(&command), "{command} in: {message}");
        }
        assert!(!message.contains("  "), "{message}");
        if let Verdict::NeedsOwner(_) = verdict {
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
        (Locked::BootClass { sealed: BootClass::Uefi, now: BootClass::Direct }, "Start the image it was sealed with"),
        (Locked::Pcrs, "Start the image it was sealed with"),
        (Locked::NoTpm, "Turn the TPM on"),
        (Locked::OtherTpm, "Put the disk back into the machine it was sealed in"),
        (Locked::ZeroPcr(7), "Update the firmware"),
        (Locked::InClear, "Put back the ESP that belongs to this disk"),
        (Locked::Body(keys::seal::SealError::BootClass), "Put back the ESP that belongs to this disk"),
    ];
    let disk = model::DiskUuid(model::Uuid([1; 16]));
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
