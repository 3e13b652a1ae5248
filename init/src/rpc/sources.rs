//! Who is connected, how often, and who was told off lately: the bounds on what a stranger can cause.
//! Decides by counts and time only; knows nothing of what is said on a connection.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::{clock, lock};

/// Connections at a time, from all sources: 64 KiB each at worst, so 16 MiB is never reached by far.
const CONNECTIONS: u32 = 128;
/// Connections at a time from one address: a CLI needs two, a person with a few windows ten.
const PER_SOURCE: u32 = 32;
/// One log line per source and topic in this time.
const QUIET: Duration = Duration::from_secs(60);
/// Sources that are remembered; with more of them the log stays silent about new ones.
const REMEMBERED: usize = 1024;

/// All sources; clones share them.
#[derive(Debug, Clone, Default)]
pub(super) struct Sources(Arc<Mutex<HashMap<IpAddr, Source>>>);

/// What a source is written down for, each with its own quiet time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Topic {
    /// A connection that was refused.
    Connection,
    /// A call that was refused.
    Refusal,
    /// A call that was answered to a caller without a certificate.
    Answer,
}

#[derive(Debug, Default)]
struct Source {
    connections: u32,
    told: [Option<Instant>; 3],
}

/// A connection's place among the bounded number; given back when dropped.
#[derive(Debug)]
pub(super) struct Place {
    source: IpAddr,
    sources: Sources,
}

impl Sources {
    /// A place for a new connection, if there is one left.
    pub(super) fn admit(&self, source: IpAddr) -> Option<Place> {
        let mut sources = lock::even_if_poisoned(&self.0);
        let all: u32 = sources.values().map(|source| source.connections).sum();
        let entry = sources.entry(source).or_default();
        if all >= CONNECTIONS || entry.connections >= PER_SOURCE {
            return None;
        }
        entry.connections += 1;
        Some(Place { source, sources: self.clone() })
    }

    /// Logs why a connection of a source was refused, once a minute.
    pub(super) fn tell(&self, source: IpAddr, what: &str) {
        if self.first_lately(source, Topic::Connection, clock::now()) {
            tracing::info!(%source, what, "connection refused");
        }
    }

    /// Whether this is the first time in a minute that `source` is written down for `topic`.
    pub(super) fn first_lately(&self, source: IpAddr, topic: Topic, now: Instant) -> bool {
        let recent = |told: &Option<Instant>| told.is_some_and(|told| now.duration_since(told) < QUIET);
        let mut sources = lock::even_if_poisoned(&self.0);
        // Sources that are gone and were not written down lately are forgotten: the map stays as small as the network.
        sources.retain(|_, source| source.connections > 0 || source.told.iter().any(recent));
        if sources.len() >= REMEMBERED && !sources.contains_key(&source) {
            return false;
        }
        let told = match topic {
            Topic::Connection => 0,
            Topic::Refusal => 1,
            Topic::Answer => 2,
        };
        let told = &mut sources.entry(source).or_default().told[told];
        let first = !recent(told);
        if first {
            *told = Some(now);
        }
        first
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut sources = lock::even_if_poisoned(&self.sources.0);
        if let Some(source) = sources.get_mut(&self.source) {
            source.connections = source.connections.saturating_sub(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn source(number: u32) -> IpAddr {
        Ipv4Addr::from_bits(0xc000_0200 + number).into()
    }

    /// Proves: A6 Q1
    #[test]
    fn places_are_bounded_per_source_and_in_all_and_come_back() {
        let sources = Sources::default();
        let mut places: Vec<Place> = std::iter::from_fn(|| sources.admit(source(1))).collect();
        assert_eq!(places.len(), 32, "one source");
        for number in 2..9 {
            places.extend(std::iter::from_fn(|| sources.admit(source(number))));
        }
        assert_eq!(places.len(), 128, "all of them");
        assert!(sources.admit(source(99)).is_none());
        places.pop();
        assert!(sources.admit(source(99)).is_some());
    }

    /// Proves: A6 Q1
    #[test]
    fn a_source_is_written_down_once_a_minute_for_each_topic() {
        let (sources, begin) = (Sources::default(), clock::now());
        let after = |seconds| begin + Duration::from_secs(seconds);
        assert!(sources.first_lately(source(1), Topic::Refusal, begin));
        assert!(!sources.first_lately(source(1), Topic::Refusal, after(59)));
        assert!(sources.first_lately(source(1), Topic::Answer, after(59)), "another topic");
        assert!(sources.first_lately(source(2), Topic::Refusal, after(59)), "another source");
        assert!(sources.first_lately(source(1), Topic::Refusal, after(60)));
    }

    #[test]
    fn what_is_remembered_of_sources_is_bounded_and_forgotten() {
        let (sources, begin) = (Sources::default(), clock::now());
        let told = |at| (0..5000).filter(|number| sources.first_lately(source(*number), Topic::Connection, at)).count();
        assert_eq!(told(begin), 1024);
        assert_eq!(told(begin), 0);
        assert_eq!(told(begin + QUIET), 1024, "the first ones are forgotten");
    }
}
