//! Shows that strangers in any number neither keep the owner out nor grow PID 1 nor slow it down. They come from four
//! addresses, the owner from a fifth and a sixth. Each case has a copy of the machine.

use std::time::Duration;

use crate::{Case, Context, Crowd, Manner, Prerequisite, Starts, public_api};
use anyhow::{Context as _, ensure};
use api::wire::FaultKind;
use qemu::deadline::Stopwatch;
use serde_json::json;

use super::victim::{self, BESIEGED, Besieged, NAME, Victim};

pub(crate) const CASES: &[Case] = &[
    case("a thousand strangers do not keep the owner out", &["Q1"], thousand),
    case("half-sent requests from four addresses do not grow pid 1", &["Q1", "O2"], half_sent),
    case("a flood of handshakes does not slow pid 1 down", &["Q1", "O2"], handshakes),
    case("strangers that vanish are gone after their deadline", &["Q1"], vanished),
];

/// The owner's tries in each attack, from an address that it came from before, and from one that is new.
const TRIES: usize = 10;
/// A try of the owner on a host with acceleration takes a tenth of this; `Context::within` stretches it.
const TRY_SECONDS: u64 = 3;
/// The greatest age of a stranger's connection.
const AGE: Duration = Duration::from_secs(15);
/// Time that a busy host may take to see the end of a connection.
const SEEN: Duration = Duration::from_secs(5);
/// The test service that writes down how many connections there are, and how its lines begin.
const CONNECTIONS: &str = "test.connections";
const ESTABLISHED: &str = "established: ";
/// How many times slower the balancer's slowest but five of a hundred may be while strangers shake hands as fast as they
/// may, than on the same machine a moment before.
const TIMES_SLOWER: u64 = 3;

const fn case(name: &'static str, proves: &'static [&'static str], run: fn(&Context) -> anyhow::Result<()>) -> Case {
    Case { name, proves, needs: &[Prerequisite::Swtpm], starts: Starts::From(BESIEGED), run }
}

fn thousand(t: &Context) -> anyhow::Result<()> {
    let mut siege = Besieged::copy(t)?;
    let crowd = Crowd::gather()?;
    for manner in [Manner::Silent, Manner::SilentBehindTls, Manner::HangsUp, Manner::HalfSent] {
        siege.come(&crowd, 64, manner);
    }
    // They hold all that they can get.
    siege.victim.vm.until(t.within(20), || (crowd.thrown_out().0 > 50).then_some(()))?;
    siege.owner_gets_in(t, "beside a thousand strangers")?;
    nobody_stays(t, &crowd)?;
    siege.is_bounded(t)
}

fn half_sent(t: &Context) -> anyhow::Result<()> {
    let mut siege = Besieged::copy(t)?;
    let crowd = Crowd::gather()?;
    siege.come(&crowd, 32, Manner::HalfSent);
    siege.victim.vm.until(t.within(20), || (crowd.handshakes() > 40).then_some(()))?;
    for _ in 0..TRIES {
        siege.is_bounded(t)?;
        let seen = crowd.handshakes();
        siege.victim.vm.until(t.within(5), || (crowd.handshakes() > seen + 8).then_some(()))?;
    }
    siege.owner_gets_in(t, "beside half-sent requests")?;
    t.measured(&format!("{} connections with 32 half-sent requests each", crowd.handshakes()));
    nobody_stays(t, &crowd)?;
    siege.is_bounded(t)
}

/// The strangers' cables are pulled: nothing tells the machine that they are gone.
fn vanished(t: &Context) -> anyhow::Result<()> {
    let mut siege = Besieged::copy(t)?;
    siege.victim.session.inject(FaultKind::TestService, CONNECTIONS)?;
    let crowd = Crowd::gather()?;
    siege.come(&crowd, 16, Manner::SilentBehindTls);
    // The strangers, the owner's session, and the owner's tool that asks.
    siege.established(t, |count| count >= 12)?;
    siege.pull_strangers_cables(t)?;
    let since = Stopwatch::start();
    siege.established(t, |count| count <= 2)?;
    let took = since.elapsed();
    t.measured(&format!("strangers behind cables that were cut were gone after {took:?}"));
    ensure!(took < AGE + SEEN, "they stayed for {took:?}");
    Ok(())
}

fn handshakes(t: &Context) -> anyhow::Result<()> {
    let mut siege = Besieged::copy(t)?;
    siege.victim.session.inject(FaultKind::TestService, "test.balanced")?;
    let calm = siege.latency(t, 0)?;
    let crowd = Crowd::gather()?;
    siege.come(&crowd, 16, Manner::HangsUp);
    siege.victim.vm.until(t.within(10), || (crowd.handshakes() > 20).then_some(()))?;
    let (before, cpu) = (crowd.handshakes(), siege.victim.vm.cpu_time());
    let flooded = siege.latency(t, calm.len() + 1)?;
    let (done, cpu) = (crowd.handshakes() - before, siege.victim.vm.cpu_time().saturating_sub(cpu));
    for (when, lines) in [("calm", &calm), ("under a flood of handshakes", &flooded)] {
        lines.iter().for_each(|line| t.measured(&format!("balancer, {when}: {line}")));
    }
    t.measured(&format!("handshakes finished meanwhile: {done}; CPU of the machine {cpu:?}"));
    let (calm, flooded) = (best(&calm)?, best(&flooded)?);
    ensure!(flooded <= TIMES_SLOWER * calm, "the balancer took {flooded} us, {calm} us when it was calm");
    siege.owner_gets_in(t, "beside a flood of handshakes")
}

impl Besieged {
    /// So many strangers more at each of their addresses.
    fn come(&self, crowd: &Crowd, how_many: usize, manner: Manner) {
        self.strangers.iter().for_each(|address| crowd.more(how_many, *address, manner));
    }

    /// Checks that PID 1 does not hold too much at this moment.
    fn is_bounded(&mut self, t: &Context) -> anyhow::Result<()> {
        victim::bounded(t, &self.victim.session.inject(FaultKind::Children, "0")?)
    }

    /// Each try of the owner is answered, and soon, from wherever it comes.
    fn owner_gets_in(&self, t: &Context, when: &str) -> anyhow::Result<()> {
        let Victim { vm, owner, .. } = &self.victim;
        let known = public_api(vm)?;
        let mut longest = Duration::ZERO;
        for (from, address) in [("a known address", known), ("a new address", self.newcomer)] {
            for number in 0..TRIES {
                let (began, in_time) = (Stopwatch::start(), t.within(TRY_SECONDS));
                let asked = ["-c", NAME, "--address", &address.to_string(), "-o", "json", "machine", "status"];
                owner.run(&asked).with_context(|| format!("{when}, try {number} from {from}"))?;
                ensure!(in_time.left().is_some(), "{when}, try {number} from {from} took {:?}", began.elapsed());
                longest = longest.max(began.elapsed());
            }
        }
        t.measured(&format!("{when}, the owner got in at each of {} tries, the slowest took {longest:?}", 2 * TRIES));
        Ok(())
    }

    /// Waits until the machine's kernel counts so many connections of the public port.
    fn established(&self, t: &Context, wanted: impl Fn(u64) -> bool) -> anyhow::Result<()> {
        let mut last = None;
        let counted = self.victim.vm.until(t.within(20), || {
            let count =
                self.victim.lines(CONNECTIONS, ESTABLISHED).ok()?.pop()?.strip_prefix(ESTABLISHED)?.parse().ok();
            last = count.or(last);
            count.filter(|count| wanted(*count)).map(drop)
        });
        counted.with_context(|| format!("connections that are established: {last:?}"))
    }

    /// Pulls the plugs of all cards by which strangers come.
    fn pull_strangers_cables(&mut self, t: &Context) -> anyhow::Result<()> {
        for card in 1..=self.strangers.len() {
            let arguments = json!({ "name": format!("nic{card}"), "up": false });
            self.victim.vm.qmp().execute("set_link", &arguments, t.within(5))?;
        }
        Ok(())
    }

    /// Waits for four lines behind the first `since` of what the balancer's client wrote down.
    fn latency(&self, t: &Context, since: usize) -> anyhow::Result<Vec<String>> {
        let mut last = None;
        let lines = self.victim.vm.until(t.within(20), || {
            let lines = self.victim.lines("test.latency", "").map_err(|error| last = Some(error)).ok()?;
            lines.get(since..).filter(|lines| lines.len() >= 4).map(<[String]>::to_vec)
        });
        lines.with_context(|| format!("{last:?}"))
    }
}

/// The best of four lines' figures: what else the host does must not fail this.
fn best(lines: &[String]) -> anyhow::Result<u64> {
    let slow = |line: &String| line.split_once("within ")?.1.split_once(" us")?.0.parse::<u64>().ok();
    lines.iter().filter_map(slow).min().context("no figures")
}

/// No stranger was borne for longer than the machine allows.
fn nobody_stays(t: &Context, crowd: &Crowd) -> anyhow::Result<()> {
    let (thrown_out, longest) = crowd.thrown_out();
    t.measured(&format!("{thrown_out} strangers were thrown out; the longest stayed {longest:?}"));
    ensure!(longest < AGE + SEEN, "a stranger stayed for {longest:?}");
    Ok(())
}
