//! What root, firmware or a boot loader can send to a TPM by itself: no salted session, empty passwords, any command.
//! Written against the specification and not with the crate, so that it does not inherit its good manners.

use attest::{SealedObject, Transport};

use crate::emulator::{Emulator, code_of};

const LOAD: u32 = 0x157;
const UNSEAL: u32 = 0x15e;
const PCR_EXTEND: u32 = 0x182;

/// A command about one handle, authorised by an empty password.
fn with_password(code: u32, handle: u32, parameters: &[u8]) -> Vec<u8> {
    let mut command = vec![0x80, 2, 0, 0, 0, 0];
    command.extend(code.to_be_bytes());
    command.extend(handle.to_be_bytes());
    command.extend([0, 0, 0, 9, 0x40, 0, 0, 9, 0, 0, 0, 0, 0]);
    command.extend(parameters);
    let size = u32::try_from(command.len()).expect("small");
    command[2..6].copy_from_slice(&size.to_be_bytes());
    command
}

/// Extends `pcr` of the SHA-256 bank.
pub(crate) fn measure(emulator: &mut Emulator<'_>, pcr: u8) {
    let mut digests = vec![0, 0, 0, 1, 0, 0x0b];
    digests.extend([0x5a; 32]);
    let answer = emulator.transact(&with_password(PCR_EXTEND, pcr.into(), &digests)).expect("extend");
    assert_eq!(code_of(&answer), 0, "extend PCR {pcr}");
}

/// Loads the object, under the key that `create_primary` makes, and asks for its secret with an empty password.
/// The TPM's answer to that.
pub(crate) fn unseal_with_password(
    emulator: &mut Emulator<'_>,
    create_primary: &[u8],
    sealed: &SealedObject,
) -> Vec<u8> {
    let mut loaded = |command: &[u8]| {
        let answer = emulator.transact(command).expect("exchange");
        assert_eq!(code_of(&answer), 0, "the way to the object is open to root");
        u32::from_be_bytes(answer[10..14].try_into().expect("a handle"))
    };
    let key = loaded(create_primary);
    let mut blobs = Vec::new();
    for blob in [&sealed.private, &sealed.public] {
        blobs.extend(u16::try_from(blob.len()).expect("small").to_be_bytes());
        blobs.extend(blob);
    }
    let object = loaded(&with_password(LOAD, key, &blobs));
    emulator.transact(&with_password(UNSEAL, object, &[])).expect("exchange")
}
