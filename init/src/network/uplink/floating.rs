//! Floating addresses on the uplinks: each on the link whose network it is of, once nobody else there answers for it, and told to all
//! then. Decides nothing: who may have one when is told.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::time::Duration;

use dhcp::arp;
use dhcp::wire::HardwareAddress;
use sys::packet::PacketSocket;
use tokio::io::Interest;
use tokio::time::{Instant, timeout_at};

use super::{Error, Link, Network, Uplink};
use crate::network::refusal;

/// Times that an address is asked for, and that it is announced: a frame may be lost.
const TIMES: u32 = 3;
/// Time for which answers are waited for behind each question.
const ANSWERS: Duration = Duration::from_millis(250);

/// Addresses that the links have beside their own.
#[derive(Debug, Default)]
pub(super) struct FloatingHeld {
    held: BTreeMap<Ipv4Addr, Link>,
    /// Words that people were told of those that no link has.
    told: BTreeMap<Ipv4Addr, String>,
}

impl Uplink {
    /// Gives the links these addresses and no others, and says which they have then. One that is to be given is given while `may` says so.
    ///
    /// # Errors
    /// [`Error`]: it is not known which addresses the links have; the same again finds out.
    pub(crate) async fn float(
        &self,
        wanted: &BTreeSet<Ipv4Addr>,
        mut may: impl FnMut(Ipv4Addr) -> bool,
    ) -> Result<BTreeSet<Ipv4Addr>, Error> {
        let mut floating = self.floating.lock().await;
        let FloatingHeld { held, told } = &mut *floating;
        let leaving: Vec<_> = held.keys().filter(|address| !wanted.contains(address)).copied().collect();
        for address in leaving {
            let link = &held[&address];
            self.network.take_away((link.index, &link.name), address).await?;
            tracing::info!(%address, link = link.name, "lets go of a floating address");
            held.remove(&address);
        }
        told.retain(|address, _| wanted.contains(address));
        let new: Vec<_> = wanted.iter().filter(|address| !held.contains_key(address)).copied().collect();
        for address in new {
            match self.take(address, &mut may).await? {
                Ok(Some(link)) => {
                    tracing::info!(%address, link = link.name, "holds a floating address");
                    told.remove(&address);
                    held.insert(address, link);
                }
                Ok(None) => {}
                Err(why) => {
                    if told.insert(address, why.clone()).as_ref() != Some(&why) {
                        self.network.board.error(&why);
                    }
                }
            }
        }
        Ok(held.keys().copied().collect())
    }

    /// Link that has the address now; none where it may not be given any more, a reason where it cannot be.
    async fn take(
        &self,
        address: Ipv4Addr,
        may: &mut impl FnMut(Ipv4Addr) -> bool,
    ) -> Result<Result<Option<Link>, String>, Error> {
        let Some(link) = self.network.link_of(address, &self.links) else {
            return Ok(Err(format!(
                "the floating address {address} is in no network of this machine; it is not answered for"
            )));
        };
        let failed = |error| Error::Packet(link.name.clone(), error);
        let (socket, mac) = (PacketSocket::open_arp(link.index).map_err(failed)?, HardwareAddress(link.mac));
        if let Some(other) = claimed(&socket, mac, address).await.map_err(failed)? {
            return Ok(Err(format!("the floating address {address} is of the station {other}; it is not taken")));
        }
        if !may(address) {
            return Ok(Ok(None));
        }
        let given = self.network.handle.address().add(link.index, address.into(), 32).replace().execute().await;
        given.map_err(|error| Error::Address("a floating address", link.name.clone(), refusal(error)))?;
        for _ in 0..TIMES {
            if let Err(error) = socket.send(&arp::announcement(mac, address)) {
                // Whoever asks for it hears of it all the same.
                tracing::debug!(%address, %error, "a floating address is not announced");
            }
        }
        Ok(Ok(Some(link)))
    }
}

/// Station other than this one that has an address, or is about to.
async fn claimed(
    socket: &PacketSocket,
    mac: HardwareAddress,
    address: Ipv4Addr,
) -> std::io::Result<Option<HardwareAddress>> {
    let heard = sys::readiness::watch(socket.duplicate()?, Interest::READABLE)?;
    let mut frame = [0; 64];
    for _ in 0..TIMES {
        socket.send(&arp::probe(mac, address))?;
        let until = Instant::now() + ANSWERS;
        while let Ok(ready) = timeout_at(until, heard.readable()).await {
            ready?.clear_ready();
            while let Ok(length) = socket.receive(&mut frame) {
                if let Some(other) = arp::claims(&frame[..length], address).filter(|other| *other != mac) {
                    return Ok(Some(other));
                }
            }
        }
    }
    Ok(None)
}

impl Network {
    /// Link whose network an address is of.
    fn link_of(&self, address: Ipv4Addr, links: &[Link]) -> Option<Link> {
        let name = self.board.facts().read(|now| {
            now.links.iter().find(|link| link.address.prefix.contains(address)).map(|link| link.name.clone())
        })?;
        links.iter().find(|link| link.name == name).cloned()
    }
}
