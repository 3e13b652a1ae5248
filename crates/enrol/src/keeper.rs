//! Keeper of the secrets that must not lie beside the disk: the machine's TPM, or in a test a value in memory. Here is decided
//! when it may be asked, and what a secret becomes where there is none.

use keys::binding::{Binding, TpmObject};
use keys::seal::SealError;
use model::{BootClass, Secret};

use crate::config::TpmPresence;

/// A TPM that answers, with what this boot measured into it. A machine without one has no keeper: `None`.
pub trait Keeper {
    /// Why the keeper fails.
    type Error: std::error::Error + Send + Sync + 'static;

    /// The PCR, 4 or 7, that broken firmware left at zero: then nothing is entrusted to it.
    fn zero_pcr(&self) -> Option<u8>;

    /// Keeps `secret` for boots like this one.
    ///
    /// # Errors
    /// The TPM refuses, or cannot be reached.
    fn seal(&mut self, secret: &Secret<32>) -> Result<TpmObject, Self::Error>;

    /// Gives back what it keeps.
    ///
    /// # Errors
    /// [`ReleaseError`] says whether the secret is not for this boot, or the TPM failed.
    fn release(&mut self, object: &TpmObject) -> Result<Secret<32>, ReleaseError<Self::Error>>;
}

/// Why a secret is not released.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReleaseError<E> {
    /// The secret is not for this TPM, or not for what was booted.
    Locked(SealLock),
    /// The TPM failed.
    Failed(E),
}

/// Why a seal does not unseal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SealLock {
    /// Started another way than when it sealed.
    #[error("the machine was sealed when started as {sealed}, and is now started as {now}")]
    BootClass {
        /// Named by the seal, in clear.
        sealed: BootClass,
        /// How this boot was started.
        now: BootClass,
    },
    /// No TPM.
    #[error("the machine was sealed to a TPM, and has none now")]
    NoTpm,
    /// Another storage key: another TPM, or a cleared one.
    #[error("the machine was sealed to another TPM, or its TPM was cleared")]
    OtherTpm,
    /// PCRs have other values: firmware, boot loader, kernel or their order changed.
    #[error("the machine's firmware, boot loader or kernel is not what it was sealed with (PCR policy)")]
    Pcrs,
    /// The firmware does not measure.
    #[error("the machine's firmware measures nothing into PCR {0}: it is broken")]
    ZeroPcr(u8),
    /// The secret lies in clear, and there is a TPM that would have held it.
    #[error("the machine has a working TPM, and its secret lies in clear beside it: somebody else may have written it")]
    InClear,
    /// Unsealed, but the body does not open or makes no sense.
    #[error(transparent)]
    Body(SealError),
}

impl TpmPresence {
    /// State of the machine's TPM, as far as a config and a decision need it.
    pub fn of<K: Keeper>(keeper: Option<&K>) -> Self {
        match keeper.map(Keeper::zero_pcr) {
            None => Self::Absent,
            Some(None) => Self::Present,
            Some(Some(pcr)) => Self::ZeroPcr(pcr),
        }
    }
}

/// The secret that a binding holds.
pub(crate) fn released<K: Keeper>(
    binding: &Binding,
    keeper: Option<&mut K>,
) -> Result<Secret<32>, ReleaseError<K::Error>> {
    match (binding, keeper) {
        (Binding::Unprotected(_), Some(keeper)) if keeper.zero_pcr().is_none() => {
            Err(ReleaseError::Locked(SealLock::InClear))
        }
        (Binding::Unprotected(secret), _) => Ok(secret.duplicate()),
        (Binding::Tpm(_), None) => Err(ReleaseError::Locked(SealLock::NoTpm)),
        (Binding::Tpm(object), Some(keeper)) => match keeper.zero_pcr() {
            Some(pcr) => Err(ReleaseError::Locked(SealLock::ZeroPcr(pcr))),
            None => keeper.release(object),
        },
    }
}

/// Binds `secret` to what holds it from now on: the TPM, or nothing but the file it lies in. Whether the owner allows that was
/// decided before.
pub(crate) fn bound<K: Keeper>(secret: &Secret<32>, keeper: Option<&mut K>) -> Result<Binding, K::Error> {
    match keeper {
        Some(keeper) => keeper.seal(secret).map(Binding::Tpm),
        None => Ok(Binding::Unprotected(secret.duplicate())),
    }
}
