//! The kernel's random pool: foreign bytes are mixed into it, and its generator draws on it (random(4), `drivers/char/random.c`).

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

use nix::libc;
use zeroize::Zeroize;

/// `_IOW('R', 0x03, int[2])` of `include/uapi/linux/random.h`.
const RNDADDENTROPY: libc::c_ulong = 0x4008_5203;
/// `_IO('R', 0x07)` of the same file.
const RNDRESEEDCRNG: libc::c_ulong = 0x5207;

/// `struct rand_pool_info` with room for 32 bytes.
#[repr(C)]
struct RandPoolInfo {
    entropy_count: libc::c_int,
    buf_size: libc::c_int,
    buf: [u8; 32],
}

/// Mixes `bytes` into the kernel's pool and credits `bits` of entropy for them: none where others may know them.
///
/// # Errors
/// When `/dev/random` does not open or the caller is not privileged.
pub fn add(bytes: &[u8; 32], bits: u16) -> io::Result<()> {
    let device = File::options().write(true).open("/dev/random")?;
    let mut info = RandPoolInfo { entropy_count: bits.into(), buf_size: 32, buf: *bytes };
    // SAFETY: `info` is a live rand_pool_info whose buf_size says how many bytes of buf are there; the kernel only reads it.
    let result = unsafe { libc::ioctl(device.as_raw_fd(), RNDADDENTROPY, &raw const info) };
    info.buf.zeroize();
    crate::check(result.into()).map(drop)
}

/// Has the kernel's generator draw on its pool now, and not within the minute that it may take by itself.
///
/// # Errors
/// When `/dev/random` does not open, the caller is not privileged, or the generator was never seeded.
pub fn reseed() -> io::Result<()> {
    let device = File::options().write(true).open("/dev/random")?;
    // SAFETY: this request takes no argument, so the kernel follows no pointer of ours.
    let result = unsafe { libc::ioctl(device.as_raw_fd(), RNDRESEEDCRNG) };
    crate::check(result.into()).map(drop)
}
