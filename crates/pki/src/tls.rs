//! The TLS rules of every connection of ours: 1.3 only, X25519MLKEM768 first, no tickets, no resumption, no 0-RTT.
//!
//! Resumption would skip the verifier on the second connection, so both sides have it off. Time is asked from the
//! caller's provider; the process-wide default provider of rustls is never used.

use std::sync::{Arc, PoisonError, RwLock};

use rustls::client::danger::ServerCertVerifier;
use rustls::client::{ResolvesClientCert, Resumption};
use rustls::crypto::aws_lc_rs::sign::any_supported_type;
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms, aws_lc_rs};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoServerSessionStorage, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::time_provider::TimeProvider;
use rustls::{ClientConfig, ServerConfig, SignatureScheme, version};

use crate::key::{KeyError, PrivateKey};

/// Identity of one side of a connection: certificates, leaf first, and the leaf's key.
#[derive(Debug)]
pub struct TlsIdentity<'a> {
    /// The leaf, then its authority where the other side pins that by its key.
    pub chain: Vec<CertificateDer<'static>>,
    /// The leaf's private key.
    pub key: &'a PrivateKey,
}

/// Identity of a client that can be replaced while configurations have it: each handshake shows the one of then. Clones share it.
#[derive(Debug, Clone)]
pub struct ClientIdentity(Arc<RwLock<Arc<CertifiedKey>>>);

impl ClientIdentity {
    /// Identity that is `first` to begin with.
    ///
    /// # Errors
    /// [`TlsError`] where the key is not the leaf's.
    pub fn new(first: TlsIdentity<'_>) -> Result<Self, TlsError> {
        Ok(Self(Arc::new(RwLock::new(certified(first)?))))
    }

    /// Shows `next` from now on.
    ///
    /// # Errors
    /// [`TlsError`] where the key is not the leaf's; the one before is shown still.
    pub fn replace(&self, next: TlsIdentity<'_>) -> Result<(), TlsError> {
        let next = certified(next)?;
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = next;
        Ok(())
    }
}

impl ResolvesClientCert for ClientIdentity {
    fn resolve(&self, _authorities: &[&[u8]], _schemes: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        Some(self.0.read().unwrap_or_else(PoisonError::into_inner).clone())
    }

    fn has_certs(&self) -> bool {
        true
    }
}

/// Why a configuration cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// The private key cannot be handed to the TLS library.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The certificate and the key do not fit, or the provider lacks something.
    #[error("configure TLS")]
    Config(#[from] rustls::Error),
}

/// The signatures accepted in handshakes and certificates: the two kinds of keys in use.
pub(crate) static SIGNATURES: WebPkiSupportedAlgorithms = WebPkiSupportedAlgorithms {
    all: &[webpki::aws_lc_rs::ED25519, webpki::aws_lc_rs::ECDSA_P256_SHA256],
    mapping: &[
        (SignatureScheme::ED25519, &[webpki::aws_lc_rs::ED25519]),
        (SignatureScheme::ECDSA_NISTP256_SHA256, &[webpki::aws_lc_rs::ECDSA_P256_SHA256]),
    ],
};

/// Methods that rustls' two traits for verifiers ask for in the same words, and that have one answer here: signatures
/// of TLS 1.3 by [`SIGNATURES`], none of TLS 1.2. A macro, because no method serves two traits.
macro_rules! signatures_of_tls13 {
    () => {
        fn verify_tls12_signature(
            &self,
            _message: &[u8],
            _cert: &rustls::pki_types::CertificateDer<'_>,
            _signature: &rustls::DigitallySignedStruct,
        ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
            Err(rustls::PeerIncompatible::Tls12NotOffered.into())
        }

        fn verify_tls13_signature(
            &self,
            message: &[u8],
            cert: &rustls::pki_types::CertificateDer<'_>,
            signature: &rustls::DigitallySignedStruct,
        ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
            rustls::crypto::verify_tls13_signature(message, cert, signature, &crate::tls::SIGNATURES)
        }

        fn supported_verify_schemes(&self) -> Vec<rustls::SignatureScheme> {
            crate::tls::SIGNATURES.supported_schemes()
        }
    };
}
pub(crate) use signatures_of_tls13;

pub(crate) fn server(
    certificates: Arc<dyn ResolvesServerCert>,
    verifier: Arc<dyn ClientCertVerifier>,
    time: Arc<dyn TimeProvider>,
) -> Result<ServerConfig, TlsError> {
    let mut config = ServerConfig::builder_with_details(provider(), time)
        .with_protocol_versions(&[&version::TLS13])?
        .with_client_cert_verifier(verifier)
        .with_cert_resolver(certificates);
    config.send_tls13_tickets = 0;
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.max_early_data_size = 0;
    Ok(config)
}

pub(crate) fn client(
    identity: Option<ClientIdentity>,
    verifier: Arc<dyn ServerCertVerifier>,
    time: Arc<dyn TimeProvider>,
) -> Result<ClientConfig, TlsError> {
    let builder = ClientConfig::builder_with_details(provider(), time)
        .with_protocol_versions(&[&version::TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(verifier);
    let mut config = match identity {
        Some(identity) => builder.with_client_cert_resolver(Arc::new(identity)),
        None => builder.with_no_client_auth(),
    };
    config.resumption = Resumption::disabled();
    config.enable_early_data = false;
    Ok(config)
}

/// Key and certificates that TLS shows and signs with; refused where the key is not the leaf's. As
/// `CertifiedKey::from_der` does it, but that takes the key's PKCS#8 bytes and frees them unwiped.
pub(crate) fn certified(TlsIdentity { chain, key }: TlsIdentity<'_>) -> Result<Arc<CertifiedKey>, TlsError> {
    let exported = key.to_pkcs8()?;
    let key = any_supported_type(&PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(exported.expose())))?;
    let certified = CertifiedKey::new(chain, key);
    certified.keys_match()?;
    Ok(Arc::new(certified))
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(CryptoProvider {
        kx_groups: vec![aws_lc_rs::kx_group::X25519MLKEM768, aws_lc_rs::kx_group::X25519],
        signature_verification_algorithms: SIGNATURES,
        ..aws_lc_rs::default_provider()
    })
}
