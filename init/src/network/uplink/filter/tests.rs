//! The table as the kernel follows it, read from its text, over packets of every kind. Cases on machines show that the kernel does.

use std::net::Ipv4Addr;

use model::{ClusterRole, Ipv4Prefix, KubernetesRole, VPN_PREFIX};

use super::*;

/// Packet, as far as the table looks at it.
#[derive(Debug, Clone, Copy)]
pub(in super::super) struct Packet<'a> {
    /// Link that it comes in by.
    pub(in super::super) link: &'a str,
    pub(in super::super) source: Ipv4Addr,
    pub(in super::super) to: Ipv4Addr,
    pub(in super::super) kind: PacketKind,
    /// Whether an address of the machine is its destination.
    pub(in super::super) is_local: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum PacketKind {
    /// First of a connection.
    Tcp(u16),
    Udp(u16),
    Echo,
    /// Packet of a connection that began here.
    Answer,
    /// Packet to this port of a connection that is there, and began where the packet comes from.
    Goes(u16),
}

/// Verdict of a chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum Fate {
    /// Goes on, with this mark.
    Passes(u32),
    Dropped,
    Refused,
    Untracked,
    /// Goes on to another address and port.
    Translated,
    /// Goes on to where it was to go, and is led nowhere else.
    Stays,
}

/// Fate of a packet in a base chain whose policy is `policy`.
pub(in super::super) fn fate(text: &str, chain: &str, policy: Fate, packet: Packet<'_>) -> Fate {
    let mut mark = 0;
    match walk(text, chain, packet, &mut mark).unwrap_or(policy) {
        Fate::Passes(_) => Fate::Passes(mark),
        ended @ (Fate::Dropped | Fate::Refused | Fate::Untracked | Fate::Translated | Fate::Stays) => ended,
    }
}

fn walk(text: &str, chain: &str, packet: Packet<'_>, mark: &mut u32) -> Option<Fate> {
    let beginning = format!("add rule inet cairn {chain} ");
    text.lines().filter_map(|line| line.strip_prefix(&beginning)).find_map(|rule| obey(text, rule, packet, mark))
}

/// Verdict of a rule; none where it does not concern the packet, or says nothing of its fate.
fn obey(text: &str, rule: &str, packet: Packet<'_>, mark: &mut u32) -> Option<Fate> {
    let mut rest = rule.trim();
    while !rest.is_empty() {
        let (statement, behind) = statement(rest);
        rest = behind.trim();
        let words: Vec<&str> = statement.split(' ').collect();
        let concerns = match words[..] {
            ["iifname", ref links @ ..] => is_among(links, |link| match link.strip_suffix('*') {
                Some(beginning) => packet.link.starts_with(beginning),
                None => packet.link == link,
            }),
            ["meta", "nfproto", "ipv6"] => false,
            ["ip", "saddr", "!=", prefix] => !is_within(packet.source, prefix),
            ["ip", "saddr", ref prefixes @ ..] => is_among(prefixes, |prefix| is_within(packet.source, prefix)),
            ["ip", "daddr", "!=", prefix] => !is_within(packet.to, prefix),
            ["ip", "daddr", ref prefixes @ ..] => is_among(prefixes, |prefix| is_within(packet.to, prefix)),
            ["fib", "daddr", "type", "local"] => packet.is_local,
            ["ct", "state", "established,related"] => matches!(packet.kind, PacketKind::Answer | PacketKind::Goes(_)),
            ["ct", "direction", "reply"] => packet.kind == PacketKind::Answer,
            ["ct", "direction", "original"] => packet.kind != PacketKind::Answer,
            ["tcp", "dport", ref ports @ ..] => is_among(ports, |port| {
                [PacketKind::Tcp, PacketKind::Goes].iter().any(|of| packet.kind == of(number(port)))
            }),
            ["udp", "dport", port] => packet.kind == PacketKind::Udp(number(port)),
            ["icmp", "type", ref kinds @ ..] => {
                packet.kind == PacketKind::Echo && is_among(kinds, |kind| kind == "echo-request")
            }
            ["meta", "mark", "set", "mark", "or", bit] => {
                *mark |= u32::from(number(bit));
                true
            }
            ["jump", chain] => return walk(text, chain, packet, mark),
            ["accept"] => return Some(Fate::Passes(*mark)),
            ["drop"] => return Some(Fate::Dropped),
            ["reject"] => return Some(Fate::Refused),
            ["notrack"] => return Some(Fate::Untracked),
            ["dnat", "ip", "to", "ip", "daddr"] => return Some(Fate::Stays),
            ["dnat", "ip", "to", "10.244.0.1:6443" | "10.244.0.1:53" | "127.0.0.1:7837"] => {
                return Some(Fate::Translated);
            }
            _ => panic!("`{statement}` of `{rule}` is not known here"),
        };
        if !concerns {
            return None;
        }
    }
    None
}

/// The first statement of a rule, and what stands behind it.
fn statement(rule: &str) -> (&str, &str) {
    let words = rule.split(' ').take_while(|word| *word != "{").count();
    let is_verdict = |word: &&str| ["accept", "drop", "reject", "notrack", "jump"].contains(word);
    let wanted = match rule.split(' ').collect::<Vec<_>>()[..] {
        [word, ..] if word != "jump" && is_verdict(&word) => 1,
        ["iifname", "{", ..] | [_, _, "{", ..] => rule[..=rule.find('}').expect("a list ends")].split(' ').count(),
        ["jump" | "iifname", ..] => 2,
        ["meta", "mark", ..] => 6,
        ["dnat", _, _, "ip", ..] => 5,
        ["fib" | "dnat", ..] | ["ip", _, "!=", ..] => 4,
        _ => 3.min(words),
    };
    let end = rule.match_indices(' ').nth(wanted - 1).map_or(rule.len(), |(place, _)| place);
    rule.split_at(end)
}

fn is_among(listed: &[&str], is_one: impl Fn(&str) -> bool) -> bool {
    listed.iter().map(|word| word.trim_end_matches(',')).filter(|word| !["{", "}"].contains(word)).any(is_one)
}

fn is_within(address: Ipv4Addr, prefix: &str) -> bool {
    match prefix.parse::<Ipv4Prefix>() {
        Ok(prefix) => prefix.contains(address),
        Err(_) => prefix.parse() == Ok(address),
    }
}

fn number(text: &str) -> u16 {
    text.parse().expect("a number")
}

/// Assignment of a node; one with pods is a worker.
fn assignment(pods: Option<Ipv4Prefix>) -> Assignment {
    let roles = pods.map(|_| KubernetesRole::Worker).into_iter().collect();
    Assignment::new(Ipv4Addr::new(10, 118, 0, 1), ClusterRole::Node, roles, pods).expect("they fit")
}

fn filter(uplinks: &[&str], assignment: Option<&Assignment>) -> String {
    publishing(uplinks, assignment, &[])
}

fn publishing(uplinks: &[&str], assignment: Option<&Assignment>, published: &[OpenPort]) -> String {
    Filter { uplinks: uplinks.to_vec(), prefixes: Some(Prefixes::of(VPN_PREFIX)), assignment, published }.text()
}

/// Ports 80/tcp, from anywhere, and 443/tcp and 53/udp, from two prefixes; 8443/tcp, for services alone.
fn published() -> Vec<OpenPort> {
    let from = ["192.0.2.0/24", "203.0.113.7/32"].map(|prefix| prefix.parse().expect("a prefix"));
    let open =
        |port: &str, sources| OpenPort { port: port.parse().expect("a port"), address: None, sources, services: false };
    let for_services = OpenPort { services: true, ..open("8443/tcp", [].into()) };
    vec![open("53/udp", from.into()), open("80/tcp", [].into()), open("443/tcp", from.into()), for_services]
}

const UPLINKS: [&str; 2] = ["eth0", "eth1"];

/// Text of a worker with two uplinks.
pub(in super::super) fn of_worker() -> String {
    filter(&UPLINKS, Some(&assignment(Some(model::pod_prefix(0)))))
}

fn address(text: &str) -> Ipv4Addr {
    text.parse().expect("an address")
}

const LOCAL: [&str; 4] = ["192.0.2.10", "10.118.0.1", "10.244.0.1", "127.0.0.1"];

fn packet<'a>((link, source, to): (&'a str, &str, &str), kind: PacketKind) -> Packet<'a> {
    Packet { link, source: address(source), to: address(to), kind, is_local: LOCAL.contains(&to) }
}

/// Text is understood as it stands, whatever the machine has.
#[test]
fn every_filter_is_a_text_of_nftables() {
    let node = assignment(None);
    let worker = assignment(Some(model::pod_prefix(0)));
    let publishes = publishing(&UPLINKS, Some(&worker), &published());
    let others = [filter(&UPLINKS, Some(&node)), filter(&UPLINKS, None), filter(&[], Some(&worker))];
    for text in [of_worker(), publishes].into_iter().chain(others) {
        let read = nft::Transaction::parse(&text).and_then(|text| text.batch(&nft::KernelSets::new()));
        assert!(read.is_ok(), "{read:?} of\n{text}");
    }
}

/// Proves: A7
#[test]
fn by_an_uplink_comes_in_what_is_open_to_everybody() {
    let text = of_worker();
    let comes = |to, kind| fate(&text, "prerouting", Fate::Dropped, packet(("eth0", "203.0.113.1", to), kind));
    for kind in [PacketKind::Tcp(7836), PacketKind::Udp(7838), PacketKind::Echo, PacketKind::Answer] {
        assert_eq!(comes("192.0.2.10", kind), Fate::Passes(ROUTED), "{kind:?}");
        // Whatever stands behind the machine, and whoever routes it here.
        for to in ["10.118.0.1", "10.118.0.2", "10.244.0.2", "10.244.0.1", "10.96.0.1", "127.0.0.1", "192.0.2.77"] {
            assert_eq!(comes(to, kind), Fate::Dropped, "{kind:?} to {to}");
        }
        for source in ["10.118.0.2", "10.244.1.2", "10.96.0.1"] {
            let spoofed = packet(("eth1", source, "192.0.2.10"), kind);
            assert_eq!(fate(&text, "prerouting", Fate::Dropped, spoofed), Fate::Dropped, "{kind:?} from {source}");
        }
        let other_link = packet(("dummy0", "203.0.113.1", "192.0.2.10"), kind);
        assert_eq!(fate(&text, "prerouting", Fate::Dropped, other_link), Fate::Dropped, "{kind:?}");
    }
    for kind in [22, 80, 2379, 6443, 7834, 7835, 10250, 30_000].map(PacketKind::Tcp) {
        assert_eq!(comes("192.0.2.10", kind), Fate::Dropped, "{kind:?}");
    }
    assert_eq!(comes("192.0.2.10", PacketKind::Udp(53)), Fate::Dropped);
}

/// Proves: A7 H3
#[test]
fn a_machine_that_knows_no_cluster_opens_no_more_than_a_member() {
    let text = Filter { uplinks: UPLINKS.to_vec(), prefixes: None, assignment: None, published: &[] }.text();
    let read = nft::Transaction::parse(&text).and_then(|text| text.batch(&nft::KernelSets::new()));
    assert!(read.is_ok(), "{read:?} of\n{text}");
    let comes = |source, to, kind| fate(&text, "prerouting", Fate::Dropped, packet(("eth0", source, to), kind));
    for kind in [PacketKind::Tcp(7836), PacketKind::Udp(7838), PacketKind::Echo, PacketKind::Answer] {
        // Somebody's own network may have addresses that are usual for pods.
        for source in ["203.0.113.1", "10.244.1.2"] {
            assert_eq!(comes(source, "192.0.2.10", kind), Fate::Passes(ROUTED), "{kind:?} from {source}");
        }
        for to in ["10.244.0.2", "127.0.0.1", "192.0.2.77"] {
            assert_eq!(comes("203.0.113.1", to, kind), Fate::Dropped, "{kind:?} to {to}");
        }
    }
    for kind in [22, 80, 2379, 6443, 7834, 7835, 10250].map(PacketKind::Tcp) {
        assert_eq!(comes("203.0.113.1", "192.0.2.10", kind), Fate::Dropped, "{kind:?}");
    }
}

/// Proves: A7
#[test]
fn what_is_published_answers_from_its_sources_alone() {
    let worker = assignment(Some(model::pod_prefix(0)));
    let text = publishing(&UPLINKS, Some(&worker), &published());
    let comes = |link, source, to, kind| fate(&text, "prerouting", Fate::Dropped, packet((link, source, to), kind));
    let at = "192.0.2.10";
    for (source, port, passes) in [
        ("198.51.100.1", PacketKind::Tcp(80), true),
        ("203.0.113.7", PacketKind::Tcp(443), true),
        ("192.0.2.9", PacketKind::Udp(53), true),
        ("203.0.113.8", PacketKind::Tcp(443), false),
        ("198.51.100.1", PacketKind::Udp(53), false),
        ("203.0.113.7", PacketKind::Tcp(53), false),
        ("203.0.113.7", PacketKind::Udp(80), false),
        ("203.0.113.7", PacketKind::Tcp(8080), false),
    ] {
        let expected = if passes { Fate::Passes(ROUTED) } else { Fate::Dropped };
        assert_eq!(UPLINKS.map(|link| comes(link, source, at, port)), [expected; 2], "{source}: {port:?}");
        // Neither to what is behind the machine, nor as one of its own.
        for to in ["10.118.0.1", "10.118.0.2", "10.244.0.2", "10.244.0.1", "10.96.0.1", "127.0.0.1", "192.0.2.77"] {
            assert_eq!(comes("eth0", source, to, port), Fate::Dropped, "{port:?} to {to}");
        }
        for spoofed in ["10.118.0.2", "10.244.1.2", "10.96.0.1"] {
            assert_eq!(comes("eth0", spoofed, at, port), Fate::Dropped, "{port:?} from {spoofed}");
        }
        assert_eq!(comes("dummy0", source, at, port), Fate::Dropped, "{port:?} by another link");
    }
    for kind in [PacketKind::Tcp(7836), PacketKind::Udp(7838), PacketKind::Echo, PacketKind::Answer] {
        assert_eq!(comes("eth0", "198.51.100.1", at, kind), Fate::Passes(ROUTED), "{kind:?}");
    }
}

/// Proves: A7
#[test]
fn a_port_that_is_closed_is_closed_to_who_is_there() {
    let worker = assignment(Some(model::pod_prefix(0)));
    let goes = |text: &str, source| {
        fate(text, "prerouting", Fate::Dropped, packet(("eth0", source, "192.0.2.10"), PacketKind::Goes(443)))
    };
    let open = publishing(&UPLINKS, Some(&worker), &published());
    assert_eq!(goes(&open, "192.0.2.9"), Fate::Passes(ROUTED));
    assert_eq!(goes(&open, "198.51.100.1"), Fate::Dropped, "its source was taken from the rule");
    assert_eq!(goes(&of_worker(), "192.0.2.9"), Fate::Dropped, "the rule is gone");
}

/// Proves: A7 W8
#[test]
fn a_port_of_a_floating_address_is_open_there_alone() {
    let worker = assignment(Some(model::pod_prefix(0)));
    let comes = |address: Ipv4Addr| {
        let port = "443/tcp".parse().expect("a port");
        let open = OpenPort { port, address: Some(address), sources: [].into(), services: true };
        let text = publishing(&UPLINKS, Some(&worker), &[open]);
        let knocks = packet(("eth0", "198.51.100.1", "192.0.2.10"), PacketKind::Tcp(443));
        fate(&text, "prerouting", Fate::Dropped, knocks)
    };
    assert_eq!(comes(address("192.0.2.10")), Fate::Passes(ROUTED));
    assert_eq!(comes(address("192.0.2.50")), Fate::Dropped, "the machine's own address is another");
}

/// Proves: A7
#[test]
fn a_published_service_leads_to_no_port_of_ours() {
    let text = of_worker();
    let led = |chain, to, port| {
        let way = ("eth0", "198.51.100.1", to);
        fate(&text, chain, Fate::Passes(0), packet(way, PacketKind::Tcp(port)))
    };
    for port in CLOSED_TO_PODS {
        assert_eq!(led("input", "10.118.0.1", port), Fate::Refused, "{port}");
        assert_eq!(led("forward", "10.118.0.2", port), Fate::Refused, "{port}");
    }
    for port in [DNS, KUBERNETES_API_PORT, 80] {
        assert_eq!(led("input", "10.244.0.1", port), Fate::Refused, "{port}: for the machine's pods alone");
    }
    assert_eq!(led("input", "10.118.0.1", 8080), Fate::Passes(0), "a pod in the machine's network");
    assert_eq!(led("forward", "10.244.0.2", 8080), Fate::Passes(0), "a pod");
}

/// Programs that listen on the machine do not answer there: a packet that a service has is for a pod's address by then.
///
/// Proves: A7 W8
#[test]
fn a_port_for_services_leads_to_none_of_the_machine() {
    let worker = assignment(Some(model::pod_prefix(0)));
    let text = publishing(&UPLINKS, Some(&worker), &published());
    let comes = |chain, to, port| {
        fate(&text, chain, Fate::Passes(0), packet(("eth0", "198.51.100.1", to), PacketKind::Tcp(port)))
    };
    assert_eq!(comes("prerouting", "192.0.2.10", 8443), Fate::Passes(ROUTED));
    assert_eq!(comes("input", "192.0.2.10", 8443), Fate::Dropped);
    assert_eq!(comes("input", "192.0.2.10", 80), Fate::Passes(0), "that one is for the machine's own");
    assert_eq!(
        comes("input", "10.118.0.1", 8443),
        Fate::Passes(0),
        "a service led it to a pod in the machine's network"
    );
    assert_eq!(comes("forward", "10.244.0.2", 8443), Fate::Passes(0), "and to a pod");
    let by = |link, kind| fate(&text, "input", Fate::Passes(0), packet((link, "198.51.100.1", "192.0.2.10"), kind));
    assert_eq!(by("veth0", PacketKind::Tcp(8443)), Fate::Passes(0), "it is no uplink's");
    assert_eq!(by("eth0", PacketKind::Answer), Fate::Passes(0), "what the machine asked itself");
}

/// Proves: A7
#[test]
fn what_strangers_may_send_is_not_tracked() {
    let text = of_worker();
    for kind in [PacketKind::Tcp(7836), PacketKind::Udp(7838), PacketKind::Echo] {
        let comes = |link| fate(&text, "untracked", Fate::Passes(0), packet((link, "203.0.113.1", "192.0.2.10"), kind));
        assert_eq!([comes("eth0"), comes("eth1")], [Fate::Untracked; 2], "{kind:?}");
        assert_eq!([comes("veth0"), comes("wg0")], [Fate::Passes(0); 2], "{kind:?}");
    }
}

/// Proves: A7
#[test]
fn a_pod_reaches_no_port_of_ours_at_any_machine() {
    let text = of_worker();
    for port in [2379, 6443, 7834, 7835] {
        let asked = |chain, way| fate(&text, chain, Fate::Passes(0), packet(way, PacketKind::Tcp(port)));
        for way in [("veth0", "10.244.0.2", "10.118.0.1"), ("wg0", "10.244.1.2", "10.118.0.1")] {
            assert_eq!(asked("input", way), Fate::Refused, "{port}: {way:?}");
        }
        // On to another machine, also what a third machine translates and passes on.
        for way in [("veth0", "10.244.0.2", "10.118.0.2"), ("wg0", "10.244.1.2", "10.118.0.2")] {
            assert_eq!(asked("forward", way), Fate::Refused, "{port}: {way:?}");
        }
        assert_eq!(asked("input", ("wg0", "10.118.0.2", "10.118.0.1")), Fate::Passes(0), "a member may");
        assert_eq!(asked("forward", ("veth0", "10.244.0.2", "10.96.0.1")), Fate::Refused, "nobody translates it");
    }
    let kubelet = packet(("veth0", "10.244.0.2", "10.118.0.1"), PacketKind::Tcp(10_250));
    assert_eq!(fate(&text, "input", Fate::Passes(0), kubelet), Fate::Passes(0), "it asks who calls");
}

/// Proves: A7
#[test]
fn a_pod_speaks_for_itself_alone_and_to_no_metadata() {
    let text = of_worker();
    let sends =
        |source, to| fate(&text, "prerouting", Fate::Dropped, packet(("veth0", source, to), PacketKind::Tcp(80)));
    for to in ["10.244.0.3", "10.244.1.2", "203.0.113.1", "10.118.0.2", "10.244.0.1"] {
        assert_eq!(sends("10.244.0.2", to), Fate::Passes(ROUTED), "{to}");
        for source in ["10.244.1.2", "10.118.0.1", "203.0.113.1"] {
            assert_eq!(sends(source, to), Fate::Dropped, "{source} to {to}");
        }
    }
    for to in ["127.0.0.1", "169.254.169.254", "224.0.0.1", "255.255.255.255"] {
        assert_eq!(sends("10.244.0.2", to), Fate::Dropped, "{to}");
    }
}

/// Proves: A7 Q3
#[test]
fn only_a_control_planes_own_programs_are_led_to_its_metrics() {
    let of = |roles: &[KubernetesRole]| {
        filter(&UPLINKS, Some(&Assignment::first(&Prefixes::of(VPN_PREFIX), roles.iter().copied().collect())))
    };
    let (all, worker) = (of(&[KubernetesRole::ControlPlane, KubernetesRole::Worker]), of(&[KubernetesRole::Worker]));
    let to_metrics =
        |text, chain, link, kind| fate(text, chain, Fate::Passes(0), packet((link, "10.118.0.1", "10.96.0.11"), kind));
    let (https, other) = (PacketKind::Tcp(443), PacketKind::Tcp(7837));
    assert_eq!(to_metrics(&all, "services-own", "lo", https), Fate::Translated);
    assert_eq!(to_metrics(&all, "services-own", "lo", other), Fate::Passes(0));
    assert_eq!(to_metrics(&worker, "services-own", "lo", https), Fate::Passes(0));
    for link in ["veth0", "wg0", "eth0"] {
        assert_eq!(to_metrics(&all, "services", link, https), Fate::Passes(0), "{link}");
    }
}

/// Proves: A7 W2
#[test]
fn a_pod_reaches_the_resolver_of_its_machine_alone() {
    let text = of_worker();
    let to_service =
        |chain, link, to, kind| fate(&text, chain, Fate::Passes(0), packet((link, "10.244.0.2", to), kind));
    let (udp, tcp) = (PacketKind::Udp(53), PacketKind::Tcp(53));
    for kind in [udp, tcp] {
        assert_eq!(to_service("services", "veth0", "10.96.0.10", kind), Fate::Translated, "{kind:?}");
        assert_eq!(to_service("services-own", "lo", "10.96.0.10", kind), Fate::Translated, "{kind:?}");
    }
    for (link, to, kind) in [
        ("wg0", "10.96.0.10", udp),
        ("eth0", "10.96.0.10", udp),
        ("veth0", "10.96.0.11", udp),
        ("veth0", "10.96.0.10", PacketKind::Udp(54)),
        ("veth0", "10.96.0.10", PacketKind::Tcp(443)),
    ] {
        assert_eq!(to_service("services", link, to, kind), Fate::Passes(0), "{link}: {to}: {kind:?}");
    }
    let comes = |link, source| fate(&text, "prerouting", Fate::Dropped, packet((link, source, "10.244.0.1"), udp));
    assert_eq!(comes("veth0", "10.244.0.2"), Fate::Passes(ROUTED));
    assert_eq!(["10.244.1.2", "10.118.0.2"].map(|source| comes("wg0", source)), [Fate::Dropped; 2]);
}

/// Proves: A7 W2
#[test]
fn no_service_takes_an_address_or_port_of_ours() {
    let text = of_worker();
    let led = |chain, to, is_local, kind| {
        let packet = Packet { is_local, ..packet(("veth0", "10.244.0.2", to), kind) };
        fate(&text, chain, Fate::Passes(0), packet)
    };
    for chain in ["services", "services-own"] {
        for port in CLOSED_TO_PODS {
            assert_eq!(led(chain, "10.118.0.2", false, PacketKind::Tcp(port)), Fate::Stays, "{port}");
        }
        assert_eq!(led(chain, "10.118.0.1", true, PacketKind::Tcp(KUBELET_PORT)), Fate::Stays);
        assert_eq!(led(chain, "192.0.2.9", true, PacketKind::Tcp(PUBLIC_API_PORT)), Fate::Stays);
        assert_eq!(led(chain, "10.244.0.1", true, PacketKind::Udp(DNS)), Fate::Stays);
        // Others' addresses and ports are theirs.
        assert_eq!(led(chain, "192.0.2.9", false, PacketKind::Tcp(PUBLIC_API_PORT)), Fate::Passes(0));
        assert_eq!(led(chain, "10.118.0.2", false, PacketKind::Tcp(30_080)), Fate::Passes(0));
    }
}

/// Proves: A7 W2
#[test]
fn what_calls_loopback_from_loopback_is_led_nowhere_else() {
    let text = of_worker();
    let led = |chain, link, source| {
        let packet = packet((link, source, "127.0.0.1"), PacketKind::Tcp(54_323));
        fate(&text, chain, Fate::Passes(0), Packet { is_local: true, ..packet })
    };
    assert_eq!(led("services-own", "lo", "127.0.0.1"), Fate::Stays);
    assert_eq!(led("services-own", "lo", "10.118.0.1"), Fate::Passes(0), "a pod may have that port");
    for link in ["wg0", "veth0", "eth0"] {
        assert_eq!(led("services", link, "10.118.0.2"), Fate::Stays, "{link}");
    }
}

/// Proves: A7 W1
#[test]
fn a_pod_reaches_the_kubernetes_api_by_its_machine_alone() {
    let text = of_worker();
    let to_service = |link, to, port| {
        fate(&text, "services", Fate::Passes(0), packet((link, "10.244.0.2", to), PacketKind::Tcp(port)))
    };
    assert_eq!(to_service("veth0", "10.96.0.1", 443), Fate::Translated);
    for (link, to, port) in
        [("wg0", "10.96.0.1", 443), ("eth0", "10.96.0.1", 443), ("veth0", "10.96.0.2", 443), ("veth0", "10.96.0.1", 80)]
    {
        assert_eq!(to_service(link, to, port), Fate::Passes(0), "{link}: {to}:{port}");
    }
    let own = packet(("lo", "10.118.0.1", "10.96.0.1"), PacketKind::Tcp(443));
    assert_eq!(fate(&text, "services-own", Fate::Passes(0), own), Fate::Translated);
    let comes =
        |link, source, kind| fate(&text, "prerouting", Fate::Dropped, packet((link, source, "10.244.0.1"), kind));
    assert_eq!(comes("veth0", "10.244.0.2", PacketKind::Tcp(6443)), Fate::Passes(ROUTED));
    for source in ["10.244.1.2", "10.118.0.2"] {
        assert_eq!(comes("wg0", source, PacketKind::Tcp(6443)), Fate::Dropped, "{source}");
    }
    assert_eq!(comes("wg0", "10.244.1.2", PacketKind::Answer), Fate::Passes(ROUTED), "the machine has asked");
}
