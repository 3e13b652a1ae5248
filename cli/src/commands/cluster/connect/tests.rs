//! A new owner's host, at coordinators that are fakes: what it is told works, or nothing is kept.

use keys::endpoint::Endpoint;
use pki::PublicKey;

use super::*;
use crate::commands::machine;
use crate::context::home;
use crate::machine::fake::{Answer, Fake};
use crate::store::Store;

/// A person whose host knows no cluster.
fn newcomer() -> (tempfile::TempDir, Context, PublicKey) {
    let (root, context, _) = home::begun();
    let store = Store::at(root.path().join("new")).unwrap();
    let owner = store.owner_or_new().unwrap().tls_key().unwrap().public().clone();
    let context = Context { store, cluster: None, machine: None, through: None, address: None, format: context.format };
    (root, context, owner)
}

fn coordinator(name: &str, fake: &Fake, at: &[String]) -> CoordinatorPlace {
    let endpoints = at.iter().map(|at| Endpoint::read(at).unwrap()).collect();
    CoordinatorPlace { machine: fake.machine, name: NodeName::stored(name).unwrap(), endpoints }
}

fn text(fake: &Fake, coordinators: Vec<CoordinatorPlace>) -> String {
    let Pins { cluster, authority, .. } = fake.pins();
    ClusterPlace { cluster, ca_spki: authority.0, coordinators }.to_text()
}

async fn connect(text: &str, context: &Context) -> Result<String, Failure> {
    let mut out = Vec::new();
    let arguments = Arguments { text: text.to_owned(), name: None, user: false };
    run(&arguments, context, &mut out).await.map(|()| String::from_utf8(out).unwrap())
}

/// A place where nobody listens.
const NOWHERE: &str = "127.0.0.1:1";

/// Proves: Q1 S12
#[tokio::test]
async fn a_new_owner_is_let_in_by_what_they_were_told() {
    let (_root, context, owner) = newcomer();
    let (off, first) =
        (Fake::start(7, owner.clone(), Answer::NotYet).await, Fake::start(1, owner, Answer::NotYet).await);
    let told = text(
        &first,
        vec![
            coordinator("off", &off, &[NOWHERE.to_owned()]),
            coordinator("first", &first, &[NOWHERE.to_owned(), first.address.to_string()]),
        ],
    );
    let said = connect(&format!(" {told}\n"), &context).await.unwrap();
    assert!(said.starts_with("cluster `connected` is known here"), "{said}");
    // From now on as any other cluster, and by the coordinators that were not asked as well.
    let record = context.cluster().unwrap();
    assert_eq!(record.others().iter().map(|other| other.name.as_str()).collect::<Vec<_>>(), ["off"]);
    let (mut session, meant) = context.about(&record.name, &NodeName::stored("first").unwrap()).open().await.unwrap();
    session.services().await.unwrap();
    assert_eq!(meant.pins(), Some(first.pins()));
    let mut out = Vec::new();
    machine::run(&machine::Command::List, &context, &mut out).await.unwrap();
    assert!(String::from_utf8(out).unwrap().starts_with("NAME"));
    let again = connect(&told, &context.about_cluster(&"other".parse().unwrap())).await.unwrap_err();
    assert_eq!(again.reason(), "this host knows the cluster already, as `connected`");
}

/// Proves: S12
#[tokio::test]
async fn nothing_is_kept_of_a_cluster_that_lets_the_owner_not_in() {
    let (_root, context, owner) = newcomer();
    let (_other_root, _, stranger) = newcomer();
    let theirs = Fake::start(1, stranger, Answer::NotYet).await;
    let mine = Fake::start(2, owner, Answer::NotYet).await;
    let at = |fake: &Fake| vec![fake.address.to_string()];
    let refused = async |told: &str| {
        let failure = connect(told, &context).await.unwrap_err();
        assert!(context.store.clusters().unwrap().is_empty(), "{failure}");
        failure
    };
    let not_added = refused(&text(&theirs, vec![coordinator("m1", &theirs, &at(&theirs))])).await;
    assert_eq!(not_added.code(), Code::Refused, "{not_added}");
    assert!(not_added.next().unwrap().contains("cairnctl owner show"));
    // Another machine at the place, and another cluster's CA behind it.
    let other_key = refused(&text(&mine, vec![coordinator("m1", &theirs, &at(&mine))])).await;
    let other_cluster = refused(&text(&theirs, vec![coordinator("m1", &mine, &at(&mine))])).await;
    assert_eq!((other_key.code(), other_cluster.code(), mine.calls()), (Code::Refused, Code::Refused, vec![]));
    let nowhere = refused(&text(&mine, vec![coordinator("m1", &mine, &[NOWHERE.to_owned()])])).await;
    assert_eq!(nowhere.code(), Code::Unreachable);
    assert!(nowhere.reason().contains("; m1 at 127.0.0.1:1: connect to"), "{}", nowhere.reason());
    let whole = text(&mine, vec![coordinator("m1", &mine, &at(&mine))]);
    for bad in ["", "cairn-place-", &whole[..whole.len() - 2], &whole.to_uppercase()] {
        assert_eq!(refused(bad).await.code(), Code::Usage);
    }
    assert_eq!(mine.calls(), [""; 0]);
}
