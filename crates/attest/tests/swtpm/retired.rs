//! Attacks that root can still make on a TPM that a machine has capped and closed, and those it could make without
//! that.

use attest::{CommandCode, GuardedPart, SealedObject, Tpm, TpmError, Transport, sealing_pcrs};
use model::{BootClass, Secret};

use crate::emulator::{Board, Emulator, Probe, Replayer, code_of};
use crate::root::{self, ENDORSEMENT, LOCKOUT, NULL, OWNER, PLATFORM};
use crate::{MEMBER, SECRET, sealed_board, uefi};

/// TPM_RC_HIERARCHY about the first handle: it is closed, whatever the password.
const CLOSED: u32 = 0x185;
/// TPM_RC_DISABLED, as TPM2_Clear says it.
const DISABLED: u32 = 0x120;
/// TPM_RC_AUTH_FAIL, as TPM2_ClearControl says it to the lockout hierarchy that wants to allow again.
const MAY_NOT_ALLOW: u32 = 0x08e;

/// Caps and closes the TPM, as a machine does before its first service.
fn close(emulator: &mut Emulator<'_>) -> Vec<GuardedPart> {
    let mut tpm = Tpm::new(emulator);
    tpm.cap(MEMBER).expect("cap");
    tpm.retire().expect("close")
}

fn opens(board: &mut Board, sealed: &SealedObject) -> bool {
    Tpm::new(board.power_on()).unseal(sealed, uefi()).is_ok_and(|opened| opened.expose() == &SECRET)
}

/// Everything by which root could keep a disk shut for good, each with the answer of a TPM that is closed.
fn attacks() -> Vec<(&'static str, Vec<u8>, u32)> {
    let password = |hierarchy| root::change_password(hierarchy, b"nobody will ever know");
    vec![
        ("clear, as lockout", root::clear(LOCKOUT), DISABLED),
        ("clear, as platform", root::clear(PLATFORM), CLOSED),
        ("allow clear, as lockout", root::clear_control(LOCKOUT, false), MAY_NOT_ALLOW),
        ("allow clear, as platform", root::clear_control(PLATFORM, false), CLOSED),
        ("a password for the owner", password(OWNER), CLOSED),
        ("a password for the endorsement hierarchy", password(ENDORSEMENT), CLOSED),
        ("a password for the platform", password(PLATFORM), CLOSED),
        ("open the owner hierarchy, as owner", root::hierarchy_control(OWNER, OWNER, true), CLOSED),
        ("open the owner hierarchy, as platform", root::hierarchy_control(PLATFORM, OWNER, true), CLOSED),
        ("other seeds", root::change_seeds(), CLOSED),
        ("a PCR bank less", root::allocate_sha1_only(), CLOSED),
        ("all the room there is", root::define_space(OWNER), CLOSED),
        ("a key of the owner's", root::create_primary(OWNER), CLOSED),
        ("a key of the endorsement hierarchy's", root::create_primary(ENDORSEMENT), CLOSED),
    ]
}

/// Proves: O16
#[test]
fn what_root_does_to_a_closed_tpm_loses_no_disk() {
    let (mut board, sealed) = sealed_board();
    for boot in 0..2 {
        let mut emulator = board.power_on();
        assert_eq!(Tpm::new(&mut emulator).unseal(&sealed, uefi()).expect("opens").expose(), &SECRET, "boot {boot}");
        assert_eq!(close(&mut emulator), []);
        for (attack, command, answer) in attacks() {
            let code = code_of(&emulator.transact(&command).expect("exchange"));
            assert_eq!(code, answer, "{attack}: {code:#x}, in boot {boot}");
        }
        // What is left to root harms nothing of ours; and it shows that the TPM still does what it is told.
        let key = code_of(&emulator.transact(&root::create_primary(NULL)).expect("exchange"));
        assert_eq!(key, 0, "a key that ends with this boot");
    }
    // The lockout hierarchy cannot be closed: its password is root's for the taking, and closes nothing.
    let mut emulator = board.power_on();
    close(&mut emulator);
    let set = emulator.transact(&root::change_password(LOCKOUT, b"root's own")).expect("exchange");
    assert_eq!(code_of(&set), 0);
    drop(emulator);
    let mut emulator = board.power_on();
    assert_eq!(close(&mut emulator), [], "the next boot closes as before");
    let cleared = emulator.transact(&root::clear_with(LOCKOUT, b"root's own")).expect("exchange");
    assert_eq!(code_of(&cleared), DISABLED);
    drop(emulator);
    assert!(opens(&mut board, &sealed), "and the disk opens");
}

/// The same attacks on a TPM that was capped only: each that ends a disk for good does so, or this test would not know.
#[test]
fn what_root_does_to_an_open_tpm_loses_the_disk() {
    const LOSE_IT: [&str; 3] = ["clear, as lockout", "clear, as platform", "a password for the owner"];
    // Only the platform may allow and open again.
    const NEVER_ALLOWED: [&str; 2] = ["allow clear, as lockout", "open the owner hierarchy, as owner"];
    for (attack, command, _) in attacks().into_iter().filter(|(attack, ..)| !NEVER_ALLOWED.contains(attack)) {
        let (mut board, sealed) = sealed_board();
        let mut emulator = board.power_on();
        Tpm::new(&mut emulator).cap(MEMBER).expect("cap");
        let code = code_of(&emulator.transact(&command).expect("exchange"));
        assert_eq!(code, 0, "{attack}: {code:#x}");
        drop(emulator);
        let lost = !opens(&mut board, &sealed);
        assert!(lost || !LOSE_IT.contains(&attack), "{attack}");
    }
}

/// Firmware gives the platform hierarchy a password that nobody else knows; whoever had the machine before may have
/// left others. They are told and no reason to stay shut, and each hierarchy that is open is closed all the same.
#[test]
fn what_others_guard_is_told_and_left_to_them() {
    for (hierarchy, guarded) in
        [(PLATFORM, GuardedPart::Platform), (ENDORSEMENT, GuardedPart::Endorsement), (LOCKOUT, GuardedPart::Clear)]
    {
        let (mut board, sealed) = sealed_board();
        let mut emulator = board.power_on();
        let set = emulator.transact(&root::change_password(hierarchy, b"theirs")).expect("exchange");
        assert_eq!(code_of(&set), 0);
        assert_eq!(close(&mut emulator), [guarded]);
        let owner = emulator.transact(&root::create_primary(OWNER)).expect("exchange");
        assert_eq!(code_of(&owner), CLOSED, "beside {guarded:?}");
        let cleared = emulator.transact(&root::clear(LOCKOUT)).expect("exchange");
        assert_ne!(code_of(&cleared), 0, "closed to who does not know the password");
        drop(emulator);
        assert!(opens(&mut board, &sealed), "beside {guarded:?}");
    }
}

/// Some firmware closes its own hierarchy before it starts anything. It is not asked to close again, for it would refuse,
/// and everything else is closed all the same.
///
/// Proves: O16
#[test]
fn what_was_closed_before_is_no_reason_to_stay_open() {
    for hierarchy in [PLATFORM, ENDORSEMENT] {
        let (mut board, sealed) = sealed_board();
        let mut emulator = board.power_on();
        let closed = emulator.transact(&root::hierarchy_control(hierarchy, hierarchy, false)).expect("exchange");
        assert_eq!(code_of(&closed), 0);
        assert_eq!(close(&mut emulator), [], "nobody guards anything");
        for other in [OWNER, ENDORSEMENT] {
            let key = emulator.transact(&root::create_primary(other)).expect("exchange");
            assert_eq!(code_of(&key), CLOSED, "{other:#x} beside {hierarchy:#x}");
        }
        let password = emulator.transact(&root::change_password(PLATFORM, b"root's own")).expect("exchange");
        assert_eq!(code_of(&password), CLOSED, "beside {hierarchy:#x}");
        drop(emulator);
        assert!(opens(&mut board, &sealed), "beside {hierarchy:#x}");
    }
}

/// A TPM that was never forbidden to clear, because of a lockout password: it is not tried, for a wrong password locks.
#[test]
fn a_lockout_password_of_somebody_else_is_not_guessed_at() {
    let mut board = Board::new();
    let mut emulator = board.power_on();
    let set = emulator.transact(&root::change_password(LOCKOUT, b"theirs")).expect("exchange");
    assert_eq!(code_of(&set), 0);
    assert_eq!(close(&mut emulator), [GuardedPart::Clear]);
    let again = emulator.transact(&root::with_this_password(LOCKOUT, b"theirs")).expect("exchange");
    assert_eq!(code_of(&again), 0, "the hierarchy is not locked");
}

/// A refusal that says anything else than "another password" is told: nothing else may run then.
#[test]
fn a_tpm_that_does_not_close_is_an_error() {
    for code in [0x121, 0x127, 0x17a] {
        let mut board = Board::new();
        let answer = vec![0x80, 1, 0, 0, 0, 10, 0, 0, 1, 1]; // failure mode
        let mut replayer = Replayer { inner: board.power_on(), code, answer };
        let refused = Tpm::new(&mut replayer).retire().expect_err("not closed");
        assert!(matches!(refused, TpmError::Refused { command, .. } if command.value() == code), "{refused}");
    }
    // An answer of another boot is none.
    let mut board = Board::new();
    let mut emulator = board.power_on();
    let mut bus = Probe::new(&mut emulator);
    Tpm::new(&mut bus).retire().expect("close");
    let (_, answer) =
        bus.power_off().into_iter().find(|(command, _)| code_of(command) == 0x121).expect("a hierarchy was closed");
    drop(emulator);
    let refused = Tpm::new(Replayer { inner: board.power_on(), code: 0x121, answer }).retire().expect_err("forged");
    assert!(matches!(refused, TpmError::Forged { command: CommandCode::HierarchyControl }), "{refused}");
}

/// Closing lets go of what it made: the session, and the storage key, which goes with its hierarchy.
#[test]
fn a_closed_tpm_has_room_for_others() {
    let mut board = Board::new();
    let mut emulator = board.power_on();
    let mut bus = Probe::new(&mut emulator);
    let mut tpm = Tpm::new(&mut bus);
    tpm.cap(MEMBER).expect("cap");
    tpm.retire().expect("close");
    let forgotten: Vec<_> = bus.power_off().into_iter().filter(|(command, _)| code_of(command) == 0x165).collect();
    assert!(forgotten.iter().all(|(_, answer)| code_of(answer) == 0), "nothing is asked to be forgotten twice");
    assert_eq!(forgotten.len(), 1, "the session");
    // An emulator holds three objects and three sessions at once.
    for _ in 0..3 {
        assert_eq!(code_of(&emulator.transact(&root::create_primary(NULL)).expect("exchange")), 0);
        assert_eq!(code_of(&emulator.transact(&root::start_session()).expect("exchange")), 0);
    }
    drop(emulator);
    let mut tpm = Tpm::new(board.power_on());
    let policy = tpm.read_pcrs(sealing_pcrs(BootClass::Direct).expect("not reserved")).expect("read").policy_digest();
    assert!(tpm.seal(&Secret::take(&mut SECRET.clone()), policy).is_ok(), "and is open again after a reset");
}
