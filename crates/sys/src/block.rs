//! Block devices: their size, and telling the kernel that a partition has grown (`block/ioctl.c`).

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

use nix::libc;

/// `_IOR(0x12, 114, size_t)` of `include/uapi/linux/fs.h`.
const BLKGETSIZE64: libc::c_ulong = 0x8008_1272;
/// `_IO(0x12, 105)` of `include/uapi/linux/blkpg.h`.
const BLKPG: libc::c_ulong = 0x1269;
/// `BLKPG_RESIZE_PARTITION`.
const RESIZE_PARTITION: libc::c_int = 3;

/// `struct blkpg_partition` of the kernel's `linux/blkpg.h`.
#[repr(C)]
struct BlkpgPartition {
    start: libc::c_longlong,
    length: libc::c_longlong,
    pno: libc::c_int,
    devname: [u8; 64],
    volname: [u8; 64],
}

/// `struct blkpg_ioctl_arg` of the kernel's `linux/blkpg.h`.
#[repr(C)]
struct BlkpgIoctlArg {
    op: libc::c_int,
    flags: libc::c_int,
    datalen: libc::c_int,
    data: *mut BlkpgPartition,
}

/// Size of a block device in bytes.
///
/// # Errors
/// When `device` is no block device.
pub fn size(device: &File) -> io::Result<u64> {
    let mut bytes = 0u64;
    // SAFETY: the kernel writes one u64 to the place given.
    let result = unsafe { libc::ioctl(device.as_raw_fd(), BLKGETSIZE64, &raw mut bytes) };
    crate::check(result.into())?;
    Ok(bytes)
}

/// Tells the kernel that partition `number` of `disk` now has `length` bytes from `start`.
///
/// # Errors
/// When the kernel refuses: overlapping partitions, unknown number, or a length not in its sectors.
pub fn resize_partition(disk: &File, number: i32, start: u64, length: u64) -> io::Result<()> {
    let signed = |value: u64| i64::try_from(value).map_err(io::Error::other);
    let mut partition = BlkpgPartition {
        start: signed(start)?,
        length: signed(length)?,
        pno: number,
        devname: [0; 64],
        volname: [0; 64],
    };
    let mut argument = BlkpgIoctlArg {
        op: RESIZE_PARTITION,
        flags: 0,
        datalen: libc::c_int::try_from(size_of::<BlkpgPartition>()).expect("152 bytes"),
        data: &raw mut partition,
    };
    // SAFETY: `argument` and the partition it points to live until the call returns; datalen is that struct's size.
    let result = unsafe { libc::ioctl(disk.as_raw_fd(), BLKPG, &raw mut argument) };
    crate::check(result.into()).map(drop)
}
