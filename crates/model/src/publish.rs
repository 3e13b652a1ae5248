//! Ports of a machine's uplinks that owners open: how one is called, and whose services answer there.

use std::fmt;
use std::str::FromStr;

/// Protocol whose ports can be opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PortProtocol {
    Tcp,
    Udp,
}

/// Port of an uplink: `443/tcp`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UplinkPort {
    /// Number from 1.
    number: u16,
    protocol: PortProtocol,
}

/// Text that names no port.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadUplinkPort {
    /// Several ports with a hyphen between them.
    #[error("`{0}` is a range of ports, and each port is named by itself: 8000,8001/tcp")]
    Range(String),
    /// Protocol whose ports no uplink opens.
    #[error("`{0}` is neither tcp nor udp")]
    Protocol(String),
    /// No protocol behind the port.
    #[error("`{0}` names no protocol: {0}/tcp or {0}/udp")]
    NoProtocol(String),
    /// No port at all.
    #[error("`{0}` is no port from 1 to 65535")]
    Number(String),
}

/// Number of a rule that publishes ports: that of the change that made it, so no two rules ever have the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PublishId(pub u64);

/// Name of a namespace of Kubernetes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NamespaceName(String);

/// Text that names no namespace (RFC 1123, a label).
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a namespace's name has 1 to 63 of a-z, 0-9 and hyphens, none of them at an end")]
pub struct BadNamespaceName;

impl NamespaceName {
    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for NamespaceName {
    type Err = BadNamespaceName;

    fn from_str(text: &str) -> Result<Self, BadNamespaceName> {
        let fits = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-');
        let is_name = (1..=63).contains(&text.len()) && text.bytes().all(fits);
        let has_hyphen = text.starts_with('-') || text.ends_with('-');
        if is_name && !has_hyphen { Ok(Self(text.to_owned())) } else { Err(BadNamespaceName) }
    }
}

impl fmt::Display for NamespaceName {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.pad(&self.0)
    }
}

impl PortProtocol {
    /// Word for the protocol.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
        }
    }

    /// Protocol of this word.
    #[must_use]
    pub fn of_word(word: &str) -> Option<Self> {
        [Self::Tcp, Self::Udp].into_iter().find(|it| it.word() == word)
    }
}

impl UplinkPort {
    /// Port of a protocol; none for 0, which is no port.
    #[must_use]
    pub const fn new(protocol: PortProtocol, number: u16) -> Option<Self> {
        if number == 0 { None } else { Some(Self { number, protocol }) }
    }

    /// Number of the port.
    #[must_use]
    pub const fn number(self) -> u16 {
        self.number
    }

    /// Protocol of the port.
    #[must_use]
    pub const fn protocol(self) -> PortProtocol {
        self.protocol
    }

    /// Ports as people list them: `80,443/tcp`, `53/tcp,53/udp`. A port without a protocol has that of the next one.
    ///
    /// # Errors
    /// [`BadUplinkPort`] names the first that is none.
    pub fn read_all(text: &str) -> Result<Vec<Self>, BadUplinkPort> {
        let mut ports = Vec::new();
        let mut protocol = None;
        for item in text.split(',').rev() {
            let (number, behind) = item.split_once('/').map_or((item, None), |(number, word)| (number, Some(word)));
            if number.contains(['-', ':']) {
                return Err(BadUplinkPort::Range(start(number)));
            }
            if let Some(word) = behind {
                let known = PortProtocol::of_word(word);
                protocol = Some(known.ok_or_else(|| BadUplinkPort::Protocol(start(word)))?);
            }
            let bad = || BadUplinkPort::Number(start(number));
            let read: u16 = number.parse().map_err(|_| bad())?;
            if read.to_string() != number {
                return Err(bad());
            }
            let protocol = protocol.ok_or_else(|| BadUplinkPort::NoProtocol(start(number)))?;
            ports.push(Self::new(protocol, read).ok_or_else(bad)?);
        }
        ports.reverse();
        Ok(ports)
    }
}

impl FromStr for UplinkPort {
    type Err = BadUplinkPort;

    fn from_str(text: &str) -> Result<Self, BadUplinkPort> {
        match Self::read_all(text)?[..] {
            [port] => Ok(port),
            _ => Err(BadUplinkPort::Number(start(text))),
        }
    }
}

impl fmt::Display for UplinkPort {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}/{}", self.number, self.protocol.word())
    }
}

impl fmt::Display for PublishId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(out)
    }
}

impl FromStr for PublishId {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.parse().map(Self)
    }
}

fn start(text: &str) -> String {
    text.chars().take(40).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(text: &str) -> Result<Vec<String>, String> {
        let shown = |ports: Vec<UplinkPort>| ports.iter().map(ToString::to_string).collect();
        UplinkPort::read_all(text).map(shown).map_err(|error| error.to_string())
    }

    /// Proves: A7
    #[test]
    fn ports_are_listed_with_their_protocols() {
        assert_eq!(all("80,443/tcp").unwrap(), ["80/tcp", "443/tcp"]);
        assert_eq!(all("53/udp,53,853/tcp").unwrap(), ["53/udp", "53/tcp", "853/tcp"]);
        assert_eq!("65535/udp".parse::<UplinkPort>().unwrap().number(), u16::MAX);
        for (text, why) in [
            ("8000-8010/tcp", "`8000-8010` is a range of ports, and each port is named by itself: 8000,8001/tcp"),
            ("80:90/tcp", "`80:90` is a range of ports, and each port is named by itself: 8000,8001/tcp"),
            ("80/sctp", "`sctp` is neither tcp nor udp"),
            ("80/TCP", "`TCP` is neither tcp nor udp"),
            ("80", "`80` names no protocol: 80/tcp or 80/udp"),
            ("80/tcp,90", "`90` names no protocol: 90/tcp or 90/udp"),
            ("0/tcp", "`0` is no port from 1 to 65535"),
            ("65536/tcp", "`65536` is no port from 1 to 65535"),
            ("080/tcp", "`080` is no port from 1 to 65535"),
            ("+80/tcp", "`+80` is no port from 1 to 65535"),
            ("", "`` is no port from 1 to 65535"),
            ("80,/tcp", "`` is no port from 1 to 65535"),
        ] {
            assert_eq!(all(text).unwrap_err(), why, "{text}");
        }
        assert!("80,81/tcp".parse::<UplinkPort>().is_err(), "they are two");
    }

    /// Proves: W8
    #[test]
    fn a_namespace_is_named_as_kubernetes_names_it() {
        let most = "a".repeat(63);
        for name in ["web", "0", "kube-system", &most] {
            assert_eq!(name.parse::<NamespaceName>().map(|read| read.to_string()), Ok(name.to_owned()));
        }
        for name in ["", "-web", "web-", "Web", "a.b", "a/b", &format!("{most}a")] {
            assert!(name.parse::<NamespaceName>().is_err(), "{name}");
        }
    }
}
