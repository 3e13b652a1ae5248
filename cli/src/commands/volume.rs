//! `volume …`: volumes that workers keep for claims of Kubernetes: all of them with their claims, and the removal of one that no claim
//! has any more.

use std::io::Write;

use api::{ListedVolume, VolumeRemoval, WorkerVolumes};
use clap::{Args, Subcommand};
use clap_complete::engine::ArgValueCandidates;
use model::NodeName;
use serde::Serialize;
use volumes::{VolumeHolder, VolumeId};

use super::confirm::confirm;
use crate::complete;
use crate::context::Context;
use crate::failure::{Advice, Code, Failure, NOTHING};
use crate::screen::{self, Format, Table};

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// The volumes of all workers, and the claims that have them
    List,
    /// Delete a volume that no claim has any more, with all that lies in it
    Remove(Remove),
}

#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  cairnctl volume remove 6f1c0a52-9a3e-4d0b-8f6e-1d2c3b4a5f60

A volume whose class deletes goes with its claim; this is for one that was kept,
by the policy Retain, after its PersistentVolume was deleted as well.")]
pub(crate) struct Remove {
    /// The volume as `cairnctl volume list` shows it
    #[arg(value_name = "VOLUME", value_parser = VolumeId::parse, add = ArgValueCandidates::new(complete::volumes))]
    volume: VolumeId,
    /// Do not ask
    #[arg(long)]
    yes: bool,
}

/// Why a volume stays.
#[derive(Debug, thiserror::Error)]
pub(crate) enum VolumeError {
    /// No worker that answers has it.
    #[error("no worker that answers has volume {volume}{silent}", silent = also_silent(.silent))]
    Unknown { volume: VolumeId, silent: Vec<NodeName> },
    /// A claim has it, or an object names it.
    #[error("{} has volume {volume}", held(.holder))]
    Held { volume: VolumeId, holder: VolumeHolder },
}

impl Advice for VolumeError {
    fn code(&self) -> Code {
        match self {
            Self::Unknown { .. } => Code::NotFound,
            Self::Held { .. } => Code::Refused,
        }
    }

    fn unchanged(&self) -> &'static str {
        NOTHING
    }

    fn next(&self) -> Option<String> {
        Some(match self {
            Self::Unknown { .. } => "see which there are: cairnctl volume list".to_owned(),
            Self::Held { holder: VolumeHolder::Claim { namespace, name }, .. } => {
                format!("delete the claim: cairnctl kubectl delete -n {namespace} pvc/{name}")
            }
            Self::Held { holder: VolumeHolder::Object(name), .. } => {
                format!("delete the object, then try again: cairnctl kubectl delete pv/{name}")
            }
        })
    }
}

fn also_silent(names: &[NodeName]) -> String {
    let names: Vec<_> = names.iter().map(NodeName::as_str).collect();
    if names.is_empty() { String::new() } else { format!("; {} did not answer", names.join(", ")) }
}

fn held(holder: &VolumeHolder) -> String {
    match holder {
        VolumeHolder::Claim { namespace, name } => format!("claim {namespace}/{name}"),
        VolumeHolder::Object(name) => format!("PersistentVolume {name}"),
    }
}

#[derive(Debug, Serialize)]
struct VolumeOut {
    volume: String,
    machine: String,
    bytes: u64,
    used_bytes: u64,
    /// Namespace and name; absent where no claim has it.
    claim: Option<String>,
    /// PersistentVolume that names it, though its claim has gone.
    persistent_volume: Option<String>,
}

#[derive(Debug, Serialize)]
struct VolumesOut {
    volumes: Vec<VolumeOut>,
    /// Workers that do not answer, whose volumes are not known.
    silent: Vec<String>,
}

pub(crate) async fn run(command: &Command, context: &Context, out: &mut dyn Write) -> Result<(), Failure> {
    match command {
        Command::List => list(context, out).await,
        Command::Remove(arguments) => arguments.run(context, out).await,
    }
}

async fn list(context: &Context, out: &mut dyn Write) -> Result<(), Failure> {
    let (mut session, _) = context.open_coordinator().await?;
    let workers = session.volumes().await?;
    let silent = names_of_silent(&workers);
    match context.format {
        Format::Json => {
            let volumes = rows(&workers).map(|(worker, volume, holder)| VolumeOut {
                volume: volume.volume.to_string(),
                machine: worker.name.to_string(),
                bytes: volume.bytes,
                used_bytes: volume.used,
                claim: holder.and_then(claim),
                persistent_volume: holder.and_then(object),
            });
            let silent = silent.iter().map(ToString::to_string).collect();
            screen::json(out, &VolumesOut { volumes: volumes.collect(), silent })?;
        }
        Format::Table => {
            table(&workers).print(out)?;
            for name in silent {
                writeln!(out, "{name} does not answer: its volumes are not shown")?;
            }
        }
    }
    Ok(())
}

fn table(workers: &[WorkerVolumes]) -> Table<5> {
    let mut table = Table::new(["VOLUME", "MACHINE", "SIZE", "USED", "CLAIM"]);
    for (worker, volume, holder) in rows(workers) {
        let holder = match holder {
            None => "none".to_owned(),
            Some(holder) => claim(holder).unwrap_or_else(|| format!("gone; {} stays", held(holder))),
        };
        let [size, used] = [volume.bytes, volume.used].map(screen::size);
        table.row([volume.volume.to_string(), worker.name.to_string(), size, used, holder]);
    }
    table
}

/// Each volume of those that answered, with its worker and holder.
fn rows(workers: &[WorkerVolumes]) -> impl Iterator<Item = (&WorkerVolumes, &ListedVolume, Option<&VolumeHolder>)> {
    workers
        .iter()
        .flat_map(|worker| worker.held.iter().flatten().map(move |(volume, holder)| (worker, volume, holder.as_ref())))
}

fn names_of_silent(workers: &[WorkerVolumes]) -> Vec<NodeName> {
    workers.iter().filter(|worker| worker.held.is_none()).map(|worker| worker.name.clone()).collect()
}

fn claim(holder: &VolumeHolder) -> Option<String> {
    match holder {
        VolumeHolder::Claim { namespace, name } => Some(format!("{namespace}/{name}")),
        VolumeHolder::Object(_) => None,
    }
}

fn object(holder: &VolumeHolder) -> Option<String> {
    match holder {
        VolumeHolder::Claim { .. } => None,
        VolumeHolder::Object(name) => Some(name.clone()),
    }
}

impl Remove {
    async fn run(&self, context: &Context, out: &mut dyn Write) -> Result<(), Failure> {
        let (mut session, _) = context.open_coordinator().await?;
        let (volume, workers) = (self.volume, session.volumes().await?);
        let found = rows(&workers).find(|(_, listed, _)| listed.volume == volume);
        let (worker, listed, holder) =
            found.ok_or_else(|| VolumeError::Unknown { volume, silent: names_of_silent(&workers) })?;
        if let Some(holder) = holder {
            return Err(VolumeError::Held { volume, holder: holder.clone() }.into());
        }
        let name = &worker.name;
        if !self.yes {
            let what = format!("the {} in volume {volume} on `{name}`", screen::size(listed.used));
            confirm(&what, &volume.to_string(), out)?;
        }
        let removed = session.remove_volume(VolumeRemoval { machine: worker.machine, volume }).await;
        removed.map_err(|error| Failure::from(error).going_on("see what is there: cairnctl volume list"))?;
        Ok(screen::did(context.format, out, &format!("volume {volume} is gone from `{name}`"))?)
    }
}

#[cfg(test)]
mod tests;
