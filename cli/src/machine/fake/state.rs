//! State of a fake: what a test tells it, and what it was told by callers.

use std::collections::{BTreeMap, HashMap};
use std::sync::Mutex;

use api::{ListedMachine, ListedOwner, WorkerVolumes};
use cluster::record::{PublishRecord, RegistryRecord, UserRecord};
use model::{MachineId, RegistryHost};

use crate::machine::dial::Address;

/// State that the fake and each of its connections share.
#[derive(Debug, Default)]
pub(crate) struct FakeState {
    /// Machines that it lists as the cluster's.
    pub(crate) listed: Mutex<Vec<ListedMachine>>,
    /// Owners that it lists as the cluster's.
    pub(crate) owners: Mutex<Vec<ListedOwner>>,
    /// Registries that it was told of.
    pub(crate) registries: Mutex<BTreeMap<RegistryHost, RegistryRecord>>,
    /// Rules of published ports that it was told of.
    pub(crate) published: Mutex<Vec<PublishRecord>>,
    /// Users whom it knows.
    pub(crate) users: Mutex<Vec<UserRecord>>,
    /// Volumes of the cluster's workers.
    pub(crate) workers: Mutex<Vec<WorkerVolumes>>,
    /// The configs that it took while it was blank.
    pub(crate) configs: Mutex<Vec<Vec<u8>>>,
    /// Whether it refuses them all.
    pub(crate) refuses: Mutex<bool>,
    /// Which cluster key it says that its disk takes at its next start.
    pub(crate) takes: Mutex<Option<u32>>,
    /// The methods of which it does not know what became of them when they are called next.
    pub(crate) unknown: Mutex<Vec<&'static str>>,
    /// The directories that it was given; none where it does not wait for its key.
    pub(crate) waits: Mutex<Option<Vec<Vec<u8>>>>,
    /// Methods that were called.
    pub(super) calls: Mutex<Vec<&'static str>>,
    /// Places of the machines to which it carries bytes.
    pub(super) behind: Mutex<HashMap<MachineId, Address>>,
}
