//! The cluster's records, as a coordinator shows them: whom to ask, and who the machines are that joined. What they say is a
//! coordinator's word, and a machine shows its own key all the same.

use std::time::Duration;

use api::ListedMachine;
use model::NodeName;
use tokio::time::timeout;

use crate::clock::Deadline;
use crate::context::open::until_opened;
use crate::context::{Context, Meant, OpenError};
use crate::machine::{Session, ask_certificate};
use crate::store::{CallsAs, Known, OtherMachine, Pins, StoreError};

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
            let (mut session, meant) = self.open().await?;
            if record.calls == CallsAs::User {
                ask_certificate(&mut session).await?;
            }
            return Ok((session, meant));
        }
        let mut why = Vec::new();
        let own = record.machines().iter().enumerate().filter(|(at, _)| record.known(*at) != Known::Joins);
        let own = own.map(|(_, machine)| &machine.name);
        let all = own.chain(record.others().iter().map(|other| &other.name));
        for name in all.filter(|name| Some(*name) != but) {
            let asked = async {
                let (mut session, meant) = self.about(&record.name, name).open().await?;
                match record.calls {
                    CallsAs::Owner => drop(session.machines().await?),
                    // The one call by which a coordinator shows that it knows a user.
                    CallsAs::User => drop(ask_certificate(&mut session).await?),
                }
                Ok((session, meant))
            };
            match timeout(ANSWER, asked).await.unwrap_or(Err(OpenError::Silent(ANSWER))) {
                Ok(opened) => return Ok(opened),
                Err(error) => why.push((name.clone(), error)),
            }
        }
        Err(OpenError::NoCoordinator { cluster: record.name, why })
    }

    /// The same as [`Self::open_coordinator`], asked again until one answers or the deadline passes.
    pub(crate) async fn open_coordinator_until(
        &self,
        deadline: &Deadline,
        waiting: impl FnMut(&OpenError),
    ) -> Result<(Session, Meant), OpenError> {
        until_opened(deadline, waiting, async || self.open_coordinator().await).await
    }

    /// The pins of a machine that joined, by the cluster's records; when this returns they are on the disk.
    pub(super) async fn introduced(&self, meant: &mut Meant) -> Result<Pins, OpenError> {
        let cluster = meant.record.name.clone();
        // This one may be asked for because a coordinator is: the future is of no fixed size.
        let listed = Box::pin(self.about_cluster(&cluster).machines()).await?;
        let named = |name: &NodeName| listed.iter().find(|row| row.is_called(name.as_str())).map(|row| row.id);
        let lock = self.store.lock(&cluster)?;
        *meant = meant.read_again(&self.store)?;
        if meant.record.introduce(named) {
            self.store.save(&meant.record, &lock)?;
        }
        meant.pins().ok_or_else(|| OpenError::NotJoined { called: meant.called(), cluster })
    }

    /// Keeps what was listed, so that whichever of the cluster's machines is left can be reached. A cluster that somebody else
    /// works on is left as it is.
    pub(crate) fn hear(&self, meant: &Meant, listed: &[ListedMachine]) -> Result<(), StoreError> {
        let other = |row: &ListedMachine| {
            let name = NodeName::stored(&row.name).ok()?;
            Some(OtherMachine { name, machine: row.id, addresses: row.addresses.clone() })
        };
        let heard = || listed.iter().filter(|row| row.belongs()).filter_map(other);
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
    use cluster::record::Standing;
    use model::MachineId;

    use super::*;
    use crate::context::home::{self, Two};
    use crate::failure::{Advice, Code};
    use crate::machine::fake::{Answer, Fake};
    use crate::store::ClusterRecord;

    /// Proves: S12
    #[tokio::test]
    async fn a_machine_that_joined_is_the_one_that_a_coordinator_names() {
        let two = home::two().await;
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
        let two = home::two().await;
        two.lists(MachineId([9; 16]), Standing::Member);
        let refused = two.second().open().await.unwrap_err();
        assert_eq!((refused.code(), two.node.calls()), (Code::Refused, vec![]), "{refused}");
    }

    /// A host that once listed the machines reaches each of them, whichever is lost, the first too.
    ///
    /// Proves: S12
    #[tokio::test]
    async fn a_machine_that_was_only_listed_is_reached_without_the_first() {
        let two = home::two().await;
        let Two { context, coordinator, node, .. } = &two;
        let m2 = NodeName::stored("m2").unwrap();
        let mut record = context.cluster().unwrap();
        record.remove(&m2);
        context.keep(&record);
        two.lists(node.machine, Standing::Member);
        let (mut session, meant) = context.open_coordinator().await.unwrap();
        context.hear(&meant, &session.machines().await.unwrap().rows).unwrap();
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

    #[tokio::test]
    async fn a_coordinator_is_found_among_machines_and_a_node_is_none() {
        let two = home::two().await;
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
