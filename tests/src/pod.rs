//! The pod that shows that pods run: the small web image which the machine brings along, as nobody in particular.

use serde_json::{Value, json};

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

/// A namespace in which nothing is refused, as an owner may make one: what pods can do at worst is tried there.
#[must_use]
pub fn wild_namespace(name: &str) -> Value {
    let labels = json!({ "pod-security.kubernetes.io/enforce": "privileged" });
    json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name, "labels": labels } })
}

/// Profile of the image that a wild pod runs on, as it is told: the programs that misbehave run in the debug profile
/// only.
#[must_use]
pub fn wild_profile(namespace: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": { "name": "profile", "namespace": namespace },
        "data": { "profile": "debug" },
    })
}

/// A pod that runs the test program `program` of the machine's own `init`, unprivileged but for the sight of that file
/// and of the machine's cgroups. It is not started again.
#[must_use]
pub fn wild_pod(namespace: &str, program: &str) -> Value {
    let path = format!("/bin/test-{program}");
    let mut pod = web_pod(program, false);
    pod["metadata"]["namespace"] = json!(namespace);
    pod["spec"]["restartPolicy"] = json!("Never");
    // Process 1 of a container would take itself for the machine's.
    pod["spec"]["shareProcessNamespace"] = json!(true);
    pod["spec"]["terminationGracePeriodSeconds"] = json!(0);
    pod["spec"]["containers"][0]["command"] = json!([path]);
    pod["spec"]["containers"][0]["volumeMounts"] = json!([
        { "name": "init", "mountPath": path, "readOnly": true },
        { "name": "profile", "mountPath": "/etc/cairn", "readOnly": true },
        { "name": "cgroup", "mountPath": "/host/cgroup", "readOnly": true },
    ]);
    pod["spec"]["volumes"] = json!([
        { "name": "init", "hostPath": { "path": "/bin/init", "type": "File" } },
        { "name": "profile", "configMap": { "name": "profile" } },
        { "name": "cgroup", "hostPath": { "path": "/sys/fs/cgroup", "type": "Directory" } },
    ]);
    pod
}
