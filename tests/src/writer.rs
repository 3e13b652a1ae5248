//! Somebody who changes a cluster's records without end, through one coordinator after the other, and knows what has to be
//! there afterwards: tickets that are issued, and revoked again. What was acknowledged has to be read back, by content; what was
//! asked for without an answer may be there or not. It must never take an answer for granted.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use api::ListedTicket;
use aws_lc_rs::rand;
use cluster::record::Revocation;
use keys::identity::SigningKey;
use keys::ticket::ticket_id;
use model::{ClusterRole, Secret, TicketId, TicketPubKey};
use pki::PrivateKey;
use qemu::Deadline;

use crate::owner::Owner;
use crate::records::Records;

/// Between two changes: machines have other work, too, and keep every ticket that ever was.
const PAUSE: Duration = Duration::from_millis(400);

/// Where coordinators answer, as their machines start, end and change their roles.
pub type Places = Arc<Mutex<Vec<SocketAddr>>>;

/// The writer; it ends when dropped.
#[derive(Debug)]
pub struct Writer {
    shared: Arc<Shared>,
    key: PrivateKey,
    end: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    /// Held while a change is under way: who holds it sees none that is.
    written: Mutex<Written>,
    acknowledged: Condvar,
}

/// Changes that were asked for so far.
#[derive(Debug, Default)]
struct Written {
    tickets: BTreeMap<TicketId, Wanted>,
    acknowledged: usize,
    attempts: u32,
}

/// Properties that an acknowledged ticket has to have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Wanted {
    uses: u32,
    revoked: Certainty,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Certainty {
    No,
    /// The change was asked for, and nobody has said that it was done.
    Perhaps,
    Yes,
}

impl Writer {
    /// Begins to write at `places`, in turn.
    ///
    /// # Errors
    /// When the owner has no key yet, or the host no thread.
    pub fn start(owner: &Owner, places: Places) -> anyhow::Result<Self> {
        let shared = Arc::new(Shared::default());
        let (end, ended) = channel();
        let (key, its_own) = (owner.key()?, Arc::clone(&shared));
        let work = move || its_own.write_on(&places, &key, &ended);
        let thread = std::thread::Builder::new().name("writer".into()).spawn(work).context("start a writer")?;
        Ok(Self { shared, key: owner.key()?, end: Some(end), thread: Some(thread) })
    }

    /// Waits until so many more changes are acknowledged.
    ///
    /// # Errors
    /// When they are not in time.
    pub fn goes_on(&self, changes: usize, deadline: Deadline) -> anyhow::Result<()> {
        let mut written = self.shared.written();
        let wanted = written.acknowledged + changes;
        while written.acknowledged < wanted {
            let left = deadline.left().with_context(|| {
                let lacking = wanted - written.acknowledged;
                format!("{lacking} of {changes} changes were not acknowledged within {} s", deadline.length().as_secs())
            })?;
            let waited = self.shared.acknowledged.wait_timeout(written, left);
            written = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        Ok(())
    }

    /// The coordinator there takes a change, and tells all that was ever acknowledged.
    ///
    /// # Errors
    /// When it does not, or has lost something.
    pub fn read_back(&self, place: SocketAddr) -> anyhow::Result<()> {
        let mut written = self.shared.written();
        let mut records = Records::at(place, &self.key)?;
        written.issue(&mut records)?;
        let listed = records.tickets()?;
        ensure!(listed.old_since.is_none(), "the coordinator says that its list is old");
        written.compare(&listed.rows)
    }

    /// How many changes were acknowledged so far.
    #[must_use]
    pub fn acknowledged(&self) -> usize {
        self.shared.written().acknowledged
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.end = None;
        if let Some(thread) = self.thread.take() {
            // Its panic has been reported by the thread itself.
            let _ended = thread.join();
        }
    }
}

impl Shared {
    fn written(&self) -> MutexGuard<'_, Written> {
        self.written.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write_on(&self, places: &Places, key: &PrivateKey, ended: &Receiver<()>) {
        let mut sessions = BTreeMap::<SocketAddr, Records>::new();
        let mut turn = 0;
        while ended.recv_timeout(PAUSE) == Err(RecvTimeoutError::Timeout) {
            let there = places.lock().unwrap_or_else(PoisonError::into_inner).clone();
            sessions.retain(|place, _| there.contains(place));
            let Some(place) = there.get(turn % there.len().max(1)).copied() else { continue };
            turn += 1;
            let session = sessions.remove(&place).map_or_else(|| Records::at(place, key), Ok);
            // Nobody there: the next one is tried.
            let Ok(mut session) = session else { continue };
            if self.written().change(&mut session).is_ok() {
                sessions.insert(place, session);
                self.acknowledged.notify_all();
            }
        }
    }
}

impl Written {
    /// Makes a change: every second one revokes what an earlier one issued.
    fn change(&mut self, records: &mut Records) -> anyhow::Result<()> {
        self.attempts += 1;
        let stands = self.tickets.iter_mut().find(|(_, ticket)| ticket.revoked != Certainty::Yes);
        let Some((id, ticket)) = stands.filter(|_| self.attempts.is_multiple_of(2)) else { return self.issue(records) };
        ticket.revoked = Certainty::Perhaps;
        records.revoke(*id)?;
        ticket.revoked = Certainty::Yes;
        self.acknowledged += 1;
        Ok(())
    }

    fn issue(&mut self, records: &mut Records) -> anyhow::Result<()> {
        let key = TicketPubKey(drawn()?.public());
        let uses = 1 + u32::try_from(self.tickets.len() % 100)?;
        let issued = records.issue(key, uses, ClusterRole::Node)?;
        ensure!(issued.id == ticket_id(&key), "another ticket was issued: {issued:?}");
        self.tickets.insert(issued.id, Wanted { uses, revoked: Certainty::No });
        self.acknowledged += 1;
        Ok(())
    }

    /// Whether a list has all that was acknowledged.
    fn compare(&self, rows: &[ListedTicket]) -> anyhow::Result<()> {
        let listed: BTreeMap<_, _> = rows.iter().map(|row| (row.id, row)).collect();
        for (id, wanted) in &self.tickets {
            let Some(row) = listed.get(id) else {
                bail!("ticket {id} was acknowledged, and is lost: {} of {} are there", listed.len(), self.tickets.len())
            };
            let revoked = row.revoked != Revocation::No;
            let fits = match wanted.revoked {
                Certainty::No => !revoked,
                Certainty::Yes => revoked,
                Certainty::Perhaps => true,
            };
            ensure!(row.uses == wanted.uses && fits, "ticket {id} was acknowledged as {wanted:?}, and is {row:?}");
        }
        Ok(())
    }
}

/// A key for a ticket.
pub(crate) fn drawn() -> anyhow::Result<SigningKey> {
    let mut seed = [0; 32];
    rand::fill(&mut seed).ok().context("draw a ticket's key")?;
    Ok(SigningKey::from_seed(Secret::take(&mut seed)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::records::NOT_AFTER;

    const ID: TicketId = TicketId([7; 16]);

    fn row(uses: u32, revoked: Revocation) -> ListedTicket {
        ListedTicket {
            id: ID,
            uses,
            used: 0,
            not_after: NOT_AFTER,
            role: ClusterRole::Node,
            kubernetes: [].into(),
            machine: None,
            node_name: None,
            issued_at: NOT_AFTER,
            revoked,
        }
    }

    #[test]
    fn what_was_acknowledged_has_to_be_there_as_it_was() {
        let at = Revocation::At(NOT_AFTER);
        for (revoked, rows, fits) in [
            (Certainty::No, vec![row(3, Revocation::No)], true),
            (Certainty::No, vec![row(3, at)], false),
            (Certainty::Yes, vec![row(3, at)], true),
            (Certainty::Yes, vec![row(3, Revocation::No)], false),
            (Certainty::Perhaps, vec![row(3, at)], true),
            (Certainty::Perhaps, vec![row(3, Revocation::No)], true),
            (Certainty::Perhaps, vec![row(4, Revocation::No)], false),
            (Certainty::No, vec![], false),
        ] {
            let tickets = [(ID, Wanted { uses: 3, revoked })].into();
            let written = Written { tickets, ..Written::default() };
            assert_eq!(written.compare(&rows).is_ok(), fits, "{revoked:?} {rows:?}");
        }
    }
}
