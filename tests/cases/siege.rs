//! That strangers in any number neither keep the owner out nor grow PID 1 nor slow it down. They come from four
//! addresses, the owner from a fifth.

use std::sync::PoisonError;

use anyhow::Context as _;
use api::wire::FaultKind;
use tests::{Case, Context, Crowd, Manner, Need};

use crate::victim::{self, Besieged, Victim};

pub(crate) const CASES: &[Case] = &[case("a flood of handshakes does not slow pid 1 down", &["O2"], handshakes)];

const fn case(name: &'static str, proves: &'static [&'static str], run: fn(&Context) -> anyhow::Result<()>) -> Case {
    Case { name, proves, needs: &[Need::Swtpm], run }
}

fn handshakes(t: &Context) -> anyhow::Result<()> {
    besieged(t, |t, besieged| {
        let Besieged { victim, strangers, .. } = besieged;
        victim.session.inject(FaultKind::TestService, "test.balanced")?;
        let calm = latency(t, victim, 0)?;
        let crowd = Crowd::gather()?;
        strangers.iter().for_each(|address| crowd.more(16, *address, Manner::HangsUp));
        victim.vm.until(t.within(10), || (crowd.handshakes() > 20).then_some(()))?;
        let since = calm.len();
        let (before, cpu) = (crowd.handshakes(), victim.vm.cpu_time());
        let flooded = latency(t, victim, since + 1)?;
        let done = crowd.handshakes() - before;
        let cpu = victim.vm.cpu_time().saturating_sub(cpu);
        for line in &calm {
            t.measured(&format!("balancer, calm: {line}"));
        }
        for line in &flooded {
            t.measured(&format!("balancer, under a flood of handshakes: {line}"));
        }
        t.measured(&format!("handshakes finished meanwhile: {done}; CPU of the machine {cpu:?}"));
        Ok(())
    })
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
