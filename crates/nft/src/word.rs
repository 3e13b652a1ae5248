//! Words of one line: names and numbers, quoted texts, and the signs that stand for themselves. Knows no command.

/// Why a word is not taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WordError {
    /// The word has no place there, or is not known.
    #[error("unexpected `{0}`")]
    Unexpected(String),
    /// A word is missing.
    #[error("unexpected end of the line")]
    End,
    /// A text has no end.
    #[error("a quotation mark without its end")]
    Quote,
    /// An escape in a text that is not known.
    #[error("unknown escape `\\{0}`")]
    Escape(char),
}

/// Signs that end a word, and are words of their own.
const SIGNS: &[char] = &['{', '}', ',', ';'];

/// Word of a line.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Word {
    /// Name, number, operator or sign.
    Bare(String),
    /// Text between quotation marks, without them.
    Quoted(String),
}

/// Words of a line that are still to be read.
#[derive(Debug, Clone)]
pub(crate) struct Words {
    words: Vec<Word>,
    next: usize,
}

impl Words {
    /// Splits a line. A comment, from `#` on, is left out.
    ///
    /// # Errors
    /// A quotation mark without its end, or an escape that is not known.
    pub(crate) fn of(line: &str) -> Result<Self, WordError> {
        let mut words = Vec::new();
        let mut rest = line.trim_start();
        while let Some(first) = rest.chars().next() {
            let (word, length) = match first {
                '#' => break,
                '"' => quoted(&rest[1..]).map(|(text, length)| (Word::Quoted(text), length + 1))?,
                sign if SIGNS.contains(&sign) => (Word::Bare(sign.to_string()), 1),
                _ => {
                    let end = |char: char| char.is_whitespace() || char == '"' || SIGNS.contains(&char);
                    let length = rest.find(end).unwrap_or(rest.len());
                    (Word::Bare(rest[..length].to_owned()), length)
                }
            };
            words.push(word);
            rest = rest[length..].trim_start();
        }
        Ok(Self { words, next: 0 })
    }

    pub(crate) fn is_over(&self) -> bool {
        self.next >= self.words.len()
    }

    /// The word `ahead` words behind the next one, if it is a bare one.
    pub(crate) fn ahead(&self, ahead: usize) -> Option<&str> {
        match self.words.get(self.next + ahead) {
            Some(Word::Bare(word)) => Some(word),
            Some(Word::Quoted(_)) | None => None,
        }
    }

    /// The next word, if it is a bare one, which stays the next.
    pub(crate) fn peek(&self) -> Option<&str> {
        self.ahead(0)
    }

    /// Takes the next word if it is this one.
    pub(crate) fn accept(&mut self, word: &str) -> bool {
        let is_next = self.peek() == Some(word);
        self.next += usize::from(is_next);
        is_next
    }

    /// Takes this word.
    ///
    /// # Errors
    /// Another word is next, or none.
    pub(crate) fn expect(&mut self, word: &'static str) -> Result<(), WordError> {
        if self.accept(word) { Ok(()) } else { Err(self.unexpected()) }
    }

    /// Takes a bare word.
    ///
    /// # Errors
    /// None is next.
    pub(crate) fn bare(&mut self) -> Result<String, WordError> {
        let word = self.peek().map(str::to_owned).ok_or_else(|| self.unexpected())?;
        self.next += 1;
        Ok(word)
    }

    /// Takes a name or value, which may be quoted.
    ///
    /// # Errors
    /// A sign is next, or nothing.
    pub(crate) fn text(&mut self) -> Result<String, WordError> {
        let text = match self.words.get(self.next) {
            Some(Word::Quoted(text)) => text.clone(),
            Some(Word::Bare(word)) if !word.starts_with(SIGNS) => word.clone(),
            Some(Word::Bare(_)) | None => return Err(self.unexpected()),
        };
        self.next += 1;
        Ok(text)
    }

    /// Takes a number, decimal or hexadecimal behind `0x`.
    ///
    /// # Errors
    /// Something else is next.
    pub(crate) fn number(&mut self) -> Result<u32, WordError> {
        let number = self.peek().and_then(number).ok_or_else(|| self.unexpected())?;
        self.next += 1;
        Ok(number)
    }

    /// The error for the next word, which has no place there.
    pub(crate) fn unexpected(&self) -> WordError {
        match self.words.get(self.next) {
            Some(Word::Bare(word) | Word::Quoted(word)) => WordError::Unexpected(word.clone()),
            None => WordError::End,
        }
    }
}

/// Reads a number, decimal or hexadecimal behind `0x`.
pub(crate) fn number(text: &str) -> Option<u32> {
    let digits = |digits: &str| digits.chars().all(|digit| digit.is_ascii_alphanumeric());
    match text.strip_prefix("0x") {
        Some(hexadecimal) if digits(hexadecimal) => u32::from_str_radix(hexadecimal, 16).ok(),
        Some(_) => None,
        None if digits(text) => text.parse().ok(),
        None => None,
    }
}

/// Text up to the quotation mark that ends it, and how many bytes were read for it. kube-proxy quotes as Go's `%q` does, and its texts
/// are printable: a quotation mark and a backslash are all that is escaped.
fn quoted(rest: &str) -> Result<(String, usize), WordError> {
    let mut text = String::new();
    let mut chars = rest.char_indices();
    loop {
        match chars.next() {
            Some((place, '"')) => return Ok((text, place + 1)),
            Some((_, '\\')) => match chars.next() {
                Some((_, escaped @ ('"' | '\\'))) => text.push(escaped),
                Some((_, other)) => return Err(WordError::Escape(other)),
                None => return Err(WordError::Quote),
            },
            Some((_, char)) => text.push(char),
            None => return Err(WordError::Quote),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_split_at_spaces_and_signs() {
        let mut words = Words::of("add  chain\tx{ comment \"a \\\"b\\\" {\" ; } # behind").expect("they are words");
        for word in ["add", "chain", "x", "{", "comment"] {
            assert_eq!(words.bare().as_deref(), Ok(word));
        }
        assert_eq!(words.peek(), None, "a text is no bare word");
        assert_eq!(words.text().as_deref(), Ok("a \"b\" {"));
        assert!(words.accept(";") && !words.is_over() && words.accept("}") && words.is_over());
        assert_eq!(words.bare(), Err(WordError::End));
    }

    #[test]
    fn a_text_without_its_end_or_of_another_escape_is_refused() {
        for (line, error) in
            [("x \"abc", WordError::Quote), ("x \"abc\\", WordError::Quote), ("\"a\\n\"", WordError::Escape('n'))]
        {
            assert_eq!(Words::of(line).err(), Some(error), "{line}");
        }
    }

    #[test]
    fn numbers_are_decimal_or_hexadecimal() {
        let read = ["0", "16384", "0x4000", "4294967295", "4294967296", "0x", "+1", "-1", "1s", "0x+1", ""].map(number);
        let known = [Some(0), Some(0x4000), Some(0x4000), Some(u32::MAX)];
        assert_eq!(read[..4], known);
        assert!(read[4..].iter().all(Option::is_none), "{read:?}");
    }
}
