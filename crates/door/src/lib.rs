//! Limits for callers of an API's port that have not proven to be an owner: places, rates, deadlines, bytes, lines of
//! the record, changes. Decides by counts and time only; the caller of this crate performs.
//!
//! ```text
//!   TCP ──Door::knock──► handshake ──Door::settle──► stranger   (Visit: no HTTP/2, idle, too old)
//!            │ refused: rate         │          └──► owner      (Visit: no HTTP/2)
//!            └ a full house makes room: the oldest of the source that holds most leaves
//!   request ──Budget::take──► its bytes, given back with its end; Calls::begin: of how many of its machine
//!   line    ──Lines::may_write──► written, or counted
//!   change  ──Changes::ask──► made, or put off: of a machine of the cluster
//!   refusal ──Refusals::may_write──► written down, or told alone: of a machine or ticket of the cluster
//!   another port ──Seats::take──► a place, for which that of another connection may be taken away
//! ```
//!
//! # Invariants
//! - A stranger takes no owner's place, and a newcomer gets in while sixteen others flood:
//!   `crates/door/src/entry/tests.rs`
//! - A machine of the cluster has the places and calls of one machine, whatever its addresses:
//!   `crates/door/src/entry/tests.rs`

mod bucket;
mod budget;
mod calls;
mod entry;
mod lines;
mod machines;
mod seats;
mod visit;

pub use budget::{BUDGET, Budget, STRANGERS_BUDGET, USERS_BUDGET};
pub use calls::Calls;
pub use entry::{Door, Guest, HANDSHAKES, KnockError, MEMBERS, NEWCOMERS, OWNERS, STRANGERS, SettleError, USERS};
pub use lines::{Lines, Topic};
pub use machines::{AGAIN, Changes, PutOff, Refusals};
pub use seats::{NewPlace, Place, Room, Seats};
pub use visit::{Over, Visit};
