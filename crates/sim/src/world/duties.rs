//! Duties of a coordinator for which a member's life has no part yet: its copy of the records, looks at etcd's members and their
//! changes, and epochs of the cold-start key.

use cluster::decision::Decision;
use cluster::epochs::{self, Due};
use cluster::request::Request;
use model::MachineId;

use super::trail::short;
use super::{Event, Who, World, seen};
use crate::laws::Broken;

impl World {
    /// A coordinator sees what was changed.
    pub(super) fn watch(&mut self, id: MachineId) {
        if !self.leads(id) {
            return;
        }
        let until = self.etcd.revision();
        let Some(view) = self.coordinators.get_mut(&id) else { return };
        let before = view.state().state_version();
        match (self.parts.watch)(&self.etcd, view.revision(), until) {
            Ok(changes) => view.take(changes, until).expect("the laws read the same"),
            Err(_) => {
                let (members, look) = (view.state().members().clone(), view.state().look());
                *view = seen(&self.etcd);
                if let Some(look) = look {
                    view.see(members, look);
                }
            }
        }
        if view.state().state_version() != before {
            self.has_news(id);
        }
    }

    /// A coordinator looks at etcd's members, and makes the next change of them, by the records that it has seen.
    pub(super) fn tends(&mut self, id: MachineId) -> Result<(), Broken> {
        let after = 150 + self.below(300);
        let n = self.numbers[&id];
        let Some(running) = self.machines.get_mut(&n).and_then(|it| it.running.as_mut()) else { return Ok(()) };
        if !self.coordinators.contains_key(&id) {
            running.tends = false;
            return Ok(());
        }
        self.put(after, Event::Tends(id));
        if !self.leads(id) {
            return Ok(());
        }
        self.looks(id);
        let state = self.coordinators[&id].state();
        let (step, due) = (epochs::step(state), epochs::due(state, &id));
        self.put(2, Event::Hold(id));
        if due == Some(Due::Begin) {
            let decision = Decision::new(Request::BeginEpoch);
            self.put(1, Event::Ask { who: Who::Coordinator, decision, via: id });
        }
        if let Some(step) = step {
            let done = (self.parts.change)(&mut self.etcd, step);
            self.note(format!("{:>6} ms  {step:?} by {}: {done:?}", self.now, short(id)));
            // What is seen of the members is never old here, so etcd has no reason to refuse.
            let law = "no change of members begins that etcd refuses";
            done.map_err(|refused| Broken { law, how: format!("{step:?}: {refused}") })?;
            self.report.steps += 1;
            let members = self.etcd.members();
            self.laws.members(&members)?;
            let gone: Vec<_> = self.coordinators.keys().copied().filter(|id| !members.has(id)).collect();
            gone.into_iter().for_each(|id| self.stops_serving(id));
            for id in self.coordinators.keys().copied().collect::<Vec<_>>() {
                self.put(10, Event::Watch(id));
            }
        }
        Ok(())
    }

    /// A coordinator looks at etcd's members.
    pub(super) fn looks(&mut self, id: MachineId) {
        let (members, look) = (self.etcd.members(), self.etcd.look());
        let Some(view) = self.coordinators.get_mut(&id) else { return };
        let state = view.state();
        let was_awaited = state.look().is_none_or(|look| look.revision < state.state_version().revision);
        let is_news = was_awaited || *state.members() != members;
        view.see(members, look);
        if is_news {
            self.has_news(id);
        }
    }

    /// Learners catch up, etcds that were started begin, and who has a leader sees that.
    pub(super) fn catches_up(&mut self) {
        let running: Vec<_> = self.machines.iter().filter(|(_, machine)| machine.running.is_some()).collect();
        let running: Vec<_> = running.into_iter().map(|(n, _)| *n).collect();
        self.etcd.catch_up();
        running.into_iter().for_each(|n| self.turns(n));
    }
}
