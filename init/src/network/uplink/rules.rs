//! Routing rules that keep VPN and pod addresses out of reach from uplinks, and the machine from routing for strangers
//! (A7). Default is to deny.
//!
//! Linux answers on any link for any of its addresses, so binding to the VPN address is not enough; and a machine that
//! forwards for its pods forwards for everybody. [`table`] is the list, each row with its reason. The kernel's rule 0
//! (everybody looks up local first) is deleted last; those it has behind ours are never asked.
//!
//! A packet is asked about twice: where it goes, and, because of `rp_filter`, whether an answer would go back where it
//! came from. For one that is passed on the kernel asks the second as if the answer came in by the link that the packet
//! leaves by, so what may go from here to there must be allowed from there to here.

use model::{Ipv4Prefix, POD_PREFIX};
use rtnetlink::packet_route::AddressFamily;
use rtnetlink::packet_route::route::RouteType;
use rtnetlink::packet_route::rule::{RuleAction, RuleAttribute, RuleMessage};
use rtnetlink::{Handle, RouteMessageBuilder};

use super::{Error, Link};

const TABLE_LOCAL: u8 = 255;
const TABLE_MAIN: u8 = 254;

/// The rule that denies whatever no other one allows.
const LAST: u32 = 18;

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
    to: Option<Ipv4Prefix>,
    action: Action,
    because: &'static str,
}

/// The rules, in the order in which they are asked.
fn table<'a>(vpn: Ipv4Prefix, uplinks: impl IntoIterator<Item = &'a str>) -> Vec<Rule<'a>> {
    use Action::{Blackhole, Lookup, Unreachable};
    let row = |priority, from, to, action, because| Rule { priority, from, to, action, because };
    let pods = Some(POD_PREFIX);
    let mut rules = vec![
        row(10, Some("lo"), None, Lookup(TABLE_LOCAL), "own packets reach own addresses"),
        row(11, Some("wg0"), None, Lookup(TABLE_LOCAL), "members reach the VPN address"),
        row(12, Some("lo"), None, Lookup(TABLE_MAIN), "own packets reach peers: 14 would drop them"),
        row(13, Some("lo"), None, Unreachable, "who sends on this machine is told that there is no way"),
        row(14, None, Some(vpn), Blackhole, "nobody else reaches the VPN address"),
    ];
    let closed = |uplink| row(15, Some(uplink), pods, Blackhole, "nobody outside reaches pods, or their gateway");
    rules.extend(uplinks.into_iter().map(closed));
    rules.extend([
        row(16, None, None, Lookup(TABLE_LOCAL), "all reach public addresses, and pods their gateway"),
        row(17, None, pods, Lookup(TABLE_MAIN), "pods and members reach pods: the one thing that is passed on"),
        row(
            LAST,
            None,
            None,
            Blackhole,
            "the machine is no router: neither between uplinks, nor from wg0, nor for pods",
        ),
    ]);
    rules
}

/// Sets the rules, before the first of `uplinks` goes up.
pub(super) async fn set(handle: &Handle, vpn: Ipv4Prefix, uplinks: &[Link]) -> Result<(), Error> {
    no_pod(handle).await?;
    for rule in table(vpn, uplinks.iter().map(|link| link.name.as_str())) {
        tracing::debug!(?rule, "routing rule");
        add(handle, rule).await?;
    }
    delete(handle, 0, RuleAction::ToTable, TABLE_LOCAL).await
}

/// Deletes the last rule; see [`super::route_for_strangers`].
pub(super) async fn unset_last(handle: &Handle) -> Result<(), Error> {
    delete(handle, LAST, RuleAction::Blackhole, 0).await
}

async fn delete(handle: &Handle, priority: u32, action: RuleAction, table: u8) -> Result<(), Error> {
    let mut rule = RuleMessage::default();
    rule.header.family = AddressFamily::Inet;
    rule.header.action = action;
    rule.header.table = table;
    rule.attributes.push(RuleAttribute::Priority(priority));
    handle.rule().del(rule).execute().await.map_err(|error| Error::Rule(priority, error))
}

/// Makes packets to pods that are not there unreachable. Without this they would take the default route, out of an
/// uplink, where anybody may answer in the pod's place.
async fn no_pod(handle: &Handle) -> Result<(), Error> {
    let route = RouteMessageBuilder::<std::net::Ipv4Addr>::new()
        .destination_prefix(POD_PREFIX.address(), POD_PREFIX.bits())
        .kind(RouteType::Unreachable);
    handle.route().add(route.build()).execute().await.map_err(Error::NoPod)
}

async fn add(handle: &Handle, rule: Rule<'_>) -> Result<(), Error> {
    let mut request = handle.rule().add().v4().priority(rule.priority);
    request = match rule.action {
        Action::Lookup(table) => request.table_id(table.into()).action(RuleAction::ToTable),
        Action::Blackhole => request.table_id(0).action(RuleAction::Blackhole),
        Action::Unreachable => request.table_id(0).action(RuleAction::Unreachable),
    };
    if let Some(link) = rule.from {
        request = request.input_interface(link);
    }
    if let Some(prefix) = rule.to {
        request = request.destination_prefix(prefix.address(), prefix.bits());
    }
    request.execute().await.map_err(|error| Error::Rule(rule.priority, error))
}

#[cfg(test)]
mod tests;
