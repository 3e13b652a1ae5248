//! Log entries, and which of them a reader asks for.

use crate::{UnixMillis, wire};

/// Which entries a reader wants.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LogQuery {
    /// A service or the stem of several; empty means all.
    pub subtree: String,
    /// At most so many of the newest; none means all that are kept.
    pub tail: Option<u32>,
    /// Whether to wait for new ones.
    pub follow: bool,
    /// Only at or after this time.
    pub since: Option<UnixMillis>,
}

impl LogQuery {
    /// Whether entries of `service` are asked for: `kube` takes `kube` and `kube.apiserver`, but not `kubelet`.
    #[must_use]
    pub fn takes(&self, service: &str) -> bool {
        match service.strip_prefix(self.subtree.as_str()) {
            Some(rest) => self.subtree.is_empty() || rest.is_empty() || rest.starts_with('.'),
            None => false,
        }
    }
}

impl From<LogQuery> for wire::LogsRequest {
    fn from(query: LogQuery) -> Self {
        Self {
            subtree: query.subtree,
            tail: query.tail,
            follow: query.follow,
            since_unix_ms: query.since.map(|since| since.0),
        }
    }
}

impl From<wire::LogsRequest> for LogQuery {
    fn from(request: wire::LogsRequest) -> Self {
        Self {
            subtree: request.subtree,
            tail: request.tail,
            follow: request.follow,
            since: request.since_unix_ms.map(UnixMillis),
        }
    }
}

/// Line of a service's log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogEntry {
    /// When PID 1 read it from the service, by the machine's clock.
    pub time: UnixMillis,
    /// The log it is kept in, as a rule the service that wrote it: `kube.apiserver`.
    pub service: String,
    /// Text of the line without the newline.
    pub line: String,
    /// How many entries this reader lost right before this one.
    pub lost: u64,
}

impl From<LogEntry> for wire::LogEntry {
    fn from(entry: LogEntry) -> Self {
        Self { unix_ms: entry.time.0, service: entry.service, line: entry.line, lost: entry.lost }
    }
}

impl From<wire::LogEntry> for LogEntry {
    fn from(entry: wire::LogEntry) -> Self {
        Self { time: UnixMillis(entry.unix_ms), service: entry.service, line: entry.line, lost: entry.lost }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Proves: Q2
    #[test]
    fn a_subtree_is_cut_at_dots() {
        let takes = |subtree: &str, service: &str| {
            LogQuery { subtree: subtree.to_owned(), ..LogQuery::default() }.takes(service)
        };
        assert!(takes("", "etcd") && takes("etcd", "etcd") && takes("kube", "kube.apiserver"));
        assert!(takes("kube.apiserver", "kube.apiserver"));
        assert!(!takes("kube", "kubelet") && !takes("kube.api", "kube.apiserver") && !takes("kube.apiserver", "kube"));
    }

    #[test]
    fn queries_and_entries_cross_the_wire() {
        let query = LogQuery { subtree: "kube".to_owned(), tail: Some(5), follow: true, since: Some(UnixMillis(1)) };
        assert_eq!(LogQuery::from(wire::LogsRequest::from(query.clone())), query);
        let entry = LogEntry { time: UnixMillis(3), service: "etcd".to_owned(), line: "ready".to_owned(), lost: 4 };
        assert_eq!(LogEntry::from(wire::LogEntry::from(entry.clone())), entry);
    }
}
