//! The way of this machine's Kubernetes clients to the Kubernetes API: loopback, balanced over the coordinators.
//! It carries bytes; TLS is between the two ends.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};

use cluster::desired::Desired;
use model::KubernetesRole;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// Serves 127.0.0.1:6443 for good: each connection goes to the first of `apiservers` that accepts, as they are when it comes.
pub(crate) async fn serve(apiservers: impl Fn() -> Vec<SocketAddrV4>) -> io::Result<()> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, model::KUBERNETES_API_PORT)).await?;
    accept(listener, apiservers).await
}

/// Where the cluster has apiservers: that of this machine first, if it has one, then those of which it is told.
pub(crate) fn apiservers(desired: &Desired) -> Vec<SocketAddrV4> {
    let assignment = &desired.assignment;
    let has_one = assignment.kubernetes().contains(&KubernetesRole::ControlPlane);
    let own = has_one.then(|| assignment.vpn_ip());
    let told = desired.coordinators.values();
    let others = told.filter(|other| other.control_plane && other.vpn_ip != assignment.vpn_ip());
    let all = own.into_iter().chain(others.map(|other| other.vpn_ip));
    all.map(|vpn_ip| SocketAddrV4::new(vpn_ip, model::KUBERNETES_API_PORT)).collect()
}

async fn accept(listener: TcpListener, apiservers: impl Fn() -> Vec<SocketAddrV4>) -> io::Result<()> {
    let mut carried = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let (client, _peer) = accepted?;
                carried.spawn(carry(client, apiservers()));
            }
            Some(_ended) = carried.join_next() => {}
        }
    }
}

async fn carry(mut client: TcpStream, apiservers: Vec<SocketAddrV4>) {
    for address in apiservers {
        if let Ok(mut server) = TcpStream::connect(SocketAddr::from(address)).await {
            // Requests are small and answers awaited: nothing is gained by holding bytes back.
            let _latency_only = client.set_nodelay(true).and(server.set_nodelay(true));
            let _either_end_closed = copy_bidirectional(&mut client, &mut server).await;
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use cluster::desired::{DesiredShares, EtcdPart, KnownCoordinator};
    use cluster::record::Standing;
    use model::{Assignment, ClusterRole, ColdStart, Level, MachineId, NodeName, Prefixes};
    use tokio::io::AsyncReadExt;
    use tokio::sync::watch;

    use super::*;
    use crate::runtime::tasks;

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
        let _serving = tasks::spawn(async move { accept(front, move || seen.borrow().clone()).await });
        for server in [first, second] {
            known.send_replace(vec![address(&server)]);
            let mut client = TcpStream::connect(at).await.expect("the balancer listens");
            let accepted = tokio::time::timeout(Duration::from_secs(60), server.accept()).await;
            drop(accepted.expect("it goes there").expect("accepts"));
            assert_eq!(client.read(&mut [0]).await.expect("closed in order"), 0);
        }
    }
}
