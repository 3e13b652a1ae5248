//! The machine's TPM 2.0: the device file under `attest`, what was measured into it, seals to that, and its end for this
//! boot, by the cap and by closing what root could do harm with.
//!
//! A machine without a TPM is a value (`None`), not an error. The PCRs are read once, before the cap, and every seal of
//! this boot is made for that reading.

use std::fmt;
use std::fs::{self, File};
use std::io::{self, Read, Write};

use attest::{
    BrokenFirmware, CapOf, GuardedPart, ObjectName, PcrValues, SealedObject, SeedError, check_firmware, sealing_pcrs,
};
use enrol::keeper::{Keeper, ReleaseError, SealLock};
use keys::binding::TpmObject;
use keys::data_key::Holder;
use keys::derive::Unauthentic;
use keys::seal::SealError;
use model::{BootClass, Secret};

/// The TPM itself, not the kernel's resource manager over it (`/dev/tpmrm0`): nobody shares it with PID 1, and the manager
/// saves and loads every context around every command.
const DEVICE: &str = "/dev/tpm0";
/// Says which TPM it is (`drivers/char/tpm/tpm-sysfs.c`). A TPM 1.2 is none here.
const VERSION: &str = "/sys/class/tpm/tpm0/tpm_version_major";
/// No answer is longer (`TPM_BUFSIZE` of `drivers/char/tpm/tpm.h`).
const MOST_ANSWER_BYTES: usize = 4096;

/// Failure of the TPM, or of the way to it.
pub(crate) type TpmError = attest::TpmError<io::Error>;

/// Why a TPM that is there cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The device does not open.
    #[error("open `{DEVICE}`")]
    Open(#[source] io::Error),
    /// The TPM gives no random bytes, or the kernel does not take them.
    #[error("give the kernel's pool random bytes")]
    Random(#[source] SeedError<io::Error, io::Error>),
    /// The boot class has no PCRs.
    #[error(transparent)]
    Class(#[from] attest::ReservedBootClass),
    /// The PCRs cannot be read.
    #[error("read the TPM's PCRs")]
    Pcrs(#[source] TpmError),
    /// A secret could not be sealed.
    #[error("seal to the TPM")]
    Seal(#[source] TpmError),
    /// A secret could not be unsealed, for no reason that the seal's state explains.
    #[error("unseal with the TPM")]
    Unseal(#[source] attest::UnsealError<io::Error>),
    /// PCR 11 was not extended: whatever runs later could unseal.
    #[error("cap the TPM")]
    Cap(#[source] TpmError),
    /// Root could clear it, or give it a password, and no later boot would open the disk.
    #[error("close the TPM to services")]
    Close(#[source] TpmError),
}

/// A TPM and what this boot measured into it.
pub(crate) struct Tpm {
    tpm: attest::Tpm<Device>,
    measured: PcrValues,
    firmware: Result<(), BrokenFirmware>,
}

impl fmt::Debug for Tpm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tpm").field("firmware", &self.firmware).finish_non_exhaustive()
    }
}

/// Case in which the use of the TPM ends.
#[derive(Debug, Clone, Copy)]
pub(crate) enum EndOf {
    /// This member is to run services.
    Serving(Holder),
    /// A machine waits for its next boot and runs nothing but its API: that boot undoes whatever is done to the TPM. No
    /// holder where no seal opened.
    Waiting(Option<Holder>),
}

impl EndOf {
    fn cap(self) -> CapOf {
        match self {
            Self::Serving(holder) | Self::Waiting(Some(holder)) => {
                CapOf::Member { cluster: holder.cluster, machine: holder.machine }
            }
            Self::Waiting(None) => CapOf::Unknown,
        }
    }
}

/// The device file: one write is a command, one read its answer.
struct Device(File);

impl attest::Transport for Device {
    type Error = io::Error;

    fn transact(&mut self, command: &[u8]) -> io::Result<Vec<u8>> {
        let written = self.0.write(command)?;
        if written != command.len() {
            return Err(io::ErrorKind::WriteZero.into());
        }
        let mut answer = vec![0; MOST_ANSWER_BYTES];
        let read = self.0.read(&mut answer)?;
        answer.truncate(read);
        Ok(answer)
    }
}

impl Tpm {
    /// Finds the TPM, mixes its random bytes into the kernel's pool, reads the PCRs of the boot class.
    ///
    /// # Errors
    /// [`Error`] when there is one that does not do so.
    pub(crate) fn find(class: BootClass) -> Result<Option<Self>, Error> {
        if fs::read_to_string(VERSION).ok().is_none_or(|version| version.trim() != "2") {
            return Ok(None);
        }
        let device = Device(File::options().read(true).write(true).open(DEVICE).map_err(Error::Open)?);
        let mut tpm = attest::Tpm::new(device);
        tpm.seed(|bytes, bits| sys::entropy::add(bytes.expose(), bits)).map_err(Error::Random)?;
        let measured = tpm.read_pcrs(sealing_pcrs(class)?).map_err(Error::Pcrs)?;
        let firmware = check_firmware(class, &measured);
        Ok(Some(Self { tpm, measured, firmware }))
    }

    /// The end of the TPM's use in this boot. It is capped: whatever runs later cannot unseal. Where services will run it
    /// is closed, too: nothing of theirs can keep a later boot from unsealing.
    ///
    /// # Errors
    /// [`Error::Cap`] or [`Error::Close`]; then nothing else may run.
    pub(crate) fn end(mut self, of: EndOf) -> Result<(), Error> {
        self.tpm.cap(of.cap()).map_err(Error::Cap)?;
        match of {
            EndOf::Serving(_) => self.close(),
            EndOf::Waiting(_) => Ok(()),
        }
    }

    /// Forbids to clear it and closes its hierarchies, but for what others guard already.
    fn close(self) -> Result<(), Error> {
        for guarded in self.tpm.retire().map_err(Error::Close)? {
            match guarded {
                GuardedPart::Platform => tracing::debug!("the firmware keeps the TPM's platform hierarchy to itself"),
                GuardedPart::Endorsement => {
                    tracing::warn!(
                        "the TPM's endorsement hierarchy has a password from elsewhere and was left as it is"
                    );
                }
                GuardedPart::Clear => tracing::warn!(
                    "the TPM's lockout hierarchy has a password from elsewhere: who knows it can clear the TPM, and then \
                     this machine's disk does not open; clear the TPM in the firmware before a machine is enrolled"
                ),
            }
        }
        Ok(())
    }
}

impl Keeper for Tpm {
    type Error = Error;

    fn zero_pcr(&self) -> Option<u8> {
        self.firmware.err().map(|BrokenFirmware { pcr }| pcr)
    }

    /// Seals `secret` to what this boot measured.
    fn seal(&mut self, secret: &Secret<32>) -> Result<TpmObject, Error> {
        let sealed = self.tpm.seal(secret, self.measured.policy_digest()).map_err(Error::Seal)?;
        Ok(TpmObject {
            pcrs: self.measured.selection(),
            storage_key_name: *sealed.storage_key.as_bytes(),
            public: sealed.public,
            private: sealed.private,
        })
    }

    fn release(&mut self, object: &TpmObject) -> Result<Secret<32>, ReleaseError<Error>> {
        use attest::UnsealError;
        if object.pcrs != self.measured.selection() {
            return Err(ReleaseError::Locked(SealLock::Pcrs));
        }
        let Ok(storage_key) = ObjectName::try_from(&object.storage_key_name[..]) else { return Err(damaged()) };
        let (public, private) = (object.public.clone(), object.private.clone());
        let sealed = SealedObject { public, private, storage_key };
        self.tpm.unseal(&sealed, self.measured.selection()).map_err(|error| match error {
            UnsealError::PcrMismatch => ReleaseError::Locked(SealLock::Pcrs),
            UnsealError::OtherTpm => ReleaseError::Locked(SealLock::OtherTpm),
            UnsealError::Damaged => damaged(),
            UnsealError::Lockout | UnsealError::Tpm(_) => ReleaseError::Failed(Error::Unseal(error)),
        })
    }
}

/// A blob that no TPM made is told like a body that does not open: somebody changed the file.
const fn damaged() -> ReleaseError<Error> {
    ReleaseError::Locked(SealLock::Body(SealError::Root(Unauthentic)))
}
