//! The floor: the least that can start the components of a Cairn machine. Boots of Cairn are measured against it.
//!
//! ```text
//!   mount ─► mkfs, /data ─► addresses ─┬─► services, all at once; one that ends is started again
//!                                      ├─► images, when containerd's socket is there
//!                                      ├─► milestones, one line each on the console
//!                                      └─► relay to the apiserver and evidence, for the host
//! ```
//! It is no system to use: nothing is verified, encrypted, supervised or shut down, and its keys are in its root. What
//! costs time here that Cairn does not spend would be a lie in Cairn's favour.

mod evidence;
mod host;
mod services;
mod system;
mod watch;

use std::convert::Infallible;
use std::process::ExitCode;

use benches::{BootMilestone, floor};
use tokio::task::JoinSet;

use crate::services::Services;

/// Why there is no floor: which step, and what the system said.
#[derive(Debug, thiserror::Error)]
enum Error {
    /// The system refused something done with files, processes or sockets: what, and its error.
    #[error("{0}: {1}")]
    System(&'static str, #[source] std::io::Error),
    /// The kernel refused an address or a link: what was done, and its error.
    #[error("{0}: {1}")]
    Network(&'static str, #[source] rtnetlink::Error),
    /// A task ended that runs for good.
    #[error("a task has ended")]
    Ended,
}

fn main() -> ExitCode {
    // The root has this program as `mount` and `umount` too. kubelet tries a mount at its start and takes a refusal for
    // "this kernel cannot"; the pod of the bench has no volumes.
    if !rustix::process::getpid().is_init() {
        return ExitCode::FAILURE;
    }
    // PID 1 that ends makes the kernel panic: visible on the console, and the host sees the machine restart.
    match run() {
        Ok(never) => match never {},
        Err(error) => {
            system::say(&format!("floor failed: {error}"));
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<Infallible, Error> {
    let began = system::uptime();
    system::mount()?;
    system::say(&BootMilestone::FirstProgram.line(began));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(|error| Error::System("start the runtime", error))?.block_on(boot())
}

async fn boot() -> Result<Infallible, Error> {
    let plan = floor::plan();
    let mut tasks = JoinSet::new();
    system::data()?;
    host::addresses(&plan, &mut tasks).await?;
    let services = Services::start(&plan)?;
    tasks.spawn(services.clone().keep());
    tasks.spawn(watch::containerd(services.clone()));
    tasks.spawn(watch::etcd());
    tasks.spawn(watch::kubernetes(plan.clone(), services.clone()));
    tasks.spawn(host::relay(plan.vpn()));
    tasks.spawn(evidence::serve(services));
    // Some finish; that none is left does not happen, for services are kept for good.
    while let Some(ended) = tasks.join_next().await {
        match ended {
            Ok(Ok(())) => {}
            Ok(Err(error)) => return Err(error),
            Err(_panicked) => return Err(Error::Ended),
        }
    }
    Err(Error::Ended)
}
