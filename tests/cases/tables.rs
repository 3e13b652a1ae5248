//! The tables of cases, one a file. A part of the library, so that the house rules ask the table itself which case proves
//! what. How to add one: see `src/lib.rs`.

use crate::Table;

mod activation;
mod api;
mod boot;
mod campaign;
mod cluster;
mod coordinators;
mod enrolment;
mod join;
mod kube;
mod mesh;
mod network;
mod records;
mod recover;
mod shutdown;
mod siege;
mod storage;
mod supervision;
mod table;
mod victim;
mod workshop;

/// A file's table under the file's name.
macro_rules! of {
    ($file:ident) => {
        Table { file: concat!(stringify!($file), ".rs"), cases: $file::CASES }
    };
}

/// All of them, in the order in which they run.
pub const TABLES: &[Table] = &[
    of!(workshop),
    of!(boot),
    of!(cluster),
    of!(coordinators),
    of!(campaign),
    of!(enrolment),
    of!(storage),
    of!(recover),
    of!(table),
    of!(shutdown),
    of!(supervision),
    of!(api),
    of!(siege),
    of!(network),
    of!(records),
    of!(join),
    of!(activation),
    of!(mesh),
    of!(kube),
];
