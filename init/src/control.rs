//! The control plane and the node's agent on this machine: from the pure units of `services` to those of a tree.
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
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;

use cluster::desired::Desired;
use probe::Probe;
use probe::http::LocalServer;
use services::{ServicePlan, ServiceProgram, ServiceRole, Task};
use supervise::Spec;
use sys::process::Privileges;
use tokio::sync::watch;

use self::clients::Clients;
pub(crate) use self::conditions::report;
use crate::enrolment::{self, Authorities, LoadError};
use crate::records::{Records, RevocationError};
use crate::runtime::child::Command;
use crate::runtime::services::{Ends, Run, Unit};
use crate::runtime::{clock, durable, tasks};
use crate::shown::board::Board;

/// Failed step on the way to running services.
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
    /// The list of certificates that etcd is to refuse could not be made.
    #[error(transparent)]
    Revoked(#[from] RevocationError),
    /// A key could not be made or exported.
    #[error("make a key")]
    Key(#[from] pki::KeyError),
    /// A TLS client could not be configured.
    #[error("configure a client")]
    Tls(#[from] pki::TlsError),
}

/// Ground that the units of a coordinator are made from.
pub(crate) struct Ground<'a> {
    pub(crate) board: &'a Board,
    pub(crate) plan: &'a Arc<ServicePlan>,
    pub(crate) authorities: &'a Authorities,
    pub(crate) records: &'a Records,
    /// Desired state of the machine, which names the coordinators.
    pub(crate) desired: watch::Receiver<Desired>,
}

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
pub(crate) async fn units(ground: Ground<'_>) -> Result<Vec<Unit>, Error> {
    let Ground { board, plan, authorities, .. } = &ground;
    for directory in services::DIRECTORIES {
        let failed = |error| Error::Directory(directory.path, error);
        fs::create_dir_all(directory.path).map_err(failed)?;
        fs::set_permissions(directory.path, fs::Permissions::from_mode(directory.mode)).map_err(failed)?;
    }
    if plan.wants(ServiceRole::ControlPlane) {
        let secrets = enrolment::kubernetes_secrets_key(plan.cluster).await?;
        let encryption = services::secrets_encryption(&secrets);
        clients::write(services::SECRETS_ENCRYPTION, encryption.as_bytes(), 0o600)?;
    }
    let wanted = services::wanted(plan);
    let programs = || wanted.iter().filter_map(services::Unit::as_program);
    for file in programs().flat_map(|program| &program.files) {
        clients::write(file.path, file.contents.as_bytes(), 0o644)?;
    }
    let clients =
        Clients::issue(plan, authorities, programs().flat_map(|program| program.credentials.iter().copied()))?;
    let unit = |services::Unit { spec, run }| match run {
        services::Run::Program(program) => of_program(spec, program, &clients),
        services::Run::Task(task) => Unit { spec, run: of_task(task, &ground, &clients), probe: None, files: None },
    };
    let (board_of_watch, made) = ((*board).clone(), clock::unix());
    let watch = Run::steady(move || certificates::watch(board_of_watch.clone(), made));
    let watch = Unit::task("certificates", Ends::Never, watch);
    Ok(wanted.clone().into_iter().map(unit).chain([watch]).collect())
}

/// Work of a task of PID 1.
fn of_task(task: Task, ground: &Ground<'_>, clients: &Clients) -> Run {
    let (board, plan, records) = (ground.board.clone(), ground.plan.clone(), ground.records.clone());
    match task {
        Task::Users => Run::task(move || records.clone().make_users()),
        Task::Balancer => {
            let desired = ground.desired.clone();
            Run::task(move || {
                let (plan, desired) = (plan.clone(), desired.clone());
                balancer::serve(move || balancer::apiservers(&plan, &desired.borrow()))
            })
        }
        Task::Images => Run::task(import::import),
        Task::Bootstrap => {
            let kubernetes = ground.authorities.kubernetes.clone();
            Run::task(move || node::bootstrap(kubernetes.clone(), plan.clone()))
        }
        Task::Observer => {
            let api = clients.kubernetes.clone();
            let began = i64::try_from(clock::unix().saturating_sub(clock::uptime()).as_secs()).unwrap_or(0);
            Run::task(move || node::observe(board.clone(), api.clone(), plan.clone(), began))
        }
        Task::Pods => Run::Task(Box::new(|stop| Box::pin(pods::end_when(stop)))),
    }
}

fn of_program(spec: Spec, program: ServiceProgram, clients: &Clients) -> Unit {
    Unit {
        spec,
        run: Run::Child(Command {
            path: program.argv.first().cloned().unwrap_or_default(),
            // The multicall goes by the last part of argv[0].
            argv: program.argv,
            environment: program.environment.into_iter().map(|(name, value)| (name.to_owned(), value)).collect(),
            privileges: match program.privileges {
                services::ServicePrivileges::Fixed => Privileges::Fixed,
                services::ServicePrivileges::MayGrow => Privileges::MayGrow,
            },
            limits: program.limits,
            apart: program.record,
        }),
        probe: Some(match program.probe {
            services::ReadinessProbe::UnixSocket { path } => Probe::UnixSocket(path.into()),
            services::ReadinessProbe::HttpGet { address, path } => {
                Probe::Http(LocalServer { address: address.into(), tls: None }, path.to_owned())
            }
            services::ReadinessProbe::HttpsGet { address, path, authority, client } => {
                Probe::Http(clients.endpoint(address, authority, client), path.to_owned())
            }
        }),
        files: program.data.map(Path::new),
    }
}
