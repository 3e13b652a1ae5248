//! Shows that the workshop itself works: a machine comes up, and the monitor tells what happens to it.

use crate::{Case, Context, Prerequisite, Starts};
use anyhow::{Context as _, ensure};

pub(crate) const CASES: &[Case] = &[
    Case { name: "a machine shows its screen", proves: &[], needs: &[], starts: Starts::Cold, run: screen },
    Case {
        name: "a reset is seen and starts the machine again",
        proves: &[],
        needs: &[],
        starts: Starts::Cold,
        run: reset,
    },
    Case {
        name: "acceleration shows the screen too",
        proves: &[],
        needs: &[Prerequisite::Kvm],
        starts: Starts::Cold,
        run: screen,
    },
];

/// The head of every screen. The kernel itself says nothing below a warning.
const SCREEN: &str = "  Cairn  ";

fn screen(t: &Context) -> anyhow::Result<()> {
    let vm = t.machine("m").start()?;
    vm.wait_for(vm.started(), SCREEN, t.within(10))?;
    ensure!(!vm.cpu_time().is_zero(), "QEMU has used the processor");
    vm.forward(model::PUBLIC_API_PORT).context("the public API's port is forwarded")?;
    Ok(())
}

fn reset(t: &Context) -> anyhow::Result<()> {
    let mut vm = t.machine("m").start()?;
    vm.wait_for(vm.started(), SCREEN, t.within(10))?;
    let before = vm.mark()?;
    vm.reset(t.within(1))?;
    let cause = vm.wait_reset(t.within(1))?;
    ensure!(cause == "host-qmp-system-reset", "{cause}");
    vm.wait_for(before, SCREEN, t.within(10))?;
    Ok(())
}
