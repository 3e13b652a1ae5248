//! The pod that shows that pods run: the small web image which the machine brings along, as nobody in particular.

use std::fs;

use anyhow::Context as _;
use serde_json::{Value, json};

use crate::Context;

/// Writes an object where `kubectl --filename` reads it, and a case's next object, too; path of the file.
///
/// # Errors
/// When it cannot be written.
pub fn object_file(t: &Context, object: &Value) -> anyhow::Result<String> {
    let file = t.dir().join("object.json");
    fs::create_dir_all(t.dir()).and_then(|()| fs::write(&file, object.to_string())).context("write an object")?;
    Ok(file.to_string_lossy().into_owned())
}

/// Where the apiserver has what the web server of a pod answers for a path: with `--files` a file as a process in the pod reads it.
#[must_use]
pub fn page_of(pod: &str, path: &str) -> String {
    format!("/api/v1/namespaces/default/pods/{pod}:8080/proxy{path}")
}

/// A pod of the image's web server, for the namespace `default`. A privileged one is there to be refused.
#[must_use]
pub fn web_pod(name: &str, privileged: bool) -> Value {
    let security = if privileged {
        json!({ "privileged": true })
    } else {
        json!({
            "allowPrivilegeEscalation": false,
            "capabilities": { "drop": ["ALL"] },
            "runAsNonRoot": true,
            "runAsUser": 65534,
        })
    };
    json!({
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
                // Cases look into it.
                "args": ["--files"],
                "ports": [{ "containerPort": 8080 }],
                "securityContext": security,
            }],
        },
    })
}

/// An endpoint that somebody wrote by hand for the service of this name.
#[must_use]
pub fn endpoint_by_hand(service: &str, address: &str, port: u16) -> Value {
    json!({
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": { "name": format!("{service}-1"), "labels": { "kubernetes.io/service-name": service } },
        "addressType": "IPv4",
        "endpoints": [{ "addresses": [address] }],
        "ports": [{ "name": "", "port": port, "protocol": "TCP" }],
    })
}

/// A namespace in which nothing is refused, as an owner may make one: what pods can do at worst is tried there.
#[must_use]
pub fn wild_namespace(name: &str) -> Value {
    let labels = json!({ "pod-security.kubernetes.io/enforce": "privileged" });
    json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name, "labels": labels } })
}

/// A pod that runs a program of the guest, which a debug image has, unprivileged but for the sight of that file and of the
/// machine's cgroups. It is not started again.
#[must_use]
pub fn wild_pod(namespace: &str, program: &str) -> Value {
    const GUEST: &str = "/bin/guest";
    let mut pod = web_pod(program, false);
    pod["metadata"]["namespace"] = json!(namespace);
    pod["spec"]["restartPolicy"] = json!("Never");
    pod["spec"]["terminationGracePeriodSeconds"] = json!(0);
    // Process 1 is the pause program, which takes away whatever a bomb leaves.
    pod["spec"]["shareProcessNamespace"] = json!(true);
    pod["spec"]["containers"][0]["command"] = json!([GUEST]);
    pod["spec"]["containers"][0]["args"] = json!([program]);
    pod["spec"]["containers"][0]["volumeMounts"] = json!([
        { "name": "guest", "mountPath": GUEST, "readOnly": true },
        { "name": "cgroup", "mountPath": "/host/cgroup", "readOnly": true },
    ]);
    pod["spec"]["volumes"] = json!([
        { "name": "guest", "hostPath": { "path": GUEST, "type": "File" } },
        { "name": "cgroup", "hostPath": { "path": "/sys/fs/cgroup", "type": "Directory" } },
    ]);
    pod
}
