//! The one call that may meet any server: first contact with a machine nobody knows yet.
//!
//! Its caller must prove the machine by the first-contact secret (bound to the connection by its exporter) before it
//! sends anything that matters. It accepts one handshake and no second; every later call is pinned (`server_auth`).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustls::client::danger::{ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::time_provider::TimeProvider;
use rustls::{CertificateError, ClientConfig, Error};

use crate::tls::{self, TlsError, signatures_of_tls13};
use crate::verify::public_key_of;

/// TLS for the first call to a machine: any leaf, once, as a stranger.
///
/// # Errors
/// [`TlsError`].
pub fn first_contact(time: Arc<dyn TimeProvider>) -> Result<ClientConfig, TlsError> {
    tls::client(None, Arc::new(FirstContact { used: AtomicBool::new(false) }), time)
}

#[derive(Debug)]
struct FirstContact {
    used: AtomicBool,
}

impl ServerCertVerifier for FirstContact {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        if self.used.swap(true, Ordering::SeqCst) {
            return Err(CertificateError::ApplicationVerificationFailure.into());
        }
        // The proof of first contact names the leaf's key, so it has to be one that can be read.
        public_key_of(end_entity).map_err(|_| CertificateError::BadEncoding)?;
        Ok(ServerCertVerified::assertion())
    }

    signatures_of_tls13!();
}
