//! The wire: protobuf services, their conversion to types of Rust, and who may call what.
//!
//! Wire types ([`wire`]) stop at this crate's border: whoever serves or calls converts at once, both ways:
//!
//! ```text
//!   cairnctl ── Rust ──► wire ══ gRPC, TLS 1.3 ══► wire ── TryFrom ──► Rust ── init
//!            ◄─ TryFrom ─ wire ◄════════════════ wire ◄── From ────── Rust
//! ```
//!
//! No transport, no clock, no I/O here: a caller brings its own connection, so that the TLS session stays in its reach.

pub mod access;
mod activation;
mod condition;
mod contribution;
mod key;
mod kubeconfig;
mod leader;
pub mod limits;
mod log;
mod malformed;
mod not_yet;
mod open;
mod owners;
mod records;
mod service;
mod status;
mod time;
mod timeline;
mod tunnel;
mod vpn;
pub mod wire;

pub use activation::{HandedIn, decode_handed_in, proof_of_code};
pub use condition::{Condition, ConditionName, Truth};
pub use contribution::decode_contribution;
pub use key::{KeyAsked, KeyGiven, KeyReleased, Recovery};
pub use kubeconfig::ClientCertificate;
pub use leader::{by_leader, told_by_leader};
pub use log::{LogEntry, LogQuery};
pub use malformed::{Malformed, Problem};
pub use not_yet::{NOT_YET, not_yet};
pub use open::{Claim, PublicState};
pub use owners::ListedOwner;
pub use records::{
    EtcdMember, Listed, ListedMachine, ListedTicket, MachineChange, NewTicket, OtherMember, RecoveryPlan,
};
pub use service::{Exit, Service, ServiceState};
pub use status::{LevelInForce, MachineStatus, Profile};
pub use time::UnixMillis;
pub use timeline::{Milestone, MilestoneKind};
pub use tunnel::{Target, TunnelPart};
pub use vpn::{Announced, HandedOver, MOST_NEWS_BYTES, MOST_NEWS_PEERS, decode_word};
pub use wire::{debug_client, debug_server, public_client, public_server, vpn_client, vpn_server};

/// All services and messages of this crate as an encoded `FileDescriptorSet`.
pub const DESCRIPTOR: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptor.bin"));
