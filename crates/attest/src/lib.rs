//! TPM 2.0 without a device: bytes ↔ meaning. The caller owns the device and lends it as a [`Transport`]; nothing
//! here opens a file, a socket or a clock.
//!
//! What a machine does with its TPM, and nothing else of the TPM: random bytes, PCRs, a 32-byte secret sealed to
//! them, the cap that ends unsealing for this boot, and the closing of what root could do harm with.
//!
//! ```text
//!  Tpm (tpm.rs)          what the machine asks for: seed, read_pcrs, seal, unseal, cap
//!   │  retire             what it leaves closed to whatever runs later
//!   └ Channel            storage key + the salted session that every exchange runs in; flushed when dropped
//!      ├ Session         nonces, HMAC of command and answer, AES-128-CFB of the first parameter
//!      │  └ kdf          KDFa, KDFe, ECDH, CFB
//!      ├ command         bytes of a command          object    templates, names, sealed blobs
//!      └ response        meaning of an answer        pcr       selections, values, policy digest, cap
//!                        wire, code                  integers and sized buffers; commands and return codes
//! ```
//!
//! The bus between processor and TPM is taken for hostile: what is read over it or sealed over it is covered by an
//! HMAC under a salt that only the storage key can open, and that key's name is part of every sealed object.
//! The one moment of trust is the first sealing, when no name is known yet.
//!
//! Section numbers are those of the "TPM 2.0 Library", revision 1.59. Randomness (nonces, ephemeral keys) is
//! `aws_lc_rs::rand::SystemRandom`.
//!
//! # Invariants
//! - After the cap nothing unseals: `after_the_cap_neither_the_policy_nor_an_empty_password_opens`
//! - After the cap root neither clears the TPM nor locks a later boot out of it:
//!   `what_root_does_to_a_closed_tpm_loses_no_disk`

mod channel;
mod code;
mod command;
mod kdf;
#[cfg(test)]
mod liar;
mod object;
mod pcr;
pub mod response;
mod retire;
mod session;
mod tpm;
mod wire;

pub use channel::{TpmError, Transport};
pub use code::{CommandCode, ResponseCode};
pub use kdf::CryptoError;
pub use object::{BadName, ObjectName, SealedObject};
pub use pcr::{
    BrokenFirmware, CAP_PCR, CapOf, PcrDigest, PcrValues, PolicyDigest, ReservedBootClass, check_firmware, sealing_pcrs,
};
pub use retire::GuardedPart;
pub use tpm::{SeedError, Tpm, UnsealError};
pub use wire::MalformedAnswer;
