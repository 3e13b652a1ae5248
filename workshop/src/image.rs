//! The image, from nothing: kernel, components and programs, and then the `image` crate over them. It must never put
//! anything into the image that was not built or checked in this run.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use ::image::{Inputs, Kernel, KernelOrigin, Licence, Manifest, Profile, Program, weigh};
use anyhow::{Context, Result};
use xtask::{
    cache::Cache,
    progress::{say, step},
    workspace::Workspace,
};

use crate::{
    components, kernel,
    pinned::Pinned,
    programs::{self, Build},
};

/// The stub of the unified kernel image and the boot loader: what runs before our kernel. Newer ones are a change here.
const STUB: Pinned = Pinned {
    path: ::image::DEBIAN_STUB,
    package: "systemd-boot-efi 252.39-1~deb12u2",
    sha256: "c62ae56ffaf49d1a61de4434f4f531dd1d4ed3b5aee46c934c56e3f809b22cc4",
};
const BOOT_LOADER: Pinned = Pinned {
    path: ::image::DEBIAN_BOOT_LOADER,
    package: STUB.package,
    sha256: "10288fece5e90ce3ba3e7160f49695b022d648f7ef41774678db8c77774db167",
};
const SYSTEMD_COPYRIGHT: &str = "/usr/share/doc/systemd-boot-efi/copyright";

/// What kind of image is wanted.
#[derive(Debug, Clone)]
pub(crate) struct Wanted {
    /// Which services it starts.
    pub(crate) profile: Profile,
    /// How its programs are compiled.
    pub(crate) build: Build,
    /// The kernel's source, if not Debian's.
    pub(crate) kernel_source: Option<PathBuf>,
}

/// Builds an image with all it needs into a folder.
///
/// # Errors
/// Any step fails; the message names it.
pub(crate) fn build(workspace: &Workspace, cache: &Cache, wanted: &Wanted, out: &Path) -> Result<Manifest> {
    write(&inputs(workspace, cache, wanted)?, out)
}

/// Writes the image of finished inputs into a folder.
///
/// # Errors
/// Any step fails; the message names it.
pub(crate) fn write(inputs: &Inputs, out: &Path) -> Result<Manifest> {
    let manifest = step("image", &format!("writing to `{}`", out.display()), || Ok(::image::build(inputs, out)?))?;
    say(format_args!("  {}", weigh(&manifest)?));
    Ok(manifest)
}

/// Builds all that an image is made of, or finds it in the cache.
///
/// # Errors
/// Any step fails; the message names it.
pub(crate) fn inputs(workspace: &Workspace, cache: &Cache, wanted: &Wanted) -> Result<Inputs> {
    let kernel = kernel::build(cache, wanted.kernel_source.as_deref())?;
    let components = components::build(workspace, cache)?;
    let built = programs::build(workspace, wanted.build)?;

    let ours = [(Program::Init, built.init), (Program::Pause, built.pause), (Program::Web, built.web)];
    let mut programs = BTreeMap::from(ours);
    let mut versions = BTreeMap::new();
    let mut licences = vec![
        Licence { name: "cairn".to_owned(), text: built.notices },
        Licence { name: "linux".to_owned(), text: kernel.notices },
        Licence { name: "systemd-boot".to_owned(), text: PathBuf::from(SYSTEMD_COPYRIGHT) },
    ];
    for component in components.of_image() {
        for (name, path) in component.files() {
            let program = Program::ALL.into_iter().find(|program| program.file_name() == name);
            programs.insert(program.with_context(|| format!("the image has no place for `{name}`"))?, path);
        }
        versions.insert(component.name.to_owned(), component.version.clone());
        licences.push(Licence { name: component.name.to_owned(), text: component.notices() });
    }
    Ok(Inputs {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        profile: wanted.profile,
        kernel: Kernel {
            bzimage: kernel.bzimage,
            origin: KernelOrigin { version: kernel.version, source_sha256: kernel.source_sha256 },
        },
        programs,
        components: versions,
        licences,
        stub: STUB.check()?,
        boot_loader: BOOT_LOADER.check()?,
    })
}
