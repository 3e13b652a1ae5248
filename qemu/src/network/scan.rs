//! A scan of ports as a state machine: which ports to ask next, what each answered, when it is over. Pure.
//!
//! ```text
//!   round 1: ask every port ─► wait ─► round 2: ask the silent ones ─► wait twice as long ─► … ─► Report
//! ```
//! A network under load loses packets, and a machine that gets no processor answers late: an answer counts whenever it
//! comes, and a port is silent only when it has been asked in every round.

use std::collections::{BTreeMap, VecDeque};
use std::net::Ipv4Addr;
use std::time::Duration;

/// What to ask.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Question {
    /// A TCP connection (its SYN; one that is granted is reset at once).
    Tcp,
    /// A UDP datagram with this payload.
    Udp(Vec<u8>),
}

/// What a port said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// TCP: the connection is granted. UDP: something came back.
    Open,
    /// TCP: reset.
    Closed,
    /// An ICMP error about it came back (Linux sends few of them: six at once, then one per second).
    Unreachable,
    /// Nothing, each time it was asked.
    Silent,
}

/// What every port of a scan said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report(pub BTreeMap<u16, Answer>);

impl Report {
    /// Ports with this answer.
    #[must_use]
    pub fn ports(&self, answer: Answer) -> Vec<u16> {
        self.0.iter().filter(|row| *row.1 == answer).map(|row| *row.0).collect()
    }

    /// Ports that gave any answer at all.
    #[must_use]
    pub fn answered(&self) -> Vec<u16> {
        self.0.iter().filter(|row| *row.1 != Answer::Silent).map(|row| *row.0).collect()
    }
}

/// Rounds in which every port is asked that has not answered.
const ROUNDS: u32 = 3;
/// Rounds where at most [`FEW`] are silent: a few packets more cost nothing, and a machine that runs beside others may
/// not be given its processor for seconds. The pauses of all five rounds are 31 times the first.
const ROUNDS_OF_FEW: u32 = 5;
/// What one host may lose under load, and far from all ports.
const FEW: usize = 64;

#[derive(Debug)]
pub(super) struct Scan {
    pub(super) question: Question,
    pub(super) target: Ipv4Addr,
    /// After the questions of this round; the next round's is twice as long.
    pause: Duration,
    round: u32,
    to_ask: VecDeque<u16>,
    /// When the last question of this round has been waited for; none while some are to be asked.
    round_ends: Option<Duration>,
    answers: BTreeMap<u16, Answer>,
}

impl Scan {
    /// `pause`: after the first round, for what it asked to be answered.
    pub(super) fn new(
        question: Question,
        target: Ipv4Addr,
        ports: impl IntoIterator<Item = u16>,
        pause: Duration,
    ) -> Self {
        let answers: BTreeMap<u16, Answer> = ports.into_iter().map(|port| (port, Answer::Silent)).collect();
        let to_ask = answers.keys().copied().collect();
        Self { question, target, pause, round: 1, to_ask, round_ends: None, answers }
    }

    /// The next port to ask. Asking it is what this promises: it is not offered again in this round.
    pub(super) fn ask(&mut self) -> Option<u16> {
        self.to_ask.pop_front()
    }

    /// Notes an answer; the first one counts. Whether the port was asked for at all.
    pub(super) fn answered(&mut self, port: u16, answer: Answer) -> bool {
        let Some(known) = self.answers.get_mut(&port) else { return false };
        if *known == Answer::Silent {
            *known = answer;
        }
        true
    }

    /// Moves on when all has been sent (`sent`); the report when the scan is over.
    pub(super) fn poll(&mut self, sent: bool, now: Duration) -> Option<Report> {
        if !self.to_ask.is_empty() || !sent {
            return None;
        }
        let silent = self.answers.iter().filter(|row| *row.1 == Answer::Silent).map(|row| *row.0);
        let silent: VecDeque<u16> = silent.collect();
        let end = *self.round_ends.get_or_insert(now + self.pause);
        let rounds = if silent.len() <= FEW { ROUNDS_OF_FEW } else { ROUNDS };
        if silent.is_empty() || (now >= end && self.round >= rounds) {
            return Some(Report(std::mem::take(&mut self.answers)));
        }
        if now >= end {
            self.round += 1;
            self.pause *= 2;
            self.to_ask = silent;
            self.round_ends = None;
        }
        None
    }

    /// When [`Self::poll`] has to be called again at the latest; none while questions wait to be sent.
    pub(super) fn poll_timeout(&self) -> Option<Duration> {
        self.round_ends
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAUSE: Duration = Duration::from_secs(1);

    fn scan(ports: impl IntoIterator<Item = u16>) -> Scan {
        Scan::new(Question::Tcp, Ipv4Addr::LOCALHOST, ports, PAUSE)
    }

    fn drain(scan: &mut Scan) -> Vec<u16> {
        std::iter::from_fn(|| scan.ask()).collect()
    }

    /// Goes on from `now`, when a round has been asked, to the end, by each deadline.
    fn pass(scan: &mut Scan, mut now: Duration) -> Report {
        loop {
            if let Some(report) = scan.poll(true, now) {
                return report;
            }
            match scan.poll_timeout() {
                Some(end) => now = end,
                None => drop(drain(scan)),
            }
        }
    }

    #[test]
    fn the_silent_are_asked_again_and_only_they() {
        let mut scan = scan(1..=3);
        assert_eq!(drain(&mut scan), [1, 2, 3]);
        assert_eq!(scan.poll(false, Duration::ZERO), None);
        assert_eq!(scan.poll_timeout(), None, "the pause begins when all is sent");
        assert_eq!(scan.poll(true, Duration::ZERO), None);
        assert_eq!(scan.poll_timeout(), Some(PAUSE));
        assert!(scan.answered(2, Answer::Open));
        assert!(scan.answered(2, Answer::Closed), "known, and too late to count");
        assert!(!scan.answered(9, Answer::Open));
        assert_eq!(scan.poll(true, PAUSE), None);
        assert_eq!(drain(&mut scan), [1, 3]);
        scan.answered(3, Answer::Closed);
        let report = pass(&mut scan, PAUSE);
        assert_eq!(report.ports(Answer::Silent), [1]);
        assert_eq!(report.ports(Answer::Open), [2]);
        assert_eq!(report.answered(), [2, 3]);
    }

    /// The second when each round of a scan of `count` silent ports is asked; last, when the scan is over.
    fn rounds(count: u16) -> Vec<u64> {
        let mut scan = scan(1..=count);
        let (mut now, mut rounds) = (Duration::ZERO, Vec::new());
        loop {
            let asked = drain(&mut scan);
            if !asked.is_empty() {
                assert_eq!(asked.len(), usize::from(count));
                rounds.push(now.as_secs());
            }
            if scan.poll(true, now).is_some() {
                rounds.push(now.as_secs());
                return rounds;
            }
            now = scan.poll_timeout().unwrap_or(now);
        }
    }

    #[test]
    fn few_silent_ports_are_asked_more_often_than_many_and_all_ever_more_patiently() {
        assert_eq!(rounds(64), [0, 1, 3, 7, 15, 31]);
        assert_eq!(rounds(65), [0, 1, 3, 7]);
    }

    #[test]
    fn it_ends_early_when_all_have_answered() {
        let mut scan = scan([80]);
        drain(&mut scan);
        scan.answered(80, Answer::Unreachable);
        assert_eq!(scan.poll(true, Duration::ZERO).unwrap().ports(Answer::Unreachable), [80]);
    }

    #[test]
    fn a_scan_of_nothing_is_over() {
        assert_eq!(scan([]).poll(true, Duration::ZERO), Some(Report(BTreeMap::new())));
    }
}
