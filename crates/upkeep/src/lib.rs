//! State that Kubernetes should hold of the cluster's machines, and the way there: node objects as the records have them, volumes
//! as claims want them, services at ports that are published for them, nodes without pods before they go.
//!
//! ```text
//!   records ──► Workers ─────────┐
//!   watches ──► nodes ───────────┼─► nodes::changes ────► writes
//!          ├──► claims, volumes ─┼─► VolumeKeeper::due ─► calls to machines ─► answers ─► writes
//!          ├──► services, slices ┼─► ServicePublisher::due ► writes
//!          │                     ├─► AddressMover::due ─► records
//!          └──► pods, policies ──┼─► PolicyKeeper::due ─► parts of machines
//!   clock   ─────────────────────┘
//! ```
//! Pure: objects, records and `now` in; writes and calls out. Each look compares what is with what should be, so a step that was cut
//! off, or done twice by two control planes, is the next look's difference.
//!
//! # Invariants
//! - A machine's volume is deleted for its claim's end alone, and never while its claim is there: `crates/upkeep/src/volumes/tests.rs`
//! - Whatever fails in between, a claim that can be met is met by one volume, and a claim that ends leaves none:
//!   `crates/upkeep/src/volumes/tests.rs`
//! - No port of a machine's uplinks is of two services, and none of a service that no rule names: `crates/upkeep/src/publishing/tests.rs`
//! - Of network policies nothing is told before all that they are about was heard: `crates/upkeep/src/policies.rs`

pub mod drain;
mod event;
pub mod floating;
mod node_roles;
pub mod nodes;
pub mod policies;
pub mod publishing;
pub mod volumes;

pub use floating::{AddressMove, AddressMover};
pub use nodes::{NodeObject, Worker, Workers};
pub use policies::{PolicyKeeper, PolicyLook, PolicyWorld};
pub use publishing::{FloatingAddress, NamespaceRule, PublishWorld, ServicePublisher};
pub use volumes::{VolumeKeeper, VolumeWorld};
