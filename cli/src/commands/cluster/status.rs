//! `cluster status`: a cluster in short. `machine status` has one of its machines in full.

use std::io::Write;
use std::time::Duration;

use api::MachineStatus;
use qemu::network::control::{AttachedMachine, PortForward};
use serde::Serialize;
use tokio::time::timeout;

use super::{each, link, reach};
use crate::commands::condition::{self, ConditionOut};
use crate::context::{Context, OpenError};
use crate::failure::Failure;
use crate::screen::{self, Format, Table};
use crate::store::{ClusterRecord, StoreError};
use crate::virtual_network;

/// Longest wait for one of several machines; a machine under emulation answers within seconds.
const ANSWER: Duration = Duration::from_secs(10);

#[derive(Debug, Serialize)]
pub(super) struct StatusOut {
    name: String,
    cluster_id: Option<String>,
    machines: Vec<MachineOut>,
    conditions: Vec<ConditionOut>,
    /// State of the virtual network, if there is one.
    network: Option<String>,
    /// Whether it leads outside.
    outside: bool,
    /// Ports of this host's loopback that lead into it.
    ports: Vec<PortForward>,
}

#[derive(Debug, Serialize)]
struct MachineOut {
    machine: String,
    name: Option<String>,
    state: String,
    level: Option<String>,
    protection: Option<String>,
    address: Option<String>,
    virtual_machine: bool,
    link: Option<String>,
}

/// Answer of a machine, or why there is none.
#[derive(Debug)]
pub(super) enum Seen<'a> {
    /// The machine's own word.
    Answers(&'a MachineStatus),
    /// Reason why there is no answer.
    Not(String),
}

/// State of a cluster's network, as far as it is known.
#[derive(Debug)]
pub(super) enum NetworkSeen {
    Runs(Vec<AttachedMachine>),
    Off,
    Lost,
    Unclear(String),
}

pub(crate) async fn run(context: &Context, out: &mut dyn Write) -> Result<(), Failure> {
    let record = context.cluster()?;
    // After the machines: one that was asked is plugged in.
    let network = || record.network.is_some().then(|| network(context, &record));
    let shown = match (&context.machine, record.machines().len()) {
        (None, 2..) => {
            let asked = (0..record.machines().len()).map(|machine| ask(context, &record, machine));
            let heard = each::all(asked).await;
            let seen = heard.iter().enumerate().map(|(machine, heard)| match heard {
                Ok(status) => (machine, Seen::Answers(status)),
                Err(why) => (machine, Seen::Not(why.clone())),
            });
            describe(&record, seen, network().as_ref())
        }
        _ => {
            let (mut session, meant) = context.open().await?;
            let at = record.meant(Some(meant.name())).map_err(StoreError::from)?;
            let status = session.status().await?;
            let mut shown = describe(&meant.record, [(at, Seen::Answers(&status))].into_iter(), network().as_ref());
            shown.conditions = status.conditions.iter().map(ConditionOut::from).collect();
            if context.format == Format::Table {
                print(&shown, out)?;
                writeln!(out)?;
                condition::table(&status.conditions).print(out)?;
                return Ok(());
            }
            shown
        }
    };
    match context.format {
        Format::Json => screen::json(out, &shown)?,
        Format::Table => print(&shown, out)?,
    }
    Ok(())
}

/// Status of a machine, or in a word why there is none.
async fn ask(context: &Context, record: &ClusterRecord, machine: usize) -> Result<MachineStatus, String> {
    let context = context.about(&record.name, &record.machines()[machine].name);
    let asked = async {
        let (mut session, _) = context.open().await?;
        Ok::<_, OpenError>(session.status().await?)
    };
    match timeout(ANSWER, asked).await {
        Ok(Ok(status)) => Ok(status),
        Ok(Err(OpenError::Off { .. })) => Err("off".to_owned()),
        Ok(Err(OpenError::NetworkEnded { .. })) => Err("no network".to_owned()),
        Ok(Err(error)) if error.may_pass() => Err("no answer".to_owned()),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err("no answer".to_owned()),
    }
}

fn network(context: &Context, record: &ClusterRecord) -> NetworkSeen {
    match virtual_network::of(&context.store, record) {
        Ok(network) => match network.machines() {
            Ok(machines) => NetworkSeen::Runs(machines),
            Err(error) => NetworkSeen::Unclear(error.to_string()),
        },
        // It ends with the last machine.
        Err(virtual_network::NetworkError::Ended { .. }) => match virtual_network::is_lost(&context.store, record) {
            Ok(false) => NetworkSeen::Off,
            Ok(true) | Err(_) => NetworkSeen::Lost,
        },
        Err(error) => NetworkSeen::Unclear(error.to_string()),
    }
}

/// A cluster in the form programs read.
pub(super) fn describe<'a>(
    record: &ClusterRecord,
    seen: impl Iterator<Item = (usize, Seen<'a>)>,
    network: Option<&NetworkSeen>,
) -> StatusOut {
    let links = match network {
        Some(NetworkSeen::Runs(machines)) => &machines[..],
        Some(NetworkSeen::Off | NetworkSeen::Lost | NetworkSeen::Unclear(_)) | None => &[],
    };
    let machines: Vec<MachineOut> = seen
        .map(|(at, seen)| {
            let machine = &record.machines()[at];
            let status = match &seen {
                Seen::Answers(status) => Some(*status),
                Seen::Not(_) => None,
            };
            let on_network = links.iter().find(|one| one.name == machine.name.as_str());
            MachineOut {
                machine: machine.name.to_string(),
                name: status.map(|status| status.name.clone()),
                state: match seen {
                    Seen::Answers(status) => status.state.to_string(),
                    Seen::Not(why) => why,
                },
                level: status.and_then(|status| status.level).map(|level| level.to_string()),
                protection: status.map(|status| status.protection.to_string()),
                address: machine.address.clone(),
                virtual_machine: machine.virtual_machine.is_some(),
                link: on_network.map(link::in_short),
            }
        })
        .collect();
    StatusOut {
        name: record.name.to_string(),
        cluster_id: record.cluster_id().map(|id| id.to_string()),
        machines,
        conditions: vec![],
        network: network.map(|network| in_words(network, record)),
        outside: record.network.as_ref().is_some_and(|network| network.outside),
        ports: record.network.as_ref().map_or_else(Vec::new, |network| network.ports.clone()),
    }
}

fn in_words(network: &NetworkSeen, record: &ClusterRecord) -> String {
    match network {
        NetworkSeen::Runs(_) => "runs".to_owned(),
        NetworkSeen::Off => "off".to_owned(),
        NetworkSeen::Lost => {
            format!("has ended: nothing leads to its machines; cairnctl cluster start {}", record.name)
        }
        NetworkSeen::Unclear(why) => format!("unclear: {why}"),
    }
}

fn print(shown: &StatusOut, out: &mut dyn Write) -> std::io::Result<()> {
    let or_dash = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".to_owned());
    writeln!(out, "cluster {} ({})", shown.name, or_dash(&shown.cluster_id))?;
    if let Some(network) = shown.network.as_ref().filter(|network| *network != "runs" && *network != "off") {
        writeln!(out, "its virtual network {network}")?;
    }
    for way in reach::in_words(shown.outside, &shown.ports) {
        writeln!(out, "{way}")?;
    }
    writeln!(out)?;
    let mut table = Table::new(["MACHINE", "NODE", "STATE", "LEVEL", "PROTECTION", "ADDRESS", "LINK"]);
    for machine in &shown.machines {
        table.row([
            machine.machine.clone(),
            or_dash(&machine.name),
            machine.state.clone(),
            or_dash(&machine.level),
            or_dash(&machine.protection),
            or_dash(&machine.address),
            or_dash(&machine.link),
        ]);
    }
    table.print(out)
}
