//! Damage on a disk: one block or one file at a time is spoilt while the machine is off. A lone coordinator says what
//! is damaged or runs, erases nothing, and is what it was once the block is whole again.

use std::sync::PoisonError;

use anyhow::ensure;
use formats::fat;
use model::PartitionKind::{Data, Esp};

use crate::{
    Case, Context, FilePlaces, MachinePlan, Owner, Prerequisite, RawDisk, Starts, Status, same_machine,
    tagged_coordinator, wait_state,
};

pub(crate) const CASES: &[Case] = &[
    case("a damaged desired state needs the owner", |t| {
        waits(t, Spoilt::Content("/data/cairn/desired"), ("NeedsOwner", "`desired`"))
    }),
    case("a damaged key needs the owner", |t| {
        waits(t, Spoilt::Content("/data/cairn/etcd.key"), ("NeedsOwner", "`etcd.key`"))
    }),
    case("a damaged root folder is named by its layer", |t| {
        waits(t, Spoilt::Inode("/data/cairn"), ("Failed", "XFS refuses it"))
    }),
    case("a damaged folder of etcd needs the owner", |t| {
        waits(t, Spoilt::Inode("/data/etcd/member/wal"), ("NeedsOwner", "etcd/member"))
    }),
    case("a damaged log of etcd needs the owner", |t| waits(t, Spoilt::Content(".wal"), ("NeedsOwner", ".wal`"))),
    case("a damaged folder of kubelet needs the owner", |t| {
        waits(t, Spoilt::Inode("/data/kubelet"), ("NeedsOwner", "/data/kubelet"))
    }),
    case("a record cut short on the esp stops nothing", |t| runs(t, Spoilt::Chain("cairn/record.0"))),
    case("a directory cut short on the esp stops nothing", |t| runs(t, Spoilt::Chain("cairn/directory.0"))),
];

const fn case(name: &'static str, run: fn(&Context) -> anyhow::Result<()>) -> Case {
    Case { name, proves: &["D14", "O1"], needs: &[Prerequisite::Swtpm], starts: Starts::Cold, run }
}

const NAME: &str = "one";

/// Place on a disk that is spoilt.
#[derive(Debug, Clone, Copy)]
enum Spoilt {
    /// The first block of the file whose path ends so.
    Content(&'static str),
    /// The block with its inode.
    Inode(&'static str),
    /// The chain of clusters of a file on the ESP, which ends with the first.
    Chain(&'static str),
}

/// A lone coordinator at level authenticated, all of whose blocks have tags, and which is off. Each case changes a copy.
#[derive(Debug, Clone)]
struct Lone {
    owner: Owner,
    plan: MachinePlan,
    status: Status,
    places: FilePlaces,
}

impl Lone {
    fn of(t: &Context) -> anyhow::Result<Self> {
        let shared = t.shared("a lone coordinator with tags", Self::make)?;
        // Nobody changes it, so whoever panicked over it left it whole.
        Ok(shared.lock().unwrap_or_else(PoisonError::into_inner).clone())
    }

    fn make(t: &Context) -> anyhow::Result<Self> {
        let made = tagged_coordinator(t, t.debug_machine("m")?, NAME)?;
        // Only now does all of it lie where it is looked for.
        let (places, status) = FilePlaces::told_by(t, &made, NAME)?;
        let (owner, plan, _) = made;
        Ok(Self { owner, plan, status, places })
    }

    /// Once more is as before.
    fn spoil(&self, disk: &RawDisk, spoilt: Spoilt) -> anyhow::Result<()> {
        match spoilt {
            Spoilt::Content(path) => disk.flip(Data, self.places.content(path)?),
            Spoilt::Inode(path) => disk.flip(Data, self.places.inode(path)?),
            Spoilt::Chain(path) => cut_short(disk, path),
        }
    }
}

/// Has the file's first cluster be its last.
fn cut_short(disk: &RawDisk, path: &str) -> anyhow::Result<()> {
    let volume = disk.whole(Esp)?;
    let number =
        |at: usize, bytes: usize| volume[at..at + bytes].iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte));
    let entry = fat::place(&volume, path)?.entry.start;
    let first = number(entry + 20, 2) << 16 | number(entry + 26, 2);
    let (reserved, tables, sectors) = (number(14, 2), number(16, 1), number(36, 4));
    for table in 0..tables {
        disk.write(Esp, (reserved + table * sectors) * 512 + first * 4, &[0xff, 0xff, 0xff, 0x0f])?;
    }
    Ok(())
}

/// A damaged machine waits for its owner, who is told what is damaged; when the block is whole again the machine is
/// what it was.
fn waits(t: &Context, spoilt: Spoilt, (state, named): (&str, &str)) -> anyhow::Result<()> {
    let lone = Lone::of(t)?;
    let (plan, disk) = lone.plan.copied(t.dir(), "m")?;
    lone.spoil(&disk, spoilt)?;
    let vm = plan.start()?;
    let shown = wait_state(&vm, vm.started(), state, t.within(60))?;
    let reason = vm.wait_for(shown, "  reason ", t.within(1))?.text;
    ensure!(reason.contains(named) && reason.contains("Nothing was "), "{reason}");
    lone.owner.ask(NAME, &vm, &["machine", "poweroff"])?;
    vm.wait_shutdown(t.within(30))?;
    lone.spoil(&disk, spoilt)?;
    let vm = plan.start()?;
    same_machine(&lone.status, &lone.owner.status_when_running(NAME, &vm, vm.started(), t.within(30))?)
}

/// A damaged machine runs, as the machine that it was.
fn runs(t: &Context, spoilt: Spoilt) -> anyhow::Result<()> {
    let lone = Lone::of(t)?;
    let (plan, disk) = lone.plan.copied(t.dir(), "m")?;
    lone.spoil(&disk, spoilt)?;
    let vm = plan.start()?;
    same_machine(&lone.status, &lone.owner.status_when_running(NAME, &vm, vm.started(), t.within(30))?)?;
    vm.wait_for(vm.started(), "a file of the ESP cannot be read", t.within(1))?;
    Ok(())
}
