//! Bytes on disk against their meaning: GPT names, FAT places, dm-verity trees, PE images, strict protobuf.

pub mod strict;
