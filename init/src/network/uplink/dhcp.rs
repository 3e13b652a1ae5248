//! DHCP clients, one task per link: the pure client of `dhcp`, a packet socket, and the lease it gives.
//!
//! The packet socket hears every answer, also those to the leased address; the UDP socket of a lease only sends, and
//! keeps the kernel from telling the server that nobody listens.
//!
//! What a server must not give is refused by the client itself; here it is put on the console.

use std::hash::{BuildHasher, RandomState};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::Arc;
use std::time::Duration;

use dhcp::client::{Client, Destination, Effect, Event, Ignored, Report, Station};
use dhcp::frame::{self, Datagram};
use dhcp::wire::Mac;
use supervise::{Backoff, Readiness, Restart, Spec};
use sys::packet::PacketSocket;
use tokio::io::Interest;
use tokio::net::UdpSocket;

use super::{Error, Lease, Link, Network};
use crate::runtime::clock;
use crate::runtime::services::{Run, Unit};

/// Ports of RFC 2131, section 4.1.
const CLIENT: u16 = 68;
const SERVER: u16 = 67;

/// A client for each link, as units of a tree.
pub(super) fn clients(network: &Network, links: Vec<Link>) -> Vec<Unit> {
    let unit = |link: Link| {
        let (network, link) = (network.clone(), Arc::new(link));
        Unit {
            spec: Spec {
                // Links are there from the start to the end of a boot.
                name: format!("dhcp.{}", link.name).leak(),
                needs: &[],
                group: None,
                start_deadline: Duration::from_secs(10),
                stop_deadline: Duration::from_secs(1),
                restart: Restart::Always(Backoff {
                    first: Duration::from_secs(1),
                    cap: Duration::from_secs(30),
                    stable: Duration::from_secs(60),
                }),
                ready: Readiness::OnStart,
                critical: None,
            },
            run: Run::task(move || serve(network.clone(), link.clone())),
            probe: None,
        }
    };
    links.into_iter().map(unit).collect()
}

/// What a link has at the moment.
struct Held {
    lease: Lease,
    /// Sends renewals; its answers are heard by the packet socket.
    socket: Option<UdpSocket>,
}

/// What a person in front of the machine must know of a report.
fn complaint(link: &str, report: &Report) -> Option<String> {
    match report {
        Report::Ignored(Ignored::Unfit { server, why }) => Some(format!(
            "link {link}: refused what DHCP server {server} gives: {why}. Nothing was changed; have that network give \
             other addresses"
        )),
        Report::LeftOut { server, why } => Some(format!(
            "link {link}: {why}. The DHCP server {server} names it; it is left out, the rest of the lease is used"
        )),
        Report::NoAnswer { .. } | Report::OfferLost(_) | Report::Refused | Report::Expired | Report::Ignored(_) => None,
    }
}

async fn serve(network: Network, link: Arc<Link>) -> Result<(), Error> {
    let failed = |error| Error::Packet(link.name.clone(), error);
    let socket = PacketSocket::open(link.index, CLIENT).map_err(failed)?;
    let heard = sys::readiness::watch(socket.duplicate().map_err(failed)?, Interest::READABLE).map_err(failed)?;
    let mac = Mac(link.mac);
    let mut effects = Vec::new();
    // Seeds must differ between machines, not be secret: std's hasher keys are random per process.
    let station = Station { mac, seed: RandomState::new().hash_one(link.mac), kept: network.kept };
    let mut client = Client::start(station, clock::now(), &mut effects);
    let mut held: Option<Held> = None;
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
            perform(effect, &network, &link, &socket, &mut held).await?;
        }
        let deadline = client.poll_timeout().map(|(at, _why)| at);
        tokio::select! {
            ready = heard.readable() => {
                ready.map_err(failed)?.clear_ready();
                while let Ok(length) = socket.receive(&mut frame) {
                    // Whatever is not for us is somebody else's.
                    let Ok(datagram) = frame::parse(&frame[..length]) else { continue };
                    if datagram.destination.port() == CLIENT {
                        client.handle(Event::Received(datagram.payload), clock::now(), &mut effects);
                    }
                }
            }
            () = crate::runtime::services::until(deadline) => client.handle(Event::Tick, clock::now(), &mut effects),
        }
    }
}

async fn perform(
    effect: Effect,
    network: &Network,
    link: &Link,
    socket: &PacketSocket,
    held: &mut Option<Held>,
) -> Result<(), Error> {
    match effect {
        Effect::Send { to: Destination::Broadcast { from }, bytes } => {
            let datagram = Datagram {
                source_mac: Mac(link.mac),
                destination_mac: Mac([0xff; 6]),
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
            if let Some(socket) = held.as_ref().and_then(|held| held.socket.as_ref())
                && let Err(error) = socket.send_to(&bytes, (to, SERVER)).await
            {
                tracing::debug!(link = link.name, %error, "not sent, will be repeated");
            }
        }
        Effect::Configure(lease) => {
            let lease = Lease {
                address: lease.address,
                prefix_bits: lease.prefix.bits(),
                gateway: lease.router,
                resolvers: lease.dns,
            };
            if let Some(old) = held.take().filter(|held| held.lease.address != lease.address) {
                network.deconfigure(link, &old.lease).await?;
            }
            network.configure(link, &lease).await?;
            tracing::info!(link = link.name, address = %lease.address, bits = lease.prefix_bits, "address by DHCP");
            let socket = UdpSocket::bind((lease.address, CLIENT)).await.ok();
            *held = Some(Held { lease, socket });
        }
        Effect::Deconfigure => {
            if let Some(old) = held.take() {
                network.deconfigure(link, &old.lease).await?;
                tracing::warn!(link = link.name, address = %old.lease.address, "address lost");
            }
        }
        Effect::Report(report) => tracing::debug!(link = link.name, ?report, "DHCP"),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use model::UnfitLink;

    use super::*;

    /// Proves: A7
    #[test]
    fn what_is_refused_is_said_by_name_and_with_what_was_left_alone() {
        let server = Ipv4Addr::new(192, 0, 2, 1);
        let (address, kept) = (Ipv4Addr::new(10, 118, 0, 1), model::VPN_PREFIX);
        let why = UnfitLink::Overlaps { address, bits: 17, kept, what: "the VPN" };
        let said = complaint("eth1", &Report::Ignored(Ignored::Unfit { server, why }));
        assert_eq!(
            said.as_deref(),
            Some(
                "link eth1: refused what DHCP server 192.0.2.1 gives: 10.118.0.1/17 overlaps 10.118.0.0/16, which is \
                 kept for the VPN. Nothing was changed; have that network give other addresses"
            )
        );
        let why = UnfitLink::Resolver { resolver: address, kept, what: "the VPN" };
        let said = complaint("eth1", &Report::LeftOut { server, why });
        assert_eq!(
            said.as_deref(),
            Some(
                "link eth1: the resolver 10.118.0.1 lies in 10.118.0.0/16, which is kept for the VPN. The DHCP server \
                 192.0.2.1 names it; it is left out, the rest of the lease is used"
            )
        );
        for usual in [Report::Refused, Report::Expired, Report::Ignored(Ignored::NotOurs)] {
            assert_eq!(complaint("eth1", &usual), None);
        }
    }
}
