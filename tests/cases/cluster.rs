//! A virtual cluster as its owner has it: made, looked at, stopped, started and taken away by `cairnctl` alone, in a data
//! directory of the case's own.
//!
//! [`journey`] is `cargo xtask up --exit`, command by command. It runs a pod, and so it is one of the cases of `kube.rs`.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;

use crate::{Case, Context, Kind, LAID_DOWN, Need, Owner, Starts, kinds, others, web_pod};
use anyhow::{Context as _, ensure};
use image::names;
use serde_json::{Value, json};

pub(crate) const CASES: &[Case] = &[
    Case {
        name: "a cluster is stopped and started by its name",
        proves: &["Q6"],
        needs: &[Need::Swtpm],
        starts: Starts::Cold,
        run: by_name,
    },
    Case {
        name: "machines of one cluster join it, have a network that can be pulled, and come back by their owner's word",
        proves: &["S9", "Q6", "M2", "M3", "K4", "K6"],
        needs: &[Need::Swtpm],
        starts: Starts::Cold,
        run: several,
    },
    Case {
        name: "one command makes three coordinators and tells of each, and another adds a machine",
        proves: &["S9", "S5", "Q6"],
        needs: &[Need::Swtpm],
        starts: Starts::Cold,
        run: three,
    },
    Case {
        name: "a kernel that panics is told by its last lines",
        proves: &["Q6"],
        needs: &[],
        starts: Starts::Cold,
        run: panics,
    },
];

const NAME: &str = "one";

/// Makes a machine with Kubernetes, runs a pod on it, and takes all of it away.
pub(crate) fn journey(t: &Context) -> anyhow::Result<()> {
    let cluster = Cluster::of(t)?;
    let said = cluster.run(&["cluster", "create", NAME, "--wait", "--timeout", &patience(t, 180)])?;
    ensure!(said.contains("cluster `one` runs on m1") && said.contains("(protection tpm)"), "{said}");
    // Pods are refused until the controller-manager has made their namespace's account.
    cluster.kubectl(&["wait", "--for=create", "serviceaccount/default", "--timeout=300s"])?;
    let pod = t.dir().join("web.json");
    fs::write(&pod, web_pod("web", false).to_string()).context("write the pod")?;
    cluster.kubectl(&["apply", "--filename", &pod.to_string_lossy()])?;
    cluster.kubectl(&["wait", "--for=condition=Ready", "pod/web", "--timeout=300s"])?;

    let status = cluster.ask(&["machine", "status"])?;
    ensure!(status["boot_class"] == "direct" && status["state"] == "Running", "{status:#}");
    ensure!(status["level"].as_str().is_some_and(|level| level.starts_with("authenticated")), "{status:#}");
    let shown = cluster.kubectl(&["get", "nodes,pods", "--output", "wide"])?;
    ensure!(shown.contains(status["name"].as_str().context("the machine has a name")?), "{shown}");
    let timeline = cluster.ask(&["machine", "timeline"])?;
    let reached = |name: &str| timeline.as_array().and_then(|rows| rows.iter().find(|row| row["name"] == name));
    let node_ready = reached("NodeReady").and_then(|row| row["uptime_ms"].as_u64());
    ensure!(reached("kernel").is_some() && node_ready.is_some(), "{timeline:#}");
    t.measured(&format!("node Ready, tagging: {} ms of uptime", node_ready.unwrap_or_default()));
    tagging_made_way(&cluster)?;

    // On its way down it is taken away: what goes by itself in that moment is no error.
    cluster.run(&["machine", "poweroff"])?;
    cluster.destroyed()
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

fn by_name(t: &Context) -> anyhow::Result<()> {
    let cluster = Cluster::of(t)?;
    // The least memory that is taken is enough.
    let plain = ["--no-kubernetes", "--level", "encrypted", "--memory", "512M", "--timeout", &patience(t, 60)];
    cluster.run(&[&["cluster", "create", NAME], &plain[..]].concat())?;
    let before = cluster.ask(&["cluster", "status", NAME])?;
    ensure!(before["machines"][0]["state"] == "Running", "{before:#}");
    let id = before["cluster_id"].as_str().with_context(|| format!("no cluster id: {before:#}"))?;

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
    cluster.run(&["condition", "wait", "Running", "--timeout", &patience(t, 60)])?;
    let now = cluster.ask(&["cluster", "status", NAME])?;
    ensure!(now["cluster_id"] == id && now["machines"][0]["state"] == "Running", "{now:#}");

    let cut = cluster.run(&["cluster", "stop", NAME, "--now"])?;
    ensure!(cut.contains("is off"), "{cut}");
    cluster.run(&["cluster", "start", NAME])?;
    // Running, in the middle of its boot.
    cluster.destroyed()
}

fn several(t: &Context) -> anyhow::Result<()> {
    let cluster = Cluster::of(t)?;
    let plain = ["--no-kubernetes", "--level", "encrypted", "--cpus", "1", "--cold-start", "manual", "--capture"];
    let patience = |seconds| patience(t, seconds);
    cluster
        .run(&[&["cluster", "create", NAME, "--machines", "3", "--timeout", &patience(120)], &plain[..]].concat())?;
    let states = || -> anyhow::Result<[String; 3]> {
        let status = cluster.ask(&["cluster", "status"])?;
        Ok([0, 1, 2].map(|machine| status["machines"][machine]["state"].as_str().unwrap_or_default().to_owned()))
    };
    let boot = |machine| -> anyhow::Result<Value> {
        Ok(cluster.ask(&["-m", machine, "machine", "status"])?["boot_id"].take())
    };
    let boots = || -> anyhow::Result<[Value; 3]> { Ok([boot("m1")?, boot("m2")?, boot("m3")?]) };
    ensure!(states()? == ["Running", "Running", "Running"]);
    // Whichever machine is asked, it is of the one cluster, and the cluster knows it by the name it has here.
    let id = cluster.ask(&["cluster", "status"])?["cluster_id"].take();
    for machine in ["m1", "m2", "m3"] {
        let status = cluster.ask(&["-m", machine, "machine", "status"])?;
        ensure!(status["cluster_id"] == id && status["name"] == machine, "{id}: {status:#}");
    }
    let list = |columns: &[&str]| -> anyhow::Result<Value> {
        let listed = cluster.ask(&["machine", "list"])?;
        let rows = listed["machines"].as_array().context("machines are listed")?.iter();
        Ok(rows.flat_map(|row| columns.iter().map(|column| row[*column].clone())).collect())
    };
    let members = ["name", "role", "state"];
    let all = json!(["m1", "coordinator", "Member", "m2", "node", "Member", "m3", "node", "Member"]);
    ensure!(list(&members)? == all, "{:#}", list(&members)?);
    let tickets = cluster.ask(&["ticket", "list"])?;
    ensure!(tickets["tickets"].as_array().is_some_and(|all| all.len() == 1), "{tickets:#}");
    ensure!(tickets["tickets"][0]["state"] == "used up", "it admits nobody any more: {tickets:#}");
    let unnamed = cluster.owner.run(&["machine", "status"]).err().context("one of three machines was meant")?;
    ensure!(unnamed.text.contains("has several machines (m1, m2, m3) and none was named"), "{unnamed}");

    // A program of this host reaches a machine by its name, whatever its address there is.
    let proxy = cluster.ask(&["cluster", "proxy"])?;
    let proxy = proxy["url"].as_str().and_then(|url| url.strip_prefix("socks5h://")).context("a proxy has a URL")?;
    let mut program = TcpStream::connect(proxy)?;
    program.set_read_timeout(Some(t.within(5).left().unwrap_or_default()))?;
    let [high, low] = model::PUBLIC_API_PORT.to_be_bytes();
    program.write_all(&[5, 1, 0, 5, 1, 0, 3, 2, b'm', b'2', high, low])?;
    let mut answered = [0; 12];
    program.read_exact(&mut answered)?;
    ensure!(answered[..4] == [5, 0, 5, 0], "m2 is not reached: {answered:?}");
    drop(program);

    cluster.run(&["cluster", "link", "m2", "--down"])?;
    ensure!(states()? == ["Running", "no answer", "Running"]);
    cluster.run(&["cluster", "link", "m2", "--delay", "50ms", "--loss", "5%"])?;
    ensure!(states()? == ["Running", "Running", "Running"]);
    cluster.run(&["cluster", "link", "m2", "--up"])?;

    // The network crashes and comes back; the machines are those of before, and where they were.
    let before = boots()?;
    let directory = cluster.home.join(NAME).join("network");
    let record: Value = serde_json::from_slice(&fs::read(directory.join("network.json"))?)?;
    let process = qemu::process::Process::find(serde_json::from_value(record["process"].clone())?)?;
    let process = process.context("the network does not run")?;
    process.kill()?;
    ensure!(process.wait(t.within(10)), "the network does not end");
    ensure!(states()? == ["no network", "no network", "no network"]);
    let again = cluster.run(&["cluster", "start"])?;
    ensure!(again.contains("runs already; its virtual network had ended, and is back"), "{again}");
    ensure!(boots()? == before, "a machine was started again");

    let wait = |wanted: [&str; 3]| -> anyhow::Result<()> {
        let deadline = t.within(60);
        while states()? != wanted {
            ensure!(deadline.left().is_some(), "{:?} instead of {wanted:?}", states()?);
        }
        Ok(())
    };
    let lists = |columns: &[&str], wanted: &Value| -> anyhow::Result<()> {
        let deadline = t.within(60);
        loop {
            let listed = list(columns);
            if listed.as_ref().is_ok_and(|listed| listed == wanted) {
                return Ok(());
            }
            ensure!(deadline.left().is_some(), "{listed:?} instead of {wanted:#}");
        }
    };

    // Without its coordinator nobody joins a cluster, and nothing is left of who was to.
    cluster.run(&["cluster", "stop", "-m", "m1", "--timeout", &patience(20)])?;
    ensure!(states()? == ["off", "Running", "Running"]);
    let refused = cluster.owner.run(&["cluster", "add", NAME, "--level", "encrypted"]);
    let refused = refused.err().context("a machine was added without a coordinator")?;
    ensure!(refused.text.contains("no coordinator of cluster `one` answers; m1: "), "{refused}");
    ensure!(refused.text.contains("cluster `one` is as it was"), "{refused}");
    ensure!(!cluster.home.join(NAME).join("machines/m4").exists(), "files are left");
    for machine in ["m1", "m2", "m3"] {
        let carried = kinds(&fs::read(cluster.home.join(NAME).join("machines").join(machine).join("network.pcapng"))?)?;
        let hidden = carried.get(&Kind::WireGuard).is_some_and(|packets| *packets > 10) && others(&carried).is_empty();
        ensure!(hidden, "{machine}: {carried:?}");
    }

    cluster.run(&["cluster", "start", "-m", "m1"])?;
    wait(["AwaitingKeys", "Running", "Running"])?;
    cluster.run(&["-m", "m1", "recover"])?;
    lists(&members, &all)?;

    // All three coordinate. Switched on again they wait, for no two may open each other, until their owner opens them by one command.
    for machine in ["m2", "m3"] {
        cluster.run(&["machine", "role", "add", machine, "coordinator", "--wait", "--timeout", &patience(60)])?;
    }
    let three_vote = json!(["voter", "voter", "voter"]);
    lists(&["etcd"], &three_vote)?;
    let before = boots()?;
    cluster.run(&["cluster", "stop", "--timeout", &patience(20)])?;
    ensure!(states()? == ["off", "off", "off"]);
    cluster.run(&["cluster", "start"])?;
    wait(["AwaitingKeys"; 3])?;
    let looked = cluster.ask(&["recover", "--dry-run"])?;
    ensure!(looked["recovered"] == 3 && states()? == ["AwaitingKeys"; 3], "{looked:#}");
    cluster.run(&["recover"])?;
    for machine in ["m1", "m2", "m3"] {
        cluster.run(&["-m", machine, "condition", "wait", "Running", "--timeout", &patience(60)])?;
    }
    let after = boots()?;
    ensure!(before.iter().zip(&after).all(|(before, after)| before != after), "{before:?} {after:?}");
    lists(&["etcd"], &three_vote)?;

    // Whichever of them leads: who goes hands over before it is taken out, and the next change is not left without an answer.
    cluster.run(&["machine", "role", "remove", "m3", "coordinator", "--wait", "--timeout", &patience(60)])?;
    // The machine that made the cluster leaves it, by one command, and has nothing of a coordinator when that returns.
    cluster.run(&["machine", "remove", "m1", "--timeout", &patience(60)])?;
    let said = fs::read_to_string(cluster.console())?;
    ensure!(said.contains(LAID_DOWN), "it was removed before it had erased anything");
    let rest = json!(["m2", "coordinator", "Member", "m3", "node", "Member", "m1", "node", "Removed"]);
    ensure!(list(&members)? == rest, "{:#}", list(&members)?);
    cluster.destroyed()
}

fn three(t: &Context) -> anyhow::Result<()> {
    let cluster = Cluster::of(t)?;
    let made = ["--machines", "3", "--coordinators", "3"];
    let plain = ["--no-kubernetes", "--level", "encrypted", "--cpus", "1", "--memory", "384M"];
    let patience = patience(t, 120);
    let command = [&["cluster", "create", NAME], &made[..], &plain[..], &["--timeout", &patience]].concat();
    let (answer, told) = cluster.owner.told(&command)?;
    ensure!(["m1", "m2", "m3"].iter().all(|m| answer.contains(&format!("cluster `one` runs on {m}"))), "{answer}");
    for line in
        ["m1: runs, level encrypted", "m2: Member of the cluster", "m3: Member of the cluster", "etcd: 1 of 3 vote"]
    {
        ensure!(told.contains(line), "no word of `{line}`: {told}");
    }
    let (_, told) = cluster.owner.told(&["cluster", "add", NAME, "--level", "encrypted", "--timeout", &patience])?;
    ensure!(told.contains("m4: Member of the cluster"), "{told}");
    let listed = cluster.ask(&["machine", "list"])?;
    let rows = listed["machines"].as_array().context("machines are listed")?.iter();
    let rows: Value =
        rows.flat_map(|row| ["name", "role", "state", "etcd"].map(|column| row[column].clone())).collect();
    let coordinates = |name| [name, "coordinator", "Member", "voter"].map(Value::from);
    let node = [Value::from("m4"), Value::from("node"), Value::from("Member"), Value::Null];
    let wanted: Value = ["m1", "m2", "m3"].into_iter().flat_map(coordinates).chain(node).collect();
    ensure!(rows == wanted, "{listed:#}");
    cluster.destroyed()
}

fn panics(t: &Context) -> anyhow::Result<()> {
    let cluster = Cluster::of(t)?;
    let broken = t.dir().join("broken");
    fs::create_dir_all(&broken)?;
    for file in [names::KERNEL, names::DISK, names::MANIFEST] {
        std::os::unix::fs::symlink(t.image().file(file), broken.join(file))?;
    }
    // No archive: nothing to start, and no root to look for it on.
    fs::write(broken.join(names::INITRAMFS), [0; 4096])?;
    let image = broken.to_string_lossy();
    let line = ["--image", &image, "--no-kubernetes", "--no-tpm", "--unprotected", "--timeout", &patience(t, 60)];
    let refused = cluster.run(&[&["cluster", "create", NAME], &line[..]].concat());
    let refused = format!("{:#}", refused.err().context("a machine without a root came up")?);
    ensure!(
        refused.contains("the machine's kernel panicked") && refused.contains("Kernel panic - not syncing: "),
        "{refused}"
    );
    ensure!(refused.contains("what was made of cluster `one` stays for a look"), "{refused}");
    cluster.destroyed()
}

/// As `cairnctl --timeout` reads it: seconds on a host with KVM, stretched elsewhere.
fn patience(t: &Context, seconds: u64) -> String {
    format!("{}s", t.within(seconds).length().as_secs())
}

/// The only cluster of an owner. Its machine ends with it; its files stay for who looks why a case failed.
struct Cluster {
    owner: Owner,
    home: std::path::PathBuf,
}

impl Cluster {
    fn of(t: &Context) -> anyhow::Result<Self> {
        Ok(Self { owner: t.owner()?, home: t.dir().join("owner/cairn/clusters") })
    }

    fn run(&self, line: &[&str]) -> anyhow::Result<String> {
        self.owner.run(line).with_context(|| format!("cairnctl {}", line.join(" ")))
    }

    fn ask(&self, line: &[&str]) -> anyhow::Result<Value> {
        serde_json::from_str(&self.run(&[line, &["-o", "json"]].concat())?).context("read what cairnctl says")
    }

    fn kubectl(&self, arguments: &[&str]) -> anyhow::Result<String> {
        self.run(&[&["kubectl", "--"], arguments].concat())
    }

    fn console(&self) -> std::path::PathBuf {
        self.home.join(NAME).join("machines/m1/serial.log")
    }

    /// Takes it away: then nothing is listed, nothing lies there, and there is nothing to take away any more.
    fn destroyed(&self) -> anyhow::Result<()> {
        self.run(&["cluster", "destroy", NAME, "--yes"])?;
        ensure!(self.ask(&["cluster", "list"])?.as_array().is_some_and(Vec::is_empty));
        ensure!(fs::read_dir(&self.home)?.next().is_none(), "files are left");
        let again = self.owner.run(&["cluster", "destroy", NAME, "--yes"]).err().context("destroyed twice")?;
        ensure!(again.text.contains("there is no cluster `one`"), "{again}");
        Ok(())
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // Where it was destroyed, there is none.
        let _ended = self.owner.run(&["cluster", "stop", NAME, "--now"]);
    }
}
