//! The client's side: a server is believed under one authority and by exactly the name or address dialled; a machine by
//! the key that its name is made of, too.
//!
//! The command line knows a machine's authority by its key (`pinned`), PID 1 knows those of etcd and Kubernetes by
//! their certificates (`under_authority`). No other root is ever asked.

use std::sync::Arc;

use keys::identity;
use rustls::client::danger::{ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::time_provider::TimeProvider;
use rustls::{CertificateError, ClientConfig, Error};

use crate::key::SpkiPin;
use crate::profile::machine_tls_name;
use crate::tls::{self, Identity, TlsError, signatures_of_tls13};
use crate::verify::{Purpose, VerifyError, public_key_of, verify};

/// TLS to a machine: the server shows a leaf for exactly the name dialled and made of its key, and, behind it, the
/// authority's certificate, whose key is `authority`. With `identity` the client is the owner, without it a stranger.
///
/// # Errors
/// [`TlsError`].
pub fn pinned(
    authority: SpkiPin,
    identity: Option<Identity<'_>>,
    time: Arc<dyn TimeProvider>,
) -> Result<ClientConfig, TlsError> {
    tls::client(identity, Arc::new(Believed::Machine(authority)), time)
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
    tls::client(identity, Arc::new(Believed::Service(authority)), time)
}

/// Checks that `leaf` is the certificate of the machine called `name` (see [`crate::machine_tls_name`]), good at `now`.
///
/// A machine's id is made of its key and a cluster's of its authority's, so the name says which keys these have to be;
/// the authority alone could certify the name for another key.
///
/// # Errors
/// [`VerifyError`] says which check refused it.
pub fn verify_machine(
    leaf: &CertificateDer<'_>,
    authority: &CertificateDer<'_>,
    name: &str,
    now: UnixTime,
) -> Result<(), VerifyError> {
    verify(leaf, authority, Purpose::Server(name), now)?;
    let machine = public_key_of(leaf).ok().and_then(|key| key.as_ed25519()).map(|key| identity::machine_id(&key));
    let cluster = public_key_of(authority).ok().map(|key| identity::cluster_id(&key.spki()));
    match (machine, cluster) {
        (Some(machine), Some(cluster)) if machine_tls_name(machine, cluster) == name => Ok(()),
        (_, _) => Err(VerifyError::OtherKey),
    }
}

#[derive(Debug)]
enum Believed {
    /// A machine; it sends the certificate of the authority that has this key, behind its own.
    Machine(SpkiPin),
    /// A service under this authority; whatever it sends behind its own certificate is not looked at.
    Service(CertificateDer<'static>),
}

impl ServerCertVerifier for Believed {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let name = server_name.to_str();
        match (self, intermediates) {
            (Self::Machine(pin), [authority]) if public_key_of(authority).map(|key| key.pin()) == Ok(*pin) => {
                verify_machine(end_entity, authority, &name, now)
            }
            (Self::Machine(_), _) => return Err(CertificateError::UnknownIssuer.into()),
            (Self::Service(authority), _) => verify(end_entity, authority, Purpose::Server(&name), now),
        }
        .map(|()| ServerCertVerified::assertion())
        .map_err(|error| refused(&error))
    }

    signatures_of_tls13!();
}

/// The accusation in the words of TLS; the alert that goes out says no more than that.
fn refused(error: &VerifyError) -> Error {
    match error {
        VerifyError::Authority(_) | VerifyError::Form(_) => CertificateError::BadEncoding,
        VerifyError::Name | VerifyError::WrongName(_) | VerifyError::OtherKey => CertificateError::NotValidForName,
        VerifyError::Path(webpki::Error::CertExpired { .. }) => CertificateError::Expired,
        VerifyError::Path(webpki::Error::CertNotValidYet { .. }) => CertificateError::NotValidYet,
        VerifyError::Path(_) => CertificateError::UnknownIssuer,
    }
    .into()
}
