//! Pages of OpenMetrics, for owners and for coordinators: of the machine, and of services, which speak Prometheus' text. One page is made
//! at a time, whoever asks, since the machine holds it until it is read.

use std::time::Duration;

use api::{Service, wire};
use model::Chain;
use pki::client_auth::Who;
use probe::http::Session;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_stream::StreamExt;
use tonic::{Request, Status};

use super::context::Context;
use super::streams::{self, Answers};
use super::{convert, person};
use crate::runtime::services::MetricsPage;
use crate::runtime::{clock, tasks};
use crate::shown::counted::{self, OwnUse};

/// Longest time until one's turn has come, and for a reader to take a page.
const TURN: Duration = Duration::from_secs(5);

/// Tells the page that is asked for, piece by piece.
///
/// # Errors
/// When the caller may not have it, or nothing answers with one.
pub(super) async fn tell(
    context: &Context,
    request: Request<wire::MetricsRequest>,
) -> Result<Answers<wire::MetricsResponse>, Status> {
    if let Some(Who::Machine(key)) = request.extensions().get() {
        context.reach.coordinator(*key)?;
    } else {
        person::owner(&request)?;
    }
    let busy = || Status::resource_exhausted("others read pages of this machine; nothing was done; try again");
    let turn = timeout(TURN, context.reach.pages.clone().acquire_owned()).await.map_err(|_elapsed| busy())?;
    let turn = turn.map_err(|_closed| busy())?;
    let page = page(context, &request.into_inner().service).await?;
    let (pieces, told) = mpsc::channel(1);
    let telling = tasks::spawn(async move {
        let tell = async {
            for piece in page.as_bytes().chunks(api::limits::TUNNEL_CHUNK) {
                if pieces.send(Ok(piece.to_vec())).await.is_err() {
                    return;
                }
            }
        };
        let told = timeout(TURN, tell).await;
        drop((page, turn));
        if told.is_err() {
            let _may_have_left = pieces.send(Err(Status::deadline_exceeded("the page was not read in time"))).await;
        }
    });
    let answers = streams::kept(told, telling);
    Ok(Box::pin(answers.map(|piece| piece.map(|data| wire::MetricsResponse { data }))))
}

async fn page(context: &Context, service: &str) -> Result<String, Status> {
    if service.is_empty() {
        let status = context.status()?;
        let services: Vec<Service> = context.panel.snapshots().into_iter().map(convert::service).collect();
        return Ok(counted::page(&status, OwnUse { cpu: clock::cpu(), resident: resident()? }, &services));
    }
    for tree in context.panel.trees() {
        match tree.metrics(service).await {
            Ok(Some(page)) => return fetched(service, page).await,
            Ok(None) => return Err(Status::not_found(format!("`{service}` has no page here; nothing was done"))),
            Err(_unknown) => {}
        }
    }
    Err(Status::not_found(format!("no service `{service}`; nothing was done; `cairnctl machine services` lists them")))
}

/// Bytes of PID 1 that are in memory.
///
/// # Errors
/// The kernel does not tell.
pub(super) fn resident() -> Result<u64, Status> {
    sys::memory::resident().map_err(|error| Status::internal(format!("read PID 1's memory: {error}")))
}

/// Page of a service, as OpenMetrics.
async fn fetched(service: &str, MetricsPage { server, path }: MetricsPage) -> Result<String, Status> {
    let answer = Session::with(server).get(path).await;
    let answer =
        answer.map_err(|error| Status::unavailable(format!("`{service}` does not answer: {}", Chain(&error))))?;
    if answer.status != 200 {
        return Err(Status::unavailable(format!("`{service}` answers {}", answer.status)));
    }
    let text =
        std::str::from_utf8(&answer.body).map_err(|_| Status::internal(format!("`{service}` answers no text")))?;
    openmetrics::translate(text)
        .map_err(|bad| Status::internal(format!("`{service}` does not speak its format: {bad}")))
}

#[cfg(test)]
mod tests {
    use model::MachinePubKey;
    use pki::PublicKey;
    use probe::http::LocalServer;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;
    use tonic::Code;

    use super::*;
    use crate::rpc::world::Machine;

    fn asked_by(who: Who, service: &str) -> Request<wire::MetricsRequest> {
        let mut request = Request::new(wire::MetricsRequest { service: service.to_owned() });
        request.extensions_mut().insert(who);
        request
    }

    fn owner() -> Who {
        Who::Owner(PublicKey::from_ed25519([1; 32]))
    }

    async fn told(answers: Answers<wire::MetricsResponse>) -> Result<String, Status> {
        let pieces: Vec<_> = answers.collect().await;
        let pieces = pieces.into_iter().map(|piece| Ok(piece?.data)).collect::<Result<Vec<_>, Status>>()?;
        Ok(String::from_utf8(pieces.concat()).expect("text"))
    }

    /// Page that a service answers with this.
    async fn of_a_service(status: u16, body: &str) -> Result<String, Status> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("loopback has ports");
        let server = LocalServer { address: listener.local_addr().expect("it is bound"), tls: None };
        let serving = async {
            let (mut stream, _) = listener.accept().await.expect("a connection");
            let mut request = Vec::new();
            while !request.ends_with(b"\r\n\r\n") {
                request.push(stream.read_u8().await.expect("a request"));
            }
            assert!(request.starts_with(b"GET /metrics "), "{}", String::from_utf8_lossy(&request));
            let answer = format!("HTTP/1.1 {status} x\r\ncontent-length: {}\r\n\r\n{body}", body.len());
            stream.write_all(answer.as_bytes()).await.expect("the client reads");
        };
        tokio::join!(serving, fetched("etcd", MetricsPage { server, path: "/metrics" })).1
    }

    /// Proves: Q3
    #[tokio::test]
    async fn a_machine_counts_what_runs_on_it() {
        let machine = Machine::running();
        let page = told(tell(&machine.context, asked_by(owner(), "")).await.expect("a page")).await.expect("whole");
        let read = testkit::openmetrics::read(&page).expect("a page");
        assert_eq!(read.values("cairn_machine_info", &[]).count(), 1, "{page}");
        for own in ["process_cpu_seconds_total", "process_resident_memory_bytes"] {
            assert!(read.values(own, &[]).any(|value| value > 0.0), "{page}");
        }
        let again = told(tell(&machine.context, asked_by(owner(), "")).await.expect("its turn")).await;
        assert!(again.is_ok(), "a page that was read is in nobody's way");
    }

    /// Proves: Q1 Q3
    #[tokio::test(start_paused = true)]
    async fn a_page_is_told_to_who_may_have_it_and_one_at_a_time() {
        let machine = Machine::running();
        let code = async |who, service| tell(&machine.context, asked_by(who, service)).await.err().map(|it| it.code());
        let stranger = Who::Machine(MachinePubKey([9; 32]));
        assert_eq!(code(stranger, "").await, Some(Code::FailedPrecondition), "it holds no directory");
        assert_eq!(code(owner(), "nothing").await, Some(Code::NotFound));
        let unread = tell(&machine.context, asked_by(owner(), "")).await.expect("a page");
        let _taken = machine.context.reach.pages.clone().acquire_owned().await;
        assert_eq!(code(owner(), "").await, Some(Code::ResourceExhausted));
        drop(unread);
    }

    /// Proves: Q3
    #[tokio::test]
    async fn what_a_service_says_becomes_a_page() {
        let page = of_a_service(200, "# TYPE a_total counter\na_total 1\n").await;
        assert_eq!(page.expect("a page"), "# TYPE a counter\na_total 1\n# EOF\n");
        let none = of_a_service(200, "<html>").await.expect_err("no page");
        assert_eq!(none.message(), "`etcd` does not speak its format: line 1 of its page is no sample");
        let refused = of_a_service(403, "who asks?").await.expect_err("no page");
        assert_eq!((refused.code(), refused.message()), (Code::Unavailable, "`etcd` answers 403"));
    }
}
