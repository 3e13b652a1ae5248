//! Digest of a blob, by which everything refers to it. SHA-256 only: registries use no other.

use std::fmt;
use std::io::{self, Read};
use std::str::FromStr;

use aws_lc_rs::digest::{Context, SHA256};
use data_encoding::HEXLOWER;

/// SHA-256 of a blob's bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlobDigest(pub [u8; 32]);

/// Text that is no digest.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no digest: sha256: and 64 of 0-9 and a-f")]
pub struct BadDigest(String);

impl BlobDigest {
    /// Digest of these bytes.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        let mut hash = Context::new(&SHA256);
        hash.update(bytes);
        Self::finished(hash)
    }

    /// Digest of all that is read.
    ///
    /// # Errors
    /// The reader's.
    pub fn of_reader(mut reader: impl Read) -> io::Result<Self> {
        let (mut hash, mut piece) = (Context::new(&SHA256), vec![0; 1 << 16]);
        loop {
            match reader.read(&mut piece)? {
                0 => return Ok(Self::finished(hash)),
                read => hash.update(&piece[..read]),
            }
        }
    }

    fn finished(hash: Context) -> Self {
        Self(hash.finish().as_ref().try_into().expect("a SHA-256 digest has 32 bytes"))
    }
}

impl fmt::Display for BlobDigest {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "sha256:{}", HEXLOWER.encode(&self.0))
    }
}

impl FromStr for BlobDigest {
    type Err = BadDigest;

    fn from_str(text: &str) -> Result<Self, BadDigest> {
        let bytes = text.strip_prefix("sha256:").and_then(|hex| HEXLOWER.decode(hex.as_bytes()).ok());
        let bytes = bytes.and_then(|bytes| bytes.try_into().ok());
        bytes.map(Self).ok_or_else(|| BadDigest(text.chars().take(80).collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_is_written_and_read_in_one_form() {
        let text = "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(BlobDigest::of(b"abc").to_string(), text);
        assert_eq!(text.parse(), Ok(BlobDigest::of(b"abc")));
        assert_eq!(BlobDigest::of_reader(&b"abc"[..]).expect("in memory"), BlobDigest::of(b"abc"));
        let upper = format!("sha256:{}", text[7..].to_uppercase());
        for bad in [&text[7..], &text[..70], &upper, "sha512:00", "sha256:", &format!("{text}0")] {
            assert!(bad.parse::<BlobDigest>().is_err(), "{bad}");
        }
    }
}
