//! Yardstick for a boot of Cairn: the floor as data, the milestones both sides reach, and the arithmetic over several
//! boots. It must never run anything: `floor` is the program, `cargo xtask bench` runs both.
//!
//! The **floor** is the least that can start the same components: a plain erofs root, a plain XFS disk, the same
//! programs with the same arguments, each as early as it can run, one that ends started again. No verification, no
//! encryption, no TPM, no mesh, no supervision, no API.

pub mod boots;
pub mod cluster;
pub mod evidence;
pub mod fleets;
pub mod floor;
pub mod kube;
mod milestone;
pub mod nft;
pub mod verdict;

pub use milestone::{Arrival, BootMilestone};
