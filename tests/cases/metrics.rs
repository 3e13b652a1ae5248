//! Usage of nodes and pods as people and autoscalers are told of it, and pages of OpenMetrics, on copies of the machine of `kube.rs`.

use crate::{Case, Context, web_pod};
use anyhow::{Context as _, ensure};
use serde_json::{Value, json};
use testkit::openmetrics;

use super::kube::Cluster;
use super::pods;

pub(crate) const CASES: &[Case] = &[
    pods::case("an autoscaler adds a pod by what the first uses", &["Q3"], autoscaled),
    pods::case("usage of what a selector names is told, and of no other", &["Q3"], selected),
    pods::case("pages of a machine and its services are strict", &["Q1", "Q3"], read),
    pods::case("a pod reads a machine's page once it is let", &["Q1", "Q3"], scraped),
];

/// A kibibyte for each pod: any uses more.
fn autoscaled(t: &Context) -> anyhow::Result<()> {
    let cluster = Cluster::copy(t)?;
    cluster.apply(t, &deployment())?;
    cluster.apply(t, &autoscaler())?;
    let deadline = t.within(60);
    while cluster.get("hpa/grows")?["status"]["desiredReplicas"] != 2 {
        ensure!(deadline.left().is_some(), "{:#}", cluster.get("hpa/grows")?);
    }
    let used = &cluster.get("hpa/grows")?["status"]["currentMetrics"][0]["resource"]["current"]["averageValue"];
    ensure!(used.as_str().is_some_and(|used| used != "0"), "it grew by nothing that a pod uses: {used}");
    Ok(())
}

fn selected(t: &Context) -> anyhow::Result<()> {
    let cluster = Cluster::copy(t)?;
    let told = |what: &[&str]| cluster.kubectl(&[&["top"], what, &["--no-headers"]].concat());
    let node = cluster.status()?.name;
    for (what, name) in [(&["pods", "--namespace=default"][..], "web"), (&["nodes"], &node)] {
        let deadline = t.within(60);
        let first = |said: String| said.split(' ').next().map(str::to_owned);
        while told(what).ok().and_then(first).as_deref() != Some(name) {
            ensure!(deadline.left().is_some(), "{:?} of {what:?}", told(what));
        }
    }
    let none = told(&["pods", "--all-namespaces", "--selector=app=nothing"])?;
    ensure!(none.is_empty(), "{none}");
    // As a program asks that does not look at it first, as kubectl does.
    let wrong = cluster.kubectl(&["get", "--raw", "/apis/metrics.k8s.io/v1beta1/pods?labelSelector=app%20in"]).err();
    ensure!(wrong.as_ref().is_some_and(|refused| refused.text.contains("takes no such selector")), "{wrong:?}");
    Ok(())
}

/// Services with a page, and a number that each alone counts; the machine's own page has no service.
const COUNTED: [(&str, &str); 6] = [
    ("", UPTIME),
    ("etcd", "etcd_server_has_leader"),
    ("containerd", "containerd_build_info_total"),
    ("kube.controllers", "workqueue_adds_total"),
    ("kube.dns", "coredns_build_info"),
    ("kube.proxy", "kubeproxy_sync_proxy_rules_last_timestamp_seconds"),
];
const UPTIME: &str = "cairn_uptime_seconds";

/// A page is one by the standard, and has counted something of this name.
fn counts(page: &str, name: &str) -> anyhow::Result<()> {
    let page = openmetrics::read(page).map_err(|rule| anyhow::anyhow!("{rule}"))?;
    ensure!(page.values(name, &[]).any(|value| value > 0.0), "{name} is not counted");
    Ok(())
}

/// Where Kubernetes has the pages of a copy's only machine.
fn pages_of(cluster: &Cluster) -> anyhow::Result<String> {
    Ok(format!("/apis/metrics.cairn.internal/v1/machines/{}", cluster.status()?.name))
}

fn read(t: &Context) -> anyhow::Result<()> {
    let cluster = Cluster::copy(t)?;
    let pages = pages_of(&cluster)?;
    for (service, number) in COUNTED {
        let words: &[&str] = if service.is_empty() { &[] } else { &[service] };
        let told = cluster.run(&[&["machine", "metrics"], words].concat())?;
        counts(&told, number).with_context(|| format!("{service}, for its owner"))?;
        let path = [&[pages.as_str()][..], words].concat().join("/");
        let told = cluster.kubectl(&["get", "--raw", &path])?;
        counts(&told, number).with_context(|| format!("{service}, in Kubernetes"))?;
    }
    let none = cluster.kubectl(&["get", "--raw", &format!("{pages}/kube.kubelet")]).err();
    ensure!(none.as_ref().is_some_and(|refused| refused.text.contains("has no page here")), "{none:?}");
    Ok(())
}

fn scraped(t: &Context) -> anyhow::Result<()> {
    let cluster = Cluster::copy(t)?;
    let pages = pages_of(&cluster)?;
    let as_pod = || cluster.kubectl(&["get", "--raw", &pages, "--as", "system:serviceaccount:default:default"]);
    let refused = as_pod().err().context("a pod's account reads pages")?;
    ensure!(refused.text.contains("Forbidden") || refused.text.contains("forbidden"), "{refused}");
    let account = "--serviceaccount=default:default";
    cluster.kubectl(&["create", "clusterrolebinding", "scrapes", "--clusterrole=cairn:machine-metrics", account])?;
    counts(&as_pod()?, UPTIME)
}

fn deployment() -> Value {
    let labels = json!({ "app": "grows" });
    let spec = web_pod("grows", false)["spec"].take();
    json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": { "name": "grows" },
        "spec": {
            "selector": { "matchLabels": labels },
            "template": { "metadata": { "labels": labels }, "spec": spec },
        },
    })
}

fn autoscaler() -> Value {
    let memory = json!({ "name": "memory", "target": { "type": "AverageValue", "averageValue": "1Ki" } });
    json!({
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": { "name": "grows" },
        "spec": {
            "scaleTargetRef": { "apiVersion": "apps/v1", "kind": "Deployment", "name": "grows" },
            "maxReplicas": 2,
            "metrics": [{ "type": "Resource", "resource": memory }],
        },
    })
}
