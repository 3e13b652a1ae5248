//! The public API's methods, one after the other: read facts and board, ask the trees, answer. Who may call is decided before
//! they run (`access`); what stays open is `streams`, what translates is `convert`.

use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::Arc;

#[cfg(feature = "faults")]
use api::debug_server::DebugServer;
use api::public_server::PublicServer;
use api::{
    ConditionName, HandedIn, KeyRequest, LeavingData, LogQuery, MachineChange, OwnerHalf, PublicState, Service, wire,
};
use cluster::record::{OwnerRecord, PublishTerms, RegistryRecord, UserTerms};
use cluster::request::{Asks, Offer};
use keys::cold_start::Contribution;
use model::{MachineId, OwnerPubKey, RegistryHost, TicketId, UserName};
use tonic::body::Body;
use tonic::codegen::{BoxFuture, Service as _, http};
use tonic::{Request, Response, Status, Streaming};

use super::context::{Context, GoingDown, no_member};
use super::convert;
#[cfg(feature = "faults")]
use super::debug::{self, Debug};
use super::streams::{self, Answers};
use super::{
    activate, cluster_volumes, contribute, drain, etcd, forward, images, leaving, machines, metrics, person, records,
    recover, redeem, release, restore, snapshot, volumes,
};
use crate::facts::Facts;
use crate::machine::power::PowerRequest;
use crate::network::mesh::roll::Seen;
use crate::rpc::access::{Methods, state};
use crate::rpc::session::Origin;
use crate::runtime::clock;
use crate::runtime::log;

/// All methods that the port has.
#[derive(Debug)]
pub(in crate::rpc) struct PublicMethods {
    context: Arc<Context>,
    public: PublicServer<Public>,
    #[cfg(feature = "faults")]
    debug: Option<DebugServer<Debug>>,
}

impl PublicMethods {
    /// Methods that read `context`; needs the runtime that the other trees run on.
    pub(in crate::rpc) fn new(context: Arc<Context>) -> Self {
        let public = PublicServer::new(Public(context.clone()))
            .max_decoding_message_size(api::limits::REQUEST_BYTES)
            .max_encoding_message_size(api::limits::RESPONSE_BYTES);
        #[cfg(feature = "faults")]
        let debug = debug::server(&context);
        Self {
            context,
            public,
            #[cfg(feature = "faults")]
            debug,
        }
    }
}

impl Methods for PublicMethods {
    fn facts(&self) -> &Facts {
        &self.context.facts
    }

    /// No machine calls here with the cluster's certificate: its own key is enough.
    fn knows(&self, _: &MachineId) -> bool {
        false
    }

    fn owner_called(&self) {
        self.context.entrance.owner_called();
    }

    fn called_early(&self, machine: MachineId, source: IpAddr) {
        self.context.entrance.ways.exchange.is_called_by(machine, source);
    }

    fn call(&self, request: http::Request<Body>) -> BoxFuture<http::Response<Body>, Infallible> {
        #[cfg(feature = "faults")]
        if let Some(debug) = self.debug.as_ref().filter(|_| request.uri().path().starts_with(debug::PATH)) {
            return debug.clone().call(request);
        }
        self.public.clone().call(request)
    }
}

/// Public service, as tonic's trait has it.
#[derive(Debug)]
struct Public(Arc<Context>);

#[tonic::async_trait]
impl api::public_server::Public for Public {
    async fn get_state(&self, _: Request<wire::GetStateRequest>) -> Result<Response<wire::GetStateResponse>, Status> {
        let mut nonce = [0; 32];
        aws_lc_rs::rand::fill(&mut nonce).map_err(|_| Status::internal("no random bytes"))?;
        let state = state(&self.0.facts)?;
        let boot = self.0.facts.boot();
        let version = crate::version::shown(boot.profile, boot.has_gvisor);
        Ok(Response::new(PublicState { version, state, nonce }.into()))
    }

    async fn claim(&self, request: Request<wire::ClaimRequest>) -> Result<Response<wire::ClaimResponse>, Status> {
        let exporter = origin(&request)?.exporter;
        let claim = self.0.entrance.claim(|claim| claim.answer(exporter))?;
        Ok(Response::new(claim.into()))
    }

    async fn prove_code(
        &self,
        request: Request<wire::ProveCodeRequest>,
    ) -> Result<Response<wire::ProveCodeResponse>, Status> {
        let proof = activate::prove(&self.0, origin(&request)?)?;
        Ok(Response::new(wire::ProveCodeResponse { proof: proof.to_vec() }))
    }

    async fn activate(
        &self,
        request: Request<wire::ActivateRequest>,
    ) -> Result<Response<wire::ActivateResponse>, Status> {
        let origin = origin(&request)?.clone();
        activate::activate(&self.0, &origin, HandedIn::try_from(request.into_inner())?).await?;
        Ok(Response::new(wire::ActivateResponse {}))
    }

    async fn status(&self, _: Request<wire::StatusRequest>) -> Result<Response<wire::StatusResponse>, Status> {
        Ok(Response::new(self.0.status()?.into()))
    }

    async fn timeline(&self, _: Request<wire::TimelineRequest>) -> Result<Response<wire::TimelineResponse>, Status> {
        Ok(Response::new(self.0.panel.shown.read(|_, words| words.timeline.clone()).into()))
    }

    async fn services(&self, _: Request<wire::ServicesRequest>) -> Result<Response<wire::ServicesResponse>, Status> {
        let services: Vec<Service> = self.0.panel.snapshots().into_iter().map(convert::service).collect();
        Ok(Response::new(services.into()))
    }

    async fn restart_service(
        &self,
        request: Request<wire::RestartServiceRequest>,
    ) -> Result<Response<wire::RestartServiceResponse>, Status> {
        let name = request.into_inner().name;
        for tree in self.0.panel.trees() {
            if tree.restart(&name).await.is_ok() {
                tracing::info!(service = name, "restart asked for by the owner");
                return Ok(Response::new(wire::RestartServiceResponse {}));
            }
        }
        Err(Status::not_found(format!("no service `{name}`; nothing was done; `cairnctl machine services` lists them")))
    }

    type MetricsStream = Answers<wire::MetricsResponse>;

    async fn metrics(&self, request: Request<wire::MetricsRequest>) -> Result<Response<Self::MetricsStream>, Status> {
        Ok(Response::new(metrics::tell(&self.0, request).await?))
    }

    type LogsStream = Answers<wire::LogEntry>;

    async fn logs(&self, request: Request<wire::LogsRequest>) -> Result<Response<Self::LogsStream>, Status> {
        let query = LogQuery::from(request.into_inner());
        let reader = log::Reader::new(query).ok_or_else(|| Status::unavailable("the log is not open"))?;
        Ok(Response::new(streams::logs(reader)))
    }

    async fn reboot(&self, _: Request<wire::RebootRequest>) -> Result<Response<wire::RebootResponse>, Status> {
        self.0.power(PowerRequest::Reboot).map_err(going_down)?;
        Ok(Response::new(wire::RebootResponse {}))
    }

    async fn power_off(&self, _: Request<wire::PowerOffRequest>) -> Result<Response<wire::PowerOffResponse>, Status> {
        self.0.power(PowerRequest::PowerOff).map_err(going_down)?;
        Ok(Response::new(wire::PowerOffResponse {}))
    }

    async fn kubeconfig(
        &self,
        request: Request<wire::KubeconfigRequest>,
    ) -> Result<Response<wire::KubeconfigResponse>, Status> {
        let (kubernetes, whose) = (self.0.reach.kubernetes()?, person::person(&request)?);
        let answer = kubernetes.certify(whose, &request.into_inner().certificate_request, clock::unix())?;
        Ok(Response::new(answer.into()))
    }

    type TunnelStream = Answers<wire::TunnelResponse>;

    async fn tunnel(
        &self,
        request: Request<Streaming<wire::TunnelRequest>>,
    ) -> Result<Response<Self::TunnelStream>, Status> {
        let whose = person::person(&request)?;
        let connect = async |target| forward::connect(&self.0, whose, target).await;
        Ok(Response::new(streams::tunnel(request.into_inner(), connect).await?))
    }

    async fn conditions(
        &self,
        _: Request<wire::ConditionsRequest>,
    ) -> Result<Response<wire::ConditionsResponse>, Status> {
        Ok(Response::new(self.0.panel.shown.read(|_, words| words.conditions.clone()).into()))
    }

    type WaitConditionStream = Answers<wire::Condition>;

    async fn wait_condition(
        &self,
        request: Request<wire::WaitConditionRequest>,
    ) -> Result<Response<Self::WaitConditionStream>, Status> {
        let name = request.into_inner().name;
        if ConditionName::from_word(&name).is_none() {
            return Err(Status::not_found(format!("no condition `{name}`; `cairnctl condition list` lists them")));
        }
        Ok(Response::new(streams::condition(self.0.panel.shown.clone(), name)))
    }

    type ListMachinesStream = Answers<wire::ListMachinesResponse>;

    async fn list_machines(
        &self,
        request: Request<wire::ListMachinesRequest>,
    ) -> Result<Response<Self::ListMachinesStream>, Status> {
        let records = self.0.reach.records()?;
        let mut seen = match self.0.reach.peers() {
            Some(told) if request.into_inner().call => told.roll().call().await,
            Some(_) | None => Seen::new(),
        };
        let this = self.0.facts.read(|now| now.names.as_ref().map(|names| names.machine));
        seen.insert(this.ok_or_else(no_member)?, clock::unix_millis());
        let pieces = records::machines(&records, &seen)?;
        Ok(Response::new(streams::pieces(pieces)))
    }

    async fn change_machine(
        &self,
        request: Request<wire::ChangeMachineRequest>,
    ) -> Result<Response<wire::ChangeMachineResponse>, Status> {
        let by = person::owner(&request)?;
        let (machine, change) = request.into_inner().try_into()?;
        if change == MachineChange::Drain(LeavingData::Kept) {
            leaving::check(&self.0, machine).await?;
        }
        records::change(&self.0.reach.records()?, by, machine, change).await?;
        Ok(Response::new(wire::ChangeMachineResponse {}))
    }

    async fn check_removal(
        &self,
        request: Request<wire::CheckRemovalRequest>,
    ) -> Result<Response<wire::CheckRemovalResponse>, Status> {
        leaving::check(&self.0, request.into_inner().try_into()?).await?;
        Ok(Response::new(wire::CheckRemovalResponse {}))
    }

    async fn recover_cluster(
        &self,
        request: Request<wire::RecoverClusterRequest>,
    ) -> Result<Response<wire::RecoverClusterResponse>, Status> {
        let by = person::owner(&request)?;
        let (records, proceed) = (self.0.reach.records()?, request.into_inner().proceed);
        if !proceed {
            return Ok(Response::new(records.recovery_plan(by).await?.into()));
        }
        let plan = records.recover(by).await?;
        self.0.reach.recovers.notify_one();
        Ok(Response::new(plan.into()))
    }

    async fn erase_role(
        &self,
        _: Request<wire::EraseRoleRequest>,
    ) -> Result<Response<wire::EraseRoleResponse>, Status> {
        self.0.reach.erase().map_err(|why| Status::failed_precondition(why.to_string()))?;
        Ok(Response::new(wire::EraseRoleResponse {}))
    }

    async fn issue_ticket(
        &self,
        request: Request<wire::IssueTicketRequest>,
    ) -> Result<Response<wire::IssueTicketResponse>, Status> {
        let by = person::owner(&request)?;
        let offer = Offer::try_from(request.into_inner())?;
        Ok(Response::new(records::issue(&self.0.reach.records()?, by, offer).await?.into()))
    }

    type ListTicketsStream = Answers<wire::ListTicketsResponse>;

    async fn list_tickets(
        &self,
        _: Request<wire::ListTicketsRequest>,
    ) -> Result<Response<Self::ListTicketsStream>, Status> {
        Ok(Response::new(streams::pieces(records::tickets(&self.0.reach.records()?)?)))
    }

    async fn revoke_ticket(
        &self,
        request: Request<wire::RevokeTicketRequest>,
    ) -> Result<Response<wire::RevokeTicketResponse>, Status> {
        let by = person::owner(&request)?;
        let id = TicketId::try_from(request.into_inner())?;
        records::ask(&self.0.reach.records()?, by, Asks::RevokeTicket(id)).await?;
        Ok(Response::new(wire::RevokeTicketResponse {}))
    }

    async fn add_owner(
        &self,
        request: Request<wire::AddOwnerRequest>,
    ) -> Result<Response<wire::AddOwnerResponse>, Status> {
        let by = person::owner(&request)?;
        let owner = OwnerRecord::try_from(request.into_inner())?;
        records::ask(&self.0.reach.records()?, by, Asks::AddOwner(owner)).await?;
        Ok(Response::new(wire::AddOwnerResponse {}))
    }

    async fn list_owners(
        &self,
        _: Request<wire::ListOwnersRequest>,
    ) -> Result<Response<wire::ListOwnersResponse>, Status> {
        Ok(Response::new(records::owners(&self.0.reach.records()?)?.into()))
    }

    async fn remove_owner(
        &self,
        request: Request<wire::RemoveOwnerRequest>,
    ) -> Result<Response<wire::RemoveOwnerResponse>, Status> {
        let by = person::owner(&request)?;
        let key = OwnerPubKey::try_from(request.into_inner())?;
        records::ask(&self.0.reach.records()?, by, Asks::RemoveOwner(key)).await?;
        Ok(Response::new(wire::RemoveOwnerResponse {}))
    }

    async fn set_registry(
        &self,
        request: Request<wire::SetRegistryRequest>,
    ) -> Result<Response<wire::SetRegistryResponse>, Status> {
        let by = person::owner(&request)?;
        let registry = RegistryRecord::try_from(request.into_inner())?;
        records::set_registry(&self.0.reach.records()?, by, registry).await?;
        Ok(Response::new(wire::SetRegistryResponse {}))
    }

    async fn list_registries(
        &self,
        _: Request<wire::ListRegistriesRequest>,
    ) -> Result<Response<wire::ListRegistriesResponse>, Status> {
        Ok(Response::new(records::registries(&self.0.reach.records()?)?.into()))
    }

    async fn publish(&self, request: Request<wire::PublishRequest>) -> Result<Response<wire::PublishResponse>, Status> {
        let by = person::owner(&request)?;
        let terms = PublishTerms::try_from(request.into_inner())?;
        records::ask(&self.0.reach.records()?, by, Asks::Publish(terms.into())).await?;
        Ok(Response::new(wire::PublishResponse {}))
    }

    async fn list_published(
        &self,
        _: Request<wire::ListPublishedRequest>,
    ) -> Result<Response<wire::ListPublishedResponse>, Status> {
        Ok(Response::new(records::published(&self.0.reach.records()?)?.into()))
    }

    async fn unpublish(
        &self,
        request: Request<wire::UnpublishRequest>,
    ) -> Result<Response<wire::UnpublishResponse>, Status> {
        let by = person::owner(&request)?;
        let id = request.into_inner().into();
        records::ask(&self.0.reach.records()?, by, Asks::Unpublish(id)).await?;
        Ok(Response::new(wire::UnpublishResponse {}))
    }

    async fn remove_registry(
        &self,
        request: Request<wire::RemoveRegistryRequest>,
    ) -> Result<Response<wire::RemoveRegistryResponse>, Status> {
        let by = person::owner(&request)?;
        let host = RegistryHost::try_from(request.into_inner())?;
        records::ask(&self.0.reach.records()?, by, Asks::RemoveRegistry(host)).await?;
        Ok(Response::new(wire::RemoveRegistryResponse {}))
    }

    async fn add_user(
        &self,
        request: Request<wire::AddUserRequest>,
    ) -> Result<Response<wire::AddUserResponse>, Status> {
        let by = person::owner(&request)?;
        let terms = UserTerms::try_from(request.into_inner())?;
        records::ask(&self.0.reach.records()?, by, Asks::AddUser(terms)).await?;
        Ok(Response::new(wire::AddUserResponse {}))
    }

    async fn list_users(
        &self,
        _: Request<wire::ListUsersRequest>,
    ) -> Result<Response<wire::ListUsersResponse>, Status> {
        Ok(Response::new(records::users(&self.0.reach.records()?)?.into()))
    }

    async fn remove_user(
        &self,
        request: Request<wire::RemoveUserRequest>,
    ) -> Result<Response<wire::RemoveUserResponse>, Status> {
        let by = person::owner(&request)?;
        let name = UserName::try_from(request.into_inner())?;
        records::ask(&self.0.reach.records()?, by, Asks::RemoveUser(name)).await?;
        Ok(Response::new(wire::RemoveUserResponse {}))
    }

    type DrainMachineStream = Answers<wire::DrainMachineResponse>;

    async fn drain_machine(
        &self,
        request: Request<wire::DrainMachineRequest>,
    ) -> Result<Response<Self::DrainMachineStream>, Status> {
        Ok(Response::new(drain::drain(&self.0, request.into_inner().try_into()?)?))
    }

    type ImportImageStream = Answers<wire::ImportImageResponse>;

    async fn import_image(
        &self,
        request: Request<Streaming<wire::ImportImageRequest>>,
    ) -> Result<Response<Self::ImportImageStream>, Status> {
        Ok(Response::new(images::import(&self.0.reach.imports, request.into_inner()).await?))
    }

    type ListImagesStream = Answers<wire::ListImagesResponse>;

    async fn list_images(
        &self,
        _: Request<wire::ListImagesRequest>,
    ) -> Result<Response<Self::ListImagesStream>, Status> {
        Ok(Response::new(streams::pieces(images::list().await?)))
    }

    async fn remove_image(
        &self,
        request: Request<wire::RemoveImageRequest>,
    ) -> Result<Response<wire::RemoveImageResponse>, Status> {
        images::remove(&request.into_inner().name).await?;
        Ok(Response::new(wire::RemoveImageResponse {}))
    }

    type ListVolumesStream = Answers<wire::ListVolumesResponse>;

    async fn list_volumes(
        &self,
        _: Request<wire::ListVolumesRequest>,
    ) -> Result<Response<Self::ListVolumesStream>, Status> {
        Ok(Response::new(streams::pieces(cluster_volumes::list(&self.0).await?)))
    }

    async fn remove_volume(
        &self,
        request: Request<wire::RemoveVolumeRequest>,
    ) -> Result<Response<wire::RemoveVolumeResponse>, Status> {
        cluster_volumes::remove(&self.0, request.into_inner().try_into()?).await?;
        Ok(Response::new(wire::RemoveVolumeResponse {}))
    }

    async fn etcd_status(
        &self,
        _: Request<wire::EtcdStatusRequest>,
    ) -> Result<Response<wire::EtcdStatusResponse>, Status> {
        Ok(Response::new(etcd::list(&self.0).await?))
    }

    type DefragmentEtcdStream = Answers<wire::DefragmentEtcdResponse>;

    async fn defragment_etcd(
        &self,
        request: Request<wire::DefragmentEtcdRequest>,
    ) -> Result<Response<Self::DefragmentEtcdStream>, Status> {
        Ok(Response::new(etcd::defragment(&self.0, request.into_inner().machines()?)?))
    }

    type SnapshotKubernetesStream = Answers<wire::SnapshotKubernetesResponse>;

    async fn snapshot_kubernetes(
        &self,
        _: Request<wire::SnapshotKubernetesRequest>,
    ) -> Result<Response<Self::SnapshotKubernetesStream>, Status> {
        Ok(Response::new(snapshot::take(&self.0)?))
    }

    type RestoreKubernetesStream = Answers<wire::RestoreKubernetesResponse>;

    async fn restore_kubernetes(
        &self,
        request: Request<Streaming<wire::RestoreKubernetesRequest>>,
    ) -> Result<Response<Self::RestoreKubernetesStream>, Status> {
        let by = person::owner(&request)?;
        Ok(Response::new(restore::restore(&self.0, by, request.into_inner())?))
    }

    async fn redeem(&self, request: Request<wire::RedeemRequest>) -> Result<Response<wire::RedeemResponse>, Status> {
        let machine = machines::caller(&request)?;
        let request = request.into_inner().request;
        let response = redeem::redeem(&self.0.reach.machines, &self.0.reach.records()?, machine, &request).await?;
        Ok(Response::new(wire::RedeemResponse { response }))
    }

    async fn release_key(
        &self,
        request: Request<wire::ReleaseKeyRequest>,
    ) -> Result<Response<wire::ReleaseKeyResponse>, Status> {
        let (key, _) = machines::caller(&request)?;
        let asked = KeyRequest::try_from(request.into_inner())?;
        Ok(Response::new(release::release(&self.0.reach.machines, &self.0.reach.records()?, key, asked).await?.into()))
    }

    async fn recovery_record(
        &self,
        _: Request<wire::RecoveryRecordRequest>,
    ) -> Result<Response<wire::RecoveryRecordResponse>, Status> {
        Ok(Response::new(recover::record(&self.0.entrance.ways.rescue)?.into()))
    }

    async fn give_cluster_key(
        &self,
        request: Request<wire::GiveClusterKeyRequest>,
    ) -> Result<Response<wire::GiveClusterKeyResponse>, Status> {
        let given = OwnerHalf::try_from(request.into_inner())?;
        recover::give(&self.0.entrance.ways.rescue, given).await?;
        Ok(Response::new(wire::GiveClusterKeyResponse {}))
    }

    async fn directory(&self, _: Request<wire::DirectoryRequest>) -> Result<Response<wire::DirectoryResponse>, Status> {
        Ok(Response::new(wire::DirectoryResponse { directory: self.0.reach.records()?.directory()? }))
    }

    async fn give_directory(
        &self,
        request: Request<wire::GiveDirectoryRequest>,
    ) -> Result<Response<wire::GiveDirectoryResponse>, Status> {
        recover::renew(&self.0.entrance.ways.rescue, request.into_inner().directory).await?;
        Ok(Response::new(wire::GiveDirectoryResponse {}))
    }

    async fn contribute(&self, request: Request<wire::Contribution>) -> Result<Response<wire::Contribution>, Status> {
        let machine = machines::caller(&request)?;
        let given = Contribution::try_from(request.into_inner())?;
        Ok(Response::new(contribute::contribute(&self.0, machine, given).await?.into()))
    }

    async fn create_volume(
        &self,
        request: Request<wire::CreateVolumeRequest>,
    ) -> Result<Response<wire::CreateVolumeResponse>, Status> {
        let (key, _) = machines::caller(&request)?;
        volumes::ordered_by(&self.0, key)?.create(request.into_inner().try_into()?).await?;
        Ok(Response::new(wire::CreateVolumeResponse {}))
    }

    async fn expand_volume(
        &self,
        request: Request<wire::ExpandVolumeRequest>,
    ) -> Result<Response<wire::ExpandVolumeResponse>, Status> {
        let (key, _) = machines::caller(&request)?;
        volumes::ordered_by(&self.0, key)?.expand(request.into_inner().try_into()?).await?;
        Ok(Response::new(wire::ExpandVolumeResponse {}))
    }

    async fn delete_volume(
        &self,
        request: Request<wire::DeleteVolumeRequest>,
    ) -> Result<Response<wire::DeleteVolumeResponse>, Status> {
        let (key, _) = machines::caller(&request)?;
        volumes::ordered_by(&self.0, key)?.delete(request.into_inner().try_into()?).await?;
        Ok(Response::new(wire::DeleteVolumeResponse {}))
    }

    async fn volumes(&self, request: Request<wire::VolumesRequest>) -> Result<Response<wire::VolumesResponse>, Status> {
        let (key, _) = machines::caller(&request)?;
        Ok(Response::new(volumes::ordered_by(&self.0, key)?.list().await?.into()))
    }
}

/// The connection that a call came on.
fn origin<T>(request: &Request<T>) -> Result<&Origin, Status> {
    request.extensions().get().ok_or_else(|| Status::internal("no session"))
}

fn going_down(error: GoingDown) -> Status {
    Status::unavailable(error.to_string())
}
