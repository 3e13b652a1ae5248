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
    commands::{self, By},
    packages,
    progress::say,
    workspace::Workspace,
};

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say(format_args!("error: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &[String]) -> Result<()> {
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        [] | ["help" | "--help" | "-h"] => print(&commands::help()),
        ["help", name, ..] => run(&[(*name).to_owned(), "--help".to_owned()]),
        [name, rest @ ..] => {
            let Some(row) = commands::find(name) else {
                bail!("there is no command `{name}`; `cargo xtask help` lists them all")
            };
            // Who asks how to use a command needs no machine that could carry it out.
            let asks = rest.iter().any(|word| matches!(*word, "--help" | "-h"));
            match row.by {
                By::Driver if asks => print(&format!("{}\n\nUsage: cargo xtask {}\n", row.about, row.name)),
                By::Driver => packages::install(),
                By::SetUp if !asks => {
                    packages::install()?;
                    workshop(arguments)
                }
                By::SetUp | By::Workshop => workshop(arguments),
            }
        }
    }
}

/// Compiles the workshop, with cargo's own progress on the terminal, and becomes it.
fn workshop(arguments: &[String]) -> Result<()> {
    let workspace = Workspace::of_cargo()?;
    let mut cargo = Command::new("cargo");
    // By its manifest, and in the person's own folder: relative paths among the arguments are theirs.
    cargo.args(["run", "--locked", "--manifest-path"]).arg(workspace.path("workshop/Cargo.toml"));
    cargo.arg("--").args(arguments);
    Err(cargo.exec()).context("start cargo")
}

fn print(text: &str) -> Result<()> {
    write!(stdout(), "{text}").context("print")
}
