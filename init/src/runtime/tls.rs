//! TLS as this machine uses it: certificates are checked against its clock, and clients of gRPC connect by it.

use std::io;
use std::net::SocketAddrV4;
use std::sync::Arc;

use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::pki_types::{ServerName, UnixTime};
use rustls::time_provider::TimeProvider;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tonic::transport::{Channel, Endpoint, Uri};
use tower::service_fn;

use crate::runtime::clock;

/// The machine's clock as rustls asks it.
#[derive(Debug)]
pub(crate) struct Clock;

impl TimeProvider for Clock {
    fn current_time(&self) -> Option<UnixTime> {
        Some(UnixTime::since_unix_epoch(clock::unix()))
    }
}

/// A client's connection to `address`, where the server is to be `name`; made when something is asked, and made again when
/// it is lost. The authority of `endpoint` says nothing: TLS says whom we speak to.
pub(crate) fn channel(
    endpoint: &Endpoint,
    address: SocketAddrV4,
    name: ServerName<'static>,
    mut tls: ClientConfig,
) -> Channel {
    tls.alpn_protocols = vec![b"h2".to_vec()];
    let tls = TlsConnector::from(Arc::new(tls));
    let connect = service_fn(move |_: Uri| {
        let (tls, name) = (tls.clone(), name.clone());
        async move {
            let tcp = TcpStream::connect(address).await?;
            tcp.set_nodelay(true)?;
            Ok::<_, io::Error>(TokioIo::new(tls.connect(name, tcp).await?))
        }
    });
    endpoint.connect_with_connector_lazy(connect)
}
