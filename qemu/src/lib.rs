//! Virtual machines as data: arguments, TPM, QMP, console, test peer.
