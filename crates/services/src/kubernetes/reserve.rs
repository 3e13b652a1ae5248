//! Reserves that a machine keeps from its pods, so that none of them ends what carries them all.
//!
//! ```text
//!   /            init: MEMORY_OF_PID_1 is never taken from it
//!                services: MEMORY is left to them while others have any
//!                shims: at most PIDS_OF_SHIMS
//!                pods: at most `pids_of_pods`, set by PID 1 ── kubepods: the machine less `memory` and PIDS, by kubelet
//!                                                                └── one pod: at most PIDS_OF_A_POD, by kubelet
//! ```

use crate::plan::{ServicePlan, ServiceRole};

/// Bytes for everything that is no pod. At rest the services of a control plane hold 740 MiB; the rest is the kernel and
/// the pages of their programs.
pub const MEMORY: u64 = 1 << 30;
/// The same on a machine that only runs pods.
const MEMORY_OF_A_WORKER: u64 = 384 << 20;
/// Bytes that the kernel takes from PID 1 for nobody: twice what it may hold at worst.
pub const MEMORY_OF_PID_1: u64 = 32 << 20;
/// Processes and threads for everything that is no pod.
pub const PIDS: u32 = 4096;
/// Processes and threads of one pod.
pub const PIDS_OF_A_POD: u32 = 1024;
/// Processes and threads of the shims, a dozen for each of kubelet's 110 pods and twice that.
pub const PIDS_OF_SHIMS: u32 = 4096;

/// Bytes that pods do not get on a machine of this plan.
pub(crate) fn memory(plan: &ServicePlan) -> u64 {
    if plan.wants(ServiceRole::Coordinator) { MEMORY } else { MEMORY_OF_A_WORKER }
}

/// How many processes and threads all pods together may have on a machine that can have `most` (the lower of
/// `kernel.pid_max` and `kernel.threads-max`): three quarters, and what is reserved is left in any case.
#[must_use]
pub fn pids_of_pods(most: u64) -> u64 {
    (most / 4 * 3).min(most.saturating_sub(u64::from(PIDS))).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_pid_1_keeps_is_twice_what_it_may_hold() {
        const MUST: u64 = 16 * 1024 * 1024;
        assert_eq!(MEMORY_OF_PID_1, 2 * MUST);
    }

    #[test]
    fn pods_never_get_the_last_pids_of_a_machine() {
        // The default of 32 768, a machine of 3 GiB, one of 1 GiB, and one that is too small for all of it.
        for (most, pods) in [(32_768, 24_576), (24_000, 18_000), (8_000, 3_904), (4_096, 1), (0, 1)] {
            assert_eq!(pids_of_pods(most), pods);
        }
    }
}
