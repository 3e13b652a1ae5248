//! How a command ends: exit codes, and errors that say what was wrong, what was left unchanged, and what to do next.
//!
//! Every module has its own error type; each says the three things by [`Advice`]. An error knows what was left by the
//! operation it came from, not what its command had done before: a command that has changed something says so itself, by
//! [`Failure::leaving`]. Nothing else prints errors.

use std::error::Error;
use std::fmt;
use std::io::{self, Write};

use crate::screen::printable;

/// The exit codes of every command but `kubectl`, which ends with the code of the program it ran.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Code {
    /// Done as asked.
    Done = 0,
    /// Failed for a reason that has no code of its own.
    Failed = 1,
    /// The command line makes no sense.
    Usage = 2,
    /// The machine does not answer.
    Unreachable = 3,
    /// A proof did not hold, or the machine refused the call.
    Refused = 4,
    /// Time ran out before it happened.
    Timeout = 5,
    /// There is no such cluster, service, condition or file.
    NotFound = 6,
}

/// The codes as the help shows them.
pub(crate) const EXIT_CODES: &str = "\
Exit codes:
  0  done
  1  failed
  2  the command line makes no sense
  3  the machine does not answer
  4  refused: a proof did not hold, or the machine said no
  5  it did not happen in time
  6  no such cluster, service, condition or file
  kubectl ends with the code of the program it runs";

/// Advice that an error gives a person beside its text.
pub(crate) trait Advice: Error + 'static {
    /// Exit code of a command that ends with this error.
    fn code(&self) -> Code {
        Code::Failed
    }

    /// State that the operation left as it was when it failed. There is no default: it has to be thought about.
    fn unchanged(&self) -> &'static str;

    /// Next step for the person: a command that exists, or a thing to look at.
    fn next(&self) -> Option<String> {
        None
    }
}

/// For operations that change nothing unless they succeed.
pub(crate) const NOTHING: &str = "nothing was changed";

/// An error on its way to the person.
#[derive(Debug)]
pub(crate) struct Failure {
    error: Box<dyn Advice>,
    left: Option<String>,
    next: Option<String>,
}

impl Failure {
    /// Exit code of the command that ends with this failure.
    pub(crate) fn code(&self) -> Code {
        self.error.code()
    }

    /// The same, from a command that had done something by then: what there is now.
    pub(crate) fn leaving(self, left: impl Into<String>) -> Self {
        Self { left: Some(left.into()), ..self }
    }

    /// The same, with another thing to do next.
    pub(crate) fn going_on(self, next: impl Into<String>) -> Self {
        Self { next: Some(next.into()), ..self }
    }

    /// Whether it is an error of this type for which that holds.
    pub(crate) fn is<E: Error + 'static>(&self, holds: impl FnOnce(&E) -> bool) -> bool {
        let error: &(dyn Error + 'static) = &*self.error;
        error.downcast_ref::<E>().is_some_and(holds)
    }

    /// Whether the reader of the standard output went away.
    pub(crate) fn is_closed_output(&self) -> bool {
        self.is::<WriteError>(|error| error.0.kind() == io::ErrorKind::BrokenPipe)
    }

    /// The error's text, with the chain of causes.
    pub(crate) fn reason(&self) -> String {
        let mut text = self.error.to_string();
        let mut cause = self.error.source();
        while let Some(error) = cause {
            text = format!("{text}: {error}");
            cause = error.source();
        }
        text
    }

    /// Next step for the person, if anything helps.
    pub(crate) fn next(&self) -> Option<String> {
        self.next.clone().or_else(|| self.error.next())
    }

    /// Prints the three things.
    pub(crate) fn print(&self, to: &mut dyn Write) -> io::Result<()> {
        let text = self.reason();
        // A machine's words may be among them: none of them steers the terminal, and each line stays a line.
        for (number, line) in text.lines().enumerate() {
            writeln!(to, "{}{}", if number == 0 { "error: " } else { "  " }, printable(line))?;
        }
        writeln!(to, "  {}", self.left.as_deref().unwrap_or_else(|| self.error.unchanged()))?;
        match self.next() {
            Some(next) => writeln!(to, "  next: {}", printable(&next)),
            None => Ok(()),
        }
    }
}

impl<E: Advice> From<E> for Failure {
    fn from(error: E) -> Self {
        Self { error: Box::new(error), left: None, next: None }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.error, f)
    }
}

/// The terminal or pipe a command writes to is gone.
#[derive(Debug, thiserror::Error)]
#[error("write the answer")]
pub(crate) struct WriteError(#[source] pub io::Error);

impl Advice for WriteError {
    /// Answers are written when all else is done.
    fn unchanged(&self) -> &'static str {
        "what was asked for is done; only its answer is missing"
    }
}

/// The program itself cannot run.
#[derive(Debug, thiserror::Error)]
#[error("prepare this program to wait for a machine")]
pub(crate) struct StartError(#[source] pub io::Error);

impl Advice for StartError {
    fn unchanged(&self) -> &'static str {
        NOTHING
    }
}

impl From<io::Error> for Failure {
    /// The only bare I/O error a command meets is that of its own output; files have errors that name them.
    fn from(error: io::Error) -> Self {
        WriteError(error).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("open `door`")]
    struct Locked(#[source] io::Error);

    impl Advice for Locked {
        fn code(&self) -> Code {
            Code::Refused
        }

        fn unchanged(&self) -> &'static str {
            NOTHING
        }

        fn next(&self) -> Option<String> {
            Some("find the key".to_owned())
        }
    }

    /// Proves: Q6
    #[test]
    fn an_error_says_what_was_wrong_what_was_left_and_what_to_do() {
        let printed = |failure: &Failure| {
            let mut text = Vec::new();
            failure.print(&mut text).unwrap();
            String::from_utf8(text).unwrap()
        };
        let failure = Failure::from(Locked(io::Error::other("no key")));
        assert_eq!(printed(&failure), "error: open `door`: no key\n  nothing was changed\n  next: find the key\n");
        assert_eq!(failure.code(), Code::Refused);
        let late = failure.leaving("the window is open").going_on("close it");
        assert_eq!(printed(&late), "error: open `door`: no key\n  the window is open\n  next: close it\n");
        assert_eq!(late.code(), Code::Refused);
    }

    #[test]
    fn an_answer_that_cannot_be_written_does_not_undo_the_command() {
        let failure = Failure::from(io::Error::other("no space"));
        let mut text = Vec::new();
        failure.print(&mut text).unwrap();
        let text = String::from_utf8(text).unwrap();
        assert!(text.contains("is done") && !text.contains(NOTHING), "{text}");
    }

    #[test]
    fn the_help_lists_every_code() {
        for code in
            [Code::Done, Code::Failed, Code::Usage, Code::Unreachable, Code::Refused, Code::Timeout, Code::NotFound]
        {
            assert!(EXIT_CODES.contains(&format!("\n  {}  ", code as u8)), "{code:?}");
        }
    }
}
