//! Persistent volumes of this machine, for coordinators: who calls has shown a machine's key, and the directory that this machine
//! holds, as the cluster signed it, has to call that machine a coordinator.

use api::{VolumeOrder, VolumesOfMachine};
use model::{Chain, MachinePubKey};
use tonic::Status;
use volumes::VolumeId;

use super::context::{Context, no_member};
use crate::rpc::underway::Place;
use crate::storage::{VolumeError, Volumes};

/// Volumes, for a caller that may order them; its place is given back when this is dropped.
#[derive(Debug)]
pub(super) struct OrderedVolumes<'a> {
    volumes: Volumes,
    _place: Place<'a>,
}

/// Lets a coordinator at the volumes.
///
/// # Errors
/// When the machine is no member, does not know the caller as a coordinator, or answers it already.
pub(super) fn ordered_by(context: &Context, key: MachinePubKey) -> Result<OrderedVolumes<'_>, Status> {
    let machine = context.reach.coordinator(key)?;
    let (volumes, _) = context.reach.volumes().ok_or_else(no_member)?;
    Ok(OrderedVolumes { volumes: volumes.clone(), _place: context.reach.orders.begin(machine)? })
}

impl OrderedVolumes<'_> {
    pub(super) async fn create(self, VolumeOrder { volume, bytes }: VolumeOrder) -> Result<(), Status> {
        self.volumes.create(volume, bytes).await.map_err(|error| refused(&error))?;
        tracing::info!(%volume, bytes, "a coordinator ordered a volume");
        Ok(())
    }

    pub(super) async fn expand(self, VolumeOrder { volume, bytes }: VolumeOrder) -> Result<(), Status> {
        self.volumes.expand(volume, bytes).await.map_err(|error| refused(&error))?;
        tracing::info!(%volume, bytes, "a coordinator gave a volume room");
        Ok(())
    }

    pub(super) async fn delete(self, volume: VolumeId) -> Result<(), Status> {
        self.volumes.delete(volume).await.map_err(|error| refused(&error))?;
        tracing::info!(%volume, "a coordinator deleted a volume");
        Ok(())
    }

    pub(super) async fn list(self) -> Result<VolumesOfMachine, Status> {
        self.volumes.list().await.map_err(|error| refused(&error))
    }
}

/// Status of an operation that is refused or fails.
pub(super) fn refused(error: &VolumeError) -> Status {
    let text = Chain(error);
    match error {
        VolumeError::NoWorker => Status::failed_precondition(format!("{text}; nothing was done")),
        VolumeError::Delete(_) => {
            Status::failed_precondition(format!("{text}; it is whole; delete the pods that use it first"))
        }
        VolumeError::NoRoom(_) => Status::resource_exhausted(format!("{text}; nothing was done")),
        VolumeError::NoSuchVolume(_) => Status::not_found(format!("{text}; nothing was done")),
        VolumeError::Ending => Status::unavailable(format!("{text}; nothing was done")),
        VolumeError::Look(_) | VolumeError::Occupied(_) | VolumeError::Mount(..) => {
            Status::internal(format!("{text}; nothing was done"))
        }
        VolumeError::Step(..) => Status::internal(format!("{text}; what is half done is finished at the next call")),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use keys::directory::{Coordinator, Directory};
    use model::ClusterId;
    use tokio::sync::watch;
    use tonic::Code;

    use super::*;
    use crate::rpc::world::Machine;

    const COORDINATOR: MachinePubKey = MachinePubKey([1; 32]);
    const NODE: MachinePubKey = MachinePubKey([2; 32]);

    fn directory(keys: &[MachinePubKey]) -> Option<Arc<Directory>> {
        let machine = |key: &MachinePubKey| keys::identity::machine_id(&key.0);
        let coordinators =
            keys.iter().map(|key| Coordinator { machine: machine(key), endpoints: Vec::new() }).collect();
        Some(Arc::new(Directory { cluster: ClusterId([1; 16]), version: 1, coordinators }))
    }

    /// The directory of now decides, call by call. Proves: Q1
    #[tokio::test]
    async fn volumes_are_ordered_by_coordinators_of_the_directory() {
        let machine = Machine::running();
        let code = |key| ordered_by(&machine.context, key).err().map(|refusal| refusal.code());
        assert_eq!(code(COORDINATOR), Some(Code::FailedPrecondition), "it is no member yet");
        let held = watch::Sender::new(None);
        machine.context.reach.keep_volumes(Volumes::new(&machine.facts), held.subscribe());
        assert_eq!(code(COORDINATOR), Some(Code::PermissionDenied), "there is no directory");
        held.send_replace(directory(&[COORDINATOR]));
        assert_eq!((code(COORDINATOR), code(NODE)), (None, Some(Code::PermissionDenied)));
        let order = VolumeOrder { volume: VolumeId::parse(TEXT).expect("a name"), bytes: 4096 };
        let refusal = ordered_by(&machine.context, COORDINATOR).expect("let in").create(order).await;
        let refusal = refusal.expect_err("no pods run here");
        assert_eq!(refusal.code(), Code::FailedPrecondition);
        assert_eq!(refusal.message(), "this machine is no worker; nothing was done");
        held.send_replace(directory(&[NODE]));
        assert_eq!((code(COORDINATOR), code(NODE)), (Some(Code::PermissionDenied), None));
    }

    #[tokio::test]
    async fn a_coordinator_has_a_few_calls_at_a_time() {
        let machine = Machine::running();
        let held = watch::Sender::new(directory(&[COORDINATOR, NODE]));
        machine.context.reach.keep_volumes(Volumes::new(&machine.facts), held.subscribe());
        let begun: Vec<_> = (0..4).map(|_| ordered_by(&machine.context, COORDINATOR).expect("room")).collect();
        let busy = ordered_by(&machine.context, COORDINATOR).expect_err("too many");
        assert_eq!(busy.code(), Code::ResourceExhausted);
        ordered_by(&machine.context, NODE).expect("it keeps no other out");
        drop(begun);
        ordered_by(&machine.context, COORDINATOR).expect("places are given back");
    }

    const TEXT: &str = "01234567-89ab-cdef-0123-456789abcdef";

    /// Codes say what is asked again later. Proves: Q1
    #[test]
    fn each_refusal_has_the_code_of_its_contract() {
        let id = VolumeId::parse(TEXT).expect("a name");
        let code = |error: VolumeError| refused(&error).code();
        assert_eq!(code(volumes::NoRoom { asked: 2, free: 1 }.into()), Code::ResourceExhausted);
        assert_eq!(code(volumes::NoSuchVolume(id).into()), Code::NotFound);
        assert_eq!(code(volumes::DeleteRefusal::Mounted(id).into()), Code::FailedPrecondition);
        assert_eq!(code(VolumeError::Ending), Code::Unavailable);
    }
}
