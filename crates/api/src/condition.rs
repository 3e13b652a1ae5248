//! Conditions: what holds on a machine, why not, and since when.

use std::fmt;

use crate::field_error::known;
use crate::{FieldError, UnixMillis, wire};

/// The conditions a machine of this version reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ConditionName {
    /// The machine is a member with its data open.
    Running,
    /// etcd answers.
    EtcdReady,
    /// etcd takes writes: no member's backend has reached its quota.
    EtcdHasRoom,
    /// containerd's socket answers.
    ContainerdReady,
    /// The Kubernetes API answers `/readyz`.
    KubernetesApiReady,
    /// Pods have the connections that the policies of their network allow, as a coordinator told them last.
    PoliciesHold,
    /// This boot's kubelet reports the node as Ready.
    NodeReady,
    /// Certificates of services last for a while still; a start of the machine makes new ones.
    CertificatesFresh,
}

impl ConditionName {
    /// All of them, in the order they usually become true.
    pub const ALL: [Self; 8] = [
        Self::Running,
        Self::CertificatesFresh,
        Self::EtcdReady,
        Self::EtcdHasRoom,
        Self::ContainerdReady,
        Self::KubernetesApiReady,
        Self::PoliciesHold,
        Self::NodeReady,
    ];

    /// The name on the wire and on the command line.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Running => "Running",
            Self::EtcdReady => "EtcdReady",
            Self::EtcdHasRoom => "EtcdHasRoom",
            Self::ContainerdReady => "ContainerdReady",
            Self::KubernetesApiReady => "KubernetesApiReady",
            Self::CertificatesFresh => "CertificatesFresh",
            Self::PoliciesHold => "PoliciesHold",
            Self::NodeReady => "NodeReady",
        }
    }

    /// The inverse of [`Self::word`].
    #[must_use]
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|name| name.word() == word)
    }
}

impl fmt::Display for ConditionName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}

/// Whether a condition holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Truth {
    /// The condition holds.
    True,
    /// The condition does not hold.
    False,
    /// Not determined yet in this boot.
    Unknown,
}

impl fmt::Display for Truth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::True => "true",
            Self::False => "false",
            Self::Unknown => "unknown",
        })
    }
}

/// Condition with its present status.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Condition {
    /// A [`ConditionName`], or one that only a newer machine knows.
    pub name: String,
    /// Whether it holds.
    pub truth: Truth,
    /// Why it does not; may be empty.
    pub reason: String,
    /// Since when it is so.
    pub since: UnixMillis,
}

impl From<Condition> for wire::Condition {
    fn from(condition: Condition) -> Self {
        Self {
            name: condition.name,
            status: wire::ConditionStatus::from(condition.truth).into(),
            reason: condition.reason,
            since_unix_ms: condition.since.0,
        }
    }
}

impl TryFrom<wire::Condition> for Condition {
    type Error = FieldError;

    fn try_from(condition: wire::Condition) -> Result<Self, FieldError> {
        Ok(Self {
            truth: known("status", condition.status().known())?,
            name: condition.name,
            reason: condition.reason,
            since: UnixMillis(condition.since_unix_ms),
        })
    }
}

impl From<Vec<Condition>> for wire::ConditionsResponse {
    fn from(conditions: Vec<Condition>) -> Self {
        Self { conditions: conditions.into_iter().map(Into::into).collect() }
    }
}

impl TryFrom<wire::ConditionsResponse> for Vec<Condition> {
    type Error = FieldError;

    fn try_from(answer: wire::ConditionsResponse) -> Result<Self, FieldError> {
        answer.conditions.into_iter().map(Condition::try_from).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_condition_is_shown_in_words_of_the_width_asked_for() {
        assert_eq!(format!("{:>10}|", ConditionName::EtcdReady), " EtcdReady|");
        let words = [Truth::True, Truth::False, Truth::Unknown].map(|truth| format!("{truth:8}|"));
        assert_eq!(words, ["true    |", "false   |", "unknown |"]);
    }

    #[test]
    fn conditions_cross_the_wire_and_keep_names_of_newer_machines() {
        let names = ConditionName::ALL.map(ConditionName::word).into_iter().chain(["FromTheFuture"]);
        let sent: Vec<Condition> = names
            .zip([Truth::True, Truth::False, Truth::Unknown].into_iter().cycle())
            .map(|(name, truth)| Condition {
                name: name.to_owned(),
                truth,
                reason: "because".to_owned(),
                since: UnixMillis(5),
            })
            .collect();
        let answer = wire::ConditionsResponse::from(sent.clone());
        assert_eq!(Vec::<Condition>::try_from(answer), Ok(sent));
        assert_eq!(ConditionName::from_word("NodeReady"), Some(ConditionName::NodeReady));
        assert_eq!(ConditionName::from_word("FromTheFuture"), None);
    }
}
