//! That a blank machine is activated from outside by the code on its screen, by nobody else, and once.

use std::thread;

use anyhow::{Context as _, ensure};
use qemu::{Deadline, Vm};

use crate::{Case, Context, Need, Refused, Relay, SITE, Site, Starts, Stranger, wait_state};

pub(crate) const CASES: &[Case] = &[Case {
    name: "a blank machine is activated by the code on its screen, once, and by nobody between or without it",
    proves: &["A1", "A5", "F2", "N1", "S2"],
    needs: &[Need::Swtpm],
    starts: Starts::Cold,
    run: activated,
}];

const NAME: &str = "one";
/// Exit code of `cairnctl` for what it does not trust, and for what the machine refuses.
const REFUSED: i32 = 4;
const LEVEL: [&str; 2] = ["--level", "encrypted"];

fn activated(t: &Context) -> anyhow::Result<()> {
    let (mut site, owner) = (Site::new()?, t.owner()?);
    let mut first = site.machine(t, "first")?.start()?;
    let mut second = site.machine(t, "second")?.start()?;
    let (_, code) = screen(&mut first, t.within(40))?;
    let (there, others_code) = screen(&mut second, t.within(40))?;
    ensure!(code != others_code, "each machine has its own code");

    // Whoever does not know the code is told nothing of a config, and nothing happens to the machine.
    let at = address(&first)?;
    let init = |at: &str, code: &str| {
        let line = ["cluster", "init", at, "--code", code, "--name", NAME, "--node-name", "first", "--no-kubernetes"];
        owner.run(&[&line[..], &LEVEL].concat())
    };
    refused(init(&at, &others_code), "does not know this code")?;
    let relay = Relay::before(&first)?;
    let between = relay.address()?.to_string();
    let asked = thread::scope(|scope| {
        let passing = scope.spawn(|| relay.pass_on(t.within(10)));
        let asked = init(&between, &code);
        passing.join().expect("a relay does not panic").map(|()| asked)
    })?;
    refused(asked, "does not know this code")?;
    ensure!(Stranger::meet(&first, t.within(10))?.state()?.state == model::MachineState::Blank, "it waits on");
    init(&at, &code).context("the right code")?;

    // Two at once, one of them through the first machine: the second one joins by the one that was faster.
    let machines = || owner.ask(NAME, &first, &["machine", "list"]).ok();
    first.until(t.within(40), || {
        let listed = machines()?;
        let addresses = listed["machines"][0]["addresses"].as_array()?.to_vec();
        addresses.iter().any(|it| it.as_str().is_some_and(|it| it.starts_with(SITE))).then_some(())
    })?;
    let issued = owner.ask(NAME, &first, &["ticket", "issue", "--uses", "2"])?;
    let ticket = issued["ticket"].as_str().context("a ticket has a text")?;
    let activate = |more: &[&str]| {
        let line = ["-c", NAME, "machine", "activate", "--code", &others_code, "--ticket", ticket];
        owner.run(&[&line[..], &LEVEL, more].concat())
    };
    let direct = address(&second)?;
    let both = thread::scope(|scope| {
        let through = scope.spawn(|| activate(&["--through", "m1", &there]));
        [activate(&[&direct]), through.join().expect("a command does not panic")]
    });
    let (done, late): (Vec<_>, Vec<_>) = both.into_iter().partition(Result::is_ok);
    ensure!(done.len() == 1, "one of two activates the machine: {late:?}");
    for late in late {
        ensure!(late.as_ref().is_err_and(|late| late.code == REFUSED), "{late:?}");
    }
    wait_state(&second, second.started(), "Running", t.within(60))?;
    first.until(t.within(40), || {
        let listed = machines()?;
        let mut members = listed["machines"].as_array()?.iter().filter(|row| row["state"] == "Member");
        (members.by_ref().count() == 2).then_some(())
    })?;
    let kept = owner.logs(NAME, &first, &[])?;
    ensure!(!kept.is_empty() && kept.iter().all(|entry| !entry.to_string().contains(&code)), "the code is in a log");
    Ok(())
}

/// Where a blank machine is on the site, and its code, as its screen says.
fn screen(vm: &mut Vm, deadline: Deadline) -> anyhow::Result<(String, String)> {
    let (mut there, mut code) = (None, None);
    Ok(vm.console().wait_until(vm.started(), "an address and a code", deadline, |line| {
        let words = || line.text.split_whitespace();
        if line.text.starts_with("  address ") {
            there = words().find(|word| word.starts_with(SITE)).and_then(|it| it.split('/').next()).map(str::to_owned);
        }
        if line.text.starts_with("  activate ") {
            code = words().skip_while(|word| *word != "--code").nth(1).map(str::to_owned);
        }
        there.clone().zip(code.clone())
    })?)
}

fn address(vm: &Vm) -> anyhow::Result<String> {
    Ok(vm.forward(model::PUBLIC_API_PORT).context("the public API's port is not forwarded")?.to_string())
}

fn refused(asked: Result<String, Refused>, why: &str) -> anyhow::Result<()> {
    let refused = asked.err().context("it was taken")?;
    ensure!(refused.code == REFUSED && refused.text.contains(why), "{refused}");
    Ok(())
}
