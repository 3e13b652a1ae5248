//! Cost of a change for the streams of a large cluster: what a coordinator works out for each of 1 000 machines, of which one node
//! has just told another place. Prints the median CPU time, and fails where it is over its limit.

use std::collections::BTreeMap;
use std::error::Error;
use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Duration;

use cluster::View;
use cluster::desired::Desired;
use cluster::key::Key;
use cluster::members::{Members, Voter};
use cluster::record::{
    Admission, Cluster, Endpoints, Generations, Machine, Owner, Policy, Release, Standing, Times, UnixSeconds,
};
use cluster::state::{Change, KeyValue};
use keys::endpoint::Endpoint;
use keys::recovery::RecoveryPubKey;
use model::{
    BootClass, ClusterId, ClusterRole, ColdStart, DiskUuid, Level, MachineId, MachinePubKey, NodeName, OwnerPubKey,
    POD_PREFIX, RootHash, Secret, Uuid, VPN_PREFIX, VpnPubKey,
};
use rustix::time::{ClockId, clock_gettime};

/// Machines of the cluster; each listens to this coordinator.
const MACHINES: u32 = 1000;
const COORDINATORS: u32 = 5;
const ROUNDS: u32 = 21;
const LIMIT: Duration = Duration::from_millis(10);

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let mut view = View::read((1..=MACHINES).map(|n| put(&machine(n, 1), u64::from(n))).chain([cluster()]), 2000)?;
    let voters = (1..=COORDINATORS).map(|n| (machine(n, 1).id(), Voter::Live)).collect();
    view.see(Members { voters, ..Members::default() });
    let ids: Vec<MachineId> = (1..=MACHINES).map(|n| machine(n, 1).id()).collect();
    let desired = |view: &View, id: &MachineId| view.state().desired(id).ok_or("each machine belongs");
    let mut told: BTreeMap<MachineId, Desired> =
        ids.iter().map(|id| Ok((*id, desired(&view, id)?))).collect::<Result<_, Box<dyn Error>>>()?;
    let mut took = Vec::new();
    for round in 1..=ROUNDS {
        let revision = 2000 + u64::from(round);
        view.take(vec![Change::Put(put(&machine(MACHINES, round + 1), revision))], revision)?;
        let before = cpu()?;
        for id in &ids {
            let desired = desired(&view, id)?;
            if !told[id].says_the_same(&desired) {
                return Err("nobody's desired state is another for that".into());
            }
            told.insert(*id, desired);
        }
        took.push(cpu()? - before);
    }
    took.sort_unstable();
    let median = took[took.len() / 2];
    writeln!(
        io::stdout(),
        "desired state for {MACHINES} streams, one node elsewhere, {ROUNDS} rounds: {:.2} ms of CPU (median; {:.2} to {:.2}), limit {} ms",
        millis(median),
        millis(took[0]),
        millis(took[took.len() - 1]),
        LIMIT.as_millis()
    )?;
    Ok(if median <= LIMIT { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// CPU time of this process so far.
fn cpu() -> Result<Duration, Box<dyn Error>> {
    Ok(clock_gettime(ClockId::ProcessCPUTime).try_into()?)
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}

/// Machine `n`, which was heard `moves` times at another place.
fn machine(n: u32, moves: u32) -> Machine {
    let mut key = [0; 32];
    key[..4].copy_from_slice(&n.to_be_bytes());
    let place = Endpoint::read(&format!("192.0.2.{moves}:7838")).expect("an endpoint");
    let coordinates = n <= COORDINATORS;
    Machine {
        key: MachinePubKey(key),
        name: NodeName::derived(keys::identity::machine_id(&key)),
        role: if coordinates { ClusterRole::Coordinator } else { ClusterRole::Node },
        kubernetes: [].into(),
        standing: Standing::Member,
        vpn_ip: VPN_PREFIX.nth(n).expect("an address"),
        pods: None,
        vpn_key: VpnPubKey(key),
        disk: DiskUuid(Uuid([1; 16])),
        generations: Generations::One(1),
        level: Level::Encrypted,
        boot_class: BootClass::Uefi,
        release: Release(0, 3, 0),
        root_hash: RootHash([7; 32]),
        storage_key_name: None,
        endpoints: Endpoints { reported: vec![place], observed: vec![] },
        admission: Admission::Owner(OwnerPubKey([1; 32])),
        times: Times {
            admitted: UnixSeconds(1),
            member: Some(UnixSeconds(2)),
            removed: None,
            coordinator: coordinates.then_some(UnixSeconds(1)),
        },
        awaits_approval: false,
    }
}

fn put(machine: &Machine, mod_revision: u64) -> KeyValue {
    KeyValue { key: Key::Machine(machine.id()).bytes(), value: machine.encode(), mod_revision }
}

fn cluster() -> KeyValue {
    let recovery = RecoveryPubKey::of(&Secret::take(&mut [2; 32]));
    let record = Cluster {
        id: ClusterId([1; 16]),
        vpn_prefix: VPN_PREFIX,
        pods_prefix: POD_PREFIX,
        policy: Policy { level: Level::Encrypted, cold_start: ColdStart::Automatic, oldest_release: Release(0, 0, 0) },
        owners: vec![Owner { key: OwnerPubKey([1; 32]), recovery }],
        recoveries: 0,
        next_address: MACHINES + 1,
        next_pods: 1,
    };
    KeyValue { key: Key::Cluster.bytes(), value: record.encode(), mod_revision: 1 }
}
