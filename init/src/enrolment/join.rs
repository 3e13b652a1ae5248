//! Asks the coordinators of a ticket until one lets the machine in. What is asked, and which answer is taken, is `enrol`'s
//! matter; over which connection, and when again, is [`ask`]'s. Must never touch the disk.

use api::wire;
use cluster::record::BadRecord;
use cluster::redeem::{MOST_ANSWER_BYTES, RedeemAnswer};
use enrol::join::pace::Round;
use enrol::join::{About, AdmissionOffer, Asker, FittingOffer, OfferError};
use enrol::making::IssuedCertificates;
use keys::endpoint::Endpoint;
use keys::ticket::EXPORTER_LABEL;
use pki::server_auth::verify_member;
use pki::{CertificateDer, PublicKey, SpkiPin, VerifyError};
use tokio::sync::watch;
use zeroize::Zeroizing;

use super::ask::{self, Asks, Ends, QuestionError, Shown};
use crate::network::mesh;
use crate::shown::board::Board;
use crate::version::release;

const SHOWN: Shown = Shown { step: "redeem", failed: "not let in" };

/// Why one coordinator did not let the machine in.
#[derive(Debug, thiserror::Error)]
enum RedeemError {
    /// The coordinator does not answer, or says no.
    #[error(transparent)]
    Asked(#[from] QuestionError),
    /// The coordinator's answer makes no sense.
    #[error("the answer of {0} cannot be read")]
    Answer(Endpoint, #[source] BadRecord),
    /// The certificates that the coordinator gives do not hold.
    #[error("the certificates that {0} gives are refused")]
    Certificates(Endpoint, #[source] VerifyError),
    /// The offer does not fit this machine.
    #[error("the answer of {0} is not taken")]
    NotAccepted(Endpoint, #[source] OfferError),
}

impl Ends for RedeemError {
    fn round(&self) -> Round {
        match self {
            Self::Asked(why) => why.round(),
            Self::Answer(..) | Self::Certificates(..) | Self::NotAccepted(..) => Round::Refused,
        }
    }
}

/// Asks until a coordinator lets the machine in.
pub(super) async fn offer(asker: &Asker, board: &Board) -> FittingOffer {
    let (_as_issued, coordinators) = watch::channel(asker.ticket().coordinator_public_endpoints.clone());
    ask::first(coordinators, board, SHOWN, async |endpoint| ask(asker, board, endpoint).await).await
}

/// Asks one coordinator, once.
async fn ask(asker: &Asker, board: &Board, endpoint: &Endpoint) -> Result<FittingOffer, RedeemError> {
    let ticket = asker.ticket();
    let asks = Asks { cluster: ticket.cluster, authority: SpkiPin(ticket.ca_spki), key: asker.identity() };
    let session = asks.connect(endpoint).await?;
    let request = asker.request(&about(board), &session.exporter(EXPORTER_LABEL)?);
    let redeem = wire::RedeemRequest { request };
    let answer = session.call(MOST_ANSWER_BYTES + 16, async |client| client.redeem(redeem).await).await?;
    let bytes = Zeroizing::new(answer.response); // a key is in it
    let answer = RedeemAnswer::decode(&bytes).map_err(|error| RedeemError::Answer(endpoint.clone(), error))?;
    let issued = issued(asker, &answer).map_err(|error| RedeemError::Certificates(endpoint.clone(), error))?;
    asker
        .judge(AdmissionOffer { answer, issued }, &board.facts().leased())
        .map_err(|why| RedeemError::NotAccepted(endpoint.clone(), why))
}

/// Verifies an answer's certificates: they are for the machine's own key, under the ticket's pin.
fn issued(asker: &Asker, answer: &RedeemAnswer) -> Result<IssuedCertificates, VerifyError> {
    let leaf = CertificateDer::from(answer.certificate.as_slice());
    let authority = CertificateDer::from(answer.ca_certificate.as_slice());
    let (ticket, key) = (asker.ticket(), PublicKey::from_ed25519(asker.identity().public()));
    verify_member(&leaf, &authority, ticket.cluster, SpkiPin(ticket.ca_spki), &key)?;
    let ca = pki::public_key_of(&authority).map_err(|_| VerifyError::OtherKey)?;
    Ok(IssuedCertificates {
        ca_spki: ca.spki(),
        ca_certificate: answer.ca_certificate.clone(),
        machine_certificate: answer.certificate.clone(),
    })
}

/// Image of this machine, and where its WireGuard listens, for the records.
fn about(board: &Board) -> About {
    let boot = board.facts().boot();
    About {
        release: release(),
        root_hash: boot.root_hash,
        endpoints: board.facts().read(|now| mesh::endpoints(&now.links)),
    }
}
