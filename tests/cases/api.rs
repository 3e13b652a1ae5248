//! Shows that the public API serves its owner and nobody else, whatever others try.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::Duration;

use crate::{
    Case, CommandRefusal, Context, Prerequisite, Relay, Starts, Stranger, certificates, public_api, wait_state,
};
use anyhow::{Context as _, bail, ensure};
use api::Profile;
use api::access::{Permission, TABLE};
use api::wire::{ClaimRequest, FaultKind, LogsRequest, RestartServiceRequest};
use model::MachineState;
use pki::{CertificateDer, PrivateKey};
use qemu::Vm;
use qemu::deadline::Stopwatch;
use serde_json::Value;
use tonic::{Code, Status};

use super::victim::{MEMBER, VICTIM, Victim};

pub(crate) const CASES: &[Case] = &[
    case("what the owner changes is written down", &["Q1"], audited),
    case("a refused stranger is written down, and not as the owner", &["Q1"], refusal_audited),
    case("without a certificate only GetState and Claim are answered", &["A8", "Q1"], strangers),
    Case {
        starts: Starts::From(VICTIM),
        ..case("without a certificate nothing is injected either", &["A8", "Q1"], injects_nothing)
    },
    case("a handshake without the machine's name tells nothing of it", &["A8"], nameless),
    case("a certificate that is not the owner's is refused", &["Q1", "S12"], wrong_certificate),
    case("a caller without TLS is cut off in 5 s, and logged rarely", &["Q1"], no_tls),
    case("an oversized message is refused", &["Q1"], oversized),
    case("logs are read by service, and the last lines of one", &["Q2"], logs),
    case("logs are read from a time on", &["Q2"], logs_since),
    case("who follows a log sees what comes", &["Q2"], logs_followed),
    Case {
        name: "claim ends for good with the owner's first call",
        proves: &["S12"],
        needs: &[],
        starts: Starts::Cold,
        run: claim,
    },
    Case {
        name: "neither a relay nor an impostor is believed",
        proves: &["S12"],
        needs: &[],
        starts: Starts::Cold,
        run: between,
    },
];

const STATUS: &str = "/cairn.v1.Public/Status";
/// Exit code of `cairnctl` for what it does not trust.
const REFUSED: i32 = 4;
/// Time that a machine gives a handshake.
const HANDSHAKE: Duration = Duration::from_secs(5);
/// Time by which a handshake may seem short: it begins when the machine takes the connection, which the host's side of
/// it may not know at once.
const BEGUN: Duration = Duration::from_secs(1);
/// Time that a busy host may take to see the end of a handshake.
const SEEN: Duration = Duration::from_secs(3);
/// Between two lines about one source.
const QUIET_MS: u64 = 60_000;

const fn case(name: &'static str, proves: &'static [&'static str], run: fn(&Context) -> anyhow::Result<()>) -> Case {
    Case { name, proves, needs: &[Prerequisite::Swtpm], starts: Starts::From(MEMBER), run }
}

fn strangers(t: &Context) -> anyhow::Result<()> {
    let victim = Victim::copy_of(t, MEMBER)?;
    let mut anyone = Stranger::meet(&victim.vm, t.within(10))?;
    let (first, second) = (anyone.state()?, anyone.state()?);
    ensure!(first.nonce != second.nonce, "a nonce is fresh per call");
    for row in TABLE.iter().filter(|row| [Permission::Owner, Permission::User].contains(&row.permission)) {
        let code = anyone.call_empty(row.path).map_err(|status| status.code());
        let refused = match (row.profile, row.states.contains(&MachineState::Running)) {
            // A release has no such method.
            (Profile::Debug, _) => Code::Unimplemented,
            (Profile::Release, true) => Code::Unauthenticated,
            // The state is public, and looked at first: some methods are for machines that wait.
            (Profile::Release, false) => Code::FailedPrecondition,
        };
        ensure!(code == Err(refused), "{}: {code:?}", row.path);
    }
    let code = anyone.call_empty("/cairn.v1.Public/Shell").map_err(|status| status.code());
    ensure!(code == Err(Code::Unimplemented), "{code:?}");
    Ok(())
}

/// The debug profile has the method, and the owner alone may call it.
fn injects_nothing(t: &Context) -> anyhow::Result<()> {
    let mut victim = Victim::copy(t)?;
    let refused = Stranger::meet(&victim.vm, t.within(10))?.inject(FaultKind::Children, "0").map_err(|why| why.code());
    ensure!(refused == Err(Code::Unauthenticated), "{refused:?}");
    victim.session.inject(FaultKind::Children, "0").map(drop).context("the owner may")
}

fn nameless(t: &Context) -> anyhow::Result<()> {
    let victim = Victim::copy_of(t, MEMBER)?;
    let told = victim.status()?;
    let (machine, cluster) = (told.machine_id, told.cluster_id);
    let name = format!("{machine}.{cluster}.cairn.internal");
    let says = |shown: &[CertificateDer<'_>], word: &str| {
        shown.iter().any(|certificate| certificate.windows(word.len()).any(|part| part == word.as_bytes()))
    };
    let own = certificates(&victim.vm, &name, t.within(10))?;
    ensure!(own.len() == 2 && says(&own, &name), "who knows its name sees its certificate and its cluster's");
    let other = format!("{}.{cluster}.cairn.internal", "0".repeat(32));
    for guess in ["127.0.0.1", "machine.cairn.internal", &machine, &other] {
        let shown = certificates(&victim.vm, guess, t.within(10))?;
        let [nameless] = &shown[..] else { bail!("{} certificates for {guess}", shown.len()) };
        for word in [machine.as_str(), &cluster, "cairn", "coordinator"] {
            ensure!(!says(&shown, word), "`{word}` for {guess}");
        }
        ensure!(pki::public_key_of(nameless)? != pki::public_key_of(&own[0])?, "the name is made of that key");
    }
    Ok(())
}

fn audited(t: &Context) -> anyhow::Result<()> {
    let victim = Victim::copy_of(t, MEMBER)?;
    // What made the machine may have left such lines, so only what is new counts: one more of the owner's.
    let before = issues(&victim)?;
    // A copy was away for a while, and changes nothing before its etcd has a leader again.
    victim.vm.until(t.within(10), || victim.ask(&["ticket", "issue"]).ok()).context("a ticket is issued")?;
    let after = issues(&victim)?;
    ensure!(after == before + 1, "{before}, then {after} lines of the owner's call");
    Ok(())
}

/// A source is written down once a minute: nobody was refused in this copy before.
fn refusal_audited(t: &Context) -> anyhow::Result<()> {
    let victim = Victim::copy_of(t, MEMBER)?;
    let before = issues(&victim)?;
    let mut stranger = Stranger::meet(&victim.vm, t.within(10))?;
    let refused = stranger.call_empty(STATUS).map_err(|status| status.code());
    ensure!(refused == Err(Code::Unauthenticated), "{refused:?}");
    let its = format!(":{} ", stranger.port());
    let lines = victim.lines("audit.strangers", "who=stranger")?;
    let line = lines.iter().find(|line| line.contains(STATUS) && line.contains(&its));
    let line = line.with_context(|| format!("no line about the stranger that was refused: {lines:?}"))?;
    ensure!(line.contains("outcome=refused"), "{line}");
    ensure!(issues(&victim)? == before, "nothing was written down as the owner's");
    Ok(())
}

/// How many tickets were written down as issued by the owner.
fn issues(victim: &Victim) -> anyhow::Result<usize> {
    let lines = victim.lines("audit", "who=owner:")?;
    Ok(lines.iter().filter(|line| line.contains("IssueTicket") && line.contains("outcome=Ok")).count())
}

fn wrong_certificate(t: &Context) -> anyhow::Result<()> {
    let victim = Victim::copy_of(t, MEMBER)?;
    let mut second = Stranger::meet_as(&victim.vm, Some(&PrivateKey::generate()?), t.within(10))?;
    // Not even what anybody may ask: the handshake is refused.
    ensure!(second.state().is_err(), "a second owner was answered");
    victim.ask(&["machine", "status"])?;
    refused_once_a_minute(&victim)
}

fn no_tls(t: &Context) -> anyhow::Result<()> {
    let victim = Victim::copy_of(t, MEMBER)?;
    let plain = b"GET / HTTP/1.1\r\nHost: cairn\r\n\r\n".as_slice();
    let garbage = [0xa5; 4096];
    // The last one begins a handshake and never goes on.
    let mut took = Duration::ZERO;
    for sent in [plain, &garbage, &[0x16, 3, 1]] {
        let mut stream = connect(t, &victim)?;
        let began = Stopwatch::start();
        stream.write_all(sent).context("send")?;
        let answer = until_closed(&mut stream)?;
        took = began.elapsed();
        // An alert at most.
        ensure!(answer.len() <= 7, "{answer:?}");
    }
    t.measured(&format!("a handshake that does not go on was cut off after {took:?}"));
    // The guest's clock runs as the host's does; a busy host may be late to see it.
    ensure!((HANDSHAKE - BEGUN..HANDSHAKE + SEEN).contains(&took), "{took:?}");
    victim.ask(&["machine", "status"])?;
    refused_once_a_minute(&victim)
}

fn oversized(t: &Context) -> anyhow::Result<()> {
    let mut victim = Victim::copy_of(t, MEMBER)?;
    let mut ask = |letters| {
        let request = RestartServiceRequest { name: "x".repeat(letters) };
        let answer = victim.session.call(async |client| client.restart_service(request).await);
        answer.map(drop).map_err(|status| status.code())
    };
    ensure!(ask(1000) == Err(Code::NotFound), "a long name is a name");
    let code = ask(api::limits::REQUEST_BYTES + 1);
    ensure!(code == Err(Code::OutOfRange), "{code:?}");
    ensure!(ask(1000) == Err(Code::NotFound), "the session goes on");
    Ok(())
}

fn logs(t: &Context) -> anyhow::Result<()> {
    let victim = Victim::copy_of(t, MEMBER)?;
    victim.service_when(t, "etcd", |service| service.state == "ready")?;
    let etcd = victim.logs(&["etcd"])?;
    ensure!(etcd.len() > 3 && etcd.iter().all(|entry| entry["service"] == "etcd"), "{etcd:?}");
    ensure!(times(&etcd)?.is_sorted(), "oldest first");
    ensure!(victim.logs(&["kube"])?.is_empty(), "no Kubernetes here");
    let tail = victim.logs(&["--tail", "2", "etcd"])?;
    ensure!(tail.len() == 2, "{tail:?}");
    Ok(())
}

/// An hour holds all of this boot, no time at all nothing that was there before it was asked for.
fn logs_since(t: &Context) -> anyhow::Result<()> {
    let mut victim = Victim::copy_of(t, MEMBER)?;
    victim.service_when(t, "etcd", |service| service.state == "ready")?;
    let etcd = victim.logs(&["etcd"])?;
    let kept = times(&etcd)?;
    ensure!(victim.logs(&["--since", "1h", "etcd"])?.len() >= etcd.len());
    // The first time that has something before it.
    let since = kept.iter().copied().find(|later| *later > kept[0]).context("nothing was there to be left out")?;
    let asked = LogsRequest { subtree: "etcd".into(), since_unix_ms: Some(since), ..LogsRequest::default() };
    let given = victim.session.call(async |client| {
        let mut entries = client.logs(asked).await?.into_inner();
        let mut times = Vec::new();
        while let Some(entry) = entries.message().await? {
            times.push(entry.unix_ms);
        }
        Ok::<_, Status>(times)
    })?;
    let later = kept.iter().filter(|time| **time >= since).count();
    ensure!(given.len() >= later && later > 0, "{} of {later} entries since then", given.len());
    ensure!(given.iter().all(|time| *time >= since), "an entry older than asked for");
    Ok(())
}

fn logs_followed(t: &Context) -> anyhow::Result<()> {
    let mut victim = Victim::copy_of(t, MEMBER)?;
    victim.service_when(t, "etcd", |service| service.state == "ready")?;
    let follow = LogsRequest { subtree: "init".into(), tail: Some(0), follow: true, ..LogsRequest::default() };
    let patience = t.within(10).left().unwrap_or_default();
    let seen = victim.session.call(async |client| {
        let mut entries = client.logs(follow).await?.into_inner();
        client.restart_service(RestartServiceRequest { name: "etcd".into() }).await?;
        let wanted = async {
            while let Some(entry) = entries.message().await? {
                if entry.line.contains("restart asked for by the owner service=etcd") {
                    return Ok(true);
                }
            }
            Ok::<_, Status>(false)
        };
        tokio::time::timeout(patience, wanted).await.unwrap_or(Ok(false))
    })?;
    ensure!(seen, "a follower sees what comes");
    Ok(())
}

/// When each entry of a log was written.
fn times(entries: &[Value]) -> anyhow::Result<Vec<u64>> {
    entries.iter().map(|entry| entry["unix_ms"].as_u64().context("an entry has a time")).collect()
}

fn claim(t: &Context) -> anyhow::Result<()> {
    const NAME: &str = "claimed";
    let owner = t.owner()?;
    let config = owner.config(NAME, &["--level", "encrypted", "--unprotected", "--no-kubernetes"])?;
    let plan = t.machine("m").config(&config)?;
    let claim = |vm: &Vm| -> anyhow::Result<_> {
        let mut anyone = Stranger::meet(vm, t.within(10))?;
        Ok(anyone.call(async |client| client.claim(ClaimRequest {}).await.map(drop)))
    };
    let vm = plan.start()?;
    wait_state(&vm, vm.started(), "Running", t.within(30))?;
    claim(&vm)?.and(claim(&vm)?).context("until the owner calls, as often as asked")?;
    vm.kill();
    let mut vm = plan.start()?;
    wait_state(&vm, vm.started(), "Running", t.within(30))?;
    claim(&vm)?.context("the secret is kept until it was used")?;
    owner.ask(NAME, &vm, &["machine", "status"])?;
    over(claim(&vm)?)?;
    // The secret is gone from the disk too.
    owner.ask(NAME, &vm, &["machine", "reboot"])?;
    vm.wait_reset(t.within(10))?;
    // From here on: the boot before has shown `Running (stopping)` last.
    wait_state(&vm, vm.mark()?, "Running", t.within(30))?;
    over(claim(&vm)?)
}

fn between(t: &Context) -> anyhow::Result<()> {
    let owner = t.owner()?;
    let config = |cluster| owner.config(cluster, &["--level", "insecure", "--unprotected", "--no-kubernetes"]);
    let (config, _of_a_machine_that_never_starts) = (config("one")?, config("two")?);
    let vm = t.machine("m").config(&config)?.start()?;
    wait_state(&vm, vm.started(), "Running", t.within(30))?;
    let status = ["machine", "status"];
    refused(owner.ask("two", &vm, &status))?;
    let relay = Relay::before(&vm)?;
    let address = relay.address()?.to_string();
    let (asked, passed) = thread::scope(|scope| {
        let passing = scope.spawn(|| relay.pass_on(t.within(10)));
        let asked = owner.run(&["-c", "one", "--address", &address, "-o", "json", "machine", "status"]);
        (asked, passing.join().expect("a relay does not panic"))
    });
    passed?;
    refused(asked)?;
    owner.ask("one", &vm, &status).map(drop).context("nothing was given away: first contact is still to come")
}

/// By the proof that the machine gave; all that was asked before was for that.
fn refused<T>(asked: Result<T, CommandRefusal>) -> anyhow::Result<()> {
    let refused = asked.err().context("it was believed")?;
    ensure!(refused.code == REFUSED && refused.text.contains("the machine's proof does not match"), "{refused}");
    Ok(())
}

fn over(claimed: Result<(), Status>) -> anyhow::Result<()> {
    match claimed {
        Err(status) if status.code() == Code::FailedPrecondition => {
            ensure!(status.message().contains("first contact is over"), "{status}");
            Ok(())
        }
        other => bail!("{other:?}"),
    }
}

fn connect(t: &Context, victim: &Victim) -> anyhow::Result<TcpStream> {
    let address = public_api(&victim.vm)?;
    // QEMU's forward keeps two callers waiting and drops a third one's SYN: asked anew, it is there sooner.
    let attempt = || TcpStream::connect_timeout(&address, Duration::from_millis(20)).ok();
    let stream = std::iter::repeat_with(attempt).take(1000).flatten().next().context("connect")?;
    stream.set_read_timeout(t.within(10).left())?;
    Ok(stream)
}

/// Reads until the machine closes; an error when it does not in time.
fn until_closed(stream: &mut TcpStream) -> anyhow::Result<Vec<u8>> {
    let mut answer = Vec::new();
    match stream.read_to_end(&mut answer) {
        Err(error) if error.kind() != std::io::ErrorKind::ConnectionReset => Err(error).context("wait for the end"),
        Ok(_) | Err(_) => Ok(answer),
    }
}

/// Refusals (all of them came from one address) were logged, and never twice in a minute.
fn refused_once_a_minute(victim: &Victim) -> anyhow::Result<()> {
    let entries = victim.logs(&["audit.strangers"])?;
    let refusal = |entry: &&Value| entry["line"].as_str().is_some_and(|line| line.contains("connection refused"));
    let times: Vec<u64> = entries.iter().filter(refusal).filter_map(|entry| entry["unix_ms"].as_u64()).collect();
    ensure!(!times.is_empty(), "a refusal is logged");
    let apart = |pair: &[u64]| matches!(pair, [first, second] if second - first >= QUIET_MS);
    ensure!(times.windows(2).all(apart), "{times:?}");
    Ok(())
}
