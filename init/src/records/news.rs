//! News of the cluster's machines for one of them, as this coordinator sees them: at once, at each change, and now and then
//! though there are none, so that the other side knows that somebody is there. What is news is said by `cluster::peers`.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use cluster::desired::{Desired, DesiredError};
use cluster::peers::News;
use cluster::record::MachineRecord;
use cluster::{Knowledge, Word};
use model::MachineId;
use netpolicy::CompiledPolicies;
use tokio::sync::watch;
use tokio::time::sleep;

use super::directory::Signed;
use super::orders::policy_order;
use super::{Seen, Unread};

/// Longest silence towards a machine, which asks another coordinator after three times as long.
const ALIVE: Duration = Duration::from_secs(5);
/// A copy that was not kept up for so long tells nobody anything: others may have decided what it has not seen.
const LAPSED: Duration = Duration::from_secs(10);

/// Why there are no news, and will be none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NoNews {
    /// This coordinator has none itself.
    #[error(transparent)]
    Unread(#[from] Unread),
    /// The copy was not kept up for a while.
    #[error("this coordinator has seen no change for {} s; nothing was done; ask another coordinator", LAPSED.as_secs())]
    Lapsed,
    /// The machine has no record, or was removed.
    #[error("this machine does not belong to the cluster; nothing was done")]
    NotMember,
}

/// News for one machine, one after the other, and what it was told so far.
#[derive(Debug)]
pub(crate) struct NewsFor {
    seen: watch::Receiver<Seen>,
    policies: watch::Receiver<Option<Arc<CompiledPolicies>>>,
    machine: MachineId,
    known: Knowledge,
    /// Desired state that it was told of.
    desired: Option<Desired>,
    /// The directory that it was told of.
    directory: Option<Arc<Signed>>,
}

impl NewsFor {
    pub(super) fn begin(
        (seen, policies): (watch::Receiver<Seen>, watch::Receiver<Option<Arc<CompiledPolicies>>>),
        machine: MachineId,
        known: Knowledge,
    ) -> Self {
        Self { seen, policies, machine, known, desired: None, directory: None }
    }

    /// Whether the machine belongs, by its record as it is seen now. A coordinator that has not read etcd's member list must not tell
    /// anyone their role.
    ///
    /// # Errors
    /// [`NoNews`] says why not.
    pub(crate) fn may_hear(&self) -> Result<(), NoNews> {
        let seen = self.seen.borrow();
        if seen.silent_for().is_some_and(|silent| silent >= LAPSED) {
            return Err(NoNews::Lapsed);
        }
        let state = seen.view.as_ref().ok_or(Unread)?.state();
        let belongs = state.machine(&self.machine).is_some_and(MachineRecord::belongs);
        if belongs { Ok(()) } else { Err(NoNews::NotMember) }
    }

    /// Waits for the next news; after `ALIVE` without any they are empty.
    ///
    /// # Errors
    /// [`NoNews`] for a machine that belongs no longer.
    pub(crate) async fn next(&mut self) -> Result<Word, NoNews> {
        let mut alive = pin!(sleep(ALIVE));
        loop {
            self.seen.mark_unchanged();
            self.policies.mark_unchanged();
            self.may_hear()?;
            if let Some(desired) = self.other_desired()? {
                return Ok(Word::Desired(desired));
            }
            if let Some(signed) = self.newer_directory() {
                return Ok(Word::Directory(signed));
            }
            if let Some(word) = self.news_or_order()? {
                return Ok(word);
            }
            tokio::select! {
                () = &mut alive => return Ok(Word::News(News::Nothing)),
                changed = self.seen.changed() => changed.map_err(|_ended| Unread)?,
                Ok(()) = self.policies.changed() => {}
            }
        }
    }

    /// News of the others before orders: an order is as of all that was written.
    fn news_or_order(&mut self) -> Result<Option<Word>, NoNews> {
        let seen = self.seen.borrow();
        let state = seen.view.as_ref().ok_or(Unread)?.state();
        let Knowledge { peers, parts } = &mut self.known;
        let news = state.news(*peers);
        if news != News::Nothing {
            *peers = news.version().or(*peers);
            return Ok(Some(Word::News(news)));
        }
        if let Some(order) = state.order(&self.machine, parts) {
            return Ok(Some(Word::Order(order)));
        }
        let policies = self.policies.borrow();
        let order = policies.as_ref().and_then(|policies| policy_order(state, &self.machine, policies, parts));
        Ok(order.map(Word::Order))
    }

    /// Desired state of the machine, where it says something else than what was told last.
    fn other_desired(&mut self) -> Result<Option<Box<Desired>>, NoNews> {
        let seen = self.seen.borrow();
        let state = seen.view.as_ref().ok_or(Unread)?.state();
        let desired = match state.desired(&self.machine) {
            Ok(desired) => desired,
            Err(DesiredError::NoMember) => return Err(NoNews::NotMember),
            Err(DesiredError::OldLook) => return Ok(None), // the next look is under way
        };
        if self.desired.as_ref().is_some_and(|told| told.says_the_same(&desired)) {
            return Ok(None);
        }
        Ok(Some(self.desired.insert(desired).clone().into()))
    }

    /// Directory, where it is another one than the machine was told of last.
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
    use cluster::orders::OrderBook;
    use cluster::record::{ChangeCount, MachineRecord, RegistryRecord, Standing};
    use cluster::state::{Change, KeyValue, StateVersion};
    use model::{ClusterRole, KubernetesRole};
    use netpolicy::{KubernetesInventory, NodePrefixes, PolicyInputs};

    use super::*;
    use crate::records::fixture::{look, machine, members, put, put_cluster};

    const NOTHING: Result<Word, NoNews> = Ok(Word::News(News::Nothing));

    /// A coordinator that has seen two machines, let in in the revisions 1 and 2; and news for the first of them.
    fn seen(known: Option<u64>) -> (watch::Sender<Seen>, NewsFor) {
        let two = [(1, 1), (2, 2)].map(|(n, revision)| put(&machine(n, Standing::Admitted), revision));
        let mut view = View::read([put_cluster(1)].into_iter().chain(two), 2).expect("our own");
        view.see(members(&[9]), look(2));
        let sender = watch::Sender::new(Seen { view: Some(view), ..Seen::default() });
        let known = known.map(|revision| StateVersion { recoveries: 0, revision });
        let (_nobody_compiles, policies) = watch::channel(None);
        let news = NewsFor::begin(
            (sender.subscribe(), policies),
            machine(1, Standing::Admitted).id(),
            Knowledge { peers: known, parts: OrderBook::default().known() },
        );
        (sender, news)
    }

    /// The same, for a machine that was told what it is to be.
    async fn seen_and_desired(known: Option<u64>) -> (watch::Sender<Seen>, NewsFor) {
        let (sender, mut news) = seen(known);
        assert!(matches!(news.next().await, Ok(Word::Desired(_))), "first of all");
        (sender, news)
    }

    fn change(seen: &watch::Sender<Seen>, machine: &MachineRecord, revision: u64) {
        seen.send_modify(|seen| {
            let view = seen.view.as_mut().expect("it was read");
            view.take([Change::Put(put(machine, revision))], revision).expect("our own");
        });
    }

    fn look_at_members(seen: &watch::Sender<Seen>, voters: &[u8], revision: u64) {
        seen.send_if_modified(|seen| seen.view.as_mut().expect("it was read").see(members(voters), look(revision)));
    }

    /// Proves: M2
    #[tokio::test(start_paused = true)]
    async fn a_machine_hears_all_then_changes_and_signs_of_life() {
        let (seen, mut news) = seen_and_desired(None).await;
        assert!(matches!(news.next().await, Ok(Word::News(News::Whole { peers, .. })) if peers.len() == 2));
        let began = tokio::time::Instant::now();
        assert_eq!(news.next().await, NOTHING);
        assert_eq!(began.elapsed(), ALIVE);
        change(&seen, &machine(3, Standing::Admitted), 3);
        let heard = news.next().await;
        assert!(
            matches!(heard, Ok(Word::News(News::Changed { peers, .. })) if peers.len() == 1),
            "once, and only what is new"
        );
        assert_eq!((news.next().await, began.elapsed()), (NOTHING, ALIVE * 2));
    }

    /// Proves: M2
    #[tokio::test(start_paused = true)]
    async fn news_depend_on_the_version_that_the_machine_knows() {
        let began = tokio::time::Instant::now();
        let (_seen, mut news) = seen_and_desired(Some(2)).await;
        assert_eq!((began.elapsed(), news.next().await, began.elapsed()), (Duration::ZERO, NOTHING, ALIVE));
        let (_seen, mut news) = seen_and_desired(Some(3)).await;
        assert_eq!((news.next().await, began.elapsed()), (Ok(Word::News(News::Behind)), ALIVE));
    }

    /// Proves: D11
    #[tokio::test(start_paused = true)]
    async fn a_machine_hears_of_each_other_directory_once() {
        let (seen, mut news) = seen_and_desired(Some(2)).await;
        let signed = |byte| Some(Arc::new(Signed::of(vec![], vec![byte])));
        seen.send_modify(|seen| seen.directory = signed(1));
        assert_eq!(news.next().await, Ok(Word::Directory(vec![1])));
        assert_eq!(news.next().await, NOTHING, "once");
        seen.send_modify(|seen| seen.directory = signed(2));
        assert_eq!((news.next().await, news.next().await), (Ok(Word::Directory(vec![2])), NOTHING));
    }

    /// Within the same turn, and each other one once. Proves: W5
    #[tokio::test(start_paused = true)]
    async fn a_worker_hears_of_registries_as_they_are_set() {
        let (seen, mut news) = seen_and_desired(Some(2)).await;
        let host = model::RegistryHost::read("r.example.org").expect("a host");
        let registry = RegistryRecord::new(host, vec![], vec![vec![1]]).expect("a registry");
        let written = |key: Key, value, mod_revision| KeyValue { key: key.bytes(), value, mod_revision };
        let change = |changed: Change, revision| {
            seen.send_modify(|seen| {
                let version = written(Key::Version, ChangeCount(revision).encode(), revision);
                let view = seen.view.as_mut().expect("it was read");
                view.take([changed, Change::Put(version)], revision).expect("our own");
            });
        };
        let worker = MachineRecord {
            kubernetes: [KubernetesRole::Worker].into(),
            pods: Some(model::pod_prefix(1)),
            ..machine(1, Standing::Admitted)
        };
        change(Change::Put(put(&worker, 3)), 3);
        while news.next().await != NOTHING {}
        let mut book = OrderBook::default();
        change(Change::Put(written(Key::Registry(host), registry.encode(), 4)), 4);
        let Ok(Word::Order(order)) = news.next().await else { panic!("it is told") };
        assert!(book.take(order));
        assert_eq!((book.registries(), news.next().await), (Ok(vec![registry]), NOTHING), "once");
        change(Change::Delete { key: Key::Registry(host).bytes(), mod_revision: 5 }, 5);
        let Ok(Word::Order(order)) = news.next().await else { panic!("it is told") };
        assert!(book.take(order) && book.registries() == Ok(vec![]));
    }

    /// Once this coordinator has compiled them, and at each change, though no record changes. Proves: W2
    #[tokio::test(start_paused = true)]
    async fn a_worker_hears_of_policies_as_they_are_compiled() {
        let (seen, mut news) = seen(Some(2));
        let policies = watch::Sender::new(None);
        news.policies = policies.subscribe();
        let worker = MachineRecord {
            kubernetes: [KubernetesRole::Worker].into(),
            pods: Some(model::pod_prefix(1)),
            ..machine(1, Standing::Admitted)
        };
        change(&seen, &worker, 3);
        seen.send_modify(|seen| {
            let version = KeyValue { key: Key::Version.bytes(), value: ChangeCount(1).encode(), mod_revision: 4 };
            seen.view.as_mut().expect("it was read").take([Change::Put(version)], 4).expect("our own");
        });
        while news.next().await != NOTHING {}
        let compiled = |policy: &str| {
            let list = |items: &str| format!("{{\"items\":[{items}]}}").into_bytes();
            let all = KubernetesInventory::read(&list(""), &list(""), &list(policy)).expect("lists");
            Some(Arc::new(netpolicy::compile(&PolicyInputs::from(&all), &NodePrefixes::new())))
        };
        let mut book = OrderBook::default();
        for policy in ["", r#"{"metadata":{"name":"p","namespace":"n"},"spec":{}}"#, ""] {
            policies.send_replace(compiled(policy));
            let Ok(Word::Order(order)) = news.next().await else { panic!("it is told") };
            assert!(book.take(order) && book.policies().is_some());
            assert_eq!(news.next().await, NOTHING, "once");
        }
        policies.send_replace(None);
        assert_eq!(news.next().await, NOTHING, "what is not known is not said to be gone");
    }

    /// Proves: S5
    #[tokio::test(start_paused = true)]
    async fn desired_state_is_told_first_and_again_when_it_is_another() {
        let (seen, mut news) = seen(Some(2));
        let desired = async |news: &mut NewsFor| match news.next().await {
            Ok(Word::Desired(desired)) => (desired.assignment.role(), desired.at.expect("told").revision),
            other => panic!("it is told first: {other:?}"),
        };
        assert_eq!(desired(&mut news).await, (ClusterRole::Node, 2));
        assert_eq!(news.next().await, NOTHING, "once");
        change(&seen, &MachineRecord { role: ClusterRole::Coordinator, ..machine(1, Standing::Member) }, 3);
        look_at_members(&seen, &[9], 3);
        assert_eq!(desired(&mut news).await, (ClusterRole::Coordinator, 3));
        assert!(matches!(news.next().await, Ok(Word::News(News::Changed { .. }))), "and then of all");
        change(&seen, &machine(2, Standing::Member), 4);
        assert!(matches!(news.next().await, Ok(Word::News(News::Changed { .. }))), "of the other alone");
        let unlooked = View::read([put_cluster(1), put(&machine(1, Standing::Member), 5)], 5).expect("our own");
        seen.send_modify(|seen| seen.view = Some(unlooked));
        assert!(matches!(news.next().await, Ok(Word::News(News::Changed { .. }))));
        assert_eq!(news.next().await, NOTHING, "by no look at etcd's members it might call the machine a node");
    }

    /// Proves: S5 S14
    #[tokio::test(start_paused = true)]
    async fn a_coordinator_is_called_a_node_by_a_younger_look_alone() {
        let (seen, mut news) = seen_and_desired(Some(2)).await;
        let coordinator = MachineRecord { role: ClusterRole::Coordinator, ..machine(1, Standing::Member) };
        change(&seen, &coordinator, 3);
        look_at_members(&seen, &[9], 3);
        assert!(matches!(news.next().await, Ok(Word::Desired(_))));
        // etcd has added the machine by now, which the look of before does not show.
        change(&seen, &machine(1, Standing::Member), 4);
        assert!(matches!(news.next().await, Ok(Word::News(News::Changed { .. }))), "of the others alone");
        assert_eq!(news.next().await, NOTHING, "nothing of itself");
        look_at_members(&seen, &[1, 9], 4);
        let Ok(Word::Desired(desired)) = news.next().await else { panic!("it is told") };
        assert_eq!(desired.assignment.role(), ClusterRole::Coordinator, "etcd has it");
        look_at_members(&seen, &[9], 5);
        let Ok(Word::Desired(desired)) = news.next().await else { panic!("it is told") };
        assert_eq!(desired.assignment.role(), ClusterRole::Node);
    }

    /// Removed machines still have a valid certificate, so that the record alone ends their news.
    #[tokio::test(start_paused = true)]
    async fn a_machine_that_is_removed_hears_nothing_more() {
        let (seen, mut news) = seen_and_desired(Some(2)).await;
        assert_eq!((news.may_hear(), news.next().await), (Ok(()), NOTHING));
        change(&seen, &machine(1, Standing::Removed), 3);
        assert_eq!((news.may_hear(), news.next().await), (Err(NoNews::NotMember), Err(NoNews::NotMember)));
        let (_nobody_compiles, policies) = watch::channel(None);
        let stranger =
            NewsFor::begin((seen.subscribe(), policies), machine(9, Standing::Admitted).id(), Knowledge::default());
        assert_eq!(stranger.may_hear(), Err(NoNews::NotMember));
        seen.send_replace(Seen::unread());
        assert_eq!(stranger.may_hear(), Err(NoNews::Unread(Unread)));
    }
}
