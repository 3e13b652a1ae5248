//! `cluster saved` and `cluster forget`: the saved clusters of this person, and an end of one.

use std::io::Write;

use clap::Args;
use clap_complete::engine::ArgValueCandidates;
use qemu::saved::{MANIFEST, fresh_name};
use serde::Serialize;

use crate::clock;
use crate::commands::confirm::confirm;
use crate::complete;
use crate::context::Context;
use crate::failure::Failure;
use crate::saved_cluster::{SavedCluster, SavedError, SavedName};
use crate::screen::{self, Format, Table};
use crate::store::{ClusterName, remove_all_private, remove_private};

#[derive(Debug, Args)]
#[command(after_help = "\
Machines that were made of it go on, and start again: they share files with it,
and need no folder of it. What a save that was killed has left goes, too.")]
pub(crate) struct Forget {
    /// The saved cluster
    #[arg(value_name = "SAVED", add = ArgValueCandidates::new(complete::saved))]
    saved: ClusterName,
    /// Do not ask
    #[arg(long, short)]
    yes: bool,
}

#[derive(Debug, Serialize)]
struct SavedOut {
    name: String,
    /// Names of its machines.
    machines: Vec<String>,
    /// Space that it takes on the host's disk.
    bytes: Option<u64>,
    /// When it was saved.
    made_unix_seconds: Option<u64>,
    /// Root hash of its image.
    image: Option<String>,
    /// Why it cannot come back.
    damaged: Option<String>,
}

pub(crate) fn list(context: &Context, out: &mut dyn Write) -> Result<(), Failure> {
    let mut all = Vec::new();
    for name in context.store.saved()? {
        all.push(described(&name, context));
    }
    match context.format {
        Format::Json => screen::json(out, &all)?,
        Format::Table => table(&all).print(out)?,
    }
    Ok(())
}

/// A saved cluster as it is listed: also one that is damaged, so that somebody forgets it.
fn described(name: &ClusterName, context: &Context) -> SavedOut {
    let folder = SavedName::Name(name.clone()).folder(&context.store);
    let looked = SavedCluster::open(&folder).and_then(|saved| Ok((saved.bytes_on_disk()?, saved)));
    let name = name.to_string();
    match looked {
        Ok((bytes, saved)) => SavedOut {
            name,
            machines: saved.machines().map(|(name, _)| name.to_owned()).collect(),
            bytes: Some(bytes),
            made_unix_seconds: Some(saved.made().unix_seconds),
            image: Some(saved.image().to_owned()),
            damaged: None,
        },
        Err(error) => {
            let damaged = Some(error.to_string());
            SavedOut { name, machines: Vec::new(), bytes: None, made_unix_seconds: None, image: None, damaged }
        }
    }
}

fn table(all: &[SavedOut]) -> Table<5> {
    /// Enough of a root hash to tell two images apart.
    const SHORT: usize = 12;
    let mut table = Table::new(["NAME", "MACHINES", "SIZE", "AGE", "IMAGE"]);
    let now = clock::now().as_secs();
    for saved in all {
        let none = || "-".to_owned();
        let image = saved.image.as_deref().map(|image| image.chars().take(SHORT).collect());
        table.row([
            saved.name.clone(),
            if saved.damaged.is_some() { "damaged".to_owned() } else { saved.machines.join(",") },
            saved.bytes.map_or_else(none, screen::size),
            saved
                .made_unix_seconds
                .map_or_else(none, |made| screen::span(now.saturating_sub(made).saturating_mul(1000))),
            image.unwrap_or_else(none),
        ]);
    }
    table
}

pub(crate) fn forget(arguments: &Forget, context: &Context, out: &mut dyn Write) -> Result<(), Failure> {
    let name = &arguments.saved;
    let folder = SavedName::Name(name.clone()).folder(&context.store);
    let unfinished = fresh_name(&folder);
    if !folder.exists() && !unfinished.exists() {
        SavedCluster::open(&folder).map_err(SavedError::of(&SavedName::Name(name.clone())))?;
    }
    let _lock = context.store.lock_saved(&folder)?;
    if !arguments.yes {
        confirm(&format!("the saved cluster `{name}`"), &name.to_string(), out)?;
    }
    // From here on nobody takes it for one.
    remove_private(&folder.join(MANIFEST))?;
    for left in [&folder, &unfinished] {
        remove_all_private(left)?;
    }
    Ok(screen::did(context.format, out, &format!("the saved cluster `{name}` is gone"))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_damaged_one_is_listed_as_such() {
        let damaged = SavedOut {
            name: "lab".into(),
            machines: vec![],
            bytes: None,
            made_unix_seconds: None,
            image: None,
            damaged: Some("it is".into()),
        };
        let whole = SavedOut {
            name: "three".into(),
            machines: vec!["m1".into(), "m2".into()],
            bytes: Some(3 << 29),
            made_unix_seconds: Some(0),
            image: Some("0123456789abcdef".into()),
            damaged: None,
        };
        let mut text = Vec::new();
        table(&[damaged, whole]).print(&mut text).unwrap();
        let text = String::from_utf8(text).unwrap();
        let rows: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(rows[1], ["lab", "damaged", "-", "-", "-"]);
        assert_eq!((rows[2][1], rows[2][2], rows[2][5]), ("m1,m2", "1.5", "0123456789ab"));
    }
}
