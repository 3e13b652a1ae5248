//! Limits of an image's weight and content: the numbers that SPECIFICATION.md promises, held by every build. Judges the
//! manifest alone; must never read a file.

use std::fmt;

use crate::inputs::{RootProgram, SizeLimits};
use crate::manifest::{ImageExtension, ImageProfile, Manifest, ManifestEntry};
use crate::names;
use crate::root::{self, RootContent};

/// bzImage, initramfs and root.img of a release together, in bytes: what a direct boot loads and what an update will carry.
const BOOT_LIMIT: u64 = 130_000_000;
/// Part by which these may be more with gVisor.
const GVISOR_LIMIT: u64 = 50_000_000;
/// Files of a release's root that are no upstream component's program, uncompressed, in bytes. Notices are counted.
const USERLAND_LIMIT: u64 = 20_000_000;
/// Set-user-ID and set-group-ID (inode(7)).
const SET_ID: u32 = 0o6000;
const EXECUTE: u32 = 0o111;

/// Sizes that were measured, all of them within the limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Weight {
    /// Bytes of bzImage, initramfs and root.img.
    pub boot: u64,
    /// Most bytes that these may be, with the image's extensions.
    pub boot_limit: u64,
    /// Bytes of the root's files beyond upstream components and the guest, uncompressed.
    pub userland: u64,
    /// Bytes of the guest, which only a debug image has.
    pub guest: Option<u64>,
}

impl fmt::Display for Weight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { boot, boot_limit, userland, guest } = self;
        write!(f, "bzImage, initramfs and root.img: {boot} bytes of {boot_limit}; ")?;
        write!(f, "userland beyond upstream components: {userland} of {USERLAND_LIMIT}; ")?;
        f.write_str("no setuid file, no executable beyond init, upstream and mkfs.xfs")?;
        guest.map_or(Ok(()), |guest| write!(f, ", but for the guest of the debug profile: {guest} bytes"))
    }
}

/// Which limit an image breaks.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OverLimit {
    /// More than a machine may have to load.
    #[error("bzImage, initramfs and root.img have {bytes} bytes together, and {limit} at most are promised")]
    Boot {
        /// Bytes that they have.
        bytes: u64,
        /// Most that they may have.
        limit: u64,
    },
    /// More of our own than promised.
    #[error("what is not an upstream component has {0} bytes, and {USERLAND_LIMIT} at most are promised")]
    Userland(u64),
    /// A file that gives whoever runs it another user or group.
    #[error("`{0}` is setuid or setgid")]
    SetId(String),
    /// A program that has no place in the root.
    #[error("`{0}` can be executed, and is neither init nor an upstream component nor mkfs.xfs")]
    Executable(String),
}

/// Weighs an image.
///
/// # Errors
/// [`OverLimit`] names the first limit that it breaks.
pub fn weigh(manifest: &Manifest, sizes: SizeLimits) -> Result<Weight, OverLimit> {
    // What the debug profile has beside is carried nowhere.
    let held = sizes == SizeLimits::Held && manifest.profile == ImageProfile::Release;
    let artefact = |name| manifest.artefacts.get(name).map_or(0, ManifestEntry::size);
    let boot = [names::KERNEL, names::INITRAMFS, names::ROOT].map(artefact).iter().sum();
    let boot_limit = BOOT_LIMIT + manifest.extensions.iter().map(|one| weight_of(*one)).sum::<u64>();
    if held && boot > boot_limit {
        return Err(OverLimit::Boot { bytes: boot, limit: boot_limit });
    }
    let (mut userland, mut guest) = (0, None);
    for (path, entry) in &manifest.root {
        let origin = origin(manifest, path);
        match origin {
            Some(Origin::Upstream) => {}
            Some(Origin::Guest) => guest = Some(entry.size()),
            Some(Origin::InitOrMkfs) | None => userland += entry.size(),
        }
        let mode = entry.mode().unwrap_or(0);
        if mode & SET_ID != 0 {
            return Err(OverLimit::SetId(path.clone()));
        }
        if mode & EXECUTE != 0 && origin.is_none() {
            return Err(OverLimit::Executable(path.clone()));
        }
    }
    if held && userland > USERLAND_LIMIT {
        return Err(OverLimit::Userland(userland));
    }
    Ok(Weight { boot, boot_limit, userland, guest })
}

/// Bytes that an extension may add.
const fn weight_of(extension: ImageExtension) -> u64 {
    match extension {
        ImageExtension::Gvisor => GVISOR_LIMIT,
    }
}

/// Origin of a program of the root.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Origin {
    Upstream,
    InitOrMkfs,
    Guest,
}

/// Origin of the program at `path` in the root; none if nothing may be executed there.
fn origin(manifest: &Manifest, path: &str) -> Option<Origin> {
    root::rows(manifest.profile, &manifest.extensions).find(|row| row.path == path).and_then(|row| match row.content {
        RootContent::Executable(program) => match program {
            RootProgram::Etcd
            | RootProgram::Containerd
            | RootProgram::ContainerdShim
            | RootProgram::Runc
            | RootProgram::Runsc
            | RootProgram::RunscShim
            | RootProgram::Kube
            | RootProgram::CoreDns
            | RootProgram::CniPtp
            | RootProgram::CniHostLocal
            | RootProgram::CniLoopback
            | RootProgram::CniPortmap => Some(Origin::Upstream),
            RootProgram::Init | RootProgram::MkfsXfs => Some(Origin::InitOrMkfs),
            RootProgram::Guest => Some(Origin::Guest),
            RootProgram::Pause | RootProgram::Web => None, // in containers only
        },
        RootContent::Directory
        | RootContent::Link(_)
        | RootContent::Text(_)
        | RootContent::OsRelease
        | RootContent::Profile
        | RootContent::Extensions
        | RootContent::RootCertificates
        | RootContent::Image { .. } => None,
    })
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;
    use crate::manifest::{KernelOrigin, Mode, VerityPlace};

    fn file(size: u64, mode: u32) -> ManifestEntry {
        ManifestEntry::File { size, sha256: String::new(), mode: Some(Mode(mode)) }
    }

    /// An image at its limits: each part is as large as it may be.
    fn full() -> Manifest {
        let artefacts = [(names::KERNEL, 5_000_000), (names::INITRAMFS, 30_000_000), (names::ROOT, 95_000_000)];
        let root = [
            ("/bin/kube", file(500_000_000, 0o555)),
            ("/bin/init", file(15_000_000, 0o555)),
            ("/bin/mkfs.xfs", file(4_000_000, 0o555)),
            ("/images/web.tar", file(999_999, 0o444)),
            ("/usr/share/doc/cairn/licences/kube", file(1, 0o444)),
            ("/bin", ManifestEntry::Directory),
            ("/bin/kubelet", ManifestEntry::Link { target: "kube".to_owned() }),
        ];
        let named = |(name, size): (&str, u64)| {
            (name.to_owned(), ManifestEntry::File { size, sha256: String::new(), mode: None })
        };
        Manifest {
            version: String::new(),
            profile: ImageProfile::Release,
            extensions: BTreeSet::new(),
            kernel: KernelOrigin { version: String::new(), source_sha256: String::new() },
            cmdline: String::new(),
            verity: VerityPlace { root_hash: String::new(), hash_offset: 0, data_blocks: 0 },
            pcr11: String::new(),
            components: BTreeMap::new(),
            artefacts: artefacts.into_iter().chain([(names::DISK, 1 << 40)]).map(named).collect(),
            initramfs: BTreeMap::new(),
            esp: BTreeMap::new(),
            root: root.map(|(path, entry)| (path.to_owned(), entry)).into(),
        }
    }

    fn with(path: &str, entry: ManifestEntry) -> Result<Weight, OverLimit> {
        let mut manifest = full();
        manifest.root.insert(path.to_owned(), entry);
        weigh(&manifest, SizeLimits::Held)
    }

    #[test]
    fn an_image_at_its_limits_is_made_and_one_byte_more_is_not() {
        assert_eq!(
            weigh(&full(), SizeLimits::Held),
            Ok(Weight { boot: BOOT_LIMIT, boot_limit: BOOT_LIMIT, userland: USERLAND_LIMIT, guest: None })
        );
        assert_eq!(with("/bin/etcd", file(1, 0o555)), weigh(&full(), SizeLimits::Held), "upstream does not count");
        assert_eq!(with("/etc/hosts", file(1, 0o444)), Err(OverLimit::Userland(USERLAND_LIMIT + 1)));
        let mut heavy = full();
        heavy.artefacts.insert(names::KERNEL.to_owned(), file(5_000_001, 0o444));
        let over = OverLimit::Boot { bytes: BOOT_LIMIT + 1, limit: BOOT_LIMIT };
        assert_eq!(weigh(&heavy, SizeLimits::Held), Err(over));
        assert!(weigh(&heavy, SizeLimits::Any).is_ok(), "it was compiled in seconds");
        heavy.extensions = [ImageExtension::Gvisor].into();
        assert!(weigh(&heavy, SizeLimits::Held).is_ok(), "gVisor may weigh something");
    }

    #[test]
    fn nothing_is_setuid_or_setgid() {
        for mode in [0o4555, 0o2555, 0o4444] {
            assert_eq!(with("/bin/etcd", file(1, mode)), Err(OverLimit::SetId("/bin/etcd".to_owned())));
        }
    }

    #[test]
    fn the_guest_is_for_the_debug_image_and_weighs_apart() {
        assert_eq!(with("/bin/guest", file(1, 0o555)), Err(OverLimit::Executable("/bin/guest".to_owned())));
        let mut debug = Manifest { profile: ImageProfile::Debug, ..full() };
        debug.root.insert("/bin/guest".to_owned(), file(7_000_000, 0o555));
        let weight =
            Weight { boot: BOOT_LIMIT, boot_limit: BOOT_LIMIT, userland: USERLAND_LIMIT, guest: Some(7_000_000) };
        assert_eq!(weigh(&debug, SizeLimits::Held), Ok(weight));
        debug.root.insert("/bin/other".to_owned(), file(1, 0o555));
        assert_eq!(weigh(&debug, SizeLimits::Held), Err(OverLimit::Executable("/bin/other".to_owned())));
    }

    #[test]
    fn only_init_upstream_and_mkfs_can_be_executed() {
        for path in ["/bin/sh", "/images/web.tar", "/etc/hosts", "/usr/share/doc/cairn/licences/kube"] {
            for mode in [0o555, 0o445] {
                assert_eq!(with(path, file(0, mode)), Err(OverLimit::Executable(path.to_owned())), "{mode:o}");
            }
        }
    }
}
