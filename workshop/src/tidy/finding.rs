//! Findings of the rules. It never decides what is a finding.

/// Broken rule: where, and which.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Finding {
    pub(super) place: String,
    pub(super) rule: String,
}
