//! Asking the process that a cluster's network runs in.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::{BadLine, LONGEST_ANSWER, NetworkAnswer, NetworkQuestion, answer, line};

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// No process listens, or the connection broke.
    #[error("ask the network")]
    Io(#[from] io::Error),
    /// Another version of this program may be at the other end.
    #[error("speak with the network")]
    Line(#[from] BadLine),
    /// The process says no.
    #[error("the network refuses: {0}")]
    Refused(String),
    /// The process answers another question.
    #[error("the network answers another question")]
    Other,
}

/// Bound of a wait for what is broken: the process answers as soon as it is scheduled, however busy the host is.
const PATIENCE: Duration = Duration::from_secs(60);

/// Path of the socket that it listens at.
pub(super) fn socket(sockets: &Path) -> PathBuf {
    sockets.join("control")
}

/// Asks the process with its sockets in this directory. A refusal is an error.
pub(super) fn ask(sockets: &Path, question: &NetworkQuestion) -> Result<NetworkAnswer, AskError> {
    let mut stream = UnixStream::connect(socket(sockets))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.write_all(&line(question)?)?;
    let mut said = Vec::new();
    let longest = u64::try_from(LONGEST_ANSWER).unwrap_or(u64::MAX);
    stream.take(longest.saturating_add(1)).read_to_end(&mut said)?;
    match answer(&said)? {
        NetworkAnswer::Refused { why } => Err(AskError::Refused(why)),
        answer @ (NetworkAnswer::Attached(_)
        | NetworkAnswer::Proxy(_)
        | NetworkAnswer::Done {}
        | NetworkAnswer::Status { .. }) => Ok(answer),
    }
}
