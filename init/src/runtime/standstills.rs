//! How often the machine has stood still in this boot: saved to a file, or with a host that was suspended. What began before such
//! a time may go on in a copy of the machine, too, with the same keys; whoever holds such a thing waits here, and ends it.
//!
//! It must never find out by itself: `machine::board_clock` does.

use tokio::sync::watch;

/// The count; clones share it. One that nobody counts up stays at none for ever.
#[derive(Debug, Clone, Default)]
pub(crate) struct Standstills(watch::Sender<u32>);

/// Waits for standstills after it was made.
#[derive(Debug)]
pub(crate) struct NextStandstill(watch::Receiver<u32>);

impl Standstills {
    /// The machine has stood still once more.
    pub(crate) fn count(&self) {
        self.0.send_modify(|count| *count = count.wrapping_add(1));
    }

    /// Waits for those from now on.
    pub(crate) fn watch(&self) -> NextStandstill {
        NextStandstill(self.0.subscribe())
    }
}

impl NextStandstill {
    /// Resolves once for all standstills since the last call.
    pub(crate) async fn wait(&mut self) {
        if self.0.changed().await.is_err() {
            // Nobody counts any more.
            std::future::pending().await
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    async fn heard(next: &mut NextStandstill) -> bool {
        timeout(Duration::from_secs(3600), next.wait()).await.is_ok()
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_began_before_a_standstill_hears_of_it_once() {
        let standstills = Standstills::default();
        let mut before = standstills.watch();
        assert!(!heard(&mut before).await);
        standstills.clone().count();
        let mut after = standstills.watch();
        assert!(heard(&mut before).await && !heard(&mut before).await);
        assert!(!heard(&mut after).await);
        drop(standstills);
        assert!(!heard(&mut before).await, "nobody counts any more");
    }
}
