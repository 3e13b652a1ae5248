//! A blank machine, as a person who stands before it names it: by the address and the code that its screen shows. Both commands
//! that activate one take these, and no other name for it.

use std::fmt;

use clap::Args;
use keys::activation::{BadCode, Code};
use zeroize::Zeroizing;

use super::Context;
use crate::failure::{Advice, Code as Exit, NOTHING};
use crate::machine::Address;

#[derive(Debug, Args)]
pub(crate) struct OnScreen {
    /// Where the machine is, as its screen shows it
    #[arg(value_name = "ADDRESS")]
    pub(super) at: Address,
    /// The code on its screen
    #[arg(long, value_name = "CODE", value_parser = typed)]
    code: Typed,
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
    pub(super) fn code(&self) -> Code {
        Code::from_text(&self.code.0).expect("it was read before")
    }
}

/// It is named otherwise than by where it is.
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
