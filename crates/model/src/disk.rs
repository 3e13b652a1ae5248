//! The disk's plan: which partitions there are, how large, and how each is recognised.

use crate::ids::Uuid;

/// The ESP: 64 MiB.
pub const ESP_BYTES: u64 = 64 << 20;
/// Each system slot: 256 MiB.
pub const SYSTEM_BYTES: u64 = 256 << 20;
/// GPT name of the data partition.
pub const DATA_NAME: &str = "cairn-data";

/// Use of a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PartitionKind {
    /// Boot loader, kernels, seal, enrolment config.
    Esp,
    /// First system slot.
    SystemA,
    /// Second system slot.
    SystemB,
    /// The encrypted rest of the disk.
    Data,
}

/// A row of the disk's plan.
#[derive(Debug, Clone, Copy)]
pub struct Partition {
    /// Use of the partition.
    pub kind: PartitionKind,
    /// GPT type GUID. The ESP has the firmware's (UEFI 2.10, table 5.7), or real firmware would not look at it.
    pub type_guid: Uuid,
    /// GPT name.
    pub name: &'static str,
}

impl Partition {
    /// All partitions in the order they lie on the disk.
    pub const ALL: [Self; 4] = [
        Self {
            kind: PartitionKind::Esp,
            type_guid: Uuid::constant("c12a7328-f81f-11d2-ba4b-00a0c93ec93b"),
            name: "cairn-esp",
        },
        Self {
            kind: PartitionKind::SystemA,
            type_guid: Uuid::constant("7b0d44c6-9a0f-4c5e-8d5b-63a1f6ce0a01"),
            name: "cairn-system-a",
        },
        Self {
            kind: PartitionKind::SystemB,
            type_guid: Uuid::constant("7b0d44c6-9a0f-4c5e-8d5b-63a1f6ce0a02"),
            name: "cairn-system-b",
        },
        Self {
            kind: PartitionKind::Data,
            type_guid: Uuid::constant("7b0d44c6-9a0f-4c5e-8d5b-63a1f6ce0a03"),
            name: DATA_NAME,
        },
    ];

    /// The row of `kind`.
    #[must_use]
    pub const fn of(kind: PartitionKind) -> Self {
        match kind {
            PartitionKind::Esp => Self::ALL[0],
            PartitionKind::SystemA => Self::ALL[1],
            PartitionKind::SystemB => Self::ALL[2],
            PartitionKind::Data => Self::ALL[3],
        }
    }

    /// The row that a GPT type GUID means, if it is one of ours.
    #[must_use]
    pub fn by_type(type_guid: Uuid) -> Option<Self> {
        Self::ALL.into_iter().find(|row| row.type_guid == type_guid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_partition_is_known_by_its_kind_and_by_its_type() {
        for row in Partition::ALL {
            let (kind, name) = (row.kind, row.name);
            assert_eq!(Partition::of(kind).type_guid, row.type_guid, "{name}");
            assert_eq!(Partition::by_type(row.type_guid).map(|found| found.kind), Some(kind), "{name}");
        }
        assert!(Partition::by_type(Uuid([0; 16])).is_none(), "an unused entry");
    }

    /// A disk that was written once has these sizes for good.
    #[test]
    fn the_sizes_are_those_of_every_disk_there_is() {
        assert_eq!((ESP_BYTES, SYSTEM_BYTES), (67_108_864, 268_435_456));
    }
}
