//! Bytes on disk against their meaning: partition tables, FAT places, dm-verity trees, PE images, strict protobuf.
//!
//! # Invariants
//! - A cut at any sector while the partition table grows or is mended leaves a table that the same reader takes:
//!   `crates/formats/src/gpt/cuts.rs`

pub mod fat;
pub mod gpt;
pub mod pe;
pub mod strict;
pub mod uki;
pub mod verity;
