//! Services of a fake, and a page of OpenMetrics of each.

use api::wire::MetricsResponse;
use api::{Service, ServiceState, UnixMillis};

use super::{Answers, Api};

/// Services that run on a fake.
pub(super) fn services() -> Vec<Service> {
    let service = |name: &str| Service {
        name: name.to_owned(),
        state: ServiceState::Ready,
        since: UnixMillis(1),
        restarts: 0,
        pid: None,
        memory: None,
        cpu: None,
        last_exit: None,
    };
    ["etcd", "kube.apiserver"].map(service).into()
}

impl Api {
    /// Tells a page in pieces; where it refuses, half of it.
    pub(super) fn tells_page(&self, service: &str) -> Answers<MetricsResponse> {
        let page = format!("{service}_up 1\n# EOF\n");
        let told = if *self.refuses.lock().unwrap() { &page[..page.len() / 2] } else { &page };
        let piece = |piece: &[u8]| Ok(MetricsResponse { data: piece.to_vec() });
        Box::pin(tokio_stream::iter(told.as_bytes().chunks(7).map(piece).collect::<Vec<_>>()))
    }
}
