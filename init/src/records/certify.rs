//! Certificates for Kubernetes workers: who one is stands in its record, and of a request nothing is taken but its key.

use std::net::Ipv4Addr;

use api::{CertificateRequests, WorkerCertificate, WorkerCertificates};
use model::{MachineId, NodeName};
use pki::{BadRequest, CertificateProfile, IssueError, UnixTime};

use super::{GrantError, Records, Unread};
use crate::runtime::clock;

/// Why nothing was signed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CertifyError {
    /// No worker by its record.
    #[error("the record of this machine makes no Kubernetes worker of it; nothing was signed")]
    NoWorker,
    /// The records cannot be read.
    #[error(transparent)]
    Unread(#[from] Unread),
    /// The records that a quorum has cannot be read.
    #[error(transparent)]
    Unconfirmed(#[from] GrantError),
    /// A request is none, or does not prove that its sender has the key.
    #[error("{0}; nothing was signed")]
    Request(#[from] BadRequest),
    /// The authority failed.
    #[error("sign a certificate of a Kubernetes worker")]
    Issue(#[from] IssueError),
}

impl Records {
    /// Certificates for the keys of `machine`.
    ///
    /// # Errors
    /// [`CertifyError`]; then none was signed that anybody has.
    pub(crate) async fn certify(
        &self,
        machine: MachineId,
        CertificateRequests(requests): CertificateRequests,
    ) -> Result<WorkerCertificates, CertifyError> {
        self.worker(machine)?;
        // And by what a quorum has now: a copy that is cut off would sign for whom the others have removed.
        self.catch_up().await?;
        self.sign(&self.worker(machine)?, &requests)
    }

    fn worker(&self, machine: MachineId) -> Result<(NodeName, Ipv4Addr), CertifyError> {
        let name = |view: &cluster::View| view.state().worker(&machine).map(|it| (it.name.clone(), it.vpn_ip));
        self.read(|view, _| name(view))?.ok_or(CertifyError::NoWorker)
    }

    fn sign(
        &self,
        (node, vpn): &(NodeName, Ipv4Addr),
        requests: &[(WorkerCertificate, Vec<u8>)],
    ) -> Result<WorkerCertificates, CertifyError> {
        let (authority, now) = (&self.authorities.kubernetes, UnixTime::since_unix_epoch(clock::unix()));
        let sign = |(certificate, request): &(WorkerCertificate, Vec<u8>)| {
            let profile = match certificate {
                WorkerCertificate::KubeletClient => CertificateProfile::KubeletClient { node },
                WorkerCertificate::KubeletServer => CertificateProfile::KubeletServer { node, vpn: *vpn },
                WorkerCertificate::DnsClient => CertificateProfile::KubeDns { node },
                WorkerCertificate::ProxyClient => CertificateProfile::KubeProxy { node },
            };
            Ok(authority.issue(&profile, &pki::accept_request(request)?, now)?.to_vec())
        };
        let certificates = requests.iter().map(sign).collect::<Result<_, CertifyError>>()?;
        Ok(WorkerCertificates { authority: authority.certificate().to_vec(), certificates })
    }
}

#[cfg(test)]
mod tests {
    use cluster::record::{MachineRecord, Standing};
    use model::{KubernetesRole, pod_prefix};
    use pki::{CertificateDer, CertificatePurpose, PrivateKey, make_request, verify};

    use super::super::fixture::{facts, machine, records};
    use super::*;

    fn worker(n: u8, standing: Standing) -> MachineRecord {
        MachineRecord { kubernetes: [KubernetesRole::Worker].into(), pods: Some(pod_prefix(n)), ..machine(n, standing) }
    }

    /// Proves: W3 W7
    #[tokio::test]
    async fn a_certificate_says_what_the_record_does() {
        let known = [worker(1, Standing::Member), worker(2, Standing::Removed), machine(3, Standing::Member)];
        let records = records(&facts(), &known, None);
        let (key, now) = (PrivateKey::generate().expect("a key"), UnixTime::since_unix_epoch(clock::unix()));
        let request = make_request(&key).expect("a request").to_vec();
        let ids = known.each_ref().map(MachineRecord::id);
        let identity = records.worker(ids[0]).expect("a worker");
        assert_eq!(identity, (known[0].name.clone(), known[0].vpn_ip));
        for id in [ids[1], ids[2], MachineId([9; 16])] {
            assert!(matches!(records.worker(id), Err(CertifyError::NoWorker)), "removed, no worker, unknown");
        }
        let asked = [WorkerCertificate::KubeletClient, WorkerCertificate::KubeletServer];
        let signed = records.sign(&identity, &asked.map(|it| (it, request.clone()))).expect("signed");
        let authority = CertificateDer::from(signed.authority);
        let purposes = [CertificatePurpose::Client, CertificatePurpose::Server(identity.0.as_str())];
        for (certificate, purpose) in signed.certificates.iter().zip(purposes) {
            let certificate = CertificateDer::from(certificate.as_slice());
            verify(&certificate, &authority, purpose, now).expect("of the authority, for this");
            assert_eq!(pki::public_key_of(&certificate).expect("a key").pin(), key.public().pin());
        }
        let refused = records.sign(&identity, &[(asked[0], vec![1, 2])]).expect_err("no request");
        assert_eq!(refused.to_string(), "not a certificate signing request; nothing was signed");
    }
}
