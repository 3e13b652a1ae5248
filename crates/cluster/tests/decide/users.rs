//! Users: added and removed by owners, each once, and not too many.

use cluster::denial::Denial;
use cluster::record::{MOST_USERS, UserTerms};
use cluster::request::{Asks, Request};
use cluster::txn::Grant;
use model::UserPubKey;
use sim::cast::{BEGIN, owner, user};

use super::Scene;

/// Proves: W9
#[test]
fn users_are_added_once_and_only_by_owners() {
    let mut scene = Scene::new();
    let alice = user(1, 1);
    assert_eq!(scene.asks(Asks::RemoveUser(alice.name)), Grant::Already);
    assert_eq!(scene.asks(Asks::AddUser(alice.clone())), Grant::Done);
    assert_eq!(scene.state().user(&alice.name).map(|user| (&user.terms, user.added_by)), Some((&alice, owner(1).key)));
    assert_eq!(scene.asks(Asks::AddUser(alice.clone())), Grant::Already);
    assert_eq!(scene.refuses(Asks::AddUser(user(1, 2))), Denial::UserDiffers(alice.name));
    assert_eq!(scene.refuses(Asks::AddUser(user(2, 1))), Denial::UserKeyTaken(alice.name));
    let of_owner = UserTerms { keys: [UserPubKey(owner(1).key.0)].into(), ..user(2, 2) };
    assert_eq!(scene.refuses(Asks::AddUser(of_owner)), Denial::UserIsOwner);
    let keys = |count: u8| UserTerms { keys: (10..10 + count).map(|n| UserPubKey([n; 32])).collect(), ..user(3, 3) };
    assert_eq!(scene.refuses(Asks::AddUser(keys(0))), Denial::UserKeys(0));
    assert_eq!(scene.refuses(Asks::AddUser(keys(9))), Denial::UserKeys(9));
    assert_eq!(scene.asks(Asks::AddUser(keys(8))), Grant::Done);
    let over = UserTerms { expires: Some(BEGIN), ..user(4, 4) };
    assert_eq!(scene.refuses(Asks::AddUser(over)), Denial::UserNeverHolds);
    let by = owner(2).key;
    for asks in [Asks::AddUser(user(4, 4)), Asks::RemoveUser(alice.name)] {
        assert_eq!(scene.no(&Request::Owner { by, asks }), Denial::UnknownOwner);
    }
    assert_eq!(scene.asks(Asks::RemoveUser(alice.name)), Grant::Done);
    assert_eq!(scene.state().user(&alice.name), None);
    assert_eq!(scene.asks(Asks::AddUser(user(1, 2))), Grant::Done, "with another key");
}

/// Proves: W9
#[test]
fn a_cluster_has_as_many_users_as_it_may() {
    let mut scene = Scene::new();
    let nth = |n: u16| {
        let key = [&n.to_be_bytes()[..], &[7; 30]].concat().try_into().expect("32 bytes");
        UserTerms { name: format!("u{n}").parse().expect("a name"), keys: [UserPubKey(key)].into(), expires: None }
    };
    let most = u16::try_from(MOST_USERS).expect("few");
    for n in 0..most {
        assert_eq!(scene.asks(Asks::AddUser(nth(n))), Grant::Done);
    }
    assert_eq!(scene.refuses(Asks::AddUser(nth(most))), Denial::UsersExhausted);
    assert_eq!(scene.asks(Asks::AddUser(nth(0))), Grant::Already);
    assert_eq!(scene.asks(Asks::RemoveUser(nth(0).name)), Grant::Done);
    assert_eq!(scene.asks(Asks::AddUser(nth(most))), Grant::Done);
}
