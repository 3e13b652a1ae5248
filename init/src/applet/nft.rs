//! `nft`, which changes and lists the kernel's nf_tables for kube-proxy, for the CNI plugins and for PID 1. The language is crate
//! `nft`'s.
//!
//! ```text
//!   nft --version
//!   nft [--check] --file FILE       all of the text or nothing; `-` is standard input
//!   nft --json [--terse] list table|chain|set|map [FAMILY] TABLE [NAME]
//! ```
//! Calls of knftables (`nftables.go`), and no others. An error begins with the kernel's words, by which knftables tells what is
//! not there from what is there already (`error.go`).

use std::ffi::OsString;
use std::io::{self, Read as _, Write as _};
use std::os::fd::OwnedFd;

use nft::{Answers, AnswersProgress, AttributeError, BatchError, KernelSets, ListingError, ListingQuery};
use nft::{SetTypes, Transaction};
use rustix::io::Errno;
use rustix::net::netlink::{NETFILTER, SocketAddrNetlink};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, bind, recv, send, socket_with, sockopt,
};

use super::Failure;

/// Version of the `nft` whose ways these are: knftables wants 1.0.1 or more.
const VERSION: &str = "nftables v1.0.6 (Cairn)";
/// Bytes that are read at once: more than the kernel puts into one answer (`NLMSG_GOODSIZE`, `netlink_dump`).
const ANSWER: usize = 64 << 10;
/// Room for the errors of a transaction, each of which repeats the message that it is about.
const ERRORS: usize = 8 << 20;

/// Runs `nft` with these arguments.
pub(super) fn nft(arguments: &[OsString]) -> Result<(), Failure> {
    let call = Call::parse(arguments).map_err(Failure::usage)?;
    call.perform().map_err(|error| Failure { text: format!("Error: {error}"), code: Failure::USAGE })
}

/// Call of the program, as it is understood.
#[derive(Debug, PartialEq, Eq)]
enum Call {
    Version,
    Text { file: OsString, is_trial: bool },
    List(ListingQuery),
}

/// Why nothing was done, or nothing is listed.
#[derive(Debug, thiserror::Error)]
enum Error {
    #[error("{1}: {0}")]
    File(#[source] io::Error, String),
    #[error("speak to nf_tables: {0}")]
    Socket(#[from] Errno),
    #[error(transparent)]
    Text(#[from] BatchError),
    #[error(transparent)]
    Name(#[from] AttributeError),
    #[error(transparent)]
    Listing(#[from] ListingError),
    /// The kernel refuses a line of the text.
    #[error("{0} (line {1})")]
    Line(Errno, usize),
    /// The kernel refuses a question.
    #[error("{0}")]
    Question(Errno),
}

impl Call {
    /// Reads the arguments.
    ///
    /// # Errors
    /// A line that names what is not understood.
    fn parse(arguments: &[OsString]) -> Result<Self, String> {
        let (mut is_trial, mut is_json, mut is_terse, mut file) = (false, false, false, None);
        let mut arguments = arguments.iter();
        while let Some(argument) = arguments.next() {
            match argument.to_str() {
                Some("--version" | "-v") => return Ok(Self::Version),
                Some("--check" | "-c") => is_trial = true,
                Some("--json" | "-j") => is_json = true,
                Some("--terse" | "-t") => is_terse = true,
                Some("--file" | "-f") => file = Some(arguments.next().ok_or("nft: `--file` wants a name")?.clone()),
                Some("list") if is_json && file.is_none() && !is_trial => {
                    let words = arguments.map(|word| word.to_str().unwrap_or_default()).collect::<Vec<_>>();
                    return ListingQuery::parse(&words, is_terse)
                        .map(Self::List)
                        .map_err(|error| format!("nft: {error}"));
                }
                _ => return Err(format!("nft: `{}` is not understood", argument.display())),
            }
        }
        match file {
            Some(file) if !is_json && !is_terse => Ok(Self::Text { file, is_trial }),
            _ => Err("nft: wants `--file`, or `--json list`".to_owned()),
        }
    }

    fn perform(&self) -> Result<(), Error> {
        match self {
            Self::Version => say(VERSION),
            Self::Text { file, is_trial } => {
                let text = read(file).map_err(|error| Error::File(error, file.display().to_string()))?;
                transact(&Transaction::parse(&text)?, *is_trial)?;
            }
            Self::List(query) => {
                let ask = |question: &Vec<u8>| answers(question)?.map_err(Error::Question);
                let answers = query.questions()?.iter().map(ask).collect::<Result<Vec<_>, _>>()?;
                say(&query.json(&answers)?);
            }
        }
        Ok(())
    }
}

fn read(file: &OsString) -> io::Result<String> {
    if file != "-" {
        return std::fs::read_to_string(file);
    }
    let mut text = String::new();
    io::stdin().read_to_string(&mut text)?;
    Ok(text)
}

fn say(line: &str) {
    let _whoever_asked_is_gone = writeln!(io::stdout(), "{line}");
}

/// Has the kernel do all of a transaction, or look whether it could.
fn transact(transaction: &Transaction, is_trial: bool) -> Result<(), Error> {
    let mut known = KernelSets::new();
    for set in transaction.kernel_sets() {
        // One that the kernel does not have is for the transaction to say, by its line.
        if let Ok(answers) = answers(&set.question()?)?
            && let Some(types) = SetTypes::of_answers(&answers)
        {
            known.insert(set, types);
        }
    }
    let batch = transaction.batch(&known)?;
    if batch.is_empty() {
        return Ok(());
    }
    let bytes = if is_trial { batch.trial() } else { batch.bytes() };
    let socket = socket()?;
    sockopt::set_socket_send_buffer_size_force(&socket, bytes.len() + ANSWER)?;
    sockopt::set_socket_recv_buffer_size_force(&socket, ERRORS)?;
    send(&socket, &bytes, SendFlags::empty())?;
    // The kernel has done all, and told every error, by the time that it has taken the last byte (`nfnetlink_rcv_batch`).
    let (mut told, mut answer) = (Vec::new(), vec![0; ANSWER]);
    loop {
        match recv(&socket, &mut answer, RecvFlags::DONTWAIT) {
            Ok((bytes, _)) => told.extend_from_slice(&answer[..bytes]),
            Err(Errno::AGAIN) => break,
            Err(error) => return Err(error.into()),
        }
    }
    match batch.refusals(&told).first() {
        Some(refusal) => Err(Error::Line(Errno::from_raw_os_error(refusal.errno), refusal.line)),
        None => Ok(()),
    }
}

/// The kernel's answers to a question, or its reason to give none.
fn answers(question: &[u8]) -> Result<Result<Answers, Errno>, Errno> {
    let mut part = vec![0; ANSWER];
    loop {
        // A socket of its own: nothing comes of a question that was asked again.
        let (socket, mut answers) = (socket()?, Answers::default());
        send(&socket, question, SendFlags::empty())?;
        let mut progress = AnswersProgress::More;
        while progress == AnswersProgress::More {
            let (bytes, _) = recv(&socket, &mut part, RecvFlags::empty())?;
            progress = answers.take(&part[..bytes]);
        }
        match progress {
            AnswersProgress::Refused(errno) => return Ok(Err(Errno::from_raw_os_error(errno))),
            AnswersProgress::Done => return Ok(Ok(answers)),
            AnswersProgress::Again | AnswersProgress::More => {}
        }
    }
}

fn socket() -> Result<OwnedFd, Errno> {
    let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, Some(NETFILTER))?;
    bind(&socket, &SocketAddrNetlink::new(0, 0))?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Call, String> {
        Call::parse(&line.split_whitespace().map(OsString::from).collect::<Vec<_>>())
    }

    #[test]
    fn the_calls_of_knftables_are_understood() {
        assert_eq!(parse("--version"), Ok(Call::Version));
        for (line, is_trial) in [("-f -", false), ("--check -f -", true), ("--file - --check", true)] {
            assert_eq!(parse(line), Ok(Call::Text { file: "-".into(), is_trial }), "{line}");
        }
        for (line, words, is_terse) in [
            ("--json --terse list table ip kube-proxy", ["table", "ip", "kube-proxy"].as_slice(), true),
            ("--json list chain ip t c", &["chain", "ip", "t", "c"], false),
            ("--json list map ip t m", &["map", "ip", "t", "m"], false),
        ] {
            let query = ListingQuery::parse(words, is_terse).expect("a listing");
            assert_eq!(parse(line), Ok(Call::List(query)), "{line}");
        }
    }

    #[test]
    fn no_other_call_is_guessed_at() {
        for line in [
            "",
            "-f",
            "--json -f -",
            "--check",
            "--check --json list table ip t",
            "list table ip t",
            "--json list table ip t",
            "--json --terse list ruleset",
            "add table ip t",
            "-f - add table ip t",
            "-i",
        ] {
            assert!(parse(line).is_err(), "{line}");
        }
    }

    #[test]
    fn what_knftables_reads_of_an_error_is_in_its_first_line() {
        assert!(Error::Line(Errno::NOENT, 3).to_string().starts_with("No such file or directory"));
        assert!(Error::Question(Errno::EXIST).to_string().starts_with("File exists"));
    }
}
