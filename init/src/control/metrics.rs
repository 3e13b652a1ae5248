//! Server of the APIs `metrics.k8s.io` and `metrics.cairn.internal` on a control plane: the apiserver of this machine has questions answered
//! here that it has let in, and shows that it is one. Kubelets and machines are asked when somebody asks. Decides nothing: crate `usage` does.

mod pages;

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper::{Method, Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use kubeapi::{FollowError, Objects, Reflector};
use model::{Chain, KUBELET_PORT, METRICS_PORT, NodeName};
use pki::{Authority, CertificateDer, CertificateProfile, UnixTime, client_auth};
use probe::http::Session;
use rustls::{ClientConfig, ServerConfig};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Mutex;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use usage::{
    MACHINE_METRICS, NODES, NodeSummary, PODS, PageQuestion, SUMMARY_PATH, Summaries, UsageAnswer, UsageObject,
    UsageQuestion,
};

use self::pages::{AnswerBody, Pages};
use super::listed::ListedError;
use super::{certificates, clients, listed, node};
use crate::enrolment::Fellows;
use crate::records::Records;
use crate::runtime::streams::Streams;
use crate::runtime::tls::Clock;
use crate::runtime::{clock, tasks};

/// Longest time for a kubelet's answer: who asks waits for all.
const ANSWERS: Duration = Duration::from_secs(3);
/// Age up to which summaries are told again: kubelets count anew as often.
const KEPT: Duration = Duration::from_secs(10);
/// From a connection to its finished handshake; under emulation one takes 60 ms.
const HANDSHAKE: Duration = Duration::from_secs(5);
/// Connections at a time: an apiserver has one or two.
const MOST_CONNECTIONS: usize = 16;
/// Questions of a connection at a time; they are answered one after the other.
const STREAMS: u32 = 32;
/// A peer that does not answer HTTP/2 pings is gone.
const KEEPALIVE: Duration = Duration::from_secs(20);
/// Name of the server's thread.
const NAME: &str = "metrics";

/// Why the API is not served.
#[derive(Debug, thiserror::Error)]
pub(super) enum MetricsError {
    /// The port cannot be bound.
    #[error("listen on TCP {METRICS_PORT}")]
    Listen(#[source] io::Error),
    /// The thread that serves it did not start, or panicked.
    #[error("serve metrics")]
    Serve(#[source] io::Error),
    /// The server's certificate cannot be made.
    #[error("issue the certificate of metrics")]
    Issue(#[from] pki::IssueError),
    /// The server cannot be configured.
    #[error("configure the server of metrics")]
    Tls(#[from] pki::TlsError),
}

/// Why a question has no answer now.
#[derive(Debug, thiserror::Error)]
enum NoUsage {
    #[error("select what is asked for")]
    Listed(#[from] ListedError),
    #[error("read which machines run pods")]
    Unread(#[from] crate::records::Unread),
    #[error("make a certificate to ask by")]
    Client(#[from] node::Error),
}

/// Parts that the server is made of.
#[derive(Debug, Clone)]
pub(super) struct Metrics {
    /// Signs the server's certificate, and those that kubelets and the apiserver are shown.
    pub(super) kubernetes: Arc<Authority>,
    /// Authority by which apiservers show that they are some.
    pub(super) front: CertificateDer<'static>,
    /// Apiserver of this machine.
    pub(super) apiserver: SocketAddrV4,
    pub(super) records: Records,
    /// Way to the machines.
    pub(super) fellows: Fellows,
}

/// Server with what it has heard.
#[derive(Debug)]
struct Served {
    metrics: Metrics,
    heard: Mutex<Heard>,
    pages: Pages,
}

/// Words of kubelets, and connections to them and to the apiserver.
#[derive(Debug, Default)]
struct Heard {
    /// Summaries, with when they were heard, by uptime.
    summaries: Option<(Duration, Summaries)>,
    /// Configuration by which servers are asked, with when its certificate was made.
    client: Option<(Duration, Arc<ClientConfig>)>,
    /// Connections that were left in order.
    sessions: BTreeMap<SocketAddrV4, Session>,
}

impl Metrics {
    /// Serves the API; a task for good, on a thread of its own: who asks is a user of Kubernetes, and keeps nothing else waiting.
    ///
    /// # Errors
    /// [`MetricsError`].
    pub(super) async fn serve(self) -> Result<(), MetricsError> {
        let served = tasks::apart(NAME, move || self.accept());
        let Err(error) = served.await.map_err(MetricsError::Serve)?;
        Err(error)
    }

    async fn accept(self) -> Result<Infallible, MetricsError> {
        let address = (Ipv4Addr::LOCALHOST, METRICS_PORT);
        let listener = TcpListener::bind(address).await.map_err(MetricsError::Listen)?;
        let pages = Pages::of(self.fellows.clone(), self.records.clone());
        let served = Arc::new(Served { metrics: self, heard: Mutex::default(), pages });
        let mut tls = served.metrics.tls()?;
        let mut connections = JoinSet::new();
        loop {
            tokio::select! {
                accepted = listener.accept(), if connections.len() < MOST_CONNECTIONS => match accepted {
                    Ok((stream, _)) => {
                        if certificates::are_due(tls.0, clock::unix()) {
                            tls = served.metrics.tls()?;
                        }
                        connections.spawn(connection(served.clone(), tls.1.clone(), stream));
                    }
                    Err(error) => {
                        // Out of descriptors, or a peer that left already: a short wait keeps it cool.
                        tracing::debug!(%error, "accept failed");
                        tokio::time::sleep(Duration::from_millis(100)).await;
                    }
                },
                Some(_ended) = connections.join_next() => {}
            }
        }
    }

    /// Configuration of the server, with when its certificate was made.
    fn tls(&self) -> Result<(Duration, Arc<ServerConfig>), MetricsError> {
        let now = clock::unix();
        let issued =
            self.kubernetes.issue_with_key(&CertificateProfile::MetricsServer, UnixTime::since_unix_epoch(now))?;
        let mut tls = client_auth::apiservers(issued.identity(), self.front.clone(), Arc::new(Clock))?;
        tls.alpn_protocols = vec![b"h2".to_vec()];
        Ok((now, Arc::new(tls)))
    }
}

/// Serves a connection until its peer leaves.
async fn connection(served: Arc<Served>, tls: Arc<ServerConfig>, stream: TcpStream) {
    let stream = match timeout(HANDSHAKE, TlsAcceptor::from(tls).accept(stream)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => return tracing::debug!(%error, "who asks for metrics is no apiserver"),
        Err(_elapsed) => return,
    };
    let mut http = http2::Builder::new(Streams::default());
    http.timer(TokioTimer::new());
    http.keep_alive_interval(KEEPALIVE).keep_alive_timeout(KEEPALIVE).max_concurrent_streams(STREAMS);
    let answer = service_fn(move |request: Request<Incoming>| {
        let served = served.clone();
        async move { served.answer(request.method(), request.uri().path(), request.uri().query()).await }
    });
    let _left = http.serve_connection(TokioIo::new(stream), answer).await;
}

impl Served {
    /// Answer to a request of the apiserver.
    async fn answer(
        &self,
        method: &Method,
        path: &str,
        query: Option<&str>,
    ) -> Result<Response<AnswerBody>, hyper::http::Error> {
        let (usage, page) = (UsageQuestion::of(path, query.unwrap_or_default()), PageQuestion::of(path));
        let answer = match (usage, page) {
            (None, None) => usage::refusal(404, "there is no such path"),
            _ if method != Method::GET => usage::refusal(405, "usage is read, and not written"),
            (Some(question), _) => self.tell(&question).await.unwrap_or_else(|error| refusal(&error)),
            (None, Some(PageQuestion::Resources)) => usage::resources(MACHINE_METRICS, &[]),
            (None, Some(PageQuestion::Page { machine, service })) => match self.pages.fetch(&machine, service).await {
                Ok(page) => return Response::builder().header("content-type", openmetrics::CONTENT_TYPE).body(page),
                Err(refusal) => refusal,
            },
        };
        let response = Response::builder().status(answer.status).header("content-type", "application/json");
        response.body(Full::from(answer.body).map_err(|never| match never {}).boxed_unsync())
    }

    /// Answers one question at a time: what is heard for the first serves the next.
    async fn tell(&self, question: &UsageQuestion) -> Result<UsageAnswer, NoUsage> {
        let (collection, selection) = match question {
            UsageQuestion::Resources => {
                return Ok(usage::answer(question, &Objects::new(), &Summaries::default(), clock::unix()));
            }
            UsageQuestion::Nodes(selection) => (NODES, selection),
            UsageQuestion::Pods(selection) => (PODS, selection),
        };
        let mut heard = self.heard.lock().await;
        let mut api = heard.session(&self.metrics.kubernetes, self.metrics.apiserver)?;
        let selected: Objects<UsageObject> =
            listed::selected(&mut api, Reflector::selected(collection, &selection.query)).await?;
        heard.sessions.insert(self.metrics.apiserver, api);
        let summaries = heard.summaries(&self.metrics).await?;
        Ok(usage::answer(question, &selected, summaries, clock::unix()))
    }
}

fn refusal(error: &NoUsage) -> UsageAnswer {
    match error {
        NoUsage::Listed(ListedError::Follow(FollowError::Refused { status: 400, .. })) => {
            usage::refusal(400, "the apiserver takes no such selector")
        }
        NoUsage::Listed(_) | NoUsage::Unread(_) | NoUsage::Client(_) => {
            usage::refusal(503, &format!("usage is not known now: {}", Chain(error)))
        }
    }
}

impl Heard {
    /// Summaries of all workers that answer, not older than [`KEPT`].
    async fn summaries(&mut self, metrics: &Metrics) -> Result<&Summaries, NoUsage> {
        let is_fresh = |(at, _): &(Duration, _)| clock::uptime().saturating_sub(*at) < KEPT;
        if !self.summaries.as_ref().is_some_and(is_fresh) {
            let summaries = self.ask(metrics).await?;
            self.summaries = Some((clock::uptime(), summaries));
        }
        let (_, summaries) = self.summaries.as_ref().expect("there are some now");
        Ok(summaries)
    }

    /// Asks all workers beside each other.
    async fn ask(&mut self, metrics: &Metrics) -> Result<Summaries, NoUsage> {
        let workers = metrics.records.read(|view, _| {
            let workers = view.state().workers();
            workers.map(|(_, machine)| (machine.name.clone(), machine.vpn_ip)).collect::<Vec<_>>()
        })?;
        let mut asked = JoinSet::new();
        for (name, vpn_ip) in workers {
            let at = SocketAddrV4::new(vpn_ip, KUBELET_PORT);
            let mut kubelet = self.session(&metrics.kubernetes, at)?;
            asked.spawn(async move {
                let summary = timeout(ANSWERS, summary(&mut kubelet, &name)).await.ok().flatten()?;
                Some(((at, kubelet), (name, summary)))
            });
        }
        let mut summaries = Vec::new();
        while let Some(answered) = asked.join_next().await {
            // A kubelet that does not answer is one that nothing is known of; its connection is made anew.
            let Ok(Some(((at, kubelet), summary))) = answered else { continue };
            self.sessions.insert(at, kubelet);
            summaries.push(summary);
        }
        Ok(Summaries::of(summaries))
    }

    /// A connection to that server, to be kept here once it was left in order. None outlives the certificate that it was made by.
    fn session(&mut self, kubernetes: &Authority, at: SocketAddrV4) -> Result<Session, NoUsage> {
        let client = match &self.client {
            Some((made, client)) if !certificates::are_due(*made, clock::unix()) => client.clone(),
            Some(_) | None => {
                let client = node::client(kubernetes, &CertificateProfile::KubeCoordinator)?;
                self.client = Some((clock::unix(), client.clone()));
                self.sessions.clear();
                client
            }
        };
        Ok(self.sessions.remove(&at).unwrap_or_else(|| Session::with(clients::endpoint(at, client))))
    }
}

/// Summary of a kubelet, if it gives one.
async fn summary(kubelet: &mut Session, name: &NodeName) -> Option<NodeSummary> {
    let answer = kubelet.get(SUMMARY_PATH).await;
    let read = match answer {
        Ok(answer) if answer.status == 200 => NodeSummary::read(&answer.body).map_err(|error| error.to_string()),
        Ok(answer) => Err(format!("kubelet answers {}", answer.status)),
        Err(error) => Err(Chain(&error).to_string()),
    };
    read.inspect_err(|error| tracing::debug!(machine = %name, error, "kubelet does not say what is used")).ok()
}
