//! Messages between a blank machine and the person who activates it: the machine's proof, then a config with the
//! caller's. How proofs are made is in `keys::activation`.

use std::fmt;

use keys::activation::Proof;
use prost::Message as _;
use zeroize::Zeroizing;

use crate::field_error::fixed;
use crate::{FieldError, Problem, wire};

/// A config, and what shows that whoever hands it in knows the code on the machine's screen.
#[derive(Clone, PartialEq, Eq)]
pub struct HandedIn {
    /// The signed enrolment config; it holds secrets.
    pub config: Zeroizing<Vec<u8>>,
    /// For this config on this connection.
    pub proof: Proof,
}

/// Reads a blank machine's proof.
///
/// # Errors
/// [`FieldError`] when it is not as long as one.
pub fn proof_of_code(answer: &wire::ProveCodeResponse) -> Result<Proof, FieldError> {
    fixed("proof", &answer.proof)
}

impl fmt::Debug for HandedIn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HandedIn")
    }
}

impl From<HandedIn> for wire::ActivateRequest {
    fn from(HandedIn { mut config, proof }: HandedIn) -> Self {
        Self { config: std::mem::take(&mut *config), proof: proof.to_vec() }
    }
}

/// Prints the name alone: the config holds secrets.
impl fmt::Debug for wire::ActivateRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ActivateRequest")
    }
}

/// Reads what somebody hands in from its bytes.
///
/// # Errors
/// [`FieldError`] names the field; bytes that are no message at all are one without a config.
pub fn decode_handed_in(bytes: &[u8]) -> Result<HandedIn, FieldError> {
    wire::ActivateRequest::decode(bytes).map_err(|_| FieldError::new("config", Problem::Missing))?.try_into()
}

impl TryFrom<wire::ActivateRequest> for HandedIn {
    type Error = FieldError;

    fn try_from(request: wire::ActivateRequest) -> Result<Self, FieldError> {
        let config = Zeroizing::new(request.config);
        Ok(Self { proof: fixed("proof", &request.proof)?, config })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_config_crosses_the_wire_and_a_short_proof_is_named() {
        let sent = HandedIn { config: Zeroizing::new(vec![1, 2]), proof: [3; 32] };
        let mut request = wire::ActivateRequest::from(sent.clone());
        assert_eq!(HandedIn::try_from(request.clone()), Ok(sent));
        request.proof.pop();
        let short = FieldError::new("proof", Problem::Length { expected: 32, found: 31 });
        assert_eq!(HandedIn::try_from(request), Err(short));
        assert_eq!(decode_handed_in(&[0xff]), Err(FieldError::new("config", Problem::Missing)));
        let answer = |length| proof_of_code(&wire::ProveCodeResponse { proof: vec![7; length] });
        assert_eq!((answer(32), answer(0).is_err()), (Ok([7; 32]), true));
    }
}
