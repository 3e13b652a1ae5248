//! The kernel's file systems, cgroups and settings: what every later step stands on.

use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

use api::Profile;
use kube::reserve;
use model::{BootClass, MachineId, NodeName, RootHash};
use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_change};

/// What stage 0 passes on in the environment: the verified root hash in hex.
pub(crate) const ROOT_HASH: &str = "CAIRN_ROOT_HASH";
/// The same: uptime in microseconds when stage 0 began.
pub(crate) const BEGAN: &str = "CAIRN_STAGE0_BEGAN";

/// Which step failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// A file system could not be mounted.
    #[error("mount `{0}`")]
    Mount(&'static str, #[source] io::Error),
    /// A cgroup could not be made or entered.
    #[error("set up cgroup `{0}`")]
    Cgroup(&'static str, #[source] io::Error),
    /// A setting was refused: what stands on it would not hold.
    #[error("set kernel setting `{0}`")]
    Setting(&'static str, #[source] io::Error),
    /// A fact about this boot could not be read.
    #[error("read `{0}`")]
    Read(&'static str, #[source] io::Error),
    /// The machine's name could not be set.
    #[error("set {0}")]
    Name(&'static str, #[source] io::Error),
    /// Stage 0 did not say which root it verified.
    #[error("read the root hash that stage 0 passed on")]
    RootHash,
}

/// What never changes during a boot.
#[derive(Debug, Clone)]
pub(crate) struct Boot {
    /// Which root it runs.
    pub(crate) profile: Profile,
    /// Names the image.
    pub(crate) root_hash: RootHash,
    /// The kernel's random id of this boot.
    pub(crate) boot_id: String,
    /// How the machine was started.
    pub(crate) class: BootClass,
}

/// A file system to mount, and why with these flags.
struct Row {
    target: &'static str,
    kind: &'static str,
    flags: MountFlags,
    options: &'static str,
    presence: Presence,
}

#[derive(PartialEq, Eq)]
enum Presence {
    Required,
    /// Not every machine has it.
    WhereThere,
}

const QUIET: MountFlags = MountFlags::NOSUID.union(MountFlags::NODEV).union(MountFlags::NOEXEC);

/// In this order. /run holds only sockets, configs and certificates, so nothing runs from it; pods get their own
/// mounts below it from containerd, with flags of their own.
const MOUNTS: &[Row] = &[
    row("/run", "tmpfs", QUIET.difference(MountFlags::NODEV), "mode=0755,size=20%"),
    row("/tmp", "tmpfs", QUIET, "mode=1777,size=5%"),
    row("/dev/shm", "tmpfs", QUIET, "mode=1777,size=20%"),
    row("/dev/pts", "devpts", MountFlags::NOSUID.union(MountFlags::NOEXEC), "mode=0620,ptmxmode=0666"),
    row("/dev/mqueue", "mqueue", QUIET, ""),
    row("/sys/fs/cgroup", "cgroup2", QUIET, "nsdelegate,memory_recursiveprot"),
    row("/sys/kernel/security", "securityfs", QUIET, ""),
    Row { presence: Presence::WhereThere, ..row("/sys/fs/bpf", "bpf", QUIET, "mode=0700") },
    PSTORE,
    Row { presence: Presence::WhereThere, ..row("/sys/firmware/efi/efivars", "efivarfs", QUIET, "") },
];

/// Before stage 1 has mounted everything, an error may have to be kept in it.
const PSTORE: Row = Row { presence: Presence::WhereThere, ..row("/sys/fs/pstore", "pstore", QUIET, "") };

const fn row(target: &'static str, kind: &'static str, flags: MountFlags, options: &'static str) -> Row {
    Row { target, kind, flags, options, presence: Presence::Required }
}

/// Settings under /proc/sys, each with its reason. The image brings the kernel that has them all, so that one which cannot
/// be set is not a kernel's way but a fault, and the machine does not go on without what it stands for.
const SYSCTLS: &[(&str, &str, &str)] = &[
    ("net/ipv4/ip_forward", "1", "the machine routes for its pods; what may pass is decided by routing rules"),
    ("net/ipv4/conf/all/rp_filter", "1", "answers leave where the question came from"),
    ("net/ipv4/conf/default/rp_filter", "1", "as above, for links to come"),
    ("net/ipv4/conf/all/accept_redirects", "0", "nobody on the link changes our routes"),
    ("net/ipv4/conf/default/accept_redirects", "0", "as above, for links to come"),
    ("net/ipv4/conf/all/send_redirects", "0", "we are no router for strangers"),
    ("net/ipv4/tcp_syncookies", "1", "the public port survives a SYN flood"),
    ("net/ipv6/conf/all/accept_redirects", "0", "as for IPv4"),
    ("net/ipv6/conf/default/accept_redirects", "0", "as for IPv4"),
    ("net/ipv6/conf/all/disable_ipv6", "1", "no IPv6 before its routing rules are there"),
    ("net/ipv6/conf/default/disable_ipv6", "1", "as above, for links to come"),
    ("net/ipv6/conf/lo/disable_ipv6", "0", "::1 is used by upstream components"),
    ("kernel/kptr_restrict", "2", "no kernel addresses to anyone"),
    ("kernel/dmesg_restrict", "1", "no kernel log to pods"),
    ("kernel/unprivileged_bpf_disabled", "1", "no bpf for pods"),
    ("kernel/yama/ptrace_scope", "3", "no tracing at all, by root neither, until the next boot"),
    ("kernel/panic", "10", "a person can read the screen before the machine starts again"),
    ("kernel/panic_on_oops", "1", "kubelet checks it; a broken kernel is not trusted with data"),
    ("vm/overcommit_memory", "1", "kubelet checks it"),
    ("fs/protected_hardlinks", "1", "classic /tmp races"),
    ("fs/protected_symlinks", "1", "classic /tmp races"),
    ("fs/protected_fifos", "2", "classic /tmp races"),
    ("fs/protected_regular", "2", "classic /tmp races"),
    ("fs/suid_dumpable", "0", "no core of a program that changed its rights"),
    ("fs/inotify/max_user_instances", "8192", "containerd and kubelet watch every pod"),
    ("fs/inotify/max_user_watches", "524288", "as above"),
    ("vm/max_map_count", "262144", "what databases in pods ask for"),
];

impl Row {
    fn mount(&self) -> io::Result<()> {
        let options = std::ffi::CString::new(self.options).expect("no NUL in the table");
        Ok(mount(self.kind, self.target, self.kind, self.flags, Some(options.as_c_str()))?)
    }
}

/// Mounts pstore alone.
///
/// # Errors
/// Where the kernel has none, or where it is mounted already.
pub(crate) fn mount_pstore() -> io::Result<()> {
    PSTORE.mount()
}

/// Proof that the kernel's file systems and settings are in place.
#[derive(Debug)]
pub(crate) struct Kernel {
    /// Facts about this boot.
    pub(crate) boot: Boot,
}

impl Kernel {
    /// Mounts what is missing behind stage 0, enters PID 1's own cgroup, applies the settings, reads facts.
    ///
    /// # Errors
    /// [`Error`] names the first thing that failed; without any of them the machine is not what it promises.
    pub(crate) fn mount() -> Result<Self, Error> {
        for row in MOUNTS {
            if row.presence == Presence::WhereThere && !Path::new(row.target).exists() {
                continue;
            }
            match fs::create_dir(row.target) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                    return Err(Error::Mount(row.target, error));
                }
                Ok(()) | Err(_) => {}
            }
            match row.mount() {
                Err(error) if row.presence == Presence::Required => return Err(Error::Mount(row.target, error)),
                Err(error) => tracing::debug!(target = row.target, %error, "not mounted"),
                Ok(()) => {}
            }
        }
        // Mounts that kubelet and containerd make for pods must reach those who share them.
        let shared = MountPropagationFlags::SHARED | MountPropagationFlags::REC;
        mount_change("/", shared).map_err(|error| Error::Mount("/", error.into()))?;
        cgroups()?;
        settings(|key, value| fs::write(Path::new("/proc/sys").join(key), value))?;
        let boot_id =
            fs::read_to_string("/proc/sys/kernel/random/boot_id").map_err(|error| Error::Read("boot_id", error))?;
        Ok(Self {
            boot: Boot {
                profile: profile().map_err(|error| Error::Read(PROFILE, error))?,
                root_hash: root_hash().ok_or(Error::RootHash)?,
                boot_id: boot_id.trim().to_owned(),
                class: boot_class(),
            },
        })
    }
}

/// Sets all of them, the first that fails ends it.
fn settings(write: impl Fn(&'static str, &'static str) -> io::Result<()>) -> Result<(), Error> {
    SYSCTLS.iter().try_for_each(|&(key, value, _because)| write(key, value).map_err(|error| Error::Setting(key, error)))
}

/// Where the root says which profile it is.
const PROFILE: &str = "/etc/cairn/profile";

/// Which profile the running root is. What is not the debug profile's word is a release.
///
/// # Errors
/// When the root does not say.
pub(crate) fn profile() -> io::Result<Profile> {
    let word = fs::read_to_string(PROFILE)?;
    Ok(if word.trim() == "debug" { Profile::Debug } else { Profile::Release })
}

/// Gives the running system the machine's name and id: host name, and what /etc/machine-id links to.
///
/// # Errors
/// [`Error::Name`] when the kernel refuses.
pub(crate) fn name(name: &NodeName, machine: MachineId) -> Result<(), Error> {
    rustix::system::sethostname(name.as_str().as_bytes()).map_err(|error| Error::Name("host name", error.into()))?;
    fs::write("/run/machine-id", format!("{machine}\n")).map_err(|error| Error::Name("/run/machine-id", error))
}

/// How this machine was started: with EFI there is `/sys/firmware/efi`. Wants /sys.
pub(crate) fn boot_class() -> BootClass {
    if Path::new("/sys/firmware/efi").exists() { BootClass::Uefi } else { BootClass::Direct }
}

/// The root hash that stage 0 verified the root with. Stage 0 clears its environment first, so the text is its own.
fn root_hash() -> Option<RootHash> {
    std::env::var(ROOT_HASH).ok()?.parse().ok()
}

/// When stage 0 began, in time since the kernel started, as it passed it on.
pub(crate) fn stage0_began() -> Option<Duration> {
    std::env::var(BEGAN).ok()?.parse().ok().map(Duration::from_micros)
}

/// PID 1 in a leaf of its own, services below a node of their own: the rule "no processes in inner nodes".
fn cgroups() -> Result<(), Error> {
    const CONTROLLERS: &str = "+cpu +memory +pids +cpuset +io +hugetlb";
    const ROOT: &str = "/sys/fs/cgroup";
    let wrong = |path| move |error| Error::Cgroup(path, error);
    fs::create_dir_all("/sys/fs/cgroup/init").map_err(wrong("init"))?;
    fs::write("/sys/fs/cgroup/init/cgroup.procs", "1").map_err(wrong("init"))?;
    fs::write("/sys/fs/cgroup/cgroup.subtree_control", CONTROLLERS).map_err(wrong("/"))?;
    fs::create_dir_all("/sys/fs/cgroup/services").map_err(wrong("services"))?;
    fs::write("/sys/fs/cgroup/services/cgroup.subtree_control", "+cpu +memory +pids +io").map_err(wrong("services"))?;
    // kubelet manages pods in one of these, containerd puts the pods' shims into the other.
    fs::create_dir_all(format!("{ROOT}{}", kube::POD_CGROUP)).map_err(wrong("pods"))?;
    fs::write(format!("{ROOT}{}/cgroup.subtree_control", kube::POD_CGROUP), CONTROLLERS).map_err(wrong("pods"))?;
    fs::create_dir_all(format!("{ROOT}{}", kube::SHIM_CGROUP)).map_err(wrong("shims"))?;
    let number = |path: &'static str| {
        let text = fs::read_to_string(path).map_err(|error| Error::Read(path, error))?;
        text.trim().parse::<u64>().map_err(|error| Error::Read(path, io::Error::other(error)))
    };
    let most = number("/proc/sys/kernel/pid_max")?.min(number("/proc/sys/kernel/threads-max")?);
    for (group, file, value) in bounds(most) {
        fs::write(format!("{ROOT}{group}/{file}"), value.to_string()).map_err(wrong(group))?;
    }
    Ok(())
}

/// What pods cannot take from the rest of the machine, which can have `most` processes and threads: cgroup, file, value.
fn bounds(most: u64) -> [(&'static str, &'static str, u64); 4] {
    [
        ("/init", "memory.min", reserve::MEMORY_OF_PID_1),
        ("/services", "memory.low", reserve::MEMORY),
        (kube::POD_CGROUP, "pids.max", reserve::pids_of_pods(most)),
        (kube::SHIM_CGROUP, "pids.max", u64::from(reserve::PIDS_OF_SHIMS)),
    ]
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    /// Proves: A7
    #[test]
    fn a_setting_that_cannot_be_made_is_fatal_by_name() {
        for (refused, _, _) in SYSCTLS {
            let result =
                settings(|key, _value| if key == *refused { Err(io::ErrorKind::NotFound.into()) } else { Ok(()) });
            let Err(Error::Setting(named, _)) = result else { panic!("`{refused}` may fail: {result:?}") };
            assert_eq!(named, *refused);
        }
        let written = RefCell::new(Vec::new());
        settings(|key, value| {
            written.borrow_mut().push((key, value));
            Ok(())
        })
        .expect("all were taken");
        let written = written.into_inner();
        // What keeps strangers' packets out of the machine's addresses, written out.
        for wanted in [
            ("net/ipv4/conf/all/rp_filter", "1"),
            ("net/ipv4/conf/default/rp_filter", "1"),
            ("net/ipv4/conf/all/accept_redirects", "0"),
            ("net/ipv6/conf/all/disable_ipv6", "1"),
            ("net/ipv6/conf/default/disable_ipv6", "1"),
        ] {
            assert!(written.contains(&wanted), "{wanted:?}");
        }
    }

    /// Written out: a bound that follows the code it bounds is none.
    #[test]
    fn pods_are_bounded_beside_what_carries_them() {
        let expected = [
            ("/init", "memory.min", 33_554_432),
            ("/services", "memory.low", 1_073_741_824),
            ("/pods", "pids.max", 18_000),
            ("/shims", "pids.max", 4096),
        ];
        assert_eq!(bounds(24_000), expected);
    }

    /// Without Yama's strictest mode root in any service reads the memory of PID 1.
    #[test]
    fn nobody_traces_and_no_program_that_changed_its_rights_is_dumped() {
        let value = |wanted: &str| SYSCTLS.iter().find(|(key, _, _)| *key == wanted).map(|(_, value, _)| *value);
        assert_eq!(value("kernel/yama/ptrace_scope"), Some("3"));
        assert_eq!(value("fs/suid_dumpable"), Some("0"));
    }
}
