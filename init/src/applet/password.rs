//! What root can send to the TPM by itself: an unseal with an empty password instead of the policy. For the debug
//! profile's test only; bytes by the specification (TPM 2.0 Library, part 3) and not by `attest`, whose good manners it
//! must not have. Believes every answer.

use std::fs::File;
use std::io::{self, Read, Write};

use attest::Transport;
use keys::binding::TpmObject;

const DEVICE: &str = "/dev/tpm0";
const LOAD: u32 = 0x157;
const UNSEAL: u32 = 0x15e;
/// As large as the kernel's own buffer (`TPM_BUFSIZE` of `drivers/char/tpm/tpm.h`).
const MOST_ANSWER_BYTES: usize = 4096;

/// Loads `object` and asks for its secret. The TPM's answer to that, as its code: 0 is success.
pub(super) fn unseal(object: &TpmObject) -> io::Result<u32> {
    let device = File::options().read(true).write(true).open(DEVICE)?;
    let mut bus = Bus { device, first: None };
    attest::Tpm::new(&mut bus).storage_key().map_err(io::Error::other)?;
    let create_primary = bus.first.take().ok_or(io::ErrorKind::UnexpectedEof)?;
    let key = bus.made(&create_primary)?;
    let mut blobs = Vec::new();
    for blob in [&object.private, &object.public] {
        blobs.extend(u16::try_from(blob.len()).map_err(io::Error::other)?.to_be_bytes());
        blobs.extend(blob);
    }
    let loaded = bus.made(&with_password(LOAD, key, &blobs))?;
    let answer = bus.transact(&with_password(UNSEAL, loaded, &[]))?;
    word(&answer, 6)
}

/// The device, and the first command it was sent: the one that makes the storage key.
struct Bus {
    device: File,
    first: Option<Vec<u8>>,
}

impl Transport for Bus {
    type Error = io::Error;

    fn transact(&mut self, command: &[u8]) -> io::Result<Vec<u8>> {
        self.first.get_or_insert_with(|| command.to_vec());
        self.device.write_all(command)?;
        let mut answer = vec![0; MOST_ANSWER_BYTES];
        let length = self.device.read(&mut answer)?;
        answer.truncate(length);
        Ok(answer)
    }
}

impl Bus {
    /// The handle of what a command makes.
    fn made(&mut self, command: &[u8]) -> io::Result<u32> {
        let answer = self.transact(command)?;
        match word(&answer, 6)? {
            0 => word(&answer, 10),
            code => Err(io::Error::other(format!("the way to the object is closed: {code:#x}"))),
        }
    }
}

/// A command about one handle, authorised by an empty password.
fn with_password(code: u32, handle: u32, parameters: &[u8]) -> Vec<u8> {
    const SESSIONS: [u8; 2] = [0x80, 2];
    const EMPTY_PASSWORD: [u8; 13] = [0, 0, 0, 9, 0x40, 0, 0, 9, 0, 0, 0, 0, 0];
    let rest = [&code.to_be_bytes(), &handle.to_be_bytes(), &EMPTY_PASSWORD[..], parameters].concat();
    let size = u32::try_from(SESSIONS.len() + 4 + rest.len()).expect("a command is small");
    [&SESSIONS[..], &size.to_be_bytes(), &rest].concat()
}

fn word(bytes: &[u8], at: usize) -> io::Result<u32> {
    let word = bytes.get(at..).and_then(<[u8]>::first_chunk).ok_or(io::ErrorKind::UnexpectedEof)?;
    Ok(u32::from_be_bytes(*word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_has_its_size_and_an_empty_password() {
        let command = with_password(UNSEAL, 0x8000_0001, &[]);
        assert_eq!(command[..14], [0x80, 2, 0, 0, 0, 27, 0, 0, 1, 0x5e, 0x80, 0, 0, 1]);
        assert_eq!(command[14..], [0, 0, 0, 9, 0x40, 0, 0, 9, 0, 0, 0, 0, 0]);
    }
}
