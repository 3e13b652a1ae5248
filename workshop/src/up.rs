//! `cargo xtask up`: builds everything, boots one machine, shows it Ready with a pod, says how to go on. It does what a
//! user would do, with the user's tool; it must never reach into a machine by another way.

use std::{
    io::{Write, stdout},
    path::{Path, PathBuf},
    process::Command,
};

use ::image::Profile;
use ::tests::web_pod;
use anyhow::{Context, Result};
use xtask::{
    cache::Cache,
    process::{answer, shown},
    progress::{say, talking_step},
    workspace::Workspace,
};

use crate::{
    components,
    image::{self, Wanted},
    programs::{self, Build},
};

/// The name of the cluster it makes; one that is left from an earlier run is replaced.
const CLUSTER: &str = "up";

/// What happens when everything has been shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Then {
    /// The machine goes on running.
    KeepRunning,
    /// It is stopped and taken away, and its timeline printed as one line of JSON.
    Exit,
}

/// Builds, boots, shows.
///
/// # Errors
/// Any step's; a machine that did not come up stays for a look.
pub(crate) fn up(workspace: &Workspace, cache: &Cache, build: Build, then: Then) -> Result<()> {
    let folder = workspace.path("out/image");
    let wanted = Wanted { profile: Profile::Release, build, kernel_source: None };
    image::build(workspace, cache, &wanted, &folder)?;
    let tool = Tool::build(workspace, cache, &folder)?;

    // Only this command uses the name, so what is left under it is of an earlier run.
    if answer(&mut tool.cairnctl(&["cluster", "list", "-o", "json"]))?.contains(&format!("\"{CLUSTER}\"")) {
        say(format_args!("▸ the cluster `{CLUSTER}` of an earlier run is taken away"));
        tool.run(&["cluster", "destroy", CLUSTER, "--yes"])?;
    }
    talking_step("machine", "booting, until its node is Ready", || {
        tool.run(&["cluster", "create", CLUSTER, "--wait"])
    })?;
    talking_step("pod", "starting", || {
        let pod = workspace.target().join("web.json");
        std::fs::write(&pod, format!("{:#}\n", web_pod("web", false))).context("write the pod")?;
        let pod = pod.to_string_lossy();
        // Pods are refused until the controller-manager has made their namespace's account.
        tool.kubectl(&["wait", "--for=create", "serviceaccount/default", "--timeout=120s"])?;
        tool.kubectl(&["apply", "--filename", &pod])?;
        tool.kubectl(&["wait", "--for=condition=Ready", "pod/web", "--timeout=300s"])
    })?;
    tool.run(&["machine", "status", "--cluster", CLUSTER])?;
    tool.kubectl(&["get", "nodes,pods", "--output", "wide"])?;
    match then {
        Then::KeepRunning => {
            say(format_args!("\nThe machine goes on running. What to try next:"));
            let cairnctl = tool.cairnctl.display();
            for (command, what) in [
                ("machine services", "what it runs"),
                ("machine logs --tail 20 kube.apiserver", "what that says"),
                ("kubectl -- get pods --all-namespaces", "Kubernetes, by the machine's public API"),
                ("machine timeline", "where the time of the boot went"),
                ("machine reboot", "it comes back whole"),
                ("cluster destroy up --yes", "take it away"),
            ] {
                say(format_args!("  {cairnctl} {command:<42} {what}"));
            }
            Ok(())
        }
        Then::Exit => {
            let timeline = answer(&mut tool.cairnctl(&["machine", "timeline", "--cluster", CLUSTER, "-o", "json"]))?;
            tool.run(&["machine", "poweroff", "--cluster", CLUSTER])?;
            tool.run(&["cluster", "destroy", CLUSTER, "--yes"])?;
            let timeline: serde_json::Value = serde_json::from_str(&timeline).context("read the timeline")?;
            writeln!(stdout(), "{timeline}").context("print the timeline")
        }
    }
}

/// The user's tool, with what it needs to know.
struct Tool {
    cairnctl: PathBuf,
    kubectl: PathBuf,
    image: PathBuf,
}

impl Tool {
    fn build(workspace: &Workspace, cache: &Cache, image: &Path) -> Result<Self> {
        let kubectl = components::build(workspace, cache)?.kubectl_path();
        Ok(Self { cairnctl: programs::cairnctl(workspace)?, kubectl, image: image.to_owned() })
    }

    fn cairnctl(&self, arguments: &[&str]) -> Box<Command> {
        let mut command = Box::new(Command::new(&self.cairnctl));
        command.args(arguments).env("CAIRN_IMAGE_DIR", &self.image).env("CAIRN_KUBECTL", &self.kubectl);
        command
    }

    fn run(&self, arguments: &[&str]) -> Result<()> {
        shown(&mut self.cairnctl(arguments))
    }

    fn kubectl(&self, arguments: &[&str]) -> Result<()> {
        self.run(&[&["kubectl", "--cluster", CLUSTER, "--"], arguments].concat())
    }
}
