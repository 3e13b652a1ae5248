//! Volumes on the machines' own disks, on copies of the machine of `kube.rs`: they hold what they were asked for and no more, outlive
//! their pods, grow, and go with their claims.

use crate::{Case, Context, wild_pod};
use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use super::kube::{Cluster, POD};
use super::pods::{WILD, case};

pub(crate) const CASES: &[Case] = &[
    case("a pod's volume has its size, and outlives the pod", &["S10", "O2"], kept),
    case("a volume grows with its claim, and goes with it", &["S10"], grown),
    case("a volume that was kept goes when nobody names it", &["S10", "Q6"], freed),
    case("a claim that no machine can meet waits, and says why", &["S10", "O2"], refused),
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
