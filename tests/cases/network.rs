//! What the machine gets from its network, and what it gives away to it. The test peer is the network.

use std::net::Ipv4Addr;

use anyhow::{Context as _, ensure};
use model::{Ipv4Prefix, POD_PREFIX, PUBLIC_API_PORT, VPN_PREFIX};
use qemu::machine::Mac;
use qemu::peer::{Answer, Peer, Setup, StaticRoute};
use tests::{Case, Context, Owner};

pub(crate) const CASES: &[Case] = &[
    Case { name: "one port is open, and none behind the public address", proves: &["A7"], needs: &[], run: scan },
    Case { name: "a short lease is renewed", proves: &[], needs: &[], run: lease },
];

const PEER: Ipv4Addr = Ipv4Addr::new(192, 168, 77, 1);
/// The only address it has to give.
const MACHINE: Ipv4Addr = Ipv4Addr::new(192, 168, 77, 100);
/// Of the machine's second card, at whose other end the peer is.
const CARD: Mac = Mac::numbered(2);
const NAME: &str = "scanned";

fn scan(t: &Context) -> anyhow::Result<()> {
    let (peer, vm, owner) = beside_peer(t, u32::MAX)?;
    let status = owner.ask(NAME, &vm, &["machine", "status"])?;
    let vpn = status["vpn_addresses"][0].as_str().and_then(|address| address.split('/').next()?.parse().ok());
    let vpn: Ipv4Addr = vpn.with_context(|| format!("{status:#}"))?;
    ensure!(VPN_PREFIX.contains(vpn), "{vpn}");

    let public = peer.scan_tcp(MACHINE, 1..=u16::MAX, t.within(60))?;
    let open = public.ports(Answer::Open);
    t.measured(&format!("{MACHINE} of the release image: of {} TCP ports {open:?} are open", u16::MAX));
    ensure!(open == [PUBLIC_API_PORT], "open: {open:?}");
    let first_pod = POD_PREFIX.nth(1).context("the prefix has addresses")?;
    for behind in [vpn, first_pod, Ipv4Addr::LOCALHOST] {
        let tcp = peer.scan_tcp(behind, 1..=u16::MAX, t.within(60))?;
        ensure!(tcp.answered().is_empty(), "{behind} answers on {:?}", tcp.answered());
        let udp = peer.probe_udp(behind, [53, 7838, 10250], b"?", t.within(20))?;
        ensure!(udp.answered().is_empty(), "{behind} answers on {:?}", udp.answered());
    }
    // All the while etcd listened there.
    let services = owner.ask(NAME, &vm, &["machine", "services"])?;
    let etcd = services
        .as_array()
        .into_iter()
        .flatten()
        .any(|service| service["name"] == "etcd" && service["state"] == "ready");
    ensure!(etcd, "{services:#}");
    Ok(())
}

fn lease(t: &Context) -> anyhow::Result<()> {
    const SECONDS: u32 = 20;
    let (peer, vm, owner) = beside_peer(t, SECONDS)?;
    let up = |status: &serde_json::Value| status["uptime_ms"].as_u64().unwrap_or_default();
    let began = up(&owner.ask(NAME, &vm, &["machine", "status"])?);
    // Longer than the lease: what the machine has then was renewed.
    let end = began + 1500 * u64::from(SECONDS);
    let status =
        vm.until(t.within(60), || owner.ask(NAME, &vm, &["machine", "status"]).ok().filter(|status| up(status) > end))?;
    ensure!(has_address(&status), "{status:#}");
    ensure!(peer.lease(CARD) == Some(MACHINE), "{:?}", peer.lease(CARD));
    Ok(())
}

/// A running member that has its address on the peer's link from the peer.
fn beside_peer(t: &Context, lease_seconds: u32) -> anyhow::Result<(Peer, qemu::Vm, Owner)> {
    let through = |to: Ipv4Prefix| StaticRoute { to: to.address(), prefix: to.bits(), via: MACHINE };
    let prefix = dhcp::Prefix::new(24).context("24 bits")?;
    let loopback = Ipv4Prefix::new(Ipv4Addr::new(127, 0, 0, 0), 8)?;
    let peer = Peer::start(&Setup {
        mac: Mac::numbered(200),
        addresses: vec![(PEER, 24)],
        routes: vec![through(VPN_PREFIX), through(POD_PREFIX), through(loopback)],
        dhcp: Some(dhcp::server::Config {
            address: PEER,
            prefix,
            first: MACHINE,
            last: MACHINE,
            routers: vec![],
            dns: vec![],
            lease_seconds,
        }),
    })?;
    let owner = t.owner()?;
    let config = owner.config(NAME, &["--level", "encrypted", "--unprotected", "--no-kubernetes"])?;
    let mut vm = t.machine("m").nic(peer.link()).config(&config)?.start()?;
    owner.status_when_running(NAME, &mut vm, t.within(30))?;
    vm.until(t.within(20), || has_address(&owner.ask(NAME, &vm, &["machine", "status"]).ok()?).then_some(()))?;
    Ok((peer, vm, owner))
}

fn has_address(status: &serde_json::Value) -> bool {
    let wanted = format!("{MACHINE}/24 (");
    let shown = |address: &serde_json::Value| address.as_str().is_some_and(|address| address.starts_with(&wanted));
    status["public_addresses"].as_array().is_some_and(|all| all.iter().any(shown))
}
