//! The control plane and the node's agent on this machine: from the pure units of `services` to those of a tree.
//!
//! It writes what they read (below /run: memory, gone with the boot) and adds the tasks that belong to them: the local
//! balancer, image import, bootstrap objects, the observer, the end of pods. Certificates are `clients`' matter.

mod apiserver;
pub(crate) mod balancer;
mod certificates;
mod clients;
mod conditions;
mod drain;
mod listed;
mod metrics;
mod node;
mod pods;
mod policies;
mod policy_compiler;
mod registries;
mod resolvers;
mod upkeep;
mod volume_calls;
mod volumes;

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;

use cluster::orders::OrderBook;
use cluster::record::BadRecord;
use keys::identity::Identity;
use probe::Probe;
use probe::http::LocalServer;
use services::{ServicePage, ServicePlan, ServiceProgram, ServiceRole, Task};
use supervise::Spec;
use sys::process::{Capability, Privileges};
use tokio::sync::watch;

pub(crate) use self::balancer::{Apiservers, NoControlPlane};
pub(crate) use self::certificates::LOOK;
pub(crate) use self::clients::{Clients, SignedKeys};
pub(crate) use self::conditions::{Absence, report};
pub(crate) use self::drain::{DrainFailure, DrainTerms, drain, set_cordon};
pub(crate) use self::listed::{ListedError, all};
use self::metrics::Metrics;
pub(crate) use self::node::{Error as NodeError, session};
use self::policy_compiler::PolicyCompiler;
use self::upkeep::Upkeep;
pub(crate) use self::volume_calls::VolumeCalls;
use crate::enrolment::{self, Authorities, Fellows, LoadError};
use crate::network::mesh::roll::Roll;
use crate::network::policies::PolicyTable;
use crate::network::uplink::Resolvers;
use crate::records::{Records, RevocationError};
use crate::runtime::child::Command;
use crate::runtime::services::{Ends, MetricsPage, Run, Unit};
use crate::runtime::{clock, durable, tasks};
use crate::shown::board::Board;
use crate::storage::Volumes;

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
    /// A request for a certificate could not be made.
    #[error("ask for a certificate")]
    Request(#[from] pki::BadRequest),
    /// Certificates of a worker that are for other keys.
    #[error("the coordinator has signed other keys than it was asked for")]
    Signed,
    /// Orders make no sense.
    #[error("read what is ordered of registries")]
    Registries(#[from] BadRecord),
    /// A TLS client could not be configured.
    #[error("configure a client")]
    Tls(#[from] pki::TlsError),
}

/// Ground that units are made from.
pub(crate) struct Ground<'a> {
    pub(crate) board: &'a Board,
    pub(crate) plan: &'a Arc<ServicePlan>,
    /// Identity of the machine.
    pub(crate) identity: &'a Arc<Identity>,
    /// Keys and records of a coordinator, where its units run.
    pub(crate) coordinator: Option<(&'a Authorities, &'a Records)>,
    /// Certificates of a worker that a coordinator has signed since.
    pub(crate) signed: Option<SignedKeys>,
    /// Apiservers to which the machine's clients are led.
    pub(crate) apiservers: &'a Apiservers,
    /// Resolvers that the machine's links have.
    pub(crate) resolvers: &'a watch::Receiver<Resolvers>,
    /// Volumes on the machine's disk.
    pub(crate) volumes: &'a Volumes,
    /// Table by which policies judge the machine's pods.
    pub(crate) policies: &'a PolicyTable,
    /// Orders that the machine goes by.
    pub(crate) orders: &'a watch::Receiver<OrderBook>,
    /// By which it is found out which machines are there.
    pub(crate) roll: &'a Roll,
}

/// Name of the task that looks at how old certificates are.
const CERTIFICATES: &str = "certificates";
/// Folder of the keys that services read.
const CREDENTIALS: &str = "/run/cairn/pki";

/// Erases the keys that services of a coordinator had in memory, and leaves those that are in use.
///
/// # Errors
/// What the file system says; some of them may be there still.
pub(crate) async fn erase_keys(clients: &Clients) -> io::Result<()> {
    let used = clients.paths();
    tasks::blocking(move || {
        let there = match fs::read_dir(CREDENTIALS) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            there => there?,
        };
        for entry in there {
            let path = entry?.path();
            if !path.to_str().is_some_and(|path| used.contains(path)) {
                durable::erase(&path)?;
            }
        }
        Ok(())
    })
    .await
}

/// The units that a machine's roles want, with all that they read.
///
/// # Errors
/// [`Error`] names the first thing that could not be prepared.
pub(crate) async fn units(mut ground: Ground<'_>, clients: &mut Clients) -> Result<Vec<Unit>, Error> {
    let signed = ground.signed.take();
    let Ground { board, plan, .. } = &ground;
    let wanted = services::wanted(plan);
    if wanted.is_empty() {
        return Ok(Vec::new());
    }
    for directory in services::DIRECTORIES.iter().filter(|directory| directory.role.is_none_or(|role| plan.wants(role)))
    {
        let failed = |error| Error::Directory(directory.path, error);
        fs::create_dir_all(directory.path).map_err(failed)?;
        fs::set_permissions(directory.path, fs::Permissions::from_mode(directory.mode)).map_err(failed)?;
    }
    if plan.wants(ServiceRole::ControlPlane) {
        let secrets = enrolment::kubernetes_secrets_key(plan.cluster).await?;
        let encryption = services::secrets_encryption(&secrets);
        clients::write(services::SECRETS_ENCRYPTION, encryption.as_bytes(), 0o600)?;
    }
    if let Some(signed) = signed {
        clients.take(signed)?;
    }
    if let Some((authorities, _)) = ground.coordinator {
        clients.issue(plan, authorities)?;
    }
    for file in wanted.iter().filter_map(services::Unit::as_program).flat_map(|program| &program.files) {
        clients::write(file.path, file.contents.as_bytes(), 0o644)?;
    }
    let unit = |services::Unit { spec, run }| match run {
        services::Run::Program(program) => of_program(spec, *program, clients),
        services::Run::Task(task) => {
            Unit { spec, run: of_task(task, &ground, clients), probe: None, metrics: None, files: None }
        }
    };
    let (board_of_watch, made) = ((*board).clone(), clients.made());
    let watch = Run::steady(move || certificates::watch(board_of_watch.clone(), made.clone()));
    let watch = Unit::task(CERTIFICATES, Ends::Never, watch);
    Ok(wanted.into_iter().map(unit).chain([watch]).collect())
}

/// Work of a task of PID 1.
fn of_task(task: Task, ground: &Ground<'_>, clients: &Clients) -> Run {
    let (board, plan) = (ground.board.clone(), ground.plan.clone());
    let coordinator = || ground.coordinator.expect("the unit is wanted of a coordinator alone");
    let upkeep = || {
        let (authorities, records) = coordinator();
        Upkeep { kubernetes: authorities.kubernetes.clone(), plan: ground.plan.clone(), records: records.clone() }
    };
    match task {
        Task::Users => {
            let records = coordinator().1.clone();
            Run::task(move || records.clone().make_users())
        }
        Task::Balancer => {
            let (apiservers, tls, gateway) = (ground.apiservers.clone(), clients.of_node(), plan.assignment.gateway());
            Run::task(move || {
                let (apiservers, tls) = (apiservers.clone(), tls.clone());
                async move {
                    tokio::select! {
                        ended = apiservers.serve(gateway) => ended,
                        () = apiservers.look(&tls) => Ok(()),
                    }
                }
            })
        }
        Task::Images => Run::task(import::import),
        Task::Bootstrap => {
            let kubernetes = coordinator().0.kubernetes.clone();
            Run::task(move || node::bootstrap(kubernetes.clone(), plan.clone()))
        }
        Task::Nodes => {
            let upkeep = upkeep();
            Run::task(move || upkeep.clone().keep_nodes())
        }
        Task::Publisher => {
            let (upkeep, roll) = (upkeep(), ground.roll.clone());
            Run::task(move || upkeep.clone().publish(roll.clone()))
        }
        Task::Provisioner => {
            let authority = coordinator().0.cairn.public().pin();
            let (upkeep, calls) = (upkeep(), VolumeCalls::as_coordinator(ground.identity.clone(), authority));
            Run::task(move || upkeep.clone().provision(calls.clone()))
        }
        Task::PolicyCompiler => {
            let (authorities, records) = coordinator();
            let (kubernetes, records) = (authorities.kubernetes.clone(), records.clone());
            let compiler = PolicyCompiler { kubernetes, records, apiservers: ground.apiservers.clone() };
            Run::task(move || compiler.clone().keep())
        }
        Task::Metrics => {
            let (authorities, records) = coordinator();
            let (kubernetes, front) = (authorities.kubernetes.clone(), authorities.front.certificate().clone());
            let fellows = Fellows { identity: ground.identity.clone(), authority: authorities.cairn.public().pin() };
            let apiserver = plan.kubernetes_api();
            let metrics = Metrics { kubernetes, front, apiserver, records: records.clone(), fellows };
            Run::task(move || metrics.clone().serve())
        }
        Task::Observer => {
            let api = clients.kubernetes(&plan);
            let began = i64::try_from(clock::unix().saturating_sub(clock::uptime()).as_secs()).unwrap_or(0);
            Run::task(move || node::observe(board.clone(), api.clone(), plan.clone(), began))
        }
        Task::Resolvers => {
            let (gateway, resolvers) = (plan.assignment.gateway(), ground.resolvers.clone());
            let own = (gateway.expect("the unit is wanted of a worker alone"), plan.prefixes);
            Run::task(move || resolvers::follow(own, resolvers.clone()))
        }
        Task::Volumes => {
            let (machine, volumes) = (plan.machine, ground.volumes.clone());
            Run::task(move || {
                let served = volumes::serve(machine, volumes.clone());
                async move { served.await.map(|never| match never {}) }
            })
        }
        Task::Registries => {
            let orders = ground.orders.clone();
            Run::task(move || registries::follow(orders.clone()))
        }
        Task::Policies => {
            let (table, orders) = (ground.policies.clone(), ground.orders.clone());
            let pods = plan.assignment.pods().expect("the unit is wanted of a worker alone");
            Run::steady(move || policies::follow(board.clone(), (table.clone(), pods), orders.clone()))
        }
        Task::Pods => Run::Task(Box::new(|stop| Box::pin(pods::end_when(stop)))),
    }
}

/// Server of a page, as PID 1 is to ask it, and the page's path.
fn of_page(page: &ServicePage, clients: &Clients) -> (LocalServer, &'static str) {
    match *page {
        ServicePage::Http { address, path } => (LocalServer { address: address.into(), tls: None }, path),
        ServicePage::Https { address, path, authority, client } => (clients.endpoint(address, authority, client), path),
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
                services::ServicePrivileges::User { user, keeps } => Privileges::User(
                    user,
                    match keeps {
                        services::ServiceCapability::NetBindService => Capability::NetBindService,
                        services::ServiceCapability::NetAdmin => Capability::NetAdmin,
                    },
                ),
            },
            limits: program.limits,
            apart: program.record,
        }),
        probe: Some(match program.probe {
            services::ReadinessProbe::UnixSocket { path } => Probe::UnixSocket(path.into()),
            services::ReadinessProbe::Page(page) => {
                let (server, path) = of_page(&page, clients);
                Probe::Http(server, path.to_owned())
            }
        }),
        metrics: program.metrics.map(|page| {
            let (server, path) = of_page(&page, clients);
            MetricsPage { server, path }
        }),
        files: program.data.map(Path::new),
    }
}
