//! Connections of a member to coordinators, over the VPN: what is said there and what comes back. Decides nothing; a word is an event, and
//! whoever is silent is left by the crate `member`.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::Arc;
use std::time::Duration;

use ::member::{Announcement, EffectOutcome, SILENT, VpnPlace};
use api::vpn_client::VpnClient;
use api::{
    CertificateRequests, FieldError, FloatingAddresses, HandedOver, MOST_NEWS_BYTES, Presence, WorkerCertificates, wire,
};
use cluster::{Knowledge, Word};
use keys::identity::Identity;
use model::{MachineId, VPN_API_PORT};
use pki::server_auth::any_coordinator;
use pki::{CertificateDer, PrivateKey, cluster_tls_name, public_key_of};
use rustls::pki_types::ServerName;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status};

use crate::facts::Facts;
use crate::runtime::tasks::{self, Task};
use crate::runtime::tls;
use crate::version::release;

/// Time for the first packets of a mesh, which wait for a handshake that may be tried twice.
const CONNECTS: Duration = Duration::from_secs(10);

/// Why nobody can be asked.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ClientError {
    /// A key is none.
    #[error("use the machine's key, or its cluster's")]
    Key(#[from] pki::KeyError),
    /// Certificate and key do not fit.
    #[error("configure a client of the VPN API")]
    Tls(#[from] pki::TlsError),
}

/// Why a coordinator does not do what it was asked for.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CallError {
    /// No answer came in time.
    #[error("says nothing for {} s", .0.as_secs())]
    Silent(Duration),
    /// A refusal, or nobody who listens.
    #[error("{}", .0.message())]
    Refused(Box<Status>),
    /// An answer that makes no sense.
    #[error("cannot be understood")]
    Answer(#[from] FieldError),
    /// The end of the stream.
    #[error("says no more")]
    Ended,
}

impl CallError {
    /// Whether the coordinator may have a leader though it tells nothing: it has just begun and cannot say yet, or has records that are
    /// kept up, by which this machine does not belong.
    pub(super) fn may_lead(&self) -> bool {
        matches!(self, Self::Refused(status) if [api::NOT_YET, Code::PermissionDenied].contains(&status.code()))
    }
}

impl From<Status> for CallError {
    fn from(status: Status) -> Self {
        Self::Refused(Box::new(status))
    }
}

/// Dialler of the cluster's coordinators, with the machine's own identity.
#[derive(Debug, Clone)]
pub(super) struct Dialler {
    tls: tls::Client,
    name: ServerName<'static>,
    /// Generation of the cluster key that the machine's disk is locked with.
    key_generation: u32,
}

/// Coordinator that is listened to; dropped, the connection ends.
#[derive(Debug)]
pub(super) struct Attended {
    pub(super) by: MachineId,
    client: VpnClient<Channel>,
    words: mpsc::Receiver<Result<Word, CallError>>,
    _hears: Task<()>,
}

impl Dialler {
    /// Dialler of the machine with this identity.
    ///
    /// # Errors
    /// [`ClientError`] before anybody is asked.
    pub(super) fn new(identity: &Identity, key_generation: u32, facts: &Facts) -> Result<Self, ClientError> {
        let Identity { key, holder, certificate, ca_certificate, .. } = identity;
        let pin = public_key_of(&CertificateDer::from(ca_certificate.as_slice()))?.pin();
        let key = PrivateKey::ed25519(key.seed())?;
        let shown = pki::TlsIdentity { chain: vec![CertificateDer::from(certificate.clone())], key: &key };
        let config = any_coordinator(holder.cluster, pin, shown, Arc::new(tls::Clock))?;
        let name = ServerName::try_from(cluster_tls_name(holder.cluster)).expect("hex digits and dots are a DNS name");
        let tls = tls::Client { config, standstills: facts.standstills().clone() };
        Ok(Self { tls, name, key_generation })
    }

    /// Client of the coordinator at this address of the VPN, which only its machine can answer at: packets from there are made with its
    /// key. Connects when something is asked.
    pub(super) fn client(&self, address: Ipv4Addr) -> VpnClient<Channel> {
        // The authority of requests says nothing: TLS has said whom we speak to.
        let destination = Endpoint::from_static("https://vpn.cairn.internal").connect_timeout(CONNECTS);
        let address = SocketAddrV4::new(address, VPN_API_PORT);
        let channel = tls::channel(&destination, address, self.name.clone(), self.tls.clone());
        VpnClient::new(channel).max_decoding_message_size(MOST_NEWS_BYTES)
    }

    /// Listens to a coordinator, as a machine that knows so much.
    pub(super) fn attend(&self, (by, address): VpnPlace, known: Knowledge) -> Attended {
        let client = self.client(address);
        // One word is under way while the one before is obeyed.
        let (sender, words) = mpsc::channel(1);
        let mut stream = client.clone();
        let hears = tasks::spawn(async move {
            let mut news = match stream.peers(wire::PeersRequest::from(known)).await {
                Ok(news) => news.into_inner(),
                Err(status) => return drop(sender.send(Err(status.into())).await),
            };
            loop {
                let word = match news.message().await {
                    Ok(Some(word)) => Word::try_from(word).map_err(CallError::from),
                    Ok(None) => Err(CallError::Ended),
                    Err(status) => Err(status.into()),
                };
                let is_last = word.is_err();
                if sender.send(word).await.is_err() || is_last {
                    return;
                }
            }
        });
        Attended { by, client, words, _hears: hears }
    }

    /// Announces the machine to a coordinator that is listened to.
    ///
    /// # Errors
    /// [`CallError`].
    pub(super) async fn announce(
        self,
        attended: VpnClient<Channel>,
        said: Announcement,
    ) -> Result<EffectOutcome, CallError> {
        let mut client = attended;
        let Announcement { endpoints, epoch } = said;
        let announced = Presence { release: release(), endpoints, key_generation: self.key_generation, epoch };
        match in_time(client.announce(wire::AnnounceRequest::from(announced))).await {
            Ok(_) => Ok(EffectOutcome::Whole),
            Err(CallError::Refused(status)) if status.code() == Code::ResourceExhausted => Ok(EffectOutcome::PutOff),
            Err(error) => Err(error),
        }
    }

    /// Has a coordinator hand its keys over.
    ///
    /// # Errors
    /// [`CallError`].
    pub(super) async fn hand_over(self, (_, address): VpnPlace) -> Result<HandedOver, CallError> {
        let answer = in_time(self.client(address).hand_over(wire::HandOverRequest {})).await?;
        Ok(HandedOver::try_from(answer)?)
    }

    /// Has a coordinator certify keys of a Kubernetes worker.
    ///
    /// # Errors
    /// [`CallError`].
    pub(super) async fn certify(
        self,
        (_, address): VpnPlace,
        requests: CertificateRequests,
    ) -> Result<WorkerCertificates, CallError> {
        let request = wire::CertifyRequest::from(requests);
        Ok(in_time(self.client(address).certify(request)).await?.into())
    }

    /// Directory of a coordinator; nothing else that it says is taken.
    ///
    /// # Errors
    /// [`CallError`].
    pub(super) async fn directory(self, (_, address): VpnPlace) -> Result<Vec<u8>, CallError> {
        let mut client = self.client(address);
        let told = async {
            let mut news = client.peers(wire::PeersRequest::from(Knowledge::default())).await?.into_inner();
            while let Some(word) = news.message().await? {
                if let Word::Directory(signed) = Word::try_from(word)? {
                    return Ok(signed);
                }
            }
            Err(CallError::Ended)
        };
        timeout(SILENT, told).await.unwrap_or(Err(CallError::Silent(SILENT)))
    }
}

impl Attended {
    /// Client on the same connection.
    pub(super) fn client(&self) -> VpnClient<Channel> {
        self.client.clone()
    }

    /// Next word of the coordinator; an error is the last.
    pub(super) async fn word(&mut self) -> Result<Word, CallError> {
        self.words.recv().await.unwrap_or(Err(CallError::Ended))
    }
}

/// Floating addresses of these that the machine may hold, by the word of the coordinator at the other end within this time.
///
/// # Errors
/// [`CallError`].
pub(super) async fn hold(
    coordinator: VpnClient<Channel>,
    addresses: BTreeSet<Ipv4Addr>,
    time: Duration,
) -> Result<BTreeSet<Ipv4Addr>, CallError> {
    let mut client = coordinator;
    let request = wire::HoldRequest::from(FloatingAddresses(addresses));
    let FloatingAddresses(held) = within(time, client.hold(request)).await?.try_into()?;
    Ok(held)
}

/// Answer of a call, if it comes in the time that every coordinator is given.
async fn in_time<T>(call: impl Future<Output = Result<tonic::Response<T>, Status>>) -> Result<T, CallError> {
    within(SILENT, call).await
}

/// Answer of a call, if it comes within this time.
async fn within<T>(
    time: Duration,
    call: impl Future<Output = Result<tonic::Response<T>, Status>>,
) -> Result<T, CallError> {
    match timeout(time, call).await {
        Ok(answered) => Ok(answered?.into_inner()),
        Err(_elapsed) => Err(CallError::Silent(time)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::records::{NoNews, Unread};

    /// A machine that was removed while it was off finds the note of a recovery, and those who know that it was. Proves: K6
    #[test]
    fn who_knows_the_records_may_lead() {
        let refused = |why: NoNews| CallError::from(Status::from(why)).may_lead();
        assert!(refused(NoNews::NotMember), "by records that are kept up");
        assert!(refused(NoNews::Unread(Unread)), "in a moment");
        assert!(!refused(NoNews::Lapsed));
        assert!(!CallError::from(Status::unavailable("nobody listens")).may_lead());
        assert!(!CallError::Ended.may_lead() && !CallError::Silent(SILENT).may_lead());
    }
}
