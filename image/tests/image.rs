//! The whole image from small stand-ins for its programs, with the tools a build host has.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use aws_lc_rs::digest::{SHA256, digest};
use image::inspect::{InspectError, Report, inspect};
use image::licences::{LicencesError, licences};
use image::{
    ImageExtension, ImageInputs, ImageProfile, InitProgram, KernelInput, KernelOrigin, Licence, ManifestEntry, Mode,
    RootProgram, SizeLimits, build, names,
};

/// Inputs in `dir`: each program is text, the kernel only has the marks of one.
fn inputs(dir: &Path) -> ImageInputs {
    fs::create_dir_all(dir).expect("room for temporary files");
    let put = |name: &str, bytes: &[u8]| -> PathBuf {
        let path = dir.join(name);
        fs::write(&path, bytes).expect("room for temporary files");
        // Whatever modes files come with, also setuid, the image has its own.
        fs::set_permissions(&path, fs::Permissions::from_mode(0o4700)).expect("our own file");
        path
    };
    let mut kernel = vec![0; 2048];
    kernel[..2].copy_from_slice(b"MZ");
    kernel[0x202..0x206].copy_from_slice(b"HdrS");
    kernel[0x20e..0x210].copy_from_slice(&0x400u16.to_le_bytes());
    kernel[0x600..0x606].copy_from_slice(b"6.12.0");
    let program =
        |program: RootProgram| (program, put(program.file_name(), program.file_name().repeat(9000).as_bytes()));
    ImageInputs {
        sizes: SizeLimits::Held,
        version: "0.1.0".to_owned(),
        init: InitProgram::Release(put("init", &b"init".repeat(9000))),
        extensions: BTreeSet::new(),
        kernel: KernelInput {
            bzimage: put("bzImage", &kernel),
            origin: KernelOrigin { version: "6.12.0".to_owned(), source_sha256: "00".repeat(32) },
        },
        programs: RootProgram::ALL.into_iter().rev().filter(|one| *one != RootProgram::Init).map(program).collect(),
        components: BTreeMap::from([("etcd".to_owned(), "v3".to_owned())]),
        licences: vec![Licence { name: "etcd".to_owned(), text: put("LICENCE", b"do as you like\n") }],
        stub: image::DEBIAN_STUB.into(),
        boot_loader: image::DEBIAN_BOOT_LOADER.into(),
    }
}

fn built() -> tempfile::TempDir {
    built_for(ImageProfile::Release, &[])
}

fn built_for(profile: ImageProfile, extensions: &[ImageExtension]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().expect("room for temporary files");
    let mut inputs = inputs(&dir.path().join("in"));
    inputs.extensions = extensions.iter().copied().collect();
    if profile == ImageProfile::Debug {
        inputs.init = InitProgram::Debug(inputs.init.path().to_owned());
    }
    build(&inputs, dir.path()).expect("an image");
    dir
}

/// Proves: O5
#[test]
fn two_builds_in_different_places_give_the_same_bytes() {
    let (first, second) = (built(), tempfile::tempdir().expect("room for temporary files"));
    let elsewhere = second.path().join("a/longer/path");
    build(&inputs(&elsewhere.join("inputs")), &elsewhere).expect("an image");
    for name in [names::KERNEL, names::INITRAMFS, names::ROOT, names::UKI, names::DISK, names::MANIFEST] {
        let same = fs::read(first.path().join(name)).expect("made") == fs::read(elsewhere.join(name)).expect("made");
        assert!(same, "{name} differs");
    }
}

fn hex_sha256(bytes: &[u8]) -> String {
    digest(&SHA256, bytes).as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Proves: O5
#[test]
fn the_manifest_lists_what_the_root_really_holds() {
    is_listed(ImageProfile::Release, &[], "");
    is_listed(ImageProfile::Debug, &[], "");
    is_listed(ImageProfile::Release, &[ImageExtension::Gvisor], "gvisor\n");
}

fn is_listed(profile: ImageProfile, extensions: &[ImageExtension], words: &str) {
    let dir = built_for(profile, extensions);
    let Report::Image(manifest) = inspect(dir.path()).expect("sound") else { panic!("not an image") };
    let unpacked = dir.path().join("unpacked");
    let extracted = Command::new("fsck.erofs")
        .arg(format!("--extract={}", unpacked.display()))
        .arg(dir.path().join(names::ROOT))
        .output();
    assert!(extracted.expect("erofs-utils").status.success());
    assert_eq!(
        manifest.root.len(),
        image::rows(profile, &manifest.extensions).count() + 1,
        "the table and one licence"
    );
    assert!(manifest.extensions.iter().eq(extensions));
    assert_eq!(fs::read_to_string(unpacked.join("etc/cairn/extensions")).expect("extracted"), words);
    let mut found = 0;
    let mut open = vec![unpacked.clone()];
    while let Some(directory) = open.pop() {
        for entry in fs::read_dir(directory).expect("extracted") {
            let entry = entry.expect("extracted");
            let (path, kind) = (entry.path(), entry.file_type().expect("extracted"));
            let listed = &manifest.root[&format!("/{}", path.strip_prefix(&unpacked).expect("below").display())];
            let mode = fs::symlink_metadata(&path).expect("extracted").permissions().mode() & 0o7777;
            match listed {
                ManifestEntry::File { size, sha256, mode: listed } => {
                    let bytes = fs::read(&path).expect("extracted");
                    assert_eq!((*size, sha256), (bytes.len() as u64, &hex_sha256(&bytes)), "{}", path.display());
                    assert_eq!(*listed, Some(Mode(mode)), "{}", path.display());
                    assert!(mode == 0o555 || mode == 0o444, "{} has mode {mode:o}", path.display());
                }
                ManifestEntry::Link { target } => {
                    assert_eq!(fs::read_link(&path).expect("a link").display().to_string(), *target)
                }
                ManifestEntry::Directory => assert!(kind.is_dir() && mode == 0o755, "{} {mode:o}", path.display()),
                ManifestEntry::Device => panic!("no devices in the root"),
            }
            if kind.is_dir() {
                open.push(path);
            }
            found += 1;
        }
    }
    assert_eq!(found, manifest.root.len());
}

#[test]
fn licences_are_read_from_whatever_holds_a_root() {
    let dir = built();
    let stage = dir.path().join("stage");
    let found = BTreeMap::from([("etcd".to_owned(), "do as you like\n".to_owned())]);
    for holds in [dir.path().to_owned(), dir.path().join(names::ROOT), dir.path().join(names::DISK)] {
        assert_eq!(licences(&holds, &stage).expect("a root"), found, "{}", holds.display());
        assert!(!stage.exists());
    }
    for holds_none in [names::UKI, names::KERNEL, names::INITRAMFS] {
        let refused = licences(&dir.path().join(holds_none), &stage);
        assert!(matches!(refused, Err(LicencesError::NoRoot(_))), "{holds_none}: {refused:?}");
    }
    let root = dir.path().join(names::ROOT);
    let mut bytes = fs::read(&root).expect("made");
    *bytes.get_mut(5000).expect("a root is longer") ^= 1;
    fs::write(&root, bytes).expect("our own file");
    for damaged in [&root, dir.path()] {
        let refused = licences(damaged, &stage);
        assert!(matches!(refused, Err(LicencesError::Inspect(_))), "{refused:?}");
    }
}

/// A root that somebody else made may lead anywhere.
#[test]
fn a_link_in_a_root_shows_no_file_of_the_host() {
    let dir = tempfile::tempdir().expect("room for temporary files");
    let (tree, root, stage) = (dir.path().join("tree"), dir.path().join(names::ROOT), dir.path().join("stage"));
    let folder = tree.join("usr/share/doc/cairn/licences");
    let secret = dir.path().join("secret");
    let made = || {
        let ran = Command::new("mkfs.erofs").arg("--quiet").arg(&root).arg(&tree).output().expect("erofs-utils");
        assert!(ran.status.success(), "{ran:?}");
        let data = fs::read(&root).expect("made");
        let (hashes, _) = formats::verity::tree(&data).expect("whole blocks");
        fs::write(&root, [data, hashes].concat()).expect("our own file");
        licences(&root, &stage)
    };
    fs::create_dir_all(&folder).expect("room for temporary files");
    fs::write(&secret, "mine").expect("room for temporary files");
    fs::write(folder.join("a"), "do as you like").expect("room for temporary files");
    symlink(&secret, folder.join("b")).expect("room for temporary files");
    let found = BTreeMap::from([("a".to_owned(), "do as you like".to_owned())]);
    assert_eq!(made().expect("a root"), found);
    fs::remove_dir_all(&folder).expect("our own");
    symlink(dir.path(), &folder).expect("room for temporary files");
    let elsewhere = made();
    assert!(matches!(elsewhere, Err(LicencesError::Elsewhere(_))), "{elsewhere:?}");
}

/// Proves: O6
#[test]
fn every_artefact_tells_the_same_story() {
    let dir = built();
    let at = |name| inspect(&dir.path().join(name)).expect("sound");
    let Report::Image(manifest) = at(names::MANIFEST) else { panic!("not an image") };
    let Report::Kernel(kernel) = at(names::KERNEL) else { panic!("not a kernel") };
    let Report::Initramfs(initramfs) = at(names::INITRAMFS) else { panic!("not an initramfs") };
    let Report::Uki(uki) = at(names::UKI) else { panic!("not a unified kernel") };
    let Report::Root(root) = at(names::ROOT) else { panic!("not a root") };
    let Report::Disk(disk) = at(names::DISK) else { panic!("not a disk") };
    assert_eq!(kernel.version, "6.12.0");
    assert_eq!((&initramfs.verity, &root.verity), (&manifest.verity, &manifest.verity));
    assert_eq!((&initramfs.cmdline, &uki.cmdline), (&manifest.cmdline, &manifest.cmdline));
    assert_eq!((&uki.kernel, &uki.initramfs, &uki.pcr11), (&kernel, &initramfs, &manifest.pcr11));
    assert_eq!(disk.kernels, BTreeMap::from([("/EFI/Linux/cairn-a.efi".to_owned(), *uki)]));
    assert_eq!(disk.slots, BTreeMap::from([("cairn-system-a".to_owned(), root)]));
    assert_eq!((&disk.esp, &initramfs.files), (&manifest.esp, &manifest.initramfs));
    let text = at(names::DISK).to_string();
    assert!(text.contains("cairn-system-a") && text.contains(&manifest.pcr11), "{text}");
}

/// Proves: O3
#[test]
fn damage_and_garbage_are_told_apart_from_images() {
    let dir = built();
    let damaged = |name: &str, at: usize| {
        let mut bytes = fs::read(dir.path().join(name)).expect("made");
        bytes[at] ^= 1;
        let path = dir.path().join("damaged");
        fs::write(&path, bytes).expect("room for temporary files");
        inspect(&path)
    };
    let root = fs::metadata(dir.path().join(names::ROOT)).expect("made").len();
    let last = usize::try_from(root).expect("small") - 4096;
    assert!(matches!(damaged(names::ROOT, last), Err(InspectError::Corrupt(_))), "hash tree");
    assert!(matches!(damaged(names::DISK, (65 << 20) + 5000), Err(InspectError::Corrupt(_))), "slot A");
    let initramfs = fs::read(dir.path().join(names::INITRAMFS)).expect("made");
    fs::write(dir.path().join("cut"), &initramfs[..initramfs.len() - 1]).expect("room for temporary files");
    assert!(matches!(inspect(&dir.path().join("cut")), Err(InspectError::Unpack(_))), "initramfs");
    fs::write(dir.path().join("garbage"), [7; 9000]).expect("room for temporary files");
    assert!(matches!(inspect(&dir.path().join("garbage")), Err(InspectError::Unknown(_))));
    assert!(matches!(inspect(&dir.path().join("nothing")), Err(InspectError::File(_))));
    fs::write(dir.path().join(names::KERNEL), b"another").expect("room for temporary files");
    assert!(matches!(inspect(dir.path()), Err(InspectError::Changed(name)) if name == names::KERNEL));
}

#[test]
fn without_a_program_there_is_no_image() {
    let dir = tempfile::tempdir().expect("room for temporary files");
    let mut inputs = inputs(&dir.path().join("in"));
    inputs.programs.remove(&RootProgram::Runc);
    let error = build(&inputs, dir.path()).expect_err("runc is missing");
    assert_eq!(error.to_string(), "the image needs the program `runc`, which was not given");
    assert!(!dir.path().join(names::MANIFEST).exists());
}

/// Proves: S8
#[test]
fn the_image_of_a_profile_is_made_of_that_profiles_init() {
    let dir = tempfile::tempdir().expect("room for temporary files");
    let mut inputs = inputs(&dir.path().join("in"));
    let path = dir.path().join("init with faults");
    fs::write(&path, "/cairn.v1.Debug/Inject").expect("room for temporary files");
    inputs.init = InitProgram::Release(path.clone());
    let refused = build(&inputs, dir.path()).expect_err("a release with faults").to_string();
    assert!(refused.starts_with(&format!("`{}` holds the word `Inject`", path.display())), "{refused}");
    assert!(!dir.path().join(names::MANIFEST).exists() && !dir.path().join(names::ROOT).exists());
    inputs.init = InitProgram::Debug(path);
    assert_eq!(build(&inputs, dir.path()).expect("an image").profile, ImageProfile::Debug);
}

/// The file systems stand up to the checkers of others.
///
/// Proves: O6
#[test]
fn the_esp_is_clean_for_fsck() {
    let dir = built();
    let esp = dir.path().join("esp");
    fs::write(&esp, image::esp::read(&dir.path().join(names::DISK)).expect("there")).expect("room for temporary files");
    let checked = Command::new("/usr/sbin/fsck.fat").arg("-n").arg(&esp).output().expect("dosfstools");
    let text = String::from_utf8_lossy(&checked.stdout).into_owned();
    assert!(checked.status.success(), "{text}");
    assert_eq!(text.lines().count(), 2, "{text}");
}
