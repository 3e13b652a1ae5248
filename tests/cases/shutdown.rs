//! How a boot ends: asked by its owner or by the power button, in order, with nothing left to recover.

use crate::{Case, Context, Need, Starts, recovered, wait_state};
use anyhow::ensure;

pub(crate) const CASES: &[Case] = &[
    Case {
        name: "api and power button end a boot in order",
        proves: &["O12"],
        needs: &[Need::Swtpm],
        starts: Starts::Cold,
        run: member,
    },
    Case {
        name: "a power button that is pressed early is heard",
        proves: &["O12"],
        needs: &[],
        starts: Starts::Cold,
        run: early,
    },
    Case {
        name: "ctrl-alt-del restarts a machine in order",
        proves: &["O12"],
        needs: &[],
        starts: Starts::Cold,
        run: keys,
    },
];

const NAME: &str = "one";

fn member(t: &Context) -> anyhow::Result<()> {
    let owner = t.owner()?;
    let plan = t.machine("m").tpm().config(&owner.config(NAME, &["--level", "encrypted", "--no-kubernetes"])?)?;
    let vm = plan.start()?;
    owner.status_when_running(NAME, &vm, vm.started(), t.within(30))?;
    vm.kill();
    // What a cut leaves is seen, so that its absence below says something.
    let mut vm = plan.start()?;
    owner.status_when_running(NAME, &vm, vm.started(), t.within(30))?;
    ensure!(recovered(&owner, NAME, &vm)?, "a cut leaves something to recover");

    let before = vm.mark()?;
    owner.ask(NAME, &vm, &["machine", "reboot"])?;
    let stopped = vm.wait_for(before, "service stopped service=etcd", t.within(10))?;
    vm.wait_reset(t.within(10))?;
    owner.status_when_running(NAME, &vm, stopped.end, t.within(30))?;
    ensure!(!recovered(&owner, NAME, &vm)?, "after a reboot");

    let before = vm.mark()?;
    owner.ask(NAME, &vm, &["machine", "poweroff"])?;
    vm.wait_for(before, "service stopped service=etcd", t.within(10))?;
    vm.wait_shutdown(t.within(10))?;
    let vm = plan.start()?;
    owner.status_when_running(NAME, &vm, vm.started(), t.within(30))?;
    ensure!(!recovered(&owner, NAME, &vm)?, "after a power-off");

    vm.power_off(t.within(10))?;
    let vm = plan.start()?;
    owner.status_when_running(NAME, &vm, vm.started(), t.within(30))?;
    ensure!(!recovered(&owner, NAME, &vm)?, "after a press of the power button");
    Ok(())
}

fn early(t: &Context) -> anyhow::Result<()> {
    let vm = t.machine("m").start()?;
    // The first screen; nothing is decided yet, the first services are not up.
    vm.wait_for(vm.started(), "  Cairn ", t.within(20))?;
    Ok(vm.power_off(t.within(30))?)
}

fn keys(t: &Context) -> anyhow::Result<()> {
    let mut vm = t.machine("m").start()?;
    wait_state(&vm, vm.started(), "Blank", t.within(20))?;
    let before = vm.mark()?;
    vm.qmp().press_keys(&["ctrl", "alt", "delete"], t.within(1))?;
    vm.wait_for(before, "stopping how=Reboot", t.within(10))?;
    vm.wait_reset(t.within(10))?;
    Ok(())
}
