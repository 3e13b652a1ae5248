//! Questions and answers for the process that a cluster's network runs in: one of each a connection, over a unix socket
//! in a directory that only its owner enters. Pure: bytes in, meaning out, and back.
//!
//! ```text
//!   cairnctl ── {"attach":{…}}⏎ ─► control socket ─► Network        one line of JSON each way, then the end
//!            ◄─ {"attached":{…}}⏎ ──
//! ```
//! JSON, since both ends are the same program and a person can read it along; nothing is gained by fewer bytes. It is
//! strict all the same: unknown and repeated fields, trailing bytes and longer lines are refused.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::counters::FrameCounters;
use super::fault::Faults;
use super::proxy_word::{self, ProxyWord};
use crate::machine::Mac;

pub mod client;
pub mod detached;
pub mod server;

/// Bytes of the longest question, its end included: names and paths are shorter by far.
pub const LONGEST_QUESTION: usize = 16 * 1024;
/// Bytes of the longest answer: the status of [`MOST_MACHINES`] machines.
pub const LONGEST_ANSWER: usize = 1 << 20;
/// Machines of a network: each has an address in its /24, and a place in the answer above.
pub const MOST_MACHINES: u8 = 100;

/// The gateway of a cluster's network, in a network of 24 bits.
pub(super) const GATEWAY: Ipv4Addr = Ipv4Addr::new(10, 0, 2, 2);
/// The address before that of the first machine.
const BEFORE_FIRST: u8 = 14;

/// Question to the process of a network.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "snake_case")]
pub enum NetworkQuestion {
    /// Give this machine a cable, an address, a name and a port of the host's loopback; it is no error that it has them.
    Attach(Attach),
    /// Set what is wrong with its cable.
    SetFaults {
        /// The machine.
        name: String,
        /// In this direction, as the machine sees it; none: both.
        direction: Option<Direction>,
        /// All of it: what is not named is whole.
        faults: Faults,
    },
    /// Write what it sends and receives into this file, behind what is there; none: no more.
    Capture {
        /// The machine.
        name: String,
        /// The file.
        file: Option<PathBuf>,
    },
    /// Let programs of the host that know a word say in SOCKS5 where in the network they want to go; it is no error that they may.
    Proxy {},
    /// Carry connections to a port of the host's loopback to a port of whichever machine answers; it is no error that they are.
    Forward(PortForward),
    /// Lead what no machine has outside, to the host's networks; it is no error that it is led there.
    LeadOutside {},
    /// Tell of all machines.
    Status {},
}

/// Port of the host's loopback that leads to a port of whichever machine answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PortForward {
    /// TCP port of the host's loopback.
    pub host: u16,
    /// TCP port of a machine.
    pub machine: u16,
}

/// A machine of the network.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Attach {
    /// Name that others know it by: a node's.
    pub name: String,
    /// Which one it is, from 1 on; its card's hardware address and its own follow from it.
    pub number: u8,
    /// TCP port of the machine that the host's loopback is to lead to.
    pub port: u16,
    /// The host's port that it had last; another one is taken where that is not free.
    pub host_port: Option<u16>,
    /// Whether it has its address of an earlier network.
    pub runs: bool,
}

/// Answer of the process of a network.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "snake_case")]
pub enum NetworkAnswer {
    /// The machine is attached.
    Attached(Attachment),
    /// Programs may.
    Proxy(Proxy),
    /// All is as was asked for.
    Done {},
    /// All machines, by number.
    Status {
        /// Chance follows from it.
        seed: u64,
        /// The machines.
        machines: Vec<AttachedMachine>,
    },
    /// The wish cannot be met, and nothing was changed.
    Refused {
        /// In words.
        why: String,
    },
}

/// Where an attached machine is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Attachment {
    /// The socket that QEMU is to listen on.
    pub socket: PathBuf,
    /// Where the host's loopback leads to its port.
    pub forward: SocketAddrV4,
}

/// Where programs say in SOCKS5 where they want to go.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Proxy {
    /// Where it listens on the host's loopback.
    pub address: SocketAddrV4,
    /// Word that a program has to know.
    pub word: ProxyWord,
}

impl Proxy {
    /// The whole of it, as programs take it: whoever has it gets into the network.
    #[must_use]
    pub fn url(&self) -> String {
        // `h`: names are looked up in the network, where machines have them.
        format!("socks5h://{}:{}@{}", proxy_word::USER, self.word.expose(), self.address)
    }
}

/// A machine as the network sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AttachedMachine {
    /// Name of the machine.
    pub name: String,
    /// The address that is kept for it.
    pub address: Ipv4Addr,
    /// Whether QEMU is there.
    pub is_plugged_in: bool,
    /// Where the host's loopback leads to it.
    pub forward: SocketAddrV4,
    /// Where its capture goes.
    pub capture: Option<PathBuf>,
    /// Direction in which the machine sends.
    pub sent: Lane,
    /// Direction in which the machine receives.
    pub received: Lane,
}

/// Direction of a machine's cable.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Lane {
    /// Faults that frames meet on it.
    pub faults: Faults,
    /// Counts of its frames, by what became of them.
    pub counters: FrameCounters,
}

/// Direction of a cable, as the machine at its end sees it.
pub use super::pcap::Direction;

/// Bytes that are no question or answer.
#[derive(Debug, thiserror::Error)]
pub enum BadLine {
    /// There is no end within the longest there is.
    #[error("a line without an end in {0} bytes")]
    TooLong(usize),
    /// The line is not the JSON that is spoken here.
    #[error("a line that means nothing")]
    Meaningless(#[from] serde_json::Error),
}

/// Reads a question.
///
/// # Errors
/// [`BadLine`]
pub fn question(line: &[u8]) -> Result<NetworkQuestion, BadLine> {
    read(line, LONGEST_QUESTION)
}

/// Reads an answer.
///
/// # Errors
/// [`BadLine`]
pub fn answer(line: &[u8]) -> Result<NetworkAnswer, BadLine> {
    read(line, LONGEST_ANSWER)
}

fn read<'a, T: Deserialize<'a>>(line: &'a [u8], longest: usize) -> Result<T, BadLine> {
    let text = line.strip_suffix(b"\n").filter(|_| line.len() <= longest).ok_or(BadLine::TooLong(longest))?;
    Ok(serde_json::from_slice(text)?)
}

/// The line of a question or an answer.
///
/// # Errors
/// [`BadLine::Meaningless`] when it names a path that is no UTF-8.
pub fn line(said: &impl Serialize) -> Result<Vec<u8>, BadLine> {
    let mut line = serde_json::to_vec(said)?;
    line.push(b'\n');
    Ok(line)
}

/// The hardware address of the machine with this number.
#[must_use]
pub fn card(number: u8) -> Mac {
    Mac::numbered(number.into())
}

/// The address that is kept for it; none for a number that no machine has.
#[must_use]
pub fn address(number: u8) -> Option<Ipv4Addr> {
    let [a, b, c, _] = GATEWAY.octets();
    (1..=MOST_MACHINES).contains(&number).then(|| Ipv4Addr::new(a, b, c, BEFORE_FIRST + number))
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;
    use std::os::unix::ffi::OsStringExt;
    use std::time::Duration;

    use super::*;
    use crate::network::{Chance, Cut};

    #[test]
    fn what_is_said_is_read_as_it_was_meant() {
        let faults = Faults {
            cable: Cut::Cut,
            loss: Chance::per_million(50_000).unwrap(),
            delay: Duration::from_millis(50),
            rate: Some(1_000_000),
            mtu: Some(1400),
            ..Faults::default()
        };
        let attach = Attach { name: "m1".into(), number: 1, port: 7836, host_port: Some(40_001), runs: false };
        for said in [
            NetworkQuestion::Attach(attach),
            NetworkQuestion::SetFaults { name: "m2".into(), direction: Some(Direction::Sent), faults },
            NetworkQuestion::Capture { name: "m2".into(), file: None },
            NetworkQuestion::Proxy {},
            NetworkQuestion::Forward(PortForward { host: 8080, machine: 80 }),
            NetworkQuestion::LeadOutside {},
            NetworkQuestion::Status {},
        ] {
            assert_eq!(question(&line(&said).unwrap()).unwrap(), said);
        }
        let lane = Lane { faults, counters: FrameCounters::default() };
        let forward = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 40_001);
        let machine = AttachedMachine {
            name: "m1".into(),
            address: address(1).unwrap(),
            is_plugged_in: true,
            forward,
            capture: Some("/c/m1.pcapng".into()),
            sent: lane.clone(),
            received: lane,
        };
        for said in [
            NetworkAnswer::Attached(Attachment { socket: "/s/m1.cable".into(), forward }),
            NetworkAnswer::Proxy(Proxy { address: forward, word: ProxyWord::draw().unwrap() }),
            NetworkAnswer::Done {},
            NetworkAnswer::Status { seed: u64::MAX, machines: vec![machine] },
            NetworkAnswer::Refused { why: "no".into() },
        ] {
            assert_eq!(answer(&line(&said).unwrap()).unwrap(), said);
        }
    }

    #[test]
    fn what_is_not_spoken_here_is_refused() {
        let named =
            |faults: &str| format!("{{\"set_faults\":{{\"name\":\"m1\",\"direction\":null,\"faults\":{faults}}}}}\n");
        assert!(question(named("{}").as_bytes()).is_ok(), "a good cable");
        for bad in [
            "",
            "\n",
            "{}\n",
            "{\"status\":{}}",
            "{\"status\":{}}\n\n{}",
            "{\"status\":{\"more\":1}}\n",
            "{\"status\":{},\"status\":{}}\n",
            "{\"nonsense\":{}}\n",
            &named("{\"loss\":1000001}"),
            &named("{\"delay\":60000001}"),
            &named("{\"delay\":1,\"delay\":1}"),
            &named("{\"cut\":1}"),
        ] {
            assert!(matches!(question(bad.as_bytes()), Err(BadLine::Meaningless(_) | BadLine::TooLong(_))), "{bad}");
        }
        let long = format!("{{\"capture\":{{\"name\":\"{}\",\"file\":null}}}}\n", "m".repeat(LONGEST_QUESTION));
        assert!(matches!(question(long.as_bytes()), Err(BadLine::TooLong(_))));
    }

    /// Proves: S9
    #[test]
    fn the_longest_status_fits_an_answer() {
        let mut counters = FrameCounters {
            taken: u64::MAX,
            duplicated: u64::MAX,
            delivered: u64::MAX,
            held: u64::MAX,
            ..FrameCounters::default()
        };
        counters.dropped = crate::network::DropReason::ALL.into_iter().map(|reason| (reason, u64::MAX)).collect();
        let most = Duration::from_secs(60);
        let all = Chance::per_million(1_000_000).unwrap();
        let (cable, rate, mtu) = (Cut::Whole, Some(u64::MAX), Some(u16::MAX));
        let faults = Faults { cable, loss: all, duplicate: all, reorder: all, delay: most, jitter: most, rate, mtu };
        let lane = Lane { faults, counters };
        let machine = AttachedMachine {
            name: "m".repeat(63),
            address: Ipv4Addr::new(100, 100, 200, 200),
            is_plugged_in: false,
            forward: SocketAddrV4::new(Ipv4Addr::LOCALHOST, u16::MAX),
            capture: Some("\u{1}".repeat(1024).into()),
            sent: lane.clone(),
            received: lane,
        };
        let machines = vec![machine; MOST_MACHINES.into()];
        let status = NetworkAnswer::Status { seed: u64::MAX, machines };
        assert!(answer(&line(&status).unwrap()).is_ok());
    }

    #[test]
    fn a_path_that_cannot_be_said_is_told_and_does_no_harm() {
        let file = Some(PathBuf::from(OsString::from_vec(vec![b'/', 0xff])));
        assert!(matches!(line(&NetworkQuestion::Capture { name: "m1".into(), file }), Err(BadLine::Meaningless(_))));
    }

    #[test]
    fn machines_have_their_own_addresses_and_none_is_the_gateways() {
        let all: std::collections::BTreeSet<_> = (1..=MOST_MACHINES).filter_map(address).collect();
        assert_eq!(all.len(), usize::from(MOST_MACHINES));
        assert!(!all.contains(&GATEWAY));
        assert_eq!((address(0), address(MOST_MACHINES + 1)), (None, None));
    }
}
