//! The boot timeline: what was reached when, in time since the kernel started.

use std::fmt;
use std::time::Duration;

use crate::field_error::known;
use crate::{FieldError, wire};

/// Kind of a milestone, by what reached it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MilestoneKind {
    /// The kernel or stage 0 reached it.
    Kernel,
    /// A step of the boot list.
    Step,
    /// A service became ready.
    Service,
    /// A condition became true for the first time.
    Condition,
}

impl fmt::Display for MilestoneKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Kernel => "kernel",
            Self::Step => "step",
            Self::Service => "service",
            Self::Condition => "condition",
        })
    }
}

/// Entry of a machine's timeline.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Milestone {
    /// The step, service or condition.
    pub name: String,
    /// Since the kernel started.
    pub uptime: Duration,
    /// Kind of the thing that has `name`.
    pub kind: MilestoneKind,
}

impl From<Vec<Milestone>> for wire::TimelineResponse {
    fn from(milestones: Vec<Milestone>) -> Self {
        let milestones = milestones.into_iter().map(|milestone| wire::Milestone {
            name: milestone.name,
            uptime_ms: u64::try_from(milestone.uptime.as_millis()).unwrap_or(u64::MAX),
            kind: wire::MilestoneKind::from(milestone.kind).into(),
        });
        Self { milestones: milestones.collect() }
    }
}

impl TryFrom<wire::TimelineResponse> for Vec<Milestone> {
    type Error = FieldError;

    fn try_from(answer: wire::TimelineResponse) -> Result<Self, FieldError> {
        let milestones = answer.milestones.into_iter().map(|milestone| {
            Ok(Milestone {
                kind: known("kind", milestone.kind().known())?,
                name: milestone.name,
                uptime: Duration::from_millis(milestone.uptime_ms),
            })
        });
        milestones.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_shown_in_words() {
        let kinds = [MilestoneKind::Kernel, MilestoneKind::Step, MilestoneKind::Service, MilestoneKind::Condition];
        assert_eq!(kinds.map(|kind| kind.to_string()), ["kernel", "step", "service", "condition"]);
    }

    #[test]
    fn a_timeline_crosses_the_wire_in_order() {
        let kinds = [MilestoneKind::Kernel, MilestoneKind::Step, MilestoneKind::Service, MilestoneKind::Condition];
        let sent: Vec<Milestone> = (1u64..)
            .zip(kinds)
            .map(|(second, kind)| Milestone { name: kind.to_string(), uptime: Duration::from_secs(second), kind })
            .collect();
        let answer = wire::TimelineResponse::from(sent.clone());
        assert_eq!(Vec::<Milestone>::try_from(answer), Ok(sent));
    }
}
