//! Somebody between a machine and its owner: ends TLS on both sides, shows a certificate of its own, and passes on all
//! that is said.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use anyhow::Context as _;
use pki::client_auth::{Owners, nameless_certificate, server_config};
use pki::{PrivateKey, TlsIdentity};
use qemu::{Deadline, Vm};
use rustls::pki_types::ServerName;
use rustls::time_provider::DefaultTimeProvider;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio_rustls::{TlsAcceptor, TlsConnector};

use crate::public_api;

/// A relay before the public API of one machine.
#[derive(Debug)]
pub struct Relay {
    runtime: Runtime,
    listener: TcpListener,
    machine: SocketAddr,
}

impl Relay {
    /// Listens in the place of `vm`.
    ///
    /// # Errors
    /// When the machine forwards no port, or there is no free one.
    pub fn before(vm: &Vm) -> anyhow::Result<Self> {
        let machine = public_api(vm)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let listener = runtime.block_on(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)))?;
        Ok(Self { runtime, listener, machine })
    }

    /// Where it listens.
    ///
    /// # Errors
    /// None in practice: it has been bound.
    pub fn address(&self) -> anyhow::Result<SocketAddr> {
        Ok(self.listener.local_addr()?)
    }

    /// Takes one connection and passes on what both sides say until one of them hangs up.
    ///
    /// # Errors
    /// When nobody calls in time, or a handshake fails.
    pub fn pass_on(&self, deadline: Deadline) -> anyhow::Result<()> {
        let left = deadline.left().unwrap_or_default();
        self.runtime.block_on(async { tokio::time::timeout(left, self.one()).await.context("nobody has called")? })
    }

    async fn one(&self) -> anyhow::Result<()> {
        let key = PrivateKey::generate()?;
        let identity = TlsIdentity { chain: vec![nameless_certificate(&key)?], key: &key };
        let mut ours = server_config(identity, None, Owners::default(), Arc::new(DefaultTimeProvider))?;
        let mut theirs = pki::danger::first_contact(Arc::new(DefaultTimeProvider))?;
        for protocols in [&mut ours.alpn_protocols, &mut theirs.alpn_protocols] {
            *protocols = vec![b"h2".to_vec()];
        }
        let (caller, _from) = self.listener.accept().await?;
        let mut caller = TlsAcceptor::from(Arc::new(ours)).accept(caller).await.context("the caller's handshake")?;
        let machine = TcpStream::connect(self.machine).await?;
        let name = ServerName::try_from("machine.cairn.internal")?;
        let mut machine = TlsConnector::from(Arc::new(theirs)).connect(name, machine).await.context("the machine's")?;
        // Whoever hangs up without a word is an error to TLS, and the end to us.
        let _hung_up = tokio::io::copy_bidirectional(&mut caller, &mut machine).await;
        Ok(())
    }
}
