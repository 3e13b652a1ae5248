//! Which cluster and which of its machines a command is about, by what this host keeps of them. Asks nobody.

use model::NodeName;

use super::Context;
use crate::store::{ClusterRecord, Known, MachineRecord, Pins, Store, StoreError};

/// A cluster, and the one of its machines that a command is about.
#[derive(Debug)]
pub(crate) struct Meant {
    /// The cluster.
    pub record: ClusterRecord,
    pub(super) who: Who,
}

/// Which of its machines.
#[derive(Debug)]
pub(super) enum Who {
    /// The record's, by its place.
    Known(usize),
    /// A machine that only its cluster knows, by its name there.
    Listed(NodeName, Pins),
}

impl Meant {
    /// Record of the machine on this host, if there is one.
    pub(crate) fn known(&self) -> Option<&MachineRecord> {
        match &self.who {
            Who::Known(at) => self.record.machines().get(*at),
            Who::Listed(..) => None,
        }
    }

    pub(super) fn known_mut(&mut self) -> Option<&mut MachineRecord> {
        match &self.who {
            Who::Known(at) => self.record.machines_mut().get_mut(*at),
            Who::Listed(..) => None,
        }
    }

    /// Name of the machine: here, else in its cluster.
    pub(crate) fn name(&self) -> &NodeName {
        match &self.who {
            Who::Known(at) => &self.record.machines()[*at].name,
            Who::Listed(name, _) => name,
        }
    }

    /// Identity that the machine has to prove; none before first contact.
    pub(crate) fn pins(&self) -> Option<Pins> {
        match &self.who {
            Who::Known(at) => self.record.pins(*at),
            Who::Listed(_, pins) => Some(*pins),
        }
    }

    /// By what its owner knows it.
    pub(super) fn known_by(&self) -> Known {
        match &self.who {
            Who::Known(at) => self.record.known(*at),
            Who::Listed(_, pins) => Known::Pinned(*pins),
        }
    }

    /// Words by which messages call the machine.
    pub(crate) fn called(&self) -> String {
        match &self.who {
            Who::Known(at) => self.record.called(*at),
            Who::Listed(name, _) => format!("machine `{name}` of `{}`", self.record.name),
        }
    }

    /// The same by what is on the disk by now.
    pub(super) fn read_again(&self, store: &Store) -> Result<Self, StoreError> {
        let record = store.load(&self.record.name)?;
        let at = record.meant(Some(self.name()))?;
        Ok(Self { record, who: Who::Known(at) })
    }
}

impl Context {
    /// The cluster and the machine that are meant.
    pub(crate) fn meant(&self) -> Result<Meant, StoreError> {
        let record = self.cluster()?;
        let listed = self.machine.as_ref().and_then(|named| Some((named.clone(), record.other(named)?.1)));
        let who = match (record.meant(self.machine.as_ref()), listed) {
            (Ok(at), _) => Who::Known(at),
            (Err(_), Some((named, pins))) => Who::Listed(named, pins),
            (Err(error), None) => return Err(error.into()),
        };
        Ok(Meant { record, who })
    }
}
