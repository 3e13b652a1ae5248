//! Where a tunnel leads. A user's leads to this machine's Kubernetes API alone; an owner's there too, to the public API of another
//! machine of the cluster, over the VPN, or to that of a machine outside which is to be activated. A tunnel carries bytes and vouches
//! for nothing: TLS ends at the target, which asks who calls as it asks everybody.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use api::Target;
use model::{MachineId, PUBLIC_API_PORT};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tonic::Status;

use super::context::{Context, Place};
use super::person::Person;

/// The first packet of a mesh waits for a handshake, which may be tried twice.
const CONNECTS: Duration = Duration::from_secs(10);

/// A connection to a tunnel's target.
#[derive(Debug)]
pub(super) struct Line {
    pub(super) stream: TcpStream,
    /// Place of the connection, where it takes one; held as long as bytes are carried.
    pub(super) place: Option<Place>,
}

/// Target to which a user's tunnel does not lead.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a user's tunnel leads to the Kubernetes API and nowhere else; nothing was done; ask an owner of the cluster")]
pub(super) struct BadUserTarget;

impl From<BadUserTarget> for Status {
    fn from(error: BadUserTarget) -> Self {
        Self::permission_denied(error.to_string())
    }
}

/// Connects to what `whose` asks for.
///
/// # Errors
/// Where there is no such target, none answers, or too many are carried.
pub(super) async fn connect(context: &Context, whose: Person, target: Target) -> Result<Line, Status> {
    let silent = |why: String| Status::unavailable(format!("the target does not answer: {why}; try again"));
    let (owner, address) = match (whose, target) {
        (_, Target::KubernetesApi) => {
            let place = match whose {
                Person::Owner(_) => None,
                Person::User(name) => Some(Place::User { _held: context.reach.users_forwards.begin(name)? }),
            };
            let connected = context.reach.kubernetes()?.apiservers.connect().await;
            return Ok(Line { stream: connected.map_err(|error| silent(error.to_string()))?, place });
        }
        (Person::User(_), Target::Machine(_) | Target::Outside(_)) => return Err(BadUserTarget.into()),
        (Person::Owner(owner), Target::Machine(machine)) => (owner, public_api(context, machine)?),
        (Person::Owner(owner), Target::Outside(address)) => (owner, outside(context, address)?),
    };
    let place = Some(Place::Owner { _held: context.reach.forwards.begin(owner)? });
    let connected = timeout(CONNECTS, TcpStream::connect(address)).await;
    let connected = connected.map_err(|_elapsed| silent(format!("{} s have passed", CONNECTS.as_secs())))?;
    let stream = connected.map_err(|error| silent(error.to_string()))?;
    match target {
        Target::KubernetesApi => {}
        Target::Machine(machine) => tracing::info!(%machine, "an owner's connection is carried to another machine"),
        Target::Outside(address) => tracing::info!(%address, "an owner's connection is carried out of the cluster"),
    }
    Ok(Line { stream, place })
}

/// Only at an address that is neither this machine's nor kept by the cluster, and that one machine can have; and only there.
fn outside(context: &Context, address: Ipv4Addr) -> Result<SocketAddr, Status> {
    let (own, kept) = context.facts.read(|now| {
        let own = now.links.iter().any(|link| link.address.ip == address);
        let kept = |prefixes: model::Prefixes| prefixes.rows().iter().any(|(kept, _)| kept.contains(address));
        (own, now.vpn.is_none() || now.prefixes.is_none_or(kept))
    });
    let nobodys = address.is_loopback()
        || address.is_link_local()
        || address.is_multicast()
        || address.is_broadcast()
        || address.octets()[0] == 0;
    if own || kept || nobodys {
        let text = format!("{address} is no address of a machine outside of the cluster; nothing was done");
        return Err(Status::invalid_argument(text));
    }
    Ok(SocketAddr::from((address, PUBLIC_API_PORT)))
}

/// Only at the VPN address of a machine that is a peer now, and only there.
fn public_api(context: &Context, machine: MachineId) -> Result<SocketAddr, Status> {
    let own = context.facts.read(|now| now.names.as_ref().map(|names| names.machine));
    let address = context.reach.peers().filter(|_| own != Some(machine)).and_then(|peers| peers.vpn_ip(&machine));
    let address = address.ok_or_else(|| {
        Status::not_found(format!("this machine knows no other machine {machine} in its cluster; nothing was done"))
    })?;
    Ok(SocketAddr::from((address, PUBLIC_API_PORT)))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use cluster::peer::Peer;
    use cluster::peers::News;
    use cluster::state::StateVersion;
    use model::{OwnerPubKey, VpnPubKey};
    use pki::{Authority, AuthorityKind, UnixTime};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;
    use tonic::Code;

    use super::super::kubernetes::KubernetesAccess;
    use super::*;
    use crate::control::Apiservers;
    use crate::enrolment::Ways;
    use crate::facts::Facts;
    use crate::machine::kernel::Boot;
    use crate::network::mesh::peers::Told;
    use crate::runtime::child::Children;
    use crate::runtime::clock;
    use crate::shown::board::Board;

    const OWNER: OwnerPubKey = OwnerPubKey([1; 32]);

    fn peer(n: u8, vpn_ip: Ipv4Addr) -> (MachineId, Peer) {
        let machine = MachineId([n; 16]);
        (machine, Peer { machine, vpn_key: VpnPubKey([n; 32]), vpn_ip, pods: None, endpoints: vec![] })
    }

    fn context() -> (Arc<Context>, Told) {
        let (facts, _power_on) = Facts::new(Boot::fixture());
        let (_board, shown) = Board::new(facts);
        let (context, _power) = Context::new(shown, &Children::default(), Ways::of_nobody(), pki::SpkiPin([0; 32]));
        let told = Told::default();
        context.reach.hear(told.clone());
        (context, told)
    }

    fn tell(told: &Told, revision: u64, peers: impl IntoIterator<Item = (MachineId, Peer)>) {
        let version = StateVersion { recoveries: 0, revision };
        told.take(News::Whole { version, peers: peers.into_iter().collect() });
    }

    async fn code(context: &Context, owner: OwnerPubKey, machine: u8) -> Code {
        let connected = connect(context, Person::Owner(owner), Target::Machine(MachineId([machine; 16]))).await;
        connected.map_or_else(|refused| refused.code(), |_| Code::Ok)
    }

    /// Proves: A6
    #[tokio::test]
    async fn bytes_go_to_the_public_api_of_a_peer_of_now_and_nowhere_else() {
        let (there, nobody) = (Ipv4Addr::new(127, 77, 0, 2), Ipv4Addr::new(127, 77, 0, 3));
        let listener = TcpListener::bind((there, PUBLIC_API_PORT)).await.expect("loopback is all ours");
        let (context, told) = context();
        assert_eq!(code(&context, OWNER, 2).await, Code::NotFound, "nothing was told");
        tell(&told, 1, [peer(2, there), peer(3, nobody)]);
        let line =
            connect(&context, Person::Owner(OWNER), Target::Machine(MachineId([2; 16]))).await.expect("it listens");
        let (mut accepted, _) = listener.accept().await.expect("it is asked");
        let mut stream = line.stream;
        stream.write_all(b"hello").await.expect("carried");
        let mut heard = [0; 5];
        accepted.read_exact(&mut heard).await.expect("carried");
        assert_eq!(&heard, b"hello");
        assert_eq!(code(&context, OWNER, 3).await, Code::Unavailable, "nobody listens");
        assert_eq!(code(&context, OWNER, 4).await, Code::NotFound, "no machine of the cluster");
        tell(&told, 2, [peer(3, nobody)]);
        assert_eq!(code(&context, OWNER, 2).await, Code::NotFound, "a peer no longer");
        assert_eq!(
            connect(&context, Person::Owner(OWNER), Target::KubernetesApi).await.err().map(|it| it.code()),
            Some(Code::FailedPrecondition)
        );
    }

    /// Proves: A6
    #[tokio::test]
    async fn bytes_leave_the_cluster_only_for_one_machine_outside() {
        let (context, _told) = context();
        let code = |address: [u8; 4]| outside(&context, address.into()).err().map(|refused| refused.code());
        assert_eq!(code([192, 0, 2, 9]), Some(Code::InvalidArgument), "of no member yet");
        let (own, prefix) = (Ipv4Addr::new(192, 0, 2, 1), model::VPN_PREFIX);
        context.facts.update(|now| {
            let around = model::Ipv4Prefix::around(own, 24).expect("a prefix");
            now.link("eth0", Some(crate::facts::Address { ip: own, prefix: around }));
            now.vpn = Some(crate::facts::Address { ip: prefix.nth(1).expect("an address"), prefix });
            now.prefixes = Some(model::Prefixes::of(prefix));
        });
        assert_eq!(
            outside(&context, [192, 0, 2, 9].into()).ok().map(|it| it.to_string()).as_deref(),
            Some("192.0.2.9:7836")
        );
        let vpn = prefix.nth(7).expect("an address").octets();
        let pod = model::POD_PREFIX.nth(7).expect("an address").octets();
        for nobodys in
            [own.octets(), vpn, pod, [127, 0, 0, 1], [0, 0, 0, 0], [224, 0, 0, 1], [255; 4], [169, 254, 0, 1]]
        {
            assert_eq!(code(nobodys), Some(Code::InvalidArgument), "{nobodys:?}");
        }
    }

    /// Proves: W9 A6
    #[tokio::test]
    async fn a_users_bytes_go_to_kubernetes_and_to_no_machine() {
        let (there, alice) = (Ipv4Addr::new(127, 77, 0, 5), Person::User("alice".parse().expect("a name")));
        let _listens = TcpListener::bind((there, PUBLIC_API_PORT)).await.expect("loopback is all ours");
        let (context, told) = context();
        tell(&told, 1, [peer(5, there)]);
        for target in [Target::Machine(MachineId([5; 16])), Target::Outside([192, 0, 2, 9].into())] {
            let refused = connect(&context, alice, target).await.expect_err("not for users");
            assert_eq!(refused.code(), Code::PermissionDenied);
        }
        assert_eq!(code(&context, OWNER, 5).await, Code::Ok, "the control");
        let kubernetes = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a port");
        let SocketAddr::V4(apiserver) = kubernetes.local_addr().expect("its own") else { panic!("of IPv4") };
        let authority = Authority::create(AuthorityKind::Kubernetes, UnixTime::since_unix_epoch(clock::unix()));
        let apiservers = Apiservers::of(Ipv4Addr::LOCALHOST, move || vec![apiserver]);
        let access = KubernetesAccess::fixture(authority.expect("a CA"), apiservers);
        context.reach.coordinate(None, Some(access));
        let to_kubernetes = async || connect(&context, alice, Target::KubernetesApi).await;
        let mut lines = Vec::new();
        for _ in 0..8 {
            lines.push(to_kubernetes().await.expect("room"));
        }
        assert_eq!(to_kubernetes().await.expect_err("eight of one").code(), Code::ResourceExhausted);
        let owner = connect(&context, Person::Owner(OWNER), Target::KubernetesApi).await;
        assert!(owner.is_ok_and(|line| line.place.is_none()), "an owner's takes no place");
        drop(lines.pop());
        assert!(to_kubernetes().await.is_ok(), "a place is given back");
    }
}
