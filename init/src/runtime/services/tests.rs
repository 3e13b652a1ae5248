//! The shell with tasks for services: what comes of taking, giving up and failing. Children need a machine's cgroups.

use std::sync::atomic::{AtomicU32, Ordering};

use supervise::{Critical, Need, UnitState};

use super::*;

/// Ends a test that would wait for ever.
async fn soon<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(60), what).await.expect("it happens")
}

/// A task that stays, and needs others.
fn stays(name: &str, needs: &[&str]) -> Unit {
    let unit = Unit::task(name, Ends::Never, Run::steady(std::future::pending));
    Unit { spec: Spec { needs: needs.iter().copied().map(Need::ready).collect(), ..unit.spec }, ..unit }
}

async fn ready(tree: &Services, expected: &[&str]) {
    let is_so = |seen: &Vec<Snapshot>| {
        seen.iter().all(|one| one.status.state == UnitState::Ready)
            && seen.iter().map(|one| one.status.name.as_str()).eq(expected.iter().copied())
    };
    let seen = soon(tree.watch().wait_for(is_so)).await.map(|_| ());
    assert!(seen.is_ok(), "{:?}", tree.snapshots());
}

/// Proves: O2
#[tokio::test]
async fn units_come_go_and_come_back_by_name_while_the_tree_runs() {
    let mut tree = Services::start(&Children::default(), vec![stays("a", &[])]).expect("a tree");
    assert_eq!(soon(tree.beside(async { 7 })).await, Ok(7));
    soon(tree.take(vec![stays("0", &[])])).await.expect("it fits");
    for _ in 0..2 {
        soon(tree.want(vec![stays("b", &["a"]), stays("c", &["b"])])).await.expect("they fit");
        ready(&tree, &["a", "0", "b", "c"]).await;
        let taken = soon(tree.take(vec![stays("c", &[])])).await.expect_err("its name is taken");
        assert_eq!(taken.to_string(), "two services are named `c`");
        let needed = soon(tree.want(vec![stays("c", &["b"])])).await.expect_err("c needs it");
        assert_eq!(needed.to_string(), "service `c` needs `b`, which is not in the tree");
        soon(tree.want(Vec::new())).await.expect("together");
        ready(&tree, &["a", "0"]).await;
    }
    soon(tree.want(Vec::new())).await.expect("nothing is soon done");
    assert_eq!(soon(tree.stop(StopReason::Reboot, Duration::from_secs(10))).await, [""; 0]);
    assert_eq!(soon(tree.take(vec![stays("d", &[])])).await, Err(ChangeError::Stopping));
    assert_eq!(soon(tree.want(Vec::new())).await, Err(ChangeError::Stopping));
}

/// A task that tells by `runs` which of them runs, and stays.
fn tells(content: u8, runs: &watch::Sender<Vec<u8>>) -> Unit {
    let runs = runs.clone();
    let task = Run::steady(move || {
        runs.send_modify(|runs| runs.push(content));
        std::future::pending()
    });
    let unit = Unit::task("task", Ends::Never, task);
    Unit { spec: Spec { content: Fingerprint::of(&content), ..unit.spec }, ..unit }
}

/// Proves: O2
#[tokio::test]
async fn an_equal_unit_runs_on_and_one_that_differs_is_replaced() {
    let tree = Services::start(&Children::default(), Vec::new()).expect("a tree");
    let runs = watch::Sender::new(Vec::new());
    let mut seen = runs.subscribe();
    for (content, expected) in [(1, &[1][..]), (1, &[1]), (2, &[1, 2]), (2, &[1, 2]), (1, &[1, 2, 1])] {
        soon(tree.want(vec![tells(content, &runs), stays("other", &["task"])])).await.expect("a table");
        assert!(soon(seen.wait_for(|runs| runs == expected)).await.is_ok(), "{content}: {:?}", runs.borrow());
        ready(&tree, &["task", "other"]).await;
    }
    assert!(tree.snapshots().iter().all(|one| one.status.restarts == 0), "each is a service of its own");
    // Whoever does not wait to the end has wanted them all the same.
    let _not_awaited = tokio::time::timeout(Duration::ZERO, tree.want(vec![tells(2, &runs)])).await;
    soon(tree.want(vec![tells(3, &runs)])).await.expect("a table");
    assert!(soon(seen.wait_for(|runs| runs.ends_with(&[3]))).await.is_ok(), "{:?}", runs.borrow());
    ready(&tree, &["task"]).await;
}

/// Proves: O1, O2
#[tokio::test]
async fn a_panicked_task_starts_again_and_a_critical_one_is_told() {
    let runs = Arc::new(AtomicU32::new(0));
    let counted = runs.clone();
    let panics = Run::steady(move || {
        let runs = counted.clone();
        async move {
            runs.fetch_add(1, Ordering::Relaxed);
            panic!("a test wants to see it");
        }
    });
    let unit = Unit::task("reaper", Ends::Never, panics);
    let critical = Some(Critical { failures: 3, within: Duration::from_secs(60) });
    let unit = Unit { spec: Spec { critical, ..unit.spec }, ..unit };
    let mut tree = Services::start(&Children::default(), vec![unit, stays("other", &[])]).expect("a tree");
    let escalation = soon(tree.escalated()).await;
    assert_eq!(escalation.to_string(), "service reaper failed too often");
    assert_eq!(runs.load(Ordering::Relaxed), 3);
    // Whoever asks later is told, too.
    assert_eq!(soon(tree.clone().escalated()).await, escalation);
}

/// Another try would read the same block; a full disk may have room again.
///
/// Proves: D14, O1
#[tokio::test]
async fn a_task_that_meets_damage_is_told_at_once() {
    let fails = |errno: rustix::io::Errno| {
        let run = Run::task(move || std::future::ready(Err::<(), _>(std::io::Error::from(errno))));
        Services::start(&Children::default(), vec![Unit::task("damaged", Ends::Never, run)]).expect("a tree")
    };
    let mut damaged = fails(rustix::io::Errno::ILSEQ);
    let escalation = soon(damaged.escalated()).await;
    assert!(matches!(&escalation, Escalation::Damage { service, .. } if service.as_str() == "damaged"), "{escalation}");
    // A machine that was told keeps console and API up beside it, for as long as its owner likes.
    let mut full = fails(rustix::io::Errno::NOSPC);
    for tree in [&mut damaged, &mut full] {
        let mut seen = tree.watch();
        let again = seen.wait_for(|seen| seen.iter().any(|one| one.status.failures > 1));
        assert!(soon(tree.beside(again)).await.is_ok_and(|seen| seen.is_ok()), "it is tried again");
    }
}

/// Callers are not left waiting for a tree that is no more.
///
/// Proves: O1
#[tokio::test]
async fn the_end_of_supervision_itself_is_told() {
    // What makes the future runs in the tree's own task.
    let breaks = Run::Task(Box::new(|_stop| panic!("a test wants to see it")));
    let mut tree = Services::start(&Children::default(), Vec::new()).expect("a tree");
    let taken = soon(tree.take(vec![Unit::task("breaks", Ends::Never, breaks)])).await;
    assert_eq!(taken, Err(ChangeError::Stopping), "nobody answers");
    assert_eq!(soon(tree.escalated()).await, Escalation::Supervision);
    let left_where_it_is = soon(tree.beside(std::future::pending::<()>())).await;
    assert_eq!(left_where_it_is, Err(Escalation::Supervision));
}
