//! Commands that root, firmware or a boot loader can send to a TPM by itself: no salted session, empty passwords, any
//! command. Written against the specification and not with the crate, so that they do not inherit its good manners.

use attest::{SealedObject, Transport};

use crate::emulator::{Emulator, code_of};

const LOAD: u32 = 0x157;
const UNSEAL: u32 = 0x15e;
const PCR_EXTEND: u32 = 0x182;

pub(crate) const OWNER: u32 = 0x4000_0001;
pub(crate) const NULL: u32 = 0x4000_0007;
pub(crate) const LOCKOUT: u32 = 0x4000_000a;
pub(crate) const ENDORSEMENT: u32 = 0x4000_000b;
pub(crate) const PLATFORM: u32 = 0x4000_000c;

/// A command about one handle, authorised by an empty password.
fn with_password(code: u32, handle: u32, parameters: &[u8]) -> Vec<u8> {
    authorised(code, handle, b"", parameters)
}

/// A command about one handle, authorised by a password.
fn authorised(code: u32, handle: u32, password: &[u8], parameters: &[u8]) -> Vec<u8> {
    let area = [&[0x40, 0, 0, 9, 0, 0, 0][..], &sized(password)].concat();
    let mut command = vec![0x80, 2, 0, 0, 0, 0];
    command.extend(code.to_be_bytes());
    command.extend(handle.to_be_bytes());
    command.extend(u32::try_from(area.len()).expect("small").to_be_bytes());
    command.extend(area);
    command.extend(parameters);
    let size = u32::try_from(command.len()).expect("small");
    command[2..6].copy_from_slice(&size.to_be_bytes());
    command
}

fn sized(bytes: &[u8]) -> Vec<u8> {
    [&u16::try_from(bytes.len()).expect("small").to_be_bytes()[..], bytes].concat()
}

/// TPM2_Clear, with an empty password.
pub(crate) fn clear(hierarchy: u32) -> Vec<u8> {
    clear_with(hierarchy, b"")
}

/// TPM2_Clear by who knows the password.
pub(crate) fn clear_with(hierarchy: u32, password: &[u8]) -> Vec<u8> {
    authorised(0x126, hierarchy, password, &[])
}

/// TPM2_ClearControl, with an empty password.
pub(crate) fn clear_control(hierarchy: u32, disable: bool) -> Vec<u8> {
    with_password(0x127, hierarchy, &[u8::from(disable)])
}

/// TPM2_HierarchyChangeAuth, from no password to this one.
pub(crate) fn change_password(hierarchy: u32, password: &[u8]) -> Vec<u8> {
    with_password(0x129, hierarchy, &sized(password))
}

/// The same from `password` to itself: works for who knows it.
pub(crate) fn with_this_password(hierarchy: u32, password: &[u8]) -> Vec<u8> {
    authorised(0x129, hierarchy, password, &sized(password))
}

/// TPM2_HierarchyControl, with an empty password.
pub(crate) fn hierarchy_control(authority: u32, hierarchy: u32, open: bool) -> Vec<u8> {
    with_password(0x121, authority, &[&hierarchy.to_be_bytes()[..], &[u8::from(open)]].concat())
}

/// TPM2_ChangePPS and TPM2_ChangeEPS are the platform's; this is the second, which resets the endorsement hierarchy.
pub(crate) fn change_seeds() -> Vec<u8> {
    with_password(0x124, PLATFORM, &[])
}

/// TPM2_PCR_Allocate with no SHA-256 from the next reset on.
pub(crate) fn allocate_sha1_only() -> Vec<u8> {
    let banks = [&[0, 0, 0, 2][..], &[0, 4, 3, 0xff, 0xff, 0xff], &[0, 0x0b, 3, 0, 0, 0]].concat();
    with_password(0x12b, PLATFORM, &banks)
}

/// TPM2_NV_DefineSpace of 512 bytes that anybody may write by the owner's authorisation.
pub(crate) fn define_space(hierarchy: u32) -> Vec<u8> {
    let public = [&[0x01, 0x50, 0, 1][..], &[0, 0x0b], &[0, 2, 0, 2], &[0, 0], &[2, 0]].concat();
    with_password(0x12a, hierarchy, &[sized(b""), sized(&public)].concat())
}

/// TPM2_CreatePrimary of a P-256 storage key.
pub(crate) fn create_primary(hierarchy: u32) -> Vec<u8> {
    let template = [
        &[0, 0x23, 0, 0x0b, 0, 3, 4, 0x72, 0, 0, 0, 6, 0, 0x80, 0, 0x43, 0, 0x10, 0, 3, 0, 0x10][..],
        &sized(b""),
        &sized(b""),
    ];
    let parameters = [sized(&[0; 4]), sized(&template.concat()), sized(b""), vec![0; 4]].concat();
    with_password(0x131, hierarchy, &parameters)
}

/// TPM2_StartAuthSession for a policy session without salt.
pub(crate) fn start_session() -> Vec<u8> {
    let mut command = vec![0x80, 1, 0, 0, 0, 0, 0, 0, 1, 0x76];
    command.extend([NULL.to_be_bytes(), NULL.to_be_bytes()].concat());
    command.extend([sized(&[0x5a; 32]), sized(b""), vec![0, 0, 0x10, 0, 0x0b]].concat());
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
