//! Of a machine that is no coordinator: announces it to one, over the VPN, and hears of the others from it; when that one
//! is silent, from another. Decides nothing of the mesh: what is heard is told to it.
//!
//! ```text
//!   whom it knows, by address ─► connect ─► Announce ─► Peers: news ─► Told, and DATA
//!        ▲  pause                   └ no coordinator, or silent for 15 s: the next one
//!        └── nobody answered ───────┘
//! ```

use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use api::vpn_client::VpnClient;
use api::{Announced, MOST_NEWS_BYTES, Malformed, PeersAnswer, wire};
use cluster::peers::News;
use keys::identity::Identity;
use model::{Chain, VPN_API_PORT};
use pki::server_auth::any_coordinator;
use pki::{CertificateDer, PrivateKey, cluster_tls_name, public_key_of};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::time::{sleep, timeout};
use tonic::transport::{Channel, Endpoint};
use tonic::{Status, Streaming};

use super::peers::Told;
use super::{endpoints, kept};
use crate::facts::Facts;
use crate::runtime::clock::{self, Floor};
use crate::runtime::{tasks, tls};
use crate::version::release;

/// The first packet of a mesh waits for a handshake, which may be tried twice.
const CONNECTS: Duration = Duration::from_secs(10);
/// A coordinator says something every 5 s. An Announce has etcd behind it, which takes no longer.
const SILENT: Duration = Duration::from_secs(15);
/// After a round in which nobody answered; doubled after each further one.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// Who asks.
#[derive(Debug, Clone)]
pub(crate) struct Asker {
    pub(crate) identity: Arc<Identity>,
    /// Its own.
    pub(crate) vpn_ip: Ipv4Addr,
    pub(crate) facts: Facts,
    pub(crate) told: Told,
    /// Where what is heard is kept.
    pub(crate) root: &'static Path,
}

/// Why nobody can be asked.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NotReady {
    #[error("use the machine's key, or its cluster's")]
    Key(#[from] pki::KeyError),
    #[error("configure a client of the VPN API")]
    Tls(#[from] pki::TlsError),
}

/// Why a coordinator is asked no longer.
#[derive(Debug, thiserror::Error)]
enum Left {
    /// It says nothing.
    #[error("says nothing for {} s", SILENT.as_secs())]
    Silent,
    /// It refuses, is no coordinator, or is gone.
    #[error("{0}")]
    Refused(#[source] Box<Status>),
    /// It says what makes no sense.
    #[error("cannot be understood")]
    Answer(#[from] Malformed),
    /// It knows less than this machine does.
    #[error("knows less than this machine")]
    Behind,
    /// It ended what it had to say.
    #[error("says no more")]
    Ended,
}

impl From<Status> for Left {
    fn from(status: Status) -> Self {
        Self::Refused(Box::new(status))
    }
}

/// Whether a coordinator told anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Heard {
    Nothing,
    Something,
}

/// Asks for as long as the machine serves.
///
/// # Errors
/// [`NotReady`] before anybody is asked.
pub(crate) async fn ask(asker: Asker) -> Result<(), NotReady> {
    asker.remember().await;
    let tls = asker.client()?;
    let mut pause = FIRST_PAUSE;
    loop {
        let mut round = Heard::Nothing;
        for address in asker.others() {
            let mut heard = Heard::Nothing;
            let Err(left) = asker.attend(address, tls.clone(), &mut heard).await;
            match heard {
                Heard::Something => {
                    round = heard;
                    tracing::info!(%address, reason = %Chain(&left), "another coordinator is asked");
                }
                Heard::Nothing => tracing::debug!(%address, reason = %Chain(&left), "tells nothing of the others"),
            }
        }
        pause = next_pause(pause, round);
        sleep(pause).await;
    }
}

/// How long to wait behind a round.
fn next_pause(last: Duration, round: Heard) -> Duration {
    match round {
        Heard::Something => FIRST_PAUSE,
        Heard::Nothing => (last * 2).min(LONGEST_PAUSE),
    }
}

impl Asker {
    /// What was heard before this boot is told again: without it nobody is reached.
    async fn remember(&self) {
        if self.told.version().is_some() {
            return; // the task began again
        }
        let root = self.root;
        match tasks::blocking(move || kept::read(root)).await {
            Ok(Some(known)) => self.told.begin(known),
            Ok(None) => tracing::warn!("nothing is known of the cluster's other machines"),
            Err(error) => tracing::warn!(error = %Chain(&error), "what was known of the other machines is lost"),
        }
    }

    /// Whom to ask. Coordinators are among them, first the oldest machines; at the others nobody listens.
    fn others(&self) -> Vec<Ipv4Addr> {
        let known = self.told.known();
        let mut addresses: Vec<_> =
            known.peers().values().map(|peer| peer.vpn_ip).filter(|address| *address != self.vpn_ip).collect();
        addresses.sort_unstable();
        addresses
    }

    fn client(&self) -> Result<ClientConfig, NotReady> {
        let Identity { key, holder, certificate, ca_certificate, .. } = &*self.identity;
        let pin = public_key_of(&CertificateDer::from(ca_certificate.as_slice()))?.pin();
        let key = PrivateKey::ed25519(key.seed())?;
        let shown = pki::Identity { chain: vec![CertificateDer::from(certificate.clone())], key: &key };
        Ok(any_coordinator(holder.cluster, pin, shown, Arc::new(tls::Clock))?)
    }

    /// Tells the coordinator at `address` of this machine, and takes what it tells of others, until it does no more.
    async fn attend(
        &self,
        address: Ipv4Addr,
        tls: ClientConfig,
        heard: &mut Heard,
    ) -> Result<std::convert::Infallible, Left> {
        let name = ServerName::try_from(cluster_tls_name(self.identity.holder.cluster));
        let name = name.expect("hex digits and dots are a DNS name");
        // The authority of requests says nothing: TLS has said whom we speak to.
        let destination = Endpoint::from_static("https://vpn.cairn.internal").connect_timeout(CONNECTS);
        let channel = tls::channel(&destination, SocketAddrV4::new(address, VPN_API_PORT), name, tls);
        let mut client = VpnClient::new(channel).max_decoding_message_size(MOST_NEWS_BYTES);
        let mut facts = self.facts.watch();
        let mut said = self.announce(&mut client).await?;
        tracing::info!(%address, "announced to a coordinator");
        let asked = client.peers(wire::PeersRequest::from(self.told.version()));
        let mut news = timeout(SILENT, asked).await.map_err(|_elapsed| Left::Silent)??.into_inner();
        loop {
            tokio::select! {
                told = next(&mut news) => {
                    self.take(told?).await?;
                    *heard = Heard::Something;
                }
                Ok(()) = facts.changed() => {
                    if self.facts.read(|now| endpoints(&now.links)) != said {
                        said = self.announce(&mut client).await?;
                    }
                }
            }
        }
    }

    /// Says what this machine runs, and where it may be reached; returns the latter.
    async fn announce(&self, client: &mut VpnClient<Channel>) -> Result<Vec<keys::endpoint::Endpoint>, Left> {
        let endpoints = self.facts.read(|now| endpoints(&now.links));
        let said = Announced { release: release(), endpoints: endpoints.clone() };
        let answered = timeout(SILENT, client.announce(wire::AnnounceRequest::from(said))).await;
        let answer = answered.map_err(|_elapsed| Left::Silent)??.into_inner();
        clock::not_before(Floor::Cluster(answer.time_unix_s));
        Ok(endpoints)
    }

    async fn take(&self, news: News) -> Result<(), Left> {
        match news {
            News::Nothing => return Ok(()),
            News::Behind => return Err(Left::Behind),
            News::Whole { .. } | News::Changed { .. } => self.told.take(news),
        }
        let (root, known) = (self.root, self.told.known());
        if let Err(error) = tasks::blocking(move || kept::write(root, &known)).await {
            tracing::warn!(%error, "what is known of the other machines is not kept");
        }
        Ok(())
    }
}

/// What a coordinator says next.
async fn next(news: &mut Streaming<wire::PeersResponse>) -> Result<News, Left> {
    let told = timeout(SILENT, news.message()).await.map_err(|_elapsed| Left::Silent)??;
    let PeersAnswer(news) = PeersAnswer::try_from(told.ok_or(Left::Ended)?)?;
    Ok(news)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_while_nobody_answers_and_begin_again_behind_somebody_who_did() {
        let seconds = |rounds: &[Heard]| {
            let pause = rounds.iter().fold(FIRST_PAUSE, |pause, round| next_pause(pause, *round));
            pause.as_secs()
        };
        assert_eq!(seconds(&[Heard::Nothing]), 2);
        assert_eq!(seconds(&[Heard::Nothing; 3]), 8);
        assert_eq!(seconds(&[Heard::Nothing; 40]), 30);
        assert_eq!(seconds(&[Heard::Nothing, Heard::Nothing, Heard::Something]), 1);
    }
}
