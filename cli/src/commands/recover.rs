//! `recover`: the owner opens the machines of a cluster that wait for their keys, each by the recovery record that it shows.
//!
//! ```text
//!   each machine: AwaitingKeys? ─► its record ─ of this machine, disk and cluster? ─► opened ─► the half ─► it goes on by itself
//! ```

use std::io::Write;

use api::{KeyGiven, Recovery};
use clap::Args;
use keys::data_key::{ClusterHalf, Holder};
use keys::record::{Asked, NotGiven, Record, RecordError};
use model::MachineState;
use serde::Serialize;

use super::Context;
use crate::failure::{Advice, Code, Failure, NOTHING};
use crate::machine::Session;
use crate::screen::{self, Format, Table};
use crate::store::{Owner, Pins};

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  cairnctl recover --dry-run     which machines wait for their keys
  cairnctl recover               open them all
  cairnctl -m m2 recover         only this one

A machine waits so when it starts and nobody else gives it its key: no
coordinator runs and the policy is manual, its share is lost, or too few
coordinators are left. What opens it is owner.keys; a key that is not its own is
refused, and the machine waits on.")]
pub(crate) struct Arguments {
    /// Only say which machines wait, and whether this owner can open them
    #[arg(long)]
    dry_run: bool,
}

/// Why a machine that waits is not opened.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RecoverError {
    /// Its ESP was lost, or replaced.
    #[error("the machine has no recovery record any more")]
    NoRecord,
    /// Bytes that are none.
    #[error("read the machine's recovery record")]
    Record(#[from] RecordError),
    /// Not for us, or not its own.
    #[error("open the machine's recovery record")]
    Open(#[from] NotGiven),
}

impl Advice for RecoverError {
    fn code(&self) -> Code {
        match self {
            Self::NoRecord => Code::NotFound,
            Self::Record(_) => Code::Failed,
            Self::Open(_) => Code::Refused,
        }
    }

    fn unchanged(&self) -> &'static str {
        NOTHING
    }

    fn next(&self) -> Option<String> {
        Some(match self {
            Self::NoRecord | Self::Record(_) => "put back the ESP that belongs to the machine's disk".to_owned(),
            Self::Open(_) => "put back the owner.keys that the cluster was made with".to_owned(),
        })
    }
}

#[derive(Debug, Serialize)]
struct RecoverOut {
    dry_run: bool,
    recovered: usize,
    machines: Vec<MachineOut>,
}

#[derive(Debug, Serialize)]
struct MachineOut {
    name: String,
    /// Absent where it does not answer.
    state: Option<String>,
    outcome: &'static str,
}

/// What became of a machine.
enum Outcome {
    /// It waits for no key.
    NotNeeded(MachineState),
    /// It was given its key, or could be.
    Opened,
    /// It waits, and is not opened.
    Refused(Failure),
    /// It does not answer.
    Silent(Failure),
}

pub(crate) async fn run(arguments: &Arguments, context: &Context, out: &mut dyn Write) -> Result<(), Failure> {
    let Arguments { dry_run } = *arguments;
    let owner = context.store.owner()?;
    let mut outcomes = Vec::new();
    for (name, context) in machines(context)? {
        outcomes.push((name, recover(&context, &owner, dry_run).await));
    }
    print(context.format, &outcomes, dry_run, out)?;
    let opened = opened(&outcomes);
    let failed = outcomes.into_iter().find_map(|(name, outcome)| match outcome {
        Outcome::Refused(failure) | Outcome::Silent(failure) => Some((name, failure)),
        Outcome::NotNeeded(_) | Outcome::Opened => None,
    });
    match failed {
        Some((name, failure)) => Err(failure.leaving(left(&name, opened, dry_run))),
        None => Ok(()),
    }
}

/// The one that is named, else all of the cluster.
fn machines(context: &Context) -> Result<Vec<(String, Context)>, Failure> {
    if context.machine.is_some() || context.address.is_some() {
        let meant = context.meant()?;
        let (cluster, machine) = (&meant.record.name, meant.name());
        let about = Context { address: context.address.clone(), ..context.about(cluster, machine) };
        return Ok(vec![(machine.as_str().to_owned(), about)]);
    }
    let record = context.cluster()?;
    let about = |name| context.about(&record.name, name);
    let machines = record.machines().iter().map(|machine| (machine.name.as_str().to_owned(), about(&machine.name)));
    Ok(machines.collect())
}

async fn recover(context: &Context, owner: &Owner, dry_run: bool) -> Outcome {
    let (mut session, meant) = match context.open().await {
        Ok(opened) => opened,
        Err(error) => return Outcome::Silent(error.into()),
    };
    let state = match session.status().await {
        Ok(status) => status.state,
        Err(error) => return Outcome::Silent(error.into()),
    };
    if state != MachineState::AwaitingKeys {
        return Outcome::NotNeeded(state);
    }
    let pins = meant.pins().expect("a session is opened with a machine that is pinned");
    match open(&mut session, &pins, owner, dry_run).await {
        Ok(()) => Outcome::Opened,
        Err(failure) => Outcome::Refused(failure),
    }
}

/// The machine has proved to be the pinned one before it shows anything; a record of another one is not opened.
async fn open(session: &mut Session, pins: &Pins, owner: &Owner, dry_run: bool) -> Result<(), Failure> {
    let Recovery { disk, generation, record } = session.recovery_record().await?;
    let record = Record::decode(&record.ok_or(RecoverError::NoRecord)?).map_err(RecoverError::Record)?;
    let asked = Asked { holder: Holder { cluster: pins.cluster, machine: pins.machine }, disk, generation };
    let half = owner.cluster_half(&record, &asked).map_err(RecoverError::Open)?;
    if !dry_run {
        let ClusterHalf { key, disk, generation, next: _none_in_a_record } = half;
        session.give_cluster_key(KeyGiven { disk, generation, key }).await?;
    }
    Ok(())
}

fn opened(outcomes: &[(String, Outcome)]) -> usize {
    outcomes.iter().filter(|(_, outcome)| matches!(outcome, Outcome::Opened)).count()
}

fn left(name: &str, opened: usize, dry_run: bool) -> String {
    match (dry_run, opened) {
        (true, _) => format!("{name} is as it was, and so are all others: it was asked only"),
        (false, 0) => format!("{name} is as it was, and so are all others"),
        (false, opened) => format!("{name} is as it was; {opened} other(s) went on"),
    }
}

fn print(
    format: Format,
    outcomes: &[(String, Outcome)],
    dry_run: bool,
    out: &mut dyn Write,
) -> Result<(), std::io::Error> {
    let recovered = opened(outcomes);
    let state = |outcome: &Outcome| match outcome {
        Outcome::NotNeeded(state) => Some(state.to_string()),
        Outcome::Opened | Outcome::Refused(_) => Some(MachineState::AwaitingKeys.to_string()),
        Outcome::Silent(_) => None,
    };
    let word = |outcome: &Outcome| match (outcome, dry_run) {
        (Outcome::NotNeeded(_), _) => "not needed",
        (Outcome::Opened, true) => "can be recovered",
        (Outcome::Opened, false) => "recovered",
        (Outcome::Refused(_), _) => "refused",
        (Outcome::Silent(_), _) => "no answer",
    };
    let rows = outcomes.iter().map(|(name, outcome)| (name.clone(), state(outcome), word(outcome)));
    match format {
        Format::Json => {
            let machines = rows.map(|(name, state, outcome)| MachineOut { name, state, outcome }).collect();
            screen::json(out, &RecoverOut { dry_run, recovered, machines })
        }
        Format::Table => {
            let mut table = Table::new(["MACHINE", "STATE WAS", "OUTCOME"]);
            for (name, state, outcome) in rows {
                table.row([name, state.unwrap_or_else(|| "-".to_owned()), outcome.to_owned()]);
            }
            table.print(out)?;
            writeln!(out, "\n{}", count(recovered, dry_run))
        }
    }
}

fn count(recovered: usize, dry_run: bool) -> String {
    let machines = if recovered == 1 { "machine" } else { "machines" };
    match (recovered, dry_run) {
        (0, _) => "none needed".to_owned(),
        (_, true) => format!("{recovered} {machines} can be recovered; nothing was done"),
        (_, false) => {
            format!("{recovered} {machines} recovered: what was given opens their data, and they go on by themselves")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Proves: K6
    #[test]
    fn what_was_done_is_counted_and_done_twice_it_says_that_none_was_needed() {
        let refused = || Outcome::Refused(Failure::from(RecoverError::NoRecord));
        let printed = |outcomes: Vec<(String, Outcome)>, dry_run| {
            let mut text = Vec::new();
            print(Format::Table, &outcomes, dry_run, &mut text).unwrap();
            String::from_utf8(text).unwrap()
        };
        let both = || vec![("m1".to_owned(), Outcome::Opened), ("m2".to_owned(), Outcome::Opened)];
        assert_eq!(
            printed(both(), false),
            "MACHINE  STATE WAS     OUTCOME\n\
             m1       AwaitingKeys  recovered\n\
             m2       AwaitingKeys  recovered\n\
             \n\
             2 machines recovered: what was given opens their data, and they go on by themselves\n"
        );
        assert!(printed(both(), true).ends_with("\n2 machines can be recovered; nothing was done\n"));
        let again = vec![("m1".to_owned(), Outcome::NotNeeded(MachineState::Running)), ("m2".to_owned(), refused())];
        let again = printed(again, false);
        assert!(again.ends_with("m2       AwaitingKeys  refused\n\nnone needed\n"), "{again}");
        assert!(again.contains("m1       Running       not needed\n"), "{again}");
    }
}
