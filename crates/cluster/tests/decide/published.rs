//! Rules that publish ports: made once under a number that no other ever has, and never two for one port of one machine.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};

use cluster::State;
use cluster::denial::Denial;
use cluster::key::Key;
use cluster::record::{MOST_PUBLISHED, PublishRecord, PublishTerms};
use cluster::request::{Asks, Request};
use cluster::state::{BadState, KeyValue};
use cluster::txn::Grant;
use model::PublishId;
use sim::cast::{RELEASE, floating, id, machine_key, owner, published, published_at};

use super::Scene;

fn numbers(scene: &Scene) -> Vec<u64> {
    scene.state().published().keys().map(|id| id.0).collect()
}

/// Proves: A7
#[test]
fn a_rule_is_made_once_and_its_number_is_no_others() {
    let mut scene = Scene::new();
    let one = published(80, 1);
    assert_eq!(scene.asks(Asks::Publish(one.clone().into())), Grant::Done);
    assert_eq!(scene.asks(Asks::Publish(one.clone().into())), Grant::Already);
    let [first] = numbers(&scene)[..] else { panic!("one rule") };
    assert_eq!(scene.asks(Asks::Unpublish(PublishId(first))), Grant::Done);
    assert_eq!(scene.asks(Asks::Unpublish(PublishId(first))), Grant::Already);
    assert_eq!(scene.asks(Asks::Publish(one.clone().into())), Grant::Done);
    let [second] = numbers(&scene)[..] else { panic!("one rule") };
    assert!(second > first, "who removes the first by its number does not remove this one");
    let by = owner(2).key;
    assert_eq!(scene.no(&Request::Owner { by, asks: Asks::Publish(one.into()) }), Denial::UnknownOwner);
}

/// Proves: A7
#[test]
fn a_port_of_a_machine_is_of_one_rule() {
    let mut scene = Scene::new();
    assert_eq!(scene.asks(Asks::Publish(published(80, 1).into())), Grant::Done);
    let rule = PublishId(numbers(&scene)[0]);
    let (terms, port) = (published(80, 1), "80/tcp".parse().expect("a port"));
    let from = BTreeSet::from(["192.0.2.0/24".parse().expect("a prefix")]);
    let all = PublishTerms::new(terms.ports().clone(), terms.users().clone(), from).expect("a rule");
    assert_eq!(scene.refuses(Asks::Publish(all.clone().into())), Denial::PortPublished { port, rule });
    assert_eq!(scene.refuses(Asks::Publish(published(81, 9).into())), Denial::UnknownMachine);
    assert_eq!(scene.asks(Asks::Publish(published(81, 1).into())), Grant::Done, "another port");
    scene.asks(Asks::Unpublish(rule));
    assert_eq!(scene.asks(Asks::Publish(all.into())), Grant::Done);
    assert!(matches!(scene.refuses(Asks::Publish(terms.into())), Denial::PortPublished { .. }));
}

/// Proves: A7
#[test]
fn rules_that_publish_are_bounded_in_number() {
    let mut scene = Scene::new();
    let most = u16::try_from(MOST_PUBLISHED).expect("few");
    for n in 1..=most {
        assert_eq!(scene.asks(Asks::Publish(published(n, 1).into())), Grant::Done);
    }
    assert_eq!(scene.refuses(Asks::Publish(published(most + 1, 1).into())), Denial::PublishedExhausted);
    scene.asks(Asks::Unpublish(PublishId(numbers(&scene)[0])));
    assert_eq!(scene.asks(Asks::Publish(published(most + 1, 1).into())), Grant::Done);
}

/// Proves: A7
#[test]
fn a_rule_under_anothers_number_is_not_read() {
    let rule = PublishRecord { id: PublishId(7), terms: published(80, 1) };
    let put = |id| KeyValue { key: Key::Publish(PublishId(id)).bytes(), value: rule.encode(), mod_revision: 2 };
    assert!(State::read([put(7)]).is_ok());
    assert_eq!(State::read([put(8)]), Err(BadState::Misplaced(Box::new(Key::Publish(PublishId(8))))));
}

/// Proves: W8
#[test]
fn a_floating_address_is_of_one_rule_and_of_nobody_else() {
    let mut scene = Scene::new();
    let (one, two) = (floating(1), floating(2));
    assert_eq!(scene.asks(Asks::Publish(published_at(443, one).into())), Grant::Done);
    let rule = PublishId(numbers(&scene)[0]);
    assert_eq!(
        scene.refuses(Asks::Publish(published_at(80, one).into())),
        Denial::AddressPublished { address: one, rule }
    );
    assert_eq!(scene.asks(Asks::Publish(published_at(443, two).into())), Grant::Done, "its ports are its own");
    let port = "443/tcp".parse().expect("a port");
    assert_eq!(scene.refuses(Asks::Publish(published(443, 1).into())), Denial::PortPublished { port, rule });
    let inside = [[10, 118, 0, 9], [10, 244, 1, 9], [10, 96, 0, 9]].map(Ipv4Addr::from);
    for address in inside {
        assert_eq!(scene.refuses(Asks::Publish(published_at(80, address).into())), Denial::AddressInside(address));
    }
    let endpoint = sim::cast::endpoint(1);
    let Some(IpAddr::V4(address)) = endpoint.address().map(|at| at.ip()) else { panic!("{endpoint:?}") };
    let announces =
        |endpoints| Request::Announce { machine: machine_key(1), release: RELEASE, endpoints, generation: 1 };
    scene.yes(&announces(vec![endpoint]));
    let taken = scene.refuses(Asks::Publish(published_at(80, address).into()));
    assert!(matches!(taken, Denial::AddressOfMachine { address: of, .. } if of == address), "{taken}");
}

/// Proves: W8
#[test]
fn a_floating_address_is_held_by_a_worker_of_its_rule() {
    let mut scene = Scene::new();
    let address = floating(1);
    let hold = |address, n| Request::Hold { address, machine: id(n) };
    let refused = Denial::AddressNotPublished { address, machine: id(1) };
    assert_eq!(scene.no(&hold(address, 1)), refused, "nobody published it");
    scene.asks(Asks::Publish(published_at(443, address).into()));
    assert_eq!(scene.yes(&hold(address, 1)), Grant::Done);
    assert_eq!(scene.yes(&hold(address, 1)), Grant::Already);
    assert_eq!(scene.state().floating().get(&address).map(|(holder, _)| *holder), Some(id(1)));
    assert!(matches!(scene.no(&hold(address, 9)), Denial::AddressNotPublished { .. }), "no worker");
    scene.asks(Asks::Unpublish(PublishId(numbers(&scene)[0])));
    assert!(scene.state().floating().is_empty(), "with the rule goes its holder");
    assert_eq!(scene.no(&hold(address, 1)), refused);
}
