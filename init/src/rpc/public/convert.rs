//! From what facts, board and trees say to what the API answers. Pure, but for a cgroup's memory.

use std::time::Duration;

use api::{MachineStatus, Service, ServiceState, UnixMillis};
use model::{Assignment, MachineId};
use supervise::{Ending, RunExit, UnitState};

use crate::facts::Now;
use crate::machine::kernel::Boot;
use crate::runtime::child::Cgroup;
use crate::runtime::clock;
use crate::runtime::services::Snapshot;
use crate::shown::board::{self, Words};

/// When the machine is asked.
#[derive(Debug, Clone, Copy)]
pub(super) struct When {
    pub(super) now: UnixMillis,
    pub(super) uptime: Duration,
}

/// All that is known about the machine; none before it has a state.
pub(super) fn status(boot: &Boot, facts: &Now, words: &Words, when: When) -> Option<MachineStatus> {
    let names = facts.names.as_ref();
    Some(MachineStatus {
        name: names.map(|names| names.node.to_string()).unwrap_or_default(),
        machine_id: names.map_or(MachineId([0; 16]), |names| names.machine),
        cluster_id: names.map(|names| names.cluster),
        version: crate::version::shown(boot.profile, boot.has_gvisor),
        profile: boot.profile,
        root_hash: boot.root_hash,
        boot_id: boot.boot_id.clone(),
        now: when.now,
        uptime: when.uptime,
        state: facts.state()?,
        step: words.step.to_owned(),
        reason: words.reason.clone(),
        state_since: words.state_since,
        level: facts.level,
        protection: facts.protection,
        boot_class: boot.class,
        role: facts.assignment.as_ref().map(Assignment::role),
        kubernetes: facts.assignment.as_ref().map(|it| it.kubernetes().clone()).unwrap_or_default(),
        cold_start: facts.cold_start,
        public_addresses: board::public_addresses(facts),
        vpn_addresses: board::vpn_addresses(facts),
        conditions: words.conditions.clone(),
        waits_for: words.waits_for.clone(),
        last_error: words.last_error.clone(),
        takes_key_generation: facts.takes_key_generation,
    })
}

/// Converts one supervised service's state.
pub(super) fn service(snapshot: Snapshot) -> Service {
    let status = snapshot.status;
    Service {
        name: status.name.to_string(),
        since: clock::unix_millis_at(status.since),
        restarts: u32::try_from(status.restarts).unwrap_or(u32::MAX),
        pid: snapshot.pid.and_then(|pid| u32::try_from(pid.as_raw_nonzero().get()).ok()),
        memory: Cgroup::memory(status.name.as_str()),
        cpu: Cgroup::cpu(status.name.as_str()),
        state: state(&status.state),
        last_exit: status.last.map(exit),
    }
}

const fn state(state: &UnitState) -> ServiceState {
    match state {
        UnitState::Waiting(_) => ServiceState::Waiting,
        UnitState::Starting => ServiceState::Starting,
        UnitState::Ready => ServiceState::Ready,
        UnitState::BackingOff { .. } => ServiceState::BackingOff,
        UnitState::Stopping => ServiceState::Stopping,
        UnitState::Stopped | UnitState::Finished => ServiceState::Stopped,
        UnitState::Failed => ServiceState::Failed,
    }
}

fn exit(ending: Ending) -> api::ServiceExit {
    // Exit codes and signal numbers have eight bits (wait(2)).
    let byte = |value: i32| u8::try_from(value).unwrap_or(u8::MAX);
    match ending {
        Ending::Exit(RunExit::Code(code)) => api::ServiceExit::Code(byte(code)),
        Ending::Exit(RunExit::Signal(signal)) => api::ServiceExit::Signal(byte(signal)),
        Ending::Exit(RunExit::Panicked) => api::ServiceExit::Panic(String::from("see the log of init")),
        Ending::SpawnFailed(errno) => api::ServiceExit::NoRun(format!("not started: error {errno}")),
        Ending::StartDeadline => api::ServiceExit::NoRun(String::from("not ready in time")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_ending_says_how() {
        assert_eq!(exit(Ending::Exit(RunExit::Code(1))), api::ServiceExit::Code(1));
        assert_eq!(exit(Ending::Exit(RunExit::Signal(9))), api::ServiceExit::Signal(9));
        assert_eq!(
            exit(Ending::Exit(RunExit::Code(-1))),
            api::ServiceExit::Code(255),
            "no exit code, shown as the worst"
        );
        assert_eq!(exit(Ending::SpawnFailed(2)), api::ServiceExit::NoRun("not started: error 2".into()));
        assert_eq!(exit(Ending::StartDeadline), api::ServiceExit::NoRun("not ready in time".into()));
    }

    /// An owner has no use for the code, and the person who is to activate the machine stands before it.
    ///
    /// Proves: N1
    #[test]
    fn the_code_on_the_screen_is_in_no_status() {
        let (board, reader, power_on) = shown();
        board.waiting(&power_on.waits(model::WaitState::Blank), "waiting to be activated");
        board.code(Some(String::from("abcd-efgh").into()));
        let when = When { now: UnixMillis(1), uptime: Duration::ZERO };
        let told = reader.read(|now, words| status(reader.board().facts().boot(), now, words, when));
        let told = format!("{:?}", told.expect("it has a state"));
        assert!(told.contains("waiting to be activated") && !told.contains("abcd"), "{told}");
    }

    /// The owner waits for the new key before a restart.
    #[test]
    fn the_status_says_which_key_the_next_start_takes() {
        let (board, reader, power_on) = shown();
        board.waiting(&power_on.waits(model::WaitState::Blank), "because");
        let when = When { now: UnixMillis(1), uptime: Duration::ZERO };
        for takes in [Some(2), None] {
            reader.board().facts().update(|now| now.takes_key_generation = takes);
            let told = reader.read(|now, words| status(reader.board().facts().boot(), now, words, when));
            assert_eq!(told.expect("it has a state").takes_key_generation, takes);
        }
    }

    fn shown() -> (board::Board, board::BoardReader, model::PowerOn) {
        let boot = Boot::fixture();
        let (facts, power_on) = crate::facts::Facts::new(boot);
        let (board, reader) = board::Board::new(facts);
        (board, reader, power_on)
    }

    #[test]
    fn a_done_task_is_stopped_and_one_that_backs_off_is_not_failed() {
        assert_eq!(state(&UnitState::Finished), ServiceState::Stopped);
        assert_eq!(state(&UnitState::Failed), ServiceState::Failed);
        assert_eq!(state(&UnitState::Ready), ServiceState::Ready);
    }
}
