//! A registry of container images, as a service of a host on the machines' network: in clear, or by TLS with a certificate of an
//! authority of its own. It serves one image by any name and writes down what it was asked for.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex};

use anyhow::Context as _;
use model::NodeName;
use oci::BlobDigest;
use pki::client_auth::{Owners, server_config};
use pki::{Authority, AuthorityKind, CertificateProfile, certificate_pem};
use qemu::network::{Conversation, PortService};
use rustls::time_provider::{DefaultTimeProvider, TimeProvider as _};
use rustls::{ServerConfig, ServerConnection};

use crate::container::{UnpackedImage, archive};
use crate::premises::lock;

/// Registry that serves one image; clones serve the same one, and write down in one place.
#[derive(Debug, Clone)]
pub struct ImageRegistry {
    image: Arc<UnpackedImage>,
    asked: Arc<Mutex<Vec<String>>>,
    tls: Option<Arc<ServerConfig>>,
}

impl ImageRegistry {
    /// Registry in clear.
    ///
    /// # Errors
    /// The image cannot be put together.
    pub fn in_clear() -> anyhow::Result<Self> {
        let image = UnpackedImage::of(archive("registry.example/own/app:1", &[7; 4096])?)?;
        Ok(Self { image: Arc::new(image), asked: Arc::default(), tls: None })
    }

    /// The same by TLS at this address, and the certificate of its authority in PEM.
    ///
    /// # Errors
    /// No certificate can be issued.
    pub fn by_tls(&self, address: Ipv4Addr) -> anyhow::Result<(Self, String)> {
        let now = DefaultTimeProvider.current_time().context("tell the time")?;
        let authority = Authority::create(AuthorityKind::Kubernetes, now)?;
        let profile = CertificateProfile::KubeletServer { node: &NodeName::chosen("registry")?, vpn: address };
        let certified = authority.issue_with_key(&profile, now)?;
        let tls = server_config(certified.identity(), None, Owners::default(), Arc::new(DefaultTimeProvider))?;
        Ok((Self { tls: Some(Arc::new(tls)), ..self.clone() }, certificate_pem(authority.certificate())))
    }

    /// Paths that it was asked for, in their order.
    #[must_use]
    pub fn asked(&self) -> Vec<String> {
        lock(&self.asked).clone()
    }

    /// Answer to one request, by its head.
    fn answer(&self, head: &str) -> Vec<u8> {
        let mut words = head.split(' ');
        let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let path = target.split('?').next().unwrap_or_default();
        lock(&self.asked).push(path.to_owned());
        let UnpackedImage { media_type, manifest, blobs, .. } = &*self.image;
        let found = match path.rsplit_once('/') {
            _ if path == "/v2/" => Some(("application/json", &b"{}"[..])),
            Some((rest, _)) if rest.ends_with("/manifests") => Some((*media_type, manifest.as_slice())),
            Some((rest, digest)) if rest.ends_with("/blobs") => {
                let blob = digest.parse().ok().and_then(|digest: BlobDigest| blobs.get(&digest));
                blob.map(|blob| ("application/octet-stream", blob.as_slice()))
            }
            Some(_) | None => None,
        };
        let (status, (kind, body)) =
            found.map_or(("404 Not Found", ("text/plain", &b""[..])), |found| ("200 OK", found));
        let digest = BlobDigest::of(body);
        let head = format!(
            "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nDocker-Content-Digest: {digest}\r\n\r\n",
            body.len()
        );
        [head.as_bytes(), if method == "HEAD" { &[] } else { body }].concat()
    }
}

impl PortService for ImageRegistry {
    fn accept(&mut self) -> Box<dyn Conversation> {
        let requests = Requests { registry: self.clone(), heard: VecDeque::new() };
        match &self.tls {
            None => Box::new(requests),
            Some(tls) => match ServerConnection::new(Arc::clone(tls)) {
                Ok(tls) => Box::new(Secured { tls, requests, is_broken: false }),
                Err(_) => Box::new(requests),
            },
        }
    }
}

/// Requests of one caller, none of which has a body.
#[derive(Debug)]
struct Requests {
    registry: ImageRegistry,
    heard: VecDeque<u8>,
}

impl Conversation for Requests {
    fn hear(&mut self, bytes: &[u8]) -> Vec<u8> {
        self.heard.extend(bytes);
        let mut said = Vec::new();
        while let Some(end) = self.heard.make_contiguous().windows(4).position(|four| four == b"\r\n\r\n") {
            let head: Vec<u8> = self.heard.drain(..end + 4).collect();
            said.extend(self.registry.answer(&String::from_utf8_lossy(&head)));
        }
        said
    }

    /// The caller ends it.
    fn is_over(&self) -> bool {
        false
    }
}

/// The same by TLS.
#[derive(Debug)]
struct Secured {
    tls: ServerConnection,
    requests: Requests,
    is_broken: bool,
}

impl Conversation for Secured {
    fn hear(&mut self, mut bytes: &[u8]) -> Vec<u8> {
        let (mut said, mut plain) = (Vec::new(), Vec::new());
        while !bytes.is_empty() && !self.is_broken {
            self.is_broken = self.tls.read_tls(&mut bytes).is_err() || self.tls.process_new_packets().is_err();
            // Nothing more to read is an error of that kind, too.
            let _read = self.tls.reader().read_to_end(&mut plain);
        }
        let answer = self.requests.hear(&plain);
        self.is_broken |= self.tls.writer().write_all(&answer).is_err();
        while self.tls.wants_write() && self.tls.write_tls(&mut said).is_ok() {}
        said
    }

    fn is_over(&self) -> bool {
        self.is_broken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hear(registry: &ImageRegistry, request: &str) -> String {
        String::from_utf8_lossy(&registry.clone().accept().hear(request.as_bytes())).into_owned()
    }

    #[test]
    fn it_answers_as_registries_do_and_notes_what_it_was_asked() {
        let registry = ImageRegistry::in_clear().expect("an image");
        let head = hear(&registry, "HEAD /v2/own/app/manifests/1?ns=a HTTP/1.1\r\nHost: a\r\n\r\n");
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n") && head.ends_with("\r\n\r\n"), "{head}");
        let digest = BlobDigest::of(&registry.image.manifest);
        assert!(head.contains(&format!("Docker-Content-Digest: {digest}\r\n")), "{head}");
        let (blob, _) = registry.image.blobs.first_key_value().expect("a blob");
        let two = format!("GET /v2/own/app/blobs/{blob} HTTP/1.1\r\n\r\nGET /v2/x HTTP/1.1\r\n\r\n");
        let said = hear(&registry, &two);
        assert!(said.starts_with("HTTP/1.1 200 OK") && said.contains("HTTP/1.1 404 Not Found"), "{said}");
        assert_eq!(registry.asked()[..1], ["/v2/own/app/manifests/1"]);
    }
}
