//! Sockets of the host that lead out of the network: a TCP connection for each call that the gateway has from a machine, and a UDP
//! socket for each pair of places that exchange datagrams. What leads where is [`WayOut`]'s to say; nothing else leaves.

use std::fs;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr, SocketAddrV4, TcpStream, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::time::Duration;

use rustix::event::PollFlags;
use rustix::net::{AddressFamily, SocketFlags, SocketType, connect, socket_with, sockopt::socket_error};

use super::forwards::Forwards;
use super::gateway::{Departure, Flow, Gateway, UDP_KEPT, is_outside};
use super::names;

/// Time for somebody outside to answer a call.
const ANSWERS: Duration = Duration::from_secs(30);
/// Pairs of places that exchange datagrams at a time; of more, the one that was silent for longest is forgotten.
const EXCHANGES: usize = 256;
/// Bytes of the longest datagram.
const LONGEST: usize = 65_535;

/// Where a place that machines speak to is, on the host's networks; none where they may not go.
pub(super) type WayOut = Box<dyn Fn(SocketAddrV4) -> Option<SocketAddr> + Send>;

/// Sockets that lead outside.
pub(super) struct Outlets {
    way_out: WayOut,
    calls: Vec<OutgoingCall>,
    exchanges: Vec<Exchange>,
}

/// A connection that nobody has answered yet.
struct OutgoingCall {
    flow: Flow,
    socket: TcpStream,
    until: Duration,
}

/// Datagrams between a machine and a place outside.
struct Exchange {
    flow: Flow,
    socket: UdpSocket,
    /// When the last one went either way.
    used: Duration,
}

/// A socket that is waited for; good until the next [`Outlets::depart`].
#[derive(Debug, Clone, Copy)]
pub(super) enum Outlet {
    Call(usize),
    Exchange(usize),
}

impl Outlets {
    pub(super) fn new(way_out: WayOut) -> Self {
        Self { way_out, calls: Vec::new(), exchanges: Vec::new() }
    }

    /// Sends on what machines say, and gives up calls that nobody answers and exchanges that are silent.
    pub(super) fn depart(&mut self, gateway: &mut Gateway, now: Duration) {
        for departure in gateway.departures() {
            match departure {
                Departure::Call(flow) => match self.call(flow, now) {
                    Ok(()) => {}
                    Err(_) => gateway.refused(flow),
                },
                // A datagram may be lost; whoever misses an answer asks again.
                Departure::Datagram(flow, payload) => drop(self.send(flow, &payload, now)),
            }
        }
        self.calls.retain(|call| {
            let waits = now < call.until;
            if !waits {
                gateway.refused(call.flow);
            }
            waits
        });
        self.exchanges.retain(|exchange| now < exchange.used + UDP_KEPT);
    }

    fn place(&self, flow: Flow) -> io::Result<SocketAddr> {
        (self.way_out)(flow.to).ok_or_else(|| ErrorKind::PermissionDenied.into())
    }

    fn call(&mut self, flow: Flow, now: Duration) -> io::Result<()> {
        let to = self.place(flow)?;
        let family = if to.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket = socket_with(family, SocketType::STREAM, flags, None)?;
        match connect(&socket, &to) {
            Ok(()) | Err(rustix::io::Errno::INPROGRESS) => {}
            Err(error) => return Err(error.into()),
        }
        self.calls.push(OutgoingCall { flow, socket: socket.into(), until: now + ANSWERS });
        Ok(())
    }

    fn send(&mut self, flow: Flow, payload: &[u8], now: Duration) -> io::Result<()> {
        let known = self.exchanges.iter().position(|exchange| exchange.flow == flow);
        let index = match known {
            Some(index) => index,
            None => {
                let to = self.place(flow)?;
                let own: SocketAddr = if to.is_ipv4() { ([0; 4], 0).into() } else { ([0u16; 8], 0).into() };
                let socket = UdpSocket::bind(own)?;
                socket.connect(to)?;
                socket.set_nonblocking(true)?;
                self.make_room();
                self.exchanges.push(Exchange { flow, socket, used: now });
                self.exchanges.len() - 1
            }
        };
        let exchange = &mut self.exchanges[index];
        exchange.used = now;
        exchange.socket.send(payload).map(drop)
    }

    fn make_room(&mut self) {
        if self.exchanges.len() >= EXCHANGES
            && let Some((oldest, _)) = self.exchanges.iter().enumerate().min_by_key(|(_, exchange)| exchange.used)
        {
            self.exchanges.swap_remove(oldest);
        }
    }

    /// The sockets to wait for, and what for.
    pub(super) fn waits(&self) -> Vec<(Outlet, BorrowedFd<'_>, PollFlags)> {
        let calls = self.calls.iter().enumerate();
        let calls = calls.map(|(index, call)| (Outlet::Call(index), call.socket.as_fd(), PollFlags::OUT));
        let exchanges = self.exchanges.iter().enumerate();
        let exchanges = exchanges.map(|(index, one)| (Outlet::Exchange(index), one.socket.as_fd(), PollFlags::IN));
        calls.chain(exchanges).collect()
    }

    /// When the next call is given up.
    pub(super) fn next_end(&self) -> Option<Duration> {
        self.calls.iter().map(|call| call.until).min()
    }

    /// Takes what those that are ready have.
    pub(super) fn ready(&mut self, all: &[Outlet], gateway: &mut Gateway, forwards: &mut Forwards, now: Duration) {
        let mut answered = Vec::new();
        for outlet in all {
            match *outlet {
                Outlet::Call(index) => answered.push(index),
                Outlet::Exchange(index) => self.exchanges[index].receive(gateway, now),
            }
        }
        // The last first: the others stay where they are.
        answered.sort_unstable();
        for index in answered.into_iter().rev() {
            let OutgoingCall { flow, socket, .. } = self.calls.swap_remove(index);
            match socket_error(&socket) {
                Ok(Ok(())) => {
                    // A machine that no longer calls has given up.
                    if let Some(connection) = gateway.answered(flow, now) {
                        forwards.adopt(socket, connection);
                    }
                }
                Ok(Err(_)) | Err(_) => gateway.refused(flow),
            }
        }
    }
}

impl Exchange {
    fn receive(&mut self, gateway: &mut Gateway, now: Duration) {
        let mut buffer = [0; LONGEST];
        // An error is one that an earlier datagram met; the machine hears nothing, as of one that was lost.
        while let Ok(length) = self.socket.recv(&mut buffer) {
            gateway.arrived(self.flow, &buffer[..length]);
            self.used = now;
        }
    }
}

/// Ways out of a network to those of its host: every address but the host's own and those of its links, and for questions about
/// names the host's resolver, as it is by then.
pub(super) fn of_host(gateway: std::net::Ipv4Addr) -> WayOut {
    Box::new(move |to| match *to.ip() == gateway {
        true => resolver(&fs::read_to_string(Path::new("/etc/resolv.conf")).ok()?),
        false => (is_outside(*to.ip()) && !is_own(to)).then_some(to.into()),
    })
}

/// Whether an address is one of the host's: only to those a socket can be bound.
fn is_own(address: SocketAddrV4) -> bool {
    match UdpSocket::bind((*address.ip(), 0)) {
        Ok(_) => true,
        Err(error) => error.kind() != ErrorKind::AddrNotAvailable,
    }
}

/// First resolver that the host's own file names (resolv.conf(5)).
fn resolver(text: &str) -> Option<SocketAddr> {
    let named = text.lines().filter_map(|line| line.trim().strip_prefix("nameserver"));
    // An address of a link says which one behind a percent sign, and is left out.
    let address = named.filter_map(|rest| rest.trim().parse::<IpAddr>().ok()).next()?;
    Some((address, names::PORT).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_resolver_of_the_hosts_file_is_asked() {
        let text = "# nameserver 192.0.2.9\nsearch example.org\nnameserver fe80::1%eth0\n nameserver\t127.0.0.53 \nnameserver 1.1.1.1\n";
        assert_eq!(resolver(text), Some(([127, 0, 0, 53], 53).into()));
        assert_eq!(resolver("nameserver 2001:db8::1"), "[2001:db8::1]:53".parse().ok());
        assert_eq!(resolver("nameserver\noptions edns0"), None);
    }

    #[test]
    fn the_hosts_own_addresses_are_its_own() {
        let at = |address: [u8; 4]| SocketAddrV4::new(address.into(), 80);
        assert!(is_own(at([127, 0, 0, 1])) && !is_own(at([203, 0, 113, 5])));
        let way_out = of_host([10, 0, 2, 2].into());
        assert_eq!(way_out(at([127, 0, 0, 1])), None);
        assert_eq!(way_out(at([203, 0, 113, 5])), Some(at([203, 0, 113, 5]).into()));
    }
}
