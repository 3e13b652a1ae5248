//! Writes to the Kubernetes API, and which answers settle them.

/// Write of one object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ApiWrite {
    /// Create `body`, JSON, in the collection at `path`.
    Create {
        /// Path of the collection.
        path: String,
        /// The whole object.
        body: String,
    },
    /// Merge `patch` into the object at `path` (RFC 7396).
    Merge {
        /// Path of the object, or of a subresource of it.
        path: String,
        /// The fields that become others.
        patch: String,
    },
    /// Delete the object at `path`.
    Delete {
        /// Path of the object.
        path: String,
        /// `DeleteOptions`: which object of that name is meant.
        options: String,
    },
}

impl ApiWrite {
    /// Whether an answer of this HTTP status settles the write: it was done, or the object is another by now, which its watch tells.
    #[must_use]
    pub const fn is_settled(&self, status: u16) -> bool {
        match self {
            Self::Create { .. } => matches!(status, 201 | 409),
            Self::Merge { .. } => matches!(status, 200 | 404 | 409),
            Self::Delete { .. } => matches!(status, 200 | 202 | 404 | 409),
        }
    }

    /// Where it is written.
    #[must_use]
    pub fn path(&self) -> &str {
        match self {
            Self::Create { path, .. } | Self::Merge { path, .. } | Self::Delete { path, .. } => path,
        }
    }
}
