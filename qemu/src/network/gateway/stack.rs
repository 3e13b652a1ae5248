//! A TCP/IP stack of the gateway's: connections that it has an end of, and when it has something to do. Pure.

use std::net::SocketAddrV4;
use std::time::Duration;

use smoltcp::iface::{Config, Interface, SocketHandle, SocketSet};
use smoltcp::socket::tcp;

use super::super::wire::{Unit, Wire, instant};

/// Bytes on their way in each direction of a connection: 20 Mbit/s over a path of 100 ms there and back.
pub(super) const BUFFER: usize = 256 * 1024;
/// A connection ends when the machine says nothing to what it was sent for so long; Linux gives up a first packet then.
pub(super) const PATIENCE: Duration = Duration::from_secs(127);

/// Stack whose cable carries frames or packets.
pub(super) struct Stack<U> {
    interface: Interface,
    wire: Wire<U>,
    pub(super) ends: Ends,
}

/// Ends of connections in a stack.
pub(super) struct Ends {
    sockets: SocketSet<'static>,
    next: Next,
}

/// When the stack has something to do.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Next {
    Now,
    At(Duration),
    WhenStirred,
}

impl<U: Unit> Stack<U> {
    /// Stack whose addresses `set_up` gives it.
    pub(super) fn new(config: Config, set_up: impl FnOnce(&mut Interface)) -> Self {
        let mut wire = Wire::default();
        let mut interface = Interface::new(config, &mut wire, instant(Duration::ZERO));
        set_up(&mut interface);
        Self { interface, wire, ends: Ends { sockets: SocketSet::new(vec![]), next: Next::WhenStirred } }
    }

    /// Takes what the network has for it.
    pub(super) fn hear(&mut self, unit: U) {
        self.wire.incoming.push_back(unit);
        self.ends.stir();
    }

    /// Next unit that it has for the network.
    pub(super) fn say(&mut self) -> Option<U> {
        self.wire.outgoing.pop_front()
    }

    /// Lets it work, where there is something to do; whether there was.
    pub(super) fn poll(&mut self, now: Duration) -> bool {
        let Ends { sockets, next } = &mut self.ends;
        if *next == Next::WhenStirred || matches!(*next, Next::At(at) if now < at) {
            return false;
        }
        let _changed = self.interface.poll(instant(now), &mut self.wire, sockets);
        let at = self.interface.poll_delay(instant(now), sockets).map(|delay| now + Duration::from(delay));
        *next = at.map_or(Next::WhenStirred, Next::At);
        true
    }

    /// Time until [`Self::poll`] has to be called even if nothing comes.
    pub(super) fn poll_delay(&self, now: Duration) -> Option<Duration> {
        match self.ends.next {
            Next::Now => Some(Duration::ZERO),
            Next::At(at) => Some(at.saturating_sub(now)),
            Next::WhenStirred => None,
        }
    }

    /// Begins a connection; none where the stack has no way there.
    pub(super) fn connect(&mut self, to: SocketAddrV4, from: SocketAddrV4) -> Option<SocketHandle> {
        let mut socket = socket();
        socket.connect(self.interface.context(), (*to.ip(), to.port()), (*from.ip(), from.port())).ok()?;
        self.ends.stir();
        Some(self.ends.sockets.add(socket))
    }

    /// Takes the first packet of a connection to this place, and answers it.
    pub(super) fn accept(&mut self, at: SocketAddrV4, first: U, now: Duration) -> Option<SocketHandle> {
        let mut socket = socket();
        socket.listen((*at.ip(), at.port())).ok()?;
        let handle = self.ends.sockets.add(socket);
        self.hear(first);
        // At once: of two that listen at one place it is not known which one gets whose packet.
        self.poll(now);
        if self.ends.socket(handle).state() == tcp::State::SynReceived {
            return Some(handle);
        }
        self.ends.remove(handle);
        None
    }
}

impl Ends {
    /// From now on there may be something to do.
    pub(super) const fn stir(&mut self) {
        self.next = Next::Now;
    }

    pub(super) fn socket(&self, socket: SocketHandle) -> &tcp::Socket<'static> {
        self.sockets.get(socket)
    }

    /// The same, to be used: there will be something to do.
    pub(super) fn socket_mut(&mut self, socket: SocketHandle) -> &mut tcp::Socket<'static> {
        self.stir();
        self.sockets.get_mut(socket)
    }

    #[cfg(test)]
    pub(super) fn count(&self) -> usize {
        self.sockets.iter().count()
    }

    pub(super) fn remove(&mut self, socket: SocketHandle) {
        self.sockets.remove(socket);
    }

    pub(super) fn is_over(&self, socket: SocketHandle) -> bool {
        self.socket(socket).state() == tcp::State::Closed
    }
}

fn socket() -> tcp::Socket<'static> {
    let buffer = || tcp::SocketBuffer::new(vec![0; BUFFER]);
    let mut socket = tcp::Socket::new(buffer(), buffer());
    // What is asked in small pieces is not held up; whoever is outside collects what he wants to.
    socket.set_nagle_enabled(false);
    socket.set_timeout(Some(PATIENCE.into()));
    socket
}
