//! Each law over etcd's bytes is set off by a fault that breaks it, and by nothing in a cluster that keeps it.

use std::collections::BTreeSet;

use cluster::key::{AuditId, Key};
use cluster::members::{Members, Voter};
use cluster::record::{
    Admission, ChangeCount, Cluster, ColdStartEpochs, Generations, MachineRecord, Revocation, Standing, TicketRecord,
    UnixSeconds,
};
use cluster::state::{Change, KeyValue};
use cluster::txn::Grant;
use keys::cold_start::Epoch;
use model::{ClusterRole, MachineId, NodeName, VPN_PREFIX, pod_prefix};
use sim::cast::{self, BEGIN, disk, id, machine_key, owner, ticket, vpn_key};
use sim::laws::{Breach, Laws};

/// Laws that have seen a cluster of two machines, whose first coordinates and votes, and a ticket of one use, by which the second came.
struct Seen {
    laws: Laws,
    changes: u64,
}

fn put(key: &Key, value: Vec<u8>) -> Change {
    Change::Put(KeyValue { key: key.bytes(), value, mod_revision: 1 })
}

fn machine(n: u16) -> MachineRecord {
    let node = MachineRecord {
        key: machine_key(n),
        name: NodeName::derived(id(n)),
        role: ClusterRole::Node,
        vpn_ip: VPN_PREFIX.nth(n.into()).expect("an address"),
        pods: Some(pod_prefix(u8::try_from(n).expect("few"))),
        vpn_key: vpn_key(n),
        disk: disk(n),
        admission: Admission::Ticket(ticket(7).id()),
        ..cast::creation(VPN_PREFIX).machine
    };
    if n == 1 { cast::creation(VPN_PREFIX).machine } else { node }
}

fn removed(n: u16) -> MachineRecord {
    let machine = machine(n);
    let times = cluster::record::Times { removed: Some(BEGIN), ..machine.times };
    MachineRecord { standing: Standing::Removed, times, ..machine }
}

fn of_machine(machine: &MachineRecord) -> Change {
    put(&Key::Machine(machine.id()), machine.encode())
}

fn of_cluster(recoveries: u64) -> Change {
    put(&Key::Cluster, Cluster { recoveries, ..cast::creation(VPN_PREFIX).cluster }.encode())
}

fn of_ticket(uses: u32) -> Change {
    let record = TicketRecord {
        key: ticket(7).public(),
        uses,
        used: 1,
        not_after: UnixSeconds(BEGIN.0 + 1),
        role: ClusterRole::Node,
        kubernetes: cast::worker(),
        machine: None,
        node_name: None,
        issued_by: owner(1).key,
        issued_at: BEGIN,
        revoked: Revocation::No,
    };
    put(&Key::Ticket(ticket(7).id()), record.encode())
}

fn of_epoch(number: u32, holders: &[u16]) -> Change {
    let holders: BTreeSet<MachineId> = holders.iter().map(|n| id(*n)).collect();
    let current = Some(Epoch::new(number, holders).expect("an epoch"));
    put(&Key::ColdStart, ColdStartEpochs { current, next: None }.encode())
}

fn of_audit() -> Change {
    put(&Key::Audit(AuditId::Changed { change: 1 }), vec![1])
}

fn deletes(key: &Key) -> Change {
    Change::Delete { key: key.bytes(), mod_revision: 1 }
}

fn voters(live: &[u16], silent: &[u16]) -> Members {
    let seen = |ids: &[u16], voter| ids.iter().map(|n| (id(*n), voter)).collect::<Vec<_>>();
    let voters = [seen(live, Voter::Live), seen(silent, Voter::Silent)].concat().into_iter().collect();
    Members { voters, ..Members::default() }
}

impl Seen {
    fn new() -> Self {
        let mut seen = Self { laws: Laws::default(), changes: 0 };
        let first = [of_cluster(0), of_ticket(1), of_machine(&machine(1)), of_machine(&machine(2)), of_epoch(2, &[1])];
        seen.change(&first).expect("all laws are kept");
        seen
    }

    /// Writes one revision that changes this, and counts itself.
    fn change(&mut self, changes: &[Change]) -> Result<(), Breach> {
        self.changes += 1;
        self.laws.changed(&[&[put(&Key::Version, ChangeCount(self.changes).encode())], changes].concat())
    }

    fn gives(&self, n: u16, disk_of: u16, generation: u32) -> Result<(), Breach> {
        let (machine, disk) = (id(n), disk(disk_of));
        self.laws.granted(Grant::ClusterKey { machine, disk, generation, next: None })
    }
}

type Fault = fn(&mut Seen) -> Result<(), Breach>;

/// Each law, what breaks it, and what is like that and keeps it.
const LAWS: &[(&str, Fault, Fault)] = &[
    (
        "every key and record is one that Cairn reads",
        |seen| seen.change(&[put(&Key::Machine(id(2)), vec![0xff])]),
        |seen| seen.change(&[of_machine(&machine(2))]),
    ),
    (
        "records stay",
        |seen| seen.change(&[deletes(&Key::Machine(id(2)))]),
        |seen| seen.change(&[deletes(&Key::Address(machine(2).vpn_ip))]),
    ),
    (
        "changes come one after another",
        |seen| {
            seen.changes += 1;
            seen.change(&[])
        },
        |seen| seen.change(&[]),
    ),
    (
        "no recovery is forgotten",
        |seen| {
            seen.change(&[of_cluster(1)])?;
            seen.change(&[of_cluster(0)])
        },
        |seen| seen.change(&[of_cluster(1)]),
    ),
    ("a ticket does not grow", |seen| seen.change(&[of_ticket(2)]), |seen| seen.change(&[of_ticket(1)])),
    (
        "every change writes the version",
        |seen| seen.laws.changed(&[of_machine(&machine(2))]),
        |seen| seen.laws.changed(&[of_audit()]),
    ),
    (
        "after a recovery one coordinates, and nobody else until an owner says so",
        |seen| seen.change(&[of_cluster(1), of_machine(&machine(2).made_coordinator(BEGIN))]),
        |seen| {
            seen.change(&[of_cluster(1)])?;
            seen.change(&[of_machine(&machine(2).made_coordinator(BEGIN))])
        },
    ),
    (
        "there is always a coordinator",
        |seen| seen.change(&[of_machine(&MachineRecord { role: ClusterRole::Node, ..machine(1) })]),
        |seen| {
            let laid_down = MachineRecord { role: ClusterRole::Node, ..machine(1) };
            seen.change(&[of_machine(&laid_down), of_machine(&machine(2).made_coordinator(BEGIN))])
        },
    ),
    (
        "an epoch that stands gives way to a later one only",
        |seen| seen.change(&[of_epoch(1, &[1])]),
        |seen| seen.change(&[of_epoch(3, &[1])]),
    ),
    (
        "who was removed does not come back",
        |seen| {
            seen.change(&[of_machine(&removed(2))])?;
            seen.change(&[of_machine(&machine(2))])
        },
        |seen| seen.change(&[of_machine(&removed(2))]),
    ),
    (
        "never two machines with one VPN address, pod prefix, name, VPN key or disk",
        |seen| {
            seen.change(&[of_machine(&removed(2))])?;
            let admission = Admission::Owner(owner(1).key);
            seen.change(&[of_machine(&MachineRecord { disk: disk(2), admission, ..machine(3) })])
        },
        |seen| {
            seen.change(&[of_machine(&removed(2))])?;
            let (name, admission) = (machine(2).name, Admission::Owner(owner(1).key));
            seen.change(&[of_machine(&MachineRecord { vpn_ip: machine(2).vpn_ip, name, admission, ..machine(3) })])
        },
    ),
    (
        "an address is a host's in the VPN",
        |seen| seen.change(&[of_machine(&MachineRecord { vpn_ip: VPN_PREFIX.address(), ..machine(2) })]),
        |seen| {
            seen.change(&[of_machine(&MachineRecord { vpn_ip: VPN_PREFIX.nth(9).expect("an address"), ..machine(2) })])
        },
    ),
    (
        "a ticket admits at most its uses",
        |seen| seen.change(&[of_machine(&machine(3))]),
        |seen| seen.change(&[of_machine(&MachineRecord { admission: Admission::Owner(owner(1).key), ..machine(3) })]),
    ),
    (
        "no key release to who is removed, none for another's disk",
        |seen| seen.gives(2, 1, 1),
        |seen| seen.gives(2, 2, 1),
    ),
    (
        "no key release to who is removed, none for another's disk",
        |seen| {
            seen.change(&[of_machine(&removed(2))])?;
            seen.gives(2, 2, 1)
        },
        |seen| {
            seen.change(&[of_machine(&MachineRecord { generations: Generations::Rotating(1), ..machine(2) })])?;
            seen.gives(2, 2, 2)
        },
    ),
    (
        "membership change never loses quorum",
        |seen| seen.laws.members(&voters(&[1], &[2])),
        |seen| {
            seen.change(&[of_epoch(3, &[1, 2, 3])])?;
            seen.laws.members(&voters(&[1, 2], &[3]))
        },
    ),
    (
        "whoever votes holds a share of the epoch that stands",
        |seen| seen.laws.members(&voters(&[1, 2], &[])),
        |seen| {
            seen.change(&[of_epoch(3, &[1, 2])])?;
            seen.laws.members(&voters(&[1, 2], &[]))
        },
    ),
];

/// Proves: N6 M8 S4 K6
#[test]
fn each_law_is_set_off_by_what_breaks_it() {
    for (law, breaks, keeps) in LAWS {
        let broken = breaks(&mut Seen::new()).expect_err(law);
        assert_eq!(broken.law, *law, "{broken}");
        keeps(&mut Seen::new()).unwrap_or_else(|broken| panic!("what keeps `{law}` breaks one: {broken}"));
    }
}

/// Goods that only one machine may have at a time, or ever.
///
/// Proves: M8
#[test]
fn each_thing_that_only_one_has_is_missed_when_two_have_it() {
    let admission = Admission::Owner(owner(1).key);
    let third = MachineRecord { admission, ..machine(3) };
    Seen::new().change(&[of_machine(&third)]).expect("it has all of its own");
    let second = machine(2);
    for (what, twice) in [
        ("address", MachineRecord { vpn_ip: second.vpn_ip, ..third.clone() }),
        ("pods", MachineRecord { pods: second.pods, ..third.clone() }),
        ("name", MachineRecord { name: second.name.clone(), ..third.clone() }),
        ("VPN key", MachineRecord { vpn_key: second.vpn_key, ..third.clone() }),
        ("disk", MachineRecord { disk: second.disk, ..third }),
    ] {
        let broken = Seen::new().change(&[of_machine(&twice)]).expect_err(what);
        assert!(broken.law.starts_with("never two machines") && broken.how.starts_with(what), "{broken}");
    }
}
