//! The calling thread's keyring (keyrings(7), `security/keys/keyctl.c`): how dm-crypt gets its key without the
//! key ever standing in a table.

use std::ffi::CString;
use std::io;

use nix::libc;

/// `KEY_SPEC_THREAD_KEYRING` of `include/uapi/linux/keyctl.h`: gone with the thread.
const THREAD_KEYRING: libc::c_int = -1;
/// `KEYCTL_UNLINK`.
const KEYCTL_UNLINK: libc::c_int = 9;

/// A `logon` key in this thread's keyring: the kernel can use it, nobody can read it back. Unlinked when dropped.
#[derive(Debug)]
pub struct LogonKey {
    serial: i64,
    /// The keyring belongs to one thread, so the key must be dropped on it.
    _stays_on_its_thread: std::marker::PhantomData<*const ()>,
}

impl LogonKey {
    /// Adds `payload` under `description` ("prefix:name").
    ///
    /// # Errors
    /// When the kernel refuses the key (quota, bad description, no `CONFIG_KEYS`).
    pub fn add(description: &str, payload: &[u8]) -> io::Result<Self> {
        let description = CString::new(description)?;
        // SAFETY: both strings are NUL-terminated, payload is `payload.len()` readable bytes; the kernel copies all three.
        let serial = unsafe {
            libc::syscall(
                libc::SYS_add_key,
                c"logon".as_ptr(),
                description.as_ptr(),
                payload.as_ptr(),
                payload.len(),
                THREAD_KEYRING,
            )
        };
        Ok(Self { serial: crate::check(serial)?, _stays_on_its_thread: std::marker::PhantomData })
    }
}

impl Drop for LogonKey {
    fn drop(&mut self) {
        // SAFETY: integers only; a serial the kernel does not know any more is an error it returns.
        let _gone_either_way = unsafe { libc::syscall(libc::SYS_keyctl, KEYCTL_UNLINK, self.serial, THREAD_KEYRING) };
    }
}
