//! That a machine joins a cluster by its ticket, and comes back to it by itself.

use std::collections::BTreeSet;

use anyhow::{Context as _, Error, bail, ensure};
use api::KeyAsked;
use cluster::record::Release;
use cluster::redeem::Body;
use keys::endpoint::Endpoint;
use keys::identity::SigningKey;
use keys::recovery::RecoveryPubKey;
use keys::ticket::Ticket;
use model::{
    BootClass, DiskUuid, Level, OwnerPubKey, PUBLIC_API_PORT, PartitionKind, RootHash, Secret, TicketPubKey, Uuid,
    VpnPubKey,
};
use qemu::Vm;

use crate::writer::drawn;
use crate::{Case, Context, Joiner, Need, Owner, Records, SITE, Site, Starts, wait_state};

pub(crate) const CASES: &[Case] = &[
    Case {
        name: "a machine joins by its ticket, which is used up, and gets its key back after a restart",
        proves: &["M2", "M3", "S3", "S4", "S8", "K4", "K9"],
        needs: &[Need::Swtpm],
        starts: Starts::Cold,
        run: joins,
    },
    Case {
        name: "a join that is cut at any of its steps goes on as the same machine, and by the same use of its ticket",
        proves: &["S4", "D4", "D7"],
        needs: &[Need::Swtpm],
        starts: Starts::Cold,
        run: cut,
    },
    Case {
        name: "a ticket that lets nobody in says why, and leaves the machine's disk as it was",
        proves: &["S3", "S4"],
        needs: &[Need::Swtpm],
        starts: Starts::Cold,
        run: refused,
    },
    Case {
        name: "whoever asks with another machine's disk or key is refused, and so is whoever was removed",
        proves: &["S3", "K7", "K9"],
        needs: &[Need::Swtpm],
        starts: Starts::Cold,
        run: anothers,
    },
];

const NAME: &str = "one";
/// Of a disk that is looked at.
const DISK_MIB: u64 = 1024;
/// What each machine is asked to be.
const LEVEL: [&str; 2] = ["--level", "encrypted"];

/// A cluster's first machine, which knows where others find it.
fn first(t: &Context, site: &mut Site, owner: &Owner) -> anyhow::Result<Vm> {
    let config = owner.config(NAME, &[&LEVEL[..], &["--no-kubernetes", "--node-name", "first"]].concat())?;
    let first = site.machine(t, "first")?.config(&config)?.start()?;
    owner.status_when_running(NAME, &first, first.started(), t.within(30))?;
    first.until(t.within(40), || {
        let listed = owner.ask(NAME, &first, &["machine", "list"]).ok()?;
        let addresses = listed["machines"][0]["addresses"].as_array()?.to_vec();
        addresses.iter().any(|it| it.as_str().is_some_and(|it| it.starts_with(SITE))).then_some(())
    })?;
    Ok(first)
}

/// A machine that is switched off at each step of its join, one after the other, and on again.
fn cut(t: &Context) -> anyhow::Result<()> {
    const STEPS: [&str; 11] = [
        "attempt",
        "redeem",
        "grow-data",
        "layers",
        "mkfs",
        "keys",
        "directory",
        "seal",
        "erase-attempt",
        "commit",
        "remove-config",
    ];
    let (mut site, owner) = (Site::new()?, t.owner()?);
    let first = first(t, &mut site, &owner)?;
    let issued = owner.ask(NAME, &first, &["ticket", "issue"])?;
    let ticket = issued["ticket"].as_str().context("a ticket has a text")?;
    let joining = owner.config_of_joiner("second", ticket, &[&LEVEL[..], &["--node-name", "second"]].concat())?;
    let plan = site.machine(t, "second")?.config(&joining)?;
    let (mut ids, mut cuts) = (BTreeSet::new(), 0);
    for step in STEPS {
        let second = plan.start()?;
        let at = format!(" ({step})");
        // What an earlier attempt has made durable is not done twice: then it runs.
        let is_there = second.console().wait_until(second.started(), &at, t.within(60), |line| {
            let state = line.text.contains("  state      ");
            (state && (line.text.contains(&at) || line.text.contains("Running"))).then(|| line.text.contains(&at))
        })?;
        second.kill();
        cuts += usize::from(is_there);
        let listed = owner.ask(NAME, &first, &["machine", "list"])?;
        let rows = listed["machines"].as_array().context("a list of machines")?;
        ids.extend(rows.iter().filter_map(|row| row["machine_id"].as_str().map(str::to_owned)));
    }
    t.measured(&format!("cut at {cuts} of {} steps", STEPS.len()));
    ensure!(cuts >= 10, "only {cuts} cuts");
    let second = plan.start()?;
    wait_state(&second, second.started(), "Running", t.within(60))?;
    first.until(t.within(40), || {
        let listed = owner.ask(NAME, &first, &["machine", "list"]).ok()?;
        let rows = listed["machines"].as_array()?;
        ids.extend(rows.iter().filter_map(|row| row["machine_id"].as_str().map(str::to_owned)));
        rows.iter().any(|row| row["name"] == "second" && row["state"] == "Member").then_some(())
    })?;
    ensure!(ids.len() == 2, "more machines than two were ever listed: {ids:?}");
    let tickets = owner.ask(NAME, &first, &["ticket", "list"])?;
    ensure!(tickets["tickets"][0]["used"] == 1, "{tickets:#}");
    Ok(())
}

fn refused(t: &Context) -> anyhow::Result<()> {
    let (mut site, owner) = (Site::new()?, t.owner()?);
    let first = first(t, &mut site, &owner)?;
    let issue = |options: &[&str]| -> anyhow::Result<(String, String)> {
        let issued = owner.ask(NAME, &first, &[&["ticket", "issue"], options].concat())?;
        let text = |field: &str| issued[field].as_str().map(str::to_owned).context("a ticket has id and text");
        Ok((text("ticket_id")?, text("ticket")?))
    };
    let (id, revoked) = issue(&[])?;
    owner.ask(NAME, &first, &["ticket", "revoke", &id])?;
    let (_, expired) = issue(&["--for", "1s"])?;
    let (_, good) = issue(&[])?;
    let edited = |edit: &dyn Fn(&mut Ticket)| -> anyhow::Result<String> {
        let mut ticket = Ticket::from_text(&good)?;
        edit(&mut ticket);
        Ok(ticket.to_text().to_string())
    };
    let forged = edited(&|ticket| ticket.key = SigningKey::from_seed(Secret::take(&mut [7; 32])))?;
    let of_other = edited(&|ticket| ticket.ca_spki = [7; 32])?;
    let (plan, disk) = site.machine(t, "second")?.raw_disk(DISK_MIB)?;
    let data = || disk.whole(PartitionKind::Data);
    let before = data()?;
    for (name, ticket, why) in [
        ("revoked", revoked, "the ticket was revoked"),
        ("expired", expired, "the ticket has expired"),
        ("forged", forged, "the cluster does not know this ticket"),
        ("of-another", of_other, "invalid peer certificate"),
    ] {
        let joining = owner.config_of_joiner(name, &ticket, &[&LEVEL[..], &["--node-name", "second"]].concat())?;
        let second = plan.clone().config(&joining)?.start()?;
        second.wait_for(second.started(), why, t.within(60))?;
        ensure!(second.said().iter().all(|line| !line.text.contains("grow-data")), "{why}: it goes on");
        second.kill();
        ensure!(data()? == before, "{why}: its data partition is another");
    }
    // Whoever looks after the cluster is told of tickets that it issued.
    let told = owner.logs(NAME, &first, &["init"])?;
    for why in ["the ticket was revoked", "the ticket has expired"] {
        let said = told.iter().any(|entry| entry["line"].as_str().is_some_and(|line| line.contains(why)));
        ensure!(said, "{why}: the coordinator does not say so");
    }
    let listed = owner.ask(NAME, &first, &["machine", "list"])?;
    ensure!(listed["machines"].as_array().is_some_and(|rows| rows.len() == 1), "{listed:#}");
    // The same machine, by a ticket that holds.
    let joining = owner.config_of_joiner("second", &good, &[&LEVEL[..], &["--node-name", "second"]].concat())?;
    let second = plan.config(&joining)?.start()?;
    second.wait_for(second.started(), "grow-data", t.within(60))?;
    wait_state(&second, second.started(), "Running", t.within(60))?;
    ensure!(data()? != before, "a machine that joined has written its data partition");

    // A member in a coordinator's place lets nobody in, whoever has written its address into a ticket that holds.
    let (_, good) = issue(&[])?;
    let listed = owner.ask(NAME, &first, &["machine", "list"])?;
    let rows = listed["machines"].as_array().into_iter().flatten();
    let its = rows.filter(|row| row["name"] == "second").filter_map(|row| row["addresses"].as_array()).flatten();
    let its = its.filter_map(|address| address.as_str()).find(|address| address.starts_with(SITE));
    let its = its.with_context(|| format!("no address of the site: {listed:#}"))?;
    let mut ticket = Ticket::from_text(&good)?;
    ticket.coordinator_public_endpoints = vec![Endpoint::read(&format!("{its}:{PUBLIC_API_PORT}"))?];
    let third = ["--level", "encrypted", "--node-name", "third"];
    let joining = owner.config_of_joiner("impostor", &ticket.to_text(), &third)?;
    let (plan, disk) = site.machine(t, "third")?.raw_disk(DISK_MIB)?;
    let before = disk.whole(PartitionKind::Data)?;
    let machine = plan.clone().config(&joining)?.start()?;
    machine.wait_for(machine.started(), "invalid peer certificate", t.within(60))?;
    ensure!(machine.said().iter().all(|line| !line.text.contains("grow-data")), "it goes on");
    machine.kill();
    ensure!(disk.whole(PartitionKind::Data)? == before, "its data partition is another");
    let joining = owner.config_of_joiner("third", &good, &third)?;
    let machine = plan.config(&joining)?.start()?;
    wait_state(&machine, machine.started(), "Running", t.within(60))?;
    Ok(())
}

/// It was refused, and told why.
fn denied<T>(answer: Result<T, String>, why: &str) -> anyhow::Result<()> {
    let Err(said) = answer else { bail!("granted, and should not be: {why}") };
    ensure!(said.contains(why), "`{said}` instead of `{why}`");
    Ok(())
}

/// Machines made by the case ask a coordinator for what is theirs, which they get, and for what is not.
fn anothers(t: &Context) -> anyhow::Result<()> {
    let (mut site, owner) = (Site::new()?, t.owner()?);
    let first = first(t, &mut site, &owner)?;
    let issued = owner.ask(NAME, &first, &["ticket", "issue", "--uses", "5"])?;
    let ticket = Ticket::from_text(issued["ticket"].as_str().context("a ticket has a text")?)?;
    let body_of = |ticket: &Ticket, number: u8| -> anyhow::Result<Body> {
        Ok(Body {
            ticket: ticket.public(),
            owner: OwnerPubKey(owner.key()?.public().as_ed25519().context("an owner's key is Ed25519")?),
            vpn_key: VpnPubKey(*RecoveryPubKey::of(&Secret::take(&mut [number; 32])).bytes()),
            disk: DiskUuid(Uuid([number; 16])),
            level: Level::Encrypted,
            boot_class: BootClass::Direct,
            release: Release::read("1.0.0")?,
            root_hash: RootHash([7; 32]),
            storage_key_name: None,
            endpoints: Vec::new(),
            node_name: None,
        })
    };
    let body = |number| body_of(&ticket, number);
    let (one, two) = (Joiner::new(&first)?, Joiner::new(&first)?);
    let answer = one.redeem(&ticket, &body(1)?)?.map_err(Error::msg)?;
    for (joiner, body, why) in [
        (&two, Body { disk: body(1)?.disk, ..body(2)? }, "this disk is known as another machine's"),
        (&two, Body { vpn_key: body(1)?.vpn_key, ..body(2)? }, "this VPN key is known as another machine's"),
        (&one, Body { disk: body(2)?.disk, ..body(1)? }, "the machine was admitted with another disk"),
        (&two, Body { level: Level::Insecure, ..body(2)? }, "the cluster asks for encrypted at least"),
    ] {
        denied(joiner.redeem(&ticket, &body)?, why)?;
    }
    let listed = || owner.ask(NAME, &first, &["machine", "list"]);
    ensure!(listed()?["machines"].as_array().is_some_and(|rows| rows.len() == 2), "{:#}", listed()?);
    // Nothing of what was refused was kept: the same disk and key are the other machine's by now.
    two.redeem(&ticket, &body(2)?)?.map_err(Error::msg)?;

    let asked = |disk| KeyAsked { disk: DiskUuid(Uuid([disk; 16])), generation: 1, level: Level::Encrypted };
    let released = one.release(asked(1))?.map_err(Error::msg)?;
    ensure!(released.key.expose() == answer.cluster_key.expose(), "another half than the one it was let in with");
    let nobody = Joiner::new(&first)?;
    for (joiner, asked, why) in [
        (&two, asked(1), "this is not the machine's disk"),
        (&nobody, asked(1), "the cluster does not know this machine"),
        (&one, KeyAsked { generation: 2, ..asked(1) }, "this disk has no key of generation 2"),
        (&one, KeyAsked { level: Level::Insecure, ..asked(1) }, "the cluster asks for encrypted at least"),
    ] {
        denied(joiner.release(asked)?, why)?;
    }
    owner.ask(NAME, &first, &["machine", "remove", answer.node_name.as_str(), "--lost"])?;
    denied(one.release(asked(1))?, "the machine was removed from the cluster")?;
    denied(one.redeem(&ticket, &body(1)?)?, "the machine was removed from the cluster")?;
    two.release(asked(2))?.map_err(Error::msg)?;
    let tickets = owner.ask(NAME, &first, &["ticket", "list"])?;
    ensure!(tickets["tickets"][0]["used"] == 2, "{tickets:#}");

    // A ticket for one machine alone.
    let place = first.forward(PUBLIC_API_PORT).context("the public API is not forwarded")?;
    let (three, key) = (Joiner::new(&first)?, drawn()?);
    Records::at(place, &owner.key()?)?.issue_for(TicketPubKey(key.public()), three.machine()?)?;
    let its = Ticket { key, coordinator_public_endpoints: ticket.coordinator_public_endpoints.clone(), ..ticket };
    denied(nobody.redeem(&its, &body_of(&its, 3)?)?, "the ticket is for another machine")?;
    three.redeem(&its, &body_of(&its, 3)?)?.map_err(Error::msg)?;

    // Two come at once by a ticket for one: whoever is second is told that it is used up.
    let issued = owner.ask(NAME, &first, &["ticket", "issue"])?;
    let once = Ticket::from_text(issued["ticket"].as_str().context("a ticket has a text")?)?;
    let come = [(Joiner::new(&first)?, body_of(&once, 4)?), (Joiner::new(&first)?, body_of(&once, 5)?)];
    let decided = |joiner: &Joiner, body: &Body| {
        let deadline = t.within(20);
        loop {
            // Of one address one is answered at a time.
            match joiner.redeem(&once, body) {
                Err(_undecided) if deadline.left().is_some() => {}
                decided => break decided,
            }
        }
    };
    let answers = std::thread::scope(|scope| {
        let asked = come.each_ref().map(|(joiner, body)| scope.spawn(|| decided(joiner, body)));
        asked.map(|asked| asked.join().map_err(|_panicked| Error::msg("a joiner panicked")).flatten())
    });
    let (mut granted, mut refused) = (0, Vec::new());
    for answer in answers {
        match answer? {
            Ok(_) => granted += 1,
            Err(why) => refused.push(why),
        }
    }
    ensure!(granted == 1 && refused[0].contains("the ticket is used up"), "{granted} granted, {refused:?}");
    // Of all that was refused nothing was recorded: the first machine, one that was removed, and three that were let in.
    ensure!(listed()?["machines"].as_array().is_some_and(|rows| rows.len() == 5), "{:#}", listed()?);
    let tickets = owner.ask(NAME, &first, &["ticket", "list"])?;
    let used: Vec<_> = tickets["tickets"].as_array().into_iter().flatten().map(|row| row["used"].as_u64()).collect();
    ensure!(used == [Some(1), Some(1), Some(2)], "the newest first: {tickets:#}");
    Ok(())
}

fn joins(t: &Context) -> anyhow::Result<()> {
    let mut site = Site::new()?;
    let owner = t.owner()?;
    let first = first(t, &mut site, &owner)?;
    let machines = || owner.ask(NAME, &first, &["machine", "list"]).ok();
    let issued = owner.ask(NAME, &first, &["ticket", "issue"])?;
    let ticket = issued["ticket"].as_str().context("a ticket has a text")?;

    let choices = ["--level", "encrypted", "--node-name", "second"];
    let joining = owner.config_of_joiner("second", ticket, &choices)?;
    let mut second = site.machine(t, "second")?.config(&joining)?.start()?;
    wait_state(&second, second.started(), "Running", t.within(60))?;

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
    let unseen = || {
        let listed = machines()?;
        let mut seen = listed["machines"].as_array()?.iter().map(|row| row["last_seen_unix_ms"].as_u64());
        let (first, second) = (seen.next()??, seen.next()??);
        first.checked_sub(second)
    };
    let ago = unseen().context("not seen, though it is there")?;
    ensure!(ago < 3000, "seen {ago} ms ago, though it is there");

    // Its owner reaches it through the first machine, and it answers itself, as who it is.
    let status = owner.ask(NAME, &first, &["-m", "second", "--through", "m1", "machine", "status"])?;
    ensure!(status["name"] == "second" && status["machine_id"] == row["machine_id"], "{status:#}");

    // Its key is with the first machine, whom it asks: nobody else does anything.
    let asked = released(&owner, &first)?.len();
    let before = second.mark()?;
    second.reset(t.within(5))?;
    wait_state(&second, before, "AwaitingKeys", t.within(30))?;
    let (mut runs, mut has_its_address) = (false, false);
    second.console().wait_until(before, "runs as 10.118.0.2", t.within(60), |line| {
        runs |= line.text.contains("state      Running");
        has_its_address |= line.text.contains("vpn        10.118.0.2/");
        (runs && has_its_address).then_some(())
    })?;
    let released = released(&owner, &first)?;
    let id = row["machine_id"].as_str().with_context(|| format!("a machine has an id: {row:#}"))?;
    ensure!(released.len() == asked + 1 && released[asked].contains(id), "{released:#?}");

    // The same ticket lets nobody else in, and the machine says why.
    let config = owner.config_of_joiner("third", ticket, &["--level", "encrypted", "--node-name", "third"])?;
    let (plan, disk) = site.machine(t, "third")?.raw_disk(DISK_MIB)?;
    let before = disk.whole(PartitionKind::Data)?;
    let third = plan.config(&config)?.start()?;
    third.wait_for(third.started(), "the ticket is used up: it has admitted 1 of 1 machines", t.within(60))?;
    third.kill();
    ensure!(disk.whole(PartitionKind::Data)? == before, "its data partition is another");
    let listed = machines().context("the first machine does not answer")?;
    ensure!(listed["machines"].as_array().is_some_and(|rows| rows.len() == 2), "{listed:#}");

    // Who is off was seen while it was on.
    second.kill();
    first.until(t.within(30), || unseen().filter(|ago| *ago > 5000))?;
    Ok(())
}

/// Where the first machine's log tells that it released a key.
fn released(owner: &Owner, first: &Vm) -> anyhow::Result<Vec<String>> {
    let entries = owner.logs(NAME, first, &[])?;
    let lines = entries.iter().filter_map(|entry| entry["line"].as_str());
    Ok(lines.filter(|line| line.contains("a key is released")).map(str::to_owned).collect())
}
