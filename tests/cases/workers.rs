//! Kubernetes on several machines: one command makes two workers, of which the first serves the Kubernetes API, and saves them; what is
//! asked of them is asked of copies.

use std::fs;

use crate::{
    Case, Context, FleetKind, PacketKind, Prerequisite, ServiceStatus, Starts, endpoint_by_hand, kinds, object_file,
    others, page_of, web_pod,
};
use anyhow::{Context as _, ensure};
use serde_json::{Value, json};
use testkit::openmetrics;

use super::kube::{self, POD, UNCHECKED};
use super::policies;
use super::saved::DAYS;
use crate::owned::{Cluster, NAME, patience, text};
use crate::specs::SpecProgram;

/// The machines are made with nothing beside them, as that of `kube.rs` is.
pub(crate) const CASES: &[Case] = &[Case {
    starts: Starts::Making(WORKERS),
    ..case("one command makes two workers that run pods", &["W1", "W3"], made)
}];

/// Cases on copies of the two.
pub(crate) const COPIES: &[Case] = &[
    case("the kubernetes api reaches a pod of another machine", &["A2", "W1"], reached),
    case("what pods say leaves a machine within WireGuard alone", &["A2", "A7"], within_wireguard),
    case("a policy holds for what comes from another machine", &["A7", "W2"], policy),
    case("a port of each machine leads to a pod of one", &["A2", "W2"], node_port),
    case("a service is published at each machine, wherever its pod is", &["A2", "W8"], published),
    case("a floating address leaves a machine that is cut off", &["A2", "W8"], floats),
    case("a holder of a floating address that wakes lets go of it", &["W8"], woken),
    case("usage and numbers of each machine are told", &["Q3"], told),
    case("what the readme shows works: a site and a policy", &["S10", "W2", "W8"], shown),
    case("what the readme shows works: pods with volumes of their own", &["S10", "W2"], shop),
    case("a worker takes its role off and on, and its pods with it", &["W1", "W3"], off_and_on),
    case("a drained worker's pods run elsewhere, as budgets let them", &["W1"], drained),
    case("a worker with claimed volumes leaves by its owner's word", &["W2", "Q6"], given_up),
    Case {
        needs: &[Prerequisite::Swtpm, Prerequisite::Upstream],
        ..case("twenty specs of upstream's conformance pass", &["W4"], specs)
    },
    Case {
        needs: &[Prerequisite::Swtpm, Prerequisite::Faketime],
        ..case("workers saved for two days get new certificates", &["Q9", "W3", "S13"], days_later)
    },
];

const WORKERS: FleetKind = FleetKind::Workers;
/// A web pod on each machine.
const PODS: [&str; 2] = ["web-m1", "web-m2"];
/// Specs of upstream's that need no image of theirs, of each of its groups. All of them: `cargo xtask conformance`.
const SPECS: [&str; 20] = [
    "[sig-api-machinery] Discovery should locate the groupVersion and a resource within each APIGroup [Conformance]",
    "[sig-api-machinery] Namespaces [Serial] should patch a Namespace [Conformance]",
    "[sig-api-machinery] ResourceQuota should manage the lifecycle of a ResourceQuota [Conformance]",
    "[sig-api-machinery] Watchers should be able to start watching from a specific resource version [Conformance]",
    "[sig-architecture] Conformance Tests should have at least two untainted nodes [Conformance]",
    "[sig-auth] Certificates API [Privileged:ClusterAdmin] should support CSR API operations [Conformance]",
    "[sig-auth] ServiceAccounts should run through the lifecycle of a ServiceAccount [Conformance]",
    "[sig-auth] SubjectReview should support SubjectReview API operations [Conformance]",
    "[sig-cli] Kubectl client Kubectl version should check is all data is printed [Conformance]",
    "[sig-instrumentation] Events should manage the lifecycle of an event [Conformance]",
    "[sig-network] API Server should have Endpoints and EndpointSlices pointing to API Server [Conformance]",
    "[sig-network] API Server should provide secure master service [Conformance]",
    "[sig-network] Endpoints should test the lifecycle of an Endpoint [Conformance]",
    "[sig-network] ServiceCIDR and IPAddress API should support IPAddress API operations [Conformance]",
    "[sig-network] Services should complete a service status lifecycle [Conformance]",
    "[sig-network] Services should find a service from listing all namespaces [Conformance]",
    "[sig-node] ConfigMap should run through a ConfigMap lifecycle [Conformance]",
    "[sig-node] Node Lifecycle should run through the lifecycle of a node [Conformance]",
    "[sig-storage] CSINodes CSI Conformance should run through the lifecycle of a csinode [Conformance]",
    "[sig-storage] ConfigMap should be immutable if `immutable` field is set [Conformance]",
];
/// Files that the README names.
const EXAMPLES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/examples");

const fn case(name: &'static str, proves: &'static [&'static str], run: fn(&Context) -> anyhow::Result<()>) -> Case {
    Case { name, proves, needs: &[Prerequisite::Swtpm], starts: Starts::From(WORKERS), run }
}

fn specs(t: &Context) -> anyhow::Result<()> {
    let cluster = Cluster::copy_of(t, WORKERS)?;
    let kubeconfig = t.dir().join("kubeconfig");
    let tunnel = cluster.owner.follow(&["kubeconfig", "--out", text(&kubeconfig)?])?;
    tunnel.line(t.within(20))?;
    let run = SpecProgram::of_environment(&kubeconfig)?.command(&SPECS, 15).output().context("run upstream's tests")?;
    let said = [run.stdout, run.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
    fs::write(t.dir().join("specs.log"), &said)?;
    let verdict = said.lines().find(|line| line.starts_with("SUCCESS!") || line.starts_with("FAIL!"));
    let verdict = verdict.context("they did not come to their end")?;
    ensure!(verdict.starts_with(&format!("SUCCESS! -- {} Passed | 0 Failed", SPECS.len())), "{verdict}");
    Ok(())
}

fn made(t: &Context) -> anyhow::Result<()> {
    let cluster = Cluster::of(t)?;
    let size = ["--machines", "2", "--memory", "2560M", "--level", "encrypted", "--wait"];
    let line = ["cluster", "create", NAME, "--timeout", &patience(t, 240)];
    cluster.run(&[&line[..], &size].concat())?;
    for machine in ["m1", "m2"] {
        let mut pod = web_pod(&format!("web-{machine}"), false);
        pod["spec"]["nodeName"] = machine.into();
        cluster.apply(t, &pod)?;
    }
    cluster.kubectl(&["wait", "--for=condition=Ready", "pod/web-m1", "pod/web-m2", POD])?;
    shows(t, &cluster, "m1", "control-plane,worker")?;
    shows(t, &cluster, "m2", "worker")?;
    cluster.save(t, WORKERS)
}

fn reached(t: &Context) -> anyhow::Result<()> {
    let cluster = Cluster::copy_of(t, WORKERS)?;
    PODS.iter().try_for_each(|pod| cluster.is_greeted_by(pod))
}

/// By a capture of the first machine's cable from before the apiserver there asks the pod of the second.
fn within_wireguard(t: &Context) -> anyhow::Result<()> {
    let cluster = Cluster::copy_of(t, WORKERS)?;
    cluster.run(&["cluster", "link", "m1", "--capture"])?;
    cluster.is_greeted_by(PODS[1])?;
    let capture = fs::read(cluster.files_of("m1").join("network.pcapng"))?;
    let carried = kinds(&capture)?;
    let hidden = carried.get(&PacketKind::WireGuard).is_some_and(|packets| *packets > 10);
    ensure!(hidden && others(&carried).is_empty(), "{carried:?}");
    let greeting = b"Hello from";
    ensure!(!capture.windows(greeting.len()).any(|bytes| bytes == greeting), "the pod's answer is to be read");
    Ok(())
}

/// A pod's own machine may always ask it. The apiserver of the first machine asks the pod of the second as anybody.
fn policy(t: &Context) -> anyhow::Result<()> {
    let cluster = Cluster::copy_of(t, WORKERS)?;
    let closed = policies::policy("default", "closed", &json!({ "policyTypes": ["Ingress"] }));
    let greet = |cluster: &Cluster| {
        let greet = PODS.into_iter().filter(|pod| cluster.is_greeted_by(pod).is_ok());
        Ok(greet.map(str::to_owned).collect())
    };
    cluster.comes_to(&PODS, t.within(20), greet)?;
    cluster.apply(t, &closed)?;
    cluster.comes_to(&PODS[..1], t.within(60), greet)?;
    cluster.kubectl(&["delete", "networkpolicy/closed"])?;
    cluster.comes_to(&PODS, t.within(20), greet)
}

/// The apiserver of the first machine calls each, by the VPN; the second one passes it on to the first.
fn node_port(t: &Context) -> anyhow::Result<()> {
    let cluster = Cluster::copy_of(t, WORKERS)?;
    cluster.has_node_port()?;
    for node in ["m1", "m2"] {
        let path = format!("/api/v1/nodes/http:{node}:30080/proxy/");
        cluster.comes_to(&["Hello from web-m1"], t.within(20), |cluster| {
            Ok(cluster.kubectl(&["get", "--raw", &path])?.lines().map(str::to_owned).collect())
        })?;
    }
    Ok(())
}

/// A machine without the pod leads to the one that has it, and by the VPN.
fn published(t: &Context) -> anyhow::Result<()> {
    let cluster = Cluster::copy_of(t, WORKERS)?;
    cluster.kubectl(&["label", "pod/web-m1", "app=web"])?;
    cluster.kubectl(&["create", "service", "loadbalancer", "web", "--tcp=80:8080"])?;
    cluster.run(&["publish", "add", "80/tcp", "--namespace", "default"])?;
    for machine in ["m1", "m2"] {
        let heard = |cluster: &Cluster| Ok(vec![cluster.said_at(t, machine, 80)?]);
        cluster.comes_to(&["Hello from web-m1"], t.within(30), heard)?;
    }
    let places = "--output=jsonpath={.status.loadBalancer.ingress[*].ip}";
    ensure!(cluster.kubectl(&["get", "service/web", places])?.split(' ').count() == 2, "of both machines");
    Ok(())
}

/// A machine that is cut off lets go by its own clock; the link comes back only when the other one holds the address.
fn floats(t: &Context) -> anyhow::Result<()> {
    let cluster = Cluster::copy_of(t, WORKERS)?;
    let floating = Floating::on_second(t, &cluster)?;
    cluster.run(&["cluster", "link", "m2", "--down"])?;
    floating.is_held_by("m1")?;
    floating.is_logged("m1", "holds a floating address")?;
    cluster.run(&["cluster", "link", "m2", "--up"])?;
    floating.is_logged("m2", "lets go of a floating address")
}

/// A machine that stood still took no time for it by its own clock, and has the address when it wakes: the board's clock tells it.
fn woken(t: &Context) -> anyhow::Result<()> {
    let cluster = Cluster::copy_of(t, WORKERS)?;
    let floating = Floating::on_second(t, &cluster)?;
    cluster.stands_still(t, "m2")?;
    floating.is_held_by("m1")?;
    cluster.goes_on("m2")?;
    floating.is_logged("m2", "lets go of a floating address")?;
    floating.is_held_by("m1")
}

/// Floating address that the second machine holds.
struct Floating<'a> {
    t: &'a Context,
    cluster: &'a Cluster,
    address: String,
}

impl<'a> Floating<'a> {
    /// The first machine holds another address, so the second gets this one.
    fn on_second(t: &'a Context, cluster: &'a Cluster) -> anyhow::Result<Self> {
        let own = &cluster.ask(&["-m", "m1", "machine", "status"])?["public_addresses"][0];
        let (network, _) = own.as_str().and_then(|own| own.rsplit_once('.')).context("it has an address")?;
        let [first, address] = [200, 201].map(|last| format!("{network}.{last}"));
        let publish = |port: &str, address: &str, on: &[&str]| {
            cluster.run(&[&["publish", "add", port, "--namespace", "default", "--at", address], on].concat())
        };
        publish("80/tcp", &first, &["--on", "m1"])?;
        publish("81/tcp", &address, &[])?;
        let floating = Self { t, cluster, address };
        floating.is_held_by("m2")?;
        Ok(floating)
    }

    /// Waits until this machine holds it; a machine's own port answers at it, too.
    fn is_held_by(&self, holder: &str) -> anyhow::Result<()> {
        let Self { t, cluster, address } = self;
        let wanted = format!("{address} on {holder}");
        cluster.comes_to(&["held", "answers"], t.within(60), |cluster| {
            let held = cluster.run(&["publish", "list"])?.contains(&wanted).then_some("held");
            let answers = cluster.by_proxy(t, address, 7836).is_ok().then_some("answers");
            Ok(held.into_iter().chain(answers).map(str::to_owned).collect())
        })
    }

    /// Waits until a machine's log has these words about it.
    fn is_logged(&self, machine: &str, words: &str) -> anyhow::Result<()> {
        self.cluster.comes_to(&["said"], self.t.within(30), |cluster| {
            let log = cluster.run(&["-m", machine, "machine", "logs", "init"])?;
            let is_said = log.lines().any(|line| line.contains(words) && line.contains(&self.address));
            Ok(is_said.then(|| "said".to_owned()).into_iter().collect())
        })
    }
}

fn told(t: &Context) -> anyhow::Result<()> {
    let cluster = Cluster::copy_of(t, WORKERS)?;
    for (what, names) in [("nodes", ["m1", "m2"]), ("pods", ["web-m1", "web-m2"])] {
        cluster.comes_to(&names, t.within(60), |cluster| {
            let said = cluster.kubectl(&["top", what, "--no-headers"])?;
            Ok(said.lines().filter_map(|line| line.split(' ').next()).map(str::to_owned).collect())
        })?;
    }
    for machine in ["m1", "m2"] {
        let page =
            cluster.kubectl(&["get", "--raw", &format!("/apis/metrics.cairn.internal/v1/machines/{machine}")])?;
        let page = openmetrics::read(&page).map_err(|rule| anyhow::anyhow!("{rule}"))?;
        ensure!(page.values("cairn_machine_info", &[("name", machine)]).eq([1.0]), "{page:?}");
    }
    Ok(())
}

/// Path of a pod of the example's.
const SHOP: &str = "/api/v1/namespaces/shop/pods/shop-0:8080/proxy/";

/// By the files and commands that the README shows of three machines.
fn shown(t: &Context) -> anyhow::Result<()> {
    let cluster = Cluster::copy_of(t, WORKERS)?;
    cluster.example("apply", "site")?;
    cluster.run(&["publish", "add", "80/tcp", "--namespace", "site"])?;
    cluster.says_at_both(t, "Hello from web")?;
    cluster.example("apply", "policy")?;
    cluster.says_at_both(t, "nothing")?;
    cluster.example("delete", "policy")?;
    cluster.says_at_both(t, "Hello from web")
}

/// A pod that is made anew has its volume again.
fn shop(t: &Context) -> anyhow::Result<()> {
    let cluster = Cluster::copy_of(t, WORKERS)?;
    cluster.example("apply", "shop")?;
    cluster.kubectl(&["rollout", "status", "statefulset/shop", "--namespace=shop", "--timeout=600s"])?;
    let volumes = cluster.run(&["volume", "list"])?;
    for part in ["m1", "m2", "shop/data-shop-0", "shop/data-shop-1", "shop/data-shop-2"] {
        ensure!(volumes.contains(part), "{part}: {volumes}");
    }
    let visit = |cluster: &Cluster| Ok(vec![cluster.kubectl(&["get", "--raw", SHOP])?]);
    ensure!(visit(&cluster)? == ["Hello from shop-0, visit 1\n"], "on a new volume");
    cluster.kubectl(&["delete", "pod/shop-0", "--namespace=shop"])?;
    cluster.comes_to(&["Hello from shop-0, visit 2\n"], t.within(60), visit)
}

/// The certificates are others then: those of before were erased. What led to pods is gone. A machine that is removed ends its pods first.
fn off_and_on(t: &Context) -> anyhow::Result<()> {
    let cluster = Cluster::copy_of(t, WORKERS)?;
    cluster.has_node_port()?;
    cluster.leads_to_port_of_second(t)?;
    let led = || cluster.kubectl(&["get", "--raw", "/api/v1/nodes/http:m1:30081/proxy/"]);
    cluster.comes_to(&["Hello from web-m1"], t.within(20), |_| Ok(led()?.lines().map(str::to_owned).collect()))?;
    let change = |verb: &str, more: &[&str]| {
        let line = ["machine", "role", verb, "m2", "worker", "--wait", "--timeout", &patience(t, 120)];
        cluster.run(&[&line[..], more].concat())
    };
    let kept = format!("{:?}", change("remove", &[]));
    ensure!(kept.contains("nobody makes these pods again: default/web-m2; nothing was done"), "{kept}");
    change("remove", &["--no-drain"])?;
    let services = cluster.run(&["-m", "m2", "machine", "services"])?;
    ensure!(!services.contains("kube.") && !services.contains("containerd"), "{services}");
    let led = format!("{:?}", led());
    ensure!(led.contains("connection refused"), "{led}");
    cluster.kubectl(&["wait", "--for=delete", "node/m2", "--timeout=60s"])?;
    change("add", &[])?;
    shows(t, &cluster, "m2", "worker")?;
    cluster.run(&["machine", "remove", "m2", "--no-drain"])?;
    cluster.kubectl(&["wait", "--for=delete", "node/m2", "--timeout=60s"])?;
    let services = cluster.run(&["-m", "m2", "machine", "services"])?;
    ensure!(!services.contains("kube."), "{services}");
    Ok(())
}

/// A pod that nobody makes again, or that a budget keeps, is named and lives on. The other pod begins on the second machine, where it would
/// rather be.
fn drained(t: &Context) -> anyhow::Result<()> {
    let cluster = Cluster::copy_of(t, WORKERS)?;
    let drain = |more: &[&str]| cluster.run(&[&["machine", "drain", "m2"], more].concat());
    let shown = |what: &str| cluster.kubectl(&["get", what, "--no-headers", "--output=wide"]);
    let alone = format!("{:?}", drain(&[]));
    ensure!(alone.contains("default/web-m2") && !shown("node/m2")?.contains("SchedulingDisabled"), "{alone}");
    cluster.kubectl(&["delete", "pod/web-m2"])?;
    cluster.apply(t, &deployment())?;
    cluster.kubectl(&["wait", "--for=condition=Available", "deployment/moves", POD])?;
    ensure!(shown("pods")?.lines().any(|pod| pod.starts_with("moves") && pod.contains("m2")), "{}", shown("pods")?);
    cluster.kubectl(&["create", "poddisruptionbudget", "stays", "--selector=app=moves", "--min-available=1"])?;
    let kept = format!("{:?}", drain(&["--timeout", "10s"]));
    ensure!(kept.contains("disruption budget stays needs 1 healthy pods"), "{kept}");
    ensure!(shown("node/m2")?.contains("SchedulingDisabled") && shown("pods")?.contains("m2"), "{}", shown("pods")?);
    cluster.kubectl(&["delete", "poddisruptionbudget/stays"])?;
    drain(&["--timeout", &patience(t, 60)])?;
    cluster.kubectl(&["wait", "--for=condition=Available", "deployment/moves", POD])?;
    ensure!(!shown("pods")?.contains("m2"), "{}", shown("pods")?);
    drain(&["--undo"])?;
    ensure!(!shown("node/m2")?.contains("SchedulingDisabled"), "{}", shown("node/m2")?);
    Ok(())
}

/// Removal of a machine: nothing is done before the data is given up; then the claim stays, and says what became of it.
fn given_up(t: &Context) -> anyhow::Result<()> {
    let cluster = Cluster::copy_of(t, WORKERS)?;
    cluster.apply(t, &claim())?;
    cluster.apply(t, &keeping())?;
    cluster.kubectl(&["wait", "--for=condition=Ready", "pod/keeps", POD])?;
    let volume = cluster.kubectl(&["get", "pv", "--output=name"])?;
    let remove = |more: &[&str]| cluster.run(&[&["machine", "remove", "m2", "--no-drain"], more].concat());
    let kept = format!("{:?}", remove(&[]));
    ensure!(kept.contains("claim default/data (8Mi); nothing was changed"), "{kept}");
    shows(t, &cluster, "m2", "worker")?;
    remove(&["--delete-volumes"])?;
    cluster.kubectl(&["wait", "--for=delete", volume.trim(), "--timeout=60s"])?;
    cluster.kubectl(&["wait", "--for=jsonpath={.status.phase}=Lost", "pvc/data", POD])?;
    let of_claim = "--field-selector=reason=VolumeLost,involvedObject.name=data";
    let told = cluster.kubectl(&["get", "events", of_claim, "--no-headers", "--output=custom-columns=:message"])?;
    ensure!(told.lines().count() == 1 && told.contains("was on machine `m2`"), "{told}");
    Ok(())
}

/// Claim of the default class.
fn claim() -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": { "name": "data" },
        "spec": { "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "8Mi" } } },
    })
}

/// Pod on the second machine that has the claim's volume.
fn keeping() -> Value {
    let mut pod = web_pod("keeps", false);
    pod["spec"]["nodeSelector"] = json!({ "kubernetes.io/hostname": "m2" });
    pod["spec"]["volumes"] = json!([{ "name": "volume", "persistentVolumeClaim": { "claimName": "data" } }]);
    pod["spec"]["containers"][0]["volumeMounts"] = json!([{ "name": "volume", "mountPath": "/volume" }]);
    pod
}

/// A pod that is made again elsewhere. Where it begins is said in its spec: what the scheduler has heard of a node's marks may be older than
/// the pod.
fn deployment() -> Value {
    let labels = json!({ "app": "moves" });
    let mut spec = web_pod("moves", false)["spec"].take();
    let on_m2 =
        json!({ "matchExpressions": [{ "key": "kubernetes.io/hostname", "operator": "In", "values": ["m2"] }] });
    spec["affinity"] = json!({
        "nodeAffinity": { "preferredDuringSchedulingIgnoredDuringExecution": [{ "weight": 100, "preference": on_m2 }] },
    });
    json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": { "name": "moves" },
        "spec": {
            "selector": { "matchLabels": labels },
            "template": { "metadata": { "labels": labels }, "spec": spec },
        },
    })
}

/// Every certificate of a service has ended meanwhile. A kubelet shows its own to the apiserver for the lease of its node, and both show
/// theirs for a log.
fn days_later(t: &Context) -> anyhow::Result<()> {
    let cluster = Cluster::copy_later(t, WORKERS, DAYS)?;
    let before = cluster.programs(&["m1", "m2"])?;
    let asked = cluster.renewed("m2")?;
    for node in ["m1", "m2"] {
        cluster.comes_to(&[node, "Ready"], t.within(20), |cluster| {
            let is_new = cluster.renewed(node)? > asked;
            cluster.kubectl(&["logs", &format!("web-{node}"), "--tail=1"])?;
            let shown = cluster.kubectl(&["get", "node", node, "--no-headers"])?;
            Ok(shown.split_whitespace().take(if is_new { 2 } else { 0 }).map(str::to_owned).collect())
        })?;
    }
    let now = cluster.programs(&["m1", "m2"])?;
    ensure!(now == before, "some were started anew: {before:#?}, {now:#?}");
    Ok(())
}

/// Waits until the node is Ready and shows these roles.
fn shows(t: &Context, cluster: &Cluster, node: &str, roles: &str) -> anyhow::Result<()> {
    cluster.comes_to(&["Ready", roles], t.within(20), |cluster| {
        let shown = cluster.kubectl(&["get", "node", node, "--no-headers"])?;
        Ok(shown.split_whitespace().skip(1).take(2).map(str::to_owned).collect())
    })
}

impl Cluster {
    /// Has the apiserver ask a web pod, wherever that is; one that is silent it gives up after 30 s.
    fn is_greeted_by(&self, pod: &str) -> anyhow::Result<()> {
        let said = self.kubectl(&["get", "--raw", &page_of(pod, "/")])?;
        ensure!(said == format!("Hello from {pod}\n"), "{said}");
        Ok(())
    }

    /// Applies or deletes what a file of the README's says.
    fn example(&self, verb: &str, name: &str) -> anyhow::Result<()> {
        let unchecked = (verb == "apply").then_some(UNCHECKED);
        let line = [verb, "--filename", &format!("{EXAMPLES}/{name}.yaml")];
        self.kubectl(&line.into_iter().chain(unchecked).collect::<Vec<_>>())?;
        Ok(())
    }

    /// Waits until port 80 of both machines says this; the random end of a pod's name is left off.
    fn says_at_both(&self, t: &Context, words: &str) -> anyhow::Result<()> {
        let hears = |said: String| said.split('-').next().unwrap_or_default().to_owned();
        let heard = |machine| self.said_at(t, machine, 80).map_or("nothing".to_owned(), hears);
        self.comes_to(&[words; 2], t.within(60), |_| Ok(["m1", "m2"].map(heard).into()))
    }

    /// Each machine leads a port to the pod on the first.
    fn has_node_port(&self) -> anyhow::Result<()> {
        self.kubectl(&["label", "pod/web-m1", "app=web"])?;
        self.kubectl(&["create", "service", "nodeport", "web", "--tcp=80:8080", "--node-port=30080"])?;
        Ok(())
    }

    /// A port of the first leads to that of the second, whether that is a node or not.
    fn leads_to_port_of_second(&self, t: &Context) -> anyhow::Result<()> {
        let service = json!({
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": { "name": "second" },
            "spec": { "type": "NodePort", "ports": [{ "port": 80, "nodePort": 30081 }] },
        });
        self.apply(t, &service)?;
        self.apply(t, &endpoint_by_hand("second", "10.118.0.2", 30080))
    }

    pub(crate) fn apply(&self, t: &Context, object: &Value) -> anyhow::Result<()> {
        self.kubectl(&["apply", UNCHECKED, "--filename", &object_file(t, object)?])?;
        Ok(())
    }

    /// Each program that these machines run, as [`kube::programs`] has it.
    fn programs(&self, machines: &[&str]) -> anyhow::Result<Vec<String>> {
        let mut programs = Vec::new();
        for machine in machines {
            let services = ServiceStatus::read_all(&self.ask(&["-m", machine, "machine", "services"])?)?;
            programs.extend(kube::programs(services).map(|(name, process)| format!("{machine} {name} {process}")));
        }
        Ok(programs)
    }

    /// When a kubelet has renewed the lease of its node, in RFC 3339.
    fn renewed(&self, node: &str) -> anyhow::Result<String> {
        let path = "--output=jsonpath={.spec.renewTime}";
        self.kubectl(&["get", "lease", node, "--namespace", "kube-node-lease", path])
    }
}
