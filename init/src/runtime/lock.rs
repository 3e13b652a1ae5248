//! Locks that outlive a panic. A task's panic ends that task only (the tree starts it again), so what it held is taken
//! over as it is: whoever keeps state behind a lock leaves it whole after every statement.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks `mutex`, also when a task panicked while it held it. Held for a few statements, never across an `await`.
pub(crate) fn even_if_poisoned<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Proves: O1
    #[test]
    fn a_panic_under_the_lock_does_not_take_it_away_from_the_others() {
        let counted = Mutex::new(1);
        let panicked = std::panic::catch_unwind(|| {
            *even_if_poisoned(&counted) += 1;
            let _held = counted.lock();
            panic!("with the lock in hand");
        });
        assert!(panicked.is_err() && counted.is_poisoned());
        assert_eq!(*even_if_poisoned(&counted), 2);
    }
}
