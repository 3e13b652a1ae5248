//! First contact (the proof: FORMATS.md, *Labels and derivations*): mutual, without trust on first use.
//!
//! The one connection that accepts any server. Nothing is sent on it but the empty `Claim`, and nothing of the answer is
//! believed before the proof holds: it binds the config we made to this very TLS session, and to the certificates that
//! every later session is pinned to. What the machine shows on this one says nothing: we do not know its name yet.

use api::public_client::PublicClient;
use api::wire::ClaimRequest;
use api::{Claim, limits};
use keys::first_contact::{self, BadProof, Transcript};
use keys::identity;
use model::{ConfigDigest, FirstContact};
use pki::server_auth::verify_machine;
use pki::{CertificateDer, KeyError, TlsError, UnixTime, VerifyError};
use rustls::time_provider::DefaultTimeProvider;

use super::call::CallError;
use super::dial::{Address, DialError, channel, dial};
use crate::failure::{Advice, Code};
use crate::store::Pins;

/// Knowledge that only the machine that read our config can have.
#[derive(Debug)]
pub(crate) struct Expected {
    /// The secret in the config.
    pub secret: FirstContact,
    /// SHA-256 of the config's bytes.
    pub config: ConfigDigest,
}

/// Why nobody was pinned.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ContactError {
    /// TLS cannot be set up on this side.
    #[error("prepare TLS")]
    Tls(#[from] TlsError),
    /// No connection.
    #[error(transparent)]
    Dial(#[from] DialError),
    /// The machine does not answer the claim, or not yet.
    #[error(transparent)]
    Call(#[from] CallError),
    /// The session has no exporter.
    #[error("read the TLS session of first contact")]
    Session,
    /// A certificate in the answer cannot be read.
    #[error("read a certificate of the claim")]
    Certificate(#[from] KeyError),
    /// The proof does not hold.
    #[error(transparent)]
    Proof(#[from] BadProof),
    /// The machine's certificate is not what a member of its cluster has. The proof held, so it is our machine that says it.
    #[error("the machine's certificate is not one of its cluster")]
    Membership(#[from] VerifyError),
}

impl ContactError {
    /// Whether asking again later can help: the machine is not there or not ready yet. A proof that does not hold is
    /// never asked for again.
    pub(crate) const fn may_pass(&self) -> bool {
        match self {
            Self::Dial(DialError::Refused { .. }) => false,
            Self::Dial(_) => true,
            Self::Call(error) => error.may_pass(),
            Self::Tls(_) | Self::Session | Self::Certificate(_) | Self::Proof(_) | Self::Membership(_) => false,
        }
    }
}

impl Advice for ContactError {
    fn code(&self) -> Code {
        match self {
            Self::Dial(error) => error.code(),
            Self::Call(error) => error.code(),
            Self::Tls(_) | Self::Session => Code::Failed,
            Self::Certificate(_) | Self::Proof(_) | Self::Membership(_) => Code::Refused,
        }
    }

    fn unchanged(&self) -> &'static str {
        match self {
            Self::Dial(error) => error.unchanged(),
            Self::Tls(_) => "nothing was sent",
            Self::Call(_) | Self::Session | Self::Certificate(_) | Self::Proof(_) | Self::Membership(_) => {
                "nothing was sent but the empty claim, and nobody was pinned"
            }
        }
    }

    fn next(&self) -> Option<String> {
        match self {
            Self::Dial(error) => error.next(),
            Self::Call(CallError::NotNow { .. }) => {
                Some("look at the machine's screen: it says what it waits for".to_owned())
            }
            Self::Call(error) => error.next(),
            Self::Tls(_) => None,
            Self::Session | Self::Certificate(_) | Self::Proof(_) | Self::Membership(_) => Some(
                "reach the machine on a network you trust, or check that it booted with this cluster's config"
                    .to_owned(),
            ),
        }
    }
}

/// Meets the machine at `address`, which must prove that it read the config. The pins are the caller's to keep.
pub(crate) async fn meet(address: &Address, expected: &Expected, now: UnixTime) -> Result<Pins, ContactError> {
    let tls = pki::danger::first_contact(std::sync::Arc::new(DefaultTimeProvider))?;
    // A name of no machine: we do not know ours yet, and the verifier of first contact looks at none.
    let session = dial(address, tls, "machine.cairn.internal").await?;
    let (_, connection) = session.get_ref().get_ref();
    let mut exporter = [0; 32];
    connection
        .export_keying_material(&mut exporter, first_contact::EXPORTER_LABEL, None)
        .map_err(|_| ContactError::Session)?;

    let mut client =
        PublicClient::new(channel(address, session).await?).max_decoding_message_size(limits::RESPONSE_BYTES);
    let answer = client.claim(ClaimRequest {}).await.map_err(CallError::of("Claim"))?;
    let claim = Claim::try_from(answer.into_inner()).map_err(CallError::answer("Claim"))?;
    check(&claim, exporter, expected, now)
}

/// The proof over what the claim says and the session exports; then what was proven, against the machine's own rules.
fn check(claim: &Claim, exporter: [u8; 32], expected: &Expected, now: UnixTime) -> Result<Pins, ContactError> {
    let leaf = CertificateDer::from(claim.leaf_certificate.as_slice());
    let authority_certificate = CertificateDer::from(claim.ca_certificate.as_slice());
    let authority = pki::public_key_of(&authority_certificate)?;
    let transcript = Transcript {
        exporter,
        leaf_spki: pki::public_key_of(&leaf)?.pin().0,
        ca_spki: authority.pin().0,
        machine: claim.machine_id,
        config: expected.config,
    };
    first_contact::verify(&expected.secret, &transcript, &claim.proof)?;

    let cluster = identity::cluster_id(&authority.spki());
    let pins = Pins { machine: claim.machine_id, cluster, authority: authority.pin() };
    verify_machine(&leaf, &authority_certificate, &pins.tls_name(), now)?;
    Ok(pins)
}
