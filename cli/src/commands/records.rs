//! The cluster's records, as a coordinator shows them: whom to ask, and who the machines are that joined. What they say is a
//! coordinator's word, and a machine shows its own key all the same.

use std::time::Duration;

use api::ListedMachine;
use cluster::record::Standing;
use model::NodeName;
use tokio::time::timeout;

use super::{Context, Meant, OpenError};
use crate::machine::Session;
use crate::store::{Known, OtherMachine, Pins, StoreError};

/// Longest wait for one of several machines; a machine under emulation answers within seconds.
const ANSWER: Duration = Duration::from_secs(10);

impl Context {
    /// A session with a coordinator: the machine that is named, else the first that shows the cluster's records.
    pub(crate) async fn open_coordinator(&self) -> Result<(Session, Meant), OpenError> {
        self.open_coordinator_but(None).await
    }

    /// The same, where no machine is named, without asking that one.
    pub(crate) async fn open_coordinator_but(&self, but: Option<&NodeName>) -> Result<(Session, Meant), OpenError> {
        let record = self.cluster()?;
        let one = record.machines().len() == 1 && (record.others().is_empty() || self.address.is_some());
        if self.machine.is_some() || self.through.is_some() || one {
            return self.open().await;
        }
        let mut why = Vec::new();
        let own = record.machines().iter().enumerate().filter(|(at, _)| record.known(*at) != Known::Joins);
        let own = own.map(|(_, machine)| &machine.name);
        let all = own.chain(record.others().iter().map(|other| &other.name));
        for name in all.filter(|name| Some(*name) != but) {
            let asked = async {
                let (mut session, meant) = self.about(&record.name, name).open().await?;
                session.machines().await?;
                Ok((session, meant))
            };
            match timeout(ANSWER, asked).await.unwrap_or(Err(OpenError::Silent(ANSWER))) {
                Ok(opened) => return Ok(opened),
                Err(error) => why.push((name.clone(), error)),
            }
        }
        Err(OpenError::NoCoordinator { cluster: record.name, why })
    }

    /// The pins of a machine that joined, by the cluster's records; when this returns they are on the disk.
    pub(super) async fn introduced(&self, meant: &mut Meant) -> Result<Pins, OpenError> {
        let cluster = meant.record.name.clone();
        // This one may be asked for because a coordinator is: the future is of no fixed size.
        let listed = Box::pin(self.about_cluster(&cluster).machines()).await?;
        let named = |name: &NodeName| {
            let belongs = |row: &&ListedMachine| row.name == name.as_str() && row.standing != Standing::Removed;
            listed.iter().find(belongs).map(|row| row.id)
        };
        let lock = self.store.lock(&cluster)?;
        *meant = meant.read_again(&self.store)?;
        if meant.record.introduce(named) {
            self.store.save(&meant.record, &lock)?;
        }
        meant.pins().ok_or_else(|| OpenError::NotJoined { called: meant.called(), cluster })
    }

    /// Keeps what was listed, so that whichever of the cluster's machines is left can be reached. A cluster that somebody else
    /// works on is left as it is.
    pub(super) fn hear(&self, meant: &Meant, listed: &[ListedMachine]) -> Result<(), StoreError> {
        let other = |row: &ListedMachine| {
            let name = NodeName::stored(&row.name).ok()?;
            Some(OtherMachine { name, machine: row.id, addresses: row.addresses.clone() })
        };
        let heard = || listed.iter().filter(|row| row.standing != Standing::Removed).filter_map(other);
        if !meant.record.clone().hear(heard()) {
            return Ok(());
        }
        let lock = match self.store.lock(&meant.record.name) {
            Err(StoreError::Busy { .. }) => return Ok(()),
            lock => lock?,
        };
        let mut record = self.store.load(&meant.record.name)?;
        record.hear(heard());
        self.store.save(&record, &lock)
    }

    /// The cluster's machines, by its records.
    async fn machines(&self) -> Result<Vec<ListedMachine>, OpenError> {
        let (mut session, _) = self.open_coordinator().await?;
        Ok(session.machines().await?.rows)
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use model::{ClusterRole, ConfigDigest, MachineId};
    use pki::PublicKey;

    use super::*;
    use crate::commands::home;
    use crate::failure::{Advice, Code};
    use crate::machine::fake::{Answer, Fake, Lie};
    use crate::screen::Format;
    use crate::store::{ClusterRecord, MachineRecord};

    const CONFIG: ConfigDigest = ConfigDigest([5; 32]);

    /// A cluster of a coordinator that is met and a node that its owner does not know yet.
    struct Two {
        _root: tempfile::TempDir,
        context: Context,
        coordinator: Fake,
        node: Fake,
        owner: PublicKey,
    }

    async fn two() -> Two {
        let (root, context, owner) = home::begun();
        let secret = context.awaits();
        let answer = Answer::Proven { secret, config: CONFIG, lie: Lie::None };
        let coordinator = Fake::start(1, owner.clone(), answer).await;
        let node = coordinator.node(2, owner.clone()).await;
        let mut record = ClusterRecord::of_config(home::name(), CONFIG);
        record.add(MachineRecord::joining(NodeName::stored("m2").unwrap()));
        for (machine, fake) in record.machines_mut().iter_mut().zip([&coordinator, &node]) {
            machine.address = Some(fake.address.to_string());
        }
        context.keep(&record);
        Two { _root: root, context, coordinator, node, owner }
    }

    impl Two {
        fn lists(&self, id: MachineId, standing: Standing) {
            let row = ListedMachine {
                id,
                name: "m2".to_owned(),
                role: ClusterRole::Node,
                kubernetes: [].into(),
                standing,
                version: "0.1.0".to_owned(),
                vpn_ip: Ipv4Addr::new(10, 118, 0, 2),
                addresses: vec![self.node.address.to_string()],
                last_seen: None,
                etcd: None,
                silent: false,
                may_hold_keys: false,
                share_due: false,
                awaits_approval: false,
                generations: cluster::record::Generations::One(1),
            };
            *self.coordinator.listed.lock().unwrap() = vec![row];
        }

        fn second(&self) -> Context {
            self.context.about(&home::name(), &NodeName::stored("m2").unwrap())
        }
    }

    /// Proves: S12
    #[tokio::test]
    async fn a_machine_that_joined_is_the_one_that_a_coordinator_names() {
        let two = two().await;
        let unknown = two.second().open().await.unwrap_err();
        assert!(matches!(unknown, OpenError::NotJoined { .. }) && unknown.may_pass(), "{unknown}");
        two.lists(two.node.machine, Standing::Removed);
        assert!(matches!(two.second().open().await, Err(OpenError::NotJoined { .. })), "it was removed");
        assert_eq!(two.node.calls(), [""; 0]);

        two.lists(two.node.machine, Standing::Admitted);
        two.second().open().await.unwrap().0.services().await.unwrap();
        assert_eq!(two.node.calls(), ["Services"]);
        // From here on no coordinator has to be there.
        let asked = two.coordinator.calls().len();
        two.second().open().await.unwrap().0.services().await.unwrap();
        assert_eq!(two.coordinator.calls().len(), asked);
        // Another machine of the same cluster at its address is not it.
        let other = two.coordinator.node(3, two.owner.clone()).await;
        let refused = Context { address: Some(other.address.clone()), ..two.second() }.open().await.unwrap_err();
        assert_eq!((refused.code(), other.calls()), (Code::Refused, vec![]), "{refused}");
    }

    /// Proves: S12
    #[tokio::test]
    async fn a_machine_that_answers_for_the_named_one_is_sent_nothing() {
        let two = two().await;
        two.lists(MachineId([9; 16]), Standing::Member);
        let refused = two.second().open().await.unwrap_err();
        assert_eq!((refused.code(), two.node.calls()), (Code::Refused, vec![]), "{refused}");
    }

    /// A host that once listed the machines reaches each of them, whichever is lost, the first too.
    ///
    /// Proves: S12
    #[tokio::test]
    async fn a_machine_that_was_only_listed_is_reached_without_the_first() {
        let two = two().await;
        let Two { context, coordinator, node, .. } = &two;
        let m2 = NodeName::stored("m2").unwrap();
        let mut record = context.cluster().unwrap();
        record.remove(&m2);
        context.keep(&record);
        two.lists(node.machine, Standing::Member);
        crate::commands::machine::list::run(context, &mut Vec::new()).await.unwrap();
        let mut record = context.cluster().unwrap();
        assert_eq!(record.machines().len(), 1, "it is still the one that is meant without a name");
        record.machines_mut()[0].address =
            Some(Fake::start(7, two.owner.clone(), Answer::NotYet).await.address.to_string());
        context.keep(&record);

        let asked = coordinator.calls().len();
        let (mut session, meant) = two.second().open().await.unwrap();
        session.services().await.unwrap();
        assert_eq!((meant.name(), node.calls(), coordinator.calls().len()), (&m2, vec!["Services"], asked));
        // It is asked for the cluster's records, too: here it is a node.
        let none = context.open_coordinator().await.unwrap_err().to_string();
        assert!(none.contains("m2: the machine cannot `ListMachines` now"), "{none}");
        // At its address another machine of the cluster is not it; and what was removed is known no longer.
        let mut record = context.cluster().unwrap();
        let other = coordinator.node(3, two.owner.clone()).await;
        let moved = OtherMachine { addresses: vec![other.address.to_string()], ..record.others()[0].clone() };
        assert!(record.hear([moved.clone()]) && !record.hear([moved]));
        context.keep(&record);
        assert_eq!(two.second().open().await.unwrap_err().code(), Code::Refused);
        assert!(record.hear([]) && record.other(&m2).is_none());
    }

    /// Proves: Q6
    #[tokio::test]
    async fn without_a_coordinator_what_this_host_knows_is_listed() {
        let Two { _root, context, node, owner, coordinator } = &two().await;
        let list = async || {
            let mut out = Vec::new();
            let ended = crate::commands::machine::list::run(context, &mut out).await;
            (String::from_utf8(out).unwrap(), ended)
        };
        // Not met yet; then met, with one more machine that only the cluster's list has.
        let m3 = coordinator.node(3, owner.clone()).await;
        let mut record = context.cluster().unwrap();
        record.meet(coordinator.pins());
        let m3 = OtherMachine {
            name: NodeName::stored("m3").unwrap(),
            machine: m3.machine,
            addresses: vec!["127.0.0.1:2".to_owned(), "127.0.0.1:3".to_owned()],
        };
        let (id, listed) = (coordinator.machine, m3.machine);
        record.hear([m3]);
        context.keep(&record);
        let (asked, ended) = list().await;
        ended.unwrap();
        assert!(asked.starts_with("NAME") && asked.contains("LAST SEEN"), "the cluster's own list: {asked}");
        record.machines_mut()[0].address = Some("127.0.0.1:1".to_owned());
        context.keep(&record);
        let (known, ended) = list().await;
        let expected = format!(
            "NAME  KNOWN   MACHINE                           ADDRESSES\n\
             m1    met     {id}  127.0.0.1:1\n\
             m2    joins   -                                 {}\n\
             m3    listed  {listed}  127.0.0.1:2 127.0.0.1:3\n",
            node.address
        );
        assert_eq!(known, expected);
        let mut said = Vec::new();
        let failed = ended.unwrap_err();
        failed.print(&mut said).unwrap();
        let said = String::from_utf8(said).unwrap();
        assert_eq!(failed.code(), Code::Unreachable);
        assert!(said.contains("m1: connect to 127.0.0.1:1") && said.contains("could not be asked"), "{said}");
        let json = Context { format: Format::Json, ..context.about_cluster(&home::name()) };
        let mut out = Vec::new();
        crate::commands::machine::list::run(&json, &mut out).await.unwrap_err();
        let known: serde_json::Value = serde_json::from_slice(&out).unwrap();
        let names: Vec<_> = (0..3).map(|at| known["known_here"][at]["name"].as_str().unwrap()).collect();
        assert_eq!(names, ["m1", "m2", "m3"]);
    }

    #[tokio::test]
    async fn a_coordinator_is_found_among_machines_and_a_node_is_none() {
        let two = two().await;
        two.lists(two.node.machine, Standing::Member);
        let (_, meant) = two.context.open_coordinator().await.unwrap();
        assert_eq!(*meant.name(), ClusterRecord::first_name());
        two.second().open().await.unwrap();
        let Two { context, coordinator, .. } = &two;
        let nowhere = Fake::start(7, two.owner.clone(), Answer::NotYet).await.address;
        let mut record = context.cluster().unwrap();
        record.machines_mut()[0].address = Some(nowhere.to_string());
        context.keep(&record);
        let asked = coordinator.calls().len();
        let none = context.open_coordinator().await.unwrap_err();
        let said = none.to_string();
        assert!(said.starts_with("no coordinator of cluster `home` answers; m1: "), "{said}");
        assert!(said.ends_with("m2: the machine cannot `ListMachines` now: this machine is no coordinator"), "{said}");
        assert_eq!((none.code(), coordinator.calls().len()), (Code::Unreachable, asked));
    }
}
