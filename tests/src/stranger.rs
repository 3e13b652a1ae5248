//! Somebody without any key, at the public API: what a machine tells and refuses before authentication.
//!
//! Believes whoever answers; the owner's tool never does.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, bail};
use api::PublicState;
use api::public_client::PublicClient;
use api::wire::GetStateRequest;
use hyper_util::rt::TokioIo;
use qemu::{Deadline, Vm};
use rustls::pki_types::ServerName;
use rustls::time_provider::DefaultTimeProvider;
use tokio::net::TcpStream;
use tokio::runtime::Runtime;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tonic::transport::{Channel, Endpoint, Uri};

/// One attempt. A machine whose network is not up yet swallows the first packet, and QEMU sends the next after seconds.
const ATTEMPT: Duration = Duration::from_secs(5);

/// An anonymous connection to a machine.
#[derive(Debug)]
pub struct Stranger {
    runtime: Runtime,
    client: PublicClient<Channel>,
}

impl Stranger {
    /// Connects to the public API of `vm`, again and again until the deadline.
    ///
    /// # Errors
    /// When the machine forwards no port, ends, or does not answer in time.
    pub fn meet(vm: &Vm, deadline: Deadline) -> anyhow::Result<Self> {
        let address = vm.forward(model::PUBLIC_API_PORT).context("the public API's port is not forwarded")?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let mut last = None;
        let met = vm.until(deadline, || {
            let attempt = runtime.block_on(async { tokio::time::timeout(ATTEMPT, connect(address)).await });
            match attempt {
                Ok(Ok(client)) => Some(client),
                Ok(Err(error)) => {
                    last = Some(error);
                    None
                }
                Err(_elapsed) => None,
            }
        });
        match (met, last) {
            (Ok(client), _) => Ok(Self { runtime, client }),
            (Err(waited), Some(error)) => bail!("{waited}: {error:#}"),
            (Err(waited), None) => Err(waited.into()),
        }
    }

    /// One call.
    pub fn call<T>(&mut self, call: impl AsyncFnOnce(&mut PublicClient<Channel>) -> T) -> T {
        self.runtime.block_on(call(&mut self.client))
    }

    /// What the machine tells anybody.
    ///
    /// # Errors
    /// When it does not.
    pub fn state(&mut self) -> anyhow::Result<PublicState> {
        let answer = self.call(async |client| client.get_state(GetStateRequest {}).await)?;
        Ok(answer.into_inner().try_into()?)
    }
}

async fn connect(address: SocketAddr) -> anyhow::Result<PublicClient<Channel>> {
    let mut tls = pki::danger::first_contact(Arc::new(DefaultTimeProvider))?;
    tls.alpn_protocols = vec![b"h2".to_vec()];
    let tcp = TcpStream::connect(address).await?;
    let session =
        TlsConnector::from(Arc::new(tls)).connect(ServerName::try_from("machine.cairn.internal")?, tcp).await?;
    let session = Mutex::new(Some(session));
    let once = tower::service_fn(move |_: Uri| {
        let session = session.lock().unwrap_or_else(PoisonError::into_inner).take();
        let stream: io::Result<TokioIo<TlsStream<TcpStream>>> =
            session.map(TokioIo::new).ok_or_else(|| io::ErrorKind::NotConnected.into());
        std::future::ready(stream)
    });
    let channel = Endpoint::from_static("https://machine.cairn.internal").connect_with_connector(once).await?;
    Ok(PublicClient::new(channel))
}
