//! The image, from nothing: kernel, components and programs, and then the `image` crate over them. It must never put
//! anything into the image that was not built or checked in this run.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use ::image::{Inputs, Kernel, KernelOrigin, Licence, Manifest, Profile, Program, weigh};
use anyhow::{Context, Result};

use crate::{
    cache::Cache,
    components, kernel,
    programs::{self, Build},
    progress::{say, step},
    workspace::Workspace,
};

/// systemd's EFI programs, from Debian's package systemd-boot-efi.
const SYSTEMD_EFI: &str = "/usr/lib/systemd/boot/efi";
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
        stub: Path::new(SYSTEMD_EFI).join("linuxx64.efi.stub"),
        boot_loader: Path::new(SYSTEMD_EFI).join("systemd-bootx64.efi"),
    })
}
