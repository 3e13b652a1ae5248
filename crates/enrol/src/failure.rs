//! Failures of a machine's parts, and the paragraph that tells a person so: which step, why, and what to do.

use std::error::Error;

use model::Chain;

use crate::step::Step;

/// Part of the machine that does not work, and why.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The TPM is there and fails.
    #[error(
        "the TPM is there and does not work: {}. Nothing was changed. Restart the machine; if that does not help, look at \
         the TPM's settings in the firmware",
        Chain(&**.0)
    )]
    Tpm(Cause),
    /// A new cluster's keys cannot be made.
    #[error("could not make the cluster's keys: {}. Nothing was written", Chain(&**.0))]
    Keys(Cause),
    /// The effects that open the data cannot be made.
    #[error("could not make ready to open the data: {}. Nothing was written", Chain(&**.0))]
    Ready(Cause),
    /// A step of create failed.
    #[error("could not {0}: {cause}. The machine goes on, or starts over, when it is restarted", cause = Chain(&**.1))]
    Create(Step, Cause),
    /// A step of opening the data failed.
    #[error("could not {0}: {cause}. The data was left as it was", cause = Chain(&**.1))]
    Open(Step, Cause),
    /// A layer above the header refuses the data; nothing was written.
    #[error(
        "the data partition opens, but {} refuses it. Nothing was written. `cairnctl machine logs` has the kernel's \
         words ({})",
        .0.name(),
        Chain(&**.1)
    )]
    Refused(Layer, Cause),
    /// The data is open, and a file on it cannot be used. Nothing was changed or erased.
    #[error("{}", damaged(&**.0))]
    Damaged(Cause),
}

/// Cause of a failure; it is told as part of the failure.
pub type Cause = Box<dyn Error + Send + Sync>;

/// The layers above the header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Layer {
    /// dm-integrity.
    Integrity,
    /// dm-crypt.
    Crypt,
    /// XFS.
    Filesystem,
}

/// Message to a person about files on the data partition that cannot be used, because of `cause`.
#[must_use]
pub fn damaged(cause: &dyn Error) -> String {
    format!(
        "the data partition opens, but a file on it cannot be used: {}. Nothing was erased. Where the cluster has other \
         coordinators: `cairnctl machine remove NAME --lost`, then have the machine join anew with a fresh image. What a \
         lone coordinator keeps is on this disk alone: leave it as it is, check disk, cables and memory, and start the \
         machine again",
        Chain(cause)
    )
}

impl Layer {
    const fn name(self) -> &'static str {
        match self {
            Self::Integrity => "dm-integrity",
            Self::Crypt => "dm-crypt",
            Self::Filesystem => "XFS",
        }
    }
}
