//! Opening and wrapping the volume key: the only way from two key halves and a header to what the kernel is given.
//!
//! ```text
//! Copies ──open(local, cluster half, HeaderExpectation)──► OpenDisk { header, volume } ─┬─ commit ─► Header to write
//!                                                                            └─ rotate ─► the same, under the next cluster key
//!   policy first (disk, level, minimum), then which half is wrong, then AES-GCM over the whole header
//! ```

use model::{ClusterId, ClusterKey, DiskUuid, Level, LocalKey, MachineId, Secret, VolumeKey};
use zeroize::Zeroizing;

use crate::derive::{decrypt, encrypt, equal, hkdf, secret};
use crate::header::{Copies, Header, HeaderError, HeaderState, Lock, Suite};
use crate::purpose::Purpose;
use crate::recovery::{self, OwnerSealError, RecoveryPubKey, SealedToOwner, SecretContext, SecretKind};

/// Holder of a disk. Part of the key that wraps the volume key, so a header opens nowhere else.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Holder {
    /// The cluster.
    pub cluster: ClusterId,
    /// The machine.
    pub machine: MachineId,
}

/// Properties of the disk that the seal names: fixed before a byte of the header is believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeaderExpectation {
    /// Holder of the disk.
    pub holder: Holder,
    /// Which disk it is.
    pub disk: DiskUuid,
    /// The level in force.
    pub level: Level,
    /// The lowest header generation that is not a rollback.
    pub minimum: u64,
}

/// The cluster's half, and what it is the half of. While the cluster rotates it, whoever gives it gives the next one along.
#[derive(Debug)]
pub struct ClusterHalf {
    /// The key.
    pub key: ClusterKey,
    /// The disk it is for.
    pub disk: DiskUuid,
    /// Which generation of the disk's cluster key it is.
    pub generation: u32,
    /// The key of the generation behind it, while the disk is to be locked with that.
    pub next: Option<ClusterKey>,
}

impl ClusterHalf {
    /// The key of `generation`, if that is one of the two.
    #[must_use]
    pub fn of(&self, generation: u32) -> Option<&ClusterKey> {
        match generation.checked_sub(self.generation)? {
            0 => Some(&self.key),
            1 => self.next.as_ref(),
            _ => None,
        }
    }
}

/// An opened data partition: what the layers above it are made from.
#[derive(Debug)]
pub struct OpenDisk {
    /// The header that opened.
    pub header: Header,
    /// The keys, as the level has them.
    pub volume: Volume,
}

/// How the block layers are stacked, with the key they need.
#[derive(Debug)]
pub enum Volume {
    /// No layer between the partition and the filesystem.
    Raw,
    /// dm-crypt.
    Encrypted(DataKey),
    /// dm-crypt over dm-integrity.
    Authenticated(DataKey),
}

/// Why a header does not open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// Both places are blank.
    #[error("the disk is blank: it is not the disk this seal was made for")]
    Blank,
    /// No copy is a header.
    #[error(transparent)]
    Header(#[from] HeaderError),
    /// Another disk.
    #[error("the disk is {found}, but this seal was made for disk {sealed}")]
    OtherDisk { sealed: DiskUuid, found: DiskUuid },
    /// Another level than the sealed one: never silently lower.
    #[error("the data header is for level {found}, but level {sealed} is sealed")]
    Level { sealed: Level, found: Level },
    /// An older copy of the header was put back.
    #[error("the data header is older than the seal allows (generation {found}, at least {minimum} expected)")]
    Older { found: u64, minimum: u64 },
    /// The local half is wrong.
    #[error("the local key is not the one this disk was locked with")]
    LocalHalf,
    /// The cluster half is wrong.
    #[error("the cluster key is not the one this disk was locked with")]
    ClusterHalf,
    /// Both halves are wrong.
    #[error("neither the local key nor the cluster key is the one this disk was locked with")]
    BothHalves,
    /// The local half is right, the cluster half is not there.
    #[error("the cluster key of generation {generation} is not at hand")]
    ClusterHalfMissing {
        /// The generation that the header needs.
        generation: u32,
    },
    /// Both halves are right and the key does not open: an edited header, or another machine's or cluster's.
    #[error("the data header was changed, or belongs to another machine or cluster")]
    Changed,
}

/// Opens the later copy that opens, if the seal accepts it. Needs no cluster half at level insecure.
///
/// # Errors
/// [`OpenError`]: that of the latest header, or of the damaged copy when there is no header at all.
pub fn open(
    copies: &Copies,
    local: &LocalKey,
    cluster: Option<&ClusterHalf>,
    expected: &HeaderExpectation,
) -> Result<OpenDisk, OpenError> {
    let mut first = None;
    for header in copies.latest_first() {
        match open_one(header, local, cluster, expected) {
            Ok(volume) => return Ok(OpenDisk { header: header.clone(), volume }),
            Err(error @ OpenError::ClusterHalfMissing { .. }) => return Err(error),
            Err(error) => {
                first.get_or_insert(error);
            }
        }
    }
    Err(first.or(copies.refused().map(OpenError::Header)).unwrap_or(OpenError::Blank))
}

fn open_one(
    header: &Header,
    local: &LocalKey,
    cluster: Option<&ClusterHalf>,
    expected: &HeaderExpectation,
) -> Result<Volume, OpenError> {
    let (sealed, found) = (expected.disk, header.disk);
    if sealed != found {
        return Err(OpenError::OtherDisk { sealed, found });
    }
    let (sealed, found) = (expected.level, header.level());
    if sealed != found {
        return Err(OpenError::Level { sealed, found });
    }
    if header.generation < expected.minimum {
        return Err(OpenError::Older { found: header.generation, minimum: expected.minimum });
    }
    let Some(lock) = &header.lock else { return Ok(Volume::Raw) };
    let half = cluster.filter(|half| half.disk == header.disk);
    let Some(cluster) = half.and_then(|half| half.of(lock.key_generation)) else {
        return Err(match lock.local_fits(local) {
            true => OpenError::ClusterHalfMissing { generation: lock.key_generation },
            false => OpenError::LocalHalf,
        });
    };
    let key = DataKey::unwrap(local, cluster, header, &expected.holder)?;
    Ok(match lock.suite {
        Suite::Authenticated => Volume::Authenticated(key),
        Suite::Encrypted => Volume::Encrypted(key),
    })
}

/// The key of a data partition. It comes from [`Self::unwrap`], or from [`Self::fresh`] when the disk is formatted.
#[derive(Debug)]
pub struct DataKey(VolumeKey);

/// Properties of a header beyond the key it wraps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeaderFields {
    /// How far create came.
    pub state: HeaderState,
    /// Generation: one more than that of the header it replaces.
    pub generation: u64,
    /// The disk.
    pub disk: DiskUuid,
    /// How the data is locked.
    pub suite: Suite,
    /// Which cluster key is given.
    pub key_generation: u32,
    /// 32 random bytes, used for this header only.
    pub salt: [u8; 32],
    /// The volume key for the owner.
    pub owner: Option<SealedToOwner>,
}

impl DataKey {
    /// The key of a partition that is about to be formatted: 32 random bytes.
    #[must_use]
    pub fn fresh(key: VolumeKey) -> Self {
        Self(key)
    }

    /// The volume key, for whoever holds both halves of exactly this header.
    ///
    /// # Errors
    /// [`OpenError`] says which half is wrong, or that the header is another's; [`OpenError::Level`] for a header
    /// that locks nothing.
    pub fn unwrap(local: &LocalKey, cluster: &ClusterKey, header: &Header, holder: &Holder) -> Result<Self, OpenError> {
        let Some(lock) = &header.lock else {
            return Err(OpenError::Level { sealed: Level::Authenticated, found: Level::Insecure });
        };
        match (lock.local_fits(local), lock.cluster_fits(cluster)) {
            (true, true) => {}
            (false, true) => return Err(OpenError::LocalHalf),
            (true, false) => return Err(OpenError::ClusterHalf),
            (false, false) => return Err(OpenError::BothHalves),
        }
        let kek = kek(local, cluster, header, &lock.salt, holder);
        let plain = decrypt(&kek, [0; 12], &header.authenticated(), &lock.wrapped).map_err(|_| OpenError::Changed)?;
        Ok(Self(VolumeKey(secret(&plain).ok_or(OpenError::Changed)?)))
    }

    /// A header that wraps this key under both halves.
    #[must_use]
    pub fn wrap(&self, wrapping: &HeaderFields, local: &LocalKey, cluster: &ClusterKey, holder: &Holder) -> Header {
        let mut lock = Lock {
            suite: wrapping.suite,
            key_generation: wrapping.key_generation,
            salt: wrapping.salt,
            check_local: check(local.expose(), &wrapping.salt, Purpose::CheckLocal),
            check_cluster: check(cluster.expose(), &wrapping.salt, Purpose::CheckCluster),
            owner: wrapping.owner,
            wrapped: [0; 48],
        };
        let mut header = Header {
            state: wrapping.state,
            generation: wrapping.generation,
            disk: wrapping.disk,
            lock: Some(Box::new(lock.clone())),
        };
        let kek = kek(local, cluster, &header, &wrapping.salt, holder);
        // The nonce is zero because the key is used once: salt and generation are new in every header.
        let wrapped = encrypt(&kek, [0; 12], &header.authenticated(), self.0.expose());
        lock.wrapped.copy_from_slice(&wrapped);
        header.lock = Some(Box::new(lock));
        header
    }

    /// dm-crypt's key: XTS-AES-256 takes two of 32 bytes.
    #[must_use]
    pub fn xts(&self) -> Secret<64> {
        hkdf(&[], self.0.expose(), Purpose::VolumeXts, &[])
    }

    /// The key of dm-integrity's internal hash.
    #[must_use]
    pub fn integrity(&self) -> Secret<32> {
        hkdf(&[], self.0.expose(), Purpose::VolumeIntegrity, &[])
    }

    /// The key of dm-integrity's journal.
    #[must_use]
    pub fn journal(&self) -> Secret<32> {
        hkdf(&[], self.0.expose(), Purpose::VolumeJournal, &[])
    }

    /// The key itself, to be sealed to the owner.
    #[must_use]
    pub fn for_owner(&self) -> &Secret<32> {
        &self.0.0
    }
}

impl OpenDisk {
    /// The header that replaces a provisional one once its seal is durable: committed, one generation on, a new salt.
    /// At level insecure there is no key to wrap, so halves and salt do not matter.
    ///
    /// # Errors
    /// [`OpenError::ClusterHalfMissing`] when a key has to be wrapped and its cluster half is not given.
    pub fn commit(
        &self,
        local: &LocalKey,
        cluster: Option<&ClusterHalf>,
        salt: [u8; 32],
        holder: &Holder,
    ) -> Result<Header, OpenError> {
        let (state, generation, disk) = (HeaderState::Committed, self.header.generation + 1, self.header.disk);
        let (Volume::Encrypted(key) | Volume::Authenticated(key), Some(lock)) = (&self.volume, &self.header.lock)
        else {
            return Ok(Header { state, generation, disk, lock: None });
        };
        let (suite, key_generation, owner) = (lock.suite, lock.key_generation, lock.owner);
        let cluster = cluster.and_then(|half| half.of(key_generation));
        let cluster = cluster.ok_or(OpenError::ClusterHalfMissing { generation: key_generation })?;
        let wrapping = HeaderFields { state, generation, disk, suite, key_generation, salt, owner };
        Ok(key.wrap(&wrapping, local, cluster, holder))
    }

    /// The header that replaces this one when the half that opened it brings the next one along: the same volume key under that,
    /// and the owner slot anew, which names the generation, too. None where there is no next one.
    ///
    /// # Errors
    /// [`OwnerSealError`] when the owner's key does not take the volume key.
    pub fn rotate(&self, rotation: &Rotation<'_>) -> Result<Option<Header>, OwnerSealError> {
        let Rotation { local, half, holder, owner, generation, salt } = *rotation;
        let (Volume::Encrypted(key) | Volume::Authenticated(key), Some(lock)) = (&self.volume, &self.header.lock)
        else {
            return Ok(None);
        };
        let next = half.next.as_ref().filter(|_| half.generation == lock.key_generation);
        let (Some(next), Some(key_generation)) = (next, half.generation.checked_add(1)) else { return Ok(None) };
        let (state, disk, suite) = (self.header.state, self.header.disk, lock.suite);
        let Holder { cluster, machine } = *holder;
        let context = SecretContext { kind: SecretKind::VolumeKey, cluster, machine, disk, key_generation };
        let owner = Some(recovery::seal(owner, &context, key.for_owner())?);
        let wrapping = HeaderFields { state, generation, disk, suite, key_generation, salt, owner };
        Ok(Some(key.wrap(&wrapping, local, next, holder)))
    }
}

/// Parts of a header that takes the next cluster key.
#[derive(Debug, Clone, Copy)]
pub struct Rotation<'a> {
    /// The local half, which stays.
    pub local: &'a LocalKey,
    /// The half that opened the header, and the next one.
    pub half: &'a ClusterHalf,
    /// Holder of the disk.
    pub holder: &'a Holder,
    /// Owner's public key, which the owner slot is sealed to.
    pub owner: &'a RecoveryPubKey,
    /// The header's: above that of both copies.
    pub generation: u64,
    /// 32 random bytes, used for this header only.
    pub salt: [u8; 32],
}

impl Lock {
    fn local_fits(&self, local: &LocalKey) -> bool {
        equal(&check(local.expose(), &self.salt, Purpose::CheckLocal), &self.check_local)
    }

    fn cluster_fits(&self, cluster: &ClusterKey) -> bool {
        equal(&check(cluster.expose(), &self.salt, Purpose::CheckCluster), &self.check_cluster)
    }
}

fn check(half: &[u8; 32], salt: &[u8; 32], purpose: Purpose) -> [u8; 16] {
    *hkdf::<16>(salt, half, purpose, &[]).expose()
}

fn kek(local: &LocalKey, cluster: &ClusterKey, header: &Header, salt: &[u8; 32], holder: &Holder) -> Secret<32> {
    let both = Zeroizing::new([&local.expose()[..], cluster.expose()].concat());
    let context: &[&[u8]] = &[&holder.cluster.0, &holder.machine.0, &header.disk.0.0, &header.generation.to_be_bytes()];
    hkdf(salt, &both, Purpose::DataKek, context)
}

#[cfg(test)]
mod tests {
    use model::Uuid;

    use super::*;
    use crate::golden::{DISK, bytes, copies, data_key, expected, half, header, holder, key, local, wrapping};
    use crate::header::HEADER_BYTES;

    /// Proves: D2
    #[test]
    fn the_key_that_wraps_the_volume_key_takes_both_halves() {
        let header = header(HeaderState::Committed, 2);
        let wraps = |local: u8, cluster: u8| {
            let (local, cluster) = (LocalKey(key(local)), ClusterKey(key(cluster)));
            *kek(&local, &cluster, &header, &[7; 32], &holder()).expose()
        };
        assert_ne!(wraps(1, 2), wraps(3, 2));
        assert_ne!(wraps(1, 2), wraps(1, 3));
        assert_ne!(wraps(1, 2), wraps(2, 1));
    }

    /// Proves: D2
    #[test]
    fn all_four_combinations_of_right_and_wrong_halves() {
        let header = header(HeaderState::Committed, 2);
        let copies = copies(&header, &header);
        let wrong = LocalKey(key(0x99));
        let result =
            |local: &LocalKey, cluster: u8| open(&copies, local, Some(&half(cluster)), &expected()).map(|_| ());
        assert_eq!(result(&local(), 0x20), Ok(()));
        assert_eq!(result(&wrong, 0x20), Err(OpenError::LocalHalf));
        assert_eq!(result(&local(), 0x99), Err(OpenError::ClusterHalf));
        assert_eq!(result(&wrong, 0x99), Err(OpenError::BothHalves));
    }

    /// Proves: D2
    #[test]
    fn one_half_alone_opens_nothing_and_is_told_what_it_waits_for() {
        let header = header(HeaderState::Committed, 2);
        let copies = copies(&header, &header);
        let result = |local: &LocalKey, half: Option<&ClusterHalf>| open(&copies, local, half, &expected()).err();
        let missing = Some(OpenError::ClusterHalfMissing { generation: 1 });
        assert_eq!(result(&local(), None), missing);
        assert_eq!(result(&LocalKey(key(0x99)), None), Some(OpenError::LocalHalf));
        let other_generation = ClusterHalf { generation: 2, ..half(0x20) };
        assert_eq!(result(&local(), Some(&other_generation)), missing);
        let other_disk = ClusterHalf { disk: DiskUuid(Uuid([1; 16])), ..half(0x20) };
        assert_eq!(result(&local(), Some(&other_disk)), missing);
    }

    /// Proves: D2
    #[test]
    fn another_machines_disk_and_another_clusters_do_not_open() {
        let copies = copies(&header(HeaderState::Committed, 2), &header(HeaderState::Committed, 2));
        let result = |expected: &HeaderExpectation| open(&copies, &local(), Some(&half(0x20)), expected).map(|_| ());
        let machine = Holder { machine: MachineId([1; 16]), ..holder() };
        assert_eq!(result(&HeaderExpectation { holder: machine, ..expected() }), Err(OpenError::Changed));
        let cluster = Holder { cluster: ClusterId([1; 16]), ..holder() };
        assert_eq!(result(&HeaderExpectation { holder: cluster, ..expected() }), Err(OpenError::Changed));
        let sealed = DiskUuid(Uuid([1; 16]));
        let other = Err(OpenError::OtherDisk { sealed, found: DISK });
        assert_eq!(result(&HeaderExpectation { disk: sealed, ..expected() }), other);
    }

    /// Proves: D1 D3
    #[test]
    fn no_edit_of_the_header_lowers_the_level_or_the_state() {
        let header = header(HeaderState::Committed, 2);
        let raw = Header { lock: None, ..header };
        let result = |header: &Header| open(&copies(header, header), &local(), Some(&half(0x20)), &expected()).err();
        let level = |found| Some(OpenError::Level { sealed: Level::Authenticated, found });
        assert_eq!(result(&raw), level(Level::Insecure));
        let lock = header.lock.clone().expect("locked");
        let edited = |lock: Lock| Header { lock: Some(Box::new(lock)), ..header.clone() };
        let weaker = edited(Lock { suite: Suite::Encrypted, ..*lock });
        assert_eq!(result(&weaker), level(Level::Encrypted));
        assert_eq!(result(&Header { state: HeaderState::Provisional, ..header.clone() }), Some(OpenError::Changed));
        assert_eq!(result(&Header { generation: 3, ..header.clone() }), Some(OpenError::Changed));
        assert_eq!(result(&edited(Lock { owner: None, ..*lock })), Some(OpenError::Changed));
        // The level that counts is the seal's also where the header would open.
        let encrypted = HeaderFields { suite: Suite::Encrypted, ..wrapping(HeaderState::Committed, 2) };
        let encrypted = data_key().wrap(&encrypted, &local(), &half(0x20).key, &holder());
        assert_eq!(result(&encrypted), level(Level::Encrypted));
    }

    /// Proves: D3
    #[test]
    fn of_two_copies_the_later_that_opens_is_taken() {
        let (old, new) = (header(HeaderState::Provisional, 1), header(HeaderState::Committed, 2));
        let generation = |first: &[u8], second: &[u8]| {
            open(&Copies::read(first, second), &local(), Some(&half(0x20)), &expected())
                .map(|opened| (opened.header.generation, matches!(opened.volume, Volume::Authenticated(_))))
        };
        let (old, new) = (old.to_bytes(), new.to_bytes());
        assert_eq!(generation(&new[..], &old[..]), Ok((2, true)));
        assert_eq!(generation(&old[..], &new[..]), Ok((2, true)));
        let mut torn = new.clone();
        torn[100] ^= 1;
        assert_eq!(generation(&torn[..], &old[..]), Ok((1, true)));
        assert_eq!(generation(&torn[..], &torn[..]), Err(OpenError::Header(HeaderError::Checksum)));
        assert_eq!(generation(&[0; HEADER_BYTES], &torn[..]), Err(OpenError::Header(HeaderError::Checksum)));
        assert_eq!(generation(&[0; HEADER_BYTES], &[0; HEADER_BYTES]), Err(OpenError::Blank));
        assert_eq!(generation(&new[..9], &[]), Err(OpenError::Header(HeaderError::Size)));
        let refused = HeaderExpectation { minimum: 3, ..expected() };
        let copies = Copies::read(&new[..], &old[..]);
        let error = open(&copies, &local(), Some(&half(0x20)), &refused).err();
        assert_eq!(error, Some(OpenError::Older { found: 2, minimum: 3 }));
    }

    /// Proves: D3 D13
    #[test]
    fn an_older_copy_is_no_substitute_where_a_half_is_missing() {
        let rotated = HeaderFields { key_generation: 2, salt: bytes(0x42), ..wrapping(HeaderState::Committed, 3) };
        let rotated = data_key().wrap(&rotated, &local(), &half(0x21).key, &holder());
        let older = header(HeaderState::Committed, 2);
        let result = |half: &ClusterHalf| {
            let opened = open(&copies(&rotated, &older), &local(), Some(half), &expected());
            opened.map(|opened| opened.header.generation)
        };
        // The half that opens the older copy is at hand; the newer copy decides all the same.
        assert_eq!(result(&half(0x20)), Err(OpenError::ClusterHalfMissing { generation: 2 }));
        assert_eq!(result(&ClusterHalf { generation: 2, ..half(0x21) }), Ok(3));
    }

    #[test]
    fn commit_keeps_the_key_and_the_owner_slot_and_counts_on() {
        let provisional = header(HeaderState::Provisional, 1);
        let opened =
            open(&copies(&provisional, &provisional), &local(), Some(&half(0x20)), &expected()).expect("opens");
        let committed = opened.commit(&local(), Some(&half(0x20)), bytes(0x41), &holder()).expect("both halves");
        assert_eq!((committed.state, committed.generation), (HeaderState::Committed, 2));
        let owner = |header: &Header| header.lock.as_ref().and_then(|lock| lock.owner);
        assert_eq!(owner(&committed), owner(&provisional));
        let again = DataKey::unwrap(&local(), &half(0x20).key, &committed, &holder()).expect("opens");
        assert_eq!(again.xts().expose(), data_key().xts().expose());
        let without = opened.commit(&local(), None, bytes(0x41), &holder());
        assert_eq!(without, Err(OpenError::ClusterHalfMissing { generation: 1 }));
    }

    /// Proves: D13
    #[test]
    fn a_rotated_half_opens_its_header_and_the_old_one_does_not() {
        let rotated = HeaderFields { key_generation: 2, salt: bytes(0x42), ..wrapping(HeaderState::Committed, 3) };
        let header = data_key().wrap(&rotated, &local(), &half(0x21).key, &holder());
        assert!(DataKey::unwrap(&local(), &half(0x21).key, &header, &holder()).is_ok());
        let old = DataKey::unwrap(&local(), &half(0x20).key, &header, &holder());
        assert_eq!(old.err(), Some(OpenError::ClusterHalf));
    }

    /// Proves: D12 D13
    #[test]
    fn the_half_that_opened_is_replaced_by_the_next_one_alone() {
        let private = key(0x05);
        let owner = &RecoveryPubKey::of(&private);
        let next = || Some(ClusterKey(key(0x21)));
        let before = header(HeaderState::Committed, 2);
        let both = ClusterHalf { next: next(), ..half(0x20) };
        let with = |before: &Header, half: &ClusterHalf| {
            let opened = open(&copies(before, before), &local(), Some(half), &expected()).expect("opens");
            let (local, salt) = (&local(), bytes(0x42));
            opened.rotate(&Rotation { local, half, holder: &holder(), owner, generation: 3, salt }).expect("seals")
        };
        assert_eq!(with(&before, &half(0x20)), None, "none comes along");
        let after = with(&before, &both).expect("one comes along");
        let lock = after.lock.as_ref().expect("it locks");
        assert_eq!((after.generation, after.state, lock.key_generation), (3, HeaderState::Committed, 2));
        let opens = |half: &ClusterHalf| {
            let opened = open(&copies(&after, &after), &local(), Some(half), &expected())?;
            let Volume::Authenticated(key) = opened.volume else { panic!("the level stays") };
            assert_eq!(key.xts().expose(), data_key().xts().expose(), "the volume key stays");
            Ok(())
        };
        assert_eq!(opens(&half(0x20)), Err(OpenError::ClusterHalfMissing { generation: 2 }));
        assert_eq!(opens(&ClusterHalf { generation: 2, ..half(0x20) }), Err(OpenError::ClusterHalf));
        assert_eq!(opens(&ClusterHalf { generation: 2, ..half(0x21) }), Ok(()));
        assert_eq!(opens(&both), Ok(()), "a cut in between locks nobody out");
        assert_eq!(with(&after, &both), None, "and what was rotated is not rotated again");
        assert_eq!(with(&after, &ClusterHalf { generation: 2, ..half(0x21) }), None);

        let Holder { cluster, machine } = holder();
        let context = |key_generation| SecretContext {
            kind: SecretKind::VolumeKey,
            cluster,
            machine,
            disk: DISK,
            key_generation,
        };
        let slot = lock.owner.expect("the owner's");
        let opened = |generation| recovery::open(&private, &context(generation), &slot).map(|key| *key.expose());
        assert_eq!(opened(2), Ok(*data_key().for_owner().expose()));
        assert!(opened(1).is_err(), "it names the generation");
    }
}
