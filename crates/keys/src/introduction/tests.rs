//! Introductions as people paste and mistype them: what is read is what was written, and every refusal has its own message.

use model::Chain;
use proptest::prelude::*;

use super::*;

/// An owner's keys; the recovery key is X25519's base point.
fn owner() -> OwnerKeys {
    let mut base = [0; 32];
    base[0] = 9;
    OwnerKeys { key: OwnerPubKey([1; 32]), recovery: RecoveryPubKey::new(base).expect("it is no small point") }
}

fn coordinator(n: u8) -> CoordinatorPlace {
    CoordinatorPlace {
        machine: MachineId([n + 2; 16]),
        name: NodeName::stored(&format!("m{n}")).expect("a name"),
        endpoints: vec![Endpoint::read(&format!("192.0.2.{n}:7836")).expect("an endpoint")],
    }
}

fn place(coordinators: &[CoordinatorPlace]) -> ClusterPlace {
    ClusterPlace { cluster: ClusterId([2; 16]), ca_spki: [0xca; 32], coordinators: coordinators.to_vec() }
}

/// Both texts were computed with Python's `hashlib` and `base64` from the messages at the head of the module.
#[test]
fn both_texts_are_as_they_were_when_the_format_was_made() {
    let owners = "cairn-owner-baareiabaeaqcaibaeaqcaibaeaqcaibaeaqcaibaeaqcaibaeaqcaibaencaciaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaahm2lqhi";
    let clusters = "cairn-place-baareeacaibaeaqcaibaeaqcaibaeaqcdiqmvswkzlfmvswkzlfmvswkzlfmvswkzlfmvswkzlfmvswkzlfmvsrceyfbaaydambqgaydambqgaydambqgaysajwtcgqoge4telrqfyzc4mj2g44dgnrsstere";
    assert_eq!((&*owner().to_text(), &*place(&[coordinator(1)]).to_text()), (owners, clusters));
    assert_eq!(OwnerKeys::from_text(&format!(" {owners}\r\n")), Ok(owner()));
    assert_eq!(ClusterPlace::from_text(clusters), Ok(place(&[coordinator(1)])));
}

/// The text was computed as those above. Proves: W9
#[test]
fn a_users_text_is_read_as_written_and_no_other() {
    let text = "cairn-user-baareiabaeaqcaibaeaqcaibaeaqcaibaeaqcaibaeaqcaibaeaqcaibafu46v2j";
    assert_eq!((user_text(UserPubKey([1; 32])).as_str(), user_key(text)), (text, Ok(UserPubKey([1; 32]))));
    let refused = |wire: UserKeyWire| {
        let text = USER_TEXT.write(&wire.encode_to_vec());
        Chain(&user_key(&text).expect_err("it is refused")).to_string()
    };
    let wire = |version, key: &[u8]| UserKeyWire { version, public_key: key.to_vec() };
    assert_eq!(refused(wire(2, &[1; 32])), "the text was written by a newer Cairn (version 2)");
    assert_eq!(refused(wire(1, &[1; 31])), "the text's public key has 31 bytes instead of 32");
    assert_eq!(refused(wire(1, &[0; 32])), "the text's public key is all zeros");
    assert!(user_key(&owner().to_text()).is_err(), "an owner's text is no user's");
    for at in 0..text.len() {
        let cut = format!("{}{}", &text[..at], &text[at + 1..]);
        assert!(user_key(&cut).is_err(), "{cut}");
    }
}

#[test]
fn a_cluster_of_seven_coordinators_is_read_as_written() {
    let name =
        |n: u8| Endpoint::read(&format!("{}.example.org:65535", "n".repeat(usize::from(n)))).expect("an endpoint");
    let of = |n| CoordinatorPlace { endpoints: (1..=8).map(name).collect(), ..coordinator(n) };
    let all: Vec<_> = (1..=7).map(of).collect();
    assert_eq!(ClusterPlace::from_text(&place(&all).to_text()), Ok(place(&all)));
}

#[test]
fn a_bad_key_is_refused_with_its_own_message() {
    let refused = |edit: fn(&mut OwnerKeysWire)| {
        let (key, recovery) = (owner().key.0.to_vec(), owner().recovery.bytes().to_vec());
        let mut wire = OwnerKeysWire { version: 1, public_key: key, recovery_public_key: recovery };
        edit(&mut wire);
        let text = OWNER_TEXT.write(&wire.encode_to_vec());
        Chain(&OwnerKeys::from_text(&text).expect_err("it is refused")).to_string()
    };
    assert_eq!(refused(|it| it.version = 0), "the text has the unknown version 0");
    assert_eq!(refused(|it| it.version = 2), "the text was written by a newer Cairn (version 2)");
    assert_eq!(refused(|it| it.public_key.push(0)), "the text's public key has 33 bytes instead of 32");
    assert_eq!(refused(|it| it.public_key = vec![0; 32]), "the text's public key is all zeros");
    assert_eq!(refused(|it| it.recovery_public_key.clear()), "the text's recovery key has 0 bytes instead of 32");
    let small = refused(|it| it.recovery_public_key = vec![0; 32]);
    assert_eq!(small, "the text's recovery key cannot be used: not a usable X25519 public key");
    let more = OWNER_TEXT.write(&[8, 1, 0x7a, 1, 1]);
    let more = Chain(&OwnerKeys::from_text(&more).expect_err("unknown")).to_string();
    assert_eq!(more, "the text is whole, and malformed: OwnerKeys has an unknown field 15");
}

#[test]
fn a_bad_place_is_refused_with_its_own_message() {
    let refused = |coordinators: &[CoordinatorPlace], edit: fn(&mut ClusterPlaceWire)| {
        let coordinators = coordinators.iter().map(CoordinatorPlace::to_wire).collect();
        let (cluster_id, ca_spki_sha256) = (vec![2; 16], vec![0xca; 32]);
        let mut wire = ClusterPlaceWire { version: 1, cluster_id, ca_spki_sha256, coordinators };
        edit(&mut wire);
        let text = PLACE_TEXT.write(&wire.encode_to_vec());
        Chain(&ClusterPlace::from_text(&text).expect_err("it is refused")).to_string()
    };
    let [one, two] = [coordinator(1), coordinator(2)];
    let coordinators = "the text names 1 to 7 coordinators, each once";
    let eight: Vec<_> = (1..=8).map(coordinator).collect();
    let (other_name, other_key) = (
        CoordinatorPlace { name: two.name.clone(), ..one.clone() },
        CoordinatorPlace { name: one.name.clone(), ..two },
    );
    for these in [&[][..], &eight, &[one.clone(), other_name], &[one.clone(), other_key]] {
        assert_eq!(refused(these, |_| {}), coordinators, "{these:?}");
    }
    let one = &[one][..];
    assert_eq!(refused(one, |it| it.version = 3), "the text was written by a newer Cairn (version 3)");
    assert_eq!(refused(one, |it| it.cluster_id.clear()), "the text's cluster id has 0 bytes instead of 16");
    assert_eq!(refused(one, |it| it.ca_spki_sha256.push(0)), "the text's CA pin has 33 bytes instead of 32");
    let nowhere = "the text does not say where coordinator m1 is";
    assert_eq!(refused(one, |it| it.coordinators[0].public_endpoints.clear()), nowhere);
    let place = "a coordinator's place in the text is none: an endpoint is a host and a port: host:port";
    assert_eq!(refused(one, |it| it.coordinators[0].public_endpoints[0] = "a".to_owned()), place);
    assert!(
        refused(one, |it| it.coordinators[0].name = "../x".to_owned())
            .starts_with("a coordinator's name in the text is none")
    );
    assert_eq!(
        refused(one, |it| it.coordinators[0].machine_id.clear()),
        "the text's machine id has 0 bytes instead of 16"
    );
}

/// Texts of other kinds are told apart by their first letters, before anything else.
#[test]
fn one_kind_of_text_is_not_taken_for_another() {
    let owners = Chain(&OwnerKeys::from_text(&place(&[coordinator(1)]).to_text()).expect_err("a place")).to_string();
    assert_eq!(owners, "the owner's text has to begin with cairn-owner-");
    let clusters = Chain(&ClusterPlace::from_text(&owner().to_text()).expect_err("an owner")).to_string();
    assert_eq!(clusters, "the cluster's text has to begin with cairn-place-");
}

proptest! {
    #[test]
    fn a_mistyped_or_cut_introduction_is_noticed(at: prop::sample::Index, letter in "[a-z2-7]", cut: prop::sample::Index) {
        for text in [owner().to_text(), place(&[coordinator(1)]).to_text()] {
            let read = |text: &str| OwnerKeys::from_text(text).is_ok() || ClusterPlace::from_text(text).is_ok();
            let place = at.index(text.len());
            let typed = format!("{}{letter}{}", &text[..place], &text[place + 1..]);
            prop_assert_eq!(read(&typed), typed == *text);
            prop_assert!(!read(&text[..cut.index(text.len())]));
        }
    }
}
