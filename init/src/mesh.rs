//! The mesh on this machine: `wg0` with the machine's VPN key and address. Peers come with many machines.

use std::io;
use std::net::Ipv4Addr;

use genetlink::GenetlinkError;
use model::{Ipv4Prefix, VPN_PORT, VpnPrivKey};
use netlink_packet_core::{NLM_F_ACK, NLM_F_REQUEST, NetlinkMessage, NetlinkPayload};
use netlink_packet_generic::GenlMessage;
use netlink_packet_wireguard::{WireguardAttribute, WireguardCmd, WireguardDeviceFlags, WireguardMessage};
use rtnetlink::{LinkUnspec, LinkWireguard};
use rustix::net::{AddressFamily, SocketType};

use crate::tasks;
use crate::uplink::Network;

/// The interface; routing rules name it.
const INTERFACE: &str = "wg0";
/// 1500 less an outer IPv6 header, UDP and WireGuard's own 32 bytes, so that both families fit.
const MTU: u32 = 1420;

/// Which step failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The link could not be made or changed.
    #[error("{0} `{INTERFACE}`")]
    Link(&'static str, #[source] rtnetlink::Error),
    /// The kernel does not know the link it has just made.
    #[error("look up `{INTERFACE}`")]
    Index(#[source] io::Error),
    /// The kernel's generic netlink does not open.
    #[error("open generic netlink")]
    Socket(#[source] io::Error),
    /// The kernel has no WireGuard, or refuses to be asked.
    #[error("ask the kernel for WireGuard")]
    Family(#[source] GenetlinkError),
    /// The key or port was refused.
    #[error("configure WireGuard")]
    Configure(#[source] io::Error),
}

/// `wg0` is up.
#[derive(Debug)]
pub(crate) struct Mesh {
    /// The machine's VPN address.
    pub(crate) vpn_ip: Ipv4Addr,
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
        prefix: Ipv4Prefix,
    ) -> Result<Self, Error> {
        let link = network.handle.link();
        let wg0 = LinkWireguard::new(INTERFACE).mtu(MTU).build();
        link.add(wg0).execute().await.map_err(|error| Error::Link("make", error))?;
        configure(key).await?;
        let index = index().map_err(Error::Index)?;
        let address = network.handle.address().add(index, vpn_ip.into(), prefix.bits());
        address.execute().await.map_err(|error| Error::Link("address", error))?;
        let up = LinkUnspec::new_with_index(index).up().build();
        network.handle.link().set(up).execute().await.map_err(|error| Error::Link("bring up", error))?;
        Ok(Self { vpn_ip })
    }
}

/// The kernel's number for the interface (netdevice(7)); any socket may ask.
fn index() -> io::Result<u32> {
    let socket = rustix::net::socket(AddressFamily::INET, SocketType::DGRAM, None)?;
    Ok(rustix::net::netdevice::name_to_index(&socket, INTERFACE)?)
}

/// Sets key and port; whatever peers there were are gone afterwards (`include/uapi/linux/wireguard.h`).
async fn configure(key: &VpnPrivKey) -> Result<(), Error> {
    let (connection, mut handle, _multicast) = genetlink::new_connection().map_err(Error::Socket)?;
    let _carrying = tasks::spawn(connection);
    let mut message = NetlinkMessage::from(GenlMessage::from_payload(WireguardMessage {
        cmd: WireguardCmd::SetDevice,
        attributes: vec![
            WireguardAttribute::IfName(INTERFACE.to_owned()),
            WireguardAttribute::PrivateKey(*key.expose()),
            WireguardAttribute::ListenPort(VPN_PORT),
            WireguardAttribute::Flags(WireguardDeviceFlags::ReplacePeers),
        ],
    }));
    message.header.flags = NLM_F_REQUEST | NLM_F_ACK;
    let mut answers = handle.request(message).await.map_err(Error::Family)?;
    while let Some(answer) = tokio_stream::StreamExt::next(&mut answers).await {
        let answer = answer.map_err(|error| Error::Configure(io::Error::other(error)))?;
        if let NetlinkPayload::Error(error) = answer.payload
            && error.code.is_some()
        {
            return Err(Error::Configure(error.to_io()));
        }
    }
    Ok(())
}
