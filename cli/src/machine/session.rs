//! The owner's calls to a machine that is pinned. The server proves to be exactly that machine before anything is sent;
//! we prove to be the owner by the key in the config.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use api::public_client::PublicClient;
use api::wire::{
    AddOwnerRequest, AddUserRequest, ChangeMachineRequest, CheckRemovalRequest, ConditionsRequest,
    DefragmentEtcdRequest, DefragmentEtcdResponse, DirectoryRequest, DrainMachineRequest, DrainMachineResponse,
    EraseRoleRequest, EtcdStatusRequest, GetStateRequest, GiveClusterKeyRequest, GiveDirectoryRequest,
    IssueTicketRequest, KubeconfigRequest, ListImagesRequest, ListMachinesRequest, ListOwnersRequest,
    ListPublishedRequest, ListRegistriesRequest, ListTicketsRequest, ListUsersRequest, ListVolumesRequest,
    MetricsRequest, PowerOffRequest, PublishRequest, RebootRequest, RecoverClusterRequest, RecoveryRecordRequest,
    RemoveImageRequest, RemoveOwnerRequest, RemoveRegistryRequest, RemoveUserRequest, RemoveVolumeRequest,
    RestartServiceRequest, RevokeTicketRequest, ServicesRequest, SetRegistryRequest, SnapshotKubernetesRequest,
    SnapshotKubernetesResponse, StatusRequest, TimelineRequest, UnpublishRequest, WaitConditionRequest,
};
use api::{
    ClientCertificate, Condition, DefragmentStep, DrainRequest, ImageToImport, ListPage, ListedEtcd, ListedImage,
    ListedMachine, ListedOwner, ListedRegistry, ListedRule, ListedTicket, LogEntry, LogQuery, MachineChange,
    MachineStatus, Milestone, NewTicket, OwnerHalf, PublicState, Recovery, RecoveryPlan, Service, Target,
    VolumeRemoval, WorkerVolumes, limits, whole_page,
};
use cluster::record;
use cluster::request::Offer;
use model::{MachineId, NodeName, OwnerPubKey, PublishId, RegistryHost, TicketId, UserName};
use pki::{IssueError, KeyError, TlsError, TlsIdentity};
use rustls::ClientConfig;
use rustls::time_provider::DefaultTimeProvider;
use tokio::io::DuplexStream;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_stream::StreamExt;
use tonic::transport::Channel;

use super::call::CallError;
use super::contact::ContactError;
use super::dial::{Address, DialError, Stream, channel, dial, secure};
use super::import::Import;
use super::restore::Restore;
use super::tunnel::{Tunnel, TunnelError};
use crate::clock::{ASK_AGAIN, Deadline};
use crate::failure::{Advice, Code};
use crate::store::{Owner, Pins};

/// A call that answers at once is given this long: a busy machine under emulation takes seconds.
const ANSWER: Duration = Duration::from_secs(30);

/// An authenticated connection to one machine.
#[derive(Debug)]
pub(crate) struct Session {
    client: PublicClient<Channel>,
    /// Carries its bytes, where they go through another machine.
    _carried: Option<JoinSet<Result<(), TunnelError>>>,
}

/// Why there is no session.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SessionError {
    /// The owner's key cannot be used.
    #[error("use the owner's key")]
    Key(#[from] KeyError),
    /// The owner's certificate cannot be made.
    #[error("make the owner's certificate")]
    Certificate(#[from] IssueError),
    /// TLS cannot be set up on this side.
    #[error("prepare TLS")]
    Tls(#[from] TlsError),
    /// No connection, or not to the pinned machine.
    #[error(transparent)]
    Dial(#[from] DialError),
    /// The machine that is to carry the bytes does not.
    #[error("reach it through another machine")]
    Through(#[source] CallError),
    /// Only plain addresses are carried to, and only to the public API's own port.
    #[error("{0} cannot be reached through a machine: that takes an IPv4 address, without another port")]
    NotOutside(Address),
}

impl Advice for SessionError {
    fn code(&self) -> Code {
        match self {
            Self::Dial(error) => error.code(),
            Self::Through(error) => error.code(),
            Self::NotOutside(_) => Code::Usage,
            Self::Key(_) | Self::Certificate(_) | Self::Tls(_) => Code::Failed,
        }
    }

    fn unchanged(&self) -> &'static str {
        "nothing was sent"
    }

    fn next(&self) -> Option<String> {
        match self {
            Self::Dial(error) => error.next(),
            Self::Through(CallError::NotFound { .. }) => {
                Some("see which machines there are: cairnctl machine list".to_owned())
            }
            Self::Through(error) => error.next(),
            Self::NotOutside(_) | Self::Key(_) | Self::Certificate(_) | Self::Tls(_) => None,
        }
    }
}

/// State that the machine at `address` tells anybody, without our proving anything. Without pins it is anybody's word.
pub(crate) async fn public_state(address: &Address, pins: Option<&Pins>) -> Result<PublicState, ContactError> {
    let time = Arc::new(DefaultTimeProvider);
    let (tls, name) = match pins {
        Some(pins) => (pki::server_auth::pinned(pins.authority, None, time)?, pins.tls_name()),
        None => (pki::danger::first_contact(time)?, "machine.cairn.internal".to_owned()),
    };
    let session = dial(address, tls, &name).await?;
    let mut client = PublicClient::new(channel(address, session).await?);
    let answer = client.get_state(GetStateRequest {}).await.map_err(CallError::of("GetState"))?;
    Ok(PublicState::try_from(answer.into_inner()).map_err(CallError::answer("GetState"))?)
}

impl Session {
    /// Dials the machine that `pins` describe, as `owner`.
    pub(crate) async fn open(address: &Address, pins: &Pins, owner: &Owner) -> Result<Self, SessionError> {
        let session = dial(address, client(pins, owner)?, &pins.tls_name()).await?;
        Self::over(address, session, None).await
    }

    /// The same with a machine that this one's machine carries bytes to. It is asked for the same proof as if it were dialled:
    /// whoever carries is believed nothing.
    pub(crate) async fn beyond(&self, name: &NodeName, pins: &Pins, owner: &Owner) -> Result<Self, SessionError> {
        let opened = self.tunnel().open(Target::Machine(pins.machine)).await;
        let (carried, carrying) = opened.map_err(SessionError::Through)?;
        let address = Address::of_name(name);
        let session = secure(&address, Box::new(carried), client(pins, owner)?, &pins.tls_name()).await?;
        Self::over(&address, session, Some(carrying)).await
    }

    /// A connection to the public API at an address outside of the cluster, carried by this session's machine.
    pub(super) async fn outside(
        &self,
        address: &Address,
    ) -> Result<(DuplexStream, JoinSet<Result<(), TunnelError>>), SessionError> {
        let outside = address.outside().ok_or_else(|| SessionError::NotOutside(address.clone()))?;
        self.tunnel().open(Target::Outside(outside)).await.map_err(SessionError::Through)
    }

    async fn over(
        address: &Address,
        session: Stream,
        carried: Option<JoinSet<Result<(), TunnelError>>>,
    ) -> Result<Self, SessionError> {
        let client = PublicClient::new(channel(address, session).await?);
        Ok(Self { client: client.max_decoding_message_size(limits::RESPONSE_BYTES), _carried: carried })
    }

    /// All about the machine.
    pub(crate) async fn status(&mut self) -> Result<MachineStatus, CallError> {
        let answer = soon("Status", self.client.status(StatusRequest {})).await?;
        answer.try_into().map_err(CallError::answer("Status"))
    }

    /// When this boot reached what.
    pub(crate) async fn timeline(&mut self) -> Result<Vec<Milestone>, CallError> {
        let answer = soon("Timeline", self.client.timeline(TimelineRequest {})).await?;
        answer.try_into().map_err(CallError::answer("Timeline"))
    }

    /// Services that the machine supervises.
    pub(crate) async fn services(&mut self) -> Result<Vec<Service>, CallError> {
        let answer = soon("Services", self.client.services(ServicesRequest {})).await?;
        answer.try_into().map_err(CallError::answer("Services"))
    }

    /// Starts a service anew.
    pub(crate) async fn restart_service(&mut self, name: &str) -> Result<(), CallError> {
        let request = RestartServiceRequest { name: name.to_owned() };
        soon("RestartService", self.client.restart_service(request)).await.map(drop)
    }

    /// Log entries until the stream ends, for ever when the query follows.
    pub(crate) async fn logs(
        &mut self,
        query: LogQuery,
    ) -> Result<impl tokio_stream::Stream<Item = Result<LogEntry, CallError>> + use<>, CallError> {
        let request: api::wire::LogsRequest = query.into();
        let entries = soon("Logs", self.client.logs(request)).await?;
        Ok(entries.map(|entry| entry.map(LogEntry::from).map_err(CallError::of("Logs"))))
    }

    /// Stops everything and boots again.
    pub(crate) async fn reboot(&mut self) -> Result<(), CallError> {
        soon("Reboot", self.client.reboot(RebootRequest {})).await.map(drop)
    }

    /// Stops everything and powers off.
    pub(crate) async fn power_off(&mut self) -> Result<(), CallError> {
        soon("PowerOff", self.client.power_off(PowerOffRequest {})).await.map(drop)
    }

    /// A Kubernetes client certificate for the key that signed `certificate_request`.
    pub(crate) async fn kubeconfig(&mut self, certificate_request: Vec<u8>) -> Result<ClientCertificate, CallError> {
        let request = KubeconfigRequest { certificate_request };
        Ok(soon("Kubeconfig", self.client.kubeconfig(request)).await?.into())
    }

    /// Conditions as they hold now.
    pub(crate) async fn conditions(&mut self) -> Result<Vec<Condition>, CallError> {
        let answer = soon("Conditions", self.client.conditions(ConditionsRequest {})).await?;
        answer.try_into().map_err(CallError::answer("Conditions"))
    }

    /// A condition and its changes, until it is true.
    pub(crate) async fn wait_condition(
        &mut self,
        name: &str,
    ) -> Result<impl tokio_stream::Stream<Item = Result<Condition, CallError>> + use<>, CallError> {
        let method = "WaitCondition";
        let request = WaitConditionRequest { name: name.to_owned() };
        let changes = soon(method, self.client.wait_condition(request)).await?;
        Ok(changes
            .map(move |change| change.map_err(CallError::of(method))?.try_into().map_err(CallError::answer(method))))
    }

    /// The machines of the cluster.
    pub(crate) async fn machines(&mut self) -> Result<ListPage<ListedMachine>, CallError> {
        self.list_machines(ListMachinesRequest { call: false }).await
    }

    /// The same, with when each was seen last: the coordinator looks who is there.
    pub(crate) async fn machines_seen(&mut self) -> Result<ListPage<ListedMachine>, CallError> {
        self.list_machines(ListMachinesRequest { call: true }).await
    }

    async fn list_machines(&mut self, request: ListMachinesRequest) -> Result<ListPage<ListedMachine>, CallError> {
        let method = "ListMachines";
        let pieces = soon(method, self.client.list_machines(request)).await?;
        whole(method, pieces).await
    }

    /// Changes what a machine is to the cluster.
    pub(crate) async fn change_machine(&mut self, machine: MachineId, change: MachineChange) -> Result<(), CallError> {
        let request: ChangeMachineRequest = (machine, change).into();
        decided(async || soon("ChangeMachine", self.client.change_machine(request.clone())).await.map(drop)).await
    }

    /// Asks whether a machine may leave without anybody's data.
    pub(crate) async fn check_removal(&mut self, machine: MachineId) -> Result<(), CallError> {
        let request = CheckRemovalRequest::from(machine);
        soon("CheckRemoval", self.client.check_removal(request)).await.map(drop)
    }

    /// Has a machine's node drained; what is left of its pods comes as it goes on.
    pub(crate) async fn drain_machine(&mut self, request: DrainRequest) -> Result<Looks, CallError> {
        soon(DRAIN, self.client.drain_machine(DrainMachineRequest::from(request))).await.map(Looks)
    }

    /// Has the cluster go on with this coordinator alone, or only says what that would mean.
    pub(crate) async fn recover_cluster(&mut self, proceed: bool) -> Result<RecoveryPlan, CallError> {
        let request = RecoverClusterRequest { proceed };
        soon("RecoverCluster", self.client.recover_cluster(request)).await.map(Into::into)
    }

    /// Has the machine erase what it has kept of the coordinator role.
    pub(crate) async fn erase_role(&mut self) -> Result<(), CallError> {
        soon("EraseRole", self.client.erase_role(EraseRoleRequest {})).await.map(drop)
    }

    /// Issues a ticket whose key is ours.
    pub(crate) async fn issue_ticket(&mut self, offer: Offer) -> Result<NewTicket, CallError> {
        let request: IssueTicketRequest = offer.into();
        let answer = decided(async || soon("IssueTicket", self.client.issue_ticket(request.clone())).await).await?;
        answer.try_into().map_err(CallError::answer("IssueTicket"))
    }

    /// All tickets of the cluster.
    pub(crate) async fn tickets(&mut self) -> Result<ListPage<ListedTicket>, CallError> {
        let method = "ListTickets";
        let pieces = soon(method, self.client.list_tickets(ListTicketsRequest {})).await?;
        whole(method, pieces).await
    }

    /// Has a ticket admit nobody any more.
    pub(crate) async fn revoke_ticket(&mut self, id: TicketId) -> Result<(), CallError> {
        let request: RevokeTicketRequest = id.into();
        decided(async || soon("RevokeTicket", self.client.revoke_ticket(request.clone())).await.map(drop)).await
    }

    /// Has a person own the cluster, too.
    pub(crate) async fn add_owner(&mut self, owner: record::OwnerRecord) -> Result<(), CallError> {
        let request: AddOwnerRequest = owner.into();
        decided(async || soon("AddOwner", self.client.add_owner(request.clone())).await.map(drop)).await
    }

    /// All owners of the cluster.
    pub(crate) async fn owners(&mut self) -> Result<ListPage<ListedOwner>, CallError> {
        let answer = soon("ListOwners", self.client.list_owners(ListOwnersRequest {})).await?;
        answer.try_into().map_err(CallError::answer("ListOwners"))
    }

    /// Says where images of a registry are pulled from.
    pub(crate) async fn set_registry(&mut self, registry: record::RegistryRecord) -> Result<(), CallError> {
        let request: SetRegistryRequest = registry.into();
        decided(async || soon("SetRegistry", self.client.set_registry(request.clone())).await.map(drop)).await
    }

    /// All registries that something was said of.
    pub(crate) async fn registries(&mut self) -> Result<ListPage<ListedRegistry>, CallError> {
        let answer = soon("ListRegistries", self.client.list_registries(ListRegistriesRequest {})).await?;
        answer.try_into().map_err(CallError::answer("ListRegistries"))
    }

    /// Says nothing of a registry any more.
    pub(crate) async fn remove_registry(&mut self, host: RegistryHost) -> Result<(), CallError> {
        let request: RemoveRegistryRequest = host.into();
        decided(async || soon("RemoveRegistry", self.client.remove_registry(request.clone())).await.map(drop)).await
    }

    /// Has a person use Kubernetes.
    pub(crate) async fn add_user(&mut self, terms: record::UserTerms) -> Result<(), CallError> {
        let request: AddUserRequest = terms.into();
        decided(async || soon("AddUser", self.client.add_user(request.clone())).await.map(drop)).await
    }

    /// All users of Kubernetes.
    pub(crate) async fn users(&mut self) -> Result<ListPage<record::UserRecord>, CallError> {
        let answer = soon("ListUsers", self.client.list_users(ListUsersRequest {})).await?;
        answer.try_into().map_err(CallError::answer("ListUsers"))
    }

    /// Has a person use Kubernetes no more.
    pub(crate) async fn remove_user(&mut self, name: UserName) -> Result<(), CallError> {
        let request: RemoveUserRequest = name.into();
        decided(async || soon("RemoveUser", self.client.remove_user(request.clone())).await.map(drop)).await
    }

    /// Opens ports of machines by a rule.
    pub(crate) async fn publish(&mut self, terms: record::PublishTerms) -> Result<(), CallError> {
        let request: PublishRequest = terms.into();
        decided(async || soon("Publish", self.client.publish(request.clone())).await.map(drop)).await
    }

    /// All rules that publish ports.
    pub(crate) async fn published(&mut self) -> Result<ListPage<ListedRule>, CallError> {
        let answer = soon("ListPublished", self.client.list_published(ListPublishedRequest {})).await?;
        answer.try_into().map_err(CallError::answer("ListPublished"))
    }

    /// Publishes nothing by a rule any more.
    pub(crate) async fn unpublish(&mut self, id: PublishId) -> Result<(), CallError> {
        let request: UnpublishRequest = id.into();
        decided(async || soon("Unpublish", self.client.unpublish(request)).await.map(drop)).await
    }

    /// Has the machine take an image; what it lacks of that it asks for.
    pub(crate) async fn import_image(&mut self, image: ImageToImport) -> Result<Import, CallError> {
        Import::begin(&mut self.client, image).await
    }

    /// The images of the machine's store.
    pub(crate) async fn images(&mut self) -> Result<Vec<ListedImage>, CallError> {
        let method = "ListImages";
        let pieces = soon(method, self.client.list_images(ListImagesRequest {})).await?;
        all(method, pieces).await
    }

    /// Takes an image's name from the machine's store.
    pub(crate) async fn remove_image(&mut self, name: &str) -> Result<(), CallError> {
        soon("RemoveImage", self.client.remove_image(RemoveImageRequest { name: name.to_owned() })).await.map(drop)
    }

    /// Volumes of all workers.
    pub(crate) async fn volumes(&mut self) -> Result<Vec<WorkerVolumes>, CallError> {
        let method = "ListVolumes";
        let pieces = soon(method, self.client.list_volumes(ListVolumesRequest {})).await?;
        all(method, pieces).await
    }

    /// Deletes a volume that nobody holds.
    pub(crate) async fn remove_volume(&mut self, removal: VolumeRemoval) -> Result<(), CallError> {
        soon("RemoveVolume", self.client.remove_volume(RemoveVolumeRequest::from(removal))).await.map(drop)
    }

    /// Members of etcd, each by its own word.
    pub(crate) async fn etcd_status(&mut self) -> Result<Vec<ListedEtcd>, CallError> {
        let answer = soon("EtcdStatus", self.client.etcd_status(EtcdStatusRequest {})).await?;
        answer.try_into().map_err(CallError::answer("EtcdStatus"))
    }

    /// Has these members of etcd defragmented, or all that vote; each step is told as it goes on.
    pub(crate) async fn defragment_etcd(&mut self, asked: &BTreeSet<MachineId>) -> Result<Defragmentation, CallError> {
        let request = DefragmentEtcdRequest::of(asked);
        soon(DEFRAGMENT, self.client.defragment_etcd(request)).await.map(Defragmentation)
    }

    /// Has the machine tell Kubernetes' objects as a snapshot.
    pub(crate) async fn snapshot_kubernetes(&mut self) -> Result<SnapshotPieces, CallError> {
        soon(SNAPSHOT, self.client.snapshot_kubernetes(SnapshotKubernetesRequest {})).await.map(SnapshotPieces)
    }

    /// Page of OpenMetrics of a service of the machine, or of the machine itself where the name is empty.
    pub(crate) async fn metrics(&mut self, service: &str) -> Result<String, CallError> {
        let request = MetricsRequest { service: service.to_owned() };
        let mut pieces = soon(METRICS, self.client.metrics(request)).await?;
        let mut page = Vec::new();
        loop {
            let piece = timeout(ANSWER, pieces.message()).await.map_err(|_| CallError::Late { method: METRICS })?;
            match piece.map_err(CallError::of(METRICS))? {
                Some(piece) => page.extend(piece.data),
                None => return whole_page(page).map_err(CallError::answer(METRICS)),
            }
        }
    }

    /// Has the machine take a snapshot of Kubernetes' objects, and restore it.
    pub(crate) async fn restore_kubernetes(&mut self) -> Result<Restore, CallError> {
        Restore::begin(&mut self.client).await
    }

    /// Has a person own the cluster no more.
    pub(crate) async fn remove_owner(&mut self, key: OwnerPubKey) -> Result<(), CallError> {
        let request: RemoveOwnerRequest = key.into();
        decided(async || soon("RemoveOwner", self.client.remove_owner(request.clone())).await.map(drop)).await
    }

    /// Recovery record that a machine that waits for its key shows its owner.
    pub(crate) async fn recovery_record(&mut self) -> Result<Recovery, CallError> {
        let answer = soon("RecoveryRecord", self.client.recovery_record(RecoveryRecordRequest {})).await?;
        answer.try_into().map_err(CallError::answer("RecoveryRecord"))
    }

    /// Gives such a machine the cluster's half of its key.
    pub(crate) async fn give_cluster_key(&mut self, given: OwnerHalf) -> Result<(), CallError> {
        let request = GiveClusterKeyRequest::from(given);
        soon("GiveClusterKey", self.client.give_cluster_key(request)).await.map(drop)
    }

    /// Where the coordinators are, as this one has signed it.
    pub(crate) async fn directory(&mut self) -> Result<Vec<u8>, CallError> {
        soon("Directory", self.client.directory(DirectoryRequest {})).await.map(|answer| answer.directory)
    }

    /// Gives a member such a directory.
    pub(crate) async fn give_directory(&mut self, directory: Vec<u8>) -> Result<(), CallError> {
        let request = GiveDirectoryRequest { directory };
        soon("GiveDirectory", self.client.give_directory(request)).await.map(drop)
    }

    /// A way to carry connections through this session.
    pub(crate) fn tunnel(&self) -> Tunnel {
        Tunnel::new(self.client.clone())
    }
}

/// TLS settings for a session: the owner who asks, and the machine that has to answer.
fn client(pins: &Pins, owner: &Owner) -> Result<ClientConfig, SessionError> {
    let key = owner.tls_key()?;
    let identity = TlsIdentity { chain: vec![owner.certificate(&key)?], key: &key };
    Ok(pki::server_auth::pinned(pins.authority, Some(identity), Arc::new(DefaultTimeProvider))?)
}

/// A list from its pieces.
async fn whole<P, T>(method: &'static str, pieces: tonic::Streaming<P>) -> Result<ListPage<T>, CallError>
where
    ListPage<T>: TryFrom<P, Error = api::FieldError>,
{
    let mut listed = ListPage::empty();
    all(method, pieces).await?.into_iter().for_each(|piece| listed.append(piece));
    Ok(listed)
}

/// Answers that come one by one.
async fn all<P, T>(method: &'static str, mut pieces: tonic::Streaming<P>) -> Result<Vec<T>, CallError>
where
    T: TryFrom<P, Error = api::FieldError>,
{
    let mut all = Vec::new();
    loop {
        let piece = timeout(ANSWER, pieces.message()).await.map_err(|_| CallError::Late { method })?;
        let Some(piece) = piece.map_err(CallError::of(method))? else { return Ok(all) };
        all.push(T::try_from(piece).map_err(CallError::answer(method))?);
    }
}

const DRAIN: &str = "DrainMachine";
/// A machine looks each second, and again for half a minute while its apiserver is silent.
const LOOK: Duration = Duration::from_secs(60);

/// Looks at the pods of a node that is being drained.
#[derive(Debug)]
pub(crate) struct Looks(tonic::Streaming<DrainMachineResponse>);

impl Looks {
    /// Pods that are left, each with its reason; none when the node is drained.
    pub(crate) async fn next(&mut self) -> Result<Option<Vec<(String, String)>>, CallError> {
        let look = timeout(LOOK, self.0.message()).await.map_err(|_| CallError::Late { method: DRAIN })?;
        let left = look.map_err(CallError::of(DRAIN))?.map(|look| look.left);
        Ok(left.map(|left| left.into_iter().map(|pod| (pod.pod, pod.why)).collect()))
    }
}

const DEFRAGMENT: &str = "DefragmentEtcd";
/// A machine waits five minutes for a member, and looks at all members behind it.
const STEP: Duration = Duration::from_secs(360);

/// Steps of a defragmentation that goes on.
#[derive(Debug)]
pub(crate) struct Defragmentation(tonic::Streaming<DefragmentEtcdResponse>);

impl Defragmentation {
    /// The next step; none once all is done.
    pub(crate) async fn next(&mut self) -> Result<Option<DefragmentStep>, CallError> {
        let step = timeout(STEP, self.0.message()).await.map_err(|_| CallError::Late { method: DEFRAGMENT })?;
        let step = step.map_err(CallError::of(DEFRAGMENT))?;
        step.map(DefragmentStep::try_from).transpose().map_err(CallError::answer(DEFRAGMENT))
    }
}

const METRICS: &str = "Metrics";
const SNAPSHOT: &str = "SnapshotKubernetes";

/// Pieces of a snapshot, which are not checked yet.
#[derive(Debug)]
pub(crate) struct SnapshotPieces(tonic::Streaming<SnapshotKubernetesResponse>);

impl SnapshotPieces {
    /// The next piece; none behind the last one.
    pub(crate) async fn next(&mut self) -> Result<Option<Vec<u8>>, CallError> {
        let piece = timeout(ANSWER, self.0.message()).await.map_err(|_| CallError::Late { method: SNAPSHOT })?;
        Ok(piece.map_err(CallError::of(SNAPSHOT))?.map(|piece| piece.data))
    }
}

/// A call for a change of the cluster's records, made again while the coordinator does not know what became of it, as in an
/// election of etcd's: what is asked twice is done once.
async fn decided<T>(mut call: impl AsyncFnMut() -> Result<T, CallError>) -> Result<T, CallError> {
    let deadline = Deadline::after(ANSWER);
    loop {
        match call().await {
            Err(CallError::Unknown { .. }) if deadline.left().is_some() => sleep(ASK_AGAIN).await,
            answered => return answered,
        }
    }
}

/// A call whose answer, or the start of it, comes soon or not at all.
pub(super) async fn soon<T>(
    method: &'static str,
    call: impl Future<Output = Result<tonic::Response<T>, tonic::Status>>,
) -> Result<T, CallError> {
    match timeout(ANSWER, call).await {
        Ok(answer) => answer.map(tonic::Response::into_inner).map_err(CallError::of(method)),
        Err(_) => Err(CallError::Late { method }),
    }
}
