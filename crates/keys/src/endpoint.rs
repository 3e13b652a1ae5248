//! Where somebody may be reached: a host and a port, in one spelling. Must never resolve or connect.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

/// A host (name, IPv4 address, or IPv6 address in brackets) and a port: `host:port`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Endpoint(String);

/// How many endpoints one machine may name: more than it has links, and few enough to store for thousands of machines.
pub const MOST_ENDPOINTS: usize = 8;

/// Why a text is no endpoint, or a list of them none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadEndpoint {
    /// No colon between host and port.
    #[error("an endpoint is a host and a port: host:port")]
    Form,
    /// Not a name, IPv4 address or IPv6 address in brackets.
    #[error("an endpoint's host is a name in lower case, an IPv4 address, or an IPv6 address in brackets")]
    Host,
    /// Not 1 to 65535.
    #[error("an endpoint's port is 1 to 65535")]
    Port,
    /// The same one again.
    #[error("an endpoint is named twice")]
    Twice,
    /// A name, where only addresses are taken.
    #[error("a machine's endpoints are addresses, and a name is not")]
    Name,
    /// More than [`MOST_ENDPOINTS`].
    #[error("at most {MOST_ENDPOINTS} endpoints are named, not {0}")]
    Many(usize),
}

impl Endpoint {
    /// Reads one.
    ///
    /// # Errors
    /// [`BadEndpoint`] when it is none, or not in its one spelling.
    pub fn read(text: &str) -> Result<Self, BadEndpoint> {
        let (host, port) = text.rsplit_once(':').ok_or(BadEndpoint::Form)?;
        let number: u16 = port.parse().map_err(|_| BadEndpoint::Port)?;
        if number == 0 || number.to_string() != port {
            return Err(BadEndpoint::Port);
        }
        let fits = match host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            Some(inner) => inner.parse::<Ipv6Addr>().is_ok_and(|address| address.to_string() == inner),
            // What looks like an address is one: the last label of a name is not a number (RFC 1123, section 2.1).
            None if host.rsplit('.').next().is_some_and(is_number) => host.parse::<Ipv4Addr>().is_ok(),
            None => is_name(host),
        };
        if fits { Ok(Self(text.to_owned())) } else { Err(BadEndpoint::Host) }
    }

    /// The host, as the endpoint spells it.
    #[must_use]
    pub fn host(&self) -> &str {
        self.0.rsplit_once(':').map_or(&self.0, |(host, _)| host)
    }

    /// Another port of the same host.
    ///
    /// # Panics
    /// When `port` is 0.
    #[must_use]
    pub fn with_port(&self, port: u16) -> Self {
        assert_ne!(port, 0, "nobody listens there");
        Self(format!("{}:{port}", self.host()))
    }

    /// Reads a list, in order of preference; it may be empty.
    ///
    /// # Errors
    /// [`BadEndpoint`] when there are too many, one twice, or one that is none.
    pub fn read_all(texts: &[String]) -> Result<Vec<Self>, BadEndpoint> {
        if texts.len() > MOST_ENDPOINTS {
            return Err(BadEndpoint::Many(texts.len()));
        }
        let mut endpoints: Vec<Self> = Vec::new();
        for text in texts {
            let endpoint = Self::read(text)?;
            if endpoints.contains(&endpoint) {
                return Err(BadEndpoint::Twice);
            }
            endpoints.push(endpoint);
        }
        Ok(endpoints)
    }

    /// Judges where a machine says that it is reached: by few addresses. A name would have to be looked up by all others, and may be ten
    /// times as long.
    ///
    /// # Errors
    /// [`BadEndpoint`] when there are too many, or names.
    pub fn judge_of_machine(endpoints: &[Self]) -> Result<(), BadEndpoint> {
        if endpoints.len() > MOST_ENDPOINTS {
            return Err(BadEndpoint::Many(endpoints.len()));
        }
        if endpoints.iter().all(|endpoint| endpoint.address().is_some()) { Ok(()) } else { Err(BadEndpoint::Name) }
    }

    /// The address and port; none where the host is a name.
    #[must_use]
    pub fn address(&self) -> Option<SocketAddr> {
        self.0.parse().ok()
    }

    /// Text of the endpoint, `host:port`.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The texts of a list, to be stored.
#[must_use]
pub fn texts(endpoints: &[Endpoint]) -> Vec<String> {
    endpoints.iter().map(|endpoint| endpoint.0.clone()).collect()
}

fn is_number(label: &str) -> bool {
    !label.is_empty() && label.bytes().all(|byte| byte.is_ascii_digit())
}

/// A host name in lower case (RFC 1123, section 2.1).
fn is_name(host: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let label = |label: &str| {
        (1..=63).contains(&label.len()) && label.bytes().all(inner) && !label.starts_with('-') && !label.ends_with('-')
    };
    host.len() <= 253 && host.split('.').all(label)
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_has_one_spelling() {
        for good in [
            "192.0.2.1:7836",
            "a:1",
            "node-1.example.org:65535",
            "[2001:db8::1]:7836",
            "[::]:1",
            "1a.b:2",
            "node1:7836",
        ] {
            assert_eq!(Endpoint::read(good).map(|endpoint| endpoint.to_string()), Ok(good.to_owned()));
        }
        for (bad, why) in [
            ("", BadEndpoint::Form),
            ("192.0.2.1", BadEndpoint::Form),
            ("192.0.2.1:", BadEndpoint::Port),
            ("192.0.2.1:0", BadEndpoint::Port),
            ("192.0.2.1:+1", BadEndpoint::Port),
            ("192.0.2.1:07836", BadEndpoint::Port),
            ("192.0.2.1:65536", BadEndpoint::Port),
            (":7836", BadEndpoint::Host),
            ("192.0.2:7836", BadEndpoint::Host),
            ("192.0.2.256:7836", BadEndpoint::Host),
            ("Node:7836", BadEndpoint::Host),
            ("a..b:7836", BadEndpoint::Host),
            ("-a:7836", BadEndpoint::Host),
            ("a b:7836", BadEndpoint::Host),
            ("2001:db8::1:7836", BadEndpoint::Host),
            ("[2001:DB8::1]:7836", BadEndpoint::Host),
            ("[192.0.2.1]:7836", BadEndpoint::Host),
        ] {
            assert_eq!(Endpoint::read(bad), Err(why), "{bad}");
        }
        let name = |lengths: &[usize]| lengths.iter().map(|length| "a".repeat(*length)).collect::<Vec<_>>().join(".");
        for (lengths, fits) in
            [(&[63][..], true), (&[64], false), (&[63, 63, 63, 61], true), (&[63, 63, 63, 62], false)]
        {
            assert_eq!(Endpoint::read(&format!("{}:1", name(lengths))).is_ok(), fits, "{lengths:?}");
        }
        let many: Vec<String> = (1..=9).map(|port| format!("a:{port}")).collect();
        assert_eq!(Endpoint::read_all(&many), Err(BadEndpoint::Many(9)));
        assert_eq!(Endpoint::read_all(&many[..8]).map(|all| texts(&all)), Ok(many[..8].to_vec()));
        assert_eq!(Endpoint::read_all(&["a:1".into(), "a:1".into()]), Err(BadEndpoint::Twice));
    }

    /// Proves: A6
    #[test]
    fn a_machine_is_reached_by_few_addresses_and_no_names() {
        let read = |texts: &[&str]| texts.iter().map(|text| Endpoint::read(text).expect("one")).collect::<Vec<_>>();
        let good = read(&["192.0.2.1:7838", "[2001:db8::1]:7838"]);
        assert!(good.iter().all(|endpoint| endpoint.address().is_some_and(|at| at.to_string() == endpoint.as_str())));
        assert_eq!(Endpoint::judge_of_machine(&good), Ok(()));
        assert_eq!(Endpoint::judge_of_machine(&[]), Ok(()));
        let long = format!("{}.example:7838", "a".repeat(63));
        for name in ["a:1", &long] {
            assert_eq!(Endpoint::judge_of_machine(&read(&["192.0.2.1:7838", name])), Err(BadEndpoint::Name), "{name}");
        }
        let many: Vec<String> = (1..=9).map(|n| format!("192.0.2.{n}:7838")).collect();
        let many = read(&many.iter().map(String::as_str).collect::<Vec<_>>());
        assert_eq!(Endpoint::judge_of_machine(&many[..8]), Ok(()));
        assert_eq!(Endpoint::judge_of_machine(&many), Err(BadEndpoint::Many(9)));
    }
}
