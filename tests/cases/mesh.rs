//! The mesh of two machines, seen from their cables: nothing goes beside WireGuard, nothing is written while nothing changes, a
//! narrow path, another address and the loss of one of two uplinks are lived through. One case makes the two; each other one has
//! a copy of its own.

use std::collections::BTreeMap;
use std::fs;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use api::wire::{FaultKind, LogsRequest, StatusRequest, StatusResponse};
use qemu::console::{Line, Mark};
use qemu::deadline::Stopwatch;
use qemu::machine::{Link, Mac};
use qemu::network::{
    Cable, Direction, DropReason, Faults, FrameCounters, Gateway, GatewaySetup, LeaseState, Network, OwnHost, Setup,
    StaticRoute,
};
use qemu::{Deadline, Vm};
use serde_json::json;
use tonic::Status;

use crate::{
    Case, Context, FleetKind, Image, MESH_CHANGED, Owner, PacketKind, Prerequisite, Starts, Stranger, kinds, others,
    wait_state, wireguard_from,
};

pub(crate) const CASES: &[Case] = &[
    Case {
        starts: Starts::Making(DUO),
        ..case("two machines of a mesh exchange nothing beside WireGuard", &["A2", "M8"], made)
    },
    case("a mesh at rest is not written", &["M7"], rest),
    case("what somebody else writes to the kernel's mesh is undone", &["M7"], foreign),
    case("neither etcd nor the vpn api listens at a public address", &["A2"], listens),
    case("who routes to the vpn through a machine is not answered", &["A2"], routed),
    case("a path that drops large packets is measured by both ends", &["M9"], narrow),
    case("a measured path carries all, and nothing larger is sent", &["M9"], carried),
    case("a mesh keeps connections when a machine's address changes", &["M6"], moved),
    case("what a removed machine sends is answered by nothing", &["M4"], removed),
    case("a machine goes on by its other uplink without one's carrier", &["M12"], unplugged),
    case("a machine goes on by its other uplink when one falls silent", &["M12"], silent),
    case("a machine behind a router is heard at the router's address", &["M6"], elsewhere),
];

const fn case(name: &'static str, proves: &'static [&'static str], run: fn(&Context) -> anyhow::Result<()>) -> Case {
    Case { name, proves, needs: &[Prerequisite::Swtpm], starts: Starts::From(DUO), run }
}

const DUO: FleetKind = FleetKind::Duo;
const NAME: &str = "one";
/// Names of the machines: a coordinator, and a node.
const NAMES: [&str; 2] = ["first", "second"];
/// Where they are.
const PLACES: [Ipv4Addr; 2] = [site(20), site(21)];
/// Time that a call to a machine may take.
const CALL: Duration = Duration::from_secs(30);
/// Limit that both find of a path of 1400 bytes, in the end: less IPv4, UDP and WireGuard, in whole 16 bytes.
const NARROW: &str = " limit=1328";
const DETOUR: &str = "the usual way is silent";
const ELSEWHERE: &str = "a machine is heard where it does not say that it is";
/// Short, so that a machine soon asks for its address again.
const LEASE_SECONDS: u32 = 20;
/// Lease that the machines of a copy get when they ask: longer than anything that is tried, so that no lease is lost
/// beside.
const LONG_LEASE_SECONDS: u32 = 3600;
/// The cable of the first machine, the one by which the second reaches it, and the one of the other uplink of that.
const FIRST: usize = 0;
const USUAL: usize = 1;
const OTHER: usize = 2;
/// So many frames each way are more than leases, neighbours and echoes make in that time: bytes are carried.
const CARRIES: u64 = 40;
/// A removed machine's kernel sends on by its session, and tries to shake hands when it has heard nothing for 15 s (WireGuard
/// whitepaper, section 6.2: `KEEPALIVE_TIMEOUT` and `REKEY_TIMEOUT`), then every 5 s.
const SHAKES_HANDS_SECONDS: u64 = 22;
/// So many of its packets come in that time at least.
const ASKED: usize = 4;
/// A look at the kernel comes every 3 s, and each of them would write again what the kernel tells otherwise than it was asked.
/// Silence is noticed after 11 s, another endpoint after 15. Longer timers, and a whole day, the world of `crates/mesh` shows.
const REST_SECONDS: u64 = 20;
/// Two to three times what is promised, for hosts that are busy otherwise.
const BY_CARRIER: Duration = Duration::from_secs(15);
const SILENTLY: Duration = Duration::from_secs(30);

/// Surroundings of the machines: the site that both are on, and another network, with a gateway that passes packets
/// between these.
#[derive(Debug)]
struct Premises {
    gateway: Gateway,
    outside: OwnHost,
    /// The machines', then that of the second one's other uplink.
    cables: [Cable; 3],
    captures: [PathBuf; 2],
}

/// A coordinator and a node, of the debug profile; the owner reaches each by itself. The node has two uplinks, of which one is
/// not plugged in.
#[derive(Debug)]
struct Duo {
    premises: Premises,
    owner: Owner,
    machines: [Vm; 2],
}

/// An address of the site.
const fn site(last: u8) -> Ipv4Addr {
    Ipv4Addr::new(203, 0, 113, last)
}

/// An address of the other network.
const fn other(last: u8) -> Ipv4Addr {
    Ipv4Addr::new(198, 51, 100, last)
}

/// The network card at the end of the `n`-th cable.
fn card(n: usize) -> Mac {
    Mac::numbered([10, 11, 12][n])
}

/// Faults of a cable that carries no larger packets than this.
fn narrower(mtu: u16) -> Faults {
    Faults { mtu: Some(mtu), ..Faults::default() }
}

/// Faults of a cable that is so slow that a connection lasts longer than what is tried.
fn slow() -> Faults {
    Faults { rate: Some(1_000_000), ..Faults::default() }
}

impl Premises {
    fn new(t: &Context, lease_seconds: u32, held: LeaseState) -> anyhow::Result<Self> {
        let network = Network::start(0)?;
        let (segment, beside) = (network.segment(), network.segment());
        let gateway = segment.gateway(&router(200, site, lease_seconds)?)?;
        beside.gateway(&router(202, other, lease_seconds)?)?;
        let (mac, addresses) = (Mac::numbered(201), vec![(site(200), 24)]);
        // To the VPN's addresses it knows no other way than through a machine.
        let routes = vec![StaticRoute { to: [10, 0, 0, 0].into(), prefix: 24, via: PLACES[0] }];
        let outside = segment.host(&Setup { mac, addresses, routes, dhcp: None })?;
        let cables = [segment.cable()?, segment.cable()?, beside.cable()?];
        fs::create_dir_all(t.dir()).context("make a place for captures")?;
        let captures = NAMES.map(|name| t.dir().join(format!("{name}.pcapng")));
        for n in 0..2 {
            cables[n].capture("eth1", &captures[n])?;
            gateway.reserve(card(n), PLACES[n], held);
        }
        Ok(Self { gateway, outside, cables, captures })
    }

    /// A machine's links as they were, with the cables of these premises.
    fn links(&self, name: &str, before: &[Link]) -> Vec<Link> {
        let own = if name == NAMES[0] { &self.cables[..1] } else { &self.cables[1..] };
        let mut cables = own.iter().map(Cable::link);
        let link = |link: &Link| match link {
            Link::User(_) => link.clone(),
            Link::Stream(_) => cables.next().expect("a machine comes back with as many cards"),
        };
        before.iter().map(link).collect()
    }

    fn are_plugged_in(&self) -> bool {
        self.cables.iter().all(Cable::is_plugged_in)
    }
}

/// A gateway on the network of these addresses.
fn router(number: u32, address: impl Fn(u8) -> Ipv4Addr, lease_seconds: u32) -> anyhow::Result<GatewaySetup> {
    let prefix = dhcp::Prefix::new(24).context("24 bits are a prefix")?;
    let (mac, pool) = (Mac::numbered(number), (address(10), address(99)));
    Ok(GatewaySetup { mac, address: address(1), prefix, pool, lease_seconds })
}

impl Duo {
    fn new(t: &Context) -> anyhow::Result<Self> {
        let premises = Premises::new(t, LEASE_SECONDS, LeaseState::NotYet)?;
        let owner = t.owner()?;
        let config =
            ["--level", "encrypted", "--node-name", NAMES[0], "--no-kubernetes", "--vpn-prefix", "10.0.0.0/24"];
        let plan = t.debug_machine(NAMES[0])?.tpm().nic_of(card(0), premises.cables[0].link());
        let first = plan.config(&owner.config(NAME, &config)?)?.start()?;
        owner.status_when_running(NAME, &first, first.started(), t.within(30))?;
        let config = ["--level", "encrypted", "--node-name", NAMES[1]];
        let ticket = owner.ticket_naming(NAME, &first, &PLACES[0].to_string(), &[], t.within(40))?;
        let config = owner.config_of_joiner(NAMES[1], &ticket, &config)?;
        let mut plan = t.debug_machine(NAMES[1])?.tpm();
        for cable in [USUAL, OTHER] {
            plan = plan.nic_of(card(cable), premises.cables[cable].link());
        }
        // The card to the host's own network, which leads nowhere, comes behind the two.
        plan.machine().nics.rotate_left(1);
        let second = plan.config(&config)?.start()?;
        let mut duo = Self { premises, owner, machines: [first, second] };
        duo.plug(t, OTHER, false)?;
        wait_state(&duo.machines[1], duo.machines[1].started(), "Running", t.within(60))?;
        Ok(duo)
    }

    /// A copy of its own for this case, which asks for no address while it lasts.
    fn copy(t: &Context) -> anyhow::Result<Self> {
        Self::copy_leased(t, LONG_LEASE_SECONDS)
    }

    /// The same, with addresses for so many seconds: a machine that comes back may have its own confirmed at once, or later.
    fn copy_leased(t: &Context, seconds: u32) -> anyhow::Result<Self> {
        let copy = t.copy::<()>(DUO, &Image::debug_of_environment()?)?;
        let premises = Premises::new(t, seconds, LeaseState::FromBefore)?;
        let links = |name: &str, before: &[Link]| premises.links(name, before);
        let mut copied = copy.go_on(links, || premises.are_plugged_in())?;
        let mut vm = |name| anyhow::Ok(copied.remove(name).context("each machine comes back")?.vm);
        let machines = [vm(NAMES[0])?, vm(NAMES[1])?];
        Ok(Self { premises, owner: copy.owner, machines })
    }

    /// The same with both uplinks plugged in, whose addresses are the second machine's for longer than anything that is tried.
    fn copy_with_both_uplinks(t: &Context) -> anyhow::Result<Self> {
        let mut duo = Self::copy(t)?;
        // The copy shakes hands anew. With a choice meanwhile, it could take the usual way for silent, and keep the other for ten minutes.
        let talks =
            || duo.carried(1).ok()?.get(&PacketKind::WireGuard).is_some_and(|packets| *packets >= 8).then_some(());
        duo.machines[1].until(t.within(20), talks).context("the copy says nothing by its usual uplink")?;
        duo.plug_in_other(t)?;
        Ok(duo)
    }

    /// The same, with bytes on their way by the usual uplink since before the other was plugged in.
    fn copy_that_carries(t: &Context) -> anyhow::Result<Self> {
        let mut duo = Self::copy(t)?;
        [USUAL, OTHER].iter().for_each(|cable| duo.set(*cable, slow()));
        duo.carry(t)?;
        duo.carried_by(t, USUAL)?;
        duo.plug_in_other(t)?;
        duo.carried_by(t, USUAL).context("with a choice")?;
        Ok(duo)
    }

    /// Plugs the other uplink in, and waits until it has an address.
    fn plug_in_other(&mut self, t: &Context) -> anyhow::Result<()> {
        self.plug(t, OTHER, true)?;
        let has_both = || {
            let leased = self.carried(1).ok()?.get(&PacketKind::Dhcp).is_some_and(|packets| *packets >= 2);
            self.status(1).is_ok_and(|status| leased && has(&status, "198.51.100.")).then_some(())
        };
        self.machines[1].until(t.within(20), has_both).context("the other uplink has no address")
    }

    fn save(mut self, t: &Context) -> anyhow::Result<()> {
        let [first, second] = &mut self.machines;
        let mut machines = [(NAMES[0], first), (NAMES[1], second)];
        t.save(DUO, &Image::debug_of_environment()?, &self.owner, &mut machines, ())
    }

    /// The owner at a machine itself, whatever becomes of the mesh.
    fn session(&self, n: usize) -> anyhow::Result<Stranger> {
        Stranger::meet_as(&self.machines[n], Some(&self.owner.key()?), Deadline::after(CALL))
    }

    fn status(&self, n: usize) -> anyhow::Result<StatusResponse> {
        Ok(self.session(n)?.call(async |client| client.status(StatusRequest {}).await)?.into_inner())
    }

    /// Where the consoles end now.
    fn marks(&self) -> anyhow::Result<[Mark; 2]> {
        Ok([self.machines[0].mark()?, self.machines[1].mark()?])
    }

    /// Waits until so many seconds have passed for the first machine.
    fn pass(&self, t: &Context, seconds: u64) -> anyhow::Result<()> {
        let end = self.status(0)?.uptime_ms + 1000 * seconds;
        let over = || self.status(0).ok().filter(|status| status.uptime_ms > end).map(drop);
        Ok(self.machines[0].until(t.within(seconds + 30), over)?)
    }

    /// How often a machine has written to the kernel's mesh since it came back as it was saved, and before.
    fn written(&self, n: usize) -> [usize; 2] {
        let (said, back) = (self.machines[n].said(), self.machines[n].started());
        let writes = said.iter().filter(|line| line.text.contains(MESH_CHANGED));
        let (after, before): (Vec<_>, Vec<_>) = writes.partition(|line| line.end > back);
        [after.len(), before.len()]
    }

    /// Lines of both machines since they came back as they were saved.
    fn said(&self) -> Vec<String> {
        let lines = |vm: &Vm| vm.said().into_iter().filter(|line| line.end > vm.started()).collect::<Vec<_>>();
        self.machines.iter().flat_map(lines).map(|line| line.text).collect()
    }

    /// A machine does what the debug profile's test service of this name does.
    fn inject(&self, n: usize, service: &str) -> anyhow::Result<()> {
        self.session(n)?.inject(FaultKind::TestService, service)?;
        Ok(())
    }

    /// Lines that a service of a machine has written down.
    fn lines(&self, n: usize, service: &str) -> anyhow::Result<Vec<String>> {
        let request = LogsRequest { subtree: service.to_owned(), ..LogsRequest::default() };
        let lines = self.session(n)?.call(async |client| {
            let (mut entries, mut lines) = (client.logs(request).await?.into_inner(), Vec::new());
            while let Some(entry) = entries.message().await? {
                lines.push(entry.line);
            }
            Ok::<_, Status>(lines)
        });
        Ok(lines?)
    }

    /// Waits until a service of a machine writes down a line with `words`, or that it failed. In a copy it has not run before the case
    /// had it run.
    fn writes(&self, t: &Context, n: usize, service: &str, words: &str) -> anyhow::Result<String> {
        let is_last = |line: &String| line.contains(words) || line.starts_with("failed");
        let line = || self.lines(n, service).ok()?.into_iter().find(is_last);
        let written = self.machines[n].until(t.within(90), line);
        let written = written.with_context(|| format!("`{service}` of {} does not say `{words}`", NAMES[n]))?;
        ensure!(written.contains(words), "`{service}` of {}: {written}", NAMES[n]);
        Ok(written)
    }

    /// The second machine begins to send bytes to the first, which sends them back.
    fn carry(&self, t: &Context) -> anyhow::Result<()> {
        self.inject(0, "test.returns")?;
        self.writes(t, 0, "test.returns", "listening")?;
        self.inject(1, "test.carries")
    }

    /// The bytes are on their way still: the connection lives through whatever is next.
    fn still_carries(&self) -> anyhow::Result<()> {
        let said = self.lines(1, "test.carries")?;
        ensure!(said.is_empty(), "the connection is over: {said:?}");
        Ok(())
    }

    /// All bytes come back by the connection that was begun.
    fn carries_all(&self, t: &Context) -> anyhow::Result<()> {
        t.measured(&self.writes(t, 1, "test.carries", "bytes there and back")?);
        Ok(())
    }

    fn set(&self, cable: usize, faults: Faults) {
        Direction::BOTH.iter().for_each(|direction| self.premises.cables[cable].set_faults(*direction, faults));
    }

    fn counters(&self, cable: usize) -> [FrameCounters; 2] {
        Direction::BOTH.map(|direction| self.premises.cables[cable].counters(direction))
    }

    /// Pulls the plug at a machine's end of a cable, or puts it in: the machine sees that.
    fn plug(&mut self, t: &Context, cable: usize, up: bool) -> anyhow::Result<()> {
        let (n, nic) = [(0, "nic1"), (1, "nic0"), (1, "nic1")][cable];
        self.machines[n].qmp().execute("set_link", &json!({ "name": nic, "up": up }), t.within(5))?;
        Ok(())
    }

    /// How long it takes until bytes are carried by this cable, both ways, from now on.
    fn carried_by(&self, t: &Context, cable: usize) -> anyhow::Result<Duration> {
        let delivered = || self.counters(cable).map(|counters| counters.delivered);
        let (before, since) = (delivered(), Stopwatch::start());
        let carries = || delivered().iter().zip(before).all(|(now, before)| now - before > CARRIES).then_some(());
        self.machines[1].until(t.within(60), carries).with_context(|| format!("cable {cable} carries nothing"))?;
        Ok(since.elapsed())
    }

    /// How many frames the second machine's cable has dropped in each direction because they are too large for it.
    fn too_large(&self) -> [u64; 2] {
        self.counters(USUAL).map(|counters| counters.dropped.get(&DropReason::Mtu).copied().unwrap_or_default())
    }

    /// Waits until each machine says, from there on, that it has measured the narrow path; answers come one by one, and the largest
    /// counts.
    fn is_measured(&self, t: &Context, from: [Mark; 2]) -> anyhow::Result<()> {
        (0..2).try_for_each(|n| Ok(self.machines[n].wait_for(from[n], NARROW, t.within(90)).map(drop)?))
    }

    /// Packets that a machine's cable has carried so far, by kind; for a copy since it came back.
    fn carried(&self, n: usize) -> anyhow::Result<BTreeMap<PacketKind, usize>> {
        kinds(&fs::read(&self.premises.captures[n]).context("read a capture")?)
    }

    /// The capture of the first machine's cable shows what was sent to these ports: one that sees nothing would show nothing else.
    fn saw(&self, ports: &[u16]) -> anyhow::Result<()> {
        let carried = self.carried(0)?;
        let seen = |port: &u16| others(&carried).iter().any(|other| other.ends_with(&format!(":{port}")));
        ensure!(ports.iter().all(seen), "{carried:?}");
        Ok(())
    }

    /// How many of WireGuard's packets the first machine has sent so far, and how many it was sent.
    fn wireguards(&self) -> anyhow::Result<[usize; 2]> {
        let capture = fs::read(&self.premises.captures[0]).context("read a capture")?;
        let sent = wireguard_from(&capture, PLACES[0])?;
        let all = kinds(&capture)?.get(&PacketKind::WireGuard).copied().unwrap_or_default();
        Ok([sent, all - sent])
    }
}

/// Whether a machine has an address that begins so, with its prefix length and its link behind it.
fn has(status: &StatusResponse, address: &str) -> bool {
    status.public_addresses.iter().any(|shown| shown.starts_with(address))
}

/// The capture of a cable holds all that it carried, from before its machine had an address.
fn made(t: &Context) -> anyhow::Result<()> {
    let duo = Duo::new(t)?;
    // The smallest prefix that a VPN can have.
    let listed = duo.owner.ask(NAME, &duo.machines[0], &["machine", "list"])?;
    let address =
        |name: &str| listed["machines"].as_array()?.iter().find(|row| row["name"] == name)?["vpn_ip"].as_str();
    ensure!(NAMES.map(address) == [Some("10.0.0.1"), Some("10.0.0.2")], "{listed:#}");
    for (n, vm) in duo.machines.iter().enumerate() {
        vm.wait_for(vm.started(), MESH_CHANGED, t.within(30)).context("each has written its peer")?;
        let talks = || duo.carried(n).ok()?.get(&PacketKind::WireGuard).filter(|packets| **packets > 20).map(drop);
        vm.until(t.within(30), talks).with_context(|| format!("{} says nothing", NAMES[n]))?;
        let carried = duo.carried(n)?;
        t.measured(&format!("{}: {carried:?}", NAMES[n]));
        ensure!(others(&carried).is_empty(), "beside the VPN: {:?}", others(&carried));
    }
    duo.save(t)
}

fn rest(t: &Context) -> anyhow::Result<()> {
    let duo = Duo::copy(t)?;
    duo.pass(t, REST_SECONDS)?;
    let written = [0, 1].map(|n| duo.written(n));
    // What they wrote before they were saved is seen.
    let rests = |[after, before]: &[usize; 2]| *after == 0 && *before > 0;
    ensure!(written.iter().all(rests), "written while nothing changes, and before: {written:?}; {:#?}", duo.said());
    Ok(())
}

/// A foreign peer goes, and a missing peer comes back.
fn foreign(t: &Context) -> anyhow::Result<()> {
    let duo = Duo::copy(t)?;
    let before = duo.marks()?;
    duo.inject(1, "test.foreign")?;
    let back = duo.writes(t, 1, "test.foreign", "the foreign one is gone after")?;
    ensure!(back.contains("1 peers are back"), "{back}");
    t.measured(&back);
    duo.machines[1].wait_for(before[1], MESH_CHANGED, t.within(5)).context("that is a write")?;
    Ok(())
}

const PORTS: [u16; 3] = [model::ETCD_CLIENT_PORT, model::ETCD_PEER_PORT, model::VPN_API_PORT];

fn listens(t: &Context) -> anyhow::Result<()> {
    let duo = Duo::copy(t)?;
    let asked = PORTS.into_iter().chain([model::PUBLIC_API_PORT]);
    let public = duo.premises.outside.scan_tcp(PLACES[0], asked, t.within(20))?;
    ensure!(public.answered() == [model::PUBLIC_API_PORT], "{public:?}");
    duo.saw(&PORTS)
}

fn routed(t: &Context) -> anyhow::Result<()> {
    let duo = Duo::copy(t)?;
    let vpn = duo.premises.outside.scan_tcp([10, 0, 0, 1].into(), PORTS, t.within(20))?;
    ensure!(vpn.answered().is_empty(), "{vpn:?}");
    duo.saw(&PORTS)
}

fn narrow(t: &Context) -> anyhow::Result<()> {
    let duo = Duo::copy(t)?;
    let before = duo.marks()?;
    // The way between them breaks, and what comes in its place is narrower.
    duo.set(USUAL, Faults::cut());
    let again = duo.machines[1].wait_for(before[1], MESH_CHANGED, t.within(60));
    again.context("a peer that is not heard is set again")?;
    duo.set(USUAL, narrower(1400));
    duo.is_measured(t, before)?;
    let dropped = duo.too_large();
    ensure!(dropped.iter().all(|frames| *frames > 0), "the cable is narrow both ways: {dropped:?}");
    Ok(())
}

fn carried(t: &Context) -> anyhow::Result<()> {
    let mut duo = Duo::copy(t)?;
    let before = duo.marks()?;
    duo.set(USUAL, narrower(1400));
    // A machine measures its path anew where it has lost its carrier.
    for up in [false, true] {
        [FIRST, USUAL].iter().try_for_each(|cable| duo.plug(t, *cable, up))?;
    }
    duo.is_measured(t, before)?;
    // Narrower than what was measured, nothing is carried: the same segments are dropped again and again. As measured, all is. Only a
    // few are asked for: TCP doubles its pause each time, and a dozen would take a minute, with another one until it tries again.
    duo.set(USUAL, narrower(1380));
    let [measured, _] = duo.too_large();
    duo.carry(t)?;
    let again = || (duo.too_large()[0] > measured + 6).then_some(());
    duo.machines[1].until(t.within(30), again).context("what is too large is sent, and dropped")?;
    duo.still_carries()?;
    duo.set(USUAL, narrower(1400));
    let before = duo.too_large();
    duo.carries_all(t)?;
    ensure!(duo.too_large() == before, "what is too large is not sent: {before:?}, then {:?}", duo.too_large());
    Ok(())
}

fn moved(t: &Context) -> anyhow::Result<()> {
    let duo = Duo::copy_leased(t, LEASE_SECONDS)?;
    duo.set(USUAL, slow());
    duo.carry(t)?;
    // Its old address is somebody else's now, as far as the gateway knows.
    duo.premises.gateway.reserve(Mac::numbered(99), PLACES[1], LeaseState::FromBefore);
    duo.premises.gateway.reserve(card(USUAL), site(31), LeaseState::NotYet);
    let has_moved = || duo.status(1).ok().filter(|status| has(status, "203.0.113.31/24 ("));
    let status = duo.machines[1].until(t.within(60), has_moved)?;
    ensure!(!has(&status, "203.0.113.21/24 ("), "{status:#?}");
    duo.still_carries()?;
    duo.set(USUAL, Faults::default());
    duo.carries_all(t)
}

fn removed(t: &Context) -> anyhow::Result<()> {
    let duo = Duo::copy(t)?;
    // Bytes are on their way when it is removed.
    duo.set(USUAL, slow());
    duo.carry(t)?;
    duo.carried_by(t, USUAL)?;
    let [before, _] = duo.marks()?;
    duo.owner.ask(NAME, &duo.machines[0], &["machine", "remove", NAMES[1], "--lost"])?;
    let alone = |line: &Line| (line.text.contains(MESH_CHANGED) && line.text.contains("peers=0")).then_some(());
    let console = duo.machines[0].console();
    console.wait_until(before, "peers=0", t.within(10), alone).context("the first machine keeps its peer")?;
    duo.set(USUAL, Faults::default());
    // The kernel of the removed one knows nothing of that, and goes on.
    let [sent_before, asked_before] = duo.wireguards()?;
    duo.pass(t, SHAKES_HANDS_SECONDS)?;
    let [sent, asked] = duo.wireguards()?;
    ensure!(asked >= asked_before + ASKED, "{} packets of a removed machine came", asked - asked_before);
    ensure!(sent == sent_before, "{} packets went to one that was removed", sent - sent_before);
    duo.still_carries()
}

fn unplugged(t: &Context) -> anyhow::Result<()> {
    let mut duo = Duo::copy_that_carries(t)?;
    duo.plug(t, USUAL, false)?;
    let gap = duo.carried_by(t, OTHER)?;
    t.measured(&format!("the other uplink carries {gap:.1?} after the plug was pulled"));
    ensure!(gap < BY_CARRIER, "{gap:?}");
    duo.plug(t, USUAL, true)?;
    duo.carried_by(t, USUAL).context("the usual uplink is used again")?;
    duo.still_carries()?;
    [USUAL, OTHER].iter().for_each(|cable| duo.set(*cable, Faults::default()));
    duo.carries_all(t)
}

fn silent(t: &Context) -> anyhow::Result<()> {
    let duo = Duo::copy_that_carries(t)?;
    let [_, before] = duo.marks()?;
    duo.set(USUAL, Faults::cut());
    let gap = duo.carried_by(t, OTHER)?;
    t.measured(&format!("the other uplink carries {gap:.1?} after the usual one fell silent"));
    ensure!(gap < SILENTLY, "{gap:?}");
    duo.machines[1].wait_for(before, DETOUR, t.within(20))?;
    duo.still_carries()?;
    duo.set(OTHER, Faults::default());
    duo.carries_all(t)
}

/// The router of the other network puts its own address in the place of the machine's.
fn elsewhere(t: &Context) -> anyhow::Result<()> {
    let mut duo = Duo::copy_with_both_uplinks(t)?;
    let [before, _] = duo.marks()?;
    duo.plug(t, USUAL, false)?;
    let heard = duo.machines[0].wait_for(before, ELSEWHERE, t.within(60))?;
    ensure!(heard.text.contains(&format!("at={}:", site(1))), "{heard:?}");
    Ok(())
}
