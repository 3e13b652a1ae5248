//! Session with a machine's public API, by `cairnctl`'s dial, and calls over it. Believes whoever answers, which the owner's
//! tool never does; what is shown to the machine, the caller says.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use cairnctl::{Address, Stream, channel, handshake};
use model::PUBLIC_API_PORT;
use pki::PrivateKey;
use qemu::{Deadline, Vm};
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::time_provider::DefaultTimeProvider;
use tokio::net::TcpStream;
use tokio::runtime::Runtime;
use tokio::time::timeout;
use tonic::transport::Channel;

/// A client of the public API.
pub type PublicClient = api::public_client::PublicClient<Channel>;

/// Time that an attempt may take. A machine whose network is not up yet swallows the first packet, and QEMU sends the
/// next after seconds.
pub(crate) const ATTEMPT: Duration = Duration::from_secs(5);
/// Name that no machine has: every one answers to it.
const ANY: &str = "machine.cairn.internal";

/// Certificate that is shown to a machine.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Shown<'a> {
    None,
    /// An owner's, of this key.
    Owner(&'a PrivateKey),
    /// A machine's, of this key.
    Machine(&'a PrivateKey),
}

/// A session with a machine, and the thread that answers the machine's pings also while nobody calls.
#[derive(Debug)]
pub(crate) struct Client {
    runtime: Runtime,
    connection: Connection,
}

/// A channel, and what is known of the session below it.
#[derive(Debug)]
struct Connection {
    channel: Channel,
    port: u16,
    exporter: [u8; 32],
}

impl Client {
    /// Connects in one attempt, which may take so long.
    ///
    /// # Errors
    /// When nobody answers there by then. Whether the certificate is accepted shows at the first call.
    pub(crate) fn dial(address: SocketAddr, shown: Shown<'_>, patience: Duration) -> anyhow::Result<Self> {
        let runtime = runtime()?;
        let connection = runtime.block_on(async { timeout(patience, connect(address, shown)).await });
        let connection = connection.with_context(|| format!("nobody answers at {address}"))??;
        Ok(Self { runtime, connection })
    }

    /// Connects to the public API of `vm`, again and again until the deadline.
    ///
    /// # Errors
    /// When the machine forwards no port, ends, or does not answer in time.
    pub(crate) fn dial_until(vm: &Vm, shown: Shown<'_>, deadline: Deadline) -> anyhow::Result<Self> {
        let (runtime, address) = (runtime()?, public_api(vm)?);
        let connection = attempts(&runtime, vm, deadline, async || connect(address, shown).await)?;
        Ok(Self { runtime, connection })
    }

    /// The port it comes from; user networking keeps it, so the machine sees the same.
    pub(crate) fn port(&self) -> u16 {
        self.connection.port
    }

    /// Bytes that both ends of the session know, and nobody else.
    pub(crate) fn exporter(&self) -> &[u8; 32] {
        &self.connection.exporter
    }

    /// Makes calls over the channel.
    pub(crate) fn over<T>(&self, call: impl AsyncFnOnce(Channel) -> T) -> T {
        self.runtime.block_on(call(self.connection.channel.clone()))
    }

    /// Makes a call of the public API, or several, that have an answer by then.
    ///
    /// # Errors
    /// When there is none.
    pub(crate) fn within<T>(
        &self,
        answer: Duration,
        call: impl AsyncFnOnce(&mut PublicClient) -> T,
    ) -> anyhow::Result<T> {
        let answered = self.over(async |channel| timeout(answer, call(&mut PublicClient::new(channel))).await);
        answered.with_context(|| format!("no answer within {} s", answer.as_secs()))
    }
}

/// Where the host finds the public API of a machine.
///
/// # Errors
/// When its port is not forwarded.
pub fn public_api(vm: &Vm) -> anyhow::Result<SocketAddr> {
    vm.forward(PUBLIC_API_PORT).context("the public API's port is not forwarded")
}

/// Certificates that the machine shows in a handshake to whoever asks for `name`, leaf first.
///
/// # Errors
/// When the machine forwards no port, ends, or does not answer in time.
pub fn certificates(vm: &Vm, name: &str, deadline: Deadline) -> anyhow::Result<Vec<CertificateDer<'static>>> {
    let address = public_api(vm)?;
    let session = attempts(&runtime()?, vm, deadline, async || Ok(shake_hands(address, Shown::None, name).await?.0))?;
    let shown = session.get_ref().get_ref().1.peer_certificates().unwrap_or_default();
    Ok(shown.iter().map(|certificate| certificate.clone().into_owned()).collect())
}

/// A TLS session with whoever answers there, and nothing said behind the handshake.
pub(crate) async fn stranger(address: SocketAddr) -> anyhow::Result<Stream> {
    Ok(shake_hands(address, Shown::None, ANY).await?.0)
}

fn runtime() -> anyhow::Result<Runtime> {
    Ok(tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?)
}

/// Attempts until one succeeds.
fn attempts<T>(
    runtime: &Runtime,
    vm: &Vm,
    deadline: Deadline,
    attempt: impl AsyncFn() -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let mut last = None;
    let met = vm.until(deadline, || match runtime.block_on(async { timeout(ATTEMPT, attempt()).await }) {
        Ok(Ok(met)) => Some(met),
        Ok(Err(error)) => {
            last = Some(error);
            None
        }
        Err(_elapsed) => None,
    });
    match (met, last) {
        (Ok(met), _) => Ok(met),
        (Err(waited), Some(error)) => bail!("{waited}: {error:#}"),
        (Err(waited), None) => Err(waited.into()),
    }
}

async fn connect(address: SocketAddr, shown: Shown<'_>) -> anyhow::Result<Connection> {
    let (session, port) = shake_hands(address, shown, ANY).await?;
    let tls = session.get_ref().get_ref().1;
    let exporter = tls.export_keying_material([0; 32], keys::ticket::EXPORTER_LABEL, None)?;
    Ok(Connection { channel: channel(&address.into(), session).await?, port, exporter })
}

/// A TLS session with whoever answers there when asked for `name`, and the port it comes from.
async fn shake_hands(address: SocketAddr, shown: Shown<'_>, name: &str) -> anyhow::Result<(Stream, u16)> {
    let mut tls = pki::danger::first_contact(Arc::new(DefaultTimeProvider))?;
    let shown = match shown {
        Shown::None => None,
        Shown::Owner(key) => Some((pki::client_auth::owner_certificate(key)?, key)),
        Shown::Machine(key) => Some((pki::client_auth::machine_certificate(key)?, key)),
    };
    if let Some((certificate, key)) = shown {
        let key = PrivatePkcs8KeyDer::from(key.to_pkcs8()?.expose().to_vec()).into();
        let shown = CertifiedKey::from_der(vec![certificate], key, tls.crypto_provider())?;
        tls.client_auth_cert_resolver = Arc::new(SingleCertAndKey::from(shown));
    }
    let tcp = TcpStream::connect(address).await?;
    let port = tcp.local_addr()?.port();
    Ok((handshake(&Address::from(address), Box::new(tcp), tls, name).await?, port))
}
