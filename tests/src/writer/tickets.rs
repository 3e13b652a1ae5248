//! Tickets that are issued, and revoked again, through one coordinator after the other. What was acknowledged has to be read back, by
//! content; what was asked for without an answer may be there or not.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context as _, bail, ensure};
use api::ListedTicket;
use aws_lc_rs::rand;
use cluster::record::Revocation;
use keys::identity::SigningKey;
use keys::ticket::ticket_id;
use model::{ClusterRole, Secret, TicketId, TicketPubKey};
use pki::PrivateKey;

use super::{Ledger, Writer};
use crate::owner::Owner;
use crate::records::Records;

/// Where coordinators answer, as their machines start, end and change their roles.
pub type Places = Arc<Mutex<Vec<SocketAddr>>>;

/// Tickets that were asked for so far.
#[derive(Debug)]
pub struct Tickets {
    places: Places,
    key: PrivateKey,
    sessions: BTreeMap<SocketAddr, Records>,
    turn: usize,
    wanted: BTreeMap<TicketId, Wanted>,
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

impl Tickets {
    /// Tickets of an owner, by the coordinators at `places`, in turn.
    ///
    /// # Errors
    /// When the owner has no key yet.
    pub(crate) fn new(owner: &Owner, places: Places) -> anyhow::Result<Self> {
        let key = owner.key()?;
        Ok(Self { places, key, sessions: BTreeMap::new(), turn: 0, wanted: BTreeMap::new(), attempts: 0 })
    }

    /// Every second change revokes what an earlier one issued.
    fn change_by(&mut self, records: &mut Records) -> anyhow::Result<()> {
        self.attempts += 1;
        let stands = self.wanted.iter_mut().find(|(_, ticket)| ticket.revoked != Certainty::Yes);
        let Some((id, ticket)) = stands.filter(|_| self.attempts.is_multiple_of(2)) else { return self.issue(records) };
        ticket.revoked = Certainty::Perhaps;
        records.revoke(*id)?;
        ticket.revoked = Certainty::Yes;
        Ok(())
    }

    fn issue(&mut self, records: &mut Records) -> anyhow::Result<()> {
        let key = TicketPubKey(drawn()?.public());
        let uses = 1 + u32::try_from(self.wanted.len() % 100)?;
        let issued = records.issue(key, uses, ClusterRole::Node)?;
        ensure!(issued.id == ticket_id(&key), "another ticket was issued: {issued:?}");
        self.wanted.insert(issued.id, Wanted { uses, revoked: Certainty::No });
        Ok(())
    }

    fn read_back(&mut self, place: SocketAddr) -> anyhow::Result<()> {
        let mut records = Records::at(place, &self.key)?;
        self.issue(&mut records)?;
        let listed = records.tickets()?;
        ensure!(listed.old_since.is_none(), "the coordinator says that its list is old");
        compare(&self.wanted, &listed.rows)
    }
}

impl Ledger for Tickets {
    fn change(&mut self) -> anyhow::Result<()> {
        let there = self.places.lock().unwrap_or_else(PoisonError::into_inner).clone();
        self.sessions.retain(|place, _| there.contains(place));
        let place = *there.get(self.turn % there.len().max(1)).context("no coordinator is on")?;
        self.turn += 1;
        let session = self.sessions.remove(&place).map_or_else(|| Records::at(place, &self.key), Ok);
        let mut session = session?;
        self.change_by(&mut session)?;
        self.sessions.insert(place, session);
        Ok(())
    }
}

impl Writer<Tickets> {
    /// The coordinator there takes a change, and tells all that was ever acknowledged.
    ///
    /// # Errors
    /// When it does not, or has lost something.
    pub fn read_back(&self, place: SocketAddr) -> anyhow::Result<()> {
        self.between(|tickets| tickets.read_back(place))
    }
}

/// Whether a list has all that was acknowledged.
fn compare(wanted: &BTreeMap<TicketId, Wanted>, rows: &[ListedTicket]) -> anyhow::Result<()> {
    let listed: BTreeMap<_, _> = rows.iter().map(|row| (row.id, row)).collect();
    for (id, ticket) in wanted {
        let Some(row) = listed.get(id) else {
            bail!("ticket {id} was acknowledged, and is lost: {} of {} are there", listed.len(), wanted.len())
        };
        let revoked = row.revoked != Revocation::No;
        let fits = match ticket.revoked {
            Certainty::No => !revoked,
            Certainty::Yes => revoked,
            Certainty::Perhaps => true,
        };
        ensure!(row.uses == ticket.uses && fits, "ticket {id} was acknowledged as {ticket:?}, and is {row:?}");
    }
    Ok(())
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
            let wanted = [(ID, Wanted { uses: 3, revoked })].into();
            assert_eq!(compare(&wanted, &rows).is_ok(), fits, "{revoked:?} {rows:?}");
        }
    }
}
