//! A machine as tests of the network need one: a TCP/IP stack behind a network card, in virtual time. It has one TCP
//! socket; what it does with it is the test's.

use std::net::Ipv4Addr;
use std::time::Duration;

use smoltcp::iface::{Config, Interface, SocketHandle, SocketSet};
use smoltcp::socket::tcp;
use smoltcp::wire::{EthernetAddress, IpCidr, Ipv4Cidr};

use super::frame::Frame;
use super::wire::{Wire, instant};
use crate::machine::Mac;

/// Bytes that the stack takes of either direction.
pub(super) const BUFFER: usize = 64 * 1024;

pub(super) struct Peer {
    interface: Interface,
    wire: Wire<Frame>,
    sockets: SocketSet<'static>,
    socket: SocketHandle,
}

impl Peer {
    /// In a network of 24 bits.
    pub(super) fn new(mac: Mac, address: Ipv4Addr, router: Ipv4Addr) -> Self {
        let mut wire = Wire::default();
        let config = Config::new(EthernetAddress(mac.0).into());
        let mut interface = Interface::new(config, &mut wire, instant(Duration::ZERO));
        interface.update_ip_addrs(|all| all.push(IpCidr::from(Ipv4Cidr::new(address, 24))).unwrap());
        interface.routes_mut().add_default_ipv4_route(router).unwrap();
        let buffer = || tcp::SocketBuffer::new(vec![0; BUFFER]);
        let mut sockets = SocketSet::new(vec![]);
        let socket = sockets.add(tcp::Socket::new(buffer(), buffer()));
        Self { interface, wire, sockets, socket }
    }

    pub(super) fn tcp(&mut self) -> &mut tcp::Socket<'static> {
        self.sockets.get_mut(self.socket)
    }

    pub(super) fn listen(&mut self, port: u16) {
        self.tcp().listen(port).unwrap();
    }

    pub(super) fn connect(&mut self, to: (Ipv4Addr, u16)) {
        let socket: &mut tcp::Socket<'_> = self.sockets.get_mut(self.socket);
        socket.connect(self.interface.context(), to, 50_000).unwrap();
    }

    /// Sends back what comes, and its own end when the other one has ended.
    pub(super) fn echo(&mut self) {
        let socket = self.tcp();
        while socket.can_recv() && socket.can_send() {
            let bytes = socket.peek(socket.send_capacity() - socket.send_queue()).unwrap();
            let bytes = bytes.to_vec();
            let sent = socket.send_slice(&bytes).unwrap();
            socket.recv(|_| (sent, ())).unwrap();
        }
        if socket.state() == tcp::State::CloseWait && !socket.can_recv() {
            socket.close();
        }
    }

    /// Takes frames, works, and gives those that it sends.
    pub(super) fn exchange(&mut self, frames: impl Iterator<Item = Frame>, now: Duration) -> Vec<Frame> {
        self.wire.incoming.extend(frames);
        let _changed = self.interface.poll(instant(now), &mut self.wire, &mut self.sockets);
        self.wire.outgoing.drain(..).collect()
    }

    pub(super) fn poll_delay(&mut self, now: Duration) -> Option<Duration> {
        self.interface.poll_delay(instant(now), &self.sockets).map(Duration::from)
    }
}
