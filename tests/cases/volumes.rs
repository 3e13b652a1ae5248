//! Volumes on the machines' own disks, on copies of the machine of `kube.rs`: they hold what they were asked for and no more, outlive
//! their pods, grow, and go with their claims. What a power cut leaves of one is seen on a machine without Kubernetes.

use crate::{Case, Context, MachinePlan, Owner, Prerequisite, Starts, Stranger, page_of, web_pod, wild_pod};
use anyhow::{Context as _, ensure};
use api::wire::FaultKind;
use qemu::Vm;
use serde_json::{Value, json};

use super::kube::{Cluster, POD};
use super::pods::{WILD, case};

pub(crate) const CASES: &[Case] = &[
    case("a pod's volume has its size, and outlives the pod", &["S10", "O2"], kept),
    case("a volume grows with its claim, and goes with it", &["S10"], grown),
    case("a volume that was kept goes when nobody names it", &["S10", "Q6"], freed),
    case("a claim that no machine can meet waits, and says why", &["S10", "O2"], refused),
    case("a pod has the part of a volume that it names", &["S10"], part),
    Case {
        needs: &[Prerequisite::Swtpm],
        starts: Starts::Cold,
        ..case("a volume is whole or gone wherever the power is cut", &["S10", "Q6"], cut)
    },
];

/// Name of the claim.
const DATA: &str = "data";
/// Time in which a claim is met or given up.
const MET: u64 = 90;

fn kept(t: &Context) -> anyhow::Result<()> {
    let cluster = Cluster::wild(t)?;
    cluster.apply(t, &claim("8Mi", "ReadWriteOnce"))?;
    let first = cluster.fills(t)?;
    ensure!(first.starts_with("found: nothing\n") && first.contains("no space"), "{first}");
    ensure!((6_000..=8_192).contains(&written(&first)?), "{first}");
    let second = cluster.fills(t)?;
    ensure!(second.starts_with("found: something worth keeping\n"), "{second}");
    Ok(())
}

fn grown(t: &Context) -> anyhow::Result<()> {
    let cluster = Cluster::wild(t)?;
    cluster.apply(t, &claim("8Mi", "ReadWriteOnce"))?;
    cluster.fills(t)?;
    cluster.apply(t, &claim("32Mi", "ReadWriteOnce"))?;
    let grown = cluster
        .vm
        .until(t.within(MET), || cluster.claim().ok().filter(|it| it["status"]["capacity"]["storage"] == "32Mi"));
    grown.with_context(|| format!("{:#?}", cluster.claim()))?;
    let filled = cluster.fills(t)?;
    ensure!((28_000..=32_768).contains(&written(&filled)?), "{filled}");
    let volume = cluster.kubectl(&["get", "pv", "--output=name"])?;
    cluster.kubectl(&["delete", "pvc", DATA, "--namespace", WILD, POD])?;
    cluster.kubectl(&["wait", "--for=delete", volume.trim(), POD])?;
    Ok(())
}

/// A file of a ConfigMap, and a folder of an empty volume, which is made for it.
fn part(t: &Context) -> anyhow::Result<()> {
    let cluster = Cluster::copy(t)?;
    cluster.kubectl(&["create", "configmap", "texts", "--from-literal=one=first", "--from-literal=two=second"])?;
    let mut pod = web_pod("parts", false);
    pod["spec"]["volumes"] =
        json!([{ "name": "texts", "configMap": { "name": "texts" } }, { "name": "empty", "emptyDir": {} }]);
    pod["spec"]["containers"][0]["volumeMounts"] = json!([
        { "name": "texts", "mountPath": "/text", "subPath": "two" },
        { "name": "empty", "mountPath": "/deep", "subPath": "down/below" },
    ]);
    cluster.apply(t, &pod)?;
    cluster.kubectl(&["wait", "--for=condition=Ready", "pod/parts", POD])?;
    let text = cluster.kubectl(&["get", "--raw", &page_of("parts", "/text")])?;
    ensure!(text == "second", "{text}");
    let mounts = cluster.kubectl(&["get", "--raw", &page_of("parts", "/proc/self/mountinfo")])?;
    ensure!(mounts.contains("/down/below /deep "), "{mounts}");
    cluster.kubectl(&["delete", "pod/parts", POD])?;
    Ok(())
}

/// The policy Retain keeps a volume from the end of its claim on, until people have done with it.
fn freed(t: &Context) -> anyhow::Result<()> {
    let cluster = Cluster::wild(t)?;
    cluster.apply(t, &claim("8Mi", "ReadWriteOnce"))?;
    cluster.fills(t)?;
    let object = cluster.kubectl(&["get", "pv", "--output=name"])?;
    cluster.kubectl(&["patch", object.trim(), "--patch", r#"{"spec":{"persistentVolumeReclaimPolicy":"Retain"}}"#])?;
    let listed = || cluster.ask(&["volume", "list"]);
    let volume = listed()?["volumes"][0].take();
    ensure!(volume["claim"] == "wild/data" && volume["used_bytes"].as_u64() > Some(0), "{volume:#}");
    let volume = volume["volume"].as_str().context("a volume has a name")?.to_owned();
    let remove = || cluster.run(&["volume", "remove", &volume, "--yes"]);
    ensure!(remove().err().is_some_and(|held| held.text.contains("claim wild/data has volume")), "its claim is there");
    cluster.kubectl(&["delete", "pvc", DATA, "--namespace", WILD, POD])?;
    cluster.kubectl(&["wait", "--for=jsonpath={.status.phase}=Released", object.trim(), POD])?;
    ensure!(remove().err().is_some_and(|held| held.text.contains("PersistentVolume pvc-")), "its object is there");
    cluster.kubectl(&["delete", object.trim(), POD])?;
    remove()?;
    ensure!(listed()?["volumes"].as_array().is_some_and(Vec::is_empty), "{:#}", listed()?);
    Ok(())
}

/// Room is promised once; a refusal says why, and a claim that can be met is met beside it.
fn refused(t: &Context) -> anyhow::Result<()> {
    let cluster = Cluster::wild(t)?;
    cluster.apply(t, &claim("8Gi", "ReadWriteOnce"))?;
    cluster.apply(t, &mounting())?;
    let waits = |reason: &str, word: &str| {
        let told = || {
            let events = cluster
                .kubectl(&["get", "events", "--namespace", WILD, "--output=custom-columns=:reason,:message"])
                .ok()?;
            events.lines().any(|event| event.starts_with(reason) && event.contains(word)).then_some(())
        };
        let events = || cluster.kubectl(&["get", "events", "--namespace", WILD]);
        cluster.vm.until(t.within(MET), told).with_context(|| format!("{reason}: {:?}", events()))
    };
    waits("FailedScheduling", "did not have enough free storage")?;
    cluster.kubectl(&["delete", "pod/fills", "pvc/data", "--namespace", WILD, POD])?;
    cluster.apply(t, &claim("8Mi", "ReadWriteMany"))?;
    cluster.apply(t, &mounting())?;
    waits("ProvisioningFailed", "ReadWriteOnce")?;
    ensure!(cluster.kubectl(&["get", "pv", "--output=name"])?.is_empty());
    cluster.kubectl(&["delete", "pod/fills", "pvc/data", "--namespace", WILD, POD])?;
    cluster.apply(t, &claim("8Mi", "ReadWriteOnce"))?;
    cluster.fills(t).map(drop)
}

/// Operation on a volume, as fault injection reads it but for how many of its steps are done.
struct Operation {
    /// Whole operations before it.
    after: &'static [&'static str],
    name: &'static str,
    steps: usize,
    /// The step that changes which volumes there are, and the one that makes it durable.
    changes: usize,
    durable: usize,
}

/// Volume that is made, grown and deleted.
const CREATE: &str = "create 01234567-89ab-cdef-0123-456789abcdef 8388608";
const DELETE: &str = "delete 01234567-89ab-cdef-0123-456789abcdef";
const OPERATIONS: [Operation; 3] = [
    Operation { after: &[], name: CREATE, steps: 7, changes: 6, durable: 7 },
    Operation {
        after: &[CREATE],
        name: "expand 01234567-89ab-cdef-0123-456789abcdef 33554432",
        steps: 2,
        changes: 1,
        durable: 2,
    },
    Operation { after: &[CREATE], name: DELETE, steps: 6, changes: 1, durable: 2 },
];
/// As many steps as any operation has.
const ALL: usize = 99;

/// QEMU is killed behind each step. A second volume is there throughout.
fn cut(t: &Context) -> anyhow::Result<()> {
    let mut machine = CutMachine::new(t)?;
    machine.does("create fedcba98-7654-3210-fedc-ba9876543210 4194304", ALL)?;
    for Operation { after, name, steps, changes, durable } in OPERATIONS {
        for step in 1..=steps {
            machine.does(DELETE, ALL)?;
            after.iter().try_for_each(|operation| machine.does(operation, ALL))?;
            let before = machine.volumes()?;
            machine.does(name, step)?;
            machine = machine.after_power_cut(t)?;
            let found = machine.volumes()?;
            machine.does(name, ALL)?;
            let done = machine.volumes()?;
            let context = || format!("{name}, cut behind step {step}: {before} became {found}, and would be {done}");
            ensure!(before != done && (found == before || found == done), "{}", context());
            ensure!(found == before || step >= changes, "{}", context());
            ensure!(found == done || step < durable, "{}", context());
        }
    }
    Ok(())
}

/// Machine with a disk for volumes, which are made, grown and deleted by fault injection.
struct CutMachine {
    plan: MachinePlan,
    owner: Owner,
    vm: Vm,
    session: Stranger,
}

impl CutMachine {
    fn new(t: &Context) -> anyhow::Result<Self> {
        let (owner, plan) = (t.owner()?, t.debug_machine("m")?.tpm());
        let (plan, disk) = plan.raw_disk(4096)?;
        disk.put_config(&owner.config("cut", &["--level", "encrypted", "--no-kubernetes"])?)?;
        Self::boots(t, plan, owner)
    }

    /// Starts it; it has opened its data then.
    fn boots(t: &Context, plan: MachinePlan, owner: Owner) -> anyhow::Result<Self> {
        let vm = plan.start()?;
        owner.status_when_running("cut", &vm, vm.started(), t.within(30))?;
        let session = Stranger::meet_as(&vm, Some(&owner.key()?), t.within(10))?;
        Ok(Self { plan, owner, vm, session })
    }

    /// Kills its QEMU and has it boot again.
    fn after_power_cut(self, t: &Context) -> anyhow::Result<Self> {
        let Self { plan, owner, vm, .. } = self;
        vm.kill();
        Self::boots(t, plan, owner)
    }

    /// Does the first steps of an operation.
    fn does(&mut self, operation: &str, steps: usize) -> anyhow::Result<()> {
        self.session.inject(FaultKind::Volume, &format!("{operation} {steps}"))?;
        Ok(())
    }

    /// Volumes that there are, and room for more.
    fn volumes(&mut self) -> anyhow::Result<String> {
        let told = self.session.inject(FaultKind::Volume, "list")?;
        Ok(told.rsplit_once(';').map_or_else(|| told.clone(), |(volumes, _memory)| volumes.to_owned()))
    }
}

/// Kibibytes that a pod could write.
fn written(said: &str) -> anyhow::Result<u64> {
    let line = said.lines().find_map(|line| line.strip_prefix("written: "));
    let bytes = line.and_then(|line| line.split(' ').next()).with_context(|| said.to_owned())?;
    bytes.parse().with_context(|| said.to_owned())
}

/// Claim of the default class.
fn claim(size: &str, mode: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": { "name": DATA, "namespace": WILD },
        "spec": { "accessModes": [mode], "resources": { "requests": { "storage": size } } },
    })
}

/// Pod that fills the claim's volume, as nobody in particular: the volume is its group's.
fn mounting() -> Value {
    let mut pod = wild_pod(WILD, "fills");
    pod["spec"]["securityContext"] = json!({ "fsGroup": 4711 });
    let spec = &mut pod["spec"];
    let volumes = spec["volumes"].as_array_mut().expect("a wild pod has some");
    volumes.push(json!({ "name": "volume", "persistentVolumeClaim": { "claimName": DATA } }));
    let mounts = spec["containers"][0]["volumeMounts"].as_array_mut().expect("a wild pod has some");
    mounts.push(json!({ "name": "volume", "mountPath": "/volume" }));
    pod
}

impl Cluster {
    fn claim(&self) -> anyhow::Result<Value> {
        self.object_in(WILD, "pvc/data")
    }

    /// Words of a pod that fills the volume, once it has ended; it is gone then.
    fn fills(&self, t: &Context) -> anyhow::Result<String> {
        self.apply(t, &mounting())?;
        let ended = self.vm.until(t.within(MET), || self.has_phase("fills", "Succeeded"));
        let seen = || {
            format!("{:?} {:#?}", self.said_by("fills"), self.kubectl(&["describe", "pod,pvc", "--namespace", WILD]))
        };
        ended.with_context(seen)?;
        let said = self.said_by("fills")?;
        self.kubectl(&["delete", "pod/fills", "--namespace", WILD, POD])?;
        Ok(said)
    }
}
