//! Needs of the first long step that a machine must meet before it: packages and programs, Rust and Go in the versions
//! that the checkout pins, disk, memory. Everything that is wrong is said at once, each with what to do. It must never
//! change the machine, and takes a second.

use std::{
    env, fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context, Result, bail};

use crate::{
    cache::BuildCache,
    packages::{self, BecomeRoot, Package},
    progress::say,
    workspace::Workspace,
};

const GIB: u64 = 1 << 30;
/// Machines of 3 GiB run here, and the linker of the release image takes 2 GiB beside what the host itself holds.
const MEMORY: u64 = 6 * GIB;

/// Versions that the checkout asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Wanted {
    /// Exactly this: the image's bytes depend on the compiler.
    rust: String,
    /// This or a newer one.
    go: String,
}

/// State of a machine, as it was seen.
#[derive(Debug)]
struct Seen {
    /// Version of the Rust compiler that cargo uses in the checkout.
    rust: Option<String>,
    /// Version of Go.
    go: Option<String>,
    /// File systems that are written, with what will be.
    disks: Vec<Disk>,
    /// Bytes of memory of the whole machine.
    memory: u64,
    /// Packages that are not installed.
    missing: Vec<&'static Package>,
    /// How they can be installed; none without root and without sudo.
    root: Option<BecomeRoot>,
    /// Programs of packages that are installed, or of Debian's own, and yet not in `PATH`.
    lost: Vec<&'static str>,
}

/// A file system that is written.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Disk {
    /// Device below the folder: one file system may be mounted at many places.
    device: String,
    /// Where it is mounted.
    mount: PathBuf,
    free: u64,
    needed: u64,
}

impl Disk {
    /// Whether both are one. Free bytes tell nothing: others write at the same time. A name that is no path, `tmpfs` for
    /// example, is common to many.
    fn is(&self, other: &Self) -> bool {
        self.device == other.device && (self.mount == other.mount || self.device.starts_with('/'))
    }
}

/// Fault of the machine, and its remedy.
#[derive(Debug, PartialEq, Eq)]
struct Fault {
    what: String,
    remedy: String,
}

/// Looks at this machine, says what it has, and installs the packages that it lacks.
///
/// # Errors
/// Something is wrong, and all of it has been listed; nothing was changed. Or the packages cannot be installed.
pub fn set_up(workspace: &Workspace, cache: &BuildCache) -> Result<()> {
    let wanted = wanted(workspace)?;
    let seen = look(workspace, cache)?;
    let faults = faults(&wanted, &seen);
    if !faults.is_empty() {
        say("This machine cannot do it yet:");
        for fault in &faults {
            say(format_args!("  ✗ {}\n      {}", fault.what, fault.remedy));
        }
        bail!("{} of what is needed is not there; nothing was changed", faults.len());
    }
    say(format_args!("✓ this machine: {}", summary(&seen)));
    match seen.root {
        Some(become_root) => packages::install(&seen.missing, become_root, cache),
        None => Ok(()), // nothing is missing, or it would be among the faults
    }
}

/// All that is wrong.
fn faults(wanted: &Wanted, seen: &Seen) -> Vec<Fault> {
    let mut faults = Vec::new();
    let mut fault = |what: String, remedy: String| faults.push(Fault { what, remedy });
    let rustup = format!("with rustup: rustup toolchain install {}", wanted.rust);
    match &seen.rust {
        None => fault(format!("Rust {} is not there", wanted.rust), rustup),
        Some(rust) if *rust != wanted.rust => {
            fault(format!("Rust is {rust}, and rust-toolchain.toml names {}", wanted.rust), rustup);
        }
        Some(_) => {}
    }
    let install_go = format!("install Go {} or newer, and put its folder `bin` into PATH", wanted.go);
    match &seen.go {
        None => fault("Go is not there".to_owned(), install_go),
        Some(go) if numbers(go) < numbers(&wanted.go) => {
            fault(format!("Go is {go}, and components/ needs {}", wanted.go), install_go);
        }
        Some(_) => {}
    }
    for disk in seen.disks.iter().filter(|disk| disk.free < disk.needed) {
        let (free, needed) = (size(disk.free), size(disk.needed));
        fault(
            format!("{free} are free below `{}`, and building takes {needed}", disk.mount.display()),
            "make room there, or name folders elsewhere: CARGO_TARGET_DIR, XDG_CACHE_HOME".to_owned(),
        );
    }
    if seen.memory < MEMORY {
        fault(
            format!(
                "there are {} of memory, and building and running machines takes {}",
                size(seen.memory),
                size(MEMORY)
            ),
            "use a machine with more".to_owned(),
        );
    }
    if seen.root.is_none() && !seen.missing.is_empty() {
        let names: Vec<&str> = seen.missing.iter().map(|package| package.name).collect();
        fault(
            format!("{} Debian packages are missing; this user is not root, and sudo does not work here", names.len()),
            format!("as root: apt-get install {}", names.join(" ")),
        );
    }
    for program in &seen.lost {
        let by = packages::all().find(|package| package.programs.contains(program));
        let by = by.map_or("every Debian has it".to_owned(), |package| format!("package {} has it", package.name));
        fault(format!("`{program}` is not in PATH"), format!("{by}: put its folder into PATH, or install it again"));
    }
    faults
}

fn summary(seen: &Seen) -> String {
    let version = |version: &Option<String>| version.clone().unwrap_or_default();
    let disks: Vec<String> =
        seen.disks.iter().map(|disk| format!("{} free below `{}`", size(disk.free), disk.mount.display())).collect();
    format!(
        "Rust {}, Go {}, {}, {} of memory",
        version(&seen.rust),
        version(&seen.go),
        disks.join(", "),
        size(seen.memory)
    )
}

fn size(bytes: u64) -> String {
    format!("{}.{} GiB", bytes / GIB, bytes % GIB * 10 / GIB)
}

/// The numbers of a version, for comparing: `1.26.6` is `[1, 26, 6]`.
fn numbers(version: &str) -> Vec<u32> {
    version.split('.').map(|number| number.parse().unwrap_or(0)).collect()
}

fn wanted(workspace: &Workspace) -> Result<Wanted> {
    let read = |path: PathBuf| fs::read_to_string(&path).with_context(|| format!("read `{}`", path.display()));
    let rust = channel(&read(workspace.path("rust-toolchain.toml"))?)?.to_owned();
    let mut go = String::new();
    let components = workspace.path("components");
    for item in fs::read_dir(&components).with_context(|| format!("list `{}`", components.display()))? {
        let text = read(item.with_context(|| format!("list `{}`", components.display()))?.path().join("go.mod"))?;
        if let Some(version) = text.lines().find_map(|line| line.strip_prefix("go "))
            && numbers(version) > numbers(&go)
        {
            version.trim().clone_into(&mut go);
        }
    }
    Ok(Wanted { rust, go })
}

fn channel(toolchain: &str) -> Result<&str> {
    let value = toolchain.lines().find_map(|line| line.strip_prefix("channel = "));
    value.map(|value| value.trim().trim_matches('"')).context("rust-toolchain.toml names no channel")
}

fn look(workspace: &Workspace, cache: &BuildCache) -> Result<Seen> {
    let missing = packages::missing()?;
    let root = if missing.is_empty() { None } else { packages::root()? };
    // Go as the components are built with it: never another one that it would download.
    let go = said(Command::new("go").arg("version").env("GOTOOLCHAIN", "local"));
    let rust = said(Command::new("rustc").arg("--version").current_dir(workspace.root()));
    let path = env::var_os("PATH").unwrap_or_default();
    let here = packages::all().filter(|package| missing.iter().all(|gone| gone.name != package.name));
    let programs = here.flat_map(|package| package.programs).chain(packages::ALWAYS_THERE).copied();
    Ok(Seen {
        rust: rust.and_then(|text| word(&text, 1, "")),
        go: go.and_then(|text| word(&text, 2, "go")),
        disks: disks(workspace, cache)?,
        memory: memory(&fs::read_to_string("/proc/meminfo").context("read /proc/meminfo")?)?,
        lost: programs.filter(|program| !is_found(program, &path)).collect(),
        missing,
        root,
    })
}

/// Output of a program, if it is there and works.
fn said(command: &mut Command) -> Option<String> {
    let output = command.stdin(Stdio::null()).stderr(Stdio::null()).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Word of a text, without the prefix it begins with.
fn word(text: &str, index: usize, prefix: &str) -> Option<String> {
    text.split_whitespace().nth(index)?.strip_prefix(prefix).map(str::to_owned)
}

fn memory(meminfo: &str) -> Result<u64> {
    let total = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let kilobytes = total.and_then(|text| text.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    kilobytes.map(|kilobytes| kilobytes << 10).context("/proc/meminfo names no MemTotal")
}

fn is_found(program: &str, path: &std::ffi::OsStr) -> bool {
    let executable =
        |path: PathBuf| fs::metadata(path).is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0);
    // A path stays itself when it is joined to a folder.
    env::split_paths(path).any(|folder| executable(folder.join(program)))
}

/// File systems that are written to: those of cargo's target folder and of the cache. A folder that was filled by an
/// earlier run needs little more.
fn disks(workspace: &Workspace, cache: &BuildCache) -> Result<Vec<Disk>> {
    let target = workspace.target();
    let images = if target.join("image-under-test").exists() { 3 * GIB } else { 14 * GIB };
    let results = if cache.root().join("kernel").exists() { GIB } else { 5 * GIB };
    let mut disks: Vec<Disk> = Vec::new();
    for (folder, needed) in [(target.as_path(), images), (cache.root(), results)] {
        // What is not there yet will be on the file system of what it will be in.
        let there = folder.ancestors().find(|path| path.exists()).unwrap_or(Path::new("/"));
        let mut df = Command::new("df");
        let told = said(df.args(["--block-size=1", "--output=avail,source,target"]).arg(there)).context("ask df")?;
        let disk = disk(&told).with_context(|| format!("read what df says of `{}`", there.display()))?;
        match disks.iter_mut().find(|known| known.is(&disk)) {
            Some(known) => known.needed += needed,
            None => disks.push(Disk { needed, ..disk }),
        }
    }
    Ok(disks)
}

/// File system, as df tells it behind the heading; nothing is needed of it yet.
fn disk(told: &str) -> Option<Disk> {
    let (free, rest) = told.lines().nth(1)?.trim_start().split_once(' ')?;
    let (device, mount) = rest.trim_start().split_once(' ')?;
    Some(Disk { device: device.to_owned(), mount: PathBuf::from(mount.trim()), free: free.parse().ok()?, needed: 0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wants() -> Wanted {
        Wanted { rust: "1.95.0".to_owned(), go: "1.26.6".to_owned() }
    }

    /// A machine that has all.
    fn good() -> Seen {
        Seen {
            rust: Some("1.95.0".to_owned()),
            go: Some("1.26.8".to_owned()),
            disks: vec![Disk { device: "a".to_owned(), mount: "/".into(), free: 20 * GIB, needed: 19 * GIB }],
            memory: 8 * GIB,
            missing: vec![],
            root: None,
            lost: vec![],
        }
    }

    #[test]
    fn a_machine_that_has_all_has_no_fault() {
        assert_eq!(faults(&wants(), &good()), []);
        // Root is asked for only where something is missing, and then nothing is wrong.
        let installs = Seen { missing: packages::all().collect(), root: Some(BecomeRoot::Sudo), ..good() };
        assert_eq!(faults(&wants(), &installs), []);
        assert_eq!(faults(&wants(), &Seen { go: Some("1.27".to_owned()), ..good() }), []);
    }

    #[test]
    fn each_thing_that_is_wrong_is_said_with_what_to_do() {
        let disk = Disk { device: "a".to_owned(), mount: "/var".into(), free: 2 * GIB, needed: 5 * GIB };
        for (seen, what, remedy) in [
            (Seen { rust: None, ..good() }, "Rust 1.95.0", "rustup"),
            (Seen { rust: Some("1.96.0".to_owned()), ..good() }, "1.96.0", "install 1.95.0"),
            (Seen { go: None, ..good() }, "Go", "install Go 1.26.6"),
            (Seen { go: Some("1.26.5".to_owned()), ..good() }, "1.26.5", "install Go 1.26.6"),
            (Seen { go: Some("1.9".to_owned()), ..good() }, "1.9", "install Go 1.26.6"),
            (Seen { disks: vec![disk], ..good() }, "2.0 GiB are free below `/var`", "CARGO_TARGET_DIR"),
            (Seen { memory: 4 * GIB, ..good() }, "4.0 GiB of memory", "more"),
            (Seen { missing: packages::FIRST.iter().collect(), ..good() }, "4 Debian packages", "apt-get install ca-"),
            (Seen { lost: vec!["protoc"], ..good() }, "`protoc`", "protobuf-compiler"),
        ] {
            let found = faults(&wants(), &seen);
            assert_eq!(found.len(), 1, "{found:?}");
            assert!(found[0].what.contains(what) && found[0].remedy.contains(remedy), "{found:?}");
        }
    }

    #[test]
    fn all_that_is_wrong_is_said_at_once() {
        let disk = |device: &str| Disk { device: device.to_owned(), mount: "/".into(), free: 0, needed: 1 };
        let disks = vec![disk("a"), disk("b")];
        let (missing, lost) = (packages::FIRST.iter().collect(), vec!["df", "tar"]);
        let nothing = Seen { rust: None, go: None, disks, memory: 0, missing, root: None, lost };
        assert_eq!(faults(&wants(), &nothing).len(), 8);
    }

    #[test]
    fn what_programs_say_is_read() {
        assert_eq!(word("rustc 1.95.0 (abc 2026-01-01)\n", 1, "").as_deref(), Some("1.95.0"));
        assert_eq!(word("go version go1.26.8 linux/amd64\n", 2, "go").as_deref(), Some("1.26.8"));
        assert_eq!(word("bash: go: not found", 2, "go"), None);
        assert_eq!(memory("MemTotal:        8000000 kB\nMemFree: 1 kB\n").expect("read"), 8_192_000_000);
        let told = disk("      Avail Filesystem Mounted on\n82678038528 /dev/vda   /a b\n").expect("read");
        assert_eq!((told.free, told.device.as_str(), told.mount), (82_678_038_528, "/dev/vda", "/a b".into()));
        assert!(numbers("1.26.10") > numbers("1.26.9") && numbers("1.26.1") > numbers("1.26"));
    }

    #[test]
    fn one_file_system_at_two_places_is_one() {
        let disk =
            |device: &str, mount: &str, free| Disk { device: device.to_owned(), mount: mount.into(), free, needed: 0 };
        assert!(disk("/dev/vda", "/a", 5).is(&disk("/dev/vda", "/b", 4)));
        assert!(disk("tmpfs", "/a", 5).is(&disk("tmpfs", "/a", 4)));
        assert!(!disk("tmpfs", "/a", 5).is(&disk("tmpfs", "/b", 5)));
        assert!(!disk("/dev/vda", "/a", 5).is(&disk("/dev/vdb", "/b", 5)));
    }

    #[test]
    fn programs_are_found_by_name_and_by_path() {
        let path = std::ffi::OsStr::new("/nowhere:/usr/bin");
        assert!(is_found("sh", path) && is_found("/usr/bin/env", path));
        assert!(!is_found("no-such-program", path) && !is_found("/usr/bin/no-such-program", path));
    }

    /// Versions that the checkout asks for are read from where they are pinned, so that they cannot be asked for twice.
    #[test]
    fn the_checkout_says_what_it_wants() {
        let wanted = wanted(&Workspace::of_cargo().expect("run by cargo")).expect("read");
        assert!(wanted.rust.starts_with("1.") && wanted.go.starts_with("1."), "{wanted:?}");
        assert!(numbers(&wanted.go) >= vec![1, 26], "{wanted:?}");
    }
}
