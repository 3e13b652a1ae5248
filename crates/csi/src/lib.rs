//! Messages of kubelet to the driver of the machine's volumes ([`wire`]), and their meaning in words of `volumes`. No transport:
//! who serves brings its own.
//!
//! ```text
//!   kubelet ─ finds a socket in its folder ─► Registration: name and socket of the driver
//!           ─ dials that ────────────────► Identity, Node ──[orders]──► volumes::node
//! ```
//! Names and numbers of messages and fields are those of the Container Storage Interface 1.9 and of kubelet's registration v1.
//!
//! # Invariants
//! - No bytes of kubelet's panic whoever reads them: `fuzz/tests/replay.rs`

mod answers;
mod orders;
pub mod wire;

pub use answers::{capabilities, expansion, registration, usage};
pub use orders::{decode_expand, decode_publish, decode_unpublish, refused};
pub use wire::csi::identity_server::{Identity, IdentityServer};
pub use wire::csi::node_server::{Node, NodeServer};
pub use wire::pluginregistration::registration_server::{Registration, RegistrationServer};
