//! A machine that waits: what it asks for, and which answers it takes. An answer leads to a new decision by what is read then,
//! with what was given; one that was not asked for, or does not fit, is left alone as if it had not come. When it is asked
//! again, and whom, is the matter of who performs the question: [`pace`](crate::join::pace).
//!
//! ```text
//!   Wait ──start──┬─► Ask ── answered, and it fits ──► Cancel, Resume(GivenAnswers): read and decide again
//!                 │    ├── a directory of its owner's: Renew, then as if it were tried again ──► Cancel, Resume
//!                 │    └── an answer that does not fit: Report
//!                 └─► nothing helps in this boot: Cap, and waits for the next one
//! ```

use std::net::Ipv4Addr;

use keys::data_key::{ClusterHalf, Holder, OpenError};
use model::{ClusterKey, DiskUuid};
use unlock::locked::{FittingHalf, LockedMember};
use unlock::renewal::{DirectoryWrite, RenewError};
use zeroize::Zeroizing;

use crate::config::{self, ConfigError, TpmPresence};
use crate::failure::Failure;
use crate::join::{Asker, FittingOffer};
use crate::seal::Seal;
use crate::step::Step;
use crate::wait::{Reason, Wait};

/// A question of a waiting machine: what it needs to go on, and by what it is asked. Asked once: whoever performs it repeats it
/// until it is cancelled.
#[derive(Debug, Clone, Copy)]
pub enum Question<'a> {
    /// To be activated: an enrolment config that a machine with this TPM can serve. A person comes with it unasked.
    Config(TpmPresence),
    /// To be let in by the cluster of this machine's ticket.
    Admission(&'a Asker),
    /// The cluster's half of this member's key.
    Half(LockedMember<'a>),
    /// Somebody who mends what is wrong, and then has it tried again.
    Retry,
}

/// An answer to the question of a waiting machine.
#[derive(Debug)]
pub enum Answer {
    /// A signed enrolment config, as bytes.
    Config(Zeroizing<Vec<u8>>),
    /// A half that somebody brings, to be judged.
    Half(ClusterHalf),
    /// The cluster's half: whoever asked for it has judged it.
    FittingHalf(FittingHalf),
    /// Offer of the cluster of the machine's ticket: whoever asked for it has judged it.
    FittingOffer(Box<FittingOffer>),
    /// Where the coordinators are, by the owner's word; also where the version jumps.
    Directory {
        /// As it is passed on.
        signed: Vec<u8>,
        /// SubjectPublicKeyInfo (DER) of the cluster's CA, by the machine's own identity.
        ca_spki: Vec<u8>,
    },
    /// The cause may be mended: try again.
    Retry,
}

impl Answer {
    /// A half that somebody brings, for the disk and generation that they say.
    #[must_use]
    pub const fn half(key: ClusterKey, disk: DiskUuid, generation: u32) -> Self {
        Self::Half(ClusterHalf { key, disk, generation, next: None })
    }
}

/// GivenAnswers that the next decision takes beside what it reads.
#[derive(Debug, Default)]
pub struct GivenAnswers {
    /// A config; wins over what lies on the ESP and what QEMU passed.
    pub config: Option<Zeroizing<Vec<u8>>>,
    /// A half of the disk's key; counts before any share of the machine's own.
    pub half: Option<FittingHalf>,
    /// An offer to let the machine in; counts for the machine that asked for it.
    pub offer: Option<Box<FittingOffer>>,
}

/// An effect that a waiting machine asks of the shell.
#[derive(Debug)]
pub enum Effect<'a> {
    /// Ask whoever may answer, and listen to whoever comes unasked.
    Ask(Question<'a>),
    /// End the question: the answer that came last was taken.
    Cancel,
    /// Read and decide again, with this. The machine waits no more.
    Resume(GivenAnswers),
    /// Write this slot, and once that is durable answer [`Answer::Retry`]. The machine waits on.
    Renew(DirectoryWrite),
    /// Extend PCR 11, where there is a TPM: nothing can be unsealed any more in this boot. The machine, if it is known.
    Cap(Option<Holder>),
    /// Tell the log.
    Report(AnswerError),
}

/// Why an answer is left alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AnswerError {
    /// No such answer was asked for.
    #[error("an answer came that was not asked for")]
    NotAsked,
    /// A config that cannot be used.
    #[error("the config that was given is refused")]
    Config(#[source] ConfigError),
    /// A half that does not open this disk.
    #[error("the cluster's half that was given does not open the disk")]
    ClusterHalf(#[source] OpenError),
    /// A directory that is not the cluster's.
    #[error("the directory that was given is not taken")]
    Directory(#[source] RenewError),
    /// [`Effect::Renew`] failed, by the shell's word.
    #[error("the directory that was given could not be written to the ESP, as the machine's log says")]
    NotWritten,
}

/// A machine that waits for an answer.
#[derive(Debug)]
pub struct WaitingMachine<'a> {
    /// None once it is answered, and where nothing helps in this boot.
    question: Option<Question<'a>>,
}

impl<'a> WaitingMachine<'a> {
    /// Begins to wait. `seal` is the one that opened.
    #[must_use]
    pub fn start(wait: &'a Wait, seal: Option<&'a Seal>, out: &mut Vec<Effect<'a>>) -> Self {
        let question = match (wait, wait.locked_member(seal)) {
            (Wait::Blank(tpm), _) => Some(Question::Config(*tpm)),
            (Wait::LetIn(asker), _) => Some(Question::Admission(asker)),
            (Wait::AwaitingKeys(_), Some(member)) => Some(Question::Half(member)),
            (wait, _) if wait.is_final() => None,
            (Wait::AwaitingKeys(_) | Wait::NeedsOwner(_) | Wait::Failed(_), _) => Some(Question::Retry),
        };
        out.push(question.map_or_else(|| Effect::Cap(seal.map(|seal| seal.body.holder())), Effect::Ask));
        Self { question }
    }

    /// Takes what somebody answered, which is not believed yet. The machine's links have these addresses, each with the bits of its prefix.
    pub fn answered(&mut self, answer: Answer, links: &[(Ipv4Addr, u8)], out: &mut Vec<Effect<'a>>) {
        if let (Some(Question::Half(member)), Answer::Directory { signed, ca_spki }) = (self.question, &answer) {
            out.push(match member.renew(signed, ca_spki) {
                Ok(write) => Effect::Renew(write),
                Err(error) => Effect::Report(AnswerError::Directory(error)),
            });
            return;
        }
        match self.given(answer, links) {
            Ok(given) => {
                self.question = None;
                out.extend([Effect::Cancel, Effect::Resume(given)]);
            }
            Err(refused) => out.push(Effect::Report(refused)),
        }
    }

    fn given(&self, answer: Answer, links: &[(Ipv4Addr, u8)]) -> Result<GivenAnswers, AnswerError> {
        match (self.question.ok_or(AnswerError::NotAsked)?, answer) {
            (Question::Config(tpm), Answer::Config(bytes)) => {
                let verified = config::read(&bytes).map_err(AnswerError::Config)?;
                verified.config.fits(tpm).map_err(|unserved| AnswerError::Config(unserved.into()))?;
                verified.config.fits_links(links).map_err(|bad| AnswerError::Config(bad.into()))?;
                Ok(GivenAnswers { config: Some(bytes), ..GivenAnswers::default() })
            }
            (Question::Half(member), Answer::Half(half)) => {
                let half = member.judge(half).map_err(AnswerError::ClusterHalf)?;
                Ok(GivenAnswers { half: Some(half), ..GivenAnswers::default() })
            }
            (Question::Half(_), Answer::FittingHalf(half)) => {
                Ok(GivenAnswers { half: Some(half), ..GivenAnswers::default() })
            }
            (Question::Admission(asker), Answer::FittingOffer(offer)) => {
                Ok(GivenAnswers { config: asker.handed_in.clone(), offer: Some(offer), ..GivenAnswers::default() })
            }
            (Question::Admission(asker), Answer::Retry) => {
                Ok(GivenAnswers { config: asker.handed_in.clone(), ..GivenAnswers::default() })
            }
            (Question::Config(_) | Question::Half(_) | Question::Retry, Answer::Retry) => Ok(GivenAnswers::default()),
            (
                Question::Config(_) | Question::Admission(_) | Question::Retry,
                Answer::Half(_) | Answer::FittingHalf(_),
            )
            | (Question::Admission(_) | Question::Half(_) | Question::Retry, Answer::Config(_))
            | (Question::Config(_) | Question::Half(_) | Question::Retry, Answer::FittingOffer(_))
            | (_, Answer::Directory { .. }) => Err(AnswerError::NotAsked),
        }
    }
}

#[cfg(test)]
impl<'a> WaitingMachine<'a> {
    /// Starts a machine, with its one first effect.
    pub(crate) fn begin(wait: &'a Wait, seal: Option<&'a Seal>) -> (Self, Effect<'a>) {
        let mut out = Vec::new();
        let waiting = Self::start(wait, seal, &mut out);
        let (Some(first), true) = (out.pop(), out.is_empty()) else { panic!("one effect") };
        (waiting, first)
    }

    /// Takes an answer, with the effect of it: behind the end of its question where the machine waits no more.
    pub(crate) fn hears(&mut self, answer: Answer) -> Effect<'a> {
        self.hears_beside(answer, &[])
    }

    /// The same on a machine whose links have these addresses.
    pub(crate) fn hears_beside(&mut self, answer: Answer, links: &[(Ipv4Addr, u8)]) -> Effect<'a> {
        let (mut out, asked) = (Vec::new(), self.question.is_some());
        self.answered(answer, links, &mut out);
        let last = out.pop().expect("each answer has an effect");
        let ended = matches!(out.as_slice(), [Effect::Cancel]);
        assert_eq!((ended, out.len()), (matches!(last, Effect::Resume(_)), usize::from(ended)), "{last:?}");
        assert!(asked || !ended, "a question ends once");
        last
    }
}

impl Wait {
    /// Whether nothing that could be given helps in this boot: another config, image or disk is another boot, and a TPM that
    /// did not take the cap whole may have taken part of it.
    const fn is_final(&self) -> bool {
        match self {
            Self::NeedsOwner(reason) => match reason {
                Reason::Config(_)
                | Reason::Newer { .. }
                | Reason::ForeignDisk(_)
                | Reason::Header(OpenError::Blank | OpenError::OtherDisk { .. }) => true,
                Reason::LiveDisk | Reason::Seal(_) | Reason::Locked(_) | Reason::Header(_) | Reason::Unreadable(_) => {
                    false
                }
            },
            Self::Failed(Failure::Create(step, _) | Failure::Open(step, _)) => matches!(step, Step::Cap),
            Self::Failed(
                Failure::Tpm(_) | Failure::Keys(_) | Failure::Ready(_) | Failure::Refused(..) | Failure::Damaged(_),
            )
            | Self::Blank(_)
            | Self::LetIn(_)
            | Self::AwaitingKeys(_) => false,
        }
    }
}

#[cfg(test)]
mod tests;
