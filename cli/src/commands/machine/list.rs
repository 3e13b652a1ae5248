//! `machine list`: the machines of the cluster, by its records; where no coordinator shows them, by what this host keeps.

use std::io::Write;

use api::{EtcdMember, ListPage, ListedMachine, UnixMillis};
use cluster::record::Generations;
use model::ClusterRole;
use serde::Serialize;

use crate::commands;
use crate::context::{Context, OpenError};
use crate::failure::Failure;
use crate::screen::{self, Format, Table};
use crate::store::{ClusterRecord, Known};

#[derive(Debug, Serialize)]
struct MachineOut {
    machine_id: String,
    name: String,
    role: String,
    /// `voter` or `learner`; absent: etcd has no such member.
    etcd: Option<&'static str>,
    /// Whether that votes, and does not answer.
    etcd_silent: bool,
    kubernetes_roles: Vec<String>,
    state: &'static str,
    version: String,
    vpn_ip: String,
    addresses: Vec<String>,
    last_seen_unix_ms: Option<u64>,
    /// Whether it was removed and may have kept keys that the cluster still uses, so that these are due to be rotated.
    rotation_due: bool,
    /// Whether it coordinates and has not taken its share of the newest cold-start key.
    share_due: bool,
    /// Whether it is a node that becomes a coordinator once an owner approves it.
    awaits_approval: bool,
    /// Which cluster key its disk is locked with.
    key_generation: u32,
    /// Whether it is to take the next one.
    key_rotates: bool,
}

#[derive(Debug, Serialize)]
struct MachinesOut {
    /// Absent: it is of now.
    old_since_unix_ms: Option<u64>,
    machines: Vec<MachineOut>,
}

/// In place of the above where no coordinator shows the cluster's records.
#[derive(Debug, Serialize)]
struct KnownOut {
    known_here: Vec<KnownMachine>,
}

#[derive(Debug, Serialize)]
struct KnownMachine {
    name: String,
    /// Absent: it is not known by a key yet.
    machine_id: Option<String>,
    /// `met`, `not met`, `joins` or `listed`.
    known: &'static str,
    addresses: Vec<String>,
}

impl From<&ListedMachine> for MachineOut {
    fn from(machine: &ListedMachine) -> Self {
        Self {
            machine_id: machine.id.to_string(),
            name: machine.name.clone(),
            role: machine.role.to_string(),
            etcd: machine.etcd.map(|member| match member {
                EtcdMember::Voter => "voter",
                EtcdMember::Learner => "learner",
            }),
            etcd_silent: machine.silent,
            rotation_due: machine.may_hold_keys,
            share_due: machine.share_due,
            awaits_approval: machine.awaits_approval,
            kubernetes_roles: machine.kubernetes.iter().map(ToString::to_string).collect(),
            state: machine.standing.word(),
            version: machine.version.clone(),
            vpn_ip: machine.vpn_ip.to_string(),
            addresses: machine.addresses.clone(),
            last_seen_unix_ms: machine.last_seen.map(|at| at.0),
            key_generation: machine.generations.oldest(),
            key_rotates: matches!(machine.generations, Generations::Rotating(_)),
        }
    }
}

pub(crate) async fn run(context: &Context, out: &mut dyn Write) -> Result<(), Failure> {
    let asked = async {
        let (mut session, meant) = context.open_coordinator().await?;
        let listed = session.machines_seen().await?;
        Ok::<_, OpenError>((session, meant, listed))
    };
    let (mut session, meant, listed) = match asked.await {
        Ok(asked) => asked,
        Err(error) => return Err(by_this_host(error, context, out)),
    };
    context.hear(&meant, &listed.rows)?;
    match context.format {
        Format::Json => screen::json(
            out,
            &MachinesOut {
                old_since_unix_ms: listed.old_since.map(|at| at.0),
                machines: listed.rows.iter().map(MachineOut::from).collect(),
            },
        )?,
        Format::Table => {
            let now = session.status().await?.now;
            table(&listed, now).print(out)?;
            commands::old(listed.old_since, now, out)?;
        }
    }
    Ok(())
}

/// Lists what this host keeps of the machines. The command has failed all the same: nobody has said what holds now.
fn by_this_host(error: OpenError, context: &Context, out: &mut dyn Write) -> Failure {
    let Ok(record) = context.cluster() else { return error.into() };
    let known_here = known_here(&record);
    let printed = match context.format {
        Format::Json => screen::json(out, &KnownOut { known_here }),
        Format::Table => known_table(&known_here).print(out),
    };
    match printed {
        Ok(()) => Failure::from(error).leaving(
            "listed is what this host keeps of the cluster's machines; their roles and states, and who else is of the cluster, \
             could not be asked",
        ),
        Err(lost) => lost.into(),
    }
}

fn known_here(record: &ClusterRecord) -> Vec<KnownMachine> {
    let own = record.machines().iter().enumerate().map(|(at, machine)| {
        let (machine_id, known) = match record.known(at) {
            Known::Pinned(pins) => (Some(pins.machine.to_string()), "met"),
            Known::Awaited(_) => (None, "not met"),
            Known::Joins => (None, "joins"),
        };
        KnownMachine {
            name: machine.name.to_string(),
            machine_id,
            known,
            addresses: machine.address.iter().cloned().collect(),
        }
    });
    let others = record.others().iter().map(|other| KnownMachine {
        name: other.name.to_string(),
        machine_id: Some(other.machine.to_string()),
        known: "listed",
        addresses: other.addresses.clone(),
    });
    own.chain(others).collect()
}

fn known_table(machines: &[KnownMachine]) -> Table<4> {
    let mut table = Table::new(["NAME", "KNOWN", "MACHINE", "ADDRESSES"]);
    for machine in machines {
        let addresses = if machine.addresses.is_empty() { "-".to_owned() } else { machine.addresses.join(" ") };
        let id = machine.machine_id.clone().unwrap_or_else(|| "-".to_owned());
        table.row([machine.name.clone(), machine.known.to_owned(), id, addresses]);
    }
    table
}

fn table(listed: &ListPage<ListedMachine>, now: UnixMillis) -> Table<8> {
    let mut table =
        Table::new(["NAME", "ROLE", "KUBERNETES", "STATE", "VERSION", "VPN ADDRESS", "ADDRESSES", "LAST SEEN"]);
    for machine in &listed.rows {
        let seen = |at: UnixMillis| format!("{} ago", screen::span(now.since(at)));
        let addresses = if machine.addresses.is_empty() { "-".to_owned() } else { machine.addresses.join(" ") };
        table.row([
            machine.name.clone(),
            role(machine),
            commands::roles(&machine.kubernetes),
            state(machine),
            machine.version.clone(),
            machine.vpn_ip.to_string(),
            addresses,
            machine.last_seen.map_or_else(|| "-".to_owned(), seen),
        ]);
    }
    table
}

/// How far it belongs to the cluster, and whether keys are to be changed: its own, by another start; or, since it may have kept
/// them, the cluster's.
fn state(machine: &ListedMachine) -> String {
    match machine.generations {
        Generations::One(_) | Generations::Rotating(_) if machine.may_hold_keys => {
            format!("{} (rotation due)", machine.standing.word())
        }
        Generations::One(_) => machine.standing.word().to_owned(),
        Generations::Rotating(_) => format!("{} (key rotates)", machine.standing.word()),
    }
}

/// The role, and how its etcd is, where it is not as it should be.
fn role(machine: &ListedMachine) -> String {
    let role = machine.role;
    match (role, machine.etcd) {
        (ClusterRole::Coordinator, Some(EtcdMember::Voter)) if machine.silent || machine.share_due => {
            let why = [(machine.silent, "silent"), (machine.share_due, "share due")];
            let why: Vec<_> = why.into_iter().filter_map(|(is_so, why)| is_so.then_some(why)).collect();
            format!("{role} ({})", why.join(", "))
        }
        (ClusterRole::Node, None) if machine.awaits_approval => format!("{role} (waits for approval)"),
        (ClusterRole::Coordinator, Some(EtcdMember::Voter)) | (ClusterRole::Node, None) => role.to_string(),
        (ClusterRole::Coordinator, Some(EtcdMember::Learner)) => format!("{role} (no vote yet)"),
        (ClusterRole::Coordinator, None) => format!("{role} (joining etcd)"),
        (ClusterRole::Node, Some(_)) => format!("{role} (leaving etcd)"),
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use cluster::record::Standing;
    use model::{KubernetesRole, MachineId, NodeName};

    use super::*;
    use crate::context::home::{self, Two};
    use crate::failure::Code;
    use crate::store::OtherMachine;

    #[test]
    fn machines_are_listed_with_all_that_is_known_of_them() {
        let machine = |n: u8, standing, last_seen| ListedMachine {
            id: MachineId([n; 16]),
            name: format!("m{n}"),
            role: if n == 1 { ClusterRole::Coordinator } else { ClusterRole::Node },
            kubernetes: if n == 1 { KubernetesRole::ALL.iter().copied().collect() } else { [].into() },
            standing,
            version: "0.1.0".to_owned(),
            vpn_ip: Ipv4Addr::new(10, 118, 0, n),
            addresses: if n == 1 { vec!["192.0.2.1".to_owned(), "198.51.100.1".to_owned()] } else { vec![] },
            last_seen,
            etcd: (n == 1).then_some(EtcdMember::Voter),
            silent: false,
            may_hold_keys: false,
            share_due: false,
            awaits_approval: false,
            generations: Generations::One(1),
        };
        let rows = vec![machine(1, Standing::Member, Some(UnixMillis(1000))), machine(2, Standing::Admitted, None)];
        let mut text = Vec::new();
        table(&ListPage { old_since: None, rows: rows.clone() }, UnixMillis(4000)).print(&mut text).unwrap();
        let expected = "\
NAME  ROLE         KUBERNETES            STATE     VERSION  VPN ADDRESS  ADDRESSES               LAST SEEN
m1    coordinator  control-plane,worker  Member    0.1.0    10.118.0.1   192.0.2.1 198.51.100.1  3s ago
m2    node         -                     Admitted  0.1.0    10.118.0.2   -                       -
";
        assert_eq!(String::from_utf8(text).unwrap(), expected);
        let with = |etcd| role(&ListedMachine { etcd, ..rows[0].clone() });
        assert_eq!(with(Some(EtcdMember::Learner)), "coordinator (no vote yet)");
        assert_eq!(with(None), "coordinator (joining etcd)");
        assert_eq!(role(&ListedMachine { silent: true, ..rows[0].clone() }), "coordinator (silent)");
        assert_eq!(role(&ListedMachine { share_due: true, ..rows[0].clone() }), "coordinator (share due)");
        let off = ListedMachine { silent: true, share_due: true, ..rows[0].clone() };
        assert_eq!(role(&off), "coordinator (silent, share due)");
        assert_eq!(role(&ListedMachine { awaits_approval: true, ..rows[1].clone() }), "node (waits for approval)");
        let rotates = ListedMachine { generations: Generations::Rotating(1), ..rows[0].clone() };
        assert_eq!(state(&rotates), "Member (key rotates)");
        let gone = ListedMachine { standing: Standing::Removed, may_hold_keys: true, ..rotates };
        assert_eq!(state(&gone), "Removed (rotation due)");
        let leaves = ListedMachine { etcd: Some(EtcdMember::Voter), ..rows[1].clone() };
        assert_eq!(role(&leaves), "node (leaving etcd)");
    }

    /// Proves: Q6
    #[tokio::test]
    async fn without_a_coordinator_what_this_host_knows_is_listed() {
        let two = home::two().await;
        let Two { context, node, owner, coordinator, .. } = &two;
        let list = async || {
            let mut out = Vec::new();
            let ended = run(context, &mut out).await;
            (String::from_utf8(out).unwrap(), ended)
        };
        // Not met yet; then met, with one more machine that only the cluster's list has.
        let m3 = coordinator.node(3, owner.clone()).await;
        let mut record = context.cluster().unwrap();
        record.meet(coordinator.pins());
        let m3 = OtherMachine {
            name: NodeName::stored("m3").unwrap(),
            machine: m3.machine,
            addresses: vec!["127.0.0.1:2".to_owned(), "127.0.0.1:3".to_owned()],
        };
        let (id, listed) = (coordinator.machine, m3.machine);
        record.hear([m3]);
        context.keep(&record);
        let (asked, ended) = list().await;
        ended.unwrap();
        assert!(asked.starts_with("NAME") && asked.contains("LAST SEEN"), "the cluster's own list: {asked}");
        record.machines_mut()[0].address = Some("127.0.0.1:1".to_owned());
        context.keep(&record);
        let (known, ended) = list().await;
        let expected = format!(
            "NAME  KNOWN   MACHINE                           ADDRESSES\n\
             m1    met     {id}  127.0.0.1:1\n\
             m2    joins   -                                 {}\n\
             m3    listed  {listed}  127.0.0.1:2 127.0.0.1:3\n",
            node.address
        );
        assert_eq!(known, expected);
        let mut said = Vec::new();
        let failed = ended.unwrap_err();
        failed.print(&mut said).unwrap();
        let said = String::from_utf8(said).unwrap();
        assert_eq!(failed.code(), Code::Unreachable);
        assert!(said.contains("m1: connect to 127.0.0.1:1") && said.contains("could not be asked"), "{said}");
        let json = Context { format: Format::Json, ..context.about_cluster(&home::name()) };
        let mut out = Vec::new();
        run(&json, &mut out).await.unwrap_err();
        let known: serde_json::Value = serde_json::from_slice(&out).unwrap();
        let names: Vec<_> = (0..3).map(|at| known["known_here"][at]["name"].as_str().unwrap()).collect();
        assert_eq!(names, ["m1", "m2", "m3"]);
    }
}
