//! Names of images, in the form by which kubelet and containerd call them (distribution `reference/reference.go`): with
//! registry, path and tag. What is left out stands for Docker Hub and `latest`.

use std::fmt;

/// Name of an image, complete: `docker.io/library/nginx:1`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ImageName(String);

/// Text that names no image.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` names no image: {why}")]
pub struct BadImageName {
    text: String,
    why: &'static str,
}

/// Longest name of a repository, by the specification.
const MOST_REPOSITORY_BYTES: usize = 255;
/// Longest tag, by the specification.
const MOST_TAG_BYTES: usize = 128;

impl ImageName {
    /// Name that a person or an archive gives.
    ///
    /// # Errors
    /// The text is no name with an optional tag. A digest is no part of a name: it is what an image is.
    pub fn parse(text: &str) -> Result<Self, BadImageName> {
        let bad = |why| BadImageName { text: text.chars().take(80).collect(), why };
        if text.contains('@') {
            return Err(bad("a name has no digest"));
        }
        // A colon before the last slash is a port's.
        let slash = text.rfind('/').map_or(0, |at| at + 1);
        let (repository, tag) = match text[slash..].find(':') {
            Some(at) => (&text[..slash + at], &text[slash + at + 1..]),
            None => (text, "latest"),
        };
        let is_registry = |first: &str| first.contains(['.', ':']) || first == "localhost";
        let (registry, path) = match repository.split_once('/') {
            Some((first, rest)) if is_registry(first) => (first, rest.to_owned()),
            Some(_) => (HUB, repository.to_owned()),
            None => (HUB, format!("library/{repository}")),
        };
        // Docker's own other name of it.
        let registry = if registry == "index.docker.io" { HUB } else { registry };
        if !is_host(registry) {
            return Err(bad("its registry is no host name"));
        }
        if !path.split('/').all(is_component) {
            return Err(bad("its path is of a-z, 0-9, and . _ - between those"));
        }
        if !is_tag(tag) {
            return Err(bad("its tag is of letters, digits, _ . -, at most 128"));
        }
        if registry.len() + 1 + path.len() > MOST_REPOSITORY_BYTES {
            return Err(bad("it is longer than 255 bytes"));
        }
        Ok(Self(format!("{registry}/{path}:{tag}")))
    }

    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ImageName {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

/// Registry of a name without one.
const HUB: &str = "docker.io";

fn is_host(registry: &str) -> bool {
    let (host, port) = registry.split_once(':').map_or((registry, None), |(host, port)| (host, Some(port)));
    let label = |label: &str| {
        let ends = label.starts_with('-') || label.ends_with('-');
        !label.is_empty() && !ends && label.bytes().all(|it| it.is_ascii_alphanumeric() || it == b'-')
    };
    let number =
        |port: &str| !port.is_empty() && port.bytes().all(|it| it.is_ascii_digit()) && port.parse::<u16>().is_ok();
    host.split('.').all(label) && port.is_none_or(number)
}

/// Runs of letters and digits, with one dot, one or two underscores or any dashes between them.
fn is_component(component: &str) -> bool {
    let plain = |it: char| it.is_ascii_lowercase() || it.is_ascii_digit();
    let between = |it: &str| matches!(it, "." | "_" | "__") || (!it.is_empty() && it.bytes().all(|it| it == b'-'));
    component.starts_with(plain)
        && component.ends_with(plain)
        && component.split(plain).filter(|rest| !rest.is_empty()).all(between)
}

fn is_tag(tag: &str) -> bool {
    let word = |it: u8| it.is_ascii_alphanumeric() || it == b'_';
    tag.len() <= MOST_TAG_BYTES
        && tag.bytes().next().is_some_and(word)
        && tag.bytes().all(|it| word(it) || matches!(it, b'.' | b'-'))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Proves: W5
    #[test]
    fn a_name_has_one_form_however_it_is_typed() {
        for (typed, name) in [
            ("nginx", "docker.io/library/nginx:latest"),
            ("nginx:1.27", "docker.io/library/nginx:1.27"),
            ("library/nginx", "docker.io/library/nginx:latest"),
            ("index.docker.io/library/nginx", "docker.io/library/nginx:latest"),
            ("bitnami/redis:7", "docker.io/bitnami/redis:7"),
            ("localhost/mine", "localhost/mine:latest"),
            ("registry.k8s.io/e2e-test-images/agnhost:2.63.0", "registry.k8s.io/e2e-test-images/agnhost:2.63.0"),
            ("10.0.0.7:5000/a/b__c/d-e.f:V_1.2-3", "10.0.0.7:5000/a/b__c/d-e.f:V_1.2-3"),
        ] {
            let parsed = ImageName::parse(typed).expect(typed);
            assert_eq!(parsed.as_str(), name, "{typed}");
            assert_eq!(ImageName::parse(parsed.as_str()), Ok(parsed), "its own form is a name");
        }
    }

    #[test]
    fn what_no_registry_would_take_is_no_name() {
        let long = "a".repeat(256);
        for bad in [
            "",
            "/",
            "a/",
            "/a",
            "a//b",
            "Nginx",
            "a b",
            "a:",
            "a:b c",
            "a:.b",
            "a._b",
            "-a",
            "a-",
            "a/../b",
            "host.x:a/b",
            "host.x:/b",
            "h..x/b",
            "a@sha256:00",
            "a:1:2",
            "x.y/a\n",
            &long,
            &format!("a:{}", "t".repeat(129)),
        ] {
            assert!(ImageName::parse(bad).is_err(), "{bad:?}");
        }
    }
}
