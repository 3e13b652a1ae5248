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
use std::convert::Infallible;
use std::fmt;
use std::future::Future;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use model::Chain;
use probe::Probe;
use probe::http::LocalServer;
use rustix::process::{Pid, Signal};
use supervise::{
    Backoff, ChangeError, Effect, Ending, Event, Fingerprint, Instance, InvalidTree, Name, Readiness, Report, Restart,
    RunExit, Spec, StopReason, Tree, UnitStatus,
};
use tokio::sync::{mpsc, oneshot, watch};

use crate::runtime::child::{Cgroup, Children, Command, Running};
use crate::runtime::clock;
use crate::runtime::durable;
use crate::runtime::tasks::{self, Task};

/// Future of a task, with its outcome.
pub(crate) type Work = Pin<Box<dyn Future<Output = Result<(), Failure>> + Send>>;
/// How a task fails; told to the log once.
pub(crate) type Failure = Box<dyn std::error::Error + Send + Sync>;
/// Resolves when the task is asked to end; it then has its stop deadline to do so.
pub(crate) type Stop = oneshot::Receiver<()>;

/// A row of a tree's table.
pub(crate) struct Unit {
    /// When it runs, and what its end means.
    pub(crate) spec: Spec,
    /// Child or task that is started when its time has come.
    pub(crate) run: Run,
    /// How one sees that it is ready, where its spec asks for a probe.
    pub(crate) probe: Option<Probe>,
    /// Page of what it counts, where it has one.
    pub(crate) metrics: Option<MetricsPage>,
    /// A directory of which it needs every file: looked at when it fails.
    pub(crate) files: Option<&'static Path>,
}

/// Page of what a service counts, in Prometheus' text.
#[derive(Debug, Clone)]
pub(crate) struct MetricsPage {
    pub(crate) server: LocalServer,
    pub(crate) path: &'static str,
}

/// Ways to run a unit.
pub(crate) enum Run {
    /// A child process.
    Child(Command),
    /// A task of this process, made anew for each attempt.
    Task(Box<dyn Fn(Stop) -> Work + Send + Sync>),
}

impl Unit {
    /// A task of PID 1's own that needs no other: it ends at once when it is asked to, and is tried again soon when it fails
    /// where `ends` says that it may not.
    pub(crate) fn task(name: impl Into<Name>, ends: Ends, run: Run) -> Self {
        let backoff = Backoff {
            first: Duration::from_millis(200),
            cap: Duration::from_secs(30),
            stable: Duration::from_secs(60),
        };
        let spec = Spec {
            name: name.into(),
            content: Fingerprint::TASK,
            needs: Vec::new(),
            group: None,
            start_deadline: Duration::from_secs(10),
            stop_deadline: Duration::from_secs(1),
            restart: match ends {
                Ends::Never => Restart::Always(backoff),
                Ends::WellOrAgain => Restart::UntilSuccess(backoff),
            },
            ready: Readiness::OnStart,
            critical: None,
        };
        Self { spec, run, probe: None, metrics: None, files: None }
    }
}

/// Whether a task may end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ends {
    /// The task is for good: every end is a failure.
    Never,
    /// The task ends once it has done what it is for.
    WellOrAgain,
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

    /// A task that can fail by a panic only.
    pub(crate) fn steady<F, W>(make: F) -> Self
    where
        F: Fn() -> W + Send + Sync + 'static,
        W: Future<Output = ()> + Send + 'static,
    {
        Self::task(move || {
            let work = make();
            async move {
                work.await;
                Ok::<(), Infallible>(())
            }
        })
    }
}

impl fmt::Debug for Unit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Unit").field("name", &self.spec.name).finish_non_exhaustive()
    }
}

/// State of one service at one moment.
#[derive(Debug, Clone)]
pub(crate) struct Snapshot {
    pub(crate) status: UnitStatus,
    /// Process id of the main process, while there is one.
    pub(crate) pid: Option<Pid>,
}

/// Failure that the tree could not mend by itself.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Escalation {
    /// A critical service; the rest of the tree works.
    #[error("service {0} failed too often")]
    Service(Name),
    /// A service failed, since the disk does not give it its files.
    #[error("service {service} failed: {reason}")]
    Damage {
        /// Which one.
        service: Name,
        /// Names the file, where that is known.
        reason: String,
    },
    /// The task of the tree has panicked: nothing that it ran is watched any more.
    #[error("supervision has ended")]
    Supervision,
}

/// A handle on a running tree. The tree ends when the last handle is gone.
#[derive(Debug, Clone)]
pub(crate) struct Services {
    requests: mpsc::Sender<Request>,
    state: watch::Receiver<Vec<Snapshot>>,
    escalated: watch::Receiver<Option<Escalation>>,
    /// Whether the user of this handle was told of damage.
    knows_damage: bool,
    _shell: Arc<Task<()>>,
}

#[derive(Debug)]
enum Request {
    Restart(String, oneshot::Sender<Result<(), UnknownService>>),
    /// Answered with none for a service that has no page.
    Metrics(String, oneshot::Sender<Result<Option<MetricsPage>, UnknownService>>),
    Take(Vec<Unit>, oneshot::Sender<Result<(), ChangeError>>),
    /// Answered when all is gone that leaves, or at once when the set is refused.
    Want(Vec<Unit>, oneshot::Sender<Result<(), ChangeError>>),
    Stop(StopReason, Duration, oneshot::Sender<Vec<Name>>),
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
            units: units.into_iter().map(|unit| (unit.spec.name.clone(), unit)).collect(),
            next: HashMap::new(),
            running: HashMap::new(),
            children: children.clone(),
            events,
            state,
            escalation,
            leaving: Vec::new(),
            stopping: None,
        };
        let shell = tasks::spawn(shell.run(effects, asked, happened));
        Ok(Self { requests, state: seen, escalated, knows_damage: false, _shell: Arc::new(shell) })
    }

    /// All services as they are now.
    pub(crate) fn snapshots(&self) -> Vec<Snapshot> {
        self.state.borrow().clone()
    }

    /// Watches the services' states from now on.
    pub(crate) fn watch(&self) -> watch::Receiver<Vec<Snapshot>> {
        self.state.clone()
    }

    /// Waits until a critical service has failed too often, or any for want of its files, or until the tree itself is gone although
    /// nobody stopped it. Damage is told once to each handle: whoever was told goes on without what it spoilt.
    pub(crate) async fn escalated(&mut self) -> Escalation {
        let knows_damage = self.knows_damage;
        let is_news = |seen: &Option<Escalation>| match seen {
            Some(Escalation::Damage { .. }) => !knows_damage,
            Some(Escalation::Service(_) | Escalation::Supervision) => true,
            None => false,
        };
        let escalation = match self.escalated.wait_for(is_news).await {
            Ok(escalation) => escalation.clone().unwrap_or(Escalation::Supervision),
            Err(_tree_ended) => Escalation::Supervision,
        };
        self.knows_damage |= matches!(escalation, Escalation::Damage { .. });
        escalation
    }

    /// Does `work` as long as the tree can be kept up.
    ///
    /// # Errors
    /// [`Escalation`]: then it is left where it is.
    pub(crate) async fn beside<T>(&mut self, work: impl Future<Output = T>) -> Result<T, Escalation> {
        tokio::select! {
            done = work => Ok(done),
            escalation = self.escalated() => Err(escalation),
        }
    }

    /// Takes further units of the tree's own, all of them or none, which stay; they start when their needs hold.
    ///
    /// # Errors
    /// [`ChangeError`]
    pub(crate) async fn take(&self, units: Vec<Unit>) -> Result<(), ChangeError> {
        let (answer, answered) = oneshot::channel();
        self.requests.send(Request::Take(units, answer)).await.map_err(|_| ChangeError::Stopping)?;
        answered.await.unwrap_or(Err(ChangeError::Stopping))
    }

    /// Runs `units` beside the tree's own from now on, and nothing else: one whose spec is equal to that of a unit that runs is
    /// that unit, and is not touched. Waits until nothing is left of what leaves; whoever does not wait to the end has wanted them
    /// all the same.
    ///
    /// # Errors
    /// [`ChangeError`]; also when the whole tree stops meanwhile.
    pub(crate) async fn want(&self, units: Vec<Unit>) -> Result<(), ChangeError> {
        let (answer, answered) = oneshot::channel();
        self.requests.send(Request::Want(units, answer)).await.map_err(|_| ChangeError::Stopping)?;
        answered.await.unwrap_or(Err(ChangeError::Stopping))
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

    /// Page of what `service` counts; none where it has none.
    ///
    /// # Errors
    /// [`UnknownService`].
    pub(crate) async fn metrics(&self, service: &str) -> Result<Option<MetricsPage>, UnknownService> {
        let (answer, answered) = oneshot::channel();
        let request = Request::Metrics(service.to_owned(), answer);
        self.requests.send(request).await.map_err(|_| UnknownService)?;
        answered.await.map_err(|_| UnknownService)?
    }

    /// Stops all services in reverse order; returns those that survived even SIGKILL.
    pub(crate) async fn stop(&self, reason: StopReason, within: Duration) -> Vec<Name> {
        let (answer, answered) = oneshot::channel();
        match self.requests.send(Request::Stop(reason, within, answer)).await {
            Ok(()) => answered.await.unwrap_or_default(),
            Err(_) => Vec::new(),
        }
    }
}

/// Process or task of an instance, with those that watch it.
#[derive(Debug)]
struct Alive {
    instance: Instance,
    body: Body,
    /// Watches it until it is gone.
    _watcher: Task<()>,
    prober: Option<Task<()>>,
}

/// Means by which an instance is ended.
#[derive(Debug)]
enum Body {
    /// A process is signalled, its cgroup killed.
    Process { pid: Pid, cgroup: Cgroup },
    /// A task is asked to end, then ended; each once.
    Task { stop: Option<oneshot::Sender<()>>, abort: Option<oneshot::Sender<()>> },
}

/// Somebody waits until nothing of `services` is left.
#[derive(Debug)]
struct Leaving {
    services: Vec<Name>,
    answer: oneshot::Sender<Result<(), ChangeError>>,
}

#[derive(Debug)]
struct Shell {
    tree: Tree,
    units: HashMap<Name, Unit>,
    /// Units that take the place of those that leave.
    next: HashMap<Name, Unit>,
    running: HashMap<Name, Alive>,
    children: Children,
    events: mpsc::Sender<Event>,
    state: watch::Sender<Vec<Snapshot>>,
    escalation: watch::Sender<Option<Escalation>>,
    /// Callers that wait for the end of services.
    leaving: Vec<Leaving>,
    stopping: Option<oneshot::Sender<Vec<Name>>>,
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
            if let Event::CgroupEmpty(instance) = &event {
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
                let _asker_gave_up = answer.send(found.as_ref().map(drop).ok_or(UnknownService));
                found.map(Event::RestartRequested)
            }
            Request::Metrics(name, answer) => {
                let page = self.units.get(name.as_str()).map(|unit| unit.metrics.clone()).ok_or(UnknownService);
                let _asker_gave_up = answer.send(page);
                None
            }
            Request::Take(units, answer) => {
                let mut effects = Vec::new();
                let specs = units.iter().map(|unit| unit.spec.clone()).collect();
                let taken = self.tree.take(specs, clock::now(), &mut effects);
                if taken.is_ok() {
                    self.units.extend(units.into_iter().map(|unit| (unit.spec.name.clone(), unit)));
                    self.perform(effects);
                }
                let _asker_gave_up = answer.send(taken);
                None
            }
            Request::Want(units, answer) => {
                let mut effects = Vec::new();
                let specs = units.iter().map(|unit| unit.spec.clone()).collect();
                match self.tree.want(specs, clock::now(), &mut effects) {
                    Ok(anew) => {
                        self.know(units, &anew);
                        self.perform(effects);
                        let services = self.tree.leaving().cloned().collect();
                        self.leaving.push(Leaving { services, answer });
                        self.tell_who_waits();
                    }
                    Err(refused) => drop(answer.send(Err(refused))),
                }
                None
            }
            Request::Stop(reason, within, answer) => {
                self.stopping = Some(answer);
                Some(Event::StopAll { reason, within })
            }
        }
    }

    /// Keeps those of `units` that are started anew: at once, or when what has their name has left.
    fn know(&mut self, units: Vec<Unit>, anew: &[Name]) {
        self.next.clear();
        for unit in units.into_iter().filter(|unit| anew.contains(&unit.spec.name)) {
            let known = if self.units.contains_key(&unit.spec.name) { &mut self.next } else { &mut self.units };
            known.insert(unit.spec.name.clone(), unit);
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
                Effect::Terminate(instance) => self.terminate(&instance),
                Effect::Kill(instance) => self.kill(&instance),
                Effect::Report(report) => tell(&report),
                Effect::Escalate { service, failures, within } => {
                    tracing::error!(service = service.as_str(), failures, within = ?within, "service failed too often");
                    self.escalation.send_replace(Some(Escalation::Service(service)));
                }
                Effect::Left(name) => self.left(&name),
                Effect::AllStopped { left, .. } => {
                    let left = left.into_iter().map(|instance| instance.service).collect();
                    if let Some(answer) = self.stopping.take() {
                        let _asker_gave_up = answer.send(left);
                    }
                }
            }
        }
        let snapshots = self.tree.statuses().into_iter().map(|status| {
            let pid = match self.running.get(&status.name).map(|alive| &alive.body) {
                Some(Body::Process { pid, .. }) => Some(*pid),
                Some(Body::Task { .. }) | None => None,
            };
            Snapshot { status, pid }
        });
        self.state.send_replace(snapshots.collect());
    }

    fn start(&mut self, instance: Instance) -> Event {
        let events = self.events.clone();
        let name = instance.service.as_str();
        let (body, watcher) = match &self.units[name].run {
            Run::Child(command) => match self.children.spawn(name, command) {
                Ok(child) => {
                    let body = Body::Process { pid: child.pid, cgroup: child.cgroup() };
                    let files = self.units[name].files.map(|files| (files, self.escalation.clone()));
                    (body, tasks::spawn(watch_process(child, files, instance.clone(), events)))
                }
                Err(error) => {
                    tracing::error!(service = name, %error, "service cannot be started");
                    return Event::SpawnFailed { instance, errno: error.raw_os_error().unwrap_or(0) };
                }
            },
            Run::Task(make) => {
                let (stop, asked) = oneshot::channel();
                let (abort, aborted) = oneshot::channel();
                let body = Body::Task { stop: Some(stop), abort: Some(abort) };
                let work = tasks::spawn(make(asked));
                (body, tasks::spawn(watch_task(work, aborted, self.escalation.clone(), instance.clone(), events)))
            }
        };
        let alive = Alive { instance: instance.clone(), body, _watcher: watcher, prober: None };
        self.running.insert(instance.service.clone(), alive);
        Event::Spawned(instance)
    }

    /// Process or task of `instance`, if it is still this run of the service.
    fn alive(&mut self, instance: &Instance) -> Option<&mut Alive> {
        self.running.get_mut(&instance.service).filter(|alive| alive.instance == *instance)
    }

    fn probe(&mut self, instance: Instance) {
        let (probe, events) = (self.units[&instance.service].probe.clone(), self.events.clone());
        let Some(alive) = self.alive(&instance) else { return };
        alive.prober = Some(tasks::spawn(async move {
            if let Some(probe) = probe {
                probe.succeeded().await;
            }
            let _tree_ended = events.send(Event::Ready(instance)).await;
        }));
    }

    fn terminate(&mut self, instance: &Instance) {
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

    fn kill(&mut self, instance: &Instance) {
        let Some(alive) = self.alive(instance) else { return };
        match &mut alive.body {
            Body::Process { cgroup, .. } => {
                if let Err(error) = cgroup.kill() {
                    tracing::error!(service = instance.service.as_str(), %error, "cgroup cannot be killed");
                }
            }
            Body::Task { abort, .. } => {
                let _ended_already = abort.take().map(|abort| abort.send(()));
            }
        }
    }

    fn forget(&mut self, instance: &Instance) {
        if self.alive(instance).is_some() {
            self.running.remove(&instance.service);
            if self.stopping.is_some() {
                // On the console, for whoever waits in front of a machine that shuts down.
                tracing::info!(service = instance.service.as_str(), "service stopped");
            }
        }
    }

    /// Forgets a service that has left: what is kept for it goes, the unit that takes its place comes, and callers that
    /// wait are told.
    fn left(&mut self, name: &Name) {
        if let Some(Unit { run: Run::Child(_), .. }) = self.units.remove(name)
            && let Err(error) = Cgroup::remove(name.as_str())
        {
            // It is used again when the name comes back.
            tracing::warn!(service = name.as_str(), %error, "cgroup of a service that is gone stays");
        }
        tracing::info!(service = name.as_str(), "service has left");
        self.units.extend(self.next.remove_entry(name));
        for waiting in &mut self.leaving {
            waiting.services.retain(|waited| waited != name);
        }
        self.tell_who_waits();
    }

    /// Tells the callers whose services are all gone.
    fn tell_who_waits(&mut self) {
        for waiting in self.leaving.extract_if(.., |waiting| waiting.services.is_empty()) {
            let _asker_gave_up = waiting.answer.send(Ok(()));
        }
    }
}

/// Tells the tree when the process has ended, and when nothing of it is left and its last words are in the log.
async fn watch_process(
    mut child: Running,
    files: Option<(&'static Path, watch::Sender<Option<Escalation>>)>,
    instance: Instance,
    events: mpsc::Sender<Event>,
) {
    let exit = match child.exited().await {
        sys::process::Exit::Code(code) => RunExit::Code(code),
        sys::process::Exit::Signal(signal) => RunExit::Signal(signal),
    };
    let _tree_ended = events.send(Event::Exited { instance: instance.clone(), exit }).await;
    child.gone().await;
    if let Some((files, escalation)) = files.filter(|_| exit != RunExit::Code(0))
        && let Err(error) = tasks::blocking(move || durable::read_all(files)).await
    {
        tell_damage(&error, &instance, &escalation);
    }
    let _tree_ended = events.send(Event::CgroupEmpty(instance)).await;
}

/// Escalates `error` where it says that the disk does not give a file: another try would not help.
fn tell_damage(
    error: &(dyn std::error::Error + 'static),
    instance: &Instance,
    escalation: &watch::Sender<Option<Escalation>>,
) {
    if durable::is_damage(error) {
        let damage = Escalation::Damage { service: instance.service.clone(), reason: Chain(error).to_string() };
        // Never over what was told before: that is the same, or worse.
        escalation.send_if_modified(|told| told.is_none() && told.replace(damage).is_none());
    }
}

/// Tells the tree how the task ended; one that is aborted ends here.
async fn watch_task(
    mut work: Task<Result<(), Failure>>,
    aborted: oneshot::Receiver<()>,
    escalation: watch::Sender<Option<Escalation>>,
    instance: Instance,
    events: mpsc::Sender<Event>,
) {
    let ended = tokio::select! {
        ended = work.join() => Some(ended),
        _told = aborted => None,
    };
    let exit = match ended {
        Some(Ok(Ok(()))) | None => RunExit::Code(0),
        Some(Ok(Err(error))) => {
            tracing::warn!(task = instance.service.as_str(), error = %Chain(&*error), "task failed");
            tell_damage(&*error, &instance, &escalation);
            RunExit::Code(1)
        }
        Some(Err(_panicked)) => RunExit::Panicked,
    };
    drop(work);
    let _tree_ended = events.send(Event::Exited { instance: instance.clone(), exit }).await;
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
            let service = instance.service.as_str();
            match ending {
                Ending::Exit(RunExit::Code(code)) => {
                    tracing::warn!(service, code, failures, retry = ?retry, "service ended")
                }
                Ending::Exit(RunExit::Signal(signal)) => {
                    tracing::warn!(service, signal, failures, retry = ?retry, "service was killed");
                }
                Ending::Exit(RunExit::Panicked) => tracing::error!(service, failures, retry = ?retry, "task panicked"),
                Ending::SpawnFailed(errno) => {
                    tracing::warn!(service, errno, failures, retry = ?retry, "service did not start")
                }
                Ending::StartDeadline => {
                    tracing::warn!(service, failures, retry = ?retry, "service was not ready in time")
                }
            }
        }
        Report::Finished(instance) => tracing::debug!(service = instance.service.as_str(), "task finished"),
        Report::Stable(instance) => tracing::debug!(service = instance.service.as_str(), "service is stable again"),
        Report::StopDeadline(instance) => {
            tracing::warn!(service = instance.service.as_str(), "service ignores SIGTERM, killed")
        }
        Report::Unkillable { instance, .. } => {
            tracing::error!(service = instance.service.as_str(), "service survives SIGKILL")
        }
        Report::StopForced { left } => tracing::warn!(left = left.len(), "time to stop is over, killing what is left"),
        Report::UnknownService(event) | Report::StaleInstance(event) => tracing::debug!(?event, "event about nobody"),
        Report::DoesNotFit { event, state } => tracing::debug!(?event, state, "event does not fit the state"),
    }
}

#[cfg(test)]
mod tests;
