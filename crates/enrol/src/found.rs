//! Decision of a boot, made by what was read and nothing else: seal × header → [`BootDecision`]. Never writes; asks nobody but the
//! TPM for what it keeps.
//!
//! | seal | header | decision |
//! |---|---|---|
//! | a slot of its file cannot be read, and the other holds none | any | `NeedsOwner`: names the file |
//! | none | none, or each copy blank or a valid provisional | `Create` with a config, else wait: `Blank` |
//! | none | a committed copy, or anything else that is not blank | `NeedsOwner`: nothing is formatted |
//! | there, does not unseal | any | `NeedsOwner`: names the cause |
//! | good | blank | `NeedsOwner`: the disk is not this seal's |
//! | good | provisional, opens | `Open`, and commit it first |
//! | good | committed, cluster half not at hand | wait: `AwaitingKeys` |
//! | good | committed, opens | `Open` |
//! | good | does not open | `NeedsOwner`: says which half is wrong, or that the header is damaged |
//! | attempt | blank or provisional | with its config: `Join` as the same machine, format anew; else as without a seal |
//! | attempt | a committed copy, or anything else that is not blank | `NeedsOwner` |
//! | the TPM fails | any | wait: `Failed` |
//!
//! [`Plan`]s are made of a [`Creation`], a [`JoiningMachine`] or an [`OpenableDisk`], and those are made here only:
//! ```compile_fail,E0624
//! fn beside(effects: Vec<enrol::step::Effect>, holder: keys::data_key::Holder) {
//!     enrol::plan::Plan::enrol(effects, holder); // of nothing that was decided
//! }
//! ```
//! ```compile_fail,E0451
//! fn beside(seal: enrol::seal::Seal, opened: keys::data_key::OpenDisk) {
//!     let leftovers = enrol::files::Leftovers::default();
//!     enrol::opening::OpenableDisk { seal, opened, half: None, leftovers, locking: todo!(), raising: todo!() }; // somebody else opened it
//! }
//! ```

use keys::cold_start::UnknownHolder;
use keys::data_key::{ClusterHalf, OpenError, open};
use keys::header::{Copies, Copy, HeaderError, HeaderState};
use keys::record::Record;
use keys::seal::{self, Body, Clear};
use keys::two_slot::File;
use model::{BootClass, NetworkConfig, Prefixes};
use unlock::locked::LockedDisk;
use unlock::share::{OpenShare, open_shares};
use zeroize::Zeroizing;

use crate::asking::GivenAnswers;
use crate::config::{ConfigError, EnrolmentConfig, Intent, TpmPresence, VerifiedConfig};
use crate::create::Creation;
use crate::failure::Failure;
use crate::files::{Files, Leftover, Leftovers};
use crate::join::{self, Asker, FittingOffer, JoiningMachine, OfferError};
use crate::keeper::Keeper;
use crate::making::Site;
use crate::opening::{Beside, OpenableDisk};
use crate::seal::{Begun, Seal, Unsealed, unseal};
use crate::wait::{Reason, Wait};

/// Everything a decision is made of, but the TPM.
#[derive(Debug)]
pub struct Inputs<'a> {
    /// Files that lie on the ESP, and what the hypervisor passed.
    pub files: &'a Files,
    /// Both places of the data header.
    pub header: &'a Copies,
    /// How the machine was started.
    pub boot_class: BootClass,
    /// GivenAnswers that a waiting machine was given; none at first.
    pub given: GivenAnswers,
}

/// All that was found on this machine: what its network needs, and what this boot does.
#[derive(Debug)]
pub struct Findings {
    /// How the machine gets its public addresses.
    pub network: NetworkConfig,
    /// Address ranges that the machine's cluster keeps for itself, where the machine knows it.
    pub prefixes: Option<Prefixes>,
    /// Create, join, open or wait.
    pub decision: BootDecision,
    /// Reports of what was passed over on the way to the decision, in the order in which it was met.
    pub reports: Vec<Report>,
}

/// Decision on what this boot does, with everything it needs to do it.
#[derive(Debug)]
pub enum BootDecision {
    /// Creates a cluster; whatever an abandoned attempt left is overwritten.
    Create(Box<Creation>),
    /// Asks a cluster to let the machine in.
    Join(Box<JoiningMachine>),
    /// Becomes a member of the cluster that let the machine in.
    Admitted(Box<join::Draft>),
    /// Opens the data partition.
    Open(Box<OpenableDisk>),
    /// Waits. A seal that opened says all the same who the machine is.
    Wait(Wait, Option<Box<Seal>>),
}

/// A line for the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Report {
    /// A share opened, and others are needed beside it.
    #[error("the cold-start key of epoch {epoch} takes {needed} shares, and this machine has one")]
    OneShareOf {
        /// Which key.
        epoch: u32,
        /// How many shares give it.
        needed: usize,
    },
    /// A share is not this machine's, or the key that it should give does not open what lies beside it.
    #[error("the share of epoch {0} is of no use: it was changed, or is not this machine's")]
    SenselessShare(u32),
    /// A sealed machine takes no config any more.
    #[error("ignoring the enrolment config: this machine is enrolled already")]
    ConfigIgnored,
    /// An answer that the machine was given does not let it in.
    #[error("an answer of the cluster is not taken")]
    NotAccepted(#[source] OfferError),
}

/// Decides, with the TPM that was found or what kept it from being used.
pub fn decide<K: Keeper>(inputs: Inputs<'_>, tpm: Result<Option<&mut K>, K::Error>) -> Findings {
    match tpm.and_then(|tpm| with_tpm(inputs, tpm)) {
        Ok(found) => found,
        // A TPM that fails decides nothing: the machine comes up with the defaults and says so.
        Err(error) => Findings {
            network: NetworkConfig::default(),
            prefixes: None,
            decision: BootDecision::Wait(Wait::Failed(Failure::Tpm(Box::new(error))), None),
            reports: Vec::new(),
        },
    }
}

fn with_tpm<K: Keeper>(inputs: Inputs<'_>, mut keeper: Option<&mut K>) -> Result<Findings, K::Error> {
    let Inputs { files, header, boot_class, given } = inputs;
    let unsealed = unseal(files.seal.bytes(), boot_class, keeper.as_deref_mut())?;
    let config = files.config(given.config.as_ref());
    let (network, prefixes) = network(&unsealed, config.as_ref());
    let mut reports = Vec::new();
    let GivenAnswers { config: handed_in, half: given_half, offer } = given;
    let decision = match unsealed {
        Unsealed::None if let Some(path) = files.unreadable(File::Seal) => needs_owner(Reason::Unreadable(path)),
        Unsealed::None => {
            let verified = may_enrol(header, config, TpmPresence::of(keeper.as_deref()));
            enrols((files, handed_in), boot_class, verified, None, &mut reports)
        }
        Unsealed::Attempt(begun) => {
            let verified = may_enrol(header, config, TpmPresence::of(keeper.as_deref()));
            enrols((files, handed_in), boot_class, verified, Some((*begun, offer)), &mut reports)
        }
        Unsealed::Newer(version) => needs_owner(Reason::Newer { what: "seal", version }),
        Unsealed::Malformed(error) => needs_owner(Reason::Seal(error)),
        Unsealed::Locked(_, locked) => needs_owner(Reason::Locked(locked)),
        Unsealed::Open(seal) => {
            let half = given_half.map_or_else(|| shares(files, &seal.body, &mut reports), |half| Ok(half.into()));
            let config = Leftover::of(&seal.body, files.config.as_ref().map(|bytes| bytes.as_slice()));
            if config == Leftover::Ignore || files.fw_cfg.is_some() {
                reports.push(Report::ConfigIgnored);
            }
            let leftovers = Leftovers { config, attempt: seal::attempt_slot(files.seal.bytes()) };
            // Behind one that opened and is not the newest the next would be written over it.
            let next = Some(files.next_writes().seal).filter(|next| next.generation == seal.generation + 1);
            with_seal(seal, half, Beside { leftovers, files, header, next })
        }
    };
    Ok(Findings { network, prefixes, decision, reports })
}

/// The cluster's half of the data key, from this machine's own shares: of the first that gives it by itself. Else those that
/// take others beside them.
fn shares(files: &Files, body: &Body, reports: &mut Vec<Report>) -> Result<ClusterHalf, Vec<OpenShare>> {
    let (held, senseless) = open_shares(&files.share, body.disk, &body.share_key());
    reports.extend(senseless.into_iter().map(Report::SenselessShare));
    let mut need_others = Vec::new();
    for held in held {
        let (epoch, needed) = (held.epoch().number(), held.epoch().threshold());
        match held.alone(body.identity.holder.machine) {
            Ok(Some(half)) => return Ok(half),
            Ok(None) if needed > 1 => {
                reports.push(Report::OneShareOf { epoch, needed });
                need_others.push(held);
            }
            Ok(None) | Err(UnknownHolder(_)) => reports.push(Report::SenselessShare(epoch)),
        }
    }
    Err(need_others)
}

/// Network settings and the cluster's prefixes, whatever is decided: from the seal, which says them in clear; from the config before there
/// is a seal.
fn network(
    unsealed: &Unsealed,
    config: Option<&Result<VerifiedConfig, ConfigError>>,
) -> (NetworkConfig, Option<Prefixes>) {
    let of = |clear: &Clear| (clear.network.clone(), Some(clear.prefixes));
    match (unsealed, config) {
        (Unsealed::Locked(Some(clear), _), _) => of(clear),
        (Unsealed::Open(seal), _) => of(&seal.clear),
        (
            Unsealed::None | Unsealed::Attempt(_) | Unsealed::Locked(None, _),
            Some(Ok(VerifiedConfig { config, .. })),
        ) => {
            match &config.intent {
                Intent::Create(create) => (config.network.clone(), Some(create.prefixes)),
                // The cluster says it when it lets the machine in.
                Intent::Redeem(_) => (config.network.clone(), None),
            }
        }
        (Unsealed::None | Unsealed::Attempt(_) | Unsealed::Locked(None, _), Some(Err(_)) | None)
        | (Unsealed::Newer(_) | Unsealed::Malformed(_), _) => (NetworkConfig::default(), None),
    }
}

const fn needs_owner(reason: Reason) -> BootDecision {
    BootDecision::Wait(Wait::NeedsOwner(reason), None)
}

/// Decides for a machine that is no member: with its config, wherever that came from, as the machine of an attempt that the
/// same config began, or by its key where a ticket names that, and with what that machine was given.
fn enrols(
    (files, handed_in): (&Files, Option<Zeroizing<Vec<u8>>>),
    boot_class: BootClass,
    verified: Result<VerifiedConfig, Wait>,
    begun: Option<(Begun, Option<Box<FittingOffer>>)>,
    reports: &mut Vec<Report>,
) -> BootDecision {
    let VerifiedConfig { config, digest } = match verified {
        Ok(verified) => verified,
        Err(wait) => return BootDecision::Wait(wait, None),
    };
    let EnrolmentConfig { node, first_contact, network, intent } = config;
    let leftover = seal::attempt_slot(files.seal.bytes());
    let site = Site { node, network, digest, boot_class, next: files.next_writes(), attempt: leftover };
    let redeem = match intent {
        Intent::Create(create) => return BootDecision::Create(Box::new(Creation { site, create, first_contact })),
        Intent::Redeem(redeem) => redeem,
    };
    let joining = match begun {
        None => JoiningMachine { site, redeem, begun: None, identity: None, handed_in },
        Some((begun, _)) if begun.attempt.config != digest => {
            let identity = begun.attempt.identity;
            let is_named = redeem.ticket.machine.is_some_and(|machine| machine.0 == identity.public());
            JoiningMachine { site, redeem, begun: None, identity: is_named.then_some(identity), handed_in }
        }
        Some((begun, None)) => JoiningMachine { site, redeem, begun: Some(begun), identity: None, handed_in },
        Some((begun, Some(offer))) => match (Asker { site, redeem, begun, handed_in }).accept(*offer) {
            Ok(draft) => return BootDecision::Admitted(Box::new(draft)),
            Err((asker, why)) => {
                reports.push(Report::NotAccepted(why));
                JoiningMachine::from(*asker)
            }
        },
    };
    BootDecision::Join(Box::new(joining))
}

fn may_enrol(
    header: &Copies,
    config: Option<Result<VerifiedConfig, ConfigError>>,
    tpm: TpmPresence,
) -> Result<VerifiedConfig, Wait> {
    for copy in &header.0 {
        match copy {
            Copy::Valid(header) if header.state == HeaderState::Committed => {
                return Err(Wait::NeedsOwner(Reason::LiveDisk));
            }
            Copy::Refused(HeaderError::Newer(version)) => {
                return Err(Wait::NeedsOwner(Reason::Newer { what: "data header", version: *version }));
            }
            Copy::Blank | Copy::Valid(_) | Copy::Refused(_) => {}
        }
    }
    if let Some(error) = header.refused() {
        return Err(Wait::NeedsOwner(Reason::ForeignDisk(error)));
    }
    let verified = config.ok_or(Wait::Blank(tpm))?.map_err(|error| Wait::NeedsOwner(Reason::Config(error)))?;
    verified.config.fits(tpm).map_err(|unserved| Wait::NeedsOwner(Reason::Config(unserved.into())))?;
    Ok(verified)
}

fn with_seal(seal: Box<Seal>, half: Result<ClusterHalf, Vec<OpenShare>>, beside: Beside<'_>) -> BootDecision {
    let Beside { files, header, .. } = beside;
    let (half, shares) = half.map_or_else(|shares| (None, shares), |half| (Some(half), Vec::new()));
    let wait = match open(header, &seal.body.local_key, half.as_ref(), &seal.body.expected()) {
        Ok(opened) => return BootDecision::Open(Box::new(OpenableDisk::new(*seal, opened, half, beside))),
        Err(OpenError::ClusterHalfMissing { generation }) => {
            let record = Record::fitting(files.record.bytes(), seal.body.disk, generation);
            let (header, directory) = (header.clone(), files.directory.clone());
            Wait::AwaitingKeys(Box::new(LockedDisk { generation, header, directory, record, shares }))
        }
        Err(OpenError::Header(HeaderError::Newer(version))) => {
            Wait::NeedsOwner(Reason::Newer { what: "data header", version })
        }
        Err(error) => Wait::NeedsOwner(Reason::Header(error)),
    };
    BootDecision::Wait(wait, Some(seal))
}

impl Findings {
    /// The seal, if it opened: enough to prove the machine and to know its owner, whatever becomes of its data.
    #[must_use]
    pub fn seal(&self) -> Option<&Seal> {
        match &self.decision {
            BootDecision::Create(_) | BootDecision::Join(_) | BootDecision::Admitted(_) => None,
            BootDecision::Open(opening) => Some(opening.seal()),
            BootDecision::Wait(_, seal) => seal.as_deref(),
        }
    }

    /// Reason why the config is refused, where this boot brings no identity for it. The reason names nobody, so anybody may be
    /// told.
    #[must_use]
    pub const fn refused(&self) -> Option<Reason> {
        match &self.decision {
            BootDecision::Wait(Wait::NeedsOwner(reason @ Reason::Config(_)), _) => Some(*reason),
            BootDecision::Create(_)
            | BootDecision::Join(_)
            | BootDecision::Admitted(_)
            | BootDecision::Open(_)
            | BootDecision::Wait(..) => None,
        }
    }
}
