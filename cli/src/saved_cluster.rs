//! A cluster of virtual machines that was saved: what is kept of it beside its machines, where, and why it is not saved or does
//! not come back. Copies of one saved cluster are the same machines with the same keys.

use std::path::PathBuf;
use std::str::FromStr;

use model::NodeName;
use qemu::saved::{ManifestError, RestoreError, SaveError, SavedFleet};
use serde::{Deserialize, Serialize};

use crate::failure::{Advice, Code, NOTHING};
use crate::store::{ClusterName, ClusterRecord, Owner, Store};

/// Data that is kept of a saved cluster beside its machines.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Beside {
    /// The record of the cluster that was saved.
    pub record: ClusterRecord,
    /// The owner's public key, in hex: nobody else steers its machines.
    pub owner: String,
}

/// A saved cluster, with its record and its owner's key.
pub(crate) type SavedCluster = SavedFleet<Beside>;

/// Which saved cluster is meant: one of this person's by name, or any by its folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SavedName {
    /// Name of the saved cluster among those that this person keeps.
    Name(ClusterName),
    /// Folder of the saved cluster: a path with a slash.
    Folder(PathBuf),
}

impl FromStr for SavedName {
    type Err = <ClusterName as FromStr>::Err;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.contains('/') { Ok(Self::Folder(text.into())) } else { text.parse().map(Self::Name) }
    }
}

impl std::fmt::Display for SavedName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Name(name) => name.fmt(f),
            Self::Folder(folder) => folder.display().fmt(f),
        }
    }
}

impl SavedName {
    /// Folder of the saved cluster.
    pub(crate) fn folder(&self, store: &Store) -> PathBuf {
        match self {
            Self::Name(name) => store.saved_directory().join(name),
            Self::Folder(folder) => folder.clone(),
        }
    }
}

/// The public key of an owner, as it stands beside a saved cluster.
pub(crate) fn owner_key(owner: &Owner) -> String {
    data_encoding::HEXLOWER.encode(&owner.signing_key().public())
}

/// Why a cluster is not saved, or a saved one does not come back.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SavedError {
    /// Not all of it runs.
    #[error("machine `{machine}` of `{cluster}` is off, and only a cluster that runs as a whole is saved")]
    Off { cluster: ClusterName, machine: NodeName },
    /// The owner has not met all of it.
    #[error("machine `{machine}` of `{cluster}` has not been met yet")]
    NotMet { cluster: ClusterName, machine: NodeName },
    /// The cluster cannot be saved.
    #[error("save cluster `{cluster}`")]
    Save { cluster: ClusterName, source: SaveError },
    /// The cluster cannot come back.
    #[error("saved cluster `{saved}`")]
    Restore { saved: String, source: RestoreError },
    /// Another person's keys steer it.
    #[error(
        "saved cluster `{saved}` belongs to another owner: its machines know the key {theirs}, and yours is {yours}"
    )]
    Owner { saved: String, theirs: String, yours: String },
}

impl SavedError {
    /// For `map_err` on what is done with a saved cluster.
    pub(crate) fn of(saved: &SavedName) -> impl Fn(RestoreError) -> Self {
        let saved = saved.to_string();
        move |source| Self::Restore { saved: saved.clone(), source }
    }
}

impl Advice for SavedError {
    fn code(&self) -> Code {
        match self {
            Self::Save { source: SaveError::Exists(_), .. } => Code::Usage,
            Self::Restore { source: RestoreError::Manifest(ManifestError::Absent(_)), .. } => Code::NotFound,
            Self::Owner { .. } => Code::Refused,
            Self::Off { .. } | Self::NotMet { .. } | Self::Save { .. } | Self::Restore { .. } => Code::Failed,
        }
    }

    fn unchanged(&self) -> &'static str {
        match self {
            Self::Off { .. } | Self::NotMet { .. } | Self::Owner { .. } => NOTHING,
            Self::Save { source: SaveError::Exists(_) | SaveError::NoMachine | SaveError::Unknown(_), .. }
            | Self::Save { source: SaveError::Logged(_) | SaveError::Traits(_), .. } => NOTHING,
            Self::Save { source: SaveError::Memory { .. } | SaveError::Files(_), .. } => {
                "nothing was saved, and the machines go on"
            }
            Self::Restore { .. } => "the saved cluster is as it was, and no cluster was made",
        }
    }

    fn next(&self) -> Option<String> {
        const ANEW: &str = "make such a cluster anew (cairnctl cluster create) and save it";
        match self {
            Self::Off { cluster, .. } => Some(format!("cairnctl cluster start {cluster}")),
            Self::NotMet { cluster, machine } => Some(format!("cairnctl -c {cluster} -m {machine} machine status")),
            Self::Save { source: SaveError::Exists(_), .. } => {
                Some("take another name (--as), or: cairnctl cluster forget SAVED".to_owned())
            }
            Self::Save { source: SaveError::Unknown(_), cluster } => Some(format!(
                "restart it by this version: cairnctl cluster stop {cluster}, then cairnctl cluster start {cluster}"
            )),
            Self::Save { .. } => None,
            Self::Owner { .. } => Some("put the `owner.keys` back that it was saved with".to_owned()),
            Self::Restore { source, saved } => match source {
                RestoreError::Manifest(ManifestError::Absent(_)) => Some("cairnctl cluster saved".to_owned()),
                RestoreError::Open { folder, .. } => {
                    Some(format!("if nobody else can have read it: chmod go= {}", folder.display()))
                }
                RestoreError::Memory { .. } => {
                    Some("end what uses the host's memory, or stop another cluster: cairnctl cluster list".to_owned())
                }
                RestoreError::Image { .. } => Some("leave out --image: it brings its own".to_owned()),
                RestoreError::Host(_) | RestoreError::Board { .. } => Some(ANEW.to_owned()),
                RestoreError::Manifest(_) | RestoreError::Files(_) => {
                    Some(format!("cairnctl cluster forget {saved}, then {ANEW}"))
                }
                RestoreError::Traits(_)
                | RestoreError::Places { .. }
                | RestoreError::Links { .. }
                | RestoreError::Occupied(_)
                | RestoreError::Taken(_)
                | RestoreError::Processes(_)
                | RestoreError::Run { .. } => None,
            },
        }
    }
}

/// Refuses a saved cluster whose machines know another owner.
pub(crate) fn is_owned(saved: &SavedCluster, name: &SavedName, owner: &Owner) -> Result<(), SavedError> {
    let (theirs, yours) = (saved.more().owner.clone(), owner_key(owner));
    if theirs == yours { Ok(()) } else { Err(SavedError::Owner { saved: name.to_string(), theirs, yours }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_told_from_a_name_by_its_slash() {
        let name = |text: &str| text.parse::<SavedName>();
        assert_eq!(name("lab"), Ok(SavedName::Name("lab".parse().unwrap())));
        assert_eq!(name("./lab"), Ok(SavedName::Folder("./lab".into())));
        assert!(name("Lab").is_err() && name("lab.new").is_err() && name("").is_err());
    }
}
