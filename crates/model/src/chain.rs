//! How an error is told to a person: itself, then what caused it, each once.

use std::error::Error;
use std::fmt;

/// An error and its causes in one line, for the place where it is shown. Texts of errors do not hold their causes: here
/// they are put together.
///
/// ```
/// #[derive(Debug, thiserror::Error)]
/// #[error("read the seal")]
/// struct Read(#[source] std::fmt::Error);
/// let error = Read(std::fmt::Error);
/// assert_eq!(model::Chain(&error).to_string(), format!("read the seal: {}", std::fmt::Error));
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Chain<'a>(pub &'a (dyn Error + 'a));

impl fmt::Display for Chain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)?;
        let mut source = self.0.source();
        while let Some(error) = source {
            write!(f, ": {error}")?;
            source = error.source();
        }
        Ok(())
    }
}
