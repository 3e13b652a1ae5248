//! Drain of a node: its pods are made elsewhere, by the eviction API, which keeps disruption budgets
//! (`pkg/registry/core/pod/storage/eviction.go`). Pure: lists and answers in, what is asked next out.
//!
//! ```text
//!   list ──► pods that nobody makes again, or whose volume stays here? ──► refused, unless forced
//!              └──► cordon ──► evict each ──► list ──► none left: drained
//!                               ▲    └ 429: a budget, asked again 5 s later
//!                               └────────────────────┘ late: those that are left, each with its reason
//! ```
//! Pods of a `DaemonSet` stay, since they would come back; so do mirrors of what the machine itself runs, of which it has none.

use std::collections::BTreeMap;
use std::time::Duration;

use kubeapi::ObjectMeta;
use model::NodeName;
use serde::Deserialize;
use serde_json::json;
use services::node_status::node_path;

use crate::volumes::HeldClaims;

/// Pause between two evictions of one pod; kubectl drain's.
const AGAIN: Duration = Duration::from_secs(5);

/// Pods of a node that is being drained.
#[derive(Debug)]
pub struct Drain {
    node: NodeName,
    ends: Duration,
    /// Evictions that were asked for, by pod.
    asked: BTreeMap<String, Asked>,
}

#[derive(Debug)]
struct Asked {
    at: Duration,
    /// Why it was refused.
    refused: Option<String>,
}

/// Eviction to ask for by POST.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Eviction {
    /// Namespace and name, for people.
    pub pod: String,
    /// Path on the apiserver.
    pub path: String,
    /// The object, JSON.
    pub body: String,
}

/// Pod that is still on the node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodLeft {
    /// Namespace and name.
    pub pod: String,
    /// Why it is there.
    pub why: String,
}

/// Step that a look at a node's pods leads to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DrainStep {
    /// No pod is left that could run elsewhere.
    Drained,
    /// Ask for these evictions, and look again.
    Evict(Vec<Eviction>, Vec<PodLeft>),
    /// Time is over.
    Late(Vec<PodLeft>),
}

/// Why a node is not drained.
#[derive(Debug, thiserror::Error)]
pub enum DrainError {
    /// The list of pods says nothing.
    #[error("read the list of pods")]
    List(#[from] serde_json::Error),
    /// Pods that end for good.
    #[error("nobody makes these pods again: {}", .0.join(", "))]
    Unmanaged(Vec<String>),
    /// Pods that wait until the machine is back.
    #[error("the volumes of these pods are on the machine, without which they cannot run: {}", .0.join(", "))]
    Tied(Vec<String>),
}

#[derive(Deserialize)]
struct Pod {
    metadata: ObjectMeta,
    #[serde(default)]
    spec: PodSpec,
    #[serde(default)]
    status: PodStatus,
}

#[derive(Deserialize, Default)]
struct PodSpec {
    #[serde(default)]
    volumes: Vec<PodVolume>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PodVolume {
    persistent_volume_claim: Option<ClaimSource>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ClaimSource {
    claim_name: String,
}

#[derive(Deserialize, Default)]
struct PodStatus {
    #[serde(default)]
    phase: String,
}

/// Answer to an eviction that was refused (`Status` of `meta/v1`).
#[derive(Deserialize)]
struct Refusal {
    #[serde(default)]
    message: String,
    #[serde(default)]
    details: Details,
}

#[derive(Deserialize, Default)]
struct Details {
    #[serde(default)]
    causes: Vec<Cause>,
}

#[derive(Deserialize)]
struct Cause {
    #[serde(default)]
    message: String,
}

/// Where all pods of a node are listed.
#[must_use]
pub fn pods_path(node: &NodeName) -> String {
    format!("/api/v1/pods?fieldSelector=spec.nodeName%3D{node}")
}

/// Path of a node and the patch by which it takes no new pods, or takes them again.
#[must_use]
pub fn cordon(node: &NodeName, cordoned: bool) -> (String, String) {
    (node_path(node), json!({ "spec": { "unschedulable": cordoned } }).to_string())
}

impl Drain {
    /// Begins with the pods of this list, which may take until `ends`; `held` are claims whose volumes are on machines' own disks.
    ///
    /// # Errors
    /// [`DrainError::Unmanaged`] or [`DrainError::Tied`], unless `force`: the node is to be left as it is.
    pub fn begin(
        node: NodeName,
        list: &[u8],
        held: &HeldClaims,
        force: bool,
        ends: Duration,
    ) -> Result<Self, DrainError> {
        let pods = moving(list)?;
        let called = |which: &dyn Fn(&&Pod) -> bool| pods.iter().filter(which).map(Pod::called).collect::<Vec<_>>();
        let (unmanaged, tied) = (called(&|pod| !pod.comes_back()), called(&|pod| pod.is_tied(held)));
        if !force && !unmanaged.is_empty() {
            return Err(DrainError::Unmanaged(unmanaged));
        }
        if !force && !tied.is_empty() {
            return Err(DrainError::Tied(tied));
        }
        Ok(Self { node, ends, asked: BTreeMap::new() })
    }

    /// Node that is drained.
    #[must_use]
    pub fn node(&self) -> &NodeName {
        &self.node
    }

    /// The next step, by the pods of this list.
    ///
    /// # Errors
    /// [`DrainError::List`].
    pub fn look(&mut self, list: &[u8], now: Duration) -> Result<DrainStep, DrainError> {
        let pods = moving(list)?;
        let left: Vec<_> = pods.iter().map(|pod| PodLeft { pod: pod.called(), why: self.why(pod) }).collect();
        if left.is_empty() {
            return Ok(DrainStep::Drained);
        }
        if now >= self.ends {
            return Ok(DrainStep::Late(left));
        }
        let due = |pod: &&Pod| {
            let asked = self.asked.get(&pod.called());
            !pod.metadata.is_deleted() && asked.is_none_or(|asked| now >= asked.at + AGAIN)
        };
        let evictions: Vec<_> = pods.iter().filter(due).map(Pod::eviction).collect();
        for eviction in &evictions {
            let refused = self.asked.remove(&eviction.pod).and_then(|before| before.refused);
            self.asked.insert(eviction.pod.clone(), Asked { at: now, refused });
        }
        Ok(DrainStep::Evict(evictions, left))
    }

    /// Takes the answer to an eviction.
    pub fn answered(&mut self, pod: &str, status: u16, body: &[u8]) {
        let Some(asked) = self.asked.get_mut(pod) else { return };
        asked.refused = match status {
            // It ends, is gone, or is another one by now.
            200..=299 | 404 | 409 => None,
            _ => {
                let refusal = serde_json::from_slice::<Refusal>(body).ok();
                let cause =
                    refusal.map(|it| it.details.causes.into_iter().next().map_or(it.message, |cause| cause.message));
                Some(cause.unwrap_or_else(|| format!("the Kubernetes API answers {status}")))
            }
        };
    }

    fn why(&self, pod: &Pod) -> String {
        if pod.metadata.is_deleted() {
            return "it ends".to_owned();
        }
        let refused = self.asked.get(&pod.called()).and_then(|asked| asked.refused.clone());
        refused.unwrap_or_else(|| "it is asked to end".to_owned())
    }
}

/// Pods that are to run elsewhere.
fn moving(list: &[u8]) -> Result<Vec<Pod>, DrainError> {
    let pods: Vec<Pod> = kubeapi::listed(list)?;
    Ok(pods.into_iter().filter(|pod| !pod.stays()).collect())
}

impl Pod {
    fn called(&self) -> String {
        format!("{}/{}", self.metadata.namespace, self.metadata.name)
    }

    fn controller(&self) -> Option<&str> {
        self.metadata.owner_references.iter().find(|owner| owner.controller).map(|owner| owner.kind.as_str())
    }

    fn stays(&self) -> bool {
        self.controller() == Some("DaemonSet") || self.metadata.annotations.contains_key("kubernetes.io/config.mirror")
    }

    /// Whether somebody makes it again, or nothing of it is lost.
    fn comes_back(&self) -> bool {
        self.controller().is_some() || self.is_over()
    }

    /// Whether it runs, and cannot elsewhere.
    fn is_tied(&self, held: &HeldClaims) -> bool {
        let claims = self.spec.volumes.iter().filter_map(|volume| volume.persistent_volume_claim.as_ref());
        let mut held = claims
            .map(|claim| (self.metadata.namespace.clone(), claim.claim_name.clone()))
            .filter(|claim| held.contains(claim));
        held.next().is_some() && !self.is_over()
    }

    fn is_over(&self) -> bool {
        matches!(self.status.phase.as_str(), "Succeeded" | "Failed")
    }

    fn eviction(&self) -> Eviction {
        let ObjectMeta { namespace, name, uid, .. } = &self.metadata;
        let body = json!({
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": { "namespace": namespace, "name": name },
            "deleteOptions": { "preconditions": { "uid": uid } },
        });
        let path = format!("/api/v1/namespaces/{namespace}/pods/{name}/eviction");
        Eviction { pod: self.called(), path, body: body.to_string() }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn pod(name: &str, controller: Option<&str>) -> Value {
        let owners = controller.map(|kind| json!([{ "kind": kind, "controller": true }])).unwrap_or(json!([]));
        let metadata =
            json!({ "namespace": "web", "name": name, "uid": format!("uid of {name}"), "ownerReferences": owners });
        json!({ "metadata": metadata, "status": { "phase": "Running" } })
    }

    fn list(pods: &[Value]) -> Vec<u8> {
        json!({ "items": pods }).to_string().into_bytes()
    }

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn begin(pods: &[Value], force: bool) -> Result<Drain, DrainError> {
        let held = [("web".to_owned(), "data".to_owned())].into();
        Drain::begin(NodeName::chosen("m2").expect("a name"), &list(pods), &held, force, seconds(300))
    }

    fn evicted(drain: &mut Drain, pods: &[Value], now: u64) -> (Vec<String>, Vec<String>) {
        match drain.look(&list(pods), seconds(now)).expect("a list") {
            DrainStep::Evict(evictions, left) => {
                (evictions.into_iter().map(|it| it.pod).collect(), left.into_iter().map(|it| it.why).collect())
            }
            other @ (DrainStep::Drained | DrainStep::Late(_)) => panic!("{other:?}"),
        }
    }

    /// Proves: W1
    #[test]
    fn pods_that_nobody_makes_again_end_only_by_force() {
        let mut done = pod("job", None);
        done["status"]["phase"] = json!("Succeeded");
        let pods = [pod("a", Some("ReplicaSet")), pod("b", None), pod("c", Some("DaemonSet")), done];
        let refused = begin(&pods, false).expect_err("b would be gone");
        assert_eq!(refused.to_string(), "nobody makes these pods again: web/b");
        let mut drain = begin(&pods, true).expect("by force");
        assert_eq!(evicted(&mut drain, &pods, 0).0, ["web/a", "web/b", "web/job"], "what a DaemonSet has stays");
        let rests = drain.look(&list(&[pod("c", Some("DaemonSet"))]), seconds(1)).expect("a list");
        assert_eq!(rests, DrainStep::Drained);
    }

    /// Proves: W2
    #[test]
    fn pods_whose_volumes_stay_behind_end_only_by_force() {
        let with = |claim: &str, phase: &str| {
            let mut pod = pod(claim, Some("StatefulSet"));
            pod["spec"] =
                json!({ "volumes": [{ "emptyDir": {} }, { "persistentVolumeClaim": { "claimName": claim } }] });
            pod["status"]["phase"] = json!(phase);
            pod
        };
        let refused = begin(&[with("data", "Running"), with("shared", "Running")], false).expect_err("it would wait");
        assert!(matches!(&refused, DrainError::Tied(pods) if *pods == ["web/data"]), "{refused:?}");
        assert!(begin(&[with("data", "Running")], true).is_ok());
        assert!(begin(&[with("data", "Succeeded"), with("shared", "Running")], false).is_ok());
    }

    /// Proves: W1
    #[test]
    fn a_pod_that_a_budget_keeps_is_asked_again_and_named() {
        let pods = [pod("a", Some("ReplicaSet")), pod("b", Some("StatefulSet"))];
        let mut drain = begin(&pods, false).expect("all come back");
        evicted(&mut drain, &pods, 0);
        let cause =
            json!({ "message": "Cannot evict", "details": { "causes": [{ "message": "budget web needs 2" }] } });
        drain.answered("web/a", 429, cause.to_string().as_bytes());
        drain.answered("web/b", 201, b"");
        let mut ending = pods.clone();
        ending[1]["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        let whys = ["budget web needs 2", "it ends"].map(str::to_owned).to_vec();
        assert_eq!(evicted(&mut drain, &ending, 4), (vec![], whys.clone()), "not so soon");
        assert_eq!(evicted(&mut drain, &ending, 5), (vec!["web/a".to_owned()], whys));
        drain.answered("web/a", 500, b"no JSON");
        let late = drain.look(&list(&ending[..1]), seconds(300)).expect("a list");
        let why = "the Kubernetes API answers 500".to_owned();
        assert_eq!(late, DrainStep::Late(vec![PodLeft { pod: "web/a".to_owned(), why }]));
    }

    #[test]
    fn an_eviction_means_the_pod_that_was_seen() {
        let eviction = moving(&list(&[pod("a", None)])).expect("a list")[0].eviction();
        assert_eq!(eviction.path, "/api/v1/namespaces/web/pods/a/eviction");
        assert!(eviction.body.contains(r#""preconditions":{"uid":"uid of a"}"#), "{}", eviction.body);
        let node = NodeName::chosen("m2").expect("a name");
        assert_eq!(pods_path(&node), "/api/v1/pods?fieldSelector=spec.nodeName%3Dm2");
        let cordoned = cordon(&node, true);
        assert_eq!(cordoned, ("/api/v1/nodes/m2".to_owned(), r#"{"spec":{"unschedulable":true}}"#.to_owned()));
    }
}
