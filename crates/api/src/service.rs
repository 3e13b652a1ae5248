//! Supervised services as `Services` lists them.

use std::fmt;
use std::time::Duration;

use crate::field_error::{known, present};
use crate::{FieldError, Problem, UnixMillis, wire};

/// Where a service is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ServiceState {
    /// Not started: a service that it needs is not ready.
    Waiting,
    /// Started, not ready yet.
    Starting,
    /// Runs, and has shown that it serves.
    Ready,
    /// Asked to stop, and still there.
    Stopping,
    /// Exited; will be started again after a pause.
    BackingOff,
    /// Ended as it was meant to, or was stopped.
    Stopped,
    /// Failed and is not started again.
    Failed,
}

impl fmt::Display for ServiceState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Waiting => "waiting",
            Self::Starting => "starting",
            Self::Ready => "ready",
            Self::Stopping => "stopping",
            Self::BackingOff => "backing off",
            Self::Stopped => "stopped",
            Self::Failed => "failed",
        })
    }
}

/// How a service ended last.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ServiceExit {
    /// The process's exit code.
    Code(u8),
    /// The signal that killed it.
    Signal(u8),
    /// The panic's message, of a task of PID 1.
    Panic(String),
    /// The attempt came to no run, and why: the service could not be started, or was not ready in time.
    NoRun(String),
}

impl fmt::Display for ServiceExit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Code(code) => write!(f, "code {code}"),
            Self::Signal(signal) => write!(f, "signal {signal}"),
            Self::Panic(message) => write!(f, "panic: {message}"),
            Self::NoRun(reason) => f.write_str(reason),
        }
    }
}

/// Service that the machine supervises.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Service {
    /// Name of the service, with dots for the subtree it is in: `kube.apiserver`.
    pub name: String,
    /// Where it is in its life.
    pub state: ServiceState,
    /// Since when it is in that state, by the machine's clock.
    pub since: UnixMillis,
    /// How often it was started again in this boot.
    pub restarts: u32,
    /// None where there is no process.
    pub pid: Option<u32>,
    /// Memory of its control group, in bytes.
    pub memory: Option<u64>,
    /// Processor time of its control group since the boot, over all runs.
    pub cpu: Option<Duration>,
    /// None before the first exit.
    pub last_exit: Option<ServiceExit>,
}

impl From<ServiceExit> for wire::Exit {
    fn from(exit: ServiceExit) -> Self {
        let how = match exit {
            ServiceExit::Code(code) => wire::exit::How::Code(code.into()),
            ServiceExit::Signal(signal) => wire::exit::How::Signal(signal.into()),
            ServiceExit::Panic(message) => wire::exit::How::Panic(message),
            ServiceExit::NoRun(reason) => wire::exit::How::NoRun(reason),
        };
        Self { how: Some(how) }
    }
}

impl TryFrom<wire::Exit> for ServiceExit {
    type Error = FieldError;

    fn try_from(exit: wire::Exit) -> Result<Self, FieldError> {
        let byte = |field, value: u32| u8::try_from(value).map_err(|_| FieldError::new(field, Problem::Range));
        match present("how", exit.how)? {
            wire::exit::How::Code(code) => byte("code", code).map(Self::Code),
            wire::exit::How::Signal(signal) => byte("signal", signal).map(Self::Signal),
            wire::exit::How::Panic(message) => Ok(Self::Panic(message)),
            wire::exit::How::NoRun(reason) => Ok(Self::NoRun(reason)),
        }
    }
}

impl From<Service> for wire::Service {
    fn from(service: Service) -> Self {
        Self {
            name: service.name,
            state: wire::ServiceState::from(service.state).into(),
            since_unix_ms: service.since.0,
            restarts: service.restarts,
            pid: service.pid,
            memory_bytes: service.memory,
            cpu_ms: service.cpu.map(|cpu| u64::try_from(cpu.as_millis()).unwrap_or(u64::MAX)),
            last_exit: service.last_exit.map(Into::into),
        }
    }
}

impl TryFrom<wire::Service> for Service {
    type Error = FieldError;

    fn try_from(service: wire::Service) -> Result<Self, FieldError> {
        Ok(Self {
            state: known("state", service.state().known())?,
            name: service.name,
            since: UnixMillis(service.since_unix_ms),
            restarts: service.restarts,
            pid: service.pid,
            memory: service.memory_bytes,
            cpu: service.cpu_ms.map(Duration::from_millis),
            last_exit: service.last_exit.map(ServiceExit::try_from).transpose()?,
        })
    }
}

impl From<Vec<Service>> for wire::ServicesResponse {
    fn from(services: Vec<Service>) -> Self {
        Self { services: services.into_iter().map(Into::into).collect() }
    }
}

impl TryFrom<wire::ServicesResponse> for Vec<Service> {
    type Error = FieldError;

    fn try_from(answer: wire::ServicesResponse) -> Result<Self, FieldError> {
        answer.services.into_iter().map(Service::try_from).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn service(state: ServiceState, last_exit: Option<ServiceExit>) -> Service {
        Service {
            name: "kube.apiserver".to_owned(),
            state,
            since: UnixMillis(9),
            restarts: 2,
            pid: Some(77),
            memory: Some(301 << 20),
            cpu: Some(Duration::from_millis(4321)),
            last_exit,
        }
    }

    #[test]
    fn states_and_exits_are_shown_in_words() {
        let states = [
            (ServiceState::Waiting, "waiting"),
            (ServiceState::Starting, "starting"),
            (ServiceState::Ready, "ready"),
            (ServiceState::Stopping, "stopping"),
            (ServiceState::BackingOff, "backing off"),
            (ServiceState::Stopped, "stopped"),
            (ServiceState::Failed, "failed"),
        ];
        for (state, word) in states {
            assert_eq!(format!("{state:12}|"), format!("{word:12}|"));
        }
        let exits = [
            ServiceExit::Code(3),
            ServiceExit::Signal(9),
            ServiceExit::Panic("gone".into()),
            ServiceExit::NoRun("not ready in time".into()),
        ];
        let shown = exits.map(|exit| exit.to_string());
        assert_eq!(shown, ["code 3", "signal 9", "panic: gone", "not ready in time"]);
    }

    #[test]
    fn services_cross_the_wire_with_every_state_and_exit() {
        let sent = vec![
            service(ServiceState::Waiting, None),
            service(ServiceState::Starting, Some(ServiceExit::Code(1))),
            service(ServiceState::Ready, Some(ServiceExit::Signal(9))),
            service(ServiceState::Stopping, Some(ServiceExit::Panic("gone".to_owned()))),
            service(ServiceState::BackingOff, Some(ServiceExit::NoRun("not ready in time".to_owned()))),
            service(ServiceState::BackingOff, None),
            service(ServiceState::Stopped, None),
            service(ServiceState::Failed, None),
        ];
        let answer = wire::ServicesResponse::from(sent.clone());
        assert_eq!(Vec::<Service>::try_from(answer), Ok(sent));
    }

    #[test]
    fn an_exit_that_says_nothing_or_too_much_is_malformed() {
        assert_eq!(ServiceExit::try_from(wire::Exit { how: None }), Err(FieldError::new("how", Problem::Missing)));
        let high = wire::Exit { how: Some(wire::exit::How::Code(256)) };
        assert_eq!(ServiceExit::try_from(high), Err(FieldError::new("code", Problem::Range)));
    }
}
