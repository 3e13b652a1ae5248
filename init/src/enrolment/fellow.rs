//! Calls of this machine to another one of its cluster, by that one's public API at its VPN address: both prove to be who they are.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use api::public_client::PublicClient;
use keys::endpoint::{BadEndpoint, Endpoint};
use keys::identity::Identity;
use model::{MachineId, PUBLIC_API_PORT};
use pki::SpkiPin;
use tonic::transport::Channel;
use tonic::{Response, Status};

use super::ask::{Asks, QuestionError};

/// Way of a member to the others.
#[derive(Debug, Clone)]
pub(crate) struct Fellows {
    /// Identity of this machine.
    pub(crate) identity: Arc<Identity>,
    /// Key of the cluster's authority.
    pub(crate) authority: SpkiPin,
}

/// Why a machine has not been asked.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FellowError {
    /// The address cannot be one.
    #[error(transparent)]
    Endpoint(#[from] BadEndpoint),
    /// The machine does not answer.
    #[error(transparent)]
    Silent(#[from] QuestionError),
}

impl Fellows {
    /// Makes one call to `machine`; its answer, of at most `most_bytes`, or the status that it answers instead.
    ///
    /// # Errors
    /// [`FellowError`].
    pub(crate) async fn call<T>(
        &self,
        (machine, address): (MachineId, Ipv4Addr),
        most_bytes: usize,
        call: impl AsyncFnOnce(&mut PublicClient<Channel>) -> Result<Response<T>, Status>,
    ) -> Result<Result<T, Status>, FellowError> {
        let endpoint = Endpoint::read(&SocketAddr::from((address, PUBLIC_API_PORT)).to_string())?;
        let asks = Asks { cluster: self.identity.holder.cluster, authority: self.authority, key: &self.identity.key };
        Ok(asks.connect_to(machine, &endpoint).await?.ask(most_bytes, call).await?)
    }
}
