//! `completion SHELL`: the script by which a shell asks this program what the Tab key can mean.

use std::io::Write;

use clap::{Args, ValueEnum};

use crate::complete::{SHELLS, VARIABLE};
use crate::failure::{Advice, Failure, NOTHING};

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  source <(cairnctl completion bash)          now; or as a line of ~/.bashrc
  source <(cairnctl completion zsh)           now; or as a line of ~/.zshrc,
                                              behind compinit
  cairnctl completion fish | source           now; or as a line of
                                              ~/.config/fish/config.fish

Names of clusters come from this host; those of services are asked of the
machine, if it answers and has been met before.")]
pub(crate) struct Arguments {
    /// The shell that is to read it
    shell: Shell,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Shell {
    Bash,
    Zsh,
    Fish,
}

/// There is no script.
#[derive(Debug, thiserror::Error)]
#[error("find this program's own file")]
pub(crate) struct NoScript(#[source] std::io::Error);

impl Advice for NoScript {
    fn unchanged(&self) -> &'static str {
        NOTHING
    }
}

pub(crate) fn run(arguments: &Arguments, out: &mut dyn Write) -> Result<(), Failure> {
    let name = match arguments.shell {
        Shell::Bash => "bash",
        Shell::Zsh => "zsh",
        Shell::Fish => "fish",
    };
    // By its whole path: the script works where this program is not in PATH.
    let program = std::env::current_exe().map_err(NoScript)?;
    let shell = SHELLS.completer(name).expect("each shell of the enum is in the table");
    Ok(shell.write_registration(VARIABLE, "cairnctl", "cairnctl", &program.to_string_lossy(), out)?)
}
