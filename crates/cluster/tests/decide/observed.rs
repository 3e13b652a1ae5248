//! Where coordinators hear a machine that does not say that it is there.

use cluster::Denial;
use cluster::peer::Peer;
use cluster::record::Standing;
use cluster::request::{Asks, Removal, Request};
use cluster::txn::Grant;
use keys::endpoint::{BadEndpoint, Endpoint};
use sim::cast::{RELEASE, id, machine_key};

use super::{Scene, redeem, redeem_as};

fn at(n: u16) -> Endpoint {
    Endpoint::read(&format!("192.0.2.{n}:7838")).expect("an endpoint")
}

fn says(places: &[u16]) -> Request {
    let endpoints = places.iter().map(|n| at(*n)).collect();
    Request::Announce { machine: machine_key(2), release: RELEASE, endpoints, generation: 1 }
}

fn heard(n: u16, endpoint: Endpoint) -> Request {
    Request::Observe { machine: id(n), endpoint }
}

/// Where the others try it, in this order.
fn tried(scene: &Scene) -> Vec<Endpoint> {
    Peer::of(scene.state().machine(&id(2)).expect("admitted")).endpoints
}

/// Proves: M1 M6
#[test]
fn a_heard_endpoint_is_told_once_and_before_announced_ones() {
    let mut scene = Scene::new();
    scene.issue(7, 1, |_| {});
    scene.yes(&redeem(2, 7));
    scene.yes(&says(&[1, 2]));
    let before = scene.state().version();
    assert_eq!(scene.yes(&heard(2, at(2))), Grant::Already, "it says so itself");
    assert_eq!(scene.state().version(), before);
    assert_eq!(scene.yes(&heard(2, at(9))), Grant::Done);
    assert_ne!(scene.state().version(), before, "the others are told");
    assert_eq!(tried(&scene), [at(9), at(1), at(2)]);
    let before = scene.state().version();
    assert_eq!(scene.yes(&heard(2, at(9))), Grant::Already);
    assert_eq!(scene.yes(&says(&[1, 2])), Grant::Already, "it has not moved");
    assert_eq!((scene.state().version(), tried(&scene).len()), (before, 3));
    for place in 10..20 {
        scene.yes(&heard(2, at(place)));
    }
    assert_eq!(tried(&scene)[..6], [at(19), at(18), at(17), at(16), at(15), at(1)], "the newest, and only so many");
    scene.yes(&says(&[3]));
    assert_eq!(tried(&scene), [at(3)], "it has moved, and is heard elsewhere from now on");
}

/// Proves: M6
#[test]
fn nobody_is_told_of_who_does_not_belong() {
    let mut scene = Scene::new();
    assert_eq!(scene.no(&heard(2, at(9))), Denial::UnknownMachine);
    scene.join(2);
    scene.asks(Asks::Remove(id(2), Removal::Lost));
    assert_eq!(scene.no(&heard(2, at(9))), Denial::MachineRemoved);
    assert_eq!(scene.state().machine(&id(2)).expect("it was one").standing, Standing::Removed);
}

/// A name would have to be looked up by all others, and eight long ones of each machine make a list that nobody keeps.
///
/// Proves: A6
#[test]
fn a_machine_is_reached_by_addresses_and_by_no_name() {
    let mut scene = Scene::new();
    scene.issue(7, 1, |_| {});
    let long = Endpoint::read(&format!("{}:7838", [&*"a".repeat(63); 3].join("."))).expect("a name");
    let redeems = |endpoints| redeem_as(2, 7, |body| body.endpoints = endpoints);
    let named = Denial::Endpoints(BadEndpoint::Name);
    assert_eq!(scene.no(&redeems(vec![at(1), long.clone()])), named);
    scene.yes(&redeem(2, 7));
    assert_eq!(scene.no(&redeems(vec![long.clone()])), named, "again");
    let announces =
        |endpoints| Request::Announce { machine: machine_key(2), release: RELEASE, endpoints, generation: 1 };
    assert_eq!(scene.no(&announces(vec![at(1), long.clone()])), named);
    assert_eq!(scene.no(&announces((1..=9).map(at).collect())), Denial::Endpoints(BadEndpoint::Many(9)));
    assert_eq!(scene.no(&heard(2, long)), named);
    scene.yes(&announces((1..=8).map(at).collect()));
}
