//! The one place of this program that asks the clock. Everything else takes the time or a deadline as an argument.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use pki::UnixTime;
use tokio::time::sleep;

/// Pause between two looks at what is waited for: often enough for a person, too seldom to cost anything.
pub(crate) const ASK_AGAIN: Duration = Duration::from_millis(500);

/// The host's wall clock.
#[expect(clippy::disallowed_methods, reason = "the shell's one place that asks the clock")]
pub(crate) fn now() -> UnixTime {
    // A clock before 1970 makes every certificate invalid, which is the error that is shown then.
    UnixTime::since_unix_epoch(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default())
}

/// A stretch of time that began when it was made.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Deadline {
    begun: Instant,
    length: Duration,
}

impl Deadline {
    /// Ends `length` from now.
    #[expect(clippy::disallowed_methods, reason = "the shell's one place that asks the clock")]
    pub(crate) fn after(length: Duration) -> Self {
        Self { begun: Instant::now(), length }
    }

    /// Time that is left; none when it has passed.
    pub(crate) fn left(&self) -> Option<Duration> {
        self.length.checked_sub(self.begun.elapsed()).filter(|left| !left.is_zero())
    }

    /// Looks again and again until there is something to see. None: it has passed before.
    ///
    /// # Errors
    /// What `look` fails with.
    pub(crate) async fn until<T, E>(
        &self,
        mut look: impl AsyncFnMut() -> Result<Option<T>, E>,
    ) -> Result<Option<T>, E> {
        loop {
            if let Some(seen) = look().await? {
                return Ok(Some(seen));
            }
            if self.left().is_none() {
                return Ok(None);
            }
            sleep(ASK_AGAIN).await;
        }
    }

    /// How long it was from the start, for messages.
    pub(crate) const fn length(&self) -> Duration {
        self.length
    }
}
