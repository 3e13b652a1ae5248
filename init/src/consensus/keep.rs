//! Keeps this coordinator's copy of the records: reads everything, then takes what a watch tells. Whatever is lost ends it,
//! and the supervisor begins it again, after a pause that grows.

use std::convert::Infallible;
use std::time::Duration;

use cluster::denied::Denied;
use cluster::request::Request;
use cluster::state::BadState;
use cluster::view::View;
use etcd::audit::Trimming;
use etcd::wire::etcdserverpb::{RangeRequest, WatchResponse};
use etcd::{BadAnswer, Progress, Reading, Watched};
use member::is_news;
use tokio::time::{MissedTickBehavior, interval};
use tonic::Streaming;

use super::link::NoAnswer;
use super::{NotGranted, Records, members, recovery, revocation};
use crate::enrolment::MakeError;
use crate::runtime::clock;

/// How often the audit is looked at: it grows by a line for each change, and each key that is given out.
const TRIM: Duration = Duration::from_secs(600);

/// Why the copy is not kept up.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Lost {
    /// Whether its etcd votes.
    #[error("ask etcd whether it votes")]
    Votes(#[source] NoAnswer),
    /// It cannot be read.
    #[error(transparent)]
    Read(#[from] Unreadable),
    /// It says what this version does not understand: a newer one wrote it.
    #[error("understand what was changed in the cluster's records")]
    State(#[from] BadState),
    /// An etcd without a cluster's records, on a machine that did not create the cluster.
    #[error("etcd has no records of the cluster that this machine joined")]
    Empty,
    /// etcd tells nothing more.
    #[error("watch the cluster's records")]
    Watch(#[source] NoAnswer),
    /// etcd has forgotten what came next, or has no leader.
    #[error("the watch of the cluster's records ended: {0}")]
    Ended(String),
    /// Its directory cannot be signed.
    #[error("sign the directory")]
    Sign(#[from] MakeError),
    /// The first machine cannot write what it created, or this one what it is.
    #[error("write this machine's record")]
    Write(#[source] NotGranted),
    /// The cluster is to be recovered, and is not yet.
    #[error(transparent)]
    Recovery(#[from] recovery::Error),
    /// etcd's members cannot be looked at.
    #[error(transparent)]
    Members(#[from] members::Lost),
    /// Whom etcd is to refuse cannot be said.
    #[error(transparent)]
    Revocation(#[from] revocation::Error),
    /// The audit cannot be kept in its bounds.
    #[error("delete the oldest lines of the audit")]
    Trim(#[source] NoAnswer),
}

/// Why the records cannot be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unreadable {
    /// etcd does not tell them.
    #[error("read the cluster's records")]
    Etcd(#[from] NoAnswer),
    /// They say what this version does not understand: a newer one wrote them.
    #[error("understand the cluster's records")]
    State(#[from] BadState),
}

/// Which records are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Of {
    /// Those of now, which takes a quorum of etcd's voters.
    Now,
    /// Those that this machine's etcd has, however old.
    ThisMachine,
}

/// As long as it is there, what was seen is of now.
struct Fresh<'a>(&'a Records);

impl Drop for Fresh<'_> {
    fn drop(&mut self) {
        self.0.seen.send_modify(|seen| seen.lost = Some(clock::unix_millis()));
    }
}

/// Reads, then follows what is changed, and tends what is this coordinator's to tend, until either fails.
pub(super) async fn keep(records: &Records) -> Result<(), Lost> {
    members::votes(&records.link).await.map_err(Lost::Votes)?;
    let view = read(records, Of::Now).await?;
    let (revision, empty) = (view.revision(), view.state().version().is_none());
    let told = records.link.watch(revision).await.map_err(Lost::Watch)?;
    // While the cluster is being recovered its etcd is not here to stay.
    let lost = recovery::noted()?.map(|_| clock::unix_millis());
    records.shows(|seen| (seen.view, seen.lost) = (Some(view), lost))?;
    let _fresh = Fresh(records);
    tracing::info!(revision, "the cluster's records are read");
    // Beside each other: what is written here is seen by the watch.
    let Err(lost) = tokio::select! {
        lost = follow(records, told) => lost,
        lost = tend(records, empty) => lost,
        lost = revocation::keep(records) => lost.map_err(Lost::Revocation),
        lost = async {
            // Members follow the records as they are behind it.
            recovery::finish(records).await?;
            members::tend(records).await.map_err(Lost::Members)
        } => lost,
    };
    Err(lost)
}

/// Takes what the watch tells.
async fn follow(records: &Records, mut told: Streaming<WatchResponse>) -> Result<Infallible, Lost> {
    loop {
        let answer = told.message().await.map_err(|status| Lost::Watch(status.into()))?;
        let answer = answer.ok_or_else(|| Lost::Ended(String::from("etcd closed it")))?;
        match etcd::watched(answer).map_err(|bad: BadAnswer| Lost::Watch(bad.into()))? {
            Watched::Begun => {}
            Watched::Lost { reason } => return Err(Lost::Ended(reason)),
            Watched::Changes { changes, revision } => {
                let mut taken = Ok(());
                let shown = records.shows(|seen| {
                    if let Some(view) = &mut seen.view {
                        taken = view.take(changes, revision);
                    }
                });
                taken?;
                shown?;
            }
        }
    }
}

/// Writes a new cluster's first records; says of this machine what it runs, and where it may be reached, also when that
/// changes; keeps the audit in its bounds.
async fn tend(records: &Records, empty: bool) -> Result<Infallible, Lost> {
    if empty {
        if !records.first.founds() {
            return Err(Lost::Empty);
        }
        create(records).await?;
    }
    let mut facts = records.first.facts();
    let mut trim = interval(TRIM);
    trim.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        facts.mark_unchanged();
        let said = records.first.endpoints();
        announce(records).await?;
        while !is_news(&said, &records.first.endpoints()) {
            tokio::select! {
                changed = facts.changed() => changed.expect("this machine holds its facts"),
                _ = trim.tick() => self::trim(records).await.map_err(Lost::Trim)?,
            }
        }
    }
}

/// Reads everything.
pub(super) async fn read(records: &Records, of: Of) -> Result<View, Unreadable> {
    let mut reading = Reading::begin();
    loop {
        let asked = RangeRequest { serializable: of == Of::ThisMachine, ..reading.page() };
        let page = records.link.range(asked).await?;
        match reading.take(page).map_err(NoAnswer::from)? {
            Progress::More => {}
            Progress::Done => return Ok(reading.view()?),
        }
    }
}

/// The first machine writes what it created. Nothing to do where somebody has.
async fn create(records: &Records) -> Result<(), Lost> {
    let now = clock::unix().as_secs();
    match records.decide(Request::Create(Box::new(records.first.creation(now)))).await {
        Ok(_) => {
            tracing::info!("the cluster's first records are written");
            Ok(())
        }
        Err(NotGranted::Denied(Denied::ClusterExists)) => Ok(()),
        Err(error) => Err(Lost::Write(error)),
    }
}

/// This machine's record says what it runs in this boot, and where it may be reached.
async fn announce(records: &Records) -> Result<(), Lost> {
    match records.decide(records.first.announces()).await {
        Ok(_) => Ok(()),
        Err(error @ NotGranted::Denied(_)) => {
            tracing::warn!(%error, "this machine does not belong to its cluster any more");
            Ok(())
        }
        Err(error) => Err(Lost::Write(error)),
    }
}

/// Deletes the audit's oldest lines, if there are too many.
async fn trim(records: &Records) -> Result<(), NoAnswer> {
    let mut trimming = Trimming::begin();
    while trimming.take(records.link.range(trimming.page()).await?)? == Progress::More {}
    for deletes in trimming.deletes() {
        records.link.transact(deletes).await?;
    }
    Ok(())
}
