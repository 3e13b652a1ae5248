//! A service as the supervisor takes it: how to start it, how to see that it is ready, what has to come first.

use std::net::{Ipv4Addr, SocketAddrV4};

use pki::AuthorityKind;

use crate::credential::Credential;
use crate::plan::Plan;
use crate::{containerd, control_plane, etcd, kubelet};

/// A service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceSpec {
    /// Its name in the tree, in logs and on the command line.
    pub name: &'static str,
    /// Program and arguments; never a secret. The multicall of Kubernetes goes by the name of the program.
    pub argv: Vec<String>,
    /// The whole environment; nothing is inherited.
    pub environment: Vec<(&'static str, String)>,
    /// The paths that have to exist before it starts, beside the program itself.
    pub files: Vec<String>,
    /// How to see that it serves.
    pub probe: Probe,
    /// What it waits for.
    pub needs: Vec<Need>,
}

/// A service waits for another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Need {
    /// The other's name.
    pub service: &'static str,
    /// How far it has to be.
    pub until: Until,
    /// Why.
    pub because: &'static str,
}

/// How far a service has to be before another starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Until {
    /// Its process runs.
    Started,
    /// Its probe has succeeded.
    Ready,
}

/// How to see that a service serves. Each answers within a second or has failed this time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Probe {
    /// A GET over TLS 1.3 that answers 200.
    HttpsGet {
        /// Where.
        address: SocketAddrV4,
        /// What.
        path: &'static str,
        /// Who signed the server's certificate; its name is the address.
        authority: AuthorityKind,
        /// Which certificate PID 1 shows; none where the path answers anybody.
        client: Option<Credential>,
    },
    /// A GET in clear, on loopback, that answers 200.
    HttpGet {
        /// Where.
        address: SocketAddrV4,
        /// What.
        path: &'static str,
    },
    /// A Unix stream socket that accepts.
    UnixSocket {
        /// Where.
        path: &'static str,
    },
}

/// A file to be written before its service starts: mode 0644, nothing secret. Its directory is in
/// [`crate::DIRECTORIES`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct File {
    /// Where it goes.
    pub path: &'static str,
    /// What is in it.
    pub contents: String,
}

/// The services of a machine that is coordinator and node, in the order of their start.
#[must_use]
pub fn services(plan: &Plan) -> Vec<ServiceSpec> {
    vec![
        etcd::service(plan),
        containerd::service(plan),
        control_plane::apiserver(plan),
        kubelet::service(plan),
        control_plane::controller_manager(plan),
        control_plane::scheduler(plan),
    ]
}

/// The files those services read, beside certificates and keys.
#[must_use]
pub fn files(plan: &Plan) -> Vec<File> {
    let mut files = containerd::files(plan);
    files.extend(control_plane::files());
    files.extend(kubelet::files(plan));
    files
}

pub(crate) const fn loopback(port: u16) -> SocketAddrV4 {
    SocketAddrV4::new(Ipv4Addr::LOCALHOST, port)
}

/// The paths of credentials and authorities a service reads.
pub(crate) fn paths(credentials: &[Credential], authorities: &[AuthorityKind]) -> Vec<String> {
    credentials
        .iter()
        .flat_map(|credential| [credential.certificate_path(), credential.key_path()])
        .chain(authorities.iter().map(|kind| crate::authority_path(*kind)))
        .collect()
}
