//! WireGuard as the kernel speaks of it (`include/uapi/linux/wireguard.h`), over one socket for each exchange: key and port
//! are set, peers are changed, and read. The private key passes through buffers of our own only, and these are wiped.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU64;
use std::ops::Range;

use mesh::kernel::{Counters, FoundPeer, PeerChange};
use model::{Ipv4Prefix, VPN_PORT, VpnPrivKey, VpnPubKey};
use netlink_packet_core::{
    Emitable, NLM_F_ACK, NLM_F_DUMP, NLM_F_REQUEST, NetlinkMessage, NetlinkPayload, ParseableParametrized as _,
};
use netlink_packet_generic::ctrl::nlas::GenlCtrlAttrs;
use netlink_packet_generic::ctrl::{GenlCtrl, GenlCtrlCmd};
use netlink_packet_generic::{GenlFamily, GenlHeader, GenlMessage};
use netlink_packet_wireguard::{
    WireguardAddressFamily, WireguardAllowedIp, WireguardAllowedIpAttr, WireguardAttribute, WireguardCmd,
    WireguardDeviceFlags, WireguardMessage, WireguardPeer, WireguardPeerAttribute, WireguardPeerFlags,
    WireguardTimeSpec,
};
use rustix::net::netlink::{self, SocketAddrNetlink};
use rustix::net::{RecvFlags, SendFlags, SocketFlags, SocketType};
use zeroize::{Zeroize as _, Zeroizing};

use super::{Error, INTERFACE};
use crate::runtime::tasks;

/// The kernel's WireGuard, found.
#[derive(Debug, Clone, Copy)]
pub(super) struct WireGuard {
    /// Number of WireGuard's family in netlink messages of this boot.
    family: u16,
}

impl WireGuard {
    /// Asks the kernel for it.
    pub(super) async fn find() -> Result<Self, Error> {
        let family = tasks::blocking(|| family(WireguardMessage::family_name())).await.map_err(Error::Family)?;
        Ok(Self { family })
    }

    /// Sets key and port; whatever peers there were are gone afterwards.
    pub(super) async fn set(self, key: &VpnPrivKey) -> Result<(), Error> {
        let message = set_device(self.family, key);
        tasks::blocking(move || exchange(&message)).await.map_err(Error::Configure)
    }

    /// Makes these changes in one message, so that nobody sees a part of it.
    pub(super) async fn change(self, changes: &[PeerChange]) -> Result<(), Error> {
        let message = set_peers(self.family, changes);
        tasks::blocking(move || exchange(&message)).await.map_err(Error::Configure)
    }

    /// Reads the peers that there are.
    pub(super) async fn peers(self) -> Result<BTreeMap<VpnPubKey, FoundPeer>, Error> {
        let message = ask_device(self.family);
        tasks::blocking(move || dump(&message)).await.map_err(Error::Read)
    }
}

/// A message for the kernel, serialised.
fn request<F: GenlFamily + Emitable + Debug>(family: u16, flags: u16, payload: F) -> Zeroizing<Vec<u8>> {
    let mut payload = GenlMessage::from_payload(payload);
    payload.set_resolved_family_id(family);
    let mut message = NetlinkMessage::from(payload);
    message.header.flags = NLM_F_REQUEST | flags;
    message.finalize();
    let mut bytes = Zeroizing::new(vec![0; message.buffer_len()]);
    message.serialize(&mut bytes);
    bytes
}

/// Where an attribute of generic netlink begins, and where the key lies that is the first one's value.
const ATTRIBUTES: usize = 16 + 4;
const KEY: Range<usize> = ATTRIBUTES + 4..ATTRIBUTES + 4 + 32;

/// The message that gives `wg0` its key and port. What builds and carries netlink messages keeps copies of them and wipes
/// none; so it is given zeros, and the key is put in its place in a buffer of our own.
fn set_device(family: u16, key: &VpnPrivKey) -> Zeroizing<Vec<u8>> {
    let attributes = vec![
        WireguardAttribute::PrivateKey([0; 32]),
        WireguardAttribute::IfName(INTERFACE.to_owned()),
        WireguardAttribute::ListenPort(VPN_PORT),
        WireguardAttribute::Flags(WireguardDeviceFlags::ReplacePeers),
    ];
    let mut bytes = request(family, NLM_F_ACK, WireguardMessage { cmd: WireguardCmd::SetDevice, attributes });
    bytes[KEY].copy_from_slice(key.expose());
    bytes
}

fn set_peers(family: u16, changes: &[PeerChange]) -> Zeroizing<Vec<u8>> {
    let peers = changes.iter().map(|change| WireguardPeer(peer(change))).collect();
    let attributes = vec![WireguardAttribute::IfName(INTERFACE.to_owned()), WireguardAttribute::Peers(peers)];
    request(family, NLM_F_ACK, WireguardMessage { cmd: WireguardCmd::SetDevice, attributes })
}

fn peer(change: &PeerChange) -> Vec<WireguardPeerAttribute> {
    use WireguardPeerAttribute::{AllowedIps, Endpoint, Flags, PublicKey};
    match change {
        PeerChange::Remove(key) => vec![PublicKey(key.0), Flags(WireguardPeerFlags::RemoveMe)],
        PeerChange::Set { key, endpoint, allowed } => {
            let allowed = allowed.iter().map(allowed_ip).collect();
            let endpoint = endpoint.map(|endpoint| Endpoint(endpoint.into()));
            let first = [PublicKey(key.0), Flags(WireguardPeerFlags::ReplaceAllowedIps)];
            first.into_iter().chain(endpoint).chain([AllowedIps(allowed)]).collect()
        }
        // A peer that is gone meanwhile is not made anew by a change of its endpoint.
        PeerChange::Move { key, endpoint } => {
            vec![PublicKey(key.0), Flags(WireguardPeerFlags::UpdateOnly), Endpoint((*endpoint).into())]
        }
    }
}

fn allowed_ip(prefix: &Ipv4Prefix) -> WireguardAllowedIp {
    WireguardAllowedIp(vec![
        WireguardAllowedIpAttr::Family(WireguardAddressFamily::Ipv4),
        WireguardAllowedIpAttr::IpAddr(prefix.address().into()),
        WireguardAllowedIpAttr::Cidr(prefix.bits()),
    ])
}

fn ask_device(family: u16) -> Zeroizing<Vec<u8>> {
    let attributes = vec![WireguardAttribute::IfName(INTERFACE.to_owned())];
    request(family, NLM_F_DUMP, WireguardMessage { cmd: WireguardCmd::GetDevice, attributes })
}

/// More than the kernel puts into one datagram of a dump (`netlink_dump`, `net/netlink/af_netlink.c`: 32 KiB).
const DATAGRAM: usize = 64 << 10;

fn send(message: &[u8]) -> io::Result<std::os::fd::OwnedFd> {
    let kind = (SocketType::RAW, SocketFlags::CLOEXEC);
    let socket = rustix::net::socket_with(rustix::net::AddressFamily::NETLINK, kind.0, kind.1, Some(netlink::GENERIC))?;
    rustix::net::sendto(&socket, message, SendFlags::empty(), &SocketAddrNetlink::new(0, 0))?;
    Ok(socket)
}

/// Number of a family of generic netlink in messages of this boot (`include/uapi/linux/genetlink.h`, `CTRL_CMD_GETFAMILY`).
fn family(name: &str) -> io::Result<u16> {
    let attributes = vec![GenlCtrlAttrs::FamilyName(name.to_owned())];
    let ask = GenlCtrl { cmd: GenlCtrlCmd::GetFamily, nlas: attributes };
    // The controller's own number is the same everywhere.
    let socket = send(&request(ask.family_id(), 0, ask))?;
    let mut answer = vec![0; DATAGRAM];
    let (read, _) = rustix::net::recv(&socket, answer.as_mut_slice(), RecvFlags::empty())?;
    let answer = NetlinkMessage::<GenlMessage<GenlCtrl>>::deserialize(answer.get(..read).unwrap_or_default());
    let payload = answer.map_err(io::Error::other)?.payload;
    if let NetlinkPayload::Error(refused) = payload {
        return Err(refused.to_io());
    }
    let NetlinkPayload::InnerMessage(found) = payload else { return Err(io::ErrorKind::InvalidData.into()) };
    let number = found.payload.nlas.into_iter().find_map(|attribute| {
        let GenlCtrlAttrs::FamilyId(number) = attribute else { return None };
        Some(number)
    });
    number.ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// Sends one message to the kernel and reads whether it was done (netlink(7)). The kernel answers before the sending ends;
/// a refusal carries the whole message, so the answer is wiped, too.
fn exchange(message: &[u8]) -> io::Result<()> {
    let socket = send(message)?;
    let mut answer = Zeroizing::new(vec![0; DATAGRAM]);
    let (read, _) = rustix::net::recv(&socket, answer.as_mut_slice(), RecvFlags::empty())?;
    match acknowledged(answer.get(..read).unwrap_or_default()) {
        Some(0) => Ok(()),
        Some(errno) => Err(io::Error::from_raw_os_error(errno)),
        None => Err(io::ErrorKind::InvalidData.into()),
    }
}

/// Asks the kernel for all it has, and reads until it has said all.
fn dump(message: &[u8]) -> io::Result<BTreeMap<VpnPubKey, FoundPeer>> {
    let socket = send(message)?;
    let mut answer = Zeroizing::new(vec![0; DATAGRAM]);
    let mut peers = BTreeMap::new();
    loop {
        let (read, _) = rustix::net::recv(&socket, answer.as_mut_slice(), RecvFlags::empty())?;
        let datagram = answer.get_mut(..read).unwrap_or_default();
        match take(datagram, &mut peers)? {
            Dump::GoesOn => {}
            Dump::Whole => return Ok(peers),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Dump {
    GoesOn,
    Whole,
}

const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;

/// Takes the peers of one datagram, in which netlink messages stand one after another.
fn take(mut datagram: &mut [u8], peers: &mut BTreeMap<VpnPubKey, FoundPeer>) -> io::Result<Dump> {
    let senseless = || io::Error::from(io::ErrorKind::InvalidData);
    while !datagram.is_empty() {
        let header = datagram.get(..ATTRIBUTES).ok_or_else(senseless)?;
        let length = u32::from_ne_bytes([header[0], header[1], header[2], header[3]]);
        let kind = u16::from_ne_bytes([header[4], header[5]]);
        let length = usize::try_from(length).map_err(|_| senseless())?;
        let rest = length.next_multiple_of(4).min(datagram.len());
        let (message, behind) = datagram.split_at_mut(rest);
        let message = message.get_mut(..length).ok_or_else(senseless)?;
        match kind {
            NLMSG_DONE => return Ok(Dump::Whole),
            NLMSG_ERROR => {
                let errno = acknowledged(message).ok_or_else(senseless)?;
                return Err(io::Error::from_raw_os_error(errno));
            }
            _ => device(message.get_mut(ATTRIBUTES..).ok_or_else(senseless)?, peers)?,
        }
        datagram = behind;
    }
    Ok(Dump::GoesOn)
}

/// Takes the peers of one message. Where they do not fit into one, the next one goes on, if need be with the allowed
/// prefixes of the last peer.
fn device(attributes: &mut [u8], peers: &mut BTreeMap<VpnPubKey, FoundPeer>) -> io::Result<()> {
    forget_private_key(attributes);
    let header = GenlHeader { cmd: WireguardCmd::GetDevice.into(), version: 1 };
    let message = WireguardMessage::parse_with_param(&*attributes, header).map_err(io::Error::other)?;
    for attribute in message.attributes {
        let WireguardAttribute::Peers(found) = attribute else { continue };
        for peer in &found {
            let key = peer.iter().find_map(|attribute| {
                let WireguardPeerAttribute::PublicKey(key) = attribute else { return None };
                Some(VpnPubKey(*key))
            });
            let nothing = FoundPeer { endpoint: None, allowed: [].into(), counters: Counters::default() };
            let known = peers.entry(key.ok_or(io::ErrorKind::InvalidData)?).or_insert(nothing);
            peer.iter().for_each(|attribute| learn(known, attribute));
        }
    }
    Ok(())
}

fn learn(peer: &mut FoundPeer, attribute: &WireguardPeerAttribute) {
    if let WireguardPeerAttribute::Endpoint(SocketAddr::V4(endpoint)) = attribute {
        peer.endpoint = Some(*endpoint);
    } else if let WireguardPeerAttribute::RxBytes(bytes) = attribute {
        peer.counters.received = *bytes;
    } else if let WireguardPeerAttribute::TxBytes(bytes) = attribute {
        peer.counters.sent = *bytes;
    } else if let WireguardPeerAttribute::LastHandshake(at) = attribute {
        peer.counters.handshake = finished(at);
    } else if let WireguardPeerAttribute::AllowedIps(all) = attribute {
        peer.allowed.extend(all.iter().filter_map(allowed_prefix));
    }
}

/// When a handshake was finished; 0 is never.
fn finished(at: &WireguardTimeSpec) -> Option<NonZeroU64> {
    let (seconds, nanos) = (u64::try_from(at.seconds).ok()?, u64::try_from(at.nano_seconds).ok()?);
    NonZeroU64::new(seconds.saturating_mul(1_000_000_000).saturating_add(nanos))
}

fn allowed_prefix(allowed: &WireguardAllowedIp) -> Option<Ipv4Prefix> {
    let address = allowed.iter().find_map(|attribute| {
        let WireguardAllowedIpAttr::IpAddr(IpAddr::V4(address)) = attribute else { return None };
        Some(*address)
    });
    let bits = allowed.iter().find_map(|attribute| {
        let WireguardAllowedIpAttr::Cidr(bits) = attribute else { return None };
        Some(*bits)
    });
    Ipv4Prefix::new(address?, bits?).ok()
}

/// The kernel tells root the private key with everything else; nothing that parses it is to see it.
fn forget_private_key(mut attributes: &mut [u8]) {
    const PRIVATE_KEY: u16 = 3; // WGDEVICE_A_PRIVATE_KEY
    while let Some(header) = attributes.first_chunk::<4>() {
        let length = usize::from(u16::from_ne_bytes([header[0], header[1]])).max(4);
        let kind = u16::from_ne_bytes([header[2], header[3]]);
        let rest = length.next_multiple_of(4).min(attributes.len());
        let (attribute, behind) = std::mem::take(&mut attributes).split_at_mut(rest);
        if kind == PRIVATE_KEY {
            attribute[4..].zeroize();
        }
        attributes = behind;
    }
}

/// Error number in the kernel's acknowledgement, 0 for none; `None` where the answer is something else.
fn acknowledged(answer: &[u8]) -> Option<i32> {
    let code = i32::from_ne_bytes(*answer.get(16..)?.first_chunk()?);
    (answer.get(4..6)? == NLMSG_ERROR.to_ne_bytes()).then(|| code.checked_neg()).flatten()
}

#[cfg(test)]
mod tests;
