//! Status of a machine and its services, read once from `cairnctl`'s JSON. A field that is missing, null or empty is an
//! error here, so that no case compares nothing with nothing.

use anyhow::{Context as _, ensure};
use serde::Deserialize;
use serde_json::Value;

/// Status of a member, as `cairnctl machine status` writes it for programs: the part that cases look at.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Status {
    /// The machine's name.
    pub name: String,
    /// The machine's id, in hex digits.
    pub machine_id: String,
    /// The id of the machine's cluster, in hex digits.
    pub cluster_id: String,
    /// The kernel's random id of this boot.
    pub boot_id: String,
    /// `Running`, …
    pub state: String,
    /// `encrypted`, `authenticated (37 % tagged)`, …
    pub level: String,
    /// `tpm` or `none`.
    pub protection: String,
    /// `uefi` or `direct`.
    pub boot_class: String,
    /// How the machine comes back after it was off; none without a share.
    pub cold_start: Option<String>,
    /// Since the kernel started.
    pub uptime_ms: u64,
    /// Address, prefix length and link, as shown to people.
    pub public_addresses: Vec<String>,
    /// Address and prefix length.
    pub vpn_addresses: Vec<String>,
    /// Empty while there was none.
    pub last_error: String,
}

impl Status {
    /// The status of a member.
    ///
    /// # Errors
    /// A field that every member has is not there, or is empty.
    pub(crate) fn read(answer: &Value) -> anyhow::Result<Self> {
        let status = Self::deserialize(answer).with_context(|| format!("read a member's status: {answer:#}"))?;
        let Self { name, machine_id, cluster_id, boot_id, state, level, protection, boot_class, .. } = &status;
        let told = [name, machine_id, cluster_id, boot_id, state, level, protection, boot_class];
        ensure!(told.iter().all(|field| !field.is_empty()), "a member's status has empty fields: {answer:#}");
        Ok(status)
    }

    /// The status of a member that runs; none while it is on its way there.
    pub(crate) fn when_running(answer: &Value) -> anyhow::Result<Option<Self>> {
        if answer["state"] == "Running" { Self::read(answer).map(Some) } else { Ok(None) }
    }

    /// Whether it is of another boot than `before`.
    #[must_use]
    pub fn is_of_another_boot(&self, before: &Self) -> bool {
        self.boot_id != before.boot_id
    }
}

/// A service, as `cairnctl machine services` writes it for programs.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct ServiceStatus {
    /// The service's name.
    pub name: String,
    /// `ready`, `stopped`, `backing off`, …
    pub state: String,
    /// Starts after the first.
    pub restarts: u64,
    /// The service's main process; none while there is none, and for a task of PID 1.
    pub pid: Option<u64>,
    /// How its last run ended, if one has.
    pub last_exit: Option<String>,
}

impl ServiceStatus {
    /// All services of a machine.
    ///
    /// # Errors
    /// What is no list of services.
    pub(crate) fn read_all(answer: &Value) -> anyhow::Result<Vec<Self>> {
        Vec::deserialize(answer).with_context(|| format!("read a list of services: {answer:#}"))
    }

    /// The service's main process.
    ///
    /// # Errors
    /// When there is none.
    pub fn process(&self) -> anyhow::Result<u64> {
        self.pid.with_context(|| format!("no process: {self:?}"))
    }

    /// Whether it is ready in another process than this one.
    #[must_use]
    pub fn is_ready_beside(&self, process: u64) -> bool {
        self.state == "ready" && self.pid.is_some_and(|pid| pid != process)
    }

    /// Whether its last run ended so.
    #[must_use]
    pub fn ended(&self, exit: &str) -> bool {
        self.last_exit.as_deref() == Some(exit)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A member's status, field by field.
    pub(crate) fn member() -> Value {
        serde_json::json!({
            "name": "m-0a", "machine_id": "0a", "cluster_id": "0b", "boot_id": "1-2", "state": "Running",
            "level": "encrypted", "protection": "tpm", "boot_class": "uefi", "cold_start": null, "uptime_ms": 1,
            "public_addresses": [], "vpn_addresses": [], "last_error": "",
        })
    }

    #[test]
    fn a_status_without_a_field_that_members_have_is_an_error() {
        assert!(Status::read(&member()).is_ok());
        for field in ["name", "machine_id", "cluster_id", "boot_id", "state", "level", "protection", "boot_class"] {
            for nothing in [None, Some(Value::Null), Some("".into())] {
                let mut lacking = member();
                let fields = lacking.as_object_mut().expect("an object");
                fields.remove(field);
                fields.extend(nothing.map(|nothing| (field.to_owned(), nothing)));
                assert!(Status::read(&lacking).is_err(), "{lacking}");
            }
        }
    }

    #[test]
    fn a_starting_machine_has_no_status_and_a_running_one_all_of_it() {
        let starting = serde_json::json!({ "state": "AwaitingKeys", "cluster_id": null });
        assert!(Status::when_running(&starting).is_ok_and(|status| status.is_none()));
        assert!(Status::when_running(&member()).is_ok_and(|status| status.is_some()));
        assert!(Status::when_running(&serde_json::json!({ "state": "Running" })).is_err());
    }

    #[test]
    fn a_service_without_a_process_is_neither_the_same_nor_another() {
        let service =
            |pid| ServiceStatus { name: "a".into(), state: "ready".into(), restarts: 0, pid, last_exit: None };
        assert!(service(None).process().is_err());
        assert!(!service(None).is_ready_beside(7) && !service(Some(7)).is_ready_beside(7));
        assert!(service(Some(8)).is_ready_beside(7));
    }
}
