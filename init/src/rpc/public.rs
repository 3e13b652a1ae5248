//! The public API's methods: read the board, ask the trees, convert. Who may call is decided before they run.

use std::net::Ipv4Addr;
use std::pin::Pin;
use std::sync::{Arc, Mutex};

use api::{
    Claim, ClientCertificate, LogQuery, MachineStatus, PublicState, Service, ServiceState, TunnelPart, UnixMillis, wire,
};
use keys::first_contact::{Transcript, prove};
use model::{ConfigDigest, FirstContact, MachineId};
use pki::{Authority, Profile};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tokio_stream::{Stream, StreamExt};
use tonic::{Request, Response, Status, Streaming};

use super::session::Origin;
use crate::board::{Board, View};
use crate::child::{Cgroup, Children};
use crate::services::{Services, Snapshot};
use crate::{clock, lock, log, tasks};

/// The Kubernetes API's certificate is valid for this name, whatever address it is reached by.
const KUBERNETES_NAME: &str = "kubernetes";

/// What the owner asks of the machine as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PowerRequest {
    /// Stop everything and start again.
    Reboot,
    /// Stop everything and switch off.
    PowerOff,
}

/// Where first contact stands.
#[derive(Debug)]
pub(crate) enum Claimable {
    /// The machine has no identity to prove yet.
    NotYet,
    /// Its data header is committed, its owner has not called.
    Open(ClaimSecret),
    /// The owner has called with its key.
    Over,
}

/// What `Claim` answers with.
#[derive(Debug)]
pub(crate) struct ClaimSecret {
    /// Shared with the CLI that made the config.
    pub(crate) secret: FirstContact,
    /// The config as it was read.
    pub(crate) config: ConfigDigest,
    /// Who we are.
    pub(crate) machine: MachineId,
    /// The machine's own certificate, DER: on a connection that shows another one the proof would bind nothing.
    pub(crate) certificate: Vec<u8>,
    /// The cluster's CA, DER.
    pub(crate) ca_certificate: Vec<u8>,
}

/// The authorities a coordinator signs with.
#[derive(Debug)]
pub(crate) struct MemberAuthorities {
    /// Signs the owner's kubeconfig.
    pub(crate) kubernetes: Arc<Authority>,
    /// Where the Kubernetes API is.
    pub(crate) vpn_ip: Ipv4Addr,
}

/// What the methods need.
#[derive(Debug)]
pub(crate) struct Context {
    /// What the machine shows.
    pub(crate) board: Board,
    /// Where children are started.
    pub(crate) children: Children,
    /// The trees that run, oldest first.
    pub(crate) trees: Mutex<Vec<Services>>,
    /// Whether a stranger may ask who this is.
    pub(crate) claim: Mutex<Claimable>,
    /// Told once, at the owner's first authenticated call: first contact is over.
    pub(crate) claimed: tokio::sync::Notify,
    /// Set once the machine is a member.
    pub(crate) member: std::sync::OnceLock<MemberAuthorities>,
    /// Where reboots and power-offs are asked for.
    pub(crate) power: mpsc::Sender<PowerRequest>,
}

impl Context {
    /// The owner called with its key: the first-contact secret has done its work and dies.
    pub(super) fn owner_called(&self) {
        let mut claim = lock::even_if_poisoned(&self.claim);
        if let Claimable::Open(_) = *claim {
            *claim = Claimable::Over;
            self.claimed.notify_one();
        }
    }

    pub(super) fn snapshots(&self) -> Vec<Snapshot> {
        let trees = lock::even_if_poisoned(&self.trees);
        trees.iter().flat_map(Services::snapshots).collect()
    }
}

/// The service.
#[derive(Debug)]
pub(super) struct Public(pub(super) Arc<Context>);

type Answers<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

#[tonic::async_trait]
impl api::public_server::Public for Public {
    async fn get_state(&self, _: Request<wire::GetStateRequest>) -> Result<Response<wire::GetStateResponse>, Status> {
        let mut nonce = [0; 32];
        aws_lc_rs::rand::fill(&mut nonce).map_err(|_| Status::internal("no random bytes"))?;
        let state = self.0.board.read(|view| view.state);
        let version = crate::version(self.0.board.boot().profile);
        Ok(Response::new(PublicState { version, state, nonce }.into()))
    }

    async fn claim(&self, request: Request<wire::ClaimRequest>) -> Result<Response<wire::ClaimResponse>, Status> {
        let origin = request.extensions().get::<Origin>().ok_or_else(|| Status::internal("no session"))?;
        let held = lock::even_if_poisoned(&self.0.claim);
        let held = match &*held {
            Claimable::Open(held) if *held.certificate == *origin.leaf => held,
            Claimable::NotYet | Claimable::Open(_) => {
                return Err(Status::failed_precondition(
                    "the machine is not enrolled yet; nothing was changed; ask again",
                ));
            }
            Claimable::Over => {
                return Err(Status::failed_precondition(
                    "first contact is over: the owner has called; nothing was changed",
                ));
            }
        };
        let pin = |der: &[u8]| pki::public_key_of(&der.to_vec().into()).map(|key| key.pin().0);
        let unreadable = |_| Status::internal("own certificate is unreadable");
        let transcript = Transcript {
            exporter: origin.exporter,
            leaf_spki: pin(&origin.leaf).map_err(unreadable)?,
            ca_spki: pin(&held.ca_certificate).map_err(unreadable)?,
            machine: held.machine,
            config: held.config,
        };
        let claim = Claim {
            machine_id: held.machine,
            leaf_certificate: origin.leaf.to_vec(),
            ca_certificate: held.ca_certificate.clone(),
            proof: prove(&held.secret, &transcript),
        };
        Ok(Response::new(claim.into()))
    }

    async fn status(&self, _: Request<wire::StatusRequest>) -> Result<Response<wire::StatusResponse>, Status> {
        let view = self.0.board.read(View::clone);
        let boot = self.0.board.boot();
        let status = MachineStatus {
            name: view.name,
            machine_id: view.machine.unwrap_or(MachineId([0; 16])),
            cluster_id: view.cluster,
            version: crate::version(boot.profile),
            profile: boot.profile,
            root_hash: boot.root_hash,
            boot_id: boot.boot_id.clone(),
            now: clock::unix_millis(),
            uptime: clock::uptime(),
            state: view.state,
            step: view.step.to_owned(),
            reason: view.reason,
            state_since: view.state_since,
            level: view.level,
            protection: view.protection,
            boot_class: boot.class,
            cold_start: view.cold_start,
            public_addresses: view.public_addresses,
            vpn_addresses: view.vpn_addresses,
            conditions: view.conditions,
            waits_for: view.waits_for,
            last_error: view.last_error,
        };
        Ok(Response::new(status.into()))
    }

    async fn timeline(&self, _: Request<wire::TimelineRequest>) -> Result<Response<wire::TimelineResponse>, Status> {
        Ok(Response::new(self.0.board.read(|view| view.timeline.clone()).into()))
    }

    async fn services(&self, _: Request<wire::ServicesRequest>) -> Result<Response<wire::ServicesResponse>, Status> {
        let services: Vec<Service> = self.0.snapshots().into_iter().map(service).collect();
        Ok(Response::new(services.into()))
    }

    async fn restart_service(
        &self,
        request: Request<wire::RestartServiceRequest>,
    ) -> Result<Response<wire::RestartServiceResponse>, Status> {
        let name = request.into_inner().name;
        let trees = lock::even_if_poisoned(&self.0.trees).clone();
        for tree in trees {
            if tree.restart(&name).await.is_ok() {
                tracing::info!(service = name, "restart asked for by the owner");
                return Ok(Response::new(wire::RestartServiceResponse {}));
            }
        }
        Err(Status::not_found(format!("no service `{name}`; nothing was done; `cairnctl machine services` lists them")))
    }

    type LogsStream = Answers<wire::LogEntry>;

    async fn logs(&self, request: Request<wire::LogsRequest>) -> Result<Response<Self::LogsStream>, Status> {
        let query = LogQuery::from(request.into_inner());
        let mut reader = log::Reader::new(query).ok_or_else(|| Status::unavailable("the log is not open"))?;
        // One batch is under way while the reader waits for the next.
        let (sender, entries) = mpsc::channel(1);
        let reading = tasks::spawn(async move {
            loop {
                let batch = reader.next().await;
                if batch.is_empty() {
                    return;
                }
                for entry in batch {
                    if sender.send(Ok(entry.into())).await.is_err() {
                        return;
                    }
                }
            }
        });
        Ok(Response::new(kept(entries, reading)))
    }

    async fn reboot(&self, _: Request<wire::RebootRequest>) -> Result<Response<wire::RebootResponse>, Status> {
        self.power(PowerRequest::Reboot)?;
        Ok(Response::new(wire::RebootResponse {}))
    }

    async fn power_off(&self, _: Request<wire::PowerOffRequest>) -> Result<Response<wire::PowerOffResponse>, Status> {
        self.power(PowerRequest::PowerOff)?;
        Ok(Response::new(wire::PowerOffResponse {}))
    }

    async fn kubeconfig(
        &self,
        request: Request<wire::KubeconfigRequest>,
    ) -> Result<Response<wire::KubeconfigResponse>, Status> {
        let member = self.0.member.get().ok_or_else(|| Status::failed_precondition("the machine is no member yet"))?;
        let key = pki::accept_request(&request.into_inner().certificate_request)
            .map_err(|error| Status::invalid_argument(format!("{error}; nothing was signed")))?;
        let now = clock::unix();
        let certificate = member
            .kubernetes
            .issue(&Profile::KubeOwner, &key, rustls::pki_types::UnixTime::since_unix_epoch(now))
            .map_err(|error| Status::internal(error.to_string()))?;
        let lifetime = Profile::KubeOwner.row().lifetime;
        let expires = UnixMillis(u64::try_from((now + lifetime).as_millis()).unwrap_or(u64::MAX));
        let answer = ClientCertificate {
            ca_certificate: member.kubernetes.certificate().to_vec(),
            client_certificate: certificate.to_vec(),
            tls_server_name: KUBERNETES_NAME.to_owned(),
            expires,
        };
        Ok(Response::new(answer.into()))
    }

    type TunnelStream = Answers<wire::TunnelResponse>;

    async fn tunnel(
        &self,
        request: Request<Streaming<wire::TunnelRequest>>,
    ) -> Result<Response<Self::TunnelStream>, Status> {
        let member = self.0.member.get().ok_or_else(|| Status::failed_precondition("the machine is no member yet"))?;
        let mut parts = request.into_inner();
        let malformed = |error: api::Malformed| Status::invalid_argument(error.to_string());
        let first = parts.message().await?.ok_or_else(|| Status::invalid_argument("the stream is empty"))?;
        let address = match TunnelPart::try_from(first).map_err(malformed)? {
            TunnelPart::Open(api::Target::KubernetesApi) => (member.vpn_ip, model::KUBERNETES_API_PORT),
            TunnelPart::Data(_) => return Err(Status::invalid_argument("the first message names the target")),
        };
        let target = TcpStream::connect(address)
            .await
            .map_err(|error| Status::unavailable(format!("the target does not answer: {error}; try again")))?;
        let (mut from_target, mut to_target) = target.into_split();
        let (sender, answers) = mpsc::channel(2);
        let carrying = tasks::spawn(async move {
            let upward = async {
                while let Some(Ok(part)) = parts.next().await {
                    let Ok(TunnelPart::Data(data)) = TunnelPart::try_from(part) else { return };
                    if to_target.write_all(&data).await.is_err() {
                        return;
                    }
                }
                let _closed_either_way = to_target.shutdown().await;
            };
            let downward = async {
                let mut chunk = vec![0; api::limits::TUNNEL_CHUNK];
                while let Ok(read @ 1..) = from_target.read(&mut chunk).await {
                    if sender.send(Ok(wire::TunnelResponse { data: chunk[..read].to_vec() })).await.is_err() {
                        return;
                    }
                }
                drop(sender);
            };
            tokio::join!(upward, downward);
        });
        Ok(Response::new(kept(answers, carrying)))
    }

    async fn conditions(
        &self,
        _: Request<wire::ConditionsRequest>,
    ) -> Result<Response<wire::ConditionsResponse>, Status> {
        Ok(Response::new(self.0.board.read(|view| view.conditions.clone()).into()))
    }

    type WaitConditionStream = Answers<wire::Condition>;

    async fn wait_condition(
        &self,
        request: Request<wire::WaitConditionRequest>,
    ) -> Result<Response<Self::WaitConditionStream>, Status> {
        let name = request.into_inner().name;
        if !self.0.board.read(|view| view.conditions.iter().any(|condition| condition.name == name)) {
            return Err(Status::not_found(format!("no condition `{name}`; `cairnctl condition list` lists them")));
        }
        let mut changes = self.0.board.watch();
        let (sender, conditions) = mpsc::channel(1);
        let watching = tasks::spawn(async move {
            let mut last = None;
            loop {
                let now =
                    changes.borrow_and_update().conditions.iter().find(|condition| condition.name == name).cloned();
                if now != last
                    && let Some(condition) = &now
                {
                    let holds = condition.truth == api::Truth::True;
                    if sender.send(Ok(condition.clone().into())).await.is_err() || holds {
                        return;
                    }
                }
                last = now;
                tokio::select! {
                    changed = changes.changed() => if changed.is_err() { return },
                    () = sender.closed() => return,
                }
            }
        });
        Ok(Response::new(kept(conditions, watching)))
    }
}

impl Public {
    fn power(&self, request: PowerRequest) -> Result<(), Status> {
        // A second request while one is under way changes nothing.
        match self.0.power.try_send(request) {
            Ok(()) | Err(mpsc::error::TrySendError::Full(_)) => Ok(()),
            Err(mpsc::error::TrySendError::Closed(_)) => Err(Status::unavailable("the machine is going down already")),
        }
    }
}

/// A stream that keeps the task that feeds it: when the caller leaves, the task ends.
fn kept<T: Send + 'static>(items: mpsc::Receiver<Result<T, Status>>, feeding: tasks::Task<()>) -> Answers<T> {
    Box::pin(ReceiverStream::new(items).map(move |item| {
        let _lives_as_long_as_the_stream = &feeding;
        item
    }))
}

fn service(snapshot: Snapshot) -> Service {
    use supervise::{Ending, Exit, State};
    let status = snapshot.status;
    let byte = |value: i32| u8::try_from(value).unwrap_or(u8::MAX);
    Service {
        name: status.name.to_owned(),
        state: match status.state {
            State::Waiting(_) => ServiceState::Waiting,
            State::Starting => ServiceState::Starting,
            State::Ready => ServiceState::Ready,
            State::BackingOff { .. } => ServiceState::BackingOff,
            State::Stopping => ServiceState::Stopping,
            State::Stopped | State::Finished => ServiceState::Stopped,
            State::Failed => ServiceState::Failed,
        },
        since: clock::unix_millis_at(status.since),
        restarts: u32::try_from(status.restarts).unwrap_or(u32::MAX),
        pid: snapshot.pid.and_then(|pid| u32::try_from(pid.as_raw_nonzero().get()).ok()),
        memory: Cgroup::memory(status.name),
        last_exit: status.last.map(|ending| match ending {
            Ending::Exit(Exit::Code(code)) => api::Exit::Code(byte(code)),
            Ending::Exit(Exit::Signal(signal)) => api::Exit::Signal(byte(signal)),
            Ending::Exit(Exit::Panicked) => api::Exit::Panic(String::from("see the log of init")),
            Ending::SpawnFailed(errno) => api::Exit::Panic(format!("not started: error {errno}")),
            Ending::StartDeadline => api::Exit::Panic(String::from("not ready in time")),
        }),
    }
}
