//! How a machine gets from one state to the next within a boot. Each transition consumes the state it leaves, so one
//! that is not drawn here cannot be written.
//!
//! ```text
//!   PowerOn ─┬─ enrols ─► Enrolling ────┬─ runs ──► Running: until the next boot
//!     ▲      ├─ opens ──► AwaitingKeys ─┤
//!     │      │                          └─ waits ─► NeedsOwner, Failed ─┐
//!     │      └─ waits ──► Blank, Enrolling, AwaitingKeys, NeedsOwner, Failed
//!     └──────────────────────── resumes ────────────────────────────────┘
//!   any of them ─ Halted ─► NeedsOwner, Failed: until the next boot
//! ```
//! A member that reopens its data shows `AwaitingKeys`, never `Enrolling`: it is sealed and its data is not open.

use crate::MachineState;

/// A boot in which nothing is decided yet, or which was given what it waited for and decides again.
///
/// It may be used once:
/// ```compile_fail,E0382
/// let begun = model::PowerOn::new();
/// let enrolling = begun.enrols();
/// let opening = begun.opens(); // moved
/// ```
/// and does not become a member by itself:
/// ```compile_fail,E0599
/// let running = model::PowerOn::new().runs(); // nothing was opened
/// ```
#[derive(Debug)]
#[must_use]
pub struct PowerOn(());

/// On its way to be a member: its steps are being performed.
///
/// ```
/// use model::{MachineState, PowerOn, WaitState};
/// assert_eq!(PowerOn::new().enrols().runs().state(), MachineState::Running);
/// assert_eq!(PowerOn::new().opens().waits(WaitState::Failed).state(), MachineState::Failed);
/// ```
#[derive(Debug)]
#[must_use]
pub struct Underway(MachineState);

/// A member with its data open. What follows is the next boot.
///
/// ```compile_fail,E0599
/// let running = model::PowerOn::new().opens().runs();
/// running.waits(model::WaitState::Failed); // nothing that it is given changes what runs
/// ```
#[derive(Debug)]
pub struct Settled(MachineState);

/// A machine that waits, until it is given what it waits for and decides again.
///
/// ```
/// use model::{MachineState, PowerOn, WaitState};
/// let waiting = PowerOn::new().waits(WaitState::AwaitingKeys);
/// assert_eq!(waiting.resumes().opens().runs().state(), MachineState::Running);
/// ```
/// By itself it becomes nothing else:
/// ```compile_fail,E0599
/// let waiting = model::PowerOn::new().waits(model::WaitState::NeedsOwner);
/// waiting.runs(); // nothing was opened
/// ```
#[derive(Debug)]
#[must_use]
pub struct Waiting(WaitState);

/// A boot that cannot go on, wherever it was: nothing but the next one leads out of it.
///
/// ```
/// use model::{Halted, MachineState};
/// assert_eq!(Halted::failed().state(), MachineState::Failed);
/// assert_eq!(Halted::needs_owner().state(), MachineState::NeedsOwner);
/// ```
#[derive(Debug)]
pub struct Halted(MachineState);

/// The states of a machine that waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum WaitState {
    /// For its first config.
    Blank,
    /// For a cluster to let it in.
    Joining,
    /// For the cluster's half of the data key.
    AwaitingKeys,
    /// For its owner.
    NeedsOwner,
    /// For somebody to mend it.
    Failed,
}

impl PowerOn {
    /// The beginning of a boot.
    #[expect(clippy::new_without_default, reason = "a boot begins once, and not by default")]
    pub const fn new() -> Self {
        Self(())
    }

    /// The machine creates or joins a cluster, or finishes what a cut interrupted.
    pub const fn enrols(self) -> Underway {
        Underway(MachineState::Enrolling)
    }

    /// The machine is a member, and opens its data.
    pub const fn opens(self) -> Underway {
        Underway(MachineState::AwaitingKeys)
    }

    /// The machine can do nothing by itself.
    pub const fn waits(self, state: WaitState) -> Waiting {
        Waiting(state)
    }
}

impl Underway {
    /// State that everybody may know of the machine.
    #[must_use]
    pub const fn state(&self) -> MachineState {
        self.0
    }

    /// The machine's data is open.
    #[must_use]
    pub const fn runs(self) -> Settled {
        Settled(MachineState::Running)
    }

    /// A step failed; `state` says whom the machine waits for.
    pub const fn waits(self, state: WaitState) -> Waiting {
        Waiting(state)
    }
}

impl Halted {
    /// Something does not work. The machine may try again by itself.
    #[must_use]
    pub const fn failed() -> Self {
        Self(MachineState::Failed)
    }

    /// The owner alone can mend the machine.
    #[must_use]
    pub const fn needs_owner() -> Self {
        Self(MachineState::NeedsOwner)
    }

    /// State that everybody may know of the machine.
    #[must_use]
    pub const fn state(&self) -> MachineState {
        self.0
    }
}

impl Waiting {
    /// State that everybody may know of the machine.
    #[must_use]
    pub const fn state(&self) -> MachineState {
        match self.0 {
            WaitState::Blank => MachineState::Blank,
            WaitState::Joining => MachineState::Enrolling,
            WaitState::AwaitingKeys => MachineState::AwaitingKeys,
            WaitState::NeedsOwner => MachineState::NeedsOwner,
            WaitState::Failed => MachineState::Failed,
        }
    }

    /// The machine was given something: nothing is decided any more.
    pub const fn resumes(self) -> PowerOn {
        PowerOn(())
    }
}

impl Settled {
    /// State that everybody may know of the machine.
    #[must_use]
    pub const fn state(&self) -> MachineState {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Proves: S7
    #[test]
    fn every_state_is_reached_and_a_member_never_enrols_again() {
        let reached = [
            PowerOn::new().waits(WaitState::Blank).state(),
            PowerOn::new().enrols().state(),
            PowerOn::new().waits(WaitState::AwaitingKeys).state(),
            PowerOn::new().enrols().runs().state(),
            PowerOn::new().waits(WaitState::NeedsOwner).state(),
            PowerOn::new().waits(WaitState::Failed).state(),
        ];
        assert_eq!(reached, MachineState::ALL);
        assert_eq!(PowerOn::new().waits(WaitState::Joining).state(), MachineState::Enrolling);
        assert_eq!(PowerOn::new().opens().state(), MachineState::AwaitingKeys);
        let failed = PowerOn::new().opens().waits(WaitState::Failed);
        assert_eq!(failed.state(), MachineState::Failed);
        assert_eq!(failed.resumes().opens().runs().state(), MachineState::Running);
    }
}
