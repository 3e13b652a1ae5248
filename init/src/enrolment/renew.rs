//! Keeps the newest directory of the cluster on the ESP of a member that serves. Which one that is, where it is written and when
//! is `unlock`'s matter; who heard of it tells it here, and its owner gives one here. Must never believe it.

use std::collections::BTreeMap;
use std::sync::Arc;

use enrol::asking::AnswerError;
use enrol::member::Membership;
use keys::directory::{Directory, DirectoryMinimum};
use keys::identity::Identity;
use keys::two_slot::{File, TooLarge};
use model::{Chain, MachineId};
use pki::CertificateDer;
use tokio::sync::{mpsc, oneshot, watch};
use unlock::renewal::{DirectoryWrite, Giver, Renewal};

use super::perform;
use super::recover::RescueError;
use crate::machine::esp::{self, Esp};
use crate::runtime::clock;
use crate::runtime::services::until;
use crate::runtime::tasks;
use crate::runtime::watched::tell_changed;

/// Directories that were heard of, as the cluster signed them, or somebody else; clones share them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Directories {
    /// The last one that each side gave.
    heard: watch::Sender<BTreeMap<Giver, Vec<u8>>>,
    /// Which coordinators should be heard, too.
    missing: watch::Sender<Vec<MachineId>>,
    /// Directory that lies on the ESP and is believed.
    held: watch::Sender<Option<Arc<Directory>>>,
    /// Takes the owner's, while the machine keeps its own.
    keeper: watch::Sender<Option<mpsc::Sender<Given>>>,
}

/// A directory that the owner gives, and who wants to know what became of it.
#[derive(Debug)]
struct Given {
    signed: Vec<u8>,
    outcome: oneshot::Sender<Result<(), AnswerError>>,
}

impl Directories {
    /// Tells what `by` said; it is not believed yet.
    pub(crate) fn tell(&self, by: Giver, signed: Vec<u8>) {
        self.heard.send_modify(|heard| drop(heard.insert(by, signed)));
    }

    /// Directories that each side gave last; not believed yet.
    pub(super) fn heard(&self) -> Vec<Vec<u8>> {
        self.heard.borrow().values().cloned().collect()
    }

    /// Tells which coordinators should be heard, too, so that what one of them says does not raise the seal's minimum alone.
    pub(crate) fn missing(&self) -> watch::Receiver<Vec<MachineId>> {
        self.missing.subscribe()
    }

    /// Tells which directory lies on the ESP and is believed.
    pub(crate) fn held(&self) -> watch::Receiver<Option<Arc<Directory>>> {
        self.held.subscribe()
    }

    /// Gives the owner's. Once this returns it is durable, and the machine goes on from it: what others had told counts no more.
    ///
    /// # Errors
    /// [`RescueError`]: the machine goes by the one that it has.
    pub(super) async fn give(&self, signed: Vec<u8>) -> Result<(), RescueError> {
        let keeper = self.keeper.borrow().clone().ok_or(RescueError::NotKept)?;
        let (outcome, word) = oneshot::channel();
        keeper.send(Given { signed, outcome }).await.map_err(|_it_ended| RescueError::NotKept)?;
        Ok(word.await.map_err(|_it_ended| RescueError::NotKept)??)
    }

    /// Has `write` make durable what is heard, when it is due, and what the owner gives, at once.
    async fn keep<W>(&self, mut renewal: Renewal, write: impl Fn(DirectoryWrite) -> W) -> Result<(), Error>
    where
        W: Future<Output = Result<DirectoryWrite, esp::Error>>,
    {
        let (mut heard, mut taken) = (self.heard.subscribe(), BTreeMap::new());
        heard.mark_changed(); // also what was heard before this task began
        // One word of an owner at a time.
        let (keeper, mut given) = mpsc::channel(1);
        self.keeper.send_replace(Some(keeper));
        loop {
            tokio::select! {
                Ok(()) = heard.changed() => {
                    let now = heard.borrow_and_update().clone();
                    let news = now.iter().filter(|(by, signed)| taken.get(*by) != Some(*signed));
                    for (by, signed) in news {
                        if let Err(error) = renewal.hear(signed.clone(), *by) {
                            tracing::warn!(reason = %Chain(&error), ?by, "a directory is not believed");
                        }
                    }
                    taken = now;
                }
                Some(Given { signed, outcome }) = given.recv() => {
                    let word = match renewal.by_owner(&signed) {
                        Ok(owners) => match write(owners).await {
                            Ok(written) => {
                                tracing::info!(version = written.version(), "the directory is the one that the owner gave");
                                renewal.written(written, clock::now());
                                self.heard.send_modify(|heard| heard.retain(|by, signed| taken.get(by) != Some(signed)));
                                taken.clear();
                                Ok(())
                            }
                            Err(error) => {
                                let _or_nobody_listens = outcome.send(Err(AnswerError::NotWritten));
                                return Err(error.into());
                            }
                        },
                        Err(error) => Err(AnswerError::Directory(error)),
                    };
                    let _or_nobody_listens = outcome.send(word);
                }
                () = until(renewal.due(clock::now())) => {}
            }
            if let Some(next) = renewal.take(clock::now())? {
                let written = write(next).await?;
                tracing::info!(version = written.version(), "the cluster's directory is renewed");
                renewal.written(written, clock::now());
            }
            tell_changed(&self.held, renewal.held().cloned().map(Arc::new));
            tell_changed(&self.missing, renewal.missing());
        }
    }
}

/// Parts of a member that keep its directory up.
#[derive(Debug, Clone)]
pub(crate) struct Renewing {
    esp: Esp,
    identity: Arc<Identity>,
    minimum: Arc<DirectoryMinimum>,
    directories: Directories,
}

/// Why it is kept no longer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The CA's key is none.
    #[error("read the cluster's CA")]
    Authority(#[from] pki::KeyError),
    /// The ESP.
    #[error(transparent)]
    Esp(#[from] esp::Error),
    /// The cluster has more coordinators than its file has room for.
    #[error("write the directory")]
    TooLarge(#[from] TooLarge),
}

impl Renewing {
    pub(super) fn of(member: &Membership, esp: &Esp, directories: &Directories) -> Self {
        Self {
            esp: esp.clone(),
            identity: member.identity.clone(),
            minimum: Arc::new(member.minimum.duplicate()),
            directories: directories.clone(),
        }
    }

    /// Where whoever hears of a directory tells it.
    pub(crate) fn directories(&self) -> Directories {
        self.directories.clone()
    }

    /// Writes what is heard, when it is due, and what the owner gives; a task for good.
    ///
    /// # Errors
    /// [`Error`]; the directory that lies there is whole.
    pub(crate) async fn keep(self) -> Result<(), Error> {
        let Self { esp, identity, minimum, directories } = self;
        let ca_spki = pki::public_key_of(&CertificateDer::from(identity.ca_certificate.as_slice()))?.spki();
        let read = esp.clone();
        let slots = tasks::blocking(move || read.slots(File::Directory)).await;
        let renewal = Renewal::of(&slots, ca_spki, minimum.duplicate());
        directories.keep(renewal, |write| perform::renewed(esp.clone(), write)).await
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use keys::data_key::Holder;
    use keys::directory::{Coordinator, Directory, DirectoryError};
    use keys::share::ShareKey;
    use keys::two_slot::{SLOT_BYTES, Slot, Slots};
    use model::{LocalKey, Secret};
    use pki::{Authority, AuthorityKind, UnixTime};
    use unlock::renewal::RenewError;

    use super::*;
    use crate::enrolment::sign;

    /// Two sides may speak before anybody has listened to the first.
    ///
    /// Proves: D11
    #[tokio::test]
    async fn what_each_side_said_last_is_heard() {
        let directories = Directories::default();
        let mut heard = directories.heard.subscribe();
        let coordinator = |n| Giver::Coordinator(MachineId([n; 16]));
        directories.tell(coordinator(1), vec![1]);
        directories.clone().tell(coordinator(2), vec![2]);
        directories.tell(coordinator(1), vec![3]);
        heard.changed().await.expect("the sender is here");
        let expected = BTreeMap::from([(coordinator(1), vec![3]), (coordinator(2), vec![2])]);
        assert_eq!(*heard.borrow_and_update(), expected);
    }

    /// A member that runs and keeps the directory of a lie, whose version is above all that its cluster says.
    struct Kept {
        authority: Authority,
        directories: Directories,
        /// Versions that were written, in this order; beyond the last that is expected, writing fails.
        written: watch::Sender<Vec<u64>>,
        most: usize,
    }

    const LIE: u64 = 5 << 48;

    impl Kept {
        fn of(most: usize) -> Self {
            let now = UnixTime::since_unix_epoch(Duration::from_secs(1_800_000_000));
            let authority = Authority::create(AuthorityKind::Cairn, now).expect("a CA");
            Self { authority, directories: Directories::default(), written: watch::Sender::default(), most }
        }

        fn spki(&self) -> Vec<u8> {
            pki::public_key_of(self.authority.certificate()).expect("its own").spki()
        }

        fn signed(&self, version: u64) -> Vec<u8> {
            let machine = MachineId([u8::try_from(version % 256).expect("a byte"); 16]);
            let coordinators = vec![Coordinator { machine, endpoints: vec![] }];
            let cluster = keys::identity::cluster_id(&self.spki());
            let unsigned = Directory { cluster, version, coordinators }.unsigned();
            unsigned.signed(sign(&self.authority, &unsigned.to_sign()).expect("signs"))
        }

        async fn keep(&self) -> Result<(), Error> {
            let holder = Holder { cluster: keys::identity::cluster_id(&self.spki()), machine: MachineId([1; 16]) };
            let key = ShareKey::of(&LocalKey(Secret::take(&mut [2; 32])), &holder);
            let minimum = DirectoryMinimum { key, seal: 1, version: LIE };
            let slots = Slots([vec![0; SLOT_BYTES].into(), vec![0; SLOT_BYTES].into()]);
            let write = |write: DirectoryWrite| async move {
                if self.written.borrow().len() == self.most {
                    return Err(esp::Error::Size("cairn/directory.0"));
                }
                Slot::read(File::Directory, write.bytes()).expect("a slot");
                self.written.send_modify(|written| written.push(write.version()));
                Ok(write)
            };
            self.directories.keep(Renewal::of(&slots, self.spki(), minimum), write).await
        }

        /// Waits until so much was written.
        async fn written(&self, versions: &[u64]) {
            let mut written = self.written.subscribe();
            let all = written.wait_for(|written| written.len() >= versions.len()).await.expect("the sender is ours");
            assert_eq!(*all, versions);
        }
    }

    /// Proves: D11
    #[tokio::test]
    async fn a_member_that_runs_takes_its_owners_directory_and_goes_on() {
        let kept = Kept::of(3);
        let nobody = kept.directories.give(kept.signed(7)).await;
        assert!(matches!(nobody, Err(RescueError::NotKept)), "{nobody:?}");
        let tells = async {
            let coordinator = Giver::Coordinator(MachineId([1; 16]));
            kept.directories.tell(coordinator, kept.signed(LIE + 1));
            kept.written(&[LIE + 1]).await;
            let mut forged = kept.signed(7);
            *forged.last_mut().expect("it is signed") ^= 1;
            let signature = RenewError::Directory(DirectoryError::Signature);
            let refused = kept.directories.give(forged).await;
            let by_name =
                |why: &RescueError| matches!(why, RescueError::Refused(AnswerError::Directory(it)) if *it == signature);
            assert!(refused.as_ref().is_err_and(by_name), "{refused:?}");
            kept.directories.give(kept.signed(7)).await.expect("the cluster signed it");
            kept.written(&[LIE + 1, 7]).await;
            assert!(kept.directories.heard().is_empty(), "the lie is forgotten");
            // What jumps from there is refused, and what follows is not.
            kept.directories.tell(coordinator, kept.signed(LIE + 2));
            kept.directories.tell(Giver::Itself, kept.signed(8));
            kept.written(&[LIE + 1, 7, 8]).await;
            kept.directories.give(kept.signed(6)).await
        };
        let (ended, given) = tokio::join!(kept.keep(), tells);
        assert!(matches!(given, Err(RescueError::Refused(AnswerError::NotWritten))), "{given:?}");
        assert!(matches!(ended, Err(Error::Esp(_))), "what keeps it begins anew, by what lies there: {ended:?}");
        let gone = kept.directories.give(kept.signed(7)).await;
        assert!(matches!(gone, Err(RescueError::NotKept)), "{gone:?}");
    }
}
