//! Project quotas of XFS: which project a folder is, and how much a project may have (`fs/xfs/xfs_ioctl.c`, `fs/quota/quota.c`).
//! Amounts of the kernel are in basic blocks of 512 bytes; those of this module are in bytes.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

use nix::libc;

/// `_IOR('X', 31, struct fsxattr)` of `include/uapi/linux/fs.h`.
const FS_IOC_FSGETXATTR: libc::c_ulong = 0x801c_581f;
/// `_IOW('X', 32, struct fsxattr)`.
const FS_IOC_FSSETXATTR: libc::c_ulong = 0x401c_5820;
/// `FS_XFLAG_PROJINHERIT`: what comes to lie in the folder belongs to its project.
const INHERIT: u32 = 0x200;

/// `PRJQUOTA` of `include/uapi/linux/quota.h`.
const PROJECT: libc::c_uint = 2;
/// `Q_XGETQUOTA` of `include/uapi/linux/dqblk_xfs.h`.
const GET: libc::c_uint = 0x5803;
/// `Q_XSETQLIM`.
const SET_LIMIT: libc::c_uint = 0x5804;
/// `FS_DQUOT_VERSION`.
const VERSION: i8 = 1;
/// `FS_PROJ_QUOTA`.
const OF_PROJECT: i8 = 2;
/// `FS_DQ_BHARD`: the hard limit of blocks is to change, and nothing else.
const BLOCK_HARD_LIMIT: u16 = 1 << 3;
/// A basic block.
const BASIC_BLOCK: u64 = 512;

/// `struct fsxattr` of `include/uapi/linux/fs.h`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
struct FsXattr {
    flags: u32,
    extent_size: u32,
    extents: u32,
    project: u32,
    cow_extent_size: u32,
    padding: [u8; 8],
}

/// `struct fs_disk_quota` of `include/uapi/linux/dqblk_xfs.h`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
struct DiskQuota {
    version: i8,
    flags: i8,
    fields: u16,
    id: u32,
    block_hard_limit: u64,
    block_soft_limit: u64,
    inode_hard_limit: u64,
    inode_soft_limit: u64,
    blocks: u64,
    inodes: u64,
    inode_timer: i32,
    block_timer: i32,
    inode_warnings: u16,
    block_warnings: u16,
    timers_high: [i8; 4],
    realtime_hard_limit: u64,
    realtime_soft_limit: u64,
    realtime_blocks: u64,
    realtime_timer: i32,
    realtime_warnings: u16,
    padding: i16,
    more_padding: [u8; 8],
}

/// Project of what is made in a folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Inheritance {
    /// Made as the folder's, and nothing is renamed into the folder from another project.
    Inherited,
    /// Made as nobody's in particular.
    Apart,
}

/// Amounts of a project, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProjectQuota {
    /// Hard limit; 0 is none.
    pub limit: u64,
    /// Bytes that it takes.
    pub used: u64,
}

/// Project that the file or folder belongs to; 0 is that of everything else.
///
/// # Errors
/// When its file system has no projects.
pub fn project(of: &File) -> io::Result<u32> {
    Ok(attributes(of)?.project)
}

/// Gives the folder to a project.
///
/// # Errors
/// When its file system has no projects, or counts none.
pub fn set_project(of: &File, project: u32, inheritance: Inheritance) -> io::Result<()> {
    let before = attributes(of)?;
    let flags = match inheritance {
        Inheritance::Inherited => before.flags | INHERIT,
        Inheritance::Apart => before.flags & !INHERIT,
    };
    let mut changed = FsXattr { flags, project, ..before };
    // SAFETY: `changed` is a live fsxattr, which is what the kernel reads at the place given; it writes nothing there.
    let result = unsafe { libc::ioctl(of.as_raw_fd(), FS_IOC_FSSETXATTR, &raw mut changed) };
    crate::check(result.into()).map(drop)
}

fn attributes(of: &File) -> io::Result<FsXattr> {
    let mut attributes = FsXattr::default();
    // SAFETY: `attributes` is a live fsxattr, 28 bytes, which is all that the kernel writes to the place given.
    let result = unsafe { libc::ioctl(of.as_raw_fd(), FS_IOC_FSGETXATTR, &raw mut attributes) };
    crate::check(result.into())?;
    Ok(attributes)
}

/// Amounts of a project on the file system that `on` lies on. None: nobody has used the project, or limited it.
///
/// # Errors
/// When that file system counts no projects.
pub fn quota(on: &File, project: u32) -> io::Result<Option<ProjectQuota>> {
    let mut quota = DiskQuota::default();
    match command(on, GET, project, &mut quota) {
        Ok(()) => {
            let bytes = |blocks: u64| blocks.saturating_mul(BASIC_BLOCK);
            Ok(Some(ProjectQuota { limit: bytes(quota.block_hard_limit), used: bytes(quota.blocks) }))
        }
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Limits a project to so many bytes, whole basic blocks of which count; 0 takes the limit away.
///
/// # Errors
/// When that file system counts no projects.
pub fn set_limit(on: &File, project: u32, bytes: u64) -> io::Result<()> {
    let mut quota = DiskQuota {
        version: VERSION,
        flags: OF_PROJECT,
        fields: BLOCK_HARD_LIMIT,
        id: project,
        block_hard_limit: bytes / BASIC_BLOCK,
        ..DiskQuota::default()
    };
    command(on, SET_LIMIT, project, &mut quota)
}

/// A call of quotactl_fd(2), about a project.
fn command(on: &File, what: libc::c_uint, project: u32, quota: &mut DiskQuota) -> io::Result<()> {
    // `QCMD`.
    let command = what << 8 | PROJECT;
    // SAFETY: `quota` is a live fs_disk_quota, 112 bytes, and both commands read or write no more than that.
    let result =
        unsafe { libc::syscall(libc::SYS_quotactl_fd, on.as_raw_fd(), command, project, std::ptr::from_mut(quota)) };
    crate::check(result).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sizes and places by the kernel's headers.
    #[test]
    fn the_kernels_structures_and_numbers_fit() {
        assert_eq!((size_of::<FsXattr>(), size_of::<DiskQuota>()), (28, 112));
        assert_eq!(std::mem::offset_of!(FsXattr, project), 12);
        assert_eq!(std::mem::offset_of!(DiskQuota, block_hard_limit), 8);
        assert_eq!(std::mem::offset_of!(DiskQuota, blocks), 40);
        assert_eq!(std::mem::offset_of!(DiskQuota, realtime_hard_limit), 72);
        let number =
            |direction: libc::c_ulong, number| direction << 30 | 28 << 16 | libc::c_ulong::from(b'X') << 8 | number;
        assert_eq!((FS_IOC_FSGETXATTR, FS_IOC_FSSETXATTR), (number(2, 31), number(1, 32)));
        let command = |number| libc::c_uint::from(b'X') << 8 | number;
        assert_eq!((GET, SET_LIMIT), (command(3), command(4)));
    }

    /// Success needs an XFS with project quotas, and root: machine cases show it.
    #[test]
    fn where_there_are_no_projects_it_is_an_error() {
        let null = File::open("/dev/null").expect("it opens");
        assert!(project(&null).is_err() && set_project(&null, 7, Inheritance::Inherited).is_err());
        let proc = File::open("/proc/self/status").expect("it opens");
        assert!(quota(&proc, 7).is_err() && set_limit(&proc, 7, 4096).is_err());
    }
}
