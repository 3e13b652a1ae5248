//! Bytes on disk against their meaning: partition tables, FAT places, dm-verity trees, PE images, strict protobuf.

pub mod fat;
pub mod gpt;
pub mod pe;
pub mod strict;
pub mod uki;
pub mod verity;
