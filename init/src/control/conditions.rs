//! Conditions, milestones of the boot and the names of what the machine waits for, from the state of its services.

use std::collections::BTreeSet;

use api::{ConditionName, MilestoneKind, Truth};
use model::KubernetesRole;
use services::names;
use supervise::{UnitState, UnitStatus};

use super::CERTIFICATES;
use crate::runtime::services::{Services, Snapshot};
use crate::shown::board::Board;

/// Keeps the board in step with the services, as long as there are any.
pub(crate) async fn report(board: Board, services: Services) {
    let mut changes = services.watch();
    // What the services of the last look stand for.
    let mut standing = Vec::new();
    loop {
        let snapshots = changes.borrow_and_update().clone();
        let mut waits = Vec::new();
        let told: Vec<ConditionName> =
            snapshots.iter().flat_map(|snapshot| stands_for(&snapshot.status)).copied().collect();
        for left in standing.extract_if(.., |condition| !told.contains(condition)) {
            board.condition(left, Truth::False, "this machine no longer runs the service");
        }
        standing = told;
        for Snapshot { status, .. } in snapshots {
            let ready = matches!(status.state, UnitState::Ready | UnitState::Finished);
            if ready {
                board.reached(status.name.as_str(), MilestoneKind::Service);
            }
            for condition in stands_for(&status) {
                let truth = match (is_told_elsewhere(*condition), &status.state) {
                    (false, _) if ready => Truth::True,
                    (false, _) => Truth::False,
                    // Who would say so does not run yet. One that nothing is in the way of may have said it since this look.
                    (true, UnitState::Waiting(blockers)) if !blockers.is_empty() => Truth::Unknown,
                    (true, _) => continue,
                };
                board.condition(*condition, truth, &reason(&status.state));
            }
            if !ready && status.is_crash_looping() {
                waits.push(format!("{} (failed {} times)", status.name, status.failures));
            }
        }
        board.waits_for(waits);
        if changes.changed().await.is_err() {
            return; // the services have ended
        }
    }
}

/// Says of the conditions that wait for Kubernetes on a machine of these roles why its services cannot run yet: nobody else does before
/// there are any.
pub(crate) fn kubernetes_cannot_run(board: &Board, roles: &BTreeSet<KubernetesRole>, why: &str) {
    for role in roles {
        let condition = match role {
            KubernetesRole::ControlPlane => ConditionName::KubernetesApiReady,
            KubernetesRole::Worker => ConditionName::NodeReady,
        };
        board.condition(condition, Truth::False, &format!("Kubernetes cannot run here yet: {why}"));
    }
}

/// Conditions that hold at most as long as a service runs.
fn stands_for(service: &UnitStatus) -> &'static [ConditionName] {
    match service.name.as_str() {
        names::ETCD => &[ConditionName::EtcdReady, ConditionName::EtcdHasRoom],
        names::CONTAINERD => &[ConditionName::ContainerdReady],
        names::APISERVER => &[ConditionName::KubernetesApiReady],
        names::OBSERVER => &[ConditionName::NodeReady],
        names::POLICIES => &[ConditionName::PoliciesHold],
        CERTIFICATES => &[ConditionName::CertificatesFresh],
        _ => &[], // no condition is about the others
    }
}

/// Whether it takes more than a service that is ready: a task says so itself, or the member's life, which looks at etcd.
const fn is_told_elsewhere(condition: ConditionName) -> bool {
    match condition {
        ConditionName::NodeReady
        | ConditionName::PoliciesHold
        | ConditionName::CertificatesFresh
        | ConditionName::EtcdHasRoom => true,
        ConditionName::Running
        | ConditionName::EtcdReady
        | ConditionName::ContainerdReady
        | ConditionName::KubernetesApiReady => false,
    }
}

/// Reason why a service is not ready, for people; empty where it is.
fn reason(state: &UnitState) -> String {
    let word = match state {
        UnitState::Waiting(blockers) if !blockers.is_empty() => {
            let names: Vec<&str> = blockers.iter().map(|blocker| blocker.service().as_str()).collect();
            return format!("waits for {}", names.join(", "));
        }
        UnitState::Waiting(_) | UnitState::Starting => "is starting",
        UnitState::Ready | UnitState::Finished => "",
        UnitState::BackingOff { .. } => "failed, is tried again",
        UnitState::Stopping => "is stopping",
        UnitState::Stopped => "is stopped",
        UnitState::Failed => "failed",
    };
    word.to_owned()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use api::Condition;
    use supervise::Need;

    use super::*;
    use crate::facts::Facts;
    use crate::machine::kernel::Boot;
    use crate::runtime::child::Children;
    use crate::runtime::services::{Ends, Run, Unit};
    use crate::runtime::tasks;

    /// Proves: S7
    #[tokio::test]
    async fn a_condition_follows_its_service_and_says_what_that_waits_for() {
        let (facts, _power_on) = Facts::new(Boot::fixture());
        let (board, reader) = Board::new(facts);
        let unit = |name: &str, ends| Unit::task(name, ends, Run::steady(std::future::pending));
        let (etcd, bootstrap) = (unit(names::ETCD, Ends::Never), unit(names::BOOTSTRAP, Ends::WellOrAgain));
        let mut observer = unit(names::OBSERVER, Ends::Never);
        observer.spec.needs = vec![Need::finished(names::BOOTSTRAP)];
        let services = Services::start(&Children::default(), Vec::new()).expect("a tree");
        services.want(vec![etcd, bootstrap, observer]).await.expect("a table");
        let _reporting = tasks::spawn(report(board.clone(), services.clone()));
        let becomes = async |name: ConditionName, truth, reason: &str| {
            let mut changes = reader.changes();
            let is_so = || {
                reader.read(|_, words| {
                    let condition = words.conditions.iter().find(|one| one.name == name.word());
                    condition.is_some_and(|one| one.truth == truth && one.reason == reason)
                })
            };
            let seen = tokio::time::timeout(Duration::from_secs(60), async {
                while !is_so() {
                    changes.next().await.expect("the board is there");
                }
            });
            assert!(seen.await.is_ok(), "{name:?} {truth:?} {reason:?}");
        };
        becomes(ConditionName::EtcdReady, Truth::True, "").await;
        becomes(ConditionName::NodeReady, Truth::Unknown, "waits for kube.bootstrap").await;
        assert_eq!(reason(&UnitState::Waiting(Vec::new())), "is starting", "nothing is in its way");
        services.want(Vec::new()).await.expect("a table");
        becomes(ConditionName::EtcdReady, Truth::False, "this machine no longer runs the service").await;
    }

    /// Proves: S7
    #[test]
    fn why_kubernetes_cannot_run_is_said_of_own_roles_alone() {
        let (facts, _power_on) = Facts::new(Boot::fixture());
        let (board, reader) = Board::new(facts);
        kubernetes_cannot_run(&board, &BTreeSet::from([KubernetesRole::Worker]), "no space");
        let waits = |name: ConditionName| {
            let named = |one: &&Condition| one.name == name.word();
            reader.read(|_, words| words.conditions.iter().find(named).map(|one| (one.truth, one.reason.clone())))
        };
        let said = String::from("Kubernetes cannot run here yet: no space");
        assert_eq!(waits(ConditionName::NodeReady), Some((Truth::False, said)));
        assert_ne!(waits(ConditionName::KubernetesApiReady).map(|(truth, _)| truth), Some(Truth::False));
    }
}
