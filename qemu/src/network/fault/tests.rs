//! Each fault measured, and all of them together against what must hold of any cable.

use proptest::prelude::*;

use super::*;

const PAYLOAD: usize = 86;
const MS: Duration = Duration::from_millis(1);

/// A frame of 100 bytes that says which one it is.
fn frame(number: u32) -> Frame {
    Frame::parse(&[&[0; HEADER][..], &number.to_be_bytes(), &[0; PAYLOAD - 4]].concat()).unwrap()
}

fn number(frame: &Frame) -> u32 {
    u32::from_be_bytes(*frame.bytes()[HEADER..].first_chunk().unwrap())
}

fn percent(parts: u32) -> Chance {
    Chance::per_million(parts * 10_000).unwrap()
}

/// Sends so many frames, one every `gap`; when each arrived, in the order of arrival.
fn run(faults: Faults, seed: u64, frames: u32, gap: Duration) -> (Vec<(u32, Duration)>, FrameCounters) {
    let (mut line, mut counters, mut arrived) = (Line::new(seed), FrameCounters::default(), Vec::new());
    line.set_faults(faults, &mut counters);
    for index in 0..frames {
        let now = gap * index;
        drain(&mut line, now, &mut arrived);
        line.send(&frame(index), now, &mut counters);
    }
    drain(&mut line, Duration::MAX, &mut arrived);
    counters.delivered = arrived.len() as u64;
    assert!(counters.balance(), "{counters:?}");
    (arrived, counters)
}

fn drain(line: &mut Line, until: Duration, arrived: &mut Vec<(u32, Duration)>) {
    while let Some(at) = line.next_arrival().filter(|at| *at <= until) {
        assert!(at.is_zero() || line.receive(at - Duration::from_nanos(1)).is_none(), "not before its time");
        arrived.push((number(&line.receive(at).unwrap()), at));
    }
}

#[test]
fn a_good_cable_changes_nothing() {
    let (arrived, _) = run(Faults::default(), 1, 1000, MS);
    assert_eq!(arrived, (0..1000).map(|index| (index, MS * index)).collect::<Vec<_>>());
}

#[test]
fn as_many_are_lost_as_asked_for_and_the_same_for_a_seed() {
    let faults = Faults { loss: percent(5), ..Faults::default() };
    let (arrived, counters) = run(faults, 7, 100_000, MS);
    let lost = counters.dropped[&DropReason::Loss];
    assert!((4_800..=5_200).contains(&lost), "{lost}");
    assert_eq!(run(faults, 7, 100_000, MS).0, arrived);
    assert_ne!(run(faults, 8, 100_000, MS).0, arrived);
    assert_eq!(run(Faults { loss: percent(100), ..Faults::default() }, 7, 100, MS).0, []);
    assert_eq!(Chance::per_million(1_000_001), Err(MoreThanAll(1_000_001)));
}

#[test]
fn delay_and_jitter_keep_their_bounds_and_the_order() {
    let faults = Faults { delay: 50 * MS, jitter: 20 * MS, ..Faults::default() };
    let (arrived, _) = run(faults, 7, 10_000, MS);
    assert!(arrived.iter().map(|row| row.0).eq(0..10_000), "in order, all of them");
    assert!(arrived.iter().all(|(index, at)| (50 * MS..=70 * MS).contains(&(*at - MS * *index))));
    // Further apart than the jitter, none waits for the one before it.
    let (arrived, _) = run(faults, 7, 10_000, 25 * MS);
    let late = |(index, at): &(u32, Duration)| *at - 25 * MS * *index;
    let (least, most) = (arrived.iter().map(late).min().unwrap(), arrived.iter().map(late).max().unwrap());
    assert!(50 * MS <= least && least < 51 * MS, "{least:?}");
    assert!(69 * MS < most && most <= 70 * MS, "{most:?}");
}

#[test]
fn so_many_come_twice() {
    let (arrived, counters) = run(Faults { duplicate: percent(10), ..Faults::default() }, 7, 10_000, MS);
    assert!((900..=1100).contains(&counters.duplicated), "{counters:?}");
    assert_eq!(arrived.len() as u64, 10_000 + counters.duplicated);
    assert!(arrived.windows(2).filter(|pair| pair[0].0 == pair[1].0).count() as u64 == counters.duplicated);
}

#[test]
fn so_many_are_overtaken_by_those_of_the_next_moments() {
    let (arrived, _) = run(Faults { reorder: percent(10), ..Faults::default() }, 7, 10_000, MS);
    let held_back: Vec<_> = arrived.iter().filter(|(index, at)| *at > MS * *index).collect();
    assert!((900..=1100).contains(&held_back.len()), "{}", held_back.len());
    assert!(held_back.iter().all(|(index, at)| *at == MS * *index + HELD_BACK));
    let overtaken = arrived.windows(2).filter(|pair| pair[0].0 > pair[1].0).count();
    assert!(overtaken > 700, "{overtaken}");
    assert_eq!(arrived.len(), 10_000);
}

/// 100 bytes at 100 kbit/s are 8 ms; what comes at twice that rate waits, and what would wait too long is dropped.
#[test]
fn a_slow_cable_carries_what_it_can_and_has_a_short_queue() {
    let faults = Faults { rate: Some(100_000), ..Faults::default() };
    let (arrived, counters) = run(faults, 7, 1000, 4 * MS);
    assert_eq!(arrived[0], (0, 8 * MS));
    assert!(arrived.windows(2).all(|pair| pair[1].1 - pair[0].1 == 8 * MS), "never idle, never faster");
    let waits = arrived.iter().map(|(index, at)| *at - 4 * MS * *index).max().unwrap();
    assert!(waits <= LONGEST_WAIT + 8 * MS && waits > LONGEST_WAIT - 8 * MS, "{waits:?}");
    assert!((470..=480).contains(&counters.dropped[&DropReason::Rate]), "{counters:?}");
    let (arrived, _) = run(faults, 7, 100, 8 * MS);
    assert!(arrived.iter().all(|(index, at)| *at == 8 * MS * (*index + 1)), "at its own rate nothing waits");
}

#[test]
fn what_is_too_long_is_dropped_and_nothing_shorter() {
    let mtu = u16::try_from(PAYLOAD).unwrap();
    assert_eq!(run(Faults { mtu: Some(mtu), ..Faults::default() }, 7, 10, MS).0.len(), 10);
    let (_, counters) = run(Faults { mtu: Some(mtu - 1), ..Faults::default() }, 7, 10, MS);
    assert_eq!(counters.dropped[&DropReason::Mtu], 10);
}

#[test]
fn a_cut_loses_what_is_on_its_way_and_comes_until_mended() {
    let (mut line, mut counters) = (Line::new(7), FrameCounters::default());
    let long = Faults { delay: 50 * MS, ..Faults::default() };
    line.set_faults(long, &mut counters);
    (0..3).for_each(|index| line.send(&frame(index), MS, &mut counters));
    assert_eq!(line.held(), 3);
    line.set_faults(Faults { cable: Cut::Cut, ..long }, &mut counters);
    line.send(&frame(3), 2 * MS, &mut counters);
    assert_eq!((line.held(), counters.dropped[&DropReason::Cut]), (0, 4));
    line.set_faults(long, &mut counters);
    line.send(&frame(4), 3 * MS, &mut counters);
    assert_eq!(line.receive(53 * MS).as_ref().map(number), Some(4));
}

#[test]
fn a_cable_that_becomes_shorter_keeps_nobody_waiting() {
    let (mut line, mut counters) = (Line::new(7), FrameCounters::default());
    line.set_faults(Faults { delay: 1000 * MS, rate: Some(10_000), ..Faults::default() }, &mut counters);
    line.send(&frame(0), MS, &mut counters);
    line.set_faults(Faults::default(), &mut counters);
    line.send(&frame(1), MS, &mut counters);
    assert_eq!(line.receive(MS).as_ref().map(number), Some(1));
    assert_eq!(line.receive(MS), None);
    assert_eq!(line.receive(1081 * MS).as_ref().map(number), Some(0));
}

#[test]
fn what_is_on_its_way_is_bounded() {
    let (mut line, mut counters) = (Line::new(7), FrameCounters::default());
    line.set_faults(Faults { delay: 1000 * MS, ..Faults::default() }, &mut counters);
    (0..100_000).for_each(|index| line.send(&frame(index), MS, &mut counters));
    assert_eq!(line.held(), ON_THE_WAY / 100);
    assert_eq!(counters.dropped[&DropReason::Full], 100_000 - line.held() as u64);
    while line.receive(1001 * MS).is_some() {}
    assert_eq!(line.bytes, 0);
}

fn faults() -> impl Strategy<Value = Faults> {
    let chance = || (0..=100_u32).prop_map(percent);
    let time = || (0..100_u32).prop_map(|ms| MS * ms);
    let cable = prop_oneof![4 => Just(Cut::Whole), 1 => Just(Cut::Cut)];
    let rate = prop_oneof![Just(None), (0..1_000_000_u64).prop_map(Some)];
    let mtu = prop_oneof![Just(None), (0..200_u16).prop_map(Some)];
    (cable, chance(), chance(), chance(), time(), time(), rate, mtu).prop_map(
        |(cable, loss, duplicate, reorder, delay, jitter, rate, mtu)| Faults {
            cable,
            loss,
            duplicate,
            reorder,
            delay,
            jitter,
            rate,
            mtu,
        },
    )
}

proptest! {
    /// Every frame is delivered, dropped for a reason, or on its way, with any faults and any changes of them; none
    /// arrives that was not sent, none changed, and none before its delay.
    #[test]
    fn every_frame_is_accounted_for(
        seed: u64,
        steps in prop::collection::vec((0..5_u32, prop::option::weighted(0.2, faults()), 0..30_u32), 1..80),
    ) {
        let (mut line, mut counters, mut now, mut sent) = (Line::new(seed), FrameCounters::default(), Duration::ZERO, 0_u32);
        let mut earliest = Vec::new();
        for (frames, change, later) in steps {
            if let Some(faults) = change {
                line.set_faults(faults, &mut counters);
            }
            for _ in 0..frames {
                earliest.push(now + line.faults.delay);
                line.send(&frame(sent), now, &mut counters);
                sent += 1;
            }
            now += MS * later;
            while let Some(arrived) = line.receive(now) {
                counters.delivered += 1;
                let index = number(&arrived);
                prop_assert!(index < sent && arrived == frame(index));
                prop_assert!(earliest[usize::try_from(index).unwrap()] <= now);
            }
            counters.held = line.held() as u64;
            prop_assert_eq!(counters.taken, u64::from(sent));
            prop_assert!(counters.balance(), "{:?}", counters);
            prop_assert!(line.next_arrival().is_none_or(|at| at > now));
        }
    }
}
