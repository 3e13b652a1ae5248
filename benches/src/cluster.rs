//! Measurements of machines that are one cluster: spans from a machine's power-on to what it says it has reached, by
//! its own clock, or from its owner's command to what all of them say; their medians over several clusters; and memory.

use std::time::Duration;

use crate::boots::median;
use crate::verdict::{Figure, resident};

/// A span of time that is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Span {
    /// Three machines, from power-on of the first to one etcd of three voters.
    ThreeVoters,
    /// A further machine, from power-on to Member.
    Member,
    /// The part of [`Self::Member`] that comes after the machine's public API answers.
    MemberBehindApi,
    /// A member that was told to reboot, from power-on to Member.
    Rejoin,
    /// A machine that is removed, from its owner's command until no other of five has it as a peer, by the host's clock.
    PeerGone,
    /// All three coordinators switched on after all were off, from power-on to the last that sees the cluster's records.
    ColdStart,
}

/// A span as it was seen once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Took {
    /// By the machine's own clock, where it is one machine's.
    pub uptime: Duration,
    /// CPU time of all virtual machines from the beginning of the command that caused it to its end; none where another
    /// span has it.
    pub cpu: Option<Duration>,
}

/// Spans as they were seen in all clusters.
#[derive(Debug, Clone, Default)]
pub struct Spans(Vec<(Span, Took)>);

impl Span {
    /// All of them, in the order in which they are measured.
    pub const ALL: [Self; 6] =
        [Self::ThreeVoters, Self::Member, Self::MemberBehindApi, Self::Rejoin, Self::PeerGone, Self::ColdStart];

    /// Name of the span for a person.
    #[must_use]
    pub const fn what(self) -> &'static str {
        match self {
            Self::ThreeVoters => "three machines to three voters",
            Self::Member => "a further machine to Member",
            Self::MemberBehindApi => "of that, after its public API",
            Self::Rejoin => "a reboot, to Member again",
            Self::PeerGone => "a removed machine, to no peer of it",
            Self::ColdStart => "all coordinators off, to quorum",
        }
    }

    /// The limit in SPECIFICATION.md, in seconds.
    #[must_use]
    pub const fn at_most(self) -> f64 {
        match self {
            Self::ThreeVoters => 45.0,
            Self::Member | Self::Rejoin => 12.0,
            Self::MemberBehindApi => 5.0,
            Self::PeerGone => 1.0,
            Self::ColdStart => 30.0,
        }
    }

    /// The limit for each single one, where there is one.
    const fn at_worst(self) -> Option<f64> {
        match self {
            Self::PeerGone => Some(2.0),
            Self::ThreeVoters | Self::Member | Self::MemberBehindApi | Self::Rejoin | Self::ColdStart => None,
        }
    }
}

impl Spans {
    /// Adds a span that was seen.
    pub fn push(&mut self, span: Span, took: Took) {
        self.0.push((span, took));
    }

    /// The median of a span; none that was not seen.
    #[must_use]
    pub fn median(&self, span: Span) -> Option<Took> {
        let seen: Vec<Took> = self.seen(span).collect();
        let cpu: Option<Vec<Duration>> = seen.iter().map(|took| took.cpu).collect();
        Some(Took { uptime: median(seen.iter().map(|took| took.uptime).collect())?, cpu: cpu.and_then(median) })
    }

    /// The medians, and the worst where that has a limit, too, against their limits, in seconds.
    #[must_use]
    pub fn findings(&self) -> Vec<Figure> {
        let finding = |span: Span, took: Option<Took>, at_most: f64| {
            Some(Figure { what: span.what(), measured: vec![took?.uptime.as_secs_f64()], at_most })
        };
        let both = |span: Span| {
            let worst = span
                .at_worst()
                .and_then(|at_most| finding(span, self.seen(span).max_by_key(|took| took.uptime), at_most));
            finding(span, self.median(span), span.at_most()).into_iter().chain(worst)
        };
        Span::ALL.into_iter().flat_map(both).collect()
    }

    fn seen(&self, span: Span) -> impl Iterator<Item = Took> {
        self.0.iter().filter(move |(of, _)| *of == span).map(|(_, took)| *took)
    }
}

/// The limit on PID 1 of a coordinator of five machines.
#[must_use]
pub fn resident_of_five(kilobytes: u64) -> Figure {
    resident("VmRSS of PID 1, coordinator of 5, MiB", kilobytes, 12.0)
}

/// When a machine said `words` last in its last boot, by the time in front of the line on its console.
#[must_use]
pub fn said(console: &str, words: &str) -> Option<Duration> {
    let mut last = Duration::ZERO;
    let mut found = None;
    for line in console.lines() {
        let Some(uptime) = uptime(line) else { continue };
        if uptime < last {
            found = None; // the next boot
        }
        last = uptime;
        if line.contains(words) {
            found = Some(uptime);
        }
    }
    found
}

/// How many peers the kernel of a machine has, by the last that is said of it on its console.
#[must_use]
pub fn peers(console: &str) -> Option<usize> {
    let mut changed = console.lines().rev().filter(|line| line.contains("the kernel's mesh is changed"));
    changed.next()?.split_whitespace().find_map(|word| word.strip_prefix("peers=")?.parse().ok())
}

/// The time in front of a line.
fn uptime(line: &str) -> Option<Duration> {
    let (uptime, _) = line.trim_start().strip_prefix('[')?.split_once(']')?;
    Duration::try_from_secs_f64(uptime.trim().parse().ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_is_believed_what_it_said_last() {
        let console =
            "[     4.5] INFO here\r\n  here, on the sheet\r\n[    12.335] INFO here again\r\n[ 13.0] INFO else\r\n";
        assert_eq!(said(console, "here again"), Some(Duration::from_millis(12_335)));
        assert_eq!(said(console, "INFO here"), Some(Duration::from_millis(12_335)));
        assert_eq!((said(console, "sheet"), said(console, "nowhere")), (None, None));
        let booted = format!("{console}[     0.4] INFO the next boot\r\n");
        assert_eq!((said(&booted, "here"), said(&booted, "next")), (None, Some(Duration::from_millis(400))));
    }

    #[test]
    fn a_machine_is_believed_how_many_peers_it_had_last() {
        let line = |peers: u8| format!("[  4.5] INFO the kernel's mesh is changed messages=2 peers={peers}\r\n");
        assert_eq!(peers(&[line(3), line(4), "[ 5.1] INFO else peers=9\r\n".into()].concat()), Some(4));
        assert_eq!(peers("[  4.5] INFO here\r\n"), None);
    }

    #[test]
    fn each_removal_is_held_against_a_limit_of_its_own() {
        let mut spans = Spans::default();
        for millis in [300, 400, 500, 1900] {
            spans.push(Span::PeerGone, Took { uptime: Duration::from_millis(millis), cpu: None });
        }
        let holds = |spans: &Spans| spans.findings().iter().map(Figure::holds).collect::<Vec<_>>();
        assert_eq!(holds(&spans), [true, true], "the median is below 1 s, and the worst below 2 s");
        spans.push(Span::PeerGone, Took { uptime: Duration::from_millis(2100), cpu: None });
        assert_eq!(holds(&spans), [true, false]);
    }

    #[test]
    fn a_limit_is_held_against_the_median() {
        let mut spans = Spans::default();
        for (seconds, cpu) in [(11, Some(20)), (13, Some(30)), (12, Some(25))] {
            let took = Took { uptime: Duration::from_secs(seconds), cpu: cpu.map(Duration::from_secs) };
            spans.push(Span::Member, took);
        }
        let median = spans.median(Span::Member).expect("it was seen");
        assert_eq!((median.uptime.as_secs(), median.cpu), (12, Some(Duration::from_secs(25))));
        let findings = spans.findings();
        assert!(findings.len() == 1 && findings[0].holds(), "{findings:?}");
        spans.push(Span::Member, Took { uptime: Duration::from_secs(13), cpu: None });
        spans.push(Span::Member, Took { uptime: Duration::from_secs(13), cpu: None });
        assert!(!spans.findings()[0].holds() && spans.median(Span::Member).is_some_and(|took| took.cpu.is_none()));
        assert_eq!(spans.median(Span::Rejoin), None);
    }
}
