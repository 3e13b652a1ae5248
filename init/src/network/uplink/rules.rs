//! Routing rules that keep VPN and pod addresses out of reach from uplinks, and the machine from routing for strangers
//! (A7). Default is to deny.
//!
//! The filter ([`super::filter`]) goes first, and marks what may be routed; these rules are the second fence, behind which all else
//! meets what it met without a filter.
//!
//! Linux answers on any link for any of its addresses, so binding to the VPN address is not enough; and a machine that
//! forwards for its pods forwards for everybody. [`table`] is the list, each row with its reason. The kernel's rule 0
//! (everybody looks up local first) is deleted last; those it has behind ours are never asked.
//!
//! A packet is asked about twice: where it goes, and, because of `rp_filter`, whether an answer would go back where it
//! came from. For one that is passed on the kernel asks the second as if the answer came in by the link that the packet
//! leaves by, so what may go from here to there must be allowed from there to here.

use std::net::Ipv4Addr;

use model::{Ipv4Prefix, Prefixes};
use rtnetlink::packet_route::AddressFamily;
use rtnetlink::packet_route::route::{RouteMessage, RouteType};
use rtnetlink::packet_route::rule::{RuleAction, RuleAttribute, RuleMessage};
use rtnetlink::{Handle, RouteMessageBuilder};

use super::filter::ROUTED;
use super::{Error, Link};
use crate::network::refusal;

const TABLE_LOCAL: u8 = 255;
const TABLE_MAIN: u8 = 254;

/// The rule that denies whatever no other one allows.
const DENIES: Rule<'_> = Rule {
    priority: 22,
    from: None,
    is_marked: false,
    to: None,
    action: Action::Blackhole,
    because: "the machine is no router: neither between uplinks, nor from wg0, nor for pods",
};

/// The kernel's own rule before all others.
const KERNELS: Rule<'_> = Rule {
    priority: 0,
    from: None,
    is_marked: false,
    to: None,
    action: Action::Lookup(TABLE_LOCAL),
    because: "everybody looks up local first",
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Action {
    /// Goes on with the next rule where that table has no route.
    Lookup(u8),
    /// Dropped in silence.
    Blackhole,
    /// Dropped, and whoever sent it is told.
    Unreachable,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Rule<'a> {
    priority: u32,
    /// The link a packet came in by; `lo` is for the machine's own packets.
    from: Option<&'a str>,
    /// Whether it concerns those alone that the filter lets be routed.
    is_marked: bool,
    to: Option<Ipv4Prefix>,
    action: Action,
    because: &'static str,
}

/// The rules, in the order in which they are asked.
fn table<'a>(prefixes: Option<Prefixes>, uplinks: impl IntoIterator<Item = &'a str>) -> Vec<Rule<'a>> {
    use Action::{Blackhole, Lookup, Unreachable};
    let row = |priority, from, to, action, because| Rule { priority, from, is_marked: false, to, action, because };
    let marked = |priority, action, because| Rule { is_marked: true, ..row(priority, None, None, action, because) };
    let mut rules = vec![
        row(10, Some("lo"), None, Lookup(TABLE_LOCAL), "own packets reach own addresses"),
        row(11, Some("wg0"), None, Lookup(TABLE_LOCAL), "members reach the VPN address"),
        row(12, Some("lo"), None, Lookup(TABLE_MAIN), "own packets reach peers: 18 would drop them"),
        row(13, Some("lo"), None, Unreachable, "who sends on this machine is told that there is no way"),
        marked(14, Lookup(TABLE_LOCAL), "what the filter lets in is this machine's, or"),
        marked(15, Lookup(TABLE_MAIN), "it is passed on: from pods, to pods, and what answers them"),
        marked(16, Unreachable, "who sends it is told that there is no way"),
    ];
    if let Some(Prefixes { vpn, pods, .. }) = prefixes {
        let closed =
            |uplink| row(19, Some(uplink), Some(pods), Blackhole, "nobody outside reaches pods, or their gateway");
        rules.push(row(18, None, Some(vpn), Blackhole, "nobody else reaches the VPN address"));
        rules.extend(uplinks.into_iter().map(closed));
        rules.push(row(21, None, Some(pods), Lookup(TABLE_MAIN), "pods and members reach pods"));
    }
    rules.extend([
        row(20, None, None, Lookup(TABLE_LOCAL), "all reach public addresses, and pods their gateway"),
        DENIES,
    ]);
    rules.sort_by_key(|rule| rule.priority);
    rules
}

/// Sets the rules, before the first of `uplinks` goes up.
pub(super) async fn set(handle: &Handle, prefixes: Option<Prefixes>, uplinks: &[Link]) -> Result<(), Error> {
    if let Some(prefixes) = prefixes {
        handle.route().add(no_pod(prefixes)).execute().await.map_err(|error| Error::NoPod(refusal(error)))?;
    }
    for rule in table(prefixes, names(uplinks)) {
        tracing::debug!(?rule, "routing rule");
        add(handle, rule).await?;
    }
    delete(handle, KERNELS).await
}

/// Replaces what names prefixes of before by what names those of after: the new is set first, so that nothing is open meanwhile.
pub(super) async fn change(
    handle: &Handle,
    (before, after): (Option<Prefixes>, Option<Prefixes>),
    uplinks: &[Link],
) -> Result<(), Error> {
    let (old, new) = (table(before, names(uplinks)), table(after, names(uplinks)));
    let (was, is) = (before.map(no_pod), after.map(no_pod));
    if let Some(is) = is.clone().filter(|_| was != is) {
        handle.route().add(is).execute().await.map_err(|error| Error::NoPod(refusal(error)))?;
    }
    for rule in new.iter().filter(|rule| !old.contains(rule)) {
        tracing::debug!(?rule, "routing rule of the cluster's own prefixes");
        add(handle, *rule).await?;
    }
    for rule in old.iter().filter(|rule| !new.contains(rule)) {
        delete(handle, *rule).await?;
    }
    if let Some(was) = was.filter(|was| is.as_ref() != Some(was)) {
        handle.route().del(was).execute().await.map_err(|error| Error::NoPod(refusal(error)))?;
    }
    Ok(())
}

fn names(uplinks: &[Link]) -> impl Iterator<Item = &str> {
    uplinks.iter().map(|link| link.name.as_str())
}

async fn add(handle: &Handle, rule: Rule<'_>) -> Result<(), Error> {
    let mut request = handle.rule().add();
    *request.message_mut() = rule.message();
    request.execute().await.map_err(|error| Error::Rule(rule.priority, refusal(error)))
}

async fn delete(handle: &Handle, rule: Rule<'_>) -> Result<(), Error> {
    handle.rule().del(rule.message()).execute().await.map_err(|error| Error::Rule(rule.priority, refusal(error)))
}

/// Makes packets to pods that are not there unreachable. Without this they would take the default route, out of an
/// uplink, where anybody may answer in the pod's place.
fn no_pod(Prefixes { pods, .. }: Prefixes) -> RouteMessage {
    let route = RouteMessageBuilder::<Ipv4Addr>::new().destination_prefix(pods.address(), pods.bits());
    route.kind(RouteType::Unreachable).build()
}

impl Rule<'_> {
    /// The rule as the kernel is told it: to add it, or to find the one to delete.
    fn message(&self) -> RuleMessage {
        let mut message = RuleMessage::default();
        message.header.family = AddressFamily::Inet;
        (message.header.action, message.header.table) = match self.action {
            Action::Lookup(table) => (RuleAction::ToTable, table),
            Action::Blackhole => (RuleAction::Blackhole, 0),
            Action::Unreachable => (RuleAction::Unreachable, 0),
        };
        message.attributes.push(RuleAttribute::Priority(self.priority));
        if self.is_marked {
            message.attributes.extend([RuleAttribute::FwMark(ROUTED), RuleAttribute::FwMask(ROUTED)]);
        }
        message.attributes.extend(self.from.map(|link| RuleAttribute::Iifname(link.to_owned())));
        if let Some(prefix) = self.to {
            message.header.dst_len = prefix.bits();
            message.attributes.push(RuleAttribute::Destination(prefix.address().into()));
        }
        message
    }
}

#[cfg(test)]
mod tests;
