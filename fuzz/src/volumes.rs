//! Parsers of what kubelet asks the driver of volumes, and of what lies among a machine's volumes.

use csi::{decode_expand, decode_publish, decode_unpublish};
use volumes::EntryName;
use volumes::node::PodPath;

use crate::{ParseVerdict, outcome};

/// A request to mount: what is mounted is mounted in the folder of a pod.
pub fn publish(bytes: &[u8]) -> ParseVerdict {
    match decode_publish(bytes) {
        Ok(Ok(order)) => below_pods(&order.target),
        Ok(Err(_)) | Err(_) => ParseVerdict::Refused,
    }
}

/// A request to unmount: nothing outside of the folder of a pod is unmounted.
pub fn unpublish(bytes: &[u8]) -> ParseVerdict {
    match decode_unpublish(bytes) {
        Ok(Ok(order)) => below_pods(&order.target),
        Ok(Err(_)) | Err(_) => ParseVerdict::Refused,
    }
}

/// A request for more room: some is asked for.
pub fn expand(bytes: &[u8]) -> ParseVerdict {
    match decode_expand(bytes) {
        Ok(order) => {
            assert!(order.is_err() || order.is_ok_and(|order| order.bytes > 0), "no room is asked for");
            outcome(&order)
        }
        Err(_) => ParseVerdict::Refused,
    }
}

/// Name of a folder among the volumes: it has one spelling.
pub fn folder(bytes: &[u8]) -> ParseVerdict {
    let Ok(text) = str::from_utf8(bytes) else { return ParseVerdict::Refused };
    let read = EntryName::parse(text);
    if let Some(entry) = read {
        assert_eq!(entry.to_string(), text, "a folder has one spelling");
    }
    if read.is_some() { ParseVerdict::Accepted } else { ParseVerdict::Refused }
}

fn below_pods(target: &PodPath) -> ParseVerdict {
    let path = target.as_str();
    assert!(path.starts_with("/data/kubelet/pods/"), "{path}");
    assert!(path.split('/').all(|part| part != ".." && part != "."), "{path}");
    ParseVerdict::Accepted
}
