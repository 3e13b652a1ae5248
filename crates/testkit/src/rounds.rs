//! Rounds of a bench: the same work again and again, its CPU time each time, and whether the median is within its limit.

use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// CPU times of the rounds so far.
#[derive(Debug, Default)]
pub struct Rounds(Vec<Duration>);

impl Rounds {
    /// Does the work of one round.
    pub fn work<T>(&mut self, work: impl FnOnce() -> T) -> T {
        let before = cpu();
        let done = work();
        self.0.push(cpu().saturating_sub(before));
        done
    }

    /// Prints what was done, with the median and the range of its times; fails where the median is over the limit.
    ///
    /// # Errors
    /// Printing fails.
    ///
    /// # Panics
    /// Where there was no round.
    pub fn conclude(mut self, what: &str, limit: Duration) -> io::Result<ExitCode> {
        self.0.sort_unstable();
        let rounds = self.0.len();
        let [least, median, most] = [0, rounds / 2, rounds - 1].map(|place| self.0[place]);
        let millis = |time: Duration| time.as_secs_f64() * 1000.0;
        writeln!(
            io::stdout(),
            "{what}, {rounds} rounds: {:.2} ms of CPU (median; {:.2} to {:.2}), limit {} ms",
            millis(median),
            millis(least),
            millis(most),
            limit.as_millis()
        )?;
        Ok(if median <= limit { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

/// CPU time of this process so far.
fn cpu() -> Duration {
    clock_gettime(ClockId::ProcessCPUTime).try_into().expect("a time since the process began")
}
