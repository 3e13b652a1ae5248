//! Certificates between the services and PID 1: issues all that a boot needs, writes those that services read, keeps
//! those PID 1 shows itself.

use std::fs;
use std::io;
use std::net::{IpAddr, SocketAddrV4};
use std::os::unix::fs::OpenOptionsExt;
use std::sync::Arc;

use pki::{AuthorityKind, CertifiedKey, TlsIdentity, UnixTime};
use probe::http::{LocalServer, Tls};
use rustls::pki_types::ServerName;
use services::{Credential, ServicePlan, ServiceRole};

use super::Error;
use crate::enrolment::Authorities;
use crate::records;
use crate::runtime::clock;
use crate::runtime::tls::Clock;

/// TLS configurations with which PID 1 calls the services.
pub(super) struct Clients {
    etcd: Arc<rustls::ClientConfig>,
    node: Arc<rustls::ClientConfig>,
    anonymous: Arc<rustls::ClientConfig>,
    /// The Kubernetes API, asked as the node itself, which may read its own state before any binding is there.
    pub(super) kubernetes: LocalServer,
}

impl Clients {
    /// Issues all certificates: services find those that they `read` in files, PID 1 keeps its own.
    pub(super) fn issue(
        plan: &ServicePlan,
        authorities: &Authorities,
        read: impl Iterator<Item = Credential>,
    ) -> Result<Self, Error> {
        let now = UnixTime::since_unix_epoch(clock::unix());
        let issue = |profile: &pki::CertificateProfile<'_>| match profile.row().authority {
            AuthorityKind::Cairn => authorities.cairn.issue_with_key(profile, now),
            AuthorityKind::Etcd => authorities.etcd.issue_with_key(profile, now),
            AuthorityKind::Kubernetes => authorities.kubernetes.issue_with_key(profile, now),
        };
        for authority in [&authorities.etcd, &authorities.kubernetes] {
            let pem = pki::certificate_pem(authority.certificate());
            write(&services::authority_path(authority.kind()), pem.as_bytes(), 0o644)?;
        }
        for credential in read {
            let CertifiedKey { certificate, key } = issue(&credential.profile(plan))?;
            write(&credential.certificate_path(), pki::certificate_pem(&certificate).as_bytes(), 0o644)?;
            write(&credential.key_path(), pki::private_key_pem(&key.to_pkcs8()?).as_bytes(), 0o600)?;
        }
        if plan.wants(ServiceRole::Coordinator) {
            write(services::ETCD_REVOKED, &records::revocation_list(&authorities.etcd)?, 0o600)?;
        }
        if plan.wants(ServiceRole::ControlPlane) {
            let accounts = &authorities.service_accounts;
            write(services::SERVICE_ACCOUNT_KEY, pki::private_key_pem(&accounts.to_pkcs8()?).as_bytes(), 0o600)?;
            write(services::SERVICE_ACCOUNT_PUBLIC, pki::public_key_pem(accounts.public()).as_bytes(), 0o644)?;
        }

        let client = |authority: &pki::Authority, issued: Option<&CertifiedKey>| {
            let identity =
                issued.map(|issued| TlsIdentity { chain: vec![issued.certificate.clone()], key: &issued.key });
            let ca = authority.certificate().clone();
            Ok::<_, Error>(Arc::new(pki::server_auth::under_authority(ca, identity, Arc::new(Clock))?))
        };
        let node = client(&authorities.kubernetes, Some(&issue(&Credential::KubeletClient.profile(plan))?))?;
        Ok(Self {
            etcd: client(&authorities.etcd, Some(&issue(&Credential::EtcdMachineClient.profile(plan))?))?,
            anonymous: client(&authorities.kubernetes, None)?,
            kubernetes: endpoint(plan.kubernetes_api(), node.clone()),
            node,
        })
    }

    /// A server of this machine, asked as `client`.
    pub(super) fn endpoint(
        &self,
        address: SocketAddrV4,
        authority: AuthorityKind,
        client: Option<Credential>,
    ) -> LocalServer {
        let tls = match (authority, client) {
            (AuthorityKind::Etcd, _) => &self.etcd,
            (AuthorityKind::Kubernetes | AuthorityKind::Cairn, Some(_)) => &self.node,
            (AuthorityKind::Kubernetes | AuthorityKind::Cairn, None) => &self.anonymous,
        };
        endpoint(address, tls.clone())
    }
}

/// A server of this machine, with the rules of `tls`.
pub(super) fn endpoint(address: SocketAddrV4, tls: Arc<rustls::ClientConfig>) -> LocalServer {
    let name = ServerName::from(IpAddr::from(*address.ip()));
    LocalServer { address: address.into(), tls: Some(Tls { name, config: tls }) }
}

/// Writes a file anew, with the permissions `mode` if it was not there.
pub(super) fn write(path: &str, contents: &[u8], mode: u32) -> Result<(), Error> {
    let failed = |error| Error::File(path.to_owned(), error);
    let mut file = fs::File::options().write(true).create(true).truncate(true).mode(mode).open(path).map_err(failed)?;
    io::Write::write_all(&mut file, contents).map_err(failed)
}
