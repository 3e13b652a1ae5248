//! Enrolment: reads what a boot decides by, then performs what `enrol` decided. Decides nothing itself.
//!
//! ```text
//!   read ─► Findings ───────────────── uplink, public API ───────────────► act ─► Outcome: Member, or
//!    ▲ ESP, header, TPM, unseal;     (network, prefixes and name         effects in the order of the plan   │
//!    │ writes nothing anywhere        come from Findings)                                                     Waits
//!    └───────────────────── GivenAnswers ◄── given: performs what `enrol` asks for, and hands on the answers ◄─────┘
//! ```
//! Whatever fails leaves the machine up, with console and API, in a state that says why.

pub(crate) mod activate;
mod ask;
pub(crate) mod contribute;
mod create;
mod fellow;
mod join;
mod member;
mod perform;
mod question;
pub(crate) mod recover;
mod release;
mod renew;
pub(crate) mod shares;
mod vault;

use std::io;
use std::mem;
use std::net::SocketAddrV4;
use std::path::Path;
use std::sync::Arc;

use cluster::desired::Desired;
use enrol::asking::{self, Answer, AnswerError, GivenAnswers, WaitingMachine};
use enrol::create::Creation;
use enrol::failure::Failure;
use enrol::found::{BootDecision, Findings, Inputs, Report, decide};
use enrol::join::{Asker, Draft, JoiningMachine, Material};
use enrol::making::Fresh;
use enrol::member::Membership;
use enrol::opening::{Minimum, OpenableDisk};
use enrol::plan::{Capped, Halt, Plan};
use enrol::seal::Seal;
use enrol::wait::Wait;
use keys::coordinator::CoordinatorKeys;
use keys::data_key::Holder;
use keys::identity::Identity;
use model::{Assignment, Chain, ClusterId, ClusterKey, DiskUuid, PowerOn, Secret, Underway, Waiting};
use pki::CertificateDer;
use tokio::sync::{mpsc, oneshot};
use unlock::renewal::DirectoryWrite;

use crate::facts::Link;
use crate::machine::disk::Disk;
use crate::machine::esp::{self, Esp};
use crate::machine::tpm::{EndOf, Tpm};
use crate::runtime::child::{Children, PROGRAMS};
use crate::runtime::clock::{self, Known};
use crate::runtime::{read_ahead, tasks};
use crate::shown::board::Board;
use crate::storage::{self, CloseError};

use activate::Activation;
use contribute::Exchange;
pub(crate) use create::{MakeError, sign};
pub(crate) use fellow::Fellows;
pub(crate) use member::{Member, owners};
use perform::{Data, LocalPerformer};
use question::Questions;
use recover::{Rescue, Told};
pub(crate) use renew::{Directories, Renewing};
use shares::Shares;
pub(crate) use vault::{Authorities, LoadError, ROOT};

/// Why nothing can be decided: what was there could not be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReadError {
    /// The ESP.
    #[error("read the ESP")]
    Esp(#[from] esp::Error),
    /// The data header.
    #[error("read the data partition")]
    Header(#[from] storage::HeaderError),
}

/// End of a round: a member, or a machine that waits.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// A member with its data open.
    Member(Box<Member>, Underway, Capped),
    /// There is nothing that the machine can do by itself. A seal that opened says all the same who it is.
    Waits(Waiting, Wait, Option<Box<Seal>>),
}

/// How others get to a machine that waits.
#[derive(Debug)]
pub(crate) struct Ways {
    /// Activation by a person, while the machine is blank.
    pub(crate) activation: Activation,
    /// Half or directory from the owner, while the machine waits for its key.
    pub(crate) rescue: Rescue,
    /// Other voters, while it waits for theirs.
    pub(crate) exchange: Exchange,
}

#[cfg(test)]
impl Ways {
    /// Ways to a machine that waits for nobody.
    pub(crate) fn of_nobody() -> Self {
        Self { activation: Activation::of_nobody(), rescue: Rescue::of_nobody(), exchange: Exchange::default() }
    }
}

/// Parts with which enrolment works until the machine is a member.
#[derive(Debug)]
pub(crate) struct Enrolment {
    disk: Disk,
    board: Board,
    children: Children,
    esp: Esp,
    /// The one that [`Self::read`] found, until it is capped.
    tpm: Option<Tpm>,
    /// Answers that a waiting machine is given, whoever gives them.
    answers: mpsc::Receiver<Told>,
    questions: Questions,
}

impl Enrolment {
    /// Everything that is written lies on `disk`; `board` shows how far it is; what makes the file system is one of
    /// `children`. Mounts the ESP.
    ///
    /// # Errors
    /// [`ReadError::Esp`].
    pub(crate) async fn begin(disk: Disk, board: &Board, children: &Children) -> Result<Self, ReadError> {
        let device = disk.esp.clone();
        let esp = tasks::blocking(move || Esp::mount(&device)).await?;
        let (questions, answers) = Questions::new(board);
        Ok(Self { disk, board: board.clone(), children: children.clone(), esp, tpm: None, answers, questions })
    }

    /// How others get to this machine while it waits.
    pub(crate) fn ways(&self) -> Ways {
        self.questions.ways()
    }

    /// Reads everything and has it decided, with what was given. Writes nothing, but for the TPM's random bytes in the
    /// kernel's pool.
    ///
    /// # Errors
    /// [`ReadError`] when ESP or data header are there but cannot be read.
    pub(crate) async fn read(&mut self, given: GivenAnswers) -> Result<Findings, ReadError> {
        // Its device opens once at a time.
        self.tpm = None;
        let (disk, esp, boot_class) = (self.disk.clone(), self.esp.clone(), self.board.facts().boot().class);
        let read = tasks::blocking(move || {
            let (files, header) = (esp.read()?, storage::read_header(&disk.data)?);
            let inputs = Inputs { files: &files, header: &header, boot_class, given };
            Ok::<_, ReadError>(match Tpm::find(boot_class) {
                Ok(mut tpm) => (decide(inputs, Ok(tpm.as_mut())), tpm),
                Err(error) => (decide::<Tpm>(inputs, Err(error)), None),
            })
        });
        let (found, tpm) = read.await?;
        self.tpm = tpm;
        for report in &found.reports {
            match report {
                Report::SenselessShare(_) => tracing::warn!("{report}"),
                Report::OneShareOf { .. } | Report::ConfigIgnored => tracing::info!("{report}"),
                Report::NotAccepted(why) => {
                    tracing::warn!(reason = %Chain(why), "an answer of the cluster is not taken")
                }
            }
        }
        Ok(found)
    }

    /// Does what was decided.
    ///
    /// # Errors
    /// [`CloseError`] when something failed and the data partition could not be closed again: then only a restart makes
    /// sure that its key is gone. Everything else that fails is a state to wait in.
    pub(crate) async fn act(&mut self, decision: BootDecision, power_on: PowerOn) -> Result<Outcome, CloseError> {
        if !matches!(decision, BootDecision::Wait(Wait::AwaitingKeys(_), _)) {
            self.questions.needs_nothing();
        }
        let (underway, prepared) = match decision {
            BootDecision::Wait(wait, seal) => return Ok(Outcome::Waits(power_on.waits(wait.state()), wait, seal)),
            BootDecision::Join(joining) => {
                let wait = self.attempt(*joining).await.map_or_else(Wait::Failed, |asker| Wait::LetIn(Box::new(asker)));
                return Ok(Outcome::Waits(power_on.waits(wait.state()), wait, None));
            }
            BootDecision::Admitted(draft) => {
                let underway = power_on.enrols();
                self.board.underway(&underway, "joining a cluster");
                clock::correct(Known::Cluster(draft.time()));
                (underway, self.join(*draft).await)
            }
            BootDecision::Create(creation) => {
                let underway = power_on.enrols();
                self.board.underway(&underway, "creating a cluster");
                (underway, self.create(*creation).await)
            }
            BootDecision::Open(opening) => {
                let underway = if opening.finishes_create() { power_on.enrols() } else { power_on.opens() };
                self.board.underway(&underway, opening.message());
                clock::correct(Known::Seal(opening.sealed_at()));
                (underway, self.open(*opening).await)
            }
        };
        let performed = match prepared {
            Ok(prepared) => self.perform(prepared).await,
            Err(failure) => Err(Halt::Failed(failure)),
        };
        match performed {
            Ok((member, capped)) => Ok(Outcome::Member(Box::new(member), underway, capped)),
            Err(Halt::Failed(failure)) => {
                let wait = Wait::Failed(failure);
                Ok(Outcome::Waits(underway.waits(wait.state()), wait, None))
            }
            Err(Halt::Open(error)) => Err(error),
        }
    }

    /// Waits until the machine is given something to go on with; for ever, where nothing helps in this boot.
    pub(crate) async fn given(&mut self, wait: &Wait, seal: Option<&Seal>) -> GivenAnswers {
        let (questions, mut effects) = (self.questions.clone(), Vec::new());
        let mut waiting = WaitingMachine::start(wait, seal, &mut effects);
        let mut asked = question::none();
        let mut outcome: Option<oneshot::Sender<_>> = None;
        loop {
            for effect in mem::take(&mut effects) {
                let mut word = |word| outcome.take().map(|outcome| outcome.send(word));
                match effect {
                    asking::Effect::Ask(question) => asked = questions.ask(question),
                    asking::Effect::Cancel => {
                        // Whoever gave the answer hears that it was taken before the question is gone.
                        let _or_nobody_listens = word(Ok(()));
                        asked = question::none();
                        questions.cancel();
                    }
                    asking::Effect::Resume(given) => return given,
                    asking::Effect::Renew(write) => match self.renew(write).await {
                        Ok(()) => waiting.answered(Answer::Retry, &[], &mut effects),
                        Err(error) => {
                            let _or_nobody_listens = word(Err(AnswerError::NotWritten));
                            tracing::error!(error = %Chain(&error), "the directory that the owner gave is not written");
                        }
                    },
                    asking::Effect::Cap(holder) => self.cap(holder).await,
                    asking::Effect::Report(refused) => {
                        let _or_nobody_listens = word(Err(refused));
                        tracing::warn!(reason = %Chain(&refused), "an answer is refused");
                    }
                }
            }
            if effects.is_empty() {
                let told = tokio::select! {
                    told = self.answers.recv() => told.expect("this end holds a sender, too"),
                    never = &mut asked => match never {},
                };
                outcome = told.outcome;
                waiting.answered(told.answer, &self.board.facts().leased(), &mut effects);
            }
        }
    }

    /// Makes the directory durable that its owner gives a machine that waits.
    async fn renew(&self, write: DirectoryWrite) -> Result<(), esp::Error> {
        let written = perform::renewed(self.esp.clone(), write).await?;
        tracing::info!(version = written.version(), "the cluster's directory is the one that the owner gave");
        Ok(())
    }

    /// The cap of a machine that waits for its next boot. Nothing runs behind it that could unseal, so one that fails is told.
    async fn cap(&mut self, holder: Option<Holder>) {
        let Some(tpm) = self.tpm.take() else { return };
        if let Err(error) = tasks::blocking(move || tpm.end(EndOf::Waiting(holder))).await {
            tracing::error!(error = %Chain(&error), "the TPM of a waiting machine is not capped");
        }
    }

    async fn create(&mut self, creation: Creation) -> Result<Prepared, Failure> {
        read_programs_ahead(&creation.assignment());
        self.board.step("identity");
        let endpoints = self.board.facts().read(|now| endpoints(&now.links));
        let mut tpm = self.tpm.take();
        let made = tasks::blocking(move || {
            let made = create::make(creation, tpm.as_mut(), endpoints, clock::unix());
            (made, tpm)
        });
        let (made, tpm) = made.await;
        self.tpm = tpm;
        let (plan, membership) = made.map_err(|error| Failure::Keys(error.into()))?;
        Ok(Prepared { plan, membership })
    }

    /// Makes durable what the machine needs to ask.
    async fn attempt(&mut self, joining: JoiningMachine) -> Result<Asker, Failure> {
        self.board.step("identity");
        let (mut tpm, mut performer) = (self.tpm.take(), self.performer());
        let attempted = tasks::blocking(move || {
            let material = Material::draw(create::random).map_err(|error| Failure::Keys(error.into()))?;
            let attempting = joining.attempt(material, tpm.as_mut()).map_err(|error| Failure::Keys(error.into()))?;
            attempting.perform(&mut performer)
        });
        attempted.await
    }

    async fn join(&mut self, draft: Draft) -> Result<Prepared, Failure> {
        read_programs_ahead(draft.assignment());
        let mut tpm = self.tpm.take();
        let planned = tasks::blocking(move || {
            let planned = Fresh::draw(create::random).map_err(|error| Failure::Keys(error.into())).and_then(|fresh| {
                let planned = draft.plan(fresh, tpm.as_mut(), clock::unix().as_secs());
                planned.map_err(|error| Failure::Keys(error.into()))
            });
            (planned, tpm)
        });
        let (planned, tpm) = planned.await;
        self.tpm = tpm;
        planned.map(|(plan, membership)| Prepared { plan, membership })
    }

    /// With the seal's minimum as high as the ESP allows. Where it cannot rise the machine opens as before.
    async fn open(&mut self, mut opening: OpenableDisk) -> Result<Prepared, Failure> {
        let mut tpm = self.tpm.take();
        let raised = tasks::blocking(move || {
            let authority = CertificateDer::from(opening.identity().ca_certificate.clone());
            let raised = pki::public_key_of(&authority).map_err(|error| Chain(&error).to_string()).and_then(|ca| {
                let raised = opening.raise(&ca.spki(), tpm.as_mut(), create::random, clock::unix().as_secs());
                raised.map_err(|error| Chain(&error).to_string())
            });
            (raised, opening, tpm)
        });
        let (raised, opening, tpm) = raised.await;
        self.tpm = tpm;
        match raised {
            Ok(Some(Minimum { directory, header })) => {
                tracing::info!(
                    directory,
                    header,
                    "older directories and data headers are refused from the next boot on"
                );
            }
            Ok(None) => {}
            Err(reason) => self.board.error(&format!("the seal's minimum is not raised: {reason}")),
        }
        let (plan, membership) = opening.plan(create::random).map_err(|error| Failure::Ready(error.into()))?;
        Ok(Prepared { plan, membership })
    }

    /// Performs on this machine, with the TPM if it is not in use.
    fn performer(&mut self) -> LocalPerformer {
        LocalPerformer {
            disk: self.disk.clone(),
            board: self.board.clone(),
            children: self.children.clone(),
            esp: self.esp.clone(),
            tpm: self.tpm.take(),
            data: Data::Closed,
        }
    }

    async fn perform(&mut self, prepared: Prepared) -> Result<(Member, Capped), Halt<CloseError>> {
        let Prepared { plan, membership } = prepared;
        member::tell(&membership, self.board.facts());
        let mut performer = self.performer();
        let renewing = Renewing::of(&membership, &self.esp, self.questions.directories());
        let shares = Shares::of(&membership, &self.esp, self.questions.directories());
        let performed = tasks::blocking(move || {
            let capped = plan.perform(&mut performer)?;
            let (data, kept) = performer.into_data();
            Ok((Member::new(membership, kept, (renewing, shares), data), capped))
        });
        performed.await
    }
}

/// A machine that enrols waits for its TPM and its new file system, with a processor to spare.
fn read_programs_ahead(assignment: &Assignment) {
    read_ahead::begin(services::programs(assignment).map(|name| Path::new(PROGRAMS).join(name)).collect());
}

/// A plan, and whom it makes a member.
struct Prepared {
    plan: Plan,
    membership: Membership,
}

/// The key under which the cluster's Secrets lie in etcd. Only who starts an apiserver asks for it: neither it nor the
/// master secret it comes from stays in memory.
///
/// # Errors
/// [`LoadError`] when the data partition does not give the master secret.
pub(crate) async fn kubernetes_secrets_key(cluster: ClusterId) -> Result<Secret<32>, LoadError> {
    tasks::blocking(move || {
        let master = vault::load_master_secret(ROOT)?;
        Ok(keys::identity::kubernetes_secrets_key(&master, cluster))
    })
    .await
}

/// The cluster's half of what opens `disk`, in its `generation`, for a machine that is given it. As above.
///
/// # Errors
/// [`LoadError`] when the data partition does not give the master secret.
pub(crate) async fn cluster_key(cluster: ClusterId, disk: DiskUuid, generation: u32) -> Result<ClusterKey, LoadError> {
    tasks::blocking(move || {
        let master = vault::load_master_secret(ROOT)?;
        Ok(keys::identity::cluster_key(&master, cluster, disk, generation))
    })
    .await
}

/// Keys that another machine of the cluster needs to be a coordinator, too.
///
/// # Errors
/// [`LoadError`] when the data partition does not give it.
pub(crate) async fn hand_over() -> Result<CoordinatorKeys, LoadError> {
    tasks::blocking(|| vault::hand_over(ROOT)).await
}

/// Keeps what the machine is to be from now on in `root`: before it is obeyed.
///
/// # Errors
/// [`LoadError`]; what was kept before is kept still.
pub(crate) async fn keep(root: &'static Path, desired: Desired) -> Result<(), LoadError> {
    tasks::blocking(move || vault::keep(root, &desired)).await
}

/// Keeps what was handed over: from the next start on, too, the machine is a coordinator, once etcd has begun.
///
/// # Errors
/// [`LoadError`]; the machine is a node still.
pub(crate) async fn take_up(keys: CoordinatorKeys, identity: Arc<Identity>) -> Result<Authorities, LoadError> {
    tasks::blocking(move || vault::take_up(ROOT, &keys, &identity.ca_certificate)).await
}

/// Desired state of the machine as it is kept, and whether all keys of a coordinator are.
///
/// # Errors
/// [`LoadError`] when the data partition does not give them.
pub(crate) async fn desired() -> Result<(Desired, bool), LoadError> {
    tasks::blocking(|| vault::desired(ROOT)).await
}

/// Authorities of a coordinator, as they are kept.
///
/// # Errors
/// [`LoadError`] when the data partition does not give them.
pub(crate) async fn authorities() -> Result<Authorities, LoadError> {
    tasks::blocking(|| vault::load_authorities(ROOT)).await
}

/// Erases what makes a coordinator.
///
/// # Errors
/// [`LoadError`]; it may be asked for again.
pub(crate) async fn lay_down() -> Result<(), LoadError> {
    tasks::blocking(|| vault::lay_down(ROOT)).await
}

/// Deletes the first-contact secret: the owner has called. To be told by `Entrance::claimed`.
///
/// # Errors
/// When the file is there and cannot be removed; the secret in memory is gone all the same.
pub(crate) async fn forget_first_contact() -> io::Result<()> {
    tasks::blocking(|| vault::forget_first_contact(ROOT)).await
}

/// Where other machines will find this one.
fn endpoints(links: &[Link]) -> Vec<String> {
    links.iter().map(|link| SocketAddrV4::new(link.address.ip, model::PUBLIC_API_PORT).to_string()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::Address;

    #[test]
    fn endpoints_are_the_addresses_of_the_links() {
        let link = |name: &str, ip: &str, prefix: &str| {
            let (ip, prefix) = (ip.parse().expect("an address"), prefix.parse().expect("a prefix"));
            Link { name: name.to_owned(), address: Address { ip, prefix } }
        };
        let links = [link("eth0", "192.0.2.10", "192.0.2.0/24"), link("eth1", "198.51.100.7", "198.51.100.7/32")];
        assert_eq!(endpoints(&links), ["192.0.2.10:7836", "198.51.100.7:7836"]);
        assert!(endpoints(&[]).is_empty());
    }
}
