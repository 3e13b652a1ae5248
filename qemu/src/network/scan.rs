//! A scan of ports as a state machine: which ports to ask next, what each answered, when it is over. Pure.
//!
//! ```text
//!   round 1: ask every port ─► barrier ─► wait ─► round 2: ask the silent ones ─► barrier ─► wait twice as long ─► …
//!                                 └─ no answer in time ─► Behind
//!   in each round: all have answered, or this was the last round ─► Report
//! ```
//! A network under load loses packets, and a machine that gets no processor answers late: an answer counts whenever it
//! comes, and a port is silent only when it has been asked in every round, and when the machine has worked through what it
//! was asked. That it has is shown by the barrier, a question behind the last one of the round that it is known to answer:
//! frames are handled in order, and QEMU keeps a hundred thousand of them for a machine that is slower than who asks.

use std::collections::{BTreeMap, VecDeque};
use std::net::Ipv4Addr;
use std::time::Duration;

/// Question that is asked of every port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PortQuestion {
    /// A TCP connection (its SYN; one that is granted is reset at once).
    Tcp,
    /// A UDP datagram with this payload.
    Udp(Vec<u8>),
}

/// Answer of a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PortAnswer {
    /// TCP: the connection is granted. UDP: something came back.
    Open,
    /// TCP: reset.
    Closed,
    /// An ICMP error about it came back (Linux sends few of them: six at once, then one per second).
    Unreachable,
    /// No answer, each time the port was asked.
    Silent,
}

/// Answers of all ports of a scan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report(pub BTreeMap<u16, PortAnswer>);

impl Report {
    /// Ports with this answer.
    #[must_use]
    pub fn ports(&self, answer: PortAnswer) -> Vec<u16> {
        self.0.iter().filter(|row| *row.1 == answer).map(|row| *row.0).collect()
    }

    /// Ports that gave any answer at all.
    #[must_use]
    pub fn answered(&self) -> Vec<u16> {
        self.0.iter().filter(|row| *row.1 != PortAnswer::Silent).map(|row| *row.0).collect()
    }
}

/// Rounds in which every port is asked that has not answered.
const ROUNDS: u8 = 3;
/// Rounds where at most [`FEW`] are silent: a few packets more cost nothing, and a machine that runs beside others may
/// not be given its processor for seconds. The pauses of all five rounds are 31 times the first.
const ROUNDS_OF_FEW: u8 = 5;
/// Ports that one host may lose under load, and far from all.
const FEW: usize = 64;

/// How often a barrier is asked: its question or its answer may be lost, too.
const AGAIN: Duration = Duration::from_secs(1);
/// Time for a machine to work through the questions of a round. One under emulation has been seen to need more than ten
/// seconds.
pub(super) const CAUGHT_UP: Duration = Duration::from_secs(120);

#[derive(Debug)]
pub(super) struct Scan {
    pub(super) question: PortQuestion,
    pub(super) target: Ipv4Addr,
    /// Behind the barrier of this round, for answers that are on their way; the next round's is twice as long.
    pause: Duration,
    round: u8,
    to_ask: VecDeque<u16>,
    stage: Stage,
    answers: BTreeMap<u16, PortAnswer>,
}

/// How far a round is.
#[derive(Debug, Clone, Copy)]
enum Stage {
    /// Questions are to be asked, or wait to be sent.
    Asking,
    /// All have been sent, and the barrier behind them; it is asked again at one time and waited for until another.
    Barrier { again: Duration, until: Duration },
    /// The machine has answered the barrier; what it said before may be on its way until then.
    Pause { until: Duration },
}

/// Next action of the host for the scan.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// To wait: until the time that [`Scan::poll_timeout`] says.
    Wait,
    /// To ask the barrier of this round, behind all that has been asked.
    AskBarrier,
    /// End: the scan is over.
    Over(Report),
    /// End without a result: the barrier was not answered within [`CAUGHT_UP`], and so a silence says nothing.
    Behind,
}

impl Scan {
    /// `pause`: after the first round, for what it asked to be answered.
    pub(super) fn new(
        question: PortQuestion,
        target: Ipv4Addr,
        ports: impl IntoIterator<Item = u16>,
        pause: Duration,
    ) -> Self {
        let answers: BTreeMap<u16, PortAnswer> = ports.into_iter().map(|port| (port, PortAnswer::Silent)).collect();
        let to_ask = answers.keys().copied().collect();
        Self { question, target, pause, round: 1, to_ask, stage: Stage::Asking, answers }
    }

    /// The next port to ask. Asking it is what this promises: it is not offered again in this round.
    pub(super) fn ask(&mut self) -> Option<u16> {
        self.to_ask.pop_front()
    }

    /// Notes an answer; the first one counts. Whether the port was asked for at all.
    pub(super) fn answered(&mut self, port: u16, answer: PortAnswer) -> bool {
        let Some(known) = self.answers.get_mut(&port) else { return false };
        if *known == PortAnswer::Silent {
            *known = answer;
        }
        true
    }

    /// The number of the round, from 1.
    pub(super) fn round(&self) -> u8 {
        self.round
    }

    /// Notes that the machine has answered the barrier of this round.
    pub(super) fn caught_up(&mut self, now: Duration) {
        match self.stage {
            Stage::Barrier { .. } => self.stage = Stage::Pause { until: now + self.pause },
            // It has said so before; and nobody asks for it before all questions are sent.
            Stage::Pause { .. } | Stage::Asking => {}
        }
    }

    /// Moves on; `sent` says that all that was asked has been sent.
    pub(super) fn poll(&mut self, sent: bool, now: Duration) -> Next {
        if matches!(self.stage, Stage::Asking) && !(sent && self.to_ask.is_empty()) {
            return Next::Wait;
        }
        let silent = self.answers.iter().filter(|row| *row.1 == PortAnswer::Silent).map(|row| *row.0);
        let silent: VecDeque<u16> = silent.collect();
        if silent.is_empty() {
            return Next::Over(Report(std::mem::take(&mut self.answers)));
        }
        let rounds = if silent.len() <= FEW { ROUNDS_OF_FEW } else { ROUNDS };
        match self.stage {
            Stage::Asking => return self.ask_barrier(now, now + CAUGHT_UP),
            Stage::Barrier { until, .. } if now >= until => return Next::Behind,
            Stage::Barrier { again, until } if now >= again => return self.ask_barrier(now, until),
            Stage::Barrier { .. } => return Next::Wait,
            Stage::Pause { until } if now < until => return Next::Wait,
            Stage::Pause { .. } if self.round >= rounds => {
                return Next::Over(Report(std::mem::take(&mut self.answers)));
            }
            Stage::Pause { .. } => {}
        }
        self.round += 1;
        self.pause *= 2;
        self.to_ask = silent;
        self.stage = Stage::Asking;
        Next::Wait
    }

    fn ask_barrier(&mut self, now: Duration, until: Duration) -> Next {
        self.stage = Stage::Barrier { again: now + AGAIN, until };
        Next::AskBarrier
    }

    /// When [`Self::poll`] has to be called again at the latest; none while questions wait to be sent.
    pub(super) fn poll_timeout(&self) -> Option<Duration> {
        match self.stage {
            Stage::Asking => None,
            Stage::Barrier { again, until } => Some(again.min(until)),
            Stage::Pause { until } => Some(until),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAUSE: Duration = Duration::from_secs(1);

    fn scan(ports: impl IntoIterator<Item = u16>) -> Scan {
        Scan::new(PortQuestion::Tcp, Ipv4Addr::LOCALHOST, ports, PAUSE)
    }

    fn drain(scan: &mut Scan) -> Vec<u16> {
        std::iter::from_fn(|| scan.ask()).collect()
    }

    /// Goes on from `now`, when a round has been asked, to the end, by each deadline. Barriers are answered at once.
    fn pass(scan: &mut Scan, mut now: Duration) -> Report {
        loop {
            match scan.poll(true, now) {
                Next::Over(report) => return report,
                Next::AskBarrier => scan.caught_up(now),
                Next::Wait => {}
                Next::Behind => panic!("it has caught up"),
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
        assert_eq!(scan.poll(false, Duration::ZERO), Next::Wait);
        assert_eq!(scan.poll_timeout(), None, "the barrier is asked when all is sent");
        assert_eq!(scan.poll(true, Duration::ZERO), Next::AskBarrier);
        scan.caught_up(Duration::ZERO);
        assert_eq!(scan.poll(true, Duration::ZERO), Next::Wait);
        assert_eq!(scan.poll_timeout(), Some(PAUSE));
        assert!(scan.answered(2, PortAnswer::Open));
        assert!(scan.answered(2, PortAnswer::Closed), "known, and too late to count");
        assert!(!scan.answered(9, PortAnswer::Open));
        assert_eq!(scan.poll(true, PAUSE), Next::Wait);
        assert_eq!(drain(&mut scan), [1, 3]);
        scan.answered(3, PortAnswer::Closed);
        let report = pass(&mut scan, PAUSE);
        assert_eq!(report.ports(PortAnswer::Silent), [1]);
        assert_eq!(report.ports(PortAnswer::Open), [2]);
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
            match scan.poll(true, now) {
                Next::Over(_) => {
                    rounds.push(now.as_secs());
                    return rounds;
                }
                Next::AskBarrier => scan.caught_up(now),
                Next::Wait => {}
                Next::Behind => panic!("it has caught up"),
            }
            now = scan.poll_timeout().unwrap_or(now);
        }
    }

    #[test]
    fn few_silent_ports_are_asked_more_often_than_many() {
        assert_eq!(rounds(64), [0, 1, 3, 7, 15, 31]);
        assert_eq!(rounds(65), [0, 1, 3, 7]);
    }

    #[test]
    fn it_ends_early_when_all_have_answered() {
        let mut scan = scan([80]);
        drain(&mut scan);
        scan.answered(80, PortAnswer::Unreachable);
        let over = scan.poll(true, Duration::ZERO);
        assert_eq!(over, Next::Over(Report([(80, PortAnswer::Unreachable)].into())), "no barrier is needed");
    }

    #[test]
    fn a_scan_of_nothing_is_over() {
        assert_eq!(scan([]).poll(true, Duration::ZERO), Next::Over(Report(BTreeMap::new())));
    }

    #[test]
    fn a_barrier_is_asked_again_until_answered_and_then_a_pause() {
        let second = Duration::from_secs;
        let mut scan = scan([80]);
        scan.caught_up(second(0));
        assert_eq!(scan.poll(true, second(0)), Next::Wait, "what was said too early says nothing: it is to be asked");
        drain(&mut scan);
        for now in 0..9 {
            assert_eq!(scan.poll(true, second(now)), Next::AskBarrier);
            assert_eq!(scan.poll(true, second(now)), Next::Wait);
            assert_eq!(scan.poll_timeout(), Some(second(now + 1)));
        }
        scan.caught_up(second(9));
        scan.caught_up(second(10));
        assert_eq!(scan.poll_timeout(), Some(second(10)), "the first answer counts");
        assert_eq!((scan.poll(true, second(10)), scan.round()), (Next::Wait, 2));
        assert_eq!(drain(&mut scan), [80]);
        assert_eq!(scan.poll(true, second(10)), Next::AskBarrier);
    }

    #[test]
    fn an_unanswered_barrier_is_given_up_whatever_is_left_to_send() {
        let mut scan = scan([80]);
        drain(&mut scan);
        assert_eq!(scan.poll(true, Duration::ZERO), Next::AskBarrier);
        assert_eq!(scan.poll(false, CAUGHT_UP - Duration::from_nanos(1)), Next::AskBarrier);
        assert_eq!(scan.poll_timeout(), Some(CAUGHT_UP));
        assert_eq!(scan.poll(false, CAUGHT_UP), Next::Behind);
    }

    #[test]
    fn a_port_that_answers_before_the_barrier_does_counts() {
        let mut scan = scan([80]);
        drain(&mut scan);
        assert_eq!(scan.poll(true, Duration::ZERO), Next::AskBarrier);
        scan.answered(80, PortAnswer::Closed);
        assert_eq!(scan.poll(true, CAUGHT_UP), Next::Over(Report([(80, PortAnswer::Closed)].into())));
    }
}
