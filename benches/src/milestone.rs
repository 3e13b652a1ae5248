//! The milestones of a boot, and the words by which the floor tells them on its serial line. Cairn tells its own by the
//! screen on the same line.

use std::time::Duration;

/// Point that a boot reaches, in this order where nothing is slow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BootMilestone {
    /// The first program of ours runs: stage 0, or the floor's only stage.
    FirstProgram,
    /// The public API answers; the floor has none.
    PublicApi,
    /// etcd answers `/readyz`.
    Etcd,
    /// containerd's socket accepts.
    Containerd,
    /// The apiserver answers `/readyz`.
    Apiserver,
    /// The node is Ready by the word of this boot's kubelet.
    NodeReady,
    /// The web pod runs.
    PodRunning,
}

impl BootMilestone {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::FirstProgram,
        Self::PublicApi,
        Self::Etcd,
        Self::Containerd,
        Self::Apiserver,
        Self::NodeReady,
        Self::PodRunning,
    ];

    /// Name of the milestone in tables and in the closing line of JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::FirstProgram => "first program",
            Self::PublicApi => "public API",
            Self::Etcd => "etcd ready",
            Self::Containerd => "containerd ready",
            Self::Apiserver => "apiserver ready",
            Self::NodeReady => "node Ready",
            Self::PodRunning => "pod Running",
        }
    }

    /// The line by which the floor tells it: the milestone with the guest's uptime.
    #[must_use]
    pub fn line(self, uptime: Duration) -> String {
        format!("{MARK}{}: {}", self.name(), uptime.as_micros())
    }

    /// The uptime in a line of the floor about this milestone.
    #[must_use]
    pub fn of_line(self, line: &str) -> Option<Duration> {
        let (_, told) = line.split_once(MARK)?;
        let micros = told.strip_prefix(self.name())?.strip_prefix(": ")?;
        micros.trim().parse().ok().map(Duration::from_micros)
    }
}

/// Begins each line of the floor.
const MARK: &str = "floor: ";

/// A milestone as it was seen in one boot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arrival {
    pub milestone: BootMilestone,
    /// Since the kernel started, by the guest's own clock.
    pub uptime: Duration,
    /// CPU time that QEMU had used when the host heard of it; none where the host was not told at that moment.
    pub cpu: Option<Duration>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_milestone_is_read_from_its_own_line_alone() {
        let uptime = Duration::from_micros(4_612_345);
        for milestone in BootMilestone::ALL {
            let line = milestone.line(uptime);
            for other in BootMilestone::ALL {
                assert_eq!(other.of_line(&line), (milestone == other).then_some(uptime), "{line}");
            }
        }
        assert_eq!(BootMilestone::Etcd.of_line("etcd ready: 12"), None);
        assert_eq!(BootMilestone::Etcd.of_line("floor: etcd ready: soon"), None);
    }
}
