//! The board's clock, which goes on while the machine stands still: saved to a file, or with a host that was suspended. Where it
//! gained on the monotonic clock, the machine's clock is put forward by the gain, and what a copy of the machine has in common
//! with it is given up: the state of random numbers, TLS sessions, WireGuard's sessions.
//!
//! ```text
//!   look, each second and before ─► gain ─► clock   ─► random numbers drawn anew, ─► a standstill
//!   a session begins                        forward    unless the kernel did         is counted
//! ```
//! The clock comes first, since it is promised within 3 s, and sessions last, since new ones need new random numbers. It must never set
//! the clock back, nor to what the board shows: what the cluster corrected stays corrected.
//!
//! It lives beside the other things of the board, and not in `runtime::clock`: that one knows no device.

mod gain;

use std::fs::File;
use std::io;
use std::time::Duration;

use model::Chain;
use tokio::time::timeout;

use self::gain::Comparison;
use super::randomness;
use crate::runtime::services::until;
use crate::runtime::standstills::{Looker, Standstills};
use crate::runtime::{clock, tasks};

/// The board's first clock; PID 1 alone has it open.
const DEVICE: &str = "/dev/rtc0";
/// The host gives random bytes in milliseconds, or not at all: sessions do not wait longer for them.
const DRAWS: Duration = Duration::from_secs(1);

/// Follows the board's clock, and counts `standstills`; ends where the board has none.
pub(crate) async fn follow(standstills: Standstills) {
    randomness::tell();
    let device = match File::open(DEVICE) {
        Ok(device) => device,
        Err(error) => {
            tracing::info!(%error, "no clock on the board: whether the machine stands still is not noticed");
            return;
        }
    };
    let (comparison, looker) = (Comparison::start(clock::now()), standstills.looker());
    let mut looks = Looks { comparison, looker, failed: false };
    loop {
        let gain = looks.gain(|| sys::rtc::read(&device)).await;
        match clock::put_forward(gain) {
            Ok(()) => tracing::info!(?gain, "the machine stood still: the clock is put forward"),
            Err(error) => tracing::warn!(?gain, %error, "the machine stood still, and the clock cannot be put forward"),
        }
        if !randomness::kernel_is_told() {
            draw_anew().await;
        }
        standstills.count();
        looks.looker.has_looked();
        tracing::info!("what was connected before the standstill is cut off");
    }
}

/// Looks at a clock of the board.
struct Looks {
    comparison: Comparison,
    looker: Looker,
    /// Whether the log was told that it cannot be read.
    failed: bool,
}

impl Looks {
    /// Waits until it gained on the monotonic clock; how much. Those who asked for that look are answered by the caller, those for an
    /// earlier one here. It is read here and not on a thread of its own, since that takes microseconds.
    async fn gain(&mut self, read: impl Fn() -> io::Result<u64>) -> Duration {
        loop {
            tokio::select! {
                () = until(Some(self.comparison.poll_timeout().0)) => {}
                () = self.looker.is_asked() => {}
            }
            self.looker.begins();
            let before = clock::now();
            let board = read();
            let after = clock::now();
            match board {
                Ok(board) => {
                    if let Some(gain) = self.comparison.look(before, board, after) {
                        return gain;
                    }
                }
                Err(error) => {
                    self.comparison.skip(after);
                    if !std::mem::replace(&mut self.failed, true) {
                        tracing::warn!(%error, "the board's clock cannot be read: until it can, no standstill is noticed");
                    }
                }
            }
            self.looker.has_looked();
        }
    }
}

/// Has the kernel's random numbers differ from those of a copy.
async fn draw_anew() {
    match timeout(DRAWS, tasks::blocking(randomness::draw_anew)).await {
        Ok(Ok(from)) => tracing::info!(%from, "the kernel's random numbers are drawn anew"),
        Ok(Err(error)) => tracing::warn!(error = %Chain(&error), "the kernel's random numbers are not drawn anew"),
        Err(_elapsed) => tracing::warn!("the kernel's random numbers are not drawn anew: the host gives none"),
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::time::Instant;

    use super::*;

    /// Seconds on the board of a machine that began at `began`; at each look it has gained what `gained` says, or cannot be read.
    async fn gain(gained: &[Option<u64>]) -> (Duration, Duration) {
        let began = clock::now();
        let left = RefCell::new(gained.iter());
        let read = || {
            let gained = left.borrow_mut().next().expect("a gain before the end");
            let gained = gained.ok_or(io::ErrorKind::InvalidInput)?;
            Ok(1_000 + since(began).as_secs() + gained)
        };
        let looker = Standstills::default().looker();
        let mut looks = Looks { comparison: Comparison::start(began), looker, failed: false };
        (looks.gain(read).await, since(began))
    }

    fn since(began: Instant) -> Duration {
        clock::now().saturating_duration_since(began)
    }

    #[tokio::test(start_paused = true)]
    async fn a_gain_is_told_by_the_next_good_look_after_failed_ones() {
        let seconds = Duration::from_secs;
        let (told, after) = gain(&[Some(0), Some(0), Some(90)]).await;
        assert_eq!((told, after.as_secs()), (seconds(90), 2));
        let (told, after) = gain(&[None, Some(0), None, None, Some(5)]).await;
        assert_eq!((told, after.as_secs()), (seconds(5), 4));
    }
}
