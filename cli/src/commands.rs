//! The commands, one file each, and the way to a cluster and its machine, which they share.

mod blank;
pub(crate) mod cluster;
pub(crate) mod completion;
pub(crate) mod condition;
mod confirm;
pub(crate) mod enrol;
#[cfg(test)]
pub(crate) mod home;
pub(crate) mod image;
pub(crate) mod kubeconfig;
pub(crate) mod kubectl;
pub(crate) mod machine;
mod meant;
pub(crate) mod network;
mod open;
mod out_file;
pub(crate) mod owner;
mod records;
pub(crate) mod recover;
mod secret_input;
pub(crate) mod ticket;

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::process::ExitCode;

use api::UnixMillis;
use model::{KubernetesRole, NodeName};

use crate::args::{Cli, Command, Global};
use crate::failure::{Advice, Code, Failure, NOTHING, StartError};
use crate::machine::Address;
use crate::screen::{self, Format};
use crate::store::{BadClusterName, ClusterName, ClusterRecord, Store, StoreError};

pub(crate) use meant::Meant;
pub(crate) use open::{OpenError, PATIENCE};

/// Runs one command to its end.
pub(crate) fn run(cli: Cli) -> Result<ExitCode, Failure> {
    let Cli { global, command } = cli;
    let mut out = io::stdout().lock();
    let out: &mut dyn Write = &mut out;
    match command {
        // Needs neither keys nor a machine, so no data directory is made for it.
        Command::Image(command) => image::run(&command, global.output, out).map(done),
        Command::Completion(arguments) => completion::run(&arguments, out).map(done),
        Command::Network(arguments) => network::run(&arguments),
        Command::Enrol(command) => enrol::run(&command, Context::of_user(global)?, out).map(done),
        Command::Cluster(command) => wait(cluster::run(&command, Context::of_user(global)?, out)).map(done),
        Command::Machine(command) => wait(machine::run(&command, &Context::of_user(global)?, out)).map(done),
        Command::Ticket(command) => wait(ticket::run(&command, &Context::of_user(global)?, out)).map(done),
        Command::Owner(command) => wait(owner::run(&command, &Context::of_user(global)?, out)).map(done),
        Command::Goldenticket(issue) => {
            wait(ticket::run(&ticket::Command::Issue(issue), &Context::of_user(global)?, out)).map(done)
        }
        Command::Recover(arguments) => wait(recover::run(&arguments, &Context::of_user(global)?, out)).map(done),
        Command::Condition(command) => wait(condition::run(&command, &Context::of_user(global)?, out)).map(done),
        Command::Kubeconfig(arguments) => wait(kubeconfig::run(&arguments, &Context::of_user(global)?, out)).map(done),
        Command::Kubectl(arguments) => wait(kubectl::run(&arguments, &Context::of_user(global)?)),
    }
}

/// Runs a command to its end, on one thread: a command waits for one machine at a time.
fn wait<T>(command: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(StartError)?.block_on(command)
}

fn done((): ()) -> ExitCode {
    ExitCode::from(Code::Done as u8)
}

/// Kubernetes roles in one cell of a table.
fn roles(roles: &BTreeSet<KubernetesRole>) -> String {
    let words: Vec<_> = roles.iter().map(|role| role.word()).collect();
    if words.is_empty() { "-".to_owned() } else { words.join(",") }
}

/// Says under a list that it may be old.
fn old(since: Option<UnixMillis>, now: UnixMillis, out: &mut dyn Write) -> io::Result<()> {
    match since {
        Some(since) => {
            let ago = screen::span(now.since(since));
            writeln!(out, "\nas of {ago} ago: since then the machine sees no changes of the cluster's records")
        }
        None => Ok(()),
    }
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
    /// Context of the person whose environment this is.
    fn of_user(global: Global) -> Result<Self, StoreError> {
        let store = Store::of_user(std::env::var_os("XDG_DATA_HOME"), std::env::var_os("HOME"))?;
        let Global { cluster, machine, through, address, output: format } = global;
        Ok(Self { store, cluster, machine, through, address, format })
    }

    /// The cluster that is meant.
    pub(crate) fn cluster(&self) -> Result<ClusterRecord, StoreError> {
        let name = self.cluster.clone().map_or_else(|| self.store.only(), Ok)?;
        self.store.load(&name)
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

    #[test]
    fn a_list_that_may_be_old_says_how_old() {
        let said = |since| {
            let mut out = Vec::new();
            old(since, UnixMillis(95_000), &mut out).unwrap();
            String::from_utf8(out).unwrap()
        };
        assert_eq!(said(None), "");
        let at = "\nas of 1m30s ago: since then the machine sees no changes of the cluster's records\n";
        assert_eq!(said(Some(UnixMillis(5_000))), at);
    }
}
