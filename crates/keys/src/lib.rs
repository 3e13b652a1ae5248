//! The key scheme: what is derived from what, and the bytes that hold it on the disk and the ESP.
//!
//! Bytes and keys in, bytes and keys out: no I/O, no clock. Random bytes are arguments, so that every format has
//! known-answer vectors; the one exception is [`recovery`], where HPKE draws its ephemeral key itself.
//!
//! ```text
//! master secret ─ cluster_key ─► cluster key ─┐
//!                                             ├─► key that wraps ─► volume key ─► XTS, integrity, journal keys
//! seal (ESP, TPM) ──────────────► local key ──┘     (header)        (DataKey)
//! ```
//!
//! * [`purpose`]: every label there is; [`derive`](mod@derive): HKDF, AES-256-GCM, SHA-256 over them.
//! * [`identity`]: machine and cluster ids, Ed25519.
//! * [`header`]: the data header's bytes; [`data_key`]: opening and wrapping, the only way to a volume key.
//! * [`two_slot`]: the envelope of all two-slot files; [`seal`], [`attempt`], [`share`], [`directory`], [`record`]: what is in them.
//! * [`cold_start`]: the key that a quorum of voters finds together when all were off.
//! * [`coordinator`]: what one coordinator gives to the next.
//! * [`assignment`]: what the cluster assigned to the machine, as its data partition keeps it.
//! * [`binding`], [`network`], [`numbers`]: what several of them, and the enrolment config, hold alike.
//! * [`ticket`]: what lets machines join; [`endpoint`]: where somebody may be reached; [`introduction`]: what two owners tell each
//!   other of themselves and their cluster; [`text`]: bytes as one line.
//! * [`wiped`]: decoding without copies that nobody wipes.
//! * [`recovery`]: what only the owner can open; [`first_contact`]: the proof that `Claim` answers; [`activation`]: those of a
//!   blank machine and of whoever hands it its config.
//!
//! # Invariants
//! - One half of the data key alone opens nothing: `all_four_combinations_of_right_and_wrong_halves`
//! - No edit of the disk lowers the level: `no_edit_of_the_header_lowers_the_level_or_the_state`
//! - Any quorum of an epoch's holders opens their disks; fewer open none: `a_quorum_of_shares_opens_and_fewer_do_not`
//! - The owner's word about a directory counts beside the seal that it was made for, and nowhere else:
//!   `the_owners_word_counts_beside_its_own_seal_and_nowhere_else`
//! - A recovery record opens only for the machine, disk and cluster that the connection has proved:
//!   `a_record_opens_for_the_machine_and_disk_that_it_is_of`
//! - The first config that a blank machine accepts wins, and nobody with a wrong code keeps others out:
//!   `no_order_of_events_has_two_configs_taken`
//! - A config is sent only to a machine that has proved that it knows its code; anything else does not compile:
//!   `crates/keys/src/activation.rs`
//! - A machine's private key is never copied: it lies behind an `Arc`, and its type has no `Clone`:
//!   `crates/keys/src/identity.rs`

pub mod activation;
pub mod assignment;
pub mod binding;
pub mod cold_start;
pub mod coordinator;
pub mod data_key;
pub mod derive;
pub mod directory;
pub mod endpoint;
pub mod first_contact;
pub mod header;
pub mod identity;
pub mod introduction;
pub mod network;
pub mod numbers;
pub mod purpose;
pub mod record;
pub mod recovery;
pub mod seal;
mod shamir;
pub mod share;
pub mod text;
pub mod ticket;
pub mod two_slot;
pub mod wiped;

#[cfg(test)]
mod golden;

pub use seal::attempt;
