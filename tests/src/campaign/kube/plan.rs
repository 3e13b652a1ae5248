//! Events that happen to machines with Kubernetes in a campaign: a list that follows from a seed, and from nothing else. Pure.
//! Two of three control planes are left alone, unless all machines are switched off.

use std::fmt;

use testkit::Random;

use crate::fleet::Off;

/// Machines of a campaign: coordinators, control planes and workers. Of two, which is what two processors without acceleration can
/// carry, the second is a worker alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KubeMachines {
    /// A control plane and a worker.
    Two,
    /// Three control planes.
    Three,
}

impl KubeMachines {
    /// Names of all machines.
    pub(super) const fn names(self) -> &'static [&'static str] {
        match self {
            Self::Two => &["m1", "m2"],
            Self::Three => &["m1", "m2", "m3"],
        }
    }

    /// Whether this machine serves the Kubernetes API.
    pub(super) fn has_control_plane(self, machine: &str) -> bool {
        self == Self::Three || machine == "m1"
    }

    /// Whether nobody acknowledges a change without this machine.
    fn need(self, machine: &str) -> bool {
        self == Self::Two && self.has_control_plane(machine)
    }
}

/// In milliseconds, what the cable of one machine may delay by, and in a hundred frames what is lost on it.
const DELAY: usize = 50;
const LOSS: usize = 4;

/// Something that happens to a cluster with Kubernetes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KubeEvent {
    /// A machine's cable is cut for as long as it takes to make so many changes elsewhere.
    Cut {
        /// Which.
        machine: &'static str,
        /// Changes that are acknowledged meanwhile; none where the machine is needed for them.
        changes: usize,
    },
    /// A machine's cable is slow and loses frames.
    Slow {
        /// Which.
        machine: &'static str,
        /// Each way, in milliseconds.
        delay: usize,
        /// Frames that are lost, of a hundred.
        loss: usize,
        /// Changes that are acknowledged meanwhile.
        changes: usize,
    },
    /// A machine is switched off, and on again.
    Away {
        /// Which.
        machine: &'static str,
        /// How it goes.
        how: Off,
        /// Changes that are acknowledged meanwhile; none where the machine is needed for them.
        changes: usize,
    },
    /// A machine is asked to boot again.
    Reboot {
        /// Which.
        machine: &'static str,
    },
    /// All machines are switched off, and on again.
    AllOff {
        /// How they go.
        how: Off,
    },
    /// A machine's pods are made elsewhere, as far as they can be; then it takes pods again.
    Drained {
        /// Which.
        machine: &'static str,
        /// Changes that are acknowledged meanwhile.
        changes: usize,
    },
    /// A machine serves no Kubernetes API; then it does so again.
    NoControlPlane {
        /// Which.
        machine: &'static str,
        /// Changes that are acknowledged meanwhile.
        changes: usize,
    },
}

/// The events of a seed, without end.
#[derive(Debug, Clone)]
pub struct KubeEvents {
    random: Random,
    machines: KubeMachines,
}

impl KubeEvents {
    /// Events of this seed for these machines.
    #[must_use]
    pub fn of(seed: u64, machines: KubeMachines) -> Self {
        Self { random: Random::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(1)), machines }
    }

    fn off(&mut self) -> Off {
        if self.random.below(3) == 0 { Off::InOrder } else { Off::AtOnce }
    }
}

impl Iterator for KubeEvents {
    type Item = KubeEvent;

    fn next(&mut self) -> Option<KubeEvent> {
        let kind = self.random.below(16);
        let names = self.machines.names();
        let machine = names[self.random.below(names.len())];
        let changes = 3 + self.random.below(10);
        let without = if self.machines.need(machine) { 0 } else { changes };
        Some(match kind {
            0..3 => KubeEvent::Cut { machine, changes: without },
            3..5 => {
                let (delay, loss) = (self.random.below(DELAY + 1), self.random.below(LOSS + 1));
                KubeEvent::Slow { machine, delay, loss, changes }
            }
            5..9 => KubeEvent::Away { machine, how: self.off(), changes: without },
            9 => KubeEvent::Reboot { machine },
            10..12 => KubeEvent::AllOff { how: self.off() },
            12..14 => KubeEvent::Drained { machine, changes },
            _ if self.machines == KubeMachines::Two => KubeEvent::Reboot { machine },
            _ => KubeEvent::NoControlPlane { machine, changes },
        })
    }
}

impl fmt::Display for KubeEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cut { machine, changes } => write!(f, "{machine} is cut off for {changes} changes"),
            Self::Slow { machine, delay, loss, changes } => {
                write!(f, "{machine} has a delay of {delay} ms and loses {loss} % for {changes} changes")
            }
            Self::Away { machine, how, changes } => write!(f, "{machine} is {how} for {changes} changes"),
            Self::Reboot { machine } => write!(f, "{machine} boots again"),
            Self::AllOff { how } => write!(f, "all are {how}, and back"),
            Self::Drained { machine, changes } => write!(f, "{machine} is drained for {changes} changes"),
            Self::NoControlPlane { machine, changes } => {
                write!(f, "{machine} is no control plane for {changes} changes")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Kinds of all events of some seeds, each of which was looked at.
    fn kinds(machines: KubeMachines) -> BTreeSet<String> {
        let of = |seed| KubeEvents::of(seed, machines).take(60).collect::<Vec<_>>();
        let looked_at = |event: &KubeEvent| {
            if let KubeEvent::Cut { machine, changes } | KubeEvent::Away { machine, changes, .. } = event {
                assert_eq!(machines.need(machine), *changes == 0, "{event}");
            }
            format!("{event:?}").split([' ', '{']).next().map(str::to_owned)
        };
        (0..20).for_each(|seed| assert_eq!(of(seed), of(seed)));
        (0..20).flat_map(of).filter_map(|event| looked_at(&event)).collect()
    }

    #[test]
    fn the_events_of_a_seed_repeat_and_wait_for_nobody_who_is_off() {
        let (two, three) = (kinds(KubeMachines::Two), kinds(KubeMachines::Three));
        assert_eq!((two.len(), three.len()), (6, 7), "{two:?} {three:?}");
        assert!(!two.contains("NoControlPlane"), "it would be the last");
    }
}
