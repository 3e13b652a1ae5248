//! The vocabulary: ids, roles, states, addresses, key newtypes. No I/O, no serialisation.
//!
//! Words are those of the glossary in ARCHITECTURE.md. Every other crate
//! may use this one; this one uses none of them.
//!
//! # Invariants
//! - A machine's state changes by the transitions that are drawn; others do not compile: `crates/model/src/progress.rs`
//! - No link is given what the cluster keeps for itself: `a_link_takes_nothing_that_the_cluster_keeps`
//! - A kind of caller that is added has to be decided wherever calls are: it is matched without `_`:
//!   `crates/model/src/caller.rs`

mod assignment;
mod caller;
mod chain;
mod disk;
mod ids;
mod machine;
mod net;
mod pcr;
mod progress;
mod publish;
mod registry;
mod secret;
mod user;

pub use assignment::{Assignment, BadAssignment, pod_prefix};
pub use caller::Caller;
pub use chain::Chain;
pub use disk::{DATA_NAME, ESP_BYTES, Partition, PartitionKind, SYSTEM_BYTES};
pub use ids::{
    BadHex, BadNodeName, BadUuid, ClusterId, ConfigDigest, DiskUuid, MachineId, MachinePubKey, NodeName, OwnerPubKey,
    RootHash, TicketId, TicketPubKey, UserPubKey, Uuid, VpnPubKey,
};
pub use machine::{BootClass, ClusterRole, ColdStart, KubernetesRole, Level, MachineState, Protection};
pub use net::{
    BadPrefix, ETCD_CLIENT_PORT, ETCD_PEER_PORT, Ipv4Prefix, KUBELET_PORT, KUBERNETES_API_PORT, LINK_BITS,
    METRICS_PORT, MOST_ETCD_LEARNERS, NetworkConfig, POD_PREFIX, PUBLIC_API_PORT, PrefixUse, Prefixes, SERVICE_PREFIX,
    UnfitLink, VPN_API_PORT, VPN_PORT, VPN_PREFIX, etcd_peer_url,
};
pub use pcr::PcrSelection;
pub use progress::{Halted, PowerOn, Settled, Underway, WaitState, Waiting};
pub use publish::{BadNamespaceName, BadUplinkPort, NamespaceName, PortProtocol, PublishId, UplinkPort};
pub use registry::{
    BadMirrorUrl, BadRegistryHost, MOST_MIRROR_URL_BYTES, MOST_REGISTRY_HOST_BYTES, MirrorUrl, RegistryHost,
};
pub use secret::{ClusterKey, FirstContact, LocalKey, MasterSecret, SealRoot, Secret, VolumeKey, VpnPrivKey};
pub use user::{BadUserName, UserName};
