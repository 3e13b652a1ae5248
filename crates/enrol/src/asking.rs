//! A machine that waits: what it asks for, how often, and which answers it takes. An answer leads to a new decision by what
//! is read then, with what was given; one that was not asked for, or does not fit, is left alone as if it had not come.
//!
//! ```text
//!   Wait ──start──┬─► asks ── answered, and it fits ──► Resume(Given): read and decide again
//!                 │    ▲ └ nobody answers: asks again, after 1, 2, 4, … 64 s
//!                 │    └── an answer that does not fit: Report
//!                 └─► nothing helps in this boot: Cap, and waits for the next one
//! ```

use std::time::{Duration, Instant};

use keys::data_key::{ClusterHalf, Holder, OpenError, open};
use keys::header::Copies;
use model::DiskUuid;
use zeroize::Zeroizing;

use crate::config::{self, ConfigError};
use crate::found::Seal;
use crate::join::Admission;
use crate::plan::Step;
use crate::wait::{Failure, Reason, Wait};

/// Before the cluster is asked a second time; doubled for each further one. A boot waits here.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// Between two questions at most: whoever could answer may come back at any time.
const LONGEST_PAUSE: Duration = Duration::from_secs(64);

/// What a waiting machine needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Question {
    /// To be activated: an enrolment config. A person comes with it unasked, so it is asked for once.
    Config,
    /// The cluster's half of this disk's key.
    ClusterHalf {
        /// By which the cluster finds the half: from the seal that opened.
        disk: DiskUuid,
        /// The half's generation: from the committed data header.
        generation: u32,
    },
    /// To be let in by the cluster of its ticket. Asked for once: whoever asks goes on by itself.
    Admission,
    /// Somebody who mends what is wrong, and then has it tried again. Asked once.
    Retry,
}

/// What a waiting machine is given.
#[derive(Debug)]
pub enum Answer {
    /// A signed enrolment config, as bytes.
    Config(Zeroizing<Vec<u8>>),
    /// The cluster's half.
    ClusterHalf(ClusterHalf),
    /// What lets the machine in.
    Admission(Box<Admission>),
    /// It may work now.
    Retry,
}

/// What a decision gets beside what is read.
#[derive(Debug, Default)]
pub struct Given {
    /// It wins over what lies on the ESP and what QEMU passed.
    pub config: Option<Zeroizing<Vec<u8>>>,
    /// It counts where no share of the machine's own opens.
    pub half: Option<ClusterHalf>,
    /// It counts for the machine that asked for it.
    pub admission: Option<Box<Admission>>,
}

/// What happened.
#[derive(Debug)]
pub enum Event {
    /// Somebody answered. Not believed yet.
    Answered(Answer),
    /// A deadline is due.
    Tick,
}

/// What the shell is to do.
#[derive(Debug)]
pub enum Effect {
    /// Ask whoever may answer.
    Ask(Question),
    /// Read and decide again, with this. The machine waits no more.
    Resume(Given),
    /// Extend PCR 11, where there is a TPM: nothing can be unsealed any more in this boot. The machine, if it is known.
    Cap(Option<Holder>),
    /// Tell the log.
    Report(Refused),
}

/// Why an answer is left alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// Nothing of the kind was asked for.
    #[error("an answer came that was not asked for")]
    NotAsked,
    /// A config that cannot be used.
    #[error("the config that was given is refused")]
    Config(#[source] ConfigError),
    /// A half that does not open this disk.
    #[error("the cluster's half that was given does not open the disk")]
    ClusterHalf(#[source] OpenError),
}

/// A waiting machine.
#[derive(Debug)]
pub struct Asking {
    state: State,
}

#[derive(Debug)]
enum State {
    /// For a config.
    Config,
    /// To be let in.
    Admission,
    /// For the cluster's half, which has to open this header.
    ClusterHalf { seal: Box<Seal>, header: Box<Copies>, question: Question, next: Instant, pause: Duration },
    /// For somebody to mend it.
    Retry,
    /// For the next boot, or no more.
    Over,
}

impl Asking {
    /// Begins to wait. `seal` is the one that opened.
    #[must_use]
    pub fn start(wait: &Wait, seal: Option<Box<Seal>>, now: Instant, out: &mut Vec<Effect>) -> Self {
        let state = match (wait, seal) {
            (Wait::Blank, _) => {
                out.push(Effect::Ask(Question::Config));
                State::Config
            }
            (Wait::LetIn(_), _) => {
                out.push(Effect::Ask(Question::Admission));
                State::Admission
            }
            (Wait::AwaitingKeys { generation, header }, Some(seal)) => {
                let question = Question::ClusterHalf { disk: seal.body.disk, generation: *generation };
                State::ClusterHalf { seal, header: header.clone(), question, next: now, pause: FIRST_PAUSE }
            }
            (wait, seal) if wait.is_final() => {
                out.push(Effect::Cap(seal.map(|seal| seal.body.holder())));
                State::Over
            }
            (Wait::AwaitingKeys { .. } | Wait::NeedsOwner(_) | Wait::Failed(_), _) => {
                out.push(Effect::Ask(Question::Retry));
                State::Retry
            }
        };
        let mut asking = Self { state };
        asking.handle(Event::Tick, now, out);
        asking
    }

    /// Takes one event and appends what is to be done, in order.
    pub fn handle(&mut self, event: Event, now: Instant, out: &mut Vec<Effect>) {
        match event {
            Event::Answered(answer) => match self.given(answer) {
                Ok(given) => {
                    self.state = State::Over;
                    out.push(Effect::Resume(given));
                }
                Err(refused) => out.push(Effect::Report(refused)),
            },
            Event::Tick => {}
        }
        if let State::ClusterHalf { question, next, pause, .. } = &mut self.state
            && *next <= now
        {
            out.push(Effect::Ask(*question));
            *next = now + *pause;
            *pause = (*pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// When [`Event::Tick`] is due next, and what for; `None` where nothing is asked again.
    #[must_use]
    pub const fn poll_timeout(&self) -> Option<(Instant, &'static str)> {
        match &self.state {
            State::ClusterHalf { next, .. } => Some((*next, "the cluster is asked for its half of the data key")),
            State::Config | State::Admission | State::Retry | State::Over => None,
        }
    }

    fn given(&self, answer: Answer) -> Result<Given, Refused> {
        match (&self.state, answer) {
            (State::Config, Answer::Config(bytes)) => {
                config::read(&bytes).map_err(Refused::Config)?;
                Ok(Given { config: Some(bytes), ..Given::default() })
            }
            (State::ClusterHalf { seal, header, .. }, Answer::ClusterHalf(half)) => {
                let body = &seal.body;
                open(header, &body.local_key, Some(&half), &body.expected()).map_err(Refused::ClusterHalf)?;
                Ok(Given { half: Some(half), ..Given::default() })
            }
            // Whether it fits is decided with the attempt that is read again.
            (State::Admission, Answer::Admission(admission)) => {
                Ok(Given { admission: Some(admission), ..Given::default() })
            }
            (State::Config | State::Admission | State::ClusterHalf { .. } | State::Retry, Answer::Retry) => {
                Ok(Given::default())
            }
            (State::Config | State::Admission | State::Retry | State::Over, Answer::ClusterHalf(_))
            | (State::Admission | State::ClusterHalf { .. } | State::Retry | State::Over, Answer::Config(_))
            | (State::Config | State::ClusterHalf { .. } | State::Retry | State::Over, Answer::Admission(_))
            | (State::Over, Answer::Retry) => Err(Refused::NotAsked),
        }
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
                Reason::LiveDisk | Reason::Seal(_) | Reason::Locked(_) | Reason::Header(_) => false,
            },
            Self::Failed(Failure::Create(step, _) | Failure::Open(step, _)) => matches!(step, Step::Cap),
            Self::Failed(Failure::Tpm(_) | Failure::Keys(_) | Failure::Ready(_) | Failure::Refused(..))
            | Self::Blank
            | Self::LetIn(_)
            | Self::AwaitingKeys { .. } => false,
        }
    }
}

#[cfg(test)]
mod tests;
