//! The shell of a supervision tree: performs what `supervise` decides, and tells it what came of it.
//!
//! ```text
//!   requests ─┐                       ┌─► spawn / task ─► Spawned, Exited, CgroupEmpty ─┐
//!   deadlines ┼─► supervise::Tree ─► effects ─► probe ─► Ready ─────────────────────────┼─► back in
//!   events ◄──┘                       └─► terminate, kill, report, escalate             │
//!        ▲──────────────────────────────────────────────────────────────────────────────┘
//! ```
//! It decides nothing by itself; what a failure means is the tree's matter, what an escalation means is `power`'s.

use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use api::ConditionName;
use model::Chain;
use probe::Probe;
use rustix::process::{Pid, Signal};
use supervise::{Effect, Ending, Event, Exit, Instance, InvalidTree, Report, Spec, Status, StopReason, Tree};
use tokio::sync::{mpsc, oneshot, watch};

use crate::runtime::child::{Cgroup, Children, Command, Running};
use crate::runtime::clock;
use crate::runtime::tasks::{self, Task};

/// A task's future.
pub(crate) type Work = Pin<Box<dyn Future<Output = Result<(), Failure>> + Send>>;
/// How a task fails; told to the log once.
pub(crate) type Failure = Box<dyn std::error::Error + Send + Sync>;
/// Resolves when the task is asked to end; it then has its stop deadline to do so.
pub(crate) type Stop = oneshot::Receiver<()>;

/// A row of a tree's table.
pub(crate) struct Unit {
    /// When it runs, and what its end means.
    pub(crate) spec: Spec,
    /// What is started when its time has come.
    pub(crate) run: Run,
    /// How one sees that it is ready, where its spec asks for a probe.
    pub(crate) probe: Option<Probe>,
    /// What holds as long as it is ready.
    pub(crate) condition: Option<ConditionName>,
}

/// What a unit is.
pub(crate) enum Run {
    /// A child process.
    Child(Command),
    /// A task of this process, made anew for each attempt.
    Task(Box<dyn Fn(Stop) -> Work + Send + Sync>),
}

impl Run {
    /// A task that just ends where it is when it is asked to.
    pub(crate) fn task<F, W, E>(make: F) -> Self
    where
        F: Fn() -> W + Send + Sync + 'static,
        W: Future<Output = Result<(), E>> + Send + 'static,
        E: std::error::Error + Send + Sync + 'static,
    {
        Self::Task(Box::new(move |stop| {
            let work = make();
            Box::pin(async move {
                tokio::select! {
                    ended = work => ended.map_err(Failure::from),
                    _told = stop => Ok(()),
                }
            })
        }))
    }
}

impl fmt::Debug for Unit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Unit").field("name", &self.spec.name).finish_non_exhaustive()
    }
}

/// One service as it is now.
#[derive(Debug, Clone)]
pub(crate) struct Snapshot {
    /// What the tree says.
    pub(crate) status: Status,
    /// Its main process, while there is one.
    pub(crate) pid: Option<Pid>,
    /// What holds as long as it is ready.
    pub(crate) condition: Option<ConditionName>,
}

/// What the tree could not mend by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Escalation {
    /// The service that failed too often.
    pub(crate) service: &'static str,
}

/// A handle on a running tree. The tree ends when the last handle is gone.
#[derive(Debug, Clone)]
pub(crate) struct Services {
    requests: mpsc::Sender<Request>,
    state: watch::Receiver<Vec<Snapshot>>,
    escalated: watch::Receiver<Option<Escalation>>,
    _shell: Arc<Task<()>>,
}

#[derive(Debug)]
enum Request {
    Restart(String, oneshot::Sender<Result<(), UnknownService>>),
    Stop(StopReason, Duration, oneshot::Sender<Vec<&'static str>>),
}

/// No service of that name is supervised.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("no such service")]
pub(crate) struct UnknownService;

/// People ask one thing at a time; a bound of 16 lets a few of them ask at once.
const REQUESTS: usize = 16;
/// Every instance has at most a handful of events under way.
const EVENTS: usize = 256;

impl Services {
    /// Starts a tree of `units`.
    ///
    /// # Errors
    /// When the table is no tree.
    pub(crate) fn start(children: &Children, units: Vec<Unit>) -> Result<Self, InvalidTree> {
        let (requests, asked) = mpsc::channel(REQUESTS);
        let (events, happened) = mpsc::channel(EVENTS);
        let (state, seen) = watch::channel(Vec::new());
        let (escalation, escalated) = watch::channel(None);
        let mut effects = Vec::new();
        let specs = units.iter().map(|unit| unit.spec.clone()).collect();
        let tree = Tree::start(specs, clock::now(), &mut effects)?;
        let shell = Shell {
            tree,
            units: units.into_iter().map(|unit| (unit.spec.name, unit)).collect(),
            running: HashMap::new(),
            children: children.clone(),
            events,
            state,
            escalation,
            stopping: None,
        };
        let shell = tasks::spawn(shell.run(effects, asked, happened));
        Ok(Self { requests, state: seen, escalated, _shell: Arc::new(shell) })
    }

    /// All services as they are now.
    pub(crate) fn snapshots(&self) -> Vec<Snapshot> {
        self.state.borrow().clone()
    }

    /// Their changes.
    pub(crate) fn watch(&self) -> watch::Receiver<Vec<Snapshot>> {
        self.state.clone()
    }

    /// Waits until a critical service has failed too often.
    pub(crate) async fn escalated(&mut self) -> Escalation {
        loop {
            if let Some(escalation) = *self.escalated.borrow_and_update() {
                return escalation;
            }
            if self.escalated.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// Asks for a fresh run of `service` and its group.
    ///
    /// # Errors
    /// [`UnknownService`].
    pub(crate) async fn restart(&self, service: &str) -> Result<(), UnknownService> {
        let (answer, answered) = oneshot::channel();
        let request = Request::Restart(service.to_owned(), answer);
        self.requests.send(request).await.map_err(|_| UnknownService)?;
        answered.await.map_err(|_| UnknownService)?
    }

    /// Stops all services in reverse order; returns those that survived even SIGKILL.
    pub(crate) async fn stop(&self, reason: StopReason, within: Duration) -> Vec<&'static str> {
        let (answer, answered) = oneshot::channel();
        match self.requests.send(Request::Stop(reason, within, answer)).await {
            Ok(()) => answered.await.unwrap_or_default(),
            Err(_) => Vec::new(),
        }
    }
}

/// What exists of an instance in the world.
#[derive(Debug)]
struct Alive {
    instance: Instance,
    body: Body,
    /// Watches it until it is gone.
    _watcher: Task<()>,
    prober: Option<Task<()>>,
}

/// What can be done to it.
#[derive(Debug)]
enum Body {
    /// A process is signalled, its cgroup killed.
    Process { pid: Pid, cgroup: Cgroup },
    /// A task is asked to end, then ended; each once.
    Task { stop: Option<oneshot::Sender<()>>, abort: Option<oneshot::Sender<()>> },
}

#[derive(Debug)]
struct Shell {
    tree: Tree,
    units: HashMap<&'static str, Unit>,
    running: HashMap<&'static str, Alive>,
    children: Children,
    events: mpsc::Sender<Event>,
    state: watch::Sender<Vec<Snapshot>>,
    escalation: watch::Sender<Option<Escalation>>,
    stopping: Option<oneshot::Sender<Vec<&'static str>>>,
}

impl Shell {
    async fn run(
        mut self,
        effects: Vec<Effect>,
        mut asked: mpsc::Receiver<Request>,
        mut happened: mpsc::Receiver<Event>,
    ) {
        self.perform(effects);
        while !self.tree.is_over() {
            let deadline = self.tree.poll_timeout().map(|(at, _why)| at);
            let event = tokio::select! {
                Some(event) = happened.recv() => event,
                request = asked.recv() => match request {
                    Some(request) => match self.request(request) {
                        Some(event) => event,
                        None => continue,
                    },
                    None => return,
                },
                () = until(deadline) => Event::Tick,
            };
            if let Event::CgroupEmpty(instance) = event {
                self.forget(instance);
            }
            let mut effects = Vec::new();
            self.tree.handle(event, clock::now(), &mut effects);
            self.perform(effects);
        }
    }

    fn request(&mut self, request: Request) -> Option<Event> {
        match request {
            Request::Restart(name, answer) => {
                let found = self.tree.find(&name);
                let _asker_gave_up = answer.send(found.map(drop).ok_or(UnknownService));
                found.map(Event::RestartRequested)
            }
            Request::Stop(reason, within, answer) => {
                self.stopping = Some(answer);
                Some(Event::StopAll { reason, within })
            }
        }
    }

    fn perform(&mut self, effects: Vec<Effect>) {
        let mut effects: std::collections::VecDeque<_> = effects.into();
        while let Some(effect) = effects.pop_front() {
            match effect {
                Effect::Start(instance) => {
                    let event = self.start(instance);
                    let mut more = Vec::new();
                    self.tree.handle(event, clock::now(), &mut more);
                    effects.extend(more);
                }
                Effect::Probe(instance) => self.probe(instance),
                Effect::Terminate(instance) => self.terminate(instance),
                Effect::Kill(instance) => self.kill(instance),
                Effect::Report(report) => tell(&report),
                Effect::Escalate { service, failures, within } => {
                    tracing::error!(service, failures, within = ?within, "service failed too often");
                    self.escalation.send_replace(Some(Escalation { service }));
                }
                Effect::AllStopped { left, .. } => {
                    let left = left.into_iter().map(|instance| instance.service).collect();
                    if let Some(answer) = self.stopping.take() {
                        let _asker_gave_up = answer.send(left);
                    }
                }
            }
        }
        let snapshots = self.tree.statuses().into_iter().map(|status| {
            let pid = match self.running.get(status.name).map(|alive| &alive.body) {
                Some(Body::Process { pid, .. }) => Some(*pid),
                Some(Body::Task { .. }) | None => None,
            };
            let condition = self.units.get(status.name).and_then(|unit| unit.condition);
            Snapshot { status, pid, condition }
        });
        self.state.send_replace(snapshots.collect());
    }

    fn start(&mut self, instance: Instance) -> Event {
        let events = self.events.clone();
        let (body, watcher) = match &self.units[instance.service].run {
            Run::Child(command) => match self.children.spawn(instance.service, command) {
                Ok(child) => {
                    let body = Body::Process { pid: child.pid, cgroup: child.cgroup() };
                    (body, tasks::spawn(watch_process(child, instance, events)))
                }
                Err(error) => {
                    tracing::error!(service = instance.service, %error, "service cannot be started");
                    return Event::SpawnFailed { instance, errno: error.raw_os_error().unwrap_or(0) };
                }
            },
            Run::Task(make) => {
                let (stop, asked) = oneshot::channel();
                let (abort, aborted) = oneshot::channel();
                let body = Body::Task { stop: Some(stop), abort: Some(abort) };
                (body, tasks::spawn(watch_task(tasks::spawn(make(asked)), aborted, instance, events)))
            }
        };
        self.running.insert(instance.service, Alive { instance, body, _watcher: watcher, prober: None });
        Event::Spawned(instance)
    }

    /// What runs of `instance`, if it is still this run of the service.
    fn alive(&mut self, instance: Instance) -> Option<&mut Alive> {
        self.running.get_mut(instance.service).filter(|alive| alive.instance == instance)
    }

    fn probe(&mut self, instance: Instance) {
        let (probe, events) = (self.units[instance.service].probe.clone(), self.events.clone());
        let Some(alive) = self.alive(instance) else { return };
        alive.prober = Some(tasks::spawn(async move {
            if let Some(probe) = probe {
                probe.succeeded().await;
            }
            let _tree_ended = events.send(Event::Ready(instance)).await;
        }));
    }

    fn terminate(&mut self, instance: Instance) {
        let children = self.children.clone();
        let Some(alive) = self.alive(instance) else { return };
        alive.prober = None;
        match &mut alive.body {
            Body::Process { pid, .. } => children.signal(*pid, Signal::TERM),
            Body::Task { stop, .. } => {
                let _ended_already = stop.take().map(|stop| stop.send(()));
            }
        }
    }

    fn kill(&mut self, instance: Instance) {
        let Some(alive) = self.alive(instance) else { return };
        match &mut alive.body {
            Body::Process { cgroup, .. } => {
                if let Err(error) = cgroup.kill() {
                    tracing::error!(service = instance.service, %error, "cgroup cannot be killed");
                }
            }
            Body::Task { abort, .. } => {
                let _ended_already = abort.take().map(|abort| abort.send(()));
            }
        }
    }

    fn forget(&mut self, instance: Instance) {
        if self.alive(instance).is_some() {
            self.running.remove(instance.service);
            if self.stopping.is_some() {
                // On the console, for whoever waits in front of a machine that shuts down.
                tracing::info!(service = instance.service, "service stopped");
            }
        }
    }
}

/// Tells the tree when the process has ended, and when nothing of its cgroup is left.
async fn watch_process(mut child: Running, instance: Instance, events: mpsc::Sender<Event>) {
    let exit = match child.exited().await {
        sys::process::Exit::Code(code) => Exit::Code(code),
        sys::process::Exit::Signal(signal) => Exit::Signal(signal),
    };
    let _tree_ended = events.send(Event::Exited { instance, exit }).await;
    child.cgroup().empty().await;
    let _tree_ended = events.send(Event::CgroupEmpty(instance)).await;
}

/// Tells the tree how the task ended; one that is aborted ends here.
async fn watch_task(
    mut work: Task<Result<(), Failure>>,
    aborted: oneshot::Receiver<()>,
    instance: Instance,
    events: mpsc::Sender<Event>,
) {
    let ended = tokio::select! {
        ended = work.join() => Some(ended),
        _told = aborted => None,
    };
    let exit = match ended {
        Some(Ok(Ok(()))) | None => Exit::Code(0),
        Some(Ok(Err(error))) => {
            tracing::warn!(task = instance.service, error = %Chain(&*error), "task failed");
            Exit::Code(1)
        }
        Some(Err(_panicked)) => Exit::Panicked,
    };
    drop(work);
    let _tree_ended = events.send(Event::Exited { instance, exit }).await;
    let _tree_ended = events.send(Event::CgroupEmpty(instance)).await;
}

/// Waits for a deadline; for ever when there is none.
pub(crate) async fn until(deadline: Option<std::time::Instant>) {
    match deadline {
        Some(at) => tokio::time::sleep_until(at.into()).await,
        None => std::future::pending().await,
    }
}

fn tell(report: &Report) {
    match report {
        Report::Failed { instance, ending, failures, retry } => {
            let service = instance.service;
            match ending {
                Ending::Exit(Exit::Code(code)) => {
                    tracing::warn!(service, code, failures, retry = ?retry, "service ended")
                }
                Ending::Exit(Exit::Signal(signal)) => {
                    tracing::warn!(service, signal, failures, retry = ?retry, "service was killed");
                }
                Ending::Exit(Exit::Panicked) => tracing::error!(service, failures, retry = ?retry, "task panicked"),
                Ending::SpawnFailed(errno) => {
                    tracing::warn!(service, errno, failures, retry = ?retry, "service did not start")
                }
                Ending::StartDeadline => {
                    tracing::warn!(service, failures, retry = ?retry, "service was not ready in time")
                }
            }
        }
        Report::Finished(instance) => tracing::debug!(service = instance.service, "task finished"),
        Report::Stable(instance) => tracing::debug!(service = instance.service, "service is stable again"),
        Report::StopDeadline(instance) => tracing::warn!(service = instance.service, "service ignores SIGTERM, killed"),
        Report::Unkillable { instance, .. } => tracing::error!(service = instance.service, "service survives SIGKILL"),
        Report::StopForced { left } => tracing::warn!(left = left.len(), "time to stop is over, killing what is left"),
        Report::UnknownService(event) | Report::StaleInstance(event) => tracing::debug!(?event, "event about nobody"),
        Report::DoesNotFit { event, state } => tracing::debug!(?event, state, "event does not fit the state"),
    }
}
