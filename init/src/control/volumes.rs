//! The driver of this machine's volumes, as kubelet finds and calls it: registration and Container Storage Interface, on sockets
//! that root alone opens. Translates and answers; what is asked is judged by `volumes`, and performed by `storage`.
//!
//! ```text
//!   kubelet ─ watches its folder ─► REGISTRATION: name, and the socket beside
//!           ─ dials ──────────────► ENDPOINT: mount, unmount, how full, more room
//! ```

use std::convert::Infallible;
use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::Path;

use csi::wire::csi as wire;
use csi::wire::csi::identity_server::SERVICE_NAME as IDENTITY;
use csi::wire::csi::node_server::SERVICE_NAME as NODE;
use csi::wire::pluginregistration as registration;
use csi::wire::pluginregistration::registration_server::SERVICE_NAME as REGISTER;
use csi::{IdentityServer, NodeServer, RegistrationServer};
use hyper::server::conn::http2;
use hyper_util::rt::{TokioIo, TokioTimer};
use model::{Chain, MachineId};
use tokio::net::UnixListener;
use tokio::task::JoinSet;
use tonic::body::Body;
use tonic::codegen::http::Request as HttpRequest;
use tonic::codegen::http::Response as HttpResponse;
use tonic::codegen::{Body as AnyBody, BoxFuture, Bytes, Service as _, StdError};
use tonic::{Request, Response, Status};
use volumes::VolumeId;
use volumes::node::{ExpandOrder, PublishRequest, UnpublishOrder};

use crate::runtime::streams::{EndsStreams, Streams};
use crate::storage::{VolumeError, Volumes};

/// Folder that kubelet watches for drivers.
const PLUGINS: &str = "/data/kubelet/plugins_registry";
/// Socket in it. Kubelet's client names a server by the path that it dials, with every `/` written as `%2F`, which HTTP allows
/// in front of an `@` alone.
const REGISTRATION: &str = "driver@local.cairn.internal";
/// Socket of the driver itself: memory, gone with the boot.
const ENDPOINT: &str = "/run/cairn/kube/volumes.sock";
/// Connections at a time: kubelet dials once for each call.
const CONNECTIONS: usize = 64;
/// Requests of one connection at a time.
const REQUESTS: u32 = 16;
/// Largest request; a path and a few words.
const REQUEST_BYTES: usize = 64 << 10;

/// Why the driver serves no longer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DriverError {
    /// A socket cannot be made.
    #[error("listen at `{0}`")]
    Listen(String, #[source] io::Error),
    /// A socket takes no more connections.
    #[error("accept kubelet")]
    Accept(#[source] io::Error),
}

/// Serves kubelet; a task for good.
pub(super) async fn serve(machine: MachineId, volumes: Volumes) -> Result<Infallible, DriverError> {
    // What a cut has left is finished before the first pod asks.
    if let Err(error) = volumes.list().await {
        tracing::error!(error = %Chain(&error), "the volumes cannot be looked at");
    }
    let driver = Driver {
        identity: IdentityServer::new(Identity).max_decoding_message_size(REQUEST_BYTES),
        node: NodeServer::new(Node { machine, volumes }).max_decoding_message_size(REQUEST_BYTES),
        registration: RegistrationServer::new(Registration).max_decoding_message_size(REQUEST_BYTES),
    };
    let folder = Path::new(PLUGINS);
    let made = DirBuilder::new().recursive(true).mode(0o750).create(folder);
    made.map_err(|error| DriverError::Listen(PLUGINS.to_owned(), error))?;
    let endpoint = listen(Path::new(ENDPOINT))?;
    // Second: whoever finds it dials the other at once.
    let registration = listen(&folder.join(REGISTRATION))?;
    let mut connections = JoinSet::new();
    loop {
        let stream = tokio::select! {
            accepted = endpoint.accept(), if connections.len() < CONNECTIONS => accepted,
            accepted = registration.accept(), if connections.len() < CONNECTIONS => accepted,
            Some(_ended) = connections.join_next() => continue,
        };
        let (stream, _) = stream.map_err(DriverError::Accept)?;
        let driver = driver.clone();
        connections.spawn(async move {
            let streams = Streams::default();
            let _end_with_it = EndsStreams(streams.clone());
            let mut http = http2::Builder::new(streams);
            http.timer(TokioTimer::new()).max_concurrent_streams(REQUESTS);
            if let Err(error) = http.serve_connection(TokioIo::new(stream), driver).await {
                tracing::debug!(%error, "a connection of kubelet's ended");
            }
        });
    }
}

/// Listens at a path where an earlier boot may have listened. Root alone connects.
fn listen(path: &Path) -> Result<UnixListener, DriverError> {
    let failed = |error| DriverError::Listen(path.display().to_string(), error);
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
        Ok(()) | Err(_) => {}
    }
    let listener = UnixListener::bind(path).map_err(failed)?;
    fs::set_permissions(path, Permissions::from_mode(0o600)).map_err(failed)?;
    Ok(listener)
}

/// All services, on both sockets.
#[derive(Debug, Clone)]
struct Driver {
    identity: IdentityServer<Identity>,
    node: NodeServer<Node>,
    registration: RegistrationServer<Registration>,
}

impl<B> hyper::service::Service<HttpRequest<B>> for Driver
where
    B: AnyBody<Data = Bytes> + Send + 'static,
    B::Error: Into<StdError> + Send,
{
    type Response = HttpResponse<Body>;
    type Error = Infallible;
    type Future = BoxFuture<HttpResponse<Body>, Infallible>;

    fn call(&self, request: HttpRequest<B>) -> Self::Future {
        let Self { mut identity, mut node, mut registration } = self.clone();
        match request.uri().path().split('/').nth(1) {
            Some(IDENTITY) => identity.call(request),
            Some(NODE) => node.call(request),
            Some(REGISTER) => registration.call(request),
            Some(_) | None => Box::pin(async { Ok(Status::unimplemented("no such service").into_http()) }),
        }
    }
}

/// Registration of the driver at kubelet.
#[derive(Debug)]
struct Registration;

#[tonic::async_trait]
impl csi::Registration for Registration {
    async fn get_info(
        &self,
        _: Request<registration::InfoRequest>,
    ) -> Result<Response<registration::PluginInfo>, Status> {
        Ok(Response::new(csi::registration(ENDPOINT)))
    }

    async fn notify_registration_status(
        &self,
        request: Request<registration::RegistrationStatus>,
    ) -> Result<Response<registration::RegistrationStatusResponse>, Status> {
        let registration::RegistrationStatus { plugin_registered, error } = request.into_inner();
        if plugin_registered {
            tracing::info!("kubelet knows the driver of volumes");
        } else {
            // It tries again.
            tracing::warn!(error, "kubelet does not take the driver of volumes");
        }
        Ok(Response::new(registration::RegistrationStatusResponse {}))
    }
}

/// Name and nature of the driver.
#[derive(Debug)]
struct Identity;

#[tonic::async_trait]
impl csi::Identity for Identity {
    async fn get_plugin_info(
        &self,
        _: Request<wire::GetPluginInfoRequest>,
    ) -> Result<Response<wire::GetPluginInfoResponse>, Status> {
        let vendor_version = env!("CARGO_PKG_VERSION").to_owned();
        Ok(Response::new(wire::GetPluginInfoResponse { name: volumes::DRIVER.to_owned(), vendor_version }))
    }

    async fn get_plugin_capabilities(
        &self,
        _: Request<wire::GetPluginCapabilitiesRequest>,
    ) -> Result<Response<wire::GetPluginCapabilitiesResponse>, Status> {
        Ok(Response::new(csi::expansion()))
    }

    async fn probe(&self, _: Request<wire::ProbeRequest>) -> Result<Response<wire::ProbeResponse>, Status> {
        Ok(Response::new(wire::ProbeResponse {}))
    }
}

/// Volumes of this machine, for its pods.
#[derive(Debug)]
struct Node {
    machine: MachineId,
    volumes: Volumes,
}

#[tonic::async_trait]
impl csi::Node for Node {
    async fn node_publish_volume(
        &self,
        request: Request<wire::NodePublishVolumeRequest>,
    ) -> Result<Response<wire::NodePublishVolumeResponse>, Status> {
        let order = PublishRequest::from(request.into_inner()).order().map_err(|why| csi::refused(&why))?;
        self.volumes.publish(order).await.map_err(|error| failed(&error))?;
        Ok(Response::new(wire::NodePublishVolumeResponse {}))
    }

    async fn node_unpublish_volume(
        &self,
        request: Request<wire::NodeUnpublishVolumeRequest>,
    ) -> Result<Response<wire::NodeUnpublishVolumeResponse>, Status> {
        let order = UnpublishOrder::try_from(request.into_inner()).map_err(|why| csi::refused(&why))?;
        self.volumes.unpublish(order).await.map_err(|error| failed(&error))?;
        Ok(Response::new(wire::NodeUnpublishVolumeResponse {}))
    }

    async fn node_get_volume_stats(
        &self,
        request: Request<wire::NodeGetVolumeStatsRequest>,
    ) -> Result<Response<wire::NodeGetVolumeStatsResponse>, Status> {
        let volume = VolumeId::parse(&request.into_inner().volume_id).map_err(|why| csi::refused(&why.into()))?;
        let found = self.volumes.look(volume).await.map_err(|error| failed(&error))?;
        Ok(Response::new(csi::usage(found.bytes, found.used)))
    }

    async fn node_expand_volume(
        &self,
        request: Request<wire::NodeExpandVolumeRequest>,
    ) -> Result<Response<wire::NodeExpandVolumeResponse>, Status> {
        let ExpandOrder { volume, bytes } = request.into_inner().try_into().map_err(|why| csi::refused(&why))?;
        self.volumes.expand(volume, bytes).await.map_err(|error| failed(&error))?;
        let found = self.volumes.look(volume).await.map_err(|error| failed(&error))?;
        let capacity_bytes = i64::try_from(found.bytes).unwrap_or(i64::MAX);
        Ok(Response::new(wire::NodeExpandVolumeResponse { capacity_bytes }))
    }

    async fn node_get_capabilities(
        &self,
        _: Request<wire::NodeGetCapabilitiesRequest>,
    ) -> Result<Response<wire::NodeGetCapabilitiesResponse>, Status> {
        Ok(Response::new(csi::capabilities()))
    }

    async fn node_get_info(
        &self,
        _: Request<wire::NodeGetInfoRequest>,
    ) -> Result<Response<wire::NodeGetInfoResponse>, Status> {
        // Its id and not its name: a new machine of an old name has none of its volumes.
        Ok(Response::new(wire::NodeGetInfoResponse { node_id: self.machine.to_string() }))
    }
}

/// Status by which kubelet knows whether to ask again.
fn failed(error: &VolumeError) -> Status {
    let text = Chain(error).to_string();
    match error {
        VolumeError::NoSuchVolume(_) => Status::not_found(text),
        VolumeError::NoRoom(_) => Status::out_of_range(text),
        VolumeError::Occupied(_) => Status::already_exists(text),
        VolumeError::NoWorker | VolumeError::Delete(_) => Status::failed_precondition(text),
        VolumeError::Ending => Status::unavailable(text),
        VolumeError::Look(_) | VolumeError::Step(..) | VolumeError::Mount(..) => Status::internal(text),
    }
}

#[cfg(test)]
mod tests {
    use tonic::codegen::http::uri::Authority;

    use super::*;

    /// Kubelet's client names the server by the path that it dials, as `encodeAuthority` of grpc-go spells it.
    #[test]
    fn the_socket_has_a_name_that_http_allows() {
        let spelt = |name: &str| format!("{PLUGINS}/{name}").replace('/', "%2F").parse::<Authority>();
        spelt(REGISTRATION).expect("it is allowed");
        spelt("local.cairn.internal.sock").expect_err("the usual name is not");
    }

    /// The folder of kubelet's plugins is on the disk, and outlives a boot that did not end well.
    #[tokio::test]
    async fn a_socket_of_an_earlier_boot_makes_way() {
        let place = tempfile::tempdir().expect("a place");
        let path = place.path().join("socket");
        drop(listen(&path).expect("nobody listens"));
        let again = listen(&path).expect("nobody listens any more");
        let mode = fs::metadata(&path).expect("it is there").permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "root alone connects");
        let (connected, accepted) = tokio::join!(tokio::net::UnixStream::connect(&path), again.accept());
        assert!(connected.is_ok() && accepted.is_ok());
    }
}
