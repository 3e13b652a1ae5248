//! The control plane and the node's agent on this machine: from the pure specs of `kube` to units of a tree.
//!
//! It writes what they read (below /run: memory, gone with the boot) and adds the tasks that belong to them: the local
//! balancer, image import, bootstrap objects, the observer, the end of pods. Certificates are `clients`' matter.

pub(crate) mod balancer;
mod clients;
mod conditions;
mod node;
mod pods;

use std::fs;
use std::io;
use std::net::SocketAddrV4;
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::time::Duration;

use kube::{Plan, ServiceSpec, Until};
use model::{NodeName, Role, Secret};
use probe::Probe;
use probe::http::Endpoint;
use supervise::{Backoff, Need, Readiness, Restart, Spec};
use sys::process::Privileges;

use self::clients::Clients;
pub(crate) use self::conditions::report;
use crate::enrolment::Authorities;
use crate::runtime::child::{Apart, Command, Limits};
use crate::runtime::clock;
use crate::runtime::services::{Run, Unit};
use crate::shown::board::Board;

/// Which step failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// A directory could not be made.
    #[error("make directory `{0}`")]
    Directory(&'static str, #[source] io::Error),
    /// A file could not be written.
    #[error("write `{0}`")]
    File(String, #[source] io::Error),
    /// A certificate could not be issued.
    #[error("issue a certificate")]
    Issue(#[from] pki::IssueError),
    /// A key could not be made or exported.
    #[error("make a key")]
    Key(#[from] pki::KeyError),
    /// A TLS client could not be configured.
    #[error("configure a client")]
    Tls(#[from] pki::TlsError),
}

/// Memory and processes a service may have at most. Far above what they need: a leak ends in a restart, not in a
/// machine without memory.
const LIMITS: &[(&str, Limits)] = &[
    ("etcd", Limits { memory: 1 << 30, pids: 1024 }),
    // With the shims of all pods.
    ("containerd", Limits { memory: 2 << 30, pids: 16 << 10 }),
    ("kube.apiserver", Limits { memory: 3 << 30, pids: 1024 }),
    ("kube.controller-manager", Limits { memory: 1 << 30, pids: 1024 }),
    ("kube.scheduler", Limits { memory: 1 << 30, pids: 1024 }),
    ("kube.kubelet", Limits { memory: 1 << 30, pids: 4096 }),
];
const OTHER: Limits = Limits { memory: 256 << 20, pids: 256 };

/// Under emulation on a busy host the apiserver needed 295 s; twice that is broken, not slow. A deadline that is too
/// short is worse than one that is too long: it throws away what the slow start has done.
const START: Duration = Duration::from_secs(600);
/// etcd and the apiserver finish what they began.
const STOP: Duration = Duration::from_secs(15);
/// A service that fails is tried again soon, and never more often than twice a minute for long.
const BACKOFF: Backoff =
    Backoff { first: Duration::from_millis(500), cap: Duration::from_secs(30), stable: Duration::from_secs(60) };

/// Which of the services a machine runs.
#[derive(Debug)]
pub(crate) enum Extent {
    /// etcd: a coordinator without Kubernetes.
    Consensus,
    /// All of them: control plane and node.
    Kubernetes {
        /// What the node is shown to be.
        roles: Vec<Role>,
        /// Encrypts Secrets in etcd.
        secrets: Secret<32>,
    },
}

/// The units of a machine.
///
/// # Errors
/// [`Error`] names the first thing that could not be prepared.
pub(crate) fn units(board: &Board, plan: &Plan, extent: Extent, authorities: &Authorities) -> Result<Vec<Unit>, Error> {
    for directory in kube::DIRECTORIES {
        let failed = |error| Error::Directory(directory.path, error);
        fs::create_dir_all(directory.path).map_err(failed)?;
        fs::set_permissions(directory.path, fs::Permissions::from_mode(directory.mode)).map_err(failed)?;
    }
    for file in kube::files(plan) {
        clients::write(file.path, file.contents.as_bytes(), 0o644)?;
    }
    let clients = Clients::issue(plan, authorities)?;
    let mut services = kube::services(plan);
    let companions = match extent {
        Extent::Consensus => {
            services.retain(|spec| spec.name == "etcd");
            Vec::new()
        }
        Extent::Kubernetes { roles, secrets } => {
            clients::write(kube::SECRETS_ENCRYPTION, kube::secrets_encryption(&secrets).as_bytes(), 0o600)?;
            companions(board, plan, &roles, authorities, &clients)
        }
    };
    Ok(services.into_iter().map(|spec| unit(spec, &clients)).chain(companions).collect())
}

/// The tasks of PID 1 that belong to Kubernetes.
fn companions(board: &Board, plan: &Plan, roles: &[Role], authorities: &Authorities, clients: &Clients) -> Vec<Unit> {
    let api = clients.kubernetes.clone();
    let kubernetes = authorities.kubernetes.clone();
    let (node, boot_id) = (plan.node.clone(), board.facts().boot().boot_id.clone());
    let (labelled, roles): (NodeName, Arc<[Role]>) = (plan.node.clone(), roles.into());
    let began = i64::try_from(clock::unix().saturating_sub(clock::uptime()).as_secs()).unwrap_or(0);
    let address = SocketAddrV4::new(plan.vpn, model::KUBERNETES_API_PORT);
    let observed = board.clone();
    vec![
        Unit {
            spec: task("kube.balancer", &[], Restart::Always(BACKOFF)),
            run: Run::task(move || balancer::serve(vec![address])),
            probe: None,
        },
        Unit {
            spec: task("images", &[Need::Ready("containerd")], Restart::UntilSuccess(BACKOFF)),
            run: Run::task(import::import),
            probe: None,
        },
        Unit {
            spec: task("kube.bootstrap", &[Need::Ready("kube.apiserver")], Restart::UntilSuccess(BACKOFF)),
            run: Run::task(move || node::bootstrap(kubernetes.clone(), address, labelled.clone(), roles.clone())),
            probe: None,
        },
        Unit {
            spec: task("kube.observer", &[Need::Ready("kube.apiserver")], Restart::Always(BACKOFF)),
            run: Run::task(move || node::observe(observed.clone(), api.clone(), node.clone(), boot_id.clone(), began)),
            probe: None,
        },
        Unit {
            spec: Spec {
                stop_deadline: Duration::from_secs(40),
                ..task("pods", &[Need::Ready("containerd")], Restart::Always(BACKOFF))
            },
            run: Run::Task(Box::new(|stop| Box::pin(pods::end_when(stop)))),
            probe: None,
        },
    ]
}

fn task(name: &'static str, needs: &'static [Need], restart: Restart) -> Spec {
    Spec {
        name,
        needs,
        group: None,
        start_deadline: START,
        stop_deadline: STOP,
        restart,
        ready: Readiness::OnStart,
        critical: None,
    }
}

/// The bounds of a service of `kube`.
fn limits(name: &str) -> Limits {
    LIMITS.iter().find(|(named, _)| *named == name).map_or(OTHER, |(_, limits)| *limits)
}

fn unit(spec: ServiceSpec, clients: &Clients) -> Unit {
    let mut needs: Vec<Need> = spec
        .needs
        .iter()
        .map(|need| match need.until {
            Until::Started => Need::Started(need.service),
            Until::Ready => Need::Ready(need.service),
        })
        .collect();
    if spec.name == "kube.kubelet" {
        // So that at the end kubelet is gone before pods are told to end: it would start them again.
        needs.push(Need::Started("pods"));
    }
    let limits = limits(spec.name);
    let (path, argv) = program(spec.argv);
    Unit {
        spec: Spec {
            ready: Readiness::Probe,
            // The table is made once per boot and lives as long as the boot.
            ..task(spec.name, needs.leak(), Restart::Always(BACKOFF))
        },
        run: Run::Child(Command {
            path,
            argv,
            environment: spec.environment.into_iter().map(|(name, value)| (name.to_owned(), value)).collect(),
            // containerd and kubelet start programs for others; those decide for themselves.
            privileges: match spec.name {
                "containerd" | "kube.kubelet" => Privileges::MayGrow,
                _ => Privileges::Fixed,
            },
            limits,
            apart: (spec.name == "kube.apiserver").then_some(Apart { start: kube::audit::LINE, log: kube::audit::LOG }),
        }),
        probe: Some(match spec.probe {
            kube::Probe::UnixSocket { path } => Probe::UnixSocket(path.into()),
            kube::Probe::HttpGet { address, path } => {
                Probe::Http(Endpoint { address: address.into(), tls: None }, path.to_owned())
            }
            kube::Probe::HttpsGet { address, path, authority, client } => {
                Probe::Http(clients.endpoint(address, authority, client), path.to_owned())
            }
        }),
    }
}

/// Path and argv of a program; the multicall goes by the last part of argv[0].
fn program(argv: Vec<String>) -> (&'static str, Vec<String>) {
    // As with the table: once per boot.
    let path: &'static str = argv.first().cloned().unwrap_or_default().leak();
    (path, argv)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Written out, and each service by name: one that is forgotten has the small bounds of an unknown one, and dies.
    ///
    /// Proves: O2
    #[test]
    fn each_service_has_bounds_of_its_own() {
        const GIB: u64 = 1 << 30;
        let expected = [
            ("etcd", GIB, 1024),
            ("containerd", 2 * GIB, 16_384),
            ("kube.apiserver", 3 * GIB, 1024),
            ("kube.kubelet", GIB, 4096),
            ("kube.controller-manager", GIB, 1024),
            ("kube.scheduler", GIB, 1024),
        ];
        let plan = Plan {
            node: NodeName::chosen("node-1").expect("plain"),
            cluster: model::ClusterId([1; 16]),
            vpn: model::VPN_PREFIX.nth(1).expect("a /16 has it"),
            pods: "10.244.0.0/24".parse().expect("a prefix"),
            control_plane: kube::ControlPlane::Lone,
            bin: "/bin",
        };
        let bounds: Vec<_> = kube::services(&plan)
            .iter()
            .map(|spec| (spec.name, limits(spec.name).memory, limits(spec.name).pids))
            .collect();
        assert_eq!(bounds, expected);
        assert!(LIMITS.iter().all(|(name, _)| bounds.iter().any(|(known, _, _)| known == name)), "a row for nobody");
    }
}
