//! kubelet: the node's agent, on the VPN address, health on loopback.
//! Configuration: KubeletConfiguration v1beta1 of v1.36, as JSON, which is YAML.

use model::NodeName;
use pki::AuthorityKind;
use serde_json::json;
use supervise::Need;

use crate::credential::{Credential, authority_path};
use crate::kubernetes::{kubeconfig, node_status, reserve};
use crate::plan::{LOCAL_API, ServicePlan};
use crate::unit::{Limits, ReadinessProbe, ServiceFile, ServicePage, ServicePrivileges, ServiceProgram, Unit};
use crate::{CONTAINERD_SOCKET, POD_CGROUP, names};

const CONFIG: &str = "/run/cairn/kube/kubelet.json";
const KUBECONFIG: &str = "/run/cairn/kube/kubelet.kubeconfig";
const HEALTH_PORT: u16 = 10248;

/// Name of the program.
pub(crate) const PROGRAM: &str = "kubelet";

pub(crate) fn unit(plan: &ServicePlan) -> Unit {
    let node: &NodeName = &plan.node;
    let program = ServiceProgram {
        argv: vec![
            plan.program(PROGRAM),
            format!("--config={CONFIG}"),
            format!("--kubeconfig={KUBECONFIG}"),
            "--root-dir=/data/kubelet".to_owned(),
            "--cert-dir=/run/cairn/kube/kubelet".to_owned(),
            format!("--hostname-override={node}"),
            format!("--node-ip={}", plan.vpn()),
            format!("--node-labels={}={}", node_status::MACHINE_LABEL, plan.machine),
        ],
        // It runs `mount` and `umount`.
        environment: vec![("PATH", plan.bin.to_owned())],
        files: files(plan),
        credentials: vec![Credential::KubeletClient, Credential::KubeletServer],
        probe: ReadinessProbe::Page(ServicePage::on_loopback(HEALTH_PORT, "/healthz")),
        // The apiserver asks it for those who may.
        metrics: None,
        limits: Limits::gib(1, 4096),
        // It mounts, and runs what volumes need.
        privileges: ServicePrivileges::MayGrow,
        record: None,
        data: None,
    };
    let needs = vec![
        // It exits when containerd's socket is not there; the apiserver it retries by itself.
        Need::ready(names::CONTAINERD),
        // At the end it is gone before pods are told to end: it would start them again.
        Need::started(names::PODS),
    ];
    Unit::program(names::KUBELET, needs, program)
}

fn files(plan: &ServicePlan) -> Vec<ServiceFile> {
    vec![
        ServiceFile { path: CONFIG, contents: configuration(plan) },
        ServiceFile { path: KUBECONFIG, contents: kubeconfig::of_service(Credential::KubeletClient, LOCAL_API) },
    ]
}

fn configuration(plan: &ServicePlan) -> String {
    let server = Credential::KubeletServer;
    let configuration = json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": plan.vpn().to_string(),
        "healthzBindAddress": "127.0.0.1",
        "healthzPort": HEALTH_PORT,
        "readOnlyPort": 0,
        "tlsCertFile": server.certificate_path(),
        "tlsPrivateKeyFile": server.key_path(),
        "tlsMinVersion": "VersionTLS13",
        "authentication": {
            "anonymous": { "enabled": false },
            "webhook": { "enabled": true },
            "x509": { "clientCAFile": authority_path(AuthorityKind::Kubernetes) },
        },
        "authorization": { "mode": "Webhook" },
        "containerRuntimeEndpoint": format!("unix://{CONTAINERD_SOCKET}"),
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": POD_CGROUP,
        "failSwapOn": false,
        // What pods may take of the machine: kubelet sets it on the cgroup of all of them.
        "systemReserved": { "memory": format!("{}Mi", reserve::memory(plan) >> 20), "pid": reserve::PIDS.to_string() },
        "enforceNodeAllocatable": ["pods"],
        "podPidsLimit": reserve::PIDS_OF_A_POD,
        // Every container gets the runtime's filter of system calls unless its pod says otherwise.
        "seccompDefault": true,
        "podLogsDir": "/data/var/log/pods",
        "volumePluginDir": "/data/kubelet/volume-plugins",
        // For pods that ask for the machine's own resolvers.
        "resolvConf": "/etc/resolv.conf",
        "clusterDomain": "cluster.local",
        "clusterDNS": [plan.prefixes.dns_service().to_string()],
        // Whoever lost the role and has it again has other addresses, and registers anew: its node was deleted.
        "podCIDR": plan.assignment.pods().map(|pods| pods.to_string()),
        // No iptables in the image.
        "makeIPTablesUtilChains": false,
        // Of what was pulled: the images of the root and imported ones are pinned, since nobody could fetch them again.
        "imageGCHighThresholdPercent": 85,
        "imageGCLowThresholdPercent": 80,
        // Neither how often it looks at its node nor how often it tells: one that is named is both, and each tale is a write that all
        // who watch nodes are told of. Unnamed it looks each 10 s, and tells what has changed, or all each 5 min; the lease says that
        // it lives.
        // Renewed four times in that (kubelet, `renewIntervalFraction`).
        "nodeLeaseDurationSeconds": 20,
        "rotateCertificates": false,
        "enableProfilingHandler": false,
        "enableDebugFlagsHandler": false,
        // Serves the host's /var/log.
        "enableSystemLogHandler": false,
    });
    format!("{configuration:#}\n")
}
