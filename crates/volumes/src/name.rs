//! Names of volumes, and of the folders that hold them.

use std::fmt;

use model::Uuid;

/// Id of a volume: the uid of the claim that it was made for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct VolumeId(Uuid);

/// Not a UUID in its canonical spelling (RFC 9562, section 4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a volume is named by a UUID in lower case, and this is none")]
pub struct BadVolumeId;

impl VolumeId {
    /// Reads a name; there is one spelling of each.
    ///
    /// # Errors
    /// [`BadVolumeId`].
    pub fn parse(text: &str) -> Result<Self, BadVolumeId> {
        let uuid: Uuid = text.parse().map_err(|_| BadVolumeId)?;
        if text.bytes().any(|byte| byte.is_ascii_uppercase()) { Err(BadVolumeId) } else { Ok(Self(uuid)) }
    }
}

impl fmt::Display for VolumeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Name of a folder among the volumes, by which it is known how far that volume has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum EntryName {
    /// `.new-<uuid>`: being made, and promised to nobody yet.
    Unfinished(VolumeId),
    /// `<uuid>`: a whole volume.
    Whole(VolumeId),
    /// `.gone-<uuid>`: deleted by a call that named it.
    Leaving(VolumeId),
}

const UNFINISHED: &str = ".new-";
const LEAVING: &str = ".gone-";

impl EntryName {
    /// Reads a name of a folder. None: it is of somebody else, and not to be touched.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        let id = |text| VolumeId::parse(text).ok();
        if let Some(rest) = name.strip_prefix(UNFINISHED) {
            return id(rest).map(Self::Unfinished);
        }
        if let Some(rest) = name.strip_prefix(LEAVING) {
            return id(rest).map(Self::Leaving);
        }
        id(name).map(Self::Whole)
    }
}

impl fmt::Display for EntryName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unfinished(id) => write!(f, "{UNFINISHED}{id}"),
            Self::Whole(id) => id.fmt(f),
            Self::Leaving(id) => write!(f, "{LEAVING}{id}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TEXT: &str = "01234567-89ab-cdef-0123-456789abcdef";

    /// Proves: Q1
    #[test]
    fn a_volume_has_one_spelling_and_no_path() {
        assert_eq!(VolumeId::parse(TEXT).map(|id| id.to_string()), Ok(TEXT.to_owned()));
        let upper = TEXT.to_uppercase();
        let (below, spaced, braced) = (format!("{TEXT}/"), format!(" {TEXT}"), format!("{{{TEXT}}}"));
        let wrong =
            ["", ".", "..", "../..", "/", "a", &TEXT[1..], &upper, &below, &spaced, &braced, &TEXT.replace('-', "")];
        for text in wrong {
            assert_eq!(VolumeId::parse(text), Err(BadVolumeId), "`{text}`");
        }
    }

    #[test]
    fn names_of_folders_say_how_far_a_volume_is() {
        let id = VolumeId::parse(TEXT).expect("a name");
        for (name, entry) in [
            (TEXT.to_owned(), EntryName::Whole(id)),
            (format!(".new-{TEXT}"), EntryName::Unfinished(id)),
            (format!(".gone-{TEXT}"), EntryName::Leaving(id)),
        ] {
            assert_eq!(EntryName::parse(&name), Some(entry));
            assert_eq!(entry.to_string(), name);
        }
        for foreign in
            ["lost+found", ".new-", ".gone-x", &format!(".new-.new-{TEXT}"), &format!("new-{TEXT}"), "..", ""]
        {
            assert_eq!(EntryName::parse(foreign), None, "`{foreign}`");
        }
    }

    proptest! {
        /// Proves: A6
        #[test]
        fn what_is_read_is_written_the_same(text in "\\PC{0,40}|(\\.new-|\\.gone-)?[0-9a-fA-F-]{34,38}") {
            if let Some(entry) = EntryName::parse(&text) {
                prop_assert_eq!(entry.to_string(), text);
            }
        }
    }
}
