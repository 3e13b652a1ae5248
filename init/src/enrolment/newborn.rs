//! A new cluster's first machine: everything random, issued and protected, made before the first effect. Writes nothing.

use std::time::Duration;

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair};
use enrol::config::Verified;
use enrol::create::{Draft, Issued, Material, NextWrites, Plan, Protected, Situation};
use keys::binding::Binding;
use keys::identity::{SigningKey, cluster_id, machine_id};
use model::{BootClass, Role, Secret, VpnPrivKey};
use pki::{Authority, AuthorityKind, PrivateKey, Profile, PublicKey, UnixTime};

use super::member::{Authorities, Membership, protection};
use super::vault::Keys;
use crate::machine::tpm::{self, Tpm};

/// What the owner ordered, and where the ESP has room for it.
#[derive(Debug)]
pub(super) struct Order {
    /// The config.
    pub(super) verified: Verified,
    /// Where the next write of each pair goes.
    pub(super) next: NextWrites,
}

/// How, where and when it happens.
#[derive(Debug)]
pub(super) struct Birth {
    /// How the machine was started.
    pub(super) class: BootClass,
    /// Where other machines will find it.
    pub(super) endpoints: Vec<String>,
    /// Unix time.
    pub(super) now: Duration,
}

/// Why a cluster could not be made ready.
#[derive(Debug, thiserror::Error)]
pub(super) enum MakeError {
    /// The kernel gives no random bytes.
    #[error("draw random bytes")]
    Random(#[source] std::io::Error),
    /// An authority or certificate could not be made.
    #[error("issue the cluster's certificates")]
    Issue(#[from] pki::IssueError),
    /// A key could not be made.
    #[error("make a key")]
    Key(#[from] pki::KeyError),
    /// The directory could not be signed.
    #[error("sign the directory")]
    Sign,
    /// The owner's key does not take a secret.
    #[error(transparent)]
    Owner(#[from] keys::recovery::SealFailed),
    /// The TPM does not seal.
    #[error(transparent)]
    Tpm(#[from] tpm::Error),
    /// A file of the ESP has no room for what belongs into it.
    #[error(transparent)]
    TooLarge(#[from] keys::pair::TooLarge),
}

/// Ready to be written.
#[derive(Debug)]
pub(super) struct Newborn {
    /// What to do, in its order.
    pub(super) plan: Plan,
    /// Who the machine will be.
    pub(super) membership: Membership,
    /// What its data partition will keep.
    pub(super) keys: Keys,
}

impl Newborn {
    /// Draws, issues, protects.
    ///
    /// # Errors
    /// [`MakeError`] names the step; nothing was written.
    pub(super) fn make(order: Order, mut tpm: Option<&mut Tpm>, birth: Birth) -> Result<Self, MakeError> {
        let Order { verified, next } = order;
        let Birth { class: boot_class, endpoints, now } = birth;
        let time = UnixTime::since_unix_epoch(now);
        let material = Material::draw(random).map_err(MakeError::Random)?;
        let authorities = Authorities {
            cairn: Authority::create(AuthorityKind::Cairn, time)?,
            etcd: Authority::create(AuthorityKind::Etcd, time)?,
            kubernetes: Authority::create(AuthorityKind::Kubernetes, time)?.into(),
            service_accounts: PrivateKey::generate()?,
        };
        let roles = verified.config.create.kubernetes_roles.clone();
        let public = material.identity.public();
        let ca_spki = authorities.cairn.public().spki();
        let (machine, cluster) = (machine_id(&public), cluster_id(&ca_spki));
        let profile = Profile::Machine { machine, cluster, roles: &certified(&roles) };
        let certificate = authorities.cairn.issue(&profile, &PublicKey::from_ed25519(public), time)?;
        let issued = Issued {
            ca_spki,
            ca_certificate: authorities.cairn.certificate().to_vec(),
            machine_certificate: certificate.to_vec(),
        };
        let identity = SigningKey::from_seed(material.identity.seed().duplicate());
        let (config, disk) = (verified.digest, material.disk);
        let create = verified.config.create.clone();
        let draft = Draft::new(verified, material, issued);
        let mut bind = |secret: &Secret<32>| match tpm.as_deref_mut() {
            Some(tpm) => tpm.seal(secret),
            None => Ok(Binding::Unprotected(secret.duplicate())),
        };
        let seal = bind(&draft.seal_root().0)?;
        let membership = Membership {
            holder: draft.holder(),
            name: draft.node_name(),
            identity,
            certificate,
            owner: create.owner_pub_key,
            vpn_prefix: create.vpn_prefix,
            protection: protection(&seal, create.level, create.cold_start),
            cold_start: create.cold_start,
            config,
            disk,
        };
        let directory = draft.directory(endpoints);
        let protected = Protected {
            seal,
            share: bind(&draft.cluster_key().0)?,
            owner: draft.for_owner()?,
            directory_signature: sign(&authorities.cairn, &directory.to_sign())?,
            directory,
        };
        let plan = draft.plan(protected, &Situation { boot_class, now: now.as_secs(), next })?;
        let keys = Keys { authorities, vpn: vpn_key()?, roles };
        Ok(Self { plan, membership, keys })
    }
}

/// Whoever creates a cluster coordinates it, whatever else it does.
pub(super) fn certified(roles: &[Role]) -> Vec<Role> {
    let others = roles.iter().copied().filter(|role| *role != Role::Coordinator);
    std::iter::once(Role::Coordinator).chain(others).collect()
}

/// The CA's signature over the directory: ECDSA P-256, DER.
fn sign(authority: &Authority, message: &[u8]) -> Result<Vec<u8>, MakeError> {
    let key = authority.export_key()?;
    let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, key.expose()).map_err(|_| MakeError::Sign)?;
    let signature = pair.sign(&SystemRandom::new(), message).map_err(|_| MakeError::Sign)?;
    Ok(signature.as_ref().to_vec())
}

/// An X25519 private key (RFC 7748, section 5): 32 random bytes, clamped as WireGuard keeps them.
fn vpn_key() -> Result<VpnPrivKey, MakeError> {
    let key = Secret::fill(|bytes: &mut [u8; 32]| {
        random(bytes)?;
        bytes[0] &= 248;
        bytes[31] = bytes[31] & 127 | 64;
        Ok(())
    });
    key.map(VpnPrivKey).map_err(MakeError::Random)
}

/// From the kernel's pool, into which the TPM's bytes were mixed (getrandom(2)).
pub(super) fn random(bytes: &mut [u8]) -> std::io::Result<()> {
    let mut filled = 0;
    while filled < bytes.len() {
        match rustix::rand::getrandom(&mut bytes[filled..], rustix::rand::GetRandomFlags::empty()) {
            Ok(got) => filled += got,
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}
