//! Which uplinks have a carrier, as the kernel tells it by multicast. What that means, others decide.

use std::collections::{BTreeMap, BTreeSet};

use netlink_packet_core::NetlinkPayload;
use rtnetlink::MulticastGroup;
use rtnetlink::packet_route::RouteNetlinkMessage;
use rtnetlink::packet_route::link::{LinkFlags, LinkMessage};
use tokio_stream::StreamExt as _;

use super::{Error, Link, Network};
use crate::network::refusal;
use crate::runtime::services::{Ends, Run, Unit};
use crate::runtime::tasks;

/// Links that have a carrier, by the kernel's numbers.
pub(super) type Carriers = BTreeSet<u32>;

/// Keeps [`Network::carriers`] what the kernel says of `links`.
pub(super) fn unit(network: &Network, links: &[Link]) -> Unit {
    let names = links.iter().map(|link| (link.index, link.name.clone()));
    let (network, links) = (network.clone(), names.collect::<BTreeMap<_, _>>());
    Unit::task("carriers", Ends::Never, Run::task(move || hear(network.clone(), links.clone())))
}

async fn hear(network: Network, links: BTreeMap<u32, String>) -> Result<(), Error> {
    let heard = rtnetlink::new_multicast_connection(&[MulticastGroup::Link]);
    let (connection, handle, mut news) = heard.map_err(Error::Socket)?;
    let _carrying = tasks::spawn(connection);
    // First heard, then looked: what changes between is heard.
    let mut all = handle.link().get().execute();
    while let Some(link) = all.next().await {
        take(&network, &links, &link.map_err(|error| Error::Links(refusal(error)))?);
    }
    while let Some((message, _from)) = news.next().await {
        if let NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewLink(link)) = message.payload {
            take(&network, &links, &link);
        }
    }
    // The kernel had more to say than the socket holds: looked at again by who starts this again.
    Err(Error::Unheard)
}

/// Notes a link's carrier, and wakes those that wait if it changed.
fn take(network: &Network, links: &BTreeMap<u32, String>, link: &LinkMessage) {
    let index = link.header.index;
    let Some(name) = links.get(&index) else { return };
    if network.carriers.send_if_modified(|carriers| note(carriers, index, link.header.flags)) {
        let is_there = network.carriers.borrow().contains(&index);
        tracing::info!(link = name, "{}", if is_there { "the link has a carrier" } else { "the link has no carrier" });
    }
}

fn note(carriers: &mut Carriers, link: u32, flags: LinkFlags) -> bool {
    if flags.contains(LinkFlags::LowerUp) { carriers.insert(link) } else { carriers.remove(&link) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Proves: M12
    #[test]
    fn a_link_that_is_up_without_a_cable_has_no_carrier() {
        let (mut carriers, cable) = (Carriers::new(), LinkFlags::Up | LinkFlags::Running | LinkFlags::LowerUp);
        assert!(note(&mut carriers, 2, cable) && note(&mut carriers, 3, cable));
        assert!(!note(&mut carriers, 2, cable), "that is known");
        assert!(note(&mut carriers, 2, LinkFlags::Up));
        assert!(!note(&mut carriers, 2, LinkFlags::Up), "that is known");
        assert_eq!(carriers, Carriers::from([3]));
    }
}
