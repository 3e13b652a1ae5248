//! Where dm-integrity puts things on a disk at level authenticated, and XFS above it, so that a case can spoil a block below both; and
//! the wait until all blocks have tags.

use anyhow::{Context as _, ensure};
use api::wire::FaultKind;
use model::PartitionKind;
use qemu::Vm;
use qemu::console::Line;

use crate::context::Context;
use crate::disk::RawDisk;
use crate::owner::Owner;
use crate::plan::MachinePlan;
use crate::status::Status;
use crate::stranger::Stranger;

/// How dm-integrity divides a data partition: superblock, journal, then in turns a run of tags and the sectors they are for.
/// Source: `drivers/md/dm-integrity.c`, `calculate_journal_section_size` and `calculate_device_limits`.
#[derive(Debug, Clone)]
pub struct Integrity {
    /// Where its superblock is, in bytes from the start of the disk.
    start: u64,
    /// Where the first run of tags is.
    areas: u64,
    /// Bytes of a run of tags.
    tags: u64,
    /// Bytes of what follows it.
    sectors: u64,
}

impl Integrity {
    /// Reads the layout of the data partition of `disk`.
    ///
    /// # Errors
    /// When it has no dm-integrity, or cannot be read.
    pub fn of(disk: &RawDisk) -> anyhow::Result<Self> {
        let start = 1 << 20;
        let superblock = disk.read(PartitionKind::Data, start, 512)?;
        ensure!(superblock.starts_with(b"integrt\0"), "a dm-integrity superblock");
        let number = |at: usize| u64::from(superblock[at]) | u64::from(superblock[at + 1]) << 8;
        let (log2_interleave, tag_bytes, journal_sections) = (superblock[9], number(10), number(12));
        // Blocks of 8 sectors; four journal entries of 104 bytes fit a sector, 8 sectors of them a section.
        let journal_section_sectors = (4 * 8) * 8 + 8;
        let start = disk.range(PartitionKind::Data)?.start + start;
        Ok(Self {
            start,
            areas: start + (8 + journal_sections * journal_section_sectors) * 512,
            tags: tag_bytes << (log2_interleave - 3),
            sectors: 512 << log2_interleave,
        })
    }

    /// Where its superblock is, in bytes from the start of the disk.
    #[must_use]
    pub const fn superblock(&self) -> u64 {
        self.start
    }

    /// Whether tags or the mark of how far they are lie at this byte of the disk.
    #[must_use]
    pub fn is_tags(&self, at: u64) -> bool {
        let superblock = (self.start..self.start + 8 * 512).contains(&at);
        superblock || at.checked_sub(self.areas).is_some_and(|at| at % (self.tags + self.sectors) < self.tags)
    }

    /// Where a byte that it provides lies, from the start of the disk; the first is that of the file system.
    #[must_use]
    pub const fn place(&self, at: u64) -> u64 {
        self.areas + at / self.sectors * (self.tags + self.sectors) + self.tags + at % self.sectors
    }
}

/// Where XFS keeps what lies on a machine's data partition, at level authenticated, in bytes from the start of that.
#[derive(Debug, Clone)]
pub struct FilePlaces {
    integrity: Integrity,
    /// Start of the data partition, in bytes from that of the disk.
    start: u64,
    /// Lines of the program that looks for the places: `inode AT content AT PATH`, from the start of the file system.
    lines: Vec<String>,
}

impl FilePlaces {
    /// Starts a machine of the debug image that a case has made and that is off, and ends it once more: only what lay there at its
    /// start is where it is looked for. With its status while it ran.
    ///
    /// # Errors
    /// When it does not run, does not tell, or does not end.
    pub fn told_by(
        t: &Context,
        (owner, plan, disk): &(Owner, MachinePlan, RawDisk),
        cluster: &str,
    ) -> anyhow::Result<(Self, Status)> {
        let vm = plan.start()?;
        let status = owner.status_when_running(cluster, &vm, vm.started(), t.within(30))?;
        Stranger::meet_as(&vm, Some(&owner.key()?), t.within(10))?.inject(FaultKind::TestService, "test.places")?;
        let lines = vm.until(t.within(20), || {
            let lines = owner.lines(cluster, &vm, &["test.places"]).ok()?;
            lines.iter().any(|line| line.ends_with(".wal")).then_some(lines)
        })?;
        owner.ask(cluster, &vm, &["machine", "poweroff"])?;
        vm.wait_shutdown(t.within(10))?;
        let (integrity, start) = (Integrity::of(disk)?, disk.range(PartitionKind::Data)?.start);
        Ok((Self { integrity, start, lines }, status))
    }

    /// The first block of what the file holds whose path ends so.
    ///
    /// # Errors
    /// When there is no such file, or none in blocks of its own.
    pub fn content(&self, path: &str) -> anyhow::Result<u64> {
        self.of(path, "content")
    }

    /// The inode of what has a path that ends so.
    ///
    /// # Errors
    /// When there is none.
    pub fn inode(&self, path: &str) -> anyhow::Result<u64> {
        self.of(path, "inode")
    }

    /// Places of all files and folders, and of the file system's own first block.
    pub fn all(&self) -> impl Iterator<Item = u64> {
        let at = |line: &String| line.split(' ').filter_map(|part| part.parse().ok()).collect::<Vec<u64>>();
        [0].into_iter().chain(self.lines.iter().flat_map(at)).map(|at| self.place(at))
    }

    fn of(&self, path: &str, word: &str) -> anyhow::Result<u64> {
        let line = self.lines.iter().find(|line| line.ends_with(path)).with_context(|| format!("no {path}"))?;
        Ok(self.place(line.split(' ').skip_while(|part| *part != word).nth(1).context("a place")?.parse()?))
    }

    const fn place(&self, at: u64) -> u64 {
        self.integrity.place(at) - self.start
    }
}

/// Waits until every block has its tag, which was not so at first.
///
/// # Errors
/// When it was so at first, or is not in time.
pub fn all_tagged(t: &Context, owner: &Owner, cluster: &str, vm: &Vm) -> anyhow::Result<()> {
    // On a fast host it is all tagged before anybody can ask; the console has shown what was.
    let tagging = |line: &Line| line.text.contains(" % tagged), tpm");
    ensure!(vm.said().iter().any(tagging), "it was authenticated before it was all tagged");
    let mut last = None;
    let tagged = vm.until(t.within(30), || {
        let seen = last.insert(owner.status(cluster, vm).ok()?);
        (seen.level == "authenticated").then_some(())
    });
    tagged.with_context(|| format!("{last:#?}"))?;
    Ok(())
}

/// A coordinator that `plan` makes by itself, with no Kubernetes; every block of its small disk has its tag, and it is off.
///
/// # Errors
/// When it does not come up, is not tagged in time, or does not end.
pub fn tagged_coordinator(
    t: &Context,
    plan: MachinePlan,
    cluster: &str,
) -> anyhow::Result<(Owner, MachinePlan, RawDisk)> {
    let owner = t.owner()?;
    let (plan, disk) = plan.tpm().raw_disk(1100)?;
    disk.put_config(&owner.config(cluster, &["--level", "authenticated", "--no-kubernetes"])?)?;
    let vm = plan.start()?;
    owner.status_when_running(cluster, &vm, vm.started(), t.within(30))?;
    all_tagged(t, &owner, cluster, &vm)?;
    owner.ask(cluster, &vm, &["machine", "poweroff"])?;
    vm.wait_shutdown(t.within(10))?;
    Ok((owner, plan, disk))
}
