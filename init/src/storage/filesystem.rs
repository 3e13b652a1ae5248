//! XFS on the uppermost layer: made by `mkfs.xfs`, mounted, unmounted.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rustix::mount::{MountFlags, UnmountFlags, mount as mount_at, unmount as unmount_at};
use services::Limits;
use sys::process::Privileges;

use super::DATA;
use crate::runtime::child::{Children, Command, CompletionError};
use crate::runtime::tasks;

/// The program, as the image has it.
const PROGRAM: &str = "/bin/mkfs.xfs";
/// The name its lines have in the log.
const SERVICE: &str = "mkfs";
/// Bounds of the program, which needs some 10 MiB for 64 TiB; the rest is room.
const LIMITS: Limits = Limits { memory: 256 << 20, pids: 8 };

/// Why there is no new file system.
#[derive(Debug, thiserror::Error)]
pub(crate) enum MakeError {
    /// The first block cannot be written.
    #[error("clear the first block of `{0}`")]
    Clear(PathBuf, #[source] io::Error),
    /// The program failed.
    #[error(transparent)]
    Program(#[from] CompletionError),
}

/// Why the file system does not mount.
#[derive(Debug, thiserror::Error)]
#[error("mount `{DATA}`")]
pub(crate) struct MountError(#[source] io::Error);

/// Makes a file system on `device`.
pub(super) async fn make(device: PathBuf, children: &Children) -> Result<(), MakeError> {
    let cleared = device.clone();
    let bytes =
        tasks::blocking(move || clear(&cleared)).await.map_err(|error| MakeError::Clear(device.clone(), error))?;
    let command = Command {
        path: PROGRAM.to_owned(),
        argv: argv(&device, bytes),
        environment: Vec::new(),
        privileges: Privileges::Fixed,
        limits: LIMITS,
        apart: None,
    };
    Ok(children.complete(SERVICE, &command).await?)
}

/// mkfs.xfs looks for other file systems before it writes: what it reads first has been written once. Returns the size.
fn clear(device: &Path) -> io::Result<u64> {
    let device = File::options().write(true).open(device)?;
    device.write_all_at(&[0; 4096], 0)?;
    device.sync_all()?;
    sys::block::size(&device)
}

/// `-K`: no discards. Log and allocation groups are fixed per size class, so that a first boot writes the same bytes on
/// every disk of the class. The log's 64 MiB are what mkfs.xfs itself takes for all but the smallest disks.
fn argv(device: &Path, bytes: u64) -> Vec<String> {
    let groups = format!("agcount={}", allocation_groups(bytes));
    let device = device.display().to_string();
    let words = ["mkfs.xfs", "-q", "-f", "-K", "-l", "size=64m", "-d", &groups, &device];
    words.map(str::to_owned).to_vec()
}

/// An allocation group has at most 1 TiB (`XFS_AG_MAX_BYTES`).
const GROUP: u64 = 1 << 40;

/// Four are enough parallelism below 4 TiB; 32 serve up to 32 TiB; beyond that as many as there must be.
fn allocation_groups(bytes: u64) -> u64 {
    match bytes.div_ceil(GROUP) {
        0..=4 => 4,
        5..=32 => 32,
        needed => needed,
    }
}

/// Mounts it. What is written by others is neither device nor setuid; pods' images run from here, so `noexec` is not
/// possible.
pub(super) fn mount(device: &Path) -> Result<(), MountError> {
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOATIME;
    mount_at(device, DATA, "xfs", flags, Some(c"prjquota")).map_err(|error| MountError(error.into()))
}

/// Unmounts it, and before it what services that are gone have left: a container's root, for example, keeps busy the layers
/// it was made of.
pub(super) fn unmount() -> io::Result<()> {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo")?;
    for place in later(&mounts) {
        let _data_stays_busy_then_and_says_so = unmount_at(place, UnmountFlags::empty());
    }
    Ok(unmount_at(DATA, UnmountFlags::empty())?)
}

/// Where something was mounted after the data, the last first: mounts are listed as they were made
/// (`fs/proc_namespace.c`). Nothing of PID 1's own is among them.
fn later(mounts: &str) -> Vec<&str> {
    let places = mounts.lines().filter_map(|mount| mount.split(' ').nth(4));
    let mut later: Vec<&str> = places.skip_while(|place| *place != DATA).skip(1).collect();
    later.reverse();
    later
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Proves: D4
    #[test]
    fn disks_of_a_size_class_are_formatted_alike() {
        let expected = ["mkfs.xfs", "-q", "-f", "-K", "-l", "size=64m", "-d", "agcount=4", "/dev/dm-0"];
        for gibibytes in [1, 8, 200, 4096] {
            assert_eq!(argv(Path::new("/dev/dm-0"), gibibytes << 30), expected);
        }
        assert_eq!(argv(Path::new("/dev/dm-0"), (4096 << 30) + 4096)[7], "agcount=32");
    }

    /// Proves: O12
    #[test]
    fn what_was_mounted_after_the_data_goes_before_it() {
        let mounts = "21 1 0:20 / / ro - erofs /dev/dm-0 ro\n30 21 0:25 / /run rw - tmpfs tmpfs rw\n\
                      41 21 253:1 / /data rw,noatime - xfs /dev/dm-1 rw,prjquota\n\
                      52 30 0:40 / /run/containerd/shm rw - tmpfs shm rw\n\
                      53 30 0:41 / /run/containerd/rootfs rw - overlay overlay rw,lowerdir=/data/layer\n";
        assert_eq!(later(mounts), ["/run/containerd/rootfs", "/run/containerd/shm"]);
        assert!(later("21 1 0:20 / / ro - erofs /dev/dm-0 ro").is_empty());
    }

    proptest! {
        #[test]
        fn no_allocation_group_is_larger_than_xfs_allows(bytes: u64) {
            prop_assert!(bytes.div_ceil(allocation_groups(bytes)) <= GROUP);
        }
    }
}
