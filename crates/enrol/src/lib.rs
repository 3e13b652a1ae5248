//! Enrolment: what was found, what it means, the order of create and of join. Pure.
//!
//! Bytes in, decisions, effects and bytes out: no I/O, no clock, no random source. The shell in `init` reads, performs, and
//! shows what a decision says; whatever lies between bytes and effects is here, once.
//!
//! ```text
//!   Inputs ──decide──► Found ─┬─ Join(Joining) ─attempt─► Asker ─accept─► Draft ─plan─┐
//!             │               ├─ Create(Creation) ─draft─► Draft ─plan─┬─► Plan ──perform──► Capped: a member
//!             └ Keeper        ├─ Open(Opening) ───────────────────plan─┘          └ Performer
//!             ▲               └─ Wait ──start─► Asking ── Answer ─┐
//!             └───────────────────────── Given ───────────────────┘
//! ```
//! * [`config`]: the signed enrolment config, read strictly and written for the CLI.
//! * [`keeper`]: when the TPM is asked for a secret, and what becomes of one where there is none.
//! * [`found`]: the table that decides what a boot does, from what was read and nothing else.
//! * [`create`]: what the first machine of a cluster is made of. [`join`]: the same of one that a cluster lets in, and what it
//!   asks before that. [`making`]: what both write, in its order.
//! * [`plan`]: effects in their order, who performs them, and the cap at their end.
//! * [`member`]: who the machine is.
//! * [`wait`]: why it waits, in words for people. [`asking`]: what it asks for, and how it goes on. [`release`]: what a member asks
//!   for whose disk is closed, and whom. [`renewal`]: which directory it keeps while it serves. [`rotation`]: how its disk takes the
//!   next cluster key.
//!
//! # Invariants
//! - What is decided, and in which order it is written, is decided here: the crash model and PID 1 call the same
//!   functions: `pid_1_does_nothing_beside_the_one_enrolment_path`
//! - Nobody is admitted and no service starts before the cap: both take what only the cap makes:
//!   `crates/enrol/src/plan.rs`
//! - A live disk is never formatted: `a_create_config_on_a_live_disk_formats_nothing`
//! - A cut at any effect or sector of create or join ends in one finished machine with one CA:
//!   `crates/enrol/src/crash.rs`
//! - A joining machine touches nothing of its disk before it is let in, and spends one use of its ticket however often it
//!   is cut: `a_cut_in_a_join_resumes_as_the_same_machine`
//! - A cut while a disk takes the next cluster key leaves one that opens with one of the two; both places of the header
//!   hold the newer before the cluster is told, and the older opens nothing then: `crates/enrol/src/crash.rs`
//! - A coordinator's disk is not locked with a key that its own shares do not carry: `crates/enrol/src/crash.rs`
//! - A waiting machine takes no answer that does not fit, and goes on by what it then reads:
//!   `crates/enrol/src/asking/tests.rs`, `crates/enrol/src/release/tests.rs`

pub mod asking;
pub mod config;
pub mod contribute;
pub mod create;
pub mod found;
pub mod join;
pub mod keeper;
pub mod making;
pub mod member;
pub mod plan;
pub mod release;
pub mod renewal;
pub mod rotation;
pub mod wait;

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
