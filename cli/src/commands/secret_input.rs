//! A secret's text from a file, from standard input, or typed at a terminal: none of these stands in the process list, as an
//! argument does. What the text means is for whoever asked for it.

use std::fs::File;
use std::io::{self, BufRead, IsTerminal, Read, Write};
use std::path::Path;

use zeroize::Zeroizing;

/// More than the text of any ticket or code has.
const MOST: u64 = 16 << 10;

/// The text in the file at `path`; for `-` a line of standard input, for which a terminal is asked `what`.
pub(super) fn read(path: &Path, what: &str) -> io::Result<Zeroizing<String>> {
    if path == Path::new("-") {
        let input = io::stdin();
        let from = if input.is_terminal() { From::Terminal } else { From::Pipe };
        return line(&mut input.lock(), from, what, &mut io::stderr());
    }
    let mut text = Zeroizing::new(String::new());
    File::open(path)?.take(MOST).read_to_string(&mut text)?;
    Ok(text)
}

/// The same typed by a person; none where standard input is no terminal.
pub(super) fn ask(what: &str) -> io::Result<Option<Zeroizing<String>>> {
    if io::stdin().is_terminal() { read(Path::new("-"), what).map(Some) } else { Ok(None) }
}

/// Source of the standard input.
#[derive(Clone, Copy, PartialEq, Eq)]
enum From {
    Terminal,
    Pipe,
}

/// Reads one line, so that a second secret may follow in the next.
fn line(input: &mut dyn BufRead, from: From, what: &str, questions: &mut dyn Write) -> io::Result<Zeroizing<String>> {
    if from == From::Terminal {
        write!(questions, "{what}: ")?;
        questions.flush()?;
    }
    let mut text = Zeroizing::new(String::new());
    input.take(MOST).read_line(&mut text)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Proves: Q6
    #[test]
    fn two_secrets_are_two_lines_and_only_a_person_is_asked() {
        let (mut input, mut asked) = (&b"one\ntwo\n"[..], Vec::new());
        let mut next = |from| line(&mut input, from, "the code", &mut asked).unwrap();
        assert_eq!(*next(From::Pipe), "one\n");
        assert_eq!(*next(From::Terminal), "two\n");
        assert_eq!(*next(From::Pipe), "");
        assert_eq!(asked, b"the code: ");
    }
}
