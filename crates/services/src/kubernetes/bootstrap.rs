//! The first objects of a new cluster: who the groups in our certificates are to Kubernetes.
//!
//! PID 1 creates them once per cluster, when the apiserver is ready, with the bootstrap certificate (`system:masters`, one
//! hour, never written): only that group stands above RBAC, and somebody has to write the first bindings. They come in sets, so that a
//! later release adds one. The last object of a set is a mark that all of it are there: with it nothing of the set is created again, so
//! what the owner has deleted stays deleted. Before it, an object that is there already (409) is left alone.

use std::net::Ipv4Addr;

use data_encoding::BASE64;
use model::Prefixes;
use pki::{APISERVERS, COORDINATORS, OWNERS, PROXIES, RESOLVERS};
use serde_json::{Value, json};

use super::{sandbox, storage};

/// An object to create by POST.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Object {
    /// The collection's path on the apiserver.
    pub path: &'static str,
    /// `metadata.name` of the body.
    pub name: &'static str,
    /// The whole object, JSON.
    pub body: String,
    /// Right that it gives, or thing that it stands for.
    pub because: &'static str,
}

const BINDINGS: &str = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
const ROLES: &str = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
const SYSTEM_SERVICES: &str = "/api/v1/namespaces/kube-system/services";
const DNS_SERVICE: &str = "kube-dns";
/// Annotation of what stands for no right, and says what it is for.
const BECAUSE: &str = "cairn.internal/because";

/// Objects that are created together, once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectSet {
    /// Name of the mark: a role that allows nothing, an object of the cluster itself, which needs no namespace to be there before it.
    mark: &'static str,
    /// All of them, in the order of creation: the mark is the last.
    pub objects: Vec<Object>,
}

impl ObjectSet {
    fn new(mark_name: &'static str, mut objects: Vec<Object>) -> Self {
        objects.push(mark(mark_name));
        Self { mark: mark_name, objects }
    }

    /// Where the mark is read: answered 200 once the cluster has had these objects, 404 before.
    #[must_use]
    pub fn mark_path(&self) -> String {
        format!("{ROLES}/{}", self.mark)
    }
}

/// All sets, in the order of creation, for a cluster with these prefixes, whose Kubernetes has this authority (PEM).
#[must_use]
pub fn sets(prefixes: Prefixes, authority: &str) -> [ObjectSet; 10] {
    [
        ObjectSet::new(
            "cairn:bootstrapped",
            vec![
                binding(OWNERS, "cluster-admin", "the owner may do all, by a binding that can be deleted"),
                binding(APISERVERS, "system:kubelet-api-admin", "logs, exec and port-forward reach the kubelet"),
            ],
        ),
        ObjectSet::new(
            "cairn:bootstrapped-2",
            vec![
                role_of_coordinators(
                    "PID 1 has nodes and volumes follow the cluster's records and claims, and drains nodes",
                ),
                binding(COORDINATORS, COORDINATORS, "PID 1 keeps node objects"),
            ],
        ),
        ObjectSet::new(
            "cairn:bootstrapped-3",
            vec![
                role_of_resolvers("the resolvers of machines follow services and where they lead"),
                binding(RESOLVERS, RESOLVERS, "the resolvers of machines follow services"),
                binding(PROXIES, "system:node-proxier", "the proxies of machines follow services"),
                inside_is_not_published(
                    prefixes,
                    "a service gets no address of the cluster's own by its status either",
                ),
                bound_policy("that policy holds in all namespaces"),
                dns_service(prefixes, "a name for the address by which each machine's own resolver answers"),
            ],
        ),
        ObjectSet::new(
            "cairn:bootstrapped-4",
            vec![
                Object {
                    path: storage::DRIVERS,
                    name: volumes::DRIVER,
                    body: storage::driver().to_string(),
                    because: "kubelets have PID 1 mount volumes, and the scheduler asks for room",
                },
                Object {
                    path: storage::CLASSES,
                    name: storage::CLASS,
                    body: storage::class().to_string(),
                    because: "a claim that names no class gets a volume on its pod's machine",
                },
            ],
        ),
        ObjectSet::new(
            "cairn:bootstrapped-5",
            vec![
                role_of_policies("PID 1 compiles network policies of the pods that they are about"),
                binding_of(POLICY_ROLE, COORDINATORS, POLICY_ROLE, "PID 1 compiles network policies"),
            ],
        ),
        ObjectSet::new(
            "cairn:bootstrapped-6",
            vec![
                role_of_publishing("PID 1 says of services where the LAN reaches them"),
                binding_of(PUBLISHING_ROLE, COORDINATORS, PUBLISHING_ROLE, "PID 1 publishes services"),
            ],
        ),
        ObjectSet::new(
            "cairn:bootstrapped-7",
            vec![
                role_of_metrics("PID 1 asks kubelets what nodes and pods use"),
                binding_of(METRICS_ROLE, COORDINATORS, METRICS_ROLE, "PID 1 asks kubelets for usage"),
                role_of_readers("who may look at pods, or at all, sees what they use"),
                metrics_service(prefixes, "a name for the address at which each control plane answers itself"),
                metrics_endpoints(
                    prefixes,
                    "the apiserver goes by endpoints: the address leads to its own machine's PID 1",
                ),
                metrics_api(
                    ("v1beta1.metrics.k8s.io", "metrics.k8s.io", "v1beta1"),
                    authority,
                    "`kubectl top` and autoscalers are answered by PID 1 of the apiserver's machine",
                ),
            ],
        ),
        ObjectSet::new(
            "cairn:bootstrapped-8",
            vec![
                role(
                    "cairn:machine-metrics",
                    &json!([{ "apiGroups": ["metrics.cairn.internal"], "resources": ["*"], "verbs": ["get"] }]),
                    "whoever is bound to it reads the pages of machines; nobody is, before an owner says so",
                ),
                metrics_api(
                    ("v1.metrics.cairn.internal", "metrics.cairn.internal", "v1"),
                    authority,
                    "a pod reads the pages of machines by the apiserver, from PID 1 of its machine",
                ),
            ],
        ),
        ObjectSet::new("cairn:bootstrapped-9", vec![default_account()]),
        ObjectSet::new(
            "cairn:bootstrapped-10",
            vec![Object {
                path: sandbox::CLASSES,
                name: sandbox::CLASS,
                body: sandbox::class().to_string(),
                because: "a pod that names it runs on a kernel of its own",
            }],
        ),
    ]
}

/// Account of pods that name none. The controllers make it, too, but some time behind the first node that is Ready: until then
/// the apiserver refuses such pods.
fn default_account() -> Object {
    let (name, because) = ("default", "a pod may be created as soon as a node is Ready");
    let metadata = json!({ "name": name, "namespace": "default", "annotations": { BECAUSE: because } });
    let body = json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata });
    Object { path: "/api/v1/namespaces/default/serviceaccounts", name, body: body.to_string(), because }
}

fn role_of_coordinators(because: &'static str) -> Object {
    let rules = json!([
            { "apiGroups": [""], "resources": ["nodes"], "verbs": ["list", "watch", "patch", "delete"] },
            { "apiGroups": [""], "resources": ["pods"], "verbs": ["list"] },
            { "apiGroups": [""], "resources": ["pods/eviction", "events"], "verbs": ["create"] },
            { "apiGroups": [""], "resources": ["persistentvolumes"], "verbs": ["list", "watch", "create", "patch", "delete"] },
            { "apiGroups": [""], "resources": ["persistentvolumeclaims"], "verbs": ["list", "watch", "patch"] },
            { "apiGroups": [""], "resources": ["persistentvolumeclaims/status"], "verbs": ["patch"] },
            {
                "apiGroups": ["storage.k8s.io"],
                "resources": ["csistoragecapacities"],
                "verbs": ["list", "watch", "create", "patch", "delete"],
            },
    ]);
    role(COORDINATORS, &rules, because)
}

fn role_of_resolvers(because: &'static str) -> Object {
    role(
        RESOLVERS,
        &json!([follow("", &["services", "namespaces"]), follow("discovery.k8s.io", &["endpointslices"])]),
        because,
    )
}

/// Role by which network policies are compiled.
const POLICY_ROLE: &str = "cairn:policies";

fn role_of_policies(because: &'static str) -> Object {
    role(
        POLICY_ROLE,
        &json!([follow("", &["pods", "namespaces"]), follow("networking.k8s.io", &["networkpolicies"])]),
        because,
    )
}

/// Role by which services are published.
const PUBLISHING_ROLE: &str = "cairn:publishing";

fn role_of_publishing(because: &'static str) -> Object {
    role(
        PUBLISHING_ROLE,
        &json!([
            follow("", &["services"]),
            follow("discovery.k8s.io", &["endpointslices"]),
            { "apiGroups": [""], "resources": ["services/status"], "verbs": ["patch"] },
        ]),
        because,
    )
}

/// Role by which usage is asked for.
const METRICS_ROLE: &str = "cairn:metrics";

fn role_of_metrics(because: &'static str) -> Object {
    role(METRICS_ROLE, &json!([{ "apiGroups": [""], "resources": ["nodes/stats"], "verbs": ["get"] }]), because)
}

/// Role that becomes part of the roles `view`, `edit` and `admin`.
fn role_of_readers(because: &'static str) -> Object {
    let name = "cairn:metrics-readers";
    let into = |role: &str| format!("rbac.authorization.k8s.io/aggregate-to-{role}");
    let labels = json!({ into("view"): "true", into("edit"): "true", into("admin"): "true" });
    let rules = json!([{ "apiGroups": ["metrics.k8s.io"], "resources": ["nodes", "pods"], "verbs": ["get", "list"] }]);
    role_with(name, &json!({ "name": name, "labels": labels }), &rules, because)
}

const METRICS_SERVICE: &str = "cairn-metrics";

fn metrics_service(prefixes: Prefixes, because: &'static str) -> Object {
    let ports = json!([{ "name": "https", "protocol": "TCP", "port": 443 }]);
    let metadata = json!({ "name": METRICS_SERVICE, "namespace": "kube-system" });
    system_service(METRICS_SERVICE, &metadata, (prefixes.metrics_service(), ports), because)
}

fn metrics_endpoints(prefixes: Prefixes, because: &'static str) -> Object {
    let body = json!({
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": METRICS_SERVICE,
            "namespace": "kube-system",
            "labels": {
                "kubernetes.io/service-name": METRICS_SERVICE,
                "endpointslice.kubernetes.io/managed-by": "cairn.internal",
            },
        },
        "addressType": "IPv4",
        "endpoints": [{ "addresses": [prefixes.metrics_service().to_string()], "conditions": { "ready": true } }],
        "ports": [{ "name": "https", "protocol": "TCP", "port": 443 }],
    });
    let path = "/apis/discovery.k8s.io/v1/namespaces/kube-system/endpointslices";
    Object { path, name: METRICS_SERVICE, body: body.to_string(), because }
}

/// Group of an API in a version, with the name of its object, that PID 1 answers.
fn metrics_api((name, group, version): (&'static str, &str, &str), authority: &str, because: &'static str) -> Object {
    let body = json!({
        "apiVersion": "apiregistration.k8s.io/v1",
        "kind": "APIService",
        "metadata": { "name": name },
        "spec": {
            "group": group,
            "version": version,
            "groupPriorityMinimum": 100,
            "versionPriority": 100,
            "service": { "name": METRICS_SERVICE, "namespace": "kube-system", "port": 443 },
            "caBundle": BASE64.encode(authority.as_bytes()),
        },
    });
    Object { path: "/apis/apiregistration.k8s.io/v1/apiservices", name, body: body.to_string(), because }
}

/// Right to follow these resources of an API group.
fn follow(group: &str, resources: &[&str]) -> Value {
    json!({ "apiGroups": [group], "resources": resources, "verbs": ["list", "watch"] })
}

fn role(name: &'static str, rules: &Value, because: &'static str) -> Object {
    role_with(name, &json!({ "name": name }), rules, because)
}

/// Role that says more of itself than its name.
fn role_with(name: &'static str, metadata: &Value, rules: &Value, because: &'static str) -> Object {
    let body = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": metadata,
        "rules": rules,
    });
    Object { path: ROLES, name, body: body.to_string(), because }
}

const POLICIES: &str = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies";
const POLICY_BINDINGS: &str = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings";
const PUBLISHED: &str = "cairn.published-addresses";

/// kube-proxy takes each address that the status of a service has for one of the service's own.
fn inside_is_not_published(prefixes: Prefixes, because: &'static str) -> Object {
    let inside = prefixes.rows().map(|(prefix, _)| format!("'{prefix}'")).join(", ");
    let has =
        ["", ".loadBalancer", ".loadBalancer.ingress"].map(|part| format!("!has(object.status{part})")).join(" || ");
    let all_outside = format!("[{inside}].all(inside, !cidr(inside).containsIP(place.ip))");
    let expression = format!("{has} || object.status.loadBalancer.ingress.all(place, !has(place.ip) || {all_outside})");
    let rule = json!({
        "apiGroups": [""],
        "apiVersions": ["v1"],
        "operations": ["CREATE", "UPDATE"],
        "resources": ["services", "services/status"],
    });
    let body = json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy",
        "metadata": { "name": PUBLISHED },
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": { "resourceRules": [rule] },
            "validations": [{
                "expression": expression,
                "message": "an address of machines, pods or services of the cluster is no address to publish a service at",
            }],
        },
    });
    Object { path: POLICIES, name: PUBLISHED, body: body.to_string(), because }
}

fn bound_policy(because: &'static str) -> Object {
    let body = json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": { "name": PUBLISHED },
        "spec": { "policyName": PUBLISHED, "validationActions": ["Deny"] },
    });
    Object { path: POLICY_BINDINGS, name: PUBLISHED, body: body.to_string(), because }
}

/// Holds the address: a machine leads it to itself, so the service has no endpoints.
fn dns_service(prefixes: Prefixes, because: &'static str) -> Object {
    let port = |name: &str, protocol: &str| json!({ "name": name, "protocol": protocol, "port": 53 });
    let ports = json!([port("dns", "UDP"), port("dns-tcp", "TCP")]);
    let metadata = json!({ "name": DNS_SERVICE, "namespace": "kube-system", "labels": { "k8s-app": DNS_SERVICE } });
    system_service(DNS_SERVICE, &metadata, (prefixes.dns_service(), ports), because)
}

/// Service that selects no pods, at this address.
fn system_service(
    name: &'static str,
    metadata: &Value,
    (address, ports): (Ipv4Addr, Value),
    because: &'static str,
) -> Object {
    let spec = json!({ "clusterIP": address.to_string(), "ports": ports });
    let body = json!({ "apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec });
    Object { path: SYSTEM_SERVICES, name, body: body.to_string(), because }
}

fn mark(name: &'static str) -> Object {
    let because = "the cluster has had these objects; what is deleted of them stays deleted";
    let metadata = json!({ "name": name, "annotations": { BECAUSE: because } });
    role_with(name, &metadata, &json!([]), because)
}

/// A binding of the same name as the group.
fn binding(group: &'static str, role: &str, because: &'static str) -> Object {
    binding_of(group, group, role, because)
}

fn binding_of(name: &'static str, group: &str, role: &str, because: &'static str) -> Object {
    let body = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": { "name": name },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role },
        "subjects": [{ "apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": group }],
    });
    Object { path: BINDINGS, name, body: body.to_string(), because }
}
