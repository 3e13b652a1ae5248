//! That the owner opens a machine that waits for its key, and that nobody else does.

use anyhow::{Context as _, ensure};
use api::wire::{GiveClusterKeyRequest, RecoveryRecordRequest};
use model::Secret;
use qemu::Vm;

use crate::{Case, Context, Need, Owner, Starts, Stranger, same_machine, stays};

pub(crate) const CASES: &[Case] = &[Case {
    name: "under policy manual a machine waits at each start until its owner recovers it",
    proves: &["K5", "K6", "D2"],
    needs: &[Need::Swtpm],
    starts: Starts::Cold,
    run: manual,
}];

const NAME: &str = "one";

fn manual(t: &Context) -> anyhow::Result<()> {
    let owner = t.owner()?;
    let choices = ["--level", "encrypted", "--cold-start", "manual", "--no-kubernetes"];
    let (plan, disk) = t.machine(NAME).tpm().raw_disk(1024)?;
    disk.put_config(&owner.config(NAME, &choices)?)?;
    let vm = plan.start()?;
    let created = owner.status_when_running(NAME, &vm, vm.started(), t.within(30))?;
    ensure!(created.protection == "tpm+owner" && created.cold_start.as_deref() == Some("manual"), "{created:#?}");
    let recovered = owner.ask(NAME, &vm, &["recover"])?;
    ensure!(recovered["recovered"] == 0 && recovered["machines"][0]["outcome"] == "not needed", "{recovered:#}");
    owner.ask(NAME, &vm, &["machine", "poweroff"])?;
    vm.wait_shutdown(t.within(10))?;
    let share = disk.esp()?.into_iter().find(|(path, _)| path == "cairn/share.0").context("a file of the ESP")?.1;
    ensure!(share.iter().all(|byte| *byte == 0), "policy manual is the absence of a share");

    let mut vm = plan.start()?;
    stays(t, &mut vm, "AwaitingKeys", "cairnctl recover")?;
    nobody_else(t, &owner, &vm)?;
    let asked = owner.ask(NAME, &vm, &["recover", "--dry-run"])?;
    ensure!(asked["recovered"] == 1 && asked["machines"][0]["outcome"] == "can be recovered", "{asked:#}");
    let waits = owner.ask(NAME, &vm, &["machine", "status"])?;
    ensure!(waits["state"] == "AwaitingKeys", "a dry run gives nothing: {waits:#}");

    let before = vm.mark()?;
    let recovered = owner.ask(NAME, &vm, &["recover"])?;
    ensure!(recovered["recovered"] == 1 && recovered["machines"][0]["outcome"] == "recovered", "{recovered:#}");
    let runs = owner.status_when_running(NAME, &vm, before, t.within(30))?;
    same_machine(&created, &runs)?;
    let again = owner.ask(NAME, &vm, &["recover"])?;
    ensure!(again["recovered"] == 0 && again["machines"][0]["state"] == "Running", "{again:#}");
    let audit = owner.logs(NAME, &vm, &["audit"])?;
    let given = audit.iter().filter_map(|entry| entry["line"].as_str()).filter(|line| line.contains("GiveClusterKey"));
    let outcomes: Vec<_> = given.filter_map(|line| line.rsplit_once("outcome=")).map(|(_, outcome)| outcome).collect();
    ensure!(outcomes == ["InvalidArgument", "Ok"], "one line for each: {audit:#?}");
    Ok(())
}

/// Neither another owner, nor this one with another key, nor somebody without any.
fn nobody_else(t: &Context, owner: &Owner, vm: &Vm) -> anyhow::Result<()> {
    let wrong = |recovery: &api::wire::RecoveryRecordResponse| GiveClusterKeyRequest {
        disk_uuid: recovery.disk_uuid.clone(),
        key_generation: recovery.key_generation,
        cluster_key: vec![7; 32],
    };
    let another = pki::PrivateKey::ed25519(&Secret::take(&mut [7; 32]))?;
    for key in [None, Some(&another)] {
        let mut stranger = Stranger::meet_as(vm, key, t.within(10))?;
        let shown = stranger.call(async |client| client.recovery_record(RecoveryRecordRequest {}).await);
        ensure!(shown.is_err(), "the record is for the owner: {shown:?}");
        let mut stranger = Stranger::meet_as(vm, key, t.within(10))?;
        let given = stranger.call(async |client| client.give_cluster_key(wrong(&Default::default())).await);
        ensure!(given.is_err(), "so is the call that opens");
    }
    let mut session = Stranger::meet_as(vm, Some(&owner.key()?), t.within(10))?;
    let given = session.call(async |client| {
        let recovery = client.recovery_record(RecoveryRecordRequest {}).await?.into_inner();
        client.give_cluster_key(wrong(&recovery)).await
    });
    let refused = given.err().context("a wrong key is refused by the header")?;
    ensure!(refused.code() == tonic::Code::InvalidArgument, "{refused}");
    ensure!(refused.message().contains("does not open the disk"), "{refused}");
    Ok(())
}
