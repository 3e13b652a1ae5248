//! DHCP clients, one task per link: the pure client of `dhcp`, a packet socket, and the lease it gives.
//!
//! The packet socket hears every answer, also those to the leased address; the UDP socket of a lease only sends, and
//! keeps the kernel from telling the server that nobody listens.
//!
//! What a server must not give is refused by the client itself; here it is put on the console.
//!
//! What a link holds outlives the task: it is written down before the link gets it and forgotten when it was taken away, so
//! that a task that starts again goes on with it, and no address outlives its lease.

use std::hash::{BuildHasher, RandomState};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::{Arc, Mutex};

use dhcp::client::{Client, Destination, Effect, Event, HeldLease, IgnoreReason, Report, Station};
use dhcp::frame::{self, Datagram};
use dhcp::wire::HardwareAddress;
use model::UnfitLink;
use sys::packet::PacketSocket;
use tokio::io::Interest;
use tokio::net::UdpSocket;

use super::{Error, Lease, Link, Network};
use crate::runtime::clock;
use crate::runtime::lock;
use crate::runtime::services::{Ends, Run, Unit};

/// Ports of RFC 2131, section 4.1.
const CLIENT: u16 = 68;
const SERVER: u16 = 67;

/// A client for each link.
pub(super) fn clients(network: &Network, links: Vec<Link>) -> Vec<Unit> {
    let unit = |link: Link| {
        let name = format!("dhcp.{}", link.name);
        let leased = Arc::new(LeasedLink { network: network.clone(), link, held: Mutex::default() });
        Unit::task(name, Ends::Never, Run::task(move || serve(leased.clone())))
    };
    links.into_iter().map(unit).collect()
}

/// A link and the lease that it may hold; outlives the tasks that serve it.
#[derive(Debug)]
struct LeasedLink {
    network: Network,
    link: Link,
    /// Set before the link gets it, none only when it was taken away.
    held: Mutex<Option<HeldLease>>,
}

/// Sentence for the person in front of the machine; none for a report that needs nobody.
fn complaint(link: &str, report: &Report) -> Option<String> {
    match report {
        Report::Ignored(IgnoreReason::Unfit { server, why }) => {
            let or = match why {
                UnfitLink::Overlaps { what, .. } => format!(", or choose others for a new cluster: {}", what.option()),
                UnfitLink::Bits { .. } | UnfitLink::Resolver { .. } => String::new(),
            };
            Some(format!(
                "link {link}: refused what DHCP server {server} gives: {why}. Nothing was changed; have that network \
                 give other addresses{or}"
            ))
        }
        Report::LeftOut { server, why } => Some(format!(
            "link {link}: {why}. The DHCP server {server} names it; it is left out, the rest of the lease is used"
        )),
        Report::NoAnswer { .. } | Report::OfferLost(_) | Report::Refused | Report::Expired | Report::Ignored(_) => None,
    }
}

async fn serve(leased: Arc<LeasedLink>) -> Result<(), Error> {
    let LeasedLink { network, link, .. } = &*leased;
    let failed = |error| Error::Packet(link.name.clone(), error);
    let socket = PacketSocket::open(link.index, CLIENT).map_err(failed)?;
    let heard = sys::readiness::watch(socket.duplicate().map_err(failed)?, Interest::READABLE).map_err(failed)?;
    let mac = HardwareAddress(link.mac);
    let mut effects = Vec::new();
    // Seeds must differ between machines, not be secret: std's hasher keys are random per process.
    let station = Station { mac, seed: RandomState::new().hash_one(link.mac) };
    let mut client = match leased.held() {
        Some(held) => Client::resume(station, held, clock::now(), &mut effects),
        None => Client::start(station, clock::now(), &mut effects),
    };
    // Those that come from now on: what it had before is none.
    let mut carriers = network.carriers();
    let mut carrier = carriers.borrow_and_update().contains(&link.index);
    // Sends renewals from the lease's address; the packet socket hears their answers.
    let mut renewals = None;
    let mut complained = None;
    let mut frame = vec![0; 2048];
    loop {
        for effect in effects.drain(..) {
            if let Effect::Report(report) = &effect
                && let Some(complaint) = complaint(&link.name, report)
                && complained.as_ref() != Some(&complaint)
            {
                // Said once, however often the server gives it.
                network.board.error(&complaint);
                complained = Some(complaint);
            }
            perform(effect, &leased, &socket, &mut renewals).await?;
        }
        let deadline = client.poll_timeout().map(|(at, _why)| at);
        tokio::select! {
            ready = heard.readable() => {
                ready.map_err(failed)?.clear_ready();
                while let Ok(length) = socket.receive(&mut frame) {
                    // Whatever is not for us is somebody else's.
                    let Ok(datagram) = frame::parse(&frame[..length]) else { continue };
                    if datagram.destination.port() == CLIENT {
                        let received = Event::Received { payload: datagram.payload, kept: network.prefixes() };
                        client.handle(received, clock::now(), &mut effects);
                    }
                }
            }
            changed = carriers.changed() => {
                changed.expect("the network has the sender");
                let before = std::mem::replace(&mut carrier, carriers.borrow_and_update().contains(&link.index));
                if carrier && !before {
                    client.handle(Event::Carrier, clock::now(), &mut effects);
                }
            }
            () = crate::runtime::services::until(deadline) => client.handle(Event::Tick, clock::now(), &mut effects),
        }
    }
}

async fn perform(
    effect: Effect,
    leased: &LeasedLink,
    socket: &PacketSocket,
    renewals: &mut Option<UdpSocket>,
) -> Result<(), Error> {
    let link = &leased.link;
    match effect {
        Effect::Send { to: Destination::Broadcast { from }, bytes } => {
            let datagram = Datagram {
                source_mac: HardwareAddress(link.mac),
                destination_mac: HardwareAddress([0xff; 6]),
                source: SocketAddrV4::new(from, CLIENT),
                destination: SocketAddrV4::new(Ipv4Addr::BROADCAST, SERVER),
                payload: &bytes,
            };
            let frame = frame::build(&datagram).expect("a DHCP message is far below 64 KiB");
            if let Err(error) = socket.send(&frame) {
                tracing::debug!(link = link.name, %error, "not sent, will be repeated");
            }
        }
        Effect::Send { to: Destination::Unicast { to, .. }, bytes } => {
            if let Some(socket) = renewals
                && let Err(error) = socket.send_to(&bytes, (to, SERVER)).await
            {
                tracing::debug!(link = link.name, %error, "not sent, will be repeated");
            }
        }
        Effect::Configure(held) => {
            let address = held.lease.address;
            *renewals = None;
            leased.give(held).await?;
            *renewals = UdpSocket::bind((address, CLIENT)).await.ok();
        }
        Effect::Deconfigure => {
            *renewals = None;
            leased.take_away().await?;
        }
        Effect::Report(report) => tracing::debug!(link = link.name, ?report, "DHCP"),
    }
    Ok(())
}

impl LeasedLink {
    fn held(&self) -> Option<HeldLease> {
        lock::even_if_poisoned(&self.held).clone()
    }

    fn hold(&self, held: Option<HeldLease>) {
        *lock::even_if_poisoned(&self.held) = held;
    }

    /// Gives the link this lease, in place of another address.
    async fn give(&self, held: HeldLease) -> Result<(), Error> {
        let lease = Lease::of(&held);
        if self.held().is_some_and(|old| old.lease.address != lease.address) {
            self.take_away().await?;
        }
        // First written down: where a step fails, the link may have the address.
        self.hold(Some(held));
        self.network.configure(&self.link, &lease).await?;
        tracing::info!(link = self.link.name, address = %lease.address, bits = lease.prefix_bits, "address by DHCP");
        Ok(())
    }

    /// Takes away what the link holds; where that fails, it is still written down.
    async fn take_away(&self) -> Result<(), Error> {
        let Some(old) = self.held() else { return Ok(()) };
        self.network.deconfigure(&self.link, &Lease::of(&old)).await?;
        self.hold(None);
        tracing::warn!(link = self.link.name, address = %old.lease.address, "address lost");
        Ok(())
    }
}

impl Lease {
    fn of(HeldLease { lease, .. }: &HeldLease) -> Self {
        Self {
            address: lease.address,
            prefix_bits: lease.prefix.bits(),
            gateway: lease.router,
            resolvers: lease.dns.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use dhcp::client::Term;
    use model::PrefixUse;

    use super::*;

    #[tokio::test]
    async fn a_link_whose_address_may_be_there_is_not_forgotten() {
        let link = Link { name: "none".into(), index: 7, mac: [2; 6] };
        let network = Network::of_a_dead_kernel();
        let leased = LeasedLink { network, link, held: Mutex::default() };
        let lease = dhcp::client::Lease {
            address: Ipv4Addr::new(192, 0, 2, 7),
            prefix: dhcp::Prefix::new(24).expect("up to 32"),
            router: None,
            dns: Vec::new(),
            server_id: Ipv4Addr::new(192, 0, 2, 1),
            term: Term::Forever,
        };
        let held = HeldLease { lease, since: clock::now() };
        leased.give(held.clone()).await.expect_err("nobody answers");
        assert_eq!(leased.held(), Some(held.clone()), "the address may have been set");
        leased.take_away().await.expect_err("nobody answers");
        assert_eq!(leased.held(), Some(held), "the address may still be there");
    }

    /// Proves: A7
    #[test]
    fn what_is_refused_is_said_by_name_and_with_what_was_left_alone() {
        let server = Ipv4Addr::new(192, 0, 2, 1);
        let (address, kept) = (Ipv4Addr::new(10, 118, 0, 1), model::VPN_PREFIX);
        let why = UnfitLink::Overlaps { address, bits: 17, kept, what: PrefixUse::Vpn };
        let said = complaint("eth1", &Report::Ignored(IgnoreReason::Unfit { server, why }));
        assert_eq!(
            said.as_deref(),
            Some(
                "link eth1: refused what DHCP server 192.0.2.1 gives: 10.118.0.1/17 overlaps 10.118.0.0/16, which is \
                 kept for the VPN. Nothing was changed; have that network give other addresses, or choose \
                 others for a new cluster: --vpn-prefix"
            )
        );
        let why = UnfitLink::Resolver { resolver: address, kept, what: PrefixUse::Vpn };
        let said = complaint("eth1", &Report::LeftOut { server, why });
        assert_eq!(
            said.as_deref(),
            Some(
                "link eth1: the resolver 10.118.0.1 lies in 10.118.0.0/16, which is kept for the VPN. The DHCP server \
                 192.0.2.1 names it; it is left out, the rest of the lease is used"
            )
        );
        for usual in [Report::Refused, Report::Expired, Report::Ignored(IgnoreReason::NotOurs)] {
            assert_eq!(complaint("eth1", &usual), None);
        }
    }
}
