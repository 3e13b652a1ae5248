//! The coordinator's office: what a machine runs and holds while it coordinates, and how it takes that up and lays it down
//! while it runs. Whether it is to, it hears from the cluster's coordinators; at the start its own data says it.
//!
//! ```text
//!   hears: coordinator ─► keys handed over ─► kept on DATA ─► etcd, records, VPN API run ─► shows itself as one
//!                              └── again, for who the members are, until etcd has begun ──┘
//!   hears: node ────────► shows itself as a node ─► none of it runs ─► etcd's data and the keys are erased
//!   owner: recover ─────► all of it runs anew, with an etcd that takes the others out ─► recovered ─► and anew, as always
//! ```
//! Each step may be cut: the next start finds a coordinator, or a node, which erases what a coordinator would have.

use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use api::HandedOver;
use cluster::desired::EtcdPart;
use cluster::state::NotHandedOver;
use keys::identity::Identity;
use kube::{Coordinator, EtcdCluster, Plan};
use model::{Assignment, BadAssignment, Chain, ClusterRole};
use supervise::{Name, NotGivenUp, NotTaken};
use tokio::sync::watch;
use tokio::time::sleep;

use super::own;
use crate::consensus::ask::{Asker, NotHanded};
use crate::consensus::{self, First, Records, RecoveryError, UsersError};
use crate::control;
use crate::enrolment::{self, Authorities, LoadError, Member};
use crate::machine::esp;
use crate::rpc::public::Context;
use crate::rpc::vpn;
use crate::runtime::services::Services;
use crate::runtime::{durable, lock};
use crate::shown::board::Board;

/// Between two tries: mostly etcd has not added the machine yet.
const AGAIN: Duration = Duration::from_secs(1);
/// Longer than etcd mostly takes until it has begun.
const BEGINS: Duration = Duration::from_secs(10);

/// Why the office is neither taken up nor laid down.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// No coordinator gives its keys.
    #[error("have a coordinator hand over its keys")]
    HandOver(#[from] NotHanded),
    /// By what it heard it is given none.
    #[error("have etcd add this machine")]
    NoLearner(#[from] NotHandedOver),
    /// They cannot be kept, or not be erased.
    #[error("keep a coordinator's keys")]
    Keys(#[from] LoadError),
    /// Whether etcd has begun, or knows its users, cannot be seen or not be noted.
    #[error(transparent)]
    Users(#[from] UsersError),
    /// Whether it is to recover the cluster is not known.
    #[error("see whether the cluster is to be recovered")]
    Recovery(#[from] RecoveryError),
    /// No certificate.
    #[error("issue a coordinator's certificate")]
    Issue(#[from] pki::IssueError),
    /// The records cannot be kept.
    #[error(transparent)]
    Records(#[from] consensus::Error),
    /// Its services cannot be prepared.
    #[error(transparent)]
    Control(#[from] control::Error),
    /// The VPN API cannot be opened.
    #[error(transparent)]
    Vpn(#[from] vpn::Error),
    /// The role does not fit the machine's others.
    #[error("change the machine's role")]
    Role(#[from] BadAssignment),
    /// The tree does not take its services.
    #[error("start a coordinator's services")]
    Start(#[from] NotTaken),
    /// The tree does not give them up.
    #[error("stop a coordinator's services")]
    Stop(#[from] NotGivenUp),
    /// Its shares cannot be erased.
    #[error("erase the shares of the cold-start key")]
    Shares(#[from] esp::Error),
    /// etcd's data cannot be erased.
    #[error("erase etcd's data")]
    Erase(#[source] io::Error),
}

/// The office of this machine; clones share it.
#[derive(Debug, Clone)]
pub(super) struct Office(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    board: Board,
    services: Services,
    context: Arc<Context>,
    member: Member,
    asker: Asker,
    /// As whom the machine is to show itself.
    shows: watch::Sender<Arc<Identity>>,
    held: Mutex<Option<Held>>,
}

/// With what the office is held.
#[derive(Debug, Clone)]
struct Held {
    /// The services that run for it.
    services: Vec<Name>,
    authorities: Arc<Authorities>,
    assignment: Assignment,
    /// With what its etcd was started.
    etcd: EtcdCluster,
    /// Beside whom.
    others: Vec<Coordinator>,
}

impl Office {
    /// That of a member, held by nobody yet.
    pub(super) fn new(
        board: &Board,
        services: &Services,
        context: &Arc<Context>,
        member: Member,
        asker: Asker,
    ) -> Self {
        Self(Arc::new(Shared {
            board: board.clone(),
            services: services.clone(),
            context: context.clone(),
            shows: watch::Sender::new(member.identity.clone()),
            member,
            asker,
            held: Mutex::new(None),
        }))
    }

    /// Tells as whom the machine is to show itself, when that is another.
    pub(super) fn shows(&self) -> watch::Receiver<Arc<Identity>> {
        self.0.shows.subscribe()
    }

    /// Holds it from the start, if the machine's data says so. Else there is nothing left of it when this returns, though it was
    /// cut while it was taken up or laid down.
    ///
    /// # Errors
    /// [`Error`] names the step.
    pub(super) async fn begin(&self) -> Result<(), Error> {
        let Member { authorities, assignment, joined, .. } = &self.0.member;
        let Some(authorities) = authorities else { return erase().await };
        let etcd = match (consensus::recovers()?, *joined) {
            (Some(_), _) => EtcdCluster::Recovered,
            (None, true) => EtcdCluster::Existing,
            // It matters only while etcd has no data; and then the machine is the cluster's first.
            (None, false) => EtcdCluster::New,
        };
        self.enter(authorities.clone(), assignment.clone(), etcd, Vec::new()).await
    }

    /// Follows what is heard of the machine's role, and what the owner has noted; a task for good.
    ///
    /// # Errors
    /// [`Error`], where the disk does not give what lies on it. What fails otherwise is tried again.
    pub(super) async fn follow(self) -> Result<(), Error> {
        let mut desired = self.0.asker.desired.subscribe();
        loop {
            let heard = desired.borrow_and_update().as_ref().map(|desired| desired.assignment.role());
            let held = self.held();
            let noted = held.is_some() && consensus::recovers()?.is_some();
            let done = match (heard, held) {
                (_, Some(held)) if noted || held.etcd == EtcdCluster::Recovered => self.recover(held).await,
                (Some(ClusterRole::Coordinator), None) => self.take_up().await,
                (Some(ClusterRole::Node), Some(_)) => self.lay_down().await,
                (Some(ClusterRole::Coordinator), Some(held))
                    if held.etcd == EtcdCluster::Existing && !consensus::etcd_has_begun()? =>
                {
                    self.begin_etcd(held).await
                }
                (Some(ClusterRole::Coordinator), Some(_)) | (Some(ClusterRole::Node), None) | (None, _) => {
                    tokio::select! {
                        _we_hold_the_sender = desired.changed() => {}
                        () = self.0.context.recovers.notified() => {}
                    }
                    continue;
                }
            };
            if let Err(error) = done {
                if durable::is_damage(&error) {
                    return Err(error);
                }
                tracing::info!(error = %Chain(&error), "the coordinator's office is not changed yet");
                sleep(AGAIN).await;
            }
        }
    }

    async fn take_up(&self) -> Result<(), Error> {
        let member = &self.0.member;
        // First: no key leaves a coordinator before etcd has added this machine.
        let others = self.others()?;
        let HandedOver { keys } = self.0.asker.hand_over().await?;
        consensus::joins_etcd().await?;
        let authorities = Arc::new(enrolment::take_up(keys, member.identity.clone()).await?);
        let assignment = member.assignment.clone().with_role(ClusterRole::Coordinator)?;
        self.enter(authorities, assignment, EtcdCluster::Existing, others).await?;
        tracing::info!("this machine is a coordinator");
        Ok(())
    }

    /// Has etcd begin, which it does only beside the very members that there are: those may be others than it was told of, since one
    /// of them has left meanwhile, or the machine was cut off before etcd began and knows none of them.
    async fn begin_etcd(&self, held: Held) -> Result<(), Error> {
        sleep(BEGINS).await;
        if consensus::etcd_has_begun()? {
            return Ok(());
        }
        let others = self.others()?;
        if others == held.others {
            return Ok(());
        }
        tracing::info!(members = others.len(), "etcd has other members than it was told of: it is started anew");
        self.stop().await?;
        self.enter(held.authorities, held.assignment, EtcdCluster::Existing, others).await
    }

    /// Members beside which etcd is to begin here, by what was heard last.
    ///
    /// # Errors
    /// [`NotHandedOver`] where it is no learner.
    fn others(&self) -> Result<Vec<Coordinator>, NotHandedOver> {
        let (desired, own) = (self.0.asker.desired.borrow(), self.0.member.assignment.vpn_ip());
        let members = match desired.as_ref().map(|desired| &desired.etcd) {
            Some(EtcdPart::Learner { members }) => members,
            Some(EtcdPart::Voter) => return Err(NotHandedOver::Votes),
            Some(EtcdPart::Out) | None => return Err(NotHandedOver::NotAdded),
        };
        let others = members.iter().filter(|(_, vpn_ip)| *vpn_ip != own).cloned();
        Ok(others.map(|(node, vpn)| Coordinator { node, vpn }).collect())
    }

    /// Has the cluster go on with what this machine's etcd has.
    async fn recover(&self, held: Held) -> Result<(), Error> {
        let Held { authorities, assignment, etcd, .. } = held;
        if etcd != EtcdCluster::Recovered {
            self.stop().await?;
            self.enter(authorities.clone(), assignment.clone(), EtcdCluster::Recovered, Vec::new()).await?;
        }
        let records = self.0.context.coordinating().borrow().clone();
        if let Some(records) = records {
            records.recovered().await;
        }
        self.stop().await?;
        self.enter(authorities, assignment, EtcdCluster::Existing, Vec::new()).await
    }

    /// Stops what runs for it. What was stopped in an earlier try is none of the tree's any more.
    async fn stop(&self) -> Result<(), Error> {
        let names = self.held().map(|held| held.services).unwrap_or_default();
        if !names.is_empty() {
            self.0.services.give_up(names).await?;
            if let Some(held) = &mut *lock::even_if_poisoned(&self.0.held) {
                held.services.clear();
            }
        }
        Ok(())
    }

    fn held(&self) -> Option<Held> {
        lock::even_if_poisoned(&self.0.held).clone()
    }

    /// Runs what a coordinator runs, and shows the machine as one.
    async fn enter(
        &self,
        authorities: Arc<Authorities>,
        assignment: Assignment,
        etcd: EtcdCluster,
        others: Vec<Coordinator>,
    ) -> Result<(), Error> {
        let Shared { board, services, context, member, asker, shows, held } = &*self.0;
        let identity = Arc::new(authorities.coordinator(&member.identity)?);
        let records = Records::of(&authorities, First::of(member, board.facts()), member.renewing.directories())?;
        let plan = Arc::new(Plan {
            machine: identity.holder.machine,
            node: identity.name.clone(),
            cluster: identity.holder.cluster,
            assignment: assignment.clone(),
            etcd,
            etcd_users: consensus::etcd_users()?,
            others: others.clone(),
            bin: "/bin",
        });
        let mut units = control::units(board, &plan, &authorities, &records).await?;
        units.push(own::tells(&records, &asker.told));
        units.push(own::observes(&records, &asker.told));
        units.push(own::holds(&records, &member.shares, &asker.epoch));
        units.push(vpn::unit(&identity, assignment.vpn_ip(), board.facts(), &records)?);
        let names = units.iter().map(|unit| unit.spec.name.clone()).collect();
        services.take(units).await?;
        let holds = Held { services: names, authorities, assignment: assignment.clone(), etcd, others };
        *lock::even_if_poisoned(held) = Some(holds);
        context.coordinate(Some(records));
        context.ways.exchange.opens(&member.shares);
        board.facts().update(|now| now.assignment = Some(assignment));
        shows.send_replace(identity);
        Ok(())
    }

    async fn lay_down(&self) -> Result<(), Error> {
        let Shared { board, context, member, shows, held, .. } = &*self.0;
        let node = member.assignment.clone().with_role(ClusterRole::Node)?;
        context.coordinate(None);
        context.ways.exchange.over();
        shows.send_replace(member.identity.clone());
        self.stop().await?;
        // Before the rest, which a node erases at its next start, too.
        member.shares.erase().await?;
        erase().await?;
        *lock::even_if_poisoned(held) = None;
        tracing::info!("this machine is no coordinator any more");
        // Who asks hears it only now: `cairnctl machine remove` waits for it.
        board.facts().update(|now| now.assignment = Some(node));
        Ok(())
    }
}

/// Erases what a coordinator has on its data partition. Nothing to do where it is not there.
async fn erase() -> Result<(), Error> {
    enrolment::lay_down().await?;
    consensus::erase_etcd().await.map_err(Error::Erase)
}
