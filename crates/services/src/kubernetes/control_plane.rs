//! apiserver, and both controllers in one process: the first on the VPN address, they on loopback; by TLS 1.3.
//! Flags: v1.36 (cmd/kube-*/app/options, staging apiserver, controller-manager, cloud-provider).

use model::{ETCD_CLIENT_PORT, KUBERNETES_API_PORT};
use pki::{AuthorityKind, FRONT_NAME};
use serde_json::json;
use supervise::Need;

use crate::credential::{Credential, authority_path};
use crate::kubernetes::secrets::SECRETS_ENCRYPTION;
use crate::kubernetes::{audit, kubeconfig};
use crate::plan::{EtcdUsers, LOCAL_API, ServicePlan};
use crate::unit::{
    Limits, OwnLog, ReadinessProbe, ServiceFile, ServicePage, ServicePrivileges, ServiceProgram, Unit, loopback,
};
use crate::{SERVICE_ACCOUNT_KEY, SERVICE_ACCOUNT_PUBLIC, names};

const ADMISSION: &str = "/run/cairn/kube/admission.json";
const CONTROLLER_MANAGER_CONFIG: &str = "/run/cairn/kube/controller-manager.kubeconfig";
const SCHEDULER_CONFIG: &str = "/run/cairn/kube/scheduler.kubeconfig";
/// The name tokens of service accounts are issued under; resolves in pods only.
const ISSUER: &str = "https://kubernetes.default.svc.cluster.local";
const CONTROLLERS_PORT: u16 = 10257;

/// Names of the programs.
pub(crate) const APISERVER: &str = "kube-apiserver";
pub(crate) const CONTROLLERS: &str = "kube-controllers";

pub(crate) fn apiserver(plan: &ServicePlan) -> Unit {
    let vpn = plan.vpn();
    let (server, kubelet, store) =
        (Credential::Apiserver, Credential::ApiserverKubeletClient, Credential::EtcdApiserverClient);
    let front = Credential::ApiserverFront;
    let kubernetes = authority_path(AuthorityKind::Kubernetes);
    let program = ServiceProgram {
        argv: vec![
            plan.program(APISERVER),
            format!("--bind-address={vpn}"),
            format!("--advertise-address={vpn}"),
            format!("--secure-port={KUBERNETES_API_PORT}"),
            format!("--etcd-servers=https://127.0.0.1:{ETCD_CLIENT_PORT}"),
            format!("--etcd-cafile={}", authority_path(AuthorityKind::Etcd)),
            format!("--etcd-certfile={}", store.certificate_path()),
            format!("--etcd-keyfile={}", store.key_path()),
            // Its user may not compact; etcd does so by itself. An apiserver that does not would answer for old revisions from memory,
            // as long as there is room (storage/storagebackend/factory/etcd3.go `startCompactorOnce`).
            "--etcd-compaction-interval=0".to_owned(),
            "--feature-gates=ListFromCacheSnapshot=false".to_owned(),
            format!("--client-ca-file={kubernetes}"),
            format!("--tls-cert-file={}", server.certificate_path()),
            format!("--tls-private-key-file={}", server.key_path()),
            "--tls-min-version=VersionTLS13".to_owned(),
            // The probe shows a certificate, so not even the health endpoints are open to anybody.
            "--anonymous-auth=false".to_owned(),
            "--authorization-mode=Node,RBAC".to_owned(),
            // PodSecurity is on by default; what it enforces stands in the file.
            // Whoever may make a service would take any address for it (CVE-2020-8554).
            "--enable-admission-plugins=NodeRestriction,DenyServiceExternalIPs".to_owned(),
            format!("--admission-control-config-file={ADMISSION}"),
            // PodSecurity alone decides, namespace by namespace; without this no namespace could be trusted with more.
            "--allow-privileged=true".to_owned(),
            format!("--service-cluster-ip-range={}", plan.prefixes.services),
            format!("--service-account-issuer={ISSUER}"),
            // Else it names its own address, which no pod reaches.
            format!("--service-account-jwks-uri={ISSUER}/openid/v1/jwks"),
            format!("--service-account-key-file={SERVICE_ACCOUNT_PUBLIC}"),
            format!("--service-account-signing-key-file={SERVICE_ACCOUNT_KEY}"),
            // A token that a pod was given for an hour is worth an hour, not a year.
            "--service-account-extend-token-expiration=false".to_owned(),
            // No token that is asked for outlives a day: a key that signs no more is of no use then.
            "--service-account-max-token-expiration=24h".to_owned(),
            format!("--encryption-provider-config={SECRETS_ENCRYPTION}"),
            format!("--audit-policy-file={}", audit::POLICY),
            // To its output, which PID 1 keeps.
            "--audit-log-path=-".to_owned(),
            // A request waits for nobody who reads the record; what finds its buffer full is counted and lost.
            "--audit-log-mode=batch".to_owned(),
            format!("--kubelet-certificate-authority={kubernetes}"),
            format!("--kubelet-client-certificate={}", kubelet.certificate_path()),
            format!("--kubelet-client-key={}", kubelet.key_path()),
            // Servers that answer in its place know by these who asks, and that it is the apiserver who says so.
            format!("--proxy-client-cert-file={}", front.certificate_path()),
            format!("--proxy-client-key-file={}", front.key_path()),
            format!("--requestheader-client-ca-file={}", authority_path(AuthorityKind::Front)),
            format!("--requestheader-allowed-names={FRONT_NAME}"),
            "--requestheader-username-headers=X-Remote-User".to_owned(),
            "--requestheader-group-headers=X-Remote-Group".to_owned(),
            "--requestheader-extra-headers-prefix=X-Remote-Extra-".to_owned(),
            // Pods are reached at their own addresses: this machine may have no service proxy, and is no worker then.
            "--enable-aggregator-routing=true".to_owned(),
            // A minute after its node is lost a pod is made elsewhere.
            format!("--default-not-ready-toleration-seconds={LOST_NODE_SECONDS}"),
            format!("--default-unreachable-toleration-seconds={LOST_NODE_SECONDS}"),
            // Names of nodes resolve nowhere.
            "--kubelet-preferred-address-types=InternalIP".to_owned(),
            "--profiling=false".to_owned(),
        ],
        environment: Vec::new(),
        files: vec![
            ServiceFile { path: ADMISSION, contents: admission() },
            ServiceFile { path: audit::POLICY, contents: audit::policy() },
        ],
        credentials: vec![server, kubelet, front, store],
        probe: ReadinessProbe::Page(ServicePage::Https {
            address: std::net::SocketAddrV4::new(vpn, KUBERNETES_API_PORT),
            path: "/readyz",
            authority: AuthorityKind::Kubernetes,
            client: Some(Credential::KubeletClient),
        }),
        // It answers those who may by itself.
        metrics: None,
        limits: Limits::gib(3, 1024),
        privileges: ServicePrivileges::Fixed,
        record: Some(OwnLog { start: audit::LINE, log: audit::LOG }),
        data: None,
    };
    // It retries etcd by itself; to wait until etcd is ready costs seconds.
    let mut needs = vec![Need::started(names::ETCD)];
    if plan.etcd.as_ref().is_some_and(|etcd| etcd.users == EtcdUsers::Unknown) {
        // An etcd that does not ask who calls would let it do everything.
        needs.push(Need::finished(names::MAKES_USERS));
    }
    Unit::program(names::APISERVER, needs, program)
}

/// Seconds for which a pod stays on a node that is lost (upstream: 300), unless it says otherwise.
const LOST_NODE_SECONDS: u32 = 60;

/// Flags by which one of several controllers acts; also where one coordinator is the only one, which others may join: what they decide
/// is read when they start. An apiserver that waits for a processor for 10 s (upstream: 15, 10 and 2 s) would end them, and their start
/// takes of the processor that is missing.
const ELECTION: [&str; 4] = [
    "--leader-elect=true",
    "--leader-elect-lease-duration=25s",
    "--leader-elect-renew-deadline=20s",
    "--leader-elect-retry-period=3s",
];

/// Flags of the controller-manager, and behind `--` those of the scheduler (components/kube/controllers.go).
pub(crate) fn controllers(plan: &ServicePlan) -> Unit {
    let (manager, scheduler, server) =
        (Credential::ControllerManager, Credential::Scheduler, Credential::ControllersServer);
    let manager_flags = [
        plan.program(CONTROLLERS),
        format!("--kubeconfig={CONTROLLER_MANAGER_CONFIG}"),
        "--use-service-account-credentials=true".to_owned(),
        format!("--root-ca-file={}", authority_path(AuthorityKind::Kubernetes)),
        format!("--service-account-private-key-file={SERVICE_ACCOUNT_KEY}"),
        // A node renews its lease each 5 s: one that is silent for so long has missed six.
        "--node-monitor-grace-period=30s".to_owned(),
        // The cluster assigns pod prefixes, so that no machine announces its own.
        "--allocate-node-cidrs=false".to_owned(),
        // Its default lies on the read-only root.
        "--flex-volume-plugin-dir=/data/kubelet/volume-plugins".to_owned(),
        // On loopback, with a certificate of ours (else it makes an RSA key at each start), and without a kubeconfig for callers, so
        // that nothing but these paths answers.
        "--bind-address=127.0.0.1".to_owned(),
        format!("--secure-port={CONTROLLERS_PORT}"),
        format!("--tls-cert-file={}", server.certificate_path()),
        format!("--tls-private-key-file={}", server.key_path()),
        "--authorization-always-allow-paths=/healthz,/metrics".to_owned(),
        "--tls-min-version=VersionTLS13".to_owned(),
        // Who stops lets go of its lease, as the scheduler does: others need not wait until it ends.
        "--feature-gates=ControllerManagerReleaseLeaderElectionLockOnExit=true".to_owned(),
        "--profiling=false".to_owned(),
    ];
    let scheduler_flags = [
        format!("--kubeconfig={SCHEDULER_CONFIG}"),
        // Its health is the process's, and its metrics are with the controller-manager's.
        "--secure-port=0".to_owned(),
        "--profiling=false".to_owned(),
    ];
    let election = || ELECTION.iter().map(|flag| (*flag).to_owned());
    let argv = manager_flags
        .into_iter()
        .chain(election())
        .chain(["--".to_owned()])
        .chain(scheduler_flags)
        .chain(election())
        .collect();
    let config = |path, client| ServiceFile { path, contents: kubeconfig::of_service(client, LOCAL_API) };
    let program = ServiceProgram {
        argv,
        environment: Vec::new(),
        files: vec![config(CONTROLLER_MANAGER_CONFIG, manager), config(SCHEDULER_CONFIG, scheduler)],
        credentials: vec![manager, server, scheduler],
        probe: ReadinessProbe::Page(controllers_page("/healthz")),
        metrics: Some(controllers_page("/metrics")),
        limits: Limits::gib(1, 1024),
        privileges: ServicePrivileges::Fixed,
        record: None,
        data: None,
    };
    // Both exit when they ask before the roles are there, and have nothing to do before.
    Unit::program(names::CONTROLLERS, vec![Need::ready(names::APISERVER)], program)
}

/// Page that both controllers answer together.
const fn controllers_page(path: &'static str) -> ServicePage {
    ServicePage::Https { address: loopback(CONTROLLERS_PORT), path, authority: AuthorityKind::Kubernetes, client: None }
}

/// PodSecurity *baseline* everywhere. No namespace is exempt here, `kube-system` neither: one that needs more says so
/// by its label, where it can be seen and taken away.
fn admission() -> String {
    let configuration = json!({
        "apiVersion": "apiserver.config.k8s.io/v1",
        "kind": "AdmissionConfiguration",
        "plugins": [{
            "name": "PodSecurity",
            "configuration": {
                "apiVersion": "pod-security.admission.config.k8s.io/v1",
                "kind": "PodSecurityConfiguration",
                "defaults": {
                    "enforce": "baseline", "enforce-version": "latest",
                    "audit": "baseline", "audit-version": "latest",
                    "warn": "baseline", "warn-version": "latest",
                },
                "exemptions": { "usernames": [], "runtimeClasses": [], "namespaces": [] },
            },
        }],
    });
    format!("{configuration:#}\n")
}
