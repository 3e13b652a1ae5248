//! The server's side of the public API: which certificate it shows to whom, the owner by key, everybody else a stranger.
//!
//! A machine's certificate says which machine it is, of which cluster, in which roles. It is shown to a client that names
//! the machine or its cluster (SNI, RFC 6066, section 3), which only one that knows it can; everybody else sees one that
//! says nothing.
//!
//! A client that shows no certificate is a stranger and gets what the permission table gives to anybody. One that shows the
//! certificate of an owner must be one: another key ends the handshake, so no request of it is ever read. Any other
//! certificate of an Ed25519 key is taken for a machine's, or for a person's where it says so: that it holds the key is proven, and
//! nothing else. Whether that person is a user of the cluster is said by its records.

use std::sync::Arc;

use model::{Caller, ClusterId, MachinePubKey, UserName, UserPubKey};
use rcgen::{CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, KeyUsagePurpose};
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::time_provider::TimeProvider;
use rustls::{CertificateError, DistinguishedName as RootName, Error, ServerConfig};

use crate::authority::IssueError;
use crate::key::{PrivateKey, PublicKey};
use crate::profile::FRONT_NAME;
use crate::server_auth::verify_member;
use crate::tls::{self, TlsError, TlsIdentity, signatures_of_tls13};
use crate::verify::{CertificatePurpose, public_key_of, verify};

/// Identity on the other end of a connection that has finished its handshake, by name where there is one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Who {
    /// Showed no certificate.
    Stranger,
    /// Proved to hold this key, and calls itself a person who uses Kubernetes; no record says so. A stranger.
    Person(UserPubKey),
    /// Proved to hold a key of this user, by the records of now.
    User(UserName, UserPubKey),
    /// Proved to hold this key, which is no owner's.
    Machine(MachinePubKey),
    /// Proved to be the machine of this key that the cluster let in once; [`members`] let its certificate through.
    Member(MachinePubKey),
    /// Proved to hold this owner's key.
    Owner(PublicKey),
}

impl Who {
    /// As rules and bounds ask.
    #[must_use]
    pub const fn caller(&self) -> Caller {
        match self {
            Self::Stranger | Self::Person(_) => Caller::Stranger,
            Self::User(..) => Caller::User,
            Self::Machine(_) => Caller::Machine,
            Self::Member(_) => Caller::Member,
            Self::Owner(_) => Caller::Owner,
        }
    }
}

/// The owners a machine knows: their public keys, from the signed config. None on a blank machine.
#[derive(Debug, Clone, Default)]
pub struct Owners(Vec<PublicKey>);

impl Owners {
    /// Rule that lets these owners in; with an empty list everybody is a stranger and nobody an owner.
    #[must_use]
    pub const fn new(keys: Vec<PublicKey>) -> Self {
        Self(keys)
    }

    /// Identity that a finished handshake's certificates stand for (`None` or empty: no certificate).
    ///
    /// # Errors
    /// An owner's certificate that is none of these owners': it comes from a handshake that another list let in.
    pub fn who(&self, certificates: Option<&[CertificateDer<'_>]>) -> Result<Who, UnknownOwner> {
        match certificates {
            None | Some([]) => Ok(Who::Stranger),
            Some([leaf]) => self.shown(leaf).ok_or(UnknownOwner),
            Some(_) => Err(UnknownOwner),
        }
    }

    fn shown(&self, leaf: &CertificateDer<'_>) -> Option<Who> {
        self.owner(leaf).cloned().map(Who::Owner).or_else(|| other(leaf))
    }

    /// The certificate's own dates and names are not looked at: it is self-signed, so they prove nothing. The key
    /// does, and the handshake's signature proves that the client holds it.
    fn owner(&self, leaf: &CertificateDer<'_>) -> Option<&PublicKey> {
        let key = public_key_of(leaf).ok()?;
        self.0.iter().find(|owner| **owner == key)
    }
}

/// The holder of a certificate that does not call them an owner. Whoever lies about that gains nothing: an owner's key
/// is known, and nobody is believed to be a machine or a user for their certificate.
fn other(leaf: &CertificateDer<'_>) -> Option<Who> {
    let key = public_key_of(leaf).ok()?.as_ed25519()?;
    match common_name(leaf).as_deref() {
        Some(OWNER) => None,
        Some(USER) => Some(Who::Person(UserPubKey(key))),
        Some(_) | None => Some(Who::Machine(MachinePubKey(key))),
    }
}

/// The certificate is of no owner of this machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the certificate is of no owner of this machine")]
pub struct UnknownOwner;

/// Certificate that a server shows to a client that asks for its name.
#[derive(Debug)]
pub struct NamedIdentity<'a> {
    /// The DNS name, exactly, in lower case.
    pub name: String,
    /// The certificate for it.
    pub identity: TlsIdentity<'a>,
}

/// The public API's TLS: the certificate of `named` to whoever asks for its name or its cluster's, `nameless` to everybody
/// else; `owners` by their keys.
///
/// # Errors
/// [`TlsError`] when certificate and key do not fit.
pub fn server_config(
    nameless: TlsIdentity<'_>,
    named: Option<NamedIdentity<'_>>,
    owners: Owners,
    time: Arc<dyn TimeProvider>,
) -> Result<ServerConfig, TlsError> {
    let named = named.map(|named| Ok::<_, TlsError>((named.name, tls::certified(named.identity)?))).transpose()?;
    let certificates = ByName { nameless: tls::certified(nameless)?, named };
    tls::server(Arc::new(certificates), Arc::new(PinnedOwners(owners)), time)
}

/// TLS of the VPN API: `identity` is shown to everybody, and whoever calls shows the certificate of a machine of `cluster`,
/// of its key and by the CA of this certificate. Dates are not looked at, nor what the machine was when that was issued: its
/// record decides.
///
/// # Errors
/// [`TlsError`] when certificate and key do not fit.
pub fn members(
    identity: TlsIdentity<'_>,
    authority: CertificateDer<'static>,
    cluster: ClusterId,
    time: Arc<dyn TimeProvider>,
) -> Result<ServerConfig, TlsError> {
    let shown = SingleCertAndKey::from(tls::certified(identity)?);
    tls::server(Arc::new(shown), Arc::new(Members { authority, cluster }), time)
}

/// TLS of a server that answers in the apiserver's place: `identity` is shown to everybody, and whoever calls shows a certificate of
/// [`FRONT_NAME`] by the authority `front`, good at the time of the call.
///
/// # Errors
/// [`TlsError`] when certificate and key do not fit.
pub fn apiservers(
    identity: TlsIdentity<'_>,
    front: CertificateDer<'static>,
    time: Arc<dyn TimeProvider>,
) -> Result<ServerConfig, TlsError> {
    let shown = SingleCertAndKey::from(tls::certified(identity)?);
    tls::server(Arc::new(shown), Arc::new(Apiservers(front)), time)
}

/// The member whose certificate a handshake of [`members`] let through.
///
/// # Errors
/// [`UnknownMember`]: it comes from another handshake.
pub fn member(certificates: &[CertificateDer<'_>]) -> Result<Who, UnknownMember> {
    let [leaf] = certificates else { return Err(UnknownMember) };
    let key = public_key_of(leaf).ok().and_then(|key| key.as_ed25519());
    key.map(|key| Who::Member(MachinePubKey(key))).ok_or(UnknownMember)
}

/// The certificate is of no machine of the cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the certificate is of no machine of the cluster")]
pub struct UnknownMember;

/// Common name in every owner's certificate.
const OWNER: &str = "cairn owner";
/// Common name in every user's certificate.
const USER: &str = "cairn user";

/// The certificate an owner shows: self-signed, for any of its machines.
///
/// # Errors
/// [`IssueError::Encode`].
pub fn owner_certificate(key: &PrivateKey) -> Result<CertificateDer<'static>, IssueError> {
    self_signed(key, Some(OWNER), ExtendedKeyUsagePurpose::ClientAuth)
}

/// The certificate a person shows who uses a cluster's Kubernetes: self-signed, for any of its coordinators.
///
/// # Errors
/// [`IssueError::Encode`].
pub fn user_certificate(key: &PrivateKey) -> Result<CertificateDer<'static>, IssueError> {
    self_signed(key, Some(USER), ExtendedKeyUsagePurpose::ClientAuth)
}

/// The certificate that a machine shows before its cluster issued one: self-signed, it says nothing but its key.
///
/// # Errors
/// [`IssueError::Encode`].
pub fn machine_certificate(key: &PrivateKey) -> Result<CertificateDer<'static>, IssueError> {
    self_signed(key, None, ExtendedKeyUsagePurpose::ClientAuth)
}

/// A server's certificate that says nothing but its key, which should be used for nothing else.
///
/// # Errors
/// [`IssueError::Encode`].
pub fn nameless_certificate(key: &PrivateKey) -> Result<CertificateDer<'static>, IssueError> {
    self_signed(key, None, ExtendedKeyUsagePurpose::ServerAuth)
}

/// Without an end (RFC 5280, section 4.1.2.5): nobody looks at the dates of a certificate that its own key signed.
fn self_signed(
    key: &PrivateKey,
    common_name: Option<&str>,
    usage: ExtendedKeyUsagePurpose,
) -> Result<CertificateDer<'static>, IssueError> {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    common_name.into_iter().for_each(|name| params.distinguished_name.push(DnType::CommonName, name));
    params.not_before = time::OffsetDateTime::UNIX_EPOCH;
    params.not_after = rcgen::date_time_ymd(9999, 12, 31);
    params.is_ca = IsCa::ExplicitNoCa;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![usage];
    Ok(params.self_signed(key)?.into())
}

#[derive(Debug)]
struct ByName {
    nameless: Arc<CertifiedKey>,
    named: Option<(String, Arc<CertifiedKey>)>,
}

impl ResolvesServerCert for ByName {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let asked_for = self.named.as_ref().filter(|(name, _)| {
            let cluster = name.split_once('.').map(|(_, cluster)| cluster);
            hello.server_name().is_some_and(|asked| asked == name || Some(asked) == cluster)
        });
        Some(Arc::clone(asked_for.map_or(&self.nameless, |(_, certified)| certified)))
    }
}

#[derive(Debug)]
struct PinnedOwners(Owners);

impl ClientCertVerifier for PinnedOwners {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    /// No hint is given: nothing that names the cluster is said before authentication.
    fn root_hint_subjects(&self) -> &[RootName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        if intermediates.is_empty() && self.0.shown(end_entity).is_some() {
            Ok(ClientCertVerified::assertion())
        } else {
            Err(CertificateError::ApplicationVerificationFailure.into())
        }
    }

    signatures_of_tls13!();
}

#[derive(Debug)]
struct Members {
    authority: CertificateDer<'static>,
    cluster: ClusterId,
}

impl ClientCertVerifier for Members {
    fn root_hint_subjects(&self) -> &[RootName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let refused = || Error::from(CertificateError::ApplicationVerificationFailure);
        let key = |certificate| public_key_of(certificate).map_err(|_| refused());
        let (pin, key) = (key(&self.authority)?.pin(), key(end_entity)?);
        let verified = verify_member(end_entity, &self.authority, self.cluster, pin, &key);
        if intermediates.is_empty() && verified.is_ok() { Ok(ClientCertVerified::assertion()) } else { Err(refused()) }
    }

    signatures_of_tls13!();
}

/// Believes apiservers alone, by their authority.
#[derive(Debug)]
struct Apiservers(CertificateDer<'static>);

impl ClientCertVerifier for Apiservers {
    fn root_hint_subjects(&self) -> &[RootName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let refused = || Error::from(CertificateError::ApplicationVerificationFailure);
        verify(end_entity, &self.0, CertificatePurpose::Client, now).map_err(|_| refused())?;
        if common_name(end_entity).as_deref() == Some(FRONT_NAME) {
            Ok(ClientCertVerified::assertion())
        } else {
            Err(refused())
        }
    }

    signatures_of_tls13!();
}

/// Common name of a certificate's subject.
fn common_name(certificate: &CertificateDer<'_>) -> Option<String> {
    let (_, certificate) = x509_parser::parse_x509_certificate(certificate).ok()?;
    certificate.subject().iter_common_name().next()?.as_str().ok().map(str::to_owned)
}
