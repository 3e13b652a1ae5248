//! The process of a cluster's network, from outside: started, found again, asked, ended. It lives until it is ended or
//! its directory is removed, and is known by `network.json` in the network's directory, which it writes itself once it can be asked.
//!
//! ```text
//!   directory/ network.json   pid, start time, where the sockets are
//!              lock           held as long as it runs: there is one
//!              network.log    what it said
//!              proxy-word     0600, what programs say to its proxy; drawn once
//!   sockets:   a directory of its own with a short name, since a socket's path is short; kept while machines may
//!              listen there, so that the next process finds them
//! ```

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::client::{self, AskError};
use super::{Attach, AttachedMachine, Attachment, Direction, NetworkAnswer, NetworkQuestion, PortForward, Proxy};
use crate::deadline::Deadline;
use crate::last_words;
use crate::network::Faults;
use crate::process::{Process, ProcessError, ProcessIdentity, WaitFailure};

/// A running network of a cluster.
#[derive(Debug)]
pub struct NetworkProcess {
    directory: PathBuf,
    record: Record,
    process: Process,
}

/// Why it does not run, or cannot be found.
#[derive(Debug, thiserror::Error)]
pub enum DetachedError {
    /// A file of its own.
    #[error("use `{path}`")]
    File {
        /// Which.
        path: PathBuf,
        /// Error of the kernel or the parser.
        source: io::Error,
    },
    /// The program cannot be started.
    #[error("start the network's process")]
    Spawn(#[source] io::Error),
    /// The process does not come up.
    #[error("the network's process does not run ({why}); it says: {output}")]
    Start {
        /// The end of its log.
        output: String,
        /// How it was waited for.
        why: WaitFailure,
    },
    /// The process cannot be watched.
    #[error("watch the network's process")]
    Watch(#[from] ProcessError),
    /// The process was killed and is still there: the kernel does not let go of it.
    #[error("the network (process {0}) was killed and does not end")]
    Unkillable(i32),
}

impl DetachedError {
    fn at(path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::File { path, source }
    }
}

/// Facts by which the process is found again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Record {
    pub(super) process: ProcessIdentity,
    pub(super) sockets: PathBuf,
}

/// Bound of a wait for what is broken: the process comes up within this, however busy the host is.
const HOST: Duration = Duration::from_secs(60);

impl NetworkProcess {
    /// Has `program` run [`super::server::serve`] for this directory, detached, and waits until it can be asked.
    ///
    /// # Errors
    /// [`DetachedError`]; it does not run then.
    pub fn start(directory: &Path, mut program: Command) -> Result<Self, DetachedError> {
        let at = DetachedError::at;
        let path = directory.join("network.log");
        let log = File::create(&path).map_err(at(&path))?;
        program.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        // Ctrl-C at the launcher's terminal is not meant for it.
        program.process_group(0);
        let mut child = program.spawn().map_err(DetachedError::Spawn)?;
        let process = Process::of_child(child.id())?;
        let written = || Record::read(directory).ok().flatten().filter(|record| record.process == process.identity());
        match process.until(Deadline::after(HOST), written) {
            Ok(record) => Ok(Self { directory: directory.to_owned(), record, process }),
            Err(why) => {
                // It has ended, or is of no use.
                let (_killed, _reaped) = (child.kill(), child.wait());
                Err(DetachedError::Start { output: last_words::of_program(&path), why })
            }
        }
    }

    /// The one that runs for this directory.
    ///
    /// # Errors
    /// [`DetachedError`]
    pub fn find(directory: &Path) -> Result<Option<Self>, DetachedError> {
        let Some(record) = Record::read(directory).map_err(DetachedError::at(directory))? else { return Ok(None) };
        let process = Process::find(record.process)?;
        Ok(process.map(|process| Self { directory: directory.to_owned(), record, process }))
    }

    /// Ends it, if it runs, and takes away what it leaves. Machines must have ended: none finds its way back.
    ///
    /// # Errors
    /// [`DetachedError`]; its record stays then, so that it can be tried again.
    pub fn end(directory: &Path) -> Result<(), DetachedError> {
        let Some(record) = Record::read(directory).map_err(DetachedError::at(directory))? else { return Ok(()) };
        if let Some(process) = Process::find(record.process)? {
            // Found by identity: the only failure is that it has ended.
            let _killed = process.kill();
            if !process.wait(Deadline::after(HOST)) {
                return Err(DetachedError::Unkillable(record.process.pid));
            }
        }
        // What is gone already is not missed.
        let (_sockets, _record) = (fs::remove_dir_all(&record.sockets), fs::remove_file(file(directory)));
        Ok(())
    }

    /// Where its record is.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Pid and start time.
    #[must_use]
    pub fn process(&self) -> ProcessIdentity {
        self.process.identity()
    }

    /// Gives a machine its place.
    ///
    /// # Errors
    /// [`AskError`]
    pub fn attach(&self, attach: Attach) -> Result<Attachment, AskError> {
        match self.ask(&NetworkQuestion::Attach(attach))? {
            NetworkAnswer::Attached(attached) => Ok(attached),
            NetworkAnswer::Proxy(_)
            | NetworkAnswer::Done {}
            | NetworkAnswer::Status { .. }
            | NetworkAnswer::Refused { .. } => Err(AskError::Other),
        }
    }

    /// Sets what is wrong with a machine's cable, in one direction or both.
    ///
    /// # Errors
    /// [`AskError`]
    pub fn set_faults(&self, name: &str, direction: Option<Direction>, faults: Faults) -> Result<(), AskError> {
        self.done(&NetworkQuestion::SetFaults { name: name.to_owned(), direction, faults })
    }

    /// Begins a machine's capture, or ends it.
    ///
    /// # Errors
    /// [`AskError`]
    pub fn capture(&self, name: &str, file: Option<PathBuf>) -> Result<(), AskError> {
        self.done(&NetworkQuestion::Capture { name: name.to_owned(), file })
    }

    /// Carries connections to a port of the host's loopback to a port of whichever machine answers.
    ///
    /// # Errors
    /// [`AskError`]
    pub fn forward(&self, forward: PortForward) -> Result<(), AskError> {
        self.done(&NetworkQuestion::Forward(forward))
    }

    /// Leads what no machine has outside, to the host's networks.
    ///
    /// # Errors
    /// [`AskError`]
    pub fn lead_outside(&self) -> Result<(), AskError> {
        self.done(&NetworkQuestion::LeadOutside {})
    }

    /// Where programs of the host that know its word say in SOCKS5 where in the network they want to go.
    ///
    /// # Errors
    /// [`AskError`]
    pub fn proxy(&self) -> Result<Proxy, AskError> {
        match self.ask(&NetworkQuestion::Proxy {})? {
            NetworkAnswer::Proxy(proxy) => Ok(proxy),
            NetworkAnswer::Attached(_)
            | NetworkAnswer::Done {}
            | NetworkAnswer::Status { .. }
            | NetworkAnswer::Refused { .. } => Err(AskError::Other),
        }
    }

    /// All machines.
    ///
    /// # Errors
    /// [`AskError`]
    pub fn machines(&self) -> Result<Vec<AttachedMachine>, AskError> {
        match self.ask(&NetworkQuestion::Status {})? {
            NetworkAnswer::Status { machines, .. } => Ok(machines),
            NetworkAnswer::Attached(_)
            | NetworkAnswer::Proxy(_)
            | NetworkAnswer::Done {}
            | NetworkAnswer::Refused { .. } => Err(AskError::Other),
        }
    }

    /// Waits until each machine is at the other end of its cable: what is sent before is lost.
    ///
    /// # Errors
    /// [`WaitFailure`]
    pub fn all_plugged_in(&self, deadline: Deadline) -> Result<(), WaitFailure> {
        let all = || self.machines().ok()?.iter().all(|machine| machine.is_plugged_in).then_some(());
        self.process.until(deadline, all)
    }

    fn done(&self, question: &NetworkQuestion) -> Result<(), AskError> {
        match self.ask(question)? {
            NetworkAnswer::Done {} => Ok(()),
            NetworkAnswer::Attached(_)
            | NetworkAnswer::Proxy(_)
            | NetworkAnswer::Status { .. }
            | NetworkAnswer::Refused { .. } => Err(AskError::Other),
        }
    }

    fn ask(&self, question: &NetworkQuestion) -> Result<NetworkAnswer, AskError> {
        client::ask(&self.record.sockets, question)
    }
}

impl Record {
    pub(super) fn write(&self, directory: &Path) -> io::Result<()> {
        let fresh = directory.join("network.json.new");
        fs::write(&fresh, serde_json::to_vec_pretty(self)?)?;
        fs::rename(fresh, file(directory))
    }

    fn read(directory: &Path) -> io::Result<Option<Self>> {
        match fs::read(file(directory)) {
            Ok(text) => Ok(Some(serde_json::from_slice(&text)?)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// Where the sockets of this directory's network go: where machines that still run listen, else somewhere new.
pub(super) fn sockets_of(directory: &Path) -> io::Result<PathBuf> {
    if let Some(Record { sockets, .. }) = Record::read(directory)?
        && let Ok(there) = fs::symlink_metadata(&sockets)
        // After a restart of the host somebody else may have made one of that name.
        && there.is_dir() && there.uid() == rustix::process::geteuid().as_raw() && there.mode() & 0o077 == 0
    {
        return Ok(sockets);
    }
    // Whoever enters it may ask for anything.
    let own = fs::Permissions::from_mode(0o700);
    Ok(tempfile::Builder::new().prefix("cairn-").permissions(own).tempdir()?.keep())
}

fn file(directory: &Path) -> PathBuf {
    directory.join("network.json")
}
