//! Kubernetes on the machine: the roles of desired state, of which a control plane runs only beside the machine's own etcd. Whoever
//! coordinates signs its certificates itself; all others have them signed by a coordinator.

use std::time::Instant;

use cluster::desired::Desired;
use model::{Assignment, KubernetesRole};

use crate::effect::Effect;
use crate::role::AGAIN;
use crate::source::VpnPlace;

/// Units of a coordinator, as Kubernetes' hang on them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Beside {
    /// Units of a coordinator run.
    Coordinator,
    /// Units that are about to start.
    Soon,
    /// No unit of a coordinator.
    Nothing,
}

/// Part of Kubernetes that runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Kubernetes {
    runs: Option<Assignment>,
    /// Whether something else may run, since the last effect failed half-way.
    half: bool,
    /// Whether certificates are to be renewed.
    renews: bool,
    /// Tries of having it run.
    tries: usize,
    again: Option<Instant>,
}

impl Kubernetes {
    /// Begins with what runs already, behind a panic of the life.
    pub(crate) const fn new(runs: Option<Assignment>) -> Self {
        Self { runs, half: false, renews: false, tries: 0, again: None }
    }

    /// Whether something of a control plane may run.
    pub(crate) fn may_run_control_plane(&self) -> bool {
        self.half || self.runs.as_ref().is_some_and(runs_control_plane)
    }

    /// Has the certificates of what runs be renewed.
    pub(crate) const fn renew(&mut self) {
        self.renews = true;
    }

    /// Effect that is due, as long as none is under way.
    pub(crate) fn next(
        &mut self,
        desired: &Desired,
        (beside, signers): (Beside, &[VpnPlace]),
        now: Instant,
    ) -> Option<Effect> {
        if self.again.is_some_and(|again| now < again) {
            return None;
        }
        // Where nothing can be done now, an event says when it can.
        self.again = None;
        let assignment = match beside {
            Beside::Coordinator => desired.assignment.clone(),
            Beside::Soon => return None,
            Beside::Nothing => desired.assignment.clone().as_node(),
        };
        let is_same = match &self.runs {
            Some(runs) => runs.kubernetes() == assignment.kubernetes() && runs.pods() == assignment.pods(),
            None => assignment.kubernetes().is_empty(),
        };
        let asks = beside == Beside::Nothing && !assignment.kubernetes().is_empty();
        let signer = if asks { Some(*signers.get(self.tries % signers.len().max(1))?) } else { None };
        (!is_same || self.half || self.renews).then_some(Effect::Kubernetes { assignment, signer })
    }

    /// Takes the end of the effect that was under way.
    pub(crate) fn done(&mut self, assignment: &Assignment, is_done: bool, now: Instant) {
        self.half = !is_done;
        if is_done {
            (self.runs, self.renews, self.again) = (Some(assignment.clone()), false, None);
        } else {
            (self.tries, self.again) = (self.tries.wrapping_add(1), Some(now + AGAIN));
        }
    }

    /// Next deadline, and why.
    pub(crate) fn due(&self) -> Option<(Instant, &'static str)> {
        self.again.map(|again| (again, "Kubernetes' units are started again"))
    }
}

/// Whether a control plane is among the roles.
pub(crate) fn runs_control_plane(assignment: &Assignment) -> bool {
    assignment.kubernetes().contains(&KubernetesRole::ControlPlane)
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::time::Duration;

    use model::ClusterRole;

    use super::*;
    use crate::fixture::{desired, ids, works};

    fn signers() -> Vec<VpnPlace> {
        ids(&[2, 3]).into_iter().zip([2, 3].map(|last| Ipv4Addr::new(10, 118, 0, last))).collect()
    }

    /// Proves: W1
    #[test]
    fn a_control_plane_runs_only_beside_etcd() {
        let (mut part, now) = (Kubernetes::new(None), testkit::origin());
        let both = works(desired(1, ClusterRole::Coordinator, &[2, 3]));
        let signers = signers();
        assert_eq!(part.next(&both, (Beside::Soon, &signers), now), None, "it signs its own, in a moment");
        let whole = Effect::Kubernetes { assignment: both.assignment.clone(), signer: None };
        assert_eq!(part.next(&both, (Beside::Coordinator, &signers), now), Some(whole));
        part.done(&both.assignment, true, now);
        assert_eq!(part.next(&both, (Beside::Coordinator, &signers), now), None);
        let worker = both.assignment.clone().as_node();
        let without = Effect::Kubernetes { assignment: worker.clone(), signer: Some(signers[0]) };
        assert_eq!(part.next(&both, (Beside::Nothing, &signers), now), Some(without), "etcd is gone");
        part.done(&worker, true, now);
        let node = desired(1, ClusterRole::Node, &[2, 3]);
        let nothing = Effect::Kubernetes { assignment: node.assignment.clone(), signer: None };
        assert_eq!(part.next(&node, (Beside::Nothing, &[]), now), Some(nothing), "nobody has to sign for that");
        assert_eq!(Kubernetes::new(None).next(&node, (Beside::Nothing, &signers), now), None);
    }

    /// Proves: W1
    #[test]
    fn a_worker_asks_one_coordinator_after_the_other() {
        let (mut part, mut now) = (Kubernetes::new(None), testkit::origin());
        let worker = works(desired(1, ClusterRole::Node, &[2, 3]));
        let signers = signers();
        assert_eq!(part.next(&worker, (Beside::Nothing, &[]), now), None, "nobody is known");
        for signer in [signers[0], signers[1], signers[0]] {
            let asked = Effect::Kubernetes { assignment: worker.assignment.clone(), signer: Some(signer) };
            assert_eq!(part.next(&worker, (Beside::Nothing, &signers), now), Some(asked));
            part.done(&worker.assignment, false, now);
            assert_eq!(part.next(&worker, (Beside::Nothing, &signers), now), None);
            assert_eq!(part.due().map(|(due, _why)| due), Some(now + AGAIN));
            now += AGAIN + Duration::from_millis(1);
        }
        part.done(&worker.assignment, true, now);
        assert_eq!((part.due(), part.next(&worker, (Beside::Nothing, &signers), now)), (None, None));
    }

    /// Proves: W1
    #[test]
    fn what_a_failed_start_may_have_left_is_stopped() {
        let (mut part, mut now) = (Kubernetes::new(None), testkit::origin());
        let [worker, node] = [works(desired(1, ClusterRole::Node, &[2, 3])), desired(2, ClusterRole::Node, &[2, 3])];
        part.done(&worker.assignment, false, now);
        now += AGAIN;
        let nothing = Effect::Kubernetes { assignment: node.assignment.clone(), signer: None };
        assert_eq!(part.next(&node, (Beside::Nothing, &[]), now), Some(nothing), "its answer may be lost");
        part.done(&node.assignment, true, now);
        assert_eq!(part.next(&node, (Beside::Nothing, &[]), now), None);
    }

    /// Proves: Q9
    #[test]
    fn certificates_are_renewed_until_that_succeeds() {
        let (mut part, mut now) = (Kubernetes::new(None), testkit::origin());
        let worker = works(desired(1, ClusterRole::Node, &[2, 3]));
        let signers = signers();
        part.done(&worker.assignment, true, now);
        assert_eq!(part.next(&worker, (Beside::Nothing, &signers), now), None);
        part.renew();
        assert_eq!(part.next(&worker, (Beside::Nothing, &[]), now), None, "nobody is known");
        for signer in [signers[0], signers[1]] {
            let asked = Effect::Kubernetes { assignment: worker.assignment.clone(), signer: Some(signer) };
            assert_eq!(part.next(&worker, (Beside::Nothing, &signers), now), Some(asked));
            part.done(&worker.assignment, false, now);
            part.renew();
            assert_eq!(part.next(&worker, (Beside::Nothing, &signers), now), None, "not at once");
            now += AGAIN + Duration::from_millis(1);
        }
        part.done(&worker.assignment, true, now);
        assert_eq!(part.next(&worker, (Beside::Nothing, &signers), now), None);
        // A coordinator without a role in Kubernetes has certificates of etcd.
        let coordinator = desired(1, ClusterRole::Coordinator, &[2, 3]);
        let mut part = Kubernetes::new(None);
        part.renew();
        assert_eq!(part.next(&coordinator, (Beside::Soon, &signers), now), None);
        let itself = Effect::Kubernetes { assignment: coordinator.assignment.clone(), signer: None };
        assert_eq!(part.next(&coordinator, (Beside::Coordinator, &signers), now), Some(itself));
    }
}
