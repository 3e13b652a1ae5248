//! Registries of container images: set whole, removed by name, few and small enough for one word to a worker.

use cluster::denial::Denial;
use cluster::key::Key;
use cluster::record::{BadRegistry, MOST_AUTHORITIES_BYTES, MOST_REGISTRIES, MOST_REGISTRIES_BYTES, RegistryRecord};
use cluster::request::{Asks, Request};
use cluster::state::{BadState, Change, KeyValue};
use cluster::txn::Grant;
use cluster::{State, decide};
use model::RegistryHost;
use sim::cast::{BEGIN, owner, registry};

use super::Scene;

/// Proves: W5
#[test]
fn a_registry_is_set_whole_and_removed() {
    let mut scene = Scene::new();
    let (one, changed) = (registry(1, 1), registry(1, 2));
    assert_eq!(scene.asks(Asks::RemoveRegistry(one.host())), Grant::Already, "nothing is said of it");
    assert_eq!(scene.asks(Asks::SetRegistry(one.clone().into())), Grant::Done);
    assert_eq!(scene.asks(Asks::SetRegistry(one.clone().into())), Grant::Already);
    assert_eq!(scene.asks(Asks::SetRegistry(changed.clone().into())), Grant::Done);
    assert_eq!(scene.asks(Asks::SetRegistry(registry(2, 1).into())), Grant::Done);
    let state = scene.state();
    let known: Vec<_> = state.registries().values().cloned().collect();
    assert_eq!(known, [changed, registry(2, 1)]);
    assert_eq!(scene.asks(Asks::RemoveRegistry(one.host())), Grant::Done);
    assert_eq!(scene.asks(Asks::RemoveRegistry(one.host())), Grant::Already);
    assert_eq!(scene.state().registries().len(), 1);
    let by = owner(2).key;
    assert_eq!(scene.no(&Request::Owner { by, asks: Asks::SetRegistry(one.into()) }), Denial::UnknownOwner);
}

/// Proves: W5
#[test]
fn registries_are_bounded_in_number_and_in_bytes() {
    let mut scene = Scene::new();
    let most = u8::try_from(MOST_REGISTRIES).expect("few");
    for n in 0..most {
        scene.asks(Asks::SetRegistry(registry(n, 1).into()));
    }
    assert_eq!(scene.refuses(Asks::SetRegistry(registry(most, 1).into())), Denial::RegistriesExhausted);
    assert_eq!(scene.asks(Asks::SetRegistry(registry(0, 2).into())), Grant::Done, "it is none more");
    let large = |n: u8, bytes: usize| {
        let host = RegistryHost::read(&format!("large{n}.example.org")).expect("a host");
        RegistryRecord::new(host, vec![], vec![vec![n; bytes]])
    };
    assert_eq!(large(1, MOST_AUTHORITIES_BYTES), Err(BadRegistry::Authorities));
    let mut scene = Scene::new();
    let largest = MOST_AUTHORITIES_BYTES - 8;
    let fit = u8::try_from(MOST_REGISTRIES_BYTES / (largest + 64)).expect("few");
    for n in 0..fit {
        assert_eq!(scene.asks(Asks::SetRegistry(large(n, largest).expect("a registry").into())), Grant::Done);
    }
    let one_more = large(fit, largest).expect("a registry");
    assert_eq!(scene.refuses(Asks::SetRegistry(one_more.into())), Denial::RegistriesTooLarge);
    assert_eq!(
        scene.asks(Asks::SetRegistry(large(0, largest - 1).expect("a registry").into())),
        Grant::Done,
        "in its place"
    );
}

/// Proves: W5
#[test]
fn a_registry_under_anothers_key_is_not_read() {
    let (one, two) = (registry(1, 1), registry(2, 1));
    let put = |host| KeyValue { key: Key::Registry(host).bytes(), value: one.encode(), mod_revision: 2 };
    assert!(State::read([put(one.host())]).is_ok());
    assert_eq!(State::read([put(two.host())]), Err(BadState::Misplaced(Box::new(Key::Registry(two.host())))));
    let mut scene = Scene::new();
    scene.asks(Asks::SetRegistry(one.clone().into()));
    let mut state = scene.state();
    let gone = Change::Delete { key: Key::Registry(one.host()).bytes(), mod_revision: 99 };
    state.apply([gone]).expect("our own");
    let request = Request::Owner { by: owner(1).key, asks: Asks::RemoveRegistry(one.host()) };
    assert_eq!(decide(&state, &request, BEGIN).map(|txn| txn.granted), Ok(Grant::Already));
}
