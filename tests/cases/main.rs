//! The tables of cases. How to add one: see `src/lib.rs`.

use std::path::PathBuf;
use std::process::ExitCode;

mod api;
mod boot;
mod cluster;
mod enrolment;
mod kube;
mod network;
mod shutdown;
mod siege;
mod storage;
mod supervision;
mod table;
mod victim;
mod workshop;

fn main() -> ExitCode {
    // Two runs at a time need two places for their files.
    let out = std::env::var_os("CAIRN_CASES_DIR").map(PathBuf::from);
    let out = out.unwrap_or_else(|| PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("vm"));
    let tables = [
        workshop::CASES,
        boot::CASES,
        cluster::CASES,
        enrolment::CASES,
        storage::CASES,
        table::CASES,
        shutdown::CASES,
        supervision::CASES,
        api::CASES,
        siege::CASES,
        network::CASES,
        kube::CASES,
    ];
    tests::run(&tables, &out)
}
