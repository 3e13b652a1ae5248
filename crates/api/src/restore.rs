//! A restore of Kubernetes' objects, as its owner is told of it.

use model::NodeName;

use crate::field_error::known;
use crate::{FieldError, Problem, wire};

/// Stage of a restore that the records have ordered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RestoreStage {
    /// Control planes of these machines have not stopped yet.
    Waits(Vec<NodeName>),
    /// Objects are replaced.
    Replaces,
    /// A step failed for this reason, and is tried again.
    Fails(String),
}

impl From<RestoreStage> for wire::RestoreKubernetesResponse {
    fn from(stage: RestoreStage) -> Self {
        let of = |stage: wire::RestoreStage| Self { stage: stage.into(), ..Self::default() };
        match stage {
            RestoreStage::Waits(names) => {
                Self { waits_for: names.iter().map(ToString::to_string).collect(), ..of(wire::RestoreStage::Waits) }
            }
            RestoreStage::Replaces => of(wire::RestoreStage::Replaces),
            RestoreStage::Fails(why) => Self { why, ..of(wire::RestoreStage::Fails) },
        }
    }
}

impl TryFrom<wire::RestoreKubernetesResponse> for RestoreStage {
    type Error = FieldError;

    fn try_from(answer: wire::RestoreKubernetesResponse) -> Result<Self, FieldError> {
        let unusable = |_| FieldError::new("waits_for", Problem::Unusable);
        match answer.stage() {
            wire::RestoreStage::Unspecified => known("stage", None),
            wire::RestoreStage::Waits => {
                let names = answer.waits_for.iter().map(|name| NodeName::stored(name).map_err(unusable));
                Ok(Self::Waits(names.collect::<Result<_, _>>()?))
            }
            wire::RestoreStage::Replaces => Ok(Self::Replaces),
            wire::RestoreStage::Fails => Ok(Self::Fails(answer.why)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Proves: Q4
    #[test]
    fn stages_of_a_restore_cross_the_wire() {
        let names = ["m1", "m2"].map(|name| NodeName::stored(name).expect("a name"));
        for stage in [
            RestoreStage::Waits(names.to_vec()),
            RestoreStage::Waits(vec![]),
            RestoreStage::Replaces,
            RestoreStage::Fails("no leader".to_owned()),
        ] {
            assert_eq!(RestoreStage::try_from(wire::RestoreKubernetesResponse::from(stage.clone())), Ok(stage));
        }
        let of = |answer: wire::RestoreKubernetesResponse| {
            RestoreStage::try_from(answer).map_err(|wrong: FieldError| wrong.field)
        };
        assert_eq!(of(wire::RestoreKubernetesResponse::default()), Err("stage"));
        let waits =
            wire::RestoreKubernetesResponse { stage: 1, waits_for: vec!["M 1".to_owned()], ..Default::default() };
        assert_eq!(of(waits), Err("waits_for"));
    }
}
