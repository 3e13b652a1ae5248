//! The mesh on this machine: `wg0` with the machine's VPN key and address; [`peers`] keeps its peers and routes, [`kept`] what it
//! knows of them on DATA; [`echoes`] measure the paths to them; [`roll`] finds out who is there.

mod echoes;
pub(crate) mod kept;
pub(crate) mod peers;
pub(crate) mod roll;
mod wireguard;

use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};

use keys::endpoint::{Endpoint, MOST_ENDPOINTS};
use keys::recovery::RecoveryPubKey;
use model::{Ipv4Prefix, Prefixes, VPN_PORT, VpnPrivKey, VpnPubKey};
use rtnetlink::{LinkUnspec, LinkWireguard};
use rustix::net::{AddressFamily, SocketType};

use self::wireguard::WireGuard;
use crate::facts::Link;
use crate::network::refusal;
use crate::network::uplink::Network;

/// The interface; routing rules name it.
const INTERFACE: &str = "wg0";

/// Failed step of the mesh's set-up or upkeep.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The link could not be made or changed.
    #[error("{0} `{INTERFACE}`")]
    Link(&'static str, #[source] io::Error),
    /// The kernel does not know the link it has just made.
    #[error("look up `{INTERFACE}`")]
    Index(#[source] io::Error),
    /// The kernel has no WireGuard, or refuses to be asked.
    #[error("ask the kernel for WireGuard")]
    Family(#[source] io::Error),
    /// Key, port or a peer was refused.
    #[error("configure WireGuard")]
    Configure(#[source] io::Error),
    /// The kernel does not tell its peers.
    #[error("read WireGuard's peers")]
    Read(#[source] io::Error),
    /// A route to a peer or its pods was refused.
    #[error("set the route to {0}")]
    Route(Ipv4Prefix, #[source] io::Error),
    /// The kernel does not tell its routes.
    #[error("read the routes to peers and pods")]
    Routes(#[source] io::Error),
    /// Paths cannot be measured.
    #[error("ask peers for echoes")]
    Echoes(#[source] io::Error),
}

/// `wg0` is up, so services can be bound to the machine's VPN address.
#[derive(Debug, Clone)]
pub(crate) struct Mesh {
    /// This machine's public key in the VPN.
    own: VpnPubKey,
    /// Address of the machine in the VPN.
    vpn_ip: Ipv4Addr,
    /// Address ranges that the cluster keeps for itself.
    prefixes: Prefixes,
    network: Network,
    wireguard: WireGuard,
    /// The kernel's number for the interface.
    index: u32,
}

impl Mesh {
    /// Makes `wg0` with this key, port and address.
    ///
    /// # Errors
    /// [`Error`] names the step.
    pub(crate) async fn up(
        network: &Network,
        key: &VpnPrivKey,
        vpn_ip: Ipv4Addr,
        prefixes: Prefixes,
    ) -> Result<Self, Error> {
        let link = network.handle.link();
        let wg0 = LinkWireguard::new(INTERFACE).mtu(mesh::path::LARGEST.into()).build();
        link.add(wg0).execute().await.map_err(|error| Error::Link("make", refusal(error)))?;
        let wireguard = WireGuard::find().await?;
        wireguard.set(key).await?;
        let index = index().map_err(Error::Index)?;
        let address = network.handle.address().add(index, vpn_ip.into(), prefixes.vpn.bits());
        address.execute().await.map_err(|error| Error::Link("address", refusal(error)))?;
        let up = LinkUnspec::new_with_index(index).up().build();
        network.handle.link().set(up).execute().await.map_err(|error| Error::Link("bring up", refusal(error)))?;
        // What the machine itself sends to a service has a source by this, before the service's address is translated.
        let services = peers::route(prefixes.services, None, index);
        network.handle.route().add(services).execute().await.map_err(|error| Error::Link("route", refusal(error)))?;
        Ok(Self { own: public(key), vpn_ip, prefixes, network: network.clone(), wireguard, index })
    }
}

/// The public key of a machine's private one: WireGuard's are X25519's, as the owner's for recovery are.
pub(crate) fn public(key: &VpnPrivKey) -> VpnPubKey {
    VpnPubKey(*RecoveryPubKey::of(&key.0).bytes())
}

/// Where the machine's WireGuard is reached: as many places as a record has room for, each once.
pub(crate) fn endpoints(links: &[Link]) -> Vec<Endpoint> {
    let mut endpoints = Vec::new();
    for link in links {
        let text = SocketAddrV4::new(link.address.ip, VPN_PORT).to_string();
        let endpoint = Endpoint::read(&text).expect("an address and a port are an endpoint");
        if endpoints.len() < MOST_ENDPOINTS && !endpoints.contains(&endpoint) {
            endpoints.push(endpoint);
        }
    }
    endpoints
}

/// The kernel's number for the interface (netdevice(7)); any socket may ask.
fn index() -> io::Result<u32> {
    let socket = rustix::net::socket(AddressFamily::INET, SocketType::DGRAM, None)?;
    Ok(rustix::net::netdevice::name_to_index(&socket, INTERFACE)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::Address;

    #[test]
    fn a_machine_says_where_its_wireguard_listens() {
        let link = |ip: [u8; 4]| Link {
            name: "eth0".to_owned(),
            address: Address { ip: ip.into(), prefix: "192.0.2.0/24".parse().expect("a prefix") },
        };
        let links: Vec<_> = (1..=9).map(|n| link([192, 0, 2, n])).collect();
        let said = endpoints(&links);
        assert_eq!((said.len(), said[0].as_str()), (8, "192.0.2.1:7838"));
        let twice = [&links[..2], &links[..2]].concat();
        assert_eq!(endpoints(&twice), said[..2], "each once, wherever it stands");
        assert!(endpoints(&[]).is_empty());
    }
}
