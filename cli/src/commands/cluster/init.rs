//! `cluster init`: a blank machine, elsewhere, creates a cluster and is its first machine. Its owner knows it by the secret of the
//! config that it is handed, as a machine whose config lay on its ESP.
//!
//! ```text
//!   meet ► config, record ► meet again, hand in the config ► first contact ► pins ► Running
//!              └────── fails: nothing is left ┘                  └─ late: it goes on by itself
//! ```

use std::io::Write;
use std::time::Duration;

use clap::Args;
use model::NodeName;

use crate::clock::Deadline;
use crate::commands::blank::{OnScreen, only_by_address};
use crate::commands::condition;
use crate::context::Context;
use crate::enrolment::{self, Becomes, Choices, Founding, StaticNetwork, Wanted};
use crate::failure::{Advice, Code as Exit, Failure, NOTHING};
use crate::length;
use crate::machine::{Blank, Way};
use crate::screen::{self, Progress};
use crate::store::{ClusterName, ClusterRecord, Locked};

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  cairnctl cluster init 192.0.2.10                     asks for the code
  cairnctl cluster init 192.0.2.10 --code-file code    without a terminal

A blank machine shows its address and its code, which is another one after each
start. The machine proves that it knows the code before anything of the config
is sent, and takes it only from who knows the code, too. Machines that are to
join it: cairnctl machine activate")]
pub(crate) struct Init {
    #[command(flatten)]
    machine: OnScreen,
    /// The cluster's name on this host [default: that of --cluster, else hardware]
    #[arg(long, value_name = "NAME")]
    name: Option<ClusterName>,
    /// The machine's host and node name; made from its id without it
    #[arg(long, value_name = "NAME", value_parser = enrolment::node_name)]
    node_name: Option<NodeName>,
    #[command(flatten)]
    choices: Choices,
    #[command(flatten)]
    founding: Founding,
    #[command(flatten)]
    network: StaticNetwork,
    /// How long to wait until it runs
    #[arg(long, value_name = "TIME", default_value = "5m", value_parser = length::parse)]
    timeout: Duration,
}

/// A machine was named to go through, and none can carry bytes to the first of a cluster.
#[derive(Debug, thiserror::Error)]
#[error("the first machine of a cluster is reached at its own address: there is no machine to go through")]
pub(crate) struct Through;

impl Advice for Through {
    fn code(&self) -> Exit {
        Exit::Usage
    }

    fn unchanged(&self) -> &'static str {
        NOTHING
    }

    fn next(&self) -> Option<String> {
        Some("leave out --through".to_owned())
    }
}

impl Init {
    pub(super) const fn name(&self) -> Option<&ClusterName> {
        self.name.as_ref()
    }

    /// A new cluster whose first machine has its config; or nothing.
    async fn found(&self, name: &ClusterName, context: &Context, progress: &mut Progress) -> Result<(), Failure> {
        let (code, at, store) = (self.machine.code()?, &self.machine.at, &context.store);
        progress.show(&format!("{at}: does it know its code?"));
        drop(Blank::meet(at, &Way::Direct, &code).await?);
        progress.done(&format!("{at}: blank, and knows its code"));
        let lock = store.lock(name)?;
        store.free(name, &lock)?;
        let made = async {
            let config = self.config(name, context, &lock)?;
            progress.show(&format!("{at}: hand in its config"));
            match Blank::meet(at, &Way::Direct, &code).await?.hand_in(config).await {
                Ok(()) => progress.done(&format!("{at}: took its config")),
                // Then first contact will tell.
                Err(error) if error.is_open() => {
                    progress.done(&format!("whether it took its config is not known yet ({error})"));
                }
                Err(error) => return Err(error.into()),
            }
            Ok::<_, Failure>(())
        };
        if let Err(failure) = made.await {
            return Err(match store.remove(name, &lock) {
                Ok(()) => failure,
                Err(why) => {
                    let left = format!("what was made of cluster `{name}` is still there ({why})");
                    failure.leaving(left).going_on(format!("cairnctl cluster destroy {name}"))
                }
            });
        }
        Ok(())
    }

    /// Config of the machine, which this host awaits from now on. The record is written before the config is sent:
    /// whatever happens from here on, its owner can meet the machine.
    fn config(
        &self,
        name: &ClusterName,
        context: &Context,
        lock: &Locked,
    ) -> Result<zeroize::Zeroizing<Vec<u8>>, Failure> {
        let Self { machine: OnScreen { at, .. }, node_name, choices, founding, network, .. } = self;
        let store = &context.store;
        store.begin(name, lock)?;
        let secret = store.begin_first_machine(name, &ClusterRecord::first_name(), lock)?;
        let becomes = Becomes::First(founding, secret);
        let wanted = Wanted { choices, node: node_name.as_ref(), network: Some(network), at: at.outside(), becomes };
        let signed = enrolment::sign(wanted, &store.owner_or_new()?)?;
        let mut record = ClusterRecord::of_config(name.clone(), signed.digest);
        record.machines_mut()[0].address = Some(at.to_string());
        store.save(&record, lock)?;
        Ok(signed.bytes)
    }
}

pub(super) async fn run(arguments: &Init, context: &Context, out: &mut dyn Write) -> Result<(), Failure> {
    only_by_address(context)?;
    if context.through.is_some() {
        return Err(Through.into());
    }
    let name = context.new_name("hardware")?;
    let mut progress = Progress::start();
    arguments.found(&name, context, &mut progress).await?;
    let deadline = Deadline::after(arguments.timeout);
    let runs = condition::until_true(&context.about_cluster(&name), "Running", &deadline, &mut progress).await;
    runs.map_err(|failure| {
        let left = format!("the machine was activated, goes on by itself, and is awaited as cluster `{name}`");
        failure.leaving(left).going_on(format!("its screen says what it waits for; cairnctl -c {name} machine status"))
    })?;
    progress.done("runs");
    drop(progress);
    Ok(screen::did(context.format, out, &format!("cluster `{name}` is created\n  cairnctl -c {name} machine status"))?)
}
