//! Network of the floor as its host needs it: addresses, and a way to the apiserver.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use benches::floor::{ADDRESS, LINK};
use model::KUBERNETES_API_PORT;
use rtnetlink::LinkUnspec;
use rustix::net::{AddressFamily, SocketType, socket};
use services::ServicePlan;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use crate::Error;

/// The VPN address on loopback, the public one on the only card; both links up.
pub(crate) async fn addresses(plan: &ServicePlan, tasks: &mut JoinSet<Result<(), Error>>) -> Result<(), Error> {
    let failed = |error: io::Error| Error::System("open the kernel's routing socket", error);
    let (connection, handle, _multicast) = rtnetlink::new_connection().map_err(failed)?;
    tasks.spawn(async move {
        connection.await;
        Ok(())
    });
    let any = socket(AddressFamily::INET, SocketType::DGRAM, None).map_err(|error| failed(error.into()))?;
    for (link, address, bits) in [("lo", plan.vpn(), 32), (LINK, ADDRESS, 24)] {
        let index = rustix::net::netdevice::name_to_index(&any, link)
            .map_err(|error| Error::System("find a link", error.into()))?;
        let up = LinkUnspec::new_with_index(index).up().build();
        handle.link().set(up).execute().await.map_err(|error| Error::Network("bring a link up", error))?;
        let added = handle.address().add(index, IpAddr::from(address), bits).execute().await;
        added.map_err(|error| Error::Network("add an address", error))?;
    }
    Ok(())
}

/// Carries connections of the host to the apiserver, which listens on the VPN address only. Cairn's public API does as
/// much for its tunnel.
pub(crate) async fn relay(vpn: Ipv4Addr) -> Result<(), Error> {
    let failed = |error| Error::System("relay to the apiserver", error);
    let listener = TcpListener::bind((ADDRESS, KUBERNETES_API_PORT)).await.map_err(failed)?;
    let server = SocketAddr::from((vpn, KUBERNETES_API_PORT));
    let mut carried = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let (client, _peer) = accepted.map_err(failed)?;
                carried.spawn(carry(client, server));
            }
            Some(_ended) = carried.join_next() => {}
        }
    }
}

async fn carry(mut client: TcpStream, server: SocketAddr) {
    if let Ok(mut server) = TcpStream::connect(server).await {
        let _latency_only = client.set_nodelay(true).and(server.set_nodelay(true));
        let _either_end_closed = copy_bidirectional(&mut client, &mut server).await;
    }
}
