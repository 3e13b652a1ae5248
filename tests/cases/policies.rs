//! Policies of Kubernetes' network: which pods a pod may call, on copies of the machine of `kube.rs`. Each connection that is closed was
//! open before, or is once the policy is gone.

use crate::{Case, Context, web_pod};
use anyhow::{Context as _, ensure};
use qemu::deadline::Stopwatch;
use serde_json::{Value, json};

use super::kube::{Cluster, POD};
use super::pods::{WILD, calling, case};

pub(crate) const CASES: &[Case] = &[
    case("a policy closes pods, and another opens them by label", &["A7", "W2"], by_label),
    case("a policy lets a pod speak to one service, and ask for names", &["A7", "W2"], one_service),
    case("a pod that starts under a policy is never heard before it", &["A7", "W2"], from_the_start),
];

/// Program of a pod that calls places again and again.
const WATCHES: &str = "watches";
const ANSWERS: &str = "answers";
const SILENCE: &str = "no connection: connection timed out";

/// Pods of the namespace where they misbehave are let in, by the label that Kubernetes gives each namespace.
fn by_label(t: &Context) -> anyhow::Result<()> {
    let cluster = Cluster::wild(t)?;
    let web = cluster.web()?;
    cluster.watch(t, &[&web])?;
    cluster.sees(t, &[(&web, ANSWERS)])?;
    cluster.apply(t, &policy("default", "closed", &json!({ "policyTypes": ["Ingress"] })))?;
    cluster.sees(t, &[(&web, SILENCE)])?;
    let wild = json!({ "namespaceSelector": { "matchLabels": { "kubernetes.io/metadata.name": WILD } } });
    let opens = Stopwatch::start();
    cluster.apply(t, &policy("default", "opens", &json!({ "ingress": [{ "from": [wild] }] })))?;
    cluster.sees(t, &[(&web, ANSWERS)])?;
    t.measured(&format!("a policy is seen to let a pod in after {:.1} s", opens.elapsed().as_secs_f64()));
    cluster.kubectl(&["delete", "networkpolicy/opens"])?;
    cluster.sees(t, &[(&web, SILENCE)])?;
    cluster.kubectl(&["delete", "networkpolicy/closed"])?;
    cluster.sees(t, &[(&web, ANSWERS)])
}

/// By the pod and port that the service leads to. Another service leads to another pod.
fn one_service(t: &Context) -> anyhow::Result<()> {
    const SERVICES: [&str; 2] = ["10.96.0.20:80", "10.96.0.21:80"];
    let cluster = Cluster::wild(t)?;
    cluster.apply(t, &web_pod("other", false))?;
    cluster.kubectl(&["wait", "--for=condition=Ready", "pod/other", POD])?;
    for (pod, service) in ["web", "other"].iter().zip(SERVICES) {
        cluster.kubectl(&["label", &format!("pod/{pod}"), &format!("app={pod}")])?;
        cluster.apply(t, &service_of(pod, service)?)?;
    }
    cluster.watch(t, &SERVICES)?;
    cluster.sees(t, &SERVICES.map(|service| (service, ANSWERS)))?;
    let default = json!({ "matchLabels": { "kubernetes.io/metadata.name": "default" } });
    let web = json!({ "namespaceSelector": default, "podSelector": { "matchLabels": { "app": "web" } } });
    let egress = json!([{ "to": [web], "ports": [{ "port": 8080 }] }]);
    cluster.apply(t, &policy(WILD, "one", &json!({ "policyTypes": ["Egress"], "egress": egress })))?;
    cluster.sees(t, &[(SERVICES[1], SILENCE)])?;
    cluster.sees(t, &[(SERVICES[0], ANSWERS), (SERVICES[1], SILENCE)])?;
    cluster.hears(t, &[("kubernetes.default.svc.cluster.local", "10.96.0.1")])
}

/// Calls begin with the pod's first moment, before anybody can have told its machine of it.
fn from_the_start(t: &Context) -> anyhow::Result<()> {
    let cluster = Cluster::wild(t)?;
    let web = cluster.web()?;
    cluster.apply(t, &policy(WILD, "mute", &json!({ "policyTypes": ["Egress"] })))?;
    let said = cluster.called_by(t, "calls", &[&*web; 3].join(" "), |_| ())?;
    ensure!(said == format!("{web}: {SILENCE}\n").repeat(3), "{said}");
    cluster.kubectl(&["delete", "networkpolicy/mute", "--namespace", WILD])?;
    let said = cluster.called_by(t, "reaches", &web, |_| ())?;
    ensure!(said == format!("{web}: {ANSWERS}\n"), "{said}");
    Ok(())
}

/// Policy for all pods of a namespace.
pub(crate) fn policy(namespace: &str, name: &str, spec: &Value) -> Value {
    let mut policy = json!({
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": { "name": name, "namespace": namespace },
        "spec": spec,
    });
    policy["spec"]["podSelector"] = json!({});
    policy
}

fn service_of(pod: &str, at: &str) -> anyhow::Result<Value> {
    let (address, _) = at.split_once(':').context("an address with a port")?;
    Ok(json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": { "name": pod },
        "spec": { "clusterIP": address, "selector": { "app": pod }, "ports": [{ "port": 80, "targetPort": 8080 }] },
    }))
}

impl Cluster {
    /// Where the web pod listens.
    fn web(&self) -> anyhow::Result<String> {
        let pod = &self.get("pod/web")?["status"]["podIP"];
        Ok(format!("{}:8080", pod.as_str().context("the pod is somewhere")?))
    }

    /// A pod begins to call these places in turn, again and again.
    fn watch(&self, t: &Context, places: &[&str]) -> anyhow::Result<()> {
        self.apply(t, &calling(WATCHES, &places.join(" ")))?;
        let begun = self.vm.until(t.within(60), || self.has_phase(WATCHES, "Running"));
        begun.with_context(|| format!("{:?}", self.said_by(WATCHES)))
    }

    /// Waits until this is what that pod says last of each place, in lines that it has not said before.
    fn sees(&self, t: &Context, expected: &[(&str, &str)]) -> anyhow::Result<()> {
        let before = self.said_by(WATCHES)?.len();
        let comes = |said: &str| {
            let is_last = |(place, outcome): &(&str, &str)| {
                let last = said.lines().rev().find_map(|line| line.strip_prefix(place)?.strip_prefix(": "));
                last == Some(outcome)
            };
            expected.iter().all(is_last)
        };
        let seen = self.vm.until(t.within(30), || comes(self.said_by(WATCHES).ok()?.get(before..)?).then_some(()));
        seen.with_context(|| format!("{expected:?}: {:?}", self.said_by(WATCHES)))
    }
}
