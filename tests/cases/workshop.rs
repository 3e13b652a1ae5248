//! That the workshop itself works: each way of booting reaches a kernel, and the monitor tells what happens.

use anyhow::{Context as _, ensure};
use tests::{Case, Context, Need, Via};

pub(crate) const CASES: &[Case] = &[
    Case { name: "direct boot reaches the kernel", proves: &[], needs: &[], run: direct },
    Case { name: "microvm reaches the kernel", proves: &[], needs: &[], run: microvm },
    Case { name: "uefi reaches the kernel", proves: &[], needs: &[Need::Ovmf], run: uefi },
    Case { name: "a machine with a tpm starts twice", proves: &[], needs: &[Need::Swtpm], run: tpm },
    Case { name: "a reset is seen and starts the kernel again", proves: &[], needs: &[], run: reset },
    Case { name: "acceleration reaches the kernel", proves: &[], needs: &[Need::Kvm], run: direct },
];

/// The first line of every Linux kernel.
const KERNEL: &str = "Linux version";

fn direct(t: &Context) -> anyhow::Result<()> {
    let mut vm = t.machine("m").start()?;
    vm.wait_for(KERNEL, t.within(10))?;
    ensure!(!vm.cpu_time().is_zero(), "QEMU has used the processor");
    vm.forward(model::PUBLIC_API_PORT).context("the public API's port is forwarded")?;
    Ok(())
}

fn microvm(t: &Context) -> anyhow::Result<()> {
    t.machine("m").boot(Via::Microvm).start()?.wait_for(KERNEL, t.within(10))?;
    Ok(())
}

fn uefi(t: &Context) -> anyhow::Result<()> {
    t.machine("m").boot(Via::Uefi).start()?.wait_for(KERNEL, t.within(20))?;
    Ok(())
}

fn tpm(t: &Context) -> anyhow::Result<()> {
    let plan = t.machine("m").tpm();
    for _ in 0..2 {
        let mut vm = plan.start()?;
        vm.wait_for(KERNEL, t.within(10))?;
        vm.kill();
    }
    Ok(())
}

fn reset(t: &Context) -> anyhow::Result<()> {
    let mut vm = t.machine("m").start()?;
    vm.wait_for(KERNEL, t.within(10))?;
    vm.reset(t.within(1))?;
    let cause = vm.wait_reset(t.within(1))?;
    ensure!(cause == "host-qmp-system-reset", "{cause}");
    vm.wait_for(KERNEL, t.within(10))?;
    Ok(())
}
