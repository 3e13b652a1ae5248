//! `cargo xtask …`: says its first word within seconds, sees that the machine has what is needed, and hands over to the
//! workshop, which is compiled then, visibly. It must never do what takes long before it has said what it does.

use std::{
    env,
    io::{Write, stdout},
    os::unix::process::CommandExt,
    process::{Command, ExitCode},
};

use anyhow::{Context, Result, bail};
use xtask::{
    cache::BuildCache,
    commands::{self, By},
    fresh, preflight,
    progress::say,
    workspace::Workspace,
};

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    match run(&arguments) {
        Ok(code) => code,
        Err(error) => {
            say(format_args!("error: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &[String]) -> Result<ExitCode> {
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        [] | ["help" | "--help" | "-h"] => print(&commands::help()),
        ["help", name, ..] => run(&[(*name).to_owned(), "--help".to_owned()]),
        [fresh::STAGE, rest @ ..] => fresh::perform(rest),
        [fresh::KEEPER, rest @ ..] => {
            fresh::keep(&Workspace::of_cargo()?, &BuildCache::of_user()?, &fresh::FreshOptions::parse(rest)?)
        }
        [name, rest @ ..] => {
            let Some(row) = commands::find(name) else {
                bail!("there is no command `{name}`; `cargo xtask help` lists them all")
            };
            // Who asks how to use a command needs no machine that could carry it out.
            let asks = rest.iter().take_while(|word| **word != "--").any(|word| matches!(*word, "--help" | "-h"));
            let workspace = Workspace::of_cargo()?;
            if row.by != By::Workshop && !asks {
                say(format_args!("▸ cargo xtask {name}: looking at this machine first"));
                preflight::set_up(&workspace, &BuildCache::of_user()?)?;
            }
            match (row.by, row.name) {
                (By::Driver, "fresh") if asks => print(fresh::USAGE),
                (By::Driver, _) if asks => print(&format!("{}\n\nUsage: cargo xtask {}\n", row.about, row.name)),
                (By::Driver, "fresh") => fresh::run(&workspace, &fresh::FreshOptions::parse(rest)?),
                (By::Driver, _) => Ok(ExitCode::SUCCESS), // packages: that was all
                // Its clone keeps what it compiled, so that lints and tests compile what has changed.
                (_, "ci") if fresh::obstacle()?.is_none() => {
                    fresh::run(&workspace, &fresh::FreshOptions::parse(&["--", "ci"])?)
                }
                (By::SetUp | By::Workshop, _) => workshop(&workspace, arguments),
            }
        }
    }
}

/// Compiles the workshop, with cargo's own progress on the terminal, and becomes it.
fn workshop(workspace: &Workspace, arguments: &[String]) -> Result<ExitCode> {
    let mut cargo = Command::new("cargo");
    // By its manifest, and in the person's own folder: relative paths among the arguments are theirs.
    cargo.args(["run", "--locked", "--manifest-path"]).arg(workspace.path("workshop/Cargo.toml"));
    cargo.arg("--").args(arguments);
    Err(cargo.exec()).context("start cargo")
}

fn print(text: &str) -> Result<ExitCode> {
    write!(stdout(), "{text}").context("print")?;
    Ok(ExitCode::SUCCESS)
}
