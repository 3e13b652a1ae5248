//! Looks at a fleet: what its machines say, list and reach, and what their cables carried.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::{Context as _, Error, ensure};
use api::wire::{StatusRequest, StatusResponse};
use api::{EtcdMember, ListedMachine, MachineChange, RoleDirection};
use cluster::record::Standing;
use cluster::role::AnyRole;
use keys::ticket::Ticket;
use model::{ClusterRole, MachineState};
use qemu::console::{Line, Mark};
use qemu::{Deadline, Vm};
use serde_json::Value;

use super::{Fleet, MESH_CHANGED, NAME, SEES_RECORDS, capture_of, name, row_of};
use crate::capture::{PacketKind, kinds, others};
use crate::records::Records;
use crate::stranger::Stranger;
use crate::writer::{Tickets, Writer};
use crate::{Context, Owner, public_api};

impl Fleet {
    /// Machines that are on.
    #[must_use]
    pub fn on(&self) -> Vec<u32> {
        self.machines.iter().filter(|(_, known)| known.vm.is_some()).map(|(machine, _)| *machine).collect()
    }

    /// A machine that is on.
    ///
    /// # Errors
    /// When there is none.
    pub fn vm(&self, machine: u32) -> anyhow::Result<&Vm> {
        Ok(&self.running(machine)?.vm)
    }

    /// Where a machine's console ends now.
    ///
    /// # Errors
    /// When it is off.
    pub fn mark(&self, machine: u32) -> anyhow::Result<Mark> {
        Ok(self.vm(machine)?.mark()?)
    }

    /// Where a machine's console was when the boot began that it is in, or when it came back as it was saved.
    ///
    /// # Errors
    /// When it is off.
    pub fn booted(&self, machine: u32) -> anyhow::Result<Mark> {
        Ok(self.running(machine)?.booted)
    }

    /// Waits until a machine's console says `text`, from there on.
    ///
    /// # Errors
    /// When it does not in time.
    pub fn says(&self, machine: u32, from: Mark, text: &str, deadline: Deadline) -> anyhow::Result<Line> {
        self.vm(machine)?.wait_for(from, text, deadline).with_context(|| format!("{} is silent", name(machine)))
    }

    /// Waits until a coordinator that was started again runs, and sees the cluster's records.
    ///
    /// # Errors
    /// When it does not in time.
    pub fn comes_back(&self, t: &Context, machine: u32) -> anyhow::Result<()> {
        self.runs(machine, t.within(90))?;
        self.says(machine, self.booted(machine)?, SEES_RECORDS, t.within(60)).map(drop)
    }

    /// Asks the first machine, by the owner's tool.
    ///
    /// # Errors
    /// What the tool says.
    pub fn ask(&self, command: &[&str]) -> anyhow::Result<Value> {
        Ok(self.owner.ask(NAME, self.vm(1)?, command)?)
    }

    /// A ticket that the owner's tool issues with these options.
    ///
    /// # Errors
    /// What the tool says.
    pub fn ticket(&self, options: &[&str]) -> anyhow::Result<Ticket> {
        let issued = self.ask(&[&["ticket", "issue"], options].concat())?;
        let ticket = Ticket::from_text(issued["ticket"].as_str().context("a ticket has a text")?)?;
        ensure!(issued["ticket_id"] == ticket.id().to_string(), "the text is another ticket's: {issued:#}");
        Ok(ticket)
    }

    /// How the owner's tool lists a ticket.
    ///
    /// # Errors
    /// When it does not.
    pub fn ticket_row(&self, ticket: &Ticket) -> anyhow::Result<Value> {
        let (listed, id) = (self.ask(&["ticket", "list"])?, ticket.id().to_string());
        let row = listed["tickets"].as_array().and_then(|rows| rows.iter().find(|row| row["ticket_id"] == *id));
        row.cloned().with_context(|| format!("{id} is not listed: {listed:#}"))
    }

    /// The owner of the fleet.
    #[must_use]
    pub fn owner(&self) -> &Owner {
        &self.owner
    }

    /// Status of a machine, as it tells its owner.
    ///
    /// # Errors
    /// When it does not answer its owner.
    pub fn status(&self, machine: u32) -> anyhow::Result<StatusResponse> {
        let mut session = Stranger::call_at(self.place(machine)?, Some(&self.owner.key()?))?;
        Ok(session.call(async |client| client.status(StatusRequest {}).await)?.into_inner())
    }

    /// Row of a machine in the list of whichever coordinator answers.
    ///
    /// # Errors
    /// When none does in time, or it is not listed.
    pub fn row(&self, machine: u32, deadline: Deadline) -> anyhow::Result<ListedMachine> {
        self.through(deadline, |records| row_of(records, machine))
    }

    /// Waits until the first machine lists that one as `wanted`.
    ///
    /// # Errors
    /// As what it is listed when the time is over.
    pub fn is_listed(&self, t: &Context, machine: u32, wanted: impl Fn(&Value) -> bool) -> anyhow::Result<()> {
        self.until(t.within(60), || {
            let listed = self.ask(&["machine", "list"])?;
            let mut rows = listed["machines"].as_array().context("a list of machines")?.iter();
            let row = rows.find(|row| row["name"] == name(machine)).context("it is not listed")?;
            ensure!(wanted(row), "it is listed as {row:#}");
            Ok(())
        })
    }

    /// Somebody who writes through all coordinators, until it is dropped.
    ///
    /// # Errors
    /// When it does not start.
    pub fn writer(&self) -> anyhow::Result<Writer<Tickets>> {
        Writer::start(Tickets::new(&self.owner, Arc::clone(&self.places))?)
    }

    /// Waits until all machines that are on are one cluster: each runs, and reaches each other one over the VPN; each coordinator that
    /// votes sees every change, and lists all machines as what they should be, with etcd's members as many as they should be.
    ///
    /// # Errors
    /// What is not so when the deadline passes.
    pub fn is_whole(&self, deadline: Deadline) -> anyhow::Result<()> {
        let mut rows = BTreeMap::new();
        for machine in self.coordinators() {
            rows = self.until(deadline, || self.listed_by(machine).or_else(|why| self.listed_without(machine, why)))?;
        }
        self.each(|machine| self.until(deadline, || self.reaches_others(machine, &rows)))
    }

    /// Looks at all machines that are on at the same time: most of a look is waiting for an answer.
    fn each(&self, look: impl Fn(u32) -> anyhow::Result<()> + Sync) -> anyhow::Result<()> {
        let look = &look;
        std::thread::scope(|scope| {
            let looks: Vec<_> = self.on().into_iter().map(|machine| scope.spawn(move || look(machine))).collect();
            looks.into_iter().try_for_each(|look| look.join().map_err(|_panicked| Error::msg("a look panicked"))?)
        })
    }

    /// Each coordinator that votes takes a change, and tells all that was ever acknowledged.
    ///
    /// # Errors
    /// When one does not in time, or something is lost.
    pub fn read_back(&self, writer: &Writer<Tickets>, deadline: Deadline) -> anyhow::Result<()> {
        for machine in self.coordinators() {
            let place = self.place(machine)?;
            let read = self
                .until(deadline, || writer.read_back(place).or_else(|why| self.listed_without(machine, why).map(drop)));
            read.with_context(|| format!("read back from {}", name(machine)))?;
        }
        Ok(())
    }

    /// All machines, when another coordinator lists them as they should be, this one as one that keeps a copy without a vote: then
    /// it answers nothing. Else `why` it did not answer.
    fn listed_without(&self, silent: u32, why: Error) -> anyhow::Result<BTreeMap<u32, ListedMachine>> {
        let mut others = self.coordinators().into_iter().filter(|other| *other != silent);
        let listed = others.find_map(|other| self.listed_by(other).ok());
        listed.filter(|rows| rows[&silent].etcd == Some(EtcdMember::Learner)).ok_or(why)
    }

    /// All machines, when this coordinator lists them as they should be.
    fn listed_by(&self, coordinator: u32) -> anyhow::Result<BTreeMap<u32, ListedMachine>> {
        let who = name(coordinator);
        let listed = Records::at(self.place(coordinator)?, &self.owner.key()?).and_then(|mut records| {
            let listed = records.machines()?;
            self.approve(&listed.rows, &mut records)?;
            Ok(listed)
        });
        let listed = listed.with_context(|| format!("ask {who}"))?;
        ensure!(listed.old_since.is_none(), "{who} sees no changes");
        let rows: BTreeMap<&str, &ListedMachine> = listed
            .rows
            .iter()
            .filter(|row| row.standing != Standing::Removed)
            .map(|row| (row.name.as_str(), row))
            .collect();
        let mut machines = BTreeMap::new();
        for (machine, known) in &self.machines {
            let called = name(*machine);
            let row = rows.get(called.as_str()).with_context(|| format!("{who} does not list {called}"))?;
            let is_of_etcd = row.etcd.is_some() == (known.role == ClusterRole::Coordinator);
            let fits = row.standing == Standing::Member && row.role == known.role && is_of_etcd;
            ensure!(fits, "{who} lists {called}, which should be a {}, as {row:?}", known.role.word());
            machines.insert(*machine, (*row).clone());
        }
        ensure!(rows.len() == machines.len(), "{who} lists others, too: {:?}", rows.keys().collect::<BTreeSet<_>>());
        let voters = rows.values().filter(|row| row.etcd == Some(EtcdMember::Voter)).count();
        let coordinators = self.machines.values().filter(|known| known.role == ClusterRole::Coordinator).count();
        // One more than odd waits for a second one; after some have left their number may be even.
        let expected = voters == coordinators || voters + 1 == coordinators && voters % 2 == 1;
        ensure!(expected, "{who} lists {voters} voters of {coordinators} coordinators");
        Ok(machines)
    }

    /// Has the cluster make coordinators of those that came by a ticket of that role, as their owner would.
    fn approve(&self, rows: &[ListedMachine], records: &mut Records) -> anyhow::Result<()> {
        let are_meant = |row: &&ListedMachine| {
            let known = self.machines.iter().find(|(machine, _)| name(**machine) == row.name);
            row.awaits_approval && known.is_some_and(|(_, known)| known.role == ClusterRole::Coordinator)
        };
        let coordinates = MachineChange::Role(AnyRole::Coordinator, RoleDirection::Add);
        rows.iter().filter(are_meant).try_for_each(|row| records.change(row.id, coordinates))
    }

    /// Waits until the kernel of each machine that is on has all others for peers, and each reaches the one behind it: every pair
    /// takes minutes where there are many.
    ///
    /// # Errors
    /// What is not so when the deadline passes.
    pub fn know_each_other(&self, deadline: Deadline) -> anyhow::Result<()> {
        let (on, asked) = (self.on(), *self.coordinators().first().context("no coordinator is on")?);
        let rows = self.until(deadline, || self.listed_by(asked))?;
        self.each(|machine| {
            self.has_peers(machine, on.len() - 1, deadline)?;
            let behind = on.iter().find(|other| **other > machine).or(on.first()).copied();
            self.until(deadline, || self.reaches(machine, behind.as_slice(), &rows))
        })
    }

    /// Waits until the kernel of a machine has so many peers.
    ///
    /// # Errors
    /// When it has another number when the deadline passes.
    pub fn has_peers(&self, machine: u32, peers: usize, deadline: Deadline) -> anyhow::Result<()> {
        has_peers(self.vm(machine)?, peers, deadline).with_context(|| name(machine))
    }

    fn reaches_others(&self, machine: u32, rows: &BTreeMap<u32, ListedMachine>) -> anyhow::Result<()> {
        let others: Vec<u32> = self.on().into_iter().filter(|other| *other != machine).collect();
        self.reaches(machine, &others, rows)
    }

    fn reaches(&self, machine: u32, others: &[u32], rows: &BTreeMap<u32, ListedMachine>) -> anyhow::Result<()> {
        let place = self.place(machine)?;
        let state = Stranger::call_at(place, None).and_then(|mut stranger| stranger.state());
        let state = state.with_context(|| format!("ask {}", name(machine)))?.state;
        ensure!(state == MachineState::Running, "{} is {state}", name(machine));
        let mut through = Records::at(place, &self.owner.key()?)?;
        for other in others {
            through
                .reaches(rows[other].id)
                .with_context(|| format!("{} does not reach {}", name(machine), name(*other)))?;
        }
        Ok(())
    }

    /// Asks coordinators, one after the other, until one of them has done it.
    ///
    /// # Errors
    /// The last one's when the deadline passes.
    pub(crate) fn through<T>(
        &self,
        deadline: Deadline,
        ask: impl Fn(&mut Records) -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        let key = self.owner.key()?;
        self.until(deadline, || {
            let mut last = anyhow::anyhow!("no coordinator is on");
            for machine in self.coordinators() {
                match self.place(machine).and_then(|place| ask(&mut Records::at(place, &key)?)) {
                    Ok(done) => return Ok(done),
                    Err(error) => last = error.context(format!("ask {}", name(machine))),
                }
            }
            Err(last)
        })
    }

    /// Looks until all is well.
    ///
    /// # Errors
    /// What was not, the last time.
    pub fn until<T>(&self, deadline: Deadline, look: impl Fn() -> anyhow::Result<T>) -> anyhow::Result<T> {
        let on = self.vm(*self.on().first().context("all machines are off")?)?;
        let mut last = None;
        let found = on.until(deadline, || look().map_err(|error| last = Some(error)).ok());
        match (found, last) {
            (Err(waited), Some(last)) => Err(last.context(waited)),
            (found, _) => Ok(found?),
        }
    }

    /// Coordinators that are on.
    #[must_use]
    pub fn coordinators(&self) -> Vec<u32> {
        let on = |machine: &u32| self.machines[machine].role == ClusterRole::Coordinator;
        self.on().into_iter().filter(on).collect()
    }

    /// Where the owner finds a machine's public API.
    pub(super) fn place(&self, machine: u32) -> anyhow::Result<SocketAddr> {
        public_api(self.vm(machine)?)
    }

    /// Packets that a machine's cable has carried so far, by kind, through all that befell it.
    ///
    /// # Errors
    /// When there is no such machine, or no capture.
    pub fn carried(&self, machine: u32) -> anyhow::Result<BTreeMap<PacketKind, usize>> {
        kinds(&std::fs::read(capture_of(&self.known(machine)?.plan)).context("read a capture")?)
    }

    /// Checks that only WireGuard and the public API were ever on the cable of a machine that is on.
    ///
    /// # Errors
    /// What else was.
    pub fn hides_all(&self) -> anyhow::Result<()> {
        for machine in self.on() {
            let carried = self.carried(machine)?;
            ensure!(others(&carried).is_empty(), "{}: {carried:?}", name(machine));
        }
        Ok(())
    }
}

/// Waits until the kernel of a machine has so many peers.
///
/// # Errors
/// When it has another number when the deadline passes.
pub fn has_peers(vm: &Vm, peers: usize, deadline: Deadline) -> anyhow::Result<()> {
    let peers = format!("peers={peers}");
    let has = || {
        let last = vm.said().into_iter().rev().find(|line| line.text.contains(MESH_CHANGED))?;
        last.text.ends_with(&peers).then_some(())
    };
    vm.until(deadline, has).with_context(|| format!("it does not have {peers}"))
}
