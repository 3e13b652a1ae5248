//! The seal of a machine: opened with what the TPM gives, or what keeps it shut. Must never ask the TPM for a secret that was sealed
//! when the machine was started another way.

use keys::attempt::Attempt;
use keys::binding::Binding;
use keys::directory::DirectoryMinimum;
use keys::seal::{self, Body, Candidate, Clear, SealError, SealFiles};
use model::{BootClass, SealRoot};

use crate::keeper::{Keeper, ReleaseError, SealLock, released};

/// A seal that opened.
#[derive(Debug)]
pub struct Seal {
    /// The seal's clear part, which anybody can read.
    pub clear: Clear,
    /// The seal's body, which only this machine opens.
    pub body: Body,
    /// Counts the seals of this machine.
    pub(crate) generation: u64,
}

impl Seal {
    /// Which directories it takes.
    pub(crate) fn minimum(&self) -> DirectoryMinimum {
        self.body.directory_minimum(self.generation)
    }
}

/// An attempt, and what keeps its seal.
#[derive(Debug)]
pub(crate) struct Begun {
    pub(crate) attempt: Attempt,
    /// Name of the TPM's storage key; none without a TPM.
    pub(crate) storage_key_name: Option<[u8; 34]>,
}

/// Result of reading and opening the seal.
pub(crate) enum Unsealed {
    None,
    Newer(u32),
    Malformed(SealError),
    /// A member's clear part, and what keeps the seal shut.
    Locked(Option<Box<Clear>>, SealLock),
    Attempt(Box<Begun>),
    Open(Box<Seal>),
}

/// Opens the first seal that opens, those of a TPM before those in clear and the newest first; otherwise says what keeps
/// the first one shut.
pub(crate) fn unseal<K: Keeper>(
    slots: [&[u8]; 2],
    boot_class: BootClass,
    mut keeper: Option<&mut K>,
) -> Result<Unsealed, K::Error> {
    let candidates = match seal::read(slots).0 {
        SealFiles::None => return Ok(Unsealed::None),
        SealFiles::Newer(version) => return Ok(Unsealed::Newer(version)),
        SealFiles::Malformed(error) => return Ok(Unsealed::Malformed(error)),
        SealFiles::Candidates(candidates) => candidates,
    };
    let mut shut = Unsealed::None;
    for candidate in candidates {
        let root = match root(&candidate, boot_class, keeper.as_deref_mut()) {
            Ok(root) => Ok(root),
            Err(ReleaseError::Locked(locked)) => Err(locked),
            Err(ReleaseError::Failed(error)) => return Err(error),
        };
        match opened(candidate, root) {
            locked @ Unsealed::Locked(..) if matches!(shut, Unsealed::None) => shut = locked,
            Unsealed::Locked(..) => {}
            open @ (Unsealed::Open(..) | Unsealed::Attempt(_)) => return Ok(open),
            Unsealed::None | Unsealed::Newer(_) | Unsealed::Malformed(_) => unreachable!("there is a candidate"),
        }
    }
    Ok(shut)
}

fn root<K: Keeper>(
    candidate: &Candidate,
    boot_class: BootClass,
    keeper: Option<&mut K>,
) -> Result<SealRoot, ReleaseError<K::Error>> {
    let (binding, sealed) = (candidate.binding(), candidate.boot_class());
    // Without a TPM nothing was measured, so how the machine was started makes no difference.
    if matches!(binding, Binding::Tpm(_)) && sealed != boot_class {
        return Err(ReleaseError::Locked(SealLock::BootClass { sealed, now: boot_class }));
    }
    released(binding, keeper).map(SealRoot)
}

fn opened(candidate: Candidate, root: Result<SealRoot, SealLock>) -> Unsealed {
    match candidate {
        Candidate::Member(sealed) => {
            match (sealed.generation(), root.and_then(|root| sealed.open(&root).map_err(SealLock::Body))) {
                (generation, Ok(body)) => Unsealed::Open(Box::new(Seal { clear: sealed.clear, body, generation })),
                (_, Err(locked)) => Unsealed::Locked(Some(Box::new(sealed.clear)), locked),
            }
        }
        Candidate::Attempt(sealed) => match root.and_then(|root| sealed.open(&root).map_err(SealLock::Body)) {
            Ok(attempt) => {
                let storage_key_name = sealed.clear.binding.storage_key_name();
                Unsealed::Attempt(Box::new(Begun { attempt, storage_key_name }))
            }
            Err(locked) => Unsealed::Locked(None, locked),
        },
    }
}
