//! Echoes by which paths are measured: ICMP echo requests of a given size inside of the tunnel, never to be cut, and what comes
//! back of them. Which sizes, and what an answer means, the crate `mesh` decides.
//!
//! The socket is the kernel's for echoes alone (`net/ipv4/ping.c`): it numbers them, and hands over the answers to its own. A
//! peer's kernel answers by itself.

use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::OwnedFd;

use mesh::Echo;
use mesh::path::LARGEST;
use rustix::net::sockopt::{Ipv4PathMtuDiscovery, set_ip_mtu_discover};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, ipproto};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// An IP header without options, which the kernel puts in front and takes away.
const IP_HEADER: u16 = 20;
/// `ICMP_ECHO` (RFC 792); number and sum are the kernel's to fill in.
const REQUEST: u8 = 8;

/// Socket that sends echo requests and hears their answers.
#[derive(Debug)]
pub(super) struct Echoes(AsyncFd<OwnedFd>);

impl Echoes {
    /// From this address of the machine.
    pub(super) fn open(vpn_ip: Ipv4Addr) -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let icmp = Some(ipproto::ICMP);
        let socket = rustix::net::socket_with(AddressFamily::INET, SocketType::DGRAM, flags, icmp)?;
        // As large as the interface allows, whatever the route says, and not to be cut (ip(7)).
        set_ip_mtu_discover(&socket, Ipv4PathMtuDiscovery::PROBE)?;
        rustix::net::bind(&socket, &SocketAddrV4::new(vpn_ip, 0))?;
        Ok(Self(sys::readiness::watch(socket, Interest::READABLE)?))
    }

    /// Asks for one. Where it cannot be sent, it is lost as others are on their way, and tried again as they are.
    pub(super) fn ask(&self, echo: Echo) {
        let to = SocketAddrV4::new(echo.vpn_ip, 0);
        let _lost = rustix::net::sendto(self.0.get_ref(), &request(echo.size), SendFlags::empty(), &to);
    }

    /// The next one that is back.
    pub(super) async fn next(&self) -> io::Result<Echo> {
        let mut answer = [0; LARGEST as usize];
        loop {
            let mut ready = self.0.readable().await?;
            let receive = |socket: &AsyncFd<OwnedFd>| {
                Ok(rustix::net::recvfrom(socket.get_ref(), answer.as_mut_slice(), RecvFlags::empty())?)
            };
            let Ok(received) = ready.try_io(receive) else { continue };
            let (_, length, from) = received?;
            let from = from.and_then(|from| SocketAddrV4::try_from(from).ok());
            if let (Some(from), Ok(length)) = (from, u16::try_from(length)) {
                return Ok(Echo { vpn_ip: *from.ip(), size: length.saturating_add(IP_HEADER) });
            }
        }
    }
}

/// An echo request that makes a packet of this size.
fn request(size: u16) -> Vec<u8> {
    const ICMP_HEADER: usize = 8;
    let mut request = vec![0; usize::from(size.saturating_sub(IP_HEADER)).max(ICMP_HEADER)];
    request[0] = REQUEST;
    request
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Proves: M9
    #[test]
    fn a_request_makes_a_packet_of_the_size() {
        let made = request(1280);
        assert_eq!((made.len(), made[0]), (1260, 8));
        assert_eq!(request(0).len(), 8);
    }
}
