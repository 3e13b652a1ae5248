//! Milestones: seen with as little effort as there can be, told by a line on the console. One connection per server,
//! a look every quarter of a second at most.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::sync::Arc;
use std::time::Duration;

use benches::BootMilestone;
use model::{ETCD_CLIENT_PORT, KUBERNETES_API_PORT};
use pki::{AuthorityKind, CertificateDer, ClientIdentity, PrivateKey, TlsIdentity};
use probe::http::{LocalServer, Session, Tls};
use probe::{PAUSE, Probe};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{PrivatePkcs8KeyDer, ServerName};
use rustls::time_provider::DefaultTimeProvider;
use services::node_status::{self, NodeReadiness, ThisBoot};
use services::{Credential, ServicePlan};
use tokio::time::sleep;

use crate::services::Services;
use crate::{Error, system};

/// Between two looks at the node; Cairn's observer takes the same.
const NODE_LOOK: Duration = Duration::from_millis(250);

/// Waits for containerd's socket; then starts what waits for it, and imports the images.
pub(crate) async fn containerd(services: Services) -> Result<(), Error> {
    Probe::UnixSocket(services::CONTAINERD_SOCKET.into()).succeeded().await;
    tell(BootMilestone::Containerd);
    services.ready("containerd")?;
    while let Err(error) = import::import().await {
        system::say(&format!("floor: images are not imported yet: {error}"));
        sleep(PAUSE).await;
    }
    Ok(())
}

/// Waits until etcd is ready, and tells so.
pub(crate) async fn etcd() -> Result<(), Error> {
    let address = SocketAddrV4::new(Ipv4Addr::LOCALHOST, ETCD_CLIENT_PORT);
    session(address.into(), AuthorityKind::Etcd, Credential::EtcdMachineClient)?.ready("/readyz").await;
    tell(BootMilestone::Etcd);
    Ok(())
}

/// Waits for the apiserver, starts what waits for it, then waits for the node; as the node, like Cairn.
pub(crate) async fn kubernetes(plan: ServicePlan, services: Services) -> Result<(), Error> {
    let address = SocketAddr::from((plan.vpn(), KUBERNETES_API_PORT));
    let mut apiserver = session(address, AuthorityKind::Kubernetes, Credential::KubeletClient)?;
    apiserver.ready("/readyz").await;
    tell(BootMilestone::Apiserver);
    services.ready("kube.apiserver")?;
    let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id");
    let id = id.map_err(|error| Error::System("read the boot's id", error))?;
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Realtime).tv_sec;
    let since = now - i64::try_from(system::uptime().as_secs()).unwrap_or(0);
    let boot = ThisBoot { id: id.trim(), since };
    let (node, lease) = (node_status::node_path(&plan.node), node_status::lease_path(&plan.node));
    loop {
        if let (Ok(node), Ok(lease)) = (apiserver.get(&node).await, apiserver.get(&lease).await)
            && (node.status, lease.status) == (200, 200)
            && node_status::readiness(&node.body, &lease.body, boot).is_ok_and(|said| said == NodeReadiness::Ready)
        {
            tell(BootMilestone::NodeReady);
            return Ok(());
        }
        sleep(NODE_LOOK).await;
    }
}

fn tell(milestone: BootMilestone) {
    system::say(&milestone.line(system::uptime()));
}

/// Asks an HTTPS server of this machine, as a client whose certificate Cairn would use.
fn session(address: SocketAddr, authority: AuthorityKind, client: Credential) -> Result<Session, Error> {
    let failed = |error: io::Error| Error::System("read the watcher's certificates", error);
    let authority = certificate(&services::authority_path(authority)).map_err(failed)?;
    let chain = vec![certificate(&client.certificate_path()).map_err(failed)?];
    let key = key(&client.key_path()).map_err(failed)?;
    let of_tls = |error| failed(io::Error::other(error));
    let identity = ClientIdentity::new(TlsIdentity { chain, key: &key }).map_err(of_tls)?;
    let config = pki::server_auth::under_authority(authority, Some(&identity), Arc::new(DefaultTimeProvider));
    let config = config.map_err(of_tls)?;
    let tls = Tls { name: ServerName::from(address.ip()), config: Arc::new(config) };
    Ok(Session::with(LocalServer { address, tls: Some(tls) }))
}

fn certificate(path: &str) -> io::Result<CertificateDer<'static>> {
    CertificateDer::from_pem_file(path).map_err(io::Error::other)
}

fn key(path: &str) -> io::Result<PrivateKey> {
    let der = PrivatePkcs8KeyDer::from_pem_file(path).map_err(io::Error::other)?;
    PrivateKey::from_pkcs8(der.secret_pkcs8_der()).map_err(io::Error::other)
}
