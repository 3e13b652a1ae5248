//! Seal, cap and unseal against a real emulator, with a hostile bus and a hostile root. Needs the package `swtpm`.

mod emulator;
mod retired;
mod root;

use attest::{CapOf, CommandCode, SealedObject, Tpm, TpmError, UnsealError, sealing_pcrs};
use emulator::{Board, Meddler, Probe, Replayer, code_of};
use model::{BootClass, ClusterId, MachineId, PcrSelection, Secret};

const SECRET: [u8; 32] = *b"a seal root of thirty-two bytes.";

const MEMBER: CapOf = CapOf::Member { cluster: ClusterId([0xc1; 16]), machine: MachineId([0x3a; 16]) };

fn uefi() -> PcrSelection {
    sealing_pcrs(BootClass::Uefi).expect("not reserved")
}

/// A board, and the secret sealed on it to the PCRs of a boot that measured nothing.
fn sealed_board() -> (Board, SealedObject) {
    let mut board = Board::new();
    let mut tpm = Tpm::new(board.power_on());
    let policy = tpm.read_pcrs(uefi()).expect("read PCRs").policy_digest();
    let sealed = tpm.seal(&Secret::take(&mut SECRET.clone()), policy).expect("seal");
    drop(tpm);
    (board, sealed)
}

/// Proves: D5
#[test]
fn a_seal_opens_in_the_same_boot_and_in_every_later_one() {
    let (mut board, sealed) = sealed_board();
    for _ in 0..3 {
        let mut tpm = Tpm::new(board.power_on());
        for _ in 0..2 {
            assert_eq!(tpm.unseal(&sealed, uefi()).expect("unseal").expose(), &SECRET);
        }
        tpm.close().expect("forget key and session");
    }
}

/// Proves: O16
#[test]
fn after_the_cap_neither_the_policy_nor_an_empty_password_opens() {
    let (mut board, sealed) = sealed_board();
    let mut bus = Probe::new(board.power_on());
    let mut tpm = Tpm::new(&mut bus);
    let before = tpm.read_pcrs(uefi()).expect("read PCRs");
    assert_eq!(tpm.unseal(&sealed, uefi()).expect("unseal before the cap").expose(), &SECRET);
    tpm.cap(MEMBER).expect("cap");
    assert!(matches!(tpm.unseal(&sealed, uefi()), Err(UnsealError::PcrMismatch)));

    let after = tpm.read_pcrs(uefi()).expect("read PCRs");
    for ((pcr, old), (_, new)) in before.iter().zip(after.iter()) {
        assert_eq!(new, if pcr == attest::CAP_PCR { old.capped(MEMBER) } else { old }, "PCR {pcr}");
    }
    drop(tpm);
    let create_primary = bus.exchanges[0].0.clone();
    let answer = root::unseal_with_password(&mut bus.inner, &create_primary, &sealed);
    assert_eq!(code_of(&answer), 0x12f, "no password opens it");
    assert_eq!(answer.len(), 10, "and nothing comes with the refusal");
}

/// Proves: O16
#[test]
fn before_the_cap_an_empty_password_does_not_open_either() {
    let (mut board, sealed) = sealed_board();
    let mut bus = Probe::new(board.power_on());
    Tpm::new(&mut bus).storage_key().expect("make the storage key");
    let create_primary = bus.exchanges[0].0.clone();
    assert_eq!(code_of(&root::unseal_with_password(&mut bus.inner, &create_primary, &sealed)), 0x12f);
}

/// Proves: O16
#[test]
fn a_cap_that_the_bus_swallows_is_not_believed() {
    let mut board = Board::new();
    let mut bus = Probe::new(board.power_on());
    Tpm::new(&mut bus).cap(MEMBER).expect("cap");
    let exchanges = bus.power_off();
    let (_, answer) = exchanges.into_iter().find(|(command, _)| code_of(command) == 0x182).expect("a cap");
    let mut tpm = Tpm::new(Replayer { inner: board.power_on(), code: 0x182, answer });
    assert!(matches!(tpm.cap(MEMBER), Err(TpmError::Forged { command: CommandCode::PcrExtend })));
}

/// A later seal of the same boot is made after the cap, from the reading before it.
#[test]
fn a_seal_made_after_the_cap_opens_at_the_next_boot() {
    let mut board = Board::new();
    let mut tpm = Tpm::new(board.power_on());
    let policy = tpm.read_pcrs(uefi()).expect("read PCRs").policy_digest();
    tpm.cap(MEMBER).expect("cap");
    let sealed = tpm.seal(&Secret::take(&mut SECRET.clone()), policy).expect("seal");
    assert!(matches!(tpm.unseal(&sealed, uefi()), Err(UnsealError::PcrMismatch)));
    drop(tpm);
    let mut tpm = Tpm::new(board.power_on());
    assert_eq!(tpm.unseal(&sealed, uefi()).expect("unseal").expose(), &SECRET);
}

/// Proves: D5
#[test]
fn another_measurement_in_any_selected_pcr_is_a_mismatch() {
    let (mut board, sealed) = sealed_board();
    for pcr in uefi().pcrs() {
        let mut emulator = board.power_on();
        root::measure(&mut emulator, pcr);
        let opened = Tpm::new(emulator).unseal(&sealed, uefi());
        assert!(matches!(opened, Err(UnsealError::PcrMismatch)), "PCR {pcr}: {opened:?}");
    }
    let mut emulator = board.power_on();
    root::measure(&mut emulator, 1);
    assert!(Tpm::new(emulator).unseal(&sealed, uefi()).is_ok(), "PCR 1 is not selected");
}

/// Asking with fewer PCRs than it was sealed to is another policy.
#[test]
fn a_narrower_selection_does_not_open() {
    let (mut board, sealed) = sealed_board();
    let direct = sealing_pcrs(BootClass::Direct).expect("not reserved");
    assert!(matches!(Tpm::new(board.power_on()).unseal(&sealed, direct), Err(UnsealError::PcrMismatch)));
}

/// Proves: D5
#[test]
fn a_flipped_bit_in_either_blob_is_damage() {
    let (mut board, sealed) = sealed_board();
    let mut tpm = Tpm::new(board.power_on());
    let blobs: [fn(&mut SealedObject) -> &mut Vec<u8>; 2] = [|sealed| &mut sealed.private, |sealed| &mut sealed.public];
    for blob in blobs {
        let len = blob(&mut sealed.clone()).len();
        for position in 0..len {
            let mut damaged = sealed.clone();
            blob(&mut damaged)[position] ^= 1;
            let opened = tpm.unseal(&damaged, uefi());
            assert!(matches!(opened, Err(UnsealError::Damaged)), "byte {position}: {opened:?}");
        }
        let mut shorter = sealed.clone();
        blob(&mut shorter).truncate(len - 1);
        assert!(matches!(tpm.unseal(&shorter, uefi()), Err(UnsealError::Damaged)));
    }
    assert!(tpm.unseal(&sealed, uefi()).is_ok(), "every refusal left the TPM usable");
}

/// A lockout by something else, and PCRs that change between policy and opening.
#[test]
fn a_refusal_is_told_by_its_meaning() {
    let (mut board, sealed) = sealed_board();
    let mut refused = |code: u16| {
        let answer = [&[0x80, 1, 0, 0, 0, 10, 0, 0][..], &code.to_be_bytes()].concat();
        let mut tpm = Tpm::new(Replayer { inner: board.power_on(), code: 0x15e, answer });
        tpm.unseal(&sealed, uefi()).expect_err("refused")
    };
    assert!(matches!(refused(0x921), UnsealError::Lockout));
    assert!(matches!(refused(0x128), UnsealError::PcrMismatch));
    let other = refused(0x101);
    assert_eq!(other.to_string(), "the TPM refuses TPM2_Unseal: failure mode (0x101)");
}

/// Only what the TPM says of the blobs is damage; that it is full, busy or gone is not, and a restart may mend it.
///
/// Proves: D5
#[test]
fn a_refused_load_is_damage_only_where_the_blobs_are_to_blame() {
    let (mut board, sealed) = sealed_board();
    let mut refused = |code: u16| {
        let answer = [&[0x80, 1, 0, 0, 0, 10, 0, 0][..], &code.to_be_bytes()].concat();
        let mut tpm = Tpm::new(Replayer { inner: board.power_on(), code: 0x157, answer });
        tpm.unseal(&sealed, uefi()).expect_err("refused")
    };
    // TPM_RC_INTEGRITY about the first parameter; no room for objects, failure mode, about the handle, the session.
    assert!(matches!(refused(0x1df), UnsealError::Damaged));
    for code in [0x902, 0x101, 0x18b, 0x98e] {
        let error = refused(code);
        assert!(matches!(error, UnsealError::Tpm(TpmError::Refused { .. })), "{code:#x}: {error}");
    }
}

/// Proves: D5
#[test]
fn another_tpm_is_told_from_a_changed_boot() {
    let (_, sealed) = sealed_board();
    let mut other = Board::new();
    let opened = Tpm::new(other.power_on()).unseal(&sealed, uefi());
    assert!(matches!(opened, Err(UnsealError::OtherTpm)), "{opened:?}");
}

/// A TPM counts a cut after the use of a lockable key as an attack, and three of them lock it.
#[test]
fn power_cuts_do_not_lock_the_tpm() {
    let (mut board, sealed) = sealed_board();
    for cut in 0..6 {
        let mut tpm = Tpm::new(board.power_on());
        let opened = tpm.unseal(&sealed, uefi());
        assert!(opened.is_ok(), "after {cut} power cuts: {opened:?}");
    }
}

/// Bytes that crossed the bus in clear may be known to others: they are mixed in and count for nothing. What counts
/// came through the session.
#[test]
fn only_random_bytes_that_nobody_heard_are_credited() {
    let mut board = Board::new();
    let mut bus = Probe::new(board.power_on());
    let mut pool: Vec<([u8; 32], u16)> = Vec::new();
    for _ in 0..2 {
        let given = Tpm::new(&mut bus).seed(|bytes, bits| {
            pool.push((*bytes.expose(), bits));
            Ok::<(), std::convert::Infallible>(())
        });
        given.expect("random bytes");
    }
    let heard: Vec<u8> = bus.power_off().into_iter().flat_map(|(_, answer)| answer).collect();
    let was_heard = |bytes: &[u8; 32]| heard.windows(8).any(|seen| bytes.windows(8).any(|part| part == seen));
    assert_eq!(pool.iter().map(|(_, bits)| *bits).collect::<Vec<_>>(), [0, 256, 0, 256]);
    assert!(pool.iter().all(|(bytes, bits)| was_heard(bytes) == (*bits == 0)), "{pool:?}");
    pool.sort_unstable();
    pool.dedup_by_key(|(bytes, _)| *bytes);
    assert_eq!(pool.len(), 4, "no bytes come twice");
}

/// A change of the bytes on their way is found out before they count.
#[test]
fn random_bytes_that_were_changed_on_their_way_are_not_credited() {
    let mut board = Board::new();
    let seeded = |board: &mut Board, victim, position| {
        let mut bits = 0;
        let mut tpm = Tpm::new(Meddler { inner: board.power_on(), victim, position, seen: 0 });
        let given = tpm.seed(|_, worth| {
            bits += worth;
            Ok::<(), std::convert::Infallible>(())
        });
        (given.is_ok(), bits)
    };
    // In clear, storage key, session, then through the session: 10 bytes of header, 4 and 2 of sizes, the bytes.
    assert_eq!(seeded(&mut board, 3, 20), (false, 0));
    assert_eq!(seeded(&mut board, 0, 20), (true, 256), "nobody can tell, so they do not count");
}

/// Proves: D8
#[test]
fn the_secret_never_crosses_the_bus_in_clear() {
    let mut board = Board::new();
    let mut bus = Probe::new(board.power_on());
    let mut tpm = Tpm::new(&mut bus);
    let policy = tpm.read_pcrs(uefi()).expect("read PCRs").policy_digest();
    let sealed = tpm.seal(&Secret::take(&mut SECRET.clone()), policy).expect("seal");
    assert_eq!(tpm.unseal(&sealed, uefi()).expect("unseal").expose(), &SECRET);
    assert!(!format!("{tpm:?} {sealed:?}").contains("seal root"));
    drop(tpm);
    for (command, answer) in &bus.exchanges {
        for part in SECRET.windows(8) {
            assert!(!command.windows(8).any(|seen| seen == part), "command {:#x}", code_of(command));
            assert!(!answer.windows(8).any(|seen| seen == part), "answer to {:#x}", code_of(command));
        }
    }
}

/// Objects and sessions made in the TPM are forgotten again, when all goes well and when it does not.
#[test]
fn every_handle_is_flushed() {
    let (mut board, sealed) = sealed_board();
    for capped in [false, true] {
        let mut bus = Probe::new(board.power_on());
        let mut tpm = Tpm::new(&mut bus);
        if capped {
            tpm.cap(MEMBER).expect("cap");
        }
        assert_eq!(tpm.unseal(&sealed, uefi()).is_err(), capped);
        drop(tpm);
        let (mut made, mut flushed) = (Vec::new(), Vec::new());
        for (command, answer) in &bus.exchanges {
            match code_of(command) {
                0x131 | 0x157 | 0x176 => made.push(&answer[10..14]),
                0x165 => flushed.push(&command[10..14]),
                _ => {} // the others make and forget nothing
            }
        }
        made.sort_unstable();
        flushed.sort_unstable();
        assert_eq!(made, flushed);
        assert_eq!(made.len(), 4, "storage key, salted session, object, policy session");
    }
}

/// Someone on the bus changes one bit of one answer: never another secret, and no change to a signed answer goes
/// unseen. Not signed are the answers before there is a session, those to FlushContext, and what concerns the policy
/// session alone; a change there is either noticed later or changes nothing.
#[test]
fn a_changed_answer_is_refused() {
    let (mut board, sealed) = sealed_board();
    let mut bus = Probe::new(board.power_on());
    assert!(Tpm::new(&mut bus).unseal(&sealed, uefi()).is_ok());
    let exchanges = bus.power_off();
    for (victim, (command, answer)) in exchanges.iter().enumerate() {
        let code = code_of(command);
        for position in (0..answer.len()).step_by(3) {
            let mut tpm = Tpm::new(Meddler { inner: board.power_on(), victim, position, seen: 0 });
            let opened = match tpm.unseal(&sealed, uefi()) {
                Ok(opened) => opened,
                Err(UnsealError::Tpm(TpmError::Transport { .. })) => panic!("the emulator failed"),
                Err(_) => continue, // refused, whatever it took the change for
            };
            assert_eq!(opened.expose(), &SECRET);
            let unsigned = match code {
                0x131 | 0x176 | 0x165 => true,
                // After 10 bytes of header, 4 of size and 34 of secret: the policy session's nonce and attributes.
                0x15e => (48..85).contains(&position),
                _ => false, // everything else is signed
            };
            assert!(unsigned, "a change at {position} of the answer to {code:#x} went unseen");
        }
    }
}
