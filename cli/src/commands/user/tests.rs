//! Users as owners list, add and remove them, and as they come in themselves, at a coordinator that is a fake.

use super::*;
use crate::args::{self, Cli};
use crate::commands::cluster as clusters;
use crate::context::home;
use crate::store::Store;

/// Another person, whose host knows no cluster.
fn person() -> (tempfile::TempDir, Context) {
    let root = tempfile::tempdir().unwrap();
    let store = Store::at(root.path().join("cairn")).unwrap();
    let context = Context { store, cluster: None, machine: None, through: None, address: None, format: Format::Table };
    (root, context)
}

/// Runs a command line of `user …`, or of `cluster …`.
async fn did(line: &[&str], context: Context) -> Result<String, Failure> {
    let line = [&["cairnctl"], line].concat();
    let Cli { command, .. } = args::parse(line.iter().map(Into::into)).unwrap();
    let mut out = Vec::new();
    if let args::Command::User(command) = &command {
        run(command, &context, &mut out).await?;
    } else if let args::Command::Cluster(command) = &command {
        clusters::run(command, context, &mut out).await?;
    } else {
        panic!("{command:?}");
    }
    Ok(String::from_utf8(out).unwrap())
}

fn again(context: &Context) -> Context {
    Context {
        store: context.store.clone(),
        cluster: context.cluster.clone(),
        machine: None,
        through: None,
        address: None,
        format: context.format,
    }
}

/// Proves: W9
#[tokio::test]
async fn a_user_is_added_comes_in_and_is_removed() {
    let ((root, owner, coordinator), (_theirs, user)) = (home::with_a_listed_coordinator().await, person());
    let text = did(&["user", "key"], again(&user)).await.unwrap();
    assert_eq!(text, did(&["user", "key"], again(&user)).await.unwrap(), "made once");
    let file = root.path().join("alice.key");
    std::fs::write(&file, &text).unwrap();
    let add = ["user", "add", "alice", "--key", file.to_str().unwrap()];
    let mut said = String::new();
    for _ in 0..2 {
        said = did(&add, again(&owner)).await.unwrap();
        assert!(
            said.starts_with("user alice may use Kubernetes of `home`; on that user's host:\n  cairnctl "),
            "{said}"
        );
    }
    assert!(said.contains("create rolebinding alice -n NAMESPACE --clusterrole edit --user alice"), "{said}");
    let place = said.lines().nth(1).unwrap().rsplit(' ').next().unwrap();
    let key = UserPubKey(user.store.owner().unwrap().signing_key().public());
    let listed = did(&["user", "list"], again(&owner)).await.unwrap();
    assert_eq!(listed, format!("USER   EXPIRES  KEY\nalice  -        {key}\n"));

    let connected = did(&["cluster", "connect", "--user", place], again(&user)).await.unwrap();
    assert!(connected.ends_with("lets you in\n  cairnctl -c connected kubectl get pods\n"), "{connected}");
    let credential = did(&["user", "credential"], again(&user)).await.unwrap();
    let credential: serde_json::Value = serde_json::from_str(&credential).unwrap();
    assert_eq!(credential["kind"], "ExecCredential");
    assert!(credential["status"]["clientKeyData"].as_str().unwrap().starts_with("-----BEGIN PRIVATE KEY-----\n"));

    assert_eq!(
        did(&["user", "remove", "alice"], again(&owner)).await.unwrap(),
        "user alice may use Kubernetes of `home` no more\n"
    );
    let refused = did(&["user", "credential"], again(&user)).await.unwrap_err();
    assert_eq!(refused.code(), Code::Refused);
    assert!(refused.reason().contains("the cluster has no user with this key"), "{}", refused.reason());
    assert!(coordinator.users.lock().unwrap().is_empty());
    let unknown = did(&["user", "remove", "alice"], again(&owner)).await.unwrap_err();
    assert_eq!((unknown.code(), unknown.reason().as_str()), (Code::NotFound, "the cluster has no user `alice`"));
}

/// Proves: W9
#[tokio::test]
async fn nothing_is_kept_of_a_cluster_that_lets_no_user_in() {
    let ((_root, owner, _coordinator), (_theirs, user)) = (home::with_a_listed_coordinator().await, person());
    did(&["user", "key"], again(&user)).await.unwrap();
    let (mut session, meant) = owner.open_coordinator().await.unwrap();
    let place = owner::place(&meant, &session.machines().await.unwrap().rows).unwrap().to_text();
    let refused = did(&["cluster", "connect", "--user", &place], again(&user)).await.unwrap_err();
    assert_eq!(refused.code(), Code::Refused);
    assert!(refused.reason().starts_with("no coordinator that the text names lets this user in; "), "{refused}");
    assert!(refused.next().unwrap().contains("cairnctl user key") && user.store.clusters().unwrap().is_empty());
}

/// Proves: W9 Q6
#[tokio::test]
async fn bad_keys_and_names_are_refused_before_anybody_is_called() {
    let (root, owner, coordinator) = home::with_a_listed_coordinator().await;
    let file = root.path().join("key");
    let add = ["user", "add", "alice", "--key", file.to_str().unwrap()];
    assert_eq!(did(&add, again(&owner)).await.unwrap_err().code(), Code::Failed, "no file");
    let text = introduction::user_text(UserPubKey([1; 32]));
    for bad in ["", "cairn-user-", &text[..text.len() - 1], &UserPubKey([1; 32]).to_string()] {
        std::fs::write(&file, bad).unwrap();
        let refused = did(&add, again(&owner)).await.unwrap_err();
        assert_eq!((refused.code(), coordinator.calls()), (Code::Usage, vec![]), "{bad}: {refused}");
        assert!(refused.next().unwrap().contains("cairnctl user key"), "{refused}");
    }
    for bad in ["system:admin", "Alice", "1", ""] {
        let line = ["cairnctl", "user", "add", bad, "--key", "file"];
        assert!(args::parse(line.iter().map(Into::into)).is_err(), "{bad}");
    }
    std::fs::write(&file, &text).unwrap();
    did(&add, again(&owner)).await.unwrap();
    let differs = did(&[&add[..], &["--expires", "2d"]].concat(), again(&owner)).await.unwrap_err();
    assert!(differs.reason().contains("remove the user and add them again"), "{}", differs.reason());
}

/// Proves: W9
#[test]
fn a_list_says_when_each_users_time_is_over() {
    let user = |name: &str, keys: &[u8], expires: Option<u64>| UserRecord {
        terms: UserTerms {
            name: name.parse().unwrap(),
            keys: keys.iter().map(|key| UserPubKey([*key; 32])).collect(),
            expires: expires.map(UnixSeconds),
        },
        added_by: model::OwnerPubKey([9; 32]),
        added_at: UnixSeconds(1),
    };
    let rows = vec![user("a", &[0x11, 0x22], None), user("b", &[0x33], Some(100)), user("c", &[0x44], Some(160))];
    let mut out = Vec::new();
    table(&ListPage { old_since: None, rows }, UnixMillis(100_000)).print(&mut out).unwrap();
    let [one, two, three, four] = ["11", "22", "33", "44"].map(|digits| digits.repeat(32));
    let expected = format!(
        "USER  EXPIRES   KEY\na     -         {one}\n                {two}\nb     expired   {three}\nc     in 1m00s  {four}\n"
    );
    assert_eq!(String::from_utf8(out).unwrap(), expected);
}
