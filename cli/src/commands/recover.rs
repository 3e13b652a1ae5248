//! `recover`: the owner opens the machines of a cluster that wait for their keys, each by the recovery record that it shows; or
//! gives them the cluster's directory, by which they find who opens them.
//!
//! ```text
//!   each machine: AwaitingKeys? ─► its record ─ of this machine, disk and cluster? ─► opened ─► the half ─► it goes on by itself
//! ```

use std::io::Write;

use api::{OwnerHalf, Recovery};
use clap::Args;
use keys::data_key::{ClusterHalf, Holder};
use keys::record::{HalfError, HalfRequest, Record, RecordError};
use model::MachineState;
use serde::Serialize;

use crate::context::Context;
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
  cairnctl -m m2 recover --directory
                                 tell it where the coordinators are by now,
                                 also while it runs

A machine waits so when it starts and nobody else gives it its key: no
coordinator runs and the policy is manual, its share is lost, or too few
coordinators are left. What opens it is owner.keys; a key that is not its own is
refused, and the machine waits on.

A machine that was off through two `cluster recover` refuses all that the
cluster says since, and asks coordinators that are gone. With --directory it is
given what a coordinator of now has signed, keeps that, and asks whom it names;
its key it then gets from them. One that runs is given it only if it is named:
its log says that a directory is not believed. What it had heard before is
forgotten, and its seal takes older directories again, down to this one, from
its next start on.")]
pub(crate) struct Arguments {
    /// Only say which machines wait, and whether this owner can open them
    #[arg(long)]
    dry_run: bool,
    /// Give machines that wait, or the one that is named, the cluster's directory instead: whom to ask
    #[arg(long)]
    directory: bool,
}

/// Kind of thing that machines that wait are given.
#[derive(Debug)]
enum Gift {
    /// Each the half of its key.
    Key,
    /// Where the coordinators are, as one of them has signed it; machines in these states.
    Directory(Vec<u8>, &'static [MachineState]),
}

impl Gift {
    /// Machines in these states are given it.
    const fn takers(&self) -> &'static [MachineState] {
        match self {
            Self::Key => &[MachineState::AwaitingKeys],
            Self::Directory(_, takers) => takers,
        }
    }
}

/// Why a machine that waits is not opened.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RecoverError {
    /// The machine's ESP was lost, or replaced.
    #[error("the machine has no recovery record any more")]
    NoRecord,
    /// Bytes that are none.
    #[error("read the machine's recovery record")]
    Record(#[from] RecordError),
    /// Not for us, or not its own.
    #[error("open the machine's recovery record")]
    Open(#[from] HalfError),
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

/// Outcome of the command for a machine.
enum Outcome {
    /// The machine waits for no key.
    NotNeeded(MachineState),
    /// The machine, which was so, was given what it lacks, or could be.
    Opened(MachineState),
    /// The machine, which was so, could not be given what it lacks.
    Refused(MachineState, Failure),
    /// The machine does not answer.
    Silent(Failure),
}

pub(crate) async fn run(arguments: &Arguments, context: &Context, out: &mut dyn Write) -> Result<(), Failure> {
    let Arguments { dry_run, directory } = *arguments;
    let owner = context.store.owner()?;
    let gift = if directory { directory_of_now(context).await? } else { Gift::Key };
    let mut outcomes = Vec::new();
    for (name, context) in machines(context)? {
        outcomes.push((name, recover(&context, &owner, &gift, dry_run).await));
    }
    print(context.format, &outcomes, (&gift, dry_run), out)?;
    let opened = opened(&outcomes);
    let failed = outcomes.into_iter().find_map(|(name, outcome)| match outcome {
        Outcome::Refused(_, failure) | Outcome::Silent(failure) => Some((name, failure)),
        Outcome::NotNeeded(_) | Outcome::Opened(_) => None,
    });
    match failed {
        Some((name, failure)) => Err(failure.leaving(left(&name, opened, dry_run))),
        None => Ok(()),
    }
}

/// As a coordinator has signed it. The directory of a machine that runs is its cluster's matter, unless its owner names that one.
async fn directory_of_now(context: &Context) -> Result<Gift, Failure> {
    let cluster = context.about_cluster(&context.cluster()?.name);
    let (mut session, _) = cluster.open_coordinator().await?;
    let takers: &[_] = if names_one(context) {
        &[MachineState::AwaitingKeys, MachineState::Running]
    } else {
        &[MachineState::AwaitingKeys]
    };
    Ok(Gift::Directory(session.directory().await?, takers))
}

const fn names_one(context: &Context) -> bool {
    context.machine.is_some() || context.address.is_some()
}

/// The one that is named, else all of the cluster.
fn machines(context: &Context) -> Result<Vec<(String, Context)>, Failure> {
    if names_one(context) {
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

async fn recover(context: &Context, owner: &Owner, gift: &Gift, dry_run: bool) -> Outcome {
    let (mut session, meant) = match context.open().await {
        Ok(opened) => opened,
        Err(error) => return Outcome::Silent(error.into()),
    };
    let state = match session.status().await {
        Ok(status) => status.state,
        Err(error) => return Outcome::Silent(error.into()),
    };
    if !gift.takers().contains(&state) {
        return Outcome::NotNeeded(state);
    }
    let pins = meant.pins().expect("a session is opened with a machine that is pinned");
    let given = match gift {
        Gift::Key => open(&mut session, &pins, owner, dry_run).await,
        Gift::Directory(..) if dry_run => Ok(()),
        Gift::Directory(signed, _) => session.give_directory(signed.clone()).await.map_err(Failure::from),
    };
    match given {
        Ok(()) => Outcome::Opened(state),
        Err(failure) => Outcome::Refused(state, failure),
    }
}

/// The machine has proved to be the pinned one before it shows anything; a record of another one is not opened.
async fn open(session: &mut Session, pins: &Pins, owner: &Owner, dry_run: bool) -> Result<(), Failure> {
    let Recovery { disk, generation, record } = session.recovery_record().await?;
    let record = Record::decode(&record.ok_or(RecoverError::NoRecord)?).map_err(RecoverError::Record)?;
    let asked = HalfRequest { holder: Holder { cluster: pins.cluster, machine: pins.machine }, disk, generation };
    let half = owner.cluster_half(&record, &asked).map_err(RecoverError::Open)?;
    if !dry_run {
        let ClusterHalf { key, disk, generation, next: _none_in_a_record } = half;
        session.give_cluster_key(OwnerHalf { disk, generation, key }).await?;
    }
    Ok(())
}

fn opened(outcomes: &[(String, Outcome)]) -> usize {
    outcomes.iter().filter(|(_, outcome)| matches!(outcome, Outcome::Opened(_))).count()
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
    (gift, dry_run): (&Gift, bool),
    out: &mut dyn Write,
) -> Result<(), std::io::Error> {
    let recovered = opened(outcomes);
    let state = |outcome: &Outcome| match outcome {
        Outcome::NotNeeded(state) | Outcome::Opened(state) | Outcome::Refused(state, _) => Some(state.to_string()),
        Outcome::Silent(_) => None,
    };
    let word = |outcome: &Outcome| match (outcome, gift, dry_run) {
        (Outcome::NotNeeded(_), _, _) => "not needed",
        (Outcome::Opened(_), Gift::Key, true) => "can be recovered",
        (Outcome::Opened(_), Gift::Key, false) => "recovered",
        (Outcome::Opened(_), Gift::Directory(..), true) => "can be told",
        (Outcome::Opened(_), Gift::Directory(..), false) => "told",
        (Outcome::Refused(..), _, _) => "refused",
        (Outcome::Silent(_), _, _) => "no answer",
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
            writeln!(out, "\n{}", count(recovered, gift, dry_run))
        }
    }
}

fn count(recovered: usize, gift: &Gift, dry_run: bool) -> String {
    let machines = if recovered == 1 { "machine" } else { "machines" };
    match (recovered, gift, dry_run) {
        (0, _, _) => "none needed".to_owned(),
        (_, Gift::Key, true) => format!("{recovered} {machines} can be recovered; nothing was done"),
        (_, Gift::Key, false) => {
            format!("{recovered} {machines} recovered: what was given opens their data, and they go on by themselves")
        }
        (_, Gift::Directory(..), true) => format!("{recovered} {machines} can be told; nothing was done"),
        (_, Gift::Directory(..), false) => {
            format!("{recovered} {machines} told where the coordinators are; see with `cairnctl machine status`")
        }
    }
}

#[cfg(test)]
mod tests {
    use model::{ConfigDigest, NodeName};

    use super::*;
    use crate::context::home;
    use crate::machine::fake::{Answer, DIRECTORY, Fake, Lie};
    use crate::store::{ClusterRecord, MachineRecord};

    /// A coordinator's word comes to the machine that waits, and to no other; a refusal by that machine is told.
    ///
    /// Proves: D11 K6
    #[tokio::test]
    async fn a_machine_that_waits_is_told_what_a_coordinator_has_signed() {
        let (_root, context, owner) = home::begun();
        let config = ConfigDigest([5; 32]);
        let answer = Answer::Proven { secret: context.awaits(), config, lie: Lie::None };
        let coordinator = Fake::start(1, owner.clone(), answer).await;
        let node = coordinator.node(2, owner).await;
        let mut record = ClusterRecord::of_config(home::name(), config);
        record.add(MachineRecord::joining(NodeName::stored("m2").unwrap()));
        for (machine, fake) in record.machines_mut().iter_mut().zip([&coordinator, &node]) {
            machine.address = Some(fake.address.to_string());
        }
        context.keep(&record);
        let row = api::ListedMachine { id: node.machine, ..home::member("m2", cluster::record::Standing::Member) };
        *coordinator.listed.lock().unwrap() = vec![row];
        let recovers = async |context: &Context, dry_run| {
            let mut text = Vec::new();
            let ended = run(&Arguments { dry_run, directory: true }, context, &mut text).await;
            (String::from_utf8(text).unwrap(), ended.map_err(|failure| failure.to_string()))
        };
        let given = || node.waits.lock().unwrap().clone();
        let (none, ended) = recovers(&context, false).await;
        assert!(none.ends_with("none needed\n") && ended.is_ok(), "{none} {ended:?}");
        assert!(!node.calls().contains(&"GiveDirectory"), "one that runs is given it only by its name");
        let named = context.about(&home::name(), &NodeName::stored("m2").unwrap());
        let (runs, ended) = recovers(&named, false).await;
        assert!(runs.contains("m2       Running    told\n") && ended.is_ok(), "{runs} {ended:?}");
        assert!(node.calls().contains(&"GiveDirectory"));
        *node.waits.lock().unwrap() = Some(vec![]);
        let (could, ended) = recovers(&context, true).await;
        assert!(could.ends_with("1 machine can be told; nothing was done\n") && ended.is_ok(), "{could} {ended:?}");
        assert_eq!(given(), Some(vec![]));
        *node.refuses.lock().unwrap() = true;
        let (refused, ended) = recovers(&context, false).await;
        assert!(refused.contains("m2       AwaitingKeys  refused\n"), "{refused}");
        assert!(ended.is_err_and(|why| why.contains("is not taken")), "what the machine says");
        *node.refuses.lock().unwrap() = false;
        for context in [&context, &named] {
            let (told, ended) = recovers(context, false).await;
            assert!(told.contains("m2       AwaitingKeys  told\n") && ended.is_ok(), "{told} {ended:?}");
        }
        assert_eq!(given(), Some(vec![DIRECTORY.to_vec(); 2]));
        assert!(!coordinator.calls().contains(&"GiveDirectory") && !node.calls().contains(&"GiveClusterKey"));
    }

    /// Proves: K6
    #[test]
    fn recovered_machines_are_counted_and_a_second_run_needs_none() {
        let refused = || Outcome::Refused(MachineState::AwaitingKeys, Failure::from(RecoverError::NoRecord));
        let printed = |outcomes: Vec<(String, Outcome)>, dry_run| {
            let mut text = Vec::new();
            print(Format::Table, &outcomes, (&Gift::Key, dry_run), &mut text).unwrap();
            String::from_utf8(text).unwrap()
        };
        let both = || ["m1", "m2"].map(|name| (name.to_owned(), Outcome::Opened(MachineState::AwaitingKeys))).into();
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
