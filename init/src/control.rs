//! The control plane and the node's agent on this machine: from the pure specs of `kube` to units of a tree.
//!
//! It writes what they read (below /run: memory, gone with the boot) and adds the tasks that belong to them: the local
//! balancer, image import, bootstrap objects, the observer, the end of pods. Certificates are `clients`' matter.

pub(crate) mod balancer;
mod certificates;
mod clients;
mod conditions;
mod node;
mod pods;

use std::fs;
use std::io;
use std::net::SocketAddrV4;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use api::ConditionName;
use kube::{Condition, Plan, ServiceSpec, Task, Until, Wanted};
use probe::Probe;
use probe::http::Endpoint;
use supervise::{Backoff, Need, Readiness, Restart, Spec};
use sys::process::Privileges;

use self::clients::Clients;
pub(crate) use self::conditions::report;
use crate::consensus::{Records, RevocationError};
use crate::enrolment::{self, Authorities, LoadError};
use crate::runtime::child::{Apart, Command, Limits};
use crate::runtime::services::{Ends, Run, Unit};
use crate::runtime::{clock, durable, tasks};
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
    /// The key that encrypts Secrets could not be derived.
    #[error("derive the key of Kubernetes' Secrets")]
    Secrets(#[from] LoadError),
    /// A certificate could not be issued.
    #[error("issue a certificate")]
    Issue(#[from] pki::IssueError),
    /// Whom etcd is to refuse cannot be said.
    #[error(transparent)]
    Revoked(#[from] RevocationError),
    /// A key could not be made or exported.
    #[error("make a key")]
    Key(#[from] pki::KeyError),
    /// A TLS client could not be configured.
    #[error("configure a client")]
    Tls(#[from] pki::TlsError),
}

/// Under emulation on a busy host the apiserver needed 295 s; twice that is broken, not slow. A deadline that is too
/// short is worse than one that is too long: it throws away what the slow start has done.
const START: Duration = Duration::from_secs(600);
/// etcd and the apiserver finish what they began.
const STOP: Duration = Duration::from_secs(15);
/// A service that fails is tried again soon, and never more often than twice a minute for long.
const BACKOFF: Backoff =
    Backoff { first: Duration::from_millis(500), cap: Duration::from_secs(30), stable: Duration::from_secs(60) };

/// Between two tries to read the cluster's records.
const WITHOUT_QUORUM: Duration = Duration::from_secs(2);

/// Folder of the keys that services read.
const CREDENTIALS: &str = "/run/cairn/pki";

/// Erases the keys that services of a coordinator had in memory.
///
/// # Errors
/// What the file system says; some of them may be there still.
pub(crate) async fn erase_keys() -> io::Result<()> {
    tasks::blocking(|| durable::erase(Path::new(CREDENTIALS))).await
}

/// The units that a machine's roles want.
///
/// # Errors
/// [`Error`] names the first thing that could not be prepared.
pub(crate) async fn units(
    board: &Board,
    plan: &Arc<Plan>,
    authorities: &Authorities,
    records: &Records,
) -> Result<Vec<Unit>, Error> {
    for directory in kube::DIRECTORIES {
        let failed = |error| Error::Directory(directory.path, error);
        fs::create_dir_all(directory.path).map_err(failed)?;
        fs::set_permissions(directory.path, fs::Permissions::from_mode(directory.mode)).map_err(failed)?;
    }
    for file in kube::files(plan) {
        clients::write(file.path, file.contents.as_bytes(), 0o644)?;
    }
    if plan.wants(Wanted::ControlPlane) {
        let secrets = enrolment::kubernetes_secrets_key(plan.cluster).await?;
        clients::write(kube::SECRETS_ENCRYPTION, kube::secrets_encryption(&secrets).as_bytes(), 0o600)?;
    }
    let clients = Clients::issue(plan, authorities)?;
    let services = kube::services(plan).into_iter().map(|service| unit(service, &clients));
    let (board_of_watch, made) = (board.clone(), clock::unix());
    let watch = Run::steady(move || certificates::watch(board_of_watch.clone(), made));
    let watch = Unit::task("certificates", Ends::Never, watch);
    Ok(services.chain(tasks(board, plan, authorities, records, &clients)).chain([watch]).collect())
}

/// The tasks of PID 1 that belong to Kubernetes.
fn tasks(
    board: &Board,
    plan: &Arc<Plan>,
    authorities: &Authorities,
    records: &Records,
    clients: &Clients,
) -> Vec<Unit> {
    let unit = |task: Task| {
        let (board, plan, records) = (board.clone(), plan.clone(), records.clone());
        let spec = spec(task.name(), needs(task.needs(&plan)), Restart::Always(BACKOFF));
        let once = Spec { restart: Restart::UntilSuccess(BACKOFF), ..spec.clone() };
        let (spec, run) = match task {
            Task::Users => (once, Run::task(move || records.clone().make_users())),
            Task::Cluster => {
                // Without quorum it fails for as long as that lasts, and is there as soon as etcd has one again.
                let backoff = Backoff { cap: WITHOUT_QUORUM, ..BACKOFF };
                let spec = Spec { restart: Restart::Always(backoff), ..spec };
                (spec, Run::task(move || records.clone().keep()))
            }
            Task::Balancer => {
                let api = |other: kube::Coordinator| SocketAddrV4::new(other.vpn, model::KUBERNETES_API_PORT);
                (spec, Run::task(move || balancer::serve(plan.coordinators().into_iter().map(api).collect())))
            }
            Task::Images => (once, Run::task(import::import)),
            Task::Bootstrap => {
                let kubernetes = authorities.kubernetes.clone();
                (once, Run::task(move || node::bootstrap(kubernetes.clone(), plan.clone())))
            }
            Task::Observer => {
                let api = clients.kubernetes.clone();
                let began = i64::try_from(clock::unix().saturating_sub(clock::uptime()).as_secs()).unwrap_or(0);
                (spec, Run::task(move || node::observe(board.clone(), api.clone(), plan.clone(), began)))
            }
            Task::Pods => (
                Spec { stop_deadline: Duration::from_secs(40), ..spec },
                Run::Task(Box::new(|stop| Box::pin(pods::end_when(stop)))),
            ),
        };
        Unit { spec, run, probe: None, condition: None, files: None }
    };
    kube::tasks(plan).into_iter().map(unit).collect()
}

fn spec(name: &str, needs: Vec<Need>, restart: Restart) -> Spec {
    Spec {
        name: name.into(),
        needs,
        group: None,
        start_deadline: START,
        stop_deadline: STOP,
        restart,
        ready: Readiness::OnStart,
        critical: None,
    }
}

fn needs(needs: Vec<kube::Need>) -> Vec<Need> {
    let need = |need: kube::Need| match need.until {
        Until::Started => Need::started(need.service),
        Until::Ready => Need::ready(need.service),
        Until::Finished => Need::finished(need.service),
    };
    needs.into_iter().map(need).collect()
}

fn unit(service: ServiceSpec, clients: &Clients) -> Unit {
    let spec = spec(service.name, needs(service.needs), Restart::Always(BACKOFF));
    Unit {
        spec: Spec { ready: Readiness::Probe, ..spec },
        run: Run::Child(Command {
            path: service.argv.first().cloned().unwrap_or_default(),
            // The multicall goes by the last part of argv[0].
            argv: service.argv,
            environment: service.environment.into_iter().map(|(name, value)| (name.to_owned(), value)).collect(),
            privileges: match service.privileges {
                kube::Privileges::Fixed => Privileges::Fixed,
                kube::Privileges::MayGrow => Privileges::MayGrow,
            },
            limits: Limits { memory: service.limits.memory, pids: service.limits.pids },
            apart: service.record.map(|record| Apart { start: record.start, log: record.log }),
        }),
        probe: Some(match service.probe {
            kube::Probe::UnixSocket { path } => Probe::UnixSocket(path.into()),
            kube::Probe::HttpGet { address, path } => {
                Probe::Http(Endpoint { address: address.into(), tls: None }, path.to_owned())
            }
            kube::Probe::HttpsGet { address, path, authority, client } => {
                Probe::Http(clients.endpoint(address, authority, client), path.to_owned())
            }
        }),
        condition: service.condition.map(|condition| match condition {
            Condition::Etcd => ConditionName::EtcdReady,
            Condition::Containerd => ConditionName::ContainerdReady,
            Condition::KubernetesApi => ConditionName::KubernetesApiReady,
        }),
        files: service.data.map(Path::new),
    }
}
