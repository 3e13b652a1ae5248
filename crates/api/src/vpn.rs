//! Requests of a cluster's machines to its coordinators over the VPN: announcements, and news of the other machines.
//! Bounded: no coordinator makes a machine hold more than [`MOST_NEWS_PEERS`] of them.

use std::collections::BTreeMap;

use cluster::Word;
use cluster::desired::Desired;
use cluster::peer::Peer;
use cluster::peers::News;
use cluster::record::Release;
use cluster::state::StateVersion;
use keys::coordinator::CoordinatorKeys;
use keys::endpoint::Endpoint;
use keys::recovery::is_usable_x25519;
use model::{Ipv4Prefix, MachineId, VpnPubKey};
use prost::Message as _;
use zeroize::Zeroizing;

use crate::field_error::{fixed, present};
use crate::{FieldError, Problem, wire};

/// Most machines that one answer tells of. A machine that knows nobody is told of all at once, so a cluster larger than
/// this would tell it nothing.
pub const MOST_NEWS_PEERS: usize = 16_384;
/// Room for so many with all their endpoints.
pub const MOST_NEWS_BYTES: usize = 4 << 20;

/// Announcement of a machine to its coordinators.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Presence {
    /// Release that the machine runs.
    pub release: Release,
    /// Where its WireGuard may be reached.
    pub endpoints: Vec<Endpoint>,
    /// Which cluster key its disk is locked with.
    pub key_generation: u32,
    /// Epoch of the cold-start key that the machine holds a share of, where it cannot say so in the records itself.
    pub epoch: Option<u32>,
}

/// Most certificates that one call asks for.
const MOST_CERTIFICATES: usize = 8;
/// Bytes of the longest request: one for a P-256 key has 200.
const MOST_REQUEST_BYTES: usize = 1024;

/// Certificate that a Kubernetes worker has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum WorkerCertificate {
    /// The kubelet's as a client of the Kubernetes API.
    KubeletClient,
    /// The kubelet's as a server.
    KubeletServer,
    /// The resolver's as a client of the Kubernetes API.
    DnsClient,
    /// The service proxy's as a client of the Kubernetes API.
    ProxyClient,
}

/// Requests of a worker for certificates, each with a PKCS #10 request in DER.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateRequests(pub Vec<(WorkerCertificate, Vec<u8>)>);

/// Certificates that a worker was given, in DER.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkerCertificates {
    /// Certificate of Kubernetes' authority.
    pub authority: Vec<u8>,
    /// Certificates in the order of the requests.
    pub certificates: Vec<Vec<u8>>,
}

/// Keys that make a coordinator of a machine.
#[derive(Debug)]
pub struct HandedOver {
    /// Keys of a coordinator.
    pub keys: CoordinatorKeys,
}

impl From<Presence> for wire::AnnounceRequest {
    fn from(announced: Presence) -> Self {
        let Presence { release, endpoints, key_generation, epoch } = announced;
        Self { release: release.to_string(), endpoints: keys::endpoint::texts(&endpoints), key_generation, epoch }
    }
}

impl TryFrom<wire::AnnounceRequest> for Presence {
    type Error = FieldError;

    fn try_from(request: wire::AnnounceRequest) -> Result<Self, FieldError> {
        let release = Release::read(&request.release);
        Ok(Self {
            release: release.map_err(|_| FieldError::new("release", Problem::Unusable))?,
            endpoints: endpoints(&request.endpoints)?,
            key_generation: request.key_generation,
            epoch: request.epoch,
        })
    }
}

impl From<StateVersion> for wire::StateVersion {
    fn from(StateVersion { recoveries, revision }: StateVersion) -> Self {
        Self { recoveries, revision }
    }
}

impl From<wire::StateVersion> for StateVersion {
    fn from(wire::StateVersion { recoveries, revision }: wire::StateVersion) -> Self {
        Self { recoveries, revision }
    }
}

const _: () = assert!(cluster::part::MOST_PART_BYTES + 64 <= MOST_NEWS_BYTES);

/// Reads a word of a coordinator from its bytes.
///
/// # Errors
/// [`FieldError`] names the field that cannot be read.
pub fn decode_word(bytes: &[u8]) -> Result<Word, FieldError> {
    let read = wire::PeersResponse::decode(bytes);
    read.map_err(|_| FieldError::new("news", Problem::Unusable))?.try_into()
}

impl From<CertificateRequests> for wire::CertifyRequest {
    fn from(CertificateRequests(requests): CertificateRequests) -> Self {
        let asked = |(certificate, request)| {
            let certificate = match certificate {
                WorkerCertificate::KubeletClient => wire::WorkerCertificate::KubeletClient,
                WorkerCertificate::KubeletServer => wire::WorkerCertificate::KubeletServer,
                WorkerCertificate::DnsClient => wire::WorkerCertificate::DnsClient,
                WorkerCertificate::ProxyClient => wire::WorkerCertificate::ProxyClient,
            };
            wire::WorkerCertificateRequest { certificate: certificate.into(), request }
        };
        Self { requests: requests.into_iter().map(asked).collect() }
    }
}

impl TryFrom<wire::CertifyRequest> for CertificateRequests {
    type Error = FieldError;

    fn try_from(wire::CertifyRequest { requests }: wire::CertifyRequest) -> Result<Self, FieldError> {
        if !(1..=MOST_CERTIFICATES).contains(&requests.len()) {
            return Err(FieldError::new("requests", Problem::Range));
        }
        let asked = |asked: wire::WorkerCertificateRequest| {
            let certificate = match asked.certificate() {
                wire::WorkerCertificate::KubeletClient => WorkerCertificate::KubeletClient,
                wire::WorkerCertificate::KubeletServer => WorkerCertificate::KubeletServer,
                wire::WorkerCertificate::DnsClient => WorkerCertificate::DnsClient,
                wire::WorkerCertificate::ProxyClient => WorkerCertificate::ProxyClient,
                wire::WorkerCertificate::Unspecified => return Err(FieldError::new("certificate", Problem::Unknown)),
            };
            if asked.request.len() > MOST_REQUEST_BYTES {
                return Err(FieldError::new("request", Problem::Range));
            }
            Ok((certificate, asked.request))
        };
        requests.into_iter().map(asked).collect::<Result<_, _>>().map(Self)
    }
}

impl From<WorkerCertificates> for wire::CertifyResponse {
    fn from(WorkerCertificates { authority, certificates }: WorkerCertificates) -> Self {
        Self { ca_certificate: authority, certificates }
    }
}

impl From<wire::CertifyResponse> for WorkerCertificates {
    fn from(wire::CertifyResponse { ca_certificate, certificates }: wire::CertifyResponse) -> Self {
        Self { authority: ca_certificate, certificates }
    }
}

impl From<HandedOver> for wire::HandOverResponse {
    fn from(HandedOver { keys }: HandedOver) -> Self {
        Self { keys: keys.encode().to_vec() }
    }
}

impl TryFrom<wire::HandOverResponse> for HandedOver {
    type Error = FieldError;

    fn try_from(answer: wire::HandOverResponse) -> Result<Self, FieldError> {
        let bytes = Zeroizing::new(answer.keys);
        let keys = CoordinatorKeys::decode(&bytes).map_err(|_| FieldError::new("keys", Problem::Unusable))?;
        Ok(Self { keys })
    }
}

impl From<Word> for wire::PeersResponse {
    fn from(answer: Word) -> Self {
        use wire::peers_response::News as Wire;
        let news = match answer {
            Word::Directory(signed) => Wire::Directory(signed),
            Word::Order(order) => Wire::Order(order.into()),
            Word::Desired(desired) => Wire::Desired(desired.encode()),
            Word::News(News::Nothing) => Wire::Unchanged(wire::PeersUnchanged {}),
            Word::News(News::Behind) => Wire::Behind(wire::PeersBehind {}),
            Word::News(News::Whole { version, peers }) => Wire::Whole(wire::PeersWhole {
                version: Some(version.into()),
                peers: peers.into_values().map(Into::into).collect(),
            }),
            Word::News(News::Changed { since, version, peers }) => {
                let gone = peers.iter().filter(|(_, peer)| peer.is_none()).map(|(id, _)| id.0.to_vec()).collect();
                let peers = peers.into_values().flatten().map(Into::into).collect();
                Wire::Changed(wire::PeersChanged {
                    since: Some(since.into()),
                    version: Some(version.into()),
                    peers,
                    gone,
                })
            }
        };
        Self { news: Some(news) }
    }
}

impl TryFrom<wire::PeersResponse> for Word {
    type Error = FieldError;

    fn try_from(answer: wire::PeersResponse) -> Result<Self, FieldError> {
        use wire::peers_response::News as Wire;
        let news = match present("news", answer.news)? {
            Wire::Directory(signed) => return Ok(Self::Directory(signed)),
            Wire::Order(order) => return Ok(Self::Order(order.try_into()?)),
            Wire::Desired(bytes) => {
                let desired = Desired::decode(&bytes).map_err(|_| FieldError::new("desired", Problem::Unusable))?;
                return Ok(Self::Desired(desired.into()));
            }
            Wire::Unchanged(_) => News::Nothing,
            Wire::Behind(_) => News::Behind,
            Wire::Whole(whole) => News::Whole {
                version: present("version", whole.version)?.into(),
                peers: each_once("peers", peers(whole.peers)?)?,
            },
            Wire::Changed(changed) => {
                let gone = changed.gone.iter().map(|id| Ok((MachineId(fixed("gone", id)?), None)));
                let gone = gone.collect::<Result<Vec<_>, FieldError>>()?;
                let there = peers(changed.peers)?.into_iter().map(|(id, peer)| (id, Some(peer)));
                News::Changed {
                    since: present("since", changed.since)?.into(),
                    version: present("version", changed.version)?.into(),
                    peers: each_once("gone", there.chain(gone).collect())?,
                }
            }
        };
        Ok(Self::News(news))
    }
}

fn peers(peers: Vec<wire::ClusterPeer>) -> Result<Vec<(MachineId, Peer)>, FieldError> {
    let read = |peer| Peer::try_from(peer).map(|peer| (peer.machine, peer));
    peers.into_iter().map(read).collect()
}

/// A machine that is told of twice would be what was said last of it, or first.
fn each_once<T>(field: &'static str, told: Vec<(MachineId, T)>) -> Result<BTreeMap<MachineId, T>, FieldError> {
    let count = told.len();
    let map: BTreeMap<_, _> = told.into_iter().collect();
    if map.len() == count && count <= MOST_NEWS_PEERS { Ok(map) } else { Err(FieldError::new(field, Problem::Range)) }
}

fn endpoints(texts: &[String]) -> Result<Vec<Endpoint>, FieldError> {
    Endpoint::read_all(texts).map_err(|_| FieldError::new("endpoints", Problem::Unusable))
}

impl From<Peer> for wire::ClusterPeer {
    fn from(peer: Peer) -> Self {
        let pods = |pods: Ipv4Prefix| wire::PodPrefix { address: pods.address().into(), bits: pods.bits().into() };
        Self {
            machine_id: peer.machine.0.to_vec(),
            vpn_public_key: peer.vpn_key.0.to_vec(),
            vpn_ip: peer.vpn_ip.into(),
            pods: peer.pods.map(pods),
            endpoints: keys::endpoint::texts(&peer.endpoints),
        }
    }
}

impl TryFrom<wire::ClusterPeer> for Peer {
    type Error = FieldError;

    fn try_from(peer: wire::ClusterPeer) -> Result<Self, FieldError> {
        let unusable = |field| FieldError::new(field, Problem::Unusable);
        let vpn_key = fixed("vpn_public_key", &peer.vpn_public_key)?;
        if !is_usable_x25519(&vpn_key) {
            return Err(unusable("vpn_public_key"));
        }
        let endpoints = endpoints(&peer.endpoints)?;
        Endpoint::judge_of_machine(&endpoints).map_err(|_| unusable("endpoints"))?;
        let pods = |pods: wire::PodPrefix| {
            let bits = u8::try_from(pods.bits).ok();
            bits.and_then(|bits| Ipv4Prefix::new(pods.address.into(), bits).ok()).ok_or(unusable("pods"))
        };
        Ok(Self {
            machine: MachineId(fixed("machine_id", &peer.machine_id)?),
            vpn_key: VpnPubKey(vpn_key),
            vpn_ip: peer.vpn_ip.into(),
            pods: peer.pods.map(pods).transpose()?,
            endpoints,
        })
    }
}

#[cfg(test)]
mod tests {
    use cluster::desired::{DesiredShares, EtcdPart};
    use cluster::record::{OwnerRecord, Standing};
    use keys::coordinator::AuthorityKeys;
    use keys::recovery::RecoveryPubKey;
    use model::{
        Assignment, ClusterRole, ColdStart, Level, MasterSecret, OwnerPubKey, POD_PREFIX, Prefixes, SERVICE_PREFIX,
        Secret, VPN_PREFIX,
    };

    use std::net::Ipv4Addr;

    use super::*;

    const OLD: StateVersion = StateVersion { recoveries: 1, revision: 7 };
    const NEW: StateVersion = StateVersion { recoveries: 1, revision: 9 };

    fn peer(n: u8) -> Peer {
        Peer {
            machine: MachineId([n; 16]),
            vpn_key: VpnPubKey([n; 32]),
            vpn_ip: Ipv4Addr::new(10, 118, 0, n),
            pods: Ipv4Prefix::new([10, 244, n, 0].into(), 24).ok().filter(|_| n > 1),
            endpoints: vec![Endpoint::read("192.0.2.1:7838").expect("an endpoint")],
        }
    }

    fn whole() -> News {
        News::Whole { version: NEW, peers: [1, 2].map(|n| (MachineId([n; 16]), peer(n))).into() }
    }

    fn changed() -> News {
        let peers = [(MachineId([1; 16]), None), (MachineId([2; 16]), Some(peer(2)))].into();
        News::Changed { since: OLD, version: NEW, peers }
    }

    fn desired() -> Box<Desired> {
        let owner =
            OwnerRecord { key: OwnerPubKey([3; 32]), recovery: RecoveryPubKey::of(&Secret::take(&mut [4; 32])) };
        let assignment = Assignment::new(Ipv4Addr::new(10, 118, 0, 1), ClusterRole::Node, [].into(), None);
        Box::new(Desired {
            at: Some(NEW),
            look: None,
            standing: Standing::Member,
            assignment: assignment.expect("they fit"),
            prefixes: Prefixes { vpn: VPN_PREFIX, pods: POD_PREFIX, services: SERVICE_PREFIX },
            coordinators: BTreeMap::new(),
            etcd: EtcdPart::Out,
            shares: DesiredShares::default(),
            owners: vec![owner],
            level: Level::Encrypted,
            cold_start: ColdStart::Automatic,
        })
    }

    fn handed_over() -> wire::HandOverResponse {
        let authority = |n: u8| AuthorityKeys { certificate: vec![n; 9], key: vec![n; 9].into() };
        let keys = CoordinatorKeys {
            master_secret: MasterSecret(Secret::take(&mut [1; 32])),
            cairn: authority(2),
            etcd: authority(4),
            kubernetes: authority(6),
            service_accounts: vec![8; 9].into(),
            front: authority(9),
        };
        HandedOver { keys }.into()
    }

    #[test]
    fn a_hand_over_crosses_the_wire_and_is_read_with_care() {
        let taken = HandedOver::try_from(handed_over()).expect("reads");
        assert_eq!(taken.keys.master_secret.expose(), &[1; 32]);
        let refused = |edit: fn(&mut wire::HandOverResponse)| {
            let mut answer = handed_over();
            edit(&mut answer);
            HandedOver::try_from(answer).expect_err("malformed").to_string()
        };
        assert_eq!(refused(|it| it.keys.truncate(9)), "field `keys` cannot be used");
    }

    /// Proves: W3
    #[test]
    fn requests_for_certificates_are_read_with_care() {
        use WorkerCertificate::{DnsClient, KubeletClient, KubeletServer, ProxyClient};
        let longest = (KubeletClient, vec![2; 1024]);
        let good =
            CertificateRequests(vec![(KubeletServer, vec![1]), longest, (DnsClient, vec![3]), (ProxyClient, vec![4])]);
        assert_eq!(CertificateRequests::try_from(wire::CertifyRequest::from(good.clone())), Ok(good));
        let refused = |requests: Vec<(i32, usize)>| {
            let asked = |(certificate, bytes)| wire::WorkerCertificateRequest { certificate, request: vec![1; bytes] };
            let request = wire::CertifyRequest { requests: requests.into_iter().map(asked).collect() };
            CertificateRequests::try_from(request).expect_err("malformed").field
        };
        assert_eq!(refused(vec![]), "requests");
        assert_eq!(refused(vec![(1, 9); 9]), "requests");
        assert_eq!((refused(vec![(1, 9), (0, 9)]), refused(vec![(5, 9)])), ("certificate", "certificate"));
        assert_eq!(refused(vec![(1, 1025)]), "request");
    }

    /// Proves: M2
    #[test]
    fn every_kind_of_news_crosses_the_wire() {
        let news = [News::Nothing, News::Behind, whole(), changed()].map(Word::News);
        for answer in news.into_iter().chain([Word::Directory(vec![1, 2]), Word::Desired(desired())]) {
            let bytes = wire::PeersResponse::from(answer.clone()).encode_to_vec();
            assert_eq!(decode_word(&bytes), Ok(answer));
        }
    }

    #[test]
    fn an_announcement_crosses_the_wire_and_is_read_with_care() {
        let (endpoints, epoch) = (peer(1).endpoints, Some(4));
        let said = Presence { release: Release(0, 3, 1), endpoints, key_generation: 7, epoch };
        let good = wire::AnnounceRequest::from(said.clone());
        assert_eq!(Presence::try_from(good.clone()), Ok(said));
        let refused = |request: wire::AnnounceRequest| Presence::try_from(request).expect_err("malformed").field;
        assert_eq!(refused(wire::AnnounceRequest { release: "3".into(), ..good.clone() }), "release");
        let many = vec![String::from("192.0.2.1:7838"); 9];
        assert_eq!(refused(wire::AnnounceRequest { endpoints: many, ..good }), "endpoints");
    }

    #[test]
    fn news_that_make_no_sense_name_the_field() {
        use wire::peers_response::News as Wire;
        let refused = |news| {
            let answer = wire::PeersResponse { news };
            Word::try_from(answer).expect_err("malformed").to_string()
        };
        let good: wire::ClusterPeer = peer(2).into();
        let told = |peers| Some(Wire::Whole(wire::PeersWhole { version: Some(NEW.into()), peers }));
        let one = |peer| told(vec![peer]);
        let edited = |edit: fn(&mut wire::ClusterPeer)| {
            let mut peer = good.clone();
            edit(&mut peer);
            refused(one(peer))
        };
        assert_eq!(refused(None), "field `news` is missing");
        assert_eq!(
            refused(Some(Wire::Whole(wire::PeersWhole { version: None, peers: vec![] }))),
            "field `version` is missing"
        );
        assert_eq!(refused(told(vec![good.clone(), good.clone()])), "field `peers` is out of range");
        assert_eq!(edited(|it| it.machine_id.truncate(15)), "field `machine_id` has 15 bytes instead of 16");
        assert_eq!(edited(|it| it.vpn_public_key.fill(0)), "field `vpn_public_key` cannot be used");
        assert_eq!(edited(|it| it.endpoints.push("a:0".into())), "field `endpoints` cannot be used");
        assert_eq!(edited(|it| it.endpoints.push("a:1".into())), "field `endpoints` cannot be used");
        assert_eq!(edited(|it| it.pods = Some(wire::PodPrefix { address: 1, bits: 8 })), "field `pods` cannot be used");
        let many = (0..=MOST_NEWS_PEERS).map(|n| {
            let mut id = [0; 16];
            id[..8].copy_from_slice(&n.to_be_bytes());
            wire::ClusterPeer { machine_id: id.to_vec(), ..good.clone() }
        });
        assert_eq!(refused(told(many.collect())), "field `peers` is out of range");
        let wire::PeersResponse { news: Some(Wire::Changed(twice)), .. } = Word::News(changed()).into() else {
            panic!("a change");
        };
        let twice = wire::PeersChanged { gone: vec![vec![2; 16]], ..twice };
        assert_eq!(refused(Some(Wire::Changed(twice))), "field `gone` is out of range");
        assert_eq!(refused(Some(Wire::Desired(vec![8, 1]))), "field `desired` cannot be used");
        assert_eq!(decode_word(&[0xff]).map(|_| ()).expect_err("malformed").field, "news");
    }

    #[test]
    fn the_most_that_is_told_fits_into_one_message() {
        let endpoint = Endpoint::read("255.255.255.255:65535").expect("an endpoint");
        let of = |n: usize| {
            let mut id = [0xff; 16];
            id[..8].copy_from_slice(&n.to_be_bytes());
            let peer = Peer { machine: MachineId(id), endpoints: vec![endpoint.clone(); 8], ..peer(255) };
            (peer.machine, peer)
        };
        let peers = (0..MOST_NEWS_PEERS).map(of).collect();
        let bytes = wire::PeersResponse::from(Word::News(News::Whole { version: NEW, peers })).encoded_len();
        assert!(bytes <= MOST_NEWS_BYTES, "{bytes}");
    }
}
