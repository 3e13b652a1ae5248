//! `cargo xtask up`: builds everything, boots one machine, shows it Ready with a pod, says how to go on. It does what a
//! user would do, with the user's tool; it must never reach into a machine by another way.
//!
//! ```text
//!   build ► saved one of the same origin? ──no, refused, --fresh──► boot ► pod ─┬─► show ──────► save ► go on
//!                       └──yes──► back from it ► pod is Ready ──────────────────┘     └─ --exit: timeline, gone
//! ```

mod eviction;
mod saved;

use std::io::{Write, stdout};

use ::image::ImageProfile;
use ::tests::web_pod;
use anyhow::{Context, Result};
use clap::Args;
use xtask::{
    cache::BuildCache,
    process::answer,
    progress::{clock_text, say, talking_step, timed},
    workspace::Workspace,
};

use self::saved::{Origin, SavedUps};
use crate::{
    cluster_tool::Tool,
    image::{self, Wanted},
    programs::Build,
};

/// The name of the cluster that `up` makes; one that is left from an earlier run is replaced.
const CLUSTER: &str = "up";

/// How its machine is made, said in full, since it is part of what a saved one came from: a default of `cairnctl` may change.
const MACHINE: &str = "--level authenticated --cold-start automatic --boot direct --memory 3G --cpus 2 --disk-size 8G";

/// How `up` shows a machine.
#[derive(Debug, Clone, Args)]
pub(crate) struct Options {
    /// Stop after showing, and print the boot's timeline as one line of JSON; this always boots, and saves nothing
    #[arg(long)]
    exit: bool,
    /// Boot, although a saved machine could come back, and save this one in its place
    #[arg(long)]
    fresh: bool,
    /// How to compile the machine's own programs
    #[arg(long, value_enum, default_value = "release")]
    build: Build,
}

/// Builds, boots or comes back, shows.
///
/// # Errors
/// Any step's; a machine that did not come up stays for a look. One that cannot be saved, or does not come back, is no error:
/// that is said, and costs the boot that it would have spared.
pub(crate) fn up(workspace: &Workspace, cache: &BuildCache, options: &Options) -> Result<()> {
    let (up, took) = timed(|| up_to_the_pod(workspace, cache, options));
    let (tool, origin, came) = up?;
    say(format_args!("the pod is Ready after {}", clock_text(took)));
    tool.run(&["machine", "status", "--cluster", CLUSTER])?;
    tool.kubectl(&["get", "nodes,pods", "--output", "wide"])?;
    if options.exit {
        let timeline = answer(&mut tool.cairnctl(&["machine", "timeline", "--cluster", CLUSTER, "-o", "json"]))?;
        tool.run(&["machine", "poweroff", "--cluster", CLUSTER])?;
        tool.run(&["cluster", "destroy", CLUSTER, "--yes"])?;
        let timeline: serde_json::Value = serde_json::from_str(&timeline).context("read the timeline")?;
        return writeln!(stdout(), "{timeline}").context("print the timeline");
    }
    if came == Came::Booted
        && let Err(error) = SavedUps::of(cache).save(&tool, &origin)
    {
        say(format_args!("! the machine is not saved, and the next `up` boots: {error:#}"));
    }
    say("\nThe machine goes on running. What to try next:");
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

/// How a machine came to run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Came {
    Booted,
    Back,
}

/// A machine with a pod that is Ready.
fn up_to_the_pod(workspace: &Workspace, cache: &BuildCache, options: &Options) -> Result<(Tool, Origin, Came)> {
    let folder = workspace.path("out/image");
    let wanted = Wanted::plain(ImageProfile::Release, options.build);
    let image = image::Known::of(workspace, cache, &wanted, folder.clone())?;
    let tool = Tool::build(workspace, cache, &folder, CLUSTER)?;
    let origin =
        Origin { manifest: image.manifest.clone(), machine: MACHINE, pod: format!("{:#}\n", web_pod("web", false)) };

    tool.take_away()?;
    if !(options.fresh || options.exit) && SavedUps::of(cache).bring_back(&tool, &origin)? {
        return Ok((tool, origin, Came::Back));
    }
    image.complete()?;
    talking_step("machine", "booting, until its node is Ready", || {
        let create = ["cluster", "create", CLUSTER, "--wait"].into_iter();
        tool.run(&create.chain(MACHINE.split_whitespace()).collect::<Vec<_>>())
    })?;
    talking_step("pod", "starting", || {
        let file = workspace.target().join("web.json");
        std::fs::write(&file, &origin.pod).context("write the pod")?;
        tool.kubectl(&["apply", "--filename", &file.to_string_lossy()])?;
        tool.kubectl(&["wait", "--for=condition=Ready", "pod/web", "--timeout=300s"])
    })?;
    Ok((tool, origin, Came::Booted))
}
