//! All that must hold before a change lands: form, lints, dependencies, tests; and where the time went. It must never stop
//! at the first thing that fails: one run shows all of them.

use std::{
    io::{Write, stdout},
    path::PathBuf,
    process::Command,
    thread,
    time::Duration,
};

use ::image::{ImageExtension, ImageProfile};
use anyhow::{Context, Result, bail};
use qemu::deadline::Deadline;
use xtask::{
    cache::BuildCache,
    fresh,
    process::shown,
    progress::{clock_text, say, timed},
    workspace::Workspace,
};

use crate::{
    components,
    image::{self, Wanted},
    kernel,
    programs::{self, Build},
    reproducible, tools,
    verdict::{self, Counts},
};

/// Steps that ran, in order, with the time they took.
#[derive(Debug, Default)]
pub(crate) struct Report {
    rows: Vec<Row>,
    /// Time in which two of them ran, so that it is in both rows.
    overlap: Duration,
    counts: Counts,
    /// Notes that must not be missed, said again at the end.
    notes: Vec<String>,
    /// When the cases of machines begin no more; never, if nobody says.
    until: Option<Deadline>,
}

/// How long after its own begin the run before a change lands begins cases of machines: emulated on a slow host, all of them take
/// longer than anybody waits.
const LANDS_WITHIN: Duration = Duration::from_secs(58 * 60);

#[derive(Debug)]
struct Row {
    name: &'static str,
    took: Duration,
    good: bool,
}

/// `cargo xtask ci`: everything; the driver has brought it into a fresh root, where one can be made.
///
/// # Errors
/// Something failed; the report has been printed.
pub(crate) fn ci(workspace: &Workspace, cache: &BuildCache) -> Result<()> {
    let mut report = Report { until: Some(Deadline::after(LANDS_WITHIN)), ..Report::default() };
    let cargo = |arguments: &[&str]| {
        let mut command = Command::new("cargo");
        command.args(arguments).current_dir(workspace.root());
        command
    };
    report.run("format", || shown(&mut cargo(&["fmt", "--all", "--check"])));
    let lints = |of: &[&str]| {
        let all = [&["clippy", "--locked", "--all-targets"], of, &["--", "--deny", "warnings"]].concat();
        shown(&mut cargo(&all))
    };
    report.run("lints", || lints(&["--workspace", "--features", "init/faults"]));
    // In a workspace's run `tests` turns the faults on for all: what is shipped has none.
    report.run("lints, shipped", || lints(&["--package", "init", "--package", "api"]));
    report.run("dependencies", || {
        let mut deny = Command::new(tools::cargo_deny(cache)?);
        shown(deny.args(["check", "bans", "licenses", "sources"]).current_dir(workspace.root()))
    });
    if let Some(obstacle) = fresh::obstacle()?.filter(|_| !fresh::is_here()) {
        report.note(format!("! this ran on this machine as it is, not in a fresh root: {obstacle}"));
    }
    report.tests(workspace, cache);
    report.finish()
}

/// `cargo xtask test`: all tests, with what they need built before.
///
/// # Errors
/// Something failed; the report has been printed.
pub(crate) fn test(workspace: &Workspace, cache: &BuildCache) -> Result<()> {
    let mut report = Report::default();
    report.tests(workspace, cache);
    report.finish()
}

/// `cargo xtask reproducible`: only that part of the tests.
///
/// # Errors
/// Two builds differ, or one fails.
pub(crate) fn reproducible(workspace: &Workspace, cache: &BuildCache) -> Result<()> {
    let folder = image_under_test(workspace, cache, ImageProfile::Release)?;
    reproducible::check(workspace, cache, &folder)
}

/// Builds what the tests of machines run, and returns its folder.
pub(crate) fn image_under_test(workspace: &Workspace, cache: &BuildCache, profile: ImageProfile) -> Result<PathBuf> {
    let name = match profile {
        ImageProfile::Release => "image-under-test",
        ImageProfile::Debug => "debug-image-under-test",
    };
    written(workspace, cache, &Wanted::plain(profile, Build::Release), name)
}

/// The same of a release with gVisor.
fn gvisor_image_under_test(workspace: &Workspace, cache: &BuildCache) -> Result<PathBuf> {
    let extensions = [ImageExtension::Gvisor].into();
    let wanted = Wanted { extensions, ..Wanted::plain(ImageProfile::Release, Build::Release) };
    written(workspace, cache, &wanted, "gvisor-image-under-test")
}

fn written(workspace: &Workspace, cache: &BuildCache, wanted: &Wanted, name: &str) -> Result<PathBuf> {
    let folder = workspace.target().join(name);
    image::build(workspace, cache, wanted, &folder)?;
    Ok(folder)
}

impl Report {
    fn tests(&mut self, workspace: &Workspace, cache: &BuildCache) {
        self.run("kernel", || kernel::build(cache, None).map(drop));
        self.run("components", || components::build(workspace, cache).map(drop));
        self.count("Go tests", || verdict::of_go(&mut components::tests(workspace)));
        let mut folder = PathBuf::new();
        self.run("image", || {
            folder = image_under_test(workspace, cache, ImageProfile::Release)?;
            Ok(())
        });
        let mut gvisor = None;
        // A run that has an end spends no time on it where it would compile gVisor for one case.
        let has_time = self.until.is_none();
        if has_time || components::are_cached(workspace, cache, ImageExtension::Gvisor).unwrap_or(true) {
            self.run("gVisor image", || {
                gvisor = Some(gvisor_image_under_test(workspace, cache)?);
                Ok(())
            });
        }
        let mut debug = PathBuf::new();
        let build = || {
            debug = image_under_test(workspace, cache, ImageProfile::Debug)?;
            Ok(())
        };
        self.both(("debug image", build), ("reproducible", || reproducible::check(workspace, cache, &folder)));
        self.counts += Counts::of_one(self.rows.last().is_some_and(|row| row.good));
        let cargo_test = |arguments: &[&str]| {
            let mut command = Command::new("cargo");
            command.args(["test", "--locked", "--no-fail-fast"]).args(arguments).current_dir(workspace.root());
            command
        };
        self.count("host tests", || {
            verdict::of(&mut cargo_test(&["--workspace", "--exclude", "tests", "--features", "init/faults"]))
        });
        // Without faults, as it is shipped; `init` is then in the image that the machines of tests run.
        self.count("tests, shipped", || verdict::of(&mut cargo_test(&["--package", "api"])));
        let mut machines = cargo_test(&["--package", "tests"]);
        machines.env("CAIRN_IMAGE_DIR", &folder).env("CAIRN_DEBUG_IMAGE_DIR", &debug);
        machines.envs(gvisor.map(|folder| ("CAIRN_GVISOR_IMAGE_DIR", folder)));
        self.run("cairnctl", || {
            machines.env("CAIRN_CAIRNCTL", programs::cairnctl(workspace)?);
            Ok(())
        });
        if let Ok(components) = components::build(workspace, cache) {
            // Building them has failed above otherwise, and has said so.
            machines.env("CAIRN_KUBECTL", components.kubectl_path());
            // Nobody waits half an hour for twenty specs; without them the case says why it was skipped.
            if let Ok(Some(upstream)) = components::e2e_cached(workspace, cache) {
                machines.env("CAIRN_E2E", upstream.folder.join("e2e.test"));
            }
        }
        if let Some(until) = self.until {
            let left = until.left().unwrap_or_default();
            machines.env("CAIRN_CASES_WITHIN", left.as_secs().to_string());
        }
        self.count("machine tests", || verdict::of(&mut machines));
    }

    fn run(&mut self, name: &'static str, run: impl FnOnce() -> Result<()>) {
        self.rows.push(Row::of(name, run));
    }

    /// Runs two steps beside each other, for each has a link that keeps one processor busy and no other.
    fn both(
        &mut self,
        (name, run): (&'static str, impl FnOnce() -> Result<()>),
        (other, runs): (&'static str, impl FnOnce() -> Result<()> + Send),
    ) {
        let (rows, took) = timed(|| {
            thread::scope(|scope| {
                let beside = scope.spawn(move || Row::of(other, runs));
                [Row::of(name, run), beside.join().unwrap_or(Row { name: other, took: Duration::ZERO, good: false })]
            })
        });
        self.overlap += rows.iter().map(|row| row.took).sum::<Duration>().saturating_sub(took);
        self.rows.extend(rows);
    }

    /// Says something now, and again at the end.
    fn note(&mut self, note: String) {
        say(&note);
        self.notes.push(note);
    }

    fn count(&mut self, name: &'static str, tests: impl FnOnce() -> Result<Counts>) {
        let mut counts = Counts::default();
        self.run(name, || {
            counts = tests()?;
            if counts.failed > 0 { bail!("{counts}") } else { Ok(()) }
        });
        self.counts += counts;
    }

    /// Prints the table and, as the very last line, the counts.
    fn finish(self) -> Result<()> {
        let mut out = stdout();
        let total = self.rows.iter().map(|row| row.took).sum::<Duration>().saturating_sub(self.overlap);
        let mut text = format!("\n{:<16} {:>14}\n", "step", "time");
        for row in &self.rows {
            text +=
                &format!("{:<16} {:>14}{}\n", row.name, clock_text(row.took), if row.good { "" } else { "  failed" });
        }
        text += &format!("{:<16} {:>14}\n", "all", clock_text(total));
        let failed: Vec<&str> = self.rows.iter().filter(|row| !row.good).map(|row| row.name).collect();
        if !failed.is_empty() {
            text += &format!("failed: {}\n", failed.join(", "));
        }
        text.extend(self.notes.iter().map(|note| format!("{note}\n")));
        writeln!(out, "{text}{}", self.counts).context("print the report")?;
        if failed.is_empty() { Ok(()) } else { Err(Failed.into()) }
    }
}

impl Row {
    /// Runs a step; why it fails is said at once.
    fn of(name: &'static str, run: impl FnOnce() -> Result<()>) -> Self {
        let (result, took) = timed(run);
        if let Err(error) = &result {
            say(format_args!("✗ {name}: {error:#}"));
        }
        Self { name, took, good: result.is_ok() }
    }
}

/// The run failed and has said so: nothing more is to be printed.
#[derive(Debug, thiserror::Error)]
#[error("something failed; the report above says what")]
pub(crate) struct Failed;
