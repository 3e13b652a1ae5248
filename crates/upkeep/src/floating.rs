//! Holders of floating addresses: which worker is to hold each, by who is there.
//!
//! A holder stays as long as it is Ready and heard, and, where a service that keeps its clients' addresses is tied to the address, has a
//! ready endpoint of it. Otherwise the address goes to the worker that is fit and holds the fewest. Whoever got one has some time to take it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::time::Duration;

use kubeapi::Objects;
use model::{MachineId, NodeName};

use crate::publishing::{FloatingAddress, NamespaceRule, PublishWorld, ServiceObject, in_order, is_ready};

/// Time for which an address stays where it was given to: its holder takes it within a quarter of a minute.
const STAYS: Duration = Duration::from_secs(20);
/// Time between two looks at who is there, while there are floating addresses.
const LOOKS: Duration = Duration::from_secs(3);
/// Silence after which a worker is not there any more: two looks, and the time of an answer.
pub const SILENT: Duration = Duration::from_secs(6);

/// Machine that is to hold a floating address from now on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AddressMove {
    /// Which address.
    pub address: Ipv4Addr,
    /// Which machine.
    pub machine: MachineId,
}

/// Mover of floating addresses.
#[derive(Debug, Default)]
pub struct AddressMover {
    /// Holders as they are known, and since when.
    held: BTreeMap<Ipv4Addr, (NodeName, Duration)>,
    next: Option<Duration>,
}

impl AddressMover {
    /// Whether it is to be found out who is there: there are floating addresses, and the last look was a while ago.
    #[must_use]
    pub fn is_to_look(&self, rules: &[NamespaceRule], now: Duration) -> bool {
        rules.iter().any(|rule| rule.floating.is_some()) && self.next.is_none_or(|next| now >= next)
    }

    /// When it is to be found out again.
    #[must_use]
    pub const fn poll_timeout(&self) -> Option<Duration> {
        self.next
    }

    /// Addresses that are to go elsewhere, as these workers are there. Nothing before all objects are known.
    pub fn due(&mut self, world: PublishWorld<'_>, there: &BTreeSet<NodeName>, now: Duration) -> Vec<AddressMove> {
        self.next = Some(now + LOOKS);
        let (Some(services), Some(slices), Some(nodes)) = (world.services, world.slices, world.nodes) else {
            return Vec::new();
        };
        let floating = || world.rules.iter().filter_map(|rule| Some((rule, rule.floating.as_ref()?)));
        self.look(floating().map(|(_, floating)| floating), now);
        let mut loads: BTreeMap<&NodeName, usize> = BTreeMap::new();
        for holder in floating().filter_map(|(_, floating)| floating.holder.as_ref()) {
            *loads.entry(holder).or_default() += 1;
        }
        let mut moves = Vec::new();
        for (rule, FloatingAddress { address, holder }) in floating() {
            let is_fit = |node: &&NodeName| there.contains(*node) && is_ready(nodes, node);
            let fit: BTreeSet<&NodeName> =
                world.workers.keys().filter(|node| rule.nodes.contains(*node)).filter(is_fit).collect();
            let fit = where_services_are(rule, services, fit, |service, node| service.has_endpoint(slices, node));
            let stays = holder.as_ref().is_some_and(|holder| fit.contains(holder)) || self.is_new(*address, now);
            let fewest = |node: &&&NodeName| loads.get(**node).copied().unwrap_or(0);
            let Some(next) = fit.iter().filter(|_| !stays).min_by_key(fewest).copied() else { continue };
            *loads.entry(next).or_default() += 1;
            if let Some(before) = holder {
                *loads.entry(before).or_default() -= 1;
            }
            self.held.insert(*address, (next.clone(), now));
            moves.push(AddressMove { address: *address, machine: world.workers[next].machine });
        }
        moves
    }

    /// Notes who holds what, and since when.
    fn look<'a>(&mut self, floating: impl Iterator<Item = &'a FloatingAddress>, now: Duration) {
        let mut held = BTreeMap::new();
        for FloatingAddress { address, holder } in floating {
            let Some(holder) = holder else { continue };
            let before = self.held.remove(address).filter(|(before, _)| before == holder);
            held.insert(*address, before.unwrap_or_else(|| (holder.clone(), now)));
        }
        self.held = held;
    }

    /// Whether the address has just got its holder. What was there at the first look counts as new, too.
    fn is_new(&self, address: Ipv4Addr, now: Duration) -> bool {
        self.held.get(&address).is_some_and(|(_, since)| now < *since + STAYS)
    }
}

/// Workers, of these, on which each service that is tied to the rule's address has an endpoint; the younger one waits where two are on no
/// worker together.
fn where_services_are<'a>(
    rule: &NamespaceRule,
    services: &Objects<ServiceObject>,
    mut fit: BTreeSet<&'a NodeName>,
    has_endpoint: impl Fn(&ServiceObject, &NodeName) -> bool,
) -> BTreeSet<&'a NodeName> {
    for service in in_order(services).into_iter().filter(|service| service.is_tied_by(rule)) {
        let of_both: BTreeSet<_> = fit.iter().copied().filter(|node| has_endpoint(service, node)).collect();
        if !of_both.is_empty() {
            fit = of_both;
        }
    }
    fit
}

#[cfg(test)]
mod tests;
