//! etcd's API as far as Cairn asks it: its messages ([`wire`]), and what they mean to the cluster's decisions. No transport,
//! no clock: a caller brings its own connection.
//!
//! ```text
//!   cluster::Txn ──[txn]──► TxnRequest ══ etcd ══► TxnResponse ──► cluster::Outcome
//!   RecordsReader ──► RangeRequest, page by page, all of one revision ══► cluster::View
//!   RegistryReader ──► the same for Kubernetes' objects ══► entries of a snapshot
//!   a View's revision ──[watch]──► WatchRequest ══► changes, revision by revision
//!   MemberListResponse, each one's StatusResponse ──[members]──► cluster::Members ──Step──► one change of them
//!                                                     └──► cluster::backends::Backends ──► one defragmentation
//! ```
//! etcd's own field names are kept; its words stop at this crate's border.
//!
//! # Invariants
//! - No change is made over one member's copy of etcd: `nothing_is_answered_from_one_members_copy`

pub mod audit;
pub mod members;
mod pages;
mod reading;
mod registry;
mod txn;
mod watch;
pub mod wire;

use cluster::state::KeyValue;

pub use pages::Progress;
pub use reading::RecordsReader;
pub use registry::{ForgottenRevision, RegistryReader, replacing};
pub use txn::{outcome, transaction};
pub use watch::{WatchAnswer, watch_from, watched};
pub use wire::etcdserverpb::auth_client::AuthClient;
pub use wire::etcdserverpb::cluster_client::ClusterClient;
pub use wire::etcdserverpb::kv_client::KvClient;
pub use wire::etcdserverpb::maintenance_client::MaintenanceClient;
pub use wire::etcdserverpb::watch_client::WatchClient;

/// An answer that etcd never gives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadAnswer {
    /// A part that is always there.
    #[error("etcd's answer has no {0}")]
    Missing(&'static str),
    /// Revisions count from 0.
    #[error("etcd's answer has a negative revision")]
    Revision,
    /// A kind of change that is none.
    #[error("etcd tells of a change that is neither a put nor a deletion")]
    Change,
    /// A member that is reached as none of ours is.
    #[error("etcd has a member that is no machine of the cluster's")]
    Member,
    /// Sizes count from 0.
    #[error("etcd's answer has a negative size")]
    Size,
    /// A page without an end.
    #[error("etcd says that there is more behind no key")]
    Page,
}

/// The end of the range of all keys that begin with `prefix`: the first key behind them.
///
/// # Panics
/// When `prefix` ends with the highest byte, as none of ours does.
#[must_use]
pub fn behind(prefix: &str) -> Vec<u8> {
    let mut end = prefix.as_bytes().to_vec();
    let last = end.last_mut().expect("a prefix of one byte or more");
    *last = last.checked_add(1).expect("a prefix that ends with text");
    end
}

fn revision(number: i64) -> Result<u64, BadAnswer> {
    u64::try_from(number).map_err(|_| BadAnswer::Revision)
}

/// A revision as etcd writes it; there are no more.
fn number(revision: u64) -> i64 {
    i64::try_from(revision).unwrap_or(i64::MAX)
}

fn header(header: Option<&wire::etcdserverpb::ResponseHeader>) -> Result<u64, BadAnswer> {
    revision(header.ok_or(BadAnswer::Missing("header"))?.revision)
}

fn pair(pair: wire::mvccpb::KeyValue) -> Result<KeyValue, BadAnswer> {
    Ok(KeyValue { mod_revision: revision(pair.mod_revision)?, key: pair.key, value: pair.value })
}
