//! The one place where a task is made. Whoever starts one holds its handle: dropping it ends the task.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::pin::Pin;

use sys::scheduler::{self, ThreadPolicy};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot;
use tokio::task::{JoinError, JoinHandle};

/// The runtime of PID 1's tasks: one thread and one heap. PID 1 waits much more than it works; one thread needs one stack,
/// and nobody waits for its locks. The public API has a thread of its own, made by [`apart`]. What blocks (disk, TPM, key
/// derivation) goes to tokio's blocking pool, which ends its threads when they are idle.
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
    // In a box tokio's part of a task is compiled once for each kind of value, not once for each future.
    let future: Pin<Box<dyn Future<Output = T> + Send>> = Box::pin(future);
    Task(tokio::spawn(future))
}

/// Runs `work`, which blocks, on a thread of its own; a panic there is a panic here.
pub(crate) async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match tokio::task::spawn_blocking(work).await {
        Ok(value) => value,
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    }
}

/// Runs `work`, for which nobody waits, on a thread of its own that gets only what no other thread wants.
///
/// # Errors
/// When there is no such thread.
pub(crate) fn idle(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let work = || {
        // A thread may always step back; where it could not, it would only be too quick.
        let _stays_as_it_is = scheduler::set_policy(rustix::thread::gettid(), ThreadPolicy::Idle);
        work();
    };
    std::thread::Builder::new().name(name.to_owned()).spawn(work).map(drop)
}

/// Waits for `future` on a thread that may block: inside of [`blocking`].
pub(crate) fn wait_for<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Handle::current().block_on(future)
}

/// Runs what `make` makes on a thread of its own, with all that it spawns, so that it cannot keep this one busy. Dropping
/// it ends it.
///
/// # Errors
/// When there is no such thread, or it panicked.
pub(crate) async fn apart<T, F>(name: &str, make: impl FnOnce() -> F + Send + 'static) -> io::Result<T>
where
    T: Send + 'static,
    F: Future<Output = T>,
{
    let runtime = Builder::new_current_thread().enable_all().max_blocking_threads(2).build()?;
    let (told, ended) = oneshot::channel();
    let (_ends_with_this, mut end) = oneshot::channel::<Infallible>();
    let work = move || {
        let value = runtime.block_on(async {
            tokio::select! {
                value = make() => Some(value),
                _dropped = &mut end => None,
            }
        });
        // What blocks there has nobody to tell any more.
        runtime.shutdown_background();
        if let Some(value) = value {
            let _nobody_waits = told.send(value);
        }
    };
    std::thread::Builder::new().name(name.to_owned()).spawn(work)?;
    ended.await.map_err(|_| io::Error::other("its thread panicked"))
}

impl<T> Task<T> {
    /// Whether it has not ended yet.
    pub(crate) fn runs(&self) -> bool {
        !self.0.is_finished()
    }

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_work_makes_way_and_nobody_else_does_with_it() {
        let policy = || scheduler::policy(rustix::thread::gettid()).expect("a thread has one");
        let (told, heard) = std::sync::mpsc::channel();
        idle("test", move || told.send(policy()).expect("it is awaited")).expect("a thread");
        assert_eq!(
            (heard.recv().expect("it is told"), policy()),
            (Some(ThreadPolicy::Idle), Some(ThreadPolicy::Share))
        );
    }

    #[tokio::test]
    async fn work_apart_ends_with_its_waiter_and_a_panic_is_an_error() {
        let here = std::thread::current().id();
        let there = apart("test", move || async move { std::thread::current().id() }).await.expect("a thread");
        assert_ne!(there, here);
        let panicked = apart("test", || async { panic!("a test wants to see it") }).await;
        assert!(panicked.is_err_and(|error| error.to_string() == "its thread panicked"));
        let ((held, dropped), (begins, began)) = (oneshot::channel::<Infallible>(), oneshot::channel());
        let waiting = spawn(apart("test", move || async move {
            let _held = held;
            let _told = begins.send(());
            std::future::pending::<()>().await;
        }));
        began.await.expect("it has begun");
        drop(waiting);
        let ended = tokio::time::timeout(std::time::Duration::from_secs(60), dropped).await;
        assert!(ended.is_ok_and(|ended| ended.is_err()), "it was ended");
    }
}
