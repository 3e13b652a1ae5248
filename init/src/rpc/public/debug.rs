//! Fault injection for tests. Compiled with the feature `faults` alone, served by the debug profile alone, and to the owner
//! alone: the access table refuses it elsewhere. It breaks things by the same ways that services use, never by ways of its own.

mod memory;
mod volume;

use std::fs;
use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::Arc;
use std::time::Duration;

use api::debug_server::DebugServer;
use api::wire;
use api::wire::FaultKind;
use probe::Probe;
use rustix::process::Signal;
use services::Limits;
use supervise::{Backoff, Fingerprint, Readiness, Restart, Spec};
use sys::process::{Exit, Privileges};
use tokio::runtime::Handle;
use tonic::{Request, Response, Status};

use super::context::Context;
use super::faults::Broken;
use super::metrics;
use crate::control::Apiservers;
use crate::runtime::child::Command;
use crate::runtime::services::{Run, Services, Unit};
use crate::runtime::tasks;

/// Folder of its methods.
pub(super) const PATH: &str = "/cairn.v1.Debug/";

/// Service that breaks parts of this machine on request.
#[derive(Debug)]
pub(super) struct Debug {
    context: Arc<Context>,
    /// Where the other trees run: what fails here must not fail beside the API.
    main: Handle,
}

/// Debug service where the image is of the debug profile; faults are injected into the trees of the runtime that this is
/// called on.
pub(super) fn server(context: &Arc<Context>) -> Option<DebugServer<Debug>> {
    (context.facts.boot().profile == api::Profile::Debug)
        .then(|| DebugServer::new(Debug { context: context.clone(), main: Handle::current() }))
}

/// More would need more descriptors than a process has.
const MOST_CHILDREN: u32 = 1000;
/// Far more than they need.
const LIMITS: Limits = Limits { memory: 256 << 20, pids: 2048 };
/// Limits that a greedy program soon comes up against.
const NARROW: Limits = Limits { memory: 32 << 20, pids: 64 };
/// Exit code of the guest that ends at once.
const ENDED: i32 = 1;
/// Where the guest that measures the balancer answers itself.
const ECHO: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 7000);
/// Short, so that a test sees it grow.
const BACKOFF: Backoff =
    Backoff { first: Duration::from_millis(200), cap: Duration::from_secs(2), stable: Duration::from_secs(60) };

#[tonic::async_trait]
impl api::debug_server::Debug for Debug {
    async fn inject(&self, request: Request<wire::InjectRequest>) -> Result<Response<wire::InjectResponse>, Status> {
        let request = request.into_inner();
        let argument = request.argument.as_str();
        let seen = match request.kind() {
            FaultKind::Children => self.children(argument).await?,
            FaultKind::Panic => self.panic(argument).await?,
            FaultKind::KillService => self.kill(argument)?,
            FaultKind::TestService => self.start(argument).await?,
            FaultKind::GiveUp => self.give_up(argument).await?,
            FaultKind::SearchMemory => Self::search(argument).await?,
            FaultKind::Volume => volume::operate(&self.context, argument).await?,
            FaultKind::StandStill => {
                self.context.faults.stand_still(argument);
                format!("a member's life stands still before {argument}")
            }
            FaultKind::CertificateLife => Self::certificates_last(argument)?,
            FaultKind::Unspecified => return Err(Status::invalid_argument("no such fault; nothing was done")),
        };
        let kilobytes = metrics::resident()? >> 10;
        Ok(Response::new(wire::InjectResponse { outcome: format!("{seen}; PID 1 holds {kilobytes} kB") }))
    }
}

impl Debug {
    fn certificates_last(seconds: &str) -> Result<String, Status> {
        let life = seconds.parse().ok().filter(|seconds| *seconds > 0);
        pki::inject_service_life(
            life.ok_or_else(|| Status::invalid_argument("no number of seconds; nothing was done"))?,
        );
        Ok(format!("certificates of services last {seconds} s"))
    }

    /// Starts children that end at once, and waits until each has been reaped.
    async fn children(&self, count: &str) -> Result<String, Status> {
        let count = count.parse().ok().filter(|count| *count <= MOST_CHILDREN);
        let count = count.ok_or_else(|| Status::invalid_argument("not a number up to 1000; nothing was done"))?;
        let children = self.context.panel.children.clone();
        let spawn = move || (0..count).map(|_| children.spawn("test.children", &guest("exit"))).collect();
        // Off the thread that reaps, so that children die while others are being registered.
        let started: io::Result<Vec<_>> = tasks::blocking(spawn).await;
        let failed = |error: io::Error| Status::internal(format!("start children: {error}"));
        let mut started = started.map_err(failed)?;
        let mut reaped = 0;
        for child in &mut started {
            reaped += u32::from(child.exited().await == Exit::Code(ENDED));
        }
        let left = match started.first() {
            // Counts the dead that nobody has reaped, which cgroup.procs does not.
            Some(child) => fs::read_to_string(child.cgroup().path().join("pids.current")).map_err(failed)?,
            None => String::from("0"),
        };
        Ok(format!("{count} started, {reaped} reaped, {} left", left.trim()))
    }

    /// Searches PID 1's own memory for a secret.
    async fn search(masked: &str) -> Result<String, Status> {
        let masked = masked.to_owned();
        let found = tasks::blocking(move || memory::times_held(&masked)).await;
        let failed = |error| Status::internal(format!("search PID 1's memory: {error}"));
        Ok(format!("held {} times", found.map_err(failed)?))
    }

    /// Has a task panic: one of its own, the API's, the member's, or what is no task at all.
    async fn panic(&self, part: &str) -> Result<String, Status> {
        let part = match part {
            "" => return self.start("test.panic").await,
            "api" => Broken::Api,
            "main" => Broken::Main,
            "member" => Broken::Member,
            _ => return Err(Status::invalid_argument(format!("nothing called `{part}` panics; nothing was done"))),
        };
        self.context.faults.break_down(part);
        Ok(format!("{part:?} panics"))
    }

    /// Kills a service's main process.
    fn kill(&self, service: &str) -> Result<String, Status> {
        let running = self.context.panel.snapshots().into_iter().find(|snapshot| snapshot.status.name == service);
        let pid = running.and_then(|snapshot| snapshot.pid);
        let pid = pid.ok_or_else(|| Status::not_found(format!("no process of `{service}`; nothing was done")))?;
        self.context.panel.children.signal(pid, Signal::KILL);
        Ok(format!("killed {}", pid.as_raw_nonzero()))
    }

    /// Ends a test service and those that were started with it, and waits until nothing of them is left.
    async fn give_up(&self, service: &str) -> Result<String, Status> {
        let has_it = |tree: &Services| tree.snapshots().iter().any(|snapshot| snapshot.status.name == service);
        let tree = self.context.panel.trees().into_iter().find(has_it).filter(|_| unit(service).is_some());
        let tree = tree.ok_or_else(|| Status::not_found(format!("no test service `{service}`; nothing was done")))?;
        tree.want(Vec::new()).await.map_err(|error| Status::internal(error.to_string()))?;
        Ok(format!("gave up {service}"))
    }

    /// Starts a test service, or a group of two, as a tree of its own; it runs until the machine ends.
    async fn start(&self, service: &str) -> Result<String, Status> {
        let units = match service {
            "test.pair" => ["test.pair-a", "test.pair-b"].into_iter().filter_map(unit).collect(),
            // The balancer as it is, and a program that asks through it.
            "test.balanced" => ["test.balancer", "test.latency"].into_iter().filter_map(unit).collect(),
            one => Vec::from_iter(unit(one)),
        };
        let Some(first) = units.first() else {
            return Err(Status::not_found(format!("no test service `{service}`; nothing was done")));
        };
        if self.context.panel.snapshots().iter().any(|snapshot| snapshot.status.name == first.spec.name) {
            return Err(Status::already_exists(format!("`{service}` has been started; nothing was done")));
        }
        let tree = {
            let _its_tasks_run_there = self.main.enter();
            Services::start(&self.context.panel.children, Vec::new())
        };
        let tree = tree.map_err(|error| Status::internal(error.to_string()))?;
        tree.want(units).await.map_err(|error| Status::internal(error.to_string()))?;
        self.context.panel.show(&tree);
        Ok(format!("started {service}"))
    }
}

/// The test service of this name.
fn unit(service: &str) -> Option<Unit> {
    let always = Restart::Always(BACKOFF);
    let (name, restart, run) = match service {
        "test.connections" => ("test.connections", Restart::Never, Run::Child(guest("connections"))),
        "test.crash-loop" => ("test.crash-loop", always, Run::Child(guest("exit"))),
        "test.deaf" => ("test.deaf", always, Run::Child(guest("deaf"))),
        "test.greedy" => ("test.greedy", Restart::Never, Run::Child(Command { limits: NARROW, ..guest("greedy") })),
        // Its probe asks a socket that nobody opens.
        "test.unready" => ("test.unready", always, Run::Child(guest("idle"))),
        "test.pair-a" => ("test.pair-a", always, Run::Child(guest("idle"))),
        "test.pair-b" => ("test.pair-b", always, Run::Child(guest("idle"))),
        "test.flood" => ("test.flood", Restart::Never, Run::Child(guest("flood"))),
        "test.unseal" => ("test.unseal", Restart::Never, Run::Child(guest("unseal"))),
        "test.etcd" => ("test.etcd", Restart::Never, Run::Child(guest("etcd"))),
        "test.full" => ("test.full", Restart::Never, Run::Child(guest("full"))),
        "test.tpm" => ("test.tpm", Restart::Never, Run::Child(guest("tpm"))),
        "test.secrets" => ("test.secrets", Restart::Never, Run::Child(guest("secrets"))),
        "test.trace" => ("test.trace", Restart::Never, Run::Child(guest("trace"))),
        "test.places" => ("test.places", Restart::Never, Run::Child(guest("places"))),
        "test.processes" => ("test.processes", Restart::Never, Run::Child(guest("processes"))),
        "test.balancer" => ("test.balancer", always, balanced(ECHO)),
        "test.latency" => ("test.latency", always, Run::Child(guest("latency"))),
        "test.nft" => ("test.nft", Restart::Never, Run::Child(guest("nft"))),
        "test.router" => ("test.router", Restart::Never, Run::Child(guest("router"))),
        "test.returns" => ("test.returns", Restart::Never, Run::Child(guest("returns"))),
        "test.carries" => ("test.carries", Restart::Never, Run::Child(guest("carries"))),
        "test.foreign" => ("test.foreign", Restart::Never, Run::Child(guest("foreign"))),
        "test.orphans" => ("test.orphans", Restart::Never, Run::Child(guest("orphans"))),
        "test.unreaped" => ("test.unreaped", Restart::Never, Run::Child(guest("unreaped"))),
        "test.panic" => ("test.panic", always, Run::task(panics)),
        _ => return None, // a name that a test made up
    };
    let probe = (name == "test.unready").then(|| Probe::UnixSocket("/run/nobody".into()));
    let spec = Spec {
        name: name.into(),
        content: Fingerprint::TASK,
        needs: Vec::new(),
        group: name.starts_with("test.pair-").then(|| "test.pair".into()),
        start_deadline: Duration::from_secs(if probe.is_some() { 2 } else { 60 }),
        stop_deadline: Duration::from_secs(2),
        restart,
        ready: if probe.is_some() { Readiness::Probe } else { Readiness::OnStart },
        critical: None,
    };
    Some(Unit { spec, run, probe, metrics: None, files: None })
}

/// The balancer before one server.
fn balanced(server: SocketAddrV4) -> Run {
    let one = Apiservers::of(Ipv4Addr::LOCALHOST, move || vec![server]);
    Run::task(move || {
        let one = one.clone();
        async move { one.serve(None).await }
    })
}

async fn panics() -> io::Result<()> {
    panic!("a test wants to see it");
}

/// A program of the guest, which only the debug image has.
fn guest(program: &str) -> Command {
    Command {
        path: "/bin/guest".to_owned(),
        argv: vec!["guest".to_owned(), program.to_owned()],
        environment: Vec::new(),
        privileges: Privileges::Fixed,
        limits: LIMITS,
        apart: None,
    }
}
