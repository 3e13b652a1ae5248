//! The owner of a case's machines: `cairnctl` with a data directory of its own, as a person would use it.

use std::io::{self, BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use model::Secret;
use pki::PrivateKey;
use qemu::console::{Mark, Silent};
use qemu::deadline::Stopwatch;
use qemu::{Deadline, Vm, host};
use serde_json::Value;

use crate::pace::HostPace;
use crate::public_api;
use crate::status::{ServiceStatus, Status};

/// The environment variable that names the `cairnctl` under test.
pub(crate) const VARIABLE: &str = "CAIRN_CAIRNCTL";

/// Exit code of `cairnctl` for a machine that does not answer.
const UNREACHABLE: i32 = 3;
/// Exit code of `cairnctl` for what it does not trust, for what a machine refuses, and for who is not let in.
pub const REFUSED: i32 = 4;

/// Words of kubectl where the API lets it wait ten seconds for a handshake; it has no option for more (client-go, `transport/cache.go`).
const NO_HANDSHAKE: &str = "net/http: TLS handshake timeout";
/// Seconds for the same on a host with acceleration.
const HANDSHAKE: u64 = 10;

/// An owner: keys and pins in a directory of its own.
#[derive(Debug, Clone)]
pub struct Owner {
    cairnctl: PathBuf,
    home: PathBuf,
    /// This much more than the host's time of day is what its programs, and machines that they start, see.
    ahead: Duration,
}

/// A command that did not end with success.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`cairnctl {command}` ended with code {code}: {text}")]
pub struct CommandRefusal {
    /// Command that was given, without the program's name.
    pub command: String,
    /// Exit code of the program; -1 when a signal ended it or it could not be run.
    pub code: i32,
    /// Text that the program wrote to its standard error.
    pub text: String,
}

impl Owner {
    pub(crate) fn new(home: PathBuf) -> anyhow::Result<Self> {
        let unset = || format!("no cairnctl to test with: set {VARIABLE} (`cargo xtask test` does)");
        let cairnctl = PathBuf::from(std::env::var_os(VARIABLE).with_context(unset)?);
        ensure!(cairnctl.is_file(), "{VARIABLE} names no file: `{}`", cairnctl.display());
        std::fs::create_dir_all(&home).context("make the owner's directory")?;
        Ok(Self { cairnctl, home, ahead: Duration::ZERO })
    }

    /// The same owner this much later.
    #[must_use]
    pub fn later(self, by: Duration) -> Self {
        Self { ahead: by, ..self }
    }

    /// Where its keys and pins lie.
    pub(crate) fn home(&self) -> &Path {
        &self.home
    }

    /// Writes and reads a signed enrolment config for a new cluster of this name. `choices` are the options of
    /// `cairnctl enrol config`: `--level encrypted`, `--unprotected`, `--no-kubernetes`, …
    ///
    /// # Errors
    /// What `cairnctl` says; a file that cannot be read.
    pub fn config(&self, cluster: &str, choices: &[&str]) -> anyhow::Result<Vec<u8>> {
        let file = self.home.join(format!("{cluster}.pb"));
        let path = file.to_str().context("the case's directory has a name in UTF-8")?;
        self.run(&[&["enrol", "config", "--name", cluster, "--out", path], choices].concat())?;
        std::fs::read(&file).context("read the enrolment config")
    }

    /// The config of a machine that joins by this ticket; `machine` names its file.
    ///
    /// # Errors
    /// When the config cannot be made.
    pub fn config_of_joiner(&self, machine: &str, ticket: &str, choices: &[&str]) -> anyhow::Result<Vec<u8>> {
        let (file, text) = (self.home.join(format!("{machine}.pb")), self.home.join(format!("{machine}.ticket")));
        std::fs::write(&text, ticket).context("write the ticket")?;
        let path = |path: &Path| path.to_str().map(str::to_owned).context("the case's directory has a name in UTF-8");
        self.run(&[&["enrol", "config", "--ticket", &path(&text)?, "--out", &path(&file)?], choices].concat())?;
        std::fs::read(&file).context("read the enrolment config")
    }

    /// Runs a command about the cluster whose machine is `vm` and reads its answer. First contact is made if it was not
    /// made yet.
    ///
    /// # Errors
    /// [`CommandRefusal`]
    pub fn ask(&self, cluster: &str, vm: &Vm, command: &[&str]) -> Result<Value, CommandRefusal> {
        let refused = |text| CommandRefusal { command: command.join(" "), code: -1, text };
        let port = vm.forward(model::PUBLIC_API_PORT);
        let address = port.ok_or_else(|| refused("the machine has no port".into()))?.to_string();
        let answer = self.run(&[&["-c", cluster, "--address", &address, "-o", "json"], command].concat())?;
        serde_json::from_str(&answer).map_err(|error| refused(format!("no JSON ({error}): {answer}")))
    }

    /// Waits until the machine says from there on that it runs as a member, and has met its owner; its status.
    ///
    /// # Errors
    /// When it does not run in time, or refuses its owner.
    pub fn status_when_running(
        &self,
        cluster: &str,
        vm: &Vm,
        from: Mark,
        deadline: Deadline,
    ) -> anyhow::Result<Status> {
        wait_state(vm, from, "Running", deadline)?;
        // Behind a reboot that line may be the old boot's last: the machine itself has to say so, too.
        self.when(cluster, vm, &["machine", "status"], deadline, Status::when_running)
    }

    /// The status of a member, as it is now.
    ///
    /// # Errors
    /// [`CommandRefusal`]; a status that lacks what members have.
    pub fn status(&self, cluster: &str, vm: &Vm) -> anyhow::Result<Status> {
        Status::read(&self.ask(cluster, vm, &["machine", "status"])?)
    }

    /// The machine's services, as they are now.
    ///
    /// # Errors
    /// [`CommandRefusal`]; what is no list of services.
    pub fn services(&self, cluster: &str, vm: &Vm) -> anyhow::Result<Vec<ServiceStatus>> {
        ServiceStatus::read_all(&self.ask(cluster, vm, &["machine", "services"])?)
    }

    /// Waits until the machine runs in another boot than the one that `before` is a status of; its status there. Counting
    /// resets would not do: firmware may add one of its own to each.
    ///
    /// # Errors
    /// When it does not run in time, or refuses its owner.
    pub fn status_of_next_boot(
        &self,
        cluster: &str,
        vm: &Vm,
        before: &Status,
        deadline: Deadline,
    ) -> anyhow::Result<Status> {
        let next =
            |answer: &Value| Ok(Status::when_running(answer)?.filter(|status| status.is_of_another_boot(before)));
        self.when(cluster, vm, &["machine", "status"], deadline, next)
    }

    /// As [`Self::ask`], again and again while the machine does not answer, until `wanted` takes something from the answer.
    fn when<T>(
        &self,
        cluster: &str,
        vm: &Vm,
        command: &[&str],
        deadline: Deadline,
        wanted: impl Fn(&Value) -> anyhow::Result<Option<T>>,
    ) -> anyhow::Result<T> {
        let mut last = None;
        let taken = vm.until(deadline, || match self.ask(cluster, vm, command) {
            Err(refused) if refused.code == UNREACHABLE => {
                last = Some(refused.to_string());
                None
            }
            Err(refused) => Some(Err(refused.into())),
            Ok(answer) => {
                last = Some(format!("{answer:#}"));
                wanted(&answer).transpose()
            }
        });
        match (taken, last) {
            (Ok(taken), _) => taken,
            (Err(waited), Some(last)) => bail!("{waited}: {last}"),
            (Err(waited), None) => Err(waited.into()),
        }
    }

    /// Entries of the machine's log, as `cairnctl machine logs` with these arguments shows them.
    ///
    /// # Errors
    /// [`CommandRefusal`]; what is no entry.
    pub fn logs(&self, cluster: &str, vm: &Vm, arguments: &[&str]) -> anyhow::Result<Vec<Value>> {
        let address = public_api(vm)?;
        let all = [&["-c", cluster, "--address", &address.to_string(), "-o", "json", "machine", "logs"], arguments];
        let text = self.run(&all.concat())?;
        text.lines().map(|line| serde_json::from_str(line).context("read an entry of the log")).collect()
    }

    /// Text of each entry that [`Self::logs`] shows.
    ///
    /// # Errors
    /// As above.
    pub fn lines(&self, cluster: &str, vm: &Vm, arguments: &[&str]) -> anyhow::Result<Vec<String>> {
        let entries = self.logs(cluster, vm, arguments)?;
        Ok(entries.iter().filter_map(|entry| entry["line"].as_str().map(str::to_owned)).collect())
    }

    /// Waits until the cluster's first machine is known at an address that begins so, and has a ticket issued, which names it.
    ///
    /// # Errors
    /// When it is not known there in time; [`CommandRefusal`] what is asked for beside `arguments`.
    pub fn ticket_naming(
        &self,
        cluster: &str,
        vm: &Vm,
        address: &str,
        arguments: &[&str],
        deadline: Deadline,
    ) -> anyhow::Result<String> {
        let known = || {
            let listed = self.ask(cluster, vm, &["machine", "list"]).ok()?;
            let mut addresses = listed["machines"][0]["addresses"].as_array()?.iter().filter_map(Value::as_str);
            addresses.any(|its| its.starts_with(address)).then_some(())
        };
        vm.until(deadline, known).with_context(|| format!("the first machine is not known at {address}"))?;
        let issued = self.ask(cluster, vm, &[&["ticket", "issue"], arguments].concat())?;
        Ok(issued["ticket"].as_str().context("a ticket has a text")?.to_owned())
    }

    /// The key by which machines know this owner.
    ///
    /// # Errors
    /// When there is none yet: [`Self::config`] makes it.
    pub fn key(&self) -> anyhow::Result<PrivateKey> {
        key_of_owner(&self.home)
    }

    /// Runs `cairnctl` with these arguments; what it wrote to its standard output.
    ///
    /// # Errors
    /// [`CommandRefusal`]
    pub fn run(&self, arguments: &[&str]) -> Result<String, CommandRefusal> {
        self.told(arguments).map(|(answer, _)| answer)
    }

    /// The same, and behind it what it told meanwhile on its standard error. Where kubectl waited in vain for a handshake, nothing was
    /// asked for: it is run again for as long as a handshake may take here.
    ///
    /// # Errors
    /// [`CommandRefusal`]
    pub fn told(&self, arguments: &[&str]) -> Result<(String, String), CommandRefusal> {
        let begun = Stopwatch::start();
        loop {
            let told = self.told_by(Command::new(&self.cairnctl), arguments);
            let in_vain = told.as_ref().is_err_and(|refusal| refusal.text.contains(NO_HANDSHAKE));
            if !in_vain || begun.elapsed() >= HostPace::here().stretch(HANDSHAKE) {
                return told;
            }
        }
    }

    /// Runs `cairnctl` where no file that it writes becomes longer than that many blocks of 512 bytes: as on a full disk, an error
    /// is all that it gets.
    ///
    /// # Errors
    /// [`CommandRefusal`]
    pub fn run_without_room(&self, blocks: u32, arguments: &[&str]) -> Result<String, CommandRefusal> {
        let mut shell = Command::new("sh");
        // The signal that would end it stays ignored in the program.
        shell.args(["-c", "trap '' XFSZ; ulimit -f \"$0\"; exec \"$@\"", &blocks.to_string()]).arg(&self.cairnctl);
        self.told_by(shell, arguments).map(|(answer, _)| answer)
    }

    /// Starts `cairnctl` with these arguments; its lines are read while it runs.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn follow(&self, arguments: &[&str]) -> anyhow::Result<Follower> {
        let mut command = self.as_here(Command::new(&self.cairnctl), arguments);
        let piped = command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = piped.spawn().context("start cairnctl")?;
        let output = BufReader::new(child.stdout.take().context("its output is a pipe")?);
        let mut errors = child.stderr.take().context("its errors are a pipe")?;
        let ((says, lines), (complains, complaint)) = (channel(), channel());
        thread::spawn(move || output.lines().map_while(Result::ok).try_for_each(|line| says.send(line)));
        thread::spawn(move || complains.send(io::read_to_string(&mut errors)));
        Ok(Follower { child, lines, complaint })
    }

    fn as_here(&self, mut command: Command, arguments: &[&str]) -> Command {
        command
            .args(arguments)
            .args(usual_prefixes(arguments))
            .env("XDG_DATA_HOME", &self.home)
            .env("HOME", &self.home)
            .stdin(Stdio::null());
        if !self.ahead.is_zero() {
            host::see_ahead(&mut command, self.ahead);
        }
        command
    }

    fn told_by(&self, command: Command, arguments: &[&str]) -> Result<(String, String), CommandRefusal> {
        let mut command = self.as_here(command, arguments);
        let refused = |code, text| CommandRefusal { command: arguments.join(" "), code, text };
        let output = command.output().map_err(|error| refused(-1, error.to_string()))?;
        let [answer, told] = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
        if output.status.success() {
            Ok((answer, told))
        } else {
            Err(refused(output.status.code().unwrap_or(-1), told))
        }
    }
}

/// A `cairnctl` that runs until it ends by itself, or this is dropped.
#[derive(Debug)]
pub struct Follower {
    child: Child,
    lines: Receiver<String>,
    /// Errors that it wrote, once it has ended.
    complaint: Receiver<io::Result<String>>,
}

impl Follower {
    /// The next line that it writes.
    ///
    /// # Errors
    /// When there is none in time, or will be none.
    pub fn line(&self, deadline: Deadline) -> anyhow::Result<String> {
        match self.lines.recv_timeout(deadline.left().unwrap_or_default()) {
            Ok(line) => Ok(line),
            Err(RecvTimeoutError::Timeout) => bail!("cairnctl wrote no line yet"),
            Err(RecvTimeoutError::Disconnected) => {
                let complaint = self.complaint.recv_timeout(deadline.left().unwrap_or_default())??;
                bail!("cairnctl writes no line any more: {complaint}")
            }
        }
    }

    /// Waits until it, and what it started, has written its last.
    ///
    /// # Errors
    /// When it goes on for longer.
    pub fn ends(self, deadline: Deadline) -> anyhow::Result<()> {
        loop {
            match self.lines.recv_timeout(deadline.left().unwrap_or_default()) {
                Ok(_another_line) => {}
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
                Err(RecvTimeoutError::Timeout) => bail!("cairnctl goes on"),
            }
        }
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ended = self.child.kill();
        let _reaped = self.child.wait();
    }
}

/// Options by which a new cluster has the usual prefixes, where the command chooses none: cases name addresses of them, and on a host whose own
/// networks have some it would take others.
fn usual_prefixes(arguments: &[&str]) -> Vec<&'static str> {
    const USUAL: [(&str, &str); 3] = [
        ("--vpn-prefix", "--vpn-prefix=10.118.0.0/16"),
        ("--pod-prefix", "--pod-prefix=10.244.0.0/16"),
        ("--service-prefix", "--service-prefix=10.96.0.0/16"),
    ];
    let has = |option: &str| arguments.iter().any(|argument| argument.starts_with(option));
    let makes = |pair: &[&str]| matches!(pair, ["enrol", "config"] | ["cluster", "create" | "init"]);
    if !arguments.windows(2).any(makes) || has("--from") || has("--ticket") {
        return Vec::new();
    }
    USUAL.into_iter().filter(|(option, _)| !has(option)).map(|(_, usual)| usual).collect()
}

/// The key of the owner whose data directory is `home`, as `cairnctl` keeps it (`owner.keys`: the 32 bytes behind magic and
/// version, `cli/src/store/owner.rs`).
///
/// # Errors
/// There is none, or its file is cut.
pub fn key_of_owner(home: &Path) -> anyhow::Result<PrivateKey> {
    let file = std::fs::read(home.join("cairn/owner.keys")).context("read the owner's keys")?;
    let mut seed = *file.get(12..).and_then(<[u8]>::first_chunk::<32>).context("`owner.keys` is cut")?;
    Ok(PrivateKey::ed25519(&Secret::take(&mut seed))?)
}

/// Waits until the console's screen shows, from there on, the machine in `state`; its public API is open then. Where that line ends.
///
/// # Errors
/// [`Silent`]
pub fn wait_state(vm: &Vm, from: Mark, state: &str, deadline: Deadline) -> Result<Mark, Silent> {
    Ok(vm.wait_for(from, &state_line(state), deadline)?.end)
}

/// The line of the console's screen that shows a state.
fn state_line(state: &str) -> String {
    format!("  {:<10} {state}", "state")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_state_is_looked_for_as_the_screen_shows_it() {
        assert_eq!(state_line("Blank"), "  state      Blank");
    }
}
