//! A registry's record: where its images are pulled from besides itself, and which authorities its certificates may have. No
//! credentials: those are in the secrets of whoever pulls.
//!
//! ```text
//! message Registry { uint32 version = 1; string host = 2; repeated string mirrors = 3; repeated bytes authorities = 4; }
//! ```

use std::collections::BTreeSet;

use model::{MirrorUrl, RegistryHost};
use prost::Message as _;

use super::{BadRecord, VERSION, decode};

/// Most registries of a cluster.
pub const MOST_REGISTRIES: usize = 64;
/// Most bytes of all registries' records together: each worker is told all of them at once.
pub const MOST_REGISTRIES_BYTES: usize = 1 << 20;
/// Most mirrors of a registry.
pub const MOST_MIRRORS: usize = 8;
/// Most bytes of a registry's certificates together; with all mirrors these are a record, and a request of an owner.
pub const MOST_AUTHORITIES_BYTES: usize = 48 << 10;

/// A registry's record: mirrors, and certificates of authorities.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegistryRecord {
    host: RegistryHost,
    mirrors: Vec<MirrorUrl>,
    authorities: Vec<Vec<u8>>,
}

/// Reason why a registry cannot be kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadRegistry {
    /// The name is none.
    #[error("its host cannot be used")]
    Host,
    /// A URL is none.
    #[error("a mirror cannot be used")]
    Mirror,
    /// Pulled from itself by the certificates of the public web, as without a record.
    #[error("it has neither a mirror nor a certificate")]
    Nothing,
    /// Too many mirrors.
    #[error("it has more than {MOST_MIRRORS} mirrors")]
    Mirrors,
    /// A mirror that is asked twice.
    #[error("it names a mirror twice")]
    Twice,
    /// No certificate, or too many.
    #[error("its certificates are empty, or have more than {MOST_AUTHORITIES_BYTES} bytes")]
    Authorities,
}

impl RegistryRecord {
    /// Registry with mirrors in the order in which they are asked, and certificates in DER, whose form nobody has looked at.
    ///
    /// # Errors
    /// [`BadRegistry`] names what does not go.
    pub fn new(host: RegistryHost, mirrors: Vec<MirrorUrl>, authorities: Vec<Vec<u8>>) -> Result<Self, BadRegistry> {
        if mirrors.is_empty() && authorities.is_empty() {
            return Err(BadRegistry::Nothing);
        }
        if mirrors.len() > MOST_MIRRORS {
            return Err(BadRegistry::Mirrors);
        }
        if mirrors.iter().collect::<BTreeSet<_>>().len() < mirrors.len() {
            return Err(BadRegistry::Twice);
        }
        // Each costs some bytes of the record besides its own.
        let bytes: usize = authorities.iter().map(|certificate| certificate.len() + 8).sum();
        if bytes > MOST_AUTHORITIES_BYTES || authorities.iter().any(Vec::is_empty) {
            return Err(BadRegistry::Authorities);
        }
        Ok(Self { host, mirrors, authorities })
    }

    /// Name by which images' names begin.
    #[must_use]
    pub const fn host(&self) -> RegistryHost {
        self.host
    }

    /// Mirrors, asked in this order before the registry itself.
    #[must_use]
    pub fn mirrors(&self) -> &[MirrorUrl] {
        &self.mirrors
    }

    /// Certificates of authorities, in DER; beside those of the public web they prove the registry and its mirrors.
    #[must_use]
    pub fn authorities(&self) -> &[Vec<u8>] {
        &self.authorities
    }

    /// The record's bytes, as etcd keeps them.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        self.to_wire().encode_to_vec()
    }

    /// The inverse of [`Self::encode`].
    ///
    /// # Errors
    /// [`BadRecord`] names what makes no sense.
    pub fn decode(bytes: &[u8]) -> Result<Self, BadRecord> {
        Self::read(decode(bytes, &REGISTRY)?)
    }

    pub(crate) fn to_wire(&self) -> RegistryWire {
        RegistryWire {
            version: VERSION,
            host: self.host.to_string(),
            mirrors: self.mirrors.iter().map(ToString::to_string).collect(),
            authorities: self.authorities.clone(),
        }
    }

    pub(crate) fn read(wire: RegistryWire) -> Result<Self, BadRecord> {
        let host = RegistryHost::read(&wire.host).map_err(|_| BadRegistry::Host)?;
        let mirrors = wire.mirrors.iter().map(|url| MirrorUrl::read(url)).collect::<Result<_, _>>();
        Ok(Self::new(host, mirrors.map_err(|_| BadRegistry::Mirror)?, wire.authorities)?)
    }
}

formats::strict_message! {
    struct RegistryWire, REGISTRY = "Registry" {
        1 required u32 version;
        2 required text host;
        3 repeated text mirrors;
        4 repeated bytes authorities;
    }
}
