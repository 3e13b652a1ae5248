//! Events of Kubernetes by which people are warned.

use std::time::Duration;

use keys::derive::sha256;
use kubeapi::{ApiWrite, rfc3339};
use serde_json::json;

/// Warning that `kubectl describe` shows of an object. Its name follows from its words, so the same warning is told once in its hour,
/// whoever else tells it.
pub(crate) struct ObjectWarning<'a> {
    /// Beginning of the event's name.
    pub(crate) prefix: &'a str,
    /// Words, with the object's uid, that tell this warning from others.
    pub(crate) words: &'a str,
    pub(crate) reporter: &'a str,
    /// Version of the object's API, and kind of the object.
    pub(crate) kind: (&'a str, &'a str),
    pub(crate) namespace: &'a str,
    pub(crate) name: &'a str,
    pub(crate) uid: &'a str,
    pub(crate) reason: &'a str,
    pub(crate) message: &'a str,
}

impl ObjectWarning<'_> {
    /// The warning written, as of that Unix time.
    pub(crate) fn write(&self, unix: Duration) -> ApiWrite {
        let Self { prefix, words, reporter, kind: (api, kind), namespace, name, uid, reason, message } = *self;
        let words = sha256(&[words.as_bytes()]);
        let hash = words.iter().take(8).fold(0_u64, |hash, byte| hash << 8 | u64::from(*byte));
        let at = rfc3339(unix);
        let body = json!({
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": { "namespace": namespace, "name": format!("{prefix}.{hash:016x}") },
            "involvedObject": { "apiVersion": api, "kind": kind, "namespace": namespace, "name": name, "uid": uid },
            "type": "Warning",
            "reason": reason,
            "message": message,
            "source": { "component": reporter },
            "firstTimestamp": at,
            "lastTimestamp": at,
            "count": 1,
        });
        ApiWrite::Create { path: format!("/api/v1/namespaces/{namespace}/events"), body: body.to_string() }
    }
}
