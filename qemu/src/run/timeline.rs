//! Timeline of a machine, as its watcher saw it: kept in memory and in the run's `timeline` file.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::time::Duration;

use crate::deadline::Stopwatch;

/// A point in a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunPoint {
    /// Name of what happened.
    pub what: String,
    /// Time since the machine was started, or found again.
    pub at: Duration,
    /// CPU time that QEMU had used by then.
    pub cpu: Duration,
}

#[derive(Debug)]
pub(super) struct Timeline {
    clock: Stopwatch,
    file: File,
    milestones: Vec<RunPoint>,
}

impl Timeline {
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let file = File::options().create(true).append(true).open(path)?;
        Ok(Self { clock: Stopwatch::start(), file, milestones: Vec::new() })
    }

    /// The file is for people: a disk too full to write it must not fail the run it describes.
    pub(super) fn note(&mut self, what: &str, cpu: Duration) -> RunPoint {
        let milestone = RunPoint { what: what.to_owned(), at: self.clock.elapsed(), cpu };
        let (at, seconds) = (milestone.at.as_secs_f64(), cpu.as_secs_f64());
        let _written = writeln!(self.file, "{at:9.3} s  [{seconds:7.2} CPU s]  {what}");
        self.milestones.push(milestone.clone());
        milestone
    }

    pub(super) fn milestones(&self) -> &[RunPoint] {
        &self.milestones
    }
}
