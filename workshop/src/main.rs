//! Commands that developers run behind `cargo xtask`: the driver in `xtask/` has set the machine up and compiled this.
//! This file is the list of commands; each lives in a module of its own.

mod bench;
mod campaign;
mod ci;
mod cluster_tool;
mod component;
mod components;
mod conformance;
mod image;
mod kernel;
mod notices;
mod owner;
mod pinned;
mod programs;
mod reproducible;
mod tidy;
mod tools;
mod up;
mod verdict;
mod xfsprogs;

use std::{
    ffi::OsString,
    io::{Write, stdout},
    path::PathBuf,
    process::ExitCode,
};

use ::image::{ImageExtension, ImageProfile};
use anyhow::{Context, Result};
use clap::{
    Parser, Subcommand,
    builder::{PossibleValuesParser, TypedValueParser},
};
use xtask::{cache::BuildCache, progress::say, workspace::Workspace};

use crate::ci::Failed;

/// Builds, runs and checks Cairn. What takes minutes is cached in ~/.cache/cairn.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", max_term_width = 100)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Build everything, boot one machine, show it Ready with a pod, say how to go on
    ///
    /// The machine that is shown is saved in the cache. The next `up` with the same image comes back from that in seconds,
    /// instead of booting.
    Up(up::Options),
    /// Run all tests; the last line is `N passed, N failed, N skipped`
    Test,
    /// Run all that must hold before a change lands: format, lints, dependencies, tests
    Ci,
    /// Check the house rules: directions of dependencies, names, length of files
    Tidy {
        /// Print how often the rules are broken that are not kept everywhere yet, and by whom
        #[arg(long)]
        count: bool,
    },
    /// Build the kernel, or find it in the cache, and print where it is
    Kernel {
        /// Source of the kernel (a tarball); without it, Debian's linux-source-6.12
        #[arg(long, value_name = "TARBALL")]
        source: Option<PathBuf>,
    },
    /// Build the upstream components, or find them in the cache, and print where they are
    Components {
        /// With those of an extension of the image
        #[arg(long, value_name = "EXTENSION", value_parser = extensions())]
        with: Vec<ImageExtension>,
    },
    /// Build an image: kernel, components, programs, root, disk
    Image {
        /// Where it goes
        #[arg(long, value_name = "DIR", default_value = "out/image")]
        out: PathBuf,
        /// How to compile the machine's own programs
        #[arg(long, value_enum, default_value = "release")]
        build: programs::Build,
        /// With fault injection, for tests
        #[arg(long)]
        debug: bool,
        /// Extension that it has: with `gvisor`, pods of that class run on a kernel of their own
        #[arg(long, value_name = "EXTENSION", value_parser = extensions())]
        with: Vec<ImageExtension>,
        /// Source of the kernel (a tarball); without it, Debian's linux-source-6.12
        #[arg(long, value_name = "TARBALL")]
        kernel_source: Option<PathBuf>,
    },
    /// Search for bytes that panic a parser, for a while, by hand; `--help` says how
    #[command(disable_help_flag = true)]
    Fuzz {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<OsString>,
    },
    /// Live through what seeds bring, simulated or on machines, by hand
    ///
    /// Goes on with what tests do for a short while, until time is over or something is found.
    #[command(subcommand)]
    Campaign(campaign::Campaign),
    /// Measure, beside the least that could do the same
    #[command(subcommand)]
    Bench(bench::Bench),
    /// Run upstream's conformance tests against a cluster of two machines
    ///
    /// Failed tests are printed by name; target/conformance has the results and the log of each test.
    Conformance(conformance::Options),
    /// Build an image twice, the second time elsewhere, and compare every byte
    Reproducible,
    /// Build the machine's own programs, static, and print where they are
    Programs {
        /// How to compile them
        #[arg(long, value_enum, default_value = "release")]
        build: programs::Build,
    },
}

/// Reads an extension by its word.
fn extensions() -> impl TypedValueParser<Value = ImageExtension> {
    PossibleValuesParser::new(ImageExtension::ALL.map(ImageExtension::word)).map(|word| {
        let found = ImageExtension::ALL.into_iter().find(|one| one.word() == word);
        found.expect("the parser takes no other word")
    })
}

fn main() -> ExitCode {
    match run(Arguments::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if error.is::<Failed>() => ExitCode::FAILURE, // its last line on the terminal is the counts
        Err(error) => {
            say(format_args!("error: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> Result<()> {
    let workspace = Workspace::of_cargo()?;
    let cache = BuildCache::of_user()?;
    match command {
        Command::Up(options) => up::up(&workspace, &cache, &options),
        Command::Test => ci::test(&workspace, &cache),
        Command::Ci => ci::ci(&workspace, &cache),
        Command::Tidy { count: false } => tidy::check(&workspace),
        Command::Tidy { count: true } => write!(stdout(), "{}", tidy::count(&workspace)?).context("print the table"),
        Command::Kernel { source } => {
            let kernel = kernel::build(&cache, source.as_deref())?;
            let head = format!("version {}\nsource-sha256 {}", kernel.version, kernel.source_sha256);
            let paths = [("bzImage", kernel.bzimage), ("config", kernel.config), ("notices", kernel.notices)];
            print(&head, paths)
        }
        Command::Components { with } => {
            let components = components::build(&workspace, &cache)?;
            let extensions = components::of_extensions(&workspace, &cache, &with.into_iter().collect())?;
            for component in components.of_image().into_iter().chain([&components.kubectl]).chain(&extensions) {
                let paths = component.files().chain([("notices", component.notices())]);
                print(&format!("{} {}", component.name, component.version), paths)?;
            }
            Ok(())
        }
        Command::Image { out, build, debug, with, kernel_source } => {
            let profile = if debug { ImageProfile::Debug } else { ImageProfile::Release };
            let wanted = image::Wanted { profile, extensions: with.into_iter().collect(), build, kernel_source };
            let manifest = image::build(&workspace, &cache, &wanted, &out)?;
            let sizes = manifest.artefacts.keys().map(|name| (name.as_str(), out.join(name)));
            print(&format!("root-hash {}", manifest.verity.root_hash), sizes)
        }
        Command::Fuzz { arguments } => {
            let keep = workspace.target().join("fuzz");
            let words = ["--keep".into(), keep.clone().into_os_string()];
            let running = keep.join("TARGET.running");
            programs::run("fuzz", "fuzz", words.into_iter().chain(arguments))
                .with_context(|| format!("the input of a search that was cut short is in `{}`", running.display()))
        }
        Command::Campaign(asked) => campaign::live(&workspace, &cache, asked),
        Command::Bench(bench::Bench::Boot(options)) => bench::boot(&workspace, &cache, &options),
        Command::Bench(bench::Bench::Cluster(options)) => bench::cluster(&workspace, &cache, &options),
        Command::Bench(bench::Bench::Fleets(options)) => bench::fleets(&workspace, &cache, &options),
        Command::Bench(bench::Bench::Kube(options)) => bench::kube(&workspace, &cache, &options),
        Command::Bench(bench::Bench::Network) => bench::program(&workspace, "qemu", "network"),
        Command::Bench(bench::Bench::Desired) => bench::program(&workspace, "cluster", "desired"),
        Command::Bench(bench::Bench::Policies) => bench::program(&workspace, "netpolicy", "policies"),
        Command::Bench(bench::Bench::Nft(options)) => bench::nft(&workspace, &options),
        Command::Conformance(options) => conformance::conformance(&workspace, &cache, &options),
        Command::Reproducible => ci::reproducible(&workspace, &cache),
        Command::Programs { build } => {
            let built = programs::build(&workspace, build, ImageProfile::Release)?;
            let paths = [
                ("init", built.init.path().to_owned()),
                ("pause", built.pause),
                ("web", built.web),
                ("notices", built.notices),
            ];
            print("programs", paths)
        }
    }
}

/// Prints a result that programs may read: a line of its own for each path.
fn print<'a>(head: &str, paths: impl IntoIterator<Item = (&'a str, PathBuf)>) -> Result<()> {
    let lines: String = paths.into_iter().map(|(name, path)| format!("  {name} {}\n", path.display())).collect();
    write!(stdout(), "{head}\n{lines}").context("print the result")
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;
    use xtask::commands::{By, COMMANDS};

    use super::*;

    /// The driver hands over what its table says; both know the same commands and say the same of them.
    #[test]
    fn the_drivers_table_and_these_commands_are_the_same() {
        let ours = Arguments::command();
        let ours: Vec<_> =
            ours.get_subcommands().map(|one| (one.get_name(), one.get_about().map(ToString::to_string))).collect();
        let rows = COMMANDS.iter().filter(|row| row.by != By::Driver);
        let rows: Vec<_> = rows.map(|row| (row.name, Some(row.about.to_owned()))).collect();
        assert_eq!(ours, rows);
    }
}
