//! How many cases the host has room for: one for each processor, and more while its processors are idle, since most of a case is
//! waiting for timers. Pure but for [`Times::of_host`].

use std::time::Duration;

/// Over so long the host is looked at, and no less after a case has begun: machines that boot take all that they get.
const WINDOW: Duration = Duration::from_secs(5);
/// Of a hundred parts of the processors' time, so many have to be idle.
const IDLE: u64 = 40;

/// Time of all processors since the host started, in units of the kernel's (`/proc/stat`, proc_stat(5)).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Times {
    idle: u64,
    all: u64,
}

/// How many cases may run.
#[derive(Debug)]
pub(crate) struct Room {
    least: usize,
    most: usize,
    began: (Duration, Times),
    /// Whether the last window was idle, and no case has begun since.
    is_idle: bool,
}

impl Times {
    /// The host's; none where its kernel does not tell.
    pub(crate) fn of_host() -> Option<Self> {
        Self::parse(&std::fs::read_to_string("/proc/stat").ok()?)
    }

    fn parse(text: &str) -> Option<Self> {
        let fields = text.lines().next()?.strip_prefix("cpu ")?.split_whitespace().map(str::parse);
        // user, nice, system, idle, iowait, irq, softirq and steal; guests' time is in the first two already.
        let fields: Vec<u64> = fields.take(8).collect::<Result<_, _>>().ok()?;
        Some(Self { idle: *fields.get(3)? + fields.get(4)?, all: fields.iter().sum() })
    }
}

impl Room {
    /// For so many, whatever the host does.
    pub(crate) fn fixed(cases: usize) -> Self {
        Self { least: cases, most: cases, began: Default::default(), is_idle: false }
    }

    /// For one on each processor, and as many again where these wait.
    pub(crate) fn of(processors: usize) -> Self {
        Self { most: 2 * processors, ..Self::fixed(processors) }
    }

    /// How many may run now, where so many do.
    pub(crate) fn look(&mut self, running: usize, now: Duration, times: Times) -> usize {
        let (since, before) = self.began;
        if now - since >= WINDOW {
            let (idle, all) = (times.idle.saturating_sub(before.idle), times.all.saturating_sub(before.all));
            self.is_idle = idle * 100 >= all * IDLE;
            self.began = (now, times);
        }
        let more = if self.is_idle { running + 1 } else { 0 };
        more.clamp(self.least, self.most)
    }

    /// One has begun.
    pub(crate) fn begins(&mut self, now: Duration, times: Times) {
        (self.began, self.is_idle) = ((now, times), false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of two processors, of which one half was idle after ten seconds, and all after twenty.
    fn times(seconds: u64) -> (Duration, Times) {
        let idle = 100 * seconds.min(10) + 200 * seconds.saturating_sub(10);
        (Duration::from_secs(seconds), Times { idle, all: 200 * seconds })
    }

    fn look(room: &mut Room, running: usize, seconds: u64) -> usize {
        let (now, times) = times(seconds);
        room.look(running, now, times)
    }

    #[test]
    fn where_processors_are_idle_one_more_may_run_and_no_other_before_it_was_seen() {
        let mut room = Room::of(2);
        assert_eq!(look(&mut room, 2, 4), 2, "not long enough");
        assert_eq!(look(&mut room, 2, 5), 3);
        assert_eq!(look(&mut room, 2, 6), 3, "until somebody takes it");
        let (now, times) = times(6);
        room.begins(now, times);
        assert_eq!(look(&mut room, 3, 10), 2);
        assert_eq!(look(&mut room, 3, 11), 4);
        assert_eq!(look(&mut room, 4, 18), 4, "never more than two on each");
    }

    #[test]
    fn where_they_are_busy_or_a_number_is_asked_for_no_more_run() {
        let mut room = Room::of(2);
        assert_eq!(room.look(2, Duration::from_secs(9), Times { idle: 39, all: 100 }), 2);
        assert_eq!(look(&mut Room::fixed(1), 1, 20), 1);
    }

    #[test]
    fn the_kernels_line_is_read() {
        let text = "cpu  10 20 30 400 5 6 7 8 9 9\ncpu0 1 2\n";
        assert_eq!(Times::parse(text), Some(Times { idle: 405, all: 486 }));
        assert_eq!(Times::parse("cpu  1 2 x 4 5 6 7 8"), None);
        assert_eq!(Times::parse("cpu  1 2 3"), None);
        assert_eq!(Times::parse(""), None);
    }
}
