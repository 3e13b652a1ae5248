//! Coordinators that tell machines what they are to be and who the others are, by the copy that each has of the records, which may be
//! old; words come in order, late, or no more where one of the two is cut off.

use cluster::Word;
use cluster::desired::Desired;
use cluster::peers::News;
use cluster::record::MachineRecord as Record;
use cluster::state::StateVersion;
use member::Event as Hears;
use model::{ClusterRole, MachineId};

use super::{Event, Who, World};
use crate::cast;
use crate::laws::Breach;
use crate::laws::life as law;

/// A coordinator says something so often, though there is nothing to say.
const ALIVE: u64 = 5000;
/// A copy without a leader for so long tells nobody anything.
pub(super) const LAPSED: u64 = 10_000;

/// Connection of a machine to the coordinator that it listens to.
#[derive(Debug)]
pub(super) struct Stream {
    pub(super) number: u64,
    pub(super) by: MachineId,
    /// Time since when.
    pub(super) since: u64,
    /// Version of the peers that the machine was told.
    known: Option<StateVersion>,
    /// Desired state that it was told.
    desired: Option<Desired>,
    /// Whether the coordinator is about to look for something to tell.
    due: bool,
    /// Time at which the last word arrives.
    last: u64,
    /// Whether no word arrives any more.
    broken: bool,
}

/// Reason for which a coordinator looks for something to tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tells {
    /// News that it has seen.
    News,
    /// Sign that it is there.
    Alive,
}

impl World {
    /// Has a machine listen to a coordinator.
    pub(super) fn attends(&mut self, n: u16, by: MachineId, known: Option<StateVersion>) {
        self.sequence += 1;
        let (number, now) = (self.sequence, self.now);
        let living = self.machines.get_mut(&n).and_then(|machine| machine.living.as_mut()).expect("it lives");
        living.asked.insert(by, now);
        living.stream =
            Some(Stream { number, by, since: now, known, desired: None, due: true, last: now, broken: false });
        let after = 1 + self.below(60);
        self.put(after, Event::Tells(n, number, Tells::Alive));
    }

    /// A coordinator tells a machine what is new to it.
    pub(super) fn tells(&mut self, n: u16, number: u64, why: Tells) -> Result<(), Breach> {
        let (id, now) = (cast::id(n), self.now);
        let Some(machine) = self.machines.get_mut(&n) else { return Ok(()) };
        let Some(stream) = machine.stream(number).filter(|stream| !stream.broken) else { return Ok(()) };
        stream.due = false;
        let by = stream.by;
        if !self.hears_from(Who::Machine(n), by) {
            self.breaks(n);
            return Ok(());
        }
        if let Some(began) = self.is_unread(by) {
            self.put(1, Event::Left { n, number, may_lead: now - began < LAPSED });
            return Ok(());
        }
        if !self.serves(by) {
            self.breaks(n);
            return Ok(());
        }
        let copy = &self.coordinators[&by];
        let (state, silent) = (copy.view.state(), copy.lost.map_or(0, |lost| now - lost));
        let belongs = state.machine(&id).is_some_and(Record::belongs);
        if silent >= LAPSED || !belongs {
            // Who says that a machine does not belong has records that are kept up.
            self.put(1, Event::Left { n, number, may_lead: silent < LAPSED });
            return Ok(());
        }
        if why == Tells::Alive {
            self.put(ALIVE, Event::Tells(n, number, Tells::Alive));
        }
        // Its next look at etcd's members is younger than the record.
        let state = self.coordinators[&by].view.state();
        let Ok(desired) = (self.parts.desire)(state, &id) else { return Ok(()) };
        let mut words = Vec::new();
        let machine = self.machines.get_mut(&n).expect("it listens");
        // One that has not begun is added by whoever has not seen its record yet, and taken out again.
        let has_begun = machine.disk.etcd.is_some_and(|number| self.etcd.added(&id) == Some(number));
        let stream = machine.stream(number).expect("it listens");
        if stream.desired.as_ref().is_none_or(|told| !told.says_the_same(&desired)) {
            if desired.assignment.role() == ClusterRole::Node {
                self.store.sees(&self.etcd);
                let written = |state: &cluster::state::State| state.machine(&id).cloned();
                let is_current = written(state) == written(self.store.state());
                let needed = cluster::epochs::is_needed(self.store.state(), &id);
                // Whoever leaves at the same time keeps its share, which an older look counts among the voters'.
                let is_needed = state.look() == Some(self.etcd.look()) && needed;
                law::told_node(n, is_current && (has_begun || is_needed))?;
            }
            stream.desired = Some(desired.clone());
            words.push(Word::Desired(Box::new(desired)));
        }
        let news = state.news(stream.known);
        if news != News::Nothing || words.is_empty() && why == Tells::Alive {
            stream.known = news.version().or(stream.known);
            words.push(Word::News(news));
        }
        for word in words {
            let after = 1 + self.below(300);
            let stream = self.machines.get_mut(&n).and_then(|machine| machine.stream(number)).expect("it listens");
            stream.last = stream.last.max(now + after);
            let after = stream.last - now;
            self.put(after, Event::Told(n, number, Box::new(word)));
        }
        Ok(())
    }

    /// Brings a word to the machine that listens.
    pub(super) fn told(&mut self, n: u16, number: u64, word: Word) -> Result<(), Breach> {
        let Some(machine) = self.machines.get_mut(&n) else { return Ok(()) };
        let Some(stream) = machine.stream(number).filter(|stream| !stream.broken) else { return Ok(()) };
        let by = stream.by;
        let known = machine.living.as_ref().and_then(|living| living.life.desired().at);
        let is_behind = match &word {
            Word::Desired(desired) => desired.at < known,
            Word::News(News::Behind) => true,
            Word::News(news) => news.version().is_some_and(|version| Some(version) < known),
            Word::Directory(_) | Word::Order(_) => false,
        };
        if is_behind {
            machine.heard.behind.insert(by);
        }
        let role = match &word {
            Word::Desired(desired) => Some(desired.assignment.role()),
            Word::News(_) | Word::Directory(_) | Word::Order(_) => None,
        };
        match role {
            Some(ClusterRole::Node) => drop(machine.heard.nodes.insert(by)),
            // What enough have said is ended by a word that is taken alone.
            Some(ClusterRole::Coordinator) if !machine.voices().are_enough() => drop(machine.heard.nodes.remove(&by)),
            Some(ClusterRole::Coordinator) | None => {}
        }
        self.is_up_to_date(n)?;
        self.lives(n, Hears::Told { by, word })?;
        let machine = self.machines.get_mut(&n).expect("it lives");
        // Whoever says what the machine does not take is left.
        if role == Some(ClusterRole::Coordinator) && machine.stream(number).is_some() {
            machine.heard.coordinates();
        }
        Ok(())
    }

    /// The connection ends, and the machine sees that.
    pub(super) fn left(&mut self, n: u16, number: u64, may_lead: bool) -> Result<(), Breach> {
        let Some(machine) = self.machines.get_mut(&n) else { return Ok(()) };
        let Some(stream) = machine.stream(number) else { return Ok(()) };
        let by = stream.by;
        if let Some(living) = &mut machine.living {
            living.stream = None;
        }
        self.lives(n, Hears::Left { by, why: String::from("it says no more"), may_lead })
    }

    /// No word arrives any more; mostly the machine sees that the connection has ended.
    pub(super) fn breaks(&mut self, n: u16) {
        let (after, sees) = (1 + self.below(800), self.calm || self.random.below(8) > 0);
        let Some(living) = self.machines.get_mut(&n).and_then(|machine| machine.living.as_mut()) else { return };
        let Some(stream) = living.stream.as_mut().filter(|stream| !stream.broken) else { return };
        stream.broken = true;
        let number = stream.number;
        if sees {
            self.put(after, Event::Left { n, number, may_lead: false });
        }
    }

    /// Time at which a coordinator's units were started that has not read the records since.
    fn is_unread(&self, by: MachineId) -> Option<u64> {
        let running = self.machines[&self.numbers[&by]].running.as_ref();
        running.filter(|_| !self.coordinators.contains_key(&by)).map(|running| running.since)
    }

    /// Breaks the streams of all that hear this coordinator.
    pub(super) fn breaks_streams_of(&mut self, by: MachineId) {
        let listens = |machine: &super::Machine| {
            machine.living.as_ref().and_then(|living| living.stream.as_ref()).is_some_and(|stream| stream.by == by)
        };
        let all: Vec<_> = self.machines.iter().filter(|(_, machine)| listens(machine)).map(|(n, _)| *n).collect();
        all.into_iter().for_each(|n| self.breaks(n));
    }

    /// A coordinator has seen something that others do not know yet.
    pub(super) fn has_news(&mut self, by: MachineId) {
        let mut due = Vec::new();
        for (n, machine) in &mut self.machines {
            let stream = machine.living.as_mut().and_then(|living| living.stream.as_mut());
            if let Some(stream) = stream.filter(|stream| stream.by == by && !stream.due && !stream.broken) {
                stream.due = true;
                due.push((*n, stream.number));
            }
        }
        for (n, number) in due {
            let after = 1 + self.below(400);
            self.put(after, Event::Tells(n, number, Tells::News));
        }
        self.put(1, Event::Own(self.numbers[&by]));
    }
}
