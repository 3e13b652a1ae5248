//! Somebody who changes something of a cluster without end, and knows what has to be there afterwards. What is changed is a
//! [`Ledger`]'s: the cluster's own records ([`Tickets`]), or objects of Kubernetes. It must never take an answer for granted.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::Context as _;
use qemu::Deadline;

mod objects;
mod tickets;

pub(crate) use objects::Objects;
pub(crate) use tickets::drawn;
pub use tickets::{Places, Tickets};

/// Between two changes: machines have other work, too, and keep every ticket that ever was.
const PAUSE: Duration = Duration::from_millis(400);

/// Something that is changed, and remembers what was acknowledged.
pub trait Ledger: Send + 'static {
    /// Makes one change.
    ///
    /// # Errors
    /// When nobody acknowledged it. Then it may be made or not.
    fn change(&mut self) -> anyhow::Result<()>;
}

/// The writer of a ledger; it ends when dropped.
#[derive(Debug)]
pub struct Writer<L> {
    shared: Arc<Shared<L>>,
    end: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared<L> {
    /// Held while a change is under way: who holds it sees none that is.
    written: Mutex<Written<L>>,
    acknowledged: Condvar,
}

#[derive(Debug)]
struct Written<L> {
    ledger: L,
    acknowledged: usize,
}

impl<L: Ledger> Writer<L> {
    /// Begins to write.
    ///
    /// # Errors
    /// When the host has no thread for it.
    pub fn start(ledger: L) -> anyhow::Result<Self> {
        let written = Mutex::new(Written { ledger, acknowledged: 0 });
        let shared = Arc::new(Shared { written, acknowledged: Condvar::new() });
        let (end, ended) = channel();
        let its_own = Arc::clone(&shared);
        let work = move || its_own.write_on(&ended);
        let thread = std::thread::Builder::new().name("writer".into()).spawn(work).context("start a writer")?;
        Ok(Self { shared, end: Some(end), thread: Some(thread) })
    }
}

impl<L> Writer<L> {
    /// Waits until so many more changes are acknowledged.
    ///
    /// # Errors
    /// When they are not in time.
    pub fn goes_on(&self, changes: usize, deadline: Deadline) -> anyhow::Result<()> {
        let mut written = self.shared.written();
        let wanted = written.acknowledged + changes;
        while written.acknowledged < wanted {
            let left = deadline.left().with_context(|| {
                let lacking = wanted - written.acknowledged;
                format!("{lacking} of {changes} changes were not acknowledged within {} s", deadline.length().as_secs())
            })?;
            let waited = self.shared.acknowledged.wait_timeout(written, left);
            written = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        Ok(())
    }

    /// How many changes were acknowledged so far.
    #[must_use]
    pub fn acknowledged(&self) -> usize {
        self.shared.written().acknowledged
    }

    /// Works with the ledger between two changes.
    fn between<T>(&self, work: impl FnOnce(&mut L) -> T) -> T {
        work(&mut self.shared.written().ledger)
    }
}

impl<L> Drop for Writer<L> {
    fn drop(&mut self) {
        self.end = None;
        if let Some(thread) = self.thread.take() {
            // Its panic has been reported by the thread itself.
            let _ended = thread.join();
        }
    }
}

impl<L> Shared<L> {
    fn written(&self) -> MutexGuard<'_, Written<L>> {
        self.written.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<L: Ledger> Shared<L> {
    fn write_on(&self, ended: &Receiver<()>) {
        while ended.recv_timeout(PAUSE) == Err(RecvTimeoutError::Timeout) {
            let mut written = self.written();
            // Who did not answer may do so at the next attempt.
            if written.ledger.change().is_ok() {
                written.acknowledged += 1;
                self.acknowledged.notify_all();
            }
        }
    }
}
