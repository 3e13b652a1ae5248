//! The mesh of two machines, seen from their cables: nothing goes beside WireGuard, nothing is written while nothing changes, a
//! narrow path, another address and the loss of one of two uplinks are lived through.

use std::collections::BTreeMap;
use std::fs;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use api::wire::{FaultKind, LogsRequest, RestartServiceRequest, StatusRequest, StatusResponse};
use qemu::deadline::Stopwatch;
use qemu::machine::Mac;
use qemu::network::{
    Answer, Cable, Counters, Cut, Direction, Faults, Gateway, GatewaySetup, Held, Host, Network, Reason, Segment,
    Setup, StaticRoute,
};
use qemu::{Deadline, Vm};
use serde_json::json;
use tonic::Status;

use crate::{
    Case, Context, Kind, MESH_CHANGED, Need, Owner, Starts, Stranger, kinds, others, wait_state, wireguard_from,
};

pub(crate) const CASES: &[Case] = &[
    case(
        "a mesh at rest is not written, and between its machines goes nothing but WireGuard",
        &["A2", "M5", "M7", "M8"],
        rest,
    ),
    case("a mesh carries bytes both ways over a path that drops what is too large and says nothing", &["M9"], narrow),
    case("a mesh holds its connections when a machine gets another address", &["M6"], moved),
    case("what a removed machine sends is answered by nothing", &["M4"], removed),
    case("a machine that loses one of two uplinks goes on by the other", &["M6", "M12"], lost),
];

const fn case(name: &'static str, proves: &'static [&'static str], run: fn(&Context) -> anyhow::Result<()>) -> Case {
    Case { name, proves, needs: &[Need::Swtpm], starts: Starts::Cold, run }
}

const NAME: &str = "one";
/// One call to a machine.
const CALL: Duration = Duration::from_secs(30);
const BOTH: [Direction; 2] = [Direction::Sent, Direction::Received];
const NARROW: Words = Words { of: None, are: "the path is narrow" };
const LISTENS: Words = Words { of: Some("test.returns"), are: "listening" };
const CARRIED: Words = Words { of: Some("test.carries"), are: "bytes there and back" };
const RESTORED: Words = Words { of: Some("test.foreign"), are: "the foreign one is gone after" };
const ELSEWHERE: Words = Words { of: None, are: "a machine is heard where it does not say that it is" };
const DETOUR: Words = Words { of: None, are: "the usual way is silent" };
/// Short, so that a machine soon asks for its address again.
const LEASE_SECONDS: u32 = 20;
/// Longer than anything that is tried: what is to be seen is the loss of an uplink, not of its lease.
const LONG_LEASE_SECONDS: u32 = 3600;
/// The second machine's second uplink, where it has one.
const OTHER_UPLINK: usize = 2;
/// So many frames each way are more than leases, neighbours and echoes make in that time: bytes are carried.
const CARRIES: u64 = 40;
/// Packets of a removed machine that are waited for: its kernel tries to shake hands every 5 s.
const ASKED: usize = 4;
/// Two to three times what is promised, for hosts that are busy otherwise.
const BY_CARRIER: Duration = Duration::from_secs(15);
const SILENTLY: Duration = Duration::from_secs(30);

/// What PID 1 or a service of its writes down.
#[derive(Debug, Clone, Copy)]
struct Words {
    of: Option<&'static str>,
    are: &'static str,
}

/// A coordinator and a node, of the debug profile; the owner reaches each by itself.
#[derive(Debug)]
struct Duo {
    _segment: Segment,
    gateway: Gateway,
    outside: Host,
    /// The machines', then the second one's other uplink, where it has two.
    cables: Vec<Cable>,
    captures: [PathBuf; 2],
    owner: Owner,
    machines: [Vm; 2],
}

fn shared(t: &Context) -> anyhow::Result<Arc<Mutex<Duo>>> {
    t.shared("two machines of one mesh", |t| Duo::new(t, Uplinks::One))
}

/// How many uplinks the second machine has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Uplinks {
    One,
    /// Into two networks, between which the gateway passes packets on.
    Two,
}

/// An address of the segment.
const fn site(last: u8) -> Ipv4Addr {
    Ipv4Addr::new(203, 0, 113, last)
}

/// The network card at the end of the `n`-th cable.
fn card(n: usize) -> Mac {
    Mac::numbered([10, 11, 12][n])
}

impl Duo {
    fn new(t: &Context, uplinks: Uplinks) -> anyhow::Result<Self> {
        let network = Network::start(0)?;
        let segment = network.segment();
        let prefix = dhcp::Prefix::new(24).context("24 bits are a prefix")?;
        let (mac, pool) = (Mac::numbered(200), (site(10), site(99)));
        let lease_seconds = if uplinks == Uplinks::One { LEASE_SECONDS } else { LONG_LEASE_SECONDS };
        let setup = GatewaySetup { mac, address: site(1), prefix, pool, lease_seconds };
        let gateway = segment.gateway(&setup)?;
        let (mac, addresses) = (Mac::numbered(201), vec![(site(200), 24)]);
        // To the VPN's addresses it knows no other way than through a machine.
        let routes = vec![StaticRoute { to: [10, 0, 0, 0].into(), prefix: 24, via: site(20) }];
        let outside = segment.host(&Setup { mac, addresses, routes, dhcp: None })?;
        let mut cables = vec![segment.cable()?, segment.cable()?];
        if uplinks == Uplinks::Two {
            let other = |last| Ipv4Addr::new(198, 51, 100, last);
            let (mac, address, pool) = (Mac::numbered(202), other(1), (other(10), other(99)));
            let segment = network.segment();
            segment.gateway(&GatewaySetup { mac, address, prefix, pool, lease_seconds })?;
            cables.push(segment.cable()?);
        }
        fs::create_dir_all(t.dir()).context("make a place for captures")?;
        let captures = ["first", "second"].map(|name| t.dir().join(format!("{name}.pcapng")));
        for n in 0..2 {
            cables[n].capture("eth1", &captures[n])?;
            gateway.reserve(card(n), site([20, 21][n]), Held::NotYet);
        }
        let owner = t.owner()?;
        let plain = ["--level", "encrypted", "--node-name"];
        let founding = ["first", "--no-kubernetes", "--vpn-prefix", "10.0.0.0/24"];
        let config = owner.config(NAME, &[&plain[..], &founding].concat())?;
        let plan = t.debug_machine("first")?.tpm().nic_of(card(0), cables[0].link());
        let first = plan.config(&config)?.start()?;
        owner.status_when_running(NAME, &first, first.started(), t.within(30))?;
        // The ticket names where the first machine is, by what the records say.
        let ticket = first.until(t.within(40), || {
            let listed = owner.ask(NAME, &first, &["machine", "list"]).ok()?;
            let addresses = listed["machines"][0]["addresses"].as_array()?.to_vec();
            addresses.iter().any(|it| it.as_str().is_some_and(|it| it.starts_with("203.0.113.20"))).then_some(())?;
            owner.ask(NAME, &first, &["ticket", "issue"]).ok()?["ticket"].as_str().map(str::to_owned)
        })?;
        let joining = owner.config_of_joiner("second", &ticket, &[&plain[..], &["second"]].concat())?;
        let mut plan = t.debug_machine("second")?.tpm().nic_of(card(1), cables[1].link());
        if let Some(other) = cables.get(OTHER_UPLINK) {
            plan = plan.nic_of(card(OTHER_UPLINK), other.link());
            // The card to the host's own network, which leads nowhere, comes behind the two.
            plan.machine().nics.rotate_left(1);
        }
        let second = plan.config(&joining)?.start()?;
        wait_state(&second, second.started(), "Running", t.within(60))?;
        let machines = [first, second];
        Ok(Self { _segment: segment, gateway, outside, cables, captures, owner, machines })
    }

    /// The machine does what the debug profile's test service of this name does.
    fn inject(&self, n: usize, service: &str) -> anyhow::Result<()> {
        self.session(n)?.inject(FaultKind::TestService, service)?;
        Ok(())
    }

    /// The owner at a machine itself, whatever becomes of the mesh.
    fn session(&self, n: usize) -> anyhow::Result<Stranger> {
        Stranger::meet_as(&self.machines[n], Some(&self.owner.key()?), Deadline::after(CALL))
    }

    /// The second machine sends bytes to the first and gets them back, for the first time or once more.
    fn carry(&self, t: &Context) -> anyhow::Result<()> {
        if !self.said(1, CARRIED)?.is_empty() {
            let again = RestartServiceRequest { name: "test.carries".to_owned() };
            self.session(1)?.call(async |client| client.restart_service(again).await)?;
            return Ok(());
        }
        self.inject(0, "test.returns")?;
        self.says(0, LISTENS, 0, t.within(20))?;
        self.inject(1, "test.carries")
    }

    /// The lines of a machine's log with these words.
    fn said(&self, n: usize, words: Words) -> anyhow::Result<Vec<String>> {
        let request = LogsRequest { subtree: words.of.unwrap_or_default().to_owned(), ..LogsRequest::default() };
        let said = self.session(n)?.call(async |client| {
            let (mut entries, mut said) = (client.logs(request).await?.into_inner(), Vec::new());
            while let Some(entry) = entries.message().await? {
                said.extend(Some(entry.line).filter(|line| line.contains(words.are)));
            }
            Ok::<_, Status>(said)
        });
        Ok(said?)
    }

    /// Waits until a machine has said so more than `before` times; what it said last.
    fn says(&self, n: usize, words: Words, before: usize, deadline: Deadline) -> anyhow::Result<String> {
        let said = || self.said(n, words).ok().filter(|said| said.len() > before)?.pop();
        self.machines[n].until(deadline, said).with_context(|| format!("machine {n} does not say `{}`", words.are))
    }

    /// How often each has written to the kernel's mesh so far: its console has that for good, its log for a while.
    fn written(&mut self) -> [usize; 2] {
        self.machines.each_mut().map(written)
    }

    fn status(&self, n: usize) -> anyhow::Result<StatusResponse> {
        Ok(self.session(n)?.call(async |client| client.status(StatusRequest {}).await)?.into_inner())
    }

    fn set(&self, n: usize, faults: Faults) {
        BOTH.iter().for_each(|direction| self.cables[n].set_faults(*direction, faults));
    }

    fn counters(&self, n: usize) -> [Counters; 2] {
        BOTH.map(|direction| self.cables[n].counters(direction))
    }

    /// How long it takes until bytes are carried by this cable, both ways, from now on.
    fn carried_by(&self, cable: usize, t: &Context) -> anyhow::Result<Duration> {
        let delivered = || self.counters(cable).map(|counters| counters.delivered);
        let (before, since) = (delivered(), Stopwatch::start());
        let carries = || delivered().iter().zip(before).all(|(now, before)| now - before > CARRIES).then_some(());
        self.machines[1].until(t.within(60), carries).with_context(|| format!("cable {cable} carries nothing"))?;
        Ok(since.elapsed())
    }

    /// Pulls the plug of the second machine's first uplink, or puts it back: the machine sees that.
    fn plug(&mut self, up: bool, t: &Context) -> anyhow::Result<()> {
        self.machines[1].qmp().execute("set_link", &json!({ "name": "nic0", "up": up }), t.within(5))?;
        Ok(())
    }

    /// How many of WireGuard's packets the first machine has sent so far, and how many it was sent.
    fn wireguards(&self) -> anyhow::Result<[usize; 2]> {
        let capture = fs::read(&self.captures[0]).context("read a capture")?;
        let sent = wireguard_from(&capture, site(20))?;
        let all = kinds(&capture)?.get(&Kind::WireGuard).copied().unwrap_or_default();
        Ok([sent, all - sent])
    }

    /// Waits until the first machine was sent more of WireGuard's packets; how many it had sent by then.
    fn sends_until_asked(&self, times: usize, t: &Context) -> anyhow::Result<usize> {
        let [_, before] = self.wireguards()?;
        let asked = || self.wireguards().ok().filter(|[_, asked]| *asked >= before + times);
        let [sent, _] =
            self.machines[0].until(t.within(60), asked).context("nobody sends the first machine anything")?;
        Ok(sent)
    }

    /// What a machine's cable has carried so far.
    fn carried(&self, n: usize) -> anyhow::Result<BTreeMap<Kind, usize>> {
        kinds(&fs::read(&self.captures[n]).context("read a capture")?)
    }
}

fn written(machine: &mut Vm) -> usize {
    machine.said().iter().filter(|line| line.text.contains(MESH_CHANGED)).count()
}

fn rest(t: &Context) -> anyhow::Result<()> {
    let shared = shared(t)?;
    let mut duo = shared.lock().unwrap_or_else(PoisonError::into_inner);
    // The smallest prefix that a VPN can have.
    let listed = duo.owner.ask(NAME, &duo.machines[0], &["machine", "list"])?;
    let address =
        |name: &str| listed["machines"].as_array()?.iter().find(|row| row["name"] == name)?["vpn_ip"].as_str();
    ensure!([address("first"), address("second")] == [Some("10.0.0.1"), Some("10.0.0.2")], "{listed:#}");

    // They have joined and hear of each other: a while later all has come to rest.
    let pass = |duo: &Duo, seconds: u64| -> anyhow::Result<()> {
        let end = duo.status(0)?.uptime_ms + 1000 * seconds;
        let over = || duo.status(0).ok().filter(|status| status.uptime_ms > end).map(drop);
        Ok(duo.machines[0].until(t.within(seconds + 30), over)?)
    };
    pass(&duo, 10)?;
    let before = duo.written();
    ensure!(before.iter().all(|writes| *writes > 0), "each has written its peer: {before:?}");
    pass(&duo, 60)?;
    let after = duo.written();
    ensure!(after == before, "written while nothing changes: {before:?}, then {after:?}");

    // Somebody else writes there: what is foreign goes, what is missing comes back.
    duo.inject(1, "test.foreign")?;
    let back = duo.says(1, RESTORED, 0, t.within(30))?;
    ensure!(back.contains("1 peers are back"), "{back}");
    t.measured(&back);
    ensure!(duo.written()[1] > before[1], "that is a write");

    // All of it, from before the first machine had an address until now.
    for n in 0..2 {
        let carried = duo.carried(n)?;
        t.measured(&format!("machine {n}: {carried:?}"));
        ensure!(others(&carried).is_empty(), "beside the VPN: {:?}", others(&carried));
        ensure!(carried.get(&Kind::WireGuard).is_some_and(|packets| *packets > 20), "{carried:?}");
    }
    // Neither etcd nor the VPN API listens on a public address, and the VPN's is not reached from there.
    let ports = [model::ETCD_CLIENT_PORT, model::ETCD_PEER_PORT, model::VPN_API_PORT];
    let public = duo.outside.scan_tcp(site(20), ports, t.within(20))?;
    ensure!(public.ports(Answer::Closed) == ports, "{public:?}");
    let vpn = duo.outside.scan_tcp([10, 0, 0, 1].into(), ports, t.within(20))?;
    ensure!(vpn.answered().is_empty(), "{vpn:?}");
    // That was seen: an eye that sees nothing would have passed, too.
    let carried = duo.carried(0)?;
    let seen = |port: u16| others(&carried).iter().any(|other| other.ends_with(&format!(":{port}")));
    ensure!(ports.into_iter().all(seen), "{carried:?}");
    Ok(())
}

fn narrow(t: &Context) -> anyhow::Result<()> {
    let shared = shared(t)?;
    let mut duo = shared.lock().unwrap_or_else(PoisonError::into_inner);
    let dropped = |[sent, received]: [Counters; 2]| {
        [sent, received].map(|counters| counters.dropped.get(&Reason::Mtu).copied().unwrap_or_default())
    };
    // The way between them breaks, and what comes in its place is narrower.
    let before = duo.written()[1];
    duo.set(1, Faults { cable: Cut::Cut, ..Faults::default() });
    let [first, second] = &mut duo.machines;
    let again = || (written(second) > before).then_some(());
    first.until(t.within(60), again).context("a peer that is not heard is set again")?;
    duo.set(1, Faults { mtu: Some(1400), ..Faults::default() });
    for n in 0..2 {
        let line = duo.says(n, NARROW, 0, t.within(90))?;
        // 1400 less IPv4, UDP and WireGuard, in whole 16 bytes.
        ensure!(line.contains("limit=1328"), "{line}");
    }
    let measured = dropped(duo.counters(1));
    ensure!(measured[0] > 0 && measured[1] > 0, "the cable is narrow both ways: {measured:?}");

    // Narrower than what was measured, nothing is carried: the same segments are dropped again and again. As measured, all is.
    duo.set(1, Faults { mtu: Some(1380), ..Faults::default() });
    duo.carry(t)?;
    let again = || (dropped(duo.counters(1))[0] > measured[0] + 12).then_some(());
    duo.machines[1].until(t.within(30), again).context("what is too large is sent, and dropped")?;
    ensure!(duo.said(1, CARRIED)?.is_empty(), "carried by a path that is narrower");
    duo.set(1, Faults { mtu: Some(1400), ..Faults::default() });
    let before = dropped(duo.counters(1));
    t.measured(&duo.says(1, CARRIED, 0, t.within(90))?);
    ensure!(dropped(duo.counters(1)) == before, "what is too large is not sent: {:?}", dropped(duo.counters(1)));
    duo.set(1, Faults::default());
    Ok(())
}

fn moved(t: &Context) -> anyhow::Result<()> {
    let shared = shared(t)?;
    let duo = shared.lock().unwrap_or_else(PoisonError::into_inner);
    let before = duo.said(1, CARRIED)?.len();
    // So slow that the connection lasts longer than the lease.
    duo.set(1, Faults { rate: Some(3_000_000), ..Faults::default() });
    duo.carry(t)?;
    // Its old address is somebody else's now, as far as the gateway knows.
    duo.gateway.reserve(Mac::numbered(99), site(21), Held::FromBefore);
    duo.gateway.reserve(card(1), site(31), Held::NotYet);
    let has = |status: &StatusResponse, address: Ipv4Addr| {
        status.public_addresses.iter().any(|shown| shown.starts_with(&format!("{address}/24 (")))
    };
    let has_moved = || duo.status(1).ok().filter(|status| has(status, site(31)));
    let status = duo.machines[1].until(t.within(60), has_moved)?;
    ensure!(!has(&status, site(21)), "{status:#?}");
    ensure!(duo.said(1, CARRIED)?.len() == before, "the connection was over before the machine moved");
    duo.set(1, Faults::default());
    t.measured(&duo.says(1, CARRIED, before, t.within(90))?);
    Ok(())
}

/// The last case of the two: one is none of the cluster's any more.
fn removed(t: &Context) -> anyhow::Result<()> {
    let shared = shared(t)?;
    let duo = shared.lock().unwrap_or_else(PoisonError::into_inner);
    let before = duo.said(1, CARRIED)?.len();
    // So slow that bytes are on their way when it is removed.
    duo.set(1, Faults { rate: Some(1_000_000), ..Faults::default() });
    duo.carry(t)?;
    duo.carried_by(1, t)?;
    duo.owner.ask(NAME, &duo.machines[0], &["machine", "remove", "second", "--lost"])?;
    let first = &duo.machines[0];
    let alone = || {
        first.said().iter().rev().find(|line| line.text.contains(MESH_CHANGED))?.text.contains("peers=0").then_some(())
    };
    first.until(t.within(10), alone).context("the first machine keeps its peer")?;
    duo.set(1, Faults::default());
    // The kernel of the removed one knows nothing of that, and goes on.
    let before_that = duo.sends_until_asked(1, t)?;
    let sent = duo.sends_until_asked(ASKED, t)? - before_that;
    ensure!(sent == 0, "the first machine sends {sent} packets to one that was removed");
    ensure!(duo.said(1, CARRIED)?.len() == before, "the connection was over before");
    Ok(())
}

fn lost(t: &Context) -> anyhow::Result<()> {
    let mut duo = Duo::new(t, Uplinks::Two)?;
    // So slow that one connection lasts through all of it.
    for cable in [1, OTHER_UPLINK] {
        duo.set(cable, Faults { rate: Some(1_000_000), ..Faults::default() });
    }
    duo.carry(t)?;
    duo.carried_by(1, t)?;
    duo.plug(false, t)?;
    let by_carrier = duo.carried_by(OTHER_UPLINK, t)?;
    duo.plug(true, t)?;
    duo.carried_by(1, t).context("the usual uplink is used again")?;
    // The cable breaks behind a switch: the card sees nothing of it.
    duo.set(1, Faults { cable: Cut::Cut, ..Faults::default() });
    let silently = duo.carried_by(OTHER_UPLINK, t)?;
    t.measured(&format!(
        "the other uplink carries {by_carrier:.1?} after the plug was pulled, {silently:.1?} after silence"
    ));
    ensure!(by_carrier < BY_CARRIER && silently < SILENTLY, "by carrier {by_carrier:?}, silently {silently:?}");
    duo.says(1, DETOUR, 0, t.within(20))?;
    // The other uplink leads through a router that puts its own address in the place of the machine's.
    let heard = duo.says(0, ELSEWHERE, 0, t.within(30))?;
    ensure!(heard.contains(&format!("at={}:", site(1))), "{heard}");
    ensure!(duo.said(1, CARRIED)?.is_empty(), "the connection was over before");
    duo.set(OTHER_UPLINK, Faults::default());
    t.measured(&duo.says(1, CARRIED, 0, t.within(120))?);
    Ok(())
}
