//! How much strangers may have written down: once a minute for each source and topic, and a bound for all of them
//! together. What is left out is counted, and the next line tells the number.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use crate::bucket::{Bucket, Rate};

/// Time in which one line per source and topic is written.
const AGAIN: Duration = Duration::from_secs(60);
/// All sources together: enough to see that something goes on, from where and since when.
const ALL: Rate = Rate { every: Duration::from_secs(1), burst: 60 };

/// Topic of a line, each with its own quiet time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Topic {
    /// A connection that was refused or ended.
    Connection,
    /// A call that was refused.
    Refusal,
    /// A call that was answered to a caller without a certificate.
    Answer,
}

/// Lines that were written lately, by source and topic.
#[derive(Debug, Default)]
pub struct Lines {
    written: HashMap<(IpAddr, Topic), Instant>,
    all: Bucket,
    left_out: u64,
}

impl Lines {
    /// Whether `source` is written down for `topic` now; then, how many lines were left out since the last one.
    pub fn may_write(&mut self, source: IpAddr, topic: Topic, now: Instant) -> Option<u64> {
        // As old as that counts no more: so few are younger as could be written.
        self.written.retain(|_, at| now.duration_since(*at) < AGAIN);
        if self.written.contains_key(&(source, topic)) || !self.all.take(ALL, 0, now) {
            self.left_out += 1;
            return None;
        }
        self.written.insert((source, topic), now);
        Some(std::mem::take(&mut self.left_out))
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use proptest::prelude::*;

    use super::*;

    fn source(number: u32) -> IpAddr {
        Ipv4Addr::from_bits(0xc000_0200 + number).into()
    }

    /// Proves: A6 Q1
    #[test]
    fn a_source_is_written_down_once_a_minute_for_each_topic() {
        let (mut lines, begin) = (Lines::default(), testkit::origin());
        let after = |seconds| begin + Duration::from_secs(seconds);
        assert_eq!(lines.may_write(source(1), Topic::Refusal, begin), Some(0));
        assert_eq!(lines.may_write(source(1), Topic::Refusal, after(59)), None);
        assert_eq!(lines.may_write(source(1), Topic::Answer, after(59)), Some(1), "another topic; one was left out");
        assert_eq!(lines.may_write(source(2), Topic::Refusal, after(59)), Some(0), "another source");
        assert_eq!(lines.may_write(source(1), Topic::Refusal, after(60)), Some(0));
    }

    /// Five thousand sources in a minute are one minute's lines, not five thousand. Proves: Q1
    #[test]
    fn lines_are_bounded_and_those_left_out_are_counted() {
        let (mut lines, begin) = (Lines::default(), testkit::origin());
        let (mut written, mut left_out) = (0, 0);
        for number in 0..5000 {
            let now = begin + Duration::from_millis(12 * u64::from(number));
            if let Some(before) = lines.may_write(source(number), Topic::Refusal, now) {
                (written, left_out) = (written + 1, left_out + before);
            }
        }
        assert_eq!(written, 60 + 59, "the burst, then one a second");
        assert_eq!(written + left_out + lines.left_out, 5000);
        assert!(lines.written.len() <= 120);
    }

    proptest! {
        #[test]
        fn no_minute_has_more_than_its_bound(knocks in prop::collection::vec((0u32..500, 0u64..200), 1..600)) {
            let (mut lines, mut now) = (Lines::default(), testkit::origin());
            let mut at = Vec::new();
            for (number, millis) in knocks {
                now += Duration::from_millis(millis);
                if lines.may_write(source(number), Topic::Connection, now).is_some() {
                    at.push(now);
                }
            }
            for (index, first) in at.iter().enumerate() {
                let minute = at[index..].iter().filter(|time| time.duration_since(*first) < AGAIN).count();
                prop_assert!(minute <= 120, "{minute}");
            }
        }
    }
}
