//! NetworkPolicies of Kubernetes (`networking.k8s.io/v1`), compiled by coordinators to what each machine lets its own pods say and
//! hear. A machine is told addresses and ports, never the names or labels of pods elsewhere.
//!
//! ```text
//!   pods, namespaces, policies ─► compile ─┬► part of each machine, with its hash ─► bytes ─► PolicyPart::read ─► table ─► nftables
//!                                          └► notices: what was left out, by name
//! ```
//! Pure: objects in, parts out; who is told which part, and when, is the caller's. Where a policy says something that is not
//! understood here, that allows nothing, and is noticed.
//!
//! # Invariants
//! - A policy set's verdict equals that of a reference written from the API's words: `crates/netpolicy/src/reference.rs`
//! - The table that is written of a part gives the same verdict: `crates/netpolicy/src/reference.rs`
//! - No part is larger than [`MOST_BYTES`], and what did not fit is closed: `crates/netpolicy/src/compile/tests.rs`
//! - An address that a pod has outside the prefix of its machine opens and closes nothing: `crates/netpolicy/src/compile/tests.rs`
//! - The same objects become the same bytes, in whatever order they come: `crates/netpolicy/src/compile/tests.rs`

mod address;
mod chain;
mod compile;
mod index;
mod notice;
mod object;
mod part;
mod table;

pub use compile::{CompiledPolicies, EncodedPart, NodePrefixes, PolicyInputs, compile};
pub use notice::{NoticeReason, PolicyNotice};
pub use object::{
    InventoryError, KubernetesInventory, NAMESPACES, NETWORK_POLICIES, NetworkPolicy, PODS, PolicyNamespace, PolicyPod,
};
pub use part::{MOST_BYTES, PolicyPart, PolicyPartError};
pub use table::{NO_TABLE, unheard, written};

#[cfg(test)]
mod reference;
