//! A blank machine, as a person who stands before it names it: by the address and the code that its screen shows. Both commands
//! that activate one take these, and no other name for it.

use std::path::PathBuf;
use std::{fmt, io};

use clap::Args;
use keys::activation::{BadCode, Code};
use zeroize::Zeroizing;

use super::secret_input;
use crate::context::Context;
use crate::failure::{Advice, Code as Exit, NOTHING};
use crate::machine::Address;

#[derive(Debug, Args)]
pub(crate) struct OnScreen {
    /// Where the machine is, as its screen shows it
    #[arg(value_name = "ADDRESS")]
    pub(super) at: Address,
    /// The code on its screen. Whoever lists the processes of this host sees it
    /// here [default: it is asked for]
    #[arg(long, value_name = "CODE", value_parser = typed, conflicts_with = "code_file")]
    code: Option<Typed>,
    /// Where the code stands instead: a file, or - for a line of standard input
    #[arg(long, value_name = "FILE")]
    code_file: Option<PathBuf>,
}

/// A code as it was typed, and seen to be one.
#[derive(Clone)]
struct Typed(Zeroizing<String>);

impl fmt::Debug for Typed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Typed")
    }
}

/// For the command line: a slip is found before anything is asked.
fn typed(text: &str) -> Result<Typed, BadCode> {
    Code::from_text(text).map(|_| Typed(Zeroizing::new(text.to_owned())))
}

impl OnScreen {
    pub(super) fn code(&self) -> Result<Code, CodeError> {
        let what = format!("code on the screen of {}", self.at);
        let (place, read) = match (&self.code, &self.code_file) {
            (Some(typed), _) => return Ok(Code::from_text(&typed.0).expect("it was read before")),
            (None, Some(path)) => (path.display().to_string(), secret_input::read(path, &what).map(Some)),
            (None, None) => ("the answer".to_owned(), secret_input::ask(&what)),
        };
        match read {
            Ok(Some(text)) => Code::from_text(&text).map_err(|bad| CodeError::Code(place, bad)),
            Ok(None) => Err(CodeError::NoTerminal),
            Err(error) => Err(CodeError::Read(place, error)),
        }
    }
}

/// Why there is no code to meet the machine with.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CodeError {
    /// Standard input is no terminal: nobody can be asked.
    #[error("no code is given, and there is no terminal to ask on")]
    NoTerminal,
    /// No text of a code.
    #[error("read the code in {0}")]
    Read(String, #[source] io::Error),
    /// A text that is no code.
    #[error("understand the code in {0}")]
    Code(String, #[source] BadCode),
}

impl Advice for CodeError {
    fn code(&self) -> Exit {
        Exit::Usage
    }

    fn unchanged(&self) -> &'static str {
        NOTHING
    }

    fn next(&self) -> Option<String> {
        match self {
            Self::NoTerminal => Some("name a file that holds it: --code-file FILE, or - for standard input".to_owned()),
            Self::Code(..) => Some("read it again from the machine's screen: each start has its own".to_owned()),
            Self::Read(..) => None,
        }
    }
}

/// Option that names a blank machine otherwise than by its address.
#[derive(Debug, thiserror::Error)]
#[error("a blank machine is named by its address alone: {0} is none of it")]
pub(crate) struct Named(&'static str);

impl Advice for Named {
    fn code(&self) -> Exit {
        Exit::Usage
    }

    fn unchanged(&self) -> &'static str {
        NOTHING
    }

    fn next(&self) -> Option<String> {
        Some("leave it out".to_owned())
    }
}

/// Refuses options that name another machine than the address does.
pub(crate) fn only_by_address(context: &Context) -> Result<(), Named> {
    match (&context.machine, &context.address) {
        (Some(_), _) => Err(Named("--machine")),
        (None, Some(_)) => Err(Named("--address")),
        (None, None) => Ok(()),
    }
}
