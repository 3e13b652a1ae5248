//! How often the machine has stood still in this boot: saved to a file, or with a host that was suspended. What began before such
//! a time may go on in a copy of the machine, too, with the same keys; whoever holds such a thing waits here, and ends it.
//!
//! ```text
//!   session begins ─ asks ─► Looker: one look for all who asked ─ gain? ─► count, which ends older sessions ─ looked ─► goes on
//! ```
//! It must never find out by itself: `machine::board_clock` does.

use tokio::sync::watch;

/// The count; clones share it. One that nobody counts up stays at none for ever.
#[derive(Debug, Clone, Default)]
pub(crate) struct Standstills {
    count: watch::Sender<u32>,
    /// How often somebody asked for a look.
    asked: watch::Sender<u64>,
    /// How many of these were looked for; absent while nobody looks.
    looked: watch::Sender<Option<u64>>,
}

/// Waits for standstills after it was made.
#[derive(Debug)]
pub(crate) struct NextStandstill(watch::Receiver<u32>);

/// The one that looks. Those who asked are answered when it is gone.
#[derive(Debug)]
pub(crate) struct Looker {
    asked: watch::Receiver<u64>,
    /// How many had asked when the look began that is under way.
    began: u64,
    looked: watch::Sender<Option<u64>>,
}

impl Standstills {
    /// The machine has stood still once more.
    pub(crate) fn count(&self) {
        self.count.send_modify(|count| *count = count.wrapping_add(1));
    }

    /// Waits for those from now on.
    pub(crate) fn watch(&self) -> NextStandstill {
        NextStandstill(self.count.subscribe())
    }

    /// The same for a session that begins, once it is known whether the machine stood still before: it is ended by none of these.
    pub(crate) async fn watch_after_a_look(&self) -> NextStandstill {
        let mut number = 0;
        self.asked.send_modify(|asked| {
            *asked = asked.wrapping_add(1);
            number = *asked;
        });
        let mut looked = self.looked.subscribe();
        // `self` has the sender.
        let _is_there = looked.wait_for(|looked| looked.is_none_or(|looked| looked >= number)).await.is_ok();
        self.watch()
    }

    /// Looks from now on.
    pub(crate) fn looker(&self) -> Looker {
        let asked = self.asked.subscribe();
        let began = *asked.borrow();
        self.looked.send_replace(Some(began));
        Looker { asked, began, looked: self.looked.clone() }
    }
}

impl Looker {
    /// Waits until somebody asks who was not asking at the last look.
    pub(crate) async fn is_asked(&mut self) {
        if self.asked.changed().await.is_err() {
            // Nobody is left who could ask.
            std::future::pending().await
        }
    }

    /// Begins a look, for all who have asked so far.
    pub(crate) fn begins(&mut self) {
        self.began = *self.asked.borrow_and_update();
    }

    /// Answers those for whom the look was begun, now that all is done that came of it.
    pub(crate) fn has_looked(&self) {
        self.looked.send_replace(Some(self.began));
    }
}

impl Drop for Looker {
    fn drop(&mut self) {
        self.looked.send_replace(None);
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
    use std::pin::{Pin, pin};
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

    /// Whether it begins at once.
    async fn begins<T>(session: Pin<&mut impl Future<Output = T>>) -> Option<T> {
        timeout(Duration::ZERO, session).await.ok()
    }

    /// Proves: S13
    #[tokio::test(start_paused = true)]
    async fn a_session_begins_behind_a_look_that_began_after_it_asked() {
        let standstills = Standstills::default();
        let mut nobody_looks = pin!(standstills.watch_after_a_look());
        assert!(begins(nobody_looks.as_mut()).await.is_some());
        let mut looker = standstills.looker();
        let mut early = pin!(standstills.watch_after_a_look());
        assert!(begins(early.as_mut()).await.is_none());
        looker.is_asked().await;
        looker.begins();
        let mut late = pin!(standstills.watch_after_a_look());
        assert!(begins(late.as_mut()).await.is_none());
        // What that look finds ends what was before it, and not who waits for it.
        standstills.count();
        looker.has_looked();
        assert!(!heard(&mut early.await).await);
        assert!(begins(late.as_mut()).await.is_none(), "it asked after the look had begun");
        looker.is_asked().await;
        drop(looker);
        assert!(begins(late.as_mut()).await.is_some(), "nobody looks any more");
    }
}
