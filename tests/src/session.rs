//! A run of the tests: the image, the directory of artefacts, what cases share, and what is told at the end.
//!
//! A session owns its directory by a lock. Machines that an earlier session left behind there (it was killed) are
//! ended, and only those: each is proven by pid and start time.

use std::any::Any;
use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap};
use std::fmt::Write;
use std::fs::{self, File};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};
use libtest_mimic::{Completion, Failed};
use qemu::Vm;
use qemu::deadline::Stopwatch;
use qemu::host::{self, Acceleration, Requirement};
use qemu::network::control::detached::NetworkProcess;

use crate::context::Context;
use crate::image::Image;
use crate::pace::HostPace;
use crate::turns::{Load, Place, Turns};
use crate::{Case, FleetKind, Need, Skip, Starts};

/// How many of the cases that took longest are told.
const LONGEST: usize = 10;

/// A value that the cases of a file share under one name.
pub(crate) type Slot = Arc<OnceLock<anyhow::Result<Arc<dyn Any + Send + Sync>>>>;

#[derive(Debug)]
pub(crate) struct Session {
    image: Image,
    pace: HostPace,
    dir: PathBuf,
    /// How many cases run at once.
    at_once: usize,
    turns: Mutex<Turns>,
    ended: Condvar,
    /// By file and name.
    shared: Mutex<HashMap<(&'static str, &'static str), Slot>>,
    /// Fleets that were made and saved.
    made: Mutex<BTreeSet<FleetKind>>,
    told: Mutex<String>,
    took: Mutex<Vec<Took>>,
    _lock: File,
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
    pub(crate) fn open(out: &Path, at_once: Option<usize>) -> anyhow::Result<Self> {
        let image = Image::of_environment()?;
        require(&[host::QEMU, host::QEMU_IMG])?;
        fs::create_dir_all(out).with_context(|| format!("make `{}`", out.display()))?;
        let lock = File::create(out.join("lock")).context("make the lock of the artefacts' directory")?;
        lock.try_lock().with_context(|| format!("another run of the tests uses `{}`", out.display()))?;
        let dir = out.join("cases");
        end_leftovers(&dir)?;
        let pace = HostPace::here();
        Ok(Self {
            image,
            pace,
            dir,
            at_once: at_once.unwrap_or(pace.processors),
            turns: Mutex::default(),
            ended: Condvar::default(),
            shared: Mutex::default(),
            made: Mutex::default(),
            told: Mutex::default(),
            took: Mutex::default(),
            _lock: lock,
        })
    }

    pub(crate) fn image(&self) -> &Image {
        &self.image
    }

    pub(crate) fn pace(&self) -> HostPace {
        self.pace
    }

    /// Runs one case when it is its turn.
    #[expect(clippy::print_stderr, reason = "what a person reads who waits")]
    pub(crate) fn run(self: &Arc<Self>, case: &Case, place: Place) -> Result<Completion, Failed> {
        let mut turns = lock(&self.turns);
        turns.wait(place);
        while !turns.take(place, self.at_once) {
            turns = self.ended.wait(turns).unwrap_or_else(PoisonError::into_inner);
        }
        drop(turns);
        let begun = Stopwatch::start();
        let result = self.run_now(case, place);
        let took = begun.elapsed();
        eprintln!("{:>8.1} s  {}", took.as_secs_f64(), case.name);
        if let Err(failed) = &result {
            // Told again at the end, but not by a run that is ended before.
            eprintln!("failed: {}: {}", case.name, failed.message().unwrap_or_default());
        }
        lock(&self.took).push(Took { time: took, case: case.name, place });
        if lock(&self.turns).end(place) {
            // So that their machines take no processor from others.
            lock(&self.shared).retain(|(file, _), _| *file != place.file);
        }
        self.ended.notify_all();
        result
    }

    /// Runs one case and keeps or removes its files.
    fn run_now(self: &Arc<Self>, case: &Case, place: Place) -> Result<Completion, Failed> {
        let dir = self.dir_of(case.name);
        let context = Context::new(Arc::clone(self), dir.clone(), place.file);
        let ready = self.meet(case.needs).and_then(|()| self.has_what_starts(case.starts));
        let result = ready.and_then(|()| {
            // Failed assertions keep their artefacts like any other failure.
            catch_unwind(AssertUnwindSafe(|| (case.run)(&context))).unwrap_or_else(|panic| Err(message(&*panic)))
        });
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
        lock(&self.shared).clear();
        if !failed {
            // What cannot be removed now is when the next session begins.
            let _removed = fs::remove_dir_all(&self.dir);
        }
        let took = table(std::mem::take(&mut lock(&self.took)));
        std::mem::take(&mut *lock(&self.told)) + &took
    }

    /// The value that the cases of this file share under this name.
    pub(crate) fn shared(&self, file: &'static str, name: &'static str) -> Slot {
        Arc::clone(lock(&self.shared).entry((file, name)).or_default())
    }

    /// Directory of the case, or of the shared thing, of this name.
    pub(crate) fn dir_of(&self, name: &str) -> PathBuf {
        let plain = |letter: char| if letter.is_ascii_alphanumeric() { letter } else { '-' };
        self.dir.join(name.chars().map(plain).collect::<String>())
    }

    /// A missing package is a failure that says so; only what no package brings is a reason to skip.
    fn meet(&self, needs: &[Need]) -> anyhow::Result<()> {
        for need in needs {
            match need {
                Need::Kvm if self.pace.acceleration == Acceleration::Tcg => bail!(Skip("no usable KVM")),
                Need::Kvm => {}
                Need::Swtpm => require(&[host::SWTPM])?,
                Need::Faketime => require(&[host::FAKETIME])?,
                Need::Ovmf => require(&[host::OVMF_CODE, host::OVMF_VARS])?,
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

    /// Folder of a fleet, below that of all cases.
    pub(crate) fn fleet(&self, kind: FleetKind) -> PathBuf {
        self.dir.join("fleets").join(kind.word())
    }

    fn tell(&self, line: &str) {
        // Writing to a string cannot fail.
        let _written = writeln!(lock(&self.told), "{line}");
    }
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

fn require(wanted: &[Requirement]) -> anyhow::Result<()> {
    match host::missing(wanted).first() {
        None => Ok(()),
        Some(Requirement { file, package }) => bail!("`{file}` is not there: install the Debian package {package}"),
    }
}

/// Ends machines and networks below `dir` and removes it.
fn end_leftovers(dir: &Path) -> anyhow::Result<()> {
    let entries = |dir: &Path| -> Vec<PathBuf> {
        fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path()).collect()
    };
    // Cases keep files of their own beside their machines' directories; an owner has machines in clusters.
    let clusters = |case: &PathBuf| entries(&case.join("owner/cairn/clusters"));
    let of_clusters = |case: &PathBuf| clusters(case).into_iter().flat_map(|of| entries(&of.join("machines")));
    let machines = |case: &PathBuf| entries(case).into_iter().chain(of_clusters(case));
    for machine in entries(dir).iter().flat_map(machines).filter(|path| path.is_dir()) {
        // Half-launched ones and those that stand still are ended, too.
        Vm::end_detached(&machine).context("end a machine that an earlier run left")?;
    }
    for cluster in entries(dir).iter().flat_map(clusters) {
        NetworkProcess::end(&cluster.join("network")).context("end a network that an earlier run left")?;
    }
    match fs::remove_dir_all(dir) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error).context("remove old artefacts"),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// A case that panicked has failed; what it shares is as good as before.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

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
