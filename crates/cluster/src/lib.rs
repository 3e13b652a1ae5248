//! Records that coordinators keep in etcd under `/cairn/v1/`, and every decision over them. Pure.
//!
//! Key/value pairs in, a state to read, transactions out: no I/O, no clock, no random source. Any coordinator may decide:
//! every change compares and writes one key, so that of two decisions over the same state one is made again.
//!
//! ```text
//!   etcd: pairs, changes ──► State ──┐
//!   etcd: members ─────────► Members ┼─ decide ─► Txn ──commit──► what is granted
//!                           Request ─┘          └► Denied
//! ```
//! * [`key`]: the keys; [`record`]: what stands behind them; [`state`]: both, read.
//! * [`request`], [`decide`](mod@decide), [`txn`], [`denied`]: what is asked, decided, written, and refused with its reason.
//! * [`view`], [`decision`]: what was seen of etcd, and a request on its way through it.
//! * [`members`]: etcd's members, and the next change of them.
//! * [`backends`]: which of their backends is defragmented, and when.
//! * [`epochs`]: what a coordinator does for the cold-start key.
//! * [`restores`]: what a coordinator does to restore Kubernetes' objects, and whom it waits for.
//! * [`redeem`]: what a machine asks with that holds a ticket, and what it is answered.
//! * [`peer`], [`peers`]: a machine, as all others hear of it, and what of them has changed.
//! * [`orders`], [`part`]: what one machine is to go by besides, in parts; the parts.
//! * [`published`]: which ports of its uplinks a machine is to open; [`floating`]: which addresses there it holds.
//! * [`desired`](mod@desired): what one machine is to be.
//! * [`word`]: what a coordinator says to one machine.
//! * [`directory`]: where the coordinators are, for a machine that cannot read yet what it knows of its peers.
//! * [`role`]: what a machine does, for the cluster and for Kubernetes.
//!
//! # Invariants
//! - Of two decisions over one state of etcd one is committed; the other is made again:
//!   `of_two_decisions_over_one_state_one_is_committed`
//! - A refusal holds only for the state that etcd still has: `a_refusal_holds_only_if_nothing_changed`
//! - No change of etcd's members loses quorum: `no_step_loses_quorum_and_all_steps_come_to_an_end`
//! - A machine votes in etcd only once it holds a share of the epoch that stands: `who_votes_next_holds_a_share_first`
//! - A machine is told that it is no coordinator, and etcd to refuse its certificate, only when its record says so and
//!   etcd has let go of it: `crates/cluster/tests/decide/role.rs`
//! - A restore, whenever it is cut, ends with the snapshot's objects and a writing apiserver, and none writes before:
//!   `a_restore_that_is_cut_anywhere_ends_whole`
//! - No two machines hold a floating address: `an_address_never_has_two_holders`
//! - A directory's version rises whenever it changes: `crates/cluster/src/directory.rs`

pub mod backends;
pub mod decide;
pub mod decision;
pub mod denial;
pub mod desired;
pub mod directory;
pub mod epochs;
pub mod floating;
pub mod key;
pub mod members;
pub mod orders;
pub mod part;
pub mod peer;
pub mod peers;
pub mod published;
pub mod record;
pub mod redeem;
mod refusal;
pub mod request;
pub mod restores;
pub mod role;
pub mod state;
pub mod txn;
pub mod users;
pub mod view;
pub mod word;

pub use decide::decide;
pub use decision::Decision;
pub use denial::Denial;
pub use request::Request;
pub use state::State;
pub use txn::Txn;
pub use view::View;
pub use word::{Knowledge, Word};

#[cfg(test)]
mod fixture;
