//! The machine and its network: what it gets from it, what it takes, and what it gives away to it. Hosts of our own are
//! on its segments.
//!
//! Addresses and ports are written out here: a number taken from the code under test would change with it.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::{slice, thread};

use crate::{Case, Context, MachinePlan, Owner, Prerequisite, ServiceStatus, Starts, Status, Stranger};
use anyhow::{Context as _, ensure};
use api::wire::FaultKind;
use qemu::Vm;
use qemu::console::Line;
use qemu::machine::{Link, Mac};
use qemu::network::{
    Cable, Gateway, GatewaySetup, GatewayTarget, Network, OwnHost, PortAnswer, Report, Segment, Setup, StaticRoute,
};

use super::victim::{VICTIM, Victim};

pub(crate) const CASES: &[Case] = &[
    Case {
        name: "one port is open, and none behind the public address",
        proves: &["A7"],
        needs: &[],
        starts: Starts::Cold,
        run: scan,
    },
    Case { name: "a short lease is renewed", proves: &[], needs: &[], starts: Starts::Cold, run: lease },
    Case {
        name: "the machine does not route between its networks",
        proves: &["A7"],
        needs: &[],
        starts: Starts::Cold,
        run: transit,
    },
    Case {
        name: "a lease of the cluster's own addresses is refused",
        proves: &["A7"],
        needs: &[],
        starts: Starts::Cold,
        run: refused,
    },
    Case {
        name: "nft does all of a text or nothing",
        proves: &[],
        needs: &[Prerequisite::Swtpm],
        starts: Starts::From(VICTIM),
        run: nft,
    },
];

/// TCP, for everybody: the public API.
pub(crate) const PUBLIC_API: u16 = 7836;
/// UDP, for everybody: WireGuard, which answers nobody whom it does not know.
const WIREGUARD: u16 = 7838;
/// Ports that Kubernetes, etcd and the mesh listen on anywhere: etcd, the Kubernetes API, etcd's peers, the members'
/// API, and kubelet, resolver, proxy, containerd, controller manager and scheduler with their health and numbers.
const PRIVATE: [u16; 16] =
    [2379, 2380, 6443, 7834, 7835, 8080, 10248, 10249, 10250, 10252, 10253, 10254, 10255, 10256, 10257, 10259];
/// VPN, pods, services and loopback, to all of which the host outside sends by way of the machine.
const BEHIND: [(Ipv4Addr, u8); 4] = [
    (Ipv4Addr::new(10, 118, 0, 0), 16),
    (Ipv4Addr::new(10, 244, 0, 0), 16),
    (Ipv4Addr::new(10, 96, 0, 0), 16),
    (Ipv4Addr::new(127, 0, 0, 0), 8),
];
const VPN: Ipv4Addr = Ipv4Addr::new(10, 118, 0, 1);
/// The machine's own address on its pods' links.
const POD_GATEWAY: Ipv4Addr = Ipv4Addr::new(10, 244, 0, 1);

pub(crate) const HOST: Ipv4Addr = Ipv4Addr::new(192, 168, 77, 1);
/// The only address that it has to give.
pub(crate) const MACHINE: Ipv4Addr = Ipv4Addr::new(192, 168, 77, 100);
/// Address of another host on the machine's segment.
const ASIDE: Ipv4Addr = Ipv4Addr::new(192, 168, 77, 2);
/// Address of a host on the segment by which programs of this host speak to the machine.
pub(crate) const NEIGHBOUR: Ipv4Addr = Ipv4Addr::new(192, 168, 77, 3);
/// Another network.
const OTHER_HOST: Ipv4Addr = Ipv4Addr::new(192, 168, 78, 1);
const OTHER_MACHINE: Ipv4Addr = Ipv4Addr::new(192, 168, 78, 100);
/// Address of the machine's second card, the one on the host's segment.
const CARD: Mac = Mac::numbered(2);
const NAME: &str = "scanned";
/// Ports of which none is expected to answer. Where more than 64 are silent, a scan asks less often, and so is over sooner.
const LOW: std::ops::RangeInclusive<u16> = 1..=100;

/// Ports of programs that nobody outside may reach, and so many others that a scan is over soon.
pub(crate) fn private() -> impl Iterator<Item = u16> + Clone {
    LOW.chain(PRIVATE)
}

fn scan(t: &Context) -> anyhow::Result<()> {
    let (outside, vm, owner) = beside_host(t, u32::MAX)?;
    let status = owner.status(NAME, &vm)?;
    ensure!(status.vpn_addresses == [format!("{VPN}/16")], "{status:#?}");
    outside.only_public(t, 1..=u16::MAX)?;
    for behind in [VPN, POD_GATEWAY, Ipv4Addr::LOCALHOST] {
        outside.silent(t, behind, 1..=u16::MAX)?;
    }
    // All the while etcd listened there.
    let services = owner.services(NAME, &vm)?;
    ensure!(is(&services, "etcd", "ready"), "{services:#?}");
    Ok(())
}

fn lease(t: &Context) -> anyhow::Result<()> {
    const SECONDS: u32 = 20;
    let (outside, vm, owner) = beside_host(t, SECONDS)?;
    let began = owner.status(NAME, &vm)?.uptime_ms;
    // Longer than the lease: what the machine has then was renewed.
    let end = began + 1500 * u64::from(SECONDS);
    let status = vm.until(t.within(60), || owner.status(NAME, &vm).ok().filter(|status| status.uptime_ms > end))?;
    ensure!(has_address(&status, MACHINE), "{status:#?}");
    let lease = outside.host.lease(CARD);
    ensure!(lease == Some(MACHINE), "{lease:?}");
    Ok(())
}

/// The calls are kube-proxy's; which words are known, crate `nft` shows.
fn nft(t: &Context) -> anyhow::Result<()> {
    const NAME: &str = "test.nft";
    let mut victim = Victim::copy(t)?;
    victim.session.inject(FaultKind::TestService, NAME)?;
    victim.service_when(t, NAME, |service| service.state == "stopped")?;
    let said = victim.lines(NAME, "")?;
    let expected = [
        "chains: 11",
        "an unknown word: 1 Error: line 2: unexpected `quota`",
        "a line that is refused: 1 Error: No such file or directory (os error 2) (line 2)",
        "a trial: 0 ",
        "a listing of what is not there: 1 Error: No such file or directory (os error 2)",
        "a transaction: 0 ",
        "a listing of what is there: 0 ",
        "the same table: true",
    ];
    ensure!(said == expected, "{said:#?}");
    Ok(())
}

/// A rule keeps the networks apart: without it the same hosts reach each other by the same way.
fn transit(t: &Context) -> anyhow::Result<()> {
    let between = Between::start(t)?;
    between.shows_public_api(t)?;
    for far in between.ask_across(t)? {
        ensure!(far.answered().is_empty(), "an answer from the other network: {far:?}");
    }
    let mut session = Stranger::meet_as(&between.vm, Some(&between.owner.key()?), t.within(10))?;
    session.inject(FaultKind::TestService, "test.router")?;
    let routes = || is(&between.owner.services(NAME, &between.vm).ok()?, "test.router", "stopped").then_some(());
    between.vm.until(t.within(20), routes)?;
    for far in between.ask_across(t)? {
        ensure!(
            far.ports(PortAnswer::Closed) == Between::ports().collect::<Vec<_>>(),
            "it cannot be reached at all: {far:?}"
        );
    }
    // And nothing else has opened.
    between.shows_public_api(t)
}

/// Servers that give out what the cluster keeps for itself, or a prefix that is none: each one's address, the length of
/// its prefix, the address that it gives, and what the machine says of it.
const UNFIT: [([u8; 4], u8, [u8; 4], &str); 4] = [
    ([10, 118, 0, 9], 17, [10, 118, 0, 1], "10.118.0.1/17 overlaps 10.118.0.0/16, which is kept for the VPN"),
    ([10, 244, 0, 1], 24, [10, 244, 0, 9], "10.244.0.9/24 overlaps 10.244.0.0/16, which is kept for pods"),
    ([10, 96, 0, 2], 16, [10, 96, 0, 1], "10.96.0.1/16 overlaps 10.96.0.0/16, which is kept for services"),
    ([198, 51, 100, 1], 0, [198, 51, 100, 9], "a link's prefix has 8 to 32 bits, and 198.51.100.9/0 has not"),
];

/// Each network is on a card of its own, and so is one whose lease is fit.
fn refused(t: &Context) -> anyhow::Result<()> {
    const REFUSED: &str = "refused what DHCP server";
    let network = Network::start(0)?;
    let (host, good) = segment(&network, &setup(200, HOST, 24, MACHINE, vec![]))?;
    let mut cables = Vec::new();
    for (number, (server, bits, given, _)) in (201..).zip(UNFIT) {
        cables.push(segment(&network, &setup(number, server.into(), bits, given.into(), vec![]))?.1);
    }
    cables.push(good);
    let (vm, owner) = member(t, t.machine("m"), &cables)?;
    for (.., why) in UNFIT {
        let says = |line: &Line| (line.text.contains(REFUSED) && line.text.contains(why)).then_some(());
        vm.console().wait_until(vm.started(), why, t.within(30), says)?;
    }
    let status = wait_address(t, &owner, &vm, MACHINE)?;
    // The card to the host's own network, and the one whose lease is fit.
    ensure!(status.public_addresses.len() == 2, "{status:#?}");
    ensure!(status.last_error.contains(REFUSED), "{status:#?}");
    let answers = host.scan_tcp(MACHINE, [PUBLIC_API], t.within(20))?;
    ensure!(answers.ports(PortAnswer::Open) == [PUBLIC_API], "{answers:?}");
    Ok(())
}

/// Hosts of ours on a machine's segment, which send to all that must not be reached by way of it.
#[derive(Debug)]
pub(crate) struct Outside {
    /// The one that gives the machine its address, and asks much.
    pub(crate) host: OwnHost,
    /// The host that asks a little meanwhile.
    aside: OwnHost,
    /// The machine's.
    pub(crate) cable: Cable,
    segment: Segment,
}

impl Outside {
    /// Hosts, and a cable for a machine's second card.
    pub(crate) fn new(lease_seconds: u32) -> anyhow::Result<Self> {
        Self::of(lease_seconds, vec![])
    }

    fn of(lease_seconds: u32, dns: Vec<Ipv4Addr>) -> anyhow::Result<Self> {
        let routes: Vec<_> = BEHIND.into_iter().map(|to| through(to, MACHINE)).collect::<anyhow::Result<_>>()?;
        let mut setup = setup(200, HOST, 24, MACHINE, routes.clone());
        if let Some(dhcp) = &mut setup.dhcp {
            (dhcp.lease_seconds, dhcp.dns) = (lease_seconds, dns);
        }
        let aside = Setup { mac: Mac::numbered(201), addresses: vec![(ASIDE, 24)], routes, dhcp: None };
        let segment = Network::start(0)?.segment();
        Ok(Self { host: segment.host(&setup)?, aside: segment.host(&aside)?, cable: segment.cable()?, segment })
    }

    /// The same after the machine was saved: its card has the address that it had. Whoever asks for it anew is told that the host is a
    /// resolver.
    pub(crate) fn again() -> anyhow::Result<Self> {
        let outside = Self::of(u32::MAX, vec![HOST])?;
        outside.host.remember(CARD, MACHINE);
        Ok(outside)
    }

    /// Address at which programs of this host speak to a port of the machine, as a neighbour of it. The gateway lives as long.
    pub(crate) fn neighbour(&self, port: u16) -> anyhow::Result<(Gateway, SocketAddrV4)> {
        let prefix = dhcp::Prefix::new(24).context("24 bits are a prefix")?;
        let pool = (Ipv4Addr::new(192, 168, 77, 200), Ipv4Addr::new(192, 168, 77, 210));
        let setup = GatewaySetup { mac: Mac::numbered(202), address: NEIGHBOUR, prefix, pool, lease_seconds: u32::MAX };
        let gateway = self.segment.gateway(&setup)?;
        let address = gateway.forward(0, GatewayTarget::Address(MACHINE), port).context("listen for the machine")?;
        Ok((gateway, address))
    }

    /// Links of the cards that a machine was saved with, the second one's at the new cable.
    pub(crate) fn links(&self, before: &[Link]) -> Vec<Link> {
        before.iter().take(1).cloned().chain([self.cable.link()]).collect()
    }

    /// The public API is all that answers at these ports of the machine's public address: of the others nobody hears even that they
    /// are closed.
    pub(crate) fn only_public(&self, t: &Context, ports: impl Iterator<Item = u16> + Clone) -> anyhow::Result<()> {
        let by_udp = || self.aside.probe_udp(MACHINE, LOW.chain([WIREGUARD, 8472, 10250, 51820]), b"?", t.within(60));
        let (udp, tcp) = both(by_udp, || self.host.scan_tcp(MACHINE, ports, t.within(120)));
        let (udp, tcp) = (udp?, tcp?);
        let answered = tcp.answered();
        t.measured(&format!("{MACHINE} of the release image: of {} TCP ports {answered:?} answer", tcp.0.len()));
        ensure!(answered == [PUBLIC_API] && tcp.ports(PortAnswer::Open) == answered, "answers: {answered:?}");
        ensure!(udp.answered().is_empty(), "answers by UDP: {:?}", udp.answered());
        Ok(())
    }

    /// Not a word comes back from an address behind the machine.
    pub(crate) fn silent(&self, t: &Context, behind: Ipv4Addr, ports: impl Iterator<Item = u16>) -> anyhow::Result<()> {
        let by_udp = LOW.chain([WIREGUARD, 8080, 10250]);
        let udp = || self.aside.probe_udp(behind, by_udp, b"?", t.within(20));
        let (udp, tcp) = both(udp, || self.host.scan_tcp(behind, ports, t.within(60)));
        let (udp, tcp) = (udp?, tcp?);
        ensure!(tcp.answered().is_empty(), "{behind} answers on {:?}", tcp.answered());
        ensure!(udp.answered().is_empty(), "{behind} answers by UDP on {:?}", udp.answered());
        Ok(())
    }
}

/// Two networks with a host in each, and a machine with a card in both that forwards for its pods.
struct Between {
    hosts: [OwnHost; 2],
    vm: Vm,
    owner: Owner,
}

impl Between {
    fn start(t: &Context) -> anyhow::Result<Self> {
        let network = Network::start(0)?;
        let here = setup(200, HOST, 24, MACHINE, vec![through((OTHER_HOST, 24), MACHINE)?]);
        let there = setup(201, OTHER_HOST, 24, OTHER_MACHINE, vec![through((HOST, 24), OTHER_MACHINE)?]);
        let ((one, one_cable), (other, other_cable)) = (segment(&network, &here)?, segment(&network, &there)?);
        let (vm, owner) = member(t, t.debug_machine("m")?, &[one_cable, other_cable])?;
        for address in [MACHINE, OTHER_MACHINE] {
            wait_address(t, &owner, &vm, address)?;
        }
        Ok(Self { hosts: [one, other], vm, owner })
    }

    /// Ports that are asked for in the other network.
    fn ports() -> impl Iterator<Item = u16> + Clone {
        LOW.chain([PUBLIC_API, 40_001])
    }

    /// Each host reaches the machine on its own link, and of it the public API.
    fn shows_public_api(&self, t: &Context) -> anyhow::Result<()> {
        for (host, machine) in self.hosts.iter().zip([MACHINE, OTHER_MACHINE]) {
            let near = host.scan_tcp(machine, Self::ports(), t.within(20))?;
            ensure!(near.ports(PortAnswer::Open) == [PUBLIC_API], "{near:?}");
        }
        Ok(())
    }

    /// Answers that each host hears from the one in the other network.
    fn ask_across(&self, t: &Context) -> anyhow::Result<[Report; 2]> {
        let ask = |host: &OwnHost, far: Ipv4Addr| host.scan_tcp(far, Self::ports(), t.within(20));
        let (one, other) = both(|| ask(&self.hosts[0], OTHER_HOST), || ask(&self.hosts[1], HOST));
        Ok([one?, other?])
    }
}

/// Does both at once, `aside` in a thread of its own.
fn both<A: Send, B>(aside: impl FnOnce() -> A + Send, here: impl FnOnce() -> B) -> (A, B) {
    thread::scope(|scope| {
        let aside = scope.spawn(aside);
        let here = here();
        (aside.join().expect("a scan does not panic"), here)
    })
}

/// A running member that has its address on the hosts' segment from one of them.
fn beside_host(t: &Context, lease_seconds: u32) -> anyhow::Result<(Outside, Vm, Owner)> {
    let outside = Outside::new(lease_seconds)?;
    let (vm, owner) = member(t, t.machine("m"), slice::from_ref(&outside.cable))?;
    wait_address(t, &owner, &vm, MACHINE)?;
    Ok((outside, vm, owner))
}

/// A running member with a card at each of these cables.
fn member(t: &Context, plan: MachinePlan, cables: &[Cable]) -> anyhow::Result<(Vm, Owner)> {
    let owner = t.owner()?;
    let config = owner.config(NAME, &["--level", "encrypted", "--unprotected", "--no-kubernetes"])?;
    let vm = cables.iter().fold(plan, |plan, cable| plan.nic(cable.link())).config(&config)?.start()?;
    owner.status_when_running(NAME, &vm, vm.started(), t.within(30))?;
    Ok((vm, owner))
}

/// Waits until the member has this address.
fn wait_address(t: &Context, owner: &Owner, vm: &Vm, address: Ipv4Addr) -> anyhow::Result<Status> {
    let has = || owner.status(NAME, vm).ok().filter(|status| has_address(status, address));
    Ok(vm.until(t.within(20), has)?)
}

/// A segment with a host, and a cable for a machine.
fn segment(network: &Network, host: &Setup) -> anyhow::Result<(OwnHost, Cable)> {
    let segment = network.segment();
    Ok((segment.host(host)?, segment.cable()?))
}

/// A host that gives one address out, for ever.
fn setup(number: u32, host: Ipv4Addr, bits: u8, gives: Ipv4Addr, routes: Vec<StaticRoute>) -> Setup {
    let dhcp = dhcp::Prefix::new(bits).map(|prefix| dhcp::server::Config {
        address: host,
        prefix,
        first: gives,
        last: gives,
        routers: vec![],
        dns: vec![],
        lease_seconds: u32::MAX,
    });
    Setup { mac: Mac::numbered(number), addresses: vec![(host, bits)], routes, dhcp }
}

/// The way to the network around an address.
fn through((address, prefix): (Ipv4Addr, u8), via: Ipv4Addr) -> anyhow::Result<StaticRoute> {
    let to = model::Ipv4Prefix::around(address, prefix)?.address();
    Ok(StaticRoute { to, prefix, via })
}

/// Whether the service of this name is in this state.
fn is(services: &[ServiceStatus], name: &str, state: &str) -> bool {
    services.iter().any(|service| service.name == name && service.state == state)
}

pub(crate) fn has_address(status: &Status, address: Ipv4Addr) -> bool {
    let wanted = format!("{address}/24 (");
    status.public_addresses.iter().any(|shown| shown.starts_with(&wanted))
}
