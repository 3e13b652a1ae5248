//! The machine under PID 1: its kernel, disk, ESP, TPM, buttons and power.

pub(crate) mod buttons;
pub(crate) mod disk;
pub(crate) mod esp;
pub(crate) mod kernel;
pub(crate) mod power;
pub(crate) mod tpm;
