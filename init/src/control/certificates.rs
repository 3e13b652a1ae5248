//! How long the certificates of this start's services last: they are made when a coordinator starts, and renewed by a start only.

use std::time::Duration;

use api::{ConditionName, Truth};

use crate::runtime::clock;
use crate::runtime::services::until;
use crate::shown::board::Board;

/// Time to restart a cluster's coordinators one after the other.
const BEFORE: Duration = Duration::from_secs(30 * 24 * 3600);
/// Between two looks at the board's clock, which may jump: a machine that lay saved comes back years later.
const LOOK: Duration = Duration::from_secs(3600);
/// Reason of the condition once certificates end soon, with the remedy.
const ENDING: &str =
    "certificates of its services end within 30 days: restart the machine with `cairnctl machine reboot`";

/// Keeps the condition what it is, for certificates that were made at `made` since 1970; a task for good.
pub(crate) async fn watch(board: Board, made: Duration) {
    loop {
        let (truth, reason) = if is_fresh(made, clock::unix()) { (Truth::True, "") } else { (Truth::False, ENDING) };
        board.condition(ConditionName::CertificatesFresh, truth, reason);
        until(Some(clock::now() + LOOK)).await;
    }
}

fn is_fresh(made: Duration, now: Duration) -> bool {
    now.saturating_sub(made) + BEFORE < pki::SERVICE_LASTS
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Proves: S7
    #[test]
    fn thirty_days_before_the_end_they_are_not_fresh() {
        const DAY: Duration = Duration::from_secs(24 * 3600);
        let made = Duration::from_secs(1_800_000_000);
        assert!(is_fresh(made, made) && is_fresh(made, made + 334 * DAY));
        assert!(!is_fresh(made, made + 335 * DAY) && !is_fresh(made, made + 400 * DAY));
        assert!(is_fresh(made, made - DAY), "a clock that was put back says nothing of them");
    }
}
