//! Parsers of what comes with container images.

use std::io::{Cursor, Read};

use oci::{Archive, ArchiveError, ImageManifest, ImageName};

use crate::{ParseVerdict, outcome};

/// A manifest: blobs are listed once each.
pub fn manifest(bytes: &[u8]) -> ParseVerdict {
    let parsed = ImageManifest::parse(bytes);
    if let Ok(parsed) = &parsed {
        let mut digests: Vec<_> = parsed.blobs().iter().map(|blob| blob.digest).collect();
        let listed = digests.len();
        digests.sort();
        digests.dedup();
        assert_eq!(digests.len(), listed, "a blob is listed twice");
    }
    outcome(&parsed)
}

/// A name: its complete form is a name, and the same.
pub fn name(bytes: &[u8]) -> ParseVerdict {
    let Ok(text) = str::from_utf8(bytes) else { return ParseVerdict::Refused };
    let parsed = ImageName::parse(text);
    if let Ok(name) = &parsed {
        assert_eq!(ImageName::parse(name.as_str()).as_ref(), Ok(name));
    }
    outcome(&parsed)
}

/// An archive: each blob of each of its images is there, as long as its manifest says.
pub fn archive(bytes: &[u8]) -> ParseVerdict {
    let images = || -> Result<(), ArchiveError> {
        let mut archive = Archive::open(Cursor::new(bytes))?;
        for image in archive.images()? {
            for blob in image.parts.blobs() {
                let mut read = Vec::new();
                archive.blob(&image, &blob.digest)?.read_to_end(&mut read)?;
                assert_eq!(read.len() as u64, blob.size, "a blob is cut off");
            }
        }
        Ok(())
    };
    outcome(&images())
}
