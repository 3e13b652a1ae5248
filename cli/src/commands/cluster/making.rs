//! Making of a cluster's virtual machines: files, config, line in the record; all of it taken away again where a step
//! fails before the machine runs. Waits for no machine, and asks none.
//!
//! ```text
//!   begin (lock) ► files and config of each ► record ► network ► start
//! ```

use std::path::{Path, PathBuf};

use aws_lc_rs::rand;
use keys::ticket::Ticket;
use model::NodeName;

use super::reach::Reach;
use super::start;
use crate::enrolment::{self, Becomes, Choices, Founding, Wanted};
use crate::failure::Failure;
use crate::screen::Progress;
use crate::store::{ClusterName, ClusterRecord, Locked, MachineRecord, Store, VirtualMachine, VirtualNetwork};
use crate::virtual_machine;
use crate::virtual_network::TakenPort;

/// Parts that each machine is made of.
#[derive(Debug)]
pub(super) struct Plan<'a> {
    /// The files of a build.
    pub image: PathBuf,
    /// How it is built.
    pub machine: VirtualMachine,
    /// The size of its disk.
    pub disk_bytes: u64,
    /// Whether what it sends and receives is kept.
    pub capture: bool,
    /// Choices that its config states.
    pub choices: &'a Choices,
}

/// Machines of a cluster that are made under its lock.
#[derive(Debug)]
pub(super) struct Making<'a> {
    pub name: &'a ClusterName,
    pub plan: &'a Plan<'a>,
    pub store: &'a Store,
    pub lock: &'a Locked,
}

impl Making<'_> {
    /// A cluster whose first machine starts, or nothing.
    pub(super) fn first(
        &self,
        machine: NodeName,
        (founding, reach): (&Founding, &Reach),
        progress: &mut Progress,
    ) -> Result<(), Failure> {
        let network = reach.network(seed()?)?;
        self.store.free(self.name, self.lock)?;
        take_leftovers(self.name, self.store, self.lock)?;
        let made = self.founded(machine, founding, network, progress);
        made.map_err(|failure| take_back(self.name, self.store, self.lock, failure))
    }

    fn founded(
        &self,
        machine: NodeName,
        founding: &Founding,
        network: VirtualNetwork,
        progress: &mut Progress,
    ) -> Result<(), Failure> {
        let Self { name, plan, store, lock } = self;
        store.begin(name, lock)?;
        let secret = store.begin_first_machine(name, &machine, lock)?;
        let config = self.disk(&machine, Becomes::First(founding, secret), progress)?;
        let mut record = ClusterRecord::of_config((*name).clone(), config);
        let first = &mut record.machines_mut()[0];
        first.name = machine;
        plan.note(first);
        record.network = Some(network);
        // Before the machine runs: whatever happens from here on, `cluster destroy` finds it.
        store.save(&record, lock)?;
        start::start(&mut record, &[0], store, lock, TakenPort::Refused, progress)?;
        Ok(())
    }

    /// Further machines of the cluster, which have this ticket and start together; or none of them. Where they are in the
    /// record.
    pub(super) fn further(
        &self,
        machines: &[NodeName],
        ticket: &Ticket,
        progress: &mut Progress,
    ) -> Result<Vec<usize>, Failure> {
        self.joining(machines, ticket, progress).map_err(|failure| self.take_machines_back(machines, failure))
    }

    fn joining(&self, machines: &[NodeName], ticket: &Ticket, progress: &mut Progress) -> Result<Vec<usize>, Failure> {
        let Self { name, plan, store, lock } = self;
        let mut record = store.load(name)?;
        let mut made = Vec::new();
        for machine in machines {
            store.begin_machine(name, machine, lock)?;
            self.disk(machine, Becomes::Joins(ticket), progress)?;
            let mut joining = MachineRecord::joining(machine.clone());
            plan.note(&mut joining);
            made.push(record.machines().len());
            record.add(joining);
        }
        store.save(&record, lock)?;
        start::start(&mut record, &made, store, lock, TakenPort::Told, progress)?;
        Ok(made)
    }

    /// A machine's files, its config on the disk; the config's digest.
    fn disk(
        &self,
        machine: &NodeName,
        becomes: Becomes<'_>,
        progress: &mut Progress,
    ) -> Result<model::ConfigDigest, Failure> {
        let Self { name, plan, store, .. } = self;
        progress.show(&format!("make the disk of {machine}"));
        let wanted = Wanted { choices: plan.choices, node: Some(machine), network: None, at: None, becomes };
        let signed = enrolment::sign(wanted, &store.owner_or_new()?)?;
        let directory = store.machine_directory(name, machine);
        virtual_machine::build(&plan.image, &directory, plan.disk_bytes, &signed.bytes)?;
        Ok(signed.digest)
    }

    /// Takes further machines away again, of a cluster that goes on.
    fn take_machines_back(&self, machines: &[NodeName], failure: Failure) -> Failure {
        let Self { name, store, lock, .. } = self;
        let taken = || -> Result<(), Failure> {
            for machine in machines {
                virtual_machine::end(&store.machine_directory(name, machine))?;
            }
            let mut record = store.load(name)?;
            machines.iter().for_each(|machine| record.remove(machine));
            store.save(&record, lock)?;
            for machine in machines {
                store.remove_machine(name, machine, lock)?;
            }
            Ok(())
        };
        match taken() {
            Ok(()) => failure.leaving(format!("cluster `{name}` goes on as it was, and no machine was added")),
            Err(why) => failure.leaving(format!("what was made for cluster `{name}` is still there ({why})")),
        }
    }
}

impl Plan<'_> {
    /// Notes how the machine is built, so that it can be started again.
    fn note(&self, record: &mut MachineRecord) {
        record.virtual_machine = Some(self.machine.clone());
        record.capture = self.capture;
    }
}

/// Ends and removes what a command has left that was killed before there was a record. Files of it may be those of a saved
/// cluster, too, and are not to be written over.
pub(super) fn take_leftovers(name: &ClusterName, store: &Store, lock: &Locked) -> Result<(), Failure> {
    if store.directory(name).exists() {
        start::end_all(store, name)?;
        store.remove(name, lock)?;
    }
    Ok(())
}

/// Takes away what was made of a cluster, so that the failure leaves what was there before.
pub(super) fn take_back(name: &ClusterName, store: &Store, lock: &Locked, failure: Failure) -> Failure {
    match start::end_all(store, name).and_then(|()| Ok(store.remove(name, lock)?)) {
        Ok(()) => failure.leaving("no cluster was made"),
        Err(why) => failure
            .leaving(format!("what was made of cluster `{name}` is still there ({why})"))
            .going_on(format!("cairnctl cluster destroy {name}")),
    }
}

/// Chance, for a network whose every loss follows from it.
fn seed() -> Result<u64, std::io::Error> {
    let mut bytes = [0; 8];
    rand::fill(&mut bytes).map_err(|_| std::io::Error::other("the host gives no random bytes"))?;
    Ok(u64::from_le_bytes(bytes))
}

/// Where the files of a build are.
pub(super) fn image_directory(named: Option<PathBuf>) -> PathBuf {
    named
        .or_else(|| std::env::var_os("CAIRN_IMAGE_DIR").map(PathBuf::from))
        .unwrap_or_else(|| Path::new("out").join("image"))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        choices: Choices,
        #[command(flatten)]
        founding: Founding,
        #[command(flatten)]
        reach: Reach,
    }

    fn printed(failure: &Failure) -> String {
        let mut text = Vec::new();
        failure.print(&mut text).unwrap();
        String::from_utf8(text).unwrap()
    }

    #[test]
    fn a_failure_before_the_start_leaves_nothing_or_says_what() {
        let root = tempfile::tempdir().unwrap();
        let (store, name) = (&Store::at(root.path().join("cairn")).unwrap(), &"home".parse().unwrap());
        let (line, lock) = (Line::parse_from(["x"]), &store.lock(name).unwrap());
        let machine = crate::context::home::virtual_machine();
        let image = root.path().join("absent");
        let plan = &Plan { image, machine, disk_bytes: 1, capture: false, choices: &line.choices };
        let making = Making { name, plan, store, lock };
        let (first, mut progress) = (ClusterRecord::first_name(), Progress::start());

        let left = printed(&making.first(first.clone(), (&line.founding, &line.reach), &mut progress).unwrap_err());
        assert!(left.contains("absent") && left.contains("\n  no cluster was made\n"), "{left}");
        assert!(!store.directory(name).exists());

        // A run's record that nobody can read: whether a machine runs there is unknown, so nothing is taken away.
        store.begin(name, lock).unwrap();
        fs::create_dir_all(store.machine_directory(name, &first).join("run.json")).unwrap();
        let left = printed(&take_back(name, store, lock, Failure::from(std::io::Error::other("no space"))));
        assert!(left.contains("is still there") && left.contains("next: cairnctl cluster destroy home"), "{left}");
        assert!(store.directory(name).exists());
    }

    #[test]
    fn machines_that_cannot_be_made_leave_the_cluster_as_it_was() {
        let root = tempfile::tempdir().unwrap();
        let (store, name) = (&Store::at(root.path().join("cairn")).unwrap(), &"home".parse().unwrap());
        let (line, lock) = (Line::parse_from(["x"]), &store.lock(name).unwrap());
        let machine = crate::context::home::virtual_machine();
        let image = root.path().join("absent");
        let plan = &Plan { image, machine, disk_bytes: 1, capture: false, choices: &line.choices };
        let before = ClusterRecord::of_config(NAME.parse().unwrap(), model::ConfigDigest([1; 32]));
        store.begin(name, lock).unwrap();
        store.save(&before, lock).unwrap();
        let ticket = Ticket {
            cluster: model::ClusterId([1; 16]),
            ca_spki: [2; 32],
            coordinator_public_endpoints: vec![keys::endpoint::Endpoint::read("192.0.2.1:7836").unwrap()],
            key: keys::identity::SigningKey::from_seed(model::Secret::take(&mut [3; 32])),
            not_after: 4,
            machine: None,
        };
        let names: Vec<NodeName> = before.free_names(|_| false).take(2).collect();
        let making = Making { name, plan, store, lock };
        let left = printed(&making.further(&names, &ticket, &mut Progress::start()).unwrap_err());
        assert!(left.contains("cluster `home` goes on as it was, and no machine was added"), "{left}");
        assert_eq!(store.load(name).unwrap(), before);
        assert_eq!(store.machine_directories(name).unwrap(), Vec::<PathBuf>::new());
    }

    const NAME: &str = "home";
}
