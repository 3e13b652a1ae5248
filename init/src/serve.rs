//! Serving: everything has been decided, services run until somebody asks for the end. Then the end, in order.

pub(crate) mod own;

use std::convert::Infallible;
use std::path::Path;
use std::time::Duration;

use enrol::plan::Capped;
use model::{Chain, Halted, Underway};
use supervise::StopReason;
use tokio::sync::watch;

use crate::enrolment::{self, Member};
use crate::machine::buttons::Buttons;
use crate::machine::power::{self, PowerRequest};
use crate::member::{self, Performer};
use crate::network::mesh::Mesh;
use crate::network::mesh::peers::Told;
use crate::network::uplink::Uplink;
#[cfg(feature = "faults")]
use crate::rpc::public::Broken;
use crate::rpc::public::PublicApi;
use crate::runtime::child::Children;
use crate::runtime::clock;
use crate::runtime::services::{Escalation, Services, until};
use crate::shown::board::Board;
use crate::shown::fatal::{Fatal, Remedy};
use crate::storage::{self, Mounted, Volumes};

/// For all services and pods together: a pod may take 30 s, etcd and the apiserver 15 s each.
const STOP_WITHIN: Duration = Duration::from_secs(75);

/// Time that people have to see why a machine cannot go on, unless they end it themselves.
const LATER: Duration = Duration::from_secs(600);

/// Parts that the boot made, from the moment on when people can be told.
#[derive(Debug)]
pub(crate) struct Machine {
    pub(crate) board: Board,
    children: Children,
    pub(crate) api: PublicApi,
    buttons: Buttons,
    serving: Option<Serving>,
}

/// Services of a member, and the file system they run on.
#[derive(Debug)]
struct Serving {
    services: Services,
    data: Mounted,
    volumes: Volumes,
}

impl Machine {
    /// Machine that serves nothing yet but its API.
    pub(crate) const fn new(board: Board, children: Children, api: PublicApi, buttons: Buttons) -> Self {
        Self { board, children, api, buttons, serving: None }
    }

    /// Does `work` as long as PID 1's own tasks can be kept up.
    ///
    /// # Errors
    /// [`Escalation`]: then it is left where it is.
    pub(crate) async fn beside<T>(&mut self, work: impl Future<Output = T>) -> Result<T, Escalation> {
        self.api.tree.beside(work).await
    }

    /// Waits for a reason to end: the API, a button, or a task of PID 1's own that cannot be kept up.
    async fn asked(&mut self) -> Result<PowerRequest, Fatal> {
        let asked = async {
            tokio::select! {
                Some(request) = self.api.power.recv() => Ok(request),
                request = self.buttons.pressed() => Ok(request),
                escalation = self.api.tree.escalated() => given_up(&self.board, escalation),
            }
        };
        #[cfg(feature = "faults")]
        let asked = self.api.context.faults.beside(Broken::Main, asked);
        asked.await
    }

    /// Stops what a member runs, and closes its data. Nothing to do where nothing runs.
    async fn close(&mut self, how: PowerRequest) {
        let Some(Serving { services, data, volumes }) = self.serving.take() else { return };
        // First: what takes up and lays down would find half of it gone.
        if let Err(error) = self.api.tree.want(Vec::new()).await {
            tracing::debug!(error = %Chain(&error), "a member's own tasks are left to the end");
        }
        let left = services.stop(reason(how), STOP_WITHIN).await;
        for service in left {
            tracing::error!(service = service.as_str(), "still running, left behind");
        }
        match storage::close_with(&volumes, data).await {
            Ok(()) => match storage::layers() {
                Ok(left) => tracing::info!(left = left.join(" "), "data partition closed"),
                Err(error) => tracing::warn!(%error, "data partition closed; what is left of it cannot be seen"),
            },
            Err(error) => tracing::error!(error = %Chain(&error), "data partition not closed"),
        }
    }

    /// Ends this boot, in order: a member's services, its data, then the API, which finishes its answers.
    async fn end(&mut self, how: PowerRequest) -> Result<Infallible, Fatal> {
        tracing::info!(?how, "stopping");
        // Before the first service is asked to stop.
        self.board.stopping();
        self.close(how).await;
        let _nothing_survives_the_end = self.api.tree.stop(reason(how), Duration::from_secs(2)).await;
        power::end(how)
    }
}

/// Serves a member, on its mesh and behind the cap, until it is asked to end.
///
/// # Errors
/// What could not be started, and what could not be mended.
pub(crate) async fn member(
    machine: &mut Machine,
    (member, underway): (Member, Underway),
    (uplink, mesh): (&Uplink, Mesh),
    _behind_the_cap: Capped,
) -> Result<Infallible, Fatal> {
    let Machine { board, children, api, serving, .. } = &mut *machine;
    let data = member.data.clone();
    let told = Told::default();
    api.context.reach.hear(told.clone());
    let volumes = Volumes::new(board.facts());
    api.context.reach.keep_volumes(volumes.clone(), member.renewing.directories().held());
    let mut services = Services::start(children, Vec::new())?;
    let serving = serving.insert(Serving { services: services.clone(), data, volumes });
    api.show(&services);
    let mut units = vec![
        own::mesh(&mesh, &told, &api.context.entrance.ways.exchange, board.facts()),
        own::directory(&member.renewing),
    ];
    let performer =
        Performer::new((board, uplink), &services, &api.context, (member, told), Path::new(enrolment::ROOT));
    units.extend(own::of_a_member(board, &services, &serving.data, &performer.absence()));
    let (mut shows, mut desired, begun) = (performer.shows(), performer.desired(), watch::Sender::new(false));
    units.extend([
        member::unit(&performer, &begun),
        member::floating_unit(&performer, uplink),
        own::published(uplink, &performer.ordered()),
    ]);
    api.tree.want(units).await?;
    let mut begins = begun.subscribe();
    let _we_hold_the_sender = api.tree.beside(begins.wait_for(|begun| *begun)).await?.map(drop);
    board.settled(&underway.runs(), "");
    board.condition(api::ConditionName::Running, api::Truth::True, "");
    let context = api.context.clone();
    let how = loop {
        tokio::select! {
            // First: the owner's first call may be the one that asks for the end.
            biased;
            () = context.entrance.claimed.notified() => enrolment::forget_first_contact().await?,
            // Owners are those of the desired state that is kept, of whom there may be others now.
            Ok(()) = async { tokio::select! { changed = shows.changed() => changed, changed = desired.changed() => changed } } => {
                let (identity, owners) = (shows.borrow_and_update().clone(), enrolment::owners(&desired.borrow_and_update()));
                machine.api.prove(&identity, &owners)?;
            }
            how = machine.asked() => break how?,
            escalation = services.escalated() => break given_up(&machine.board, escalation)?,
        }
    };
    machine.end(how).await
}

/// Keeps console and API up on a machine that waits to be given something, until it is, or until it is asked to end.
///
/// # Errors
/// What could not be mended.
pub(crate) async fn waiting<T>(machine: &mut Machine, given: impl Future<Output = T>) -> Result<T, Fatal> {
    let how = tokio::select! {
        given = given => return Ok(given),
        how = machine.asked() => how?,
    };
    match machine.end(how).await? {}
}

/// Keeps console and API up on a machine that cannot go on, and says why, until it is asked to end. What the next boot may mend
/// it leaves to that, though not at once: nobody can read the reason of a machine that restarts for ever.
///
/// # Errors
/// `fatal`, where it is the next boot's.
pub(crate) async fn halted(machine: &mut Machine, fatal: Fatal) -> Result<Infallible, Fatal> {
    let (halted, again) = match fatal.remedy() {
        Remedy::Restart => return Err(fatal),
        Remedy::Later => (Halted::failed(), Some(clock::now() + LATER)),
        Remedy::Owner => (Halted::needs_owner(), None),
    };
    machine.board.halted(&halted, &fatal.to_string());
    machine.api.context.reach.coordinate(None, None);
    machine.close(PowerRequest::Reboot).await;
    let how = tokio::select! {
        how = machine.asked() => how?,
        () = until(again) => return Err(fatal),
    };
    machine.end(how).await
}

/// How a boot ends whose tree gave up: in order, as long as there is somebody to stop services in order.
fn given_up(board: &Board, escalation: Escalation) -> Result<PowerRequest, Fatal> {
    match escalation {
        Escalation::Service(_) => {
            board.error(&format!("{escalation}: the machine starts again"));
            Ok(PowerRequest::Reboot)
        }
        Escalation::Damage { .. } | Escalation::Supervision => Err(escalation.into()),
    }
}

const fn reason(how: PowerRequest) -> StopReason {
    match how {
        PowerRequest::Reboot => StopReason::Reboot,
        PowerRequest::PowerOff => StopReason::PowerOff,
    }
}
