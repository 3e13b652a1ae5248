//! This machine's etcd as others than PID 1 meet it, for the debug profile's test: as the apiserver that somebody took over,
//! as a member of etcd, and as somebody without a certificate.

use std::fs;
use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::Arc;

use cluster::key::{Key, PREFIX};
use etcd::WatchAnswer;
use etcd::wire::etcdserverpb::{DeleteRangeRequest, PutRequest, RangeRequest, RequestOp, TxnRequest, request_op};
use model::{Chain, MachineId, NodeName};
use pki::{Authority, AuthorityKind, Identity, Profile, UnixTime};
use tonic::Status;

use crate::records::link::{Link, NoAnswer};
use crate::runtime::clock;
use crate::runtime::standstills::Standstills;
use crate::runtime::tls;

/// Why nobody could ask.
type Failed = Box<dyn std::error::Error + Send + Sync>;

/// Answers of etcd to the three callers, one line a question.
pub(super) fn asked_by_others() -> io::Result<Vec<String>> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(ask())
}

async fn ask() -> io::Result<Vec<String>> {
    let file = |name: &str| fs::read(format!("/data/cairn/etcd.{name}"));
    let authority = Authority::load(AuthorityKind::Etcd, &file("crt")?, &file("key")?).map_err(io::Error::other)?;
    let node = NodeName::chosen("root").map_err(io::Error::other)?;
    let machine = MachineId([0; 16]);
    let member = Profile::EtcdPeer { machine, node: &node, vpn: Ipv4Addr::LOCALHOST };
    let mut lines = Vec::new();
    for (who, profile) in
        [("apiserver", Some(Profile::EtcdApiserverClient { machine })), ("member", Some(member)), ("nobody", None)]
    {
        let link = link(&authority, profile).map_err(io::Error::other)?;
        let registry = "/registry/cairn-test";
        for (what, outcome) in [
            ("read /registry/", read(&link, "/registry/").await),
            ("write /registry/", write(&link, registry.into()).await),
            ("delete /registry/", delete(&link, registry.into()).await),
            ("read /cairn/", read(&link, PREFIX).await),
            ("write /cairn/", write(&link, Key::Version.bytes()).await),
            ("delete /cairn/", delete(&link, Key::Version.bytes()).await),
            ("watch /cairn/", watch(&link).await),
        ] {
            let outcome = outcome.map_or_else(|refused| Chain(&refused).to_string(), |()| String::from("granted"));
            lines.push(format!("{who}: {what}: {outcome}"));
        }
    }
    for (who, outcome) in revoked(&authority).await.map_err(io::Error::other)? {
        let outcome = outcome.map_or_else(|refused| Chain(&refused).to_string(), |()| String::from("granted"));
        lines.push(format!("{who}: read /registry/: {outcome}"));
    }
    Ok(lines)
}

/// A machine's certificate before and after it is listed as one that etcd refuses, and then another machine's: etcd reads the list
/// anew each time.
async fn revoked(authority: &Authority) -> Result<[(&'static str, Result<(), NoAnswer>); 3], Failed> {
    let ask = |machine| {
        let link = link(authority, Some(Profile::EtcdApiserverClient { machine }));
        async move { Ok::<_, Failed>(read(&link?, "/registry/").await) }
    };
    let (listed, other) = (MachineId([1; 16]), MachineId([2; 16]));
    let before = ask(listed).await?;
    let list = authority.revoke(&[listed].into(), UnixTime::since_unix_epoch(clock::unix()))?;
    fs::write(services::ETCD_REVOKED, list)?;
    Ok([("not yet revoked", before), ("revoked", ask(listed).await?), ("another", ask(other).await?)])
}

fn link(authority: &Authority, profile: Option<Profile<'_>>) -> Result<Link, Failed> {
    let now = UnixTime::since_unix_epoch(clock::unix());
    let issued = profile.map(|profile| authority.issue_with_key(&profile, now)).transpose()?;
    let identity = issued.as_ref().map(|it| Identity { chain: vec![it.certificate.clone()], key: &it.key });
    let config = pki::server_auth::under_authority(authority.certificate().clone(), identity, Arc::new(tls::Clock))?;
    let client = tls::Client { config, standstills: Standstills::default() };
    Ok(Link::to(SocketAddrV4::new(Ipv4Addr::LOCALHOST, model::ETCD_CLIENT_PORT), client))
}

async fn read(link: &Link, prefix: &str) -> Result<(), NoAnswer> {
    let asked = RangeRequest { key: prefix.into(), range_end: etcd::behind(prefix), ..RangeRequest::default() };
    link.range(asked).await.map(drop)
}

async fn write(link: &Link, key: Vec<u8>) -> Result<(), NoAnswer> {
    let put = request_op::Request::RequestPut(PutRequest { key, value: vec![1] });
    let success = vec![RequestOp { request: Some(put) }];
    link.transact(TxnRequest { success, ..TxnRequest::default() }).await.map(drop)
}

async fn delete(link: &Link, key: Vec<u8>) -> Result<(), NoAnswer> {
    link.delete(DeleteRangeRequest { key, range_end: vec![] }).await.map(drop)
}

/// etcd opens every watch, and ends at once what it refuses.
async fn watch(link: &Link) -> Result<(), NoAnswer> {
    let mut told = link.watch(0).await?;
    let first = told.message().await?.ok_or_else(|| Status::cancelled("the watch ended"))?;
    match etcd::watched(first)? {
        WatchAnswer::Begun | WatchAnswer::Changes { .. } => Ok(()),
        WatchAnswer::Lost { reason } => Err(Status::permission_denied(reason).into()),
    }
}
