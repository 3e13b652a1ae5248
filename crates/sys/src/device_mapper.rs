//! Device-mapper by ioctl (`include/uapi/linux/dm-ioctl.h`): create, load one target, resume, status, remove.
//!
//! Tables may hold keys (dm-integrity takes its keys no other way): every call passes `DM_SECURE_DATA_FLAG`, so the
//! kernel wipes its copy, and the buffer of ours is wiped too.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::path::PathBuf;

use nix::libc;
use zeroize::Zeroizing;

const CONTROL: &str = "/dev/mapper/control";
/// `_IOWR(0xfd, command, struct dm_ioctl)` without the command: direction, size 312, type.
const REQUEST_BASE: libc::c_ulong = 0xC138_FD00;
const DEV_CREATE: u8 = 3;
const DEV_REMOVE: u8 = 4;
const DEV_SUSPEND: u8 = 6;
const TABLE_LOAD: u8 = 9;
const TABLE_STATUS: u8 = 12;

const READONLY_FLAG: u32 = 1;
const SECURE_DATA_FLAG: u32 = 1 << 15;

const HEADER_BYTES: usize = 312;
const TARGET_SPEC_BYTES: usize = 40;
/// Room for the largest table of ours: a dm-integrity line with two hex keys is under 1 KiB.
const BUFFER_BYTES: usize = 4096;

/// Target of the device mapper that covers a whole device.
#[derive(Debug)]
pub struct DmTarget<'a> {
    /// `verity`, `integrity`, `crypt`.
    pub kind: &'a str,
    /// Length in 512-byte sectors.
    pub sectors: u64,
    /// The target's own parameters; may hold keys.
    pub parameters: &'a str,
}

/// Whether the mapped device can be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Reads only.
    ReadOnly,
    /// Reads and writes.
    ReadWrite,
}

/// Which call of device-mapper failed, on which device.
#[derive(Debug, thiserror::Error)]
#[error("device-mapper: {step} `{device}`")]
pub struct Error {
    step: &'static str,
    device: String,
    #[source]
    source: io::Error,
}

/// A mapped device that this process made. It stays when dropped: closing it is a step of shutdown.
#[derive(Debug)]
pub struct Device {
    name: String,
    minor: u32,
}

impl Device {
    /// Creates `name`, loads its one target and resumes it. A device that could not be loaded is removed again.
    ///
    /// # Errors
    /// [`Error`] naming the step; nothing is left behind.
    pub fn create(name: &str, access: Access, target: &DmTarget<'_>) -> Result<Self, Error> {
        let failed = |step, source| Error { step, device: name.to_owned(), source };
        let answer = Call::new(name, 0).send(DEV_CREATE).map_err(|source| failed("create", source))?;
        let device = Self { name: name.to_owned(), minor: minor_of(answer.device()) };
        match device.load(access, target) {
            Ok(()) => Ok(device),
            Err(error) => {
                let _the_first_error_counts = device.remove();
                Err(error)
            }
        }
    }

    fn load(&self, access: Access, target: &DmTarget<'_>) -> Result<(), Error> {
        let flags = match access {
            Access::ReadOnly => READONLY_FLAG,
            Access::ReadWrite => 0,
        };
        let call = Call::new(&self.name, flags)
            .with_target(target)
            .map_err(|source| self.failed("fit the table of", source))?;
        call.send(TABLE_LOAD).map_err(|source| self.failed("load the table of", source))?;
        // DM_DEV_SUSPEND without DM_SUSPEND_FLAG resumes; it must repeat the read-only flag.
        Call::new(&self.name, flags).send(DEV_SUSPEND).map_err(|source| self.failed("resume", source))?;
        Ok(())
    }

    /// The device node the kernel made in devtmpfs.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        PathBuf::from(format!("/dev/dm-{}", self.minor))
    }

    /// The target's status line (`dmsetup status` without start, length and kind). Never holds keys.
    ///
    /// # Errors
    /// When the device is gone or the answer does not fit its own sizes.
    pub fn status(&self) -> Result<String, Error> {
        let answer =
            Call::new(&self.name, 0).send(TABLE_STATUS).map_err(|source| self.failed("ask status of", source))?;
        answer.first_target_text().ok_or_else(|| self.failed("read status of", io::ErrorKind::InvalidData.into()))
    }

    /// Removes the device.
    ///
    /// # Errors
    /// When it is still in use.
    pub fn remove(&self) -> Result<(), Error> {
        Call::new(&self.name, 0).send(DEV_REMOVE).map_err(|source| self.failed("remove", source)).map(drop)
    }

    fn failed(&self, step: &'static str, source: io::Error) -> Error {
        Error { step, device: self.name.clone(), source }
    }
}

/// Linux' `huge_decode_dev` (`include/linux/kdev_t.h`): device-mapper minors may exceed 255.
fn minor_of(device: u64) -> u32 {
    u32::try_from((device & 0xff) | ((device >> 12) & 0xfff00)).expect("20 bits fit in 32")
}

/// Buffer of a call: a `struct dm_ioctl` with what follows it. Offsets are those of the header, version 4.
struct Call(Zeroizing<Vec<u8>>);

impl Call {
    fn new(name: &str, flags: u32) -> Self {
        let mut call = Self(Zeroizing::new(vec![0; BUFFER_BYTES]));
        call.put_u32(0, 4); // version major; minor and patch 0 ask for no newer feature
        call.put_u32(12, u32::try_from(BUFFER_BYTES).expect("4096"));
        call.put_u32(16, u32::try_from(HEADER_BYTES).expect("312"));
        call.put_u32(28, flags | SECURE_DATA_FLAG);
        let name = &name.as_bytes()[..name.len().min(127)];
        call.0[48..48 + name.len()].copy_from_slice(name);
        call
    }

    /// `struct dm_target_spec` and the parameter string behind the header.
    fn with_target(mut self, target: &DmTarget<'_>) -> io::Result<Self> {
        let parameters = HEADER_BYTES + TARGET_SPEC_BYTES;
        let end = parameters + target.parameters.len();
        if end >= BUFFER_BYTES || target.kind.len() >= 16 {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        self.put_u32(20, 1); // target_count
        self.0[HEADER_BYTES + 8..HEADER_BYTES + 16].copy_from_slice(&target.sectors.to_ne_bytes());
        let kind = HEADER_BYTES + 24;
        self.0[kind..kind + target.kind.len()].copy_from_slice(target.kind.as_bytes());
        self.0[parameters..end].copy_from_slice(target.parameters.as_bytes());
        Ok(self)
    }

    fn send(mut self, command: u8) -> io::Result<Self> {
        let control = control()?;
        let request = REQUEST_BASE | libc::c_ulong::from(command);
        // SAFETY: the buffer is data_size (4096) bytes, as its header says; the kernel reads and writes within that.
        let result = unsafe { libc::ioctl(control.as_raw_fd(), request, self.0.as_mut_ptr()) };
        crate::check(result.into())?;
        Ok(self)
    }

    fn device(&self) -> u64 {
        u64::from_ne_bytes(self.0[40..48].try_into().expect("8 bytes"))
    }

    fn first_target_text(&self) -> Option<String> {
        let text = self.0.get(HEADER_BYTES + TARGET_SPEC_BYTES..)?;
        let end = text.iter().position(|&byte| byte == 0)?;
        String::from_utf8(text[..end].to_vec()).ok()
    }

    fn put_u32(&mut self, offset: usize, value: u32) {
        self.0[offset..offset + 4].copy_from_slice(&value.to_ne_bytes());
    }
}

/// Opens the control node; devtmpfs makes it when the driver registers.
fn control() -> io::Result<File> {
    match File::options().read(true).write(true).open(CONTROL) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let misc = fs::read_to_string("/proc/misc")?;
            let present = misc.lines().any(|line| line.ends_with("device-mapper"));
            Err(if present {
                error
            } else {
                io::Error::new(io::ErrorKind::Unsupported, "the kernel has no device-mapper")
            })
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_lies_where_the_kernel_looks_for_it() {
        let target = DmTarget { kind: "crypt", sectors: 0x1234, parameters: "a b c" };
        let call = Call::new("data", READONLY_FLAG).with_target(&target).expect("fits");
        assert_eq!(call.0[0], 4);
        assert_eq!(u32::from_ne_bytes(call.0[28..32].try_into().expect("4")), READONLY_FLAG | SECURE_DATA_FLAG);
        assert_eq!(&call.0[48..53], b"data\0");
        assert_eq!(&call.0[320..328], &0x1234u64.to_ne_bytes());
        assert_eq!(&call.0[336..342], b"crypt\0");
        assert_eq!(call.first_target_text().as_deref(), Some("a b c"));
    }

    #[test]
    fn a_table_that_does_not_fit_never_reaches_the_kernel() {
        let parameters = "x".repeat(BUFFER_BYTES);
        let target = DmTarget { kind: "integrity", sectors: 8, parameters: &parameters };
        assert!(Call::new("data", 0).with_target(&target).is_err());
    }

    #[test]
    fn minors_beyond_a_byte_are_decoded() {
        assert_eq!(minor_of(0x0010_fd05), 0x105);
    }
}
