//! Names of users: people who may use a cluster's Kubernetes, and own nothing of it.

use std::fmt;
use std::str::FromStr;

/// Characters of the longest name.
const MOST: usize = 32;

/// Name of a user: `[a-z][a-z0-9-]{0,31}`. None has a colon, so none is one of Kubernetes' own (`system:…`) or of ours (`cairn:…`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct UserName {
    /// ASCII, with zeros behind it.
    bytes: [u8; MOST],
    length: u8,
}

/// A text that names no user.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a user's name has 1 to {MOST} of a-z, 0-9 and hyphens, and begins with a letter")]
pub struct BadUserName;

impl UserName {
    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.bytes[..usize::from(self.length)]).expect("it is read from ASCII")
    }
}

impl FromStr for UserName {
    type Err = BadUserName;

    fn from_str(text: &str) -> Result<Self, BadUserName> {
        let begins = text.as_bytes().first().is_some_and(u8::is_ascii_lowercase);
        let fits = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-');
        if !begins || text.len() > MOST || !text.bytes().all(fits) {
            return Err(BadUserName);
        }
        let mut bytes = [0; MOST];
        bytes[..text.len()].copy_from_slice(text.as_bytes());
        Ok(Self { bytes, length: u8::try_from(text.len()).map_err(|_| BadUserName)? })
    }
}

impl fmt::Display for UserName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl fmt::Debug for UserName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "UserName({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Proves: W9
    #[test]
    fn no_users_name_is_one_of_the_systems() {
        for good in ["a", "alice", "a-1", "z9-", &"a".repeat(32)] {
            assert_eq!(good.parse::<UserName>().map(|name| name.to_string()), Ok(good.to_owned()));
        }
        let long = "a".repeat(33);
        for bad in ["", "A", "1a", "-a", "a.b", "a_b", "system:admin", "cairn:owner", "a b", "a/b", "é", "a\0", &long]
        {
            assert_eq!(bad.parse::<UserName>(), Err(BadUserName), "{bad:?}");
        }
        let names = ["b", "a", "ab"].map(|name| name.parse::<UserName>().expect("a name"));
        assert!(names[1] < names[2] && names[2] < names[0], "by the alphabet");
    }
}
