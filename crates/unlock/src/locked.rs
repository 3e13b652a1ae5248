//! A member whose disk is closed and whose key is with its cluster or its owner: which half it asks for, whom, what the owner is
//! shown, and whether a half that it is given opens the disk. Must never believe a directory that the cluster did not sign.

use keys::data_key::{ClusterHalf, OpenError, open};
use keys::directory::{Directory, DirectoryError, DirectoryMinimum};
use keys::endpoint::Endpoint;
use keys::header::Copies;
use keys::identity::Identity;
use keys::record::Record;
use keys::seal::Body;
use keys::two_slot::Slots;
use model::{ClusterKey, DiskUuid, Level};

use crate::directory;
use crate::exchange::{ShareCollector, ShareHolder};
use crate::renewal::{DirectoryWrite, RenewError, Renewal};
use crate::share::OpenShare;

/// A closed disk, and what lies on the ESP beside the seal that opened.
#[derive(Debug)]
pub struct LockedDisk {
    /// The generation of the half that is needed: of the committed header.
    pub generation: u32,
    /// Both copies of the data header, of which the half has to open one.
    pub header: Copies,
    /// Where the coordinators are: not believed yet.
    pub directory: Slots,
    /// The record that the owner opens, if that is still there.
    pub record: Option<Record>,
    /// The machine's own shares, each of which takes others beside it to give the half; the newest first.
    pub shares: Vec<OpenShare>,
}

/// A half that opens the disk of the member that judged it. Only [`LockedMember::judge`] makes one.
#[derive(Debug)]
pub struct FittingHalf(ClusterHalf);

impl From<FittingHalf> for ClusterHalf {
    fn from(FittingHalf(half): FittingHalf) -> Self {
        half
    }
}

/// A member without its key, and what it knows.
#[derive(Debug, Clone, Copy)]
pub struct LockedMember<'a> {
    body: &'a Body,
    seal: u64,
    disk: &'a LockedDisk,
}

impl<'a> LockedMember<'a> {
    /// A member by its seal's body and that seal's generation, which are of this disk.
    #[must_use]
    pub const fn new(body: &'a Body, seal: u64, disk: &'a LockedDisk) -> Self {
        Self { body, seal, disk }
    }

    /// The machine's identity, by its seal.
    #[must_use]
    pub fn identity(&self) -> &'a Identity {
        &self.body.identity
    }

    /// The disk that is to be opened.
    #[must_use]
    pub const fn disk(&self) -> DiskUuid {
        self.body.disk
    }

    /// Which half: of the committed header.
    #[must_use]
    pub const fn generation(&self) -> u32 {
        self.disk.generation
    }

    /// How the disk is protected.
    #[must_use]
    pub const fn level(&self) -> Level {
        self.body.level
    }

    /// The record that the owner may open to find the half, if that is still there.
    #[must_use]
    pub const fn record(&self) -> Option<&'a Record> {
        self.disk.record.as_ref()
    }

    /// Where the other coordinators are, by the newest directory that the CA with this SubjectPublicKeyInfo (DER) signed: each
    /// endpoint once.
    ///
    /// # Errors
    /// Why the newest is not believed, where none is.
    pub fn coordinators(&self, ca_spki: &[u8]) -> Result<Vec<Endpoint>, DirectoryError> {
        Ok(self.newest(ca_spki)?.map_or_else(Vec::new, |directory| self.others(&directory)))
    }

    /// The collector of others' shares. None where it has no share that needs others.
    ///
    /// # Errors
    /// As [`Self::coordinators`].
    pub fn collector(&self, ca_spki: &[u8]) -> Result<Option<ShareCollector>, DirectoryError> {
        let shares = self.disk.shares.iter().map(OpenShare::duplicate).collect();
        let voter =
            self.newest(ca_spki)?.map(|directory| ShareHolder::new(self.body.holder().machine, directory, shares));
        Ok(voter.and_then(ShareCollector::begin))
    }

    /// A half of this disk's key, of the generation that is needed; `next` is the key that came along with it.
    #[must_use]
    pub const fn half(&self, key: ClusterKey, next: Option<ClusterKey>) -> ClusterHalf {
        ClusterHalf { key, disk: self.disk(), generation: self.generation(), next }
    }

    /// Judges whether a half opens the disk.
    ///
    /// # Errors
    /// Verdict of the disk's header against the half.
    pub fn judge(&self, half: ClusterHalf) -> Result<FittingHalf, OpenError> {
        let opened = open(&self.disk.header, &self.body.local_key, Some(&half), &self.body.expected());
        opened.map(|_| FittingHalf(half))
    }

    /// Makes the write of a directory that the owner gives, and that the CA with this SubjectPublicKeyInfo (DER) has signed.
    ///
    /// # Errors
    /// Why it is not taken.
    pub fn renew(&self, signed: &[u8], ca_spki: &[u8]) -> Result<DirectoryWrite, RenewError> {
        Renewal::of(&self.disk.directory, ca_spki.to_vec(), self.minimum()).by_owner(signed)
    }

    /// Below which version no directory is believed.
    fn minimum(&self) -> DirectoryMinimum {
        self.body.directory_minimum(self.seal)
    }

    fn newest(&self, ca_spki: &[u8]) -> Result<Option<Directory>, DirectoryError> {
        let slots = &self.disk.directory;
        directory::newest(slots, ca_spki, self.minimum().beside(slots.bytes()))
    }

    fn others(&self, directory: &Directory) -> Vec<Endpoint> {
        let itself = self.body.holder().machine;
        let others = directory.coordinators.iter().filter(|coordinator| coordinator.machine != itself);
        let mut endpoints = Vec::new();
        // What a later version spells otherwise is not for this one to dial.
        for endpoint in others.flat_map(|other| &other.endpoints).filter_map(|text| Endpoint::read(text).ok()) {
            if !endpoints.contains(&endpoint) {
                endpoints.push(endpoint);
            }
        }
        endpoints
    }
}

#[cfg(test)]
mod tests;
