//! Room that a disk has for volumes: its size, less what everything else needs, less what was promised.

/// Block of the file system; limits are whole blocks.
pub const BLOCK: u64 = 4096;

/// Least that is kept for images, logs and etcd, whatever the disk's size.
const KEPT_AT_LEAST: u64 = 2 << 30;
/// Share of the disk that is kept, in percent.
const KEPT_PERCENT: u64 = 10;

/// Bytes of a limit that holds `bytes`. None for no bytes, and beyond what can be counted.
#[must_use]
pub fn whole_blocks(bytes: u64) -> Option<u64> {
    bytes.checked_next_multiple_of(BLOCK).filter(|whole| *whole > 0)
}

/// Room for volumes on one disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiskRoom {
    /// Size of the file system in bytes.
    pub size: u64,
    /// Bytes that all limits add up to.
    pub promised: u64,
}

impl DiskRoom {
    /// Bytes that all volumes together may have.
    #[must_use]
    pub const fn capacity(self) -> u64 {
        let share = self.size / 100 * KEPT_PERCENT;
        self.size.saturating_sub(if share > KEPT_AT_LEAST { share } else { KEPT_AT_LEAST })
    }

    /// Bytes that may still be promised.
    #[must_use]
    pub const fn free(self) -> u64 {
        self.capacity().saturating_sub(self.promised)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenth_of_the_disk_is_kept_and_two_gib_at_least() {
        let free = |size, promised| DiskRoom { size, promised }.free();
        assert_eq!(free(10 << 30, 0), 8 << 30);
        assert_eq!(free(10 << 30, 3 << 30), 5 << 30);
        assert_eq!(free(100 << 30, 0), (100 << 30) - (100 << 30) / 100 * 10);
        for (size, promised) in [(2 << 30, 0), (1 << 30, 0), (0, 0), (10 << 30, 8 << 30), (10 << 30, u64::MAX)] {
            assert_eq!(free(size, promised), 0, "{size} {promised}");
        }
    }

    #[test]
    fn a_limit_is_whole_blocks_and_never_none() {
        // A limit of nothing would be none at all.
        assert_eq!(whole_blocks(0), None);
        assert_eq!((whole_blocks(1), whole_blocks(4096), whole_blocks(4097)), (Some(4096), Some(4096), Some(8192)));
        assert_eq!((whole_blocks(u64::MAX), whole_blocks(u64::MAX - 4095)), (None, Some(u64::MAX - 4095)));
    }
}
