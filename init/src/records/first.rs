//! Records that a cluster's first machine writes, and the statement that any coordinator makes of itself at each boot. Both are made
//! of its seal, its desired state and its facts; a cluster that was created before there were records gets the same.

use cluster::desired::Desired;
use cluster::record::{Admission, Cluster, Endpoints, Generations, MachineRecord, Policy, Times, UnixSeconds};
use cluster::request::{FirstRecords, Request};
use enrol::member::RecordedFacts;
use keys::endpoint::Endpoint;
use keys::recovery::RecoveryPubKey;
use model::{ClusterId, MachineId, MachinePubKey, NodeName, VpnPubKey};

use crate::enrolment::Member;
use crate::facts::Facts;
use crate::network::mesh;
use crate::runtime::standstills::Standstills;
use crate::version::release;

/// A coordinator, as it knows itself.
#[derive(Debug)]
pub(crate) struct First {
    key: MachinePubKey,
    name: NodeName,
    cluster: ClusterId,
    desired: Desired,
    vpn_key: VpnPubKey,
    recorded: RecordedFacts,
    recovery_key: RecoveryPubKey,
    facts: Facts,
}

impl First {
    /// Takes what a member knows of itself; `facts` say what it runs, and where it may be reached.
    pub(crate) fn of(member: &Member, facts: &Facts) -> Self {
        let identity = &member.identity;
        Self {
            key: MachinePubKey(identity.key.public()),
            name: identity.name.clone(),
            cluster: identity.holder.cluster,
            desired: member.desired.clone(),
            vpn_key: mesh::public(&member.vpn_key),
            recorded: member.recorded.clone(),
            recovery_key: member.recovery_key,
            facts: facts.clone(),
        }
    }

    /// Standstills of the machine, each of which ends the sessions that began before.
    pub(super) const fn standstills(&self) -> &Standstills {
        self.facts.standstills()
    }

    /// A machine that joined, for tests.
    #[cfg(test)]
    pub(super) fn fixture(facts: &Facts) -> Self {
        use model::{DiskUuid, Level, Uuid};
        let key = MachinePubKey([9; 32]);
        Self {
            key,
            name: NodeName::derived(keys::identity::machine_id(&key.0)),
            cluster: ClusterId([1; 16]),
            desired: super::fixture::desired(9),
            vpn_key: VpnPubKey([9; 32]),
            recorded: RecordedFacts {
                disk: DiskUuid(Uuid([9; 16])),
                level: Level::Encrypted,
                key_generation: 1,
                storage_key_name: None,
            },
            recovery_key: super::fixture::cluster().owners[0].recovery,
            facts: facts.clone(),
        }
    }

    /// Public key of the machine, from which its id is derived.
    pub(super) const fn key(&self) -> MachinePubKey {
        self.key
    }

    /// Which machine it is.
    pub(super) fn machine(&self) -> MachineId {
        keys::identity::machine_id(&self.key.0)
    }

    /// Key that the machine's recovery record is sealed to.
    pub(super) const fn recovery_key(&self) -> RecoveryPubKey {
        self.recovery_key
    }

    /// The cluster with its first machine, at Unix time `now`.
    pub(super) fn creation(&self, now: u64) -> FirstRecords {
        let RecordedFacts { disk, level, key_generation, storage_key_name } = self.recorded.clone();
        let Desired { assignment, prefixes, owners, standing, cold_start, .. } = self.desired.clone();
        let (now, boot) = (UnixSeconds(now), self.facts.boot());
        let cluster = Cluster {
            id: self.cluster,
            prefixes,
            policy: Policy { level: self.desired.level, cold_start, oldest_release: release() },
            owners,
            recoveries: 0,
            // Behind the first machine's.
            next_address: 2,
            next_pods: 1,
        };
        let machine = MachineRecord {
            key: self.key,
            name: self.name.clone(),
            role: assignment.role(),
            kubernetes: assignment.kubernetes().clone(),
            standing,
            vpn_ip: assignment.vpn_ip(),
            pods: assignment.pods(),
            vpn_key: self.vpn_key,
            disk,
            generations: Generations::One(key_generation),
            level,
            boot_class: boot.class,
            release: release(),
            root_hash: boot.root_hash,
            storage_key_name,
            endpoints: Endpoints { reported: self.endpoints(), observed: vec![] },
            admission: Admission::Owner(self.desired.owners[0].key),
            times: Times { admitted: now, member: Some(now), removed: None, coordinator: Some(now) },
            awaits_approval: false,
        };
        FirstRecords { cluster, machine }
    }

    /// Statement of the machine about itself, which is reached at these places.
    pub(super) fn announces(&self, endpoints: Vec<Endpoint>) -> Request {
        let generation = self.recorded.key_generation;
        Request::Announce { machine: self.key, release: release(), endpoints, generation }
    }

    /// Places where the machine may be reached now.
    fn endpoints(&self) -> Vec<Endpoint> {
        self.facts.read(|now| mesh::endpoints(&now.links))
    }
}

#[cfg(test)]
mod tests {
    use cluster::View;
    use cluster::key::Key;
    use cluster::state::KeyValue;

    use super::*;
    use crate::records::fixture;

    /// Proves: S5
    #[test]
    fn the_first_records_say_what_the_first_machine_kept() {
        let first = First::fixture(&fixture::facts());
        let FirstRecords { cluster, machine } = first.creation(1_800_000_000);
        let put = |key: Key, value| KeyValue { key: key.bytes(), value, mod_revision: 1 };
        let records = [put(Key::Cluster, cluster.encode()), put(Key::Machine(machine.id()), machine.encode())];
        let mut view = View::read(records, 1).expect("our own");
        view.see(fixture::members(&[9]), fixture::look(1));
        let told = view.state().desired(&machine.id()).expect("it belongs");
        let kept = Desired { shares: told.shares.clone(), ..fixture::desired(9) };
        assert!(told.says_the_same(&kept), "{told:?}");
    }
}
