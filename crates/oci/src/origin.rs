//! Where the images of a machine's store came from, which says how long they stay.

use std::fmt;

/// Where an image of a store came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ImageOrigin {
    /// The machine's own image carries it.
    Carried,
    /// An owner imported it: kept until an owner removes it.
    Imported,
    /// A registry gave it, for a pod: thrown away when the disk is full.
    Pulled,
}

impl fmt::Display for ImageOrigin {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.pad(match self {
            Self::Carried => "carried",
            Self::Imported => "imported",
            Self::Pulled => "pulled",
        })
    }
}
