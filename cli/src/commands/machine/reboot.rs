//! `machine reboot`: and, if asked, wait for the next boot. A boot is told from the one before by its id alone.

use std::io::Write;
use std::time::Duration;

use clap::Args;
use model::MachineState;
use tokio::time::sleep;

use crate::clock::{ASK_AGAIN, Deadline};
use crate::context::Context;
use crate::failure::{Advice, Code, Failure};
use crate::length;
use crate::screen::{self, Progress};

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Wait until the next boot runs
    #[arg(long)]
    wait: bool,
    /// How long to wait
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = length::parse, requires = "wait")]
    timeout: Duration,
}

/// State after the machine was told to reboot, whatever goes wrong with the waiting.
const TOLD: &str = "the machine was told to reboot, and goes on by itself";

/// The machine did not come back.
#[derive(Debug, thiserror::Error)]
#[error("the machine does not run again after {} s: {last}", after.as_secs())]
pub(crate) struct RebootTimeout {
    after: Duration,
    last: String,
}

impl Advice for RebootTimeout {
    fn code(&self) -> Code {
        Code::Timeout
    }

    fn unchanged(&self) -> &'static str {
        TOLD
    }

    fn next(&self) -> Option<String> {
        Some("look at its screen, or: cairnctl machine status".to_owned())
    }
}

pub(crate) async fn run(arguments: &Arguments, context: &Context, out: &mut dyn Write) -> Result<(), Failure> {
    let (mut session, meant) = context.open().await?;
    let before = session.status().await?.boot_id;
    session.reboot().await?;
    let did = if arguments.wait {
        let back = next_boot(context, &before, &Deadline::after(arguments.timeout)).await;
        back.map_err(|failure| failure.leaving(TOLD))?;
        "has rebooted and runs"
    } else {
        "reboots"
    };
    Ok(screen::did(context.format, out, &format!("{} {did}", meant.called()))?)
}

async fn next_boot(context: &Context, before: &str, deadline: &Deadline) -> Result<(), Failure> {
    let mut progress = Progress::start();
    loop {
        let not_back = |last| RebootTimeout { after: deadline.length(), last };
        let opened = context.open_until(deadline, |error| progress.show(&error.to_string())).await;
        let mut session = match opened {
            Ok((session, _)) => session,
            Err(error) if error.may_pass() => return Err(not_back(error.to_string()).into()),
            Err(error) => return Err(error.into()),
        };
        let last = match session.status().await {
            Ok(status) if status.boot_id != before && status.state == MachineState::Running => return Ok(()),
            Ok(status) if status.boot_id == before => "it goes down".to_owned(),
            Ok(status) => format!("{}: {}", status.state, status.step),
            Err(error) if error.may_pass() => error.to_string(),
            Err(error) => return Err(error.into()),
        };
        progress.show(&last);
        if deadline.left().is_none() {
            return Err(not_back(last).into());
        }
        sleep(ASK_AGAIN).await;
    }
}
