//! Which directory a member keeps on its ESP while it serves: the newest that its cluster signed. Of whom it was heard matters
//! for the seal's minimum alone, which rises to what more than one side gave. Must never take a version that jumps but by the owner's
//! word; nor write over the slot that holds the one it has, so that a cut leaves that one whole; nor write more often than who coordinates changes, or six times an hour where only their endpoints do.
//!
//! ```text
//!   hear ─► not signed, another cluster's, or a jump: refused  due ─► take ─► DirectoryWrite ─► written: it is the one it has
//!        ├► newer, and says something else: waits ─────────────┘         │     └ with the version that was vouched for by then
//!        └► of a second coordinator: vouched          by_owner ──────────┘ whatever its version: what was heard before is forgotten
//! ```
//!
//! # Invariants
//! - The directory on a member's ESP is its cluster's and never gets older; a cut while it is renewed leaves the one
//!   before: `the_newest_directory_of_the_cluster_is_kept_whatever_comes`
//! - A directory whose version jumps is refused by name: `a_version_that_jumps_is_refused_by_name`
//! - A seal's minimum rises only to what two coordinators gave: `the_minimum_rises_to_what_two_coordinators_gave`
//! - A cut while the seal's minimum rises leaves a seal that opens:
//!   `a_cut_while_the_seals_minimum_rises_leaves_one_that_opens`
//! - A cut while the owner lowers the minimum leaves the old or the new one, with a directory that it allows:
//!   `a_cut_while_the_owner_lowers_the_minimum_leaves_old_or_new`
//! - A jump is taken by the owner's word; a machine that runs goes on from there:
//!   `a_member_that_runs_goes_on_from_what_its_owner_gave`

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use cluster::directory::is_jump;
use keys::directory::{self, Directory, DirectoryError, DirectoryMinimum, Notes};
use keys::two_slot::{File, NextSlot, Slots, TooLarge, TwoSlotFile};
use model::MachineId;

use crate::directory::believed;

/// So many writes for the sake of endpoints in [`PERIOD`]: machines whose addresses come and go would wear the disk out. More than
/// one, since whoever changes its address twice and is switched off with all others would be looked for at the one between.
const MOST_WRITES: usize = 6;
/// See [`MOST_WRITES`].
const PERIOD: Duration = Duration::from_secs(3600);

/// So many coordinators vouch for a version; all, where there are fewer.
const VOUCHERS: usize = 2;

/// Giver of a directory: of whom it was heard.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Giver {
    /// The machine made it itself, of the records that a quorum of etcd's voters keeps.
    Itself,
    /// This coordinator, known by its place in the VPN: a certificate proves nothing against who once held the CA's key.
    Coordinator(MachineId),
    /// Somebody whom the machine knows by a certificate alone.
    Stranger,
}

/// Why a directory is not taken. The one that the machine has stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HearError {
    /// The machine's cluster has not signed the directory.
    #[error(transparent)]
    Directory(#[from] DirectoryError),
    /// The machine's cluster cannot have come so far.
    #[error(
        "its version jumps from {held:#x} to {found:#x}: by more than one recovery, or by more than is ever written"
    )]
    Jump {
        /// The version that the directory says.
        found: u64,
        /// The newest that was heard of before.
        held: u64,
    },
}

/// Why a directory that the owner gives is not written. The one that the machine has stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RenewError {
    /// The cluster has not signed it.
    #[error(transparent)]
    Directory(#[from] DirectoryError),
    /// The directory has more coordinators than its file has room for.
    #[error(transparent)]
    TooLarge(#[from] TooLarge),
}

/// Renewal of a member's directory: which one it has, which one waits to be written, and who vouches for that.
#[derive(Debug)]
pub struct Renewal {
    ca_spki: Vec<u8>,
    minimum: DirectoryMinimum,
    held: Option<Directory>,
    /// The version of the newest that was ever heard of in this boot; it may be one that needed no write.
    newest: u64,
    /// The newest that each coordinator gave in this boot.
    given: BTreeMap<MachineId, u64>,
    /// The highest version up to which enough of them vouch, in this boot or one before.
    vouched: u64,
    next: NextSlot,
    waits: Option<(Directory, Vec<u8>)>,
    /// When it was written in this boot, the newest last: the last [`MOST_WRITES`].
    written: VecDeque<Instant>,
}

/// A slot of the directory's file that is to be overwritten, whole, and synced. Only [`Renewal::take`] and [`Renewal::by_owner`] make
/// one.
#[derive(Debug)]
#[must_use]
pub struct DirectoryWrite {
    slot: usize,
    bytes: Vec<u8>,
    directory: Directory,
    word: Word,
}

/// By whose word a directory is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Word {
    Cluster,
    Owner,
}

impl DirectoryWrite {
    /// 0 or 1: which of [`File::paths`].
    #[must_use]
    pub const fn slot(&self) -> usize {
        self.slot
    }

    /// Version of the directory that is written.
    #[must_use]
    pub const fn version(&self) -> u64 {
        self.directory.version
    }

    /// The whole slot, as it is written.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

impl Renewal {
    /// Begins with what lies on the ESP, under the seal's minimum.
    #[must_use]
    pub fn of(slots: &Slots, ca_spki: Vec<u8>, minimum: DirectoryMinimum) -> Self {
        let least = minimum.beside(slots.bytes());
        let believed = believed(slots, &ca_spki, least);
        let held = believed.into_iter().next();
        // Not the older slot's: each write notes what was vouched for before, unless the owner's word took it back.
        let vouched = held.as_ref().and_then(|held| held.kept.vouched).unwrap_or_default();
        let NextSlot { slot, generation } = TwoSlotFile::read(File::Directory, slots.bytes()).next;
        // The newest by its checksum may be nobody's: what is believed is never written over.
        let slot = held.as_ref().map_or(slot, |held| 1 - held.slot);
        let held = held.map(|held| held.kept.directory);
        let newest = held.as_ref().map_or(least.saturating_sub(1), |held| held.version);
        let (next, given, written) = (NextSlot { slot, generation }, BTreeMap::new(), VecDeque::new());
        Self { ca_spki, minimum, held, newest, given, vouched, next, waits: None, written }
    }

    /// Takes what `by` says, which is not believed yet. What is older, or says nothing else, changes nothing on the ESP.
    ///
    /// # Errors
    /// [`HearError`] when the cluster has not signed it, or cannot have come so far.
    pub fn hear(&mut self, signed: Vec<u8>, by: Giver) -> Result<(), HearError> {
        let heard = Directory::verify(&signed, &self.ca_spki, 0)?;
        if is_jump(self.newest, heard.version) {
            return Err(HearError::Jump { found: heard.version, held: self.newest });
        }
        self.vouch(heard.version, by);
        if heard.version <= self.newest {
            return Ok(());
        }
        self.newest = heard.version;
        // What came back to what is written needs no write.
        let again = self.held.as_ref().is_some_and(|held| held.coordinators == heard.coordinators);
        self.waits = (!again).then_some((heard, signed));
        Ok(())
    }

    fn vouch(&mut self, version: u64, by: Giver) {
        match by {
            Giver::Stranger => {}
            Giver::Itself => self.vouched = self.vouched.max(version),
            Giver::Coordinator(machine) => {
                let given = self.given.entry(machine).or_default();
                *given = version.max(*given);
                // Who coordinates says the directory that the machine has, and not the one that is to be vouched for.
                let held = self.held.iter().flat_map(|held| &held.coordinators);
                let mut given: Vec<_> = held.map(|it| self.given.get(&it.machine).copied()).collect();
                given.sort_unstable();
                let enough = given.len().min(VOUCHERS);
                let vouched = enough.checked_sub(1).and_then(|place| given.into_iter().rev().nth(place)).flatten();
                self.vouched = self.vouched.max(vouched.unwrap_or_default());
            }
        }
    }

    /// Directory that lies on the ESP and is believed.
    #[must_use]
    pub const fn held(&self) -> Option<&Directory> {
        self.held.as_ref()
    }

    /// Coordinators that should be heard, too: those that have not given what is the newest, while too few vouch for that.
    #[must_use]
    pub fn missing(&self) -> Vec<MachineId> {
        let held = self.held.iter().flat_map(|held| &held.coordinators).map(|it| it.machine);
        let behind = |machine: &MachineId| self.given.get(machine).is_none_or(|given| *given < self.newest);
        held.filter(|machine| self.vouched < self.newest && behind(machine)).collect()
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

    /// Takes what is to be written now. It is what the machine has once it was performed: [`Self::written`].
    ///
    /// # Errors
    /// [`TooLarge`] for one that its file cannot hold; it waits no more.
    pub fn take(&mut self, now: Instant) -> Result<Option<DirectoryWrite>, TooLarge> {
        if self.due(now).is_none_or(|due| due > now) {
            return Ok(None);
        }
        let Some((directory, signed)) = self.waits.take() else { return Ok(None) };
        let vouched = Some(self.vouched).filter(|vouched| *vouched > 0);
        Ok(Some(self.write(directory, &signed, vouched, Word::Cluster)?))
    }

    /// Makes the write of a directory that the machine's owner gives, also where its version jumps, or is older than the one
    /// that the machine has, or than the seal's minimum: the owner knows better than any version, and vouches for this one.
    /// Once it was performed, [`Self::written`], what others had given before counts no more.
    ///
    /// # Errors
    /// [`RenewError`] when the cluster has not signed it, or its file cannot hold it.
    pub fn by_owner(&self, signed: &[u8]) -> Result<DirectoryWrite, RenewError> {
        let directory = Directory::verify(signed, &self.ca_spki, 0)?;
        let vouched = Some(directory.version);
        Ok(self.write(directory, signed, vouched, Word::Owner)?)
    }

    /// A write over the slot that is not believed, the newest from then on. Below the seal's minimum the owner's word stands beside it:
    /// nothing else has brought the machine there, and the seal is lowered only at its next start.
    fn write(
        &self,
        directory: Directory,
        signed: &[u8],
        vouched: Option<u64>,
        word: Word,
    ) -> Result<DirectoryWrite, TooLarge> {
        let NextSlot { slot, generation } = self.next;
        let lowers = Some(&self.minimum).filter(|minimum| directory.version < minimum.version);
        let bytes = directory::emit(generation, signed, Notes { vouched, lowers })?;
        Ok(DirectoryWrite { slot, bytes, directory, word })
    }

    /// The write is durable.
    pub fn written(&mut self, write: DirectoryWrite, now: Instant) {
        if write.word == Word::Owner {
            (self.newest, self.vouched) = (write.directory.version, write.directory.version);
            (self.given, self.waits) = (BTreeMap::new(), None);
        }
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
    use keys::two_slot::{SLOT_BYTES, Slot};
    use model::{ClusterId, MachineId};
    use proptest::prelude::*;
    use zeroize::Zeroizing;

    use super::*;
    use crate::directory::durable;
    use crate::fixture::{blank, ca, sealed};

    const MINIMUM: u64 = 3;
    const BY: Giver = Giver::Stranger;

    fn directory(version: u64, machines: u8, host: u8) -> Directory {
        let coordinator =
            |n| Coordinator { machine: MachineId([n; 16]), endpoints: vec![format!("192.0.2.{host}:7836")] };
        let coordinators = (1..=machines).map(coordinator).collect();
        Directory { cluster: cluster_id(&ca().spki), version, coordinators }
    }

    fn signed(directory: &Directory) -> Vec<u8> {
        ca().sign(directory)
    }

    fn newest(slots: &Slots) -> Option<Directory> {
        believed(slots, &ca().spki, MINIMUM).into_iter().next().map(|it| it.kept.directory)
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

        /// Directories on the ESP, whatever is heard, in whatever order, and wherever the power goes: what lies there is the
        /// cluster's, gets never older, is never none again, and is that of now once all is heard and time has passed. And it
        /// is written as rarely as is said.
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
            slots.0[0] = Zeroizing::new(directory::emit(1, &signed(&directory(MINIMUM, 1, 1)), Notes::default()).expect("fits"));
            let mut now = testkit::origin();
            let mut renewal = Renewal::of(&slots, ca().spki.clone(), sealed(MINIMUM));
            let (mut tear, mut writes) = (None, Vec::new());
            let newest_of_all = history.last().expect("one or more").clone();
            for step in steps.into_iter().chain([Step::Settles, Step::Passes(3600)]) {
                match step {
                    Step::Hears(which) => renewal.hear(signed(&history[which.index(history.len())]), BY).expect("ours"),
                    Step::Lied(version) => {
                        let mut lie = signed(&directory(version, 3, 3));
                        let at = lie.len() - 1;
                        lie[at] ^= 1;
                        prop_assert!(renewal.hear(lie, BY).is_err());
                    }
                    Step::Passes(seconds) => now += Duration::from_secs(seconds.into()),
                    Step::Cut(at) => tear = Some(at),
                    Step::Settles => {
                        tear = None;
                        renewal.hear(signed(&newest_of_all), BY).expect("ours");
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
                        renewal = Renewal::of(&slots, ca().spki.clone(), sealed(MINIMUM));
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
    fn what_is_believed_is_not_written_over_by_what_nobody_signed() {
        let mut slots = blank();
        slots.0[0] = Zeroizing::new(directory::emit(1, &signed(&directory(3, 1, 1)), Notes::default()).expect("fits"));
        // A newer file, by its checksum, that nobody signed.
        let somebodys = directory(9, 2, 2).unsigned().signed(b"somebody's signature".to_vec());
        let somebodys = directory::emit(8, &somebodys, Notes::default()).expect("fits");
        slots.0[1] = Zeroizing::new(somebodys);
        let now = testkit::origin();
        let mut renewal = Renewal::of(&slots, ca().spki.clone(), sealed(MINIMUM));
        let foreign = Directory { cluster: ClusterId([1; 16]), ..directory(5, 1, 2) };
        assert_eq!(renewal.hear(signed(&foreign), BY), Err(HearError::Directory(DirectoryError::OtherCluster)));
        renewal.hear(signed(&directory(2, 2, 2)), BY).expect("ours");
        assert_eq!(renewal.due(now), None, "older than the one that lies there");
        assert_eq!(
            Renewal::of(&blank(), ca().spki.clone(), sealed(MINIMUM)).newest,
            MINIMUM - 1,
            "nor than the seal allows"
        );
        renewal.hear(signed(&directory(5, 2, 1)), BY).expect("ours");
        let write = renewal.take(now).expect("fits").expect("another coordinator");
        assert_eq!((write.slot(), write.version()), (1, 5));
        assert_eq!(Slot::read(File::Directory, write.bytes()).expect("reads").generation, 9);
        let held = |renewal: &Renewal| renewal.held().map(|held| held.version);
        assert_eq!(held(&renewal), Some(3), "until it is durable");
        renewal.written(write, now);
        assert_eq!(held(&renewal), Some(5));
        renewal.hear(signed(&directory(6, 2, 1)), BY).expect("ours");
        assert_eq!(renewal.due(now), None, "it says nothing else");
        for (version, host) in [(7, 2), (8, 1), (9, 2), (10, 1), (11, 2)] {
            renewal.hear(signed(&directory(version, 2, host)), BY).expect("ours");
            let write = renewal.take(now).expect("fits").expect("another endpoint");
            renewal.written(write, now);
        }
        renewal.hear(signed(&directory(12, 2, 1)), BY).expect("ours");
        assert_eq!(renewal.due(now), Some(now + PERIOD), "six were written");
        assert!(renewal.take(now).expect("fits").is_none());
        renewal.hear(signed(&directory(13, 1, 1)), BY).expect("ours");
        assert_eq!(renewal.due(now), Some(now), "who coordinates changed");
        renewal.hear(signed(&directory(14, 2, 2)), BY).expect("ours");
        assert_eq!(renewal.due(now), None, "all is as it is written");
        renewal.hear(signed(&directory(13, 1, 1)), BY).expect("ours");
        assert_eq!(renewal.due(now), None, "what comes late is of before");
    }

    /// A member whose ESP holds one directory, of version 3, with so many coordinators.
    fn member(machines: u8) -> (Slots, Renewal) {
        let mut slots = blank();
        slots.0[0] =
            Zeroizing::new(directory::emit(1, &signed(&directory(3, machines, 1)), Notes::default()).expect("fits"));
        let renewal = Renewal::of(&slots, ca().spki.clone(), sealed(MINIMUM));
        (slots, renewal)
    }

    /// Below the minimum the owner's word stands beside the directory; from there on nothing has to. Proves: D11
    #[test]
    fn only_a_directory_below_the_minimum_is_lowered_to() {
        let (slots, renewal) = member(2);
        let lowered = |version| {
            let write = renewal.by_owner(&signed(&directory(version, 2, 2))).expect("ours");
            let mut slots = slots.clone();
            slots.0[write.slot()] = Zeroizing::new(write.bytes().to_vec());
            let minimum = sealed(MINIMUM);
            (minimum.beside(slots.bytes()) < MINIMUM, said(write.bytes()))
        };
        let [(below, longer), (at, bare), (above, as_bare)] = [MINIMUM - 1, MINIMUM, MINIMUM + 1].map(lowered);
        assert_eq!((below, at, above), (true, false, false));
        // The CA's signatures differ by a few bytes, and a word is longer than that.
        assert!(longer > bare + 16 && bare.abs_diff(as_bare) < 8, "a word beside one that has nothing to lower");
    }

    /// Proves: D11
    #[test]
    fn a_version_that_jumps_is_refused_by_name() {
        const RECOVERY: u64 = 1 << 48;
        let (_, mut renewal) = member(2);
        for found in [u64::MAX, 2 * RECOVERY + 4, 3 + (1 << 32), RECOVERY + 3 + (1 << 32)] {
            for by in [Giver::Itself, Giver::Coordinator(MachineId([1; 16])), Giver::Stranger] {
                let refused = renewal.hear(signed(&directory(found, 1, 2)), by);
                assert_eq!(refused, Err(HearError::Jump { found, held: 3 }), "{found:#x} by {by:?}");
            }
        }
        assert_eq!((renewal.due(testkit::origin()), renewal.vouched), (None, 0), "nothing is written for it");
        for version in [2 + (1 << 32), RECOVERY + 1, 2 * RECOVERY + 1] {
            assert_eq!(renewal.hear(signed(&directory(version, 1, 2)), BY), Ok(()), "{version:#x}");
        }
    }

    /// Proves: D11
    #[test]
    fn the_minimum_rises_to_what_two_coordinators_gave() {
        let coordinator = |n: u8| Giver::Coordinator(MachineId([n; 16]));
        let (one, two, node) = (coordinator(1), coordinator(2), coordinator(9));
        // Who coordinates at first, who gives versions 5 and 7, who gives them, too, and to which version the minimum may rise.
        for (machines, first, then, minimum) in [
            (2, one, vec![], None),
            (2, one, vec![(6, one)], None),
            (2, one, vec![(6, Giver::Stranger)], None),
            (2, one, vec![(6, node)], None),
            (2, one, vec![(6, two)], Some(5)),
            (2, one, vec![(4, two)], Some(4)),
            (3, one, vec![(6, coordinator(3))], Some(5)),
            (3, node, vec![(6, one)], None),
            (1, one, vec![], Some(5)),
            (1, node, vec![], None),
            (1, two, vec![(6, Giver::Stranger)], None),
            (2, Giver::Itself, vec![], Some(5)),
            (2, Giver::Stranger, vec![(6, one), (6, two)], Some(5)),
        ] {
            let (mut slots, mut renewal) = member(machines);
            let mut hears = |version, host, by, slots: &mut Slots| {
                renewal.hear(signed(&directory(version, machines, host)), by).expect("ours");
                let write = renewal.take(testkit::origin()).expect("fits");
                if let Some(write) = write {
                    slots.0[write.slot()].copy_from_slice(write.bytes());
                    renewal.written(write, testkit::origin());
                }
            };
            hears(5, 2, first, &mut slots);
            for (version, by) in &then {
                hears(*version, 2, *by, &mut slots);
            }
            assert_eq!(durable(&slots, &ca().spki, MINIMUM), None, "the one from before is there still");
            hears(7, 1, first, &mut slots);
            let row = (machines, first, &then);
            assert_eq!(durable(&slots, &ca().spki, MINIMUM), minimum, "{row:?}");
            // The machine is off and on: what was vouched for is known still.
            let again = Renewal::of(&slots, ca().spki.clone(), sealed(MINIMUM));
            assert_eq!(again.vouched >= 4, minimum.is_some(), "{row:?}");
        }
    }

    /// Proves: D11
    #[test]
    fn whoever_has_not_given_the_newest_is_asked_while_too_few_have() {
        let (_, mut renewal) = member(3);
        let ids = |ids: &[u8]| ids.iter().map(|n| MachineId([*n; 16])).collect::<Vec<_>>();
        assert_eq!(renewal.missing(), ids(&[1, 2, 3]));
        let mut hears = |version, by: u8| {
            let by = Giver::Coordinator(MachineId([by; 16]));
            renewal.hear(signed(&directory(version, 3, 1)), by).expect("ours");
            renewal.missing()
        };
        assert_eq!(hears(5, 2), ids(&[1, 3]));
        assert_eq!(hears(4, 3), ids(&[1, 3]), "an older one");
        assert_eq!(hears(5, 1), [], "two are enough");
        assert_eq!(hears(6, 3), ids(&[1, 2]));
    }

    /// Proves: D11
    #[test]
    fn endpoints_alone_are_written_six_times_in_any_hour() {
        let (begin, minute) = (testkit::origin(), Duration::from_secs(60));
        let mut renewal = Renewal::of(&blank(), ca().spki.clone(), sealed(MINIMUM));
        let mut written_at = Vec::new();
        let mut now = begin;
        for (version, host) in (MINIMUM..).zip([1, 2].repeat(7)) {
            renewal.hear(signed(&directory(version, 1, host)), BY).expect("ours");
            now = renewal.due(now + minute).expect("it waits");
            let write = renewal.take(now).expect("fits").expect("it is due");
            renewal.written(write, now);
            written_at.push((now - begin).as_secs() / 60);
        }
        assert_eq!(written_at, [1, 2, 3, 4, 5, 6, 61, 62, 63, 64, 65, 66, 121, 122]);
    }
}
