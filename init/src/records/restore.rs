//! A restore of Kubernetes' objects on this machine: takes the snapshot, has the records order it, and performs each step in etcd. Which
//! step is due says the crate `member`.

use std::sync::Arc;

use ::snapshot::{ObjectSide, RegistryDifference, SnapshotHead, SnapshotSummary};
use api::RestoreStage;
use cluster::request::{Asks, Request};
use cluster::restores::{self, RestoreStep};
use etcd::wire::etcdserverpb::{AuthUserGrantRoleRequest, AuthUserRevokeRoleRequest};
use etcd::{Progress, RegistryReader};
use model::{Chain, ClusterId, MachineId, OwnerPubKey};
use pki::ETCD_KUBERNETES;
use tokio::sync::{Mutex, OwnedMutexGuard, watch};

use super::kept_snapshot::{self, KeptSnapshot, KeptSnapshotError, NewSnapshot};
use super::link::{NoAnswer, in_time};
use super::{GrantError, MembersError, Records, Unread};
use crate::runtime::tasks;
use crate::version;

/// Words of etcd for a role that a user has not (`ErrGRPCRoleNotGranted`, api/v3rpc/rpctypes/error.go).
const NOT_GRANTED: &str = "etcdserver: role is not granted to the user";

/// Why a restore is not ordered, or does not go on.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RestoreError {
    /// Which cluster this is is not known.
    #[error(transparent)]
    Unread(#[from] Unread),
    /// The snapshot cannot be taken, read or removed.
    #[error(transparent)]
    File(#[from] KeptSnapshotError),
    /// An older apiserver may not read what a newer one has written.
    #[error("the snapshot is of Kubernetes {found}, and {} runs here", version::KUBERNETES)]
    Newer {
        /// Release that the snapshot is of.
        found: ::snapshot::KubernetesRelease,
    },
    /// etcd would have no room for what it holds and the snapshot.
    #[error("etcd has room for {free} bytes more, and the snapshot has {bytes}")]
    Quota {
        /// Bytes of the snapshot.
        bytes: u64,
        /// Bytes that are free of the quota.
        free: u64,
    },
    /// etcd's members cannot be looked at.
    #[error(transparent)]
    Members(#[from] MembersError),
    /// The records do not order it.
    #[error(transparent)]
    Order(#[from] GrantError),
    /// etcd gives no answer.
    #[error("replace Kubernetes' objects")]
    Etcd(#[from] NoAnswer),
    /// The order that is carried out stands no more.
    #[error("the order to restore this snapshot has changed meanwhile")]
    OtherOrder,
}

/// Order to restore a snapshot, as the records have it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RestoreOrder {
    machine: MachineId,
    hash: [u8; 32],
}

/// Order of another snapshot in the place of this one.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OtherRestore;

/// Restores on this machine, as the clones of its records share them.
#[derive(Debug, Default)]
pub(super) struct Restores {
    /// Held while a snapshot that is to be restored is taken, or removed.
    place: Arc<Mutex<()>>,
    failure: watch::Sender<Option<StepFailure>>,
}

/// Failure of a step, until one is taken.
#[derive(Debug)]
pub(crate) struct StepFailure {
    /// Hash of the snapshot that is restored.
    hash: [u8; 32],
    why: String,
}

/// Snapshot that is being taken; nobody else's is meanwhile.
#[derive(Debug)]
pub(crate) struct RestoreSnapshot {
    new: NewSnapshot,
    _place: OwnedMutexGuard<()>,
}

impl RestoreSnapshot {
    /// Takes the next piece.
    ///
    /// # Errors
    /// [`RestoreError`]: nothing of it stays.
    pub(crate) async fn take(self, piece: Vec<u8>) -> Result<Self, RestoreError> {
        let Self { new, _place } = self;
        let new = tasks::blocking(move || new.take(&piece)).await?;
        if let Some(SnapshotHead { release: found, .. }) = new.head()
            && (found.0, found.1) > (version::KUBERNETES.0, version::KUBERNETES.1)
        {
            return Err(RestoreError::Newer { found });
        }
        Ok(Self { new, _place })
    }
}

impl Records {
    /// Begins to take a snapshot that is to be restored, once the one before it is removed.
    ///
    /// # Errors
    /// [`RestoreError`].
    pub(crate) async fn begin_restore(&self) -> Result<RestoreSnapshot, RestoreError> {
        let cluster = self.cluster()?;
        let place = Arc::clone(&self.restores.place).lock_owned().await;
        let new = tasks::blocking(move || NewSnapshot::begin(cluster)).await?;
        Ok(RestoreSnapshot { new, _place: place })
    }

    /// Keeps a snapshot that was taken whole, and has the records order that it is restored. Where they do not, it is removed.
    ///
    /// # Errors
    /// [`RestoreError`]: nothing is restored, but where etcd gave no answer.
    pub(crate) async fn order_restore(
        &self,
        by: OwnerPubKey,
        taken: RestoreSnapshot,
    ) -> Result<RestoreOrder, RestoreError> {
        let RestoreSnapshot { new, _place } = taken;
        let summary = tasks::blocking(move || new.keep()).await?;
        match self.order(by, summary).await {
            Ok(()) => {
                tasks::blocking(move || kept_snapshot::remove_but(Some(summary.hash))).await?;
                Ok(RestoreOrder { machine: self.first.machine(), hash: summary.hash })
            }
            // Whether it is ordered is not known: what is not, is removed by a duty at the next start.
            Err(unknown @ RestoreError::Order(GrantError::Unanswered(_))) => Err(unknown),
            Err(refused) => {
                // An earlier order may stand.
                let ordered = self.ordered_here()?;
                tasks::blocking(move || kept_snapshot::remove_but(ordered)).await?;
                Err(refused)
            }
        }
    }

    async fn order(&self, by: OwnerPubKey, summary: SnapshotSummary) -> Result<(), RestoreError> {
        let own = self.first.machine();
        let look = self.look_at_backends().await?;
        if let Some(backend) = look.backends.members.get(&own).and_then(|member| member.backend) {
            // Each object may differ, and what it was is kept for minutes.
            let free = backend.quota.saturating_sub(backend.in_use);
            if summary.bytes > free {
                return Err(RestoreError::Quota { bytes: summary.bytes, free });
            }
        }
        self.grant(Request::Owner { by, asks: Asks::Restore(own, summary.hash) }).await?;
        tracing::info!(objects = summary.entries, "an owner has Kubernetes' objects restored from a snapshot");
        Ok(())
    }

    /// Stage of a restore that was ordered; none once it is over. Another one may have been ordered in its place.
    ///
    /// # Errors
    /// [`Unread`].
    pub(crate) fn restore_stage(
        &self,
        order: &RestoreOrder,
    ) -> Result<Option<Result<RestoreStage, OtherRestore>>, Unread> {
        self.read(|view, _| {
            let state = view.state();
            let restore = state.restore()?;
            if restore.machine != order.machine || restore.hash != order.hash {
                return Some(Err(OtherRestore));
            }
            if let Some(failure) = self.restores.failure.borrow().as_ref().filter(|it| it.hash == order.hash) {
                return Some(Ok(RestoreStage::Fails(failure.why.clone())));
            }
            let names = restores::waits_by_name(state);
            Some(Ok(if names.is_empty() { RestoreStage::Replaces } else { RestoreStage::Waits(names) }))
        })
    }

    /// Removes the snapshot of an earlier restore; false while one is taken, or is to be restored.
    ///
    /// # Errors
    /// [`RestoreError`].
    pub(crate) async fn drop_snapshot(&self) -> Result<bool, RestoreError> {
        let Ok(_place) = self.restores.place.try_lock() else { return Ok(false) };
        let ordered = self.ordered_here()?;
        tasks::blocking(move || kept_snapshot::remove_but(ordered)).await?;
        Ok(ordered.is_none())
    }

    /// Hash of the snapshot that this machine is to restore, if there is one.
    fn ordered_here(&self) -> Result<Option<[u8; 32]>, Unread> {
        let own = self.first.machine();
        self.read(|view, _| restores::own(view.state(), &own).map(|restore| restore.hash))
    }

    /// Failure of the last step on this machine, for who follows a restore.
    pub(crate) fn step_failure(&self) -> watch::Receiver<Option<StepFailure>> {
        self.restores.failure.subscribe()
    }

    /// Takes a step of the restore of the snapshot with this hash; whether it replaced any object.
    ///
    /// # Errors
    /// [`RestoreError`]: the step is to be taken again, and who follows the restore hears why.
    pub(crate) async fn restore(&self, hash: [u8; 32], step: RestoreStep) -> Result<bool, RestoreError> {
        let taken = match step {
            RestoreStep::Revoke => self.deny_kubernetes().await.map(|()| false),
            RestoreStep::Replace { revision } => self.replace_objects(hash, revision).await,
            RestoreStep::Grant => self.allow_kubernetes().await.map(|()| false),
            RestoreStep::End => Ok(false), // the records decide it
        };
        let why = taken.as_ref().err().map(|error| Chain(error).to_string());
        self.restores.failure.send_replace(why.map(|why| StepFailure { hash, why }));
        taken
    }

    /// Takes from the apiserver's user its role: whatever it asks from then on is denied, on all machines.
    async fn deny_kubernetes(&self) -> Result<(), RestoreError> {
        let (name, role) = (ETCD_KUBERNETES.to_owned(), ETCD_KUBERNETES.to_owned());
        let revoked = in_time(self.link.users().user_revoke_role(AuthUserRevokeRoleRequest { name, role })).await;
        match revoked {
            Err(NoAnswer::Refused(status)) if status.message() == NOT_GRANTED => Ok(()), // before a cut
            revoked => Ok(revoked.map(drop)?),
        }
    }

    /// Gives it back; one that it has already is left to it.
    async fn allow_kubernetes(&self) -> Result<(), RestoreError> {
        let (user, role) = (ETCD_KUBERNETES.to_owned(), ETCD_KUBERNETES.to_owned());
        in_time(self.link.users().user_grant_role(AuthUserGrantRoleRequest { user, role })).await?;
        Ok(())
    }

    /// Makes Kubernetes' objects in etcd those of the snapshot with this hash, as long as the order stands that this revision wrote;
    /// whether any differed. Where it fails, some may be replaced.
    async fn replace_objects(&self, hash: [u8; 32], revision: u64) -> Result<bool, RestoreError> {
        let cluster = self.cluster()?;
        let mut kept = tasks::blocking(move || KeptSnapshot::open(cluster, hash)).await?;
        let (mut reading, mut difference, mut replaced) =
            (RegistryReader::begin_alone(), RegistryDifference::default(), 0_u64);
        loop {
            while let Some(changes) = difference.batch() {
                replaced += changes.len() as u64;
                if !self.link.transact(etcd::replacing(revision, changes)).await?.succeeded {
                    return Err(RestoreError::OtherOrder);
                }
            }
            match difference.wants() {
                ObjectSide::Snapshot => {
                    let (next, entries) = tasks::blocking(move || kept.next()).await?;
                    kept = next;
                    if entries.is_empty() {
                        difference.snapshot_ends();
                    }
                    difference.snapshot(entries);
                }
                ObjectSide::Etcd => {
                    let page = self.link.range(reading.page()).await?;
                    let (entries, progress) = reading.take(page).map_err(NoAnswer::from)?;
                    if progress == Progress::Done {
                        difference.etcd_ends();
                    }
                    difference.etcd(entries);
                }
                ObjectSide::Nothing => break,
            }
        }
        tracing::info!(replaced, "Kubernetes' objects in etcd are those of the snapshot");
        Ok(replaced > 0)
    }

    pub(super) fn cluster(&self) -> Result<ClusterId, Unread> {
        self.read(|view, _| view.state().cluster().map(|cluster| cluster.id))?.ok_or(Unread)
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::time::Duration;

    use cluster::View;
    use cluster::key::Key;
    use cluster::record::{RestoreRecord, Standing};
    use cluster::state::KeyValue;
    use tokio::time::timeout;

    use super::*;
    use crate::records::Seen;
    use crate::records::fixture::{facts, machine, put, put_cluster, records};

    const ORDERED: [u8; 32] = [7; 32];

    /// A coordinator that has seen the order to restore a snapshot itself, over an etcd that nobody runs.
    fn ordered() -> (Records, RestoreOrder) {
        let own = machine(9, Standing::Member);
        let records = records(&facts(), std::slice::from_ref(&own), None);
        let order = RestoreRecord { machine: own.id(), hash: ORDERED, stopped: [].into() };
        let order = KeyValue { key: Key::Restore.bytes(), value: order.encode(), mod_revision: 2 };
        let view = View::read([put_cluster(1), put(&own, 1), order], 2).expect("our own");
        records.seen.send_replace(Seen { view: Some(view), ..Seen::default() });
        (records, RestoreOrder { machine: own.id(), hash: ORDERED })
    }

    /// Proves: Q4
    #[tokio::test(start_paused = true)]
    async fn a_snapshot_is_taken_once_the_one_before_is_removed() {
        let (records, _) = ordered();
        let removal = records.restores.place.try_lock().expect("nobody has it");
        let mut begins = pin!(records.begin_restore());
        assert!(timeout(Duration::from_secs(60), &mut begins).await.is_err(), "one is being removed");
        drop(removal);
        assert!(records.restores.place.try_lock().is_err(), "it is next");
    }

    /// Proves: Q4 Q6
    #[tokio::test]
    async fn why_a_step_fails_is_told_to_who_follows_it() {
        let (records, order) = ordered();
        let stage = |order: &RestoreOrder| records.restore_stage(order).expect("read").expect("it is ordered").ok();
        let mut failure = records.step_failure();
        assert_eq!(stage(&order), Some(RestoreStage::Replaces));
        let refused = records.restore(ORDERED, RestoreStep::Revoke).await.expect_err("etcd does not answer");
        assert!(failure.has_changed().expect("the records stay"), "who follows is woken");
        failure.mark_unchanged();
        assert_eq!(stage(&order), Some(RestoreStage::Fails(Chain(&refused).to_string())));
        records.restore([8; 32], RestoreStep::Revoke).await.expect_err("of another order");
        assert_eq!(stage(&order), Some(RestoreStage::Replaces), "another order's failure is none of this one");
        records.restore(ORDERED, RestoreStep::Revoke).await.expect_err("as before");
        assert!(!records.restore(ORDERED, RestoreStep::End).await.expect("the records decide it"));
        assert_eq!(stage(&order), Some(RestoreStage::Replaces), "a step was taken");
        assert!(records.restore_stage(&RestoreOrder { hash: [8; 32], ..order }).expect("read").expect("one").is_err());
    }
}
