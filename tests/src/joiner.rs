//! A machine that joins, made by the case: it holds a machine's key, and asks a coordinator for what the case says, its own or
//! another's. Believes whoever answers; no machine does.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Context as _;
use api::wire::{RedeemRequest, ReleaseKeyRequest};
use api::{KeyAsked, KeyReleased};
use cluster::redeem::{Answer, Body};
use keys::ticket::{EXPORTER_LABEL, Ticket};
use model::MachinePubKey;
use pki::{Identity, PrivateKey};
use qemu::Vm;
use tokio::runtime::Runtime;
use tokio::time::timeout;
use tonic::{Code, Response, Status};

use crate::stranger::{PublicClient, channel, shake_hands};
use crate::writer::drawn;

/// A coordinator under emulation decides within seconds.
const ANSWER: Duration = Duration::from_secs(20);

/// What a coordinator, or who is taken for one, says that has not decided.
const UNDECIDED: [Code; 5] =
    [Code::Unavailable, Code::Unknown, Code::Cancelled, Code::DeadlineExceeded, Code::ResourceExhausted];

/// One machine's key, and the coordinator that it asks.
#[derive(Debug)]
pub struct Joiner {
    runtime: Runtime,
    coordinator: SocketAddr,
    key: PrivateKey,
}

impl Joiner {
    /// One with a key that nobody has seen.
    ///
    /// # Errors
    /// When the coordinator's machine forwards no port.
    pub fn new(coordinator: &Vm) -> anyhow::Result<Self> {
        let coordinator = coordinator.forward(model::PUBLIC_API_PORT).context("the public API is not forwarded")?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        Ok(Self { runtime, coordinator, key: PrivateKey::ed25519(drawn()?.seed())? })
    }

    /// Whose key it holds.
    ///
    /// # Errors
    /// Never: its key is Ed25519.
    pub fn machine(&self) -> anyhow::Result<MachinePubKey> {
        Ok(MachinePubKey(self.key.public().as_ed25519().context("a machine's key is Ed25519")?))
    }

    /// Asks to be let in as what `body` says; what it is given, or why it is not let in.
    ///
    /// # Errors
    /// When there is no answer, or none that makes sense.
    pub fn redeem(&self, ticket: &Ticket, body: &Body) -> anyhow::Result<Result<Answer, String>> {
        let answer = self.call(async |client, exporter| {
            client.redeem(RedeemRequest { request: body.sign(ticket, exporter) }).await
        })?;
        Ok(match answer {
            Ok(answer) => Ok(Answer::decode(&answer.response)?),
            Err(why) => Err(why),
        })
    }

    /// Asks for the cluster's half of a disk's key; the half, or why it is not given.
    ///
    /// # Errors
    /// As above.
    pub fn release(&self, asked: KeyAsked) -> anyhow::Result<Result<KeyReleased, String>> {
        let request = ReleaseKeyRequest::from(asked);
        let answer = self.call(async |client, _| client.release_key(request).await)?;
        Ok(match answer {
            Ok(answer) => Ok(answer.try_into()?),
            Err(why) => Err(why),
        })
    }

    /// One call over a session of its own, with what that exports. Who is refused by the machine hears why; who does not reach
    /// it is an error.
    fn call<T>(
        &self,
        call: impl AsyncFnOnce(&mut PublicClient, &[u8; 32]) -> Result<Response<T>, Status>,
    ) -> anyhow::Result<Result<T, String>> {
        let asked = async {
            let chain = vec![pki::client_auth::machine_certificate(&self.key)?];
            let shown = Identity { chain, key: &self.key };
            let session = shake_hands(self.coordinator, Some(shown), "machine.cairn.internal").await?;
            let exporter = session.get_ref().1.export_keying_material([0; 32], EXPORTER_LABEL, None)?;
            let mut client = PublicClient::new(channel(session).await?);
            anyhow::Ok(call(&mut client, &exporter).await)
        };
        let answer = self.runtime.block_on(async { timeout(ANSWER, asked).await });
        match answer.context("the coordinator does not answer")?? {
            Ok(answer) => Ok(Ok(answer.into_inner())),
            Err(status) if UNDECIDED.contains(&status.code()) => Err(status.into()),
            Err(refused) => Ok(Err(refused.message().to_owned())),
        }
    }
}
