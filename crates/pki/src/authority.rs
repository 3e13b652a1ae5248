//! The four authorities. Each signs its own profiles and refuses the others'.
//!
//! An authority is a self-signed ECDSA P-256 certificate and its key, nothing else: no intermediates, no state.

use std::collections::BTreeSet;
use std::time::Duration;

use aws_lc_rs::rand;
use model::MachineId;
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, DistinguishedName, DnType,
    ExtendedKeyUsagePurpose, IsCa, Issuer, KeyIdMethod, KeyUsagePurpose, RevokedCertParams, SanType, SerialNumber,
};
use rustls::pki_types::{CertificateDer, UnixTime};
use time::OffsetDateTime;

use crate::key::{KeyDer, KeyError, PrivateKey, PublicKey};
use crate::profile::{AlternativeName, AuthorityKind, CertificateProfile, Usage};
use crate::tls::TlsIdentity;

/// Clocks of two machines may differ: an authority, and what it signs, is good from an hour before it was made.
const BACKDATE: Duration = Duration::from_secs(3600);
/// The life of an authority. The cluster's id derives from its key and nothing rotates it yet, so it outlives hardware.
const AUTHORITY: Duration = Duration::from_secs(20 * 365 * 24 * 3600);

/// Why a certificate could not be made.
#[derive(Debug, thiserror::Error)]
pub enum IssueError {
    /// A key could not be made or exported.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// No random bytes for the serial number.
    #[error("draw a serial number")]
    Random,
    /// The time given lies outside what a certificate can say.
    #[error("the time is outside what a certificate can say")]
    Time,
    /// The profile belongs to another authority.
    #[error("the {asked} authority does not sign what belongs to {owner}")]
    WrongAuthority {
        asked: AuthorityKind,
        /// The one whose profile it is.
        owner: AuthorityKind,
    },
    /// The authority's own time is over.
    #[error("the {0} authority has expired")]
    Expired(AuthorityKind),
    /// A name or the certificate could not be encoded.
    #[error("encode a certificate")]
    Encode(#[from] rcgen::Error),
}

/// Why a stored authority cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The key cannot be read.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The certificate cannot be read, or is none of an authority.
    #[error("the stored certificate is none of an authority")]
    Certificate,
    /// The certificate and the key are not of each other.
    #[error("the stored certificate and key do not belong together")]
    Mismatch,
    /// The certificate is that of another of the four authorities.
    #[error("the stored certificate is not the {0} authority's")]
    WrongKind(AuthorityKind),
}

/// A key with the certificate made for it.
#[derive(Debug)]
pub struct CertifiedKey {
    /// The certificate.
    pub certificate: CertificateDer<'static>,
    /// Private key of the certificate.
    pub key: PrivateKey,
}

impl CertifiedKey {
    /// Identity of whoever shows the certificate alone.
    #[must_use]
    pub fn identity(&self) -> TlsIdentity<'_> {
        TlsIdentity { chain: vec![self.certificate.clone()], key: &self.key }
    }
}

/// An authority that can sign.
#[derive(Debug)]
pub struct Authority {
    kind: AuthorityKind,
    certificate: CertificateDer<'static>,
    not_before: OffsetDateTime,
    not_after: u64,
    issuer: Issuer<'static, PrivateKey>,
}

impl Authority {
    /// A new authority with a fresh ECDSA P-256 key.
    ///
    /// # Errors
    /// [`IssueError`] when there is no randomness or `now` is out of range.
    pub fn create(kind: AuthorityKind, now: UnixTime) -> Result<Self, IssueError> {
        let key = PrivateKey::generate()?;
        let not_after = now.as_secs() + AUTHORITY.as_secs();
        let mut params = authority_params(kind, key.public());
        let not_before = instant(now.as_secs().saturating_sub(BACKDATE.as_secs()))?;
        (params.not_before, params.not_after) = (not_before, instant(not_after)?);
        params.serial_number = Some(serial()?);
        let certificate = params.self_signed(&key)?.into();
        Ok(Self { kind, certificate, not_before, not_after, issuer: Issuer::new(params, key) })
    }

    /// Takes up a stored authority.
    ///
    /// # Errors
    /// [`LoadError`] says what does not fit: the bytes, the pair, or the kind.
    pub fn load(kind: AuthorityKind, certificate: &[u8], pkcs8: &[u8]) -> Result<Self, LoadError> {
        let key = PrivateKey::from_pkcs8(pkcs8)?;
        let (rest, parsed) = x509_parser::parse_x509_certificate(certificate).map_err(|_| LoadError::Certificate)?;
        if !rest.is_empty() || !parsed.is_ca() {
            return Err(LoadError::Certificate);
        }
        if parsed.public_key().raw != key.public().spki() {
            return Err(LoadError::Mismatch);
        }
        let common_name = parsed.subject().iter_common_name().next().and_then(|name| name.as_str().ok());
        if common_name != Some(subject(kind, key.public()).as_str()) {
            return Err(LoadError::WrongKind(kind));
        }
        let not_before = parsed.validity().not_before.to_datetime();
        let not_after = u64::try_from(parsed.validity().not_after.timestamp()).map_err(|_| LoadError::Certificate)?;
        let certificate = CertificateDer::from(certificate.to_vec());
        let params = authority_params(kind, key.public());
        Ok(Self { kind, certificate, not_before, not_after, issuer: Issuer::new(params, key) })
    }

    /// Which of the four it is.
    #[must_use]
    pub const fn kind(&self) -> AuthorityKind {
        self.kind
    }

    /// Certificate of the authority itself.
    #[must_use]
    pub const fn certificate(&self) -> &CertificateDer<'static> {
        &self.certificate
    }

    /// Public key of the authority: the cluster's id derives from that of [`AuthorityKind::Cairn`].
    #[must_use]
    pub fn public(&self) -> &PublicKey {
        self.issuer.key().public()
    }

    /// Private key of the authority, for the data partition.
    ///
    /// # Errors
    /// [`KeyError::Export`].
    pub fn export_key(&self) -> Result<KeyDer, KeyError> {
        self.issuer.key().to_pkcs8()
    }

    /// A certificate of `profile` for a key that is already there. It is good from when the authority is: who signs may have a
    /// clock that is ahead of those who check.
    ///
    /// # Errors
    /// [`IssueError`]; the profile of another authority is refused.
    pub fn issue(
        &self,
        profile: &CertificateProfile<'_>,
        key: &PublicKey,
        now: UnixTime,
    ) -> Result<CertificateDer<'static>, IssueError> {
        let row = profile.row();
        if row.authority != self.kind {
            return Err(IssueError::WrongAuthority { asked: self.kind, owner: row.authority });
        }
        if now.as_secs() >= self.not_after {
            return Err(IssueError::Expired(self.kind));
        }
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        if let Some(organisation) = row.organisation {
            params.distinguished_name.push(DnType::OrganizationName, organisation);
        }
        params.distinguished_name.push(DnType::CommonName, row.common_name);
        params.not_before = self.not_before;
        params.not_after = instant((now.as_secs() + row.lifetime.as_secs()).min(self.not_after))?;
        params.serial_number = Some(row.serial.map_or_else(serial, |machine| Ok(serial_of(machine)))?);
        params.is_ca = IsCa::ExplicitNoCa;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = match row.usage {
            Usage::Server => vec![ExtendedKeyUsagePurpose::ServerAuth],
            Usage::Client => vec![ExtendedKeyUsagePurpose::ClientAuth],
            Usage::Both => vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth],
        };
        params.use_authority_key_identifier_extension = true;
        params.subject_alt_names = row.names.into_iter().map(alternative_name).collect::<Result<_, _>>()?;
        Ok(params.signed_by(key, &self.issuer)?.into())
    }

    /// A revocation list (RFC 5280, section 5; DER) of all that these machines hold of this authority: see [`crate::CertificateRow::serial`].
    /// It is good until the authority's end; a later one is made when others are revoked.
    ///
    /// # Errors
    /// [`IssueError`].
    pub fn revoke(&self, machines: &BTreeSet<MachineId>, now: UnixTime) -> Result<Vec<u8>, IssueError> {
        let this_update = instant(now.as_secs())?;
        let revoked = |machine: &MachineId| RevokedCertParams {
            serial_number: serial_of(*machine),
            revocation_time: this_update,
            reason_code: None,
            invalidity_date: None,
        };
        let list = CertificateRevocationListParams {
            this_update,
            next_update: instant(self.not_after)?,
            crl_number: now.as_secs().into(),
            issuing_distribution_point: None,
            revoked_certs: machines.iter().map(revoked).collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        Ok(list.signed_by(&self.issuer)?.der().to_vec())
    }

    /// A fresh ECDSA P-256 key with a certificate of `profile`.
    ///
    /// # Errors
    /// [`IssueError`].
    pub fn issue_with_key(&self, profile: &CertificateProfile<'_>, now: UnixTime) -> Result<CertifiedKey, IssueError> {
        let key = PrivateKey::generate()?;
        Ok(CertifiedKey { certificate: self.issue(profile, key.public(), now)?, key })
    }
}

/// The serial number of what is issued to a machine alone.
fn serial_of(machine: MachineId) -> SerialNumber {
    SerialNumber::from_slice(&machine.0)
}

/// The subject names the key too, so that an authority made anew is never mistaken for its predecessor.
fn subject(kind: AuthorityKind, key: &PublicKey) -> String {
    format!("cairn {kind} authority {}", &key.pin().to_string()[..16])
}

fn authority_params(kind: AuthorityKind, key: &PublicKey) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, subject(kind, key));
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params
}

/// 128 random bits (RFC 5280, section 4.1.2.2, allows 160).
fn serial() -> Result<SerialNumber, IssueError> {
    let mut bytes = [0; 16];
    rand::fill(&mut bytes).map_err(|_| IssueError::Random)?;
    Ok(SerialNumber::from_slice(&bytes))
}

fn instant(seconds: u64) -> Result<OffsetDateTime, IssueError> {
    let seconds = i64::try_from(seconds).map_err(|_| IssueError::Time)?;
    OffsetDateTime::from_unix_timestamp(seconds).map_err(|_| IssueError::Time)
}

fn alternative_name(name: AlternativeName) -> Result<SanType, rcgen::Error> {
    Ok(match name {
        AlternativeName::Dns(name) => SanType::DnsName(name.try_into()?),
        AlternativeName::Ip(address) => SanType::IpAddress(address.into()),
        AlternativeName::Uri(uri) => SanType::URI(uri.try_into()?),
    })
}
