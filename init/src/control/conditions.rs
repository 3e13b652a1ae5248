//! Conditions, milestones of the boot and the names of what the machine waits for, from the state of its services.

use api::{ConditionName, MilestoneKind, Truth};
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
            for condition in stands_for(&status).iter().filter(|condition| !is_told_elsewhere(**condition)) {
                let (truth, reason) = if ready { (Truth::True, "") } else { (Truth::False, word(&status.state)) };
                board.condition(*condition, truth, reason);
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

const fn word(state: &UnitState) -> &'static str {
    match state {
        UnitState::Waiting(_) => "waits for another service",
        UnitState::Starting => "is starting",
        UnitState::Ready | UnitState::Finished => "",
        UnitState::BackingOff { .. } => "failed, is tried again",
        UnitState::Stopping => "is stopping",
        UnitState::Stopped => "is stopped",
        UnitState::Failed => "failed",
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use model::{BootClass, RootHash};

    use super::*;
    use crate::facts::Facts;
    use crate::machine::kernel::Boot;
    use crate::runtime::child::Children;
    use crate::runtime::services::{Ends, Run, Unit};
    use crate::runtime::tasks;

    /// Proves: S7
    #[tokio::test]
    async fn a_condition_holds_while_its_service_is_ready_on_this_machine() {
        let (facts, _power_on) = Facts::new(Boot {
            profile: api::Profile::Release,
            root_hash: RootHash([1; 32]),
            boot_id: String::from("b"),
            class: BootClass::Direct,
        });
        let (board, reader) = Board::new(facts);
        let unit = Unit::task(names::ETCD, Ends::Never, Run::steady(std::future::pending));
        let services = Services::start(&Children::default(), Vec::new()).expect("a tree");
        services.want(vec![unit]).await.expect("a table");
        let _reporting = tasks::spawn(report(board.clone(), services.clone()));
        let becomes = async |truth, reason: &str| {
            let mut changes = reader.changes();
            let is_so = || {
                reader.read(|_, words| {
                    let condition = words.conditions.iter().find(|one| one.name == ConditionName::EtcdReady.word());
                    condition.is_some_and(|one| one.truth == truth && one.reason == reason)
                })
            };
            let seen = tokio::time::timeout(Duration::from_secs(60), async {
                while !is_so() {
                    changes.next().await.expect("the board is there");
                }
            });
            assert!(seen.await.is_ok(), "{truth:?} {reason:?}");
        };
        becomes(Truth::True, "").await;
        services.want(Vec::new()).await.expect("a table");
        becomes(Truth::False, "this machine no longer runs the service").await;
    }
}
