//! The cold-start key: what the voters of an epoch open their disks with when none of them is up to be asked. Nobody deals
//! it: key and polynomial follow from master secret, cluster, epoch and holders, so each holder computes its own share
//! while its data is open, and a quorum of holders finds the key again without the master secret.
//!
//! ```text
//! master secret ─┬─ key ────────────────► wraps each holder's cluster key
//!                └─ share of each holder ─ a quorum of them ─► key
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU8;

use model::{ClusterId, ClusterKey, DiskUuid, MachineId, MasterSecret, Secret};

use crate::data_key::ClusterHalf;
use crate::derive::{TAG_BYTES, Unauthentic, decrypt, encrypt, hkdf, secret};
use crate::endpoint::Endpoint;
use crate::purpose::Purpose;
use crate::shamir::{self, Point};

/// As many as etcd may have voters.
pub const MOST_HOLDERS: usize = 7;

/// How many of `voters` make a quorum: of etcd, and of those who find a cold-start key.
#[must_use]
pub const fn quorum(voters: usize) -> usize {
    voters / 2 + 1
}

/// Bytes of a cluster key under the cold-start key.
pub const WRAPPED_BYTES: usize = 32 + TAG_BYTES;

/// Epoch of the cold-start key: a number, and the machines that hold a share.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Epoch {
    number: u32,
    holders: BTreeSet<MachineId>,
}

/// Why there is no such epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadEpoch {
    /// Epochs are counted from one.
    #[error("an epoch's number is 1 or more")]
    Number,
    /// None, or more than etcd has voters.
    #[error("an epoch has 1 to {MOST_HOLDERS} holders, not {0}")]
    Holders(usize),
}

impl Epoch {
    /// The epoch of these holders.
    ///
    /// # Errors
    /// [`BadEpoch`] without a number or with too few or many holders.
    pub fn new(number: u32, holders: BTreeSet<MachineId>) -> Result<Self, BadEpoch> {
        match (number, holders.len()) {
            (0, _) => Err(BadEpoch::Number),
            (_, 1..=MOST_HOLDERS) => Ok(Self { number, holders }),
            (_, many) => Err(BadEpoch::Holders(many)),
        }
    }

    /// The first epoch, of the machine that created its cluster.
    #[must_use]
    pub fn first(holder: MachineId) -> Self {
        Self { number: 1, holders: [holder].into() }
    }

    /// Number of the epoch, counted from one.
    #[must_use]
    pub const fn number(&self) -> u32 {
        self.number
    }

    /// Machines that hold a share.
    #[must_use]
    pub const fn holders(&self) -> &BTreeSet<MachineId> {
        &self.holders
    }

    /// How many shares give the key: a quorum, so that those who open are those who decide.
    #[must_use]
    pub fn threshold(&self) -> usize {
        quorum(self.holders.len())
    }

    /// Where the polynomial is a holder's: its rank among the holders, from one.
    fn place(&self, holder: &MachineId) -> Option<NonZeroU8> {
        let rank = self.holders.iter().position(|it| it == holder)?;
        NonZeroU8::new(u8::try_from(rank + 1).ok()?)
    }

    /// The key and the share of `holder`, if it holds one.
    #[must_use]
    pub fn derive(
        &self,
        master: &MasterSecret,
        cluster: ClusterId,
        holder: &MachineId,
    ) -> Option<(ColdStartKey, Secret<32>)> {
        let at = self.place(holder)?;
        let holders: Vec<u8> = self.holders.iter().flat_map(|id| id.0).collect();
        let length = u32::try_from(holders.len()).expect("few holders").to_be_bytes();
        let coefficient = |degree: usize| {
            let degree = u32::try_from(degree).expect("few holders").to_be_bytes();
            let context: &[&[u8]] = &[&self.number.to_be_bytes(), &length, &holders, &degree];
            hkdf(&cluster.0, master.expose(), Purpose::ColdStart, context)
        };
        let polynomial: Vec<Secret<32>> = (0..self.threshold()).map(coefficient).collect();
        let share = shamir::evaluate(&polynomial, at);
        Some((ColdStartKey(polynomial.into_iter().next()?), share))
    }
}

/// The cold-start key of one epoch. Made by [`Epoch::derive`], and found again by [`Shares`].
#[derive(Debug)]
pub struct ColdStartKey(Secret<32>);

/// Cluster key of a machine's disk, wrapped with the cold-start key: another machine, disk or generation is another
/// key. While it is rotated, the next one is wrapped, too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WrappedKey {
    /// The disk the cluster key is for.
    pub disk: DiskUuid,
    /// The cluster key's generation.
    pub key_generation: u32,
    /// Cluster key, under the cold-start key.
    pub cipher: [u8; WRAPPED_BYTES],
    /// Cluster key of the next generation, the same way.
    pub next: Option<[u8; WRAPPED_BYTES]>,
}

impl WrappedKey {
    /// Whether the key of `generation` is wrapped.
    #[must_use]
    pub fn includes(&self, generation: u32) -> bool {
        match generation.checked_sub(self.key_generation) {
            Some(0) => true,
            Some(1) => self.next.is_some(),
            Some(_) | None => false,
        }
    }
}

impl ColdStartKey {
    /// A holder's cluster key under this one. The same input gives the same bytes, so the nonce may be zero.
    #[must_use]
    pub fn wrap(&self, half: &ClusterHalf) -> WrappedKey {
        let (disk, key_generation) = (half.disk, half.generation);
        let cipher = |generation, key: &ClusterKey| {
            let cipher = encrypt(&self.wrapping(disk, generation), [0; 12], &[], key.expose());
            cipher.try_into().expect("a key and a tag")
        };
        let next = half.next.as_ref().map(|next| cipher(key_generation.saturating_add(1), next));
        WrappedKey { disk, key_generation, cipher: cipher(key_generation, &half.key), next }
    }

    /// The inverse of [`Self::wrap`].
    ///
    /// # Errors
    /// [`Unauthentic`] under the key of another epoch, and for changed bytes.
    pub fn unwrap(&self, wrapped: &WrappedKey) -> Result<ClusterHalf, Unauthentic> {
        let (disk, generation) = (wrapped.disk, wrapped.key_generation);
        let key = |generation, cipher: &[u8]| {
            let plain = decrypt(&self.wrapping(disk, generation), [0; 12], &[], cipher)?;
            Ok(ClusterKey(secret(&plain).ok_or(Unauthentic)?))
        };
        let next = wrapped.next.map(|next| key(generation.saturating_add(1), &next)).transpose()?;
        Ok(ClusterHalf { key: key(generation, &wrapped.cipher)?, disk, generation, next })
    }

    fn wrapping(&self, disk: DiskUuid, generation: u32) -> Secret<32> {
        hkdf(&[], self.0.expose(), Purpose::ColdStartWrap, &[&disk.0.0, &generation.to_be_bytes()])
    }
}

/// Contribution of one holder to another, which is answered by one.
#[derive(Debug)]
pub struct Contribution {
    /// The share is of this epoch.
    pub epoch: u32,
    /// The speaker's.
    pub share: Secret<32>,
    /// Where it has found holders in this boot; itself among them.
    pub seen: Sightings,
}

/// Where machines have been found.
pub type Sightings = BTreeMap<MachineId, Vec<Endpoint>>;

/// The shares of one epoch that a waiting holder has: its own, and those that others contribute.
#[derive(Debug)]
pub struct Shares {
    epoch: Epoch,
    wrapped: WrappedKey,
    points: BTreeMap<MachineId, Point>,
}

/// A machine that holds no share of the epoch: its share is not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("machine {0} holds no share of this epoch")]
pub struct UnknownHolder(pub MachineId);

impl Shares {
    /// None yet; `wrapped` is what the key is to open.
    #[must_use]
    pub const fn new(epoch: Epoch, wrapped: WrappedKey) -> Self {
        Self { epoch, wrapped, points: BTreeMap::new() }
    }

    /// Epoch that the shares are of.
    #[must_use]
    pub const fn epoch(&self) -> &Epoch {
        &self.epoch
    }

    /// Machines whose shares are there.
    pub fn given(&self) -> impl Iterator<Item = &MachineId> {
        self.points.keys()
    }

    /// Takes the share of `holder` in place of one that it gave before, and opens what is wrapped as soon as a quorum of
    /// right ones is there. A wrong one does no harm: what opens is found among all that are there.
    ///
    /// # Errors
    /// [`UnknownHolder`] from who holds none.
    pub fn give(&mut self, holder: MachineId, share: Secret<32>) -> Result<Option<ClusterHalf>, UnknownHolder> {
        let at = self.epoch.place(&holder).ok_or(UnknownHolder(holder))?;
        self.points.insert(holder, Point { at, value: share });
        Ok(self.open(&holder))
    }

    /// Tries each quorum that `newest` is in: with at most seven holders these are at most 20.
    fn open(&self, newest: &MachineId) -> Option<ClusterHalf> {
        let points: Vec<(&MachineId, &Point)> = self.points.iter().collect();
        let quorums = (0_u32..1 << points.len()).filter(|set| set.count_ones() as usize == self.epoch.threshold());
        let chosen = |set: u32| points.iter().enumerate().filter(move |(at, _)| set >> at & 1 == 1).map(|(_, it)| *it);
        quorums.filter(|set| chosen(*set).any(|(holder, _)| holder == newest)).find_map(|set| {
            let points: Vec<&Point> = chosen(set).map(|(_, point)| point).collect();
            ColdStartKey(shamir::secret_of(&points)).unwrap(&self.wrapped).ok()
        })
    }
}

#[cfg(test)]
mod tests {
    use model::Uuid;
    use proptest::prelude::*;

    use super::*;

    const CLUSTER: ClusterId = ClusterId([1; 16]);

    fn machine(number: u8) -> MachineId {
        MachineId([number; 16])
    }

    fn epoch(number: u32, holders: u8) -> Epoch {
        Epoch::new(number, (1..=holders).map(machine).collect()).expect("an epoch")
    }

    fn master(byte: u8) -> MasterSecret {
        MasterSecret(Secret::take(&mut [byte; 32]))
    }

    fn half() -> ClusterHalf {
        let key = ClusterKey(Secret::take(&mut [9; 32]));
        ClusterHalf { key, disk: DiskUuid(Uuid([3; 16])), generation: 4, next: None }
    }

    fn share(epoch: &Epoch, holder: u8) -> Secret<32> {
        epoch.derive(&master(7), CLUSTER, &machine(holder)).expect("a holder").1
    }

    fn waiting(epoch: &Epoch) -> Shares {
        let (key, _) = epoch.derive(&master(7), CLUSTER, &machine(1)).expect("a holder");
        Shares::new(epoch.clone(), key.wrap(&half()))
    }

    proptest! {
        /// In whatever order they come, among however many wrong ones.
        #[test]
        fn a_quorum_of_shares_opens_and_fewer_do_not(
            holders in 1_u8..=7,
            order in Just((0_usize..7).collect::<Vec<_>>()).prop_shuffle(),
            wrong in prop::collection::btree_set(1_u8..=7, 0..=3),
        ) {
            let epoch = epoch(1, holders);
            let mut shares = waiting(&epoch);
            let order = order.iter().map(|it| u8::try_from(it + 1).expect("small")).filter(|it| *it <= holders);
            let mut right = 0;
            for holder in order {
                let bad = wrong.contains(&holder);
                let given = if bad { Secret::take(&mut [holder; 32]) } else { share(&epoch, holder) };
                right += usize::from(!bad);
                let opened = shares.give(machine(holder), given).expect("a holder");
                prop_assert_eq!(opened.is_some(), !bad && right >= epoch.threshold());
                if let Some(opened) = opened {
                    let wrapped = half();
                    prop_assert_eq!(opened.key.expose(), wrapped.key.expose());
                    prop_assert_eq!((opened.disk, opened.generation), (wrapped.disk, wrapped.generation));
                }
            }
        }
    }

    #[test]
    fn a_holder_that_gives_again_replaces_what_it_gave() {
        let epoch = epoch(1, 3);
        let mut shares = waiting(&epoch);
        let give =
            |shares: &mut Shares, holder, share| shares.give(machine(holder), share).expect("a holder").is_some();
        assert!(!give(&mut shares, 1, Secret::take(&mut [5; 32])));
        assert!(!give(&mut shares, 2, share(&epoch, 2)));
        assert!(!give(&mut shares, 2, share(&epoch, 2)), "one holder is not two");
        assert!(give(&mut shares, 1, share(&epoch, 1)));
        assert_eq!(shares.given().copied().collect::<Vec<_>>(), [machine(1), machine(2)]);
        let stranger = shares.give(machine(4), share(&epoch, 1));
        assert_eq!(stranger.err(), Some(UnknownHolder(machine(4))));
    }

    #[test]
    fn shares_of_another_epoch_cluster_or_secret_open_nothing() {
        let (ours, older) = (epoch(2, 3), epoch(1, 3));
        let others = [
            older.derive(&master(7), CLUSTER, &machine(2)),
            epoch(2, 4).derive(&master(7), CLUSTER, &machine(2)),
            ours.derive(&master(8), CLUSTER, &machine(2)),
            ours.derive(&master(7), ClusterId([2; 16]), &machine(2)),
        ];
        for other in others {
            let mut shares = waiting(&ours);
            assert!(shares.give(machine(1), share(&ours, 1)).expect("a holder").is_none());
            assert!(shares.give(machine(2), other.expect("a holder").1).expect("a holder").is_none());
            assert!(shares.give(machine(3), share(&ours, 3)).expect("a holder").is_some(), "the right ones open");
        }
    }

    #[test]
    fn what_is_wrapped_opens_for_its_disk_and_generation_only() {
        let (key, _) = epoch(1, 1).derive(&master(7), CLUSTER, &machine(1)).expect("a holder");
        let wrapped = key.wrap(&half());
        assert_eq!(key.unwrap(&wrapped).expect("opens").key.expose(), half().key.expose());
        let mut changed = wrapped.cipher;
        changed[0] ^= 1;
        let others = [
            WrappedKey { disk: DiskUuid(Uuid([4; 16])), ..wrapped },
            WrappedKey { key_generation: 5, ..wrapped },
            WrappedKey { cipher: changed, ..wrapped },
        ];
        for other in others {
            assert_eq!(key.unwrap(&other).err(), Some(Unauthentic));
        }
    }

    /// Proves: D13
    #[test]
    fn while_a_key_rotates_both_are_wrapped_each_for_itself() {
        let (key, _) = epoch(1, 1).derive(&master(7), CLUSTER, &machine(1)).expect("a holder");
        let next = ClusterKey(Secret::take(&mut [8; 32]));
        let both = key.wrap(&ClusterHalf { next: Some(next), ..half() });
        let opened = key.unwrap(&both).expect("opens");
        let of = |generation| opened.of(generation).map(|key| *key.expose());
        assert_eq!([3, 4, 5, 6].map(of), [None, Some([9; 32]), Some([8; 32]), None]);
        assert_eq!([3, 4, 5, 6].map(|it| both.includes(it)), [false, true, true, false]);
        assert_eq!([4, 5].map(|it| key.wrap(&half()).includes(it)), [true, false]);
        assert_eq!(both.cipher, key.wrap(&half()).cipher, "the older one is as it was");
        let swapped = WrappedKey { cipher: both.next.expect("both"), next: Some(both.cipher), ..both };
        let mut changed = both;
        changed.next.as_mut().expect("both")[0] ^= 1;
        for other in [swapped, changed, WrappedKey { next: Some(both.cipher), ..both }] {
            assert_eq!(key.unwrap(&other).err(), Some(Unauthentic));
        }
    }

    #[test]
    fn a_lone_holders_share_is_the_key_and_epochs_are_bounded() {
        let alone = epoch(1, 1);
        let (key, share) = alone.derive(&master(7), CLUSTER, &machine(1)).expect("a holder");
        assert_eq!(key.0.expose(), share.expose());
        assert!(alone.derive(&master(7), CLUSTER, &machine(2)).is_none());
        assert_eq!([1, 2, 3, 4, 5, 6, 7].map(|holders| epoch(1, holders).threshold()), [1, 2, 2, 3, 3, 4, 4]);
        assert_eq!(Epoch::first(machine(1)), alone);
        assert_eq!(Epoch::new(0, [machine(1)].into()), Err(BadEpoch::Number));
        assert_eq!(Epoch::new(1, BTreeSet::new()), Err(BadEpoch::Holders(0)));
        assert_eq!(Epoch::new(1, (1..=8).map(machine).collect()), Err(BadEpoch::Holders(8)));
    }
}
