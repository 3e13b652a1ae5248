//! Laws of members' lives (what each may do with what lies and runs on its machine), asked for before each effect and after each word.
//! Knows nothing of what decides.

use cluster::desired::Desired;
use cluster::state::{HandOverError, StateVersion};
use member::{Effect, EffectKind, EtcdStart, KeptFile, OwnerReason};
use model::{ClusterRole, KubernetesRole};

use super::{Breach, holds};

/// Voices that say of a coordinator that it is a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Voices {
    /// The machine's own records, or an owner; also where it never had such records.
    Itself,
    /// Other coordinators.
    Others {
        /// So many of those that its own records named last.
        said: usize,
        /// So many were named.
        of: usize,
    },
}

impl Voices {
    /// Whether they make a node of a coordinator: two others, or all where there are fewer.
    #[must_use]
    pub fn are_enough(self) -> bool {
        match self {
            Self::Itself => true,
            Self::Others { said, of } => said >= of.min(2),
        }
    }
}

/// Facts of a machine before an effect.
#[derive(Debug, Clone, Copy)]
pub struct Facts<'a> {
    /// Desired state on its disk.
    pub kept: &'a Desired,
    /// Whether it goes on as the node that it was, until it knows that it has kept something else.
    pub goes_on_as_node: bool,
    /// Whether a coordinator's keys lie there.
    pub keys: bool,
    /// Whether an etcd that has begun lies there.
    pub has_begun: bool,
    /// Whether that is a member of the cluster's etcd.
    pub is_member: bool,
    /// How etcd was started that runs.
    pub runs: Option<&'a EtcdStart>,
    /// Voices that say of it that it is a node.
    pub voices: Voices,
    /// Whether any voice says so.
    pub is_doubted: bool,
    /// Whether a recovery was noted in an earlier boot.
    pub noted_before: bool,
    /// Whether a recovery is noted, or etcd goes on from one.
    pub is_noted: bool,
    /// Whether the records count the recovery that is noted; so it is where none is.
    pub is_recovered: bool,
    /// Whether no other machine votes in etcd.
    pub is_alone: bool,
    /// Whether etcd was started to take all others out, as its note says, and the records do not count that yet.
    pub may_be_uncounted: bool,
    /// Whether the etcd that lies there has taken all others out, which the records do not count yet.
    pub is_uncounted: bool,
    /// Whether other coordinators that it knows, and reached when it asked them last, have a leader. Whom it does not know it cannot ask.
    pub others_lead: bool,
    /// Whether other coordinators have one, or had one so lately that they tell still.
    pub others_tell: bool,
}

/// Units run while something of a coordinator is erased.
pub const ERASED: &str = "nothing of a coordinator is erased while its units run";
/// Something is erased that may be needed.
pub const NEEDED: &str =
    "nothing is erased but on a kept Desired that says Node, or of an etcd that has not begun or is no member";
/// Units of a coordinator on a node.
pub const ROLE: &str = "no unit runs without its role in the kept Desired, and its keys";
/// An etcd that has begun is told of members.
pub const BEGUN: &str = "an etcd that has begun is given no members, and stopped for none";
/// Two voices.
pub const VOICE: &str = "one former coordinator that lies erases nobody: Node is kept by two voices";
/// A note of a recovery.
pub const NOTE: &str = "the note of a recovery goes once the records count it, or others lead";
/// An etcd of its own.
pub const UNCOUNTED: &str = "an etcd that has taken the others out is counted by the records, or put aside";
/// Two clusters.
pub const CLUSTERS: &str = "never two clusters after a recovery, whenever its note is found";
/// A version.
pub const VERSION: &str = "a lower version changes nothing";
/// An old look.
pub const LOOK: &str = "nobody is told Node while etcd has it or its share is needed";
/// Kubernetes without its role.
pub const KUBERNETES: &str =
    "of Kubernetes runs only what the kept Desired says, and a control plane beside the machine's own etcd";
/// Certificates of workers.
pub const CERTIFIED: &str = "no Kubernetes certificate to who lacks the role";
/// Keys of coordinators.
pub const KEYS: &str = "keys go only to coordinators that etcd has as learners";
/// Keys by an old copy.
pub const GIVEN: &str = "keys are given only where etcd confirms the copy that says so";
/// An acknowledgement.
pub const SHARE: &str = "a share is acknowledged once it lies on the ESP";
/// A cluster key that a start takes.
pub const CARRIED: &str = "who says that its next start takes a cluster key has it in each share that it holds";
/// Two steps of a role.
pub const STEP: &str = "one step of a role follows the other";

/// Checks an effect before it is performed.
///
/// # Errors
/// [`Breach`] names the law.
pub fn performs(n: u16, effect: &Effect, facts: &Facts<'_>) -> Result<(), Breach> {
    let how = || format!("machine {n}: {effect:?}, {facts:?}");
    let is_node = facts.kept.assignment.role() == ClusterRole::Node;
    match effect {
        Effect::EraseShares | Effect::EraseKeys | Effect::EraseEtcd | Effect::PutEtcdAside => {
            holds(ERASED, facts.runs.is_none(), how)?;
            let aside = *effect == Effect::PutEtcdAside && facts.may_be_uncounted && facts.others_tell;
            let of_none = aside || !(matches!(effect, Effect::EraseShares) || facts.has_begun && facts.is_member);
            holds(NEEDED, is_node || facts.goes_on_as_node || of_none, how)?;
            let notes = matches!(effect, Effect::EraseEtcd | Effect::PutEtcdAside);
            holds(NOTE, !notes || facts.is_recovered || !facts.is_alone, how)
        }
        Effect::Units(Some(plan)) => {
            holds(ROLE, !is_node && facts.keys, how)?;
            let names = matches!(plan, EtcdStart::Existing { others } if !others.is_empty());
            holds(BEGUN, !(names || *plan == EtcdStart::New) || !facts.has_begun, how)?;
            holds(UNCOUNTED, *plan == EtcdStart::Recovered || !facts.is_uncounted, how)?;
            let recovers = *plan == EtcdStart::Recovered && facts.noted_before;
            holds(CLUSTERS, !(recovers && facts.others_lead), how)
        }
        Effect::Kubernetes { assignment, signer } => {
            let (roles, may) = (assignment.kubernetes(), facts.kept.assignment.kubernetes());
            let has_etcd = facts.runs.is_some();
            let is_assigned = roles.is_subset(may);
            let is_beside = has_etcd || !roles.contains(&KubernetesRole::ControlPlane);
            let has_signer = has_etcd || signer.is_some() || roles.is_empty();
            holds(KUBERNETES, is_assigned && is_beside && has_signer, how)
        }
        Effect::Units(None) => {
            let for_members = matches!(facts.runs, Some(EtcdStart::Existing { others }) if !others.is_empty());
            let is_wanted = !is_node && facts.is_member && !facts.is_noted && !facts.is_doubted;
            holds(BEGUN, !(for_members && facts.has_begun && is_wanted), how)
        }
        Effect::Keep(KeptFile::Desired(desired)) => {
            let says_node = desired.assignment.role() == ClusterRole::Node;
            holds(VOICE, !says_node || is_node || !facts.has_begun || facts.voices.are_enough(), how)
        }
        Effect::NoteJoin | Effect::DropRecovery => {
            holds(UNCOUNTED, !facts.is_uncounted, how)?;
            holds(NOTE, facts.is_recovered || !facts.is_alone, how)
        }
        Effect::Keep(KeptFile::Electorate(_) | KeptFile::Peers)
        | Effect::TakeKeys(_)
        | Effect::LookAtEtcd
        | Effect::Face(_)
        | Effect::CommitRecovery
        | Effect::WriteShare(..)
        | Effect::ReadOwnCopy { .. }
        | Effect::TakesKey(_)
        | Effect::Decide(_)
        | Effect::AskVote
        | Effect::KeepRecords
        | Effect::LookAtMembers
        | Effect::ChangeMember(_)
        | Effect::PassLead
        | Effect::Defragment(_)
        | Effect::Restore { .. }
        | Effect::DropSnapshot
        | Effect::Revoke(_)
        | Effect::TrimAudit
        | Effect::Attend { .. }
        | Effect::Leave
        | Effect::Announce(_)
        | Effect::AskDirectory(_)
        | Effect::Directory { .. }
        | Effect::Mesh(_)
        | Effect::Order(_)
        | Effect::NeedOwner(_)
        | Effect::Report(..) => Ok(()),
    }
}

/// Checks a step of the role that begins, where another one may be under way.
///
/// # Errors
/// [`Breach`] when one is.
pub fn one_step(n: u16, underway: Option<EffectKind>, begins: EffectKind) -> Result<(), Breach> {
    holds(STEP, underway.is_none(), || format!("machine {n}: {begins:?} beside {underway:?}"))
}

/// Checks the version that a machine goes by after a word, with how many coordinators knew less than it and how many there are.
///
/// # Errors
/// [`Breach`] when it goes by a lower one.
pub fn version(
    n: u16,
    (before, after): (Option<StateVersion>, Option<StateVersion>),
    (behind, others): (usize, usize),
) -> Result<(), Breach> {
    let doubted = behind >= others.clamp(1, 2);
    holds(VERSION, before <= after || doubted, || format!("machine {n}: {before:?}, then {after:?}"))
}

/// Checks a word that says Node to a machine, which is `needed`.
///
/// # Errors
/// [`Breach`] when it is.
pub fn told_node(n: u16, needed: bool) -> Result<(), Breach> {
    holds(LOOK, !needed, || format!("machine {n}"))
}

/// Checks keys that were handed over.
///
/// # Errors
/// [`Breach`] when they may not be.
pub fn handed_over(n: u16, may: Result<(), HandOverError>) -> Result<(), Breach> {
    may.map_err(|why| Breach { law: KEYS, how: format!("machine {n}: {why}") })
}

/// Checks certificates that a machine was given as a worker.
///
/// # Errors
/// [`Breach`] when it is none.
pub fn certified(n: u16, is_worker: bool) -> Result<(), Breach> {
    holds(CERTIFIED, is_worker, || format!("machine {n}"))
}

/// Checks keys that were given by a coordinator, whose etcd has a leader or not.
///
/// # Errors
/// [`Breach`] when it has none: then nobody confirms what its copy says.
pub fn given(n: u16, is_led: bool) -> Result<(), Breach> {
    holds(GIVEN, is_led, || format!("machine {n}"))
}

/// Checks that a machine that acknowledges a share of an epoch has it.
///
/// # Errors
/// [`Breach`] when it has not.
pub fn acknowledged(machine: model::MachineId, epoch: u32, holds_it: bool) -> Result<(), Breach> {
    holds(SHARE, holds_it, || format!("{machine}, epoch {epoch}"))
}

/// Checks that a machine that heard all knows the peers.
///
/// # Errors
/// [`Breach`] when it does not.
pub fn knows(n: u16, knows: bool) -> Result<(), Breach> {
    holds("every live machine converges to the store's peers", knows, || format!("machine {n} does not"))
}

/// Checks the word of a coordinator that its next start takes the cluster key of `generation`.
///
/// # Errors
/// [`Breach`] when not all its shares carry that.
pub fn takes(n: u16, generation: u32, is_carried: bool) -> Result<(), Breach> {
    holds(CARRIED, is_carried, || format!("machine {n}: a share without generation {generation}"))
}

/// Checks the next deadline of a life that has just done all that was due: a shell that waits for a past one waits for nothing.
///
/// # Errors
/// [`Breach`] when that is `past`.
pub fn waits(n: u16, past: bool, why: &str) -> Result<(), Breach> {
    holds("no life waits for a deadline that is past", !past, || format!("machine {n}: {why}"))
}

/// Breach of a law by a machine that needs its owner, though nothing was damaged.
#[must_use]
pub fn needs_owner(n: u16, why: OwnerReason) -> Breach {
    Breach { law: "no machine needs its owner while nothing is damaged", how: format!("machine {n}: {why}") }
}
