//! apiserver, controller-manager, scheduler. The first on the VPN address, the others on loopback; all by TLS 1.3.
//! Flags: v1.36 (cmd/kube-*/app/options, staging apiserver, controller-manager, cloud-provider).

use model::{ETCD_CLIENT_PORT, KUBERNETES_API_PORT, SERVICE_PREFIX};
use pki::AuthorityKind;
use serde_json::json;

use crate::credential::{Credential, authority_path};
use crate::plan::{EtcdUsers, LOCAL_API, Plan, SERVICE_ACCOUNT_KEY, SERVICE_ACCOUNT_PUBLIC};
use crate::secrets::SECRETS_ENCRYPTION;
use crate::service::{
    Condition, Limits, Need, OwnLog, Privileges, Probe, ServiceFile, ServiceSpec, Until, Wanted, loopback, paths,
};
use crate::task::Task;
use crate::{audit, etcd, kubeconfig};

pub(crate) const APISERVER: &str = "kube.apiserver";

const ADMISSION: &str = "/run/cairn/kube/admission.json";
const CONTROLLER_MANAGER_CONFIG: &str = "/run/cairn/kube/controller-manager.kubeconfig";
const SCHEDULER_CONFIG: &str = "/run/cairn/kube/scheduler.kubeconfig";
/// The name tokens of service accounts are issued under; resolves in pods only.
const ISSUER: &str = "https://kubernetes.default.svc.cluster.local";
const CONTROLLER_MANAGER_PORT: u16 = 10257;
const SCHEDULER_PORT: u16 = 10259;

pub(crate) fn apiserver(plan: &Plan) -> ServiceSpec {
    let vpn = plan.vpn();
    let (server, kubelet, store) =
        (Credential::Apiserver, Credential::ApiserverKubeletClient, Credential::EtcdApiserverClient);
    let kubernetes = authority_path(AuthorityKind::Kubernetes);
    let mut files = paths(&[server, kubelet, store], &[AuthorityKind::Kubernetes, AuthorityKind::Etcd]);
    files.extend([ADMISSION, audit::POLICY, SECRETS_ENCRYPTION].map(str::to_owned));
    files.extend([SERVICE_ACCOUNT_KEY, SERVICE_ACCOUNT_PUBLIC].map(str::to_owned));
    let mut needs = vec![Need {
        service: etcd::NAME,
        until: Until::Started,
        because: "it retries etcd by itself; to wait until etcd is ready costs seconds",
    }];
    if plan.etcd_users == EtcdUsers::Unknown {
        needs.push(Need {
            service: Task::Users.name(),
            until: Until::Finished,
            because: "an etcd that does not ask who calls would let it do everything",
        });
    }
    ServiceSpec {
        name: APISERVER,
        argv: vec![
            plan.program("kube-apiserver"),
            format!("--bind-address={vpn}"),
            format!("--advertise-address={vpn}"),
            format!("--secure-port={KUBERNETES_API_PORT}"),
            format!("--etcd-servers=https://127.0.0.1:{ETCD_CLIENT_PORT}"),
            format!("--etcd-cafile={}", authority_path(AuthorityKind::Etcd)),
            format!("--etcd-certfile={}", store.certificate_path()),
            format!("--etcd-keyfile={}", store.key_path()),
            // Its user may not compact; etcd does so by itself.
            "--etcd-compaction-interval=0".to_owned(),
            format!("--client-ca-file={kubernetes}"),
            format!("--tls-cert-file={}", server.certificate_path()),
            format!("--tls-private-key-file={}", server.key_path()),
            "--tls-min-version=VersionTLS13".to_owned(),
            // The probe shows a certificate, so not even the health endpoints are open to anybody.
            "--anonymous-auth=false".to_owned(),
            "--authorization-mode=Node,RBAC".to_owned(),
            // PodSecurity is on by default; what it enforces stands in the file.
            "--enable-admission-plugins=NodeRestriction".to_owned(),
            format!("--admission-control-config-file={ADMISSION}"),
            // PodSecurity alone decides, namespace by namespace; without this no namespace could be trusted with more.
            "--allow-privileged=true".to_owned(),
            format!("--service-cluster-ip-range={SERVICE_PREFIX}"),
            format!("--service-account-issuer={ISSUER}"),
            format!("--service-account-key-file={SERVICE_ACCOUNT_PUBLIC}"),
            format!("--service-account-signing-key-file={SERVICE_ACCOUNT_KEY}"),
            // A token that a pod was given for an hour is worth an hour, not a year.
            "--service-account-extend-token-expiration=false".to_owned(),
            format!("--encryption-provider-config={SECRETS_ENCRYPTION}"),
            format!("--audit-policy-file={}", audit::POLICY),
            // To its output, which PID 1 keeps.
            "--audit-log-path=-".to_owned(),
            // A request waits for nobody who reads the record; what finds its buffer full is counted and lost.
            "--audit-log-mode=batch".to_owned(),
            format!("--kubelet-certificate-authority={kubernetes}"),
            format!("--kubelet-client-certificate={}", kubelet.certificate_path()),
            format!("--kubelet-client-key={}", kubelet.key_path()),
            // Names of nodes resolve nowhere.
            "--kubelet-preferred-address-types=InternalIP".to_owned(),
            "--profiling=false".to_owned(),
        ],
        environment: Vec::new(),
        files,
        probe: Probe::HttpsGet {
            address: std::net::SocketAddrV4::new(vpn, KUBERNETES_API_PORT),
            path: "/readyz",
            authority: AuthorityKind::Kubernetes,
            client: Some(Credential::KubeletClient),
        },
        needs,
        wanted_by: Wanted::ControlPlane,
        limits: Limits::gib(3, 1024),
        privileges: Privileges::Fixed,
        condition: Some(Condition::KubernetesApi),
        record: Some(OwnLog { start: audit::LINE, log: audit::LOG }),
        data: None,
    }
}

pub(crate) fn controller_manager(plan: &Plan) -> ServiceSpec {
    let (client, server) = (Credential::ControllerManager, Credential::ControllerManagerServer);
    let mut files = paths(&[client, server], &[AuthorityKind::Kubernetes]);
    files.extend([CONTROLLER_MANAGER_CONFIG, SERVICE_ACCOUNT_KEY, "/data/kubelet/volume-plugins"].map(str::to_owned));
    let mut argv = vec![
        plan.program("kube-controller-manager"),
        format!("--kubeconfig={CONTROLLER_MANAGER_CONFIG}"),
        "--use-service-account-credentials=true".to_owned(),
        format!("--root-ca-file={}", authority_path(AuthorityKind::Kubernetes)),
        format!("--service-account-private-key-file={SERVICE_ACCOUNT_KEY}"),
        // The cluster assigns pod prefixes, so that no machine announces its own.
        "--allocate-node-cidrs=false".to_owned(),
        // Its default lies on the read-only root.
        "--flex-volume-plugin-dir=/data/kubelet/volume-plugins".to_owned(),
    ];
    argv.extend(serving(plan, server, CONTROLLER_MANAGER_PORT));
    ServiceSpec {
        name: "kube.controller-manager",
        argv,
        environment: Vec::new(),
        files,
        probe: health(CONTROLLER_MANAGER_PORT),
        needs: vec![Need {
            service: APISERVER,
            until: Until::Ready,
            because: "it exits when it asks before the roles are there",
        }],
        wanted_by: Wanted::ControlPlane,
        limits: Limits::gib(1, 1024),
        privileges: Privileges::Fixed,
        condition: None,
        record: None,
        data: None,
    }
}

pub(crate) fn scheduler(plan: &Plan) -> ServiceSpec {
    let (client, server) = (Credential::Scheduler, Credential::SchedulerServer);
    let mut files = paths(&[client, server], &[AuthorityKind::Kubernetes]);
    files.push(SCHEDULER_CONFIG.to_owned());
    let mut argv = vec![plan.program("kube-scheduler"), format!("--kubeconfig={SCHEDULER_CONFIG}")];
    argv.extend(serving(plan, server, SCHEDULER_PORT));
    ServiceSpec {
        name: "kube.scheduler",
        argv,
        environment: Vec::new(),
        files,
        probe: health(SCHEDULER_PORT),
        needs: vec![Need {
            service: APISERVER,
            until: Until::Ready,
            because: "it has nothing to do before, and takes the processor from the apiserver's start",
        }],
        wanted_by: Wanted::ControlPlane,
        limits: Limits::gib(1, 1024),
        privileges: Privileges::Fixed,
        condition: None,
        record: None,
        data: None,
    }
}

pub(crate) fn files() -> Vec<ServiceFile> {
    vec![
        ServiceFile { path: ADMISSION, contents: admission() },
        ServiceFile { path: audit::POLICY, contents: audit::policy() },
        ServiceFile {
            path: CONTROLLER_MANAGER_CONFIG,
            contents: kubeconfig::of_service(Credential::ControllerManager, LOCAL_API),
        },
        ServiceFile { path: SCHEDULER_CONFIG, contents: kubeconfig::of_service(Credential::Scheduler, LOCAL_API) },
    ]
}

/// How the two controllers serve: on loopback, with certificates of ours (else each makes an RSA key at each start),
/// and without a kubeconfig for callers, so that nothing but `/healthz` answers.
fn serving(plan: &Plan, server: Credential, port: u16) -> [String; 7] {
    [
        "--bind-address=127.0.0.1".to_owned(),
        format!("--secure-port={port}"),
        format!("--tls-cert-file={}", server.certificate_path()),
        format!("--tls-private-key-file={}", server.key_path()),
        "--tls-min-version=VersionTLS13".to_owned(),
        plan.elect_leader().to_owned(),
        "--profiling=false".to_owned(),
    ]
}

const fn health(port: u16) -> Probe {
    Probe::HttpsGet { address: loopback(port), path: "/healthz", authority: AuthorityKind::Kubernetes, client: None }
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
