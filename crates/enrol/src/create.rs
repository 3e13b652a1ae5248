//! The order of create, and of opening what create made. Everything random, issued or protected is there before the
//! first effect, so what is left is one list of effects, each performed and durable before the next begins.
//!
//! ```text
//!  Draft ──plan──► Plan ──State::start──► Performing ─Done─► … ─Done─► Finished
//!                                              └─Failed─► Failed      (an event that does not fit: Report)
//! ```
//! A cut after any effect leaves what [`crate::found`] has a row for; the test `crash` tries them all.

use std::collections::VecDeque;
use std::fmt;

use keys::binding::Binding;
use keys::data_key::{ClusterHalf, DataKey, Holder, OpenError, Opened, Volume, Wrapping};
use keys::directory::{Coordinator, Directory, Unsigned};
use keys::header::{HEADER_BYTES, Header, State as HeaderState, Suite};
use keys::identity::{SigningKey, cluster_id, cluster_key, machine_id};
use keys::pair::{File, Next, TooLarge};
use keys::record::Record;
use keys::recovery::{self, Context, Kind, SealFailed, SealedToOwner};
use keys::seal::{self, Body, Clear};
use keys::share::Share;
use model::{
    BootClass, ClusterKey, ColdStart, ConfigDigest, DiskUuid, FirstContact, Level, LocalKey, MasterSecret, NodeName,
    SealRoot, Secret, Uuid, VolumeKey,
};
use zeroize::Zeroizing;

use crate::config::{EnrolmentConfig, Verified};
use crate::found::Leftover;

/// The generation of the first cluster key of a disk.
const FIRST_KEY: u32 = 1;
/// The provisional header's generation; the committed one follows.
const FIRST_HEADER: u64 = 1;

/// Everything that is random in a new machine.
#[derive(Debug)]
pub struct Material {
    /// The machine's identity.
    pub identity: SigningKey,
    /// The key of its data partition.
    pub volume_key: VolumeKey,
    /// Its half of what opens that.
    pub local_key: LocalKey,
    /// What the cluster's half derives from.
    pub master_secret: MasterSecret,
    /// What its TPM keeps.
    pub seal_root: SealRoot,
    /// Names its data partition.
    pub disk: DiskUuid,
    provisional_salt: [u8; 32],
    committed_salt: [u8; 32],
    seal_salt: [u8; 32],
    seal_nonce: [u8; 12],
}

impl Material {
    /// Draws all of it from `fill`, which fills a slice with random bytes.
    ///
    /// # Errors
    /// What `fill` returns.
    pub fn draw<E>(mut fill: impl FnMut(&mut [u8]) -> Result<(), E>) -> Result<Self, E> {
        let mut secret = || Secret::fill(|bytes| fill(bytes));
        let (identity, volume_key, local_key) = (secret()?, secret()?, secret()?);
        let (master_secret, seal_root) = (secret()?, secret()?);
        let mut disk = [0; 16];
        let [mut provisional_salt, mut committed_salt, mut seal_salt] = [[0; 32]; 3];
        let mut seal_nonce = [0; 12];
        fill(&mut disk)?;
        fill(&mut provisional_salt)?;
        fill(&mut committed_salt)?;
        fill(&mut seal_salt)?;
        fill(&mut seal_nonce)?;
        // A random UUID says that it is one (RFC 9562, section 5.4).
        disk[6] = disk[6] & 0x0f | 0x40;
        disk[8] = disk[8] & 0x3f | 0x80;
        Ok(Self {
            identity: SigningKey::from_seed(identity),
            volume_key: VolumeKey(volume_key),
            local_key: LocalKey(local_key),
            master_secret: MasterSecret(master_secret),
            seal_root: SealRoot(seal_root),
            disk: DiskUuid(Uuid(disk)),
            provisional_salt,
            committed_salt,
            seal_salt,
            seal_nonce,
        })
    }
}

/// What the new cluster's CA issued. DER.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Issued {
    /// The CA's SubjectPublicKeyInfo.
    pub ca_spki: Vec<u8>,
    /// The CA's certificate.
    pub ca_certificate: Vec<u8>,
    /// The machine's certificate.
    pub machine_certificate: Vec<u8>,
}

/// A machine that is about to be created: asks for what must be signed, protected and sealed.
#[derive(Debug)]
pub struct Draft {
    config: EnrolmentConfig,
    digest: ConfigDigest,
    material: Material,
    issued: Issued,
    holder: Holder,
}

/// What the shell made of a [`Draft`]'s secrets.
#[derive(Debug)]
pub struct Protected {
    /// What keeps [`Draft::seal_root`].
    pub seal: Binding,
    /// What keeps [`Draft::cluster_key`].
    pub share: Binding,
    /// From [`Draft::for_owner`].
    pub owner: ForOwner,
    /// From [`Draft::directory`].
    pub directory: Unsigned,
    /// The CA's signature (ECDSA P-256, DER) over it.
    pub directory_signature: Vec<u8>,
}

/// What only the owner can open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ForOwner {
    slot: SealedToOwner,
    record: Record,
}

/// Where and when the machine is created.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Situation {
    /// How it was started.
    pub boot_class: BootClass,
    /// Seconds of Unix time.
    pub now: u64,
    /// Where the next write of each pair goes, as read from the ESP: a seal's and an abandoned attempt's others.
    pub next: NextWrites,
}

/// Where the next write of each pair goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NextWrites {
    /// `seal`.
    pub seal: Next,
    /// `share`.
    pub share: Next,
    /// `directory`.
    pub directory: Next,
    /// `record`.
    pub record: Next,
}

impl Draft {
    /// Brings together what the owner wants, what is random, and what the CA issued.
    #[must_use]
    pub fn new(verified: Verified, material: Material, issued: Issued) -> Self {
        let machine = machine_id(&material.identity.public());
        let holder = Holder { cluster: cluster_id(&issued.ca_spki), machine };
        Self { config: verified.config, digest: verified.digest, material, issued, holder }
    }

    /// Machine and cluster.
    #[must_use]
    pub fn holder(&self) -> Holder {
        self.holder
    }

    /// Host and node name.
    #[must_use]
    pub fn node_name(&self) -> NodeName {
        self.config.node.clone().unwrap_or_else(|| NodeName::derived(self.holder.machine))
    }

    /// To be kept by the share's binding, and on no account written anywhere else.
    #[must_use]
    pub fn cluster_key(&self) -> ClusterKey {
        cluster_key(&self.material.master_secret, self.holder.cluster, self.material.disk, FIRST_KEY)
    }

    /// To be kept by the seal's binding.
    #[must_use]
    pub fn seal_root(&self) -> &SealRoot {
        &self.material.seal_root
    }

    /// The cluster's first directory, to be signed by its CA.
    #[must_use]
    pub fn directory(&self, endpoints: Vec<String>) -> Unsigned {
        let coordinators = vec![Coordinator { machine: self.holder.machine, endpoints }];
        Directory { cluster: self.holder.cluster, version: 1, coordinators }.unsigned()
    }

    /// Seals volume key and master secret to the owner. Draws ephemeral keys from the system's random source.
    ///
    /// # Errors
    /// [`SealFailed`] when that fails.
    pub fn for_owner(&self) -> Result<ForOwner, SealFailed> {
        let owner = &self.config.create.owner_recovery;
        let context = |kind| Context {
            kind,
            cluster: self.holder.cluster,
            machine: self.holder.machine,
            disk: self.material.disk,
            key_generation: FIRST_KEY,
        };
        let slot = recovery::seal(owner, &context(Kind::VolumeKey), &self.material.volume_key.0)?;
        let context = context(Kind::MasterSecret);
        let sealed = recovery::seal(owner, &context, &self.material.master_secret.0)?;
        Ok(ForOwner { slot, record: Record { context, sealed } })
    }

    /// All effects of create, in their order.
    ///
    /// # Errors
    /// [`TooLarge`] when certificates or TPM blobs do not fit into their files.
    pub fn plan(self, protected: Protected, situation: &Situation) -> Result<Plan, TooLarge> {
        let next = situation.next;
        let esp = |file, next: Next, bytes: Vec<u8>| Effect::WriteEsp { file, slot: next.slot, bytes: bytes.into() };
        let share = self.share(protected.share, next.share)?;
        let record = protected.owner.record.emit(next.record.generation)?;
        let directory = protected.directory.emit(next.directory.generation, protected.directory_signature)?;
        let cluster = self.cluster_key();
        let node_name = self.node_name();
        let Self { config, digest, material, issued, holder } = self;
        let (locked, disk) = (suite(config.create.level), material.disk);
        let key = DataKey::fresh(material.volume_key);
        let header = |state, generation, salt| match locked {
            None => Header { state, generation, disk, lock: None },
            Some(suite) => {
                let owner = Some(protected.owner.slot);
                let wrapping = Wrapping { state, generation, disk, suite, key_generation: FIRST_KEY, salt, owner };
                key.wrap(&wrapping, &material.local_key, &cluster, &holder)
            }
        };
        let provisional = header(HeaderState::Provisional, FIRST_HEADER, material.provisional_salt);
        let committed = header(HeaderState::Committed, FIRST_HEADER + 1, material.committed_salt);
        let clear = Clear {
            binding: protected.seal,
            boot_class: situation.boot_class,
            salt: material.seal_salt,
            network: config.network,
            vpn_prefix: config.create.vpn_prefix,
            node_name,
            sealed_at: situation.now,
        };
        let body = Body {
            local_key: material.local_key,
            identity: material.identity,
            machine_certificate: issued.machine_certificate,
            ca_certificate: issued.ca_certificate,
            cluster: holder.cluster,
            owner_pub_key: config.create.owner_pub_key,
            owner_recovery: config.create.owner_recovery,
            level: config.create.level,
            cold_start: config.create.cold_start,
            // Not the committed header's: a cut before that one must still find a header it may open.
            minimum_header: FIRST_HEADER,
            minimum_directory: 1,
            config: digest,
            disk,
            key_generation: FIRST_KEY,
        };
        let seal = seal::emit(next.seal.generation, &clear, &body, &material.seal_root, material.seal_nonce)?;
        let volume = match locked {
            None => Volume::Raw,
            Some(Suite::Encrypted) => Volume::Encrypted(key),
            Some(Suite::Authenticated) => Volume::Authenticated(key),
        };
        let data = NewData { master_secret: material.master_secret, first_contact: config.first_contact };

        let mut effects = VecDeque::from([
            Effect::GrowData,
            write_header(HeaderCopy::First, &provisional),
            write_header(HeaderCopy::Second, &provisional),
            Effect::MapVolume { volume, mapping: Mapping::Format },
            Effect::MakeFilesystem,
            Effect::Mount,
            Effect::PopulateData(Box::new(data)),
        ]);
        effects.extend(share.map(|bytes| esp(File::Share, next.share, bytes)));
        effects.extend([
            esp(File::Record, next.record, record),
            esp(File::Directory, next.directory, directory),
            esp(File::Seal, next.seal, seal),
            write_header(HeaderCopy::First, &committed),
            write_header(HeaderCopy::Second, &committed),
            Effect::RemoveConfig,
            Effect::ExtendCap,
            Effect::StartServices,
            Effect::Announce,
        ]);
        Ok(Plan(effects))
    }

    /// The share, where the policy keeps one and the level needs one.
    fn share(&self, binding: Binding, next: Next) -> Result<Option<Vec<u8>>, TooLarge> {
        let share = Share { binding, disk: self.material.disk, key_generation: FIRST_KEY };
        match (self.config.create.cold_start, self.config.create.level) {
            (ColdStart::Automatic, Level::Encrypted | Level::Authenticated) => share.emit(next.generation).map(Some),
            (ColdStart::Automatic, Level::Insecure) | (ColdStart::Manual, _) => Ok(None),
        }
    }
}

const fn suite(level: Level) -> Option<Suite> {
    match level {
        Level::Insecure => None,
        Level::Encrypted => Some(Suite::Encrypted),
        Level::Authenticated => Some(Suite::Authenticated),
    }
}

fn write_header(copy: HeaderCopy, header: &Header) -> Effect {
    Effect::WriteHeader { copy, state: header.state, bytes: header.to_bytes() }
}

/// Effects in the order in which they are performed.
#[derive(Debug, Default)]
pub struct Plan(VecDeque<Effect>);

impl Plan {
    /// Opening a data partition whose header opened and is committed.
    #[must_use]
    pub fn open(opened: Opened, leftover: Leftover) -> Self {
        let mut effects =
            VecDeque::from([Effect::MapVolume { volume: opened.volume, mapping: Mapping::Open }, Effect::Mount]);
        effects.extend(match leftover {
            Leftover::Remove => Some(Effect::RemoveConfig),
            Leftover::Absent | Leftover::Ignore => None,
        });
        effects.extend([Effect::ExtendCap, Effect::StartServices, Effect::Announce]);
        Self(effects)
    }

    /// Going on with a create that was cut between seal and commit. `salt` is 32 random bytes.
    ///
    /// # Errors
    /// [`OpenError::ClusterHalfMissing`] when the half that opened the header is not given.
    pub fn commit_then_open(
        opened: Opened,
        seal: &Body,
        cluster: Option<&ClusterHalf>,
        salt: [u8; 32],
        leftover: Leftover,
    ) -> Result<Self, OpenError> {
        let committed = opened.commit(&seal.local_key, cluster, salt, &seal.holder())?;
        let Self(mut effects) = Self::open(opened, leftover);
        effects.push_front(write_header(HeaderCopy::Second, &committed));
        effects.push_front(write_header(HeaderCopy::First, &committed));
        Ok(Self(effects))
    }
}

/// One thing the shell does. It answers [`Event::Done`] once the effect is durable.
#[derive(Debug)]
pub enum Effect {
    /// Grow the data partition to the end of the disk: backup GPT, primary GPT, then the kernel's view.
    GrowData,
    /// Write one copy of the data header at its [`keys::header::HEADER_OFFSETS`], flush.
    WriteHeader {
        /// Which copy.
        copy: HeaderCopy,
        /// What the header says.
        state: HeaderState,
        /// Its bytes.
        bytes: Box<[u8; HEADER_BYTES]>,
    },
    /// Make the block layers of the volume.
    MapVolume {
        /// The layers and their key.
        volume: Volume,
        /// Whether there is anything on it yet.
        mapping: Mapping,
    },
    /// mkfs.xfs on the uppermost layer.
    MakeFilesystem,
    /// Mount it.
    Mount,
    /// Write what a new cluster keeps on its data partition, beside CA keys and VPN key, which the shell made; syncfs.
    PopulateData(Box<NewData>),
    /// Overwrite one slot of a pair in place, sync.
    WriteEsp {
        /// The pair.
        file: File,
        /// 0 or 1: which of [`File::paths`].
        slot: usize,
        /// All of its bytes.
        bytes: Zeroizing<Vec<u8>>,
    },
    /// Overwrite the enrolment config with zeros, sync, remove it, sync.
    RemoveConfig,
    /// Extend PCR 11 with the cap, where there is a TPM.
    ExtendCap,
    /// Start the tree of services.
    StartServices,
    /// Answer `Claim`, show the machine as running.
    Announce,
    /// An event came that does not fit: to the log, nothing else happens.
    Report(Unexpected),
}

/// The two places of the data header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum HeaderCopy {
    /// At the start of the partition.
    First,
    /// Half a MiB on.
    Second,
}

/// How block layers are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Mapping {
    /// For the first time: dm-integrity formats itself, with `recalculate`.
    Format,
    /// Over what is there; never with `recalculate`.
    Open,
}

/// What the data partition of a new cluster keeps.
#[derive(Debug)]
pub struct NewData {
    /// What every cluster key derives from; until etcd holds it wrapped.
    pub master_secret: MasterSecret,
    /// Until the owner's first authenticated call.
    pub first_contact: FirstContact,
}

/// What an effect is, without what it carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Step {
    /// [`Effect::GrowData`].
    GrowData,
    /// [`Effect::WriteHeader`].
    WriteHeader(HeaderState, HeaderCopy),
    /// [`Effect::MapVolume`].
    MapVolume,
    /// [`Effect::MakeFilesystem`].
    MakeFilesystem,
    /// [`Effect::Mount`].
    Mount,
    /// [`Effect::PopulateData`].
    PopulateData,
    /// [`Effect::WriteEsp`].
    WriteEsp(File),
    /// [`Effect::RemoveConfig`].
    RemoveConfig,
    /// [`Effect::ExtendCap`].
    ExtendCap,
    /// [`Effect::StartServices`].
    StartServices,
    /// [`Effect::Announce`].
    Announce,
    /// [`Effect::Report`].
    Report,
}

impl Effect {
    /// Which effect it is.
    #[must_use]
    pub const fn step(&self) -> Step {
        match self {
            Self::GrowData => Step::GrowData,
            Self::WriteHeader { copy, state, .. } => Step::WriteHeader(*state, *copy),
            Self::MapVolume { .. } => Step::MapVolume,
            Self::MakeFilesystem => Step::MakeFilesystem,
            Self::Mount => Step::Mount,
            Self::PopulateData(_) => Step::PopulateData,
            Self::WriteEsp { file, .. } => Step::WriteEsp(*file),
            Self::RemoveConfig => Step::RemoveConfig,
            Self::ExtendCap => Step::ExtendCap,
            Self::StartServices => Step::StartServices,
            Self::Announce => Step::Announce,
            Self::Report(_) => Step::Report,
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::GrowData => "grow the data partition",
            Self::WriteHeader(HeaderState::Provisional, HeaderCopy::First) => "write the first copy of the data header",
            Self::WriteHeader(HeaderState::Provisional, HeaderCopy::Second) => {
                "write the second copy of the data header"
            }
            Self::WriteHeader(HeaderState::Committed, HeaderCopy::First) => "commit the first copy of the data header",
            Self::WriteHeader(HeaderState::Committed, HeaderCopy::Second) => {
                "commit the second copy of the data header"
            }
            Self::MapVolume => "set up the block layers",
            Self::MakeFilesystem => "make the filesystem",
            Self::Mount => "mount the data partition",
            Self::PopulateData => "write the cluster's keys",
            Self::WriteEsp(File::Seal) => "write the seal",
            Self::WriteEsp(File::Share) => "write the share",
            Self::WriteEsp(File::Directory) => "write the directory",
            Self::WriteEsp(File::Record) => "write the recovery record",
            Self::RemoveConfig => "remove the enrolment config",
            Self::ExtendCap => "cap the TPM",
            Self::StartServices => "start the services",
            Self::Announce => "announce the machine",
            Self::Report => "report",
        })
    }
}

/// What happened to the effect that was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// It is durable.
    Done(Step),
    /// It failed; the shell has the cause and shows it beside the step.
    Failed(Step),
}

/// An event for a step that is not being performed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("unexpected {event:?}: {}", match .waiting_for { Some(step) => format!("waiting to {step}"), None => "waiting for nothing".to_owned() })]
pub struct Unexpected {
    /// The event.
    pub event: Event,
    /// What is being performed.
    pub waiting_for: Option<Step>,
}

/// How far a plan is.
#[derive(Debug)]
#[must_use]
pub enum State {
    /// An effect was asked for.
    Performing {
        /// The one.
        step: Step,
        /// What follows it.
        rest: Plan,
    },
    /// Everything is done.
    Finished,
    /// An effect failed; the next boot decides anew by what it reads.
    Failed {
        /// The one.
        step: Step,
    },
}

impl State {
    /// Asks for the first effect.
    pub fn start(plan: Plan, out: &mut Vec<Effect>) -> Self {
        Self::next(plan, out)
    }

    /// Goes on when the effect that was asked for is durable.
    pub fn handle(self, event: Event, out: &mut Vec<Effect>) -> Self {
        match (self, event) {
            (Self::Performing { step, rest }, Event::Done(done)) if done == step => Self::next(rest, out),
            (Self::Performing { step, .. }, Event::Failed(failed)) if failed == step => Self::Failed { step },
            (state, event) => {
                let waiting_for = match &state {
                    Self::Performing { step, .. } => Some(*step),
                    Self::Finished | Self::Failed { .. } => None,
                };
                out.push(Effect::Report(Unexpected { event, waiting_for }));
                state
            }
        }
    }

    fn next(Plan(mut effects): Plan, out: &mut Vec<Effect>) -> Self {
        match effects.pop_front() {
            None => Self::Finished,
            Some(effect) => {
                let step = effect.step();
                out.push(effect);
                Self::Performing { step, rest: Plan(effects) }
            }
        }
    }
}

#[cfg(test)]
mod tests;
