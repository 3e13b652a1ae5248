//! A node drained for an owner: what is left of its pods is told as it goes on; when the owner leaves it stops.

use std::time::Duration;

use api::{DrainRequest, wire};
use model::Chain;
use tokio::sync::mpsc;
use tokio_stream::StreamExt;
use tonic::Status;
use upkeep::drain::{DrainError, PodLeft};

use super::context::Context;
use super::streams::{self, Answers};
use crate::control::{self, DrainFailure, DrainTerms};
use crate::runtime::tasks;

/// Drains a node, or has it take pods again.
///
/// # Errors
/// When this machine is no coordinator, or knows no apiserver.
pub(super) fn drain(context: &Context, request: DrainRequest) -> Result<Answers<wire::DrainMachineResponse>, Status> {
    let api = context.reach.kubernetes()?.session();
    let mut api = api.map_err(|error| Status::unavailable(format!("{}; nothing was done", Chain(&error))))?;
    // A look is told while the next is made.
    let (told, looks) = mpsc::channel(1);
    let draining = tasks::spawn(async move {
        let DrainRequest { node, force, undo, seconds, with_volumes } = request;
        let done = if undo {
            control::set_cordon(&mut api, &node, false).await
        } else {
            let terms = DrainTerms { force, with_volumes, within: Duration::from_secs(seconds.into()) };
            control::drain(&mut api, node.clone(), terms, &told).await
        };
        match &done {
            Ok(()) => tracing::info!(%node, undo, "an owner had a node drained, or take pods again"),
            Err(error) => {
                tracing::info!(%node, error = %Chain(error), "a node is not drained");
                let _may_have_left = told.send(Err(refusal(error))).await;
            }
        }
    });
    Ok(Box::pin(streams::kept(looks, draining).map(|look| look.map(shown))))
}

fn shown(left: Vec<PodLeft>) -> wire::DrainMachineResponse {
    let left = left.into_iter().map(|PodLeft { pod, why }| wire::PodLeft { pod, why });
    wire::DrainMachineResponse { left: left.collect() }
}

fn refusal(error: &DrainFailure) -> Status {
    let text = Chain(error).to_string();
    match error {
        DrainFailure::NoNode(_) => Status::not_found(format!("{text}; nothing was done")),
        DrainFailure::Drain(DrainError::Unmanaged(_) | DrainError::Tied(_)) => {
            Status::failed_precondition(format!("{text}; nothing was done"))
        }
        DrainFailure::Late(..) => Status::failed_precondition(text),
        DrainFailure::Left => Status::cancelled(text),
        DrainFailure::Http(_)
        | DrainFailure::Refused(..)
        | DrainFailure::Volumes(_)
        | DrainFailure::Drain(DrainError::List(_)) => Status::unavailable(text),
    }
}
