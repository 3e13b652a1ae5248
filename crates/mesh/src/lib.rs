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
//!   the machine may be a copy ───────────► Configure: all peers made anew, without their sessions ─► Echo to who had one
//! ```
//! * [`peer`]: what the cluster says of a machine, and which endpoints may be tried.
//! * [`kernel`]: what the kernel has, and the changes it is asked for.
//! * [`answering`]: whether a peer answers, from the kernel's counters.
//! * [`learning`]: where a peer is heard that the cluster does not name.
//! * [`surroundings`]: addresses near the machine that are no peer's.
//! * [`path`]: how large a packet to a peer may be.
//! * [`way`]: by which uplink packets to a peer leave, and by which others they could.

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
