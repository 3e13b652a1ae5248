//! A person in a home of their own, who has clusters with Kubernetes by `cairnctl` and nothing else.

use std::{
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use ::image::ImageProfile;
use anyhow::{Context, Result};
use qemu::Vm;
use xtask::{cache::BuildCache, process::answer, workspace::Workspace};

use crate::{
    components,
    image::{self, Wanted},
    programs::{self, Build},
};

/// The person: their programs, the image of their machines, and where they keep all they have.
#[derive(Debug, Clone)]
pub(super) struct Person {
    cairnctl: PathBuf,
    kubectl: PathBuf,
    pub(super) image: PathBuf,
    pub(super) home: PathBuf,
}

impl Person {
    /// Someone at home in `out`, with the image that is given, or else with one of the release profile, built so and put there.
    pub(super) fn with_image(
        workspace: &Workspace,
        cache: &BuildCache,
        (given, build): (Option<&Path>, Build),
        out: &Path,
    ) -> Result<Self> {
        let image = match given {
            Some(image) => std::path::absolute(image).context("find the image")?,
            None => {
                let wanted = Wanted::plain(ImageProfile::Release, build);
                image::build(workspace, cache, &wanted, &out.join("image"))?;
                out.join("image")
            }
        };
        let (cairnctl, kubectl) = (programs::cairnctl(workspace)?, components::kubectl(workspace, cache)?);
        Ok(Self { cairnctl, kubectl, image, home: out.to_owned() })
    }

    /// The same at home elsewhere.
    pub(super) fn at(&self, home: PathBuf) -> Self {
        Self { home, ..self.clone() }
    }

    /// Answer of `cairnctl` to these arguments.
    pub(super) fn ask(&self, arguments: &[&str]) -> Result<String> {
        let mut command = Command::new(&self.cairnctl);
        command.env("XDG_DATA_HOME", &self.home).env("HOME", &self.home).env("CAIRN_KUBECTL", &self.kubectl);
        answer(command.args(arguments))
    }

    /// Answer of `kubectl` to the owner of this cluster.
    pub(super) fn kubectl(&self, cluster: &str, arguments: &[&str]) -> Result<String> {
        self.ask(&[&["kubectl", "--cluster", cluster, "--"], arguments].concat())
    }

    /// CPU time of a cluster's machines; none where they do not run.
    pub(super) fn cpu(&self, cluster: &str, machines: &[&str]) -> Duration {
        machines.iter().filter_map(|name| Some(Vm::attach(&self.files(cluster, name)).ok()??.cpu_time())).sum()
    }

    /// Folder of a machine's files.
    pub(super) fn files(&self, cluster: &str, machine: &str) -> PathBuf {
        self.clusters().join(cluster).join("machines").join(machine)
    }

    /// Where `cairnctl` keeps its clusters.
    pub(super) fn clusters(&self) -> PathBuf {
        self.home.join("cairn/clusters")
    }
}
