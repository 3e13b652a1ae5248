//! The join of a cluster by ticket: what a machine makes for itself is durable before it asks, and nothing of its disk is
//! touched before it is let in. Each step is made of the one before it, so that none comes out of its order.
//!
//! ```text
//!  JoiningMachine ──attempt──► PendingAttempt ──perform──► Asker: waits, and asks as often as it takes
//!   found     TPM, random       WriteAttempt      │ AdmissionOffer ──judge──► FittingOffer: read and decide again
//!                                                 ▼
//!   found ◄── reads the attempt ◄────────── GivenAnswers ──► Draft ──plan──► Plan ──perform──► …
//! ```
//! When it asks: [`pace`]. A cut after the attempt was written resumes as the same machine, so that a ticket of one use is spent on it once.

pub mod pace;

use std::net::Ipv4Addr;

use cluster::peers::PeerBook;
use cluster::record::Release;
use cluster::redeem::{RedeemAnswer, RedeemBody};
use keys::attempt::{self, Attempt};
use keys::data_key::Holder;
use keys::derive::sha256;
use keys::directory::{self, Directory, DirectoryError, Notes};
use keys::endpoint::Endpoint;
use keys::identity::{SigningKey, cluster_id, machine_id};
use keys::recovery::{RecoveryPubKey, SecretContext, SecretKind, x25519_public};
use keys::ticket::Ticket;
use keys::two_slot::File;
use model::{
    Assignment, ClusterRole, Level, LocalKey, MachineId, NetworkConfig, NodeName, RootHash, SealRoot, Secret,
    UnfitLink, VpnPrivKey, VpnPubKey,
};
use zeroize::Zeroizing;

use crate::config::Redeem;
use crate::failure::Failure;
use crate::keeper::{Keeper, bound};
use crate::making::{Fresh, IssuedCertificates, Making, PrepareError, Site, esp, random_disk, random_vpn_key, record};
use crate::member::Membership;
use crate::plan::{Performer, Plan};
use crate::seal::Begun;
use crate::step::{Effect, NewData};

/// A cluster to join.
#[derive(Debug)]
pub struct JoiningMachine {
    pub(crate) site: Site,
    pub(crate) redeem: Redeem,
    /// An attempt that the same config has begun before.
    pub(crate) begun: Option<Begun>,
    /// Key that another config's attempt made, where the ticket is for this machine by that key.
    pub(crate) identity: Option<SigningKey>,
    /// The machine's config, where somebody handed it in: then it lies nowhere else.
    pub(crate) handed_in: Option<Zeroizing<Vec<u8>>>,
}

impl From<Asker> for JoiningMachine {
    fn from(asker: Asker) -> Self {
        let Asker { site, redeem, begun, handed_in } = asker;
        Self { site, redeem, begun: Some(begun), identity: None, handed_in }
    }
}

/// Everything that is random in an attempt.
#[derive(Debug)]
pub struct Material {
    identity: SigningKey,
    local_key: LocalKey,
    vpn_key: VpnPrivKey,
    disk: model::DiskUuid,
    seal_root: SealRoot,
    salt: [u8; 32],
    nonce: [u8; 12],
}

impl Material {
    /// Draws all of it from `fill`, which fills a slice with random bytes.
    ///
    /// # Errors
    /// What `fill` returns.
    pub fn draw<E>(mut fill: impl FnMut(&mut [u8]) -> Result<(), E>) -> Result<Self, E> {
        let mut secret = || Secret::fill(|bytes| fill(bytes));
        let (identity, local_key, seal_root) = (secret()?, secret()?, secret()?);
        let vpn_key = random_vpn_key(&mut fill)?;
        let (mut salt, mut nonce) = ([0; 32], [0; 12]);
        fill(&mut salt)?;
        fill(&mut nonce)?;
        Ok(Self {
            identity: SigningKey::from_seed(identity),
            local_key: LocalKey(local_key),
            vpn_key,
            disk: random_disk(&mut fill)?,
            seal_root: SealRoot(seal_root),
            salt,
            nonce,
        })
    }
}

/// An attempt that has to be durable before anything is asked.
#[derive(Debug)]
pub struct PendingAttempt {
    /// None where an earlier boot wrote it.
    write: Option<Effect>,
    asker: Asker,
}

/// A machine whose attempt is durable: it may ask. Only [`PendingAttempt::perform`] makes one, and what reads the attempt.
///
/// ```compile_fail,E0451
/// fn beside() -> enrol::join::Asker {
///     enrol::join::Asker { site: todo!(), redeem: todo!(), begun: todo!(), handed_in: None } // nothing was written
/// }
/// ```
#[derive(Debug)]
pub struct Asker {
    pub(crate) site: Site,
    pub(crate) redeem: Redeem,
    pub(crate) begun: Begun,
    /// The machine's config, where somebody handed it in: with it the answer is decided, as the question was.
    pub(crate) handed_in: Option<Zeroizing<Vec<u8>>>,
}

/// A machine's account of itself, beside what it made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct About {
    /// The release that the machine runs.
    pub release: Release,
    /// The image that the machine runs.
    pub root_hash: RootHash,
    /// Where the machine's WireGuard may be reached.
    pub endpoints: Vec<Endpoint>,
}

/// Why an answer is not taken. The machine's disk is untouched, and it may ask again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum OfferError {
    /// Another CA than the ticket's pin.
    #[error("the answer is of another cluster than the ticket's")]
    OtherCluster,
    /// The owner who signed the config is none of the cluster's.
    #[error("the cluster does not name the owner who signed this machine's config")]
    OtherOwner,
    /// The policy asks for more than the config.
    #[error("the cluster asks for level {least}, this machine's config for {found}")]
    Level {
        /// As the config says.
        found: Level,
        /// As the cluster says.
        least: Level,
    },
    /// Another name than the config's.
    #[error("the cluster gives another name than this machine's config")]
    OtherName,
    /// A coordinator holds keys that no answer brings.
    #[error("the answer makes a coordinator of the machine before it is a member")]
    Coordinator,
    /// A directory that is not the cluster's.
    #[error("the answer's directory is not believed")]
    Directory(#[from] DirectoryError),
    /// The machine's network has what the cluster keeps for itself.
    #[error("the machine's network does not fit the cluster")]
    Network(#[from] UnfitLink),
}

impl JoiningMachine {
    /// Whether an earlier boot began it.
    #[must_use]
    pub const fn resumes(&self) -> bool {
        self.begun.is_some()
    }

    /// The machine that asks: the one of an earlier boot, or one made of `material`, whose seal the TPM keeps where there is
    /// one. A ticket that is for this machine by the key which another config's attempt made keeps that key, and nothing else.
    ///
    /// # Errors
    /// [`PrepareError`]; nothing was written.
    pub fn attempt<K: Keeper>(
        self,
        material: Material,
        keeper: Option<&mut K>,
    ) -> Result<PendingAttempt, PrepareError<K::Error>> {
        let Self { mut site, redeem, begun, identity: kept, handed_in } = self;
        if let Some(begun) = begun {
            return Ok(PendingAttempt { write: None, asker: Asker { site, redeem, begun, handed_in } });
        }
        let Material { identity: drawn, local_key, vpn_key, disk, seal_root, salt, nonce } = material;
        let identity = kept.unwrap_or(drawn);
        let binding = bound(&seal_root.0, keeper).map_err(PrepareError::Keeper)?;
        let storage_key_name = binding.storage_key_name();
        let clear = attempt::AttemptClear { binding, boot_class: site.boot_class, salt };
        let attempt = Attempt { identity, local_key, vpn_key, disk, config: site.digest };
        let next = site.next.seal;
        let bytes = attempt::emit(next.generation, &clear, &attempt, &seal_root, nonce)?;
        let write = Effect::WriteAttempt { slot: next.slot, bytes: bytes.into() };
        // The final seal goes to the other slot.
        site.attempt = Some(next.slot);
        site.next.seal = next.after();
        let begun = Begun { attempt, storage_key_name };
        Ok(PendingAttempt { write: Some(write), asker: Asker { site, redeem, begun, handed_in } })
    }
}

impl PendingAttempt {
    /// Makes the attempt durable.
    ///
    /// # Errors
    /// [`Failure::Create`] when it cannot be written.
    pub fn perform<P: Performer>(self, performer: &mut P) -> Result<Asker, Failure> {
        let Self { write, asker } = self;
        if let Some(effect) = write {
            let step = effect.step();
            performer.perform(effect).map_err(|error| Failure::Create(step, Box::new(error)))?;
        }
        Ok(asker)
    }
}

impl Asker {
    /// The ticket that lets the machine in, and says where it asks.
    #[must_use]
    pub const fn ticket(&self) -> &Ticket {
        &self.redeem.ticket
    }

    /// The machine's key: the one whose certificate it shows.
    #[must_use]
    pub const fn identity(&self) -> &SigningKey {
        &self.begun.attempt.identity
    }

    /// The id that the machine will have.
    #[must_use]
    pub fn machine(&self) -> MachineId {
        machine_id(&self.identity().public())
    }

    /// The request's bytes for the connection that exports `exporter`.
    #[must_use]
    pub fn request(&self, about: &About, exporter: &[u8; 32]) -> Vec<u8> {
        self.body(about).sign(&self.redeem.ticket, exporter)
    }

    pub(crate) fn body(&self, about: &About) -> RedeemBody {
        let About { release, root_hash, endpoints } = about.clone();
        let Begun { attempt, storage_key_name } = &self.begun;
        RedeemBody {
            ticket: self.redeem.ticket.public(),
            owner: self.redeem.owner_pub_key,
            vpn_key: VpnPubKey(x25519_public(&attempt.vpn_key.0)),
            disk: attempt.disk,
            level: self.redeem.level,
            boot_class: self.site.boot_class,
            release,
            root_hash,
            storage_key_name: *storage_key_name,
            endpoints,
            node_name: self.site.node.clone(),
        }
    }

    /// Judges whether an offer fits the machine, whose links have these addresses, each with the bits of its prefix.
    ///
    /// # Errors
    /// [`OfferError`] says why it does not.
    pub fn judge(&self, offer: AdmissionOffer, links: &[(Ipv4Addr, u8)]) -> Result<FittingOffer, OfferError> {
        self.judged(&offer.answer, &offer.issued)?;
        offer.answer.desired.prefixes.judge_links(links)?;
        Ok(FittingOffer(offer))
    }

    /// Takes an offer, if it fits the attempt and config that were read since.
    ///
    /// # Errors
    /// [`OfferError`], and the machine that may ask again.
    pub(crate) fn accept(self, offer: FittingOffer) -> Result<Draft, (Box<Self>, OfferError)> {
        let FittingOffer(AdmissionOffer { answer, issued }) = offer;
        match self.judged(&answer, &issued) {
            Ok(judged) => {
                let Self { site, redeem, begun, handed_in: _ } = self;
                Ok(Draft { site, redeem, attempt: begun.attempt, answer, issued, judged })
            }
            Err(why) => Err((Box::new(self), why)),
        }
    }

    fn judged(&self, answer: &RedeemAnswer, issued: &IssuedCertificates) -> Result<Judged, OfferError> {
        let Redeem { owner_pub_key, ticket, level, .. } = &self.redeem;
        let cluster = cluster_id(&issued.ca_spki);
        if sha256(&[&issued.ca_spki]) != ticket.ca_spki || cluster != ticket.cluster {
            return Err(OfferError::OtherCluster);
        }
        let owner =
            answer.desired.owners.iter().find(|owner| owner.key == *owner_pub_key).ok_or(OfferError::OtherOwner)?;
        let number = keys::numbers::level::number;
        let least = answer.desired.level;
        if number(*level) < number(least) {
            return Err(OfferError::Level { found: *level, least });
        }
        if self.site.node.as_ref().is_some_and(|name| *name != answer.node_name) {
            return Err(OfferError::OtherName);
        }
        if answer.desired.assignment.role() == ClusterRole::Coordinator {
            return Err(OfferError::Coordinator);
        }
        if let NetworkConfig::Static { address, prefix_bits, dns, .. } = &self.site.network {
            let kept = answer.desired.prefixes;
            kept.judge_link(*address, *prefix_bits)?;
            dns.iter().try_for_each(|resolver| kept.judge_resolver(*resolver))?;
        }
        let directory = Directory::verify(&answer.directory, &issued.ca_spki, 0)?;
        Ok(Judged {
            holder: Holder { cluster, machine: self.machine() },
            owner_recovery: owner.recovery,
            directory: directory.version,
        })
    }
}

/// Facts found in an answer that is taken.
#[derive(Debug)]
struct Judged {
    holder: Holder,
    owner_recovery: RecoveryPubKey,
    /// The directory's version.
    directory: u64,
}

/// Offer to let a machine in: an answer, and what its certificates are for, as the shell verified them.
#[derive(Debug)]
pub struct AdmissionOffer {
    /// The answer of a coordinator.
    pub answer: RedeemAnswer,
    /// Certificates that the answer brought, the machine's for this machine's key.
    pub issued: IssuedCertificates,
}

/// An offer that fits the machine that judged it. Only [`Asker::judge`] makes one.
///
/// ```compile_fail,E0603
/// fn beside(offer: enrol::join::AdmissionOffer) -> enrol::join::FittingOffer {
///     enrol::join::FittingOffer(offer) // nobody judged it
/// }
/// ```
#[derive(Debug)]
pub struct FittingOffer(AdmissionOffer);

/// A machine that was let in and is about to become a member. Only what was asked for is one: [`Asker::accept`].
#[derive(Debug)]
pub struct Draft {
    site: Site,
    redeem: Redeem,
    attempt: Attempt,
    answer: RedeemAnswer,
    issued: IssuedCertificates,
    judged: Judged,
}

impl Draft {
    /// The machine's name from now on.
    #[must_use]
    pub const fn node_name(&self) -> &NodeName {
        &self.answer.node_name
    }

    /// Place of the machine in the cluster.
    #[must_use]
    pub const fn assignment(&self) -> &Assignment {
        &self.answer.desired.assignment
    }

    /// The cluster's time, in seconds of Unix time.
    #[must_use]
    pub const fn time(&self) -> u64 {
        self.answer.time.0
    }

    /// Has the TPM keep what it is to keep, where there is one, and puts all effects into their order. `now` is in seconds
    /// of Unix time.
    ///
    /// # Errors
    /// [`PrepareError`]; nothing more was written than the attempt.
    pub fn plan<K: Keeper>(
        self,
        fresh: Fresh,
        keeper: Option<&mut K>,
        now: u64,
    ) -> Result<(Plan, Membership), PrepareError<K::Error>> {
        let Self { site, redeem, attempt, answer, issued, judged } = self;
        let Judged { holder, owner_recovery, directory } = judged;
        let binding = bound(&fresh.seal_root.0, keeper).map_err(PrepareError::Keeper)?;
        let context = SecretContext {
            kind: SecretKind::ClusterKey,
            cluster: holder.cluster,
            machine: holder.machine,
            disk: attempt.disk,
            key_generation: answer.key_generation,
        };
        let (next, record) = (site.next, record(&owner_recovery, context, &answer.cluster_key.0)?);
        let files = vec![
            esp(
                File::Directory,
                next.directory,
                directory::emit(next.directory.generation, &answer.directory, Notes::default())?,
            ),
            esp(File::Record, next.record, record.emit(next.record.generation)?),
        ];
        let peers = PeerBook::of_answer(answer.version(), answer.peers);
        let making = Making {
            site,
            fresh,
            binding,
            identity: attempt.identity,
            local_key: attempt.local_key,
            disk: attempt.disk,
            holder,
            issued,
            node_name: answer.node_name,
            cluster_key: answer.cluster_key,
            key_generation: answer.key_generation,
            owner_pub_key: redeem.owner_pub_key.0,
            owner_recovery,
            level: redeem.level,
            cold_start: answer.desired.cold_start,
            prefixes: answer.desired.prefixes,
            minimum_directory: directory,
            data: NewData::Joined { desired: answer.desired, vpn_key: attempt.vpn_key, peers },
            files,
        };
        making.plan(now)
    }
}

#[cfg(test)]
mod tests;
