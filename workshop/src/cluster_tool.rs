//! `cairnctl` as commands of the workshop run it: the user's tool on the one cluster of a command. It knows nothing of what a
//! step is for.

use std::{
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context, Result};
use xtask::{
    cache::BuildCache,
    process::{answer, shown},
    progress::say,
    workspace::Workspace,
};

use crate::{components, programs};

/// The user's tool, with what it needs to know.
pub(crate) struct Tool {
    /// Where it was built.
    pub(crate) cairnctl: PathBuf,
    /// kubectl in the cache.
    pub(crate) kubectl: PathBuf,
    /// Name of the cluster; only this command uses it.
    pub(crate) cluster: &'static str,
    image: PathBuf,
}

impl Tool {
    /// The tool, built, for the image in this folder and a cluster of this name.
    ///
    /// # Errors
    /// It does not compile, or kubectl cannot be had.
    pub(crate) fn build(
        workspace: &Workspace,
        cache: &BuildCache,
        image: &Path,
        cluster: &'static str,
    ) -> Result<Self> {
        let kubectl = components::kubectl(workspace, cache)?;
        Ok(Self { cairnctl: programs::cairnctl(workspace)?, kubectl, cluster, image: image.to_owned() })
    }

    /// A command, to be run.
    pub(crate) fn cairnctl(&self, arguments: &[&str]) -> Box<Command> {
        let mut command = Box::new(Command::new(&self.cairnctl));
        command.args(arguments).env("CAIRN_IMAGE_DIR", &self.image).env("CAIRN_KUBECTL", &self.kubectl);
        command
    }

    /// Runs a command on this terminal.
    ///
    /// # Errors
    /// It cannot be started, or fails.
    pub(crate) fn run(&self, arguments: &[&str]) -> Result<()> {
        shown(&mut self.cairnctl(arguments))
    }

    /// The same for what may be refused without harm: what it says is shown up to its error, whose line is returned.
    ///
    /// # Errors
    /// It cannot be started.
    pub(crate) fn tried(&self, arguments: &[&str]) -> Result<Result<(), String>> {
        let mut child = self.cairnctl(arguments).stderr(Stdio::piped()).spawn().context("start cairnctl")?;
        let mut error = None;
        for line in BufReader::new(child.stderr.take().context("its errors are a pipe")?).lines() {
            let line = line.context("read what cairnctl says")?;
            match line.strip_prefix("error: ") {
                Some(reason) if error.is_none() => error = Some(reason.to_owned()),
                // Behind the error: what was left, and what to do next, which this command does itself.
                Some(_) | None if error.is_some() => {}
                Some(_) | None => say(line),
            }
        }
        let status = child.wait().context("wait for cairnctl")?;
        Ok(if status.success() {
            Ok(())
        } else {
            Err(error.unwrap_or_else(|| format!("cairnctl ended with {status}")))
        })
    }

    /// Whether there is a cluster of this name. Only this command uses the name, so it is of an earlier run.
    ///
    /// # Errors
    /// `cairnctl` cannot list clusters.
    pub(crate) fn is_there(&self) -> Result<bool> {
        Ok(answer(&mut self.cairnctl(&["cluster", "list", "-o", "json"]))?.contains(&format!("\"{}\"", self.cluster)))
    }

    /// Takes the cluster of an earlier run away, if there is one.
    ///
    /// # Errors
    /// It cannot be taken away.
    pub(crate) fn take_away(&self) -> Result<()> {
        if self.is_there()? {
            say(format_args!("▸ the cluster `{}` of an earlier run is taken away", self.cluster));
            self.run(&["cluster", "destroy", self.cluster, "--yes"])?;
        }
        Ok(())
    }

    /// Runs kubectl on the cluster, on this terminal.
    ///
    /// # Errors
    /// It cannot be started, or fails.
    pub(crate) fn kubectl(&self, arguments: &[&str]) -> Result<()> {
        self.run(&[&["kubectl", "--cluster", self.cluster, "--"], arguments].concat())
    }
}
