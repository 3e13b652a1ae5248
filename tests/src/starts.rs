//! From what a case starts: from nothing, or from a copy of a fleet that another case has made and saved in this run. Pure.
//!
//! ```text
//!   maker: Making(F) ─ cold ─► machines ─► saved ─┬─► case: From(F)   a copy of its own, which it may break
//!                                                 └─► case: From(F)   beside it
//! ```

use std::collections::BTreeSet;
use std::fmt;

use crate::Case;

/// A fleet of the table: which machines, and why just these.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum FleetKind {
    /// A coordinator of the release image on a site, without Kubernetes. Others join it.
    Lone,
    /// Three coordinators of the release image. Fewest that lose one and go on: etcd, shares and recovery are shown on them.
    Three,
    /// Three coordinators and two nodes of the release image, with short leases. What befalls a cluster is shown on them.
    Five,
    /// A machine of the release image with Kubernetes and a pod that runs. It boots by UEFI from a whole disk, as
    /// hardware does.
    Kubernetes,
    /// Two machines of the release image with a pod each, the first of which serves the Kubernetes API.
    Workers,
    /// Three machines of the release image as `cairnctl cluster` makes them. What their owner does by its commands is shown on them.
    Owned,
    /// A member of the release image without Kubernetes. Strangers come to its API.
    Member,
    /// The same of the debug image. Faults are injected into it.
    Victim,
    /// The same behind six networks. Strangers come from several addresses.
    Besieged,
    /// A coordinator and a node of the debug image, each at a cable that is looked at. The mesh between them is shown on them.
    Duo,
}

/// From what a case starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Starts {
    /// From nothing: it boots what it wants.
    Cold,
    /// From nothing, and what it makes is saved ([`crate::Context::save`]).
    Making(FleetKind),
    /// From a copy ([`crate::Context::copy`]).
    From(FleetKind),
}

impl FleetKind {
    /// Name of its folder.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Lone => "lone",
            Self::Three => "three",
            Self::Five => "five",
            Self::Kubernetes => "kubernetes",
            Self::Workers => "workers",
            Self::Owned => "owned",
            Self::Member => "member",
            Self::Victim => "victim",
            Self::Besieged => "besieged",
            Self::Duo => "duo",
        }
    }
}

impl fmt::Display for FleetKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}

/// The cases that are wanted, and those that make what these start from; by their places in the table.
pub(crate) fn with_makers(cases: &[Case], is_wanted: impl Fn(&Case) -> bool) -> Vec<usize> {
    let wanted = || cases.iter().filter(|case| is_wanted(case));
    let fleets: BTreeSet<FleetKind> = wanted()
        .filter_map(|case| match case.starts {
            Starts::From(fleet) => Some(fleet),
            Starts::Cold | Starts::Making(_) => None,
        })
        .collect();
    let makes = |case: &Case| matches!(case.starts, Starts::Making(fleet) if fleets.contains(&fleet));
    (0..cases.len()).filter(|place| is_wanted(&cases[*place]) || makes(&cases[*place])).collect()
}

/// The first fleet that is not made by exactly one case.
pub(crate) fn without_one_maker(cases: &[Case]) -> Option<FleetKind> {
    let used = cases.iter().filter_map(|case| match case.starts {
        Starts::From(fleet) | Starts::Making(fleet) => Some(fleet),
        Starts::Cold => None,
    });
    let makers = |fleet| cases.iter().filter(|case| case.starts == Starts::Making(fleet)).count();
    used.into_iter().find(|fleet| makers(*fleet) != 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn case(name: &'static str, starts: Starts) -> Case {
        Case { name, proves: &[], needs: &[], starts, run: |_| Ok(()) }
    }

    const TABLE: [Case; 5] = [
        case("cold", Starts::Cold),
        case("three", Starts::Making(FleetKind::Three)),
        case("of three", Starts::From(FleetKind::Three)),
        case("victim", Starts::Making(FleetKind::Victim)),
        case("of a victim", Starts::From(FleetKind::Victim)),
    ];

    /// Proves: S9 S13
    #[test]
    fn a_case_that_is_wanted_brings_its_maker() {
        let places = |wanted: &'static str| with_makers(&TABLE, |case| case.name.contains(wanted));
        assert_eq!(places("cold"), [0]);
        assert_eq!(places("of three"), [1, 2]);
        assert_eq!(places("of"), [1, 2, 3, 4]);
        assert_eq!(places("victim"), [3, 4]);
        assert_eq!(places(""), [0, 1, 2, 3, 4]);
    }

    #[test]
    fn each_fleet_has_one_maker() {
        assert_eq!(without_one_maker(&TABLE), None);
        assert_eq!(without_one_maker(&TABLE[2..]), Some(FleetKind::Three), "none");
        let two = [TABLE[1], case("again", Starts::Making(FleetKind::Three))];
        assert_eq!(without_one_maker(&two), Some(FleetKind::Three));
    }
}
