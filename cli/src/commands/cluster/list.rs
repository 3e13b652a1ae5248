//! `cluster list`: what this host knows, and what each machine says without being asked for more. Of several machines of a
//! cluster the states are counted.

use std::collections::BTreeMap;
use std::io::Write;
use std::time::Duration;

use serde::Serialize;
use tokio::time::timeout;

use crate::context::Context;
use crate::failure::Failure;
use crate::machine::public_state;
use crate::screen::{self, Format, Table};
use crate::store::{ClusterName, ClusterRecord, StoreError};
use crate::{virtual_machine, virtual_network};

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
    machines: usize,
}

impl ClusterOut {
    fn damaged(name: &ClusterName) -> Self {
        let state = "record damaged".to_owned();
        let (cluster_id, machine_id, address) = (None, None, None);
        Self { name: name.to_string(), cluster_id, machine_id, address, kind: "unknown", state, machines: 0 }
    }
}

pub(crate) async fn run(context: &Context, out: &mut dyn Write) -> Result<(), Failure> {
    let mut clusters = Vec::new();
    for name in context.store.clusters()? {
        match context.store.load(&name) {
            Ok(record) => {
                let mut states = Vec::new();
                for machine in 0..record.machines().len() {
                    states.push(state(&record, machine, context).await);
                }
                clusters.push(describe(&record, counted(&states)));
            }
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
async fn state(record: &ClusterRecord, at: usize, context: &Context) -> String {
    let machine = &record.machines()[at];
    // Whether one runs that cannot be found out about, its answer shows.
    let directory = context.store.machine_directory(&record.name, &machine.name);
    if machine.virtual_machine.is_some() {
        if matches!(virtual_machine::runs(&directory), Ok(false)) {
            return "off".to_owned();
        }
        if matches!(virtual_network::runs(&context.store.network_directory(&record.name)), Ok(false)) {
            return "no network".to_owned();
        }
    }
    let Some(Ok(address)) = machine.address.as_deref().map(str::parse) else {
        return "not seen yet".to_owned();
    };
    match timeout(ANSWER, public_state(&address, record.pins(at).as_ref())).await {
        Ok(Ok(public)) => public.state.to_string(),
        Ok(Err(error)) if !error.may_pass() => "somebody else answers".to_owned(),
        // A save of it was cut short; `cluster start` has it go on.
        Ok(Err(_)) | Err(_) if matches!(virtual_machine::stands_still(&directory), Ok(true)) => {
            "stands still".to_owned()
        }
        Ok(Err(_)) | Err(_) => "no answer".to_owned(),
    }
}

fn describe(record: &ClusterRecord, state: String) -> ClusterOut {
    let machine = &record.machines()[0];
    ClusterOut {
        name: record.name.to_string(),
        cluster_id: record.cluster_id().map(|id| id.to_string()),
        machine_id: record.pins(0).map(|pins| pins.machine.to_string()),
        address: machine.address.clone(),
        kind: if machine.virtual_machine.is_some() { "virtual" } else { "hardware" },
        state,
        machines: record.machines().len(),
    }
}

/// A single state as it is, several as how many there are of each.
fn counted(states: &[String]) -> String {
    let mut all: BTreeMap<&str, usize> = BTreeMap::new();
    for state in states {
        *all.entry(state).or_default() += 1;
    }
    match states {
        [one] => one.clone(),
        _ => all.iter().map(|(state, count)| format!("{count} {state}")).collect::<Vec<_>>().join(", "),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_states_of_several_machines_are_counted() {
        let counted = |states: &[&str]| counted(&states.iter().map(|state| (*state).to_owned()).collect::<Vec<_>>());
        assert_eq!(counted(&["Running"]), "Running");
        assert_eq!(counted(&["off", "Running", "off"]), "1 Running, 2 off");
        assert_eq!(counted(&["off", "off"]), "2 off");
    }
}
