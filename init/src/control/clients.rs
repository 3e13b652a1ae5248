//! Certificates between the services and PID 1: those that services read are files, and PID 1 keeps its own. Each is made when a unit
//! that reads it is wanted first, renewed with all others when the oldest is due, and erased when nobody reads it any more. A
//! coordinator signs them itself; a worker that is none has a coordinator sign them, for keys that never leave the machine.
//!
//! A key in a file stays for as long as the file does, so a renewal replaces one file, by one rename.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::net::{IpAddr, SocketAddrV4};
use std::os::unix::fs::{OpenOptionsExt, chown};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use api::{CertificateRequests, WorkerCertificate, WorkerCertificates};
use pki::{AuthorityKind, CertificateDer, ClientIdentity, PrivateKey, TlsIdentity, UnixTime};
use probe::http::{LocalServer, Tls};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use services::{Credential, ServicePlan, ServiceRole};
use tokio::sync::watch;

use super::{Error, certificates};
use crate::enrolment::Authorities;
use crate::records;
use crate::runtime::tls::Clock;
use crate::runtime::{clock, durable};

/// Certificates that a worker has signed, and the files that they are for; PID 1 has the last itself.
const OF_A_WORKER: [(WorkerCertificate, Option<Credential>); 5] = [
    (WorkerCertificate::KubeletClient, Some(Credential::KubeletClient)),
    (WorkerCertificate::KubeletServer, Some(Credential::KubeletServer)),
    (WorkerCertificate::DnsClient, Some(Credential::DnsClient)),
    (WorkerCertificate::ProxyClient, Some(Credential::ProxyClient)),
    (WorkerCertificate::KubeletClient, None),
];

/// Certificates that there are, and TLS configurations with which PID 1 calls the services.
#[derive(Debug, Default)]
pub(crate) struct Clients {
    /// Keys in files, each with a certificate beside it.
    files: BTreeMap<Credential, Arc<PrivateKey>>,
    etcd: Option<NamedClient>,
    kubernetes: Option<KubernetesClients>,
    /// When the oldest certificate was made, since 1970; none where there is none.
    made: watch::Sender<Option<Duration>>,
}

/// Client that shows a certificate.
#[derive(Debug)]
struct NamedClient {
    identity: ClientIdentity,
    config: Arc<ClientConfig>,
}

#[derive(Debug)]
struct KubernetesClients {
    /// As the node itself, which may read its own state before any binding is there.
    node: NamedClient,
    anonymous: Arc<ClientConfig>,
}

impl Clients {
    /// Has all be there that the units of `plan` read, and none be due, by a coordinator's own keys.
    pub(super) fn issue(&mut self, plan: &ServicePlan, authorities: &Authorities) -> Result<(), Error> {
        let (now, renews) = (clock::unix(), self.are_due());
        let issue = |credential: Credential, key: &PrivateKey| {
            let (profile, now) = (credential.profile(plan), UnixTime::since_unix_epoch(now));
            match profile.row().authority {
                AuthorityKind::Cairn => authorities.cairn.issue(&profile, key.public(), now),
                AuthorityKind::Etcd => authorities.etcd.issue(&profile, key.public(), now),
                AuthorityKind::Kubernetes => authorities.kubernetes.issue(&profile, key.public(), now),
                AuthorityKind::Front => authorities.front.issue(&profile, key.public(), now),
            }
        };
        for credential in wanted(plan) {
            if renews || !self.files.contains_key(&credential) {
                let key = self.key_of(Some(credential))?;
                self.put(credential, &key, &issue(credential, &key)?)?;
            }
        }
        if plan.wants(ServiceRole::Coordinator) && (renews || self.etcd.is_none()) {
            if self.etcd.is_none() {
                put_authority(AuthorityKind::Etcd, authorities.etcd.certificate())?;
                write(services::ETCD_REVOKED, &records::revocation_list(&authorities.etcd)?, 0o600)?;
            }
            let key = PrivateKey::generate()?;
            let chain = vec![issue(Credential::EtcdMachineClient, &key)?];
            let identity = TlsIdentity { chain, key: &key };
            match &self.etcd {
                Some(known) => known.identity.replace(identity)?,
                None => self.etcd = Some(NamedClient::new(authorities.etcd.certificate(), identity)?),
            }
        }
        if plan.wants(ServiceRole::ControlPlane) {
            let accounts = &authorities.service_accounts;
            write(services::SERVICE_ACCOUNT_KEY, pki::private_key_pem(&accounts.to_pkcs8()?).as_bytes(), 0o600)?;
            write(services::SERVICE_ACCOUNT_PUBLIC, pki::public_key_pem(accounts.public()).as_bytes(), 0o644)?;
            put_authority(AuthorityKind::Front, authorities.front.certificate())?;
        }
        let runs_kubernetes = plan.wants(ServiceRole::ControlPlane) || plan.wants(ServiceRole::Worker);
        if runs_kubernetes && (renews || self.kubernetes.is_none()) {
            let key = PrivateKey::generate()?;
            let chain = vec![issue(Credential::KubeletClient, &key)?];
            self.know(authorities.kubernetes.certificate(), TlsIdentity { chain, key: &key })?;
        }
        if renews || self.made.borrow().is_none() {
            self.are_made(now);
        }
        Ok(())
    }

    /// Whether a worker's certificates are there.
    pub(crate) fn are_of_a_worker(&self) -> bool {
        let mut files = OF_A_WORKER.iter().filter_map(|(_, file)| *file);
        self.kubernetes.is_some() && files.all(|file| self.files.contains_key(&file))
    }

    /// Whether the oldest certificate is to be renewed.
    pub(crate) fn are_due(&self) -> bool {
        self.made.borrow().is_some_and(|made| certificates::are_due(made, clock::unix()))
    }

    /// Tells when the oldest certificate was made.
    pub(crate) fn made(&self) -> watch::Receiver<Option<Duration>> {
        self.made.subscribe()
    }

    fn are_made(&self, now: Duration) {
        if self.made.send_replace(Some(now)).is_some() {
            tracing::info!("the certificates of services are renewed");
        }
    }

    /// Keys of a worker for which a coordinator has to sign certificates now, if there are any.
    ///
    /// # Errors
    /// [`Error::Key`].
    pub(crate) fn keys_to_sign(&self) -> Result<Option<WorkerKeys>, Error> {
        if self.are_of_a_worker() && !self.are_due() {
            return Ok(None);
        }
        let keys = OF_A_WORKER.iter().map(|(_, file)| self.key_of(*file)).collect::<Result<_, _>>()?;
        Ok(Some(WorkerKeys(keys)))
    }

    /// The key in that file, or a new one.
    fn key_of(&self, file: Option<Credential>) -> Result<Arc<PrivateKey>, Error> {
        match file.and_then(|file| self.files.get(&file)) {
            Some(key) => Ok(key.clone()),
            None => Ok(Arc::new(PrivateKey::generate()?)),
        }
    }

    /// Takes what a coordinator has signed.
    ///
    /// # Errors
    /// [`Error`]; what is there already is left.
    pub(super) fn take(&mut self, signed: SignedKeys) -> Result<(), Error> {
        let SignedKeys { authority, keys } = signed;
        for ((_, file), (key, certificate)) in OF_A_WORKER.iter().zip(&keys) {
            match file {
                Some(file) => self.put(*file, key, certificate)?,
                None => self.know(&authority, TlsIdentity { chain: vec![certificate.clone()], key })?,
            }
        }
        self.are_made(clock::unix());
        Ok(())
    }

    /// Erases what no unit of `plan` reads, once no other runs.
    ///
    /// # Errors
    /// [`Error::File`].
    pub(crate) fn forget(&mut self, plan: &ServicePlan) -> Result<(), Error> {
        let wanted = wanted(plan);
        for (credential, _) in self.files.extract_if(.., |credential, _| !wanted.contains(credential)) {
            let path = credential.key_path();
            durable::erase(Path::new(&path)).map_err(|error| Error::File(path, error))?;
        }
        if !plan.wants(ServiceRole::Coordinator) {
            self.etcd = None;
        }
        if !plan.wants(ServiceRole::ControlPlane) && !plan.wants(ServiceRole::Worker) {
            self.kubernetes = None;
        }
        if self.files.is_empty() && self.etcd.is_none() && self.kubernetes.is_none() {
            self.made.send_replace(None);
        }
        Ok(())
    }

    /// Names of the files that are in use.
    pub(super) fn paths(&self) -> BTreeSet<String> {
        let kubernetes = self.kubernetes.as_ref().map(|_| services::authority_path(AuthorityKind::Kubernetes));
        let written = self.files.keys().flat_map(|it| [it.certificate_path(), it.key_path()]);
        written.chain(kubernetes).collect()
    }

    fn put(
        &mut self,
        credential: Credential,
        key: &Arc<PrivateKey>,
        certificate: &CertificateDer<'_>,
    ) -> Result<(), Error> {
        let path = credential.key_path();
        write(&path, pki::private_key_pem(&key.to_pkcs8()?).as_bytes(), 0o600)?;
        chown(&path, Some(credential.user()), None).map_err(|error| Error::File(path, error))?;
        write(&credential.certificate_path(), pki::certificate_pem(certificate).as_bytes(), 0o644)?;
        self.files.insert(credential, key.clone());
        Ok(())
    }

    fn know(&mut self, authority: &CertificateDer<'_>, node: TlsIdentity<'_>) -> Result<(), Error> {
        put_authority(AuthorityKind::Kubernetes, authority)?;
        match &self.kubernetes {
            Some(known) => known.node.identity.replace(node)?,
            None => {
                let (node, anonymous) = (NamedClient::new(authority, node)?, client(authority, None)?);
                self.kubernetes = Some(KubernetesClients { node, anonymous });
            }
        }
        Ok(())
    }

    /// Configuration of a client that is the node itself.
    pub(super) fn of_node(&self) -> Arc<ClientConfig> {
        self.kubernetes.as_ref().map(|it| it.node.config.clone()).expect(ISSUED)
    }

    /// The Kubernetes API of this plan, asked as the node itself.
    pub(super) fn kubernetes(&self, plan: &ServicePlan) -> LocalServer {
        self.endpoint(plan.kubernetes_api(), AuthorityKind::Kubernetes, Some(Credential::KubeletClient))
    }

    /// A server of this machine, asked as `client`.
    pub(super) fn endpoint(
        &self,
        address: SocketAddrV4,
        authority: AuthorityKind,
        client: Option<Credential>,
    ) -> LocalServer {
        let kubernetes = |of: fn(&KubernetesClients) -> &Arc<ClientConfig>| self.kubernetes.as_ref().map(of);
        let tls = match (authority, client) {
            (AuthorityKind::Etcd, _) => self.etcd.as_ref().map(|it| &it.config),
            (AuthorityKind::Kubernetes | AuthorityKind::Cairn | AuthorityKind::Front, Some(_)) => {
                kubernetes(|it| &it.node.config)
            }
            (AuthorityKind::Kubernetes | AuthorityKind::Cairn | AuthorityKind::Front, None) => {
                kubernetes(|it| &it.anonymous)
            }
        };
        endpoint(address, tls.expect(ISSUED).clone())
    }
}

const ISSUED: &str = "what a unit is asked by is issued before the unit is made";

/// Keys of a worker, to be signed by a coordinator.
#[derive(Debug)]
pub(crate) struct WorkerKeys(Vec<Arc<PrivateKey>>);

/// Keys of a worker, with what a coordinator has signed for them.
#[derive(Debug)]
pub(crate) struct SignedKeys {
    authority: CertificateDer<'static>,
    keys: Vec<(Arc<PrivateKey>, CertificateDer<'static>)>,
}

impl WorkerKeys {
    /// Requests that prove them.
    ///
    /// # Errors
    /// [`Error`].
    pub(crate) fn requests(&self) -> Result<CertificateRequests, Error> {
        let asked = OF_A_WORKER.iter().zip(&self.0);
        let request = |((certificate, _), key): (&(WorkerCertificate, _), &Arc<_>)| {
            Ok((*certificate, pki::make_request(key)?.to_vec()))
        };
        asked.map(request).collect::<Result<_, Error>>().map(CertificateRequests)
    }

    /// Keys with these certificates.
    ///
    /// # Errors
    /// [`Error::Signed`] where they are not for these keys.
    pub(crate) fn signed(
        self,
        WorkerCertificates { authority, certificates }: WorkerCertificates,
    ) -> Result<SignedKeys, Error> {
        if certificates.len() != self.0.len() {
            return Err(Error::Signed);
        }
        let mut keys = Vec::new();
        for (key, certificate) in self.0.into_iter().zip(certificates) {
            let certificate = CertificateDer::from(certificate);
            let public = pki::public_key_of(&certificate).map_err(|_| Error::Signed)?;
            if public.pin() != key.public().pin() {
                return Err(Error::Signed);
            }
            keys.push((key, certificate));
        }
        Ok(SignedKeys { authority: authority.into(), keys })
    }
}

/// Credentials that programs of a plan read.
fn wanted(plan: &ServicePlan) -> BTreeSet<Credential> {
    let units = services::wanted(plan);
    units
        .iter()
        .filter_map(services::Unit::as_program)
        .flat_map(|program| program.credentials.iter().copied())
        .collect()
}

impl NamedClient {
    fn new(authority: &CertificateDer<'_>, identity: TlsIdentity<'_>) -> Result<Self, Error> {
        let identity = ClientIdentity::new(identity)?;
        Ok(Self { config: client(authority, Some(&identity))?, identity })
    }
}

fn client(authority: &CertificateDer<'_>, identity: Option<&ClientIdentity>) -> Result<Arc<ClientConfig>, Error> {
    let authority = authority.clone().into_owned();
    Ok(Arc::new(pki::server_auth::under_authority(authority, identity, Arc::new(Clock))?))
}

fn put_authority(kind: AuthorityKind, certificate: &CertificateDer<'_>) -> Result<(), Error> {
    write(&services::authority_path(kind), pki::certificate_pem(certificate).as_bytes(), 0o644)
}

/// A server of this machine, with the rules of `tls`.
pub(super) fn endpoint(address: SocketAddrV4, tls: Arc<ClientConfig>) -> LocalServer {
    let name = ServerName::from(IpAddr::from(*address.ip()));
    LocalServer { address: address.into(), tls: Some(Tls { name, config: tls }) }
}

/// Puts a file with the permissions `mode` in its place, by one rename: whoever reads finds the whole of this one, or of the one before.
/// A file that says the same is left alone.
pub(super) fn write(path: &str, contents: &[u8], mode: u32) -> Result<(), Error> {
    if fs::read(path).is_ok_and(|there| there == contents) {
        return Ok(());
    }
    let new = format!("{path}.new");
    let write = || {
        let mut file = fs::File::options().write(true).create(true).truncate(true).mode(mode).open(&new)?;
        io::Write::write_all(&mut file, contents)?;
        fs::rename(&new, path)
    };
    write().map_err(|error| Error::File(path.to_owned(), error))
}

#[cfg(test)]
mod tests {
    use pki::{Authority, CertificateProfile};

    use super::*;

    /// Proves: W3
    #[test]
    fn a_worker_takes_certificates_for_its_own_keys_alone() {
        let now = UnixTime::since_unix_epoch(clock::unix());
        let authority = Authority::create(AuthorityKind::Kubernetes, now).expect("a CA");
        let sign = |CertificateRequests(requests): CertificateRequests| {
            let certificates = requests.iter().map(|(_, request)| {
                let key = pki::accept_request(request).expect("a request");
                authority.issue(&CertificateProfile::ApiserverKubeletClient, &key, now).expect("signed").to_vec()
            });
            WorkerCertificates { authority: authority.certificate().to_vec(), certificates: certificates.collect() }
        };
        let keys = || Clients::default().keys_to_sign().expect("keys").expect("none is signed");
        let mine = keys();
        let signed = sign(mine.requests().expect("requests"));
        let of_others = keys().signed(signed.clone());
        assert!(matches!(of_others, Err(Error::Signed)), "{of_others:?}");
        let mut swapped = signed.clone();
        swapped.certificates.swap(0, 1);
        let mut few = signed.clone();
        few.certificates.pop();
        assert_eq!(mine.signed(signed.clone()).expect("its own").keys.len(), OF_A_WORKER.len());
        for wrong in [swapped, few] {
            let mine = keys();
            assert!(matches!(mine.signed(wrong), Err(Error::Signed)));
        }
        let mut more = sign(keys().requests().expect("requests"));
        more.certificates.push(signed.certificates[0].clone());
        assert!(matches!(keys().signed(more), Err(Error::Signed)));
    }
}
