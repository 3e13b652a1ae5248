//! Processor time and memory that nodes and pods use, as `kubectl top` and autoscalers ask for them: API `metrics.k8s.io/v1beta1`, which an
//! apiserver has answered in its place. By the same door: pages of OpenMetrics of machines, API `metrics.cairn.internal/v1`.
//!
//! ```text
//!   path ──► UsageQuestion ──► selection, for the apiserver ──► UsageObject: names, labels, uids ─┐
//!                                                                                              ├─► UsageAnswer: status, JSON
//!   kubelets ──► NodeSummary, one of each node ──► Summaries ──────────────────────────────────┘
//! ```
//! A question for a page names its machine, and one of its services. Pure: paths and bytes in, documents out. The apiserver has decided who
//! may ask; objects are selected by it, too, so that labels and fields mean here what they mean everywhere.
//!
//! # Invariants
//! - What a kubelet says counts for pods whose uid it knows, and for its own node: `crates/usage/src/summary.rs`
//! - Whatever a kubelet says, an answer is one that a client reads: `crates/usage/src/answer.rs`

mod answer;
mod page;
mod question;
mod summary;

pub use answer::{UsageAnswer, answer, refusal, resources};
pub use page::{MACHINE_METRICS, PageQuestion};
pub use question::{UsageQuestion, UsageSelection};
pub use summary::{NodeSummary, SUMMARY_PATH, Summaries, UsedResources};

use kubeapi::{Collection, ObjectMeta, Resource};
use serde::Deserialize;

/// Group of the API, with its version.
pub const GROUP_VERSION: &str = "metrics.k8s.io/v1beta1";
/// All nodes, of which metadata alone counts.
pub const NODES: Collection = Collection { path: "/api/v1/nodes", metadata_only: true };
/// All pods, of which metadata alone counts.
pub const PODS: Collection = Collection { path: "/api/v1/pods", metadata_only: true };

/// Node or pod that was selected.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct UsageObject {
    #[serde(deserialize_with = "kubeapi::brief")]
    metadata: ObjectMeta,
}

impl Resource for UsageObject {
    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }
}
