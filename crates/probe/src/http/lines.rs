//! An answer that comes line by line and may go on for minutes, such as a watch of the Kubernetes API.

use std::time::Duration;

use http_body_util::BodyExt;
use hyper::body::{Bytes, Incoming};
use tokio::time::timeout;

use super::{Connection, Error};

/// The longest line that is read: an object of the Kubernetes API is stored in 1.5 MiB at most (etcd's `--max-request-bytes`).
const LINE_BYTES: usize = 2 << 20;

/// Lines of an answer; dropping them ends its connection.
#[derive(Debug)]
pub struct AnswerLines {
    body: Incoming,
    /// Bytes that have come, from the first one of the next line on.
    buffer: Vec<u8>,
    /// Bytes of them in which no line ends.
    searched: usize,
    silence: Duration,
    _carries: Connection,
}

impl AnswerLines {
    pub(super) const fn of(body: Incoming, connection: Connection, silence: Duration) -> Self {
        Self { body, buffer: Vec::new(), searched: 0, silence, _carries: connection }
    }

    /// The next line without its end; none once the answer is over. What a call that is given up has read stays for the next.
    ///
    /// # Errors
    /// [`Error`]: the connection broke, the line is too long, or nothing came for too long.
    pub async fn next(&mut self) -> Result<Option<Bytes>, Error> {
        loop {
            if let Some(end) = self.buffer[self.searched..].iter().position(|byte| *byte == b'\n') {
                let rest = self.buffer.split_off(self.searched + end + 1);
                let mut line = std::mem::replace(&mut self.buffer, rest);
                line.pop();
                self.searched = 0;
                return Ok(Some(line.into()));
            }
            self.searched = self.buffer.len();
            if self.searched > LINE_BYTES {
                return Err(Error::Line);
            }
            match timeout(self.silence, self.body.frame()).await.map_err(|_elapsed| Error::Quiet(self.silence))? {
                None => return Ok(None),
                Some(frame) => self.buffer.extend(frame?.into_data().iter().flatten()),
            }
        }
    }
}
