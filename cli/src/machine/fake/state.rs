//! State of a fake: what a test tells it, and what it was told by callers.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Mutex;

use api::{DefragmentStep, ListedEtcd, ListedMachine, ListedOwner, ListedRule, WorkerVolumes};
use cluster::backends::MemberPart;
use cluster::record::{RegistryRecord, UserRecord};
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
    pub(crate) published: Mutex<Vec<ListedRule>>,
    /// Users whom it knows.
    pub(crate) users: Mutex<Vec<UserRecord>>,
    /// Volumes of the cluster's workers.
    pub(crate) workers: Mutex<Vec<WorkerVolumes>>,
    /// Members of etcd.
    pub(crate) etcd: Mutex<Vec<ListedEtcd>>,
    /// Bytes of the snapshot that it tells, or was given.
    pub(crate) snapshot: Mutex<Vec<u8>>,
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

impl FakeState {
    /// Steps of a defragmentation of these members, or all, the leader last; where it refuses, those of the first one.
    pub(super) fn defragment(&self, asked: &BTreeSet<MachineId>) -> Vec<DefragmentStep> {
        let (mut steps, mut was_raised) = (Vec::new(), false);
        let mut etcd = self.etcd.lock().unwrap();
        for leads in [false, true] {
            let all = etcd.iter_mut().filter(|member| (member.part == MemberPart::Leader) == leads);
            for member in all.filter(|member| asked.is_empty() || asked.contains(&member.machine)) {
                let (name, answer) = (member.name.clone(), member.answer.as_mut().unwrap());
                steps.push(DefragmentStep::Begin { name: name.clone(), bytes: answer.backend.size });
                answer.backend.size = answer.backend.in_use;
                steps.push(DefragmentStep::End { name, bytes: Some(answer.backend.size) });
            }
        }
        for answer in etcd.iter_mut().flat_map(|member| &mut member.answer) {
            was_raised |= !std::mem::take(&mut answer.alarms).is_empty();
        }
        steps.extend(was_raised.then_some(DefragmentStep::Disarmed));
        steps.truncate(if *self.refuses.lock().unwrap() { 2 } else { usize::MAX });
        steps
    }
}
