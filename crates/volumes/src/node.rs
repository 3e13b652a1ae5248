//! Orders of kubelet: what it asks of the machine, as actions, or refused. The machine serves one kind of volume, a folder for the
//! pods of one machine, and does nothing else for whoever asks.

use std::fmt;

use crate::name::{BadVolumeId, VolumeId};

/// Folder of kubelet's pods.
const PODS: &str = "/data/kubelet/pods";
/// The longest path that the kernel takes, less its end (`PATH_MAX`).
const MOST_PATH_BYTES: usize = 4095;

/// Place in the folder of a pod where kubelet wants a volume: `<pods>/<pod>/volumes/kubernetes.io~csi/<name>/mount`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodPath(String);

impl PodPath {
    /// Reads a target path.
    ///
    /// # Errors
    /// [`NodeRefusal::Target`].
    pub fn parse(path: &str) -> Result<Self, NodeRefusal> {
        let below = path.strip_prefix(PODS).and_then(|rest| rest.strip_prefix('/'));
        let parts: Vec<&str> = below.into_iter().flat_map(|below| below.split('/')).collect();
        match parts[..] {
            [pod, "volumes", "kubernetes.io~csi", name, "mount"]
                if is_plain(pod) && is_plain(name) && path.len() <= MOST_PATH_BYTES =>
            {
                Ok(Self(path.to_owned()))
            }
            _ => Err(NodeRefusal::Target), // anything else may be of anybody
        }
    }

    /// Text of the path.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for PodPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Whether `part` names one folder, in letters that nobody has to escape.
fn is_plain(part: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    !part.is_empty() && !part.starts_with('.') && part.bytes().all(plain)
}

/// Whether a pod may write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VolumeAccess {
    /// Reads and writes.
    ReadWrite,
    /// Reads alone.
    ReadOnly,
}

/// Kinds of access that Kubernetes asks for (CSI 1.9, `VolumeCapability`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AccessMode {
    /// Pods of one machine write.
    OneMachine,
    /// Pods of one machine read.
    OneMachineReads,
    /// Any of several machines.
    ManyMachines,
    /// No word of this version.
    Unknown,
}

/// Form in which a pod wants a volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum VolumeForm {
    /// A folder of this file system, mounted with these flags and for this group.
    Folder {
        /// The file system's name, or nothing.
        filesystem: String,
        /// Flags of the claim's class.
        flags: Vec<String>,
        /// Group that the volume is to be given to by the machine.
        group: String,
    },
    /// A block device.
    Block,
    /// The request does not say.
    Unsaid,
}

/// Request to mount a volume for a pod, as it came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublishRequest {
    /// Handle of the volume.
    pub volume: String,
    /// Path where it is wanted.
    pub target: String,
    /// Form in which it is wanted.
    pub form: VolumeForm,
    /// Machines and pods that use it.
    pub mode: AccessMode,
    /// Whether the pod may only read.
    pub read_only: bool,
}

/// Order to mount a volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublishOrder {
    /// The volume.
    pub volume: VolumeId,
    /// Path where it is mounted.
    pub target: PodPath,
    /// Whether the pod may write.
    pub access: VolumeAccess,
}

/// Order to unmount a volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnpublishOrder {
    /// The volume.
    pub volume: VolumeId,
    /// Path where it is mounted.
    pub target: PodPath,
}

/// Order to have a volume be of a size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExpandOrder {
    /// The volume.
    pub volume: VolumeId,
    /// Bytes that it is to have at least.
    pub bytes: u64,
}

/// Why kubelet is refused. None of it gets better by asking again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NodeRefusal {
    /// The handle is no volume's name.
    #[error(transparent)]
    Volume(#[from] BadVolumeId),
    /// The path is not one of a pod's volumes.
    #[error("the target path is no place for a volume in the folder of a pod")]
    Target,
    /// The request lacks its capability.
    #[error("the request does not say how the volume is to be used")]
    Unsaid,
    /// Block devices.
    #[error("a volume of this machine is a folder, and no block device")]
    Block,
    /// Another file system.
    #[error("a volume of this machine is a folder of XFS, and of no other file system")]
    FileSystem,
    /// Options of mount(8).
    #[error("volumes of this machine are mounted without options of their own")]
    Flags,
    /// A group, which kubelet sets itself.
    #[error("this machine gives volumes to no group")]
    Group,
    /// More than one machine.
    #[error("a volume of this machine is used on this machine alone")]
    Mode,
    /// No size, or none that can be.
    #[error("the size is none")]
    Size,
}

impl PublishRequest {
    /// Reads what kubelet asks for.
    ///
    /// # Errors
    /// [`NodeRefusal`].
    pub fn order(&self) -> Result<PublishOrder, NodeRefusal> {
        let (volume, target) = (VolumeId::parse(&self.volume)?, PodPath::parse(&self.target)?);
        match &self.form {
            VolumeForm::Unsaid => return Err(NodeRefusal::Unsaid),
            VolumeForm::Block => return Err(NodeRefusal::Block),
            VolumeForm::Folder { filesystem, .. } if !["", "xfs"].contains(&filesystem.as_str()) => {
                return Err(NodeRefusal::FileSystem);
            }
            VolumeForm::Folder { flags, .. } if !flags.is_empty() => return Err(NodeRefusal::Flags),
            VolumeForm::Folder { group, .. } if !group.is_empty() => return Err(NodeRefusal::Group),
            VolumeForm::Folder { .. } => {}
        }
        let access = match (self.mode, self.read_only) {
            (AccessMode::OneMachine, false) => VolumeAccess::ReadWrite,
            (AccessMode::OneMachine, true) | (AccessMode::OneMachineReads, _) => VolumeAccess::ReadOnly,
            (AccessMode::ManyMachines, _) => return Err(NodeRefusal::Mode),
            (AccessMode::Unknown, _) => return Err(NodeRefusal::Unsaid),
        };
        Ok(PublishOrder { volume, target, access })
    }
}

/// Reads an order to unmount.
///
/// # Errors
/// [`NodeRefusal`].
pub fn unpublish(volume: &str, target: &str) -> Result<UnpublishOrder, NodeRefusal> {
    Ok(UnpublishOrder { volume: VolumeId::parse(volume)?, target: PodPath::parse(target)? })
}

/// Reads an order to expand; where it is mounted does not matter.
///
/// # Errors
/// [`NodeRefusal`].
pub fn expand(volume: &str, bytes: i64) -> Result<ExpandOrder, NodeRefusal> {
    let volume = VolumeId::parse(volume)?;
    match u64::try_from(bytes) {
        Ok(bytes) if bytes > 0 => Ok(ExpandOrder { volume, bytes }),
        Ok(_) | Err(_) => Err(NodeRefusal::Size),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const VOLUME: &str = "01234567-89ab-cdef-0123-456789abcdef";
    const TARGET: &str = "/data/kubelet/pods/9f1b/volumes/kubernetes.io~csi/pvc-1/mount";

    fn folder(filesystem: &str) -> VolumeForm {
        VolumeForm::Folder { filesystem: filesystem.to_owned(), flags: Vec::new(), group: String::new() }
    }

    fn request() -> PublishRequest {
        PublishRequest {
            volume: VOLUME.to_owned(),
            target: TARGET.to_owned(),
            form: folder(""),
            mode: AccessMode::OneMachine,
            read_only: false,
        }
    }

    #[test]
    fn what_kubelet_asks_for_is_an_order() {
        let order = |access| {
            let (volume, target) = (VolumeId::parse(VOLUME).expect("a name"), PodPath::parse(TARGET).expect("a place"));
            Ok(PublishOrder { volume, target, access })
        };
        assert_eq!(request().order(), order(VolumeAccess::ReadWrite));
        assert_eq!(PublishRequest { form: folder("xfs"), ..request() }.order(), order(VolumeAccess::ReadWrite));
        assert_eq!(PublishRequest { read_only: true, ..request() }.order(), order(VolumeAccess::ReadOnly));
        let reads = AccessMode::OneMachineReads;
        assert_eq!(PublishRequest { mode: reads, ..request() }.order(), order(VolumeAccess::ReadOnly));
        assert!(unpublish(VOLUME, TARGET).is_ok());
        assert_eq!(expand(VOLUME, 4096).map(|order| order.bytes), Ok(4096));
    }

    #[test]
    fn what_this_machine_does_not_serve_is_refused() {
        let refused = |edit: fn(&mut PublishRequest)| {
            let mut request = request();
            edit(&mut request);
            request.order().err()
        };
        assert_eq!(refused(|_| {}), None);
        assert_eq!(refused(|it| it.volume = "../x".to_owned()), Some(NodeRefusal::Volume(BadVolumeId)));
        assert_eq!(refused(|it| it.target.push('/')), Some(NodeRefusal::Target));
        assert_eq!(refused(|it| it.form = VolumeForm::Unsaid), Some(NodeRefusal::Unsaid));
        assert_eq!(refused(|it| it.form = VolumeForm::Block), Some(NodeRefusal::Block));
        assert_eq!(refused(|it| it.form = folder("ext4")), Some(NodeRefusal::FileSystem));
        assert_eq!(refused(|it| it.mode = AccessMode::ManyMachines), Some(NodeRefusal::Mode));
        assert_eq!(refused(|it| it.mode = AccessMode::Unknown), Some(NodeRefusal::Unsaid));
        let with = |flags: &[&str], group: &str| {
            let flags = flags.iter().map(|flag| (*flag).to_owned()).collect();
            let form = VolumeForm::Folder { filesystem: String::new(), flags, group: group.to_owned() };
            PublishRequest { form, ..request() }.order().err()
        };
        assert_eq!(with(&["suid"], ""), Some(NodeRefusal::Flags));
        assert_eq!(with(&[], "7"), Some(NodeRefusal::Group));
        assert_eq!(unpublish("..", TARGET).err(), Some(NodeRefusal::Volume(BadVolumeId)));
        assert_eq!(unpublish(VOLUME, "/").err(), Some(NodeRefusal::Target));
        for bytes in [0, -1, i64::MIN] {
            assert_eq!(expand(VOLUME, bytes).err(), Some(NodeRefusal::Size));
        }
    }

    /// Proves: W7
    #[test]
    fn a_target_outside_of_the_pods_is_refused() {
        PodPath::parse(TARGET).expect("a place of kubelet's");
        for path in [
            "",
            "/",
            "/etc",
            "/data/kubelet/pods",
            "/data/kubelet/pods/",
            "/data/kubelet/pods/9f1b/volumes/kubernetes.io~csi/pvc-1",
            "/data/kubelet/pods/9f1b/volumes/kubernetes.io~csi/pvc-1/mount/",
            "/data/kubelet/pods/9f1b/volumes/kubernetes.io~csi/pvc-1/mount/x",
            "/data/kubelet/pods/../volumes/kubernetes.io~csi/pvc-1/mount",
            "/data/kubelet/pods/9f1b/volumes/kubernetes.io~csi/../mount",
            "/data/kubelet/pods/9f1b/volumes/kubernetes.io~csi/./mount",
            "/data/kubelet/pods//volumes/kubernetes.io~csi/pvc-1/mount",
            "/data/kubelet/pods/9f1b/volumes/kubernetes.io~csi//mount",
            "/data/kubelet/pods/9f1b/volumes/kubernetes.io~empty-dir/pvc-1/mount",
            "/data/kubelet/pods/9f1b/volumes/kubernetes.io~csi/pvc 1/mount",
            "/data/kubelet/pods/9f1b/volumes/kubernetes.io~csi/pvc\n1/mount",
            "data/kubelet/pods/9f1b/volumes/kubernetes.io~csi/pvc-1/mount",
            "/data/kubelet/podsx/9f1b/volumes/kubernetes.io~csi/pvc-1/mount",
        ] {
            assert_eq!(PodPath::parse(path), Err(NodeRefusal::Target), "`{path}`");
        }
    }

    proptest! {
        /// Proves: A6
        #[test]
        fn no_path_climbs_out_of_the_pods(path in "(/data/kubelet/pods)?(/(\\.\\.|\\.|[a-z~.]{0,3}|volumes|kubernetes\\.io~csi|mount)){0,7}") {
            if let Ok(read) = PodPath::parse(&path) {
                prop_assert!(read.as_str().starts_with("/data/kubelet/pods/"));
                prop_assert!(read.as_str().split('/').all(|part| part != ".." && part != "."));
            }
        }
    }
}
