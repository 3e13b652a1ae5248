//! Users of etcd: PID 1 and the apiserver, each known by its certificate.

use pki::{ETCD_KUBERNETES, ETCD_ROOT};

/// A user of etcd, known by the common name of its certificate; it has no password.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EtcdUser {
    /// Name of the user: the common name of the client's certificate.
    pub name: &'static str,
    /// Keys that the user may read and write.
    pub may: EtcdRights,
    /// Why so much and no more.
    pub because: &'static str,
}

/// Rights of a user of etcd.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EtcdRights {
    /// Everything.
    All,
    /// Read and write the keys that begin so, and nothing else.
    Keys(&'static str),
}

/// All users of etcd. Authentication is switched on when they are made, and before the apiserver first starts.
pub const ETCD_USERS: [EtcdUser; 2] = [
    EtcdUser {
        name: ETCD_ROOT,
        may: EtcdRights::All,
        because: "PID 1 of a coordinator keeps the cluster's records, makes users and changes members",
    },
    EtcdUser {
        name: ETCD_KUBERNETES,
        may: EtcdRights::Keys("/registry/"),
        because: "neither the apiserver nor who takes it over reads a ticket or a machine's record",
    },
];
