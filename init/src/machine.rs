//! The machine under PID 1: its kernel, disk, ESP, TPM, clock, randomness, buttons and power.

pub(crate) mod board_clock;
pub(crate) mod buttons;
pub(crate) mod disk;
pub(crate) mod esp;
pub(crate) mod kernel;
pub(crate) mod power;
pub(crate) mod randomness;
pub(crate) mod tpm;
