//! Kubernetes on a machine of a world: which roles run there, and whether the certificates of a worker are.

use member::{EffectOutcome, VpnPlace};
use model::{Assignment, KubernetesRole};

use super::{Who, World, seen};
use crate::cast;
use crate::laws::{self, Breach};

/// Kubernetes that runs on a machine, gone with its boot.
#[derive(Debug, Clone, Default)]
pub(super) struct Kubernetes {
    pub(super) runs: Option<Assignment>,
    /// Whether the certificates of a worker are there.
    certified: bool,
}

impl World {
    /// Runs what these roles want, once a worker's certificates are there.
    pub(super) fn runs_kubernetes(
        &mut self,
        n: u16,
        (assignment, signer): (Assignment, Option<VpnPlace>),
    ) -> Result<Result<EffectOutcome, String>, Breach> {
        let works = assignment.kubernetes().contains(&KubernetesRole::Worker);
        if works && !self.machines[&n].kubernetes.certified {
            let signed = match signer {
                Some((signer, _)) => self.certifies(n, signer)?,
                None if self.machines[&n].disk.keys => Ok(()),
                None => Err(String::from("its keys do not lie here")),
            };
            if let Err(why) = signed {
                return Ok(Err(why));
            }
        }
        let machine = self.machines.get_mut(&n).expect("it lives");
        machine.kubernetes = Kubernetes { runs: Some(assignment), certified: works };
        Ok(Ok(EffectOutcome::Whole))
    }

    /// Has a coordinator sign a worker's certificates.
    pub(super) fn certifies(&mut self, n: u16, signer: model::MachineId) -> Result<Result<(), String>, Breach> {
        let id = cast::id(n);
        if !self.serves(signer) || !self.hears_from(Who::Machine(n), signer) {
            return Ok(Err(String::from("it is not reached")));
        }
        let is_led = self.leads(signer);
        // With a leader it has the copy that a quorum has.
        let copy = if is_led { seen(&self.etcd) } else { self.coordinators[&signer].view.clone() };
        if let Err(why) = (self.parts.certify)(is_led, copy.state(), &id) {
            return Ok(Err(why));
        }
        laws::life::given(n, is_led)?;
        laws::life::certified(n, seen(&self.etcd).state().worker(&id).is_some())?;
        Ok(Ok(()))
    }
}
