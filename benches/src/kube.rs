//! Measurements of a cluster whose three machines have all roles, and of a worker beside them: what is promised, and what the kernel
//! says that a process holds.

use crate::verdict::Figure;

/// Number that is measured of such a cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KubeNumber {
    /// Seconds from power-on of the first machine until all three nodes are Ready, by the first one's clock.
    ThreeReady,
    /// Seconds from power-on of a worker until its node is Ready, by its clock.
    WorkerReady,
    /// VmRSS of PID 1 of a machine with all roles, in MiB.
    InitOfAllRoles,
    /// VmRSS of PID 1 of a worker, in MiB.
    InitOfWorker,
    /// Proportional memory of all services of a machine with all roles, in MiB.
    ServicesOfAllRoles,
    /// Proportional memory of all services of a worker, in MiB.
    ServicesOfWorker,
    /// Seconds from the end of the machine that clients were led by to the Kubernetes API's next answer.
    NextAnswer,
    /// Seconds from the end of a machine until no service leads to its pods.
    EndpointsGone {
        /// Whether the machine led the controllers.
        led: bool,
    },
    /// Seconds from the end of a machine until as many pods are available elsewhere.
    PodsElsewhere {
        /// Whether the machine led the controllers.
        led: bool,
    },
}

impl KubeNumber {
    /// Name of the number for a person.
    #[must_use]
    pub const fn what(self) -> &'static str {
        match self {
            Self::ThreeReady => "three of all roles to Ready, s",
            Self::WorkerReady => "a worker to Ready, s",
            Self::InitOfAllRoles => "VmRSS of PID 1, all roles, MiB",
            Self::InitOfWorker => "VmRSS of PID 1, worker, MiB",
            Self::ServicesOfAllRoles => "PSS of services, all roles, MiB",
            Self::ServicesOfWorker => "PSS of services, worker, MiB",
            Self::NextAnswer => "machine off: the API's next answer, s",
            Self::EndpointsGone { .. } => "machine off: endpoints gone, s",
            Self::PodsElsewhere { .. } => "machine off: pods elsewhere, s",
        }
    }

    /// The number as it was measured, beside its limit.
    #[must_use]
    pub fn figure(self, measured: f64) -> Figure {
        Figure { what: self.what(), measured: vec![measured], at_most: self.at_most() }
    }

    /// The limit that holds once SPECIFICATION.md has the number.
    const fn at_most(self) -> f64 {
        match self {
            Self::ThreeReady => 240.0,
            Self::WorkerReady => 30.0,
            Self::InitOfAllRoles => 14.0,
            Self::InitOfWorker => 12.0,
            Self::ServicesOfAllRoles => 550.0,
            Self::ServicesOfWorker => 250.0,
            Self::NextAnswer => 3.0,
            Self::EndpointsGone { led: false } => 40.0,
            Self::EndpointsGone { led: true } => 65.0,
            Self::PodsElsewhere { led: false } => 120.0,
            Self::PodsElsewhere { led: true } => 150.0,
        }
    }
}

/// Mebibytes in the line of this name in a process' `status` or `smaps_rollup` (proc_pid_status(5), proc_pid_smaps(5)); none without it.
#[must_use]
pub fn mebibytes(text: &str, name: &str) -> Option<f64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    let kilobytes: u32 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(f64::from(kilobytes) / 1024.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_read_by_the_name_of_its_line() {
        let rollup = "55d0-7ffe ---p 00000000 00:00 0 [rollup]\nRss:  4096 kB\nPss:  2048 kB\nPss_Anon:  1024 kB\n";
        assert_eq!((mebibytes(rollup, "Pss"), mebibytes(rollup, "Rss")), (Some(2.0), Some(4.0)));
        assert_eq!((mebibytes("VmRSS:\t   10240 kB\n", "VmRSS"), mebibytes(rollup, "Swap")), (Some(10.0), None));
        assert_eq!(mebibytes("Pss: much\n", "Pss"), None);
    }

    #[test]
    fn a_machine_that_led_the_controllers_has_more_time() {
        let holds =
            |led| [KubeNumber::EndpointsGone { led }.figure(60.0), KubeNumber::PodsElsewhere { led }.figure(140.0)];
        assert_eq!(holds(false).map(|figure| figure.holds()), [false, false]);
        assert_eq!(holds(true).map(|figure| figure.holds()), [true, true]);
    }
}
