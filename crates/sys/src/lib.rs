//! The only unsafe code: mounts, device-mapper, TPM device, processes, reboot.
