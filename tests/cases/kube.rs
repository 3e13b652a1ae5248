//! Kubernetes on a machine: the node, a pod of the image's own, what is refused, what a reboot leaves.
//!
//! All but the first share one machine, for it takes minutes to come up, and it is started twice in all: the reboot comes last. It
//! is what hardware is: the whole disk, by UEFI, its config on the ESP, sealed to what was measured. It tags nothing, for that
//! takes an emulated machine half of its time: at the default level, and where QEMU loads its kernel, the same image runs a
//! pod in the first case.

use std::sync::{Arc, Mutex, PoisonError};

use crate::{
    Case, Context, Need, Owner, Refused, Service, Starts, Status, Via, recovered, same_machine, web_pod,
    wild_namespace, wild_pod, wild_profile,
};
use anyhow::{Context as _, ensure};
use qemu::Vm;
use qemu::console::Line;
use qemu::network::{Answer, Host};
use serde_json::Value;

use super::{cluster, network};

pub(crate) const CASES: &[Case] = &[
    Case {
        name: "a cluster is made by one command, runs a pod and is taken away",
        proves: &["O6", "W1", "W5", "Q6"],
        needs: &[Need::Swtpm],
        starts: Starts::Cold,
        run: cluster::journey,
    },
    case("a node is ready and runs a pod of the image", &["O6", "W1", "W5"], ready),
    case("a privileged pod is refused", &["W7"], privileged),
    case("a pod cannot be reached from outside", &["A7"], scanned),
    case("a pod gets no credential of the machine", &["W7"], no_credential),
    case("what a pod keeps secret is encrypted in etcd, and who asks is written down", &["W7", "Q1"], secrets),
    case("a pod can take neither processes nor memory of the machine", &["O2"], wild),
    case("a reboot is a cold start that brings all of it back", &["O12", "D2", "S6", "W1"], reboot),
];

/// What `kubectl get nodes` has to show: the version of `components/kube`.
const VERSION: &str = "v1.36.3";
/// Of the pods, as `kubectl --timeout` reads it; on a host that emulates, images and probes take their time.
const POD: &str = "--timeout=300s";
const NAME: &str = "kube";
/// Room for etcd, images and pods.
const DISK_MIB: u64 = 3072;

const fn case(name: &'static str, proves: &'static [&'static str], run: fn(&Context) -> anyhow::Result<()>) -> Case {
    Case { name, proves, needs: &[Need::Swtpm, Need::Ovmf], starts: Starts::Cold, run }
}

/// The machine, with its web pod.
#[derive(Debug)]
struct Cluster {
    vm: Vm,
    owner: Owner,
    /// Outside, on the segment of a card of its own.
    outside: Host,
}

fn shared(t: &Context) -> anyhow::Result<Arc<Mutex<Cluster>>> {
    t.shared("kubernetes", |t| {
        let owner = t.owner()?;
        let config = owner.config(NAME, &["--level", "encrypted"])?;
        let (outside, cable) = network::outside(u32::MAX)?;
        let plan = t.machine("m").boot(Via::Uefi).memory_mib(3072).tpm().nic(cable.link());
        let (plan, disk) = plan.raw_disk(DISK_MIB)?;
        disk.put_config(&config)?;
        Cluster::with_pod(t, plan.start()?, owner, outside)
    })
}

fn ready(t: &Context) -> anyhow::Result<()> {
    let shared = shared(t)?;
    let cluster = shared.lock().unwrap_or_else(PoisonError::into_inner);
    cluster.wait_pod()?;
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
    shows_roles(&cluster, "control-plane,worker")?;
    let image = &cluster.get("pod/web")?["status"]["containerStatuses"][0]["image"];
    ensure!(image == "cairn.local/web:1", "{image}");
    Ok(())
}

/// Waits until `kubectl get nodes` shows these roles, as people read them.
fn shows_roles(cluster: &Cluster, roles: &str) -> anyhow::Result<()> {
    cluster.wait_bootstrap()?;
    let shown = cluster.kubectl(&["get", "nodes", "--no-headers"])?;
    ensure!(shown.split_whitespace().nth(2) == Some(roles), "{shown}");
    Ok(())
}

fn secrets(t: &Context) -> anyhow::Result<()> {
    const VALUE: &str = "a-canary-that-nobody-may-read";
    let shared = shared(t)?;
    let cluster = shared.lock().unwrap_or_else(PoisonError::into_inner);
    cluster.kubectl(&["create", "secret", "generic", "canary", &format!("--from-literal=value={VALUE}")])?;
    let kept = cluster.get("secret/canary")?;
    ensure!(kept["data"]["value"].is_string(), "it is read back: {kept}");
    // How often the apiserver has written something under which kind of key, by its own count.
    let metrics = cluster.kubectl(&["get", "--raw", "/metrics"])?;
    let written = |prefix: &str| {
        metrics.lines().any(|line| {
            line.starts_with("apiserver_storage_transformation_operations_total{")
                && line.contains(r#"transformation_type="to_storage""#)
                && line.contains(r#"status="OK""#)
                && line.contains(&format!(r#"transformer_prefix="{prefix}"#))
        })
    };
    ensure!(written("k8s:enc:secretbox:v1:"), "no Secret was encrypted");
    let log = |service: &str| -> anyhow::Result<Vec<String>> {
        let entries = cluster.owner.logs(NAME, &cluster.vm, &[service])?;
        Ok(entries.iter().filter_map(|entry| entry["line"].as_str().map(str::to_owned)).collect())
    };
    let event = |line: &String| serde_json::from_str::<Value>(line).ok();
    let made = |event: &Value| event["verb"] == "create" && event["objectRef"]["resource"] == "secrets";
    let record = cluster.vm.until(t.within(5), || {
        log("kube.audit")
            .ok()?
            .iter()
            .filter_map(event)
            .find(|event| made(event) && event["objectRef"]["name"] == "canary")
    });
    let record = record.context("the request is not in the record")?;
    ensure!(record["user"]["username"] == "cairn:owner" && record["level"] == "Metadata", "{record:#}");
    ensure!(!log("kube")?.iter().any(|line| line.contains(VALUE)), "a Secret is in the log");
    ensure!(!log("kube.apiserver")?.iter().any(|line| line.starts_with(r#"{"kind":"Event""#)), "kept apart");
    Ok(())
}

/// Upper bounds as the kernel has them, written out: the cgroup, memory.min, memory.max, pids.max.
const BOUNDS: &[[&str; 4]] = &[
    ["init", "33554432", "max", "max"],
    ["shims", "0", "max", "4096"],
    ["services/etcd", "0", "1073741824", "1024"],
    ["services/containerd", "0", "2147483648", "16384"],
    ["services/kube.apiserver", "0", "3221225472", "1024"],
    ["services/kube.kubelet", "0", "1073741824", "4096"],
    ["services/kube.controller-manager", "0", "1073741824", "1024"],
    ["services/kube.scheduler", "0", "1073741824", "1024"],
];
/// What one pod may have of processes and threads; a few of them are runc's and the pod's first container's.
const PIDS_OF_A_POD: u64 = 1024;

fn wild(t: &Context) -> anyhow::Result<()> {
    const WILD: &str = "wild";
    let shared = shared(t)?;
    let cluster = shared.lock().unwrap_or_else(PoisonError::into_inner);
    let before = cluster.processes()?;
    let apply = |object: Value| cluster.apply(t, &object);
    apply(wild_namespace(WILD))?;
    apply(wild_profile(WILD))?;
    cluster.kubectl(&["wait", "--for=create", "serviceaccount/default", "--namespace", WILD, POD])?;
    let logs = |pod: &str| cluster.kubectl(&["logs", pod, "--namespace", WILD]);
    let phase = |pod: &str| Some(cluster.object_in(WILD, &format!("pod/{pod}")).ok()?["status"]["phase"].clone());

    apply(wild_pod(WILD, "bounds"))?;
    let ended = cluster.vm.until(t.within(30), || phase("bounds").filter(|phase| *phase == "Succeeded"));
    ended.with_context(|| format!("{:?}", logs("bounds")))?;
    let said = logs("bounds")?;
    let rows: Vec<Vec<&str>> = said.lines().map(|line| line.split(' ').collect()).collect();
    for bound in BOUNDS {
        ensure!(rows.iter().any(|row| row == bound), "{bound:?} is not among {said}");
    }
    for group in ["pods", "pods/kubepods"] {
        let row = rows.iter().find(|row| row[0] == group).with_context(|| format!("{group}: {said}"))?;
        let pids: u64 = row[3].parse().with_context(|| format!("{group} has no bound: {said}"))?;
        ensure!((PIDS_OF_A_POD..32_768).contains(&pids), "{said}");
    }

    for program in ["bomb", "hog"] {
        apply(wild_pod(WILD, program))?;
    }
    // PID 1 answers its owner all the while; each answer is a connection of its own.
    let (mut answers, mut bomb) = (0_u32, None);
    let seen = cluster.vm.until(t.within(60), || {
        cluster.status().ok().filter(|status| status.state == "Running")?;
        answers += 1;
        bomb = bomb.take().or_else(|| logs("bomb").ok()?.lines().next().map(str::to_owned));
        (bomb.is_some() && phase("hog")? == "Failed").then_some(())
    });
    let hog = cluster.object_in(WILD, "pod/hog")?["status"].clone();
    seen.with_context(|| format!("{answers} answers, bomb: {bomb:?}, hog: {hog:#}"))?;
    let bomb = bomb.unwrap_or_default();
    let children: u64 = bomb.split(' ').next().unwrap_or_default().parse().with_context(|| bomb.clone())?;
    ensure!(bomb.contains("then refused") && children < PIDS_OF_A_POD && children > PIDS_OF_A_POD - 64, "{bomb}");
    let killed = hog["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 137;
    ensure!(killed || hog["reason"] == "Evicted", "{hog:#}");
    // It still forks as fast as it can.
    cluster.status()?;
    ensure!(answers > 1, "{answers} answers");
    t.measured(&format!("{answers} answers beside a fork bomb of {children} processes and a hog"));
    cluster.kubectl(&["delete", "namespace", WILD, POD])?;
    cluster.wait_pod()?;
    let after = cluster.processes()?;
    ensure!(before == after, "a service was started again: {before:#?} {after:#?}");
    Ok(())
}

fn privileged(t: &Context) -> anyhow::Result<()> {
    let shared = shared(t)?;
    let cluster = shared.lock().unwrap_or_else(PoisonError::into_inner);
    let pod = t.dir().join("privileged.json");
    std::fs::create_dir_all(t.dir()).and_then(|()| std::fs::write(&pod, web_pod("root", true).to_string()))?;
    let refused = cluster.kubectl(&["apply", "--filename", &pod.to_string_lossy()]);
    let refused = refused.err().context("a privileged pod was taken")?;
    ensure!(refused.text.contains("violates PodSecurity") && refused.text.contains("privileged"), "{refused}");
    ensure!(cluster.get("pods")?["items"].as_array().map(Vec::len) == Some(1), "nothing was made");
    Ok(())
}

/// Where programs of Kubernetes listen, and its services' ports on a node; all others are asked for where it does not run.
fn ports() -> impl Iterator<Item = u16> + Clone {
    (1..=11_000).chain(30_000..=32_767)
}

/// A host in a network of the machine's sends to its pods, as their only router would.
fn scanned(t: &Context) -> anyhow::Result<()> {
    let shared = shared(t)?;
    let cluster = shared.lock().unwrap_or_else(PoisonError::into_inner);
    cluster.wait_pod()?;
    let has_address = |status: &Status| network::has_address(status, network::MACHINE).then_some(());
    cluster.vm.until(t.within(20), || has_address(&cluster.status().ok()?))?;
    let pod = &cluster.get("pod/web")?["status"]["podIP"];
    let pod = pod.as_str().and_then(|address| address.parse().ok()).with_context(|| format!("the pod is at {pod}"))?;
    // It listens where it is looked for, and answers those who may ask.
    cluster.says_hello()?;
    network::only_public(t, &cluster.outside, ports())?;
    network::silent(t, &cluster.outside, pod, ports())?;
    for behind in ["10.244.0.1", "10.118.0.1", "10.96.0.1", "127.0.0.1"] {
        let behind = behind.parse().context("an address")?;
        let asked = cluster.outside.scan_tcp(behind, network::PRIVATE, t.within(20))?;
        ensure!(asked.answered().is_empty(), "{behind} answers on {:?}", asked.answered());
    }
    let near = cluster.outside.scan_tcp(network::MACHINE, [8080, 10250], t.within(20))?;
    ensure!(near.ports(Answer::Closed) == [8080, 10250], "the host still reaches the machine itself: {near:?}");
    cluster.says_hello()
}

/// Neither by its own files and environment, nor by a volume or a namespace of the machine that it asks for.
fn no_credential(t: &Context) -> anyhow::Result<()> {
    const MOUNTED: [&str; 8] = [
        "/",
        "/dev",
        "/proc",
        "/sys",
        "/etc/hosts",
        "/etc/hostname",
        "/etc/resolv.conf",
        // Its inside is the container's own, too.
        "/dev/termination-log",
    ];
    let shared = shared(t)?;
    let cluster = shared.lock().unwrap_or_else(PoisonError::into_inner);
    cluster.wait_pod()?;
    let mounts = cluster.file_of_pod("/proc/self/mountinfo")?;
    let places: Vec<&str> = mounts.lines().filter_map(|line| line.split(' ').nth(4)).collect();
    ensure!(places.contains(&"/etc/hosts"), "{mounts}");
    let of_system = |place: &str| ["/dev/", "/proc/", "/sys/"].iter().any(|system| place.starts_with(system));
    let foreign: Vec<_> = places.iter().filter(|place| !MOUNTED.contains(place) && !of_system(place)).collect();
    ensure!(foreign.is_empty(), "mounted in the pod: {foreign:?}");
    // What is mounted of the machine's own file systems is what was made for this pod.
    for line in mounts.lines().filter(|line| line.contains("/cairn/") || line.contains("/data/")) {
        ensure!(["/pki", "/keys", "/secrets", "token"].iter().all(|word| !line.contains(word)), "{line}");
    }
    let environment = cluster.file_of_pod("/proc/self/environ")?;
    let names: Vec<&str> = environment.split('\0').filter_map(|entry| entry.split_once('=')).map(|it| it.0).collect();
    ensure!(names.contains(&"HOSTNAME"), "{names:?}");
    let usual = |name: &&str| ["PATH", "HOSTNAME", "HOME"].contains(name) || name.starts_with("KUBERNETES_");
    ensure!(names.iter().all(usual), "{names:?}");
    ensure!(!environment.contains("-----BEGIN"), "a key or certificate in the environment");

    // The same pod with one thing more, as it would be taken or not.
    let with = |edit: &dyn Fn(&mut Value)| {
        let mut pod = web_pod("thief", false);
        edit(&mut pod["spec"]);
        let file = t.dir().join("thief.json");
        std::fs::create_dir_all(t.dir())
            .and_then(|()| std::fs::write(&file, pod.to_string()))
            .context("write a pod")?;
        Ok::<_, anyhow::Error>(cluster.kubectl(&["apply", "--dry-run=server", "--filename", &file.to_string_lossy()]))
    };
    let volume = |spec: &mut Value, source: Value| {
        spec["volumes"] = serde_json::json!([{ "name": "volume" }]);
        for (kind, what) in source.as_object().into_iter().flatten() {
            spec["volumes"][0][kind] = what.clone();
        }
        spec["containers"][0]["volumeMounts"] = serde_json::json!([{ "name": "volume", "mountPath": "/volume" }]);
    };
    with(&|spec| volume(spec, serde_json::json!({ "emptyDir": {} })))?.context("a harmless volume is taken")?;
    for path in ["/run/cairn/pki", "/data/cairn", "/dev/tpm0", "/"] {
        let refused = with(&|spec| volume(spec, serde_json::json!({ "hostPath": { "path": path } })))?;
        let refused = refused.err().with_context(|| format!("a pod may mount {path}"))?;
        ensure!(refused.text.contains("violates PodSecurity") && refused.text.contains("hostPath"), "{refused}");
    }
    for namespace in ["hostNetwork", "hostPID", "hostIPC"] {
        let refused = with(&|spec| spec[namespace] = true.into())?;
        let refused = refused.err().with_context(|| format!("a pod may have {namespace}"))?;
        ensure!(refused.text.contains("violates PodSecurity") && refused.text.contains(namespace), "{refused}");
    }
    // Nor do the accounts that pods run under have the machine's rights; its owner does.
    let may = |who: &[&str]| cluster.kubectl(&[&["auth", "can-i", "get", "secrets", "--all-namespaces"], who].concat());
    ensure!(may(&[])?.trim() == "yes");
    let account = may(&["--as", "system:serviceaccount:default:default"]);
    let account = account.err().context("a pod's account may read secrets")?;
    ensure!(account.code == 1, "{account}");
    Ok(())
}

fn reboot(t: &Context) -> anyhow::Result<()> {
    let shared = shared(t)?;
    let mut cluster = shared.lock().unwrap_or_else(PoisonError::into_inner);
    cluster.wait_pod()?;
    cluster.kubectl(&["create", "configmap", "kept", "--from-literal", "word=cairn"])?;
    // What the owner takes away of what PID 1 has made stays away. (Without the other binding the owner could not look.)
    const BINDING: &str = "clusterrolebinding/cairn:apiservers";
    cluster.wait_bootstrap()?;
    cluster.kubectl(&["create", "secret", "generic", "kept", "--from-literal", "word=cairn"])?;
    cluster.kubectl(&["delete", BINDING])?;
    let name = cluster.status()?.name;
    cluster.kubectl(&["label", "node", &name, "node-role.kubernetes.io/worker-"])?;
    let before = cluster.seen()?;
    // A lone coordinator has nobody to ask for the cluster's half of the key: its own TPM gives the share out.
    ensure!(before.machine.cold_start.as_deref() == Some("automatic"), "{:#?}", before.machine);

    cluster.ask(&["machine", "reboot"])?;
    cluster.vm.wait_reset(t.within(20))?;
    dependants_first(&stopped(&cluster.vm.said()))?;
    let Cluster { vm, owner, .. } = &mut *cluster;
    // The owner's tool speaks to nobody but the machine and the authority that it pinned at first contact.
    owner.status_of_next_boot(NAME, vm, &before.machine, t.within(60))?;
    ensure!(!recovered(owner, NAME, vm)?, "pods and services let go of the data");
    // The machine says this of its own boot only.
    cluster.wait_node()?;
    let now = cluster.vm.until(t.within(60), || cluster.seen().ok().filter(|now| now.runs_since(&before)));
    let now = now.with_context(|| format!("before: {before:#?}, at last: {:#?}", cluster.seen()))?;
    same_machine(&before.machine, &now.machine)?;
    ensure!(now.pod_id == before.pod_id, "the same pod");
    ensure!(now.authority == before.authority, "{}", now.authority);
    ensure!(cluster.get("configmap/kept")?["data"]["word"] == "cairn");
    ensure!(
        cluster.get("secret/kept")?["data"]["word"] == "Y2Fpcm4=",
        "the key that it is encrypted under is the same"
    );
    shows_roles(&cluster, "control-plane")?;
    let binding = cluster.get(BINDING).err().context("a binding that the owner deleted is back")?;
    ensure!(format!("{binding:#}").contains("NotFound"), "{binding:#}");
    ensure!(cluster.get("clusterrolebinding/cairn:owners").is_ok(), "the owner's own is there");
    Ok(())
}

/// What is compared across a reboot.
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

/// Services in the order in which they were stopped, as the console has shown it.
fn stopped(lines: &[Line]) -> Vec<String> {
    let service = |line: &Line| Some(line.text.split_once("service stopped service=")?.1.to_owned());
    lines.iter().filter_map(service).collect()
}

/// What needs another is stopped before it.
fn dependants_first(stopped: &[String]) -> anyhow::Result<()> {
    let place = |name: &str| stopped.iter().position(|service| service == name);
    for (first, then) in [
        ("kube.kubelet", "pods"),
        ("pods", "containerd"),
        ("kube.kubelet", "containerd"),
        ("kube.scheduler", "kube.apiserver"),
        ("kube.controller-manager", "kube.apiserver"),
        ("kube.apiserver", "etcd"),
    ] {
        ensure!(place(first).is_some() && place(first) < place(then), "{first} before {then}: {stopped:?}");
    }
    Ok(())
}

impl Cluster {
    /// Waits until the machine's node is Ready, and starts the web pod.
    fn with_pod(t: &Context, vm: Vm, owner: Owner, outside: Host) -> anyhow::Result<Self> {
        owner.status_when_running(NAME, &vm, vm.started(), t.within(60))?;
        let cluster = Self { vm, owner, outside };
        cluster.wait_node()?;
        // Pods are refused until the controller-manager has made their namespace's account.
        cluster.kubectl(&["wait", "--for=create", "serviceaccount/default", POD])?;
        cluster.apply(t, &web_pod("web", false))?;
        Ok(cluster)
    }

    fn apply(&self, t: &Context, object: &Value) -> anyhow::Result<()> {
        let file = t.dir().join("object.json");
        std::fs::create_dir_all(t.dir())
            .and_then(|()| std::fs::write(&file, object.to_string()))
            .context("write it")?;
        self.kubectl(&["apply", "--filename", &file.to_string_lossy()])?;
        Ok(())
    }

    /// Name, process and restarts of each service that is a process; there are some.
    fn processes(&self) -> anyhow::Result<Vec<(String, u64, u64)>> {
        let services = self.owner.services(NAME, &self.vm)?.into_iter();
        let processes: Vec<_> = services.filter_map(|it| Some((it.name, it.pid?, it.restarts))).collect();
        ensure!(!processes.is_empty(), "no service is a process");
        Ok(processes)
    }

    /// Waits until PID 1 has done all that it does of itself in Kubernetes.
    fn wait_bootstrap(&self) -> anyhow::Result<()> {
        let done = |service: &Service| service.name == "kube.bootstrap" && service.state == "stopped";
        let deadline = qemu::Deadline::after(std::time::Duration::from_secs(300));
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
            renewed: text(&self.object_in("kube-node-lease", &format!("lease/{name}"))?, "/spec/renewTime")?,
            pod_id: text(&pod, "/metadata/uid")?,
            container_id: text(&container, "/containerID")?,
            container,
            authority: text(&config, "/clusters/0/cluster/certificate-authority-data")?,
            machine,
        })
    }

    fn status(&self) -> anyhow::Result<Status> {
        self.owner.status(NAME, &self.vm)
    }

    fn ask(&self, command: &[&str]) -> anyhow::Result<Value> {
        Ok(self.owner.ask(NAME, &self.vm, command)?)
    }

    fn wait_node(&self) -> anyhow::Result<()> {
        self.run(&["condition", "wait", "NodeReady", "--timeout", "10m"])?;
        Ok(())
    }

    fn wait_pod(&self) -> anyhow::Result<()> {
        self.kubectl(&["wait", "--for=condition=Ready", "pod/web", POD])?;
        Ok(())
    }

    /// The web pod answers the apiserver, at the port where it listens.
    fn says_hello(&self) -> anyhow::Result<()> {
        let said = self.kubectl(&["get", "--raw", "/api/v1/namespaces/default/pods/web:8080/proxy/"])?;
        ensure!(said == "Hello from web\n", "{said}");
        Ok(())
    }

    /// A file as a process in the web pod reads it.
    fn file_of_pod(&self, path: &str) -> anyhow::Result<String> {
        Ok(self.kubectl(&["get", "--raw", &format!("/api/v1/namespaces/default/pods/web:8080/proxy{path}")])?)
    }

    fn get(&self, what: &str) -> anyhow::Result<Value> {
        self.object_in("default", what)
    }

    fn object_in(&self, namespace: &str, what: &str) -> anyhow::Result<Value> {
        let said = self.kubectl(&["get", what, "--namespace", namespace, "--output", "json"])?;
        serde_json::from_str(&said).context("read what kubectl says")
    }

    /// Through the tunnel of the machine's public API.
    fn kubectl(&self, arguments: &[&str]) -> Result<String, Refused> {
        self.run(&[&["kubectl", "--"], arguments].concat())
    }

    fn run(&self, command: &[&str]) -> Result<String, Refused> {
        let address = self.vm.forward(model::PUBLIC_API_PORT).map(|address| address.to_string()).unwrap_or_default();
        self.owner.run(&[&["-c", NAME, "--address", &address], command].concat())
    }
}
