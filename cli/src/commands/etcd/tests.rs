//! etcd as owners look at it, have it defragmented and take snapshots, by coordinators that are fakes.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use ::snapshot::{KubernetesRelease, SnapshotHead, SnapshotSummary, SnapshotWriter};
use api::EtcdAnswer;
use cluster::backends::Backend;
use model::{ClusterId, NodeName};

use super::*;
use crate::args::{self, Cli};
use crate::context::home;
use crate::machine::fake::Fake;

fn member(machine: MachineId, name: &str, part: MemberPart, answer: Option<EtcdAnswer>) -> ListedEtcd {
    ListedEtcd { machine, name: NodeName::stored(name).unwrap(), part, answer }
}

fn answer(mebibytes: u64) -> EtcdAnswer {
    EtcdAnswer {
        revision: 7,
        backend: Backend { size: mebibytes << 20, in_use: 3 << 20, quota: 2 << 30 },
        version: "3.7.3".to_owned(),
        alarms: BTreeSet::new(),
        errors: Vec::new(),
    }
}

/// A coordinator whose etcd leads `m2` and follows nobody.
async fn led() -> (tempfile::TempDir, Context, Fake) {
    let (root, context, coordinator) = home::with_a_coordinator().await;
    *coordinator.etcd.lock().unwrap() = vec![
        member(coordinator.machine, "m1", MemberPart::Leader, Some(answer(100))),
        member(MachineId([2; 16]), "m2", MemberPart::Voter, Some(answer(80))),
    ];
    (root, context, coordinator)
}

async fn did(line: &[&str], context: &Context) -> (Result<(), Failure>, String) {
    let line = [&["cairnctl", "etcd"], line].concat();
    let Cli { command, .. } = args::parse(line.iter().map(Into::into)).unwrap();
    let args::Command::Etcd(command) = &command else { panic!("{command:?}") };
    let mut out = Vec::new();
    let done = run(command, context, &mut out).await;
    (done, String::from_utf8(out).unwrap())
}

/// Proves: Q4 Q6
#[tokio::test]
async fn members_are_listed_with_size_and_what_is_wrong() {
    let (_root, context, coordinator) = led().await;
    let alarms = [EtcdAlarm::NoSpace].into();
    let full = EtcdAnswer { alarms, errors: vec!["etcdserver: no leader".to_owned()], ..answer(80) };
    coordinator.etcd.lock().unwrap()[1].answer = Some(full);
    coordinator.etcd.lock().unwrap().push(member(MachineId([3; 16]), "m3", MemberPart::Learner, None));
    let (done, listed) = did(&["status"], &context).await;
    done.unwrap();
    let lines: Vec<_> = listed.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    assert_eq!(lines[0], "NAME ROLE REVISION SIZE IN USE QUOTA VERSION WRONG");
    assert_eq!(lines[1], "m1 leader 7 100 MiB 3 MiB 2.0 GiB 3.7.3 -");
    assert_eq!(lines[2], "m2 voter 7 80 MiB 3 MiB 2.0 GiB 3.7.3 NOSPACE, etcdserver: no leader");
    assert_eq!(lines[3], "m3 learner - - - - - does not answer");
    assert!(lines[5].ends_with("then: cairnctl etcd defragment"), "{listed}");
    let context = Context { format: Format::Json, ..context };
    let listed: serde_json::Value = serde_json::from_str(&did(&["status"], &context).await.1).unwrap();
    let members = &listed["members"];
    assert_eq!((&members[0]["bytes"], &members[1]["alarms"][0]), (&(100 << 20).into(), &"NOSPACE".into()));
    assert_eq!((&members[2]["answers"], &members[2]["bytes"]), (&false.into(), &serde_json::Value::Null));
}

/// Proves: Q4 Q6
#[tokio::test]
async fn members_are_defragmented_and_each_is_told_once() {
    let (_root, context, coordinator) = led().await;
    let (done, said) = did(&["defragment"], &context).await;
    done.unwrap();
    assert_eq!(said, "m2: 80 MiB before, 3 MiB now\nm1: 100 MiB before, 3 MiB now\n");
    let (done, said) = did(&["defragment", "--on", "m1"], &context).await;
    done.unwrap();
    assert_eq!(said, "m1: 3 MiB before, 3 MiB now\n");
    coordinator.etcd.lock().unwrap()[0].answer.as_mut().unwrap().alarms = [EtcdAlarm::NoSpace].into();
    let (_, said) = did(&["defragment", "--on", "m2"], &context).await;
    assert!(said.ends_with("\nthe alarm NOSPACE is disarmed: etcd takes writes\n"), "{said}");
    let json = Context { format: Format::Json, ..context };
    let (done, said) = did(&["defragment"], &json).await;
    done.unwrap();
    let said: serde_json::Value = serde_json::from_str(&said).unwrap();
    assert_eq!(said["defragmented"][0]["name"], "m2");
    assert_eq!((&said["defragmented"][1]["bytes"], &said["nospace"]), (&(3 << 20).into(), &serde_json::Value::Null));
}

/// Proves: Q4
#[tokio::test]
async fn a_defragmentation_that_stops_says_what_was_done() {
    let (_root, context, coordinator) = led().await;
    let (unknown, _) = did(&["defragment", "--on", "m1,m7"], &context).await;
    let unknown = unknown.unwrap_err();
    assert_eq!((unknown.code(), unknown.next()), (Code::NotFound, Some(SEE.to_owned())));
    assert!(!coordinator.calls().contains(&"DefragmentEtcd"));
    *coordinator.refuses.lock().unwrap() = true;
    let (stopped, said) = did(&["defragment"], &context).await;
    let (stopped, mut printed) = (stopped.unwrap_err(), Vec::new());
    stopped.print(&mut printed).unwrap();
    let printed = String::from_utf8(printed).unwrap();
    assert_eq!(said, "m2: 80 MiB before, 3 MiB now\n");
    assert!(printed.contains("the etcd of m2 does not answer"), "{printed}");
    assert!(printed.contains("  defragmented: m2; the others were not\n"), "{printed}");
    assert!(printed.ends_with("  next: see the members: cairnctl etcd status\n"), "{printed}");
}

/// Proves: Q4
#[tokio::test]
async fn the_coordinator_whose_etcd_leads_is_asked_through_another() {
    let two = home::two().await;
    two.coordinator.leads(two.node.machine, &two.node);
    two.lists(two.node.machine, cluster::record::Standing::Member);
    let members = vec![
        member(two.coordinator.machine, "first", MemberPart::Voter, Some(answer(100))),
        member(two.node.machine, "m2", MemberPart::Leader, Some(answer(80))),
    ];
    for fake in [&two.coordinator, &two.node] {
        *fake.etcd.lock().unwrap() = members.clone();
    }
    let (done, said) = did(&["defragment", "--on", "first"], &two.context).await;
    done.unwrap();
    assert_eq!(said, "first: 100 MiB before, 3 MiB now\n");
    assert!(two.node.calls().contains(&"DefragmentEtcd"));
    let through = two.coordinator.calls();
    assert!(through.contains(&"Tunnel") && !through.contains(&"DefragmentEtcd"), "{through:?}");
}

/// A snapshot of two objects, as a coordinator tells it.
fn snapshot_of(cluster: ClusterId) -> (Vec<u8>, SnapshotSummary) {
    let head = SnapshotHead { cluster, release: KubernetesRelease(1, 36, 3), revision: 7 };
    let mut bytes = Vec::new();
    let mut writer = SnapshotWriter::begin(&head, &mut bytes);
    for key in ["/registry/namespaces/web", "/registry/pods/web/a"] {
        writer.add(key.as_bytes(), b"k8s", &mut bytes).unwrap();
    }
    let summary = writer.finish(&mut bytes);
    (bytes, summary)
}

/// Proves: Q4 Q6
#[tokio::test]
async fn a_snapshot_is_a_private_file_of_all_that_was_told() {
    let (_root, context, coordinator) = led().await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("home.snapshot");
    let path = file.to_str().unwrap();
    let (bytes, summary) = snapshot_of(coordinator.pins().cluster);
    coordinator.snapshot.lock().unwrap().clone_from(&bytes);
    let (done, said) = did(&["snapshot", "--out", path], &context).await;
    done.unwrap();
    assert_eq!(said, format!("{path}: 2 objects of Kubernetes v1.36.3, revision 7, {} B\n", bytes.len()));
    assert_eq!(fs::read(&file).unwrap(), bytes);
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    let (taken, _) = did(&["snapshot", "--out", path], &context).await;
    assert!(taken.unwrap_err().reason().contains("exists"));
    assert_eq!(coordinator.calls().iter().filter(|call| **call == "SnapshotKubernetes").count(), 1);
    let context = Context { format: Format::Json, ..context };
    let (done, said) = did(&["snapshot", "--out", path, "--force"], &context).await;
    done.unwrap();
    let said: serde_json::Value = serde_json::from_str(&said).unwrap();
    assert_eq!((&said["objects"], &said["revision"]), (&2.into(), &7.into()));
    assert_eq!(said["sha256"], data_encoding::HEXLOWER.encode(&summary.hash));
}

/// Proves: Q4
#[tokio::test]
async fn what_is_no_whole_snapshot_leaves_no_file() {
    let (_root, context, coordinator) = led().await;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("home.snapshot");
    let (bytes, _) = snapshot_of(coordinator.pins().cluster);
    let refused = async |told: &[u8]| {
        told.clone_into(&mut coordinator.snapshot.lock().unwrap());
        let (done, _) = did(&["snapshot", "--out", path.to_str().unwrap()], &context).await;
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "nor a part of it");
        let (failure, mut printed) = (done.unwrap_err(), Vec::new());
        failure.print(&mut printed).unwrap();
        (failure.code(), String::from_utf8(printed).unwrap())
    };
    let (code, cut) = refused(&bytes[..bytes.len() - 1]).await;
    assert!(cut.contains("the snapshot is cut off\n  no file was written, and the cluster is as it was\n"), "{cut}");
    assert_eq!(code, Code::Failed);
    let mut flipped = bytes.clone();
    *flipped.last_mut().unwrap() ^= 1;
    assert!(refused(&flipped).await.1.contains("its hash is another one"));
    let (other, _) = snapshot_of(ClusterId([9; 16]));
    assert!(refused(&other).await.1.contains("the snapshot is of another cluster"));
    *coordinator.refuses.lock().unwrap() = true;
    let (_, stopped) = refused(&bytes).await;
    assert!(stopped.contains("etcd has forgotten revision 7"), "{stopped}");
    assert!(stopped.contains("  next: try again, from nearer"), "{stopped}");
}
