//! What a boot does, decided by what was read and nothing else: seal × header → [`Decision`]. Never writes; asks nobody but
//! the TPM for what it keeps.
//!
//! | seal | header | decision |
//! |---|---|---|
//! | none | none, or each copy blank or a valid provisional | `Create` with a config, else wait: `Blank` |
//! | none | a committed copy, or anything else that is not blank | `NeedsOwner`: nothing is formatted |
//! | there, does not unseal | any | `NeedsOwner`: names the cause |
//! | good | blank | `NeedsOwner`: the disk is not this seal's |
//! | good | provisional, opens | `Open`, and commit it first |
//! | good | committed, cluster half not at hand | wait: `AwaitingKeys` |
//! | good | committed, opens | `Open` |
//! | good | does not open | `NeedsOwner`: says which half is wrong, or that the header is damaged |
//! | the TPM fails | any | wait: `Failed` |
//!
//! [`Plan`]s are made of a [`Creation`] or an [`Opening`], and those are made here only:
//! ```compile_fail,E0624
//! fn beside(effects: Vec<enrol::plan::Effect>, holder: keys::data_key::Holder) {
//!     enrol::plan::Plan::create(effects, holder); // of nothing that was decided
//! }
//! ```
//! ```compile_fail,E0451
//! fn beside(seal: enrol::found::Seal, opened: keys::data_key::Opened) {
//!     let leftover = enrol::found::Leftover::Absent;
//!     enrol::found::Opening { seal, opened, half: None, leftover }; // of a header that somebody else opened
//! }
//! ```

use keys::binding::Binding;
use keys::cold_start::{NotTaken, Shares};
use keys::data_key::{ClusterHalf, OpenError, Opened, open};
use keys::header::{Copies, Copy, HeaderError, State};
use keys::pair::{File, Pair};
use keys::seal::{self, Body, Candidate, Clear, SealError, SealFiles};
use keys::share::{self, Share};
use model::{BootClass, Ipv4Prefix, MachineId, NetworkConfig, SealRoot, Secret, VPN_PREFIX};
use zeroize::Zeroizing;

use crate::asking::Given;
use crate::config::{self, ConfigError, EnrolmentConfig, Tpm, Verified};
use crate::create::{Draft, Issued, Material, NextWrites};
use crate::keeper::{Keeper, Locked, NotReleased, released};
use crate::member::Membership;
use crate::plan::Plan;
use crate::wait::{Failure, Reason, Wait};

/// Everything a decision is made of, but the TPM.
#[derive(Debug)]
pub struct Inputs<'a> {
    /// What lies on the ESP, and what the hypervisor passed.
    pub files: &'a Files,
    /// Both places of the data header.
    pub header: &'a Copies,
    /// How the machine was started.
    pub boot_class: BootClass,
    /// What a waiting machine was given; nothing at first.
    pub given: Given,
}

/// Both slots of every pair, and the enrolment config, as they were read.
#[derive(Debug)]
#[cfg_attr(test, derive(Clone))]
pub struct Files {
    /// The seal's slots; in clear parts and unprotected seals they hold secrets.
    pub seal: Slots,
    /// The share's slots: a lone coordinator's cluster key, sealed.
    pub share: Slots,
    /// The directory's slots: signed, no secret.
    pub directory: Slots,
    /// The recovery record's slots: only the owner opens them.
    pub record: Slots,
    /// The enrolment config on the ESP.
    pub config: Option<Zeroizing<Vec<u8>>>,
    /// The enrolment config that QEMU passed.
    pub fw_cfg: Option<Zeroizing<Vec<u8>>>,
}

/// The two slots of a pair. One that is not there is empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Slots(pub [Zeroizing<Vec<u8>>; 2]);

impl Slots {
    fn bytes(&self) -> [&[u8]; 2] {
        [&self.0[0], &self.0[1]]
    }
}

impl Files {
    /// The two slots of `file`.
    pub const fn pair(&mut self, file: File) -> &mut Slots {
        match file {
            File::Seal => &mut self.seal,
            File::Share => &mut self.share,
            File::Directory => &mut self.directory,
            File::Record => &mut self.record,
        }
    }

    fn next_writes(&self) -> NextWrites {
        NextWrites {
            seal: seal::read(self.seal.bytes()).1,
            share: Pair::read(File::Share, self.share.bytes()).next,
            directory: Pair::read(File::Directory, self.directory.bytes()).next,
            record: Pair::read(File::Record, self.record.bytes()).next,
        }
    }

    /// The config that counts: one that was given wins over QEMU's item, and that over the file.
    fn config(&self, given: Option<&Zeroizing<Vec<u8>>>) -> Option<Result<Verified, ConfigError>> {
        let bytes = given.or(self.fw_cfg.as_ref()).or(self.config.as_ref());
        bytes.map(|bytes| config::read(bytes))
    }
}

/// What was found on this machine: what its network needs, and what this boot does.
#[derive(Debug)]
pub struct Found {
    /// How the machine gets its public addresses.
    pub network: NetworkConfig,
    /// Where VPN addresses come from.
    pub vpn_prefix: Ipv4Prefix,
    /// Create, open or wait.
    pub decision: Decision,
    /// What was passed over on the way to the decision, in the order in which it was met.
    pub reports: Vec<Report>,
}

/// What this boot does, with everything it needs to do it.
#[derive(Debug)]
pub enum Decision {
    /// Creates a cluster; whatever an abandoned attempt left is overwritten.
    Create(Box<Creation>),
    /// Opens the data partition.
    Open(Box<Opening>),
    /// Waits. A seal that opened says all the same who the machine is.
    Wait(Wait, Option<Box<Seal>>),
}

/// A line for the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Report {
    /// A share is there and of no use.
    #[error("a share does not open")]
    Share(#[source] Locked),
    /// A share opened, and others are needed beside it.
    #[error("the cold-start key of epoch {epoch} takes {needed} shares, and this machine has one")]
    OneShareOf {
        /// Which key.
        epoch: u32,
        /// How many shares give it.
        needed: usize,
    },
    /// A share opened, and the key that it should give does not open what lies beside it.
    #[error("the share of epoch {0} is not of the key that wraps this machine's cluster key")]
    SenselessShare(u32),
    /// A sealed machine takes no config any more.
    #[error("ignoring the enrolment config: this machine is enrolled already")]
    ConfigIgnored,
}

/// A seal that opened.
#[derive(Debug)]
pub struct Seal {
    /// What it says to everybody.
    pub clear: Clear,
    /// What it says to this machine.
    pub body: Body,
}

/// A cluster to create.
#[derive(Debug)]
pub struct Creation {
    pub(crate) verified: Verified,
    pub(crate) next: NextWrites,
    pub(crate) boot_class: BootClass,
}

/// A data partition whose header opened.
#[derive(Debug)]
pub struct Opening {
    seal: Seal,
    opened: Opened,
    half: Option<ClusterHalf>,
    leftover: Leftover,
}

/// Decides, with the TPM that was found or what kept it from being used.
pub fn decide<K: Keeper>(inputs: Inputs<'_>, tpm: Result<Option<&mut K>, K::Error>) -> Found {
    match tpm.and_then(|tpm| with_tpm(inputs, tpm)) {
        Ok(found) => found,
        // A TPM that fails decides nothing: the machine comes up with the defaults and says so.
        Err(error) => Found {
            network: NetworkConfig::default(),
            vpn_prefix: VPN_PREFIX,
            decision: Decision::Wait(Wait::Failed(Failure::Tpm(Box::new(error))), None),
            reports: Vec::new(),
        },
    }
}

fn with_tpm<K: Keeper>(inputs: Inputs<'_>, mut keeper: Option<&mut K>) -> Result<Found, K::Error> {
    let Inputs { files, header, boot_class, given } = inputs;
    let unsealed = unseal(files.seal.bytes(), boot_class, keeper.as_deref_mut())?;
    let config = files.config(given.config.as_ref());
    let (network, vpn_prefix) = network(&unsealed, config.as_ref());
    let mut reports = Vec::new();
    let decision = match unsealed {
        Unsealed::None => match without_seal(header, config, Tpm::of(keeper.as_deref())) {
            Ok(verified) => Decision::Create(Box::new(Creation { verified, next: files.next_writes(), boot_class })),
            Err(wait) => Decision::Wait(wait, None),
        },
        Unsealed::Newer(version) => needs_owner(Reason::Newer { what: "seal", version }),
        Unsealed::Malformed(error) => needs_owner(Reason::Seal(error)),
        Unsealed::Locked(_, locked) => needs_owner(Reason::Locked(locked)),
        Unsealed::Open(seal) => {
            let half = cluster_half(files, &seal.body, keeper, &mut reports)?.or(given.half);
            let leftover = Leftover::of(&seal.body, files.config.as_ref().map(|bytes| bytes.as_slice()));
            if leftover == Leftover::Ignore || files.fw_cfg.is_some() {
                reports.push(Report::ConfigIgnored);
            }
            with_seal(seal, header, half, leftover)
        }
    };
    Ok(Found { network, vpn_prefix, decision, reports })
}

/// What was made of the seal.
enum Unsealed {
    None,
    Newer(u32),
    Malformed(SealError),
    Locked(Box<Clear>, Locked),
    Open(Box<Seal>),
}

/// Opens the first seal that opens, those of a TPM before those in clear and the newest first; otherwise says what keeps
/// the first one shut.
fn unseal<K: Keeper>(
    slots: [&[u8]; 2],
    boot_class: BootClass,
    mut keeper: Option<&mut K>,
) -> Result<Unsealed, K::Error> {
    let candidates = match seal::read(slots).0 {
        SealFiles::None => return Ok(Unsealed::None),
        SealFiles::Newer(version) => return Ok(Unsealed::Newer(version)),
        SealFiles::Malformed(error) => return Ok(Unsealed::Malformed(error)),
        SealFiles::Candidates(candidates) => candidates,
    };
    let mut shut = Unsealed::None;
    for candidate in candidates {
        match body(&candidate, boot_class, keeper.as_deref_mut()) {
            Ok(body) => return Ok(Unsealed::Open(Box::new(Seal { clear: candidate.clear, body }))),
            Err(NotReleased::Failed(error)) => return Err(error),
            Err(NotReleased::Locked(locked)) => {
                if matches!(shut, Unsealed::None) {
                    shut = Unsealed::Locked(Box::new(candidate.clear), locked);
                }
            }
        }
    }
    Ok(shut)
}

fn body<K: Keeper>(
    candidate: &Candidate,
    boot_class: BootClass,
    keeper: Option<&mut K>,
) -> Result<Body, NotReleased<K::Error>> {
    let Clear { binding, boot_class: sealed, .. } = &candidate.clear;
    // Without a TPM nothing was measured, so how the machine was started makes no difference.
    if matches!(binding, Binding::Tpm(_)) && *sealed != boot_class {
        return Err(NotReleased::Locked(Locked::BootClass { sealed: *sealed, now: boot_class }));
    }
    let root = SealRoot(released(binding, keeper)?);
    candidate.open(&root).map_err(|error| NotReleased::Locked(Locked::Body(error)))
}

/// The cluster's half of the data key, from this machine's own shares: of the first that opens.
fn cluster_half<K: Keeper>(
    files: &Files,
    body: &Body,
    mut keeper: Option<&mut K>,
    reports: &mut Vec<Report>,
) -> Result<Option<ClusterHalf>, K::Error> {
    for share in share::read(files.share.bytes(), body.disk).0 {
        match released(&share.binding, keeper.as_deref_mut()) {
            Ok(value) => match alone(share, value, body.identity.holder.machine) {
                Ok(half) => return Ok(Some(half)),
                Err(report) => reports.push(report),
            },
            Err(NotReleased::Locked(locked)) => reports.push(Report::Share(locked)),
            Err(NotReleased::Failed(error)) => return Err(error),
        }
    }
    Ok(None)
}

/// What a share gives by itself.
fn alone(share: Share, value: Secret<32>, machine: MachineId) -> Result<ClusterHalf, Report> {
    let (epoch, needed) = (share.epoch.number(), share.epoch.threshold());
    match Shares::new(share.epoch, share.wrapped).give(machine, value) {
        Ok(Some(half)) => Ok(half),
        Ok(None) if needed > 1 => Err(Report::OneShareOf { epoch, needed }),
        Ok(None) | Err(NotTaken::NoHolder(_)) => Err(Report::SenselessShare(epoch)),
    }
}

/// What network and API need, whatever is decided: from the seal, which says it in clear; from the config before there is
/// one.
fn network(unsealed: &Unsealed, config: Option<&Result<Verified, ConfigError>>) -> (NetworkConfig, Ipv4Prefix) {
    let of = |clear: &Clear| (clear.network.clone(), clear.vpn_prefix);
    match (unsealed, config) {
        (Unsealed::Locked(clear, _), _) => of(clear),
        (Unsealed::Open(seal), _) => of(&seal.clear),
        (Unsealed::None, Some(Ok(Verified { config, .. }))) => (config.network.clone(), config.create.vpn_prefix),
        (Unsealed::None, Some(Err(_)) | None) | (Unsealed::Newer(_) | Unsealed::Malformed(_), _) => {
            (NetworkConfig::default(), VPN_PREFIX)
        }
    }
}

const fn needs_owner(reason: Reason) -> Decision {
    Decision::Wait(Wait::NeedsOwner(reason), None)
}

fn without_seal(header: &Copies, config: Option<Result<Verified, ConfigError>>, tpm: Tpm) -> Result<Verified, Wait> {
    for copy in &header.0 {
        match copy {
            Copy::Valid(header) if header.state == State::Committed => return Err(Wait::NeedsOwner(Reason::LiveDisk)),
            Copy::Refused(HeaderError::Newer(version)) => {
                return Err(Wait::NeedsOwner(Reason::Newer { what: "data header", version: *version }));
            }
            Copy::Blank | Copy::Valid(_) | Copy::Refused(_) => {}
        }
    }
    if let Some(error) = header.refused() {
        return Err(Wait::NeedsOwner(Reason::ForeignDisk(error)));
    }
    let verified = config.ok_or(Wait::Blank)?.map_err(|error| Wait::NeedsOwner(Reason::Config(error)))?;
    verified.config.fits(tpm).map_err(|unserved| Wait::NeedsOwner(Reason::Config(unserved.into())))?;
    Ok(verified)
}

fn with_seal(seal: Box<Seal>, header: &Copies, half: Option<ClusterHalf>, leftover: Leftover) -> Decision {
    let wait = match open(header, &seal.body.local_key, half.as_ref(), &seal.body.expected()) {
        Ok(opened) => return Decision::Open(Box::new(Opening { seal: *seal, opened, half, leftover })),
        Err(OpenError::ClusterHalfMissing { generation }) => {
            Wait::AwaitingKeys { generation, header: Box::new(header.clone()) }
        }
        Err(OpenError::Header(HeaderError::Newer(version))) => {
            Wait::NeedsOwner(Reason::Newer { what: "data header", version })
        }
        Err(error) => Wait::NeedsOwner(Reason::Header(error)),
    };
    Decision::Wait(wait, Some(seal))
}

impl Found {
    /// The seal, if it opened: enough to prove the machine and to know its owner, whatever becomes of its data.
    #[must_use]
    pub fn seal(&self) -> Option<&Seal> {
        match &self.decision {
            Decision::Create(_) => None,
            Decision::Open(opening) => Some(&opening.seal),
            Decision::Wait(_, seal) => seal.as_deref(),
        }
    }

    /// What is wrong with the config, where this boot brings no identity for that. It names nobody, so anybody may be told.
    #[must_use]
    pub const fn refused(&self) -> Option<Reason> {
        match &self.decision {
            Decision::Wait(Wait::NeedsOwner(reason @ Reason::Config(_)), _) => Some(*reason),
            Decision::Create(_) | Decision::Open(_) | Decision::Wait(..) => None,
        }
    }
}

impl Creation {
    /// What the owner signed.
    #[must_use]
    pub const fn config(&self) -> &EnrolmentConfig {
        &self.verified.config
    }

    /// Brings together what the owner wants, what is random, and what the new cluster's authority issued.
    #[must_use]
    pub fn draft(self, material: Material, issued: Issued) -> Draft {
        Draft::new(self, material, issued)
    }
}

/// Why an opened header cannot be acted on.
#[derive(Debug, thiserror::Error)]
pub enum PlanError<E: std::error::Error + 'static> {
    /// There are no random bytes.
    #[error("draw random bytes")]
    Random(#[source] E),
    /// The header cannot be committed.
    #[error("commit the data header")]
    Commit(#[from] OpenError),
}

impl Opening {
    /// Whether a cut came before the last step of create, so that this boot still performs some of them.
    #[must_use]
    pub fn finishes_create(&self) -> bool {
        self.opened.header.state == State::Provisional || self.leftover == Leftover::Remove
    }

    /// One line for console and API.
    #[must_use]
    pub const fn message(&self) -> &'static str {
        match self.opened.header.state {
            State::Committed => "opening the data partition",
            State::Provisional => "finishing an interrupted create, then opening the data partition",
        }
    }

    /// When the seal was made, in seconds of Unix time: this boot is later.
    #[must_use]
    pub const fn sealed_at(&self) -> u64 {
        self.seal.clear.sealed_at
    }

    /// What to do, and for whom. A header that a cut left provisional is committed before its data is opened, under a salt
    /// that `fill` fills with random bytes.
    ///
    /// # Errors
    /// [`PlanError`]; nothing was written.
    pub fn plan<E: std::error::Error + 'static>(
        self,
        fill: impl FnOnce(&mut [u8]) -> Result<(), E>,
    ) -> Result<(Plan, Membership), PlanError<E>> {
        let Self { seal, opened, half, leftover } = self;
        let holder = seal.body.holder();
        let committed = match opened.header.state {
            State::Committed => None,
            State::Provisional => {
                let mut salt = [0; 32];
                fill(&mut salt).map_err(PlanError::Random)?;
                Some(opened.commit(&seal.body.local_key, half.as_ref(), salt, &holder)?)
            }
        };
        let plan = Plan::open(opened, committed, leftover, holder);
        Ok((plan, Membership::of(seal)))
    }
}

/// What becomes of a config that a sealed machine still finds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Leftover {
    /// There is none.
    Absent,
    /// It is the one that enrolled the machine, or what a cut left of removing it.
    Remove,
    /// Another one: stays where it is, with one line in the log.
    Ignore,
}

impl Leftover {
    /// Judges the file of a machine whose seal opened.
    pub(crate) fn of(seal: &Body, file: Option<&[u8]>) -> Self {
        match file {
            None => Self::Absent,
            Some(bytes) if config::digest(bytes) == seal.config || bytes.iter().all(|byte| *byte == 0) => Self::Remove,
            Some(_) => Self::Ignore,
        }
    }
}
