//! Life of a member, performed: one loop that hands events to the crate `member` and performs the effects that it asks for. Decides
//! nothing. A panic ends the loop and its effects; the tree starts it again, and it finds what runs.
//!
//! ```text
//!   coordinators, own records, facts, the owner ─ Event ─► member::Member ─ Effect ─► perform, attend, mesh
//! ```

mod attend;
mod floating;
mod perform;

use std::collections::BTreeMap;
use std::future::pending;
use std::sync::Arc;

use ::member::{
    Announcement, Effect, EffectKind, EffectOutcome, Event, Life, LifeFacts, OwnRecords, OwnerReason, Part, RoleFacts,
    VpnPlace,
};
use cluster::Knowledge;
use keys::directory::{Coordinator, Directory};
use model::Chain;
use tokio::sync::watch;
use tokio::task::{AbortHandle, Id, JoinError, JoinSet};
use tokio::time::Interval;
use unlock::renewal::Giver;

use crate::control::LOOK;
use crate::enrolment;
use crate::network::mesh::{endpoints, kept};
use crate::records::{self, Records};
#[cfg(feature = "faults")]
use crate::rpc::public::Broken;
use crate::runtime::services::{Ends, Run, Unit, until};
use crate::runtime::standstills::NextStandstill;
use crate::runtime::{clock, durable, tasks};
use attend::{Attended, ClientError, Dialler};
pub(crate) use floating::unit as floating_unit;
pub(crate) use perform::Performer;

/// Why a life ends.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// No client for coordinators can be made.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// A file cannot be read.
    #[error(transparent)]
    Unread(#[from] FoundError),
    /// An effect failed, and another try does not help.
    #[error(transparent)]
    Damage(perform::Error),
    /// Only an owner can go on.
    #[error("live as a member of the cluster")]
    Owner(#[source] OwnerReason),
}

/// Why it is not known what lies here.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FoundError {
    /// Keys or desired state.
    #[error("read what this machine is to be")]
    Load(#[from] enrolment::LoadError),
    /// etcd's data, or a note beside it.
    #[error(transparent)]
    Etcd(#[from] records::UsersError),
    /// The note of a recovery.
    #[error(transparent)]
    Recovery(#[from] records::RecoveryError),
}

/// Unit that lives a member's life; `begun` tells once nothing of its role is under way for the first time.
pub(crate) fn unit(performer: &Performer, begun: &watch::Sender<bool>) -> Unit {
    let (performer, begun) = (performer.clone(), begun.clone());
    let lives = move || {
        let life = live(performer.clone(), begun.clone());
        #[cfg(feature = "faults")]
        let life = {
            let performer = performer.clone();
            async move { performer.context().faults.beside(Broken::Member, life).await }
        };
        life
    };
    Unit::task("member", Ends::Never, Run::task(lives))
}

/// Ends of effects that are under way; dropped, it ends them.
#[derive(Debug, Default)]
struct Underway {
    tasks: JoinSet<Result<EffectOutcome, perform::Error>>,
    kinds: BTreeMap<Id, (EffectKind, AbortHandle)>,
}

impl Underway {
    fn begin(
        &mut self,
        kind: EffectKind,
        effect: impl Future<Output = Result<EffectOutcome, perform::Error>> + Send + 'static,
    ) {
        let task = self.tasks.spawn(effect);
        self.kinds.insert(task.id(), (kind, task));
    }

    /// Ends what of these kinds is under way: nobody is told.
    fn end(&mut self, kinds: impl Fn(EffectKind) -> bool) {
        for (_, (_, task)) in self.kinds.extract_if(.., |_, (kind, _)| kinds(*kind)) {
            task.abort();
        }
    }

    /// Next end of an effect; a panic is an error.
    async fn next(&mut self) -> (EffectKind, Result<EffectOutcome, Failure>) {
        loop {
            let Some(ended) = self.tasks.join_next_with_id().await else { return pending().await };
            let (id, outcome) = match ended {
                Ok((id, outcome)) => (id, outcome.map_err(Failure::Error)),
                Err(panicked) => (panicked.id(), Err(Failure::Panic(panicked))),
            };
            if let Some((kind, _)) = self.kinds.remove(&id) {
                return (kind, outcome);
            }
        }
    }
}

/// Failure of an effect.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error(transparent)]
    Error(perform::Error),
    #[error("an effect panicked")]
    Panic(#[source] JoinError),
}

/// Lives for as long as the machine serves.
async fn live(performer: Performer, begun: watch::Sender<bool>) -> Result<(), Error> {
    let member = performer.member();
    let facts = performer.board().facts().clone();
    let directories = member.renewing.directories();
    let dialler = Dialler::new(&member.identity, member.recorded.key_generation, &facts)?;
    let mut out = Vec::new();
    let mut life = Life::start(found(&performer).await?, clock::now(), &mut out);
    let (mut underway, mut attended) = (Underway::default(), None::<Attended>);
    let mut facts_change = facts.watch();
    let (mut missing, mut held) = (directories.missing(), directories.held());
    missing.mark_changed();
    held.mark_changed();
    let mut own = Own::of(&performer);
    let (mut looks, mut standstill) = (tokio::time::interval(LOOK), facts.standstills().watch());
    loop {
        for effect in out.drain(..) {
            #[cfg(feature = "faults")]
            performer.context().faults.before(&effect).await;
            perform(effect, &performer, &dialler, &mut attended, &mut underway)?;
        }
        if !underway.kinds.values().any(|(kind, _)| kind.is_of_the_role()) {
            begun.send_if_modified(|begun| !std::mem::replace(begun, true));
        }
        let event = tokio::select! {
            (kind, outcome) = underway.next() => Event::Done(kind, told(outcome)?),
            event = hear(&mut attended) => event,
            word = own.next() => Event::Records(word),
            Ok(()) = facts_change.changed() => Event::Endpoints(facts.read(|now| endpoints(&now.links))),
            heard = performer.told().learnt() => Event::Learnt(heard),
            Ok(()) = missing.changed() => Event::Missing(missing.borrow_and_update().iter().copied().collect()),
            Ok(()) = held.changed() => match known_directory(&performer, &mut held) {
                Some(event) => event,
                None => continue,
            },
            () = performer.context().reach.recovers.notified() => Event::Recover,
            () = performer.context().reach.erases.notified() => Event::Erase,
            () = time_to_look(&mut looks, &mut standstill) => match performer.renews() {
                true => Event::Renew,
                false => continue,
            },
            () = until(life.poll_timeout().map(|(due, _why)| due)) => Event::Tick,
        };
        performer.view(|view| life.handle(event, view, clock::now(), &mut out));
    }
}

/// Waits until it is time to look at the certificates of services: each [`LOOK`], and once the machine has stood still, since they may have
/// ended meanwhile.
async fn time_to_look(looks: &mut Interval, standstill: &mut NextStandstill) {
    tokio::select! {
        _ = looks.tick() => {}
        () = standstill.wait() => {}
    }
}

/// Reads what lies here.
async fn found(performer: &Performer) -> Result<LifeFacts, FoundError> {
    let member = performer.member();
    let told = performer.told();
    if told.version().is_none() {
        // What was heard before this boot is told again: without it nobody is reached.
        match tasks::blocking(|| kept::read(std::path::Path::new(enrolment::ROOT))).await {
            Ok(Some(known)) => told.begin(known),
            Ok(None) => tracing::debug!("nothing is known of the cluster's other machines"),
            Err(error) => tracing::warn!(error = %Chain(&error), "what was known of the other machines is lost"),
        }
    }
    let (desired, keys) = enrolment::desired().await?;
    let links = performer.board().facts().read(|now| endpoints(&now.links));
    Ok(LifeFacts {
        own: member.identity.holder.machine,
        desired,
        peers: told.version(),
        electorate: records::electorate().await?,
        announcement: Announcement { endpoints: links, epoch: None },
        role: RoleFacts {
            keys,
            begun: records::etcd_has_begun()?,
            recovery: records::noted_recovery()?.map(|(_, note)| note),
            running: performer.plan(),
        },
        kubernetes: performer.kubernetes_that_runs(),
    })
}

/// Performs an effect, or begins to.
fn perform(
    effect: Effect,
    performer: &Performer,
    dialler: &Dialler,
    attended: &mut Option<Attended>,
    underway: &mut Underway,
) -> Result<(), Error> {
    let kind = effect.kind();
    let mut begin = |effect: Performed| {
        if let Some(kind) = kind {
            underway.begin(kind, effect);
        }
    };
    let (it, dials) = (performer.clone(), dialler.clone());
    match effect {
        Effect::Attend { coordinator, known } => {
            underway.end(|kind| kind == EffectKind::Announce);
            tracing::info!(machine = %coordinator.0, address = %coordinator.1, "listens to a coordinator");
            let known = Knowledge { peers: known, parts: performer.orders().known() };
            *attended = Some(dialler.attend(coordinator, known));
        }
        Effect::Leave => {
            underway.end(|kind| kind == EffectKind::Announce);
            *attended = None;
        }
        Effect::Announce(said) => {
            if let Some(attended) = attended {
                let client = attended.client();
                begin(Box::pin(async move { Ok(dials.announce(client, said).await?) }));
            }
        }
        Effect::AskDirectory(place) => begin(Box::pin(async move {
            let signed = dials.directory(place).await?;
            it.member().renewing.directories().tell(Giver::Coordinator(place.0), signed);
            Ok(EffectOutcome::Whole)
        })),
        Effect::Directory { by, signed } => {
            performer.member().renewing.directories().tell(Giver::Coordinator(by), signed);
        }
        Effect::Mesh(news) => performer.told().take(news),
        Effect::Order(order) => performer.orders().take(order),
        Effect::Keep(file) => begin(Box::pin(it.keep(file))),
        Effect::NoteJoin => begin(Box::pin(Performer::note_join())),
        Effect::TakeKeys(place) => begin(Box::pin(it.take_keys(dials, place))),
        Effect::LookAtEtcd => begin(Box::pin(async { Performer::look_at_etcd() })),
        Effect::Units(plan) => {
            underway.end(|kind| kind.asks_etcd());
            underway.begin(EffectKind::Units, it.units(plan));
        }
        Effect::Kubernetes { assignment, signer } => begin(Box::pin(it.kubernetes(dials, (assignment, signer)))),
        Effect::WriteShare(holding, reason) => begin(Box::pin(it.write_share(holding, reason))),
        Effect::TakesKey(generation) => it.takes_key(generation),
        Effect::ReadOwnCopy { since } => begin(Box::pin(it.read_own_copy(since))),
        Effect::Decide(request) => begin(Box::pin(it.decide(request))),
        Effect::AskVote => begin(Box::pin(it.ask_vote())),
        Effect::KeepRecords => begin(Box::pin(it.keep_records())),
        Effect::LookAtMembers => begin(Box::pin(it.look_at_members())),
        Effect::ChangeMember(step) => begin(Box::pin(it.change_member(step))),
        Effect::PassLead => begin(Box::pin(it.pass_lead())),
        Effect::Defragment(machine) => begin(Box::pin(it.defragment(machine))),
        Effect::Restore { hash, step } => begin(Box::pin(it.restore(hash, step))),
        Effect::DropSnapshot => begin(Box::pin(it.drop_snapshot())),
        Effect::Revoke(machines) => begin(Box::pin(it.revoke(machines))),
        Effect::TrimAudit => begin(Box::pin(it.trim_audit())),
        Effect::Face(face) => begin(Box::pin(async move { it.face(face) })),
        Effect::EraseShares => begin(Box::pin(it.erase_shares())),
        Effect::EraseKeys => begin(Box::pin(it.erase_keys())),
        Effect::EraseEtcd => begin(Box::pin(Performer::erase_etcd())),
        Effect::PutEtcdAside => begin(Box::pin(Performer::put_etcd_aside())),
        Effect::CommitRecovery => begin(Box::pin(it.commit_recovery())),
        Effect::DropRecovery => begin(Box::pin(Performer::drop_recovery())),
        Effect::NeedOwner(need) => return Err(Error::Owner(need)),
        Effect::Report(part, text) => report(performer, part, text),
    }
    Ok(())
}

/// Effect that is being performed.
type Performed = std::pin::Pin<Box<dyn Future<Output = Result<EffectOutcome, perform::Error>> + Send>>;

/// Next word of the coordinator that is attended; its end is one, too.
async fn hear(attended: &mut Option<Attended>) -> Event {
    let Some(coordinator) = attended else { return pending().await };
    let by = coordinator.by;
    match coordinator.word().await {
        Ok(word) => Event::Told { by, word },
        Err(error) => {
            *attended = None;
            Event::Left { by, why: Chain(&error).to_string(), may_lead: error.may_lead() }
        }
    }
}

/// End of an effect, as the life hears it. Damage ends the life: no other try mends it.
fn told(outcome: Result<EffectOutcome, Failure>) -> Result<Result<EffectOutcome, String>, Error> {
    match outcome {
        Err(Failure::Error(error)) if durable::is_damage(&error) => Err(Error::Damage(error)),
        outcome => Ok(outcome.map_err(|failure| Chain(&failure).to_string())),
    }
}

fn report(performer: &Performer, part: Part, text: Option<String>) {
    if part == Part::Doubt {
        performer.context().reach.doubt(text.is_some());
    }
    match (part, text) {
        (Part::Doubt, Some(text)) => performer.board().error(&text),
        (Part::Role, Some(text)) => tracing::info!(%text, "the coordinator role is not as it should be yet"),
        (Part::Source, Some(text)) => tracing::info!(%text, "another coordinator is asked"),
        (Part::Keep, Some(text)) => tracing::error!(%text, "a file is not kept"),
        (Part::Copy, Some(text)) => tracing::info!(%text, "the cluster's records are not kept up"),
        (Part::Shares, Some(text)) => tracing::info!(reason = %text, "the cold-start key is not another one yet"),
        (Part::Kubernetes, text) => {
            if let Some(text) = &text {
                tracing::info!(%text, "Kubernetes does not run as it should yet");
            }
            performer.kubernetes_cannot_run(text);
        }
        (Part::Restore, text) => {
            if let Some(text) = &text {
                tracing::info!(%text, "the control plane stands still");
            }
            performer.stands_still(text);
        }
        (Part::Duty(kind), Some(text)) => tracing::info!(?kind, %text, "a coordinator's duty is not done yet"),
        (Part::Doubt | Part::Role | Part::Source | Part::Keep | Part::Copy | Part::Shares | Part::Duty(_), None) => {}
    }
}

/// Directory on the ESP, with the places that its coordinators have in the VPN.
fn known_directory(performer: &Performer, held: &mut watch::Receiver<Option<Arc<Directory>>>) -> Option<Event> {
    let directory = held.borrow_and_update().clone()?;
    let place = |coordinator: &Coordinator| -> Option<VpnPlace> {
        Some((coordinator.machine, performer.told().vpn_ip(&coordinator.machine)?))
    };
    let coordinators = directory.coordinators.iter().filter_map(place).collect();
    Some(Event::Directory { at: cluster::directory::of_version(directory.version), coordinators })
}

/// Own records of the machine, while units of a coordinator run.
struct Own {
    performer: Performer,
    running: watch::Receiver<Option<Records>>,
    records: Option<records::Own>,
}

impl Own {
    fn of(performer: &Performer) -> Self {
        let mut running = performer.records();
        running.mark_changed();
        Self { performer: performer.clone(), running, records: None }
    }

    /// Next state of them.
    async fn next(&mut self) -> OwnRecords {
        loop {
            let word = async {
                match &mut self.records {
                    Some(records) => records.next(self.performer.told(), self.performer.orders()).await,
                    None => pending().await,
                }
            };
            tokio::select! {
                Ok(()) = self.running.changed() => {
                    self.records = self.running.borrow_and_update().as_ref().map(Records::own);
                }
                word = word => return word,
            }
        }
    }
}
