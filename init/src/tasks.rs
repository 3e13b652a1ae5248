//! The one place where a task is made. Whoever starts one holds its handle: dropping it ends the task.

use std::future::Future;
use std::io;

use tokio::runtime::{Builder, Runtime};
use tokio::task::{JoinError, JoinHandle};

/// What runs them: one thread and one heap. PID 1 waits much more than it works, and one thread is one stack and no locks
/// contended. What blocks (disk, TPM, key derivation) goes to tokio's blocking pool, which ends its threads when idle.
///
/// # Errors
/// When the kernel gives no event queue.
pub(crate) fn runtime() -> io::Result<Runtime> {
    sys::memory::one_heap();
    Builder::new_current_thread().enable_all().max_blocking_threads(4).build()
}

/// A running task; aborted when dropped.
#[derive(Debug)]
pub(crate) struct Task<T>(JoinHandle<T>);

/// Runs `future` beside the others on this thread.
#[expect(clippy::disallowed_methods, reason = "the one place that spawns; the handle is what ties it to the tree")]
pub(crate) fn spawn<T: Send + 'static>(future: impl Future<Output = T> + Send + 'static) -> Task<T> {
    Task(tokio::spawn(future))
}

/// Runs `work`, which blocks, on a thread of its own; a panic there is a panic here.
pub(crate) async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match tokio::task::spawn_blocking(work).await {
        Ok(value) => value,
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    }
}

impl<T> Task<T> {
    /// Waits for its end.
    ///
    /// # Errors
    /// When it panicked or was aborted.
    pub(crate) async fn join(&mut self) -> Result<T, JoinError> {
        (&mut self.0).await
    }
}

impl<T> Drop for Task<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}
