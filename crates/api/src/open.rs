//! Answers of the public port without authentication: `GetState` and `Claim`.

use model::{MachineId, MachineState};

use crate::field_error::{fixed, known};
use crate::{FieldError, wire};

/// All that anyone may know about a machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublicState {
    /// Semantic version, with `+debug` in the debug profile.
    pub version: String,
    /// The coarse state.
    pub state: MachineState,
    /// Fresh per call.
    pub nonce: [u8; 32],
}

impl From<PublicState> for wire::GetStateResponse {
    fn from(state: PublicState) -> Self {
        Self {
            version: state.version,
            state: wire::MachineState::from(state.state).into(),
            nonce: state.nonce.to_vec(),
        }
    }
}

impl TryFrom<wire::GetStateResponse> for PublicState {
    type Error = FieldError;

    fn try_from(answer: wire::GetStateResponse) -> Result<Self, FieldError> {
        Ok(Self {
            state: known("state", answer.state().known())?,
            nonce: fixed("nonce", &answer.nonce)?,
            version: answer.version,
        })
    }
}

/// A machine's answer at first contact. Nothing of it is believed before `proof` is verified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// Id that the machine claims.
    pub machine_id: MachineId,
    /// The certificate this TLS session was served with, DER.
    pub leaf_certificate: Vec<u8>,
    /// The cluster's CA, DER.
    pub ca_certificate: Vec<u8>,
    /// HMAC over all of it, the TLS session and the enrolment config.
    pub proof: [u8; 32],
}

impl From<Claim> for wire::ClaimResponse {
    fn from(claim: Claim) -> Self {
        Self {
            machine_id: claim.machine_id.0.to_vec(),
            leaf_certificate: claim.leaf_certificate,
            ca_certificate: claim.ca_certificate,
            proof: claim.proof.to_vec(),
        }
    }
}

impl TryFrom<wire::ClaimResponse> for Claim {
    type Error = FieldError;

    fn try_from(answer: wire::ClaimResponse) -> Result<Self, FieldError> {
        Ok(Self {
            machine_id: MachineId(fixed("machine_id", &answer.machine_id)?),
            proof: fixed("proof", &answer.proof)?,
            leaf_certificate: answer.leaf_certificate,
            ca_certificate: answer.ca_certificate,
        })
    }
}

#[cfg(test)]
mod tests {
    use prost_reflect::DescriptorPool;

    use super::*;
    use crate::Problem;

    /// Proves: A8
    #[test]
    fn get_state_has_a_version_a_state_a_nonce_and_no_more() {
        let pool = DescriptorPool::decode(crate::DESCRIPTOR).expect("built beside this test");
        let fields = |message: &str| -> Vec<String> {
            let message = pool.get_message_by_name(message).expect("a message of the service");
            message.fields().map(|field| field.name().to_owned()).collect()
        };
        assert_eq!(fields("cairn.v1.GetStateRequest"), [""; 0]);
        assert_eq!(fields("cairn.v1.GetStateResponse"), ["version", "state", "nonce"]);
        assert_eq!(fields("cairn.v1.ClaimRequest"), [""; 0]);
    }

    #[test]
    fn every_state_crosses_the_wire_but_the_unspecified_one() {
        for &state in MachineState::ALL {
            let sent = PublicState { version: "0.1.0".to_owned(), state, nonce: [7; 32] };
            assert_eq!(PublicState::try_from(wire::GetStateResponse::from(sent.clone())), Ok(sent));
        }
        let newer = wire::GetStateResponse { version: String::new(), state: 99, nonce: vec![0; 32] };
        assert_eq!(PublicState::try_from(newer), Err(FieldError::new("state", Problem::Unknown)));
    }

    #[test]
    fn a_claim_crosses_the_wire_and_short_fields_are_named() {
        let sent = Claim {
            machine_id: MachineId([1; 16]),
            leaf_certificate: vec![2],
            ca_certificate: vec![3],
            proof: [4; 32],
        };
        let mut answer = wire::ClaimResponse::from(sent.clone());
        assert_eq!(Claim::try_from(answer.clone()), Ok(sent));
        answer.proof.pop();
        let short = FieldError::new("proof", Problem::Length { expected: 32, found: 31 });
        assert_eq!(Claim::try_from(answer), Err(short));
        assert_eq!(short.to_string(), "field `proof` has 31 bytes instead of 32");
    }
}
