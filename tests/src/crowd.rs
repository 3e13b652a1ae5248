//! Many strangers at the public API at once, for as long as a case wants: each does one thing that costs a machine
//! something, and comes back as soon as it is thrown out.

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::Context as _;
use cairnctl::channel;
use qemu::deadline::Stopwatch;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tonic::body::Body;
use tonic::codegen::Bytes;
use tonic::codegen::http::Request;
use tonic::transport::Channel;
use tower::Service as _;

use crate::client::stranger;

/// Manner in which each of a crowd behaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Manner {
    /// Connects and says nothing.
    Silent,
    /// Finishes the TLS handshake and says nothing.
    SilentBehindTls,
    /// Finishes the TLS handshake and hangs up.
    HangsUp,
    /// Begins 32 calls of `GetState` and sends 60 KiB of each request, which is announced as a little longer.
    HalfSent,
}

/// Counts of what became of a crowd so far.
#[derive(Debug, Default)]
struct Counts {
    handshakes: AtomicU64,
    thrown_out: AtomicU64,
    longest_ms: AtomicU64,
}

/// A crowd; goes home when dropped.
#[derive(Debug)]
pub struct Crowd {
    tasks: Handle,
    counts: Arc<Counts>,
    end: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// Pause before a stranger comes back, so that the host is not kept busy by refusals.
const AGAIN: Duration = Duration::from_millis(300);
/// Calls that each of [`Manner::HalfSent`] begins.
const CALLS: usize = 32;
/// Bytes that are sent of each call's request.
const SENT: usize = 60 << 10;

impl Crowd {
    /// A crowd of nobody yet.
    ///
    /// # Errors
    /// When the host has no thread for it.
    pub fn gather() -> anyhow::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (tasks, (end, ended)) = (runtime.handle().clone(), oneshot::channel());
        let crowd = move || {
            // Either way it is over.
            let _told = runtime.block_on(ended);
            runtime.shutdown_background();
        };
        let thread = std::thread::Builder::new().name("crowd".into()).spawn(crowd).context("start a crowd")?;
        Ok(Self { tasks, counts: Arc::default(), end: Some(end), thread: Some(thread) })
    }

    /// This many more who do that at `address`, again and again.
    pub fn more(&self, how_many: usize, address: SocketAddr, manner: Manner) {
        for _ in 0..how_many {
            let counts = Arc::clone(&self.counts);
            self.tasks.spawn(async move {
                loop {
                    // Refused or thrown out: it comes back.
                    let _either_way = visit(address, manner, &counts).await;
                    tokio::time::sleep(AGAIN).await;
                }
            });
        }
    }

    /// Handshakes that were finished so far.
    #[must_use]
    pub fn handshakes(&self) -> u64 {
        self.counts.handshakes.load(Ordering::Relaxed)
    }

    /// How many connections the machine has ended by itself so far, and how long it bore the longest of these.
    #[must_use]
    pub fn thrown_out(&self) -> (u64, Duration) {
        let longest = Duration::from_millis(self.counts.longest_ms.load(Ordering::Relaxed));
        (self.counts.thrown_out.load(Ordering::Relaxed), longest)
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        self.end = None;
        if let Some(thread) = self.thread.take() {
            // Its panic has been reported by the thread itself.
            let _ended = thread.join();
        }
    }
}

async fn visit(address: SocketAddr, manner: Manner, counts: &Counts) -> anyhow::Result<()> {
    let begun = if manner == Manner::Silent {
        let mut stream = TcpStream::connect(address).await?;
        let begun = Stopwatch::start();
        let _closed_or_reset = stream.read(&mut [0]).await;
        begun
    } else {
        let mut session = stranger(address).await?;
        let begun = Stopwatch::start();
        counts.handshakes.fetch_add(1, Ordering::Relaxed);
        match manner {
            Manner::HangsUp => return Ok(()),
            Manner::HalfSent => begin_calls(channel(&address.into(), session).await?).await,
            Manner::Silent | Manner::SilentBehindTls => {
                // Settings may come first.
                while matches!(session.read(&mut [0; 256]).await, Ok(1..)) {}
            }
        }
        begun
    };
    let borne = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
    counts.thrown_out.fetch_add(1, Ordering::Relaxed);
    counts.longest_ms.fetch_max(borne, Ordering::Relaxed);
    Ok(())
}

/// Until the connection is gone: for each call that was answered, another one.
async fn begin_calls(mut connection: Channel) {
    let mut calls = tokio::task::JoinSet::new();
    loop {
        if calls.len() == CALLS && calls.join_next().await.is_some_and(|ended| !matches!(ended, Ok(Ok(_answer)))) {
            return;
        }
        let request = Request::post("https://machine.cairn.internal/cairn.v1.Public/GetState")
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            .body(Body::new(Half(Some(half()))))
            .expect("well-formed");
        if std::future::poll_fn(|cx| connection.poll_ready(cx)).await.is_err() {
            return;
        }
        calls.spawn(connection.call(request));
    }
}

/// A message's head, which announces 64 KiB, and most of it.
fn half() -> Bytes {
    let mut message = vec![0, 0, 1, 0, 0];
    message.resize(message.len() + SENT, 0);
    message.into()
}

/// A request's body that never ends.
struct Half(Option<Bytes>);

impl tonic::codegen::Body for Half {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<http_body::Frame<Bytes>, Self::Error>>> {
        self.0.take().map_or(Poll::Pending, |bytes| Poll::Ready(Some(Ok(http_body::Frame::data(bytes)))))
    }
}
