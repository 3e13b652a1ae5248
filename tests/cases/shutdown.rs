//! How a boot ends: asked by its owner or by the power button, in order, with nothing left to recover.

use crate::{Case, Context, MachinePlan, Owner, Prerequisite, Starts, recovered, wait_state};
use anyhow::ensure;
use qemu::Vm;

pub(crate) const CASES: &[Case] = &[
    Case {
        name: "api and power button end a boot in order",
        proves: &["O12"],
        needs: &[Prerequisite::Swtpm],
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
/// Line of PID 1 when it has stopped what a coordinator runs.
const ETCD_STOPPED: &str = "service stopped service=etcd";

fn member(t: &Context) -> anyhow::Result<()> {
    let member = Member::new(t)?;
    let vm = member.runs(t, member.plan.start()?)?;
    vm.kill();
    // What a cut leaves is seen, so that its absence below says something.
    let vm = member.runs(t, member.plan.start()?)?;
    ensure!(member.recovered(&vm)?, "a cut leaves something to recover");
    let vm = member.reboots(t, vm)?;
    ensure!(!member.recovered(&vm)?, "after a reboot");
    let vm = member.powers_off(t, vm)?;
    ensure!(!member.recovered(&vm)?, "after a power-off");
    vm.power_off(t.within(10))?;
    let vm = member.runs(t, member.plan.start()?)?;
    ensure!(!member.recovered(&vm)?, "after a press of the power button");
    Ok(())
}

/// A member whose boots end one after the other.
struct Member {
    owner: Owner,
    plan: MachinePlan,
}

impl Member {
    fn new(t: &Context) -> anyhow::Result<Self> {
        let owner = t.owner()?;
        let plan = t.machine("m").tpm().config(&owner.config(NAME, &["--level", "encrypted", "--no-kubernetes"])?)?;
        Ok(Self { owner, plan })
    }

    /// Waits until the machine runs that was just started.
    fn runs(&self, t: &Context, vm: Vm) -> anyhow::Result<Vm> {
        self.owner.status_when_running(NAME, &vm, vm.started(), t.within(30))?;
        Ok(vm)
    }

    fn recovered(&self, vm: &Vm) -> anyhow::Result<bool> {
        recovered(&self.owner, NAME, vm)
    }

    /// Restarts it by its API, in order, and waits until it runs in the next boot.
    fn reboots(&self, t: &Context, mut vm: Vm) -> anyhow::Result<Vm> {
        let before = vm.mark()?;
        self.owner.ask(NAME, &vm, &["machine", "reboot"])?;
        let stopped = vm.wait_for(before, ETCD_STOPPED, t.within(10))?;
        vm.wait_reset(t.within(10))?;
        self.owner.status_when_running(NAME, &vm, stopped.end, t.within(30))?;
        Ok(vm)
    }

    /// Switches it off by its API, in order, and on again.
    fn powers_off(&self, t: &Context, vm: Vm) -> anyhow::Result<Vm> {
        let before = vm.mark()?;
        self.owner.ask(NAME, &vm, &["machine", "poweroff"])?;
        vm.wait_for(before, ETCD_STOPPED, t.within(10))?;
        vm.wait_shutdown(t.within(10))?;
        self.runs(t, self.plan.start()?)
    }
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
