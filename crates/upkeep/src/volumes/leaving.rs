//! Volumes of a machine that is to leave the cluster: what somebody counts on is named before anything is done, since the data goes
//! with the machine. Must never count a volume that another machine of the same name has: ids decide.

use ::volumes::VolumeHolder;
use kubeapi::Objects;
use model::MachineId;

use super::objects::PersistentVolume;

/// Volumes that are named to people; the others are counted.
const MOST_NAMED: usize = 10;

/// Refusal to take a machine out of the cluster, with each volume that would be lost, for people.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the data of these would go with the machine: {}", each(.0))]
pub struct MachineHoldsVolumes(Vec<String>);

/// Whether a machine may leave the cluster without anybody's data.
///
/// # Errors
/// [`MachineHoldsVolumes`], where claims have volumes on it, or objects that people keep name some.
pub fn may_leave(machine: MachineId, volumes: &Objects<PersistentVolume>) -> Result<(), MachineHoldsVolumes> {
    let here = volumes.values().filter(|volume| volume.machine() == Some(machine));
    let mut held: Vec<_> = here.filter_map(|volume| Some((volume.held_by()?, volume.size()))).collect();
    held.sort();
    if held.is_empty() { Ok(()) } else { Err(MachineHoldsVolumes(held.into_iter().map(named).collect())) }
}

fn named((holder, size): (VolumeHolder, &str)) -> String {
    match holder {
        VolumeHolder::Claim { namespace, name } => format!("claim {namespace}/{name} ({size})"),
        VolumeHolder::Object(name) => format!("PersistentVolume {name} ({size})"),
    }
}

fn each(held: &[String]) -> String {
    let named = held.iter().take(MOST_NAMED).map(String::as_str).collect::<Vec<_>>().join(", ");
    match held.len().saturating_sub(MOST_NAMED) {
        0 => named,
        more => format!("{named} and {more} more"),
    }
}
