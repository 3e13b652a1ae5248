//! `cluster recover`: a cluster that has lost too many coordinators to decide anything goes on with what one of them has. First it
//! is said what that means; only `--yes` does it.

use std::io::Write;
use std::time::Duration;

use api::{OtherMember, RecoveryPlan};
use clap::Args;
use clap_complete::engine::ArgValueCandidates;
use model::NodeName;
use serde::Serialize;

use crate::clock::Deadline;
use crate::complete;
use crate::context::{Context, OpenError, machine_name};
use crate::failure::{Advice, Code, Failure};
use crate::length;
use crate::machine::Session;
use crate::screen::{self, Format, Progress, Table};

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  cairnctl cluster recover --from m3          what it would mean
  cairnctl cluster recover --from m3 --yes    do it

For when half of the coordinators that vote, or more, will not come back. While
they only are off, switch them on instead: nothing is lost then. What others
took and this machine has not heard of is lost. Of those that come back after
all none goes on by itself: they become nodes.

A machine that waits for its key is opened first: cairnctl recover.")]
pub(crate) struct Arguments {
    /// The coordinator whose copy of the cluster's records is to be the cluster's
    #[arg(long, value_name = "MACHINE", value_parser = machine_name, add = ArgValueCandidates::new(complete::machines))]
    from: NodeName,
    /// Do it
    #[arg(long, short)]
    yes: bool,
    /// How long it may take
    #[arg(long, value_name = "TIME", default_value = "5m", value_parser = length::parse)]
    timeout: Duration,
}

/// The cluster does not go on in time.
#[derive(Debug, thiserror::Error)]
#[error("the cluster does not go on after {} s: {last}", after.as_secs())]
pub(crate) struct RecoveryTimeout {
    from: NodeName,
    after: Duration,
    /// State of the cluster that was heard last, or the error in its place.
    last: String,
}

impl Advice for RecoveryTimeout {
    fn code(&self) -> Code {
        Code::Timeout
    }

    fn unchanged(&self) -> &'static str {
        "it was begun, and the machine goes on with it by itself, also after a restart"
    }

    fn next(&self) -> Option<String> {
        Some(format!("cairnctl -m {} machine logs --tail 50", self.from))
    }
}

#[derive(Debug, Serialize)]
struct RecoveryOut {
    from: String,
    silent_ms: u64,
    taken_out: Vec<TakenOut>,
    done: bool,
}

#[derive(Debug, Serialize)]
struct TakenOut {
    vpn_address: String,
    answers: bool,
}

pub(crate) async fn run(arguments: &Arguments, context: &Context, out: &mut dyn Write) -> Result<(), Failure> {
    let Arguments { from, yes, timeout } = arguments;
    let context = &Context { address: context.address.clone(), ..context.about(&context.cluster()?.name, from) };
    let (mut session, _) = context.open().await?;
    let plan = session.recover_cluster(*yes).await?;
    if *yes {
        goes_on(session, context, from, &Deadline::after(*timeout)).await?;
    }
    Ok(print(context.format, from, &plan, *yes, out)?)
}

/// Waits until the machine decides for the cluster again.
async fn goes_on(session: Session, context: &Context, from: &NodeName, deadline: &Deadline) -> Result<(), Failure> {
    let (mut progress, mut session, mut last) = (Progress::start(), Some(session), String::new());
    let looked = deadline.until(async || {
        match decides(&mut session, context).await {
            Ok(true) => return Ok(Some(())),
            Ok(false) => last = "the cluster's records are not kept up yet".to_owned(),
            Err(error) if error.may_pass() => (session, last) = (None, error.to_string()),
            Err(error) => return Err(error),
        }
        progress.show(&last);
        Ok(None)
    });
    match looked.await? {
        Some(()) => Ok(()),
        None => Err(RecoveryTimeout { from: from.clone(), after: deadline.length(), last }.into()),
    }
}

/// Whether what the machine lists is of now.
async fn decides(session: &mut Option<Session>, context: &Context) -> Result<bool, OpenError> {
    let session = match session {
        Some(session) => session,
        None => session.insert(context.open().await?.0),
    };
    Ok(session.machines().await?.old_since.is_none())
}

fn print(
    format: Format,
    from: &NodeName,
    plan: &RecoveryPlan,
    done: bool,
    out: &mut dyn Write,
) -> Result<(), std::io::Error> {
    if format == Format::Json {
        let taken_out = plan
            .others
            .iter()
            .map(|OtherMember { vpn_ip, answers }| TakenOut { vpn_address: vpn_ip.to_string(), answers: *answers });
        let silent_ms = screen::milliseconds(plan.silent);
        let taken_out = taken_out.collect();
        return screen::json(out, &RecoveryOut { from: from.to_string(), silent_ms, taken_out, done });
    }
    writeln!(out, "etcd of `{from}` has had no leader for {} s.", plan.silent.as_secs())?;
    let (goes, are) = if done { ("goes", "are") } else { ("would go", "would be") };
    writeln!(out, "The cluster {goes} on with what `{from}` has; these coordinators {are} taken out:\n")?;
    let mut table = Table::new(["COORDINATOR", "ANSWERS"]);
    for OtherMember { vpn_ip, answers } in &plan.others {
        table.row([vpn_ip.to_string(), if *answers { "yes" } else { "no" }.to_owned()]);
    }
    table.print(out)?;
    writeln!(out, "\nOne that comes back becomes a node: cairnctl machine role add NAME coordinator")?;
    if !done {
        writeln!(out, "nothing was done; to do it: cairnctl cluster recover --from {from} --yes")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Proves: K6
    #[test]
    fn what_it_means_is_said_before_it_is_done_and_after() {
        let other = |n, answers| OtherMember { vpn_ip: [10, 118, 0, n].into(), answers };
        let plan =
            RecoveryPlan { silent: Duration::from_millis(34_567), others: vec![other(2, false), other(3, true)] };
        let from = NodeName::chosen("m3").expect("a name");
        let printed = |done| {
            let mut text = Vec::new();
            print(Format::Table, &from, &plan, done, &mut text).unwrap();
            String::from_utf8(text).unwrap()
        };
        assert_eq!(
            printed(false),
            "etcd of `m3` has had no leader for 34 s.\n\
             The cluster would go on with what `m3` has; these coordinators would be taken out:\n\
             \n\
             COORDINATOR  ANSWERS\n\
             10.118.0.2   no\n\
             10.118.0.3   yes\n\
             \n\
             One that comes back becomes a node: cairnctl machine role add NAME coordinator\n\
             nothing was done; to do it: cairnctl cluster recover --from m3 --yes\n"
        );
        let done = printed(true);
        assert!(
            done.contains("The cluster goes on with what `m3` has") && !done.contains("nothing was done"),
            "{done}"
        );
    }

    /// Proves: K6
    #[test]
    fn where_it_takes_long_the_machine_itself_is_to_be_asked() {
        let (from, last) = (NodeName::chosen("m3").expect("a name"), String::new());
        let next = RecoveryTimeout { from, after: Duration::from_secs(300), last }.next().expect("something to do");
        assert!(next.starts_with("cairnctl -m m3 "), "the first machine may be among the lost: {next}");
        assert!(crate::args::parse(next.split(' ').map(Into::into)).is_ok(), "{next}");
    }
}
