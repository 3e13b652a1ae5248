//! What the person at the terminal sees: a line when a long step begins, a running clock while it lasts, a line with the
//! time it took when it ends. The only place in this tool that asks the clock; it must never decide anything by it.

use std::{
    fmt::Display,
    io::{Write, stderr},
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use indicatif::{ProgressBar, ProgressStyle};

/// Prints a line for a person; standard output is kept for what programs read.
pub(crate) fn say(line: impl Display) {
    // A terminal that is gone must not stop a build.
    let _gone = writeln!(stderr(), "{line}");
}

/// Runs a step that takes a while and prints nothing itself, under a running clock, and says how long it took. `what`
/// says what is being done, for example "building".
///
/// # Errors
/// Those of the step, with its name.
pub(crate) fn step<T>(name: &str, what: &str, run: impl FnOnce() -> Result<T>) -> Result<T> {
    let style = ProgressStyle::with_template("  {spinner} {elapsed} {msg}");
    let style = style.unwrap_or_else(|_| ProgressStyle::default_spinner()); // the form above is a constant
    talking_step(name, what, || {
        let clock = ProgressBar::new_spinner().with_style(style).with_message(name.to_owned());
        clock.enable_steady_tick(Duration::from_secs(1));
        let result = run();
        clock.finish_and_clear();
        result
    })
}

/// The same for a step that prints on its own, so that no clock runs through its lines.
///
/// # Errors
/// Those of the step, with its name.
pub(crate) fn talking_step<T>(name: &str, what: &str, run: impl FnOnce() -> Result<T>) -> Result<T> {
    say(format_args!("▸ {name}: {what}"));
    let (result, took) = timed(run);
    match &result {
        Ok(_) => say(format_args!("✓ {name}: {}", clock_text(took))),
        Err(_) => say(format_args!("✗ {name}: failed after {}", clock_text(took))),
    }
    result.with_context(|| format!("{name}: {what}"))
}

/// Runs something and measures it.
#[expect(clippy::disallowed_methods, reason = "the one place where this tool asks the clock, for display only")]
pub(crate) fn timed<T>(run: impl FnOnce() -> T) -> (T, Duration) {
    let begun = Instant::now();
    let result = run();
    (result, begun.elapsed())
}

/// `75.2 s` or `8 min 20 s`.
pub(crate) fn clock_text(duration: Duration) -> String {
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
