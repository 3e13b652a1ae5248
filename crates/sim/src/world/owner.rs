//! Requests of owners: all that they may ask for, in any order, also what has to be refused.

use cluster::decision::Decision;
use cluster::record::{MachineRecord, Standing, UnixSeconds};
use cluster::request::{Asks, Offer, Removal, Request};
use cluster::role::AnyRole;
use model::{ClusterRole, KubernetesRole};

use super::{Event, Who, World};
use crate::cast;

impl World {
    pub(super) fn owner_asks(&mut self) {
        let after = 180 + self.below(750);
        self.put(after, Event::Owner);
        let Some(via) = self.somewhere() else { return };
        let state = self.coordinators[&via].view.state();
        let issued = state.tickets().count();
        let owners = state.cluster().map_or(0, |cluster| cluster.owners.len());
        let (target, lost) = (cast::id(self.other()), self.random.below(2) == 0);
        let state = self.coordinators[&via].view.state();
        let machine = state.machine(&target).map(|machine| (machine.standing, machine.role));
        let waits = |machine: &MachineRecord| machine.awaits_approval && machine.standing == Standing::Member;
        let waiting = state.machines().find(|(_, machine)| waits(machine)).map(|(id, _)| *id);
        let next = u16::try_from(issued).expect("few tickets");
        let asks = match (self.random.below(20), machine) {
            (0..10, _) if let Some(waiting) = waiting => Asks::AddRole(waiting, AnyRole::Coordinator),
            (0..7, _) if next < self.plan.tickets => Asks::IssueTicket(self.offer(next)),
            (7, _) if !self.tickets.is_empty() => {
                Asks::RevokeTicket(self.tickets[self.random.below(self.tickets.len())].id())
            }
            (8..11, _) => Asks::AddRole(target, AnyRole::Coordinator),
            (11, _) => Asks::RemoveRole(target, AnyRole::Coordinator),
            (12, _) => Asks::AddRole(target, AnyRole::Kubernetes(KubernetesRole::Worker)),
            (13, _) => Asks::RemoveRole(target, AnyRole::Kubernetes(KubernetesRole::Worker)),
            (14, _) => Asks::RotateKey(target),
            (15, _) => Asks::AddOwner(cast::owner(2)),
            (16, _) => Asks::RemoveOwner(cast::owner(if owners > 1 { 2 } else { 1 }).key),
            (17, Some((Standing::Member, _))) => Asks::Drain(target),
            (_, Some((Standing::Draining, ClusterRole::Coordinator))) => Asks::RemoveRole(target, AnyRole::Coordinator),
            (_, Some((Standing::Draining, ClusterRole::Node))) => Asks::Remove(target, Removal::Drained),
            (18, _) => Asks::Remove(target, if lost { Removal::Lost } else { Removal::Drained }),
            _ => return, // it looks, and asks for nothing
        };
        let by = cast::owner(if self.random.below(25) == 0 { 2 } else { 1 }).key;
        // Some regret it before all coordinators have seen what etcd made of it.
        if let Asks::AddRole(target, role @ AnyRole::Coordinator) = asks
            && self.random.below(4) == 0
        {
            let decision = Decision::new(Request::Owner { by, asks: Asks::RemoveRole(target, role) });
            let after = 100 + self.below(2500);
            self.put(after, Event::Ask { who: Who::Owner, decision, via });
        }
        let decision = Decision::new(Request::Owner { by, asks });
        self.put(1, Event::Ask { who: Who::Owner, decision, via });
    }

    fn offer(&mut self, n: u16) -> Offer {
        let role = if self.random.below(3) == 0 { ClusterRole::Coordinator } else { ClusterRole::Node };
        let uses = u32::try_from(1 + self.random.below(6)).expect("few");
        let lives = if self.random.below(8) == 0 { 6 } else { 3600 };
        Offer {
            key: self.tickets[usize::from(n)].public(),
            uses,
            not_after: UnixSeconds(cast::BEGIN.0 + self.now / 1000 + lives),
            role,
            kubernetes: cast::worker(),
            machine: (uses == 1 && self.random.below(3) == 0).then(|| cast::machine_key(2)),
            node_name: None,
        }
    }
}
