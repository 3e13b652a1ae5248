//! Certificates that somebody shows, and requests for one.

use std::time::Duration;

use model::ClusterId;
use pki::client_auth::{Owners, Who, member};
use pki::server_auth::verify_member;
use pki::{CertificateDer, CertificatePurpose, UnixTime};

use crate::{ParseVerdict, outcome};

/// A certificate that somebody shows: it makes nobody an owner or, signed by itself, a member.
pub fn shown(bytes: &[u8]) -> ParseVerdict {
    let shown = [CertificateDer::from(bytes)];
    let [leaf] = &shown;
    let key = pki::public_key_of(leaf);
    let who = Owners::new(vec![]).who(Some(&shown));
    assert!(!matches!(who, Ok(Who::Owner(_) | Who::User(..))), "an owner or a user whom nobody named");
    assert!(member(&shown).is_err() || key.is_ok(), "a member without a key");
    let at = UnixTime::since_unix_epoch(Duration::from_secs(1_800_000_000));
    let _ = pki::verify(leaf, leaf, CertificatePurpose::Client, at);
    if let Ok(key) = &key {
        let verified = verify_member(leaf, leaf, ClusterId([1; 16]), key.pin(), key);
        assert!(verified.is_err(), "a member by its own word");
    }
    outcome(&key)
}

/// A request for a certificate.
pub fn request(bytes: &[u8]) -> ParseVerdict {
    outcome(&pki::accept_request(bytes))
}
