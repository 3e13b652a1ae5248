//! Disk and keys: which halves open a disk, what tampering ends in, what the first boot costs.

use std::ops::Range;
use std::sync::PoisonError;

use crate::{
    Case, Context, DiskEvent, HEADER_BYTES, HEADERS, Headers, Integrity, MachinePlan, Owner, Prerequisite, RawDisk,
    Starts, WriteLog, all_tagged, stays, untouched, wait_state,
};
use anyhow::{Context as _, ensure};
use model::PartitionKind::{Data, Esp};
use qemu::Vm;
use qemu::machine::EmulatedTpm;
use qemu::qmp::BlockStats;

pub(crate) const CASES: &[Case] = &[
    Case {
        name: "a foreign, missing or torn header opens and formats nothing",
        proves: &["D2", "D4", "D14", "S7"],
        needs: &[Prerequisite::Swtpm],
        starts: Starts::Cold,
        run: other_headers,
    },
    Case {
        name: "neither another tpm nor another machine's seal opens",
        proves: &["D2"],
        needs: &[Prerequisite::Swtpm],
        starts: Starts::Cold,
        run: other_secrets,
    },
    Case {
        name: "one torn copy of the header costs nothing",
        proves: &["D3"],
        needs: &[Prerequisite::Swtpm],
        starts: Starts::Cold,
        run: torn_copy,
    },
    Case {
        name: "without share or seal a machine waits, and formats nothing",
        proves: &["D2", "D14", "K5", "K6", "S7"],
        needs: &[Prerequisite::Swtpm],
        starts: Starts::Cold,
        run: lost,
    },
    Case {
        name: "an old ESP opens nothing once the cluster key is rotated",
        proves: &["D13"],
        needs: &[Prerequisite::Swtpm],
        starts: Starts::Cold,
        run: stolen,
    },
    Case {
        name: "a header that somebody edited is refused by name",
        proves: &["D1", "D3"],
        needs: &[Prerequisite::Swtpm],
        starts: Starts::Cold,
        run: edited,
    },
    Case {
        name: "a seal in clear opens nothing beside a working tpm",
        proves: &["D5"],
        needs: &[Prerequisite::Swtpm],
        starts: Starts::Cold,
        run: in_clear,
    },
    Case {
        name: "a seal in clear shadows none that a tpm has sealed",
        proves: &["D5"],
        needs: &[Prerequisite::Swtpm],
        starts: Starts::Cold,
        run: shadowed,
    },
    Case {
        name: "a tampered sector of authenticated data is an error",
        proves: &["D1", "D6", "D10"],
        needs: &[Prerequisite::Swtpm],
        starts: Starts::Cold,
        run: tampered,
    },
    Case {
        name: "a larger disk is written no more at first boot",
        proves: &["D4"],
        needs: &[Prerequisite::Swtpm],
        starts: Starts::Cold,
        run: first_boot,
    },
    Case {
        name: "each step of a first boot is durable before the next",
        proves: &["D4", "D7"],
        needs: &[Prerequisite::Swtpm],
        starts: Starts::Cold,
        run: durable,
    },
    Case {
        name: "only an insecure disk shows what is on it",
        proves: &["D1", "O12"],
        needs: &[Prerequisite::Swtpm],
        starts: Starts::Cold,
        run: plaintext,
    },
];

/// A machine that has made its cluster, and is off.
fn enrolled(
    t: &Context,
    owner: &Owner,
    name: &str,
    plan: MachinePlan,
    choices: &[&str],
) -> anyhow::Result<MachinePlan> {
    let (plan, disk) = plan.raw_disk(1024)?;
    disk.put_config(&owner.config(name, &[&["--level", "encrypted", "--no-kubernetes"], choices].concat())?)?;
    let vm = plan.start()?;
    owner.status_when_running(name, &vm, vm.started(), t.within(30))?;
    owner.ask(name, &vm, &["machine", "poweroff"])?;
    vm.wait_shutdown(t.within(10))?;
    Ok(plan)
}

/// Machines of one owner, each of which has made its cluster and is off. Each case changes copies.
#[derive(Debug, Clone)]
struct Enrolled {
    owner: Owner,
    one: MachinePlan,
    two: MachinePlan,
    /// Without a TPM: its seal is in clear.
    clear: MachinePlan,
}

impl Enrolled {
    fn of(t: &Context) -> anyhow::Result<Self> {
        let shared = t.shared("machines that are enrolled", |t| {
            let owner = t.owner()?;
            let one = enrolled(t, &owner, "one", t.machine("one").tpm(), &[])?;
            let two = enrolled(t, &owner, "two", t.machine("two").tpm(), &[])?;
            let clear = enrolled(t, &owner, "clear", t.machine("clear"), &["--unprotected"])?;
            Ok(Self { owner, one, two, clear })
        })?;
        // Nobody changes it, so whoever panicked over it left it whole.
        Ok(shared.lock().unwrap_or_else(PoisonError::into_inner).clone())
    }
}

/// A header that neither copy of holds.
fn torn(whole: &Headers) -> Headers {
    Headers(whole.0.clone().map(|mut copy| {
        copy[200..512].fill(0);
        copy
    }))
}

fn other_headers(t: &Context) -> anyhow::Result<()> {
    let Enrolled { one, two, .. } = Enrolled::of(t)?;
    let (plan, disk) = one.copied(t.dir(), "one")?;
    let (_, other) = two.copied(t.dir(), "two")?;
    let torn = torn(&disk.headers()?);
    disk.put_headers(&other.headers()?)?;
    stays(t, &mut plan.start()?, "NeedsOwner", "but this seal was made for disk")?;
    disk.put_headers(&Headers([vec![0; 4096], vec![0; 4096]]))?;
    stays(t, &mut plan.start()?, "NeedsOwner", "the disk is blank")?;
    disk.put_headers(&torn)?;
    stays(t, &mut plan.start()?, "NeedsOwner", "checksum does not hold")
}

fn other_secrets(t: &Context) -> anyhow::Result<()> {
    let Enrolled { one, two, .. } = Enrolled::of(t)?;
    let (mut elsewhere, disk) = one.copied(t.dir(), "one")?;
    elsewhere.machine().tpm = Some(EmulatedTpm { state: t.dir().join("other-tpm") });
    stays(t, &mut elsewhere.start()?, "NeedsOwner", "another TPM, or its TPM was cleared")?;
    // So is the ESP of another machine.
    let (other_plan, other) = two.copied(t.dir(), "two")?;
    other.put_esp_of(&disk)?;
    stays(t, &mut other_plan.start()?, "NeedsOwner", "another TPM, or its TPM was cleared")
}

/// A torn copy of the header is what a power cut leaves: the other copy opens.
fn torn_copy(t: &Context) -> anyhow::Result<()> {
    let Enrolled { owner, one, .. } = Enrolled::of(t)?;
    let (plan, disk) = one.copied(t.dir(), "one")?;
    let whole = disk.headers()?;
    disk.put_headers(&Headers([torn(&whole).0[0].clone(), whole.0[1].clone()]))?;
    let mut vm = plan.start()?;
    owner.status_when_running("one", &vm, vm.started(), t.within(30))?;
    ensure!(untouched(t, &mut vm).is_err(), "a machine that opens its data writes, and that is seen");
    Ok(())
}

/// Without its share a lone coordinator has its own half only; without its seal it has none.
fn lost(t: &Context) -> anyhow::Result<()> {
    let Enrolled { owner, one, .. } = Enrolled::of(t)?;
    let (plan, disk) = one.copied(t.dir(), "one")?;
    for slot in 0..2 {
        disk.wipe_file(&format!("cairn/share.{slot}"))?;
    }
    let mut vm = plan.start()?;
    stays(t, &mut vm, "AwaitingKeys", "the cluster's half of the data key")?;
    let before = vm.mark()?;
    let recovered = owner.ask("one", &vm, &["recover"])?;
    ensure!(recovered["recovered"] == 1, "its owner has the other half: {recovered:#}");
    owner.status_when_running("one", &vm, before, t.within(30))?;
    owner.ask("one", &vm, &["machine", "poweroff"])?;
    vm.wait_shutdown(t.within(10))?;
    for slot in 0..2 {
        disk.wipe_file(&format!("cairn/seal.{slot}"))?;
    }
    disk.put_config(&owner.config("three", &["--level", "encrypted", "--no-kubernetes"])?)?;
    let before = disk.headers()?;
    stays(t, &mut plan.start()?, "NeedsOwner", "the disk holds data of an enrolled machine")?;
    ensure!(disk.headers()? == before, "the header is as it was");
    Ok(())
}

/// The ESP of a lone coordinator has both halves of the data key: the local key in its seal, the cluster key in its
/// share.
fn stolen(t: &Context) -> anyhow::Result<()> {
    let Enrolled { owner, one, .. } = Enrolled::of(t)?;
    let (plan, disk) = one.copied(t.dir(), "one")?;
    let old = disk.whole(Esp)?;
    let mut vm = plan.start()?;
    owner.status_when_running("one", &vm, vm.started(), t.within(30))?;
    rotate(t, &owner, &mut vm)?;
    owner.ask("one", &vm, &["machine", "poweroff"])?;
    vm.wait_shutdown(t.within(10))?;

    let new = disk.whole(Esp)?;
    disk.write(Esp, 0, &old)?;
    stays(t, &mut plan.start()?, "AwaitingKeys", "the cluster's half of the data key")?;
    disk.write(Esp, 0, &new)?;
    let vm = plan.start()?;
    owner.status_when_running("one", &vm, vm.started(), t.within(30)).map(drop)
}

/// The machine takes another cluster key, by a start.
fn rotate(t: &Context, owner: &Owner, vm: &mut Vm) -> anyhow::Result<()> {
    // A machine runs a moment before it has read the records, and its first boot before it has written them.
    let name = vm.until(t.within(30), || {
        let listed = owner.ask("one", vm, &["machine", "list"]).ok()?;
        listed["machines"][0]["name"].as_str().map(str::to_owned)
    })?;
    owner.ask("one", vm, &["machine", "rotate-key", &name, "--wait"])?;
    let before = vm.mark()?;
    vm.reset(t.within(5))?;
    wait_state(vm, before, "Running", t.within(30))?;
    Ok(vm.until(t.within(30), || {
        let listed = owner.ask("one", vm, &["machine", "list"]).ok()?;
        let row = &listed["machines"][0];
        (row["key_generation"] == 2 && row["key_rotates"] == false).then_some(())
    })?)
}

fn in_clear(t: &Context) -> anyhow::Result<()> {
    let Enrolled { owner, clear, .. } = Enrolled::of(t)?;
    let (without, _disk) = clear.copied(t.dir(), "clear")?;
    stays(t, &mut without.clone().tpm().start()?, "NeedsOwner", "its secret lies in clear beside it")?;
    let vm = without.start()?;
    let status = owner.status_when_running("clear", &vm, vm.started(), t.within(30))?;
    ensure!(status.protection == "none", "{status:#?}");
    Ok(())
}

/// The other's seal and share are put before its own, in slots that a reader looks at first.
fn shadowed(t: &Context) -> anyhow::Result<()> {
    let Enrolled { owner, one, clear, .. } = Enrolled::of(t)?;
    let (plan, sealed) = one.copied(t.dir(), "one")?;
    let (_, disk) = clear.copied(t.dir(), "clear")?;
    for pair in ["seal", "share"] {
        let (first, second) = (format!("cairn/{pair}.0"), format!("cairn/{pair}.1"));
        sealed.put_file(&second, &sealed.file(&first)?)?;
        sealed.put_file(&first, &disk.file(&first)?)?;
    }
    let vm = plan.start()?;
    let status = owner.status_when_running("one", &vm, vm.started(), t.within(30))?;
    ensure!(status.protection == "tpm", "{status:#?}");
    Ok(())
}

fn edited(t: &Context) -> anyhow::Result<()> {
    let Enrolled { owner, one, .. } = Enrolled::of(t)?;
    let (plan, disk) = one.copied(t.dir(), "one")?;
    let headers = disk.headers()?;
    // Places as FORMATS.md, *Data partition*, gives them: version, suite, state, generation.
    let edits: [(usize, u32, &str); 4] = [
        (8, 2, "written by a newer Cairn (version 2)"),
        (12, 3, "unknown suite 3"),
        (16, 1, "the data header was changed"),
        (24, 9, "the data header was changed"),
    ];
    for (place, number, reason) in edits {
        disk.put_headers(&headers.edited(place, &number.to_le_bytes()))?;
        stays(t, &mut plan.start()?, "NeedsOwner", reason)?;
    }
    disk.put_headers(&headers)?;
    let vm = plan.start()?;
    owner.status_when_running("one", &vm, vm.started(), t.within(30)).map(drop)
}

fn tampered(t: &Context) -> anyhow::Result<()> {
    let owner = t.owner()?;
    let config = owner.config("one", &["--level", "authenticated", "--no-kubernetes"])?;
    // Half a GiB of data: enough to be seen being tagged, not too much to wait for.
    let (plan, disk) = t.machine("m").tpm().raw_disk(1100)?;
    disk.put_config(&config)?;
    let vm = plan.start()?;
    owner.status_when_running("one", &vm, vm.started(), t.within(30))?;
    all_tagged(t, &owner, "one", &vm)?;
    let heads = vm.said().iter().filter(|line| line.text.starts_with("  Cairn ")).count();
    ensure!(heads == 1, "a serial line is told what changed: {heads} times all of it");
    owner.ask("one", &vm, &["machine", "poweroff"])?;
    vm.wait_shutdown(t.within(10))?;

    disk.flip(Data, Integrity::of(&disk)?.place(0) - disk.range(Data)?.start + 100)?;
    let vm = plan.start()?;
    let shown = wait_state(&vm, vm.started(), "Failed", t.within(30))?;
    let reason = vm.wait_for(shown, "  reason ", t.within(1))?.text;
    ensure!(reason.contains("refuses it"), "{reason}");
    let lines = vm.said();
    ensure!(lines.iter().any(|line| line.text.contains("Checksum failed at sector 0x0")), "{reason}");
    Ok(())
}

/// The same bytes are written in the same number of requests, each within 5 %, and about as many are read: services read their
/// programs from the moment in which the machine runs, and are further or less far when that is seen here. At the default level
/// within a quarter, tags apart, which are written as time passes: dm-integrity copies what is in its journal by halves of
/// 32 MiB, whenever it comes to that.
fn first_boot(t: &Context) -> anyhow::Result<()> {
    let (small, large) = (disk_use_of_first_boot(t, 8)?, disk_use_of_first_boot(t, 200)?);
    let alike = |small: &[u64], large: &[u64], parts: u64| {
        small.iter().zip(large).all(|(small, large)| small.abs_diff(*large) * parts <= *small)
    };
    let written = |stats: &BlockStats| [stats.written_bytes, stats.writes, stats.flushes];
    let read = |stats: &BlockStats| [stats.read_bytes, stats.reads];
    let same = alike(&written(&small), &written(&large), 20) && alike(&read(&small), &read(&large), 4);
    ensure!(same, "8 GiB: {small:?}, 200 GiB: {large:?}");

    let (small, large) = (writes_of_first_boot(t, 8)?, writes_of_first_boot(t, 200)?);
    for (gib, Written { bytes, writes, flushes, tag_bytes }) in [(8, &small), (200, &large)] {
        t.measured(&format!(
            "first boot at level authenticated, {gib} GiB: {bytes} bytes in {writes} writes, {flushes} flushes, and {tag_bytes} bytes of tags"
        ));
    }
    // How requests are merged depends on how far tagging is: 191 to 284 of them were seen at either size. What grows with
    // the disk would be 25 times as much.
    ensure!(large.bytes * 4 <= small.bytes * 5, "8 GiB: {small:?}, 200 GiB: {large:?}");
    ensure!(large.writes <= small.writes * 2, "8 GiB: {small:?}, 200 GiB: {large:?}");
    Ok(())
}

/// Requests to a disk of so many GiB, from its machine's first start until it runs.
fn disk_use_of_first_boot(t: &Context, gib: u64) -> anyhow::Result<BlockStats> {
    let config = t.owner()?.config(&format!("of-{gib}"), &["--level", "encrypted", "--no-kubernetes"])?;
    let mut vm = t.machine(&format!("of-{gib}")).disk_gib(gib).tpm().config(&config)?.start()?;
    wait_state(&vm, vm.started(), "Running", t.within(30))?;
    Ok(vm.qmp().block_stats("disk0", t.within(1))?)
}

/// Writes to a disk, dm-integrity's tags and superblock apart.
#[derive(Debug, Default)]
struct Written {
    bytes: u64,
    writes: u64,
    flushes: u64,
    tag_bytes: u64,
}

/// Writes to a disk of so many GiB at the default level, from its machine's first start until it runs.
fn writes_of_first_boot(t: &Context, gib: u64) -> anyhow::Result<Written> {
    let name = format!("tagged-{gib}");
    let config = t.owner()?.config(&name, &["--no-kubernetes"])?;
    let (plan, disk) = t.machine(&name).tpm().raw_disk(gib << 10)?;
    let plan = plan.config(&config)?.logged();
    let mut vm = plan.start()?;
    wait_state(&vm, vm.started(), "Running", t.within(60))?;
    vm.qmp().pause(t.within(5))?;
    let layout = Integrity::of(&disk)?;
    let mut written = Written::default();
    for happened in WriteLog::read(&plan.write_log())?.all() {
        match happened {
            DiskEvent::Flush => written.flushes += 1,
            DiskEvent::Write(range) if layout.is_tags(range.start) => written.tag_bytes += range.end - range.start,
            DiskEvent::Write(range) => {
                written.bytes += range.end - range.start;
                written.writes += 1;
            }
        }
    }
    vm.kill();
    std::fs::remove_file(disk.path())?;
    std::fs::remove_file(plan.write_log())?;
    Ok(written)
}

/// Each place that create writes, in the order that `crates/enrol` decides: what was written before is durable when the next
/// one is begun, though the host would lose nothing by a flush that is not there.
fn durable(t: &Context) -> anyhow::Result<()> {
    let owner = t.owner()?;
    // Without a share, but with files that can be found from outside; then the other way round.
    for level in ["insecure", "encrypted"] {
        let config = owner.config(level, &["--level", level, "--no-kubernetes"])?;
        let (plan, disk) = t.machine(level).tpm().raw_disk(1024)?;
        disk.put_config(&config)?;
        let removal = disk.file_ranges(image::esp::ENROLMENT)?;
        let plan = plan.logged();
        let mut vm = plan.start()?;
        owner.status_when_running(level, &vm, vm.started(), t.within(30))?;
        vm.qmp().pause(t.within(5))?;
        let log = WriteLog::read(&plan.write_log())?;
        vm.kill();

        let places = written(&disk, level, &config, removal)?;
        in_order(&log, &places).with_context(|| format!("level {level}"))?;
    }
    Ok(())
}

/// Places that a first boot writes, in the order in which they have to be durable. Where the config was, is known from
/// before.
fn written(disk: &RawDisk, level: &str, config: &[u8], removal: Vec<Range<u64>>) -> anyhow::Result<Vec<Named>> {
    let (data, end) = (disk.range(Data)?.start, 1024 << 20);
    let header = |copy: usize| one(data + HEADERS[copy], HEADER_BYTES as u64);
    let first = if level == "insecure" {
        let secret = disk.first(Data, first_contact(config)?)?.context("the first-contact secret was on the disk")?;
        ("the first-contact secret", one(data + secret, 32))
    } else {
        ("the share", slots(disk, "share")?)
    };
    Ok(vec![
        ("the backup table", one(end - 33 * 512, 33 * 512)),
        ("the primary table", one(512, 33 * 512)),
        ("the first provisional header", header(0)),
        ("the second provisional header", header(1)),
        first,
        ("the recovery record", slots(disk, "record")?),
        ("the directory", slots(disk, "directory")?),
        ("the seal", slots(disk, "seal")?),
        ("the first committed header", header(0)),
        ("the second committed header", header(1)),
        ("the config's removal", removal),
    ])
}

/// A place in one piece.
fn one(start: u64, length: u64) -> Vec<Range<u64>> {
    Vec::from([Range { start, end: start + length }])
}

/// Both slots of a file on the ESP.
fn slots(disk: &RawDisk, name: &str) -> anyhow::Result<Vec<Range<u64>>> {
    let [first, second] = ["0", "1"].map(|slot| disk.file_ranges(&format!("cairn/{name}.{slot}")));
    Ok([first?, second?].concat())
}

/// A place on a disk, and its name.
type Named = (&'static str, Vec<Range<u64>>);

/// Each place is written behind the one before it, and only once that is durable.
fn in_order(log: &WriteLog, places: &[Named]) -> anyhow::Result<()> {
    let mut from = 0;
    let mut before: Option<&Named> = None;
    for place in places {
        let behind = before.map_or("the start", |before| before.0);
        let at =
            log.first_write(from, &place.1).with_context(|| format!("{} is not written behind {behind}", place.0))?;
        ensure!(
            before
                .is_none_or(|before| log.is_durable(at, &before.1) && log.all()[from..at].contains(&DiskEvent::Flush)),
            "{} is written while {behind} can still be lost",
            place.0
        );
        (from, before) = (at, Some(place));
    }
    Ok(())
}

/// The first-contact secret of a config: field 4 of its body, 32 bytes, behind field 3 with the version.
fn first_contact(config: &[u8]) -> anyhow::Result<&[u8]> {
    let field = [0x18, 1, 0x22, 32];
    let at =
        config.windows(field.len()).position(|bytes| bytes == field).context("a config has a first-contact secret")?;
    config.get(at + field.len()..at + field.len() + 32).context("32 bytes")
}

/// The machine's name, which etcd keeps on the data partition, is to be found on the raw disk at level insecure, and at no
/// other. At each level the end of a boot closes every layer.
fn plaintext(t: &Context) -> anyhow::Result<()> {
    const CANARY: &str = "a-canary-that-sings-in-clear-only";
    let owner = t.owner()?;
    for (level, shows) in [("insecure", true), ("encrypted", false), ("authenticated", false)] {
        let config = owner.config(level, &["--level", level, "--node-name", CANARY, "--no-kubernetes"])?;
        let (plan, disk) = t.machine(level).tpm().raw_disk(1024)?;
        let vm = plan.config(&config)?.start()?;
        let status = owner.status_when_running(level, &vm, vm.started(), t.within(30))?;
        ensure!(status.name == CANARY, "{status:#?}");
        // etcd writes the names of its members first of all.
        let seconds = format!("{}s", t.within(20).length().as_secs());
        owner.ask(level, &vm, &["condition", "wait", "EtcdReady", "--timeout", &seconds])?;
        let before = vm.mark()?;
        owner.ask(level, &vm, &["machine", "poweroff"])?;
        // The kernel's own list: the verified root is all that is left.
        vm.wait_for(before, "data partition closed left=root", t.within(10))?;
        vm.wait_shutdown(t.within(10))?;
        ensure!(
            disk.first(Data, CANARY.as_bytes())?.is_some() == shows,
            "level {level}: the name is {}",
            if shows { "not there" } else { "there" }
        );
    }
    Ok(())
}
