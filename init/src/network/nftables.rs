//! Socket of the kernel's nf_tables: what a text in nftables' language says is done, all of it or nothing. The language is crate
//! `nft`'s.

use std::io;
use std::os::fd::OwnedFd;

use nft::{BatchError, KernelSets, Transaction};
use rustix::io::Errno;
use rustix::net::netlink::{NETFILTER, SocketAddrNetlink};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, bind, recv, send, socket_with};

/// Bytes that are read at once: more than the kernel puts into one answer (`NLMSG_GOODSIZE`, `netlink_dump`).
const ANSWER: usize = 64 << 10;

/// Why a text is not in force; nothing of it is.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The socket does not open, or takes or gives nothing.
    #[error("speak to nf_tables")]
    Socket(#[source] io::Error),
    /// The text is not understood.
    #[error(transparent)]
    Text(#[from] BatchError),
    /// The kernel refuses a line.
    #[error("nf_tables refuses line {0}")]
    Refused(usize, #[source] io::Error),
}

impl From<Errno> for Error {
    fn from(error: Errno) -> Self {
        Self::Socket(error.into())
    }
}

/// Has the kernel do what `text` says. The kernel is at it while this waits.
///
/// # Errors
/// [`Error`]; then nothing of the text was done.
pub(crate) fn perform(text: &str) -> Result<(), Error> {
    let transaction = Transaction::parse(text)?;
    let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, Some(NETFILTER))?;
    bind(&socket, &SocketAddrNetlink::new(0, 0))?;
    let batch = transaction.batch(&KernelSets::new())?;
    send(&socket, &batch.bytes(), SendFlags::empty())?;
    // The kernel has done all, and told every error, by the time that it has taken the last byte (`nfnetlink_rcv_batch`).
    let refusals = batch.refusals(&told(&socket)?);
    match refusals.first() {
        Some(refusal) => Err(Error::Refused(refusal.line, io::Error::from_raw_os_error(refusal.errno))),
        None => Ok(()),
    }
}

/// All that the kernel has told.
fn told(socket: &OwnedFd) -> Result<Vec<u8>, Errno> {
    let (mut all, mut answer) = (Vec::new(), vec![0; ANSWER]);
    loop {
        match recv(socket, &mut answer, RecvFlags::DONTWAIT) {
            Ok((bytes, _)) => all.extend_from_slice(&answer[..bytes]),
            Err(Errno::AGAIN) => return Ok(all),
            Err(error) => return Err(error),
        }
    }
}
