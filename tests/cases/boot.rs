//! How a machine comes up: each way of booting, what its console shows, and that only what was built and measured runs.

use std::process::Command;
use std::sync::PoisonError;
use std::time::Duration;

use crate::{
    Case, Context, MachinePlan, Owner, Prerequisite, RawDisk, Screen, Starts, Status, Via, same_machine, stays,
    untouched, wait_state,
};
use anyhow::{Context as _, ensure};
use model::PartitionKind::{Esp, SystemA};
use qemu::{Deadline, Vm};
use serde_json::Value;

pub(crate) const CASES: &[Case] = &[
    sealed("uefi: a new machine shows itself on console and screen", &["O6", "O11", "D1", "S11"], shown),
    sealed("uefi: another kernel image does not open the machine", &["D2", "D5"], other_kernel),
    sealed("uefi: another command line is refused, and told at next boot", &["O1", "O15"], other_command_line),
    sealed("uefi: whatever is passed beside the image is refused", &["O15"], passed_beside),
    sealed("uefi: without firmware to measure it the machine stays shut", &["D2", "D5"], without_firmware),
    Case {
        name: "microvm runs without a tpm where it may",
        proves: &["O6", "D1", "D5"],
        needs: &[],
        starts: Starts::Cold,
        run: microvm,
    },
    Case {
        name: "a machine that cannot go on says why and starts again",
        proves: &["O1"],
        needs: &[],
        starts: Starts::Cold,
        run: fatal,
    },
    Case { name: "a changed root does not run", proves: &["O3"], needs: &[], starts: Starts::Cold, run: changed_root },
];

const fn sealed(name: &'static str, proves: &'static [&'static str], run: fn(&Context) -> anyhow::Result<()>) -> Case {
    Case { name, proves, needs: &[Prerequisite::Swtpm, Prerequisite::Ovmf], starts: Starts::Cold, run }
}

/// A machine that has made its cluster at the default level, booted by UEFI with a screen, and is off; and what was seen
/// of that boot.
#[derive(Debug, Clone)]
struct Sealed {
    owner: Owner,
    plan: MachinePlan,
    disk: RawDisk,
    status: Status,
    console: Vec<String>,
    screen: Screen,
}

impl Sealed {
    /// The one that these cases share; each changes a copy.
    fn of(t: &Context) -> anyhow::Result<Self> {
        let shared = t.shared("sealed by uefi", |t| {
            let owner = t.owner()?;
            let config = owner.config("one", &["--level", "authenticated", "--no-kubernetes"])?;
            let (plan, disk) = t.machine("m").screen().tpm().raw_disk(1024)?;
            disk.put_config(&config)?;
            let mut vm = plan.start()?;
            let status = owner.status_when_running("one", &vm, vm.started(), t.within(60))?;
            let console = vm.said().iter().map(|line| line.text.clone()).collect();
            let screen = Screen::of(&mut vm, &t.dir().join("screen.ppm"), t.within(1))?;
            owner.ask("one", &vm, &["machine", "poweroff"])?;
            vm.wait_shutdown(t.within(10))?;
            Ok(Self { owner, plan, disk, status, console, screen })
        })?;
        // Nobody changes it, so whoever panicked over it left it whole.
        Ok(shared.lock().unwrap_or_else(PoisonError::into_inner).clone())
    }
}

fn shown(t: &Context) -> anyhow::Result<()> {
    let Sealed { disk, status, console, screen, .. } = Sealed::of(t)?;
    ensure!(status.boot_class == "uefi" && status.protection == "tpm", "{status:#?}");
    ensure!(status.level.starts_with("authenticated"), "{status:#?}");
    for wanted in ["address    10.0.2.15/24", "protection authenticated", "tpm · booted uefi"] {
        ensure!(console.iter().any(|line| line.contains(wanted)), "the console shows no `{wanted}`");
    }
    let name = format!("  name       {}", status.name);
    let lines = [&name, "  state      Running", "  address    10.0.2.15/24 (eth0)", "  protection authenticated"];
    ensure!(screen.shows(&lines), "the screen does not show {lines:?}");
    // Tagging changes it all the time; it is drawn where it was.
    ensure!(screen.begins(&["  Cairn      ", &name, "  cluster    "]), "the screen is not drawn from its top");
    ensure!(disk.esp()?.iter().all(|(name, _)| name != image::esp::ENROLMENT), "the config is gone");
    Ok(())
}

/// Another image in every way but what it does: firmware and stub measure it, so the TPM keeps its secret.
fn other_kernel(t: &Context) -> anyhow::Result<()> {
    let (plan, disk) = Sealed::of(t)?.plan.copied(t.dir(), "m")?;
    let name = disk.find(Esp, b"PRETTY_NAME=\"Cairn")? + 13;
    disk.write(Esp, name, b"X")?;
    stays(t, &mut plan.start()?, "NeedsOwner", "PCR policy")
}

/// Refused by the initramfs, before anything looks at TPM or data; kept for the next boot.
fn other_command_line(t: &Context) -> anyhow::Result<()> {
    let Sealed { owner, plan, status: first, .. } = Sealed::of(t)?;
    let (plan, disk) = plan.copied(t.dir(), "m")?;
    let option = disk.find(Esp, b" panic=10 ")?;
    disk.write(Esp, option, b" panic=11 ")?;
    let mut vm = plan.start()?;
    vm.wait_for(vm.started(), "another command line than the image's: refused", t.within(40))?;
    ensure!(!came_up(&mut vm), "it went on");
    untouched(t, &mut vm)?;
    vm.wait_reset(t.within(20))?;
    vm.kill();

    disk.write(Esp, option, b" panic=10 ")?;
    let vm = plan.start()?;
    let again = owner.status_when_running("one", &vm, vm.started(), t.within(60))?;
    same_machine(&first, &again)?;
    // They are read beside all else that a machine begins with.
    let told = "Cairn cannot go on: the kernel was started with another command line";
    let words = || owner.logs("one", &vm, &["last-words"]);
    let is_told = |entry: &Value| entry["line"].as_str().is_some_and(|line| line.contains(told));
    let found = vm.until(t.within(10), || words().ok()?.iter().any(is_told).then_some(()));
    found.with_context(|| format!("{:?}", words()))
}

fn passed_beside(t: &Context) -> anyhow::Result<()> {
    let (plan, disk) = Sealed::of(t)?.plan.copied(t.dir(), "m")?;
    disk.put_file(&format!("{}.extra.d/any.cred", image::esp::KERNEL_A), b"of somebody")?;
    let mut vm = plan.start()?;
    vm.wait_for(vm.started(), "the boot loader passed credentials or addons", t.within(40))?;
    ensure!(!came_up(&mut vm), "it went on");
    Ok(())
}

/// The same disk and TPM, and nobody who measures: not the machine that was sealed.
fn without_firmware(t: &Context) -> anyhow::Result<()> {
    let (plan, _disk) = Sealed::of(t)?.plan.copied(t.dir(), "m")?;
    stays(t, &mut plan.boot(Via::Direct).start()?, "NeedsOwner", "and is now started as direct")
}

fn microvm(t: &Context) -> anyhow::Result<()> {
    let owner = t.owner()?;
    let config = owner.config("one", &["--level", "insecure", "--unprotected", "--no-kubernetes"])?;
    let vm = t.machine("m").boot(Via::Microvm).config(&config)?.start()?;
    let status = owner.status_when_running("one", &vm, vm.started(), t.within(30))?;
    ensure!(status.level == "insecure" && status.protection == "none", "{status:#?}");
    Ok(())
}

fn fatal(t: &Context) -> anyhow::Result<()> {
    let mut vm = t.machine("m").diskless().start()?;
    let shown = vm.wait_for(vm.started(), "Cairn cannot go on: ", t.within(30))?;
    ensure!(shown.text.contains("no disk has a system partition"), "{}", shown.text);
    vm.wait_for(shown.end, "The machine reboots in 10 s.", t.within(1))?;
    // Long enough for a person, and for no tight loop.
    ensure!(vm.wait_reset(Deadline::after(Duration::from_secs(5))).is_err(), "it restarted at once");
    let cause = vm.wait_reset(t.within(20))?;
    ensure!(cause == "guest-reset", "{cause}");
    Ok(())
}

fn changed_root(t: &Context) -> anyhow::Result<()> {
    let (plan, disk) = t.machine("m").raw_disk(1024)?;
    let manifest = std::fs::read(t.image().file(image::names::MANIFEST)).context("read the image's manifest")?;
    let manifest: image::Manifest = serde_json::from_slice(&manifest)?;
    let superblock = 1024; // EROFS_SUPER_OFFSET
    let hash_tree = manifest.verity.hash_offset;
    let init = first_extent(&t.image().file(image::names::ROOT), "/bin/init")?;
    for (what, place) in [("superblock", superblock), ("hash tree", hash_tree), ("/bin/init", init)] {
        disk.flip(SystemA, place)?;
        let mut vm = plan.start()?;
        vm.wait_for(vm.started(), "Kernel panic - not syncing: dm-verity device", t.within(20)).context(what)?;
        ensure!(!came_up(&mut vm), "it went on with another {what}");
        vm.kill();
        disk.flip(SystemA, place)?;
    }
    let vm = plan.start()?;
    Ok(wait_state(&vm, vm.started(), "Blank", t.within(20)).map(drop)?)
}

/// Where the file's data begins in the file system, by erofs-utils, which images are made with.
fn first_extent(root: &std::path::Path, file: &str) -> anyhow::Result<u64> {
    let output = Command::new("dump.erofs").arg(format!("--path={file}")).arg("-e").arg(root).output();
    let output = output.context("run dump.erofs (Debian package erofs-utils)")?;
    let text = String::from_utf8_lossy(&output.stdout);
    // `   0:        0..   56682 |   56682 :   36466688..  36483072 |   16384`
    let row = text.lines().find(|line| line.trim_start().starts_with("0:"));
    let place = row.and_then(|row| row.split(':').nth(2)?.split("..").next());
    place.and_then(|place| place.trim().parse().ok()).with_context(|| format!("no extent of `{file}` in: {text}"))
}

/// Whether PID 1 has come as far as to show its screen.
fn came_up(vm: &mut Vm) -> bool {
    vm.said().iter().any(|line| line.text.starts_with("  state "))
}
