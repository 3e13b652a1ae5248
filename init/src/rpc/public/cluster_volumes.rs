//! Volumes of all workers, for owners: each with what Kubernetes says of it. Those that it says nothing of are deleted by their word.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::Arc;

use ::volumes::{VolumeHolder, VolumeId};
use api::{ListedVolume, VolumeRemoval, VolumesOfMachine, WorkerVolumes};
use model::{Chain, MachineId, NodeName};
use probe::http::Session;
use tokio::task::JoinSet;
use tonic::Status;
use upkeep::volumes::{CLAIMS, VOLUMES, VolumeAnswer, VolumeAsk, VolumeCall, holders};

use super::context::Context;
use super::kubernetes::KubernetesAccess;
use crate::control::{ListedError, all};

/// Refusal to delete a volume that somebody counts on.
#[derive(Debug, thiserror::Error)]
enum HeldVolume {
    /// A claim has it.
    #[error(
        "claim {namespace}/{name} has it; nothing was done; delete the claim: kubectl delete -n {namespace} pvc/{name}"
    )]
    Claim { namespace: String, name: String },
    /// An object names it.
    #[error("PersistentVolume {0} names it; nothing was done; delete the object: kubectl delete pv/{0}")]
    Object(String),
}

impl From<VolumeHolder> for HeldVolume {
    fn from(holder: VolumeHolder) -> Self {
        match holder {
            VolumeHolder::Claim { namespace, name } => Self::Claim { namespace, name },
            VolumeHolder::Object(name) => Self::Object(name),
        }
    }
}

/// Worker of the records.
struct Worker {
    machine: MachineId,
    name: NodeName,
    address: Ipv4Addr,
}

/// Volumes of each worker. All are asked at once: one that is silent keeps the caller waiting for no longer than many.
///
/// # Errors
/// When this machine is no coordinator, or no apiserver answers.
pub(super) async fn list(context: &Context) -> Result<Vec<WorkerVolumes>, Status> {
    let (kubernetes, records) = (context.reach.kubernetes()?, context.reach.records()?);
    let held = held(&mut session(&kubernetes)?).await?;
    let workers: Vec<Worker> = records.read(|view, _| {
        let workers = view.state().workers();
        workers.map(|(id, it)| Worker { machine: *id, name: it.name.clone(), address: it.vpn_ip }).collect()
    })?;
    let mut asked = JoinSet::new();
    for worker in workers {
        let kubernetes: Arc<KubernetesAccess> = kubernetes.clone();
        asked.spawn(async move {
            let told = kubernetes.volumes.look(worker.machine, worker.address).await;
            (worker, told)
        });
    }
    let mut workers: Vec<_> = asked.join_all().await;
    workers.sort_by(|(one, _), (other, _)| one.name.as_str().cmp(other.name.as_str()));
    Ok(workers.into_iter().map(|(worker, told)| row(worker, told, &held)).collect())
}

fn row(worker: Worker, told: Option<VolumesOfMachine>, held: &BTreeMap<VolumeId, VolumeHolder>) -> WorkerVolumes {
    let row = |listed: ListedVolume| (listed, held.get(&listed.volume).cloned());
    let held = told.map(|told| told.volumes.into_iter().map(row).collect());
    WorkerVolumes { machine: worker.machine, name: worker.name, held }
}

/// Deletes a volume that nobody holds.
///
/// # Errors
/// When somebody does, the machine is none of the cluster, or does not do it.
pub(super) async fn remove(context: &Context, VolumeRemoval { machine, volume }: VolumeRemoval) -> Result<(), Status> {
    let (kubernetes, records) = (context.reach.kubernetes()?, context.reach.records()?);
    if records.read(|view, _| view.state().machine(&machine).is_none())? {
        return Err(Status::not_found(format!("the cluster has no machine {machine}; nothing was done")));
    }
    if let Some(holder) = held(&mut session(&kubernetes)?).await?.remove(&volume) {
        return Err(Status::failed_precondition(HeldVolume::from(holder).to_string()));
    }
    match kubernetes.volumes.make(&records, &VolumeCall::by_hand(machine, VolumeAsk::Delete(volume))).await {
        VolumeAnswer::Done => {
            tracing::info!(%machine, %volume, "an owner deleted a volume that nobody holds");
            Ok(())
        }
        VolumeAnswer::Refused(why) | VolumeAnswer::Full(why) => Err(Status::failed_precondition(why)),
        VolumeAnswer::Silent | VolumeAnswer::Room(_) => {
            Err(Status::unavailable("the machine does not answer; whether the volume is gone is not known; try again"))
        }
    }
}

/// Holders of all volumes of the cluster.
async fn held(api: &mut Session) -> Result<BTreeMap<VolumeId, VolumeHolder>, Status> {
    let silent = |error: ListedError| Status::unavailable(format!("{}; nothing was done", Chain(&error)));
    let claims = all(api, CLAIMS).await.map_err(silent)?;
    let volumes = all(api, VOLUMES).await.map_err(silent)?;
    Ok(holders(&claims, &volumes))
}

fn session(kubernetes: &KubernetesAccess) -> Result<Session, Status> {
    kubernetes.session().map_err(|error| Status::unavailable(format!("{}; nothing was done", Chain(&error))))
}
