//! Changes of the kernel's network behind PID 1's back, by netlink: a peer that the cluster does not know, and a rule that is
//! missing.

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use genetlink::GenetlinkHandle;
use netlink_packet_core::{NLM_F_ACK, NLM_F_DUMP, NLM_F_REQUEST, NetlinkMessage, NetlinkPayload};
use netlink_packet_generic::GenlMessage;
use netlink_packet_wireguard::{
    WireguardAllowedIp, WireguardAttribute, WireguardCmd, WireguardMessage, WireguardPeer, WireguardPeerAttribute,
    WireguardPeerFlags,
};
use rtnetlink::packet_route;
use rtnetlink::packet_route::rule::{RuleAction, RuleAttribute, RuleMessage};
use tokio::time::Instant;
use tokio_stream::StreamExt;

use crate::say;

/// WireGuard's interface on every member.
const INTERFACE: &str = "wg0";
/// Public key that no machine of the cluster has.
const FOREIGN: [u8; 32] = [9; 32];
/// Time between two looks at the peers.
const PAUSE: Duration = Duration::from_millis(50);

/// Public key of a peer, and the addresses that it may send from.
type Peers = BTreeMap<[u8; 32], Vec<WireguardAllowedIp>>;

/// Puts a peer of nobody in the place of those that are there, and waits until all is as it was.
pub(super) fn foreign() -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let (connection, mut kernel, _multicast) = genetlink::new_connection()?;
        tokio::select! {
            () = connection => Err(io::Error::other("the kernel's socket has an end")),
            done = replace(&mut kernel) => done,
        }
    })
}

async fn replace(kernel: &mut GenetlinkHandle) -> io::Result<()> {
    let began = Instant::now();
    let before = peers(kernel).await?;
    let stranger = stranger(before.values().next().cloned().unwrap_or_default());
    let changes = before.keys().map(removal).chain([stranger]).map(WireguardPeer).collect();
    exchange(kernel, WireguardCmd::SetDevice, NLM_F_ACK, Some(WireguardAttribute::Peers(changes))).await?;
    while !peers(kernel).await?.keys().eq(before.keys()) {
        tokio::time::sleep(PAUSE).await;
    }
    let took = began.elapsed().as_millis();
    say(&format!("{} peers are back and the foreign one is gone after {took} ms", before.len()));
    Ok(())
}

fn removal(key: &[u8; 32]) -> Vec<WireguardPeerAttribute> {
    vec![WireguardPeerAttribute::PublicKey(*key), WireguardPeerAttribute::Flags(WireguardPeerFlags::RemoveMe)]
}

fn stranger(allowed: Vec<WireguardAllowedIp>) -> Vec<WireguardPeerAttribute> {
    vec![WireguardPeerAttribute::PublicKey(FOREIGN), WireguardPeerAttribute::AllowedIps(allowed)]
}

async fn peers(kernel: &mut GenetlinkHandle) -> io::Result<Peers> {
    let mut peers = Peers::new();
    for attribute in exchange(kernel, WireguardCmd::GetDevice, NLM_F_DUMP, None).await? {
        let WireguardAttribute::Peers(found) = attribute else { continue };
        found.iter().for_each(|peer| take(peer, &mut peers));
    }
    Ok(peers)
}

/// Adds a peer to those that were told. One with many addresses comes in parts, each of which repeats its key.
fn take(WireguardPeer(attributes): &WireguardPeer, peers: &mut Peers) {
    let key = attributes.iter().find_map(|attribute| {
        let WireguardPeerAttribute::PublicKey(key) = attribute else { return None };
        Some(*key)
    });
    let Some(key) = key else { return };
    let allowed = peers.entry(key).or_default();
    for attribute in attributes {
        let WireguardPeerAttribute::AllowedIps(more) = attribute else { continue };
        allowed.extend(more.iter().cloned());
    }
}

/// Says one thing to WireGuard about its interface, and gives all that it answers.
async fn exchange(
    kernel: &mut GenetlinkHandle,
    cmd: WireguardCmd,
    flags: u16,
    more: Option<WireguardAttribute>,
) -> io::Result<Vec<WireguardAttribute>> {
    let attributes = [WireguardAttribute::IfName(INTERFACE.to_owned())].into_iter().chain(more).collect();
    let mut message = NetlinkMessage::from(GenlMessage::from_payload(WireguardMessage { cmd, attributes }));
    message.header.flags = NLM_F_REQUEST | flags;
    let mut answers = kernel.request(message).await.map_err(io::Error::other)?;
    let mut told = Vec::new();
    while let Some(answer) = answers.next().await {
        let payload = answer.map_err(io::Error::other)?.payload;
        if let NetlinkPayload::InnerMessage(answer) = payload {
            told.extend(answer.payload.attributes);
        } else if let NetlinkPayload::Error(error) = payload
            && error.code.is_some()
        {
            return Err(error.to_io());
        }
    }
    Ok(told)
}

/// Makes the machine a router for strangers, so that a test sees what its rules are there for: takes away its filter, and the rule
/// that drops all packets that no other has allowed.
pub(super) fn router() -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let (connection, kernel, _multicast) = rtnetlink::new_connection()?;
        tokio::select! {
            () = connection => Err(io::Error::other("the kernel's socket has an end")),
            done = route_for_strangers(&kernel) => done,
        }
    })
}

async fn route_for_strangers(kernel: &rtnetlink::Handle) -> io::Result<()> {
    let mut rules = kernel.rule().get(rtnetlink::IpVersion::V4).execute();
    let mut last = None;
    while let Some(rule) = rules.next().await {
        last = denies_all(&rule.map_err(io::Error::other)?).or(last);
    }
    let last = last.ok_or_else(|| io::Error::other("no rule drops what others have not allowed"))?;
    kernel.rule().del(denial(last)).execute().await.map_err(io::Error::other)?;
    without_filter()?;
    say("a router now");
    Ok(())
}

/// Takes PID 1's table away.
fn without_filter() -> io::Result<()> {
    match crate::nft::run(&["--file", "-"], "delete table inet cairn\n")? {
        output if output.status.success() => Ok(()),
        output => Err(io::Error::other(String::from_utf8_lossy(&output.stderr).into_owned())),
    }
}

/// Priority of a rule that drops packets to anywhere from any link; none for any other.
fn denies_all(rule: &RuleMessage) -> Option<u32> {
    let of_some = |attribute: &RuleAttribute| {
        matches!(attribute, RuleAttribute::Iifname(_) | RuleAttribute::Oifname(_))
            || matches!(attribute, RuleAttribute::Destination(_) | RuleAttribute::Source(_))
    };
    let all = rule.header.action == RuleAction::Blackhole && !rule.attributes.iter().any(of_some);
    let priority = |attribute: &RuleAttribute| {
        let RuleAttribute::Priority(priority) = attribute else { return None };
        Some(*priority)
    };
    rule.attributes.iter().find_map(priority).filter(|_| all)
}

/// The rule of this priority that drops all packets, as the kernel is told which one to delete.
fn denial(priority: u32) -> RuleMessage {
    let mut message = RuleMessage::default();
    message.header.family = packet_route::AddressFamily::Inet;
    message.header.action = RuleAction::Blackhole;
    message.attributes.push(RuleAttribute::Priority(priority));
    message
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use netlink_packet_wireguard::WireguardAllowedIpAttr;

    use super::*;

    #[test]
    fn the_rule_that_drops_all_is_told_from_the_others() {
        assert_eq!(denies_all(&denial(18)), Some(18));
        for of_some in [
            RuleAttribute::Iifname("eth0".to_owned()),
            RuleAttribute::Destination(IpAddr::from(Ipv4Addr::new(10, 118, 0, 0))),
        ] {
            let mut rule = denial(14);
            rule.attributes.push(of_some);
            assert_eq!(denies_all(&rule), None, "{rule:?}");
        }
        let mut rule = denial(16);
        rule.header.action = RuleAction::ToTable;
        assert_eq!(denies_all(&rule), None);
    }

    #[test]
    fn a_peer_that_comes_in_parts_is_one() {
        let allowed = |last| WireguardAllowedIp(vec![WireguardAllowedIpAttr::IpAddr([10, 0, 0, last].into())]);
        let mut peers = Peers::new();
        for (key, address) in [([1; 32], 1), ([2; 32], 2), ([2; 32], 3)] {
            let attributes = [WireguardPeerAttribute::PublicKey(key)];
            let addresses = WireguardPeerAttribute::AllowedIps(vec![allowed(address)]);
            take(&WireguardPeer(attributes.into_iter().chain([addresses]).collect()), &mut peers);
        }
        assert_eq!(peers, Peers::from([([1; 32], vec![allowed(1)]), ([2; 32], vec![allowed(2), allowed(3)])]));
    }
}
