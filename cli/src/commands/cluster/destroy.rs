//! `cluster destroy`: ends the virtual machine this program started, then forgets keys and pins of the cluster.

use std::io::{BufRead, IsTerminal, Write};

use clap::Args;

use crate::commands::Context;
use crate::failure::{Advice, Code, Failure};
use crate::screen;
use crate::store::ClusterName;
use crate::virtual_machine;

#[derive(Debug, Args)]
#[command(after_help = "\
Of a virtual cluster all data is gone for good. Hardware is left as it is, but
this host cannot steer it any more. The owner's keys stay.")]
pub(crate) struct Arguments {
    /// The cluster
    name: ClusterName,
    /// Do not ask
    #[arg(long, short)]
    yes: bool,
}

/// It was not destroyed because nobody said so.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NotDestroyed {
    /// Nobody can be asked.
    #[error("there is no terminal to ask on")]
    NoTerminal,
    /// The answer was another.
    #[error("`{0}` was not confirmed")]
    NotConfirmed(ClusterName),
}

impl Advice for NotDestroyed {
    fn code(&self) -> Code {
        Code::Usage
    }

    fn next(&self) -> Option<String> {
        match self {
            Self::NoTerminal => Some("add --yes".to_owned()),
            Self::NotConfirmed(_) => None,
        }
    }
}

pub(crate) fn run(arguments: &Arguments, context: &Context, out: &mut dyn Write) -> Result<(), Failure> {
    let (name, store) = (&arguments.name, &context.store);
    let lock = store.lock(name)?;
    // A damaged record is no reason to keep the machine: its files are where they always are.
    if !store.directory(name).exists() {
        store.load(name)?;
    }
    if !arguments.yes {
        confirm(name, out)?;
    }
    virtual_machine::end(&store.machine_directory(name))?;
    store.remove(name, &lock)?;
    Ok(screen::did(context.format, out, &format!("cluster `{name}` is gone"))?)
}

fn confirm(name: &ClusterName, out: &mut dyn Write) -> Result<(), Failure> {
    let input = std::io::stdin();
    if !input.is_terminal() {
        return Err(NotDestroyed::NoTerminal.into());
    }
    write!(out, "all data of cluster `{name}` will be lost; type its name to go on: ")?;
    out.flush()?;
    let mut answer = String::new();
    input.lock().read_line(&mut answer)?;
    if answer.trim_end() == name.to_string() { Ok(()) } else { Err(NotDestroyed::NotConfirmed(name.clone()).into()) }
}
