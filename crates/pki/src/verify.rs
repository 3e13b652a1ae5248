//! Whether a certificate is good for a purpose, at a time, under one authority.
//!
//! Path building and signatures are webpki's; what is added here is that the extended key usage must be there, not
//! merely not forbid, and that there are no intermediates: every authority signs its leaves itself.

use std::time::Duration;

use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use webpki::{EndEntityCert, KeyUsage, anchor_from_trusted_cert, aws_lc_rs::ECDSA_P256_SHA256};
use x509_parser::extensions::GeneralName;

use crate::key::{KeyError, PublicKey};

/// Purpose that a certificate is shown for.
#[derive(Debug, Clone, Copy)]
pub enum CertificatePurpose<'a> {
    /// To be the server of this DNS name or IP address, exactly.
    Server(&'a str),
    /// To be a client; who it is stands in its subject.
    Client,
}

/// Why a certificate is refused.
#[derive(Debug, thiserror::Error)]
pub enum VerifyError {
    /// The authority's certificate cannot be read.
    #[error("read the certificate of the authority")]
    Authority(#[source] webpki::Error),
    /// The certificate cannot be read.
    #[error("read the certificate")]
    Form(#[source] webpki::Error),
    /// Not signed by this authority, not for this use, or not at this time.
    #[error("check the certificate under its authority")]
    Path(#[source] webpki::Error),
    /// The purpose names no DNS name or IP address.
    #[error("the name to check is no DNS name")]
    Name,
    /// Issued for another name.
    #[error("check the name in the certificate")]
    WrongName(#[source] webpki::Error),
    /// A machine's name that is not made of the keys that were shown.
    #[error("the machine's name is not that of its key and its cluster's")]
    OtherKey,
    /// A machine that was no coordinator when its certificate was issued.
    #[error("the machine is no coordinator")]
    Role,
}

/// id-kp-serverAuth, 1.3.6.1.5.5.7.3.1 (RFC 5280, section 4.2.1.12), without tag and length.
const SERVER_AUTH: &[u8] = &[0x2b, 0x06, 0x01, 0x05, 0x05, 0x07, 0x03, 0x01];
/// id-kp-clientAuth, 1.3.6.1.5.5.7.3.2.
const CLIENT_AUTH: &[u8] = &[0x2b, 0x06, 0x01, 0x05, 0x05, 0x07, 0x03, 0x02];

/// Checks that `leaf` was signed by `authority` and serves `purpose` at `now`.
///
/// # Errors
/// [`VerifyError`] says which check refused it.
pub fn verify(
    leaf: &CertificateDer<'_>,
    authority: &CertificateDer<'_>,
    purpose: CertificatePurpose<'_>,
    now: UnixTime,
) -> Result<(), VerifyError> {
    let anchor = anchor_from_trusted_cert(authority).map_err(VerifyError::Authority)?;
    let end_entity = EndEntityCert::try_from(leaf).map_err(VerifyError::Form)?;
    let usage = KeyUsage::required(match purpose {
        CertificatePurpose::Server(_) => SERVER_AUTH,
        CertificatePurpose::Client => CLIENT_AUTH,
    });
    end_entity
        .verify_for_usage(&[ECDSA_P256_SHA256], &[anchor], &[], now, usage, None, None)
        .map_err(VerifyError::Path)?;
    match purpose {
        CertificatePurpose::Server(name) => {
            let name = ServerName::try_from(name).map_err(|_| VerifyError::Name)?;
            end_entity.verify_is_valid_for_subject_name(&name).map_err(VerifyError::WrongName)
        }
        CertificatePurpose::Client => Ok(()),
    }
}

/// From when on a certificate holds: the time to check it at where dates do not count.
///
/// # Errors
/// [`VerifyError::Form`] when it cannot be read.
pub(crate) fn not_before(certificate: &CertificateDer<'_>) -> Result<UnixTime, VerifyError> {
    let (_, parsed) = x509_parser::parse_x509_certificate(certificate).map_err(|_| unreadable())?;
    let seconds = u64::try_from(parsed.validity().not_before.timestamp()).map_err(|_| unreadable())?;
    Ok(UnixTime::since_unix_epoch(Duration::from_secs(seconds)))
}

/// The URIs among a certificate's alternative names.
///
/// # Errors
/// [`VerifyError::Form`] when it cannot be read.
pub(crate) fn uris(certificate: &CertificateDer<'_>) -> Result<Vec<String>, VerifyError> {
    let (_, parsed) = x509_parser::parse_x509_certificate(certificate).map_err(|_| unreadable())?;
    let names = parsed.subject_alternative_name().map_err(|_| unreadable())?;
    let names = names.map(|extension| extension.value.general_names.as_slice()).unwrap_or_default();
    let uri = |name: &GeneralName<'_>| if let GeneralName::URI(uri) = name { Some((*uri).to_owned()) } else { None };
    Ok(names.iter().filter_map(uri).collect())
}

const fn unreadable() -> VerifyError {
    VerifyError::Form(webpki::Error::BadDer)
}

/// The public key a certificate speaks for. Says nothing about whether the certificate is good.
///
/// # Errors
/// [`KeyError::Public`] when it cannot be read or its key is of another kind.
pub fn public_key_of(certificate: &CertificateDer<'_>) -> Result<PublicKey, KeyError> {
    let (rest, parsed) = x509_parser::parse_x509_certificate(certificate).map_err(|_| KeyError::Public)?;
    if !rest.is_empty() {
        return Err(KeyError::Public);
    }
    PublicKey::from_spki(parsed.public_key().raw)
}
