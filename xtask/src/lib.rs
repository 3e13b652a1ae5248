//! Parts that the driver of `cargo xtask` and the workshop behind it share: running programs, the cache, what is shown
//! to the person, the checkout; and the driver's own work, setting a machine up. Compiled in seconds: it must never
//! name a crate of ours, nor one that takes longer to compile than to write.

pub mod cache;
pub mod commands;
pub mod digest;
pub mod fresh;
pub mod packages;
pub mod preflight;
pub mod process;
pub mod progress;
pub mod workspace;
