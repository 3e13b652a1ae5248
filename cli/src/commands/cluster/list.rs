//! `cluster list`: what this host knows, and what each machine says without being asked for more.

use std::io::Write;
use std::time::Duration;

use serde::Serialize;
use tokio::time::timeout;

use crate::commands::Context;
use crate::failure::Failure;
use crate::machine::public_state;
use crate::screen::{self, Format, Table};
use crate::store::{ClusterName, ClusterRecord, StoreError};
use crate::virtual_machine;

/// A list must not hang on a machine that is gone.
const ANSWER: Duration = Duration::from_secs(3);

#[derive(Debug, Serialize)]
struct ClusterOut {
    name: String,
    cluster_id: Option<String>,
    machine_id: Option<String>,
    address: Option<String>,
    kind: &'static str,
    state: String,
}

impl ClusterOut {
    fn damaged(name: &ClusterName) -> Self {
        let state = "record damaged".to_owned();
        Self { name: name.to_string(), cluster_id: None, machine_id: None, address: None, kind: "unknown", state }
    }
}

pub(crate) async fn run(context: &Context, out: &mut dyn Write) -> Result<(), Failure> {
    let mut clusters = Vec::new();
    for name in context.store.clusters()? {
        match context.store.load(&name) {
            Ok(record) => clusters.push(describe(&record, state(&record, context).await)),
            // The others are still worth a look; whoever works on this one is told all about it.
            Err(StoreError::Record(_)) => clusters.push(ClusterOut::damaged(&name)),
            Err(error) => return Err(error.into()),
        }
    }
    match context.format {
        Format::Json => screen::json(out, &clusters)?,
        Format::Table => table(&clusters).print(out)?,
    }
    Ok(())
}

/// The machine's word, or that there is none.
async fn state(record: &ClusterRecord, context: &Context) -> String {
    // Whether one runs that cannot be found out about, its answer shows.
    let directory = context.store.machine_directory(&record.name);
    if record.machine().virtual_machine.is_some() && matches!(virtual_machine::runs(&directory), Ok(false)) {
        return "off".to_owned();
    }
    let Some(Ok(address)) = record.machine().address.as_deref().map(str::parse) else {
        return "not seen yet".to_owned();
    };
    match timeout(ANSWER, public_state(&address, record.pins().as_ref())).await {
        Ok(Ok(public)) => public.state.to_string(),
        Ok(Err(error)) if error.may_pass() => "no answer".to_owned(),
        Ok(Err(_)) => "somebody else answers".to_owned(),
        Err(_) => "no answer".to_owned(),
    }
}

fn describe(record: &ClusterRecord, state: String) -> ClusterOut {
    let (machine, pins) = (record.machine(), record.pins());
    ClusterOut {
        name: record.name.to_string(),
        cluster_id: pins.map(|pins| pins.cluster.to_string()),
        machine_id: pins.map(|pins| pins.machine.to_string()),
        address: machine.address.clone(),
        kind: if machine.virtual_machine.is_some() { "virtual" } else { "hardware" },
        state,
    }
}

fn table(clusters: &[ClusterOut]) -> Table<5> {
    let mut table = Table::new(["NAME", "STATE", "KIND", "ADDRESS", "CLUSTER ID"]);
    for cluster in clusters {
        table.row([
            cluster.name.clone(),
            cluster.state.clone(),
            cluster.kind.to_owned(),
            cluster.address.clone().unwrap_or_else(|| "-".to_owned()),
            cluster.cluster_id.clone().unwrap_or_else(|| "-".to_owned()),
        ]);
    }
    table
}
