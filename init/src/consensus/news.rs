//! News of the cluster's machines for one of them, as this coordinator sees them: at once, at each change, and now and then
//! though there are none, so that the other side knows that somebody is there. What is news is said by `cluster::peers`.

use std::pin::pin;
use std::time::Duration;

use cluster::peers::News;
use cluster::state::PeerVersion;
use model::MachineId;
use tokio::sync::watch;
use tokio::time::sleep;

use super::{Seen, Unread};

/// Whoever hears nothing for three times as long asks another coordinator.
const ALIVE: Duration = Duration::from_secs(5);

/// Why there are no news, and will be none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NoNews {
    /// This coordinator has none itself.
    #[error(transparent)]
    Unread(#[from] Unread),
    /// They are for machines that belong.
    #[error("this machine does not belong to the cluster; nothing was done")]
    NotMember,
}

/// What one machine is told.
#[derive(Debug)]
pub(crate) struct NewsFor {
    seen: watch::Receiver<Seen>,
    machine: MachineId,
    known: Option<PeerVersion>,
    /// Nothing was said yet: it is said at once that somebody is there.
    silent: bool,
}

impl NewsFor {
    pub(super) fn begin(seen: watch::Receiver<Seen>, machine: MachineId, known: Option<PeerVersion>) -> Self {
        Self { seen, machine, known, silent: true }
    }

    /// Whether the machine belongs, by its record as it is seen now.
    ///
    /// # Errors
    /// [`NoNews`] says why not.
    pub(crate) fn may_hear(&self) -> Result<(), NoNews> {
        let seen = self.seen.borrow();
        let state = seen.view.as_ref().ok_or(Unread)?.state();
        let belongs = state.machine(&self.machine).is_some_and(cluster::record::Machine::belongs);
        if belongs { Ok(()) } else { Err(NoNews::NotMember) }
    }

    /// What is to be told next.
    ///
    /// # Errors
    /// [`NoNews`] for a machine that belongs no longer.
    pub(crate) async fn next(&mut self) -> Result<News, NoNews> {
        let mut alive = pin!(sleep(if self.silent { Duration::ZERO } else { ALIVE }));
        self.silent = false;
        loop {
            self.seen.mark_unchanged();
            self.may_hear()?;
            let news = self.seen.borrow().view.as_ref().ok_or(Unread)?.state().news(self.known);
            if news != News::Nothing {
                self.known = news.version().or(self.known);
                return Ok(news);
            }
            tokio::select! {
                () = &mut alive => return Ok(News::Nothing),
                changed = self.seen.changed() => changed.map_err(|_ended| Unread)?,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use cluster::View;
    use cluster::key::Key;
    use cluster::record::{Admission, Endpoints, Generations, Machine, Release, Standing, Times, UnixSeconds};
    use cluster::state::{Change, KeyValue};
    use model::{
        BootClass, ClusterRole, DiskUuid, Level, MachinePubKey, NodeName, OwnerPubKey, RootHash, Uuid, VPN_PREFIX,
        VpnPubKey,
    };

    use super::*;

    fn machine(n: u8, standing: Standing) -> Machine {
        Machine {
            key: MachinePubKey([n; 32]),
            name: NodeName::derived(keys::identity::machine_id(&[n; 32])),
            role: ClusterRole::Node,
            kubernetes: BTreeSet::new(),
            standing,
            vpn_ip: VPN_PREFIX.nth(u32::from(n)).expect("an address"),
            pods: None,
            vpn_key: VpnPubKey([n; 32]),
            disk: DiskUuid(Uuid([n; 16])),
            generations: Generations::One(1),
            level: Level::Encrypted,
            boot_class: BootClass::Uefi,
            release: Release(0, 3, 0),
            root_hash: RootHash([7; 32]),
            storage_key_name: None,
            endpoints: Endpoints { reported: vec![], observed: vec![] },
            admission: Admission::Owner(OwnerPubKey([1; 32])),
            times: Times { admitted: UnixSeconds(1), member: None, removed: None },
        }
    }

    fn put(machine: &Machine, mod_revision: u64) -> KeyValue {
        KeyValue { key: Key::Machine(machine.id()).bytes(), value: machine.encode(), mod_revision }
    }

    /// A coordinator that has seen two machines, let in in the revisions 1 and 2; and news for the first of them.
    fn seen(known: Option<u64>) -> (watch::Sender<Seen>, NewsFor) {
        let two = [(1, 1), (2, 2)].map(|(n, revision)| put(&machine(n, Standing::Admitted), revision));
        let sender = watch::Sender::new(Seen { view: Some(View::read(two, 2).expect("our own")), lost: None });
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

    /// Proves: M2
    #[tokio::test(start_paused = true)]
    async fn a_machine_hears_all_then_each_change_and_in_between_that_somebody_is_there() {
        let (seen, mut news) = seen(None);
        assert!(matches!(news.next().await, Ok(News::Whole { peers, .. }) if peers.len() == 2));
        let began = tokio::time::Instant::now();
        assert_eq!(news.next().await, Ok(News::Nothing));
        assert_eq!(began.elapsed(), ALIVE);
        change(&seen, &machine(3, Standing::Admitted), 3);
        let heard = news.next().await;
        assert!(matches!(heard, Ok(News::Changed { peers, .. }) if peers.len() == 1), "once, and only what is new");
        assert_eq!((news.next().await, began.elapsed()), (Ok(News::Nothing), ALIVE * 2));
    }

    /// Proves: M2
    #[tokio::test(start_paused = true)]
    async fn who_knows_all_is_answered_at_once_and_who_knows_more_is_told_so() {
        let began = tokio::time::Instant::now();
        let (_seen, mut news) = seen(Some(2));
        assert_eq!((news.next().await, began.elapsed()), (Ok(News::Nothing), Duration::ZERO));
        let (_seen, mut news) = seen(Some(3));
        assert_eq!((news.next().await, began.elapsed()), (Ok(News::Behind), Duration::ZERO));
    }

    /// Its certificate is as good as before.
    #[tokio::test(start_paused = true)]
    async fn a_machine_that_is_removed_hears_nothing_more() {
        let (seen, mut news) = seen(Some(2));
        assert_eq!((news.may_hear(), news.next().await), (Ok(()), Ok(News::Nothing)));
        let mut gone = machine(1, Standing::Removed);
        gone.times.removed = Some(UnixSeconds(9));
        change(&seen, &gone, 3);
        assert_eq!((news.may_hear(), news.next().await), (Err(NoNews::NotMember), Err(NoNews::NotMember)));
        let stranger = NewsFor::begin(seen.subscribe(), machine(9, Standing::Admitted).id(), None);
        assert_eq!(stranger.may_hear(), Err(NoNews::NotMember));
        seen.send_replace(Seen::default());
        assert_eq!(stranger.may_hear(), Err(NoNews::Unread(Unread)));
    }
}
