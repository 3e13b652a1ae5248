//! The wire: protobuf services, their conversion to types of Rust, and who may call what.
//!
//! Wire types ([`wire`]) stop at this crate's border: whoever serves or calls converts at once, both ways:
//!
//! ```text
//!   cairnctl ── Rust ──► wire ══ gRPC, TLS 1.3 ══► wire ── TryFrom ──► Rust ── init
//!            ◄─ TryFrom ─ wire ◄════════════════ wire ◄── From ────── Rust
//! ```
//!
//! The feature `faults` adds the debug profile's fault injection; without it there is no such service, message or row.
//!
//! No transport, no clock, no I/O here: a caller brings its own connection, so that the TLS session stays in its reach.
//!
//! # Invariants
//! - Every method has a row in the access table: `the_table_has_one_row_per_method_of_the_descriptor`
//! - Without authentication there are `GetState`, `Claim` and, on a blank machine, its activation:
//!   `get_state_claim_and_activation_need_no_authentication`
//! - A user calls `GetState`, `Kubeconfig` and `Tunnel` alone: `a_user_of_kubernetes_calls_three_methods_and_no_other`
//! - A machine's key, which anybody can draw, is good for `Redeem`, `ReleaseKey`, `Contribute` and the calls about volumes
//!   alone, and each of them asks more of it: `a_machines_key_is_good_for_these_calls_alone`
//! - Data is not called authenticated before every block has its tag: `crates/api/src/status.rs`

pub mod access;
mod activation;
mod condition;
mod contribution;
mod drain;
mod etcd;
mod field_error;
mod floating;
mod images;
mod key;
mod kubeconfig;
mod leader;
pub mod limits;
mod log;
mod metrics;
mod not_yet;
mod open;
mod orders;
mod owners;
mod published;
mod records;
mod registries;
mod restore;
mod service;
mod status;
mod time;
mod timeline;
mod tunnel;
mod users;
mod volumes;
mod vpn;
pub mod wire;

pub use self::volumes::{ListedVolume, VolumeOrder, VolumeRemoval, VolumesOfMachine, WorkerVolumes};
pub use activation::{HandedIn, decode_handed_in, proof_of_code};
pub use condition::{Condition, ConditionName, Truth};
pub use contribution::decode_contribution;
pub use drain::DrainRequest;
pub use etcd::{DefragmentStep, EtcdAnswer, ListedEtcd};
pub use field_error::{FieldError, Problem};
pub use floating::FloatingAddresses;
pub use images::{ImageToImport, ImportPart, ListedImage};
pub use key::{KeyRequest, OwnerHalf, Recovery, ReleasedKey};
pub use kubeconfig::ClientCertificate;
pub use leader::{by_leader, told_by_leader};
pub use log::{LogEntry, LogQuery};
pub use metrics::whole_page;
pub use not_yet::{NOT_YET, not_yet};
pub use open::{Claim, PublicState};
pub use owners::ListedOwner;
pub use published::ListedRule;
pub use records::{
    EtcdMember, LeavingData, ListPage, ListedMachine, ListedTicket, MachineChange, NewTicket, OtherMember,
    RecoveryPlan, RoleDirection,
};
pub use registries::ListedRegistry;
pub use restore::RestoreStage;
pub use service::{Service, ServiceExit, ServiceState};
pub use status::{LevelInForce, MachineStatus, Profile};
pub use time::UnixMillis;
pub use timeline::{Milestone, MilestoneKind};
pub use tunnel::{Target, TunnelPart};
pub use vpn::{
    CertificateRequests, HandedOver, MOST_NEWS_BYTES, MOST_NEWS_PEERS, Presence, WorkerCertificate, WorkerCertificates,
    decode_word,
};
#[cfg(feature = "faults")]
pub use wire::{debug_client, debug_server};
pub use wire::{public_client, public_server, vpn_client, vpn_server};

/// All services and messages of this crate as an encoded `FileDescriptorSet`.
pub const DESCRIPTOR: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptor.bin"));
