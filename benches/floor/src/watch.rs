//! Milestones: seen with as little effort as there can be, told by a line on the console. One connection per server,
//! a look every quarter of a second at most.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::sync::Arc;
use std::time::Duration;

use benches::Milestone;
use bytes::Bytes;
use http_body_util::{BodyExt, Empty};
use hyper::Request;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use kube::node_status::{self, Readiness, ThisBoot};
use kube::{Credential, Plan};
use model::{ETCD_CLIENT_PORT, KUBERNETES_API_PORT};
use pki::{AuthorityKind, CertificateDer, Identity, PrivateKey};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{PrivatePkcs8KeyDer, ServerName};
use rustls::time_provider::DefaultTimeProvider;
use tokio::net::{TcpStream, UnixStream};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsConnector;

use crate::services::Services;
use crate::{Error, system};

/// Between two looks at a server that does not answer yet; Cairn's probes take the same.
const LOOK: Duration = Duration::from_millis(100);
/// Between two looks at the node; Cairn's observer takes the same.
const NODE_LOOK: Duration = Duration::from_millis(250);
/// A server that accepts and says nothing is asked again; Cairn's probes take the same.
const PATIENCE: Duration = Duration::from_secs(10);

/// Waits for containerd's socket; then starts what waits for it, and imports the images.
pub(crate) async fn containerd(services: Services) -> Result<(), Error> {
    while UnixStream::connect(kube::CONTAINERD_SOCKET).await.is_err() {
        sleep(LOOK).await;
    }
    tell(Milestone::Containerd);
    services.ready("containerd")?;
    while let Err(error) = import::import().await {
        system::say(&format!("floor: images are not imported yet: {error}"));
        sleep(LOOK).await;
    }
    Ok(())
}

/// Waits for etcd.
pub(crate) async fn etcd() -> Result<(), Error> {
    let address = SocketAddrV4::new(Ipv4Addr::LOCALHOST, ETCD_CLIENT_PORT);
    let mut server = Server::new(address.into(), AuthorityKind::Etcd, Credential::EtcdMachineClient)?;
    server.ready().await;
    tell(Milestone::Etcd);
    Ok(())
}

/// Waits for the apiserver, starts what waits for it, then waits for the node; as kubelet, for the floor has no observer.
pub(crate) async fn kubernetes(plan: Plan, services: Services) -> Result<(), Error> {
    let address = SocketAddr::from((plan.vpn, KUBERNETES_API_PORT));
    let mut server = Server::new(address, AuthorityKind::Kubernetes, Credential::KubeletClient)?;
    server.ready().await;
    tell(Milestone::Apiserver);
    services.ready("kube.apiserver")?;
    let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id");
    let id = id.map_err(|error| Error::System("read the boot's id", error))?;
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Realtime).tv_sec;
    let since = now - i64::try_from(system::uptime().as_secs()).unwrap_or(0);
    let boot = ThisBoot { id: id.trim(), since };
    let (node, lease) = (node_status::node_path(&plan.node), node_status::lease_path(&plan.node));
    loop {
        if let (Some((200, node)), Some((200, lease))) = (server.get(&node).await, server.get(&lease).await)
            && node_status::readiness(&node, &lease, boot).is_ok_and(|said| said == Readiness::Ready)
        {
            tell(Milestone::NodeReady);
            return Ok(());
        }
        sleep(NODE_LOOK).await;
    }
}

fn tell(milestone: Milestone) {
    system::say(&milestone.line(system::uptime()));
}

/// An HTTPS server, asked over one connection as long as that lasts.
struct Server {
    address: SocketAddr,
    connector: TlsConnector,
    open: Option<(SendRequest<Empty<Bytes>>, JoinSet<()>)>,
}

impl Server {
    fn new(address: SocketAddr, authority: AuthorityKind, client: Credential) -> Result<Self, Error> {
        let failed = |error: io::Error| Error::System("read the watcher's certificates", error);
        let authority = certificate(&kube::authority_path(authority)).map_err(failed)?;
        let chain = vec![certificate(&client.certificate_path()).map_err(failed)?];
        let key = key(&client.key_path()).map_err(failed)?;
        let identity = Identity { chain, key: &key };
        let tls = pki::server_auth::under_authority(authority, Some(identity), Arc::new(DefaultTimeProvider));
        let tls = tls.map_err(|error| failed(io::Error::other(error)))?;
        Ok(Self { address, connector: TlsConnector::from(Arc::new(tls)), open: None })
    }

    /// Waits until `/readyz` answers 200.
    async fn ready(&mut self) {
        while !matches!(self.get("/readyz").await, Some((200, _))) {
            sleep(LOOK).await;
        }
    }

    /// Status and body; nothing where there is no answer.
    async fn get(&mut self, path: &str) -> Option<(u16, Bytes)> {
        let answer = timeout(PATIENCE, self.exchange(path)).await.ok().and_then(Result::ok);
        if answer.is_none() {
            self.open = None;
        }
        answer
    }

    async fn exchange(&mut self, path: &str) -> io::Result<(u16, Bytes)> {
        let broken = |error: hyper::Error| io::Error::other(error);
        if self.open.is_none() {
            let stream = TcpStream::connect(self.address).await?;
            stream.set_nodelay(true)?;
            let name = ServerName::from(rustls::pki_types::IpAddr::from(self.address.ip()));
            let stream = self.connector.connect(name, stream).await?;
            let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(broken)?;
            let mut carrying = JoinSet::new();
            carrying.spawn(async move {
                let _the_sender_says_so_too = connection.await;
            });
            self.open = Some((sender, carrying));
        }
        let (sender, _) = self.open.as_mut().ok_or(io::ErrorKind::NotConnected)?;
        let request = Request::builder().uri(path).header("host", "localhost").body(Empty::new());
        let answer = sender.send_request(request.map_err(io::Error::other)?).await.map_err(broken)?;
        let status = answer.status().as_u16();
        Ok((status, answer.into_body().collect().await.map_err(broken)?.to_bytes()))
    }
}

fn certificate(path: &str) -> io::Result<CertificateDer<'static>> {
    CertificateDer::from_pem_file(path).map_err(io::Error::other)
}

fn key(path: &str) -> io::Result<PrivateKey> {
    let der = PrivatePkcs8KeyDer::from_pem_file(path).map_err(io::Error::other)?;
    PrivateKey::from_pkcs8(der.secret_pkcs8_der()).map_err(io::Error::other)
}
