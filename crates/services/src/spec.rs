//! Spec that all units begin with.

use std::time::Duration;

use supervise::{Backoff, Fingerprint, Need, Readiness, Restart, Spec};

/// Under emulation on a busy host the apiserver needed 295 s; twice that is broken, not slow. A deadline that is too
/// short is worse than one that is too long: it throws away what the slow start has done.
const START: Duration = Duration::from_secs(600);
/// etcd and the apiserver finish what they began.
const STOP: Duration = Duration::from_secs(15);
/// A service that fails is tried again soon, and never more often than twice a minute for long.
pub(crate) const BACKOFF: Backoff =
    Backoff { first: Duration::from_millis(500), cap: Duration::from_secs(30), stable: Duration::from_secs(60) };

/// Spec of a unit that is to run for good, and is ready as soon as it runs.
pub(crate) fn lasting(name: &str, needs: Vec<Need>) -> Spec {
    Spec {
        name: name.into(),
        content: Fingerprint::TASK,
        needs,
        group: None,
        start_deadline: START,
        stop_deadline: STOP,
        restart: Restart::Always(BACKOFF),
        ready: Readiness::OnStart,
        critical: None,
    }
}
