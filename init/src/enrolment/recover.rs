//! How the owner opens a machine that waits for the cluster's half of its key: what such a machine shows, and the way on which
//! it is given a half, or a directory by which it finds its cluster; a machine that runs is given the latter, too. Opens no record, and
//! leaves it to `enrol` whether what is given fits.

use enrol::asking::{Answer, AnswerError};
use keys::record::Record;
use model::DiskUuid;
use pki::CertificateDer;
use tokio::sync::{mpsc, oneshot, watch};
use unlock::locked::LockedMember;

use super::Directories;

/// An answer on its way to a machine that waits, and who wants to know what became of it.
#[derive(Debug)]
pub(super) struct Told {
    pub(super) answer: Answer,
    pub(super) outcome: Option<oneshot::Sender<Result<(), AnswerError>>>,
}

/// Tells a machine an answer, and returns its word on it; none when it did not hear, because it `went_on` with another.
pub(super) async fn tell<T>(
    answers: &mpsc::Sender<Told>,
    answer: Answer,
    went_on: impl Future<Output = T>,
) -> Option<Result<(), AnswerError>> {
    let (outcome, mut told) = oneshot::channel();
    let answer = Told { answer, outcome: Some(outcome) };
    let given = async {
        answers.send(answer).await.ok()?;
        (&mut told).await.ok()
    };
    tokio::select! {
        biased;
        word = given => word,
        // It gives its word before it goes on, and may do both between the two looks of one poll: it is on another thread.
        _went_on = went_on => told.try_recv().ok(),
    }
}

/// Parts of the disk's key that the machine waits for, and its owner can give.
#[derive(Debug, Clone)]
pub(crate) struct Needs {
    /// The disk that is to be opened.
    pub(crate) disk: DiskUuid,
    /// Which of its keys.
    pub(crate) generation: u32,
    /// Record that the owner opens to derive the half.
    pub(crate) record: Option<Record>,
    /// SubjectPublicKeyInfo (DER) of the cluster's CA, which signs directories; none where its certificate cannot be read.
    ca_spki: Option<Vec<u8>>,
}

impl Needs {
    pub(super) fn of(member: LockedMember<'_>) -> Self {
        let authority = CertificateDer::from(member.identity().ca_certificate.as_slice());
        let ca_spki = pki::public_key_of(&authority).ok().map(|key| key.spki());
        Self { disk: member.disk(), generation: member.generation(), record: member.record().copied(), ca_spki }
    }
}

/// Why what the owner gives is not taken. Nothing was changed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RescueError {
    /// The machine waits for no half, or has been given it by somebody else.
    #[error("the machine does not wait for a half of its key")]
    NotWaiting,
    /// The machine runs, and the task that keeps its directory begins, or has just ended and begins anew.
    #[error("the machine does not keep a directory yet; ask again")]
    NotKept,
    /// The machine cannot read the CA's key, so it cannot tell whose directory it is.
    #[error("the machine cannot read the key of its cluster's CA")]
    NoAuthority,
    /// Not this one.
    #[error(transparent)]
    Refused(#[from] AnswerError),
}

/// The owner's way to a machine that waits, or goes by a directory that it should not.
#[derive(Debug, Clone)]
pub(crate) struct Rescue {
    needs: watch::Receiver<Option<Needs>>,
    answers: mpsc::Sender<Told>,
    directories: Directories,
}

impl Rescue {
    pub(super) const fn new(
        needs: watch::Receiver<Option<Needs>>,
        answers: mpsc::Sender<Told>,
        directories: Directories,
    ) -> Self {
        Self { needs, answers, directories }
    }

    /// Needs of the machine now; none where it waits for nothing that its owner can give.
    pub(crate) fn needs(&self) -> Option<Needs> {
        self.needs.borrow().clone()
    }

    /// Gives a directory as it is passed on; once this returns it is durable, and a machine that waits asks whom it names.
    ///
    /// # Errors
    /// [`RescueError`]: the machine waits on, or goes on as before.
    pub(crate) async fn renew(&self, signed: Vec<u8>) -> Result<(), RescueError> {
        let Some(Needs { ca_spki, .. }) = self.needs() else { return self.directories.give(signed).await };
        self.give(Answer::Directory { signed, ca_spki: ca_spki.ok_or(RescueError::NoAuthority)? }).await
    }

    /// Gives the half; the machine goes on with it if it opens the disk.
    ///
    /// # Errors
    /// [`RescueError`]: the machine waits on.
    pub(crate) async fn give(&self, answer: Answer) -> Result<(), RescueError> {
        let mut needs = self.needs.clone();
        if needs.borrow_and_update().is_none() {
            return Err(RescueError::NotWaiting);
        }
        let word = tell(&self.answers, answer, needs.wait_for(Option::is_none)).await;
        Ok(word.ok_or(RescueError::NotWaiting)??)
    }
}

#[cfg(test)]
impl Rescue {
    /// Way to a machine that waits for nothing.
    pub(crate) fn of_nobody() -> Self {
        Self::new(watch::channel(None).1, mpsc::channel(1).0, Directories::default())
    }
}

#[cfg(test)]
mod tests {
    use keys::data_key::OpenError;
    use model::{ClusterKey, Secret, Uuid};

    use super::*;

    const DISK: DiskUuid = DiskUuid(Uuid([1; 16]));

    fn needs_a_half() -> Needs {
        Needs { disk: DISK, generation: 1, record: None, ca_spki: Some(vec![3]) }
    }

    fn half() -> Answer {
        Answer::half(ClusterKey(Secret::take(&mut [2; 32])), DISK, 1)
    }

    /// Proves: K5
    #[tokio::test]
    async fn a_half_is_given_to_who_waits_and_its_word_comes_back() {
        let (waits, needs) = watch::channel(None);
        let (answers, mut heard) = mpsc::channel(1);
        let rescue = Rescue::new(needs, answers, Directories::default());
        assert!(matches!(rescue.give(half()).await, Err(RescueError::NotWaiting)));
        waits.send_replace(Some(needs_a_half()));
        let says = |says: Result<(), AnswerError>| {
            let told = heard.try_recv().expect("it was given");
            assert!(matches!(told.answer, Answer::Half(half) if half.disk == DISK));
            told.outcome.expect("somebody wants to know").send(says).expect("and waits for it");
        };
        let words = [Err(AnswerError::ClusterHalf(OpenError::ClusterHalf)), Ok(())];
        let mut says = says;
        for word in words {
            let given = async {
                tokio::task::yield_now().await;
                says(word);
            };
            let (outcome, ()) = tokio::join!(rescue.give(half()), given);
            assert_eq!(outcome.is_ok(), word.is_ok(), "{outcome:?}");
        }
        // Somebody else was faster: the machine waits no more, and nobody hears.
        let went_on = async {
            tokio::task::yield_now().await;
            waits.send_replace(None);
        };
        let (late, ()) = tokio::join!(rescue.give(half()), went_on);
        assert!(matches!(late, Err(RescueError::NotWaiting)));
    }

    /// Proves: D11 K5
    #[tokio::test]
    async fn a_directory_is_given_with_the_key_that_has_to_have_signed_it() {
        let (waits, needs) = watch::channel(None);
        let (answers, mut heard) = mpsc::channel(1);
        let rescue = Rescue::new(needs, answers, Directories::default());
        let why = |given: Result<(), RescueError>| given.expect_err("it is not given").to_string();
        assert_eq!(why(rescue.renew(vec![7]).await), RescueError::NotKept.to_string());
        waits.send_replace(Some(Needs { ca_spki: None, ..needs_a_half() }));
        assert_eq!(why(rescue.renew(vec![7]).await), RescueError::NoAuthority.to_string());
        waits.send_replace(Some(needs_a_half()));
        for word in [Err(AnswerError::NotWritten), Ok(())] {
            let answered = async {
                let told: Told = heard.recv().await.expect("it was given");
                let Answer::Directory { signed, ca_spki } = told.answer else { panic!("{:?}", told.answer) };
                assert_eq!((signed, ca_spki), (vec![7], vec![3]));
                told.outcome.expect("somebody wants to know").send(word).expect("and waits for it");
            };
            let (given, ()) = tokio::join!(rescue.renew(vec![7]), answered);
            assert_eq!(given.is_ok(), word.is_ok(), "{given:?}");
        }
    }

    /// The public API has a thread of its own, so the machine may give its word and go on between any two steps here.
    /// Proves: K5
    #[test]
    fn the_giver_of_a_half_hears_its_fate_however_fast_the_boot_is() {
        const TIMES: usize = 2_000;
        let (waits, needs) = watch::channel(None);
        let (answers, mut heard) = mpsc::channel::<Told>(1);
        let rescue = Rescue::new(needs, answers, Directories::default());
        let goes_on = std::sync::Barrier::new(2);
        std::thread::scope(|both| {
            both.spawn(|| {
                for _ in 0..TIMES {
                    waits.send_replace(Some(needs_a_half()));
                    goes_on.wait();
                    let told = loop {
                        match heard.try_recv() {
                            Ok(told) => break told,
                            Err(_nothing_yet) => std::hint::spin_loop(),
                        }
                    };
                    told.outcome.expect("somebody wants to know").send(Ok(())).expect("and waits for it");
                    waits.send_replace(None);
                    goes_on.wait();
                }
            });
            let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
            let late = (0..TIMES).filter(|_| {
                goes_on.wait();
                let given = runtime.block_on(rescue.give(half()));
                goes_on.wait();
                given.is_err()
            });
            assert_eq!(late.count(), 0, "of {TIMES}");
        });
    }
}
