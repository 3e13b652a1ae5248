//! Serving: everything has been decided, services run until somebody asks for the end. Then the end, in order.

mod office;
pub(crate) mod own;

use std::convert::Infallible;
use std::path::Path;
use std::time::Duration;

use enrol::plan::Capped;
use model::{Chain, KubernetesRole, Underway};
use supervise::StopReason;
use tokio::sync::watch;

use crate::consensus::ask::Asker;
use crate::enrolment::{self, Member};
use crate::machine::buttons::Buttons;
use crate::machine::power::{self, PowerRequest};
use crate::network::mesh::Mesh;
use crate::network::mesh::peers::Told;
use crate::rpc::public::{Broken, PublicApi};
use crate::runtime::child::Children;
use crate::runtime::services::{Escalation, Services};
use crate::runtime::tasks;
use crate::shown::board::Board;
use crate::shown::fatal::Fatal;
use crate::storage;

use office::Office;

/// For all services and pods together: a pod may take 30 s, etcd and the apiserver 15 s each.
const STOP_WITHIN: Duration = Duration::from_secs(75);

/// What the boot made.
#[derive(Debug)]
pub(crate) struct Machine {
    pub(crate) board: Board,
    pub(crate) children: Children,
    pub(crate) api: PublicApi,
    pub(crate) buttons: Buttons,
    pub(crate) member: Box<Member>,
    pub(crate) underway: Underway,
}

/// Serves a member, on its mesh and behind the cap, until it is asked to end.
///
/// # Errors
/// What could not be started; and what could not be mended: the machine then starts again.
pub(crate) async fn machine(machine: Machine, mesh: Mesh, _behind_the_cap: Capped) -> Result<Infallible, Fatal> {
    let Machine { board, children, mut api, mut buttons, member, underway } = machine;
    let is_worker = member.assignment.kubernetes().contains(&KubernetesRole::Worker);
    let node = if is_worker { storage::Node::Awaited } else { storage::Node::Never };
    let (data, owners) = (member.data.clone(), member.owners.clone());
    let asker = Asker {
        identity: member.identity.clone(),
        vpn_ip: member.assignment.vpn_ip(),
        key_generation: member.recorded.key_generation,
        facts: board.facts().clone(),
        told: Told::default(),
        root: Path::new(enrolment::ROOT),
        role: watch::Sender::new(None),
        epoch: watch::Sender::new(None),
        records: api.context.coordinating(),
        directories: member.renewing.directories(),
    };
    api.context.hear(asker.told.clone());
    let mut services = Services::start(&children, vec![own::hears(&asker), own::keeps(&asker.told, asker.root)])?;
    api.show(&services);
    api.tree.take(own::of_a_member(&board, &services, &data, node)).await?;
    api.tree.take(vec![own::mesh(&mesh, &asker.told, board.facts()), own::directory(&member.renewing)]).await?;
    let office = Office::new(&board, &services, &api.context, *member, asker);
    let mut shows = office.shows();
    office.begin().await?;
    api.tree.take(vec![own::office(&office)]).await?;
    board.settled(&underway.runs(), "");
    board.condition(api::ConditionName::Running, api::Truth::True, "");
    let context = api.context.clone();
    let how = loop {
        tokio::select! {
            // First: the owner's first call may be the one that asks for the end.
            biased;
            () = context.claimed.notified() => enrolment::forget_first_contact().await?,
            Ok(()) = shows.changed() => {
                let identity = shows.borrow_and_update().clone();
                api.prove(&identity, &owners)?;
            }
            how = asked(&board, &mut api, &mut buttons) => break how?,
            escalation = services.escalated() => break given_up(&board, escalation)?,
            never = context.break_down_of(Broken::Main) => match never {},
        }
    };
    begin_to_end(&board, how);
    let left = services.stop(reason(how), STOP_WITHIN).await;
    for service in left {
        tracing::error!(service = service.as_str(), "still running, left behind");
    }
    match tasks::blocking(move || storage::close(&data)).await {
        Ok(()) => tracing::info!(left = storage::layers().unwrap_or_default().join(" "), "data partition closed"),
        Err(error) => tracing::error!(error = %Chain(&error), "data partition not closed"),
    }
    end(&api, how).await
}

/// Keeps console and API up on a machine that waits to be given something, until it is, or until it is asked to end.
///
/// # Errors
/// What could not be mended: the machine then starts again.
pub(crate) async fn waiting<T>(
    board: &Board,
    api: &mut PublicApi,
    buttons: &mut Buttons,
    given: impl Future<Output = T>,
) -> Result<T, Fatal> {
    let how = tokio::select! {
        given = given => return Ok(given),
        how = asked(board, api, buttons) => how?,
    };
    begin_to_end(board, how);
    match end(api, how).await? {}
}

/// Waits for a reason to end: the API, a button, or a task of PID 1's own that cannot be kept up.
async fn asked(board: &Board, api: &mut PublicApi, buttons: &mut Buttons) -> Result<PowerRequest, Fatal> {
    tokio::select! {
        Some(request) = api.power.recv() => Ok(request),
        request = buttons.pressed() => Ok(request),
        escalation = api.tree.escalated() => given_up(board, escalation),
    }
}

/// How a boot ends whose tree gave up: in order, as long as there is somebody to stop services in order.
fn given_up(board: &Board, escalation: Escalation) -> Result<PowerRequest, Fatal> {
    match escalation {
        Escalation::Service(_) => {
            board.error(&format!("{escalation}: the machine starts again"));
            Ok(PowerRequest::Reboot)
        }
        Escalation::Supervision => Err(escalation.into()),
    }
}

/// Says so, before the first service is asked to stop.
fn begin_to_end(board: &Board, how: PowerRequest) {
    tracing::info!(?how, "stopping");
    board.stopping();
}

const fn reason(how: PowerRequest) -> StopReason {
    match how {
        PowerRequest::Reboot => StopReason::Reboot,
        PowerRequest::PowerOff => StopReason::PowerOff,
    }
}

/// Lets the API finish its answers, then ends this boot.
async fn end(api: &PublicApi, how: PowerRequest) -> Result<Infallible, Fatal> {
    let _nothing_survives_the_end = api.tree.stop(reason(how), Duration::from_secs(2)).await;
    power::end(how)
}
