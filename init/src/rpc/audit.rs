//! The audit record: one line in the log `audit` for each call that changes something and each that is refused. It says
//! who called, from where, what and how that ended; never what the call carried.
//!
//! The owner's calls are all written down. What a stranger can cause is bounded: one answer and one refusal per source
//! and minute.

use std::net::SocketAddr;

use api::access::Refused;
use pki::SpkiPin;
use pki::client_auth::Caller as Who;
use tonic::Code;

use super::session::Origin;
use super::sources::{Sources, Topic};
use crate::{clock, log};

/// The log of this record.
const SERVICE: &str = "audit";
/// More of a path is no method's.
const PATH: usize = 80;

/// Where calls are written down; clones share the bounds.
#[derive(Debug, Clone)]
pub(super) struct Audit(Sources);

/// A call that was let in. When it ends without an outcome, its caller left before the answer.
#[derive(Debug)]
pub(super) struct Call {
    audit: Audit,
    seen: Seen,
    ended: bool,
}

/// What is known of a call before it runs.
#[derive(Debug, Clone)]
struct Seen {
    owner: Option<SpkiPin>,
    from: SocketAddr,
    method: String,
}

impl Audit {
    /// With the bounds that connections have.
    pub(super) const fn new(sources: Sources) -> Self {
        Self(sources)
    }

    /// A call begins that is to be written down when it ends.
    pub(super) fn begin(&self, origin: &Origin, path: &str) -> Call {
        Call { audit: self.clone(), seen: Seen::of(origin, path), ended: false }
    }

    /// A call was refused before it began.
    pub(super) fn refused(&self, origin: &Origin, path: &str, refused: Refused) {
        let seen = Seen::of(origin, path);
        if self.0.first_lately(seen.from.ip(), Topic::Refusal, clock::now()) {
            log::write(SERVICE, seen.line(&format!("refused reason={:?}", refused.to_string())).as_bytes());
        }
    }

    fn ended(&self, seen: &Seen, outcome: Option<Code>) {
        let topic = if outcome == Some(Code::Ok) { Topic::Answer } else { Topic::Refusal };
        if seen.owner.is_some() || self.0.first_lately(seen.from.ip(), topic, clock::now()) {
            let outcome = outcome.map_or_else(|| String::from("left"), |code| format!("{code:?}"));
            log::write(SERVICE, seen.line(&outcome).as_bytes());
        }
    }
}

impl Call {
    /// The answer's head is there.
    pub(super) fn end(mut self, outcome: Code) {
        self.ended = true;
        self.audit.ended(&self.seen, Some(outcome));
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        if !self.ended {
            self.audit.ended(&self.seen, None);
        }
    }
}

impl Seen {
    fn of(origin: &Origin, path: &str) -> Self {
        let owner = match &origin.who {
            Who::Anonymous => None,
            Who::Owner(key) => Some(key.pin()),
        };
        Self { owner, from: origin.peer, method: path.chars().take(PATH).collect() }
    }

    fn line(&self, outcome: &str) -> String {
        let who = self.owner.map_or_else(|| String::from("anonymous"), |pin| format!("owner:{pin}"));
        format!("call who={who} from={} method={:?} outcome={outcome}", self.from, self.method)
    }
}
