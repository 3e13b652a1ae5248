//! The floor as data: its plan, the files in its root, the keys with which the host asks it.
//!
//! Arguments, configurations and certificates come from the same crates as Cairn's, so that nothing but what Cairn adds
//! can differ. What the floor can have done at build time is done then: it is the least, not a likeness.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddrV4};

use model::{
    Assignment, ClusterId, KUBERNETES_API_PORT, KubernetesRole, MachineId, NodeName, Prefixes, Secret, VPN_PREFIX,
};
use pki::{Authority, AuthorityKind, CertificateProfile, IssueError, KeyError, PrivateKey, UnixTime};
use services::{Credential, EtcdCluster, EtcdPlan, EtcdUsers, OwnerKubeconfig, ServicePlan, Unit};
use zeroize::Zeroizing;

/// The node's name on both sides, so that arguments are equal to the letter.
pub const NODE: &str = "bench";
/// Where the floor's root has what belongs below `/run`.
pub const RUN: &str = "/floor";
/// Address on QEMU's user network, which is always the same.
pub const ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 0, 2, 15);
/// Name of the floor's network card: there is one, and nobody renames it.
pub const LINK: &str = "eth0";
/// TCP port that answers with the evidence (one line of JSON, [`crate::evidence`]); then the floor powers off.
pub const EVIDENCE_PORT: u16 = 7000;
/// Data disk, the second one.
pub const DATA: &str = "/dev/vdb";
/// How it is formatted: as Cairn formats the uppermost layer of its own.
pub const MKFS: &[&str] = &["/bin/mkfs.xfs", "-q", "-f", "-K", "-l", "size=64m", "-d", "agcount=4", DATA];
/// Where the root's /etc/resolv.conf leads: kubelet makes no pod without it.
const RESOLVERS: &str = "/run/resolv.conf";
/// Arguments of the kernel beside the consoles: no initramfs, a plain root.
pub const COMMAND_LINE: &str = "root=/dev/vda rootfstype=erofs ro init=/bin/init";

/// The machine. Only the cluster's id differs from Cairn's, which is drawn at create.
#[must_use]
pub fn plan() -> ServicePlan {
    let prefixes = Prefixes::of(VPN_PREFIX);
    ServicePlan {
        machine: MachineId([0; 16]),
        node: NodeName::chosen(NODE).expect("a constant of lower-case letters"),
        cluster: ClusterId([0; 16]),
        assignment: Assignment::first(&prefixes, KubernetesRole::ALL.iter().copied().collect()),
        prefixes,
        // It has no users: nobody but the apiserver ever calls.
        etcd: Some(EtcdPlan { begins: EtcdCluster::New, others: Vec::new(), users: EtcdUsers::Known }),
        bin: "/bin",
        has_gvisor: false,
    }
}

/// The units that the floor runs the programs of: the least that makes a node Ready and runs a pod, so that it has neither service proxy nor
/// resolver.
#[must_use]
pub fn units(plan: &ServicePlan) -> Vec<Unit> {
    let is_more = |unit: &Unit| [services::names::PROXY, services::names::DNS].contains(&unit.spec.name.as_str());
    services::wanted(plan).into_iter().filter(|unit| !is_more(unit)).collect()
}

/// Why there are no keys for a floor.
#[derive(Debug, thiserror::Error)]
pub enum KeysError {
    /// A certificate could not be issued.
    #[error("issue a certificate of the floor")]
    Issue(#[from] IssueError),
    /// A key could not be made.
    #[error("make a key of the floor")]
    Key(#[from] KeyError),
}

/// The authorities of a floor. They stay on the host; the floor signs nothing.
#[derive(Debug)]
pub struct Keys {
    etcd: Authority,
    kubernetes: Authority,
    front: Authority,
    service_accounts: PrivateKey,
    /// Encrypts Secrets in the floor's etcd, as Cairn does in its own.
    secrets: Secret<32>,
}

/// A file of the floor's root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FloorFile {
    /// Absolute path in the root.
    pub path: String,
    /// Content of the file.
    pub bytes: Vec<u8>,
}

impl Keys {
    /// New authorities.
    ///
    /// # Errors
    /// [`KeysError`]
    pub fn create(now: UnixTime) -> Result<Self, KeysError> {
        Ok(Self {
            etcd: Authority::create(AuthorityKind::Etcd, now)?,
            kubernetes: Authority::create(AuthorityKind::Kubernetes, now)?,
            front: Authority::create(AuthorityKind::Front, now)?,
            service_accounts: PrivateKey::generate()?,
            // The floor keeps nothing that is secret, and its key is in its root.
            secrets: Secret::take(&mut [1; 32]),
        })
    }

    /// All that the floor copies to `/run`: configurations, certificates, keys.
    ///
    /// # Errors
    /// [`KeysError`]
    pub fn files(&self, plan: &ServicePlan, now: UnixTime) -> Result<Vec<FloorFile>, KeysError> {
        let mut files = Vec::new();
        let mut put = |path: &str, bytes: &[u8]| {
            let below = path.strip_prefix("/run").expect("services write below /run only");
            files.push(FloorFile { path: format!("{RUN}{below}"), bytes: bytes.to_vec() });
        };
        let units = units(plan);
        for file in units.iter().filter_map(Unit::as_program).flat_map(|program| &program.files) {
            // Straight to the apiserver: the floor needs no balancer over coordinators, Cairn has one.
            put(file.path, file.contents.replace(&balanced(), &direct(plan)).as_bytes());
        }
        for authority in [&self.etcd, &self.kubernetes, &self.front] {
            put(&services::authority_path(authority.kind()), pki::certificate_pem(authority.certificate()).as_bytes());
        }
        for credential in Credential::ALL {
            let profile = credential.profile(plan);
            let authority = match profile.row().authority {
                AuthorityKind::Etcd => &self.etcd,
                AuthorityKind::Kubernetes | AuthorityKind::Cairn => &self.kubernetes,
                AuthorityKind::Front => &self.front,
            };
            let issued = authority.issue_with_key(&profile, now)?;
            put(&credential.certificate_path(), pki::certificate_pem(&issued.certificate).as_bytes());
            put(&credential.key_path(), pki::private_key_pem(&issued.key.to_pkcs8()?).as_bytes());
        }
        put(services::ETCD_REVOKED, &self.etcd.revoke(&BTreeSet::new(), now)?);
        put(services::SERVICE_ACCOUNT_KEY, pki::private_key_pem(&self.service_accounts.to_pkcs8()?).as_bytes());
        put(services::SERVICE_ACCOUNT_PUBLIC, pki::public_key_pem(self.service_accounts.public()).as_bytes());
        put(services::SECRETS_ENCRYPTION, services::secrets_encryption(&self.secrets).as_bytes());
        // The floor asks nobody for names.
        put(RESOLVERS, b"");
        Ok(files)
    }

    /// A kubeconfig for the host, good for an hour: the floor creates no bindings, so it is in the group above RBAC.
    ///
    /// # Errors
    /// [`KeysError`]
    pub fn kubeconfig(&self, server: SocketAddrV4, now: UnixTime) -> Result<Zeroizing<String>, KeysError> {
        let issued = self.kubernetes.issue_with_key(&CertificateProfile::KubeBootstrap, now)?;
        Ok(services::owner_kubeconfig(&OwnerKubeconfig {
            server,
            authority: &pki::certificate_pem(self.kubernetes.certificate()),
            certificate: &pki::certificate_pem(&issued.certificate),
            key: &pki::private_key_pem(&issued.key.to_pkcs8()?),
        }))
    }
}

/// Where Cairn's services find the apiserver.
fn balanced() -> String {
    format!("https://{}", SocketAddrV4::new(Ipv4Addr::LOCALHOST, KUBERNETES_API_PORT))
}

/// URL of this coordinator's own apiserver.
fn direct(plan: &ServicePlan) -> String {
    format!("https://{}", SocketAddrV4::new(plan.vpn(), KUBERNETES_API_PORT))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::time::Duration;

    use super::*;

    /// Every file that a service reads is in the root or below a directory that the floor makes.
    #[test]
    fn every_file_that_a_service_needs_is_there() {
        let now = UnixTime::since_unix_epoch(Duration::from_secs(1_795_000_000));
        let plan = plan();
        let files = Keys::create(now).unwrap().files(&plan, now).unwrap();
        let mut there: BTreeSet<String> = files.iter().map(|file| file.path.replacen(RUN, "/run", 1)).collect();
        assert_eq!(there.len(), files.len(), "no path twice");
        assert!(there.contains(RESOLVERS), "kubelet makes no pod without it");
        there.extend(services::DIRECTORIES.iter().map(|directory| directory.path.to_owned()));
        for unit in units(&plan) {
            let Some(program) = unit.as_program() else { continue };
            for file in program.credentials.iter().flat_map(|one| [one.certificate_path(), one.key_path()]) {
                assert!(there.contains(&file), "{} needs {file}", unit.spec.name);
            }
            for named in program.argv.iter().filter_map(|argument| Some(argument.split_once('=')?.1)) {
                let is_read = named.starts_with("/run/cairn/") && !named.ends_with("/kubelet");
                assert!(!is_read || there.contains(named), "{} needs {named}", unit.spec.name);
            }
        }
    }

    #[test]
    fn services_of_the_floor_go_straight_to_the_apiserver() {
        let now = UnixTime::since_unix_epoch(Duration::from_secs(1_795_000_000));
        let plan = plan();
        let files = Keys::create(now).unwrap().files(&plan, now).unwrap();
        let configs = files.iter().filter(|file| file.path.ends_with(".kubeconfig"));
        let texts: Vec<String> = configs.map(|file| String::from_utf8(file.bytes.clone()).unwrap()).collect();
        assert_eq!(texts.len(), 3);
        assert!(texts.iter().all(|text| text.contains("https://10.118.0.1:6443") && !text.contains("127.0.0.1")));
    }
}
