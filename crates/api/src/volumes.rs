//! Persistent volumes of a machine: what a coordinator orders, and what there is.

use volumes::VolumeId;

use crate::{FieldError, Problem, wire};

/// Order to make a volume, or to give it more room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VolumeOrder {
    /// The volume.
    pub volume: VolumeId,
    /// Bytes that it is to have at least.
    pub bytes: u64,
}

/// Volumes of a machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VolumesOfMachine {
    /// Bytes that may still be promised.
    pub free: u64,
    /// All of them.
    pub volumes: Vec<ListedVolume>,
}

/// Volume that a machine has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ListedVolume {
    /// Name of the volume.
    pub volume: VolumeId,
    /// Bytes that it may have.
    pub bytes: u64,
    /// Bytes that it takes.
    pub used: u64,
}

fn volume(text: &str) -> Result<VolumeId, FieldError> {
    VolumeId::parse(text).map_err(|_| FieldError::new("volume", Problem::Unusable))
}

fn order(text: &str, bytes: u64) -> Result<VolumeOrder, FieldError> {
    let volume = volume(text)?;
    if bytes == 0 { Err(FieldError::new("bytes", Problem::Range)) } else { Ok(VolumeOrder { volume, bytes }) }
}

impl From<VolumeOrder> for wire::CreateVolumeRequest {
    fn from(VolumeOrder { volume, bytes }: VolumeOrder) -> Self {
        Self { volume: volume.to_string(), bytes }
    }
}

impl TryFrom<wire::CreateVolumeRequest> for VolumeOrder {
    type Error = FieldError;

    fn try_from(wire::CreateVolumeRequest { volume, bytes }: wire::CreateVolumeRequest) -> Result<Self, FieldError> {
        order(&volume, bytes)
    }
}

impl From<VolumeOrder> for wire::ExpandVolumeRequest {
    fn from(VolumeOrder { volume, bytes }: VolumeOrder) -> Self {
        Self { volume: volume.to_string(), bytes }
    }
}

impl TryFrom<wire::ExpandVolumeRequest> for VolumeOrder {
    type Error = FieldError;

    fn try_from(wire::ExpandVolumeRequest { volume, bytes }: wire::ExpandVolumeRequest) -> Result<Self, FieldError> {
        order(&volume, bytes)
    }
}

impl From<VolumeId> for wire::DeleteVolumeRequest {
    fn from(volume: VolumeId) -> Self {
        Self { volume: volume.to_string() }
    }
}

impl TryFrom<wire::DeleteVolumeRequest> for VolumeId {
    type Error = FieldError;

    fn try_from(request: wire::DeleteVolumeRequest) -> Result<Self, FieldError> {
        volume(&request.volume)
    }
}

impl From<VolumesOfMachine> for wire::VolumesResponse {
    fn from(VolumesOfMachine { free, volumes }: VolumesOfMachine) -> Self {
        let listed =
            |it: ListedVolume| wire::Volume { volume: it.volume.to_string(), bytes: it.bytes, used_bytes: it.used };
        Self { free_bytes: free, volumes: volumes.into_iter().map(listed).collect() }
    }
}

impl TryFrom<wire::VolumesResponse> for VolumesOfMachine {
    type Error = FieldError;

    fn try_from(wire::VolumesResponse { free_bytes, volumes }: wire::VolumesResponse) -> Result<Self, FieldError> {
        let listed =
            |it: wire::Volume| Ok(ListedVolume { volume: volume(&it.volume)?, bytes: it.bytes, used: it.used_bytes });
        Ok(Self { free: free_bytes, volumes: volumes.into_iter().map(listed).collect::<Result<_, _>>()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "01234567-89ab-cdef-0123-456789abcdef";

    #[test]
    fn orders_cross_the_wire_and_no_paths_do() {
        let given = VolumeOrder { volume: volume(TEXT).expect("a name"), bytes: 10 << 20 };
        assert_eq!(VolumeOrder::try_from(wire::CreateVolumeRequest::from(given)), Ok(given));
        assert_eq!(VolumeOrder::try_from(wire::ExpandVolumeRequest::from(given)), Ok(given));
        assert_eq!(VolumeId::try_from(wire::DeleteVolumeRequest::from(given.volume)), Ok(given.volume));
        for wrong in ["", "..", "../x", &TEXT.to_uppercase()] {
            let (volume, bytes) = (wrong.to_owned(), 1);
            let create = wire::CreateVolumeRequest { volume: volume.clone(), bytes };
            assert_eq!(VolumeOrder::try_from(create).map_err(|wrong| wrong.field), Err("volume"), "`{wrong}`");
            let expand = wire::ExpandVolumeRequest { volume: volume.clone(), bytes };
            assert_eq!(VolumeOrder::try_from(expand).map_err(|wrong| wrong.field), Err("volume"), "`{wrong}`");
            let delete = VolumeId::try_from(wire::DeleteVolumeRequest { volume });
            assert_eq!(delete.map_err(|wrong| wrong.field), Err("volume"), "`{wrong}`");
        }
        let nothing = wire::CreateVolumeRequest { volume: TEXT.to_owned(), bytes: 0 };
        assert_eq!(VolumeOrder::try_from(nothing).map_err(|wrong| wrong.field), Err("bytes"));
    }

    #[test]
    fn a_list_of_volumes_crosses_the_wire() {
        let volumes = vec![ListedVolume { volume: volume(TEXT).expect("a name"), bytes: 4096, used: 512 }];
        let list = VolumesOfMachine { free: 7, volumes };
        assert_eq!(VolumesOfMachine::try_from(wire::VolumesResponse::from(list.clone())), Ok(list.clone()));
        let mut wrong = wire::VolumesResponse::from(list);
        wrong.volumes[0].volume.push('/');
        assert_eq!(VolumesOfMachine::try_from(wrong).map_err(|wrong| wrong.field), Err("volume"));
    }
}
