//! The stage of a fresh root, in namespaces of a user's own and a root of bound folders: what a command sees there, what it
//! leaves, and that nothing outlives the process that waits. Where nobody may have such namespaces it is skipped.

use std::{
    fs,
    io::{self, BufRead, BufReader},
    os::unix::fs::MetadataExt,
    path::Path,
    process::{Child, Command, ExitCode, ExitStatus, Stdio},
    sync::mpsc::{self, Receiver, RecvTimeoutError},
    thread,
    time::Duration,
};

use libtest_mimic::{Arguments, Failed, Trial};
use tempfile::TempDir;

/// Only bounds a wait for what is broken.
const DEADLINE: Duration = Duration::from_secs(60);
/// Folders of the host that the root is made of: enough for a shell.
const BOUND: &[&str] = &["/bin", "/lib", "/lib64", "/usr"];

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    arguments.test_threads = Some(1);
    let able = unshare().arg("true").stdin(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|end| end.success());
    let trial = |name: &str, run: fn() -> Result<(), Failed>| {
        let name = if able { name.to_owned() } else { format!("{name}: skipped, {}", why_not()) };
        Trial::test(name, run).with_ignored_flag(!able)
    };
    let trials = vec![
        trial("a_command_sees_the_root_and_what_is_bound_and_its_end_is_told", sees),
        trial("inside_there_are_namespaces_too", nests),
        trial("a_failing_first_command_ends_it_with_what_that_said", fails),
        trial("what_is_bound_to_be_read_is_not_written", reads),
        trial("when_nobody_waits_all_ends_and_nothing_stays_mounted", ends),
        trial("whatever_loses_its_parent_is_waited_for", reaps),
    ];
    libtest_mimic::run(&arguments, trials).exit_code()
}

/// Why there are no namespaces: whoever is in a chroot gets none, root neither (unshare(2), `EPERM`).
fn why_not() -> &'static str {
    let place = |path| fs::metadata(path).map(|seen| (seen.dev(), seen.ino())).ok();
    match place("/proc/1/root") {
        Some(of_init) if place("/") != Some(of_init) => "a chroot has no namespaces of a user's own",
        Some(_) | None => "no namespaces for this user",
    }
}

fn sees() -> Result<(), Failed> {
    let stage = Stage::new()?;
    let shown = stage.root.path().join("shown");
    fs::write(stage.bound.path().join("file"), "from outside")?;
    let script =
        "read text < /bound/file; echo \"$text, $(pwd), $(cat /first), $(ls /proc/self/exe)\" > /shown; exit 0";
    let end = stage.start("echo first > /first", script)?.wait()?;
    assert!(end.success(), "{end}");
    assert_eq!(fs::read_to_string(shown)?, "from outside, /bound, first, /proc/self/exe\n");
    let end = stage.start("true", "exit 3")?.wait()?;
    assert!(!end.success(), "{end}");
    Ok(())
}

fn nests() -> Result<(), Failed> {
    let stage = Stage::new()?;
    let end = stage.start("true", "unshare --map-root-user --mount true")?;
    assert!(end.wait()?.success());
    Ok(())
}

fn fails() -> Result<(), Failed> {
    let stage = Stage::new()?;
    let mut child = stage.start("echo no such package >&2; exit 100", "echo > /ran")?;
    let said = io::read_to_string(child.child.stderr.take().ok_or("a pipe")?)?;
    assert!(!child.wait()?.success());
    assert!(said.contains("no such package"), "{said}");
    assert!(!stage.root.path().join("ran").exists());
    Ok(())
}

fn reads() -> Result<(), Failed> {
    let stage = Stage::new()?;
    let script = "if touch /read/file; then exit 1; fi; touch /bound/file";
    let end = stage.start("true", script)?.wait()?;
    assert!(end.success(), "{end}");
    assert!(stage.bound.path().join("file").exists(), "the control: what is bound to be written is");
    assert!(!stage.read.path().join("file").exists());
    Ok(())
}

fn ends() -> Result<(), Failed> {
    let stage = Stage::new()?;
    assert!(Command::new("mkfifo").arg(stage.bound.path().join("pipe")).status()?.success());
    let mut running = stage.start("true", "echo runs; cat 0<> /bound/pipe")?;
    assert_eq!(running.line()?.as_deref(), Some("runs"));
    drop(running.child.stdin.take()); // nobody waits any more
    assert_eq!(running.line()?, None);
    assert!(!running.child.wait()?.success());
    let mounts = fs::read_to_string("/proc/self/mountinfo")?;
    assert!(!mounts.contains(&*stage.root.path().to_string_lossy()), "{mounts}");
    // The namespace is gone with its last process: the folders below are as empty as they were made.
    assert!(fs::read_dir(stage.root.path().join("usr"))?.next().is_none());
    Ok(())
}

fn reaps() -> Result<(), Failed> {
    let stage = Stage::new()?;
    // A grandchild that ends after its parent did is gone from /proc, not left there as a zombie.
    let script = "child=$(sh -c 'true & echo $!'); while test -d /proc/$child; do :; done";
    let end = stage.start("true", script)?.wait()?;
    assert!(end.success(), "{end}");
    Ok(())
}

struct Stage {
    root: TempDir,
    bound: TempDir,
    read: TempDir,
}

struct Running {
    child: Child,
    /// Lines that it prints; closed with the last process of the namespace.
    lines: Receiver<String>,
}

impl Running {
    /// The next line, or none when all of the namespace has ended.
    fn line(&mut self) -> Result<Option<String>, Failed> {
        match self.lines.recv_timeout(DEADLINE) {
            Ok(line) => Ok(Some(line)),
            Err(RecvTimeoutError::Disconnected) => Ok(None),
            Err(RecvTimeoutError::Timeout) => {
                self.child.kill()?;
                Err("it went on".into())
            }
        }
    }

    fn wait(mut self) -> Result<ExitStatus, Failed> {
        let alive = self.child.stdin.take(); // `wait` would close it, and that ends everything
        while self.line()?.is_some() {}
        let end = self.child.wait();
        drop(alive);
        Ok(end?)
    }
}

impl Stage {
    fn new() -> Result<Self, Failed> {
        let (root, bound, read) = (tempfile::tempdir()?, tempfile::tempdir()?, tempfile::tempdir()?);
        for folder in BOUND.iter().chain(&["/bound", "/dev", "/read", "/proc"]) {
            fs::create_dir_all(root.path().join(folder.trim_start_matches('/')))?;
        }
        Ok(Self { root, bound, read })
    }

    fn start(&self, first: &str, script: &str) -> Result<Running, Failed> {
        let mut stage = unshare();
        stage.arg(env!("CARGO_BIN_EXE_xtask")).arg(xtask::fresh::STAGE).arg(self.root.path());
        stage.args(["/log", "/bound", first]);
        for folder in BOUND {
            // With what is mounted below: in a root that has a toolchain bound into it, the kernel gives no part alone.
            stage.args(["--whole", folder, folder]);
        }
        let folders: [(&str, &Path, &str); 2] =
            [("--write", self.bound.path(), "/bound"), ("--read", self.read.path(), "/read")];
        for (access, outside, inside) in folders {
            stage.arg(access).arg(outside).arg(inside);
        }
        stage.args(["--whole", "/dev", "/dev", "--", "sh", "-c", script]);
        stage.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = stage.spawn()?;
        let output = BufReader::new(child.stdout.take().ok_or("a pipe")?);
        let (line, lines) = mpsc::channel();
        thread::spawn(move || output.lines().map_while(Result::ok).try_for_each(|text| line.send(text)));
        Ok(Running { child, lines })
    }
}

/// Namespaces as the keeper makes them; a user of its own besides, so that root is not needed.
fn unshare() -> Command {
    let mut unshare = Command::new("unshare");
    unshare.args(["--map-root-user", "--mount", "--pid", "--fork", "--kill-child", "--propagation", "private"]);
    unshare
}
