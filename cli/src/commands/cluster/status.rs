//! `cluster status`: a cluster in short. `machine status` has it in full.

use std::io::Write;

use api::MachineStatus;
use serde::Serialize;

use crate::commands::Context;
use crate::commands::condition::{self, ConditionOut};
use crate::failure::Failure;
use crate::screen::{self, Format, Table};
use crate::store::ClusterRecord;

#[derive(Debug, Serialize)]
pub(super) struct StatusOut {
    name: String,
    cluster_id: Option<String>,
    machines: Vec<MachineOut>,
    conditions: Vec<ConditionOut>,
}

#[derive(Debug, Serialize)]
struct MachineOut {
    name: String,
    state: String,
    level: Option<String>,
    protection: String,
    address: Option<String>,
    virtual_machine: bool,
}

pub(crate) async fn run(context: &Context, out: &mut dyn Write) -> Result<(), Failure> {
    let (mut session, record) = context.open().await?;
    let status = session.status().await?;
    let shown = describe(&record, &status);
    match context.format {
        Format::Json => screen::json(out, &shown)?,
        Format::Table => {
            writeln!(out, "cluster {} ({})\n", shown.name, shown.cluster_id.as_deref().unwrap_or("-"))?;
            table(&shown.machines).print(out)?;
            writeln!(out)?;
            condition::table(&status.conditions).print(out)?;
        }
    }
    Ok(())
}

/// A cluster in the form programs read.
pub(super) fn describe(record: &ClusterRecord, status: &MachineStatus) -> StatusOut {
    StatusOut {
        name: record.name.to_string(),
        cluster_id: status.cluster_id.map(|id| id.to_string()),
        machines: vec![MachineOut {
            name: status.name.clone(),
            state: status.state.to_string(),
            level: status.level.map(|level| level.to_string()),
            protection: status.protection.to_string(),
            address: record.machine().address.clone(),
            virtual_machine: record.machine().virtual_machine.is_some(),
        }],
        conditions: status.conditions.iter().map(ConditionOut::from).collect(),
    }
}

fn table(machines: &[MachineOut]) -> Table<5> {
    let mut table = Table::new(["MACHINE", "STATE", "LEVEL", "PROTECTION", "ADDRESS"]);
    let or_dash = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".to_owned());
    for machine in machines {
        table.row([
            machine.name.clone(),
            machine.state.clone(),
            or_dash(&machine.level),
            machine.protection.clone(),
            or_dash(&machine.address),
        ]);
    }
    table
}
