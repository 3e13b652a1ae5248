//! The word by which a network's proxy tells programs of its owner from those of other users of the host: the loopback is
//! everybody's. It is drawn once and lies beside the network's record, in a file that its owner alone reads.

use std::fmt;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::rand;
use serde::{Deserialize, Serialize};

/// The user that goes with it: RFC 1929 asks for one.
pub(super) const USER: &str = "cairn";
/// Bytes that are drawn. Nobody guesses so many, at whatever rate.
const BYTES: usize = 16;

/// Word of a proxy: 32 hex digits.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ProxyWord(String);

impl fmt::Debug for ProxyWord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ProxyWord")
    }
}

/// A text that is no word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a proxy's word is 32 hex digits")]
pub struct BadProxyWord;

impl TryFrom<String> for ProxyWord {
    type Error = BadProxyWord;

    fn try_from(text: String) -> Result<Self, BadProxyWord> {
        let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        if text.len() == 2 * BYTES && text.bytes().all(is_digit) { Ok(Self(text)) } else { Err(BadProxyWord) }
    }
}

impl From<ProxyWord> for String {
    fn from(word: ProxyWord) -> Self {
        word.0
    }
}

impl ProxyWord {
    /// A fresh one.
    ///
    /// # Errors
    /// When there are no random bytes.
    pub fn draw() -> io::Result<Self> {
        let mut bytes = [0; BYTES];
        rand::fill(&mut bytes).map_err(|_| io::Error::other("draw random bytes"))?;
        Ok(Self(bytes.iter().map(|byte| format!("{byte:02x}")).collect()))
    }

    /// The word of the network with its files in this directory, drawn if there is none. Whatever else the file holds is replaced:
    /// nothing is lost with a word.
    pub(super) fn of(directory: &Path) -> io::Result<Self> {
        let path = directory.join("proxy-word");
        match fs::read(&path) {
            Ok(text) => {
                let text = String::from_utf8(text).unwrap_or_default();
                if let Ok(word) = Self::try_from(text) {
                    return Ok(word);
                }
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        let (word, fresh) = (Self::draw()?, directory.join("proxy-word.new"));
        match fs::remove_file(&fresh) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
        File::options().create_new(true).write(true).mode(0o600).open(&fresh)?.write_all(word.0.as_bytes())?;
        fs::rename(fresh, path)?;
        Ok(word)
    }

    /// As it stands in a URL.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// Whether somebody who says this knows it.
    pub(super) fn is_known_to(&self, user: &[u8], word: &[u8]) -> bool {
        user == USER.as_bytes() && verify_slices_are_equal(self.0.as_bytes(), word).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    /// Proves: S9
    #[test]
    fn a_networks_word_is_drawn_once_and_its_owners_alone() {
        let [one, other] = [(); 2].map(|()| tempfile::tempdir().unwrap());
        let word = ProxyWord::of(one.path()).unwrap();
        assert_eq!(ProxyWord::of(one.path()).unwrap(), word);
        assert_ne!(ProxyWord::of(other.path()).unwrap(), word);
        let file = one.path().join("proxy-word");
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(format!("{word:?}"), "ProxyWord");
        // A cut while it was written.
        for left in ["", "0123", "XYZ"] {
            fs::write(&file, left).unwrap();
            assert_ne!(ProxyWord::of(one.path()).unwrap(), word, "{left}");
        }
    }

    #[test]
    fn whoever_says_it_with_its_user_knows_it() {
        let word = ProxyWord::try_from("0123456789abcdef0123456789abcdef".to_owned()).unwrap();
        assert!(word.is_known_to(b"cairn", word.expose().as_bytes()));
        let other = "0123456789abcdef0123456789abcdee";
        for (user, said) in [("cairn", other), ("root", word.expose()), ("cairn", ""), ("cairn", "0123")] {
            assert!(!word.is_known_to(user.as_bytes(), said.as_bytes()), "{user} {said}");
        }
        for bad in ["", "0123", "0123456789ABCDEF0123456789abcdef", "0123456789abcdef0123456789abcdef0"] {
            assert_eq!(ProxyWord::try_from(bad.to_owned()), Err(BadProxyWord), "{bad}");
        }
    }
}
