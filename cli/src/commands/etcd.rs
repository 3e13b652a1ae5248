//! `etcd …`: how the members of etcd are, which keeps the cluster's records and Kubernetes' objects, the defragmentation of their
//! backends, and snapshots of these objects.

mod snapshot;

use std::collections::BTreeSet;
use std::io::Write;

use api::{DefragmentStep, ListedEtcd};
use clap::{Args, Subcommand};
use cluster::backends::{EtcdAlarm, MemberPart};
use model::MachineId;
use serde::Serialize;

use crate::context::Context;
use crate::failure::{Advice, Code, Failure, NOTHING};
use crate::machine::{Defragmentation, Session};
use crate::screen::{self, Format, Progress, Table};

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// The members of etcd: who leads, how large each is, and what is wrong
    Status,
    /// Give what is free in etcd's files back to the disk, member by member
    Defragment(Defragment),
    /// Write what Kubernetes keeps into a file
    Snapshot(snapshot::Snapshot),
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  cairnctl etcd defragment
  cairnctl etcd defragment --on m2,m3

A member answers nothing while it is defragmented, the leader is the last, and
nothing is done while one does not answer. Coordinators do so by themselves once
half of a file of over 64 MiB is free.

Where a file has reached its quota, etcd raises the alarm NOSPACE and takes no
more writes. Delete what is not needed, and wait ten minutes, until etcd has
forgotten it; then this command makes the files smaller, and disarms the alarm
once a fifth of the quota is free on all members.")]
pub(crate) struct Defragment {
    /// The coordinators, by their names; all that vote if not given
    #[arg(long, value_name = "MACHINES", value_delimiter = ',')]
    on: Vec<String>,
}

/// Why no member is defragmented.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DefragmentError {
    /// No member of etcd is on a machine of that name.
    #[error("no machine called {0} has a member of etcd")]
    Unknown(String),
}

impl Advice for DefragmentError {
    fn code(&self) -> Code {
        Code::NotFound
    }

    fn unchanged(&self) -> &'static str {
        NOTHING
    }

    fn next(&self) -> Option<String> {
        Some(SEE.to_owned())
    }
}

const SEE: &str = "see the members: cairnctl etcd status";
const FULL: &str = "NOSPACE: etcd takes no writes. Delete what is not needed, as by \
                    `cairnctl kubectl delete events -A --all`, and wait ten minutes; then: cairnctl etcd defragment";

#[derive(Debug, Serialize)]
struct MemberOut {
    machine_id: String,
    name: String,
    role: &'static str,
    /// Whether the member answers; absent below otherwise.
    answers: bool,
    revision: Option<u64>,
    bytes: Option<u64>,
    in_use_bytes: Option<u64>,
    quota_bytes: Option<u64>,
    version: Option<String>,
    alarms: Vec<&'static str>,
    errors: Vec<String>,
}

#[derive(Debug, Serialize)]
struct MembersOut {
    members: Vec<MemberOut>,
}

#[derive(Debug, Serialize)]
struct DefragmentedOut {
    name: String,
    bytes_before: u64,
    /// Absent: the member did not say.
    bytes: Option<u64>,
}

#[derive(Debug, Serialize)]
struct AllDefragmentedOut {
    defragmented: Vec<DefragmentedOut>,
    /// `disarmed` or `raised`; absent where the alarm was not raised.
    nospace: Option<&'static str>,
}

pub(crate) async fn run(command: &Command, context: &Context, out: &mut dyn Write) -> Result<(), Failure> {
    match command {
        Command::Status => status(context, out).await,
        Command::Defragment(arguments) => arguments.run(context, out).await,
        Command::Snapshot(arguments) => arguments.run(context, out).await,
    }
}

async fn status(context: &Context, out: &mut dyn Write) -> Result<(), Failure> {
    let (mut session, _) = context.open_coordinator().await?;
    let members = session.etcd_status().await?;
    match context.format {
        Format::Json => screen::json(out, &MembersOut { members: members.iter().map(shown).collect() })?,
        Format::Table => {
            table(&members).print(out)?;
            let is_full = |member: &ListedEtcd| alarms(member).any(|alarm| alarm == EtcdAlarm::NoSpace);
            if members.iter().any(is_full) {
                writeln!(out, "\n{FULL}")?;
            }
        }
    }
    Ok(())
}

fn table(members: &[ListedEtcd]) -> Table<8> {
    let mut table = Table::new(["NAME", "ROLE", "REVISION", "SIZE", "IN USE", "QUOTA", "VERSION", "WRONG"]);
    for member in members {
        let (name, role) = (member.name.to_string(), role(member.part).to_owned());
        let cells = match &member.answer {
            None => ["-", "-", "-", "-", "-", "does not answer"].map(str::to_owned),
            Some(answer) => {
                let [size, in_use, quota] =
                    [answer.backend.size, answer.backend.in_use, answer.backend.quota].map(screen::size);
                let wrong = alarms(member).map(|alarm| word(alarm).to_owned()).chain(answer.errors.iter().cloned());
                let wrong = wrong.collect::<Vec<_>>().join(", ");
                let wrong = if wrong.is_empty() { "-".to_owned() } else { wrong };
                [answer.revision.to_string(), size, in_use, quota, answer.version.clone(), wrong]
            }
        };
        let [revision, size, in_use, quota, version, wrong] = cells;
        table.row([name, role, revision, size, in_use, quota, version, wrong]);
    }
    table
}

fn shown(member: &ListedEtcd) -> MemberOut {
    let answer = member.answer.as_ref();
    MemberOut {
        machine_id: member.machine.to_string(),
        name: member.name.to_string(),
        role: role(member.part),
        answers: answer.is_some(),
        revision: answer.map(|answer| answer.revision),
        bytes: answer.map(|answer| answer.backend.size),
        in_use_bytes: answer.map(|answer| answer.backend.in_use),
        quota_bytes: answer.map(|answer| answer.backend.quota),
        version: answer.map(|answer| answer.version.clone()),
        alarms: alarms(member).map(word).collect(),
        errors: answer.map_or_else(Vec::new, |answer| answer.errors.clone()),
    }
}

fn alarms(member: &ListedEtcd) -> impl Iterator<Item = EtcdAlarm> {
    member.answer.iter().flat_map(|answer| answer.alarms.iter().copied())
}

const fn role(part: MemberPart) -> &'static str {
    match part {
        MemberPart::Leader => "leader",
        MemberPart::Voter => "voter",
        MemberPart::Learner => "learner",
    }
}

const fn word(alarm: EtcdAlarm) -> &'static str {
    match alarm {
        EtcdAlarm::NoSpace => "NOSPACE",
        EtcdAlarm::Corrupt => "CORRUPT",
    }
}

impl Defragment {
    async fn run(&self, context: &Context, out: &mut dyn Write) -> Result<(), Failure> {
        let (mut session, asked) = self.at_the_leader(context).await?;
        let mut steps = session.defragment_etcd(&asked).await.map_err(|error| Failure::from(error).going_on(SEE))?;
        let mut done = AllDefragmentedOut { defragmented: Vec::new(), nospace: None };
        if let Err(failure) = follow(&mut steps, &mut done, (context.format, &mut *out)).await {
            let names: Vec<_> = done.defragmented.iter().map(|member| member.name.as_str()).collect();
            let failure = failure.going_on(SEE);
            return Err(match names.as_slice() {
                [] => failure,
                names => failure.leaving(format!("defragmented: {}; the others were not", names.join(", "))),
            });
        }
        if context.format == Format::Json {
            screen::json(out, &done)?;
        }
        Ok(())
    }

    /// A session with the coordinator whose etcd leads, which alone defragments members; those that are named. Whoever says that it
    /// leads reaches it over the VPN, and this host may not.
    async fn at_the_leader(&self, context: &Context) -> Result<(Session, BTreeSet<MachineId>), Failure> {
        let (mut session, meant) = context.open_coordinator().await?;
        context.hear(&meant, &session.machines().await?.rows)?;
        let members = session.etcd_status().await?;
        let id = |name: &String| {
            let found = members.iter().find(|member| member.name.as_str() == name);
            found.map(|member| member.machine).ok_or_else(|| DefragmentError::Unknown(name.clone()))
        };
        let asked = self.on.iter().map(id).collect::<Result<_, _>>()?;
        let leader = members.iter().find(|member| member.part == MemberPart::Leader);
        let is_here = |leader: &&ListedEtcd| meant.pins().is_some_and(|pins| pins.machine == leader.machine);
        if let Some(leader) = leader.filter(|leader| !is_here(leader)) {
            let name = meant.record.name_here(leader.machine).unwrap_or(&leader.name);
            let through = Some(context.through.as_ref().unwrap_or(meant.name())).filter(|through| *through != name);
            let about = context.about(&meant.record.name, name);
            let led = Context { through: through.cloned(), address: context.address.clone(), ..about };
            session = led.open().await?.0;
        }
        Ok((session, asked))
    }
}

/// Shows each step, and keeps what was done.
async fn follow(
    steps: &mut Defragmentation,
    done: &mut AllDefragmentedOut,
    (format, out): (Format, &mut dyn Write),
) -> Result<(), Failure> {
    let (mut progress, mut before) = (Progress::start(), 0);
    while let Some(step) = steps.next().await? {
        let line = match step {
            DefragmentStep::Begin { name, bytes } => {
                before = bytes;
                progress.show(&format!("{name}: defragment {}", screen::size(bytes)));
                continue;
            }
            DefragmentStep::End { name, bytes } => {
                let now = bytes.map_or_else(|| "not known".to_owned(), screen::size);
                let line = format!("{name}: {} before, {now} now", screen::size(before));
                let name = name.to_string();
                done.defragmented.push(DefragmentedOut { name, bytes_before: before, bytes });
                line
            }
            DefragmentStep::Disarmed => {
                done.nospace = Some("disarmed");
                "the alarm NOSPACE is disarmed: etcd takes writes".to_owned()
            }
            DefragmentStep::StillFull => {
                done.nospace = Some("raised");
                format!("less than a fifth of the quota is free, so the alarm stays. {FULL}")
            }
        };
        if format == Format::Table {
            writeln!(out, "{line}")?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
