//! `cluster destroy`: ends the virtual machines this program started and their network, then forgets keys and pins of the
//! cluster.

use std::io::{BufRead, IsTerminal, Write};

use clap::Args;
use clap_complete::engine::ArgValueCandidates;

use super::start;
use crate::commands::Context;
use crate::complete;
use crate::failure::{Advice, Code, Failure, NOTHING};
use crate::screen;
use crate::store::ClusterName;

#[derive(Debug, Args)]
#[command(after_help = "\
Of a virtual cluster all data is gone for good. Hardware is left as it is, but
this host cannot steer it any more. The owner's keys stay.")]
pub(crate) struct Arguments {
    /// The cluster, as by --cluster
    #[arg(value_name = "NAME", add = ArgValueCandidates::new(complete::clusters))]
    name: Option<ClusterName>,
    /// Do not ask
    #[arg(long, short)]
    yes: bool,
}

impl Arguments {
    pub(super) fn name(&self) -> Option<&ClusterName> {
        self.name.as_ref()
    }
}

/// It was not destroyed because nobody said so.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NotDestroyed {
    /// The only one there is, is not meant by that.
    #[error("no cluster is named")]
    NoName,
    /// Nobody can be asked.
    #[error("there is no terminal to ask on")]
    NoTerminal,
    /// The answer was another.
    #[error("`{0}` was not confirmed")]
    NotConfirmed(ClusterName),
    /// The question or its answer got lost.
    #[error("ask whether `{name}` is meant")]
    Ask { name: ClusterName, source: std::io::Error },
}

impl Advice for NotDestroyed {
    fn code(&self) -> Code {
        match self {
            Self::NoName | Self::NoTerminal | Self::NotConfirmed(_) => Code::Usage,
            Self::Ask { .. } => Code::Failed,
        }
    }

    fn unchanged(&self) -> &'static str {
        NOTHING
    }

    fn next(&self) -> Option<String> {
        match self {
            Self::NoName => Some("name it: cairnctl cluster destroy NAME; cairnctl cluster list shows all".to_owned()),
            Self::NoTerminal => Some("add --yes".to_owned()),
            Self::NotConfirmed(_) | Self::Ask { .. } => None,
        }
    }
}

pub(crate) fn run(arguments: &Arguments, context: &Context, out: &mut dyn Write) -> Result<(), Failure> {
    let (name, store) = (context.cluster.as_ref().ok_or(NotDestroyed::NoName)?, &context.store);
    let lock = store.lock(name)?;
    // A damaged record is no reason to keep the machines: their files are where they always are.
    if !store.directory(name).exists() {
        store.load(name)?;
    }
    if !arguments.yes {
        confirm(name, out)?;
    }
    start::end_all(store, name).map_err(|failure| failure.leaving("nothing of the cluster was removed"))?;
    store.remove(name, &lock).map_err(|error| {
        let left =
            format!("all that ran of it has ended; what is left of it is in {}", store.directory(name).display());
        Failure::from(error).leaving(left).going_on(format!("cairnctl cluster destroy {name}"))
    })?;
    Ok(screen::did(context.format, out, &format!("cluster `{name}` is gone"))?)
}

fn confirm(name: &ClusterName, out: &mut dyn Write) -> Result<(), Failure> {
    let input = std::io::stdin();
    if !input.is_terminal() {
        return Err(NotDestroyed::NoTerminal.into());
    }
    let lost = |source| NotDestroyed::Ask { name: name.clone(), source };
    write!(out, "all data of cluster `{name}` will be lost; type its name to go on: ").map_err(lost)?;
    out.flush().map_err(lost)?;
    let mut answer = String::new();
    input.lock().read_line(&mut answer).map_err(lost)?;
    if answer.trim_end() == name.to_string() { Ok(()) } else { Err(NotDestroyed::NotConfirmed(name.clone()).into()) }
}
