//! Asks the coordinators of a member's own directory for the cluster's half of what opens its disk. Which of them, for what, and
//! whether an answer fits, is `unlock`'s matter. Must never touch the disk.

use api::{FieldError, KeyRequest, ReleasedKey};
use enrol::asking::Answer;
use enrol::join::pace::Round;
use keys::data_key::OpenError;
use keys::endpoint::Endpoint;
use keys::two_slot::SLOT_BYTES;
use model::Chain;
use pki::{CertificateDer, PublicKey};
use tokio::sync::watch;
use unlock::locked::LockedMember;
use unlock::renewal::Giver;

use super::Directories;
use super::ask::{self, Asks, Ends, QuestionError, Shown};
use super::contribute::Waits;
use crate::runtime::clock::{self, Known};
use crate::shown::board::Board;

const SHOWN: Shown = Shown { step: "ask for the key", failed: "no key from the cluster" };
/// A time, two keys, and a directory that fits its file.
const MOST_ANSWER_BYTES: usize = 128 + SLOT_BYTES;

/// Why one coordinator did not give the key.
#[derive(Debug, thiserror::Error)]
enum KeyRequestError {
    /// The coordinator does not answer, or says no.
    #[error(transparent)]
    Asked(#[from] QuestionError),
    /// The coordinator's answer makes no sense.
    #[error("the answer of {0} cannot be read")]
    Answer(Endpoint, #[source] FieldError),
    /// The half is not this disk's; with the directory that came along.
    #[error("what {0} gives does not open the disk")]
    Half(Endpoint, #[source] OpenError, Vec<u8>),
}

impl KeyRequestError {
    /// Directory that a coordinator gave along with its answer; none where it may have no leader.
    fn told(&self) -> Option<&[u8]> {
        match self {
            Self::Asked(QuestionError::Led(_, _, told)) => Some(told),
            Self::Half(_, _, told) => Some(told),
            Self::Asked(
                QuestionError::Connect(..)
                | QuestionError::Silent(_)
                | QuestionError::Ready(_)
                | QuestionError::Unavailable(..)
                | QuestionError::Refused(..),
            )
            | Self::Answer(..) => None,
        }
    }
}

impl Ends for KeyRequestError {
    fn round(&self) -> Round {
        match self {
            Self::Asked(why) => why.round(),
            Self::Answer(..) | Self::Half(..) => Round::Refused,
        }
    }
}

/// Asks until a coordinator gives the half that opens the disk. None where the machine knows nobody to ask.
/// `directories` are told of the directory that comes with it.
/// `waits`, if the machine exchanges shares, is told of each coordinator whether it may have a leader.
pub(super) async fn answer(
    member: LockedMember<'_>,
    board: &Board,
    directories: &Directories,
    waits: Option<&Waits>,
) -> Option<Answer> {
    let (authority, listed) = known(member, board)?;
    if listed.is_empty() && waits.is_none() {
        return None; // nobody will be heard of
    }
    let (_as_listed, listed) = watch::channel(listed);
    let coordinators = waits.map_or(listed, Waits::asks);
    let identity = member.identity();
    let asks = Asks { cluster: identity.holder.cluster, authority: authority.pin(), key: &identity.key };
    let Given { answer, time, directory } = ask::first(coordinators, board, SHOWN, async |endpoint| {
        let asked = ask(asks, member, endpoint).await;
        if let (Err(why), Some(waits)) = (&asked, waits) {
            match why.told() {
                Some(told) => waits.leader_answered(endpoint, told),
                None => waits.no_leader_at(endpoint),
            }
        }
        asked
    })
    .await;
    clock::correct(Known::Cluster(time));
    directories.tell(Giver::Stranger, directory);
    Some(answer)
}

/// The cluster's authority, and where its other coordinators are.
fn known(member: LockedMember<'_>, board: &Board) -> Option<(PublicKey, Vec<Endpoint>)> {
    let certificate = CertificateDer::from(member.identity().ca_certificate.as_slice());
    let authority = pki::public_key_of(&certificate)
        .inspect_err(|error| board.error(&format!("the cluster's CA cannot be read: {}", Chain(error))))
        .ok()?;
    let coordinators = member
        .coordinators(&authority.spki())
        .inspect_err(|error| board.error(&format!("nobody is asked for the key: {}", Chain(error))))
        .ok()?;
    Some((authority, coordinators))
}

/// Answer of one coordinator that gave the key's half.
struct Given {
    /// The half, which fits.
    answer: Answer,
    /// The cluster's time.
    time: u64,
    /// Not believed yet.
    directory: Vec<u8>,
}

/// Asks one coordinator, once.
async fn ask(asks: Asks<'_>, member: LockedMember<'_>, endpoint: &Endpoint) -> Result<Given, KeyRequestError> {
    let asked = KeyRequest { disk: member.disk(), generation: member.generation(), level: member.level() };
    let session = asks.connect(endpoint).await?;
    let response = session
        .call(MOST_ANSWER_BYTES, async |client| client.release_key(api::wire::ReleaseKeyRequest::from(asked)).await);
    let unread = |error| KeyRequestError::Answer(endpoint.clone(), error);
    let ReleasedKey { time, key, next, directory } = response.await?.try_into().map_err(unread)?;
    match member.judge(member.half(key, next)) {
        Ok(half) => Ok(Given { answer: Answer::FittingHalf(half), time: time.0, directory }),
        Err(error) => Err(KeyRequestError::Half(endpoint.clone(), error, directory)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Proves: K9
    #[test]
    fn a_refused_key_and_one_that_does_not_fit_are_told_apart() {
        let endpoint = Endpoint::read("192.0.2.1:7836").expect("an endpoint");
        let refused = QuestionError::Refused(endpoint.clone(), format!("{}", cluster::denial::Denial::OtherDisk));
        let refused = KeyRequestError::from(refused);
        assert_eq!(refused.round(), Round::Refused);
        assert!(Chain(&refused).to_string().starts_with("192.0.2.1:7836 refuses: "), "{}", Chain(&refused));
        let half = KeyRequestError::Half(endpoint.clone(), OpenError::ClusterHalf, vec![7]);
        assert_eq!(half.round(), Round::Refused);
        let text = Chain(&half).to_string();
        assert!(text.starts_with("what 192.0.2.1:7836 gives does not open the disk: "), "{text}");
        let led = KeyRequestError::from(QuestionError::Led(endpoint.clone(), String::from("no"), vec![8]));
        assert_eq!([&half, &led, &refused].map(|why| why.told()), [Some(&[7][..]), Some(&[8]), None]);
        assert_eq!(KeyRequestError::from(QuestionError::Silent(endpoint)).round(), Round::Unanswered);
    }
}
