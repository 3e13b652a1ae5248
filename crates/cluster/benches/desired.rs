//! Cost of a change for the streams of a large cluster: what a coordinator works out for each of 1 000 machines, of which one node
//! has just told another place. Prints the median CPU time, and fails where it is over its limit.

use std::collections::BTreeMap;
use std::error::Error;
use std::process::ExitCode;
use std::time::Duration;

use cluster::View;
use cluster::desired::Desired;
use cluster::key::Key;
use cluster::members::{Look, Members, Voter};
use cluster::record::{Endpoints, MachineRecord};
use cluster::state::{Change, KeyValue};
use model::{ClusterRole, MachineId, NodeName, VPN_PREFIX};
use sim::cast;
use testkit::rounds::Rounds;

/// Machines of the cluster; each listens to this coordinator.
const MACHINES: u16 = 1000;
const COORDINATORS: u16 = 5;
const ROUNDS: u16 = 21;
const LIMIT: Duration = Duration::from_millis(10);

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let mut view = View::read((1..=MACHINES).map(|n| put(&machine(n, 1), u64::from(n))).chain([cluster()]), 2000)?;
    let voters = (1..=COORDINATORS).map(|n| (cast::id(n), Voter::Live)).collect();
    view.see(Members { voters, ..Members::default() }, Look { revision: 2000 + u64::from(ROUNDS), applied: 1 });
    let ids: Vec<MachineId> = (1..=MACHINES).map(cast::id).collect();
    let desired = |view: &View, id: &MachineId| view.state().desired(id);
    let mut told: BTreeMap<MachineId, Desired> =
        ids.iter().map(|id| Ok((*id, desired(&view, id)?))).collect::<Result<_, Box<dyn Error>>>()?;
    let mut rounds = Rounds::default();
    for round in 1..=ROUNDS {
        let revision = 2000 + u64::from(round);
        view.take(vec![Change::Put(put(&machine(MACHINES, round + 1), revision))], revision)?;
        rounds.work(|| {
            for id in &ids {
                let desired = desired(&view, id)?;
                if !told[id].says_the_same(&desired) {
                    return Err("nobody's desired state is another for that".into());
                }
                told.insert(*id, desired);
            }
            Ok::<(), Box<dyn Error>>(())
        })?;
    }
    Ok(rounds.conclude(&format!("desired state for {MACHINES} streams, one node elsewhere"), LIMIT)?)
}

/// Machine `n`, which was heard `moves` times at another place.
fn machine(n: u16, moves: u16) -> MachineRecord {
    let role = if n <= COORDINATORS { ClusterRole::Coordinator } else { ClusterRole::Node };
    MachineRecord {
        key: cast::machine_key(n),
        name: NodeName::derived(cast::id(n)),
        role,
        kubernetes: [].into(),
        vpn_ip: VPN_PREFIX.nth(n.into()).expect("an address"),
        pods: None,
        vpn_key: cast::vpn_key(n),
        disk: cast::disk(n),
        endpoints: Endpoints { reported: vec![cast::endpoint(moves.into())], observed: vec![] },
        ..cast::creation(VPN_PREFIX).machine
    }
}

fn put(machine: &MachineRecord, mod_revision: u64) -> KeyValue {
    KeyValue { key: Key::Machine(machine.id()).bytes(), value: machine.encode(), mod_revision }
}

fn cluster() -> KeyValue {
    KeyValue { key: Key::Cluster.bytes(), value: cast::creation(VPN_PREFIX).cluster.encode(), mod_revision: 1 }
}
