//! `cargo xtask bench nft`: the rules of thousands of services, taken and listed by PID 1's `nft` and by Debian's, in turns, each time in
//! a network namespace of its own. It must never touch the host's own rules.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Command,
};

use ::image::ImageProfile;
use anyhow::{Context, Result, ensure};
use benches::nft::{NftTimes, SERVICES, findings, ruleset, times};
use clap::Args;
use serde_json::{Value, json};
use xtask::{
    process::answer,
    progress::{say, talking_step},
    workspace::Workspace,
};

use super::conclude;
use crate::programs::{self, Build};

/// How it is measured.
#[derive(Debug, Clone, Args)]
pub(crate) struct Options {
    /// Rounds of both sides
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
    /// How to compile the machine's own programs
    #[arg(long, value_enum, default_value = "release")]
    build: Build,
}

/// Side of the comparison.
struct Side {
    name: &'static str,
    /// Folder of its `nft`.
    folder: PathBuf,
    took: Vec<NftTimes>,
    /// Objects that it listed, by their kind.
    listed: BTreeMap<String, usize>,
}

/// Takes and lists on both sides, prints; fails when a limit is broken, or the two sides list other things.
///
/// # Errors
/// Any step's; a broken limit.
pub(crate) fn nft(workspace: &Workspace, options: &Options) -> Result<()> {
    let out = workspace.target().join("bench-nft");
    let (own, text) = (out.join("own"), out.join("rules"));
    fs::create_dir_all(&own).with_context(|| format!("create `{}`", own.display()))?;
    fs::write(&text, ruleset(SERVICES)).context("write the rules")?;
    let init = programs::build(workspace, options.build, ImageProfile::Release)?.init;
    let link = own.join("nft");
    if link.symlink_metadata().is_ok() {
        fs::remove_file(&link).context("remove the link of an earlier run")?;
    }
    // The program goes by the name that it is called by.
    symlink(init.path(), &link).context("link `nft`")?;
    let side = |name, folder| Side { name, folder, took: Vec::new(), listed: BTreeMap::new() };
    let mut sides = [side("Cairn's", own), side("Debian's", PathBuf::from("/usr/sbin"))];
    ensure!(
        sides[1].folder.join("nft").exists(),
        "there is no `nft` to compare with: install Debian's package nftables"
    );
    for round in 1..=options.runs {
        for side in &mut sides {
            talking_step(side.name, &format!("round {round}"), || side.round(&text, &out))?;
        }
    }
    let [ours, debians] = sides;
    ensure!(ours.listed == debians.listed, "the listings differ: {:?}, and Debian's {:?}", ours.listed, debians.listed);
    let figures = findings(&ours.took, &debians.took);
    figures.iter().for_each(|figure| say(figure.line()));
    conclude(&figures, json!({}))
}

impl Side {
    fn round(&mut self, text: &Path, out: &Path) -> Result<()> {
        const SCRIPT: &str =
            r#""$1/nft" --file "$2"; times; "$1/nft" --json --terse list table ip kube-proxy > "$3"; times"#;
        let listing = out.join("listing");
        let mut shell = Command::new("unshare");
        shell.args(["--net", "/bin/sh", "-e", "-c", SCRIPT, "sh"]).args([&self.folder, text, &listing]);
        let said = answer(&mut shell).context("run in a network namespace of its own, which takes root")?;
        let took = times(&said).with_context(|| format!("read the times of a shell: {said}"))?;
        say(format_args!(
            "    transaction {:.2} s, listing {:.2} s of CPU",
            took.transaction.as_secs_f64(),
            took.listing.as_secs_f64()
        ));
        self.took.push(took);
        let text = fs::read(&listing).context("read the listing")?;
        let listed: Value = serde_json::from_slice(&text).context("read the listing")?;
        self.listed.clear();
        for object in listed["nftables"].as_array().context("a listing has objects")? {
            let kind = object.as_object().and_then(|object| object.keys().next()).context("an object has a kind")?;
            *self.listed.entry(kind.clone()).or_default() += 1;
        }
        Ok(())
    }
}
