//! `cluster destroy`: ends the virtual machines this program started and their network, then forgets keys and pins of the
//! cluster.

use std::io::Write;

use clap::Args;
use clap_complete::engine::ArgValueCandidates;

use super::start;
use crate::commands::confirm::confirm;
use crate::complete;
use crate::context::Context;
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

/// The only cluster there is, is not meant by naming none.
#[derive(Debug, thiserror::Error)]
#[error("no cluster is named")]
pub(crate) struct NoName;

impl Advice for NoName {
    fn code(&self) -> Code {
        Code::Usage
    }

    fn unchanged(&self) -> &'static str {
        NOTHING
    }

    fn next(&self) -> Option<String> {
        Some("name it: cairnctl cluster destroy NAME; cairnctl cluster list shows all".to_owned())
    }
}

pub(crate) fn run(arguments: &Arguments, context: &Context, out: &mut dyn Write) -> Result<(), Failure> {
    let (name, store) = (context.cluster.as_ref().ok_or(NoName)?, &context.store);
    let lock = store.lock(name)?;
    // A damaged record is no reason to keep the machines: their files are where they always are.
    if !store.directory(name).exists() {
        store.load(name)?;
    }
    if !arguments.yes {
        confirm(&format!("all data of cluster `{name}`"), &name.to_string(), out)?;
    }
    start::end_all(store, name).map_err(|failure| failure.leaving("nothing of the cluster was removed"))?;
    store.remove(name, &lock).map_err(|error| {
        let left =
            format!("all that ran of it has ended; what is left of it is in {}", store.directory(name).display());
        Failure::from(error).leaving(left).going_on(format!("cairnctl cluster destroy {name}"))
    })?;
    Ok(screen::did(context.format, out, &format!("cluster `{name}` is gone"))?)
}
