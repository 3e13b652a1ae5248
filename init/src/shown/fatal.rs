//! An error that nothing can handle: shown, kept for the next boot, and after a while in which a person can read it a
//! reboot. The wait also keeps a machine that fails at every boot from a tight loop.

use std::fmt;
use std::time::Duration;

use model::Chain;

use super::last_words;
use crate::machine::power::{self, PowerRequest};
use crate::runtime::services::Escalation;
use crate::runtime::{durable, log};

/// As the kernel waits after a panic (`panic=10`).
const READING_TIME: Duration = Duration::from_secs(10);

/// An error that ends this boot, as text for the console.
#[derive(Debug)]
pub(crate) struct Fatal {
    text: String,
    remedy: Remedy,
}

/// Remedy for a boot that cannot go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Remedy {
    /// The next boot, at once: nothing is left to tell people by.
    Restart,
    /// The next boot, when people have had time to look.
    Later,
    /// The owner: the disk does not give what lies on it.
    Owner,
}

impl Fatal {
    /// `error` with its sources.
    pub(crate) fn new(error: &(dyn std::error::Error + 'static)) -> Self {
        let remedy = match error.downcast_ref() {
            Some(Escalation::Supervision | Escalation::Service(_)) => Remedy::Restart,
            Some(Escalation::Damage { .. }) => Remedy::Owner,
            None if durable::is_damage(error) => Remedy::Owner,
            None => Remedy::Later,
        };
        let text = if remedy == Remedy::Owner { enrol::failure::damaged(error) } else { Chain(error).to_string() };
        Self { text, remedy }
    }

    /// A panic outside every task.
    pub(crate) fn panicked() -> Self {
        Self { text: String::from("PID 1 panicked"), remedy: Remedy::Restart }
    }

    /// Remedy of the first failure; it takes effect where people can be told.
    pub(crate) const fn remedy(&self) -> Remedy {
        self.remedy
    }
}

impl fmt::Display for Fatal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl<E: std::error::Error + 'static> From<E> for Fatal {
    fn from(error: E) -> Self {
        Self::new(&error)
    }
}

/// Shows `error`, leaves it for the next boot, waits, reboots.
pub(crate) fn end(error: &Fatal) -> ! {
    let text = format!("\nCairn cannot go on: {error}\nThe machine reboots in {} s.\n", READING_TIME.as_secs());
    log::urgent(&text);
    if let Err(error) = last_words::leave(&text) {
        log::urgent(&format!("It is not kept for the next boot: {error}.\n"));
    }
    power::wait(READING_TIME);
    power::end(PowerRequest::Reboot)
}

#[cfg(test)]
mod tests {
    use std::io;

    use rustix::io::Errno;

    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("make directory `/data/kubelet`")]
    struct Directory(#[source] io::Error);

    /// Proves: O1
    #[test]
    fn damage_is_the_owners_and_the_rest_the_next_boots() {
        let of = |errno: Errno| Fatal::new(&Directory(errno.into()));
        let damaged = of(Errno::ILSEQ);
        assert_eq!(damaged.remedy(), Remedy::Owner);
        assert!(damaged.to_string().contains("make directory `/data/kubelet`: "), "{damaged}");
        assert!(damaged.to_string().contains("Nothing was erased"), "{damaged}");
        assert_eq!(of(Errno::NOSPC).remedy(), Remedy::Later);
        let etcd =
            Escalation::Damage { service: "etcd".into(), reason: String::from("read `/data/etcd/member/wal/0.wal`") };
        assert_eq!(Fatal::new(&etcd).remedy(), Remedy::Owner);
        for lost in [Escalation::Supervision, Escalation::Service("public-api".into())] {
            assert_eq!(Fatal::new(&lost).remedy(), Remedy::Restart, "nobody can be told");
        }
        assert_eq!(Fatal::panicked().remedy(), Remedy::Restart);
    }
}
