//! Parts of PID 1 that fault injection makes panic: by the work that runs beside a wait for the order to. Compiled with the
//! feature `faults` alone.

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

/// The order to panic; whoever holds it hears of it.
#[derive(Debug, Default)]
pub(crate) struct Faults(watch::Sender<Option<Broken>>);

impl Faults {
    /// Has a part of PID 1 panic.
    pub(super) fn break_down(&self, part: Broken) {
        self.0.send_replace(Some(part));
    }

    /// Does `work` and panics in its place once `part` is to. A member's life hears of it once: the next one goes on.
    pub(crate) async fn beside<T>(&self, part: Broken, work: impl Future<Output = T>) -> T {
        let mut told = self.0.subscribe();
        tokio::select! {
            biased;
            Ok(_told) = told.wait_for(|told| *told == Some(part)) => {}
            done = work => return done,
        }
        if part == Broken::Member {
            self.0.send_replace(None);
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
