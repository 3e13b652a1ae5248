//! Machines that are to leave the cluster: while claims have volumes on one it stays, unless its owner gives the data up. What Kubernetes
//! knows is asked here; what counts is judged by `upkeep`.

use model::{Chain, KubernetesRole, MachineId};
use tonic::Status;
use upkeep::volumes::{VOLUMES, may_leave};

use super::context::Context;
use crate::control;

/// Lets a machine leave that has nobody's data.
///
/// # Errors
/// When claims have volumes on it, or nobody can tell.
pub(super) async fn check(context: &Context, machine: MachineId) -> Result<(), Status> {
    let (kubernetes, records) = (context.reach.kubernetes()?, context.reach.records()?);
    // By the records: a coordinator that has not heard of a control plane yet says nothing by that.
    let runs = records.read(|view, _| {
        let mut machines = view.state().machines();
        machines.any(|(_, it)| it.belongs() && it.kubernetes.contains(&KubernetesRole::ControlPlane))
    })?;
    if !runs {
        return Ok(());
    }
    let unknown = |error: &(dyn std::error::Error + 'static)| {
        Status::unavailable(format!(
            "which volumes are on the machine is not known: {}; nothing was changed",
            Chain(error)
        ))
    };
    let mut api = kubernetes.session().map_err(|error| unknown(&error))?;
    let volumes = control::all(&mut api, VOLUMES).await.map_err(|error| unknown(&error))?;
    may_leave(machine, &volumes).map_err(|held| Status::failed_precondition(format!("{held}; nothing was changed")))
}
