//! Effects of a member's life on this machine: units, files, keys, and what the APIs show. Decides nothing; each may be done twice.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex};

use ::member::{EffectOutcome, EtcdStart, Face, KeptFile, OwnRequest, ShareReason, VpnPlace};
use api::{ConditionName, HandedOver, Truth};
use cluster::View;
use cluster::backends::EtcdAlarm;
use cluster::desired::Desired;
use cluster::epochs::ShareOrder;
use cluster::members::MemberStep;
use cluster::orders::OrderBook;
use cluster::restores::RestoreStep;
use keys::identity::Identity;
use model::{Assignment, ClusterRole, KubernetesRole, MachineId};
use services::{EtcdCluster, EtcdPlan, ServicePlan, ServiceRole};
use supervise::ChangeError;
use tokio::sync::{Mutex as AsyncMutex, watch};

use super::attend::{CallError, ClientError, Dialler};
use crate::control::{self, Absence, Apiservers, Clients, Ground, SignedKeys, VolumeCalls};
use crate::enrolment::shares::WriteError;
use crate::enrolment::{self, Authorities, LoadError, Member};
use crate::machine::esp;
use crate::network::mesh::kept;
use crate::network::mesh::peers::Told;
use crate::network::uplink::{self, Uplink};
use crate::records::link::NoAnswer;
use crate::records::{
    self, BackendsLook, DefragmentEnd, FULL, First, GrantError, Lost, MembersError, Orders, Records, RecoveryError,
    RestoreError, RevocationError, Unreadable, UsersError, VoteError,
};
use crate::rpc::public::{Context, KubernetesAccess};
use crate::rpc::vpn;
use crate::runtime::child::PROGRAMS;
use crate::runtime::services::Services;
use crate::runtime::{lock, tasks};
use crate::shown::board::Board;

/// Why an effect is not performed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// No coordinator can be asked.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// A coordinator does not do what it was asked for.
    #[error("a coordinator")]
    Call(#[from] CallError),
    /// Keys or desired state cannot be kept, read or erased.
    #[error("keep what this machine is to be")]
    Keep(#[from] LoadError),
    /// Peers cannot be kept.
    #[error("write the file of peers")]
    Peers(#[source] io::Error),
    /// Whether etcd has begun, or knows its users, cannot be seen or not be noted.
    #[error(transparent)]
    Users(#[from] UsersError),
    /// A recovery that was noted is not written into the records, or its note cannot be read, changed or removed.
    #[error("recover the cluster with this machine")]
    Recovery(#[from] RecoveryError),
    /// No certificate.
    #[error("issue a coordinator's certificate")]
    Issue(#[from] pki::IssueError),
    /// The records cannot be kept.
    #[error(transparent)]
    Records(#[from] records::Error),
    /// A coordinator's services cannot be prepared.
    #[error(transparent)]
    Control(#[from] control::Error),
    /// The VPN API cannot be opened.
    #[error(transparent)]
    Vpn(#[from] vpn::Error),
    /// The tree does not start or stop the services.
    #[error("change a coordinator's services")]
    Services(#[from] ChangeError),
    /// Shares of the cold-start key cannot be erased.
    #[error("erase the shares of the cold-start key")]
    Shares(#[from] esp::Error),
    /// The share is not on the ESP.
    #[error("write this machine's share of the cold-start key")]
    WriteShare(#[from] WriteError),
    /// The copy that etcd has cannot be read.
    #[error(transparent)]
    OwnCopy(#[from] Unreadable),
    /// Whether etcd votes is not known.
    #[error(transparent)]
    Vote(#[from] VoteError),
    /// The records are not kept up any more.
    #[error(transparent)]
    Lost(#[from] Lost),
    /// etcd's members cannot be looked at.
    #[error(transparent)]
    Members(#[from] MembersError),
    /// The list of certificates that etcd refuses cannot be made or written.
    #[error(transparent)]
    Revocation(#[from] RevocationError),
    /// The audit cannot be kept in its bounds.
    #[error("delete the oldest lines of the audit")]
    Trim(#[source] NoAnswer),
    /// The records do not grant it.
    #[error(transparent)]
    Refused(#[from] GrantError),
    /// etcd's data, or keys in memory, cannot be erased.
    #[error("erase what a coordinator has")]
    Erase(#[source] io::Error),
    /// Packets are not judged by what the machine is.
    #[error("set what the machine lets through")]
    Uplink(#[from] uplink::Error),
    /// A step of a restore is not taken.
    #[error("restore Kubernetes' objects")]
    Restore(#[from] RestoreError),
    /// No units of a coordinator run.
    #[error("this machine runs nothing of a coordinator")]
    Idle,
}

/// Performer of a member's effects; clones share it, and what runs outlives the life that began it.
#[derive(Debug, Clone)]
pub(crate) struct Performer(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    board: Board,
    uplink: Uplink,
    services: Services,
    context: Arc<Context>,
    member: Member,
    /// Desired state that is kept.
    desired: watch::Sender<Desired>,
    /// Apiservers of the cluster.
    apiservers: Apiservers,
    told: Told,
    orders: Orders,
    /// Folder of what a member keeps.
    root: &'static Path,
    /// Identity that the machine is to show.
    shows: watch::Sender<Arc<Identity>>,
    running: watch::Sender<Option<Records>>,
    runs: Mutex<Option<Runs>>,
    /// Assignment with the roles in Kubernetes that the machine runs.
    kubernetes: Mutex<Option<Assignment>>,
    /// Reasons why services are not there.
    absence: watch::Sender<Absence>,
    /// Certificates of the services; whoever changes what runs holds it.
    clients: AsyncMutex<Clients>,
}

/// Units of a coordinator that run.
#[derive(Debug, Clone)]
struct Runs {
    /// How etcd was started.
    plan: EtcdStart,
    etcd: EtcdPlan,
    /// Assignment as it was then.
    assignment: Assignment,
    identity: Arc<Identity>,
    authorities: Arc<Authorities>,
    records: Records,
}

impl Performer {
    /// Performer of a member of which nothing runs yet.
    pub(crate) fn new(
        (board, uplink): (&Board, &Uplink),
        services: &Services,
        context: &Arc<Context>,
        (member, told): (Member, Told),
        root: &'static Path,
    ) -> Self {
        let desired = watch::Sender::new(member.desired.clone());
        Self(Arc::new(Shared {
            board: board.clone(),
            uplink: uplink.clone(),
            services: services.clone(),
            context: context.clone(),
            shows: watch::Sender::new(member.identity.clone()),
            apiservers: Apiservers::of_cluster(desired.subscribe()),
            desired,
            member,
            told,
            orders: Orders::default(),
            root,
            running: watch::Sender::new(None),
            runs: Mutex::new(None),
            kubernetes: Mutex::new(None),
            absence: watch::Sender::default(),
            clients: AsyncMutex::default(),
        }))
    }

    /// Reasons why services are not there, as they are told.
    pub(crate) fn absence(&self) -> watch::Receiver<Absence> {
        self.0.absence.subscribe()
    }

    /// Tells the identity that the machine is to show, when that is another.
    pub(crate) fn shows(&self) -> watch::Receiver<Arc<Identity>> {
        self.0.shows.subscribe()
    }

    /// Tells desired state once it is kept.
    pub(crate) fn desired(&self) -> watch::Receiver<Desired> {
        self.0.desired.subscribe()
    }

    pub(super) fn member(&self) -> &Member {
        &self.0.member
    }

    pub(super) fn context(&self) -> &Context {
        &self.0.context
    }

    pub(super) fn board(&self) -> &Board {
        &self.0.board
    }

    pub(super) fn told(&self) -> &Told {
        &self.0.told
    }

    /// Tells of each other order that the machine goes by.
    pub(crate) fn ordered(&self) -> watch::Receiver<OrderBook> {
        self.0.orders.watch()
    }

    pub(super) fn orders(&self) -> &Orders {
        &self.0.orders
    }

    /// Answers a question about the machine's own records; there is no view before they were read.
    pub(super) fn view<T>(&self, question: impl FnOnce(Option<&View>) -> T) -> T {
        match &*self.0.running.borrow() {
            Some(records) => records.view(question),
            None => question(None),
        }
    }

    /// Tells which records the units that run keep.
    pub(super) fn records(&self) -> watch::Receiver<Option<Records>> {
        self.0.running.subscribe()
    }

    /// Records that the units that run keep.
    fn running(&self) -> Result<Records, Error> {
        self.0.running.borrow().clone().ok_or(Error::Idle)
    }

    /// How etcd was started that runs.
    pub(super) fn plan(&self) -> Option<EtcdStart> {
        lock::even_if_poisoned(&self.0.runs).as_ref().map(|runs| runs.plan.clone())
    }

    /// Assignment with the roles in Kubernetes that run.
    pub(super) fn kubernetes_that_runs(&self) -> Option<Assignment> {
        lock::even_if_poisoned(&self.0.kubernetes).clone()
    }

    /// Whether certificates of services are to be renewed; no answer while somebody changes what runs.
    pub(super) fn renews(&self) -> bool {
        self.0.clients.try_lock().is_ok_and(|clients| clients.are_due())
    }

    pub(super) async fn keep(self, file: KeptFile) -> Result<EffectOutcome, Error> {
        let Shared { root, told, desired, .. } = &*self.0;
        let root = *root;
        match file {
            KeptFile::Desired(kept) => {
                enrolment::keep(root, (*kept).clone()).await?;
                desired.send_replace(*kept);
            }
            KeptFile::Electorate(electorate) => records::keep_electorate(electorate).await?,
            KeptFile::Peers => {
                let known = told.known();
                tasks::blocking(move || kept::write(root, &known)).await.map_err(Error::Peers)?;
            }
        }
        Ok(EffectOutcome::Whole)
    }

    pub(super) async fn note_join() -> Result<EffectOutcome, Error> {
        records::joins_etcd().await?;
        Ok(EffectOutcome::Whole)
    }

    pub(super) async fn take_keys(self, dialler: Dialler, from: VpnPlace) -> Result<EffectOutcome, Error> {
        let HandedOver { keys } = dialler.hand_over(from).await?;
        enrolment::take_up(keys, self.0.member.identity.clone()).await?;
        Ok(EffectOutcome::Whole)
    }

    pub(super) fn look_at_etcd() -> Result<EffectOutcome, Error> {
        Ok(EffectOutcome::Begun(records::etcd_has_begun()?))
    }

    /// Runs what a coordinator runs, or none of it; what Kubernetes does not need of that runs on.
    pub(super) async fn units(self, plan: Option<EtcdStart>) -> Result<EffectOutcome, Error> {
        let Shared { running, runs, clients, .. } = &*self.0;
        let mut clients = clients.lock().await;
        *lock::even_if_poisoned(runs) = None;
        running.send_replace(None);
        let kubernetes = self.kubernetes_that_runs();
        self.want(None, (kubernetes.as_ref(), None), &mut clients).await?;
        if let Some(plan) = plan {
            let begun = self.begin(plan).await?;
            self.want(Some(&begun), (kubernetes.as_ref(), None), &mut clients).await?;
            running.send_replace(Some(begun.records.clone()));
            *lock::even_if_poisoned(runs) = Some(begun);
        }
        Ok(EffectOutcome::Whole)
    }

    async fn begin(&self, plan: EtcdStart) -> Result<Runs, Error> {
        let Shared { board, member, desired, .. } = &*self.0;
        let assignment = desired.borrow().assignment.clone();
        let authorities = Arc::new(enrolment::authorities().await?);
        let identity = Arc::new(authorities.coordinator(&member.identity)?);
        let records = Records::of(&authorities, First::of(member, board.facts()), member.renewing.directories())?;
        if plan == EtcdStart::Recovered {
            records::begin_recovery().await?;
        }
        let (begins, others) = match &plan {
            EtcdStart::New => (EtcdCluster::New, Vec::new()),
            EtcdStart::Existing { others } => (EtcdCluster::Existing, others.clone()),
            EtcdStart::Recovered => (EtcdCluster::Recovered, Vec::new()),
        };
        let etcd = EtcdPlan { begins, others, users: records::etcd_users()? };
        Ok(Runs { plan, etcd, assignment, identity, authorities, records })
    }

    /// Tells people why Kubernetes cannot run, or that it can.
    pub(super) fn kubernetes_cannot_run(&self, why: Option<String>) {
        let roles = || self.0.desired.borrow().assignment.kubernetes().clone();
        self.0.absence.send_modify(|absence| absence.cannot_run = why.map(|why| (roles(), why)));
    }

    /// Tells people for which restore the control plane stands still, or that it does not.
    pub(super) fn stands_still(&self, restore: Option<String>) {
        self.0.absence.send_modify(|absence| absence.restore = restore);
    }

    /// Runs what the roles in Kubernetes want, once a worker's certificates are there and all are fresh.
    pub(super) async fn kubernetes(
        self,
        dialler: Dialler,
        (assignment, signer): (Assignment, Option<VpnPlace>),
    ) -> Result<EffectOutcome, Error> {
        let Shared { board, uplink, desired, runs, kubernetes, clients, .. } = &*self.0;
        let prefixes = desired.borrow().prefixes;
        // Before there is a pod.
        uplink.belong(prefixes, &assignment).await?;
        let works = assignment.kubernetes().contains(&KubernetesRole::Worker);
        let keys = if works && signer.is_some() { clients.lock().await.keys_to_sign()? } else { None };
        let signed = match (signer, keys) {
            (Some(signer), Some(keys)) => {
                let requests = keys.requests()?;
                Some(keys.signed(dialler.certify(signer, requests).await?)?)
            }
            (_, _) => None,
        };
        let mut clients = clients.lock().await;
        let runs = lock::even_if_poisoned(runs).clone();
        if works && runs.is_none() && signed.is_none() && !clients.are_of_a_worker() {
            return Err(Error::Idle);
        }
        if let Some(runs) = runs.as_ref().filter(|_| clients.are_due()) {
            // Behind what is wanted nothing would be due, and a failure not be mended.
            runs.records.renew()?;
        }
        self.want(runs.as_ref(), (Some(&assignment), signed), &mut clients).await?;
        *lock::even_if_poisoned(kubernetes) = Some(assignment.clone());
        board.facts().update(|now| {
            now.assignment = now.assignment.take().map(|now| now.with_kubernetes_of(Some(&assignment)));
        });
        Ok(EffectOutcome::Whole)
    }

    /// Has all units run that are wanted beside those of this coordinator, if it is one, and no others.
    async fn want(
        &self,
        runs: Option<&Runs>,
        (kubernetes, signed): (Option<&Assignment>, Option<SignedKeys>),
        clients: &mut Clients,
    ) -> Result<(), Error> {
        let Shared { board, services, context, member, desired, apiservers, uplink, orders, told, .. } = &*self.0;
        let (resolvers, orders) = (uplink.network.resolvers_change(), orders.watch());
        let (volumes, _) = context.reach.volumes().expect("a member has them from its start");
        let Identity { name, holder, .. } = &*member.identity;
        let assignment = match runs {
            Some(runs) => runs.assignment.clone(),
            None => desired.borrow().assignment.clone().as_node(),
        };
        let vpn_ip = assignment.vpn_ip();
        let plan = Arc::new(ServicePlan {
            machine: holder.machine,
            node: name.clone(),
            cluster: holder.cluster,
            assignment: assignment.with_kubernetes_of(kubernetes),
            prefixes: desired.borrow().prefixes,
            etcd: runs.map(|runs| runs.etcd.clone()),
            bin: PROGRAMS,
            has_gvisor: board.facts().boot().has_gvisor,
        });
        let coordinator = runs.map(|Runs { authorities, records, .. }| (&**authorities, records));
        let (plan, identity, resolvers, orders) = (&plan, &member.identity, &resolvers, &orders);
        let (policies, roll) = (&uplink.policies, told.roll());
        let ground = Ground {
            board,
            plan,
            identity,
            coordinator,
            signed,
            apiservers,
            resolvers,
            volumes,
            policies,
            orders,
            roll,
        };
        let mut units = control::units(ground, clients).await?;
        if let Some(Runs { identity, records, .. }) = runs {
            units.push(vpn::unit(identity, vpn_ip, board.facts(), records)?);
        }
        services.want(units).await?;
        if !plan.wants(ServiceRole::Worker) {
            uplink.leads_to_no_pod().await?;
        }
        Ok(clients.forget(plan)?)
    }

    /// Shows the machine so.
    pub(super) fn face(&self, face: Face) -> Result<EffectOutcome, Error> {
        let Shared { board, context, member, desired, shows, running, runs, apiservers, .. } = &*self.0;
        let role = match face {
            Face::Coordinator => {
                let runs = lock::even_if_poisoned(runs).clone().ok_or(Error::Idle)?;
                let access = KubernetesAccess {
                    authority: runs.authorities.kubernetes.clone(),
                    apiservers: apiservers.clone(),
                    volumes: VolumeCalls::as_coordinator(runs.identity.clone(), runs.authorities.cairn.public().pin()),
                };
                context.reach.coordinate(running.borrow().clone(), Some(access));
                context.entrance.ways.exchange.opens(&member.shares);
                let assignment = runs.assignment.with_kubernetes_of(self.kubernetes_that_runs().as_ref());
                board.facts().update(|now| now.assignment = Some(assignment));
                shows.send_replace(runs.identity);
                tracing::info!("this machine is a coordinator");
                return Ok(EffectOutcome::Whole);
            }
            Face::Leaving => None,
            Face::Node => Some(desired.borrow().assignment.clone().as_node()),
        };
        context.reach.coordinate(None, None);
        context.entrance.ways.exchange.over();
        shows.send_if_modified(|shown| {
            !Arc::ptr_eq(&std::mem::replace(shown, member.identity.clone()), &member.identity)
        });
        if let Some(node) = role {
            let coordinates = |assignment: &Assignment| assignment.role() == ClusterRole::Coordinator;
            if board.facts().read(|now| now.assignment.as_ref().is_some_and(coordinates)) {
                tracing::info!("this machine is no coordinator any more");
            }
            // Who asks hears it only now: `cairnctl machine remove` waits for it.
            board.facts().update(|now| now.assignment = Some(node));
        }
        Ok(EffectOutcome::Whole)
    }

    pub(super) async fn write_share(self, holding: ShareOrder, reason: ShareReason) -> Result<EffectOutcome, Error> {
        let (epoch, holders) = (holding.epoch.number(), holding.epoch.holders().len());
        let is_written = self.0.member.shares.hold(holding).await?;
        match reason {
            ShareReason::Stands if is_written => {
                tracing::warn!(epoch, "this machine's share was not there: it is written again")
            }
            ShareReason::Rotates if is_written => {
                tracing::info!(epoch, "this machine's share carries the cluster keys that are given now")
            }
            ShareReason::Next => tracing::info!(epoch, "this machine holds its share of the cold-start key"),
            ShareReason::OwnCopy if is_written => tracing::info!(
                epoch,
                "this machine holds its share of an epoch of the cold-start key that does not stand yet"
            ),
            ShareReason::Stands | ShareReason::Rotates | ShareReason::OwnCopy => {}
        }
        if matches!(reason, ShareReason::Stands | ShareReason::Rotates) {
            tracing::info!(epoch, holders, "this epoch of the cold-start key stands");
        }
        Ok(EffectOutcome::Whole)
    }

    pub(super) fn takes_key(&self, generation: Option<u32>) {
        self.0.board.facts().update(|now| now.takes_key_generation = generation);
    }

    pub(super) async fn read_own_copy(self, since: Option<u64>) -> Result<EffectOutcome, Error> {
        let copy = self.running()?.own_copy(since).await?;
        Ok(copy.map_or(EffectOutcome::Whole, |view| EffectOutcome::OwnCopy(view.into())))
    }

    pub(super) async fn decide(self, request: OwnRequest) -> Result<EffectOutcome, Error> {
        self.running()?.ask(request).await?;
        Ok(EffectOutcome::Whole)
    }

    pub(super) async fn ask_vote(self) -> Result<EffectOutcome, Error> {
        Ok(EffectOutcome::Votes(self.running()?.votes().await?))
    }

    pub(super) async fn keep_records(self) -> Result<EffectOutcome, Error> {
        match self.running()?.keep().await? {}
    }

    pub(super) async fn look_at_members(self) -> Result<EffectOutcome, Error> {
        let BackendsLook { backends, leads } = self.running()?.look_at_members().await?;
        let is_full = backends.alarms.contains(&EtcdAlarm::NoSpace);
        let (truth, reason) = if is_full { (Truth::False, FULL) } else { (Truth::True, "") };
        self.0.board.condition(ConditionName::EtcdHasRoom, truth, reason);
        Ok(EffectOutcome::Leads(leads.then_some(backends)))
    }

    pub(super) async fn defragment(self, machine: MachineId) -> Result<EffectOutcome, Error> {
        Ok(match self.running()?.defragment(machine).await? {
            DefragmentEnd::Done => EffectOutcome::Whole,
            DefragmentEnd::Busy => EffectOutcome::Refused,
            DefragmentEnd::Unknown(error) => return Err(MembersError::from(error).into()),
        })
    }

    pub(super) async fn restore(self, hash: [u8; 32], step: RestoreStep) -> Result<EffectOutcome, Error> {
        let differed = self.running()?.restore(hash, step).await?;
        Ok(if differed { EffectOutcome::Differed } else { EffectOutcome::Whole })
    }

    pub(super) async fn drop_snapshot(self) -> Result<EffectOutcome, Error> {
        let is_gone = self.running()?.drop_snapshot().await?;
        Ok(if is_gone { EffectOutcome::Whole } else { EffectOutcome::Refused })
    }

    pub(super) async fn change_member(self, step: MemberStep) -> Result<EffectOutcome, Error> {
        let is_taken = self.running()?.change_member(step).await?;
        Ok(if is_taken { EffectOutcome::Whole } else { EffectOutcome::Refused })
    }

    pub(super) async fn pass_lead(self) -> Result<EffectOutcome, Error> {
        self.running()?.pass_lead().await?;
        Ok(EffectOutcome::Whole)
    }

    pub(super) async fn revoke(self, machines: BTreeSet<MachineId>) -> Result<EffectOutcome, Error> {
        self.running()?.revoke(&machines).await?;
        Ok(EffectOutcome::Whole)
    }

    pub(super) async fn trim_audit(self) -> Result<EffectOutcome, Error> {
        self.running()?.trim_audit().await.map_err(Error::Trim)?;
        Ok(EffectOutcome::Whole)
    }

    pub(super) async fn erase_shares(self) -> Result<EffectOutcome, Error> {
        self.0.member.shares.erase().await?;
        Ok(EffectOutcome::Whole)
    }

    pub(super) async fn erase_keys(self) -> Result<EffectOutcome, Error> {
        enrolment::lay_down().await?;
        let clients = self.0.clients.lock().await;
        control::erase_keys(&clients).await.map_err(Error::Erase)?;
        Ok(EffectOutcome::Whole)
    }

    pub(super) async fn erase_etcd() -> Result<EffectOutcome, Error> {
        records::erase_etcd().await.map_err(Error::Erase)?;
        Ok(EffectOutcome::Whole)
    }

    pub(super) async fn put_etcd_aside() -> Result<EffectOutcome, Error> {
        records::put_etcd_aside().await.map_err(Error::Erase)?;
        Ok(EffectOutcome::Whole)
    }

    pub(super) async fn commit_recovery(self) -> Result<EffectOutcome, Error> {
        self.running()?.commit_recovery().await?;
        Ok(EffectOutcome::Whole)
    }

    pub(super) async fn drop_recovery() -> Result<EffectOutcome, Error> {
        records::drop_recovery().await?;
        Ok(EffectOutcome::Whole)
    }
}
