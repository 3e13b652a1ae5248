//! The process that a cluster's network runs in: one segment with a gateway and a cable for each machine, and the control
//! socket. It ends when it is killed, or when its directory is gone: nobody finds it then. Nothing of it is in memory alone
//! but what its cables are told to spoil.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fs::{self, File, TryLockError};
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::detached::{Record, sockets_of};
use super::{
    Attach, Attachment, Direction, GATEWAY, LONGEST_QUESTION, Lane, NetworkAnswer, NetworkQuestion, PortForward, Proxy,
};
use super::{address, card, line, question};
use crate::deadline::Deadline;
use crate::machine::{Link, Mac};
use crate::network::{
    BadGateway, Cable, Faults, Gateway, GatewaySetup, GatewayTarget, LeaseState, Network, ProxyWord, Segment,
};
use crate::process::{Process, ProcessError};

/// Why there is no such process.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// There is one.
    #[error("a network already runs in `{0}`")]
    Running(PathBuf),
    /// A file or socket cannot be made.
    #[error("prepare `{path}`")]
    File {
        /// Which.
        path: PathBuf,
        /// Error of the kernel.
        source: io::Error,
    },
    /// The process does not know itself.
    #[error("look at this process")]
    Process(#[from] ProcessError),
    /// No thread.
    #[error("start the network")]
    Start(#[source] io::Error),
    /// The process's own gateway cannot be.
    #[error("make the network's gateway")]
    Gateway(#[from] BadGateway),
    /// No more questions come in.
    #[error("take questions")]
    Listen(#[source] io::Error),
    /// Somebody removed its files, and with them whatever could find it.
    #[error("`{0}` was removed")]
    Removed(PathBuf),
}

impl ServeError {
    fn at(path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::File { path, source }
    }
}

/// Time within which a caller has asked, and has taken the answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// How often it looks whether its directory is still there: nobody waits for that, and it costs nothing.
const LOOK: Timespec = Timespec { tv_sec: 2, tv_nsec: 0 };

/// Runs a network whose record is in `directory`; only one does at a time. What chance does to its frames follows from
/// the seed.
///
/// # Errors
/// [`ServeError`]; it returns for no other reason. Where that is [`ServeError::Removed`] its sockets are gone as well.
pub fn serve(directory: &Path, seed: u64) -> Result<Infallible, ServeError> {
    let path = directory.join("lock");
    let lock = File::options().create(true).truncate(false).write(true).open(&path).map_err(ServeError::at(&path))?;
    match lock.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Err(ServeError::Running(directory.to_owned())),
        Err(TryLockError::Error(error)) => return Err(ServeError::at(&path)(error)),
    }
    let sockets = sockets_of(directory).map_err(ServeError::at(directory))?;
    let control = super::client::socket(&sockets);
    // Of a process that has ended: this one has the lock.
    match fs::remove_file(&control) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(ServeError::at(&control)(error)),
        Ok(()) | Err(_) => {}
    }
    let listener = UnixListener::bind(&control).map_err(ServeError::at(&control))?;
    let word = ProxyWord::of(directory).map_err(ServeError::at(directory))?;
    listener.set_nonblocking(true).map_err(ServeError::Listen)?;
    let mut house = House::start(&sockets, seed, word)?;
    // Whoever reads this finds all the rest.
    let record = Record { process: Process::own()?.identity(), sockets };
    record.write(directory).map_err(ServeError::at(directory))?;
    loop {
        match listener.accept() {
            // Whoever asks and does not wait for the answer loses nothing but that.
            Ok((stream, _)) => drop(answer_to(stream, |asked| house.answer(asked))),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                // Interrupted or not: whoever asks is heard in the next round.
                let _polled = poll(&mut [PollFd::new(&listener, PollFlags::IN)], Some(&LOOK));
            }
            Err(error) => return Err(ServeError::Listen(error)),
        }
        if lock.metadata().map_err(ServeError::at(&path))?.nlink() == 0 {
            let _gone_or_in_use = fs::remove_dir_all(&record.sockets);
            return Err(ServeError::Removed(directory.to_owned()));
        }
    }
}

fn answer_to(mut stream: UnixStream, answer: impl FnOnce(NetworkQuestion) -> NetworkAnswer) -> io::Result<()> {
    stream.set_write_timeout(Some(PATIENCE))?;
    let answer = match question(&read_line(&mut stream)?) {
        Ok(asked) => answer(asked),
        Err(error) => NetworkAnswer::Refused { why: error.to_string() },
    };
    stream.write_all(&line(&answer).map_err(io::Error::other)?)
}

/// All up to the first end of a line, and what came with it.
fn read_line(stream: &mut UnixStream) -> io::Result<Vec<u8>> {
    let (deadline, mut line, mut buffer) = (Deadline::after(PATIENCE), Vec::new(), [0; 4096]);
    while line.len() <= LONGEST_QUESTION && !line.contains(&b'\n') {
        stream.set_read_timeout(Some(deadline.left().ok_or(io::ErrorKind::TimedOut)?))?;
        match stream.read(&mut buffer)? {
            0 => break,
            count => line.extend_from_slice(&buffer[..count]),
        }
    }
    Ok(line)
}

/// The network and its machines.
struct House {
    seed: u64,
    segment: Segment,
    gateway: Gateway,
    machines: BTreeMap<u8, Resident>,
    /// Word that its proxy asks for.
    word: ProxyWord,
    /// Where that listens, once somebody has asked for it.
    proxy: Option<SocketAddrV4>,
    /// Ports of the host's loopback, and the machines' port that each leads to.
    forwards: BTreeMap<u16, u16>,
}

struct Resident {
    name: String,
    port: u16,
    cable: Cable,
    forward: SocketAddrV4,
    capture: Option<PathBuf>,
    sent: Faults,
    received: Faults,
}

impl House {
    fn start(sockets: &Path, seed: u64, word: ProxyWord) -> Result<Self, ServeError> {
        let segment = Network::start_in(sockets, seed).map_err(ServeError::Start)?.segment();
        let [a, b, c, _] = GATEWAY.octets();
        let gateway = segment.gateway(&GatewaySetup {
            // No machine has so high a number.
            mac: Mac::numbered(0x00ff_fffe),
            address: GATEWAY,
            prefix: dhcp::Prefix::new(24).expect("24 bits are a prefix"),
            pool: (Ipv4Addr::new(a, b, c, 15), Ipv4Addr::new(a, b, c, 254)),
            lease_seconds: 86_400,
        })?;
        let (machines, forwards) = (BTreeMap::new(), BTreeMap::new());
        Ok(Self { seed, segment, gateway, machines, word, proxy: None, forwards })
    }

    fn answer(&mut self, asked: NetworkQuestion) -> NetworkAnswer {
        let answer = match asked {
            NetworkQuestion::Attach(attach) => self.attach(&attach).map(NetworkAnswer::Attached),
            NetworkQuestion::SetFaults { name, direction, faults } => self.set_faults(&name, direction, faults),
            NetworkQuestion::Capture { name, file } => self.capture(&name, file),
            NetworkQuestion::Proxy {} => self.proxy(),
            NetworkQuestion::Forward(forward) => self.forward(forward),
            NetworkQuestion::LeadOutside {} => {
                self.gateway.lead_outside(GATEWAY);
                Ok(NetworkAnswer::Done {})
            }
            NetworkQuestion::Status {} => Ok(self.status()),
        };
        answer.unwrap_or_else(|why| NetworkAnswer::Refused { why })
    }

    fn attach(&mut self, attach: &Attach) -> Result<Attachment, String> {
        let Attach { name, number, port, host_port, runs } = attach;
        let place = address(*number).ok_or_else(|| format!("no machine has the number {number}"))?;
        let is_name = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        if name.is_empty() || name.len() > 63 || !name.bytes().all(is_name) {
            return Err(format!("`{name}` is no machine's name"));
        }
        if let Some((taken, _)) = self.machines.iter().find(|(other, there)| *other != number && there.name == *name) {
            return Err(format!("machine {taken} is called `{name}`"));
        }
        if let Some(there) = self.machines.get(number) {
            return if (&there.name, there.port) == (name, *port) {
                Ok(there.attached())
            } else {
                Err(format!("machine {number} is `{}`, with port {}", there.name, there.port))
            };
        }
        let cable = self.segment.cable_of(name).map_err(|error| error.to_string())?;
        let forward = |host| self.gateway.forward(host, GatewayTarget::Card(card(*number)), *port);
        let forward = host_port.map(forward).and_then(Result::ok).map_or_else(|| forward(0), Ok);
        let forward = forward.map_err(|error| format!("listen on the loopback: {error}"))?;
        let held = if *runs { LeaseState::FromBefore } else { LeaseState::NotYet };
        self.gateway.reserve(card(*number), place, held);
        self.gateway.name(name, card(*number));
        let faults = Faults::default();
        let resident =
            Resident { name: name.clone(), port: *port, cable, forward, capture: None, sent: faults, received: faults };
        Ok(self.machines.entry(*number).or_insert(resident).attached())
    }

    fn find(&mut self, name: &str) -> Result<&mut Resident, String> {
        let found = self.machines.values_mut().find(|machine| machine.name == name);
        found.ok_or_else(|| format!("there is no machine `{name}`"))
    }

    fn set_faults(
        &mut self,
        name: &str,
        direction: Option<Direction>,
        faults: Faults,
    ) -> Result<NetworkAnswer, String> {
        let machine = self.find(name)?;
        for one in Direction::BOTH {
            if direction.is_none_or(|meant| meant == one) {
                machine.cable.set_faults(one, faults);
                match one {
                    Direction::Sent => machine.sent = faults,
                    Direction::Received => machine.received = faults,
                }
            }
        }
        Ok(NetworkAnswer::Done {})
    }

    fn capture(&mut self, name: &str, file: Option<PathBuf>) -> Result<NetworkAnswer, String> {
        let machine = self.find(name)?;
        match &file {
            // Once is enough: a second one would write a second head.
            Some(_) if file == machine.capture => return Ok(NetworkAnswer::Done {}),
            Some(file) => {
                let begun = machine.cable.capture(name, file);
                begun.map_err(|error| format!("write `{}`: {error}", file.display()))?;
            }
            None => machine.cable.end_capture(),
        }
        machine.capture = file;
        Ok(NetworkAnswer::Done {})
    }

    fn proxy(&mut self) -> Result<NetworkAnswer, String> {
        let address = self.proxy.map_or_else(|| self.gateway.proxy(self.word.clone()), Ok);
        let address = address.map_err(|error| format!("listen on the loopback: {error}"))?;
        self.proxy = Some(address);
        Ok(NetworkAnswer::Proxy(Proxy { address, word: self.word.clone() }))
    }

    fn forward(&mut self, PortForward { host, machine }: PortForward) -> Result<NetworkAnswer, String> {
        match self.forwards.get(&host) {
            Some(there) if *there == machine => return Ok(NetworkAnswer::Done {}),
            Some(there) => return Err(format!("port {host} of the loopback leads to port {there} of the machines")),
            None => {}
        }
        let listens = self.gateway.forward_to_any(host, machine);
        listens.map_err(|error| format!("listen on port {host} of the loopback: {error}"))?;
        self.forwards.insert(host, machine);
        Ok(NetworkAnswer::Done {})
    }

    fn status(&self) -> NetworkAnswer {
        let machines = self.machines.iter().filter_map(|(number, machine)| {
            let lane = |faults, direction| Lane { faults, counters: machine.cable.counters(direction) };
            Some(super::AttachedMachine {
                name: machine.name.clone(),
                address: address(*number)?,
                is_plugged_in: machine.cable.is_plugged_in(),
                forward: machine.forward,
                capture: machine.capture.clone(),
                sent: lane(machine.sent, Direction::Sent),
                received: lane(machine.received, Direction::Received),
            })
        });
        NetworkAnswer::Status { seed: self.seed, machines: machines.collect() }
    }
}

impl Resident {
    fn attached(&self) -> Attachment {
        let socket = match self.cable.link() {
            Link::Stream(socket) => socket,
            Link::User(_) => PathBuf::new(),
        };
        Attachment { socket, forward: self.forward }
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::thread;

    use super::*;
    use crate::network::Chance;

    const PORT: u16 = 7836;

    fn attach(name: &str, number: u8) -> Attach {
        Attach { name: name.to_owned(), number, port: PORT, host_port: None, runs: false }
    }

    fn house(sockets: &Path) -> House {
        House::start(sockets, 7, ProxyWord::draw().unwrap()).unwrap()
    }

    fn refused(answer: NetworkAnswer) -> String {
        let NetworkAnswer::Refused { why } = answer else { panic!("{answer:?}") };
        why
    }

    fn machines(house: &mut House) -> Vec<super::super::AttachedMachine> {
        let NetworkAnswer::Status { seed: 7, machines } = house.answer(NetworkQuestion::Status {}) else {
            panic!("a status")
        };
        machines
    }

    /// Proves: S9
    #[test]
    fn there_is_one_proxy_from_when_it_is_asked_for() {
        let place = tempfile::tempdir().unwrap();
        let mut house = house(place.path());
        let asked = [NetworkQuestion::Proxy {}, NetworkQuestion::Proxy {}].map(|asked| house.answer(asked));
        let NetworkAnswer::Proxy(proxy) = &asked[0] else { panic!("{asked:?}") };
        assert!(proxy.address.ip().is_loopback() && asked[0] == asked[1], "{asked:?}");
        assert!(std::net::TcpStream::connect(proxy.address).is_ok());
        assert_eq!(proxy.url(), format!("socks5h://cairn:{}@{}", house.word.expose(), proxy.address));
    }

    /// Proves: S9
    #[test]
    fn a_port_of_the_loopback_leads_to_one_port_of_the_machines() {
        let place = tempfile::tempdir().unwrap();
        let mut house = house(place.path());
        let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let host = taken.local_addr().unwrap().port();
        let mut ask = |machine| house.answer(NetworkQuestion::Forward(PortForward { host, machine }));
        let said = refused(ask(80));
        assert!(said.starts_with(&format!("listen on port {host} of the loopback: ")), "{said}");
        drop(taken);
        assert_eq!((ask(80), ask(80)), (NetworkAnswer::Done {}, NetworkAnswer::Done {}), "again");
        assert_eq!(refused(ask(81)), format!("port {host} of the loopback leads to port 80 of the machines"));
    }

    #[test]
    fn a_machine_is_attached_once_under_a_name_of_its_own() {
        let sockets = tempfile::tempdir().unwrap();
        let mut house = house(sockets.path());
        let first = house.answer(NetworkQuestion::Attach(attach("m1", 1)));
        let NetworkAnswer::Attached(there) = &first else { panic!("{first:?}") };
        assert_eq!(there.socket, sockets.path().join("m1.cable"));
        assert!(there.forward.ip().is_loopback() && there.forward.port() > 0);
        assert_eq!(house.answer(NetworkQuestion::Attach(attach("m1", 1))), first, "again");
        for (wrong, why) in [
            (attach("m1", 2), "machine 1 is called `m1`"),
            (attach("m2", 1), "machine 1 is `m1`"),
            (Attach { port: 1, ..attach("m1", 1) }, "with port 7836"),
            (attach("m0", 0), "no machine has the number 0"),
            (attach("m200", 200), "no machine has the number 200"),
            (attach("../m3", 3), "no machine's name"),
            (attach(&"m".repeat(64), 3), "no machine's name"),
            (attach("", 3), "no machine's name"),
        ] {
            let said = refused(house.answer(NetworkQuestion::Attach(wrong)));
            assert!(said.contains(why), "{said}");
        }
        let all = machines(&mut house);
        assert_eq!(all.len(), 1);
        assert_eq!((all[0].name.as_str(), all[0].address), ("m1", address(1).unwrap()));
        assert!(!all[0].is_plugged_in);
    }

    #[test]
    fn a_port_that_is_taken_gives_way_to_one_that_is_free() {
        let sockets = tempfile::tempdir().unwrap();
        let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port();
        let holds = TcpListener::bind((Ipv4Addr::LOCALHOST, taken)).unwrap();
        let forward = |house: &mut House, name: &str, number| {
            let attach = Attach { host_port: Some(taken), ..attach(name, number) };
            let NetworkAnswer::Attached(there) = house.answer(NetworkQuestion::Attach(attach)) else {
                panic!("attached")
            };
            there.forward.port()
        };
        let mut house = house(sockets.path());
        assert_ne!(forward(&mut house, "m1", 1), taken);
        drop(holds);
        assert_eq!(forward(&mut house, "m2", 2), taken);
    }

    #[test]
    fn faults_are_those_of_the_named_machine_and_direction() {
        let sockets = tempfile::tempdir().unwrap();
        let mut house = house(sockets.path());
        for (name, number) in [("m1", 1), ("m2", 2)] {
            house.answer(NetworkQuestion::Attach(attach(name, number)));
        }
        let bad = Faults { loss: Chance::per_million(50_000).unwrap(), ..Faults::default() };
        let cut = Faults::cut();
        let mut set = |name: &str, direction, faults| {
            house.answer(NetworkQuestion::SetFaults { name: name.to_owned(), direction, faults })
        };
        assert_eq!(set("m2", None, bad), NetworkAnswer::Done {});
        assert_eq!(set("m2", Some(Direction::Received), cut), NetworkAnswer::Done {});
        assert_eq!(refused(set("m3", None, cut)), "there is no machine `m3`");
        let all: Vec<_> = machines(&mut house).iter().map(|one| (one.sent.faults, one.received.faults)).collect();
        assert_eq!(all, [(Faults::default(), Faults::default()), (bad, cut)]);
    }

    #[test]
    fn a_capture_begins_once_and_ends() {
        let sockets = tempfile::tempdir().unwrap();
        let mut house = house(sockets.path());
        house.answer(NetworkQuestion::Attach(attach("m1", 1)));
        let file = sockets.path().join("m1.pcapng");
        let mut capture = |file: Option<&Path>| {
            house.answer(NetworkQuestion::Capture { name: "m1".to_owned(), file: file.map(Path::to_owned) })
        };
        assert_eq!((capture(Some(&file)), capture(Some(&file))), (NetworkAnswer::Done {}, NetworkAnswer::Done {}));
        assert_eq!(fs::metadata(&file).unwrap().len(), 68, "one head");
        let nowhere = refused(capture(Some(Path::new("/nowhere/m1.pcapng"))));
        assert!(nowhere.contains("/nowhere/m1.pcapng"), "{nowhere}");
        assert_eq!(capture(None), NetworkAnswer::Done {});
        assert_eq!(machines(&mut house)[0].capture, None);
    }

    /// Says these bytes to who asks for a question; what comes back.
    fn said(bytes: &[u8], answer: impl FnOnce(NetworkQuestion) -> NetworkAnswer) -> NetworkAnswer {
        let (mut asker, stream) = UnixStream::pair().unwrap();
        thread::scope(|threads| {
            let heard = threads.spawn(move || {
                asker.write_all(bytes).unwrap();
                asker.shutdown(std::net::Shutdown::Write).unwrap();
                let mut back = Vec::new();
                asker.read_to_end(&mut back).unwrap();
                super::super::answer(&back).unwrap()
            });
            // One that was not read to its end breaks the connection.
            let _answered = answer_to(stream, answer);
            heard.join().unwrap()
        })
    }

    #[test]
    fn a_line_that_is_no_question_is_told_so_and_nothing_is_done() {
        let nobody = |_| panic!("it was no question");
        for bad in [&b""[..], b"{\"status\":{}}", b"{\"status\":{}}\nmore", b"\xff\n", &[b'x'; 100]] {
            assert!(refused(said(bad, nobody)).starts_with("a line "), "{bad:?}");
        }
        let asked = std::cell::Cell::new(false);
        let answer = said(b"{\"status\":{}}\n", |question| {
            asked.set(question == NetworkQuestion::Status {});
            NetworkAnswer::Done {}
        });
        assert_eq!((asked.get(), answer), (true, NetworkAnswer::Done {}));
    }
}
