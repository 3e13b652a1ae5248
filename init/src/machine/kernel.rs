//! The kernel's file systems, cgroups and settings: what every later step stands on, as rows of three tables. One rule holds for
//! all of them: what the kernel does not give is fatal, by name, or its row says that it is optional.

use std::fmt;
use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

use api::Profile;
use model::{BootClass, MachineId, NodeName, RootHash};
use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_change};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use services::reserve;

use crate::runtime::durable;

/// Environment variable in which stage 0 passes on the verified root hash, in hex.
pub(crate) const ROOT_HASH: &str = "CAIRN_ROOT_HASH";
/// The same: uptime in microseconds when stage 0 began.
pub(crate) const BEGAN: &str = "CAIRN_STAGE0_BEGAN";

/// Failed step of the kernel's set-up.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The kernel did not give what a row of the tables wants: what stands on it would not hold.
    #[error("{0}")]
    Row(What, #[source] io::Error),
    /// A fact about this boot could not be read.
    #[error("read `{0}`")]
    Read(&'static str, #[source] io::Error),
    /// The machine's name could not be set.
    #[error("set {0}")]
    Name(&'static str, #[source] io::Error),
    /// PID 1 could run out of open files.
    #[error("raise the limit of open files")]
    OpenFiles(#[source] io::Error),
    /// Stage 0 did not say which root it verified.
    #[error("read the root hash that stage 0 passed on")]
    RootHash,
}

/// Facts that never change during a boot.
#[derive(Debug, Clone)]
pub(crate) struct Boot {
    /// Release or debug, as the root says.
    pub(crate) profile: Profile,
    /// Whether the root has gVisor.
    pub(crate) has_gvisor: bool,
    /// Names the image.
    pub(crate) root_hash: RootHash,
    /// The kernel's random id of this boot.
    pub(crate) boot_id: String,
    /// How the machine was started.
    pub(crate) class: BootClass,
}

#[cfg(test)]
impl Boot {
    /// Boot of a release.
    pub(crate) fn fixture() -> Self {
        Self {
            profile: Profile::Release,
            has_gvisor: false,
            root_hash: RootHash([1; 32]),
            boot_id: String::from("b"),
            class: BootClass::Direct,
        }
    }
}

/// Something that the kernel is to give.
#[derive(Debug, Clone, Copy)]
struct Row {
    what: What,
    need: Need,
    because: &'static str,
}

/// Consequence for a machine whose kernel does not give a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Need {
    /// The boot ends.
    Required,
    /// The boot goes on without: not every machine has it.
    Optional,
}

/// Kind of a row, and what the kernel is to give for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum What {
    /// A file system, mounted on a directory that is made where it can be.
    Mount { target: &'static str, kind: &'static str, flags: MountFlags, options: &'static str },
    /// Propagation of `/`: mounts made below it reach those who share them.
    SharedMounts,
    /// A cgroup, by its path in the hierarchy.
    Cgroup(&'static str),
    /// A value in a file of a cgroup.
    CgroupFile(&'static str, &'static str, Value),
    /// A value below /proc/sys.
    Setting(&'static str, &'static str),
}

/// Value that is written into a file of a cgroup.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Value {
    /// Words, as the table has them.
    Words(&'static str),
    /// Bytes of memory, or processes and threads.
    Number(u64),
}

const QUIET: MountFlags = MountFlags::NOSUID.union(MountFlags::NODEV).union(MountFlags::NOEXEC);
/// Configs and sockets; pods get their own mounts below it from containerd, with flags of their own.
const RUN: MountFlags = QUIET.difference(MountFlags::NODEV);
const TERMINALS: MountFlags = MountFlags::NOSUID.union(MountFlags::NOEXEC);

/// In this order.
const MOUNTS: &[Row] = &[
    mount_row("/run", "tmpfs", RUN, "mode=0755,size=20%", "sockets, configs, certificates: gone with the boot"),
    mount_row("/tmp", "tmpfs", QUIET, "mode=1777,size=5%", "the root is read-only"),
    mount_row("/dev/shm", "tmpfs", QUIET, "mode=1777,size=20%", "POSIX shared memory"),
    mount_row("/dev/pts", "devpts", TERMINALS, "mode=0620,ptmxmode=0666", "terminals of containers"),
    mount_row("/dev/mqueue", "mqueue", QUIET, "", "POSIX message queues, as runc mounts them"),
    mount_row(CGROUPS, "cgroup2", QUIET, "nsdelegate,memory_recursiveprot", "bounds of services and pods"),
    mount_row("/sys/kernel/security", "securityfs", QUIET, "", "runtimes read which modules are in force"),
    optional(mount_row("/sys/fs/bpf", "bpf", QUIET, "mode=0700", "a network of pods may pin programs")),
    PSTORE,
    optional(mount_row("/sys/firmware/efi/efivars", "efivarfs", QUIET, "", "firmware's variables, where it has any")),
    Row { what: What::SharedMounts, need: Need::Required, because: "kubelet and containerd mount for pods" },
];

/// Before stage 1 has mounted everything, an error may have to be kept in it.
const PSTORE: Row = optional(mount_row("/sys/fs/pstore", "pstore", QUIET, "", "last words outlive a reset there"));

const fn mount_row(
    target: &'static str,
    kind: &'static str,
    flags: MountFlags,
    options: &'static str,
    because: &'static str,
) -> Row {
    Row { what: What::Mount { target, kind, flags, options }, need: Need::Required, because }
}

const fn optional(row: Row) -> Row {
    Row { need: Need::Optional, ..row }
}

/// Where cgroups are.
const CGROUPS: &str = "/sys/fs/cgroup";
/// Controllers by which pods' cgroups may be bounded.
const CONTROLLERS: Value = Value::Words("+cpu +memory +pids +cpuset +io +hugetlb");

/// PID 1 in a leaf of its own, services below a node of their own: the rule "no processes in inner nodes". The machine can
/// have `most` processes and threads.
fn cgroups(most: u64) -> [Row; 15] {
    let of_services = Value::Words("+cpu +memory +pids +io");
    let of_pods = Value::Number(reserve::pids_of_pods(most));
    let of_shims = Value::Number(reserve::PIDS_OF_SHIMS.into());
    let group = |group, because| Row { what: What::Cgroup(group), need: Need::Required, because };
    let file =
        |group, file, value, because| Row { what: What::CgroupFile(group, file, value), need: Need::Required, because };
    [
        group("/init", "PID 1's own"),
        file("/init", "cgroup.procs", Value::Words("1"), "the root may then have bounded children"),
        file("/", "cgroup.subtree_control", CONTROLLERS, "all that is bounded below"),
        group("/services", "each service has its own below"),
        file("/services", "cgroup.subtree_control", of_services, "what services are bounded by"),
        group(services::POD_CGROUP, "kubelet manages pods in it"),
        file(services::POD_CGROUP, "cgroup.subtree_control", CONTROLLERS, "what kubelet bounds pods by"),
        group(services::SHIM_CGROUP, "containerd puts the pods' shims into it"),
        file("/init", "memory.min", Value::Number(reserve::MEMORY_OF_PID_1), "PID 1 is not what is reclaimed from"),
        file("/init", "cpu.weight", Value::Number(10_000), "and runs when it has something to do"),
        file("/services", "cpu.weight", Value::Number(1000), "whatever pods compute, what carries them runs first"),
        file(services::SHIM_CGROUP, "cpu.weight", Value::Number(1000), "as above: what starts containers is in it"),
        file("/services", "memory.low", Value::Number(reserve::MEMORY), "pods do not push out what carries them"),
        file(services::POD_CGROUP, "pids.max", of_pods, "pods cannot take the machine's last process"),
        file(services::SHIM_CGROUP, "pids.max", of_shims, "nor can what carries them"),
    ]
}

/// Settings under /proc/sys, each with its reason. The image brings the kernel that has them all, so that one which cannot
/// be set is not a kernel's way but a fault, and the machine does not go on without what it stands for.
const SETTINGS: &[Row] = &[
    setting("net/ipv4/ip_forward", "1", "the machine routes for its pods; filter and rules decide what may pass"),
    setting("net/ipv4/conf/all/rp_filter", "1", "answers leave where the question came from"),
    setting("net/ipv4/conf/default/rp_filter", "1", "as above, for links to come"),
    setting("net/ipv4/conf/all/src_valid_mark", "1", "and are looked for by the rules that the question met"),
    setting(
        "net/ipv4/conf/default/ignore_routes_with_linkdown",
        "1",
        "what a link without carrier leads to, others may",
    ),
    setting("net/ipv4/conf/all/accept_redirects", "0", "nobody on the link changes our routes"),
    setting("net/ipv4/conf/default/accept_redirects", "0", "as above, for links to come"),
    setting("net/ipv4/conf/all/send_redirects", "0", "we are no router for strangers"),
    setting("net/ipv4/tcp_syncookies", "1", "the public port survives a SYN flood"),
    setting("net/ipv4/ping_group_range", "0 0", "PID 1 measures the paths to peers by echoes"),
    setting("net/ipv6/conf/all/accept_redirects", "0", "as for IPv4"),
    setting("net/ipv6/conf/default/accept_redirects", "0", "as for IPv4"),
    setting("net/ipv6/conf/all/disable_ipv6", "1", "no IPv6 before its routing rules are there"),
    setting("net/ipv6/conf/default/disable_ipv6", "1", "as above, for links to come"),
    setting("net/ipv6/conf/lo/disable_ipv6", "0", "::1 is used by upstream components"),
    setting("kernel/kptr_restrict", "2", "no kernel addresses to anyone"),
    setting("kernel/dmesg_restrict", "1", "no kernel log to pods"),
    setting("kernel/unprivileged_bpf_disabled", "1", "no bpf for pods"),
    setting("kernel/panic", "10", "a person can read the screen before the machine starts again"),
    setting("kernel/panic_on_oops", "1", "kubelet checks it; a broken kernel is not trusted with data"),
    setting("vm/overcommit_memory", "1", "kubelet checks it"),
    setting("fs/protected_hardlinks", "1", "classic /tmp races"),
    setting("fs/protected_symlinks", "1", "classic /tmp races"),
    setting("fs/protected_fifos", "2", "classic /tmp races"),
    setting("fs/protected_regular", "2", "classic /tmp races"),
    setting("fs/suid_dumpable", "0", "no core of a program that changed its rights"),
    setting("fs/inotify/max_user_instances", "8192", "containerd and kubelet watch every pod"),
    setting("fs/inotify/max_user_watches", "524288", "as above"),
    setting("vm/max_map_count", "262144", "what databases in pods ask for"),
];

/// Setting that says who may trace processes (Documentation/admin-guide/LSM/Yama.rst).
const fn tracing(has_gvisor: bool) -> Row {
    let key = "kernel/yama/ptrace_scope";
    match has_gvisor {
        true => {
            setting(key, "2", "a sandbox of gVisor traces what runs in it; nobody else but root, until the next boot")
        }
        false => setting(key, "3", "no tracing at all, by root neither, until the next boot"),
    }
}

const fn setting(key: &'static str, value: &'static str, because: &'static str) -> Row {
    Row { what: What::Setting(key, value), need: Need::Required, because }
}

/// Makes each row in turn. The first that is required and fails ends it.
fn make_all(rows: &[Row], make: impl Fn(&What) -> io::Result<()>) -> Result<(), Error> {
    for Row { what, need, because } in rows {
        match (make(what), need) {
            (Ok(()), _) => {}
            (Err(error), Need::Required) => return Err(Error::Row(*what, error)),
            (Err(error), Need::Optional) => {
                tracing::debug!(%what, because, %error, "not there: the machine goes on without")
            }
        }
    }
    Ok(())
}

impl What {
    fn make(&self) -> io::Result<()> {
        match *self {
            Self::Mount { target, kind, flags, options } => {
                make_directory(target)?;
                let options = std::ffi::CString::new(options).expect("no NUL in the table");
                Ok(mount(kind, target, kind, flags, Some(options.as_c_str()))?)
            }
            Self::SharedMounts => Ok(mount_change("/", MountPropagationFlags::SHARED | MountPropagationFlags::REC)?),
            Self::Cgroup(group) => make_directory(&format!("{CGROUPS}{group}")),
            Self::CgroupFile(group, file, value) => fs::write(format!("{CGROUPS}{group}/{file}"), value.to_string()),
            Self::Setting(key, value) => fs::write(Path::new("/proc/sys").join(key), value),
        }
    }
}

/// A directory that is there, by us or before.
fn make_directory(path: &str) -> io::Result<()> {
    match fs::create_dir(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mount { target, .. } => write!(f, "mount `{target}`"),
            Self::SharedMounts => f.write_str("share mounts below `/`"),
            Self::Cgroup(group) => write!(f, "make cgroup `{group}`"),
            Self::CgroupFile(group, file, _) => write!(f, "set `{file}` of cgroup `{group}`"),
            Self::Setting(key, _) => write!(f, "set kernel setting `{key}`"),
        }
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Words(words) => f.write_str(words),
            Self::Number(number) => write!(f, "{number}"),
        }
    }
}

/// Mounts pstore alone.
///
/// # Errors
/// Where the kernel has none, or where it is mounted already.
pub(crate) fn mount_pstore() -> io::Result<()> {
    PSTORE.what.make()
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
        make_all(MOUNTS, What::make)?;
        let most = number("/proc/sys/kernel/pid_max")?.min(number("/proc/sys/kernel/threads-max")?);
        make_all(&cgroups(most), What::make)?;
        make_all(SETTINGS, What::make)?;
        let has_gvisor = has_gvisor().map_err(|error| Error::Read(EXTENSIONS, error))?;
        make_all(&[tracing(has_gvisor)], What::make)?;
        raise_open_files().map_err(Error::OpenFiles)?;
        let boot_id =
            fs::read_to_string("/proc/sys/kernel/random/boot_id").map_err(|error| Error::Read("boot_id", error))?;
        Ok(Self {
            boot: Boot {
                profile: profile().map_err(|error| Error::Read(PROFILE, error))?,
                has_gvisor,
                root_hash: root_hash().ok_or(Error::RootHash)?,
                boot_id: boot_id.trim().to_owned(),
                class: boot_class(),
            },
        })
    }
}

/// Lets PID 1 have as many open files as the kernel allows (4096): two for each connection of a pod to the Kubernetes API are more than
/// the 1024 that it begins with (`INIT_RLIMITS`, include/asm-generic/resource.h).
fn raise_open_files() -> io::Result<()> {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    Ok(setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum })?)
}

fn number(path: &'static str) -> Result<u64, Error> {
    let text = fs::read_to_string(path).map_err(|error| Error::Read(path, error))?;
    text.trim().parse().map_err(|error| Error::Read(path, io::Error::other(error)))
}

/// Where the root says which profile it is.
const PROFILE: &str = "/etc/cairn/profile";

/// Which profile the running root is. What is not the debug profile's word is a release.
///
/// # Errors
/// When the root does not say.
fn profile() -> io::Result<Profile> {
    let word = fs::read_to_string(PROFILE)?;
    Ok(if word.trim() == "debug" { Profile::Debug } else { Profile::Release })
}

/// Where the root says what it has that not every root has, a word a line.
const EXTENSIONS: &str = "/etc/cairn/extensions";

/// Whether the running root has gVisor.
///
/// # Errors
/// When the root does not say.
fn has_gvisor() -> io::Result<bool> {
    Ok(fs::read_to_string(EXTENSIONS)?.lines().any(|word| word == "gvisor"))
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
    match durable::exists(Path::new("/sys/firmware/efi")) {
        Ok(false) => BootClass::Direct,
        // The one that is looked at more strictly.
        Ok(true) | Err(_) => BootClass::Uefi,
    }
}

/// The root hash that stage 0 verified the root with. Stage 0 clears its environment first, so the text is its own.
fn root_hash() -> Option<RootHash> {
    std::env::var(ROOT_HASH).ok()?.parse().ok()
}

/// When stage 0 began, in time since the kernel started, as it passed it on.
pub(crate) fn stage0_began() -> Option<Duration> {
    std::env::var(BEGAN).ok()?.parse().ok().map(Duration::from_micros)
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    fn of(what: &What) -> io::Result<()> {
        Err(io::Error::other(what.to_string()))
    }

    /// Proves: A7
    #[test]
    fn a_row_the_kernel_does_not_give_is_fatal_by_name_or_optional() {
        let cgroups = cgroups(24_000);
        for table in [MOUNTS, &cgroups, SETTINGS, &[false, true].map(tracing)] {
            for Row { what: refused, need, .. } in table {
                let made = RefCell::new(0);
                let result = make_all(table, |what| {
                    *made.borrow_mut() += 1;
                    if what == refused { of(what) } else { Ok(()) }
                });
                match (need, result) {
                    (Need::Required, Err(Error::Row(named, _))) => assert_eq!(named, *refused),
                    (Need::Optional, Ok(())) => assert_eq!(made.into_inner(), table.len(), "the rest is made"),
                    (need, result) => panic!("`{refused}` is {need:?}: {result:?}"),
                }
            }
        }
    }

    /// Written out: what a machine may be without is no matter of a slip.
    #[test]
    fn only_three_mounts_are_optional() {
        let cgroups = cgroups(24_000);
        let tracing = [false, true].map(tracing);
        let rows = [MOUNTS, &cgroups, SETTINGS, &tracing].into_iter().flatten();
        let optional: Vec<String> =
            rows.filter(|row| row.need == Need::Optional).map(|row| row.what.to_string()).collect();
        assert_eq!(optional, ["mount `/sys/fs/bpf`", "mount `/sys/fs/pstore`", "mount `/sys/firmware/efi/efivars`"]);
    }

    fn value_of(wanted: &str) -> Option<&'static str> {
        SETTINGS.iter().find_map(|row| match row.what {
            What::Setting(key, value) if key == wanted => Some(value),
            What::Setting(..) | What::Mount { .. } | What::SharedMounts | What::Cgroup(_) | What::CgroupFile(..) => {
                None
            }
        })
    }

    /// Settings that keep strangers' packets out of the machine's addresses, written out.
    ///
    /// Proves: A7
    #[test]
    fn nobody_on_the_link_changes_routes_or_comes_by_another_way() {
        for (key, value) in [
            ("net/ipv4/conf/all/rp_filter", "1"),
            ("net/ipv4/conf/default/rp_filter", "1"),
            ("net/ipv4/conf/all/accept_redirects", "0"),
            ("net/ipv6/conf/all/disable_ipv6", "1"),
            ("net/ipv6/conf/default/disable_ipv6", "1"),
        ] {
            assert_eq!(value_of(key), Some(value), "{key}");
        }
    }

    /// Proves: M12
    #[test]
    fn no_route_is_taken_whose_link_has_no_carrier() {
        // Only what links begin with counts for a link: the kernel asks `all` nothing here.
        assert_eq!(value_of("net/ipv4/conf/default/ignore_routes_with_linkdown"), Some("1"));
    }

    /// Written out: a bound that follows the code it bounds is none.
    #[test]
    fn pods_are_bounded_beside_what_carries_them() {
        let rows = cgroups(24_000);
        for (group, file, bound) in [
            ("/init", "memory.min", 33_554_432),
            ("/services", "memory.low", 1_073_741_824),
            ("/pods", "pids.max", 18_000),
            ("/shims", "pids.max", 4096),
        ] {
            let wanted = What::CgroupFile(group, file, Value::Number(bound));
            assert!(rows.iter().any(|row| row.what == wanted), "{wanted:?}");
        }
    }

    /// Without Yama's strictest mode root in any service reads the memory of PID 1.
    #[test]
    fn no_process_is_traced_nor_dumped_once_its_rights_changed() {
        let scope = |has_gvisor| match tracing(has_gvisor) {
            Row { what: What::Setting("kernel/yama/ptrace_scope", scope), need: Need::Required, .. } => scope,
            other => panic!("{other:?}"),
        };
        assert_eq!((scope(false), scope(true)), ("3", "2"), "a sandbox of gVisor cannot begin without");
        assert_eq!(value_of("fs/suid_dumpable"), Some("0"));
    }
}
