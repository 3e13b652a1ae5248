//! Files that a person keeps between two commands: keys, and what is known of each cluster.
//!
//! ```text
//!   $XDG_DATA_HOME/cairn/          0700
//!   ├─ lock                        held while owner.keys is made
//!   ├─ owner.keys                  0600, made once
//!   ├─ NAME.lock                   held by whoever changes the cluster
//!   ├─ saved/NAME/                 0700, a saved cluster; beside it NAME.lock, held by whoever makes, uses or forgets it
//!   └─ clusters/NAME/              0700
//!      ├─ cluster.json             0600, what is known
//!      ├─ network/                 0700, the files of its virtual network
//!      └─ machines/NAME/           0700, a virtual machine's files, and of the first one
//!         └─ first-contact         0600, 32 bytes, until the first authenticated call
//! ```
//! Several commands may run at once: files change by rename, and what must not happen twice is under a lock.

mod owner;
mod private;
mod record;

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use aws_lc_rs::rand;
use model::{FirstContact, NodeName, Secret};

pub(crate) use owner::{CallsAs, Owner, OwnerError};
pub(crate) use private::{
    FileError, NewFile, directory as private_directory, remove as remove_private, remove_all as remove_all_private,
    write as write_private,
};
pub(crate) use record::{
    BadClusterName, BootWay, ClusterName, ClusterRecord, Known, MachineRecord, MeantError, OtherMachine, Pins,
    RecordError, VirtualMachine, VirtualNetwork,
};

use crate::failure::{Advice, Code, NOTHING};

/// The directory of everything.
#[derive(Debug, Clone)]
pub(crate) struct Store {
    root: PathBuf,
}

/// Held while a cluster is changed; dropping it lets others go on.
#[derive(Debug)]
pub(crate) struct Locked {
    _file: File,
}

/// Why something kept cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StoreError {
    /// Neither XDG_DATA_HOME nor HOME say where.
    #[error("find the data directory: neither XDG_DATA_HOME nor HOME is an absolute path")]
    NoHome,
    /// A file or directory cannot be read, made or changed.
    #[error(transparent)]
    File(#[from] FileError),
    /// The file of the owner's keys holds none that this version reads.
    #[error("read `{path}`")]
    Owner { path: PathBuf, source: OwnerError },
    /// There are no owner's keys although something needs them.
    #[error("there are no owner's keys in `{path}`")]
    NoOwner { path: PathBuf },
    /// A cluster's record cannot be believed.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// There is no cluster of that name.
    #[error("there is no cluster `{name}`")]
    NoSuchCluster { name: ClusterName },
    /// The name is taken.
    #[error("there is already a cluster `{name}`")]
    Exists { name: ClusterName },
    /// No name was given, and there is none to mean.
    #[error("there is no cluster yet")]
    NoCluster,
    /// No name was given, and there are several.
    #[error("there are several clusters ({names}) and none was named")]
    Ambiguous { names: String },
    /// Another command changes it right now.
    #[error("another cairnctl is working on `{name}`")]
    Busy { name: ClusterName },
    /// The same of a saved cluster.
    #[error("another cairnctl is working on `{folder}`")]
    SavedBusy { folder: PathBuf },
    /// The secret of first contact is not what it should be.
    #[error("the first-contact secret of cluster `{name}` is missing or damaged")]
    Secret { name: ClusterName },
    /// The machine that is meant cannot be told.
    #[error(transparent)]
    Meant(#[from] MeantError),
}

impl Advice for StoreError {
    fn unchanged(&self) -> &'static str {
        NOTHING
    }

    fn code(&self) -> Code {
        match self {
            Self::File(error) => error.code(),
            Self::Meant(error) => error.code(),
            Self::NoSuchCluster { .. } | Self::NoCluster => Code::NotFound,
            Self::Exists { .. } | Self::Ambiguous { .. } => Code::Usage,
            Self::NoHome
            | Self::Owner { .. }
            | Self::NoOwner { .. }
            | Self::Record(_)
            | Self::Busy { .. }
            | Self::SavedBusy { .. }
            | Self::Secret { .. } => Code::Failed,
        }
    }

    fn next(&self) -> Option<String> {
        match self {
            Self::File(error) => error.next(),
            Self::Owner { source, .. } => source.next(),
            Self::Record(error) => error.next(),
            Self::Meant(error) => error.next(),
            Self::NoHome => Some("set HOME".to_owned()),
            Self::NoOwner { .. } => Some("put `owner.keys` back from your copy of it".to_owned()),
            Self::NoSuchCluster { .. } => Some("cairnctl cluster list".to_owned()),
            Self::Exists { name } => Some(format!("take another --name, or: cairnctl cluster destroy {name}")),
            Self::NoCluster => Some("cairnctl cluster create".to_owned()),
            Self::Ambiguous { .. } => Some("name one: --cluster NAME".to_owned()),
            Self::Busy { .. } | Self::SavedBusy { .. } => Some("try again when the other command has ended".to_owned()),
            Self::Secret { name } => Some(format!("cairnctl cluster destroy {name}, then make it anew")),
        }
    }
}

impl Store {
    /// The store of the person whose environment this is; made if it is not there.
    pub(crate) fn of_user(data_home: Option<OsString>, home: Option<OsString>) -> Result<Self, StoreError> {
        // Relative paths are to be ignored (XDG Base Directory Specification).
        let absolute = |path: Option<OsString>| path.map(PathBuf::from).filter(|path| path.is_absolute());
        let data_home = absolute(data_home).or_else(|| absolute(home).map(|home| home.join(".local/share")));
        Self::at(data_home.ok_or(StoreError::NoHome)?.join("cairn"))
    }

    /// The store in a directory; made if it is not there.
    pub(crate) fn at(root: PathBuf) -> Result<Self, StoreError> {
        private::directory(&root)?;
        private::directory(&root.join("clusters"))?;
        private::directory(&root.join(SAVED))?;
        Ok(Self { root })
    }

    /// The owner's keys; none if there are none yet.
    pub(crate) fn owner(&self) -> Result<Owner, StoreError> {
        self.find_owner()?.ok_or_else(|| StoreError::NoOwner { path: self.root.clone() })
    }

    /// The owner's keys, made now if there are none. Two commands at once make one pair.
    pub(crate) fn owner_or_new(&self) -> Result<Owner, StoreError> {
        if let Some(owner) = self.find_owner()? {
            return Ok(owner);
        }
        let path = self.root.join("lock");
        let lock = lock_file(&path)?;
        lock.lock().map_err(FileError::at("lock", &path))?;
        if let Some(owner) = self.find_owner()? {
            return Ok(owner);
        }
        let path = self.root.join(OWNER);
        let owner = Owner::generate().map_err(|source| StoreError::Owner { path: path.clone(), source })?;
        private::write(&path, &owner.write())?;
        Ok(owner)
    }

    fn find_owner(&self) -> Result<Option<Owner>, StoreError> {
        let path = self.root.join(OWNER);
        let Some(bytes) = private::read(&path)? else { return Ok(None) };
        Owner::read(&bytes).map(Some).map_err(|source| StoreError::Owner { path, source })
    }

    /// The names of all clusters, sorted.
    pub(crate) fn clusters(&self) -> Result<Vec<ClusterName>, StoreError> {
        let directory = self.root.join("clusters");
        let at = |error| StoreError::File(FileError::at("list", &directory)(error));
        let mut names = Vec::new();
        for entry in fs::read_dir(&directory).map_err(at)? {
            // A directory that is no name is not ours; one without a record is a creation that did not get far.
            if let Some(name) = entry.map_err(at)?.file_name().to_str().and_then(|name| name.parse().ok())
                && self.directory(&name).join(RECORD).exists()
            {
                names.push(name);
            }
        }
        names.sort();
        Ok(names)
    }

    /// The cluster that a command without a name means: the only one.
    pub(crate) fn only(&self) -> Result<ClusterName, StoreError> {
        let mut names = self.clusters()?;
        match (names.pop(), names.is_empty()) {
            (Some(name), true) => Ok(name),
            (None, _) => Err(StoreError::NoCluster),
            (Some(last), false) => {
                names.push(last);
                let names: Vec<String> = names.iter().map(ToString::to_string).collect();
                Err(StoreError::Ambiguous { names: names.join(", ") })
            }
        }
    }

    /// Record of what is known of a cluster.
    pub(crate) fn load(&self, name: &ClusterName) -> Result<ClusterRecord, StoreError> {
        let bytes = private::read(&self.directory(name).join(RECORD))?
            .ok_or_else(|| StoreError::NoSuchCluster { name: name.clone() })?;
        Ok(ClusterRecord::read(name, &bytes)?)
    }

    /// Writes what is known; when this returns it is on the disk.
    pub(crate) fn save(&self, record: &ClusterRecord, _lock: &Locked) -> Result<(), StoreError> {
        Ok(private::write(&self.directory(&record.name).join(RECORD), &record.write())?)
    }

    /// Refuses a name that is taken.
    pub(crate) fn free(&self, name: &ClusterName, _lock: &Locked) -> Result<(), StoreError> {
        if self.directory(name).join(RECORD).exists() {
            return Err(StoreError::Exists { name: name.clone() });
        }
        Ok(())
    }

    /// Begins a cluster: its directory. The record is the caller's to save.
    pub(crate) fn begin(&self, name: &ClusterName, lock: &Locked) -> Result<(), StoreError> {
        self.free(name, lock)?;
        Ok(private::directory(&self.directory(name))?)
    }

    /// Begins a machine of it: its directory.
    pub(crate) fn begin_machine(
        &self,
        name: &ClusterName,
        machine: &NodeName,
        _lock: &Locked,
    ) -> Result<(), StoreError> {
        Ok(private::directory(&self.machine_directory(name, machine))?)
    }

    /// The same of a cluster's first machine, with the secret by which its owner will meet it.
    pub(crate) fn begin_first_machine(
        &self,
        name: &ClusterName,
        machine: &NodeName,
        lock: &Locked,
    ) -> Result<FirstContact, StoreError> {
        self.begin_machine(name, machine, lock)?;
        let secret = FirstContact(Secret::fill(|bytes| {
            rand::fill(bytes).map_err(|_| StoreError::Secret { name: name.clone() })
        })?);
        private::write(&self.machine_directory(name, machine).join(SECRET), secret.expose())?;
        Ok(secret)
    }

    /// The first-contact secret of a machine nobody has met yet.
    pub(crate) fn first_contact(&self, name: &ClusterName, machine: &NodeName) -> Result<FirstContact, StoreError> {
        let bytes = private::read(&self.machine_directory(name, machine).join(SECRET))?;
        Secret::fill(|out| match bytes {
            Some(bytes) if bytes.len() == out.len() => {
                out.copy_from_slice(&bytes);
                Ok(())
            }
            Some(_) | None => Err(StoreError::Secret { name: name.clone() }),
        })
        .map(FirstContact)
    }

    /// Removes the first-contact secret: the machine has dropped its own at the owner's first authenticated call.
    pub(crate) fn forget_first_contact(
        &self,
        name: &ClusterName,
        machine: &NodeName,
        _lock: &Locked,
    ) -> Result<(), StoreError> {
        Ok(private::remove(&self.machine_directory(name, machine).join(SECRET))?)
    }

    /// Waits for nobody: a cluster somebody else works on is busy.
    pub(crate) fn lock(&self, name: &ClusterName) -> Result<Locked, StoreError> {
        held(&self.root.join(format!("{name}.lock")), File::try_lock, || StoreError::Busy { name: name.clone() })
    }

    /// Where saved clusters are, each in a folder of its name.
    pub(crate) fn saved_directory(&self) -> PathBuf {
        self.root.join(SAVED)
    }

    /// The names of all saved clusters, sorted; whether one can be used shows when somebody opens it.
    pub(crate) fn saved(&self) -> Result<Vec<ClusterName>, StoreError> {
        let folders = listed(&self.saved_directory())?;
        // What is not whole yet, and locks, have names that no cluster has.
        let name = |folder: &PathBuf| folder.file_name()?.to_str()?.parse().ok();
        let mut names: Vec<ClusterName> = folders.iter().filter_map(name).collect();
        names.sort();
        Ok(names)
    }

    /// Held by whoever makes or forgets the saved cluster in this folder; waits for nobody.
    pub(crate) fn lock_saved(&self, folder: &Path) -> Result<Locked, StoreError> {
        held(&beside(folder), File::try_lock, || StoreError::SavedBusy { folder: folder.to_owned() })
    }

    /// Held by those who use the saved cluster in this folder.
    pub(crate) fn share_saved(&self, folder: &Path) -> Result<Locked, StoreError> {
        held(&beside(folder), File::try_lock_shared, || StoreError::SavedBusy { folder: folder.to_owned() })
    }

    /// Forgets a cluster: the record goes last, so that an interrupted removal can be repeated. What is gone already is
    /// not missed.
    pub(crate) fn remove(&self, name: &ClusterName, _lock: &Locked) -> Result<(), StoreError> {
        let directory = self.directory(name);
        for path in listed(&directory)? {
            if path.file_name() != Some(RECORD.as_ref()) {
                private::remove_all(&path)?;
            }
        }
        Ok(private::remove_all(&directory)?)
    }

    /// Directory in which a cluster's files are.
    pub(crate) fn directory(&self, name: &ClusterName) -> PathBuf {
        self.root.join("clusters").join(name)
    }

    /// Where a cluster's machine has its files.
    pub(crate) fn machine_directory(&self, name: &ClusterName, machine: &NodeName) -> PathBuf {
        self.directory(name).join(MACHINES).join(machine.as_str())
    }

    /// The same of all that have any, whatever the record says.
    pub(crate) fn machine_directories(&self, name: &ClusterName) -> Result<Vec<PathBuf>, StoreError> {
        Ok(listed(&self.directory(name).join(MACHINES))?)
    }

    /// Forgets a machine that the record does not name.
    pub(crate) fn remove_machine(
        &self,
        name: &ClusterName,
        machine: &NodeName,
        _lock: &Locked,
    ) -> Result<(), StoreError> {
        Ok(private::remove_all(&self.machine_directory(name, machine))?)
    }

    /// Where a cluster's virtual network has its files.
    pub(crate) fn network_directory(&self, name: &ClusterName) -> PathBuf {
        self.directory(name).join("network")
    }
}

const OWNER: &str = "owner.keys";
const RECORD: &str = "cluster.json";
const SECRET: &str = "first-contact";
const MACHINES: &str = "machines";
const SAVED: &str = "saved";

/// Paths of all that is in a directory now; none for one that is not there.
fn listed(directory: &Path) -> Result<Vec<PathBuf>, FileError> {
    let at = |error: io::Error| FileError::at("list", directory)(error);
    let entries = match fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(at(error)),
    };
    entries.map(|entry| entry.map(|entry| entry.path()).map_err(at)).collect()
}

/// The lock at `path`, unless somebody holds it.
fn held(
    path: &Path,
    lock: impl FnOnce(&File) -> Result<(), TryLockError>,
    busy: impl FnOnce() -> StoreError,
) -> Result<Locked, StoreError> {
    let file = lock_file(path)?;
    match lock(&file) {
        Ok(()) => Ok(Locked { _file: file }),
        Err(TryLockError::WouldBlock) => Err(busy()),
        Err(TryLockError::Error(error)) => Err(FileError::at("lock", path)(error).into()),
    }
}

/// The lock of a folder: a file beside it.
fn beside(folder: &Path) -> PathBuf {
    let mut name = folder.file_name().unwrap_or_default().to_owned();
    name.push(".lock");
    folder.with_file_name(name)
}

fn lock_file(path: &Path) -> Result<File, StoreError> {
    let open = OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(path);
    open.map_err(|error: io::Error| FileError::at("open", path)(error).into())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use model::ConfigDigest;

    use super::*;

    fn name(text: &str) -> ClusterName {
        text.parse().unwrap()
    }

    fn store() -> (tempfile::TempDir, Store) {
        let root = tempfile::tempdir().unwrap();
        let store = Store::at(root.path().join("cairn")).unwrap();
        (root, store)
    }

    fn m1() -> NodeName {
        NodeName::stored("m1").unwrap()
    }

    fn add(store: &Store, cluster: &str) -> Locked {
        let lock = store.lock(&name(cluster)).unwrap();
        store.begin(&name(cluster), &lock).unwrap();
        store.begin_first_machine(&name(cluster), &m1(), &lock).unwrap();
        store.save(&ClusterRecord::of_config(name(cluster), ConfigDigest([1; 32])), &lock).unwrap();
        lock
    }

    #[test]
    fn the_directory_follows_the_environment_but_no_relative_path() {
        let root = tempfile::tempdir().unwrap();
        let (data, home) = (root.path().join("data"), root.path().join("home"));
        let of = |data_home: Option<&Path>, home: Option<&Path>| {
            Store::of_user(data_home.map(Into::into), home.map(Into::into)).map(|store| store.root)
        };
        assert_eq!(of(Some(&data), Some(&home)).unwrap(), data.join("cairn"));
        assert_eq!(of(Some(Path::new("rel")), Some(&home)).unwrap(), home.join(".local/share/cairn"));
        assert_eq!(of(None, Some(&home)).unwrap(), home.join(".local/share/cairn"));
        assert!(matches!(of(None, None), Err(StoreError::NoHome)));
    }

    #[test]
    fn the_owner_is_made_once_even_by_two_at_once() {
        let (_root, store) = store();
        assert!(matches!(store.owner(), Err(StoreError::NoOwner { .. })));
        let make = || store.owner_or_new().unwrap().signing_key().public();
        let keys: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(make)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        let kept = store.owner().unwrap().signing_key().public();
        assert!(keys.iter().all(|key| *key == kept));
    }

    #[test]
    fn damaged_or_open_keys_are_never_replaced() {
        let (_root, store) = store();
        let path = store.root.join(OWNER);
        private::write(&path, b"CAIRNOWN?").unwrap();
        for result in [store.owner(), store.owner_or_new()] {
            assert!(matches!(result, Err(StoreError::Owner { source: OwnerError::Damaged, .. })));
        }
        assert_eq!(fs::read(&path).unwrap(), b"CAIRNOWN?");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        assert!(matches!(store.owner_or_new(), Err(StoreError::File(FileError::Open { .. }))));
    }

    #[test]
    fn two_clusters_live_side_by_side_and_one_needs_no_name() {
        let (_root, store) = store();
        assert!(matches!(store.only(), Err(StoreError::NoCluster)));
        let lock = add(&store, "home");
        assert_eq!(store.only().unwrap(), name("home"));
        add(&store, "away");
        assert_eq!(store.clusters().unwrap(), [name("away"), name("home")]);
        assert!(matches!(store.only(), Err(StoreError::Ambiguous { names }) if names == "away, home"));
        assert_ne!(
            store.first_contact(&name("home"), &m1()).unwrap().expose(),
            store.first_contact(&name("away"), &m1()).unwrap().expose()
        );
        store.remove(&name("home"), &lock).unwrap();
        assert!(matches!(store.load(&name("home")), Err(StoreError::NoSuchCluster { .. })));
        assert_eq!(store.only().unwrap(), name("away"));
    }

    #[test]
    fn a_name_is_taken_once_its_record_is_there_and_not_before() {
        let (_root, store) = store();
        let lock = store.lock(&name("home")).unwrap();
        let begin = || {
            store.begin(&name("home"), &lock).unwrap();
            store.begin_first_machine(&name("home"), &m1(), &lock).unwrap()
        };
        let abandoned = begin();
        assert!(store.clusters().unwrap().is_empty());
        let again = begin();
        assert_ne!(abandoned.expose(), again.expose());
        store.save(&ClusterRecord::of_config(name("home"), ConfigDigest([1; 32])), &lock).unwrap();
        assert!(matches!(store.begin(&name("home"), &lock), Err(StoreError::Exists { .. })));
        assert_eq!(store.first_contact(&name("home"), &m1()).unwrap().expose(), again.expose());
    }

    #[test]
    fn who_comes_second_is_told_so_and_may_come_again() {
        let (_root, store) = store();
        let lock = store.lock(&name("home")).unwrap();
        assert!(matches!(store.lock(&name("home")), Err(StoreError::Busy { .. })));
        assert!(store.lock(&name("away")).is_ok());
        drop(lock);
        assert!(store.lock(&name("home")).is_ok());
    }

    #[test]
    fn a_cluster_of_which_parts_are_gone_can_be_removed() {
        let (_root, store) = store();
        let lock = add(&store, "home");
        let machine = store.machine_directory(&name("home"), &m1());
        std::os::unix::fs::symlink("/nonexistent", machine.join("dangling")).unwrap();
        store.forget_first_contact(&name("home"), &m1(), &lock).unwrap();
        store.remove(&name("home"), &lock).unwrap();
        assert!(!store.directory(&name("home")).exists());
        // Somebody else was faster.
        store.remove(&name("home"), &lock).unwrap();
    }

    #[test]
    fn a_secret_that_is_gone_or_cut_is_named() {
        let (_root, store) = store();
        let lock = add(&store, "home");
        private::write(&store.machine_directory(&name("home"), &m1()).join(SECRET), &[1; 31]).unwrap();
        assert!(matches!(store.first_contact(&name("home"), &m1()), Err(StoreError::Secret { .. })));
        store.forget_first_contact(&name("home"), &m1(), &lock).unwrap();
        store.forget_first_contact(&name("home"), &m1(), &lock).unwrap();
        assert!(matches!(store.first_contact(&name("home"), &m1()), Err(StoreError::Secret { .. })));
    }
}
