//! Certificate signing requests (RFC 2986): a person asks for a kubeconfig without ever sending the private key.
//!
//! Only the public key of a request is used; the names and extensions it asks for are ignored on purpose.

use rcgen::{CertificateParams, DistinguishedName};
use rustls::pki_types::CertificateSigningRequestDer;
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::prelude::FromDer as _;

use crate::key::{KeyError, PrivateKey, PublicKey};

/// Why a request is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadRequest {
    /// No request, or bytes behind it.
    #[error("not a certificate signing request")]
    Form,
    /// An algorithm that is not in use here.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The sender has not shown that it holds the private key.
    #[error("the signature of the certificate signing request does not hold")]
    Signature,
    /// The request could not be made.
    #[error("make a certificate signing request")]
    Make,
}

/// A request that proves possession of `key` and asks for nothing else.
///
/// # Errors
/// [`BadRequest::Make`].
pub fn make_request(key: &PrivateKey) -> Result<CertificateSigningRequestDer<'static>, BadRequest> {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.serialize_request(key).map(Into::into).map_err(|_| BadRequest::Make)
}

/// The public key of a request whose signature holds. The rest of the request is not looked at.
///
/// # Errors
/// [`BadRequest`] says what is wrong with it.
pub fn accept_request(untrusted: &[u8]) -> Result<PublicKey, BadRequest> {
    let (rest, request) = X509CertificationRequest::from_der(untrusted).map_err(|_| BadRequest::Form)?;
    if !rest.is_empty() {
        return Err(BadRequest::Form);
    }
    let info = &request.certification_request_info;
    let key = PublicKey::from_spki(info.subject_pki.raw)?;
    if key.signed(info.raw, &request.signature_value.data) { Ok(key) } else { Err(BadRequest::Signature) }
}

#[cfg(test)]
mod tests {
    use model::Secret;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_request_proves_possession_and_a_changed_one_does_not() {
        for key in [PrivateKey::generate().unwrap(), PrivateKey::ed25519(&Secret::take(&mut [3; 32])).unwrap()] {
            let request = make_request(&key).unwrap();
            assert_eq!(accept_request(&request), Ok(key.public().clone()));
            // What the signature covers, and the signature; the outer algorithm is not read.
            let body = X509CertificationRequest::from_der(&request).unwrap().1.certification_request_info.raw.len();
            for position in (3..body).chain(request.len() - 60..request.len()) {
                let mut changed = request.to_vec();
                changed[position] ^= 0x01;
                assert_ne!(accept_request(&changed), Ok(key.public().clone()), "byte {position}");
            }
            let longer = [&request[..], &[0]].concat();
            assert_eq!(accept_request(&longer), Err(BadRequest::Form));
        }
    }

    #[test]
    fn another_algorithm_is_refused() {
        let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P384_SHA384).unwrap();
        let request = CertificateParams::default().serialize_request(&key).unwrap();
        assert_eq!(accept_request(request.der()), Err(BadRequest::Key(KeyError::Public)));
    }

    proptest! {
        #[test]
        fn no_bytes_panic_the_reader(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            prop_assert!(accept_request(&bytes).is_err());
        }
    }
}
