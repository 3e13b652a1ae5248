//! A virtual cluster as its owner has it: made, looked at, stopped, started, saved and taken away by `cairnctl` alone, in a data
//! directory of the case's own. One case makes three machines and saves them; what is done with a cluster is done to copies.
//!
//! [`journey`] is `cargo xtask up --exit`, command by command. It runs a pod, and so it is one of the cases of `kube.rs`.

use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::path::PathBuf;

use crate::copies::owner_of;
use crate::owned::{Cluster, NAME, NONE, columns, patience, text};
use crate::{
    Case, Context, FleetKind, Image, LAID_DOWN, PacketKind, Prerequisite, Records, Starts, has_peers, kinds,
    object_file, others, same_machine, web_pod,
};
use anyhow::{Context as _, ensure};
use image::names;
use qemu::Vm;
use qemu::process::Process;
use serde_json::{Value, json};

pub(crate) const CASES: &[Case] = &[
    Case {
        starts: Starts::Making(OWNED),
        ..case("one command makes three machines, and nothing goes in clear", &["S9", "Q6"], made)
    },
    Case { starts: Starts::Cold, ..case("a cluster is stopped and started by its name", &["Q6"], by_name) },
    Case {
        starts: Starts::Cold,
        ..case("one command makes three coordinators, another adds a machine", &["S9", "S5", "Q6"], three)
    },
    Case {
        needs: &[],
        starts: Starts::Cold,
        ..case("a kernel that panics is told by its last lines", &["Q6"], panics)
    },
    Case {
        needs: &[Prerequisite::Swtpm, Prerequisite::Ovmf],
        starts: Starts::Cold,
        ..case("a copy outlives its cluster, which boots by uefi", &["S13", "Q6"], saved_uefi)
    },
    Case {
        starts: Starts::Cold,
        ..case("a cluster of a microvm is saved, and its copy outlives it", &["S13", "Q6"], saved_microvm)
    },
    case("a machine of several is meant by its name, and none without", &["S9", "Q6"], meant),
    case("a program of the host reaches a machine by its name", &["S9"], proxied),
    case("a port of the host leads to whichever machine answers", &["S9", "Q6"], led),
    case("a machine's cable is pulled, spoilt and mended", &["S9"], pulled),
    case("an owner behind a path of 1 280 bytes reaches a machine", &["Q1", "S9"], narrow),
    case("a network that ended comes back, and its machines go on", &["S9", "Q6"], network_ends),
    case("without a coordinator nobody joins, and nothing is left", &["S9", "Q6"], nobody_joins),
    case("a node gets its key, and hears who left meanwhile", &["K4", "M2", "M3"], node_returns),
    case("a lone coordinator waits until its owner recovers it", &["K6", "Q6"], coordinator_returns),
    case("coordinators that all wait are opened by one command", &["K6", "S5", "Q6"], opened_together),
    case("a coordinator becomes a node, and the first machine leaves", &["S5", "Q6"], leaves),
    case("a cluster is destroyed amid its boot after a power cut", &["Q6"], power_cut),
    case("a save without room leaves nothing, and the machines go on", &["S13", "Q6"], no_room),
    case("a cluster that is saved and off comes back where it was", &["S13", "Q6"], saved_off),
    case("a saved cluster comes back to its owner and image alone", &["S13", "A2"], of_another),
];

const fn case(name: &'static str, proves: &'static [&'static str], run: fn(&Context) -> anyhow::Result<()>) -> Case {
    Case { name, proves, needs: &[Prerequisite::Swtpm], starts: Starts::From(OWNED), run }
}

const OWNED: FleetKind = FleetKind::Owned;
/// Choices for a small machine without Kubernetes, with the least memory that is taken.
const PLAIN: [&str; 7] = ["--no-kubernetes", "--level", "encrypted", "--cpus", "1", "--memory", "128M"];
/// Name, role and standing of each of the three.
const MEMBERS: [&str; 9] = ["m1", "coordinator", "Member", "m2", "node", "Member", "m3", "node", "Member"];
const RUN: [&str; 3] = ["Running"; 3];

/// Cables are looked at from before the first machine had an address.
fn made(t: &Context) -> anyhow::Result<()> {
    let cluster = Cluster::of(t)?;
    cluster.create(t, 120, &["--machines", "3", "--cold-start", "manual", "--capture"])?;
    cluster.is_seen(t, &RUN)?;
    ensure!(cluster.members()? == MEMBERS, "{:?}", cluster.members()?);
    let tickets = cluster.ask(&["ticket", "list"])?;
    ensure!(tickets["tickets"].as_array().is_some_and(|all| all.len() == 1), "{tickets:#}");
    ensure!(tickets["tickets"][0]["state"] == "used up", "it admits nobody any more: {tickets:#}");
    for machine in ["m1", "m2", "m3"] {
        let carried = kinds(&fs::read(cluster.files_of(machine).join("network.pcapng"))?)?;
        let hidden =
            carried.get(&PacketKind::WireGuard).is_some_and(|packets| *packets > 10) && others(&carried).is_empty();
        ensure!(hidden, "{machine}: {carried:?}");
    }
    cluster.save(t, OWNED)
}

fn by_name(t: &Context) -> anyhow::Result<()> {
    let cluster = Cluster::of(t)?;
    cluster.create(t, 60, &[])?;
    let before = cluster.status(&[])?;

    let stopped = cluster.run(&["cluster", "stop", NAME, "--timeout", &patience(t, 20)])?;
    ensure!(stopped.contains("is off; to start it again: cairnctl cluster start one"), "{stopped}");
    ensure!(fs::read_to_string(cluster.console())?.contains("service stopped service=etcd"), "in order");
    ensure!(cluster.ask(&["cluster", "list"])?[0]["state"] == "off");
    let again = cluster.run(&["-c", NAME, "cluster", "stop"])?;
    ensure!(again.contains("is off already"), "{again}");
    let off = cluster.owner.run(&["cluster", "status", NAME]).err().context("a machine that is off answers")?;
    ensure!(off.text.contains("is off") && off.text.contains("next: cairnctl cluster start one"), "{off}");

    ensure!(cluster.run(&["cluster", "start", NAME])?.contains("starts"));
    let again = cluster.run(&["-c", NAME, "cluster", "start"])?;
    ensure!(again.contains("runs already"), "{again}");
    cluster.runs(t, &[])?;
    same_machine(&before, &cluster.status(&[])?)
}

fn power_cut(t: &Context) -> anyhow::Result<()> {
    let cluster = Cluster::copy(t)?;
    let cut = cluster.run(&["cluster", "stop", NAME, "--now"])?;
    ensure!(cut.contains("machine `m3` of `one` are off"), "{cut}");
    cluster.run(&["cluster", "start", NAME])?;
    // Running, in the middle of its boot.
    cluster.destroyed()
}

/// Each machine, when it is asked, is of the one cluster, and known there by the name that it has here.
fn meant(t: &Context) -> anyhow::Result<()> {
    let cluster = Cluster::copy(t)?;
    let id = cluster.ask(&["cluster", "status"])?["cluster_id"].take();
    for machine in ["m1", "m2", "m3"] {
        let status = cluster.status(&["-m", machine])?;
        ensure!(status.cluster_id == id && status.name == machine, "{id}: {status:#?}");
    }
    let unnamed = cluster.owner.run(&["machine", "status"]).err().context("one of three machines was meant")?;
    ensure!(unnamed.text.contains("has several machines (m1, m2, m3) and none was named"), "{unnamed}");
    Ok(())
}

/// Leads to the one of three machines that is heard; one that is silent is called first.
fn led(t: &Context) -> anyhow::Result<()> {
    let host = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?;
    let way = format!("{}:7836", host.port());
    let cluster = Cluster::owned_by(owner_of(&t.fleet(OWNED), t.dir())?, t);
    cluster.copied(t, OWNED, NAME, &["--port", &way])?;
    for silent in ["m1", "m3"] {
        cluster.run(&["cluster", "link", silent, "--down"])?;
    }
    let at = host.to_string();
    let status = cluster.run(&["-m", "m2", "--address", &at, "machine", "status"])?;
    ensure!(status.contains("Running"), "{status}");
    let taken = format!("{:?}", cluster.copied(t, OWNED, "other", &["--port", &way]));
    let said = format!("lead port {} of this host's loopback to port 7836 of the machines", host.port());
    ensure!(taken.contains(&said) && taken.contains("no cluster was made"), "{taken}");
    Ok(())
}

/// The name is enough, whatever the address behind it.
fn proxied(t: &Context) -> anyhow::Result<()> {
    Cluster::copy(t)?.by_proxy(t, "m2", model::PUBLIC_API_PORT)?;
    Ok(())
}

/// Larger packets are dropped without a word, both ways.
fn narrow(t: &Context) -> anyhow::Result<()> {
    let cluster = Cluster::copy(t)?;
    cluster.run(&["cluster", "link", "m1", "--mtu", "1280"])?;
    let logs = cluster.run(&["-m", "m1", "machine", "logs"])?;
    ensure!(logs.len() > 1 << 14, "more than a few segments: {} bytes", logs.len());
    Ok(())
}

fn pulled(t: &Context) -> anyhow::Result<()> {
    let cluster = Cluster::copy(t)?;
    cluster.run(&["cluster", "link", "m2", "--down"])?;
    cluster.is_seen(t, &["Running", "no answer", "Running"])?;
    cluster.run(&["cluster", "link", "m2", "--delay", "50ms", "--loss", "5%"])?;
    cluster.is_seen(t, &RUN)?;
    cluster.run(&["cluster", "link", "m2", "--up"])?;
    cluster.is_seen(t, &RUN)?;
    Ok(())
}

/// The machines are those of before, at their old addresses.
fn network_ends(t: &Context) -> anyhow::Result<()> {
    let cluster = Cluster::copy(t)?;
    let before = cluster.boots()?;
    let record = fs::read(cluster.home.join(NAME).join("network/network.json"))?;
    let record: Value = serde_json::from_slice(&record)?;
    let process = Process::find(serde_json::from_value(record["process"].clone())?)?;
    let process = process.context("the network does not run")?;
    process.kill()?;
    ensure!(process.wait(t.within(10)), "the network does not end");
    cluster.is_seen(t, &["no network"; 3])?;
    let again = cluster.run(&["cluster", "start"])?;
    ensure!(again.contains("runs already; its virtual network had ended, and is back"), "{again}");
    ensure!(cluster.boots()? == before, "a machine was started again");
    Ok(())
}

fn nobody_joins(t: &Context) -> anyhow::Result<()> {
    let cluster = Cluster::copy(t)?;
    cluster.run(&["cluster", "stop", "-m", "m1", "--now"])?;
    let refused = cluster.owner.run(&["cluster", "add", NAME, "--level", "encrypted"]);
    let refused = refused.err().context("a machine was added without a coordinator")?;
    ensure!(refused.text.contains("no coordinator of cluster `one` answers; m1: "), "{refused}");
    ensure!(refused.text.contains("cluster `one` is as it was"), "{refused}");
    ensure!(!cluster.files_of("m4").exists(), "files are left");
    cluster.is_seen(t, &["off", "Running", "Running"])?;
    Ok(())
}

/// A change of its peers passes it by while it is off.
fn node_returns(t: &Context) -> anyhow::Result<()> {
    let cluster = Cluster::copy(t)?;
    let before = cluster.status(&["-m", "m2"])?;
    cluster.run(&["cluster", "stop", "-m", "m2", "--now"])?;
    cluster.run(&["machine", "remove", "m3", "--timeout", &patience(t, 60)])?;
    cluster.run(&["cluster", "start", "-m", "m2"])?;
    cluster.runs(t, &["-m", "m2"])?;
    let now = cluster.status(&["-m", "m2"])?;
    same_machine(&before, &now)?;
    ensure!(now.vpn_addresses == before.vpn_addresses, "{before:#?} {now:#?}");
    let vm = Vm::attach(&cluster.files_of("m2"))?.context("m2 runs")?;
    has_peers(&vm, 1, t.within(30))?;
    cluster.reaches("m2", "m1")
}

fn coordinator_returns(t: &Context) -> anyhow::Result<()> {
    let cluster = Cluster::copy(t)?;
    let before = cluster.boots()?;
    cluster.run(&["cluster", "stop", "-m", "m1", "--timeout", &patience(t, 20)])?;
    cluster.is_seen(t, &["off", "Running", "Running"])?;
    cluster.run(&["cluster", "start", "-m", "m1"])?;
    cluster.comes_to(&["AwaitingKeys", "Running", "Running"], t.within(60), Cluster::states)?;
    cluster.run(&["-m", "m1", "recover"])?;
    cluster.comes_to(&MEMBERS, t.within(60), Cluster::members)?;
    let now = cluster.boots()?;
    ensure!(now[0] != before[0] && now[1..] == before[1..], "{before:?} {now:?}");
    Ok(())
}

/// No two of them may open each other, so that all wait when they are switched on again.
fn opened_together(t: &Context) -> anyhow::Result<()> {
    let cluster = Cluster::copy(t)?;
    cluster.all_coordinate(t)?;
    let before = cluster.boots()?;
    cluster.run(&["cluster", "stop", "--timeout", &patience(t, 20)])?;
    cluster.is_seen(t, &["off"; 3])?;
    cluster.run(&["cluster", "start"])?;
    cluster.comes_to(&["AwaitingKeys"; 3], t.within(60), Cluster::states)?;
    let looked = cluster.ask(&["recover", "--dry-run"])?;
    ensure!(looked["recovered"] == 3 && cluster.states()? == ["AwaitingKeys"; 3], "{looked:#}");
    cluster.run(&["recover"])?;
    cluster.comes_to(&RUN, t.within(60), Cluster::states)?;
    let now = cluster.boots()?;
    ensure!(before.iter().zip(&now).all(|(before, now)| before != now), "{before:?} {now:?}");
    cluster.all_vote(t)
}

/// A leader hands over before it is taken out, so that the next change is not left without an answer.
fn leaves(t: &Context) -> anyhow::Result<()> {
    let cluster = Cluster::copy(t)?;
    cluster.all_coordinate(t)?;
    ensure!(!fs::read_to_string(cluster.console())?.contains(LAID_DOWN), "m1 coordinates");
    cluster.run(&["machine", "role", "remove", "m3", "coordinator", "--wait", "--timeout", &patience(t, 60)])?;
    // It made the cluster, and has nothing of a coordinator when the command returns.
    cluster.run(&["machine", "remove", "m1", "--timeout", &patience(t, 60)])?;
    let said = fs::read_to_string(cluster.console())?;
    ensure!(said.contains(LAID_DOWN), "it was removed before it had erased anything");
    let rest = ["m2", "coordinator", "Member", "m3", "node", "Member", "m1", "node", "Removed"];
    ensure!(cluster.members()? == rest, "{:?}", cluster.members()?);
    Ok(())
}

/// Disks do not fit. The files of memory are QEMU's to write, and are not bounded here.
fn no_room(t: &Context) -> anyhow::Result<()> {
    let cluster = Cluster::copy(t)?;
    let (before, folder) = (cluster.boots()?, t.dir().join("saved/one"));
    fs::create_dir(t.dir().join("saved"))?;
    let save = ["cluster", "save", NAME, "--as", text(&folder)?];
    let refused = cluster.owner.run_without_room(BLOCKS, &save).err().context("saved without room")?;
    ensure!(refused.text.contains("File too large"), "{refused}");
    ensure!(refused.text.contains("nothing was saved, and the machines go on"), "{refused}");
    let left: Vec<_> = fs::read_dir(t.dir().join("saved"))?.collect::<Result<_, _>>()?;
    ensure!(left.iter().all(|file| file.file_name() == "one.lock"), "{left:?}");
    cluster.is_seen(t, &RUN)?;
    ensure!(cluster.boots()? == before, "a machine was started again");
    // It was the room alone that it lacked, and the machines go on after that, too.
    cluster.run(&save)?;
    ensure!(folder.join("fleet.json").exists() && cluster.boots()? == before, "it is not saved, or ends by that");
    Ok(())
}

/// No disk of a machine is as short as that, in blocks of 512 bytes.
const BLOCKS: u32 = 128;

fn saved_off(t: &Context) -> anyhow::Result<()> {
    let cluster = Cluster::copy(t)?;
    let (before, folder) = (cluster.boots()?, t.dir().join("saved/one"));
    fs::create_dir(t.dir().join("saved"))?;
    let save = ["cluster", "save", NAME, "--as", text(&folder)?, "--stop"];
    let saved = cluster.run(&save)?;
    ensure!(saved.contains("and is off"), "{saved}");
    cluster.is_seen(t, &["off"; 3])?;
    let again = cluster.owner.run(&save).err().context("it is saved twice under one name")?;
    ensure!(again.text.contains("is there already") && again.text.contains("nothing was changed"), "{again}");
    cluster.destroyed()?;
    cluster.run(&["cluster", "create", NAME, "--from", text(&folder)?, "--timeout", &patience(t, 30)])?;
    ensure!(cluster.boots()? == before, "a machine was started again");
    Ok(())
}

/// A cluster that was refused leaves nothing. Other cases show that its owner gets it.
fn of_another(t: &Context) -> anyhow::Result<()> {
    let fleet = t.fleet(OWNED);
    let create = ["cluster", "create", "other", "--from", text(&fleet)?];
    let stranger = Cluster::of(t)?;
    stranger.owner.config("mine", &[])?;
    let refused = stranger.owner.run(&create).err().context("it comes back to a stranger")?;
    ensure!(refused.text.contains("belongs to another owner"), "{refused}");
    ensure!(!stranger.home.join("other").exists(), "files are left");
    let (owner, debug) = (owner_of(&fleet, &t.dir().join("its-own"))?, Image::debug_of_environment()?);
    let refused = owner.run(&[&create[..], &["--image", text(debug.dir())?]].concat());
    let refused = refused.err().context("it comes back as another image")?;
    ensure!(refused.text.contains("it was saved of the image"), "{refused}");
    ensure!(refused.text.contains("no cluster was made"), "{refused}");
    Ok(())
}

fn saved_uefi(t: &Context) -> anyhow::Result<()> {
    comes_back(t, "uefi")
}

fn saved_microvm(t: &Context) -> anyhow::Result<()> {
    comes_back(t, "microvm")
}

/// The cluster that was saved is gone when it comes back, and its saved files when it starts again.
fn comes_back(t: &Context, way: &str) -> anyhow::Result<()> {
    let cluster = Cluster::of(t)?;
    cluster.create(t, 90, &["--boot", way])?;
    let before = cluster.status(&[])?;
    cluster.run(&["cluster", "save", NAME, "--as", "kept"])?;
    cluster.destroyed()?;
    let saved = cluster.ask(&["cluster", "saved"])?;
    ensure!(saved[0]["name"] == "kept" && saved[0]["machines"] == json!(["m1"]), "{saved:#}");
    cluster.run(&["cluster", "create", NAME, "--from", "kept", "--timeout", &patience(t, 30)])?;
    let now = cluster.status(&[])?;
    ensure!(!now.is_of_another_boot(&before), "it goes on: {before:#?} {now:#?}");
    cluster.run(&["cluster", "forget", "kept", "--yes"])?;
    cluster.run(&["cluster", "stop", NAME, "--now"])?;
    cluster.run(&["cluster", "start", NAME])?;
    cluster.runs(t, &[])?;
    same_machine(&before, &cluster.status(&[])?)
}

fn three(t: &Context) -> anyhow::Result<()> {
    let cluster = Cluster::of(t)?;
    let (answer, told) = cluster.create(t, 120, &["--machines", "3", "--coordinators", "3"])?;
    ensure!(["m1", "m2", "m3"].iter().all(|m| answer.contains(&format!("cluster `one` runs on {m}"))), "{answer}");
    for line in
        ["m1: runs, level encrypted", "m2: Member of the cluster", "m3: Member of the cluster", "etcd: 1 of 3 vote"]
    {
        ensure!(told.contains(line), "no word of `{line}`: {told}");
    }
    let add = ["cluster", "add", NAME, "--level", "encrypted", "--timeout", &patience(t, 120)];
    let (_, told) = cluster.owner.told(&add)?;
    ensure!(told.contains("m4: Member of the cluster"), "{told}");
    let listed = cluster.list(&["name", "role", "state", "etcd"])?;
    let coordinator = |name| [name, "coordinator", "Member", "voter"];
    let wanted = [coordinator("m1"), coordinator("m2"), coordinator("m3"), ["m4", "node", "Member", NONE]];
    ensure!(listed == wanted.concat(), "{listed:?}");
    cluster.destroyed()
}

fn panics(t: &Context) -> anyhow::Result<()> {
    let (cluster, broken) = (Cluster::of(t)?, t.dir().join("broken"));
    fs::create_dir_all(&broken)?;
    for file in [names::KERNEL, names::DISK, names::MANIFEST] {
        std::os::unix::fs::symlink(t.image().file(file), broken.join(file))?;
    }
    // No archive: nothing to start, and no root to look for it on.
    fs::write(broken.join(names::INITRAMFS), [0; 4096])?;
    let refused = cluster.create(t, 60, &["--image", text(&broken)?, "--no-tpm", "--unprotected"]);
    let refused = format!("{:#}", refused.err().context("a machine without a root came up")?);
    for words in ["the machine's kernel panicked", "Kernel panic - not syncing: "] {
        ensure!(refused.contains(words), "{refused}");
    }
    ensure!(refused.contains("what was made of cluster `one` stays for a look"), "{refused}");
    cluster.destroyed()
}

/// Prefixes that are none of the usual ones, for a cluster to be made with.
const ELSEWHERE: [&str; 3] =
    ["--vpn-prefix=172.28.0.0/16", "--pod-prefix=172.29.0.0/16", "--service-prefix=172.30.0.0/20"];

/// Makes a machine with Kubernetes beside whatever network has the usual prefixes, runs a pod on it, and takes all of it away.
pub(crate) fn journey(t: &Context) -> anyhow::Result<()> {
    let cluster = Cluster::of(t)?;
    let create = ["cluster", "create", NAME, "--wait", "--timeout", &patience(t, 180)];
    let said = cluster.run(&[&create[..], &ELSEWHERE].concat())?;
    ensure!(said.contains("cluster `one` runs on m1") && said.contains("(protection tpm)"), "{said}");
    cluster.kubectl(&["apply", "--filename", &object_file(t, &web_pod("web", false))?])?;
    cluster.kubectl(&["wait", "--for=condition=Ready", "pod/web", "--timeout=300s"])?;

    let status = cluster.status(&[])?;
    ensure!(status.boot_class == "direct" && status.level.starts_with("authenticated"), "{status:#?}");
    let shown = cluster.kubectl(&["get", "nodes,pods,services", "--output", "wide"])?;
    ensure!(status.state == "Running" && shown.contains(&status.name), "{shown}");
    ensure!(["172.28.0.1 ", "172.29.0.", "172.30.0.1 "].iter().all(|own| shown.contains(own)), "{shown}");
    came_to_be(t, &cluster)?;
    tagging_made_way(&cluster)?;

    // On its way down it is taken away: what goes by itself in that moment is no error.
    cluster.run(&["machine", "poweroff"])?;
    cluster.destroyed()
}

/// The timeline tells all of it, from the kernel to a node that is ready.
fn came_to_be(t: &Context, cluster: &Cluster) -> anyhow::Result<()> {
    let timeline = cluster.ask(&["machine", "timeline"])?;
    let reached = |name: &str| timeline.as_array().and_then(|rows| rows.iter().find(|row| row["name"] == name));
    let node_ready = reached("NodeReady").and_then(|row| row["uptime_ms"].as_u64());
    ensure!(reached("kernel").is_some() && node_ready.is_some(), "{timeline:#}");
    t.measured(&format!("node Ready, tagging: {} ms of uptime", node_ready.unwrap_or_default()));
    Ok(())
}

/// The kernel's thread had only what was left over until the node was ready, by the kernel's own word, and then its own again.
fn tagging_made_way(cluster: &Cluster) -> anyhow::Result<()> {
    let log = cluster.run(&["machine", "logs", "init"])?;
    let told: Vec<&str> = log
        .lines()
        .filter(|line| line.contains("tagging has its priority") || line.contains("condition=NodeReady"))
        .collect();
    let place = |words: &str| told.iter().position(|line| line.contains(words));
    ensure!(told.iter().filter(|line| line.contains("policy=")).all(|line| line.contains("kworker/")), "{told:?}");
    let (made_way, ready, goes_on) = (place("policy=Idle"), place("condition=NodeReady"), place("policy=Share"));
    // Where all was tagged before, it was given back then.
    ensure!(made_way.is_some() && made_way < ready && ready.is_some() && made_way < goes_on, "{told:?}");
    Ok(())
}

impl Cluster {
    /// The three that were made and saved, on a network of their own.
    pub(crate) fn copy(t: &Context) -> anyhow::Result<Self> {
        Self::copy_of(t, OWNED)
    }

    /// Makes it. Gives the answer, and the progress that was told meanwhile.
    fn create(&self, t: &Context, seconds: u64, choices: &[&str]) -> anyhow::Result<(String, String)> {
        let line = ["cluster", "create", NAME, "--timeout", &patience(t, seconds)];
        Ok(self.owner.told(&[&line, &PLAIN[..], choices].concat())?)
    }

    fn console(&self) -> PathBuf {
        self.files_of("m1").join("serial.log")
    }

    /// Waits until these are the states of the machines, in their order. On a slow host one look may be too short.
    fn is_seen(&self, t: &Context, wanted: &[&str]) -> anyhow::Result<()> {
        self.comes_to(wanted, t.within(10), Self::states)
    }

    /// Boot that each of the three is in.
    fn boots(&self) -> anyhow::Result<Vec<String>> {
        ["m1", "m2", "m3"].iter().map(|machine| Ok(self.status(&["-m", machine])?.boot_id)).collect()
    }

    /// Columns of all machines that the cluster lists, row by row.
    fn list(&self, names: &[&str]) -> anyhow::Result<Vec<String>> {
        columns(&self.ask(&["machine", "list"])?, names)
    }

    fn members(&self) -> anyhow::Result<Vec<String>> {
        self.list(&["name", "role", "state"])
    }

    /// Makes coordinators of all three, one after the other.
    fn all_coordinate(&self, t: &Context) -> anyhow::Result<()> {
        for machine in ["m2", "m3"] {
            self.run(&["machine", "role", "add", machine, "coordinator", "--wait", "--timeout", &patience(t, 60)])?;
        }
        self.all_vote(t)
    }

    fn all_vote(&self, t: &Context) -> anyhow::Result<()> {
        self.comes_to(&["voter"; 3], t.within(60), |cluster| cluster.list(&["etcd"]))
    }

    /// A machine reaches another one over the VPN, as the coordinator m1 knows it.
    fn reaches(&self, machine: &str, other: &str) -> anyhow::Result<()> {
        let key = self.owner.key()?;
        let rows = Records::at(self.place("m1")?, &key)?.machines()?.rows;
        let other = rows.iter().find(|row| row.name == other).with_context(|| format!("{other} is not listed"))?;
        Records::at(self.place(machine)?, &key)?.reaches(other.id)
    }
}
