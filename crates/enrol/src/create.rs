//! The create of a cluster: everything random, issued or kept by the TPM is there before the first effect, so what is left
//! is one [`Plan`], in the order of [`crate::making`].
//!
//! ```text
//!  Creation ──draft──► Draft ──plan──► Plan ──perform──► …
//!    Material, IssuedCertificates ──┘        └── Keeper, the directory's signature
//! ```

use cluster::desired::{self, Desired, DesiredShares, EtcdPart};
use cluster::record::{OwnerRecord, Standing};
use keys::cold_start::Epoch;
use keys::coordinator::{AuthorityKeys, CoordinatorKeys};
use keys::data_key::{ClusterHalf, Holder};
use keys::directory::{self, Coordinator, Directory, Notes, UnsignedDirectory};
use keys::identity::{SigningKey, cluster_id, cluster_key, machine_id};
use keys::recovery::{SecretContext, SecretKind};
use keys::share::{Share, ShareKey};
use keys::two_slot::{File, TooLarge};
use model::{
    Assignment, ClusterKey, ColdStart, DiskUuid, FirstContact, KubernetesRole, Level, LocalKey, MasterSecret, NodeName,
    OwnerPubKey, Secret, VpnPrivKey,
};
use zeroize::Zeroizing;

use crate::config::Create;
use crate::keeper::{Keeper, bound};
use crate::making::{Fresh, IssuedCertificates, Making, PrepareError, Site, esp, random_disk, random_vpn_key, record};
use crate::member::Membership;
use crate::plan::Plan;
use crate::step::NewData;

/// The generation of the first cluster key of a disk.
const FIRST_KEY: u32 = 1;

/// A cluster to create.
#[derive(Debug)]
pub struct Creation {
    pub(crate) site: Site,
    pub(crate) create: Create,
    pub(crate) first_contact: FirstContact,
}

impl Creation {
    /// Place of the machine in its cluster.
    #[must_use]
    pub fn assignment(&self) -> Assignment {
        first_assignment(&self.create)
    }

    /// Brings together what the owner wants, what is random, and what the shell made. `endpoints` are where others find the machine.
    #[must_use]
    pub fn draft(
        self,
        material: CreationMaterial,
        authorities: NewAuthorities,
        endpoints: Vec<String>,
    ) -> CreationDraft {
        let Self { site, create, first_contact } = self;
        let machine = machine_id(&material.identity.public());
        let holder = Holder { cluster: cluster_id(&authorities.issued.ca_spki), machine };
        CreationDraft { site, create, first_contact, material, authorities, endpoints, holder }
    }
}

/// Everything that is random in the first machine of a cluster.
#[derive(Debug)]
pub struct CreationMaterial {
    /// Signs for the machine; its id and its certificate are made of the public half.
    pub identity: SigningKey,
    /// The machine's half of what opens its data partition.
    pub local_key: LocalKey,
    /// Secret that the cluster's half derives from.
    pub master_secret: MasterSecret,
    /// Names its data partition.
    pub disk: DiskUuid,
    /// The machine's key in the VPN.
    pub(crate) vpn_key: VpnPrivKey,
    pub(crate) fresh: Fresh,
}

impl CreationMaterial {
    /// Draws all of it from `fill`, which fills a slice with random bytes.
    ///
    /// # Errors
    /// What `fill` returns.
    pub fn draw<E>(mut fill: impl FnMut(&mut [u8]) -> Result<(), E>) -> Result<Self, E> {
        let mut secret = || Secret::fill(|bytes| fill(bytes));
        let (identity, local_key, master_secret) = (secret()?, secret()?, secret()?);
        Ok(Self {
            identity: SigningKey::from_seed(identity),
            local_key: LocalKey(local_key),
            master_secret: MasterSecret(master_secret),
            disk: random_disk(&mut fill)?,
            vpn_key: random_vpn_key(&mut fill)?,
            fresh: Fresh::draw(fill)?,
        })
    }
}

/// The first machine of a cluster that is about to be created.
#[derive(Debug)]
pub struct CreationDraft {
    site: Site,
    create: Create,
    first_contact: FirstContact,
    material: CreationMaterial,
    authorities: NewAuthorities,
    endpoints: Vec<String>,
    holder: Holder,
}

/// Certificates and keys of a new cluster's authorities, which the shell makes.
#[derive(Debug)]
pub struct NewAuthorities {
    /// Certificates of the machine, from the authority for machines.
    pub issued: IssuedCertificates,
    /// Authority for machines and people.
    pub cairn: AuthorityKeys,
    /// Authority for etcd.
    pub etcd: AuthorityKeys,
    /// Authority for Kubernetes.
    pub kubernetes: AuthorityKeys,
    /// Authority for apiservers towards servers that answer in their place.
    pub front: AuthorityKeys,
    /// Key that signs service accounts' tokens: PKCS#8 DER.
    pub service_accounts: Zeroizing<Vec<u8>>,
}

/// Signs for the new cluster's CA: the shell, or in a test somebody.
pub trait Signer {
    /// Why the signer fails.
    type Error: std::error::Error + Send + Sync + 'static;

    /// The CA's signature over a message: ECDSA P-256, DER.
    ///
    /// # Errors
    /// The key cannot be used.
    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, Self::Error>;
}

/// Why a cluster cannot be made ready to be created; nothing was written.
#[derive(Debug, thiserror::Error)]
pub enum CreateError<K: std::error::Error + 'static, S: std::error::Error + 'static> {
    /// The machine's secrets cannot be kept.
    #[error(transparent)]
    Prepare(#[from] PrepareError<K>),
    /// The directory cannot be signed.
    #[error("sign the directory")]
    Sign(#[source] S),
}

impl CreationDraft {
    /// Wrapped in the share, and on no account written anywhere in clear.
    fn cluster_key(&self) -> ClusterKey {
        cluster_key(&self.material.master_secret, self.holder.cluster, self.material.disk, FIRST_KEY)
    }

    /// The cluster's first directory, to be signed by its CA.
    fn directory(&self) -> UnsignedDirectory {
        let (cluster, machine) = (self.holder.cluster, self.holder.machine);
        let coordinators = vec![Coordinator { machine, endpoints: self.endpoints.clone() }];
        Directory { cluster, version: 1, coordinators }.unsigned()
    }

    /// Has the TPM keep what it is to keep, where there is one, and the CA sign the first directory, and puts all effects into
    /// their order. `now` is in seconds of Unix time.
    ///
    /// # Errors
    /// [`CreateError`]; nothing was written.
    pub fn plan<K: Keeper, S: Signer>(
        self,
        keeper: Option<&mut K>,
        signer: &S,
        now: u64,
    ) -> Result<(Plan, Membership), CreateError<K::Error, S::Error>> {
        let directory = self.directory();
        let signature = signer.sign(&directory.to_sign()).map_err(CreateError::Sign)?;
        Ok(self.order(keeper, &directory.signed(signature), now)?)
    }

    fn order<K: Keeper>(
        self,
        keeper: Option<&mut K>,
        directory: &[u8],
        now: u64,
    ) -> Result<(Plan, Membership), PrepareError<K::Error>> {
        let next = self.site.next;
        let binding = bound(&self.material.fresh.seal_root.0, keeper).map_err(PrepareError::Keeper)?;
        let share = self.share()?;
        let cluster_key = self.cluster_key();
        let Self { site, create, first_contact, material, authorities, holder, .. } = self;
        let NewAuthorities { issued, cairn, etcd, kubernetes, front, service_accounts } = authorities;
        let master_secret = material.master_secret;
        let node_name = site.node.clone().unwrap_or_else(|| NodeName::derived(holder.machine));
        let desired = first_desired(&create, &node_name, &holder);
        let context = SecretContext {
            kind: SecretKind::MasterSecret,
            cluster: holder.cluster,
            machine: holder.machine,
            disk: material.disk,
            key_generation: FIRST_KEY,
        };
        let record = record(&create.owner_recovery, context, &master_secret.0)?;
        let directory = directory::emit(next.directory.generation, directory, Notes::default())?;
        let mut files = Vec::new();
        files.extend(share.map(|bytes| esp(File::Share, next.share, bytes)));
        files.push(esp(File::Record, next.record, record.emit(next.record.generation)?));
        files.push(esp(File::Directory, next.directory, directory));
        let making = Making {
            node_name,
            site,
            binding,
            identity: material.identity,
            local_key: material.local_key,
            disk: material.disk,
            fresh: material.fresh,
            holder,
            issued,
            cluster_key,
            key_generation: FIRST_KEY,
            owner_pub_key: create.owner_pub_key,
            owner_recovery: create.owner_recovery,
            level: create.level,
            cold_start: create.cold_start,
            prefixes: create.prefixes,
            minimum_directory: 1,
            data: NewData::Created {
                desired,
                vpn_key: material.vpn_key,
                first_contact,
                keys: CoordinatorKeys { master_secret, cairn, etcd, kubernetes, front, service_accounts },
            },
            files,
        };
        making.plan(now)
    }

    /// The share, where the policy keeps one and the level needs one.
    fn share(&self) -> Result<Option<Vec<u8>>, TooLarge> {
        match (self.create.cold_start, self.create.level) {
            (ColdStart::Automatic, Level::Encrypted | Level::Authenticated) => {
                let epoch = Epoch::first(self.holder.machine);
                let Holder { cluster, machine } = self.holder;
                let (key, share) =
                    epoch.derive(&self.material.master_secret, cluster, &machine).expect("it is its own");
                let (cluster_key, disk) = (self.cluster_key(), self.material.disk);
                let half = ClusterHalf { key: cluster_key, disk, generation: FIRST_KEY, next: None };
                let closing = ShareKey::of(&self.material.local_key, &self.holder);
                let share = Share::close(&closing, epoch, &share, key.wrap(&half));
                share.emit(self.site.next.share.generation).map(Some)
            }
            (ColdStart::Automatic, Level::Insecure) | (ColdStart::Manual, _) => Ok(None),
        }
    }
}

fn first_assignment(create: &Create) -> Assignment {
    Assignment::first(&create.prefixes, create.kubernetes_roles.clone())
}

/// Desired state of the machine that creates a cluster: what its first records will say of it, at a version that nobody knows yet. No
/// epoch of the cold-start key stands in them, so it says nothing of shares.
fn first_desired(create: &Create, name: &NodeName, holder: &Holder) -> Desired {
    let assignment = first_assignment(create);
    let own = desired::KnownCoordinator {
        name: name.clone(),
        vpn_ip: assignment.vpn_ip(),
        votes: true,
        control_plane: assignment.kubernetes().contains(&KubernetesRole::ControlPlane),
    };
    Desired {
        at: None,
        look: None,
        standing: Standing::Member,
        assignment,
        prefixes: create.prefixes,
        coordinators: [(holder.machine, own)].into(),
        etcd: EtcdPart::Voter,
        shares: DesiredShares::default(),
        owners: vec![OwnerRecord { key: OwnerPubKey(create.owner_pub_key), recovery: create.owner_recovery }],
        level: create.level,
        cold_start: create.cold_start,
    }
}

#[cfg(test)]
mod tests;
