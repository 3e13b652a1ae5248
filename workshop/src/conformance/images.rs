//! Images that conformance specs run, made here under upstream's names: no registry is asked. Each holds programs of this host,
//! of Debian's packages, with the libraries they load, or upstream's own agnhost. It must never install anything.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use ::image::oci::{ContainerImage, ImageProcess, LayerEntry};
use anyhow::{Context, Result, bail};
use xtask::process::answer;

/// Debian package whose programs go into images.
struct Needed {
    package: &'static str,
    /// Programs of it, as this host has them; links are followed.
    programs: &'static [&'static str],
}

#[rustfmt::skip] // one row per line
const NEEDED: &[Needed] = &[
    Needed { package: "busybox-static", programs: &[BUSYBOX] },
    Needed { package: "bash", programs: &["/bin/bash"] },
    Needed { package: "bind9-dnsutils", programs: &["/usr/bin/dig"] },
    Needed { package: "curl", programs: &["/usr/bin/curl"] },
    Needed { package: "iproute2", programs: &["/bin/ip", "/bin/ss"] },
    Needed { package: "libc-bin", programs: &["/usr/bin/getent"] },
    Needed { package: "netcat-openbsd", programs: &["/bin/nc.openbsd"] },
];

/// Most tools: one static program.
const BUSYBOX: &str = "/bin/busybox";
/// Tools that busybox lacks, or has with too few options, by their names in an image. `/usr/bin` comes first in `PATH`.
const TOOLS: &[(&str, &str)] = &[
    ("/usr/bin/curl", "usr/bin/curl"),
    ("/bin/nc.openbsd", "usr/bin/nc"),
    ("/bin/ip", "usr/bin/ip"),
    ("/bin/ss", "usr/bin/ss"),
];
/// Shell of all images. Debian's busybox as a shell runs its own `nc` and `ip`, wherever `PATH` leads, and hands on no variable like
/// `data-1`, as upstream's newer one does.
const SHELL: (&str, &str) = ("/bin/bash", "bin/sh");
/// Tools that ask for names by the C library or beside it.
const RESOLVERS: &[(&str, &str)] =
    &[SHELL, ("/bin/bash", "bin/bash"), ("/usr/bin/dig", "usr/bin/dig"), ("/usr/bin/getent", "usr/bin/getent")];

const PATH: &str = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// The last user, and the groups it is in, are those that specs expect in agnhost's image (its Dockerfile).
const PASSWD: &str = "\
root:x:0:0:root:/root:/bin/sh
nobody:x:65534:65534:nobody:/:/bin/false
user-defined-in-image:x:1000:1000::/:/bin/sh
";
const GROUP: &str = "\
root:x:0:
nobody:x:65534:
user-defined-in-image:x:1000:
group-defined-in-image:x:50000:user-defined-in-image
";
const NSSWITCH: &str = "passwd: files\ngroup: files\nhosts: files dns\n";

/// Image that specs run.
struct Row {
    /// Name that upstream's tests ask for.
    reference: &'static str,
    content: Content,
}

/// Content of an image.
#[derive(Clone, Copy)]
enum Content {
    /// Upstream's agnhost, and the tools that its own image has.
    Agnhost,
    Busybox,
    /// Programs that ask for names by the GNU C library.
    Resolver,
    /// The machines' own pause program.
    Pause,
    /// busybox as a web server with one page. It stands for a server whose content no spec looks at, or this page alone.
    Web {
        page: &'static str,
        text: &'static str,
    },
}

#[rustfmt::skip] // one row per line
const IMAGES: &[Row] = &[
    Row { reference: "registry.k8s.io/e2e-test-images/agnhost:2.63.0", content: Content::Agnhost },
    // the other version in specs that change a pod's image: no spec looks for what differs
    Row { reference: "registry.k8s.io/e2e-test-images/agnhost:2.55", content: Content::Agnhost },
    Row { reference: "registry.k8s.io/e2e-test-images/busybox:1.37.0-1", content: Content::Busybox },
    Row { reference: "registry.k8s.io/e2e-test-images/glibc-dns-testing:2.0.0", content: Content::Resolver },
    Row { reference: "registry.k8s.io/e2e-test-images/nautilus:1.8", content: Content::Web { page: "data.json", text: "{\"image\": \"nautilus.jpg\"}\n" } },
    Row { reference: "registry.k8s.io/e2e-test-images/nginx:1.15-4", content: Content::Web { page: "index.html", text: "nginx\n" } },
    Row { reference: "registry.k8s.io/e2e-test-images/nginx:1.27-0", content: Content::Web { page: "index.html", text: "nginx\n" } },
    Row { reference: "registry.k8s.io/pause:3.10.2", content: Content::Pause },
];

/// Programs that are built here and go into images.
#[derive(Debug)]
pub(super) struct Built<'a> {
    /// Upstream's agnhost.
    pub(super) agnhost: &'a Path,
    /// The machines' own pause program.
    pub(super) pause: &'a Path,
    /// Source of agnhost, of which its image holds [`SERVED_BY`].
    pub(super) agnhost_source: &'a Path,
}

/// Certificate and key by which agnhost serves TLS where a pod brings none; its callers check neither.
const SERVED_BY: [&str; 2] = ["localhost.crt", "localhost.key"];

/// Refuses what cannot be made: names the packages that this host lacks.
///
/// # Errors
/// A program is missing.
pub(super) fn check_host() -> Result<()> {
    let is_there = |program: &&str| Path::new(program).is_file();
    let missing: Vec<&str> =
        NEEDED.iter().filter(|row| !row.programs.iter().all(is_there)).map(|row| row.package).collect();
    if missing.is_empty() {
        return Ok(());
    }
    bail!(
        "the images of upstream's tests are made of Debian's programs, and these packages are missing; install them as root:\n  \
         apt-get install --yes --no-install-recommends {}",
        missing.join(" ")
    )
}

/// Refuses where upstream's tests ask for other versions of the images than are made here.
///
/// # Errors
/// A name of the table is not among those that they ask for.
pub(super) fn check_names(asked: &BTreeSet<String>) -> Result<()> {
    match IMAGES.iter().find(|row| !asked.contains(row.reference)) {
        None => Ok(()),
        Some(row) => bail!(
            "upstream's tests no longer ask for `{}`: compare workshop/src/conformance/images.rs with `e2e.test --list-images`",
            row.reference
        ),
    }
}

/// Writes all images as OCI archives into a folder, and returns their paths.
///
/// # Errors
/// A program cannot be read, an archive not be written.
pub(super) fn write(built: &Built<'_>, folder: &Path) -> Result<Vec<PathBuf>> {
    fs::create_dir_all(folder).with_context(|| format!("create `{}`", folder.display()))?;
    let mut files = HostFiles::default();
    for (path, _) in TOOLS.iter().chain(RESOLVERS) {
        files.load_with_libraries(path)?;
    }
    files.load(BUSYBOX)?;
    let applets = answer(Command::new(BUSYBOX).arg("--list"))?;
    let (agnhost, pause) = (files.load(built.agnhost)?, files.load(built.pause)?);
    let served_by: Vec<(&str, PathBuf)> = SERVED_BY
        .into_iter()
        .map(|name| Ok((name, files.load(built.agnhost_source.join("porter").join(name))?)))
        .collect::<Result<_>>()?;
    IMAGES
        .iter()
        .map(|row| {
            let mut content = ImageContent { files: &files, layer: BTreeMap::new() };
            let process = match row.content {
                Content::Pause => {
                    content.file("pause", 0o555, files.bytes(&pause)?);
                    process(&["/pause"], &[])
                }
                Content::Busybox => {
                    content.system(&applets, &[SHELL])?;
                    process(&[], &["sh"])
                }
                Content::Resolver => {
                    content.system(&applets, RESOLVERS)?;
                    process(&[], &["bash"])
                }
                Content::Agnhost => {
                    content.system(&applets, &[TOOLS, RESOLVERS].concat())?;
                    content.file("agnhost", 0o755, files.bytes(&agnhost)?);
                    content.link("agnhost-2", "agnhost");
                    for (name, path) in &served_by {
                        content.file(name, 0o444, files.bytes(path)?);
                    }
                    content.directory("uploads", 0o755);
                    process(&["/agnhost"], &["pause"])
                }
                Content::Web { page, text } => {
                    content.system(&applets, &[])?;
                    content.file(&format!("www/{page}"), 0o444, text.as_bytes());
                    process(&[BUSYBOX, "httpd", "-f", "-p", "80", "-h", "/www"], &[])
                }
            };
            let image = ContainerImage {
                reference: row.reference,
                layer: content.layer,
                process,
                version: env!("CARGO_PKG_VERSION"),
            };
            let path = folder.join(file_name(row.reference));
            let bytes = image.archive().with_context(|| format!("make the image `{}`", row.reference))?;
            fs::write(&path, bytes).with_context(|| format!("write `{}`", path.display()))?;
            Ok(path)
        })
        .collect()
}

/// Name of an image's archive: `agnhost-2.55.tar`.
fn file_name(reference: &str) -> String {
    let name = reference.rsplit('/').next().unwrap_or(reference);
    format!("{}.tar", name.replace(':', "-"))
}

fn process(entrypoint: &[&str], command: &[&str]) -> ImageProcess {
    let words = |list: &[&str]| list.iter().map(|word| (*word).to_owned()).collect();
    ImageProcess { entrypoint: words(entrypoint), command: words(command), user: None, environment: words(&[PATH]) }
}

/// Files of this host, read once for all images.
#[derive(Default)]
struct HostFiles {
    bytes: BTreeMap<PathBuf, Vec<u8>>,
    /// Libraries that a program loads, by its path: where it looks for them.
    libraries: BTreeMap<PathBuf, Vec<PathBuf>>,
}

impl HostFiles {
    /// Reads a file, and returns the path that it is known by.
    fn load(&mut self, path: impl AsRef<Path>) -> Result<PathBuf> {
        let path = path.as_ref();
        if !self.bytes.contains_key(path) {
            let bytes = fs::read(path).with_context(|| format!("read `{}`", path.display()))?;
            self.bytes.insert(path.to_owned(), bytes);
        }
        Ok(path.to_owned())
    }

    fn load_with_libraries(&mut self, program: &str) -> Result<()> {
        let program = self.load(program)?;
        let libraries = libraries(&answer(Command::new("ldd").arg(&program))?);
        for library in &libraries {
            self.load(library)?;
        }
        self.libraries.insert(program, libraries);
        Ok(())
    }

    fn bytes(&self, path: &Path) -> Result<&[u8]> {
        self.bytes.get(path).map(Vec::as_slice).with_context(|| format!("`{}` was not read", path.display()))
    }
}

/// Paths of the libraries, and of the loader, that `ldd` lists for a program. The kernel's own has no path.
fn libraries(listed: &str) -> Vec<PathBuf> {
    let path = |line: &str| line.split_whitespace().find(|word| word.starts_with('/')).map(PathBuf::from);
    listed.lines().filter_map(path).collect()
}

/// Content of an image while it is put together.
struct ImageContent<'a> {
    files: &'a HostFiles,
    layer: BTreeMap<String, LayerEntry<'a>>,
}

impl<'a> ImageContent<'a> {
    fn file(&mut self, path: &str, mode: u32, bytes: &'a [u8]) {
        self.layer.insert(path.to_owned(), LayerEntry::File { mode, bytes });
    }

    fn link(&mut self, path: &str, target: &str) {
        self.layer.insert(path.to_owned(), LayerEntry::Link { target: target.to_owned() });
    }

    fn directory(&mut self, path: &str, mode: u32) {
        self.layer.insert(path.to_owned(), LayerEntry::Directory { mode });
    }

    /// A small system: busybox under all its names, what the C library reads, and more programs with their libraries.
    fn system(&mut self, applets: &str, programs: &[(&str, &str)]) -> Result<()> {
        self.file(BUSYBOX.trim_start_matches('/'), 0o755, self.files.bytes(Path::new(BUSYBOX))?);
        for applet in applets.lines().filter(|applet| *applet != "busybox") {
            self.link(&format!("bin/{applet}"), "busybox");
        }
        for (path, text) in [("etc/passwd", PASSWD), ("etc/group", GROUP), ("etc/nsswitch.conf", NSSWITCH)] {
            self.file(path, 0o644, text.as_bytes());
        }
        for (path, mode) in [("dev", 0o755), ("proc", 0o555), ("root", 0o700), ("sys", 0o555), ("tmp", 0o1777)] {
            self.directory(path, mode);
        }
        for (on_host, path) in programs {
            self.file(path, 0o755, self.files.bytes(Path::new(on_host))?);
            for library in self.files.libraries.get(Path::new(on_host)).into_iter().flatten() {
                self.file(library.to_string_lossy().trim_start_matches('/'), 0o755, self.files.bytes(library)?);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_and_the_loader_are_read_from_what_ldd_says() {
        let listed = "\tlinux-vdso.so.1 (0x00007ffe)\n\tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f70)\n\
                      \t/lib64/ld-linux-x86-64.so.2 (0x00007f70)\n";
        let paths = ["/lib/x86_64-linux-gnu/libc.so.6", "/lib64/ld-linux-x86-64.so.2"].map(PathBuf::from);
        assert_eq!(libraries(listed), paths);
        assert_eq!(libraries("\tstatically linked\n"), Vec::<PathBuf>::new());
    }

    #[test]
    fn every_image_has_a_file_of_its_own() {
        let files: BTreeSet<String> = IMAGES.iter().map(|row| file_name(row.reference)).collect();
        assert_eq!(files.len(), IMAGES.len());
        assert!(files.contains("agnhost-2.55.tar") && files.contains("pause-3.10.2.tar"), "{files:?}");
    }

    #[test]
    fn another_version_of_an_image_is_noticed() {
        let mut asked: BTreeSet<String> = IMAGES.iter().map(|row| row.reference.to_owned()).collect();
        check_names(&asked).expect("all are asked for");
        asked.remove("registry.k8s.io/pause:3.10.2");
        let error = check_names(&asked).expect_err("one is not").to_string();
        assert!(error.contains("registry.k8s.io/pause:3.10.2"), "{error}");
    }

    #[test]
    fn every_program_of_an_image_comes_from_a_package() {
        let brought: Vec<&str> = NEEDED.iter().flat_map(|row| row.programs).copied().collect();
        for (program, _) in TOOLS.iter().chain(RESOLVERS).chain([&(BUSYBOX, "")]) {
            assert!(brought.contains(program), "{program}");
        }
    }
}
