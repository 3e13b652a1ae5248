//! The roll call: whoever wants to know which of the other machines are there calls, and the mesh answers within a second or so.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use api::UnixMillis;
use model::MachineId;
use tokio::sync::{Notify, oneshot};
use tokio::time::timeout;

use crate::runtime::{clock, lock};

/// When each machine said something last in this boot.
pub(crate) type Seen = BTreeMap<MachineId, UnixMillis>;

/// Without a mesh nobody answers: what is asked is answered without it then.
const PATIENCE: Duration = Duration::from_secs(3);

/// Callers that wait for the mesh's answer; clones share it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Roll(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    callers: Mutex<Vec<oneshot::Sender<Seen>>>,
    called: Notify,
}

impl Roll {
    /// Has all machines asked, and says when each was seen last; nobody where there is no mesh.
    pub(crate) async fn call(&self) -> Seen {
        let (caller, answer) = oneshot::channel();
        self.takes(caller);
        self.0.called.notify_one();
        timeout(PATIENCE, answer).await.ok().and_then(Result::ok).unwrap_or_default()
    }

    /// Adds a caller; callers that have left are forgotten.
    fn takes(&self, caller: oneshot::Sender<Seen>) {
        let mut callers = lock::even_if_poisoned(&self.0.callers);
        callers.retain(|caller| !caller.is_closed());
        callers.push(caller);
    }

    /// Waits until somebody has called.
    pub(super) async fn called(&self) {
        self.0.called.notified().await;
    }

    /// Tells all that have called.
    pub(super) fn answer(&self, seen: BTreeMap<MachineId, Instant>) {
        let (now, unix) = (clock::now(), clock::unix_millis());
        let at = |instant: Instant| {
            let ago = u64::try_from(now.saturating_duration_since(instant).as_millis()).unwrap_or(u64::MAX);
            UnixMillis(unix.0.saturating_sub(ago))
        };
        let seen: Seen = seen.into_iter().map(|(machine, instant)| (machine, at(instant))).collect();
        for caller in std::mem::take(&mut *lock::even_if_poisoned(&self.0.callers)) {
            // Who went away does not want to know any more.
            let _gone = caller.send(seen.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn all_callers_are_told_and_none_waits_for_an_absent_mesh() {
        let roll = Roll::default();
        let (one, two, ()) = tokio::join!(roll.call(), roll.call(), async {
            roll.called().await;
            roll.answer(BTreeMap::from([(MachineId([1; 16]), clock::now())]));
        });
        assert_eq!(one, two);
        assert_eq!(one.keys().collect::<Vec<_>>(), [&MachineId([1; 16])]);
        assert!(one.values().all(|at| clock::unix_millis().since(*at) < 60_000), "it is of now");
        assert!(roll.call().await.is_empty());
    }
}
