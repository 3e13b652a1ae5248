//! Cast of a world: owners, machines, tickets, each made of its number. Decides nothing.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use cluster::record::{
    Admission, Cluster, Endpoints, Generations, MachineRecord, OwnerRecord, Policy, PortUsers, PublishTerms,
    RegistryRecord, Release, Standing, Times, UnixSeconds, UserTerms,
};
use cluster::redeem::{RedeemBody, RedeemRequest};
use cluster::request::FirstRecords;
use keys::endpoint::Endpoint;
use keys::identity::{SigningKey, machine_id};
use keys::recovery::RecoveryPubKey;
use keys::ticket::Ticket;
use model::{
    BootClass, ClusterId, ClusterRole, ColdStart, DiskUuid, Ipv4Prefix, KubernetesRole, Level, MachineId,
    MachinePubKey, MirrorUrl, NodeName, OwnerPubKey, POD_PREFIX, PortProtocol, Prefixes, RegistryHost, RootHash,
    Secret, UplinkPort, UserPubKey, Uuid, VpnPubKey,
};

/// Time that a world's clocks show in the beginning.
pub const BEGIN: UnixSeconds = UnixSeconds(1_800_000_000);
/// Release that every machine of these worlds runs.
pub const RELEASE: Release = Release(1, 2, 3);
/// The cluster of these worlds.
pub const CLUSTER: ClusterId = ClusterId([0xc1; 16]);
/// Bytes that every connection of these worlds exports.
const EXPORTER: [u8; 32] = [0xe0; 32];

/// Terms of user `n`, who has one key and no end.
///
/// # Panics
/// Never.
#[must_use]
pub fn user(n: u8, key: u8) -> UserTerms {
    let name = format!("user-{n}").parse().expect("a name");
    UserTerms { name, keys: [UserPubKey([0x80 | key; 32])].into(), expires: None }
}

/// Makes owner number `n`.
#[must_use]
pub fn owner(n: u8) -> OwnerRecord {
    OwnerRecord { key: OwnerPubKey([n; 32]), recovery: RecoveryPubKey::of(&Secret::take(&mut [0x4e; 32])) }
}

/// Makes registry number `n` with so many mirrors and one certificate that nobody could use.
#[must_use]
pub fn registry(n: u8, mirrors: u8) -> RegistryRecord {
    let host = RegistryHost::read(&format!("r{n}.example.org")).expect("a host");
    let mirror = |n| MirrorUrl::read(&format!("https://m{n}.example.org")).expect("a URL");
    RegistryRecord::new(host, (0..mirrors).map(mirror).collect(), vec![vec![n; 9]]).expect("it says something")
}

/// Makes terms by which port `n` of this machine is open.
#[must_use]
pub fn published(n: u16, machine: u16) -> PublishTerms {
    let port = UplinkPort::new(PortProtocol::Tcp, n).expect("no port is 0");
    let terms = PublishTerms::new([port].into(), PortUsers::Hosts([id(machine)].into()), BTreeSet::new());
    terms.expect("it is no port of Cairn's own")
}

/// Floating address that ends in `n`.
#[must_use]
pub const fn floating(n: u8) -> Ipv4Addr {
    Ipv4Addr::new(192, 0, 2, 200 + n % 50)
}

/// Makes terms by which services of a namespace have port `n` of a floating address, on all workers.
#[must_use]
pub fn published_at(n: u16, address: Ipv4Addr) -> PublishTerms {
    let port = UplinkPort::new(PortProtocol::Tcp, n).expect("no port is 0");
    let users = PortUsers::Services("web".parse().expect("a namespace"), BTreeSet::new());
    let terms = PublishTerms::new([port].into(), users, BTreeSet::new()).expect("it is no port of Cairn's own");
    terms.at(Some(address)).expect("a machine may have it")
}

/// The public key of machine `n`.
#[must_use]
pub fn machine_key(n: u16) -> MachinePubKey {
    MachinePubKey(repeated(n))
}

/// The id of machine `n`.
#[must_use]
pub fn id(n: u16) -> MachineId {
    machine_id(&machine_key(n).0)
}

/// The disk that machine `n` formats.
#[must_use]
pub fn disk(n: u16) -> DiskUuid {
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&repeated(n)[..16]);
    DiskUuid(Uuid(bytes))
}

/// The VPN key of machine `n`.
#[must_use]
pub fn vpn_key(n: u16) -> VpnPubKey {
    VpnPubKey(repeated(n))
}

fn repeated(n: u16) -> [u8; 32] {
    let [high, low] = n.to_be_bytes();
    std::array::from_fn(|at| if at % 2 == 0 { high ^ 0x5a } else { low })
}

/// Place `n` of 250 where a machine may be reached.
///
/// # Panics
/// Beyond the last.
#[must_use]
pub fn endpoint(n: usize) -> Endpoint {
    Endpoint::read(&format!("192.0.2.{n}:7838")).expect("an endpoint")
}

/// Kubernetes roles of a worker.
#[must_use]
pub fn worker() -> BTreeSet<KubernetesRole> {
    [KubernetesRole::Worker].into()
}

/// Ticket `n`, as its holder has it.
#[must_use]
pub fn ticket(n: u16) -> Ticket {
    let mut seed = repeated(n);
    seed[0] = 1;
    Ticket {
        cluster: CLUSTER,
        ca_spki: [0xca; 32],
        coordinator_public_endpoints: vec![Endpoint::read("192.0.2.1:7836").expect("an endpoint")],
        key: SigningKey::from_seed(Secret::take(&mut seed)),
        not_after: 0,
        machine: None,
    }
}

/// Body with which machine `n` redeems `ticket`.
#[must_use]
pub fn body(n: u16, ticket: &Ticket) -> RedeemBody {
    RedeemBody {
        ticket: ticket.public(),
        owner: owner(1).key,
        vpn_key: vpn_key(n),
        disk: disk(n),
        level: Level::Encrypted,
        boot_class: BootClass::Uefi,
        release: RELEASE,
        root_hash: RootHash([0x77; 32]),
        storage_key_name: None,
        endpoints: vec![],
        node_name: None,
    }
}

/// The request of machine `n` with that body, as a coordinator takes it.
///
/// # Panics
/// When the body is one that no machine sends.
#[must_use]
pub fn redeem(n: u16, ticket: &Ticket, body: &RedeemBody) -> RedeemRequest {
    RedeemRequest::verify(&body.sign(ticket, &EXPORTER), machine_key(n), &EXPORTER).expect("its ticket signed it")
}

/// A cluster in this VPN prefix, as machine 1 creates it.
///
/// # Panics
/// When the prefix has no first address.
#[must_use]
pub fn creation(vpn_prefix: Ipv4Prefix) -> FirstRecords {
    let policy = Policy { level: Level::Encrypted, cold_start: ColdStart::Automatic, oldest_release: Release(1, 2, 0) };
    let cluster = Cluster {
        id: CLUSTER,
        prefixes: Prefixes::of(vpn_prefix),
        policy,
        owners: vec![owner(1)],
        recoveries: 0,
        next_address: 2,
        next_pods: 1,
    };
    let machine = MachineRecord {
        key: machine_key(1),
        name: NodeName::derived(id(1)),
        role: ClusterRole::Coordinator,
        kubernetes: worker(),
        standing: Standing::Member,
        vpn_ip: vpn_prefix.nth(1).expect("a first address"),
        pods: Some(Ipv4Prefix::around(POD_PREFIX.address(), 24).expect("a prefix")),
        vpn_key: vpn_key(1),
        disk: disk(1),
        generations: Generations::One(1),
        level: Level::Encrypted,
        boot_class: BootClass::Uefi,
        release: RELEASE,
        root_hash: RootHash([0x77; 32]),
        storage_key_name: None,
        endpoints: Endpoints::default(),
        admission: Admission::Owner(owner(1).key),
        times: Times { admitted: BEGIN, member: Some(BEGIN), removed: None, coordinator: Some(BEGIN) },
        awaits_approval: false,
    };
    FirstRecords { cluster, machine }
}
