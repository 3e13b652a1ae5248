//! Records as tests have them: machine `n` has keys, addresses and names made of `n`.

use std::collections::BTreeSet;

use keys::identity::SigningKey;
use keys::recovery::RecoveryPubKey;
use model::{
    BootClass, ClusterId, ClusterRole, ColdStart, DiskUuid, KubernetesRole, Level, MachinePubKey, MirrorUrl, NodeName,
    OwnerPubKey, PortProtocol, Prefixes, PublishId, RegistryHost, RootHash, Secret, TicketPubKey, UplinkPort,
    UserPubKey, Uuid, VPN_PREFIX, VpnPubKey,
};

use crate::record::{
    Admission, Cluster, Endpoints, Generations, MachineRecord, OwnerRecord, Policy, PortUsers, PublishRecord,
    PublishTerms, RegistryRecord, Release, Revocation, Standing, TicketRecord, Times, UnixSeconds, UserRecord,
    UserTerms,
};
use crate::redeem::RedeemBody;

pub(crate) const NOW: UnixSeconds = UnixSeconds(1_800_000_000);
pub(crate) const OWNER: OwnerPubKey = OwnerPubKey([0x0e; 32]);

pub(crate) fn cluster() -> Cluster {
    Cluster {
        id: ClusterId([0xc1; 16]),
        prefixes: Prefixes::of(VPN_PREFIX),
        policy: Policy { level: Level::Encrypted, cold_start: ColdStart::Automatic, oldest_release: Release(0, 2, 0) },
        owners: vec![owner(OWNER)],
        recoveries: 0,
        next_address: 2,
        next_pods: 1,
    }
}

pub(crate) fn owner(key: OwnerPubKey) -> OwnerRecord {
    OwnerRecord { key, recovery: RecoveryPubKey::of(&Secret::take(&mut [0x4e; 32])) }
}

pub(crate) fn key(n: u8) -> MachinePubKey {
    MachinePubKey([n; 32])
}

pub(crate) fn worker() -> BTreeSet<KubernetesRole> {
    [KubernetesRole::Worker].into()
}

pub(crate) fn machine(n: u8) -> MachineRecord {
    let key = key(n);
    MachineRecord {
        key,
        name: NodeName::derived(keys::identity::machine_id(&key.0)),
        role: ClusterRole::Coordinator,
        kubernetes: worker(),
        standing: Standing::Member,
        vpn_ip: VPN_PREFIX.nth(u32::from(n)).expect("an address"),
        pods: Some(model::Ipv4Prefix::new([10, 244, n, 0].into(), 24).expect("a prefix")),
        vpn_key: VpnPubKey([n; 32]),
        disk: DiskUuid(Uuid([n; 16])),
        generations: Generations::One(1),
        level: Level::Encrypted,
        boot_class: BootClass::Uefi,
        release: Release(0, 2, 1),
        root_hash: RootHash([0x77; 32]),
        storage_key_name: Some([0x0b; 34]),
        endpoints: Endpoints {
            reported: vec![keys::endpoint::Endpoint::read("192.0.2.1:7838").expect("an endpoint")],
            observed: vec![],
        },
        admission: Admission::Owner(OWNER),
        times: Times {
            admitted: UnixSeconds(1),
            member: Some(UnixSeconds(2)),
            removed: None,
            coordinator: Some(UnixSeconds(1)),
        },
        awaits_approval: false,
    }
}

pub(crate) fn ticket_key(n: u8) -> SigningKey {
    SigningKey::from_seed(Secret::take(&mut [n; 32]))
}

pub(crate) fn ticket(n: u8) -> TicketRecord {
    TicketRecord {
        key: TicketPubKey(ticket_key(n).public()),
        uses: 1,
        used: 0,
        not_after: UnixSeconds(NOW.0 + 3600),
        role: ClusterRole::Node,
        kubernetes: worker(),
        machine: None,
        node_name: None,
        issued_by: OWNER,
        issued_at: NOW,
        revoked: Revocation::No,
    }
}

pub(crate) fn user(name: &str, key: u8) -> UserRecord {
    let (name, keys) = (name.parse().expect("a name"), [UserPubKey([key; 32])].into());
    let terms = UserTerms { name, keys, expires: Some(UnixSeconds(NOW.0 + 3600)) };
    UserRecord { terms, added_by: OWNER, added_at: NOW }
}

/// Body of the request in which machine `n` redeems ticket `ticket`.
pub(crate) fn body(ticket: u8, n: u8) -> RedeemBody {
    let record = machine(n);
    RedeemBody {
        ticket: TicketPubKey(ticket_key(ticket).public()),
        owner: OWNER,
        vpn_key: record.vpn_key,
        disk: record.disk,
        level: record.level,
        boot_class: record.boot_class,
        release: record.release,
        root_hash: record.root_hash,
        storage_key_name: record.storage_key_name,
        endpoints: vec![],
        node_name: None,
    }
}

pub(crate) fn registry(n: u8, mirrors: u8) -> RegistryRecord {
    let host = RegistryHost::read(&format!("r{n}.example.org")).expect("a host");
    let mirror = |n| MirrorUrl::read(&format!("https://m{n}.example.org")).expect("a URL");
    RegistryRecord::new(host, (0..mirrors).map(mirror).collect(), vec![vec![n; 9]]).expect("a registry")
}

/// Rule number `n`: one port of machine 1.
pub(crate) fn published(n: u8) -> PublishRecord {
    let port = UplinkPort::new(PortProtocol::Tcp, 1000 + u16::from(n)).expect("a port");
    let terms = PublishTerms::new([port].into(), PortUsers::Hosts([machine(1).id()].into()), BTreeSet::new());
    PublishRecord { id: PublishId(n.into()), terms: terms.expect("a rule") }
}
