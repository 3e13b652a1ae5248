//! The first process in the private namespaces: it binds and mounts what the fresh root needs, makes that the root of all,
//! carries out the commands, and takes in whatever ends. With it the kernel ends all processes of the namespace, and the mounts are gone with
//! the last of them. It must never run outside: it would mount for everybody.

use std::{
    env,
    io::{Read, stdin},
    os::unix::fs::chroot,
    path::{Path, PathBuf},
    process::{Command, ExitCode, Stdio, exit, id},
    thread,
};

use anyhow::{Context, Result, bail};
use rustix::{
    mount::{MountFlags, mount, mount_bind, mount_bind_recursive, mount_move, mount_remount},
    process::{WaitOptions, wait},
};

use super::asked::STAGE;
use crate::{process::logged, progress::step};

/// A folder or file of the host that is seen in the root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Bind {
    pub(super) outside: PathBuf,
    /// Absolute, as it is named inside.
    pub(super) inside: PathBuf,
    pub(super) access: Access,
}

/// Access that is given to a bound folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    Read,
    Write,
    /// With all that is mounted below it: /dev and /sys.
    Whole,
}

/// All that the stage is told; it travels as arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Plan {
    pub(super) root: PathBuf,
    pub(super) binds: Vec<Bind>,
    /// Where the output of the first command goes, inside.
    pub(super) log: PathBuf,
    /// A line for a shell, as a person would paste it.
    pub(super) first: String,
    /// Program and arguments, carried out in `folder`.
    pub(super) command: Vec<String>,
    pub(super) folder: PathBuf,
}

impl Access {
    const fn word(self) -> &'static str {
        match self {
            Self::Read => "--read",
            Self::Write => "--write",
            Self::Whole => "--whole",
        }
    }

    fn of(word: &str) -> Result<Self> {
        let all = [Self::Read, Self::Write, Self::Whole];
        all.into_iter().find(|access| access.word() == word).with_context(|| format!("`{word}` is no access"))
    }
}

impl Plan {
    pub(super) fn words(&self) -> Vec<String> {
        let text = |path: &Path| path.to_string_lossy().into_owned();
        let mut words =
            vec![STAGE.to_owned(), text(&self.root), text(&self.log), text(&self.folder), self.first.clone()];
        for bind in &self.binds {
            words.extend([bind.access.word().to_owned(), text(&bind.outside), text(&bind.inside)]);
        }
        words.push("--".to_owned());
        words.extend(self.command.iter().cloned());
        words
    }

    /// Reads the words behind the first.
    fn parse(words: &[&str]) -> Result<Self> {
        let [root, log, folder, first, rest @ ..] = words else { bail!("the stage is not told enough") };
        let end = rest.iter().position(|word| *word == "--").context("the stage is told no command")?;
        let (bound, command) = (&rest[..end], &rest[end + 1..]);
        let bind = |words: &[&str]| match words {
            [access, outside, inside] => {
                Ok(Bind { outside: outside.into(), inside: inside.into(), access: Access::of(access)? })
            }
            _ => bail!("the stage is told half a bind"),
        };
        Ok(Self {
            root: root.into(),
            binds: bound.chunks(3).map(bind).collect::<Result<_>>()?,
            log: log.into(),
            first: (*first).to_owned(),
            command: command.iter().map(|word| (*word).to_owned()).collect(),
            folder: folder.into(),
        })
    }
}

/// Carries out a plan.
///
/// # Errors
/// Not the first process of a namespace; a mount, or the first command, fails.
pub fn perform(words: &[&str]) -> Result<ExitCode> {
    let plan = Plan::parse(words)?;
    if id() != 1 {
        bail!("the stage of a fresh root is started by `cargo xtask fresh`, in namespaces of its own");
    }
    thread::spawn(end_with_the_pipe);
    furnish(&plan)?;
    enter(&plan.root)?;
    step("fresh root", &format!("the README's first command: {}", plan.first), || {
        logged(Command::new("sh").arg("-c").arg(&plan.first).current_dir(&plan.folder), &plan.log)
    })?;
    let (program, arguments) = plan.command.split_first().context("the stage is told no command")?;
    let mut command = Command::new(program);
    command.args(arguments).current_dir(&plan.folder).stdin(Stdio::null());
    let child = command.spawn().with_context(|| format!("start `{program}`"))?.id();
    // Whatever loses its parent in this namespace becomes a child of this process, and is waited for here.
    loop {
        let (ended, status) =
            wait(WaitOptions::empty()).context("wait for what runs in the fresh root")?.context("nothing ended")?;
        if ended.as_raw_nonzero().get().cast_unsigned() == child {
            return Ok(if status.exit_status() == Some(0) { ExitCode::SUCCESS } else { ExitCode::FAILURE });
        }
    }
}

/// Ends this process, and with it all of the namespace, when nobody waits for it any more.
#[expect(
    clippy::exit,
    clippy::disallowed_methods,
    reason = "the main thread waits in the kernel, and has nothing to destroy"
)]
fn end_with_the_pipe() {
    let _nothing_ever_comes = stdin().read(&mut [0]);
    exit(1);
}

fn furnish(plan: &Plan) -> Result<()> {
    // A mount of its own, which can be moved.
    mount_bind_recursive(&plan.root, &plan.root).context("bind the fresh root to itself")?;
    for bind in &plan.binds {
        let at = within(&plan.root, &bind.inside);
        let from = &bind.outside;
        match bind.access {
            Access::Whole => mount_bind_recursive(from, &at),
            Access::Write => mount_bind(from, &at),
            Access::Read => {
                mount_bind(from, &at).and_then(|()| mount_remount(&at, MountFlags::BIND | MountFlags::RDONLY, c""))
            }
        }
        .with_context(|| format!("bind `{}` to `{}`", from.display(), at.display()))?;
    }
    mount("proc", plan.root.join("proc"), "proc", MountFlags::empty(), None).context("mount /proc of the fresh root")
}

/// Where a path of the inside is outside.
pub(super) fn within(root: &Path, inside: &Path) -> PathBuf {
    root.join(inside.strip_prefix("/").unwrap_or(inside))
}

/// Makes a folder the root of this namespace. What was there is below it and cannot be reached: in a mere chroot nobody
/// could have a user namespace, and tests may want one.
fn enter(root: &Path) -> Result<()> {
    env::set_current_dir(root).context("go into the fresh root")?;
    mount_move(root, "/").context("move the fresh root to /")?;
    chroot(".").context("make the fresh root /")?;
    env::set_current_dir("/").context("go to the fresh root's /")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan() -> Plan {
        let bind = |access| Bind { outside: "/host/a b".into(), inside: "/in".into(), access };
        Plan {
            root: "/r".into(),
            binds: [Access::Read, Access::Write, Access::Whole].map(bind).into(),
            log: "/l".into(),
            first: "one && two".to_owned(),
            command: ["cargo", "xtask", "--", "--whole"].map(str::to_owned).into(),
            folder: "/cairn".into(),
        }
    }

    #[test]
    fn a_plan_travels_as_words() {
        let words = plan().words();
        let words: Vec<&str> = words.iter().skip(1).map(String::as_str).collect();
        assert_eq!(Plan::parse(&words).expect("read back"), plan());
    }

    #[test]
    fn half_a_plan_is_refused() {
        let words = plan().words();
        let words: Vec<&str> = words.iter().skip(1).map(String::as_str).collect();
        Plan::parse(&words[..3]).expect_err("no first command");
        Plan::parse(&words[..6]).expect_err("no command");
        Plan::parse(&[&words[..5], &words[7..]].concat()).expect_err("half a bind");
    }

    /// Started by hand it would mount on the machine itself.
    #[test]
    fn nothing_is_mounted_where_others_see_it() {
        let words = plan().words();
        let words: Vec<&str> = words.iter().skip(1).map(String::as_str).collect();
        assert!(perform(&words).expect_err("refused").to_string().contains("namespaces of its own"));
    }
}
