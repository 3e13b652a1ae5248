//! Rules that every plan's services keep to, and one plan spelled out in golden files.
//!
//! The golden files are rewritten by running the tests with `CAIRN_REWRITE_GOLDEN=1`.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::time::Duration;

use model::{Assignment, ClusterId, ClusterRole, KubernetesRole, NodeName, Prefixes, VPN_PREFIX, pod_prefix};
use pki::{AuthorityKind, Usage};
use proptest::prelude::*;
use services::{
    Credential, DIRECTORIES, ETCD_REVOKED, ETCD_USERS, EtcdCluster, EtcdPlan, EtcdRights, EtcdUsers, ReadinessProbe,
    Run, SECRETS_ENCRYPTION, SERVICE_ACCOUNT_KEY, SERVICE_ACCOUNT_PUBLIC, ServiceFile, ServicePage, ServicePlan,
    ServicePrivileges, ServiceProgram, ServiceRole, Task, Unit, authority_path, bootstrap, dns, names, reserve, wanted,
};
use supervise::{Fingerprint, Need, Readiness, Spec, Tree};

const USUAL: Prefixes = Prefixes::of(VPN_PREFIX);

fn plan() -> ServicePlan {
    ServicePlan {
        machine: model::MachineId([0xab; 16]),
        node: NodeName::chosen("node-1").unwrap(),
        cluster: ClusterId([0xcd; 16]),
        assignment: Assignment::first(&USUAL, KubernetesRole::ALL.iter().copied().collect()),
        prefixes: USUAL,
        etcd: Some(EtcdPlan { begins: EtcdCluster::New, others: Vec::new(), users: EtcdUsers::Known }),
        bin: "/usr/bin",
        has_gvisor: false,
    }
}

/// The same on a machine that coordinates nothing.
fn worker() -> ServicePlan {
    ServicePlan { assignment: assigned(ClusterRole::Node, &[KubernetesRole::Worker]), etcd: None, ..plan() }
}

/// Spec and program of each unit that is one, in the order of their start.
fn programs(plan: &ServicePlan) -> Vec<(Spec, ServiceProgram)> {
    let program = |unit: Unit| unit.as_program().cloned().map(|program| (unit.spec, program));
    wanted(plan).into_iter().filter_map(program).collect()
}

/// Spec and program of the unit called `name`.
fn program(plan: &ServicePlan, name: &str) -> (Spec, ServiceProgram) {
    programs(plan).into_iter().find(|(spec, _)| spec.name == *name).unwrap()
}

/// All texts that programs read.
fn files(plan: &ServicePlan) -> Vec<ServiceFile> {
    programs(plan).into_iter().flat_map(|(_, program)| program.files).collect()
}

/// Assignment of a machine with this role and these roles of Kubernetes.
fn assigned(role: ClusterRole, kubernetes: &[KubernetesRole]) -> Assignment {
    let pods = kubernetes.contains(&KubernetesRole::Worker).then(|| pod_prefix(3));
    Assignment::new(Ipv4Addr::new(10, 118, 0, 1), role, kubernetes.iter().copied().collect(), pods).unwrap()
}

fn plans() -> impl Strategy<Value = ServicePlan> {
    let role = proptest::sample::select(ClusterRole::ALL);
    let begins = proptest::sample::select(&[EtcdCluster::New, EtcdCluster::Existing]);
    let kubernetes = proptest::sample::subsequence(KubernetesRole::ALL, 0..=2);
    let name = "[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?";
    let users = proptest::sample::select(&[EtcdUsers::Unknown, EtcdUsers::Known]);
    let what = (role, (begins, users), kubernetes, any::<bool>());
    (name, any::<[u8; 16]>(), any::<[u8; 2]>(), any::<u8>(), any::<bool>(), what).prop_filter_map(
        "a name kept for derived ones, or a control plane without etcd",
        |(name, cluster, [c, d], pods, lone, (role, (begins, users), kubernetes, gvisor))| {
            let pods = kubernetes.contains(&KubernetesRole::Worker).then(|| pod_prefix(pods));
            let vpn_ip = Ipv4Addr::new(10, 118, c, d);
            let etcd = EtcdPlan { begins, others: if lone { Vec::new() } else { vec![other()] }, users };
            Some(ServicePlan {
                machine: model::MachineId([0xab; 16]),
                node: NodeName::chosen(&name).ok()?,
                cluster: ClusterId(cluster),
                assignment: Assignment::new(vpn_ip, role, kubernetes.into_iter().collect(), pods).ok()?,
                prefixes: USUAL,
                etcd: (role == ClusterRole::Coordinator).then_some(etcd),
                bin: "/usr/bin",
                has_gvisor: gvisor,
            })
        },
    )
}

fn other() -> (NodeName, Ipv4Addr) {
    (NodeName::chosen("other").unwrap(), Ipv4Addr::new(10, 118, 7, 7))
}

/// Files of a credential.
fn paths(credential: Credential) -> [String; 2] {
    [credential.certificate_path(), credential.key_path()]
}

/// Every secret and certificate that exists before the first service starts.
fn provided(plan: &ServicePlan) -> BTreeSet<String> {
    let accounts = [SERVICE_ACCOUNT_KEY, SERVICE_ACCOUNT_PUBLIC, SECRETS_ENCRYPTION].map(str::to_owned);
    let authorities = [AuthorityKind::Etcd, AuthorityKind::Kubernetes, AuthorityKind::Front].map(authority_path);
    let kubernetes = plan.wants(ServiceRole::ControlPlane);
    let credentials = programs(plan).into_iter().flat_map(|(_, program)| program.credentials);
    credentials
        .flat_map(paths)
        .chain(authorities)
        .chain(accounts.into_iter().filter(|_| kubernetes))
        .chain(plan.wants(ServiceRole::Coordinator).then(|| ETCD_REVOKED.to_owned()))
        .collect()
}

/// All that a program is told: its arguments and the files it reads.
fn text(program: &ServiceProgram) -> String {
    let files = program.files.iter().map(|file| file.contents.as_str());
    program.argv.iter().map(String::as_str).chain(files).collect::<Vec<_>>().join("\n")
}

/// Paths below `folder` that a text names.
fn named<'a>(text: &'a str, folder: &'a str) -> impl Iterator<Item = &'a str> {
    text.split(['=', '"', '\n', ',', ' ']).filter(move |word| word.starts_with(folder))
}

/// Spec of the unit called `name`.
fn spec(plan: &ServicePlan, name: &str) -> Spec {
    wanted(plan).into_iter().map(|unit| unit.spec).find(|spec| spec.name == *name).unwrap()
}

#[test]
fn a_program_is_ready_by_its_probe_and_a_task_once_it_runs() {
    for unit in wanted(&plan()) {
        let expected = if unit.as_program().is_some() { Readiness::Probe } else { Readiness::OnStart };
        assert_eq!(unit.spec.ready, expected, "{}", unit.spec.name);
    }
}

#[test]
fn pods_have_longer_to_end_than_kubelet_gives_each() {
    assert!(spec(&plan(), names::PODS).stop_deadline > Duration::from_secs(30));
}

#[test]
fn the_observer_waits_for_objects_of_its_own_apiserver_alone() {
    let own = [Need::finished(names::BOOTSTRAP)];
    let needs = [plan(), worker()].map(|plan| spec(&plan, names::OBSERVER).needs);
    assert_eq!(needs, [own.to_vec(), Vec::new()]);
}

proptest! {
    #[test]
    fn the_programs_of_an_assignment_are_those_that_it_runs(plan in plans()) {
        let named: Vec<_> = services::programs(&plan.assignment).map(|name| format!("/usr/bin/{name}")).collect();
        let run: Vec<_> = programs(&plan).into_iter().map(|(_, program)| program.argv[0].clone()).collect();
        prop_assert_eq!(named, run);
    }

    /// Proves: F7
    #[test]
    fn nothing_listens_but_on_the_vpns_address_and_loopback(plan in plans()) {
        let vpn = plan.vpn().to_string();
        for (_, program) in programs(&plan) {
            for argument in &program.argv {
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
        for (spec, program) in programs(&plan) {
            // The one 0.0.0.0 is a route in the pods' network.
            let text = text(&program).replace(r#""dst": "0.0.0.0/0""#, "");
            prop_assert!(!text.contains("0.0.0.0") && !text.contains("::"), "{}", spec.name);
            prop_assert!(!text.contains("http://"), "{}", spec.name);
        }
        for servant in ["kube.apiserver", "kube.controllers"] {
            let Some((_, program)) = programs(&plan).into_iter().find(|(spec, _)| spec.name == *servant) else { continue };
            prop_assert!(program.argv.iter().any(|argument| argument.starts_with("--bind-address=")), "{servant}");
        }
    }

    /// Proves: W3
    #[test]
    fn each_path_a_service_names_is_provided_and_no_other_file(plan in plans()) {
        let provided = provided(&plan);
        let mut all = BTreeSet::new();
        for (spec, program) in programs(&plan) {
            let text = text(&program);
            let own: BTreeSet<String> = program.credentials.iter().copied().flat_map(paths).collect();
            for path in named(&text, "/run/cairn/pki/") {
                prop_assert!(provided.contains(path), "{}: {path}", spec.name);
                let others = Credential::ALL.into_iter().flat_map(paths).any(|other| other == path);
                prop_assert!(!others || own.contains(path), "{}: {path} is another's", spec.name);
                all.insert(path.to_owned());
            }
            for path in own.into_iter().chain(program.files.iter().map(|file| file.path.to_owned())) {
                // A network is found by its folder.
                let folder = path.rsplit_once('/').map(|(folder, _)| format!("\"{folder}\"")).unwrap_or_default();
                prop_assert!(text.contains(&path) || text.contains(&folder), "{}: {path}", spec.name);
            }
            for path in named(&text, "/data/") {
                prop_assert!(DIRECTORIES.iter().any(|made| made.path == path), "{}: {path}", spec.name);
            }
        }
        for path in &provided {
            // Certificates of authorities are no secret, and there on every machine.
            prop_assert!(all.contains(path) || path.ends_with("-ca.crt"), "{path}");
        }
    }

    /// Proves: W7
    #[test]
    fn no_argument_and_no_file_holds_a_secret_or_an_authoritys_key(plan in plans()) {
        for (spec, program) in programs(&plan) {
            let text = text(&program);
            prop_assert!(!text.contains("PRIVATE KEY") && !text.contains("key-data"), "{}", spec.name);
            prop_assert!(!text.contains("ca.key") && !text.contains("cluster-signing"), "{}", spec.name);
        }
    }

    /// Proves: O2
    #[test]
    fn the_units_of_each_plan_are_a_table(plan in plans()) {
        let specs = wanted(&plan).into_iter().map(|unit| unit.spec).collect();
        let tree = Tree::start(specs, testkit::origin(), &mut Vec::new());
        prop_assert!(tree.is_ok(), "{:?}", tree.err());
    }
}

/// Names of the units that another plan has replaced, comes with or goes without.
fn differ(one: &ServicePlan, other: &ServicePlan) -> String {
    let (one, other) = (wanted(one), wanted(other));
    let differs = |unit: &&Unit| !one.contains(unit) || !other.contains(unit);
    let names: BTreeSet<_> = one.iter().chain(&other).filter(differs).map(|unit| unit.spec.name.as_str()).collect();
    Vec::from_iter(names).join(" ")
}

/// Proves: O2
#[test]
fn what_changes_replaces_the_units_that_it_is_about() {
    use KubernetesRole::{ControlPlane, Worker};
    let now = plan();
    let with = |etcd: EtcdPlan| differ(&now, &ServicePlan { etcd: Some(etcd), ..now.clone() });
    let etcd = now.etcd.clone().unwrap();
    assert_eq!(with(etcd.clone()), "");
    assert_eq!(with(EtcdPlan { begins: EtcdCluster::Recovered, ..etcd.clone() }), "etcd");
    assert_eq!(with(EtcdPlan { users: EtcdUsers::Unknown, ..etcd.clone() }), "etcd.users kube.apiserver");
    assert_eq!(with(EtcdPlan { others: vec![other()], ..etcd }), "etcd");
    let other = |pods| {
        let both = [ControlPlane, Worker].into_iter().collect();
        let vpn_ip = now.assignment.vpn_ip();
        let assignment = Assignment::new(vpn_ip, ClusterRole::Coordinator, both, Some(pod_prefix(pods))).unwrap();
        ServicePlan { assignment, ..now.clone() }
    };
    assert_eq!(
        differ(&other(3), &other(4)),
        "containerd kube.balancer kube.dns kube.kubelet kube.resolvers policies",
        "its network is its pods', it is another node, and serves its pods elsewhere"
    );
}

/// A program is told apart by all of it: what is not in the fingerprint would not be replaced.
///
/// Proves: O2
#[test]
fn each_part_of_a_program_is_in_its_fingerprint() {
    let (spec, program) = program(&plan(), "containerd");
    assert_eq!(spec.content, Fingerprint::of(&program));
    let mut others = vec![program; 4];
    others[0].argv.push("--more".to_owned());
    others[1].files[0].contents.push(' ');
    others[2].limits.memory += 1;
    others[3].credentials.push(Credential::EtcdPeer);
    let prints: BTreeSet<_> = others.iter().map(|other| format!("{:?}", Fingerprint::of(other))).collect();
    assert_eq!(prints.len(), 4);
    assert!(others.iter().all(|other| Fingerprint::of(other) != spec.content));
}

/// A restart forgets who the others are; who leads is found out beside them all the same.
///
/// Proves: W1
#[test]
fn whoever_runs_a_control_plane_elects_its_leaders() {
    let restarted = EtcdPlan { begins: EtcdCluster::Existing, others: Vec::new(), users: EtcdUsers::Known };
    let services = programs(&ServicePlan { etcd: Some(restarted), ..plan() });
    let (_, program) = services.iter().find(|(spec, _)| spec.name == *"kube.controllers").unwrap();
    let elects = |flags: &[String]| flags.iter().any(|flag| flag == "--leader-elect=true");
    let [manager, scheduler] = program.argv.split(|flag| flag == "--").collect::<Vec<_>>()[..] else {
        panic!("flags of two: {:?}", program.argv)
    };
    assert!(elects(manager) && elects(scheduler), "{:?}", program.argv);
}

/// Written out, each service by name: what it may take, and whether what it executes may have more privileges.
///
/// Proves: O2
#[test]
fn each_service_has_bounds_of_its_own() {
    const GIB: u64 = 1 << 30;
    let bounds = |(spec, program): (Spec, ServiceProgram)| {
        let limits = program.limits;
        (spec.name.to_string(), limits.memory, limits.pids, program.privileges == ServicePrivileges::MayGrow)
    };
    let seen: Vec<_> = programs(&plan()).into_iter().map(bounds).collect();
    let expected = [
        ("etcd", GIB, 1024, false),
        ("containerd", 2 * GIB, 16_384, true),
        ("kube.apiserver", 3 * GIB, 1024, false),
        ("kube.kubelet", GIB, 4096, true),
        ("kube.controllers", GIB, 1024, false),
        ("kube.proxy", GIB / 4, 256, false),
        ("kube.dns", GIB / 4, 256, false),
    ];
    assert_eq!(seen, expected.map(|(name, memory, pids, grows)| (name.to_owned(), memory, pids, grows)));
}

/// Proves: O2
#[test]
fn a_machine_runs_what_its_roles_want_and_nothing_else() {
    use ClusterRole::{Coordinator, Node};
    use KubernetesRole::{ControlPlane, Worker};
    let runs = |role, kubernetes: &[KubernetesRole]| {
        let etcd = plan().etcd.filter(|_| role == Coordinator);
        let plan = ServicePlan { assignment: assigned(role, kubernetes), etcd, ..plan() };
        wanted(&plan).iter().map(|unit| unit.spec.name.as_str()).collect::<Vec<_>>().join(" ")
    };
    let all = "etcd containerd kube.apiserver kube.kubelet kube.controllers kube.proxy kube.dns \
               kube.balancer images kube.bootstrap kube.nodes kube.publisher kube.provisioner kube.policies \
               kube.metrics kube.observer kube.resolvers kube.volumes registries policies pods";
    assert_eq!(runs(Coordinator, &[ControlPlane, Worker]), all);
    let control_plane = "etcd kube.apiserver kube.controllers kube.balancer kube.bootstrap kube.nodes kube.publisher \
                         kube.provisioner kube.policies kube.metrics";
    assert_eq!(runs(Coordinator, &[ControlPlane]), control_plane);
    let worker = "containerd kube.kubelet kube.proxy kube.dns kube.balancer images kube.observer kube.resolvers kube.volumes \
                  registries policies pods";
    assert_eq!(runs(Node, &[Worker]), worker);
    // Every coordinator tells workers of policies.
    assert_eq!((runs(Coordinator, &[]), runs(Node, &[])), ("etcd kube.policies".to_owned(), String::new()));
    let without_etcd = ServicePlan { etcd: None, ..plan() };
    assert_eq!(
        wanted(&without_etcd),
        wanted(&ServicePlan { assignment: without_etcd.assignment.clone().as_node(), ..without_etcd }),
        "before it is there"
    );
}

/// An etcd without users lets everybody who reaches it read and write everything.
#[test]
fn nobody_but_pid_1_reaches_an_etcd_that_does_not_ask_who_calls() {
    let plan = ServicePlan { etcd: Some(EtcdPlan { users: EtcdUsers::Unknown, ..plan().etcd.unwrap() }), ..plan() };
    let (apiserver, _) = program(&plan, "kube.apiserver");
    assert_eq!(apiserver.needs, [Need::started("etcd"), Need::finished("etcd.users")]);
    let task = |task| wanted(&plan).into_iter().find(|unit| unit.run == Run::Task(task)).unwrap().spec;
    assert_eq!(task(Task::Users).needs, [Need::ready("etcd")]);
    let [root, kubernetes] = ETCD_USERS;
    assert_eq!((root.name, root.may), ("root", EtcdRights::All));
    assert_eq!((kubernetes.name, kubernetes.may), ("kubernetes", EtcdRights::Keys("/registry/")));
    // The apiserver's certificate is that user's, and no member's is any user's, whatever its node is called.
    let called = |node: &str, credential: Credential| {
        let plan = ServicePlan { node: NodeName::chosen(node).unwrap(), ..plan.clone() };
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
    let etcd = EtcdPlan { begins: EtcdCluster::Existing, others: vec![other()], ..plan().etcd.unwrap() };
    let plan = ServicePlan { etcd: Some(etcd.clone()), ..plan() };
    let argv = program(&plan, "etcd").1.argv;
    let members = "--initial-cluster=node-1=https://10.118.0.1:7834,other=https://10.118.7.7:7834";
    assert!(argv.iter().any(|argument| argument == members), "{argv:?}");
    assert!(argv.iter().any(|argument| argument == "--initial-cluster-state=existing"), "{argv:?}");
    assert_eq!(plan.kubernetes_api().to_string(), "10.118.0.1:6443");
    // It takes all other members out, whenever it starts: never but in a recovery.
    let forces = |begins| {
        let etcd = Some(EtcdPlan { begins, ..etcd.clone() });
        program(&ServicePlan { etcd, ..plan.clone() }, "etcd").1.argv.contains(&FORCES.to_owned())
    };
    let begins = [EtcdCluster::New, EtcdCluster::Existing, EtcdCluster::Recovered];
    assert_eq!(begins.map(forces), [false, false, true]);
    assert_eq!(worker().kubernetes_api().to_string(), "127.0.0.1:6443");
}

#[test]
fn each_file_has_its_directory() {
    for file in files(&ServicePlan { has_gvisor: true, ..plan() }) {
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
    assert!(peer.names.contains(&pki::AlternativeName::Dns(pki::ETCD_PEER_NAME.to_owned())), "{:?}", peer.names);
    assert!(!server.names.contains(&pki::AlternativeName::Dns(pki::ETCD_PEER_NAME.to_owned())), "{:?}", server.names);
}

/// A pod that takes all it can leaves the machine what it needs.
#[test]
fn pods_are_bounded_and_the_machine_keeps_its_share() {
    let kubelet = |plan: &ServicePlan| -> serde_json::Value {
        let file = files(plan).into_iter().find(|file| file.path.ends_with("kubelet.json")).unwrap();
        serde_json::from_str(&file.contents).unwrap()
    };
    assert_eq!(kubelet(&worker())["systemReserved"]["memory"], "384Mi", "it carries no etcd and no apiserver");
    let read = kubelet(&plan());
    assert_eq!(read["podPidsLimit"], 1024);
    assert_eq!(read["systemReserved"], serde_json::json!({ "memory": "1024Mi", "pid": "4096" }));
    assert_eq!(read["enforceNodeAllocatable"], serde_json::json!(["pods"]), "what is reserved is taken from pods");
    assert!(u64::from(reserve::PIDS_OF_A_POD) < reserve::pids_of_pods(24_000), "one pod cannot take what all may");
}

#[test]
fn a_pods_token_lasts_as_said_and_requests_are_written_down() {
    let (_, apiserver) = program(&plan(), "kube.apiserver");
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
    for (spec, program) in programs(&plan) {
        if let ReadinessProbe::Page(ServicePage::Https { authority, client: Some(client), .. }) = program.probe {
            let row = client.profile(&plan).row();
            assert_eq!((row.authority, row.usage), (authority, Usage::Client), "{}", spec.name);
        }
    }
}

/// Only an image with gVisor has containerd know it: another's pods of the class would wait for a program that is not there.
///
/// Proves: W6
#[test]
fn containerd_knows_gvisor_where_the_image_has_it() {
    let texts = |has_gvisor| {
        let (_, program) = program(&ServicePlan { has_gvisor, ..worker() }, "containerd");
        program.files.into_iter().map(|file| (file.path, file.contents)).collect::<BTreeMap<_, _>>()
    };
    let (without, with) = (texts(false), texts(true));
    assert!(without.values().all(|text| !text.contains("runsc")), "{without:?}");
    let shim = "grouping = true\n\n[runsc_config]\n  platform = \"systrap\"\n  network = \"sandbox\"\n";
    assert_eq!(with["/run/containerd/runsc/config.toml"], shim);
    let runtime = r#"    [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runsc]
      runtime_type = "io.containerd.runsc.v1"
      [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runsc.options]
        TypeUrl = "io.containerd.runsc.v1.options"
        ConfigPath = "/run/containerd/runsc/config.toml"
"#;
    let configuration = &with["/run/cairn/kube/containerd.toml"];
    assert_eq!(configuration.replacen(runtime, "", 1), without["/run/cairn/kube/containerd.toml"]);
    assert!(configuration.contains(runtime), "{configuration}");
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

/// Stands for the certificate of Kubernetes' authority.
const AUTHORITY: &str = "an authority";

/// Proves: W7
#[test]
fn nobody_gets_rights_in_a_new_cluster_but_our_groups() {
    for object in bootstrap::sets(USUAL, AUTHORITY).into_iter().flat_map(|set| set.objects) {
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
    let sets = bootstrap::sets(USUAL, AUTHORITY);
    for set in &sets {
        let (mark, before) = set.objects.split_last().unwrap();
        assert_eq!(format!("{}/{}", mark.path, mark.name), set.mark_path());
        assert!(!before.is_empty());
        let read: serde_json::Value = serde_json::from_str(&mark.body).unwrap();
        assert_eq!((&read["kind"], &read["rules"]), (&"ClusterRole".into(), &serde_json::json!([])));
        assert!(before.iter().all(|object| !object.body.contains(mark.name)), "bound to nobody");
    }
    let marks: BTreeSet<_> = sets.iter().map(bootstrap::ObjectSet::mark_path).collect();
    assert_eq!(marks.len(), sets.len());
}

/// Rights of PID 1 of a control plane, and of machines' resolvers, in Kubernetes, written out.
///
/// Proves: W7
#[test]
fn pid_1_keeps_nodes_and_volumes_a_resolver_follows_services() {
    let objects = bootstrap::sets(USUAL, AUTHORITY).into_iter().flat_map(|set| set.objects);
    let rules = objects.filter(|object| object.path.ends_with("/clusterroles")).flat_map(|role| {
        let read: serde_json::Value = serde_json::from_str(&role.body).unwrap();
        read["rules"].as_array().unwrap().iter().map(|rule| (role.name, rule.clone())).collect::<Vec<_>>()
    });
    let may = |who, group: &str, resources: &[&str], verbs: &[&str]| {
        (who, serde_json::json!({ "apiGroups": [group], "resources": resources, "verbs": verbs }))
    };
    let expected = [
        may("cairn:coordinators", "", &["nodes"], &["list", "watch", "patch", "delete"]),
        may("cairn:coordinators", "", &["pods"], &["list"]),
        may("cairn:coordinators", "", &["pods/eviction", "events"], &["create"]),
        may("cairn:coordinators", "", &["persistentvolumes"], &["list", "watch", "create", "patch", "delete"]),
        may("cairn:coordinators", "", &["persistentvolumeclaims"], &["list", "watch", "patch"]),
        may("cairn:coordinators", "", &["persistentvolumeclaims/status"], &["patch"]),
        may(
            "cairn:coordinators",
            "storage.k8s.io",
            &["csistoragecapacities"],
            &["list", "watch", "create", "patch", "delete"],
        ),
        may("cairn:resolvers", "", &["services", "namespaces"], &["list", "watch"]),
        may("cairn:resolvers", "discovery.k8s.io", &["endpointslices"], &["list", "watch"]),
        may("cairn:policies", "", &["pods", "namespaces"], &["list", "watch"]),
        may("cairn:policies", "networking.k8s.io", &["networkpolicies"], &["list", "watch"]),
        may("cairn:publishing", "", &["services"], &["list", "watch"]),
        may("cairn:publishing", "discovery.k8s.io", &["endpointslices"], &["list", "watch"]),
        may("cairn:publishing", "", &["services/status"], &["patch"]),
        may("cairn:metrics", "", &["nodes/stats"], &["get"]),
        may("cairn:metrics-readers", "metrics.k8s.io", &["nodes", "pods"], &["get", "list"]),
        may("cairn:machine-metrics", "metrics.cairn.internal", &["*"], &["get"]),
    ];
    assert_eq!(rules.collect::<Vec<_>>(), expected);
}

/// Proves: W7
#[test]
fn first_objects_have_names_that_their_kinds_may_have() {
    for object in bootstrap::sets(USUAL, AUTHORITY).iter().flat_map(|set| &set.objects) {
        // RFC 1123, section 2.1; roles and what binds them may have any path segment.
        let is_domain = object.name.chars().all(|one| matches!(one, 'a'..='z' | '0'..='9' | '-' | '.'));
        assert!(
            is_domain || object.path.contains("/rbac.authorization.k8s.io/"),
            "{} below {}",
            object.name,
            object.path
        );
    }
}

/// Proves: W2
#[test]
fn a_resolver_asks_outside_only_where_the_uplinks_say() {
    let gateway = "10.244.3.1".parse().unwrap();
    let own = ["10.244.3.1", "10.96.0.10", "10.118.0.1", "127.0.0.53", "0.0.0.0"].map(|own| own.parse().unwrap());
    for none in [&[][..], &own] {
        assert!(dns::outside(gateway, USUAL, none).lines().all(|line| line.starts_with('#')));
    }
    let text = dns::outside(gateway, USUAL, &["192.0.2.1".parse().unwrap(), "192.0.2.2".parse().unwrap()]);
    assert!(text.contains("bind 10.244.3.1\n") && text.contains("forward . 192.0.2.1 192.0.2.2 {"), "{text}");
    let (_, program) = program(&plan(), "kube.dns");
    assert_eq!(
        program.privileges,
        ServicePrivileges::User { user: 53, keeps: services::ServiceCapability::NetBindService }
    );
    let corefile = &program.files.iter().find(|file| file.path.ends_with("/Corefile")).unwrap().contents;
    let pattern = dns::OUTSIDE.strip_suffix("conf").unwrap();
    assert!(corefile.contains(&format!("import {pattern}*\n")) && !corefile.contains("forward"), "{corefile}");
}

/// Addresses that Kubernetes is told of are of the cluster's own prefixes, not of the usual ones.
///
/// Proves: H3
#[test]
fn a_cluster_of_other_prefixes_runs_kubernetes_by_them() {
    let [vpn, pods, services] =
        ["172.28.0.0/16", "172.29.0.0/16", "172.30.0.0/20"].map(|prefix| prefix.parse().unwrap());
    let prefixes = Prefixes { vpn, pods, services };
    let both = KubernetesRole::ALL.iter().copied().collect();
    let plan = ServicePlan { assignment: Assignment::first(&prefixes, both), prefixes, ..plan() };
    let mut told: String = files(&plan).into_iter().map(|file| file.contents).collect();
    told.extend(programs(&plan).into_iter().flat_map(|(_, program)| program.argv));
    told.extend(bootstrap::sets(prefixes, AUTHORITY).into_iter().flat_map(|set| set.objects).map(|object| object.body));
    for usual in ["10.118.", "10.244.", "10.96."] {
        assert!(!told.contains(usual), "{usual} in {told}");
    }
    for own in
        ["172.30.0.0/20", "172.30.0.10", "172.30.0.11", "172.29.0.0/16", "172.29.0.0/24", "172.28.0.1", "172.28.0.0/16"]
    {
        assert!(told.contains(own), "{own}");
    }
    let loops = ["172.28.0.1", "172.29.0.1", "172.30.0.10"].map(|own| own.parse().unwrap());
    assert!(!dns::outside(loops[1], prefixes, &loops).contains("forward"));
    assert!(dns::outside(loops[1], prefixes, &["10.96.0.10".parse().unwrap()]).contains("forward . 10.96.0.10"));
    let profile = Credential::Apiserver.profile(&plan);
    let pki::CertificateProfile::Apiserver { vpn, service } = profile else { panic!("{profile:?}") };
    assert_eq!((vpn.to_string(), service.to_string()), ("172.28.0.1".to_owned(), "172.30.0.1".to_owned()));
}

/// Proves: A7 W2
#[test]
fn a_service_proxy_changes_nftables_and_listens_on_loopback() {
    let (_, program) = program(&plan(), "kube.proxy");
    let keeps = services::ServiceCapability::NetAdmin;
    assert_eq!(program.privileges, ServicePrivileges::User { user: 54, keeps });
    assert!(program.credentials.iter().all(|credential| credential.user() == 54));
    let config = &program.files.iter().find(|file| file.path.ends_with("/proxy.json")).unwrap().contents;
    let config: serde_json::Value = serde_json::from_str(config).unwrap();
    assert_eq!((&config["mode"], &config["nodePortAddresses"][0]), (&"nftables".into(), &"primary".into()));
    for listens in ["healthzBindAddress", "metricsBindAddress"] {
        assert!(config[listens].as_str().unwrap().starts_with("127.0.0.1:"), "{listens}");
    }
}

/// Proves: W1
#[test]
fn one_plan_is_what_its_golden_files_say() {
    let plan = plan();
    let mut spelled = String::new();
    for (spec, program) in programs(&plan) {
        writeln!(spelled, "{}", spec.name).unwrap();
        for argument in &program.argv {
            writeln!(spelled, "    {argument}").unwrap();
        }
        for (name, value) in &program.environment {
            writeln!(spelled, "  env {name}={value}").unwrap();
        }
        for need in &spec.needs {
            writeln!(spelled, "  needs {need:?}").unwrap();
        }
        writeln!(spelled, "  ready when {:?}\n", program.probe).unwrap();
    }
    golden("services.txt", &spelled);
    for file in files(&plan) {
        golden(file.path.rsplit('/').next().unwrap(), &file.contents);
    }
    let objects: String = bootstrap::sets(USUAL, AUTHORITY)
        .iter()
        .flat_map(|set| &set.objects)
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
