//! What the machine says of its services: conditions, milestones of the boot, and what it waits for.

use std::collections::HashSet;

use api::{MilestoneKind, Truth};
use supervise::State;

use crate::runtime::services::{Services, Snapshot};
use crate::shown::board::Board;

/// Keeps the board in step with the services, as long as there are any.
pub(crate) async fn report(board: Board, services: Services) {
    let mut changes = services.watch();
    let mut seen = HashSet::new();
    loop {
        let snapshots = changes.borrow_and_update().clone();
        let mut waits = Vec::new();
        for Snapshot { status, condition, .. } in snapshots {
            let ready = matches!(status.state, State::Ready | State::Finished);
            if ready && seen.insert(status.name) {
                board.reached(status.name, MilestoneKind::Service);
            }
            if let Some(condition) = condition {
                let (truth, reason) = if ready { (Truth::True, "") } else { (Truth::False, word(&status.state)) };
                board.condition(condition, truth, reason);
            }
            if !ready && status.is_crash_looping() {
                waits.push(format!("{} (failed {} times)", status.name, status.failures));
            }
        }
        board.waits_for(waits);
        if changes.changed().await.is_err() {
            return; // the services have ended
        }
    }
}

const fn word(state: &State) -> &'static str {
    match state {
        State::Waiting(_) => "waits for another service",
        State::Starting => "is starting",
        State::Ready | State::Finished => "",
        State::BackingOff { .. } => "failed, is tried again",
        State::Stopping => "is stopping",
        State::Stopped => "is stopped",
        State::Failed => "failed",
    }
}
