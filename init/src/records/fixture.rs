//! Records as tests have them, over an etcd that nobody runs.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use api::UnixMillis;
use cluster::View;
use cluster::desired::{self, Desired, DesiredShares, EtcdPart};
use cluster::key::Key;
use cluster::members::{Look, Members, Voter};
use cluster::record::{
    Admission, Cluster, Endpoints, Generations, MachineRecord, OwnerRecord, Policy, Release, Standing, Times,
    UnixSeconds, UserRecord,
};
use cluster::state::KeyValue;
use keys::recovery::RecoveryPubKey;
use model::{
    Assignment, BootClass, ClusterId, ClusterRole, ColdStart, DiskUuid, Level, MachinePubKey, NodeName, OwnerPubKey,
    Prefixes, RootHash, Secret, Uuid, VPN_PREFIX, VpnPubKey,
};
use pki::{Authority, AuthorityKind, PrivateKey, UnixTime};

use super::{First, Records, Seen};
use crate::enrolment::{Authorities, Directories};
use crate::facts::Facts;
use crate::machine::kernel::Boot;
use crate::runtime::clock;

/// Facts of a machine that has just started.
pub(super) fn facts() -> Facts {
    let boot = Boot::fixture();
    Facts::new(boot).0
}

pub(crate) fn machine(n: u8, standing: Standing) -> MachineRecord {
    MachineRecord {
        key: MachinePubKey([n; 32]),
        name: NodeName::derived(keys::identity::machine_id(&[n; 32])),
        role: ClusterRole::Node,
        kubernetes: BTreeSet::new(),
        standing,
        vpn_ip: VPN_PREFIX.nth(u32::from(n)).expect("an address"),
        pods: None,
        vpn_key: VpnPubKey([n; 32]),
        disk: DiskUuid(Uuid([n; 16])),
        generations: Generations::One(1),
        level: Level::Encrypted,
        boot_class: BootClass::Uefi,
        release: Release(0, 3, 0),
        root_hash: RootHash([7; 32]),
        storage_key_name: None,
        endpoints: Endpoints { reported: vec![], observed: vec![] },
        admission: Admission::Owner(OwnerPubKey([1; 32])),
        times: Times {
            admitted: UnixSeconds(1),
            member: (standing != Standing::Admitted).then_some(UnixSeconds(2)),
            removed: (standing == Standing::Removed).then_some(UnixSeconds(3)),
            coordinator: Some(UnixSeconds(1)),
        },
        awaits_approval: false,
    }
}

/// The cluster of these machines.
pub(super) fn cluster() -> Cluster {
    Cluster {
        id: ClusterId([1; 16]),
        prefixes: Prefixes::of(VPN_PREFIX),
        policy: Policy { level: Level::Encrypted, cold_start: ColdStart::Automatic, oldest_release: Release(0, 0, 0) },
        owners: vec![OwnerRecord {
            key: OwnerPubKey([1; 32]),
            recovery: RecoveryPubKey::of(&Secret::take(&mut [2; 32])),
        }],
        recoveries: 0,
        next_address: 10,
        next_pods: 0,
    }
}

/// Desired state of machine `n`, the only coordinator, which was told nothing yet.
pub(super) fn desired(n: u8) -> Desired {
    let MachineRecord { name, vpn_ip, .. } = machine(n, Standing::Member);
    let Cluster { prefixes, policy, owners, .. } = cluster();
    let own = desired::KnownCoordinator { name, vpn_ip, votes: true, control_plane: false };
    Desired {
        at: None,
        look: None,
        standing: Standing::Member,
        assignment: Assignment::new(vpn_ip, ClusterRole::Coordinator, [].into(), None).expect("they fit"),
        prefixes,
        coordinators: [(machine(n, Standing::Member).id(), own)].into(),
        etcd: EtcdPart::Voter,
        shares: DesiredShares::default(),
        owners,
        level: policy.level,
        cold_start: policy.cold_start,
    }
}

/// The cluster with these owners.
pub(super) fn owned_by(owners: &[u8]) -> Cluster {
    let owner = |n: &u8| OwnerRecord { key: OwnerPubKey([*n; 32]), ..cluster().owners.remove(0) };
    Cluster { owners: owners.iter().map(owner).collect(), ..cluster() }
}

/// The cluster's record in etcd.
pub(super) fn put_cluster(mod_revision: u64) -> KeyValue {
    KeyValue { key: Key::Cluster.bytes(), value: cluster().encode(), mod_revision }
}

/// A machine's record in etcd.
pub(super) fn put(machine: &MachineRecord, mod_revision: u64) -> KeyValue {
    KeyValue { key: Key::Machine(machine.id()).bytes(), value: machine.encode(), mod_revision }
}

/// Members of etcd: these machines, each a voter that is live.
pub(super) fn members(voters: &[u8]) -> Members {
    let voters = voters.iter().map(|n| (machine(*n, Standing::Member).id(), Voter::Live)).collect();
    Members { voters, ..Members::default() }
}

/// Look at etcd's members behind a revision.
pub(super) const fn look(revision: u64) -> Look {
    Look { revision, applied: revision }
}

/// From now on `records` have these users besides the cluster.
pub(crate) fn use_by(records: &Records, users: &[UserRecord]) {
    let pair = |user: &UserRecord| {
        let key = Key::User(user.terms.name).bytes();
        KeyValue { key, value: user.encode(), mod_revision: 2 }
    };
    let view = View::read(users.iter().map(pair).chain([put_cluster(1)]), 2).expect("our own");
    records.seen.send_replace(Seen { view: Some(view), ..Seen::default() });
}

/// A coordinator that has seen these machines, let in one after the other; `silent` since its etcd told something last, where it tells
/// no more.
pub(crate) fn records(facts: &Facts, machines: &[MachineRecord], silent: Option<Duration>) -> Records {
    let revision = u64::try_from(machines.len()).expect("a few");
    let pairs = machines.iter().zip(1..).map(|(machine, at)| put(machine, at)).chain([put_cluster(1)]);
    let mut view = View::read(pairs, revision).expect("our own");
    view.see(members(&[9]), look(revision));
    let now = clock::unix();
    let authority = |kind| Authority::create(kind, UnixTime::since_unix_epoch(now)).expect("a CA");
    let authorities = Authorities {
        cairn: authority(AuthorityKind::Cairn),
        etcd: authority(AuthorityKind::Etcd),
        kubernetes: authority(AuthorityKind::Kubernetes).into(),
        front: authority(AuthorityKind::Front),
        service_accounts: PrivateKey::generate().expect("a key"),
    };
    let records = Records::of(&Arc::new(authorities), First::fixture(facts), Directories::default()).expect("a client");
    let silent = silent.map(|silent| u64::try_from(silent.as_millis()).expect("a while"));
    let lost = silent.map(|silent| UnixMillis(clock::unix_millis().0 - silent));
    records.seen.send_replace(Seen { view: Some(view), lost, ..Seen::default() });
    records
}
