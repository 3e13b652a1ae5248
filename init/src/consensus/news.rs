//! News of the cluster's machines for one of them, as this coordinator sees them: at once, at each change, and now and then
//! though there are none, so that the other side knows that somebody is there. What is news is said by `cluster::peers`.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use cluster::epochs::is_needed;
use cluster::peers::News;
use cluster::record::Machine;
use cluster::state::PeerVersion;
use model::{ClusterRole, MachineId};
use tokio::sync::watch;
use tokio::time::sleep;

use super::directory::Signed;
use super::{Seen, Unread};

/// Whoever hears nothing for three times as long asks another coordinator.
const ALIVE: Duration = Duration::from_secs(5);

/// Why there are no news, and will be none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NoNews {
    /// This coordinator has none itself.
    #[error(transparent)]
    Unread(#[from] Unread),
    /// It has not looked at etcd's members yet.
    #[error("etcd's members are not known yet; nothing was done; ask again")]
    Members,
    /// They are for machines that belong.
    #[error("this machine does not belong to the cluster; nothing was done")]
    NotMember,
}

/// What a machine is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Tells {
    /// Of the others.
    News(News),
    /// Where the coordinators are, signed.
    Directory(Vec<u8>),
}

/// What one machine is told, one after the other.
#[derive(Debug)]
pub(crate) struct NewsFor {
    seen: watch::Receiver<Seen>,
    machine: MachineId,
    known: Option<PeerVersion>,
    /// The directory that it was told of.
    directory: Option<Arc<Signed>>,
    /// Nothing was said yet: it is said at once that somebody is there.
    silent: bool,
}

impl NewsFor {
    pub(super) fn begin(seen: watch::Receiver<Seen>, machine: MachineId, known: Option<PeerVersion>) -> Self {
        Self { seen, machine, known, directory: None, silent: true }
    }

    /// Whether the machine belongs, by its record as it is seen now.
    ///
    /// # Errors
    /// [`NoNews`] says why not.
    pub(crate) fn may_hear(&self) -> Result<(), NoNews> {
        let seen = self.seen.borrow();
        let state = seen.view.as_ref().ok_or(Unread)?.state();
        let belongs = state.machine(&self.machine).is_some_and(Machine::belongs);
        if !belongs {
            return Err(NoNews::NotMember);
        }
        if state.members().voters.is_empty() { Err(NoNews::Members) } else { Ok(()) }
    }

    /// What the machine is: a coordinator from when its record says so until etcd has it as a member no longer, and the others
    /// can open their disks without its share.
    pub(crate) fn role(&self) -> Result<ClusterRole, NoNews> {
        self.may_hear()?;
        let seen = self.seen.borrow();
        let state = seen.view.as_ref().ok_or(Unread)?.state();
        let record = state.machine(&self.machine);
        let stays = state.members().has(&self.machine) || is_needed(state, &self.machine);
        let coordinates = stays || record.is_some_and(Machine::coordinates);
        Ok(if coordinates { ClusterRole::Coordinator } else { ClusterRole::Node })
    }

    /// What is to be told next.
    ///
    /// # Errors
    /// [`NoNews`] for a machine that belongs no longer.
    pub(crate) async fn next(&mut self) -> Result<Tells, NoNews> {
        let mut alive = pin!(sleep(if self.silent { Duration::ZERO } else { ALIVE }));
        self.silent = false;
        loop {
            self.seen.mark_unchanged();
            self.may_hear()?;
            if let Some(signed) = self.newer_directory() {
                return Ok(Tells::Directory(signed));
            }
            let news = self.seen.borrow().view.as_ref().ok_or(Unread)?.state().news(self.known);
            if news != News::Nothing {
                self.known = news.version().or(self.known);
                return Ok(Tells::News(news));
            }
            tokio::select! {
                () = &mut alive => return Ok(Tells::News(News::Nothing)),
                changed = self.seen.changed() => changed.map_err(|_ended| Unread)?,
            }
        }
    }

    /// One that it was not told of.
    fn newer_directory(&mut self) -> Option<Vec<u8>> {
        let seen = self.seen.borrow().directory.clone()?;
        if self.directory.as_ref().is_some_and(|told| Arc::ptr_eq(told, &seen)) {
            return None;
        }
        Some(self.directory.insert(seen).bytes.clone())
    }
}

#[cfg(test)]
mod tests {
    use cluster::View;
    use cluster::key::Key;
    use cluster::record::{ColdStartEpochs, Machine, Standing};
    use cluster::state::{Change, KeyValue};
    use keys::cold_start::Epoch;
    use model::ClusterRole;

    use super::*;
    use crate::consensus::fixture::{machine, members, put};

    const NOTHING: Result<Tells, NoNews> = Ok(Tells::News(News::Nothing));

    /// A coordinator that has seen two machines, let in in the revisions 1 and 2; and news for the first of them.
    fn seen(known: Option<u64>) -> (watch::Sender<Seen>, NewsFor) {
        let two = [(1, 1), (2, 2)].map(|(n, revision)| put(&machine(n, Standing::Admitted), revision));
        let mut view = View::read(two, 2).expect("our own");
        view.see(members(&[9]));
        let sender = watch::Sender::new(Seen { view: Some(view), ..Seen::default() });
        let known = known.map(|revision| PeerVersion { recoveries: 0, revision });
        let news = NewsFor::begin(sender.subscribe(), machine(1, Standing::Admitted).id(), known);
        (sender, news)
    }

    fn change(seen: &watch::Sender<Seen>, machine: &Machine, revision: u64) {
        seen.send_modify(|seen| {
            let view = seen.view.as_mut().expect("it was read");
            view.take([Change::Put(put(machine, revision))], revision).expect("our own");
        });
    }

    /// An epoch of the cold-start key stands, of these machines.
    fn hold(seen: &watch::Sender<Seen>, holders: &[u8], revision: u64) {
        let holders = holders.iter().map(|n| machine(*n, Standing::Member).id()).collect();
        let epochs = ColdStartEpochs { current: Some(Epoch::new(2, holders).expect("an epoch")), next: None };
        let (key, value) = (Key::ColdStart.bytes(), epochs.encode());
        seen.send_modify(|seen| {
            let change = [Change::Put(KeyValue { key, value, mod_revision: revision })];
            seen.view.as_mut().expect("it was read").take(change, revision).expect("our own");
        });
    }

    /// Proves: M2
    #[tokio::test(start_paused = true)]
    async fn a_machine_hears_all_then_each_change_and_in_between_that_somebody_is_there() {
        let (seen, mut news) = seen(None);
        assert!(matches!(news.next().await, Ok(Tells::News(News::Whole { peers, .. })) if peers.len() == 2));
        let began = tokio::time::Instant::now();
        assert_eq!(news.next().await, NOTHING);
        assert_eq!(began.elapsed(), ALIVE);
        change(&seen, &machine(3, Standing::Admitted), 3);
        let heard = news.next().await;
        assert!(
            matches!(heard, Ok(Tells::News(News::Changed { peers, .. })) if peers.len() == 1),
            "once, and only what is new"
        );
        assert_eq!((news.next().await, began.elapsed()), (NOTHING, ALIVE * 2));
    }

    /// Proves: M2
    #[tokio::test(start_paused = true)]
    async fn who_knows_all_is_answered_at_once_and_who_knows_more_is_told_so() {
        let began = tokio::time::Instant::now();
        let (_seen, mut news) = seen(Some(2));
        assert_eq!((news.next().await, began.elapsed()), (NOTHING, Duration::ZERO));
        let (_seen, mut news) = seen(Some(3));
        assert_eq!((news.next().await, began.elapsed()), (Ok(Tells::News(News::Behind)), Duration::ZERO));
    }

    /// Proves: D11
    #[tokio::test(start_paused = true)]
    async fn a_machine_hears_of_a_directory_first_and_then_of_each_that_is_another() {
        let (seen, mut news) = seen(Some(2));
        let signed = |byte| Some(Arc::new(Signed::of(vec![], vec![byte])));
        seen.send_modify(|seen| seen.directory = signed(1));
        assert_eq!(news.next().await, Ok(Tells::Directory(vec![1])));
        assert_eq!(news.next().await, NOTHING, "once");
        seen.send_modify(|seen| seen.directory = signed(2));
        assert_eq!((news.next().await, news.next().await), (Ok(Tells::Directory(vec![2])), NOTHING));
    }

    /// Who does not know etcd's members would tell a coordinator that it is none.
    #[tokio::test(start_paused = true)]
    async fn a_machine_is_a_coordinator_from_its_record_on_until_etcd_has_let_go_of_it() {
        let (seen, news) = seen(Some(2));
        let see = |voters: &[u8]| {
            seen.send_modify(|seen| seen.view.as_mut().expect("it was read").see(members(voters)));
        };
        assert_eq!(news.role(), Ok(ClusterRole::Node));
        change(&seen, &Machine { role: ClusterRole::Coordinator, ..machine(1, Standing::Member) }, 3);
        assert_eq!(news.role(), Ok(ClusterRole::Coordinator), "before etcd has added it");
        see(&[1, 9]);
        change(&seen, &machine(1, Standing::Member), 4);
        assert_eq!(news.role(), Ok(ClusterRole::Coordinator), "it is not to leave before etcd has removed it");
        see(&[9]);
        hold(&seen, &[1, 9], 5);
        assert_eq!(news.role(), Ok(ClusterRole::Coordinator), "the other cannot open without its share");
        hold(&seen, &[9], 6);
        assert_eq!(news.role(), Ok(ClusterRole::Node));
        see(&[]);
        assert_eq!((news.role(), news.may_hear()), (Err(NoNews::Members), Err(NoNews::Members)));
    }

    /// Its certificate is as good as before.
    #[tokio::test(start_paused = true)]
    async fn a_machine_that_is_removed_hears_nothing_more() {
        let (seen, mut news) = seen(Some(2));
        assert_eq!((news.may_hear(), news.next().await), (Ok(()), NOTHING));
        change(&seen, &machine(1, Standing::Removed), 3);
        assert_eq!((news.may_hear(), news.next().await), (Err(NoNews::NotMember), Err(NoNews::NotMember)));
        let stranger = NewsFor::begin(seen.subscribe(), machine(9, Standing::Admitted).id(), None);
        assert_eq!(stranger.may_hear(), Err(NoNews::NotMember));
        seen.send_replace(Seen::default());
        assert_eq!(stranger.may_hear(), Err(NoNews::Unread(Unread)));
    }
}
