//! Writes of a machine that becomes a member, whichever way it came: by create or by join. One order of effects, one way to a
//! header and a seal. Must never decide what is assigned, or who is let in.
//!
//! ```text
//!   grow ► header, provisional ► layers ► mkfs ► mount ► keys on DATA ► files on the ESP ► seal ► attempt erased
//!        ► header, committed ► config removed ► keys read ► cap
//! ```
//! A cut after any effect leaves what [`crate::found`] has a row for; the test `crash` tries them all.

use std::sync::Arc;

use keys::binding::Binding;
use keys::data_key::{DataKey, HeaderFields, Holder, Volume};
use keys::header::{Header, HeaderState, Suite};
use keys::identity::{Identity, SigningKey};
use keys::record::Record;
use keys::recovery::{self, OwnerSealError, RecoveryPubKey, SecretContext, SecretKind};
use keys::seal::{self, Body, Clear};
use keys::two_slot::{File, NextSlot, TooLarge};
use model::{
    BootClass, ClusterKey, ColdStart, ConfigDigest, DiskUuid, Level, LocalKey, NetworkConfig, NodeName, Prefixes,
    SealRoot, Secret, Uuid, VolumeKey, VpnPrivKey,
};

use crate::files::NextWrites;
use crate::member::Membership;
use crate::plan::Plan;
use crate::seal::Seal;
use crate::step::{Effect, HeaderCopy, Mapping, NewData};

/// The provisional header's generation; the committed one follows.
pub(crate) const FIRST_HEADER: u64 = 1;

/// Facts of a machine that are known before anything is made for it.
#[derive(Debug)]
pub(crate) struct Site {
    /// The name that its config gives it, if it does.
    pub(crate) node: Option<NodeName>,
    /// How it gets its public addresses.
    pub(crate) network: NetworkConfig,
    /// Digest of the machine's config.
    pub(crate) digest: ConfigDigest,
    /// How it was started.
    pub(crate) boot_class: BootClass,
    /// Where its ESP is written.
    pub(crate) next: NextWrites,
    /// The slot of the seal's file in which an attempt is left over.
    pub(crate) attempt: Option<usize>,
}

/// Random parts of one data partition and its seal, drawn anew whenever it is formatted.
#[derive(Debug)]
pub struct Fresh {
    /// The key of the data partition.
    pub(crate) volume_key: VolumeKey,
    /// Encrypts the seal's body; kept by the TPM, or in clear where the owner allows that.
    pub(crate) seal_root: SealRoot,
    pub(crate) provisional_salt: [u8; 32],
    pub(crate) committed_salt: [u8; 32],
    pub(crate) seal_salt: [u8; 32],
    pub(crate) seal_nonce: [u8; 12],
}

impl Fresh {
    /// Draws all of it from `fill`, which fills a slice with random bytes.
    ///
    /// # Errors
    /// What `fill` returns.
    pub fn draw<E>(mut fill: impl FnMut(&mut [u8]) -> Result<(), E>) -> Result<Self, E> {
        let mut secret = || Secret::fill(|bytes| fill(bytes));
        let (volume_key, seal_root) = (secret()?, secret()?);
        let [mut provisional_salt, mut committed_salt, mut seal_salt] = [[0; 32]; 3];
        let mut seal_nonce = [0; 12];
        fill(&mut provisional_salt)?;
        fill(&mut committed_salt)?;
        fill(&mut seal_salt)?;
        fill(&mut seal_nonce)?;
        let (volume_key, seal_root) = (VolumeKey(volume_key), SealRoot(seal_root));
        Ok(Self { volume_key, seal_root, provisional_salt, committed_salt, seal_salt, seal_nonce })
    }
}

/// Names a data partition that is going to be formatted.
pub(crate) fn random_disk<E>(fill: &mut impl FnMut(&mut [u8]) -> Result<(), E>) -> Result<DiskUuid, E> {
    let mut disk = [0; 16];
    fill(&mut disk)?;
    // A random UUID says that it is one (RFC 9562, section 5.4).
    disk[6] = disk[6] & 0x0f | 0x40;
    disk[8] = disk[8] & 0x3f | 0x80;
    Ok(DiskUuid(Uuid(disk)))
}

/// Draws a key for the VPN: an X25519 private key (RFC 7748, section 5), clamped as WireGuard keeps them.
pub(crate) fn random_vpn_key<E>(fill: &mut impl FnMut(&mut [u8]) -> Result<(), E>) -> Result<VpnPrivKey, E> {
    let key = Secret::fill(|bytes: &mut [u8; 32]| {
        fill(bytes)?;
        bytes[0] &= 248;
        bytes[31] = bytes[31] & 127 | 64;
        Ok(())
    });
    key.map(VpnPrivKey)
}

/// Certificates that a cluster's CA issued. DER.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IssuedCertificates {
    /// The CA's SubjectPublicKeyInfo: its hash is the cluster's id.
    pub ca_spki: Vec<u8>,
    /// The CA's certificate, signed by itself.
    pub ca_certificate: Vec<u8>,
    /// The machine's certificate, signed by the CA.
    pub machine_certificate: Vec<u8>,
}

/// Why a machine cannot be made ready to become a member; nothing was written.
#[derive(Debug, thiserror::Error)]
pub enum PrepareError<E: std::error::Error + 'static> {
    /// The TPM does not seal.
    #[error(transparent)]
    Keeper(E),
    /// The owner's key does not take a secret.
    #[error(transparent)]
    Owner(#[from] OwnerSealError),
    /// Certificates or TPM blobs do not fit into their files.
    #[error(transparent)]
    TooLarge(#[from] TooLarge),
}

/// A machine that is about to become a member.
#[derive(Debug)]
pub(crate) struct Making {
    pub(crate) site: Site,
    pub(crate) fresh: Fresh,
    /// Keeps the seal root.
    pub(crate) binding: Binding,
    pub(crate) identity: SigningKey,
    pub(crate) local_key: LocalKey,
    pub(crate) disk: DiskUuid,
    pub(crate) holder: Holder,
    pub(crate) issued: IssuedCertificates,
    pub(crate) node_name: NodeName,
    /// The cluster's half of what opens the disk, and its generation.
    pub(crate) cluster_key: ClusterKey,
    pub(crate) key_generation: u32,
    pub(crate) owner_pub_key: [u8; 32],
    pub(crate) owner_recovery: RecoveryPubKey,
    pub(crate) level: Level,
    pub(crate) cold_start: ColdStart,
    pub(crate) prefixes: Prefixes,
    pub(crate) minimum_directory: u64,
    /// Contents of the data partition.
    pub(crate) data: NewData,
    /// Writes on the ESP before the seal, in this order.
    pub(crate) files: Vec<Effect>,
}

/// A whole slot of the ESP.
pub(crate) fn esp(file: File, next: NextSlot, bytes: Vec<u8>) -> Effect {
    Effect::WriteEsp { file, slot: next.slot, bytes: bytes.into() }
}

/// The recovery record with a secret that only the owner can open.
pub(crate) fn record(
    owner: &RecoveryPubKey,
    context: SecretContext,
    secret: &Secret<32>,
) -> Result<Record, OwnerSealError> {
    Ok(Record { context, sealed: recovery::seal(owner, &context, secret)? })
}

impl Making {
    /// All effects in their order, and who the machine will be. `now` is in seconds of Unix time.
    ///
    /// # Errors
    /// [`OwnerSealError`] or [`TooLarge`], as [`PrepareError`]; nothing was written.
    pub(crate) fn plan<E: std::error::Error>(self, now: u64) -> Result<(Plan, Membership), PrepareError<E>> {
        let Self { site, fresh, disk, holder, key_generation, .. } = &self;
        let next = site.next;
        let context = SecretContext {
            kind: SecretKind::VolumeKey,
            cluster: holder.cluster,
            machine: holder.machine,
            disk: *disk,
            key_generation: *key_generation,
        };
        let owner_slot = recovery::seal(&self.owner_recovery, &context, &fresh.volume_key.0)?;
        let (holder, disk, key_generation) = (*holder, *disk, *key_generation);
        let erased = site.attempt.filter(|slot| *slot != next.seal.slot);

        let Self { site, fresh, level, local_key, cluster_key, .. } = self;
        let locked = suite(level);
        let key = DataKey::fresh(fresh.volume_key);
        let header = |state, generation, salt| match locked {
            None => Header { state, generation, disk, lock: None },
            Some(suite) => {
                let owner = Some(owner_slot);
                let wrapping = HeaderFields { state, generation, disk, suite, key_generation, salt, owner };
                key.wrap(&wrapping, &local_key, &cluster_key, &holder)
            }
        };
        let provisional = header(HeaderState::Provisional, FIRST_HEADER, fresh.provisional_salt);
        let committed = header(HeaderState::Committed, FIRST_HEADER + 1, fresh.committed_salt);
        let identity = Identity {
            key: self.identity.into(),
            holder,
            name: self.node_name.clone(),
            certificate: self.issued.machine_certificate,
            ca_certificate: self.issued.ca_certificate,
        };
        let clear = Clear {
            binding: self.binding,
            boot_class: site.boot_class,
            salt: fresh.seal_salt,
            network: site.network,
            prefixes: self.prefixes,
            node_name: self.node_name,
            sealed_at: now,
        };
        let body = Body {
            local_key,
            identity: Arc::new(identity),
            owner_pub_key: self.owner_pub_key,
            owner_recovery: self.owner_recovery,
            level,
            cold_start: self.cold_start,
            // Not the committed header's: a cut before that one must still find a header it may open.
            minimum_header: FIRST_HEADER,
            minimum_directory: self.minimum_directory,
            config: site.digest,
            disk,
            key_generation,
        };
        let bytes = seal::emit(next.seal.generation, &clear, &body, &fresh.seal_root, fresh.seal_nonce)?;
        let volume = match locked {
            None => Volume::Raw,
            Some(Suite::Encrypted) => Volume::Encrypted(key),
            Some(Suite::Authenticated) => Volume::Authenticated(key),
        };

        let mut effects = vec![
            Effect::GrowData,
            Effect::header(HeaderCopy::First, &provisional),
            Effect::header(HeaderCopy::Second, &provisional),
            Effect::MapVolume { disk, volume, mapping: Mapping::Format },
            Effect::MakeFilesystem,
            Effect::Mount,
            Effect::PopulateData(Box::new(self.data)),
        ];
        effects.extend(self.files);
        effects.push(esp(File::Seal, next.seal, bytes));
        effects.extend(erased.map(|slot| Effect::EraseAttempt { slot }));
        effects.extend([
            Effect::header(HeaderCopy::First, &committed),
            Effect::header(HeaderCopy::Second, &committed),
            Effect::RemoveConfig,
            Effect::LoadKeys,
        ]);
        Ok((Plan::enrol(effects, holder), Membership::of(Seal { clear, body, generation: next.seal.generation })))
    }
}

const fn suite(level: Level) -> Option<Suite> {
    match level {
        Level::Insecure => None,
        Level::Encrypted => Some(Suite::Encrypted),
        Level::Authenticated => Some(Suite::Authenticated),
    }
}
