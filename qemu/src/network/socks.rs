//! Words of a program of the host that wants a connection into the network: SOCKS version 5 (RFC 1928), with user and
//! password (RFC 1929). Pure: its bytes in, what to answer and where to connect out. It connects to a port of a
//! machine, by address or name, and does nothing else. Whether a password is right is for the caller to say.
//!
//! ```text
//!   05 n methods… ─► 05 02      01 n user n password ─► 01 00, or 01 01 and the end
//!   05 01 00 kind destination port ─► 05 code 00 01 0.0.0.0 0, then bytes both ways
//! ```

use std::net::Ipv4Addr;

/// The version, in every message but that of a password.
const VERSION: u8 = 5;
/// The version of that.
const PASSWORD_VERSION: u8 = 1;
/// The one method there is, and the answer to whoever does not know it.
const PASSWORD: u8 = 2;
const NO_METHOD: u8 = 0xff;
/// The one command there is.
const CONNECT: u8 = 1;
/// Kinds of destinations.
const IPV4: u8 = 1;
const NAME: u8 = 3;
const IPV6: u8 = 4;

/// How far somebody is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Stage {
    /// The program has to say which methods it knows.
    #[default]
    Methods,
    /// The program has to say who it is.
    Password,
    /// The program has to say where it wants to go.
    Request,
}

/// Meaning of the bytes that a program has sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Heard {
    /// A part: nothing is whole yet.
    Part,
    /// Methods, in so many bytes: to be answered with these, and the next stage begins.
    Methods(usize, [u8; 2]),
    /// A user and a password, in so many bytes: to be answered with [`password_answer`].
    Password(usize, Vec<u8>, Vec<u8>),
    /// Where it wants to go, in so many bytes.
    Connect(usize, SocksDestination, u16),
    /// A request that is not met here: to be answered with these, and that is all.
    Refused(Vec<u8>),
    /// Another protocol.
    Nonsense,
}

/// Destination that a program asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SocksDestination {
    /// An address.
    Address(Ipv4Addr),
    /// The name of a machine, in small letters.
    Name(String),
}

/// How a request ended (RFC 1928, section 6).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Code {
    /// Bytes that follow are the machine's.
    Connected = 0,
    /// There is no such machine, or nobody knows where it is.
    HostUnreachable = 4,
    /// The machine refused it, or did not answer.
    Refused = 5,
    /// Another command than to connect.
    NoSuchCommand = 7,
    /// Another kind of address.
    NoSuchKind = 8,
}

/// The answer to a request. From where the connection comes concerns nobody.
#[must_use]
pub(super) const fn answer(code: Code) -> [u8; 10] {
    [VERSION, code as u8, 0, IPV4, 0, 0, 0, 0, 0, 0]
}

/// The answer to a password.
#[must_use]
pub(super) fn password_answer(is_right: bool) -> [u8; 2] {
    [PASSWORD_VERSION, u8::from(!is_right)]
}

/// Reads what somebody at this stage has said so far.
#[must_use]
pub fn hear(stage: Stage, said: &[u8]) -> Heard {
    let version = match stage {
        Stage::Password => PASSWORD_VERSION,
        Stage::Methods | Stage::Request => VERSION,
    };
    if said.first().is_some_and(|said| *said != version) {
        return Heard::Nonsense;
    }
    let heard = match stage {
        Stage::Methods => methods(said),
        Stage::Password => password(said),
        Stage::Request => request(said),
    };
    heard.unwrap_or(Heard::Part)
}

fn methods(said: &[u8]) -> Option<Heard> {
    let end = 2 + usize::from(*said.get(1)?);
    let methods = said.get(2..end)?;
    Some(if methods.contains(&PASSWORD) {
        Heard::Methods(end, [VERSION, PASSWORD])
    } else {
        Heard::Refused(vec![VERSION, NO_METHOD])
    })
}

fn password(said: &[u8]) -> Option<Heard> {
    let (user, rest) = said.get(2..)?.split_at_checked(usize::from(*said.get(1)?))?;
    let (length, rest) = rest.split_first()?;
    let password = rest.get(..usize::from(*length))?;
    Some(Heard::Password(3 + user.len() + password.len(), user.to_vec(), password.to_vec()))
}

fn request(said: &[u8]) -> Option<Heard> {
    let [_, command, _, kind, rest @ ..] = said else { return None };
    let (destination, length) = match *kind {
        IPV4 => (SocksDestination::Address(Ipv4Addr::from(*rest.first_chunk::<4>()?)), 4),
        NAME => {
            let length = usize::from(*rest.first()?);
            let name = String::from_utf8_lossy(rest.get(1..=length)?).to_ascii_lowercase();
            (SocksDestination::Name(name), 1 + length)
        }
        IPV6 => return Some(Heard::Refused(answer(Code::NoSuchKind).to_vec())),
        _ => return Some(Heard::Nonsense),
    };
    let port = u16::from_be_bytes(*rest.get(length..)?.first_chunk::<2>()?);
    Some(match *command {
        CONNECT => Heard::Connect(4 + length + 2, destination, port),
        _ => Heard::Refused(answer(Code::NoSuchCommand).to_vec()),
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The example of RFC 1928's layout, by hand: `CONNECT` to a name, port 7836.
    fn to_name() -> Vec<u8> {
        [&[5, 1, 0, 3, 2][..], b"M2", &[0x1e, 0x9c]].concat()
    }

    /// Proves: S9
    #[test]
    fn whoever_knows_passwords_is_asked_for_one_and_then_where_to() {
        assert_eq!(hear(Stage::Methods, &[5, 2, 0, 2, 9]), Heard::Methods(4, [5, 2]));
        assert_eq!(hear(Stage::Methods, &[5, 2, 0, 1]), Heard::Refused(vec![5, 0xff]), "without a password");
        let said = |user: &[u8], password: &[u8]| {
            Heard::Password(3 + user.len() + password.len(), user.into(), password.into())
        };
        assert_eq!(hear(Stage::Password, b"\x01\x05cairn\x04word\x05"), said(b"cairn", b"word"));
        assert_eq!(hear(Stage::Password, &[1, 0, 0]), said(b"", b""));
        assert_eq!([true, false].map(password_answer), [[1, 0], [1, 1]]);
        let name = SocksDestination::Name("m2".to_owned());
        assert_eq!(hear(Stage::Request, &to_name()), Heard::Connect(9, name, 7836));
        let address = SocksDestination::Address(Ipv4Addr::new(10, 0, 2, 15));
        assert_eq!(hear(Stage::Request, &[5, 1, 0, 1, 10, 0, 2, 15, 0, 80, 7]), Heard::Connect(10, address, 80));
        assert_eq!(answer(Code::Connected), [5, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn other_requests_are_refused_and_other_protocols_left() {
        let refused = |said: &[u8]| match hear(Stage::Request, said) {
            Heard::Refused(answer) => answer[1],
            other @ (Heard::Part | Heard::Methods(..) | Heard::Password(..) | Heard::Connect(..) | Heard::Nonsense) => {
                panic!("{other:?}")
            }
        };
        assert_eq!(refused(&[5, 2, 0, 1, 10, 0, 2, 15, 0, 80]), 7, "to listen");
        assert_eq!(refused(&[5, 1, 0, 4]), 8, "IPv6");
        for said in [&b"GET / HTTP/1.1\r\n"[..], &[4, 1, 0, 80]] {
            assert_eq!(hear(Stage::Methods, said), Heard::Nonsense);
        }
        assert_eq!(hear(Stage::Request, &[5, 1, 0, 2, 1]), Heard::Nonsense);
        assert_eq!(hear(Stage::Password, &[5, 0, 0]), Heard::Nonsense);
    }

    proptest! {
        /// However its bytes come, and whatever follows them.
        #[test]
        fn a_message_is_heard_when_it_is_whole_and_not_before(
            behind in prop::collection::vec(any::<u8>(), 0..8), cut in 0_usize..9,
        ) {
            let whole = to_name();
            prop_assert_eq!(hear(Stage::Request, &whole[..cut]), Heard::Part);
            let said = [&whole[..], &behind].concat();
            prop_assert_eq!(hear(Stage::Request, &said), hear(Stage::Request, &whole));
        }

        #[test]
        fn no_bytes_are_too_strange(said in prop::collection::vec(any::<u8>(), 0..600)) {
            for stage in [Stage::Methods, Stage::Password, Stage::Request] {
                if let Heard::Methods(length, _) | Heard::Password(length, ..) | Heard::Connect(length, ..) = hear(stage, &said) {
                    prop_assert!(length <= said.len());
                }
            }
        }
    }
}
