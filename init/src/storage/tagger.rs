//! The kernel thread that fills in missing tags, and who goes first while a machine comes up: its services.
//!
//! dm-integrity recalculates in one item of work that lasts until all is tagged (`integrity_recalc`,
//! `drivers/md/dm-integrity.c`), in a thread of its processor's pool. `/proc` shows the thread by the name of the queue
//! while it is at it (`wq_worker_comm`, `kernel/workqueue.c`), and the pool sets a thread's priority only when it makes the
//! thread: so a priority that is set here stays, and is to be taken back, for the thread goes on to other work.

use std::fs;
use std::io;

use rustix::process::{Pid, getpriority_process, setpriority_process};

/// As any thread of a pool.
const EQUAL: i32 = 0;
/// The nice value of a thread that makes way: about a tenth of a busy processor is left to it. Not less: it locks the 16 MiB
/// that it is tagging, and whoever wants to read or write there waits for it.
const BEHIND: i32 = 10;

/// Whether tagging makes way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// The machine comes up: its services go first.
    Behind,
    /// All that should come up is up: tagging takes its share.
    Equal,
}

/// Tagging makes way for a node that has not been Ready in this boot. On a machine without one, services are up before they
/// could be in each other's way; and whoever uses a node later has to live with what it does.
pub(super) const fn way(tagging: bool, node_awaited: bool) -> Way {
    if tagging && node_awaited { Way::Behind } else { Way::Equal }
}

/// The threads whose priority has been changed.
#[derive(Debug, Default)]
pub(super) struct Tagger {
    behind: Vec<Pid>,
}

impl Tagger {
    /// Sets what `way` asks for, if it is not so already. Another thread may have taken the work over meanwhile, so it is
    /// looked for at each call that asks to make way.
    ///
    /// # Errors
    /// When threads cannot be listed, or one keeps its priority.
    pub(super) fn put(&mut self, way: Way) -> io::Result<()> {
        match way {
            Way::Behind => {
                for thread in threads(is_tagging)? {
                    if !self.behind.contains(&thread) {
                        set(thread, BEHIND)?;
                        self.behind.push(thread);
                    }
                }
            }
            Way::Equal => {
                for thread in std::mem::take(&mut self.behind) {
                    // It may have ended, and its number be another's.
                    if name(thread).is_some_and(|name| is_pooled(&name)) && getpriority_process(Some(thread))? == BEHIND
                    {
                        set(thread, EQUAL)?;
                    }
                }
            }
        }
        Ok(())
    }
}

/// Sets a priority and says what the kernel makes of it.
fn set(thread: Pid, nice: i32) -> io::Result<()> {
    setpriority_process(Some(thread), nice)?;
    let (thread_name, nice) = (name(thread).unwrap_or_default(), getpriority_process(Some(thread))?);
    tracing::info!(thread = thread_name, nice, "tagging has its priority");
    Ok(())
}

/// A thread of a pool that is at the work; the queue's own rescuer, which waits for a lack of memory, has no `+`.
fn is_tagging(name: &str) -> bool {
    is_pooled(name) && name.ends_with("+dm-integrity-recalc")
}

fn is_pooled(name: &str) -> bool {
    name.starts_with("kworker/")
}

fn name(thread: Pid) -> Option<String> {
    let name = fs::read_to_string(format!("/proc/{}/comm", thread.as_raw_nonzero())).ok()?;
    Some(name.trim_end().to_owned())
}

fn threads(wanted: fn(&str) -> bool) -> io::Result<Vec<Pid>> {
    let number = |entry: fs::DirEntry| entry.file_name().to_str()?.parse().ok().and_then(Pid::from_raw);
    let all = fs::read_dir("/proc")?.flatten().filter_map(number);
    Ok(all.filter(|thread| name(*thread).is_some_and(|name| wanted(&name))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tagging_makes_way_until_the_node_is_ready_and_only_where_there_is_one() {
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

    /// A process of the host stands for the thread: what cannot be taken back without privilege is not tried.
    #[test]
    fn a_thread_that_has_become_another_keeps_its_priority() {
        let own = rustix::process::getpid();
        let before = getpriority_process(Some(own)).expect("ours");
        let mut tagger = Tagger { behind: vec![own] };
        tagger.put(Way::Equal).expect("nothing to do");
        assert!(tagger.behind.is_empty());
        assert_eq!(getpriority_process(Some(own)).expect("ours"), before);
    }
}
