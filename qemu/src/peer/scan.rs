//! A scan of ports as a state machine: which ports to ask next, what each answered, when it is over. Pure.
//!
//! ```text
//!   round 1: ask every port ─► wait ─► round 2: ask the silent ones ─► wait ─► … ─► Report
//! ```

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

/// Asked again this often before a port counts as silent: the network under test loses packets under load.
const ROUNDS: u32 = 3;

#[derive(Debug)]
pub(super) struct Scan {
    pub(super) question: Question,
    pub(super) target: Ipv4Addr,
    patience: Duration,
    round: u32,
    to_ask: VecDeque<u16>,
    /// When the last question of this round has been waited for; none while some are to be asked.
    round_ends: Option<Duration>,
    answers: BTreeMap<u16, Answer>,
}

impl Scan {
    /// `patience`: how long an answer may take, under the load of the scan.
    pub(super) fn new(
        question: Question,
        target: Ipv4Addr,
        ports: impl IntoIterator<Item = u16>,
        patience: Duration,
    ) -> Self {
        let answers: BTreeMap<u16, Answer> = ports.into_iter().map(|port| (port, Answer::Silent)).collect();
        let to_ask = answers.keys().copied().collect();
        Self { question, target, patience, round: 1, to_ask, round_ends: None, answers }
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
        let end = *self.round_ends.get_or_insert(now + self.patience);
        if silent.is_empty() || (now >= end && self.round == ROUNDS) {
            return Some(Report(std::mem::take(&mut self.answers)));
        }
        if now >= end {
            self.round += 1;
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

    const PATIENCE: Duration = Duration::from_secs(1);

    fn scan(ports: impl IntoIterator<Item = u16>) -> Scan {
        Scan::new(Question::Tcp, Ipv4Addr::LOCALHOST, ports, PATIENCE)
    }

    fn drain(scan: &mut Scan) -> Vec<u16> {
        std::iter::from_fn(|| scan.ask()).collect()
    }

    #[test]
    fn the_silent_are_asked_again_and_only_they() {
        let mut scan = scan(1..=3);
        assert_eq!(drain(&mut scan), [1, 2, 3]);
        assert_eq!(scan.poll(false, Duration::ZERO), None);
        assert_eq!(scan.poll_timeout(), None, "patience begins when all is sent");
        assert_eq!(scan.poll(true, Duration::ZERO), None);
        assert_eq!(scan.poll_timeout(), Some(PATIENCE));
        assert!(scan.answered(2, Answer::Open));
        assert!(scan.answered(2, Answer::Closed), "known, and too late to count");
        assert!(!scan.answered(9, Answer::Open));
        assert_eq!(scan.poll(true, PATIENCE), None);
        assert_eq!(drain(&mut scan), [1, 3]);
        scan.answered(3, Answer::Closed);
        assert_eq!(scan.poll(true, PATIENCE), None);
        assert_eq!(scan.poll(true, PATIENCE * 2), None);
        assert_eq!(drain(&mut scan), [1]);
        assert_eq!(scan.poll(true, PATIENCE * 2), None);
        let report = scan.poll(true, PATIENCE * 3).unwrap();
        assert_eq!(report.ports(Answer::Silent), [1]);
        assert_eq!(report.ports(Answer::Open), [2]);
        assert_eq!(report.answered(), [2, 3]);
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
