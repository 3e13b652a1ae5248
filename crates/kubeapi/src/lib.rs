//! The Kubernetes API as a client sees it: collections that are listed in pages and then watched, objects that are written, quantities
//! that are read. Of each object a caller reads the fields that it names, and no other.
//!
//! ```text
//!   Reflector:  list ─► page ─► page ─► whole ─► watch ─► line ─► line ─► …
//!                ▲                         ▲        │
//!                └── 410: too old ─────────┼────────┤
//!                                          └────────┘ the server ends each watch after minutes
//! ```
//! Pure: status and bytes in, the next request out. Sockets, certificates and pauses are the caller's.
//!
//! # Invariants
//! - Whatever a server loses, repeats or cuts, a follower that is asked again holds what the server holds:
//!   `crates/kubeapi/src/reflector/tests.rs`

mod meta;
mod moment;
mod quantity;
mod reading;
mod reflector;
mod write;

pub use meta::{ObjectMeta, OwnerReference, brief};
pub use moment::rfc3339;
pub use quantity::quantity;
pub use reading::listed;
pub use reflector::{Collection, FollowError, ListRequest, ListStep, Objects, Reflector, Resource};
pub use write::ApiWrite;
