//! Performs the question of a waiting machine: shows what people need to answer it, asks whom the machine can ask itself, and lets
//! in who comes unasked. All answers go into one inbox. What is asked, and which answer fits, is `enrol`'s matter.
//!
//! ```text
//!   ask ─┬─ Config:    the code on the screen ◄── a person with a config          ┐
//!        ├─ Admission: the key on the screen, the ticket's coordinators are asked ├─► inbox
//!        └─ Half:      coordinators and other voters are asked ◄── owner, voters  ┘
//!   cancel ── nobody is asked or let in any more
//! ```

use std::convert::Infallible;
use std::future::pending;
use std::pin::Pin;

use enrol::asking::{Answer, Question};
use keys::activation::Code;
use model::{Chain, MachinePubKey};
use tokio::sync::{mpsc, watch};
use unlock::locked::LockedMember;

use super::activate::Shown;
use super::contribute::Exchange;
use super::recover::{Needs, Rescue, Told};
use super::renew::Directories;
use super::{Ways, create, join, release};
use crate::shown::board::Board;

/// A question on its way: it is asked for as long as this is polled.
pub(super) type Pending<'a> = Pin<Box<dyn Future<Output = Infallible> + 'a>>;

/// No question: nobody is asked.
pub(super) fn none<'a>() -> Pending<'a> {
    Box::pin(pending())
}

/// Ways on which a waiting machine is answered; clones share them.
#[derive(Debug, Clone)]
pub(super) struct Questions {
    board: Board,
    inbox: mpsc::Sender<Told>,
    /// Needs of the machine that its owner can meet; none unless the half of a key is asked for.
    needs: watch::Sender<Option<Needs>>,
    /// Code by which a blank machine is activated.
    shown: Shown,
    directories: Directories,
    exchange: Exchange,
}

impl Questions {
    /// None is asked yet. `board` shows what people need to know.
    pub(super) fn new(board: &Board) -> (Self, mpsc::Receiver<Told>) {
        // One answer ends one question.
        let (inbox, answers) = mpsc::channel(1);
        let questions = Self {
            board: board.clone(),
            inbox,
            needs: watch::Sender::new(None),
            shown: Shown::none(),
            directories: Directories::default(),
            exchange: Exchange::default(),
        };
        (questions, answers)
    }

    /// How others get to this machine while it waits.
    pub(super) fn ways(&self) -> Ways {
        Ways {
            activation: self.shown.way(self.inbox.clone()),
            rescue: Rescue::new(self.needs.subscribe(), self.inbox.clone(), self.directories.clone()),
            exchange: self.exchange.clone(),
        }
    }

    /// Directories that somebody heard of.
    pub(super) const fn directories(&self) -> &Directories {
        &self.directories
    }

    /// Performs a question until [`Self::cancel`].
    pub(super) fn ask<'a>(&'a self, question: Question<'a>) -> Pending<'a> {
        match question {
            Question::Config(_) => {
                self.show_code();
                none()
            }
            Question::Admission(asker) => {
                self.board.key(Some(MachinePubKey(asker.identity().public())));
                Box::pin(async {
                    let offer = join::offer(asker, &self.board).await;
                    self.tell(Answer::FittingOffer(Box::new(offer))).await
                })
            }
            Question::Half(member) => Box::pin(self.ask_for_half(member)),
            Question::Retry => none(),
        }
    }

    /// Ends a question: what was shown for it is gone, and nobody is let in for it any more; but for the owner of a machine that
    /// may ask for its key again at once. What that owner gives meanwhile answers the next question.
    pub(super) fn cancel(&self) {
        self.exchange.over();
        self.shown.over();
        self.board.code(None);
        self.board.key(None);
    }

    /// The machine goes on, or waits for something else: its owner has nothing to give.
    pub(super) fn needs_nothing(&self) {
        self.needs.send_replace(None);
    }

    /// From now on whoever reads the screen may activate the machine. Without random bytes it waits for a config all the same.
    fn show_code(&self) {
        match Code::draw(create::random) {
            Ok(code) => {
                self.board.code(Some(code.to_text()));
                self.shown.begin(code);
            }
            Err(error) => self.board.error(&format!("there is no code to activate this machine by: {}", Chain(&error))),
        }
    }

    /// Lets the owner and other voters in at once, and asks coordinators and other voters.
    fn ask_for_half<'a>(&'a self, member: LockedMember<'a>) -> impl Future<Output = Infallible> + 'a {
        let waits = self.exchange.waits(member, &self.inbox, &self.board);
        self.needs.send_replace(Some(Needs::of(member)));
        async move {
            let coordinators = async {
                match release::answer(member, &self.board, &self.directories, waits.as_deref()).await {
                    Some(answer) => self.tell(answer).await,
                    None => pending().await,
                }
            };
            let voters = async {
                match &waits {
                    Some(waits) => waits.ask(member, &self.board).await,
                    None => pending().await,
                }
            };
            tokio::select! {
                never = coordinators => never,
                never = voters => never,
            }
        }
    }

    async fn tell(&self, answer: Answer) -> Infallible {
        let _somebody_else_answered = self.inbox.send(Told { answer, outcome: None }).await;
        pending().await
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::task::Poll;

    use enrol::asking::{Effect, WaitingMachine};
    use enrol::config::TpmPresence;
    use enrol::found::BootDecision;
    use enrol::wait::Wait;
    use keys::activation::Connection;
    use keys::two_slot::File;
    use model::Level;

    use super::super::create::tests::Machine;
    use super::*;
    use crate::facts::Facts;
    use crate::machine::kernel::Boot;

    fn questions() -> (Questions, mpsc::Receiver<Told>) {
        let boot = Boot::fixture();
        let (facts, _power_on) = Facts::new(boot);
        Questions::new(&Board::new(facts).0)
    }

    /// Performs the question that a machine with this wait begins with, one step far.
    async fn asks<'a>(questions: &'a Questions, effects: Vec<Effect<'a>>) -> Pending<'a> {
        let [Effect::Ask(question)] = effects.as_slice() else { panic!("{effects:?}") };
        let mut asked = questions.ask(*question);
        poll_fn(|context| match asked.as_mut().poll(context) {
            Poll::Pending => Poll::Ready(()),
            Poll::Ready(never) => match never {},
        })
        .await;
        asked
    }

    /// Proves: N1
    #[tokio::test]
    async fn a_blank_machine_lets_in_who_activates_it_until_cancelled() {
        const HERE: Connection = Connection { exporter: [1; 32], leaf_spki: [2; 32] };
        let (questions, _inbox) = questions();
        let activation = questions.ways().activation;
        assert!(activation.proof(&HERE).is_err(), "nothing was asked yet");
        let (wait, mut effects) = (Wait::Blank(TpmPresence::Absent), Vec::new());
        let _waiting = WaitingMachine::start(&wait, None, &mut effects);
        let _asked = asks(&questions, effects).await;
        assert!(activation.proof(&HERE).is_ok());
        questions.cancel();
        assert!(activation.proof(&HERE).is_err());
    }

    /// Proves: K5
    #[tokio::test]
    async fn a_locked_member_lets_its_owner_in_until_it_goes_on() {
        let (questions, mut inbox) = questions();
        let mut machine = Machine::new(None, Level::Encrypted);
        machine.create();
        machine.files.slots(File::Share).0.iter_mut().for_each(|slot| slot.fill(0));
        let BootDecision::Wait(wait, seal) = machine.found().decision else { panic!("its share is lost") };
        let mut effects = Vec::new();
        let _waiting = WaitingMachine::start(&wait, seal.as_deref(), &mut effects);
        let rescue = questions.ways().rescue;
        assert!(rescue.needs().is_none(), "nothing was asked yet");
        let asked = asks(&questions, effects).await;
        let disk = rescue.needs().expect("it waits for its key").disk;
        assert_eq!(Some(disk), seal.as_ref().map(|seal| seal.body.disk));
        tokio::select! {
            biased;
            never = asked => match never {},
            given = rescue.give(Answer::Retry) => panic!("nobody has taken it: {given:?}"),
            told = inbox.recv() => assert!(matches!(told.expect("it is open").answer, Answer::Retry)),
        }
        questions.cancel();
        assert_eq!(rescue.needs().map(|needs| needs.disk), Some(disk), "it decides again, and may ask again");
        questions.needs_nothing();
        assert!(rescue.needs().is_none() && rescue.give(Answer::Retry).await.is_err());
    }
}
