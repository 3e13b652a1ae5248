//! The way to a cluster and its machine, which commands share: what is named on the command line, and what it means.

#[cfg(test)]
pub(crate) mod home;
mod meant;
mod open;
mod records;

use model::{BadNodeName, NodeName};

use crate::failure::{Advice, Code, NOTHING};
use crate::machine::Address;
use crate::screen::Format;
use crate::store::{BadClusterName, ClusterName, ClusterRecord, Owner, Store, StoreError};

pub(crate) use meant::Meant;
pub(crate) use open::{OpenError, PATIENCE};

/// Name of a machine, as it is typed.
pub(crate) fn machine_name(text: &str) -> Result<NodeName, BadNodeName> {
    NodeName::stored(text)
}

/// Store, names, address and output format that every command is given.
#[derive(Debug)]
pub(crate) struct Context {
    /// The owner's keys, and what is kept of each cluster.
    pub store: Store,
    /// The cluster named on the command line.
    pub cluster: Option<ClusterName>,
    /// The machine named on the command line.
    pub machine: Option<NodeName>,
    /// The machine through which the other one is to be reached, where one was named.
    pub through: Option<NodeName>,
    /// The address named on the command line.
    pub address: Option<Address>,
    /// How answers are written.
    pub format: Format,
}

/// Two clusters are named where one is meant.
#[derive(Debug, thiserror::Error)]
#[error("both `{0}` and `{1}` are named")]
pub(crate) struct TwoNames(ClusterName, ClusterName);

impl Advice for TwoNames {
    fn code(&self) -> Code {
        Code::Usage
    }

    fn unchanged(&self) -> &'static str {
        NOTHING
    }

    fn next(&self) -> Option<String> {
        Some("name the cluster once: behind the command, or by --cluster".to_owned())
    }
}

impl Context {
    /// The cluster that is meant.
    pub(crate) fn cluster(&self) -> Result<ClusterRecord, StoreError> {
        let name = self.cluster.clone().map_or_else(|| self.store.only(), Ok)?;
        self.store.load(&name)
    }

    /// This host's person, as the cluster of `record` knows them.
    pub(crate) fn person(&self, record: &ClusterRecord) -> Result<Owner, StoreError> {
        Ok(self.store.owner()?.calling_as(record.calls))
    }

    /// The same context, with a machine that was not named on the command line.
    pub(crate) fn about(&self, cluster: &ClusterName, machine: &NodeName) -> Self {
        let (cluster, machine) = (Some(cluster.clone()), Some(machine.clone()));
        Self { store: self.store.clone(), cluster, machine, through: None, address: None, format: self.format }
    }

    /// The same about a cluster as a whole.
    pub(crate) fn about_cluster(&self, cluster: &ClusterName) -> Self {
        Self {
            store: self.store.clone(),
            cluster: Some(cluster.clone()),
            machine: None,
            through: None,
            address: None,
            format: self.format,
        }
    }

    /// The same with a cluster that the command itself may name; naming it twice is fine, naming two is not.
    pub(crate) fn meaning(self, named: Option<&ClusterName>) -> Result<Self, TwoNames> {
        match (self.cluster, named) {
            (Some(one), Some(other)) if one != *other => Err(TwoNames(other.clone(), one)),
            (one, other) => Ok(Self { cluster: one.or_else(|| other.cloned()), ..self }),
        }
    }

    /// The name of a cluster to be made: the one that was named, else the usual one.
    pub(crate) fn new_name(&self, usual: &str) -> Result<ClusterName, BadClusterName> {
        self.cluster.clone().map_or_else(|| usual.parse(), Ok)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cluster_is_named_once() {
        let (_root, context, _owner) = home::begun();
        let name = |text: &str| -> ClusterName { text.parse().unwrap() };
        let with = |cluster: Option<&str>| Context {
            store: context.store.clone(),
            cluster: cluster.map(name),
            machine: None,
            through: None,
            address: None,
            format: Format::Table,
        };
        let meant = |global: Option<&str>, own: Option<&str>| with(global).meaning(own.map(name).as_ref());
        for (global, own, meaning) in [
            (None, None, None),
            (Some("a"), None, Some("a")),
            (None, Some("a"), Some("a")),
            (Some("a"), Some("a"), Some("a")),
        ] {
            assert_eq!(meant(global, own).unwrap().cluster, meaning.map(name));
        }
        let two = meant(Some("a"), Some("b")).unwrap_err();
        assert_eq!((two.code(), two.to_string().as_str()), (Code::Usage, "both `b` and `a` are named"));
    }
}
