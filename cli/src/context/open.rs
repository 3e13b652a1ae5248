//! The way from a command to the session that it works with: first contact where it was not made yet, and another machine of the
//! cluster that carries the bytes where the one that is meant does not answer. Must never open a session with a machine that is
//! not pinned.

use std::time::Duration;

use model::{Chain, ConfigDigest, NodeName};
use tokio::time::{sleep, timeout};

use super::meant::Who;
use super::{Context, Meant};
use crate::clock::{self, ASK_AGAIN, Deadline};
use crate::failure::{Advice, Code};
use crate::machine::{
    Address, AskError, BadAddress, CallError, ContactError, DialError, Expected, Session, SessionError, meet,
};
use crate::store::{ClusterName, Known, Pins, StoreError};
use crate::virtual_machine::runs;
use crate::virtual_network;

/// A virtual network takes a connection before there is a guest to take it, and asks the guest again only after seconds: while a
/// machine boots an attempt is given up early. It doubles, so that a host that is merely slow is met as well.
pub(crate) const PATIENCE: Duration = Duration::from_secs(2);
/// For so long others are asked to lead to a machine that does not answer itself. Each that is asked for one that is off says so
/// only after seconds, and a cluster may have a hundred.
const OTHERS: Duration = Duration::from_secs(30);

/// Why a cluster's machine cannot be spoken to.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OpenError {
    /// The owner's keys or the cluster's record cannot be used.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The machine's address is not known.
    #[error("where {called} is, is not known")]
    NoAddress { called: String },
    /// The address that was kept makes no sense.
    #[error(transparent)]
    Address(#[from] BadAddress),
    /// The machine is not known yet, and first contact failed.
    #[error(transparent)]
    Contact(#[from] ContactError),
    /// The machine is known, and no session with it came about.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// The session stands, and its first call failed.
    #[error(transparent)]
    Call(#[from] CallError),
    /// An attempt that was given up to make room for the next.
    #[error("the machine does not answer within {} s", .0.as_secs())]
    Silent(Duration),
    /// Neither this host nor the machine that was asked knows one of that name.
    #[error("neither this host nor {asked} knows a machine `{name}`")]
    Unknown { name: NodeName, asked: String },
    /// A first contact goes through no other machine: the one that is meant has no name to be called by yet.
    #[error("{called} has not met its owner yet")]
    NotMet { called: String },
    /// The machine is a virtual one of this host, and does not run.
    #[error("{called} is off")]
    Off { called: String, start: String },
    /// The machine runs, and the network that led to it has ended.
    #[error("{called} cannot be reached: the process of its virtual network has ended")]
    NetworkEnded { called: String, start: String },
    /// No certificate could be asked for.
    #[error(transparent)]
    Certificate(#[from] AskError),
    /// A failure behind a first contact that was made on the way.
    #[error(transparent)]
    Met(Box<OpenError>),
    /// None of a cluster's machines has its records.
    #[error("no coordinator of cluster `{cluster}` answers{}", each(why))]
    NoCoordinator { cluster: ClusterName, why: Vec<(NodeName, OpenError)> },
    /// Only the cluster's records can tell who it is.
    #[error("{called} has not joined its cluster: nobody knows it yet")]
    NotJoined { called: String, cluster: ClusterName },
}

impl OpenError {
    /// Whether trying again later can help.
    pub(crate) fn may_pass(&self) -> bool {
        match self {
            Self::Contact(error) => error.may_pass(),
            Self::Session(SessionError::Dial(_)) => self.code() == Code::Unreachable,
            Self::Call(error) => error.may_pass(),
            Self::Certificate(error) => error.may_pass(),
            Self::Silent(_) => true,
            Self::Met(error) => error.may_pass(),
            Self::NoCoordinator { why, .. } => why.iter().any(|(_, error)| error.may_pass()),
            Self::NotJoined { .. } => true,
            Self::Store(_)
            | Self::NoAddress { .. }
            | Self::Unknown { .. }
            | Self::NotMet { .. }
            | Self::Address(_)
            | Self::Session(_)
            | Self::Off { .. }
            | Self::NetworkEnded { .. } => false,
        }
    }

    /// Whether nobody answers where the machine should be.
    const fn is_unreached(&self) -> bool {
        matches!(self, Self::Session(SessionError::Dial(DialError::Connect { .. } | DialError::Silent { .. })))
    }

    fn inner(&self) -> Option<&dyn Advice> {
        match self {
            Self::Store(error) => Some(error),
            Self::Address(error) => Some(error),
            Self::Contact(error) => Some(error),
            Self::Session(error) => Some(error),
            Self::Call(error) => Some(error),
            Self::Certificate(error) => Some(error),
            Self::Met(error) => Some(&**error),
            Self::NoAddress { .. }
            | Self::Unknown { .. }
            | Self::NotMet { .. }
            | Self::Silent(_)
            | Self::Off { .. }
            | Self::NetworkEnded { .. }
            | Self::NoCoordinator { .. }
            | Self::NotJoined { .. } => None,
        }
    }
}

impl Advice for OpenError {
    fn code(&self) -> Code {
        match (self, self.inner()) {
            (_, Some(inner)) => inner.code(),
            (
                Self::Silent(_)
                | Self::Off { .. }
                | Self::NetworkEnded { .. }
                | Self::NoCoordinator { .. }
                | Self::NotJoined { .. },
                None,
            ) => Code::Unreachable,
            (Self::Unknown { .. }, None) => Code::NotFound,
            (_, None) => Code::Usage,
        }
    }

    fn unchanged(&self) -> &'static str {
        match (self, self.inner()) {
            (Self::Met(_), _) => "the machine proved itself and is pinned; nothing else was changed",
            (_, Some(inner)) => inner.unchanged(),
            (_, None) => "no command was sent",
        }
    }

    fn next(&self) -> Option<String> {
        match (self, self.inner()) {
            (_, Some(inner)) => inner.next(),
            (Self::Off { start, .. } | Self::NetworkEnded { start, .. }, None) => Some(start.clone()),
            (Self::Unknown { .. }, None) => Some("see which there are: cairnctl machine list".to_owned()),
            (Self::NotMet { .. }, None) => Some("call it once at its own address, without --through".to_owned()),
            (Self::NoCoordinator { cluster, .. }, None) => {
                Some(format!("see what runs: cairnctl cluster status {cluster}"))
            }
            (Self::NotJoined { cluster, .. }, None) => Some(format!("see who has: cairnctl -c {cluster} machine list")),
            (Self::Silent(_), None) => Some("see whether the machine runs: cairnctl cluster list".to_owned()),
            (_, None) => Some("say where it is: --address HOST (the machine's screen shows its addresses)".to_owned()),
        }
    }
}

/// Errors of all machines, as the end of a sentence.
fn each(why: &[(NodeName, OpenError)]) -> String {
    why.iter().map(|(machine, error)| format!("; {machine}: {}", Chain(error))).collect()
}

impl Context {
    /// Where a machine is: as said on the command line, else as last seen.
    pub(crate) fn address(&self, meant: &Meant) -> Result<Address, OpenError> {
        let listed = || meant.record.other(meant.name()).and_then(|(other, _)| other.addresses.first());
        let seen = meant.known().map_or_else(listed, |machine| machine.address.as_ref());
        match (&self.address, seen) {
            (Some(address), _) => Ok(address.clone()),
            (None, Some(address)) => Ok(address.parse()?),
            (None, None) => Err(OpenError::NoAddress { called: meant.called() }),
        }
    }

    /// The session a command works with. Makes first contact if it was not made yet. A machine that does not answer is reached
    /// through another one of its cluster, and one that was named is the only way.
    pub(crate) async fn open(&self) -> Result<(Session, Meant), OpenError> {
        if let Some(through) = &self.through {
            let name = self.cluster()?.name;
            let carries = Self { address: self.address.clone(), ..self.about(&name, through) };
            return self.beyond(&carries).await;
        }
        let unreached = match self.directly().await {
            Err(error) if error.is_unreached() && self.address.is_none() => error,
            opened => return opened,
        };
        match self.through_others(&Deadline::after(OTHERS)).await? {
            Some(opened) => Ok(opened),
            None => Err(unreached),
        }
    }

    /// The machine that is meant, reached through the first of the others that leads there.
    async fn through_others(&self, deadline: &Deadline) -> Result<Option<(Session, Meant)>, OpenError> {
        let meant = self.meant()?;
        let record = &meant.record;
        let known = record.machines().iter().enumerate().filter(|(at, _)| record.pins(*at).is_some());
        let known = known.map(|(_, machine)| &machine.name).chain(record.others().iter().map(|other| &other.name));
        for other in known.filter(|name| *name != meant.name()) {
            let Some(left) = deadline.left() else { break };
            if let Ok(Ok(opened)) = timeout(left, self.beyond(&self.about(&record.name, other))).await {
                return Ok(Some(opened));
            }
        }
        Ok(None)
    }

    /// The machine that is meant, reached through that of `carries`. One that is not known here is known to its cluster.
    async fn beyond(&self, carries: &Self) -> Result<(Session, Meant), OpenError> {
        let (mut session, through) = carries.directly().await?;
        let record = through.record.clone();
        let carried_by = through.pins().expect("a session is opened with a machine that is pinned");
        let who = match (&self.machine, record.meant(self.machine.as_ref())) {
            (_, Ok(at)) => Who::Known(at),
            (None, Err(error)) => return Err(StoreError::from(error).into()),
            (Some(name), Err(_)) => {
                let listed = session.machines().await?.rows;
                let row = listed.into_iter().find(|row| row.is_called(name.as_str()));
                let row = row.ok_or_else(|| OpenError::Unknown { name: name.clone(), asked: through.called() })?;
                Who::Listed(name.clone(), Pins { machine: row.id, ..carried_by })
            }
        };
        let mut meant = Meant { record, who };
        let pins = match meant.known_by() {
            Known::Pinned(pins) => pins,
            Known::Joins => self.introduced(&mut meant).await?,
            Known::Awaited(_) => return Err(OpenError::NotMet { called: meant.called() }),
        };
        let session = session.beyond(meant.name(), &pins, &self.person(&meant.record)?).await?;
        Ok((session, meant))
    }

    /// The session with the machine itself, at its own address.
    async fn directly(&self) -> Result<(Session, Meant), OpenError> {
        let mut meant = self.meant()?;
        let address = self.address(&meant)?;
        if self.address.is_none() {
            self.is_there(&meant)?;
        }
        match meant.known_by() {
            Known::Pinned(pins) => self.open_pinned(meant, &address, &pins).await,
            Known::Joins => {
                let pins = self.introduced(&mut meant).await?;
                self.open_pinned(meant, &address, &pins).await
            }
            Known::Awaited(config) => {
                let pins = self.contact(&mut meant, &address, config).await?;
                let opened = self.open_pinned(meant, &address, &pins).await;
                opened.map_err(|error| OpenError::Met(Box::new(error)))
            }
        }
    }

    /// Refuses a virtual machine that does not run, or that nothing leads to: somebody else may have the port by now.
    /// Where that cannot be found out, its answer shows it.
    fn is_there(&self, meant: &Meant) -> Result<(), OpenError> {
        let name = &meant.record.name;
        let Some(machine) = meant.known().filter(|machine| machine.virtual_machine.is_some()) else { return Ok(()) };
        let (called, start) = (meant.called(), format!("cairnctl cluster start {name}"));
        if matches!(runs(&self.store.machine_directory(name, &machine.name)), Ok(false)) {
            return Err(OpenError::Off { called, start });
        }
        if matches!(virtual_network::runs(&self.store.network_directory(name)), Ok(false)) {
            return Err(OpenError::NetworkEnded { called, start });
        }
        Ok(())
    }

    async fn open_pinned(&self, meant: Meant, address: &Address, pins: &Pins) -> Result<(Session, Meant), OpenError> {
        let mut meant = meant;
        let (cluster, machine) = (meant.record.name.clone(), meant.name().clone());
        let mut session = Session::open(address, pins, &self.person(&meant.record)?).await?;
        if self.store.first_contact(&cluster, &machine).is_ok() {
            // The first authenticated call: with it the machine drops its copy of the secret, then we ours.
            session.status().await?;
            match self.store.lock(&cluster) {
                Ok(lock) => self.store.forget_first_contact(&cluster, &machine, &lock)?,
                // The next command comes by here, too.
                Err(StoreError::Busy { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        let moved = meant.known().is_some_and(|known| known.address.as_deref() != Some(&address.to_string()));
        if self.address.is_some() && moved {
            let lock = self.store.lock(&cluster)?;
            meant = meant.read_again(&self.store)?;
            if let Some(machine) = meant.known_mut() {
                machine.address = Some(address.to_string());
            }
            self.store.save(&meant.record, &lock)?;
        }
        Ok((session, meant))
    }

    /// The same, asked again until the machine answers or the deadline passes.
    pub(crate) async fn open_until(
        &self,
        deadline: &Deadline,
        waiting: impl FnMut(&OpenError),
    ) -> Result<(Session, Meant), OpenError> {
        until_opened(deadline, waiting, async || self.open().await).await
    }

    /// First contact; when this returns the pins are on the disk.
    async fn contact(&self, meant: &mut Meant, address: &Address, config: ConfigDigest) -> Result<Pins, OpenError> {
        let secret = self.store.first_contact(&meant.record.name, meant.name())?;
        let pins = meet(address, &Expected { secret, config }, clock::now()).await?;
        let lock = self.store.lock(&meant.record.name)?;
        *meant = meant.read_again(&self.store)?;
        match meant.pins() {
            // Another command was faster; it can only have met the same machine, and if not, its word counts.
            Some(pins) => Ok(pins),
            None => {
                meant.record.meet(pins);
                if let Some(machine) = meant.known_mut() {
                    machine.address = Some(address.to_string());
                }
                self.store.save(&meant.record, &lock)?;
                Ok(pins)
            }
        }
    }
}

/// Opens a session, asked again until somebody answers or the deadline passes; silence is borne for twice as long each time.
pub(super) async fn until_opened(
    deadline: &Deadline,
    mut waiting: impl FnMut(&OpenError),
    mut open: impl AsyncFnMut() -> Result<(Session, Meant), OpenError>,
) -> Result<(Session, Meant), OpenError> {
    let mut patience = PATIENCE;
    loop {
        let attempt = timeout(patience, open()).await;
        match attempt.unwrap_or(Err(OpenError::Silent(patience))) {
            Err(error) if error.may_pass() && deadline.left().is_some() => {
                if matches!(error, OpenError::Silent(_)) {
                    patience *= 2;
                }
                waiting(&error);
                sleep(ASK_AGAIN).await;
            }
            result => return result,
        }
    }
}

#[cfg(test)]
mod tests {
    use api::ListedMachine;
    use cluster::record::Standing;
    use model::{FirstContact, Secret};

    use super::*;
    use crate::commands::condition;
    use crate::context::home;
    use crate::failure::NOTHING;
    use crate::machine::fake::{Answer, Fake, Lie};
    use crate::screen::Progress;
    use crate::store::{BootWay, ClusterRecord, MachineRecord, VirtualMachine};

    const CONFIG: ConfigDigest = ConfigDigest([5; 32]);

    /// A store with one cluster that awaits the machine which `answer` makes of its secret.
    async fn awaiting(answer: impl FnOnce(FirstContact) -> Answer) -> (tempfile::TempDir, Context, Fake) {
        let (root, context, owner) = home::begun();
        let fake = Fake::start(1, owner, answer(context.awaits())).await;
        let mut record = ClusterRecord::of_config(home::name(), CONFIG);
        record.machines_mut()[0].address = Some(fake.address.to_string());
        context.keep(&record);
        (root, context, fake)
    }

    fn genuine(secret: FirstContact) -> Answer {
        Answer::Proven { secret, config: CONFIG, lie: Lie::None }
    }

    /// Proves: S12
    #[tokio::test]
    async fn the_first_command_pins_the_machine_and_deletes_the_secret() {
        let (_root, context, fake) = awaiting(genuine).await;
        let (mut session, meant) = context.open().await.unwrap();
        assert_eq!(meant.pins().map(|pins| pins.machine), Some(fake.machine));
        assert!(context.store.first_contact(&meant.record.name, meant.name()).is_err());
        session.services().await.unwrap();
        // The next command knows the machine and claims nothing.
        context.open().await.unwrap().0.services().await.unwrap();
        assert_eq!(fake.calls(), ["Claim", "Status", "Services", "Services"]);
    }

    /// Proves: S12
    #[tokio::test]
    async fn an_impostor_leaves_no_trace_and_the_machine_can_still_be_met() {
        let wrong = |_| genuine(FirstContact(Secret::take(&mut [1; 32])));
        let (_root, context, impostor) = awaiting(wrong).await;
        let refused = context.open().await.unwrap_err();
        assert_eq!((refused.code(), refused.may_pass()), (Code::Refused, false));
        assert_eq!(refused.unchanged(), "nothing was sent but the empty claim, and nobody was pinned");
        assert_eq!(context.meant().unwrap().pins(), None);
        assert_eq!(impostor.calls(), ["Claim"]);

        let owner = context.store.owner().unwrap().tls_key().unwrap().public().clone();
        let machine = Fake::start(
            2,
            owner,
            genuine(context.store.first_contact(&home::name(), &ClusterRecord::first_name()).unwrap()),
        )
        .await;
        let context = Context { address: Some(machine.address.clone()), ..context };
        assert!(context.open().await.is_ok());
        // And is found where it was seen.
        let kept = context.meant().unwrap().known().unwrap().address.clone();
        assert_eq!(kept, Some(machine.address.to_string()));
    }

    #[tokio::test]
    async fn a_machine_that_is_not_ready_is_asked_until_the_deadline() {
        let (_root, context, fake) = awaiting(|_| Answer::NotYet).await;
        let mut asked = 0;
        let early = context.open_until(&Deadline::after(Duration::from_millis(1)), |_| asked += 1).await.unwrap_err();
        assert!(early.may_pass());
        assert_eq!(fake.calls().len(), asked + 1);
    }

    #[tokio::test]
    async fn conditions_are_waited_for_and_unknown_ones_named() {
        let (_root, context, _fake) = awaiting(genuine).await;
        let deadline = Deadline::after(Duration::from_secs(60));
        let mut progress = Progress::start();
        let held = condition::until_true(&context, "NodeReady", &deadline, &mut progress).await.unwrap();
        assert_eq!(held.name, "NodeReady");
        let unknown = condition::until_true(&context, "Nonsense", &deadline, &mut progress).await.unwrap_err();
        assert_eq!(unknown.code(), Code::NotFound);
    }

    /// Proves: S12
    #[tokio::test]
    async fn a_failure_after_first_contact_says_the_machine_is_pinned() {
        let (root, context, _fake) = awaiting(genuine).await;
        // The owner's keys are lost between the two: contact is made without them, the session is not.
        std::fs::remove_file(root.path().join("cairn/owner.keys")).unwrap();
        let lost = context.open().await.unwrap_err();
        assert!(context.meant().unwrap().pins().is_some());
        assert!(lost.unchanged().contains("is pinned"), "{}", lost.unchanged());
        let again = context.open().await.unwrap_err();
        assert_eq!((again.unchanged(), again.to_string()), (NOTHING, lost.to_string()));
    }

    #[tokio::test]
    async fn two_first_commands_at_once_do_not_hinder_one_another() {
        let (_root, context, _fake) = awaiting(genuine).await;
        context.open().await.unwrap();
        let name = context.cluster().unwrap().name;
        let lock = context.store.lock(&name).unwrap();
        // As if the secret were still there, because its removal was left to whoever holds the lock.
        let secret = context.store.machine_directory(&name, &ClusterRecord::first_name()).join("first-contact");
        std::fs::write(&secret, [1; 32]).unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        std::fs::set_permissions(&secret, mode).unwrap();
        context.open().await.unwrap();
        assert!(secret.exists());
        drop(lock);
        context.open().await.unwrap();
        assert!(!secret.exists(), "the next command removes it");
    }

    #[tokio::test]
    async fn a_virtual_machine_that_is_off_is_not_asked() {
        let (_root, context, fake) = awaiting(genuine).await;
        let mut record = context.cluster().unwrap();
        let machine = VirtualMachine {
            boot: BootWay::Direct,
            cpus: 1,
            memory_mib: 512,
            tpm: true,
            cmdline: String::new(),
            image: String::new(),
            overlays: 0,
        };
        record.machines_mut()[0].virtual_machine = Some(machine);
        context.keep(&record);
        let off = context.open_until(&Deadline::after(Duration::from_secs(60)), |_| {}).await.unwrap_err();
        assert_eq!((off.code(), off.may_pass()), (Code::Unreachable, false));
        assert_eq!(off.to_string(), "the machine of `home` is off");
        assert_eq!(off.next().unwrap(), "cairnctl cluster start home");
        assert_eq!(fake.calls(), [""; 0]);
        // Who says where it is, knows better.
        let context = Context { address: Some(fake.address.clone()), ..context };
        context.open().await.unwrap();
    }

    /// Proves: S8
    #[tokio::test]
    async fn a_machine_that_does_not_answer_is_reached_through_another() {
        let (_root, base, owner) = home::begun();
        let mut record = ClusterRecord::of_config(home::name(), CONFIG);
        let m2 = NodeName::stored("m2").unwrap();
        record.add(MachineRecord::joining(m2.clone()));
        let first = Fake::start(1, owner.clone(), Answer::NotYet).await;
        let second = &first.node(2, owner.clone()).await;
        record.meet(first.pins());
        assert!(record.introduce(|_| Some(second.machine)));
        record.machines_mut()[0].address = Some(first.address.to_string());
        // Nobody listens where the second one was seen last.
        record.machines_mut()[1].address = Some("127.0.0.1:1".to_owned());
        base.keep(&record);
        let context = base.about(&home::name(), &m2);
        let unreached = context.open().await.unwrap_err();
        assert_eq!(unreached.to_string(), "connect to 127.0.0.1:1", "its own error, where nobody leads there");
        first.leads(second.machine, second);
        let asked = first.calls().len();
        assert!(context.through_others(&Deadline::after(Duration::ZERO)).await.unwrap().is_none());
        assert_eq!(first.calls().len(), asked, "nobody is asked once the time is over");
        let (mut session, meant) = context.open().await.unwrap();
        session.status().await.unwrap();
        assert_eq!((second.calls(), meant.called().as_str()), (vec!["Status"], "machine `m2` of `home`"));
        // Named, the other one is the only way; and one that nobody knows is asked for there.
        let through = Context { through: Some(ClusterRecord::first_name()), ..context };
        let (mut session, _) = through.open().await.unwrap();
        session.status().await.unwrap();
        assert_eq!(second.calls(), ["Status", "Status"]);
        let unknown = Context { machine: Some(NodeName::stored("nobody").unwrap()), ..through };
        let unknown = unknown.open().await.unwrap_err();
        assert!(matches!(unknown, OpenError::Unknown { .. }), "{unknown}");
        assert_eq!(unknown.code(), Code::NotFound);
    }

    /// Others are asked for a machine that nobody answers for; not where an address was named, nor past whoever answers there.
    ///
    /// Proves: S8 S12
    #[tokio::test]
    async fn others_lead_only_to_a_machine_that_is_silent_at_its_place() {
        let (_root, base, owner) = home::begun();
        let mut record = ClusterRecord::of_config(home::name(), CONFIG);
        let m2 = NodeName::stored("m2").unwrap();
        record.add(MachineRecord::joining(m2.clone()));
        let first = Fake::start(1, owner.clone(), Answer::NotYet).await;
        let (second, third) = (first.node(2, owner.clone()).await, first.node(3, owner).await);
        record.meet(first.pins());
        assert!(record.introduce(|_| Some(second.machine)));
        record.machines_mut()[0].address = Some(first.address.to_string());
        record.machines_mut()[1].address = Some(third.address.to_string());
        base.keep(&record);
        first.leads(second.machine, &second);
        let context = base.about(&home::name(), &m2);
        assert_eq!(context.open().await.unwrap_err().code(), Code::Refused, "another machine answers there");
        let named = Context { address: Some("127.0.0.1:1".parse().unwrap()), ..context };
        assert_eq!(named.open().await.unwrap_err().to_string(), "connect to 127.0.0.1:1");
        assert_eq!((first.calls(), second.calls()), (vec![], vec![]));
        // The control: silent where it was seen.
        record.machines_mut()[1].address = Some("127.0.0.1:1".to_owned());
        base.keep(&record);
        base.about(&home::name(), &m2).open().await.unwrap();
        assert_eq!(first.calls(), ["Tunnel"]);
    }

    /// Proves: S12
    #[tokio::test]
    async fn whoever_was_removed_has_no_name_to_be_reached_by() {
        let (_root, base, owner) = home::begun();
        let mut record = ClusterRecord::of_config(home::name(), CONFIG);
        let first = Fake::start(1, owner.clone(), Answer::NotYet).await;
        let second = &first.node(2, owner).await;
        record.meet(first.pins());
        record.machines_mut()[0].address = Some(first.address.to_string());
        base.keep(&record);
        first.leads(second.machine, second);
        let m2 = NodeName::stored("m2").unwrap();
        let through = Context { through: Some(ClusterRecord::first_name()), ..base.about(&home::name(), &m2) };
        let lists = |standing| {
            let row = ListedMachine { id: second.machine, ..home::member("m2", standing) };
            *first.listed.lock().unwrap() = vec![home::member("m9", Standing::Member), row];
        };
        lists(Standing::Removed);
        let removed = through.open().await.unwrap_err();
        assert!(matches!(removed, OpenError::Unknown { .. }), "{removed}");
        lists(Standing::Member);
        through.open().await.unwrap();
    }

    #[tokio::test]
    async fn without_an_address_the_way_out_is_named() {
        let (_root, context, _fake) = awaiting(genuine).await;
        let name: ClusterName = "hardware".parse().unwrap();
        let lock = context.store.lock(&name).unwrap();
        context.store.begin(&name, &lock).unwrap();
        context.store.save(&ClusterRecord::of_config(name.clone(), CONFIG), &lock).unwrap();
        let context = Context { cluster: Some(name), ..context };
        let lost = context.open().await.unwrap_err();
        assert_eq!(lost.code(), Code::Usage);
        assert!(lost.next().unwrap().contains("--address"));
    }
}
