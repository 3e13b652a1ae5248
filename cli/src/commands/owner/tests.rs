//! Owners as a person lists, adds and removes them, at a coordinator that is a fake.

use cluster::record::Standing;
use model::Chain;

use super::*;
use crate::context::home;
use crate::machine::fake::{self, Fake};

/// A cluster whose coordinator lists this host's owner, for whom its record is.
async fn owned() -> (tempfile::TempDir, Context, Fake) {
    let (root, context, coordinator) = home::with_a_listed_coordinator().await;
    let OwnerKeys { key, recovery } = own(&context);
    let owner = record::OwnerRecord { key, recovery };
    coordinator.owners.lock().unwrap().push(ListedOwner { owner, recovers: true });
    (root, context, coordinator)
}

fn own(context: &Context) -> OwnerKeys {
    keys_of(&context.store.owner().unwrap())
}

/// Keys of somebody else, from `seed`.
fn other(seed: u8) -> OwnerKeys {
    let record::OwnerRecord { key, recovery } = fake::owner(seed).owner;
    OwnerKeys { key, recovery }
}

async fn did(command: Command, context: &Context) -> Result<String, Failure> {
    let mut out = Vec::new();
    run(&command, context, &mut out).await.map(|()| String::from_utf8(out).unwrap())
}

fn adds(text: &str) -> Command {
    Command::Add(Add { text: text.to_owned() })
}

fn removes(key: &str, myself: bool, yes: bool) -> Command {
    Command::Remove(Remove { key: key.to_owned(), myself, yes })
}

/// Proves: Q1
#[tokio::test]
async fn an_owner_is_shown_added_once_listed_and_removed() {
    let (_root, context, coordinator) = owned().await;
    // What another host prints is one line, and all that is needed.
    let root = tempfile::tempdir().unwrap();
    let store = crate::store::Store::at(root.path().join("cairn")).unwrap();
    let theirs = Context { store, ..context.about_cluster(&home::name()) };
    let text = did(Command::Show, &theirs).await.unwrap();
    assert_eq!(text, did(Command::Show, &theirs).await.unwrap(), "made once");
    let (new, me) = (own(&theirs).key, own(&context).key);
    for _ in 0..2 {
        let said = did(adds(&text), &context).await.unwrap();
        let connect = "; on that owner's host:\n  cairnctl cluster connect cairn-place-";
        assert!(said.starts_with(&format!("owner {new} owns `home`, too{connect}")), "{said}");
    }
    let listed = did(Command::List, &context).await.unwrap();
    let column = "OWNER".len().max(64) + 2;
    let expected = format!("{:column$}YOU  RECOVERS\n{me}  you  m1\n{new}  -    -\n", "OWNER");
    assert_eq!(listed, expected);
    let prefix: String = new.to_string().chars().take(6).collect();
    assert_eq!(
        did(removes(&prefix, false, true), &context).await.unwrap(),
        format!("owner {new} owns `home` no more\n")
    );
    assert_eq!(coordinator.owners.lock().unwrap().len(), 1);
}

/// Proves: Q6
#[tokio::test]
async fn a_text_that_is_no_owners_is_refused_before_anybody_is_called() {
    let (_root, context, coordinator) = owned().await;
    let text = other(3).to_text();
    for bad in ["", "cairn-owner-", &text[..text.len() - 1], &text.replacen('a', "b", 1), &other(3).key.to_string()] {
        let refused = did(adds(bad), &context).await.unwrap_err();
        assert_eq!((refused.code(), coordinator.calls()), (Code::Usage, vec![]), "{bad}: {refused}");
        assert!(refused.reason().starts_with("understand the owner's text: the owner's text "), "{}", refused.reason());
    }
}

/// Proves: Q6
#[tokio::test]
async fn what_the_cluster_refuses_is_told_with_its_reason() {
    let (_root, context, coordinator) = owned().await;
    did(adds(&other(3).to_text()), &context).await.unwrap();
    let changed = OwnerKeys { recovery: other(4).recovery, ..other(3) };
    let refused = did(adds(&changed.to_text()), &context).await.unwrap_err().reason();
    assert!(refused.contains("this owner is known with another recovery key; to give"), "{refused}");
    did(removes(&other(3).key.to_string(), false, true), &context).await.unwrap();
    let last = did(removes(&own(&context).key.to_string(), true, true), &context).await.unwrap_err().reason();
    assert!(last.contains("it is the last owner") && last.ends_with("add another owner first"), "{last}");
    assert_eq!(coordinator.owners.lock().unwrap().len(), 1);
}

/// Proves: Q6
#[tokio::test]
async fn nobody_is_removed_by_mistake() {
    let (_root, context, coordinator) = owned().await;
    let both = [other(3), other(5)];
    for keys in both {
        did(adds(&keys.to_text()), &context).await.unwrap();
    }
    let me = own(&context).key.to_string();
    let three = other(3).key.to_string();
    let refused = async |key: &str, myself, yes| {
        let failure = did(removes(key, myself, yes), &context).await.unwrap_err();
        (failure.code(), failure.reason())
    };
    let (_, said) = refused(&me, false, true).await;
    assert!(said.starts_with("this is your own key: "), "{said}");
    assert_eq!(refused(&three, true, true).await.1, "this is not your own key");
    assert_eq!(refused(&three[..4], false, false).await.1, "there is no terminal to ask on");
    for digits in [&three[..3], "xyzt", &three.to_uppercase(), &format!("{three}0")] {
        let (code, said) = refused(digits, false, true).await;
        assert!(code == Code::Usage && said.contains("is neither an owner's key nor its beginning"), "{said}");
    }
    let nobody = if three.starts_with("0000") { "1111" } else { "0000" };
    assert_eq!(refused(nobody, false, true).await.0, Code::NotFound);
    coordinator.owners.lock().unwrap().push(ListedOwner {
        owner: record::OwnerRecord { key: OwnerPubKey([other(3).key.0[0]; 32]), ..fake::owner(3).owner },
        recovers: false,
    });
    // Four digits that two keys begin with.
    let mut twin = other(3).key.0;
    twin[31] ^= 1;
    coordinator.owners.lock().unwrap().last_mut().unwrap().owner.key = OwnerPubKey(twin);
    let (code, said) = refused(&three[..8], false, true).await;
    assert_eq!((code, said), (Code::Usage, format!("the keys of 2 owners begin with `{}`", &three[..8])));
    assert!(!coordinator.calls().contains(&"RemoveOwner"));
    did(removes(&three, false, true), &context).await.unwrap();
    did(removes(&me, true, true), &context).await.unwrap();
    assert_eq!(coordinator.owners.lock().unwrap().len(), 2);
}

#[tokio::test]
async fn a_coordinator_without_a_place_is_no_way_for_a_new_owner() {
    let (_root, context, coordinator) = owned().await;
    let (_, meant) = context.open_coordinator().await.unwrap();
    let mut rows = coordinator.listed.lock().unwrap().clone();
    rows.push(ListedMachine {
        addresses: vec![],
        role: ClusterRole::Coordinator,
        ..home::member("m2", Standing::Member)
    });
    rows.push(ListedMachine { id: model::MachineId([3; 16]), ..home::member("m3", Standing::Member) });
    let place = place(&meant, &rows).unwrap();
    let names: Vec<_> = place.coordinators.iter().map(|it| it.name.as_str()).collect();
    assert_eq!(names, ["first"], "m2 is nowhere, m3 is no coordinator");
    let places = keys::endpoint::texts(&place.coordinators[0].endpoints);
    assert_eq!(places, [coordinator.address.to_string(), "192.0.2.1:7836".to_owned()], "first as this host reaches it");
    assert_eq!(super::place(&meant, &rows[1..]), None);
    coordinator.listed.lock().unwrap().clear();
    let refused = did(adds(&other(3).to_text()), &context).await.unwrap_err();
    assert!(
        Chain(&OwnerChangeError::Nowhere).to_string() == refused.reason() && !coordinator.calls().contains(&"AddOwner")
    );
}
