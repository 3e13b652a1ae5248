//! Routing rules that keep VPN and pod addresses out of reach from uplinks (A7). Default is to deny.
//!
//! Linux answers on any link for any of its addresses, so binding to the VPN address is not enough. In this order
//! (tried in network namespaces; each row with its reason):
//! ```text
//!   10  iif lo                     lookup local   own packets reach own addresses
//!   11  iif wg0                    lookup local   members reach the VPN address
//!   12  iif lo                     lookup main    own packets reach peers: without it rule 13 would drop them
//!   13  to VPN prefix              blackhole      nobody else reaches the VPN address
//!   14  iif UPLINK to pod prefix   blackhole      nobody outside reaches pods, one rule per link
//!   15                             lookup local   the rest: public addresses
//!   32766                          lookup main    (the kernel's own)
//! ```
//! The kernel's rule 0 (everybody looks up local first) is deleted last.

use model::{Ipv4Prefix, POD_PREFIX};
use rtnetlink::Handle;
use rtnetlink::packet_route::AddressFamily;
use rtnetlink::packet_route::rule::{RuleAction, RuleAttribute, RuleMessage};

use super::Error;

const TABLE_LOCAL: u8 = 255;
const TABLE_MAIN: u8 = 254;

enum Action {
    Lookup(u8),
    Blackhole,
}

struct Rule<'a> {
    priority: u32,
    from: Option<&'a str>,
    to: Option<Ipv4Prefix>,
    action: Action,
}

/// The rules that do not name a link.
pub(super) async fn before_links(handle: &Handle, vpn: Ipv4Prefix) -> Result<(), Error> {
    let rules = [
        Rule { priority: 10, from: Some("lo"), to: None, action: Action::Lookup(TABLE_LOCAL) },
        Rule { priority: 11, from: Some("wg0"), to: None, action: Action::Lookup(TABLE_LOCAL) },
        Rule { priority: 12, from: Some("lo"), to: None, action: Action::Lookup(TABLE_MAIN) },
        Rule { priority: 13, from: None, to: Some(vpn), action: Action::Blackhole },
        Rule { priority: 15, from: None, to: None, action: Action::Lookup(TABLE_LOCAL) },
    ];
    for rule in rules {
        add(handle, rule).await?;
    }
    let mut kernels_first = RuleMessage::default();
    kernels_first.header.family = AddressFamily::Inet;
    kernels_first.header.action = RuleAction::ToTable;
    kernels_first.header.table = TABLE_LOCAL;
    kernels_first.attributes.push(RuleAttribute::Priority(0));
    handle.rule().del(kernels_first).execute().await.map_err(|error| Error::Rule(0, error))
}

/// The rule for one uplink; before it goes up.
pub(super) async fn before_link(handle: &Handle, link: &str) -> Result<(), Error> {
    add(handle, Rule { priority: 14, from: Some(link), to: Some(POD_PREFIX), action: Action::Blackhole }).await
}

async fn add(handle: &Handle, rule: Rule<'_>) -> Result<(), Error> {
    let mut request = handle.rule().add().v4().priority(rule.priority);
    request = match rule.action {
        Action::Lookup(table) => request.table_id(table.into()).action(RuleAction::ToTable),
        Action::Blackhole => request.table_id(0).action(RuleAction::Blackhole),
    };
    if let Some(link) = rule.from {
        request = request.input_interface(link);
    }
    if let Some(prefix) = rule.to {
        request = request.destination_prefix(prefix.address(), prefix.bits());
    }
    request.execute().await.map_err(|error| Error::Rule(rule.priority, error))
}
