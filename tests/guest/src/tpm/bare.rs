//! Commands that root can send to the TPM by itself: empty passwords instead of policies and sessions, and everything
//! by which it could keep a disk shut. Bytes are by the specification (TPM 2.0 Library, parts 2 and 3) and not by `attest`,
//! whose good manners it must not have. Believes every answer.

use std::fs::File;
use std::io::{self, Read, Write};

use attest::Transport;
use keys::binding::TpmObject;

const DEVICE: &str = "/dev/tpm0";
const OWNER: u32 = 0x4000_0001;
const NULL: u32 = 0x4000_0007;
const LOCKOUT: u32 = 0x4000_000a;
const ENDORSEMENT: u32 = 0x4000_000b;
const PLATFORM: u32 = 0x4000_000c;
/// As large as the kernel's own buffer (`TPM_BUFSIZE` of `drivers/char/tpm/tpm.h`).
const MOST_ANSWER_BYTES: usize = 4096;

/// The device. One program at a time has it.
pub(super) struct Bus(File);

impl Transport for Bus {
    type Error = io::Error;

    fn transact(&mut self, command: &[u8]) -> io::Result<Vec<u8>> {
        self.0.write_all(command)?;
        let mut answer = vec![0; MOST_ANSWER_BYTES];
        let length = self.0.read(&mut answer)?;
        answer.truncate(length);
        Ok(answer)
    }
}

impl Bus {
    pub(super) fn open() -> io::Result<Self> {
        Ok(Self(File::options().read(true).write(true).open(DEVICE)?))
    }

    /// The answer's code: 0 is success.
    fn code(&mut self, command: &[u8]) -> io::Result<u32> {
        word(&self.transact(command)?, 6)
    }

    /// Makes the storage key, loads `object` under it and asks for its secret with an empty password. The code of the
    /// first that is refused.
    pub(super) fn unseal(&mut self, object: &TpmObject) -> io::Result<u32> {
        let made = self.transact(&create_primary(OWNER))?;
        if word(&made, 6)? != 0 {
            return word(&made, 6);
        }
        let blobs = [sized(&object.private), sized(&object.public)].concat();
        let loaded = self.transact(&with_password(0x157, word(&made, 10)?, &blobs))?;
        if word(&loaded, 6)? != 0 {
            return word(&loaded, 6);
        }
        self.code(&with_password(0x15e, word(&loaded, 10)?, &[]))
    }

    /// Value of PCR 11 in the SHA-256 bank, by TPM2_PCR_Read.
    pub(super) fn pcr_11(&mut self) -> io::Result<Vec<u8>> {
        let selection = [0, 0, 0, 1, 0, 0x0b, 3, 0, 8, 0];
        let answer = self.transact(&without_session(0x17e, &selection))?;
        // Header, update counter, the selection again, number of digests, size of the digest.
        answer.get(10 + 4 + 10 + 4 + 2..).map(<[u8]>::to_vec).ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    }

    /// Tries everything by which root could keep this machine's disk shut, each with the code of the answer. The last
    /// harms nothing and shows that the TPM does what it is told.
    pub(super) fn attacks(&mut self) -> io::Result<Vec<(&'static str, u32)>> {
        let password = |hierarchy| with_password(0x129, hierarchy, &sized(b"nobody will ever know"));
        let attacks = [
            ("clear as lockout", with_password(0x126, LOCKOUT, &[])),
            ("clear as platform", with_password(0x126, PLATFORM, &[])),
            ("allow clear as lockout", with_password(0x127, LOCKOUT, &[0])),
            ("allow clear as platform", with_password(0x127, PLATFORM, &[0])),
            ("password for owner", password(OWNER)),
            ("password for endorsement", password(ENDORSEMENT)),
            ("password for platform", password(PLATFORM)),
            ("key of owner", create_primary(OWNER)),
            ("key of endorsement", create_primary(ENDORSEMENT)),
            ("key of this boot", create_primary(NULL)),
        ];
        attacks.into_iter().map(|(attack, command)| Ok((attack, self.code(&command)?))).collect()
    }
}

/// TPM2_CreatePrimary of the storage key, by the TCG's template.
fn create_primary(hierarchy: u32) -> Vec<u8> {
    const ECC_STORAGE_KEY: [u8; 22] =
        [0, 0x23, 0, 0x0b, 0, 3, 4, 0x72, 0, 0, 0, 6, 0, 0x80, 0, 0x43, 0, 0x10, 0, 3, 0, 0x10];
    let template = [&ECC_STORAGE_KEY[..], &sized(&[0; 32]), &sized(&[0; 32])].concat();
    let parameters = [sized(&[0; 4]), sized(&template), sized(b""), vec![0; 4]].concat();
    with_password(0x131, hierarchy, &parameters)
}

fn sized(bytes: &[u8]) -> Vec<u8> {
    [&u16::try_from(bytes.len()).expect("what is sent is small").to_be_bytes()[..], bytes].concat()
}

/// A command about one handle, authorised by an empty password.
fn with_password(code: u32, handle: u32, parameters: &[u8]) -> Vec<u8> {
    const EMPTY_PASSWORD: [u8; 13] = [0, 0, 0, 9, 0x40, 0, 0, 9, 0, 0, 0, 0, 0];
    framed(2, code, &[&handle.to_be_bytes(), &EMPTY_PASSWORD[..], parameters].concat())
}

fn without_session(code: u32, parameters: &[u8]) -> Vec<u8> {
    framed(1, code, parameters)
}

fn framed(kind: u8, code: u32, rest: &[u8]) -> Vec<u8> {
    let size = u32::try_from(10 + rest.len()).expect("a command is small");
    [&[0x80, kind][..], &size.to_be_bytes(), &code.to_be_bytes(), rest].concat()
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
        let command = with_password(0x15e, 0x8000_0001, &[]);
        assert_eq!(command[..14], [0x80, 2, 0, 0, 0, 27, 0, 0, 1, 0x5e, 0x80, 0, 0, 1]);
        assert_eq!(command[14..], [0, 0, 0, 9, 0x40, 0, 0, 9, 0, 0, 0, 0, 0]);
        assert_eq!(without_session(0x17e, &[7]), [0x80, 1, 0, 0, 0, 11, 0, 0, 1, 0x7e, 7]);
    }
}
