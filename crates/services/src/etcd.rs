//! etcd: TLS both ways for clients and for members, on the VPN address and loopback only.
//! Flags: `etcd --help` of v3.7 (server/etcdmain/help.go).

pub(crate) mod users;

use model::{ETCD_CLIENT_PORT, MOST_ETCD_LEARNERS, etcd_peer_url};
use pki::{AuthorityKind, ETCD_PEER_NAME};

use crate::credential::{Credential, authority_path};
use crate::plan::{EtcdCluster, ServicePlan};
use crate::unit::{Limits, ReadinessProbe, ServicePage, ServicePrivileges, ServiceProgram, Unit, loopback};
use crate::{ETCD_REVOKED, names};

/// Name of the program.
pub(crate) const PROGRAM: &str = "etcd";

pub(crate) fn unit(plan: &ServicePlan) -> Unit {
    let (node, vpn, cluster) = (&plan.node, plan.vpn(), plan.cluster);
    let (server, peer) = (Credential::EtcdServer, Credential::EtcdPeer);
    let authority = authority_path(AuthorityKind::Etcd);
    let peer_url = etcd_peer_url(vpn);
    let begins = plan.etcd.as_ref().expect("it is wanted where there is a plan of it").begins;
    let recovers = (begins == EtcdCluster::Recovered).then(|| "--force-new-cluster=true".to_owned());
    let program = ServiceProgram {
        argv: [
            plan.program(PROGRAM),
            format!("--name={node}"),
            "--data-dir=/data/etcd".to_owned(),
            format!("--listen-client-urls=https://127.0.0.1:{ETCD_CLIENT_PORT},https://{vpn}:{ETCD_CLIENT_PORT}"),
            format!("--advertise-client-urls=https://{vpn}:{ETCD_CLIENT_PORT}"),
            format!("--listen-peer-urls={peer_url}"),
            // Read only while the data directory is empty.
            format!("--initial-advertise-peer-urls={peer_url}"),
            format!("--initial-cluster={}", members(plan)),
            format!("--initial-cluster-token={cluster}"),
            format!("--initial-cluster-state={}", state(begins)),
            format!("--max-learners={}", MOST_ETCD_LEARNERS),
            format!("--heartbeat-interval={HEARTBEAT_MS}"),
            format!("--election-timeout={ELECTION_MS}"),
            "--client-cert-auth=true".to_owned(),
            format!("--trusted-ca-file={authority}"),
            format!("--cert-file={}", server.certificate_path()),
            format!("--key-file={}", server.key_path()),
            // Towards members there is none: one that was taken out has to hear that from etcd itself, or it goes on with
            // others that were (rafthttp/http.go answers 410 Gone, and it ends).
            format!("--client-crl-file={ETCD_REVOKED}"),
            "--peer-client-cert-auth=true".to_owned(),
            format!("--peer-trusted-ca-file={authority}"),
            format!("--peer-cert-file={}", peer.certificate_path()),
            format!("--peer-key-file={}", peer.key_path()),
            // A client's certificate of the same authority is no member's.
            format!("--peer-cert-allowed-hostname={ETCD_PEER_NAME}"),
            "--tls-min-version=TLS1.3".to_owned(),
            // A second, HTTP way to the same keys that nobody uses.
            "--enable-grpc-gateway=false".to_owned(),
            // By itself: the apiserver's user may not (see [`users::ETCD_USERS`]).
            "--auto-compaction-mode=periodic".to_owned(),
            format!("--auto-compaction-retention={HISTORY}"),
            "--log-outputs=stderr".to_owned(),
        ]
        .into_iter()
        .chain(recovers)
        .collect(),
        environment: Vec::new(),
        files: Vec::new(),
        credentials: vec![server, peer],
        probe: ReadinessProbe::Page(page("/readyz")),
        metrics: Some(page("/metrics")),
        limits: Limits::gib(1, 1024),
        privileges: ServicePrivileges::Fixed,
        record: None,
        data: Some("/data/etcd"),
    };
    Unit::program(names::ETCD, Vec::new(), program)
}

/// Page that etcd answers its clients.
const fn page(path: &'static str) -> ServicePage {
    ServicePage::Https {
        address: loopback(ETCD_CLIENT_PORT),
        path,
        authority: AuthorityKind::Etcd,
        client: Some(Credential::EtcdMachineClient),
    }
}

/// How often a leader is heard of, and after how long without it another is elected, each in milliseconds. Heartbeats are about
/// a third of what an idle one of three coordinators does, each of them a packet through TLS and WireGuard: so half as many as by
/// etcd's default of 100 ms, in the default's time without one. That is the least multiple that etcd takes (server/embed/config.go `Validate`).
const HEARTBEAT_MS: u32 = 200;
const ELECTION_MS: u32 = 5 * HEARTBEAT_MS;

/// Time for which etcd keeps old revisions at least: a watch that was away for longer reads anew. All are gone after 2.2 times that, since
/// etcd looks ten times in it, and compacts once in it (server/etcdserver/api/v3compactor/periodic.go). Clients of Kubernetes count on at
/// most ten minutes, twice the time by which an apiserver compacts that does it itself.
const HISTORY: &str = "4m";

/// All members by name.
fn members(plan: &ServicePlan) -> String {
    let members = plan.members().map(|(node, vpn)| format!("{node}={}", etcd_peer_url(vpn)));
    members.collect::<Vec<_>>().join(",")
}

const fn state(begins: EtcdCluster) -> &'static str {
    match begins {
        EtcdCluster::New => "new",
        EtcdCluster::Existing | EtcdCluster::Recovered => "existing",
    }
}
