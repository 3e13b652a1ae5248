//! Volumes as owners list and remove them, by a coordinator that is a fake.

use model::MachineId;

use super::*;
use crate::args::{self, Cli};
use crate::context::home;
use crate::machine::fake::Fake;

const HELD: &str = "01234567-89ab-cdef-0123-456789abcdef";
const KEPT: &str = "11234567-89ab-cdef-0123-456789abcdef";
const FREE: &str = "21234567-89ab-cdef-0123-456789abcdef";

/// A coordinator that knows three volumes on one worker, and another worker that is silent.
async fn kept() -> (tempfile::TempDir, Context, Fake) {
    let (root, context, coordinator) = home::with_a_coordinator().await;
    let claim = VolumeHolder::Claim { namespace: "web".to_owned(), name: "data".to_owned() };
    let object = VolumeHolder::Object(format!("pvc-{KEPT}"));
    let row = |(text, holder): (&str, Option<VolumeHolder>)| {
        (ListedVolume { volume: VolumeId::parse(text).unwrap(), bytes: 8 << 20, used: 3 << 20 }, holder)
    };
    let held = [(HELD, Some(claim)), (KEPT, Some(object)), (FREE, None)].map(row);
    let worker = |number: u8, held| WorkerVolumes {
        machine: MachineId([number; 16]),
        name: NodeName::stored(&format!("m{number}")).unwrap(),
        held,
    };
    *coordinator.workers.lock().unwrap() = vec![worker(1, Some(held.to_vec())), worker(2, None)];
    (root, context, coordinator)
}

async fn did(line: &[&str], context: &Context) -> Result<String, Failure> {
    let line = [&["cairnctl", "volume"], line].concat();
    let Cli { command, .. } = args::parse(line.iter().map(Into::into)).unwrap();
    let args::Command::Volume(command) = &command else { panic!("{command:?}") };
    let mut out = Vec::new();
    run(command, context, &mut out).await?;
    Ok(String::from_utf8(out).unwrap())
}

/// Proves: W2 Q6
#[tokio::test]
async fn volumes_are_listed_with_whoever_holds_them() {
    let (_root, context, _coordinator) = kept().await;
    let listed = did(&["list"], &context).await.unwrap();
    let lines: Vec<_> = listed.lines().map(|line| line.split_whitespace().collect::<Vec<_>>()).collect();
    assert_eq!(lines[0], ["VOLUME", "MACHINE", "SIZE", "USED", "CLAIM"]);
    assert_eq!(lines[1], [HELD, "m1", "8", "MiB", "3", "MiB", "web/data"]);
    assert!(lines[2].join(" ").ends_with(&format!("gone; PersistentVolume pvc-{KEPT} stays")), "{listed}");
    assert_eq!(lines[3].last(), Some(&"none"));
    assert!(listed.ends_with("m2 does not answer: its volumes are not shown\n"), "{listed}");
    let context = Context { format: Format::Json, ..context };
    let listed: serde_json::Value = serde_json::from_str(&did(&["list"], &context).await.unwrap()).unwrap();
    assert_eq!(listed["volumes"][0]["claim"], "web/data");
    assert_eq!((&listed["volumes"][2]["claim"], &listed["silent"][0]), (&serde_json::Value::Null, &"m2".into()));
}

/// Proves: W2 Q6
#[tokio::test]
async fn a_volume_is_removed_when_nobody_holds_it() {
    let (_root, context, coordinator) = kept().await;
    for (volume, next) in [
        (HELD, "delete the claim: cairnctl kubectl delete -n web pvc/data".to_owned()),
        (KEPT, format!("delete the object, then try again: cairnctl kubectl delete pv/pvc-{KEPT}")),
    ] {
        let refused = did(&["remove", volume, "--yes"], &context).await.unwrap_err();
        assert_eq!((refused.code(), refused.next()), (Code::Refused, Some(next)));
    }
    let unasked = did(&["remove", FREE], &context).await.unwrap_err();
    assert_eq!(unasked.code(), Code::Usage, "there is no terminal to ask on");
    assert_eq!(did(&["remove", FREE, "--yes"], &context).await.unwrap(), format!("volume {FREE} is gone from `m1`\n"));
    assert_eq!(coordinator.workers.lock().unwrap()[0].held.as_ref().map(Vec::len), Some(2));
    let unknown = did(&["remove", FREE, "--yes"], &context).await.unwrap_err();
    assert_eq!(unknown.code(), Code::NotFound);
    assert_eq!(unknown.reason(), format!("no worker that answers has volume {FREE}; m2 did not answer"));
}
