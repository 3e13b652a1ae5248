//! The audit record: one line for each call that changes something and each that is refused. It says who called, from
//! where, what and how that ended, with the reason of a refusal; never what the call carried.
//!
//! The owner's calls are all written down, in the log `audit`; a user's by name in `audit.users`, which has a ring of its own. What strangers cause, connections that were refused
//! among it, goes into `audit.strangers`, a smaller ring of its own, and is bounded (`door::Lines`): they cannot push
//! out what an owner did.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};

use api::access::CallRefusal;
use door::{Lines, Topic};
use pki::client_auth::Who;
use tonic::Status;

use crate::runtime::clock;
use crate::runtime::lock;
use crate::runtime::log;

/// The log of what owners do.
const OWNERS: &str = "audit";
/// The log of what users of Kubernetes do here, who push out nothing of an owner's; whoever asks for `audit` gets it, too.
const USERS: &str = "audit.users";
/// More of a path is no method's.
const PATH: usize = 80;
/// More of a reason is nobody's first question.
const REASON: usize = 300;

/// Where calls are written down; clones share the bounds.
#[derive(Debug, Clone, Default)]
pub(super) struct Audit(Arc<Mutex<Lines>>);

/// A call that was let in. When it ends without an outcome, its caller left before the answer.
#[derive(Debug)]
pub(super) struct Call {
    audit: Audit,
    seen: Seen,
    ended: bool,
}

/// Facts of a call that are known before it runs.
#[derive(Debug, Clone)]
struct Seen {
    who: Who,
    from: SocketAddr,
    method: String,
}

/// How a call ended.
#[derive(Debug)]
enum Answer {
    Given,
    Refused(Status),
    /// The caller left before the answer.
    Missed,
}

impl Audit {
    /// A call begins that is to be written down when it ends.
    pub(super) fn begin(&self, who: Who, from: SocketAddr, path: &str) -> Call {
        Call { audit: self.clone(), seen: Seen::of(who, from, path), ended: false }
    }

    /// A call was refused before it began.
    pub(super) fn refused(&self, who: Who, from: SocketAddr, path: &str, refused: CallRefusal) {
        self.call(&Seen::of(who, from, path), Topic::Refusal, &format!("refused reason={:?}", refused.to_string()));
    }

    /// A connection of a source was refused, or ended by the machine.
    pub(super) fn connection(&self, source: IpAddr, what: &str) {
        self.stranger(source, Topic::Connection, || format!("connection refused source={source} what={what:?}"));
    }

    fn ended(&self, seen: &Seen, answer: &Answer) {
        match answer {
            Answer::Given => self.call(seen, Topic::Answer, "Ok"),
            Answer::Refused(status) => {
                let reason: String = status.message().chars().take(REASON).collect();
                self.call(seen, Topic::Refusal, &format!("{:?} reason={reason:?}", status.code()));
            }
            Answer::Missed => self.call(seen, Topic::Refusal, "left"),
        }
    }

    fn call(&self, seen: &Seen, topic: Topic, outcome: &str) {
        match &seen.who {
            Who::Owner(_) => log::write(OWNERS, seen.line(outcome).as_bytes()),
            Who::User(..) => log::write(USERS, seen.line(outcome).as_bytes()),
            Who::Stranger | Who::Person(_) | Who::Machine(_) | Who::Member(_) => {
                self.stranger(seen.from.ip(), topic, || seen.line(outcome))
            }
        }
    }

    fn stranger(&self, source: IpAddr, topic: Topic, line: impl FnOnce() -> String) {
        let may_write = lock::even_if_poisoned(&self.0).may_write(source, topic, clock::now());
        match may_write {
            Some(0) => log::write(log::STRANGERS, line().as_bytes()),
            Some(left_out) => log::write(log::STRANGERS, format!("{} left_out={left_out}", line()).as_bytes()),
            None => {}
        }
    }
}

impl Call {
    /// The answer's head is there: with a status, where the call is refused.
    pub(super) fn end(mut self, refused: Option<Status>) {
        self.ended = true;
        self.audit.ended(&self.seen, &refused.map_or(Answer::Given, Answer::Refused));
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        if !self.ended {
            self.audit.ended(&self.seen, &Answer::Missed);
        }
    }
}

impl Seen {
    fn of(who: Who, from: SocketAddr, path: &str) -> Self {
        Self { who, from, method: path.chars().take(PATH).collect() }
    }

    fn line(&self, outcome: &str) -> String {
        let who = match &self.who {
            Who::Stranger => String::from("stranger"),
            Who::Person(key) => format!("person:{key}"),
            Who::User(name, key) => format!("user:{name} key={key}"),
            Who::Machine(key) => format!("machine:{}", keys::identity::machine_id(&key.0)),
            Who::Member(key) => format!("member:{}", keys::identity::machine_id(&key.0)),
            Who::Owner(key) => format!("owner:{}", key.pin()),
        };
        format!("call who={who} from={} method={:?} outcome={outcome}", self.from, self.method)
    }
}
