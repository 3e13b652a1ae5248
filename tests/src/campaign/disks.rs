//! A byte of a lone coordinator's disk is flipped while it is off, wherever a seed says: the machine runs, or says why not, and never
//! restarts by itself. Half of the bytes lie in blocks that each start reads: most of those that were ever written are read by none.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, bail, ensure};
use formats::fat;
use keys::two_slot::File;
use model::PartitionKind;
use qemu::Vm;
use testkit::Random;

use crate::disk::HEADERS;
use crate::premises::Premises;
use crate::{Context, FilePlaces, Integrity, RawDisk, tagged_coordinator};

const NAME: &str = "one";
/// Bytes that are written and read at once, here and by the machine.
const BLOCK: usize = 4096;
/// Words of PID 1 when it restarts because of what nothing can handle.
const CANNOT_GO_ON: &str = "Cairn cannot go on";
/// Words of PID 1 in front of the machine's state.
const STATE: &str = "machine state state=";
/// A coordinator's services run.
const ETCD: &str = "now true condition=EtcdReady";

/// Flips so many bytes, one at a time, with all files below `out`, and tells `say` how it goes.
///
/// # Errors
/// A machine that restarted or said nothing, with the seed and where to look.
pub fn disks(seed: u64, flips: usize, out: &Path, mut say: impl FnMut(&str)) -> anyhow::Result<()> {
    let premises = Arc::new(Premises::open(&std::path::absolute(out)?)?);
    let dir = premises.dir_of("disks");
    let t = Context::new(premises, dir.clone(), "campaign.rs");
    flip_all(&t, seed, flips, &mut say).with_context(|| format!("seed {seed}; consoles: {}", dir.display()))
}

fn flip_all(t: &Context, seed: u64, flips: usize, say: &mut dyn FnMut(&str)) -> anyhow::Result<()> {
    let made = tagged_coordinator(t, t.debug_machine("first")?, NAME)?;
    let (places, _) = FilePlaces::told_by(t, &made, NAME)?;
    let (_, plan, disk) = made;
    let written = [blocks_written(&disk, PartitionKind::Esp)?, blocks_written(&disk, PartitionKind::Data)?];
    let read = [blocks_read_of_esp(&disk)?, blocks_read(&disk, &places)?];
    say("a lone coordinator is made, and off");
    let mut random = Random::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(1));
    let mut ends: BTreeMap<String, usize> = BTreeMap::new();
    for number in 1..=flips {
        let (what, blocks) =
            if random.below(2) == 0 { ("read at each start", &read) } else { ("written once", &written) };
        let (kind, blocks) = match random.below(4) {
            0 => (PartitionKind::Esp, &blocks[0]),
            _ => (PartitionKind::Data, &blocks[1]),
        };
        let at = blocks[random.below(blocks.len())] + random.below(BLOCK) as u64;
        let (plan, disk) = plan.copied(t.dir(), "m")?;
        disk.flip(kind, at)?;
        let vm = plan.start()?;
        let end = comes_to(t, &vm).with_context(|| format!("flip {number}: {kind:?}, byte {at}, {what}"))?;
        say(&format!("{number}. {kind:?}, byte {at}, {what}: {end}"));
        *ends.entry(end.split(' ').next().unwrap_or_default().to_owned()).or_default() += 1;
    }
    let told: Vec<_> = ends.iter().map(|(end, times)| format!("{times} {end}")).collect();
    say(&format!("no machine restarted: {}", told.join(", ")));
    Ok(())
}

/// Where blocks lie that are not all zero, in bytes from the start of the partition.
fn blocks_written(disk: &RawDisk, kind: PartitionKind) -> anyhow::Result<Vec<u64>> {
    let whole = disk.whole(kind)?;
    let written = whole.chunks(BLOCK).enumerate().filter(|(_, block)| block.iter().any(|byte| *byte != 0));
    let found: Vec<u64> = written.map(|(number, _)| (number * BLOCK) as u64).collect();
    ensure!(!found.is_empty(), "nothing is written in {kind:?}");
    Ok(found)
}

/// Blocks with what a start reads below the file system and in it, in bytes from the start of the data partition: both data headers,
/// dm-integrity's superblock, the file system's, and all files and folders of PID 1 and etcd.
fn blocks_read(disk: &RawDisk, places: &FilePlaces) -> anyhow::Result<Vec<u64>> {
    let block = |at: u64| at - at % BLOCK as u64;
    let superblock = Integrity::of(disk)?.superblock() - disk.range(PartitionKind::Data)?.start;
    let mut found: Vec<u64> = HEADERS.into_iter().chain([superblock]).chain(places.all()).map(block).collect();
    found.sort_unstable();
    found.dedup();
    Ok(found)
}

/// Blocks of the ESP in which a machine's own files begin; what they hold fits the first one.
fn blocks_read_of_esp(disk: &RawDisk) -> anyhow::Result<Vec<u64>> {
    let volume = disk.whole(PartitionKind::Esp)?;
    let paths = File::ALL.iter().flat_map(|file| file.paths());
    let begin = paths.map(|path| Ok(fat::place(&volume, path)?.extents.first().context("an empty file")?.start as u64));
    begin.collect()
}

/// The state in which the machine stays, with its reason; a coordinator that runs is there once etcd is.
fn comes_to(t: &Context, vm: &Vm) -> anyhow::Result<String> {
    let end = vm.until(t.within(60), || {
        let said = vm.said();
        let state = said.iter().rev().find_map(|line| line.text.split_once(STATE)).map(|(_, state)| state.to_owned());
        let state = state.unwrap_or_default();
        let restarts = said.iter().any(|line| line.text.contains(CANNOT_GO_ON));
        let stays = match state.split(' ').next() {
            Some("NeedsOwner" | "Failed") => true,
            Some("AwaitingKeys") => state.contains("waiting for"),
            Some("Running") => said.iter().any(|line| line.text.contains(ETCD)),
            Some(_) | None => false,
        };
        (restarts || stays).then_some((restarts, state))
    });
    match end.context("it says neither what it is nor why not")? {
        (true, _) => bail!("the machine restarts by itself"),
        (false, state) => Ok(state.chars().take(160).collect()),
    }
}
