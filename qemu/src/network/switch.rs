//! A learning switch: where a frame goes (IEEE 802.1D, clause 7, without spanning tree: cables here form no loops). Pure;
//! it keeps no frames. It must never send one back to the port that it came from, and no port can make it forget what it
//! learnt of the others.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::counters::DropReason;
use super::frame::Frame;
use crate::machine::Mac;

/// A port of a switch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Port(pub(super) usize);

/// An address is forgotten after this time without a frame of it (the standard's default).
const AGE: Duration = Duration::from_secs(300);
/// Addresses that are kept of one port; what claims more loses its oldest. A machine with a bridge inside has a few.
const ADDRESSES: usize = 256;

/// Switch that learns at which port a station is.
#[derive(Debug, Default)]
pub(super) struct Switch {
    ports: BTreeSet<Port>,
    stations: BTreeMap<Mac, Seen>,
}

/// Where a station was last heard, and when.
#[derive(Debug, Clone, Copy)]
struct Seen {
    port: Port,
    at: Duration,
}

impl Switch {
    /// A cable was plugged in.
    pub(super) fn plug(&mut self, port: Port) {
        self.ports.insert(port);
    }

    /// Forgets the stations at a port: they may come back elsewhere.
    pub(super) fn forget(&mut self, port: Port) {
        self.stations.retain(|_, seen| seen.port != port);
    }

    /// Puts the ports that `frame` leaves by into `out`: one at least.
    pub(super) fn pass(
        &mut self,
        from: Port,
        frame: &Frame,
        now: Duration,
        out: &mut Vec<Port>,
    ) -> Result<(), DropReason> {
        out.clear();
        if frame.source().is_group() {
            return Err(DropReason::GroupSource);
        }
        self.learn(frame.source(), from, now);
        match self.place(frame.destination(), now) {
            Some(port) if port == from => return Err(DropReason::SamePort),
            Some(port) => out.push(port),
            None => out.extend(self.ports.iter().filter(|port| **port != from)),
        }
        if out.is_empty() { Err(DropReason::Alone) } else { Ok(()) }
    }

    /// The port behind which a station is, if that is known.
    pub(super) fn place(&self, station: Mac, now: Duration) -> Option<Port> {
        self.stations.get(&station).filter(|seen| now < seen.at + AGE).map(|seen| seen.port)
    }

    fn learn(&mut self, station: Mac, port: Port, now: Duration) {
        let known = self.stations.insert(station, Seen { port, at: now });
        if known.is_some_and(|seen| seen.port == port) {
            return;
        }
        let here = || self.stations.iter().filter(|(_, seen)| seen.port == port);
        if here().count() > ADDRESSES
            && let Some((&oldest, _)) = here().min_by_key(|(_, seen)| seen.at)
        {
            self.stations.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NOW: Duration = Duration::from_secs(1000);

    fn switch(ports: usize) -> Switch {
        let mut switch = Switch::default();
        (0..ports).for_each(|port| switch.plug(Port(port)));
        switch
    }

    fn frame(source: Mac, destination: Mac) -> Frame {
        Frame::parse(&[&destination.0[..], &source.0, &[8, 0]].concat()).unwrap()
    }

    fn pass(switch: &mut Switch, from: usize, to_from: (u32, u32), now: Duration) -> Result<Vec<usize>, DropReason> {
        let mut out = vec![Port(99)];
        let frame = frame(Mac::numbered(to_from.1), Mac::numbered(to_from.0));
        switch.pass(Port(from), &frame, now, &mut out)?;
        Ok(out.into_iter().map(|port| port.0).collect())
    }

    #[test]
    fn a_station_is_asked_of_all_until_heard_and_when_long_silent() {
        let mut switch = switch(3);
        assert_eq!(pass(&mut switch, 0, (2, 1), NOW), Ok(vec![1, 2]));
        assert_eq!(pass(&mut switch, 2, (1, 2), NOW), Ok(vec![0]));
        assert_eq!(pass(&mut switch, 0, (2, 1), NOW + AGE - Duration::from_nanos(1)), Ok(vec![2]));
        assert_eq!(pass(&mut switch, 0, (2, 1), NOW + AGE), Ok(vec![1, 2]));
    }

    #[test]
    fn a_station_that_moves_is_found_where_it_was_heard_last() {
        let mut switch = switch(3);
        for place in [1, 2, 1] {
            pass(&mut switch, place, (9, 2), NOW).unwrap();
            assert_eq!(pass(&mut switch, 0, (2, 1), NOW), Ok(vec![place]));
        }
        switch.forget(Port(1));
        assert_eq!(pass(&mut switch, 0, (2, 1), NOW), Ok(vec![1, 2]));
    }

    #[test]
    fn what_nobody_is_to_get_goes_nowhere_and_says_why() {
        let mut switch = switch(2);
        pass(&mut switch, 0, (9, 1), NOW).unwrap();
        assert_eq!(pass(&mut switch, 0, (1, 2), NOW), Err(DropReason::SamePort));
        let from_all = frame(Mac([0xff; 6]), Mac::numbered(1));
        assert_eq!(switch.pass(Port(1), &from_all, NOW, &mut vec![]), Err(DropReason::GroupSource));
        let mut lonely = self::switch(1);
        assert_eq!(pass(&mut lonely, 0, (9, 1), NOW), Err(DropReason::Alone));
    }

    #[test]
    fn a_port_that_claims_a_million_addresses_loses_its_own_oldest() {
        let mut switch = switch(3);
        pass(&mut switch, 1, (9, 2), NOW).unwrap();
        for claimed in 0..10_000 {
            let now = NOW + Duration::from_millis(claimed.into());
            pass(&mut switch, 0, (9, 100 + claimed), now).unwrap();
            assert!(switch.stations.len() <= 1 + ADDRESSES);
        }
        let later = NOW + Duration::from_secs(10);
        assert_eq!(switch.place(Mac::numbered(2), later), Some(Port(1)), "the other port's");
        assert_eq!(switch.place(Mac::numbered(100 + 9_999), later), Some(Port(0)), "its newest");
        assert_eq!(switch.place(Mac::numbered(100), later), None, "its oldest");
    }

    proptest! {
        /// Against a switch that remembers all and looks it up at the end of the list.
        #[test]
        fn a_frame_leaves_by_its_stations_newest_port_or_by_all_others(
            steps in prop::collection::vec((0..4_usize, 0..6_u32, 0..6_u32, 0..200_u64), 0..60),
        ) {
            let (mut switch, mut heard, mut now) = (switch(4), Vec::new(), NOW);
            for (from, source, destination, seconds) in steps {
                now += Duration::from_secs(seconds);
                heard.push((source, from, now));
                let newest = heard.iter().rev().find(|(station, ..)| *station == destination);
                let expected = match newest.filter(|(.., at)| now - *at < AGE) {
                    Some((_, port, _)) if *port == from => Err(DropReason::SamePort),
                    Some((_, port, _)) => Ok(vec![*port]),
                    None => Ok((0..4).filter(|port| *port != from).collect()),
                };
                prop_assert_eq!(pass(&mut switch, from, (destination, source), now), expected);
            }
        }
    }
}
