//! The root: everything a machine can read or execute, as one table, and its erofs image.
//!
//! Nothing is in the root that is not in [`TABLE`], except licences. Every file belongs to root, has time 0, is not
//! writable and never setuid.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

use crate::files::{self, FileError};
use crate::inputs::{ImageInputs, InputError, RootProgram};
use crate::manifest::{ImageExtension, ImageProfile, ManifestEntry};
use crate::oci::Image;
use crate::roots;

/// Why there is no root.
#[derive(Debug, thiserror::Error)]
pub enum RootError {
    /// A file could not be read or written.
    #[error(transparent)]
    File(#[from] FileError),
    /// A program could not be taken.
    #[error(transparent)]
    Input(#[from] InputError),
    /// A notice's name is empty, hidden, a path, or used twice.
    #[error("`{0}` is no name for a notice, or is used twice")]
    LicenceName(String),
    /// mkfs.erofs is not there.
    #[error("start mkfs.erofs (Debian package erofs-utils)")]
    StartMkfs(#[source] io::Error),
    /// mkfs.erofs refused.
    #[error("mkfs.erofs: {stderr}")]
    Mkfs {
        /// Text that the program printed to its standard error.
        stderr: String,
    },
    /// An OCI image could not be put together.
    #[error("put an OCI image together")]
    Image(#[source] io::Error),
}

/// A path of the root.
#[derive(Debug, Clone, Copy)]
pub struct RootRow {
    /// Absolute path.
    pub path: &'static str,
    /// Content of the path.
    pub content: RootContent,
    /// Roots that have it.
    pub of: RootOf,
    /// Why it is there.
    pub because: &'static str,
}

/// Roots that have a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RootOf {
    /// Each.
    Each,
    /// Roots of one profile.
    Profile(ImageProfile),
    /// Roots with an extension.
    Extension(ImageExtension),
}

/// Content of a path of the root.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RootContent {
    /// An empty directory, or one that other rows fill.
    Directory,
    /// An executable that comes in finished.
    Executable(RootProgram),
    /// A symbolic link to this target.
    Link(&'static str),
    /// A file with this text.
    Text(&'static str),
    /// os-release(5) with the version being built.
    OsRelease,
    /// The word of the profile.
    Profile,
    /// The words of the extensions, each on a line of its own.
    Extensions,
    /// Root certificates of the public web.
    RootCertificates,
    /// An OCI archive that runs this program.
    Image {
        /// The program in it.
        program: RootProgram,
        /// The image's name with tag.
        reference: &'static str,
    },
}

const fn row(path: &'static str, content: RootContent, because: &'static str) -> RootRow {
    RootRow { path, content, of: RootOf::Each, because }
}

const fn only(of: RootOf, row: RootRow) -> RootRow {
    RootRow { of, ..row }
}

/// The root of every image, parents before what they hold; [`rows`] are those of one.
pub const TABLE: &[RootRow] = &[
    row("/bin", RootContent::Directory, "the only place of programs"),
    row("/bin/init", RootContent::Executable(RootProgram::Init), "PID 1"),
    row("/bin/mount", RootContent::Link("init"), "kubelet runs it to mount volumes"),
    row("/bin/umount", RootContent::Link("init"), "kubelet runs it to unmount volumes"),
    row(
        "/bin/nft",
        RootContent::Link("init"),
        "PID 1 sets its filter by it, kube-proxy and portmap what leads to pods",
    ),
    row("/bin/etcd", RootContent::Executable(RootProgram::Etcd), "keeps the cluster's state"),
    row("/bin/containerd", RootContent::Executable(RootProgram::Containerd), "runs containers"),
    row(
        "/bin/containerd-shim-runc-v2",
        RootContent::Executable(RootProgram::ContainerdShim),
        "containerd's parent of a pod",
    ),
    row("/bin/runc", RootContent::Executable(RootProgram::Runc), "makes a container"),
    only(
        RootOf::Extension(ImageExtension::Gvisor),
        row("/bin/runsc", RootContent::Executable(RootProgram::Runsc), "makes a sandbox, and is the kernel in it"),
    ),
    only(
        RootOf::Extension(ImageExtension::Gvisor),
        row(
            "/bin/containerd-shim-runsc-v1",
            RootContent::Executable(RootProgram::RunscShim),
            "containerd's parent of a pod in a sandbox",
        ),
    ),
    row("/bin/kube", RootContent::Executable(RootProgram::Kube), "all of Kubernetes in one program"),
    row("/bin/kube-apiserver", RootContent::Link("kube"), "picked by its name"),
    row("/bin/kube-controllers", RootContent::Link("kube"), "picked by its name"),
    row("/bin/kube-proxy", RootContent::Link("kube"), "picked by its name"),
    row("/bin/kubelet", RootContent::Link("kube"), "picked by its name"),
    row("/bin/coredns", RootContent::Executable(RootProgram::CoreDns), "resolves names for the machine's pods"),
    row("/bin/mkfs.xfs", RootContent::Executable(RootProgram::MkfsXfs), "formats the data partition at create"),
    only(
        RootOf::Profile(ImageProfile::Debug),
        row("/bin/guest", RootContent::Executable(RootProgram::Guest), "tests break a machine from inside by it"),
    ),
    row("/sbin", RootContent::Directory, "for the link in it"),
    row("/sbin/init", RootContent::Link("../bin/init"), "where a person looks for it"),
    row("/opt", RootContent::Directory, "for CNI"),
    row("/opt/cni", RootContent::Directory, "for CNI"),
    row("/opt/cni/bin", RootContent::Directory, "where containerd looks for CNI plugins"),
    row("/opt/cni/bin/ptp", RootContent::Executable(RootProgram::CniPtp), "a pod's link to the machine"),
    row("/opt/cni/bin/host-local", RootContent::Executable(RootProgram::CniHostLocal), "gives a pod its address"),
    row("/opt/cni/bin/loopback", RootContent::Executable(RootProgram::CniLoopback), "a pod's loopback"),
    row("/opt/cni/bin/portmap", RootContent::Executable(RootProgram::CniPortmap), "leads a machine's port to a pod"),
    row("/etc", RootContent::Directory, "what programs insist on"),
    row("/etc/cairn", RootContent::Directory, "what the image says of itself"),
    row("/etc/cairn/profile", RootContent::Profile, "init shows it, and serves faults in the debug profile alone"),
    row("/etc/cairn/extensions", RootContent::Extensions, "init sets the kernel and containerd up for them"),
    row("/etc/cni", RootContent::Directory, "containerd watches for it; the network's list comes from /run"),
    row("/etc/group", RootContent::Text("root:x:0:\nnogroup:x:65534:\n"), "runc looks groups up"),
    row(
        "/etc/hosts",
        RootContent::Text("127.0.0.1 localhost\n::1 localhost\n"),
        "etcd and Go's resolver need localhost",
    ),
    row("/etc/machine-id", RootContent::Link("/run/machine-id"), "from the machine's identity; kubelet reports it"),
    row("/etc/nsswitch.conf", RootContent::Text("hosts: files dns\n"), "Go's resolver asks /etc/hosts first"),
    row("/etc/os-release", RootContent::OsRelease, "kubelet reports it, the boot menu shows it"),
    row("/etc/passwd", RootContent::Text(PASSWD), "runc looks users up"),
    row("/etc/resolv.conf", RootContent::Link("/run/resolv.conf"), "from DHCP or the static config"),
    row("/etc/ssl", RootContent::Directory, "for certificates"),
    row("/etc/ssl/certs", RootContent::Directory, "for certificates"),
    row(
        "/etc/ssl/certs/ca-certificates.crt",
        RootContent::RootCertificates,
        "containerd knows public registries by them; the first place where Go looks (crypto/x509 root_linux.go)",
    ),
    row("/images", RootContent::Directory, "imported when containerd starts"),
    row(
        "/images/pause.tar",
        RootContent::Image { program: RootProgram::Pause, reference: "cairn.local/pause:1" },
        "holds the namespaces of each pod",
    ),
    row(
        "/images/web.tar",
        RootContent::Image { program: RootProgram::Web, reference: "cairn.local/web:1" },
        "the pod that shows that pods run",
    ),
    row("/usr", RootContent::Directory, "for what is in it"),
    row("/usr/share", RootContent::Directory, "for what is in it"),
    row("/usr/share/doc", RootContent::Directory, "for what is in it"),
    row("/usr/share/doc/cairn", RootContent::Directory, "for what is in it"),
    row(LICENCES, RootContent::Directory, "the notices of everything in the image"),
    row("/data", RootContent::Directory, "mount point of the data partition"),
    row("/dev", RootContent::Directory, "mount point"),
    row("/proc", RootContent::Directory, "mount point"),
    row("/run", RootContent::Directory, "mount point"),
    row("/sys", RootContent::Directory, "mount point"),
    row("/tmp", RootContent::Directory, "mount point"),
    row("/var", RootContent::Link("data/var"), "containerd and kubelet write below it"),
];

/// Rows of [`TABLE`] that are in the root of a profile with extensions.
pub fn rows(
    profile: ImageProfile,
    extensions: &BTreeSet<ImageExtension>,
) -> impl Iterator<Item = &'static RootRow> + use<'_> {
    TABLE.iter().filter(move |row| match row.of {
        RootOf::Each => true,
        RootOf::Profile(of) => of == profile,
        RootOf::Extension(of) => extensions.contains(&of),
    })
}

/// Where the notices lie.
pub(crate) const LICENCES: &str = "/usr/share/doc/cairn/licences";
const PASSWD: &str = "root:x:0:0:root:/:/bin/false\nnobody:x:65534:65534:nobody:/:/bin/false\n";

/// Options of mkfs.erofs, each with its reason.
const EROFS_OPTIONS: &[&str] = &[
    "-zlz4hc,9",                              // what Debian's mkfs.erofs has; decompression costs next to nothing
    "-C32768",                                // 5 % smaller than clusters of 16 KiB; 64 KiB are 3 % more
    "-x-1",                                   // no extended attributes, whatever the build host sets
    "-T0",                                    // every file's time
    "-U00000000-0000-0000-0000-000000000000", // else random
    "--all-root",                             // owner of everything, whoever builds
    "--quiet",
];

/// os-release(5) of `version`; also what the boot menu shows.
pub(crate) fn os_release(version: &str) -> String {
    format!("ID=cairn\nNAME=Cairn\nPRETTY_NAME=\"Cairn {version}\"\nVERSION_ID={version}\n")
}

/// The erofs image of the root, and the list of what is in it. `stage` is an absent directory; it is used and removed.
pub(crate) fn make(
    inputs: &ImageInputs,
    stage: &Path,
) -> Result<(Vec<u8>, BTreeMap<String, ManifestEntry>), RootError> {
    make_with(inputs, &[], stage)
}

/// The same with files of its own beside the table's, by absolute path, as an erofs image that nothing verifies: the
/// root of what boots are measured against.
///
/// # Errors
/// [`RootError`] names the step.
pub fn plain_root(inputs: &ImageInputs, more: &[(&str, &[u8])], stage: &Path) -> Result<Vec<u8>, RootError> {
    make_with(inputs, more, stage).map(|(image, _list)| image)
}

fn make_with(
    inputs: &ImageInputs,
    more: &[(&str, &[u8])],
    stage: &Path,
) -> Result<(Vec<u8>, BTreeMap<String, ManifestEntry>), RootError> {
    remove(stage)?;
    fs::create_dir_all(stage).map_err(FileError::new("create directory", stage))?;
    let mut list = BTreeMap::new();
    for row in rows(inputs.init.profile(), &inputs.extensions) {
        list.insert(row.path.to_owned(), put(inputs, row, stage)?);
    }
    for licence in &inputs.licences {
        if licence.name.is_empty() || licence.name.starts_with('.') || licence.name.contains('/') {
            return Err(RootError::LicenceName(licence.name.clone()));
        }
        let path = format!("{LICENCES}/{}", licence.name);
        let entry = put_file(&below(stage, &path), &files::read(&licence.text)?, 0o444)?;
        if list.insert(path, entry).is_some() {
            return Err(RootError::LicenceName(licence.name.clone()));
        }
    }
    for (path, bytes) in more {
        let place = below(stage, path);
        let parent = place.parent().unwrap_or(stage);
        fs::create_dir_all(parent).map_err(FileError::new("create directory", parent))?;
        list.insert((*path).to_owned(), put_file(&place, bytes, 0o444)?);
    }
    let image = erofs(stage)?;
    remove(stage)?;
    Ok((image, list))
}

fn put(inputs: &ImageInputs, row: &RootRow, stage: &Path) -> Result<ManifestEntry, RootError> {
    let path = below(stage, row.path);
    let text = |text: &str| Ok(put_file(&path, text.as_bytes(), 0o444)?);
    match row.content {
        RootContent::Directory => {
            fs::create_dir(&path).map_err(FileError::new("create directory", &path))?;
            fs::set_permissions(&path, Permissions::from_mode(0o755)).map_err(FileError::new("set mode of", &path))?;
            Ok(ManifestEntry::Directory)
        }
        RootContent::Link(target) => {
            symlink(target, &path).map_err(FileError::new("create link", &path))?;
            Ok(ManifestEntry::Link { target: target.to_owned() })
        }
        RootContent::Executable(program) => Ok(put_file(&path, &inputs.program(program)?, 0o555)?),
        RootContent::Text(content) => text(content),
        RootContent::OsRelease => text(&os_release(&inputs.version)),
        RootContent::Profile => text(&format!("{}\n", inputs.init.profile().word())),
        RootContent::Extensions => {
            text(&inputs.extensions.iter().map(|one| format!("{}\n", one.word())).collect::<String>())
        }
        RootContent::RootCertificates => text(&roots::bundle()),
        RootContent::Image { program, reference } => {
            let bytes = inputs.program(program)?;
            let image = Image { reference, program: program.file_name(), bytes: &bytes, version: &inputs.version };
            Ok(put_file(&path, &image.archive().map_err(RootError::Image)?, 0o444)?)
        }
    }
}

fn put_file(path: &Path, bytes: &[u8], mode: u32) -> Result<ManifestEntry, FileError> {
    files::write(path, bytes)?;
    fs::set_permissions(path, Permissions::from_mode(mode)).map_err(FileError::new("set mode of", path))?;
    // As it lies there now, not as it was meant.
    let mode = fs::metadata(path).map_err(FileError::new("look at", path))?.permissions().mode() & 0o7777;
    Ok(ManifestEntry::file_with_mode(bytes, mode))
}

/// Debian's mkfs.erofs over `stage`. It sorts what it reads, so the order of the directory on disk does not show.
fn erofs(stage: &Path) -> Result<Vec<u8>, RootError> {
    let output = stage.with_extension("erofs");
    let ran = Command::new("mkfs.erofs").args(EROFS_OPTIONS).arg(&output).arg(stage).output();
    let ran = ran.map_err(RootError::StartMkfs)?;
    if !ran.status.success() {
        return Err(RootError::Mkfs { stderr: String::from_utf8_lossy(&ran.stderr).trim().to_owned() });
    }
    let mut image = files::read(&output)?;
    fs::remove_file(&output).map_err(FileError::new("remove", &output))?;
    image.resize(image.len().next_multiple_of(formats::verity::BLOCK), 0);
    Ok(image)
}

pub(crate) fn below(stage: &Path, path: &str) -> std::path::PathBuf {
    stage.join(path.trim_start_matches('/'))
}

fn remove(stage: &Path) -> Result<(), FileError> {
    match fs::remove_dir_all(stage) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(FileError::new("remove", stage)(error)),
        Ok(()) | Err(_) => Ok(()), // gone either way
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn the_table_has_each_path_once_below_a_directory_and_a_reason() {
        let mut directories = BTreeSet::from([""]);
        let mut seen = BTreeSet::new();
        for row in TABLE {
            assert!(seen.insert(row.path), "{} twice", row.path);
            let (parent, _) = row.path.rsplit_once('/').expect("absolute");
            assert!(directories.contains(parent), "{} before its parent", row.path);
            assert!(!row.because.is_empty(), "{} has no reason", row.path);
            if row.content == RootContent::Directory {
                directories.insert(row.path);
            }
        }
    }

    #[test]
    fn every_program_is_in_the_root_exactly_once() {
        for program in RootProgram::ALL {
            let rows = TABLE.iter().filter(|row| match row.content {
                RootContent::Executable(of) | RootContent::Image { program: of, .. } => of == program,
                RootContent::Directory
                | RootContent::Link(_)
                | RootContent::Text(_)
                | RootContent::OsRelease
                | RootContent::Profile
                | RootContent::Extensions
                | RootContent::RootCertificates => false,
            });
            assert_eq!(rows.count(), 1, "{program:?}");
        }
    }

    #[test]
    fn only_the_debug_root_has_the_guest() {
        let none = BTreeSet::new();
        let paths = |profile| rows(profile, &none).map(|row| row.path).collect::<BTreeSet<_>>();
        let (release, debug) = (paths(ImageProfile::Release), paths(ImageProfile::Debug));
        assert_eq!(release.difference(&debug).count(), 0);
        assert_eq!(debug.difference(&release).collect::<Vec<_>>(), [&"/bin/guest"]);
    }

    /// Proves: W6
    #[test]
    fn only_a_root_that_was_asked_for_gvisor_has_it() {
        let paths = |extensions: &[ImageExtension]| {
            let extensions = extensions.iter().copied().collect();
            rows(ImageProfile::Release, &extensions).map(|row| row.path).collect::<BTreeSet<_>>()
        };
        let (plain, with) = (paths(&[]), paths(&[ImageExtension::Gvisor]));
        assert_eq!(plain.difference(&with).count(), 0);
        let more = with.difference(&plain).copied().collect::<Vec<_>>();
        assert_eq!(more, ["/bin/containerd-shim-runsc-v1", "/bin/runsc"]);
    }
}
