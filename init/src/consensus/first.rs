//! What a cluster's first machine writes into its records, and what any coordinator says of itself at each boot. Made of its
//! seal, its assignment and its facts; a cluster that was created before there were records gets the same.

use cluster::record::{
    Admission, Cluster, Endpoints, Generations, Machine, Owner, Policy, Standing, Times, UnixSeconds,
};
use cluster::request::{Creation, Request};
use enrol::member::Recorded;
use keys::endpoint::Endpoint;
use model::{
    Assignment, ClusterId, ColdStart, Ipv4Prefix, MachineId, MachinePubKey, NodeName, OwnerPubKey, POD_PREFIX,
    VpnPubKey,
};
use tokio::sync::watch;

use crate::enrolment::Member;
use crate::facts::{Facts, Now};
use crate::network::mesh;
use crate::runtime::standstills::Standstills;
use crate::version::release;

/// A coordinator, as it knows itself.
#[derive(Debug)]
pub(crate) struct First {
    key: MachinePubKey,
    name: NodeName,
    cluster: ClusterId,
    owner: OwnerPubKey,
    assignment: Assignment,
    vpn_key: VpnPubKey,
    vpn_prefix: Ipv4Prefix,
    cold_start: ColdStart,
    recorded: Recorded,
    facts: Facts,
    /// It created the cluster; nobody else writes the first records.
    founds: bool,
}

impl First {
    /// Of a member; `facts` say what it runs, and where it may be reached.
    pub(crate) fn of(member: &Member, facts: &Facts) -> Self {
        let identity = &member.identity;
        Self {
            key: MachinePubKey(identity.key.public()),
            name: identity.name.clone(),
            cluster: identity.holder.cluster,
            owner: OwnerPubKey(member.owners[0]),
            assignment: member.assignment.clone(),
            vpn_key: mesh::public(&member.vpn_key),
            vpn_prefix: member.vpn_prefix,
            cold_start: member.cold_start,
            recorded: member.recorded.clone(),
            facts: facts.clone(),
            founds: !member.joined,
        }
    }

    /// What ends the sessions that it begins.
    pub(super) const fn standstills(&self) -> &Standstills {
        self.facts.standstills()
    }

    /// A machine that joined, for tests.
    #[cfg(test)]
    pub(super) fn fixture(facts: &Facts) -> Self {
        use model::{ClusterRole, DiskUuid, Level, Secret, Uuid, VPN_PREFIX};
        let (key, vpn_ip) = (MachinePubKey([9; 32]), VPN_PREFIX.nth(9).expect("an address"));
        Self {
            key,
            name: NodeName::derived(keys::identity::machine_id(&key.0)),
            cluster: ClusterId([1; 16]),
            owner: OwnerPubKey([1; 32]),
            assignment: Assignment::new(vpn_ip, ClusterRole::Coordinator, [].into(), None).expect("they fit"),
            vpn_key: VpnPubKey([9; 32]),
            vpn_prefix: VPN_PREFIX,
            cold_start: ColdStart::Automatic,
            recorded: Recorded {
                owner_recovery: keys::recovery::RecoveryPubKey::of(&Secret::take(&mut [2; 32])),
                disk: DiskUuid(Uuid([9; 16])),
                level: Level::Encrypted,
                key_generation: 1,
                storage_key_name: None,
            },
            facts: facts.clone(),
            founds: false,
        }
    }

    /// The machine's.
    pub(super) const fn key(&self) -> MachinePubKey {
        self.key
    }

    /// Which machine it is.
    pub(super) fn machine(&self) -> MachineId {
        keys::identity::machine_id(&self.key.0)
    }

    /// Whether it is the one that created the cluster.
    pub(super) const fn founds(&self) -> bool {
        self.founds
    }

    /// The cluster with its first machine, at Unix time `now`.
    pub(super) fn creation(&self, now: u64) -> Creation {
        let Recorded { owner_recovery, disk, level, key_generation, storage_key_name } = self.recorded.clone();
        let (now, boot) = (UnixSeconds(now), self.facts.boot());
        let cluster = Cluster {
            id: self.cluster,
            vpn_prefix: self.vpn_prefix,
            pods_prefix: POD_PREFIX,
            policy: Policy { level, cold_start: self.cold_start, oldest_release: release() },
            owners: vec![Owner { key: self.owner, recovery: owner_recovery }],
            recoveries: 0,
            // Behind the first machine's.
            next_address: 2,
            next_pods: 1,
        };
        let machine = Machine {
            key: self.key,
            name: self.name.clone(),
            role: self.assignment.role(),
            kubernetes: self.assignment.kubernetes().clone(),
            standing: Standing::Member,
            vpn_ip: self.assignment.vpn_ip(),
            pods: self.assignment.pods(),
            vpn_key: self.vpn_key,
            disk,
            generations: Generations::One(key_generation),
            level,
            boot_class: boot.class,
            release: release(),
            root_hash: boot.root_hash,
            storage_key_name,
            endpoints: Endpoints { reported: self.endpoints(), observed: vec![] },
            admission: Admission::Owner(self.owner),
            times: Times { admitted: now, member: Some(now), removed: None, coordinator: Some(now) },
            awaits_approval: false,
        };
        Creation { cluster, machine }
    }

    /// What the machine says of itself.
    pub(super) fn announces(&self) -> Request {
        let (endpoints, generation) = (self.endpoints(), self.recorded.key_generation);
        Request::Announce { machine: self.key, release: release(), endpoints, generation }
    }

    /// Where it may be reached now.
    pub(super) fn endpoints(&self) -> Vec<Endpoint> {
        self.facts.read(|now| mesh::endpoints(&now.links))
    }

    /// Tells when that may have changed.
    /// Its disk takes this cluster key at the next start.
    pub(super) fn takes_key(&self, generation: Option<u32>) {
        self.facts.update(|now| now.takes_key_generation = generation);
    }

    pub(super) fn facts(&self) -> watch::Receiver<Now> {
        self.facts.watch()
    }
}
