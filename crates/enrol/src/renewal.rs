//! Which directory a member keeps on its ESP while it serves: the newest that its cluster signed. Who heard of it, and of whom,
//! does not matter. Must never write over the slot that holds the one it has, so that a cut leaves that one whole; nor write
//! more often than who coordinates changes, or six times an hour where only their endpoints do.
//!
//! ```text
//!   hear ─► not signed, or another cluster's: refused       due ─► take ─► Write ─ performed ─► written: it is the one it has
//!        └► newer, and says something else: waits ──────────┘
//! ```

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use keys::directory::{self, Directory, DirectoryError};
use keys::pair::{File, Next, Pair, Slot, TooLarge};

use crate::found::Slots;

/// So many writes for the sake of endpoints in [`PERIOD`]: machines whose addresses come and go would wear the disk out. More than
/// one, since whoever changes its address twice and is switched off with all others would be looked for at the one between.
const MOST_WRITES: usize = 6;
/// See [`MOST_WRITES`].
const PERIOD: Duration = Duration::from_secs(3600);

/// What becomes of a member's directory.
#[derive(Debug)]
pub struct Renewal {
    ca_spki: Vec<u8>,
    held: Option<Directory>,
    /// The version of the newest that was ever heard of in this boot; it may be one that needed no write.
    newest: u64,
    next: Next,
    waits: Option<(Directory, Vec<u8>)>,
    /// When it was written in this boot, the newest last: the last [`MOST_WRITES`].
    written: VecDeque<Instant>,
}

/// A slot of the directory's pair that is to be overwritten, whole, and synced. Only [`Renewal::take`] makes one.
#[derive(Debug)]
#[must_use]
pub struct Write {
    slot: usize,
    bytes: Vec<u8>,
    directory: Directory,
}

impl Write {
    /// 0 or 1: which of [`File::paths`].
    #[must_use]
    pub const fn slot(&self) -> usize {
        self.slot
    }

    /// The directory's version.
    #[must_use]
    pub const fn version(&self) -> u64 {
        self.directory.version
    }

    /// All of it.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

/// What lies in the slots that the cluster of the CA with this SubjectPublicKeyInfo (DER) signed and the seal allows: the
/// newest first, each with its slot and generation.
pub(crate) fn believed(slots: &Slots, ca_spki: &[u8], minimum: u64) -> Vec<(usize, u64, Directory)> {
    let read = |(at, bytes): (usize, &[u8])| {
        let slot = Slot::read(File::Directory, bytes).ok()?;
        let directory = Directory::verify(slot.clear(), ca_spki, minimum).ok()?;
        Some((at, slot.generation, directory))
    };
    let mut believed: Vec<_> = slots.bytes().into_iter().enumerate().filter_map(read).collect();
    believed.sort_by_key(|(_, generation, _)| std::cmp::Reverse(*generation));
    believed
}

/// The minimum that a seal may rise to: that of the older of both slots, where both are believed and it is above `minimum`. Whichever
/// of them is lost then, the other one is not refused.
pub(crate) fn durable(slots: &Slots, ca_spki: &[u8], minimum: u64) -> Option<u64> {
    let [(.., one), (.., other)] = <[_; 2]>::try_from(believed(slots, ca_spki, minimum)).ok()?;
    Some(one.version.min(other.version)).filter(|durable| *durable > minimum)
}

impl Renewal {
    /// Of what lies on the ESP, under the seal's minimum.
    #[must_use]
    pub fn of(slots: &Slots, ca_spki: Vec<u8>, minimum: u64) -> Self {
        let held = believed(slots, &ca_spki, minimum).into_iter().next();
        let Next { slot, generation } = Pair::read(File::Directory, slots.bytes()).next;
        // The newest by its checksum may be nobody's: what is believed is never written over.
        let slot = held.as_ref().map_or(slot, |(held, ..)| 1 - held);
        let held = held.map(|(_, _, directory)| directory);
        let newest = held.as_ref().map_or(minimum.saturating_sub(1), |held| held.version);
        Self { ca_spki, held, newest, next: Next { slot, generation }, waits: None, written: VecDeque::new() }
    }

    /// Takes what somebody says, which is not believed yet. What is older, or says nothing else, changes nothing.
    ///
    /// # Errors
    /// [`DirectoryError`] when the cluster has not signed it.
    pub fn hear(&mut self, signed: Vec<u8>) -> Result<(), DirectoryError> {
        let heard = Directory::verify(&signed, &self.ca_spki, 0)?;
        if heard.version <= self.newest {
            return Ok(());
        }
        self.newest = heard.version;
        // What came back to what is written needs no write.
        let again = self.held.as_ref().is_some_and(|held| held.coordinators == heard.coordinators);
        self.waits = (!again).then_some((heard, signed));
        Ok(())
    }

    /// From when on something is to be written; nothing while nothing waits.
    #[must_use]
    pub fn due(&self, now: Instant) -> Option<Instant> {
        let (waits, _) = self.waits.as_ref()?;
        let machines = |directory: &Directory| directory.coordinators.iter().map(|it| it.machine).collect::<Vec<_>>();
        let endpoints_alone = self.held.as_ref().is_some_and(|held| machines(held) == machines(waits));
        let first = self.written.front().filter(|_| endpoints_alone && self.written.len() == MOST_WRITES);
        Some(first.map_or(now, |first| now.max(*first + PERIOD)))
    }

    /// What is to be written now. It is what the machine has once it was performed: [`Self::written`].
    ///
    /// # Errors
    /// [`TooLarge`] for one that its file cannot hold; it waits no more.
    pub fn take(&mut self, now: Instant) -> Result<Option<Write>, TooLarge> {
        if self.due(now).is_none_or(|due| due > now) {
            return Ok(None);
        }
        let Some((directory, signed)) = self.waits.take() else { return Ok(None) };
        let Next { slot, generation } = self.next;
        Ok(Some(Write { slot, bytes: directory::emit(generation, &signed)?, directory }))
    }

    /// The write is durable.
    pub fn written(&mut self, write: Write, now: Instant) {
        self.held = Some(write.directory);
        self.next = self.next.after();
        if self.written.len() == MOST_WRITES {
            self.written.pop_front();
        }
        self.written.push_back(now);
    }
}

#[cfg(test)]
mod tests {
    use keys::directory::Coordinator;
    use keys::identity::cluster_id;
    use keys::pair::SLOT_BYTES;
    use model::{ClusterId, MachineId};
    use proptest::prelude::*;
    use zeroize::Zeroizing;

    use super::*;
    use crate::fixture::ca;

    const MINIMUM: u64 = 3;

    fn directory(version: u64, machines: u8, host: u8) -> Directory {
        let coordinator =
            |n| Coordinator { machine: MachineId([n; 16]), endpoints: vec![format!("192.0.2.{host}:7836")] };
        let coordinators = (1..=machines).map(coordinator).collect();
        Directory { cluster: cluster_id(&ca().spki), version, coordinators }
    }

    fn signed(directory: &Directory) -> Vec<u8> {
        ca().sign(&directory.unsigned())
    }

    fn blank() -> Slots {
        Slots([vec![0; SLOT_BYTES], vec![0; SLOT_BYTES]].map(Zeroizing::new))
    }

    fn newest(slots: &Slots) -> Option<Directory> {
        believed(slots, &ca().spki, MINIMUM).into_iter().next().map(|(_, _, directory)| directory)
    }

    #[derive(Debug, Clone, Copy)]
    enum Step {
        /// A coordinator that has seen the records up to this revision tells of its directory.
        Hears(prop::sample::Index),
        /// Somebody else tells of one of his own.
        Lied(u64),
        Passes(u16),
        /// The power goes in the midst of the next write, after some bytes of what it has to say.
        Cut(prop::sample::Index),
        /// The power stays, and all is heard.
        Settles,
    }

    /// How many bytes of a slot are its file; the rest is empty.
    fn said(slot: &[u8]) -> usize {
        slot.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1)
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => any::<prop::sample::Index>().prop_map(Step::Hears),
            1 => any::<u64>().prop_map(Step::Lied),
            4 => (0_u16..900).prop_map(Step::Passes),
            2 => any::<prop::sample::Index>().prop_map(Step::Cut),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

        /// Whatever is heard, in whatever order, and wherever the power goes: what lies on the ESP is the cluster's, gets never
        /// older, is never none again, and is that of now once all is heard and time has passed. And it is written as rarely
        /// as is said.
        ///
        /// Proves: D11
        #[test]
        fn the_newest_directory_of_the_cluster_is_kept_whatever_comes(
            all in prop::collection::vec((1_u8..4, 1_u8..4), 1..12),
            steps in prop::collection::vec(step(), 0..60),
        ) {
            let history: Vec<_> =
                (4..).zip(&all).map(|(version, (machines, host))| directory(version, *machines, *host)).collect();
            let mut slots = blank();
            slots.0[0] = Zeroizing::new(directory::emit(1, &signed(&directory(MINIMUM, 1, 1))).expect("fits"));
            let mut now = testkit::origin();
            let mut renewal = Renewal::of(&slots, ca().spki.clone(), MINIMUM);
            let (mut tear, mut writes) = (None, Vec::new());
            let newest_of_all = history.last().expect("one or more").clone();
            for step in steps.into_iter().chain([Step::Settles, Step::Passes(3600)]) {
                match step {
                    Step::Hears(which) => renewal.hear(signed(&history[which.index(history.len())])).expect("ours"),
                    Step::Lied(version) => {
                        let mut lie = signed(&directory(version, 3, 3));
                        let at = lie.len() - 1;
                        lie[at] ^= 1;
                        prop_assert!(renewal.hear(lie).is_err());
                    }
                    Step::Passes(seconds) => now += Duration::from_secs(seconds.into()),
                    Step::Cut(at) => tear = Some(at),
                    Step::Settles => {
                        tear = None;
                        renewal.hear(signed(&newest_of_all)).expect("ours");
                    }
                }
                let before = newest(&slots).expect("there is always one");
                if let Some(write) = renewal.take(now).expect("fits") {
                    let same = before.coordinators.iter().map(|it| it.machine)
                        .eq(write.directory.coordinators.iter().map(|it| it.machine));
                    let recent = writes.iter().filter(|then| now - **then < PERIOD).count();
                    prop_assert!(!same || recent < MOST_WRITES, "written for endpoints alone");
                    let torn = tear.take().map(|at| at.index(said(write.bytes())));
                    let whole = torn.unwrap_or(SLOT_BYTES);
                    slots.0[write.slot()][..whole].copy_from_slice(&write.bytes()[..whole]);
                    if torn.is_none() {
                        renewal.written(write, now);
                        writes.push(now);
                    } else {
                        // The machine is off and on again, with what lies there.
                        renewal = Renewal::of(&slots, ca().spki.clone(), MINIMUM);
                        writes.clear();
                    }
                }
                let kept = newest(&slots).expect("there is always one");
                prop_assert!(kept.version >= before.version);
            }
            prop_assert_eq!(newest(&slots).expect("one").coordinators, newest_of_all.coordinators);
        }
    }

    /// Proves: D11
    #[test]
    fn what_the_cluster_did_not_sign_is_refused_and_what_is_believed_is_not_written_over() {
        let mut slots = blank();
        slots.0[0] = Zeroizing::new(directory::emit(1, &signed(&directory(3, 1, 1))).expect("fits"));
        // A newer file, by its checksum, that nobody signed.
        let somebodys = directory(9, 2, 2).unsigned().emit(8, b"somebody's signature".to_vec()).expect("fits");
        slots.0[1] = Zeroizing::new(somebodys);
        let now = testkit::origin();
        let mut renewal = Renewal::of(&slots, ca().spki.clone(), MINIMUM);
        let foreign = Directory { cluster: ClusterId([1; 16]), ..directory(5, 1, 2) };
        assert_eq!(renewal.hear(signed(&foreign)), Err(DirectoryError::OtherCluster));
        renewal.hear(signed(&directory(2, 2, 2))).expect("ours");
        assert_eq!(renewal.due(now), None, "older than the one that lies there");
        assert_eq!(Renewal::of(&blank(), ca().spki.clone(), MINIMUM).newest, MINIMUM - 1, "nor than the seal allows");
        renewal.hear(signed(&directory(5, 2, 1))).expect("ours");
        let write = renewal.take(now).expect("fits").expect("another coordinator");
        assert_eq!(write.slot(), 1);
        assert_eq!(Slot::read(File::Directory, write.bytes()).expect("reads").generation, 9);
        renewal.written(write, now);
        renewal.hear(signed(&directory(6, 2, 1))).expect("ours");
        assert_eq!(renewal.due(now), None, "it says nothing else");
        for (version, host) in [(7, 2), (8, 1), (9, 2), (10, 1), (11, 2)] {
            renewal.hear(signed(&directory(version, 2, host))).expect("ours");
            let write = renewal.take(now).expect("fits").expect("another endpoint");
            renewal.written(write, now);
        }
        renewal.hear(signed(&directory(12, 2, 1))).expect("ours");
        assert_eq!(renewal.due(now), Some(now + PERIOD), "six were written");
        assert!(renewal.take(now).expect("fits").is_none());
        renewal.hear(signed(&directory(13, 1, 1))).expect("ours");
        assert_eq!(renewal.due(now), Some(now), "who coordinates changed");
        renewal.hear(signed(&directory(14, 2, 2))).expect("ours");
        assert_eq!(renewal.due(now), None, "all is as it is written");
        renewal.hear(signed(&directory(13, 1, 1))).expect("ours");
        assert_eq!(renewal.due(now), None, "what comes late is of before");
    }
}
