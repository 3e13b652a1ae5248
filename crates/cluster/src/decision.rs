//! A request on its way through etcd: decided over what was seen, committed if that still holds, decided again if somebody
//! else was first. Whoever drives it, PID 1 or the simulator, brings views, time and transactions.
//!
//! ```text
//!   request ─► propose(view, now) ─► Proposal ─ etcd ─► after(outcome) ─► Next: Answer
//!                ▲                                                        │     GiveUp
//!                └──────────────── a view that is newer ◄─── Again ◄──────┘
//! ```
//! A refusal is asked of etcd, too, as a transaction that writes a line of the audit at most: over an old view nobody is told no.

use crate::decide::decide;
use crate::denial::Denial;
use crate::key::{AuditId, Key};
use crate::record::UnixSeconds;
use crate::refusal;
use crate::request::Request;
use crate::state::State;
use crate::txn::{Grant, Outcome, Txn};

/// How often a request is decided: each time somebody else was first, so something was done. Far more than coordinators
/// get in each other's way.
pub const MOST_TRIES: u32 = 40;

/// A request that is being decided.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    request: Request,
    tries: u32,
}

/// A transaction that is to be committed, and the answer that holds once it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Proposal {
    txn: Txn,
    answer: Result<Grant, Denial>,
}

/// How a decision goes on after etcd's outcome.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Next {
    /// This is the answer, and etcd knows of it.
    Answer(Result<Grant, Denial>),
    /// Somebody was first: propose again over a view of this revision, or a later one.
    Again {
        /// The revision.
        seen: u64,
    },
    /// Somebody was first for the last time; nothing was done.
    GiveUp,
}

impl Decision {
    /// Begins a decision of which nothing was tried yet.
    #[must_use]
    pub const fn new(request: Request) -> Self {
        Self { request, tries: 0 }
    }

    /// The request that is decided.
    #[must_use]
    pub const fn request(&self) -> &Request {
        &self.request
    }

    /// Decides over what was seen.
    #[must_use]
    pub fn propose(&self, state: &State, now: UnixSeconds) -> Proposal {
        match decide(state, &self.request, now) {
            Ok(txn) => Proposal { answer: Ok(txn.granted), txn },
            Err(denied) => {
                let mut txn = Txn::unchanged(state);
                txn.puts.extend(refusal::line(state, &self.request, &denied, now));
                Proposal { txn, answer: Err(denied) }
            }
        }
    }

    /// Takes what etcd made of the proposal, and says how to go on.
    #[must_use]
    pub fn after(&mut self, proposal: Proposal, outcome: Outcome) -> Next {
        match outcome {
            Outcome::Committed => Next::Answer(proposal.answer),
            Outcome::Differs { version } => {
                self.tries += 1;
                if self.tries < MOST_TRIES { Next::Again { seen: version } } else { Next::GiveUp }
            }
        }
    }
}

impl Proposal {
    /// Transaction that etcd is asked for.
    #[must_use]
    pub const fn txn(&self) -> &Txn {
        &self.txn
    }

    /// The machine or the ticket whose refusal is written down by it.
    #[must_use]
    pub fn writes_of_refused(&self) -> Option<[u8; 16]> {
        self.txn.puts.iter().find_map(|(key, _)| {
            let Key::Audit(AuditId::Refused { whom, .. }) = key else { return None };
            Some(*whom)
        })
    }

    /// The same refusal, which is as sure and is not written down.
    #[must_use]
    pub fn unwritten(mut self) -> Self {
        if self.answer.is_err() {
            self.txn.puts.clear();
        }
        self
    }

    /// Whether something is written because the request is granted.
    #[must_use]
    pub fn grants_a_write(&self) -> bool {
        self.answer.is_ok() && self.txn.writes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{NOW, OWNER};
    use crate::request::Asks;
    use crate::state::KeyValue;
    use crate::txn::{Compare, KeyCondition};

    fn revoke() -> Request {
        Request::Owner { by: OWNER, asks: Asks::RevokeTicket(model::TicketId([1; 16])) }
    }

    #[test]
    fn a_refusal_holds_only_if_nothing_changed() {
        let cluster = crate::fixture::cluster();
        let pair = |key: Key, value| KeyValue { key: key.bytes(), value, mod_revision: 4 };
        let version = pair(Key::Version, crate::record::ChangeCount(1).encode());
        let state = State::read([version, pair(Key::Cluster, cluster.encode())]).expect("our own");
        let mut decision = Decision::new(revoke());
        let proposal = decision.propose(&state, NOW);
        let unchanged = Compare { key: Key::Version, condition: KeyCondition::ModifiedIn(4) };
        assert_eq!((&*proposal.txn().compares, proposal.txn().writes()), (&[unchanged][..], false));
        assert_eq!(decision.after(proposal.clone(), Outcome::Differs { version: 6 }), Next::Again { seen: 6 });
        assert_eq!(decision.after(proposal, Outcome::Committed), Next::Answer(Err(Denial::UnknownTicket)));
        let nothing = Decision::new(revoke()).propose(&State::default(), NOW);
        let absent = Compare { key: Key::Version, condition: KeyCondition::Absent };
        assert_eq!(nothing.txn().compares, [absent]);
        assert_eq!(nothing.answer, Err(Denial::NoCluster));
    }

    #[test]
    fn who_is_never_first_gives_up() {
        let mut decision = Decision::new(revoke());
        let mut tries = 0;
        let last = loop {
            let proposal = decision.propose(&State::default(), NOW);
            tries += 1;
            match decision.after(proposal, Outcome::Differs { version: tries }) {
                Next::Again { seen } => assert_eq!(seen, tries),
                last @ (Next::Answer(_) | Next::GiveUp) => break last,
            }
        };
        assert_eq!((last, tries), (Next::GiveUp, u64::from(MOST_TRIES)));
    }
}
