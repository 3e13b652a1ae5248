//! Voters that were all switched off open one another: each gives its share of an epoch's cold-start key to those whom its own
//! signed directory calls coordinators and its own share calls holders, and takes theirs. Here is decided who is given a
//! share, what is taken from whom, when it is enough, and where the others may be by now. Must never contact anybody.
//!
//! ```text
//!   ShareHolder: own shares + directory ──gives──► a share, to another voter of that epoch
//!     └─ ShareCollector: one that waits, and has asked all coordinators, none of which has a leader
//!                                  ──takes──► a quorum of shares: the half of its key
//!                                  └────────► where the others are: Whereabouts
//! ```
//!
//! # Invariants
//! - A waiting coordinator gives no share before it has asked all others and none has a leader; where one has, its
//!   directory holds: `crates/unlock/src/exchange/tests.rs`
//! - A share goes to a machine that the giver's own directory calls a coordinator and its own share a holder, and to
//!   nobody else: `crates/unlock/src/exchange/tests.rs`, `crates/pki/tests/handshakes.rs`

use std::collections::{BTreeMap, BTreeSet};

use cluster::directory::is_jump;
use keys::cold_start::{Contribution, Shares, Sightings, UnknownHolder};
use keys::data_key::ClusterHalf;
use keys::directory::{Directory, DirectoryError, DirectoryMinimum};
use keys::endpoint::Endpoint;
use keys::share::ShareKey;
use keys::two_slot::Slots;
use model::{DiskUuid, MachineId, Secret};

use crate::directory;
use crate::share::{OpenShare, open_shares};
use crate::whereabouts::{Whereabouts, bounded, each_once};

/// Why nothing is given to, or taken from, somebody who has proved to be a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ExchangeError {
    /// The cluster never said so, or says so no more.
    #[error("by this machine's directory machine {0} is no other coordinator")]
    NoCoordinator(MachineId),
    /// An epoch that is over, or has not reached this machine.
    #[error("this machine holds no share of epoch {0}")]
    NoSuchEpoch(u32),
    /// The other machine became a coordinator later, or was one before.
    #[error("machine {machine} holds no share of epoch {epoch}")]
    NoHolder {
        /// The other machine.
        machine: MachineId,
        /// The epoch that was asked for.
        epoch: u32,
    },
    /// While there is a leader the records decide, and the directory may be an old one.
    #[error("this machine has not found out yet that no coordinator has a leader; ask again")]
    MayHaveLeader,
}

/// Files on the ESP of a machine that may hold shares, and how they are read.
#[derive(Debug, Clone, Copy)]
pub struct OnEsp<'a> {
    /// The machine whose ESP it is.
    pub itself: MachineId,
    /// The machine's disk.
    pub disk: DiskUuid,
    /// Key that opens the machine's shares.
    pub key: &'a ShareKey,
    /// The SubjectPublicKeyInfo (DER) of the machine's cluster's CA.
    pub ca_spki: &'a [u8],
    /// Which directories the machine's seal takes.
    pub minimum: &'a DirectoryMinimum,
    /// The share's slots.
    pub share: &'a Slots,
    /// The directory's slots.
    pub directory: &'a Slots,
    /// Directories that were heard of in this boot, and are not believed yet.
    pub heard: &'a [Vec<u8>],
}

/// A machine that holds shares.
#[derive(Debug)]
pub struct ShareHolder {
    itself: MachineId,
    directory: Directory,
    held: Vec<OpenShare>,
}

impl ShareHolder {
    /// Reads the voter of a machine whose data is open, by its ESP and a directory that it has heard of since. None where there
    /// is no directory.
    ///
    /// # Errors
    /// Why the newest directory is not believed, where none is.
    pub fn on_esp(of: OnEsp<'_>) -> Result<Option<Self>, DirectoryError> {
        let minimum = of.minimum.beside(of.directory.bytes());
        let written = directory::newest(of.directory, of.ca_spki, minimum);
        let verified = |signed: &Vec<u8>| Directory::verify(signed, of.ca_spki, minimum).ok();
        let newest = |written: Option<Directory>| {
            let held = written.as_ref().map_or(minimum.saturating_sub(1), |directory| directory.version);
            let heard = of.heard.iter().filter_map(verified).filter(|directory| !is_jump(held, directory.version));
            written.into_iter().chain(heard).max_by_key(|directory| directory.version)
        };
        let directory = match written {
            Ok(written) => newest(written),
            Err(error) => Some(newest(None).ok_or(error)?),
        };
        let (held, _of_no_use) = open_shares(of.share, of.disk, of.key);
        Ok(directory.map(|directory| Self::new(of.itself, directory, held)))
    }

    /// Makes a voter that holds these shares, the newest first, and believes this directory of its own.
    #[must_use]
    pub const fn new(itself: MachineId, directory: Directory, held: Vec<OpenShare>) -> Self {
        Self { itself, directory, held }
    }

    /// The epochs of its shares, the newest first.
    pub fn epochs(&self) -> impl Iterator<Item = u32> {
        self.held.iter().map(|held| held.epoch.number())
    }

    /// The share that `machine` is given, which has proved to be that machine.
    ///
    /// # Errors
    /// [`ExchangeError`].
    pub fn share_for(&self, machine: MachineId, epoch: u32) -> Result<&Secret<32>, ExchangeError> {
        if !self.is_partner(machine) {
            return Err(ExchangeError::NoCoordinator(machine));
        }
        let held =
            self.held.iter().find(|held| held.epoch.number() == epoch).ok_or(ExchangeError::NoSuchEpoch(epoch))?;
        if !held.epoch.holders().contains(&machine) {
            return Err(ExchangeError::NoHolder { machine, epoch });
        }
        Ok(&held.value)
    }

    /// Makes the contribution for another machine: this machine's share, and where it has heard of others in this boot, itself among
    /// them.
    ///
    /// # Errors
    /// [`ExchangeError`].
    pub fn contribution(
        &self,
        machine: MachineId,
        epoch: u32,
        endpoints: Vec<Endpoint>,
        whereabouts: &Whereabouts,
    ) -> Result<Contribution, ExchangeError> {
        let share = self.share_for(machine, epoch)?.duplicate();
        let mut seen = whereabouts.heard.clone();
        seen.insert(self.itself, bounded(endpoints));
        Ok(Contribution { epoch, share, seen })
    }

    /// Answers `machine`, which has proved to be that machine and came from `source`: its share is not needed any more, and what it
    /// has heard is learnt.
    ///
    /// # Errors
    /// [`ExchangeError`]: then nothing was given, and nothing learnt.
    pub fn answer(
        &self,
        machine: MachineId,
        source: Option<Endpoint>,
        given: Contribution,
        whereabouts: &mut Whereabouts,
    ) -> Result<Contribution, ExchangeError> {
        let ours = self.contribution(machine, given.epoch, Vec::new(), whereabouts)?;
        whereabouts.learn(machine, source, given.seen, |it| self.is_partner(it));
        Ok(ours)
    }

    /// Whether a machine is another voter.
    fn is_partner(&self, machine: MachineId) -> bool {
        machine != self.itself && self.coordinators().any(|it| it == machine)
    }

    /// The other voters, each with the epochs of which it holds a share, too, the newest first.
    #[must_use]
    pub fn partners(&self) -> Vec<(MachineId, Vec<u32>)> {
        let others: BTreeSet<_> = self.coordinators().collect();
        let epochs =
            |machine: &MachineId| self.epochs().filter(|epoch| self.share_for(*machine, *epoch).is_ok()).collect();
        let partners = others.into_iter().map(|machine| (machine, epochs(&machine)));
        partners.filter(|(_, epochs): &(_, Vec<u32>)| !epochs.is_empty()).collect()
    }

    fn coordinators(&self) -> impl Iterator<Item = MachineId> {
        self.directory.coordinators.iter().map(|coordinator| coordinator.machine)
    }

    /// Where the directory says that a coordinator is.
    fn listed(&self, machine: MachineId) -> impl Iterator<Item = Endpoint> {
        let listed = self.directory.coordinators.iter().filter(move |coordinator| coordinator.machine == machine);
        listed.flat_map(|coordinator| &coordinator.endpoints).filter_map(|text| Endpoint::read(text).ok())
    }
}

/// A voter that waits for its key.
#[derive(Debug)]
pub struct ShareCollector {
    voter: ShareHolder,
    shares: BTreeMap<u32, Shares>,
    whereabouts: Whereabouts,
    /// Places at which a coordinator may have a leader: those that were not asked for the key, and did not fail to give it.
    unasked: BTreeSet<Endpoint>,
}

impl ShareCollector {
    /// Begins with the machine's own shares; none where no share of its own needs others.
    #[must_use]
    pub fn begin(voter: ShareHolder) -> Option<Self> {
        let shares = voter.held.iter().filter_map(|held| {
            let mut shares = Shares::new(held.epoch.clone(), held.wrapped);
            let alone = shares.give(voter.itself, held.value.duplicate());
            matches!(alone, Ok(None)).then_some((held.epoch.number(), shares))
        });
        let shares: BTreeMap<_, _> = shares.collect();
        let whereabouts = Whereabouts::default();
        let mut begun =
            (!shares.is_empty()).then_some(Self { voter, shares, whereabouts, unasked: BTreeSet::new() })?;
        begun.unasked = begun.places();
        Some(begun)
    }

    /// Where coordinators are asked for the key: at each place where another one may be, by what was heard and by the directory, and
    /// at those that are to say yet whether they have a leader.
    #[must_use]
    pub fn asks(&self) -> BTreeSet<Endpoint> {
        let mut asks = self.places();
        asks.extend(self.unasked.iter().cloned());
        asks
    }

    fn places(&self) -> BTreeSet<Endpoint> {
        let others = self.voter.coordinators().filter(|machine| *machine != self.voter.itself);
        others.flat_map(|machine| self.endpoints(machine)).collect()
    }

    /// `machine`, which has proved to be that machine, came from `source` to ask for its own key. It may be one of those that this
    /// machine cannot find, and come to lead by the shares of others before it calls again.
    pub fn is_called_by(&mut self, machine: MachineId, source: Option<Endpoint>) {
        if self.voter.is_partner(machine) {
            self.whereabouts.learn(machine, source, Sightings::new(), |_| false);
        }
    }

    /// Notes that whoever was asked for the key at `endpoint` does not answer, or has no leader.
    pub fn no_leader_at(&mut self, endpoint: &Endpoint) {
        self.unasked.remove(endpoint);
    }

    /// A coordinator that has a leader has answered at `endpoint`: all are asked anew. What it told of the coordinators is believed if the CA
    /// with this SubjectPublicKeyInfo (DER) has signed it and it is newer.
    pub fn leader_answered(&mut self, endpoint: &Endpoint, told: &[u8], ca_spki: &[u8]) {
        self.unasked = self.asks();
        self.unasked.insert(endpoint.clone());
        let held = &mut self.voter.directory;
        if let Ok(directory) = Directory::verify(told, ca_spki, held.version)
            && !is_jump(held.version, directory.version)
        {
            *held = directory;
            self.unasked = self.asks();
        }
    }

    /// Whether shares are exchanged: all coordinators were asked, and none of them has a leader.
    #[must_use]
    pub fn may_contribute(&self) -> bool {
        self.unasked.is_empty()
    }

    /// This machine as a voter: the shares that it gives, and to whom.
    #[must_use]
    pub const fn voter(&self) -> &ShareHolder {
        &self.voter
    }

    /// Where the others are, by what was heard in this boot.
    #[must_use]
    pub const fn whereabouts(&self) -> &Whereabouts {
        &self.whereabouts
    }

    /// Makes the contribution for `machine`, as an open voter does.
    ///
    /// # Errors
    /// [`ExchangeError`].
    pub fn contribution(
        &self,
        machine: MachineId,
        epoch: u32,
        endpoints: Vec<Endpoint>,
    ) -> Result<Contribution, ExchangeError> {
        if !self.may_contribute() {
            return Err(ExchangeError::MayHaveLeader);
        }
        self.voter.contribution(machine, epoch, endpoints, &self.whereabouts)
    }

    /// Where to look for a partner: where it was heard of in this boot, then where others have heard of it, then where the
    /// directory says; each once.
    #[must_use]
    pub fn endpoints(&self, machine: MachineId) -> Vec<Endpoint> {
        each_once(self.whereabouts.of(machine).into_iter().chain(self.voter.listed(machine)))
    }

    /// How many shares there are of an epoch, and how many it takes.
    pub fn progress(&self) -> impl Iterator<Item = (u32, usize, usize)> {
        self.shares.iter().map(|(epoch, shares)| (*epoch, shares.given().count(), shares.epoch().threshold()))
    }

    /// Takes what `machine` gave, which has proved to be that machine, and came from `source`. The half, as soon as a quorum
    /// of right shares is there.
    ///
    /// # Errors
    /// [`ExchangeError`]: then nothing of it was taken.
    pub fn take(
        &mut self,
        machine: MachineId,
        source: Option<Endpoint>,
        given: Contribution,
    ) -> Result<Option<ClusterHalf>, ExchangeError> {
        let Contribution { epoch, share, seen } = given;
        self.voter.share_for(machine, epoch)?;
        let shares = self.shares.get_mut(&epoch).ok_or(ExchangeError::NoSuchEpoch(epoch))?;
        let half =
            shares.give(machine, share).map_err(|UnknownHolder(machine)| ExchangeError::NoHolder { machine, epoch })?;
        self.whereabouts.learn(machine, source, seen, |it| self.voter.is_partner(it));
        Ok(half)
    }
}

#[cfg(test)]
mod tests;
