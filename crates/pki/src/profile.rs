//! Which certificate says what: one row per profile. The table is the whole policy; the authority only signs it.
//!
//! No profile lets its holder sign certificates, and none but the bootstrap one carries a group that RBAC cannot
//! take away again.

use std::fmt;
use std::net::Ipv4Addr;
use std::time::Duration;

use model::{ClusterId, ClusterRole, MachineId, NodeName, UserName};

use crate::life::service_life;

/// For whom a certificate is, with what distinguishes one holder from another.
#[derive(Debug, Clone, Copy)]
pub enum CertificateProfile<'a> {
    /// A machine towards its owner, its cluster and other machines; for its Ed25519 identity key.
    Machine {
        /// Goes into its TLS name, and is made of its key.
        machine: MachineId,
        /// Goes into its TLS name and its role's URI.
        cluster: ClusterId,
        /// A URI: what it was when this was issued. What it may do is decided by its record.
        role: ClusterRole,
    },
    /// etcd towards its clients.
    EtcdServer {
        /// Becomes its serial number: see [`CertificateRow::serial`].
        machine: MachineId,
        /// The machine's name.
        node: &'a NodeName,
        /// VPN address of the coordinator.
        vpn: Ipv4Addr,
    },
    /// etcd towards other members, both ways.
    EtcdPeer {
        /// Becomes its serial number: see [`CertificateRow::serial`].
        machine: MachineId,
        /// The machine's name.
        node: &'a NodeName,
        /// VPN address of the coordinator.
        vpn: Ipv4Addr,
    },
    /// PID 1 as a client of etcd.
    EtcdMachineClient {
        /// Becomes its serial number: see [`CertificateRow::serial`].
        machine: MachineId,
    },
    /// The apiserver as a client of etcd.
    EtcdApiserverClient {
        /// Becomes its serial number: see [`CertificateRow::serial`].
        machine: MachineId,
    },
    /// The apiserver towards its clients.
    Apiserver {
        /// The machine's VPN address.
        vpn: Ipv4Addr,
        /// The address of the `kubernetes` service: the first of the service prefix.
        service: Ipv4Addr,
    },
    /// The apiserver as a client of kubelets.
    ApiserverKubeletClient,
    /// The apiserver as a client of servers that answer in its place, to which it says who asks.
    ApiserverFront,
    /// PID 1 of a control plane as a server that answers in the apiserver's place.
    MetricsServer,
    /// The controller-manager as a client of the apiserver.
    ControllerManager,
    /// The scheduler as a client of the apiserver.
    Scheduler,
    /// A kubelet as a client of the apiserver.
    KubeletClient {
        /// The node it is.
        node: &'a NodeName,
    },
    /// A kubelet towards the apiserver.
    KubeletServer {
        /// The node it is.
        node: &'a NodeName,
        /// The node's VPN address.
        vpn: Ipv4Addr,
    },
    /// A machine's resolver as a client of the apiserver.
    KubeDns {
        /// The node that it serves.
        node: &'a NodeName,
    },
    /// A machine's service proxy as a client of the apiserver.
    KubeProxy {
        /// The node whose packets it leads.
        node: &'a NodeName,
    },
    /// PID 1 of a control plane, which keeps node objects as the records have them.
    KubeCoordinator,
    /// PID 1 while it creates the bindings of the cairn groups; never leaves memory.
    KubeBootstrap,
    /// The owner, by `kubectl`.
    KubeOwner,
    /// A user, by `kubectl`.
    KubeUser {
        /// The user, who is called so in Kubernetes, too.
        name: UserName,
    },
    /// A component that serves its probe on loopback only: the controllers.
    LoopbackServer { component: &'a str },
}

/// Which of the four authorities signs a profile.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AuthorityKind {
    /// Machines and people.
    Cairn,
    /// etcd: servers, peers, clients.
    Etcd,
    /// Kubernetes: apiserver, kubelets, controllers, the owner's kubeconfig.
    Kubernetes,
    /// Apiservers towards servers that answer in their place: some of these believe any name that this authority vouches for.
    Front,
}

impl AuthorityKind {
    /// All four.
    pub const ALL: [Self; 4] = [Self::Cairn, Self::Etcd, Self::Kubernetes, Self::Front];

    /// The word for it, in file names and subjects.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Cairn => "cairn",
            Self::Etcd => "etcd",
            Self::Kubernetes => "kubernetes",
            Self::Front => "front",
        }
    }
}

impl fmt::Display for AuthorityKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// Use of a certificate (extended key usage).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Usage {
    /// TLS server.
    Server,
    /// TLS client.
    Client,
    /// Both.
    Both,
}

/// A subject alternative name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AlternativeName {
    /// A DNS name.
    Dns(String),
    /// An IPv4 address.
    Ip(Ipv4Addr),
    /// A URI.
    Uri(String),
}

/// Content of a profile's certificates.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateRow {
    /// Authority that signs the certificate.
    pub authority: AuthorityKind,
    /// Use that the certificate is good for.
    pub usage: Usage,
    /// From now on; the authority's own end comes first.
    pub lifetime: Duration,
    /// CN: to Kubernetes, the user.
    pub common_name: String,
    /// O: to Kubernetes, the group.
    pub organisation: Option<&'static str>,
    /// Subject alternative names.
    pub names: Vec<AlternativeName>,
    /// The serial number: the id of the machine that holds it, in all certificates that one has of etcd's authority, so that the
    /// machine is revoked by name (RFC 5280, section 4.1.2.2, wants another number in each: etcd compares with its list alone).
    /// Elsewhere a random one.
    pub serial: Option<MachineId>,
    /// Why it is so.
    pub because: &'static str,
}

const HOUR: Duration = Duration::from_secs(3600);
/// A machine's own certificate is in its seal. Nothing renews it yet, and an expired one would lock the owner out of
/// a healthy machine, so it ends with its authority; membership, not expiry, is what a machine loses.
const MACHINE: Duration = Duration::from_secs(20 * 365 * 24 * 3600);
/// Long enough for a working day, short enough that nobody has to revoke it.
const OWNER: Duration = Duration::from_secs(24 * 3600);

/// The group the owner's kubeconfig is in; bound to `cluster-admin` by a ClusterRoleBinding that can be deleted.
pub const OWNERS: &str = "cairn:owners";
/// The group that PID 1 of a control plane is in; bound to a role of the same name.
pub const COORDINATORS: &str = "cairn:coordinators";
/// The group that the machines' resolvers are in; bound to a role of the same name.
pub const RESOLVERS: &str = "cairn:resolvers";
/// The group that the machines' service proxies are in; bound to `system:node-proxier`.
pub const PROXIES: &str = "cairn:proxies";
/// The group the apiserver is in towards kubelets; bound to `system:kubelet-api-admin`.
pub const APISERVERS: &str = "cairn:apiservers";
/// Common name by which servers behind the apiserver know it.
pub const FRONT_NAME: &str = "kube-apiserver";
/// Name of the server by which `kubectl top` is answered, as the apiserver asks for it: its service's.
pub const METRICS_NAME: &str = "cairn-metrics.kube-system.svc";
/// The one name all etcd peers share, so that a client certificate of the same authority is no peer.
pub const ETCD_PEER_NAME: &str = "peer.etcd.cairn.internal";

/// etcd's user that may do everything: PID 1 of a coordinator. etcd has the name fixed, and takes users by the common name.
pub const ETCD_ROOT: &str = "root";
/// etcd's user that may read and write Kubernetes' keys and no others.
pub const ETCD_KUBERNETES: &str = "kubernetes";

/// The TLS name of a machine: `<machine_id>.<cluster_id>.cairn.internal`.
#[must_use]
pub fn machine_tls_name(machine: MachineId, cluster: ClusterId) -> String {
    format!("{machine}.{}", cluster_tls_name(cluster))
}

/// The name by which any machine of a cluster is asked for: no certificate is for it.
#[must_use]
pub fn cluster_tls_name(cluster: ClusterId) -> String {
    format!("{cluster}.cairn.internal")
}

/// The URI that says what a machine was when its certificate was issued.
#[must_use]
pub(crate) fn role_uri(cluster: ClusterId, role: ClusterRole) -> String {
    format!("cairn://{cluster}/{role}")
}

impl CertificateProfile<'_> {
    /// Content of the profile's certificates.
    #[must_use]
    pub fn row(&self) -> CertificateRow {
        use AuthorityKind::{Cairn, Etcd, Front, Kubernetes};
        use Usage::{Both, Client, Server};
        let client = |authority, common_name: &str, organisation, because| CertificateRow {
            authority,
            usage: Client,
            lifetime: service_life(),
            common_name: common_name.to_owned(),
            organisation,
            names: Vec::new(),
            serial: None,
            because,
        };
        let server = |authority, common_name: String, names, because| CertificateRow {
            authority,
            usage: Server,
            lifetime: service_life(),
            common_name,
            organisation: None,
            names,
            serial: None,
            because,
        };
        match *self {
            Self::Machine { machine, cluster, role } => CertificateRow {
                usage: Both,
                lifetime: MACHINE,
                ..server(
                    Cairn,
                    machine.to_string(),
                    vec![dns(&machine_tls_name(machine, cluster)), AlternativeName::Uri(role_uri(cluster, role))],
                    "serves its APIs and calls those of others as the same machine",
                )
            },
            // No node may be called so that its etcd passes for a user of etcd: hence the colon.
            Self::EtcdServer { machine, node, vpn } => CertificateRow {
                serial: Some(machine),
                ..server(
                    Etcd,
                    format!("server:{node}"),
                    vec![dns("localhost"), AlternativeName::Ip(Ipv4Addr::LOCALHOST), AlternativeName::Ip(vpn)],
                    "clients on the machine use loopback, those of other coordinators the VPN",
                )
            },
            Self::EtcdPeer { machine, node, vpn } => CertificateRow {
                usage: Both,
                serial: Some(machine),
                ..server(
                    Etcd,
                    format!("peer:{node}"),
                    vec![dns(ETCD_PEER_NAME), AlternativeName::Ip(vpn)],
                    "each member dials each other; the remote address must be in the certificate",
                )
            },
            Self::EtcdMachineClient { machine } => CertificateRow {
                serial: Some(machine),
                ..client(Etcd, ETCD_ROOT, None, "PID 1 keeps the cluster's records in etcd")
            },
            Self::EtcdApiserverClient { machine } => CertificateRow {
                serial: Some(machine),
                ..client(Etcd, ETCD_KUBERNETES, None, "the apiserver keeps its objects in etcd, and sees no others")
            },
            Self::Apiserver { vpn, service } => server(
                Kubernetes,
                "kube-apiserver".to_owned(),
                vec![
                    dns("kubernetes"),
                    dns("kubernetes.default"),
                    dns("kubernetes.default.svc"),
                    dns("kubernetes.default.svc.cluster.local"),
                    dns("localhost"),
                    AlternativeName::Ip(Ipv4Addr::LOCALHOST),
                    AlternativeName::Ip(vpn),
                    AlternativeName::Ip(service),
                ],
                "every name a client on the machine, in a pod or behind the owner's tunnel uses",
            ),
            Self::ApiserverKubeletClient => client(
                Kubernetes,
                "kube-apiserver-kubelet-client",
                Some(APISERVERS),
                "logs and exec; bound to system:kubelet-api-admin and nothing more",
            ),
            Self::ApiserverFront => client(
                Front,
                FRONT_NAME,
                None,
                "vouches for whom it names; an authority of its own, and this its only holder",
            ),
            Self::MetricsServer => server(
                Kubernetes,
                "cairn:metrics".to_owned(),
                vec![dns(METRICS_NAME)],
                "the apiserver asks by the service's name",
            ),
            Self::ControllerManager => client(
                Kubernetes,
                "system:kube-controller-manager",
                None,
                "the user that Kubernetes' own ClusterRoleBinding names",
            ),
            Self::Scheduler => client(
                Kubernetes,
                "system:kube-scheduler",
                None,
                "the user that Kubernetes' own ClusterRoleBinding names",
            ),
            // With a name of 63 characters the CN is longer than X.520's 64; Kubernetes asks for it, nobody checks.
            Self::KubeletClient { node } => client(
                Kubernetes,
                &format!("system:node:{node}"),
                Some("system:nodes"),
                "the form the Node authorizer and NodeRestriction know a node by",
            ),
            Self::KubeletServer { node, vpn } => server(
                Kubernetes,
                format!("system:node:{node}"),
                vec![dns(node.as_str()), AlternativeName::Ip(vpn)],
                "the apiserver reaches a kubelet by the node's internal address or host name",
            ),
            Self::KubeDns { node } => client(
                Kubernetes,
                &format!("cairn:resolver:{node}"),
                Some(RESOLVERS),
                "follows services and where they lead; bound to a role that lists its verbs",
            ),
            Self::KubeProxy { node } => client(
                Kubernetes,
                &format!("cairn:proxy:{node}"),
                Some(PROXIES),
                "follows services and where they lead, and tells events; bound to upstream's role for it",
            ),
            Self::KubeCoordinator => client(
                Kubernetes,
                "cairn:coordinator",
                Some(COORDINATORS),
                "node objects follow the records; bound to a role that lists its verbs",
            ),
            Self::KubeBootstrap => CertificateRow {
                lifetime: HOUR,
                ..client(
                    Kubernetes,
                    "cairn:bootstrap",
                    Some("system:masters"),
                    "someone has to bind the first groups, and only this group is above RBAC; one hour, in memory",
                )
            },
            Self::KubeOwner => CertificateRow {
                lifetime: OWNER,
                ..client(
                    Kubernetes,
                    "cairn:owner",
                    Some(OWNERS),
                    "full rights by a binding that can be taken away, not by system:masters",
                )
            },
            Self::KubeUser { name } => CertificateRow {
                lifetime: HOUR,
                ..client(
                    Kubernetes,
                    name.as_str(),
                    None,
                    "no group and no rights but those that are bound to the name; ends soon, since nobody revokes it",
                )
            },
            Self::LoopbackServer { component } => server(
                Kubernetes,
                component.to_owned(),
                vec![dns("localhost"), AlternativeName::Ip(Ipv4Addr::LOCALHOST)],
                "its probe is asked over TLS, on loopback only",
            ),
        }
    }
}

fn dns(name: &str) -> AlternativeName {
    AlternativeName::Dns(name.to_owned())
}
