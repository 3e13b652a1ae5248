//! The process of a virtual network, as other commands start it and find it again; with sockets where QEMU would be.

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use qemu::network::control::client::AskError;
use qemu::network::control::detached::{DetachedError, NetworkProcess};
use qemu::network::control::{Attach, Attachment};
use qemu::network::{Chance, Faults, encode};
use rustix::process::{Pid, Signal, kill_process};

/// Ended with the test, whatever becomes of that.
struct Network {
    process: Option<NetworkProcess>,
    directory: tempfile::TempDir,
}

impl Network {
    fn new() -> Self {
        let mut network = Self { process: None, directory: tempfile::tempdir().expect("a place for its files") };
        network.process = Some(network.start().expect("a network"));
        network
    }

    fn start(&self) -> Result<NetworkProcess, DetachedError> {
        let directory = self.directory.path();
        let mut program = Command::new(env!("CARGO_BIN_EXE_cairnctl"));
        program.arg("network").arg(directory).args(["--seed", "7"]);
        NetworkProcess::start(directory, program)
    }

    fn process(&self) -> &NetworkProcess {
        self.process.as_ref().expect("it was started")
    }

    fn attach(&self, number: u8, host_port: Option<u16>) -> Attachment {
        let attach = Attach { name: format!("m{number}"), number, port: 7836, host_port, runs: false };
        self.process().attach(attach).expect("a place for a machine")
    }

    /// As a crash would.
    fn kill(&self) {
        let pid = Pid::from_raw(self.process().process().pid).expect("a process has a pid");
        kill_process(pid, Signal::KILL).expect("it is ours");
        self.ends();
    }

    fn ends(&self) {
        let long = Duration::from_secs(60);
        let ended = qemu::process::Process::find(self.process().process()).expect("it can be looked for");
        assert!(ended.is_none_or(|process| process.wait(qemu::Deadline::after(long))));
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        NetworkProcess::end(self.directory.path()).expect("it ends");
    }
}

/// Listens as QEMU does.
fn card(socket: &Path) -> UnixStream {
    let (stream, _) = UnixListener::bind(socket).and_then(|listener| listener.accept()).expect("the network comes");
    stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a socket takes it");
    stream
}

/// Asks all who has the gateway's address (RFC 826).
fn ask_gateway(mut card: &UnixStream, own: u8) {
    let mac = [0x52, 0x54, 0, 0, 0, own];
    let head = [&[0xff; 6][..], &mac, &[8, 6, 0, 1, 8, 0, 6, 4, 0, 1]].concat();
    let mut bytes = Vec::new();
    encode(&[&head[..], &mac, &[10, 0, 2, 14 + own], &[0; 6], &[10, 0, 2, 2]].concat(), &mut bytes);
    card.write_all(&bytes).expect("the network takes it");
}

fn receive(mut card: &UnixStream) -> Vec<u8> {
    let mut length = [0; 4];
    card.read_exact(&mut length).expect("a frame");
    let mut frame = vec![0; usize::try_from(u32::from_be_bytes(length)).expect("a short one")];
    card.read_exact(&mut frame).expect("all of it");
    frame
}

/// Proves: S9
#[test]
fn a_running_network_is_found_and_a_crashed_one_started_anew() {
    let mut network = Network::new();
    let directory = network.directory.path().to_owned();
    let first = network.attach(1, None);
    assert!(matches!(network.start(), Err(DetachedError::Start { output, .. }) if output.contains("already runs")));
    let word = network.process().proxy().unwrap().word;
    let found = NetworkProcess::find(&directory).unwrap().unwrap();
    assert_eq!(found.process(), network.process().process());
    let sockets = first.socket.parent().unwrap().to_owned();
    assert_eq!(fs::metadata(&sockets).unwrap().permissions().mode() & 0o777, 0o700, "whoever enters may ask");

    // The pid of another process that came later.
    let file = directory.join("network.json");
    let text = fs::read_to_string(&file).unwrap();
    let mut other: serde_json::Value = serde_json::from_str(&text).unwrap();
    other["process"]["started"] = 1.into();
    fs::write(&file, other.to_string()).unwrap();
    assert!(NetworkProcess::find(&directory).unwrap().is_none());
    fs::write(&file, text).unwrap();

    // A machine that goes on listening, and a network that does not.
    let listener = UnixListener::bind(&first.socket).unwrap();
    let card = listener.accept().unwrap().0;
    ask_gateway(&card, 1);
    assert_eq!(receive(&card)[..6], [0x52, 0x54, 0, 0, 0, 1]);
    network.kill();
    assert!(NetworkProcess::find(&directory).unwrap().is_none());
    assert!(matches!(network.process().machines(), Err(AskError::Io(_))));

    network.process = Some(network.start().unwrap());
    assert_eq!(network.attach(1, Some(first.forward.port())), first, "where it was before");
    assert_eq!(network.process().proxy().unwrap().word, word, "what programs were told");
    let card = listener.accept().unwrap().0;
    ask_gateway(&card, 1);
    assert_eq!(receive(&card)[..6], [0x52, 0x54, 0, 0, 0, 1]);
    drop(network);
    assert!(!sockets.exists() && !file.exists());
}

/// Proves: S9
#[test]
fn a_network_whose_folder_is_removed_ends_and_leaves_nothing() {
    let (kept, removed) = (Network::new(), Network::new());
    let sockets = removed.attach(1, None).socket.parent().unwrap().to_owned();
    fs::remove_dir_all(removed.directory.path()).unwrap();
    removed.ends();
    assert!(!sockets.exists());
    assert_eq!(kept.process().machines().unwrap(), []);
}

/// Proves: S9
#[test]
fn machines_of_one_network_hear_each_other_and_no_others() {
    let (one, other) = (Network::new(), Network::new());
    let [first, second] = [1, 2].map(|number| card(&one.attach(number, None).socket));
    let apart = card(&other.attach(1, None).socket);
    ask_gateway(&first, 1);
    // The question to all; the gateway's answer goes to who asked.
    assert_eq!(receive(&second)[..12], [[0xff; 6], [0x52, 0x54, 0, 0, 0, 1]].concat());
    receive(&first);
    // Where the question had come, too, it would have been before this answer.
    ask_gateway(&apart, 1);
    assert_eq!(receive(&apart)[20..22], [0, 2]);

    let cut = Faults::cut();
    one.process().set_faults("m2", None, cut).unwrap();
    ask_gateway(&first, 1);
    receive(&first);
    second.set_nonblocking(true).unwrap();
    assert_eq!((&second).read(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock);
    let bad = Faults { loss: Chance::per_million(1).unwrap(), ..cut };
    let refused = one.process().set_faults("m9", None, bad).unwrap_err();
    assert_eq!(refused.to_string(), "the network refuses: there is no machine `m9`");
    let machines = one.process().machines().unwrap();
    assert_eq!((machines[1].received.faults, machines[0].received.faults), (cut, Faults::default()));
    assert!(machines[1].received.counters.balance() && !machines[1].received.counters.dropped.is_empty());
}

#[test]
fn a_port_that_somebody_else_has_by_now_is_left_to_him() {
    let network = Network::new();
    let holds = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let taken = holds.local_addr().unwrap().port();
    assert_ne!(network.attach(1, Some(taken)).forward.port(), taken);
}
