//! TPM 2.0 without a device: commands, sessions, policies, predicted PCRs.
