//! The cluster's records in etcd: who may read them, and that what an owner does to them stays.

use anyhow::{Context as _, ensure};
use api::wire::FaultKind;
use keys::ticket::Ticket;
use serde_json::{Value, json};

use super::victim::{VICTIM, Victim};
use crate::{Case, Context, Fleet, FleetKind, NAME, Owner, Prerequisite, REFUSED, Starts, name};

pub(crate) const CASES: &[Case] = &[
    Case {
        name: "etcd shows the cluster's records to nobody but PID 1",
        proves: &["S5", "W7"],
        needs: &[Prerequisite::Swtpm],
        starts: Starts::From(VICTIM),
        run: nobody_else,
    },
    Case {
        name: "etcd refuses a certificate that was revoked, and no other",
        proves: &["S5"],
        needs: &[Prerequisite::Swtpm],
        starts: Starts::From(VICTIM),
        run: revoked_certificate,
    },
    Case {
        name: "a full etcd takes no writes until it is defragmented",
        proves: &["Q4"],
        needs: &[Prerequisite::Swtpm],
        starts: Starts::From(VICTIM),
        run: full,
    },
    case("a ticket is listed as it was issued", issued),
    Case { proves: &["S8"], ..case("a golden ticket is listed as a ticket that was issued", golden) },
    case("a ticket that was revoked is listed so, and no other is", revoked),
    case("a ticket that never was is not revoked", unknown),
    case("a ticket makes workers, and no control plane", kubernetes),
    case("tickets are listed after a reboot as before", rebooted),
    Case {
        proves: &["Q1"],
        starts: Starts::From(FleetKind::Five),
        ..case("every machine lets a new owner in, and a removed one out", owners)
    },
];

const fn case(name: &'static str, run: fn(&Context) -> anyhow::Result<()>) -> Case {
    Case { name, proves: &["S3"], needs: &[Prerequisite::Swtpm], starts: Starts::From(LONE), run }
}

const LONE: FleetKind = FleetKind::Lone;

fn nobody_else(t: &Context) -> anyhow::Result<()> {
    let answers = Answers::of(t)?;
    for what in ["read", "write", "delete", "watch"] {
        let cairn = format!("{what} /cairn/");
        for who in ["apiserver", "member"] {
            answers.told(who, &cairn, |said| said.contains("permission denied"))?;
        }
        answers.told("nobody", &cairn, |said| said != "granted")?;
    }
    // It is no refusal of everything.
    for what in ["read /registry/", "write /registry/", "delete /registry/"] {
        answers.told("apiserver", what, |said| said == "granted")?;
        answers.told("member", what, |said| said.contains("permission denied"))?;
    }
    Ok(())
}

fn revoked_certificate(t: &Context) -> anyhow::Result<()> {
    let answers = Answers::of(t)?;
    answers.told("revoked", "read /registry/", |said| said != "granted")?;
    ["not yet revoked", "another"]
        .iter()
        .try_for_each(|who| answers.told(who, "read /registry/", |said| said == "granted"))
}

/// The alarm is raised by hand: until the file has reached its quota of 2 GiB an emulated machine would write for an hour. A lone
/// coordinator looks at its etcd once a minute.
fn full(t: &Context) -> anyhow::Result<()> {
    let mut victim = Victim::copy(t)?;
    victim.vm.until(t.within(30), || victim.ask(&["ticket", "issue"]).ok())?;
    victim.session.inject(FaultKind::TestService, "test.full")?;
    let reason = victim.vm.until(t.within(60), || why_full(&victim.ask(&["condition", "list"]).ok()?));
    let reason = reason.context("no condition tells of it")?;
    ensure!(reason.contains("then: cairnctl etcd defragment"), "{reason}");
    let listed = victim.ask(&["etcd", "status"])?;
    ensure!(listed["members"][0]["alarms"] == json!(["NOSPACE"]), "{listed:#}");
    let refused = victim.ask(&["ticket", "issue"]).err().context("etcd takes writes")?.to_string();
    ensure!(refused.contains(&reason) && refused.contains("nothing was changed"), "{refused}");
    let mended = victim.ask(&["etcd", "defragment"])?;
    ensure!(mended["nospace"] == "disarmed", "{mended:#}");
    victim.ask(&["ticket", "issue"]).context("etcd takes no writes")?;
    let listed = victim.ask(&["etcd", "status"])?;
    ensure!(listed["members"][0]["alarms"] == json!([]), "{listed:#}");
    Ok(())
}

/// Reason why etcd has no room, where a list of conditions says so.
fn why_full(conditions: &Value) -> Option<String> {
    let room = conditions.as_array()?.iter().find(|condition| condition["name"] == "EtcdHasRoom")?;
    (room["status"] == "false").then(|| room["reason"].as_str().unwrap_or_default().to_owned())
}

/// Answers that etcd gives to whoever asks it from inside the machine.
struct Answers(Vec<String>);

impl Answers {
    fn of(t: &Context) -> anyhow::Result<Self> {
        let mut victim = Victim::copy(t)?;
        victim.vm.until(t.within(30), || are_listed(&victim.ask(&["machine", "list"]).ok()?).then_some(()))?;
        victim.session.inject(FaultKind::TestService, "test.etcd")?;
        let all = victim.vm.until(t.within(60), || {
            let lines = victim.lines("test.etcd", "").ok()?;
            (lines.len() >= 24).then_some(lines)
        });
        all.map(Self).context("not all have asked")
    }

    /// Checks that `who`, asking for `what`, is told something that `fits`.
    fn told(&self, who: &str, what: &str, fits: impl Fn(&str) -> bool) -> anyhow::Result<()> {
        let start = format!("{who}: {what}: ");
        let said = self.0.iter().find_map(|line| line.strip_prefix(&start));
        ensure!(said.is_some_and(fits), "{start}{said:?}: {:#?}", self.0);
        Ok(())
    }
}

/// Options of a ticket, as it is issued and listed.
const ISSUED: [&str; 4] = ["--uses", "3", "--for", "2d"];

fn issued(t: &Context) -> anyhow::Result<()> {
    let fleet = Fleet::copy(t, LONE)?;
    let (node, coordinator) = (fleet.ticket(&ISSUED)?, fleet.ticket(&["--role", "coordinator"])?);
    ensure!(listed(&fleet, &node)? == as_issued(), "{:#}", listed(&fleet, &node)?);
    let expected = json!(["admits", 1, 0, "coordinator", []]);
    ensure!(listed(&fleet, &coordinator)? == expected, "{:#}", listed(&fleet, &coordinator)?);
    Ok(())
}

fn golden(t: &Context) -> anyhow::Result<()> {
    let fleet = Fleet::copy(t, LONE)?;
    let golden = fleet.ask(&[&["goldenticket"], &ISSUED[..]].concat())?;
    let ticket = Ticket::from_text(golden["ticket"].as_str().context("a ticket has a text")?)?;
    ensure!(golden["ticket_id"] == ticket.id().to_string(), "the text is another ticket's: {golden:#}");
    ensure!(listed(&fleet, &ticket)? == as_issued(), "{:#}", listed(&fleet, &ticket)?);
    Ok(())
}

fn revoked(t: &Context) -> anyhow::Result<()> {
    let fleet = Fleet::copy(t, LONE)?;
    let (kept, revoked) = (fleet.ticket(&ISSUED)?, fleet.ticket(&ISSUED)?);
    for _twice_is_once in 0..2 {
        fleet.ask(&["ticket", "revoke", &revoked.id().to_string()])?;
        ensure!(listed(&fleet, &revoked)?[0] == "revoked", "{:#}", listed(&fleet, &revoked)?);
    }
    ensure!(listed(&fleet, &kept)? == as_issued(), "{:#}", listed(&fleet, &kept)?);
    Ok(())
}

fn unknown(t: &Context) -> anyhow::Result<()> {
    let fleet = Fleet::copy(t, LONE)?;
    let answer = fleet.owner().ask(NAME, fleet.vm(1)?, &["ticket", "revoke", &"0".repeat(32)]);
    let refused = answer.err().context("a ticket that never was is revoked")?;
    ensure!(refused.code == 6 && refused.text.contains("does not know this ticket"), "{refused}");
    Ok(())
}

fn kubernetes(t: &Context) -> anyhow::Result<()> {
    let fleet = Fleet::copy(t, LONE)?;
    let before = fleet.ask(&["ticket", "list"])?;
    for role in ["node", "coordinator"] {
        let refused = fleet.ask(&["ticket", "issue", "--role", role, "--kubernetes", "control-plane"]);
        let refused = refused.err().with_context(|| format!("control plane of a {role}: it is issued"))?.to_string();
        ensure!(refused.contains("its etcd does not vote yet; nothing was changed"), "{refused}");
    }
    let after = fleet.ask(&["ticket", "list"])?;
    ensure!(after == before, "{before:#} became {after:#}");
    fleet.ticket(&["--kubernetes", "worker"]).map(drop)
}

fn rebooted(t: &Context) -> anyhow::Result<()> {
    let fleet = Fleet::copy(t, LONE)?;
    let (kept, revoked) = (fleet.ticket(&ISSUED)?, fleet.ticket(&ISSUED)?);
    fleet.ask(&["ticket", "revoke", &revoked.id().to_string()])?;
    let both = || anyhow::Ok([listed(&fleet, &kept)?, listed(&fleet, &revoked)?]);
    let before = both()?;
    ensure!(before[0] == as_issued() && before[1][0] == "revoked", "{before:#?}");
    let status = fleet.owner().status(NAME, fleet.vm(1)?)?;
    fleet.ask(&["machine", "reboot"])?;
    fleet.owner().status_of_next_boot(NAME, fleet.vm(1)?, &status, t.within(60))?;
    fleet.until(t.within(30), || {
        let machines = fleet.ask(&["machine", "list"])?;
        ensure!(are_listed(&machines), "the cluster's records are not read");
        Ok(())
    })?;
    ensure!(both()? == before, "{:#?} instead of {before:#?}", both()?);
    Ok(())
}

/// A ticket as it is listed: its state, how often it admits and has admitted, and what.
fn listed(fleet: &Fleet, ticket: &Ticket) -> anyhow::Result<Value> {
    let row = fleet.ticket_row(ticket)?;
    Ok(["state", "uses", "used", "role", "kubernetes_roles"].map(|field| row[field].clone()).into_iter().collect())
}

/// A ticket of [`ISSUED`] as it has to be listed.
fn as_issued() -> Value {
    json!(["admits", 3, 0, "node", []])
}

fn are_listed(machines: &Value) -> bool {
    machines["machines"][0].is_object()
}

/// Coordinators go by their own records, nodes by what they are told.
fn owners(t: &Context) -> anyhow::Result<()> {
    let (fleet, new) = (Fleet::copy(t, FleetKind::Five)?, Owner::new(t.dir().join("new"))?);
    let added = fleet.ask(&["owner", "add", new.run(&["owner", "show"])?.trim()])?;
    let text = |field: &str| added[field].as_str().context("a text").map(str::to_owned);
    let place = text("place")?;
    fleet.until(t.within(2), || Ok(new.run(&["cluster", "connect", &place, "--name", NAME])?))?;
    new.run(&["-c", NAME, "machine", "list"])?;
    let asks = |machine: u32| {
        Ok::<_, anyhow::Error>(new.ask(NAME, fleet.vm(machine)?, &["-m", &name(machine), "machine", "status"]))
    };
    for machine in fleet.on() {
        fleet.until(t.within(2), || Ok(asks(machine)??))?;
    }
    fleet.ask(&["owner", "remove", &text("public_key")?, "--yes"])?;
    let let_out = |machine| asks(machine)?.err().filter(|refused| refused.code == REFUSED).context("it is let in");
    for machine in fleet.on() {
        fleet.until(t.within(2), || let_out(machine))?;
    }
    Ok(())
}
