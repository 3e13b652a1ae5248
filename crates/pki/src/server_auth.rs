//! The client's side: a server is believed under one authority and by exactly the name or address dialled; a machine by
//! the key that its name is made of, too.
//!
//! The command line knows a machine's authority by its key (`pinned`), PID 1 knows those of etcd and Kubernetes by
//! their certificates (`under_authority`). A machine that holds a ticket knows the cluster and its authority by their hashes,
//! and no machine of it (`any_coordinator`). No other root is ever asked.

use std::sync::Arc;

use keys::identity;
use model::{ClusterId, ClusterRole};
use rustls::client::danger::{ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::time_provider::TimeProvider;
use rustls::{CertificateError, ClientConfig, Error};

use crate::key::{PublicKey, SpkiPin};
use crate::profile::{cluster_tls_name, machine_tls_name, role_uri};
use crate::tls::{self, ClientIdentity, TlsError, TlsIdentity, signatures_of_tls13};
use crate::verify::{CertificatePurpose, VerifyError, not_before, public_key_of, uris, verify};

/// TLS to a machine: the server shows a leaf for exactly the name dialled and made of its key, and, behind it, the
/// authority's certificate, whose key is `authority`. With `identity` the client is the owner, without it a stranger.
///
/// # Errors
/// [`TlsError`].
pub fn pinned(
    authority: SpkiPin,
    identity: Option<TlsIdentity<'_>>,
    time: Arc<dyn TimeProvider>,
) -> Result<ClientConfig, TlsError> {
    tls::client(identity.map(ClientIdentity::new).transpose()?, Arc::new(Believed::Machine(authority)), time)
}

/// TLS to a service of this machine: the server shows a leaf of `authority` for exactly the address dialled. Certificates of services
/// are renewed, so `identity` can be replaced.
///
/// # Errors
/// [`TlsError`].
pub fn under_authority(
    authority: CertificateDer<'static>,
    identity: Option<&ClientIdentity>,
    time: Arc<dyn TimeProvider>,
) -> Result<ClientConfig, TlsError> {
    tls::client(identity.cloned(), Arc::new(Believed::Service(authority)), time)
}

/// TLS to any coordinator of `cluster`, dialled by [`cluster_tls_name`]: the server shows the certificate of one, made of
/// its key, and, behind it, the authority's, whose key is `authority`. Dates are not looked at: a machine that joins may
/// have a clock that is off, and the pin decides. The client shows `identity`.
///
/// # Errors
/// [`TlsError`].
pub fn any_coordinator(
    cluster: ClusterId,
    authority: SpkiPin,
    identity: TlsIdentity<'_>,
    time: Arc<dyn TimeProvider>,
) -> Result<ClientConfig, TlsError> {
    tls::client(Some(ClientIdentity::new(identity)?), Arc::new(Believed::Coordinator(cluster, authority)), time)
}

/// TLS to one machine of `cluster`, dialled by its [`machine_tls_name`]: the server shows that machine's certificate, made of its
/// key, and, behind it, the authority's, whose key is `authority`. As above, dates are not looked at, and the client shows
/// `identity`.
///
/// # Errors
/// [`TlsError`].
pub fn one_member(
    cluster: ClusterId,
    authority: SpkiPin,
    identity: TlsIdentity<'_>,
    time: Arc<dyn TimeProvider>,
) -> Result<ClientConfig, TlsError> {
    tls::client(Some(ClientIdentity::new(identity)?), Arc::new(Believed::Member(cluster, authority)), time)
}

/// Checks that `leaf` was issued to `key` as a machine of `cluster` by the authority of that certificate, whose key is
/// `pin`. Dates are not looked at.
///
/// # Errors
/// [`VerifyError`] says which check refused it.
pub fn verify_member(
    leaf: &CertificateDer<'_>,
    authority: &CertificateDer<'_>,
    cluster: ClusterId,
    pin: SpkiPin,
    key: &PublicKey,
) -> Result<(), VerifyError> {
    let shown = public_key_of(leaf).map_err(|_| VerifyError::OtherKey)?;
    let of = public_key_of(authority).map_err(|_| VerifyError::OtherKey)?;
    match key.as_ed25519() {
        Some(ed25519) if shown == *key && of.pin() == pin => {
            let name = machine_tls_name(identity::machine_id(&ed25519), cluster);
            verify_machine(leaf, authority, &name, not_before(leaf)?)
        }
        Some(_) | None => Err(VerifyError::OtherKey),
    }
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
    verify(leaf, authority, CertificatePurpose::Server(name), now)?;
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
    /// The machine of this cluster that is dialled; it sends the certificate of the authority that has this key, behind its own.
    Member(ClusterId, SpkiPin),
    /// Some coordinator of this cluster; it sends the certificate of the authority that has this key, behind its own.
    Coordinator(ClusterId, SpkiPin),
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
            (Self::Coordinator(cluster, pin), [authority]) if name == cluster_tls_name(*cluster) => {
                verify_coordinator(end_entity, authority, *cluster, *pin)
            }
            (Self::Member(cluster, pin), [authority]) => verify_named(end_entity, authority, *cluster, *pin, &name),
            (Self::Machine(_) | Self::Member(..) | Self::Coordinator(..), _) => {
                return Err(CertificateError::UnknownIssuer.into());
            }
            (Self::Service(authority), _) => verify(end_entity, authority, CertificatePurpose::Server(&name), now),
        }
        .map(|()| ServerCertVerified::assertion())
        .map_err(|error| refused(&error))
    }

    signatures_of_tls13!();
}

/// A member by its own key, and the one of this name.
fn verify_named(
    leaf: &CertificateDer<'_>,
    authority: &CertificateDer<'_>,
    cluster: ClusterId,
    pin: SpkiPin,
    name: &str,
) -> Result<(), VerifyError> {
    let key = public_key_of(leaf).map_err(|_| VerifyError::OtherKey)?;
    verify_member(leaf, authority, cluster, pin, &key)?;
    let machine = key.as_ed25519().map(|key| identity::machine_id(&key));
    if machine.is_some_and(|machine| machine_tls_name(machine, cluster) == name) {
        Ok(())
    } else {
        Err(VerifyError::OtherKey)
    }
}

/// Verifies a machine of the cluster: a member by its own key, and a coordinator when its certificate was issued.
fn verify_coordinator(
    leaf: &CertificateDer<'_>,
    authority: &CertificateDer<'_>,
    cluster: ClusterId,
    pin: SpkiPin,
) -> Result<(), VerifyError> {
    let key = public_key_of(leaf).map_err(|_| VerifyError::OtherKey)?;
    verify_member(leaf, authority, cluster, pin, &key)?;
    if uris(leaf)?.contains(&role_uri(cluster, ClusterRole::Coordinator)) { Ok(()) } else { Err(VerifyError::Role) }
}

/// The accusation in the words of TLS; the alert that goes out says no more than that.
fn refused(error: &VerifyError) -> Error {
    match error {
        VerifyError::Authority(_) | VerifyError::Form(_) => CertificateError::BadEncoding,
        VerifyError::Name | VerifyError::WrongName(_) | VerifyError::OtherKey => CertificateError::NotValidForName,
        VerifyError::Role => CertificateError::InvalidPurpose,
        VerifyError::Path(webpki::Error::CertExpired { .. }) => CertificateError::Expired,
        VerifyError::Path(webpki::Error::CertNotValidYet { .. }) => CertificateError::NotValidYet,
        VerifyError::Path(_) => CertificateError::UnknownIssuer,
    }
    .into()
}
