//! Enrolment: what was found, what it means, the order of create. Pure.
//!
//! Bytes in, decisions, effects and bytes out: no I/O, no clock, no random source. The shell in `init` reads, asks,
//! performs, and shows what the verdict says.
//!
//! * [`config`]: the signed enrolment config, read strictly and written for the CLI.
//! * [`found`]: the table that decides what a boot does, from what was read and nothing else.
//! * [`create`]: the order of effects that makes a machine of a blank disk, or goes on where a cut left it.

pub mod config;
pub mod create;
pub mod found;

#[cfg(test)]
mod crash;
#[cfg(test)]
mod fixture;
#[cfg(test)]
mod malformed;
#[cfg(test)]
mod table;
#[cfg(test)]
mod world;
