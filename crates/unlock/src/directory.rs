//! Directories that lie on a machine's ESP: which of the two slots are believed, which one counts, and how far a seal's minimum may
//! follow them. Must never believe one that the cluster did not sign.

use keys::directory::{Directory, DirectoryError, KeptDirectory};
use keys::two_slot::{File, Slot, Slots, TwoSlotFile};

/// The newest directory of the two slots that the CA with this SubjectPublicKeyInfo (DER) signed and that is not below `minimum`;
/// none where both slots are empty.
///
/// # Errors
/// Why the newest is not believed, where none is.
pub fn newest(slots: &Slots, ca_spki: &[u8], minimum: u64) -> Result<Option<Directory>, DirectoryError> {
    let mut refused = None;
    for slot in TwoSlotFile::read(File::Directory, slots.bytes()).newest_first {
        match KeptDirectory::verify(slot.clear(), ca_spki, minimum) {
            Ok(KeptDirectory { directory, .. }) => return Ok(Some(directory)),
            Err(error) => {
                refused.get_or_insert(error);
            }
        }
    }
    refused.map_or(Ok(None), Err)
}

/// A directory that lies in a slot and is believed.
#[derive(Debug)]
pub(crate) struct Believed {
    pub(crate) slot: usize,
    generation: u64,
    pub(crate) kept: KeptDirectory,
}

/// Directories in the slots that the cluster of the CA with this SubjectPublicKeyInfo (DER) signed and the seal allows: the
/// newest first.
pub(crate) fn believed(slots: &Slots, ca_spki: &[u8], minimum: u64) -> Vec<Believed> {
    let read = |(at, bytes): (usize, &[u8])| {
        let slot = Slot::read(File::Directory, bytes).ok()?;
        let kept = KeptDirectory::verify(slot.clear(), ca_spki, minimum).ok()?;
        Some(Believed { slot: at, generation: slot.generation, kept })
    };
    let mut believed: Vec<_> = slots.bytes().into_iter().enumerate().filter_map(read).collect();
    believed.sort_by_key(|believed| std::cmp::Reverse(believed.generation));
    believed
}

/// The minimum that a seal may rise to: that of the older of both slots, where both are believed and it is above `minimum`, and not
/// above what was vouched for when they were written. Whichever of them is lost then, the other one is not refused.
#[must_use]
pub fn durable(slots: &Slots, ca_spki: &[u8], minimum: u64) -> Option<u64> {
    let [one, other] = <[_; 2]>::try_from(believed(slots, ca_spki, minimum)).ok()?;
    let vouched = one.kept.vouched.max(other.kept.vouched)?;
    let older = one.kept.directory.version.min(other.kept.directory.version);
    Some(older.min(vouched)).filter(|durable| *durable > minimum)
}
