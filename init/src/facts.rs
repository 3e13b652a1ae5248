//! Facts that this machine knows of itself, in types and in one place: rules read them and wait on them. How they are
//! shown is the board's matter, which adds its words; nothing here is a text that somebody would have to parse.
//!
//! ```text
//!   boot, uplink, enrolment, storage, control ──► facts ──┬─► access, directory, tagging: decide
//!                                                         └─► board ─► sheet, API: show
//! ```

use std::net::Ipv4Addr;
use std::sync::Arc;

use api::{ConditionName, LevelInForce};
use keys::identity::Identity;
use model::{
    Assignment, ClusterId, ColdStart, Halted, Ipv4Prefix, MachineId, MachineState, NodeName, PowerOn, Prefixes,
    Protection, Settled, Underway, Waiting,
};
use tokio::sync::watch;

use crate::machine::kernel::Boot;
use crate::runtime::standstills::Standstills;

/// Facts of the machine at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Now {
    state: Option<MachineState>,
    held: Vec<ConditionName>,
    /// Names of the machine; none before a seal has opened.
    pub(crate) names: Option<Names>,
    /// VPN address, roles and pod prefix that its cluster assigned to a member.
    pub(crate) assignment: Option<Assignment>,
    /// The addresses of its public links, in the order in which they came.
    pub(crate) links: Vec<Link>,
    /// Address of the machine in the mesh.
    pub(crate) vpn: Option<Address>,
    /// Prefixes that its cluster keeps for itself: by the config or the seal, then by the desired state; none before it knows its cluster.
    pub(crate) prefixes: Option<Prefixes>,
    /// How its data is protected; none before the data is open.
    pub(crate) level: Option<LevelInForce>,
    /// Keys that stand between a thief and the data.
    pub(crate) protection: Protection,
    /// Way of a cold start, automatic or manual; none before the machine is a member.
    pub(crate) cold_start: Option<ColdStart>,
    /// Which cluster key a coordinator's disk takes at the next start: see [`cluster::epochs::takes`].
    pub(crate) takes_key_generation: Option<u32>,
}

/// Names of the machine: all of its identity that anybody but its owner's tools reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Names {
    /// Host and node name.
    pub(crate) node: NodeName,
    pub(crate) machine: MachineId,
    pub(crate) cluster: ClusterId,
}

impl Names {
    /// Names within an identity.
    pub(crate) fn of(identity: &Identity) -> Self {
        let Identity { holder, name, .. } = identity;
        Self { node: name.clone(), machine: holder.machine, cluster: holder.cluster }
    }
}

/// A link with an address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Link {
    /// As the kernel calls it.
    pub(crate) name: String,
    pub(crate) address: Address,
}

/// An address, and the prefix that its link reaches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Address {
    pub(crate) ip: Ipv4Addr,
    pub(crate) prefix: Ipv4Prefix,
}

impl Now {
    /// The machine's state; none while nothing is decided. Only a transition changes it: [`Facts::underway`],
    /// [`Facts::waiting`], [`Facts::settled`], [`Facts::halted`].
    pub(crate) const fn state(&self) -> Option<MachineState> {
        self.state
    }

    /// Whether a condition has been true in this boot.
    pub(crate) fn has_held(&self, name: ConditionName) -> bool {
        self.held.contains(&name)
    }

    /// The link of this name has this address, or none any more.
    pub(crate) fn link(&mut self, name: &str, address: Option<Address>) {
        self.links.retain(|link| link.name != name);
        self.links.extend(address.map(|address| Link { name: name.to_owned(), address }));
    }
}

/// The facts of a boot; clones share them.
#[derive(Debug, Clone)]
pub(crate) struct Facts {
    boot: Arc<Boot>,
    standstills: Standstills,
    now: Arc<watch::Sender<Now>>,
}

impl Facts {
    /// Facts of a machine about which nothing is decided yet, and the beginning of what it goes through.
    pub(crate) fn new(boot: Boot) -> (Self, PowerOn) {
        let now = Now {
            state: None,
            held: Vec::new(),
            names: None,
            assignment: None,
            links: Vec::new(),
            vpn: None,
            prefixes: None,
            level: None,
            protection: Protection::None,
            cold_start: None,
            takes_key_generation: None,
        };
        let (boot, now) = (Arc::new(boot), Arc::new(watch::Sender::new(now)));
        (Self { boot, standstills: Standstills::default(), now }, PowerOn::new())
    }

    /// Addresses that the public links have, each with the bits of its prefix.
    pub(crate) fn leased(&self) -> Vec<(Ipv4Addr, u8)> {
        self.read(|now| now.links.iter().map(|link| (link.address.ip, link.address.prefix.bits())).collect())
    }

    /// Facts that never change during a boot.
    pub(crate) fn boot(&self) -> &Boot {
        &self.boot
    }

    /// How often the machine stood still: what began before goes on in a copy of it, too.
    pub(crate) const fn standstills(&self) -> &Standstills {
        &self.standstills
    }

    /// Answers a question about what is known now. `question` must not ask or change the facts itself.
    pub(crate) fn read<T>(&self, question: impl FnOnce(&Now) -> T) -> T {
        question(&self.now.borrow())
    }

    /// Watches the facts from now on.
    pub(crate) fn watch(&self) -> watch::Receiver<Now> {
        self.now.subscribe()
    }

    /// Something is known from now on. Whoever waits is woken if that is news.
    pub(crate) fn update(&self, change: impl FnOnce(&mut Now)) {
        self.now.send_if_modified(|now| {
            let before = now.clone();
            change(now);
            *now != before
        });
    }

    /// The machine is on its way to be a member. Told by the board, which knows the reason.
    pub(crate) fn underway(&self, underway: &Underway) {
        self.update(|now| now.state = Some(underway.state()));
    }

    /// The machine waits to be given something. Told as [`Self::underway`].
    pub(crate) fn waiting(&self, waiting: &Waiting) {
        self.update(|now| now.state = Some(waiting.state()));
    }

    /// The machine has arrived where it stays until the next boot. Told as [`Self::underway`].
    pub(crate) fn settled(&self, settled: &Settled) {
        self.update(|now| now.state = Some(settled.state()));
    }

    /// The boot cannot go on. Told as [`Self::underway`].
    pub(crate) fn halted(&self, halted: &Halted) {
        self.update(|now| now.state = Some(halted.state()));
    }

    /// A condition is true; whether for the first time in this boot. Told by the board, which knows when none holds.
    pub(crate) fn holds(&self, name: ConditionName) -> bool {
        self.now.send_if_modified(|now| {
            let first = !now.has_held(name);
            if first {
                now.held.push(name);
            }
            first
        })
    }
}

#[cfg(test)]
mod tests {

    use super::*;

    fn facts() -> (Facts, PowerOn) {
        Facts::new(Boot::fixture())
    }

    fn address(text: &str, bits: u8) -> Option<Address> {
        let ip = text.parse().expect("an address");
        Some(Address { ip, prefix: Ipv4Prefix::around(ip, bits).expect("a length") })
    }

    #[test]
    fn a_link_has_its_last_address_and_leaves_the_others_theirs() {
        let (facts, _power_on) = facts();
        let links = || {
            let shown = |link: &Link| format!("{} {} {}", link.name, link.address.ip, link.address.prefix);
            facts.read(|now| now.links.iter().map(shown).collect::<Vec<_>>())
        };
        facts.update(|now| now.link("eth1", address("192.0.2.10", 24)));
        // Ends as the other does: they are told apart by their whole names.
        facts.update(|now| now.link("th1", address("198.51.100.7", 32)));
        facts.update(|now| now.link("eth1", address("192.0.2.11", 24)));
        assert_eq!(links(), ["th1 198.51.100.7 198.51.100.7/32", "eth1 192.0.2.11 192.0.2.0/24"]);
        facts.update(|now| now.link("th1", None));
        assert_eq!(links(), ["eth1 192.0.2.11 192.0.2.0/24"]);
    }

    /// Proves: S7
    #[test]
    fn there_is_no_state_before_one_is_decided() {
        let (facts, power_on) = facts();
        assert_eq!(facts.read(Now::state), None);
        let underway = power_on.enrols();
        facts.underway(&underway);
        assert_eq!(facts.read(Now::state), Some(MachineState::Enrolling));
        facts.settled(&underway.runs());
        assert_eq!(facts.read(Now::state), Some(MachineState::Running));
    }

    #[test]
    fn whoever_waits_is_woken_by_news_and_by_nothing_else() {
        let (facts, _power_on) = facts();
        let mut changes = facts.watch();
        let mut woken = || {
            let woken = changes.has_changed().expect("they live");
            changes.mark_unchanged();
            woken
        };
        let tagging = |percent| facts.update(|now| now.level = Some(LevelInForce::Tagging { percent }));
        tagging(3);
        assert!(woken());
        tagging(3);
        assert!(!woken(), "known");
        assert!(facts.holds(ConditionName::NodeReady) && woken());
        assert!(!facts.holds(ConditionName::NodeReady) && !woken(), "not for the first time");
        assert!(facts.read(|now| now.has_held(ConditionName::NodeReady) && !now.has_held(ConditionName::EtcdReady)));
    }
}
