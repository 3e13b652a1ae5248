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
        let told: Vec<ConditionName> = snapshots.iter().filter_map(|snapshot| stands_for(&snapshot.status)).collect();
        for left in standing.extract_if(.., |condition| !told.contains(condition)) {
            board.condition(left, Truth::False, "this machine no longer runs the service");
        }
        standing = told;
        for Snapshot { status, .. } in snapshots {
            let ready = matches!(status.state, UnitState::Ready | UnitState::Finished);
            if ready {
                board.reached(status.name.as_str(), MilestoneKind::Service);
            }
            if let Some(condition) = stands_for(&status).filter(|_| !says_so_itself(&status)) {
                let (truth, reason) = if ready { (Truth::True, "") } else { (Truth::False, word(&status.state)) };
                board.condition(condition, truth, reason);
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

/// Condition that holds at most as long as a service runs.
fn stands_for(service: &UnitStatus) -> Option<ConditionName> {
    match service.name.as_str() {
        names::ETCD => Some(ConditionName::EtcdReady),
        names::CONTAINERD => Some(ConditionName::ContainerdReady),
        names::APISERVER => Some(ConditionName::KubernetesApiReady),
        names::OBSERVER => Some(ConditionName::NodeReady),
        names::POLICIES => Some(ConditionName::PoliciesHold),
        CERTIFICATES => Some(ConditionName::CertificatesFresh),
        _ => None, // no condition is about the others
    }
}

/// Whether a task sets its condition itself: it holds at most as long as that runs.
fn says_so_itself(service: &UnitStatus) -> bool {
    [names::OBSERVER, names::POLICIES, CERTIFICATES].contains(&service.name.as_str())
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
