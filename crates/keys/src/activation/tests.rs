//! Both ends of an activation, in whatever order things come, and codes as people type them.

use std::convert::Infallible;

use proptest::prelude::*;

use super::*;

const HERE: Connection = Connection { exporter: [1; 32], leaf_spki: [2; 32] };
const CONFIG: &[u8] = b"a signed config";

fn code(bytes: [u8; 16]) -> Code {
    let Ok(code) = Code::draw(|out| {
        out.copy_from_slice(&bytes);
        Ok::<(), Infallible>(())
    });
    code
}

fn ours() -> Code {
    code([9; 16])
}

/// Proof that a caller with `code` hands in, once the machine has convinced it.
fn handed_in(code: &Code, machine: &BlankMachine, connection: Connection) -> Result<Proof, CodeMismatch> {
    let proof = machine.proof(&connection);
    Ok(ActivationCaller::new(code, connection).believes(&proof)?.hands_in(CONFIG))
}

/// Proves: N1
#[test]
fn the_code_activates_and_the_machine_proves_itself_first() {
    let mut machine = BlankMachine::new(ours());
    let proof = handed_in(&ours(), &machine, HERE).expect("both know the code");
    assert_eq!(machine.handed_in(&HERE, &mut Tries::default(), CONFIG, &proof), Ok(()));
}

/// Neither the machine's place nor its connection is taken by anybody else: the caller says nothing.
///
/// Proves: A5 N1
#[test]
fn an_impostor_and_a_relay_are_told_nothing() {
    let machine = BlankMachine::new(ours());
    let impostor = BlankMachine::new(code([8; 16]));
    assert_eq!(handed_in(&ours(), &impostor, HERE).err(), Some(CodeMismatch), "another code");
    for (what, other) in [
        ("a relay", Connection { exporter: [7; 32], ..HERE }),
        ("another leaf", Connection { leaf_spki: [7; 32], ..HERE }),
    ] {
        let proof = machine.proof(&other);
        assert!(ActivationCaller::new(&ours(), HERE).believes(&proof).is_err(), "{what}");
    }
    let proof = machine.proof(&HERE);
    for cut in [&proof[..31], &[]] {
        assert!(ActivationCaller::new(&ours(), HERE).believes(cut).is_err(), "cut short");
    }
}

/// Both sides sign the same bytes but for whose words they are, where a leaf's hash is that of the config.
///
/// Proves: A5 N1
#[test]
fn what_one_side_says_is_not_passed_off_for_what_the_other_says() {
    let mirror = Connection { leaf_spki: sha256(&[CONFIG]), ..HERE };
    let mut machine = BlankMachine::new(ours());
    let answer = handed_in(&ours(), &machine, mirror).expect("both know the code");
    assert!(ActivationCaller::new(&ours(), mirror).believes(&answer).is_err(), "a caller's words, reflected");
    let proof = machine.proof(&mirror);
    assert_eq!(machine.handed_in(&mirror, &mut Tries::default(), CONFIG, &proof), Err(HandInError::Code));
    assert_eq!(machine.handed_in(&mirror, &mut Tries::default(), CONFIG, &answer), Ok(()));
}

/// Proves: F2 N1
#[test]
fn a_proof_of_another_code_connection_or_config_changes_nothing() {
    let mut machine = BlankMachine::new(ours());
    let proof = handed_in(&ours(), &machine, HERE).expect("both know the code");
    let elsewhere = Connection { exporter: [7; 32], ..HERE };
    let guessed = {
        let guessing = BlankMachine::new(code([8; 16]));
        handed_in(&code([8; 16]), &guessing, HERE).expect("the same wrong code")
    };
    for (what, connection, config, proof) in [
        ("another code", HERE, CONFIG, &guessed[..]),
        ("another connection", elsewhere, CONFIG, &proof),
        ("another config", HERE, &b"another"[..], &proof),
        ("cut short", HERE, CONFIG, &proof[..31]),
        ("the machine's own words", HERE, CONFIG, &machine.proof(&HERE)[..]),
    ] {
        let heard = machine.handed_in(&connection, &mut Tries::default(), config, proof);
        assert_eq!(heard, Err(HandInError::Code), "{what}");
    }
    assert_eq!(machine.handed_in(&HERE, &mut Tries::default(), CONFIG, &proof), Ok(()), "it still waits");
}

/// Proves: F2
#[test]
fn one_activation_is_judged_at_a_time_and_the_first_one_wins() {
    let mut machine = BlankMachine::new(ours());
    let proof = handed_in(&ours(), &machine, HERE).expect("both know the code");
    let hands_in = |machine: &mut BlankMachine| machine.handed_in(&HERE, &mut Tries::default(), CONFIG, &proof);
    assert_eq!(hands_in(&mut machine), Ok(()));
    assert_eq!(hands_in(&mut machine), Err(HandInError::Underway));
    machine.judged(Verdict::NotTaken);
    assert_eq!(hands_in(&mut machine), Ok(()), "the first one's config was refused");
    machine.judged(Verdict::Accepted);
    assert_eq!(hands_in(&mut machine), Err(HandInError::Taken));
    machine.judged(Verdict::NotTaken);
    assert_eq!(hands_in(&mut machine), Err(HandInError::Taken), "for good");
}

/// A caller that guesses is not listened to for long, and all others are; one with a wrong code is not told how far
/// others are.
///
/// Proves: A6 F2
#[test]
fn wrong_codes_end_a_connection_and_lock_nobody_else_out() {
    let mut machine = BlankMachine::new(ours());
    let mut guesser = Tries::default();
    for _ in 0..MOST_TRIES {
        assert_eq!(machine.handed_in(&HERE, &mut guesser, CONFIG, &[0; 32]), Err(HandInError::Code));
    }
    let proof = handed_in(&ours(), &machine, HERE).expect("both know the code");
    assert_eq!(
        machine.handed_in(&HERE, &mut guesser, CONFIG, &proof),
        Err(HandInError::Tries),
        "even with the right one"
    );
    assert_eq!(machine.handed_in(&HERE, &mut Tries::default(), CONFIG, &proof), Ok(()), "another connection");
    assert_eq!(
        machine.handed_in(&HERE, &mut Tries::default(), CONFIG, &[0; 32]),
        Err(HandInError::Code),
        "and no more"
    );
    let large = [0; MOST_CONFIG_BYTES + 1];
    let refused = machine.handed_in(&HERE, &mut Tries::default(), &large, &[0; 32]);
    assert_eq!(refused, Err(HandInError::TooLarge(large.len())));
    let largest = machine.handed_in(&HERE, &mut Tries::default(), &large[1..], &[0; 32]);
    assert_eq!(largest, Err(HandInError::Code), "it is looked at");
}

#[test]
fn a_code_is_read_however_it_is_typed_and_a_slip_is_found() {
    let text = ours().to_text();
    assert_eq!(*text, "beeq-scij-beeq-scij-beeq-scij-bf76", "what other versions show");
    for typed in [text.to_ascii_uppercase(), text.replace('-', ""), format!("  {}\n", text.replace('-', "  "))] {
        assert_eq!(Code::from_text(&typed).expect("the same code").0.expose(), &[9; 16], "{typed}");
    }
    assert_eq!(Code::from_text(&text[1..]).err(), Some(BadCode::Length(27)));
    assert_eq!(Code::from_text("").err(), Some(BadCode::Length(0)));
    assert_eq!(
        Code::from_text(&text.replacen(text.chars().next().expect("a letter"), "0", 1)).err(),
        Some(BadCode::Letter('0'))
    );
    assert_eq!(format!("{:?}", ours()), "Code");
}

proptest! {
    /// Every single letter that is typed wrongly is found, or the code would be another: one in 4 096 is not.
    #[test]
    fn a_code_says_the_same_after_a_round_trip(bytes: [u8; 16], at in 0usize..28, other in 0u8..32) {
        let text = code(bytes).to_text();
        let again = Code::from_text(&text).expect("its own text");
        prop_assert_eq!(again.0.expose(), &bytes);
        let mut letters: Vec<u8> = text.bytes().filter(|letter| *letter != b'-').collect();
        let letter = b"abcdefghijklmnopqrstuvwxyz234567"[usize::from(other)];
        let same = std::mem::replace(&mut letters[at], letter) == letter;
        let mistyped = Code::from_text(std::str::from_utf8(&letters).expect("letters"));
        prop_assert!(same || mistyped.is_err() || mistyped.is_ok_and(|it| it.0.expose() != &bytes));
    }

    /// In whatever order configs come: one is looked at at a time, none behind the one that is taken, and none without the code.
    ///
    /// Proves: F2
    #[test]
    fn no_order_of_events_has_two_configs_taken(
        events in prop::collection::vec(prop_oneof![Just(Event::Right), Just(Event::Wrong), Just(Event::Yes), Just(Event::No)], 0..40),
    ) {
        let mut machine = BlankMachine::new(ours());
        let proof = handed_in(&ours(), &machine, HERE).expect("both know the code");
        let (mut looked_at, mut taken) = (false, 0);
        for event in events {
            match event {
                Event::Right => {
                    let heard = machine.handed_in(&HERE, &mut Tries::default(), CONFIG, &proof);
                    prop_assert_eq!(heard.is_ok(), !looked_at && taken == 0);
                    looked_at |= heard.is_ok();
                }
                Event::Wrong => {
                    let heard = machine.handed_in(&HERE, &mut Tries::default(), CONFIG, &[0; 32]);
                    prop_assert_eq!(heard, Err(HandInError::Code));
                }
                // Verdicts come for what is looked at.
                Event::Yes | Event::No if !looked_at => {}
                Event::Yes => {
                    machine.judged(Verdict::Accepted);
                    (looked_at, taken) = (false, taken + 1);
                }
                Event::No => {
                    machine.judged(Verdict::NotTaken);
                    looked_at = false;
                }
            }
        }
        prop_assert!(taken <= 1);
    }
}

#[derive(Debug, Clone, Copy)]
enum Event {
    Right,
    Wrong,
    Yes,
    No,
}
