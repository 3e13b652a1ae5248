//! Opening of a disk by more than its seal: the shares that coordinators hold, how they exchange them when all were switched off, and the
//! directory that says who they are. Pure.
//!
//! Bytes in, decisions and bytes out: no I/O, no clock, no random source. Key epochs and the bytes of files are `keys`' and
//! `cluster`'s; whom a machine contacts, and when, is its shell's.
//!
//! ```text
//!   ESP ─┬─ share ─────► OpenShare ─┐                                  ┌─ a share for another voter
//!        ├─ directory ─► Directory ─┴─► ShareHolder ─► ShareCollector ─┴─ a quorum: the half of its key
//!        │                 ▲ Renewal: the newest that the cluster signed, while the machine serves
//!        └─ record, header ─► LockedMember: which half it needs, whom it asks, and whether a half opens the disk
//! ```
//! # Invariants
//! * Fewer shares than a quorum open nothing, and any quorum opens each of its members: `fewer_than_a_quorum_open_nothing_whatever_they_say`,
//!   `a_quorum_that_comes_back_in_any_order_opens_each_member`.
//! * A share is given to a machine that the directory calls a coordinator and the share a holder, and to nobody else:
//!   `a_share_is_given_to_coordinators_that_hold_one_too`.
//! * No share is given while a coordinator may have a leader: `no_share_is_given_before_nobody_is_known_to_have_a_leader`.
//! * Voters of which all but one have moved open one another, and of each two one knows where the other is:
//!   `whoever_reaches_one_open_voter_reaches_them_all`.
//! * The share of the epoch that stands is not written over: `a_share_is_written_once_and_not_over_the_one_that_stands`.
//! * A directory on the ESP gets never older and is never none again: `the_newest_directory_of_the_cluster_is_kept_whatever_comes`.
//! * A version that jumps is taken by the owner's word alone: `a_version_that_jumps_is_refused_by_name`,
//!   `by_the_owners_word_an_older_directory_counts_for_this_seal`.
//! * A seal's minimum rises only to what two coordinators gave: `the_minimum_rises_to_what_two_coordinators_gave`.
//! * A half is one of this disk only if its header opens with it: `a_key_that_does_not_open_the_disk_is_no_half_of_it`.
//!
//! # Modules
//! * [`share`]: a machine's own shares: read, written, erased.
//! * [`directory`](mod@directory): what lies on the ESP of directories, and what of it is believed.
//! * [`exchange`]: who is given a share, and what is taken from whom.
//! * [`whereabouts`]: where voters were heard of, while no record says that they moved.
//! * [`renewal`]: which directory a member keeps while it serves.
//! * [`locked`]: a member whose disk is closed.

pub mod directory;
pub mod exchange;
pub mod locked;
pub mod renewal;
pub mod share;
pub mod whereabouts;

#[cfg(test)]
mod fixture;
