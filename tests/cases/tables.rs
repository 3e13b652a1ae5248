//! The tables of cases, one a file. A part of the library, so that the house rules ask the table itself which case proves
//! what. How to add one: see `src/lib.rs`.

use crate::{CaseTable, Load};

mod activation;
mod api;
mod boot;
mod campaign;
mod cluster;
mod coordinators;
mod damaged;
mod enrolment;
mod images;
mod join;
mod kube;
mod mesh;
mod metrics;
mod network;
mod pods;
mod policies;
mod publish;
mod records;
mod recover;
mod registries;
mod sandbox;
mod saved;
mod shutdown;
mod siege;
mod storage;
mod supervision;
mod table;
mod users;
mod victim;
mod volumes;
mod workers;
mod workshop;

/// A file's table under the file's name, and what its cases ask of the host.
macro_rules! of {
    ($file:ident, $load:ident) => {
        of!($file::CASES, $load)
    };
    ($file:ident::$cases:ident, $load:ident) => {
        CaseTable { file: concat!(stringify!($file), ".rs"), cases: $file::$cases, load: Load::$load }
    };
}

/// All of them, in the order in which they begin: those of many machines early, with short ones beside them. Those that
/// count on answers within seconds, or start a thousand processes, do not run beside many machines. Kubernetes is made
/// alone: beside others its machines are so slow that what waits for pods gives up. So are two machines with Kubernetes: beside
/// two more their controllers lose their lease again and again. And so is a copy of one: emulated and idle it takes one and a half
/// processors, and of two at a time on a slow host four of thirteen heard nothing for ten seconds. Three coordinators are many
/// machines: beside three more their etcd loses its leader, and both cases take longer than one after the other.
pub const TABLES: &[CaseTable] = &[
    of!(cluster, Heavy),
    of!(workshop, Light),
    of!(boot, Light),
    of!(victim, Light),
    of!(coordinators, Heavy),
    of!(saved, Light),
    of!(campaign, Heavy),
    of!(mesh, Prompt),
    of!(join, Prompt),
    of!(enrolment, Light),
    of!(storage, Light),
    of!(damaged, Light),
    of!(recover, Light),
    of!(table, Light),
    of!(shutdown, Light),
    of!(supervision, Prompt),
    of!(api, Prompt),
    of!(network, Prompt),
    of!(records, Light),
    of!(activation, Light),
    of!(siege, Alone),
    of!(kube, Alone),
    of!(workers, Alone),
    of!(campaign::KUBE, Alone),
    of!(sandbox, Alone),
    of!(pods::ALONE, Alone),
    of!(kube::COPIES, Alone),
    of!(workers::COPIES, Alone),
    of!(images, Alone),
    of!(registries, Alone),
    of!(pods, Alone),
    of!(users, Alone),
    of!(metrics, Alone),
    of!(policies, Alone),
    of!(volumes, Alone),
    of!(publish, Alone),
];
