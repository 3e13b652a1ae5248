//! Decision of a boot, made by what was read and nothing else: seal × header → [`Decision`]. Never writes; asks nobody but the
//! TPM for what it keeps.
//!
//! | seal | header | decision |
//! |---|---|---|
//! | a file of its pair cannot be read, and the other holds none | any | `NeedsOwner`: names the file |
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
//! [`Plan`]s are made of a [`Creation`], a [`Joining`] or an [`Opening`], and those are made here only:
//! ```compile_fail,E0624
//! fn beside(effects: Vec<enrol::plan::Effect>, holder: keys::data_key::Holder) {
//!     enrol::plan::Plan::enrol(effects, holder); // of nothing that was decided
//! }
//! ```
//! ```compile_fail,E0451
//! fn beside(seal: enrol::found::Seal, opened: keys::data_key::Opened) {
//!     let leftovers = enrol::found::Leftovers::default();
//!     enrol::found::Opening { seal, opened, half: None, leftovers, locking: todo!(), raising: todo!() }; // somebody else opened it
//! }
//! ```

use keys::binding::Binding;
use keys::cold_start::NotTaken;
use keys::data_key::{ClusterHalf, OpenError, Opened, open};
use keys::directory::DirectoryMinimum;
use keys::header::{Copies, Copy, HeaderError, State};
use keys::identity::Identity;
use keys::pair::{File, Next, Pair, TooLarge};
use keys::record::Record;
use keys::seal::{self, Body, Candidate, Clear, SealError, SealFiles};
use model::{BootClass, FirstContact, Ipv4Prefix, NetworkConfig, SealRoot, Secret, VPN_PREFIX};
use zeroize::Zeroizing;

use crate::asking::Given;
use crate::config::{self, CONFIG_PATH, ConfigError, Create, EnrolmentConfig, Intent, Tpm, Verified};
use crate::contribute::{self, Held};
use crate::create::{Draft, Material};
use crate::join::{self, Admission, Asker, Begun, Joining, NotAccepted};
use crate::keeper::{Keeper, Locked, NotReleased, released};
use crate::making::{Issued, NextWrites, Site};
use crate::member::Membership;
use crate::plan::{Effect, HeaderCopy, Plan};
use crate::renewal;
use crate::rotation::{Locking, NotRotated, Rotated};
use crate::wait::{Failure, Reason, Wait};

/// Everything a decision is made of, but the TPM.
#[derive(Debug)]
pub struct Inputs<'a> {
    /// Files that lie on the ESP, and what the hypervisor passed.
    pub files: &'a Files,
    /// Both places of the data header.
    pub header: &'a Copies,
    /// How the machine was started.
    pub boot_class: BootClass,
    /// Answers that a waiting machine was given; none at first.
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
    /// Paths of files that are there and cannot be read; above they are empty, or absent. Of a pair the other file is enough.
    pub unreadable: Vec<&'static str>,
}

/// The two slots of a pair. One that is not there is empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Slots(pub [Zeroizing<Vec<u8>>; 2]);

impl Slots {
    pub(crate) fn bytes(&self) -> [&[u8]; 2] {
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

    /// A slot of `file` that is there and cannot be read.
    fn unreadable(&self, file: File) -> Option<&'static str> {
        file.paths().into_iter().find(|path| self.unreadable.contains(path))
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
        let unreadable = || self.unreadable.contains(&CONFIG_PATH).then_some(Err(ConfigError::Unreadable));
        bytes.map(|bytes| config::read(bytes)).or_else(unreadable)
    }
}

/// All that was found on this machine: what its network needs, and what this boot does.
#[derive(Debug)]
pub struct Found {
    /// How the machine gets its public addresses.
    pub network: NetworkConfig,
    /// Where VPN addresses come from.
    pub vpn_prefix: Ipv4Prefix,
    /// Create, join, open or wait.
    pub decision: Decision,
    /// Reports of what was passed over on the way to the decision, in the order in which it was met.
    pub reports: Vec<Report>,
}

/// Decision on what this boot does, with everything it needs to do it.
#[derive(Debug)]
pub enum Decision {
    /// Creates a cluster; whatever an abandoned attempt left is overwritten.
    Create(Box<Creation>),
    /// Asks a cluster to let the machine in.
    Join(Box<Joining>),
    /// Becomes a member of the cluster that let the machine in.
    Admitted(Box<join::Draft>),
    /// Opens the data partition.
    Open(Box<Opening>),
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
    NotAccepted(#[source] NotAccepted),
}

/// A seal that opened.
#[derive(Debug)]
pub struct Seal {
    /// The seal's clear part, which anybody can read.
    pub clear: Clear,
    /// The seal's body, which only this machine opens.
    pub body: Body,
    /// Counts the seals of this machine.
    pub(crate) generation: u64,
}

/// A cluster to create.
#[derive(Debug)]
pub struct Creation {
    pub(crate) site: Site,
    pub(crate) create: Create,
    pub(crate) first_contact: FirstContact,
}

/// A data partition whose header opened.
#[derive(Debug)]
pub struct Opening {
    seal: Seal,
    opened: Opened,
    pub(crate) half: Option<ClusterHalf>,
    leftovers: Leftovers,
    locking: Locking,
    raising: Raising,
}

/// The seal's minimum, which rises with what lies on the ESP, or is lowered with what lies there by the owner's word.
#[derive(Debug)]
struct Raising {
    next: Option<Next>,
    directory: Slots,
    raised: Option<Effect>,
}

/// Minimum of a seal: versions below it are not taken from the next boot on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Minimum {
    /// The version of a directory.
    pub directory: u64,
    /// The generation of a data header.
    pub header: u64,
}

/// Why the minimum does not rise in this boot.
#[derive(Debug, thiserror::Error)]
pub enum NotRaised<E: std::error::Error + 'static, K: std::error::Error + 'static> {
    /// There are no random bytes.
    #[error("draw random bytes")]
    Random(#[source] E),
    /// The TPM does not seal.
    #[error("seal to the TPM")]
    Keeper(#[source] K),
    /// The new seal does not fit its file.
    #[error(transparent)]
    TooLarge(#[from] TooLarge),
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
    let Given { config: handed_in, half: given_half, admission } = given;
    let decision = match unsealed {
        Unsealed::None if let Some(path) = files.unreadable(File::Seal) => needs_owner(Reason::Unreadable(path)),
        Unsealed::None => {
            let verified = may_enrol(header, config, Tpm::of(keeper.as_deref()));
            enrols((files, handed_in), boot_class, verified, None, &mut reports)
        }
        Unsealed::Attempt(begun) => {
            let verified = may_enrol(header, config, Tpm::of(keeper.as_deref()));
            enrols((files, handed_in), boot_class, verified, Some((*begun, admission)), &mut reports)
        }
        Unsealed::Newer(version) => needs_owner(Reason::Newer { what: "seal", version }),
        Unsealed::Malformed(error) => needs_owner(Reason::Seal(error)),
        Unsealed::Locked(_, locked) => needs_owner(Reason::Locked(locked)),
        Unsealed::Open(seal) => {
            // One that was given opens: whether it does was looked at before it was taken.
            let half = given_half.map_or_else(|| shares(files, &seal.body, &mut reports), Ok);
            let config = Leftover::of(&seal.body, files.config.as_ref().map(|bytes| bytes.as_slice()));
            if config == Leftover::Ignore || files.fw_cfg.is_some() {
                reports.push(Report::ConfigIgnored);
            }
            let leftovers = Leftovers { config, attempt: seal::attempt_slot(files.seal.bytes()) };
            // Behind one that opened and is not the newest the next would be written over it.
            let next = Some(files.next_writes().seal).filter(|next| next.generation == seal.generation + 1);
            with_seal(seal, header, half, Beside { leftovers, files, next })
        }
    };
    Ok(Found { network, vpn_prefix, decision, reports })
}

/// Result of reading and opening the seal.
enum Unsealed {
    None,
    Newer(u32),
    Malformed(SealError),
    /// A member's clear part, and what keeps the seal shut.
    Locked(Option<Box<Clear>>, Locked),
    Attempt(Box<Begun>),
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
        let root = match root(&candidate, boot_class, keeper.as_deref_mut()) {
            Ok(root) => Ok(root),
            Err(NotReleased::Locked(locked)) => Err(locked),
            Err(NotReleased::Failed(error)) => return Err(error),
        };
        match opened(candidate, root) {
            locked @ Unsealed::Locked(..) if matches!(shut, Unsealed::None) => shut = locked,
            Unsealed::Locked(..) => {}
            open @ (Unsealed::Open(..) | Unsealed::Attempt(_)) => return Ok(open),
            Unsealed::None | Unsealed::Newer(_) | Unsealed::Malformed(_) => unreachable!("there is a candidate"),
        }
    }
    Ok(shut)
}

fn root<K: Keeper>(
    candidate: &Candidate,
    boot_class: BootClass,
    keeper: Option<&mut K>,
) -> Result<SealRoot, NotReleased<K::Error>> {
    let (binding, sealed) = (candidate.binding(), candidate.boot_class());
    // Without a TPM nothing was measured, so how the machine was started makes no difference.
    if matches!(binding, Binding::Tpm(_)) && sealed != boot_class {
        return Err(NotReleased::Locked(Locked::BootClass { sealed, now: boot_class }));
    }
    released(binding, keeper).map(SealRoot)
}

fn opened(candidate: Candidate, root: Result<SealRoot, Locked>) -> Unsealed {
    match candidate {
        Candidate::Member(sealed) => {
            match (sealed.generation(), root.and_then(|root| sealed.open(&root).map_err(Locked::Body))) {
                (generation, Ok(body)) => Unsealed::Open(Box::new(Seal { clear: sealed.clear, body, generation })),
                (_, Err(locked)) => Unsealed::Locked(Some(Box::new(sealed.clear)), locked),
            }
        }
        Candidate::Attempt(sealed) => match root.and_then(|root| sealed.open(&root).map_err(Locked::Body)) {
            Ok(attempt) => {
                let storage_key_name = sealed.clear.binding.storage_key_name();
                Unsealed::Attempt(Box::new(Begun { attempt, storage_key_name }))
            }
            Err(locked) => Unsealed::Locked(None, locked),
        },
    }
}

/// The cluster's half of the data key, from this machine's own shares: of the first that gives it by itself. Else those that
/// take others beside them.
fn shares(files: &Files, body: &Body, reports: &mut Vec<Report>) -> Result<ClusterHalf, Vec<Held>> {
    let (held, senseless) = contribute::held(&files.share, body.disk, &body.share_key());
    reports.extend(senseless.into_iter().map(Report::SenselessShare));
    let mut need_others = Vec::new();
    for held in held {
        let (epoch, needed) = (held.epoch.number(), held.epoch.threshold());
        match held.alone(body.identity.holder.machine) {
            Ok(Some(half)) => return Ok(half),
            Ok(None) if needed > 1 => {
                reports.push(Report::OneShareOf { epoch, needed });
                need_others.push(held);
            }
            Ok(None) | Err(NotTaken::NoHolder(_)) => reports.push(Report::SenselessShare(epoch)),
        }
    }
    Err(need_others)
}

/// Network settings and VPN prefix, whatever is decided: from the seal, which says them in clear; from the config before there
/// is a seal.
fn network(unsealed: &Unsealed, config: Option<&Result<Verified, ConfigError>>) -> (NetworkConfig, Ipv4Prefix) {
    let of = |clear: &Clear| (clear.network.clone(), clear.vpn_prefix);
    match (unsealed, config) {
        (Unsealed::Locked(Some(clear), _), _) => of(clear),
        (Unsealed::Open(seal), _) => of(&seal.clear),
        (Unsealed::None | Unsealed::Attempt(_) | Unsealed::Locked(None, _), Some(Ok(Verified { config, .. }))) => {
            match &config.intent {
                Intent::Create(create) => (config.network.clone(), create.vpn_prefix),
                // The cluster says it when it lets the machine in.
                Intent::Redeem(_) => (config.network.clone(), VPN_PREFIX),
            }
        }
        (Unsealed::None | Unsealed::Attempt(_) | Unsealed::Locked(None, _), Some(Err(_)) | None)
        | (Unsealed::Newer(_) | Unsealed::Malformed(_), _) => (NetworkConfig::default(), VPN_PREFIX),
    }
}

impl Seal {
    /// Which directories it takes.
    pub(crate) fn minimum(&self) -> DirectoryMinimum {
        let Self { body, generation, .. } = self;
        DirectoryMinimum { key: body.share_key(), seal: *generation, version: body.minimum_directory }
    }
}

const fn needs_owner(reason: Reason) -> Decision {
    Decision::Wait(Wait::NeedsOwner(reason), None)
}

/// Decides for a machine that is no member: with its config, wherever that came from, as the machine of an attempt that the
/// same config began, or by its key where a ticket names that, and with what that machine was given.
fn enrols(
    (files, handed_in): (&Files, Option<Zeroizing<Vec<u8>>>),
    boot_class: BootClass,
    verified: Result<Verified, Wait>,
    begun: Option<(Begun, Option<Box<Admission>>)>,
    reports: &mut Vec<Report>,
) -> Decision {
    let Verified { config, digest } = match verified {
        Ok(verified) => verified,
        Err(wait) => return Decision::Wait(wait, None),
    };
    let EnrolmentConfig { node, first_contact, network, intent } = config;
    let leftover = seal::attempt_slot(files.seal.bytes());
    let site = Site { node, network, digest, boot_class, next: files.next_writes(), attempt: leftover };
    let redeem = match intent {
        Intent::Create(create) => return Decision::Create(Box::new(Creation { site, create, first_contact })),
        Intent::Redeem(redeem) => redeem,
    };
    let joining = match begun {
        None => Joining { site, redeem, begun: None, identity: None, handed_in },
        Some((begun, _)) if begun.attempt.config != digest => {
            let identity = begun.attempt.identity;
            let is_named = redeem.ticket.machine.is_some_and(|machine| machine.0 == identity.public());
            Joining { site, redeem, begun: None, identity: is_named.then_some(identity), handed_in }
        }
        Some((begun, None)) => Joining { site, redeem, begun: Some(begun), identity: None, handed_in },
        Some((begun, Some(admission))) => match (Asker { site, redeem, begun, handed_in }).accept(*admission) {
            Ok(draft) => return Decision::Admitted(Box::new(draft)),
            Err((asker, why)) => {
                reports.push(Report::NotAccepted(why));
                Joining::from(*asker)
            }
        },
    };
    Decision::Join(Box::new(joining))
}

fn may_enrol(header: &Copies, config: Option<Result<Verified, ConfigError>>, tpm: Tpm) -> Result<Verified, Wait> {
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
    let verified = config.ok_or(Wait::Blank(tpm))?.map_err(|error| Wait::NeedsOwner(Reason::Config(error)))?;
    verified.config.fits(tpm).map_err(|unserved| Wait::NeedsOwner(Reason::Config(unserved.into())))?;
    Ok(verified)
}

/// The rest of the ESP beside a seal that opened.
#[derive(Clone, Copy)]
struct Beside<'a> {
    leftovers: Leftovers,
    files: &'a Files,
    /// Where the seal may be written anew.
    next: Option<Next>,
}

fn with_seal(seal: Box<Seal>, header: &Copies, half: Result<ClusterHalf, Vec<Held>>, beside: Beside<'_>) -> Decision {
    let Beside { leftovers, files, next } = beside;
    let (directory, (disk, key)) = (files.directory.clone(), (seal.body.disk, seal.body.share_key()));
    let (half, shares) = half.map_or_else(|shares| (None, shares), |half| (Some(half), Vec::new()));
    let wait = match open(header, &seal.body.local_key, half.as_ref(), &seal.body.expected()) {
        Ok(opened) => {
            return Decision::Open(Box::new(Opening {
                seal: *seal,
                opened,
                half,
                leftovers,
                locking: Locking {
                    copies: header.clone(),
                    record: files.record.clone(),
                    shares: contribute::held(&files.share, disk, &key).0,
                },
                raising: Raising { next, directory, raised: None },
            }));
        }
        Err(OpenError::ClusterHalfMissing { generation }) => {
            let record = Record::fitting(files.record.bytes(), disk, generation).map(Box::new);
            Wait::AwaitingKeys { generation, header: Box::new(header.clone()), directory, record, shares }
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
            Decision::Create(_) | Decision::Join(_) | Decision::Admitted(_) => None,
            Decision::Open(opening) => Some(&opening.seal),
            Decision::Wait(_, seal) => seal.as_deref(),
        }
    }

    /// Reason why the config is refused, where this boot brings no identity for it. The reason names nobody, so anybody may be
    /// told.
    #[must_use]
    pub const fn refused(&self) -> Option<Reason> {
        match &self.decision {
            Decision::Wait(Wait::NeedsOwner(reason @ Reason::Config(_)), _) => Some(*reason),
            Decision::Create(_)
            | Decision::Join(_)
            | Decision::Admitted(_)
            | Decision::Open(_)
            | Decision::Wait(..) => None,
        }
    }
}

impl Creation {
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
    /// The disk cannot be locked with the next cluster key.
    #[error("lock the disk with the next cluster key")]
    Rotate(#[from] NotRotated),
}

impl Opening {
    /// Whether a cut came before the last step of create or join, so that this boot still performs some of them.
    #[must_use]
    pub fn finishes_create(&self) -> bool {
        self.opened.header.state == State::Provisional || self.leftovers.config == Leftover::Remove
    }

    /// Message of one line for console and API.
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

    /// The machine's identity, by its seal.
    #[must_use]
    pub fn identity(&self) -> &Identity {
        &self.seal.body.identity
    }

    /// Has the plan raise the seal's minimum, where both slots of the directory hold one that the CA with this
    /// SubjectPublicKeyInfo (DER) signed and that is above it: to the older of the two, so that a slot that is lost later loses
    /// nothing; and where the header is locked with a cluster key that the seal does not name yet: to that header. What lies there by
    /// the owner's word is sealed, too, although it is lower. What was an
    /// interrupted create or join is finished first, in a boot of its own. The new minimum; `now` is in seconds of Unix time.
    ///
    /// # Errors
    /// [`NotRaised`]; the machine opens all the same.
    pub fn raise<K: Keeper, E: std::error::Error + 'static>(
        &mut self,
        ca_spki: &[u8],
        keeper: Option<&mut K>,
        mut fill: impl FnMut(&mut [u8]) -> Result<(), E>,
        now: u64,
    ) -> Result<Option<Minimum>, NotRaised<E, K::Error>> {
        let minimum = self.seal.minimum().beside(self.raising.directory.bytes());
        let directory = renewal::durable(&self.raising.directory, ca_spki, minimum).unwrap_or(minimum);
        let header = self.rotated().map(|key_generation| (self.opened.header.generation, key_generation));
        let finishes = self.finishes_create() || self.leftovers.attempt.is_some();
        let changes = directory != self.seal.body.minimum_directory || header.is_some();
        let Some(next) = self.raising.next.filter(|_| changes && !finishes) else { return Ok(None) };
        let root = SealRoot(Secret::fill(|bytes| fill(bytes)).map_err(NotRaised::Random)?);
        let (mut salt, mut nonce) = ([0; 32], [0; 12]);
        fill(&mut salt).map_err(NotRaised::Random)?;
        fill(&mut nonce).map_err(NotRaised::Random)?;
        let Seal { clear, body, generation } = &mut self.seal;
        let binding = match (&clear.binding, keeper) {
            (Binding::Tpm(_), Some(keeper)) => Binding::Tpm(keeper.seal(&root.0).map_err(NotRaised::Keeper)?),
            // What opened without a TPM goes on without one.
            (Binding::Unprotected(_), _) => Binding::Unprotected(root.0.duplicate()),
            (Binding::Tpm(_), None) => return Ok(None),
        };
        let clear = Clear {
            binding,
            boot_class: clear.boot_class,
            salt,
            network: clear.network.clone(),
            vpn_prefix: clear.vpn_prefix,
            node_name: clear.node_name.clone(),
            sealed_at: now.max(clear.sealed_at),
        };
        let before = (body.minimum_directory, (body.minimum_header, body.key_generation));
        let after = (directory, header.unwrap_or(before.1));
        (body.minimum_directory, (body.minimum_header, body.key_generation)) = after;
        match seal::emit(next.generation, &clear, body, &root, nonce) {
            Ok(bytes) => {
                *generation = next.generation;
                self.raising.raised = Some(Effect::RaiseMinimum { slot: next.slot, bytes: bytes.into() });
                Ok(Some(Minimum { directory: body.minimum_directory, header: body.minimum_header }))
            }
            Err(error) => {
                (body.minimum_directory, (body.minimum_header, body.key_generation)) = before;
                Err(error.into())
            }
        }
    }

    /// The generation of the cluster key that the disk is locked with, where the seal names another one. By the time that the seal is
    /// written both copies of the header are: the plan has their effects first.
    fn rotated(&self) -> Option<u32> {
        let generation = self.opened.header.lock.as_ref()?.key_generation;
        Some(generation).filter(|generation| *generation != self.seal.body.key_generation)
    }

    /// Plans the effects, and says for which member. A header that a cut left provisional is committed before its data is
    /// opened, under a salt that `fill` fills with random bytes. Where the half brings the next cluster key along, the disk is
    /// locked with that from the end of this plan on; and where a cut left two headers, both places hold the one that opened.
    ///
    /// # Errors
    /// [`PlanError`]; nothing was written.
    pub fn plan<E: std::error::Error + 'static>(
        self,
        fill: impl FnOnce(&mut [u8]) -> Result<(), E>,
    ) -> Result<(Plan, Membership), PlanError<E>> {
        let Self { seal, opened, half, leftovers, locking, raising } = self;
        let holder = seal.body.holder();
        let salt = || {
            let mut salt = [0; 32];
            fill(&mut salt).map_err(PlanError::Random)?;
            Ok::<_, PlanError<E>>(salt)
        };
        let mut last = Vec::new();
        let mut locked = opened.header.clone();
        let committed = match opened.header.state {
            State::Provisional => Some(opened.commit(&seal.body.local_key, half.as_ref(), salt()?, &holder)?),
            State::Committed => {
                let rotated = match half.as_ref().filter(|half| locking.takes_next(half)) {
                    Some(half) => locking.rotate(&seal.body, &opened, half, salt()?)?,
                    None => None,
                };
                if let Some(Rotated { record, header }) = rotated {
                    last.extend(record);
                    last.extend(HeaderCopy::BOTH.map(|copy| Effect::header(copy, &header)));
                    locked = header;
                } else {
                    last.extend(locking.behind(&locked).map(|copy| Effect::header(copy, &locked)));
                }
                None
            }
        };
        last.extend(raising.raised);
        let plan = Plan::open(opened, committed, leftovers, last, holder);
        let mut membership = Membership::of(seal);
        if let Some(lock) = &locked.lock {
            membership.recorded.key_generation = lock.key_generation;
        }
        Ok((plan, membership))
    }
}

/// Leftovers of enrolment on the ESP of a machine whose seal opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Leftovers {
    /// The config.
    pub config: Leftover,
    /// The slot of the seal's pair that holds an attempt.
    pub attempt: Option<usize>,
}

/// Fate of a config that a sealed machine still finds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Leftover {
    /// No config is there.
    #[default]
    Absent,
    /// The config is the one that enrolled the machine, or what a cut left of removing it.
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
