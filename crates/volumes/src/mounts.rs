//! Whether a volume is mounted, by the kernel's list of mounts (`/proc/self/mountinfo`, `fs/proc_namespace.c`).

use crate::name::VolumeId;
use crate::node::{PodPath, VolumeAccess};

/// Whether the volume, or a folder in it, is mounted anywhere, where `folder` is the folder of volumes as seen from the root
/// of its file system, as in `/volumes`.
#[must_use]
pub fn is_mounted(mountinfo: &str, folder: &str, id: VolumeId) -> bool {
    let place = format!("{folder}/{id}");
    // The fourth field: which folder of its file system is mounted.
    let mut roots = mountinfo.lines().filter_map(|mount| mount.split(' ').nth(3));
    roots.any(|root| root.strip_prefix(&place).is_some_and(|rest| rest.is_empty() || rest.starts_with('/')))
}

/// Volume that is mounted at a place, the topmost of them. None: nothing is mounted there.
#[must_use]
pub fn mounted_at<'a>(mountinfo: &'a str, target: &PodPath) -> Option<MountedFolder<'a>> {
    // Mounts are listed as they were made. A target has no letter that the kernel escapes.
    let fields = |line: &'a str| {
        let mut fields = line.split(' ').skip(3);
        Some((fields.next()?, fields.next()?, fields.next()?))
    };
    let mut at = mountinfo.lines().filter_map(fields).filter(|(_, place, _)| *place == target.as_str());
    let (root, _, options) = at.next_back()?;
    let read_only = options.split(',').any(|option| option == "ro");
    Some(MountedFolder { root, access: if read_only { VolumeAccess::ReadOnly } else { VolumeAccess::ReadWrite } })
}

/// Folder that is mounted somewhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MountedFolder<'a> {
    /// Folder as seen from the root of its file system.
    pub root: &'a str,
    /// Whether whoever uses the mount may write.
    pub access: VolumeAccess,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_volume_is_mounted_where_it_or_a_folder_of_it_is() {
        let id = VolumeId::parse("01234567-89ab-cdef-0123-456789abcdef").expect("a name");
        let other = VolumeId::parse("01234567-89ab-cdef-0123-456789abcdee").expect("a name");
        let line = |root: &str| {
            format!("21 1 0:20 / / ro - erofs /dev/dm-0 ro\n70 41 253:1 {root} /x rw - xfs /dev/dm-1 rw\n")
        };
        for root in
            [format!("/volumes/{id}"), format!("/volumes/{id}/data"), format!("/volumes/{id}/data/sub\\040path")]
        {
            assert!(is_mounted(&line(&root), "/volumes", id), "{root}");
            assert!(!is_mounted(&line(&root), "/volumes", other), "{root}");
        }
        for root in
            ["/".to_owned(), format!("/volumes/{id}0"), format!("/x/volumes/{id}"), format!("/volumes/.gone-{id}")]
        {
            assert!(!is_mounted(&line(&root), "/volumes", id), "{root}");
        }
        assert!(!is_mounted("", "/volumes", id) && !is_mounted("a b", "/volumes", id));
    }

    #[test]
    fn the_topmost_mount_of_a_place_counts() {
        let target = PodPath::parse("/data/kubelet/pods/a/volumes/kubernetes.io~csi/b/mount").expect("a place");
        let mount = |root: &str, options: &str| format!("70 41 253:1 {root} {target} {options} - xfs /dev/dm-1 rw\n");
        assert_eq!(mounted_at("70 41 253:1 /x /y rw - xfs\nshort line\n", &target), None);
        let one = mount("/volumes/a/data", "rw,nosuid,nodev");
        let access = VolumeAccess::ReadWrite;
        assert_eq!(mounted_at(&one, &target), Some(MountedFolder { root: "/volumes/a/data", access }));
        let two = one + &mount("/volumes/b/data", "nosuid,ro");
        let access = VolumeAccess::ReadOnly;
        assert_eq!(mounted_at(&two, &target), Some(MountedFolder { root: "/volumes/b/data", access }));
    }
}
