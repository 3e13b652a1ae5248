//! The upstream components: each a pinned Go module in `components/`, built static and reproducible, with the licences of
//! what is linked into it; and `mkfs.xfs` from Debian's source. It must never build what a go.sum does not pin.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use ::image::ImageExtension;
use anyhow::{Context, Result};
use serde::Deserialize;
use xtask::{
    cache::{BuildCache, BuildRoom, CacheKey},
    digest::DigestInputs,
    process::{answer, logged},
    progress::step,
    workspace::Workspace,
};

use crate::{component::Component, notices, xfsprogs};

/// Raised when this file builds differently from the same inputs.
const RECIPE: &str = "2";
/// No symbols, no debug data, and no build id: it would differ between equal builds.
const LINK: &str = "-s -w -buildid=";

/// All components: paths into the cache.
#[derive(Debug, Clone)]
pub(crate) struct Components {
    /// The five Kubernetes binaries in one; the name it is called by chooses.
    pub(crate) kube: Component,
    /// etcd.
    pub(crate) etcd: Component,
    /// containerd and its shim.
    pub(crate) containerd: Component,
    /// runc.
    pub(crate) runc: Component,
    /// The CNI plugins ptp, host-local, loopback and portmap.
    pub(crate) cni: Component,
    /// CoreDNS.
    pub(crate) coredns: Component,
    /// mkfs.xfs.
    pub(crate) xfsprogs: Component,
    /// kubectl for the host; not part of the image.
    pub(crate) kubectl: Component,
}

/// How one Go module becomes executables.
#[derive(Debug)]
struct Recipe {
    /// Folder below `components`, and name of the component.
    name: &'static str,
    /// The module whose version is the component's.
    upstream: &'static str,
    /// Executable and the package that makes it; one that is called `….test`, as Go calls them, is that package's tests.
    executables: &'static [(&'static str, &'static str)],
    /// Build tags.
    tags: &'static str,
    /// Variables set at link time; `{version}`, `{minor}` and `{patch}` are those of `upstream`.
    stamps: &'static [(&'static str, &'static str)],
    /// Whether C is linked, and so what its result depends on.
    c: C,
}

/// C code that goes into a Go program.
#[derive(Debug)]
enum C {
    None,
    /// Linked statically: Debian packages whose libraries go in.
    Static(&'static [&'static str]),
}

/// Without its stamp a node reports `v0.0.0-master`. The other fields are fixed for reproducibility.
const KUBERNETES_VERSION: &[(&str, &str)] = &[
    ("k8s.io/component-base/version.gitVersion", "v1.{minor}.{patch}"),
    ("k8s.io/component-base/version.gitMajor", "1"),
    ("k8s.io/component-base/version.gitMinor", "{minor}"),
    ("k8s.io/component-base/version.gitCommit", "unknown"),
    ("k8s.io/component-base/version.gitTreeState", "clean"),
    ("k8s.io/component-base/version.buildDate", "1970-01-01T00:00:00Z"),
];

const KUBE: Recipe = Recipe {
    name: "kube",
    upstream: "k8s.io/kubernetes",
    executables: &[("kube", ".")],
    // upstream's release tags; grpcnotrace lets the linker drop unused methods: 18 MB less
    tags: "notest,grpcnotrace",
    stamps: KUBERNETES_VERSION,
    c: C::None,
};
const KUBECTL: Recipe = Recipe {
    name: "kubectl",
    upstream: "k8s.io/kubectl",
    executables: &[("kubectl", ".")],
    tags: "grpcnotrace",
    stamps: KUBERNETES_VERSION,
    c: C::None,
};
const ETCD: Recipe = Recipe {
    name: "etcd",
    upstream: "go.etcd.io/etcd/server/v3",
    executables: &[("etcd", "go.etcd.io/etcd/server/v3")],
    tags: "",
    stamps: &[],
    c: C::None,
};
const CONTAINERD: Recipe = Recipe {
    name: "containerd",
    upstream: "github.com/containerd/containerd/v2",
    executables: &[
        ("containerd", "github.com/containerd/containerd/v2/cmd/containerd"),
        ("containerd-shim-runc-v2", "github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2"),
    ],
    // snapshotters that need tools or file systems which the machine does not have
    tags: "no_btrfs,no_devmapper,no_zfs,urfave_cli_no_docs",
    stamps: &[("github.com/containerd/containerd/v2/version.Version", "{version}")],
    c: C::None,
};
const RUNC: Recipe = Recipe {
    name: "runc",
    upstream: "github.com/opencontainers/runc",
    executables: &[("runc", "github.com/opencontainers/runc")],
    // without seccomp every pod fails, for the kubelet asks for the default profile
    tags: "netgo,osusergo,seccomp",
    stamps: &[],
    c: C::Static(&["libseccomp-dev", "libc6-dev"]),
};
/// Component of images with gVisor alone. Upstream releases it by date, and its module stamps nothing by itself.
const GVISOR: Recipe = Recipe {
    name: "gvisor",
    upstream: "gvisor.dev/gvisor",
    executables: &[("runsc", "gvisor.dev/gvisor/runsc"), ("containerd-shim-runsc-v1", ".")],
    tags: "",
    stamps: &[("gvisor.dev/gvisor/runsc/version.version", "{version}")],
    c: C::None,
};
const CNI: Recipe = Recipe {
    name: "cni",
    upstream: "github.com/containernetworking/plugins",
    executables: &[
        ("ptp", "github.com/containernetworking/plugins/plugins/main/ptp"),
        ("host-local", "github.com/containernetworking/plugins/plugins/ipam/host-local"),
        ("loopback", "github.com/containernetworking/plugins/plugins/main/loopback"),
        ("portmap", "github.com/containernetworking/plugins/plugins/meta/portmap"),
    ],
    tags: "",
    stamps: &[("github.com/containernetworking/plugins/pkg/utils/buildversion.BuildVersion", "{version}")],
    c: C::None,
};

const COREDNS: Recipe = Recipe {
    name: "coredns",
    upstream: "github.com/coredns/coredns",
    executables: &[("coredns", ".")],
    tags: "grpcnotrace",
    stamps: &[],
    c: C::None,
};

/// Upstream's end-to-end tests, and the program of the image that most of their pods run. Only for this host.
const E2E: Recipe = Recipe {
    name: "e2e",
    upstream: "k8s.io/kubernetes",
    executables: &[("e2e.test", "k8s.io/kubernetes/test/e2e"), ("agnhost", "k8s.io/kubernetes/test/images/agnhost")],
    tags: "grpcnotrace",
    stamps: KUBERNETES_VERSION,
    c: C::None,
};

/// Builds all components, or takes them from the cache.
///
/// # Errors
/// A tool that fails, a module that is not what its go.sum says, a version that cannot be read.
pub(crate) fn build(workspace: &Workspace, cache: &BuildCache) -> Result<Components> {
    let module = |recipe| go_module(workspace, cache, recipe);
    Ok(Components {
        etcd: module(&ETCD)?,
        containerd: module(&CONTAINERD)?,
        runc: module(&RUNC)?,
        cni: module(&CNI)?,
        coredns: module(&COREDNS)?,
        kube: module(&KUBE)?,
        kubectl: module(&KUBECTL)?,
        xfsprogs: xfsprogs::build(cache)?,
    })
}

/// Builds the components of extensions, or takes them from the cache.
///
/// # Errors
/// As above.
pub(crate) fn of_extensions(
    workspace: &Workspace,
    cache: &BuildCache,
    extensions: &BTreeSet<ImageExtension>,
) -> Result<Vec<Component>> {
    extensions.iter().map(|one| go_module(workspace, cache, recipe_of(*one))).collect()
}

const fn recipe_of(extension: ImageExtension) -> &'static Recipe {
    match extension {
        ImageExtension::Gvisor => &GVISOR,
    }
}

/// Whether the components of an extension are in the cache: never builds.
///
/// # Errors
/// The module or the cache cannot be read.
pub(crate) fn are_cached(workspace: &Workspace, cache: &BuildCache, extension: ImageExtension) -> Result<bool> {
    Ok(cache.found(&Module::of(workspace, recipe_of(extension))?.key)?.is_some())
}

/// Builds kubectl alone, or takes it from the cache: its path.
///
/// # Errors
/// As above.
pub(crate) fn kubectl(workspace: &Workspace, cache: &BuildCache) -> Result<PathBuf> {
    Ok(go_module(workspace, cache, &KUBECTL)?.folder.join(KUBECTL.name))
}

/// Builds upstream's end-to-end tests with agnhost, or takes them from the cache. No image and no other command needs them.
///
/// # Errors
/// As above.
pub(crate) fn e2e(workspace: &Workspace, cache: &BuildCache) -> Result<Component> {
    go_module(workspace, cache, &E2E)
}

/// The same where they are in the cache: never builds.
///
/// # Errors
/// The module or the cache cannot be read.
pub(crate) fn e2e_cached(workspace: &Workspace, cache: &BuildCache) -> Result<Option<Component>> {
    let module = Module::of(workspace, &E2E)?;
    Ok(cache.found(&module.key)?.map(|folder| module.component(folder)))
}

/// Source of upstream's tests, as its go.sum pins it.
///
/// # Errors
/// The module cannot be downloaded.
pub(crate) fn e2e_source(workspace: &Workspace) -> Result<PathBuf> {
    #[derive(Deserialize)]
    #[serde(rename_all = "PascalCase")]
    struct Downloaded {
        dir: PathBuf,
    }
    let mut download = go(&workspace.path("components").join(E2E.name), &E2E);
    let downloaded = answer(download.args(["mod", "download", "-json", E2E.upstream]))?;
    Ok(serde_json::from_str::<Downloaded>(&downloaded).context("read what go says of a module")?.dir)
}

/// The tests of what is added to upstream, built like the component itself, so that hardly anything is compiled twice.
pub(crate) fn tests(workspace: &Workspace) -> Command {
    let mut command = go(&workspace.path("components").join(KUBE.name), &KUBE);
    command.args(["test", "-v", "-mod=readonly", "-trimpath", "-tags", KUBE.tags, "."]);
    command
}

impl Components {
    /// Components that go into the image: everything but kubectl.
    pub(crate) fn of_image(&self) -> [&Component; 7] {
        [&self.etcd, &self.containerd, &self.runc, &self.cni, &self.coredns, &self.kube, &self.xfsprogs]
    }

    /// kubectl itself, for the commands that call it.
    pub(crate) fn kubectl_path(&self) -> PathBuf {
        self.kubectl.folder.join(KUBECTL.name)
    }
}

/// A Go module of `components/` with what names its build in the cache.
struct Module {
    recipe: &'static Recipe,
    source: PathBuf,
    version: String,
    key: CacheKey,
}

impl Module {
    fn of(workspace: &Workspace, recipe: &'static Recipe) -> Result<Self> {
        let source = workspace.path("components").join(recipe.name);
        let version = pinned(&source, recipe.upstream)?;

        let mut inputs = DigestInputs::new("go module").text("recipe", RECIPE).text("how", &format!("{recipe:?}"));
        inputs = inputs.text("notices", notices::RECIPE).text("go", &answer(Command::new("go").arg("version"))?);
        for file in ["go.mod", "go.sum", "main.go", "apiserver.go"] {
            let path = source.join(file);
            if path.exists() {
                inputs = inputs.file(file, &path).with_context(|| format!("read `{}`", path.display()))?;
            }
        }
        if let C::Static(packages) = recipe.c {
            inputs = inputs.text("gcc", &answer(Command::new("gcc").arg("--version"))?);
            inputs = inputs.text("packages", &answer(Command::new("dpkg-query").arg("--show").args(packages))?);
        }
        let key = CacheKey { kind: recipe.name, inputs: inputs.finish()? };
        Ok(Self { recipe, source, version, key })
    }

    /// Component that its build has left in a folder.
    fn component(self, folder: PathBuf) -> Component {
        let executables = self.recipe.executables.iter().map(|(file, _)| *file).collect();
        Component { name: self.recipe.name, version: self.version, folder, executables }
    }
}

fn go_module(workspace: &Workspace, cache: &BuildCache, recipe: &'static Recipe) -> Result<Component> {
    let module = Module::of(workspace, recipe)?;
    let what = format!("building {}", module.version);
    let folder = cache.entry(&module.key, |room| {
        step(recipe.name, &what, || compile(room, &module.source, recipe, &module.version))
    })?;
    Ok(module.component(folder))
}

fn compile(room: &BuildRoom<'_>, source: &Path, recipe: &Recipe, version: &str) -> Result<()> {
    let flags = link_flags(recipe, version);
    for (file, package) in recipe.executables {
        let mut command = go(source, recipe);
        match file.ends_with(".test") {
            // vet is upstream's concern
            true => command.args(["test", "-c", "-vet=off"]),
            false => command.arg("build"),
        };
        command.args(["-mod=readonly", "-trimpath", "-buildvcs=false", "-tags", recipe.tags]);
        command.args(["-ldflags", &flags, "-o"]).arg(room.out.join(file)).arg(package);
        logged(&mut command, room.log)?;
    }
    let packages: Vec<&str> = recipe.executables.iter().map(|(_, package)| *package).collect();
    let mut text = notices::of_go(|| go(source, recipe), recipe.tags, &packages)?;
    if let C::Static(packages) = recipe.c {
        text += &notices::of_debian(packages)?;
    }
    fs::write(room.out.join("NOTICES.txt"), text).context("write the notices")
}

/// The go command for a module: nothing of it depends on the user's own settings but where downloads come from.
fn go(source: &Path, recipe: &Recipe) -> Command {
    let mut command = Command::new("go");
    command.current_dir(source).env("GOFLAGS", "").env("GOTOOLCHAIN", "local").env("GOWORK", "off");
    command.env("GOOS", "linux").env("GOARCH", "amd64").env("GOAMD64", "v1").env("GOEXPERIMENT", "");
    command.env(
        "CGO_ENABLED",
        match recipe.c {
            C::None => "0",
            C::Static(_) => "1",
        },
    );
    command
}

fn link_flags(recipe: &Recipe, version: &str) -> String {
    let mut numbers = version.trim_start_matches('v').splitn(3, '.');
    let (_major, minor, patch) = (numbers.next(), numbers.next().unwrap_or(""), numbers.next().unwrap_or(""));
    let mut flags = LINK.to_owned();
    if let C::Static(_) = recipe.c {
        flags += " -linkmode external -extldflags '-static -Wl,--build-id=none'";
    }
    for (variable, value) in recipe.stamps {
        let value = value.replace("{version}", version).replace("{minor}", minor).replace("{patch}", patch);
        flags += &format!(" -X {variable}={value}");
    }
    flags
}

/// The version that a go.mod pins for a module.
fn pinned(source: &Path, upstream: &str) -> Result<String> {
    let path = source.join("go.mod");
    let text = fs::read_to_string(&path).with_context(|| format!("read `{}`", path.display()))?;
    version_in(&text, upstream)
        .map(str::to_owned)
        .with_context(|| format!("`{}` requires no {upstream}", path.display()))
}

fn version_in<'a>(go_mod: &'a str, upstream: &str) -> Option<&'a str> {
    go_mod.lines().find_map(|line| {
        let mut words = line.split_whitespace().skip_while(|word| *word == "require");
        (words.next() == Some(upstream)).then(|| words.next()).flatten().filter(|version| version.starts_with('v'))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const RECIPES: [&Recipe; 9] = [&KUBE, &KUBECTL, &ETCD, &CONTAINERD, &RUNC, &GVISOR, &CNI, &COREDNS, &E2E];

    #[test]
    fn every_recipe_has_a_module_that_pins_its_upstream() {
        let workspace = Workspace::of_cargo().expect("run by cargo");
        for recipe in RECIPES {
            pinned(&workspace.path("components").join(recipe.name), recipe.upstream).expect("pinned");
        }
    }

    /// Proves: W1. The host's kubectl, upstream's tests and the cluster are one release, and say so.
    #[test]
    fn kubectl_and_the_cluster_are_one_release() {
        let workspace = Workspace::of_cargo().expect("run by cargo");
        let stamped = |recipe: &Recipe| {
            let version = pinned(&workspace.path("components").join(recipe.name), recipe.upstream).expect("pinned");
            link_flags(recipe, &version)
        };
        assert_eq!(stamped(&KUBE), stamped(&KUBECTL));
        assert_eq!(stamped(&KUBE), stamped(&E2E));
        assert!(link_flags(&KUBE, "v1.36.3").contains("version.gitVersion=v1.36.3 "));
    }

    #[test]
    fn a_version_is_read_from_every_form_of_require() {
        let text =
            "module x\n\nrequire a.b/c v1.2.3\n\nrequire (\n\td.e/f v0.1.0 // indirect\n)\nreplace g => g v9.9.9\n";
        assert_eq!(version_in(text, "a.b/c"), Some("v1.2.3"));
        assert_eq!(version_in(text, "d.e/f"), Some("v0.1.0"));
        assert_eq!(version_in(text, "g"), None);
    }
}
