//! What a member keeps on its data partition: `/data/cairn`, 0700, one small file per secret, 0600. Written once when it enrols,
//! read at every start, never changed but for the first-contact secret, which is deleted, and the peers.
//!
//! | file | content |
//! |---|---|
//! | `assignment` | its address, roles and pods, as `keys::assignment` has them |
//! | `vpn.key` | 32 bytes |
//! | `first-contact` | of a cluster's first machine: 32 bytes |
//! | `peers` | of a machine that joined: the others, as it knew them last; `network::mesh::kept` goes on with it |
//! | `{cairn,etcd,kubernetes}.crt`, `….key` | of a coordinator: an authority: certificate DER, key PKCS#8 DER |
//! | `service-account.key`, `master-secret` | of a coordinator: PKCS#8 DER, 32 bytes |

use std::fs::{self, DirBuilder, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

use enrol::plan::NewData;
use keys::assignment::{self, AssignmentError};
use model::{Assignment, ClusterRole, FirstContact, MasterSecret, Secret, VpnPrivKey};
use pki::{Authority, AuthorityKind, PrivateKey};
use zeroize::Zeroizing;

use super::member::Authorities;
use crate::network::mesh::kept as peers;

/// Where it is.
pub(crate) const ROOT: &str = "/data/cairn";

const SERVICE_ACCOUNT: &str = "service-account.key";
const VPN: &str = "vpn.key";
const MASTER_SECRET: &str = "master-secret";
const FIRST_CONTACT: &str = "first-contact";
const ASSIGNMENT: &str = "assignment";
/// No file of these has more; a larger one is not ours.
const MOST_BYTES: usize = 16 << 10;

/// Why something is not on the data partition.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WriteError {
    /// The directory cannot be made.
    #[error("make the directory for the cluster's keys")]
    Directory(#[source] io::Error),
    /// A key cannot be exported.
    #[error("export a key")]
    Export(#[from] pki::KeyError),
    /// A file cannot be written, or not be made durable.
    #[error("write `{0}`")]
    File(String, #[source] io::Error),
    /// A cluster is created without keys, or joined with some.
    #[error("only who creates a cluster has keys of its own to write")]
    Keys,
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
    /// It has another size than it was written with.
    #[error("`{0}` does not have its size")]
    Size(String),
    /// An authority's files are none.
    #[error("load the {0} authority")]
    Authority(AuthorityKind, #[source] pki::LoadError),
    /// A key is none.
    #[error("load `{0}`")]
    Key(&'static str, #[source] pki::KeyError),
    /// The assignment is none.
    #[error("load `{ASSIGNMENT}`")]
    Assignment(#[from] AssignmentError),
}

/// Keys of a cluster's first machine, made at create.
#[derive(Debug)]
pub(super) struct Keys {
    pub(super) authorities: Authorities,
    pub(super) vpn: VpnPrivKey,
}

/// What is kept.
#[derive(Debug)]
pub(super) struct Kept {
    pub(super) assignment: Assignment,
    /// A coordinator's; a node has none.
    pub(super) authorities: Option<Authorities>,
    pub(super) vpn: VpnPrivKey,
    /// Until the owner called.
    pub(super) first_contact: Option<FirstContact>,
}

/// Writes what a new member keeps, durably. `keys` are there where a cluster is created.
///
/// # Errors
/// [`WriteError`] names the file.
pub(super) fn write(root: &str, keys: Option<&Keys>, data: &NewData) -> Result<(), WriteError> {
    let root = Path::new(root);
    DirBuilder::new().mode(0o700).create(root).map_err(WriteError::Directory)?;
    let assignment = match (data, keys) {
        (NewData::Created { assignment, master_secret, first_contact }, Some(keys)) => {
            put_keys(root, keys)?;
            put(root, MASTER_SECRET, master_secret.expose())?;
            put(root, FIRST_CONTACT, first_contact.expose())?;
            assignment
        }
        (NewData::Joined { assignment, vpn_key, peers: first }, None) => {
            put(root, VPN, vpn_key.expose())?;
            if let Some(known) = first.encode() {
                put(root, peers::FILE, &known)?;
            }
            assignment
        }
        (NewData::Created { .. }, None) | (NewData::Joined { .. }, Some(_)) => return Err(WriteError::Keys),
    };
    put(root, ASSIGNMENT, &assignment::encode(assignment))?;
    let directory = File::open(root).map_err(WriteError::Sync)?;
    directory.sync_all().and_then(|()| Ok(rustix::fs::syncfs(&directory)?)).map_err(WriteError::Sync)
}

fn put_keys(root: &Path, keys: &Keys) -> Result<(), WriteError> {
    let Authorities { cairn, etcd, kubernetes, service_accounts } = &keys.authorities;
    for authority in [cairn, etcd, &**kubernetes] {
        let kind = authority.kind();
        put(root, &format!("{kind}.crt"), authority.certificate())?;
        put(root, &format!("{kind}.key"), authority.export_key()?.expose())?;
    }
    put(root, SERVICE_ACCOUNT, service_accounts.to_pkcs8()?.expose())?;
    put(root, VPN, keys.vpn.expose())
}

/// Reads all of it but the master secret, which whoever needs it reads for itself.
///
/// # Errors
/// [`LoadError`] names the file.
pub(super) fn load(root: &str) -> Result<Kept, LoadError> {
    let root = Path::new(root);
    let authority = |kind: AuthorityKind| {
        let (certificate, key) = (take(root, &format!("{kind}.crt"))?, take(root, &format!("{kind}.key"))?);
        Authority::load(kind, &certificate, &key).map_err(|error| LoadError::Authority(kind, error))
    };
    let assignment = assignment::decode(&take(root, ASSIGNMENT)?)?;
    let authorities = match assignment.role() {
        ClusterRole::Coordinator => {
            let service_accounts = PrivateKey::from_pkcs8(&take(root, SERVICE_ACCOUNT)?);
            Some(Authorities {
                cairn: authority(AuthorityKind::Cairn)?,
                etcd: authority(AuthorityKind::Etcd)?,
                kubernetes: authority(AuthorityKind::Kubernetes)?.into(),
                service_accounts: service_accounts.map_err(|error| LoadError::Key(SERVICE_ACCOUNT, error))?,
            })
        }
        ClusterRole::Node => None,
    };
    let first_contact = match root.join(FIRST_CONTACT).exists() {
        true => Some(FirstContact(secret(root, FIRST_CONTACT)?)),
        false => None,
    };
    Ok(Kept { assignment, authorities, vpn: VpnPrivKey(secret(root, VPN)?), first_contact })
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
    // Room for all of it at once: a buffer that grew would leave copies behind.
    let mut bytes = Zeroizing::new(Vec::with_capacity(MOST_BYTES + 32));
    let file = File::open(root.join(name)).map_err(failed)?;
    file.take(MOST_BYTES as u64 + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() > MOST_BYTES { Err(LoadError::Size(name.to_owned())) } else { Ok(bytes) }
}

fn secret(root: &Path, name: &str) -> Result<Secret<32>, LoadError> {
    keys::derive::secret(&take(root, name)?).ok_or_else(|| LoadError::Size(name.to_owned()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::time::Duration;

    use cluster::peers::Known;
    use cluster::state::PeerVersion;
    use model::{KubernetesRole, VPN_PREFIX};
    use pki::UnixTime;

    use super::*;

    fn keys() -> Keys {
        let now = UnixTime::since_unix_epoch(Duration::from_secs(1_800_000_000));
        let authority = |kind| Authority::create(kind, now).expect("made");
        Keys {
            authorities: Authorities {
                cairn: authority(AuthorityKind::Cairn),
                etcd: authority(AuthorityKind::Etcd),
                kubernetes: authority(AuthorityKind::Kubernetes).into(),
                service_accounts: PrivateKey::generate().expect("made"),
            },
            vpn: VpnPrivKey(Secret::take(&mut [1; 32])),
        }
    }

    fn assignment() -> Assignment {
        Assignment::first(VPN_PREFIX, KubernetesRole::ALL.iter().copied().collect())
    }

    fn data() -> NewData {
        NewData::Created {
            assignment: assignment(),
            master_secret: MasterSecret(Secret::take(&mut [2; 32])),
            first_contact: FirstContact(Secret::take(&mut [3; 32])),
        }
    }

    #[test]
    fn what_is_written_at_create_is_read_at_every_start() {
        let place = tempfile::tempdir().expect("a place for files");
        let root = place.path().join("cairn");
        let root = root.to_str().expect("a plain path");
        let keys = keys();
        write(root, Some(&keys), &data()).expect("writes");
        let kept = load(root).expect("loads");
        assert_eq!(kept.assignment, assignment());
        assert_eq!(kept.vpn.expose(), &[1; 32]);
        let authorities = kept.authorities.expect("it is a coordinator's");
        assert_eq!(authorities.etcd.certificate(), keys.authorities.etcd.certificate());
        let spki = |authorities: &Authorities| authorities.service_accounts.public().spki();
        assert_eq!(spki(&authorities), spki(&keys.authorities));
        assert_eq!(kept.first_contact.expect("not claimed yet").expose(), &[3; 32]);
        assert_eq!(load_master_secret(root).expect("loads").expose(), &[2; 32]);
    }

    #[test]
    fn a_node_holds_nothing_that_signs() {
        let place = tempfile::tempdir().expect("a place for files");
        let root = place.path().join("cairn");
        let root = root.to_str().expect("a plain path");
        let node = Assignment::new([10, 118, 0, 2].into(), ClusterRole::Node, [].into(), None).expect("they fit");
        let vpn_key = VpnPrivKey(Secret::take(&mut [1; 32]));
        let version = PeerVersion { recoveries: 0, revision: 7 };
        let first = Known::of_answer(version, vec![]);
        let joined = NewData::Joined { assignment: node.clone(), vpn_key, peers: first.clone() };
        assert!(matches!(write(root, Some(&keys()), &joined), Err(WriteError::Keys)));
        fs::remove_dir(root).expect("it is empty");
        write(root, None, &joined).expect("writes");
        let kept = load(root).expect("loads");
        assert_eq!((kept.assignment, kept.authorities.is_none()), (node, true));
        assert_eq!((kept.vpn.expose(), kept.first_contact.is_none()), (&[1; 32], true));
        assert!(load_master_secret(root).is_err());
        assert_eq!(peers::read(Path::new(root)).expect("reads"), Some(first), "the mesh begins with them");
    }

    /// Proves: D8
    #[test]
    fn nobody_else_reads_them() {
        let place = tempfile::tempdir().expect("a place for files");
        let root = place.path().join("cairn");
        write(root.to_str().expect("a plain path"), Some(&keys()), &data()).expect("writes");
        let mode = |path: &Path| fs::metadata(path).expect("there").permissions().mode() & 0o777;
        assert_eq!(mode(&root), 0o700);
        for entry in fs::read_dir(&root).expect("readable") {
            let path = entry.expect("readable").path();
            assert_eq!(mode(&path), 0o600, "{}", path.display());
        }
    }

    #[test]
    fn the_first_contact_secret_is_forgotten_once_and_for_all() {
        let place = tempfile::tempdir().expect("a place for files");
        let root = place.path().join("cairn");
        let root = root.to_str().expect("a plain path");
        write(root, Some(&keys()), &data()).expect("writes");
        forget_first_contact(root).expect("removed");
        forget_first_contact(root).expect("nothing left to do");
        assert!(load(root).expect("loads").first_contact.is_none());
    }

    #[test]
    fn damaged_files_are_named() {
        let place = tempfile::tempdir().expect("a place for files");
        let root = place.path().join("cairn");
        let text = root.to_str().expect("a plain path");
        write(text, Some(&keys()), &data()).expect("writes");
        fs::write(root.join(VPN), [0; 31]).expect("writable");
        assert!(matches!(load(text), Err(LoadError::Size(name)) if name == VPN));
        fs::write(root.join(VPN), [0; 32]).expect("writable");
        fs::copy(root.join("etcd.key"), root.join("cairn.key")).expect("writable");
        assert!(matches!(load(text), Err(LoadError::Authority(AuthorityKind::Cairn, _))));
        fs::write(root.join(ASSIGNMENT), "king").expect("writable");
        assert!(matches!(load(text), Err(LoadError::Assignment(_))));
    }
}
