//! `mount` and `umount`, which kubelet runs for volumes.
//!
//! Only the calls kubelet makes are understood (k8s.io/mount-utils, `mount_linux.go`); anything else is refused
//! with a message, because guessing at a mount is worse than not making it.

use std::ffi::OsString;

use rustix::io::Errno;
use rustix::mount::{MountFlags, MountPropagationFlags, UnmountFlags};

use super::Failure;

/// `MS_REMOUNT` (`include/uapi/linux/mount.h`), which rustix keeps to its own `mount_remount`.
const REMOUNT: MountFlags = MountFlags::from_bits_retain(32);

/// Runs `mount` with these arguments.
pub(super) fn mount(arguments: &[OsString]) -> Result<(), Failure> {
    Mount::parse(arguments)?.perform()
}

/// Runs `umount` with these arguments.
pub(super) fn unmount(arguments: &[OsString]) -> Result<(), Failure> {
    let (target, flags) = parse_unmount(arguments)?;
    rustix::mount::unmount(target, flags).map_err(|error| refused(&format!("umount: {}", target.display()), error))
}

/// Failure of a call that is understood, as mount(8) counts it.
fn refused(what: &str, error: Errno) -> Failure {
    Failure { text: format!("{what}: {error}"), code: 32 }
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
    fn parse(arguments: &[OsString]) -> Result<Self, Failure> {
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
                value.ok_or_else(|| Failure::usage(format!("mount: `{}` wants a value", argument.display())))
            };
            match argument.to_str() {
                Some("-t") => mount.kind = Some(value()?),
                Some("-o") => value()?.split(',').for_each(|option| mount.option(option)),
                Some("--bind") => mount.option("bind"),
                // A part of a volume, by the descriptor that kubelet holds it by (`subpath_linux.go`): the kernel follows all paths.
                Some("--no-canonicalize") => {}
                Some(flag) if flag.starts_with('-') => {
                    return Err(Failure::usage(format!("mount: `{flag}` is not understood")));
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
                Err(Failure::usage(format!("mount: wants a source and a target, not {} arguments", places.len())))
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

    fn perform(&self) -> Result<(), Failure> {
        let failed = |error| refused(&format!("mount: {} on {}", self.source.display(), self.target.display()), error);
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
            let data = std::ffi::CString::new(self.data.join(",")).map_err(|_| failed(Errno::INVAL))?;
            rustix::mount::mount(&self.source, &self.target, kind, self.flags, Some(data.as_c_str()))
                .map_err(failed)?;
        }
        match self.propagation {
            Some(propagation) => rustix::mount::mount_change(&self.target, propagation).map_err(failed),
            None => Ok(()),
        }
    }
}

fn parse_unmount(arguments: &[OsString]) -> Result<(&OsString, UnmountFlags), Failure> {
    let mut flags = UnmountFlags::empty();
    let mut targets = Vec::new();
    for argument in arguments {
        match argument.to_str() {
            Some("-f") => flags |= UnmountFlags::FORCE,
            Some("-l") => flags |= UnmountFlags::DETACH,
            Some(flag) if flag.starts_with('-') => {
                return Err(Failure::usage(format!("umount: `{flag}` is not understood")));
            }
            Some(_) | None => targets.push(argument),
        }
    }
    match targets[..] {
        [target] => Ok((target, flags)),
        _ => Err(Failure::usage(format!("umount: wants one target, not {}", targets.len()))), // none, or more
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<OsString> {
        line.split_whitespace().map(OsString::from).collect()
    }

    fn parse(line: &str) -> Result<Mount, Failure> {
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
        let part = parse("--no-canonicalize -o bind /proc/9/fd/10 /data/kubelet/pods/x/volume-subpaths/v/web/0");
        let part = part.expect("understood");
        assert_eq!((part.source.to_str(), part.flags), (Some("/proc/9/fd/10"), MountFlags::BIND));
        let (target, flags) = (words("-f /a"), UnmountFlags::FORCE);
        assert_eq!(parse_unmount(&target).expect("understood"), (&target[1], flags));
    }

    #[test]
    fn anything_else_is_refused() {
        for line in ["", "/a", "/a /b /c", "--make-unbindable /a /b", "-a", "/a /b -o", "/a /b -t"] {
            assert_eq!(parse(line).expect_err(line).code, Failure::USAGE, "{line}");
        }
        for line in ["", "-f", "/a /b", "-n /a"] {
            assert_eq!(parse_unmount(&words(line)).expect_err(line).code, Failure::USAGE, "{line}");
        }
    }
}
