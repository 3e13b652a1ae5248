//! Kubernetes on one machine: the node, a pod of the image's own, what is refused. All cases
//! share one machine, for it takes minutes to come up.

use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context as _, ensure};
use qemu::Vm;
use serde_json::Value;
use tests::{Case, Context, Need, Owner, Refused};

pub(crate) const CASES: &[Case] = &[
    case("a node is ready and runs a pod of the image", &["W1", "W5"], ready),
    case("a privileged pod is refused", &["W7"], privileged),
];

/// What `kubectl get nodes` has to show: the version of `components/kube`.
const VERSION: &str = "v1.36.3";
/// Of the pods, as `kubectl --timeout` reads it; on a host that emulates, images and probes take their time.
const POD: &str = "--timeout=300s";
const NAME: &str = "kube";

const fn case(name: &'static str, proves: &'static [&'static str], run: fn(&Context) -> anyhow::Result<()>) -> Case {
    Case { name, proves, needs: &[Need::Swtpm], run }
}

/// The machine, with its web pod.
#[derive(Debug)]
struct Cluster {
    vm: Vm,
    owner: Owner,
}

fn shared(t: &Context) -> anyhow::Result<Arc<Mutex<Cluster>>> {
    t.shared("kubernetes", |t| {
        let owner = t.owner()?;
        let config = owner.config(NAME, &["--level", "encrypted"])?;
        let mut vm = t.machine("m").memory_mib(3072).disk_gib(8).tpm().config(&config)?.start()?;
        owner.status_when_running(NAME, &mut vm, t.within(30))?;
        let cluster = Cluster { vm, owner };
        cluster.wait_node()?;
        // Pods are refused until the controller-manager has made their namespace's account.
        cluster.kubectl(&["wait", "--for=create", "serviceaccount/default", POD])?;
        let pod = t.dir().join("web.json");
        std::fs::write(&pod, web("web", false).to_string()).context("write the pod")?;
        cluster.kubectl(&["apply", "--filename", &pod.to_string_lossy()])?;
        Ok(cluster)
    })
}

fn ready(t: &Context) -> anyhow::Result<()> {
    let shared = shared(t)?;
    let cluster = shared.lock().unwrap_or_else(PoisonError::into_inner);
    cluster.wait_pod()?;
    let status = cluster.ask(&["machine", "status"])?;
    let nodes = cluster.get("nodes")?;
    let node = &nodes["items"][0];
    ensure!(nodes["items"].as_array().map(Vec::len) == Some(1), "{nodes:#}");
    ensure!(node["metadata"]["name"] == status["name"], "{node:#}");
    let info = &node["status"]["nodeInfo"];
    ensure!(info["kubeletVersion"] == VERSION, "{info:#}");
    ensure!(info["bootID"] == status["boot_id"], "the node's state is of another boot: {info:#}");
    let image = &cluster.get("pod/web")?["status"]["containerStatuses"][0]["image"];
    ensure!(image == "cairn.local/web:1", "{image}");
    Ok(())
}

fn privileged(t: &Context) -> anyhow::Result<()> {
    let shared = shared(t)?;
    let cluster = shared.lock().unwrap_or_else(PoisonError::into_inner);
    let pod = t.dir().join("privileged.json");
    std::fs::create_dir_all(t.dir()).and_then(|()| std::fs::write(&pod, web("root", true).to_string()))?;
    let refused = cluster.kubectl(&["apply", "--filename", &pod.to_string_lossy()]);
    let refused = refused.err().context("a privileged pod was taken")?;
    ensure!(refused.text.contains("violates PodSecurity") && refused.text.contains("privileged"), "{refused}");
    ensure!(cluster.get("pods")?["items"].as_array().map(Vec::len) == Some(1), "nothing was made");
    Ok(())
}

impl Cluster {
    fn ask(&self, command: &[&str]) -> anyhow::Result<Value> {
        Ok(self.owner.ask(NAME, &self.vm, command)?)
    }

    fn wait_node(&self) -> anyhow::Result<()> {
        self.run(&["condition", "wait", "NodeReady", "--timeout", "10m"])?;
        Ok(())
    }

    fn wait_pod(&self) -> anyhow::Result<()> {
        self.kubectl(&["wait", "--for=condition=Ready", "pod/web", POD])?;
        Ok(())
    }

    fn get(&self, what: &str) -> anyhow::Result<Value> {
        serde_json::from_str(&self.kubectl(&["get", what, "--output", "json"])?).context("read what kubectl says")
    }

    /// Through the tunnel of the machine's public API.
    fn kubectl(&self, arguments: &[&str]) -> Result<String, Refused> {
        self.run(&[&["kubectl", "--"], arguments].concat())
    }

    fn run(&self, command: &[&str]) -> Result<String, Refused> {
        let address = self.vm.forward(model::PUBLIC_API_PORT).map(|address| address.to_string()).unwrap_or_default();
        self.owner.run(&[&["-c", NAME, "--address", &address], command].concat())
    }
}

/// A pod of the image's web server.
fn web(name: &str, privileged: bool) -> Value {
    let security = if privileged {
        serde_json::json!({ "privileged": true })
    } else {
        serde_json::json!({ "allowPrivilegeEscalation": false, "runAsNonRoot": true, "runAsUser": 65534 })
    };
    serde_json::json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": { "name": name },
        "spec": {
            // The server asks Kubernetes for nothing.
            "automountServiceAccountToken": false,
            "terminationGracePeriodSeconds": 5,
            "containers": [{
                "name": "web",
                "image": "cairn.local/web:1",
                "imagePullPolicy": "Never",
                "securityContext": security,
            }],
        },
    })
}
