//! Part of a machine in nftables' language: table `inet cairn-policy`, replaced as a whole. Pods of the machine are told by its prefix
//! of pods.
//!
//! ```text
//!   forward, 10, `egress`:   answers pass ─► a pod to itself passes ─► unknown own pods: drop ─► by source: its chain
//!   forward, 11, `ingress`:  answers pass ─► a pod to itself passes ─► unknown own pods: drop ─► by destination: its chain
//!   chain of a policy set:   ports … ─► addresses … ─► accept;  else drop
//! ```
//! Two base chains, since what the first accepts the second still judges. What a machine says to its own pods leaves by the hook
//! output, and what they say to it comes in by input: neither is forwarded, so both pass.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::net::Ipv4Addr;

use model::Ipv4Prefix;

use crate::address::{PortSet, Protocol};
use crate::part::{Allowed, JudgedPods, Peers, PodChains, PolicyPart, Ports};

const NAME: &str = "inet cairn-policy";
/// Text by which no packet is judged.
pub const NO_TABLE: &str = "destroy table inet cairn-policy\n";
/// Elements of one command: a line that a person can still read.
const ELEMENTS_AT_ONCE: usize = 100;

/// Side on which a machine judges a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    Egress,
    Ingress,
}

/// Table that lets a machine's pods do what a part says. `pods` is the machine's own prefix.
#[must_use]
pub fn written(part: &PolicyPart, pods: Ipv4Prefix) -> String {
    match &part.judged {
        Some(judged) => judges(judged, pods),
        None => NO_TABLE.to_owned(),
    }
}

/// Table of a machine that has not heard of its part since it started: its pods get no new connection.
#[must_use]
pub fn unheard(pods: Ipv4Prefix) -> String {
    judges(&JudgedPods::default(), pods)
}

fn judges(judged: &JudgedPods, own: Ipv4Prefix) -> String {
    let mut table = Table(format!("{NO_TABLE}add table {NAME}\n"));
    let all: Vec<Ipv4Addr> = judged.pods.keys().copied().collect();
    table.line("set", "itself { type ipv4_addr . ipv4_addr ; }");
    table.elements("itself", all.iter().map(|pod| format!("{pod} . {pod}")));
    table.line("set", "known { type ipv4_addr ; }");
    table.elements("known", all.iter().map(Ipv4Addr::to_string));
    for side in [Side::Egress, Side::Ingress] {
        table.side(side, judged, own);
    }
    table.0
}

impl Side {
    const fn name(self) -> &'static str {
        match self {
            Self::Egress => "egress",
            Self::Ingress => "ingress",
        }
    }

    /// Field of the machine's own pod, of its peer, and priority of the base chain.
    const fn fields(self) -> (&'static str, &'static str, u8) {
        match self {
            Self::Egress => ("saddr", "daddr", 10),
            Self::Ingress => ("daddr", "saddr", 11),
        }
    }

    const fn chain(self, pod: &PodChains) -> Option<u32> {
        match self {
            Self::Egress => pod.egress,
            Self::Ingress => pod.ingress,
        }
    }
}

/// Text of a table, as it grows.
struct Table(String);

impl Table {
    /// Base chain of a side, with the chains that its pods have.
    fn side(&mut self, side: Side, judged: &JudgedPods, own: Ipv4Prefix) {
        let (name, (pod, peer, priority)) = (side.name(), side.fields());
        let used: BTreeSet<u32> = judged.pods.values().filter_map(|pod| side.chain(pod)).collect();
        let rules = || judged.chains.iter().zip(0..).filter(|(_, place)| used.contains(place));
        let sets: BTreeSet<u32> = rules().flat_map(|(chain, _)| chain).filter_map(set_of).collect();
        for (set, place) in judged.sets.iter().zip(0..).filter(|(_, place)| sets.contains(place)) {
            let chain = format!("{name}-peers-{place}");
            self.line("chain", &chain);
            self.line("rule", &format!("{chain} ip {peer} {} accept", listed(&set.prefixes())));
        }
        for (chain, place) in rules() {
            let called = format!("{name}-{place}");
            self.line("chain", &called);
            for Allowed { peers, ports } in chain {
                let verdict = match peers {
                    Peers::All => "accept".to_owned(),
                    Peers::Set(place) => format!("jump {name}-peers-{place}"),
                };
                for ports in conditions(ports) {
                    self.line("rule", &format!("{called} {ports}{verdict}"));
                }
            }
            self.line("rule", &format!("{called} drop"));
        }
        self.line("map", &format!("{name}-pods {{ type ipv4_addr : verdict ; }}"));
        let chains = judged.pods.iter().filter_map(|(pod, chains)| Some((pod, side.chain(chains)?)));
        self.elements(&format!("{name}-pods"), chains.map(|(pod, chain)| format!("{pod} : goto {name}-{chain}")));
        self.line("chain", &format!("{name} {{ type filter hook forward priority {priority} ; policy accept ; }}"));
        for rule in [
            "ct state established,related accept".to_owned(),
            "ip saddr . ip daddr @itself accept".to_owned(),
            format!("ip {pod} {own} ip {pod} != @known drop"),
            format!("ip {pod} vmap @{name}-pods"),
        ] {
            self.line("rule", &format!("{name} {rule}"));
        }
    }

    fn elements(&mut self, set: &str, all: impl Iterator<Item = String>) {
        for some in all.collect::<Vec<_>>().chunks(ELEMENTS_AT_ONCE) {
            self.line("element", &format!("{set} {}", listed(some)));
        }
    }

    fn line(&mut self, what: &str, text: &str) {
        let _never_fails = writeln!(self.0, "add {what} {NAME} {text}");
    }
}

const fn set_of(allowed: &Allowed) -> Option<u32> {
    match allowed.peers {
        Peers::All => None,
        Peers::Set(place) => Some(place),
    }
}

/// Conditions of a rule on the protocol and its ports, one rule for each.
fn conditions(ports: &Ports) -> Vec<String> {
    match ports {
        Ports::All => vec![String::new()],
        Ports::Of(ports) => Protocol::ALL.into_iter().filter_map(|protocol| condition(ports, protocol)).collect(),
    }
}

fn condition(ports: &PortSet, protocol: Protocol) -> Option<String> {
    let ranges = ports.ranges().iter().filter(|(of, ..)| *of == protocol).map(|(_, first, last)| (*first, *last));
    let texts: Vec<String> = match ranges.collect::<Vec<_>>()[..] {
        [] => return None,
        [(0, u16::MAX)] => return Some(format!("meta l4proto {} ", protocol.name())),
        ref ranges => ranges.iter().map(|(first, last)| range(*first, *last)).collect(),
    };
    Some(format!("{} dport {} ", protocol.name(), listed(&texts)))
}

fn range(first: u16, last: u16) -> String {
    if first == last { first.to_string() } else { format!("{first}-{last}") }
}

fn listed(all: &[String]) -> String {
    format!("{{ {} }}", all.join(", "))
}

#[cfg(test)]
mod tests;
