//! Evidence that both sides run the same: arguments and hashes of every component, compared to the letter.

use std::collections::{BTreeMap, BTreeSet};

use model::ClusterId;
use serde::{Deserialize, Serialize};
use services::ServicePlan;

/// Programs that one side runs, and their arguments.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Evidence {
    /// Arguments by service, the program first.
    pub argv: BTreeMap<String, Vec<String>>,
    /// SHA-256 in hex by path, of every executable.
    pub sha256: BTreeMap<String, String>,
    /// Processes beside PID 1 that are not a component's.
    pub ours: usize,
    /// `VmRSS` of PID 1 in kilobytes, where it was asked.
    pub resident: Option<u64>,
}

/// Service or file that is not the same on both sides.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// Which service or path.
    pub what: String,
    /// On the floor; empty where it has none.
    pub floor: String,
    /// On Cairn; empty where it has none.
    pub cairn: String,
}

/// PID 1 differs; that is the point.
const OURS: &str = "/bin/init";

/// The arguments of every service of a plan that the floor has as well, as evidence has them.
#[must_use]
pub fn argv(plan: &ServicePlan) -> BTreeMap<String, Vec<String>> {
    let argv = |unit: services::Unit| Some((unit.spec.name.to_string(), unit.as_program()?.argv.clone()));
    crate::floor::units(plan).into_iter().filter_map(argv).collect()
}

/// All that differs, but for PID 1 itself and the id of the cluster, which is drawn at create.
#[must_use]
pub fn differences(floor: &Evidence, (cairn, cluster): (&Evidence, ClusterId)) -> Vec<Difference> {
    let own = crate::floor::plan().cluster.to_string();
    let lines = |of: &Evidence, cluster: &str| -> BTreeMap<String, String> {
        of.argv.iter().map(|(name, words)| (name.clone(), words.join(" ").replace(cluster, &own))).collect()
    };
    let hashes = |of: &Evidence| -> BTreeMap<String, String> {
        of.sha256.iter().filter(|(path, _)| *path != OURS).map(|(path, hash)| (path.clone(), hash.clone())).collect()
    };
    let mut found = compare(&lines(floor, &own), &lines(cairn, &cluster.to_string()));
    found.extend(compare(&hashes(floor), &hashes(cairn)));
    found
}

fn compare(floor: &BTreeMap<String, String>, cairn: &BTreeMap<String, String>) -> Vec<Difference> {
    let names: BTreeSet<&String> = floor.keys().chain(cairn.keys()).collect();
    let of = |side: &BTreeMap<String, String>, name| side.get(name).cloned().unwrap_or_default();
    let all =
        names.into_iter().map(|name| Difference { what: name.clone(), floor: of(floor, name), cairn: of(cairn, name) });
    all.filter(|one| one.floor != one.cairn).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn side(plan: &ServicePlan, init: &str) -> Evidence {
        let sha256 = [("/bin/init", init), ("/bin/etcd", "e7cd"), ("/bin/kube", "c0be")];
        let sha256 = sha256.map(|(path, hash)| (path.to_owned(), hash.to_owned())).into();
        Evidence { argv: argv(plan), sha256, ours: 0, resident: None }
    }

    #[test]
    fn only_pid_1_and_the_clusters_id_may_differ() {
        let cluster = ClusterId([7; 16]);
        let floor = side(&crate::floor::plan(), "f100");
        let mut cairn = side(&ServicePlan { cluster, ..crate::floor::plan() }, "ca13");
        assert_eq!(differences(&floor, (&cairn, cluster)), []);
        assert_eq!(differences(&floor, (&cairn, ClusterId([8; 16]))).len(), 1, "etcd names the cluster");
        cairn.argv.get_mut("etcd").unwrap().push("--more".to_owned());
        cairn.sha256.insert("/bin/kube".to_owned(), "0000".to_owned());
        cairn.sha256.remove("/bin/etcd");
        let found: Vec<String> =
            differences(&floor, (&cairn, cluster)).into_iter().map(|difference| difference.what).collect();
        assert_eq!(found, ["etcd", "/bin/etcd", "/bin/kube"]);
    }
}
