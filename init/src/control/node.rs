//! This node as Kubernetes sees it: the first objects of a new cluster, sessions with an apiserver, and whether the node is Ready.

use std::net::SocketAddrV4;
use std::sync::Arc;
use std::time::Duration;

use api::{ConditionName, Truth};
use model::NodeName;
use pki::{Authority, CertificateProfile, ClientIdentity, UnixTime};
use probe::http::{self, LocalServer, Session};
use rustls::ClientConfig;
use services::ServicePlan;
use services::bootstrap::Object;
use services::node_status::{self, NodeReadiness, ThisBoot};

use crate::runtime::clock;
use crate::runtime::tls::Clock;
use crate::shown::board::Board;

/// Why a look or an object failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// No certificate for it.
    #[error("issue the bootstrap certificate")]
    Issue(#[from] pki::IssueError),
    /// Certificate and key do not fit.
    #[error("configure the bootstrap client")]
    Tls(#[from] pki::TlsError),
    /// The apiserver does not answer.
    #[error("ask the Kubernetes API")]
    Http(#[from] http::Error),
    /// The apiserver does not say whether the first objects have been created.
    #[error("look whether the cluster has had its first objects: the Kubernetes API answers {0}")]
    Mark(u16),
    /// The apiserver answered the creation of an object with this HTTP status.
    #[error("create `{name}`: the Kubernetes API answers {status}")]
    Refused { name: &'static str, status: u16 },
}

/// Creates the objects a new cluster starts with, unless their marks say that this was done. The certificate that stands above RBAC is
/// made for this attempt, lasts an hour and never leaves memory.
pub(super) async fn bootstrap(kubernetes: Arc<Authority>, plan: Arc<ServicePlan>) -> Result<(), Error> {
    let mut api = session(&kubernetes, &CertificateProfile::KubeBootstrap, plan.kubernetes_api())?;
    for set in services::bootstrap::sets(plan.prefixes, &pki::certificate_pem(kubernetes.certificate())) {
        match api.get(&set.mark_path()).await?.status {
            200 => {}
            404 => create(&mut api, set.objects).await?,
            status => return Err(Error::Mark(status)),
        }
    }
    Ok(())
}

/// Time after which an apiserver gives a request up itself (its `--request-timeout`). On a slow host that has just begun it needs a good
/// part of that, and whoever asks again and again has it never finish.
const REQUEST: Duration = Duration::from_secs(60);

/// A session with an apiserver, by a certificate that is made for it.
///
/// # Errors
/// The certificate cannot be made or used.
pub(crate) fn session(
    kubernetes: &Authority,
    profile: &CertificateProfile<'_>,
    apiserver: SocketAddrV4,
) -> Result<Session, Error> {
    Ok(Session::with(super::clients::endpoint(apiserver, client(kubernetes, profile)?)).waiting(REQUEST))
}

/// TLS of a client towards servers of Kubernetes, by a certificate that is made for it.
///
/// # Errors
/// The certificate cannot be made or used.
pub(super) fn client(kubernetes: &Authority, profile: &CertificateProfile<'_>) -> Result<Arc<ClientConfig>, Error> {
    let issued = kubernetes.issue_with_key(profile, UnixTime::since_unix_epoch(clock::unix()))?;
    let identity = ClientIdentity::new(issued.identity())?;
    let authority = kubernetes.certificate().clone();
    Ok(Arc::new(pki::server_auth::under_authority(authority, Some(&identity), Arc::new(Clock))?))
}

/// Creates objects that are not there. A service that is there is answered 422 by an apiserver, which finds its address taken before it
/// looks for the name: so what is refused is looked for.
async fn create(api: &mut Session, objects: Vec<Object>) -> Result<(), Error> {
    for object in objects {
        let answer = api.post(object.path, object.body.into()).await?;
        match answer.status {
            201 | 409 => {}
            status => match api.get(&format!("{}/{}", object.path, object.name)).await?.status {
                200 => {}
                _ => return Err(Error::Refused { name: object.name, status }), // it is not there, or nobody knows
            },
        }
    }
    Ok(())
}

/// While the node is not Ready, a look costs little and the sooner it is seen the better.
const SOON: Duration = Duration::from_millis(250);
/// Later, as often as kubelet renews its lease.
const LATER: Duration = Duration::from_secs(10);

/// Keeps the condition NodeReady; a task for good.
pub(super) async fn observe(board: Board, api: LocalServer, plan: Arc<ServicePlan>, began: i64) -> Result<(), Error> {
    let boot = ThisBoot { id: &board.facts().boot().boot_id, since: began };
    let mut api = Session::with(api);
    loop {
        let (truth, reason) = match look(&mut api, &plan.node, boot).await {
            Ok(NodeReadiness::Ready) => (Truth::True, String::new()),
            Ok(NodeReadiness::EarlierBoot) => (Truth::False, String::from("the node's record is of an earlier boot")),
            Ok(NodeReadiness::LeaseNotRenewed) => (Truth::False, String::from("kubelet has not renewed its lease yet")),
            Ok(NodeReadiness::NotReady) => (Truth::False, String::from("kubelet says it is not ready yet")),
            Err(reason) => (Truth::False, reason),
        };
        board.condition(ConditionName::NodeReady, truth, &reason);
        tokio::time::sleep(if truth == Truth::True { LATER } else { SOON }).await;
    }
}

async fn look(api: &mut Session, node: &NodeName, boot: ThisBoot<'_>) -> Result<NodeReadiness, String> {
    let silent = |error: http::Error| format!("the Kubernetes API does not answer: {error}");
    let answer = api.get(&node_status::node_path(node)).await.map_err(silent)?;
    let lease = api.get(&node_status::lease_path(node)).await.map_err(silent)?;
    match (answer.status, lease.status) {
        (200, 200) => node_status::readiness(&answer.body, &lease.body, boot).map_err(|error| error.to_string()),
        (404, _) => Err(String::from("the node is not registered yet")),
        (200, 404) => Ok(NodeReadiness::LeaseNotRenewed),
        (status, _) => Err(format!("the Kubernetes API answers {status}")),
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    /// Creates one service where requests are answered so, one after the other; with the paths that were asked for.
    async fn created(statuses: &[u16]) -> (Result<(), Error>, Vec<String>) {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
        let address = listener.local_addr().expect("its own");
        let serving = async {
            let (mut stream, _) = listener.accept().await.expect("a connection");
            let mut asked = Vec::new();
            for status in statuses {
                let mut request = Vec::new();
                while !request.ends_with(b"\r\n\r\n") {
                    request.push(stream.read_u8().await.expect("a request"));
                }
                if request.starts_with(b"POST") {
                    assert_eq!([stream.read_u8().await.ok(), stream.read_u8().await.ok()], [Some(b'{'), Some(b'}')]);
                }
                asked.push(String::from_utf8_lossy(&request).split(" HTTP").next().unwrap_or_default().to_owned());
                let answer = format!("HTTP/1.1 {status} x\r\ncontent-length: 0\r\n\r\n");
                stream.write_all(answer.as_bytes()).await.expect("it is read");
            }
            asked
        };
        let object = Object { path: "/services", name: "kube-dns", body: "{}".to_owned(), because: "" };
        let mut api = Session::with(LocalServer { address, tls: None });
        let (asked, created) = tokio::join!(serving, create(&mut api, vec![object]));
        (created, asked)
    }

    /// Proves: W1
    #[tokio::test]
    async fn a_service_that_is_there_already_ends_no_beginning() {
        for there in [201, 409] {
            assert!(created(&[there]).await.0.is_ok(), "{there}");
        }
        let (there, asked) = created(&[422, 200]).await;
        assert!(there.is_ok() && asked == ["POST /services", "GET /services/kube-dns"], "{there:?}: {asked:?}");
        for refused in [[422, 404], [403, 403], [422, 503]] {
            let (created, _) = created(&refused).await;
            assert!(matches!(created, Err(Error::Refused { name: "kube-dns", status }) if status == refused[0]));
        }
    }
}
