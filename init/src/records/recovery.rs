//! The cluster goes on with this coordinator's copy of its records alone, because its owner says so. What is to be done is noted
//! on DATA before it begins, and a cut only delays it. The others' etcd ends by itself as soon as it reaches this one, which
//! tells it that it was taken out (`IsIDRemoved`, server/etcdserver/api/rafthttp/http.go).
//!
//! ```text
//!   owner ─► may it? ─► noted ─► etcd starts, and takes the others out ─► written into the records ─► note removed ─► etcd as always
//! ```

use std::io;
use std::net::Ipv4Addr;
use std::path::Path;
use std::time::Duration;

use api::{OtherMember, RecoveryPlan};
use cluster::Denial;
use cluster::record::UnixSeconds;
use cluster::request::{Asks, Request};
use cluster::state::BadState;
use member::RecoveryNote;
use model::OwnerPubKey;

use super::link::NoAnswer;
use super::members::{Answers, answers};
use super::read::{self, Of, Unreadable};
use super::{First, GrantError, LEADERLESS, Records, leaderless};
use crate::runtime::{clock, durable, tasks};
use crate::storage::DATA;

/// File that says that a recovery is to be done: the key of the owner who asked, 32 bytes, and whether etcd was started for it, a
/// byte. It goes with etcd's data.
pub(super) const NOTE: &str = "etcd-recovery";
/// Length of an owner's key.
const KEY_BYTES: usize = 32;
/// Last byte of a note before etcd is started for it.
const ORDERED: u8 = 0;
/// Last byte of a note since etcd was to be started for it.
const BEGUN: u8 = 1;

/// Why the cluster does not go on with this coordinator alone.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RecoveryRefusal {
    /// This machine's etcd does not say how it is, or which members it has.
    #[error("this machine's etcd gives no answer ({0}); nothing was done; try again when it runs")]
    Silent(#[from] NoAnswer),
    /// This machine's etcd has no vote, so others may have decided what it has not heard.
    #[error("this machine's etcd keeps a copy without a vote; nothing was done; choose a coordinator that votes")]
    Learner,
    /// This machine's etcd has a leader, or had one within `LEADERLESS`.
    #[error("etcd has a leader, or had one in the last {} s; nothing was done; the cluster can be changed as always", LEADERLESS.as_secs())]
    Leader,
    /// The etcd of another coordinator, which has this VPN address, has a leader.
    #[error("the coordinator at {0} has a leader; nothing was done; ask that one, or mend what keeps them apart")]
    OthersLead(Ipv4Addr),
    /// The records that this machine has deny the recovery.
    #[error("by the records that this machine has: {0}; nothing was done; choose another coordinator")]
    Denied(Denial),
    /// This version does not understand the records that this machine has.
    #[error(
        "this machine does not understand the records that it has ({0}); nothing was done; choose another coordinator"
    )]
    Records(BadState),
    /// The note of the recovery cannot be written.
    #[error("note on the data partition that the cluster is to be recovered: {0}; nothing was done")]
    Note(#[source] io::Error),
}

impl From<Unreadable> for RecoveryRefusal {
    fn from(error: Unreadable) -> Self {
        match error {
            Unreadable::Etcd(error) => Self::Silent(error),
            Unreadable::State(error) => Self::Records(error),
        }
    }
}

/// Whether this machine's etcd is to take all other members out, or may have, and who asked for that.
///
/// # Errors
/// [`Error::Unread`]: a note that cannot be read may be one.
pub(crate) fn noted() -> Result<Option<(OwnerPubKey, RecoveryNote)>, Error> {
    read_note(Path::new(DATA))
}

/// Notes that etcd is started for the recovery that is noted.
///
/// # Errors
/// [`Error`]: etcd must not start so.
pub(crate) async fn begin() -> Result<(), Error> {
    tasks::blocking(|| match noted()? {
        Some((by, _)) => write_note(Path::new(DATA), by, RecoveryNote::Begun).map_err(Error::Note),
        None => Err(Error::Unread(io::ErrorKind::NotFound.into())),
    })
    .await
}

/// Removes the note of a recovery that is not to be done.
///
/// # Errors
/// [`Error::Note`]: it may lie there still.
pub(crate) async fn forget() -> Result<(), Error> {
    tasks::blocking(|| durable::remove(&Path::new(DATA).join(NOTE))).await.map_err(Error::Note)
}

fn read_note(data: &Path) -> Result<Option<(OwnerPubKey, RecoveryNote)>, Error> {
    let note = durable::read(&data.join(NOTE), KEY_BYTES + 1).map_err(Error::Unread)?;
    let parse = |note: &[u8]| {
        let (state, by) = note.split_last()?;
        let state = match *state {
            ORDERED => RecoveryNote::Ordered,
            BEGUN => RecoveryNote::Begun,
            _ => return None,
        };
        Some((OwnerPubKey(by.try_into().ok()?), state))
    };
    note.map(|note| parse(&note).ok_or_else(|| Error::Unread(io::ErrorKind::InvalidData.into()))).transpose()
}

fn write_note(data: &Path, by: OwnerPubKey, state: RecoveryNote) -> io::Result<()> {
    let state = match state {
        RecoveryNote::Ordered => ORDERED,
        RecoveryNote::Begun => BEGUN,
    };
    durable::replace(data, NOTE, &[&by.0[..], &[state]].concat())
}

impl Records {
    /// Plan of a recovery with this coordinator alone; nothing is noted yet.
    ///
    /// # Errors
    /// [`RecoveryRefusal`].
    pub(crate) async fn recovery_plan(&self, by: OwnerPubKey) -> Result<RecoveryPlan, RecoveryRefusal> {
        let plan = plan(self.silent_for(), &answers(self).await?)?;
        // What is denied then would be denied for ever, and the other members would be gone.
        let view = read::all(&self.link, Of::ThisMachine).await?;
        let now = UnixSeconds(clock::unix().as_secs());
        cluster::decide(view.state(), &request(&self.first, by), now).map_err(RecoveryRefusal::Denied)?;
        Ok(plan)
    }

    /// Notes that the cluster is to be recovered, where it may be; whoever runs etcd here begins it.
    ///
    /// # Errors
    /// [`RecoveryRefusal`]: nothing is noted.
    pub(crate) async fn recover(&self, by: OwnerPubKey) -> Result<RecoveryPlan, RecoveryRefusal> {
        let plan = self.recovery_plan(by).await?;
        let noted = tasks::blocking(move || write_note(Path::new(DATA), by, RecoveryNote::Ordered)).await;
        noted.map_err(RecoveryRefusal::Note)?;
        Ok(plan)
    }

    /// Writes into the records what was noted, if anything was: etcd has no other member by now.
    ///
    /// # Errors
    /// [`Error`] names the step; the note lies there still.
    pub(crate) async fn commit_recovery(&self) -> Result<(), Error> {
        if let Some((by, _)) = noted()? {
            self.decide(request(&self.first, by)).await?;
            forget().await?;
            tracing::warn!("the cluster goes on with this coordinator's records alone");
        }
        Ok(())
    }
}

/// Judges a recovery by the answers of etcd's members, where this machine's has told nothing for `silent`.
fn plan(silent: Option<Duration>, answers: &Answers) -> Result<RecoveryPlan, RecoveryRefusal> {
    let Answers { own, listed, others } = answers;
    let silent = leaderless(silent).filter(|_| own.health.leader.is_none());
    let silent = silent.ok_or(RecoveryRefusal::Leader)?;
    if !own.health.votes {
        return Err(RecoveryRefusal::Learner);
    }
    if let Some((vpn_ip, _)) = others.iter().find(|(_, status)| status.health.leader.is_some()) {
        return Err(RecoveryRefusal::OthersLead(*vpn_ip));
    }
    let others = listed.iter().filter(|member| member.id != own.health.id).map(|member| OtherMember {
        vpn_ip: member.vpn_ip,
        answers: others.iter().any(|(vpn_ip, _)| *vpn_ip == member.vpn_ip),
    });
    Ok(RecoveryPlan { silent, others: others.collect() })
}

fn request(this: &First, by: OwnerPubKey) -> Request {
    Request::Owner { by, asks: Asks::Recover(this.machine()) }
}

/// Why what was noted is not done yet.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The records do not take the recovery.
    #[error("write into the records that the cluster was recovered")]
    Write(#[from] GrantError),
    /// Whether anything was noted is not known.
    #[error("read `{DATA}/{NOTE}`")]
    Unread(#[source] io::Error),
    /// The note cannot be changed or removed.
    #[error("change `{DATA}/{NOTE}`")]
    Note(#[source] io::Error),
}

#[cfg(test)]
mod tests {
    use cluster::backends::Backend;
    use etcd::members::{Health, Member, MemberStatus};

    use super::*;

    /// Proves: K6
    #[test]
    fn a_note_that_cannot_be_read_is_not_taken_for_none() {
        let data = tempfile::tempdir().expect("a place for files");
        let read = || read_note(data.path());
        assert!(matches!(read(), Ok(None)));
        for noted in [RecoveryNote::Ordered, RecoveryNote::Begun] {
            write_note(data.path(), OwnerPubKey([7; KEY_BYTES]), noted).expect("noted");
            assert_eq!(read().expect("it can be read"), Some((OwnerPubKey([7; KEY_BYTES]), noted)));
        }
        let broken = durable::faults::with(&data.path().join(NOTE), rustix::io::Errno::ILSEQ, read);
        assert!(durable::is_damage(&broken.expect_err("it may be noted")));
        for wrong in [&[0; KEY_BYTES][..], &[0; KEY_BYTES + 2], &[7; KEY_BYTES + 1], &[]] {
            durable::replace(data.path(), NOTE, wrong).expect("written");
            assert!(matches!(read(), Err(Error::Unread(_))), "{wrong:?}");
        }
    }

    const LONG: Option<Duration> = Some(Duration::from_secs(34));

    fn ip(n: u8) -> Ipv4Addr {
        [10, 118, 0, n].into()
    }

    fn status(id: u64, leader: Option<u64>) -> MemberStatus {
        let health = Health { id, leader, log: 9, applied: 9, revision: 9, votes: true };
        let (backend, version) = (Backend::default(), String::new());
        MemberStatus { health, backend, version, alarms: [].into(), errors: Vec::new() }
    }

    /// Three members, of which this machine's is the first and the second one answers; nobody leads.
    fn three() -> Answers {
        let listed = (1..=3).map(|n| Member { id: n.into(), vpn_ip: ip(n), votes: true }).collect();
        Answers { own: status(1, None), listed, others: vec![(ip(2), status(2, None))] }
    }

    /// Proves: K6
    #[test]
    fn the_others_are_named_with_whether_they_answer() {
        let RecoveryPlan { silent, others } = plan(LONG, &three()).expect("it may be recovered");
        let others: Vec<_> = others.iter().map(|other| (other.vpn_ip, other.answers)).collect();
        assert_eq!((Some(silent), others), (LONG, vec![(ip(2), true), (ip(3), false)]));
    }

    /// Proves: K6
    #[test]
    fn a_recovery_takes_a_vote_and_that_nobody_leads() {
        for silent in [None, LEADERLESS.checked_sub(Duration::from_millis(1))] {
            assert!(matches!(plan(silent, &three()), Err(RecoveryRefusal::Leader)), "{silent:?}");
        }
        assert!(plan(Some(LEADERLESS), &three()).is_ok());
        let led = Answers { own: status(1, Some(2)), ..three() };
        assert!(matches!(plan(LONG, &led), Err(RecoveryRefusal::Leader)));
        let mut learner = three();
        learner.own.health.votes = false;
        assert!(matches!(plan(LONG, &learner), Err(RecoveryRefusal::Learner)));
        let elsewhere = Answers { others: vec![(ip(2), status(2, None)), (ip(3), status(3, Some(3)))], ..three() };
        assert!(matches!(plan(LONG, &elsewhere), Err(RecoveryRefusal::OthersLead(at)) if at == ip(3)));
    }
}
