//! System tests: the machine as a black box, seen by console, API, monitor, network and disk. Never names `init`.
//!
//! ```text
//!   cargo xtask image --out DIR
//!   cargo build -p cairnctl
//!   cargo xtask image --debug --out DEBUG
//!   cargo xtask image --with gvisor --out GVISOR
//!   CAIRN_IMAGE_DIR=DIR CAIRN_DEBUG_IMAGE_DIR=DEBUG CAIRN_GVISOR_IMAGE_DIR=GVISOR CAIRN_CAIRNCTL=target/debug/cairnctl \
//!     cargo test -p tests [--test vm -- [FILTER] [--list] [--test-threads N]]
//! ```
//! # Adding a case
//! A case is a function and a row. In a file of `tests/cases/` (a new one is named in `tables.rs`, twice):
//! ```
//! use tests::{Case, Context, Prerequisite, Starts};
//!
//! pub const CASES: &[Case] = &[Case {
//!     name: "reboot keeps the seal",
//!     proves: &["D5"],
//!     needs: &[Prerequisite::Swtpm],
//!     starts: Starts::Cold,
//!     run: reboot_keeps_the_seal,
//! }];
//!
//! fn reboot_keeps_the_seal(t: &Context) -> anyhow::Result<()> {
//!     let plan = t.machine("m1").tpm().config(b"...")?;
//!     let mut vm = plan.start()?;
//!     vm.wait_for(vm.started(), "state: Running", t.within(10))?;
//!     vm.power_off(t.within(10))?;
//!     let mut again = plan.start()?; // the same disk, TPM and firmware variables
//!     again.wait_for(again.started(), "state: Running", t.within(10))?;
//!     Ok(())
//! }
//! ```
//! - A [`MachinePlan`] has an answer for everything; say only what the case is about. [`MachinePlan::start`] gives a [`qemu::Vm`].
//! - [`Context::owner`] makes configs and asks machines as their owner, with `cairnctl`; a [`Stranger`] has no key.
//! - [`Context::within`] takes seconds as a host with KVM needs them, generously; elsewhere they are stretched.
//! - Wait on console lines, monitor events and [`qemu::Vm::until`]; nothing sleeps. A wait for a line says from where on: what the
//!   case does is marked before it is done ([`qemu::Vm::mark`]), so that no line of before is taken for what came of it.
//! - What the host lacks for good (KVM) is `return Err(Skipped("…").into())`, or better a [`Prerequisite`].
//! - A case that needs a fleet as it is says so ([`Starts::From`]) and gets a copy of its own within seconds, which it may break:
//!   `Fleet::copy`, `Victim::copy`. Each kind is made once a run, cold, by the case that is [`Starts::Making`] it.
//! - Cases of one file run one after the other, unless they have a copy; those of several files beside each other; see `turns.rs`.
//! - Machines that take minutes to come up are built once, by [`Context::shared`]. Where they are off, each case does what
//!   it does to a copy ([`MachinePlan::copied`]), so that no case finds what another left, and a failure hides nothing.
//! - All of a case's files lie in [`Context::dir`]: removed when it passes, kept and named when it fails.

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use libtest_mimic::{Arguments, Completion, Conclusion, Failed, Trial};
use qemu::deadline::since_1970;

pub mod campaign;
mod capture;
mod client;
mod container;
mod context;
mod copies;
mod crowd;
mod disk;
mod evidence;
mod fleet;
mod image;
mod importer;
mod integrity;
mod joiner;
mod owned;
mod owner;
mod pace;
mod plan;
mod pod;
mod premises;
mod records;
mod registry;
mod relay;
mod screen;
mod session;
mod site;
pub mod specs;
mod starts;
mod status;
mod stranger;
#[path = "../cases/tables.rs"]
mod tables;
mod turns;
mod writer;
mod writes;

pub use capture::{PacketKind, kinds, others, wireguard_from};
pub use client::{PublicClient, certificates, public_api};
pub use container::{SAID, UnpackedImage, archive};
pub use context::Context;
pub use copies::{CopiedMachine, FleetCopy, save_in};
pub use crowd::{Crowd, Manner};
pub use disk::{HEADER_BYTES, HEADERS, Headers, RawDisk};
pub use evidence::{recovered, same_machine, stays, untouched};
pub use fleet::{Departure, Fleet, FleetSize, LAID_DOWN, MESH_CHANGED, NAME, Off, SEES_RECORDS, has_peers, name};
pub use image::{Image, ImageError};
pub use importer::Importer;
pub use integrity::{FilePlaces, Integrity, all_tagged, tagged_coordinator};
pub use joiner::Joiner;
pub use owner::{CommandRefusal, Follower, Owner, REFUSED, key_of_owner, wait_state};
pub use pace::HostPace;
pub use plan::{MachinePlan, Via};
pub use pod::{endpoint_by_hand, object_file, page_of, web_pod, wild_namespace, wild_pod};
pub use records::Records;
pub use registry::ImageRegistry;
pub use relay::Relay;
pub use screen::Screen;
pub use site::{SITE, Site};
pub use starts::{FleetKind, Starts};
pub use status::{ServiceStatus, Status};
pub use stranger::Stranger;
pub use tables::TABLES;
pub use turns::Load;
pub use writer::{Ledger, Places, Tickets, Writer};
pub use writes::{DiskEvent, WriteLog};

use session::Session;
use turns::Place;

/// A row of a table of cases.
#[derive(Debug, Clone, Copy)]
pub struct Case {
    /// Property that holds when the case passes, in a few words; unique.
    pub name: &'static str,
    /// Requirements it proves (`D2`, `O11`, …); shown by `--list` and understood by the filter.
    pub proves: &'static [&'static str],
    /// Needs of the case besides QEMU and an image.
    pub needs: &'static [Prerequisite],
    /// From what it starts.
    pub starts: Starts,
    /// The case.
    pub run: fn(&Context) -> anyhow::Result<()>,
}

/// The cases of a file.
#[derive(Debug, Clone, Copy)]
pub struct CaseTable {
    /// The file's name, in `tests/cases/`.
    pub file: &'static str,
    /// Cases of the file, in the order in which they run.
    pub cases: &'static [Case],
    /// Load of these cases on the host.
    pub load: Load,
}

/// Something of the host that a case cannot do without.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Prerequisite {
    /// Hardware acceleration; without it the case is skipped.
    Kvm,
    /// A software TPM.
    Swtpm,
    /// UEFI firmware.
    Ovmf,
    /// Another time of day for QEMU.
    Faketime,
    /// Upstream's tests for conformance; without them the case is skipped, for they take half an hour to build.
    Upstream,
    /// Image with gVisor; without it the case is skipped, for it takes minutes to build.
    Gvisor,
}

/// The case cannot be run on this host, and why. Counted and shown, never silent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("skipped: {0}")]
pub struct Skip(pub &'static str);

/// Runs the cases of `tables` as the command line asks; files go below `out`.
#[expect(clippy::print_stderr, reason = "what a person and xtask read")]
#[must_use]
pub fn run(tables: &[CaseTable], out: &Path) -> ExitCode {
    let mut arguments = Arguments::from_args();
    let within = match within() {
        Ok(within) => within,
        Err(fault) => {
            eprintln!("error: {fault}");
            return ExitCode::FAILURE;
        }
    };
    let tables = match within {
        None => tables.to_vec(),
        Some(_) => from_another_each_day(tables, since_1970()),
    };
    let of_files = tables.iter().flat_map(|table| table.cases.iter().map(move |case| (table, case)));
    let cases: Vec<Case> = of_files.clone().map(|(_, case)| *case).collect();
    if let Err(fault) = check(&cases) {
        eprintln!("error: {fault}");
        return ExitCode::FAILURE;
    }
    if arguments.list {
        let unrunnable = |case: &Case| trial(case, || Ok(Completion::Completed));
        return libtest_mimic::run(&arguments, cases.iter().map(unrunnable).collect()).exit_code();
    }
    // A case that is picked brings the one that makes what it starts from.
    let wanted =
        starts::with_makers(&cases, |case| !arguments.is_filtered_out(&trial(case, || Ok(Completion::Completed))));
    (arguments.filter, arguments.skip) = (None, Vec::new());
    let session = match Session::open(out, arguments.test_threads, within) {
        Ok(session) => Arc::new(session),
        Err(error) => {
            eprintln!("error: {error:#}");
            return ExitCode::FAILURE;
        }
    };
    // Each has a thread from the start, in which it waits for its turn.
    arguments.test_threads = Some(cases.len().max(2));
    let of_files = of_files.enumerate().filter(|(number, _)| wanted.contains(number));
    let trials = of_files.map(|(number, (table, case))| {
        let place = Place { number, file: table.file, load: table.load, starts: case.starts };
        let (session, case) = (Arc::clone(&session), *case);
        trial(&case, move || session.run(&case, place))
    });
    let conclusion = libtest_mimic::run(&arguments, trials.collect());
    eprint!("{}", session.close(conclusion.has_failed()));
    eprintln!("{}", closing_line(&conclusion));
    conclusion.exit_code()
}

/// Names how many seconds after its begin a run begins cases. What it does not begin is skipped, and counted.
const WITHIN: &str = "CAIRN_CASES_WITHIN";

fn within() -> Result<Option<Duration>, Fault> {
    let Some(text) = std::env::var_os(WITHIN) else { return Ok(None) };
    let seconds = text.to_str().and_then(|text| text.parse().ok()).map(Duration::from_secs);
    seconds.map(Some).ok_or(Fault::Within(text))
}

/// The tables from another one on each day, so that a run with too little time for all of them does not leave out the same ones for ever.
fn from_another_each_day(tables: &[CaseTable], since_1970: Duration) -> Vec<CaseTable> {
    /// Files further than the day before, or a few more: so many that a few days come to all.
    const FILES: usize = 7;
    let days = usize::try_from(since_1970.as_secs() / 86_400).unwrap_or_default();
    let mut tables = tables.to_vec();
    let count = tables.len().max(1);
    // A step that divides the count would come back before it came to all.
    let is_home_too_soon = |step: usize| (1..count).any(|later| (later * step).is_multiple_of(count));
    let step = (FILES..FILES + count).find(|step| !is_home_too_soon(*step)).unwrap_or(1);
    tables.rotate_left(days * step % count);
    tables
}

/// The last line a run prints; what xtask adds up.
fn closing_line(conclusion: &Conclusion) -> String {
    let Conclusion { num_passed, num_failed, num_ignored, .. } = conclusion;
    format!("{num_passed} passed, {num_failed} failed, {num_ignored} skipped")
}

fn trial(case: &Case, run: impl FnOnce() -> Result<Completion, Failed> + Send + 'static) -> Trial {
    Trial::ignorable_test(case.name, run).with_kind(case.proves.join(" "))
}

/// A table that does not say what it should.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
enum Fault {
    #[error("two cases are named `{0}`")]
    SameName(&'static str),
    #[error("case `{case}` proves `{id}`, which is no requirement's id")]
    NoId { case: &'static str, id: &'static str },
    #[error("the fleet `{0}` is not made by one case")]
    Maker(FleetKind),
    #[error("`{WITHIN}` is {0:?}, which is no number of seconds; nothing was run")]
    Within(OsString),
}

fn check(cases: &[Case]) -> Result<(), Fault> {
    for (index, case) in cases.iter().enumerate() {
        if cases[..index].iter().any(|other| other.name == case.name) {
            return Err(Fault::SameName(case.name));
        }
        for id in case.proves {
            let number = id.strip_prefix(|letter: char| letter.is_ascii_uppercase());
            let digits = |number: &str| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
            if !number.is_some_and(digits) {
                return Err(Fault::NoId { case: case.name, id });
            }
        }
    }
    match starts::without_one_maker(cases) {
        Some(fleet) => Err(Fault::Maker(fleet)),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    const CASE: Case = Case { name: "a", proves: &["D2", "O11"], needs: &[], starts: Starts::Cold, run: |_| Ok(()) };

    #[test]
    fn the_tables_are_of_their_files_and_each_case_is_named_once() {
        let cases: Vec<Case> = TABLES.iter().flat_map(|table| table.cases).copied().collect();
        assert_eq!(check(&cases), Ok(()));
        for CaseTable { file, cases, .. } in TABLES {
            let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("cases").join(file);
            let source = std::fs::read_to_string(path).expect("the table's file");
            assert!(cases.iter().all(|case| source.contains(&format!("\"{}\"", case.name))), "{file}");
        }
    }

    #[test]
    fn a_table_with_a_wrong_id_or_a_name_twice_is_refused() {
        assert_eq!(check(&[CASE, Case { name: "b", ..CASE }]), Ok(()));
        assert_eq!(check(&[CASE, CASE]), Err(Fault::SameName("a")));
        for id in ["D", "2", "d2", "D2x", ""] {
            let proves: &'static [&'static str] = Vec::leak(vec![id]);
            assert_eq!(check(&[Case { proves, ..CASE }]), Err(Fault::NoId { case: "a", id }));
        }
    }

    #[test]
    fn within_a_few_days_each_table_comes_first() {
        let day = |days| Duration::from_secs(days * 86_400);
        for count in 1..=TABLES.len() {
            let tables = &TABLES[..count];
            let first = |days| from_another_each_day(tables, day(days))[0].file;
            let all: BTreeSet<&str> = tables.iter().map(|table| table.file).collect();
            assert_eq!((20_000..20_000 + count as u64).map(first).collect::<BTreeSet<_>>(), all);
            assert_eq!(from_another_each_day(tables, day(20_000)).len(), count);
        }
        assert_eq!(from_another_each_day(&[], day(1)).len(), 0);
    }

    #[test]
    fn the_list_shows_what_a_case_proves() {
        let listed = trial(&CASE, || Ok(Completion::Completed));
        assert_eq!((listed.kind(), listed.name()), ("D2 O11", "a"));
    }

    #[test]
    fn the_closing_line_has_the_counts() {
        let conclusion =
            Conclusion { num_filtered_out: 9, num_passed: 3, num_failed: 2, num_ignored: 1, num_measured: 0 };
        assert_eq!(closing_line(&conclusion), "3 passed, 2 failed, 1 skipped");
    }
}
