//! Unit of a machine's tree as data: what starts under which name, when, within which bounds, and how one sees that it is ready.

use std::net::{Ipv4Addr, SocketAddrV4};

use pki::AuthorityKind;
use supervise::{Fingerprint, Need, Readiness, Spec};

use crate::credential::Credential;
use crate::spec::lasting;
use crate::task::Task;

/// Unit of a machine's tree. Two whose specs are equal are the same: the spec has a fingerprint of all of a program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unit {
    /// When it runs, and what its end means.
    pub spec: Spec,
    /// Program or task.
    pub run: Run,
}

/// Either kind of unit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Run {
    /// A program of the image.
    Program(Box<ServiceProgram>),
    /// A task of PID 1 itself, whose work is PID 1's matter.
    Task(Task),
}

/// Program of the image, as PID 1 is to run it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ServiceProgram {
    /// Program and arguments; never a secret. The multicall of Kubernetes goes by the name of the program.
    pub argv: Vec<String>,
    /// The whole environment; nothing is inherited.
    pub environment: Vec<(&'static str, String)>,
    /// Texts that it reads, written before each start.
    pub files: Vec<ServiceFile>,
    /// Keys and certificates that it reads.
    pub credentials: Vec<Credential>,
    /// How to see that it serves.
    pub probe: ReadinessProbe,
    /// Page of what it counts, in Prometheus' text; none where PID 1 is not the one to ask.
    pub metrics: Option<ServicePage>,
    /// Resources that it may take at most. Far above what it needs: a leak ends in a restart, not in a machine without
    /// memory.
    pub limits: Limits,
    /// Whether what it executes may have more privileges than itself.
    pub privileges: ServicePrivileges,
    /// Lines of its output that are kept apart from the rest.
    pub record: Option<OwnLog>,
    /// A directory of the data partition of which it needs every file: without one of them no restart helps.
    pub data: Option<&'static str>,
}

impl Unit {
    /// A program that is to run for good.
    pub(crate) fn program(name: &str, needs: Vec<Need>, program: ServiceProgram) -> Self {
        let spec = lasting(name, needs);
        let spec = Spec { content: Fingerprint::of(&program), ready: Readiness::Probe, ..spec };
        Self { spec, run: Run::Program(Box::new(program)) }
    }

    /// Program of the unit; none of a task.
    #[must_use]
    pub const fn as_program(&self) -> Option<&ServiceProgram> {
        match &self.run {
            Run::Program(program) => Some(program),
            Run::Task(_) => None,
        }
    }
}

/// Upper bounds of a service and all that it starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Limits {
    /// Bytes of memory.
    pub memory: u64,
    /// Processes and threads.
    pub pids: u32,
}

impl Limits {
    pub(crate) const fn gib(gib: u64, pids: u32) -> Self {
        Self { memory: gib << 30, pids }
    }
}

/// Whether what a service executes may have more privileges than itself (`no_new_privs`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ServicePrivileges {
    /// Never.
    Fixed,
    /// The service starts programs for others, and decides for them.
    MayGrow,
    /// Never; and it is not root, but a user of its own with one capability.
    User {
        /// Number of the user, and of its group.
        user: u32,
        /// Capability that it has nevertheless.
        keeps: ServiceCapability,
    },
}

/// Capability of a service that is not root (capabilities(7)).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ServiceCapability {
    /// CAP_NET_BIND_SERVICE: take ports below 1024.
    NetBindService,
    /// CAP_NET_ADMIN: change the network, nftables among it.
    NetAdmin,
}

/// Lines that belong into a log of their own: there they are not lost among others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct OwnLog {
    /// The text that each of them begins with.
    pub start: &'static str,
    /// The name of the log they go to, beside that of the service.
    pub log: &'static str,
}

/// How to see that a service serves. Each answers within a second or has failed this time.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum ReadinessProbe {
    /// A page that is answered 200.
    Page(ServicePage),
    /// A Unix stream socket that accepts.
    UnixSocket {
        /// The socket's file.
        path: &'static str,
    },
}

/// Page of a service, which a GET fetches.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum ServicePage {
    /// Over TLS 1.3.
    Https {
        /// On loopback, or on the VPN address.
        address: SocketAddrV4,
        /// The request's path and query.
        path: &'static str,
        /// Authority that signed the server's certificate, whose name is the address.
        authority: AuthorityKind,
        /// Which certificate PID 1 shows; none where the path answers anybody.
        client: Option<Credential>,
    },
    /// In clear: whoever has a socket in the machine's own network may ask.
    Http {
        /// On loopback.
        address: SocketAddrV4,
        /// The request's path and query.
        path: &'static str,
    },
}

impl ServicePage {
    /// Page that a service answers anybody, on a port of loopback.
    pub(crate) const fn on_loopback(port: u16, path: &'static str) -> Self {
        Self::Http { address: loopback(port), path }
    }
}

/// A file to be written before its service starts: mode 0644, nothing secret. Its directory is in
/// [`crate::DIRECTORIES`].
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ServiceFile {
    /// Absolute, below `/run/cairn`.
    pub path: &'static str,
    /// The whole text.
    pub contents: String,
}

pub(crate) const fn loopback(port: u16) -> SocketAddrV4 {
    SocketAddrV4::new(Ipv4Addr::LOCALHOST, port)
}
