//! The end of pods: told by SIGTERM, given a while, then killed. Between the end of kubelet and that of containerd.

use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

use rustix::process::{Pid, Signal};

use crate::runtime::child::Cgroup;
use crate::runtime::services::{Failure, Stop};

/// Kubernetes' own default for a pod's grace period.
const GRACE: Duration = Duration::from_secs(30);

/// Waits to be stopped, then ends all pods.
pub(super) async fn end_when(stop: Stop) -> Result<(), Failure> {
    let _asked = stop.await;
    let Some(pods) = Cgroup::at(services::POD_CGROUP) else { return Ok(()) };
    signal(pods.path(), Signal::TERM)?;
    if tokio::time::timeout(GRACE, pods.empty()).await.is_err() {
        tracing::warn!(grace = ?GRACE, "pods ignore SIGTERM, killed");
        pods.kill()?;
        pods.empty().await;
    }
    Ok(())
}

/// Sends `signal` to every process below `cgroup`.
fn signal(cgroup: &Path, signal: Signal) -> io::Result<()> {
    for process in fs::read_to_string(cgroup.join("cgroup.procs"))?.lines() {
        if let Some(pid) = process.parse().ok().and_then(Pid::from_raw) {
            let _gone_meanwhile = rustix::process::kill_process(pid, signal);
        }
    }
    for entry in fs::read_dir(cgroup)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            self::signal(&entry.path(), signal)?;
        }
    }
    Ok(())
}
