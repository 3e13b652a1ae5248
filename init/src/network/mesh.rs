//! The mesh on this machine: `wg0` with the machine's VPN key and address. Peers come with many machines.

use std::io;
use std::net::Ipv4Addr;
use std::ops::Range;

use genetlink::GenetlinkError;
use model::{Ipv4Prefix, VPN_PORT, VpnPrivKey};
use netlink_packet_core::{NLM_F_ACK, NLM_F_REQUEST, NetlinkMessage};
use netlink_packet_generic::GenlMessage;
use netlink_packet_wireguard::{WireguardAttribute, WireguardCmd, WireguardDeviceFlags, WireguardMessage};
use rtnetlink::{LinkUnspec, LinkWireguard};
use rustix::net::netlink::{self, SocketAddrNetlink};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};
use zeroize::Zeroizing;

use crate::network::uplink::Network;
use crate::runtime::tasks;

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

/// `wg0` is up, so services can be bound to the machine's VPN address.
#[derive(Debug)]
pub(crate) struct Mesh(());

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
        Ok(Self(()))
    }
}

/// The kernel's number for the interface (netdevice(7)); any socket may ask.
fn index() -> io::Result<u32> {
    let socket = rustix::net::socket(AddressFamily::INET, SocketType::DGRAM, None)?;
    Ok(rustix::net::netdevice::name_to_index(&socket, INTERFACE)?)
}

/// Sets key and port; whatever peers there were are gone afterwards (`include/uapi/linux/wireguard.h`).
async fn configure(key: &VpnPrivKey) -> Result<(), Error> {
    let (connection, handle, _multicast) = genetlink::new_connection().map_err(Error::Socket)?;
    let _carrying = tasks::spawn(connection);
    let family = handle.resolve_family::<WireguardMessage>().await.map_err(Error::Family)?;
    let message = set_device(family.id, key);
    tasks::blocking(move || exchange(&message)).await.map_err(Error::Configure)
}

/// Where the key lies: behind netlink's header, generic netlink's and the attribute's.
const KEY: Range<usize> = 16 + 4 + 4..16 + 4 + 4 + 32;

/// The message that gives `wg0` its key and port. What builds and carries netlink messages keeps copies of them and wipes
/// none; so it is given zeros, and the key is put in its place in a buffer of our own.
fn set_device(family: u16, key: &VpnPrivKey) -> Zeroizing<Vec<u8>> {
    let mut payload = GenlMessage::from_payload(WireguardMessage {
        cmd: WireguardCmd::SetDevice,
        attributes: vec![
            WireguardAttribute::PrivateKey([0; 32]),
            WireguardAttribute::IfName(INTERFACE.to_owned()),
            WireguardAttribute::ListenPort(VPN_PORT),
            WireguardAttribute::Flags(WireguardDeviceFlags::ReplacePeers),
        ],
    });
    payload.set_resolved_family_id(family);
    let mut message = NetlinkMessage::from(payload);
    message.header.flags = NLM_F_REQUEST | NLM_F_ACK;
    message.finalize();
    let mut bytes = Zeroizing::new(vec![0; message.buffer_len()]);
    message.serialize(&mut bytes);
    bytes[KEY].copy_from_slice(key.expose());
    bytes
}

/// Sends one message to the kernel and reads whether it was done (netlink(7)). The kernel answers before the sending ends;
/// a refusal carries the whole message, so the answer is wiped, too.
fn exchange(message: &[u8]) -> io::Result<()> {
    let kind = (SocketType::RAW, SocketFlags::CLOEXEC);
    let socket = rustix::net::socket_with(AddressFamily::NETLINK, kind.0, kind.1, Some(netlink::GENERIC))?;
    rustix::net::sendto(&socket, message, SendFlags::empty(), &SocketAddrNetlink::new(0, 0))?;
    let mut answer = Zeroizing::new(vec![0; 4096]);
    let (read, _) = rustix::net::recv(&socket, answer.as_mut_slice(), RecvFlags::empty())?;
    match acknowledged(answer.get(..read).unwrap_or_default()) {
        Some(0) => Ok(()),
        Some(errno) => Err(io::Error::from_raw_os_error(errno)),
        None => Err(io::ErrorKind::InvalidData.into()),
    }
}

/// What the kernel says of a message: 0, or the error's number. None: it says something else.
fn acknowledged(answer: &[u8]) -> Option<i32> {
    const NLMSG_ERROR: [u8; 2] = 2_u16.to_ne_bytes();
    let code = i32::from_ne_bytes(*answer.get(16..)?.first_chunk()?);
    (answer.get(4..6)? == NLMSG_ERROR).then(|| code.checked_neg()).flatten()
}

#[cfg(test)]
mod tests {
    use model::Secret;
    use netlink_packet_core::NetlinkPayload;

    use super::*;

    /// Read back by the crate that knows the kernel's form: the key is where the kernel looks for it.
    ///
    /// Proves: D8
    #[test]
    fn the_key_is_where_the_kernel_reads_it() {
        let key = VpnPrivKey(Secret::take(&mut [0x7b; 32]));
        let bytes = set_device(0x1234, &key);
        let message = NetlinkMessage::<GenlMessage<WireguardMessage>>::deserialize(&bytes).expect("well formed");
        assert_eq!((message.header.message_type, message.header.flags), (0x1234, NLM_F_REQUEST | NLM_F_ACK));
        let NetlinkPayload::InnerMessage(inner) = message.payload else { panic!("a message for WireGuard") };
        let attributes = inner.payload.attributes;
        assert!(attributes.contains(&WireguardAttribute::PrivateKey([0x7b; 32])), "{attributes:?}");
        assert!(attributes.contains(&WireguardAttribute::IfName("wg0".to_owned())), "{attributes:?}");
        assert!(attributes.contains(&WireguardAttribute::ListenPort(VPN_PORT)), "{attributes:?}");
        assert!(attributes.contains(&WireguardAttribute::Flags(WireguardDeviceFlags::ReplacePeers)), "{attributes:?}");
        assert_eq!(attributes.len(), 4);
    }

    #[test]
    fn an_answer_is_done_refused_or_none() {
        let answer = |kind: u16, code: i32| {
            let header = [&36_u32.to_ne_bytes()[..], &kind.to_ne_bytes(), &[0; 10]].concat();
            acknowledged(&[&header[..], &code.to_ne_bytes()].concat())
        };
        assert_eq!(answer(2, 0), Some(0));
        assert_eq!(answer(2, -1), Some(1));
        assert_eq!(answer(3, 0), None);
        assert_eq!(acknowledged(&[0; 19]), None);
    }

    /// The host's kernel has no such family, or refuses who is not root: told as an error, and not waited for.
    #[test]
    fn the_kernel_answers_what_it_does_not_know() {
        let key = VpnPrivKey(Secret::take(&mut [0x7b; 32]));
        assert!(exchange(&set_device(0x7fff, &key)).is_err());
    }
}
