//! Ports of the uplinks that owners have published, as the machine's orders have them. Decides nothing: coordinators do.

use cluster::orders::OrderBook;
use tokio::sync::watch;

use super::{Error, Uplink};

/// Keeps open what is ordered, and nothing else; a task for good. Before the first word of a coordinator nothing is.
pub(crate) async fn follow(uplink: Uplink, mut orders: watch::Receiver<OrderBook>) -> Result<(), Error> {
    let mut before = None;
    loop {
        let ports = orders.borrow_and_update().open_ports()?;
        if before.as_ref() != Some(&ports) {
            uplink.publish(ports.clone()).await?;
            if before.is_some() || !ports.is_empty() {
                let text = ports.iter().map(|open| open.port.to_string()).collect::<Vec<_>>().join(",");
                tracing::info!(ports = text, "the uplinks' published ports are others");
            }
            before = Some(ports);
        }
        if orders.changed().await.is_err() {
            return Ok(());
        }
    }
}
