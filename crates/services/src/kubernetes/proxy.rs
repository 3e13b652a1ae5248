//! kube-proxy: leads the addresses of services to pods, by nftables. Configuration: KubeProxyConfiguration v1alpha1 of Kubernetes v1.36.
//!
//! NodePorts answer at the machine's VPN address and nowhere else: what comes by an uplink was judged by its first destination
//! before kube-proxy translates it. Its `nft` is a name of PID 1's program.

use serde_json::json;

use crate::credential::{Credential, PROXY_USER};
use crate::kubernetes::{kubeconfig, own_apiserver};
use crate::names;
use crate::plan::{LOCAL_API, ServicePlan};
use crate::unit::{
    Limits, ReadinessProbe, ServiceCapability, ServiceFile, ServicePage, ServicePrivileges, ServiceProgram, Unit,
    loopback,
};

const CONFIG: &str = "/run/cairn/kube/proxy.json";
const KUBECONFIG: &str = "/run/cairn/kube/proxy.kubeconfig";
const HEALTH_PORT: u16 = 10256;
const METRICS_PORT: u16 = 10249;

/// Name of the program.
pub(crate) const PROGRAM: &str = "kube-proxy";

pub(crate) fn unit(plan: &ServicePlan) -> Unit {
    let client = Credential::ProxyClient;
    let program = ServiceProgram {
        argv: vec![plan.program(PROGRAM), format!("--config={CONFIG}")],
        // It runs `nft`.
        environment: vec![("PATH", plan.bin.to_owned())],
        files: vec![
            ServiceFile { path: CONFIG, contents: configuration(plan) },
            ServiceFile { path: KUBECONFIG, contents: kubeconfig::of_service(client, LOCAL_API) },
        ],
        credentials: vec![client],
        probe: ReadinessProbe::Page(ServicePage::on_loopback(HEALTH_PORT, "/livez")),
        metrics: Some(ServicePage::on_loopback(METRICS_PORT, "/metrics")),
        limits: Limits { memory: 256 << 20, pids: 256 },
        privileges: ServicePrivileges::User { user: PROXY_USER, keeps: ServiceCapability::NetAdmin },
        record: None,
        data: None,
    };
    // It ends when nobody tells it what node it is on.
    Unit::program(names::PROXY, own_apiserver(plan).into_iter().collect(), program)
}

fn configuration(plan: &ServicePlan) -> String {
    let configuration = json!({
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "nftables",
        "clientConnection": { "kubeconfig": KUBECONFIG },
        "hostnameOverride": plan.node.as_str(),
        "clusterCIDR": plan.prefixes.pods.to_string(),
        "detectLocalMode": "ClusterCIDR",
        "nodePortAddresses": ["primary"],
        "healthzBindAddress": loopback(HEALTH_PORT).to_string(),
        "metricsBindAddress": loopback(METRICS_PORT).to_string(),
        // It may change no sysctl, nor lower its score.
        "conntrack": { "maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s" },
        "oomScoreAdj": 0,
    });
    format!("{configuration:#}\n")
}
