//! What a member keeps on its data partition: `/data/cairn`, 0700, one small file per secret, 0600. Written once when it enrols,
//! read at every start. What is changed later: the first-contact secret is deleted, the peers are kept up, and what makes a
//! coordinator comes and goes with the office.
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
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

use cluster::peers::TooManyPeers;
use enrol::plan::NewData;
use keys::assignment::{self, AssignmentError};
use keys::coordinator::{AuthorityKeys, CoordinatorKeys};
use model::{Assignment, BadAssignment, ClusterRole, FirstContact, MasterSecret, Secret, VpnPrivKey};
use pki::{Authority, AuthorityKind, PrivateKey};
use zeroize::Zeroizing;

use super::member::Authorities;
use crate::network::mesh::kept as peers;
use crate::runtime::durable;

/// Where it is.
pub(crate) const ROOT: &str = "/data/cairn";

const SERVICE_ACCOUNT: &str = "service-account.key";
const VPN: &str = "vpn.key";
const MASTER_SECRET: &str = "master-secret";
const FIRST_CONTACT: &str = "first-contact";
const ASSIGNMENT: &str = "assignment";
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
    /// No machine can have such a role beside its others.
    #[error("change the machine's role")]
    Role(#[from] BadAssignment),
    /// An authority that this machine's cluster does not have.
    #[error("the keys that were handed over are of another cluster")]
    OtherCluster,
    /// A file cannot be replaced or removed.
    #[error("replace `{0}`")]
    Replace(&'static str, #[source] io::Error),
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
    /// Whether the machine came to a cluster that was there, and did not create it.
    pub(super) joined: bool,
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
            if let Some(known) = first.encode()? {
                put(root, peers::FILE, &known.bytes)?;
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
    let joined = exists(root, peers::FILE)?;
    let mut assignment = assignment::decode(&take(root, ASSIGNMENT)?)?;
    let began = root.parent().map_or(Ok(false), |data| exists(data, ETCD_BEGAN))?;
    if joined && !began {
        // It was to take up the office, and was cut short: it hears of it again.
        assignment = assignment.with_role(ClusterRole::Node)?;
    }
    let authorities = match assignment.role() {
        ClusterRole::Coordinator => Some(authorities(&coordinator_keys(root)?)?),
        ClusterRole::Node => None,
    };
    let first_contact = match exists(root, FIRST_CONTACT)? {
        true => Some(FirstContact(secret(root, FIRST_CONTACT)?)),
        false => None,
    };
    Ok(Kept { assignment, authorities, joined, vpn: VpnPrivKey(secret(root, VPN)?), first_contact })
}

/// What another machine needs to be a coordinator, too.
///
/// # Errors
/// [`LoadError`] names the file.
pub(super) fn hand_over(root: &str) -> Result<CoordinatorKeys, LoadError> {
    coordinator_keys(Path::new(root))
}

/// Makes a coordinator of this machine, as far as its files do: `certificate` is that of its cluster's CA.
///
/// # Errors
/// [`LoadError`]; at the next start it is what it was, or a coordinator.
pub(super) fn take_up(root: &str, keys: &CoordinatorKeys, certificate: &[u8]) -> Result<Authorities, LoadError> {
    let root = Path::new(root);
    let authorities = authorities(keys)?;
    if authorities.cairn.certificate().as_ref() != certificate {
        return Err(LoadError::OtherCluster);
    }
    let assignment = assignment::decode(&take(root, ASSIGNMENT)?)?.with_role(ClusterRole::Coordinator)?;
    let replace = |name: &str, bytes: &[u8]| {
        durable::replace(root, name, bytes).map_err(|error| LoadError::Replace("a coordinator's keys", error))
    };
    for (kind, AuthorityKeys { certificate, key }) in kinds(keys) {
        replace(&format!("{kind}.crt"), certificate)?;
        replace(&format!("{kind}.key"), key)?;
    }
    replace(SERVICE_ACCOUNT, &keys.service_accounts)?;
    replace(MASTER_SECRET, keys.master_secret.expose())?;
    // Last: whoever reads that it is a coordinator's finds all that makes one.
    replace(ASSIGNMENT, &assignment::encode(&assignment))?;
    Ok(authorities)
}

/// Erases what makes a coordinator. Nothing to do on a node.
///
/// # Errors
/// [`LoadError`]; at the next start it is a node all the same, and has to be laid down again.
pub(super) fn lay_down(root: &str) -> Result<(), LoadError> {
    let root = Path::new(root);
    let assignment = assignment::decode(&take(root, ASSIGNMENT)?)?;
    if assignment.role() == ClusterRole::Coordinator {
        // First: a machine without all of the keys is none.
        let node = assignment.with_role(ClusterRole::Node)?;
        let replaced = durable::replace(root, ASSIGNMENT, &assignment::encode(&node));
        replaced.map_err(|error| LoadError::Replace(ASSIGNMENT, error))?;
    }
    let authorities = AuthorityKind::ALL.into_iter().flat_map(|kind| [format!("{kind}.key"), format!("{kind}.crt")]);
    for name in [MASTER_SECRET.to_owned(), SERVICE_ACCOUNT.to_owned()].into_iter().chain(authorities) {
        let removed = durable::remove(&root.join(name));
        removed.map_err(|error| LoadError::Replace("a coordinator's keys", error))?;
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
        service_accounts: take(root, SERVICE_ACCOUNT)?,
    })
}

const fn kinds(keys: &CoordinatorKeys) -> [(AuthorityKind, &AuthorityKeys); 3] {
    [
        (AuthorityKind::Cairn, &keys.cairn),
        (AuthorityKind::Etcd, &keys.etcd),
        (AuthorityKind::Kubernetes, &keys.kubernetes),
    ]
}

/// What signs, if each key is its certificate's.
fn authorities(keys: &CoordinatorKeys) -> Result<Authorities, LoadError> {
    let [cairn, etcd, kubernetes] = kinds(keys).map(|(kind, keys)| {
        Authority::load(kind, &keys.certificate, &keys.key).map_err(|error| LoadError::Authority(kind, error))
    });
    let service_accounts = PrivateKey::from_pkcs8(&keys.service_accounts);
    Ok(Authorities {
        cairn: cairn?,
        etcd: etcd?,
        kubernetes: kubernetes?.into(),
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
mod tests {
    use std::collections::BTreeSet;
    use std::os::unix::fs::PermissionsExt;
    use std::path::PathBuf;
    use std::time::Duration;

    use cluster::peers::Known;
    use cluster::state::StateVersion;
    use model::{KubernetesRole, VPN_PREFIX};
    use pki::UnixTime;
    use rustix::io::Errno;

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
        let version = StateVersion { recoveries: 0, revision: 7 };
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

    /// A machine that joined takes the office up, begins etcd, and lays it down again. A cut at each step leaves a node or a
    /// coordinator.
    #[test]
    fn what_makes_a_coordinator_comes_whole_and_goes_whole() {
        let place = tempfile::tempdir().expect("a place for files");
        let (first, root) = (place.path().join("first"), place.path().join("cairn"));
        let (first, root) = (first.to_str().expect("a plain path"), root.to_str().expect("a plain path"));
        let keys = keys();
        write(first, Some(&keys), &data()).expect("writes");
        let node = Assignment::new([10, 118, 0, 2].into(), ClusterRole::Node, [].into(), None).expect("they fit");
        let peers = Known::of_answer(StateVersion { recoveries: 0, revision: 7 }, vec![]);
        let vpn_key = VpnPrivKey(Secret::take(&mut [1; 32]));
        write(root, None, &NewData::Joined { assignment: node.clone(), vpn_key, peers }).expect("writes");

        let given = hand_over(first).expect("reads");
        assert!(matches!(take_up(root, &given, b"another CA"), Err(LoadError::OtherCluster)));
        assert!(!exists(Path::new(root), MASTER_SECRET).expect("seen"), "nothing of another cluster is kept");
        let certificate = keys.authorities.cairn.certificate().to_vec();
        take_up(root, &given, &certificate).expect("takes");
        // Cut before etcd has begun: it would know no member, so it is a node and asks again.
        let kept = load(root).expect("loads");
        assert_eq!((kept.assignment, kept.authorities.is_none(), kept.joined), (node.clone(), true, true));
        take_up(root, &given, &certificate).expect("takes again");
        fs::create_dir_all(place.path().join(ETCD_BEGAN)).expect("made");
        let kept = load(root).expect("loads");
        assert_eq!((kept.assignment.role(), kept.authorities.is_some()), (ClusterRole::Coordinator, true));
        assert_eq!(load_master_secret(root).expect("loads").expose(), &[2; 32]);

        // Cut behind its first step: a node, though keys are there still.
        let replaced = durable::replace(Path::new(root), ASSIGNMENT, &assignment::encode(&node));
        replaced.expect("writes");
        assert!(load(root).expect("loads").authorities.is_none());
        for _ in 0..2 {
            lay_down(root).expect("erased, or nothing left to do");
            let left: Vec<_> =
                fs::read_dir(root).expect("readable").map(|it| it.expect("readable").file_name()).collect();
            assert_eq!(left.len(), 3, "assignment, peers and the machine's own key: {left:?}");
        }
        assert_eq!(load(root).expect("loads").assignment, node);
    }

    /// Every path below `place`.
    fn below(place: &Path) -> BTreeSet<PathBuf> {
        let mut found = BTreeSet::new();
        for entry in fs::read_dir(place).expect("readable") {
            let path = entry.expect("readable").path();
            if fs::metadata(&path).expect("seen").is_dir() {
                found.append(&mut below(&path));
            }
            found.insert(path);
        }
        found
    }

    /// One path after the other answers as a damaged block does, on a coordinator that created its cluster and on one that joined.
    /// Proves: D14, O1
    #[test]
    fn an_error_makes_no_other_machine_and_erases_nothing() {
        for joined in [false, true] {
            let place = tempfile::tempdir().expect("a place for files");
            let root = place.path().join("cairn");
            let root = root.to_str().expect("a plain path");
            write(root, Some(&keys()), &data()).expect("writes");
            fs::create_dir_all(place.path().join(ETCD_BEGAN)).expect("made");
            if joined {
                put(Path::new(root), peers::FILE, &[]).expect("written");
            }
            let before = below(place.path());
            assert_eq!(before.len(), 15 + usize::from(joined));
            let kept = load(root).expect("nothing is wrong");
            assert_eq!((kept.assignment, kept.joined), (assignment(), joined));
            for (path, errno) in before.iter().flat_map(|path| [Errno::IO, Errno::ILSEQ].map(|errno| (path, errno))) {
                let error = durable::faults::with(path, errno, || load(root)).expect_err("it needs each of them");
                assert!(durable::is_damage(&error), "{}: {error:?}", path.display());
                assert_eq!(below(place.path()), before, "{}", path.display());
            }
        }
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
