//! Programs in this binary besides PID 1: the `mount` and `umount` that kubelet runs for volumes.
//!
//! Only the calls kubelet makes are understood (k8s.io/mount-utils, `mount_linux.go`); anything else is refused
//! with a message, because guessing at a mount is worse than not making it.

use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use rustix::mount::{MountFlags, MountPropagationFlags, UnmountFlags};

/// Wrong usage, as mount(8) counts it.
const USAGE: u8 = 1;
/// The mount failed, as mount(8) counts it.
const FAILED: u8 = 32;
/// `MS_REMOUNT` (`include/uapi/linux/mount.h`), which rustix keeps to its own `mount_remount`.
const REMOUNT: MountFlags = MountFlags::from_bits_retain(32);

/// Runs the applet that `arguments` names.
pub(crate) fn run(arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let arguments: Vec<OsString> = arguments.collect();
    let name = arguments.first().map(|name| Path::new(name).file_name().unwrap_or_default().to_owned());
    let rest = arguments.get(1..).unwrap_or_default();
    let name = name.as_deref().and_then(OsStr::to_str);
    let result = match name {
        Some("mount") => Mount::parse(rest).and_then(|mount| mount.perform()),
        Some("umount") => unmount(rest),
        Some(_) | None => Err(Error::Usage("cairn init is PID 1; it is also `mount` and `umount`".into())),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let (text, code) = match error {
                Error::Usage(text) => (text, USAGE),
                Error::System(text, error) => (format!("{text}: {error}"), FAILED),
            };
            let _stderr_may_be_closed = writeln!(std::io::stderr(), "{text}");
            ExitCode::from(code)
        }
    }
}

#[derive(Debug)]
enum Error {
    Usage(String),
    System(String, rustix::io::Errno),
}

/// A call of mount(8) with the arguments that kubelet gives.
#[derive(Debug, PartialEq, Eq)]
struct Mount {
    kind: Option<String>,
    source: OsString,
    target: OsString,
    flags: MountFlags,
    propagation: Option<MountPropagationFlags>,
    data: Vec<String>,
}

impl Mount {
    fn parse(arguments: &[OsString]) -> Result<Self, Error> {
        let mut places = Vec::new();
        let mut mount = Self {
            kind: None,
            source: OsString::new(),
            target: OsString::new(),
            flags: MountFlags::empty(),
            propagation: None,
            data: Vec::new(),
        };
        let mut arguments = arguments.iter();
        while let Some(argument) = arguments.next() {
            let mut value = || {
                let value = arguments.next().and_then(|value| value.to_str()).map(str::to_owned);
                value.ok_or_else(|| Error::Usage(format!("mount: `{}` wants a value", argument.display())))
            };
            match argument.to_str() {
                Some("-t") => mount.kind = Some(value()?),
                Some("-o") => value()?.split(',').for_each(|option| mount.option(option)),
                Some("--bind") => mount.option("bind"),
                Some(flag) if flag.starts_with('-') => {
                    return Err(Error::Usage(format!("mount: `{flag}` is not understood")));
                }
                Some(_) | None => places.push(argument.clone()),
            }
        }
        match <[OsString; 2]>::try_from(places) {
            Ok([source, target]) => {
                (mount.source, mount.target) = (source, target);
                Ok(mount)
            }
            Err(places) => {
                Err(Error::Usage(format!("mount: wants a source and a target, not {} arguments", places.len())))
            }
        }
    }

    fn option(&mut self, option: &str) {
        let flag = match option {
            "" | "defaults" | "rw" => return,
            "bind" => MountFlags::BIND,
            "rbind" => MountFlags::BIND | MountFlags::REC,
            "remount" => REMOUNT,
            "ro" => MountFlags::RDONLY,
            "nosuid" => MountFlags::NOSUID,
            "nodev" => MountFlags::NODEV,
            "noexec" => MountFlags::NOEXEC,
            "noatime" => MountFlags::NOATIME,
            "relatime" => MountFlags::RELATIME,
            "shared" => return self.propagation = Some(MountPropagationFlags::SHARED),
            "rshared" => return self.propagation = Some(MountPropagationFlags::SHARED | MountPropagationFlags::REC),
            "private" => return self.propagation = Some(MountPropagationFlags::PRIVATE),
            "slave" => return self.propagation = Some(MountPropagationFlags::DOWNSTREAM),
            "rslave" => {
                return self.propagation = Some(MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC);
            }
            other => return self.data.push(other.to_owned()),
        };
        self.flags |= flag;
    }

    fn perform(&self) -> Result<(), Error> {
        let failed =
            |error| Error::System(format!("mount: {} on {}", self.source.display(), self.target.display()), error);
        if self.flags.contains(REMOUNT) {
            let data = self.data.join(",");
            rustix::mount::mount_remount(&self.target, self.flags.difference(REMOUNT), data).map_err(failed)?;
        } else if self.flags.contains(MountFlags::BIND) {
            if self.flags.contains(MountFlags::REC) {
                rustix::mount::mount_bind_recursive(&self.source, &self.target).map_err(failed)?;
            } else {
                rustix::mount::mount_bind(&self.source, &self.target).map_err(failed)?;
            }
            let more = self.flags.difference(MountFlags::BIND | MountFlags::REC);
            if !more.is_empty() {
                rustix::mount::mount_remount(&self.target, more | MountFlags::BIND, "").map_err(failed)?;
            }
        } else {
            let kind = self.kind.as_deref().unwrap_or_default();
            let data = std::ffi::CString::new(self.data.join(",")).map_err(|_| failed(rustix::io::Errno::INVAL))?;
            rustix::mount::mount(&self.source, &self.target, kind, self.flags, Some(data.as_c_str()))
                .map_err(failed)?;
        }
        match self.propagation {
            Some(propagation) => rustix::mount::mount_change(&self.target, propagation).map_err(failed),
            None => Ok(()),
        }
    }
}

fn unmount(arguments: &[OsString]) -> Result<(), Error> {
    let (target, flags) = parse_unmount(arguments)?;
    rustix::mount::unmount(target, flags).map_err(|error| Error::System(format!("umount: {}", target.display()), error))
}

fn parse_unmount(arguments: &[OsString]) -> Result<(&OsString, UnmountFlags), Error> {
    let mut flags = UnmountFlags::empty();
    let mut targets = Vec::new();
    for argument in arguments {
        match argument.to_str() {
            Some("-f") => flags |= UnmountFlags::FORCE,
            Some("-l") => flags |= UnmountFlags::DETACH,
            Some(flag) if flag.starts_with('-') => {
                return Err(Error::Usage(format!("umount: `{flag}` is not understood")));
            }
            Some(_) | None => targets.push(argument),
        }
    }
    match targets[..] {
        [target] => Ok((target, flags)),
        _ => Err(Error::Usage(format!("umount: wants one target, not {}", targets.len()))), // none, or more
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<OsString> {
        line.split_whitespace().map(OsString::from).collect()
    }

    fn parse(line: &str) -> Result<Mount, Error> {
        Mount::parse(&words(line))
    }

    #[test]
    fn the_calls_kubelet_makes_are_understood() {
        let tmpfs = parse("-t tmpfs -o size=1024,noexec tmpfs /data/kubelet/pods/x").expect("understood");
        assert_eq!((tmpfs.kind.as_deref(), tmpfs.flags), (Some("tmpfs"), MountFlags::NOEXEC));
        assert_eq!(tmpfs.data, ["size=1024"]);
        let bind = parse("-o bind,ro /a /b").expect("understood");
        assert_eq!(bind.flags, MountFlags::BIND | MountFlags::RDONLY);
        assert_eq!((bind.source.to_str(), bind.target.to_str()), (Some("/a"), Some("/b")));
        let (target, flags) = (words("-f /a"), UnmountFlags::FORCE);
        assert_eq!(parse_unmount(&target).expect("understood"), (&target[1], flags));
    }

    #[test]
    fn anything_else_is_refused() {
        for line in ["", "/a", "/a /b /c", "--make-unbindable /a /b", "-a", "/a /b -o", "/a /b -t"] {
            assert!(matches!(parse(line), Err(Error::Usage(_))), "{line}");
        }
        for line in ["", "-f", "/a /b", "-n /a"] {
            assert!(matches!(parse_unmount(&words(line)), Err(Error::Usage(_))), "{line}");
        }
    }
}
