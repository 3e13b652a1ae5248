//! The create of a cluster: everything random, issued or kept by the TPM is there before the first effect, so what is left
//! is one [`Plan`].
//!
//! ```text
//!  Creation ──draft──► Draft ──plan──► Plan ──perform──► …
//!    Material, Issued ──┘        └── Keeper, the directory's signature
//! ```
//! A cut after any effect leaves what [`crate::found`] has a row for; the test `crash` tries them all.

use std::sync::Arc;

use keys::cold_start::Epoch;
use keys::data_key::{ClusterHalf, DataKey, Holder, Volume, Wrapping};
use keys::directory::{Coordinator, Directory, Unsigned};
use keys::header::{Header, State, Suite};
use keys::identity::{Identity, SigningKey, cluster_id, cluster_key, machine_id};
use keys::pair::{File, Next, TooLarge};
use keys::record::Record;
use keys::recovery::{self, Context, Kind, SealFailed, SealedToOwner};
use keys::seal::{self, Body, Clear};
use keys::share::Share;
use model::{
    Assignment, BootClass, ClusterKey, ColdStart, ConfigDigest, DiskUuid, Level, LocalKey, MasterSecret, NodeName,
    SealRoot, Secret, Uuid, VolumeKey,
};

use crate::config::EnrolmentConfig;
use crate::found::{Creation, Seal};
use crate::keeper::{Keeper, bound};
use crate::member::Membership;
use crate::plan::{Effect, HeaderCopy, Mapping, NewData, Plan};

/// The generation of the first cluster key of a disk.
const FIRST_KEY: u32 = 1;
/// The provisional header's generation; the committed one follows.
const FIRST_HEADER: u64 = 1;

/// Everything that is random in a new machine.
#[derive(Debug)]
pub struct Material {
    /// Signs for the machine; its id and its certificate are made of the public half.
    pub identity: SigningKey,
    /// The key of its data partition.
    pub volume_key: VolumeKey,
    /// Its half of what opens that.
    pub local_key: LocalKey,
    /// What the cluster's half derives from.
    pub master_secret: MasterSecret,
    /// Encrypts the seal's body; kept by the TPM, or in clear where the owner allows that.
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
    /// The CA's SubjectPublicKeyInfo: its hash is the cluster's id.
    pub ca_spki: Vec<u8>,
    /// The CA's certificate, signed by itself.
    pub ca_certificate: Vec<u8>,
    /// The machine's certificate, signed by the CA.
    pub machine_certificate: Vec<u8>,
}

/// A machine that is about to be created.
#[derive(Debug)]
pub struct Draft {
    config: EnrolmentConfig,
    digest: ConfigDigest,
    material: Material,
    issued: Issued,
    holder: Holder,
    next: NextWrites,
    boot_class: BootClass,
}

/// The cluster's first directory, signed by its CA.
#[derive(Debug)]
pub struct SignedDirectory {
    /// From [`Draft::directory`].
    pub directory: Unsigned,
    /// ECDSA P-256, DER.
    pub signature: Vec<u8>,
}

/// What only the owner can open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ForOwner {
    slot: SealedToOwner,
    record: Record,
}

/// Why a create cannot begin; nothing was written.
#[derive(Debug, thiserror::Error)]
pub enum CreateError<E: std::error::Error + 'static> {
    /// The TPM does not seal.
    #[error(transparent)]
    Keeper(E),
    /// The owner's key does not take a secret.
    #[error(transparent)]
    Owner(#[from] SealFailed),
    /// Certificates or TPM blobs do not fit into their files.
    #[error(transparent)]
    TooLarge(#[from] TooLarge),
}

/// Where the next write of each pair goes, as read from the ESP: behind a seal, and behind what an abandoned attempt left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NextWrites {
    pub(crate) seal: Next,
    pub(crate) share: Next,
    pub(crate) directory: Next,
    pub(crate) record: Next,
}

impl Draft {
    pub(crate) fn new(creation: Creation, material: Material, issued: Issued) -> Self {
        let Creation { verified, next, boot_class } = creation;
        let machine = machine_id(&material.identity.public());
        let holder = Holder { cluster: cluster_id(&issued.ca_spki), machine };
        Self { config: verified.config, digest: verified.digest, material, issued, holder, next, boot_class }
    }

    /// Wrapped in the share, and on no account written anywhere in clear.
    fn cluster_key(&self) -> ClusterKey {
        cluster_key(&self.material.master_secret, self.holder.cluster, self.material.disk, FIRST_KEY)
    }

    /// The cluster's first directory, to be signed by its CA.
    #[must_use]
    pub fn directory(&self, endpoints: Vec<String>) -> Unsigned {
        let coordinators = vec![Coordinator { machine: self.holder.machine, endpoints }];
        Directory { cluster: self.holder.cluster, version: 1, coordinators }.unsigned()
    }

    /// Seals volume key and master secret to the owner, under ephemeral keys from the system's random source.
    fn for_owner(&self) -> Result<ForOwner, SealFailed> {
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

    /// Has the TPM keep what it is to keep, where there is one, and puts all effects into their order. `now` is in seconds
    /// of Unix time.
    ///
    /// # Errors
    /// [`CreateError`]; nothing was written.
    pub fn plan<K: Keeper>(
        self,
        mut keeper: Option<&mut K>,
        signed: SignedDirectory,
        now: u64,
    ) -> Result<(Plan, Membership), CreateError<K::Error>> {
        let next = self.next;
        let esp = |file, next: Next, bytes: Vec<u8>| Effect::WriteEsp { file, slot: next.slot, bytes: bytes.into() };
        let binding = bound(&self.material.seal_root.0, keeper.as_deref_mut()).map_err(CreateError::Keeper)?;
        let share = self.share(keeper)?;
        let owner = self.for_owner()?;
        let record = owner.record.emit(next.record.generation)?;
        let directory = signed.directory.emit(next.directory.generation, signed.signature)?;
        let cluster = self.cluster_key();
        let node_name = self.config.node.clone().unwrap_or_else(|| NodeName::derived(self.holder.machine));
        let Self { config, digest, material, issued, holder, boot_class, .. } = self;
        let (locked, disk) = (suite(config.create.level), material.disk);
        let key = DataKey::fresh(material.volume_key);
        let header = |state, generation, salt| match locked {
            None => Header { state, generation, disk, lock: None },
            Some(suite) => {
                let owner = Some(owner.slot);
                let wrapping = Wrapping { state, generation, disk, suite, key_generation: FIRST_KEY, salt, owner };
                key.wrap(&wrapping, &material.local_key, &cluster, &holder)
            }
        };
        let provisional = header(State::Provisional, FIRST_HEADER, material.provisional_salt);
        let committed = header(State::Committed, FIRST_HEADER + 1, material.committed_salt);
        let identity = Identity {
            key: material.identity,
            holder,
            name: node_name.clone(),
            certificate: issued.machine_certificate,
            ca_certificate: issued.ca_certificate,
        };
        let clear = Clear {
            binding,
            boot_class,
            salt: material.seal_salt,
            network: config.network,
            vpn_prefix: config.create.vpn_prefix,
            node_name,
            sealed_at: now,
        };
        let body = Body {
            local_key: material.local_key,
            identity: Arc::new(identity),
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
        let bytes = seal::emit(next.seal.generation, &clear, &body, &material.seal_root, material.seal_nonce)?;
        let volume = match locked {
            None => Volume::Raw,
            Some(Suite::Encrypted) => Volume::Encrypted(key),
            Some(Suite::Authenticated) => Volume::Authenticated(key),
        };
        let data = NewData {
            assignment: Assignment::first(config.create.vpn_prefix, config.create.kubernetes_roles),
            master_secret: material.master_secret,
            first_contact: config.first_contact,
        };

        let mut effects = vec![
            Effect::GrowData,
            Effect::header(HeaderCopy::First, &provisional),
            Effect::header(HeaderCopy::Second, &provisional),
            Effect::MapVolume { disk, volume, mapping: Mapping::Format },
            Effect::MakeFilesystem,
            Effect::Mount,
            Effect::PopulateData(Box::new(data)),
        ];
        effects.extend(share.map(|bytes| esp(File::Share, next.share, bytes)));
        effects.extend([
            esp(File::Record, next.record, record),
            esp(File::Directory, next.directory, directory),
            esp(File::Seal, next.seal, bytes),
            Effect::header(HeaderCopy::First, &committed),
            Effect::header(HeaderCopy::Second, &committed),
            Effect::RemoveConfig,
            Effect::LoadKeys,
        ]);
        Ok((Plan::create(effects, holder), Membership::of(Seal { clear, body })))
    }

    /// The share, where the policy keeps one and the level needs one.
    fn share<K: Keeper>(&self, keeper: Option<&mut K>) -> Result<Option<Vec<u8>>, CreateError<K::Error>> {
        match (self.config.create.cold_start, self.config.create.level) {
            (ColdStart::Automatic, Level::Encrypted | Level::Authenticated) => {
                let epoch = Epoch::first(self.holder.machine);
                let Holder { cluster, machine } = self.holder;
                let (key, share) =
                    epoch.derive(&self.material.master_secret, cluster, &machine).expect("it is its own");
                let half = ClusterHalf { key: self.cluster_key(), disk: self.material.disk, generation: FIRST_KEY };
                let binding = bound(&share, keeper).map_err(CreateError::Keeper)?;
                Ok(Some(Share { binding, epoch, wrapped: key.wrap(&half) }.emit(self.next.share.generation)?))
            }
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

#[cfg(test)]
mod tests;
