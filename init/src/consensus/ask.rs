//! Of a machine without records of its own: announces it to a coordinator, over the VPN, and hears of the others from it,
//! and what it is to be itself; when that one is silent, from another. Decides nothing: what is heard is told.
//!
//! ```text
//!   whom it knows, by address ─► connect ─► Announce ─► Peers: news ─► Told, and DATA; directories
//!        ▲  pause                   └ no coordinator, or silent for 15 s: the next one
//!        └── nobody answered ───────┘           An announcement that is put off is made again, with the last value
//! ```

use std::convert::Infallible;
use std::error::Error as _;
use std::future::pending;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use api::vpn_client::VpnClient;
use api::{Announced, HandedOver, MOST_NEWS_BYTES, Malformed, PeersAnswer, wire};
use cluster::desired::Desired;
use cluster::peers::News;
use enrol::renewal::Giver;
use keys::identity::Identity;
use model::{Chain, VPN_API_PORT};
use pki::server_auth::any_coordinator;
use pki::{CertificateDer, PrivateKey, cluster_tls_name, public_key_of};
use rustls::pki_types::ServerName;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status, Streaming};

use super::Records;
use crate::enrolment::Directories;
use crate::facts::Facts;
use crate::network::mesh::peers::Told;
use crate::network::mesh::{endpoints, is_news, kept};
use crate::runtime::services::until;
use crate::runtime::{clock, tasks, tls};
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
    /// Which cluster key its disk is locked with.
    pub(crate) key_generation: u32,
    pub(crate) facts: Facts,
    pub(crate) told: Told,
    /// Where what is heard is kept.
    pub(crate) root: &'static Path,
    /// Desired state of the machine, as it heard last.
    pub(crate) desired: watch::Sender<Option<Desired>>,
    /// Its own records, while it coordinates: as long as they are kept up, nobody is asked.
    pub(crate) records: watch::Receiver<Option<Records>>,
    /// Of which epoch of the cold-start key it holds a share that it could not acknowledge itself.
    pub(crate) epoch: watch::Sender<Option<u32>>,
    /// Who is told of directories, which are not believed here.
    pub(crate) directories: Directories,
}

/// Why nobody can be asked.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NotReady {
    #[error("use the machine's key, or its cluster's")]
    Key(#[from] pki::KeyError),
    #[error("configure a client of the VPN API")]
    Tls(#[from] pki::TlsError),
}

/// Why nothing is handed over.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NotHanded {
    #[error(transparent)]
    NotReady(#[from] NotReady),
    /// No other machine is known.
    #[error("no coordinator is known")]
    Nobody,
    #[error("a coordinator")]
    Refused(#[from] Left),
}

/// Why a coordinator is asked no longer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Left {
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
    let client = asker.client()?;
    let mut pause = FIRST_PAUSE;
    loop {
        asker.without_records().await;
        let mut round = Heard::Nothing;
        for address in asker.others() {
            let mut heard = Heard::Nothing;
            let left = tokio::select! {
                Err(left) = asker.attend(address, client.clone(), &mut heard) => left,
                () = asker.with_records() => {
                    tracing::info!(%address, "this machine has records of its own, and asks nobody");
                    round = Heard::Something;
                    break;
                }
            };
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
    /// Waits until it has nobody but others to hear of the cluster.
    async fn without_records(&self) {
        let mut records = self.records.clone();
        loop {
            let Some(own) = records.borrow_and_update().clone() else { return };
            tokio::select! {
                () = own.lapsed() => return,
                _other_ones = records.changed() => {}
            }
        }
    }

    /// Waits until it hears of the cluster by its own records.
    async fn with_records(&self) {
        let mut records = self.records.clone();
        let own = records.wait_for(Option::is_some).await.map(|own| own.clone());
        match own {
            Ok(Some(own)) => own.kept().await,
            Ok(None) | Err(_) => pending().await, // the machine ends
        }
    }

    /// Has a coordinator hand over what makes one of this machine.
    ///
    /// # Errors
    /// Why a coordinator does not, or none is reached.
    pub(crate) async fn hand_over(&self) -> Result<HandedOver, NotHanded> {
        let client = self.client()?;
        // What a coordinator says tells more than that nobody listens at a node.
        let (mut refused, mut unheard) = (None, None);
        for address in self.others() {
            let mut client = self.connect(address, client.clone());
            match timeout(SILENT, client.hand_over(wire::HandOverRequest {})).await {
                Err(_elapsed) => unheard = Some(Left::Silent),
                Ok(Err(status)) if status.source().is_some() => unheard = Some(status.into()),
                Ok(Err(status)) => refused = Some(status.into()),
                Ok(Ok(answer)) => return Ok(HandedOver::try_from(answer.into_inner()).map_err(Left::from)?),
            }
        }
        Err(refused.or(unheard).map_or(NotHanded::Nobody, NotHanded::Refused))
    }

    /// What was heard before this boot is told again: without it nobody is reached.
    async fn remember(&self) {
        if self.told.version().is_some() {
            return; // the task began again
        }
        let root = self.root;
        match tasks::blocking(move || kept::read(root)).await {
            Ok(Some(known)) => self.told.begin(known),
            Ok(None) => tracing::debug!("nothing is known of the cluster's other machines"),
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

    fn client(&self) -> Result<tls::Client, NotReady> {
        let Identity { key, holder, certificate, ca_certificate, .. } = &*self.identity;
        let pin = public_key_of(&CertificateDer::from(ca_certificate.as_slice()))?.pin();
        let key = PrivateKey::ed25519(key.seed())?;
        let shown = pki::Identity { chain: vec![CertificateDer::from(certificate.clone())], key: &key };
        let config = any_coordinator(holder.cluster, pin, shown, Arc::new(tls::Clock))?;
        Ok(tls::Client { config, standstills: self.facts.standstills().clone() })
    }

    /// Connects when something is asked.
    fn connect(&self, address: Ipv4Addr, client: tls::Client) -> VpnClient<Channel> {
        let name = ServerName::try_from(cluster_tls_name(self.identity.holder.cluster));
        let name = name.expect("hex digits and dots are a DNS name");
        // The authority of requests says nothing: TLS has said whom we speak to.
        let destination = Endpoint::from_static("https://vpn.cairn.internal").connect_timeout(CONNECTS);
        let channel = tls::channel(&destination, SocketAddrV4::new(address, VPN_API_PORT), name, client);
        VpnClient::new(channel).max_decoding_message_size(MOST_NEWS_BYTES)
    }

    /// Tells the coordinator at `address` of this machine, and takes what it tells of others, until it does no more.
    async fn attend(&self, address: Ipv4Addr, tls: tls::Client, heard: &mut Heard) -> Result<Infallible, Left> {
        let mut client = self.connect(address, tls.clone());
        let (mut facts, mut epoch) = (self.facts.watch(), self.epoch.subscribe());
        let mut others = pin!(self.hear_others(address, tls));
        let mut said = Said::default();
        self.announce(&mut client, &mut said).await?;
        if said.again.is_none() {
            tracing::info!(%address, "announced to a coordinator");
        }
        let asked = client.peers(wire::PeersRequest::from(self.told.version()));
        let mut news = timeout(SILENT, asked).await.map_err(|_elapsed| Left::Silent)??.into_inner();
        loop {
            tokio::select! {
                told = next(&mut news) => {
                    self.take(told?, address)?;
                    *heard = Heard::Something;
                }
                never = &mut others => match never {},
                Ok(()) = epoch.changed(), if said.again.is_none() => self.announce(&mut client, &mut said).await?,
                Ok(()) = facts.changed(), if said.again.is_none() => {
                    if is_news(&said.endpoints, &self.places()) {
                        self.announce(&mut client, &mut said).await?;
                    }
                }
                () = until(said.again) => self.announce(&mut client, &mut said).await?,
            }
        }
    }

    /// Says what this machine runs, and where it may be reached, as of now.
    async fn announce(&self, client: &mut VpnClient<Channel>, said: &mut Said) -> Result<(), Left> {
        let endpoints = self.places();
        let (key_generation, epoch) = (self.key_generation, *self.epoch.borrow());
        let announced = Announced { release: release(), endpoints: endpoints.clone(), key_generation, epoch };
        let answered = timeout(SILENT, client.announce(wire::AnnounceRequest::from(announced))).await;
        match answered.map_err(|_elapsed| Left::Silent)? {
            Ok(_) => said.is_heard(endpoints),
            Err(status) if status.code() == Code::ResourceExhausted => {
                tracing::debug!(reason = status.message(), "the announcement is put off");
                said.is_put_off(clock::now());
            }
            Err(status) => return Err(status.into()),
        }
        Ok(())
    }

    fn places(&self) -> Vec<keys::endpoint::Endpoint> {
        self.facts.read(|now| endpoints(&now.links))
    }

    /// Has coordinators say where they are that should be heard beside the one at `address`, whenever there are others.
    async fn hear_others(&self, address: Ipv4Addr, tls: tls::Client) -> Infallible {
        let mut missing = self.directories.missing();
        missing.mark_changed();
        while missing.changed().await.is_ok() {
            let machines = missing.borrow_and_update().clone();
            let places = machines.iter().filter_map(|machine| self.told.vpn_ip(machine));
            for other in places.filter(|other| *other != address && *other != self.vpn_ip) {
                match timeout(SILENT, self.hear_directory(other, tls.clone())).await {
                    Ok(Ok(())) => tracing::debug!(address = %other, "a second coordinator tells its directory"),
                    Ok(Err(left)) => tracing::debug!(address = %other, reason = %Chain(&left), "no second directory"),
                    Err(_elapsed) => tracing::debug!(address = %other, "no second directory: says nothing"),
                }
            }
        }
        pending().await // the machine ends
    }

    /// Takes the directory of one coordinator, and nothing else that it says.
    async fn hear_directory(&self, address: Ipv4Addr, tls: tls::Client) -> Result<(), Left> {
        let mut client = self.connect(address, tls);
        let mut news = client.peers(wire::PeersRequest::from(self.told.version())).await?.into_inner();
        loop {
            if let PeersAnswer::Directory(signed) = next(&mut news).await? {
                self.directories.tell(self.giver(address), signed);
                return Ok(());
            }
        }
    }

    /// Who speaks at an address of the VPN: no other machine has the key that packets from there are made with.
    fn giver(&self, address: Ipv4Addr) -> Giver {
        self.told.machine_at(address).map_or(Giver::Stranger, Giver::Coordinator)
    }

    fn take(&self, answer: PeersAnswer, from: Ipv4Addr) -> Result<(), Left> {
        match answer {
            PeersAnswer::Directory(signed) => self.directories.tell(self.giver(from), signed),
            PeersAnswer::Desired(desired) => self.follow(*desired)?,
            PeersAnswer::News(News::Behind) => return Err(Left::Behind),
            PeersAnswer::News(News::Nothing) => {}
            PeersAnswer::News(news) => {
                let version = news.version();
                self.told.take(news);
                self.desired.send_if_modified(|desired| {
                    if let Some(desired) = desired {
                        desired.at = version.max(desired.at);
                    }
                    false // it says the same
                });
            }
        }
        Ok(())
    }

    fn follow(&self, desired: Desired) -> Result<(), Left> {
        let known = self.desired.borrow().as_ref().and_then(|desired| desired.at);
        if desired.is_behind(known.max(self.told.version())) {
            return Err(Left::Behind);
        }
        self.desired.send_if_modified(|known| {
            let is_other = known.as_ref().is_none_or(|known| !known.says_the_same(&desired));
            *known = Some(desired);
            is_other
        });
        Ok(())
    }
}

/// What one coordinator has heard of this machine.
#[derive(Debug, Default)]
struct Said {
    endpoints: Vec<keys::endpoint::Endpoint>,
    /// The coordinator has put the last announcement off: from then on it is made again, with what holds by then, and none before.
    again: Option<Instant>,
}

impl Said {
    fn is_heard(&mut self, endpoints: Vec<keys::endpoint::Endpoint>) {
        *self = Self { endpoints, again: None };
    }

    fn is_put_off(&mut self, now: Instant) {
        self.again = Some(now + door::AGAIN);
    }
}

/// What a coordinator says next.
async fn next(news: &mut Streaming<wire::PeersResponse>) -> Result<PeersAnswer, Left> {
    let told = timeout(SILENT, news.message()).await.map_err(|_elapsed| Left::Silent)??;
    Ok(PeersAnswer::try_from(told.ok_or(Left::Ended)?)?)
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

    /// Whatever it is put off for, the last word is heard. Proves: M6
    #[test]
    fn the_last_announcement_of_many_is_heard() {
        let at = |host: u8| keys::endpoint::Endpoint::read(&format!("192.0.2.{host}:7838")).expect("an endpoint");
        let (machine, begin) = (model::MachineId([1; 16]), clock::now());
        let (mut said, mut changes, mut heard) = (Said::default(), door::Changes::default(), Vec::new());
        // Forty addresses, each 100 ms apart; then nothing for half a minute.
        for tick in 0..340_u64 {
            let (now, place) = (begin + Duration::from_millis(100 * tick), u8::try_from(tick.min(40)).expect("few"));
            let due = said.again.map_or(is_news(&said.endpoints, &[at(place)]), |again| now >= again);
            if due && changes.ask(machine, now).is_ok() {
                heard.push(place);
                said.is_heard(vec![at(place)]);
            } else if due {
                said.is_put_off(now);
            }
        }
        assert_eq!((heard.len(), heard.last()), (6, Some(&40)), "{heard:?}");
    }
}
