//! Kubernetes on a machine of a world: which roles run there, and whether the certificates of a worker are, and for how long.

use member::{EffectOutcome, Event as Hears, VpnPlace};
use model::{Assignment, KubernetesRole};

use super::{Event, Who, World, seen};
use crate::cast;
use crate::laws::{self, Breach};

/// Kubernetes that runs on a machine, gone with its boot.
#[derive(Debug, Clone, Default)]
pub(super) struct Kubernetes {
    pub(super) runs: Option<Assignment>,
    pub(super) certificates: Certificates,
}

/// Certificates of a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Certificates {
    #[default]
    None,
    Fresh,
    /// There, and to be renewed.
    Due,
}

/// Between two looks of all machines at the age of their certificates, in milliseconds.
pub(super) const LOOK: u64 = 4000;

impl World {
    /// Has some certificates be due, and each machine with such ones hear of it.
    pub(super) fn ages(&mut self) -> Result<(), Breach> {
        for n in self.machines.keys().copied().collect::<Vec<_>>() {
            let ages = !self.calm && self.random.below(4) == 0;
            let certificates = &mut self.machines.get_mut(&n).expect("it is one of them").kubernetes.certificates;
            if ages && *certificates == Certificates::Fresh {
                *certificates = Certificates::Due;
            }
            if *certificates == Certificates::Due {
                self.lives(n, Hears::Renew)?;
            }
        }
        self.put(LOOK, Event::Ages);
        Ok(())
    }

    /// Runs what these roles want, once a worker's certificates are there and fresh.
    pub(super) fn runs_kubernetes(
        &mut self,
        n: u16,
        (assignment, signer): (Assignment, Option<VpnPlace>),
    ) -> Result<Result<EffectOutcome, String>, Breach> {
        let works = assignment.kubernetes().contains(&KubernetesRole::Worker);
        if works && self.machines[&n].kubernetes.certificates != Certificates::Fresh {
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
        let certificates = if works { Certificates::Fresh } else { Certificates::None };
        machine.kubernetes = Kubernetes { runs: Some(assignment), certificates };
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
