//! Certificates: issues and verifies them, given the time; and the TLS rules of the machine's own APIs.
//!
//! Owns which certificate says what (`profile`), the four authorities that share nothing (`authority`), and who is
//! believed (`client_auth`, `server_auth`, `danger`). Never reads a clock, a file or a socket; never stores a key.
//!
//! ```text
//!   Authority::create(kind, now) ── issue(profile, public key, now) ──► certificate ── verify(…, now) ──► accepted
//!        │  to_pkcs8                     ▲
//!        └─► data partition              └ PrivateKey (fresh, or the machine's seed), or CertificateRequest (owner)
//! ```
//!
//! # Invariants
//! - A machine is believed by the key that its name is made of; a caller that does not name it learns nothing of it:
//!   `crates/pki/tests/handshakes.rs`
//! - A certificate of one authority is worth nothing to the other two: `crates/pki/tests/profiles.rs`

mod anchor;
mod authority;
pub mod client_auth;
pub mod danger;
mod key;
mod life;
mod pem;
mod profile;
mod request;
pub mod server_auth;
mod tls;
mod verify;

pub use anchor::{BadAuthority, judge_authority};
pub use authority::{Authority, CertifiedKey, IssueError, LoadError};
pub use key::{KeyDer, KeyError, PrivateKey, PublicKey, SpkiPin};
#[cfg(feature = "faults")]
pub use life::inject_service_life;
pub use life::service_life;
pub use pem::{certificate_pem, private_key_pem, public_key_pem};
pub use profile::{
    APISERVERS, AlternativeName, AuthorityKind, COORDINATORS, CertificateProfile, CertificateRow, ETCD_KUBERNETES,
    ETCD_PEER_NAME, ETCD_ROOT, FRONT_NAME, METRICS_NAME, OWNERS, PROXIES, RESOLVERS, Usage, cluster_tls_name,
    machine_tls_name,
};
pub use request::{BadRequest, accept_request, make_request};
pub use rustls::pki_types::{CertificateDer, CertificateSigningRequestDer, UnixTime};
pub use tls::{ClientIdentity, TlsError, TlsIdentity};
pub use verify::{CertificatePurpose, VerifyError, public_key_of, verify};
