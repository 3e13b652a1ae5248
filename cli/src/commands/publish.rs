//! `publish …`: ports of machines that answer on the networks of their uplinks, for a namespace's services or for what listens on the
//! machines: add, list, remove.

use std::collections::BTreeSet;
use std::io::Write;
use std::net::Ipv4Addr;

use api::{ListPage, ListedMachine, ListedRule};
use clap::{Args, Subcommand};
use clap_complete::engine::ArgValueCandidates;
use cluster::record::{BadPublish, PortUsers, PublishRecord, PublishTerms};
use model::{BadPrefix, BadUplinkPort, Ipv4Prefix, MachineId, NamespaceName, PublishId, UplinkPort};
use serde::Serialize;

use crate::complete;
use crate::context::Context;
use crate::failure::{Advice, Code, Failure, NOTHING};
use crate::screen::{self, Format, Table};

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Open ports of machines to the networks of their uplinks
    Add(Add),
    /// The rules that open ports
    List,
    /// Close the ports of a rule, for connections that are open, too
    Remove(Remove),
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  cairnctl publish add 80,443/tcp --namespace web
  cairnctl publish add 53/tcp,53/udp --namespace names --on m1,m2
  cairnctl publish add 443/tcp --namespace shop --at 192.168.1.50
  cairnctl publish add --host 8443/tcp --on m1 --from 192.168.0.0/16

With --namespace what answers is a service of type LoadBalancer in that
namespace, all of whose ports one rule names: `kubectl get service` shows the
addresses of the machines at which it is reached. With --host it is a pod with
a hostPort, or one in the network of its host, on that machine.

With --at they are reached at that address alone, which is nobody's in the
machines' network. One machine holds it, and another one takes it within half a
minute when that falls silent or is not Ready; at first it takes as long.

Each machine goes by it within two seconds. Beside what is published nothing
answers but 7836/tcp and 7838/udp, which are Cairn's own.

Without --from the port answers everybody who reaches the machine: the LAN, and
the internet where a router leads there.")]
pub(crate) struct Add {
    /// The ports of services: 80,443/tcp, 53/tcp,53/udp
    #[arg(value_name = "PORTS", value_parser = typed_ports, required_unless_present = "host")]
    ports: Option<Ports>,
    /// The namespace whose services of type LoadBalancer answer
    #[arg(long, required_unless_present = "host")]
    namespace: Option<NamespaceName>,
    /// The ports of machines instead: whatever listens there answers
    #[arg(long, value_name = "PORTS", value_parser = typed_ports, conflicts_with_all = ["ports", "namespace"])]
    host: Option<Ports>,
    /// The machines, by their names; for a namespace all workers if not given
    #[arg(long = "on", value_name = "MACHINES", value_delimiter = ',', required_unless_present = "namespace")]
    on: Vec<String>,
    /// Floating address of the services, free in the machines' network
    #[arg(long = "at", value_name = "ADDRESS", conflicts_with = "host")]
    floating: Option<Ipv4Addr>,
    /// From where the ports are reached: a.b.c.d/n; anywhere if not given
    #[arg(long = "from", value_name = "PREFIX", value_parser = typed_source)]
    sources: Vec<Ipv4Prefix>,
}

#[derive(Debug, Args)]
pub(crate) struct Remove {
    /// The rule's number as `cairnctl publish list` shows it
    #[arg(value_name = "RULE", add = ArgValueCandidates::new(complete::published))]
    rule: PublishId,
}

/// Ports of one option.
#[derive(Debug, Clone)]
struct Ports(BTreeSet<UplinkPort>);

/// Text that names no ports, or one twice.
#[derive(Debug, thiserror::Error)]
enum BadPorts {
    #[error(transparent)]
    Port(#[from] BadUplinkPort),
    #[error("it names {0} twice")]
    Twice(UplinkPort),
}

/// Text that is no source.
#[derive(Debug, thiserror::Error)]
enum BadSource {
    /// Machines have no address of IPv6.
    #[error("uplinks have no IPv6 yet: give an IPv4 prefix, a.b.c.d/n")]
    Ipv6,
    #[error(transparent)]
    Prefix(#[from] BadPrefix),
}

/// Why nothing is published.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PublishError {
    /// No machine of that name belongs to the cluster.
    #[error("the cluster has no machine called {0}")]
    Machine(String),
    /// Too much, or what is Cairn's own.
    #[error("these ports cannot be published")]
    Terms(#[source] BadPublish),
}

impl Advice for PublishError {
    fn code(&self) -> Code {
        Code::Usage
    }

    fn unchanged(&self) -> &'static str {
        NOTHING
    }

    fn next(&self) -> Option<String> {
        Some(match self {
            Self::Machine(_) => "see the machines: cairnctl machine list".to_owned(),
            Self::Terms(_) => "see what can be published: cairnctl publish add --help".to_owned(),
        })
    }
}

#[derive(Debug, Serialize)]
struct RuleOut {
    rule: u64,
    ports: Vec<String>,
    /// Absent: whatever listens on the machines answers.
    namespace: Option<String>,
    /// Names; ids of those that have gone. Empty: all workers.
    machines: Vec<String>,
    /// Absent: they are reached at the machines' own.
    address: Option<Ipv4Addr>,
    /// Name; absent where no machine holds the address, or is to.
    holder: Option<String>,
    /// Empty: any address.
    sources: Vec<String>,
}

#[derive(Debug, Serialize)]
struct RulesOut {
    /// Absent: it is of now.
    old_since_unix_ms: Option<u64>,
    rules: Vec<RuleOut>,
}

pub(crate) async fn run(command: &Command, context: &Context, out: &mut dyn Write) -> Result<(), Failure> {
    match command {
        Command::Add(arguments) => arguments.run(context, out).await,
        Command::List => list(context, out).await,
        Command::Remove(arguments) => arguments.run(context, out).await,
    }
}

fn typed_ports(text: &str) -> Result<Ports, BadPorts> {
    let mut ports = BTreeSet::new();
    for port in UplinkPort::read_all(text)? {
        if !ports.insert(port) {
            return Err(BadPorts::Twice(port));
        }
    }
    Ok(Ports(ports))
}

fn typed_source(text: &str) -> Result<Ipv4Prefix, BadSource> {
    if text.contains(':') { Err(BadSource::Ipv6) } else { Ok(text.parse()?) }
}

const SEE: &str = "see what is published: cairnctl publish list";

impl Add {
    async fn run(&self, context: &Context, out: &mut dyn Write) -> Result<(), Failure> {
        let sources: BTreeSet<_> = self.sources.iter().copied().collect();
        let Ports(ports) = self.host.as_ref().or(self.ports.as_ref()).expect("the parser has one of them");
        let terms = |machines| {
            let users = PortUsers::of(self.namespace.clone(), machines);
            let terms = PublishTerms::new(ports.clone(), users, sources.clone());
            terms.and_then(|terms| terms.at(self.floating)).map_err(PublishError::Terms)
        };
        // Before any call: what no machine could publish.
        terms([MachineId([0; 16])].into())?;
        let (mut session, _) = context.open_coordinator().await?;
        let terms = terms(named(&self.on, &session.machines().await?.rows)?)?;
        let (ports, of) = (joined(terms.ports(), ","), self.whose());
        let published = session.publish(terms).await;
        published.map_err(|error| Failure::from(error).going_on(SEE))?;
        let from = if sources.is_empty() { "everybody".to_owned() } else { joined(&sources, ", ") };
        let at = self.floating.map_or_else(String::new, |address| format!(" at {address}"));
        Ok(screen::did(context.format, out, &format!("{ports} of {of} is open to {from}{at}"))?)
    }

    /// Words for what answers at the ports, and where.
    fn whose(&self) -> String {
        let on = self.on.join(", ");
        match &self.namespace {
            None => on,
            Some(namespace) if on.is_empty() => format!("services in namespace {namespace}, on all workers,"),
            Some(namespace) => format!("services in namespace {namespace}, on {on},"),
        }
    }
}

impl Remove {
    async fn run(&self, context: &Context, out: &mut dyn Write) -> Result<(), Failure> {
        let (mut session, _) = context.open_coordinator().await?;
        let removed = session.unpublish(self.rule).await;
        removed.map_err(|error| Failure::from(error).going_on(SEE))?;
        Ok(screen::did(context.format, out, &format!("rule {} publishes nothing any more", self.rule))?)
    }
}

/// Machines of these names, among those that belong.
fn named(names: &[String], listed: &[ListedMachine]) -> Result<BTreeSet<MachineId>, PublishError> {
    let id = |name: &String| {
        let found = listed.iter().find(|machine| machine.is_called(name));
        found.map(|machine| machine.id).ok_or_else(|| PublishError::Machine(name.clone()))
    };
    names.iter().map(id).collect()
}

async fn list(context: &Context, out: &mut dyn Write) -> Result<(), Failure> {
    let (mut session, _) = context.open_coordinator().await?;
    let (listed, machines) = (session.published().await?, session.machines().await?.rows);
    match context.format {
        Format::Json => {
            let rules = listed.rows.iter().map(|rule| shown(rule, &machines)).collect();
            screen::json(out, &RulesOut { old_since_unix_ms: listed.old_since.map(|at| at.0), rules })?;
        }
        Format::Table => {
            let now = session.status().await?.now;
            table(&listed, &machines).print(out)?;
            super::old(listed.old_since, now, out)?;
        }
    }
    Ok(())
}

fn shown(ListedRule { record, holder }: &ListedRule, machines: &[ListedMachine]) -> RuleOut {
    let PublishRecord { id, terms } = record;
    let name = |id: &MachineId| {
        let found = machines.iter().find(|machine| machine.id == *id && machine.belongs());
        found.map_or_else(|| id.to_string(), |machine| machine.name.clone())
    };
    RuleOut {
        rule: id.0,
        ports: terms.ports().iter().map(ToString::to_string).collect(),
        namespace: terms.users().namespace().map(ToString::to_string),
        machines: terms.users().machines().iter().map(name).collect(),
        address: terms.address(),
        holder: holder.as_ref().map(name),
        sources: terms.sources().iter().map(ToString::to_string).collect(),
    }
}

fn table(listed: &ListPage<ListedRule>, machines: &[ListedMachine]) -> Table<6> {
    let mut table = Table::new(["RULE", "PORTS", "NAMESPACE", "MACHINES", "ADDRESS", "FROM"]);
    for rule in &listed.rows {
        let RuleOut { rule, ports, namespace, machines, address, holder, sources } = shown(rule, machines);
        let namespace = namespace.unwrap_or_else(|| "-".to_owned());
        let machines = if machines.is_empty() { "all workers".to_owned() } else { machines.join(" ") };
        let from = if sources.is_empty() { "everywhere".to_owned() } else { sources.join(" ") };
        let holder = holder.map_or_else(|| "held by nobody yet".to_owned(), |holder| format!("on {holder}"));
        let address = address.map_or_else(|| "-".to_owned(), |address| format!("{address} {holder}"));
        table.row([rule.to_string(), ports.join(" "), namespace, machines, address, from]);
    }
    table
}

fn joined<'a, T: ToString + 'a>(all: impl IntoIterator<Item = &'a T>, between: &str) -> String {
    all.into_iter().map(ToString::to_string).collect::<Vec<_>>().join(between)
}

#[cfg(test)]
mod tests;
