//! Messages, read back by the crate that knows the kernel's form; and answers as the kernel gives them.

use std::collections::BTreeSet;

use model::Secret;
use netlink_packet_core::NetlinkPayload;

use super::*;

fn read(bytes: &[u8]) -> (u16, Vec<WireguardAttribute>) {
    let message = NetlinkMessage::<GenlMessage<WireguardMessage>>::deserialize(bytes).expect("well formed");
    assert_eq!(message.header.message_type, 0x1234);
    let NetlinkPayload::InnerMessage(inner) = message.payload else { panic!("a message for WireGuard") };
    (message.header.flags, inner.payload.attributes)
}

/// The kernel's own controller is a family that every kernel has, with the same number.
///
/// Proves: M5
#[test]
fn a_family_is_found_by_its_name_alone() {
    assert_eq!(family("nlctrl").expect("it is there"), 0x10);
    let refused = family("no such one").expect_err("it is not there");
    assert_eq!(refused.raw_os_error(), Some(rustix::io::Errno::NOENT.raw_os_error()));
}

/// The key is where the kernel looks for it.
///
/// Proves: D8
#[test]
fn the_key_is_where_the_kernel_reads_it() {
    let key = VpnPrivKey(Secret::take(&mut [0x7b; 32]));
    let (flags, attributes) = read(&set_device(0x1234, &key));
    assert_eq!(flags, NLM_F_REQUEST | NLM_F_ACK);
    assert!(attributes.contains(&WireguardAttribute::PrivateKey([0x7b; 32])), "{attributes:?}");
    assert!(attributes.contains(&WireguardAttribute::IfName("wg0".to_owned())), "{attributes:?}");
    assert!(attributes.contains(&WireguardAttribute::ListenPort(VPN_PORT)), "{attributes:?}");
    assert!(attributes.contains(&WireguardAttribute::Flags(WireguardDeviceFlags::ReplacePeers)), "{attributes:?}");
    assert_eq!(attributes.len(), 4);
}

fn prefixes(texts: &[&str]) -> BTreeSet<Ipv4Prefix> {
    texts.iter().map(|text| text.parse().expect("a prefix")).collect()
}

/// Proves: M5
#[test]
fn changes_go_in_one_message_in_their_order() {
    let endpoint = "192.0.2.7:7838".parse().expect("an endpoint");
    let (old, new, moved) = (VpnPubKey([1; 32]), VpnPubKey([2; 32]), VpnPubKey([3; 32]));
    let allowed = prefixes(&["10.118.0.7/32", "10.244.7.0/24"]);
    let changes = [
        PeerChange::Remove(old),
        PeerChange::Set { key: new, endpoint: Some(endpoint), allowed },
        PeerChange::Set { key: new, endpoint: None, allowed: prefixes(&["10.118.0.8/32"]) },
        PeerChange::Move { key: moved, endpoint },
    ];
    let (flags, attributes) = read(&set_peers(0x1234, &changes));
    assert_eq!(flags, NLM_F_REQUEST | NLM_F_ACK);
    let [WireguardAttribute::IfName(name), WireguardAttribute::Peers(peers)] = &attributes[..] else {
        panic!("{attributes:?}")
    };
    assert_eq!(name, "wg0");
    use WireguardPeerAttribute::{AllowedIps, Endpoint, Flags, PublicKey};
    let ip = |text: &str| allowed_ip(&text.parse().expect("a prefix"));
    let expected = [
        vec![PublicKey([1; 32]), Flags(WireguardPeerFlags::RemoveMe)],
        vec![
            PublicKey([2; 32]),
            Flags(WireguardPeerFlags::ReplaceAllowedIps),
            Endpoint(endpoint.into()),
            AllowedIps(vec![ip("10.118.0.7/32"), ip("10.244.7.0/24")]),
        ],
        vec![PublicKey([2; 32]), Flags(WireguardPeerFlags::ReplaceAllowedIps), AllowedIps(vec![ip("10.118.0.8/32")])],
        vec![PublicKey([3; 32]), Flags(WireguardPeerFlags::UpdateOnly), Endpoint(endpoint.into())],
    ];
    assert_eq!(peers.iter().map(|peer| peer.0.clone()).collect::<Vec<_>>(), expected);
}

/// A message of a dump: what the kernel says of `wg0`, and of some peers.
fn told(peers: Vec<Vec<WireguardPeerAttribute>>) -> Vec<u8> {
    let attributes = vec![
        WireguardAttribute::ListenPort(VPN_PORT), // two bytes, and two to fill up
        WireguardAttribute::PrivateKey([0x7b; 32]),
        WireguardAttribute::PublicKey([0x7c; 32]),
        WireguardAttribute::IfName("wg0".to_owned()),
        WireguardAttribute::Peers(peers.into_iter().map(WireguardPeer).collect()),
    ];
    request(0x1234, 0, WireguardMessage { cmd: WireguardCmd::GetDevice, attributes }).to_vec()
}

fn done() -> Vec<u8> {
    [&20_u32.to_ne_bytes()[..], &NLMSG_DONE.to_ne_bytes(), &[0; 14]].concat()
}

#[test]
fn a_dump_is_read_to_its_end_and_peers_may_span_messages() {
    use WireguardPeerAttribute::{AllowedIps, Endpoint, LastHandshake, PublicKey, RxBytes, TxBytes};
    let at = |seconds, nano_seconds| LastHandshake(WireguardTimeSpec { seconds, nano_seconds });
    let endpoint = "192.0.2.7:7838".parse().expect("an endpoint");
    let ips = |texts: &[&str]| AllowedIps(prefixes(texts).iter().map(allowed_ip).collect());
    let first = told(vec![
        vec![PublicKey([1; 32]), TxBytes(148), RxBytes(0), at(0, 0)],
        vec![
            PublicKey([2; 32]),
            Endpoint(SocketAddr::V4(endpoint)),
            RxBytes(92),
            TxBytes(300),
            at(7, 9),
            ips(&["10.118.0.7/32"]),
        ],
    ]);
    let second = told(vec![vec![PublicKey([2; 32]), ips(&["10.244.7.0/24"])]]);
    let mut peers = BTreeMap::new();
    assert_eq!(take(&mut [&first[..], &second].concat(), &mut peers).expect("well formed"), Dump::GoesOn);
    assert_eq!(take(&mut done(), &mut peers).expect("well formed"), Dump::Whole);
    let one = FoundPeer {
        endpoint: None,
        allowed: [].into(),
        counters: Counters { sent: 148, received: 0, handshake: None },
    };
    let two = FoundPeer {
        endpoint: Some(endpoint),
        allowed: prefixes(&["10.118.0.7/32", "10.244.7.0/24"]),
        counters: Counters { sent: 300, received: 92, handshake: NonZeroU64::new(7_000_000_009) },
    };
    assert_eq!(peers, BTreeMap::from([(VpnPubKey([1; 32]), one), (VpnPubKey([2; 32]), two)]));
}

#[test]
fn a_dump_that_is_refused_or_cut_is_an_error() {
    let refused = [&36_u32.to_ne_bytes()[..], &NLMSG_ERROR.to_ne_bytes(), &[0; 10], &(-19_i32).to_ne_bytes(), &[0; 16]];
    let error = take(&mut refused.concat(), &mut BTreeMap::new()).expect_err("no such device");
    assert_eq!(error.raw_os_error(), Some(19));
    let whole = told(vec![vec![WireguardPeerAttribute::PublicKey([1; 32])]]);
    for length in [1, 15, 19, 20, whole.len() - 1] {
        assert!(take(&mut whole[..length].to_vec(), &mut BTreeMap::new()).is_err(), "{length} bytes");
    }
}

/// Proves: D8
#[test]
fn the_private_key_of_a_dump_is_wiped_before_anybody_parses_it() {
    let mut told = told(vec![]);
    let count = |bytes: &[u8]| bytes.windows(32).filter(|window| *window == [0x7b; 32]).count();
    assert_eq!(count(&told), 1);
    take(&mut told, &mut BTreeMap::new()).expect("well formed");
    assert_eq!(count(&told), 0);
    assert!(told.windows(32).any(|window| window == [0x7c; 32]), "the public key is still there");
}

#[test]
fn an_answer_is_done_refused_or_none() {
    let answer = |kind: u16, code: i32| {
        let header = [&36_u32.to_ne_bytes()[..], &kind.to_ne_bytes(), &[0; 10]].concat();
        acknowledged(&[&header[..], &code.to_ne_bytes()].concat())
    };
    assert_eq!(answer(2, 0), Some(0));
    assert_eq!(answer(2, -1), Some(1));
    assert_eq!(answer(3, 0), None);
    assert_eq!(acknowledged(&[0; 19]), None);
}

/// The host's kernel has no such family, or refuses who is not root: told as an error, and not waited for.
#[test]
fn the_kernel_answers_what_it_does_not_know() {
    let key = VpnPrivKey(Secret::take(&mut [0x7b; 32]));
    assert!(exchange(&set_device(0x7fff, &key)).is_err());
    assert!(dump(&ask_device(0x7fff)).is_err());
}
