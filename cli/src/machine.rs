//! Speaking with a machine: the first call, which trusts nobody, and every later one, which trusts one key.
//!
//! ```text
//!   dial ──► TLS session ──► channel (one connection, never re-made behind anybody's back)
//!    │
//!    ├─ activation: any leaf, a code proved, config handed in
//!    ├─ contact: any leaf, Claim, proof verified ──► Pins
//!    └─ session: pinned leaf, owner's certificate ──► every other call
//! ```

mod activation;
mod call;
mod certificate;
mod contact;
mod dial;
#[cfg(test)]
pub(crate) mod fake;
mod import;
mod restore;
mod session;
#[cfg(test)]
mod tests;
mod tunnel;

pub(crate) use activation::{ActivationError, Blank, Way};
pub(crate) use call::CallError;
pub(crate) use certificate::{AskError, Granted, ask_certificate};
pub(crate) use contact::{ContactError, Expected, meet};
pub use dial::{Address, BadAddress, Carries, DialError, Stream, channel, handshake};
pub(crate) use import::PIECE;
pub(crate) use restore::Restore;
pub(crate) use session::{Defragmentation, Session, SessionError, SnapshotPieces, public_state};
pub(crate) use tunnel::{Listener, TunnelError};
