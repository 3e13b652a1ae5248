//! A pod, on both sides by the same hand: kubectl on the host, raw requests only, at node Ready. On Cairn it goes through
//! the owner's tunnel, on the floor through a relay.

use std::{
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::mpsc::{Receiver, channel},
    thread,
    time::Duration,
};

use ::tests::web_pod;
use anyhow::{Context, Result, bail};
use benches::{Arrival, BootMilestone};
use qemu::{Deadline, Vm};
use serde_json::Value;

use super::follow::Followed;

/// Bound of a wait for what is broken.
const POD: Duration = Duration::from_secs(900);

const ACCOUNTS: &str = "/api/v1/namespaces/default/serviceaccounts?watch=true&fieldSelector=metadata.name%3Ddefault";
const PODS: &str = "/api/v1/namespaces/default/pods";
const WATCH: &str = "/api/v1/namespaces/default/pods?watch=true&fieldSelector=metadata.name%3Dweb";
const WEB: &str = "/api/v1/namespaces/default/pods/web?gracePeriodSeconds=0";

/// kubectl with a kubeconfig.
#[derive(Debug)]
pub(crate) struct Kubectl {
    pub(crate) program: PathBuf,
    /// The owner's kubeconfig.
    pub(crate) config: PathBuf,
}

impl Kubectl {
    /// Creates the pod as soon as its namespace takes it, and waits until it runs.
    pub(crate) fn run_pod(&self, vm: &mut Vm, followed: &Followed, folder: &Path) -> Result<Arrival> {
        let deadline = Deadline::after(POD);
        // Pods are refused until the controller-manager has made their namespace's account.
        self.watch(ACCOUNTS, deadline, |event| event["object"]["metadata"]["name"] == "default")
            .context("wait for the default service account")?;
        vm.note("service account");
        let manifest = folder.join("web.json");
        std::fs::write(&manifest, web_pod("web", false).to_string()).context("write the pod")?;
        self.succeed(&["create", "--raw", PODS, "--filename", &manifest.to_string_lossy()])?;
        vm.note("pod created");
        self.watch(WATCH, deadline, |event| event["object"]["status"]["phase"] == "Running")
            .context("wait for the pod")?;
        let mark = vm.note(BootMilestone::PodRunning.name());
        Ok(Arrival { milestone: BootMilestone::PodRunning, uptime: followed.uptime(mark.at), cpu: Some(mark.cpu) })
    }

    /// Takes the pod away, so that the next boot begins without.
    pub(crate) fn remove_pod(&self) -> Result<()> {
        self.succeed(&["delete", "--raw", WEB])
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        // A cache in somebody's home would make the second run cheaper than the first.
        command.arg("--kubeconfig").arg(&self.config).args(arguments).env_clear().stdin(Stdio::null());
        command
    }

    fn succeed(&self, arguments: &[&str]) -> Result<()> {
        let output = self.command(arguments).output().context("run kubectl")?;
        if output.status.success() {
            return Ok(());
        }
        bail!("kubectl {}: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr).trim())
    }

    /// Watches until an event is the wanted one; a watch that ends is begun again.
    fn watch(&self, path: &str, deadline: Deadline, wanted: impl Fn(&Value) -> bool) -> Result<()> {
        loop {
            let watch = Watch::start(self.command(&["get", "--raw", path]))?;
            while let Some(left) = deadline.left() {
                let Ok(line) = watch.lines.recv_timeout(left) else { break };
                if serde_json::from_str(&line).is_ok_and(|event: Value| wanted(&event)) {
                    return Ok(());
                }
            }
            if deadline.left().is_none() {
                bail!("not within {:?}", deadline.length());
            }
        }
    }
}

/// A running watch; ends with its value.
struct Watch {
    child: Child,
    lines: Receiver<String>,
}

impl Watch {
    fn start(mut command: Command) -> Result<Self> {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().context("run kubectl")?;
        let output = child.stdout.take().context("read what kubectl says")?;
        let (sender, lines) = channel();
        thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Ok(Self { child, lines })
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        // A child that has ended already cannot be killed and need not be.
        let (_killed, _reaped) = (self.child.kill(), self.child.wait());
    }
}
