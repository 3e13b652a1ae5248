//! Upstream component as its build has left it in the cache. It never builds.

use std::path::PathBuf;

/// Upstream component in the cache.
#[derive(Debug, Clone)]
pub(crate) struct Component {
    /// For example `etcd`.
    pub(crate) name: &'static str,
    /// Upstream's version, for example `v3.7.3`.
    pub(crate) version: String,
    /// Folder of its files in the cache.
    pub(crate) folder: PathBuf,
    /// File names of its executables, in the folder.
    pub(crate) executables: Vec<&'static str>,
}

impl Component {
    /// The executables' paths in the cache, by file name.
    pub(crate) fn files(&self) -> impl Iterator<Item = (&'static str, PathBuf)> {
        self.executables.iter().map(|name| (*name, self.folder.join(name)))
    }

    /// The licences of everything linked into it.
    pub(crate) fn notices(&self) -> PathBuf {
        self.folder.join("NOTICES.txt")
    }
}
