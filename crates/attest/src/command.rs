//! Bytes of a command: header, handles, authorisation area, parameters (part 1, section 18; part 3, section 5).
//!
//! Knows the frame only; which parameters a command has is the business of who sends it.

use zeroize::Zeroizing;

use crate::code::{CommandCode, handle, tag};
use crate::object::ObjectName;
use crate::wire::Writer;

/// Entity that a command acts on: a handle, and the name under which it is hashed into the command's HMAC.
#[derive(Clone, Copy)]
pub(crate) enum Entity {
    /// A PCR, a hierarchy or a session: its handle is its name.
    Fixed(u32),
    /// A loaded object.
    Object { handle: u32, name: ObjectName },
}

impl Entity {
    pub(crate) const fn handle(self) -> u32 {
        match self {
            Self::Fixed(handle) | Self::Object { handle, .. } => handle,
        }
    }

    pub(crate) fn name(self) -> Vec<u8> {
        match self {
            Self::Fixed(handle) => handle.to_be_bytes().to_vec(),
            Self::Object { name, .. } => name.as_bytes().to_vec(),
        }
    }
}

/// Session in a command's authorisation area (part 2, section 10.13.2).
pub(crate) struct Authorisation<'a> {
    pub(crate) session: u32,
    pub(crate) nonce: &'a [u8],
    pub(crate) attributes: u8,
    pub(crate) hmac: &'a [u8],
}

/// The session goes on after this command.
pub(crate) const CONTINUE_SESSION: u8 = 0x01;

impl Authorisation<'_> {
    /// The empty password of the owner hierarchy.
    pub(crate) const EMPTY_PASSWORD: Self =
        Self { session: handle::PASSWORD, nonce: &[], attributes: CONTINUE_SESSION, hmac: &[] };

    /// A policy session whose policy asks for nothing that would need an HMAC of its own.
    pub(crate) const fn policy(session: u32) -> Self {
        Self { session, nonce: &[], attributes: CONTINUE_SESSION, hmac: &[] }
    }
}

/// Bytes of the whole command, header first.
pub(crate) fn frame(
    code: CommandCode,
    handles: &[u32],
    authorisations: &[Authorisation<'_>],
    parameters: &[u8],
) -> Zeroizing<Vec<u8>> {
    let area = authorisations
        .iter()
        .fold(Writer::new(), |area, one| area.u32(one.session).sized(one.nonce).u8(one.attributes).sized(one.hmac));
    let body = handles.iter().fold(Writer::new(), |body, handle| body.u32(*handle));
    let (tag, body) = if authorisations.is_empty() {
        (tag::NO_SESSIONS, body)
    } else {
        (tag::SESSIONS, body.u32(length(area.as_slice())).bytes(area.as_slice()))
    };
    let body = body.bytes(parameters);
    let header = Writer::new().u16(tag).u32(HEADER + length(body.as_slice())).u32(code.value());
    header.bytes(body.as_slice()).into_vec()
}

/// Tag, size, code.
const HEADER: u32 = 10;

fn length(bytes: &[u8]) -> u32 {
    u32::try_from(bytes.len()).expect("a command is a few hundred bytes")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_has_the_bytes_of_the_specification() {
        let plain = frame(CommandCode::GetRandom, &[], &[], &[0, 32]);
        assert_eq!(*plain, [0x80, 1, 0, 0, 0, 12, 0, 0, 1, 0x7b, 0, 32]);
        let with_password = frame(CommandCode::Unseal, &[0x8000_0001], &[Authorisation::EMPTY_PASSWORD], &[]);
        assert_eq!(
            *with_password,
            [
                0x80, 2, 0, 0, 0, 27, 0, 0, 1, 0x5e, // header
                0x80, 0, 0, 1, // handle
                0, 0, 0, 9, 0x40, 0, 0, 9, 0, 0, 1, 0, 0 // area
            ]
        );
    }
}
