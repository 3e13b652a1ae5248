//! Parts that a tree is made of: one `Spec` per service, and the refusal of tables that cannot work. It must never hold
//! anything that changes while a service is in the tree.

use std::borrow::Borrow;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use thiserror::Error;

/// A service's name: unique in its tree, the same word in the log, the API and the cgroup. Clones share its text, which is
/// gone with the last of them.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Name(Arc<str>);

impl Name {
    /// Text of the name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<&str> for Name {
    fn from(text: &str) -> Self {
        Self(text.into())
    }
}

impl From<String> for Name {
    fn from(text: String) -> Self {
        Self(text.into())
    }
}

// Equal, ordered and hashed as its text, so that a map of names is asked by a text.
impl Borrow<str> for Name {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl PartialEq<&str> for Name {
    fn eq(&self, text: &&str) -> bool {
        &*self.0 == *text
    }
}

impl PartialEq<str> for Name {
    fn eq(&self, text: &str) -> bool {
        &*self.0 == text
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A service or a task: what it waits for, how long it may take, what happens when it ends. Two that are equal are the same
/// service, and one of them takes the place of the other without a restart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spec {
    /// Unique in its tree.
    pub name: Name,
    /// Content that the shell starts under this name, as far as the tree compares it.
    pub content: Fingerprint,
    /// Needs that must hold before it is started. Losing one later does not stop it.
    pub needs: Vec<Need>,
    /// Members of one group are restarted together when one of them fails.
    pub group: Option<Name>,
    /// From [`Effect::Start`](crate::Effect::Start) to ready; afterwards it is stopped and counts as failed.
    pub start_deadline: Duration,
    /// From `Terminate` to `Kill`.
    pub stop_deadline: Duration,
    /// Policy for when it ends.
    pub restart: Restart,
    /// When it counts as ready.
    pub ready: Readiness,
    /// When its failures are no longer its own matter.
    pub critical: Option<Critical>,
}

/// Fingerprint of what a shell starts for a service: another program, argument or file is another fingerprint. A chance of 2^-64
/// that a change goes unseen is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Fingerprint(u64);

impl Fingerprint {
    /// Fingerprint of a task, which is the same as long as its name and its spec are.
    pub const TASK: Self = Self(0);

    /// Fingerprint of data. It is compared within this process only, and kept nowhere.
    #[must_use]
    pub fn of(content: &impl Hash) -> Self {
        let mut hasher = DefaultHasher::new();
        content.hash(&mut hasher);
        Self(hasher.finish())
    }
}

/// Need that a service waits for before it is started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Need {
    /// The named service is ready, or has finished with success.
    Ready(Name),
    /// The named service has been spawned; for those who retry by themselves.
    Started(Name),
    /// The named task has finished with success; for those who need what it does.
    Finished(Name),
}

impl Need {
    /// [`Self::Ready`] of the service called `name`.
    pub fn ready(name: impl Into<Name>) -> Self {
        Self::Ready(name.into())
    }

    /// [`Self::Started`] of the service called `name`.
    pub fn started(name: impl Into<Name>) -> Self {
        Self::Started(name.into())
    }

    /// [`Self::Finished`] of the task called `name`.
    pub fn finished(name: impl Into<Name>) -> Self {
        Self::Finished(name.into())
    }

    /// The service this need is about.
    #[must_use]
    pub const fn service(&self) -> &Name {
        match self {
            Self::Ready(name) | Self::Started(name) | Self::Finished(name) => name,
        }
    }
}

/// When a service counts as ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Readiness {
    /// As soon as it is spawned.
    OnStart,
    /// When the shell, asked by [`Effect::Probe`](crate::Effect::Probe), reports it.
    Probe,
}

/// Policy for a service that ends without having been told to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Restart {
    /// The service is to run for good: every end is a failure.
    Always(Backoff),
    /// A task that ends: code 0 finishes it, every other end is a failure and tried again.
    UntilSuccess(Backoff),
    /// A task that is tried once: code 0 finishes it, every other end leaves it failed.
    Never,
}

/// How long to wait before trying again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    /// After the first failure; doubled for each further one in a row.
    pub first: Duration,
    /// Never longer than this.
    pub cap: Duration,
    /// A service that has been ready for this long has no failures any more.
    pub stable: Duration,
}

impl Backoff {
    /// The wait after so many failures in a row (the first one is 1).
    #[must_use]
    pub fn delay(&self, failures: u32) -> Duration {
        let doublings = failures.saturating_sub(1).min(31);
        self.first.saturating_mul(1 << doublings).min(self.cap)
    }
}

/// So many failures within such a time are handed to the policy above the tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Critical {
    /// The failure that escalates, counted from 1.
    pub failures: u32,
    /// The window they have to fall into.
    pub within: Duration,
}

/// Why a table of specs is no tree.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum InvalidTree {
    /// Two specs of one name.
    #[error("two services are named `{0}`")]
    Duplicate(Name),
    /// A need names nobody.
    #[error("service `{service}` needs `{need}`, which is not in the tree")]
    UnknownNeed {
        /// Service that needs it.
        service: Name,
        /// The name that no service has.
        need: Name,
    },
    /// A service that runs for good never finishes.
    #[error("service `{service}` waits for the end of `{need}`, which runs for good")]
    NeverFinishes {
        /// Service that waits.
        service: Name,
        /// Service that has no end.
        need: Name,
    },
    /// Needs that go round; each service needs the next, the last one the first.
    #[error("services need each other in a circle: {}", .0.iter().map(Name::as_str).collect::<Vec<_>>().join(" → "))]
    Circle(Vec<Name>),
    /// A group is restarted together, so each member must be one that runs for good.
    #[error("service `{service}` may finish, so it cannot be restarted together with group `{group}`")]
    FinishesInGroup {
        /// The member that may finish.
        service: Name,
        /// The group it is a member of.
        group: Name,
    },
    /// A wait of no time is a tight loop; a cap below the first wait is no cap.
    #[error("service `{0}` has a back-off of no time, or with a cap below its first wait")]
    Backoff(Name),
    /// Zero failures cannot escalate.
    #[error("service `{0}` escalates after no failure or within no time")]
    Critical(Name),
}

/// Why a tree that runs does not change as it is told to. Nothing has changed then.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ChangeError {
    /// The table would be none.
    #[error(transparent)]
    Invalid(#[from] InvalidTree),
    /// The whole tree stops.
    #[error("all services are being stopped")]
    Stopping,
}

/// Dependencies between services, by index into the table, as far as the chains go.
#[derive(Debug)]
pub(crate) struct Order {
    /// For each service the indices of its needs.
    pub(crate) needs: Vec<Vec<usize>>,
    /// For each service all that need it, directly or through others: they stop before it.
    pub(crate) dependents: Vec<Vec<usize>>,
}

impl Order {
    /// Judges a table, and reads its order.
    ///
    /// # Errors
    /// [`InvalidTree`] names the first thing that cannot work.
    pub(crate) fn of(specs: &[&Spec]) -> Result<Self, InvalidTree> {
        for (index, spec) in specs.iter().enumerate() {
            check(spec)?;
            if specs.iter().take(index).any(|earlier| earlier.name == spec.name) {
                return Err(InvalidTree::Duplicate(spec.name.clone()));
            }
        }
        for spec in specs {
            for need in &spec.needs {
                let (service, name) = (|| spec.name.clone(), || need.service().clone());
                let needed = specs.iter().find(|other| other.name == *need.service());
                let needed = needed.ok_or_else(|| InvalidTree::UnknownNeed { service: service(), need: name() })?;
                if let (Need::Finished(_), Restart::Always(_)) = (need, needed.restart) {
                    return Err(InvalidTree::NeverFinishes { service: service(), need: name() });
                }
            }
        }
        let order = Self::read(specs);
        let mut settled = vec![false; specs.len()];
        for index in 0..specs.len() {
            let mut path = Vec::new();
            if let Some(circle) = find_circle(index, &order.needs, &mut settled, &mut path) {
                return Err(InvalidTree::Circle(circle.into_iter().map(|index| specs[index].name.clone()).collect()));
            }
        }
        Ok(order)
    }

    /// Reads the order of specs of which each names only others among them.
    pub(crate) fn read(specs: &[&Spec]) -> Self {
        let index = |need: &Need| specs.iter().position(|other| other.name == *need.service());
        let index = |need| index(need).expect("each need names one of them");
        let needs: Vec<Vec<usize>> = specs.iter().map(|spec| spec.needs.iter().map(index).collect()).collect();
        let dependents = (0..specs.len()).map(|index| all_dependents(index, &needs)).collect();
        Self { needs, dependents }
    }
}

fn check(spec: &Spec) -> Result<(), InvalidTree> {
    match spec.restart {
        Restart::Always(backoff) | Restart::UntilSuccess(backoff) => {
            if backoff.first.is_zero() || backoff.cap < backoff.first {
                return Err(InvalidTree::Backoff(spec.name.clone()));
            }
        }
        Restart::Never => {}
    }
    match (&spec.group, spec.restart) {
        (Some(group), Restart::Never | Restart::UntilSuccess(_)) => {
            return Err(InvalidTree::FinishesInGroup { service: spec.name.clone(), group: group.clone() });
        }
        (Some(_), Restart::Always(_)) | (None, _) => {}
    }
    if spec.critical.is_some_and(|critical| critical.failures == 0 || critical.within.is_zero()) {
        return Err(InvalidTree::Critical(spec.name.clone()));
    }
    Ok(())
}

/// Depth first; `path` is the chain from the start, `settled` are those known to lead into no circle.
fn find_circle(index: usize, needs: &[Vec<usize>], settled: &mut [bool], path: &mut Vec<usize>) -> Option<Vec<usize>> {
    if let Some(start) = path.iter().position(|&earlier| earlier == index) {
        let mut circle = path.split_off(start);
        circle.push(index);
        return Some(circle);
    }
    if settled[index] {
        return None;
    }
    path.push(index);
    for &need in &needs[index] {
        if let Some(circle) = find_circle(need, needs, settled, path) {
            return Some(circle);
        }
    }
    path.pop();
    settled[index] = true;
    None
}

fn all_dependents(index: usize, needs: &[Vec<usize>]) -> Vec<usize> {
    let mut found = Vec::new();
    let mut open = vec![index];
    while let Some(current) = open.pop() {
        for (dependent, its_needs) in needs.iter().enumerate() {
            if its_needs.contains(&current) && !found.contains(&dependent) {
                found.push(dependent);
                open.push(dependent);
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const BACKOFF: Backoff =
        Backoff { first: Duration::from_secs(1), cap: Duration::from_secs(60), stable: Duration::from_secs(300) };

    fn spec(name: &str, needs: &[Need]) -> Spec {
        Spec {
            name: name.into(),
            content: Fingerprint::TASK,
            needs: needs.to_vec(),
            group: None,
            start_deadline: Duration::from_secs(10),
            stop_deadline: Duration::from_secs(10),
            restart: Restart::Always(BACKOFF),
            ready: Readiness::OnStart,
            critical: None,
        }
    }

    fn order(specs: &[Spec]) -> Result<Order, InvalidTree> {
        Order::of(&specs.iter().collect::<Vec<_>>())
    }

    #[test]
    fn a_circle_is_refused_by_its_names() {
        let specs = [
            spec("outside", &[Need::ready("api")]),
            spec("etcd", &[Need::started("mesh")]),
            spec("api", &[Need::ready("etcd")]),
            spec("mesh", &[Need::ready("api")]),
        ];
        let refused = order(&specs).expect_err("a circle");
        assert_eq!(refused.to_string(), "services need each other in a circle: api → etcd → mesh → api");
    }

    #[test]
    fn tables_that_cannot_work_are_refused_by_name() {
        let refuse = |specs: &[Spec]| order(specs).expect_err("refused").to_string();
        assert_eq!(
            refuse(&[spec("api", &[Need::ready("etdc")])]),
            "service `api` needs `etdc`, which is not in the tree"
        );
        assert_eq!(refuse(&[spec("api", &[]), spec("api", &[])]), "two services are named `api`");
        let selfish = spec("api", &[Need::ready("api")]);
        assert_eq!(refuse(&[selfish]), "services need each other in a circle: api → api");
        let once = Spec { group: Some("pair".into()), restart: Restart::Never, ..spec("once", &[]) };
        let until = Spec { restart: Restart::UntilSuccess(BACKOFF), ..once.clone() };
        for finishes in [once, until] {
            assert_eq!(
                refuse(&[finishes]),
                "service `once` may finish, so it cannot be restarted together with group `pair`"
            );
        }
        let eager =
            Spec { restart: Restart::Always(Backoff { first: Duration::ZERO, ..BACKOFF }), ..spec("eager", &[]) };
        assert_eq!(refuse(&[eager]), "service `eager` has a back-off of no time, or with a cap below its first wait");
        let capped = |first, cap| {
            let backoff = Backoff { first: Duration::from_secs(first), cap: Duration::from_secs(cap), ..BACKOFF };
            [Spec { restart: Restart::Always(backoff), ..spec("capped", &[]) }]
        };
        assert_eq!(
            refuse(&capped(3, 2)),
            "service `capped` has a back-off of no time, or with a cap below its first wait"
        );
        assert!(order(&capped(2, 2)).is_ok(), "a wait that does not grow");
        let endless = [spec("etcd", &[]), spec("api", &[Need::finished("etcd")])];
        assert_eq!(refuse(&endless), "service `api` waits for the end of `etcd`, which runs for good");
        for (failures, within) in [(0, 1), (1, 0)] {
            let critical = Some(Critical { failures, within: Duration::from_secs(within) });
            let touchy = Spec { critical, ..spec("touchy", &[]) };
            assert_eq!(refuse(&[touchy]), "service `touchy` escalates after no failure or within no time");
        }
    }

    #[test]
    fn dependents_reach_through_chains() {
        let specs = [
            spec("mesh", &[]),
            spec("etcd", &[Need::ready("mesh")]),
            spec("api", &[Need::started("etcd")]),
            spec("log", &[]),
            spec("scheduler", &[Need::ready("etcd"), Need::ready("api")]),
        ];
        let order = order(&specs).expect("a tree");
        assert_eq!(order.dependents, vec![vec![1, 2, 4], vec![2, 4], vec![4], vec![], vec![]], "each once");
    }

    #[test]
    fn back_off_doubles_up_to_its_cap() {
        let seconds: Vec<u64> = (1..=9).map(|failures| BACKOFF.delay(failures).as_secs()).collect();
        assert_eq!(seconds, [1, 2, 4, 8, 16, 32, 60, 60, 60]);
        assert_eq!(BACKOFF.delay(u32::MAX), BACKOFF.cap);
    }
}
