//! Which refusals leave a line in the audit: those of a ticket or a machine that the records know, and of each one in a minute.
//! Whoever asks with what nobody knows leaves none: anybody can make that up.

use keys::identity::machine_id;
use keys::ticket::ticket_id;
use model::MachinePubKey;

use crate::denial::Denial;
use crate::key::{AuditId, Key};
use crate::record::{AuditLine, UnixSeconds};
use crate::request::Request;
use crate::state::State;

/// Seconds of one. A second refusal within it is written over the first one, by whichever coordinator gives it.
const MINUTE: u64 = 60;

/// The line of a refusal, if it leaves one.
pub(crate) fn line(state: &State, request: &Request, denied: &Denial, now: UnixSeconds) -> Option<(Key, Vec<u8>)> {
    let machine = |key: &MachinePubKey| {
        let id = machine_id(&key.0);
        state.machine(&id).map(|_| (id.0, id.to_string()))
    };
    let (what, known) = match request {
        Request::Redeem(redeem) => {
            let id = ticket_id(&redeem.body().ticket);
            ("ticket", state.ticket(&id).map(|_| (id.0, id.to_string())))
        }
        Request::ReleaseKey { machine: key, .. } => ("key", machine(key)),
        Request::Announce { machine: key, .. } => ("announcement", machine(key)),
        // Owners are told, and what coordinators ask for themselves is nobody's attempt.
        Request::Create(_)
        | Request::Owner { .. }
        | Request::Observe { .. }
        | Request::Hold { .. }
        | Request::BeginEpoch
        | Request::AcknowledgeEpoch { .. }
        | Request::AcknowledgeRestore { .. }
        | Request::EndRestore { .. } => return None,
    };
    let (whom, text) = known?;
    let line = AuditLine { what: format!("{what} refused: {denied}"), whom: text, owner: None, time: now };
    Some((Key::Audit(AuditId::Refused { whom, minute: now.0 / MINUTE }), line.encode()))
}
