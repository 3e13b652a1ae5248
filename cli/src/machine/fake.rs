//! A machine's public API on loopback, with real TLS and real proofs, for tests: genuine, impostor or relay as asked.
//!
//! It stands for the server side of `proto/`; it decides nothing that a test did not tell it.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::ops::Deref;
use std::pin::Pin;
use std::sync::Arc;

use api::wire::*;
use api::{
    Condition, LeavingData, ListPage, ListedOwner, ListedRule, MachineChange, MachineStatus, PublicState, Truth,
    UnixMillis, VolumeRemoval, public_server,
};
use cluster::Denial;
use cluster::record::{OwnerRecord, PublishRecord, PublishTerms, RegistryRecord, UnixSeconds, UserRecord, UserTerms};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::service::TowerToHyperService;
use keys::activation::{Connection, Tries, Verdict};
use keys::first_contact::EXPORTER_LABEL;
use keys::identity::{self, SigningKey};
use keys::recovery::RecoveryPubKey;
use model::{
    BootClass, ClusterRole, MachineId, MachineState, OwnerPubKey, Protection, RegistryHost, RootHash, Secret,
    UserPubKey,
};
use pki::client_auth::{NamedIdentity, Owners, Who, nameless_certificate, server_config};
use pki::{
    Authority, AuthorityKind, CertificateDer, CertificateProfile, PrivateKey, PublicKey, TlsIdentity, machine_tls_name,
};
use rustls::time_provider::DefaultTimeProvider;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_stream::Stream;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};

use self::claim::OTHER;
pub(crate) use self::claim::{Answer, Lie};
use self::state::FakeState;
use super::dial::Address;
use crate::clock;
use crate::store::Pins;

mod claim;
mod panel;
mod snapshot;
mod state;

/// The cluster's directory, as a coordinator among the fakes hands it out.
pub(crate) const DIRECTORY: &[u8] = b"who coordinates";

/// A fake that listens until it is dropped.
#[derive(Debug)]
pub(crate) struct Fake {
    pub(crate) address: Address,
    pub(crate) machine: MachineId,
    cluster: Arc<Authority>,
    state: Arc<FakeState>,
    _server: JoinSet<()>,
}

struct Api {
    answer: Arc<Answer>,
    machine: MachineId,
    leaf: CertificateDer<'static>,
    authority: CertificateDer<'static>,
    exporter: [u8; 32],
    activation: Connection,
    owner: bool,
    user: Option<UserPubKey>,
    role: ClusterRole,
    state: Arc<FakeState>,
}

impl Deref for Fake {
    type Target = FakeState;

    fn deref(&self) -> &FakeState {
        &self.state
    }
}

impl Deref for Api {
    type Target = FakeState;

    fn deref(&self) -> &FakeState {
        &self.state
    }
}

/// An owner whom the fake's recovery record is not for, with keys made from `seed`.
pub(crate) fn owner(seed: u8) -> ListedOwner {
    let secret = || Secret::take(&mut [seed; 32]);
    let key = OwnerPubKey(SigningKey::from_seed(secret()).public());
    ListedOwner { owner: OwnerRecord { key, recovery: RecoveryPubKey::of(&secret()) }, recovers: false }
}

impl Fake {
    /// A coordinator of a cluster of its own, with keys made from `seed`, owned by `owner`.
    pub(crate) async fn start(seed: u8, owner: PublicKey, answer: Answer) -> Self {
        let cluster = Arc::new(Authority::create(AuthorityKind::Cairn, clock::now()).unwrap());
        Self::of(cluster, ClusterRole::Coordinator, (seed, owner, answer)).await
    }

    /// A node of this one's cluster.
    pub(crate) async fn node(&self, seed: u8, owner: PublicKey) -> Self {
        Self::of(Arc::clone(&self.cluster), ClusterRole::Node, (seed, owner, Answer::NotYet)).await
    }

    async fn of(cluster: Arc<Authority>, role: ClusterRole, (seed, owner, answer): (u8, PublicKey, Answer)) -> Self {
        let authority = &*cluster;
        let signing = SigningKey::from_seed(Secret::take(&mut [seed; 32]));
        let certified_other = matches!(answer, Answer::Proven { lie: Lie::CertifiedOtherId, .. });
        let machine = if certified_other { OTHER } else { identity::machine_id(&signing.public()) };
        let key = PrivateKey::ed25519(signing.seed()).unwrap();
        let id = identity::cluster_id(&authority.public().spki());
        let profile = CertificateProfile::Machine { machine, cluster: id, role };
        let leaf = authority.issue(&profile, key.public(), clock::now()).unwrap();
        let authority = authority.certificate().clone();
        let owners = Owners::new(vec![owner]);
        let callers = owners.clone();
        let boot = PrivateKey::generate().unwrap();
        let nameless = TlsIdentity { chain: vec![nameless_certificate(&boot).unwrap()], key: &boot };
        let identity = TlsIdentity { chain: vec![leaf.clone(), authority.clone()], key: &key };
        let named = NamedIdentity { name: machine_tls_name(machine, id), identity };
        let mut tls = server_config(nameless, Some(named), owners, Arc::new(DefaultTimeProvider)).unwrap();
        tls.alpn_protocols = vec![b"h2".to_vec()];
        let acceptor = TlsAcceptor::from(Arc::new(tls));

        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap().to_string().parse().unwrap();
        let (answer, state, leaf_spki) = (Arc::new(answer), Arc::<FakeState>::default(), boot.public().pin().0);
        let shared = Arc::clone(&state);
        let mut server = JoinSet::new();
        server.spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                let (tcp, _) = listener.accept().await.unwrap();
                let (acceptor, answer, state) = (acceptor.clone(), Arc::clone(&answer), Arc::clone(&shared));
                let (leaf, authority, callers) = (leaf.clone(), authority.clone(), callers.clone());
                connections.spawn(async move {
                    // A caller that is refused ends here.
                    let Ok(session) = acceptor.accept(tcp).await else { return };
                    let (_, connection) = session.get_ref();
                    let mut exporter = [0; 32];
                    connection.export_keying_material(&mut exporter, EXPORTER_LABEL, None).unwrap();
                    let mut activation = Connection { exporter: [0; 32], leaf_spki };
                    let label = keys::activation::EXPORTER_LABEL;
                    connection.export_keying_material(&mut activation.exporter, label, None).unwrap();
                    let user = match callers.who(connection.peer_certificates()) {
                        Ok(Who::Person(key)) => Some(key),
                        _ => None, // an owner, or nobody in particular
                    };
                    let owner = connection.peer_certificates().is_some() && user.is_none();
                    let api = Api { answer, machine, leaf, authority, exporter, activation, owner, user, role, state };
                    let service = TowerToHyperService::new(public_server::PublicServer::new(api));
                    let http = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                    // Ends when the caller goes.
                    let _ended = http.serve_connection(TokioIo::new(session), service).await;
                });
            }
        });
        Self { address, machine, cluster, state, _server: server }
    }

    /// Identity that the fake has to show.
    pub(crate) fn pins(&self) -> Pins {
        let authority = self.cluster.public();
        Pins { machine: self.machine, cluster: identity::cluster_id(&authority.spki()), authority: authority.pin() }
    }

    /// From now on whoever asks it for `machine` is carried to what listens there.
    pub(crate) fn leads(&self, machine: MachineId, there: &Self) {
        self.behind.lock().unwrap().insert(machine, there.address.clone());
    }

    /// The methods called so far.
    pub(crate) fn calls(&self) -> Vec<&'static str> {
        self.calls.lock().unwrap().clone()
    }
}

impl Api {
    fn called(&self, method: &'static str) {
        self.calls.lock().unwrap().push(method);
    }

    fn owners_call(&self, method: &'static str) -> Result<(), Status> {
        self.called(method);
        if !self.owner {
            return Err(api::access::CallRefusal::NoCertificate.into());
        }
        let mut unknown = self.unknown.lock().unwrap();
        match unknown.iter().position(|next| *next == method) {
            Some(at) => Err(Status::unknown(format!("etcd gives no answer to {}", unknown.remove(at)))),
            None => Ok(()),
        }
    }

    /// Refuses to let a machine go, where it is to refuse.
    fn keeps_data(&self) -> Result<(), Status> {
        let held = "the data of these would go with the machine: claim web/data (8Mi); nothing was changed";
        if *self.refuses.lock().unwrap() { Err(Status::failed_precondition(held)) } else { Ok(()) }
    }

    /// The same of what a user may call, too.
    fn users_call(&self, method: &'static str) -> Result<(), Status> {
        let Some(key) = self.user else { return self.owners_call(method) };
        self.called(method);
        let knows = self.users.lock().unwrap().iter().any(|user| user.terms.keys.contains(&key));
        if knows { Ok(()) } else { Err(api::access::CallRefusal::UnknownUser.into()) }
    }
}

type Answers<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

#[tonic::async_trait]
impl public_server::Public for Api {
    type LogsStream = Answers<LogEntry>;
    type TunnelStream = Answers<TunnelResponse>;
    type DrainMachineStream = Answers<DrainMachineResponse>;
    type ImportImageStream = Answers<ImportImageResponse>;
    type ListImagesStream = Answers<ListImagesResponse>;
    type ListVolumesStream = Answers<ListVolumesResponse>;
    type DefragmentEtcdStream = Answers<DefragmentEtcdResponse>;
    type SnapshotKubernetesStream = Answers<SnapshotKubernetesResponse>;
    type MetricsStream = Answers<MetricsResponse>;
    type RestoreKubernetesStream = Answers<RestoreKubernetesResponse>;
    type WaitConditionStream = Answers<api::wire::Condition>;
    type ListMachinesStream = Answers<ListMachinesResponse>;
    type ListTicketsStream = Answers<ListTicketsResponse>;

    async fn get_state(&self, _: Request<GetStateRequest>) -> Result<Response<GetStateResponse>, Status> {
        self.called("GetState");
        let state = match &*self.answer {
            Answer::Blank(_) => MachineState::Blank,
            Answer::Proven { .. } | Answer::NotYet | Answer::Relayed(_) => MachineState::Running,
        };
        let state = PublicState { version: "0.1.0".into(), state, nonce: [1; 32] };
        Ok(Response::new(state.into()))
    }

    async fn claim(&self, _: Request<ClaimRequest>) -> Result<Response<ClaimResponse>, Status> {
        self.called("Claim");
        self.claimed().await
    }

    async fn prove_code(&self, _: Request<ProveCodeRequest>) -> Result<Response<ProveCodeResponse>, Status> {
        self.called("ProveCode");
        let Answer::Blank(waiting) = &*self.answer else { return Err(Status::failed_precondition("it is not blank")) };
        let proof = waiting.lock().unwrap().proof(&self.activation).to_vec();
        Ok(Response::new(ProveCodeResponse { proof }))
    }

    async fn activate(&self, request: Request<ActivateRequest>) -> Result<Response<ActivateResponse>, Status> {
        self.called("Activate");
        let Answer::Blank(waiting) = &*self.answer else { return Err(Status::failed_precondition("it is not blank")) };
        let api::HandedIn { config, proof } = request.into_inner().try_into()?;
        let heard = waiting.lock().unwrap().handed_in(&self.activation, &mut Tries::default(), &config, &proof);
        heard.map_err(|refused| Status::permission_denied(refused.to_string()))?;
        if *self.refuses.lock().unwrap() {
            waiting.lock().unwrap().judged(Verdict::NotTaken);
            return Err(Status::invalid_argument("the config that was given is refused"));
        }
        waiting.lock().unwrap().judged(Verdict::Accepted);
        self.configs.lock().unwrap().push(config.to_vec());
        Ok(Response::new(ActivateResponse {}))
    }

    async fn status(&self, _: Request<StatusRequest>) -> Result<Response<StatusResponse>, Status> {
        self.owners_call("Status")?;
        let waits = self.waits.lock().unwrap().is_some();
        let status = MachineStatus {
            name: "fake".into(),
            machine_id: self.machine,
            cluster_id: None,
            version: "0.1.0".into(),
            profile: api::Profile::Debug,
            root_hash: RootHash([0; 32]),
            boot_id: String::new(),
            now: UnixMillis(1),
            uptime: std::time::Duration::ZERO,
            state: if waits { MachineState::AwaitingKeys } else { MachineState::Running },
            step: String::new(),
            reason: String::new(),
            state_since: UnixMillis(0),
            level: None,
            protection: Protection::None,
            boot_class: BootClass::Direct,
            role: Some(self.role),
            kubernetes: BTreeSet::new(),
            cold_start: None,
            public_addresses: vec![],
            vpn_addresses: vec![],
            conditions: vec![],
            waits_for: vec![],
            last_error: String::new(),
            takes_key_generation: *self.takes.lock().unwrap(),
        };
        Ok(Response::new(status.into()))
    }

    async fn timeline(&self, _: Request<TimelineRequest>) -> Result<Response<TimelineResponse>, Status> {
        self.owners_call("Timeline")?;
        Ok(Response::new(TimelineResponse::default()))
    }

    async fn services(&self, _: Request<ServicesRequest>) -> Result<Response<ServicesResponse>, Status> {
        self.owners_call("Services")?;
        Ok(Response::new(panel::services().into()))
    }

    async fn metrics(&self, request: Request<MetricsRequest>) -> Result<Response<Self::MetricsStream>, Status> {
        self.owners_call("Metrics")?;
        Ok(Response::new(self.tells_page(&request.into_inner().service)))
    }

    async fn restart_service(
        &self,
        request: Request<RestartServiceRequest>,
    ) -> Result<Response<RestartServiceResponse>, Status> {
        self.owners_call("RestartService")?;
        Err(Status::not_found(format!("no service `{}`", request.into_inner().name)))
    }

    async fn logs(&self, _: Request<LogsRequest>) -> Result<Response<Self::LogsStream>, Status> {
        self.owners_call("Logs")?;
        let entry = api::LogEntry { time: UnixMillis(1), service: "etcd".into(), line: "ready".into(), lost: 0 };
        Ok(Response::new(Box::pin(tokio_stream::iter([Ok(entry.into())]))))
    }

    async fn reboot(&self, _: Request<RebootRequest>) -> Result<Response<RebootResponse>, Status> {
        self.owners_call("Reboot")?;
        Ok(Response::new(RebootResponse {}))
    }

    async fn power_off(&self, _: Request<PowerOffRequest>) -> Result<Response<PowerOffResponse>, Status> {
        self.owners_call("PowerOff")?;
        Ok(Response::new(PowerOffResponse {}))
    }

    async fn kubeconfig(&self, request: Request<KubeconfigRequest>) -> Result<Response<KubeconfigResponse>, Status> {
        self.users_call("Kubeconfig")?;
        pki::accept_request(&request.into_inner().certificate_request)
            .map_err(|error| Status::invalid_argument(error.to_string()))?;
        Ok(Response::new(KubeconfigResponse { tls_server_name: "kubernetes".into(), ..Default::default() }))
    }

    /// The Kubernetes API is an echo that ends when its input does.
    async fn tunnel(&self, request: Request<Streaming<TunnelRequest>>) -> Result<Response<Self::TunnelStream>, Status> {
        use tokio_stream::StreamExt;
        self.users_call("Tunnel")?;
        let mut parts = request.into_inner();
        let first = parts.message().await?.ok_or(Status::invalid_argument("no first message"))?;
        match api::TunnelPart::try_from(first)? {
            api::TunnelPart::Open(api::Target::KubernetesApi) => {}
            api::TunnelPart::Open(api::Target::Outside(_)) => return Err(Status::not_found("nothing is outside")),
            api::TunnelPart::Open(api::Target::Machine(machine)) => {
                let there = self.behind.lock().unwrap().get(&machine).map(ToString::to_string);
                let there = TcpStream::connect(there.ok_or(Status::not_found("no such machine"))?).await?;
                let (mut from, mut to) = there.into_split();
                let mut carrying = JoinSet::new();
                carrying.spawn(async move {
                    while let Some(Ok(part)) = parts.next().await {
                        let Ok(api::TunnelPart::Data(data)) = api::TunnelPart::try_from(part) else { return };
                        to.write_all(&data).await.unwrap();
                    }
                });
                let (pieces, down) = mpsc::channel(1);
                carrying.spawn(async move {
                    let mut chunk = vec![0; 4 << 10];
                    while let Ok(read @ 1..) = from.read(&mut chunk).await {
                        pieces.send(Ok(TunnelResponse { data: chunk[..read].to_vec() })).await.unwrap();
                    }
                });
                let down = ReceiverStream::new(down).map(move |piece| {
                    let _as_long_as_this = &carrying;
                    piece
                });
                return Ok(Response::new(Box::pin(down)));
            }
            api::TunnelPart::Data(_) => return Err(Status::invalid_argument("data before open")),
        }
        let echo = parts.map(|part| match api::TunnelPart::try_from(part?)? {
            api::TunnelPart::Data(data) => Ok(TunnelResponse { data }),
            api::TunnelPart::Open(_) => Err(Status::invalid_argument("opened twice")),
        });
        Ok(Response::new(Box::pin(echo)))
    }

    async fn drain_machine(
        &self,
        request: Request<DrainMachineRequest>,
    ) -> Result<Response<Self::DrainMachineStream>, Status> {
        self.owners_call("DrainMachine")?;
        let pod = |name: &str| PodLeft { pod: format!("web/{name}"), why: "a budget".to_owned() };
        let look = Ok(DrainMachineResponse { left: vec![pod("a"), pod("b")] });
        let late = Err(Status::failed_precondition("after 1 s pods are left: web/a (a budget)"));
        let lost = Err(Status::failed_precondition("nobody makes these pods again: web/c; nothing was done"));
        let DrainMachineRequest { force, undo, seconds, .. } = request.into_inner();
        let words = match () {
            () if undo => vec![],
            () if *self.refuses.lock().unwrap() && !force => vec![lost],
            () if seconds == 1 => vec![look, late],
            () => vec![look],
        };
        Ok(Response::new(Box::pin(tokio_stream::iter(words))))
    }

    /// Takes every blob that it does not know to be others' bytes, unless it is to refuse.
    async fn import_image(
        &self,
        request: Request<Streaming<ImportImageRequest>>,
    ) -> Result<Response<Self::ImportImageStream>, Status> {
        use tokio_stream::StreamExt;
        self.owners_call("ImportImage")?;
        if *self.refuses.lock().unwrap() {
            return Err(Status::failed_precondition("no containers run here"));
        }
        let mut parts = request.into_inner();
        let first = parts.message().await?.ok_or(Status::invalid_argument("no first message"))?;
        let api::ImportPart::Image(image) = api::ImportPart::try_from(first)? else {
            return Err(Status::invalid_argument("data before the image"));
        };
        let manifest =
            oci::ImageManifest::parse(&image.manifest).map_err(|it| Status::invalid_argument(it.to_string()))?;
        let (asks, asked) = mpsc::channel(1);
        let mut taking = JoinSet::new();
        taking.spawn(async move {
            for blob in manifest.blobs() {
                asks.send(Ok(blob.into())).await.unwrap();
                let mut bytes = Vec::new();
                while (bytes.len() as u64) < blob.size {
                    let Some(Ok(part)) = parts.next().await else { return };
                    let Ok(api::ImportPart::Data(data)) = api::ImportPart::try_from(part) else { return };
                    bytes.extend(data);
                }
                if oci::BlobDigest::of(&bytes) != blob.digest {
                    asks.send(Err(Status::invalid_argument("other bytes"))).await.unwrap();
                }
            }
        });
        let asked = ReceiverStream::new(asked).map(move |ask| {
            let _as_long_as_this = &taking;
            ask
        });
        Ok(Response::new(Box::pin(asked)))
    }

    async fn list_images(&self, _: Request<ListImagesRequest>) -> Result<Response<Self::ListImagesStream>, Status> {
        self.owners_call("ListImages")?;
        let (name, digest) = ("quay.io/a/b:1".to_owned(), format!("sha256:{}", "0".repeat(64)));
        let image = api::ListedImage { name, digest, size: Some(3 << 20), origin: oci::ImageOrigin::Imported };
        Ok(Response::new(Box::pin(tokio_stream::iter([Ok(image.into())]))))
    }

    async fn remove_image(
        &self,
        request: Request<RemoveImageRequest>,
    ) -> Result<Response<RemoveImageResponse>, Status> {
        self.owners_call("RemoveImage")?;
        match request.into_inner().name.as_str() {
            "quay.io/a/b:1" => Ok(Response::new(RemoveImageResponse {})),
            other => Err(Status::not_found(format!("no image is called `{other}`"))),
        }
    }

    async fn list_volumes(&self, _: Request<ListVolumesRequest>) -> Result<Response<Self::ListVolumesStream>, Status> {
        self.owners_call("ListVolumes")?;
        let workers = self.workers.lock().unwrap().clone();
        Ok(Response::new(Box::pin(tokio_stream::iter(workers.into_iter().map(|worker| Ok(worker.into()))))))
    }

    async fn remove_volume(
        &self,
        request: Request<RemoveVolumeRequest>,
    ) -> Result<Response<RemoveVolumeResponse>, Status> {
        self.owners_call("RemoveVolume")?;
        let VolumeRemoval { machine, volume } = request.into_inner().try_into()?;
        let mut workers = self.workers.lock().unwrap();
        let worker = workers.iter_mut().find(|worker| worker.machine == machine);
        worker.and_then(|it| it.held.as_mut()).unwrap().retain(|(listed, _)| listed.volume != volume);
        Ok(Response::new(RemoveVolumeResponse {}))
    }

    async fn etcd_status(&self, _: Request<EtcdStatusRequest>) -> Result<Response<EtcdStatusResponse>, Status> {
        self.owners_call("EtcdStatus")?;
        Ok(Response::new(self.etcd.lock().unwrap().clone().into()))
    }

    async fn defragment_etcd(
        &self,
        request: Request<DefragmentEtcdRequest>,
    ) -> Result<Response<Self::DefragmentEtcdStream>, Status> {
        self.owners_call("DefragmentEtcd")?;
        let steps = self.defragment(&request.into_inner().machines()?).into_iter().map(|step| Ok(step.into()));
        let stops = Err(Status::failed_precondition("the etcd of m2 does not answer, or follows no leader"));
        let stops = self.refuses.lock().unwrap().then_some(stops);
        Ok(Response::new(Box::pin(tokio_stream::iter(steps.chain(stops).collect::<Vec<_>>()))))
    }

    async fn snapshot_kubernetes(
        &self,
        _: Request<SnapshotKubernetesRequest>,
    ) -> Result<Response<Self::SnapshotKubernetesStream>, Status> {
        self.owners_call("SnapshotKubernetes")?;
        Ok(Response::new(self.tells_snapshot()))
    }

    async fn restore_kubernetes(
        &self,
        request: Request<Streaming<RestoreKubernetesRequest>>,
    ) -> Result<Response<Self::RestoreKubernetesStream>, Status> {
        self.owners_call("RestoreKubernetes")?;
        Ok(Response::new(self.takes_snapshot(request.into_inner())))
    }

    async fn conditions(&self, _: Request<ConditionsRequest>) -> Result<Response<ConditionsResponse>, Status> {
        self.owners_call("Conditions")?;
        Ok(Response::new(ConditionsResponse::default()))
    }

    /// Says that the condition is false, then that it is true.
    async fn wait_condition(
        &self,
        request: Request<WaitConditionRequest>,
    ) -> Result<Response<Self::WaitConditionStream>, Status> {
        self.owners_call("WaitCondition")?;
        let name = request.into_inner().name;
        if api::ConditionName::from_word(&name).is_none() {
            return Err(Status::not_found(format!("no condition `{name}`")));
        }
        let change = |truth| {
            let condition = Condition { name: name.clone(), truth, reason: "because".into(), since: UnixMillis(1) };
            Ok(condition.into())
        };
        Ok(Response::new(Box::pin(tokio_stream::iter([change(Truth::False), change(Truth::True)]))))
    }

    /// Sends its list in two pieces.
    async fn list_machines(
        &self,
        _: Request<ListMachinesRequest>,
    ) -> Result<Response<Self::ListMachinesStream>, Status> {
        self.owners_call("ListMachines")?;
        if self.role == ClusterRole::Node {
            return Err(Status::failed_precondition("this machine is no coordinator"));
        }
        let piece = |rows| Ok(ListPage { old_since: Some(UnixMillis(7)), rows }.into());
        let pieces = [piece(self.listed.lock().unwrap().clone()), piece(vec![])];
        Ok(Response::new(Box::pin(tokio_stream::iter(pieces))))
    }

    async fn change_machine(
        &self,
        request: Request<ChangeMachineRequest>,
    ) -> Result<Response<ChangeMachineResponse>, Status> {
        self.owners_call("ChangeMachine")?;
        let (_, change) = request.into_inner().try_into()?;
        if change == MachineChange::Drain(LeavingData::Kept) {
            self.keeps_data()?;
        }
        Ok(Response::new(ChangeMachineResponse {}))
    }

    async fn check_removal(&self, _: Request<CheckRemovalRequest>) -> Result<Response<CheckRemovalResponse>, Status> {
        self.owners_call("CheckRemoval")?;
        self.keeps_data()?;
        Ok(Response::new(CheckRemovalResponse {}))
    }

    async fn recover_cluster(
        &self,
        request: Request<RecoverClusterRequest>,
    ) -> Result<Response<RecoverClusterResponse>, Status> {
        self.owners_call(if request.into_inner().proceed { "RecoverCluster" } else { "RecoverCluster?" })?;
        let other = OtherMember { vpn_ip: Ipv4Addr::new(10, 118, 0, 2).into(), answers: false };
        Ok(Response::new(RecoverClusterResponse { silent_ms: 34_000, others: vec![other] }))
    }

    async fn erase_role(&self, _: Request<EraseRoleRequest>) -> Result<Response<EraseRoleResponse>, Status> {
        self.owners_call("EraseRole")?;
        Ok(Response::new(EraseRoleResponse {}))
    }

    async fn issue_ticket(
        &self,
        request: Request<IssueTicketRequest>,
    ) -> Result<Response<IssueTicketResponse>, Status> {
        self.owners_call("IssueTicket")?;
        let offer = cluster::request::Offer::try_from(request.into_inner())?;
        let id = keys::ticket::ticket_id(&offer.key);
        let coordinators = vec!["192.0.2.1:7836".to_owned()];
        Ok(Response::new(api::NewTicket { id, coordinators }.into()))
    }

    async fn list_tickets(&self, _: Request<ListTicketsRequest>) -> Result<Response<Self::ListTicketsStream>, Status> {
        self.owners_call("ListTickets")?;
        Ok(Response::new(Box::pin(tokio_stream::iter([Ok(ListTicketsResponse::default())]))))
    }

    async fn revoke_ticket(&self, _: Request<RevokeTicketRequest>) -> Result<Response<RevokeTicketResponse>, Status> {
        self.owners_call("RevokeTicket")?;
        Err(Status::not_found("the cluster does not know this ticket; nothing was changed"))
    }

    async fn add_owner(&self, request: Request<AddOwnerRequest>) -> Result<Response<AddOwnerResponse>, Status> {
        self.owners_call("AddOwner")?;
        let (owner, mut owners) = (OwnerRecord::try_from(request.into_inner())?, self.owners.lock().unwrap());
        match owners.iter().find(|row| row.owner.key == owner.key) {
            Some(row) if row.owner != owner => {
                return Err(Status::failed_precondition(Denial::OtherRecoveryKey.to_string()));
            }
            Some(_) => {}
            None => owners.push(ListedOwner { owner, recovers: false }),
        }
        Ok(Response::new(AddOwnerResponse {}))
    }

    async fn list_owners(&self, _: Request<ListOwnersRequest>) -> Result<Response<ListOwnersResponse>, Status> {
        self.owners_call("ListOwners")?;
        let rows = self.owners.lock().unwrap().clone();
        Ok(Response::new(ListPage { old_since: None, rows }.into()))
    }

    async fn remove_owner(
        &self,
        request: Request<RemoveOwnerRequest>,
    ) -> Result<Response<RemoveOwnerResponse>, Status> {
        self.owners_call("RemoveOwner")?;
        let (key, mut owners) = (OwnerPubKey::try_from(request.into_inner())?, self.owners.lock().unwrap());
        if owners.iter().all(|row| row.owner.key == key) {
            return Err(Status::failed_precondition(Denial::LastOwner.to_string()));
        }
        owners.retain(|row| row.owner.key != key);
        Ok(Response::new(RemoveOwnerResponse {}))
    }

    async fn set_registry(
        &self,
        request: Request<SetRegistryRequest>,
    ) -> Result<Response<SetRegistryResponse>, Status> {
        self.owners_call("SetRegistry")?;
        let registry = RegistryRecord::try_from(request.into_inner())?;
        self.registries.lock().unwrap().insert(registry.host(), registry);
        Ok(Response::new(SetRegistryResponse {}))
    }

    async fn list_registries(
        &self,
        _: Request<ListRegistriesRequest>,
    ) -> Result<Response<ListRegistriesResponse>, Status> {
        self.owners_call("ListRegistries")?;
        let rows = self.registries.lock().unwrap().values().map(api::ListedRegistry::of).collect();
        Ok(Response::new(ListPage { old_since: None, rows }.into()))
    }

    async fn publish(&self, request: Request<PublishRequest>) -> Result<Response<PublishResponse>, Status> {
        self.owners_call("Publish")?;
        let (terms, mut rules) = (PublishTerms::try_from(request.into_inner())?, self.published.lock().unwrap());
        let id = model::PublishId(7 + rules.len() as u64);
        let holder = terms.address().map(|_| MachineId([1; 16]));
        rules.push(ListedRule { record: PublishRecord { id, terms }, holder });
        Ok(Response::new(PublishResponse {}))
    }

    async fn list_published(
        &self,
        _: Request<ListPublishedRequest>,
    ) -> Result<Response<ListPublishedResponse>, Status> {
        self.owners_call("ListPublished")?;
        let rows = self.published.lock().unwrap().clone();
        Ok(Response::new(ListPage { old_since: None, rows }.into()))
    }

    async fn unpublish(&self, request: Request<UnpublishRequest>) -> Result<Response<UnpublishResponse>, Status> {
        self.owners_call("Unpublish")?;
        let id = request.into_inner().into();
        self.published.lock().unwrap().retain(|rule| rule.record.id != id);
        Ok(Response::new(UnpublishResponse {}))
    }

    async fn remove_registry(
        &self,
        request: Request<RemoveRegistryRequest>,
    ) -> Result<Response<RemoveRegistryResponse>, Status> {
        self.owners_call("RemoveRegistry")?;
        let host = RegistryHost::try_from(request.into_inner())?;
        self.registries.lock().unwrap().remove(&host);
        Ok(Response::new(RemoveRegistryResponse {}))
    }

    async fn add_user(&self, request: Request<AddUserRequest>) -> Result<Response<AddUserResponse>, Status> {
        self.owners_call("AddUser")?;
        let (terms, mut users) = (UserTerms::try_from(request.into_inner())?, self.users.lock().unwrap());
        match users.iter().find(|user| user.terms.name == terms.name) {
            Some(user) if user.terms != terms => {
                return Err(Status::failed_precondition(Denial::UserDiffers(terms.name).to_string()));
            }
            Some(_) => {}
            None => users.push(UserRecord { terms, added_by: OwnerPubKey([1; 32]), added_at: UnixSeconds(1) }),
        }
        Ok(Response::new(AddUserResponse {}))
    }

    async fn list_users(&self, _: Request<ListUsersRequest>) -> Result<Response<ListUsersResponse>, Status> {
        self.owners_call("ListUsers")?;
        let rows = self.users.lock().unwrap().clone();
        Ok(Response::new(ListPage { old_since: None, rows }.into()))
    }

    async fn remove_user(&self, request: Request<RemoveUserRequest>) -> Result<Response<RemoveUserResponse>, Status> {
        self.owners_call("RemoveUser")?;
        let name = model::UserName::try_from(request.into_inner())?;
        self.users.lock().unwrap().retain(|user| user.terms.name != name);
        Ok(Response::new(RemoveUserResponse {}))
    }

    async fn redeem(&self, _: Request<RedeemRequest>) -> Result<Response<RedeemResponse>, Status> {
        self.called("Redeem");
        Err(Status::failed_precondition("nobody joins a fake"))
    }

    async fn release_key(&self, _: Request<ReleaseKeyRequest>) -> Result<Response<ReleaseKeyResponse>, Status> {
        self.called("ReleaseKey");
        Err(Status::failed_precondition("a fake holds no keys"))
    }

    async fn recovery_record(
        &self,
        _: Request<RecoveryRecordRequest>,
    ) -> Result<Response<RecoveryRecordResponse>, Status> {
        self.owners_call("RecoveryRecord")?;
        Err(Status::failed_precondition("a fake waits for nothing"))
    }

    async fn give_cluster_key(
        &self,
        _: Request<GiveClusterKeyRequest>,
    ) -> Result<Response<GiveClusterKeyResponse>, Status> {
        self.owners_call("GiveClusterKey")?;
        Err(Status::failed_precondition("a fake waits for nothing"))
    }

    async fn directory(&self, _: Request<DirectoryRequest>) -> Result<Response<DirectoryResponse>, Status> {
        self.owners_call("Directory")?;
        Ok(Response::new(DirectoryResponse { directory: DIRECTORY.to_vec() }))
    }

    async fn give_directory(
        &self,
        request: Request<GiveDirectoryRequest>,
    ) -> Result<Response<GiveDirectoryResponse>, Status> {
        self.owners_call("GiveDirectory")?;
        if *self.refuses.lock().unwrap() {
            return Err(Status::invalid_argument("the directory that was given is not taken; nothing was changed"));
        }
        if let Some(given) = self.waits.lock().unwrap().as_mut() {
            given.push(request.into_inner().directory);
        }
        Ok(Response::new(GiveDirectoryResponse {}))
    }

    async fn contribute(&self, _: Request<Contribution>) -> Result<Response<Contribution>, Status> {
        self.called("Contribute");
        Err(Status::failed_precondition("a fake holds no share"))
    }

    async fn create_volume(&self, _: Request<CreateVolumeRequest>) -> Result<Response<CreateVolumeResponse>, Status> {
        self.called("CreateVolume");
        Err(no_coordinator_calls())
    }

    async fn expand_volume(&self, _: Request<ExpandVolumeRequest>) -> Result<Response<ExpandVolumeResponse>, Status> {
        self.called("ExpandVolume");
        Err(no_coordinator_calls())
    }

    async fn delete_volume(&self, _: Request<DeleteVolumeRequest>) -> Result<Response<DeleteVolumeResponse>, Status> {
        self.called("DeleteVolume");
        Err(no_coordinator_calls())
    }

    async fn volumes(&self, _: Request<VolumesRequest>) -> Result<Response<VolumesResponse>, Status> {
        self.called("Volumes");
        Err(no_coordinator_calls())
    }
}

/// Refusal of a call that coordinators alone make.
fn no_coordinator_calls() -> Status {
    Status::permission_denied("who calls a fake is no coordinator")
}
