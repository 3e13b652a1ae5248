//! Rules that every plan's services keep to, and one plan spelled out in golden files.
//!
//! The golden files are rewritten by running the tests with `CAIRN_REWRITE_GOLDEN=1`.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::net::Ipv4Addr;
use std::path::PathBuf;

use kube::{
    Coordinator, Credential, DIRECTORIES, ETCD_REVOKED, ETCD_USERS, EtcdCluster, EtcdRights, EtcdUsers, Plan,
    Privileges, Probe, SECRETS_ENCRYPTION, SERVICE_ACCOUNT_KEY, SERVICE_ACCOUNT_PUBLIC, Until, Wanted, authority_path,
    bootstrap, files, reserve, services, tasks,
};
use model::{Assignment, ClusterId, ClusterRole, KubernetesRole, NodeName, Prefixes, VPN_PREFIX, pod_prefix};
use pki::{AuthorityKind, Usage};
use proptest::prelude::*;

fn plan() -> Plan {
    Plan {
        machine: model::MachineId([0xab; 16]),
        node: NodeName::chosen("node-1").unwrap(),
        cluster: ClusterId([0xcd; 16]),
        assignment: Assignment::first(&Prefixes::of(VPN_PREFIX), KubernetesRole::ALL.iter().copied().collect()),
        etcd: EtcdCluster::New,
        etcd_users: EtcdUsers::Known,
        others: Vec::new(),
        bin: "/usr/bin",
    }
}

/// Assignment of a machine with this role and these roles of Kubernetes.
fn assigned(role: ClusterRole, kubernetes: &[KubernetesRole]) -> Assignment {
    let pods = kubernetes.contains(&KubernetesRole::Worker).then(|| pod_prefix(3));
    Assignment::new(Ipv4Addr::new(10, 118, 0, 1), role, kubernetes.iter().copied().collect(), pods).unwrap()
}

fn plans() -> impl Strategy<Value = Plan> {
    let role = proptest::sample::select(ClusterRole::ALL);
    let etcd = proptest::sample::select(&[EtcdCluster::New, EtcdCluster::Existing]);
    let kubernetes = proptest::sample::subsequence(KubernetesRole::ALL, 0..=2);
    let name = "[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?";
    let users = proptest::sample::select(&[EtcdUsers::Unknown, EtcdUsers::Known]);
    let what = (role, (etcd, users), kubernetes);
    (name, any::<[u8; 16]>(), any::<[u8; 2]>(), any::<u8>(), any::<bool>(), what).prop_filter_map(
        "a name kept for derived ones, or a control plane without etcd",
        |(name, cluster, [c, d], pods, lone, (role, (etcd, etcd_users), kubernetes))| {
            let pods = kubernetes.contains(&KubernetesRole::Worker).then(|| pod_prefix(pods));
            let vpn_ip = Ipv4Addr::new(10, 118, c, d);
            Some(Plan {
                machine: model::MachineId([0xab; 16]),
                node: NodeName::chosen(&name).ok()?,
                cluster: ClusterId(cluster),
                assignment: Assignment::new(vpn_ip, role, kubernetes.into_iter().collect(), pods).ok()?,
                etcd,
                etcd_users,
                others: if lone { Vec::new() } else { vec![other()] },
                bin: "/usr/bin",
            })
        },
    )
}

fn other() -> Coordinator {
    Coordinator { node: NodeName::chosen("other").unwrap(), vpn: Ipv4Addr::new(10, 118, 7, 7) }
}

/// Everything that exists before the first service starts, besides the image.
fn provided(plan: &Plan) -> BTreeSet<String> {
    let accounts = [SERVICE_ACCOUNT_KEY, SERVICE_ACCOUNT_PUBLIC, SECRETS_ENCRYPTION].map(str::to_owned);
    let authorities = [AuthorityKind::Etcd, AuthorityKind::Kubernetes].map(authority_path);
    let kubernetes = plan.wants(Wanted::ControlPlane);
    files(plan)
        .into_iter()
        .map(|file| file.path.to_owned())
        .chain(Credential::read_on(plan).flat_map(|credential| [credential.certificate_path(), credential.key_path()]))
        .chain(authorities)
        .chain(accounts.into_iter().filter(|_| kubernetes))
        .chain(plan.wants(Wanted::Coordinator).then(|| ETCD_REVOKED.to_owned()))
        .chain(DIRECTORIES.iter().map(|directory| directory.path.to_owned()))
        .collect()
}

/// All that a service is told: its arguments and the files it reads.
fn texts(plan: &Plan) -> Vec<(String, String)> {
    let arguments = services(plan).into_iter().map(|service| (service.name.to_owned(), service.argv.join("\n")));
    arguments.chain(files(plan).into_iter().map(|file| (file.path.to_owned(), file.contents))).collect()
}

proptest! {
    /// Proves: F7
    #[test]
    fn nothing_listens_but_on_the_vpns_address_and_loopback(plan in plans()) {
        let vpn = plan.vpn().to_string();
        for service in services(&plan) {
            for argument in &service.argv {
                let Some((flag, value)) = argument.split_once('=') else { continue };
                let listens = flag.contains("listen") || flag.contains("bind") || flag.contains("advertise");
                if listens && !flag.contains("port") {
                    for address in value.split(',') {
                        let host = address.trim_start_matches("https://").split(':').next().unwrap_or_default();
                        prop_assert!(host == vpn || host == "127.0.0.1", "{argument}");
                    }
                }
            }
        }
        for (name, text) in texts(&plan) {
            // The one 0.0.0.0 is a route in the pods' network.
            let text = text.replace(r#""dst": "0.0.0.0/0""#, "");
            prop_assert!(!text.contains("0.0.0.0") && !text.contains("::"), "{name}");
            prop_assert!(!text.contains("http://"), "{name}");
        }
        for servant in ["kube.apiserver", "kube.controller-manager", "kube.scheduler"] {
            let Some(service) = services(&plan).into_iter().find(|service| service.name == servant) else { continue };
            prop_assert!(service.argv.iter().any(|argument| argument.starts_with("--bind-address=")), "{servant}");
        }
    }

    /// Proves: W3
    #[test]
    fn each_path_a_service_names_is_provided_and_no_other_file(plan in plans()) {
        let provided = provided(&plan);
        let mut named = BTreeSet::new();
        for service in services(&plan) {
            for path in &service.files {
                prop_assert!(provided.contains(path), "{}: {path}", service.name);
            }
            named.extend(service.files);
        }
        for (name, text) in texts(&plan) {
            for path in text.split(['=', '"', '\n', ',', ' ']).filter(|word| word.starts_with("/run/cairn/pki/")) {
                prop_assert!(provided.contains(path) && named.contains(path), "{name}: {path}");
            }
        }
        for path in &provided {
            let directory = DIRECTORIES.iter().any(|made| made.path == path);
            // Certificates of authorities are no secret, and there on every machine.
            prop_assert!(named.contains(path) || directory || path.ends_with("-ca.crt"), "{path}");
        }
    }

    /// Proves: W7
    #[test]
    fn no_argument_and_no_file_holds_a_secret_or_an_authoritys_key(plan in plans()) {
        for (name, text) in texts(&plan) {
            prop_assert!(!text.contains("PRIVATE KEY") && !text.contains("key-data"), "{name}");
            prop_assert!(!text.contains("ca.key") && !text.contains("cluster-signing"), "{name}");
        }
    }

    /// Proves: O2
    #[test]
    fn each_need_names_what_runs_on_the_same_machine(plan in plans()) {
        let (services, tasks) = (services(&plan), tasks(&plan));
        let names: Vec<_> =
            services.iter().map(|service| service.name).chain(tasks.iter().map(|task| task.name())).collect();
        let of_tasks = tasks.iter().flat_map(|task| task.needs(&plan));
        for need in services.iter().flat_map(|service| service.needs.clone()).chain(of_tasks) {
            prop_assert!(names.contains(&need.service), "{} in {names:?}", need.service);
        }
        prop_assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len());
    }

    #[test]
    fn a_lone_coordinator_elects_nobody(plan in plans()) {
        let electing = services(&plan)
            .iter()
            .filter(|service| service.argv.iter().any(|argument| argument == "--leader-elect=true"))
            .count();
        let several = plan.wants(Wanted::ControlPlane) && !plan.others.is_empty();
        prop_assert_eq!(electing, if several { 2 } else { 0 });
    }
}

/// Written out, each service by name: what it may take, and whether what it executes may have more privileges.
///
/// Proves: O2
#[test]
fn each_service_has_bounds_of_its_own() {
    const GIB: u64 = 1 << 30;
    let seen: Vec<_> = services(&plan())
        .iter()
        .map(|spec| (spec.name, spec.limits.memory, spec.limits.pids, spec.privileges == Privileges::MayGrow))
        .collect();
    let expected = [
        ("etcd", GIB, 1024, false),
        ("containerd", 2 * GIB, 16_384, true),
        ("kube.apiserver", 3 * GIB, 1024, false),
        ("kube.kubelet", GIB, 4096, true),
        ("kube.controller-manager", GIB, 1024, false),
        ("kube.scheduler", GIB, 1024, false),
    ];
    assert_eq!(seen, expected);
}

/// Proves: O2
#[test]
fn a_machine_runs_what_its_roles_want_and_nothing_else() {
    use ClusterRole::{Coordinator, Node};
    use KubernetesRole::{ControlPlane, Worker};
    let runs = |role, kubernetes: &[KubernetesRole]| {
        let plan = Plan { assignment: assigned(role, kubernetes), ..plan() };
        let tasks = tasks(&plan).into_iter().map(|task| task.name());
        services(&plan).into_iter().map(|service| service.name).chain(tasks).collect::<Vec<_>>().join(" ")
    };
    let all = "etcd containerd kube.apiserver kube.kubelet kube.controller-manager kube.scheduler \
               cluster kube.balancer images kube.bootstrap kube.observer pods";
    assert_eq!(runs(Coordinator, &[ControlPlane, Worker]), all);
    let control_plane =
        "etcd kube.apiserver kube.controller-manager kube.scheduler cluster kube.balancer kube.bootstrap";
    assert_eq!(runs(Coordinator, &[ControlPlane]), control_plane);
    let worker = "containerd kube.kubelet kube.balancer images kube.observer pods";
    assert_eq!(runs(Node, &[Worker]), worker);
    assert_eq!((runs(Coordinator, &[]), runs(Node, &[])), ("etcd cluster".to_owned(), String::new()));
}

/// An etcd without users lets everybody who reaches it read and write everything.
#[test]
fn nobody_but_pid_1_reaches_an_etcd_that_does_not_ask_who_calls() {
    let plan = Plan { etcd_users: EtcdUsers::Unknown, ..plan() };
    let apiserver = services(&plan).into_iter().find(|service| service.name == "kube.apiserver").unwrap();
    let needs: Vec<_> = apiserver.needs.iter().map(|need| (need.service, need.until)).collect();
    assert_eq!(needs, [("etcd", Until::Started), ("etcd.users", Until::Finished)]);
    // Each user that is made is another revision of etcd's rights, and questions of the one before are refused.
    let records = tasks(&plan).into_iter().find(|task| task.name() == "cluster").unwrap().needs(&plan);
    let needs: Vec<_> = records.iter().map(|need| (need.service, need.until)).collect();
    assert_eq!(needs, [("etcd", Until::Ready), ("etcd.users", Until::Finished)]);
    let first = tasks(&plan).into_iter().next().map(|task| (task.name(), task.needs(&plan)[0].service));
    assert_eq!(first, Some(("etcd.users", "etcd")));
    let [root, kubernetes] = ETCD_USERS;
    assert_eq!((root.name, root.may), ("root", EtcdRights::All));
    assert_eq!((kubernetes.name, kubernetes.may), ("kubernetes", EtcdRights::Keys("/registry/")));
    // The apiserver's certificate is that user's, and no member's is any user's, whatever its node is called.
    let called = |node: &str, credential: Credential| {
        let plan = Plan { node: NodeName::chosen(node).unwrap(), ..plan.clone() };
        credential.profile(&plan).row().common_name
    };
    assert_eq!(called("node-1", Credential::EtcdApiserverClient), kubernetes.name);
    assert_eq!(called("node-1", Credential::EtcdMachineClient), root.name);
    for credential in [Credential::EtcdServer, Credential::EtcdPeer] {
        for user in ETCD_USERS {
            assert!(ETCD_USERS.iter().all(|other| other.name != called(user.name, credential)), "{credential:?}");
        }
    }
}

/// etcd's word for it (server/etcdmain/config.go).
const FORCES: &str = "--force-new-cluster=true";

/// Proves: K6
#[test]
fn a_member_of_etcd_knows_the_others_and_its_cluster() {
    let plan = Plan { etcd: EtcdCluster::Existing, others: vec![other()], ..plan() };
    let argv = services(&plan).swap_remove(0).argv;
    let members = "--initial-cluster=node-1=https://10.118.0.1:7834,other=https://10.118.7.7:7834";
    assert!(argv.iter().any(|argument| argument == members), "{argv:?}");
    assert!(argv.iter().any(|argument| argument == "--initial-cluster-state=existing"), "{argv:?}");
    assert_eq!(plan.kubernetes_api().to_string(), "10.118.0.1:6443");
    // It takes all other members out, whenever it starts: never but in a recovery.
    let forces = |etcd| services(&Plan { etcd, ..plan.clone() }).swap_remove(0).argv.contains(&FORCES.to_owned());
    let begins = [EtcdCluster::New, EtcdCluster::Existing, EtcdCluster::Recovered];
    assert_eq!(begins.map(forces), [false, false, true]);
    let node = Plan { assignment: assigned(ClusterRole::Node, &[KubernetesRole::Worker]), ..plan };
    assert_eq!((node.coordinators(), node.kubernetes_api().to_string()), (vec![other()], "127.0.0.1:6443".to_owned()));
}

#[test]
fn each_file_has_its_directory() {
    for file in files(&plan()) {
        let (directory, _) = file.path.rsplit_once('/').unwrap();
        assert!(DIRECTORIES.iter().any(|made| made.path == directory), "{}", file.path);
    }
}

/// Which certificate is for whom is the whole of it: another profile in a row is another identity with its rights.
/// Proves: W7
#[test]
fn each_credential_is_of_the_one_profile_that_is_meant_for_it() {
    let plan = plan();
    let mut spelled = String::new();
    for credential in Credential::ALL {
        let profile = credential.profile(&plan);
        let row = profile.row();
        let organisation = row.organisation.unwrap_or("-");
        writeln!(
            spelled,
            "{credential:?}: {:?} {:?} CN={} O={organisation}",
            row.authority, row.usage, row.common_name
        )
        .unwrap();
        for name in row.names {
            writeln!(spelled, "    {name:?}").unwrap();
        }
    }
    golden("credentials.txt", &spelled);
    // In words, what the two worst mistakes would be.
    let row = |credential: Credential| credential.profile(&plan).row();
    let kubelet = row(Credential::KubeletClient);
    assert_eq!((kubelet.organisation, &*kubelet.common_name), (Some("system:nodes"), "system:node:node-1"));
    let (peer, server) = (row(Credential::EtcdPeer), row(Credential::EtcdServer));
    assert!(peer.names.contains(&pki::Name::Dns(pki::ETCD_PEER_NAME.to_owned())), "{:?}", peer.names);
    assert!(!server.names.contains(&pki::Name::Dns(pki::ETCD_PEER_NAME.to_owned())), "{:?}", server.names);
}

/// A pod that takes all it can leaves the machine what it needs.
#[test]
fn pods_are_bounded_and_the_machine_keeps_its_share() {
    let kubelet = files(&plan()).into_iter().find(|file| file.path.ends_with("kubelet.json")).unwrap();
    let read: serde_json::Value = serde_json::from_str(&kubelet.contents).unwrap();
    assert_eq!(read["podPidsLimit"], 1024);
    assert_eq!(read["systemReserved"], serde_json::json!({ "memory": "1024Mi", "pid": "4096" }));
    assert_eq!(read["enforceNodeAllocatable"], serde_json::json!(["pods"]), "what is reserved is taken from pods");
    assert!(u64::from(reserve::PIDS_OF_A_POD) < reserve::pids_of_pods(24_000), "one pod cannot take what all may");
}

#[test]
fn a_pods_token_lasts_as_said_and_requests_are_written_down() {
    let services = services(&plan());
    let apiserver = services.iter().find(|service| service.name == "kube.apiserver").unwrap();
    for flag in [
        "--service-account-extend-token-expiration=false",
        "--audit-log-path=-",
        "--audit-policy-file=/run/cairn/kube/audit.json",
        "--encryption-provider-config=/run/cairn/pki/encryption.json",
    ] {
        assert!(apiserver.argv.iter().any(|argument| argument == flag), "{flag}");
    }
}

#[test]
fn each_probe_shows_a_certificate_of_the_authority_it_meets() {
    let plan = plan();
    for service in services(&plan) {
        if let Probe::HttpsGet { authority, client: Some(client), .. } = service.probe {
            let row = client.profile(&plan).row();
            assert_eq!((row.authority, row.usage), (authority, Usage::Client), "{}", service.name);
        }
    }
}

/// Proves: W7
#[test]
fn pod_security_is_baseline_and_exempts_nobody() {
    let admission = files(&plan()).into_iter().find(|file| file.path.ends_with("admission.json")).unwrap();
    let read: serde_json::Value = serde_json::from_str(&admission.contents).unwrap();
    let configuration = &read["plugins"][0]["configuration"];
    assert_eq!(configuration["defaults"]["enforce"], "baseline");
    for exempt in ["usernames", "runtimeClasses", "namespaces"] {
        assert_eq!(configuration["exemptions"][exempt], serde_json::json!([]));
    }
}

/// Proves: W7
#[test]
fn nobody_gets_rights_in_a_new_cluster_but_our_groups() {
    for object in bootstrap::objects() {
        let read: serde_json::Value = serde_json::from_str(&object.body).unwrap();
        assert_eq!(read["metadata"]["name"], object.name);
        for subject in read["subjects"].as_array().into_iter().flatten() {
            assert_eq!(subject["kind"], "Group");
            assert!(subject["name"].as_str().unwrap().starts_with("cairn:"));
        }
    }
}

/// The mark says that all are there, so it has to come last; and nobody may do anything by it.
#[test]
fn the_first_objects_end_with_a_mark_that_allows_nothing() {
    let objects = bootstrap::objects();
    let (mark, before) = objects.split_last().unwrap();
    assert_eq!(format!("{}/{}", mark.path, mark.name), bootstrap::mark_path());
    assert_eq!(before.len(), 2);
    let read: serde_json::Value = serde_json::from_str(&mark.body).unwrap();
    assert_eq!((&read["kind"], &read["rules"]), (&"ClusterRole".into(), &serde_json::json!([])));
    assert!(before.iter().all(|object| !object.body.contains(mark.name)), "bound to nobody");
}

/// Proves: W1
#[test]
fn one_plan_is_what_its_golden_files_say() {
    let plan = plan();
    let mut spelled = String::new();
    for service in services(&plan) {
        writeln!(spelled, "{}", service.name).unwrap();
        for argument in &service.argv {
            writeln!(spelled, "    {argument}").unwrap();
        }
        for (name, value) in &service.environment {
            writeln!(spelled, "  env {name}={value}").unwrap();
        }
        for need in &service.needs {
            let until = match need.until {
                Until::Started => "started",
                Until::Ready => "ready",
                Until::Finished => "finished",
            };
            writeln!(spelled, "  needs {} {until}: {}", need.service, need.because).unwrap();
        }
        writeln!(spelled, "  ready when {:?}\n", service.probe).unwrap();
    }
    golden("services.txt", &spelled);
    for file in files(&plan) {
        golden(file.path.rsplit('/').next().unwrap(), &file.contents);
    }
    let objects: String = bootstrap::objects()
        .iter()
        .map(|object| format!("POST {} ({})\n{}\n", object.path, object.because, object.body))
        .collect();
    golden("bootstrap.txt", &objects);
}

fn golden(name: &str, actual: &str) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    if std::env::var_os("CAIRN_REWRITE_GOLDEN").is_some() {
        std::fs::write(&path, actual).unwrap();
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(actual, expected, "{name} differs from its golden file");
}
