//! Policies of Kubernetes' network on a coordinator: when they are compiled, and which events tell people what was left out. Every
//! coordinator does this by itself, and comes to the same parts.
//!
//! ```text
//!   a change ─► due, at most one a PAUSE ─► all collections heard? ─► compile ─► parts, events of what is newly left out
//! ```

use std::collections::BTreeSet;
use std::time::Duration;

use kubeapi::{ApiWrite, ObjectMeta, Objects, Resource};
use netpolicy::{
    CompiledPolicies, NetworkPolicy, NodePrefixes, PolicyInputs, PolicyNamespace, PolicyNotice, PolicyPod, compile,
};

use crate::event::ObjectWarning;
use crate::volumes::UpkeepTime;

/// Least time between two compilations: a burst of changes is one, and a change holds within a second.
const PAUSE: Duration = Duration::from_millis(500);
/// Most events of a look: a policy that is wrong in a thousand ways is told of in some.
const MOST_EVENTS: usize = 32;

/// Objects as they are known, and the machines that may run pods.
#[derive(Debug, Clone, Copy)]
pub struct PolicyWorld<'a> {
    /// All pods; none before they are listed.
    pub pods: Option<&'a Objects<PolicyPod>>,
    /// All namespaces; none before they are listed.
    pub namespaces: Option<&'a Objects<PolicyNamespace>>,
    /// All policies; none before they are listed.
    pub policies: Option<&'a Objects<NetworkPolicy>>,
    /// Prefixes of the machines, as the cluster's records have them.
    pub nodes: &'a NodePrefixes,
}

/// Outcome of a compilation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyLook {
    /// Parts of all machines.
    pub policies: CompiledPolicies,
    /// Events of what is left out since the last look.
    pub events: Vec<ApiWrite>,
}

/// Keeper of the times at which policies are compiled.
#[derive(Debug, Default)]
pub struct PolicyKeeper {
    /// Uptime from which on they are to be compiled; none where nothing has changed.
    due: Option<Duration>,
    /// Uptime of the last compilation, and the prefixes that it went by.
    last: Option<(Duration, NodePrefixes)>,
    /// Notices that people were told.
    told: BTreeSet<String>,
}

impl PolicyKeeper {
    /// Notes that an object has changed.
    pub fn changed(&mut self, uptime: Duration) {
        let earliest = self.last.as_ref().map_or(uptime, |(last, _)| uptime.max(*last + PAUSE));
        self.due.get_or_insert(earliest);
    }

    /// Uptime of the next compilation.
    #[must_use]
    pub const fn poll_timeout(&self) -> Option<Duration> {
        self.due
    }

    /// Compiles, where that is due and all is known.
    pub fn due(&mut self, world: PolicyWorld<'_>, now: UpkeepTime) -> Option<PolicyLook> {
        if self.last.as_ref().is_none_or(|(_, nodes)| nodes != world.nodes) {
            self.changed(now.uptime);
        }
        self.due.take_if(|due| *due <= now.uptime)?;
        // What is missing is a change once it is there.
        let (pods, namespaces, policies) = (world.pods?, world.namespaces?, world.policies?);
        let inputs = PolicyInputs {
            pods: pods.values().collect(),
            namespaces: namespaces.values().collect(),
            policies: policies.values().collect(),
        };
        let compiled = compile(&inputs, world.nodes);
        self.last = Some((now.uptime, world.nodes.clone()));
        let before = std::mem::take(&mut self.told);
        let new = compiled.notices.iter().filter(|notice| !before.contains(&notice.to_string())).take(MOST_EVENTS);
        let events = new.map(|notice| event(notice, world, now.unix)).collect();
        self.told = compiled.notices.iter().map(ToString::to_string).collect();
        Some(PolicyLook { policies: compiled, events })
    }
}

/// Warning that `kubectl get events` shows of a pod or policy.
fn event(notice: &PolicyNotice, world: PolicyWorld<'_>, unix: Duration) -> ApiWrite {
    let PolicyNotice { namespace, name, reason } = notice;
    let key = (namespace.clone(), name.clone());
    let (api, kind, meta) = if reason.is_of_pod() {
        ("v1", "Pod", world.pods.and_then(|pods| pods.get(&key)).map(Resource::meta))
    } else {
        let policy = world.policies.and_then(|policies| policies.get(&key));
        ("networking.k8s.io/v1", "NetworkPolicy", policy.map(Resource::meta))
    };
    let uid = meta.map_or("", |ObjectMeta { uid, .. }| uid);
    let message = reason.to_string();
    let warning = ObjectWarning {
        prefix: "cairn-policy",
        words: &format!("{uid}\0{message}"),
        reporter: "cairn.internal/policies",
        kind: (api, kind),
        namespace,
        name,
        uid,
        reason: "NetworkPolicy",
        message: &message,
    };
    warning.write(unix)
}

#[cfg(test)]
mod tests {
    use netpolicy::{KubernetesInventory, PolicyPart};
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn by_name<T: Resource>(all: Vec<T>) -> Objects<T> {
        let key = |it: &T| (it.meta().namespace.clone(), it.meta().name.clone());
        all.into_iter().map(|it| (key(&it), it)).collect()
    }

    #[derive(Debug)]
    struct Heard {
        pods: Objects<PolicyPod>,
        namespaces: Objects<PolicyNamespace>,
        policies: Objects<NetworkPolicy>,
        nodes: NodePrefixes,
    }

    impl Heard {
        /// Collections of one pod at this address, on a machine that has a prefix, and policies of these specs.
        fn of(address: &str, policies: &[Value]) -> Self {
            let list = |items: Vec<Value>| json!({ "items": items }).to_string().into_bytes();
            let pod = json!({ "metadata": { "name": "a", "namespace": "n", "uid": "7" },
                "spec": { "nodeName": "one" }, "status": { "podIP": address } });
            let policy = |(number, spec): (usize, &Value)| json!({ "metadata": { "name": format!("p{number}"), "namespace": "n" }, "spec": spec });
            let policies = list(policies.iter().enumerate().map(policy).collect());
            let namespaces = list(vec![json!({ "metadata": { "name": "n" } })]);
            let all = KubernetesInventory::read(&list(vec![pod]), &namespaces, &policies).expect("lists");
            Self {
                pods: by_name(all.pods),
                namespaces: by_name(all.namespaces),
                policies: by_name(all.policies),
                nodes: [("one".to_owned(), model::pod_prefix(1))].into(),
            }
        }

        fn world(&self) -> PolicyWorld<'_> {
            PolicyWorld {
                pods: Some(&self.pods),
                namespaces: Some(&self.namespaces),
                policies: Some(&self.policies),
                nodes: &self.nodes,
            }
        }
    }

    fn at(millis: u64) -> UpkeepTime {
        UpkeepTime { uptime: Duration::from_millis(millis), unix: Duration::from_secs(1_795_000_000) }
    }

    /// Proves: W2
    #[test]
    fn nothing_is_told_before_all_was_heard() {
        let heard = Heard::of("10.244.1.2", &[]);
        let all = heard.world();
        for partial in [
            PolicyWorld { pods: None, ..all },
            PolicyWorld { namespaces: None, ..all },
            PolicyWorld { policies: None, ..all },
        ] {
            let mut keeper = PolicyKeeper::default();
            keeper.changed(at(0).uptime);
            assert_eq!(keeper.due(partial, at(9_000)), None, "{partial:?}");
            assert_eq!(keeper.poll_timeout(), None, "what is missing is waited for");
            let look = keeper.due(all, at(9_001)).expect("now all is there");
            let open = PolicyPart::read(&look.policies.part("one").bytes).expect("a part");
            assert_eq!(open, PolicyPart::default());
        }
    }

    /// Proves: W2
    #[test]
    fn a_machine_that_comes_or_goes_has_policies_compiled_anew() {
        let (mut heard, mut keeper) = (Heard::of("10.244.1.2", &[json!({})]), PolicyKeeper::default());
        let before = keeper.due(heard.world(), at(0)).expect("for the first time").policies;
        assert_eq!(keeper.due(heard.world(), at(5_000)), None, "nothing has changed");
        heard.nodes.clear();
        let after = keeper.due(heard.world(), at(10_000)).expect("a machine is gone").policies;
        assert_ne!(after.part("one").hash, before.part("one").hash);
    }

    /// Once, whoever else tells it, and again when it comes back.
    ///
    /// Proves: W2
    #[test]
    fn what_is_left_out_is_an_event_of_the_object() {
        let (lies, honest) = (Heard::of("10.244.2.2", &[json!({})]), Heard::of("10.244.1.2", &[json!({})]));
        let mut keeper = PolicyKeeper::default();
        let mut events = |heard: &Heard, millis: u64| {
            keeper.changed(at(millis).uptime);
            keeper.due(heard.world(), at(millis)).expect("it is due").events
        };
        let first = events(&lies, 0);
        let [ApiWrite::Create { path, body }] = &first[..] else { panic!("{first:?}") };
        let event: Value = serde_json::from_str(body).expect("JSON");
        assert_eq!((path.as_str(), &event["involvedObject"]["kind"]), ("/api/v1/namespaces/n/events", &json!("Pod")));
        assert!(
            event["involvedObject"]["uid"] == "7" && event["message"].to_string().contains("10.244.2.2"),
            "{event}"
        );
        assert_eq!((events(&lies, 1_000), events(&honest, 2_000)), (vec![], vec![]));
        assert_eq!(events(&lies, 3_000), first, "the same name, so the server has it once");
    }

    proptest! {
        /// Whenever changes come: no two compilations within a pause, none without a change, each change in one soon.
        ///
        /// Proves: W2
        #[test]
        fn a_burst_of_changes_is_one_compilation(gaps in prop::collection::vec(0_u64..700, 1..40)) {
            let (heard, mut keeper) = (Heard::of("10.244.1.2", &[]), PolicyKeeper::default());
            let pause = u64::try_from(PAUSE.as_millis()).expect("short");
            let mut changes: Vec<u64> = gaps.iter().scan(0, |at, gap| { *at += gap; Some(*at) }).collect();
            let (mut compiled, mut waiting) = (Vec::<u64>::new(), Vec::new());
            changes.reverse();
            for millis in 0..30_000 {
                while changes.last() == Some(&millis) {
                    waiting.extend(changes.pop());
                    keeper.changed(at(millis).uptime);
                }
                if keeper.due(heard.world(), at(millis)).is_some() {
                    prop_assert!(compiled.last().is_none_or(|last| millis >= last + pause));
                    prop_assert!(compiled.is_empty() || !waiting.is_empty(), "nothing had changed");
                    prop_assert!(waiting.drain(..).all(|change| millis <= change + pause));
                    compiled.push(millis);
                }
                prop_assert!(keeper.poll_timeout().is_none_or(|next| next > at(millis).uptime));
            }
            prop_assert!(waiting.is_empty());
        }
    }
}
