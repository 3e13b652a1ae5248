//! Prepares the throw-away root, has the stage carry the commands out in it, and removes it, whatever happens to either end.
//!
//! ```text
//! <cache>/cairn/debian-root/<key>/root.tar     minbase, made once by debootstrap
//! <cache>/cairn/fresh/lock                     held while a fresh root is in use: there is one at a time
//! <cache>/cairn/fresh/root/                    the throw-away root
//! <cache>/cairn/fresh/archives/                packages that apt has downloaded
//! <cache>/cairn/fresh/checkout/<key>/          the clone, kept with its target folder: seen as /cairn inside
//! ```
//! The clone is brought to the commit by git, so that only what changed is newer than what cargo has built from it. Its key
//! is the release and the table of packages: with another table everything is compiled anew, so that what was built with a
//! package never hides that it is gone. It must never leave out silently what is not committed.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Command, ExitCode},
};

use anyhow::{Context, Result};

use super::{
    asked::{FreshOptions, RELEASE},
    environment::{self, Toolchains},
    readme,
    stage::{Access, Bind, Plan, within},
};
use crate::{
    cache::{self, BuildCache, CacheKey},
    digest::{Digest, DigestInputs},
    packages,
    process::{answer, logged},
    progress::{say, step},
    workspace::{self, Workspace},
};

/// Raised when the root is made differently.
const RECIPE: &str = "1";
/// The checkout, inside.
const CHECKOUT: &str = "/cairn";
/// File, inside, with the output of the README's first command.
const LOG: &str = "/var/log/fresh-root.log";
/// apt's archives, inside: not their usual place, which containers' configuration of apt empties after each use.
const ARCHIVES: &str = "/var/cache/apt-kept";
/// Certificates of the host, and those its administrator added.
const HOST_CERTIFICATES: &str = "/etc/ssl/certs/ca-certificates.crt";
const ADDED_CERTIFICATES: &str = "/usr/local/share/ca-certificates";

/// Carries out what is asked for, and cleans up.
///
/// # Errors
/// The root cannot be made or removed; a tool fails.
pub fn keep(workspace: &Workspace, cache: &BuildCache, asked: &FreshOptions) -> Result<ExitCode> {
    let site = Site { cache, folder: cache.root().join("fresh"), log: cache.log("fresh") };
    fs::create_dir_all(&site.folder).with_context(|| format!("create `{}`", site.folder.display()))?;
    let _lock = cache::lock("fresh root", &site.folder.join("lock"))?;
    remove(&site.root())?; // left by a run whose keeper was killed
    let _gone = fs::remove_file(&site.log);
    let result = site.carry_out(workspace, asked);
    remove(&site.root())?;
    result
}

struct Site<'a> {
    cache: &'a BuildCache,
    folder: PathBuf,
    log: PathBuf,
}

impl Site<'_> {
    fn root(&self) -> PathBuf {
        self.folder.join("root")
    }

    fn carry_out(&self, workspace: &Workspace, asked: &FreshOptions) -> Result<ExitCode> {
        let key = key()?;
        let archive = debian(self.cache, &key)?;
        let root = self.root();
        let commit = commit(workspace.root())?;
        let checkouts = self.folder.join("checkout");
        let checkout = if asked.cold { within(&root, Path::new(CHECKOUT)) } else { checkouts.join(key.to_string()) };
        step("fresh root", &format!("unpacking it, cloning {commit}"), || {
            fs::create_dir_all(&root).with_context(|| format!("create `{}`", root.display()))?;
            let mut unpack = Command::new("tar");
            unpack.args(["--extract", "--numeric-owner", "--file"]).arg(&archive).arg("--directory").arg(&root);
            logged(&mut unpack, &self.log)?;
            forget_others(&checkouts, &key)?;
            clone(workspace.root(), &commit, &checkout, &self.log)
        })?;

        let readme = fs::read_to_string(checkout.join("README.md")).context("read the README")?;
        let readme = readme::commands(&readme)?;
        let host = Host::look(workspace)?;
        let variables =
            env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
        let toolchains = Toolchains { rust: &host.rust, go: &host.go };
        let environment = environment::inside(variables, &host.home.to_string_lossy(), &toolchains);
        self.copy_configuration(&host, &environment)?;
        let mut binds = host.binds();
        binds.push(Bind { outside: self.archives()?, inside: ARCHIVES.into(), access: Access::Write });
        if !asked.cold {
            binds.push(Bind { outside: checkout, inside: CHECKOUT.into(), access: Access::Write });
            let kept = self.cache.root();
            binds.push(Bind { outside: kept.to_owned(), inside: kept.to_owned(), access: Access::Write });
        }
        for bind in &binds {
            make_place(&root, bind)?;
        }

        let words = if asked.command.is_empty() { readme.test } else { asked.command.clone() };
        let plan = Plan {
            root,
            binds,
            log: LOG.into(),
            first: readme.first,
            command: ["cargo".to_owned(), "xtask".to_owned()].into_iter().chain(words).collect(),
            folder: CHECKOUT.into(),
        };
        say(format_args!("▸ fresh root: `{}` in a clone of {commit}", plan.command.join(" ")));
        let mut stage = Command::new("unshare");
        stage.args(["--mount", "--pid", "--fork", "--kill-child", "--propagation", "private"]);
        stage.arg(env::current_exe().context("find this program")?).args(plan.words());
        // Its input stays ours: a pipe that closes when nobody waits any more.
        let status = stage.env_clear().envs(environment).status().context("start unshare")?;
        Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    /// How packages are downloaded here, and names: what a machine on this network would be given.
    fn copy_configuration(&self, host: &Host, environment: &[(String, String)]) -> Result<()> {
        let root = self.root();
        remove(&root.join("etc/apt"))?;
        let copy = |from: &Path, to: &Path, how: &[&str]| {
            if !from.exists() {
                return Ok(());
            }
            let to = within(&root, to);
            fs::create_dir_all(to.parent().unwrap_or(&root))
                .with_context(|| format!("make room for `{}`", to.display()))?;
            logged(Command::new("cp").args(how).arg("--no-target-directory").arg(from).arg(&to), &self.log)
        };
        let same = |path: &Path, how: &[&str]| copy(path, path, how);
        same(Path::new("/etc/apt"), &["--archive"])?;
        same(Path::new("/usr/share/keyrings"), &["--archive", "--no-clobber"])?;
        same(Path::new(ADDED_CERTIFICATES), &["--archive"])?;
        for file in ["/etc/resolv.conf", "/etc/hosts", HOST_CERTIFICATES] {
            same(Path::new(file), &["--dereference"])?;
        }
        let cargo = ["config.toml", "config"].map(|name| host.cargo_home.join(name));
        for file in cargo.iter().map(PathBuf::as_path).chain([host.go_env.as_path()]) {
            same(file, &["--dereference"])?;
        }
        for file in environment::certificates(environment).filter(|path| *path != Path::new(HOST_CERTIFICATES)) {
            same(file, &["--dereference"])?;
        }
        let keep = format!(
            "Dir::Cache::archives \"{ARCHIVES}\";\nAPT::Keep-Downloaded-Packages \"1\";\n\
             Binary::apt::APT::Keep-Downloaded-Packages \"1\";\n"
        );
        // What is thrown away need not survive a power cut: dpkg is several times faster so.
        for (file, text) in
            [("etc/apt/apt.conf.d/zz-cairn", keep.as_str()), ("etc/dpkg/dpkg.cfg.d/zz-cairn", "force-unsafe-io\n")]
        {
            fs::write(root.join(file), text).with_context(|| format!("write `{file}` of the fresh root"))?;
        }
        Ok(())
    }

    fn archives(&self) -> Result<PathBuf> {
        let archives = self.folder.join("archives");
        let partial = archives.join("partial");
        fs::create_dir_all(&partial).with_context(|| format!("create `{}`", partial.display()))?;
        Ok(archives)
    }
}

/// Parts of the host that go in: toolchains, downloads, devices.
struct Host {
    home: PathBuf,
    rust: PathBuf,
    go: PathBuf,
    cargo_home: PathBuf,
    go_env: PathBuf,
    go_modules: PathBuf,
    go_results: PathBuf,
}

impl Host {
    fn look(workspace: &Workspace) -> Result<Self> {
        let rust = answer(Command::new("rustc").args(["--print", "sysroot"]).current_dir(workspace.root()))?;
        let mut go = Command::new("go");
        let told = answer(go.args(["env", "GOROOT", "GOENV", "GOMODCACHE", "GOCACHE"]).env("GOTOOLCHAIN", "local"))?;
        let paths: Vec<PathBuf> = told.lines().map(PathBuf::from).collect();
        let [go, go_env, go_modules, go_results] =
            <[PathBuf; 4]>::try_from(paths).ok().context("read what `go env` says")?;
        Ok(Self {
            home: env::home_dir().context("find the home folder: HOME is not set")?,
            rust: PathBuf::from(rust),
            go,
            cargo_home: workspace::cargo_home()?,
            go_env,
            go_modules,
            go_results,
        })
    }

    fn binds(&self) -> Vec<Bind> {
        let bind = |path: &Path, access| Bind { outside: path.to_owned(), inside: path.to_owned(), access };
        // With the locks that go with it: cargo outside may download at the same time.
        let downloads = ["registry", ".package-cache", ".package-cache-mutate"].map(|name| self.cargo_home.join(name));
        let mut binds = vec![
            bind(Path::new("/dev"), Access::Whole),
            bind(Path::new("/sys"), Access::Whole),
            bind(&self.rust, Access::Read),
            bind(&self.go, Access::Read),
            bind(&self.go_modules, Access::Write),
            bind(&self.go_results, Access::Write),
        ];
        binds.extend(downloads.iter().filter(|path| path.exists()).map(|path| bind(path, Access::Write)));
        binds
    }
}

/// Digest of all that the root is made from.
fn key() -> Result<Digest> {
    let table: String = packages::all().map(|package| format!("{}\n", package.name)).collect();
    let inputs =
        DigestInputs::new("debian root").text("recipe", RECIPE).text("release", RELEASE).text("packages", &table);
    inputs.finish().context("hash the table of packages")
}

/// Debian's smallest root, as an archive: made by debootstrap, or found in the cache.
fn debian(cache: &BuildCache, inputs: &Digest) -> Result<PathBuf> {
    let key = CacheKey { kind: "debian-root", inputs: inputs.clone() };
    let entry = cache.entry(&key, |room| {
        step("debian root", "making it (2 minutes)", || {
            let tree = room.work.join("tree");
            // debootstrap mounts while it works; here nobody else sees that, and it ends with it.
            let mut make = Command::new("unshare");
            make.args(["--mount", "--propagation", "private", "/usr/sbin/debootstrap", "--variant=minbase", RELEASE])
                .arg(&tree);
            if let Some(mirror) = mirror()? {
                make.arg(mirror);
            }
            if let Some(proxy) = apt_proxy()? {
                make.env("http_proxy", proxy);
            }
            logged(&mut make, room.log)?;
            let mut pack = Command::new("tar");
            pack.args(["--create", "--numeric-owner", "--one-file-system"]);
            // Devices and processes are the host's; what apt downloaded and listed is old by then.
            pack.args(
                ["./dev/*", "./proc/*", "./sys/*", "./var/cache/apt/*", "./var/lib/apt/lists/*"]
                    .map(|path| format!("--exclude={path}")),
            );
            logged(pack.arg("--file").arg(room.out.join("root.tar")).arg("--directory").arg(&tree).arg("."), room.log)
        })
    })?;
    Ok(entry.join("root.tar"))
}

/// Where this host's apt has the release from, if it says so.
fn mirror() -> Result<Option<String>> {
    let mut apt = Command::new("apt-get");
    let told =
        answer(apt.args(["indextargets", "--format", "$(RELEASE) $(COMPONENT) $(REPO_URI)", "Identifier: Packages"]))?;
    let wanted = format!("{RELEASE} main ");
    Ok(told.lines().find_map(|line| line.strip_prefix(&wanted)).map(str::to_owned))
}

/// The proxy that apt is configured with, which debootstrap does not know.
fn apt_proxy() -> Result<Option<String>> {
    let told = answer(Command::new("apt-config").args(["shell", "proxy", "Acquire::http::Proxy"]))?;
    Ok(told.strip_prefix("proxy='").and_then(|rest| rest.strip_suffix('\'')).map(str::to_owned))
}

/// The commit that is cloned. What is not committed is named, for it is left out.
fn commit(checkout: &Path) -> Result<String> {
    let git = |arguments: &[&str]| answer(Command::new("git").args(arguments).current_dir(checkout));
    let changed = git(&["status", "--porcelain"])?;
    if !changed.is_empty() {
        say(format_args!("! not committed, and so left out of the fresh root:\n{changed}"));
    }
    git(&["rev-parse", "HEAD"])
}

/// Brings a clone of the checkout to a commit, with nothing in it but that and its target folder.
fn clone(from: &Path, commit: &str, to: &Path, log: &Path) -> Result<()> {
    let git = |arguments: &[&str]| {
        let mut git = Command::new("git");
        git.arg("-C").arg(to).args(arguments);
        logged(&mut git, log)
    };
    let from = from.to_string_lossy();
    let there = to.join(".git").exists() && git(&["fetch", "--quiet", &from, "HEAD"]).is_ok();
    if !there {
        remove(to)?;
        fs::create_dir_all(to).with_context(|| format!("create `{}`", to.display()))?;
        logged(Command::new("git").args(["clone", "--quiet", "--no-checkout", &from]).arg(to), log)?;
    }
    git(&["checkout", "--quiet", "--force", "--detach", commit])?;
    git(&["clean", "--quiet", "-ffdx", "--exclude=/target"])
}

/// Removes clones that were kept for another table of packages.
fn forget_others(checkouts: &Path, key: &Digest) -> Result<()> {
    let Ok(listed) = fs::read_dir(checkouts) else { return Ok(()) };
    for item in listed {
        let item = item.with_context(|| format!("list `{}`", checkouts.display()))?;
        if item.file_name().to_string_lossy() != key.to_string() {
            remove(&item.path())?;
        }
    }
    Ok(())
}

/// Makes what a bind is put on: a folder, or a file.
fn make_place(root: &Path, bind: &Bind) -> Result<()> {
    let at = within(root, &bind.inside);
    let folder =
        if bind.outside.is_dir() || !bind.outside.exists() { at.as_path() } else { at.parent().unwrap_or(root) };
    fs::create_dir_all(folder).with_context(|| format!("create `{}`", folder.display()))?;
    if bind.outside.is_file() {
        fs::write(&at, "").with_context(|| format!("create `{}`", at.display()))?;
    } else {
        // Downloads and results may not be there yet.
        fs::create_dir_all(&bind.outside).with_context(|| format!("create `{}`", bind.outside.display()))?;
    }
    Ok(())
}

/// Removes a folder with all in it, and never follows into another file system.
fn remove(folder: &Path) -> Result<()> {
    let mut remove = Command::new("rm");
    let status = remove.args(["--recursive", "--force", "--one-file-system", "--"]).arg(folder).status();
    anyhow::ensure!(status.context("start rm")?.success(), "remove `{}`", folder.display());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A checkout with one commit, and where it is cloned to.
    struct Checkout {
        folder: tempfile::TempDir,
    }

    impl Checkout {
        fn new() -> Self {
            let checkout = Self { folder: tempfile::tempdir().expect("a folder") };
            fs::create_dir(checkout.path("from")).expect("created");
            checkout.git(&["init", "--quiet"]);
            checkout.write("from/.gitignore", "/target\n");
            checkout.commit("one");
            checkout
        }

        fn path(&self, relative: &str) -> PathBuf {
            self.folder.path().join(relative)
        }

        fn write(&self, relative: &str, text: &str) {
            fs::write(self.path(relative), text).expect("written");
        }

        fn git(&self, arguments: &[&str]) {
            let mut git = Command::new("git");
            git.args(["-c", "user.name=n", "-c", "user.email=e"]).args(arguments).current_dir(self.path("from"));
            answer(&mut git).expect("git works");
        }

        /// Commits a file of this content.
        fn commit(&self, text: &str) {
            self.write("from/file", text);
            self.git(&["add", "--all"]);
            self.git(&["commit", "--quiet", "--message", text]);
        }

        /// Clones what is committed, and returns the file's content there.
        fn cloned(&self) -> String {
            let (from, to) = (self.path("from"), self.path("to"));
            clone(&from, &commit(&from).expect("a commit"), &to, &self.path("log")).expect("cloned");
            fs::read_to_string(to.join("file")).expect("there")
        }
    }

    #[test]
    fn a_clone_has_what_is_committed_and_nothing_else() {
        let checkout = Checkout::new();
        checkout.write("from/file", "not committed");
        checkout.write("from/stray", "not committed");
        assert_eq!(checkout.cloned(), "one");
        assert!(!checkout.path("to/stray").exists());
    }

    #[test]
    fn a_kept_clone_has_the_commit_and_its_own_target_folder() {
        let checkout = Checkout::new();
        checkout.cloned();
        let unchanged = fs::metadata(checkout.path("to/.gitignore")).and_then(|file| file.modified()).expect("a time");
        fs::create_dir(checkout.path("to/target")).expect("created");
        for stray in ["to/target/built", "to/stray"] {
            checkout.write(stray, "left by a run");
        }
        checkout.write("to/file", "changed by a run");
        checkout.commit("two");
        assert_eq!(checkout.cloned(), "two");
        assert!(checkout.path("to/target/built").exists() && !checkout.path("to/stray").exists());
        let after = fs::metadata(checkout.path("to/.gitignore")).and_then(|file| file.modified()).expect("a time");
        assert_eq!(after, unchanged, "what did not change is not built again");
    }

    #[test]
    fn a_kept_clone_that_git_cannot_use_is_made_anew() {
        let checkout = Checkout::new();
        checkout.cloned();
        checkout.write("to/.git/HEAD", "torn");
        checkout.commit("two");
        assert_eq!(checkout.cloned(), "two");
    }

    #[test]
    fn clones_of_another_table_are_removed() {
        let folder = tempfile::tempdir().expect("a folder");
        let key = key().expect("hashed");
        for name in [key.to_string(), "other".to_owned()] {
            fs::create_dir(folder.path().join(name)).expect("created");
        }
        forget_others(folder.path(), &key).expect("removed");
        let left: Vec<_> =
            fs::read_dir(folder.path()).expect("listed").map(|item| item.expect("an item").file_name()).collect();
        assert_eq!(left, [std::ffi::OsString::from(key.to_string())]);
    }

    #[test]
    fn places_are_made_as_what_is_bound_there() {
        let folder = tempfile::tempdir().expect("a folder");
        let (root, file) = (folder.path().join("root"), folder.path().join("file"));
        fs::write(&file, "x").expect("written");
        let bind = |outside: PathBuf| Bind { inside: outside.clone(), outside, access: Access::Read };
        for outside in [file.clone(), folder.path().join("not/there/yet")] {
            make_place(&root, &bind(outside.clone())).expect("made");
            assert_eq!(within(&root, &outside).is_dir(), outside.is_dir());
        }
        assert!(within(&root, &file).is_file() && folder.path().join("not/there/yet").is_dir());
    }
}
