//! Calls of a control plane to the machines' own halves of the driver of volumes, by their public APIs. This machine is called like any
//! other. Decides nothing: what an answer means is `upkeep`'s matter.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use api::public_client::PublicClient;
use api::wire::{CreateVolumeRequest, DeleteVolumeRequest, ExpandVolumeRequest, VolumesRequest};
use api::{VolumeOrder, VolumesOfMachine};
use keys::identity::Identity;
use model::{Chain, MachineId};
use pki::SpkiPin;
use tokio::time::timeout;
use tonic::transport::Channel;
use tonic::{Code, Response, Status};
use upkeep::volumes::{VolumeAnswer, VolumeAsk, VolumeCall};

use crate::enrolment::Fellows;
use crate::records::Records;

/// Longest time for one call: a connection, and a directory made durable on a disk that is busy.
const ANSWERS: Duration = Duration::from_secs(8);
/// The largest answer: all volumes of a machine.
const MOST_ANSWER_BYTES: usize = 1 << 20;

/// Way to the machines.
#[derive(Debug, Clone)]
pub(crate) struct VolumeCalls(Fellows);

impl VolumeCalls {
    /// Calls as this machine, in the cluster of the authority with that key.
    pub(crate) const fn as_coordinator(identity: Arc<Identity>, authority: SpkiPin) -> Self {
        Self(Fellows { identity, authority })
    }

    /// Volumes of a worker; none when it does not answer.
    pub(crate) async fn look(&self, machine: MachineId, address: Ipv4Addr) -> Option<VolumesOfMachine> {
        let asked = self.0.call((machine, address), MOST_ANSWER_BYTES, async |client| look(client).await);
        timeout(ANSWERS, asked).await.ok()?.ok()?.ok()
    }

    /// Makes a call; a machine that is in no record is silent.
    pub(crate) async fn make(&self, records: &Records, call: &VolumeCall) -> VolumeAnswer {
        let address = records.read(|view, _| view.state().machine(&call.machine).map(|machine| machine.vpn_ip));
        match address {
            Ok(Some(address)) => {
                let made = timeout(ANSWERS, self.ask(call, address)).await;
                made.unwrap_or(VolumeAnswer::Silent)
            }
            Ok(None) | Err(_) => VolumeAnswer::Silent,
        }
    }

    async fn ask(&self, call: &VolumeCall, address: Ipv4Addr) -> VolumeAnswer {
        let asked =
            self.0.call((call.machine, address), MOST_ANSWER_BYTES, async |client| send(client, call.ask).await);
        match asked.await {
            Ok(Ok(answer)) => answer,
            Ok(Err(status)) => refusal(&status),
            Err(silent) => {
                tracing::debug!(machine = %call.machine, error = %Chain(&silent), "a machine does not answer for its volumes");
                VolumeAnswer::Silent
            }
        }
    }
}

async fn send(client: &mut PublicClient<Channel>, ask: VolumeAsk) -> Result<Response<VolumeAnswer>, Status> {
    let done = |()| VolumeAnswer::Done;
    match ask {
        VolumeAsk::Create(volume, bytes) => {
            let request = CreateVolumeRequest::from(VolumeOrder { volume, bytes });
            Ok(client.create_volume(request).await?.map(drop).map(done))
        }
        VolumeAsk::Expand(volume, bytes) => {
            let request = ExpandVolumeRequest::from(VolumeOrder { volume, bytes });
            Ok(client.expand_volume(request).await?.map(drop).map(done))
        }
        VolumeAsk::Delete(volume) => {
            Ok(client.delete_volume(DeleteVolumeRequest::from(volume)).await?.map(drop).map(done))
        }
        VolumeAsk::Look => Ok(look(client).await?.map(|told| VolumeAnswer::Room(told.free))),
    }
}

async fn look(client: &mut PublicClient<Channel>) -> Result<Response<VolumesOfMachine>, Status> {
    let told = client.volumes(VolumesRequest {}).await?.into_inner();
    let told = VolumesOfMachine::try_from(told).map_err(|error| Status::unknown(error.to_string()))?;
    Ok(Response::new(told))
}

/// Meaning of a status: a machine that decided says so, any other is asked again.
fn refusal(status: &Status) -> VolumeAnswer {
    const DECIDED: [Code; 4] =
        [Code::FailedPrecondition, Code::InvalidArgument, Code::NotFound, Code::PermissionDenied];
    let said = status.message().to_owned();
    if status.code() == Code::ResourceExhausted {
        VolumeAnswer::Full(said)
    } else if DECIDED.contains(&status.code()) {
        VolumeAnswer::Refused(said)
    } else {
        VolumeAnswer::Silent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Proves: S10
    #[test]
    fn a_machine_that_cannot_decide_is_asked_again() {
        let full = Status::resource_exhausted("no room");
        assert_eq!(refusal(&full), VolumeAnswer::Full(String::from("no room")));
        assert_eq!(refusal(&Status::failed_precondition("mounted")), VolumeAnswer::Refused(String::from("mounted")));
        for undecided in [
            Status::unavailable("busy"),
            Status::unauthenticated("who"),
            Status::unknown("broken"),
            api::not_yet("soon"),
        ] {
            assert_eq!(refusal(&undecided), VolumeAnswer::Silent, "{undecided}");
        }
    }
}
