//! Bytes as one line of text, for a terminal, a file or a chat: a word that says what they are, base32, and a checksum that tells a
//! mistyped line from a whole one. What the bytes mean is for whoever asked for them.
//!
//! ```text
//! prefix ‖ base32 (RFC 4648, lower case, no padding) of bytes ‖ first 4 bytes of SHA-256(label of the checksum ‖ bytes)
//! ```

use data_encoding::BASE32_NOPAD;
use zeroize::Zeroizing;

use crate::derive::sha256;
use crate::purpose::Purpose;

const CHECKSUM_BYTES: usize = 4;

/// Form of one kind of text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TextForm {
    /// Name of what the bytes are, for messages.
    pub what: &'static str,
    /// Beginning of every such text.
    pub prefix: &'static str,
    /// Label of the checksum.
    pub checksum: Purpose,
    /// Bytes that no such text has more of.
    pub most: usize,
}

/// Why a text is not whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the {what}'s text {problem}")]
pub struct BadText {
    /// Name of what the bytes should be.
    pub what: &'static str,
    /// Problem with the text.
    pub problem: TextProblem,
}

/// Problem with a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TextProblem {
    /// Another beginning than [`TextForm::prefix`].
    #[error("has to begin with {0}")]
    Prefix(&'static str),
    /// Longer than any.
    #[error("has {0} letters, more than any")]
    Letters(usize),
    /// A letter that is not in base32, or a length or last letter that base32 does not give.
    #[error("is not base32 in lower case")]
    Base32,
    /// Too short for a checksum.
    #[error("is cut short")]
    Short,
    /// Another checksum.
    #[error("was mistyped or cut: its checksum is another")]
    Checksum,
}

impl TextForm {
    /// Reads the bytes of a text. Space around it is not part of it.
    ///
    /// # Errors
    /// [`BadText`] says what is wrong with it.
    pub fn read(&self, text: &str) -> Result<Zeroizing<Vec<u8>>, BadText> {
        let bad = |problem| BadText { what: self.what, problem };
        let letters = text.trim().strip_prefix(self.prefix).ok_or(bad(TextProblem::Prefix(self.prefix)))?;
        if letters.len() > BASE32_NOPAD.encode_len(self.most + CHECKSUM_BYTES) {
            return Err(bad(TextProblem::Letters(letters.len())));
        }
        if letters.bytes().any(|letter| letter.is_ascii_uppercase()) {
            return Err(bad(TextProblem::Base32));
        }
        let upper = Zeroizing::new(letters.to_ascii_uppercase());
        let decoded = BASE32_NOPAD.decode(upper.as_bytes()).map_err(|_| bad(TextProblem::Base32))?;
        let mut bytes = Zeroizing::new(decoded);
        let length = bytes.len().checked_sub(CHECKSUM_BYTES).ok_or(bad(TextProblem::Short))?;
        let (body, sum) = bytes.split_at(length);
        if self.sum(body) != sum {
            return Err(bad(TextProblem::Checksum));
        }
        bytes.truncate(length);
        Ok(bytes)
    }

    /// The inverse of [`Self::read`].
    #[must_use]
    pub fn write(&self, bytes: &[u8]) -> Zeroizing<String> {
        let whole = Zeroizing::new([bytes, &self.sum(bytes)].concat());
        let mut letters = Zeroizing::new(BASE32_NOPAD.encode(&whole));
        letters.make_ascii_lowercase();
        Zeroizing::new([self.prefix, &letters].concat())
    }

    fn sum(&self, bytes: &[u8]) -> [u8; CHECKSUM_BYTES] {
        let mut sum = [0; CHECKSUM_BYTES];
        sum.copy_from_slice(&sha256(&[self.checksum.bytes(), bytes])[..CHECKSUM_BYTES]);
        sum
    }
}
