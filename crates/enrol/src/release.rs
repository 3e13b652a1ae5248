//! A member whose disk is closed and whose key is with its cluster or its owner: which half it asks for, whom, what the owner is
//! shown, and whether a half that it is given opens the disk. Must never believe a directory that the cluster did not sign.

use keys::data_key::{ClusterHalf, OpenError, open};
use keys::directory::{Directory, DirectoryError, Kept};
use keys::endpoint::Endpoint;
use keys::header::Copies;
use keys::identity::Identity;
use keys::pair::{File, Pair};
use keys::record::Record;
use model::{ClusterKey, DiskUuid, Level};

use crate::asking::Answer;
use crate::contribute::{Gathering, Held, Voter};
use crate::found::{Seal, Slots};
use crate::renewal::{NotRenewed, Renewal, Write};
use crate::wait::Wait;

/// A member without its key, and what it knows.
#[derive(Debug, Clone, Copy)]
pub struct Keyless<'a> {
    seal: &'a Seal,
    generation: u32,
    header: &'a Copies,
    directory: &'a Slots,
    record: Option<&'a Record>,
    shares: &'a [Held],
}

impl<'a> Keyless<'a> {
    /// Makes a keyless member of a wait, with the seal that opened; none where a machine waits for something else.
    #[must_use]
    pub fn of(wait: &'a Wait, seal: Option<&'a Seal>) -> Option<Self> {
        match (wait, seal) {
            (Wait::AwaitingKeys { generation, header, directory, record, shares }, Some(seal)) => {
                Some(Self { seal, generation: *generation, header, directory, record: record.as_deref(), shares })
            }
            (
                Wait::Blank(_)
                | Wait::LetIn(_)
                | Wait::AwaitingKeys { .. }
                | Wait::NeedsOwner(_)
                | Wait::Damaged(_)
                | Wait::Failed(_),
                _,
            ) => None,
        }
    }

    /// The machine's identity, by its seal.
    #[must_use]
    pub fn identity(&self) -> &'a Identity {
        &self.seal.body.identity
    }

    /// The disk that is to be opened.
    #[must_use]
    pub const fn disk(&self) -> DiskUuid {
        self.seal.body.disk
    }

    /// Which half: of the committed header.
    #[must_use]
    pub const fn generation(&self) -> u32 {
        self.generation
    }

    /// Below which version no directory is believed.
    fn minimum(&self) -> u64 {
        self.seal.minimum().beside(self.directory.bytes())
    }

    /// How the disk is protected.
    #[must_use]
    pub const fn level(&self) -> Level {
        self.seal.body.level
    }

    /// The record that the owner may open to find the half, if that is still there.
    #[must_use]
    pub const fn record(&self) -> Option<&'a Record> {
        self.record
    }

    /// Where the other coordinators are, by the newest directory that the CA with this SubjectPublicKeyInfo (DER) signed: each
    /// endpoint once.
    ///
    /// # Errors
    /// Why the newest is not believed, where none is.
    pub fn coordinators(&self, ca_spki: &[u8]) -> Result<Vec<Endpoint>, DirectoryError> {
        let directory = newest_directory(self.directory, ca_spki, self.minimum())?;
        Ok(directory.map_or_else(Vec::new, |directory| self.others(&directory)))
    }

    /// The gathering by which the machine exchanges shares with others. None where it has no share that needs others.
    ///
    /// # Errors
    /// As [`Self::coordinators`].
    pub fn gathering(&self, ca_spki: &[u8]) -> Result<Option<Gathering>, DirectoryError> {
        let directory = newest_directory(self.directory, ca_spki, self.minimum())?;
        let held = self.shares.iter().map(Held::duplicate).collect();
        let voter = directory.map(|directory| Voter::new(self.seal.body.holder().machine, directory, held));
        Ok(voter.and_then(Gathering::begin))
    }

    fn others(&self, directory: &Directory) -> Vec<Endpoint> {
        let itself = self.seal.body.holder().machine;
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

    /// The answer that this key is, if it opens the disk; `next` is what came along with it.
    ///
    /// # Errors
    /// What the header says against it.
    pub fn answer(&self, key: ClusterKey, next: Option<ClusterKey>) -> Result<Answer, OpenError> {
        let half = ClusterHalf { key, disk: self.disk(), generation: self.generation, next };
        self.takes(&half).map(|()| Answer::ClusterHalf(half))
    }

    /// Makes the write of a directory that the owner gives, and that the CA with this SubjectPublicKeyInfo (DER) has signed.
    ///
    /// # Errors
    /// Why it is not taken.
    pub(crate) fn renew(&self, signed: &[u8], ca_spki: &[u8]) -> Result<Write, NotRenewed> {
        Renewal::of(self.directory, ca_spki.to_vec(), self.seal.minimum()).by_owner(signed)
    }

    /// Whether a half opens the disk.
    ///
    /// # Errors
    /// What the header says against it.
    pub(crate) fn takes(&self, half: &ClusterHalf) -> Result<(), OpenError> {
        let body = &self.seal.body;
        open(self.header, &body.local_key, Some(half), &body.expected()).map(|_| ())
    }
}

/// The newest directory of the two slots that the CA with this SubjectPublicKeyInfo (DER) signed and that is not below `minimum`;
/// none where both slots are empty.
///
/// # Errors
/// Why the newest is not believed, where none is.
pub(crate) fn newest_directory(
    slots: &Slots,
    ca_spki: &[u8],
    minimum: u64,
) -> Result<Option<Directory>, DirectoryError> {
    let mut refused = None;
    for slot in Pair::read(File::Directory, slots.bytes()).newest_first {
        match Kept::verify(slot.clear(), ca_spki, minimum) {
            Ok(Kept { directory, .. }) => return Ok(Some(directory)),
            Err(error) => {
                refused.get_or_insert(error);
            }
        }
    }
    refused.map_or(Ok(None), Err)
}

#[cfg(test)]
mod tests;
