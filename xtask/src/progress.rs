//! Progress as the person at the terminal sees it: a line when a long step begins, a running clock while it lasts, a
//! line with the time it took when it ends. The only file of this tool that asks the clock; it must never decide
//! anything by it.

use std::{
    fmt::Display,
    io::{IsTerminal, Write, stderr},
    sync::mpsc::{self, Receiver, RecvTimeoutError},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};

/// Prints a line for a person; standard output is kept for what programs read.
pub fn say(line: impl Display) {
    // A terminal that is gone must not stop a build.
    let _gone = writeln!(stderr(), "{line}");
}

/// Runs a step that takes a while and prints nothing itself, under a running clock, and says how long it took. `what`
/// says what is being done, for example "building".
///
/// # Errors
/// Those of the step, with its name.
pub fn step<T>(name: &str, what: &str, run: impl FnOnce() -> Result<T>) -> Result<T> {
    talking_step(name, what, || {
        let (running, ended) = mpsc::channel();
        thread::scope(move |scope| {
            // Dropped on every way out of here, also by a panic: the clock stops.
            let _running: mpsc::Sender<()> = running;
            scope.spawn(move || clock(name, &ended));
            run()
        })
    })
}

/// Shows on a terminal, in one line, how long a step has run, until it ends.
#[expect(clippy::disallowed_methods, reason = "the one file where this tool asks the clock, for display only")]
fn clock(name: &str, ended: &Receiver<()>) {
    if !stderr().is_terminal() {
        return;
    }
    let begun = Instant::now();
    while ended.recv_timeout(Duration::from_secs(1)) == Err(RecvTimeoutError::Timeout) {
        let _gone = write!(stderr(), "\r\x1b[K  {} {name}", clock_text(begun.elapsed()));
    }
    let _gone = write!(stderr(), "\r\x1b[K");
}

/// The same for a step that prints on its own, so that no clock runs through its lines.
///
/// # Errors
/// Those of the step, with its name.
pub fn talking_step<T>(name: &str, what: &str, run: impl FnOnce() -> Result<T>) -> Result<T> {
    say(format_args!("▸ {name}: {what}"));
    let (result, took) = timed(run);
    match &result {
        Ok(_) => say(format_args!("✓ {name}: {}", clock_text(took))),
        Err(_) => say(format_args!("✗ {name}: failed after {}", clock_text(took))),
    }
    result.with_context(|| format!("{name}: {what}"))
}

/// Runs something and measures it.
#[expect(clippy::disallowed_methods, reason = "the one file where this tool asks the clock, for display only")]
pub fn timed<T>(run: impl FnOnce() -> T) -> (T, Duration) {
    let begun = Instant::now();
    let result = run();
    (result, begun.elapsed())
}

/// `75.2 s` or `8 min 20 s`.
pub fn clock_text(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match seconds {
        0..100 => format!("{:.1} s", duration.as_secs_f64()),
        _ => format!("{} min {:02} s", seconds / 60, seconds % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_read_well() {
        assert_eq!(clock_text(Duration::from_millis(1_240)), "1.2 s");
        assert_eq!(clock_text(Duration::from_secs(500)), "8 min 20 s");
    }
}
