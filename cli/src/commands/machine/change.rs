//! `machine role`, `machine approve`, `machine remove` and `machine rotate-key`: what a machine is to its cluster. The cluster's records are changed, by
//! any coordinator; the machines follow by themselves, and `--wait` looks until they have.

use std::io::Write;
use std::time::Duration;

use api::{ConditionName, LeavingData, ListedMachine, MachineChange, MachineStatus, RoleDirection};
use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Subcommand};
use cluster::record::Generations;
use cluster::role::AnyRole;
use model::{ClusterRole, KubernetesRole, NodeName};

use super::drain::{Drain, before_leaving};
use super::erase::{self, Erase};
use crate::clock::Deadline;
use crate::commands::condition;
use crate::context::{Context, OpenError};
use crate::failure::{Advice, Code, Failure, NOTHING};
use crate::length;
use crate::machine::{CallError, Session};
use crate::screen::{self, Progress};

#[derive(Debug, Subcommand)]
pub(crate) enum Role {
    /// Give a machine a role: coordinator, control-plane or worker
    ///
    /// A coordinator holds the cluster's state. A control-plane is a coordinator that
    /// runs the Kubernetes API, and a worker runs pods.
    ///
    /// Votes grow in pairs: 1, 3, 5, 7. One more than that keeps a copy and votes
    /// as soon as there is a second one. Where an even number votes, since roles
    /// were taken, one more votes by itself. While one that votes is silent, by
    /// `cairnctl machine list`, nobody new joins it: switch it on or remove it.
    Add(RoleChange),
    /// Take a role away from a machine
    ///
    /// Without the role of a coordinator it is a node, and holds none of the cluster's
    /// state. Pods of a worker are moved first, as by `cairnctl machine drain`.
    ///
    /// Of three voters two are left, where no other coordinator keeps a copy: then
    /// nothing is decided while one of the two is off.
    Remove(RoleRemoval),
    /// Have a machine that was taken out erase what it keeps of a coordinator
    Erase(Erase),
}

#[derive(Debug, Args)]
pub(crate) struct RoleChange {
    /// The machine's name or id, as `cairnctl machine list` shows it
    #[arg(value_name = "MACHINE")]
    called: String,
    /// The role
    #[arg(value_name = "ROLE", value_parser = any_role())]
    role: AnyRole,
    #[command(flatten)]
    following: Following,
}

#[derive(Debug, Args)]
pub(crate) struct RoleRemoval {
    #[command(flatten)]
    change: RoleChange,
    #[command(flatten)]
    pods: Pods,
}

/// Pods of a machine that is to run none any more.
#[derive(Debug, Args)]
struct Pods {
    /// End a worker's pods where they are, without moving them first
    #[arg(long)]
    no_drain: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  cairnctl machine approve m3 --wait           m3 holds the cluster's state from then on
  cairnctl machine role remove m3 coordinator  it stays a node

A ticket of role coordinator that names no machine makes nodes, which `cairnctl
machine list` shows as `waits for approval`: whoever got hold of such a ticket
would have the whole cluster otherwise. Approve a machine that you know.")]
pub(crate) struct Approve {
    /// The machine's name or id, as `cairnctl machine list` shows it
    #[arg(value_name = "MACHINE")]
    called: String,
    #[command(flatten)]
    following: Following,
}

#[derive(Debug, Args)]
struct Following {
    /// Wait until the machine has followed
    #[arg(long)]
    wait: bool,
    /// How long to wait
    #[arg(long, value_name = "TIME", default_value = "5m", value_parser = length::parse, requires = "wait")]
    timeout: Duration,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  cairnctl machine remove m4
  cairnctl machine remove m4 --lost    it is broken and will not come back

A machine that is removed does not get its key again: its data stays shut.
Pods of a worker are moved first, as by `cairnctl machine drain`.
While claims of Kubernetes have volumes on it they are named, and nothing is
done. With `--delete-volumes`, or `--lost`, that data is gone: the claims stay,
each with an event that says so, and their PersistentVolumes are deleted.
After `--lost` the other coordinators take shares of another cold-start key.
Those that have not yet, since they are off, are named, and listed as `share
due`: until they have, the removed one's share still counts with theirs.
One that was a coordinator is listed as `rotation due`: it may have kept keys
of the cluster, and Cairn does not change those yet. Destroy its disk and TPM.")]
pub(crate) struct Remove {
    /// The machine's name or id, as `cairnctl machine list` shows it
    #[arg(value_name = "MACHINE")]
    called: String,
    /// The machine will not come back: take it out as it is
    #[arg(long)]
    lost: bool,
    /// Give up what claims of Kubernetes keep on it
    #[arg(long)]
    delete_volumes: bool,
    #[command(flatten)]
    pods: Pods,
    /// How long it may take to move its pods, and a coordinator to leave
    #[arg(long, value_name = "TIME", default_value = "5m", value_parser = length::parse)]
    timeout: Duration,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  cairnctl machine rotate-key m4 --wait   until m4 may be started again
  cairnctl -m m4 machine reboot --wait    m4 takes the next key now

Until the machine has been started again the cluster gives it both keys, then
the older one to nobody. Whoever copied its ESP before, and has the cluster key
of then, does not open its disk any more. A node may be started at once. A
coordinator has to write its share of the cold-start key first, which takes a
second or two: started before that it takes the key one start later. `machine
list` shows which machines are to take another key.")]
pub(crate) struct RotateKey {
    /// The machine's name or id, as `cairnctl machine list` shows it
    #[arg(value_name = "MACHINE")]
    called: String,
    /// Wait until a start of the machine takes the key
    #[arg(long)]
    wait: bool,
    /// How long to wait
    #[arg(long, value_name = "TIME", default_value = "5m", value_parser = length::parse, requires = "wait")]
    timeout: Duration,
}

/// etcd lets go of the removed one, an epoch begins, and each coordinator writes its share and says so.
const TAKES_SHARE: Duration = Duration::from_secs(30);

/// A voter that does not answer just now is heard again, and one that has just left is gone.
const SETTLES: Duration = Duration::from_secs(15);

/// Why nothing is changed, or not all of it.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ChangeError {
    /// The cluster has no machine of that name or id.
    #[error("the cluster has no machine `{0}`")]
    Unknown(String),
    /// The machine joined by another ticket, or somebody has said already what it is.
    #[error("machine `{0}` does not wait to be approved")]
    NoApproval(String),
    /// The machine takes longer to follow.
    #[error("machine `{name}` has not followed after {} s", after.as_secs())]
    Late { name: String, after: Duration },
    /// The machine is out of etcd, and has not said that it has laid down its roles.
    #[error("machine `{name}` does not say that it has laid down its roles, for {} s", after.as_secs())]
    Holds { name: String, after: Duration },
    /// A start would not take the next cluster key.
    #[error("machine `{name}` may not be started yet to take its next key, after {} s: {last}", after.as_secs())]
    NotPrepared { name: String, after: Duration, last: String },
}

impl Advice for ChangeError {
    fn code(&self) -> Code {
        match self {
            Self::Unknown(_) => Code::NotFound,
            Self::NoApproval(_) => Code::Usage,
            Self::Late { .. } | Self::Holds { .. } | Self::NotPrepared { .. } => Code::Timeout,
        }
    }

    fn unchanged(&self) -> &'static str {
        match self {
            Self::Unknown(_) | Self::NoApproval(_) => NOTHING,
            Self::Late { .. } => "the cluster's records are changed, and the machine follows when it can",
            Self::NotPrepared { .. } => "the cluster gives both keys, and the machine takes the next one when it can",
            Self::Holds { .. } => "it is drained and has no role any more, and is still of the cluster",
        }
    }

    fn next(&self) -> Option<String> {
        Some(match self {
            Self::Unknown(_) | Self::Late { .. } => "cairnctl machine list".to_owned(),
            Self::NoApproval(name) => {
                format!("to make a coordinator of it all the same: cairnctl machine role add {name} coordinator")
            }
            Self::NotPrepared { name, .. } => format!("wait on: cairnctl machine rotate-key {name} --wait"),
            Self::Holds { name, .. } => {
                format!(
                    "when it runs: cairnctl machine remove {name}; if it never will: cairnctl machine remove {name} --lost"
                )
            }
        })
    }
}

pub(crate) async fn role(role: &Role, context: &Context, out: &mut dyn Write) -> Result<(), Failure> {
    let (direction, arguments) = match role {
        Role::Add(arguments) => (RoleDirection::Add, arguments),
        Role::Remove(arguments) => (RoleDirection::Remove, &arguments.change),
        Role::Erase(arguments) => return erase::run(arguments, context, out).await,
    };
    let mut found = about(context, &arguments.called).await?;
    if let Role::Remove(RoleRemoval { pods: Pods { no_drain: false }, .. }) = role
        && arguments.role == AnyRole::Kubernetes(KubernetesRole::Worker)
        && found.1.kubernetes.contains(&KubernetesRole::Worker)
    {
        before_leaving(&mut found.0, node_name(&found.1)?, LeavingData::Kept, arguments.following.timeout).await?;
    }
    match arguments.role {
        AnyRole::Coordinator => {
            let becomes = if direction == RoleDirection::Add { ClusterRole::Coordinator } else { ClusterRole::Node };
            change_role(found, becomes, &arguments.following, context, out).await
        }
        AnyRole::Kubernetes(role) => {
            kubernetes_role(found, (role, direction), &arguments.following, context, out).await
        }
    }
}

/// Gives or takes a role in Kubernetes, and waits until the machine says that it does the work, or no more of it.
async fn kubernetes_role(
    (mut session, machine, its): (Session, ListedMachine, Context),
    (role, direction): (KubernetesRole, RoleDirection),
    following: &Following,
    context: &Context,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    session.change_machine(machine.id, MachineChange::Role(AnyRole::Kubernetes(role), direction)).await?;
    if following.wait {
        let deadline = Deadline::after(following.timeout);
        match direction {
            RoleDirection::Add => {
                let stands_for = match role {
                    KubernetesRole::ControlPlane => ConditionName::KubernetesApiReady,
                    KubernetesRole::Worker => ConditionName::NodeReady,
                };
                condition::until_true(&its, stands_for.word(), &deadline, &mut Progress::start()).await?;
            }
            RoleDirection::Remove => gives_up(&its, (&machine, role), &deadline).await?,
        }
    }
    let name = &machine.name;
    let did = match direction {
        RoleDirection::Add => format!("machine `{name}` is to be a {role}"),
        RoleDirection::Remove => format!("machine `{name}` is to be a {role} no more"),
    };
    Ok(screen::did(context.format, out, &did)?)
}

/// Waits until the machine says that it runs nothing of a role any more.
async fn gives_up(
    its: &Context,
    (machine, role): (&ListedMachine, KubernetesRole),
    deadline: &Deadline,
) -> Result<(), Failure> {
    let mut progress = Progress::start();
    let looked = deadline.until(async || {
        progress.show(&format!("wait for {} to end what it runs", machine.name));
        let is_gone = status_of(its).await.is_some_and(|status| !status.kubernetes.contains(&role));
        Ok::<_, Failure>(is_gone.then_some(()))
    });
    looked.await?.ok_or_else(|| ChangeError::Late { name: machine.name.clone(), after: deadline.length() }.into())
}

/// Status of a machine; none while it is silent.
async fn status_of(its: &Context) -> Option<MachineStatus> {
    its.open().await.ok()?.0.status().await.ok()
}

fn any_role() -> impl TypedValueParser<Value = AnyRole> {
    PossibleValuesParser::new(AnyRole::ALL.map(AnyRole::word)).map(|word| {
        let role = AnyRole::ALL.into_iter().find(|role| role.word() == word);
        role.expect("clap takes no other")
    })
}

pub(crate) async fn approve(arguments: &Approve, context: &Context, out: &mut dyn Write) -> Result<(), Failure> {
    let found = about(context, &arguments.called).await?;
    let (_, machine, _) = &found;
    // The same again changes nothing, and what was meant holds.
    if !machine.awaits_approval && machine.role != ClusterRole::Coordinator {
        return Err(ChangeError::NoApproval(machine.name.clone()).into());
    }
    change_role(found, ClusterRole::Coordinator, &arguments.following, context, out).await
}

async fn change_role(
    (mut session, machine, its): (Session, ListedMachine, Context),
    becomes: ClusterRole,
    following: &Following,
    context: &Context,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    let direction = match becomes {
        ClusterRole::Coordinator => RoleDirection::Add,
        ClusterRole::Node => RoleDirection::Remove,
    };
    session.change_machine(machine.id, MachineChange::Role(AnyRole::Coordinator, direction)).await?;
    if following.wait {
        let (deadline, is_of_etcd) = (Deadline::after(following.timeout), becomes == ClusterRole::Coordinator);
        let has_followed = |machine: &ListedMachine| machine.etcd.is_some() == is_of_etcd;
        until(context, its.machine.as_ref(), &mut session, &machine, &deadline, has_followed).await?;
    }
    Ok(screen::did(context.format, out, &format!("machine `{}` is to be a {becomes}", machine.name))?)
}

pub(crate) async fn remove(arguments: &Remove, context: &Context, out: &mut dyn Write) -> Result<(), Failure> {
    let (mut session, machine, its) = about(context, &arguments.called).await?;
    let mut did = format!("machine `{}` is removed", machine.name);
    if arguments.lost {
        session.change_machine(machine.id, MachineChange::RemoveLost).await?;
        if machine.role == ClusterRole::Coordinator {
            did.push_str(&warning(&shares_due(&mut session).await));
        }
    } else if machine.belongs() {
        let data = if arguments.delete_volumes { LeavingData::GivenUp } else { LeavingData::Kept };
        if data == LeavingData::Kept {
            let checked = session.check_removal(machine.id).await;
            checked.map_err(|error| keeps_data(&machine.name, error))?;
        }
        if machine.kubernetes.contains(&KubernetesRole::Worker) {
            if !arguments.pods.no_drain {
                before_leaving(&mut session, node_name(&machine)?, data, arguments.timeout).await?;
            }
            let worker = AnyRole::Kubernetes(KubernetesRole::Worker);
            session.change_machine(machine.id, MachineChange::Role(worker, RoleDirection::Remove)).await?;
        }
        session.change_machine(machine.id, MachineChange::Drain(data)).await?;
        let deadline = Deadline::after(arguments.timeout);
        if machine.role == ClusterRole::Coordinator {
            let settles = Deadline::after(arguments.timeout.min(SETTLES));
            let to_node = MachineChange::Role(AnyRole::Coordinator, RoleDirection::Remove);
            while_unsettled(&settles, async || session.change_machine(machine.id, to_node).await).await?;
        }
        let its_name = its.machine.as_ref();
        until(context, its_name, &mut session, &machine, &deadline, |machine| machine.etcd.is_none()).await?;
        // Behind its removal nobody tells it any more what it is.
        lays_down(&its, &machine, &deadline).await?;
        if machine.role == ClusterRole::Coordinator {
            (session, _) = context.open_coordinator_but(its_name).await?;
        }
        session.change_machine(machine.id, MachineChange::Remove).await?;
    }
    Ok(screen::did(context.format, out, &did)?)
}

/// Ways on from a machine that stays, since claims may have volumes on it.
fn keeps_data(name: &str, error: CallError) -> Failure {
    let first = if matches!(error, CallError::NotNow { .. }) {
        "delete the claims that are named: cairnctl kubectl delete -n NAMESPACE pvc/NAME"
    } else {
        "try again when the Kubernetes API answers"
    };
    let next = format!("{first}; or give the data up: cairnctl machine remove {name} --delete-volumes");
    Failure::from(error).going_on(next)
}

/// Asks again while the cluster cannot do it, as long as that may pass by itself: one voter is silent for a moment, say.
async fn while_unsettled(
    deadline: &Deadline,
    mut ask: impl AsyncFnMut() -> Result<(), CallError>,
) -> Result<(), CallError> {
    let asked = deadline.until(async || match ask().await {
        Err(CallError::NotNow { .. }) if deadline.left().is_some() => Ok(None),
        asked => asked.map(Some),
    });
    asked.await.map(|_done_or_refused| ())
}

/// Names of coordinators that have not taken their share of the cold-start key that the removed one has none of. Those that run do so
/// within seconds.
async fn shares_due(session: &mut Session) -> Vec<String> {
    let (mut progress, mut late) = (Progress::start(), Vec::new());
    let deadline = Deadline::after(TAKES_SHARE);
    let looked = deadline.until(async || {
        progress.show("wait for the other coordinators to take their shares of the next cold-start key");
        // Whoever was asked may be off by now: what was seen last is told.
        let Ok(listed) = session.machines().await else { return Ok::<_, Failure>(None) };
        late = listed.rows.into_iter().filter(|machine| machine.share_due).map(|machine| machine.name).collect();
        Ok(late.is_empty().then_some(()))
    });
    let _all_or_these = looked.await;
    late
}

/// Warning about coordinators whose shares are due; empty where none are.
fn warning(late: &[String]) -> String {
    let Some((last, others)) = late.split_last() else { return String::new() };
    let (names, have) = if others.is_empty() {
        (format!("`{last}` has"), "it has")
    } else {
        (format!("`{}` and `{last}` have", others.join("`, `")), "they have")
    };
    format!(
        "; {names} not taken the share of the next cold-start key yet: until {have}, the removed machine's share opens disks together \
         with theirs, so switch on what is off, and look for `share due` in: cairnctl machine list"
    )
}

pub(crate) async fn drain(arguments: &Drain, context: &Context, out: &mut dyn Write) -> Result<(), Failure> {
    let (mut session, machine, _) = about(context, &arguments.called).await?;
    let did = arguments.perform(&mut session, node_name(&machine)?).await?;
    Ok(screen::did(context.format, out, &did)?)
}

pub(crate) async fn rotate_key(arguments: &RotateKey, context: &Context, out: &mut dyn Write) -> Result<(), Failure> {
    let (mut session, machine, its) = about(context, &arguments.called).await?;
    session.change_machine(machine.id, MachineChange::RotateKey).await?;
    let has_a_share = machine.role == ClusterRole::Coordinator || machine.etcd.is_some();
    if has_a_share && arguments.wait {
        prepared(&its, &machine, &Deadline::after(arguments.timeout)).await?;
    }
    let (name, here) = (&machine.name, its.machine.as_ref().map_or(machine.name.as_str(), NodeName::as_str));
    let reboot = format!("cairnctl -m {here} machine reboot");
    let did = if has_a_share && !arguments.wait {
        format!(
            "machine `{name}` takes another cluster key at a start after its share carries it, in a second or two; to wait for \
             that: cairnctl machine rotate-key {name} --wait; then: {reboot}"
        )
    } else {
        format!("machine `{name}` takes another cluster key when it starts next: {reboot}")
    };
    Ok(screen::did(context.format, out, &did)?)
}

/// Waits until the machine, which coordinates, says that its next start takes another cluster key than its disk is locked with.
async fn prepared(its: &Context, machine: &ListedMachine, deadline: &Deadline) -> Result<(), Failure> {
    let (mut progress, mut last) = (Progress::start(), String::new());
    let wanted = match machine.generations {
        Generations::One(locked) | Generations::Rotating(locked) => locked.saturating_add(1),
    };
    let looked = deadline.until(async || {
        let asked = async { Ok::<_, OpenError>(its.open().await?.0.status().await?.takes_key_generation) };
        last = match asked.await {
            Ok(Some(generation)) if generation >= wanted => return Ok(Some(())),
            Ok(_) => "its share of the cold-start key does not carry the next cluster key yet".to_owned(),
            Err(error) if error.may_pass() => error.to_string(),
            Err(error) => return Err(error),
        };
        progress.show(&format!("{}: {last}", machine.name));
        Ok(None)
    });
    let late = |last| ChangeError::NotPrepared { name: machine.name.clone(), after: deadline.length(), last };
    match looked.await? {
        Some(()) => Ok(()),
        None => Err(late(last).into()),
    }
}

/// A session with a coordinator, the machine of that name or id, and how it is asked itself. The coordinator is another one where there
/// is one: the machine may be none soon.
async fn about(context: &Context, called: &str) -> Result<(Session, ListedMachine, Context), Failure> {
    let (mut session, meant) = context.open_coordinator().await?;
    let machine = find(&mut session, called).await?;
    let name = node_name(&machine)?;
    let its = context.about(&meant.record.name, meant.record.name_here(machine.id).unwrap_or(&name));
    if its.machine.as_ref() == Some(meant.name())
        && let Ok((other, _)) = context.open_coordinator_but(Some(meant.name())).await
    {
        session = other;
    }
    Ok((session, machine, its))
}

/// Name of the machine, and of its node.
fn node_name(machine: &ListedMachine) -> Result<NodeName, ChangeError> {
    NodeName::stored(&machine.name).map_err(|_no_name| ChangeError::Unknown(machine.name.clone()))
}

/// Waits until the machine says that it is a node, which has erased what a coordinator has, and that it runs nothing of Kubernetes. A
/// node that is silent is not waited for.
async fn lays_down(its: &Context, machine: &ListedMachine, deadline: &Deadline) -> Result<(), Failure> {
    let mut progress = Progress::start();
    let looked = deadline.until(async || {
        progress.show(&format!("wait for {} to lay down its roles", machine.name));
        let (role, kubernetes) =
            status_of(its).await.map_or_else(Default::default, |status| (status.role, status.kubernetes));
        let is_node = role.unwrap_or(machine.role) == ClusterRole::Node;
        Ok::<_, Failure>((is_node && kubernetes.is_empty()).then_some(()))
    });
    let holds = || ChangeError::Holds { name: machine.name.clone(), after: deadline.length() };
    looked.await?.ok_or_else(|| holds().into())
}

/// The machine of that name; of those that were removed only by its id.
async fn find(session: &mut Session, called: &str) -> Result<ListedMachine, Failure> {
    let machines = session.machines().await?.rows;
    let is_meant = |machine: &&ListedMachine| machine.is_called(called) || machine.id.to_string() == called;
    let found = machines.iter().find(is_meant).cloned();
    found.ok_or_else(|| ChangeError::Unknown(called.to_owned()).into())
}

/// Looks until the cluster lists the machine as wanted. Where the coordinator that is asked is none any more, another one is.
async fn until(
    context: &Context,
    its_name: Option<&NodeName>,
    session: &mut Session,
    machine: &ListedMachine,
    deadline: &Deadline,
    has_followed: impl Fn(&ListedMachine) -> bool,
) -> Result<(), Failure> {
    let mut progress = Progress::start();
    let looked = deadline.until(async || {
        progress.show(&format!("wait for {}", machine.name));
        let Ok(listed) = session.machines().await else {
            return match context.open_coordinator_but(its_name).await {
                Ok((other, _)) => {
                    *session = other;
                    Ok(None)
                }
                Err(error) if error.may_pass() => Ok(None),
                Err(error) => Err(error.into()),
            };
        };
        let listed = listed.rows.into_iter().find(|listed| listed.id == machine.id);
        Ok::<_, Failure>(listed.as_ref().is_none_or(&has_followed).then_some(()))
    });
    looked.await?.ok_or_else(|| ChangeError::Late { name: machine.name.clone(), after: deadline.length() }.into())
}

#[cfg(test)]
mod tests {
    use cluster::record::Standing;
    use model::MachineId;

    use super::*;
    use crate::context::home;

    /// Proves: D13 Q6
    #[tokio::test]
    async fn rotation_waits_for_a_coordinator_to_be_ready_for_a_start() {
        let (_root, context, coordinator) = home::with_a_coordinator().await;
        // Here it is m1.
        let (id, role) = (coordinator.machine, ClusterRole::Coordinator);
        let coordinates = ListedMachine { id, role, ..home::member("office", Standing::Member) };
        *coordinator.listed.lock().unwrap() = vec![coordinates, home::member("m2", Standing::Member)];
        let rotate = async |called: &str, wait: bool, timeout: Duration| {
            let (mut out, called) = (Vec::new(), called.to_owned());
            let ended = rotate_key(&RotateKey { called, wait, timeout }, &context, &mut out).await;
            ended.map(|()| String::from_utf8(out).unwrap())
        };
        let (none, long) = (Duration::ZERO, Duration::from_secs(60));
        let at_once = rotate("m2", false, none).await.unwrap();
        assert_eq!(
            at_once,
            "machine `m2` takes another cluster key when it starts next: cairnctl -m m2 machine reboot\n"
        );
        assert!(
            rotate("office", false, none).await.unwrap().contains("rotate-key office --wait"),
            "it is not to be started at once"
        );
        // The key that it has is not the next one.
        for takes in [None, Some(1)] {
            *coordinator.takes.lock().unwrap() = takes;
            let late = rotate("office", true, none).await.unwrap_err();
            assert_eq!(late.code(), Code::Timeout);
            assert!(late.reason().contains("does not carry the next cluster key"), "{late}");
        }
        *coordinator.takes.lock().unwrap() = Some(2);
        let waited = rotate("office", true, long).await.unwrap();
        assert_eq!(
            waited,
            "machine `office` takes another cluster key when it starts next: cairnctl -m m1 machine reboot\n"
        );
        assert_eq!(rotate("m2", true, none).await.unwrap(), at_once, "a node takes it in any case");
    }

    /// Proves: S4 Q6
    #[tokio::test]
    async fn who_waits_to_be_a_coordinator_is_approved_and_nobody_else() {
        let (_root, context, coordinator) = home::with_a_coordinator().await;
        let waits = ListedMachine { awaits_approval: true, ..home::member("m2", Standing::Member) };
        *coordinator.listed.lock().unwrap() = vec![waits, home::member("m3", Standing::Member)];
        let approved = async |called: &str| {
            let following = Following { wait: false, timeout: Duration::ZERO };
            let mut out = Vec::new();
            let ended = approve(&Approve { called: called.to_owned(), following }, &context, &mut out).await;
            ended.map(|()| String::from_utf8(out).unwrap())
        };
        let refused = approved("m3").await.unwrap_err();
        assert_eq!((refused.code(), coordinator.calls().last()), (Code::Usage, Some(&"ListMachines")));
        assert!(refused.next().unwrap().ends_with("machine role add m3 coordinator"), "{refused}");
        assert_eq!(approved("m2").await.unwrap(), "machine `m2` is to be a coordinator\n");
        assert_eq!(coordinator.calls().last(), Some(&"ChangeMachine"));
    }

    /// Proves: Q6
    #[tokio::test]
    async fn what_cannot_be_done_just_now_is_asked_for_again() {
        let not_now = || CallError::NotNow { method: "ChangeMachine", message: "one is silent".to_owned() };
        let (long, over) = (Deadline::after(Duration::from_secs(60)), Deadline::after(Duration::ZERO));
        let mut answers = vec![Ok(()), Err(not_now()), Err(not_now())];
        assert!(while_unsettled(&long, async || answers.pop().unwrap()).await.is_ok() && answers.is_empty());
        let mut refused = vec![Ok(()), Err(not_now())];
        assert!(matches!(while_unsettled(&over, async || refused.pop().unwrap()).await, Err(CallError::NotNow { .. })));
        let mut other = vec![Ok(()), Err(CallError::Gone { method: "ChangeMachine", message: "reset".to_owned() })];
        assert!(while_unsettled(&long, async || other.pop().unwrap()).await.is_err(), "what does not pass");
    }

    /// Proves: W2 Q6
    #[tokio::test]
    async fn a_machine_with_claimed_volumes_goes_by_an_owners_word() {
        let two = home::two().await;
        two.lists(two.node.machine, Standing::Member);
        let removed = async |delete_volumes: bool| {
            let (called, pods, mut out) = ("m2".to_owned(), Pods { no_drain: false }, Vec::new());
            let timeout = Duration::from_secs(60);
            let arguments = Remove { called, lost: false, delete_volumes, pods, timeout };
            let ended = remove(&arguments, &two.context, &mut out).await;
            ended.map(|()| String::from_utf8(out).unwrap())
        };
        *two.coordinator.refuses.lock().unwrap() = true;
        let kept = removed(false).await.unwrap_err();
        assert_eq!((kept.code(), two.coordinator.calls().last()), (Code::Refused, Some(&"CheckRemoval")));
        let mut said = Vec::new();
        kept.print(&mut said).unwrap();
        let said = String::from_utf8(said).unwrap();
        assert!(said.contains("claim web/data (8Mi); nothing was changed"), "{said}");
        assert!(
            said.contains(
                "delete -n NAMESPACE pvc/NAME; or give the data up: cairnctl machine remove m2 --delete-volumes"
            ),
            "{said}"
        );
        assert_eq!(removed(true).await.unwrap(), "machine `m2` is removed\n");
        *two.coordinator.refuses.lock().unwrap() = false;
        assert_eq!(removed(false).await.unwrap(), "machine `m2` is removed\n", "nobody has volumes there");
    }

    /// Names are given anew once their machine is removed. Proves: Q6
    #[tokio::test]
    async fn a_name_means_who_has_it_now_and_an_id_whoever_it_is() {
        let (_root, context, coordinator) = home::with_a_coordinator().await;
        let [gone, here, last] = [1, 2, 3].map(|n| MachineId([n; 16]));
        *coordinator.listed.lock().unwrap() = vec![
            ListedMachine { id: gone, ..home::member("m4", Standing::Removed) },
            ListedMachine { id: here, ..home::member("m4", Standing::Member) },
            ListedMachine { id: last, ..home::member("m5", Standing::Removed) },
        ];
        let (mut session, _) = context.open_coordinator().await.unwrap();
        for (called, found) in [
            ("m4", Some(here)),
            (&gone.to_string(), Some(gone)),
            (&here.to_string(), Some(here)),
            ("m5", None),
            (&last.to_string(), Some(last)),
            ("", None),
        ] {
            let machine = find(&mut session, called).await;
            assert_eq!(machine.as_ref().ok().map(|machine| machine.id), found, "{called}");
            assert!(found.is_some() || machine.unwrap_err().code() == Code::NotFound, "{called}");
        }
    }

    fn drain_of(undo: bool, force: bool, seconds: u64) -> Drain {
        Drain { called: "m2".to_owned(), undo, force, timeout: Duration::from_secs(seconds) }
    }

    /// Proves: W1
    #[tokio::test]
    async fn what_is_left_and_what_to_do_next_is_told() {
        let two = home::two().await;
        two.lists(two.node.machine, Standing::Member);
        let told = async |drain: Drain| {
            let mut said = Vec::new();
            match super::drain(&drain, &two.context, &mut said).await {
                Ok(()) => String::from_utf8(said).unwrap(),
                Err(failure) => {
                    assert_eq!(failure.code(), Code::Refused);
                    failure.print(&mut said).unwrap();
                    String::from_utf8(said).unwrap()
                }
            }
        };
        assert!(told(drain_of(false, false, 300)).await.starts_with("machine `m2` is drained"));
        assert_eq!(told(drain_of(true, false, 300)).await, "machine `m2` takes new pods\n");
        let late = told(drain_of(false, false, 1)).await;
        assert!(late.contains("web/a (a budget)\n  `m2` takes no new pods; those that were moved"), "{late}");
        *two.coordinator.refuses.lock().unwrap() = true;
        let lost = told(drain_of(false, false, 300)).await;
        assert!(
            lost.contains("web/c") && lost.contains("the machine is as it was\n  next: to end them nevertheless"),
            "{lost}"
        );
        assert!(told(drain_of(false, true, 300)).await.starts_with("machine `m2` is drained"));
    }

    #[test]
    fn coordinators_without_the_next_share_are_named() {
        let says = |names: &[&str]| warning(&names.iter().map(|name| String::from(*name)).collect::<Vec<_>>());
        assert_eq!(says(&[]), "");
        assert!(says(&["m2"]).starts_with("; `m2` has not taken the share"), "{}", says(&["m2"]));
        assert!(says(&["m2", "m3", "m5"]).starts_with("; `m2`, `m3` and `m5` have not taken the share"));
    }
}
