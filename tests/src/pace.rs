//! How fast machines are on this host, and so how long to wait and how many cases to run at once. Pure but for [`HostPace::here`].

use std::time::Duration;

use qemu::host::{self, Acceleration, Host};

/// Speed of a host that runs guests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HostPace {
    /// How guests are executed.
    pub acceleration: Acceleration,
    /// Processors of the host: so many cases run at once. Three on two took as long in all, and each half as long again.
    pub processors: usize,
}

impl HostPace {
    /// The speed of this host.
    #[must_use]
    pub fn here() -> Self {
        Self { acceleration: Host::look().acceleration, processors: host::processors() }
    }

    /// Time that a step of `seconds` with acceleration may take here. Emulation is about five times slower, and a busy
    /// host three times slower than itself (identical boots differed by that much).
    #[must_use]
    pub fn stretch(self, seconds: u64) -> Duration {
        Duration::from_secs(match self.acceleration {
            Acceleration::Kvm => seconds,
            Acceleration::Tcg => seconds * 15,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn emulation_gets_more_time() {
        let fast = HostPace { acceleration: Acceleration::Kvm, processors: 2 };
        let slow = HostPace { acceleration: Acceleration::Tcg, processors: 2 };
        assert_eq!((fast.stretch(2), slow.stretch(2)), (Duration::from_secs(2), Duration::from_secs(30)));
    }
}
