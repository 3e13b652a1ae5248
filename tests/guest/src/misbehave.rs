//! Programs that take all they can, end when they should not or not when they should, and leave behind what others have to
//! take away; and those that look at the machine from where a service stands.

use std::fs;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};
use tokio::time::Instant;

use crate::say;

/// Tasks that the greedy program may have, the first one included, by its limit as a service.
const MOST_THREADS: usize = 64;
/// Memory that the greedy program would take if nobody ended it.
const MOST_MEBIBYTES: usize = 128;
/// For a thread that does nothing.
const STACK: usize = 64 << 10;
/// Where the program that measures the balancer answers itself: the one backend of the test's balancer.
const ECHO: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 7000);
/// Connections after which the measuring program writes a line.
const ASKED: usize = 100;
/// So many children of each kind are left behind; the cgroup of a test service holds far more.
const ORPHANS: usize = 100;

/// Writes down twice a second how many connections of the public port are established (`/proc/net/tcp`: the kernel's
/// view, whatever PID 1 believes).
pub(super) fn connections() -> io::Result<()> {
    let port = format!(":{:04X}", model::PUBLIC_API_PORT);
    loop {
        let table = fs::read_to_string("/proc/net/tcp")?;
        let established = table.lines().filter(|line| {
            let mut fields = line.split_whitespace().skip(1);
            fields.next().is_some_and(|local| local.ends_with(&port)) && fields.nth(1) == Some("01")
        });
        say(&format!("established: {}", established.count()));
        std::thread::park_timeout(Duration::from_millis(500));
    }
}

/// Ignores SIGTERM, and has a child that nobody asks: only who ends the whole cgroup ends both.
pub(super) fn deaf() -> io::Result<()> {
    tokio::runtime::Builder::new_current_thread().enable_io().build()?.block_on(async {
        let mut asked = signal(SignalKind::terminate())?;
        let _child = this_program("idle").spawn()?;
        say("listening");
        while asked.recv().await.is_some() {
            say("asked to end, going on");
        }
        Ok(())
    })
}

/// Writes a million lines as fast as somebody reads them: where that is fast, 100 000 a second for ten seconds.
pub(super) fn flood() -> io::Result<()> {
    let mut out = io::stdout().lock();
    let lines = "a line like any other, of which there are far too many\n".repeat(64);
    (0..16_384).try_for_each(|_| out.write_all(lines.as_bytes()))
}

/// Starts threads until it may not, then takes memory until it is ended.
pub(super) fn greedy() -> io::Result<()> {
    let mut threads = Vec::new();
    let refused = loop {
        match std::thread::Builder::new().stack_size(STACK).spawn(idle) {
            Ok(thread) => threads.push(thread),
            Err(error) => break error,
        }
        if threads.len() > MOST_THREADS {
            return Err(io::Error::other("it may start as many threads as it likes"));
        }
    };
    say(&format!("{} threads, then refused: {refused}", threads.len()));
    let mut held = Vec::new();
    while held.len() < MOST_MEBIBYTES {
        held.push(vec![1_u8; 1 << 20]);
    }
    Err(io::Error::other("it may take as much memory as it likes"))
}

/// Asks itself through PID 1's balancer, one connection after the other, and writes down how long that took.
pub(super) fn latency() -> io::Result<()> {
    let listener = TcpListener::bind(ECHO)?;
    std::thread::spawn(move || listener.incoming().flatten().try_for_each(|mut stream| echo(&mut stream)));
    loop {
        let mut took = Vec::with_capacity(ASKED);
        while took.len() < ASKED {
            // Hardly any load by itself: what is measured is how long others keep PID 1.
            std::thread::park_timeout(Duration::from_millis(10));
            let began = Instant::now();
            let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, model::KUBERNETES_API_PORT))?;
            stream.set_nodelay(true)?;
            stream.write_all(b"?")?;
            stream.read_exact(&mut [0])?;
            took.push(began.elapsed().as_micros());
        }
        took.sort_unstable();
        let (median, most, longest) = (took[ASKED / 2], took[ASKED * 95 / 100], took[ASKED - 1]);
        say(&format!("median {median} us, 95 of 100 within {most} us, longest {longest} us"));
    }
}

fn echo(stream: &mut TcpStream) -> io::Result<()> {
    let mut byte = [0];
    // Whoever hung up before does not wait for it.
    let _hung_up = stream.read_exact(&mut byte).and_then(|()| stream.write_all(&byte));
    Ok(())
}

/// Starts processes until it may not, says how many, and goes on trying.
pub(super) fn bomb() -> io::Result<()> {
    let mut children = 0_u32;
    let mut refused = false;
    loop {
        match this_program("idle").spawn() {
            Ok(_lives_as_long_as_the_container) => children += 1,
            Err(error) if !refused => {
                refused = true;
                say(&format!("{children} processes, then refused: {error}"));
            }
            Err(_again) => {}
        }
    }
}

/// Takes memory until it is ended.
pub(super) fn hog() -> io::Result<()> {
    let mut held = Vec::new();
    loop {
        held.push(vec![1_u8; 16 << 20]);
        if held.len() % 16 == 0 {
            say(&format!("holds {} MiB", held.len() * 16));
        }
    }
}

/// Where a container that may see the machine's cgroups has them.
const CGROUPS: &str = "/host/cgroup";

/// A line for each cgroup that bounds something, as the kernel has it: its path, memory.min, memory.max, pids.max.
pub(super) fn bounds() -> io::Result<()> {
    let root = Path::new(CGROUPS);
    let mut groups = vec![root.join("init"), root.join("pods"), root.join("pods/kubepods"), root.join("shims")];
    for entry in fs::read_dir(root.join("services"))? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            groups.push(entry.path());
        }
    }
    for group in groups {
        let value = |file| fs::read_to_string(group.join(file)).map(|text| text.trim().to_owned());
        let (min, max, pids) = (value("memory.min")?, value("memory.max")?, value("pids.max")?);
        say(&format!("{} {min} {max} {pids}", group.strip_prefix(root).unwrap_or(&group).display()));
    }
    Ok(())
}

/// Names the places that are called, in the environment.
const CALLS: &str = "CALLS";
/// For whoever is called to take the connection, and to answer.
const ANSWERS: Duration = Duration::from_secs(5);

/// Calls each place that its environment names, says what any server answers, and writes down what became of it.
pub(super) fn calls() -> io::Result<()> {
    let places = std::env::var(CALLS).map_err(io::Error::other)?;
    for place in places.split_whitespace() {
        say(&format!("{place}: {}", called(place)?));
    }
    Ok(())
}

/// How long a place that is new may take until it answers.
const NEW: Duration = Duration::from_secs(60);
/// Between two calls of a place that says nothing when it changes.
const PAUSE: Duration = Duration::from_millis(100);

/// Calls each place until it answers.
#[expect(clippy::disallowed_methods, reason = "a place that refuses says nothing when it begins to answer")]
pub(super) fn reaches() -> io::Result<()> {
    let places = std::env::var(CALLS).map_err(io::Error::other)?;
    for place in places.split_whitespace() {
        let until = Instant::now() + NEW;
        let mut said = called(place)?;
        while said != ANSWERED && Instant::now() < until {
            std::thread::sleep(PAUSE);
            said = called(place)?;
        }
        say(&format!("{place}: {said}"));
    }
    Ok(())
}

/// Calls the places in turn, again and again, and writes down what came of each call.
#[expect(clippy::disallowed_methods, reason = "a place says nothing when what keeps it closed changes")]
pub(super) fn watches() -> io::Result<()> {
    let places = std::env::var(CALLS).map_err(io::Error::other)?;
    loop {
        for place in places.split_whitespace() {
            say(&format!("{place}: {}", called(place)?));
        }
        std::thread::sleep(PAUSE);
    }
}

/// Calls a place, and says what came of it.
fn called(place: &str) -> io::Result<String> {
    Ok(match TcpStream::connect_timeout(&place.parse().map_err(io::Error::other)?, ANSWERS) {
        Err(error) => format!("no connection: {error}"),
        Ok(stream) => answered(stream).map_or_else(|error| format!("no answer: {error}"), str::to_owned),
    })
}

const ANSWERED: &str = "answers";

fn answered(mut stream: TcpStream) -> io::Result<&'static str> {
    stream.set_read_timeout(Some(ANSWERS))?;
    stream.write_all(b"GET / HTTP/1.1\r\n\r\n")?;
    Ok(if stream.read(&mut [0; 64])? > 0 { ANSWERED } else { "no answer: closed" })
}

/// Connections that one program opens.
const OPENED: usize = 100;
/// As many of them are left to it.
const LEFT: usize = 64;

/// Opens many connections to the place that its environment names, and says how many of them are left to it.
pub(super) fn clings() -> io::Result<()> {
    let place = std::env::var(CALLS).map_err(io::Error::other)?.parse().map_err(io::Error::other)?;
    let connect = || {
        let stream = TcpStream::connect_timeout(&place, ANSWERS)?;
        stream.set_nonblocking(true)?;
        Ok(stream)
    };
    let opened = std::iter::repeat_with(connect).take(OPENED).collect::<io::Result<Vec<_>>>()?;
    let is_open = |stream: &&TcpStream| {
        let mut stream: &TcpStream = stream;
        stream.read(&mut [0]).is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
    };
    let left = || opened.iter().filter(is_open).count();
    let until = Instant::now() + ANSWERS;
    while left() > LEFT && Instant::now() < until {
        std::thread::yield_now();
    }
    say(&format!("{} of {OPENED} are left", left()));
    Ok(())
}

/// Words of the idle program, as `proc_pid_cmdline(5)` has them.
const IDLE_WORDS: &[u8] = b"/proc/self/exe\0idle\0";

/// As root, reads the memory of another process: of its own child, and of PID 1. Its own memory is the control: that opens.
pub(super) fn trace() -> io::Result<()> {
    fs::File::open("/proc/self/mem")?;
    let mut child = this_program("idle").spawn()?;
    // A child has its parent's memory, which its parent may read, until it executes (posix_spawn is a vfork, and the kernel
    // lets the parent go on a moment before the exchange: fs/exec.c `exec_mmap`). Then its words are its own.
    while fs::read(format!("/proc/{}/cmdline", child.id()))? != IDLE_WORDS {
        std::thread::yield_now();
    }
    let result =
        [child.id(), 1].into_iter().try_for_each(|process| match fs::File::open(format!("/proc/{process}/mem")) {
            Ok(_memory) => Err(io::Error::other(format!("the memory of process {process} opens"))),
            Err(error) => {
                say(&format!("refused: {:?}", error.kind()));
                Ok(())
            }
        });
    child.kill()?;
    child.wait()?;
    result
}

/// Waits to be ended.
pub(super) fn idle() -> io::Result<()> {
    loop {
        std::thread::park();
    }
}

/// A line for each process that runs a program: its number, the program, its cgroup. Kernel threads run none.
pub(super) fn processes() -> io::Result<()> {
    for entry in fs::read_dir("/proc")? {
        let path = entry?.path();
        // Not a process, a kernel thread, or ended meanwhile.
        let (Ok(program), Ok(cgroup)) = (fs::read_link(path.join("exe")), fs::read_to_string(path.join("cgroup")))
        else {
            continue;
        };
        let Some(Ok(number)) = path.file_name().and_then(|name| name.to_str()).map(str::parse::<u32>) else { continue };
        say(&format!("{number} {} {}", program.display(), cgroup.trim()));
    }
    Ok(())
}

/// Leaves children behind that nobody but PID 1 can reap: some end by themselves once it is gone, some go on.
pub(super) fn orphans() -> io::Result<()> {
    for program in ["exit", "idle"] {
        for _ in 0..ORPHANS {
            // Dropping the handle neither kills nor waits.
            drop(this_program(program).spawn()?);
        }
    }
    say(&format!("{} children left behind", 2 * ORPHANS));
    Ok(())
}

/// Tells which processes are dead and not reaped, or are children of PID 1 in a cgroup whose service has ended; again and
/// again until there are none.
pub(super) fn unreaped() -> io::Result<()> {
    let mut told = Vec::new();
    loop {
        let found = left_over()?;
        if found.is_empty() {
            say("none is left");
            return Ok(());
        }
        if found != told {
            found.iter().for_each(|line| say(line));
            told = found;
        }
        std::thread::yield_now();
    }
}

/// `NUMBER (NAME) STATE` (`proc_pid_stat(5)`) of each dead process, and of each of the orphans.
fn left_over() -> io::Result<Vec<String>> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let path = entry?.path();
        // Not a process, or ended meanwhile.
        let Ok(stat) = fs::read_to_string(path.join("stat")) else { continue };
        let cgroup = fs::read_to_string(path.join("cgroup")).unwrap_or_default();
        let Some((name, rest)) = stat.rsplit_once(") ") else { continue };
        if rest.starts_with('Z') || cgroup.trim().ends_with("/test.orphans") {
            found.push(format!("{name}) {}", &rest[..1]));
        }
    }
    Ok(found)
}

/// Another program of this file's.
fn this_program(word: &str) -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.arg(word);
    command
}
