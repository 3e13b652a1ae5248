//! `ticket …`: what lets machines join: issue, list, revoke. The ticket's key is drawn here and never leaves but in its text.

use std::io::Write;
use std::time::Duration;

use api::{ListPage, ListedTicket, UnixMillis};
use aws_lc_rs::rand;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Subcommand};
use cluster::record::{Revocation, UnixSeconds};
use cluster::request::Offer;
use keys::endpoint::{BadEndpoint, Endpoint};
use keys::identity::SigningKey;
use keys::ticket::Ticket;
use model::{BadNodeName, ClusterRole, KubernetesRole, MachinePubKey, NodeName, Secret, TicketId};
use serde::Serialize;
use zeroize::Zeroizing;

use super::out_file::{Begun, OutFile};
use crate::context::{Context, Meant};
use crate::failure::{Advice, Code, Failure};
use crate::length;
use crate::machine::Session;
use crate::screen::{self, Format, Table};

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Make a ticket and print its text: whoever has it can let machines join
    Issue(Issue),
    /// All tickets that ever were, the newest first
    List,
    /// From now on the ticket admits nobody; machines that it admitted stay
    Revoke(Revoke),
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  cairnctl ticket issue                       one machine, within an hour
  cairnctl ticket issue --uses 5 --for 1d     five machines, within a day
  cairnctl ticket issue --role coordinator    it may hold the cluster's state
  cairnctl ticket issue --out ticket          in a file that only you can read

Whoever holds a coordinator has the cluster. So what joins by a ticket of that
role is a node until you say: cairnctl machine approve NAME. A machine is a
coordinator at once where the ticket names it by the key that it shows while it
asks to be let in: --machine-key KEY

The text is given once and kept nowhere: the cluster knows its public half.
A ticket that got into wrong hands: cairnctl ticket revoke ID")]
// Without a file it is printed; other commands that write one need to be told where.
#[command(mut_arg("out", |out| out.required(false)))]
pub(crate) struct Issue {
    /// How many machines it admits
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    uses: u32,
    /// How long it admits machines: 90s, 10m, 1h30m, 2d
    #[arg(long = "for", value_name = "LENGTH", default_value = "1h", value_parser = length::parse)]
    lasts: Duration,
    /// Role that the machines take: node, or coordinator once you approve it
    #[arg(long, value_name = "ROLE", default_value = ClusterRole::Node.word(), value_parser = role(), hide_possible_values = true)]
    role: ClusterRole,
    /// Kubernetes roles: worker or control-plane; refused as long as only a cluster's first machine runs it
    #[arg(long, value_name = "ROLE", value_parser = kubernetes(), hide_possible_values = true)]
    kubernetes: Vec<KubernetesRole>,
    /// The one machine that it admits, by the key that the machine shows while it asks to be let in
    #[arg(long, value_name = "KEY", value_parser = machine_key)]
    machine_key: Option<MachinePubKey>,
    /// Name of the one machine that it admits
    #[arg(long, value_name = "NAME", value_parser = node_name)]
    node_name: Option<NodeName>,
    #[command(flatten)]
    file: Option<OutFile>,
    /// Issue it though it admits more than 100 machines
    #[arg(long, short)]
    yes: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Revoke {
    /// Id of the ticket, as `cairnctl ticket list` shows it
    #[arg(value_name = "ID", value_parser = ticket_id)]
    id: TicketId,
}

/// The most machines that a ticket admits unasked. Each machine of a cluster hears of all others: more at once are meant.
const MANY: u32 = 100;

/// Why there is no ticket.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TicketError {
    /// More machines than anybody lets in by mistake.
    #[error("a ticket of {0} uses admits more than {MANY} machines, whoever has it")]
    Many(u32),
    /// No random bytes.
    #[error("draw the ticket's key")]
    Random,
    /// The machine's word on where its coordinators are cannot be read.
    #[error("read where the coordinators are")]
    Endpoint(#[from] BadEndpoint),
    /// The cluster knows no address of a coordinator, so nobody would know where to go with the ticket.
    #[error("the cluster does not know an address of a coordinator")]
    Nowhere,
}

impl Advice for TicketError {
    fn code(&self) -> Code {
        match self {
            Self::Many(_) => Code::Usage,
            Self::Random | Self::Endpoint(_) | Self::Nowhere => Code::Failed,
        }
    }

    fn unchanged(&self) -> &'static str {
        match self {
            Self::Many(_) | Self::Random => "no ticket was issued",
            Self::Endpoint(_) | Self::Nowhere => "a ticket was issued that nobody has the key of: it admits nobody",
        }
    }

    fn next(&self) -> Option<String> {
        match self {
            Self::Many(_) => Some(format!("ask for at most {MANY}, or say that so many are meant: --yes")),
            Self::Random | Self::Endpoint(_) => None,
            Self::Nowhere => Some("see its addresses: cairnctl machine list; then try again".to_owned()),
        }
    }
}

#[derive(Debug, Serialize)]
struct IssuedOut<'a> {
    ticket_id: String,
    /// Absent: it is in the file.
    ticket: Option<&'a str>,
    /// Absent: it is here.
    file: Option<String>,
    uses: u32,
    not_after_unix_s: u64,
}

#[derive(Debug, Serialize)]
struct TicketOut {
    ticket_id: String,
    state: &'static str,
    uses: u32,
    used: u32,
    not_after_unix_s: u64,
    role: String,
    kubernetes_roles: Vec<String>,
    /// Absent: it admits any.
    machine_key: Option<String>,
    node_name: Option<String>,
    issued_at_unix_s: u64,
    revoked_at_unix_s: Option<u64>,
}

#[derive(Debug, Serialize)]
struct TicketsOut {
    /// Absent: it is of now.
    old_since_unix_ms: Option<u64>,
    tickets: Vec<TicketOut>,
}

pub(crate) async fn run(command: &Command, context: &Context, out: &mut dyn Write) -> Result<(), Failure> {
    match command {
        Command::Issue(issue) => issue.run(context, out).await,
        Command::List => list(context, out).await,
        Command::Revoke(Revoke { id }) => {
            let (mut session, _) = context.open_coordinator().await?;
            session
                .revoke_ticket(*id)
                .await
                .map_err(|error| Failure::from(error).going_on("see which there are: cairnctl ticket list"))?;
            Ok(screen::did(context.format, out, &format!("ticket {id} admits nobody any more"))?)
        }
    }
}

/// A ticket that a cluster issued.
#[derive(Debug)]
pub(crate) struct Issued {
    /// Id by which the cluster knows it.
    pub id: TicketId,
    /// The ticket, with its key.
    pub ticket: Ticket,
}

impl Issue {
    /// A ticket that admits so many machines for so long, as nodes with these roles in Kubernetes.
    pub(crate) const fn of_nodes(uses: u32, lasts: Duration, kubernetes: Vec<KubernetesRole>) -> Self {
        let role = ClusterRole::Node;
        Self { uses, lasts, role, kubernetes, machine_key: None, node_name: None, file: None, yes: false }
    }

    async fn run(&self, context: &Context, out: &mut dyn Write) -> Result<(), Failure> {
        if self.uses > MANY && !self.yes {
            return Err(TicketError::Many(self.uses).into());
        }
        // Before the ticket: there is no second way to its text.
        let file = self.file.as_ref().map(OutFile::begin).transpose()?;
        let (mut session, meant) = context.open_coordinator().await?;
        let Issued { id, ticket } = self.issue(&mut session, &meant).await?;
        let text = ticket.to_text();
        if let Some(file) = file {
            keep(file, &text, id, &mut session).await?;
        }
        let file = self.file.as_ref().map(|file| file.path().display().to_string());
        match (context.format, &file) {
            (Format::Table, None) => writeln!(out, "{}", *text)?,
            (Format::Table, Some(file)) => {
                writeln!(
                    out,
                    "wrote {file}: whoever has it lets machines join; to end that: cairnctl ticket revoke {id}"
                )?;
            }
            (Format::Json, _) => screen::json(
                out,
                &IssuedOut {
                    ticket_id: id.to_string(),
                    ticket: file.is_none().then_some(text.as_str()),
                    file,
                    uses: self.uses,
                    not_after_unix_s: ticket.not_after,
                },
            )?,
        }
        Ok(())
    }

    /// Has a coordinator issue it.
    pub(crate) async fn issue(&self, session: &mut Session, coordinator: &Meant) -> Result<Issued, Failure> {
        let pins = coordinator.pins().expect("a session is opened with a machine that is pinned");
        // By the machine's clock: it decides when the ticket ends.
        let now = session.status().await?.now;
        let seed = Secret::fill(|bytes| rand::fill(bytes).map_err(|_| TicketError::Random))?;
        let key = SigningKey::from_seed(seed);
        let offer = self.offer(&key, now);
        let not_after = offer.not_after.0;
        let issued = session.issue_ticket(offer).await?;
        let coordinators = Endpoint::read_all(&issued.coordinators).map_err(TicketError::from)?;
        if coordinators.is_empty() {
            return Err(TicketError::Nowhere.into());
        }
        let (cluster, ca_spki) = (pins.cluster, pins.authority.0);
        let machine = self.machine_key;
        let ticket = Ticket { cluster, ca_spki, coordinator_public_endpoints: coordinators, key, not_after, machine };
        Ok(Issued { id: issued.id, ticket })
    }

    fn offer(&self, key: &SigningKey, now: UnixMillis) -> Offer {
        Offer {
            key: model::TicketPubKey(key.public()),
            uses: self.uses,
            not_after: UnixSeconds((now.0 / 1000).saturating_add(self.lasts.as_secs())),
            role: self.role,
            kubernetes: self.kubernetes.iter().copied().collect(),
            machine: self.machine_key,
            node_name: self.node_name.clone(),
        }
    }
}

/// Writes a ticket into its file. Where that fails the ticket is taken back: nobody has its text.
async fn keep(file: Begun<'_>, text: &str, id: TicketId, session: &mut Session) -> Result<(), Failure> {
    let Err(error) = file.write(Zeroizing::new(format!("{text}\n")).as_bytes()) else { return Ok(()) };
    let left = match session.revoke_ticket(id).await {
        Ok(()) => format!("ticket {id} was issued and is revoked again"),
        Err(why) => format!("ticket {id} was issued; nobody has its text, and it could not be revoked ({why})"),
    };
    Err(Failure::from(error).leaving(left))
}

async fn list(context: &Context, out: &mut dyn Write) -> Result<(), Failure> {
    let (mut session, _) = context.open_coordinator().await?;
    let listed = session.tickets().await?;
    let now = session.status().await?.now;
    match context.format {
        Format::Json => screen::json(
            out,
            &TicketsOut {
                old_since_unix_ms: listed.old_since.map(|at| at.0),
                tickets: listed.rows.iter().map(|ticket| ticket_out(ticket, now)).collect(),
            },
        )?,
        Format::Table => {
            table(&listed, now).print(out)?;
            super::old(listed.old_since, now, out)?;
        }
    }
    Ok(())
}

/// State of a ticket in a word: whether it still admits machines, else why not.
fn state(ticket: &ListedTicket, now: UnixMillis) -> &'static str {
    match ticket.revoked {
        Revocation::At(_) => "revoked",
        Revocation::No if ticket.used >= ticket.uses => "used up",
        Revocation::No if ticket.not_after.0 <= now.0 / 1000 => "expired",
        Revocation::No => "admits",
    }
}

fn table(listed: &ListPage<ListedTicket>, now: UnixMillis) -> Table<7> {
    let mut table = Table::new(["TICKET", "STATE", "USED", "ENDS IN", "ROLE", "KUBERNETES", "FOR"]);
    for ticket in &listed.rows {
        let left = (ticket.not_after.0.saturating_mul(1000)).saturating_sub(now.0);
        table.row([
            ticket.id.to_string(),
            state(ticket, now).to_owned(),
            format!("{} of {}", ticket.used, ticket.uses),
            if left == 0 { "-".to_owned() } else { screen::span(left) },
            ticket.role.to_string(),
            super::roles(&ticket.kubernetes),
            machine(ticket),
        ]);
    }
    table
}

/// The one machine that the ticket admits: by its name, and by the first digits of its key.
fn machine(ticket: &ListedTicket) -> String {
    let key = ticket.machine.map(|key| format!("key {:.8}", key.to_string()));
    let named: Vec<_> = ticket.node_name.clone().into_iter().chain(key).collect();
    if named.is_empty() { "-".to_owned() } else { named.join(", ") }
}

fn ticket_out(ticket: &ListedTicket, now: UnixMillis) -> TicketOut {
    TicketOut {
        ticket_id: ticket.id.to_string(),
        state: state(ticket, now),
        uses: ticket.uses,
        used: ticket.used,
        not_after_unix_s: ticket.not_after.0,
        role: ticket.role.to_string(),
        kubernetes_roles: ticket.kubernetes.iter().map(ToString::to_string).collect(),
        machine_key: ticket.machine.map(|key| key.to_string()),
        node_name: ticket.node_name.clone(),
        issued_at_unix_s: ticket.issued_at.0,
        revoked_at_unix_s: match ticket.revoked {
            Revocation::No => None,
            Revocation::At(at) => Some(at.0),
        },
    }
}

fn role() -> impl TypedValueParser<Value = ClusterRole> {
    PossibleValuesParser::new(ClusterRole::ALL.iter().map(|role| role.word()))
        .map(|word| ClusterRole::from_word(&word).unwrap_or(ClusterRole::Node))
}

fn kubernetes() -> impl TypedValueParser<Value = KubernetesRole> {
    PossibleValuesParser::new(KubernetesRole::ALL.iter().map(|role| role.word()))
        .map(|word| KubernetesRole::from_word(&word).unwrap_or(KubernetesRole::Worker))
}

fn node_name(text: &str) -> Result<NodeName, BadNodeName> {
    NodeName::chosen(text)
}

fn machine_key(text: &str) -> Result<MachinePubKey, String> {
    text.parse().map_err(|_| "a machine's key is 64 hex digits".to_owned())
}

fn ticket_id(text: &str) -> Result<TicketId, String> {
    text.parse().map_err(|_| "a ticket's id is 32 hex digits".to_owned())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;
    use std::path::Path;

    use clap::Parser;

    use super::*;
    use crate::context::home;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        issue: Issue,
    }

    fn asked(line: &[&str]) -> Issue {
        Line::try_parse_from([&["x"], line].concat()).unwrap().issue
    }

    fn names(root: &Path) -> Vec<String> {
        let names = fs::read_dir(root).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<_> = names.collect();
        names.sort();
        names
    }

    /// Proves: Q6 S2
    #[tokio::test]
    async fn a_ticket_in_a_file_is_its_owners_alone() {
        let (root, context, coordinator) = home::with_a_coordinator().await;
        let (file, mut out) = (root.path().join("ticket"), Vec::new());
        let issue = asked(&["--out", file.to_str().unwrap()]);
        issue.run(&context, &mut out).await.unwrap();
        let text = fs::read_to_string(&file).unwrap();
        let (ticket, said) = (Ticket::from_text(&text).unwrap(), String::from_utf8(out).unwrap());
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(said.contains(&ticket.id().to_string()) && !said.contains(text.trim()), "{said}");
        let taken = issue.run(&context, &mut Vec::new()).await.unwrap_err();
        assert_eq!((taken.code(), fs::read_to_string(&file).unwrap()), (Code::Usage, text));
        let nowhere = asked(&["--out", root.path().join("no/ticket").to_str().unwrap()]);
        assert_eq!(nowhere.run(&context, &mut Vec::new()).await.unwrap_err().code(), Code::NotFound);
        assert_eq!(coordinator.calls().iter().filter(|call| **call == "IssueTicket").count(), 1);
        assert_eq!(names(root.path()), ["cairn", "ticket"]);
    }

    /// Proves: Q6 S2
    #[tokio::test]
    async fn a_ticket_that_cannot_be_written_is_taken_back() {
        let (root, context, coordinator) = home::with_a_coordinator().await;
        let (mut session, _) = context.open_coordinator().await.unwrap();
        let issue = asked(&["--out", root.path().join("ticket").to_str().unwrap()]);
        let file = issue.file.as_ref().unwrap().begin().unwrap();
        fs::write(root.path().join("ticket"), "mine").unwrap();
        let failed = keep(file, "text", TicketId([7; 16]), &mut session).await.unwrap_err();
        assert_eq!((failed.code(), coordinator.calls().last()), (Code::Usage, Some(&"RevokeTicket")));
        assert_eq!(fs::read_to_string(root.path().join("ticket")).unwrap(), "mine");
        let mut said = Vec::new();
        failed.print(&mut said).unwrap();
        let said = String::from_utf8(said).unwrap();
        let left = format!("\n  ticket {} was issued; nobody has its text", TicketId([7; 16]));
        assert!(said.contains(&left), "{said}");
    }

    /// Proves: Q6
    #[tokio::test]
    async fn more_machines_than_a_hundred_are_asked_for_twice() {
        let (_root, context, coordinator) = home::with_a_coordinator().await;
        let refused = asked(&["--uses", "101"]).run(&context, &mut Vec::new()).await.unwrap_err();
        assert_eq!((refused.code(), coordinator.calls()), (Code::Usage, vec![]));
        assert!(refused.next().unwrap().contains("--yes"));
        for line in [&["--uses", "100"][..], &["--uses", "101", "--yes"]] {
            asked(line).run(&context, &mut Vec::new()).await.unwrap();
        }
    }

    fn ticket(used: u32, not_after: u64, revoked: Revocation) -> ListedTicket {
        ListedTicket {
            id: TicketId([1; 16]),
            uses: 2,
            used,
            not_after: UnixSeconds(not_after),
            role: ClusterRole::Node,
            kubernetes: [KubernetesRole::Worker].into(),
            machine: None,
            node_name: None,
            issued_at: UnixSeconds(1),
            revoked,
        }
    }

    #[test]
    fn a_ticket_is_listed_with_what_it_still_does() {
        let now = UnixMillis(10_000);
        let revoked = Revocation::At(UnixSeconds(5));
        let rows = [
            ticket(0, 70, Revocation::No),
            ticket(2, 70, Revocation::No),
            ticket(1, 10, Revocation::No),
            ticket(0, 70, revoked),
        ];
        let states: Vec<_> = rows.iter().map(|row| state(row, now)).collect();
        assert_eq!(states, ["admits", "used up", "expired", "revoked"]);
        let mut text = Vec::new();
        table(&ListPage { old_since: None, rows: rows[..1].to_vec() }, now).print(&mut text).unwrap();
        let id = "01".repeat(16);
        let expected = format!(
            "TICKET                            STATE   USED    ENDS IN  ROLE  KUBERNETES  FOR\n\
             {id}  admits  0 of 2  1m00s    node  worker      -\n"
        );
        assert_eq!(String::from_utf8(text).unwrap(), expected);
        let named = ListedTicket { node_name: Some("m4".to_owned()), ..ticket(0, 70, Revocation::No) };
        assert_eq!(machine(&named), "m4");
        assert_eq!(machine(&ListedTicket { machine: Some(MachinePubKey([0xab; 32])), ..named }), "m4, key abababab");
    }

    /// Proves: S4
    #[tokio::test]
    async fn a_ticket_for_a_machine_names_it_to_both_sides() {
        let (_root, context, _coordinator) = home::with_a_coordinator().await;
        let key = "ab".repeat(32);
        let (mut session, meant) = context.open_coordinator().await.unwrap();
        let issued = asked(&["--machine-key", &key]).issue(&mut session, &meant).await.unwrap();
        assert_eq!(issued.ticket.machine, Some(MachinePubKey([0xab; 32])));
        let offer = asked(&["--machine-key", &key]).offer(&issued.ticket.key, UnixMillis(0));
        assert_eq!(offer.machine, issued.ticket.machine);
        let refused = Line::try_parse_from(["x", "--machine-key", &key[2..]]).unwrap_err().to_string();
        assert!(refused.contains("a machine's key is 64 hex digits"), "{refused}");
    }
}
