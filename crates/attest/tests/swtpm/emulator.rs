//! A TPM to test against: one `swtpm` process per power-on, a state directory that outlives it, and transports that
//! listen on its bus or meddle with it.

use std::io::{self, Read, Write};
use std::marker::PhantomData;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};

use attest::Transport;
use tempfile::TempDir;

/// State that survives a power cut: the TPM's non-volatile memory.
pub(crate) struct Board {
    state: TempDir,
}

impl Board {
    /// A TPM fresh from the factory.
    pub(crate) fn new() -> Self {
        Self { state: tempfile::tempdir().expect("make a state directory") }
    }

    /// Switches it on; it cannot be on twice. `swtpm` is a package the tests need: without it they fail.
    pub(crate) fn power_on(&mut self) -> Emulator<'_> {
        let installed = Command::new("swtpm").arg("--version").stdout(Stdio::null()).status();
        assert!(installed.is_ok(), "these tests run against a real emulator: install the package `swtpm`");
        let (bus, theirs) = UnixStream::pair().expect("make a socket pair");
        // A socket pair has no path to wait for: the first command lies in it until the emulator is ready. The shell
        // moves it from standard input, which swtpm refuses, and then becomes swtpm, so that the pid stays the same.
        let child = Command::new("sh")
            .args(["-c", "exec swtpm \"$@\" 3<&0 </dev/null", "swtpm"])
            .args(["socket", "--tpm2", "--fd", "3", "--flags", "not-need-init,startup-clear", "--tpmstate"])
            .arg(format!("dir={}", self.state.path().display()))
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .spawn()
            .expect("start the emulator");
        Emulator { child, bus, board: PhantomData }
    }
}

/// A TPM that is powered. Dropping it is a power cut: no orderly shutdown.
pub(crate) struct Emulator<'board> {
    child: Child,
    bus: UnixStream,
    board: PhantomData<&'board mut Board>,
}

impl Drop for Emulator<'_> {
    fn drop(&mut self) {
        self.child.kill().expect("kill the emulator");
        self.child.wait().expect("wait for the emulator");
    }
}

impl Transport for Emulator<'_> {
    type Error = io::Error;

    fn transact(&mut self, command: &[u8]) -> Result<Vec<u8>, io::Error> {
        self.bus.write_all(command)?;
        let mut answer = vec![0; 10];
        self.bus.read_exact(&mut answer)?;
        let size = u32::from_be_bytes([answer[2], answer[3], answer[4], answer[5]]);
        answer.resize(usize::try_from(size).expect("an answer is small"), 0);
        self.bus.read_exact(&mut answer[10..])?;
        Ok(answer)
    }
}

/// A probe on the bus: passes everything on and keeps it.
pub(crate) struct Probe<T> {
    pub(crate) inner: T,
    pub(crate) exchanges: Vec<(Vec<u8>, Vec<u8>)>,
}

impl<T> Probe<T> {
    pub(crate) const fn new(inner: T) -> Self {
        Self { inner, exchanges: Vec::new() }
    }

    /// Drops what it listened to and hands out what it heard.
    pub(crate) fn power_off(self) -> Vec<(Vec<u8>, Vec<u8>)> {
        self.exchanges
    }
}

impl<T: Transport> Transport for Probe<T> {
    type Error = T::Error;

    fn transact(&mut self, command: &[u8]) -> Result<Vec<u8>, T::Error> {
        let answer = self.inner.transact(command)?;
        self.exchanges.push((command.to_vec(), answer.clone()));
        Ok(answer)
    }
}

/// Someone between processor and TPM who flips one bit of one answer: the `victim`th, at `position`.
pub(crate) struct Meddler<T> {
    pub(crate) inner: T,
    pub(crate) victim: usize,
    pub(crate) position: usize,
    pub(crate) seen: usize,
}

impl<T: Transport> Transport for Meddler<T> {
    type Error = T::Error;

    fn transact(&mut self, command: &[u8]) -> Result<Vec<u8>, T::Error> {
        let mut answer = self.inner.transact(command)?;
        if self.seen == self.victim
            && let Some(byte) = answer.get_mut(self.position)
        {
            *byte ^= 1;
        }
        self.seen += 1;
        Ok(answer)
    }
}

/// Someone on the bus who keeps one kind of command from the TPM and answers it from an earlier recording.
pub(crate) struct Replayer<T> {
    pub(crate) inner: T,
    pub(crate) code: u32,
    pub(crate) answer: Vec<u8>,
}

impl<T: Transport> Transport for Replayer<T> {
    type Error = T::Error;

    fn transact(&mut self, command: &[u8]) -> Result<Vec<u8>, T::Error> {
        if code_of(command) == self.code { Ok(self.answer.clone()) } else { self.inner.transact(command) }
    }
}

/// The command code in a command, or the return code in an answer.
pub(crate) fn code_of(message: &[u8]) -> u32 {
    u32::from_be_bytes(message[6..10].try_into().expect("four bytes"))
}
