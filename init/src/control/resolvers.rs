//! Where the resolver of the machine's pods asks for names outside the cluster: the resolvers of its links, as they change.

use std::net::Ipv4Addr;

use model::Prefixes;
use services::dns;
use tokio::sync::watch;

use super::{Error, clients};
use crate::network::uplink::{self, Resolvers};

/// Keeps the file as the links have it; a task for good.
pub(super) async fn follow(
    (gateway, prefixes): (Ipv4Addr, Prefixes),
    mut resolvers: watch::Receiver<Resolvers>,
) -> Result<(), Error> {
    loop {
        let text = dns::outside(gateway, prefixes, &uplink::all(&resolvers.borrow_and_update()));
        clients::write(dns::OUTSIDE, text.as_bytes(), 0o644)?;
        if resolvers.changed().await.is_err() {
            return Ok(());
        }
    }
}
