//! Somebody at the public API without the owner's tool: what a machine tells and refuses before authentication, and to
//! whoever shows this or that key.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Context as _;
use api::PublicState;
use api::debug_client::DebugClient;
use api::wire::{FaultKind, GetStateRequest, InjectRequest};
use pki::PrivateKey;
use qemu::{Deadline, Vm};
use tokio::time::timeout;
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::{Request, Status};
use tonic_prost::ProstCodec;

use crate::client::{ATTEMPT, Client, PublicClient, Shown, public_api};

/// A fault's answer takes seconds; one that never comes fails the case.
const FAULT: Duration = Duration::from_secs(300);

/// A connection to a machine, a stranger's unless it shows a key.
#[derive(Debug)]
pub struct Stranger {
    client: Client,
    /// Where a stranger's connects anew: a machine bears it for seconds only.
    again: Option<SocketAddr>,
}

impl Stranger {
    /// Connects to the public API of `vm`, again and again until the deadline.
    ///
    /// # Errors
    /// When the machine forwards no port, ends, or does not answer in time.
    pub fn meet(vm: &Vm, deadline: Deadline) -> anyhow::Result<Self> {
        Self::meet_as(vm, None, deadline)
    }

    /// The same, showing an owner's certificate of `key`.
    ///
    /// # Errors
    /// As above. Whether the machine accepts it shows at the first call: in TLS 1.3 it looks at it afterwards.
    pub fn meet_as(vm: &Vm, key: Option<&PrivateKey>, deadline: Deadline) -> anyhow::Result<Self> {
        let address = public_api(vm)?;
        Ok(Self { client: Client::dial_until(vm, shown(key), deadline)?, again: key.is_none().then_some(address) })
    }

    /// Connects to that place in one attempt, showing an owner's certificate of `key`, if there is one.
    ///
    /// # Errors
    /// When it does not answer within seconds.
    pub fn call_at(address: SocketAddr, key: Option<&PrivateKey>) -> anyhow::Result<Self> {
        let client = Client::dial(address, shown(key), ATTEMPT)?;
        Ok(Self { client, again: key.is_none().then_some(address) })
    }

    /// The port it comes from; user networking keeps it, so the machine sees the same.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.client.port()
    }

    /// Makes a call, or several.
    pub fn call<T>(&mut self, call: impl AsyncFnOnce(&mut PublicClient) -> T) -> T {
        self.client.over(async |channel| call(&mut PublicClient::new(channel)).await)
    }

    /// An empty request to the method at `path`, as the protocol names it: `/package.Service/Method`.
    ///
    /// # Errors
    /// What the machine answers but success.
    pub fn call_empty(&mut self, path: &'static str) -> Result<(), Status> {
        self.client.over(async |channel| {
            let mut client = Grpc::new(channel);
            client.ready().await.map_err(|error| Status::unavailable(error.to_string()))?;
            let codec = ProstCodec::<(), ()>::default();
            client.unary(Request::new(()), PathAndQuery::from_static(path), codec).await.map(drop)
        })
    }

    /// Has a fault injected; what the machine saw of it. Only the owner can, and only in the debug profile.
    ///
    /// # Errors
    /// What the machine answers but success.
    pub fn inject(&mut self, kind: FaultKind, argument: &str) -> Result<String, Status> {
        let request = InjectRequest { kind: kind.into(), argument: argument.into() };
        let inject = async |channel| timeout(FAULT, DebugClient::new(channel).inject(request)).await;
        let late = |_elapsed| Status::deadline_exceeded(format!("no answer within {} s", FAULT.as_secs()));
        Ok(self.client.over(inject).map_err(late)??.into_inner().outcome)
    }

    /// State that the machine tells anybody. Where it has ended the connection of somebody without a key, over a new
    /// one.
    ///
    /// # Errors
    /// When it does not.
    pub fn state(&mut self) -> anyhow::Result<PublicState> {
        let ask = async |client: &mut PublicClient| client.get_state(GetStateRequest {}).await;
        let answer = match (self.call(ask), self.again) {
            (Err(_ended), Some(address)) => {
                self.client = Client::dial(address, Shown::None, ATTEMPT).context("connect anew")?;
                self.call(ask)?
            }
            (answer, _) => answer?,
        };
        Ok(answer.into_inner().try_into()?)
    }
}

/// Certificate of an owner, if there is a key.
fn shown(key: Option<&PrivateKey>) -> Shown<'_> {
    key.map_or(Shown::None, Shown::Owner)
}
