//! Registries of container images: how one is called, and where a mirror of it is. Both in one form, in which they stand in file
//! names and in files of others.

use std::fmt;
use std::net::Ipv4Addr;

/// Longest name of a registry, with its port.
pub const MOST_REGISTRY_HOST_BYTES: usize = 128;
/// Longest URL of a mirror.
pub const MOST_MIRROR_URL_BYTES: usize = 256;

/// Name of a registry as images' names begin with it: DNS name or IPv4 address, with a port where that is not HTTPS' own.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RegistryHost {
    /// Zeros behind the name, so that names are in the order of their text.
    bytes: [u8; MOST_REGISTRY_HOST_BYTES],
    length: usize,
}

/// Text that names no registry.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` names no registry: {why}")]
pub struct BadRegistryHost {
    text: String,
    why: &'static str,
}

/// Place of a mirror: `https://` or `http://`, host, port and path.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MirrorUrl(String);

/// Text that is no URL of a mirror.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is no mirror: {why}")]
pub struct BadMirrorUrl {
    text: String,
    why: &'static str,
}

const HOST: &str = "a host is a DNS name or an IPv4 address in lower case, with a port from 1 to 65535 if need be";

impl RegistryHost {
    /// Name in its one form.
    ///
    /// # Errors
    /// [`BadRegistryHost`] says what it is not.
    pub fn read(text: &str) -> Result<Self, BadRegistryHost> {
        let bad = |why| BadRegistryHost { text: start(text), why };
        if text.len() > MOST_REGISTRY_HOST_BYTES {
            return Err(bad("it is longer than 128 bytes"));
        }
        if !is_host(text) {
            return Err(bad(HOST));
        }
        // By images' names; else it were a part of a path at Docker Hub.
        if !text.contains(['.', ':']) && text != "localhost" {
            return Err(bad("a registry has a dot or a port in its name"));
        }
        if matches!(text, "index.docker.io" | "registry-1.docker.io") {
            return Err(bad("images' names call Docker Hub docker.io"));
        }
        let mut bytes = [0; MOST_REGISTRY_HOST_BYTES];
        bytes[..text.len()].copy_from_slice(text.as_bytes());
        Ok(Self { bytes, length: text.len() })
    }

    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        str::from_utf8(&self.bytes[..self.length]).expect("ASCII, as it was read")
    }
}

impl fmt::Display for RegistryHost {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.as_str())
    }
}

impl fmt::Debug for RegistryHost {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), out)
    }
}

impl MirrorUrl {
    /// URL in its one form: without a slash at its end, a user, a query.
    ///
    /// # Errors
    /// [`BadMirrorUrl`] says what it is not.
    pub fn read(text: &str) -> Result<Self, BadMirrorUrl> {
        let bad = |why| BadMirrorUrl { text: start(text), why };
        if text.len() > MOST_MIRROR_URL_BYTES {
            return Err(bad("it is longer than 256 bytes"));
        }
        let rest = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
        let rest = rest.ok_or_else(|| bad("it begins with https:// or http://"))?;
        let (host, path) = rest.split_once('/').map_or((rest, None), |(host, path)| (host, Some(path)));
        if !is_host(host) {
            return Err(bad(HOST));
        }
        let is_word = |word: &str| {
            !matches!(word, "" | "." | "..")
                && word.bytes().all(|it| it.is_ascii_alphanumeric() || matches!(it, b'-' | b'.' | b'_' | b'~'))
        };
        if !path.is_none_or(|path| path.split('/').all(is_word)) {
            return Err(bad("its path is of letters, digits and - . _ ~ between slashes, and ends without one"));
        }
        Ok(Self(text.to_owned()))
    }

    /// Whether what it answers is proved by a certificate.
    #[must_use]
    pub fn is_secure(&self) -> bool {
        self.0.starts_with("https:")
    }

    /// The URL as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for MirrorUrl {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

fn start(text: &str) -> String {
    text.chars().take(80).collect()
}

fn is_host(text: &str) -> bool {
    let (host, port) = text.split_once(':').map_or((text, None), |(host, port)| (host, Some(port)));
    let is_label = |label: &str| {
        let is_inside = |it: u8| it.is_ascii_lowercase() || it.is_ascii_digit() || it == b'-';
        (1..=63).contains(&label.len())
            && label.bytes().all(is_inside)
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    let is_port = |port: &str| port.parse::<u16>().is_ok_and(|number| number > 0 && number.to_string() == port);
    // A name whose last label is a number is an address, or nothing.
    let last = host.rsplit('.').next().unwrap_or_default();
    let is_address = || host.parse::<Ipv4Addr>().is_ok();
    let is_named = host.split('.').all(is_label) && (!last.bytes().all(|it| it.is_ascii_digit()) || is_address());
    is_named && port.is_none_or(is_port)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Proves: W5
    #[test]
    fn a_registry_is_called_as_images_names_begin() {
        let longest = format!("{}.example.org", ["a".repeat(57), "b".repeat(58)].join("."));
        for host in ["docker.io", "ghcr.io", "localhost", "localhost:5000", "10.0.0.7:5000", "a-b.c:65535", &longest] {
            assert_eq!(RegistryHost::read(host).expect(host).as_str(), host);
        }
        assert_eq!(longest.len(), MOST_REGISTRY_HOST_BYTES);
        let long = format!("a{longest}");
        for bad in [
            "",
            "mirror",
            "Ghcr.io",
            "ghcr.io/",
            "ghcr.io:",
            "ghcr.io:0",
            "ghcr.io:080",
            "ghcr.io:+80",
            "ghcr.io:65536",
            "ghcr.io:80:80",
            ".io",
            "a..b",
            "-a.io",
            "a-.io",
            "_default",
            "..",
            "a b.c",
            "10.0.0.256",
            "10.0.1",
            "[::1]:80",
            "index.docker.io",
            "registry-1.docker.io",
            "a.b\n",
            &long,
        ] {
            assert!(RegistryHost::read(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn registries_are_in_the_order_of_their_text() {
        let names = ["a.b", "a.b-c", "a.b.c", "a.b:80", "a.bb", "b.a"];
        let read = names.map(|name| RegistryHost::read(name).expect(name));
        assert!(read.is_sorted() && names.is_sorted());
    }

    /// Proves: W5
    #[test]
    fn a_mirror_is_a_plain_url() {
        for (url, is_secure) in [
            ("https://mirror.example.org", true),
            ("https://mirror:5000/v2/hub", true),
            ("http://10.0.0.7:5000", false),
            ("http://a/B_c~d.e-f", false),
        ] {
            let read = MirrorUrl::read(url).expect(url);
            assert_eq!((read.as_str(), read.is_secure()), (url, is_secure));
        }
        let long = format!("https://a.b/{}", "c".repeat(245));
        for bad in [
            "",
            "mirror.example.org",
            "ftp://a.b",
            "HTTPS://a.b",
            "https://",
            "https://a.b/",
            "https://a.b//c",
            "https://a.b/../c",
            "https://a.b/c?d",
            "https://a.b/\"",
            "https://u@a.b",
            "https://u:p@a.b",
            "https://a.b:0",
            "https://a.b/c\n",
            &long,
        ] {
            assert!(MirrorUrl::read(bad).is_err(), "{bad:?}");
        }
    }
}
