//! Shares of the cold-start key that voters keep: real bytes on an ESP each, written and read by the code that machines run. A law
//! says that a quorum of an epoch that stands opens all its disks.

use std::collections::{BTreeMap, BTreeSet};

use cluster::epochs::ShareOrder;
use cluster::members::quorum;
use keys::cold_start::Epoch;
use keys::data_key::{ClusterHalf, Holder};
use keys::directory::{Coordinator, Directory};
use keys::identity::cluster_key;
use keys::share::ShareKey;
use keys::two_slot::{SLOT_BYTES, Slots};
use model::{ClusterId, DiskUuid, LocalKey, MachineId, MasterSecret, Secret};
use testkit::Random;
use unlock::exchange::{ShareCollector, ShareHolder};
use unlock::share::{self, open_shares};

use crate::laws::Breach;

pub(crate) const LAW: &str = "an epoch that stands is whole: any quorum of its holders opens, and fewer open nothing";

/// The disk of each machine, and which cluster key it is locked with.
pub type Disks = BTreeMap<MachineId, (DiskUuid, u32)>;

/// The slots in which shares lie, by machine.
#[derive(Debug)]
pub struct Esps {
    cluster: ClusterId,
    master: MasterSecret,
    slots: BTreeMap<MachineId, Slots>,
    /// Machines that were made nodes, and have erased what they held.
    erased: BTreeSet<MachineId>,
    /// How often a slot was written.
    writes: u64,
}

impl Esps {
    /// Shares of a cluster in which nobody holds any yet.
    #[must_use]
    pub fn new(cluster: ClusterId) -> Self {
        Self {
            cluster,
            master: MasterSecret(Secret::take(&mut [0x3a; 32])),
            slots: BTreeMap::new(),
            erased: BTreeSet::new(),
            writes: 0,
        }
    }

    /// Each machine's local key is another one.
    fn share_key(&self, machine: MachineId) -> ShareKey {
        let mut local = [0; 32];
        local[..16].copy_from_slice(&machine.0);
        ShareKey::of(&LocalKey(Secret::take(&mut local)), &Holder { cluster: self.cluster, machine })
    }

    /// A holder writes its share of `epoch`, for its disk under its keys of now, while the epoch `stands` still holds.
    ///
    /// # Panics
    /// When the machine is no holder.
    pub fn write(&mut self, machine: MachineId, holding: &ShareOrder) {
        let (holder, key) = (Holder { cluster: self.cluster, machine }, self.share_key(machine));
        self.erased.remove(&machine);
        let slots = self.slots.entry(machine).or_insert_with(|| Slots([(); 2].map(|()| vec![0; SLOT_BYTES].into())));
        let write = share::hold(holding, &holder, &self.master, &key, slots).expect("a holder");
        if let Some(write) = write {
            slots.0[write.slot] = write.bytes.into();
            self.writes += 1;
        }
        if holding.stands == Some(holding.epoch.number()) {
            self.writes += erase_superseded(slots, holding.epoch.number());
        }
    }

    /// How often any slot was written.
    #[must_use]
    pub const fn writes(&self) -> u64 {
        self.writes
    }

    /// A machine erases all that it holds.
    pub fn erase(&mut self, machine: MachineId) {
        self.slots.remove(&machine);
        self.erased.insert(machine);
    }

    /// Whether any share of a machine lies there.
    #[must_use]
    pub fn holds_any(&self, machine: MachineId) -> bool {
        self.slots.contains_key(&machine)
    }

    /// Whether a machine holds its share of an epoch, for its disk.
    #[must_use]
    pub fn holds(&self, machine: MachineId, disk: DiskUuid, epoch: u32) -> bool {
        let Some(slots) = self.slots.get(&machine) else { return false };
        let (held, _) = open_shares(slots, disk, &self.share_key(machine));
        held.iter().any(|held| held.epoch().number() == epoch)
    }

    /// Whether each share that a machine holds carries the key of `generation`: without that its disk is not locked with it.
    #[must_use]
    pub fn carry(&self, machine: MachineId, disk: DiskUuid, generation: u32) -> bool {
        let held = self.slots.get(&machine).map(|slots| open_shares(slots, disk, &self.share_key(machine)).0);
        held.is_none_or(|held| held.iter().all(|held| held.carries(generation)))
    }

    /// A holder sees that the epoch stands, and that none follows: what it held before is erased. By itself it opens nothing then,
    /// unless it is the only holder.
    ///
    /// # Errors
    /// [`Breach`] when it does.
    pub fn settle(&mut self, machine: MachineId, holding: &ShareOrder) -> Result<(), Breach> {
        let (key, epoch) = (self.share_key(machine), &holding.epoch);
        let Some(slots) = self.slots.get_mut(&machine) else { return Err(broken(&machine, epoch, "holds nothing")) };
        self.writes += erase_superseded(slots, epoch.number());
        let (held, _) = open_shares(slots, holding.disk, &key);
        let opens = held.iter().any(|held| matches!(held.alone(machine), Ok(Some(_))));
        if opens && epoch.holders().len() > 1 { Err(broken(&machine, epoch, "opens by itself")) } else { Ok(()) }
    }

    /// All machines were switched off, and as many of the holders as make a quorum come back, in any order, and talk to each
    /// other as they meet: each of them opens. One fewer open nothing, whatever they give each other.
    ///
    /// # Errors
    /// [`Breach`] names who does not, or does.
    pub fn opens(&self, epoch: &Epoch, disks: &Disks, random: &mut Random) -> Result<(), Breach> {
        // Whoever was made a node has erased its share; as many as a quorum are left.
        let mut back: Vec<_> = epoch.holders().difference(&self.erased).copied().collect();
        if let Some(gone) = epoch.holders().intersection(&self.erased).next()
            && back.len() < quorum(epoch.holders().len())
        {
            return Err(broken(gone, epoch, "has erased its share, and is needed"));
        }
        while back.len() > quorum(epoch.holders().len()) {
            back.swap_remove(random.below(back.len()));
        }
        let opened = self.meet(epoch, &back, disks, random)?;
        if let Some((_, shut)) = opened.iter().zip(&back).find(|(opened, _)| !**opened) {
            return Err(broken(shut, epoch, "does not open"));
        }
        back.pop();
        match self.meet(epoch, &back, disks, random)?.iter().zip(&back).find(|(opened, _)| **opened) {
            Some((_, thief)) => Err(broken(thief, epoch, "opens with fewer than a quorum")),
            None => Ok(()),
        }
    }

    /// Has those that come back exchange what they have, each with each, until nobody has anything new to say; tells who opened.
    fn meet(&self, epoch: &Epoch, back: &[MachineId], disks: &Disks, random: &mut Random) -> Result<Vec<bool>, Breach> {
        if epoch.holders().len() == 1 {
            return back.iter().map(|machine| self.alone(epoch, machine, disks)).collect();
        }
        let mut waiting = Vec::new();
        for machine in back {
            let collector = ShareCollector::begin(self.voter(epoch, machine, disks)?);
            waiting.push(collector.ok_or_else(|| broken(machine, epoch, "holds nothing that needs others"))?);
        }
        let mut calls: Vec<(usize, usize)> =
            (0..back.len()).flat_map(|one| (0..back.len()).map(move |other| (one, other))).collect();
        calls.retain(|(caller, called)| caller != called);
        let mut opened = vec![false; back.len()];
        while !calls.is_empty() {
            let (caller, called) = calls.swap_remove(random.below(calls.len()));
            let says = |waiting: &[ShareCollector], from: usize, to: usize| {
                let said = waiting[from].contribution(back[to], epoch.number(), Vec::new());
                said.map_err(|why| broken(&back[from], epoch, &why.to_string()))
            };
            for (from, to) in [(caller, called), (called, caller)] {
                let said = says(&waiting, from, to)?;
                let taken = waiting[to].take(back[from], None, said);
                if let Some(half) = taken.map_err(|why| broken(&back[to], epoch, &why.to_string()))? {
                    self.is_right(epoch, &back[to], &half, disks)?;
                    opened[to] = true;
                }
            }
        }
        Ok(opened)
    }

    /// A lone holder's share is the key itself.
    fn alone(&self, epoch: &Epoch, machine: &MachineId, disks: &Disks) -> Result<bool, Breach> {
        let (disk, _) = disks[machine];
        let slots = self.slots.get(machine).ok_or_else(|| broken(machine, epoch, "holds nothing"))?;
        let (held, _) = open_shares(slots, disk, &self.share_key(*machine));
        let Some(held) = held.iter().find(|held| held.epoch().number() == epoch.number()) else { return Ok(false) };
        let half = held.alone(*machine).map_err(|why| broken(machine, epoch, &why.to_string()))?;
        let Some(half) = half else { return Ok(false) };
        self.is_right(epoch, machine, &half, disks).map(|()| true)
    }

    fn voter(&self, epoch: &Epoch, machine: &MachineId, disks: &Disks) -> Result<ShareHolder, Breach> {
        let slots = self.slots.get(machine).ok_or_else(|| broken(machine, epoch, "holds nothing"))?;
        let (held, _) = open_shares(slots, disks[machine].0, &self.share_key(*machine));
        // As the records make it when the epoch comes to stand.
        let coordinators = epoch.holders().iter().map(|machine| Coordinator { machine: *machine, endpoints: vec![] });
        let directory = Directory { cluster: self.cluster, version: 1, coordinators: coordinators.collect() };
        Ok(ShareHolder::new(*machine, directory, held))
    }

    fn is_right(&self, epoch: &Epoch, machine: &MachineId, half: &ClusterHalf, disks: &Disks) -> Result<(), Breach> {
        let (disk, generation) = disks[machine];
        let right = cluster_key(&self.master, self.cluster, disk, generation);
        let given = half.of(generation).filter(|_| half.disk == disk);
        if given.is_some_and(|given| given.expose() == right.expose()) {
            Ok(())
        } else {
            Err(broken(machine, epoch, "opens to another key"))
        }
    }
}

/// Erases what an epoch that stands supersedes; how many slots that is.
fn erase_superseded(slots: &mut Slots, stands: u32) -> u64 {
    share::superseded(slots, stands).collect::<Vec<_>>().into_iter().fold(0, |written, before| {
        slots.0[before.slot] = before.bytes.into();
        written + 1
    })
}

fn broken(who: &MachineId, epoch: &Epoch, how: &str) -> Breach {
    Breach { law: LAW, how: format!("{who}, epoch {}: {how}", epoch.number()) }
}

#[cfg(test)]
mod tests {
    use cluster::record::Generations;

    use super::*;
    use crate::cast::{CLUSTER, disk, id};

    fn epoch(number: u32, holders: &[u16]) -> Epoch {
        Epoch::new(number, holders.iter().map(|n| id(*n)).collect()).expect("an epoch")
    }

    /// ESPs on which each of these wrote its share of an epoch.
    fn written(epochs: &[(u16, Epoch)]) -> Esps {
        let mut esps = Esps::new(CLUSTER);
        for (n, epoch) in epochs {
            esps.write(id(*n), &holding(*n, epoch));
        }
        esps
    }

    fn holding(n: u16, epoch: &Epoch) -> ShareOrder {
        ShareOrder { epoch: epoch.clone(), stands: None, disk: disk(n), generations: Generations::One(1) }
    }

    /// Law that an epoch breaks when all were switched off, by chance of who comes back.
    fn broken_by(esps: &Esps, epoch: &Epoch, generation: u32) -> BTreeSet<String> {
        let disks: Disks = epoch.holders().iter().map(|id| (*id, (disk_of(*id), generation))).collect();
        let comes_back = |seed| esps.opens(epoch, &disks, &mut Random::new(seed));
        let broken = (0..32).filter_map(|seed| comes_back(seed).err());
        broken.map(|broken| broken.how.rsplit(": ").next().unwrap_or_default().to_owned()).collect()
    }

    fn disk_of(machine: MachineId) -> DiskUuid {
        (1..=4).find(|n| id(*n) == machine).map(disk).expect("one of four")
    }

    /// Proves: K6
    #[test]
    fn each_way_in_which_an_epoch_is_not_whole_breaks_its_law() {
        let (alone, later, of_three, of_four) =
            (epoch(1, &[1]), epoch(2, &[1]), epoch(2, &[1, 2, 3]), epoch(2, &[1, 2, 3, 4]));
        let whole = written(&[1, 2, 3, 4].map(|n| (n, of_four.clone())));
        assert_eq!(broken_by(&whole, &of_four, 1), BTreeSet::new());
        assert_eq!(broken_by(&whole, &of_four, 2), ["opens to another key".to_owned()].into());
        let lone = written(&[(1, alone.clone())]);
        assert_eq!(broken_by(&lone, &alone, 1), BTreeSet::new());
        assert_eq!(broken_by(&lone, &alone, 2), ["opens to another key".to_owned()].into());
        assert_eq!(broken_by(&lone, &later, 1), ["does not open".to_owned()].into());
        assert_eq!(broken_by(&written(&[]), &alone, 1), ["holds nothing".to_owned()].into());
        // Three of the four hold shares of which two are enough.
        let split = [1, 2, 3].map(|n| (n, of_three.clone()));
        let split = written(&[&split[..], &[(4, of_four.clone())]].concat());
        assert!(broken_by(&split, &of_four, 1).contains("opens with fewer than a quorum"));
    }

    /// Proves: K6
    #[test]
    fn a_holder_that_still_opens_by_itself_breaks_the_law() {
        let (alone, of_two) = (epoch(1, &[1]), epoch(2, &[1, 2]));
        let mut kept = written(&[(1, alone.clone())]);
        let broken = kept.settle(id(1), &holding(1, &of_two)).expect_err("its first share lies there");
        assert!(broken.law == LAW && broken.how.ends_with("opens by itself"), "{broken}");
        written(&[(1, alone), (1, of_two.clone())]).settle(id(1), &holding(1, &of_two)).expect("it is erased");
    }
}
