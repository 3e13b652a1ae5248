//! How a blank machine is activated from outside: the code that it shows while it waits, and the way on which it is handed a
//! config. Who knows the code is `keys::activation`'s matter, which config is taken `enrol`'s. Must never write the code anywhere
//! but onto the screen.

use std::sync::{Arc, Mutex};

use api::HandedIn;
use enrol::asking::{Answer, AnswerError};
use keys::activation::{self, BlankMachine, Code, Connection, Proof, Tries, Verdict};
use tokio::sync::{mpsc, watch};

use super::recover::{Told, tell};
use crate::runtime::lock;

/// A machine that waits with a code; none where it is not blank.
type Blank = Option<Arc<Mutex<BlankMachine>>>;

/// Why a config is not taken. Nothing was changed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConfigRefusal {
    /// The machine waits for no config, or for none any more.
    #[error("the machine is not blank, and takes no config from outside")]
    NotBlank,
    /// The caller does not know the code, or was not the first.
    #[error(transparent)]
    HandedIn(#[from] activation::HandInError),
    /// The config itself.
    #[error(transparent)]
    Config(#[from] AnswerError),
}

/// Publishes the code with which a blank machine waits; none while it is not blank.
#[derive(Debug, Clone)]
pub(super) struct Shown(watch::Sender<Blank>);

impl Shown {
    /// Shows a machine that is not known to be blank.
    pub(super) fn none() -> Self {
        Self(watch::Sender::new(None))
    }

    /// The machine waits for whoever knows this code.
    pub(super) fn begin(&self, code: Code) {
        self.0.send_replace(Some(Arc::new(Mutex::new(BlankMachine::new(code)))));
    }

    /// Ends the wait: no config is taken from now on.
    pub(super) fn over(&self) {
        self.0.send_replace(None);
    }

    /// The way to it from outside, and on to those who decide.
    pub(super) fn way(&self, answers: mpsc::Sender<Told>) -> Activation {
        Activation { blank: self.0.subscribe(), answers }
    }
}

/// The way of whoever activates the machine.
#[derive(Debug, Clone)]
pub(crate) struct Activation {
    blank: watch::Receiver<Blank>,
    answers: mpsc::Sender<Told>,
}

impl Activation {
    /// Shows that this machine knows its code.
    ///
    /// # Errors
    /// [`ConfigRefusal::NotBlank`].
    pub(crate) fn proof(&self, connection: &Connection) -> Result<Proof, ConfigRefusal> {
        let waiting = self.blank.borrow().clone().ok_or(ConfigRefusal::NotBlank)?;
        Ok(lock::even_if_poisoned(&waiting).proof(connection))
    }

    /// Takes a config; the machine goes on with it if it can.
    ///
    /// # Errors
    /// [`ConfigRefusal`]: the machine waits on.
    pub(crate) async fn hand_in(
        &self,
        connection: &Connection,
        tries: &Mutex<Tries>,
        HandedIn { config, proof }: HandedIn,
    ) -> Result<(), ConfigRefusal> {
        let mut blank = self.blank.clone();
        let waiting = blank.borrow_and_update().clone().ok_or(ConfigRefusal::NotBlank)?;
        let mut judging = {
            let mut tries = lock::even_if_poisoned(tries);
            lock::even_if_poisoned(&waiting).handed_in(connection, &mut tries, &config, &proof)?;
            Judging { waiting: &waiting, verdict: Verdict::NotTaken }
        };
        let word = tell(&self.answers, Answer::Config(config), blank.wait_for(Option::is_none)).await;
        let taken = word.map_or(Err(ConfigRefusal::NotBlank), |word| Ok(word?));
        if taken.is_ok() {
            judging.verdict = Verdict::Accepted;
        }
        taken
    }
}

/// A config that is looked at. Others' are, too, once it is gone: also where its caller left before the answer.
struct Judging<'a> {
    waiting: &'a Mutex<BlankMachine>,
    verdict: Verdict,
}

impl Drop for Judging<'_> {
    fn drop(&mut self) {
        lock::even_if_poisoned(self.waiting).judged(self.verdict);
    }
}

#[cfg(test)]
impl Activation {
    /// Activation on a machine that is not blank.
    pub(crate) fn of_nobody() -> Self {
        Shown::none().way(mpsc::channel(1).0)
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use enrol::config::ConfigError;
    use keys::activation::ActivationCaller;
    use zeroize::Zeroizing;

    use super::*;

    const HERE: Connection = Connection { exporter: [1; 32], leaf_spki: [2; 32] };

    fn code() -> Code {
        let Ok(code) = Code::draw(|bytes| {
            bytes.fill(9);
            Ok::<(), Infallible>(())
        });
        code
    }

    /// Config and proof that somebody with the code on the screen hands in.
    fn handed_in(way: &Activation) -> HandedIn {
        let proof = way.proof(&HERE).expect("the machine is blank");
        let config = Zeroizing::new(b"a config".to_vec());
        let proof = ActivationCaller::new(&code(), HERE).believes(&proof).expect("it knows the code").hands_in(&config);
        HandedIn { config, proof }
    }

    async fn hand_in(way: &Activation) -> Result<(), ConfigRefusal> {
        way.hand_in(&HERE, &Mutex::default(), handed_in(way)).await
    }

    /// The machine's own end: what it says of the next config.
    async fn says(answers: &mut mpsc::Receiver<Told>, word: Result<(), AnswerError>) {
        let told = answers.recv().await.expect("somebody hands one in");
        assert!(matches!(told.answer, Answer::Config(_)));
        let _or_the_caller_left = told.outcome.expect("somebody wants to know").send(word);
    }

    /// Proves: F2 N1
    #[tokio::test]
    async fn a_config_is_taken_or_refused_by_reason_and_the_first_wins() {
        let (shown, (answers, mut heard)) = (Shown::none(), mpsc::channel(1));
        let way = shown.way(answers);
        assert!(matches!(way.proof(&HERE), Err(ConfigRefusal::NotBlank)));
        shown.begin(code());
        let refused = AnswerError::Config(ConfigError::Signature);
        let (first, ()) = tokio::join!(hand_in(&way), says(&mut heard, Err(refused)));
        assert!(matches!(first, Err(ConfigRefusal::Config(why)) if why == refused), "{first:?}");
        let second = async {
            tokio::task::yield_now().await;
            let late = hand_in(&way).await;
            assert!(matches!(late, Err(ConfigRefusal::HandedIn(activation::HandInError::Underway))), "{late:?}");
            says(&mut heard, Ok(())).await;
        };
        let (first, ()) = tokio::join!(hand_in(&way), second);
        assert!(first.is_ok(), "{first:?}");
        let late = hand_in(&way).await;
        assert!(matches!(late, Err(ConfigRefusal::HandedIn(activation::HandInError::Taken))), "{late:?}");
        let late = handed_in(&way);
        shown.over();
        let late = way.hand_in(&HERE, &Mutex::default(), late).await;
        assert!(matches!(late, Err(ConfigRefusal::NotBlank)), "{late:?}");
    }

    /// A caller that leaves in the middle keeps nobody out.
    ///
    /// Proves: F2
    #[tokio::test]
    async fn a_caller_that_leaves_makes_room_for_the_next() {
        let (shown, (answers, mut heard)) = (Shown::none(), mpsc::channel(1));
        let way = shown.way(answers);
        shown.begin(code());
        let left = tokio::time::timeout(std::time::Duration::from_millis(1), hand_in(&way)).await;
        assert!(left.is_err(), "nobody answers it");
        heard.recv().await.expect("what it had handed in");
        let (next, ()) = tokio::join!(hand_in(&way), says(&mut heard, Ok(())));
        assert!(next.is_ok(), "{next:?}");
    }
}
