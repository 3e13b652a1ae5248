//! Requests as orders, and refusals as kubelet understands them.

use prost::{DecodeError, Message};
use tonic::{Code, Status};
use volumes::node::{
    AccessMode, ExpandOrder, NodeRefusal, PublishOrder, PublishRequest, UnpublishOrder, VolumeForm, expand, unpublish,
};

use crate::wire::csi::volume_capability::AccessType;
use crate::wire::csi::volume_capability::access_mode::Mode;
use crate::wire::csi::{
    NodeExpandVolumeRequest, NodePublishVolumeRequest, NodeUnpublishVolumeRequest, VolumeCapability,
};

impl From<NodePublishVolumeRequest> for PublishRequest {
    fn from(request: NodePublishVolumeRequest) -> Self {
        let NodePublishVolumeRequest { volume_id, target_path, volume_capability, readonly } = request;
        let VolumeCapability { access_mode, access_type } = volume_capability.unwrap_or_default();
        let form = match access_type {
            None => VolumeForm::Unsaid,
            Some(AccessType::Block(_)) => VolumeForm::Block,
            Some(AccessType::Mount(mount)) => VolumeForm::Folder {
                filesystem: mount.fs_type,
                flags: mount.mount_flags,
                group: mount.volume_mount_group,
            },
        };
        let mode = match access_mode.map(|mode| mode.mode()) {
            None | Some(Mode::Unknown) => AccessMode::Unknown,
            Some(Mode::SingleNodeWriter | Mode::SingleNodeSingleWriter | Mode::SingleNodeMultiWriter) => {
                AccessMode::OneMachine
            }
            Some(Mode::SingleNodeReaderOnly) => AccessMode::OneMachineReads,
            Some(Mode::MultiNodeReaderOnly | Mode::MultiNodeSingleWriter | Mode::MultiNodeMultiWriter) => {
                AccessMode::ManyMachines
            }
        };
        Self { volume: volume_id, target: target_path, form, mode, read_only: readonly }
    }
}

impl TryFrom<NodeUnpublishVolumeRequest> for UnpublishOrder {
    type Error = NodeRefusal;

    fn try_from(request: NodeUnpublishVolumeRequest) -> Result<Self, NodeRefusal> {
        unpublish(&request.volume_id, &request.target_path)
    }
}

impl TryFrom<NodeExpandVolumeRequest> for ExpandOrder {
    type Error = NodeRefusal;

    fn try_from(request: NodeExpandVolumeRequest) -> Result<Self, NodeRefusal> {
        expand(&request.volume_id, request.capacity_range.unwrap_or_default().required_bytes)
    }
}

/// Status that tells kubelet why: no refusal of a request gets better by asking again.
#[must_use]
pub fn refused(why: &NodeRefusal) -> Status {
    Status::new(Code::InvalidArgument, format!("{why}; nothing was done"))
}

/// An order to mount, from the bytes of its request. For who looks for bytes that bring it down.
///
/// # Errors
/// When the bytes are no request; the inner, when it is refused.
pub fn decode_publish(bytes: &[u8]) -> Result<Result<PublishOrder, NodeRefusal>, DecodeError> {
    Ok(PublishRequest::from(NodePublishVolumeRequest::decode(bytes)?).order())
}

/// An order to unmount, from the bytes of its request.
///
/// # Errors
/// When the bytes are no request; the inner, when it is refused.
pub fn decode_unpublish(bytes: &[u8]) -> Result<Result<UnpublishOrder, NodeRefusal>, DecodeError> {
    Ok(NodeUnpublishVolumeRequest::decode(bytes)?.try_into())
}

/// An order to expand, from the bytes of its request.
///
/// # Errors
/// When the bytes are no request; the inner, when it is refused.
pub fn decode_expand(bytes: &[u8]) -> Result<Result<ExpandOrder, NodeRefusal>, DecodeError> {
    Ok(NodeExpandVolumeRequest::decode(bytes)?.try_into())
}

#[cfg(test)]
mod tests {
    use volumes::node::VolumeAccess;

    use super::*;
    use crate::wire::csi::CapacityRange;
    use crate::wire::csi::volume_capability::{self, BlockVolume, MountVolume};

    const VOLUME: &str = "01234567-89ab-cdef-0123-456789abcdef";
    const TARGET: &str = "/data/kubelet/pods/9f1b/volumes/kubernetes.io~csi/pvc-1/mount";

    fn request(mode: Mode, access_type: Option<AccessType>) -> NodePublishVolumeRequest {
        let access_mode = Some(volume_capability::AccessMode { mode: mode.into() });
        NodePublishVolumeRequest {
            volume_id: VOLUME.to_owned(),
            target_path: TARGET.to_owned(),
            volume_capability: Some(VolumeCapability { access_mode, access_type }),
            readonly: false,
        }
    }

    fn folder() -> Option<AccessType> {
        Some(AccessType::Mount(MountVolume::default()))
    }

    #[test]
    fn modes_of_one_machine_are_served_and_no_others() {
        let access = |mode| PublishRequest::from(request(mode, folder())).order().map(|order| order.access);
        for mode in [Mode::SingleNodeWriter, Mode::SingleNodeSingleWriter, Mode::SingleNodeMultiWriter] {
            assert_eq!(access(mode), Ok(VolumeAccess::ReadWrite), "{mode:?}");
        }
        assert_eq!(access(Mode::SingleNodeReaderOnly), Ok(VolumeAccess::ReadOnly));
        for mode in [Mode::MultiNodeReaderOnly, Mode::MultiNodeSingleWriter, Mode::MultiNodeMultiWriter] {
            assert_eq!(access(mode), Err(NodeRefusal::Mode), "{mode:?}");
        }
        assert_eq!(access(Mode::Unknown), Err(NodeRefusal::Unsaid));
        let read_only = NodePublishVolumeRequest { readonly: true, ..request(Mode::SingleNodeWriter, folder()) };
        assert_eq!(PublishRequest::from(read_only).order().map(|order| order.access), Ok(VolumeAccess::ReadOnly));
    }

    #[test]
    fn forms_other_than_a_folder_are_refused() {
        let refused = |form| PublishRequest::from(request(Mode::SingleNodeWriter, form)).order().err();
        assert_eq!(refused(folder()), None);
        assert_eq!(refused(Some(AccessType::Block(BlockVolume {}))), Some(NodeRefusal::Block));
        assert_eq!(refused(None), Some(NodeRefusal::Unsaid));
        let with = |mount| refused(Some(AccessType::Mount(mount)));
        let fs_type = "ext4".to_owned();
        assert_eq!(with(MountVolume { fs_type, ..MountVolume::default() }), Some(NodeRefusal::FileSystem));
        let mount_flags = vec!["dev".to_owned()];
        assert_eq!(with(MountVolume { mount_flags, ..MountVolume::default() }), Some(NodeRefusal::Flags));
        let volume_mount_group = "0".to_owned();
        assert_eq!(with(MountVolume { volume_mount_group, ..MountVolume::default() }), Some(NodeRefusal::Group));
        let without = NodePublishVolumeRequest { volume_capability: None, ..request(Mode::SingleNodeWriter, None) };
        assert_eq!(PublishRequest::from(without).order().err(), Some(NodeRefusal::Unsaid));
    }

    /// Fields by their numbers in the interface: kubelet sends more of them than are read here.
    #[test]
    fn bytes_of_the_interface_are_read() {
        let text = |number: u8, text: &str| {
            let length = u8::try_from(text.len()).expect("short");
            [&[number << 3 | 2, length], text.as_bytes()].concat()
        };
        // mount = 2 { fs_type = 1 }, access_mode = 3 { mode = 1: 1 }.
        let capability = [&[0x12, 5, 0x0a, 3][..], b"xfs", &[0x1a, 2, 8, 1]].concat();
        let capability = [&[0x2a, u8::try_from(capability.len()).expect("short")][..], &capability].concat();
        let context = [&[0x42, 6, 0x0a, 1][..], b"k", &[0x12, 1], b"v"].concat();
        let bytes = [text(1, VOLUME), text(4, TARGET), capability, vec![0x30, 1], context].concat();
        let order = decode_publish(&bytes).expect("a request").expect("an order");
        assert_eq!((order.target.as_str(), order.access), (TARGET, VolumeAccess::ReadOnly));
        let order = decode_unpublish(&[text(1, VOLUME), text(2, TARGET)].concat()).expect("a request");
        assert_eq!(order.expect("an order").target.as_str(), TARGET);
        let order = decode_expand(&[text(1, VOLUME), text(2, TARGET), vec![0x1a, 3, 8, 0x80, 0x20]].concat());
        assert_eq!(order.expect("a request").expect("an order").bytes, 4096);
        assert!(decode_publish(&[0xff]).is_err());
    }

    #[test]
    fn a_size_is_the_one_that_is_required() {
        let bytes = |required_bytes| {
            let capacity_range = Some(CapacityRange { required_bytes, limit_bytes: 0 });
            let request = NodeExpandVolumeRequest { volume_id: VOLUME.to_owned(), capacity_range };
            ExpandOrder::try_from(request).map(|order| order.bytes)
        };
        assert_eq!((bytes(1), bytes(-1), bytes(0)), (Ok(1), Err(NodeRefusal::Size), Err(NodeRefusal::Size)));
    }
}
