//! `machine drain`: the pods of a machine are made on others, and new ones too; also the first step where a machine is to run pods no
//! more.

use std::time::Duration;

use api::{DrainRequest, LeavingData};
use clap::Args;
use model::NodeName;

use crate::failure::Failure;
use crate::length;
use crate::machine::{CallError, Session};
use crate::screen::Progress;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  cairnctl machine drain m3           before m3 is switched off for a while
  cairnctl machine drain m3 --undo    it takes pods again

Each pod is asked to end as its disruption budget lets it, and whoever manages
it makes it again on another machine. Pods of a DaemonSet stay. A pod that
nobody makes again, or whose volume is on this machine, is named before
anything is done, and ends by --force. What is left when time is over is named,
with the reason; the machine takes no new pods then, until --undo.")]
pub(crate) struct Drain {
    /// The machine's name or id, as `cairnctl machine list` shows it
    #[arg(value_name = "MACHINE")]
    pub(super) called: String,
    /// Have the machine take pods again
    #[arg(long)]
    pub(super) undo: bool,
    /// End pods as well that nobody makes again, or that cannot run elsewhere
    #[arg(long, conflicts_with = "undo")]
    pub(super) force: bool,
    /// How long it may take
    #[arg(long, value_name = "TIME", default_value = "5m", value_parser = length::parse)]
    pub(super) timeout: Duration,
}

impl Drain {
    /// Drains the node of this name, or has it take pods again; what was done.
    pub(super) async fn perform(&self, session: &mut Session, node: NodeName) -> Result<String, Failure> {
        let Self { undo, force, timeout, .. } = *self;
        let did = if undo {
            format!("machine `{node}` takes new pods")
        } else {
            format!("machine `{node}` is drained, and takes no new pods: cairnctl machine drain {node} --undo")
        };
        let request = DrainRequest { node, force, undo, seconds: seconds(timeout), with_volumes: false };
        drain(session, request).await?;
        Ok(did)
    }
}

/// Moves the pods of a machine that is to run none any more. One that Kubernetes has no node of has none.
pub(super) async fn before_leaving(
    session: &mut Session,
    node: NodeName,
    data: LeavingData,
    timeout: Duration,
) -> Result<(), Failure> {
    let with_volumes = data == LeavingData::GivenUp;
    let request = DrainRequest { node, force: false, undo: false, seconds: seconds(timeout), with_volumes };
    let drained = drain(session, request).await;
    drained.or_else(|failure| {
        if failure.is::<CallError>(|error| matches!(error, CallError::NotFound { .. })) { Ok(()) } else { Err(failure) }
    })
}

fn seconds(length: Duration) -> u32 {
    u32::try_from(length.as_secs()).unwrap_or(u32::MAX)
}

async fn drain(session: &mut Session, request: DrainRequest) -> Result<(), Failure> {
    let (mut progress, name, mut began) = (Progress::start(), request.node.clone(), false);
    let mut looks = session.drain_machine(request).await?;
    let stopped = loop {
        match looks.next().await {
            Ok(None) => return Ok(()),
            Ok(Some(left)) => {
                began = true;
                let pods: Vec<_> = left.iter().map(|(pod, why)| format!("{pod} ({why})")).collect();
                progress.show(&format!("{name}: {} pods are left: {}", pods.len(), pods.join("; ")));
            }
            Err(error) => break error,
        }
    };
    let may_be_forced = matches!(stopped, CallError::NotNow { .. }) && !began;
    let failure = Failure::from(stopped);
    Err(if began {
        failure
            .leaving(format!("`{name}` takes no new pods; those that were moved run elsewhere"))
            .going_on(format!("go on: cairnctl machine drain {name}; or have it take pods again: --undo"))
    } else if may_be_forced {
        failure.going_on(format!("to end them nevertheless: cairnctl machine drain {name} --force"))
    } else {
        failure
    })
}
