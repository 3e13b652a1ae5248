//! `condition list` and `condition wait`.

use std::io::Write;
use std::time::Duration;

use api::{Condition, Truth};
use clap::{Args, Subcommand};
use clap_complete::engine::ArgValueCandidates;
use serde::Serialize;
use tokio::time::timeout;
use tokio_stream::StreamExt;

use crate::clock::Deadline;
use crate::complete;
use crate::context::Context;
use crate::failure::{Advice, Code, Failure};
use crate::length;
use crate::machine::CallError;
use crate::screen::{self, Format, Progress, Table};

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Show every condition of the machine
    List,
    /// Wait until a condition holds
    #[command(
        after_help = "Examples:\n  cairnctl condition wait NodeReady\n  cairnctl condition wait EtcdReady --timeout 90s"
    )]
    Wait(Wait),
}

#[derive(Debug, Args)]
pub(crate) struct Wait {
    /// Name of the condition, as `condition list` shows it
    #[arg(add = ArgValueCandidates::new(complete::conditions))]
    name: String,
    /// How long to wait: 90s, 10m, 1h30m
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = length::parse)]
    timeout: Duration,
}

/// A condition as it is written for programs.
#[derive(Debug, Serialize)]
pub(crate) struct ConditionOut {
    name: String,
    status: String,
    reason: String,
    since_unix_ms: u64,
}

impl From<&Condition> for ConditionOut {
    fn from(condition: &Condition) -> Self {
        Self {
            name: condition.name.clone(),
            status: condition.truth.to_string(),
            reason: condition.reason.clone(),
            since_unix_ms: condition.since.0,
        }
    }
}

/// The condition did not hold in time.
#[derive(Debug, thiserror::Error)]
#[error("`{name}` does not hold after {} s{}", after.as_secs(), last.as_ref().map(|last| format!(": {last}")).unwrap_or_default())]
pub(crate) struct StillWaiting {
    name: String,
    after: Duration,
    last: Option<String>,
}

impl Advice for StillWaiting {
    fn code(&self) -> Code {
        Code::Timeout
    }

    fn unchanged(&self) -> &'static str {
        "waiting has changed nothing"
    }

    fn next(&self) -> Option<String> {
        Some("see what it waits for: cairnctl machine status".to_owned())
    }
}

pub(crate) async fn run(command: &Command, context: &Context, out: &mut dyn Write) -> Result<(), Failure> {
    match command {
        Command::List => {
            let (mut session, _) = context.open().await?;
            let conditions = session.conditions().await?;
            match context.format {
                Format::Json => {
                    screen::json(out, &conditions.iter().map(ConditionOut::from).collect::<Vec<_>>())?;
                }
                Format::Table => table(&conditions).print(out)?,
            }
            Ok(())
        }
        Command::Wait(wait) => {
            let deadline = Deadline::after(wait.timeout);
            let condition = until_true(context, &wait.name, &deadline, &mut Progress::start()).await?;
            match context.format {
                Format::Json => screen::json(out, &ConditionOut::from(&condition))?,
                Format::Table => screen::did(context.format, out, &format!("{} holds", wait.name))?,
            }
            Ok(())
        }
    }
}

/// Conditions under a heading.
pub(crate) fn table(conditions: &[Condition]) -> Table<4> {
    let mut table = Table::new(["CONDITION", "STATUS", "SINCE", "REASON"]);
    for condition in conditions {
        table.row([
            condition.name.clone(),
            condition.truth.to_string(),
            screen::instant(condition.since.0),
            condition.reason.clone(),
        ]);
    }
    table
}

/// Waits for a condition through reboots and lost connections.
pub(crate) async fn until_true(
    context: &Context,
    name: &str,
    deadline: &Deadline,
    progress: &mut Progress,
) -> Result<Condition, Failure> {
    let mut last = None;
    let waited = async {
        loop {
            let opened = context.open_until(deadline, |error| progress.show(&error.to_string())).await;
            let mut session = match opened {
                Ok((session, _)) => session,
                Err(error) if error.may_pass() => {
                    last = Some(error.to_string());
                    return Ok(None);
                }
                Err(error) => return Err(Failure::from(error)),
            };
            match watch(&mut session, name, progress, &mut last).await {
                Ok(condition) => return Ok(Some(condition)),
                // The machine reboots or the connection broke: the same question, to the next session.
                Err(CallError::Gone { .. }) => {}
                Err(other) => return Err(Failure::from(other)),
            }
        }
    };
    let left = deadline.left().unwrap_or_default();
    match timeout(left, waited).await.unwrap_or(Ok(None))? {
        Some(condition) => Ok(condition),
        None => Err(StillWaiting { name: name.to_owned(), after: deadline.length(), last }.into()),
    }
}

async fn watch(
    session: &mut crate::machine::Session,
    name: &str,
    progress: &mut Progress,
    last: &mut Option<String>,
) -> Result<Condition, CallError> {
    let mut changes = session.wait_condition(name).await?;
    while let Some(condition) = changes.next().await {
        let condition = condition?;
        if condition.truth == Truth::True {
            return Ok(condition);
        }
        let reason = if condition.reason.is_empty() { condition.truth.to_string() } else { condition.reason };
        progress.show(&format!("waiting for {name}: {reason}"));
        *last = Some(reason);
    }
    Err(CallError::Gone { method: "WaitCondition", message: "the stream ended before the condition held".to_owned() })
}
