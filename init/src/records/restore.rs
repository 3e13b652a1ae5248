//! A restore of Kubernetes' objects on this machine: takes the snapshot, has the records order it, and performs each step in etcd. Which
//! step is due says the crate `member`.

use std::sync::Arc;

use ::snapshot::{ObjectSide, RegistryDifference, SnapshotHead, SnapshotSummary};
use api::RestoreStage;
use cluster::request::{Asks, Request};
use cluster::restores;
use etcd::wire::etcdserverpb::{AuthUserGrantRoleRequest, AuthUserRevokeRoleRequest};
use etcd::{Progress, RegistryReader};
use model::{ClusterId, MachineId, OwnerPubKey};
use pki::ETCD_KUBERNETES;
use tokio::sync::OwnedMutexGuard;

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
    /// Another snapshot is being taken, or removed.
    #[error("this coordinator takes another snapshot")]
    Busy,
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
    /// Begins to take a snapshot that is to be restored.
    ///
    /// # Errors
    /// [`RestoreError`].
    pub(crate) async fn begin_restore(&self) -> Result<RestoreSnapshot, RestoreError> {
        let cluster = self.cluster()?;
        let place = Arc::clone(&self.restores).try_lock_owned().map_err(|_taken| RestoreError::Busy)?;
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
            // Each object may differ, and what it was is kept for five minutes.
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
            let waits = restores::waits_for(state);
            let names = waits.iter().filter_map(|id| state.machine(id).map(|machine| machine.name.clone()));
            let names: Vec<_> = names.collect();
            Some(Ok(if names.is_empty() { RestoreStage::Replaces } else { RestoreStage::Waits(names) }))
        })
    }

    /// Removes the snapshot of an earlier restore; false while one is taken, or is to be restored.
    ///
    /// # Errors
    /// [`RestoreError`].
    pub(crate) async fn drop_snapshot(&self) -> Result<bool, RestoreError> {
        let Ok(_place) = self.restores.try_lock() else { return Ok(false) };
        let ordered = self.ordered_here()?;
        tasks::blocking(move || kept_snapshot::remove_but(ordered)).await?;
        Ok(ordered.is_none())
    }

    /// Hash of the snapshot that this machine is to restore, if there is one.
    fn ordered_here(&self) -> Result<Option<[u8; 32]>, Unread> {
        let own = self.first.machine();
        self.read(|view, _| restores::own(view.state(), &own).map(|restore| restore.hash))
    }

    /// Takes from the apiserver's user its role: whatever it asks from then on is denied, on all machines.
    ///
    /// # Errors
    /// [`RestoreError::Etcd`].
    pub(crate) async fn deny_kubernetes(&self) -> Result<(), RestoreError> {
        let (name, role) = (ETCD_KUBERNETES.to_owned(), ETCD_KUBERNETES.to_owned());
        let revoked = in_time(self.link.users().user_revoke_role(AuthUserRevokeRoleRequest { name, role })).await;
        match revoked {
            Err(NoAnswer::Refused(status)) if status.message() == NOT_GRANTED => Ok(()), // before a cut
            revoked => Ok(revoked.map(drop)?),
        }
    }

    /// Gives it back; one that it has already is left to it.
    ///
    /// # Errors
    /// [`RestoreError::Etcd`].
    pub(crate) async fn allow_kubernetes(&self) -> Result<(), RestoreError> {
        let (user, role) = (ETCD_KUBERNETES.to_owned(), ETCD_KUBERNETES.to_owned());
        in_time(self.link.users().user_grant_role(AuthUserGrantRoleRequest { user, role })).await?;
        Ok(())
    }

    /// Makes Kubernetes' objects in etcd those of the snapshot with this hash, as long as the order stands that this revision wrote;
    /// whether any differed.
    ///
    /// # Errors
    /// [`RestoreError`]: some may be replaced.
    pub(crate) async fn replace_objects(&self, hash: [u8; 32], revision: u64) -> Result<bool, RestoreError> {
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
