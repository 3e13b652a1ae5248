//! Shows that the owner opens a machine that waits for its key, and that nobody else does.

use std::net::SocketAddr;

use anyhow::{Context as _, ensure};
use api::wire::{
    DirectoryRequest, GiveClusterKeyRequest, GiveDirectoryRequest, RecoveryRecordRequest, RecoveryRecordResponse,
};
use model::Secret;
use pki::PrivateKey;
use qemu::Vm;
use serde_json::Value;

use crate::owned::Cluster;
use crate::{Case, Context, FleetKind, Owner, Prerequisite, Starts, Stranger, same_machine, stays};

pub(crate) const CASES: &[Case] = &[
    Case {
        name: "under policy manual each start waits for the owner",
        proves: &["K5", "K6", "D2"],
        needs: &[Prerequisite::Swtpm],
        starts: Starts::Cold,
        run: manual,
    },
    Case {
        name: "a waiting machine opens by its own key, and tells who tried",
        proves: &["K5", "K6", "D2"],
        needs: &[Prerequisite::Swtpm],
        starts: Starts::From(FleetKind::Owned),
        run: by_its_key,
    },
    Case {
        name: "a waiting machine takes its owner's directory, and no other",
        proves: &["D11"],
        needs: &[Prerequisite::Swtpm],
        starts: Starts::From(FleetKind::Owned),
        run: told,
    },
    Case {
        name: "a running machine takes its owner's directory, and no other",
        proves: &["D11"],
        needs: &[Prerequisite::Swtpm],
        starts: Starts::From(FleetKind::Owned),
        run: told_while_it_runs,
    },
];

const NAME: &str = "one";

fn manual(t: &Context) -> anyhow::Result<()> {
    let owner = t.owner()?;
    let (plan, disk) = t.machine(NAME).tpm().raw_disk(1024)?;
    disk.put_config(&owner.config(NAME, &["--level", "encrypted", "--cold-start", "manual", "--no-kubernetes"])?)?;
    let vm = plan.start()?;
    let created = owner.status_when_running(NAME, &vm, vm.started(), t.within(30))?;
    ensure!(created.protection == "tpm+owner" && created.cold_start.as_deref() == Some("manual"), "{created:#?}");
    let recover = |vm: &Vm, more: &[&str]| owner.ask(NAME, vm, &[&["recover"], more].concat());
    outcome(&recover(&vm, &[])?, 0, "not needed")?;
    owner.ask(NAME, &vm, &["machine", "poweroff"])?;
    vm.wait_shutdown(t.within(10))?;
    let share = disk.file("cairn/share.0")?;
    ensure!(share.iter().all(|byte| *byte == 0), "policy manual is the absence of a share");

    let mut vm = plan.start()?;
    stays(t, &mut vm, "AwaitingKeys", "cairnctl recover")?;
    outcome(&recover(&vm, &["--dry-run"])?, 1, "can be recovered")?;
    let waits = owner.ask(NAME, &vm, &["machine", "status"])?;
    ensure!(waits["state"] == "AwaitingKeys", "a dry run gives nothing: {waits:#}");
    let before = vm.mark()?;
    outcome(&recover(&vm, &[])?, 1, "recovered")?;
    same_machine(&created, &owner.status_when_running(NAME, &vm, before, t.within(30))?)?;
    let again = recover(&vm, &[])?;
    ensure!(again["machines"][0]["state"] == "Running", "{again:#}");
    outcome(&again, 0, "not needed")
}

/// Checks how many machines were opened, and what became of the only one.
fn outcome(told: &Value, recovered: u32, outcome: &str) -> anyhow::Result<()> {
    ensure!(told["recovered"] == recovered && told["machines"][0]["outcome"] == outcome, "{told:#}");
    Ok(())
}

fn by_its_key(t: &Context) -> anyhow::Result<()> {
    let cluster = Cluster::copy(t)?;
    cluster.run(&["cluster", "stop", "-m", "m1", "--now"])?;
    cluster.run(&["cluster", "start", "-m", "m1"])?;
    cluster.comes_to(&["AwaitingKeys", "Running", "Running"], t.within(60), Cluster::states)?;
    let place = cluster.place("m1")?;
    let another = PrivateKey::ed25519(&Secret::take(&mut [7; 32]))?;
    not_opened_by(place, None)?;
    not_opened_by(place, Some(&another))?;
    not_opened_with_another_key(place, &cluster.owner)?;
    ensure!(cluster.states()?[0] == "AwaitingKeys", "it waits on");
    cluster.run(&["-m", "m1", "recover"])?;
    cluster.runs(t, &["-m", "m1"])?;
    let audit = cluster.run(&["-m", "m1", "machine", "logs", "audit"])?;
    let given = audit.lines().filter(|line| line.contains("GiveClusterKey"));
    let outcomes: Vec<_> = given
        .filter_map(|line| line.rsplit_once("outcome="))
        .map(|(_, end)| end.split(' ').next().unwrap_or_default())
        .collect();
    ensure!(outcomes == ["InvalidArgument", "Ok"], "one line for each: {audit}");
    Ok(())
}

fn told(t: &Context) -> anyhow::Result<()> {
    let cluster = Cluster::copy(t)?;
    let key = cluster.owner.key()?;
    let mut session = Stranger::call_at(cluster.place("m1")?, Some(&key))?;
    let signed = session.call(async |client| client.directory(DirectoryRequest {}).await)?.into_inner().directory;
    cluster.run(&["cluster", "stop", "-m", "m1", "--now"])?;
    cluster.run(&["cluster", "start", "-m", "m1"])?;
    cluster.comes_to(&["AwaitingKeys", "Running", "Running"], t.within(60), Cluster::states)?;
    let give = |directory: &[u8]| {
        let request = GiveDirectoryRequest { directory: directory.to_vec() };
        let mut session = Stranger::call_at(cluster.place("m1")?, Some(&key))?;
        anyhow::Ok(session.call(async |client| client.give_directory(request).await))
    };
    let foreign = give(b"nobody's")?.err().context("its cluster has not signed it")?;
    ensure!(foreign.code() == tonic::Code::InvalidArgument, "{foreign}");
    give(&signed)?.context("its own")?;
    ensure!(cluster.states()?[0] == "AwaitingKeys", "it waits on, by another directory");
    cluster.run(&["-m", "m1", "recover"])?;
    cluster.runs(t, &["-m", "m1"])?;
    let audit = cluster.run(&["-m", "m1", "machine", "logs", "audit"])?;
    let given = audit.lines().filter(|line| line.contains("GiveDirectory"));
    ensure!(given.count() == 2, "one line for each: {audit}");
    Ok(())
}

fn told_while_it_runs(t: &Context) -> anyhow::Result<()> {
    let cluster = Cluster::copy(t)?;
    let request = GiveDirectoryRequest { directory: b"nobody's".to_vec() };
    let mut session = Stranger::call_at(cluster.place("m2")?, Some(&cluster.owner.key()?))?;
    let foreign = session.call(async |client| client.give_directory(request).await);
    let foreign = foreign.err().context("its cluster has not signed it")?;
    ensure!(foreign.code() == tonic::Code::InvalidArgument, "{foreign}");
    let told = cluster.run(&["-m", "m2", "recover", "--directory"])?;
    ensure!(told.contains("1 machine told where the coordinators are"), "{told}");
    let audit = cluster.run(&["-m", "m2", "machine", "logs", "audit"])?;
    let given = audit.lines().filter(|line| line.contains("GiveDirectory"));
    ensure!(given.count() == 2, "one line for each: {audit}");
    cluster.run(&["cluster", "stop", "-m", "m2", "--now"])?;
    cluster.run(&["cluster", "start", "-m", "m2"])?;
    cluster.runs(t, &["-m", "m2"])
}

/// Somebody without a key, or another owner, is told nothing and not heard.
fn not_opened_by(place: SocketAddr, key: Option<&PrivateKey>) -> anyhow::Result<()> {
    let mut stranger = Stranger::call_at(place, key)?;
    let shown = stranger.call(async |client| client.recovery_record(RecoveryRecordRequest {}).await);
    ensure!(shown.is_err(), "the record is for the owner: {shown:?}");
    let mut stranger = Stranger::call_at(place, key)?;
    let given = stranger.call(async |client| client.give_cluster_key(wrong(&Default::default())).await);
    ensure!(given.is_err(), "so is the call that opens");
    Ok(())
}

fn not_opened_with_another_key(place: SocketAddr, owner: &Owner) -> anyhow::Result<()> {
    let mut session = Stranger::call_at(place, Some(&owner.key()?))?;
    let given = session.call(async |client| {
        let recovery = client.recovery_record(RecoveryRecordRequest {}).await?.into_inner();
        client.give_cluster_key(wrong(&recovery)).await
    });
    let refused = given.err().context("a wrong key is refused by the header")?;
    ensure!(refused.code() == tonic::Code::InvalidArgument, "{refused}");
    ensure!(refused.message().contains("does not open the disk"), "{refused}");
    Ok(())
}

/// A key that is not the disk's.
fn wrong(recovery: &RecoveryRecordResponse) -> GiveClusterKeyRequest {
    let (disk_uuid, key_generation) = (recovery.disk_uuid.clone(), recovery.key_generation);
    GiveClusterKeyRequest { disk_uuid, key_generation, cluster_key: vec![7; 32] }
}
