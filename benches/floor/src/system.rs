//! File systems, cgroups, the files of `/run`, the data disk, the console.

use std::ffi::CString;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use benches::floor::{DATA, MKFS, RUN};
use rustix::mount::{MountFlags, MountPropagationFlags, UnmountFlags, mount as mount_at, mount_change};
use rustix::process::{Pid, Signal};
use rustix::system::RebootCommand;

use crate::Error;

/// Target, kind, options.
const MOUNTS: &[(&str, &str, &str)] = &[
    ("/dev", "devtmpfs", ""),
    ("/proc", "proc", ""),
    ("/sys", "sysfs", ""),
    ("/run", "tmpfs", "mode=0755"),
    ("/tmp", "tmpfs", "mode=1777"),
    ("/dev/shm", "tmpfs", "mode=1777"),
    ("/dev/pts", "devpts", ""),
    ("/dev/mqueue", "mqueue", ""),
    ("/sys/fs/cgroup", "cgroup2", "nsdelegate,memory_recursiveprot"),
];

/// Kernel settings that kubelet checks, and those that the links of pods need.
const SYSCTLS: &[(&str, &str)] = &[
    ("net/ipv4/ip_forward", "1"),
    ("vm/overcommit_memory", "1"),
    ("kernel/panic", "10"),
    ("kernel/panic_on_oops", "1"),
];

const CGROUPS: &str = "/sys/fs/cgroup";
const CONTROLLERS: &str = "+cpu +memory +pids +cpuset +io +hugetlb";

/// Where services write what they say; kept in memory, read by nobody but the host after a failure.
pub(crate) const LOGS: &str = "/run/log";

/// Mounts, makes cgroups, applies settings, copies the files of `/run`.
pub(crate) fn mount() -> Result<(), Error> {
    for (target, kind, options) in MOUNTS {
        if !Path::new(target).exists() {
            fs::create_dir(target).map_err(|error| Error::System(target, error))?;
        }
        let options = CString::new(*options).expect("no NUL in the table");
        mount_at(*kind, *target, *kind, MountFlags::empty(), Some(options.as_c_str()))
            .map_err(|error| Error::System(target, error.into()))?;
    }
    let shared = MountPropagationFlags::SHARED | MountPropagationFlags::REC;
    mount_change("/", shared).map_err(|error| Error::System("share mounts", error.into()))?;
    cgroups().map_err(|error| Error::System("make cgroups", error))?;
    for (key, value) in SYSCTLS {
        fs::write(Path::new("/proc/sys").join(key), value).map_err(|error| Error::System(key, error))?;
    }
    rustix::system::sethostname(benches::floor::NODE.as_bytes())
        .map_err(|error| Error::System("set the host name", error.into()))?;
    copy(Path::new(RUN), Path::new("/run")).map_err(|error| Error::System("copy the files of /run", error))?;
    fs::create_dir(LOGS).map_err(|error| Error::System(LOGS, error))
}

/// Everything of the floor's in one leaf, pods beside it: processes are in leaves only.
fn cgroups() -> io::Result<()> {
    let below = |name: &str| Path::new(CGROUPS).join(name.trim_start_matches('/'));
    fs::create_dir(below("floor"))?;
    fs::write(below("floor/cgroup.procs"), "1")?;
    fs::write(below("cgroup.subtree_control"), CONTROLLERS)?;
    fs::create_dir(below(services::POD_CGROUP))?;
    fs::write(below(services::POD_CGROUP).join("cgroup.subtree_control"), CONTROLLERS)?;
    fs::create_dir(below(services::SHIM_CGROUP))
}

fn copy(from: &Path, to: &Path) -> io::Result<()> {
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let to = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            fs::create_dir_all(&to)?;
            copy(&entry.path(), &to)?;
        } else {
            fs::write(&to, fs::read(entry.path())?)?;
        }
    }
    Ok(())
}

/// Formats the data disk if it is empty, mounts it, and makes the directories of services.
pub(crate) fn data() -> Result<(), Error> {
    if !is_formatted().map_err(|error| Error::System(DATA, error))? {
        format()?;
    }
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOATIME;
    mount_at(DATA, "/data", "xfs", flags, Some(c"prjquota"))
        .map_err(|error| Error::System("mount /data", error.into()))?;
    // /var of the root is a link to here.
    for (path, mode) in services::DIRECTORIES.iter().map(|row| (row.path, row.mode)).chain([("/data/var/lib", 0o755)]) {
        fs::create_dir_all(path).map_err(|error| Error::System(path, error))?;
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).map_err(|error| Error::System(path, error))?;
    }
    match std::os::unix::fs::symlink("/run", "/data/var/run") {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(Error::System("link /var/run", error)),
        Ok(()) | Err(_) => Ok(()), // an earlier boot's
    }
}

fn is_formatted() -> io::Result<bool> {
    let mut magic = [0; 4];
    File::open(DATA)?.read_exact_at(&mut magic, 0)?;
    Ok(&magic == b"XFSB")
}

fn format() -> Result<(), Error> {
    let disk = File::options().write(true).open(DATA).map_err(|error| Error::System(DATA, error))?;
    // mkfs.xfs reads this block first; Cairn writes it once for the same reason.
    disk.write_all_at(&[0; 4096], 0).map_err(|error| Error::System("clear the first block", error))?;
    let (program, arguments) = MKFS.split_first().expect("a constant with a program");
    let made = Command::new(program).args(arguments).status().map_err(|error| Error::System("run mkfs.xfs", error))?;
    if made.success() { Ok(()) } else { Err(Error::System("make the file system", io::Error::other(made.to_string()))) }
}

/// Kills these services and all pods, unmounts the data disk and powers off: the next boot finds a clean file system, as Cairn's does.
pub(crate) fn end(services: impl IntoIterator<Item = Pid>) -> Result<(), Error> {
    /// Processes that are killed let go within moments.
    const TRIES: u32 = 200;
    for pid in services {
        let _gone_already = rustix::process::kill_process(pid, Signal::KILL);
    }
    for group in [services::POD_CGROUP, services::SHIM_CGROUP] {
        let kill = Path::new(CGROUPS).join(group.trim_start_matches('/')).join("cgroup.kill");
        fs::write(kill, "1").map_err(|error| Error::System("kill pods", error))?;
    }
    for _ in 0..TRIES {
        if unmount_data().map_err(|error| Error::System("unmount /data", error))? {
            break;
        }
        #[expect(
            clippy::disallowed_methods,
            reason = "nothing else is to run any more, no service to be started again"
        )]
        std::thread::sleep(Duration::from_millis(50));
    }
    rustix::fs::sync();
    rustix::system::reboot(RebootCommand::PowerOff).map_err(|error| Error::System("power off", error.into()))
}

/// Unmounts what was mounted since the data disk, last first, and then the disk; says whether that is gone.
fn unmount_data() -> io::Result<bool> {
    let table = fs::read_to_string("/proc/mounts")?;
    let places: Vec<&str> = table.lines().filter_map(|line| line.split(' ').nth(1)).collect();
    let Some(data) = places.iter().position(|place| *place == "/data") else { return Ok(true) };
    for place in places[data..].iter().rev() {
        let _busy_until_its_processes_are_gone = rustix::mount::unmount(*place, UnmountFlags::empty());
    }
    Ok(false)
}

/// Writes a line to the console, if there is one.
pub(crate) fn say(line: &str) {
    if let Ok(mut console) = File::options().write(true).open("/dev/console") {
        let _nobody_else_to_tell = writeln!(console, "{line}");
    }
}

/// Since the kernel started.
pub(crate) fn uptime() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
}
