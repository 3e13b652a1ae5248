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
