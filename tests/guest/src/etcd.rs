//! This machine's etcd as others than PID 1 meet it: as the apiserver that somebody took over, as a member of etcd, and as
//! somebody without a certificate.

use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddrV4};
use std::sync::Arc;
use std::time::Duration;

use cluster::key::{Key, PREFIX};
use etcd::wire::etcdserverpb::alarm_request::AlarmAction;
use etcd::wire::etcdserverpb::{
    AlarmRequest, AlarmType, DeleteRangeRequest, PutRequest, RangeRequest, RequestOp, StatusRequest, TxnRequest,
    request_op,
};
use etcd::{KvClient, MaintenanceClient, WatchAnswer, WatchClient};
use hyper_util::rt::TokioIo;
use model::{Chain, MachineId, NodeName};
use pki::{Authority, AuthorityKind, CertificateProfile, ClientIdentity, UnixTime};
use rustls::pki_types::ServerName;
use rustls::time_provider::DefaultTimeProvider;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tonic::transport::{Channel, Endpoint, Uri};
use tonic::{Request, Response, Status};
use tower::service_fn;

use crate::say;

/// Longer than etcd itself tries (5 s, and two elections): it says why it refuses.
const ANSWERS: Duration = Duration::from_secs(10);
/// Key of nothing in the part that is the apiserver's.
const REGISTRY: &str = "/registry/cairn-test";

/// Why nobody could ask.
type Failed = Box<dyn std::error::Error + Send + Sync>;

/// Writes down etcd's answers to the callers, one line a question.
pub(super) fn ask() -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(ask_as_others()).map_err(io::Error::other)
}

/// Raises the alarm that a member raises whose file has reached its quota, by a certificate of PID 1's.
pub(super) fn full() -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(raise()).map_err(io::Error::other)
}

async fn raise() -> Result<(), Failed> {
    let root = CertificateProfile::EtcdMachineClient { machine: MachineId([0; 16]) };
    let mut maintenance = MaintenanceClient::new(link(&authority()?, Some(root))?);
    let header = in_time(maintenance.status(StatusRequest::default())).await?.header;
    let member_id = header.ok_or("it does not say who it is")?.member_id;
    let (action, alarm) = (AlarmAction::Activate.into(), AlarmType::Nospace.into());
    in_time(maintenance.alarm(AlarmRequest { action, member_id, alarm })).await?;
    say("raised");
    Ok(())
}

fn authority() -> Result<Authority, Failed> {
    let file = |name: &str| fs::read(format!("/data/cairn/etcd.{name}"));
    Ok(Authority::load(AuthorityKind::Etcd, &file("crt")?, &file("key")?)?)
}

async fn ask_as_others() -> Result<(), Failed> {
    let authority = authority()?;
    let node = NodeName::chosen("root")?;
    let machine = MachineId([0; 16]);
    let member = CertificateProfile::EtcdPeer { machine, node: &node, vpn: Ipv4Addr::LOCALHOST };
    for (who, profile) in [
        ("apiserver", Some(CertificateProfile::EtcdApiserverClient { machine })),
        ("member", Some(member)),
        ("nobody", None),
    ] {
        let link = link(&authority, profile)?;
        for (what, outcome) in [
            ("read /registry/", read(&link, "/registry/").await),
            ("write /registry/", write(&link, REGISTRY.into()).await),
            ("delete /registry/", delete(&link, REGISTRY.into()).await),
            ("read /cairn/", read(&link, PREFIX).await),
            ("write /cairn/", write(&link, Key::Version.bytes()).await),
            ("delete /cairn/", delete(&link, Key::Version.bytes()).await),
            ("watch /cairn/", watch(&link).await),
        ] {
            tell(who, what, outcome);
        }
    }
    ask_with_a_revoked_one(&authority).await
}

/// Shows a machine's certificate before and after it is listed as one that etcd refuses, and then another machine's: etcd
/// reads the list anew each time.
async fn ask_with_a_revoked_one(authority: &Authority) -> Result<(), Failed> {
    let ask = |machine| {
        let link = link(authority, Some(CertificateProfile::EtcdApiserverClient { machine }));
        async move { Ok::<_, Failed>(read(&link?, "/registry/").await) }
    };
    let (listed, other) = (MachineId([1; 16]), MachineId([2; 16]));
    tell("not yet revoked", "read /registry/", ask(listed).await?);
    fs::write(services::ETCD_REVOKED, authority.revoke(&[listed].into(), UnixTime::now())?)?;
    tell("revoked", "read /registry/", ask(listed).await?);
    tell("another", "read /registry/", ask(other).await?);
    Ok(())
}

fn tell(who: &str, what: &str, outcome: Result<(), Status>) {
    let outcome = outcome.map_or_else(|refused| Chain(&refused).to_string(), |()| String::from("granted"));
    say(&format!("{who}: {what}: {outcome}"));
}

/// A connection to this machine's etcd, made when it is asked, by a certificate that the machine's own authority gives.
fn link(authority: &Authority, profile: Option<CertificateProfile<'_>>) -> Result<Channel, Failed> {
    let issued = profile.map(|profile| authority.issue_with_key(&profile, UnixTime::now())).transpose()?;
    let identity = issued.as_ref().map(|issued| ClientIdentity::new(issued.identity())).transpose()?;
    let authority = authority.certificate().clone();
    let mut config = pki::server_auth::under_authority(authority, identity.as_ref(), Arc::new(DefaultTimeProvider))?;
    config.alpn_protocols = vec![b"h2".to_vec()];
    let (tls, address) = (TlsConnector::from(Arc::new(config)), Ipv4Addr::LOCALHOST);
    let connect = service_fn(move |_: Uri| {
        let tls = tls.clone();
        async move {
            let tcp = TcpStream::connect(SocketAddrV4::new(address, model::ETCD_CLIENT_PORT)).await?;
            let name = ServerName::from(IpAddr::from(address));
            Ok::<_, io::Error>(TokioIo::new(tls.connect(name, tcp).await?))
        }
    });
    Ok(Endpoint::from_static("https://etcd.cairn.internal").connect_with_connector_lazy(connect))
}

async fn read(link: &Channel, prefix: &str) -> Result<(), Status> {
    let asked = RangeRequest { key: prefix.into(), range_end: etcd::behind(prefix), ..RangeRequest::default() };
    in_time(KvClient::new(link.clone()).range(asked)).await.map(drop)
}

async fn write(link: &Channel, key: Vec<u8>) -> Result<(), Status> {
    let put = request_op::Request::RequestPut(PutRequest { key, value: vec![1] });
    let success = vec![RequestOp { request: Some(put) }];
    in_time(KvClient::new(link.clone()).txn(TxnRequest { success, ..TxnRequest::default() })).await.map(drop)
}

async fn delete(link: &Channel, key: Vec<u8>) -> Result<(), Status> {
    in_time(KvClient::new(link.clone()).delete_range(DeleteRangeRequest { key, range_end: vec![] })).await.map(drop)
}

/// etcd opens every watch, and ends at once what it refuses.
async fn watch(link: &Channel) -> Result<(), Status> {
    // It is created by the first message; a stream without a second one stays open.
    let asked = tokio_stream::StreamExt::chain(tokio_stream::once(etcd::watch_from(0)), tokio_stream::pending());
    let mut told = in_time(WatchClient::new(link.clone()).watch(Request::new(asked))).await?;
    let first = told.message().await?.ok_or_else(|| Status::cancelled("the watch ended"))?;
    match etcd::watched(first).map_err(|senseless| Status::data_loss(senseless.to_string()))? {
        WatchAnswer::Begun | WatchAnswer::Changes { .. } => Ok(()),
        WatchAnswer::Lost { reason } => Err(Status::permission_denied(reason)),
    }
}

/// Answer of etcd, if it comes within `ANSWERS`.
async fn in_time<T>(asked: impl Future<Output = Result<Response<T>, Status>>) -> Result<T, Status> {
    let silent = || Status::deadline_exceeded(format!("nothing within {} s", ANSWERS.as_secs()));
    timeout(ANSWERS, asked).await.map_err(|_elapsed| silent())?.map(Response::into_inner)
}
