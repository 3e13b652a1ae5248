//! Files that this host keeps of a person and their cluster `home`, as the tests of commands have them. Where somebody
//! is to answer, that is a fake machine.

use std::net::Ipv4Addr;

use api::ListedMachine;
use cluster::record::{Generations, Standing};
use model::{ClusterRole, ConfigDigest, FirstContact, MachineId};
use pki::PublicKey;

use super::Context;
use crate::machine::fake::{Answer, Fake};
use crate::screen::Format;
use crate::store::{BootWay, ClusterName, ClusterRecord, Store, VirtualMachine};

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
