//! Conditions, milestones of the boot and the names of what the machine waits for, from the state of its services.

use std::collections::{BTreeSet, HashSet};

use api::{ConditionName, MilestoneKind, Truth};
use model::KubernetesRole;
use services::names;
use supervise::{UnitState, UnitStatus};
use tokio::sync::watch;

use super::CERTIFICATES;
use crate::runtime::services::{Services, Snapshot};
use crate::shown::board::{Board, NOT_REPORTED};

/// Reasons why there are no services that a condition is about, by who gives one.
#[derive(Debug, Clone, Default)]
pub(crate) struct Absence {
    /// Roles in Kubernetes whose services cannot run yet.
    pub(crate) cannot_run: Option<(BTreeSet<KubernetesRole>, String)>,
    /// Restore for which the control plane stands still.
    pub(crate) restore: Option<String>,
}

/// Keeps the board in step with the services, as long as there are any, and with the reasons why others are not there.
pub(crate) async fn report(board: Board, services: Services, mut absence: watch::Receiver<Absence>) {
    let mut changes = services.watch();
    // What the services of the last look stand for, and of what it was told why there are none.
    let (mut standing, mut absent) = (Vec::new(), HashSet::new());
    loop {
        let snapshots = changes.borrow_and_update().clone();
        let mut waits = Vec::new();
        let told: Vec<ConditionName> =
            snapshots.iter().flat_map(|snapshot| stands_for(&snapshot.status)).copied().collect();
        for left in standing.extract_if(.., |condition| !told.contains(condition)) {
            board.condition(left, Truth::False, "this machine no longer runs the service");
        }
        standing = told;
        let reasons = absence.borrow_and_update().clone();
        for (condition, role) in OF_ROLES {
            let was_absent = absent.remove(&condition);
            match reasons.of(role) {
                _ if standing.contains(&condition) => {}
                Some(why) => {
                    absent.insert(condition);
                    board.condition(condition, Truth::False, &why);
                }
                None if was_absent => board.condition(condition, Truth::Unknown, NOT_REPORTED),
                None => {}
            }
        }
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
        tokio::select! {
            changed = changes.changed() => if changed.is_err() {
                return; // the services have ended
            },
            Ok(()) = absence.changed() => {}
        }
    }
}

/// Conditions that services of a role are about.
const OF_ROLES: [(ConditionName, KubernetesRole); 2] = [
    (ConditionName::KubernetesApiReady, KubernetesRole::ControlPlane),
    (ConditionName::NodeReady, KubernetesRole::Worker),
];

impl Absence {
    /// Reason why services of this role are not there.
    fn of(&self, role: KubernetesRole) -> Option<String> {
        let restore = self.restore.clone().filter(|_| role == KubernetesRole::ControlPlane);
        let cannot_run = self.cannot_run.as_ref().filter(|(roles, _)| roles.contains(&role));
        restore.or_else(|| cannot_run.map(|(_, why)| format!("Kubernetes cannot run here yet: {why}")))
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
        let absence = watch::Sender::new(Absence::default());
        let _reporting = tasks::spawn(report(board.clone(), services.clone(), absence.subscribe()));
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
        let both = BTreeSet::from([KubernetesRole::ControlPlane, KubernetesRole::Worker]);
        absence.send_modify(|absence| absence.cannot_run = Some((both, String::from("no space"))));
        for name in [ConditionName::KubernetesApiReady, ConditionName::NodeReady] {
            becomes(name, Truth::False, "Kubernetes cannot run here yet: no space").await;
        }
        let worker = Some((BTreeSet::from([KubernetesRole::Worker]), String::new()));
        assert_eq!(Absence { cannot_run: worker, restore: None }.of(KubernetesRole::ControlPlane), None, "no own role");
        absence.send_replace(Absence { restore: Some(String::from("a restore")), cannot_run: None });
        becomes(ConditionName::KubernetesApiReady, Truth::False, "a restore").await;
        becomes(ConditionName::NodeReady, Truth::Unknown, NOT_REPORTED).await;
        services.want(vec![unit(names::APISERVER, Ends::Never)]).await.expect("a table");
        becomes(ConditionName::KubernetesApiReady, Truth::True, "").await;
    }
}
