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
use model::{MachineState, NodeName, TicketId};
use tokio::time::{sleep, timeout};

use super::each;
use super::making::{Making, Plan};
use super::waiting::{WaitError, console, unless_lost, until_running};
use crate::clock::{ASK_AGAIN, Deadline};
use crate::commands::ticket::{Issue, Issued};
use crate::commands::{Context, Meant, OpenError};
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
    /// What the only one is called; found where there is no name.
    pub called: Option<&'a NodeName>,
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
        let ticket = Issue::of_nodes(self.machines.into(), lasts).issue(&mut coordinator, &meant).await;
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

    /// What the machines are called, here and by the cluster.
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

/// Waits for all of these machines: for the cluster's word, then for their own.
async fn wait_for(
    machines: &[usize],
    context: &Context,
    deadline: &Deadline,
    progress: &Progress,
) -> Result<Vec<(usize, MachineStatus)>, Failure> {
    let record = context.cluster()?;
    let mut awaited: Vec<_> = machines.iter().map(|at| Awaited::of(*at, &record, context, progress)).collect();
    let directories: Vec<_> = awaited.iter().map(|machine| machine.directory.clone()).collect();
    let waited = async {
        unless_lost(&directories, until_members(&mut awaited, context, deadline)).await?;
        unless_lost(&directories, each::all(awaited.iter_mut().map(|machine| machine.runs(deadline)))).await
    };
    let stays = format!("what was made for cluster `{}` stays for a look", record.name);
    waited.await.map_err(|failure| failure.leaving(stays))
}

/// Until the cluster's records name each of them as Member.
async fn until_members(awaited: &mut [Awaited], context: &Context, deadline: &Deadline) -> Result<(), Failure> {
    let mut coordinator = None;
    let looked = deadline.until(async || {
        match listed(&mut coordinator, context).await {
            Ok(listed) => {
                each::all(awaited.iter_mut().map(|machine| machine.stands(&listed))).await?;
            }
            Err(error) if error.may_pass() => {
                coordinator = None;
                awaited.iter_mut().for_each(|machine| machine.show(format!("wait for a coordinator: {error}")));
            }
            Err(error) => return Err(error.into()),
        }
        Ok::<_, Failure>(awaited.iter().all(|machine| machine.is_member).then_some(()))
    });
    looked.await?;
    let Some(missing) = awaited.iter().find(|machine| !machine.is_member) else { return Ok(()) };
    let (last, console) = (missing.last.clone(), console(&missing.directory));
    Err(WaitError::NoMember { after: deadline.length(), last, console }.into())
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
    is_member: bool,
    /// What was shown last.
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
            is_member: false,
            last: String::new(),
        }
    }

    fn show(&mut self, what: String) {
        self.progress.show(&what);
        self.last = what;
    }

    /// What the cluster says of it; what the machine says where the cluster does not know it yet.
    async fn stands(&mut self, listed: &[ListedMachine]) -> Result<(), Failure> {
        match listed.iter().find(|machine| machine.name == self.name.as_str()).map(|machine| machine.standing) {
            Some(Standing::Member) if self.is_member => {}
            Some(Standing::Member) => {
                self.is_member = true;
                self.progress.done("Member of the cluster");
            }
            Some(standing) => self.show(format!("{}: joins", standing.word())),
            None => match self.state().await {
                Some(state @ (MachineState::NeedsOwner | MachineState::Failed)) => {
                    let (reason, console) = ("its console says why".to_owned(), console(&self.directory));
                    return Err(WaitError::Stopped { state, reason, console }.into());
                }
                Some(state) => self.show(format!("{state}: asks the cluster to let it in")),
                None => self.show("boots".to_owned()),
            },
        }
        Ok(())
    }

    /// What it tells anybody, if it answers. Nobody knows its key yet; this is shown, and no more.
    async fn state(&self) -> Option<MachineState> {
        let address = self.context.address(&self.context.meant().ok()?).ok()?;
        Some(timeout(STATE, public_state(&address, None)).await.ok()?.ok()?.state)
    }

    async fn runs(&mut self, deadline: &Deadline) -> Result<(usize, MachineStatus), Failure> {
        let running = until_running(&self.context, &self.directory, deadline, &mut self.progress);
        Ok((self.at, running.await?))
    }
}
