//! A virtual network: segments, machines and hosts of our own on them, and cables that can be bad.
//!
//! ```text
//!   guest ─ virtio-net ─ QEMU ══ unix stream ══ shell ── frames ── wiring (pure) ┬─ switch   where a frame goes
//!                                                │                               ├─ fault    what a cable does to it
//!   client ─ loopback ─ TCP (SOCKS, or straight) ╡                               ├─ counters what became of it
//!                                                │                               ├─ host ─ scan, leases
//!   outside ─ TCP, UDP (if it is told to) ═══════╡                               └─ gateway ─ leases, names, masquerade, outside
//!                                                └── pcap: captures
//! ```
//! A cluster's network is a process of its own (`control`), which other processes ask over a socket.
//!
//! `shell`, its `forwards` and its `outlets` have the only sockets and the only thread, and decide nothing. What is here are
//! handles on it: each keeps the network running, which ends with the last of them. The host's loopback leads into it where
//! somebody asked for that, and it leads out to the host's networks where somebody asked for that. A machine may be started again at
//! the same cable.

use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::deadline::Deadline;
use crate::machine::{Link, Mac};

pub mod control;
mod counters;
mod fault;
mod forwards;
mod frame;
mod gateway;
mod host;
mod leases;
mod names;
mod outlets;
mod pcap;
#[cfg(test)]
mod peer;
mod proxy;
mod proxy_word;
mod scan;
mod shell;
mod socks;
mod switch;
mod wire;
mod wiring;

pub use counters::{DropReason, FrameCounters};
pub use fault::{Chance, Cut, Faults, HELD_BACK, LONGEST_DELAY, LONGEST_WAIT, MoreThanAll, ON_THE_WAY};
pub use frame::{Decoder, Frame, Runt, TooLong, encode};
pub use gateway::{BadGateway, GatewaySetup, GatewayTarget};
pub use host::{BadSetup, Conversation, NoReport, PortService, Setup, StaticRoute};
pub use leases::LeaseState;
pub use names::answer as answer_name;
pub use pcap::Direction;
pub use proxy_word::{BadProxyWord, ProxyWord};
pub use scan::{PortAnswer, PortQuestion, Report};
pub use socks::{Heard, SocksDestination, Stage, hear as hear_socks};

use scan::Scan;
use shell::Running;
use switch::Port;
use wiring::SegmentId;

/// A running network without segments, to which they are added.
#[derive(Debug, Clone)]
pub struct Network(Arc<Running>);

/// Segment of a network: a switch.
#[derive(Debug, Clone)]
pub struct Segment {
    network: Arc<Running>,
    id: SegmentId,
}

/// A cable of a segment, to a machine or to a host of ours.
#[derive(Debug, Clone)]
pub struct Cable {
    network: Arc<Running>,
    port: Port,
    /// Where QEMU listens; nobody, at the cable of a host of ours.
    socket: PathBuf,
}

/// A small host of our own: it answers ARP, scans, gives leases if it is set up to, and refuses connections to itself, but to services
/// that it is given.
#[derive(Debug, Clone)]
pub struct OwnHost(Cable);

/// The network's router, on one of its segments: it gives leases, knows machines by name, carries connections of the
/// host's loopback into the segment, and packets from it to the other segments that have a gateway.
#[derive(Debug, Clone)]
pub struct Gateway(Cable);

/// Why a scan has no result.
#[derive(Debug, thiserror::Error)]
pub enum ScanError {
    /// No question could be sent, or silence could not be told from being late.
    #[error(transparent)]
    NoReport(#[from] NoReport),
    /// The scan was not over in time, or another one began in its place.
    #[error("the scan did not end within {0:?}")]
    Late(Duration),
}

/// After the barrier of the first round of a scan. A few silent ports are so waited for 12.4 s: a machine under emulation,
/// beside others, has been seen to answer nothing for six.
const PAUSE: Duration = Duration::from_millis(400);

impl Network {
    /// Starts a network. What chance does to its frames follows from the seed.
    ///
    /// # Errors
    /// When there is no directory for its sockets, or no thread.
    pub fn start(seed: u64) -> io::Result<Self> {
        Ok(Self(Arc::new(Running::start(seed)?)))
    }

    /// Starts a network whose sockets are in a directory that is there, and that belongs to it alone. Machines that still
    /// listen there since an earlier network ended are found by it.
    ///
    /// # Errors
    /// When there is no thread.
    pub fn start_in(sockets: &Path, seed: u64) -> io::Result<Self> {
        Ok(Self(Arc::new(Running::start_in(sockets.to_owned(), seed)?)))
    }

    /// Adds a segment, which nothing connects to the others.
    #[must_use]
    pub fn segment(&self) -> Segment {
        Segment { network: Arc::clone(&self.0), id: self.0.ask(|shell| shell.wiring.add_segment()) }
    }
}

impl Segment {
    /// A cable for a machine's network card.
    ///
    /// # Errors
    /// When the path of its socket is too long for one.
    pub fn cable(&self) -> io::Result<Cable> {
        self.cable_at(|port| port.0.to_string())
    }

    /// The same for a machine of this name, which no other of the network has. Its socket follows from the name.
    ///
    /// # Errors
    /// When the path of its socket is too long for one.
    pub fn cable_of(&self, name: &str) -> io::Result<Cable> {
        self.cable_at(|_| name.to_owned())
    }

    fn cable_at(&self, name: impl FnOnce(Port) -> String) -> io::Result<Cable> {
        let id = self.id;
        let port = self.network.ask(move |shell| shell.wiring.add_machine(id));
        let socket = self.network.socket(&name(port))?;
        let path = socket.clone();
        self.network.ask(move |shell| shell.look_for(port, path));
        Ok(Cable { network: Arc::clone(&self.network), port, socket })
    }

    fn of_ours(&self, port: Port) -> Cable {
        Cable { network: Arc::clone(&self.network), port, socket: PathBuf::new() }
    }

    /// A host of ours on a cable of its own.
    ///
    /// # Errors
    /// [`BadSetup`]
    pub fn host(&self, setup: &Setup) -> Result<OwnHost, BadSetup> {
        let (id, setup) = (self.id, setup.clone());
        let port = self.network.ask(move |shell| shell.wiring.add_host(id, &setup, shell.clock.began()))?;
        Ok(OwnHost(self.of_ours(port)))
    }

    /// The network's gateway, on a cable of this segment.
    ///
    /// # Errors
    /// [`BadGateway`]
    pub fn gateway(&self, setup: &GatewaySetup) -> Result<Gateway, BadGateway> {
        let (id, setup) = (self.id, setup.clone());
        let port = self.network.ask(move |shell| shell.wiring.add_gateway(id, &setup, shell.clock.began()))?;
        Ok(Gateway(self.of_ours(port)))
    }
}

impl Cable {
    /// Link that a network card must have, to be at the end of this cable.
    #[must_use]
    pub fn link(&self) -> Link {
        Link::Stream(self.socket.clone())
    }

    /// From now on the cable has these faults in that direction.
    pub fn set_faults(&self, direction: Direction, faults: Faults) {
        let port = self.port;
        self.network.ask(move |shell| shell.wiring.set_faults(port, direction, faults));
    }

    /// Counts of the frames of that direction, by what became of them.
    #[must_use]
    pub fn counters(&self, direction: Direction) -> FrameCounters {
        let port = self.port;
        self.network.ask(move |shell| shell.wiring.counters(port, direction))
    }

    /// Whether a machine is plugged in.
    #[must_use]
    pub fn is_plugged_in(&self) -> bool {
        let port = self.port;
        self.network.ask(move |shell| shell.is_plugged_in(port))
    }

    /// Writes a capture of what the cable's end sends and receives from now on, for Wireshark, behind what is in the file.
    /// `name` is what the interface is called in it. When the file cannot be written it ends there.
    ///
    /// # Errors
    /// When the file cannot be made.
    pub fn capture(&self, name: &str, file: &Path) -> io::Result<()> {
        let (port, name, file) = (self.port, name.to_owned(), file.to_owned());
        self.network.ask(move |shell| shell.capture(port, &name, &file))
    }

    /// Ends the capture, if there is one.
    pub fn end_capture(&self) {
        let port = self.port;
        self.network.ask(move |shell| shell.end_capture(port));
    }
}

impl OwnHost {
    /// Cable that leads to this host.
    #[must_use]
    pub fn cable(&self) -> &Cable {
        &self.0
    }

    /// Asks TCP ports of `target`, on the segment or behind a route. A port that is silent was worked through by who
    /// takes the questions: the target, or the machine that the route names. (A gateway of ours does not say so.)
    ///
    /// # Errors
    /// [`ScanError`]
    pub fn scan_tcp(
        &self,
        target: Ipv4Addr,
        ports: impl IntoIterator<Item = u16>,
        deadline: Deadline,
    ) -> Result<Report, ScanError> {
        self.scan(Scan::new(PortQuestion::Tcp, target, ports, PAUSE), deadline)
    }

    /// Sends `payload` to UDP ports of `target` and waits for whatever comes back. For silence the same holds.
    ///
    /// # Errors
    /// [`ScanError`]
    pub fn probe_udp(
        &self,
        target: Ipv4Addr,
        ports: impl IntoIterator<Item = u16>,
        payload: &[u8],
        deadline: Deadline,
    ) -> Result<Report, ScanError> {
        self.scan(Scan::new(PortQuestion::Udp(payload.to_vec()), target, ports, PAUSE), deadline)
    }

    fn scan(&self, scan: Scan, deadline: Deadline) -> Result<Report, ScanError> {
        let late = || ScanError::Late(deadline.length());
        let port = self.0.port;
        let result = self.0.network.ask(move |shell| shell.scan(port, scan));
        let report = result.recv_timeout(deadline.left().unwrap_or_default()).map_err(|_| late())??;
        Ok(report)
    }

    /// The card has this address of the DHCP server that an earlier network had in this one's place.
    pub fn remember(&self, card: Mac, address: Ipv4Addr) {
        let port = self.0.port;
        self.0.network.ask(move |shell| {
            let now = shell.clock.elapsed();
            shell.wiring.remember(port, card, address, now);
        });
    }

    /// From now on the host is a resolver, too, that answers this name, large or small letters alike, with this address.
    pub fn name(&self, name: &str, address: Ipv4Addr) {
        let (port, name) = (self.0.port, name.to_owned());
        self.0.network.ask(move |shell| shell.wiring.name(port, &name, address));
    }

    /// From now on this program listens at a port of the host.
    pub fn serve(&self, port: u16, service: impl PortService + 'static) {
        let host = self.0.port;
        self.0.network.ask(move |shell| shell.wiring.serve(host, port, Box::new(service)));
    }

    /// The address that the card `mac` holds of the host's DHCP server, or has been offered.
    #[must_use]
    pub fn lease(&self, mac: Mac) -> Option<Ipv4Addr> {
        let port = self.0.port;
        self.0.network.ask(move |shell| shell.wiring.lease(port, mac))
    }
}

impl Gateway {
    /// Cable that leads to this gateway.
    #[must_use]
    pub fn cable(&self) -> &Cable {
        &self.0
    }

    /// From now on the resolver answers this name, large or small letters alike, with the address of this card.
    pub fn name(&self, name: &str, card: Mac) {
        let name = name.to_owned();
        self.0.network.ask(move |shell| shell.wiring.gateway.name(&name, card));
    }

    /// From now on this address of the segment is for that card alone, and it gets no other one.
    pub fn reserve(&self, card: Mac, address: Ipv4Addr, held: LeaseState) {
        let gateway = self.0.port;
        self.0.network.ask(move |shell| {
            let now = shell.clock.elapsed();
            shell.wiring.reserve(gateway, card, address, held, now);
        });
    }

    /// The address that the card `mac` holds of this segment, or has been offered.
    #[must_use]
    pub fn lease(&self, mac: Mac) -> Option<Ipv4Addr> {
        let port = self.0.port;
        self.0.network.ask(move |shell| shell.wiring.lease(port, mac))
    }

    /// Carries connections to this port of the host's loopback (0: any that is free) to a port of a machine of the
    /// segment. The address that it listens on.
    ///
    /// # Errors
    /// When it cannot listen there.
    pub fn forward(&self, host: u16, target: GatewayTarget, port: u16) -> io::Result<SocketAddrV4> {
        let gateway = self.0.port;
        self.0.network.ask(move |shell| shell.forwards.add(host, gateway, target, port))
    }

    /// Carries connections to this port of the host's loopback to a port of whichever machine with a name answers there. The address
    /// that it listens on.
    ///
    /// # Errors
    /// When it cannot listen there.
    pub fn forward_to_any(&self, host: u16, port: u16) -> io::Result<SocketAddrV4> {
        let gateway = self.0.port;
        self.0.network.ask(move |shell| shell.forwards.add_any(host, gateway, port))
    }

    /// Leads what no segment has outside, to the networks of the host, by sockets of the process: TCP, UDP, and names by its
    /// resolver. Never to the host's own addresses, nor to those of its links.
    pub fn lead_outside(&self, address: Ipv4Addr) {
        self.0.network.ask(move |shell| shell.lead_outside(outlets::of_host(address)));
    }

    /// Lets programs of the host that know the word say in SOCKS5 where in the network they want to go. The address that it
    /// listens on.
    ///
    /// # Errors
    /// When it cannot listen.
    pub fn proxy(&self, word: ProxyWord) -> io::Result<SocketAddrV4> {
        let gateway = self.0.port;
        self.0.network.ask(move |shell| shell.forwards.add_proxy(gateway, word))
    }
}

#[cfg(test)]
mod tests;
