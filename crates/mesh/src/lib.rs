//! The mesh of one machine: which WireGuard peers and routes there should be, against those that the kernel has.
//!
//! Pure: `now`, the peers that the cluster names and what the kernel says go in; what is to be changed in the kernel comes
//! out, nothing where nothing has to change. It must never open a socket, and it believes the kernel, not its own memory.
//!
//! ```text
//!   peers, one by one or all ──► wanted ──┐
//!                                         ├─ compare ─► Configure (one netlink message each), Route
//!   a look at the kernel ───────► found ──┘      └────► Look again: soon while somebody does not answer
//!                                                ├────► Learnt: where a peer stays that the cluster does not name
//!                                                └────► Echo, to measure the path to a peer; its answers set routes' limits.
//!                                                        Also to who is silent, or reached by another way than before
//!   a call: who is there? ───────────────► Echo to all ─► Heard, when each was heard last
//!   the machine may be a copy ───────────► Configure: all peers made anew, unless the kernel was told ─► Echo to who had a session;
//!                                          who does not answer is made anew, and asked again
//! ```
//! * [`peer`]: what the cluster says of a machine, and which endpoints may be tried.
//! * [`kernel`]: what the kernel has, and the changes it is asked for.
//! * [`answering`]: whether a peer answers, from the kernel's counters.
//! * [`learning`]: where a peer is heard that the cluster does not name.
//! * [`surroundings`]: addresses near the machine that are no peer's.
//! * [`path`]: how large a packet to a peer may be.
//! * [`way`]: by which uplink packets to a peer leave, and by which others they could.
//!
//! # Invariants
//! - Each address has one owner at any time, a new key takes over in one message, and nothing is written while nothing
//!   changes: `crates/mesh/tests/world/main.rs`
//! - Whatever a member says of where it is, packets to others go by the way that works:
//!   `whatever_a_liar_does_an_honest_peer_is_reached`
//! - A peer is heard when it finished a handshake or a session carried its packets; replayed packets are not:
//!   `whose_initiations_are_replayed_is_not_heard`
//! - Packets to a peer are no larger than what came back from it; measuring ends, and few paths are measured at a time:
//!   `the_largest_size_that_passes_is_found`
//! - A peer's measured path limits its routes, and is written once:
//!   `a_narrow_path_limits_its_peers_routes_and_is_written_once`
//! - A peer that is silent by one uplink is tried by the others, and nothing is written while one works:
//!   `a_silent_link_is_left_soon_and_tried_again_with_a_short_gap`
//! - Two copies that went on at one moment are in touch within 2.5 s, though their handshakes cross:
//!   `two_copies_are_in_touch_soon_whatever_crosses`

pub mod answering;
pub mod kernel;
pub mod learning;
pub mod path;
pub mod peer;
pub mod surroundings;
pub mod way;

mod mesh;
mod wanted;

pub use mesh::{Echo, Effect, Event, Mesh, Overlap};
