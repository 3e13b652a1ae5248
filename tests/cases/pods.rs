//! Pods of the image's own and of who means harm, on copies of the machine of `kube.rs`: what is refused to them, what they see of
//! the machine, who reaches them, and what they can take.

use std::net::Ipv4Addr;

use crate::{
    Case, CommandRefusal, Context, FleetKind, Prerequisite, Starts, endpoint_by_hand, page_of, web_pod, wild_namespace,
    wild_pod,
};
use anyhow::{Context as _, ensure};
use qemu::network::PortAnswer;
use serde_json::{Value, json};

use super::kube::{Cluster, LOSES_LEASES, NAME, POD};
use super::network;

pub(crate) const CASES: &[Case] = &[
    case("a privileged pod is refused", &["W7"], privileged),
    case("a pod may mount nothing of the machine", &["W7"], volumes),
    case("a pod may join no namespace of the machine", &["W7"], namespaces),
    case("a pod's account may not read secrets", &["W7"], account),
    case("a pod has no file of the machine", &["W7"], files),
    case("a pod's environment holds no credential", &["W7"], environment),
    case("a machine with pods has one port open", &["A7"], one_port),
    case("a pod cannot be reached from outside", &["A7"], scanned),
    case("nothing behind a machine's pods is reached from outside", &["A7"], behind),
    case("a pod calls pods and what is outside, no machine's API", &["A2", "A7", "W7"], calls),
    case("a pod has 64 connections to the Kubernetes API", &["O2", "W1"], api),
    case("a pod asks its machine for the cluster's names", &["A7", "W2"], names),
    case("a pod asks its machine for the outside's names", &["A7", "W2"], outside_names),
    case("a service leads a pod to pods, and to nothing that is closed", &["A7", "W2"], services),
    case("no service takes an address of a machine", &["A7", "W2"], addresses),
    case("a pod has a port of its machine, for members and pods alone", &["A7", "W2"], host_port),
    case("services and pods have the bounds that they should", &["O2"], bounds),
];

/// With nothing beside it, for a fork bomb takes the processors from whoever is there.
pub(crate) const ALONE: &[Case] = &[case("pods that take all they can are held at their bounds", &["O2"], greedy)];

/// Where pods find the Kubernetes API.
const KUBERNETES: &str = "10.96.0.1:443";
/// The service by which the apiserver, and nobody else, has usage told.
const METRICS: &str = "10.96.0.11:443";
/// The namespace of pods that misbehave.
pub(crate) const WILD: &str = "wild";

/// Case on a copy of the machine of `kube.rs`.
pub(crate) const fn case(
    name: &'static str,
    proves: &'static [&'static str],
    run: fn(&Context) -> anyhow::Result<()>,
) -> Case {
    Case {
        name,
        proves,
        needs: &[Prerequisite::Swtpm, Prerequisite::Ovmf],
        starts: Starts::From(FleetKind::Kubernetes),
        run,
    }
}

fn privileged(t: &Context) -> anyhow::Result<()> {
    let cluster = Cluster::copy(t)?;
    cluster.refuses(t, &web_pod("root", true), "privileged")?;
    ensure!(cluster.get("pods")?["items"].as_array().map(Vec::len) == Some(1), "nothing was made");
    Ok(())
}

fn volumes(t: &Context) -> anyhow::Result<()> {
    let cluster = Cluster::copy(t)?;
    let with = |source: &str, what: Value| {
        pod_with(|spec| {
            spec["volumes"] = json!([{ "name": "volume", source: what }]);
            spec["containers"][0]["volumeMounts"] = json!([{ "name": "volume", "mountPath": "/volume" }]);
        })
    };
    for path in ["/run/cairn/pki", "/data/cairn", "/dev/tpm0", "/"] {
        let refused = cluster.refuses(t, &with("hostPath", json!({ "path": path })), "hostPath");
        refused.with_context(|| format!("a pod that mounts {path}"))?;
    }
    cluster.apply(t, &with("emptyDir", json!({}))).context("a harmless volume is taken")
}

fn namespaces(t: &Context) -> anyhow::Result<()> {
    let cluster = Cluster::copy(t)?;
    for namespace in ["hostNetwork", "hostPID", "hostIPC"] {
        cluster.refuses(t, &pod_with(|spec| spec[namespace] = true.into()), namespace)?;
    }
    cluster.apply(t, &pod_with(|_| {})).context("without them it is taken")
}

/// The cluster's owner may read Secrets, and a pod's account may not.
fn account(t: &Context) -> anyhow::Result<()> {
    let cluster = Cluster::copy(t)?;
    let may = |who: &[&str]| cluster.kubectl(&[&["auth", "can-i", "get", "secrets", "--all-namespaces"], who].concat());
    ensure!(may(&[])?.trim() == "yes");
    let account = may(&["--as", "system:serviceaccount:default:default"]);
    let account = account.err().context("a pod's account may read secrets")?;
    ensure!(account.code == 1, "{account}");
    Ok(())
}

/// Places where something is mounted in every container, besides those below /dev, /proc and /sys.
const MOUNTED: [&str; 8] = [
    "/etc/hosts",
    "/etc/hostname",
    "/etc/resolv.conf",
    // Its inside is the container's own, too.
    "/dev/termination-log",
    "/",
    "/dev",
    "/proc",
    "/sys",
];

fn files(t: &Context) -> anyhow::Result<()> {
    let cluster = Cluster::copy(t)?;
    let mounts = cluster.kubectl(&["get", "--raw", &page_of("web", "/proc/self/mountinfo")])?;
    let places: Vec<&str> = mounts.lines().filter_map(|line| line.split(' ').nth(4)).collect();
    ensure!(places.contains(&"/etc/hosts"), "{mounts}");
    let of_system = |place: &str| ["/dev/", "/proc/", "/sys/"].iter().any(|system| place.starts_with(system));
    let foreign: Vec<_> = places.iter().filter(|place| !MOUNTED.contains(place) && !of_system(place)).collect();
    ensure!(foreign.is_empty(), "mounted in the pod: {foreign:?}");
    // What is mounted of the machine's own file systems is what was made for this pod.
    for line in mounts.lines().filter(|line| line.contains("/cairn/") || line.contains("/data/")) {
        ensure!(["/pki", "/keys", "/secrets", "token"].iter().all(|word| !line.contains(word)), "{line}");
    }
    Ok(())
}

fn environment(t: &Context) -> anyhow::Result<()> {
    let cluster = Cluster::copy(t)?;
    let environment = cluster.kubectl(&["get", "--raw", &page_of("web", "/proc/self/environ")])?;
    let names: Vec<&str> = environment.split('\0').filter_map(|entry| entry.split_once('=')).map(|it| it.0).collect();
    ensure!(names.contains(&"HOSTNAME"), "{names:?}");
    let usual = |name: &&str| ["PATH", "HOSTNAME", "HOME"].contains(name) || name.starts_with("KUBERNETES_");
    ensure!(names.iter().all(usual), "{names:?}");
    ensure!(!environment.contains("-----BEGIN"), "a key or certificate in the environment");
    Ok(())
}

/// Where programs of Kubernetes listen, and its services' ports on a node; all others are asked for where it does not run.
fn ports() -> impl Iterator<Item = u16> + Clone {
    (1..=11_000).chain(30_000..=32_767)
}

fn one_port(t: &Context) -> anyhow::Result<()> {
    let cluster = Cluster::copy(t)?;
    cluster.outside.only_public(t, ports())
}

/// A host in a network of the machine's sends to its pods, as their only router would.
fn scanned(t: &Context) -> anyhow::Result<()> {
    let cluster = Cluster::copy(t)?;
    let pod = &cluster.get("pod/web")?["status"]["podIP"];
    let pod = pod.as_str().and_then(|address| address.parse().ok()).with_context(|| format!("the pod is at {pod}"))?;
    // It listens where it is looked for, and answers those who may ask.
    cluster.says_hello()?;
    cluster.outside.silent(t, pod, ports())?;
    cluster.says_hello()
}

/// Addresses of the VPN, of pods and of services, and loopback.
fn behind(t: &Context) -> anyhow::Result<()> {
    let cluster = Cluster::copy(t)?;
    for behind in ["10.244.0.1", "10.118.0.1", "10.96.0.1", "127.0.0.1"] {
        cluster.outside.silent(t, behind.parse().context("an address")?, network::private())?;
    }
    let near = cluster.outside.host.scan_tcp(network::MACHINE, [network::PUBLIC_API, 8080, 10250], t.within(20))?;
    ensure!(
        near.ports(PortAnswer::Open) == [network::PUBLIC_API],
        "the host still reaches the machine itself: {near:?}"
    );
    Ok(())
}

/// Addresses of a machine as its pods know them: in the VPN, where it serves them, and its public one.
fn of_the_machine() -> [String; 3] {
    ["10.118.0.1", "10.244.0.1", &network::MACHINE.to_string()].map(str::to_owned)
}

/// Places where a pod finds nobody: ports of etcd, of usage and of the machine's own apiserver, and where clouds tell a machine's
/// secrets. The balancer of the Kubernetes API is at the pods' gateway.
fn closed() -> Vec<String> {
    let ports = |address: String| [2379, 7834, 7837, 6443].map(|port| format!("{address}:{port}"));
    let closed = of_the_machine().into_iter().flat_map(ports).filter(|place| place != "10.244.0.1:6443");
    closed.chain(["169.254.169.254:80".to_owned()]).collect()
}

/// The VPN's address refuses a pod. At the machine's public one, and at the pods' gateway, PID 1 closes without a word. What asks in
/// a pod comes by the service of the Kubernetes API.
fn calls(t: &Context) -> anyhow::Result<()> {
    let cluster = Cluster::wild(t)?;
    let web = &cluster.get("pod/web")?["status"]["podIP"];
    let open = [format!("{}:8080", web.as_str().context("the pod is somewhere")?), KUBERNETES.to_owned()];
    let apis = of_the_machine().into_iter().flat_map(|address| [7835, 7836].map(|port| format!("{address}:{port}")));
    // Nobody listens there, and only who hears the answer knows that: the host knows the machine's address, and no pod's.
    let outside = format!("{}:80", network::HOST);
    let silent: Vec<_> = apis.chain([outside.clone(), METRICS.to_owned()]).collect();
    let said = cluster.called_by(t, "calls", &[&open[..], &silent, &closed()].concat().join(" "), |_| ())?;
    let is_said = |line: &str| said.lines().any(|said| said.starts_with(line));
    for place in open.iter().chain(&silent) {
        let answers = said.lines().any(|line| line == format!("{place}: answers"));
        ensure!(answers == open.contains(place) && answers != is_said(&format!("{place}: no ")), "{place}: {said}");
    }
    for place in closed() {
        ensure!(is_said(&format!("{place}: no connection: ")), "{place}: {said}");
    }
    let refused = format!("{outside}: no connection: Connection refused");
    ensure!(is_said(&refused), "a pod hears nothing from outside: {said}");
    let told = cluster.log("audit.strangers")?;
    ensure!(told.iter().any(|line| line.contains("a pod's address")), "nobody called the public API: {told:#?}");
    Ok(())
}

/// A pod on a network of its own, then one on the machine's.
fn api(t: &Context) -> anyhow::Result<()> {
    let cluster = Cluster::wild(t)?;
    let said = cluster.called_by(t, "clings", KUBERNETES, |_| ())?;
    ensure!(said == "64 of 100 are left\n", "{said}");
    let said = cluster.called_by(t, "calls", KUBERNETES, |spec| spec["hostNetwork"] = json!(true))?;
    ensure!(said == format!("{KUBERNETES}: answers\n"), "{said}");
    Ok(())
}

/// A name outside, and where it leads.
const ABROAD: &str = "outside.example";
const THERE: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 7);

/// A service that the apiserver makes, one without an address of its own that leads to the pod, one that there is not; and a name
/// outside, where no link names a resolver.
fn names(t: &Context) -> anyhow::Result<()> {
    let cluster = Cluster::wild(t)?;
    let pod = cluster.get("pod/web")?["status"]["podIP"].as_str().context("it has an address")?.to_owned();
    cluster.has_headless_service(t)?;
    cluster.hears(
        t,
        &[
            ("kubernetes.default.svc.cluster.local", "10.96.0.1"),
            ("web.default.svc.cluster.local", &pod),
            ("nobody.default.svc.cluster.local", "NXDOMAIN"),
            (ABROAD, "REFUSED"),
        ],
    )
}

/// The lease that comes with a carrier names a resolver.
fn outside_names(t: &Context) -> anyhow::Result<()> {
    let mut cluster = Cluster::wild(t)?;
    cluster.outside.host.name(ABROAD, THERE);
    for (up, says) in [(false, "the link has no carrier"), (true, "the link has a carrier")] {
        let (init, dns) = (cluster.log_mark("init")?, cluster.log_mark("kube.dns")?);
        cluster.vm.qmp().execute("set_link", &json!({ "name": "nic1", "up": up }), t.within(5))?;
        cluster.logs(t, "init", init, says)?;
        if up {
            cluster.logs(t, "kube.dns", dns, "Reloading complete")?;
        }
    }
    cluster.hears(t, &[("kubernetes.default.svc.cluster.local", "10.96.0.1"), (ABROAD, &THERE.to_string())])
}

/// Address of a service that leads to the web pod, and its port on the node.
const SERVICE: &str = "10.96.0.20:80";
const NODE_PORT: u16 = 30_080;
/// Addresses of services that lead to an API of the machine, by an endpoint that somebody wrote, and to nothing.
const TO_API: &str = "10.96.0.21:80";
const TO_NOTHING: &str = "10.96.0.22:80";

fn service(name: &str, address: &str, more: &Value) -> anyhow::Result<Value> {
    let (address, _) = address.split_once(':').context("an address with a port")?;
    let mut service = json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": { "name": name },
        "spec": { "clusterIP": address, "ports": [{ "port": 80, "targetPort": 8080, "protocol": "TCP" }] },
    });
    for (key, value) in more.as_object().context("parts of a service")? {
        service["spec"][key] = value.clone();
    }
    Ok(service)
}

/// By the address of the service and by the node's port, which nobody outside reaches.
fn services(t: &Context) -> anyhow::Result<()> {
    let cluster = Cluster::wild(t)?;
    cluster.kubectl(&["label", "pod/web", "app=web"])?;
    let ports = json!([{ "port": 80, "targetPort": 8080, "nodePort": NODE_PORT }]);
    let web = json!({ "type": "NodePort", "selector": { "app": "web" }, "ports": ports });
    cluster.apply(t, &service("web", SERVICE, &web)?)?;
    cluster.apply(t, &service("api", TO_API, &json!({}))?)?;
    cluster.apply(t, &service("nothing", TO_NOTHING, &json!({ "selector": { "app": "nobody" } }))?)?;
    cluster.apply(t, &endpoint_by_hand("api", "10.118.0.1", 7835))?;
    let places = [SERVICE.to_owned(), format!("10.118.0.1:{NODE_PORT}")];
    let said = cluster.called_by(t, "reaches", &places.join(" "), |_| ())?;
    ensure!(said == places.map(|place| format!("{place}: answers\n")).concat(), "{said}");
    let said = cluster.called_by(t, "calls", &[TO_API, TO_NOTHING].join(" "), |_| ())?;
    let refused = |place| format!("{place}: no connection: Connection refused (os error 111)\n");
    ensure!(said == [TO_API, TO_NOTHING].map(refused).concat(), "{said}");
    cluster.outside.only_public(t, [network::PUBLIC_API, NODE_PORT].into_iter())?;
    cluster.outside.silent(t, "10.96.0.20".parse().context("an address")?, 79..=81)
}

/// Neither by what its owner wants nor by its status, which somebody in the cluster writes who publishes services.
fn addresses(t: &Context) -> anyhow::Result<()> {
    const MACHINE: &str = "10.118.0.1";
    const OUTSIDE: &str = "198.51.100.20";
    let cluster = Cluster::copy(t)?;
    let external = cluster.apply(t, &service("external", SERVICE, &json!({ "externalIPs": [OUTSIDE] }))?);
    let refusal = format!("{:?}", external.err().context("a service has any address")?);
    ensure!(refusal.contains("externalIPs"), "{refusal}");
    cluster.apply(t, &service("published", SERVICE, &json!({ "type": "LoadBalancer" }))?)?;
    let publish = |address: &str| {
        let status = json!({ "status": { "loadBalancer": { "ingress": [{ "ip": address }] } } }).to_string();
        cluster.kubectl(&["patch", "service/published", "--subresource=status", "--type=merge", "--patch", &status])
    };
    publish(OUTSIDE)?;
    for inside in [MACHINE, "10.244.0.2", "10.96.0.1"] {
        let refusal = format!("{:?}", publish(inside).err().with_context(|| format!("{inside} is published"))?);
        ensure!(refusal.contains("no address to publish a service at"), "{refusal}");
    }
    Ok(())
}

/// Once the pod is gone the port is, too. The machine's own ports, which it asks for as well, stay the machine's: that of kubelet gives the
/// texts of pods.
fn host_port(t: &Context) -> anyhow::Result<()> {
    const PORT: u16 = 8081;
    const KUBELET: u16 = 10_250;
    let cluster = Cluster::wild(t)?;
    let mut pod = web_pod("ported", false);
    pod["metadata"]["namespace"] = WILD.into();
    let ports = [PORT, KUBELET].map(|port| json!({ "containerPort": 8080, "hostPort": port }));
    pod["spec"]["containers"][0]["ports"] = ports.into_iter().collect();
    cluster.apply(t, &pod)?;
    let place = format!("10.118.0.1:{PORT}");
    let said = cluster.called_by(t, "reaches", &place, |_| ())?;
    ensure!(said == format!("{place}: answers\n"), "{said}");
    cluster.outside.only_public(t, [network::PUBLIC_API, PORT].into_iter())?;
    cluster.kubectl(&["delete", "pod/ported", "--namespace", WILD, POD])?;
    let said = cluster.called_by(t, "calls", &place, |_| ())?;
    ensure!(said == format!("{place}: no connection: Connection refused (os error 111)\n"), "{said}");
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
    ["services/kube.controllers", "0", "1073741824", "1024"],
    ["services/kube.proxy", "0", "268435456", "256"],
    ["services/kube.dns", "0", "268435456", "256"],
];
/// Processes and threads that one pod may have; a few of them are runc's and the pod's first container's.
const PIDS_OF_A_POD: u64 = 1024;

fn bounds(t: &Context) -> anyhow::Result<()> {
    let cluster = Cluster::gone_wild(t, &["bounds"])?;
    let ended = cluster.vm.until(t.within(30), || cluster.has_phase("bounds", "Succeeded"));
    let said = cluster.said_by("bounds")?;
    ended.with_context(|| said.clone())?;
    let rows: Vec<Vec<&str>> = said.lines().map(|line| line.split(' ').collect()).collect();
    for bound in BOUNDS {
        ensure!(rows.iter().any(|row| row == bound), "{bound:?} is not among {said}");
    }
    for group in ["pods", "pods/kubepods"] {
        let row = rows.iter().find(|row| row[0] == group).with_context(|| format!("{group}: {said}"))?;
        let pids: u64 = row[3].parse().with_context(|| format!("{group} has no bound: {said}"))?;
        ensure!((PIDS_OF_A_POD..32_768).contains(&pids), "{said}");
    }
    Ok(())
}

/// A fork bomb and a hog at once, beside which PID 1 answers, and no service ends.
fn greedy(t: &Context) -> anyhow::Result<()> {
    let cluster = Cluster::gone_wild(t, &["bomb", "hog"])?;
    let before = cluster.processes()?;
    let bomb = || cluster.first_line_of("bomb");
    let seen = cluster.answers_until(t, || bomb().filter(|_| cluster.has_phase("hog", "Failed").is_some()));
    let hog = cluster.object_in(WILD, "pod/hog")?["status"].clone();
    let bomb = seen.with_context(|| format!("bomb: {:?}, hog: {hog:#}", bomb()))?;
    let children: u64 = bomb.split(' ').next().unwrap_or_default().parse().with_context(|| bomb.clone())?;
    ensure!(bomb.contains("then refused") && children < PIDS_OF_A_POD && children > PIDS_OF_A_POD - 64, "{bomb}");
    let killed = hog["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 137;
    ensure!(killed || hog["reason"] == "Evicted", "{hog:#}");
    // It still forks as fast as it can.
    cluster.status()?;
    cluster.kubectl(&["delete", "namespace", WILD, POD])?;
    cluster.wait_pod()?;
    let after = cluster.processes()?;
    let (before, after) = (without_leases(before), without_leases(after));
    ensure!(before == after, "a service was started again: {before:#?} {after:#?}");
    Ok(())
}

/// Services but [`LOSES_LEASES`]: on a slow host it does beside a bomb.
fn without_leases(mut services: Vec<(String, u64, u64)>) -> Vec<(String, u64, u64)> {
    services.retain(|(name, ..)| name != LOSES_LEASES);
    services
}

/// The web pod under another name, with something more.
fn pod_with(edit: impl FnOnce(&mut Value)) -> Value {
    let mut pod = web_pod("thief", false);
    edit(&mut pod["spec"]);
    pod
}

/// A pod that misbehaves, whose program calls `places`.
pub(crate) fn calling(program: &str, places: &str) -> Value {
    let mut pod = wild_pod(WILD, program);
    pod["spec"]["containers"][0]["env"] = json!([{ "name": "CALLS", "value": places }]);
    pod
}

impl Cluster {
    /// A copy with these pods, which misbehave, in a namespace where nothing is refused.
    fn gone_wild(t: &Context, programs: &[&str]) -> anyhow::Result<Self> {
        let cluster = Self::wild(t)?;
        programs.iter().try_for_each(|program| cluster.apply(t, &wild_pod(WILD, program)))?;
        Ok(cluster)
    }

    /// A copy with such a namespace.
    pub(crate) fn wild(t: &Context) -> anyhow::Result<Self> {
        let cluster = Self::copy(t)?;
        cluster.apply(t, &wild_namespace(WILD))?;
        cluster.kubectl(&["wait", "--for=create", "serviceaccount/default", "--namespace", WILD, POD])?;
        Ok(cluster)
    }

    /// The web pod gets a service without an address of its own, which knows where the pod is.
    fn has_headless_service(&self, t: &Context) -> anyhow::Result<()> {
        let service = json!({
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": { "name": "web" },
            "spec": { "clusterIP": "None", "selector": { "app": "web" }, "ports": [{ "port": 8080 }] },
        });
        self.kubectl(&["label", "pod/web", "app=web"])?;
        self.apply(t, &service)?;
        for comes in ["create", "jsonpath={.endpoints[0].addresses[0]}"] {
            let slice = ["endpointslice", "--selector=kubernetes.io/service-name=web"];
            self.kubectl(&["wait", &format!("--for={comes}"), slice[0], slice[1], POD])?;
        }
        Ok(())
    }

    pub(crate) fn said_by(&self, pod: &str) -> Result<String, CommandRefusal> {
        self.kubectl(&["logs", pod, "--namespace", WILD])
    }

    /// Text of a program that calls `places`, in a pod that is otherwise as `edit` has it, once it has ended.
    pub(crate) fn called_by(
        &self,
        t: &Context,
        program: &str,
        places: &str,
        edit: impl FnOnce(&mut Value),
    ) -> anyhow::Result<String> {
        let mut pod = calling(program, places);
        edit(&mut pod["spec"]);
        self.apply(t, &pod)?;
        let ended = self.vm.until(t.within(90), || self.has_phase(program, "Succeeded"));
        let said = self.said_by(program)?;
        ended.with_context(|| said.clone())?;
        Ok(said)
    }

    /// A pod asks for these names, and is answered so by UDP and by TCP.
    pub(crate) fn hears(&self, t: &Context, expected: &[(&str, &str)]) -> anyhow::Result<()> {
        let names: Vec<&str> = expected.iter().map(|(name, _)| *name).collect();
        let lines = expected.iter().map(|(name, said)| format!("{name}: {said} by UDP, {said} by TCP\n"));
        let (said, lines) = (self.called_by(t, "asks", &names.join(" "), |_| ())?, lines.collect::<String>());
        ensure!(said == lines, "{said} instead of {lines}");
        Ok(())
    }

    fn first_line_of(&self, pod: &str) -> Option<String> {
        self.said_by(pod).ok()?.lines().next().map(str::to_owned)
    }

    pub(crate) fn has_phase(&self, pod: &str, phase: &str) -> Option<()> {
        let pod = self.object_in(WILD, &format!("pod/{pod}")).ok()?;
        (pod["status"]["phase"] == phase).then_some(())
    }

    /// PID 1 answers its owner until something is seen; each answer is a connection of its own.
    fn answers_until<T>(&self, t: &Context, mut seen: impl FnMut() -> Option<T>) -> anyhow::Result<T> {
        let mut answers = 0_u32;
        let seen = self.vm.until(t.within(60), || {
            self.status().ok().filter(|status| status.state == "Running")?;
            answers += 1;
            seen()
        });
        let seen = seen.with_context(|| format!("{answers} answers"))?;
        ensure!(answers > 1, "{answers} answers");
        t.measured(&format!("{answers} answers beside pods that misbehave"));
        Ok(seen)
    }

    /// The apiserver takes no such pod: this word of it is why.
    fn refuses(&self, t: &Context, pod: &Value, word: &str) -> anyhow::Result<()> {
        let refused = self.apply(t, pod).err().with_context(|| format!("taken: {pod:#}"))?;
        let told = refused
            .downcast_ref::<CommandRefusal>()
            .and_then(|refused| refused.text.split_once("violates PodSecurity"));
        ensure!(told.is_some_and(|(_, why)| why.contains(word)), "{refused:#}");
        Ok(())
    }

    /// Name, process and restarts of each service that is a process; there are some.
    fn processes(&self) -> anyhow::Result<Vec<(String, u64, u64)>> {
        let services = self.owner.services(NAME, &self.vm)?.into_iter();
        let processes: Vec<_> = services.filter_map(|it| Some((it.name, it.pid?, it.restarts))).collect();
        ensure!(!processes.is_empty(), "no service is a process");
        Ok(processes)
    }
}
