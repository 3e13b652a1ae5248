//! Files that this host keeps of a person and their cluster `home`, as the tests of commands have them. Where somebody
//! is to answer, that is a fake machine.

use std::net::Ipv4Addr;

use api::ListedMachine;
use cluster::record::{Generations, Standing};
use model::{ClusterRole, ConfigDigest, FirstContact, MachineId, NodeName};
use pki::PublicKey;

use super::Context;
use crate::machine::fake::{Answer, Fake, Lie};
use crate::screen::Format;
use crate::store::{BootWay, ClusterName, ClusterRecord, MachineRecord, Store, VirtualMachine};

/// A person's store, with the cluster begun in it, and their key. The store is gone when the directory is dropped.
pub(crate) fn begun() -> (tempfile::TempDir, Context, PublicKey) {
    let root = tempfile::tempdir().unwrap();
    let store = Store::at(root.path().join("cairn")).unwrap();
    store.begin(&name(), &store.lock(&name()).unwrap()).unwrap();
    let owner = store.owner_or_new().unwrap().tls_key().unwrap().public().clone();
    let context = Context { store, cluster: None, machine: None, through: None, address: None, format: Format::Table };
    (root, context, owner)
}

/// The same, and the cluster's coordinator, which this host has met, and which answers.
pub(crate) async fn with_a_coordinator() -> (tempfile::TempDir, Context, Fake) {
    let (root, context, owner) = begun();
    let coordinator = Fake::start(1, owner, Answer::NotYet).await;
    let mut record = ClusterRecord::of_config(name(), ConfigDigest([5; 32]));
    record.meet(coordinator.pins());
    record.machines_mut()[0].address = Some(coordinator.address.to_string());
    context.keep(&record);
    (root, context, coordinator)
}

/// The same, and the coordinator lists itself.
pub(crate) async fn with_a_listed_coordinator() -> (tempfile::TempDir, Context, Fake) {
    let (root, context, coordinator) = with_a_coordinator().await;
    let row =
        ListedMachine { id: coordinator.machine, role: ClusterRole::Coordinator, ..member("first", Standing::Member) };
    coordinator.listed.lock().unwrap().push(row);
    (root, context, coordinator)
}

/// A cluster of a coordinator that is met and a node that its owner does not know yet.
pub(crate) struct Two {
    _root: tempfile::TempDir,
    pub(crate) context: Context,
    pub(crate) coordinator: Fake,
    pub(crate) node: Fake,
    pub(crate) owner: PublicKey,
}

/// The cluster of [`Two`], of whose coordinator the first contact is awaited.
pub(crate) async fn two() -> Two {
    const CONFIG: ConfigDigest = ConfigDigest([5; 32]);
    let (root, context, owner) = begun();
    let secret = context.awaits();
    let answer = Answer::Proven { secret, config: CONFIG, lie: Lie::None };
    let coordinator = Fake::start(1, owner.clone(), answer).await;
    let node = coordinator.node(2, owner.clone()).await;
    let mut record = ClusterRecord::of_config(name(), CONFIG);
    record.add(MachineRecord::joining(NodeName::stored("m2").unwrap()));
    for (machine, fake) in record.machines_mut().iter_mut().zip([&coordinator, &node]) {
        machine.address = Some(fake.address.to_string());
    }
    context.keep(&record);
    Two { _root: root, context, coordinator, node, owner }
}

impl Two {
    /// Has the coordinator list a machine of this id, where the node is.
    pub(crate) fn lists(&self, id: MachineId, standing: Standing) {
        let row = ListedMachine { id, addresses: vec![self.node.address.to_string()], ..member("m2", standing) };
        *self.coordinator.listed.lock().unwrap() = vec![row];
    }

    /// Context of a command about the node.
    pub(crate) fn second(&self) -> Context {
        self.context.about(&name(), &NodeName::stored("m2").unwrap())
    }
}

/// A virtual machine that nobody could start.
pub(crate) const fn virtual_machine() -> VirtualMachine {
    VirtualMachine {
        boot: BootWay::Direct,
        cpus: 1,
        memory_mib: 1,
        tpm: false,
        cmdline: String::new(),
        image: String::new(),
        overlays: 0,
    }
}

/// Name of the cluster.
pub(crate) fn name() -> ClusterName {
    "home".parse().unwrap()
}

/// A node that the cluster's records show, with the id of bytes 2.
pub(crate) fn member(name: &str, standing: Standing) -> ListedMachine {
    ListedMachine {
        id: MachineId([2; 16]),
        name: name.to_owned(),
        role: ClusterRole::Node,
        kubernetes: [].into(),
        standing,
        version: "0.1.0".to_owned(),
        vpn_ip: Ipv4Addr::new(10, 118, 0, 2),
        addresses: vec!["192.0.2.1:7836".to_owned()],
        last_seen: None,
        etcd: None,
        silent: false,
        may_hold_keys: false,
        share_due: false,
        awaits_approval: false,
        generations: Generations::One(1),
    }
}

impl Context {
    /// The secret of the cluster's first machine, which is awaited from now on.
    pub(crate) fn awaits(&self) -> FirstContact {
        let lock = self.store.lock(&name()).unwrap();
        self.store.begin_first_machine(&name(), &ClusterRecord::first_name(), &lock).unwrap()
    }

    /// Keeps this of the cluster.
    pub(crate) fn keep(&self, record: &ClusterRecord) {
        self.store.save(record, &self.store.lock(&record.name).unwrap()).unwrap();
    }
}
