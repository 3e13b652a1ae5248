//! First contact (formats.md, section 8): mutual, without trust on first use.
//!
//! The one connection that accepts any server. Nothing is sent on it but the empty `Claim`, and nothing of the answer is
//! believed before the proof holds: it binds the config we made to this very TLS session.

use api::public_client::PublicClient;
use api::wire::ClaimRequest;
use api::{Claim, limits};
use keys::first_contact::{self, BadProof, Transcript};
use keys::identity;
use model::{ConfigDigest, FirstContact};
use pki::{CertificateDer, KeyError, PublicKey, Purpose, TlsError, UnixTime, VerifyError};
use rustls::time_provider::DefaultTimeProvider;

use super::call::CallError;
use super::dial::{Address, DialError, channel, dial};
use crate::failure::{Advice, Code};
use crate::store::Pins;

/// What only the machine that read our config can know.
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
    /// The session has no exporter or no certificate.
    #[error("read the TLS session of first contact")]
    Session,
    /// A certificate in the answer cannot be read.
    #[error("read a certificate of the claim")]
    Certificate(#[from] KeyError),
    /// The answer speaks of another certificate than the session had.
    #[error("the claim names another certificate than the connection has: someone is in between")]
    OtherLeaf,
    /// The proof does not hold.
    #[error(transparent)]
    Proof(#[from] BadProof),
    /// The machine's certificate is not what a member of its cluster has. The proof held, so it is our machine: a session
    /// that began before it was a member still shows the certificate from before.
    #[error("the machine's certificate is not one of its cluster")]
    Membership(#[from] VerifyError),
    /// The machine's id is not that of its key.
    #[error("the machine's id does not derive from its key")]
    Identity,
}

impl ContactError {
    /// Whether asking again later can help: the machine is not there or not ready yet. A proof that does not hold is
    /// never asked for again; one that holds on a session older than the machine's membership is ([`Self::Membership`]).
    pub(crate) const fn may_pass(&self) -> bool {
        match self {
            Self::Dial(DialError::Refused { .. }) => false,
            Self::Dial(_) | Self::Membership(_) => true,
            Self::Call(error) => error.may_pass(),
            Self::Tls(_) | Self::Session | Self::Certificate(_) | Self::OtherLeaf | Self::Proof(_) | Self::Identity => {
                false
            }
        }
    }
}

impl Advice for ContactError {
    fn code(&self) -> Code {
        match self {
            Self::Dial(error) => error.code(),
            Self::Call(error) => error.code(),
            Self::Tls(_) | Self::Session => Code::Failed,
            Self::Certificate(_) | Self::OtherLeaf | Self::Proof(_) | Self::Membership(_) | Self::Identity => {
                Code::Refused
            }
        }
    }

    fn unchanged(&self) -> &'static str {
        match self {
            Self::Dial(error) => error.unchanged(),
            Self::Tls(_) => "nothing was sent",
            Self::Call(_)
            | Self::Session
            | Self::Certificate(_)
            | Self::OtherLeaf
            | Self::Proof(_)
            | Self::Membership(_)
            | Self::Identity => "nothing was sent but the empty claim, and nobody was pinned",
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
            Self::Session
            | Self::Certificate(_)
            | Self::OtherLeaf
            | Self::Proof(_)
            | Self::Membership(_)
            | Self::Identity => Some(
                "reach the machine on a network you trust, or check that it booted with this cluster's config"
                    .to_owned(),
            ),
        }
    }
}

/// Meets the machine at `address`, which must prove that it read the config. The pins are the caller's to keep.
pub(crate) async fn meet(address: &Address, expected: &Expected, now: UnixTime) -> Result<Pins, ContactError> {
    let tls = pki::danger::first_contact(std::sync::Arc::new(DefaultTimeProvider))?;
    // Any name does: the verifier of first contact looks at none.
    let session = dial(address, tls, "machine.cairn.internal").await?;
    let (_, connection) = session.get_ref().get_ref();
    let mut exporter = [0; 32];
    connection
        .export_keying_material(&mut exporter, first_contact::EXPORTER_LABEL, None)
        .map_err(|_| ContactError::Session)?;
    let leaf = connection.peer_certificates().and_then(<[_]>::first).ok_or(ContactError::Session)?.clone().into_owned();

    let mut client =
        PublicClient::new(channel(address, session).await?).max_decoding_message_size(limits::RESPONSE_BYTES);
    let answer = client.claim(ClaimRequest {}).await.map_err(CallError::of("Claim"))?;
    let claim = Claim::try_from(answer.into_inner()).map_err(CallError::answer("Claim"))?;
    check(&claim, &leaf, exporter, expected, now)
}

/// Everything the claim says, against everything the session showed.
fn check(
    claim: &Claim,
    leaf: &CertificateDer<'_>,
    exporter: [u8; 32],
    expected: &Expected,
    now: UnixTime,
) -> Result<Pins, ContactError> {
    let authority_certificate = CertificateDer::from(claim.ca_certificate.as_slice());
    let leaf_key = pki::public_key_of(leaf)?;
    let authority = pki::public_key_of(&authority_certificate)?;
    let transcript = Transcript {
        exporter,
        leaf_spki: leaf_key.pin().0,
        ca_spki: authority.pin().0,
        machine: claim.machine_id,
        config: expected.config,
    };
    first_contact::verify(&expected.secret, &transcript, &claim.proof)?;

    // From here on it is our machine that speaks; what follows keeps it to its own rules.
    if claim.leaf_certificate != leaf.as_ref() {
        return Err(ContactError::OtherLeaf);
    }
    let cluster = identity::cluster_id(&authority.spki());
    let pins = Pins { machine: claim.machine_id, cluster, authority: authority.pin(), leaf: leaf_key.pin() };
    pki::verify(leaf, &authority_certificate, Purpose::Server(&pins.tls_name()), now)?;
    if ed25519_of(&leaf_key).map(|key| identity::machine_id(&key)) != Some(claim.machine_id) {
        return Err(ContactError::Identity);
    }
    Ok(pins)
}

/// The raw Ed25519 key, if it is one: the SubjectPublicKeyInfo of RFC 8410, section 4, ends with it.
fn ed25519_of(key: &PublicKey) -> Option<[u8; 32]> {
    let raw: [u8; 32] = key.spki().last_chunk().copied()?;
    (PublicKey::from_ed25519(raw) == *key).then_some(raw)
}
