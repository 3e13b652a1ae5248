//! How further machines come to be members: by a ticket of their own, which lives as long as they are waited for and is
//! revoked where they do not come to be.
//!
//! ```text
//!   a coordinator answers ► ticket ► machines made with it, started ► the cluster's records: let in ► Member ► each runs
//!                             └────────── anything fails: revoked ──────────┘
//! ```

use std::path::PathBuf;
use std::time::Duration;

use api::{ListedMachine, MachineStatus};
use cluster::record::Standing;
use model::{KubernetesRole, MachineState, NodeName, TicketId};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use super::each;
use super::making::{Making, Plan};
use super::waiting::{WaitError, console, unless_lost, until_running};
use crate::clock::{ASK_AGAIN, Deadline};
use crate::commands::ticket::{Issue, Issued};
use crate::context::{Context, Meant, OpenError};
use crate::failure::{Advice, Code, Failure, NOTHING};
use crate::machine::{CallError, Session, public_state};
use crate::screen::Progress;
use crate::store::{ClusterName, ClusterRecord};

/// A coordinator that runs reads the cluster's records within seconds, and then tells where it is.
const RECORDS: Duration = Duration::from_secs(60);

/// A machine that is up tells its state well within this, also under emulation.
const STATE: Duration = Duration::from_secs(2);

/// Machines that are to join a cluster which runs.
#[derive(Debug)]
pub(super) struct Joining<'a> {
    pub name: &'a ClusterName,
    /// How many.
    pub machines: u8,
    /// Name of the machine, where there is only one; found where none is given.
    pub called: Option<&'a NodeName>,
    /// Whether they run pods.
    pub workers: bool,
    pub plan: &'a Plan<'a>,
}

impl Joining<'_> {
    /// Makes the machines and waits until each is a member and runs; each with its place in the record. Where it fails the
    /// cluster goes on.
    pub(super) async fn join(
        &self,
        context: &Context,
        deadline: &Deadline,
        progress: &mut Progress,
    ) -> Result<Vec<(usize, MachineStatus)>, Failure> {
        let context = &context.about_cluster(self.name);
        let as_it_was = |failure: Failure| failure.leaving(format!("cluster `{}` is as it was", self.name));
        let (mut coordinator, meant, listed) = coordinator(context, progress).await.map_err(as_it_was)?;
        let names = self.names(&meant.record, &listed)?;
        let lasts = deadline.left().unwrap_or_default();
        let roles = if self.workers { vec![KubernetesRole::Worker] } else { Vec::new() };
        let ticket = Issue::of_nodes(self.machines.into(), lasts, roles).issue(&mut coordinator, &meant).await;
        drop(coordinator);
        let Issued { id, ticket } = ticket.map_err(as_it_was)?;
        let joined = async {
            let made = {
                let (store, lock) = (&context.store, &context.store.lock(self.name)?);
                Making { name: self.name, plan: self.plan, store, lock }.further(&names, &ticket, progress)?
            };
            wait_for(&made, context, deadline, progress).await
        };
        let joined = joined.await;
        if joined.is_err() {
            revoke(id, context, progress).await;
        }
        joined
    }

    /// Names of the machines, here and in the cluster.
    fn names(&self, record: &ClusterRecord, listed: &[ListedMachine]) -> Result<Vec<NodeName>, NameTaken> {
        free_names(self.name, record, listed, self.called, self.machines.into())
    }
}

/// A machine has that name, or had it.
#[derive(Debug, thiserror::Error)]
#[error("cluster `{cluster}` has a machine `{name}`, or had one")]
pub(crate) struct NameTaken {
    cluster: ClusterName,
    name: NodeName,
}

impl Advice for NameTaken {
    fn code(&self) -> Code {
        Code::Usage
    }

    fn unchanged(&self) -> &'static str {
        NOTHING
    }

    fn next(&self) -> Option<String> {
        Some("take another name, or none: --node-name".to_owned())
    }
}

/// Names for `machines` more: the one that was chosen, else free ones. Neither this host nor the cluster has them.
pub(crate) fn free_names(
    cluster: &ClusterName,
    record: &ClusterRecord,
    listed: &[ListedMachine],
    chosen: Option<&NodeName>,
    machines: usize,
) -> Result<Vec<NodeName>, NameTaken> {
    let taken = |name: &NodeName| listed.iter().any(|machine| machine.name == name.as_str());
    match chosen {
        Some(name) if taken(name) || record.machines().iter().any(|machine| machine.name == *name) => {
            Err(NameTaken { cluster: cluster.clone(), name: name.clone() })
        }
        Some(name) => Ok(vec![name.clone()]),
        None => Ok(record.free_names(taken).take(machines).collect()),
    }
}

/// A coordinator that knows where machines find it, and the machines of its cluster.
pub(crate) async fn coordinator(
    context: &Context,
    progress: &mut Progress,
) -> Result<(Session, Meant, Vec<ListedMachine>), Failure> {
    let deadline = Deadline::after(RECORDS);
    let ready = async || {
        let (mut session, meant) = context.open_coordinator().await?;
        let listed = session.machines().await?.rows;
        Ok::<_, OpenError>((session, meant, listed))
    };
    loop {
        match ready().await {
            Ok((session, meant, listed)) if listed.iter().any(|machine| !machine.addresses.is_empty()) => {
                return Ok((session, meant, listed));
            }
            Ok(_) if deadline.left().is_some() => {
                progress.show("wait until the cluster knows its coordinator's address")
            }
            // Issuing a ticket says what is missing.
            Ok(ready) => return Ok(ready),
            Err(error @ OpenError::Call(CallError::NotNow { .. })) if deadline.left().is_some() => {
                progress.show(&format!("wait for the cluster's records: {error}"));
            }
            Err(error) => return Err(error.into()),
        }
        sleep(ASK_AGAIN).await;
    }
}

/// From now on the ticket admits nobody. Where that cannot be had, it is said: its time ends anyway.
pub(crate) async fn revoke(ticket: TicketId, context: &Context, progress: &mut Progress) {
    let revoked = async {
        let (mut session, _) = context.open_coordinator().await?;
        Ok::<_, OpenError>(session.revoke_ticket(ticket).await?)
    };
    if let Err(error) = revoked.await {
        progress.done(&format!("ticket {ticket} could not be revoked ({error}): cairnctl ticket revoke {ticket}"));
    }
}

/// Waits for all of these machines, each to its own end: for the cluster's word, then for its own.
async fn wait_for(
    machines: &[usize],
    context: &Context,
    deadline: &Deadline,
    progress: &Progress,
) -> Result<Vec<(usize, MachineStatus)>, Failure> {
    let record = context.cluster()?;
    let mut awaited: Vec<_> = machines.iter().map(|at| Awaited::of(*at, &record, context, progress)).collect();
    let names: Vec<_> = awaited.iter().map(|machine| machine.name.clone()).collect();
    let (tells, heard) = watch::channel(Heard::Listed(Vec::new()));
    let ends = each::all(awaited.iter_mut().map(|machine| machine.comes_up(heard.clone(), deadline)));
    tokio::select! {
        ended = ends => all_of_them(&record.name, names.into_iter().zip(ended).collect()),
        failed = tell(&tells, context) => Err(failed.leaving(stays(&record.name))),
    }
}

/// Says that the files of machines that did not come up stay.
fn stays(cluster: &ClusterName) -> String {
    format!("what was made for cluster `{cluster}` stays for a look")
}

/// Results of all machines, if none of them failed.
fn all_of_them<T>(cluster: &ClusterName, ended: Vec<(NodeName, Result<T, Failure>)>) -> Result<Vec<T>, Failure> {
    let (mut up, mut members, mut failed) = (Vec::new(), Vec::new(), Vec::new());
    for (name, ended) in ended {
        match ended {
            Ok(machine) => {
                up.push(machine);
                members.push(name.to_string());
            }
            Err(failure) => failed.push((name, failure)),
        }
    }
    match (failed.len(), members.len()) {
        (0, _) => Ok(up),
        (1, 0) => Err(failed.remove(0).1.leaving(stays(cluster))),
        (_, 0) => Err(Failure::from(JoinFailures { machines: failed.len(), failed }).leaving(stays(cluster))),
        (_, joined) => {
            let left = format!("{} joined and run; {}", members.join(", "), stays(cluster));
            Err(Failure::from(JoinFailures { machines: joined + failed.len(), failed }).leaving(left))
        }
    }
}

/// Some of several machines did not join.
#[derive(Debug, thiserror::Error)]
#[error("{} of {machines} machines did not join{}", failed.len(), reasons(failed))]
struct JoinFailures {
    machines: usize,
    /// Machines that did not join, at least one, each with its reason.
    failed: Vec<(NodeName, Failure)>,
}

/// Each with its reason, on lines of their own.
fn reasons(failed: &[(NodeName, Failure)]) -> String {
    failed.iter().map(|(name, failure)| format!("\n{name}: {}", failure.reason())).collect()
}

impl Advice for JoinFailures {
    fn code(&self) -> Code {
        self.failed.first().map_or(Code::Failed, |(_, failure)| failure.code())
    }

    fn unchanged(&self) -> &'static str {
        "what was made of them stays for a look"
    }

    fn next(&self) -> Option<String> {
        self.failed.first().and_then(|(_, failure)| failure.next())
    }
}

/// Last answer of a coordinator to all that wait.
#[derive(Debug)]
enum Heard {
    /// The cluster's machines.
    Listed(Vec<ListedMachine>),
    /// None answers, for this reason.
    Nothing(String),
}

/// Asks for the cluster's machines, again and again, for all that wait; ends with what does not pass.
async fn tell(tells: &watch::Sender<Heard>, context: &Context) -> Failure {
    let mut coordinator = None;
    loop {
        match listed(&mut coordinator, context).await {
            Ok(listed) => tells.send_replace(Heard::Listed(listed)),
            Err(error) if error.may_pass() => {
                coordinator = None;
                tells.send_replace(Heard::Nothing(error.to_string()))
            }
            Err(error) => return error.into(),
        };
        sleep(ASK_AGAIN).await;
    }
}

/// The machines of the cluster, over the session that there is.
pub(crate) async fn listed(
    coordinator: &mut Option<Session>,
    context: &Context,
) -> Result<Vec<ListedMachine>, OpenError> {
    let session = match coordinator {
        Some(session) => session,
        None => coordinator.insert(context.open_coordinator().await?.0),
    };
    Ok(session.machines().await?.rows)
}

/// A machine that is waited for.
#[derive(Debug)]
struct Awaited {
    at: usize,
    name: NodeName,
    context: Context,
    directory: PathBuf,
    progress: Progress,
    /// Text that was shown last.
    last: String,
}

impl Awaited {
    fn of(at: usize, record: &ClusterRecord, context: &Context, progress: &Progress) -> Self {
        let name = record.machines()[at].name.clone();
        Self {
            at,
            context: context.about(&record.name, &name),
            directory: context.store.machine_directory(&record.name, &name),
            progress: progress.of(Some(name.as_str())),
            name,
            last: String::new(),
        }
    }

    fn show(&mut self, what: String) {
        self.progress.show(&what);
        self.last = what;
    }

    /// Until it is a member and runs. Where it cannot, that is shown while others are still waited for.
    async fn comes_up(
        &mut self,
        mut heard: watch::Receiver<Heard>,
        deadline: &Deadline,
    ) -> Result<(usize, MachineStatus), Failure> {
        let directory = self.directory.clone();
        let up = async {
            self.joins(&mut heard, deadline).await?;
            until_running(&self.context, &self.directory, deadline, &mut self.progress).await
        };
        match unless_lost(&directory, up).await {
            Ok(status) => Ok((self.at, status)),
            Err(failure) => {
                self.progress.done(&failure.reason());
                Err(failure)
            }
        }
    }

    /// Until the cluster's records name it as Member.
    async fn joins(&mut self, heard: &mut watch::Receiver<Heard>, deadline: &Deadline) -> Result<(), Failure> {
        while let Some(left) = deadline.left() {
            if timeout(left, heard.changed()).await.is_err() {
                break;
            }
            let standing = match &*heard.borrow_and_update() {
                Heard::Listed(listed) => {
                    Ok(listed.iter().find(|it| it.name == self.name.as_str()).map(|it| it.standing))
                }
                Heard::Nothing(why) => Err(format!("wait for a coordinator: {why}")),
            };
            match standing {
                Ok(Some(Standing::Member)) => {
                    self.progress.done("Member of the cluster");
                    return Ok(());
                }
                Ok(Some(standing)) => self.show(format!("{}: joins", standing.word())),
                Ok(None) => self.asks().await?,
                Err(nobody) => self.show(nobody),
            }
        }
        let (last, console) = (self.last.clone(), console(&self.directory));
        Err(WaitError::NoMember { after: deadline.length(), last, console }.into())
    }

    /// Shows what the machine says while its cluster does not know it; fails if only a person can help.
    async fn asks(&mut self) -> Result<(), Failure> {
        match self.state().await {
            Some(state @ (MachineState::NeedsOwner | MachineState::Failed)) => {
                let (reason, console) = ("its console says why".to_owned(), console(&self.directory));
                return Err(WaitError::Stopped { state, reason, console }.into());
            }
            Some(state) => self.show(format!("{state}: asks the cluster to let it in")),
            None => self.show("boots".to_owned()),
        }
        Ok(())
    }

    /// State that the machine tells anybody, if it answers. Nobody knows its key yet; this is shown, and no more.
    async fn state(&self) -> Option<MachineState> {
        let address = self.context.address(&self.context.meant().ok()?).ok()?;
        Some(timeout(STATE, public_state(&address, None)).await.ok()?.ok()?.state)
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::pin::pin;
    use std::task::Poll;

    use clap::Parser;
    use model::ConfigDigest;

    use super::*;
    use crate::context::home;
    use crate::enrolment::Choices;
    use crate::store::MachineRecord;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        choices: Choices,
    }

    /// A ticket that is left would admit others until its time is over. Proves: N2
    #[tokio::test]
    async fn the_ticket_of_machines_that_cannot_be_made_is_taken_back() {
        let (root, context, coordinator) = home::with_a_coordinator().await;
        *coordinator.listed.lock().unwrap() = vec![home::member("m1", Standing::Member)];
        let machine = home::virtual_machine();
        let (line, image) = (Line::parse_from(["x"]), root.path().join("absent"));
        let plan = &Plan { image, machine, disk_bytes: 1, capture: false, choices: &line.choices };
        let joining = Joining { name: &home::name(), machines: 1, called: None, workers: false, plan };
        let long = Deadline::after(Duration::from_secs(60));
        joining.join(&context, &long, &mut Progress::start()).await.unwrap_err();
        let calls = coordinator.calls();
        assert!(calls.contains(&"IssueTicket"), "{calls:?}");
        assert_eq!(calls.last(), Some(&"RevokeTicket"), "{calls:?}");
    }

    /// Proves: N2
    #[tokio::test]
    async fn a_machine_has_joined_once_it_is_member_and_not_before() {
        let (_root, context, _owner) = home::begun();
        let mut record = ClusterRecord::of_config(home::name(), ConfigDigest([5; 32]));
        record.add(MachineRecord::joining(NodeName::stored("m2").unwrap()));
        let mut machine = Awaited::of(1, &record, &context, &Progress::start());
        let (tells, mut heard) = watch::channel(Heard::Listed(Vec::new()));
        let late = machine.joins(&mut heard, &Deadline::after(Duration::ZERO)).await.unwrap_err();
        assert_eq!(late.code(), Code::Timeout);
        let long = Deadline::after(Duration::from_secs(60));
        let mut joins = pin!(machine.joins(&mut heard, &long));
        // Another machine is Member all the while.
        let listed = |standing| Heard::Listed(vec![home::member("m1", Standing::Member), home::member("m2", standing)]);
        for (said, joined) in [
            (listed(Standing::Admitted), false),
            (Heard::Nothing("no leader".to_owned()), false),
            (listed(Standing::Member), true),
        ] {
            tells.send_replace(said);
            let ended = poll_fn(|task| Poll::Ready(joins.as_mut().poll(task))).await;
            assert_eq!(matches!(ended, Poll::Ready(Ok(()))), joined, "{ended:?}");
        }
    }

    /// Proves: N2 Q6
    #[test]
    fn a_machine_that_fails_to_join_takes_no_other_along() {
        let cluster = "lab".parse::<ClusterName>().unwrap();
        let name = |text: &str| NodeName::chosen(text).unwrap();
        let off = |machine: &str| {
            let console = PathBuf::from(machine).join("serial.log");
            Failure::from(WaitError::Off { qemu: String::new(), console })
        };
        let printed = |ended: Vec<(NodeName, Result<u8, Failure>)>| {
            let mut text = Vec::new();
            all_of_them(&cluster, ended).unwrap_err().print(&mut text).unwrap();
            String::from_utf8(text).unwrap()
        };
        let all = all_of_them(&cluster, vec![(name("m2"), Ok(2)), (name("m3"), Ok(3))]).unwrap();
        assert_eq!(all, [2, 3]);
        let some = printed(vec![(name("m2"), Ok(2)), (name("m3"), Err(off("m3"))), (name("m4"), Ok(4))]);
        let expected = "error: 1 of 3 machines did not join\n  \
            m3: the machine is off: it powered itself off, or its QEMU ended\n  \
            m2, m4 joined and run; what was made for cluster `lab` stays for a look\n  \
            next: read m3/serial.log; cairnctl cluster destroy takes it all away\n";
        assert_eq!(some, expected);
        let none = printed(vec![(name("m2"), Err(off("m2"))), (name("m3"), Err(off("m3")))]);
        assert!(none.starts_with("error: 2 of 2 machines did not join\n  m2: "), "{none}");
        assert!(!none.contains("joined and run"), "{none}");
        let only = printed(vec![(name("m2"), Err(off("m2")))]);
        assert!(only.starts_with("error: the machine is off"), "{only}");
    }
}
