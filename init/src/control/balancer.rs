//! The way of Kubernetes clients on this machine to the Kubernetes API: loopback for the machine's own, the pods' gateway for pods, led
//! to the control planes by what is seen of them.
//! It carries bytes; TLS is between the two ends.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use cluster::desired::Desired;
use door::{NewPlace, Room, Seats};
use model::KubernetesRole;
use probe::http::{self, Session, UNACKNOWLEDGED};
use rustix::net::sockopt;
use rustls::ClientConfig;
use services::balancer::{Balancer, HealthCheck};
use tokio::io::copy_bidirectional_with_sizes;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{sleep, timeout};

use super::clients;
use crate::runtime::lock;
use crate::runtime::tasks::{self, Task};

/// A look that is answered later is a miss, and one more with each such time.
const IN_TIME: Duration = Duration::from_secs(1);
/// The last that is tried may need a handshake of the mesh first, which may be tried twice.
const LAST: Duration = Duration::from_secs(10);
/// Idle connections are asked so often whether the other machine is there.
const KEEPALIVE: Duration = Duration::from_secs(1);
/// Bytes that are held each way: a client's requests are small, and an answer that is not has to wait for the client anyway.
const HELD: usize = 4096;

/// Connections of pods, each of which PID 1 pays for.
const OF_PODS: Room = Room { all: 512, each: 64 };
/// The machine's own clients are programs of ours.
const OWN: Room = Room { all: usize::MAX, each: usize::MAX };

/// No machine of the cluster is a control plane, as far as this one was told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("this machine knows no control plane of Kubernetes")]
pub(crate) struct NoControlPlane;

/// Apiservers of the cluster with what was seen of them; clones share it.
#[derive(Clone)]
pub(crate) struct Apiservers(Arc<Shared>);

struct Shared {
    known: Box<dyn Fn() -> Vec<SocketAddrV4> + Send + Sync>,
    balancer: Mutex<Balancer>,
}

impl fmt::Debug for Apiservers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Apiservers").field(&*self.balancer()).finish()
    }
}

impl Apiservers {
    /// Apiservers that `known` names at each moment, for the machine with this VPN address.
    pub(crate) fn of(machine: Ipv4Addr, known: impl Fn() -> Vec<SocketAddrV4> + Send + Sync + 'static) -> Self {
        Self(Arc::new(Shared { known: Box::new(known), balancer: Mutex::new(Balancer::of(machine)) }))
    }

    /// Apiservers that the machine's desired state names.
    pub(crate) fn of_cluster(desired: watch::Receiver<Desired>) -> Self {
        let machine = desired.borrow().assignment.vpn_ip();
        Self::of(machine, move || apiservers(&desired.borrow()))
    }

    /// Connects to the first in the balancer's order that accepts.
    ///
    /// # Errors
    /// The error of the last one that was tried.
    pub(crate) async fn connect(&self) -> io::Result<TcpStream> {
        let order = self.balancer().order();
        let mut failed = io::Error::other(NoControlPlane);
        for (left, at) in (0..order.len()).rev().zip(order) {
            match connect(at, if left == 0 { LAST } else { UNACKNOWLEDGED }).await {
                Ok(server) => return Ok(server),
                Err(error) => failed = error,
            }
            self.balancer().saw(at, HealthCheck::Loss);
        }
        Err(failed)
    }

    /// The apiserver that is asked first.
    ///
    /// # Errors
    /// The machine knows of none.
    pub(crate) fn first(&self) -> Result<SocketAddrV4, NoControlPlane> {
        self.balancer().order().first().copied().ok_or(NoControlPlane)
    }

    /// Notes that this one did not answer: others are asked first for a while.
    pub(super) fn missed(&self, at: SocketAddrV4) {
        self.balancer().saw(at, HealthCheck::Loss);
    }

    /// Serves 127.0.0.1:6443 for good, and where the machine has pods the same port of their gateway.
    ///
    /// # Errors
    /// When an address is taken, or not the machine's.
    pub(crate) async fn serve(&self, gateway: Option<Ipv4Addr>) -> io::Result<()> {
        let listener = async |address: Ipv4Addr| TcpListener::bind((address, model::KUBERNETES_API_PORT)).await;
        let own = self.accept(listener(Ipv4Addr::LOCALHOST).await?, OWN);
        match gateway {
            Some(gateway) => {
                let of_pods = self.accept(listener(gateway).await?, OF_PODS);
                tokio::select! { ended = own => ended, ended = of_pods => ended }
            }
            None => own.await,
        }
    }

    async fn accept(&self, listener: TcpListener, room: Room) -> io::Result<()> {
        let (mut seats, mut carried) = (Seats::new(room), JoinSet::new());
        let mut seated: HashMap<_, AbortHandle> = HashMap::new();
        loop {
            tokio::select! {
                accepted = listener.accept() => {
                    let (client, peer) = accepted?;
                    let NewPlace { place, instead_of } = seats.take(peer.ip());
                    if let Some(leaves) = instead_of.and_then(|leaves| seated.remove(&leaves)) {
                        leaves.abort();
                    }
                    let carry = carry(client, self.clone());
                    seated.insert(place, carried.spawn(async move { carry.await; place }));
                }
                Some(ended) = carried.join_next() => {
                    // Whoever was ended has no place any more.
                    if let Ok(place) = ended {
                        seats.leave(place);
                        seated.remove(&place);
                    }
                }
            }
        }
    }

    /// Looks at them for good, as a client with these certificates.
    pub(crate) async fn look(&self, tls: &Arc<ClientConfig>) {
        let mut looks = BTreeMap::<SocketAddrV4, Task<()>>::new();
        loop {
            let (looked_at, pause) = {
                let balancer = self.balancer();
                (balancer.looked_at().collect::<BTreeSet<_>>(), balancer.pause())
            };
            looks.retain(|at, _| looked_at.contains(at));
            for at in looked_at {
                let begin = || tasks::spawn(look(self.clone(), at, Session::with(clients::endpoint(at, tls.clone()))));
                looks.entry(at).or_insert_with(begin);
            }
            sleep(pause).await;
        }
    }

    /// The balancer, which goes by what is known now.
    fn balancer(&self) -> MutexGuard<'_, Balancer> {
        let Shared { known, balancer } = &*self.0;
        let mut balancer = lock::even_if_poisoned(balancer);
        balancer.know(known());
        balancer
    }
}

/// Where the cluster has apiservers.
fn apiservers(desired: &Desired) -> Vec<SocketAddrV4> {
    let assignment = &desired.assignment;
    let has_one = assignment.kubernetes().contains(&KubernetesRole::ControlPlane);
    let own = has_one.then(|| assignment.vpn_ip());
    let told = desired.coordinators.values();
    let others = told.filter(|other| other.control_plane && other.vpn_ip != assignment.vpn_ip());
    let all = own.into_iter().chain(others.map(|other| other.vpn_ip));
    all.map(|vpn_ip| SocketAddrV4::new(vpn_ip, model::KUBERNETES_API_PORT)).collect()
}

async fn connect(at: SocketAddrV4, within: Duration) -> io::Result<TcpStream> {
    let connected = timeout(within, TcpStream::connect(SocketAddr::from(at))).await;
    let server = connected.map_err(|_elapsed| io::Error::from(io::ErrorKind::TimedOut))??;
    http::end_unacknowledged(&server)?;
    Ok(server)
}

async fn carry(mut client: TcpStream, apiservers: Apiservers) {
    // The client sees that nobody answers by the end of its connection.
    let Ok(mut server) = apiservers.connect().await else { return };
    for stream in [&client, &server] {
        // Requests are small and answers awaited: nothing is gained by holding bytes back.
        let _latency_only = stream.set_nodelay(true);
        let _found_out_later = ask_whether_alive(stream);
    }
    let _either_end_closed = copy_bidirectional_with_sizes(&mut client, &mut server, HELD, HELD).await;
}

/// Has the kernel ask while nothing is sent: a pod that was killed, and a machine that is gone, say nothing.
fn ask_whether_alive(stream: &TcpStream) -> io::Result<()> {
    sockopt::set_tcp_keepidle(stream, KEEPALIVE)?;
    sockopt::set_tcp_keepintvl(stream, KEEPALIVE)?;
    Ok(sockopt::set_socket_keepalive(stream, true)?)
}

async fn look(apiservers: Apiservers, at: SocketAddrV4, mut session: Session) {
    let saw = |look| apiservers.balancer().saw(at, look);
    loop {
        if let Some(look) = timely(ask(&mut session), || saw(HealthCheck::Miss)).await {
            saw(look);
        }
        let pause = apiservers.balancer().pause();
        sleep(pause).await;
    }
}

async fn ask(session: &mut Session) -> HealthCheck {
    match session.get("/readyz").await {
        Ok(answer) if answer.status == 200 => HealthCheck::Answer,
        Ok(_) | Err(http::Error::Silence(_)) => HealthCheck::Miss,
        Err(_) => HealthCheck::Loss,
    }
}

/// Outcome of a look, unless it comes too late and says only that it did.
async fn timely(asked: impl Future<Output = HealthCheck>, missed: impl Fn()) -> Option<HealthCheck> {
    let mut asked = pin!(asked);
    let mut in_time = true;
    loop {
        match timeout(IN_TIME, &mut asked).await {
            Ok(look) => return (in_time || look == HealthCheck::Loss).then_some(look),
            Err(_elapsed) => missed(),
        }
        in_time = false;
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use cluster::desired::{DesiredShares, EtcdPart, KnownCoordinator};
    use cluster::record::Standing;
    use model::{Assignment, ClusterRole, ColdStart, Level, MachineId, NodeName, Prefixes};
    use tokio::io::AsyncReadExt;

    use super::*;

    /// Proves: W1
    #[test]
    fn all_control_planes_are_behind_the_balancer() {
        let address = |last| Ipv4Addr::new(10, 118, 0, last);
        let kubernetes = |last: u8, role, kubernetes: &[KubernetesRole]| {
            Assignment::new(address(last), role, kubernetes.iter().copied().collect(), None).expect("they fit")
        };
        let coordinator = |last: u8, control_plane| {
            let name = NodeName::chosen(&format!("c{last}")).expect("a name");
            (MachineId([last; 16]), KnownCoordinator { name, vpn_ip: address(last), votes: true, control_plane })
        };
        let own = kubernetes(2, ClusterRole::Coordinator, &[KubernetesRole::ControlPlane]);
        let desired = Desired {
            at: None,
            look: None,
            standing: Standing::Member,
            assignment: own.clone(),
            prefixes: Prefixes { vpn: model::VPN_PREFIX, pods: model::POD_PREFIX, services: model::SERVICE_PREFIX },
            coordinators: BTreeMap::from([coordinator(1, true), coordinator(2, true), coordinator(3, false)]),
            etcd: EtcdPart::Voter,
            shares: DesiredShares::default(),
            owners: Vec::new(),
            level: Level::Insecure,
            cold_start: ColdStart::Automatic,
        };
        let told = |assignment: &Assignment| apiservers(&Desired { assignment: assignment.clone(), ..desired.clone() });
        let at = |last| SocketAddrV4::new(address(last), model::KUBERNETES_API_PORT);
        assert_eq!(told(&own), [at(2), at(1)], "its own first; who has no control plane is not asked");
        let node = kubernetes(9, ClusterRole::Node, &[]);
        assert_eq!(told(&node), [at(1), at(2)]);
        let alone = |assignment| Desired { assignment, coordinators: BTreeMap::new(), ..desired.clone() };
        assert_eq!(apiservers(&alone(own)), [at(2)]);
        assert_eq!(apiservers(&alone(node)), []);
    }

    /// Proves: W1
    #[tokio::test]
    async fn a_connection_goes_to_those_that_are_known_when_it_comes() {
        let local = || async { TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a port") };
        let address = |listener: &TcpListener| match listener.local_addr() {
            Ok(SocketAddr::V4(address)) => address,
            other => panic!("bound to IPv4: {other:?}"),
        };
        let (front, first, second) = (local().await, local().await, local().await);
        let (at, known) = (address(&front), watch::Sender::new(vec![address(&first)]));
        let seen = known.subscribe();
        let balanced = Apiservers::of(Ipv4Addr::LOCALHOST, move || seen.borrow().clone());
        let _serving = tasks::spawn(async move { balanced.accept(front, OF_PODS).await });
        for server in [first, second] {
            known.send_replace(vec![address(&server)]);
            let mut client = TcpStream::connect(at).await.expect("the balancer listens");
            let accepted = timeout(Duration::from_secs(60), server.accept()).await;
            drop(accepted.expect("it goes there").expect("accepts"));
            assert_eq!(client.read(&mut [0]).await.expect("closed in order"), 0);
        }
    }

    /// Proves: W1
    #[tokio::test]
    async fn one_that_refuses_is_passed_over_and_then_tried_last() {
        let local = |last| TcpListener::bind((Ipv4Addr::new(127, 0, 0, last), 0));
        let there = local(2).await.expect("a port");
        let port = there.local_addr().expect("it is bound").port();
        let at = move |last| SocketAddrV4::new(Ipv4Addr::new(127, 0, 0, last), port);
        let balanced = Apiservers::of(Ipv4Addr::new(127, 0, 0, 1), move || vec![at(1), at(2)]);
        assert_eq!(balanced.balancer().order(), [at(1), at(2)]);
        let server = balanced.connect().await.expect("the second one accepts");
        assert_eq!(server.peer_addr().expect("it is connected"), at(2).into());
        assert_eq!(balanced.balancer().order(), [at(2), at(1)]);
        let nobody = Apiservers::of(Ipv4Addr::LOCALHOST, Vec::new);
        let error = nobody.connect().await.expect_err("there is none").to_string();
        assert_eq!(error, "this machine knows no control plane of Kubernetes");
    }

    /// Proves: W1
    #[tokio::test(start_paused = true)]
    async fn a_look_is_missed_each_second_and_a_late_answer_is_none() {
        let missed = Cell::new(0);
        let answers = |after, look| {
            missed.set(0);
            let asked = async move {
                sleep(Duration::from_millis(after)).await;
                look
            };
            timely(asked, || missed.set(missed.get() + 1))
        };
        assert_eq!((answers(900, HealthCheck::Answer).await, missed.get()), (Some(HealthCheck::Answer), 0));
        assert_eq!((answers(2_500, HealthCheck::Answer).await, missed.get()), (None, 2));
        assert_eq!((answers(1_500, HealthCheck::Loss).await, missed.get()), (Some(HealthCheck::Loss), 1));
    }
}
