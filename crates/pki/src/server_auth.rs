//! The client's side: a server is believed under one authority and by exactly the name or address dialled.
//!
//! The command line knows a machine's authority by its key (`pinned`), PID 1 knows those of etcd and Kubernetes by
//! their certificates (`under_authority`). No other root is ever asked.

use std::sync::Arc;

use rustls::client::danger::{ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::time_provider::TimeProvider;
use rustls::{CertificateError, ClientConfig, Error};

use crate::key::SpkiPin;
use crate::tls::{self, Identity, TlsError, signatures_of_tls13};
use crate::verify::{Purpose, VerifyError, public_key_of, verify};

/// TLS to a machine: the server shows a leaf for exactly the name dialled and, behind it, the authority's
/// certificate, whose key is `authority`. With `identity` the client is the owner, without it anonymous.
///
/// # Errors
/// [`TlsError`].
pub fn pinned(
    authority: SpkiPin,
    identity: Option<Identity<'_>>,
    time: Arc<dyn TimeProvider>,
) -> Result<ClientConfig, TlsError> {
    tls::client(identity, Arc::new(UnderAuthority::Key(authority)), time)
}

/// TLS to a service of this machine: the server shows a leaf of `authority` for exactly the address dialled.
///
/// # Errors
/// [`TlsError`].
pub fn under_authority(
    authority: CertificateDer<'static>,
    identity: Option<Identity<'_>>,
    time: Arc<dyn TimeProvider>,
) -> Result<ClientConfig, TlsError> {
    tls::client(identity, Arc::new(UnderAuthority::Certificate(authority)), time)
}

#[derive(Debug)]
enum UnderAuthority {
    /// The server sends the certificate of the authority that has this key, behind its own.
    Key(SpkiPin),
    /// This authority; whatever the server sends behind its own certificate is not looked at.
    Certificate(CertificateDer<'static>),
}

impl UnderAuthority {
    fn certificate<'a>(&'a self, behind: &'a [CertificateDer<'a>]) -> Result<&'a CertificateDer<'a>, Error> {
        match (self, behind) {
            (Self::Certificate(authority), _) => Ok(authority),
            (Self::Key(pin), [authority]) if public_key_of(authority).map(|key| key.pin()) == Ok(*pin) => Ok(authority),
            (Self::Key(_), _) => Err(CertificateError::UnknownIssuer.into()),
        }
    }
}

impl ServerCertVerifier for UnderAuthority {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let authority = self.certificate(intermediates)?;
        verify(end_entity, authority, Purpose::Server(&server_name.to_str()), now)
            .map(|()| ServerCertVerified::assertion())
            .map_err(|error| refused(&error))
    }

    signatures_of_tls13!();
}

/// The accusation in the words of TLS; the alert that goes out says no more than that.
fn refused(error: &VerifyError) -> Error {
    match error {
        VerifyError::Authority(_) | VerifyError::Form(_) => CertificateError::BadEncoding,
        VerifyError::Name | VerifyError::WrongName(_) => CertificateError::NotValidForName,
        VerifyError::Path(webpki::Error::CertExpired { .. }) => CertificateError::Expired,
        VerifyError::Path(webpki::Error::CertNotValidYet { .. }) => CertificateError::NotValidYet,
        VerifyError::Path(_) => CertificateError::UnknownIssuer,
    }
    .into()
}
