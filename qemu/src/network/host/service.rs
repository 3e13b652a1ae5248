//! Services of a host of our own: what listens at its ports answers bytes with bytes. Pure, as the host is: no socket of the
//! machine that it runs on has a part in it.
//!
//! ```text
//!   SYN to a port ─► one of its places ─► Conversation: hears bytes, says bytes ─► its end, or the caller's ─► the place is free
//! ```

use std::collections::VecDeque;

use smoltcp::iface::{SocketHandle, SocketSet};
use smoltcp::socket::tcp;

/// Program that listens at a port.
pub trait PortService: Send {
    /// Begins a conversation with a caller.
    fn accept(&mut self) -> Box<dyn Conversation>;
}

/// Conversation with one caller.
pub trait Conversation: Send {
    /// Hears bytes of the caller, and says what is to be sent then.
    fn hear(&mut self, bytes: &[u8]) -> Vec<u8>;

    /// Whether all is said: the connection ends once it is sent.
    fn is_over(&self) -> bool;
}

/// Callers at one port at a time; others try again.
const PLACES: usize = 8;
/// Bytes that the stack takes of either direction.
const BUFFER: usize = 64 << 10;

/// Services of one host, and their callers.
#[derive(Default)]
pub(super) struct Services(Vec<Door>);

struct Door {
    port: u16,
    service: Box<dyn PortService>,
    places: Vec<Place>,
}

struct Place {
    socket: SocketHandle,
    conversation: Option<Box<dyn Conversation>>,
    /// Bytes that are said and not taken yet.
    said: VecDeque<u8>,
}

impl Services {
    /// Has a program listen at a port.
    pub(super) fn add(&mut self, port: u16, service: Box<dyn PortService>, sockets: &mut SocketSet<'static>) {
        let place = |_| {
            let buffer = || tcp::SocketBuffer::new(vec![0; BUFFER]);
            let socket = sockets.add(tcp::Socket::new(buffer(), buffer()));
            Place { socket, conversation: None, said: VecDeque::new() }
        };
        self.0.push(Door { port, service, places: (0..PLACES).map(place).collect() });
    }

    /// Whether a program listens at the port.
    pub(super) fn has(&self, port: u16) -> bool {
        self.0.iter().any(|door| door.port == port)
    }

    /// Lets all callers be heard and told what there is for them; whether anything moved.
    pub(super) fn work(&mut self, sockets: &mut SocketSet<'static>) -> bool {
        let mut moved = false;
        for Door { port, service, places } in &mut self.0 {
            for place in places {
                moved |= place.work(*port, service.as_mut(), sockets.get_mut(place.socket));
            }
        }
        moved
    }
}

impl Place {
    fn work(&mut self, port: u16, service: &mut dyn PortService, socket: &mut tcp::Socket<'static>) -> bool {
        if !socket.is_open() {
            (self.conversation, self.said) = (None, VecDeque::new());
            // It is closed, and a port is not 0.
            return socket.listen(port).is_ok();
        }
        let mut moved = false;
        while let Some(bytes) = heard(socket) {
            let conversation = self.conversation.get_or_insert_with(|| service.accept());
            self.said.extend(conversation.hear(&bytes));
            moved = true;
        }
        while socket.can_send() && !self.said.is_empty() {
            // Whoever cannot be sent to any more is found closed.
            let sent = socket.send_slice(self.said.make_contiguous()).unwrap_or_default();
            self.said.drain(..sent);
            moved |= sent > 0;
        }
        let is_over = self.conversation.as_ref().is_some_and(|conversation| conversation.is_over());
        if self.said.is_empty() && (is_over || socket.state() == tcp::State::CloseWait) && socket.may_send() {
            socket.close();
            moved = true;
        }
        moved
    }
}

fn heard(socket: &mut tcp::Socket<'static>) -> Option<Vec<u8>> {
    if !socket.can_recv() {
        return None;
    }
    socket.recv(|bytes| (bytes.len(), bytes.to_vec())).ok().filter(|bytes| !bytes.is_empty())
}
