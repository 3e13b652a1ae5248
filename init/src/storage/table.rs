//! Tables, status and superblock of the block layers, as the kernel reads and writes them. Pure.
//!
//! Sources: Documentation/admin-guide/device-mapper/{linear,dm-crypt,dm-integrity}.rst, `drivers/md/dm-integrity.c`.

use std::path::Path;

use api::LevelInForce;
use enrol::step::Mapping;
use keys::data_key::DataKey;
use keys::header::DATA_OFFSET;
use model::DiskUuid;
use zeroize::Zeroizing;

/// The unit of device-mapper.
const SECTOR: u64 = 512;
/// The unit of everything above the partition.
const BLOCK_SECTORS: u64 = 8;
/// Where the layers begin, in sectors.
pub(super) const START: u64 = DATA_OFFSET / SECTOR;
/// 32 MiB, whatever the disk's size, so that formatting writes the same bytes everywhere. It is written whole once;
/// larger ones gained nothing, the kernel's own choice for larger disks is 64 MiB.
const JOURNAL_SECTORS: u64 = 65_536;
/// `SB_MAGIC`.
const SUPERBLOCK_MAGIC: &[u8; 8] = b"integrt\0";

/// Why a dm-integrity superblock is not loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BadSuperblock {
    /// Another magic: zeroed, or never formatted. The kernel would format it anew.
    #[error("there is no dm-integrity superblock where one should be")]
    Magic,
    /// A size that no superblock of ours has.
    #[error("the dm-integrity superblock has an impossible size")]
    Size,
}

/// A status line that is not dm-integrity's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("dm-integrity's status makes no sense")]
pub(crate) struct BadStatus;

/// How many sectors the layers have on a partition of `bytes`: whole blocks behind the headers.
pub(super) fn sectors(bytes: u64) -> Option<u64> {
    let sectors = bytes.checked_sub(DATA_OFFSET)? / SECTOR / BLOCK_SECTORS * BLOCK_SECTORS;
    (sectors > 0).then_some(sectors)
}

/// dm-linear over everything behind the headers.
pub(super) fn linear(partition: &Path) -> String {
    format!("{} {START}", partition.display())
}

/// dm-crypt's options against its work queues.
const UNQUEUED: &str = "no_read_workqueue no_write_workqueue";

/// Name by which dm-crypt finds its key in the keyring of the loading thread.
pub(super) fn key_description(disk: DiskUuid) -> String {
    format!("cairn:{disk}")
}

/// dm-crypt over `device` from `offset` sectors on; its 64-byte key is a `logon` key of the loading thread's keyring.
/// Without its work queues: who reads or writes ciphers at once, in the order asked, so that etcd's syncs are not handed
/// from thread to thread and equal boots write with equal requests.
pub(super) fn crypt(device: &Path, offset: u64, disk: DiskUuid) -> String {
    let (key, device) = (key_description(disk), device.display());
    format!("aes-xts-plain64 :64:logon:{key} 0 {device} {offset} 3 sector_size:4096 {UNQUEUED}")
}

/// dm-integrity over everything behind the headers. Holds keys.
pub(super) fn integrity(partition: &Path, key: &DataKey, mapping: Mapping) -> Zeroizing<String> {
    // Room for all of it at once: a string that grew would leave keys behind.
    let mut options = Zeroizing::new(String::with_capacity(ROOM));
    options.push_str("journal_sectors:");
    options.push_str(&JOURNAL_SECTORS.to_string());
    options.push_str(" block_size:4096 internal_hash:hmac(sha256):");
    push_hex(&mut options, key.integrity().expose());
    options.push_str(" fix_hmac journal_mac:hmac(sha256):");
    push_hex(&mut options, key.journal().expose());
    match mapping {
        Mapping::Format => options.push_str(" recalculate"),
        Mapping::Open => {}
    }
    // Counted, not known: with a count too low the kernel ignores the last option without a word.
    let count = options.split(' ').count();
    let mut table = Zeroizing::new(String::with_capacity(ROOM));
    table.push_str(&format!("{} {START} 32 J {count} ", partition.display()));
    table.push_str(&options);
    table
}

/// More than a table with two keys and a device's name needs.
const ROOM: usize = 1024;

fn push_hex(text: &mut String, bytes: &[u8]) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    for byte in bytes {
        text.push(char::from(DIGITS[usize::from(byte >> 4)]));
        text.push(char::from(DIGITS[usize::from(byte & 15)]));
    }
}

/// How many sectors dm-integrity provides, from the start of its superblock (`struct superblock`).
pub(super) fn provided(superblock: &[u8; 4096]) -> Result<u64, BadSuperblock> {
    if !superblock.starts_with(SUPERBLOCK_MAGIC) {
        return Err(BadSuperblock::Magic);
    }
    let mut field = [0; 8];
    field.copy_from_slice(&superblock[16..24]);
    let sectors = u64::from_le_bytes(field);
    if sectors == 0 || sectors % BLOCK_SECTORS != 0 { Err(BadSuperblock::Size) } else { Ok(sectors) }
}

/// Status that dm-integrity reports: mismatches, provided sectors, and how far the tags are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Status {
    /// Sectors provided.
    pub(super) provided: u64,
    /// Sectors that have their tags; none when the kernel does not recalculate, and so was told something else.
    pub(super) tagged: Option<u64>,
}

impl Status {
    /// Reads a status line.
    pub(super) fn parse(line: &str) -> Result<Self, BadStatus> {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let [mismatches, provided, tagged] = fields[..] else { return Err(BadStatus) };
        let number = |field: &str| field.parse::<u64>().map_err(|_| BadStatus);
        number(mismatches)?;
        let tagged = if tagged == "-" { None } else { Some(number(tagged)?) };
        match number(provided)? {
            0 => Err(BadStatus),
            provided => Ok(Self { provided, tagged }),
        }
    }

    /// The level that this is.
    pub(super) fn level(self) -> LevelInForce {
        let tagged = self.tagged.unwrap_or(0);
        if tagged >= self.provided {
            return LevelInForce::Authenticated;
        }
        let percent = u128::from(tagged) * 100 / u128::from(self.provided);
        LevelInForce::Tagging { percent: u8::try_from(percent).unwrap_or(99).min(99) }
    }
}

#[cfg(test)]
mod tests {
    use model::{Secret, Uuid, VolumeKey};
    use proptest::prelude::*;

    use super::*;

    fn disk() -> DiskUuid {
        DiskUuid(Uuid([0x11; 16]))
    }

    fn key() -> DataKey {
        DataKey::fresh(VolumeKey(Secret::take(&mut [3; 32])))
    }

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Proves: D1 D8
    #[test]
    fn dm_crypt_is_told_a_key_by_name_and_blocks_of_4_kib() {
        assert_eq!(
            crypt(Path::new("/dev/dm-1"), 0, disk()),
            "aes-xts-plain64 :64:logon:cairn:11111111-1111-1111-1111-111111111111 0 /dev/dm-1 0 3 sector_size:4096 no_read_workqueue no_write_workqueue"
        );
        assert!(crypt(Path::new("/dev/vda4"), START, disk()).contains(" 0 /dev/vda4 2048 3 "));
    }

    #[test]
    fn the_insecure_level_begins_where_the_others_do() {
        assert_eq!(linear(Path::new("/dev/vda4")), "/dev/vda4 2048");
    }

    /// Proves: D1
    #[test]
    fn dm_integrity_recalculates_when_it_formats_and_never_again() {
        let (hash, mac) = (hex(key().integrity().expose()), hex(key().journal().expose()));
        let options = format!(
            "journal_sectors:65536 block_size:4096 internal_hash:hmac(sha256):{hash} fix_hmac \
             journal_mac:hmac(sha256):{mac}"
        );
        let partition = Path::new("/dev/vda4");
        assert_eq!(
            *integrity(partition, &key(), Mapping::Format),
            format!("/dev/vda4 2048 32 J 6 {options} recalculate")
        );
        assert_eq!(*integrity(partition, &key(), Mapping::Open), format!("/dev/vda4 2048 32 J 5 {options}"));
    }

    /// Proves: D8
    #[test]
    fn the_table_with_keys_never_outgrows_its_buffer() {
        let long = "/dev/".to_owned() + &"x".repeat(200);
        let table = integrity(Path::new(&long), &key(), Mapping::Format);
        assert_eq!(table.capacity(), ROOM, "a buffer that grew would leave keys behind");
    }

    #[test]
    fn layers_cover_whole_blocks_behind_the_headers() {
        assert_eq!(sectors(DATA_OFFSET), None);
        assert_eq!(sectors(0), None);
        assert_eq!(sectors(DATA_OFFSET + 4095), None);
        assert_eq!(sectors(DATA_OFFSET + 4096 + 512), Some(8));
        assert_eq!(sectors(8 << 30), Some((8 << 21) - 2048));
    }

    fn superblock(magic: &[u8; 8], provided: u64) -> [u8; 4096] {
        let mut bytes = [0; 4096];
        bytes[..8].copy_from_slice(magic);
        bytes[16..24].copy_from_slice(&provided.to_le_bytes());
        bytes
    }

    #[test]
    fn a_superblock_that_the_kernel_would_format_anew_is_refused() {
        assert_eq!(provided(&superblock(SUPERBLOCK_MAGIC, 2_000_000)), Ok(2_000_000));
        assert_eq!(provided(&[0; 4096]), Err(BadSuperblock::Magic));
        assert_eq!(provided(&superblock(b"integrx\0", 8)), Err(BadSuperblock::Magic));
        for size in [0, 7, 2_000_001] {
            assert_eq!(provided(&superblock(SUPERBLOCK_MAGIC, size)), Err(BadSuperblock::Size));
        }
    }

    /// Proves: D10
    #[test]
    fn data_is_authenticated_only_when_every_block_has_its_tag() {
        let level = |line: &str| Status::parse(line).expect("a status").level();
        assert_eq!(level("0 1000 0"), LevelInForce::Tagging { percent: 0 });
        assert_eq!(level("0 1000 999"), LevelInForce::Tagging { percent: 99 });
        assert_eq!(level("0 1000 1000"), LevelInForce::Authenticated);
        assert_eq!(level("3 1000 -"), LevelInForce::Tagging { percent: 0 });
        assert_eq!(Status::parse("0 1000 -").expect("a status").tagged, None);
        for line in ["", "0 1000", "0 1000 1 1", "x 1000 1", "0 0 0", "0 1000 -1"] {
            assert_eq!(Status::parse(line), Err(BadStatus), "{line:?}");
        }
    }

    proptest! {
        /// Proves: D10
        #[test]
        fn no_status_short_of_the_end_is_called_authenticated(provided in 1u64.., share in 0u64..) {
            let tagged = share % provided;
            let level = Status::parse(&format!("0 {provided} {tagged}")).expect("a status").level();
            let tagging = matches!(level, LevelInForce::Tagging { percent: 0..=99 });
            prop_assert!(tagging);
        }

        #[test]
        fn no_status_panics_the_parser(line in ".{0,60}") {
            let _ = Status::parse(&line).map(Status::level);
        }
    }
}
