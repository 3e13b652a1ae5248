//! Age of the certificates of services: when they are to be renewed, and whether that is done in time.

use std::time::Duration;

use api::{ConditionName, Truth};
use pki::service_life;
use tokio::sync::watch;

use crate::runtime::clock;
use crate::runtime::services::until;
use crate::shown::board::Board;

/// Between two looks at the clock, which may jump: a machine that lay saved comes back days later.
pub(crate) const LOOK: Duration = Duration::from_secs(5);
/// Reason of the condition once it is late, with what to look at.
const LATE: &str = "certificates of its services should be renewed by now: a worker needs a coordinator for that; `cairnctl machine logs` says what fails";

/// Keeps the condition what it is, for certificates of which the oldest was made at `made` since 1970; a task for good.
pub(crate) async fn watch(board: Board, made: watch::Receiver<Option<Duration>>) {
    loop {
        let is_late = made.borrow().is_some_and(|made| is_late(made, clock::unix()));
        let (truth, reason) = if is_late { (Truth::False, LATE) } else { (Truth::True, "") };
        board.condition(ConditionName::CertificatesFresh, truth, reason);
        until(Some(clock::now() + LOOK)).await;
    }
}

/// Whether certificates that were made then are to be renewed: at half of their time.
pub(super) fn are_due(made: Duration, now: Duration) -> bool {
    now.saturating_sub(made) >= service_life() / 2
}

fn is_late(made: Duration, now: Duration) -> bool {
    now.saturating_sub(made) >= service_life() * 3 / 4
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Proves: Q9
    #[test]
    fn certificates_are_due_at_half_and_late_at_three_quarters() {
        const HOUR: Duration = Duration::from_secs(3600);
        let made = Duration::from_secs(1_800_000_000);
        let at = |hours: u32| (are_due(made, made + HOUR * hours), is_late(made, made + HOUR * hours));
        assert_eq!([0, 11, 12, 17, 18, 48].map(at), {
            let (fresh, due, late) = ((false, false), (true, false), (true, true));
            [fresh, fresh, due, due, late, late]
        });
        assert!(!are_due(made, made - HOUR), "a clock that was put back says nothing of them");
    }
}
