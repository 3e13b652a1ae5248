//! Enrolment configs, and what a machine makes of them: none, a malformed one, one it cannot serve, one that comes too
//! late.

use crate::{
    Case, Context, MachinePlan, Owner, Prerequisite, RawDisk, Starts, Status, Stranger, same_machine, stays, untouched,
    wait_state,
};
use anyhow::{Context as _, ensure};
use api::access::{Row, TABLE};
use api::wire::ClaimRequest;
use model::MachineState;
use model::PartitionKind::Esp;
use qemu::Vm;
use tonic::Code;

pub(crate) const CASES: &[Case] = &[
    Case {
        name: "without a config a machine is blank",
        proves: &["S2", "A1", "A8"],
        needs: &[],
        starts: Starts::Cold,
        run: blank,
    },
    Case {
        name: "a config that is refused changes nothing",
        proves: &["S1", "S11", "D5"],
        needs: &[],
        starts: Starts::Cold,
        run: refused,
    },
    Case {
        name: "a sealed machine stays itself",
        proves: &["D1", "D5", "S6", "S11", "O12"],
        needs: &[Prerequisite::Swtpm],
        starts: Starts::Cold,
        run: sealed,
    },
    Case {
        name: "a config is erased once a machine was made by it",
        proves: &["S11"],
        needs: &[Prerequisite::Swtpm],
        starts: Starts::Cold,
        run: erased,
    },
    Case {
        name: "a first boot that is cut goes on or starts over",
        proves: &["D4", "D7"],
        needs: &[Prerequisite::Swtpm],
        starts: Starts::Cold,
        run: cut,
    },
];

fn blank(t: &Context) -> anyhow::Result<()> {
    let mut vm = t.machine("m").start()?;
    wait_state(&vm, vm.started(), "Blank", t.within(20))?;
    vm.wait_for(vm.started(), "reason     waiting to be activated", t.within(1))?;
    let mut stranger = Stranger::meet(&vm, t.within(10))?;
    let (first, second) = (stranger.state()?, stranger.state()?);
    ensure!(first.state == MachineState::Blank && first.version == second.version, "{first:?}");
    ensure!(first.nonce != second.nonce, "the nonce is fresh");
    let blank = |row: &&Row| row.states.contains(&MachineState::Blank);
    let public = TABLE.iter().filter(|row| row.path.starts_with("/cairn.v1.Public/"));
    for row in public.filter(|row| !blank(row)) {
        let code = stranger.call_empty(row.path).map_err(|status| status.code());
        ensure!(code == Err(Code::FailedPrecondition), "{}: {code:?}", row.path);
    }
    untouched(t, &mut vm)
}

fn refused(t: &Context) -> anyhow::Result<()> {
    let owner = t.owner()?;
    let good = owner.config("one", &["--no-kubernetes"])?;
    let mut edited = good.clone();
    *edited.last_mut().context("a config has bytes")? ^= 1;
    let (on_esp, disk) = t.machine("esp").raw_disk(1024)?;

    // The file of the ESP, then QEMU's item, then a machine that cannot keep what the config asks for.
    disk.put_config(&[])?;
    refuses(t, &on_esp, "empty")?;
    disk.put_config(&edited)?;
    refuses(t, &on_esp, "not signed by the owner")?;
    disk.put_config(&good)?;
    let before = disk.digest()?;
    let items: [(&[u8], &str); 4] = [
        (&[], "empty"),
        (&edited, "not signed by the owner"),
        (&good[..good.len() - 1], "is malformed"),
        (&[0xa; 100_000], "at most 65536 are read"),
    ];
    for (item, reason) in items {
        refuses(t, &on_esp.clone().config(item)?, reason).context(reason)?;
    }
    refuses(t, &on_esp, "TPM")?;
    ensure!(disk.digest()? == before, "the disk is another");
    Ok(())
}

/// The machine says why on its console, and to whoever asks its API for first contact.
fn refuses(t: &Context, plan: &MachinePlan, reason: &str) -> anyhow::Result<()> {
    let mut vm = plan.start()?;
    stays(t, &mut vm, "NeedsOwner", reason)?;
    let mut stranger = Stranger::meet(&vm, t.within(10))?;
    let answer = stranger.call(async |client| client.claim(ClaimRequest::default()).await);
    let told = answer.err().context("it claims to have an identity")?;
    ensure!(told.code() == Code::FailedPrecondition && told.message().contains(reason), "{told}");
    Ok(())
}

fn sealed(t: &Context) -> anyhow::Result<()> {
    let Sealed { owner, plan, vm, first, .. } = Sealed::new(t)?;
    ensure!(first.level == "encrypted" && first.protection == "tpm", "{first:#?}");
    ensure!(first.boot_class == "direct", "{first:#?}");
    ensure!(first.name == format!("m-{}", &first.machine_id[..12]), "{first:#?}");

    owner.ask("one", &vm, &["machine", "reboot"])?;
    same_machine(&first, &owner.status_of_next_boot("one", &vm, &first, t.within(40))?)?;
    owner.ask("one", &vm, &["machine", "poweroff"])?;
    vm.wait_shutdown(t.within(10))?;

    let other = owner.config("two", &["--level", "insecure", "--no-kubernetes"])?;
    let vm = plan.config(&other)?.start()?;
    same_machine(&first, &owner.status_when_running("one", &vm, vm.started(), t.within(30))?)?;
    let logs = owner.run(&["-c", "one", "machine", "logs", "--tail", "200"])?;
    ensure!(logs.contains("ignoring the enrolment config"), "{logs}");
    Ok(())
}

fn erased(t: &Context) -> anyhow::Result<()> {
    let Sealed { owner, disk, vm, config, .. } = Sealed::new(t)?;
    owner.ask("one", &vm, &["machine", "poweroff"])?;
    vm.wait_shutdown(t.within(10))?;
    let names: Vec<String> = disk.esp()?.into_iter().map(|(name, _)| name).collect();
    ensure!(!names.iter().any(|name| name == image::esp::ENROLMENT), "the config is still there: {names:?}");
    let left = disk.find(Esp, &config).err().map(|error| error.to_string()).unwrap_or_default();
    ensure!(left.ends_with("is not in Esp"), "its bytes are still there");
    Ok(())
}

/// A machine that was enrolled by a file of its ESP, and runs sealed to its TPM.
struct Sealed {
    owner: Owner,
    plan: MachinePlan,
    disk: RawDisk,
    vm: Vm,
    /// Status in its first boot.
    first: Status,
    config: Vec<u8>,
}

impl Sealed {
    fn new(t: &Context) -> anyhow::Result<Self> {
        let owner = t.owner()?;
        let config = owner.config("one", &["--level", "encrypted", "--no-kubernetes"])?;
        let (plan, disk) = t.machine("m").tpm().raw_disk(2048)?;
        disk.put_config(&config)?;
        disk.find(Esp, &config)?;
        let vm = plan.start()?;
        let first = owner.status_when_running("one", &vm, vm.started(), t.within(30))?;
        Ok(Self { owner, plan, disk, vm, first, config })
    }
}

fn cut(t: &Context) -> anyhow::Result<()> {
    let owner = t.owner()?;
    let config = owner.config("one", &["--level", "encrypted", "--no-kubernetes"])?;
    let (plan, disk) = t.machine("m").tpm().raw_disk(1024)?;
    disk.put_config(&config)?;
    for step in ["grow-data", "mkfs", "keys", "seal", "remove-config"] {
        let vm = plan.start()?;
        vm.wait_for(vm.started(), &format!("  state      Enrolling ({step})"), t.within(30))?;
        vm.kill();
    }
    let vm = plan.start()?;
    let first = owner.status_when_running("one", &vm, vm.started(), t.within(30))?;
    owner.ask("one", &vm, &["machine", "poweroff"])?;
    vm.wait_shutdown(t.within(10))?;
    ensure!(disk.esp()?.iter().all(|(name, _)| name != image::esp::ENROLMENT), "the config is gone");
    let vm = plan.start()?;
    same_machine(&first, &owner.status_when_running("one", &vm, vm.started(), t.within(30))?)
}
