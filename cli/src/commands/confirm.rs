//! The question before something is lost for good: a person types the name of what they mean.

use std::io::{self, BufRead, IsTerminal, Write};

use crate::failure::{Advice, Code, NOTHING};

/// Why a loss is not confirmed; nothing is lost then.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConfirmError {
    /// There is no terminal, so nobody can be asked.
    #[error("there is no terminal to ask on")]
    NoTerminal,
    /// The answer was another.
    #[error("`{0}` was not confirmed")]
    Refused(String),
    /// The question or its answer got lost.
    #[error("ask whether `{name}` is meant")]
    Ask { name: String, source: io::Error },
}

impl Advice for ConfirmError {
    fn code(&self) -> Code {
        match self {
            Self::NoTerminal | Self::Refused(_) => Code::Usage,
            Self::Ask { .. } => Code::Failed,
        }
    }

    fn unchanged(&self) -> &'static str {
        NOTHING
    }

    fn next(&self) -> Option<String> {
        match self {
            Self::NoTerminal => Some("add --yes".to_owned()),
            Self::Refused(_) | Self::Ask { .. } => None,
        }
    }
}

/// Asks a person at a terminal for the name of what is to be lost; `what` begins the sentence.
pub(super) fn confirm(what: &str, name: &str, out: &mut dyn Write) -> Result<(), ConfirmError> {
    let input = io::stdin();
    if !input.is_terminal() {
        return Err(ConfirmError::NoTerminal);
    }
    let lost = |source| ConfirmError::Ask { name: name.to_owned(), source };
    write!(out, "{what} will be lost; type `{name}` to go on: ").map_err(lost)?;
    out.flush().map_err(lost)?;
    let mut answer = String::new();
    input.lock().read_line(&mut answer).map_err(lost)?;
    if answer.trim_end() == name { Ok(()) } else { Err(ConfirmError::Refused(name.to_owned())) }
}
