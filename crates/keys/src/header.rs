//! The data header: 4096 bytes at the start of the data partition, kept twice. Bytes to meaning and back, no keys.
//!
//! | offset | size | field |
//! |---|---|---|
//! | 0 | 8 | magic: `CAIRNDAT`, or `CAIRNRAW` at level insecure |
//! | 8 | 4 | version 1 |
//! | 12 | 4 | suite: 1 authenticated, 2 encrypted; 0 with `CAIRNRAW` |
//! | 16 | 4 | state: 1 provisional, 2 committed |
//! | 20 | 4 | cluster key generation; 0 with `CAIRNRAW` |
//! | 24 | 8 | header generation |
//! | 32 | 16 | disk UUID |
//! | 48 | 32 | salt; from here to 480 zero with `CAIRNRAW` |
//! | 80 | 16 + 16 | check_local, check_cluster |
//! | 112 | 96 | owner slot: kind, 12 zero bytes, encapsulated key 32, ciphertext 48 |
//! | 208 | 48 | the wrapped volume key |
//! | 256 | 224 | 0 |
//! | 480 | 32 | SHA-256 of bytes 0..480 |
//! | 512 | 3584 | 0 |
//!
//! Integers are little-endian. All that counts lies in one sector, so a torn write leaves the old header or the new.

use model::{DiskUuid, Level, Uuid};

use crate::derive::sha256;
use crate::recovery::SealedToOwner;

/// Size of a header copy.
pub const HEADER_BYTES: usize = 4096;
/// Where the two copies start, in bytes from the start of the data partition.
pub const HEADER_OFFSETS: [u64; 2] = [0, 512 << 10];
/// Where dm-integrity, or what stands in its place, starts.
pub const DATA_OFFSET: u64 = 1 << 20;

const VERSION: u32 = 1;
const LOCKED_MAGIC: &[u8; 8] = b"CAIRNDAT";
const RAW_MAGIC: &[u8; 8] = b"CAIRNRAW";
const CHECKSUM: usize = 480;
const SECTOR: usize = 512;
const OWNER_NONE: u32 = 0;
const OWNER_HPKE: u32 = 1;
/// How much of the header the wrapped key authenticates.
pub(crate) const AAD_BYTES: usize = 208;

/// A header that says what version 1 can say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    /// Whether a seal for this disk was ever durable.
    pub state: HeaderState,
    /// Counts writes of the header, from 1.
    pub generation: u64,
    /// The disk's name.
    pub disk: DiskUuid,
    /// The lock, or nothing at level insecure.
    pub lock: Option<Box<Lock>>,
}

/// How far create came.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum HeaderState {
    /// Formatting, or formatted but not yet sealed: nobody's data.
    Provisional,
    /// Somebody's data.
    Committed,
}

/// How the data is locked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Suite {
    /// dm-integrity with HMAC-SHA-256 under XTS-AES-256.
    Authenticated,
    /// XTS-AES-256.
    Encrypted,
}

/// Key fields: how the data is locked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lock {
    /// How the data is locked.
    pub suite: Suite,
    /// Which cluster key is needed.
    pub key_generation: u32,
    /// Fresh at every write.
    pub salt: [u8; 32],
    /// Says whether the local half is right.
    pub check_local: [u8; 16],
    /// Says whether the cluster half is right.
    pub check_cluster: [u8; 16],
    /// The volume key for the owner, where there is one.
    pub owner: Option<SealedToOwner>,
    /// The volume key under both halves.
    pub wrapped: [u8; 48],
}

/// Why bytes that are not blank are no header of version 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HeaderError {
    /// Fewer or more than [`HEADER_BYTES`]: a truncated disk.
    #[error("the data header is cut short")]
    Size,
    /// The disk does not give it.
    #[error("the disk gives an error where the data header lies")]
    Unreadable,
    /// Neither magic.
    #[error("the start of the data partition is no data header")]
    Magic,
    /// A later version.
    #[error("the data header was written by a newer Cairn (version {0})")]
    Newer(u32),
    /// The checksum does not hold: torn, or damaged.
    #[error("the data header is damaged: its checksum does not hold")]
    Checksum,
    /// A version that never was.
    #[error("the data header has the unknown version {0}")]
    Version(u32),
    /// A suite this version does not know.
    #[error("the data header has the unknown suite {0}")]
    Suite(u32),
    /// A state this version does not know.
    #[error("the data header has the unknown state {0}")]
    State(u32),
    /// Generations count from 1.
    #[error("the data header has no generation")]
    Generation,
    /// An owner slot of a kind this version does not know.
    #[error("the data header has an owner slot of the unknown kind {0}")]
    OwnerSlot(u32),
    /// A byte that must be zero is not.
    #[error("the data header has a reserved byte set at offset {0}")]
    Reserved(usize),
}

/// Content of one of the two places of a header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Copy {
    /// Zeros: never written.
    Blank,
    /// A header.
    Valid(Header),
    /// Anything else: somebody's data as far as anyone can tell.
    Refused(HeaderError),
}

impl Copy {
    /// Reads a copy, strictly.
    #[must_use]
    pub fn read(bytes: &[u8]) -> Self {
        if bytes.iter().all(|byte| *byte == 0) && bytes.len() == HEADER_BYTES {
            return Self::Blank;
        }
        match Header::parse(bytes) {
            Ok(header) => Self::Valid(header),
            Err(error) => Self::Refused(error),
        }
    }
}

/// Both copies as they were read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Copies(pub [Copy; 2]);

impl Copies {
    /// Reads both places of the header.
    #[must_use]
    pub fn read(first: &[u8], second: &[u8]) -> Self {
        Self([Copy::read(first), Copy::read(second)])
    }

    /// Whether nothing was ever written here.
    #[must_use]
    pub fn is_blank(&self) -> bool {
        self.0.iter().all(|copy| *copy == Copy::Blank)
    }

    /// The valid headers, the latest first.
    #[must_use]
    pub fn latest_first(&self) -> Vec<&Header> {
        let mut headers: Vec<_> = self
            .0
            .iter()
            .filter_map(|copy| match copy {
                Copy::Valid(header) => Some(header),
                Copy::Blank | Copy::Refused(_) => None,
            })
            .collect();
        headers.sort_by_key(|header| std::cmp::Reverse(header.generation));
        headers
    }

    /// The first copy that is neither blank nor valid.
    #[must_use]
    pub fn refused(&self) -> Option<HeaderError> {
        self.0.iter().find_map(|copy| match copy {
            Copy::Refused(error) => Some(*error),
            Copy::Blank | Copy::Valid(_) => None,
        })
    }
}

impl Header {
    /// The level the header is for. The level that counts is the seal's.
    #[must_use]
    pub fn level(&self) -> Level {
        match self.lock.as_ref().map(|lock| lock.suite) {
            Some(Suite::Authenticated) => Level::Authenticated,
            Some(Suite::Encrypted) => Level::Encrypted,
            None => Level::Insecure,
        }
    }

    /// The bytes of a copy.
    #[must_use]
    pub fn to_bytes(&self) -> Box<[u8; HEADER_BYTES]> {
        let mut bytes = Box::new([0; HEADER_BYTES]);
        bytes[..AAD_BYTES].copy_from_slice(&self.authenticated());
        if let Some(lock) = &self.lock {
            bytes[208..256].copy_from_slice(&lock.wrapped);
        }
        let checksum = sha256(&[&bytes[..CHECKSUM]]);
        bytes[CHECKSUM..SECTOR].copy_from_slice(&checksum);
        bytes
    }

    /// Bytes 0..208: what the wrapped key authenticates.
    pub(crate) fn authenticated(&self) -> [u8; AAD_BYTES] {
        let mut bytes = [0; AAD_BYTES];
        let mut put = |at: usize, field: &[u8]| bytes[at..at + field.len()].copy_from_slice(field);
        put(0, if self.lock.is_some() { LOCKED_MAGIC } else { RAW_MAGIC });
        put(8, &VERSION.to_le_bytes());
        put(16, &self.state.number().to_le_bytes());
        put(24, &self.generation.to_le_bytes());
        put(32, &self.disk.0.0);
        if let Some(lock) = &self.lock {
            put(12, &lock.suite.number().to_le_bytes());
            put(20, &lock.key_generation.to_le_bytes());
            put(48, &lock.salt);
            put(80, &lock.check_local);
            put(96, &lock.check_cluster);
            if let Some(owner) = &lock.owner {
                put(112, &OWNER_HPKE.to_le_bytes());
                put(128, &owner.encapsulated);
                put(160, &owner.ciphertext);
            }
        }
        bytes
    }

    fn parse(bytes: &[u8]) -> Result<Self, HeaderError> {
        let bytes: &[u8; HEADER_BYTES] = bytes.try_into().map_err(|_| HeaderError::Size)?;
        let magic: [u8; 8] = field(bytes, 0);
        if magic != *LOCKED_MAGIC && magic != *RAW_MAGIC {
            return Err(HeaderError::Magic);
        }
        // Before the checksum: a later version may keep it elsewhere.
        let version = u32::from_le_bytes(field(bytes, 8));
        if version > VERSION {
            return Err(HeaderError::Newer(version));
        }
        if sha256(&[&bytes[..CHECKSUM]]) != bytes[CHECKSUM..SECTOR] {
            return Err(HeaderError::Checksum);
        }
        if version != VERSION {
            return Err(HeaderError::Version(version));
        }
        zeros(bytes, 256, CHECKSUM)?;
        zeros(bytes, SECTOR, HEADER_BYTES)?;
        let generation = u64::from_le_bytes(field(bytes, 24));
        Ok(Self {
            state: HeaderState::from_number(u32::from_le_bytes(field(bytes, 16)))?,
            generation: if generation == 0 { Err(HeaderError::Generation) } else { Ok(generation) }?,
            disk: DiskUuid(Uuid(field(bytes, 32))),
            lock: if magic == *LOCKED_MAGIC { Some(Box::new(Lock::parse(bytes)?)) } else { no_lock(bytes)? },
        })
    }
}

impl Lock {
    fn parse(bytes: &[u8; HEADER_BYTES]) -> Result<Self, HeaderError> {
        let owner = match u32::from_le_bytes(field(bytes, 112)) {
            OWNER_NONE => {
                zeros(bytes, 116, AAD_BYTES)?;
                None
            }
            OWNER_HPKE => {
                zeros(bytes, 116, 128)?;
                Some(SealedToOwner { encapsulated: field(bytes, 128), ciphertext: field(bytes, 160) })
            }
            unknown => return Err(HeaderError::OwnerSlot(unknown)),
        };
        Ok(Self {
            suite: Suite::from_number(u32::from_le_bytes(field(bytes, 12)))?,
            key_generation: u32::from_le_bytes(field(bytes, 20)),
            salt: field(bytes, 48),
            check_local: field(bytes, 80),
            check_cluster: field(bytes, 96),
            owner,
            wrapped: field(bytes, 208),
        })
    }
}

/// A raw header has no key fields: what would be one is zero.
fn no_lock(bytes: &[u8; HEADER_BYTES]) -> Result<Option<Box<Lock>>, HeaderError> {
    zeros(bytes, 12, 16)?;
    zeros(bytes, 20, 24)?;
    zeros(bytes, 48, 256)?;
    Ok(None)
}

impl HeaderState {
    const fn number(self) -> u32 {
        match self {
            Self::Provisional => 1,
            Self::Committed => 2,
        }
    }

    const fn from_number(number: u32) -> Result<Self, HeaderError> {
        match number {
            1 => Ok(Self::Provisional),
            2 => Ok(Self::Committed),
            unknown => Err(HeaderError::State(unknown)),
        }
    }
}

impl Suite {
    const fn number(self) -> u32 {
        match self {
            Self::Authenticated => 1,
            Self::Encrypted => 2,
        }
    }

    const fn from_number(number: u32) -> Result<Self, HeaderError> {
        match number {
            1 => Ok(Self::Authenticated),
            2 => Ok(Self::Encrypted),
            unknown => Err(HeaderError::Suite(unknown)),
        }
    }
}

fn field<const N: usize>(bytes: &[u8; HEADER_BYTES], at: usize) -> [u8; N] {
    let mut field = [0; N];
    field.copy_from_slice(&bytes[at..at + N]);
    field
}

fn zeros(bytes: &[u8; HEADER_BYTES], from: usize, to: usize) -> Result<(), HeaderError> {
    match bytes[from..to].iter().position(|byte| *byte != 0) {
        Some(position) => Err(HeaderError::Reserved(from + position)),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn locked() -> Header {
        Header {
            state: HeaderState::Committed,
            generation: 2,
            disk: DiskUuid(Uuid([0x11; 16])),
            lock: Some(Box::new(Lock {
                suite: Suite::Authenticated,
                key_generation: 1,
                salt: [0x22; 32],
                check_local: [0x33; 16],
                check_cluster: [0x44; 16],
                owner: Some(SealedToOwner { encapsulated: [0x55; 32], ciphertext: [0x66; 48] }),
                wrapped: [0x77; 48],
            })),
        }
    }

    fn raw() -> Header {
        Header { lock: None, ..locked() }
    }

    /// The header with `edit` done to it and its checksum made right again.
    fn edited(header: &Header, edit: impl FnOnce(&mut [u8; HEADER_BYTES])) -> Copy {
        let mut bytes = header.to_bytes();
        edit(&mut bytes);
        let checksum = sha256(&[&bytes[..CHECKSUM]]);
        bytes[CHECKSUM..SECTOR].copy_from_slice(&checksum);
        Copy::read(&bytes[..])
    }

    #[test]
    fn a_header_says_the_same_after_a_round_trip() {
        let unowned = match locked().lock {
            Some(lock) => Header { lock: Some(Box::new(Lock { owner: None, ..*lock })), ..locked() },
            None => raw(),
        };
        for header in [locked(), raw(), unowned, Header { state: HeaderState::Provisional, ..locked() }] {
            assert_eq!(Copy::read(&header.to_bytes()[..]), Copy::Valid(header));
        }
        assert_eq!(Copy::read(&[0; HEADER_BYTES]), Copy::Blank);
    }

    /// Proves: D3
    #[test]
    fn fields_outside_the_policy_are_refused_each_by_its_name() {
        let rows: &[(Header, usize, u8, HeaderError)] = &[
            (locked(), 0, b'X', HeaderError::Magic),
            (locked(), 8, 2, HeaderError::Newer(2)),
            (locked(), 8, 0, HeaderError::Version(0)),
            (locked(), 12, 0, HeaderError::Suite(0)),
            (locked(), 12, 3, HeaderError::Suite(3)),
            (locked(), 16, 0, HeaderError::State(0)),
            (locked(), 16, 3, HeaderError::State(3)),
            (locked(), 24, 0, HeaderError::Generation),
            (locked(), 112, 2, HeaderError::OwnerSlot(2)),
            (locked(), 112, 0, HeaderError::Reserved(128)),
            (locked(), 116, 1, HeaderError::Reserved(116)),
            (locked(), 256, 1, HeaderError::Reserved(256)),
            (locked(), 479, 1, HeaderError::Reserved(479)),
            (locked(), 512, 1, HeaderError::Reserved(512)),
            (locked(), 4095, 1, HeaderError::Reserved(4095)),
            (raw(), 12, 1, HeaderError::Reserved(12)),
            (raw(), 20, 1, HeaderError::Reserved(20)),
            (raw(), 48, 1, HeaderError::Reserved(48)),
            (raw(), 255, 1, HeaderError::Reserved(255)),
        ];
        for (header, at, byte, error) in rows {
            assert_eq!(edited(header, |bytes| bytes[*at] = *byte), Copy::Refused(*error), "byte {at}");
        }
    }

    /// Proves: D3
    #[test]
    fn neither_magic_turns_into_the_other_by_an_edit() {
        let to_raw = edited(&locked(), |bytes| bytes[..8].copy_from_slice(RAW_MAGIC));
        assert_eq!(to_raw, Copy::Refused(HeaderError::Reserved(12)));
        let to_locked = edited(&raw(), |bytes| bytes[..8].copy_from_slice(LOCKED_MAGIC));
        assert_eq!(to_locked, Copy::Refused(HeaderError::Suite(0)));
    }

    /// A copy that was moved, or laid over the other, would be looked for in vain on every disk there is.
    ///
    /// Proves: D3
    #[test]
    fn the_two_copies_and_the_data_each_keep_their_place() {
        assert_eq!((HEADER_OFFSETS, DATA_OFFSET), ([0, 524_288], 1_048_576));
    }

    #[test]
    fn a_disk_is_blank_only_while_both_places_are() {
        let blank = [0; HEADER_BYTES];
        let torn = [0xee; HEADER_BYTES];
        assert!(Copies::read(&blank, &blank).is_blank());
        for other in [&locked().to_bytes()[..], &torn, &blank[1..]] {
            assert!(!Copies::read(&blank, other).is_blank());
            assert!(!Copies::read(other, &blank).is_blank());
        }
    }

    #[test]
    fn a_tear_at_any_sector_leaves_the_old_header_or_the_new() {
        let old = locked();
        let new = Header { generation: 3, ..locked() };
        for kept in 0..=HEADER_BYTES / SECTOR {
            let mut bytes = old.to_bytes();
            bytes[..kept * SECTOR].copy_from_slice(&new.to_bytes()[..kept * SECTOR]);
            let expected = if kept == 0 { &old } else { &new };
            assert_eq!(Copy::read(&bytes[..]), Copy::Valid(expected.clone()));
        }
    }

    #[test]
    fn cut_short_or_torn_within_a_sector_is_refused() {
        let bytes = locked().to_bytes();
        assert_eq!(Copy::read(&bytes[..HEADER_BYTES - 1]), Copy::Refused(HeaderError::Size));
        assert_eq!(Copy::read(&[]), Copy::Refused(HeaderError::Size));
        let mut torn = bytes;
        torn[300..].fill(0);
        assert_eq!(Copy::read(&torn[..]), Copy::Refused(HeaderError::Checksum));
    }

    proptest! {
        #[test]
        fn no_changed_bit_goes_unseen(at in 0usize..HEADER_BYTES, bit in 0u8..8) {
            let mut bytes = locked().to_bytes();
            bytes[at] ^= 1 << bit;
            prop_assert!(matches!(Copy::read(&bytes[..]), Copy::Refused(_)));
        }
    }
}
