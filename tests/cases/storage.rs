//! Disk and keys: which halves open a disk, what tampering ends in, what the first boot costs.

use anyhow::{Context as _, ensure};
use model::PartitionKind::Data;
use qemu::machine::Tpm;
use qemu::qmp::BlockStats;
use tests::{Case, Context, Headers, Need, Owner, Plan, RawDisk, stays, wait_state};

pub(crate) const CASES: &[Case] = &[
    Case {
        name: "neither another tpm nor another disk nor a lost seal opens or formats",
        proves: &["D2", "D4", "D14", "S7"],
        needs: &[Need::Swtpm],
        run: halves,
    },
    Case {
        name: "a header that somebody edited is refused by name",
        proves: &["D1", "D3"],
        needs: &[Need::Swtpm],
        run: edited,
    },
    Case {
        name: "a tampered sector of authenticated data is an error",
        proves: &["D1", "D6", "D10"],
        needs: &[Need::Swtpm],
        run: tampered,
    },
    Case {
        name: "a larger disk is written no more at first boot",
        proves: &["D4"],
        needs: &[Need::Swtpm],
        run: first_boot,
    },
];

/// A machine that has made its cluster and is off.
fn enrolled(t: &Context, owner: &Owner, name: &str, level: &str) -> anyhow::Result<(Plan, RawDisk)> {
    let config = owner.config(name, &["--level", level, "--no-kubernetes"])?;
    let (plan, disk) = t.machine(name).tpm().raw_disk(1024)?;
    disk.put_config(&config)?;
    let mut vm = plan.start()?;
    owner.status_when_running(name, &mut vm, t.within(30))?;
    owner.ask(name, &vm, &["machine", "poweroff"])?;
    vm.wait_shutdown(t.within(10))?;
    Ok((plan, disk))
}

fn halves(t: &Context) -> anyhow::Result<()> {
    let owner = t.owner()?;
    let (plan, disk) = enrolled(t, &owner, "one", "encrypted")?;
    let (other_plan, other) = enrolled(t, &owner, "two", "encrypted")?;
    let headers = disk.headers()?;

    disk.put_headers(&other.headers()?)?;
    stays(t, &mut plan.start()?, "NeedsOwner", "but this seal was made for disk")?;
    disk.put_headers(&Headers([vec![0; 4096], vec![0; 4096]]))?;
    stays(t, &mut plan.start()?, "NeedsOwner", "the disk is blank")?;
    let mut torn = headers.clone();
    torn.0[0][200..512].fill(0);
    torn.0[1][200..512].fill(0);
    disk.put_headers(&torn)?;
    stays(t, &mut plan.start()?, "NeedsOwner", "checksum does not hold")?;

    disk.put_headers(&headers)?;
    let mut elsewhere = plan.clone();
    elsewhere.machine().tpm = Some(Tpm { state: t.dir().join("other-tpm") });
    stays(t, &mut elsewhere.start()?, "NeedsOwner", "another TPM, or its TPM was cleared")?;

    // So does the ESP of another machine.
    other.put_esp_of(&disk)?;
    stays(t, &mut other_plan.start()?, "NeedsOwner", "another TPM, or its TPM was cleared")?;

    // One torn copy is what a power cut leaves: the other one opens.
    disk.put_headers(&Headers([torn.0[0].clone(), headers.0[1].clone()]))?;
    let mut vm = plan.start()?;
    owner.status_when_running("one", &mut vm, t.within(30))?;
    owner.ask("one", &vm, &["machine", "poweroff"])?;
    vm.wait_shutdown(t.within(10))?;

    // Without its share a lone coordinator has its own half only; without its seal it has none.
    for slot in 0..2 {
        disk.wipe_file(&format!("cairn/share.{slot}"))?;
    }
    stays(t, &mut plan.start()?, "AwaitingKeys", "the cluster's half of the data key")?;
    for slot in 0..2 {
        disk.wipe_file(&format!("cairn/seal.{slot}"))?;
    }
    disk.put_config(&owner.config("three", &["--level", "encrypted", "--no-kubernetes"])?)?;
    let before = disk.headers()?;
    stays(t, &mut plan.start()?, "NeedsOwner", "the disk holds data of an enrolled machine")?;
    ensure!(disk.headers()? == before, "the header is as it was");
    Ok(())
}

fn edited(t: &Context) -> anyhow::Result<()> {
    let owner = t.owner()?;
    let (plan, disk) = enrolled(t, &owner, "one", "encrypted")?;
    let headers = disk.headers()?;
    // Places as formats.md, section 4, gives them: version, suite, state, generation.
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
    owner.status_when_running("one", &mut plan.start()?, t.within(30)).map(drop)
}

fn tampered(t: &Context) -> anyhow::Result<()> {
    let owner = t.owner()?;
    let config = owner.config("one", &["--level", "authenticated", "--no-kubernetes"])?;
    // 1 GiB of data: enough to be seen being tagged, not too much to wait for.
    let (plan, disk) = t.machine("m").tpm().raw_disk(1600)?;
    disk.put_config(&config)?;
    let mut vm = plan.start()?;
    owner.status_when_running("one", &mut vm, t.within(30))?;
    // On a fast host it is all tagged before anybody can ask; the console has shown what was.
    let tagging = |line: &qemu::console::Line| line.text.contains(" % tagged), tpm");
    ensure!(vm.console().lines().iter().any(tagging), "it was authenticated before it was all tagged");
    let mut last = serde_json::Value::Null;
    let tagged = vm.until(t.within(30), || {
        last = owner.ask("one", &vm, &["machine", "status"]).ok()?;
        (last["level"] == "authenticated").then_some(())
    });
    tagged.with_context(|| format!("{last:#}"))?;
    let heads = vm.console().lines().iter().filter(|line| line.text.starts_with("  Cairn ")).count();
    ensure!(heads == 1, "a serial line is told what changed: {heads} times all of it");
    owner.ask("one", &vm, &["machine", "poweroff"])?;
    vm.wait_shutdown(t.within(10))?;

    disk.flip(Data, first_data_sector(&disk)? + 100)?;
    let mut vm = plan.start()?;
    wait_state(&mut vm, "Failed", t.within(30))?;
    let reason = vm.wait_for("  reason ", t.within(1))?.text;
    ensure!(reason.contains("refuses it"), "{reason}");
    let lines = vm.console().lines();
    ensure!(lines.iter().any(|line| line.text.contains("Checksum failed at sector 0x0")), "{reason}");
    Ok(())
}

/// Where dm-integrity keeps the first sector that it provides, in bytes from the start of the data partition: behind its
/// superblock, its journal and the first run of tags. The file system's superblock is there. Source:
/// `drivers/md/dm-integrity.c`, `calculate_journal_section_size` and `calculate_device_limits`.
fn first_data_sector(disk: &RawDisk) -> anyhow::Result<u64> {
    let start = 1 << 20;
    let superblock = disk.read(Data, start, 512)?;
    ensure!(superblock.starts_with(b"integrt\0"), "a dm-integrity superblock");
    let number = |at: usize| u64::from(superblock[at]) | u64::from(superblock[at + 1]) << 8;
    let (log2_interleave, tag_bytes, journal_sections) = (superblock[9], number(10), number(12));
    // Blocks of 8 sectors; four journal entries of 104 bytes fit a sector, 8 sectors of them a section.
    let journal_section_sectors = (4 * 8) * 8 + 8;
    let run_of_tags = tag_bytes << (log2_interleave - 3);
    Ok(start + 8 * 512 + journal_sections * journal_section_sectors * 512 + run_of_tags)
}

/// The same bytes in the same number of requests, each within 5 %.
fn first_boot(t: &Context) -> anyhow::Result<()> {
    let (small, large) = (disk_use_of_first_boot(t, 8)?, disk_use_of_first_boot(t, 200)?);
    let counts = |stats: &BlockStats| [stats.read_bytes, stats.reads, stats.written_bytes, stats.writes, stats.flushes];
    let mut pairs = counts(&small).into_iter().zip(counts(&large));
    ensure!(pairs.all(|(small, large)| small.abs_diff(large) * 20 <= small), "8 GiB: {small:?}, 200 GiB: {large:?}");
    Ok(())
}

/// What a machine with such a disk has asked of it when it runs.
fn disk_use_of_first_boot(t: &Context, gib: u64) -> anyhow::Result<BlockStats> {
    let config = t.owner()?.config(&format!("of-{gib}"), &["--level", "encrypted", "--no-kubernetes"])?;
    let mut vm = t.machine(&format!("of-{gib}")).disk_gib(gib).tpm().config(&config)?.start()?;
    wait_state(&mut vm, "Running", t.within(30))?;
    Ok(vm.qmp().block_stats("disk0", t.within(1))?)
}
