//! etcd's members for owners: how each is, and their defragmentation, told as it goes on. Before each member all are looked at again.

use std::collections::BTreeSet;

use api::{DefragmentStep, wire};
use cluster::backends::{DefragmentRefusal, EtcdAlarm};
use model::{Chain, MachineId, NodeName};
use tokio::sync::mpsc;
use tokio_stream::StreamExt;
use tonic::Status;

use super::context::Context;
use super::streams::{self, Answers};
use crate::records::link::NoAnswer;
use crate::records::{BackendsLook, DefragmentEnd, MembersError, Records};
use crate::runtime::tasks;

/// Why a defragmentation does not begin, or go on.
#[derive(Debug, thiserror::Error)]
enum DefragmentStop {
    #[error(transparent)]
    Refused(#[from] DefragmentRefusal),
    #[error("{0}'s etcd leads, and its machine alone has members defragmented")]
    OtherLeads(NodeName),
    #[error(
        "a member is being defragmented, or was asked to within the last ten minutes and did not say that it is done"
    )]
    Busy,
    #[error("the members cannot be looked at")]
    Unseen(#[source] MembersError),
    #[error("{0} did not say that it is done, and may go on")]
    Unknown(NodeName, #[source] NoAnswer),
    #[error("{0} was not defragmented")]
    Failed(NodeName, #[source] MembersError),
    #[error("the alarm NOSPACE was not disarmed")]
    Armed(#[source] MembersError),
}

impl DefragmentStop {
    /// Status of the call, after these members were done.
    fn status(&self, done: &[NodeName]) -> Status {
        let done: Vec<_> = done.iter().map(NodeName::as_str).collect();
        let left = match (self, done.as_slice()) {
            (Self::Unknown(..), []) => "no other member was asked to".to_owned(),
            (_, []) => "nothing was done".to_owned(),
            (_, done) => format!("done before: {}; the others were left as they are", done.join(", ")),
        };
        let text = format!("{}; {left}", Chain(self));
        match self {
            Self::Refused(DefragmentRefusal::NoMember(_)) => Status::not_found(text),
            Self::Refused(_) | Self::OtherLeads(_) | Self::Busy => Status::failed_precondition(text),
            Self::Unseen(_) | Self::Unknown(..) | Self::Failed(..) | Self::Armed(_) => Status::unavailable(text),
        }
    }
}

/// Tells the members of etcd.
///
/// # Errors
/// When this machine is no coordinator, or its own etcd does not answer.
pub(super) async fn list(context: &Context) -> Result<wire::EtcdStatusResponse, Status> {
    let listed = context.reach.records()?.list_etcd().await;
    Ok(listed.map_err(|error| Status::unavailable(Chain(&error).to_string()))?.into())
}

/// Has these members defragmented, or all that vote.
///
/// # Errors
/// When this machine is no coordinator.
pub(super) fn defragment(
    context: &Context,
    asked: BTreeSet<MachineId>,
) -> Result<Answers<wire::DefragmentEtcdResponse>, Status> {
    let records = context.reach.records()?;
    // A step is told while the next is taken.
    let (told, steps) = mpsc::channel(1);
    let working = tasks::spawn(async move {
        let (mut done, asked) = (Vec::new(), Some(asked).filter(|asked| !asked.is_empty()));
        if let Err(stop) = each(&records, asked.as_ref(), &told, &mut done).await {
            let status = stop.status(&done);
            tracing::info!(why = status.message(), "members of etcd are not defragmented for an owner");
            let _may_have_left = told.send(Err(status)).await;
        }
    });
    Ok(Box::pin(streams::kept(steps, working).map(|step: Result<DefragmentStep, _>| step.map(Into::into))))
}

async fn each(
    records: &Records,
    asked: Option<&BTreeSet<MachineId>>,
    told: &mpsc::Sender<Result<DefragmentStep, Status>>,
    done: &mut Vec<NodeName>,
) -> Result<(), DefragmentStop> {
    let (first, order) = look(records, asked).await?;
    for machine in order {
        let (now, _) = look(records, asked).await?;
        let member = now.backends.members.get(&machine).ok_or(DefragmentRefusal::NoMember(machine))?;
        let (name, bytes) = (member.name.clone(), member.backend.map_or(0, |backend| backend.size));
        if told.send(Ok(DefragmentStep::Begin { name: name.clone(), bytes })).await.is_err() {
            return Ok(()); // the owner has left
        }
        match records.defragment(machine).await {
            Ok(DefragmentEnd::Done) => {}
            Ok(DefragmentEnd::Busy) => return Err(DefragmentStop::Busy),
            Ok(DefragmentEnd::Unknown(error)) => return Err(DefragmentStop::Unknown(name, error)),
            Err(error) => return Err(DefragmentStop::Failed(name, error)),
        }
        let after = records.look_at_backends().await.ok();
        let bytes = after.and_then(|after| Some(after.backends.members.get(&machine)?.backend?.size));
        done.push(name.clone());
        let _noticed_before_the_next = told.send(Ok(DefragmentStep::End { name, bytes })).await;
    }
    if first.backends.alarms.contains(&EtcdAlarm::NoSpace) {
        let now = records.look_at_backends().await.map_err(DefragmentStop::Unseen)?;
        let step = if now.backends.have_room() {
            records.disarm_no_space().await.map_err(DefragmentStop::Armed)?;
            DefragmentStep::Disarmed
        } else {
            DefragmentStep::StillFull
        };
        let _may_have_left = told.send(Ok(step)).await;
    }
    Ok(())
}

/// Looks at the members; the order in which they may be defragmented now, by this machine's word.
async fn look(
    records: &Records,
    asked: Option<&BTreeSet<MachineId>>,
) -> Result<(BackendsLook, Vec<MachineId>), DefragmentStop> {
    let now = records.look_at_backends().await.map_err(DefragmentStop::Unseen)?;
    if let Some(leader) = now.leader().filter(|_| !now.leads) {
        return Err(DefragmentStop::OtherLeads(leader.clone()));
    }
    let order = now.backends.order(asked)?;
    Ok((now, order))
}
