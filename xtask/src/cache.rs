//! Cache of what takes minutes to build, kept by the hash of everything it was built from, in the user's cache folder,
//! outside of the checkout. Nothing is taken from the cache without being hashed again: a damaged entry is said and
//! rebuilt.
//!
//! ```text
//! <cache>/cairn/<kind>/<key>/            the entry: files, and MANIFEST in the format of sha256sum
//! <cache>/cairn/<kind>/<key>.lock        held while one looks and builds; a second process waits, then finds the entry
//! <cache>/cairn/<kind>/<key>.partial/    out/ and work/ of a build that runs or was killed; removed by the next
//!
//!           lock ──► entry there? ──no──► build into .partial/out ──► write MANIFEST ──► rename ──► unlock
//!                        │yes                       ▲
//!                        └──► hashes equal? ──no, remove it and say so
//!                                 └──yes──► unlock
//! ```
//! It must never return an entry that was not checked in this run, nor a folder that is not renamed into its place.

use std::{
    collections::BTreeMap,
    env, fs, io,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};

use crate::{
    digest::{self, Digest},
    progress::say,
};

/// Lists an entry's files with their hashes; `sha256sum -c MANIFEST` checks an entry by hand.
const MANIFEST: &str = "MANIFEST";

/// The user's cache of build results.
#[derive(Debug, Clone)]
pub struct BuildCache {
    root: PathBuf,
}

/// Names an entry: what it is, and the digest of all it depends on.
#[derive(Debug, Clone)]
pub struct CacheKey {
    /// Folder of the cache: `kernel`, `etcd`, …
    pub kind: &'static str,
    /// Over everything that decides the result.
    pub inputs: Digest,
}

/// Where a build writes.
#[derive(Debug)]
pub struct BuildRoom<'a> {
    /// Folder that becomes the entry.
    pub out: &'a Path,
    /// For everything else; removed afterwards.
    pub work: &'a Path,
    /// For the output of the tools; kept.
    pub log: &'a Path,
}

/// Finding of a look at an entry's place.
#[derive(Debug, PartialEq, Eq)]
enum Found {
    Nothing,
    Good,
    Damaged(String),
}

impl BuildCache {
    /// The cache of this user: `$XDG_CACHE_HOME/cairn`, or `~/.cache/cairn`.
    ///
    /// # Errors
    /// Neither variable is set.
    pub fn of_user() -> Result<Self> {
        let named = env::var_os("XDG_CACHE_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
        let home = env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache"));
        match named.or(home) {
            Some(folder) => Ok(Self::at(folder.join("cairn"))),
            None => bail!("find the cache folder: neither XDG_CACHE_HOME nor HOME is set"),
        }
    }

    /// A cache in a given folder.
    pub fn at(root: PathBuf) -> Self {
        Self { root }
    }

    /// Folder that holds all entries.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Where the output of tools goes that work on something.
    #[must_use]
    pub fn log(&self, name: &str) -> PathBuf {
        self.root.join("logs").join(name).with_extension("log")
    }

    /// Returns the folder of an entry that is there and whole, checked file by file; never builds, and waits for nobody.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn found(&self, key: &CacheKey) -> Result<Option<PathBuf>> {
        let entry = self.root.join(key.kind).join(key.inputs.to_string());
        let found = look(&entry).with_context(|| format!("look into `{}`", entry.display()))?;
        Ok((found == Found::Good).then_some(entry))
    }

    /// Returns the folder of the entry, checked file by file; builds it first if it is not there or damaged.
    /// Several processes may ask for the same entry: one builds, the others wait for it.
    ///
    /// # Errors
    /// Those of `build`, and of the file system.
    pub fn entry(&self, key: &CacheKey, build: impl FnOnce(&BuildRoom<'_>) -> Result<()>) -> Result<PathBuf> {
        let kind = self.root.join(key.kind);
        let entry = kind.join(key.inputs.to_string());
        let partial = entry.with_extension("partial");
        fs::create_dir_all(&kind).with_context(|| format!("create `{}`", kind.display()))?;
        let _lock = lock(key.kind, &entry.with_extension("lock"))?;

        match look(&entry).with_context(|| format!("look into `{}`", entry.display()))? {
            Found::Good => return Ok(entry),
            Found::Nothing => {}
            Found::Damaged(how) => {
                say(format_args!("! {}: the cached result is damaged ({how}); it is built again", key.kind));
                fs::remove_dir_all(&entry).with_context(|| format!("remove `{}`", entry.display()))?;
            }
        }

        let (out, work) = (partial.join("out"), partial.join("work"));
        let log = self.log(key.kind);
        remove_if_there(&partial)?; // left by a build that was killed: we hold the lock, so nobody works there
        for folder in [&out, &work] {
            fs::create_dir_all(folder).with_context(|| format!("create `{}`", folder.display()))?;
        }
        if log.exists() {
            fs::remove_file(&log).with_context(|| format!("remove `{}`", log.display()))?;
        }
        build(&BuildRoom { out: &out, work: &work, log: &log })?;
        write_manifest(&out).with_context(|| format!("write the manifest of {}", key.kind))?;
        fs::rename(&out, &entry).with_context(|| format!("put `{}` in place", entry.display()))?;
        remove_if_there(&partial)?;
        Ok(entry)
    }
}

/// Takes a lock; the file's closing releases it, so also the process's death. `what` is said while another has it.
pub(crate) fn lock(what: &str, path: &Path) -> Result<fs::File> {
    let file = fs::File::create(path).with_context(|| format!("create `{}`", path.display()))?;
    match file.try_lock() {
        Ok(()) => return Ok(file),
        Err(fs::TryLockError::WouldBlock) => say(format_args!("… {what}: another process is at it; waiting")),
        Err(fs::TryLockError::Error(error)) => return Err(error).with_context(|| format!("lock `{}`", path.display())),
    }
    file.lock().with_context(|| format!("wait for `{}`", path.display()))?;
    Ok(file)
}

fn look(entry: &Path) -> io::Result<Found> {
    let listed = match fs::read_to_string(entry.join(MANIFEST)) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound && !entry.exists() => return Ok(Found::Nothing),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Found::Damaged("no manifest".to_owned())),
        Err(error) if error.kind() == io::ErrorKind::InvalidData => {
            return Ok(Found::Damaged("the manifest is not text".to_owned()));
        }
        Err(error) => return Err(error),
    };
    let mut wanted: BTreeMap<&str, &str> = BTreeMap::new();
    for line in listed.lines() {
        match line.split_once("  ") {
            Some((digest, path)) => drop(wanted.insert(path, digest)),
            None => return Ok(Found::Damaged("the manifest is not in its format".to_owned())),
        }
    }
    let there = digests(entry)?;
    for (path, digest) in &there {
        match wanted.remove(path.as_str()) {
            None => return Ok(Found::Damaged(format!("`{path}` does not belong to it"))),
            Some(wanted) if *wanted != digest.to_string() => {
                return Ok(Found::Damaged(format!("`{path}` has changed")));
            }
            Some(_) => {}
        }
    }
    match wanted.keys().next() {
        Some(path) => Ok(Found::Damaged(format!("`{path}` is missing"))),
        None => Ok(Found::Good),
    }
}

fn write_manifest(out: &Path) -> Result<()> {
    let lines: String = digests(out)?.iter().map(|(path, digest)| format!("{digest}  {path}\n")).collect();
    if lines.is_empty() {
        bail!("the build left no files");
    }
    fs::write(out.join(MANIFEST), lines)?;
    Ok(())
}

/// Digest of every file below a folder but the manifest, by its path from there.
fn digests(folder: &Path) -> io::Result<BTreeMap<String, Digest>> {
    let mut found = BTreeMap::new();
    let mut left = vec![folder.to_owned()];
    while let Some(current) = left.pop() {
        for item in fs::read_dir(&current)? {
            let path = item?.path();
            let relative = path.strip_prefix(folder).unwrap_or(&path).to_string_lossy().into_owned();
            if path.is_dir() {
                left.push(path);
            } else if relative != MANIFEST {
                found.insert(relative, digest::of_file(&path)?);
            }
        }
    }
    Ok(found)
}

fn remove_if_there(folder: &Path) -> Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("remove `{}`", folder.display()))
        }
        _ => Ok(()), // removed, or never there
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::{
            Barrier,
            atomic::{AtomicUsize, Ordering},
        },
        thread,
    };

    use super::*;
    use crate::digest::DigestInputs;

    struct Bench {
        _folder: tempfile::TempDir,
        cache: BuildCache,
        key: CacheKey,
        builds: AtomicUsize,
    }

    impl Bench {
        fn new() -> Self {
            let folder = tempfile::tempdir().expect("a folder");
            let cache = BuildCache::at(folder.path().join("cache"));
            let key = CacheKey { kind: "thing", inputs: DigestInputs::new("test").finish().expect("hashed") };
            Self { _folder: folder, cache, key, builds: AtomicUsize::new(0) }
        }

        fn entry(&self) -> Result<PathBuf> {
            self.cache.entry(&self.key, |room| {
                self.builds.fetch_add(1, Ordering::SeqCst);
                fs::create_dir(room.out.join("sub"))?;
                fs::write(room.out.join("sub/file"), "content")?;
                fs::write(room.out.join("other"), "more")?;
                Ok(())
            })
        }

        /// Builds, damages, asks again: the entry must be built a second time and be whole.
        fn damaged_by(damage: impl FnOnce(&Path)) {
            let bench = Self::new();
            let entry = bench.entry().expect("built");
            damage(&entry);
            assert_eq!(bench.entry().expect("built again"), entry);
            assert_eq!(bench.builds.load(Ordering::SeqCst), 2);
            assert_eq!(fs::read_to_string(entry.join("sub/file")).expect("there"), "content");
            assert_eq!(look(&entry).expect("readable"), Found::Good);
        }
    }

    #[test]
    fn an_entry_is_built_once() {
        let bench = Bench::new();
        let first = bench.entry().expect("built");
        assert_eq!(bench.entry().expect("found"), first);
        assert_eq!(bench.builds.load(Ordering::SeqCst), 1);
        let kind = first.parent().expect("a kind");
        assert!(!kind.join(bench.key.inputs.to_string()).with_extension("partial").exists());
    }

    #[test]
    fn an_entry_is_found_only_where_it_is_whole() {
        let bench = Bench::new();
        assert_eq!(bench.cache.found(&bench.key).expect("readable"), None);
        let entry = bench.entry().expect("built");
        assert_eq!(bench.cache.found(&bench.key).expect("readable"), Some(entry.clone()));
        fs::write(entry.join("other"), "less").expect("written");
        assert_eq!(bench.cache.found(&bench.key).expect("readable"), None);
        assert_eq!(bench.builds.load(Ordering::SeqCst), 1);
    }

    #[test]
    fn other_inputs_are_another_entry() {
        let mut bench = Bench::new();
        let first = bench.entry().expect("built");
        bench.key.inputs = DigestInputs::new("test").text("flag", "on").finish().expect("hashed");
        assert_ne!(bench.entry().expect("built"), first);
    }

    #[test]
    fn a_flipped_byte_is_noticed() {
        Bench::damaged_by(|entry| fs::write(entry.join("sub/file"), "cOntent").expect("written"));
    }

    #[test]
    fn a_missing_file_is_noticed() {
        Bench::damaged_by(|entry| fs::remove_file(entry.join("other")).expect("removed"));
    }

    #[test]
    fn a_file_too_many_is_noticed() {
        Bench::damaged_by(|entry| fs::write(entry.join("sub/extra"), "x").expect("written"));
    }

    #[test]
    fn a_missing_or_torn_manifest_is_noticed() {
        Bench::damaged_by(|entry| fs::remove_file(entry.join(MANIFEST)).expect("removed"));
        Bench::damaged_by(|entry| fs::write(entry.join(MANIFEST), [0xff, 0xfe]).expect("written"));
        Bench::damaged_by(|entry| fs::write(entry.join(MANIFEST), "torn").expect("written"));
        Bench::damaged_by(|entry| fs::write(entry.join(MANIFEST), "").expect("written"));
    }

    #[test]
    fn a_failed_build_leaves_no_entry_and_does_not_disturb_the_next() {
        let bench = Bench::new();
        let failed = bench.cache.entry(&bench.key, |room| {
            fs::write(room.out.join("half"), "half")?;
            bail!("no space")
        });
        assert_eq!(failed.expect_err("it failed").to_string(), "no space");
        let entry = bench.entry().expect("built");
        assert!(!entry.join("half").exists());
    }

    #[test]
    fn a_build_without_files_is_no_entry() {
        let bench = Bench::new();
        bench.cache.entry(&bench.key, |_| Ok(())).expect_err("nothing was built");
    }

    #[test]
    fn builders_at_once_build_once() {
        let bench = Bench::new();
        let start = Barrier::new(4);
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    start.wait();
                    bench.entry().expect("built or found");
                });
            }
        });
        assert_eq!(bench.builds.load(Ordering::SeqCst), 1);
    }
}
