//! A boot as the host sees it: lines of the serial console, in real time, on both sides. The guest's own uptime stands
//! in the line; QEMU's CPU time is read when the line comes.

use std::time::Duration;

use anyhow::Result;
use benches::{Arrival, BootMilestone};
use qemu::{Deadline, Vm};

/// To node Ready; a busy host has needed five minutes. It only bounds a wait for what is broken.
pub(crate) const BOOT: Duration = Duration::from_secs(1200);

/// Meaning of a line of the console.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Told {
    /// The first program of ours runs; since when, the line does not say.
    Started,
    /// A milestone, at this uptime.
    Reached(BootMilestone, Duration),
    /// The machine takes its owner's calls from here on.
    Running,
}

/// Milestones that were seen, and how the host's clock stands to the guest's uptime.
#[derive(Debug)]
pub(crate) struct Followed {
    /// Milestones in the order they were told.
    pub(crate) seen: Vec<Arrival>,
    /// QEMU's CPU time when the first program was seen to run, where its line did not say since when.
    pub(crate) started: Option<Duration>,
    /// Lead of the host's clock (since QEMU's start) over the guest's uptime: the least that a line was late.
    ahead: Duration,
}

impl Followed {
    /// The guest's uptime at a moment of the host.
    pub(crate) fn uptime(&self, at: Duration) -> Duration {
        at.saturating_sub(self.ahead)
    }
}

/// Follows a boot until its node is Ready. `read` understands the side's lines; `running` is called once, when the
/// machine says so.
pub(crate) fn to_node_ready(
    vm: &mut Vm,
    read: fn(&str) -> Option<Told>,
    mut running: impl FnMut() -> Result<()>,
) -> Result<Followed> {
    let deadline = Deadline::after(BOOT);
    let mut followed = Followed { seen: Vec::new(), started: None, ahead: Duration::MAX };
    let mut from = vm.started();
    loop {
        let (told, end) =
            vm.console().wait_until(from, "node Ready", deadline, |line| Some((read(&line.text)?, line.end)))?;
        from = end;
        match told {
            Told::Started => followed.started = followed.started.or(Some(vm.cpu_time())),
            Told::Running => running()?,
            Told::Reached(milestone, uptime) => {
                let mark = vm.note(milestone.name());
                followed.ahead = followed.ahead.min(mark.at.saturating_sub(uptime));
                followed.seen.push(Arrival { milestone, uptime, cpu: Some(mark.cpu) });
                if milestone == BootMilestone::NodeReady {
                    return Ok(followed);
                }
            }
        }
    }
}
