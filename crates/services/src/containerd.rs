//! containerd: runc, beside it gVisor where the image has that, one snapshotter (overlayfs), one network, registries as owners say.
//! Configuration: version 3 as v2.4 reads it (cmd/containerd/server/config, internal/cri/config).

pub mod images;
pub mod registries;

use model::Ipv4Prefix;
use serde_json::json;

use crate::kubernetes::sandbox::HANDLER;
use crate::plan::ServicePlan;
use crate::unit::{Limits, ReadinessProbe, ServiceFile, ServicePage, ServicePrivileges, ServiceProgram, Unit};
use crate::{CONTAINERD_DATA, CONTAINERD_SOCKET, SHIM_CGROUP, names};

use images::PAUSE;
use registries::REGISTRIES;

const CONFIG: &str = "/run/cairn/kube/containerd.toml";
const NETWORKS: &str = "/run/cairn/kube/net.d";
const NETWORK: &str = "/run/cairn/kube/net.d/10-pods.conflist";

const METRICS_PORT: u16 = 10254;

/// Where gVisor's shim looks for what it does with all pods, before it knows one: no other path can be named to it.
const SANDBOX: &str = "/run/containerd/runsc/config.toml";

/// Runtime of pods in gVisor, for its shim (pkg/shim/v1/runsc/options.go): one for all containers of a pod. Platform and network are those
/// that runsc has by itself; they are written out, for all that a sandbox keeps apart hangs on them.
const SANDBOX_OPTIONS: &str = r#"grouping = true

[runsc_config]
  platform = "systrap"
  network = "sandbox"
"#;

/// Where the image has the CNI plugins.
const CNI_PLUGINS: &str = "/opt/cni/bin";

/// Largest packet in a pod: WireGuard's over an IPv6 path of 1500 (1500 - 40 - 8 - 32).
const MTU: u16 = 1420;

/// Plugins that are compiled in and not used here: each costs memory, a probe of the kernel at start, or an open door.
const DISABLED: &[&str] = &[
    "io.containerd.snapshotter.v1.blockfile",
    "io.containerd.snapshotter.v1.btrfs",
    "io.containerd.snapshotter.v1.devmapper",
    "io.containerd.snapshotter.v1.erofs",
    "io.containerd.snapshotter.v1.native",
    "io.containerd.snapshotter.v1.zfs",
    "io.containerd.differ.v1.erofs",
    "io.containerd.mount-handler.v1.erofs",
    // Runs what lies in a directory to judge an image.
    "io.containerd.image-verifier.v1.bindir",
    // Lets whoever reaches its socket change containers.
    "io.containerd.nri.v1.nri",
    "io.containerd.internal.v1.tracing",
    "io.containerd.tracing.processor.v1.otlp",
    "io.containerd.ttrpc.v1.otelttrpc",
];

/// Name of the program.
pub(crate) const PROGRAM: &str = "containerd";

pub(crate) fn unit(plan: &ServicePlan) -> Unit {
    let program = ServiceProgram {
        argv: vec![plan.program(PROGRAM), format!("--config={CONFIG}")],
        // It looks for its shim, and the shim for runc, by name.
        environment: vec![("PATH", plan.bin.to_owned())],
        files: files(plan),
        credentials: Vec::new(),
        probe: ReadinessProbe::UnixSocket { path: CONTAINERD_SOCKET },
        metrics: Some(ServicePage::on_loopback(METRICS_PORT, "/v1/metrics")),
        // With the shims of all pods.
        limits: Limits::gib(2, 16 << 10),
        privileges: ServicePrivileges::MayGrow,
        record: None,
        data: None,
    };
    Unit::program(names::CONTAINERD, Vec::new(), program)
}

fn files(plan: &ServicePlan) -> Vec<ServiceFile> {
    let network = plan.assignment.pods().map(|pods| ServiceFile { path: NETWORK, contents: network(pods) });
    let sandbox = plan.has_gvisor.then(|| ServiceFile { path: SANDBOX, contents: SANDBOX_OPTIONS.to_owned() });
    let configuration = ServiceFile { path: CONFIG, contents: configuration(plan.has_gvisor) };
    std::iter::once(configuration).chain(network).chain(sandbox).collect()
}

fn configuration(has_gvisor: bool) -> String {
    let sandbox = if has_gvisor { sandbox_runtime() } else { String::new() };
    let disabled = DISABLED.iter().map(|plugin| format!("  \"{plugin}\",\n")).collect::<String>();
    format!(
        r#"version = 3
root = "{CONTAINERD_DATA}"
state = "/run/containerd"
disabled_plugins = [
{disabled}]

[grpc]
  address = "{CONTAINERD_SOCKET}"

[plugins."io.containerd.cri.v1.images"]
  snapshotter = "overlayfs"
  [plugins."io.containerd.cri.v1.images".pinned_images]
    sandbox = "{PAUSE}"
  [plugins."io.containerd.cri.v1.images".registry]
    config_path = "{REGISTRIES}"

[plugins."io.containerd.cri.v1.runtime"]
  disable_apparmor = true
  enable_criu = false
  netns_mounts_under_state_dir = true
  cdi_spec_dirs = []
  [plugins."io.containerd.cri.v1.runtime".cni]
    bin_dirs = ["{CNI_PLUGINS}"]
    conf_dir = "{NETWORKS}"
    use_internal_loopback = true
  [plugins."io.containerd.cri.v1.runtime".containerd]
    default_runtime_name = "runc"
    [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
        SystemdCgroup = false
        ShimCgroup = "{SHIM_CGROUP}"
{sandbox}
[plugins."io.containerd.server.v1.metrics"]
  address = "127.0.0.1:{METRICS_PORT}"

[plugins."io.containerd.grpc.v1.cri"]
  disable_tcp_service = true
  stream_server_address = "127.0.0.1"
"#
    )
}

/// Runtime of pods in gVisor, for containerd.
fn sandbox_runtime() -> String {
    format!(
        r#"    [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.{HANDLER}]
      runtime_type = "io.containerd.runsc.v1"
      [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.{HANDLER}.options]
        TypeUrl = "io.containerd.runsc.v1.options"
        ConfigPath = "{SANDBOX}"
"#
    )
}

/// Point-to-point links to the pods, addresses from the machine's own prefix, and ports of the machine that a pod asked for. What
/// leaves the cluster is masqueraded by the filter. The loopback link of a pod is containerd's own doing.
fn network(pods: Ipv4Prefix) -> String {
    let list = json!({
        "cniVersion": "1.0.0",
        "name": "pods",
        "plugins": [{
            "type": "ptp",
            "ipMasq": false,
            "mtu": MTU,
            "ipam": {
                "type": "host-local",
                "subnet": pods.to_string(),
                // In memory: addresses of pods that a reboot has ended are free again.
                "dataDir": "/run/cairn/kube/addresses",
                "routes": [{ "dst": "0.0.0.0/0" }],
            },
        }, {
            "type": "portmap",
            "backend": "nftables",
            "capabilities": { "portMappings": true },
        }],
    });
    format!("{list:#}\n")
}
