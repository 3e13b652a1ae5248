//! That strangers in any number neither keep the owner out nor grow PID 1 nor slow it down. They come from four
//! addresses, the owner from a fifth and a sixth.

use std::net::SocketAddr;
use std::sync::PoisonError;
use std::time::Duration;

use crate::{Case, Context, Crowd, Manner, Need, Starts};
use anyhow::{Context as _, ensure};
use api::wire::FaultKind;
use qemu::deadline::Stopwatch;
use serde_json::json;

use super::victim::{self, Besieged, NAME, Victim};

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
/// What a busy host may take to see the end of one.
const SEEN: Duration = Duration::from_secs(5);
/// How many times slower the balancer's slowest but five of a hundred may be while strangers shake hands as fast as they
/// may, than on the same machine a moment before.
const TIMES_SLOWER: u64 = 3;

const fn case(name: &'static str, proves: &'static [&'static str], run: fn(&Context) -> anyhow::Result<()>) -> Case {
    Case { name, proves, needs: &[Need::Swtpm], starts: Starts::Cold, run }
}

fn thousand(t: &Context) -> anyhow::Result<()> {
    besieged(t, |t, Besieged { victim, strangers, newcomer }| {
        let crowd = Crowd::gather()?;
        for manner in [Manner::Silent, Manner::SilentBehindTls, Manner::HangsUp, Manner::HalfSent] {
            strangers.iter().for_each(|address| crowd.more(64, *address, manner));
        }
        // They hold all that they can get.
        victim.vm.until(t.within(20), || (crowd.thrown_out().0 > 50).then_some(()))?;
        owner_gets_in(t, victim, *newcomer, "beside a thousand strangers")?;
        let (thrown_out, longest) = crowd.thrown_out();
        t.measured(&format!("{thrown_out} strangers were thrown out; the longest stayed {longest:?}"));
        ensure!(longest < AGE + SEEN, "a stranger stayed for {longest:?}");
        victim::bounded(t, &victim.session.inject(FaultKind::Children, "0")?)
    })
}

fn half_sent(t: &Context) -> anyhow::Result<()> {
    besieged(t, |t, Besieged { victim, strangers, newcomer }| {
        let crowd = Crowd::gather()?;
        strangers.iter().for_each(|address| crowd.more(32, *address, Manner::HalfSent));
        victim.vm.until(t.within(20), || (crowd.handshakes() > 40).then_some(()))?;
        for _ in 0..TRIES {
            // Each line tells what PID 1 holds at that moment.
            victim::bounded(t, &victim.session.inject(FaultKind::Children, "0")?)?;
            victim.vm.until(t.within(5), {
                let seen = crowd.handshakes();
                let crowd = &crowd;
                move || (crowd.handshakes() > seen + 8).then_some(())
            })?;
        }
        owner_gets_in(t, victim, *newcomer, "beside half-sent requests")?;
        t.measured(&format!("{} connections with 32 half-sent requests each", crowd.handshakes()));
        let (_, longest) = crowd.thrown_out();
        ensure!(longest < AGE + SEEN, "a stranger stayed for {longest:?}");
        victim::bounded(t, &victim.session.inject(FaultKind::Children, "0")?)
    })
}

fn vanished(t: &Context) -> anyhow::Result<()> {
    besieged(t, |t, Besieged { victim, strangers, .. }| {
        const PROBE: &str = "test.connections";
        victim.session.inject(FaultKind::TestService, PROBE)?;
        let established = |victim: &Victim| -> Option<u64> {
            let last = victim.lines(PROBE, "established: ").ok()?.pop()?;
            last.strip_prefix("established: ")?.parse().ok()
        };
        let crowd = Crowd::gather()?;
        strangers.iter().for_each(|address| crowd.more(16, *address, Manner::SilentBehindTls));
        // The strangers, the owner's session, and the owner's tool that asks.
        victim.vm.until(t.within(20), || established(victim).filter(|count| *count >= 12))?;
        let cables = |vm: &mut qemu::Vm, up: bool| {
            (1..=strangers.len()).try_for_each(|card| {
                let arguments = json!({ "name": format!("nic{card}"), "up": up });
                vm.qmp().execute("set_link", &arguments, t.within(5)).map(drop)
            })
        };
        cables(&mut victim.vm, false)?;
        let since = Stopwatch::start();
        let gone = victim.vm.until(t.within(20), || established(victim).filter(|count| *count <= 2));
        let took = since.elapsed();
        drop(crowd);
        cables(&mut victim.vm, true)?;
        gone?;
        t.measured(&format!("strangers behind cables that were cut were gone after {took:?}"));
        ensure!(took < AGE + SEEN, "they stayed for {took:?}");
        Ok(())
    })
}

fn handshakes(t: &Context) -> anyhow::Result<()> {
    besieged(t, |t, Besieged { victim, strangers, newcomer }| {
        victim.session.inject(FaultKind::TestService, "test.balanced")?;
        let calm = latency(t, victim, 0)?;
        let crowd = Crowd::gather()?;
        strangers.iter().for_each(|address| crowd.more(16, *address, Manner::HangsUp));
        victim.vm.until(t.within(10), || (crowd.handshakes() > 20).then_some(()))?;
        let (before, cpu) = (crowd.handshakes(), victim.vm.cpu_time());
        let flooded = latency(t, victim, calm.len() + 1)?;
        let done = crowd.handshakes() - before;
        let cpu = victim.vm.cpu_time().saturating_sub(cpu);
        for (when, lines) in [("calm", &calm), ("under a flood of handshakes", &flooded)] {
            lines.iter().for_each(|line| t.measured(&format!("balancer, {when}: {line}")));
        }
        t.measured(&format!("handshakes finished meanwhile: {done}; CPU of the machine {cpu:?}"));
        let slow = |line: &String| line.split_once("within ")?.1.split_once(" us")?.0.parse::<u64>().ok();
        // The best of four lines each: what else the host does must not fail this.
        let best = |lines: &[String]| lines.iter().filter_map(slow).min().context("no figures");
        let (calm, flooded) = (best(&calm)?, best(&flooded)?);
        ensure!(flooded <= TIMES_SLOWER * calm, "the balancer took {flooded} us, {calm} us when it was calm");
        owner_gets_in(t, victim, *newcomer, "beside a flood of handshakes")
    })
}

/// Each try of the owner is answered, and soon, from wherever it comes.
fn owner_gets_in(t: &Context, victim: &Victim, newcomer: SocketAddr, when: &str) -> anyhow::Result<()> {
    let known = victim.vm.forward(model::PUBLIC_API_PORT).context("the public API's port is not forwarded")?;
    let mut longest = Duration::ZERO;
    for (from, address) in [("a known address", known), ("a new address", newcomer)] {
        for number in 0..TRIES {
            let (began, in_time) = (Stopwatch::start(), t.within(TRY_SECONDS));
            let asked = ["-c", NAME, "--address", &address.to_string(), "-o", "json", "machine", "status"];
            victim.owner.run(&asked).with_context(|| format!("{when}, try {number} from {from}"))?;
            ensure!(in_time.left().is_some(), "{when}, try {number} from {from} took {:?}", began.elapsed());
            longest = longest.max(began.elapsed());
        }
    }
    t.measured(&format!("{when}, the owner got in at each of {} tries, the slowest took {longest:?}", 2 * TRIES));
    Ok(())
}

/// Waits for four lines behind the first `since` of what the balancer's client wrote down.
fn latency(t: &Context, victim: &mut Victim, since: usize) -> anyhow::Result<Vec<String>> {
    let mut last = None;
    let lines = victim.vm.until(t.within(20), || {
        let entries = victim.logs(&["test.latency"]).map_err(|error| last = Some(error)).ok()?;
        let lines = entries.iter().skip(since).filter_map(|entry| entry["line"].as_str().map(str::to_owned));
        let lines: Vec<String> = lines.collect();
        (lines.len() >= 4).then_some(lines)
    });
    lines.with_context(|| format!("{last:?}"))
}

fn besieged(t: &Context, run: impl FnOnce(&Context, &mut Besieged) -> anyhow::Result<()>) -> anyhow::Result<()> {
    let shared = victim::besieged(t)?;
    let mut besieged = shared.lock().unwrap_or_else(PoisonError::into_inner);
    run(t, &mut besieged)
}
