//! Contributions that coordinators send each other after all were switched off: a share of the cold-start key, and
//! where they have found the others. What comes in is bounded here; whether it is of use, `unlock` says.

use std::fmt;

use keys::cold_start::{Contribution, MOST_HOLDERS, Sightings};
use keys::endpoint::Endpoint;
use model::{MachineId, Secret};
use prost::Message as _;
use zeroize::Zeroize;

use crate::field_error::fixed;
use crate::{FieldError, Problem, wire};

impl From<Contribution> for wire::Contribution {
    fn from(given: Contribution) -> Self {
        let found = given.seen.iter().map(|(machine, endpoints)| wire::FoundMachine {
            machine_id: machine.0.to_vec(),
            endpoints: endpoints.iter().map(|endpoint| endpoint.as_str().to_owned()).collect(),
        });
        Self { epoch: given.epoch, share: given.share.expose().to_vec(), found: found.collect() }
    }
}

impl TryFrom<wire::Contribution> for Contribution {
    type Error = FieldError;

    fn try_from(wire: wire::Contribution) -> Result<Self, FieldError> {
        if wire.found.len() > MOST_HOLDERS {
            return Err(FieldError::new("found", Problem::Range));
        }
        let mut seen = Sightings::new();
        for found in &wire.found {
            let endpoints =
                Endpoint::read_all(&found.endpoints).map_err(|_| FieldError::new("endpoints", Problem::Unusable))?;
            seen.insert(MachineId(fixed("machine_id", &found.machine_id)?), endpoints);
        }
        Ok(Self { epoch: wire.epoch, share: Secret::take(&mut fixed("share", &wire.share)?), seen })
    }
}

/// Reads one from its bytes.
///
/// # Errors
/// [`FieldError`] names the field that cannot be read.
pub fn decode_contribution(bytes: &[u8]) -> Result<Contribution, FieldError> {
    let read = wire::Contribution::decode(bytes);
    read.map_err(|_| FieldError::new("contribution", Problem::Unusable))?.try_into()
}

impl fmt::Debug for wire::Contribution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Contribution")
    }
}

impl Drop for wire::Contribution {
    fn drop(&mut self) {
        self.share.zeroize();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn good() -> wire::Contribution {
        let found = vec![wire::FoundMachine { machine_id: vec![1; 16], endpoints: vec!["192.0.2.1:7836".to_owned()] }];
        wire::Contribution { epoch: 4, share: vec![5; 32], found }
    }

    #[test]
    fn a_contribution_crosses_the_wire_and_is_not_printed() {
        let read = decode_contribution(&good().encode_to_vec()).expect("reads");
        assert_eq!((read.epoch, read.share.expose()), (4, &[5; 32]));
        let seen = [(MachineId([1; 16]), vec![Endpoint::read("192.0.2.1:7836").expect("an endpoint")])];
        assert_eq!(read.seen, seen.into());
        let again = wire::Contribution::from(read);
        assert_eq!((again.encode_to_vec(), format!("{again:?}")), (good().encode_to_vec(), "Contribution".to_owned()));
    }

    #[test]
    fn what_makes_no_sense_or_is_too_much_is_refused_by_name() {
        let refused = |edit: fn(&mut wire::Contribution)| {
            let mut wire = good();
            edit(&mut wire);
            Contribution::try_from(wire).map(|_| ()).map_err(|malformed| malformed.to_string())
        };
        assert_eq!(refused(|_| {}), Ok(()));
        assert_eq!(refused(|it| it.share.clear()), Err("field `share` has 0 bytes instead of 32".to_owned()));
        let machine = Err("field `machine_id` has 15 bytes instead of 16".to_owned());
        assert_eq!(refused(|it| it.found[0].machine_id = vec![1; 15]), machine);
        let endpoints = Err("field `endpoints` cannot be used".to_owned());
        assert_eq!(refused(|it| it.found[0].endpoints = vec!["no port".to_owned()]), endpoints);
        let many = |it: &mut wire::Contribution| it.found[0].endpoints = (1..10).map(|n| format!("a:{n}")).collect();
        assert_eq!(refused(many), endpoints);
        let found = Err("field `found` is out of range".to_owned());
        assert_eq!(refused(|it| it.found = vec![it.found[0].clone(); 8]), found);
    }
}
