//! Persistent volumes of one machine: what one is called, how much may be promised, in which steps one comes and goes so that
//! no cut leaves half of it, and what kubelet may ask for. Must never touch a disk: who performs it is told the steps.
//!
//! ```text
//!   listing of the folder ─► Inventory ─► leftovers: steps that end what a cut began
//!                                │
//!              create, expand, delete ─► steps, or a refusal: nothing is done
//!
//!   .new-<uuid> ──Rename──► <uuid> ──Rename──► .gone-<uuid> ──Empty, Unlimit, Remove──► nothing
//! ```
//!
//! # Invariants
//! - No more is promised than there is room: `no_order_of_calls_promises_more_than_there_is`
//! - Behind a cut a volume is there whole or not at all, and goes only by a call that names it:
//!   `behind_any_cut_a_volume_is_whole_or_not_there`
//! - A volume's name is a UUID in one spelling, and never a path: `a_volume_has_one_spelling_and_no_path`
//! - Nothing is mounted outside of the folder of kubelet's pods: `a_target_outside_of_the_pods_is_refused`

mod capacity;
mod holder;
mod inventory;
mod mounts;
mod name;
pub mod node;
mod step;

pub use capacity::{BLOCK, DiskRoom, whole_blocks};
pub use holder::VolumeHolder;
pub use inventory::{DeleteRefusal, FoundVolume, Inventory, NoRoom, NoSuchVolume};
pub use mounts::{MountedFolder, is_mounted, mounted_at};
pub use name::{BadVolumeId, EntryName, VolumeId};
pub use step::VolumeStep;

/// Name of the driver, by which volumes and classes name it.
pub const DRIVER: &str = "local.cairn.internal";
