//! The command line as a whole. Each command's own arguments are beside what it does.

use std::ffi::OsString;

use clap::{Args, Parser, Subcommand};
use clap_complete::engine::ArgValueCandidates;
use model::NodeName;

use crate::commands::{
    cluster, completion, condition, enrol, etcd, image, kubeconfig, kubectl, machine, network, owner, publish, recover,
    registry, ticket, user, volume,
};
use crate::complete;
use crate::context::{Context, machine_name};
use crate::failure::EXIT_CODES;
use crate::machine::Address;
use crate::screen::Format;
use crate::store::{ClusterName, Store, StoreError};

const EXAMPLES: &str = "\
Examples:
  cairnctl cluster create --wait          one virtual machine, one cluster
  cairnctl kubectl get nodes              kubectl, through a tunnel
  cairnctl machine logs -f kube           follow the logs of Kubernetes
  cairnctl condition wait NodeReady       wait until pods can run
  cairnctl enrol config --out config.pb   a config for hardware
  source <(cairnctl completion bash)      complete names by the Tab key

Keys and pins are kept in $XDG_DATA_HOME/cairn. Keep a copy of owner.keys there:
who has it is the owner; without it a machine cannot be steered or recovered.";

/// Makes, watches and steers Cairn clusters.
#[derive(Debug, Parser)]
#[command(name = "cairnctl", version, max_term_width = 80, after_help = format!("{EXAMPLES}\n\n{EXIT_CODES}"))]
pub(crate) struct Cli {
    #[command(flatten)]
    pub global: Global,
    #[command(subcommand)]
    pub command: Command,
}

const HEADING: &str = "Options of every command";

/// Options that every command takes.
#[derive(Debug, Args)]
pub(crate) struct Global {
    /// The cluster that is meant; not needed while there is only one
    #[arg(
        long, short, global = true, value_name = "NAME", help_heading = HEADING,
        add = ArgValueCandidates::new(complete::clusters),
    )]
    pub cluster: Option<ClusterName>,

    /// The machine that is meant; not needed while the cluster has only one
    #[arg(
        long, short, global = true, value_name = "NAME", help_heading = HEADING, value_parser = machine_name,
        add = ArgValueCandidates::new(complete::machines),
    )]
    pub machine: Option<NodeName>,

    /// The machine that carries what is said to the one that is meant, when
    /// nobody else leads there; --address is then its own
    #[arg(
        long, global = true, value_name = "NAME", help_heading = HEADING, value_parser = machine_name,
        add = ArgValueCandidates::new(complete::machines),
    )]
    pub through: Option<NodeName>,

    /// Where the machine's public API is, when it is elsewhere than last seen
    #[arg(long, global = true, value_name = "HOST[:PORT]", help_heading = HEADING)]
    pub address: Option<Address>,

    /// How answers are written: table, for people, or json, for programs
    #[arg(
        long, short, global = true, value_enum, default_value_t, value_name = "FORMAT", help_heading = HEADING,
        hide_possible_values = true,
    )]
    pub output: Format,
}

impl Global {
    /// Context of the person whose environment this is.
    pub(crate) fn context(self) -> Result<Context, StoreError> {
        let store = Store::of_user(std::env::var_os("XDG_DATA_HOME"), std::env::var_os("HOME"))?;
        let Self { cluster, machine, through, address, output: format } = self;
        Ok(Context { store, cluster, machine, through, address, format })
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Clusters: make, list, look at, start, stop, spoil, destroy
    #[command(subcommand)]
    Cluster(cluster::Command),
    /// Machines: list; of one: status, logs, services, reboot, power
    #[command(subcommand)]
    Machine(machine::Command),
    /// Tickets, by which machines join: issue, list, revoke
    #[command(subcommand)]
    Ticket(ticket::Command),
    /// Owners of the cluster: list, add, remove
    #[command(subcommand)]
    Owner(owner::Command),
    /// Users of the cluster's Kubernetes, who own nothing: list, add, remove
    #[command(subcommand)]
    User(user::Command),
    /// Another name of `ticket issue`: print a ticket for one machine
    Goldenticket(ticket::Issue),
    /// Open the machines that wait for their keys, as the owner
    Recover(recover::Arguments),
    /// Conditions: what holds, and waiting for it
    #[command(subcommand)]
    Condition(condition::Command),
    /// Write a kubeconfig and keep its tunnel open
    Kubeconfig(kubeconfig::Arguments),
    /// Run kubectl through a tunnel to the cluster's Kubernetes API
    Kubectl(kubectl::Arguments),
    /// Enrolment configs for hardware
    #[command(subcommand)]
    Enrol(enrol::Command),
    /// Container images of machines; the files of a build
    #[command(subcommand)]
    Image(image::Command),
    /// Registries that workers pull images from: set, list, remove
    #[command(subcommand)]
    Registry(registry::Command),
    /// Volumes that workers keep for claims: list, remove
    #[command(subcommand)]
    Volume(volume::Command),
    /// etcd, which keeps the cluster's records and Kubernetes' objects: status, defragment, snapshot
    #[command(subcommand)]
    Etcd(etcd::Command),
    /// Ports that machines open to the networks of their uplinks: add, list, remove
    #[command(subcommand)]
    Publish(publish::Command),
    /// Completion of commands, options and names by the Tab key
    Completion(completion::Arguments),
    /// The process of a cluster's virtual network, which other commands start
    #[command(hide = true)]
    Network(network::Arguments),
}

/// Reads a command line whose first word is the program's name.
pub(crate) fn parse(line: impl IntoIterator<Item = OsString>) -> Result<Cli, clap::Error> {
    Cli::try_parse_from(line)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
    }

    /// Global options are those of every command: another one of that name would be read as both, and panic.
    #[test]
    fn no_option_has_the_name_of_a_global_one() {
        let command = Cli::command();
        let global: Vec<_> = command.get_arguments().filter(|it| it.is_global_set()).map(clap::Arg::get_id).collect();
        assert!(global.iter().any(|id| *id == "machine"), "{global:?}");
        let mut inner: Vec<_> = command.get_subcommands().collect();
        while let Some(command) = inner.pop() {
            for option in command.get_arguments() {
                assert!(!global.contains(&option.get_id()), "`{}`: {}", command.get_name(), option.get_id());
            }
            inner.extend(command.get_subcommands());
        }
    }

    /// Every command's help is as in `help/`, and no line is longer than 80 columns. `CAIRN_REWRITE_GOLDEN=1` writes
    /// the files anew. Proves: Q6
    #[test]
    fn help_reads_well_in_80_columns() {
        let mut command = Cli::command().term_width(80);
        command.build();
        check_help(&mut command, "cairnctl");
    }

    fn check_help(command: &mut clap::Command, name: &str) {
        // The version of the build is none of the help's business.
        let help = command.render_long_help().to_string();
        for line in help.lines() {
            assert!(line.chars().count() <= 80, "{name}: {line}");
        }
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("help").join(format!("{name}.txt"));
        if std::env::var_os("CAIRN_REWRITE_GOLDEN").is_some() {
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, &help).unwrap();
        }
        assert_eq!(std::fs::read_to_string(&path).unwrap_or_default(), help, "{}", path.display());
        for inner in command.get_subcommands_mut() {
            if inner.get_name() != "help" {
                let name = format!("{name}-{}", inner.get_name());
                check_help(inner, &name);
            }
        }
    }

    /// Proves: S8
    #[test]
    fn a_golden_ticket_is_asked_for_as_ticket_issue_is() {
        let issue = |words: &[&str], options: &[&str]| {
            let line = [&["cairnctl"], words, options].concat();
            let command = parse(line.iter().map(OsString::from)).unwrap().command;
            let (Command::Goldenticket(issue) | Command::Ticket(ticket::Command::Issue(issue))) = &command else {
                panic!("{command:?}")
            };
            format!("{issue:?}")
        };
        for options in [&[][..], &["--uses", "3", "--for", "2d"], &["--role", "coordinator", "--out", "ticket"]] {
            assert_eq!(issue(&["goldenticket"], options), issue(&["ticket", "issue"], options));
        }
        assert_ne!(issue(&["goldenticket"], &["--uses", "3"]), issue(&["ticket", "issue"], &[]));
    }

    #[test]
    fn nonsense_is_a_usage_error_with_code_2() {
        for line in [&["cairnctl"][..], &["cairnctl", "nonsense"], &["cairnctl", "-c", "A B", "cluster", "list"]] {
            let error = parse(line.iter().map(OsString::from)).unwrap_err();
            assert_eq!(error.exit_code(), 2, "{line:?}");
        }
        assert_eq!(parse(["cairnctl", "--help"].map(OsString::from)).unwrap_err().exit_code(), 0);
    }
}
