//! Clusters of `cargo xtask up` that were saved: each lies in the cache under the digest of all that it came from. `cairnctl`
//! saves them and has them back; this finds them, says which go, and must never use one of another origin.
//!
//! ```text
//! <cache>/cairn/up/<digest>/       a saved cluster, as `cairnctl cluster save` wrote it
//! <cache>/cairn/up/<digest>.lock   `cairnctl`'s: held by whoever saves, forgets (alone) or uses (shared) it
//! <cache>/cairn/up/<digest>.new/   a save that runs, or was killed
//! <cache>/cairn/up/<digest>.used   empty; changed whenever it was saved or came back
//! ```
//! `cairnctl` itself refuses one that was changed, or that this host's QEMU, TPM or firmware does not fit.

use std::{
    fs::{self, File, TryLockError},
    io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    time::SystemTime,
};

use ::image::Manifest;
use anyhow::{Context, Result, bail};
use qemu::saved::{MANIFEST, SavedFleet, fresh_name};
use xtask::{
    cache::BuildCache,
    digest::{Digest, DigestInputs},
    progress::{clock_text, say, talking_step, timed},
};

use super::eviction::{SavedUp, going};
use crate::{cluster_tool::Tool, owner};

/// Raised when `up` brings a machine to its pod in another way, of the same origin.
const RECIPE: &str = "1";
/// Bytes that all of them may take together (10 GiB).
const LIMIT: u64 = 10 << 30;
const READY: &str = "--for=condition=Ready";
/// A pod that was Ready is so at once; this only bounds a wait for what is broken.
const WITHIN: &str = "--timeout=60s";

/// All that a cluster of `up` comes from, but for its owner.
#[derive(Debug)]
pub(super) struct Origin {
    /// The image.
    pub(super) manifest: Manifest,
    /// The arguments by which `cairnctl` makes its machine.
    pub(super) machine: &'static str,
    /// The pod, as JSON.
    pub(super) pod: String,
}

impl Origin {
    /// The digest of it, with the owner whose public key this is.
    fn digest(&self, owner: &[u8]) -> Result<Digest> {
        let mut inputs = DigestInputs::new("up").text("recipe", RECIPE).text("root", &self.manifest.verity.root_hash);
        for artefact in [::image::names::KERNEL, ::image::names::INITRAMFS] {
            let entry = self.manifest.artefacts.get(artefact).map(|entry| format!("{entry:?}"));
            inputs = inputs.text(artefact, &entry.with_context(|| format!("the image has no `{artefact}`"))?);
        }
        let owner: String = owner.iter().map(|byte| format!("{byte:02x}")).collect();
        inputs = inputs.text("command line", &self.manifest.cmdline).text("owner", &owner);
        inputs = inputs.text("machine", self.machine).text("pod", &self.pod);
        inputs.finish().context("hash what the machine comes from")
    }
}

/// All saved clusters of `up`.
#[derive(Debug)]
pub(super) struct SavedUps {
    root: PathBuf,
}

impl SavedUps {
    /// Saved machines of this cache.
    pub(super) fn of(cache: &BuildCache) -> Self {
        Self { root: cache.root().join("up") }
    }

    /// Has the cluster back that is of this origin and this person's; whether there was one that came. Why one did not is said,
    /// and one that is damaged is removed.
    ///
    /// # Errors
    /// `cairnctl` cannot be run; what is damaged cannot be removed.
    pub(super) fn bring_back(&self, tool: &Tool, origin: &Origin) -> Result<bool> {
        // Without an owner's key there is no cluster of this person's; what is wrong with a key, `cairnctl` says.
        let Some(key) = owner::data_home().and_then(|home| owner::key(&home).ok()) else { return Ok(false) };
        let name = origin.digest(&key.public().spki())?.to_string();
        let folder = self.root.join(&name);
        if !folder.exists() {
            return Ok(false);
        }
        say("▸ machine: coming back as an earlier `up` has saved it, of the same image (`up --fresh` boots)");
        let (came, took) = timed(|| came_back(tool, &folder));
        let Err(reason) = came? else {
            say(format_args!("✓ machine and pod: back after {}", clock_text(took)));
            self.mark_used(&name)?;
            return Ok(true);
        };
        let damaged = SavedFleet::<serde_json::Value>::open(&folder).and_then(|saved| saved.is_whole()).is_err();
        let gone = if damaged && self.remove(&name)? { "; that one is removed" } else { "" };
        say(format_args!("! it did not come back: {reason}{gone}"));
        tool.take_away()?;
        Ok(false)
    }

    /// Saves the cluster, which goes on running, in the place of an earlier one of the same origin; then what was not used for
    /// long goes.
    ///
    /// # Errors
    /// It cannot be saved, or what goes cannot be removed.
    pub(super) fn save(&self, tool: &Tool, origin: &Origin) -> Result<()> {
        let home = owner::data_home().context("find the data directory")?;
        let name = origin.digest(&owner::key(&home)?.public().spki())?.to_string();
        fs::create_dir_all(&self.root).with_context(|| format!("make `{}`", self.root.display()))?;
        if !self.remove(&name)? {
            bail!("another `up` uses the saved one of the same origin");
        }
        talking_step("saved", "for the next `up`; the machine goes on", || {
            tool.run(&["cluster", "save", tool.cluster, "--as", &self.root.join(&name).to_string_lossy()])
        })?;
        self.mark_used(&name)?;
        let all = self.list(&name)?;
        for gone in going(&all, LIMIT) {
            if self.remove(gone)? {
                say(format_args!("  a saved machine that was not used for long is removed: {gone}"));
            }
        }
        Ok(())
    }

    /// All of them; `mine` is in use. What a save that was killed has left, under a name that nobody saves now, goes.
    fn list(&self, mine: &str) -> Result<Vec<SavedUp>> {
        let mut all = Vec::new();
        let failed = || format!("look into `{}`", self.root.display());
        for entry in fs::read_dir(&self.root).with_context(failed)? {
            let path = entry.with_context(failed)?.path();
            let (Some(name), true) = (path.file_stem().and_then(|name| name.to_str()), path.is_dir()) else { continue };
            let in_use = name == mine || self.lock(name)?.is_none();
            if path.extension().is_some() {
                if !in_use {
                    remove_all(&path)?;
                }
                continue;
            }
            let used = fs::metadata(self.used(name)).and_then(|used| used.modified()).unwrap_or(SystemTime::UNIX_EPOCH);
            let bytes = bytes_on_disk(&path).with_context(failed)?;
            all.push(SavedUp { name: name.to_owned(), bytes, used, in_use });
        }
        Ok(all)
    }

    /// Removes one, if it is there; false where somebody uses it.
    fn remove(&self, name: &str) -> Result<bool> {
        let Some(_lock) = self.lock(name)? else { return Ok(false) };
        let folder = self.root.join(name);
        // From here on nobody takes it for one.
        remove_file(&folder.join(MANIFEST))?;
        remove_all(&folder)?;
        remove_all(&fresh_name(&folder))?;
        remove_file(&self.used(name))?;
        Ok(true)
    }

    /// The lock of one, held; none where somebody else holds it.
    fn lock(&self, name: &str) -> Result<Option<File>> {
        let path = self.root.join(name).with_extension("lock");
        let open = File::options().create(true).truncate(false).write(true).open(&path);
        let file = open.with_context(|| format!("open `{}`", path.display()))?;
        match file.try_lock() {
            Ok(()) => Ok(Some(file)),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error).with_context(|| format!("lock `{}`", path.display())),
        }
    }

    fn mark_used(&self, name: &str) -> Result<()> {
        let path = self.used(name);
        remove_file(&path)?;
        fs::write(&path, "").with_context(|| format!("write `{}`", path.display()))
    }

    fn used(&self, name: &str) -> PathBuf {
        self.root.join(name).with_extension("used")
    }
}

/// Whether its machine runs and its pod is Ready; else why not.
fn came_back(tool: &Tool, folder: &Path) -> Result<Result<(), String>> {
    match tool.tried(&["cluster", "create", tool.cluster, "--from", &folder.to_string_lossy()])? {
        Ok(()) => tool.tried(&["kubectl", "--cluster", tool.cluster, "--", "wait", READY, "pod/web", WITHIN]),
        Err(reason) => Ok(Err(reason)),
    }
}

/// Blocks of all files below a folder, in bytes.
fn bytes_on_disk(folder: &Path) -> io::Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(folder)? {
        let (entry, there) = entry.and_then(|entry| Ok((entry.path(), entry.metadata()?)))?;
        bytes += if there.is_dir() { bytes_on_disk(&entry)? } else { there.blocks() * 512 };
    }
    Ok(bytes)
}

fn remove_all(folder: &Path) -> Result<()> {
    unless_gone(fs::remove_dir_all(folder), folder)
}

fn remove_file(file: &Path) -> Result<()> {
    unless_gone(fs::remove_file(file), file)
}

fn unless_gone(removed: io::Result<()>, path: &Path) -> Result<()> {
    match removed {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("remove `{}`", path.display()))
        }
        Ok(()) | Err(_) => Ok(()), // gone either way
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn origin(root_hash: &str, kernel: &str, pod: &str) -> Origin {
        let file = |sha256: &str| json!({ "kind": "file", "size": 1, "sha256": sha256 });
        let manifest = json!({
            "version": "0.1.0",
            "profile": "release",
            "kernel": { "version": "6.12", "source_sha256": "aa" },
            "cmdline": "quiet",
            "verity": { "root_hash": root_hash, "hash_offset": 0, "data_blocks": 1 },
            "pcr11": "bb",
            "components": {},
            "artefacts": { "bzImage": file(kernel), "initramfs.cpio.zst": file("cc") },
            "initramfs": {},
            "esp": {},
            "root": {},
        });
        let manifest = serde_json::from_value(manifest).expect("a manifest");
        Origin { manifest, machine: "--cpus 2", pod: pod.to_owned() }
    }

    #[test]
    fn another_image_pod_or_owner_is_another_origin() {
        let digest = |origin: Origin, owner: &[u8]| origin.digest(owner).expect("hashed");
        let one = digest(origin("r", "k", "p"), b"me");
        assert_eq!(one, digest(origin("r", "k", "p"), b"me"));
        for other in [origin("R", "k", "p"), origin("r", "K", "p"), origin("r", "k", "P")] {
            assert_ne!(one, digest(other, b"me"));
        }
        assert_ne!(one, digest(origin("r", "k", "p"), b"you"));
    }

    /// Saved clusters of these names in a cache, each with a file of as many kilobytes.
    fn saved(names: &[(&str, usize)]) -> (tempfile::TempDir, SavedUps) {
        let folder = tempfile::tempdir().expect("a folder");
        let ups = SavedUps::of(&BuildCache::at(folder.path().to_owned()));
        for (name, kilobytes) in names {
            fs::create_dir_all(ups.root.join(name).join("m1")).expect("made");
            fs::write(ups.root.join(name).join("m1/memory"), vec![1; kilobytes << 10]).expect("written");
        }
        (folder, ups)
    }

    #[test]
    fn one_that_somebody_uses_is_not_removed() {
        let (_folder, ups) = saved(&[("a", 1)]);
        let used = ups.lock("a").expect("opened").expect("nobody else has it");
        assert!(!ups.remove("a").expect("looked") && ups.root.join("a").exists());
        assert!(ups.list("other").expect("listed")[0].in_use);
        drop(used);
        assert!(ups.remove("a").expect("removed") && !ups.root.join("a").exists());
        assert!(ups.remove("a").expect("what is not there is gone"));
    }

    #[test]
    fn all_are_listed_and_what_a_killed_save_left_goes() {
        let (_folder, ups) = saved(&[("a", 8), ("b", 64), ("c.new", 1), ("d.new", 1)]);
        ups.mark_used("b").expect("marked");
        let saving = ups.lock("d").expect("opened").expect("nobody else has it");
        let mut all = ups.list("b").expect("listed");
        all.sort_by(|one, other| one.name.cmp(&other.name));
        let told: Vec<_> = all.iter().map(|one| (one.name.as_str(), one.in_use)).collect();
        assert_eq!(told, [("a", false), ("b", true)]);
        assert!(all[0].used < all[1].used && all[0].bytes < all[1].bytes, "{all:?}");
        assert!(!ups.root.join("c.new").exists() && ups.root.join("d.new").exists());
        drop(saving);
    }
}
