//! Voters that were all switched off open one another: asks the others for their shares of the cold-start key, and has this
//! machine's for those that ask. Who is given what, and when it is enough, is `enrol`'s matter. Must never keep a share longer
//! than it waits.
//!
//! ```text
//!   waits ─► asks each other voter of its directory, in rounds ──┐
//!     └───── is asked by them, at the public API ────────────────┴─► a quorum: the half, which goes on as any other does
//!   open  ── is asked while its etcd has no leader: gives the share that lies on its ESP
//! ```

use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};

use api::Malformed;
use enrol::asking::Answer;
use enrol::contribute::{Gathering, NotShared};
use enrol::join::pace::{Pace, Round};
use enrol::release::Keyless;
use keys::cold_start::Contribution;
use keys::endpoint::Endpoint;
use model::{Chain, MachineId, PUBLIC_API_PORT};
use pki::{CertificateDer, SpkiPin};
use tokio::sync::mpsc;
use tokio::time::sleep;

use super::ask::{Asks, Ends, NotAnswered, chance, has_a_link};
use super::recover::Told;
use super::shares::{ReadError, Shares};
use crate::facts::Facts;
use crate::runtime::lock;
use crate::shown::board::Board;

/// A share, and where a few machines are.
const MOST_ANSWER_BYTES: usize = api::limits::MACHINE_REQUEST_BYTES;

/// This machine's part in a cold start; clones share it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Exchange(Arc<Mutex<Part>>);

#[derive(Debug, Default)]
enum Part {
    /// It has no share, or needs nobody's.
    #[default]
    None,
    /// It waits for the others'.
    Waits(Arc<Waits>),
    /// Its data is open.
    Open(Shares),
}

/// A voter that waits.
#[derive(Debug)]
pub(super) struct Waits {
    gathering: Mutex<Gathering>,
    authority: SpkiPin,
    answers: mpsc::Sender<Told>,
    facts: Facts,
}

/// Why nothing is exchanged.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NotExchanged {
    /// It holds none, or needs none.
    #[error("this machine takes no part in a cold start; nothing was exchanged")]
    NoPart,
    /// Not with this machine.
    #[error("{0}; nothing was exchanged")]
    NotShared(#[from] NotShared),
    /// The ESP.
    #[error("read this machine's shares")]
    Read(#[from] ReadError),
}

impl Exchange {
    /// A machine without its key waits from now on, if it has a share that needs others; what they come to goes to `answers`.
    pub(super) fn waits(
        &self,
        keyless: Keyless<'_>,
        answers: &mpsc::Sender<Told>,
        board: &Board,
    ) -> Option<Arc<Waits>> {
        let certificate = CertificateDer::from(keyless.identity().ca_certificate.as_slice());
        let authority = pki::public_key_of(&certificate)
            .inspect_err(|error| board.error(&format!("the cluster's CA cannot be read: {}", Chain(error))))
            .ok()?;
        let gathering = keyless
            .gathering(&authority.spki())
            .inspect_err(|error| board.error(&format!("no shares are exchanged: {}", Chain(error))))
            .ok()??;
        let waits = Arc::new(Waits {
            gathering: Mutex::new(gathering),
            authority: authority.pin(),
            answers: answers.clone(),
            facts: board.facts().clone(),
        });
        *lock::even_if_poisoned(&self.0) = Part::Waits(waits.clone());
        Some(waits)
    }

    /// It waits no more, or coordinates no more.
    pub(crate) fn over(&self) {
        *lock::even_if_poisoned(&self.0) = Part::None;
    }

    /// Its data is open, and it coordinates.
    pub(crate) fn opens(&self, shares: &Shares) {
        *lock::even_if_poisoned(&self.0) = Part::Open(shares.clone());
    }

    /// `machine`, which has proved to be that machine, calls from `source`, gives its share, and is given this machine's.
    ///
    /// # Errors
    /// [`NotExchanged`]: then neither was.
    pub(crate) async fn contribute(
        &self,
        machine: MachineId,
        source: IpAddr,
        given: Contribution,
    ) -> Result<Contribution, NotExchanged> {
        let shares = match &*lock::even_if_poisoned(&self.0) {
            Part::None => return Err(NotExchanged::NoPart),
            Part::Waits(waits) => return Ok(waits.exchange(machine, source, given)?),
            Part::Open(shares) => shares.clone(),
        };
        Ok(shares.voter().await?.contribution(machine, given.epoch, Vec::new())?)
    }
}

impl Waits {
    /// Both give, or neither.
    fn exchange(&self, machine: MachineId, source: IpAddr, given: Contribution) -> Result<Contribution, NotShared> {
        let endpoints = self.endpoints();
        let mut gathering = lock::even_if_poisoned(&self.gathering);
        let ours = gathering.contribution(machine, given.epoch, endpoints)?;
        let source = Endpoint::read(&SocketAddr::from((source, PUBLIC_API_PORT)).to_string()).ok();
        self.comes_to(gathering.take(machine, source, given)?);
        tracing::info!(%machine, epoch = ours.epoch, "a share of the cold-start key is exchanged with a voter that called");
        Ok(ours)
    }

    /// With a quorum the machine goes on.
    fn comes_to(&self, answer: Option<Answer>) {
        if let Some(answer) = answer {
            let told = Told { answer, outcome: None };
            // Full: somebody else has just answered.
            let _or_answered_already = self.answers.try_send(told);
        }
    }

    fn endpoints(&self) -> Vec<Endpoint> {
        let texts = self.facts.read(|now| super::endpoints(&now.links));
        texts.iter().filter_map(|text| Endpoint::read(text).ok()).collect()
    }

    /// Asks the other voters, in rounds, for as long as it waits.
    pub(super) async fn ask(&self, keyless: Keyless<'_>, board: &Board) -> Infallible {
        let identity = keyless.identity();
        let asks = Asks { cluster: identity.holder.cluster, authority: self.authority, key: &identity.key };
        let mut pace = Pace::new();
        has_a_link(board).await;
        loop {
            board.step("ask the other coordinators for their shares");
            let mut partners = lock::even_if_poisoned(&self.gathering).voter().partners();
            let first = usize::try_from(chance()).unwrap_or(0) % partners.len().max(1);
            partners.rotate_left(first);
            for (machine, epochs) in partners {
                self.ask_one(asks, machine, &epochs, board).await;
            }
            sleep(pace.after(Round::Unanswered, chance())).await;
        }
    }

    /// Asks one of them wherever it may be, for a share of the newest epoch that both hold.
    async fn ask_one(&self, asks: Asks<'_>, machine: MachineId, epochs: &[u32], board: &Board) {
        let endpoints = lock::even_if_poisoned(&self.gathering).endpoints(machine);
        for endpoint in endpoints {
            for epoch in epochs {
                match self.call(asks, machine, *epoch, &endpoint).await {
                    Ok(()) => return,
                    Err(why) => {
                        let reason = Chain(&why).to_string();
                        tracing::warn!(%machine, epoch, reason, "no share from another voter");
                        board.error(&format!(
                            "no share from another coordinator: {reason}. Nothing was changed; this machine asks again"
                        ));
                        if why.round() == Round::Unanswered {
                            break;
                        }
                    }
                }
            }
        }
    }

    async fn call(&self, asks: Asks<'_>, machine: MachineId, epoch: u32, endpoint: &Endpoint) -> Result<(), NotGiven> {
        let session = asks.connect_to(machine, endpoint).await?;
        // Only behind the handshake: whoever answers is that machine.
        let ours = lock::even_if_poisoned(&self.gathering).contribution(machine, epoch, self.endpoints())?;
        let request = api::wire::Contribution::from(ours);
        let response = session.call(MOST_ANSWER_BYTES, async |client| client.contribute(request).await).await?;
        let given = Contribution::try_from(response).map_err(|error| NotGiven::Answer(endpoint.clone(), error))?;
        let answer = lock::even_if_poisoned(&self.gathering).take(machine, Some(endpoint.clone()), given)?;
        tracing::info!(%machine, epoch, "a share of the cold-start key is exchanged with a voter that answered");
        self.comes_to(answer);
        Ok(())
    }
}

/// Why one voter gave no share.
#[derive(Debug, thiserror::Error)]
enum NotGiven {
    /// It does not answer, or says no.
    #[error(transparent)]
    Asked(#[from] NotAnswered),
    /// It says something that makes no sense.
    #[error("the answer of {0} cannot be read")]
    Answer(Endpoint, #[source] Malformed),
    /// By what this machine knows nothing is exchanged with it.
    #[error(transparent)]
    NotShared(#[from] NotShared),
}

impl Ends for NotGiven {
    fn round(&self) -> Round {
        match self {
            Self::Asked(why) => why.round(),
            Self::Answer(..) | Self::NotShared(_) => Round::Refused,
        }
    }
}
