//! Why an image was not imported.

use std::error::Error;

use oci::BlobDigest;
use tonic::Status;

/// Failed import: nothing has the image's name that had not before.
#[derive(Debug, thiserror::Error)]
pub enum ImportError<E: Error> {
    /// containerd refuses a step.
    #[error("{step}")]
    Store { step: &'static str, source: Box<Status> },
    /// The source does not give what is asked for.
    #[error(transparent)]
    Source(E),
    /// The source gave other bytes than the digest's.
    #[error("the bytes that came for {0} are others: their digest is not that")]
    Digest(BlobDigest),
    /// The source gave more bytes than the blob has.
    #[error("more bytes came for {0} than it has")]
    Long(BlobDigest),
    /// The disk is too full.
    #[error("the image needs {needed} bytes, its blobs and as much to unpack them, and {free} are free for images")]
    Room { needed: u64, free: u64 },
    /// The name belongs to an image of the root.
    #[error("`{0}` is an image that the machine brings along")]
    Carried(String),
}

impl<E: Error> ImportError<E> {
    /// For `map_err` on a step that containerd may refuse.
    pub(crate) fn step(step: &'static str) -> impl Fn(Status) -> Self {
        move |status| Self::Store { step, source: Box::new(status) }
    }
}
