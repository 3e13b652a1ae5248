//! Requests of owners about registries of container images: one is set, one is removed, all are listed.

use cluster::record::{BadRegistry, RegistryRecord};
use keys::derive::sha256;
use model::{MirrorUrl, RegistryHost};

use crate::field_error::fixed;
use crate::{FieldError, ListPage, Problem, UnixMillis, wire};

/// Registry that owners said something of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedRegistry {
    /// Name of the registry.
    pub host: RegistryHost,
    /// Mirrors in the order in which they are asked.
    pub mirrors: Vec<MirrorUrl>,
    /// SHA-256 of each authority's certificate.
    pub authorities: Vec<[u8; 32]>,
}

impl ListedRegistry {
    /// The registry as it is listed.
    #[must_use]
    pub fn of(registry: &RegistryRecord) -> Self {
        Self {
            host: registry.host(),
            mirrors: registry.mirrors().to_vec(),
            authorities: registry.authorities().iter().map(|certificate| sha256(&[certificate])).collect(),
        }
    }
}

impl From<RegistryRecord> for wire::SetRegistryRequest {
    fn from(registry: RegistryRecord) -> Self {
        Self {
            host: registry.host().to_string(),
            mirrors: registry.mirrors().iter().map(ToString::to_string).collect(),
            authorities: registry.authorities().to_vec(),
        }
    }
}

impl TryFrom<wire::SetRegistryRequest> for RegistryRecord {
    type Error = FieldError;

    fn try_from(request: wire::SetRegistryRequest) -> Result<Self, FieldError> {
        let wire::SetRegistryRequest { host, mirrors, authorities } = request;
        Self::new(read_host(&host)?, read_mirrors(&mirrors)?, authorities).map_err(|why| {
            let field = match why {
                BadRegistry::Authorities => "authorities",
                BadRegistry::Host => "host",
                BadRegistry::Mirror | BadRegistry::Nothing | BadRegistry::Mirrors | BadRegistry::Twice => "mirrors",
            };
            FieldError::new(field, Problem::Range)
        })
    }
}

impl From<RegistryHost> for wire::RemoveRegistryRequest {
    fn from(host: RegistryHost) -> Self {
        Self { host: host.to_string() }
    }
}

impl TryFrom<wire::RemoveRegistryRequest> for RegistryHost {
    type Error = FieldError;

    fn try_from(request: wire::RemoveRegistryRequest) -> Result<Self, FieldError> {
        read_host(&request.host)
    }
}

impl From<ListPage<ListedRegistry>> for wire::ListRegistriesResponse {
    fn from(listed: ListPage<ListedRegistry>) -> Self {
        let row = |ListedRegistry { host, mirrors, authorities }: ListedRegistry| wire::ListedRegistry {
            host: host.to_string(),
            mirrors: mirrors.iter().map(ToString::to_string).collect(),
            authority_sha256: authorities.into_iter().map(Vec::from).collect(),
        };
        let old_since_unix_ms = listed.old_since.map(|at| at.0);
        Self { old_since_unix_ms, registries: listed.rows.into_iter().map(row).collect() }
    }
}

impl TryFrom<wire::ListRegistriesResponse> for ListPage<ListedRegistry> {
    type Error = FieldError;

    fn try_from(listed: wire::ListRegistriesResponse) -> Result<Self, FieldError> {
        let row = |row: wire::ListedRegistry| {
            let authorities = row.authority_sha256.iter().map(|hash| fixed("authority_sha256", hash));
            Ok(ListedRegistry {
                host: read_host(&row.host)?,
                mirrors: read_mirrors(&row.mirrors)?,
                authorities: authorities.collect::<Result<_, FieldError>>()?,
            })
        };
        let rows = listed.registries.into_iter().map(row).collect::<Result<_, FieldError>>()?;
        Ok(Self { old_since: listed.old_since_unix_ms.map(UnixMillis), rows })
    }
}

fn read_host(text: &str) -> Result<RegistryHost, FieldError> {
    RegistryHost::read(text).map_err(|_| FieldError::new("host", Problem::Unusable))
}

fn read_mirrors(texts: &[String]) -> Result<Vec<MirrorUrl>, FieldError> {
    let read = texts.iter().map(|text| MirrorUrl::read(text)).collect::<Result<_, _>>();
    read.map_err(|_| FieldError::new("mirrors", Problem::Unusable))
}

#[cfg(test)]
mod tests {
    use cluster::record::{MOST_AUTHORITIES_BYTES, MOST_MIRRORS};
    use prost::Message as _;

    use super::*;
    use crate::limits;

    /// Proves: W5
    #[test]
    fn registries_cross_the_wire_as_they_are() {
        let registry = sim::cast::registry(1, 2);
        assert_eq!(wire::SetRegistryRequest::from(registry.clone()).try_into(), Ok(registry.clone()));
        assert_eq!(wire::RemoveRegistryRequest::from(registry.host()).try_into(), Ok(registry.host()));
        for old_since in [None, Some(UnixMillis(7))] {
            let rows = [1, 2].map(|n| ListedRegistry::of(&sim::cast::registry(n, n))).to_vec();
            let listed = ListPage { old_since, rows };
            assert_eq!(wire::ListRegistriesResponse::from(listed.clone()).try_into(), Ok(listed));
        }
    }

    /// Proves: W5
    #[test]
    fn a_registry_that_cannot_be_used_is_refused_by_field() {
        let refused = |edit: fn(&mut wire::SetRegistryRequest)| {
            let mut request = wire::SetRegistryRequest::from(sim::cast::registry(1, 1));
            edit(&mut request);
            RegistryRecord::try_from(request).expect_err("refused").field
        };
        for (edit, field) in [
            ((|it| it.host = "Ghcr.io".to_owned()) as fn(&mut wire::SetRegistryRequest), "host"),
            (|it| it.mirrors[0].push('/'), "mirrors"),
            (|it| it.mirrors.push(it.mirrors[0].clone()), "mirrors"),
            (|it| (it.mirrors, it.authorities) = (vec![], vec![]), "mirrors"),
            (|it| it.authorities.push(vec![]), "authorities"),
        ] {
            assert_eq!(refused(edit), field);
        }
        let listed = wire::ListedRegistry { authority_sha256: vec![vec![1; 31]], ..Default::default() };
        let listed = wire::ListedRegistry { host: "ghcr.io".to_owned(), ..listed };
        let listed = wire::ListRegistriesResponse { old_since_unix_ms: None, registries: vec![listed] };
        assert_eq!(ListPage::<ListedRegistry>::try_from(listed).expect_err("short").field, "authority_sha256");
    }

    /// Proves: W5
    #[test]
    fn the_largest_registry_is_one_request() {
        let host = "a.".repeat(63) + "io";
        let mirrors = (0..MOST_MIRRORS).map(|n| format!("https://a.b/{n}{}", "c".repeat(243))).collect();
        let authorities = vec![vec![1; MOST_AUTHORITIES_BYTES - 8]];
        let request = wire::SetRegistryRequest { host, mirrors, authorities };
        assert!(RegistryRecord::try_from(request.clone()).is_ok());
        assert!(request.encoded_len() <= limits::REQUEST_BYTES, "{}", request.encoded_len());
    }
}
