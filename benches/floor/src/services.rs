//! The services: started at once, or when what they cannot do without is ready; started again when they end.

use std::fs::File;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::process::Pid;
use services::{Run, ServicePlan, ServiceProgram};
use supervise::{Name, Need, Spec};
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinSet;

use crate::{Error, system};

/// Between an end and the next start.
const PAUSE: Duration = Duration::from_secs(1);

/// The services; clones share them.
#[derive(Debug, Clone)]
pub(crate) struct Services(Arc<Mutex<Vec<Service>>>);

#[derive(Debug)]
struct Service {
    spec: Spec,
    program: ServiceProgram,
    pid: Option<Pid>,
}

impl Services {
    /// Starts all that wait for no other to be ready. kubelet and the controllers end when what they ask is not there,
    /// and starting them in vain takes the processor from the rest: a floor that did would flatter Cairn.
    pub(crate) fn start(plan: &ServicePlan) -> Result<Self, Error> {
        // The tasks beside them are Cairn's own.
        let service = |unit: services::Unit| match unit.run {
            Run::Program(program) => Some(Service { spec: unit.spec, program: *program, pid: None }),
            Run::Task(_) => None,
        };
        let services = benches::floor::units(plan).into_iter().filter_map(service);
        let services = Self(Arc::new(Mutex::new(services.collect())));
        services.each(|service| if service.waits_for().next().is_none() { service.start() } else { Ok(()) })?;
        Ok(services)
    }

    /// Starts those that wait for this one.
    pub(crate) fn ready(&self, name: &str) -> Result<(), Error> {
        self.each(|service| if service.waits_for().any(|other| *other == *name) { service.start() } else { Ok(()) })
    }

    /// Name and main process of each that runs.
    pub(crate) fn running(&self) -> Vec<(Name, Pid)> {
        let services = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        services.iter().filter_map(|service| Some((service.spec.name.clone(), service.pid?))).collect()
    }

    /// Reaps whatever ends, and starts services again.
    pub(crate) async fn keep(self) -> Result<(), Error> {
        let failed = |error| Error::System("watch for ends", error);
        let mut dead = signal(SignalKind::child()).map_err(failed)?;
        let mut pauses = JoinSet::new();
        loop {
            tokio::select! {
                _told = dead.recv() => {}
                Some(Ok(name)) = pauses.join_next() => {
                    self.each(|service| if service.spec.name == name { service.start() } else { Ok(()) })?;
                }
            }
            while let Some((pid, exit)) = sys::process::reap().map_err(failed)? {
                if let Some(name) = self.ended(pid) {
                    system::say(&format!("floor: {name} ended: {exit:?}"));
                    pauses.spawn(async move {
                        tokio::time::sleep(PAUSE).await;
                        name
                    });
                }
            }
        }
    }

    /// Which service this process was; others are orphans of containerd.
    fn ended(&self, pid: Pid) -> Option<Name> {
        let mut services = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let service = services.iter_mut().find(|service| service.pid == Some(pid))?;
        service.pid = None;
        Some(service.spec.name.clone())
    }

    fn each(&self, act: impl FnMut(&mut Service) -> io::Result<()>) -> Result<(), Error> {
        let mut services = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        services.iter_mut().try_for_each(act).map_err(|error| Error::System("start a service", error))
    }
}

impl Service {
    /// The services that have to be ready before this one. No service waits for two.
    fn waits_for(&self) -> impl Iterator<Item = &Name> {
        self.spec.needs.iter().filter(|need| matches!(need, Need::Ready(_))).map(Need::service)
    }

    /// The same thread reaps, so it knows the pid before its end is seen.
    fn start(&mut self) -> io::Result<()> {
        let log =
            File::options().create(true).append(true).open(Path::new(system::LOGS).join(self.spec.name.as_str()))?;
        let (program, arguments) = self.program.argv.split_first().ok_or(io::ErrorKind::InvalidInput)?;
        let mut command = Command::new(program);
        command.arg0(program).args(arguments).env_clear().envs(self.program.environment.iter().cloned());
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).current_dir("/");
        let child = command.spawn()?;
        self.pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        Ok(())
    }
}
