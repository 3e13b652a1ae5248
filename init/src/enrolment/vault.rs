//! Files that a member keeps on its data partition: `/data/cairn`, 0700, one small file per secret, 0600. Written once
//! when it enrols, read at every start. Later changes: the first-contact secret is deleted, the peers are kept up,
//! `desired` is replaced before it is obeyed, and a coordinator's keys come and go with that role. A file that cannot
//! be read is never taken for one that is not there. What a coordinator signs with is loaded from them.
//!
//! | file | content |
//! |---|---|
//! | `desired` | desired state of the machine, as `cluster::desired` has it; it is `None` of no version where it was told by nobody |
//! | `vpn.key` | 32 bytes |
//! | `first-contact` | of a cluster's first machine: 32 bytes |
//! | `peers` | of a machine that joined: the others, as it knew them last; `network::mesh::kept` goes on with it |
//! | `{cairn,etcd,kubernetes,front}.crt`, `….key` | of a coordinator: an authority: certificate DER, key PKCS#8 DER |
//! | `service-account.key`, `master-secret` | of a coordinator: PKCS#8 DER, 32 bytes |

use std::fs::{self, DirBuilder, File};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;

use cluster::desired::Desired;
use cluster::peers::TooManyPeers;
use cluster::record::BadRecord;
use enrol::step::NewData;
use keys::coordinator::{AuthorityKeys, CoordinatorKeys};
use keys::data_key::Holder;
use keys::identity::Identity;
use model::{ClusterRole, FirstContact, MasterSecret, Secret, VpnPrivKey};
use pki::{Authority, AuthorityKind, CertificateProfile, IssueError, PrivateKey, PublicKey, UnixTime};
use zeroize::Zeroizing;

use crate::network::mesh::kept as peers;
use crate::runtime::{clock, durable};

/// Where it is.
pub(crate) const ROOT: &str = "/data/cairn";

const SERVICE_ACCOUNT: &str = "service-account.key";
const VPN: &str = "vpn.key";
const MASTER_SECRET: &str = "master-secret";
const FIRST_CONTACT: &str = "first-contact";
const DESIRED: &str = "desired";
/// File in the place of [`DESIRED`] on a disk of an older Cairn.
const ASSIGNMENT: &str = "assignment";
/// Names of a coordinator's files beside those of its authorities.
const COORDINATOR: [&str; 2] = [MASTER_SECRET, SERVICE_ACCOUNT];
/// Beside the directory: what etcd has written before it serves anybody. Whoever holds it is one of its members.
const ETCD_BEGAN: &str = "etcd/member/wal";
/// No file of these has more; a larger one is not ours.
const MOST_BYTES: usize = 16 << 10;

/// Why something is not on the data partition.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WriteError {
    /// The peers of its answer are too many.
    #[error("write the file of peers")]
    Peers(#[from] TooManyPeers),
    /// The directory cannot be made.
    #[error("make the directory for the cluster's keys")]
    Directory(#[source] io::Error),
    /// A file cannot be written, or not be made durable.
    #[error("write `{0}`")]
    File(String, #[source] io::Error),
    /// The file system cannot be made durable.
    #[error("sync the data partition")]
    Sync(#[source] io::Error),
}

/// Why what should be there cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LoadError {
    /// A file cannot be read.
    #[error("read `{0}`")]
    File(String, #[source] io::Error),
    /// A file has another size than it was written with.
    #[error("`{0}` does not have its size")]
    Size(String),
    /// An authority's files are none.
    #[error("load the {0} authority")]
    Authority(AuthorityKind, #[source] pki::LoadError),
    /// A key is none.
    #[error("load `{0}`")]
    Key(&'static str, #[source] pki::KeyError),
    /// The bytes are no desired state.
    #[error("load `{DESIRED}`")]
    Desired(#[from] BadRecord),
    /// A disk that has an assignment, and no desired state.
    #[error(
        "this data partition was written by an older Cairn: it keeps `{ASSIGNMENT}` and no `{DESIRED}`. Nothing was changed. Start \
         the older image, or empty the disk and enrol the machine anew"
    )]
    Older,
    /// An authority that this machine's cluster does not have.
    #[error("the keys that were handed over are of another cluster")]
    OtherCluster,
    /// A file cannot be replaced or removed.
    #[error("replace `{0}`")]
    Replace(&'static str, #[source] io::Error),
}

/// Keys with which a coordinator signs certificates and tokens.
#[derive(Debug)]
pub(crate) struct Authorities {
    /// Machines and people.
    pub(crate) cairn: Authority,
    /// etcd.
    pub(crate) etcd: Authority,
    /// Kubernetes; shared with the API, which signs the owner's kubeconfig.
    pub(crate) kubernetes: Arc<Authority>,
    /// Apiservers towards servers that answer in their place.
    pub(crate) front: Authority,
    /// Signs service account tokens; no certificate belongs to it.
    pub(crate) service_accounts: PrivateKey,
}

impl Authorities {
    /// A coordinator as the others are to see it: with a certificate that says what it is, for as long as it is that.
    ///
    /// # Errors
    /// [`IssueError`].
    pub(crate) fn coordinator(&self, identity: &Identity) -> Result<Identity, IssueError> {
        let Holder { machine, cluster } = identity.holder;
        let profile = CertificateProfile::Machine { machine, cluster, role: ClusterRole::Coordinator };
        let key = PublicKey::from_ed25519(identity.key.public());
        let certificate = self.cairn.issue(&profile, &key, UnixTime::since_unix_epoch(clock::unix()))?;
        Ok(identity.with_certificate(certificate.to_vec()))
    }
}

/// Secrets and desired state, as they lie on the data partition.
#[derive(Debug)]
pub(super) struct Kept {
    /// Desired state of the machine, as it was kept last.
    pub(super) desired: Desired,
    /// A coordinator's, if it can be one at once; a node has none.
    pub(super) authorities: Option<Authorities>,
    pub(super) vpn: VpnPrivKey,
    /// Until the owner called.
    pub(super) first_contact: Option<FirstContact>,
}

/// Writes what a new member keeps, durably.
///
/// # Errors
/// [`WriteError`] names the file.
pub(super) fn write(root: &str, data: &NewData) -> Result<(), WriteError> {
    let root = Path::new(root);
    DirBuilder::new().mode(0o700).create(root).map_err(WriteError::Directory)?;
    let desired = match data {
        NewData::Created { desired, vpn_key, first_contact, keys } => {
            put_keys(root, keys)?;
            put(root, VPN, vpn_key.expose())?;
            put(root, FIRST_CONTACT, first_contact.expose())?;
            desired
        }
        NewData::Joined { desired, vpn_key, peers: first } => {
            put(root, VPN, vpn_key.expose())?;
            if let Some(known) = first.encode()? {
                put(root, peers::FILE, &known.bytes)?;
            }
            desired
        }
    };
    put(root, DESIRED, &desired.encode())?;
    let directory = File::open(root).map_err(WriteError::Sync)?;
    directory.sync_all().and_then(|()| Ok(rustix::fs::syncfs(&directory)?)).map_err(WriteError::Sync)
}

fn put_keys(root: &Path, keys: &CoordinatorKeys) -> Result<(), WriteError> {
    for (kind, AuthorityKeys { certificate, key }) in kinds(keys) {
        put(root, &format!("{kind}.crt"), certificate)?;
        put(root, &format!("{kind}.key"), key)?;
    }
    put(root, SERVICE_ACCOUNT, &keys.service_accounts)?;
    put(root, MASTER_SECRET, keys.master_secret.expose())
}

/// Keeps another desired state in place of the one before, durably: to be called before that is obeyed.
///
/// # Errors
/// [`LoadError::Replace`]; the one before is kept still.
pub(super) fn keep(root: &Path, desired: &Desired) -> Result<(), LoadError> {
    durable::replace(root, DESIRED, &desired.encode()).map_err(|error| LoadError::Replace(DESIRED, error))
}

/// Reads all of it but the master secret, which whoever needs it reads for itself. A machine that is to coordinate, and lacks a key or
/// an etcd that has begun, has no authorities: it was cut short while it became a coordinator or ceased to be one.
///
/// # Errors
/// [`LoadError`] names the file.
pub(super) fn load(root: &str) -> Result<Kept, LoadError> {
    let (desired, has_keys) = desired(root)?;
    let root = Path::new(root);
    let began = root.parent().map_or(Ok(false), |data| exists(data, ETCD_BEGAN))?;
    let coordinates = desired.assignment.role() == ClusterRole::Coordinator && (desired.at.is_none() || began);
    let authorities = if coordinates && has_keys { Some(authorities(&coordinator_keys(root)?)?) } else { None };
    let first_contact = match exists(root, FIRST_CONTACT)? {
        true => Some(FirstContact(secret(root, FIRST_CONTACT)?)),
        false => None,
    };
    Ok(Kept { desired, authorities, vpn: VpnPrivKey(secret(root, VPN)?), first_contact })
}

/// Reads what the machine is to be, and sees whether all keys of a coordinator are there.
///
/// # Errors
/// [`LoadError`] names the file.
pub(super) fn desired(root: &str) -> Result<(Desired, bool), LoadError> {
    let root = Path::new(root);
    if !exists(root, DESIRED)? && exists(root, ASSIGNMENT)? {
        return Err(LoadError::Older);
    }
    let desired = Desired::decode(&take(root, DESIRED)?)?;
    let has_keys = coordinator_files().try_fold(true, |all, name| Ok::<_, LoadError>(exists(root, &name)? && all))?;
    Ok((desired, has_keys))
}

/// Reads what a coordinator signs with.
///
/// # Errors
/// [`LoadError`] names the file.
pub(super) fn load_authorities(root: &str) -> Result<Authorities, LoadError> {
    authorities(&coordinator_keys(Path::new(root))?)
}

/// Names of all files that make a coordinator.
fn coordinator_files() -> impl Iterator<Item = String> {
    let authorities = AuthorityKind::ALL.into_iter().flat_map(|kind| [format!("{kind}.key"), format!("{kind}.crt")]);
    COORDINATOR.into_iter().map(str::to_owned).chain(authorities)
}

/// Keys that another machine needs to be a coordinator, too.
///
/// # Errors
/// [`LoadError`] names the file.
pub(super) fn hand_over(root: &str) -> Result<CoordinatorKeys, LoadError> {
    coordinator_keys(Path::new(root))
}

/// Makes a coordinator of this machine, as far as its files do: `certificate` is that of its cluster's CA. That it is to be one was
/// kept before; at the next start it is one once etcd has begun.
///
/// # Errors
/// [`LoadError`]; some of the files may be there.
pub(super) fn take_up(root: &str, keys: &CoordinatorKeys, certificate: &[u8]) -> Result<Authorities, LoadError> {
    let root = Path::new(root);
    let authorities = authorities(keys)?;
    if authorities.cairn.certificate().as_ref() != certificate {
        return Err(LoadError::OtherCluster);
    }
    let replace = |name: &str, bytes: &[u8]| {
        durable::replace(root, name, bytes).map_err(|error| LoadError::Replace("a coordinator's keys", error))
    };
    for (kind, AuthorityKeys { certificate, key }) in kinds(keys) {
        replace(&format!("{kind}.crt"), certificate)?;
        replace(&format!("{kind}.key"), key)?;
    }
    replace(SERVICE_ACCOUNT, &keys.service_accounts)?;
    replace(MASTER_SECRET, keys.master_secret.expose())?;
    Ok(authorities)
}

/// Erases what makes a coordinator. That the machine is none was kept before. Nothing to do on a node.
///
/// # Errors
/// [`LoadError`]; at the next start it is a node all the same, and the rest is erased then.
pub(super) fn lay_down(root: &str) -> Result<(), LoadError> {
    let root = Path::new(root);
    for name in coordinator_files() {
        let erased = durable::erase(&root.join(name));
        erased.map_err(|error| LoadError::Replace("a coordinator's keys", error))?;
    }
    Ok(())
}

fn coordinator_keys(root: &Path) -> Result<CoordinatorKeys, LoadError> {
    let authority = |kind: AuthorityKind| {
        let (certificate, key) = (take(root, &format!("{kind}.crt"))?, take(root, &format!("{kind}.key"))?);
        Ok::<_, LoadError>(AuthorityKeys { certificate: certificate.to_vec(), key })
    };
    Ok(CoordinatorKeys {
        master_secret: MasterSecret(secret(root, MASTER_SECRET)?),
        cairn: authority(AuthorityKind::Cairn)?,
        etcd: authority(AuthorityKind::Etcd)?,
        kubernetes: authority(AuthorityKind::Kubernetes)?,
        front: authority(AuthorityKind::Front)?,
        service_accounts: take(root, SERVICE_ACCOUNT)?,
    })
}

const fn kinds(keys: &CoordinatorKeys) -> [(AuthorityKind, &AuthorityKeys); 4] {
    [
        (AuthorityKind::Cairn, &keys.cairn),
        (AuthorityKind::Etcd, &keys.etcd),
        (AuthorityKind::Kubernetes, &keys.kubernetes),
        (AuthorityKind::Front, &keys.front),
    ]
}

/// Authorities of a coordinator, if each key is its certificate's.
fn authorities(keys: &CoordinatorKeys) -> Result<Authorities, LoadError> {
    let [cairn, etcd, kubernetes, front] = kinds(keys).map(|(kind, keys)| {
        Authority::load(kind, &keys.certificate, &keys.key).map_err(|error| LoadError::Authority(kind, error))
    });
    let service_accounts = PrivateKey::from_pkcs8(&keys.service_accounts);
    Ok(Authorities {
        cairn: cairn?,
        etcd: etcd?,
        kubernetes: kubernetes?.into(),
        front: front?,
        service_accounts: service_accounts.map_err(|error| LoadError::Key(SERVICE_ACCOUNT, error))?,
    })
}

/// Reads the master secret.
///
/// # Errors
/// [`LoadError`] names the file.
pub(super) fn load_master_secret(root: &str) -> Result<MasterSecret, LoadError> {
    Ok(MasterSecret(secret(Path::new(root), MASTER_SECRET)?))
}

/// Deletes the first-contact secret, durably. Nothing to do when it is gone.
///
/// # Errors
/// When it is there and cannot be removed.
pub(super) fn forget_first_contact(root: &str) -> io::Result<()> {
    match fs::remove_file(Path::new(root).join(FIRST_CONTACT)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed.and_then(|()| File::open(root)?.sync_all()),
    }
}

fn put(root: &Path, name: &str, bytes: &[u8]) -> Result<(), WriteError> {
    let written =
        File::options().write(true).create_new(true).mode(0o600).open(root.join(name)).and_then(|mut file| {
            file.write_all(bytes)?;
            file.sync_all()
        });
    written.map_err(|error| WriteError::File(name.to_owned(), error))
}

fn take(root: &Path, name: &str) -> Result<Zeroizing<Vec<u8>>, LoadError> {
    let failed = |error| LoadError::File(name.to_owned(), error);
    let bytes = durable::read(&root.join(name), MOST_BYTES).map_err(failed)?;
    let bytes = bytes.ok_or_else(|| failed(io::ErrorKind::NotFound.into()))?;
    if bytes.len() > MOST_BYTES { Err(LoadError::Size(name.to_owned())) } else { Ok(bytes) }
}

fn exists(root: &Path, name: &str) -> Result<bool, LoadError> {
    durable::exists(&root.join(name)).map_err(|error| LoadError::File(name.to_owned(), error))
}

fn secret(root: &Path, name: &str) -> Result<Secret<32>, LoadError> {
    keys::derive::secret(&take(root, name)?).ok_or_else(|| LoadError::Size(name.to_owned()))
}

#[cfg(test)]
mod tests;
