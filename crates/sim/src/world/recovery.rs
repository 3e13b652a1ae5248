//! A cluster that goes on with one coordinator alone, because too few of its voters reach each other and its owner will not
//! wait. Not shown: what is lost with a copy that was behind (this one has all that was ever committed), and an etcd that those
//! who are taken out still run among themselves (it ends at once, as where it reaches the one that went on).

use cluster::decide;
use cluster::members::Voter;
use cluster::request::{Asks, Request};

use super::{Event, World};
use crate::cast;
use crate::laws::Broken;

pub(super) const LAW: &str = "a recovery is in the records, and leaves one coordinator";

impl World {
    /// Where etcd has no quorum, the owner has a voter that runs go on, if by its records that may be.
    pub(super) fn recovers(&mut self) -> Result<(), Broken> {
        let after = 500 + self.below(3000);
        self.put(after, Event::Recover);
        if self.etcd.has_quorum() {
            return Ok(());
        }
        let voters = self.etcd.members().voters.into_iter();
        let live: Vec<_> = voters.filter(|(_, voter)| *voter == Voter::Live).map(|(id, _)| id).collect();
        let live: Vec<_> = live.into_iter().filter(|id| self.coordinators.contains_key(id)).collect();
        let Some(id) = live.get(self.random.below(live.len())).copied() else { return Ok(()) };
        self.watch(id);
        let request = Request::Owner { by: cast::owner(1).key, asks: Asks::Recover(id) };
        // What is denied then would be denied for ever, and the other members would be gone.
        if decide(self.coordinators[&id].state(), &request, self.clock(id)).is_err() {
            return Ok(());
        }
        let before = self.laws.recoveries();
        self.etcd.go_on_alone(id).expect("it votes, and runs");
        self.coordinators.retain(|other, _| *other == id);
        self.at_once_by(id, request)?;
        let (counted, coordinates) = (self.laws.recoveries(), self.coordinators[&id].state().coordinators());
        if counted != before + 1 || !coordinates.iter().eq([&id]) {
            return Err(Broken { law: LAW, how: format!("{id}: {counted} after {before}, {coordinates:?}") });
        }
        self.report.recoveries += 1;
        Ok(())
    }
}
