//! Performs a drain of crate `upkeep`: asks an apiserver for the pods of a node and for their evictions, until none is left or
//! time is over. Whoever stops it leaves the node without new pods.

use std::time::Duration;

use kubeapi::FollowError;
use model::NodeName;
use probe::http::{self, Session};
use tokio::sync::mpsc;
use upkeep::drain::{Drain, DrainError, DrainStep, PodLeft, cordon, pods_path};
use upkeep::volumes::{self, HeldClaims, PersistentVolume, VOLUMES};

use super::listed::{self, ListedError};
use crate::runtime::clock;

/// Between two looks at the pods: one that ends takes seconds.
const LOOK: Duration = Duration::from_secs(1);

/// Longest silence of the apiserver: it may be started anew meanwhile.
const SILENCE: Duration = Duration::from_secs(30);

/// Why a node is not drained.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DrainFailure {
    /// No apiserver answers.
    #[error("ask the Kubernetes API")]
    Http(#[from] http::Error),
    /// The pods cannot be told, or some would be lost.
    #[error(transparent)]
    Drain(#[from] DrainError),
    /// The volumes cannot be listed.
    #[error(transparent)]
    Volumes(#[from] FollowError),
    /// The apiserver has no such node.
    #[error("Kubernetes has no node `{0}`")]
    NoNode(NodeName),
    /// The apiserver refuses.
    #[error("{0}: the Kubernetes API answers {1}")]
    Refused(&'static str, u16),
    /// Time is over.
    #[error("after {} s pods are left: {}", .0.as_secs(), each(.1))]
    Late(Duration, Vec<PodLeft>),
    /// The caller left.
    #[error("the caller left")]
    Left,
}

fn each(left: &[PodLeft]) -> String {
    left.iter().map(|PodLeft { pod, why }| format!("{pod} ({why})")).collect::<Vec<_>>().join("; ")
}

/// Terms of a drain.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DrainTerms {
    /// Whether pods end that nobody makes again, or that wait for this machine then.
    pub(crate) force: bool,
    /// Whether pods end whose volumes are on the machine, as those go with it.
    pub(crate) with_volumes: bool,
    /// How long it may take.
    pub(crate) within: Duration,
}

/// Drains a node, and tells after each look what is left, until nobody listens any more.
///
/// # Errors
/// [`DrainFailure`]. Before the first word the node is as it was.
pub(crate) async fn drain<E>(
    api: &mut Session,
    node: NodeName,
    terms: DrainTerms,
    told: &mpsc::Sender<Result<Vec<PodLeft>, E>>,
) -> Result<(), DrainFailure> {
    let mut patience = Patience(clock::uptime());
    let mut drain = loop {
        match begin(api, &node, terms).await {
            Err(DrainFailure::Http(silent)) => patience.wait(silent).await?,
            begun => break begun?,
        }
    };
    loop {
        match look(api, &mut drain, terms, told).await {
            Err(DrainFailure::Http(silent)) => patience.wait(silent).await?,
            Ok(true) => return Ok(()),
            Ok(false) => {
                patience = Patience(clock::uptime());
                tokio::time::sleep(LOOK).await;
            }
            Err(failure) => return Err(failure),
        }
    }
}

/// Time of the last answer.
struct Patience(Duration);

impl Patience {
    async fn wait(&self, silent: http::Error) -> Result<(), DrainFailure> {
        if clock::uptime() >= self.0 + SILENCE {
            return Err(silent.into());
        }
        tokio::time::sleep(LOOK).await;
        Ok(())
    }
}

async fn begin(api: &mut Session, node: &NodeName, terms: DrainTerms) -> Result<Drain, DrainFailure> {
    let list = pods(api, node).await?;
    let held = if terms.with_volumes { HeldClaims::new() } else { held_claims(api).await? };
    let drain = Drain::begin(node.clone(), &list, &held, terms.force, clock::uptime() + terms.within)?;
    set_cordon(api, node, true).await?;
    Ok(drain)
}

/// Asks once for what is due; whether the node is drained.
async fn look<E>(
    api: &mut Session,
    drain: &mut Drain,
    terms: DrainTerms,
    told: &mpsc::Sender<Result<Vec<PodLeft>, E>>,
) -> Result<bool, DrainFailure> {
    let list = pods(api, drain.node()).await?;
    let (evictions, left) = match drain.look(&list, clock::uptime())? {
        DrainStep::Drained => return Ok(true),
        DrainStep::Late(left) => return Err(DrainFailure::Late(terms.within, left)),
        DrainStep::Evict(evictions, left) => (evictions, left),
    };
    told.send(Ok(left)).await.map_err(|_| DrainFailure::Left)?;
    for eviction in evictions {
        let answer = api.post(&eviction.path, eviction.body.into()).await?;
        drain.answered(&eviction.pod, answer.status, &answer.body);
    }
    Ok(false)
}

/// Has a node take new pods, or none.
///
/// # Errors
/// [`DrainFailure`]: the node is as it was.
pub(crate) async fn set_cordon(api: &mut Session, node: &NodeName, cordoned: bool) -> Result<(), DrainFailure> {
    let (path, patch) = cordon(node, cordoned);
    match api.merge(&path, patch.into()).await?.status {
        200 => Ok(()),
        404 => Err(DrainFailure::NoNode(node.clone())),
        status => Err(DrainFailure::Refused("change the node", status)),
    }
}

/// Claims whose volumes are on machines' own disks.
async fn held_claims(api: &mut Session) -> Result<HeldClaims, DrainFailure> {
    match listed::all::<PersistentVolume>(api, VOLUMES).await {
        Ok(volumes) => Ok(volumes::held_claims(&volumes)),
        Err(ListedError::Http(silent)) => Err(silent.into()),
        Err(ListedError::Follow(unread)) => Err(unread.into()),
    }
}

async fn pods(api: &mut Session, node: &NodeName) -> Result<Vec<u8>, DrainFailure> {
    let answer = api.get(&pods_path(node)).await?;
    if answer.status == 200 { Ok(answer.body.to_vec()) } else { Err(DrainFailure::Refused("list pods", answer.status)) }
}
