//! Which certificates the services need, and where they look for them. Made anew at each boot, in memory.
//!
//! The authorities' keys are not among them: the controller-manager signs nothing, PID 1 does.

use pki::{AuthorityKind, CertificateProfile};

use crate::plan::ServicePlan;

/// User that CoreDNS runs as: nobody else does.
pub(crate) const DNS_USER: u32 = 53;
/// User that kube-proxy runs as: nobody else does.
pub(crate) const PROXY_USER: u32 = 54;

/// A key and its certificate, as two PEM files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Credential {
    /// etcd's towards clients.
    EtcdServer,
    /// etcd's towards members.
    EtcdPeer,
    /// PID 1's towards etcd; for its probe too.
    EtcdMachineClient,
    /// The apiserver's towards etcd.
    EtcdApiserverClient,
    /// The apiserver's towards its clients.
    Apiserver,
    /// The apiserver's towards kubelets.
    ApiserverKubeletClient,
    /// The apiserver's towards servers that answer in its place.
    ApiserverFront,
    /// The controller-manager's towards the apiserver.
    ControllerManager,
    /// The scheduler's towards the apiserver.
    Scheduler,
    /// The controllers' towards their probe.
    ControllersServer,
    /// The kubelet's towards the apiserver. PID 1 has one, too, with a key of its own: what a node may see of itself is all
    /// that it looks at.
    KubeletClient,
    /// The kubelet's towards the apiserver as its client.
    KubeletServer,
    /// The resolver's towards the apiserver.
    DnsClient,
    /// The service proxy's towards the apiserver.
    ProxyClient,
}

impl Credential {
    /// All of them.
    pub const ALL: [Self; 14] = [
        Self::EtcdServer,
        Self::EtcdPeer,
        Self::EtcdMachineClient,
        Self::EtcdApiserverClient,
        Self::Apiserver,
        Self::ApiserverKubeletClient,
        Self::ApiserverFront,
        Self::ControllerManager,
        Self::Scheduler,
        Self::ControllersServer,
        Self::KubeletClient,
        Self::KubeletServer,
        Self::DnsClient,
        Self::ProxyClient,
    ];

    /// The profile its certificate follows; the profile says which authority signs it.
    #[must_use]
    pub fn profile(self, plan: &ServicePlan) -> CertificateProfile<'_> {
        let (machine, node, vpn) = (plan.machine, &plan.node, plan.vpn());
        match self {
            Self::EtcdServer => CertificateProfile::EtcdServer { machine, node, vpn },
            Self::EtcdPeer => CertificateProfile::EtcdPeer { machine, node, vpn },
            Self::EtcdMachineClient => CertificateProfile::EtcdMachineClient { machine },
            Self::EtcdApiserverClient => CertificateProfile::EtcdApiserverClient { machine },
            Self::Apiserver => CertificateProfile::Apiserver { vpn, service: plan.prefixes.kubernetes_service() },
            Self::ApiserverKubeletClient => CertificateProfile::ApiserverKubeletClient,
            Self::ApiserverFront => CertificateProfile::ApiserverFront,
            Self::ControllerManager => CertificateProfile::ControllerManager,
            Self::Scheduler => CertificateProfile::Scheduler,
            Self::ControllersServer => CertificateProfile::LoopbackServer { component: "kube-controllers" },
            Self::KubeletClient => CertificateProfile::KubeletClient { node },
            Self::KubeletServer => CertificateProfile::KubeletServer { node, vpn },
            Self::DnsClient => CertificateProfile::KubeDns { node },
            Self::ProxyClient => CertificateProfile::KubeProxy { node },
        }
    }

    /// Where the certificate goes (PEM, mode 0644).
    #[must_use]
    pub fn certificate_path(self) -> String {
        format!("/run/cairn/pki/{}.crt", self.stem())
    }

    /// User that owns the private key, and nobody else reads it.
    #[must_use]
    pub fn user(self) -> u32 {
        match self {
            Self::DnsClient => DNS_USER,
            Self::ProxyClient => PROXY_USER,
            Self::EtcdServer
            | Self::EtcdPeer
            | Self::EtcdMachineClient
            | Self::EtcdApiserverClient
            | Self::Apiserver
            | Self::ApiserverKubeletClient
            | Self::ApiserverFront
            | Self::ControllerManager
            | Self::Scheduler
            | Self::ControllersServer
            | Self::KubeletClient
            | Self::KubeletServer => 0,
        }
    }

    /// Where the private key goes (PKCS#8 PEM, secret, mode 0600).
    #[must_use]
    pub fn key_path(self) -> String {
        format!("/run/cairn/pki/{}.key", self.stem())
    }

    const fn stem(self) -> &'static str {
        match self {
            Self::EtcdServer => "etcd-server",
            Self::EtcdPeer => "etcd-peer",
            Self::EtcdMachineClient => "etcd-machine-client",
            Self::EtcdApiserverClient => "etcd-apiserver-client",
            Self::Apiserver => "apiserver",
            Self::ApiserverKubeletClient => "apiserver-kubelet-client",
            Self::ApiserverFront => "apiserver-front",
            Self::ControllerManager => "controller-manager",
            Self::Scheduler => "scheduler",
            Self::ControllersServer => "controllers-server",
            Self::KubeletClient => "kubelet-client",
            Self::KubeletServer => "kubelet-server",
            Self::DnsClient => "dns-client",
            Self::ProxyClient => "proxy-client",
        }
    }
}

/// Where an authority's certificate goes (PEM, mode 0644). Services need those of etcd and Kubernetes.
#[must_use]
pub fn authority_path(kind: AuthorityKind) -> String {
    format!("/run/cairn/pki/{kind}-ca.crt")
}
