//! That a machine joins a cluster by its ticket, and comes back to it by itself.

use anyhow::{Context as _, ensure};
use qemu::Vm;

use crate::{Case, Context, Need, Owner, SITE, Site, wait_state};

pub(crate) const CASES: &[Case] = &[Case {
    name: "a machine joins by its ticket, which is used up, and gets its key back after a restart",
    proves: &["M2", "M3", "S3", "S4", "S8", "K4", "K9"],
    needs: &[Need::Swtpm],
    run: joins,
}];

const NAME: &str = "one";

fn joins(t: &Context) -> anyhow::Result<()> {
    let mut site = Site::new()?;
    let owner = t.owner()?;
    let config = owner.config(NAME, &["--level", "encrypted", "--no-kubernetes", "--node-name", "first"])?;
    let mut first = site.machine(t, "first")?.config(&config)?.start()?;
    owner.status_when_running(NAME, &mut first, t.within(30))?;
    let machines = || owner.ask(NAME, &first, &["machine", "list"]).ok();
    first.until(t.within(40), || {
        let listed = machines()?;
        let addresses = listed["machines"][0]["addresses"].as_array()?.to_vec();
        addresses.iter().any(|it| it.as_str().is_some_and(|it| it.starts_with(SITE))).then_some(())
    })?;
    let issued = owner.ask(NAME, &first, &["ticket", "issue"])?;
    let ticket = issued["ticket"].as_str().context("a ticket has a text")?;

    let choices = ["--level", "encrypted", "--node-name", "second"];
    let joining = owner.config_of_joiner("second", ticket, &choices)?;
    let mut second = site.machine(t, "second")?.config(&joining)?.start()?;
    wait_state(&mut second, "Running", t.within(60))?;

    let listed = machines().context("the first machine does not answer")?;
    let row = listed["machines"].as_array().and_then(|rows| rows.iter().find(|row| row["name"] == "second").cloned());
    let row = row.with_context(|| format!("not listed: {listed:#}"))?;
    ensure!(row["role"] == "node" && row["vpn_ip"] == "10.118.0.2", "{row:#}");
    // It announces itself, and hears its answer, through WireGuard alone.
    first.until(t.within(40), || {
        let listed = machines()?;
        let rows = listed["machines"].as_array()?;
        rows.iter().any(|row| row["name"] == "second" && row["state"] == "Member").then_some(())
    })?;
    let tickets = owner.ask(NAME, &first, &["ticket", "list"])?;
    ensure!(tickets["tickets"][0]["used"] == 1, "{tickets:#}");

    // Its owner reaches it through the first machine, and it answers itself, as who it is.
    let status = owner.ask(NAME, &first, &["-m", "second", "--through", "m1", "machine", "status"])?;
    ensure!(status["name"] == "second" && status["machine_id"] == row["machine_id"], "{status:#}");

    // Its key is with the first machine, whom it asks: nobody else does anything.
    let asked = released(&owner, &first)?.len();
    second.reset(t.within(5))?;
    wait_state(&mut second, "AwaitingKeys", t.within(30))?;
    let (mut runs, mut has_its_address) = (false, false);
    second.console().wait_until("runs as 10.118.0.2", t.within(60), |line| {
        runs |= line.text.contains("state      Running");
        has_its_address |= line.text.contains("vpn        10.118.0.2/");
        (runs && has_its_address).then_some(())
    })?;
    let released = released(&owner, &first)?;
    let id = row["machine_id"].as_str().with_context(|| format!("a machine has an id: {row:#}"))?;
    ensure!(released.len() == asked + 1 && released[asked].contains(id), "{released:#?}");

    // The same ticket lets nobody else in, and the machine says why.
    let config = owner.config_of_joiner("third", ticket, &["--level", "encrypted", "--node-name", "third"])?;
    let mut third = site.machine(t, "third")?.config(&config)?.start()?;
    third.wait_for("the ticket is used up: it has admitted 1 of 1 machines", t.within(60))?;
    Ok(())
}

/// Where the first machine's log tells that it released a key.
fn released(owner: &Owner, first: &Vm) -> anyhow::Result<Vec<String>> {
    let entries = owner.logs(NAME, first, &[])?;
    let lines = entries.iter().filter_map(|entry| entry["line"].as_str());
    Ok(lines.filter(|line| line.contains("a key is released")).map(str::to_owned).collect())
}
