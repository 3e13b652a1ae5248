//! Lives through worlds of the simulator, seed after seed, until it is over or a law is broken: `cargo xtask campaign sim` starts it,
//! and has its options. The seed is printed with the events before it; the same seed does the same again. It must never choose
//! by anything but the seed what happens.
//!
//! ```text
//! campaign FIRST-SEED (seconds | worlds | once) NUMBER
//! ```

use std::{
    env,
    io::{Write, stderr},
    process::ExitCode,
    time::{Duration, Instant},
};

use sim::world::{Report, WorldPlan, run};

/// Between two lines about how it goes.
const PROGRESS: Duration = Duration::from_secs(10);

/// When a campaign is over, once a world is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Over {
    /// After this time.
    Time(Duration),
    /// After so many.
    Worlds(u64),
}

/// Worlds that are lived through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Size {
    /// Worlds of the kind that the tests live through in a tenth of a second each.
    Small,
    /// Worlds of which most are small and live long, some large.
    Mixed,
}

fn main() -> ExitCode {
    let words: Vec<String> = env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let Some((first, size, over)) = read(&words) else {
        say(format_args!("`cargo xtask campaign sim` starts this program, and has a `--help`"));
        return ExitCode::from(2);
    };
    search(first, size, over)
}

/// The first seed, the kind of worlds, and when it is over.
fn read(words: &[&str]) -> Option<(u64, Size, Over)> {
    let [first, unit, number] = words else { return None };
    let (first, number) = (first.parse().ok()?, number.parse().ok()?);
    match *unit {
        "seconds" => Some((first, Size::Mixed, Over::Time(Duration::from_secs(number)))),
        "worlds" => Some((first, Size::Small, Over::Worlds(number))),
        "once" => Some((first, Size::Mixed, Over::Worlds(number))),
        _ => None,
    }
}

/// Lives through one world at least, then through more until it is over.
fn search(first: u64, size: Size, over: Over) -> ExitCode {
    let begun = now();
    let (mut told, mut events, mut epochs, mut seed) = (Duration::ZERO, 0, 0, first);
    loop {
        match run(seed, size.plan(seed)) {
            Ok(Report { events: happened, epochs: stood, .. }) => {
                (events, epochs) = (events + happened, epochs + stood)
            }
            Err(failure) => {
                say(format_args!("{failure}\nagain: cargo xtask campaign sim --seed {seed} {}", size.again()));
                return ExitCode::FAILURE;
            }
        }
        seed += 1;
        let (passed, worlds) = (begun.elapsed(), seed - first);
        let over = match over {
            Over::Time(time) => passed >= time,
            Over::Worlds(all) => worlds >= all,
        };
        if over || passed - told >= PROGRESS {
            told = passed;
            let seconds = passed.as_secs();
            say(format_args!(
                "{seconds:>6} s  {worlds:>7} worlds  {events:>11} events  {epochs:>8} epochs  next seed {seed}"
            ));
        }
        if over {
            say(format_args!("no law was broken"));
            return ExitCode::SUCCESS;
        }
    }
}

impl Size {
    /// Size and length of a seed's world.
    const fn plan(self, seed: u64) -> WorldPlan {
        match (self, seed % 20) {
            (Self::Small, _) => WorldPlan::SMALL,
            (Self::Mixed, 0) => WorldPlan { machines: 400, members: 350, tickets: 10, lasts: 20_000, events: 100_000 },
            (Self::Mixed, 1..5) => WorldPlan { machines: 60, members: 0, tickets: 20, lasts: 40_000, events: u64::MAX },
            (Self::Mixed, 5..10) => WorldPlan { machines: 7, members: 0, tickets: 6, lasts: 120_000, events: u64::MAX },
            (Self::Mixed, _) => WorldPlan { machines: 29, members: 0, tickets: 12, lasts: 60_000, events: u64::MAX },
        }
    }

    /// Options by which one of these worlds is had again.
    const fn again(self) -> &'static str {
        match self {
            Self::Small => "--worlds 1",
            Self::Mixed => "--once",
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "a campaign lasts as long as it is told to")]
fn now() -> Instant {
    Instant::now()
}

fn say(line: std::fmt::Arguments<'_>) {
    let _nobody_listens = writeln!(stderr(), "{line}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_command_hands_over_is_read_whole() {
        assert_eq!(read(&["7", "seconds", "60"]), Some((7, Size::Mixed, Over::Time(Duration::from_secs(60)))));
        assert_eq!(read(&["7", "worlds", "20"]), Some((7, Size::Small, Over::Worlds(20))));
        assert_eq!(read(&["7", "once", "1"]), Some((7, Size::Mixed, Over::Worlds(1))));
        for bad in [&["7", "hours", "1"][..], &["x", "once", "1"], &["7", "worlds", "x"], &["7", "worlds"]] {
            assert_eq!(read(bad), None, "{bad:?}");
        }
    }
}
