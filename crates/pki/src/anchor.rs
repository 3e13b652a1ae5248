//! Certificates of others' authorities, which services of the machine are to believe. Says whether bytes are one; believes none.

use rustls::pki_types::CertificateDer;

/// Bytes that are no certificate (X.509, DER).
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("it is no X.509 certificate")]
pub struct BadAuthority;

/// Judges whether bytes are a certificate that others' can be proved by.
///
/// # Errors
/// [`BadAuthority`] when they are none.
pub fn judge_authority(certificate: &[u8]) -> Result<(), BadAuthority> {
    match webpki::anchor_from_trusted_cert(&CertificateDer::from(certificate)) {
        Ok(_) => Ok(()),
        Err(_) => Err(BadAuthority),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Authority, AuthorityKind, UnixTime};

    /// Proves: W5
    #[test]
    fn a_certificate_is_told_from_other_bytes() {
        let now = UnixTime::since_unix_epoch(std::time::Duration::from_secs(1_800_000_000));
        let authority = Authority::create(AuthorityKind::Kubernetes, now).expect("an authority");
        let good = authority.certificate().as_ref();
        assert_eq!(judge_authority(good), Ok(()));
        let longer = [good, &[0]].concat();
        for bad in [&[][..], &[1, 2, 3], &good[..good.len() - 1], &longer, b"-----BEGIN CERTIFICATE-----"] {
            assert_eq!(judge_authority(bad), Err(BadAuthority));
        }
    }
}
