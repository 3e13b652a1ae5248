//! DHCPv4 client and server (RFC 2131, RFC 2132) without sockets or clock: payloads and `now` in, effects and the
//! next deadline out. It must never open a socket, read a clock or trust a byte it was handed.
//!
//! The client asks for one address on one link and keeps it; the server hands out short leases to tests and virtual
//! networks. [`frame`] puts payloads on an Ethernet link for a machine that has no address yet; [`arp`] finds out whether somebody has an
//! address, and says so of the machine.
//!
//! # Invariants
//! - No address outlives its lease: `clients_keep_to_their_leases_on_a_bad_link`
//! - A lease that overlaps what the cluster keeps is refused: `crates/dhcp/tests/link/main.rs`

pub mod arp;
pub mod client;
pub mod frame;
pub mod server;
pub mod wire;

pub use wire::{HardwareAddress, Prefix};

/// The port a server listens on (RFC 2131 §4.1).
pub const SERVER_PORT: u16 = 67;
/// The port a client listens on.
pub const CLIENT_PORT: u16 = 68;
