//! The image, from nothing: kernel, components and programs, and then the `image` crate over them. It must never put
//! anything into the image that was not built or checked in this run.

use std::{
    collections::{BTreeMap, BTreeSet},
    env, fs, io,
    path::{Path, PathBuf},
};

use ::image::{
    ImageExtension, ImageInputs, ImageProfile, KernelInput, KernelOrigin, Licence, Manifest, ManifestEntry,
    RootProgram, SizeLimits, names, weigh,
};
use anyhow::{Context, Result};
use xtask::{
    cache::BuildCache,
    digest::{self, Digest},
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

/// Kind of image that is wanted.
#[derive(Debug, Clone)]
pub(crate) struct Wanted {
    /// Which services it starts.
    pub(crate) profile: ImageProfile,
    /// Extensions that it has.
    pub(crate) extensions: BTreeSet<ImageExtension>,
    /// How its programs are compiled.
    pub(crate) build: Build,
    /// The kernel's source, if not Debian's.
    pub(crate) kernel_source: Option<PathBuf>,
}

impl Wanted {
    /// Image of a profile as users have it: without extensions, with Debian's kernel.
    pub(crate) const fn plain(profile: ImageProfile, build: Build) -> Self {
        Self { profile, extensions: BTreeSet::new(), build, kernel_source: None }
    }
}

/// Builds an image with all it needs into a folder.
///
/// # Errors
/// Any step fails; the message names it.
pub(crate) fn build(workspace: &Workspace, cache: &BuildCache, wanted: &Wanted, out: &Path) -> Result<Manifest> {
    write(&inputs(workspace, cache, wanted)?, out)
}

/// Names what the image in a folder was written from, and the hash of its manifest; lies beside that.
const WRITTEN_FROM: &str = "WRITTEN-FROM";

/// An image in a folder whose manifest is the one that its inputs lead to.
#[derive(Debug)]
pub(crate) struct Known {
    pub(crate) manifest: Manifest,
    inputs: ImageInputs,
    folder: PathBuf,
    origin: Digest,
}

impl Known {
    /// Finds it, where this very program wrote the folder's image from the same inputs; else writes it.
    ///
    /// # Errors
    /// Any step fails; the message names it.
    pub(crate) fn of(workspace: &Workspace, cache: &BuildCache, wanted: &Wanted, folder: PathBuf) -> Result<Self> {
        let inputs = inputs(workspace, cache, wanted)?;
        let (origin, found) = step("image", "looking whether it has changed", || {
            let origin = origin(&inputs)?;
            let written_from = fs::read_to_string(folder.join(WRITTEN_FROM)).ok();
            let same = written_from.is_some_and(|found| note(&origin, &folder).is_ok_and(|note| note == found));
            Ok((origin, same.then(|| manifest(&folder)).and_then(Result::ok)))
        })?;
        match found {
            Some(manifest) => Ok(Self { manifest, inputs, folder, origin }),
            None => {
                let manifest = write(&inputs, &folder)?;
                let known = Self { manifest, inputs, folder, origin };
                known.note().map(|()| known)
            }
        }
    }

    /// Has each file of it be as its manifest says: one that was changed since is written again, with all others.
    ///
    /// # Errors
    /// It cannot be written.
    pub(crate) fn complete(&self) -> Result<()> {
        let is_whole = |(name, entry): (&String, &ManifestEntry)| match entry {
            ManifestEntry::File { sha256, .. } => {
                digest::of_file(&self.folder.join(name)).is_ok_and(|found| found.to_string() == *sha256)
            }
            ManifestEntry::Link { .. } | ManifestEntry::Directory | ManifestEntry::Device => false,
        };
        if self.manifest.artefacts.iter().all(is_whole) {
            return Ok(());
        }
        write(&self.inputs, &self.folder)?;
        self.note()
    }

    /// A program that went into its root.
    pub(crate) fn program(&self, program: RootProgram) -> Option<&Path> {
        self.inputs.programs.get(&program).map(PathBuf::as_path)
    }

    fn note(&self) -> Result<()> {
        let note = note(&self.origin, &self.folder)?;
        fs::write(self.folder.join(WRITTEN_FROM), note).context("note what the image was written from")
    }
}

/// The content of the note beside an image.
fn note(origin: &Digest, folder: &Path) -> Result<String> {
    let manifest = digest::of_file(&folder.join(names::MANIFEST)).context("hash the image's manifest")?;
    Ok(format!("inputs {origin}\nmanifest {manifest}\n"))
}

/// The manifest of an image.
///
/// # Errors
/// It cannot be read, or is none.
pub(crate) fn manifest(image: &Path) -> Result<Manifest> {
    let path = image.join(names::MANIFEST);
    let text = fs::read(&path).with_context(|| format!("read `{}`", path.display()))?;
    serde_json::from_slice(&text).with_context(|| format!("read `{}`", path.display()))
}

/// Digest of all that decides an image, this program among it.
fn origin(inputs: &ImageInputs) -> Result<Digest> {
    let ImageInputs { version, sizes: _, init, extensions, kernel, programs, components, licences, stub, boot_loader } =
        inputs;
    let writer = env::current_exe().context("find this program")?;
    let mut all = digest::DigestInputs::new("image").file("writer", &writer)?.text("version", version);
    all = all.text("profile", init.profile().word()).file("init", init.path())?.text("kernel", &kernel.origin.version);
    all = all.text("kernel's source", &kernel.origin.source_sha256).file("bzimage", &kernel.bzimage)?;
    for extension in extensions {
        all = all.text("extension", extension.word());
    }
    for (program, path) in programs {
        all = all.file(program.file_name(), path)?;
    }
    for (component, version) in components {
        all = all.text(component, version);
    }
    for licence in licences {
        all = all.file(&licence.name, &licence.text)?;
    }
    all.file("stub", stub)?.file("boot loader", boot_loader)?.finish().context("hash what the image is made of")
}

/// Writes the image of finished inputs into a folder.
///
/// # Errors
/// Any step fails; the message names it.
pub(crate) fn write(inputs: &ImageInputs, out: &Path) -> Result<Manifest> {
    // It is another one from here on; whoever knows of what, notes it.
    match fs::remove_file(out.join(WRITTEN_FROM)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(error).context("remove the note of what the image was written from");
        }
        Ok(()) | Err(_) => {} // gone either way
    }
    let manifest = step("image", &format!("writing to `{}`", out.display()), || Ok(::image::build(inputs, out)?))?;
    say(format_args!("  {}", weigh(&manifest, inputs.sizes)?));
    Ok(manifest)
}

/// Builds all that an image is made of, or finds it in the cache.
///
/// # Errors
/// Any step fails; the message names it.
pub(crate) fn inputs(workspace: &Workspace, cache: &BuildCache, wanted: &Wanted) -> Result<ImageInputs> {
    let kernel = kernel::build(cache, wanted.kernel_source.as_deref())?;
    let components = components::build(workspace, cache)?;
    let built = programs::build(workspace, wanted.build, wanted.profile)?;

    let mut programs = BTreeMap::from([(RootProgram::Pause, built.pause), (RootProgram::Web, built.web)]);
    programs.extend(built.guest.map(|guest| (RootProgram::Guest, guest)));
    let mut versions = BTreeMap::new();
    let mut licences = vec![
        Licence { name: "cairn".to_owned(), text: built.notices },
        Licence { name: "linux".to_owned(), text: kernel.notices },
        Licence { name: "systemd-boot".to_owned(), text: PathBuf::from(SYSTEMD_COPYRIGHT) },
    ];
    let of_extensions = components::of_extensions(workspace, cache, &wanted.extensions)?;
    for component in components.of_image().into_iter().chain(&of_extensions) {
        for (name, path) in component.files() {
            let program = RootProgram::ALL.into_iter().find(|program| program.file_name() == name);
            programs.insert(program.with_context(|| format!("the image has no place for `{name}`"))?, path);
        }
        versions.insert(component.name.to_owned(), component.version.clone());
        licences.push(Licence { name: component.name.to_owned(), text: component.notices() });
    }
    Ok(ImageInputs {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        sizes: match wanted.build {
            Build::Release => SizeLimits::Held,
            Build::Quick => SizeLimits::Any,
        },
        init: built.init,
        extensions: wanted.extensions.clone(),
        kernel: KernelInput {
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
