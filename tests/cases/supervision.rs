//! Shows that PID 1 outlives whatever its children and tasks do, and says what they did.

use std::thread;
use std::time::Duration;

use crate::{Case, Context, Owner, Prerequisite, ServiceStatus, Starts, Status, Stranger, recovered, same_machine};
use anyhow::{Context as _, ensure};
use api::wire::FaultKind;
use aws_lc_rs::digest::{SHA256, digest};
use qemu::Deadline;

use super::victim::{self, VICTIM, Victim};

pub(crate) const CASES: &[Case] = &[
    case("a thousand children that die at once are reaped once", &["O1"], children),
    case("orphans are reaped when their parent is gone", &["O1"], orphans),
    case("a service that keeps failing is seen and slowed down", &["O2"], crash_loop),
    case("a service that ignores sigterm is killed at its deadline", &["O2"], deaf),
    case("a service that takes too much is ended alone", &["O2"], greedy),
    case("a group is restarted together", &["O2"], group),
    case("a service that is given up leaves nothing, and comes back", &["O2"], given_up),
    case("a service whose probe fails is not ready, and starts over", &["O2"], unready),
    case("a flooded log does not grow pid 1", &["O2", "Q2"], flood),
    case("a task that panics is a service that failed", &["O1", "O2"], panic),
    case("a member's life begins anew after a panic, and goes on", &["O1", "O2"], member),
    case("a panic outside tasks is shown, and the machine restarts", &["O1"], outside),
    case("a service that fails too often ends the boot in order", &["O2"], escalation),
    case("etcd comes back after a kill", &["O2"], kill),
    case("root cannot unseal after the cap", &["O16"], unseal),
    case("root cannot keep the disk shut by way of the tpm", &["O16"], tpm),
    case("a secret that has done its work is in no memory of pid 1", &["D8"], secrets),
    case("nobody reads the memory of another process", &["O14"], trace),
    case("pid 1 is the only process of ours", &[], processes),
];

const fn case(name: &'static str, proves: &'static [&'static str], run: fn(&Context) -> anyhow::Result<()>) -> Case {
    Case { name, proves, needs: &[Prerequisite::Swtpm], starts: Starts::From(VICTIM), run }
}

fn children(t: &Context) -> anyhow::Result<()> {
    with_victim(t, |t, victim| {
        // Whoever reaps may be another one than at first.
        victim.ask(&["machine", "services", "--restart", "reaper"])?;
        victim.service_when(t, "reaper", |service| service.state == "ready" && service.restarts != 0)?;
        let mut anyone = Stranger::meet(&victim.vm, t.within(10))?;
        let mut answers = 0;
        let session = &mut victim.session;
        let seen = thread::scope(|scope| {
            let injection = scope.spawn(|| session.inject(FaultKind::Children, "1000"));
            while !injection.is_finished() {
                anyone.state()?;
                answers += 1;
            }
            anyhow::Ok(injection.join().expect("a call does not panic")?)
        })?;
        ensure!(seen.starts_with("1000 started, 1000 reaped, 0 left"), "{seen}");
        ensure!(answers > 1, "GetState was answered {answers} times meanwhile");
        anyone.state()?;
        victim::bounded(t, &seen)
    })
}

fn orphans(t: &Context) -> anyhow::Result<()> {
    with_victim(t, |t, victim| {
        victim.session.inject(FaultKind::TestService, "test.orphans")?;
        let ended = victim.service_when(t, "test.orphans", |service| service.state == "stopped")?;
        ensure!(ended.ended("code 0") && ended.restarts == 0, "{ended:?}");
        let said = victim.lines("test.orphans", "")?;
        ensure!(said == ["200 children left behind"], "{said:?}");
        // It ends only when nothing dead, and nothing of the other's, is left.
        victim.session.inject(FaultKind::TestService, "test.unreaped")?;
        let ended = victim.service_when(t, "test.unreaped", |service| service.state == "stopped");
        let seen = victim.lines("test.unreaped", "")?;
        ended.with_context(|| format!("{seen:?}"))?;
        ensure!(seen.last().is_some_and(|line| line == "none is left"), "{seen:?}");
        Ok(())
    })
}

fn crash_loop(t: &Context) -> anyhow::Result<()> {
    const NAME: &str = "test.crash-loop";
    with_victim(t, |t, victim| {
        victim.session.inject(FaultKind::TestService, NAME)?;
        let seen = victim.service_when(t, NAME, |service| service.restarts >= 5)?;
        ensure!(seen.ended("code 1"), "{seen:?}");
        victim.service_when(t, NAME, |service| service.state == "backing off")?;
        let failures = victim.lines("init", &format!("service ended service={NAME}"))?;
        let waits: Vec<&str> = failures.iter().filter_map(|line| Some(line.split_once("retry=")?.1)).collect();
        ensure!(
            waits.starts_with(&["Some(200ms)", "Some(400ms)", "Some(800ms)", "Some(1.6s)", "Some(2s)"]),
            "{waits:?}"
        );
        Ok(())
    })
}

fn deaf(t: &Context) -> anyhow::Result<()> {
    const NAME: &str = "test.deaf";
    with_victim(t, |t, victim| {
        victim.session.inject(FaultKind::TestService, NAME)?;
        // Before, it would have no way to be deaf.
        victim.vm.until(t.within(10), || (!victim.lines(NAME, "listening").ok()?.is_empty()).then_some(()))?;
        let before = victim.service(NAME)?.process()?;
        victim.ask(&["machine", "services", "--restart", NAME])?;
        let after = victim.service_when(t, NAME, |service| service.is_ready_beside(before))?;
        ensure!(after.ended("signal 9"), "{after:?}");
        ensure!(victim.lines(NAME, "asked to end, going on")?.len() == 1, "SIGTERM came first");
        ensure!(!victim.lines("init", "service ignores SIGTERM, killed")?.is_empty());
        Ok(())
    })
}

fn greedy(t: &Context) -> anyhow::Result<()> {
    const NAME: &str = "test.greedy";
    with_victim(t, |t, victim| {
        let etcd = victim.service_when(t, "etcd", |service| service.state == "ready")?;
        victim.session.inject(FaultKind::TestService, NAME)?;
        let ended = victim.service_when(t, NAME, |service| service.state == "failed");
        let said = victim.lines(NAME, "")?;
        ensure!(ended?.ended("signal 9"), "{said:?}");
        ensure!(matches!(&said[..], [one] if one.starts_with("63 threads, then refused: ")), "{said:?}");
        ensure!(victim.service("etcd")?.process()? == etcd.process()?, "etcd went on");
        Ok(())
    })
}

fn group(t: &Context) -> anyhow::Result<()> {
    const PAIR: [&str; 2] = ["test.pair-a", "test.pair-b"];
    with_victim(t, |t, victim| {
        victim.session.inject(FaultKind::TestService, "test.pair")?;
        let ready = |name| victim.service_when(t, name, |service| service.state == "ready");
        let before = [ready(PAIR[0])?.process()?, ready(PAIR[1])?.process()?];
        victim.session.inject(FaultKind::KillService, PAIR[0])?;
        for (name, before, exit) in [(PAIR[0], before[0], "signal 9"), (PAIR[1], before[1], "signal 15")] {
            let after = victim.service_when(t, name, |service| service.is_ready_beside(before))?;
            ensure!(after.ended(exit), "{after:?}");
        }
        Ok(())
    })
}

fn given_up(t: &Context) -> anyhow::Result<()> {
    const PAIR: [&str; 2] = ["test.pair-a", "test.pair-b"];
    with_victim(t, |t, victim| {
        victim.session.inject(FaultKind::TestService, "test.pair")?;
        for name in PAIR {
            victim.service_when(t, name, |service| service.state == "ready")?;
        }
        let refused = victim.session.inject(FaultKind::GiveUp, "test.pair-c");
        ensure!(refused.is_err(), "it is not there: {refused:?}");
        victim.session.inject(FaultKind::GiveUp, PAIR[0])?;
        for name in PAIR {
            let listed = victim.owner.services(victim::NAME, &victim.vm)?;
            ensure!(listed.iter().all(|service| service.name != name), "{name} is still listed");
        }
        victim.session.inject(FaultKind::TestService, "test.pair")?;
        let fresh = victim.service_when(t, PAIR[0], |service| service.state == "ready")?;
        ensure!(fresh.restarts == 0, "{fresh:?}");
        Ok(())
    })
}

fn unready(t: &Context) -> anyhow::Result<()> {
    const NAME: &str = "test.unready";
    with_victim(t, |t, victim| {
        victim.session.inject(FaultKind::TestService, NAME)?;
        let mut states = Vec::new();
        let failed = victim.service_when(t, NAME, |service| {
            states.push(service.state.clone());
            service.restarts >= 1
        });
        ensure!(!states.contains(&"ready".to_owned()), "{states:?}");
        let failed = failed?;
        ensure!(failed.ended("not ready in time"), "{failed:?}");
        Ok(())
    })
}

fn flood(t: &Context) -> anyhow::Result<()> {
    const NAME: &str = "test.flood";
    with_victim(t, |t, victim| {
        let mut anyone = Stranger::meet(&victim.vm, t.within(10))?;
        victim.session.inject(FaultKind::TestService, NAME)?;
        // It ends by itself; each look is an answer while it writes.
        let ended = victim.service_when(t, NAME, |service| anyone.state().is_ok() && service.state == "stopped")?;
        ensure!(ended.restarts == 0, "{ended:?}");
        let kept = victim.logs(&[NAME])?;
        ensure!((1000..10_000).contains(&kept.len()), "{} lines are kept", kept.len());
        victim::bounded(t, &victim.session.inject(FaultKind::Children, "0")?)
    })
}

fn panic(t: &Context) -> anyhow::Result<()> {
    const NAME: &str = "test.panic";
    with_victim(t, |t, victim| {
        victim.session.inject(FaultKind::Panic, "")?;
        victim.service_when(t, NAME, |service| panicked(service) && service.restarts >= 1)?;
        ensure!(!victim.lines("init", "task panicked service=test.panic")?.is_empty());
        let status = victim.status()?;
        ensure!(status.state == "Running", "{status:#?}");
        Ok(())
    })
}

fn panicked(service: &ServiceStatus) -> bool {
    service.last_exit.as_ref().is_some_and(|exit| exit.starts_with("panic"))
}

/// Services, mesh and API run on, and the next change of the cluster is obeyed.
fn member(t: &Context) -> anyhow::Result<()> {
    let mut victim = Victim::copy(t)?;
    let others = |victim: &Victim| {
        let mut services = victim.owner.services(victim::NAME, &victim.vm)?;
        services.retain(|service| service.name != "member");
        anyhow::Ok(services.into_iter().map(|service| (service.name, service.restarts)).collect::<Vec<_>>())
    };
    let before = others(&victim)?;
    ensure!(["api", "etcd", "mesh"].iter().all(|needed| before.iter().any(|(name, _)| name == needed)), "{before:?}");
    victim.session.inject(FaultKind::Panic, "member")?;
    victim.service_when(t, "member", |service| panicked(service) && service.restarts == 1)?;
    let new = Owner::new(t.dir().join("new"))?;
    let key = new.run(&["owner", "show"])?;
    // Until the new life has read the records, nobody changes them.
    let adds = || victim.ask(&["owner", "add", key.trim()]).ok();
    victim.vm.until(t.within(20), adds).context("the records are read again")?;
    let is_let_in = || {
        let mut session = Stranger::meet_as(&victim.vm, Some(&new.key()?), t.within(5))?;
        anyhow::Ok(session.inject(FaultKind::Children, "0")?)
    };
    victim.vm.until(t.within(5), || is_let_in().ok()).context("the change is obeyed")?;
    let after = others(&victim)?;
    ensure!(after == before, "{before:?} became {after:?}");
    Ok(())
}

fn outside(t: &Context) -> anyhow::Result<()> {
    let Victim { mut vm, owner, mut session, .. } = Victim::copy(t)?;
    let before = vm.mark()?;
    // The answer may get out before the panic, or not.
    let _answered_or_not = session.inject(FaultKind::Panic, "main");
    let told = vm.wait_for(before, "PID 1: a task panicked at", t.within(10))?;
    let told = vm.wait_for(told.end, "Cairn cannot go on: PID 1 panicked", t.within(10))?;
    let told = vm.wait_for(told.end, "The machine reboots in 10 s.", t.within(1))?;
    // Long enough for a person, and for no tight loop.
    ensure!(vm.wait_reset(Deadline::after(Duration::from_secs(5))).is_err(), "it restarted at once");
    let cause = vm.wait_reset(t.within(20))?;
    ensure!(cause == "guest-reset", "{cause}");
    owner.status_when_running(victim::NAME, &vm, told.end, t.within(30)).map(drop)
}

fn escalation(t: &Context) -> anyhow::Result<()> {
    let Victim { mut vm, owner, mut session, .. } = Victim::copy(t)?;
    let mut from = vm.mark()?;
    let _answered_or_not = session.inject(FaultKind::Panic, "api");
    for (told, seconds) in [
        ("task panicked service=api failures=1 retry=Some(200ms)", 10),
        // 36 s of back-off lie between the first failure and the twelfth.
        ("task panicked service=api failures=11 retry=Some(5s)", 60),
        ("task panicked service=api failures=12 retry=None", 10),
        ("service failed too often service=api", 1),
        // In order: what runs is stopped, and nothing has to be recovered.
        ("stopping how=Reboot", 10),
        ("service stopped service=etcd", 10),
    ] {
        from = vm.wait_for(from, told, t.within(seconds))?.end;
    }
    let cause = vm.wait_reset(t.within(20))?;
    ensure!(cause == "guest-reset", "{cause}");
    owner.status_when_running(victim::NAME, &vm, from, t.within(30))?;
    ensure!(!recovered(&owner, victim::NAME, &vm)?, "what was stopped in order leaves nothing to recover");
    Ok(())
}

fn kill(t: &Context) -> anyhow::Result<()> {
    with_victim(t, |t, victim| {
        let before = victim.service_when(t, "etcd", |service| service.state == "ready")?;
        victim.session.inject(FaultKind::KillService, "etcd")?;
        let process = before.process()?;
        let after = victim.service_when(t, "etcd", |service| service.is_ready_beside(process))?;
        ensure!(after.ended("signal 9") && after.restarts > before.restarts, "{after:?}");
        Ok(())
    })
}

fn unseal(t: &Context) -> anyhow::Result<()> {
    const NAME: &str = "test.unseal";
    with_victim(t, |t, victim| {
        victim.session.inject(FaultKind::TestService, NAME)?;
        let ended = victim.service_when(t, NAME, |service| service.state == "stopped" || service.state == "failed");
        let said = victim.lines(NAME, "")?;
        ensure!(ended?.state == "stopped", "{said:?}");
        // The PCR that it is sealed to holds the cap of this machine in this cluster, and nothing before it.
        let status = victim.status()?;
        ensure!(said.contains(&format!("PCR 11: {}", capped(&status)?)), "{said:?}");
        // Before that comes into question, the hierarchy that it is under is closed: TPM_RC_HIERARCHY.
        for refused in [
            "Seal by its policy: the TPM refuses TPM2_CreatePrimary: hierarchy disabled (0x185)",
            "Seal by an empty password: 0x185",
        ] {
            ensure!(said.iter().any(|line| line == refused), "{refused}: {said:?}");
        }
        ensure!(said.len() == 3, "one of each: {said:?}");
        Ok(())
    })
}

/// PCR 11 after the cap, in hex digits, by the ids that the status names. Nothing is measured into it before where the
/// machine is started directly.
fn capped(status: &Status) -> anyhow::Result<String> {
    let sha256 = |parts: &[&[u8]]| digest(&SHA256, &parts.concat());
    let id = |text: &str| -> anyhow::Result<[u8; 16]> {
        let bytes = text.as_bytes().chunks(2).map(|pair| Ok(u8::from_str_radix(std::str::from_utf8(pair)?, 16)?));
        Ok(bytes.collect::<anyhow::Result<Vec<u8>>>()?.as_slice().try_into()?)
    };
    let cap = sha256(&[b"cairn/v1/cap", &id(&status.cluster_id)?, &id(&status.machine_id)?]);
    Ok(hex(sha256(&[&[0; 32], cap.as_ref()]).as_ref()))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// By each of these root could lose the disk for good if the TPM were open; the crate's tests show that they do. The answers mean
/// `TPM_RC_DISABLED`, `TPM_RC_AUTH_FAIL`: only the platform may allow; `TPM_RC_HIERARCHY` about the first handle: closed.
const ATTACKS: [(&str, &[&str]); 10] = [
    ("clear as lockout", &["0x120"]),
    // Firmware gives its hierarchy a password, or leaves it to us: TPM_RC_BAD_AUTH about the session.
    ("clear as platform", &["0x185", "0x9a2"]),
    ("allow clear as lockout", &["0x8e"]),
    ("allow clear as platform", &["0x185", "0x9a2"]),
    ("password for owner", &["0x185"]),
    ("password for endorsement", &["0x185"]),
    ("password for platform", &["0x185", "0x9a2"]),
    ("key of owner", &["0x185"]),
    ("key of endorsement", &["0x185"]),
    ("key of this boot", &["0x0"]),
];

/// In the boot that made the seal, and in one that opened by it: what was tried in the first keeps nothing shut in the second.
fn tpm(t: &Context) -> anyhow::Result<()> {
    let mut victim = Victim::copy(t)?;
    let before = victim.status()?;
    refuses_attacks(t, &mut victim).context("in the boot that made the seal")?;
    victim.ask(&["machine", "reboot"])?;
    let after = victim.owner.status_of_next_boot(victim::NAME, &victim.vm, &before, t.within(40))?;
    same_machine(&before, &after)?;
    victim.session = Stranger::meet_as(&victim.vm, Some(&victim.owner.key()?), t.within(10))?;
    refuses_attacks(t, &mut victim).context("in a boot that opened by the seal")
}

fn refuses_attacks(t: &Context, victim: &mut Victim) -> anyhow::Result<()> {
    const NAME: &str = "test.tpm";
    victim.session.inject(FaultKind::TestService, NAME)?;
    victim.service_when(t, NAME, |service| service.state == "stopped")?;
    let said = victim.lines(NAME, "")?;
    for (attack, answers) in ATTACKS {
        let refused = |line: &String| answers.iter().any(|answer| *line == format!("{attack}: {answer}"));
        ensure!(said.iter().any(refused), "{attack}: {said:?}");
    }
    ensure!(said.contains(&"a way to ask the firmware: false".to_owned()), "{said:?}");
    Ok(())
}

/// Secrets as the test or root in a service know them, searched for in PID 1's memory by itself. They travel with every
/// bit flipped, so that the asking puts no copy there.
fn secrets(t: &Context) -> anyhow::Result<()> {
    const NAME: &str = "test.secrets";
    with_victim(t, |t, victim| {
        victim.session.inject(FaultKind::TestService, NAME)?;
        victim.service_when(t, NAME, |service| service.state == "stopped")?;
        let mut masked = vec![format!("first-contact {}", masked_first_contact(&victim.config)?)];
        let mut said = victim.lines(NAME, "")?;
        ensure!(!said.is_empty() && said.remove(0) == "core dumps: false", "the kernel dumps no process: {said:?}");
        masked.extend(said);
        ensure!(masked.len() == 6, "{masked:?}");
        let held = masked.iter().map(|line| held(&mut victim.session, line));
        let mut held = held.collect::<anyhow::Result<Vec<_>>>()?;
        t.measured(&held.join(", "));
        // The library that seals it to the owner, at create, frees its one copy as it is: SECURITY.md says so.
        let master: Vec<_> = held.extract_if(.., |line| line.starts_with("master-secret ")).collect();
        ensure!(master == ["master-secret 0"] || master == ["master-secret 1"], "{master:?}");
        // The mesh's key is in use, and shows that the search finds what is there.
        let expected = ["first-contact 0", "vpn.key 1", "cairn.key 0", "etcd.key 0", "kubernetes.key 0"];
        ensure!(held == expected, "{held:?}");
        Ok(())
    })
}

/// The secret of first contact in a config, in hex digits, with every bit flipped.
fn masked_first_contact(config: &[u8]) -> anyhow::Result<String> {
    // The field that holds it: version 1, then number 4 with 32 bytes.
    let field = [0x18, 1, 0x22, 32];
    let at = config.windows(4).position(|bytes| bytes == field).context("a first contact secret")?;
    let secret = config.get(at + 4..at + 36).context("a first contact secret of 32 bytes")?;
    Ok(hex(&secret.iter().map(|byte| !byte).collect::<Vec<_>>()))
}

/// How often PID 1 holds the secret of a line, which is its name and itself.
fn held(session: &mut Stranger, line: &str) -> anyhow::Result<String> {
    let (name, secret) = line.split_once(' ').context("a name and a secret")?;
    // The second half of it: over the first, the allocator writes its own when a block is given back.
    let seen = session.inject(FaultKind::SearchMemory, &secret[secret.len() / 2..])?;
    let times = seen.strip_prefix("held ").and_then(|seen| seen.split_once(' ')).context("a number")?.0;
    Ok(format!("{name} {times}"))
}

fn trace(t: &Context) -> anyhow::Result<()> {
    const NAME: &str = "test.trace";
    with_victim(t, |t, victim| {
        victim.session.inject(FaultKind::TestService, NAME)?;
        let ended = victim.service_when(t, NAME, |service| service.state == "stopped" || service.state == "failed");
        let said = victim.lines(NAME, "")?;
        // Its child, and PID 1; its own memory has opened before.
        ensure!(said == ["refused: PermissionDenied", "refused: PermissionDenied"], "{said:?}");
        ensure!(ended?.state == "stopped", "{said:?}");
        Ok(())
    })
}

fn processes(t: &Context) -> anyhow::Result<()> {
    const NAME: &str = "test.processes";
    with_victim(t, |t, victim| {
        victim.session.inject(FaultKind::TestService, NAME)?;
        victim.service_when(t, NAME, |service| service.state == "stopped")?;
        // What tests have started aside, and whoever lists them is one of these.
        let said: Vec<String> = victim.lines(NAME, "")?.into_iter().filter(|line| !line.contains("/test.")).collect();
        let (ours, others): (Vec<&String>, Vec<&String>) = said.iter().partition(|line| line.contains(" /bin/init "));
        ensure!(matches!(ours[..], [one] if one.starts_with("1 ")), "{said:?}");
        ensure!(matches!(others[..], [one] if one.contains(" /bin/etcd ")), "{said:?}");
        Ok(())
    })
}

fn with_victim(t: &Context, run: impl FnOnce(&Context, &mut Victim) -> anyhow::Result<()>) -> anyhow::Result<()> {
    run(t, &mut Victim::copy(t)?)
}
