//! Kubernetes on a machine: the node, a pod of the image's own, what is refused, what a reboot leaves. One case makes the machine;
//! each other one has a copy of its own.
//!
//! The machine is what hardware is: the whole disk, by UEFI, its config on the ESP, sealed to what was measured. It is of the debug
//! profile, for pods that misbehave run the guest. It tags nothing, for that takes an emulated machine half of its time: at the
//! default level, and where QEMU loads its kernel, the release image runs a pod in the first case.

use std::time::Duration;

use crate::{
    Case, CommandRefusal, Context, CopiedMachine, FleetCopy, FleetKind, Follower, Image, MachinePlan, Owner,
    Prerequisite, ServiceStatus, Starts, Status, Stranger, Via, object_file, page_of, recovered, same_machine, web_pod,
};
use anyhow::{Context as _, ensure};
use api::wire::FaultKind;
use qemu::console::Mark;
use qemu::deadline::Stopwatch;
use qemu::machine::Clock;
use qemu::{Deadline, Vm};
use serde_json::Value;

use super::cluster;
use super::network::{self, Outside};
use super::saved::DAYS;

/// The machine is made with nothing beside it: else what waits for its pods gives up.
pub(crate) const CASES: &[Case] = &[
    Case {
        name: "a cluster is made by a command, runs a pod and is destroyed",
        proves: &["O6", "W1", "W5", "H3", "Q6"],
        needs: &[Prerequisite::Swtpm],
        starts: Starts::Cold,
        run: cluster::journey,
    },
    Case {
        starts: Starts::Making(KUBERNETES),
        ..case("a node is ready and runs a pod of the image", &["O6", "W1", "W5"], ready)
    },
];

/// Cases on copies of the machine with Kubernetes.
pub(crate) const COPIES: &[Case] = &[
    case("a reboot is a cold start, and brings back the owner's things", &["O12", "D2", "S6", "W1"], reboot),
    case("a secret is encrypted in etcd", &["W7"], encrypted),
    case("who makes a secret is written down, and not what it is", &["W7", "Q1"], written_down),
    case("a machine with pods stops what needs another before it", &["O12"], stops),
    case("a snapshot comes back, and what was made since is gone", &["Q4"], restored),
    case("a restore goes on behind a power cut at each step", &["Q4", "Q6"], restored_behind_cuts),
    case("services' certificates are renewed while requests go on", &["Q9"], renewed_certificates),
    Case {
        needs: &[Prerequisite::Swtpm, Prerequisite::Ovmf, Prerequisite::Faketime],
        ..case("a pod saved for two days runs on, and its node is alive", &["S13"], days_later)
    },
];

const KUBERNETES: FleetKind = FleetKind::Kubernetes;
/// Version that `kubectl get nodes` has to show: that of `components/kube`.
const VERSION: &str = "v1.36.3";
/// Time that pods are given, as `kubectl --timeout` reads it; on a host that emulates, images and probes take their
/// time.
pub(crate) const POD: &str = "--timeout=300s";
/// Spares the apiserver of a copy its whole OpenAPI document, by which `kubectl` asks whether it checks fields.
pub(crate) const UNCHECKED: &str = "--validate=false";
pub(crate) const NAME: &str = "kube";
/// Service that ends by itself once the renewal of a lease takes 10 s (client-go, `leaderelection`).
pub(crate) const LOSES_LEASES: &str = "kube.controllers";
/// Room for etcd, images, pods and volumes, to which 2 GiB are promised less.
const DISK_MIB: u64 = 6144;
const fn case(name: &'static str, proves: &'static [&'static str], run: fn(&Context) -> anyhow::Result<()>) -> Case {
    Case { name, proves, needs: &[Prerequisite::Swtpm, Prerequisite::Ovmf], starts: Starts::From(KUBERNETES), run }
}

/// The machine, with its web pod.
#[derive(Debug)]
pub(crate) struct Cluster {
    plan: MachinePlan,
    pub(crate) vm: Vm,
    pub(crate) owner: Owner,
    /// On the segment of a card of its own.
    pub(crate) outside: Outside,
}

/// Time of a log's last line, in milliseconds since 1970: what a wait begins behind.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LogMark(u64);

fn ready(t: &Context) -> anyhow::Result<()> {
    let cluster = Cluster::with_pod(t)?;
    let status = cluster.status()?;
    ensure!(status.boot_class == "uefi" && status.protection == "tpm", "{status:#?}");
    ensure!(status.level == "encrypted", "{status:#?}");
    let nodes = cluster.get("nodes")?;
    let node = &nodes["items"][0];
    ensure!(nodes["items"].as_array().map(Vec::len) == Some(1), "{nodes:#}");
    ensure!(node["metadata"]["name"] == status.name, "{node:#}");
    let info = &node["status"]["nodeInfo"];
    ensure!(info["kubeletVersion"] == VERSION, "{info:#}");
    ensure!(info["bootID"] == status.boot_id, "the node's state is of another boot: {info:#}");
    cluster.shows_roles("control-plane,worker")?;
    let image = &cluster.get("pod/web")?["status"]["containerStatuses"][0]["image"];
    ensure!(image == "cairn.local/web:1", "{image}");
    cluster.save(t)
}

/// Content of a Secret, which nobody may read but who asks for the Secret.
const CANARY: &str = "a-canary-that-nobody-may-read";

fn encrypted(t: &Context) -> anyhow::Result<()> {
    let cluster = Cluster::copy(t)?;
    let before = cluster.encrypted_writes()?;
    cluster.keep_canary()?;
    let kept = cluster.get("secret/canary")?;
    ensure!(kept["data"]["value"].is_string(), "it is read back: {kept}");
    let after = cluster.encrypted_writes()?;
    ensure!(after > before, "no Secret was encrypted: {before}, {after}");
    Ok(())
}

fn written_down(t: &Context) -> anyhow::Result<()> {
    let cluster = Cluster::copy(t)?;
    cluster.keep_canary()?;
    let made = |event: &Value| {
        let what = &event["objectRef"];
        event["verb"] == "create" && what["resource"] == "secrets" && what["name"] == "canary"
    };
    let event = |line: &String| serde_json::from_str::<Value>(line).ok();
    let record = cluster.vm.until(t.within(5), || cluster.log("kube.audit").ok()?.iter().filter_map(event).find(made));
    let record = record.context("the request is not in the record")?;
    ensure!(record["user"]["username"] == "cairn:owner" && record["level"] == "Metadata", "{record:#}");
    ensure!(!cluster.log("kube")?.iter().any(|line| line.contains(CANARY)), "a Secret is in the log");
    let kept_apart = !cluster.log("kube.apiserver")?.iter().any(|line| line.starts_with(r#"{"kind":"Event""#));
    ensure!(kept_apart, "the record is in the apiserver's log");
    Ok(())
}

fn stops(t: &Context) -> anyhow::Result<()> {
    let mut cluster = Cluster::copy(t)?;
    let from = cluster.vm.mark()?;
    cluster.ask(&["machine", "reboot"])?;
    cluster.vm.wait_reset(t.within(20))?;
    dependants_first(&cluster.stopped(from))
}

/// Objects that the owner made are there after a reboot, and those that the owner took away are not.
fn reboot(t: &Context) -> anyhow::Result<()> {
    let cluster = Cluster::copy(t)?;
    cluster.changed_by_owner()?;
    let before = cluster.seen()?;
    // A lone coordinator has nobody to ask for the cluster's half of the key: its own TPM gives the share out.
    ensure!(before.machine.cold_start.as_deref() == Some("automatic"), "{:#?}", before.machine);
    cluster.ask(&["machine", "reboot"])?;
    // The owner's tool speaks to nobody but the machine and the authority that it pinned at first contact.
    cluster.owner.status_of_next_boot(NAME, &cluster.vm, &before.machine, t.within(60))?;
    ensure!(!recovered(&cluster.owner, NAME, &cluster.vm)?, "pods and services let go of the data");
    // The machine says this of its own boot only.
    cluster.wait_node()?;
    let now = cluster.vm.until(t.within(60), || cluster.seen().ok().filter(|now| now.runs_since(&before)));
    let now = now.with_context(|| format!("before: {before:#?}, at last: {:#?}", cluster.seen()))?;
    same_machine(&before.machine, &now.machine)?;
    ensure!(now.pod_id == before.pod_id, "the same pod");
    ensure!(now.authority == before.authority, "{}", now.authority);
    cluster.is_as_its_owner_left_it()
}

/// An object of before that was deleted, and one that was made since. What the cluster's records say stays as it is. The same file is
/// restored twice in one boot.
fn restored(t: &Context) -> anyhow::Result<()> {
    let cluster = Cluster::copy(t)?;
    let file = cluster.snapshot(t)?;
    cluster.kubectl(&["delete", "configmap/before"])?;
    cluster.make("since")?;
    cluster.run(&["ticket", "issue", "--out", &t.dir().join("ticket").to_string_lossy()])?;
    let tickets = cluster.ask(&["ticket", "list"])?;
    for _ in 0..2 {
        let answer = cluster.restores(&file)?.line(t.within(60))?;
        ensure!(answer.starts_with("Kubernetes has the ") && answer.ends_with(" again"), "{answer}");
    }
    let deadline = t.within(300);
    while !cluster.get("configmap/before").is_ok_and(|found| found["data"]["word"] == "kept") {
        ensure!(deadline.left().is_some(), "{:?}", cluster.get("configmap/before"));
    }
    let gone = cluster.get("configmap/since").err().context("what was made since is there")?;
    ensure!(format!("{gone:#}").contains("NotFound"), "{gone:#}");
    ensure!(cluster.ask(&["ticket", "list"])? == tickets, "the tickets are others");
    cluster.says_hello()
}

/// Effects of a restore on its one coordinator, as fault injection reads them, in their order.
const RESTORE: [&str; 6] =
    ["step: Revoke", "AcknowledgeRestore", "step: Replace", "step: Grant", "EndRestore", "DropSnapshot"];

/// Line of a member's life that fault injection holds.
const STANDS_STILL: &str = "a member's life stands still";

/// QEMU is killed before each effect. Each boot goes on with the same restore, as far as the next one.
fn restored_behind_cuts(t: &Context) -> anyhow::Result<()> {
    let mut cluster = Cluster::copy(t)?;
    let file = cluster.snapshot(t)?;
    cluster.make("since")?;
    let [first, later @ ..] = RESTORE;
    let mut from = cluster.vm.mark()?;
    cluster.inject(t, FaultKind::StandStill, first)?;
    let restore = cluster.restores(&file)?;
    for next in later {
        cluster.vm.wait_for(from, STANDS_STILL, t.within(60))?;
        cluster = cluster.after_power_cut()?;
        from = cluster.vm.started();
        cluster.inject(t, FaultKind::StandStill, next)?;
    }
    cluster.vm.wait_for(from, STANDS_STILL, t.within(60))?;
    drop(restore);
    let cluster = cluster.after_power_cut()?;
    let is_restored = || {
        let gone = cluster.get("configmap/since").err()?;
        (format!("{gone:#}").contains("NotFound") && cluster.get("configmap/before").is_ok()).then_some(())
    };
    Ok(cluster.vm.until(t.within(120), is_restored)?)
}

/// Name and process of each program among these services, but for [`LOSES_LEASES`]: its certificate had ended, and a slow host takes its
/// time.
pub(crate) fn programs(services: Vec<ServiceStatus>) -> impl Iterator<Item = (String, u64)> {
    let programs = services.into_iter().filter_map(|service| Some((service.name, service.pid?)));
    programs.filter(|(name, _)| name != LOSES_LEASES)
}

/// Life of certificates, in seconds: each is renewed at half of it. Who does not read a new one has an end then.
const LIFE: &str = "60";
/// Renewals after which all that were there before the second one have ended.
const RENEWALS: usize = 4;
const RENEWED_CERTIFICATES: &str = "certificates of services are renewed";
/// Words of an apiserver about a request to a kubelet that was under way when it saw its new certificate (client-go,
/// `transport/cert_rotation.go`).
const CUT: &str = "use of closed network connection";

/// Programs that show a certificate, each before those that it needs.
const CERTIFIED: [&str; 6] = ["kube.dns", "kube.proxy", "kube.kubelet", LOSES_LEASES, "kube.apiserver", "etcd"];

/// Each asks the next by certificates: the owner's tunnel the apiserver, that one etcd and the kubelet, which asks it in turn. All start
/// with certificates of a minute, and not with those of a day that were there.
fn renewed_certificates(t: &Context) -> anyhow::Result<()> {
    let cluster = Cluster::copy(t)?;
    let from = cluster.vm.mark()?;
    cluster.inject(t, FaultKind::CertificateLife, LIFE)?;
    cluster.vm.wait_for(from, RENEWED_CERTIFICATES, t.within(30))?;
    cluster.start_again(t, &CERTIFIED)?;
    let (before, from) = (cluster.programs()?, cluster.vm.mark()?);
    let (deadline, mut asked, mut cut) = (t.within(180), 0, 0);
    while cluster.renewals(from) < RENEWALS {
        ensure!(deadline.left().is_some(), "{} renewals", cluster.renewals(from));
        cluster.make(&format!("kept-{asked}"))?;
        cluster.says_hello()?;
        match cluster.kubectl(&["logs", "pod/web", "--tail=1"]) {
            Err(refusal) if refusal.text.contains(CUT) => cut += 1,
            said => drop(said?),
        }
        asked += 1;
    }
    t.measured(&format!("{asked} rounds of requests over {RENEWALS} renewals of certificates, {cut} cut by one"));
    ensure!(cut <= RENEWALS, "{cut} of {asked} were cut");
    let after = cluster.programs()?;
    ensure!(after == before, "some were started anew: {before:?}, {after:?}");
    for condition in ["CertificatesFresh", "NodeReady"] {
        cluster.run(&["condition", "wait", condition, "--timeout", "10s"])?;
    }
    Ok(())
}

/// How often a kubelet renews its node's lease.
const RENEWED: Duration = Duration::from_secs(10);

/// The pod was neither started again nor made anew.
fn days_later(t: &Context) -> anyhow::Result<()> {
    let cluster = Cluster::copy_at(t, Clock::Ahead(DAYS))?;
    let (back, deadline) = (Stopwatch::start(), Deadline::after(RENEWED + t.within(1).length()));
    let now = cluster.now()?;
    cluster.says_hello()?;
    let shown = cluster.kubectl(&["get", "pod/web", "--no-headers"])?;
    let columns: Vec<&str> = shown.split_whitespace().collect();
    ensure!(matches!(columns[..], ["web", "1/1", "Running", "0", age] if age.starts_with("2d")), "{shown}");
    let renewed = cluster.vm.until(deadline, || cluster.renewed().ok().filter(|renewed| *renewed > now));
    renewed.with_context(|| format!("it is {now}, and the lease of {:?}", cluster.renewed()))?;
    t.measured(&format!("a node's lease is renewed {:.1} s after it lay for two days", back.elapsed().as_secs_f64()));
    let nodes = cluster.kubectl(&["get", "nodes", "--no-headers"])?;
    ensure!(nodes.split_whitespace().nth(1) == Some("Ready"), "{nodes}");
    Ok(())
}

/// State that is compared across a reboot.
#[derive(Debug)]
struct Seen {
    machine: Status,
    /// The boot that the node's state is of.
    node_boot: String,
    /// When the node's lease was renewed.
    renewed: String,
    /// The pod's uid.
    pod_id: String,
    /// The pod's container, as `containerStatuses` has it.
    container: Value,
    container_id: String,
    /// The certificate of the Kubernetes authority, as the machine gives it to its owner.
    authority: String,
}

impl Seen {
    /// Whether all of it is of a later boot: a node is Ready, and a pod too, from etcd's memory alone.
    fn runs_since(&self, before: &Self) -> bool {
        let started = |seen: &Self| seen.container["state"]["running"]["startedAt"].as_str().map(str::to_owned);
        self.node_boot == self.machine.boot_id
            && self.machine.is_of_another_boot(&before.machine)
            && self.renewed > before.renewed
            && self.container["ready"] == true
            && self.container_id != before.container_id
            && started(before).is_some()
            && started(self) > started(before)
    }
}

/// A text that an object has at this JSON pointer.
fn text(object: &Value, place: &str) -> anyhow::Result<String> {
    let text = object.pointer(place).and_then(Value::as_str).filter(|text| !text.is_empty());
    text.map(str::to_owned).with_context(|| format!("nothing at {place}: {object:#}"))
}

/// A service that needs another is stopped before it.
fn dependants_first(stopped: &[String]) -> anyhow::Result<()> {
    let place = |name: &str| stopped.iter().position(|service| service == name);
    for (first, then) in [
        ("kube.kubelet", "pods"),
        ("pods", "containerd"),
        ("kube.kubelet", "containerd"),
        ("kube.controllers", "kube.apiserver"),
        ("kube.apiserver", "etcd"),
    ] {
        ensure!(place(first).is_some() && place(first) < place(then), "{first} before {then}: {stopped:?}");
    }
    Ok(())
}

/// A binding that PID 1 has made. (Without the other one the owner could not look.)
const BINDING: &str = "clusterrolebinding/cairn:apiservers";

impl Cluster {
    /// A machine that boots by UEFI; its node and its web pod are Ready.
    fn with_pod(t: &Context) -> anyhow::Result<Self> {
        let (owner, outside) = (t.owner()?, Outside::new(u32::MAX)?);
        let config = owner.config(NAME, &["--level", "encrypted"])?;
        let plan = t.debug_machine("m")?.boot(Via::Uefi).memory_mib(3072).tpm().nic(outside.cable.link());
        let (plan, disk) = plan.raw_disk(DISK_MIB)?;
        disk.put_config(&config)?;
        let vm = plan.start()?;
        owner.status_when_running(NAME, &vm, vm.started(), t.within(60))?;
        let cluster = Self { plan, vm, owner, outside };
        cluster.wait_node()?;
        cluster.apply(t, &web_pod("web", false))?;
        cluster.wait_pod()?;
        let has_address = || network::has_address(&cluster.status().ok()?, network::MACHINE).then_some(());
        cluster.vm.until(t.within(20), has_address)?;
        Ok(cluster)
    }

    fn save(mut self, t: &Context) -> anyhow::Result<()> {
        t.save(KUBERNETES, &Image::debug_of_environment()?, &self.owner, &mut [("m", &mut self.vm)], ())
    }

    /// A copy of its own for this case.
    pub(crate) fn copy(t: &Context) -> anyhow::Result<Self> {
        Self::come_back(t.copy(KUBERNETES, &Image::debug_of_environment()?)?)
    }

    /// The same with this clock on its board, by which the machine has noticed how long it lay.
    fn copy_at(t: &Context, clock: Clock) -> anyhow::Result<Self> {
        let mut copy = t.copy(KUBERNETES, &Image::debug_of_environment()?)?;
        copy.clock = Some(clock);
        Self::come_back(copy)
    }

    fn come_back(copy: FleetCopy<()>) -> anyhow::Result<Self> {
        let outside = Outside::again()?;
        let plugged_in = || outside.cable.is_plugged_in();
        let mut machines = copy.go_on(|_, links| outside.links(links), plugged_in)?;
        let CopiedMachine { plan, vm } = machines.remove("m").context("the machine comes back")?;
        Ok(Self { plan, vm, owner: copy.owner, outside })
    }

    /// Kills its QEMU and has it boot again.
    fn after_power_cut(self) -> anyhow::Result<Self> {
        let Self { plan, vm, owner, outside } = self;
        vm.kill();
        Ok(Self { vm: plan.start()?, plan, owner, outside })
    }

    /// Makes an object of this name.
    fn make(&self, name: &str) -> Result<String, CommandRefusal> {
        self.kubectl(&["create", "configmap", name, "--from-literal=word=kept"])
    }

    fn inject(&self, t: &Context, kind: FaultKind, argument: &str) -> anyhow::Result<()> {
        Stranger::meet_as(&self.vm, Some(&self.owner.key()?), t.within(30))?.inject(kind, argument)?;
        Ok(())
    }

    /// How often the machine has renewed its services' certificates from there on, as the console has shown it.
    fn renewals(&self, from: Mark) -> usize {
        let said = self.vm.said();
        said.iter().filter(|line| line.end > from && line.text.contains(RENEWED_CERTIFICATES)).count()
    }

    /// Kills these programs one after the other, and waits until each is ready in another process, and the node too.
    fn start_again(&self, t: &Context, names: &[&str]) -> anyhow::Result<()> {
        let services = || self.owner.services(NAME, &self.vm);
        let old = services()?;
        for name in names {
            self.inject(t, FaultKind::KillService, name)?;
        }
        let is_new = |now: &ServiceStatus| {
            let before = old.iter().find(|it| it.name == now.name && names.contains(&it.name.as_str()));
            before.is_none_or(|it| it.pid.is_some_and(|process| now.is_ready_beside(process)))
        };
        self.vm.until(t.within(240), || services().ok()?.iter().all(is_new).then_some(()))?;
        self.wait_node()
    }

    fn programs(&self) -> anyhow::Result<Vec<(String, u64)>> {
        Ok(programs(self.owner.services(NAME, &self.vm)?).collect())
    }

    /// File of a snapshot with an object `before` in it.
    fn snapshot(&self, t: &Context) -> anyhow::Result<String> {
        let file = t.dir().join("kube.snapshot").to_string_lossy().into_owned();
        self.make("before")?;
        self.run(&["etcd", "snapshot", "--out", &file])?;
        Ok(file)
    }

    /// Has such a file be restored.
    fn restores(&self, file: &str) -> anyhow::Result<Follower> {
        self.owner.follow(&["-c", NAME, "--address", &self.address(), "cluster", "restore", file, "--yes"])
    }

    pub(crate) fn apply(&self, t: &Context, object: &Value) -> anyhow::Result<()> {
        self.kubectl(&["apply", UNCHECKED, "--filename", &object_file(t, object)?])?;
        Ok(())
    }

    fn keep_canary(&self) -> anyhow::Result<()> {
        self.kubectl(&["create", "secret", "generic", "canary", &format!("--from-literal=value={CANARY}")])?;
        Ok(())
    }

    /// How often the apiserver has written something under the key of Secrets, by its own count.
    fn encrypted_writes(&self) -> anyhow::Result<u64> {
        const OF_SECRETS: [&str; 3] =
            [r#"transformation_type="to_storage""#, r#"status="OK""#, r#"transformer_prefix="k8s:enc:secretbox:v1:"#];
        let metrics = self.kubectl(&["get", "--raw", "/metrics"])?;
        let of_all =
            metrics.lines().filter(|line| line.starts_with("apiserver_storage_transformation_operations_total{"));
        let written = of_all.filter(|line| OF_SECRETS.iter().all(|label| line.contains(label)));
        let count =
            |line: &str| line.rsplit_once(' ').and_then(|(_, count)| count.parse::<u64>().ok()).context("no count");
        written.map(count).sum()
    }

    /// Lines of a service's log.
    pub(crate) fn log(&self, service: &str) -> anyhow::Result<Vec<String>> {
        self.owner.lines(NAME, &self.vm, &[service])
    }

    /// Where a service's log ends by now.
    pub(crate) fn log_mark(&self, service: &str) -> anyhow::Result<LogMark> {
        let last = self.owner.logs(NAME, &self.vm, &["--tail", "1", service])?;
        Ok(LogMark(last.last().map_or(0, |entry| entry["unix_ms"].as_u64().unwrap_or_default())))
    }

    /// Waits until a service's log has these words behind a mark.
    pub(crate) fn logs(&self, t: &Context, service: &str, from: LogMark, words: &str) -> anyhow::Result<()> {
        let is_it = |entry: &Value| {
            entry["unix_ms"].as_u64().is_some_and(|time| time > from.0)
                && entry["line"].as_str().is_some_and(|line| line.contains(words))
        };
        let said = || self.owner.logs(NAME, &self.vm, &[service]).ok()?.iter().any(is_it).then_some(());
        self.vm.until(t.within(20), said).with_context(|| format!("{service} does not say: {words}"))
    }

    /// Services in the order in which they were stopped from there on, as the console has shown it.
    fn stopped(&self, from: Mark) -> Vec<String> {
        let lines = self.vm.said().into_iter().filter(|line| line.end > from);
        lines.filter_map(|line| Some(line.text.split_once("service stopped service=")?.1.to_owned())).collect()
    }

    /// The owner makes an object and a Secret, and takes away some of what PID 1 has made.
    fn changed_by_owner(&self) -> anyhow::Result<()> {
        self.kubectl(&["create", "configmap", "kept", "--from-literal", "word=cairn"])?;
        self.kubectl(&["create", "secret", "generic", "kept", "--from-literal", "word=cairn"])?;
        self.kubectl(&["delete", BINDING])?;
        self.kubectl(&["label", "node", &self.status()?.name, "node-role.kubernetes.io/worker-"])?;
        Ok(())
    }

    fn is_as_its_owner_left_it(&self) -> anyhow::Result<()> {
        ensure!(self.get("configmap/kept")?["data"]["word"] == "cairn");
        ensure!(
            self.get("secret/kept")?["data"]["word"] == "Y2Fpcm4=",
            "the key that it is encrypted under is the same"
        );
        self.shows_roles("control-plane")?;
        let binding = self.get(BINDING).err().context("a binding that the owner deleted is back")?;
        ensure!(format!("{binding:#}").contains("NotFound"), "{binding:#}");
        ensure!(self.get("clusterrolebinding/cairn:owners").is_ok(), "the owner's own is there");
        Ok(())
    }

    /// Waits until `kubectl get nodes` shows these roles, as people read them.
    fn shows_roles(&self, roles: &str) -> anyhow::Result<()> {
        self.wait_bootstrap()?;
        let shown = || self.kubectl(&["get", "nodes", "--no-headers"]).ok();
        let shows = || shown().filter(|shown| shown.split_whitespace().nth(2) == Some(roles));
        self.vm.until(Deadline::after(Duration::from_secs(60)), shows).with_context(|| format!("{:?}", shown()))?;
        Ok(())
    }

    /// The time by the machine's clock, in RFC 3339 to the second, as an object has it that is made now.
    fn now(&self) -> anyhow::Result<String> {
        let made = ["create", "configmap", "now", "--output", "jsonpath={.metadata.creationTimestamp}"];
        let now = self.kubectl(&made)?;
        now.strip_suffix('Z').map(str::to_owned).with_context(|| format!("no time in UTC: {now}"))
    }

    /// When the node's lease was renewed, in RFC 3339.
    fn renewed(&self) -> anyhow::Result<String> {
        let lease = self.object_in("kube-node-lease", &format!("lease/{}", self.status()?.name))?;
        text(&lease, "/spec/renewTime")
    }

    /// Waits until PID 1 has done all that it does of itself in Kubernetes.
    fn wait_bootstrap(&self) -> anyhow::Result<()> {
        let done = |service: &ServiceStatus| service.name == "kube.bootstrap" && service.state == "stopped";
        let deadline = Deadline::after(Duration::from_secs(300));
        let services = || self.owner.services(NAME, &self.vm).ok();
        let seen = self.vm.until(deadline, || services()?.iter().any(done).then_some(()));
        seen.context("wait until the first objects are there")
    }

    fn seen(&self) -> anyhow::Result<Seen> {
        let machine = self.status()?;
        let name = &machine.name;
        let config = self.kubectl(&["config", "view", "--raw", "--output", "json"])?;
        let config: Value = serde_json::from_str(&config).context("read what kubectl says")?;
        let pod = self.get("pod/web")?;
        let container = pod["status"]["containerStatuses"][0].clone();
        Ok(Seen {
            node_boot: text(&self.get(&format!("node/{name}"))?, "/status/nodeInfo/bootID")?,
            renewed: self.renewed()?,
            pod_id: text(&pod, "/metadata/uid")?,
            container_id: text(&container, "/containerID")?,
            container,
            authority: text(&config, "/clusters/0/cluster/certificate-authority-data")?,
            machine,
        })
    }

    pub(crate) fn status(&self) -> anyhow::Result<Status> {
        self.owner.status(NAME, &self.vm)
    }

    pub(crate) fn ask(&self, command: &[&str]) -> anyhow::Result<Value> {
        Ok(self.owner.ask(NAME, &self.vm, command)?)
    }

    fn wait_node(&self) -> anyhow::Result<()> {
        self.run(&["condition", "wait", "NodeReady", "--timeout", "10m"])?;
        Ok(())
    }

    pub(crate) fn wait_pod(&self) -> anyhow::Result<()> {
        self.kubectl(&["wait", "--for=condition=Ready", "pod/web", POD])?;
        Ok(())
    }

    /// The web pod answers the apiserver, at the port where it listens.
    pub(crate) fn says_hello(&self) -> anyhow::Result<()> {
        let said = self.kubectl(&["get", "--raw", &page_of("web", "/")])?;
        ensure!(said == "Hello from web\n", "{said}");
        Ok(())
    }

    pub(crate) fn get(&self, what: &str) -> anyhow::Result<Value> {
        self.object_in("default", what)
    }

    pub(crate) fn object_in(&self, namespace: &str, what: &str) -> anyhow::Result<Value> {
        let said = self.kubectl(&["get", what, "--namespace", namespace, "--output", "json"])?;
        serde_json::from_str(&said).context("read what kubectl says")
    }

    /// Through the tunnel of the machine's public API.
    pub(crate) fn kubectl(&self, arguments: &[&str]) -> Result<String, CommandRefusal> {
        self.run(&[&["kubectl", "--"], arguments].concat())
    }

    pub(crate) fn run(&self, command: &[&str]) -> Result<String, CommandRefusal> {
        let address = self.address();
        self.owner.run(&[&["-c", NAME, "--address", &address], command].concat())
    }

    fn address(&self) -> String {
        self.vm.forward(model::PUBLIC_API_PORT).map(|address| address.to_string()).unwrap_or_default()
    }
}
