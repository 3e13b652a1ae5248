//! A machine that joins, made by the case: it holds a machine's key, and asks a coordinator for what the case says, its own or
//! another's. Believes whoever answers; no machine does.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Context as _;
use api::wire::{RedeemRequest, ReleaseKeyRequest};
use api::{KeyRequest, ReleasedKey};
use cluster::record::Release;
use cluster::redeem::{RedeemAnswer, RedeemBody};
use keys::recovery::RecoveryPubKey;
use keys::ticket::Ticket;
use model::{BootClass, DiskUuid, Level, MachinePubKey, OwnerPubKey, RootHash, Secret, Uuid, VpnPubKey};
use pki::PrivateKey;
use qemu::{Deadline, Vm};
use tonic::{Code, Response, Status};

use crate::client::{Client, PublicClient, Shown, public_api};
use crate::writer::drawn;

/// A coordinator under emulation decides within seconds.
const ANSWER: Duration = Duration::from_secs(20);

/// Codes of a coordinator, or who is taken for one, that has not decided.
const UNDECIDED: [Code; 5] =
    [Code::Unavailable, Code::Unknown, Code::Cancelled, Code::DeadlineExceeded, Code::ResourceExhausted];

/// A machine's key, and the coordinator that the machine asks.
#[derive(Debug)]
pub struct Joiner {
    coordinator: SocketAddr,
    key: PrivateKey,
}

impl Joiner {
    /// A machine with a key that nobody has seen.
    ///
    /// # Errors
    /// When the coordinator's machine forwards no port.
    pub fn new(coordinator: &Vm) -> anyhow::Result<Self> {
        let coordinator = public_api(coordinator)?;
        Ok(Self { coordinator, key: PrivateKey::ed25519(drawn()?.seed())? })
    }

    /// The machine whose key is held.
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
    pub fn redeem(&self, ticket: &Ticket, body: &RedeemBody) -> anyhow::Result<Result<RedeemAnswer, String>> {
        let answer = self.call(async |client, exporter| {
            client.redeem(RedeemRequest { request: body.sign(ticket, exporter) }).await
        })?;
        Ok(match answer {
            Ok(answer) => Ok(RedeemAnswer::decode(&answer.response)?),
            Err(why) => Err(why),
        })
    }

    /// Request of a machine whose disk and VPN key have this number, and that knows its owner by this key.
    ///
    /// # Errors
    /// When the owner's key is not Ed25519.
    pub fn body(owner: &PrivateKey, ticket: &Ticket, number: u8) -> anyhow::Result<RedeemBody> {
        Ok(RedeemBody {
            ticket: ticket.public(),
            owner: OwnerPubKey(owner.public().as_ed25519().context("an owner's key is Ed25519")?),
            vpn_key: VpnPubKey(*RecoveryPubKey::of(&Secret::take(&mut [number; 32])).bytes()),
            disk: DiskUuid(Uuid([number; 16])),
            level: Level::Encrypted,
            boot_class: BootClass::Direct,
            release: Release::read("1.0.0")?,
            root_hash: RootHash([7; 32]),
            storage_key_name: None,
            endpoints: Vec::new(),
            node_name: None,
        })
    }

    /// As [`Self::redeem`], again and again until the coordinator has decided: of one address it answers one at a time.
    ///
    /// # Errors
    /// What was said last, when it has not by the deadline.
    pub fn redeem_by(
        &self,
        ticket: &Ticket,
        body: &RedeemBody,
        deadline: Deadline,
    ) -> anyhow::Result<Result<RedeemAnswer, String>> {
        loop {
            match self.redeem(ticket, body) {
                Err(_undecided) if deadline.left().is_some() => {}
                decided => return decided,
            }
        }
    }

    /// Asks for the cluster's half of a disk's key; the half, or why it is not given.
    ///
    /// # Errors
    /// As above.
    pub fn release(&self, asked: KeyRequest) -> anyhow::Result<Result<ReleasedKey, String>> {
        let request = ReleaseKeyRequest::from(asked);
        let answer = self.call(async |client, _| client.release_key(request).await)?;
        Ok(match answer {
            Ok(answer) => Ok(answer.try_into()?),
            Err(why) => Err(why),
        })
    }

    /// Makes a call over a session of its own, with what that exports. Who is refused by the machine hears why; who
    /// does not reach it is an error.
    fn call<T>(
        &self,
        call: impl AsyncFnOnce(&mut PublicClient, &[u8; 32]) -> Result<Response<T>, Status>,
    ) -> anyhow::Result<Result<T, String>> {
        let client = Client::dial(self.coordinator, Shown::Machine(&self.key), ANSWER)?;
        match client.within(ANSWER, async |public| call(public, client.exporter()).await)? {
            Ok(answer) => Ok(Ok(answer.into_inner())),
            Err(status) if UNDECIDED.contains(&status.code()) => Err(status.into()),
            Err(refused) => Ok(Err(refused.message().to_owned())),
        }
    }
}
