//! `machine services`: list them, restart one.

use std::io::Write;

use api::{Service, UnixMillis};
use clap::Args;
use clap_complete::engine::ArgValueCandidates;
use serde::Serialize;

use crate::complete;
use crate::context::Context;
use crate::failure::Failure;
use crate::screen::{self, Format, Table};

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  cairnctl machine services\n  cairnctl machine services --restart kube.apiserver")]
pub(crate) struct Arguments {
    /// Stop this service and start it anew, instead of listing
    #[arg(long, value_name = "SERVICE", add = ArgValueCandidates::new(complete::services))]
    restart: Option<String>,
}

#[derive(Debug, Serialize)]
struct ServiceOut {
    name: String,
    state: String,
    since_unix_ms: u64,
    restarts: u32,
    pid: Option<u32>,
    memory_bytes: Option<u64>,
    cpu_ms: Option<u64>,
    last_exit: Option<String>,
}

impl From<&Service> for ServiceOut {
    fn from(service: &Service) -> Self {
        Self {
            name: service.name.clone(),
            state: service.state.to_string(),
            since_unix_ms: service.since.0,
            restarts: service.restarts,
            pid: service.pid,
            memory_bytes: service.memory,
            cpu_ms: service.cpu.map(screen::milliseconds),
            last_exit: service.last_exit.as_ref().map(ToString::to_string),
        }
    }
}

pub(crate) async fn run(arguments: &Arguments, context: &Context, out: &mut dyn Write) -> Result<(), Failure> {
    let (mut session, _) = context.open().await?;
    if let Some(service) = &arguments.restart {
        session.restart_service(service).await?;
        return Ok(screen::did(context.format, out, &format!("`{service}` restarts"))?);
    }
    let services = session.services().await?;
    match context.format {
        Format::Json => screen::json(out, &services.iter().map(ServiceOut::from).collect::<Vec<_>>())?,
        Format::Table => table(&services, session.status().await?.now).print(out)?,
    }
    Ok(())
}

fn table(services: &[Service], now: UnixMillis) -> Table<8> {
    let mut table = Table::new(["SERVICE", "STATE", "FOR", "RESTARTS", "PID", "CPU", "MEMORY", "LAST EXIT"]);
    let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    for service in services {
        table.row([
            service.name.clone(),
            service.state.to_string(),
            screen::span(now.since(service.since)),
            service.restarts.to_string(),
            or_dash(service.pid.map(|pid| pid.to_string())),
            or_dash(service.cpu.map(screen::milliseconds).map(screen::span)),
            or_dash(service.memory.map(screen::size)),
            or_dash(service.last_exit.as_ref().map(ToString::to_string)),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use api::{ServiceExit, ServiceState};

    use super::*;

    #[test]
    fn a_table_of_services() {
        let service = |name: &str, pid, last_exit| Service {
            name: name.into(),
            state: ServiceState::Ready,
            since: UnixMillis(1000),
            restarts: 1,
            pid,
            memory: pid.map(|_| 25 << 20),
            cpu: pid.map(|_| Duration::from_secs(83)),
            last_exit,
        };
        let services = [service("etcd", Some(42), Some(ServiceExit::Signal(9))), service("mesh", None, None)];
        let mut text = Vec::new();
        table(&services, UnixMillis(62_000)).print(&mut text).unwrap();
        let expected = "\
SERVICE  STATE  FOR    RESTARTS  PID  CPU    MEMORY  LAST EXIT
etcd     ready  1m01s  1         42   1m23s  25 MiB  signal 9
mesh     ready  1m01s  1         -    -      -       -
";
        assert_eq!(String::from_utf8(text).unwrap(), expected);
    }
}
