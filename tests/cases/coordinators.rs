//! That etcd follows the records: machines that are to coordinate become its voters while they run, and nodes again.

use anyhow::{Context as _, ensure};
use qemu::Vm;
use serde_json::Value;

use crate::{Case, Context, Need, Owner, SITE, Site, wait_state};

pub(crate) const CASES: &[Case] = &[Case {
    name: "three coordinators become three voters of etcd, and one of them a node again",
    proves: &["S5", "M8"],
    needs: &[Need::Swtpm],
    run: three,
}];

const NAME: &str = "one";

fn three(t: &Context) -> anyhow::Result<()> {
    let mut site = Site::new()?;
    let owner = t.owner()?;
    let config = owner.config(NAME, &["--level", "encrypted", "--no-kubernetes", "--node-name", "first"])?;
    let mut first = site.machine(t, "first")?.config(&config)?.start()?;
    owner.status_when_running(NAME, &mut first, t.within(30))?;
    listed(&owner, &first, t, "first", |row| {
        row["addresses"]
            .as_array()
            .is_some_and(|all| all.iter().any(|it| it.as_str().is_some_and(|it| it.starts_with(SITE))))
    })?;
    let issued = owner.ask(NAME, &first, &["ticket", "issue", "--uses", "2", "--role", "coordinator"])?;
    let ticket = issued["ticket"].as_str().context("a ticket has a text")?;
    let mut others = Vec::new();
    for name in ["second", "third"] {
        let joining = owner.config_of_joiner(name, ticket, &["--level", "encrypted", "--node-name", name])?;
        others.push(site.machine(t, name)?.config(&joining)?.start()?);
    }
    for other in &mut others {
        wait_state(other, "Running", t.within(60))?;
    }
    for name in ["first", "second", "third"] {
        listed(&owner, &first, t, name, |row| row["role"] == "coordinator" && row["etcd"] == "voter")?;
    }
    owner.ask(NAME, &first, &["machine", "role", "remove", "third", "coordinator", "--wait"])?;
    listed(&owner, &first, t, "third", |row| row["role"] == "node" && row["etcd"].is_null())?;
    others[1].wait_for("this machine is no coordinator any more", t.within(30))?;
    ensure!(listed(&owner, &first, t, "second", |_| true)?["etcd"] == "voter");
    Ok(())
}

/// Waits until the first machine lists a machine as `wanted`.
fn listed(
    owner: &Owner,
    first: &Vm,
    t: &Context,
    name: &str,
    wanted: impl Fn(&Value) -> bool,
) -> anyhow::Result<Value> {
    let row = || {
        let listed = owner.ask(NAME, first, &["machine", "list"]).ok()?;
        let row = listed["machines"].as_array()?.iter().find(|row| row["name"] == name)?.clone();
        Some(row)
    };
    let found = first.until(t.within(60), || row().filter(&wanted));
    found.with_context(|| format!("{name} was last listed as {:#}", row().unwrap_or_default()))
}
