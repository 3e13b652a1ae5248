//! A run of the tests: each case in its turn, and what is told at the end. It must never begin a case whose needs the host does not
//! meet, nor one whose fleet was not made.

use std::any::Any;
use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::fmt::Write;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{anyhow, bail};
use libtest_mimic::{Completion, Failed};
use qemu::deadline::{Deadline, Stopwatch};
use qemu::host::{self, Acceleration};
use qemu::run::crash_of;

use crate::context::Context;
use crate::premises::{Premises, lock, require};
use crate::specs::SpecProgram;
use crate::turns::{Load, Place, Turns};
use crate::{Case, FleetKind, Image, Prerequisite, Skip, Starts};

/// How many of the cases that took longest are told.
const LONGEST: usize = 10;

#[derive(Debug)]
pub(crate) struct Session {
    premises: Arc<Premises>,
    /// How many cases run at once.
    at_once: usize,
    turns: Mutex<Turns>,
    ended: Condvar,
    /// Fleets that were made and saved.
    made: Mutex<BTreeSet<FleetKind>>,
    told: Mutex<String>,
    took: Mutex<Vec<Took>>,
    /// Until when it begins cases; as long as there are some, if nobody says.
    until: Option<Deadline>,
    /// Cases that did not begin by then.
    late: AtomicUsize,
}

/// How long a case took.
#[derive(Debug, Clone, Copy)]
struct Took {
    time: Duration,
    case: &'static str,
    place: Place,
}

impl Session {
    /// With files below `out`, and so many cases at once, if not as many as the host carries.
    pub(crate) fn open(out: &Path, at_once: Option<usize>, within: Option<Duration>) -> anyhow::Result<Self> {
        let premises = Arc::new(Premises::open(out)?);
        Ok(Self {
            at_once: at_once.unwrap_or(premises.pace().processors),
            premises,
            turns: Mutex::default(),
            ended: Condvar::default(),
            made: Mutex::default(),
            told: Mutex::default(),
            took: Mutex::default(),
            until: within.map(Deadline::after),
            late: AtomicUsize::new(0),
        })
    }

    /// Runs one case when it is its turn.
    #[expect(clippy::print_stderr, reason = "what a person reads who waits")]
    pub(crate) fn run(&self, case: &Case, place: Place) -> Result<Completion, Failed> {
        let mut turns = lock(&self.turns);
        turns.wait(place);
        while !turns.take(place, self.at_once) {
            turns = self.ended.wait(turns).unwrap_or_else(PoisonError::into_inner);
        }
        drop(turns);
        let result = if self.until.is_some_and(|until| until.left().is_none()) {
            self.late.fetch_add(1, Ordering::Relaxed);
            Ok(Completion::ignored_with("the time of this run is over"))
        } else {
            let begun = Stopwatch::start();
            let result = self.run_now(case, place);
            let took = begun.elapsed();
            eprintln!("{:>8.1} s  {}", took.as_secs_f64(), case.name);
            if let Err(failed) = &result {
                // Told again at the end, but not by a run that is ended before.
                eprintln!("failed: {}: {}", case.name, failed.message().unwrap_or_default());
            }
            lock(&self.took).push(Took { time: took, case: case.name, place });
            result
        };
        if lock(&self.turns).end(place) {
            // So that their machines take no processor from others.
            self.premises.forget(place.file);
        }
        self.ended.notify_all();
        result
    }

    /// Runs one case and keeps or removes its files.
    fn run_now(&self, case: &Case, place: Place) -> Result<Completion, Failed> {
        let dir = self.premises.dir_of(case.name);
        let attempt = || {
            let context = Context::new(Arc::clone(&self.premises), dir.clone(), place.file);
            // Failed assertions keep their artefacts like any other failure.
            catch_unwind(AssertUnwindSafe(|| (case.run)(&context))).unwrap_or_else(|panic| Err(message(&*panic)))
        };
        let ready = self.meet(case.needs).and_then(|()| self.has_what_starts(case.starts));
        let result = ready.and_then(|()| attempt());
        let crash = result.as_ref().err().and_then(|_| crash_below(&dir));
        let result = match crash {
            // QEMU 7.2 does, once in some thousand starts of emulated machines, milliseconds behind the start: it reads at 0xa0, by a pointer
            // that is none. Nothing of Cairn has run by then, and nothing of it is tried by that.
            Some(crash) => {
                self.tell(&format!("run again: {}: {crash}", case.name));
                fs::remove_dir_all(&dir).map_err(anyhow::Error::from).and_then(|()| attempt())
            }
            None => result,
        };
        match result {
            Ok(()) => {
                // What cannot be removed now is when the next session begins.
                let _removed = fs::remove_dir_all(&dir);
                if let Starts::Making(fleet) = case.starts {
                    lock(&self.made).insert(fleet);
                }
                Ok(Completion::Completed)
            }
            Err(error) => match error.downcast_ref::<Skip>() {
                Some(Skip(reason)) => {
                    self.tell(&format!("skipped: {}: {reason}", case.name));
                    Ok(Completion::ignored_with(reason))
                }
                None => {
                    self.tell(&format!("failed: {}: see {}", case.name, dir.display()));
                    Err(Failed::from(format!("{error:#}\nartefacts: {}", dir.display())))
                }
            },
        }
    }

    /// Ends what was shared; what is to be told about the run.
    pub(crate) fn close(&self, failed: bool) -> String {
        self.premises.forget_all();
        if !failed {
            // What cannot be removed now is when the next session begins.
            self.premises.remove();
        }
        let late = self.late.load(Ordering::Relaxed);
        if let (Some(until), 1..) = (self.until, late) {
            let minutes = until.length().as_secs() / 60;
            self.tell(&format!(
                "{late} cases did not begin within {minutes} min, and prove nothing: a run of all has no such limit"
            ));
        }
        let took = table(std::mem::take(&mut lock(&self.took)));
        std::mem::take(&mut *lock(&self.told)) + &took
    }

    /// A missing package is a failure that says so; only what no package brings is a reason to skip.
    fn meet(&self, needs: &[Prerequisite]) -> anyhow::Result<()> {
        for need in needs {
            match need {
                Prerequisite::Kvm if self.premises.pace().acceleration == Acceleration::Tcg => {
                    bail!(Skip("no usable KVM"))
                }
                Prerequisite::Kvm => {}
                Prerequisite::Swtpm => require(&[host::SWTPM])?,
                Prerequisite::Faketime => require(&[host::FAKETIME])?,
                Prerequisite::Gvisor if !Image::is_gvisor_named() => {
                    bail!(Skip("no image with gVisor was built; `cargo xtask test` builds one"))
                }
                Prerequisite::Gvisor => {}
                Prerequisite::Upstream if !SpecProgram::is_named() => {
                    bail!(Skip("upstream's tests are not in the cache; `cargo xtask conformance` builds them"))
                }
                Prerequisite::Upstream => {}
                Prerequisite::Ovmf => require(&[host::OVMF_CODE, host::OVMF_VARS])?,
            }
        }
        Ok(())
    }

    /// A case whose fleet was not made fails by that name, and does not run.
    fn has_what_starts(&self, starts: Starts) -> anyhow::Result<()> {
        match starts {
            Starts::From(fleet) if !lock(&self.made).contains(&fleet) => {
                bail!("the fleet `{fleet}` that it starts from was not made: see the case that makes it")
            }
            Starts::Cold | Starts::Making(_) | Starts::From(_) => Ok(()),
        }
    }

    fn tell(&self, line: &str) {
        // Writing to a string cannot fail.
        let _written = writeln!(lock(&self.told), "{line}");
    }
}

/// Words for the crash of a QEMU that ran below `dir`, if one crashed.
fn crash_below(dir: &Path) -> Option<String> {
    let below =
        fs::read_dir(dir).into_iter().flatten().flatten().filter(|it| it.file_type().is_ok_and(|it| it.is_dir()));
    crash_of(dir).or_else(|| below.map(|it| it.path()).find_map(|dir| crash_below(&dir)))
}

/// The cases that took longest, and the mean of those that start from a copy of few machines, where there are so many that it
/// matters.
fn table(mut took: Vec<Took>) -> String {
    if took.len() <= LONGEST {
        return String::new();
    }
    took.sort_unstable_by_key(|took| Reverse(took.time));
    let line = |took: &Took| format!("{:>8.1} s  {}\n", took.time.as_secs_f64(), took.case);
    let longest: String = took[..LONGEST].iter().map(line).collect();
    let copies = took.iter().filter(|took| took.place.has_a_copy() && took.place.load != Load::Heavy);
    let (count, sum) = copies.fold((0_u32, Duration::ZERO), |(count, sum), took| (count + 1, sum + took.time));
    let mean = sum.checked_div(count).unwrap_or_default().as_secs_f64();
    format!(
        "longest of {} cases:\n{longest}{mean:>8.1} s  mean of {count} cases from copies of few machines\n",
        took.len()
    )
}

/// Message of a panic, as an error.
fn message(panic: &(dyn Any + Send)) -> anyhow::Error {
    let text = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
    anyhow!("panicked: {}", text.unwrap_or("without a message"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The output of a machine is in its folder, below the case's.
    #[test]
    fn a_crash_of_qemu_is_told_from_its_end() {
        let case = tempfile::tempdir().expect("a folder");
        let machine = case.path().join("fleet/m1");
        fs::create_dir_all(&machine).expect("it is made");
        for (output, crash) in [
            ("", None),
            ("qemu: could not open a file\n", None),
            ("QEMU crashed: signal 11\n", Some("QEMU crashed: signal 11")),
            ("a warning\nQEMU crashed: signal 6\n", Some("QEMU crashed: signal 6")),
            ("QEMU crashed: signal 11\nsaid by a guest\n", None),
        ] {
            fs::write(machine.join("qemu.log"), output).expect("it is written");
            assert_eq!(crash_below(case.path()).as_deref(), crash, "{output:?}");
        }
    }

    #[test]
    fn the_longest_cases_and_the_mean_are_told_of_a_whole_run_only() {
        let of = |seconds| {
            let starts = if seconds < 4 { Starts::From(FleetKind::Three) } else { Starts::Cold };
            let load = if seconds == 3 { Load::Heavy } else { Load::Light };
            let place = Place { number: 0, file: "a.rs", load, starts };
            Took { time: Duration::from_secs(seconds), case: "a case", place }
        };
        let took: Vec<_> = (0..13).map(of).collect();
        assert_eq!(table(took[..LONGEST].to_vec()), "");
        let told = table(took);
        let lines: Vec<&str> = told.lines().collect();
        assert_eq!((lines.len(), lines[0]), (LONGEST + 2, "longest of 13 cases:"));
        assert_eq!((lines[1], lines[LONGEST]), ("    12.0 s  a case", "     3.0 s  a case"));
        assert_eq!(lines[LONGEST + 1], "     1.0 s  mean of 3 cases from copies of few machines");
    }
}
