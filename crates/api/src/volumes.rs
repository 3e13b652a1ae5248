//! Persistent volumes of a machine: what a coordinator orders, and what there is.

use model::{MachineId, NodeName};
use volumes::{VolumeHolder, VolumeId};

use crate::field_error::fixed;
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

/// Volumes of a worker, as its owner is told of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkerVolumes {
    /// Id of the worker.
    pub machine: MachineId,
    /// Name of the worker.
    pub name: NodeName,
    /// Volumes of the worker, each with its holder, or nobody; none of them when the worker does not answer.
    pub held: Option<Vec<(ListedVolume, Option<VolumeHolder>)>>,
}

/// Order of an owner to delete a volume that nobody holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VolumeRemoval {
    /// The worker that has it.
    pub machine: MachineId,
    /// The volume.
    pub volume: VolumeId,
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
        Self { free_bytes: free, volumes: volumes.into_iter().map(shown).collect() }
    }
}

impl TryFrom<wire::VolumesResponse> for VolumesOfMachine {
    type Error = FieldError;

    fn try_from(wire::VolumesResponse { free_bytes, volumes }: wire::VolumesResponse) -> Result<Self, FieldError> {
        Ok(Self { free: free_bytes, volumes: volumes.iter().map(listed).collect::<Result<_, _>>()? })
    }
}

fn listed(it: &wire::Volume) -> Result<ListedVolume, FieldError> {
    Ok(ListedVolume { volume: volume(&it.volume)?, bytes: it.bytes, used: it.used_bytes })
}

fn shown(it: ListedVolume) -> wire::Volume {
    wire::Volume { volume: it.volume.to_string(), bytes: it.bytes, used_bytes: it.used }
}

fn machine_id(bytes: &[u8]) -> Result<MachineId, FieldError> {
    fixed("machine_id", bytes).map(MachineId)
}

impl From<WorkerVolumes> for wire::ListVolumesResponse {
    fn from(WorkerVolumes { machine, name, held }: WorkerVolumes) -> Self {
        let row = |(volume, holder): (ListedVolume, Option<VolumeHolder>)| {
            let (namespace, claim, object) = match holder {
                None => Default::default(),
                Some(VolumeHolder::Claim { namespace, name }) => (namespace, name, String::new()),
                Some(VolumeHolder::Object(name)) => (String::new(), String::new(), name),
            };
            wire::HeldVolume { volume: Some(shown(volume)), claim_namespace: namespace, claim, object }
        };
        Self {
            machine_id: machine.0.to_vec(),
            name: name.as_str().to_owned(),
            answers: held.is_some(),
            volumes: held.into_iter().flatten().map(row).collect(),
        }
    }
}

impl TryFrom<wire::ListVolumesResponse> for WorkerVolumes {
    type Error = FieldError;

    fn try_from(worker: wire::ListVolumesResponse) -> Result<Self, FieldError> {
        let row = |row: wire::HeldVolume| {
            let volume = row.volume.as_ref().ok_or(FieldError::new("volume", Problem::Missing))?;
            let holder = match (row.claim.is_empty(), row.object.is_empty()) {
                (true, true) => None,
                (false, true) => Some(VolumeHolder::Claim { namespace: row.claim_namespace, name: row.claim }),
                (true, false) => Some(VolumeHolder::Object(row.object)),
                (false, false) => return Err(FieldError::new("object", Problem::Unusable)),
            };
            Ok((listed(volume)?, holder))
        };
        let volumes = worker.volumes.into_iter().map(row).collect::<Result<_, _>>()?;
        Ok(Self {
            machine: machine_id(&worker.machine_id)?,
            name: NodeName::stored(&worker.name).map_err(|_| FieldError::new("name", Problem::Unusable))?,
            held: worker.answers.then_some(volumes),
        })
    }
}

impl From<VolumeRemoval> for wire::RemoveVolumeRequest {
    fn from(VolumeRemoval { machine, volume }: VolumeRemoval) -> Self {
        Self { machine_id: machine.0.to_vec(), volume: volume.to_string() }
    }
}

impl TryFrom<wire::RemoveVolumeRequest> for VolumeRemoval {
    type Error = FieldError;

    fn try_from(request: wire::RemoveVolumeRequest) -> Result<Self, FieldError> {
        Ok(Self { machine: machine_id(&request.machine_id)?, volume: volume(&request.volume)? })
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

    #[test]
    fn a_workers_volumes_and_their_holders_cross_the_wire() {
        let row = |holder| (ListedVolume { volume: volume(TEXT).expect("a name"), bytes: 4096, used: 512 }, holder);
        let claim = VolumeHolder::Claim { namespace: String::from("web"), name: String::from("data") };
        let held = vec![row(None), row(Some(claim)), row(Some(VolumeHolder::Object(String::from("pvc"))))];
        let (machine, name) = (MachineId([1; 16]), NodeName::stored("m1").expect("a name"));
        for held in [Some(held), Some(Vec::new()), None] {
            let given = WorkerVolumes { machine, name: name.clone(), held };
            assert_eq!(WorkerVolumes::try_from(wire::ListVolumesResponse::from(given.clone())), Ok(given));
        }
        let both = wire::HeldVolume {
            volume: Some(wire::Volume { volume: TEXT.to_owned(), bytes: 1, used_bytes: 0 }),
            claim_namespace: String::from("web"),
            claim: String::from("data"),
            object: String::from("pvc"),
        };
        let wrong = wire::ListVolumesResponse {
            machine_id: vec![1; 16],
            name: String::from("m1"),
            answers: true,
            volumes: vec![both],
        };
        assert_eq!(WorkerVolumes::try_from(wrong).map_err(|wrong| wrong.field), Err("object"));
        let given = VolumeRemoval { machine, volume: volume(TEXT).expect("a name") };
        assert_eq!(VolumeRemoval::try_from(wire::RemoveVolumeRequest::from(given)), Ok(given));
        let wrong = wire::RemoveVolumeRequest { machine_id: vec![1; 16], volume: String::from("..") };
        assert_eq!(VolumeRemoval::try_from(wrong).map_err(|wrong| wrong.field), Err("volume"));
    }
}
