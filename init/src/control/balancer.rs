//! The way of this machine's Kubernetes clients to the Kubernetes API: loopback, balanced over the coordinators.
//! It carries bytes; TLS is between the two ends.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// Serves 127.0.0.1:6443 for good: each connection goes to the first of `coordinators` that accepts.
pub(crate) async fn serve(coordinators: Vec<SocketAddrV4>) -> io::Result<()> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, model::KUBERNETES_API_PORT)).await?;
    let mut carried = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let (client, _peer) = accepted?;
                carried.spawn(carry(client, coordinators.clone()));
            }
            Some(_ended) = carried.join_next() => {}
        }
    }
}

async fn carry(mut client: TcpStream, coordinators: Vec<SocketAddrV4>) {
    for address in coordinators {
        if let Ok(mut server) = TcpStream::connect(SocketAddr::from(address)).await {
            // Requests are small and answers awaited: nothing is gained by holding bytes back.
            let _latency_only = client.set_nodelay(true).and(server.set_nodelay(true));
            let _either_end_closed = copy_bidirectional(&mut client, &mut server).await;
            return;
        }
    }
}
