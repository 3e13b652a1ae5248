//! Parts of PID 1 that fault injection makes panic or stand still: by the work that runs beside a wait for the order to, and before an
//! effect. Compiled with the feature `faults` alone.

use std::fmt::Debug;
use std::future::pending;

use tokio::sync::watch;

/// A part of PID 1 that can be told to panic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Broken {
    /// The task that serves the public API, and each that takes its place.
    Api,
    /// The thread that waits for the end of the boot, outside every task.
    Main,
    /// The loop of a member's life, once.
    Member,
}

/// The orders to panic and to stand still; whoever holds them hears of them.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    broken: watch::Sender<Option<Broken>>,
    still: watch::Sender<Option<String>>,
}

impl Faults {
    /// Has a part of PID 1 panic.
    pub(super) fn break_down(&self, part: Broken) {
        self.broken.send_replace(Some(part));
    }

    /// Has a member's life stand still before the first effect with these words in its name.
    pub(super) fn stand_still(&self, words: &str) {
        self.still.send_replace(Some(words.to_owned()));
    }

    /// Waits for ever if the life is to stand still before this effect.
    pub(crate) async fn before(&self, effect: &impl Debug) {
        let words = self.still.borrow().clone();
        if let Some(words) = words.filter(|words| format!("{effect:?}").contains(words)) {
            tracing::warn!(words, "a member's life stands still");
            pending().await
        }
    }

    /// Does `work` and panics in its place once `part` is to. A member's life hears of it once: the next one goes on.
    pub(crate) async fn beside<T>(&self, part: Broken, work: impl Future<Output = T>) -> T {
        let mut told = self.broken.subscribe();
        tokio::select! {
            biased;
            Ok(_told) = told.wait_for(|told| *told == Some(part)) => {}
            done = work => return done,
        }
        if part == Broken::Member {
            self.broken.send_replace(None);
        }
        panic!("a test wants to see it");
    }
}

#[cfg(test)]
mod tests {
    use std::future::ready;
    use std::sync::Arc;

    use tokio::task::JoinSet;

    use super::*;

    #[tokio::test]
    async fn a_life_stands_still_before_the_effect_that_was_named() {
        let faults = Faults::default();
        faults.before(&"Keep").await;
        faults.stand_still("Drop");
        faults.before(&"Keep").await;
        tokio::select! {
            biased;
            () = faults.before(&"DropSnapshot") => panic!("it goes on"),
            () = ready(()) => {}
        }
    }

    #[tokio::test]
    async fn each_work_of_a_broken_part_panics_and_a_life_once() {
        let faults = Arc::new(Faults::default());
        let panics = async |part| {
            let (mut tasks, faults) = (JoinSet::new(), faults.clone());
            tasks.spawn(async move { faults.beside(part, ready(())).await });
            tasks.join_next().await.expect("a task was spawned").is_err()
        };
        assert!(!panics(Broken::Api).await);
        faults.break_down(Broken::Api);
        assert_eq!(
            [panics(Broken::Api).await, panics(Broken::Api).await, panics(Broken::Main).await],
            [true, true, false]
        );
        faults.break_down(Broken::Member);
        assert_eq!([panics(Broken::Member).await, panics(Broken::Member).await], [true, false]);
    }
}
