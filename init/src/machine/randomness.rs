//! Sources of random numbers where the machine may be a copy of another one: a copy goes on with the same state of
//! every generator, until something of its own comes in.
//!
//! * The kernel's: with the device vmgenid it is told of a copy, draws anew and has WireGuard drop its session keys, all by itself
//!   (`drivers/virt/vmgenid.c`, `wg_vm_notification` of `drivers/net/wireguard/device.c`). Elsewhere [`draw_anew`] does the first,
//!   and the mesh the second.
//! * aws-lc's, of which each thread has one: mixes 32 bytes of the processor into each draw where that has RDRAND
//!   (`rand_maybe_get_ctr_drbg_pred_resistance`, `crypto/fipsmodule/rand/rand.c`), in a build that has CPU jitter for its seed
//!   (`entropy_sources.c` beside it); else it is seeded from the kernel after 4 096 draws.

use std::fmt;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;

use zeroize::Zeroizing;

use crate::runtime::durable;

/// Where the driver has a link to each device that it serves.
const VMGENID: &str = "/sys/bus/platform/drivers/vmgenid";
/// The host's random bytes, or a chip's (`drivers/char/hw_random/core.c`).
const DEVICE: &str = "/dev/hwrng";
/// The kernel keeps up to 64 bytes that were read before the machine stood still, the driver of virtio 64 more, and a copy has them,
/// too: these are enough to leave 128 of its own.
const BYTES: usize = 256;

/// Why the kernel draws no random numbers anew.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DrawError {
    /// The device gives none.
    #[error("read `{DEVICE}`")]
    Read(#[source] io::Error),
    /// The kernel does not take them.
    #[error("mix random bytes into the kernel's pool")]
    Mix(#[source] io::Error),
    /// The kernel's generator does not draw on its pool.
    #[error("reseed the kernel's generator")]
    Reseed(#[source] io::Error),
}

/// Source that the kernel's random numbers were drawn from beside its own pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Source {
    /// [`DEVICE`].
    Device,
    /// The processor's instructions and its counter of cycles, which the kernel asks by itself.
    Processor,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Device => DEVICE,
            Self::Processor => "processor",
        })
    }
}

/// Tells the log, where aws-lc's generators differ from those of a copy only after a while.
pub(crate) fn tell() {
    if let Some(because) = shared_by_copies(is_asked(), std::arch::is_x86_feature_detected!("rdrand")) {
        tracing::info!(because, "a copy of this machine would draw the same random numbers for a while");
    }
}

/// Whether aws-lc asks the processor at each draw, where that can answer.
const fn is_asked() -> bool {
    // What its build is told (`.cargo/config.toml`).
    option_env!("AWS_LC_SYS_NO_JITTER_ENTROPY").is_none()
}

/// Why copies share the state of aws-lc's generators, if they do.
const fn shared_by_copies(asked: bool, rdrand: bool) -> Option<&'static str> {
    match (asked, rdrand) {
        (true, true) => None,
        (true, false) => Some("the processor has no RDRAND"),
        (false, true | false) => Some("aws-lc is built without CPU jitter, and does not ask RDRAND at each draw"),
    }
}

/// Whether the kernel hears by itself that the machine is a copy.
pub(crate) fn kernel_is_told() -> bool {
    serves_a_device(Path::new(VMGENID))
}

/// A device's directory leads back to its driver; nothing else in a driver's directory does.
fn serves_a_device(driver: &Path) -> bool {
    let entries = fs::read_dir(driver).into_iter().flatten().flatten();
    entries.into_iter().any(|entry| matches!(durable::exists(&entry.path().join("driver")), Ok(true)))
}

/// Has the kernel's generator draw anew, from what a copy does not have. Waits for the device.
///
/// # Errors
/// [`DrawError`] names the step.
pub(crate) fn draw_anew() -> Result<Source, DrawError> {
    let source = match read(Path::new(DEVICE)).map_err(DrawError::Read)? {
        Some(bytes) => {
            for part in bytes.as_chunks().0 {
                // None is credited: some of them may be a copy's, too.
                sys::entropy::add(part, 0).map_err(DrawError::Mix)?;
            }
            Source::Device
        }
        None => Source::Processor,
    };
    sys::entropy::reseed().map_err(DrawError::Reseed)?;
    Ok(source)
}

/// Bytes of the device, where there is one.
fn read(device: &Path) -> io::Result<Option<Zeroizing<[u8; BYTES]>>> {
    let mut bytes = Zeroizing::new([0; BYTES]);
    match File::open(device).and_then(|mut device| device.read_exact(bytes.as_mut_slice())) {
        Ok(()) => Ok(Some(bytes)),
        Err(error) if is_missing(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The file is there for good; behind it there may be nothing.
fn is_missing(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound || rustix::io::Errno::from_io_error(error) == Some(rustix::io::Errno::NODEV)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_driver_without_a_device_is_told_nothing() {
        let sys = tempfile::tempdir().expect("a directory");
        let driver = sys.path().join("bus/vmgenid");
        assert!(!serves_a_device(&driver), "no driver");
        fs::create_dir_all(&driver).expect("a driver");
        fs::write(driver.join("bind"), "").expect("a file");
        let module = sys.path().join("module");
        fs::create_dir_all(module.join("drivers")).expect("a module");
        symlink(&module, driver.join("module")).expect("a link");
        assert!(!serves_a_device(&driver), "a driver and its module");
        let device = sys.path().join("devices/QEMUVGID:00");
        fs::create_dir_all(&device).expect("a device");
        symlink(&driver, device.join("driver")).expect("a link");
        symlink(&device, driver.join("QEMUVGID:00")).expect("a link");
        assert!(serves_a_device(&driver));
    }

    #[test]
    fn no_device_is_no_error_and_one_that_ends_is() {
        assert!(read(Path::new("/dev/nothing-of-that-name")).is_ok_and(|read| read.is_none()));
        assert!(read(Path::new("/dev/null")).is_err());
        assert!(read(Path::new("/dev/zero")).is_ok_and(|read| read.is_some()));
        assert!(is_missing(&io::Error::from(rustix::io::Errno::NODEV)));
    }

    #[test]
    fn copies_differ_where_the_processor_is_asked_and_answers() {
        assert_eq!(shared_by_copies(true, true), None);
        assert_eq!(shared_by_copies(true, false), Some("the processor has no RDRAND"));
        assert!(shared_by_copies(false, true).is_some() && shared_by_copies(false, false).is_some());
    }
}
