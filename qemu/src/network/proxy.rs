//! Programs of the host that have reached the proxy and are not where they want to be: each says the network's word, which
//! other users of the host do not know, and where it wants to go, in SOCKS, and waits until the gateway has connected it. Then it is a stream of [`super::forwards`], and nothing more is heard of it here.

use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use super::gateway::{Connection, Gateway, GatewayTarget, Incoming};
use super::proxy_word::ProxyWord;
use super::socks::{self, Code, Heard, SocksDestination, Stage};
use super::switch::Port;
use super::wiring::Wiring;

/// Time within which a caller has said where to; one that has not would keep others out, and is ended.
const PATIENCE: Duration = Duration::from_secs(10);
/// More than the longest message.
const MOST_BYTES: usize = 512;

/// Caller that is not connected to a machine yet.
pub(super) struct Caller {
    pub(super) socket: TcpStream,
    gateway: Port,
    word: ProxyWord,
    stage: Stage,
    said: Vec<u8>,
    opens: Option<Connection>,
    /// Until when it may speak.
    until: Duration,
}

/// How far it is.
pub(super) enum Progress {
    /// The caller has more to say, or is being connected.
    Waits,
    /// From here on its bytes and the machine's are each other's.
    Connected(Connection),
    /// The caller gets nowhere, and was told so.
    Over,
}

impl Caller {
    pub(super) const fn new(socket: TcpStream, gateway: Port, word: ProxyWord, now: Duration) -> Self {
        Self {
            socket,
            gateway,
            word,
            stage: Stage::Methods,
            said: Vec::new(),
            opens: None,
            until: now.saturating_add(PATIENCE),
        }
    }

    /// Whether its bytes are waited for.
    pub(super) const fn speaks(&self) -> bool {
        self.opens.is_none()
    }

    /// Time until which the caller may speak.
    pub(super) fn until(&self) -> Option<Duration> {
        self.speaks().then_some(self.until)
    }

    /// Ends a caller that gets nowhere: from now on its time is over.
    pub(super) const fn end(&mut self) {
        self.until = Duration::ZERO;
    }

    /// Hears what it says.
    pub(super) fn ready(&mut self, wiring: &mut Wiring) -> Progress {
        let mut buffer = [0; MOST_BYTES];
        let room = &mut buffer[..MOST_BYTES - self.said.len()];
        match (&self.socket).read(room) {
            Ok(0) => return Progress::Over,
            Ok(count) => self.said.extend_from_slice(&room[..count]),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            Err(_) => return Progress::Over,
        }
        // It may say all at once; what it says behind them is for the machine, which has not answered yet.
        while self.opens.is_none() {
            match socks::hear(self.stage, &self.said) {
                Heard::Part if self.said.len() < MOST_BYTES => return Progress::Waits,
                Heard::Part | Heard::Nonsense => return Progress::Over,
                Heard::Methods(length, answer) => {
                    self.said.drain(..length);
                    self.stage = Stage::Password;
                    if self.tell(&answer).is_err() {
                        return Progress::Over;
                    }
                }
                Heard::Password(length, user, word) => {
                    self.said.drain(..length);
                    self.stage = Stage::Request;
                    let is_right = self.word.is_known_to(&user, &word);
                    if self.tell(&socks::password_answer(is_right)).is_err() || !is_right {
                        return Progress::Over;
                    }
                }
                Heard::Refused(answer) => {
                    let _it_may_be_gone = self.tell(&answer);
                    return Progress::Over;
                }
                Heard::Connect(length, destination, port) => {
                    self.said.drain(..length);
                    let target = match destination {
                        SocksDestination::Address(address) => Some(GatewayTarget::Address(address)),
                        SocksDestination::Name(name) => wiring.named(&name).map(GatewayTarget::Card),
                    };
                    self.opens = target.and_then(|target| wiring.open(self.gateway, target, port));
                    if self.opens.is_none() {
                        let _it_may_be_gone = self.tell(&socks::answer(Code::HostUnreachable));
                        return Progress::Over;
                    }
                }
            }
        }
        Progress::Waits
    }

    /// Looks whether the machine has answered.
    pub(super) fn look(&mut self, gateway: &mut Gateway) -> Progress {
        let Some(connection) = self.opens else { return Progress::Waits };
        if gateway.takes(connection) {
            // What came early is passed on before what comes.
            let early = std::mem::take(&mut self.said);
            let told = self.tell(&socks::answer(Code::Connected));
            let put = gateway.put(connection, |room| (copy(&early, room), ()));
            if told.is_ok() && put.is_some() {
                return Progress::Connected(connection);
            }
            gateway.abort(connection);
            return Progress::Over;
        }
        match gateway.incoming(connection) {
            Incoming::Later | Incoming::Bytes => Progress::Waits,
            Incoming::Ended | Incoming::Broken => {
                gateway.release(connection);
                let _it_may_be_gone = self.tell(&socks::answer(Code::Refused));
                Progress::Over
            }
        }
    }

    /// The few bytes of an answer fit into what the host keeps of a socket that nothing was written to.
    fn tell(&self, answer: &[u8]) -> io::Result<()> {
        (&self.socket).write_all(answer)
    }
}

/// A connection that was just made takes more than the longest message.
fn copy(early: &[u8], room: &mut [u8]) -> usize {
    let length = early.len().min(room.len());
    room[..length].copy_from_slice(&early[..length]);
    length
}
