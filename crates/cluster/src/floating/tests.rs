//! Machines and coordinators over one record, in virtual time: messages are late or lost, clocks run at paces of their own, machines stop
//! and go on, and the record is another one at any moment.

use testkit::Random;

use super::*;
use crate::fixture;
use crate::key::Key;
use crate::record::HolderRecord;
use crate::state::KeyValue;

const ADDRESS: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 50);
const MACHINES: usize = 3;
const COORDINATORS: usize = 2;
const TICK: Duration = Duration::from_millis(100);
/// How long a machine waits for an answer.
const PATIENCE: Duration = Duration::from_secs(2);

fn id(n: usize) -> MachineId {
    fixture::machine(u8::try_from(n + 1).expect("few")).id()
}

/// Records in which machine `holder` holds the address since this revision.
fn state(holder: usize, revision: u64) -> State {
    let machine = |n: usize| {
        let record = fixture::machine(u8::try_from(n + 1).expect("few"));
        KeyValue { key: Key::Machine(record.id()).bytes(), value: record.encode(), mod_revision: 1 }
    };
    let holder = KeyValue {
        key: Key::Floating(ADDRESS).bytes(),
        value: HolderRecord(id(holder)).encode(),
        mod_revision: revision,
    };
    State::read((0..MACHINES).map(machine).chain([holder])).expect("our own")
}

fn all() -> BTreeSet<Ipv4Addr> {
    [ADDRESS].into()
}

/// Clock that runs at a pace of its own, in thousandths.
#[derive(Clone, Copy)]
struct Clock(Instant, u32);

impl Clock {
    fn at(self, past: Duration) -> Instant {
        self.0 + past * self.1 / 1000
    }
}

/// Message on its way.
enum Message {
    Named(usize, bool),
    Seen { by: usize, holder: usize, revision: u64 },
    Question { from: usize, number: usize, to: usize },
    Answer { to: usize, number: usize, granted: BTreeSet<Ipv4Addr> },
}

struct Machine {
    keeper: AddressKeeper,
    clock: Clock,
    /// Question that is waited for, by its number, and since when.
    waits: Option<(usize, Duration)>,
    stopped_until: Duration,
}

struct World {
    random: Random,
    now: Duration,
    machines: Vec<Machine>,
    coordinators: Vec<(FloatingGrants, Clock)>,
    holder: usize,
    revision: u64,
    messages: Vec<(Duration, Message)>,
    questions: usize,
    /// Whether messages are late and lost, and machines stop.
    disturbed: bool,
    /// Coordinator that answers nobody.
    silent: Option<usize>,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let origin = testkit::origin();
        let mut clock = || Clock(origin, 900 + u32::try_from(random.below(200)).expect("few"));
        let machine = |clock: Clock| Machine {
            keeper: AddressKeeper::begin(clock.0),
            clock,
            waits: None,
            stopped_until: Duration::ZERO,
        };
        let machines = (0..MACHINES).map(|_| machine(clock())).collect();
        let coordinators = (0..COORDINATORS).map(|_| (FloatingGrants::default(), clock())).collect();
        let (now, messages) = (Duration::ZERO, Vec::new());
        let mut world = Self {
            random,
            now,
            machines,
            coordinators,
            holder: 0,
            revision: 1,
            messages,
            questions: 0,
            disturbed: true,
            silent: None,
        };
        world.moves(0);
        world
    }

    fn sends(&mut self, message: Message) {
        let lost = self.disturbed && self.random.below(10) == 0;
        let late = if self.disturbed && self.random.below(8) == 0 { 12_000 } else { 300 };
        if !lost {
            let late = Duration::from_millis(u64::try_from(self.random.below(late)).expect("few"));
            self.messages.push((self.now + late, message));
        }
    }

    /// Has another machine be the holder; each hears of its own name.
    fn moves(&mut self, holder: usize) {
        (self.holder, self.revision) = (holder, self.revision + 1);
        (0..MACHINES).for_each(|n| self.sends(Message::Named(n, n == holder)));
        let (holder, revision) = (self.holder, self.revision);
        (0..COORDINATORS).for_each(|by| self.sends(Message::Seen { by, holder, revision }));
    }

    fn hear(&mut self, message: Message) {
        match message {
            Message::Named(n, is_named) => self.machines[n].keeper.name(if is_named { all() } else { BTreeSet::new() }),
            // A watch tells of changes in their order.
            Message::Seen { revision, .. } if revision < self.revision => {}
            Message::Seen { by, holder, revision } => {
                let (grants, clock) = &mut self.coordinators[by];
                grants.see(&state(holder, revision), clock.at(self.now));
            }
            Message::Question { to, .. } if self.silent == Some(to) => {}
            Message::Question { from, number, to } => {
                let (grants, clock) = &mut self.coordinators[to];
                let state = state(self.holder, self.revision);
                let granted = grants.grant(&state, (&id(from), &all()), clock.at(self.now));
                self.sends(Message::Answer { to: from, number, granted });
            }
            Message::Answer { to, number, granted } => {
                let machine = &mut self.machines[to];
                if machine.waits.is_some_and(|(waits, _)| waits == number) {
                    machine.waits = None;
                    machine.keeper.answered(Some(granted), machine.clock.at(self.now));
                }
            }
        }
    }

    fn tick(&mut self) {
        self.now += TICK;
        let stopped = |machine: &Machine| machine.stopped_until > self.now;
        let waits = |message: &Message, machines: &[Machine]| match message {
            Message::Named(to, _) | Message::Answer { to, .. } => stopped(&machines[*to]),
            Message::Question { .. } | Message::Seen { .. } => false,
        };
        let (due, later) = std::mem::take(&mut self.messages)
            .into_iter()
            .partition(|(at, message)| *at <= self.now && !waits(message, &self.machines));
        self.messages = later;
        let due: Vec<_> = due;
        due.into_iter().for_each(|(_, message)| self.hear(message));
        for n in 0..MACHINES {
            if self.machines[n].stopped_until > self.now {
                continue;
            }
            let machine = &mut self.machines[n];
            let now = machine.clock.at(self.now);
            if machine.waits.take_if(|(_, since)| self.now >= *since + PATIENCE).is_some() {
                machine.keeper.answered(None, now);
            }
            if let Some((to, _)) = machine.keeper.question(now) {
                self.questions += 1;
                machine.waits = Some((self.questions, self.now));
                self.sends(Message::Question { from: n, number: self.questions, to: to % COORDINATORS });
            }
            if self.disturbed && self.random.below(1500) == 0 {
                let long = self.random.below(60_000);
                self.machines[n].stopped_until = self.now + Duration::from_millis(u64::try_from(long).expect("few"));
            }
        }
        let _forgets = self.disturbed && self.random.below(2000) == 0 && {
            let n = self.random.below(COORDINATORS);
            self.coordinators[n].0 = FloatingGrants::default(); // it starts anew
            true
        };
    }

    /// Machines that run and have the address.
    fn holders(&mut self) -> Vec<usize> {
        let now = self.now;
        let holds = |(n, machine): (usize, &mut Machine)| {
            let has = machine.keeper.held(machine.clock.at(now)).contains(&ADDRESS);
            (machine.stopped_until <= now && has).then_some(n)
        };
        self.machines.iter_mut().enumerate().filter_map(holds).collect()
    }
}

/// Proves: W8
#[test]
fn an_address_never_has_two_holders() {
    let mut held = 0;
    for seed in 1..=100 {
        let mut world = World::new(seed);
        for _ in 0..6000 {
            world.tick();
            let holders = world.holders();
            assert!(holders.len() <= 1, "seed {seed}, after {:?}: {holders:?}", world.now);
            held += holders.len();
            if world.random.below(300) == 0 {
                let next = world.random.below(MACHINES);
                world.moves(next);
            }
        }
    }
    // Otherwise it would have been too rare to be held twice.
    assert!(held > 100 * 6000 / 4, "it was held in {held} of 600 000 moments");
}

/// Proves: W8
#[test]
fn the_machine_that_is_named_holds_the_address_soon() {
    for seed in 1..=100 {
        let mut world = World::new(seed);
        (world.disturbed, world.messages) = (false, Vec::new());
        for next in [0, 1, 2, 0] {
            world.moves(next);
            let moved = world.now;
            while world.holders() != [next] {
                world.tick();
                assert!(world.now < moved + Duration::from_secs(17), "seed {seed}: {next} does not hold it");
            }
            for silent in [None, Some(0), Some(1)] {
                world.silent = silent;
                (0..200).for_each(|_| {
                    world.tick();
                    assert_eq!(world.holders(), [next], "seed {seed}: who holds it keeps it, whoever answers");
                });
            }
            world.silent = None;
        }
    }
}

/// Proves: W8
#[test]
fn a_coordinator_that_is_silent_is_left_for_another() {
    let (now, second) = (testkit::origin(), Duration::from_secs(1));
    let mut keeper = AddressKeeper::begin(now);
    assert_eq!((keeper.question(now), keeper.poll_timeout()), (None, None), "it is named for none");
    keeper.name(all());
    assert_eq!((keeper.poll_timeout(), keeper.question(now)), (Some(now), Some((0, all()))));
    assert_eq!(keeper.question(now), None, "one at a time");
    keeper.answered(None, now + second);
    assert_eq!(keeper.question(now + second), None);
    assert_eq!(keeper.question(now + second * 2), Some((1, all())));
    keeper.answered(Some(all()), now + second * 3);
    assert_eq!(keeper.held(now + second * 3), all());
    assert_eq!(keeper.question(now + second * 4), Some((1, all())), "whoever answers is asked on");
    keeper.answered(Some(BTreeSet::new()), now + second * 4);
    assert_eq!(keeper.held(now + second * 2 + HOLDS), BTreeSet::new(), "counted from the question");
    keeper.name(BTreeSet::new());
    assert_eq!(keeper.poll_timeout(), None);
}

/// Between two looks of a coordinator another machine may have held it. Proves: W8
#[test]
fn who_is_named_again_rests_again() {
    let (now, mut grants) = (testkit::origin(), FloatingGrants::default());
    let mut may = |revision, now| !grants.grant(&state(1, revision), (&id(1), &all()), now).is_empty();
    assert_eq!([may(2, now), may(2, now + RESTS)], [false, true]);
    assert_eq!([may(4, now + RESTS), may(4, now + RESTS * 2)], [false, true]);
    assert_eq!(grants.grant(&state(1, 4), (&id(0), &all()), now + RESTS * 9), BTreeSet::new());
}

/// Proves: W8
#[test]
fn a_machine_asks_for_what_its_orders_name() {
    let state = state(1, 7);
    let part = state.floating_part(&id(1)).expect("one address");
    assert_eq!(decode_floating(part.contents()), Ok(all()));
    assert_eq!(state.floating_part(&id(0)), None);
    let of = |addresses: &[&str]| {
        let addresses = addresses.iter().map(ToString::to_string).collect();
        decode_floating(&FloatingWire { version: VERSION, addresses }.encode_to_vec())
    };
    assert!(of(&["192.0.2.9", "192.0.2.50"]).is_ok());
    for addresses in [&[][..], &["192.0.2.50", "192.0.2.9"], &["192.0.2.9", "192.0.2.9"]] {
        assert!(matches!(of(addresses), Err(BadRecord::Contradiction(_))));
    }
    assert!(matches!(of(&["192.0.2.09"]), Err(BadRecord::Publish(_))));
    let many: Vec<String> = (0..=MOST_PUBLISHED).map(|n| format!("192.0.2.{n}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    let in_order = |count: usize| {
        let mut some: Vec<Ipv4Addr> = many[..count].iter().map(|text| text.parse().expect("an address")).collect();
        some.sort_unstable();
        let some: Vec<String> = some.iter().map(ToString::to_string).collect();
        of(&some.iter().map(String::as_str).collect::<Vec<_>>())
    };
    assert!(in_order(MOST_PUBLISHED).is_ok());
    assert!(matches!(in_order(MOST_PUBLISHED + 1), Err(BadRecord::Contradiction(_))));
}
