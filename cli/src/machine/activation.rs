//! Activating a blank machine by the code on its screen: it proves that it knows the code before anything is sent to it but
//! questions that say nothing; then it is handed its config (`keys::activation`).
//!
//! ```text
//!   dial, any leaf ──► GetState: Blank? ──► ProveCode: believed? ──► Blank ──hand_in(config)──► accepted, or why not
//! ```

use std::sync::Arc;

use api::public_client::PublicClient;
use api::wire::{ActivateRequest, GetStateRequest, ProveCodeRequest};
use api::{HandedIn, PublicState, limits};
use keys::activation::{self, ActivationCaller, Code, CodeMismatch, Connection, ProvenPeer};
use model::MachineState;
use pki::{KeyError, TlsError};
use rustls::time_provider::DefaultTimeProvider;
use tokio::task::JoinSet;
use tonic::transport::Channel;
use zeroize::Zeroizing;

use super::call::CallError;
use super::dial::{Address, DialError, Stream, channel, dial, secure};
use super::session::{Session, SessionError, soon};
use super::tunnel::TunnelError;
use crate::failure::{Advice, Code as Exit};

/// Why a machine is not activated.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ActivationError {
    /// TLS cannot be set up on this side.
    #[error("prepare TLS")]
    Tls(#[from] TlsError),
    /// No connection.
    #[error(transparent)]
    Dial(#[from] DialError),
    /// The member that is to carry the bytes does not.
    #[error(transparent)]
    Through(#[from] SessionError),
    /// A question was not answered.
    #[error(transparent)]
    Call(#[from] CallError),
    /// The session has no exporter, or shows no certificate.
    #[error("read the TLS session of the activation")]
    Session,
    /// The machine's certificate cannot be read.
    #[error("read the machine's certificate")]
    Certificate(#[from] KeyError),
    /// The machine belongs to somebody.
    #[error("the machine at {address} is not blank: it is {state}")]
    NotBlank { address: Address, state: MachineState },
    /// The machine does not know the code.
    #[error(transparent)]
    Code(#[from] CodeMismatch),
    /// The machine does not take the config.
    #[error("the machine does not take the config")]
    Config(#[source] CallError),
}

impl ActivationError {
    /// Whether the machine may have taken the config all the same: its answer was not heard.
    pub(crate) const fn is_open(&self) -> bool {
        matches!(self, Self::Config(CallError::Gone { .. } | CallError::Late { .. }))
    }
}

impl Advice for ActivationError {
    fn code(&self) -> Exit {
        match self {
            Self::Dial(error) => error.code(),
            Self::Through(error) => error.code(),
            Self::Call(error) | Self::Config(error) => error.code(),
            Self::Tls(_) | Self::Session => Exit::Failed,
            Self::Certificate(_) | Self::NotBlank { .. } | Self::Code(_) => Exit::Refused,
        }
    }

    fn unchanged(&self) -> &'static str {
        match self {
            Self::Config(error) => error.unchanged(),
            Self::Tls(_)
            | Self::Dial(_)
            | Self::Through(_)
            | Self::Call(_)
            | Self::Session
            | Self::Certificate(_)
            | Self::NotBlank { .. }
            | Self::Code(_) => "nothing of a config was sent, and the machine is as it was",
        }
    }

    fn next(&self) -> Option<String> {
        match self {
            Self::Dial(DialError::Connect { .. } | DialError::Silent { .. }) => {
                Some("see on the machine's screen whether it is on and at this address".to_owned())
            }
            Self::Dial(error) => error.next(),
            Self::Through(error) => error.next(),
            Self::NotBlank { .. } => {
                Some("check the address; a machine of yours answers: cairnctl machine status".to_owned())
            }
            Self::Code(_) => {
                Some("read address and code again from the machine's screen: each start has its own".to_owned())
            }
            Self::Call(_) | Self::Config(_) | Self::Certificate(_) | Self::Session => {
                Some("look at the machine's screen: it says what it waits for".to_owned())
            }
            Self::Tls(_) => None,
        }
    }
}

/// How a blank machine is reached.
#[derive(Debug)]
pub(crate) enum Way<'a> {
    /// At its own address.
    Direct,
    /// A member carries the bytes. TLS ends here all the same.
    Through(&'a Session),
}

/// A blank machine that has shown that it knows the code. It waits a few seconds for what it is handed.
#[derive(Debug)]
pub(crate) struct Blank<'a> {
    client: PublicClient<Channel>,
    believed: ProvenPeer<'a>,
    _carried: Option<JoinSet<Result<(), TunnelError>>>,
}

impl<'a> Blank<'a> {
    /// Meets the machine at `address`, which has to know `code`.
    pub(crate) async fn meet(address: &Address, way: &Way<'_>, code: &'a Code) -> Result<Self, ActivationError> {
        let tls = pki::danger::first_contact(Arc::new(DefaultTimeProvider))?;
        // A name of no machine: this one has none.
        let name = "machine.cairn.internal";
        let (session, carried) = match way {
            Way::Direct => (dial(address, tls, name).await?, None),
            Way::Through(member) => {
                let (carried, carrying) = member.outside(address).await?;
                (secure(address, Box::new(carried), tls, name).await?, Some(carrying))
            }
        };
        let connection = connection(&session)?;
        let mut client =
            PublicClient::new(channel(address, session).await?).max_decoding_message_size(limits::RESPONSE_BYTES);
        let answer = soon("GetState", client.get_state(GetStateRequest {})).await?;
        let state = PublicState::try_from(answer).map_err(CallError::answer("GetState"))?.state;
        if state != MachineState::Blank {
            return Err(ActivationError::NotBlank { address: address.clone(), state });
        }
        let answer = soon("ProveCode", client.prove_code(ProveCodeRequest {})).await?;
        let proof = api::proof_of_code(&answer).map_err(CallError::answer("ProveCode"))?;
        let believed = ActivationCaller::new(code, connection).believes(&proof)?;
        Ok(Self { client, believed, _carried: carried })
    }

    /// Hands it its config. When this returns without an error the machine goes its way by it.
    pub(crate) async fn hand_in(mut self, config: Zeroizing<Vec<u8>>) -> Result<(), ActivationError> {
        let proof = self.believed.hands_in(&config);
        let request = ActivateRequest::from(HandedIn { config, proof });
        soon("Activate", self.client.activate(request)).await.map(drop).map_err(ActivationError::Config)
    }
}

/// Exporter and machine's key of the session, as our end sees them.
fn connection(session: &Stream) -> Result<Connection, ActivationError> {
    let (_, tls) = session.get_ref().get_ref();
    let mut exporter = [0; 32];
    tls.export_keying_material(&mut exporter, activation::EXPORTER_LABEL, None)
        .map_err(|_| ActivationError::Session)?;
    let leaf = tls.peer_certificates().and_then(<[_]>::first).ok_or(ActivationError::Session)?;
    Ok(Connection { exporter, leaf_spki: pki::public_key_of(leaf)?.pin().0 })
}
