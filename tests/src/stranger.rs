//! Somebody at the public API without the owner's tool: what a machine tells and refuses before authentication, and to
//! whoever shows this or that key.
//!
//! Believes whoever answers; the owner's tool never does.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, bail};
use api::PublicState;
use api::debug_client::DebugClient;
use api::wire::{FaultKind, GetStateRequest, InjectRequest};
use hyper_util::rt::TokioIo;
use pki::{Identity, PrivateKey};
use qemu::{Deadline, Vm};
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer, ServerName};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::time_provider::DefaultTimeProvider;
use tokio::net::TcpStream;
use tokio::runtime::Runtime;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::{Channel, Endpoint, Uri};
use tonic::{Request, Status};
use tonic_prost::ProstCodec;

use crate::public_api;

/// A client of the public API.
pub type PublicClient = api::public_client::PublicClient<Channel>;

/// Time that an attempt may take. A machine whose network is not up yet swallows the first packet, and QEMU sends the
/// next after seconds.
const ATTEMPT: Duration = Duration::from_secs(5);

/// A fault's answer takes seconds; one that never comes fails the case.
const FAULT: Duration = Duration::from_secs(300);

/// A connection to a machine, a stranger's unless it shows a key.
#[derive(Debug)]
pub struct Stranger {
    runtime: Runtime,
    channel: Channel,
    /// Where a stranger's connects anew: a machine bears it for seconds only.
    again: Option<SocketAddr>,
    port: u16,
}

impl Stranger {
    /// Connects to the public API of `vm`, again and again until the deadline.
    ///
    /// # Errors
    /// When the machine forwards no port, ends, or does not answer in time.
    pub fn meet(vm: &Vm, deadline: Deadline) -> anyhow::Result<Self> {
        Self::meet_as(vm, None, deadline)
    }

    /// The same, showing an owner's certificate of `key`.
    ///
    /// # Errors
    /// As above. Whether the machine accepts it shows at the first call: in TLS 1.3 it looks at it afterwards.
    pub fn meet_as(vm: &Vm, key: Option<&PrivateKey>, deadline: Deadline) -> anyhow::Result<Self> {
        let address = public_api(vm)?;
        // A thread of its own, so that the machine's pings are answered also while nobody calls.
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let mut last = None;
        let met = vm.until(deadline, || {
            let attempt = runtime.block_on(async { timeout(ATTEMPT, connect(address, key)).await });
            match attempt {
                Ok(Ok(met)) => Some(met),
                Ok(Err(error)) => {
                    last = Some(error);
                    None
                }
                Err(_elapsed) => None,
            }
        });
        match (met, last) {
            (Ok((channel, port)), _) => Ok(Self { runtime, channel, again: key.is_none().then_some(address), port }),
            (Err(waited), Some(error)) => bail!("{waited}: {error:#}"),
            (Err(waited), None) => Err(waited.into()),
        }
    }

    /// Connects to that place in one attempt, showing an owner's certificate of `key`, if there is one.
    ///
    /// # Errors
    /// When it does not answer within seconds.
    pub fn call_at(address: SocketAddr, key: Option<&PrivateKey>) -> anyhow::Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let met = runtime.block_on(async { timeout(ATTEMPT, connect(address, key)).await });
        let (channel, port) = met.with_context(|| format!("nobody answers at {address}"))??;
        Ok(Self { runtime, channel, again: key.is_none().then_some(address), port })
    }

    /// The port it comes from; user networking keeps it, so the machine sees the same.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Makes a call, or several.
    pub fn call<T>(&mut self, call: impl AsyncFnOnce(&mut PublicClient) -> T) -> T {
        let mut client = PublicClient::new(self.channel.clone());
        self.runtime.block_on(call(&mut client))
    }

    /// An empty request to the method at `path`, as the protocol names it: `/package.Service/Method`.
    ///
    /// # Errors
    /// What the machine answers but success.
    pub fn call_empty(&mut self, path: &'static str) -> Result<(), Status> {
        let mut client = Grpc::new(self.channel.clone());
        self.runtime.block_on(async {
            client.ready().await.map_err(|error| Status::unavailable(error.to_string()))?;
            let codec = ProstCodec::<(), ()>::default();
            client.unary(Request::new(()), PathAndQuery::from_static(path), codec).await.map(drop)
        })
    }

    /// Has a fault injected; what the machine saw of it. Only the owner can, and only in the debug profile.
    ///
    /// # Errors
    /// What the machine answers but success.
    pub fn inject(&mut self, kind: FaultKind, argument: &str) -> Result<String, Status> {
        let mut client = DebugClient::new(self.channel.clone());
        let request = InjectRequest { kind: kind.into(), argument: argument.into() };
        let answer = self.runtime.block_on(async { timeout(FAULT, client.inject(request)).await });
        let late = |_elapsed| Status::deadline_exceeded(format!("no answer within {} s", FAULT.as_secs()));
        Ok(answer.map_err(late)??.into_inner().outcome)
    }

    /// State that the machine tells anybody. Where it has ended the connection of somebody without a key, over a new
    /// one.
    ///
    /// # Errors
    /// When it does not.
    pub fn state(&mut self) -> anyhow::Result<PublicState> {
        let ask = async |client: &mut PublicClient| client.get_state(GetStateRequest {}).await;
        let answer = match (self.call(ask), self.again) {
            (Err(_ended), Some(address)) => {
                let met = self.runtime.block_on(async { timeout(ATTEMPT, connect(address, None)).await });
                (self.channel, self.port) = met??;
                self.call(ask)?
            }
            (answer, _) => answer?,
        };
        Ok(answer.into_inner().try_into()?)
    }
}

/// Certificates that the machine shows in a handshake to whoever asks for `name`, leaf first.
///
/// # Errors
/// When the machine forwards no port, ends, or does not answer in time.
pub fn certificates(vm: &Vm, name: &str, deadline: Deadline) -> anyhow::Result<Vec<CertificateDer<'static>>> {
    let address = public_api(vm)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let attempt = || runtime.block_on(async { timeout(ATTEMPT, shake_hands(address, None, name)).await }).ok()?.ok();
    let session = vm.until(deadline, attempt)?;
    let shown = session.get_ref().1.peer_certificates().unwrap_or_default();
    Ok(shown.iter().map(|certificate| certificate.clone().into_owned()).collect())
}

async fn connect(address: SocketAddr, owner: Option<&PrivateKey>) -> anyhow::Result<(Channel, u16)> {
    let shown = |key| anyhow::Ok(Identity { chain: vec![pki::client_auth::owner_certificate(key)?], key });
    let session = shake_hands(address, owner.map(shown).transpose()?, "machine.cairn.internal").await?;
    let port = session.get_ref().0.local_addr()?.port();
    Ok((channel(session).await?, port))
}

/// A TLS session with whoever answers there when asked for `name`.
pub(crate) async fn shake_hands(
    address: SocketAddr,
    shown: Option<Identity<'_>>,
    name: &str,
) -> anyhow::Result<TlsStream<TcpStream>> {
    let mut tls = pki::danger::first_contact(Arc::new(DefaultTimeProvider))?;
    if let Some(Identity { chain, key }) = shown {
        let key = PrivatePkcs8KeyDer::from(key.to_pkcs8()?.expose().to_vec()).into();
        let shown = CertifiedKey::from_der(chain, key, tls.crypto_provider())?;
        tls.client_auth_cert_resolver = Arc::new(SingleCertAndKey::from(shown));
    }
    tls.alpn_protocols = vec![b"h2".to_vec()];
    let tcp = TcpStream::connect(address).await?;
    let name = ServerName::try_from(name.to_owned())?;
    Ok(TlsConnector::from(Arc::new(tls)).connect(name, tcp).await?)
}

/// HTTP/2 over one session.
pub(crate) async fn channel(session: TlsStream<TcpStream>) -> anyhow::Result<Channel> {
    let session = Mutex::new(Some(session));
    let once = tower::service_fn(move |_: Uri| {
        let session = session.lock().unwrap_or_else(PoisonError::into_inner).take();
        let stream: io::Result<TokioIo<TlsStream<TcpStream>>> =
            session.map(TokioIo::new).ok_or_else(|| io::ErrorKind::NotConnected.into());
        std::future::ready(stream)
    });
    Ok(Endpoint::from_static("https://machine.cairn.internal").connect_with_connector(once).await?)
}
