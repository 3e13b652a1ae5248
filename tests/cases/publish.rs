//! Ports that owners publish, on a copy of the machine of `kube.rs`: what answers on the LAN, to whom, and for how long.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddrV4, TcpStream};
use std::time::Duration;

use crate::{Case, Context, web_pod};
use anyhow::{Context as _, ensure};
use qemu::deadline::Stopwatch;
use qemu::network::PortAnswer;
use serde_json::json;

use super::kube::{Cluster, POD};
use super::network::{self, MACHINE, NEIGHBOUR, PUBLIC_API};
use super::pods::{WILD, case};

pub(crate) const CASES: &[Case] = &[
    case("a pod's host port answers the LAN while it is published", &["A7", "W8"], published),
    case("a published port answers its sources alone", &["A7", "W8"], sources),
    case("an open connection ends with the rule that let it in", &["A7", "W8"], closed),
    case("a service answers the LAN at a port of its namespace", &["A7", "W8"], service),
    case("a port for services is none of the machine's own", &["A7", "W8"], for_services),
    case("of a cluster's ports the LAN has what is published", &["A7", "W8"], all_openings),
];

/// Port of the machine that leads to the pod.
const PORT: u16 = 8081;
/// Ports that are asked: the published one, and others that programs of the machine listen on.
const ASKED: [u16; 5] = [PUBLIC_API, 8080, PORT, 8082, 10_250];

/// A copy with a pod that has ports of the machine.
fn ported(t: &Context) -> anyhow::Result<Cluster> {
    let cluster = Cluster::wild(t)?;
    let mut pod = web_pod("ported", false);
    pod["metadata"]["namespace"] = WILD.into();
    pod["spec"]["containers"][0]["ports"] = json!([{ "containerPort": 8080, "hostPort": PORT }]);
    cluster.apply(t, &pod)?;
    cluster.kubectl(&["wait", "--for=condition=Ready", "pod/ported", "--namespace", WILD, POD])?;
    Ok(cluster)
}

impl Cluster {
    /// A pod in the machine's network listens at 8080 there.
    fn listens(&self, t: &Context) -> anyhow::Result<()> {
        let mut pod = web_pod("listens", false);
        (pod["metadata"]["namespace"], pod["spec"]["hostNetwork"]) = (WILD.into(), true.into());
        self.apply(t, &pod)?;
        self.kubectl(&["wait", "--for=condition=Ready", "pod/listens", "--namespace", WILD, POD])?;
        Ok(())
    }

    /// Service of the web pod, of type LoadBalancer, at that port.
    fn balanced(&self) -> anyhow::Result<()> {
        self.kubectl(&["label", "pod/web", "app=web"])?;
        self.kubectl(&["create", "service", "loadbalancer", "web", &format!("--tcp={PORT}:8080")])?;
        Ok(())
    }

    fn publishes(&self, from: &[&str]) -> anyhow::Result<()> {
        let (ports, machine) = (format!("{PORT}/tcp"), self.status()?.name);
        self.run(&[&["publish", "add", "--host", &ports, "--on", &machine][..], from].concat())?;
        Ok(())
    }

    /// Number of the one rule.
    fn rule(&self) -> anyhow::Result<String> {
        let listed = self.run(&["publish", "list"])?;
        let rule = listed.lines().nth(1).and_then(|line| line.split_whitespace().next());
        Ok(rule.with_context(|| listed.clone())?.to_owned())
    }

    /// Whether the machine says that it has closed the port last.
    fn is_closed(&self) -> Option<()> {
        let log = self.log("init").ok()?;
        let last = log.iter().rfind(|line| line.contains("published ports are others"))?;
        (!last.contains(&PORT.to_string())).then_some(())
    }

    /// Looks until these are all ports that answer the host on the machine's network, among those that are asked.
    fn answers_at(&self, t: &Context, expected: &[u16]) -> anyhow::Result<()> {
        let mut last = Vec::new();
        let looks = || {
            let scanned = self.outside.host.scan_tcp(MACHINE, ASKED, t.within(20)).ok()?;
            last = scanned.ports(PortAnswer::Open);
            (last == expected && scanned.answered() == last).then_some(())
        };
        let seen = self.vm.until(t.within(20), looks);
        seen.with_context(|| format!("{last:?} answer instead of {expected:?}"))
    }
}

fn published(t: &Context) -> anyhow::Result<()> {
    let cluster = ported(t)?;
    cluster.answers_at(t, &[PUBLIC_API])?;
    cluster.publishes(&[])?;
    cluster.answers_at(t, &[PUBLIC_API, PORT])?;
    cluster.run(&["publish", "remove", &cluster.rule()?])?;
    cluster.answers_at(t, &[PUBLIC_API])
}

/// The host that scans is another one than the neighbour, to which alone the port is open.
fn sources(t: &Context) -> anyhow::Result<()> {
    let cluster = ported(t)?;
    let (_gateway, address) = cluster.outside.neighbour(PORT)?;
    cluster.publishes(&["--from", &format!("{NEIGHBOUR}/32")])?;
    cluster.vm.until(t.within(20), || Asked::of(address).ok()?.answer().ok())?;
    cluster.answers_at(t, &[PUBLIC_API])?;
    cluster.run(&["publish", "remove", &cluster.rule()?])?;
    cluster.publishes(&[])?;
    cluster.answers_at(t, &[PUBLIC_API, PORT])
}

/// The server takes one question at a time, and waits for its end: a try in which the port was closed later than that says nothing.
fn closed(t: &Context) -> anyhow::Result<()> {
    const SERVER_WAITS: Duration = Duration::from_secs(5);
    let cluster = ported(t)?;
    let (_gateway, address) = cluster.outside.neighbour(PORT)?;
    let deadline = t.within(60);
    loop {
        cluster.publishes(&[])?;
        let rule = cluster.rule()?;
        cluster.vm.until(t.within(20), || Asked::of(address).ok()?.answer().ok())?;
        ensure!(Asked::of(address)?.answer()?.starts_with("HTTP/1.1 200"));
        let (asked, began) = (Asked::of(address)?, Stopwatch::start());
        cluster.run(&["publish", "remove", &rule])?;
        cluster.vm.until(t.within(20), || cluster.is_closed())?;
        let closed = began.elapsed();
        let heard = asked.answer();
        ensure!(heard.is_err(), "{heard:?}");
        if closed < SERVER_WAITS {
            t.measured(&format!("closed {closed:.1?} behind the question's beginning"));
            return cluster.answers_at(t, &[PUBLIC_API]);
        }
        ensure!(deadline.left().is_some(), "the port was closed only after {closed:.1?}");
    }
}

/// Until a rule names its namespace, an event says the command that makes one.
fn service(t: &Context) -> anyhow::Result<()> {
    let cluster = Cluster::copy(t)?;
    cluster.balanced()?;
    let told = cluster.vm.until(t.within(60), || {
        let told = cluster.kubectl(&["get", "events", "--field-selector=reason=NotPublished"]).ok()?;
        told.lines().find(|line| line.contains("service/web")).map(str::to_owned)
    })?;
    let line = told.split_once("cairnctl ").map(|(_, line)| line.split_whitespace().collect::<Vec<_>>());
    cluster.answers_at(t, &[PUBLIC_API])?;
    cluster.run(&line.with_context(|| told.clone())?)?;
    cluster.answers_at(t, &[PUBLIC_API, PORT])?;
    let reached = cluster.get("service/web")?["status"]["loadBalancer"]["ingress"].to_string();
    ensure!(reached.contains(&MACHINE.to_string()), "{reached}");
    cluster.run(&["publish", "remove", &cluster.rule()?])?;
    cluster.answers_at(t, &[PUBLIC_API])
}

/// A pod in the machine's network listens there, and answers once the port is published for whatever listens.
fn for_services(t: &Context) -> anyhow::Result<()> {
    let cluster = Cluster::wild(t)?;
    cluster.listens(t)?;
    cluster.balanced()?;
    cluster.run(&["publish", "add", &format!("8080,{PORT}/tcp"), "--namespace", "default"])?;
    cluster.answers_at(t, &[PUBLIC_API, PORT])?;
    cluster.run(&["publish", "remove", &cluster.rule()?])?;
    cluster.run(&["publish", "add", "--host", "8080/tcp", "--on", &cluster.status()?.name])?;
    cluster.answers_at(t, &[PUBLIC_API, 8080])
}

/// A port of a pod that is published, one of a service on each node, one of a pod in the machine's network: each asked for at the
/// machine, and the published one behind it, at the pod.
fn all_openings(t: &Context) -> anyhow::Result<()> {
    let cluster = ported(t)?;
    cluster.listens(t)?;
    cluster.balanced()?;
    cluster.publishes(&[])?;
    cluster.answers_at(t, &[PUBLIC_API, PORT])?;
    let service = cluster.get("service/web")?["spec"].take();
    let node_port: u16 = service["ports"][0]["nodePort"].to_string().parse().with_context(|| service.to_string())?;
    let asked = network::private().chain(ASKED).chain([node_port]);
    let scanned = cluster.outside.host.scan_tcp(MACHINE, asked, t.within(60))?;
    ensure!(scanned.ports(PortAnswer::Open) == [PUBLIC_API, PORT], "{scanned:?}");
    ensure!(scanned.answered().len() == 2, "{:?}", scanned.answered());
    let pod = cluster.object_in(WILD, "pod/ported")?["status"]["podIP"].take();
    let address = pod.as_str().and_then(|address| address.parse().ok()).with_context(|| pod.to_string())?;
    cluster.outside.silent(t, address, [8080, PORT].into_iter())?;
    cluster.answers_at(t, &[PUBLIC_API, PORT])
}

/// Connection by which all of a question but its end was sent.
#[derive(Debug)]
struct Asked(TcpStream);

impl Asked {
    fn of(address: SocketAddrV4) -> anyhow::Result<Self> {
        let mut connection = TcpStream::connect(address).context("connect")?;
        connection.set_read_timeout(Some(Duration::from_secs(5))).context("bound the wait")?;
        connection.write_all(b"GET / HTTP/1.1\r\nHost: ported\r\n").context("ask")?;
        Ok(Self(connection))
    }

    /// Ends the question; the beginning of its answer.
    fn answer(mut self) -> anyhow::Result<String> {
        let mut heard = [0; 64];
        self.0.write_all(b"\r\n").context("end the question")?;
        let count = self.0.read(&mut heard).context("hear the answer")?;
        ensure!(count > 0, "the connection ended");
        Ok(String::from_utf8_lossy(&heard[..count]).into_owned())
    }
}
