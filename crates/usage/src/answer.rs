//! Documents that the API answers with (`metrics.k8s.io/v1beta1`: `NodeMetrics`, `PodMetrics`, their lists; `Status` of `meta/v1`).

use std::time::Duration;

use kubeapi::{Objects, Resource, rfc3339};
use serde_json::{Value, json};

use crate::summary::UsedResources;
use crate::{GROUP_VERSION, Summaries, UsageObject, UsageQuestion};

/// Time over which a kubelet counts, as clients are told.
const WINDOW: &str = "10s";
/// Bytes of a KiB, in which memory is told.
const KIB: u64 = 1 << 10;

/// Answer to a question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UsageAnswer {
    /// HTTP status.
    pub status: u16,
    /// JSON document.
    pub body: String,
}

/// Answer over the objects that the apiserver selected, and what their nodes' kubelets said at `at` since 1970.
#[must_use]
pub fn answer(
    question: &UsageQuestion,
    selected: &Objects<UsageObject>,
    summaries: &Summaries,
    at: Duration,
) -> UsageAnswer {
    let at = rfc3339(at);
    let described = |object: &UsageObject, more: (&str, Value)| {
        let meta = object.meta();
        let mut metadata = json!({ "name": meta.name, "labels": meta.labels, "creationTimestamp": at });
        if !meta.namespace.is_empty() {
            metadata["namespace"] = meta.namespace.as_str().into();
        }
        json!({ "metadata": metadata, "timestamp": at, "window": WINDOW, more.0: more.1 })
    };
    let (kind, selection, items): (_, _, Vec<_>) = match question {
        UsageQuestion::Resources => {
            let resource = |name: &str, kind: &str, namespaced: bool| json!({ "name": name, "singularName": "", "namespaced": namespaced, "kind": kind, "verbs": ["get", "list"] });
            let both = [resource("nodes", "NodeMetrics", false), resource("pods", "PodMetrics", true)];
            return resources(GROUP_VERSION, &both);
        }
        UsageQuestion::Nodes(selection) => {
            let items = selected.values().filter_map(|node| {
                let used = summaries.node(&node.meta().name)?;
                Some(described(node, ("usage", usage(used))))
            });
            ("NodeMetrics", selection, items.collect())
        }
        UsageQuestion::Pods(selection) => {
            let items = selected.values().filter_map(|pod| {
                let containers = summaries.pod(&pod.meta().uid)?.iter();
                let containers = containers.map(|(name, used)| json!({ "name": name, "usage": usage(*used) }));
                Some(described(pod, ("containers", containers.collect())))
            });
            ("PodMetrics", selection, items.collect())
        }
    };
    match (&selection.one, items.into_iter()) {
        (None, items) => found(&json!({
            "kind": format!("{kind}List"),
            "apiVersion": GROUP_VERSION,
            "metadata": {},
            "items": items.collect::<Vec<_>>(),
        })),
        (Some(name), mut items) => match items.next() {
            Some(mut item) => {
                item["kind"] = kind.into();
                item["apiVersion"] = GROUP_VERSION.into();
                found(&item)
            }
            None => refusal(
                404,
                &format!("nothing is known of what `{name}` uses; a pod is counted some seconds after it began"),
            ),
        },
    }
}

/// Answer that says why there is none.
#[must_use]
pub fn refusal(status: u16, message: &str) -> UsageAnswer {
    let reason = match status {
        400 => "BadRequest",
        404 => "NotFound",
        405 => "MethodNotAllowed",
        _ => "ServiceUnavailable",
    };
    let body = json!({
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": reason,
        "code": status,
    });
    UsageAnswer { status, body: body.to_string() }
}

fn found(document: &Value) -> UsageAnswer {
    UsageAnswer { status: 200, body: document.to_string() }
}

fn usage(used: UsedResources) -> Value {
    json!({ "cpu": format!("{}n", used.nanocores), "memory": format!("{}Ki", used.working_set / KIB) })
}

/// Resources that a group of APIs has in a version.
#[must_use]
pub fn resources(group_version: &str, resources: &[Value]) -> UsageAnswer {
    found(
        &json!({ "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version, "resources": resources }),
    )
}

#[cfg(test)]
mod tests {
    use model::NodeName;
    use proptest::prelude::*;

    use super::*;
    use crate::NodeSummary;
    use crate::summary::tests::{container, stats, summary};

    const AT: Duration = Duration::from_secs(1_795_953_600);

    fn selected(objects: &[Value]) -> Objects<UsageObject> {
        let object = |metadata: &Value| {
            let object: UsageObject = serde_json::from_value(json!({ "metadata": metadata })).expect("an object");
            ((object.meta().namespace.clone(), object.meta().name.clone()), object)
        };
        objects.iter().map(object).collect()
    }

    fn summaries(name: &str, body: &[u8]) -> Summaries {
        let name = NodeName::stored(name).expect("a name");
        Summaries::of([(name, NodeSummary::read(body).expect("a summary"))])
    }

    fn asked(path: &str, objects: &Objects<UsageObject>, summaries: &Summaries) -> (u16, Value) {
        let question = UsageQuestion::of(&format!("/apis/{GROUP_VERSION}{path}"), "").expect("a question");
        let UsageAnswer { status, body } = answer(&question, objects, summaries, AT);
        (status, serde_json::from_str(&body).expect("JSON"))
    }

    /// Proves: Q3
    #[test]
    fn nodes_and_pods_are_told_as_clients_read_them() {
        let pods = [("u1", vec![container("a", stats(1_500_000, 3 << 20)), container("b", stats(2, 1023))])];
        let said = summaries("m1", &summary(&stats(250_000_000, 1 << 30), &pods));
        let nodes = selected(&[json!({ "name": "m1", "labels": { "zone": "a" } }), json!({ "name": "m2" })]);
        let time = "2026-11-29T12:00:00Z";
        let node = json!({
            "metadata": { "name": "m1", "labels": { "zone": "a" }, "creationTimestamp": time },
            "timestamp": time,
            "window": "10s",
            "usage": { "cpu": "250000000n", "memory": "1048576Ki" },
        });
        let list = |kind: &str, items: Value| json!({ "kind": kind, "apiVersion": "metrics.k8s.io/v1beta1", "metadata": {}, "items": items });
        assert_eq!(asked("/nodes", &nodes, &said), (200, list("NodeMetricsList", json!([node]))), "m2 does not answer");
        let pods = selected(&[
            json!({ "name": "web", "namespace": "shop", "uid": "u1" }),
            json!({ "name": "web", "namespace": "other", "uid": "u2" }),
        ]);
        let pod = json!({
            "metadata": { "name": "web", "namespace": "shop", "labels": {}, "creationTimestamp": time },
            "timestamp": time,
            "window": "10s",
            "containers": [
                { "name": "a", "usage": { "cpu": "1500000n", "memory": "3072Ki" } },
                { "name": "b", "usage": { "cpu": "2n", "memory": "0Ki" } },
            ],
        });
        assert_eq!(asked("/pods", &pods, &said), (200, list("PodMetricsList", json!([pod]))), "by uid, not by name");
        let one = asked("/namespaces/shop/pods/web", &pods, &said);
        assert_eq!((one.0, &one.1["kind"], &one.1["metadata"]), (200, &json!("PodMetrics"), &pod["metadata"]));
        let none = asked("/nodes/m2", &selected(&[]), &said);
        assert_eq!((none.0, &none.1["reason"]), (404, &json!("NotFound")));
        let resources = asked("", &selected(&[]), &said).1;
        assert_eq!([&resources["resources"][0]["name"], &resources["resources"][1]["name"]], ["nodes", "pods"]);
    }

    proptest! {
        /// Names and numbers of a kubelet are told as they are, and the answer is a document. Proves: Q3
        #[test]
        fn what_a_kubelet_says_is_told_as_text(name in "\\PC*", nanocores: u64, working_set: u64) {
            let pods = [("u1", vec![container(&name, stats(nanocores, working_set))])];
            let said = summaries("m1", &summary(&stats(nanocores, working_set), &pods));
            let pods = selected(&[json!({ "name": "web", "namespace": "shop", "uid": "u1" })]);
            let (status, told) = asked("/pods", &pods, &said);
            prop_assert_eq!(status, 200);
            prop_assert_eq!(&told["items"][0]["containers"][0]["name"], &json!(name));
        }
    }
}
