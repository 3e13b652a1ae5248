//! Tables as they are written, and what they do with pods that no part knows.

use super::*;
use crate::address::AddressSet;
use crate::reference::{Connection, is_let_through};

const OUTSIDE: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);

fn own() -> Ipv4Prefix {
    Ipv4Prefix::around(Ipv4Addr::new(10, 244, 1, 0), 24).expect("a prefix")
}

fn address(last: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 244, 1, last)
}

/// Pod 2 hears one port of some addresses, pod 3 everything.
fn part() -> PolicyPart {
    let ports =
        Ports::Of(PortSet::of(vec![(Protocol::Tcp, 80, 80), (Protocol::Tcp, 90, 99), (Protocol::Udp, 0, u16::MAX)]));
    let first = OUTSIDE.to_bits() & !0xff;
    let judged = JudgedPods {
        pods: [
            (address(2), PodChains { ingress: Some(0), egress: None }),
            (address(3), PodChains { ingress: None, egress: None }),
        ]
        .into(),
        chains: vec![vec![Allowed { peers: Peers::Set(0), ports }]],
        sets: vec![AddressSet::of(vec![(first, first + 254)])],
    };
    PolicyPart { judged: Some(judged) }
}

fn passes(text: &str, from: Ipv4Addr, to: Ipv4Addr) -> bool {
    is_let_through(text, Connection { from, to, protocol: Protocol::Tcp, port: 80 })
}

#[test]
fn a_table_is_written_as_a_person_would() {
    let expected = "\
destroy table inet cairn-policy
add table inet cairn-policy
add set inet cairn-policy itself { type ipv4_addr . ipv4_addr ; }
add element inet cairn-policy itself { 10.244.1.2 . 10.244.1.2, 10.244.1.3 . 10.244.1.3 }
add set inet cairn-policy known { type ipv4_addr ; }
add element inet cairn-policy known { 10.244.1.2, 10.244.1.3 }
add map inet cairn-policy egress-pods { type ipv4_addr : verdict ; }
add chain inet cairn-policy egress { type filter hook forward priority 10 ; policy accept ; }
add rule inet cairn-policy egress ct state established,related accept
add rule inet cairn-policy egress ip saddr . ip daddr @itself accept
add rule inet cairn-policy egress ip saddr 10.244.1.0/24 ip saddr != @known drop
add rule inet cairn-policy egress ip saddr vmap @egress-pods
add chain inet cairn-policy ingress-peers-0
add rule inet cairn-policy ingress-peers-0 ip saddr { 192.0.2.0/25, 192.0.2.128/26, 192.0.2.192/27, 192.0.2.224/28, \
192.0.2.240/29, 192.0.2.248/30, 192.0.2.252/31, 192.0.2.254 } accept
add chain inet cairn-policy ingress-0
add rule inet cairn-policy ingress-0 tcp dport { 80, 90-99 } jump ingress-peers-0
add rule inet cairn-policy ingress-0 meta l4proto udp jump ingress-peers-0
add rule inet cairn-policy ingress-0 drop
add map inet cairn-policy ingress-pods { type ipv4_addr : verdict ; }
add element inet cairn-policy ingress-pods { 10.244.1.2 : goto ingress-0 }
add chain inet cairn-policy ingress { type filter hook forward priority 11 ; policy accept ; }
add rule inet cairn-policy ingress ct state established,related accept
add rule inet cairn-policy ingress ip saddr . ip daddr @itself accept
add rule inet cairn-policy ingress ip daddr 10.244.1.0/24 ip daddr != @known drop
add rule inet cairn-policy ingress ip daddr vmap @ingress-pods
";
    assert_eq!(written(&part(), own()), expected);
    assert_eq!(written(&PolicyPart::default(), own()), "destroy table inet cairn-policy\n");
}

/// Proves: W2
#[test]
fn a_pod_that_no_part_knows_gets_no_new_connection() {
    let text = written(&part(), own());
    assert!(passes(&text, address(3), OUTSIDE) && passes(&text, OUTSIDE, address(3)));
    assert!(passes(&text, OUTSIDE, address(2)) && !passes(&text, address(3), address(2)));
    assert!(!passes(&text, address(4), OUTSIDE) && !passes(&text, OUTSIDE, address(4)));
    assert!(!passes(&text, address(4), address(3)) && !passes(&text, address(3), address(4)));
}

/// Proves: W2
#[test]
fn before_a_part_is_heard_all_pods_are_closed() {
    let text = unheard(own());
    assert!(!passes(&text, address(3), OUTSIDE) && !passes(&text, OUTSIDE, address(3)));
    assert!(passes(&text, OUTSIDE, Ipv4Addr::new(10, 118, 0, 2)), "other packets are no policy's business");
    let read = nft::Transaction::parse(&text).expect("nftables' language");
    assert!(read.batch(&nft::KernelSets::new()).is_ok());
}
