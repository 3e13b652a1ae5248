//! A cluster that grows in waves: three coordinators and nine nodes, of which one and three come at a time (the first
//! coordinator has created it). Machines fail by chance until a wave's time is over, then none does; and nobody lies.

use model::{ClusterRole, MachineId};

use cluster::record::UnixSeconds;
use cluster::request::{Asks, Offer, Request};

use super::cables::INTERVAL;
use super::{Event, Lie, Machine, World, WorldFailure, WorldPlan};
use crate::cast;
use crate::laws::Breach;

/// Machines of a wave, a coordinator first.
pub const WAVE: u16 = 4;
/// How many waves there are.
pub const WAVES: u16 = 3;
/// From one wave to the next, in milliseconds.
const LASTS: u64 = 15_000;
/// Every machine but the first, which creates the cluster; a ticket for nodes and one for each coordinator.
pub(super) const PLAN: WorldPlan =
    WorldPlan { machines: WAVE * WAVES - 1, members: 0, tickets: WAVES, lasts: u64::MAX, events: u64::MAX };

/// Lives through the waves; how many others each machine knows after each wave.
///
/// # Errors
/// [`WorldFailure`] when a law was broken, or two machines do not know each other in time.
pub fn waves(seed: u64) -> Result<Vec<Vec<usize>>, Box<WorldFailure>> {
    let mut world = World::new(seed, PLAN);
    world.in_waves().map_err(|broken| Box::new(WorldFailure { seed, broken, trail: world.trail.clone().into() }))
}

impl World {
    pub(super) fn in_waves(&mut self) -> Result<Vec<Vec<usize>>, Breach> {
        self.agenda.clear();
        self.founds(model::VPN_PREFIX)?;
        self.at_once(Request::Create(Box::new(cast::creation(model::VPN_PREFIX))))?;
        // One for all nodes, and one for each coordinator but the first machine: by that alone it coordinates at once.
        for wave in 0..WAVES {
            let coordinator = (wave > 0).then(|| cast::machine_key(1 + wave * WAVE));
            let offer = Offer {
                key: self.tickets[usize::from(wave)].public(),
                uses: if coordinator.is_some() { 1 } else { (WAVE * WAVES).into() },
                not_after: UnixSeconds(cast::BEGIN.0 + 3600),
                role: if coordinator.is_some() { ClusterRole::Coordinator } else { ClusterRole::Node },
                kubernetes: cast::worker(),
                machine: coordinator,
                node_name: None,
            };
            self.at_once(Request::Owner { by: cast::owner(1).key, asks: Asks::IssueTicket(offer) })?;
        }
        self.put(100, Event::CatchUp);
        let mut counts = Vec::new();
        for wave in 0..WAVES {
            let first = 1 + wave * WAVE;
            for n in first..first + WAVE {
                if n > 1 {
                    self.machines.insert(n, Machine::new(if n == first { wave } else { 0 }, Lie::None));
                }
                let after = 1 + self.below(500);
                self.asks_in(n, after);
            }
            let (all, ends) = (first + WAVE - 1, self.now + LASTS);
            let late = ends + 2 * INTERVAL;
            while let Some(((at, _), event)) = self.agenda.pop_first() {
                self.now = at;
                self.calm = at >= ends;
                self.happen(event)?;
                let strangers = self.strangers(all);
                if at >= ends && strangers.is_empty() {
                    break;
                }
                if at > late {
                    let law = "machines that come in waves know each other";
                    return Err(Breach { law, how: format!("wave {wave}: {strangers:?}") });
                }
            }
            counts.push((1..=all).map(|n| self.machines[&n].known.peers().len() - 1).collect());
        }
        Ok(counts)
    }

    /// Pairs of the first machines of which one does not know the other as it is: by its key and its address.
    fn strangers(&self, all: u16) -> Vec<(u16, u16)> {
        let pairs = (1..=all).flat_map(|one| (1..=all).map(move |other| (one, other)));
        let knows = |one: u16, other: u16| {
            let id: MachineId = cast::id(other);
            let own = self.machines[&other].known.peers().get(&id);
            let known = self.machines[&one].known.peers().get(&id);
            let as_it_is = |peer: &&cluster::peer::Peer| peer.vpn_key == cast::vpn_key(other);
            let same = known.map(|peer| peer.vpn_ip) == own.map(|peer| peer.vpn_ip);
            known.filter(as_it_is).is_some() && same && self.machines[&one].is_member()
        };
        pairs.filter(|(one, other)| !knows(*one, *other)).collect()
    }
}
