//! What the machine gets from its network, what it takes, and what it gives away to it. Hosts of our own are on its segments.
//!
//! Addresses and ports are written out here: a number taken from the code under test would change with it.

use std::net::Ipv4Addr;

use crate::{Case, Context, Owner, Service, Starts, Status, Stranger};
use anyhow::ensure;
use api::wire::FaultKind;
use qemu::machine::Mac;
use qemu::network::{Answer, Cable, Host, Network, Setup, StaticRoute};

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
];

/// TCP, for everybody: the public API.
const PUBLIC_API: u16 = 7836;
/// UDP, for everybody: WireGuard, which answers nobody whom it does not know.
const WIREGUARD: u16 = 7838;
/// What Kubernetes, etcd and the mesh listen on anywhere: etcd, the Kubernetes API, etcd's peers, the members' API, and
/// kubelet, proxy, controller manager and scheduler with their health.
pub(crate) const PRIVATE: [u16; 13] =
    [2379, 2380, 6443, 7834, 7835, 8080, 10248, 10249, 10250, 10255, 10256, 10257, 10259];
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

const HOST: Ipv4Addr = Ipv4Addr::new(192, 168, 77, 1);
/// The only address it has to give.
pub(crate) const MACHINE: Ipv4Addr = Ipv4Addr::new(192, 168, 77, 100);
/// Another network.
const OTHER_HOST: Ipv4Addr = Ipv4Addr::new(192, 168, 78, 1);
const OTHER_MACHINE: Ipv4Addr = Ipv4Addr::new(192, 168, 78, 100);
/// Of the machine's second card, the one on the host's segment.
const CARD: Mac = Mac::numbered(2);
const NAME: &str = "scanned";

fn scan(t: &Context) -> anyhow::Result<()> {
    let (host, vm, owner) = beside_host(t, u32::MAX)?;
    let status = owner.status(NAME, &vm)?;
    ensure!(status.vpn_addresses == [format!("{VPN}/16")], "{status:#?}");
    only_public(t, &host, 1..=u16::MAX)?;
    for behind in [VPN, POD_GATEWAY, Ipv4Addr::LOCALHOST] {
        silent(t, &host, behind, 1..=u16::MAX)?;
    }
    // All the while etcd listened there.
    let services = owner.services(NAME, &vm)?;
    ensure!(is(&services, "etcd", "ready"), "{services:#?}");
    Ok(())
}

/// Of all that can be asked of the machine's public address at these ports, the public API answers, and WireGuard is there.
pub(crate) fn only_public(t: &Context, host: &Host, ports: impl Iterator<Item = u16> + Clone) -> anyhow::Result<()> {
    // The kernel tells of a few closed ports at a time, one a second: so few are asked that it tells of each, and before
    // all of them are asked, which takes what it may tell of for a while.
    let few = host.probe_udp(MACHINE, [53, WIREGUARD, 8472, 10250, 51820], b"?", t.within(20))?;
    ensure!(few.ports(Answer::Silent) == [WIREGUARD], "not closed by UDP: {:?}", few.ports(Answer::Silent));
    let tcp = host.scan_tcp(MACHINE, ports.clone(), t.within(60))?;
    let open = tcp.ports(Answer::Open);
    t.measured(&format!("{MACHINE} of the release image: of {} TCP ports {open:?} are open", ports.clone().count()));
    ensure!(open == [PUBLIC_API], "open: {open:?}");
    ensure!(PRIVATE.iter().all(|port| tcp.ports(Answer::Closed).contains(port)), "{:?}", tcp.ports(Answer::Silent));
    let udp = host.probe_udp(MACHINE, ports, b"?", t.within(60))?;
    ensure!(udp.ports(Answer::Open).is_empty(), "answers by UDP: {:?}", udp.ports(Answer::Open));
    Ok(())
}

/// Not a word comes back from an address behind the machine.
pub(crate) fn silent(
    t: &Context,
    host: &Host,
    behind: Ipv4Addr,
    ports: impl Iterator<Item = u16>,
) -> anyhow::Result<()> {
    let tcp = host.scan_tcp(behind, ports, t.within(60))?;
    ensure!(tcp.answered().is_empty(), "{behind} answers on {:?}", tcp.answered());
    let udp = host.probe_udp(behind, [53, WIREGUARD, 8080, 10250], b"?", t.within(20))?;
    ensure!(udp.answered().is_empty(), "{behind} answers by UDP on {:?}", udp.answered());
    Ok(())
}

fn lease(t: &Context) -> anyhow::Result<()> {
    const SECONDS: u32 = 20;
    let (host, vm, owner) = beside_host(t, SECONDS)?;
    let began = owner.status(NAME, &vm)?.uptime_ms;
    // Longer than the lease: what the machine has then was renewed.
    let end = began + 1500 * u64::from(SECONDS);
    let status = vm.until(t.within(60), || owner.status(NAME, &vm).ok().filter(|status| status.uptime_ms > end))?;
    ensure!(has_address(&status, MACHINE), "{status:#?}");
    ensure!(host.lease(CARD) == Some(MACHINE), "{:?}", host.lease(CARD));
    Ok(())
}

/// Two networks, and a machine with a card in each that forwards for its pods: a host in one asks for one in the other.
fn transit(t: &Context) -> anyhow::Result<()> {
    let ports = || [22, 80, PUBLIC_API, 40_001];
    let network = Network::start(0)?;
    let here = setup(200, HOST, 24, MACHINE, vec![through((OTHER_HOST, 24), MACHINE)?]);
    let (one, one_cable) = segment(&network, &here)?;
    let there = setup(201, OTHER_HOST, 24, OTHER_MACHINE, vec![through((HOST, 24), OTHER_MACHINE)?]);
    let (other, other_cable) = segment(&network, &there)?;
    let owner = t.owner()?;
    let config = owner.config(NAME, &["--level", "encrypted", "--unprotected", "--no-kubernetes"])?;
    let vm = t.debug_machine("m")?.nic(one_cable.link()).nic(other_cable.link()).config(&config)?.start()?;
    owner.status_when_running(NAME, &vm, vm.started(), t.within(30))?;
    for address in [MACHINE, OTHER_MACHINE] {
        vm.until(t.within(20), || has_address(&owner.status(NAME, &vm).ok()?, address).then_some(()))?;
    }
    // Both reach the machine, each on its own link.
    for (host, machine) in [(&one, MACHINE), (&other, OTHER_MACHINE)] {
        let near = host.scan_tcp(machine, ports(), t.within(20))?;
        ensure!(near.ports(Answer::Open) == [PUBLIC_API], "{near:?}");
    }
    // Neither reaches the other.
    for (host, far_host) in [(&one, OTHER_HOST), (&other, HOST)] {
        let far = host.scan_tcp(far_host, ports(), t.within(20))?;
        ensure!(far.answered().is_empty(), "{far_host} answers from the other network: {far:?}");
    }
    // It is the rule that keeps them apart: without it the same hosts reach each other by the same way.
    let mut session = Stranger::meet_as(&vm, Some(&owner.key()?), t.within(10))?;
    session.inject(FaultKind::TestService, "test.router")?;
    vm.until(t.within(20), || is(&owner.services(NAME, &vm).ok()?, "test.router", "stopped").then_some(()))?;
    for (host, far_host) in [(&one, OTHER_HOST), (&other, HOST)] {
        let far = host.scan_tcp(far_host, ports(), t.within(20))?;
        ensure!(far.ports(Answer::Closed) == ports(), "{far_host} cannot be reached at all: {far:?}");
    }
    // And nothing else has opened.
    let near = one.scan_tcp(MACHINE, ports(), t.within(20))?;
    ensure!(near.ports(Answer::Open) == [PUBLIC_API], "{near:?}");
    Ok(())
}

/// Networks that give out what the cluster keeps for itself, each on a card of its own, and one that does not.
fn refused(t: &Context) -> anyhow::Result<()> {
    let rows: [([u8; 4], u8, [u8; 4], &str); 4] = [
        ([10, 118, 0, 9], 17, [10, 118, 0, 1], "10.118.0.1/17 overlaps 10.118.0.0/16, which is kept for the VPN"),
        ([10, 244, 0, 1], 24, [10, 244, 0, 9], "10.244.0.9/24 overlaps 10.244.0.0/16, which is kept for pods"),
        ([10, 96, 0, 2], 16, [10, 96, 0, 1], "10.96.0.1/16 overlaps 10.96.0.0/16, which is kept for services"),
        ([198, 51, 100, 1], 0, [198, 51, 100, 9], "a link's prefix has 8 to 32 bits, and 198.51.100.9/0 has not"),
    ];
    let network = Network::start(0)?;
    let mut cables = Vec::new();
    for (number, (server, bits, given, _)) in (201..).zip(rows) {
        cables.push(segment(&network, &setup(number, server.into(), bits, given.into(), vec![]))?.1);
    }
    let (host, good) = segment(&network, &setup(200, HOST, 24, MACHINE, vec![]))?;
    let owner = t.owner()?;
    let config = owner.config(NAME, &["--level", "encrypted", "--unprotected", "--no-kubernetes"])?;
    let plan = cables.iter().fold(t.machine("m"), |plan, cable| plan.nic(cable.link()));
    let vm = plan.nic(good.link()).config(&config)?.start()?;
    let mut unsaid: Vec<&str> = rows.iter().map(|row| row.3).collect();
    vm.console().wait_until(vm.started(), "what is refused, and why", t.within(30), |line| {
        unsaid.retain(|why| !(line.text.contains("refused what DHCP server") && line.text.contains(why)));
        unsaid.is_empty().then_some(())
    })?;
    owner.status_when_running(NAME, &vm, vm.started(), t.within(30))?;
    let has_good = || owner.status(NAME, &vm).ok().filter(|status| has_address(status, MACHINE));
    let status = vm.until(t.within(20), has_good)?;
    // The card to the host's own network, and the one whose lease is fit.
    ensure!(status.public_addresses.len() == 2, "{status:#?}");
    ensure!(status.last_error.contains("refused what DHCP server"), "{status:#?}");
    let answers = host.scan_tcp(MACHINE, [PUBLIC_API], t.within(20))?;
    ensure!(answers.ports(Answer::Open) == [PUBLIC_API], "{answers:?}");
    Ok(())
}

/// A running member that has its address on the host's segment from the host.
fn beside_host(t: &Context, lease_seconds: u32) -> anyhow::Result<(Host, qemu::Vm, Owner)> {
    let (host, cable) = outside(lease_seconds)?;
    let owner = t.owner()?;
    let config = owner.config(NAME, &["--level", "encrypted", "--unprotected", "--no-kubernetes"])?;
    let vm = t.machine("m").nic(cable.link()).config(&config)?.start()?;
    owner.status_when_running(NAME, &vm, vm.started(), t.within(30))?;
    vm.until(t.within(20), || has_address(&owner.status(NAME, &vm).ok()?, MACHINE).then_some(()))?;
    Ok((host, vm, owner))
}

/// A segment whose one host sends to all that must not be reached by way of the machine, and a cable of it.
pub(crate) fn outside(lease_seconds: u32) -> anyhow::Result<(Host, Cable)> {
    let routes = BEHIND.into_iter().map(|to| through(to, MACHINE)).collect::<anyhow::Result<_>>()?;
    let mut setup = setup(200, HOST, 24, MACHINE, routes);
    if let Some(dhcp) = &mut setup.dhcp {
        dhcp.lease_seconds = lease_seconds;
    }
    segment(&Network::start(0)?, &setup)
}

/// A segment with a host, and a cable for a machine.
fn segment(network: &Network, host: &Setup) -> anyhow::Result<(Host, Cable)> {
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
fn is(services: &[Service], name: &str, state: &str) -> bool {
    services.iter().any(|service| service.name == name && service.state == state)
}

pub(crate) fn has_address(status: &Status, address: Ipv4Addr) -> bool {
    let wanted = format!("{address}/24 (");
    status.public_addresses.iter().any(|shown| shown.starts_with(&wanted))
}
