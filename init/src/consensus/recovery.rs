//! The cluster goes on with this coordinator's copy of its records alone, because its owner says so. What is to be done is noted
//! on DATA before it begins, and a cut only delays it. The others' etcd ends by itself as soon as it reaches this one, which
//! tells it that it was taken out (`IsIDRemoved`, server/etcdserver/api/rafthttp/http.go).
//!
//! ```text
//!   owner ─► may it? ─► noted ─► etcd starts, and takes the others out ─► written into the records ─► note removed ─► etcd as always
//! ```

use std::collections::BTreeMap;
use std::io;
use std::net::Ipv4Addr;
use std::path::Path;
use std::time::Duration;

use api::{OtherMember, RecoveryPlan};
use cluster::request::{Asks, Request};
use keys::identity::machine_id;
use model::OwnerPubKey;

use super::link::NoAnswer;
use super::members::{Answers, answers};
use super::{NotGranted, Records};
use crate::runtime::{durable, tasks};

/// Says that it is to be done, and which owner asked: 32 bytes. It goes with etcd's data.
pub(super) const NOTE: &str = "/data/etcd-recovery";
/// Without a leader for so long, etcd is not just in an election.
const WITHOUT_LEADER: Duration = Duration::from_secs(10);

/// Why the cluster does not go on with this coordinator alone.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NotRecoverable {
    /// Its etcd does not say how it is.
    #[error("this machine's etcd gives no answer ({0}); nothing was done; try again when it runs")]
    Silent(#[from] NoAnswer),
    /// It never had a vote, so others may have decided what it has not heard.
    #[error("this machine's etcd keeps a copy without a vote; nothing was done; choose a coordinator that votes")]
    Learner,
    /// It has a leader, or had one a moment ago.
    #[error("etcd has a leader, or had one in the last {} s; nothing was done; the cluster can be changed as always", WITHOUT_LEADER.as_secs())]
    Leader,
    /// Others have.
    #[error("the coordinator at {0} has a leader; nothing was done; ask that one, or mend what keeps them apart")]
    OthersLead(Ipv4Addr),
    /// It cannot be noted.
    #[error("note on the data partition that the cluster is to be recovered: {0}; nothing was done")]
    Note(#[source] io::Error),
}

/// Whether this machine's etcd is to take all other members out, and who asked for that.
pub(crate) fn noted() -> Option<OwnerPubKey> {
    std::fs::read(NOTE).ok()?.try_into().ok().map(OwnerPubKey)
}

impl Records {
    /// What it would do to have the cluster go on with this coordinator alone.
    ///
    /// # Errors
    /// [`NotRecoverable`].
    pub(crate) async fn recovery_plan(&self) -> Result<RecoveryPlan, NotRecoverable> {
        let Answers { own, listed, others } = answers(self, &mut BTreeMap::new()).await?;
        let silent = self.silent_for().filter(|silent| *silent >= WITHOUT_LEADER && own.leader.is_none());
        let silent = silent.ok_or(NotRecoverable::Leader)?;
        if !own.votes {
            return Err(NotRecoverable::Learner);
        }
        if let Some((vpn_ip, _)) = others.iter().find(|(_, health)| health.leader.is_some()) {
            return Err(NotRecoverable::OthersLead(*vpn_ip));
        }
        let others = listed.iter().filter(|member| member.id != own.id).map(|member| OtherMember {
            vpn_ip: member.vpn_ip,
            answers: others.iter().any(|(vpn_ip, _)| *vpn_ip == member.vpn_ip),
        });
        Ok(RecoveryPlan { silent, others: others.collect() })
    }

    /// Notes that it is to be done, where it may be; whoever runs etcd here begins it.
    ///
    /// # Errors
    /// [`NotRecoverable`]: nothing is noted.
    pub(crate) async fn recover(&self, by: OwnerPubKey) -> Result<RecoveryPlan, NotRecoverable> {
        let plan = self.recovery_plan().await?;
        let (directory, name) = NOTE.rsplit_once('/').expect("it has a directory");
        let noted = tasks::blocking(move || durable::replace(Path::new(directory), name, &by.0)).await;
        noted.map_err(NotRecoverable::Note)?;
        Ok(plan)
    }

    /// Waits until what was noted is written into the records.
    pub(crate) async fn recovered(&self) {
        let mut seen = self.seen.subscribe();
        let _we_hold_the_sender = seen.wait_for(|seen| seen.recovered).await.map(drop);
    }
}

/// Writes into the records what was noted, if anything was: etcd has no other member by now.
pub(super) async fn finish(records: &Records) -> Result<(), Error> {
    if let Some(by) = noted() {
        let asks = Asks::Recover(machine_id(&records.first.key().0));
        records.decide(Request::Owner { by, asks }).await?;
        tasks::blocking(|| durable::remove(Path::new(NOTE))).await.map_err(Error::Note)?;
        tracing::warn!("the cluster goes on with this coordinator's records alone");
    }
    records.seen.send_modify(|seen| seen.recovered = true);
    Ok(())
}

/// Why what was noted is not done yet.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The records.
    #[error("write into the records that the cluster was recovered")]
    Write(#[from] NotGranted),
    /// The note.
    #[error("remove `{NOTE}`")]
    Note(#[source] io::Error),
}
