//! Policies of Kubernetes' network on a worker: the table by which its pods are judged, as the machine's orders have it. Until one was
//! heard pods get no new connection. Decides nothing.

use std::time::Duration;

use api::{ConditionName, Truth};
use cluster::orders::OrderBook;
use model::{Chain, Ipv4Prefix};
use netpolicy::{PolicyPart, PolicyPartError};
use tokio::sync::watch;
use tokio::time::timeout;

use crate::network::nftables;
use crate::network::policies::PolicyTable;
use crate::shown::board::Board;

/// Pause before the kernel is asked again for what it did not do.
const AGAIN: Duration = Duration::from_secs(5);
/// Reason that people are shown before a part was heard.
const UNHEARD: &str =
    "no coordinator has told this machine the network policies of its pods in this boot; pods get no new connections";

/// Why the kernel does not go by what was heard last; it goes by what it did before.
#[derive(Debug, thiserror::Error)]
enum PolicyError {
    /// Bytes that were heard, and are no part.
    #[error("read what is ordered of network policies")]
    Part(#[from] PolicyPartError),
    /// The kernel does not take the table.
    #[error("judge pods by network policies")]
    Table(#[from] nftables::Error),
}

/// Keeps the table as it is ordered; a task for good.
pub(super) async fn follow(board: Board, own: (PolicyTable, Ipv4Prefix), mut orders: watch::Receiver<OrderBook>) {
    let mut cause = None;
    loop {
        let ordered = orders.borrow_and_update().policies().map(<[u8]>::to_vec);
        let is_heard = ordered.is_some();
        let failed = perform(&own, ordered).await.err().map(|error| Chain(&error).to_string());
        if let Some(text) = failed.as_ref().filter(|_| failed != cause) {
            tracing::error!(error = text, "pods are not judged by the network policies that were told last");
        }
        let (truth, reason) = match (&failed, is_heard) {
            (Some(text), _) => (Truth::False, text.as_str()),
            (None, true) => (Truth::True, ""),
            (None, false) => (Truth::False, UNHEARD),
        };
        board.condition(ConditionName::PoliciesHold, truth, reason);
        cause = failed;
        let changed = if cause.is_some() {
            timeout(AGAIN, orders.changed()).await.unwrap_or(Ok(()))
        } else {
            orders.changed().await
        };
        if changed.is_err() {
            return; // the member's life has ended
        }
    }
}

/// Has the kernel judge pods by a part, or give them no new connection where there is none.
async fn perform((table, pods): &(PolicyTable, Ipv4Prefix), ordered: Option<Vec<u8>>) -> Result<(), PolicyError> {
    let text = match ordered {
        Some(contents) => netpolicy::written(&PolicyPart::read(&contents)?, *pods),
        None => netpolicy::unheard(*pods),
    };
    Ok(table.set(*pods, &text).await?)
}
