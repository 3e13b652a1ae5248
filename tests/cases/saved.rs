//! Machines that come back after they were saved: each goes on where it was, on each board, and finds that time has
//! gone by.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use qemu::Vm;
use qemu::deadline::since_1970;
use qemu::machine::Clock;

use crate::{
    Case, Context, CopiedMachine, Fleet, FleetCopy, FleetKind, Owner, Prerequisite, Starts, Status, Via, name,
    same_machine, save_in,
};

pub(crate) const CASES: &[Case] = &[
    Case {
        name: "a saved machine that boots by uefi unseals again",
        proves: &["S13"],
        needs: &[Prerequisite::Swtpm, Prerequisite::Ovmf],
        starts: Starts::Cold,
        run: uefi,
    },
    Case {
        name: "a microvm comes back, and draws its random numbers anew",
        proves: &["S13"],
        needs: &[Prerequisite::Swtpm],
        starts: Starts::Cold,
        run: microvm,
    },
    Case {
        name: "coordinators saved for two days go on at the right time",
        proves: &["S13"],
        needs: &[Prerequisite::Swtpm, Prerequisite::Faketime],
        starts: Starts::From(FleetKind::Three),
        run: days_later,
    },
];

const NAME: &str = "one";
/// Words of PID 1 where nobody else told the kernel that it may be a copy.
const DRAWN_ANEW: &str = "the kernel's random numbers are drawn anew from=/dev/hwrng";
/// So long a fleet lies: certificates of services have ended.
pub(crate) const DAYS: Duration = Duration::from_secs(2 * 86_400);
/// How far a machine's clock may be from the board's (fleets' promise), in milliseconds, and a call between two looks.
const APART_MS: u64 = 2_000 + 1_000;

fn uefi(t: &Context) -> anyhow::Result<()> {
    let (owner, vm, before) = comes_back(t, Via::Uefi)?;
    owner.ask(NAME, &vm, &["machine", "reboot"])?;
    same_machine(&before, &owner.status_of_next_boot(NAME, &vm, &before, t.within(60))?)
}

/// A microvm has no place for vmgenid, by which the kernel would draw anew by itself.
fn microvm(t: &Context) -> anyhow::Result<()> {
    let (_, vm, _) = comes_back(t, Via::Microvm)?;
    vm.wait_for(vm.started(), DRAWN_ANEW, t.within(1)).context("a copy would draw the same")?;
    Ok(())
}

/// A machine that was saved as soon as it ran, in the same boot again, with what it said of itself before.
fn comes_back(t: &Context, via: Via) -> anyhow::Result<(Owner, Vm, Status)> {
    let (owner, folder) = (t.owner()?, t.dir().join("saved").join("one"));
    let config = owner.config(NAME, &["--level", "encrypted", "--no-kubernetes"])?;
    let mut vm = t.machine("m").tpm().boot(via).config(&config)?.start()?;
    let before = owner.status_when_running(NAME, &vm, vm.started(), t.within(60))?;
    save_in(&folder, t.image(), &owner, &mut [("m", &mut vm)], ())?;
    vm.kill();
    let copy = FleetCopy::<()>::of(&folder, t.image(), &t.dir().join("copy"))?;
    let mut machines = copy.go_on(|_, links| links.to_vec(), || true)?;
    let CopiedMachine { vm, .. } = machines.remove("m").context("it comes back")?;
    let now = copy.owner.status(NAME, &vm)?;
    ensure!(!now.is_of_another_boot(&before), "it goes on: {before:#?} {now:#?}");
    Ok((copy.owner, vm, before))
}

/// Certificates, tickets, leases, WireGuard and etcd: all go on.
fn days_later(t: &Context) -> anyhow::Result<()> {
    let fleet = Fleet::copy_at(t, FleetKind::Three, Clock::Ahead(DAYS))?;
    for machine in fleet.on() {
        let shown = fleet.status(machine)?.now_unix_ms;
        let expected = u64::try_from((since_1970() + DAYS).as_millis())?;
        ensure!(shown.abs_diff(expected) <= APART_MS, "{}: {shown}, and it is {expected}", name(machine));
    }
    fleet.until(t.within(10), || fleet.ask(&["ticket", "issue"])).context("coordinators are in touch")?;
    fleet.is_whole(t.within(1))
}
