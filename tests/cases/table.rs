//! Partition tables: a machine's own that was damaged, and those of disks that are not its own.

use std::fs;

use crate::{Case, Context, Prerequisite, Starts, Via, untouched, wait_state};
use anyhow::{Context as _, ensure};
use formats::gpt::{Entry, Table, TableCopy, TableStep, crc32};
use model::Uuid;

pub(crate) const CASES: &[Case] = &[
    Case {
        name: "a blank machine boots by its backup table and writes nothing",
        proves: &["D4"],
        needs: &[Prerequisite::Ovmf],
        starts: Starts::Cold,
        run: blank,
    },
    Case {
        name: "a damaged partition table is mended from its backup",
        proves: &["D4"],
        needs: &[Prerequisite::Swtpm],
        starts: Starts::Cold,
        run: damaged,
    },
    Case {
        name: "a foreign disk is skipped with its reason",
        proves: &["O1"],
        needs: &[],
        starts: Starts::Cold,
        run: foreign,
    },
];

/// Sectors of the primary copy, from its header on.
const PRIMARY: (u64, usize) = (1, 33);

/// Not even its table. The disk is as long as the image, so the backup lies at its end.
fn blank(t: &Context) -> anyhow::Result<()> {
    let (plan, disk) = t.machine("blank").raw_disk(580)?;
    disk.damage_sector(1)?;
    ensure!(disk.table()?.copy() == TableCopy::Backup, "the primary is damaged");
    let mut vm = plan.start()?;
    wait_state(&vm, vm.started(), "Blank", t.within(30))?;
    untouched(t, &mut vm)?;
    vm.kill();
    // Firmware and boot loader read the table, too.
    let vm = plan.boot(Via::Uefi).start()?;
    wait_state(&vm, vm.started(), "Blank", t.within(60))?;
    Ok(())
}

fn damaged(t: &Context) -> anyhow::Result<()> {
    let owner = t.owner()?;
    let (plan, disk) = t.machine("member").tpm().raw_disk(1024)?;
    disk.put_config(&owner.config("one", &["--level", "encrypted", "--no-kubernetes"])?)?;
    let vm = plan.start()?;
    owner.status_when_running("one", &vm, vm.started(), t.within(30))?;
    owner.ask("one", &vm, &["machine", "poweroff"])?;
    vm.wait_shutdown(t.within(10))?;
    let whole = disk.sectors(PRIMARY.0, PRIMARY.1)?;
    ensure!(disk.table()?.copy() == TableCopy::Primary, "what create grew holds");
    // The header, then the array.
    for sector in [1, 2] {
        disk.damage_sector(sector)?;
        ensure!(disk.table()?.copy() == TableCopy::Backup, "the primary is damaged");
        let vm = plan.start()?;
        vm.wait_for(vm.started(), "the primary partition table was damaged: mended from its backup", t.within(30))?;
        owner.status_when_running("one", &vm, vm.started(), t.within(30))?;
        owner.ask("one", &vm, &["machine", "poweroff"])?;
        vm.wait_shutdown(t.within(10))?;
        ensure!(disk.sectors(PRIMARY.0, PRIMARY.1)? == whole, "the primary is not as it was");
    }
    Ok(())
}

fn foreign(t: &Context) -> anyhow::Result<()> {
    let (large, many) = (t.dir().join("large-entries.img"), t.dir().join("many-entries.img"));
    fs::create_dir_all(t.dir()).context("make the case's directory")?;
    fs::write(
        &large,
        foreign_disk(|header, array| {
            // A legal table with entries of 256 bytes.
            let second = array[128..256].to_vec();
            array[128..256].fill(0);
            array[256..384].copy_from_slice(&second);
            header[84..88].copy_from_slice(&256_u32.to_le_bytes());
            header[80..84].copy_from_slice(&64_u32.to_le_bytes());
        })?,
    )?;
    fs::write(&many, foreign_disk(|header, _| header[80..84].copy_from_slice(&u32::MAX.to_le_bytes()))?)?;
    let before = (fs::read(&large)?, fs::read(&many)?);
    let plan = t.machine("m").foreign_disk(many.clone()).foreign_disk(large.clone());
    let vm = plan.start()?;
    let skipped = "is skipped and left alone: its partition table has";
    vm.wait_for(vm.started(), &format!("disk /dev/vda {skipped} entries of 256 bytes"), t.within(30))?;
    vm.wait_for(vm.started(), &format!("disk /dev/vdb {skipped} 4294967295 entries"), t.within(5))?;
    wait_state(&vm, vm.started(), "Blank", t.within(20))?;
    ensure!((fs::read(&large)?, fs::read(&many)?) == before, "a foreign disk was written");
    Ok(())
}

/// A disk of 16 MiB with two partitions, its table changed in both copies, with checksums that hold.
fn foreign_disk(edit: impl Fn(&mut [u8], &mut [u8])) -> anyhow::Result<Vec<u8>> {
    let entry = |number: u32, first| {
        let guid = Uuid([u8::try_from(number).expect("a small number"); 16]);
        Entry { number, type_guid: Uuid([0x55; 16]), guid, first, last: first + 2047, name: "somebody's".into() }
    };
    let mut disk = vec![0; 16 << 20];
    for step in Table::make(16 << 20, Uuid([0x66; 16]), &[entry(1, 2048), entry(2, 4096)])? {
        if let TableStep::Write { at, bytes } = step {
            disk[usize::try_from(at)?..][..bytes.len()].copy_from_slice(&bytes);
        }
    }
    let last = disk.len() - 512;
    for (header_at, array_at) in [(512, 1024), (last, last - 32 * 512)] {
        let mut array = disk[array_at..array_at + 32 * 512].to_vec();
        let mut header = disk[header_at..header_at + 512].to_vec();
        edit(&mut header, &mut array);
        header[88..92].copy_from_slice(&crc32(&array).to_le_bytes());
        header[16..20].fill(0);
        let checksum = crc32(&header[..92]);
        header[16..20].copy_from_slice(&checksum.to_le_bytes());
        disk[array_at..][..array.len()].copy_from_slice(&array);
        disk[header_at..][..512].copy_from_slice(&header);
    }
    Ok(disk)
}
