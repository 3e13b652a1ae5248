//! The rules as the kernel follows them (`fib_rules_lookup`, `fib_validate_source`), behind the filter, over the routes of a machine
//! with two uplinks, the mesh and two pods. Cases on machines show that the kernel does; here is every way there is.

use model::{POD_PREFIX, VPN_PREFIX};

use super::super::filter::tests::{Fate, Packet, PacketKind, fate, of_worker};
use super::*;

/// Where a packet ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// With the machine itself.
    Here,
    /// Out of this link.
    Out(&'static str),
    Dropped,
    /// Dropped, and the sender is told.
    Refused,
}
use End::{Dropped, Here, Out, Refused};

const UPLINKS: [&str; 2] = ["eth0", "eth1"];
const PUBLIC: [&str; 2] = ["192.0.2.10", "198.51.100.10"];
/// Behind the first uplink, which has the default route, and behind the second.
const NEIGHBOUR: [&str; 2] = ["192.0.2.1", "198.51.100.1"];
const FAR: &str = "203.0.113.1";
const VPN: &str = "10.118.0.1";
const MEMBER: &str = "10.118.0.2";
const GATEWAY: &str = "10.244.0.1";
const PODS: [&str; 2] = ["10.244.0.2", "10.244.0.3"];
const NO_POD: &str = "10.244.0.77";
/// Address of a pod on another machine; the mesh leads to it.
const OTHERS_POD: &str = "10.244.1.2";
const LOCAL: [&str; 5] = [PUBLIC[0], PUBLIC[1], VPN, GATEWAY, "127.0.0.1"];

fn address(text: &str) -> Ipv4Addr {
    text.parse().expect("an address")
}

fn within(to: Ipv4Addr, prefix: &str) -> bool {
    prefix.parse::<Ipv4Prefix>().expect("a prefix").contains(to)
}

/// The main table, longest prefix first.
fn main_table(to: Ipv4Addr) -> End {
    let rows = [
        ("10.244.0.2/32", Out("veth0")),
        ("10.244.0.3/32", Out("veth1")),
        ("192.0.2.0/24", Out("eth0")),
        ("198.51.100.0/24", Out("eth1")),
        ("10.244.1.0/24", Out("wg0")),
        ("10.118.0.0/16", Out("wg0")),
        ("10.244.0.0/16", Refused), // `no_pod`
        ("0.0.0.0/0", Out("eth0")),
    ];
    rows.into_iter().find(|(prefix, _)| within(to, prefix)).expect("there is a default route").1
}

fn lookup(rules: &[Rule<'_>], (from, mark): (&str, u32), to: Ipv4Addr) -> End {
    for rule in rules {
        if rule.is_marked && mark & ROUTED == 0 {
            continue;
        }
        if rule.from.is_some_and(|link| link != from) || rule.to.is_some_and(|prefix| !prefix.contains(to)) {
            continue;
        }
        match rule.action {
            Action::Blackhole => return Dropped,
            Action::Unreachable => return Refused,
            Action::Lookup(TABLE_LOCAL) if LOCAL.iter().any(|local| address(local) == to) => return Here,
            Action::Lookup(TABLE_MAIN) => return main_table(to),
            Action::Lookup(_) => {}
        }
    }
    panic!("every packet meets a rule")
}

/// End of a packet that comes in with this mark, by its way and the way back that strict `rp_filter` asks for, with the same mark
/// (`src_valid_mark`).
fn routed(rules: &[Rule<'_>], (link, mark): (&'static str, u32), source: &str, to: &str) -> End {
    let end = lookup(rules, (link, mark), address(to));
    if link == "lo" {
        return end;
    }
    let back = match end {
        Here => lookup(rules, ("lo", mark), address(source)),
        Out(out) => lookup(rules, (out, mark), address(source)),
        Dropped | Refused => return end,
    };
    if back == Out(link) { end } else { Dropped }
}

/// End of a packet of this kind on a worker.
fn way(rules: &[Rule<'_>], link: &'static str, (source, to): (&str, &str), kind: PacketKind) -> End {
    let is_local = LOCAL.contains(&to);
    let packet = Packet { link, source: address(source), to: address(to), kind, is_local };
    match fate(&of_worker(), "prerouting", Fate::Dropped, packet) {
        Fate::Passes(mark) => routed(rules, (link, mark), source, to),
        Fate::Dropped | Fate::Refused | Fate::Untracked | Fate::Translated | Fate::Stays => Dropped,
    }
}

fn rules() -> Vec<Rule<'static>> {
    table(Some(Prefixes::of(VPN_PREFIX)), UPLINKS)
}

/// Proves: A7
#[test]
fn every_way_through_the_machine_ends_where_it_should() {
    let rules = rules();
    let [eth0, eth1] = NEIGHBOUR;
    for (link, source, to, end) in [
        // From uplinks: public addresses, and nothing else.
        ("eth0", eth0, PUBLIC[0], Here),
        ("eth0", FAR, PUBLIC[0], Here),
        ("eth1", eth1, PUBLIC[1], Here),
        ("eth0", eth0, PUBLIC[1], Here),
        ("eth0", eth0, VPN, Dropped),
        ("eth0", eth0, MEMBER, Dropped),
        ("eth0", eth0, GATEWAY, Dropped),
        ("eth0", eth0, PODS[0], Dropped),
        ("eth1", eth1, PODS[0], Dropped),
        ("eth0", eth0, NO_POD, Dropped),
        ("eth0", eth0, OTHERS_POD, Dropped),
        ("eth0", eth0, eth1, Dropped),
        ("eth1", eth1, eth0, Dropped),
        ("eth1", eth1, FAR, Dropped),
        ("eth0", eth0, FAR, Dropped),
        // With somebody else's address.
        ("eth0", PODS[0], PUBLIC[0], Dropped),
        ("eth0", NO_POD, PUBLIC[0], Dropped),
        ("eth0", MEMBER, PUBLIC[0], Dropped),
        ("eth1", FAR, PUBLIC[1], Dropped),
        // From members: the machine, and pods.
        ("wg0", MEMBER, VPN, Here),
        ("wg0", OTHERS_POD, PODS[0], Out("veth0")),
        ("wg0", MEMBER, PODS[0], Out("veth0")),
        ("wg0", OTHERS_POD, VPN, Here),
        ("wg0", MEMBER, eth0, Dropped),
        ("wg0", MEMBER, eth1, Dropped),
        ("wg0", MEMBER, FAR, Dropped),
        ("wg0", MEMBER, "10.118.0.3", Dropped),
        ("wg0", OTHERS_POD, FAR, Dropped),
        // From pods: pods, members, and what is outside.
        ("veth0", PODS[0], PODS[1], Out("veth1")),
        ("veth0", PODS[0], OTHERS_POD, Out("wg0")),
        ("veth0", PODS[0], GATEWAY, Here),
        ("veth0", PODS[0], PUBLIC[0], Here),
        ("veth0", PODS[0], VPN, Here),
        ("veth0", PODS[0], MEMBER, Out("wg0")),
        ("veth0", PODS[0], eth0, Out("eth0")),
        ("veth0", PODS[0], eth1, Out("eth1")),
        ("veth0", PODS[0], FAR, Out("eth0")),
        ("veth0", PODS[1], PUBLIC[0], Dropped),
        ("veth0", PODS[0], NO_POD, Refused),
        // The machine itself.
        ("lo", PUBLIC[0], eth0, Out("eth0")),
        ("lo", PUBLIC[0], FAR, Out("eth0")),
        ("lo", VPN, VPN, Here),
        ("lo", VPN, MEMBER, Out("wg0")),
        ("lo", VPN, OTHERS_POD, Out("wg0")),
        ("lo", GATEWAY, PODS[1], Out("veth1")),
        ("lo", GATEWAY, OTHERS_POD, Out("wg0")),
    ] {
        let ended = way(&rules, link, (source, to), PacketKind::Tcp(7836));
        assert_eq!(ended, end, "{source} to {to}, in by {link}");
    }
    // Said by the route, not by a rule: who waits for a pod that has ended is told at once.
    assert_eq!(routed(&rules, ("lo", 0), GATEWAY, NO_POD), Refused);
    assert_eq!(way(&rules, "wg0", (OTHERS_POD, NO_POD), PacketKind::Tcp(80)), Refused);
    // What answers a pod is translated back before it is routed.
    assert_eq!(routed(&rules, ("eth0", ROUTED), FAR, PODS[0]), Out("veth0"));
    // What answers the machine's own question to a pod.
    assert_eq!(way(&rules, "wg0", (OTHERS_POD, VPN), PacketKind::Answer), Here);
    assert_eq!(way(&rules, "veth0", (PODS[0], VPN), PacketKind::Answer), Here);
}

/// Were there no filter, or one that marks nothing, no uplink would lead inside.
///
/// Proves: A7
#[test]
fn what_is_not_marked_reaches_no_more_than_before() {
    let rules = rules();
    for (link, source, to, end) in [
        ("eth0", FAR, PUBLIC[0], Here),
        ("eth0", NEIGHBOUR[0], VPN, Dropped),
        ("eth0", NEIGHBOUR[0], MEMBER, Dropped),
        ("eth0", NEIGHBOUR[0], GATEWAY, Dropped),
        ("eth0", NEIGHBOUR[0], PODS[0], Dropped),
        ("eth0", NEIGHBOUR[0], OTHERS_POD, Dropped),
        ("eth0", NEIGHBOUR[0], NEIGHBOUR[1], Dropped),
        ("eth0", PODS[0], PUBLIC[0], Dropped),
        ("veth0", PODS[0], PODS[1], Out("veth1")),
        ("veth0", PODS[0], VPN, Dropped),
        ("veth0", PODS[0], MEMBER, Dropped),
        ("veth0", PODS[0], FAR, Dropped),
        ("wg0", MEMBER, FAR, Dropped),
    ] {
        assert_eq!(routed(&rules, (link, 0), source, to), end, "{source} to {to}, in by {link}");
    }
}

/// The kernel's own rules behind ours are not asked, whatever links there are.
#[test]
fn the_last_rule_is_for_everything_and_denies() {
    for uplinks in [&[][..], &UPLINKS[..]] {
        let unknown = table(None, uplinks.iter().copied());
        assert!(unknown.iter().all(|rule| rule.to.is_none()), "a machine that knows no cluster keeps nothing for one");
        assert_eq!(unknown.last(), Some(&DENIES));
        let rules = table(Some(Prefixes::of(VPN_PREFIX)), uplinks.iter().copied());
        let last = rules.last().expect("there are rules");
        assert_eq!((last.from, last.to, last.is_marked, last.action), (None, None, false, Action::Blackhole));
        assert!(rules.is_sorted_by_key(|rule| rule.priority), "the kernel asks them in this order");
        let denied = rules.iter().filter(|rule| rule.to == Some(POD_PREFIX) && rule.action == Action::Blackhole);
        assert_eq!(denied.filter_map(|rule| rule.from).collect::<Vec<_>>(), uplinks);
    }
}

/// Proves: A7
#[test]
fn rules_go_by_the_prefixes_of_the_cluster() {
    let [vpn, pods] = ["10.7.0.0/16", "10.32.0.0/16"].map(|text| text.parse::<Ipv4Prefix>().expect("a prefix"));
    let cluster = Prefixes { vpn, pods, ..Prefixes::of(VPN_PREFIX) };
    let (before, after) = (rules(), table(Some(cluster), UPLINKS));
    let but_prefixes = |rules: &[Rule<'static>]| {
        let name = |rule: &Rule<'static>| (rule.priority, rule.from, rule.is_marked, rule.to.is_some(), rule.action);
        rules.iter().map(name).collect::<Vec<_>>()
    };
    assert_eq!(but_prefixes(&before), but_prefixes(&after));
    let named: Vec<_> = after.iter().filter_map(|rule| rule.to).collect();
    assert_eq!(named, [vpn, pods, pods, pods]);
    // What changes is found in the kernel by all that it says: nothing else is deleted.
    let messages = before.iter().chain(&after).map(Rule::message);
    let told: Vec<_> = messages.map(|message| (message.header.dst_len, message.attributes)).collect();
    let changed = before.iter().filter(|rule| !after.contains(rule)).map(Rule::message);
    for message in changed {
        let same = told.iter().filter(|told| **told == (message.header.dst_len, message.attributes.clone()));
        assert_eq!(same.count(), 1, "{message:?}");
    }
    let [denies, unreachable] = [18, 13].map(|priority| before.iter().find(|rule| rule.priority == priority));
    let header = |rule: Option<&Rule<'_>>| rule.map(|rule| rule.message().header).expect("there is one");
    assert_eq!((header(denies).action, header(denies).dst_len), (RuleAction::Blackhole, 16));
    assert_eq!((header(unreachable).action, header(unreachable).dst_len), (RuleAction::Unreachable, 0));
}

/// The same priority twice is two rules; a rule that drops what an earlier one lets pass says why it is there.
#[test]
fn each_rule_does_something() {
    let all = rules();
    for left_out in 0..all.len() {
        let mut rules = all.clone();
        let rule = rules.remove(left_out);
        let flows = [
            ("lo", VPN, VPN),
            ("lo", VPN, MEMBER),
            ("wg0", MEMBER, VPN),
            ("eth0", NEIGHBOUR[0], VPN),
            ("eth0", NEIGHBOUR[0], GATEWAY),
            ("eth1", NEIGHBOUR[1], GATEWAY),
            ("eth0", NEIGHBOUR[0], PUBLIC[0]),
            ("veth0", PODS[0], PODS[1]),
            ("eth0", NEIGHBOUR[0], NEIGHBOUR[1]),
            ("veth0", PODS[0], FAR),
            ("veth0", PODS[0], VPN),
        ];
        let ends = |rules: &[Rule<'_>]| {
            [0, ROUTED].map(|mark| flows.map(|(link, _, to)| followed(rules, (link, mark), address(to))))
        };
        let told = rule.action == Action::Unreachable;
        assert!(told || ends(&rules) != ends(&all), "nothing changes without {rule:?}");
    }
}

/// As [`lookup`], with the kernel's own rule for the main table behind ours.
fn followed(rules: &[Rule<'_>], from: (&str, u32), to: Ipv4Addr) -> End {
    let kernels = Rule { priority: 32_766, action: Action::Lookup(TABLE_MAIN), because: "the kernel's", ..KERNELS };
    lookup(&[rules, &[kernels]].concat(), from, to)
}
