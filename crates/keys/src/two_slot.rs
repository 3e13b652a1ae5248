//! The envelope of the two-slot files on the ESP: seal, share, directory, record. Each is two slots of 64 KiB,
//! overwritten in turn; a reader takes the newest whose checksum holds. Knows nothing of what is inside.
//!
//! ```text
//! magic 8 ‖ version u32 ‖ generation u64 ‖ clear_len u32 ‖ clear ‖ body_len u32 ‖ nonce 12 ‖ body ‖ SHA-256 ‖ zeros
//! └──────────────── AAD of the body ────────────────────────────┘
//! ```
//! Integers are little-endian. A file without secrets has an empty body and a zero nonce.

use model::Secret;
use zeroize::Zeroizing;

use crate::derive::{TAG_BYTES, Unauthentic, decrypt, encrypt, sha256};

/// Size of a slot, in bytes.
pub const SLOT_BYTES: usize = 64 << 10;

const VERSION: u32 = 1;
const FIXED_BYTES: usize = 8 + 4 + 8 + 4 + 4 + 12 + 32;

/// The two-slot files there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum File {
    /// Makes the machine a member at its next boot.
    Seal,
    /// Share of the cold-start key that a coordinator holds.
    Share,
    /// Where the coordinators are, signed by the cluster.
    Directory,
    /// The master secret for the owner.
    Record,
}

impl File {
    /// All of them.
    pub const ALL: &[Self] = &[Self::Seal, Self::Share, Self::Directory, Self::Record];

    /// The paths of its two slots on the ESP.
    #[must_use]
    pub const fn paths(self) -> [&'static str; 2] {
        match self {
            Self::Seal => ["cairn/seal.0", "cairn/seal.1"],
            Self::Share => ["cairn/share.0", "cairn/share.1"],
            Self::Directory => ["cairn/directory.0", "cairn/directory.1"],
            Self::Record => ["cairn/record.0", "cairn/record.1"],
        }
    }

    const fn magic(self) -> &'static [u8; 8] {
        match self {
            Self::Seal => b"CAIRNSEA",
            Self::Share => b"CAIRNSHA",
            Self::Directory => b"CAIRNDIR",
            Self::Record => b"CAIRNREC",
        }
    }
}

/// The bytes of both slots of a file, as they lie on the ESP. A slot that is not there is empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Slots(pub [Zeroizing<Vec<u8>>; 2]);

impl Slots {
    /// The bytes of each slot.
    #[must_use]
    pub fn bytes(&self) -> [&[u8]; 2] {
        [&self.0[0], &self.0[1]]
    }
}

/// A slot whose checksum holds. The checksum finds torn writes and proves nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Slot {
    /// Counts writes of the file, from 1.
    pub generation: u64,
    aad: Vec<u8>,
    nonce: [u8; 12],
    body: Vec<u8>,
}

/// Why a slot holds nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SlotError {
    /// Not [`SLOT_BYTES`] long.
    #[error("the file does not have its size of 64 KiB")]
    Size,
    /// Zeros: never written.
    #[error("the file was never written")]
    Blank,
    /// Another magic.
    #[error("the file is of another kind")]
    Magic,
    /// A later version.
    #[error("the file was written by a newer Cairn (version {0})")]
    Newer(u32),
    /// The checksum does not hold, or something follows it: a torn write, or damage.
    #[error("the file is torn or damaged: its checksum does not hold")]
    Checksum,
    /// A version or generation that never was, under a checksum that holds.
    #[error("the file has an impossible version or generation")]
    Impossible,
}

impl Slot {
    /// Reads one slot of `file`.
    ///
    /// # Errors
    /// [`SlotError`] when it holds nothing that this version can read.
    pub fn read(file: File, bytes: &[u8]) -> Result<Self, SlotError> {
        if bytes.len() != SLOT_BYTES {
            return Err(SlotError::Size);
        }
        if bytes.iter().all(|byte| *byte == 0) {
            return Err(SlotError::Blank);
        }
        let mut reader = Reader { bytes, at: 0 };
        if reader.array::<8>()? != *file.magic() {
            return Err(SlotError::Magic);
        }
        // Before the checksum: a later version may keep it elsewhere.
        let version = u32::from_le_bytes(reader.array()?);
        if version > VERSION {
            return Err(SlotError::Newer(version));
        }
        let generation = u64::from_le_bytes(reader.array()?);
        reader.lengthy()?;
        let aad = bytes[..reader.at].to_vec();
        let body_length = reader.array()?;
        let nonce = reader.array()?;
        let body = reader.take(u32::from_le_bytes(body_length))?.to_vec();
        let expected = sha256(&[&bytes[..reader.at]]);
        let whole = reader.array::<32>()? == expected && bytes[reader.at..].iter().all(|byte| *byte == 0);
        match (whole, version == VERSION && generation > 0) {
            (true, true) => Ok(Self { generation, aad, nonce, body }),
            (true, false) => Err(SlotError::Impossible),
            (false, _) => Err(SlotError::Checksum),
        }
    }

    /// Clear part of the slot.
    #[must_use]
    pub fn clear(&self) -> &[u8] {
        &self.aad[CLEAR_OFFSET..]
    }

    /// Whether there is an encrypted part.
    #[must_use]
    pub fn has_body(&self) -> bool {
        !self.body.is_empty()
    }

    /// The encrypted part.
    ///
    /// # Errors
    /// [`Unauthentic`] when the key is another, or when clear part or body were changed.
    pub fn open(&self, key: &Secret<32>) -> Result<Zeroizing<Vec<u8>>, Unauthentic> {
        decrypt(key, self.nonce, &self.aad, &self.body)
    }
}

const CLEAR_OFFSET: usize = 8 + 4 + 8 + 4;

/// A two-slot file, as it was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TwoSlotFile {
    /// The slots whose checksum holds, the newest first.
    pub newest_first: Vec<Slot>,
    /// The version of a slot that a newer Cairn wrote, if there is one: then nothing is touched.
    pub newer: Option<u32>,
    /// Where the next write goes.
    pub next: NextSlot,
}

/// Where a file's next write goes: never over the newest slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NextSlot {
    /// 0 or 1: which of [`File::paths`].
    pub slot: usize,
    /// The generation to write.
    pub generation: u64,
}

impl NextSlot {
    /// The first write of a file.
    pub const FIRST: Self = Self { slot: 0, generation: 1 };

    /// The write that follows this one.
    #[must_use]
    pub const fn after(self) -> Self {
        Self { slot: 1 - self.slot, generation: self.generation + 1 }
    }
}

impl TwoSlotFile {
    /// Reads both slots of `file`.
    #[must_use]
    pub fn read(file: File, slots: [&[u8]; 2]) -> Self {
        let read = slots.map(|bytes| Slot::read(file, bytes));
        let generation = |slot: usize| read[slot].as_ref().map_or(0, |slot| slot.generation);
        let (first, second) = (generation(0), generation(1));
        let next = NextSlot { slot: usize::from(first > second), generation: first.max(second).saturating_add(1) };
        let newer = read.iter().find_map(|slot| match slot {
            Err(SlotError::Newer(version)) => Some(*version),
            Ok(_) | Err(_) => None,
        });
        let mut newest_first: Vec<_> = read.into_iter().filter_map(Result::ok).collect();
        newest_first.sort_by_key(|slot| std::cmp::Reverse(slot.generation));
        Self { newest_first, newer, next }
    }
}

/// Where the next write of `file` goes that spares the newest slot which `counts`, be it the newest or not.
#[must_use]
pub fn beside(file: File, slots: [&[u8]; 2], counts: impl Fn(&Slot) -> bool) -> NextSlot {
    let next = TwoSlotFile::read(file, slots).next;
    let counting = |at: usize| Some((Slot::read(file, slots[at]).ok().filter(&counts)?.generation, at));
    let spared = [0, 1].into_iter().filter_map(counting).max();
    NextSlot { slot: spared.map_or(next.slot, |(_, at)| 1 - at), ..next }
}

/// The encrypted part of a slot that is about to be written.
#[derive(Debug)]
pub struct SlotBody<'a> {
    /// The key; new for every write, or the nonce is.
    pub key: &'a Secret<32>,
    /// 12 random bytes.
    pub nonce: [u8; 12],
    /// Bytes that are encrypted.
    pub plain: &'a [u8],
}

/// More than a slot holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the file would be larger than its 64 KiB")]
pub struct TooLarge;

/// The bytes of a slot.
///
/// # Errors
/// [`TooLarge`] when the parts do not fit.
pub fn emit(file: File, generation: u64, clear: &[u8], body: Option<&SlotBody<'_>>) -> Result<Vec<u8>, TooLarge> {
    let body_length = body.map_or(0, |body| body.plain.len() + TAG_BYTES);
    if clear.len() + body_length > SLOT_BYTES - FIXED_BYTES {
        return Err(TooLarge);
    }
    let length = |length: usize| u32::try_from(length).map(u32::to_le_bytes).map_err(|_| TooLarge);
    let mut bytes = Vec::with_capacity(SLOT_BYTES);
    bytes.extend_from_slice(file.magic());
    bytes.extend_from_slice(&VERSION.to_le_bytes());
    bytes.extend_from_slice(&generation.to_le_bytes());
    bytes.extend_from_slice(&length(clear.len())?);
    bytes.extend_from_slice(clear);
    let cipher = body.map(|body| encrypt(body.key, body.nonce, &bytes, body.plain)).unwrap_or_default();
    bytes.extend_from_slice(&length(cipher.len())?);
    bytes.extend_from_slice(&body.map_or([0; 12], |body| body.nonce));
    bytes.extend_from_slice(&cipher);
    let checksum = sha256(&[&bytes]);
    bytes.extend_from_slice(&checksum);
    bytes.resize(SLOT_BYTES, 0);
    Ok(bytes)
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    /// Lengths that lead out of the slot can only come from a tear or from damage.
    fn take(&mut self, length: u32) -> Result<&'a [u8], SlotError> {
        let end = usize::try_from(length).ok().and_then(|length| self.at.checked_add(length));
        let taken = end.and_then(|end| self.bytes.get(self.at..end)).ok_or(SlotError::Checksum)?;
        self.at += taken.len();
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], SlotError> {
        let end = self.at + N;
        let array = self.bytes.get(self.at..end).and_then(|bytes| bytes.try_into().ok());
        self.at = end;
        array.ok_or(SlotError::Checksum)
    }

    fn lengthy(&mut self) -> Result<&'a [u8], SlotError> {
        let length = u32::from_le_bytes(self.array()?);
        self.take(length)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn slot(generation: u64, clear: &[u8]) -> Vec<u8> {
        emit(File::Directory, generation, clear, None).expect("fits")
    }

    fn blank() -> Vec<u8> {
        vec![0; SLOT_BYTES]
    }

    #[test]
    fn a_slot_says_the_same_after_a_round_trip() {
        let key = Secret::take(&mut [1; 32]);
        let body = SlotBody { key: &key, nonce: [2; 12], plain: b"body" };
        let bytes = emit(File::Seal, 7, b"clear", Some(&body)).expect("fits");
        assert_eq!(bytes.len(), SLOT_BYTES);
        let slot = Slot::read(File::Seal, &bytes).expect("reads");
        assert_eq!((slot.generation, slot.clear(), slot.has_body()), (7, &b"clear"[..], true));
        assert_eq!(slot.open(&key).as_deref().map(Vec::as_slice), Ok(&b"body"[..]));
        let other = Secret::take(&mut [2; 32]);
        assert_eq!(slot.open(&other), Err(Unauthentic));
        assert_eq!(Slot::read(File::Share, &bytes), Err(SlotError::Magic));
        assert_eq!(emit(File::Seal, 1, &blank(), None), Err(TooLarge));
        let largest = SLOT_BYTES - FIXED_BYTES;
        let full = emit(File::Seal, 1, &blank()[..largest], None).expect("fits to the last byte");
        assert_eq!(Slot::read(File::Seal, &full).expect("reads").clear().len(), largest);
        assert!(!Slot::read(File::Seal, &full).expect("reads").has_body());
    }

    #[test]
    fn writes_take_turns() {
        let second = NextSlot::FIRST.after();
        assert_eq!((second.slot, second.generation), (1, 2));
        assert_eq!((second.after().slot, second.after().generation), (0, 3));
    }

    #[test]
    fn the_body_is_bound_to_the_clear_part() {
        let key = Secret::take(&mut [1; 32]);
        let body = SlotBody { key: &key, nonce: [2; 12], plain: b"body" };
        let mut bytes = emit(File::Seal, 7, b"clear", Some(&body)).expect("fits");
        bytes[CLEAR_OFFSET] ^= 1;
        let end = FIXED_BYTES - 32 + 5 + 4 + TAG_BYTES;
        let checksum = sha256(&[&bytes[..end]]);
        bytes[end..end + 32].copy_from_slice(&checksum);
        assert_eq!(Slot::read(File::Seal, &bytes).expect("the checksum holds").open(&key), Err(Unauthentic));
    }

    /// Proves: D7
    #[test]
    fn a_write_cut_at_any_byte_leaves_the_older_slot_or_is_whole() {
        let (old, new) = (slot(1, b"old"), slot(2, b"new, and longer"));
        let end = FIXED_BYTES + 15;
        for torn_over in [blank(), slot(7, &[0xee; 200])] {
            for cut in 0..=end + 200 {
                let mut torn = torn_over.clone();
                torn[..cut].copy_from_slice(&new[..cut]);
                let file = TwoSlotFile::read(File::Directory, [&old, &torn]);
                let newest = file.newest_first[0].clear();
                assert!(newest == b"old" || newest == b"new, and longer" || newest == [0xee; 200], "cut at {cut}");
                assert_eq!(file.newer, None);
            }
        }
    }

    /// Proves: D7
    #[test]
    fn the_newest_slot_comes_first_wherever_it_lies() {
        let generations = |first: &[u8], second: &[u8]| {
            let file = TwoSlotFile::read(File::Directory, [first, second]);
            file.newest_first.iter().map(|slot| slot.generation).collect::<Vec<_>>()
        };
        assert_eq!(generations(&slot(1, b"a"), &slot(2, b"b")), [2, 1]);
        assert_eq!(generations(&slot(2, b"b"), &slot(1, b"a")), [2, 1]);
        assert_eq!(generations(&blank(), &slot(1, b"a")), [1]);
    }

    #[test]
    fn writes_go_in_turn_and_never_over_the_newest() {
        let next = |first: &[u8], second: &[u8]| TwoSlotFile::read(File::Directory, [first, second]).next;
        assert_eq!(next(&blank(), &blank()), NextSlot::FIRST);
        assert_eq!(next(&slot(1, b""), &blank()), NextSlot { slot: 1, generation: 2 });
        assert_eq!(next(&slot(1, b""), &slot(2, b"")), NextSlot { slot: 0, generation: 3 });
        assert_eq!(next(&slot(3, b""), &slot(2, b"")), NextSlot { slot: 1, generation: 4 });
        assert_eq!(next(&blank(), &slot(2, b"")), NextSlot { slot: 0, generation: 3 });
    }

    #[test]
    fn a_newer_version_is_told_apart_from_damage() {
        let mut newer = slot(2, b"x");
        newer[8] = 2;
        let file = TwoSlotFile::read(File::Directory, [&slot(1, b"old"), &newer]);
        assert_eq!((file.newer, file.newest_first.len()), (Some(2), 1));
        let mut generationless = slot(1, b"x");
        generationless[12] = 0;
        assert_eq!(Slot::read(File::Directory, &generationless), Err(SlotError::Checksum));
        assert_eq!(Slot::read(File::Directory, &slot(0, b"x")), Err(SlotError::Impossible));
        assert_eq!(Slot::read(File::Directory, &blank()), Err(SlotError::Blank));
        assert_eq!(Slot::read(File::Directory, &[]), Err(SlotError::Size));
    }

    proptest! {
        #[test]
        fn no_changed_bit_goes_unseen(at in 0usize..SLOT_BYTES, bit in 0u8..8) {
            let mut bytes = slot(1, b"clear");
            bytes[at] ^= 1 << bit;
            prop_assert!(Slot::read(File::Directory, &bytes).is_err());
        }
    }
}
