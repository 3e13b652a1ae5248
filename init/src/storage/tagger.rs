//! The kernel thread that fills in missing tags, and who goes first while a machine comes up: its services.
//!
//! dm-integrity recalculates in one item of work that lasts until all is tagged (`integrity_recalc`,
//! `drivers/md/dm-integrity.c`), in a thread of its processor's pool. `/proc` shows the thread by the name of the queue
//! while it is at it (`wq_worker_comm`, `kernel/workqueue.c`). A policy that is set here stays with the thread, so it is to
//! be taken back: the thread goes on to other work. No thread of a pool has that policy by itself.

use std::fs;
use std::io;

use rustix::process::Pid;
use sys::scheduler::{self, ThreadPolicy};

/// Whether tagging makes way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// The machine comes up: tagging gets what its services leave. It locks the 16 MiB that it is at, so somebody may have to
    /// wait for it; but a processor whose services wait is tagging's.
    Behind,
    /// All that should come up is up: tagging takes its share.
    Equal,
}

impl Way {
    const fn policy(self) -> ThreadPolicy {
        match self {
            Self::Behind => ThreadPolicy::Idle,
            Self::Equal => ThreadPolicy::Share,
        }
    }
}

/// Tagging makes way for a node that is to run and has not been Ready in this boot. On a machine without one, services are up before they
/// could be in each other's way; and whoever uses a node later has to live with what it does.
pub(super) const fn way(tagging: bool, node_awaited: bool) -> Way {
    if tagging && node_awaited { Way::Behind } else { Way::Equal }
}

/// Sets what `way` asks for, where it is not so already. Another thread may have taken the work over meanwhile, so all are
/// looked at each time.
///
/// # Errors
/// When threads cannot be listed, or one keeps its policy.
pub(super) fn put(way: Way) -> io::Result<()> {
    let (concerned, from): (fn(&str) -> bool, _) = match way {
        Way::Behind => (is_tagging, ThreadPolicy::Share),
        Way::Equal => (is_pooled, ThreadPolicy::Idle),
    };
    for (thread, name) in threads(concerned)? {
        // One that has ended meanwhile is nobody's concern.
        if matches!(scheduler::policy(thread), Ok(Some(policy)) if policy == from) {
            scheduler::set_policy(thread, way.policy())?;
            tracing::info!(thread = name, policy = ?way.policy(), "tagging has its priority");
        }
    }
    Ok(())
}

/// A thread of a pool that is at the work; the queue's own rescuer, which waits for a lack of memory, has no `+`.
fn is_tagging(name: &str) -> bool {
    is_pooled(name) && name.ends_with("+dm-integrity-recalc")
}

fn is_pooled(name: &str) -> bool {
    name.starts_with("kworker/")
}

fn threads(concerned: fn(&str) -> bool) -> io::Result<Vec<(Pid, String)>> {
    let thread = |entry: fs::DirEntry| {
        let number = entry.file_name().to_str()?.parse().ok().and_then(Pid::from_raw)?;
        let name = fs::read_to_string(entry.path().join("comm")).ok()?.trim_end().to_owned();
        concerned(&name).then_some((number, name))
    };
    Ok(fs::read_dir("/proc")?.flatten().filter_map(thread).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tagging_makes_way_for_a_node_until_it_is_ready() {
        assert_eq!(way(true, true), Way::Behind);
        for (tagging, node_awaited) in [(true, false), (false, true), (false, false)] {
            assert_eq!(way(tagging, node_awaited), Way::Equal);
        }
    }

    #[test]
    fn the_thread_is_known_by_the_work_it_is_at() {
        assert!(is_tagging("kworker/1:2+dm-integrity-recalc"));
        // At other work, idle after it, the rescuer, and a process that calls itself so.
        for other in [
            "kworker/1:2+dm-integrity-commit",
            "kworker/1:2-dm-integrity-recalc",
            "kworker/R-dm-integrity-recalc",
            "a+dm-integrity-recalc",
        ] {
            assert!(!is_tagging(other), "{other}");
        }
        assert!(is_pooled("kworker/1:2-events") && !is_pooled("etcd"));
    }

    #[test]
    fn whoever_is_no_thread_of_a_pool_keeps_its_policy() {
        let own = rustix::thread::gettid();
        scheduler::set_policy(own, ThreadPolicy::Idle).expect("anybody may step back");
        put(Way::Equal).expect("there is nothing to do");
        assert_eq!(scheduler::policy(own).expect("ours"), Some(ThreadPolicy::Idle));
    }
}
