//! A Kubernetes client certificate for the owner: its private key never leaves the owner's machine.

use crate::{UnixMillis, wire};

/// The answer to `Kubeconfig`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientCertificate {
    /// The Kubernetes CA, DER.
    pub ca_certificate: Vec<u8>,
    /// The certificate for the public key of the request, DER.
    pub client_certificate: Vec<u8>,
    /// The name the Kubernetes API proves, whatever address it is reached by.
    pub tls_server_name: String,
    /// 24 hours from now at most.
    pub expires: UnixMillis,
}

impl From<ClientCertificate> for wire::KubeconfigResponse {
    fn from(answer: ClientCertificate) -> Self {
        Self {
            ca_certificate: answer.ca_certificate,
            client_certificate: answer.client_certificate,
            tls_server_name: answer.tls_server_name,
            expires_unix_ms: answer.expires.0,
        }
    }
}

impl From<wire::KubeconfigResponse> for ClientCertificate {
    fn from(answer: wire::KubeconfigResponse) -> Self {
        Self {
            ca_certificate: answer.ca_certificate,
            client_certificate: answer.client_certificate,
            tls_server_name: answer.tls_server_name,
            expires: UnixMillis(answer.expires_unix_ms),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_crosses_the_wire() {
        let sent = ClientCertificate {
            ca_certificate: vec![1],
            client_certificate: vec![2, 2],
            tls_server_name: "kubernetes".to_owned(),
            expires: UnixMillis(3),
        };
        assert_eq!(ClientCertificate::from(wire::KubeconfigResponse::from(sent.clone())), sent);
    }
}
