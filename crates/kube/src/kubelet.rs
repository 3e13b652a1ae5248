//! kubelet: the node's agent, on the VPN address, health on loopback.
//! Configuration: KubeletConfiguration v1beta1 of v1.36, as JSON, which is YAML.

use model::NodeName;
use pki::AuthorityKind;
use serde_json::json;

use crate::credential::{Credential, authority_path};
use crate::plan::{LOCAL_API, Plan};
use crate::service::{Limits, Need, PODS, Privileges, Probe, ServiceFile, ServiceSpec, Until, Wanted, loopback, paths};
use crate::{CONTAINERD_SOCKET, POD_CGROUP, containerd, kubeconfig, reserve};

const CONFIG: &str = "/run/cairn/kube/kubelet.json";
const KUBECONFIG: &str = "/run/cairn/kube/kubelet.kubeconfig";
const HEALTH_PORT: u16 = 10248;

pub(crate) fn service(plan: &Plan) -> ServiceSpec {
    let node: &NodeName = &plan.node;
    let mut files = paths(&[Credential::KubeletClient, Credential::KubeletServer], &[AuthorityKind::Kubernetes]);
    files.extend(
        [CONFIG, KUBECONFIG, "/data/kubelet", "/data/kubelet/volume-plugins", "/data/var/log/pods"].map(str::to_owned),
    );
    ServiceSpec {
        name: "kube.kubelet",
        argv: vec![
            plan.program("kubelet"),
            format!("--config={CONFIG}"),
            format!("--kubeconfig={KUBECONFIG}"),
            "--root-dir=/data/kubelet".to_owned(),
            "--cert-dir=/run/cairn/kube/kubelet".to_owned(),
            format!("--hostname-override={node}"),
            format!("--node-ip={}", plan.vpn()),
        ],
        // It runs `mount` and `umount`.
        environment: vec![("PATH", plan.bin.to_owned())],
        files,
        probe: Probe::HttpGet { address: loopback(HEALTH_PORT), path: "/healthz" },
        needs: vec![
            Need {
                service: containerd::NAME,
                until: Until::Ready,
                because: "it exits when containerd's socket is not there; the apiserver it retries by itself",
            },
            Need {
                service: PODS,
                until: Until::Started,
                because: "at the end it is gone before pods are told to end: it would start them again",
            },
        ],
        wanted_by: Wanted::Worker,
        limits: Limits::gib(1, 4096),
        // It mounts, and runs what volumes need.
        privileges: Privileges::MayGrow,
        condition: None,
        record: None,
        data: None,
    }
}

pub(crate) fn files(plan: &Plan) -> Vec<ServiceFile> {
    vec![
        ServiceFile { path: CONFIG, contents: configuration(plan) },
        ServiceFile { path: KUBECONFIG, contents: kubeconfig::of_service(Credential::KubeletClient, LOCAL_API) },
    ]
}

fn configuration(plan: &Plan) -> String {
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
        "systemReserved": { "memory": format!("{}Mi", reserve::MEMORY >> 20), "pid": reserve::PIDS.to_string() },
        "enforceNodeAllocatable": ["pods"],
        "podPidsLimit": reserve::PIDS_OF_A_POD,
        // Every container gets the runtime's filter of system calls unless its pod says otherwise.
        "seccompDefault": true,
        "podLogsDir": "/data/var/log/pods",
        "volumePluginDir": "/data/kubelet/volume-plugins",
        // The host has no resolver to hand to pods.
        "resolvConf": "",
        "clusterDomain": "cluster.local",
        // No iptables in the image.
        "makeIPTablesUtilChains": false,
        // Images come from the image or by import: one that is thrown away cannot be fetched again.
        "imageGCHighThresholdPercent": 100,
        "nodeStatusUpdateFrequency": "4s",
        "rotateCertificates": false,
        "enableProfilingHandler": false,
        "enableDebugFlagsHandler": false,
        // Serves the host's /var/log.
        "enableSystemLogHandler": false,
    });
    format!("{configuration:#}\n")
}
