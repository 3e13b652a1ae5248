//! What voters keep of the cold-start key: real bytes on an ESP each, written and read by the code that machines run. A law
//! says that a quorum of an epoch that stands opens all its disks.

use std::collections::BTreeMap;

use cluster::members::quorum;
use keys::cold_start::{Epoch, Shares};
use keys::data_key::{ClusterHalf, Holder};
use keys::identity::cluster_key;
use keys::pair::SLOT_BYTES;
use keys::share::{self, Share, ShareKey};
use model::{ClusterId, DiskUuid, LocalKey, MachineId, MasterSecret, Secret};
use testkit::Random;

use crate::laws::Broken;

const LAW: &str = "an epoch that stands is whole: any quorum of its holders opens";

/// The pairs of files in which shares lie, by machine.
#[derive(Debug)]
pub struct Esps {
    cluster: ClusterId,
    master: MasterSecret,
    slots: BTreeMap<MachineId, [Vec<u8>; 2]>,
}

impl Esps {
    /// Nobody holds anything yet.
    #[must_use]
    pub fn new(cluster: ClusterId) -> Self {
        Self { cluster, master: MasterSecret(Secret::take(&mut [0x3a; 32])), slots: BTreeMap::new() }
    }

    /// Each machine's local key is another one.
    fn share_key(&self, machine: MachineId) -> ShareKey {
        let mut local = [0; 32];
        local[..16].copy_from_slice(&machine.0);
        ShareKey::of(&LocalKey(Secret::take(&mut local)), &Holder { cluster: self.cluster, machine })
    }

    fn half(&self, disk: DiskUuid, generation: u32) -> ClusterHalf {
        ClusterHalf { key: cluster_key(&self.master, self.cluster, disk, generation), disk, generation }
    }

    /// A holder computes and writes its share of `epoch`, for its disk under the key of `generation`, while the epoch
    /// `stands` still holds.
    ///
    /// # Panics
    /// When the machine is no holder.
    pub fn write(&mut self, holder: MachineId, disk: DiskUuid, generation: u32, epoch: &Epoch, stands: Option<u32>) {
        let (key, value) = epoch.derive(&self.master, self.cluster, &holder).expect("a holder");
        let wrapped = key.wrap(&self.half(disk, generation));
        let share = Share::close(&self.share_key(holder), epoch.clone(), &value, wrapped);
        let slots = self.slots.entry(holder).or_insert_with(|| [vec![0; SLOT_BYTES], vec![0; SLOT_BYTES]]);
        let next = share::place([&slots[0], &slots[1]], disk, stands);
        slots[next.slot] = share.emit(next.generation).expect("it fits");
    }

    /// All machines were switched off, and as many of the holders as make a quorum come back: each of them opens.
    ///
    /// # Errors
    /// [`Broken`] names who does not.
    pub fn opens(
        &self,
        epoch: &Epoch,
        disks: &BTreeMap<MachineId, DiskUuid>,
        random: &mut Random,
    ) -> Result<(), Broken> {
        let mut back: Vec<_> = epoch.holders().iter().copied().collect();
        while back.len() > quorum(epoch.holders().len()) {
            back.swap_remove(random.below(back.len()));
        }
        let broken =
            |who: &MachineId, how: &str| Broken { law: LAW, how: format!("{who}, epoch {}: {how}", epoch.number()) };
        let mut held = Vec::new();
        for holder in &back {
            let slots = self.slots.get(holder).ok_or_else(|| broken(holder, "holds nothing"))?;
            let (shares, _) = share::read([&slots[0], &slots[1]], disks[holder]);
            let share = shares.into_iter().find(|share| share.epoch == *epoch);
            held.push((holder, share.ok_or_else(|| broken(holder, "has no share"))?));
        }
        for (opening, own) in &held {
            let mut shares = Shares::new(own.epoch.clone(), own.wrapped);
            let mut opened = None;
            for (giver, given) in &held {
                let value = given.open(&self.share_key(**giver)).map_err(|error| broken(giver, &error.to_string()))?;
                opened = shares.give(**giver, value).map_err(|refused| broken(giver, &refused.to_string()))?;
            }
            let half = opened.ok_or_else(|| broken(opening, "does not open"))?;
            let right = half.key.expose() == self.half(half.disk, half.generation).key.expose();
            if !right || half.disk != disks[*opening] {
                return Err(broken(opening, "opens to another key"));
            }
        }
        Ok(())
    }
}
