//! The cluster's records in etcd: who may read them, and that what an owner does to them stays.

use super::victim::{self, VICTIM, Victim};
use crate::{Case, Context, Need, Starts};
use anyhow::{Context as _, ensure};
use api::wire::FaultKind;
use qemu::Vm;
use serde_json::{Value, json};

pub(crate) const CASES: &[Case] = &[
    Case {
        name: "etcd shows the cluster's records to nobody but PID 1",
        proves: &["S5", "W7"],
        needs: &[Need::Swtpm],
        starts: Starts::From(VICTIM),
        run: nobody_else,
    },
    Case {
        name: "a ticket is issued, listed and revoked, also after a reboot",
        proves: &["S3"],
        needs: &[Need::Swtpm],
        starts: Starts::Cold,
        run: tickets,
    },
];

const NAME: &str = "one";

fn nobody_else(t: &Context) -> anyhow::Result<()> {
    let mut victim = Victim::copy(t)?;
    victim.vm.until(t.within(30), || are_listed(&victim.ask(&["machine", "list"]).ok()?).then_some(()))?;
    let Victim { vm, owner, session, .. } = &mut victim;
    session.inject(FaultKind::TestService, "test.etcd")?;
    let answers = vm.until(t.within(60), || {
        let lines = owner.logs(victim::NAME, vm, &["test.etcd"]).ok()?;
        let lines: Vec<_> = lines.iter().filter_map(|entry| entry["line"].as_str().map(str::to_owned)).collect();
        (lines.len() >= 24).then_some(lines)
    })?;
    let answer = |who: &str, what: &str| {
        let start = format!("{who}: {what}: ");
        answers.iter().find_map(|line| line.strip_prefix(&start)).with_context(|| format!("no {start}: {answers:#?}"))
    };
    for what in ["read", "write", "delete", "watch"] {
        let cairn = format!("{what} /cairn/");
        for who in ["apiserver", "member"] {
            let said = answer(who, &cairn)?;
            ensure!(said.contains("permission denied"), "{who}: {cairn}: {said}");
        }
        let said = answer("nobody", &cairn)?;
        ensure!(said != "granted", "nobody: {cairn}: {said}");
    }
    let said = answer("revoked", "read /registry/")?;
    ensure!(said != "granted", "etcd takes a certificate that it is to refuse: {answers:#?}");
    for who in ["not yet revoked", "another"] {
        ensure!(answer(who, "read /registry/")? == "granted", "{answers:#?}");
    }
    // It is no refusal of everything.
    for what in ["read /registry/", "write /registry/", "delete /registry/"] {
        ensure!(answer("apiserver", what)? == "granted", "{answers:#?}");
        ensure!(answer("member", what)?.contains("permission denied"), "{answers:#?}");
    }
    Ok(())
}

fn tickets(t: &Context) -> anyhow::Result<()> {
    let owner = t.owner()?;
    let config = owner.config(NAME, &["--level", "encrypted", "--no-kubernetes", "--node-name", "first"])?;
    let vm = t.machine("m").tpm().config(&config)?.start()?;
    let status = owner.status_when_running(NAME, &vm, vm.started(), t.within(30))?;
    let machines = records_are_read(&owner, &vm, t)?;
    let first = &machines["machines"][0];
    ensure!(first["name"] == "first" && first["role"] == "coordinator" && first["state"] == "Member", "{machines:#}");
    ensure!(first["vpn_ip"] == "10.118.0.1" && first["last_seen_unix_ms"].is_u64(), "{machines:#}");
    ensure!(machines["machines"].as_array().is_some_and(|rows| rows.len() == 1), "{machines:#}");

    let issue = |line: &[&str]| owner.ask(NAME, &vm, &[&["ticket", "issue"], line].concat());
    let kept = issue(&["--uses", "3", "--for", "2d", "--kubernetes", "worker"])?;
    let revoked = issue(&["--role", "coordinator"])?;
    for ticket in [&kept, &revoked] {
        let text = ticket["ticket"].as_str().context("a ticket has a text")?;
        let ticket_of_text = keys::ticket::Ticket::from_text(text)?;
        ensure!(ticket["ticket_id"] == ticket_of_text.id().to_string(), "{ticket:#}");
        let (endpoints, port) = (&ticket_of_text.coordinator_public_endpoints, model::PUBLIC_API_PORT);
        ensure!(endpoints.iter().all(|it| it.to_string().ends_with(&format!(":{port}"))), "{endpoints:?}");
    }
    let id = |ticket: &Value| ticket["ticket_id"].as_str().unwrap_or_default().to_owned();
    owner.ask(NAME, &vm, &["ticket", "revoke", &id(&revoked)])?;
    owner.ask(NAME, &vm, &["ticket", "revoke", &id(&revoked)])?; // twice is once
    let unknown = owner.ask(NAME, &vm, &["ticket", "revoke", &"0".repeat(32)]);
    let unknown = unknown.err().context("a ticket that never was is revoked")?;
    ensure!(unknown.code == 6 && unknown.text.contains("does not know this ticket"), "{unknown}");
    let refused = owner.ask(NAME, &vm, &["ticket", "issue", "--kubernetes", "control-plane"]);
    let refused = refused.err().context("a node is to run the control plane")?;
    ensure!(refused.text.contains("only a coordinator runs the Kubernetes control plane"), "{refused}");
    let listed = |vm: &Vm| -> anyhow::Result<Value> {
        let listed = owner.ask(NAME, vm, &["ticket", "list"])?;
        let row =
            |wanted: &Value| listed["tickets"].as_array()?.iter().find(|row| row["ticket_id"] == *wanted).cloned();
        let of = |ticket: &Value| row(&ticket["ticket_id"]).with_context(|| format!("not listed: {listed:#}"));
        let (kept, revoked) = (of(&kept)?, of(&revoked)?);
        Ok(json!([
            kept["state"],
            kept["uses"],
            kept["used"],
            kept["kubernetes_roles"],
            revoked["state"],
            revoked["role"]
        ]))
    };
    let expected = json!(["admits", 3, 0, ["worker"], "revoked", "coordinator"]);
    ensure!(listed(&vm)? == expected, "{:#}", listed(&vm)?);

    owner.ask(NAME, &vm, &["machine", "reboot"])?;
    owner.status_of_next_boot(NAME, &vm, &status, t.within(60))?;
    records_are_read(&owner, &vm, t)?;
    ensure!(listed(&vm)? == expected, "{:#}", listed(&vm)?);
    Ok(())
}

/// Waits until the machine has read the records; the list of machines.
fn records_are_read(owner: &crate::Owner, vm: &Vm, t: &Context) -> anyhow::Result<Value> {
    vm.until(t.within(30), || owner.ask(NAME, vm, &["machine", "list"]).ok().filter(are_listed))
        .context("the cluster's records are not read")
}

fn are_listed(machines: &Value) -> bool {
    machines["machines"][0].is_object()
}
