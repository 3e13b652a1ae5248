//! Enrolment: what was found, what it means, the order of create and of join. Pure.
//!
//! Bytes in, decisions, effects and bytes out: no I/O, no clock, no random source. The shell in `init` reads, performs, and
//! shows what a decision says; whatever lies between bytes and effects is here, once.
//!
//! ```text
//!   Inputs ──decide──► Findings ─┬─ Join(JoiningMachine) ─attempt─► Asker ─accept─► Draft ─plan─┐
//!             │                  ├─ Create(Creation) ─draft─► Draft ───────────────────────plan─┼─► Plan ──perform──► Capped: a member
//!             └ Keeper           ├─ Open(OpenableDisk) ────────────────────────────────────plan─┘      └ Performer
//!             ▲                  └─ Wait ──start─► WaitingMachine ── Answer ─┐
//!             └──────────────────────── GivenAnswers ────────────────────────┘
//! ```
//! Each stands on those before it:
//! * [`config`]: the signed enrolment config, read strictly and written for the CLI.
//! * [`keeper`]: when the TPM is asked for a secret, and what becomes of one where there is none.
//! * [`files`]: what lies on the ESP. [`seal`]: what opens it. [`member`]: who the machine is by its seal.
//! * [`step`]: effects, and their kinds in words. [`failure`]: what does not work. [`plan`]: effects in their order, who performs
//!   them, and the cap at their end.
//! * [`making`]: what a new member writes, whichever way it came. [`create`]: the first machine of a cluster. [`join`]: one that a
//!   cluster lets in, and what it asks before that.
//! * [`rotation`]: how a disk takes the next cluster key. [`opening`]: a disk whose header opened.
//! * [`wait`]: why a machine waits, in words for people. [`asking`]: what it asks for, and how it goes on.
//! * [`found`]: the table that decides what a boot does, from what was read and nothing else.
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
//!   `crates/enrol/src/asking/tests.rs`, `crates/unlock/src/locked/tests.rs`

pub mod asking;
pub mod config;
pub mod create;
pub mod failure;
pub mod files;
pub mod found;
pub mod join;
pub mod keeper;
pub mod making;
pub mod member;
pub mod opening;
pub mod plan;
pub mod rotation;
pub mod seal;
pub mod step;
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
