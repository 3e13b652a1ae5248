//! A virtual cluster as its owner has it: made, looked at, saved and taken away by `cairnctl` alone, in a data directory of the case's
//! own. It must never reach a machine by another way than its owner could.

use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use qemu::{Deadline, Vm};
use serde_json::Value;

use crate::copies::{keep_owner, owner_of};
use crate::owner::Owner;
use crate::{Context, FleetKind, Status};

/// Name of the cluster.
pub(crate) const NAME: &str = "one";
/// Text of a column that has nothing.
pub(crate) const NONE: &str = "-";

/// As `cairnctl --timeout` reads it: seconds on a host with KVM, stretched elsewhere.
pub(crate) fn patience(t: &Context, seconds: u64) -> String {
    format!("{}s", t.within(seconds).length().as_secs())
}

pub(crate) fn text(path: &Path) -> anyhow::Result<&str> {
    path.to_str().context("the directory of all cases has a name in UTF-8")
}

/// Columns of a table of machines, row by row.
pub(crate) fn columns(answer: &Value, names: &[&str]) -> anyhow::Result<Vec<String>> {
    let rows = answer["machines"].as_array().context("a table of machines")?.iter();
    let cells = rows.flat_map(|row| names.iter().map(|name| row[*name].as_str().unwrap_or(NONE).to_owned()));
    Ok(cells.collect())
}

/// The only cluster of an owner. Its machines end with it; its files stay for who looks why a case failed.
pub(crate) struct Cluster {
    pub(crate) owner: Owner,
    pub(crate) home: PathBuf,
}

impl Cluster {
    pub(crate) fn of(t: &Context) -> anyhow::Result<Self> {
        Ok(Self::owned_by(t.owner()?, t))
    }

    pub(crate) fn owned_by(owner: Owner, t: &Context) -> Self {
        Self { owner, home: t.dir().join("owner/cairn/clusters") }
    }

    /// The machines of a fleet that its owner has saved, on a network of their own.
    pub(crate) fn copy_of(t: &Context, fleet: FleetKind) -> anyhow::Result<Self> {
        Self::copy_later(t, fleet, Duration::ZERO)
    }

    /// The same once it lay for so long.
    pub(crate) fn copy_later(t: &Context, fleet: FleetKind, lay: Duration) -> anyhow::Result<Self> {
        let cluster = Self::owned_by(owner_of(&t.fleet(fleet), t.dir())?.later(lay), t);
        cluster.copied(t, fleet, NAME, &[])?;
        Ok(cluster)
    }

    /// Has its owner make a copy of a fleet, under this name and with these options.
    pub(crate) fn copied(&self, t: &Context, fleet: FleetKind, name: &str, more: &[&str]) -> anyhow::Result<String> {
        let fleet = t.fleet(fleet);
        let line = ["cluster", "create", name, "--from", text(&fleet)?, "--timeout", &patience(t, 30)];
        self.run(&[&line, more].concat())
    }

    /// Saves its machines as the fleet that this case makes, and ends them.
    pub(crate) fn save(&self, t: &Context, fleet: FleetKind) -> anyhow::Result<()> {
        let fleet = t.fleet(fleet);
        fs::create_dir_all(fleet.parent().context("a fleet's folder has a parent")?)?;
        self.run(&["cluster", "save", NAME, "--as", text(&fleet)?])?;
        self.destroyed()?;
        keep_owner(&self.owner, &fleet)
    }

    pub(crate) fn run(&self, line: &[&str]) -> anyhow::Result<String> {
        self.owner.run(line).with_context(|| format!("cairnctl {}", line.join(" ")))
    }

    pub(crate) fn ask(&self, line: &[&str]) -> anyhow::Result<Value> {
        serde_json::from_str(&self.run(&[line, &["-o", "json"]].concat())?).context("read what cairnctl says")
    }

    pub(crate) fn kubectl(&self, arguments: &[&str]) -> anyhow::Result<String> {
        self.run(&[&["kubectl", "--"], arguments].concat())
    }

    /// Connection of a program of the host to a port of a machine, by the cluster's proxy.
    pub(crate) fn by_proxy(&self, t: &Context, machine: &str, port: u16) -> anyhow::Result<TcpStream> {
        let proxy = self.ask(&["cluster", "proxy"])?;
        let proxy =
            proxy["url"].as_str().and_then(|url| url.strip_prefix("socks5h://")).context("a proxy has a URL")?;
        let (proof, proxy) =
            proxy.strip_prefix("cairn:").and_then(|rest| rest.split_once('@')).context("it has a word")?;
        let mut program = TcpStream::connect(proxy)?;
        program.set_read_timeout(Some(t.within(1).left().unwrap_or_default()))?;
        let proof = [b"\x05\x01\x02\x01\x05cairn\x20", proof.as_bytes()].concat();
        let place = match machine.parse::<Ipv4Addr>() {
            Ok(address) => [&[1][..], &address.octets()].concat(),
            Err(_) => [&[3, u8::try_from(machine.len()).context("a name is short")?][..], machine.as_bytes()].concat(),
        };
        program.write_all(&[&proof[..], &[5, 1, 0], &place, &port.to_be_bytes()].concat())?;
        let mut answered = [0; 14];
        program.read_exact(&mut answered)?;
        ensure!(answered[..6] == [5, 2, 1, 0, 5, 0], "{machine} is not reached: {answered:?}");
        Ok(program)
    }

    /// Last line that a web server at a port of a machine says to that proxy.
    pub(crate) fn said_at(&self, t: &Context, machine: &str, port: u16) -> anyhow::Result<String> {
        let (mut program, mut said) = (self.by_proxy(t, machine, port)?, String::new());
        program.write_all(b"GET / HTTP/1.0\r\n\r\n")?;
        program.read_to_string(&mut said)?;
        Ok(said.lines().last().context("it says nothing")?.to_owned())
    }

    /// Has a machine stand still, as one of a host that is suspended.
    pub(crate) fn stands_still(&self, t: &Context, machine: &str) -> anyhow::Result<()> {
        let mut machine = Vm::attach(&self.files_of(machine))?.context("it runs")?;
        Ok(machine.qmp().pause(t.within(5))?)
    }

    /// Has a machine go on that stood still.
    pub(crate) fn goes_on(&self, machine: &str) -> anyhow::Result<()> {
        ensure!(Vm::wake_detached(&self.files_of(machine))?, "it did not stand still");
        Ok(())
    }

    pub(crate) fn files_of(&self, machine: &str) -> PathBuf {
        self.home.join(NAME).join("machines").join(machine)
    }

    /// Status of the machine that these arguments mean.
    pub(crate) fn status(&self, meant: &[&str]) -> anyhow::Result<Status> {
        Status::read(&self.ask(&[meant, &["machine", "status"]].concat())?)
    }

    /// Waits until the machine runs that these arguments mean.
    pub(crate) fn runs(&self, t: &Context, meant: &[&str]) -> anyhow::Result<()> {
        let wait = ["condition", "wait", "Running", "--timeout", &patience(t, 60)];
        self.run(&[meant, &wait[..]].concat()).map(drop)
    }

    /// State of each machine, in their order, or why it does not answer.
    pub(crate) fn states(&self) -> anyhow::Result<Vec<String>> {
        columns(&self.ask(&["cluster", "status"])?, &["state"])
    }

    /// Looks until it is as wanted.
    pub(crate) fn comes_to(
        &self,
        wanted: &[&str],
        deadline: Deadline,
        look: impl Fn(&Self) -> anyhow::Result<Vec<String>>,
    ) -> anyhow::Result<()> {
        loop {
            let seen = look(self);
            if seen.as_ref().is_ok_and(|seen| seen == wanted) {
                return Ok(());
            }
            ensure!(deadline.left().is_some(), "{seen:?} instead of {wanted:?}");
        }
    }

    /// Place where the owner finds a machine's public API.
    pub(crate) fn place(&self, machine: &str) -> anyhow::Result<SocketAddr> {
        let places = columns(&self.ask(&["cluster", "status"])?, &["machine", "address"])?;
        let place = places.chunks_exact(2).find(|row| row[0] == machine).map(|row| row[1].parse());
        Ok(place.with_context(|| format!("{machine} is not told"))??)
    }

    /// Takes it away: then nothing is listed, nothing lies there, and there is nothing to take away any more.
    pub(crate) fn destroyed(&self) -> anyhow::Result<()> {
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
